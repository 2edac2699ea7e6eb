"""Tables, and states of optimizers, that are divided among workers; they train, stop, and go on with other numbers of workers."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_fleet import fleet_of
from workers import alone, failing, needs_mpi, together

import fluid
from fluid.distributed.parts import Division, FlatDivision, RowDivision
from fluid.errors import ProgramError
from fluid.incubate.fleet.collective import DistributedStrategy

STEPS = 5


def losses_of(text: str) -> list[float]:
    losses: list[float] = json.loads(text)["losses"]
    return losses


def check_training(optimizer: str, divides: str, sparse: str, workers: int, *padding: object) -> dict[str, Any]:
    """Workers with parts of tables and states have the losses of one process; returns the shapes of the parts."""
    more = ("", "", *padding) if padding else ()
    one = losses_of(alone("divided.py", optimizer, "none", sparse, STEPS, *more))
    result: dict[str, Any] = json.loads(together("divided.py", optimizer, divides, sparse, STEPS, *more, workers=workers))
    np.testing.assert_allclose(result["losses"], one, rtol=2e-6, atol=1e-7)
    assert one[-1] != one[0]
    parts: dict[str, Any] = result["parts"]
    return parts


# ---------------------------------------------------------------------------------------------------------------- training
@needs_mpi
def test_a_table_and_its_state_are_divided_by_rows() -> None:
    parts = check_training("adam", "table", "sparse", 2)
    names = ("w_0", "w_0_moment1_0", "w_0_moment2_0")
    assert parts == {f"embedding_{number}.{name}": [16, 4] for number in range(2) for name in names}, "31 rows on 2 workers"


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "sparse", "workers"),
    [("sgd", "sparse", 3), ("adagrad", "sparse", 2), ("momentum", "dense", 2), ("adam", "dense", 3)],
)
def test_divided_tables_by_optimizer(optimizer: str, sparse: str, workers: int) -> None:
    check_training(optimizer, "table", sparse, workers)


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("sparse", ["sparse", "dense"])
def test_a_divided_table_with_padding(sparse: str) -> None:
    check_training("sgd", "table", sparse, 2, 5)


@needs_mpi
def test_the_state_of_an_optimizer_is_divided() -> None:
    parts = check_training("adam", "state", "sparse", 3)
    assert parts["fc_0.w_0_moment1_0"] == [40] and parts["fc_0.b_0_moment2_0"] == [2], "120 and 5 elements on 3 workers"
    assert not any("embedding" in name or "pow" in name for name in parts)


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["momentum", "adagrad", "rmsprop"])
def test_divided_states_by_optimizer(optimizer: str) -> None:
    check_training(optimizer, "state,table", "dense", 2)


@needs_mpi
@pytest.mark.slow
def test_divided_states_have_the_bits_of_full_ones() -> None:
    """The sums of gradients are the same, and each element is updated as before."""
    full, divided = (losses_of(together("divided.py", "adam", divides, "dense", STEPS)) for divides in ("none", "state"))
    assert divided == full


@needs_mpi
def test_gradients_sent_as_bfloat16() -> None:
    one = losses_of(alone("divided.py", "sgd", "none", "dense", STEPS))
    many = losses_of(together("divided.py", "sgd", "bfloat16,state,table", "dense", STEPS))
    np.testing.assert_allclose(many, one, rtol=2**-7)
    assert not np.allclose(many, one, rtol=1e-7), "gradients are rounded"


# ---------------------------------------------------------------------------------------------------- joining and leaving
@needs_mpi
@pytest.mark.parametrize("shards", ["", ",shards"])
def test_workers_join_and_leave_between_checkpoints(tmp_path: Path, shards: str) -> None:
    """Two workers, then three, then one process, which needs nothing of them: the losses are those of one process."""
    expected = losses_of(alone("divided.py", "adam", "none", "sparse", 6))
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    divides = "table,state" + shards
    losses = losses_of(together("divided.py", "adam", divides, "sparse", 2, "", folders[0], workers=2))
    losses += losses_of(together("divided.py", "adam", divides, "sparse", 2, folders[0], folders[1], workers=3))
    losses += losses_of(alone("divided.py", "adam", "none", "sparse", 2, folders[1], folders[2]))
    np.testing.assert_allclose(losses, expected, rtol=2e-6, atol=1e-7)
    if not shards:
        with np.load(folders[2] / "ck") as last, np.load(folders[0] / "ck") as first:
            assert {name: array.shape for name, array in last.items() if name[0] != "@"} == {
                name: array.shape for name, array in first.items() if name[0] != "@"
            }


@needs_mpi
@pytest.mark.slow
def test_one_process_is_joined_by_another(tmp_path: Path) -> None:
    expected = losses_of(alone("divided.py", "momentum", "none", "dense", 4))
    losses = losses_of(alone("divided.py", "momentum", "none", "dense", 2, "", tmp_path))
    losses += losses_of(together("divided.py", "momentum", "table,state", "dense", 2, tmp_path))
    np.testing.assert_allclose(losses, expected, rtol=2e-6, atol=1e-7)


# ---------------------------------------------------------------------------------------------------------- bad settings
@needs_mpi
@pytest.mark.slow
def test_optimizers_that_need_all_of_a_parameter() -> None:
    errors = failing("divided.py", "lamb", "state", "dense", 1)
    assert "shard_optimizer_state: lamb does not update each element by itself" in errors, errors
    errors = failing("divided.py", "clipped", "table", "sparse", 1)
    assert "GradientClipByGlobalNorm needs the norm of a full gradient, and the gradient of embedding_0.w_0" in errors, errors


def test_only_embeddings_use_a_divided_table() -> None:
    rows = fluid.embedding(fluid.data("ids", [None, 1], "int64"), [9, 4], is_distributed=True, param_attr="table")
    table = fluid.default_main_program().global_block().var("table")
    loss = fluid.layers.mean(rows) + fluid.layers.mean(table)
    with pytest.raises(ProgramError, match=r"the table table is divided among the workers .*, so only embeddings .* not mean"):
        fleet_of(2).distributed_optimizer(fluid.optimizer.SGD(0.1)).minimize(loss)


@pytest.mark.parametrize("name", ["save_persistables", "save_inference_model"])
def test_one_worker_cannot_save_divided_tensors(tmp_path: Path, name: str) -> None:
    workers = fleet_of(2)
    loss = fluid.layers.mean(fluid.embedding(fluid.data("ids", [None, 1], "int64"), [9, 4], is_distributed=True))
    workers.distributed_optimizer(fluid.optimizer.SGD(0.1)).minimize(loss)
    arguments = (["ids"], [loss]) if name == "save_inference_model" else ()
    with pytest.raises(ProgramError, match=rf"{name}: each worker holds a part of embedding_0.w_0; fleet.save_checkpoint"):
        getattr(workers, name)(fluid.Executor(), os.fspath(tmp_path), *arguments)
    with pytest.raises(ProgramError, match="save_checkpoint: each worker holds a part"):
        fluid.save_checkpoint(fluid.default_main_program(), tmp_path / "ck")


def test_an_inference_model_needs_no_divided_state(tmp_path: Path) -> None:
    workers, strategy = fleet_of(2), DistributedStrategy()
    strategy.shard_optimizer_state = True
    y = fluid.layers.fc(fluid.data("x", [None, 4]), 3)
    test_program = fluid.default_main_program().clone(for_test=True)
    workers.distributed_optimizer(fluid.optimizer.Momentum(0.1, 0.9), strategy).minimize(fluid.layers.mean(y))
    executor, startup = fluid.Executor(), fluid.Program()
    for name, shape in (("fc_0.w_0", [4, 3]), ("fc_0.b_0", [3])):
        startup.global_block().create_var(name=name, shape=shape, dtype="float32", persistable=True)
        startup.global_block().append_op("fill_constant", {}, {"Out": name}, {"shape": shape, "value": 1.0, "dtype": 5})
    executor.run(startup)
    workers.save_inference_model(executor, os.fspath(tmp_path), ["x"], [y], test_program)
    assert (tmp_path / "__model__").exists()


@pytest.mark.parametrize("is_divided", [True, False])
def test_local_sgd_divides_nothing(is_divided: bool) -> None:
    loss = fluid.layers.mean(fluid.embedding(fluid.data("ids", [None, 1], "int64"), [9, 4], is_distributed=is_divided))
    strategy = DistributedStrategy()
    strategy.use_local_sgd, strategy.shard_optimizer_state = True, not is_divided
    with pytest.raises(ProgramError, match=r"use_local_sgd lets workers .*(is_distributed=True|shard_optimizer_state) is not"):
        fleet_of(2).distributed_optimizer(fluid.optimizer.Adam(0.1), strategy).minimize(loss)


@pytest.mark.parametrize("how", ["accumulated", "scaled"])
def test_updates_on_a_condition_are_divided_too(how: str) -> None:
    rows = fluid.embedding(fluid.data("ids", [None, 1], "int64"), [9, 4], is_distributed=True)
    loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.reshape(rows, [-1, 4]), 3))
    strategy, optimizer = DistributedStrategy(), fluid.optimizer.Momentum(0.1, 0.9)
    strategy.shard_optimizer_state, strategy.use_amp = True, how == "scaled"
    if how == "accumulated":
        optimizer = fluid.training.GradientAccumulation(optimizer, 2)
    fleet_of(2).distributed_optimizer(optimizer, strategy).minimize(loss)
    program = fluid.default_main_program()
    divided = {var.name: var.division.shape for var in program.list_vars() if var.persistable and var.division is not None}
    assert divided["embedding_0.w_0"] == divided["embedding_0.w_0_velocity_0"] == (9, 4)
    assert divided["fc_0.w_0_velocity_0"] == (4, 3)
    program.verify()


def test_one_worker_divides_nothing() -> None:
    rows = fluid.embedding(fluid.data("ids", [None, 1], "int64"), [9, 4], is_distributed=True)
    strategy = DistributedStrategy()
    strategy.shard_optimizer_state = True
    fleet_of(1).distributed_optimizer(fluid.optimizer.Adam(0.1), strategy).minimize(fluid.layers.mean(rows))
    assert not any(re.match("c_", op.type) for op in fluid.default_main_program().global_block().ops)


# ----------------------------------------------------------------------------------------------------------------- parts
@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize("shape", [(1,), (5,), (6, 2), (1, 3), (7, 1, 2)])
@pytest.mark.parametrize("kind", [FlatDivision, RowDivision])
def test_parts_make_the_tensor_again(kind: type[Division], shape: tuple[int, ...], workers: int) -> None:
    tensor = np.random.default_rng(0).standard_normal(shape)
    division = kind(shape, workers)
    parts = [division.part(tensor, worker) for worker in range(workers)]
    assert {part.shape for part in parts} == {division.part_shape}
    assert sum(part.size for part in parts) < tensor.size + workers * max(1, np.prod(shape[1:], dtype=int))
    np.testing.assert_array_equal(division.join(parts), tensor)

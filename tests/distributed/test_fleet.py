"""The interface of Fluid 1.6: role makers, the program that a fleet trains, saved files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid.distributed import Alone, Communicator
from fluid.distributed.agreement import first_difference
from fluid.distributed.process import use_communicator
from fluid.errors import CommunicationError, FluidTypeError, FormatError, ProgramError
from fluid.executor.stepwise import meeting as workers
from fluid.incubate.fleet.base import role_maker
from fluid.incubate.fleet.collective import Collective, CollectiveOptimizer, DistributedStrategy, fleet
from fluid.saving.by_workers import load_by_workers, save_by_workers


def fleet_of(count: int, index: int = 0) -> Collective:
    members = Collective()
    members.init(role_maker.UserDefinedCollectiveRoleMaker(index, [f"host:{number}" for number in range(count)]))
    return members


def trained(count: int, megabytes: float = 4, sparse: bool = False) -> tuple[fluid.Program, Any]:
    """The program of one of `count` workers, and its loss."""
    x = fluid.data("x", [None, 4])
    if sparse:
        ids = fluid.data("ids", [None, 1], "int64")
        x = fluid.layers.concat([x, fluid.layers.reshape(fluid.embedding(ids, [9, 4], is_sparse=True), [-1, 4])], axis=1)
    loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.fc(x, 3), 1))
    strategy = DistributedStrategy()
    strategy.fuse_grad_size_in_MB = megabytes
    fleet_of(count).distributed_optimizer(fluid.optimizer.SGD(0.1), strategy).minimize(loss)
    return fluid.default_main_program(), loss


def ops_of(program: fluid.Program) -> list[str]:
    return [re.sub(r": float32\[[-\d, ]*\]( stop_gradient)?", "", str(op)) for op in program.global_block().ops]


# ------------------------------------------------------------------------------------------------------------ the program
def test_one_worker_needs_nothing_more() -> None:
    program, _ = trained(1)
    types = {op.type for op in program.global_block().ops} | {
        op.type for op in fluid.default_startup_program().global_block().ops
    }
    assert not any(op_type.startswith("c_") or op_type.endswith("_flat") for op_type in types)


_TRAFFIC = r" = (c_\w+|scale|sgd)\("


def test_gradients_are_reduced_in_buckets_while_backward_goes_on() -> None:
    program, _ = trained(2, megabytes=16 / 2**20)
    texts = ops_of(program)
    assert [text.removeprefix("(ParamOut=").partition(") = ")[2] or text for text in texts if re.search(_TRAFFIC, text)] == [
        "mean_0.tmp_0@GRAD = scale(X=mean_0.tmp_0@GRAD) {scale=0.5}",
        "[fc_1.b_0@GRAD, fc_1.w_0@GRAD] = c_allreduce_sum_coalesced(X=[fc_1.b_0@GRAD, fc_1.w_0@GRAD]) {nranks=2}",
        "[fc_0.b_0@GRAD, fc_0.w_0@GRAD] = c_allreduce_sum_coalesced(X=[fc_0.b_0@GRAD, fc_0.w_0@GRAD]) {nranks=2}",
        "[fc_0.b_0@GRAD, fc_0.w_0@GRAD] = c_sync_comm_stream(X=[fc_0.b_0@GRAD, fc_0.w_0@GRAD])",
        "sgd(Param=fc_0.b_0, Grad=fc_0.b_0@GRAD, LearningRate=learning_rate_0)",
        "sgd(Param=fc_0.w_0, Grad=fc_0.w_0@GRAD, LearningRate=learning_rate_0)",
        "[fc_1.b_0@GRAD, fc_1.w_0@GRAD] = c_sync_comm_stream(X=[fc_1.b_0@GRAD, fc_1.w_0@GRAD])",
        "sgd(Param=fc_1.b_0, Grad=fc_1.b_0@GRAD, LearningRate=learning_rate_0)",
        "sgd(Param=fc_1.w_0, Grad=fc_1.w_0@GRAD, LearningRate=learning_rate_0)",
    ]
    begins = next(place for place, text in enumerate(texts) if "c_allreduce_sum_coalesced(" in text)
    assert any("mul_grad(" in text for text in texts[begins:]), "backward goes on"
    program.verify()
    startup = fluid.default_startup_program().global_block()
    assert [op.output("Out")[0] for op in startup.ops if op.type == "c_broadcast"] == [
        "fc_0.w_0",
        "fc_0.b_0",
        "fc_1.w_0",
        "fc_1.b_0",
    ]
    assert not any(op.type.startswith("c_") for op in program.clone(for_test=True).global_block().ops)
    assert str(fluid.Program.parse_from_string(program.desc.serialize_to_string())) == str(program)


def test_a_bucket_that_is_not_full_holds_all_gradients_and_sparse_ones_go_alone() -> None:
    program, _ = trained(2, sparse=True)
    ops = program.global_block().ops
    (bucket,) = [op for op in ops if op.type == "c_allreduce_sum_coalesced"]
    assert len(bucket.input("X")) == 4
    assert [op.input("X") for op in ops if op.type == "c_allreduce_sum"] == [["embedding_0.w_0@GRAD"]]


def test_gradients_can_be_reduced_one_by_one_and_not_averaged() -> None:
    loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), 3))
    strategy = DistributedStrategy()
    strategy.fuse_all_reduce_ops = False
    strategy.gradient_scale_strategy = fluid.BuildStrategy.GradientScaleStrategy.One
    CollectiveOptimizer(fluid.contrib.mixed_precision.decorate(fluid.optimizer.Adam(0.1)), strategy, fleet_of(3)).minimize(loss)
    ops = fluid.default_main_program().global_block().ops
    assert [op.input("X") for op in ops if op.type == "c_allreduce_sum_coalesced"] == [["fc_0.b_0@GRAD"], ["fc_0.w_0@GRAD"]]
    assert not any(op.type == "scale" for op in ops)


def test_scaled_gradients_are_reduced_before_they_are_looked_at() -> None:
    """So that all workers skip a step, or none."""
    loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), 3))
    optimizer = fluid.contrib.mixed_precision.decorate(fluid.optimizer.Adam(0.1), init_loss_scaling=8.0)
    CollectiveOptimizer(optimizer, DistributedStrategy(), fleet_of(3)).minimize(loss)
    ops = fluid.default_main_program().global_block().ops
    types = [op.type for op in ops]
    assert types.index("c_allreduce_sum_coalesced") < types.index("check_finite_and_unscale")
    (divided,) = [op for op in ops if op.type == "scale"]
    assert divided.output_arg_names == [f"{optimizer.get_scaled_loss().name}@GRAD"] and divided.attr("scale") == 1 / 3


@pytest.mark.parametrize("recomputes", [False, True])
def test_use_amp_trains_in_mixed_precision(recomputes: bool) -> None:
    """The program is the same as with a decorated optimizer."""

    def program_by(use_amp: bool) -> str:
        strategy, optimizer = DistributedStrategy(), fluid.optimizer.Adam(0.1)
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
            hidden = fluid.layers.fc(fluid.data("x", [None, 4]), 3, act="relu")
            loss = fluid.layers.mean(fluid.layers.fc(hidden, 1))
            if use_amp:
                strategy.use_amp, strategy.amp_loss_scaling = True, 256.0
                strategy.forward_recompute, strategy.recompute_checkpoints = recomputes, [hidden]
            else:
                if recomputes:
                    optimizer = fluid.optimizer.RecomputeOptimizer(optimizer)
                    optimizer._set_checkpoints([hidden])
                optimizer = fluid.contrib.mixed_precision.decorate(
                    optimizer, init_loss_scaling=256.0, use_dynamic_loss_scaling=True
                )
            CollectiveOptimizer(optimizer, strategy, fleet_of(2)).minimize(loss)
            return str(fluid.default_main_program())

    text = program_by(use_amp=True)
    assert "float16" in text and "check_finite_and_unscale" in text
    assert text == program_by(use_amp=False)


def test_batch_norm_can_use_all_workers_rows() -> None:
    loss = fluid.layers.mean(fluid.layers.batch_norm(fluid.data("x", [None, 4])))
    test_program = fluid.default_main_program().clone(for_test=True)
    strategy = DistributedStrategy()
    strategy.sync_batch_norm = True
    fleet_of(2).distributed_optimizer(fluid.optimizer.SGD(0.1), strategy).minimize(loss)
    program = fluid.default_main_program()
    (op,) = [op for op in program.global_block().ops if op.type.endswith("batch_norm")]
    assert op.type == "sync_batch_norm" and op.attr("nranks") == 2
    assert "sync_batch_norm_grad" in [op.type for op in program.global_block().ops]
    assert [op.type for op in test_program.global_block().ops if op.type.endswith("norm")] == ["batch_norm"]
    assert [op.attr("is_test") for op in program.clone(for_test=True).global_block().ops if op.type == "sync_batch_norm"] == [
        True
    ]


def test_values_are_reduced_once_and_waited_for_where_they_are_read() -> None:
    _, loss = trained(2, megabytes=16 / 2**20)
    with_two = Recording()
    former = use_communicator(with_two)
    try:
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        with_two.calls.clear()
        for _ in range(2):
            executor.run(feed={"x": np.ones((2, 4), "float32")}, fetch_list=[loss])
        bound = executor.plan(feed={"x": np.ones((2, 4), "float32")}, fetch_list=[loss])
        flights = workers.reductions_in_flight(bound.instructions, bound.storage)
        types = [instruction.op.type for instruction in bound.instructions]
        assert sorted(types[end] for end in flights.values()) == ["c_sync_comm_stream"] * 2
    finally:
        use_communicator(former)
    begun, done = [size for call, size in with_two.calls[:5] if call == "start"], with_two.calls[:5]
    assert begun == [4, 15] and [call for call, _ in done] == ["state", "start", "start", "finish", "finish"]
    assert [size for call, size in done if call == "finish"] == [15, 4] and with_two.calls[5:] == with_two.calls[:5]


class Recording(Alone):
    """One of two equal workers; it records the calls of its methods."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 2
        self.calls: list[tuple[str, int]] = []

    def state(self, statement: Any) -> None:
        self.calls.append(("state", 0))

    def start_allreduce(self, arrays: Sequence[Any], kind: str, sent_as: Any = None) -> None:
        self.calls.append(("start", sum(array.size for array in arrays)))
        for array in arrays:
            array *= 2

    def finish(self, arrays: Sequence[Any]) -> None:
        self.calls.append(("finish", sum(array.size for array in arrays)))

    def exchange(self, item: Any) -> list[Any]:
        return [item, item]


def test_what_sparse_gradients_are_made_of_is_gathered_where_shapes_are_known() -> None:
    """So the table's update has planned shapes; step by step, the rows themselves are gathered."""
    _, loss = trained(2, sparse=True)
    executor = fluid.Executor()
    former = use_communicator(Recording())
    try:
        executor.run(fluid.default_startup_program())
        feed = {"x": np.ones((2, 4), "float32"), "ids": np.ones((2, 1), "int64")}
        instructions = executor.plan(feed=feed, fetch_list=[loss]).instructions
    finally:
        use_communicator(former)
    gathered = [each for each in instructions if each.op.type == "c_allgather"]
    assert [each.read[0][0] for each in gathered] == ["ids", "embedding_0.tmp_0@GRAD"]
    types = [each.op.type for each in instructions]
    assert "c_allreduce_sum" not in types and types.count("c_allreduce_sum_coalesced") == 1


def test_only_float32_gradients_are_sent_as_bfloat16() -> None:
    x = fluid.data("x", [None, 4], "float64")
    loss = fluid.layers.mean(fluid.layers.fc(x, 1)) + fluid.layers.cast(
        fluid.layers.mean(fluid.layers.fc(fluid.layers.cast(x, "float32"), 1)), "float64"
    )
    strategy = DistributedStrategy()
    strategy.gradients_sent_as = "bfloat16"
    fleet_of(2).distributed_optimizer(fluid.optimizer.SGD(0.1), strategy).minimize(loss)
    ops = fluid.default_main_program().global_block().ops
    sent = {op.input("X")[0][:4]: op.attr("sent_as") for op in ops if op.type == "c_allreduce_sum_coalesced"}
    assert sent == {"fc_0": "", "fc_1": "bfloat16"}
    with pytest.raises(ProgramError, match="gradients_sent_as = 'float16' is not here: leave it None"):
        strategy.gradients_sent_as = "float16"


def test_what_overwrites_a_parameter_is_waited_for_at_once() -> None:
    weight = fluid.layers.create_parameter([3], "float32")
    fluid.default_main_program().global_block().append_op("c_allreduce_sum", {"X": weight}, {"Out": weight})
    total = fluid.layers.reduce_sum(weight)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    plan = executor.plan(fetch_list=[total])
    assert workers.reductions_in_flight(plan.instructions, plan.storage) == {}


def test_a_program_of_other_workers_than_there_are() -> None:
    _, loss = trained(2)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    message = "the program was built for 2 workers, and here is 1; start 2 .python -m fluid.distributed.launch -n 2 script.py"
    with pytest.raises(CommunicationError, match=message):
        executor.run(feed={"x": np.ones((2, 4), "float32")}, fetch_list=[loss])


def test_how_workers_differ_is_told_by_subject() -> None:
    """Also where what one of them has moves all that follows to other places."""
    told = [[("op 0", "a = relu(X=x)"), ("x", "x: float32[4]"), ("y", "y: float32[1]")]] * 2
    for lines, message in (
        (told[0][:2], "differ in y\n  on rank 0, 1: y: float32[1]\n  on rank 2: nothing of that kind\n"),
        ([told[0][0], told[0][2]], "differ in x\n  on rank 0, 1: x: float32[4]\n  on rank 2: nothing of that kind\n"),
        ([told[0][0], ("op 1", "exp"), *told[0][1:]], "differ in op 1\n  on rank 0, 1: nothing of that kind\n  on rank 2: exp\n"),
    ):
        assert message in first_difference([*told, lines])


# ---------------------------------------------------------------------------------------------------------------- roles
def test_role_makers(monkeypatch: pytest.MonkeyPatch) -> None:
    members = fleet_of(3, 2)
    assert (members.worker_index(), members.worker_num(), members.is_first_worker()) == (2, 3, False)
    assert members.worker_endpoints(to_string=True) == "host:0,host:1,host:2" and members.is_worker() and not members.is_server()
    assert [fleet_of(3, index).split_files(list("abcd")) for index in range(3)] == [["a", "b"], ["c"], ["d"]]
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", "a:1,b:1")
    members.init()
    assert (members.worker_index(), members.worker_endpoints()) == (1, ["a:1", "b:1"])
    monkeypatch.setenv("TRAINING_ROLE", "PSERVER")
    with pytest.raises(ProgramError, match="there are no parameter servers here"):
        members.init(role_maker.PaddleCloudRoleMaker())
    former = use_communicator(Alone())
    try:
        members.init(role_maker.MPISymetricRoleMaker())
        assert members.worker_num() == 1
    finally:
        use_communicator(former)


def test_roles_that_cannot_be() -> None:
    for make, message in (
        (lambda: role_maker.UserDefinedRoleMaker(2, worker_num=2), "worker 2 of 2 cannot be"),
        (lambda: role_maker.UserDefinedRoleMaker(0, worker_num=0), "worker_num is 0"),
        (lambda: role_maker.UserDefinedRoleMaker(0, role_maker.Role.SERVER, 1), "no parameter servers"),
        (lambda: role_maker.UserDefinedCollectiveRoleMaker(0, []), "worker_endpoints should be a list of addresses"),
        (lambda: Collective().worker_num(), r"call fleet.init\(role_maker\) first"),
        (lambda: Collective().init(3), "takes a role maker"),  # type: ignore[arg-type]
        (lambda: fleet_of(2).distributed_optimizer(fluid.optimizer.SGD(0.1), "fast"), "should be a DistributedStrategy"),  # type: ignore[arg-type]
        (lambda: fleet_of(2).distributed_optimizer(3), "takes an optimizer that has backward"),
        (lambda: fleet_of(2).run_server(), "no parameter servers"),
        (lambda: setattr(DistributedStrategy(), "fast", True), "has no setting 'fast'"),
    ):
        with pytest.raises((ProgramError, FluidTypeError), match=message):
            make()
    strategy = DistributedStrategy()
    strategy.local_sgd_steps = 0
    with pytest.raises(ProgramError, match="local_sgd_steps"):
        fleet_of(2).distributed_optimizer(fluid.optimizer.SGD(0.1), strategy)


def test_accumulated_gradients_and_strategies_that_wrap_optimizers() -> None:
    accumulated = fluid.training.GradientAccumulation(fluid.optimizer.SGD(0.1), 2)
    strategy = DistributedStrategy()
    strategy.forward_recompute = True
    with pytest.raises(FluidTypeError, match=r"strategy\.forward_recompute takes an optimizer .*, not a GradientAccumulation"):
        fleet_of(2).distributed_optimizer(accumulated, strategy)
    with pytest.raises(FluidTypeError, match=r"give fleet\.distributed_optimizer the GradientAccumulation"):
        fluid.training.GradientAccumulation(fleet_of(2).distributed_optimizer(fluid.optimizer.SGD(0.1)), 2)  # type: ignore[arg-type]


def test_layers_of_collective_ops() -> None:
    from fluid.layers import collective

    x = fluid.data("x", [4, 3])
    results = [collective._allreduce(x, reduce_type="max"), collective._c_allreduce(x), collective._c_allgather(x, 2)]
    results += [collective._c_reducescatter(x, 2), collective._c_sync_calc_stream(x), collective._c_sync_comm_stream(x, 0)]
    results += [collective._broadcast(x, 0), collective._c_broadcast(x)]
    assert [result.shape[0] for result in results] == [4, 4, 8, 2, 4, 4, 4, 4]
    with pytest.raises(ProgramError, match="reduce_type is 'mean'; it should be one of sum, prod, max, min"):
        collective._allreduce(x, reduce_type="mean")
    with fluid.dygraph.guard():
        assert collective._c_allreduce(fluid.dygraph.to_variable(np.ones(3, "float32"))).numpy().tolist() == [1, 1, 1]


def test_what_sets_up_paddle_s_communicators_runs() -> None:
    block = fluid.default_startup_program().global_block()
    block.create_var(name="id", type=fluid.core.VarDesc.VarType.RAW, persistable=True)
    block.append_op("c_gen_nccl_id", {}, {"Out": "id"}, {"rank": 0, "endpoint": "127.0.0.1:1", "other_endpoints": []})
    block.append_op("c_comm_init", {"X": "id"}, {}, {"nranks": 1, "rank": 0})
    block.append_op("c_comm_init_all", {}, {}, {})
    fluid.Executor().run(fluid.default_startup_program())
    block.append_op("c_comm_init", {"X": "id"}, {}, {"nranks": 2, "rank": 0})
    with pytest.raises(CommunicationError, match="the program was built for 2 workers, and here is 1"):
        fluid.Executor().run(fluid.default_startup_program())


# ------------------------------------------------------------------------------------------------------ files and data
def test_a_fleet_of_one_saves_and_loads(tmp_path: Path) -> None:
    fleet.init(role_maker.UserDefinedRoleMaker(0, worker_num=1))
    x = fluid.data("x", [None, 4])
    y = fluid.layers.fc(x, 1)
    fleet.distributed_optimizer(fluid.optimizer.Adam(0.1)).minimize(fluid.layers.mean(y))
    executor = fluid.Executor()
    executor.run(fleet.startup_program)
    fleet.save_persistables(executor, str(tmp_path / "all"))
    fleet.save_inference_model(executor, str(tmp_path / "model"), ["x"], [y])
    assert (tmp_path / "model" / "__model__").exists() and (tmp_path / "all" / "fc_0.w_0").exists()
    for shards in (True, False, True):
        fleet.save_checkpoint(str(tmp_path / "ck"), step=7, shards=shards, state={"batches": {"epoch": 2}})
        before = np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor())
        fluid.global_scope().find_var("fc_0.w_0").get_tensor().set(before + 1, fluid.CPUPlace())
        checkpoint = fleet.load_checkpoint(str(tmp_path / "ck"), executor)
        assert checkpoint.step == 7 and checkpoint.state == {"batches": {"epoch": 2}}
        assert np.array_equal(np.array(fluid.global_scope().find_var("fc_0.w_0").get_tensor()), before)
        assert sorted(os.listdir(tmp_path)) == ["all", "ck", *["ck.step-7-shard-0-of-1"] * shards, "model"]


class OneOf(Alone):
    """One of several workers that run one after the other; it receives the recorded messages of the others."""

    def __init__(self, rank: int, said: list[list[Any]]) -> None:
        Communicator.__init__(self, rank, len(said))
        self._said, self._turn = said, 0

    def exchange(self, item: Any) -> list[Any]:
        self._said[self.rank].append(item)
        self._turn += 1
        return [said[self._turn - 1] if self._turn <= len(said) else item for said in self._said]


def test_shards_are_a_whole_or_an_error(tmp_path: Path) -> None:
    fluid.layers.fc(fluid.data("x", [None, 4]), 3)
    program, executor = fluid.default_main_program(), fluid.Executor()
    executor.run(fluid.default_startup_program())
    said: list[list[Any]] = [[], [], []]
    former = use_communicator(None)
    try:
        for rank in (2, 1, 0):  # worker 0 last, which writes the manifest
            use_communicator(OneOf(rank, said))
            save_by_workers(program, tmp_path / "ck", 3, shards=True)
    finally:
        use_communicator(former)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ck", *(f"ck.step-3-shard-{number}-of-3" for number in range(3))]
    assert load_by_workers(program, tmp_path / "ck").step == 3
    assert fluid.load_checkpoint(program, tmp_path / "ck").names == ["fc_0.b_0", "fc_0.w_0"]
    shard = tmp_path / "ck.step-3-shard-1-of-3"
    content = shard.read_bytes()
    shard.write_bytes(content[:-1] + b"x")
    with pytest.raises(FormatError, match=r"shard-1-of-3: it is not the shard that .*ck was written for, or it is damaged"):
        load_by_workers(program, tmp_path / "ck")
    shard.unlink()
    with pytest.raises(FormatError, match=r"its shard ck.step-3-shard-1-of-3 is not beside it"):
        load_by_workers(program, tmp_path / "ck")
    for text, message in (
        ('{"fluid shards": 1', "the manifest is damaged"),
        (
            '{"fluid shards": 1, "shards": [{"name": "../x", "size": 1, "digest": ""}]}',
            "'../x' is not the name of a file beside it",
        ),
        ('{"fluid shards": 1, "shards": [{"name": "x", "size": "1", "digest": ""}]}', "is no size and digest"),
        ('{"fluid shards": 1, "shards": 3}', "the manifest is damaged"),
    ):
        (tmp_path / "ck").write_text(text)
        with pytest.raises(FormatError, match=re.escape(message)):
            fluid.load_checkpoint(program, tmp_path / "ck")


def test_an_error_of_one_worker_is_one_of_all(tmp_path: Path) -> None:
    fluid.layers.fc(fluid.data("x", [None, 4]), 3)
    fluid.Executor().run(fluid.default_startup_program())
    former = use_communicator(OneOf(0, [[], [[None, "no room on the disk"]]]))
    try:
        with pytest.raises(CommunicationError, match="worker 1 failed: no room on the disk"):
            save_by_workers(fluid.default_main_program(), tmp_path / "ck", 3)
    finally:
        use_communicator(former)


def test_readers_of_parts() -> None:
    batches = fluid.io.batch(lambda: range(10), batch_size=4)
    assert list(fluid.io.shard(lambda: list(batches())[:2], 1, 2)()) == [[2, 3], [6, 7]]
    with pytest.raises(fluid.errors.FeedError, match="a batch of 2 samples cannot be divided evenly among 4 workers"):
        list(fluid.io.shard(batches, 0, 4)())
    with pytest.raises(ProgramError, match="part 2 of 2 cannot be"):
        fluid.io.shard(batches, 2, 2)
    former = use_communicator(OneOf(1, [[], []]))
    try:
        assert list(fluid.contrib.distributed_batch_reader(batches)()) == [[4, 5, 6, 7]]
        assert list(fluid.io.shard(batches)()) == [[2, 3], [6, 7], [9]]
    finally:
        use_communicator(former)

"""Sparse gradients of embeddings: `SelectedRows`, the ops merge_selected_rows, get_tensor_from_selected_rows and
select_rows_like, and what clips, regularizers and optimizers do with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.errors import ExecutionError, FluidTypeError
from fluid.executor.control import add
from fluid.executor.kernels import selected_rows as kernels
from fluid.executor.selected_rows import SelectedRows
from fluid.executor.sequences import LoDArray
from fluid.framework import Program, program_guard
from fluid.text import parse_program_text, program_to_string
from fluid.types import VarType

ROWS, WIDTH = 12, 3
IDS = np.array([[1], [5], [1], [7], [5], [5]])
rng = np.random.default_rng(3)
TABLE = rng.uniform(-1, 1, (ROWS, WIDTH)).astype("float32")
WEIGHTS = rng.uniform(-1, 1, (len(IDS), WIDTH)).astype("float32")


def test_merged_and_dense() -> None:
    rows = SelectedRows(np.array([3, 1, 3]), np.array([[1.0], [2.0], [4.0]]), 5)
    merged = rows.merged(np)
    assert merged.rows() == [1, 3] and merged.height() == 5
    np.testing.assert_array_equal(merged.value, [[2.0], [5.0]])
    np.testing.assert_array_equal(rows.dense(np), [[0], [2], [0], [5], [0]])
    assert SelectedRows(np.array([3, 1]), np.array([[1.0], [2.0]]), 5).merged(np).value.tolist() == [[2.0], [1.0]]
    three = SelectedRows.total([rows, rows.empty(), rows])
    assert three.rows() == [3, 1, 3, 3, 1, 3] and rows.empty().rows() == [] and rows.empty().shape == rows.shape
    np.testing.assert_array_equal(three, 2 * np.asarray(rows))
    sequences = LoDArray(np.ones((5, 1)), ((0, 2, 5),))
    for both in (add(rows, sequences), add(sequences, rows)):  # in gradients of loops
        np.testing.assert_array_equal(both.array, 1 + np.asarray(rows))
        assert both.lod == sequences.lod
    np.testing.assert_array_equal(np.asarray(rows.get_tensor()), rows.value)


@pytest.fixture(autouse=True)
def guard() -> Iterator[None]:
    with fluid.unique_name.guard(), program_guard(Program(), Program()):
        yield


class Model:
    """A table, looked up and weighted; the same with a sparse and with a dense gradient."""

    def __init__(self, is_sparse: bool, optimizer: Callable[[], Any] | None = None, lookups: int = 1, v2: bool = False) -> None:
        self.main, self.startup = Program(), Program()
        self.scope = fluid.Scope()
        self.executor = fluid.Executor(fluid.CPUPlace())
        with fluid.unique_name.guard(), program_guard(self.main, self.startup):
            embedding = fluid.embedding if v2 else layers.embedding
            ids = fluid.data("ids", [None] if v2 else [None, 1], "int64")
            weights = fluid.data("weights", [None, WIDTH])
            attr = fluid.ParamAttr("table", initializer=fluid.initializer.NumpyArrayInitializer(TABLE))
            found = [embedding(ids, [ROWS, WIDTH], is_sparse, param_attr=attr) for _ in range(lookups)]
            total = layers.sums([layers.elementwise_mul(one, weights) for one in found])
            self.loss = layers.reduce_sum(layers.square(total))
            if optimizer is not None:
                optimizer().minimize(self.loss)
                self.grad = self.main.global_block().var("table@GRAD")
            else:
                ((_, self.grad),) = fluid.append_backward(self.loss)
        self.feed = {"ids": IDS[:, 0] if v2 else IDS, "weights": WEIGHTS}
        self.executor.run(self.startup, scope=self.scope)

    def run(self, fetch: Any, return_numpy: bool = True) -> Any:
        return self.executor.run(self.main, self.feed, [fetch], scope=self.scope, return_numpy=return_numpy)[0]

    def state(self) -> dict[str, Any]:
        persistable = [var.name for var in self.main.list_vars() if var.persistable]
        return {name: np.asarray(self.scope.array(name)).copy() for name in sorted(persistable)}


@pytest.mark.parametrize("lookups", [1, 2])
@pytest.mark.parametrize("v2", [False, True])
def test_gradient_is_sparse_and_right(v2: bool, lookups: int) -> None:
    sparse, dense = Model(True, lookups=lookups, v2=v2), Model(False, lookups=lookups, v2=v2)
    assert sparse.grad.type is VarType.SELECTED_ROWS and dense.grad.type is VarType.LOD_TENSOR
    found = sparse.run(sparse.grad, return_numpy=False)
    assert isinstance(found, SelectedRows) and sorted(set(found.rows())) == [1, 5, 7] and found.height() == ROWS
    np.testing.assert_allclose(sparse.run(sparse.grad), dense.run(dense.grad), rtol=1e-6)
    stepwise = sparse.executor.interpret(sparse.main, sparse.feed, [sparse.grad], sparse.scope)[0]
    np.testing.assert_array_equal(sparse.run(sparse.grad), stepwise)


def test_round_trips() -> None:
    main = Model(True, lambda: fluid.optimizer.Adam(lazy_mode=True)).main
    data = main.serialize_to_string()
    assert Program.parse_from_string(data).serialize_to_string() == data
    assert program_to_string(parse_program_text(program_to_string(main))) == program_to_string(main)


def test_padding_has_no_row() -> None:
    ids = fluid.data("ids", [None, 1], "int64")
    found = layers.embedding(ids, [ROWS, WIDTH], is_sparse=True, padding_idx=5, param_attr="table")
    ((_, grad),) = fluid.append_backward(layers.reduce_sum(found))
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    (rows,) = executor.run(feed={"ids": IDS}, fetch_list=[grad], return_numpy=False)
    assert rows.rows() == [1, 1, 7]


def test_sum_with_a_dense_gradient_is_dense() -> None:
    ids = fluid.data("ids", [None, 1], "int64")
    attr = fluid.ParamAttr("table", initializer=fluid.initializer.NumpyArrayInitializer(TABLE))
    found = layers.embedding(ids, [ROWS, WIDTH], is_sparse=True, param_attr=attr)
    table = fluid.default_main_program().global_block().var("table")
    loss = layers.elementwise_add(layers.reduce_sum(found), layers.reduce_sum(layers.square(table)))
    ((_, grad),) = fluid.append_backward(loss)
    assert grad.type is VarType.LOD_TENSOR
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    (value,) = executor.run(feed={"ids": IDS}, fetch_list=[grad], scope=scope)
    np.testing.assert_allclose(value, 2 * TABLE + np.bincount(IDS[:, 0], minlength=ROWS)[:, None], rtol=1e-6)


def test_second_order_is_that_of_a_dense_table() -> None:
    found = {}
    for is_sparse in (True, False):
        model = Model(is_sparse)
        with program_guard(model.main, model.startup):
            weights = model.main.global_block().var("weights")
            weights.stop_gradient = False
            (grad,) = fluid.gradients([model.loss], [weights])
            (second,) = fluid.gradients([layers.reduce_sum(layers.square(grad))], [model.main.global_block().var("table")])
        found[is_sparse] = model.run(second)
    np.testing.assert_allclose(found[True], found[False], rtol=1e-5)
    assert np.abs(found[True]).max() > 0


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: fluid.optimizer.SGD(0.1),
    "momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9),
    "adagrad": lambda: fluid.optimizer.Adagrad(0.1),
    "adam": lambda: fluid.optimizer.Adam(0.1),
    "adamax": lambda: fluid.optimizer.Adamax(0.1),
    "adadelta": lambda: fluid.optimizer.Adadelta(0.1),
    "decayed_adagrad": lambda: fluid.optimizer.DecayedAdagrad(0.1),
    "rmsprop": lambda: fluid.optimizer.RMSProp(0.1, centered=True, momentum=0.5),
    "lamb": lambda: fluid.optimizer.Lamb(0.1),
    "lars": lambda: fluid.optimizer.LarsMomentum(0.1, 0.9),
    "clip by value": lambda: fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByValue(0.3)),
    "clip by norm": lambda: fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByNorm(0.3)),
    "clip by global norm": lambda: fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.3)),
}


@pytest.mark.parametrize("part", [1 << 20, 6], ids=["whole", "parts"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_does_what_it_does_with_a_dense_gradient(name: str, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_PART", part)
    sparse, dense = Model(True, OPTIMIZERS[name]), Model(False, OPTIMIZERS[name])
    for model in (sparse, dense):
        for ids in (IDS, IDS[::2], IDS[3:] + 2):
            model.feed = {"ids": ids, "weights": WEIGHTS[: len(ids)]}
            model.run(model.loss)
    found, expected = sparse.state(), dense.state()
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=2e-5, atol=1e-6, err_msg=key)


ROW_BY_ROW: dict[str, Callable[[], Any]] = {
    "lazy adam": lambda: fluid.optimizer.Adam(0.1, lazy_mode=True),
    "ftrl": lambda: fluid.optimizer.Ftrl(0.1, l1=0.01),
    "sgd with decay": lambda: fluid.optimizer.SGD(0.1, regularization=fluid.regularizer.L2Decay(0.5)),
    "sgd with l1 decay": lambda: fluid.optimizer.SGD(0.1, regularization=fluid.regularizer.L1Decay(0.5)),
}


@pytest.mark.parametrize("name", ROW_BY_ROW)
def test_only_rows_with_a_gradient_change(name: str) -> None:
    """The rows that are looked up do what they do with a dense gradient, at the first step; no other changes in any."""
    sparse, dense = Model(True, ROW_BY_ROW[name]), Model(False, ROW_BY_ROW[name])
    for model in (sparse, dense):
        model.run(model.loss)
    touched = np.unique(IDS)
    for key, value in dense.state().items():
        found = sparse.state()[key]
        if value.shape == TABLE.shape:
            np.testing.assert_allclose(found[touched], value[touched], rtol=2e-5, atol=1e-6, err_msg=key)
        else:
            np.testing.assert_allclose(found, value, rtol=1e-6, err_msg=key)
    sparse.run(sparse.loss)
    others = np.setdiff1d(np.arange(ROWS), touched)
    np.testing.assert_array_equal(sparse.state()["table"][others], TABLE[others])
    assert np.abs(sparse.state()["table"][touched] - TABLE[touched]).min() > 0


def test_in_place_and_bound_once() -> None:
    """The table's array stays the same one, so that the plan is not bound again."""
    model = Model(True, OPTIMIZERS["sgd"])
    model.run(model.loss)
    before, generation = model.scope.array("table"), model.scope.generation
    model.run(model.loss)
    assert model.scope.array("table") is before and model.scope.generation == generation


def test_inside_a_recurrence() -> None:
    """Every step adds its rows."""
    found = {}
    for is_sparse in (True, False):
        main, startup = Program(), Program()
        with fluid.unique_name.guard(), program_guard(main, startup):
            ids = fluid.data("ids", [None, 1], "int64", lod_level=1)
            attr = fluid.ParamAttr("table", initializer=fluid.initializer.NumpyArrayInitializer(TABLE))
            rnn = layers.DynamicRNN()
            with rnn.block():
                word = layers.embedding(rnn.step_input(ids), [ROWS, WIDTH], is_sparse, param_attr=attr)
                state = rnn.memory(shape=[WIDTH])
                new = layers.tanh(layers.elementwise_add(word, state))
                rnn.update_memory(state, new)
                rnn.output(new)
            ((_, grad),) = fluid.append_backward(layers.reduce_sum(layers.square(rnn())))
        executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
        executor.run(startup, scope=scope)
        found[is_sparse] = executor.run(main, {"ids": (IDS, [[2, 4]])}, [grad], scope=scope)[0]
    np.testing.assert_allclose(found[True], found[False], rtol=1e-5)


def test_an_op_that_needs_a_whole_tensor_says_so() -> None:
    model = Model(True)
    with program_guard(model.main, model.startup):
        activated = layers.tanh(model.grad)
        merged = model.main.global_block().create_var(name="merged")
        model.main.global_block().append_op("merge_selected_rows", {"X": model.loss}, {"Out": merged})
    with pytest.raises(ExecutionError, match=r"tanh does not take the sparse gradient .* use is_sparse=False"):
        model.run(activated)
    with pytest.raises(ExecutionError, match=r"merge_selected_rows takes the sparse gradient .* not a whole tensor"):
        model.run(merged)


def test_layers_that_look_at_a_sparse_gradient() -> None:
    model = Model(True, lookups=2)
    with program_guard(model.main):
        merged = layers.merge_selected_rows(model.grad)
        rows = layers.get_tensor_from_selected_rows(merged, name="rows")
        with pytest.raises(FluidTypeError, match=r"merge_selected_rows: x should be a sparse gradient, .*; .* is float32"):
            layers.merge_selected_rows(model.loss)
        with pytest.raises(FluidTypeError, match="get_tensor_from_selected_rows: x should be a sparse gradient"):
            layers.get_tensor_from_selected_rows(rows)
    assert merged.type is VarType.SELECTED_ROWS and rows.shape == (-1, WIDTH) and rows.name.startswith("rows")
    dense = model.run(model.grad, return_numpy=False).dense(np)
    np.testing.assert_allclose(model.run(rows), dense[np.unique(IDS)], rtol=1e-6)

"""Sparse gradients of embeddings: `SelectedRows`, the ops merge_selected_rows, get_tensor_from_selected_rows and
select_rows_like, and what clips, regularizers and optimizers do with them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph, layers, optimizer
from fluid.eager.dispatch import namespace
from fluid.errors import ExecutionError, FluidTypeError
from fluid.executor.binding.compiled import apply_op
from fluid.executor.kernels import selected_rows as kernels
from fluid.executor.kernels.table import KERNELS, SPARSE_KERNELS, load_kernels
from fluid.executor.stepwise.control import add
from fluid.formats.text import parse_program_text, program_to_string
from fluid.ir.program import Program, program_guard
from fluid.opdef import registry
from fluid.values.bfloat16 import computable, to_bfloat16, to_float32
from fluid.values.lod_array import LoDArray
from fluid.values.selected_rows import SelectedRows, put_rows
from fluid.values.types import VarType

ROWS, WIDTH = 12, 3
IDS = np.array([[1], [5], [1], [7], [5], [5]])
rng = np.random.default_rng(3)
TABLE = rng.uniform(-1, 1, (ROWS, WIDTH)).astype("float32")
WEIGHTS = rng.uniform(-1, 1, (len(IDS), WIDTH)).astype("float32")


@each("index", [[], [4], [4, 2, 9, 0], [7, 7, 7], [3, 9, 3, 3, 0, 9, 3], [0, 0, 5, 5, 9, 9]])
def test_rows_are_merged_in_the_order_in_which_they_are_stored(index: list[int]) -> None:
    values = (10.0 ** rng.uniform(-6, 6, (len(index), 2, 3))).astype("float32")  # sums depend on the order
    merged = SelectedRows(np.array(index, "int64"), values, 10).merged(np)
    assert merged.rows() == sorted(set(index)) and merged.value.shape == (len(set(index)), 2, 3)
    for row, value in zip(merged.rows(), merged.value, strict=True):
        total = np.zeros((2, 3), "float32")
        for place, stored in enumerate(index):
            if stored == row:
                total += values[place]
        assert np.array_equal(value, total)
    distinct = SelectedRows(np.array(index, "int64"), values, 10).distinct(np)
    order = np.argsort(distinct.index)
    assert np.array_equal(distinct.index[order], merged.index) and np.array_equal(distinct.value[order], merged.value)


@each(
    "table",
    [
        np.zeros((6, 3), "float32"),
        np.zeros((6, 2, 3)),
        np.zeros(6, "float32"),
        np.zeros((6, 0), "float32"),
        np.zeros((6, 6), "float32")[:, ::2],
        np.zeros((3, 6), "float32").T,
    ],
    ids=["contiguous", "of three dimensions", "of one", "of none", "strided", "transposed"],
)
def test_rows_are_put_into_tables_of_any_layout(table: Any) -> None:
    places, rows = np.array([4, 0, 5]), rng.uniform(1, 2, (3, *table.shape[1:]))
    for stored in (rows.astype(table.dtype), rows.astype("float64"), np.asfortranarray(rows.astype(table.dtype))):
        table[...] = 0
        put_rows(table, places, stored)
        expected = np.zeros(table.shape, table.dtype)
        expected[places] = stored
        assert np.array_equal(table, expected)
    if not table.size:
        return  # where nothing would be written, numpy before 2.3 looks at no index
    with pytest.raises(IndexError):
        put_rows(table, np.array([0, 6, 1]), rows.astype(table.dtype))


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


@each("lookups", [1, 2])
@each("v2", [False, True])
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
    "nadam": lambda: fluid.optimizer.NAdam(0.1),
    "radam": lambda: fluid.optimizer.RAdam(0.1),
    "lion": lambda: fluid.optimizer.Lion(0.1),
    "adadelta": lambda: fluid.optimizer.Adadelta(0.1),
    "decayed_adagrad": lambda: fluid.optimizer.DecayedAdagrad(0.1),
    "rmsprop": lambda: fluid.optimizer.RMSProp(0.1, centered=True, momentum=0.5),
    "lamb": lambda: fluid.optimizer.Lamb(0.1),
    "lars": lambda: fluid.optimizer.LarsMomentum(0.1, 0.9),
    "clip by value": lambda: fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByValue(0.3)),
    "clip by norm": lambda: fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByNorm(0.3)),
    "l2 decay": lambda: fluid.optimizer.SGD(0.1, regularization=fluid.regularizer.L2Decay(0.5)),
    "l1 decay": lambda: fluid.optimizer.Adagrad(0.1, regularization=fluid.regularizer.L1Decay(0.5)),
    "l2 decay, lazy adam": lambda: fluid.optimizer.Adam(0.1, lazy_mode=True, regularization=fluid.regularizer.L2Decay(0.5)),
    "clip by global norm": lambda: fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.3)),
}


@each("part", [1 << 20, 6], ids=["whole", "parts"])
@each("name", OPTIMIZERS)
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


def test_optimizers_that_take_rows_compute_with_arrays_as_well() -> None:
    load_kernels()
    updates = {op_type for op_type in SPARSE_KERNELS if "ParamOut" in registry.find(op_type).outputs}
    assert "uncorrected_lamb" in updates
    assert updates <= KERNELS.keys()


@each("decay", [0.0, 0.1])
def test_lamb_of_paddle_1_takes_rows(decay: float) -> None:
    rows = SelectedRows(np.array([4, 1, 4]), np.arange(6, dtype="float32").reshape(3, 2) - 2, 5)
    numbers = np.linspace(-1, 2, 10, dtype="float32").reshape(5, 2)
    inputs = {"Param": numbers, "Moment1": numbers / 2, "Moment2": np.abs(numbers), "LearningRate": np.float32([0.1])}
    inputs |= {"Beta1Pow": np.float32([0.9]), "Beta2Pow": np.float32([0.999])}

    def updated(grad: Any) -> Any:
        copies = {slot: array.copy() for slot, array in inputs.items()}
        return apply_op("uncorrected_lamb", {**copies, "Grad": grad}, {"weight_decay": decay})

    found, expected = updated(rows), updated(rows.dense(np))
    for slot, value in expected.items():
        np.testing.assert_allclose(np.asarray(found[slot]), np.asarray(value), rtol=1e-6, err_msg=slot)


ROW_BY_ROW: dict[str, Callable[[], Any]] = {
    "lazy adam": lambda: fluid.optimizer.Adam(0.1, lazy_mode=True),
    "ftrl": lambda: fluid.optimizer.Ftrl(0.1, l1=0.01),
}


@each("name", ROW_BY_ROW)
def test_only_rows_with_a_gradient_change(name: str) -> None:
    """In the first step, looked-up rows change as with a dense gradient; no other row ever changes."""
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


# ------------------------------------------------------------------------------- ops on gradients with rows twice, and absent
FACTORS = np.array([[1, -2, 3], [-4, 5, -6], [0.5, 1.5, -2.5], [2, 2, 2], [-1, 0.25, 1]], "float32")
WHOLE = np.arange(1, 16, dtype="float32").reshape(5, 3)


def eager_gradient(is_sparse: bool, count: int = 3) -> Any:
    """The gradient ``[5, 3]`` of a table after looking up rows 1, 3 and 1."""
    table = fluid.dygraph.to_variable(np.zeros((5, 3), "float32"))
    table.stop_gradient = False
    ids = fluid.dygraph.to_variable(np.array([[1], [3], [1], [1], [3]])[:count])
    found = namespace.lookup_table(table, ids, is_sparse=is_sparse)
    (found * fluid.dygraph.to_variable(FACTORS[:count])).sum().backward()
    assert table.grad is not None and (table.grad.type is VarType.SELECTED_ROWS) == is_sparse
    return table.grad


def whole(*shape: int) -> Any:
    return fluid.dygraph.to_variable(WHOLE.reshape(-1)[: int(np.prod(shape))].reshape(shape))


EXACT: dict[str, Callable[[Any], Any]] = {
    "g + 0": lambda g: g + 0.0,
    "-g": lambda g: -g,
    "g * 2": lambda g: g * 2,
    "g / 4": lambda g: g / 4.0,
    "g *= 2": lambda g: g.mul_(2.0),
    "times rows": lambda g: g * whole(5, 3),
    "times one number a row": lambda g: g * whole(5, 1),
    "times one number a row, at axis 0": lambda g: layers.elementwise_mul(g, whole(5), axis=0),
    "times a row": lambda g: g * whole(3),
    "divided by rows": lambda g: g / whole(5, 3),
    "sign": layers.sign,
    "clip": lambda g: layers.clip(g, -1.0, 1.0),
    "clip from 0": lambda g: layers.clip(g, 0.0, 1.0),
    "clip by tensors": lambda g: namespace.clip(g, -whole(1), whole(1), min=5.0, max=6.0),
    "cast to integers": lambda g: g.astype("int32"),
    "cast to bools": lambda g: g.astype("bool"),
    "cast to float64": lambda g: g.astype("float64"),
    "cast to float16": lambda g: g.astype("float16"),
    "integers, added and scaled": lambda g: layers.sums([g.astype("int32"), g.astype("int32")]) * 3,
    "integers, divided": lambda g: layers.sums([g.astype("int32"), g.astype("int32")]) / whole(1).astype("int32"),
    "clip by norm": lambda g: namespace.clip_by_norm(g, max_norm=1.0),
    "squared norm": lambda g: namespace.squared_l2_norm(g),
}


@each("count", [3, 5], ids=["3 of 5 rows", "as many as the table has"])
@each("name", EXACT)
def test_op_does_what_it_does_with_a_whole_gradient(name: str, count: int) -> None:
    with fluid.dygraph.guard():
        found, expected = EXACT[name](eager_gradient(True, count)), EXACT[name](eager_gradient(False, count))
        assert found.dtype == expected.dtype and found.shape == expected.shape
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)


def augmented(gradient: Any) -> Any:
    gradient += 1
    return gradient


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "g + 1": (lambda g: g + 1, r"scale with the bias 1\.0 .* rows that a sparse gradient does not hold.* use is_sparse=False"),
    "1 - g": (lambda g: 1 - g, r"scale with the bias 1\.0 "),
    "g - 1": (lambda g: g - 1, r"scale with the bias -1\.0 "),
    "g += 1": (augmented, r"scale with the bias 1\.0 "),
    "g.scale_(2, 1)": (lambda g: g.scale_(2.0, 1.0), r"scale with the bias 1\.0 "),
    "bias first": (lambda g: layers.scale(g, 2.0, 1.0, bias_after_scale=False), r"scale with the bias 1\.0 "),
    "g * inf": (lambda g: g * float("inf"), "scale by inf .* rows that a sparse gradient does not hold"),
    "clip above 0": (lambda g: layers.clip(g, 0.5, 1.0), r"clip from 0\.5 to 1\.0 .* rows that a sparse gradient does not hold"),
    "clip below 0": (lambda g: layers.clip(g, -2.0, -1.0), r"clip from -2\.0 to -1\.0 "),
    "clip by tensors": (lambda g: namespace.clip(g, whole(1), whole(1), min=-1.0, max=1.0), r"clip from 1\.0 to 1\.0 "),
    "larger": (
        lambda g: g * whole(1, 5, 3),
        r"elementwise_mul .* sparse gradient of shape \[5, 3\] .* Y is of shape \[1, 5, 3\]",
    ),
    "g * g": (lambda g: g * g, "elementwise_mul takes a sparse gradient as its input X alone"),
    "g ** 2": (lambda g: g**2, "pow does not take the sparse gradient"),
    "|g|": (abs, "abs does not take the sparse gradient"),
}


@each("name", REFUSED)
def test_op_that_would_change_absent_rows_is_refused(name: str) -> None:
    compute, message = REFUSED[name]
    with fluid.dygraph.guard():
        gradient = eager_gradient(True)
        before = gradient.numpy()
        with pytest.raises(ExecutionError, match=message):
            compute(gradient)
        np.testing.assert_array_equal(gradient.numpy(), before)


def test_bias_and_bounds_are_refused_in_programs_too() -> None:
    model = Model(True)
    with program_guard(model.main, model.startup):
        shifted, clipped = layers.scale(model.grad, 1.0, 1.0), layers.clip(model.grad, 0.5, 1.0)
    with pytest.raises(ExecutionError, match=r"scale with the bias 1\.0 "):
        model.run(shifted)
    with pytest.raises(ExecutionError, match=r"clip from 0\.5 to 1\.0 "):
        model.run(clipped)


# -------------------------------------------------------------------------------------------------------------- in blocks
def branch(look_up: Callable[[], Any]) -> Any:
    """Looked-up rows if the feed says so, else zeros."""
    taken = layers.reduce_sum(fluid.data("taken", [1])) > 0.5
    return layers.cond(taken, look_up, lambda: layers.fill_constant([1], "float32", 0.25))


def nested(look_up: Callable[[], Any]) -> Any:
    more = layers.reduce_sum(fluid.data("more", [1])) > 0.5
    return branch(lambda: layers.cond(more, look_up, lambda: layers.scale(look_up(), 2.0)))


def loop(look_up: Callable[[], Any]) -> Any:
    trips = layers.cast(fluid.data("taken", [1]), "int64")
    count = layers.fill_constant([1], "int64", 0)
    total = layers.fill_constant([1], "float32", 0.5)
    _, found = layers.while_loop(
        lambda i, t: layers.less_than(i, trips), lambda i, t: [i + 1, layers.elementwise_add(t, look_up())], [count, total]
    )
    return found


def beside(look_up: Callable[[], Any]) -> Any:
    return layers.elementwise_add(branch(look_up), look_up())


def recurrent(look_up: Callable[[], Any]) -> Any:
    rnn, steps = layers.StaticRNN(), layers.fill_constant([2, 1], "float32", 1.0)
    first = layers.fill_constant([1], "float32", 0.5)
    with rnn.step():
        rnn.step_input(steps)
        memory = rnn.memory(init=first)
        new = layers.elementwise_add(memory, look_up())
        rnn.update_memory(memory, new)
        rnn.step_output(new)
    return layers.reduce_sum(rnn(), keep_dim=False)


PLACES: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "cond": branch,
    "nested": nested,
    "while_loop": loop,
    "both": beside,
    "StaticRNN": recurrent,
}
OPTIONS: dict[str, Callable[[], Any]] = {
    "plain": lambda: fluid.optimizer.SGD(0.1),
    "value": OPTIMIZERS["clip by value"],
    "norm": OPTIMIZERS["clip by norm"],
    "global norm": OPTIMIZERS["clip by global norm"],
    "adam": OPTIMIZERS["adam"],
}


@each("option", OPTIONS)
@each("place", PLACES)
def test_training_with_a_table_inside_a_block(place: str, option: str) -> None:
    """The same as with a dense gradient, where blocks run, run often, and do not run."""
    found = {}
    for is_sparse in (True, False):
        main, startup = Program(), Program()
        with fluid.unique_name.guard(), program_guard(main, startup):
            ids = fluid.data("ids", [None, 1], "int64")
            attr = fluid.ParamAttr("table", initializer=fluid.initializer.NumpyArrayInitializer(TABLE))

            def look_up(ids: Any = ids, is_sparse: bool = is_sparse, attr: Any = attr) -> Any:
                rows = layers.embedding(ids, [ROWS, WIDTH], is_sparse, param_attr=attr)
                return layers.reshape(layers.reduce_mean(layers.square(rows)), [1])

            loss = layers.reduce_sum(layers.scale(PLACES[place](look_up), 4.0))
            OPTIONS[option]().minimize(loss)
        grad = main.global_block().var("table@GRAD")
        assert (grad.type is VarType.SELECTED_ROWS) == is_sparse
        assert Program.parse_from_string(main.serialize_to_string()).serialize_to_string() == main.serialize_to_string()
        executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
        executor.run(startup, scope=scope)
        steps = []
        for taken, more in ((1.0, 1.0), (0.0, 0.0), (2.0, 0.0)):
            feed = {"ids": IDS, "taken": np.array([taken], "float32"), "more": np.array([more], "float32")}
            values = {name: feed[name] for name in feed if main.global_block().has_var(name)}
            (rows,) = executor.run(main, values, [grad], scope=scope, return_numpy=False)
            assert isinstance(rows, SelectedRows) == is_sparse
            steps.append(scope.array("table").copy())
        found[is_sparse] = steps
    np.testing.assert_allclose(found[True], found[False], rtol=2e-5, atol=1e-6)
    assert np.abs(found[True][0] - TABLE).max() > 1e-3


def test_scaled_table_has_a_sparse_gradient() -> None:
    """Where the gradient passes through an op before it reaches the table, its type is still known."""
    ids = fluid.data("ids", [None, 1], "int64")
    attr = fluid.ParamAttr("table", initializer=fluid.initializer.NumpyArrayInitializer(TABLE))
    table = layers.create_parameter([ROWS, WIDTH], "float32", attr=attr)
    block = fluid.default_main_program().global_block()
    found = block.create_var(name="found", dtype="float32")
    block.append_op("lookup_table", {"W": layers.scale(table, 2.0), "Ids": ids}, {"Out": found}, {"is_sparse": True})
    loss = layers.reduce_sum(layers.square(found))
    fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.3)).minimize(loss)
    assert block.var("table@GRAD").type is VarType.SELECTED_ROWS
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    executor.run(feed={"ids": IDS}, fetch_list=[loss], scope=scope)
    gradient = 8 * TABLE * np.bincount(IDS[:, 0], minlength=ROWS)[:, None]
    expected = TABLE - 0.1 * gradient * 0.3 / np.linalg.norm(gradient)
    np.testing.assert_allclose(scope.array("table"), expected, rtol=1e-5)


def test_rows_like_those_of_a_sparse_tensor() -> None:
    """`select_rows_like`, which programs written earlier have where a table decays."""
    program = Program()
    with program_guard(program, Program()):
        ids, weights = fluid.data("ids", [-1, 1], "int64"), fluid.data("weights", [-1, WIDTH])
        table = program.global_block().create_var(name="table", shape=[ROWS, WIDTH], dtype="float32", is_data=True)
        table.stop_gradient = False
        block = program.global_block()
        out = block.create_var(name="out")
        block.append_op("lookup_table", {"W": table, "Ids": ids}, {"Out": out}, {"is_sparse": True})
        (grad,) = fluid.gradients(layers.reduce_sum(out * weights), table)
        rows = block.namespace.get_tensor_from_selected_rows(block.namespace.select_rows_like(table, grad))
    feed = {"ids": IDS, "weights": WEIGHTS, "table": TABLE}
    (found,) = fluid.Executor().run(program, feed, [rows], scope=fluid.Scope())
    np.testing.assert_array_equal(found, TABLE[np.unique(IDS)])


@each("decay", [fluid.regularizer.L1Decay(0.5), fluid.regularizer.L2Decay(0.5)])
def test_a_table_decays_in_eager_mode(decay: Any) -> None:
    """All of it, as with a dense gradient."""
    found = []
    for is_sparse in (True, False):
        table = fluid.dygraph.to_tensor(TABLE.copy(), stop_gradient=False)
        optimizer = fluid.optimizer.Adagrad(0.1, parameter_list=[table], regularization=decay)
        for ids in (IDS, IDS[::2]):
            rows = layers.embedding(fluid.dygraph.to_tensor(ids), TABLE.shape, is_sparse=is_sparse, param_attr=table)
            layers.reduce_sum(rows * rows).backward()
            optimizer.step()
            optimizer.clear_grad()
        found.append(table.numpy())
    np.testing.assert_allclose(*found, rtol=1e-6)
    assert (found[0] != TABLE).all()


# ------------------------------------------------------------------------------------------------------ values of scopes
def filled(scope: fluid.Scope, name: str, rows: list[int], height: int, value: Any) -> SelectedRows:
    """The sparse value of a variable, filled piece by piece."""
    sparse = scope.var(name).get_selected_rows()
    sparse.set_height(height)
    sparse.set_rows(rows)
    sparse.sync_index()
    sparse.get_tensor().set(np.asarray(value, np.float32), fluid.CPUPlace())
    return sparse


def run_op(scope: fluid.Scope, op_type: str, inputs: dict[str, Any], outputs: dict[str, Any], **attrs: Any) -> None:
    """Run one op on variables of a scope, declared by their values."""
    with program_guard(Program()):
        block = fluid.default_main_program().global_block()
        for names in [*inputs.values(), *outputs.values()]:
            for name in [names] if isinstance(names, str) else names:
                variable = scope.var(name)
                kind = VarType.SELECTED_ROWS if variable.is_selected_rows() else VarType.LOD_TENSOR
                held = variable.get_tensor().array
                about = {} if held is None else {"shape": held.shape, "dtype": held.dtype}
                block.create_var(name=name, type=kind, persistable=True, **about)
        block.append_op(op_type, inputs, outputs, attrs)
        fluid.Executor(fluid.CPUPlace()).run(scope=scope)


CHANGES: dict[str, Callable[[fluid.Scope], Any]] = {
    "an op writes over its input": lambda scope: run_op(scope, "scale", {"X": "grad"}, {"Out": "grad"}, scale=2.0),
    "an op writes other rows": lambda scope: run_op(scope, "sum", {"X": ["grad", "more"]}, {"Out": "grad"}),
    "an op writes all rows": lambda scope: run_op(scope, "uniform_random", {}, {"Out": "grad"}, shape=[4, 2]),
    "a value is put": lambda scope: scope.put("grad", SelectedRows(np.array([3]), np.ones((1, 2), "float32"), 4)),
    "values are set": lambda scope: scope.var("grad").get_selected_rows().get_tensor().set(np.zeros((2, 2), "float32")),
    "all is set": lambda scope: filled(scope, "grad", [1], 4, [[7, 8]]),
}


@each("change", CHANGES)
def test_handles_of_sparse_values_follow_all_changes(change: str) -> None:
    scope = fluid.Scope()
    filled(scope, "more", [2], 4, [[5, 6]])
    rows = filled(scope, "grad", [3, 1], 4, [[1, 2], [3, 4]])
    handle = rows.get_tensor()
    before = np.array(handle)
    for _ in range(2):
        CHANGES[change](scope)
        now = scope.var("grad").get_tensor().array
        assert np.array_equal(np.asarray(handle), now.value) and handle.shape() == list(now.value.shape)
        assert handle.array is rows.value and handle._get_float_element(0) == now.value[0, 0]
        assert scope.find_var("grad").get_selected_rows() is rows and rows.rows() == now.rows()
    assert not np.array_equal(np.asarray(handle), before)


def test_sparse_values_of_scopes_are_set_and_follow_runs() -> None:
    alone = fluid.core.SelectedRows([0, 4, 7], 10)
    alone.get_tensor().set(np.full((3, 2), 2.0, np.float32), fluid.CPUPlace())
    assert alone.rows() == [0, 4, 7] and alone.shape == (10, 2) and alone.get_tensor()._get_float_element(3) == 2.0

    scope = fluid.Scope()
    grad = filled(scope, "grad", [0, 2, 0], 4, [[1, 2], [3, 4], [5, 6]])
    scope.put("param", np.zeros((4, 2), "float32"))
    scope.put("rate", np.ones(1, "float32"))
    update = {"Param": "param", "Grad": "grad", "LearningRate": "rate"}
    run_op(scope, "sgd", update, {"ParamOut": "param"})
    assert scope.array("param").tolist() == [[-6, -8], [0, 0], [-3, -4], [0, 0]]
    grad.set_rows([1, 3])
    with pytest.raises(ExecutionError, match="grad has no value"):  # there is a value too many
        run_op(scope, "sgd", update, {"ParamOut": "param"})
    grad.get_tensor().set(np.ones((2, 2), np.float32))
    run_op(scope, "sgd", update, {"ParamOut": "param"})
    assert scope.array("param").tolist() == [[-6, -8], [-1, -1], [-3, -4], [-1, -1]]

    table = filled(scope, "table", [5, 1, 3], 6, [[5, 5], [1, 1], [3, 3]])
    rows = table.get_tensor()
    run_op(scope, "sgd", {"Param": "table", "Grad": "grad", "LearningRate": "rate"}, {"ParamOut": "table"})
    assert np.array(rows).tolist() == [[5, 5], [0, 0], [2, 2]] and table.rows() == [5, 1, 3]
    grad.set_rows([1, 2])
    with pytest.raises(ExecutionError, match="row 2 of a sparse tensor"):
        run_op(scope, "sgd", {"Param": "table", "Grad": "grad", "LearningRate": "rate"}, {"ParamOut": "table"})

    scope.put("ids", np.array([[3, 5], [1, 9]], "int64"))
    for op_type, ids in (("lookup_table_v2", [[3, 5], [1, 9]]), ("lookup_table", [[3], [5], [1], [9]])):
        scope.put("ids", np.array(ids, "int64"))
        run_op(scope, op_type, {"W": "table", "Ids": "ids"}, {"Out": op_type}, padding_idx=9)
        assert scope.array(op_type).reshape(4, 2).tolist() == [[2, 2], [5, 5], [0, 0], [0, 0]]
    with pytest.raises(ExecutionError, match="row 9 of a sparse tensor"):
        run_op(scope, "lookup_table", {"W": "table", "Ids": "ids"}, {"Out": "out"}, padding_idx=-1)

    filled(scope, "none", [], 6, np.ones((3, 2)))  # values without rows count for nothing
    filled(scope, "more", [3, 1], 6, np.ones((2, 2)))
    total = scope.var("total").get_selected_rows()
    run_op(scope, "sum", {"X": ["none", "table", "more"]}, {"Out": "total"})
    assert total.rows() == [1, 3, 5] and np.array(total.get_tensor()).tolist() == [[1, 1], [3, 3], [5, 5]]

    drawn = scope.var("drawn").get_selected_rows()
    run_op(scope, "uniform_random", {}, {"Out": "drawn"}, shape=[3, 2], min=1.0, max=2.0)
    assert drawn.get_tensor().shape() == [3, 2] and drawn.rows() == [0, 1, 2] and np.array(drawn.get_tensor()).min() >= 1


# ---------------------------------------------------------------------------------------------------------- bfloat16
def test_rows_of_bfloat16_add_up_in_float32() -> None:
    index = np.array([4, 2, 4, 4, 2])
    values = rng.uniform(-1, 1, (5, 3)).astype("float32")
    halves = to_bfloat16(values)
    sums = {row: to_bfloat16(to_float32(halves)[index == row].sum(0)) for row in (2, 4)}
    rows = SelectedRows(index, halves, 6)
    for merged in (rows.merged(np), SelectedRows.total([rows, rows.empty()]).distinct(np)):
        for row, value in zip(merged.rows(), to_float32(merged.value), strict=True):
            np.testing.assert_allclose(value, to_float32(sums[row]), rtol=2**-7)
    dense = to_float32(rows.dense(np))
    np.testing.assert_array_equal(dense[[0, 1, 3, 5]], 0)
    np.testing.assert_allclose(dense[4], to_float32(sums[4]), rtol=2**-7)


KINDS = [getattr(optimizer, name) for name in optimizer.__all__ if name.endswith("Optimizer") and name != "FtrlOptimizer"]
"""FTRL is left out: it changes rows without a gradient, where the gradient is dense."""


@each("kind", [kind for kind in KINDS if isinstance(getattr(kind, "type", None), str) and kind.type])
def test_optimizers_of_tables_of_bfloat16(kind: Any) -> None:
    """A sparse gradient of bfloat16 gives the table that a dense one gives, near that of float32."""
    given = {"learning_rate": 0.1, "momentum": 0.9, "rampup_begin_step": 0}
    needed = [p.name for p in inspect.signature(kind).parameters.values() if p.default is p.empty and p.name in given]
    clips = {"grad_clip": fluid.clip.GradientClipByGlobalNorm(0.5), "regularization": fluid.regularizer.L2Decay(0.0)}

    def trained(dtype: str, is_sparse: bool, **options: Any) -> Any:
        with program_guard(Program(), Program()), fluid.unique_name.guard():
            start = fluid.initializer.NumpyArrayInitializer(to_float32(to_bfloat16(TABLE)))
            table = fluid.ParamAttr(name="table", initializer=start)
            rows = fluid.embedding(fluid.data("ids", [-1, 1], "int64"), [ROWS, WIDTH], is_sparse, param_attr=table, dtype=dtype)
            loss = layers.mean(layers.square(layers.cast(rows, "float32")))
            kind(**{name: given[name] for name in needed}, **options).minimize(loss)
            executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
            executor.run(fluid.default_startup_program(), scope=scope)
            for _ in range(3):
                executor.run(feed={"ids": IDS}, scope=scope)
            return computable(scope.array("table"))

    for options in ({}, clips):
        sparse = trained("bfloat16", True, **options)
        np.testing.assert_array_equal(sparse, trained("bfloat16", False, **options))
        np.testing.assert_allclose(sparse, trained("float32", True, **options), atol=0.02)


def test_a_table_of_bfloat16_in_eager_mode() -> None:
    with dygraph.guard(fluid.CPUPlace()):
        table = dygraph.Embedding([ROWS, WIDTH], is_sparse=True, dtype="bfloat16")
        before = table.weight.numpy()
        layers.reduce_sum(layers.cast(table(dygraph.to_variable(IDS)), "float32")).backward()
        fluid.optimizer.SGD(0.5, parameter_list=table.parameters()).step()
        counts = np.bincount(IDS[:, 0], minlength=ROWS)[:, None]
        np.testing.assert_allclose(table.weight.numpy(), before - 0.5 * counts, atol=0.02)


def test_a_gradient_of_a_table_with_as_many_rows_as_are_fed_has_no_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_NATIVE", "0")
    with program_guard(Program(), startup := Program()), fluid.unique_name.guard():
        words = fluid.embedding(layers.squeeze(fluid.data("ids", [None, 1], "int64", 1), [1]), [ROWS, WIDTH], is_sparse=True)
        loss = layers.mean(layers.sequence_pool(words, "sum"))
        fluid.optimizer.Adam(0.1).minimize(loss)
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(startup, scope=scope)
        feed = {"ids": (np.arange(ROWS)[:, None] % 5, [[4, 0, ROWS - 4]])}
        first, second = (executor.run(loss.block.program, feed, [loss], scope=scope)[0] for _ in range(2))
    assert second < first

"""Checks of ids in native code fail where numpy's checks fail, with the same error, and nothing behind them runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from checks import each, fresh_programs
from conformance.case import CASES, Case
from conformance.facet import float32
from harness import TARGETS, set_limits, set_target

import fluid
from fluid import layers
from fluid.errors import ExecutionError
from fluid.executor.kernels.table import check_call, check_of
from fluid.executor.native import native_checks
from fluid.executor.native.id_ranges import _RULES
from fluid.executor.native.instructions import CHECKED_FLOATS
from fluid.executor.native.native_checks import NativeCheck
from fluid.ir.program import Variable

ROWS = 7
Feed = dict[str, Any]


def normal(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def outcomes(build: Callable[[], Variable], feeds: Sequence[Feed], is_native: bool) -> tuple[list[Any], bool]:
    """The value of each run, or the text of its error; and whether native code makes a check."""
    results: list[Any] = []
    with fresh_programs(), pytest.MonkeyPatch.context() as patches:
        patches.setenv("FLUID_NATIVE", str(int(is_native)))
        out, executor = build(), fluid.Executor()
        executor.run(fluid.default_startup_program())
        plan: Any = executor.plan(feed=feeds[0], fetch_list=[out])
        for feed in feeds:
            try:
                results += executor.run(feed=feed, fetch_list=[out])
            except ExecutionError as error:
                results.append(str(error).split("\n  made at")[0].split("\n  at run time")[0])
    return results, any(isinstance(item, NativeCheck) for item in getattr(plan, "instructions", ()))


def assert_same_outcomes(build: Callable[[], Variable], feeds: Sequence[Feed]) -> bool:
    """Assert that native code gives numpy's results and errors; returns whether it makes a check."""
    expected, _ = outcomes(build, feeds, is_native=False)
    results, is_checked = outcomes(build, feeds, is_native=True)
    for result, value in zip(results, expected, strict=True):
        if isinstance(value, str):
            assert result == value
        else:
            np.testing.assert_allclose(result, value, rtol=1e-5, atol=1e-6)
    return is_checked


def op(op_type: str, inputs: dict[str, Any], output: str = "Out", dtype: str = "float32", **attrs: Any) -> Variable:
    block = fluid.default_main_program().current_block()
    out = block.create_var(name=fluid.unique_name.generate("out"), dtype=dtype)
    block.append_op(op_type, {slot: [var] for slot, var in inputs.items()}, {output: [out]}, attrs)
    return out


# -------------------------------------------------------------------------------------------------------- every rule
def table() -> Variable:
    return layers.scale(fluid.data("table", [ROWS, 3]), 1.5)


def on_ids(build: Callable[[Variable], Variable], shape: Sequence[int]) -> Callable[[int, str], Callable[[], Variable]]:
    def for_count(count: int, dtype: str) -> Callable[[], Variable]:
        return lambda: layers.tanh(build(fluid.data("ids", [count, *shape], dtype)))

    return for_count


def scores(count: int) -> Variable:
    return layers.softmax(layers.scale(fluid.data("scores", [count, ROWS]), 2.0))


def square() -> Variable:
    return layers.scale(fluid.data("square", [ROWS, ROWS]), 1.0)


def edges(starts: Variable, ends: Variable) -> Variable:
    inputs = {"x": table(), "y": table(), "src_index": starts, "dst_index": ends}
    return op("graph_send_uv", inputs, "out", message_op="MUL")


def messages(ids: Variable) -> Variable:
    """Rows of a table that are sent along edges: the ids are their starts, then their ends."""
    sent = op("graph_send_recv", {"X": table(), "Src_index": ids, "Dst_index": ids * 0}, reduce_op="SUM")
    return sent + op("graph_send_recv", {"X": table(), "Src_index": ids * 0, "Dst_index": ids}, reduce_op="MAX", out_size=[ROWS])


def rows(count: int | None) -> Variable:
    return layers.scale(fluid.data("rows", [count, 3]), 1.0)


def path(label: Variable) -> Variable:
    return op("hierarchical_sigmoid", {"X": rows(label.shape[0]), "W": table(), "Label": label}, num_classes=ROWS)


KINDS: dict[str, Any] = {
    "hierarchical_sigmoid": on_ids(path, [1]),
    "gather": on_ids(lambda ids: layers.gather(table(), ids), []),
    "gather_nd": on_ids(lambda ids: layers.gather_nd(table(), ids), [1]),
    "graph_send_uv": on_ids(lambda ids: edges(ids * 0, ids) + edges(ids, ids * 0), []),
    "graph_send_recv": on_ids(messages, []),
    "lookup_table": on_ids(lambda ids: op("lookup_table", {"W": table(), "Ids": ids}, padding_idx=-1), [1]),
    "lookup_table_v2": on_ids(lambda ids: op("lookup_table_v2", {"W": table(), "Ids": ids}, padding_idx=5), []),
    "one_hot": on_ids(lambda ids: layers.one_hot(ids, ROWS), [1]),
    "one_hot_v2": on_ids(lambda ids: fluid.one_hot(ids, ROWS), []),
    "take_rows": on_ids(lambda ids: op("take_rows", {"X": table(), "Index": ids}), []),
    "add_rows": on_ids(lambda ids: op("add_rows", {"X": scores(ids.shape[0]), "Index": ids, "Like": square()}), []),
    "max_rows": on_ids(lambda ids: op("max_rows", {"X": scores(ids.shape[0]), "Index": ids, "Like": square()}), []),
    "cross_entropy": on_ids(lambda ids: layers.cross_entropy(scores(ids.shape[0]), ids, ignore_index=-3), [1]),
    "softmax_with_cross_entropy": on_ids(
        lambda ids: layers.softmax_with_cross_entropy(layers.scale(fluid.data("scores", [ids.shape[0], ROWS]), 2.0), ids), [1]
    ),
}
WRONG = [-1, ROWS, 1 << 31, (1 << 32) + 1, -(1 << 40), (1 << 63) - 1, -(1 << 63)]
ALLOWED = [0, ROWS - 1, 5, -3, -100]


def set_rows(ids: Variable) -> Variable:
    return layers.scatter(square(), ids, scores(ids.shape[0]))


@each("kind", [*KINDS, "scatter"])
def test_a_wrong_id_is_found_wherever_it_is(kind: str) -> None:
    are_checked, make = [], KINDS.get(kind) or on_ids(set_rows, [])
    for count in (1, 2, 7, 8, 9, 33, 100) if kind in KINDS else (1, 2, 7, 8):  # native code sets few rows
        for dtype in ("int32", "int64"):
            info, random, build = np.iinfo(dtype), np.random.default_rng(count), make(count, dtype)
            with fresh_programs():
                declared = {name: tuple(var.shape) for name, var in build().block.vars.items() if var.is_data}
            feeds = []
            for number in [*WRONG, *ALLOWED]:
                if info.min <= number <= info.max:
                    ids = random.integers(0, ROWS, count).astype(dtype)
                    ids[random.integers(count)] = number
                    feeds.append({name: ids.reshape(s) if name == "ids" else normal(*s) for name, s in declared.items()})
            are_checked.append(assert_same_outcomes(build, feeds))
    assert all(are_checked)


def test_each_rule_has_a_case() -> None:
    """Gradients have the rules of their ops; `auc`, `pick`, `nce`, trees and sums into rows have tests of their own."""
    tested = {
        "scatter",
        "auc",
        "tree_leaves",
        "scatter_add_like",
        "scatter_nd_add",
        "scatter_rows_like",
        "place",
        "pick",
        "cross_entropy2",
        "nce_grad",
    }
    assert _RULES.keys() == KINDS.keys() | tested | {"softmax_with_cross_entropy_grad"}


@each("value", [0.0, 1.0, -0.1, 1.1, np.nan, np.inf])
def test_predictions_are_probabilities(value: float) -> None:
    def build() -> Variable:
        predict, label = layers.scale(fluid.data("predict", [9, 2]), 1.0), fluid.data("label", [9, 1], "int64")
        return layers.auc(predict, label)[0]

    predict = np.abs(normal(9, 2)).clip(0, 1)
    predict[4, 1] = value
    feed = {"predict": predict, "label": np.arange(9).reshape(9, 1) % 2}
    assert_same_outcomes(build, [feed])


def test_labels_of_ctc_and_their_lengths() -> None:
    """Labels behind the length of a sequence may be anything."""

    def build() -> Variable:
        logits = layers.scale(fluid.data("logits", [6, 3, 5]), 2.0)
        label, lengths = fluid.data("label", [3, 2], "int32"), [fluid.data(name, [3], "int64") for name in ("frames", "letters")]
        return layers.warpctc(logits, label, 0, False, *lengths)

    feed = {
        "logits": normal(6, 3, 5), "label": np.int32([[1, 2], [3, 9], [-1, -1]]),
        "frames": np.int64([6, 4, 0]), "letters": np.int64([2, 1, 0]),
    }  # fmt: skip
    places = [("label", 0, 5), ("label", 1, 0), ("label", 2, -1), ("frames", 2, 7), ("letters", 0, 3), ("letters", 0, -1)]
    wrong = [{**feed, name: feed[name].copy()} for name, _, _ in places]
    for bad, (name, place, number) in zip(wrong, places, strict=True):
        bad[name].reshape(-1)[place] = number
    assert assert_same_outcomes(build, [feed, *wrong, feed])


# ------------------------------------------------------------------------------------------------ what runs behind them
def word_net() -> Variable:
    ids, label = fluid.data("ids", [None, 1], "int64"), fluid.data("label", [None, 1], "int64")
    h = layers.fc(layers.embedding(ids, [50, 16]), 40, act="tanh")
    loss = layers.mean(layers.softmax_with_cross_entropy(layers.fc(h, 10), label))
    fluid.optimizer.Adam(0.1).minimize(loss)
    return loss


def state_of(program: Any) -> dict[str, Any]:
    arrays = {name: fluid.global_scope().array(name) for name, var in program.global_block().vars.items() if var.persistable}
    return {name: array.copy() for name, array in arrays.items() if array is not None}


def assert_variables_stay(rows: int, threads: int) -> None:
    before = fluid.get_num_threads()
    fluid.set_num_threads(threads)
    try:
        loss, executor, main = word_net(), fluid.Executor(), fluid.default_main_program()
        executor.run(fluid.default_startup_program())
        random = np.random.default_rng(rows)
        feed = {"ids": random.integers(0, 50, (rows, 1)), "label": random.integers(0, 10, (rows, 1))}
        (first,) = executor.run(feed=feed, fetch_list=[loss])
        state = state_of(main)
        for name, wrong in [("ids", 50), ("label", -1)] * 3:
            bad = {**feed, name: feed[name].copy()}
            bad[name][-1] = wrong
            with pytest.raises(ExecutionError, match=f" {wrong} is outside of"):
                executor.run(feed=bad, fetch_list=[loss])
            for variable, array in state_of(main).items():
                np.testing.assert_array_equal(array, state[variable], err_msg=variable)
        for _ in range(20):
            (last,) = executor.run(feed=feed, fetch_list=[loss])
        assert last < first
    finally:
        fluid.set_num_threads(before)


@each("threads", [1, 2])
@each("rows", [3, 2000])
def test_a_failed_check_leaves_all_variables(rows: int, threads: int) -> None:
    with fresh_programs():
        assert_variables_stay(rows, threads)


def test_the_error_names_the_op_that_read_the_id() -> None:
    """Neighbouring checks are one kernel; the first one that fails is reported."""
    ids = [fluid.data(f"ids{number}", [4], "int64") for number in range(5)]
    tables = [fluid.data(f"table{number}", [3 + number, 8]) for number in range(5)]
    outs = layers.sums([layers.gather(x, i) for x, i in zip(tables, ids, strict=True)])
    executor = fluid.Executor()
    feed = {x.name: normal(*x.shape) for x in tables} | {i.name: np.zeros(4, np.int64) for i in ids}
    executor.run(feed=feed, fetch_list=[outs])
    for number in (4, 2, 0):
        feed[f"ids{number}"] = np.int64([0, 1, 3 + number, 2])
        with pytest.raises(ExecutionError, match=rf"index {3 + number} is outside of \[0, {3 + number}\)") as error:
            executor.run(feed=feed, fetch_list=[outs])
        assert f"table{number}" in str(error.value)


def test_a_check_between_tables() -> None:
    """Ids that are computed, and an op on numpy before and after."""
    x = fluid.data("x", [9, 4])
    order = layers.argsort(layers.scale(x, 2.0), 0)[1]  # on numpy
    ids = layers.elementwise_add(layers.slice(order, [1], [0], [1]), fluid.data("more", [9, 1], "int64"))
    rows = layers.gather(layers.tanh(x), layers.reshape(ids, [9]))
    out = layers.argsort(layers.relu(rows), 0)[0]
    executor = fluid.Executor()
    plan: Any = executor.plan(feed={"x": normal(9, 4), "more": np.zeros((9, 1), np.int64)}, fetch_list=[out])
    assert any(isinstance(item, NativeCheck) for item in plan.instructions)
    for more, fails in ((0, False), (1, True), (0, False), (-1, True)):
        feed = {"x": normal(9, 4), "more": np.full((9, 1), more)}
        if fails:
            with pytest.raises(ExecutionError, match="outside of"):
                executor.run(feed=feed, fetch_list=[out])
        else:
            executor.run(feed=feed, fetch_list=[out])


def test_more_checks_than_a_byte_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_checks, "MOST_CHECKS", 3)

    def build() -> Variable:
        x = fluid.data("x", [5, 4])
        for number in range(6):
            x = layers.gather(layers.tanh(x), fluid.data(f"ids{number}", [5], "int64"))
        return x

    feed = {"x": normal(5, 4)} | {f"ids{number}": np.arange(5) for number in range(6)}
    wrong = [{**feed, f"ids{number}": np.int64([0, 1, 2, 3, 5])} for number in range(6)]
    assert assert_same_outcomes(build, [feed, *wrong, feed])


def with_sequences(looked_up: Variable) -> Variable:
    """Make the program one that runs op by op, with native code for the blocks of its loops."""
    rows = layers.sequence_pad(fluid.data("x", [None, 4], lod_level=1), layers.zeros([1], "float32"))[0]
    return layers.reduce_sum(rows) + layers.reduce_sum(looked_up)


def dynamic_loop() -> Variable:
    ids, rnn = fluid.data("ids", [None, 1], "int64", 1), layers.DynamicRNN()
    with rnn.block():
        word = layers.embedding(rnn.step_input(ids), [ROWS, 4], param_attr=fluid.initializer.Constant(0.1))
        state = rnn.memory(shape=[4])
        rnn.update_memory(state, layers.tanh(state + word))
        rnn.output(state)
    loss = with_sequences(rnn())
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


def static_loop() -> Variable:
    ids, rnn = fluid.data("ids", [12, 1], "int64"), layers.StaticRNN()
    start, columns = layers.zeros([1, 4], "float32"), layers.unsqueeze(ids, [1])
    with rnn.step():
        state = rnn.memory(init=start)
        word = layers.embedding(rnn.step_input(columns), [ROWS, 4], param_attr=fluid.initializer.Constant(0.1))
        rnn.update_memory(state, layers.tanh(state + word))
        rnn.step_output(state)
    loss = with_sequences(rnn())
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


@each("build", [dynamic_loop, static_loop])
@each("threads", [1, 2])
def test_a_wrong_id_in_a_trip_of_a_loop(build: Callable[[], Variable], threads: int) -> None:
    """The trips behind it, whose ids are right, do not hide it."""
    lengths, before = [[0, 5, 7, 12]], fluid.get_num_threads()
    feeds: list[Feed] = []
    for place in (None, 0, 1, 4, 6, 11, None):
        ids = np.arange(12).reshape(12, 1) % ROWS
        if place is not None:
            ids[place] = ROWS
        feeds.append({"x": (normal(12, 4), lengths), "ids": (ids, lengths) if build is dynamic_loop else ids})
    fluid.set_num_threads(threads)
    try:
        (expected, _), (found, _) = (outcomes(build, feeds, native) for native in (False, True))
    finally:
        fluid.set_num_threads(before)
    assert [isinstance(value, str) for value in expected] == [False, *[True] * 5, False]
    assert [value for value in found if isinstance(value, str)] == expected[1:-1]
    np.testing.assert_allclose([found[0], found[-1]], [expected[0], expected[-1]], rtol=1e-5)


def test_constant_ids_are_checked_before_anything_reads_them(tmp_path: Any) -> None:
    """Native code that reads constants alone runs at binding: the check has to run before it."""
    weight = layers.create_parameter([50, 8], "float32", name="weight")
    out = layers.elementwise_add(layers.gather(weight, layers.assign(np.int64([1, 2, 1 << 40]))), fluid.data("added", [3, 8]))
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    path = str(tmp_path / "model.pdmodel")
    fluid.save_model(path, fluid.default_main_program(), ["added"], [out])
    model = fluid.load_model(path, scope=fluid.Scope())
    for _ in range(2):
        with pytest.raises(ExecutionError, match="1099511627776 is outside of"):
            executor.run(model.program, {"added": normal(3, 8)}, model.fetches, scope=model.scope)


@each("target", range(len(TARGETS)))
def test_tiny_limits_and_other_processors(target: int) -> None:
    with pytest.MonkeyPatch.context() as patches:
        set_target(patches, TARGETS[target])
        set_limits(patches, serial=1, part=8, small_core=1, long_row=4)
        with fresh_programs():
            assert_variables_stay(300, 2)


def test_a_loop_without_trips_reports_no_check() -> None:
    """The only check lies in the loop, and the memory that tells which check has failed holds what another program left."""
    limit, table = fluid.data("limit", [1], "int64"), fluid.data("table", [5, 3])
    first = [layers.fill_constant([1], "int64", 0), layers.fill_constant([1, 3], "float32", 0.0)]
    results = layers.while_loop(
        lambda index, total: layers.less_than(index, limit),
        lambda index, total: [index + 1, total + layers.gather(table, index)],
        first,
    )
    executor, feed, other = fluid.Executor(), {"table": np.ones((5, 3), "float32")}, fluid.Program()
    with fluid.program_guard(other, fluid.Program()):
        doubled = layers.scale(layers.assign(fluid.data("numbers", [4096], "int64")) * 1, 1.0)
    for trips in (0, 3, 0):
        executor.run(other, {"numbers": np.full(4096, -1)}, [doubled])
        index, total = executor.run(feed={**feed, "limit": np.array([trips])}, fetch_list=results)
        assert index.item() == trips
        assert total.tolist() == [[trips] * 3]


class _FloatsUnseen(np.ndarray):
    """An array whose floats nobody may read."""

    def __array_ufunc__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("floats are read")

    __array_function__ = __getitem__ = reshape = min = max = swapaxes = copy = astype = __array_ufunc__


def test_the_slots_whose_floats_checks_inspect_are_known() -> None:
    """Plans move a check past writes of all values that it does not inspect."""
    inspecting: dict[str, set[str]] = {}
    for key, (op_type, sample) in CASES.items():
        check = check_of(op_type)
        if check is None or "float32" not in float32(sample):
            continue
        case = Case(key, "float32")
        floats = [slot for slot, value in case.inputs.items() if isinstance(value, np.ndarray) and value.dtype.kind == "f"]
        for slot in floats:
            inputs = {**case.inputs, slot: case.inputs[slot].view(_FloatsUnseen)}
            try:
                check_call(check, inputs, case.outputs, case.attrs, {"xp": np}, case.lods)()
            except AssertionError:
                inspecting.setdefault(op_type, set()).add(slot)
    assert inspecting == {op_type: set(slots) for op_type, slots in CHECKED_FLOATS.items()}

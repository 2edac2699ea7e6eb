"""Running programs: feeds, fetches, scopes, pruning, errors, test mode."""

from __future__ import annotations

import dataclasses
import gc
import re
import sys
import warnings
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from checks import Checks, each

import fluid
from fluid import layers
from fluid.errors import ExecutionError, FeedError
from fluid.executor import CPUPlace, CUDAPinnedPlace, CUDAPlace, Executor, LoDTensor, Scope, feeding
from fluid.executor.backend import Request
from fluid.executor.kernels.table import KERNELS
from fluid.ir.program import Program, Variable, program_guard
from fluid.values.cache import OP_LIMIT
from fluid.values.types import VarType

X = np.arange(6, dtype="float32").reshape(2, 3) / 4


def main() -> Program:
    return fluid.default_main_program()


def startup() -> Program:
    return fluid.default_startup_program()


def data(name: str = "x", shape: Any = (-1, 3), dtype: str = "float32") -> Variable:
    return fluid.data(name, list(shape), dtype)


def counter(name: str = "counter", value: float = 1.0) -> Variable:
    """A persistable variable of one element."""
    return layers.create_global_var([1], value, "float32", persistable=True, name=name)


def line_here() -> int:
    return sys._getframe(1).f_lineno


# ------------------------------------------------------------------------------------------------------ run and fetch
def test_fetch_by_variable_and_name_in_any_order() -> None:
    x = data()
    y, z = x * 2.0, x + 1.0
    exe = Executor(CPUPlace())
    found = exe.run(main(), {"x": X}, [z, y.name, "x", y])
    for value, expected in zip(found, (X + 1, X * 2, X, X * 2), strict=True):
        assert isinstance(value, np.ndarray) and value.dtype == np.float32
        assert np.array_equal(value, expected)
    assert np.array_equal(exe.run(feed={"x": X}, fetch_list=y)[0], X * 2)
    assert np.array_equal(exe.run(feed={"x": X}, fetch_list=y.name)[0], X * 2)
    assert exe.run(main(), {"x": X}) == []


def test_feed_names_may_be_variables() -> None:
    x = data()
    y = x * 2.0
    assert np.array_equal(Executor().run(main(), {x: X}, [y])[0], X * 2)  # type: ignore[dict-item]


def test_tensors_instead_of_numpy_arrays() -> None:
    y = data() * 2.0
    (found,) = Executor().run(main(), {"x": X}, [y], return_numpy=False)
    assert isinstance(found, LoDTensor)
    assert found.shape() == [2, 3]
    assert np.array_equal(np.asarray(found), X * 2)


def test_feeding_tensors_of_scopes() -> None:
    y = data() * 2.0
    tensor = LoDTensor()
    with pytest.raises(FeedError, match=r"fed to x \(float32\[-1, 3\]\) holds nothing"):
        Executor().run(main(), {"x": tensor}, [y])
    tensor.set(X, CPUPlace())
    assert np.array_equal(Executor().run(main(), {"x": tensor}, [y])[0], X * 2)


def test_fetched_arrays_are_the_callers_own() -> None:
    x = data()
    y = layers.relu(x)
    counter()
    exe = Executor()
    exe.run(startup())
    first = exe.run(main(), {"x": X}, [y, x, "counter"])
    kept = [value.copy() for value in first]
    exe.run(main(), {"x": X + 5}, [y, x, "counter"])
    for value, expected in zip(first, kept, strict=True):
        assert np.array_equal(value, expected)
        value[...] = -7  # neither read-only nor seen by the next run
    again = exe.run(main(), {"x": X}, [y, x, "counter"])
    for value, expected in zip(again, kept, strict=True):
        assert np.array_equal(value, expected)


def test_what_is_fed_stays_as_it_was() -> None:
    x = data()
    for _ in range(3):
        x = layers.assign(layers.tanh(x), x)
    feed = X.copy()
    exe = Executor()
    (found,) = exe.run(main(), {"x": feed}, [x])
    exe.interpret(main(), {"x": feed}, [x])
    assert np.array_equal(feed, X)
    np.testing.assert_allclose(found, np.tanh(np.tanh(np.tanh(X))), rtol=1e-6)


def test_arrays_of_tensors_can_be_fetched() -> None:
    x = data()
    zero, two = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 2)
    array = layers.array_write(x, zero)
    layers.array_write(x * 2.0, two, array)
    (found,) = Executor().run(main(), {"x": X}, [array])
    assert found[1] is None and np.array_equal(found[0], X) and np.array_equal(found[2], X * 2)


# --------------------------------------------------------------------------------------------------------- what is fed
@each(
    ("value", "message"),
    [
        (X.astype("float64"), r"x is declared float32\[-1, 3\], but float64\[2, 3\] is fed; .*\.astype\('float32'\)"),
        (np.zeros((2, 3), "int64"), r"x is declared float32\[-1, 3\], but int64\[2, 3\] is fed"),
        (np.zeros((2, 4), "float32"), r"but float32\[2, 4\] is fed; declare a size that varies as None"),
        (np.zeros(3, "float32"), r"x is declared float32\[-1, 3\], but float32\[3\] is fed"),
        (np.float32(1), r"x is declared float32\[-1, 3\], but float32\[\] is fed"),
        ([[1.0, 2.0]], r"x is declared float32\[-1, 3\], but float32\[1, 2\] is fed"),
        (None, r"the feed of x \(float32\[-1, 3\]\) is not an array: it is None"),
        ([[1.0, 2.0], [3.0]], r"the feed of x \(float32\[-1, 3\]\) is not an array"),
        ([["a", "b", "c"]], r"the feed of x \(float32\[-1, 3\]\) is not an array: it holds 'a', a str"),
    ],
)
def test_feeds_that_do_not_fit(value: Any, message: str) -> None:
    y = data() * 2.0
    for run in (Executor().run, Executor().interpret, Executor().plan):
        with pytest.raises(FeedError, match=message):
            run(main(), {"x": value}, [y])


def test_layers_data_leave_element_types_to_the_ops() -> None:
    x = layers.data("x", [3])
    times = layers.data("times", [2], append_batch_size=False)
    tiled, product = layers.expand(x, times), layers.fc(x, 2)
    exe, ones = Executor(), np.ones((2, 3), "int32")
    for run in (exe.run, exe.interpret):
        (found,) = run(main(), {"x": X, "times": np.array([2, 1], "int32")}, [tiled])
        assert found.shape == (4, 3)
        (found,) = run(main(), {"x": ones, "times": np.array([1, 2], "int64")}, [tiled])
        assert found.shape == (2, 6) and found.dtype == np.int32
    exe.run(startup())
    with pytest.raises(ExecutionError, match=r"fed: x is declared float32\[-1, 3\], but int32\[2, 3\] is fed; .*'float32'"):
        exe.run(main(), {"x": ones}, [product])
    with pytest.raises(FeedError, match=r"fc_0.w_0 is declared float32\[3, 2\], but int32\[3, 2\] is fed"):
        exe.run(main(), {"x": X, "fc_0.w_0": np.ones((3, 2), "int32")}, [product])


def test_lists_are_converted_to_the_declared_type() -> None:
    x, ids = data(), data("ids", [-1], "int64")
    found = Executor().run(main(), {"x": [[1, 2, 3]], "ids": [4, 5]}, [x, ids])
    assert found[0].dtype == np.float32 and found[0].tolist() == [[1, 2, 3]]
    assert found[1].dtype == np.int64 and found[1].tolist() == [4, 5]
    assert Executor().run(main(), {"ids": []}, [ids])[0].shape == (0,)


@each("value", [[0.5], [2**70]])
def test_numbers_that_the_declared_type_cannot_hold(value: list[Any]) -> None:
    ids = data("ids", [-1], "int64")
    with pytest.raises(FeedError, match="ids"):
        Executor().run(main(), {"ids": value}, [ids])


def test_missing_feed() -> None:
    y = data() * 2.0
    at = line_here() - 1
    with pytest.raises(FeedError, match=r"x \(float32\[-1, 3\]\) is read but has no value; feed it") as caught:
        Executor().run(main(), {}, [y])
    assert f"{__file__}:{at} in test_missing_feed" in str(caught.value)


def test_missing_feed_of_a_loop() -> None:
    x, limit = data("x", [1]), data("limit", [1])
    (found,) = layers.while_loop(lambda v: layers.less_than(v, limit), lambda v: [v + 1.0], [x])
    with pytest.raises(FeedError, match=r"limit .*feed it"):
        Executor().run(main(), {"x": [0.0]}, [found])
    assert Executor().run(main(), {"x": [0.0], "limit": [2.5]}, [found])[0] == 3


def test_missing_feed_is_fine_where_nothing_reads_it() -> None:
    x, unread = data(), data("unread")
    y, _ = x * 2.0, unread * 2.0
    assert np.array_equal(Executor().run(main(), {"x": X}, [y])[0], X * 2)


def test_unknown_feed() -> None:
    image = data("image")
    with pytest.raises(FeedError, match=r"'imgae' is fed, but the program has no such variable; did you mean image\?"):
        Executor().run(main(), {"imgae": X}, [image])
    with pytest.raises(FeedError, match=r"5 is fed, .* it is fed image"):
        Executor().run(main(), {"image": X, 5: X}, [image])
    doubled, message = image * 2.0, "{!r} is fed, but the program has no such variable, so the value is passed over; {}"
    for name, hint in (("imgae", "did you mean image"), ("label", "it is fed image")):
        for _ in range(2):  # the second run has a plan
            with pytest.warns(UserWarning, match=message.format(name, hint)):
                (value,) = Executor().run(main(), {"image": X, name: X}, [doubled])
            assert np.array_equal(value, 2 * X)
    data("labels")
    with pytest.raises(FeedError, match=r"'label' is fed, .* did you mean labels"):  # the program has changed
        Executor().run(main(), {"image": X, "label": X}, [doubled])
    with (
        pytest.warns(UserWarning, match="'q' is fed"),
        pytest.raises(FeedError, match=r"(?s)image .* is read but has no value.*fed: 'q', which is no variable of the program"),
    ):
        Executor().run(main(), {"q": X}, [doubled])
    with pytest.raises(FeedError, match=r"feed should be a dict .*, not list"):
        Executor().run(main(), [X], [image])  # type: ignore[arg-type]


def test_parameters_without_values() -> None:
    y = layers.fc(data(), 2)
    with pytest.raises(FeedError, match=r"fc_0\.w_0 \(float32\[3, 2\]\) is read but has no value; run the startup program"):
        Executor().run(main(), {"x": X}, [y])


def test_feeding_a_persistable_variable_that_is_updated() -> None:
    c = counter()
    layers.increment(c, 1.0)
    exe = Executor()
    exe.run(startup())
    for run in (exe.run, exe.interpret):
        assert run(main(), {"counter": np.array([5], "float32")}, [c])[0] == 6
        assert run(main(), {}, [c])[0] == 7


def test_feeding_a_parameter_that_is_only_read() -> None:
    y = layers.fc(data(), 1, param_attr=fluid.ParamAttr(name="w"), bias_attr=False)
    exe = Executor()
    exe.run(startup())
    before = np.array(fluid.global_scope().find_var("w").get_tensor())
    assert np.array_equal(exe.run(main(), {"x": X, "w": np.ones((3, 1), "float32")}, [y])[0], X.sum(1, keepdims=True))
    np.testing.assert_allclose(exe.run(main(), {"x": X}, [y])[0], X @ before, rtol=1e-6)


# -------------------------------------------------------------------------------------------------------------- fetches
def test_fetches_that_are_unknown_or_never_computed() -> None:
    y = layers.relu(data())
    with pytest.raises(FeedError, match=r"'relu_0\.tmp_1' is to be fetched, .*no such variable; did you mean relu_0\.tmp_0\?"):
        Executor().run(main(), {"x": X}, ["relu_0.tmp_1"])
    with pytest.raises(FeedError, match="neither a Variable nor a name"):
        Executor().run(main(), {"x": X}, [3])  # type: ignore[list-item]
    main().global_block().create_var(name="lonely", shape=[2], dtype="float32")
    with pytest.raises(FeedError, match="lonely is to be fetched, but no op of the program computes it"):
        Executor().run(main(), {"x": X}, [y, "lonely"])
    with pytest.raises(FeedError, match="lonely is to be fetched"):
        Executor().interpret(main(), {"x": X}, [y, "lonely"])


def test_fetching_what_a_branch_not_taken_would_have_made() -> None:
    x = data("x", [1])
    out = main().global_block().create_var(name="out", dtype="float32")
    switch = layers.Switch()
    with switch, switch.case(layers.less_than(x, layers.fill_constant([1], "float32", 0.0))):
        layers.assign(x * 2.0, out)
    exe = Executor()
    for run in (exe.run, exe.interpret):
        assert run(main(), {"x": [-1.0]}, [out])[0] == -2
        with pytest.raises(FeedError, match=r"out is to be fetched, but .* no value \(a branch that was not taken\?\)"):
            run(main(), {"x": [1.0]}, [out])
        assert run(main(), {"x": [-3.0]}, [out])[0] == -6


def test_reading_what_a_branch_not_taken_would_have_made() -> None:
    x = data("x", [1])
    out = main().global_block().create_var(name="out", dtype="float32", shape=[1])
    switch = layers.Switch()
    with switch, switch.case(layers.less_than(x, layers.fill_constant([1], "float32", 0.0))):
        layers.assign(x * 2.0, out)
    y = layers.square(out)
    exe = Executor()
    assert exe.run(main(), {"x": [-1.0]}, [y])[0] == 4
    with pytest.raises(ExecutionError, match="out has no value"):
        exe.run(main(), {"x": [1.0]}, [y])


# ------------------------------------------------------------------------------------------------ persistable variables
def test_persistable_variables_are_updated_in_place() -> None:
    c = counter()
    layers.increment(c, 2.0)
    exe, scope = Executor(), fluid.global_scope()
    exe.run(startup())
    array = scope.find_var("counter").get_tensor().array
    for step in (1, 2, 3):
        assert exe.run(main(), fetch_list=[c])[0] == 1 + 2 * step
        assert scope.find_var("counter").get_tensor().array is array
        assert array == 1 + 2 * step
    exe.run(startup())
    assert array == 1
    assert exe.run(main(), fetch_list=[c])[0] == 3


@each("run", ["run", "interpret"])
def test_persistable_variables_that_a_loop_updates(run: str) -> None:
    c = counter(value=0.0)
    three = layers.fill_constant([1], "float32", 3.0)
    i = layers.fill_constant([1], "float32", 0.0)
    condition = layers.less_than(i, three)
    loop = layers.While(condition)
    with loop.block():
        layers.increment(c, 1.0)
        layers.increment(i, 1.0)
        layers.less_than(i, three, cond=condition)
    exe = Executor()
    exe.run(startup())
    for times in (3, 6, 9):
        assert getattr(exe, run)(main(), fetch_list=[c])[0] == times
        assert fluid.global_scope().find_var("counter").get_tensor().array == times


@each("run", ["run", "interpret"])
def test_persistable_variables_that_grow(run: str) -> None:
    c = counter()
    layers.assign(layers.concat([c, c], axis=0), c)
    total = layers.reduce_sum(c)
    exe = Executor()
    exe.run(startup())
    for times in (2, 4, 8):
        value, found = getattr(exe, run)(main(), fetch_list=[c, total])
        assert value.shape == (times,) and found == times
        assert fluid.global_scope().find_var("counter").get_tensor().shape() == [times]
    exe.run(startup())
    assert getattr(exe, run)(main(), fetch_list=[total])[0] == 2


@each("run", ["run", "interpret"])
def test_persistable_variables_that_grow_and_shrink(run: str) -> None:
    c = counter()
    following = c * 2.0
    layers.assign(layers.concat([c, c], axis=0), c)
    layers.assign(following, c)
    exe = Executor()
    exe.run(startup())
    for value in (2, 4, 8):
        assert getattr(exe, run)(main(), fetch_list=[c])[0] == value
        assert fluid.global_scope().find_var("counter").get_tensor().array == value


def test_a_variable_that_appears_in_the_scope_later() -> None:
    """A branch looks up a missing variable of the scope again in the next run."""
    x = data("x", [1])
    memory = main().global_block().create_var(name="memory", dtype="float32", shape=[1], persistable=True)
    zero = layers.fill_constant([1], "float32", 0.0)
    switch = layers.Switch()
    with switch:
        with switch.case(layers.less_than(x, zero)):
            layers.assign(memory + x, memory)
        with switch.default():
            layers.assign(x, memory)
    exe = Executor()
    assert exe.run(main(), {"x": [5.0]}, [memory])[0] == 5
    assert exe.run(main(), {"x": [-2.0]}, [memory])[0] == 3
    assert exe.run(main(), {"x": [-2.0]}, [memory])[0] == 1


def test_values_set_between_runs_are_seen() -> None:
    y = layers.fc(data(), 1, param_attr=fluid.ParamAttr(name="w"), bias_attr=False)
    exe = Executor()
    exe.run(startup())
    tensor = fluid.global_scope().find_var("w").get_tensor()
    for value in (np.ones((3, 1), "float32"), np.full((3, 1), 2, "float32"), np.asfortranarray(np.ones((3, 1), "float32"))):
        tensor.set(value, CPUPlace())
        assert np.array_equal(exe.run(main(), {"x": X}, [y])[0], X @ value)
    tensor.array[...] = 3  # in place, unnoticed by the scope
    assert np.array_equal(exe.run(main(), {"x": X}, [y])[0], X @ np.full((3, 1), 3, "float32"))
    tensor.set(np.ones((3, 2), "float32"))  # another shape: another plan
    assert exe.run(main(), {"x": X}, [y])[0].shape == (2, 2)


def test_arrays_that_cannot_be_written_to_are_copied() -> None:
    c = counter()
    layers.increment(c, 1.0)
    frozen = np.ones(1, "float32")
    frozen.flags.writeable = False
    fluid.global_scope().var("counter").get_tensor().array = frozen
    exe = Executor()
    assert exe.run(main(), fetch_list=[c])[0] == 2
    assert exe.run(main(), fetch_list=[c])[0] == 3
    assert frozen == 1


def test_two_executors_and_two_programs_on_one_scope() -> None:
    c = counter()
    layers.increment(c, 1.0)
    other = Program()
    with program_guard(other):
        twin = counter()
        doubled = layers.scale(twin, 2.0)
        layers.assign(doubled, twin)
    first, second = Executor(), Executor()
    first.run(startup())
    assert first.run(main(), fetch_list=[c])[0] == 2
    assert second.run(other, fetch_list=[twin])[0] == 4
    assert second.run(main(), fetch_list=[c])[0] == 5
    assert first.run(other, fetch_list=[twin])[0] == 10
    assert first.run(main(), fetch_list=[c])[0] == 11
    assert first.interpret(main(), fetch_list=[c])[0] == 12
    assert second.run(main(), fetch_list=[c])[0] == 13


def test_programs_run_in_the_scope_that_is_given() -> None:
    c = counter()
    layers.increment(c, 1.0)
    exe, scopes = Executor(), [Scope(), Scope()]
    for scope in scopes:
        exe.run(startup(), scope=scope)
    exe.run(main(), scope=scopes[0])
    with fluid.scope_guard(scopes[1]):
        assert exe.run(main(), fetch_list=[c])[0] == 2
    assert exe.run(main(), fetch_list=[c], scope=scopes[0])[0] == 3
    assert fluid.global_scope().find_var("counter") is None


def test_child_scopes_share_what_their_parent_holds() -> None:
    c = counter()
    layers.increment(c, 1.0)
    parent = Scope()
    exe = Executor()
    exe.run(startup(), scope=parent)
    kids = [parent.new_scope(), parent.new_scope()]
    assert exe.run(main(), fetch_list=[c], scope=kids[0])[0] == 2
    assert exe.run(main(), fetch_list=[c], scope=kids[1])[0] == 3
    kids[0].var("counter").get_tensor().set(np.array([10], "float32"))  # a value of its own from here on
    assert exe.run(main(), fetch_list=[c], scope=kids[0])[0] == 11
    assert exe.run(main(), fetch_list=[c], scope=kids[1])[0] == 4
    assert exe.run(main(), fetch_list=[c], scope=parent)[0] == 5


def test_temporary_variables_do_not_reach_the_scope() -> None:
    y = data() * 2.0
    counter()
    exe = Executor()
    exe.run(startup())
    exe.run(main(), {"x": X}, [y])
    assert fluid.global_scope().local_var_names() == ["counter"]


# ------------------------------------------------------------------------------------------------------------- pruning
def test_ops_that_nothing_needs_are_not_run() -> None:
    x = data()
    y, _ = x * 2.0, layers.reshape(x, [7, -1])  # the latter would fail
    c = counter()
    layers.increment(c, 1.0)
    exe = Executor()
    exe.run(startup())
    plan = exe.plan(main(), {"x": X}, [y])
    assert [instruction.op.type for instruction in plan.instructions] == ["scale", "increment"]
    exe.run(main(), {"x": X}, [y])
    exe.interpret(main(), {"x": X}, [y])
    exe.run(main())
    assert fluid.global_scope().find_var("counter").get_tensor().array == 4


@pytest.mark.numpy_alone
def test_overwritten_values_are_needed_only_if_read() -> None:
    x = data()
    y = x * 2.0
    layers.assign(x * 5.0, y)
    layers.assign(x * 3.0, y)
    plan = Executor().plan(main(), {"x": X}, [y])
    assert [instruction.op.type for instruction in plan.instructions] == ["scale", "assign"]
    assert np.array_equal(Executor().run(main(), {"x": X}, [y])[0], X * 3)


def test_loops_are_kept_whole() -> None:
    """An op in a block is needed if a later trip reads what it writes."""
    a, b = data("a", [1]), data("b", [1])
    i = layers.fill_constant([1], "int64", 0)
    n = layers.fill_constant([1], "int64", 3)
    found = layers.while_loop(lambda i, a, b: layers.less_than(i, n), lambda i, a, b: [i + 1, b, a], [i, a, b])
    for run in (Executor().run, Executor().interpret):
        assert run(main(), {"a": [1.0], "b": [2.0]}, [found[1]])[0] == 2
        assert run(main(), {"a": [1.0], "b": [2.0]}, [found[2]])[0] == 1


# --------------------------------------------------------------------------------------------------------------- errors
def test_failures_name_op_inputs_and_line() -> None:
    table = layers.create_parameter([4, 2], "float32", name="table")
    rows = layers.gather(table, data("ids", [-1], "int64"))
    at = line_here() - 1
    exe = Executor()
    exe.run(startup())
    for run in (exe.run, exe.interpret):
        with pytest.raises(ExecutionError) as caught:
            run(main(), {"ids": np.array([1, 9])}, [rows])
        text = str(caught.value)
        assert text.startswith("gather failed: ")
        assert f"made at: {__file__}:{at} in test_failures_name_op_inputs_and_line" in text
        assert "table is float32[4, 2]" in text and "ids is int64[2]" in text
        assert len(text.splitlines()) < 8
    # and the next run is none the worse for it
    assert exe.run(main(), {"ids": np.array([1, 3])}, [rows])[0].shape == (2, 2)


def test_failures_inside_loops_name_the_op_inside() -> None:
    table = layers.create_parameter([4, 2], "float32", name="table")
    i = layers.fill_constant([1], "int64", 3)
    n = layers.fill_constant([1], "int64", 9)
    total = layers.fill_constant([1, 2], "float32", 0.0)

    def body(i: Variable, total: Variable) -> list[Variable]:
        return [i + 1, total + layers.gather(table, i)]

    found = layers.while_loop(lambda i, total: layers.less_than(i, n), body, [i, total])
    exe = Executor()
    exe.run(startup())
    for run in (exe.run, exe.interpret):
        with pytest.raises(ExecutionError) as caught:
            run(main(), {}, [found[1]])
        text = str(caught.value)
        assert text.startswith("gather failed: ") and text.count("failed") == 1
        assert f"made at: {__file__}:" in text and "in body" in text


def test_shapes_that_only_feeding_shows_to_be_wrong() -> None:
    x, y = data("x", [-1, 3]), data("y", [-1, 3])
    z = x + y
    at = line_here() - 1
    for run in (Executor().run, Executor().interpret):
        with pytest.raises(ExecutionError, match=r"shapes \[2, 3\] and \[4, 3\]") as caught:
            run(main(), {"x": X, "y": np.zeros((4, 3), "float32")}, [z])
        assert f"{__file__}:{at}" in str(caught.value)


def test_ops_that_nobody_has_defined() -> None:
    block = main().global_block()
    out = block.create_var(name="out", shape=[2, 3], dtype="float32")
    block.append_op("frobnicate", {"X": data()}, {"Out": out})
    for run in (Executor().run, Executor().interpret):
        with pytest.raises(ExecutionError, match="the op frobnicate is not known here, so it cannot run"):
            run(main(), {"x": X}, [out])


def test_a_transposed_feed_gives_the_same_bits() -> None:
    x = fluid.data("x", [None, 5, 6, 4], "float64")
    out = layers.pool2d(x, pool_type="avg", global_pooling=True, data_format="NHWC")
    feed = {"x": np.random.default_rng(0).normal(size=(2, 4, 5, 6)).transpose(0, 2, 3, 1)}
    executor = Executor()
    assert np.array_equal(executor.run(feed=feed, fetch_list=[out])[0], executor.interpret(feed=feed, fetch_list=[out])[0])


def test_what_is_no_program() -> None:
    with pytest.raises(ExecutionError, match="an Executor runs a Program, not str"):
        Executor().run("main")  # type: ignore[arg-type]
    with pytest.raises(ExecutionError, match=r"an Executor runs at a place, .*, not 3"):
        Executor(3)  # type: ignore[arg-type]


def test_check_nan_names_op_variable_and_line() -> None:
    x = data()
    y = layers.log(x)
    at = line_here() - 1
    z = layers.mean(y)
    exe = Executor()
    feed = {"x": np.array([[1, 2, -3], [1, -2, -3]], "float32")}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # numpy's warnings name no op, and are kept quiet
        assert np.isnan(exe.run(main(), feed, [z])[0]).all()
    with pytest.raises(ExecutionError) as caught:
        exe.run(main(), feed, [z], check_nan=True)
    text = str(caught.value)
    assert text.startswith(f"log makes NaN in {y.name} (3 of 6 elements)") and f"made at: {__file__}:{at}" in text
    with pytest.raises(ExecutionError, match="log makes infinity in"):
        exe.run(main(), {"x": np.zeros((1, 3), "float32")}, [z], check_nan=True)
    with pytest.raises(ExecutionError, match=r"(?s)log makes NaN in .*fed: x, which holds NaN \(1 of 3 elements\)"):
        exe.run(main(), {"x": np.array([[1, np.nan, 2]], "float32")}, [z], check_nan=True)
    assert exe.run(main(), {"x": X + 1}, [z], check_nan=True)[0] == exe.run(main(), {"x": X + 1}, [z])[0]


def test_check_nan_inside_loops() -> None:
    x = data("x", [1])
    limit = layers.fill_constant([1], "float32", 10.0)
    (found,) = layers.while_loop(lambda v: layers.less_than(v, limit), lambda v: [layers.sqrt(v) + 20.0], [x])
    with pytest.raises(ExecutionError) as caught:
        Executor().run(main(), {"x": [-1.0]}, [found], check_nan=True)
    text = str(caught.value)
    assert text.startswith("sqrt makes NaN in ") and text.count("made at:") == 1
    assert Executor().run(main(), {"x": [4.0]}, [found], check_nan=True)[0] == 22


def test_check_nan_passes_over_integers_and_arrays_of_tensors() -> None:
    ids = data("ids", [1], "int64")
    array = layers.array_write(ids, ids)
    assert Executor().run(main(), {"ids": [0]}, [layers.array_read(array, ids)], check_nan=True)[0] == 0


# ------------------------------------------------------------------------------------------------------- plans that stay
def test_plans_are_kept_by_program_version_and_feed_shapes() -> None:
    x = data()
    y = x * 2.0
    exe = Executor()

    def plan(rows: int, fetch: Any = y) -> Any:
        return exe.plan(main(), {"x": np.zeros((rows, 3), "float32")}, [fetch])

    first = plan(2)
    assert plan(2) is first
    assert plan(3) is not first and plan(2, x) is not first
    assert plan(2) is first
    z = layers.relu(y)  # the program changes
    assert plan(2) is not first
    assert np.array_equal(exe.run(main(), {"x": X - 1}, [z])[0], np.maximum((X - 1) * 2, 0))
    main().global_block().ops[0].set_attr("scale", 3.0)
    assert np.array_equal(exe.run(main(), {"x": X}, [y])[0], X * 3)
    exe.close()
    assert np.array_equal(exe.run(main(), {"x": X}, [y])[0], X * 3)


def test_a_run_like_the_last_one_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of arrays of the same types and shapes, in the same scope, with the same fetches."""
    w = layers.create_parameter([3], "float32", "w")
    y, total = data() * w, layers.reduce_sum(w)
    exe, scope = Executor(), Scope()
    exe.run(startup(), scope=scope)
    scope.var("w").get_tensor().set(np.ones(3, "float32"))
    exe.run(main(), {"x": X}, [y], scope=scope)
    exe.run(main(), {"x": X}, [total, y.name], scope=scope)
    exe.run(main(), {"x": X}, [y], scope=scope)
    monkeypatch.setattr(feeding, "checked_feeds", lambda *_: pytest.fail("checked"))
    for number in range(3):
        assert np.array_equal(exe.run(main(), {"x": X + number}, [y], scope=scope)[0], X + number)
        assert np.array_equal(exe.run(main(), {"x": X + number}, (total, y), scope=scope)[1], X + number)
    exe.close()
    with pytest.raises(pytest.fail.Exception, match="checked"):
        exe.run(main(), {"x": X}, [y], scope=scope)


def test_a_run_unlike_the_last_one_is_checked() -> None:
    x, free = data(), layers.data("free", [3])
    w = layers.create_parameter([3], "float32", "w")
    y = (x + free) * w
    exe, scope, other = Executor(), Scope(), Scope()
    feed = {"x": X, "free": X}

    def ran(feed: Any, scope: Scope = scope, program: Any = None, fetches: Any = (y,)) -> Any:
        return exe.run(program or main(), feed, list(fetches), scope=scope)[0]

    for place, value in ((scope, 1.0), (other, 2.0)):
        exe.run(startup(), scope=place)
        place.var("w").get_tensor().set(np.full(3, value, "float32"))
    with Checks() as check:
        for what, wrong, message in (
            ("another type", {"x": X.astype("float64"), "free": X}, "float64"),
            ("another rank", {"x": X.reshape(1, 2, 3), "free": X}, "declared"),
            ("one less", {"x": X}, "free"),
            ("another name", {"x": X, "fre": X}, "no such variable"),
            ("no dict", [feed, feed], "one device"),
            ("integers", {"x": X, "free": np.ones((2, 3), "int64")}, "int64"),
            ("another byte order", {"x": X.byteswap().view(X.dtype.newbyteorder()), "free": X}, "convert it"),
        ):
            ran(feed)
            with check(what), pytest.raises(ExecutionError, match=message):
                ran(wrong)
        for what, right, expected in (
            ("more rows", {"x": np.vstack([X, X]), "free": np.vstack([X, X])}, np.vstack([2 * X, 2 * X])),
            ("another order", {"free": X, "x": X + 1}, 2 * X + 1),
            ("lists", {"x": X.tolist(), "free": X}, 2 * X),
            ("by variable", {x: X, "free": X}, 2 * X),
        ):
            ran(feed)
            with check(what):
                assert np.array_equal(ran(right), expected)
        ran(feed)
        with check("another scope"):
            assert np.array_equal(ran(feed, other), 4 * X)
        with check("a parameter is given other values"):
            scope.var("w").get_tensor().set(np.full(3, 3.0, "float32"))
            assert np.array_equal(ran(feed), 6 * X)
        with check("a fetch that is none"), pytest.raises(FeedError, match="neither a Variable nor a name"):
            ran(feed, fetches=[SimpleNamespace(name=y.name)])
        with check("a variable that is held to its shape from now on"):
            ran({"x": X, "free": X[0]})
            free.need_check_feed = True
            with pytest.raises(FeedError, match="declared"):
                ran({"x": X, "free": X[0]})
        ran(feed)
        with check("a changed program"):
            main().global_block().append_op("scale", {"X": y}, {"Out": y}, {"scale": 10.0})
            assert np.array_equal(ran(feed), 60 * X)


def test_only_so_many_plans_are_kept() -> None:
    y = data() * 2.0
    exe = Executor()
    for rows in range(1, OP_LIMIT + 10):
        assert exe.run(main(), {"x": np.ones((rows, 3), "float32")}, [y])[0].sum() == rows * 6
    assert len(exe._plans) == OP_LIMIT


def test_scopes_share_plans_and_are_not_kept_alive() -> None:
    x = data()
    loss = layers.mean(layers.fc(x, 2))
    fluid.optimizer.Adam(0.1).minimize(loss)
    exe = Executor()

    def train(scope: Scope) -> Any:
        exe.run(startup(), scope=scope)
        for _ in range(2):
            exe.run(main(), {"x": X}, [loss], scope=scope)
        return exe.plan(main(), {"x": X}, [loss], scope)

    scopes = [Scope(), Scope()]
    plans = [train(scope) for scope in scopes]
    assert plans[0] is plans[1]
    array = weakref.ref(scopes[0].array("fc_0.w_0"))
    scopes.clear()
    gc.collect()
    assert array() is None


@pytest.mark.numpy_alone
@each("order", [range(1, 9), range(8, 0, -1)])
def test_plans_of_one_scope_share_their_memory(order: Any) -> None:
    y = layers.fc(layers.tanh(layers.fc(data(), 64)), 64)
    exe, scope = Executor(), fluid.global_scope()
    exe.run(startup())
    feeds = [{"x": np.full((1000 * rows, 3), rows, "float32")} for rows in order]
    for feed in feeds * 2:
        assert np.array_equal(exe.run(main(), feed, [y])[0], exe.interpret(main(), feed, [y])[0])
    bound: list[Any] = [exe._bound(Request(main(), feed, [y.name], scope)) for feed in feeds]
    assert all(plan.arena is bound[0].arena for plan in bound)
    assert bound[0].arena.nbytes == max(plan.plan.arena_bytes for plan in bound)


def test_a_closed_executor_keeps_no_memory() -> None:
    y = layers.tanh(layers.fc(data(), 64))
    exe, scope = Executor(), fluid.global_scope()
    exe.run(startup())
    exe.run(main(), {"x": X}, [y])
    bound: Any = exe._bound(Request(main(), {"x": X}, [y.name], scope))
    memory = weakref.ref(bound._memory)
    del bound
    exe.close()
    gc.collect()
    assert memory() is None


def test_a_plan_is_not_shared_with_a_scope_that_holds_other_shapes() -> None:
    y = data() + main().global_block().create_var(name="w", shape=[-1, 3], dtype="float32", persistable=True)
    exe = Executor()
    for rows in (1, 2, 1):
        scope = Scope()
        scope.var("w").get_tensor().set(np.ones((rows, 3), "float32"))
        assert np.array_equal(exe.run(main(), {"x": X}, [y], scope=scope)[0], X + 1)
        with pytest.raises(FeedError, match=r"w .* is read but has no value"):
            exe.run(main(), {"x": X}, [y], scope=Scope())


def cannot_be_bound(monkeypatch: pytest.MonkeyPatch, op_type: str) -> None:
    """Let the kernel of an op fail while it prepares its calls."""

    def fail(*_: Any, **__: Any) -> Any:
        raise ValueError("no room on the device")

    monkeypatch.setitem(KERNELS, op_type, dataclasses.replace(KERNELS[op_type], fn=fail, is_prepared=True))


@pytest.mark.numpy_alone
def test_what_could_not_be_bound_fails_again(monkeypatch: pytest.MonkeyPatch) -> None:
    y = layers.relu(layers.tanh(data()))
    exe = Executor()
    with monkeypatch.context() as patch:
        cannot_be_bound(patch, "relu")
        for _ in range(2):
            with pytest.raises(ExecutionError, match="relu failed: no room on the device"):
                exe.run(main(), {"x": X}, [y])
    assert np.array_equal(exe.run(main(), {"x": X}, [y])[0], np.maximum(np.tanh(X), 0))


def test_a_run_that_fails_leaves_no_variable_that_it_did_not_make() -> None:
    counter(value=np.inf)
    layers.fc(data(), 2)
    exe, scope = Executor(), fluid.global_scope()
    for _ in range(2):
        with pytest.raises(ExecutionError, match="fill_constant makes infinity in counter"):
            exe.run(startup(), check_nan=True)
        assert scope.array("fc_0.w_0") is None
    exe.run(startup())
    assert scope.array("fc_0.w_0").shape == (3, 2)


def test_what_cannot_be_bound_leaves_the_scope_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    layers.fc(data(), 2)
    cannot_be_bound(monkeypatch, "uniform_random")
    with pytest.raises(ExecutionError, match="uniform_random failed: no room on the device"):
        Executor().run(startup())
    assert fluid.global_scope().array("fc_0.w_0") is None


# --------------------------------------------------------------------------------------------------------------- places
def test_cuda_place_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)  # as if it were not installed
    with pytest.raises(ExecutionError, match=r"CUDAPlace needs cupy, which is not installed: pip install \"\.\[cupy\]\""):
        Executor(CUDAPlace(0))
    assert fluid.is_compiled_with_cuda() is False


def test_places_that_are_the_processor() -> None:
    assert CPUPlace() == CPUPlace() and CPUPlace() != CUDAPlace(0) and CUDAPlace(1) != CUDAPlace(0)
    y = data() * 2.0
    for place in (None, CPUPlace(), CUDAPinnedPlace()):
        assert np.array_equal(Executor(place).run(main(), {"x": X}, [y])[0], X * 2)


# ------------------------------------------------------------------------------------------------------ whole programs
def test_feed_and_fetch_ops_of_inference_programs() -> None:
    """Saved models begin with feed ops and end with fetch ops; they mark where, and compute nothing."""
    x = data()
    y = x * 2.0
    block = main().global_block()
    feed = block.create_var(name="feed", type=VarType.FEED_MINIBATCH, persistable=True)
    fetch = block.create_var(name="fetch", type=VarType.FETCH_LIST, persistable=True)
    block.prepend_op("feed", inputs={"X": feed}, outputs={"Out": x}, attrs={"col": 0})
    block.append_op("fetch", {"X": y}, {"Out": fetch}, {"col": 0})
    for run in (Executor().run, Executor().interpret):
        assert np.array_equal(run(main(), {"x": X}, [y])[0], X * 2)


def training() -> tuple[Variable, Variable, Any]:
    x, label = data("x", [-1, 4]), data("label", [-1, 1], "int64")
    hidden = layers.dropout(layers.batch_norm(layers.fc(x, 8, act="relu")), 0.5)
    logits = layers.fc(hidden, 3)
    loss = layers.mean(layers.softmax_with_cross_entropy(logits, label))
    return (
        logits,
        loss,
        {"x": np.random.default_rng(0).standard_normal((5, 4)).astype("float32"), "label": [[0], [1], [2], [0], [1]]},
    )


def test_clones_for_test_do_not_depend_on_when_they_are_made() -> None:
    logits, loss, feed = training()
    before = main().clone(for_test=True)
    fluid.backward.append_backward(loss)
    between = main().clone(for_test=True)
    fluid.optimizer.Adam(0.1).minimize(loss)
    after = main().clone(for_test=True)
    assert before.to_string() == between.to_string() == after.to_string()
    assert before.serialize_to_string() == after.serialize_to_string()
    exe = Executor()
    exe.run(startup())
    for _ in range(2):
        exe.run(main(), feed, [loss])
    values = [exe.run(program, feed, [logits, loss]) for program in (before, after, after)]
    for other in values[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(values[0], other, strict=True))


def test_test_mode_changes_nothing_in_the_scope() -> None:
    logits, loss, feed = training()
    test = main().clone(for_test=True)
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    exe, scope = Executor(), fluid.global_scope()
    exe.run(startup())
    exe.run(main(), feed, [loss])
    names = scope.local_var_names()
    before = {name: np.array(scope.find_var(name).get_tensor()) for name in names}
    exe.run(test, feed, [logits])
    assert scope.local_var_names() == names
    assert all(np.array_equal(before[name], scope.find_var(name).get_tensor()) for name in names)


@pytest.mark.numpy_alone
def test_run_and_interpret_train_alike() -> None:
    startup().random_seed = main().random_seed = 7
    _, loss, feed = training()
    fluid.optimizer.Adam(0.05).minimize(loss)
    exe, scopes, losses = Executor(), [Scope(), Scope()], [[], []]  # type: ignore[var-annotated]
    for scope, run, found in zip(scopes, (exe.run, exe.interpret), losses, strict=True):
        exe.run(startup(), scope=scope)
        for _ in range(5):
            found.append(run(main(), feed, [loss], scope=scope)[0].tobytes())
    assert losses[0] == losses[1]
    for name in scopes[0].local_var_names():
        assert np.array_equal(scopes[0].array(name), scopes[1].array(name)), name


def test_errors_say_nothing_of_this_package() -> None:
    """The line that an error names is the user's, never one of Fluid's own."""
    y = layers.fc(data(), 2)
    with pytest.raises(FeedError) as caught:
        Executor().run(main(), {"x": X}, [y])
    (where,) = re.findall(r"made at: (.*):\d+ in ", str(caught.value))
    assert where == __file__

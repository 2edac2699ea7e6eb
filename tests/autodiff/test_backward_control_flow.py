"""Backward through loops, branches, arrays and recurrences: the printed program, and central differences."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from checks import each
from control_flow_programs import BUILDERS, branch, integer, repeat, total
from differentiation import Case, new_case

import fluid
from fluid import layers
from fluid.backward import append_backward
from fluid.errors import BackwardError, ExecutionError, FluidTypeError, InferenceError
from fluid.ir.program import Variable
from fluid.values.types import VarType


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    with new_case(request.node.name) as made:
        yield made


@each("name", BUILDERS)
def test_first_order(case: Case, name: str) -> None:
    """The gradients of each program of `control_flow_programs`."""
    case.name = name
    target, inputs = BUILDERS[name](case)
    case.gradients(target, inputs)
    case.golden()


@each("name", ["parameter_inside_a_loop", "parameter_in_different_blocks", "cond_true", "rnn_of_layers"])
def test_append_backward(name: str) -> None:
    """Parameters get their gradients from inside loops, branches and recurrences."""
    with new_case(f"append_backward_{name}") as case:
        target, _ = BUILDERS[name](case)
        found = case.append_backward(target)
        assert list(found) == [parameter.name for parameter in case.program.all_parameters()]
        case.golden()


# ---------------------------------------------------------------------------------------------------- what is not done
def test_loop_that_the_loss_does_not_use(case: Case) -> None:
    x, w = case.data("x"), case.parameter("w")
    h, other = layers.tanh(x * w), layers.exp(x)
    repeat(2, lambda i: layers.assign(layers.tanh(other * w), other))
    case.append_backward(total(h))
    assert not case.ops("while_grad")
    case.golden()


def test_loop_that_carries_nothing_wanted(case: Case) -> None:
    """The loss needs the result of the loop, but that does not depend on wanted variables."""
    x, w = case.data("x"), case.parameter("w")
    x.stop_gradient = True
    h = layers.exp(x)
    repeat(2, lambda i: layers.assign(layers.tanh(h), h))
    case.append_backward(total(h * w))
    assert not case.ops("while_grad")
    case.golden()


def test_loop_of_two_variables_of_which_one_is_used(case: Case) -> None:
    """There are gradient ops for the one that the loss needs only."""
    x, w = case.data("x"), case.parameter("w")
    used, unused = layers.tanh(x * w), layers.exp(x * w)

    def body(i: Variable) -> None:
        layers.assign(layers.tanh(used * w), used)
        layers.assign(layers.sigmoid(unused * used), unused)

    repeat(2, body)
    total(unused)
    case.append_backward(total(used))
    assert not case.ops("sigmoid_grad") and not case.ops("exp_grad")
    case.golden()


# ---------------------------------------------------------------------------------------------------------- what is cut
def test_stop_gradient_of_a_carried_variable(case: Case) -> None:
    x, w = case.data("x"), case.parameter("w")
    h, steps = layers.tanh(x * w), layers.exp(x)
    steps.stop_gradient = True

    def body(i: Variable) -> None:
        layers.assign(layers.tanh(h * steps), h)
        layers.assign(steps * 0.5, steps)

    repeat(2, body)
    case.gradients(total(h), w)
    assert not case.ops("exp_grad")
    case.golden()


def loop_with_local(case: Case) -> tuple[Variable, Variable, Variable]:
    """(x, a variable local to a loop, the sum of the result); the gradient along the local one is to be cut."""
    x, one = case.data("x"), case.data("one", [1], [1.0])
    one.stop_gradient = True
    h, found = layers.tanh(x), []

    def body(i: Variable) -> None:
        found.append(layers.exp(x * one))
        layers.assign(layers.tanh(h * found[0]), h)

    repeat(2, body)
    return x, found[0], total(h)


@each("how", ["stop_gradient", "no_grad_set", "no_grad_set by name"])
def test_gradient_cut_inside_a_loop(case: Case, how: str) -> None:
    """No gradient flows along `found`; compared with a program that computes it from other values."""
    case.name = "gradient_cut_inside_a_loop"
    x, local, target = loop_with_local(case)
    if how == "stop_gradient":
        local.stop_gradient = True
    no_grad = {"no_grad_set": [local], "no_grad_set by name": [local.name]}.get(how)
    (grad,) = fluid.gradients(target, x, no_grad_set=no_grad)
    assert grad is not None and not case.ops("exp_grad")
    case.golden(case.program.to_string().replace(f"{local.name}: float64[2, 3] stop_gradient", f"{local.name}: float64[2, 3]"))
    value = case.run([grad])[grad.name]

    h = np.tanh(case.values["x"])
    factor, slope = np.exp(case.values["x"]), 1 - h * h
    for _ in range(2):
        h = np.tanh(h * factor)
        slope = (1 - h * h) * factor * slope
    np.testing.assert_allclose(value, slope, rtol=1e-12)


@each("op_type", ["clip_by_norm", "never_defined"])
def test_op_without_gradient_inside_a_loop(case: Case, op_type: str) -> None:
    x, w = case.data("x"), case.parameter("w")
    h, lines = layers.tanh(x * w), []

    def body(i: Variable) -> None:
        block = case.program.current_block()
        out = block.create_var(name="odd", shape=[2, 3], dtype="float64")
        attrs = {"max_norm": 1.0} if op_type == "clip_by_norm" else {}
        lines.append(inspect.currentframe().f_lineno + 1)  # type: ignore[union-attr]
        block.append_op(op_type, {"X": h}, {"Out": out}, attrs)
        layers.assign(out, h)

    repeat(2, body)
    with pytest.raises(BackwardError) as error:
        append_backward(total(h))
    message = str(error.value)
    assert f"the op {op_type} is" in message and "and the gradient would flow through it; set stop_gradient on odd" in message
    assert f"test_backward_control_flow.py:{lines[0]} in body" in message


def test_op_without_gradient_off_the_path_inside_a_loop(case: Case) -> None:
    x, w = case.data("x"), case.parameter("w")
    h, seen = layers.tanh(x * w), layers.create_tensor("float64", name="seen")

    def body(i: Variable) -> None:
        case.program.current_block().append_op("clip_by_norm", {"X": h}, {"Out": seen}, {"max_norm": 1.0})
        layers.assign(layers.tanh(h * w), h)

    repeat(2, body)
    case.append_backward(total(h))
    case.golden()


# ----------------------------------------------------------------------------------------------- arrays made one tensor
def entries_of(*entries: Variable) -> Variable:
    array = layers.create_array(entries[0].dtype)
    for position, entry in enumerate(entries):
        layers.array_write(entry, layers.fill_constant([1], "int64", position), array)
    return array


@each(("axis", "use_stack"), [(0, False), (1, False), (-1, False), (0, True), (1, True), (2, True), (-1, True), (-2, True)])
def test_tensor_array_to_tensor(case: Case, axis: int, use_stack: bool) -> None:
    """Its value, and its gradients of three orders."""
    x, y, w = case.data("x"), case.data("y"), case.data("w", [6, 2] if axis in (1, -1) and not use_stack else [12])
    array = entries_of(layers.tanh(x), x * y)
    out, sizes = layers.tensor_array_to_tensor(array, axis, use_stack=use_stack)
    assert sizes.dtype is VarType.INT32 and sizes.stop_gradient
    found = case.run([out, sizes])
    parts = [np.tanh(case.values["x"]), case.values["x"] * case.values["y"]]
    expected = np.stack(parts, axis) if use_stack else np.concatenate(parts, axis)
    np.testing.assert_array_equal(found[out.name], expected)
    assert [extent in (-1, real) for extent, real in zip(out.shape, expected.shape, strict=True)] == [True] * expected.ndim
    np.testing.assert_array_equal(found[sizes.name], [(*x.shape, 1)[axis % expected.ndim]] * 2)
    weighted = layers.square(layers.reshape(out, w.shape)) * w
    first = case.gradients(weighted, [x, y])
    assert case.ops("tensor_array_to_tensor_grad")
    second = case.gradients([first[0] * y, first[1] * x], [x, y, w])
    assert case.ops("split_array") and case.ops("join_array")
    case.gradients(second[0], [x, y])


def test_entries_of_several_sizes_from_a_loop(case: Case) -> None:
    """A loop writes entries, one of them longer, which are concatenated; the gradient goes through the loop."""
    x, w = case.data("x"), case.parameter("w")
    h, array = layers.tanh(x * w), layers.create_array("float64")

    def body(i: Variable) -> None:
        layers.assign(layers.tanh(h * w), h)
        layers.array_write(h, i, array)

    repeat(2, body)
    layers.array_write(layers.concat([h, x], axis=0), layers.fill_constant([1], "int64", 2), array)
    out, sizes = layers.tensor_array_to_tensor(array, axis=0)
    np.testing.assert_array_equal(case.run([sizes])[sizes.name], [2, 2, 4])
    (dx,) = case.gradients(layers.square(out), [x])
    case.gradients(dx, [x])


def test_arrays_that_cannot_be_one_tensor(case: Case) -> None:
    x, y = case.data("x"), case.data("y", [2, 2])
    with pytest.raises(FluidTypeError, match="tensor_array_to_tensor: input should be an array of tensors"):
        layers.tensor_array_to_tensor(x)
    with pytest.raises(InferenceError, match="axis 2 does not fit entries of 2 dimensions that are concatenated"):
        layers.tensor_array_to_tensor(entries_of(x), axis=2)
    out, _ = layers.tensor_array_to_tensor(entries_of(x, y), axis=0)
    with pytest.raises(ExecutionError, match=r"of shapes \[2, 3\], \[2, 2\], do not fit together"):
        case.run([out])
    gap = layers.create_array("float64")
    layers.array_write(x, layers.fill_constant([1], "int64", 2), gap)
    out, _ = layers.tensor_array_to_tensor(gap)
    with pytest.raises(ExecutionError, match="has no entry 0, 1, of 3, so it cannot be made one tensor"):
        case.run([out])


# ------------------------------------------------------------------------------------------------------- several losses
@each("order", [(0, 1), (1, 0)], ids=["first_then_second", "second_then_first"])
def test_two_losses_through_one_loop(case: Case, order: tuple[int, int]) -> None:
    x, w = case.data("x"), case.parameter("w")
    h, g = layers.tanh(x * w), layers.exp(x * w)

    def body(i: Variable) -> None:
        layers.assign(layers.tanh(h * w), h)
        layers.assign(layers.sigmoid(g * h), g)

    repeat(2, body)
    losses = total(h), total(g * w)
    found = {number: case.append_backward(losses[number]) for number in order}
    assert found[0]["w"].name != found[1]["w"].name
    case.golden()


def test_gradient_with_respect_to_what_a_loop_leaves(case: Case) -> None:
    """The target of a gradient may be a result of one loop, which another takes."""
    x = case.data("x")
    h = layers.tanh(x)
    repeat(2, lambda i: layers.assign(layers.tanh(h * x), h))
    between = layers.assign(h)
    g = layers.exp(between)
    repeat(2, lambda i: layers.assign(layers.tanh(g * between), g))
    case.gradients(total(g), [between, x])
    case.golden()


def test_weighted_results_of_a_loop(case: Case) -> None:
    """The loop's results are the targets themselves, with weights."""
    x, weight = case.data("x"), case.data("weight")
    h, g = layers.tanh(x), layers.exp(x)

    def body(i: Variable) -> None:
        layers.assign(layers.tanh(h * g), h)
        layers.assign(layers.sigmoid(g * x), g)

    repeat(2, body)
    case.gradients([h, g], x, [weight, None])
    case.golden()


def test_minimize_through_a_loop(case: Case) -> None:
    """The parameter that the loop reads is overwritten between the loop and a second loss's gradient."""
    x, w = case.data("x"), case.parameter("w")
    h = layers.tanh(x * w)
    repeat(2, lambda i: layers.assign(layers.tanh(h * w), h))
    first, second = total(h), total(layers.exp(h) * w)
    fluid.optimizer.SGD(0.1).minimize(first)
    case.append_backward(second)
    assert case.ops("while_grad")[-1].input("Saved") == ["w@SAVED"]
    case.golden()


# ---------------------------------------------------------------------------------------------------------- what it costs
def emitted(build: Callable[[int], Variable], length: int) -> int:
    """Backward ops of a program whose body has so many ops, in all blocks."""
    with new_case("emitted") as case:
        case.data("x")
        loss = build(length)
        before = sum(len(block.ops) for block in case.program.blocks)
        append_backward(loss)
        return sum(len(block.ops) for block in case.program.blocks) - before


def long_body(length: int) -> Variable:
    x = fluid.default_main_program().global_block().var("x")
    h = layers.tanh(x)

    def body(i: Variable) -> None:
        for _ in range(length):
            layers.assign(layers.tanh(h * x) + x, h)

    repeat(2, body)
    return total(h)


def many_branches(length: int) -> Variable:
    x = fluid.default_main_program().global_block().var("x")
    h = layers.tanh(x)
    for _ in range(length):
        branch(layers.less_than(integer(0), integer(1)), lambda: layers.assign(layers.tanh(h * x), h))
    return total(h)


@each("build", [long_body, many_branches])
def test_number_of_ops_is_linear(build: Callable[[int], Variable]) -> None:
    small, twice, large = (emitted(build, length) for length in (3, 6, 30))
    assert large - small == 9 * (twice - small) > 0


def test_a_loop_that_never_runs_leaves_zeros_of_the_shape_that_was_read():
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        x = fluid.data("x", [2, 3], dtype="float64")
        x.stop_gradient = False
        read = fluid.layers.scale(x, 2.0)
        total = fluid.layers.scale(x, 1.0)
        step = fluid.layers.fill_constant([1], "int64", 0)
        last = fluid.layers.fill_constant([1], "int64", 0)
        go = fluid.layers.less_than(step, last)
        loop = fluid.layers.While(go)
        with loop.block():
            fluid.layers.assign(fluid.layers.elementwise_mul(total, read), output=total)
            fluid.layers.increment(step)
            fluid.layers.less_than(step, last, cond=go)
        loss = fluid.layers.mean(total)
        fluid.layers.assign(fluid.layers.reduce_sum(read), output=read)  # another shape, later
    (gradient,) = fluid.gradients(loss, x)
    program.verify()
    (found,) = fluid.Executor().run(program, feed={"x": np.ones((2, 3))}, fetch_list=[gradient], scope=fluid.Scope())
    np.testing.assert_allclose(found, np.full((2, 3), 1 / 6))


def test_slices_of_a_sequence_that_is_overwritten_outside_the_branch(case: Case) -> None:
    """Inside the recurrence a slice has the name of the sequence, which is saved under another name, and is not that one."""
    x = case.data("x", [3, 2])
    sequence = layers.tanh(x)
    out = layers.scale(x, 0.5)

    def run() -> None:
        rnn = layers.StaticRNN()
        first = layers.reduce_sum(sequence, dim=0)
        with rnn.step():
            step, before = rnn.step_input(sequence), rnn.memory(init=first)
            after = layers.tanh(step * before)
            repeat(2, lambda i: layers.assign(layers.tanh(after * step), after))
            rnn.update_memory(before, after)
            rnn.step_output(after)
        layers.assign(rnn() * sequence, out)

    branch(layers.less_than(integer(0), integer(1)), run)
    layers.assign(layers.square(sequence), sequence)
    case.gradients(total(out * sequence), x)


@each("name", ["loop", "branch_taken", "rnn"])
def test_a_part_of_a_gradient_that_a_trip_does_not_leave_is_an_error(case: Case, name: str) -> None:
    """It must not pass for zero."""
    target, inputs = BUILDERS[name](case)
    (grad, *_) = case.gradients(target, inputs)
    assert grad is not None
    for op in [*case.ops("while_grad"), *case.ops("conditional_block_grad"), *case.ops("recurrent_grad")]:
        attr = "parameter_grads" if op.type == "recurrent_grad" else "input_grads"
        op.set_attr(attr, [name if name == "@EMPTY@" else f"{name}@GONE" for name in op.attr(attr)])
        block = op.sub_blocks[0]
        for name in op.attr(attr):
            if name != "@EMPTY@":
                block.create_var(name=name, dtype="float64", shape=[2, 3])
    with pytest.raises(ExecutionError, match=r"the gradient block leaves no \w+@GRAD@GONE"):
        case.run([grad])


def array_of_multiples(x):
    """An array of one, two and three times `x`."""
    array = layers.create_array("float32")
    for position in range(3):
        layers.array_write(x * (position + 1.0), layers.fill_constant([1], "int64", position), array)
    return array


@pytest.mark.parametrize("index", [0, 1, -1])
def test_what_is_popped_from_an_array_and_what_is_left_have_gradients(index):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [2])
        x.stop_gradient = False
        block = fluid.default_main_program().global_block()
        array = array_of_multiples(x)
        entry = block.create_var(name="entry", shape=[2], dtype="float32")
        block.append_op("pop_from_array", {"X": array}, {"Rest": array, "Out": entry}, {"index": index})
        left, _ = layers.tensor_array_to_tensor(array, axis=0, use_stack=True)
        filled = block.create_var(name="filled", type=array.type, dtype="float32")
        block.append_op("fill_array_like", {"X": array}, {"Out": filled}, {"value": 3.0})
        threes, _ = layers.tensor_array_to_tensor(filled, axis=0)
        loss = layers.reduce_sum(layers.square(entry)) + layers.reduce_sum(left * left * left)
        gradients = fluid.gradients(loss, x)
        assert [op.type for op in block.ops].count("insert_into_array") == 1
        found = fluid.Executor().run(feed={"x": np.float32([1, 2])}, fetch_list=[entry, left, threes, *gradients])
    factors = [1, 2, 3]
    taken = factors.pop(index)
    values = np.float32([1, 2])
    np.testing.assert_allclose(found[0], taken * values)
    np.testing.assert_allclose(found[1], np.outer(factors, values))
    np.testing.assert_array_equal(found[2], [3, 3, 3, 3])
    np.testing.assert_allclose(found[3], 2 * taken**2 * values + sum(3 * f**3 for f in factors) * values**2)


@pytest.mark.parametrize(("start", "end"), [(0, 2), (1, 100), (-2, 3), (2, 1)])
def test_slices_of_arrays_have_gradients(start, end):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [2])
        x.stop_gradient = False
        block = fluid.default_main_program().global_block()
        array = array_of_multiples(x)
        part = block.create_var(name="part", type=array.type, shape=[2], dtype="float32")
        last = block.create_var(name="last", shape=[2], dtype="float32")
        bounds = {"axes": [0], "starts": [start], "ends": [end]}
        block.append_op("slice", {"Input": array}, {"Out": part}, {**bounds, "decrease_axis": []})
        block.append_op(
            "slice", {"Input": array}, {"Out": last}, {"axes": [0], "starts": [-1], "ends": [9], "decrease_axis": [0]}
        )
        layers.array_write(x, layers.array_length(part), part)
        layers.array_write(x * 7.0, layers.array_length(array), array)  # bounds are those of the array as it was
        joined, _ = layers.tensor_array_to_tensor(part, axis=0, use_stack=True)
        loss = layers.reduce_sum(layers.square(joined)) + layers.reduce_sum(last)
        found = fluid.Executor().run(feed={"x": np.float32([1, 2])}, fetch_list=[joined, *fluid.gradients(loss, x)])
    factors, values = [*[1, 2, 3][start:end], 1], np.float32([1, 2])
    np.testing.assert_allclose(found[0], np.outer(factors, values))
    np.testing.assert_allclose(found[1], sum(2 * f * f for f in factors) * values + 3)


def test_an_entry_that_is_not_there_cannot_be_popped():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        block = fluid.default_main_program().global_block()
        array = layers.array_write(fluid.data("x", [2]), layers.fill_constant([1], "int64", 0))
        entry = block.create_var(name="entry", shape=[2], dtype="float32")
        block.append_op("pop_from_array", {"X": array}, {"Rest": array, "Out": entry}, {"index": 1})
        with pytest.raises(fluid.errors.ExecutionError, match=r"index 1 is not within the array .*, which has 1 entries"):
            fluid.Executor().run(feed={"x": np.float32([1, 2])}, fetch_list=[entry])


def cut(x: Variable) -> Variable:
    y = x * 2.0
    y.stop_gradient = True
    return y


@each(("second", "slope"), [(cut, 0.0), (layers.sign, 0.0), (lambda x: x * 3.0, 3.0)], ids=["cut", "sign", "times 3"])
def test_branches_that_cut_the_gradient_give_zeros(second: Callable[[Variable], Variable], slope: float) -> None:
    x, y, bound = fluid.data("x", [2]), fluid.data("y", [2]), fluid.data("bound", [1])
    for var in (x, y, bound):
        var.stop_gradient = False
    is_below = layers.less_than(layers.reduce_sum(x), bound)
    result = layers.cond(is_below, lambda: cut(x) + 1.0, lambda: second(x) * 2.0)
    of_x, of_y, of_bound = fluid.gradients(layers.mean(result), [x, y, bound])
    assert of_y is None and of_bound is None  # no branch reads them
    assert result.stop_gradient is False
    for limit, expected in ((5.0, 0.0), (-5.0, slope)):
        feed = {"x": np.ones(2, "float32"), "y": np.ones(2, "float32"), "bound": np.array([limit], "float32")}
        (found,) = fluid.Executor().run(feed=feed, fetch_list=[of_x])
        np.testing.assert_array_equal(found, np.full(2, expected, "float32"))


def test_a_value_that_is_cut_outside_of_branches_has_no_gradient() -> None:
    x = fluid.data("x", [2])
    x.stop_gradient = False
    assert fluid.gradients(layers.mean(cut(x) * 2.0), [x]) == [None]
    after = layers.cond(layers.less_than(layers.reduce_sum(x), layers.reduce_mean(x)), lambda: x * 2.0, lambda: x)
    assert fluid.gradients(layers.mean(cut(after)), [x]) == [None]

"""Backward through loops, branches, arrays and recurrences: the printed program, and central differences."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from control_flow_programs import BUILDERS, branch, integer, repeat, total
from differentiation import Case, new_case

import fluid
from fluid import layers
from fluid.backward import append_backward
from fluid.errors import BackwardError
from fluid.framework import Variable


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    with new_case(request.node.name) as made:
        yield made


@pytest.mark.parametrize("name", BUILDERS)
def test_first_order(case: Case, name: str) -> None:
    """Each of the small programs; see `control_flow_programs` for what they are."""
    case.name = name
    target, inputs = BUILDERS[name](case)
    case.gradients(target, inputs)
    case.golden()


@pytest.mark.parametrize("name", ["parameter_inside_a_loop", "parameter_in_different_blocks", "cond_true", "rnn_of_layers"])
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
    """The loss needs what the loop makes, but that depends on nothing wanted."""
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


@pytest.mark.parametrize("how", ["stop_gradient", "no_grad_set", "no_grad_set by name"])
def test_gradient_cut_inside_a_loop(case: Case, how: str) -> None:
    """No gradient flows along `found`; held against a program in which it is made of something else."""
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


@pytest.mark.parametrize("op_type", ["elementwise_mod", "never_defined"])
def test_op_without_gradient_inside_a_loop(case: Case, op_type: str) -> None:
    x, w = case.data("x"), case.parameter("w")
    h, lines = layers.tanh(x * w), []

    def body(i: Variable) -> None:
        block = case.program.current_block()
        out = block.create_var(name="odd", shape=[2, 3], dtype="float64")
        slots = {"X": h, "Y": w} if op_type == "elementwise_mod" else {"X": h}
        lines.append(inspect.currentframe().f_lineno + 1)  # type: ignore[union-attr]
        block.append_op(op_type, slots, {"Out": out})
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
        layers.assign(layers.elementwise_mod(h, w), seen)
        layers.assign(layers.tanh(h * w), h)

    repeat(2, body)
    case.append_backward(total(h))
    case.golden()


# ------------------------------------------------------------------------------------------------------- several losses
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first_then_second", "second_then_first"])
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
    assert "w@SAVED" in case.ops("while_grad")[-1].input("X")
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


@pytest.mark.parametrize("build", [long_body, many_branches])
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

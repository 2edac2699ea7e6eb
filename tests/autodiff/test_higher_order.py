"""Gradients of gradients, and of those: straight on, and through loops, branches and recurrences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from checks import each
from control_flow_programs import BUILDERS, total
from differentiation import Case, new_case

import fluid
from fluid import layers
from fluid.ir.program import Program, Variable

PRINTED_SECOND = (
    "loop",
    "parameter_inside_a_loop",
    "branch_taken",
    "branch_not_taken",
    "cond_true",
    "rnn",
    "array_written_in_a_loop",
)
PRINTED_THIRD = ("loop", "branch_taken")


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    with new_case(request.node.name) as made:
        yield made


def again(case: Case, grad: Variable | None, of: Variable, order: int) -> Variable | None:
    """The next order: the gradient of `grad`, with random weights so that no part of it cancels."""
    assert grad is not None
    return case.gradients(grad, of, case.data(f"weight{order}", case.shape_of(of)))[0]


# ------------------------------------------------------------------------------------------------------- straight on
def test_three_orders(case: Case) -> None:
    x = case.data("x")
    grad = case.gradients(layers.mean(layers.tanh(x * x)), x)[0]
    for order in (2, 3):
        grad = again(case, grad, x, order)
        case.name = f"three_orders_{order}"
        case.golden()


def test_mixed_orders(case: Case) -> None:
    """First by one variable, then by another, then by a parameter."""
    x, y, w = case.data("x", [2, 3]), case.data("y", [3]), case.parameter("w", [3, 2])
    hidden = layers.tanh(layers.matmul(layers.exp(x * y), w))
    (dx,) = case.gradients(total(hidden), x)
    (dy,) = case.gradients(dx, y)
    case.golden()
    assert dy is not None
    (dw,) = case.append_backward(total(dy * y), parameter_list=[w]).values()
    assert dw.shape == w.shape


def test_gradient_penalty(case: Case) -> None:
    """As in training: the loss holds the norm of a gradient, and an optimizer takes a step."""
    x = case.data("x", [4, 3])
    score = layers.fc(layers.fc(x, 5, act="tanh"), 1)
    (grad,) = case.gradients(score, x)
    assert grad is not None
    norm = layers.sqrt(layers.reduce_sum(layers.square(grad), dim=1))
    found = case.append_backward(layers.mean(score) + layers.mean(layers.square(norm - 1.0)))
    assert list(found) == ["fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"]
    case.golden()


def test_hessian_times_vector(case: Case) -> None:
    x, v = case.data("x", [3]), case.data("v", [3])
    target = total(layers.exp(x) * layers.tanh(x[0] * x[1]) + x * x * x)
    (grad,) = case.gradients(target, x)
    (product,) = case.gradients(grad, x, v)
    assert product is not None
    rows = [case.gradients(grad, x, case.data(f"unit{i}", [3], unit))[0] for i, unit in enumerate(np.eye(3))]
    assert None not in rows
    hessian = np.stack(list(case.run([row for row in rows if row is not None]).values()))
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-12)
    np.testing.assert_allclose(case.run([product])[product.name], hessian @ case.values["v"], rtol=1e-10)


def test_second_order_that_is_zero(case: Case) -> None:
    """The gradient of something linear does not depend on the input at all."""
    x, y = case.data("x"), case.data("y")
    (grad,) = case.gradients(total(x * y), x)
    dx, dy = case.gradients(grad, [x, y])
    assert dx is None and dy is not None
    case.golden()


def test_gradients_with_respect_to_a_gradient(case: Case) -> None:
    """A gradient is a variable like any other: another may be taken with respect to it."""
    x = case.data("x")
    h = layers.tanh(x)
    (dh,) = case.gradients(total(layers.exp(h)), h)
    assert dh is not None
    found = case.gradients(total(layers.sin(dh) * h), [dh, x])
    assert None not in found
    case.golden()


def test_first_order_again_after_the_second(case: Case) -> None:
    """The second order writes out gradient ops; the first, taken anew, does not see that."""
    x = case.data("x")
    target = total(layers.tanh(x * x))
    (once,) = case.gradients(target, x)
    again(case, once, x, 2)
    (anew,) = case.gradients(target, x)
    assert once is not None and anew is not None and once.name != anew.name
    values = case.run([once, anew])
    np.testing.assert_allclose(values[once.name], values[anew.name], rtol=1e-13)
    case.golden()


def test_only_gradient_ops_on_the_way_are_written_out(case: Case) -> None:
    """Gradient ops of another loss stay as they are."""
    x, y = case.data("x"), case.data("y")
    case.gradients(total(layers.sigmoid(y * y)), y)
    (grad,) = case.gradients(total(layers.tanh(x * x)), x)
    again(case, grad, x, 2)
    assert "sigmoid_grad" in case.op_types and "tanh_grad" in case.op_types
    case.golden()


# ----------------------------------------------------------------------------------- loops, branches and recurrences
@each("name", list(BUILDERS)[::2])
def test_second_order(case: Case, name: str) -> None:
    differentiate(case, name, {2: PRINTED_SECOND})


@pytest.mark.slow
@each("name", list(BUILDERS)[1::2])
def test_second_order_of_further_programs(case: Case, name: str) -> None:
    differentiate(case, name, {2: PRINTED_SECOND})


@pytest.mark.slow
@each("name", BUILDERS)
def test_third_order(case: Case, name: str) -> None:
    differentiate(case, name, {2: (), 3: PRINTED_THIRD})


def differentiate(case: Case, name: str, printed: dict[int, Sequence[str]]) -> None:
    """Check the orders after the first; compare the program's text for the orders in the golden file."""
    target, inputs = BUILDERS[name](case)
    grad = fluid.gradients(target, inputs[0])[0]
    for order, names in printed.items():
        grad = again(case, grad, inputs[0], order)
        if name in names:
            case.name = f"{name}_order_{order}"
            case.golden()


@pytest.mark.slow
@each("name", ["parameter_inside_and_outside_a_loop", "cond_false", "cond_in_while_loop", "rnn", "rnn_in_loop"])
def test_second_order_of_every_pair(case: Case, name: str) -> None:
    target, inputs = BUILDERS[name](case)
    for number, grad in enumerate(fluid.gradients(target, inputs)):
        assert grad is not None
        case.gradients(grad, inputs, case.data(f"weight{number}", case.shape_of(inputs[number])))


@pytest.mark.slow
@each("name", ["loop", "loop_in_loop", "branch_in_loop", "cond_true", "rnn", "rnn_with_a_cond", "array_written_in_a_loop"])
def test_programs_from_files_can_be_differentiated_further(case: Case, name: str) -> None:
    """Each order is saved and read again before the next."""
    target, inputs = BUILDERS[name](case)
    x = inputs[0].name
    for order in (1, 2, 3):
        case.program = Program.parse_from_string(case.program.serialize_to_string())
        block = case.program.global_block()
        with fluid.program_guard(case.program, case.startup):
            weight = case.data(f"weight{order}", case.values[x].shape if order > 1 else [1])
            found = case.gradients(block.var(target.name), block.var(x), weight)[0]
        assert found is not None
        target = found


@pytest.mark.numpy_alone
def test_a_recurrence_over_rows_that_form_sequences():
    """The steps of a `StaticRNN` are rows, also of a value that carries sequences."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [3, 2], "float64")
        x.stop_gradient = False
        rows = fluid.layers.lod_reset(fluid.layers.tanh(x), target_lod=[0, 1, 3])
        start = fluid.layers.reduce_mean(x, dim=0)
        rnn = fluid.layers.StaticRNN()
        with rnn.step():
            memory = rnn.memory(init=start)
            now = memory * rnn.step_input(rows)
            rnn.update_memory(memory, now)
            rnn.step_output(now)
        (first,) = fluid.gradients([rnn()], [x])
        (second,) = fluid.gradients([first], [x])
        (before,) = fluid.gradients([fluid.layers.reduce_sum(first)], [x])
        array = np.random.default_rng(0).uniform(0.2, 0.9, (3, 2))
        values = fluid.Executor().run(feed={"x": array}, fetch_list=[second, before])
        expected = fluid.Executor().interpret(feed={"x": array}, fetch_list=[second, before])
        assert np.array_equal(values[0], values[1]) and np.array_equal(values[0], expected[0])

"""Backward, one test for each corner case of straight-line programs: the printed program, and central differences."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from checks import each
from differentiation import Case, new_case

import fluid
from fluid import layers
from fluid.backward import append_backward, gradients
from fluid.errors import BackwardError
from fluid.ir.program import OpRole, Parameter, Program, Variable
from fluid.opdef import registry
from fluid.opdef.registry import define, like


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    with new_case(request.node.name) as made:
        yield made


def here() -> str:
    """Such as ``test_backward.py:33``: the line of the caller."""
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return f"test_backward.py:{frame.f_back.f_lineno}"


# ------------------------------------------------------------------------------------------------------- sums of parts
def test_parameter_read_twice(case: Case) -> None:
    x, w = case.data("x"), case.parameter("w")
    case.append_backward(layers.mean(layers.tanh(x * w) + w))
    assert case.op_types.count("sum") == 1
    case.golden()


def test_parameter_read_three_times(case: Case) -> None:
    x, w = case.data("x"), case.parameter("w")
    h = layers.tanh(x * w)
    case.append_backward(layers.mean(h * w + layers.sigmoid(w)))
    assert case.ops("sum")[0].input("X") == [f"w@GRAD@RENAME@{i}" for i in range(3)]
    case.golden()


@each("op_type", ["elementwise_mul", "elementwise_pow", "matmul_v2"])
def test_one_variable_in_two_slots(case: Case, op_type: str) -> None:
    x, w = case.data("x", [2, 2]), case.parameter("w", [2, 2])
    both = case.program.global_block().create_var(name="both")
    case.program.global_block().append_op(op_type, {"X": w, "Y": w}, {"Out": both})
    found = case.append_backward(layers.mean(layers.tanh(both) * x))
    assert case.ops(op_type + "_grad")[-1].output("Y@GRAD") == ["w@GRAD@RENAME@1"]
    assert list(found) == ["w"]
    case.golden()


def test_one_variable_at_two_places_of_a_slot(case: Case) -> None:
    x, w = case.data("x"), case.parameter("w")
    joined = layers.concat([w, x, w], axis=1)
    case.append_backward(layers.mean(layers.tanh(joined) * layers.concat([layers.sums([x, x, w]), w, w], axis=1)))
    case.golden()


def test_parts_that_are_handed_on_unchanged(case: Case) -> None:
    """Gradients of `sum` and of `assign` are the incoming one: it must not be shared with a part that is added to."""
    w = case.parameter("w")
    h = layers.tanh(w)
    copied = layers.assign(h)
    case.append_backward(layers.mean(layers.sums([h, copied, h]) * layers.tanh(copied)))
    case.golden()


# ------------------------------------------------------------------------------------------------------- zeros
def test_output_that_the_loss_does_not_use(case: Case) -> None:
    x, w = case.data("x", [2, 4]), case.parameter("w", [2, 4])
    first, second, third = layers.split(layers.tanh(x * w), [1, 2, 1], dim=1)
    layers.exp(third)
    case.append_backward(layers.mean(second))
    assert [op.input("X") for op in case.ops("fill_zeros_like")] == [[first.name], [third.name]]
    case.golden()


def test_output_that_is_cut_after_the_op(case: Case) -> None:
    """A gradient op needs zeros for one output, and what comes after that output has no gradient op at all."""
    w = case.parameter("w", [2, 4])
    first, second = layers.split(layers.tanh(w), 2, dim=1)
    quotients = layers.elementwise_floordiv(layers.exp(first), first)
    case.append_backward(layers.mean(quotients * second))
    assert "exp_grad" not in case.op_types
    case.golden()


def test_grad_op_whose_outputs_nobody_wants(case: Case) -> None:
    x, w = case.data("x"), case.parameter("w")
    x.stop_gradient = True
    case.append_backward(layers.mean(layers.tanh(layers.exp(x)) * w))
    assert "tanh_grad" not in case.op_types and "exp_grad" not in case.op_types
    assert case.ops("elementwise_mul_grad")[0].outputs == {"Y@GRAD": ["w@GRAD"]}
    case.golden()


def test_grad_op_whose_incoming_gradients_are_all_zero(case: Case) -> None:
    x, w = case.data("x"), case.parameter("w")
    steps = layers.elementwise_floordiv(layers.tanh(w), w)
    mask = layers.cast(layers.less_than(layers.exp(w), x), "float64")
    case.append_backward(layers.mean(w * x + steps * mask))
    assert not {"tanh_grad", "exp_grad", "fill_zeros_like"} & set(case.op_types)
    case.golden()


def test_no_gradient_at_all(case: Case) -> None:
    """Nothing that is wanted is reached: the program stays as it was, but for the mark on the loss."""
    w = case.parameter("w")
    loss = layers.mean(layers.elementwise_floordiv(w, w))
    before = case.program.to_string()
    assert case.append_backward(loss) == {}
    assert case.program.to_string().replace("  -- loss --\n", "") == before
    case.golden()


# ------------------------------------------------------------------------------------------------------- what is cut
def test_stop_gradient(case: Case) -> None:
    x, w = case.data("x"), case.parameter("w")
    h = layers.tanh(x * w)
    h.stop_gradient = True
    case.append_backward(layers.mean(h * w), frozen=[h.name])
    assert "tanh_grad" not in case.op_types
    case.golden()


def test_stop_gradient_of_a_parameter(case: Case) -> None:
    x, w, v = case.data("x"), case.parameter("w"), case.parameter("v")
    w.stop_gradient = True
    assert list(case.append_backward(layers.mean(layers.tanh(x * w) * v))) == ["v"]
    case.golden()


@each("give", [lambda h: h.name, lambda h: h], ids=["name", "variable"])
def test_no_grad_set(case: Case, give: Callable[[Variable], Any]) -> None:
    case.name = "no_grad_set"
    x, w = case.data("x"), case.parameter("w")
    h = layers.tanh(x * w)
    case.append_backward(layers.mean(h * w), no_grad_set=[give(h)], frozen=[h.name])
    assert "tanh_grad" not in case.op_types
    case.golden()


def test_no_grad_set_of_gradients(case: Case) -> None:
    x, y = case.data("x"), case.data("y")
    h = layers.tanh(x * y)
    dx, dh = case.gradients(layers.mean(h * x * y), [x, h], no_grad_set={y.name, h}, frozen=[h.name, y.name])
    assert dx is not None and dh is None
    case.golden()


def test_parameter_in_no_grad_set(case: Case) -> None:
    x, w, v = case.data("x"), case.parameter("w"), case.parameter("v")
    assert list(case.append_backward(layers.mean(layers.tanh(x * w) * v), no_grad_set={w})) == ["v"]
    case.golden()


@each("give", [lambda p: p.name, lambda p: p], ids=["name", "parameter"])
def test_parameter_list(case: Case, give: Callable[[Parameter], Any]) -> None:
    case.name = "parameter_list"
    x, (u, v, w) = case.data("x"), [case.parameter(name) for name in "uvw"]
    found = case.append_backward(layers.mean(layers.tanh(layers.exp(x * u) * v) * w), parameter_list=[give(w), give(v)])
    assert list(found) == ["w", "v"]
    assert "exp_grad" not in case.op_types
    case.golden()


def test_parameters_that_are_not_trained(case: Case) -> None:
    x, v, w = case.data("x"), case.parameter("v"), case.parameter("w")
    w.trainable = False
    assert list(case.append_backward(layers.mean(layers.tanh(x * w) * v))) == ["v"]
    case.golden()


def test_unreachable_parameters_are_left_out(case: Case) -> None:
    x, v, w = case.data("x"), case.parameter("v"), case.parameter("w")
    layers.mean(layers.tanh(x * w))
    assert list(case.append_backward(layers.mean(x * v))) == ["v"]
    case.golden()


def test_unreachable_inputs_are_none(case: Case) -> None:
    x, y, z = case.data("x"), case.data("y"), case.data("z")
    layers.mean(y)
    gradients = case.gradients(layers.mean(layers.tanh(x) + layers.elementwise_floordiv(z, z)), [y, x, z])
    assert gradients[0] is None and gradients[1] is not None and gradients[2] is None
    case.golden()


def test_integer_inputs(case: Case) -> None:
    ids = case.data("ids", [3, 1], [[1], [0], [1]], "int64")
    rows = case.data("rows", [2], [2, 0], "int64")
    table = layers.embedding(ids, [4, 3], dtype="float64", param_attr="table")
    case.append_backward(layers.mean(layers.tanh(layers.gather(table, rows)) * layers.cast(rows[0], "float64")))
    case.golden()


def test_gradients_with_respect_to_integers_are_none(case: Case) -> None:
    ids, x = case.data("ids", [2], [1, 0], "int64"), case.data("x")
    dids, dx = case.gradients(layers.mean(layers.tanh(layers.gather(x, ids))), [ids, x])
    assert dids is None and dx is not None
    case.golden()


# ------------------------------------------------------------------------------------------------ ops without gradient
@pytest.fixture(scope="module")
def odd_op() -> Iterator[str]:
    """An op registered without a gradient rule, as a user may."""

    @define("test_backward_odd(X) -> Out", infer=like("X"))
    def _odd() -> None:
        """It has no rule."""

    yield "test_backward_odd"
    del registry._ops["test_backward_odd"]


WITHOUT = {
    "clip_by_norm": "the op clip_by_norm is not differentiable, and the gradient would flow through it",
    "test_backward_odd": "the op test_backward_odd has no gradient rule, and the gradient would flow through it",
    "never_defined": "the op never_defined is unknown, so its gradient is too, and the gradient would flow through it",
}


def apply_odd(op_type: str, x: Variable) -> tuple[Variable, str]:
    """The op's output, and the line that made it."""
    block = x.block
    out = block.create_var(name="odd_out", shape=x.shape, dtype=x.dtype)
    attrs = {"max_norm": 1.0} if op_type == "clip_by_norm" else {}
    line, _ = here(), block.append_op(op_type, {"X": x}, {"Out": out}, attrs)
    return out, line


@pytest.mark.usefixtures("odd_op")
@each("op_type", WITHOUT)
def test_op_without_gradient_on_the_path(case: Case, op_type: str) -> None:
    x, w = case.data("x"), case.parameter("w")
    out, line = apply_odd(op_type, layers.tanh(x * w))
    loss = layers.mean(out)
    with pytest.raises(BackwardError) as error:
        append_backward(loss)
    message = str(error.value)
    assert message.startswith(f"{WITHOUT[op_type]}; set stop_gradient on odd_out to cut it there\n")
    assert f"odd_out: float64[2, 3] = {op_type}(X=tanh_0.tmp_0" in message
    assert "inputs: tanh_0.tmp_0: float64[2, 3]" in message
    assert line in message


@pytest.mark.usefixtures("odd_op")
@each("op_type", WITHOUT)
def test_op_without_gradient_off_the_path(case: Case, op_type: str) -> None:
    """It hangs beside the path, and lies before it where nothing wanted is."""
    x, w = case.data("x"), case.parameter("w")
    h = layers.tanh(x * w)
    apply_odd(op_type, h)
    case.append_backward(layers.mean(h))
    case.golden()


@each("cut_by", ["stop_gradient", "no_grad_set", "not_wanted"])
def test_op_without_gradient_that_is_cut_off(case: Case, cut_by: str) -> None:
    case.name = "op_without_gradient_that_is_cut_off"
    x, w = case.data("x"), case.parameter("w")
    rest = apply_odd("clip_by_norm", layers.exp(x))[0]
    if cut_by == "stop_gradient":
        rest.stop_gradient = True
    elif cut_by == "not_wanted":
        x.stop_gradient = True
    case.append_backward(layers.mean(rest * w), no_grad_set=[rest] if cut_by == "no_grad_set" else None)
    text = case.program.to_string().replace(" stop_gradient", "")
    case.golden(text)


# ------------------------------------------------------------------------------------------------------- several losses
def two_losses(case: Case) -> tuple[Variable, Variable]:
    x, w, v = case.data("x"), case.parameter("w"), case.parameter("v")
    h = layers.tanh(x * w)
    return layers.mean(h * v), layers.mean(layers.exp(h) + w)


@each("order", [(0, 1), (1, 0)], ids=["first_then_second", "second_then_first"])
def test_two_losses(case: Case, order: tuple[int, int]) -> None:
    """Whichever comes first, each gets the same ops, and its own gradients."""
    losses = two_losses(case)
    values, made = {}, {}
    for number in order:
        start = len(case.op_types)
        found = case.append_backward(losses[number])
        made[number] = case.op_types[start:]
        values[number] = {name: value.tobytes() for name, value in zip(found, case.run(found.values()).values(), strict=True)}
    case.golden()
    for number in order:
        with new_case(case.name) as alone:
            loss = two_losses(alone)[number]
            start = len(alone.op_types)
            found = alone.append_backward(loss)
            assert alone.op_types[start:] == made[number]
            got = dict(zip(found, alone.run(found.values()).values(), strict=True))
            assert {name: value.tobytes() for name, value in got.items()} == values[number]


def test_the_same_loss_twice(case: Case) -> None:
    loss, _ = two_losses(case)
    once, again = case.append_backward(loss), case.append_backward(loss)
    values = case.run([*once.values(), *again.values()])
    for name in once:
        assert once[name].name != again[name].name
        assert np.array_equal(values[once[name].name], values[again[name].name])
    case.golden()


def test_minimize_between_two_losses(case: Case) -> None:
    """Both losses are computed before the update: the second gradient is taken there, from saved parameters."""
    first, second = two_losses(case)
    fluid.optimizer.SGD(0.5).minimize(first)
    found = case.append_backward(second)
    assert {op.output("Out")[0] for op in case.ops("assign")} <= {"w@SAVED", "v@SAVED", "tanh_0.tmp_0@SAVED"}
    assert set(found) == {"w"}
    case.golden()


def test_minimize_before_the_second_loss(case: Case) -> None:
    """The second loss reads updated parameters: its gradient is by the updated values."""
    x, w = case.data("x"), case.parameter("w")
    fluid.optimizer.SGD(0.5).minimize(layers.mean(layers.tanh(x * w)))
    found = case.append_backward(layers.mean(layers.exp(x * w) * w), frozen=["w"])
    assert set(found) == {"w"} and not case.ops("assign")
    case.golden()


def test_gradients_do_not_flow_through_updates(case: Case) -> None:
    """An updated parameter is a new start: no gradient flows through the update."""
    x, w, v = case.data("x"), case.parameter("w"), case.parameter("v")
    fluid.optimizer.SGD(0.5).minimize(layers.mean(layers.tanh(x * w) * v), parameter_list=[w])
    found = case.append_backward(layers.mean(layers.exp(x * w) * v), parameter_list=[v], frozen=["w"])
    assert set(found) == {"v"} and "exp_grad" not in case.op_types
    case.golden()


def test_minimize_two_losses(case: Case) -> None:
    first, second = two_losses(case)
    before = case.program.clone()
    optimizer = fluid.optimizer.SGD(0.5)
    (_, pairs), (_, others) = optimizer.minimize(first), optimizer.minimize(second)
    fetch = ["w", "v", *(grad.name for _, grad in [*pairs, *others] if grad is not None)]
    found = case.run(fetch)
    steps = {"w": 0.0, "v": 0.0}
    for parameter, grad in [*pairs, *others]:
        assert grad is not None
        steps[parameter.name] = steps[parameter.name] + 0.5 * found[grad.name]
    for name, step in steps.items():
        np.testing.assert_allclose(found[name], case.values[name] - step, rtol=1e-14)
    with fluid.program_guard(before, case.startup):
        losses = [before.global_block().var(loss.name) for loss in (first, second)]
        plain = [fluid.gradients(loss, before.global_block().var("w"))[0] for loss in losses]
    expected = case._execute(case.executor.interpret, before, [grad.name for grad in plain if grad is not None])
    dw = [found[grad.name] for parameter, grad in [*pairs, *others] if grad is not None and parameter.name == "w"]
    for value, grad in zip(dw, plain, strict=True):
        assert grad is not None
        np.testing.assert_allclose(value, expected[grad.name], rtol=1e-13)
    case.golden()


# ------------------------------------------------------------------------------------------------- overwritten names
def test_name_overwritten_after_its_value_was_read(case: Case) -> None:
    x, w = case.data("x"), case.parameter("w")
    h = layers.tanh(x * w)
    y = h * w
    layers.assign(layers.exp(x), h)
    case.append_backward(layers.mean(y * h))
    assert case.ops("elementwise_mul_grad")[-2].input("X") == ["tanh_0.tmp_0@SAVED"]
    case.golden()


def test_name_overwritten_by_an_op_that_reads_it(case: Case) -> None:
    x, w = case.data("x"), case.parameter("w")
    h = layers.tanh(x * w)
    block = case.program.global_block()
    for _ in range(2):
        block.append_op("exp", {"X": h}, {"Out": h})
        block.append_op("elementwise_mul", {"X": h, "Y": x}, {"Out": h})
    case.append_backward(layers.mean(h))
    case.golden()


def test_name_overwritten_before_its_value_is_read(case: Case) -> None:
    """The first value does not reach the loss: it has no gradient."""
    x, w = case.data("x"), case.parameter("w")
    h = layers.tanh(w)
    layers.assign(x * 2.0, h)
    assert case.append_backward(layers.mean(h)) == {}
    case.golden()


def test_fed_name_overwritten(case: Case) -> None:
    """The gradient of an overwritten feed is by the fed value."""
    x = case.data("x")
    y = layers.tanh(x)
    layers.assign(layers.exp(y), x)
    case.gradients(layers.mean(x * y), x)
    case.golden()


def test_name_overwritten_by_increment(case: Case) -> None:
    x, w = case.data("x"), case.parameter("w", [1])
    h = layers.tanh(w)
    y = h * h
    layers.increment(h, 0.5)
    case.append_backward(layers.mean(x * h) * y)
    case.golden()


def test_name_overwritten_in_another_shape(case: Case) -> None:
    """A gradient needs the shape that a value had, though its name has another one now."""
    x = case.data("x")
    h = layers.tanh(x)
    loss = layers.mean(h)
    layers.assign(loss, h)
    case.gradients(layers.mean(loss * h), x)
    case.golden()


# ------------------------------------------------------------------------------------------------------- gradients()
def test_target_gradients(case: Case) -> None:
    x, weight = case.data("x"), case.data("weight")
    case.gradients(layers.tanh(x), x, weight)
    case.golden()


def test_target_gradients_of_some_targets(case: Case) -> None:
    x, weight = case.data("x"), case.data("weight", [2, 1])
    h = layers.exp(x)
    case.gradients([layers.tanh(h), layers.reduce_sum(h * x, dim=1, keep_dim=True)], [x, h], [None, weight])
    case.golden()


def test_several_targets(case: Case) -> None:
    """One target lies on the way to another, one is the input itself, one does not depend on it."""
    x, y = case.data("x"), case.data("y")
    h = layers.tanh(x * y)
    case.gradients([h, layers.mean(h), x, layers.mean(layers.exp(y))], x)
    case.golden()


def test_the_same_target_twice(case: Case) -> None:
    x = case.data("x")
    h = layers.tanh(x)
    weight = case.data("weight")
    case.gradients([h, h], [x], [None, weight])
    case.golden()


def test_intermediate_inputs(case: Case) -> None:
    """An input that lies on the way to another counts for both."""
    x = case.data("x")
    h = layers.tanh(x)
    y = layers.exp(h) * x
    case.gradients(layers.mean(y * h), [y, h, x])
    case.golden()


def test_intermediate_input_overwritten(case: Case) -> None:
    """The gradient of an overwritten name is by its first value."""
    x = case.data("x")
    h = layers.tanh(x)
    y = layers.exp(h)
    layers.assign(x * 0.5, h)
    before = case.program.clone()
    loss = layers.mean(y * h)
    (found,) = gradients(loss, h)
    assert found is not None
    exp = case.run([found, y.name])
    values = case.values["x"]
    np.testing.assert_allclose(exp[found.name], np.exp(np.tanh(values)) * values * 0.5 / values.size, rtol=1e-12)
    assert len(before.global_block().ops) < len(case.op_types)
    case.golden()


def test_unknown_batch(case: Case) -> None:
    """Shapes with -1 flow through; the seed of a target of unknown shape is made like it."""
    x = layers.data("x", [3], dtype="float64")
    x.stop_gradient = False
    case.values["x"] = case.rng.uniform(0.2, 0.9, (4, 3))
    case.parameter("w", [3])
    h = layers.tanh(layers.elementwise_add(x, case.program.global_block().var("w")))
    case.gradients(h * h, [x, case.program.global_block().var("w")])
    case.golden()


# ------------------------------------------------------------------------------------------------- callbacks, and marks
def test_callbacks(case: Case) -> None:
    """They see each gradient as it becomes complete, with the op that completed it."""
    x, w = case.data("x"), case.parameter("w")
    seen = []

    def callback(block: Any, context: Any) -> None:
        op = context["__current_op_desc__"]
        assert block is case.program.global_block() and op in block.ops
        (name,) = [name for name in op.output_arg_names if name in context and name not in [n for n, _ in seen]][-1:]
        seen.append((name, context[name]))

    loss = layers.mean(layers.tanh(x * w) + w)
    case.append_backward(loss, callbacks=[callback])
    assert [of for _, of in seen[-4:]] == ["tanh_0.tmp_0", "tmp_0", "w", "x"]
    assert dict(seen)["w@GRAD"] == "w"
    case.golden()


def test_a_callback_may_append_ops(case: Case) -> None:
    """As clipping does: what comes later reads the changed gradient."""
    x, w = case.data("x"), case.parameter("w")
    h = layers.tanh(x * w)

    def halve(block: Any, context: Any) -> None:
        for name in context["__current_op_desc__"].output_arg_names:
            if context.get(name) == h.name:
                block.append_op("scale", {"X": name}, {"Out": name}, {"scale": 0.5, OpRole.NAME: OpRole.BACKWARD})

    loss = layers.mean(layers.exp(h))
    plain = case.append_backward(loss)
    halved = {p.name: g for p, g in append_backward(loss, callbacks=[halve])}
    values = case.run([plain["w"], halved["w"]])
    np.testing.assert_allclose(values[halved["w"].name], values[plain["w"].name] * 0.5, rtol=1e-13)
    case.golden()


def test_roles(case: Case) -> None:
    x, w, v = case.data("x"), case.parameter("w"), case.parameter("v")
    loss = layers.mean(layers.tanh(x * w) * v + w)
    forward = len(case.op_types)
    case.append_backward(loss)
    ops = case.program.global_block().ops
    assert [op.role for op in ops[:forward]] == [OpRole.FORWARD] * (forward - 1) + [OpRole.FORWARD | OpRole.LOSS]
    assert ops[forward].role == OpRole.BACKWARD | OpRole.LOSS
    assert {op.role for op in ops[forward + 1 :]} == {OpRole.BACKWARD}
    marked = {op.type: op.attrs[OpRole.VARS] for op in ops if OpRole.VARS in op.attrs}
    assert marked == {"elementwise_mul_grad": ["v", "v@GRAD"], "sum": ["w", "w@GRAD"]}
    case.golden()


def test_gradient_ops_know_the_line_of_the_user(case: Case) -> None:
    x, w = case.data("x"), case.parameter("w")
    h, line = layers.tanh(x * w), here()
    append_backward(layers.mean(h + w))
    found = case.ops("tanh_grad")[0].user_frame
    assert found is not None and f"{found[0]}:{found[1]}".endswith(line)
    assert all(op.user_frame is not None and op.user_frame[0] == __file__ for op in case.program.global_block().ops)


# ------------------------------------------------------------------------------------------------------- cost
def chain_ops(length: int) -> int:
    """The backward ops of a chain with this many ops, which all read one parameter."""
    program = Program()
    with fluid.program_guard(program, Program()), fluid.unique_name.guard():
        block = program.global_block()
        w = block.create_parameter(name="w", shape=[2, 3], dtype="float64")
        h = layers.data("x", [2, 3], dtype="float64", append_batch_size=False)
        for _ in range(length):
            h = layers.tanh(h * w) + w
        loss = layers.mean(h)
        forward = len(block.ops)
        append_backward(loss)
    return len(block.ops) - forward


def test_number_of_ops_is_linear() -> None:
    small, twice, large = chain_ops(10), chain_ops(20), chain_ops(100)
    assert large - small == 9 * (twice - small) > 0


# ------------------------------------------------------------------------------------------------------- errors
def test_loss_must_have_one_element(case: Case) -> None:
    loss = layers.tanh(case.data("x"))
    with pytest.raises(BackwardError) as error:
        append_backward(loss)
    assert str(error.value) == (
        "the loss tanh_0.tmp_0 is float64[2, 3], but a loss has one element; reduce it with layers.mean or layers.reduce_sum, "
        "or use gradients() for targets of any shape"
    )


@each("call", [append_backward, lambda loss: gradients(loss, loss)], ids=["append_backward", "gradients"])
def test_loss_in_a_sub_block(case: Case, call: Callable[[Variable], Any]) -> None:
    x, i = case.data("x"), layers.fill_constant([1], "int64", 0)
    loop = layers.While(layers.less_than(i, layers.fill_constant([1], "int64", 2)))
    with loop.block():
        loss = layers.mean(x)
        layers.less_than(layers.increment(i), layers.fill_constant([1], "int64", 2), cond=loop.cond_var)
    with pytest.raises(
        BackwardError, match=f"{loss.name} lives in sub-block 1, which is complete; take it out of the loop or branch"
    ) as error:
        call(loss)
    assert ("the loss " if call is append_backward else "the target ") in str(error.value)


def test_loss_that_is_no_variable(case: Case) -> None:
    with pytest.raises(BackwardError, match="the loss should be a Variable, not str"):
        append_backward("loss")  # type: ignore[arg-type]
    with pytest.raises(BackwardError, match="the target should be a Variable, not float"):
        gradients([1.0], [case.data("x")])  # type: ignore[list-item]


def test_variables_of_another_program(case: Case) -> None:
    x, w = case.data("x"), case.parameter("w")
    loss = layers.mean(x * w)
    other = Program()
    with fluid.program_guard(other, Program()):
        stray = layers.data("stray", [2, 3], append_batch_size=False, dtype="float64")
        twin = other.global_block().create_parameter(name="w", shape=[2, 3], dtype="float64")
    for targets, inputs, seeds, what in (
        ([loss, stray], x, None, "the target stray"),
        (loss, stray, None, "the input stray"),
        (layers.tanh(x), x, stray, "the target gradient stray"),
    ):
        with pytest.raises(BackwardError, match=f"{what} belongs to another program than the target"):
            gradients(targets, inputs, seeds)  # type: ignore[arg-type]
    with pytest.raises(BackwardError, match="parameter_list holds w of another program"):
        append_backward(loss, [twin])
    with pytest.raises(BackwardError, match="no_grad_set holds w of another program"):
        append_backward(loss, no_grad_set=[twin])
    with pytest.raises(BackwardError, match="no_grad_set holds w of another program"):
        gradients(loss, x, no_grad_set=[twin])
    with pytest.raises(BackwardError, match="parameter_list names 'nobody', which is not a variable of the program"):
        append_backward(loss, ["nobody"])


def test_the_loss_decides_which_program_is_differentiated(case: Case) -> None:
    """Not the default program."""
    x, w = case.data("x"), case.parameter("w")
    loss = layers.mean(layers.tanh(x * w))
    with fluid.program_guard(Program(), Program()):
        case.append_backward(loss)
        assert not fluid.default_main_program().global_block().ops
    case.golden()


def test_target_gradients_that_do_not_fit(case: Case) -> None:
    x, weight = case.data("x"), case.data("weight", [3])
    h = layers.tanh(x)
    with pytest.raises(BackwardError, match="there are 1 targets but 2 target_gradients"):
        gradients(h, x, [x, x])
    with pytest.raises(BackwardError, match=r"weight is float64\[3\], but its target tanh_0.tmp_0 is float64\[2, 3\]"):
        gradients(h, x, weight)


def test_an_error_leaves_the_program_as_it_was():
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        x = fluid.data("x", [2, 2])
        x.stop_gradient = False
        bad = apply_odd("clip_by_norm", x)[0]
        total = fluid.layers.scale(bad, 1.0)
        step = fluid.layers.fill_constant([1], "int64", 0)
        last = fluid.layers.fill_constant([1], "int64", 3)
        go = fluid.layers.less_than(step, last)
        loop = fluid.layers.While(go)
        with loop.block():
            fluid.layers.assign(fluid.layers.tanh(total), output=total)
            fluid.layers.increment(step)
            fluid.layers.less_than(step, last, cond=go)
        loss = fluid.layers.mean(total)
    before = program.to_string()
    with pytest.raises(BackwardError, match="clip_by_norm is not differentiable"):
        fluid.append_backward(loss)
    assert program.to_string() == before
    program.verify()


def test_a_loss_of_whole_numbers_is_refused():
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        loss = fluid.layers.reduce_sum(fluid.layers.cast(fluid.data("x", [2]), "int64"))
        with pytest.raises(BackwardError, match=r"is int64\[1\], and only floating-point values have gradients"):
            fluid.append_backward(loss)


@each("after", ["itself", "reshaped"])
def test_gradients_of_sequences_whose_rows_are_known(after: str):
    """A gradient of ones, and one that comes back through a reshape, have no sequences of their own."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [3, 2])
        x.stop_gradient = False
        y = fluid.layers.sequence_reverse(fluid.layers.lod_reset(x * x, target_lod=[0, 1, 3]))
        target = y if after == "itself" else fluid.layers.reshape(y, [1, 3, 2])
        (gradient,) = fluid.gradients([target], [x])
        array = np.arange(6, dtype="float32").reshape(3, 2)
        assert fluid.Executor().run(feed={"x": array}, fetch_list=[gradient])[0].tolist() == (2 * array).tolist()


@each("lengths", [[1, 1], [2], []], ids=str)
def test_a_sequence_is_overwritten_by_other_sequences_of_the_same_rows(lengths: list[int]):
    """A gradient that reads only the shape of a value also reads its sequences."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [2, 3], "float64")
        x.stop_gradient = False
        sequence = fluid.layers.lod_reset(x * 1.0, target_lod=[0, 2])
        y = fluid.layers.sequence_reverse(sequence)
        target = fluid.layers.reduce_sum(y * fluid.layers.assign(np.arange(6.0).reshape(2, 3)))
        other = fluid.layers.lod_reset(x, target_lod=[0, *np.cumsum(lengths)]) if lengths else x
        fluid.layers.assign(other, sequence)
        (grad,) = fluid.gradients(target, x)
        (value,) = fluid.Executor().run(feed={"x": np.ones((2, 3))}, fetch_list=[grad], scope=fluid.Scope())
    np.testing.assert_array_equal(value, [[3, 4, 5], [0, 1, 2]])


def test_the_work_grows_with_the_parameters_and_not_with_their_square():
    """Counted as calls of functions, which are the same on any machine."""

    def calls_of(parameters: int) -> int:
        with fluid.program_guard(fluid.Program(), fluid.Program()):
            h = fluid.data("x", [None, 2])
            for _ in range(parameters):
                h = h + layers.create_parameter([2], "float32")
            loss, count = layers.mean(h), 0

            def tally(frame: Any, event: str, arg: Any) -> None:
                nonlocal count
                count += event in ("call", "c_call")

            before = sys.getprofile()
            sys.setprofile(tally)
            try:
                append_backward(loss)
            finally:
                sys.setprofile(before)
        return count

    assert calls_of(320) < 10 * calls_of(40)

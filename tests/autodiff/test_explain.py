"""`program.explain_gradient`: the words, and that they agree with what `gradients` does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

import pytest
from checks import each
from control_flow_programs import BUILDERS, branch, integer, repeat, total
from differentiation import Case, new_case

import fluid
from fluid import layers
from fluid.errors import ProgramError
from fluid.ir.program import Variable
from fluid.opdef import registry
from fluid.opdef.registry import define, like


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    with new_case(request.node.name) as made:
        yield made


def line(offset: int = 0) -> str:
    """The caller's file and line, as explanations give them."""
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno + offset}"


def explain(case: Case, target: Variable, var: Variable, flows: bool) -> str:
    """The explanation; nothing is added by it, and it is right about whether a gradient arrives."""
    before, version = case.program.to_string(), case.program.version
    text = case.program.explain_gradient(target, var)
    assert case.program.to_string() == before and case.program.version == version
    assert case.program.explain_gradient(target.name, var.name) == text
    if target.block is case.program.global_block():
        (gradient,) = fluid.gradients(target, var)
        arrives = gradient is not None and gradient.op.type != "fill_zeros_like"  # which a branch that cuts it gives
        assert flows or not arrives
        assert gradient is not None or not flows
    return text


def test_path(case: Case) -> None:
    x, w = case.data("x"), case.parameter("w")
    h, first = layers.tanh(x * w), line()
    loss, second = layers.mean(h), line()
    assert explain(case, loss, w, True) == (
        "The gradient of mean_0.tmp_0 reaches w along:\n"
        f"  mean_0.tmp_0  <-  mean ({second})  <-  tanh_0.tmp_0\n"
        f"  tanh_0.tmp_0  <-  tanh ({first})  <-  tmp_0\n"
        f"  tmp_0  <-  elementwise_mul ({first})  <-  w"
    )


def test_long_path_is_shortened(case: Case) -> None:
    h = x = case.data("x")
    for _ in range(30):
        h = layers.tanh(h)
    text = explain(case, total(h), x, True).splitlines()
    assert len(text) == 14 and text[7] == "  ... 19 more ops ..." and text[-1].endswith("<-  x")


def test_the_target_itself(case: Case) -> None:
    loss = layers.mean(case.data("x"))
    assert explain(case, loss, loss, True) == "mean_0.tmp_0 is the target itself: its gradient is 1."


def test_stop_gradient_of_the_variable(case: Case) -> None:
    x = case.data("x")
    x.stop_gradient = True
    assert explain(case, layers.mean(x), x, False) == "No gradient of mean_0.tmp_0 reaches x: x has stop_gradient set."


def test_stop_gradient_on_the_way(case: Case) -> None:
    x = case.data("x")
    h, where = layers.tanh(x), line()
    h.stop_gradient = True
    assert explain(case, layers.mean(h), x, False) == (
        "No gradient of mean_0.tmp_0 reaches x, although mean_0.tmp_0 depends on it:\n"
        f"  - after tanh ({where}): tanh_0.tmp_0 has stop_gradient set"
    )


def test_two_ways_of_which_one_is_cut(case: Case) -> None:
    x = case.data("x")
    h = layers.tanh(x)
    h.stop_gradient = True
    assert "reaches x along:" in explain(case, layers.mean(h * x), x, True)


def test_integers(case: Case) -> None:
    ids, x = case.data("ids", [2], [1, 0], "int64"), case.data("x")
    loss = layers.mean(layers.gather(x, ids))
    assert explain(case, loss, ids, False) == (
        "No gradient of mean_0.tmp_0 reaches ids: ids is int64[2], and only floating-point values have gradients."
    )


def test_integers_on_the_way(case: Case) -> None:
    x = case.data("x")
    whole, where = layers.cast(x, "int64"), line()
    assert explain(case, layers.mean(layers.cast(whole, "float64")), x, False).splitlines()[1:] == [
        f"  - after cast ({where}): cast_0.tmp_0 is int64[2, 3], and only floating-point values have gradients"
    ]


def test_op_whose_gradient_is_zero(case: Case) -> None:
    x = case.data("x")
    steps, where = layers.elementwise_floordiv(x, x), line()
    assert explain(case, layers.mean(steps), x, False).splitlines()[1:] == [
        f"  - elementwise_floordiv ({where}) cuts it: its outputs do not change smoothly with its inputs"
    ]


@pytest.mark.parametrize("layer", [layers.floor, layers.ceil, layers.round, layers.sign])
def test_op_whose_rule_gives_zeros(case: Case, layer: Callable[[Variable], Variable]) -> None:
    """Paddle has gradient ops for these, so that a gradient arrives: of zeros."""
    x = case.data("x")
    steps, where = layer(x), line()
    assert case.program.explain_gradient(layers.mean(steps), x).splitlines()[1:] == [
        f"  - {layer.__name__} ({where}) cuts it: its gradient is zero everywhere"
    ]
    assert case.gradients(layers.mean(steps), x)[0] is not None  # and holds the zeros that differences of the program are


def test_op_that_reads_an_undeclared_name(case: Case) -> None:
    """As a file may hold it."""
    x, y = case.data("x"), case.data("y")
    loss = layers.mean(layers.elementwise_mul(x, y))
    case.program.global_block().ops[0].inputs["Y"] = ["nowhere"]
    assert "reaches x along:" in case.program.explain_gradient(loss, x)


def test_zeros_beside_a_gradient(case: Case) -> None:
    x = case.data("x")
    assert "reaches x along:" in explain(case, layers.mean(layers.floor(x) * x), x, True)


def test_input_that_has_no_gradient(case: Case) -> None:
    """`expand_to` reads the shape of its second input, and nothing else of it."""
    x, y = case.data("x"), case.data("y", [1])
    out = case.program.global_block().create_var(name="out")
    case.program.global_block().append_op("expand_to", {"X": y, "Like": x}, {"Out": out})
    where = line(-1)
    assert explain(case, layers.mean(out), x, False).splitlines()[1:] == [
        f"  - expand_to ({where}) has no gradient for its input Like"
    ]


@pytest.fixture
def odd_op() -> Iterator[str]:
    """An op registered without a gradient rule."""

    @define("test_explain_odd(X) -> Out", infer=like("X"))
    def _odd() -> None:
        """It has no rule."""

    yield "test_explain_odd"
    del registry._ops["test_explain_odd"]


def test_op_without_rule(case: Case, odd_op: str) -> None:
    x = case.data("x")
    block = case.program.global_block()
    for op_type in (odd_op, "never_defined", "clip_by_norm"):
        out = block.create_var(name=f"{op_type}_out", shape=[2, 3], dtype="float64")
        attrs = {"max_norm": 1.0} if op_type == "clip_by_norm" else {}
        block.append_op(op_type, {"X": x}, {"Out": out}, attrs)
        why = "it is not differentiable" if op_type == "clip_by_norm" else "the op has no gradient rule"
        text = case.program.explain_gradient(layers.mean(out), x)
        assert text.splitlines()[1:] == [f"  - {op_type} ({line(-3)}) cuts it: {why}"]


def test_variable_that_nothing_reads(case: Case) -> None:
    x, y = case.data("x"), case.data("y")
    assert explain(case, layers.mean(y), x, False) == "mean_0.tmp_0 does not depend on x: no op reads x."


def test_loss_that_does_not_depend(case: Case) -> None:
    x, y = case.data("x"), case.data("y")
    layers.exp(x), layers.tanh(x)
    where = line(-1)
    assert explain(case, layers.mean(y), x, False) == (
        f"mean_0.tmp_0 does not depend on x: it is read by exp ({where}), tanh ({where}), "
        "whose results do not lead to mean_0.tmp_0."
    )


def test_overwritten_name(case: Case) -> None:
    """The value that the loss reads is not the one that was made of `x`."""
    x, y = case.data("x"), case.data("y")
    h = layers.tanh(x)
    layers.assign(y, h)
    loss = layers.mean(h)
    assert "does not depend on x" in explain(case, loss, x, False)
    assert "reaches y along:" in explain(case, loss, y, True)


@each("name", BUILDERS)
def test_through_blocks(case: Case, name: str) -> None:
    """Loops, branches and recurrences let gradients pass as `gradients` does."""
    target, inputs = BUILDERS[name](case)
    for var in inputs:
        flows = fluid.gradients(target, var)[0] is not None
        text = case.program.explain_gradient(target, var)
        assert text.startswith(f"The gradient of {target.name} reaches {var.name} along:") is flows


def test_path_through_a_loop(case: Case) -> None:
    x = case.data("x")
    h = layers.tanh(x)
    repeat(2, lambda i: layers.assign(layers.tanh(h * x), h))
    steps = [step.strip().split("  <-  ") for step in explain(case, total(h), x, True).splitlines()[1:]]
    assert [(to, op.split()[0], come) for to, op, come in steps] == [
        ("reduce_sum_0.tmp_0", "reduce_sum", "tanh_0.tmp_0"),
        ("tanh_0.tmp_0", "while", "tanh_0.tmp_0"),
        ("tanh_0.tmp_0", "tanh", "x"),
    ]


@each("kind", ["loop", "branch"])
def test_cut_inside_a_block(case: Case, kind: str) -> None:
    """The block cuts the gradient, and the explanation names the op."""
    x, h = case.data("x"), layers.create_tensor("float64", name="h")
    lines = []

    def body(i: Variable | None = None) -> None:
        layers.assign(layers.elementwise_floordiv(x, x), h)
        lines.append(line(-1))

    if kind == "loop":
        repeat(2, body)
    else:
        branch(layers.less_than(integer(0), integer(1)), body)
    assert explain(case, total(h), x, False).splitlines()[1:] == [
        f"  - elementwise_floordiv ({lines[0]}) cuts it: its outputs do not change smoothly with its inputs"
    ]


def test_state_that_reaches_the_output_later(case: Case) -> None:
    """A carried value needs two or three trips to reach the output."""
    x = case.data("x")
    a, b, c = layers.tanh(x), layers.zeros([2, 3], "float64"), layers.zeros([2, 3], "float64")

    def body(i: Variable) -> None:
        layers.assign(b, c)
        layers.assign(a, b)

    repeat(3, body)
    assert "along:" in explain(case, total(c), x, True)
    values = case.gradients(total(c), x)
    assert values[0] is not None


def test_sub_block(case: Case) -> None:
    x, found = case.data("x"), []
    h = layers.tanh(x)

    def body(i: Variable) -> None:
        found.append(layers.exp(h))
        layers.assign(found[0] * x, h)

    repeat(2, body)
    loss = total(h)
    for target, var, what in ((loss, found[0], "variable"), (found[0], x, "loss")):
        with pytest.raises(ProgramError) as error:
            case.program.explain_gradient(target, var)
        assert str(error.value) == (
            f"the {what} 'exp_0.tmp_0' is not a variable of this program's block 0; it lives in sub-block 1, and only what is "
            "visible in block 0 has gradients"
        )


def test_unknown_name(case: Case) -> None:
    loss = layers.mean(case.data("x"))
    with pytest.raises(ProgramError, match=r"the variable 'nobody' is not a variable of this program's block 0$"):
        case.program.explain_gradient(loss, "nobody")

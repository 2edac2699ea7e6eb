"""Definitions of ops, also outside the package, and errors of the registry."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial, wraps
from typing import Any

import numpy as np
import pytest
from checks import each, own_ops
from numeric import assert_gradients, interpret

import fluid
from fluid.errors import AttributeRuleError, InferenceError, ProgramError
from fluid.executor.binding.compiled import apply_op
from fluid.executor.kernels.table import KERNELS, kernel, prepared
from fluid.opdef import registry
from fluid.opdef.registry import (
    NOT_DIFFERENTIABLE,
    Attr,
    ShapeOnly,
    define,
    floats,
    grad_slot,
    ints,
    like,
    long,
    longs,
    required,
    strings,
)
from fluid.values.spec import Spec


@pytest.fixture(name="own_ops")
def forget_ops() -> Iterator[None]:
    """Forget the ops that a test defines."""
    with own_ops():
        yield


# ---------------------------------------------------------------------------------------------------- an op of one's own
def define_cubic() -> None:
    @define("cubic(X) -> Out", infer=like("X"), factor=1.0)
    def cubic(f: Any, X: Any, dOut: Any, factor: float) -> dict[str, Any]:
        """``factor * X ** 3``, element by element."""
        return {"X": dOut * (X * X * (3.0 * factor))}

    @kernel("cubic")
    def cubic_kernel(xp: Any, X: Any, factor: float, Out: Any) -> None:
        xp.multiply(X * X * X, factor, out=Out)


def cubic_program() -> tuple[fluid.Program, Any, Any]:
    program = fluid.Program()
    block = program.global_block()
    x = block.create_var(name="x", shape=[2, 3], dtype="float64", is_data=True)
    out = block.create_var(name="out")
    block.append_op("cubic", {"X": x}, {"Out": out}, {"factor": 2.0})
    return program, x, out


def test_own_op_in_a_program(own_ops: None) -> None:
    define_cubic()
    program, x, out = cubic_program()
    assert out.shape == (2, 3) and out.dtype == x.dtype
    (grad,) = fluid.gradients(out, x)
    assert "cubic_grad" in [op.type for op in program.global_block().ops]
    (second,) = fluid.gradients(grad, x)
    (third,) = fluid.gradients(second, x)
    feed = {"x": np.random.default_rng(0).standard_normal((2, 3))}
    values = fluid.Executor(fluid.CPUPlace()).run(program, feed, [out, grad, second, third])
    for value, expected in zip(
        values, (2 * feed["x"] ** 3, 6 * feed["x"] ** 2, 12 * feed["x"], np.full((2, 3), 12.0)), strict=True
    ):
        np.testing.assert_allclose(value, expected, 1e-12)


def test_own_op_against_central_differences(own_ops: None) -> None:
    define_cubic()
    program, x, out = cubic_program()
    (grad,) = fluid.gradients(out, x)
    feed = {"x": np.random.default_rng(0).standard_normal((2, 3))}
    found = interpret(program, feed, [grad])[0]
    assert_gradients(
        lambda at: float(apply_op("cubic", {"X": at["x"]}, {"factor": 2.0})["Out"].sum()),
        feed,
        {"x": found},
        np.random.default_rng(1),
    )


def test_own_op_through_wire_and_text(own_ops: None) -> None:
    from fluid.formats.text import parse_program_text, program_to_string

    define_cubic()
    program, x, out = cubic_program()
    fluid.gradients(out, x)
    text = program_to_string(program)
    assert program_to_string(fluid.Program.parse_from_string(program.serialize_to_string())) == text
    assert program_to_string(parse_program_text(text)) == text


def test_own_gradient_kernel_replaces_the_rule(own_ops: None) -> None:
    define_cubic()
    calls = []

    @prepared("cubic_grad", inplace={"dX": "dOut"})
    def cubic_grad(xp: Any, X: Any, dOut: Any, factor: float, dX: Any) -> Any:
        calls.append(factor)
        return [partial(xp.multiply, dOut, X, dX), partial(xp.multiply, dX, X, dX), partial(xp.multiply, dX, 3 * factor, dX)]

    assert KERNELS["cubic_grad"].inplace == {"X@GRAD": "Out@GRAD"}
    inputs = {"X": np.arange(3.0), "Out@GRAD": np.array([1.0, 2.0, -1.0])}
    by_kernel = apply_op("cubic_grad", inputs, {"factor": 2.0})["X@GRAD"]
    by_rule = apply_op("cubic_grad", inputs, {"factor": 2.0}, use_kernel=False)["X@GRAD"]
    assert calls == [2.0]
    np.testing.assert_allclose(by_kernel, by_rule)


def test_own_op_without_gradient_says_so(own_ops: None) -> None:
    @define("lowest(X) -> Out", infer=lambda X: X.with_shape((1,)), grad=NOT_DIFFERENTIABLE)
    def lowest() -> None:
        """The least element."""

    program = fluid.Program()
    block = program.global_block()
    x = block.create_var(name="x", shape=[3], dtype="float32", is_data=True)
    out = block.create_var(name="out")
    block.append_op("lowest", {"X": x}, {"Out": out})
    with pytest.raises(fluid.errors.BackwardError, match=r"(?s)lowest.*test_registry\.py"):
        fluid.gradients(out, x)


def test_op_without_kernel_fails_when_run(own_ops: None) -> None:
    @define("unheard(X) -> Out", infer=like("X"), grad=NOT_DIFFERENTIABLE)
    def unheard() -> None:
        """Nothing computes this."""

    with pytest.raises(fluid.errors.ExecutionError, match="the op unheard has no kernel"):
        apply_op("unheard", {"X": np.zeros(2)})


# -------------------------------------------------------------------------------------------------- what a definition holds
def test_signature_makes_slots_of_op_and_gradient_op(own_ops: None) -> None:
    @define(
        "blend(X*, Mask?, State) -> Out, Kept~, StateOut&",
        infer=like("State"),
        wrt=["X"],
        shape_only=["State"],
        rate=0.5,
        axes=ints(1, 2),
    )
    def blend(f: Any, X: ShapeOnly, Kept: Any, State: ShapeOnly, dOut: Any, dKept: Any = None) -> dict[str, Any]:
        """All marks at once."""
        return {}

    definition, grad = registry.get("blend"), registry.get("blend_grad")
    assert [(s.name, s.many, s.optional, s.shape_only) for s in definition.inputs.values()] == [
        ("X", True, False, False),
        ("Mask", False, True, False),
        ("State", False, False, True),
    ]
    assert [(s.name, s.intermediate, s.updated) for s in definition.outputs.values()] == [
        ("Out", False, False),
        ("Kept", True, False),
        ("StateOut", False, True),
    ]
    assert definition.doc == "All marks at once."
    assert definition.defaults({"rate": 1.0}) == {"rate": 1.0, "axes": [1, 2]}
    assert grad.forward is definition
    assert list(grad.inputs) == ["X", "State", "Kept", "Out@GRAD", "Kept@GRAD"]
    assert grad.inputs["X"].shape_only and grad.inputs["X"].many and not grad.inputs["Kept"].shape_only
    assert grad.inputs["Kept@GRAD"].optional and not grad.inputs["Out@GRAD"].optional
    assert list(grad.outputs) == [grad_slot("X")]


def test_rule_computes_only_what_is_wanted(own_ops: None) -> None:
    asked: list[set[str]] = []

    @define("twin(X, Y) -> Out", infer=like("X"))
    def twin(f: Any, dOut: Any, wanted: set[str]) -> dict[str, Any]:
        """X, whatever Y is."""
        asked.append(wanted)
        return {"X": dOut, "Y": lambda: pytest.fail("nobody wants dY")}

    rule: Any = registry.get("twin").rule
    assert rule(None, {"Out@GRAD": 5}, {}, {"X"}) == {"X": 5}
    assert asked == [{"X"}]


def some_function(f: Any, X: ShapeOnly, /, Y: Any, dOut: Any = None, *, rate: float, axis: int = 1) -> None:
    local = rate  # noqa: F841  (a local variable is no parameter)


@each(
    "fn",
    [
        some_function,
        lambda: None,
        lambda X, *rest, axis=0, **attrs: None,
        partial(some_function, None, rate=1.0),
        wraps(some_function)(lambda *args, **kwargs: None),
        registry.OpDef.defaults,
        registry.get("relu").defaults,
    ],
)
def test_parameters_are_those_of_the_signature(fn: Any) -> None:
    signature = inspect.signature(fn).parameters
    expected = {name: (each.annotation, each.default is not each.empty) for name, each in signature.items()}
    found = registry.parameters_of(fn)
    assert found == expected and list(found) == list(expected)


# ------------------------------------------------------------------------------------------------------------- mistakes
def test_unknown_op_suggests_near_names() -> None:
    with pytest.raises(ProgramError, match=r"no op 'softmaxx' is defined; did you mean softmax\b"):
        registry.get("softmaxx")
    assert registry.find("softmaxx") is None


def test_op_cannot_be_defined_twice() -> None:
    with pytest.raises(ProgramError, match="the op 'tanh' is already defined"):

        @define("tanh(X) -> Out", infer=like("X"), grad=NOT_DIFFERENTIABLE)
        def tanh() -> None: ...


def test_kernel_cannot_be_registered_twice() -> None:
    with pytest.raises(ProgramError, match="the op 'tanh' already has a kernel"):

        @kernel("tanh")
        def tanh(xp: Any, X: Any, Out: Any) -> None: ...


@each("signature", ["tanh", "tanh X -> Out", "(X) -> Out"])
def test_signature_that_is_none(signature: str) -> None:
    with pytest.raises(ProgramError, match="is not a signature such as"):
        define(signature)


def test_slot_that_is_none() -> None:
    with pytest.raises(ProgramError, match=r"cubic: 'X!' is not a slot such as X, X\*, X\?, Out~ or Out&"):
        define("cubic(X!) -> Out")


def test_rule_that_names_nothing_known(own_ops: None) -> None:
    with pytest.raises(ProgramError, match="the gradient rule of cubic names 'Z', which is no slot or attribute of it"):

        @define("cubic(X) -> Out", infer=like("X"))
        def cubic(f: Any, Z: Any, dOut: Any) -> None: ...

    assert registry.find("cubic") is None


def test_kernel_that_names_nothing_known(own_ops: None) -> None:
    define_cubic()
    with pytest.raises(ProgramError, match="the kernel of cubic_grad names 'power', which is no slot or attribute of it"):

        @kernel("cubic_grad")
        def cubic_grad(xp: Any, X: Any, power: Any) -> None: ...

    with pytest.raises(ProgramError, match="the kernel of cubic_grad names 'rest', which is no slot or attribute of it"):

        @kernel("cubic_grad")
        def cubic_grad_of_all(xp: Any, X: Any, **rest: Any) -> None: ...


@each(
    ("attr", "value", "message"),
    [
        (Attr("int", 1), 1.5, "should be of kind int: 1.5 is not an integer"),
        (Attr("int", 1), "x", "should be of kind int"),
        (long(1), 2.5, "should be of kind long: 2.5 is not an integer"),
        (Attr("float", 1.0), "x", "should be of kind float"),
        (Attr("bool", True), 2, "should be of kind bool: 2 is not a bool"),
        (Attr("string", ""), 3, "should be of kind string: 3 is not a string"),
        (ints(1), 3, "should be of kind ints: 3 is not a list"),
        (ints(1), "12", "should be of kind ints: '12' is not a list"),
        (longs(1), [1, 2.5], "should be of kind longs: 2.5 is not an integer"),
        (floats(1.0), [None], "should be of kind floats"),
        (strings("a"), ["a", 1], "should be of kind strings: 1 is not a string"),
    ],
)
def test_attribute_of_a_wrong_kind(own_ops: None, attr: Attr, value: Any, message: str) -> None:
    define("odd(X) -> Out", infer=like("X"), grad=NOT_DIFFERENTIABLE, mode=attr)(lambda: None)
    with pytest.raises(AttributeRuleError) as caught:
        registry.get("odd").check_attrs({"mode": value})
    assert str(caught.value).startswith("odd: attribute 'mode' ") and message in str(caught.value)


@each(
    ("attr", "value", "expected"),
    [
        (Attr("int", 1), 2.0, 2),
        (Attr("int", 1), np.int64(3), 3),
        (Attr("float", 1.0), 2, 2.0),
        (Attr("bool", True), 0, False),
        (ints(1), (1, np.int32(2)), [1, 2]),
        (floats(), [1, 2.5], [1.0, 2.5]),
    ],
)
def test_attribute_takes_its_python_form(own_ops: None, attr: Attr, value: Any, expected: Any) -> None:
    define("odd(X) -> Out", infer=like("X"), grad=NOT_DIFFERENTIABLE, mode=attr)(lambda: None)
    found = registry.get("odd").check_attrs({"mode": value})["mode"]
    assert found == expected and type(found) is type(expected)


def test_required_attribute_is_missing(own_ops: None) -> None:
    define("odd(X) -> Out", infer=like("X"), grad=NOT_DIFFERENTIABLE, mode=required("int"))(lambda: None)
    with pytest.raises(AttributeRuleError, match=r"odd: attribute 'mode' \(int\) is required and missing"):
        registry.get("odd").check_attrs({})


def test_inference_error_names_op_and_line(own_ops: None) -> None:
    def infer(X: Spec) -> Spec:
        raise InferenceError(f"X {X} should be a vector")

    define("odd(X) -> Out", infer=infer, grad=NOT_DIFFERENTIABLE)(lambda: None)
    block = fluid.Program().global_block()
    x = block.create_var(name="x", shape=[2, 3], dtype="float32")
    out = block.create_var(name="out")
    with pytest.raises(
        InferenceError, match=r"(?s)odd: X float32\[2, 3\] should be a vector\n.*x: float32\[2, 3\].*test_registry\.py"
    ):
        block.append_op("odd", {"X": x}, {"Out": out})


def test_inference_runs_once_for_what_it_depends_on(own_ops: None) -> None:
    asked: list[Any] = []

    def infer(X: Spec, Y: Spec | None, sizes: list[int], number: float, declared: Any) -> Spec:
        asked.append((X, Y, sizes, number, declared))
        return X if Y is None else Y

    define("odd(X, Y?) -> Out", infer=infer, grad=NOT_DIFFERENTIABLE, sizes=ints(), number=1.0, unread=0)(lambda: None)
    with fluid.program_guard(fluid.Program()):
        block = fluid.default_main_program().global_block()
        x, other, wide = fluid.data("x", [None, 2]), fluid.data("other", [None, 2], "int64"), fluid.data("wide", [None, 3])
        rows = fluid.data("rows", [None, 2], lod_level=1)

        def appended(attrs: dict[str, Any] | None = None, declared: Any = None, **inputs: Any) -> Any:
            out = block.create_var(name=fluid.unique_name.generate("out"), shape=declared)
            block.append_op("odd", {slot: [var] for slot, var in inputs.items()}, {"Out": [out]}, attrs)
            return out

        new = {
            "the first": lambda: appended(X=x),
            "another element type": lambda: appended(X=other),
            "another shape": lambda: appended(X=wide),
            "rows of sequences": lambda: appended(X=rows),
            "one more input": lambda: appended(X=x, Y=rows),
            "another attribute": lambda: appended({"number": 2.0}, X=x),
            "another list": lambda: appended({"sizes": [1, 2]}, X=x),
            "a declared shape": lambda: appended(declared=[5, 2], X=x),
        }
        for name, make in new.items():
            count = len(asked)
            first, again = make(), make()
            assert len(asked) == count + 1, name
            assert (again.shape, again.dtype, again.lod_level) == (first.shape, first.dtype, first.lod_level)
        appended({"unread": 3}, X=x)
        assert len(asked) == len(new)
        for _ in range(2):  # too much to keep
            appended({"sizes": list(range(1000))}, X=x)
        assert len(asked) == len(new) + 2


def test_slot_that_the_op_lacks() -> None:
    block = fluid.Program().global_block()
    x = block.create_var(name="x", shape=[2], dtype="float32")
    with pytest.raises(ProgramError, match=r"(?s)tanh has no input slot 'Y'; it has X.*test_registry\.py"):
        block.append_op("tanh", {"Y": x}, {"Out": x})
    with pytest.raises(ProgramError, match=r"(?s)tanh has no output slot 'Y'; it has Out"):
        block.append_op("tanh", {"X": x}, {"Y": x})


@each("inline", [False, True])
def test_a_rule_may_give_one_result_to_two_slots(inline: bool) -> None:
    op_type = f"twice_the_sum_{'inline' if inline else 'as_op'}"

    @registry.define(f"{op_type}(X, Y) -> Out", infer=registry.like("X"), inline_grad=inline)
    def rule(f: Any, dOut: Any) -> Any:
        """Twice the sum of X and Y."""
        gradient = dOut * 2.0
        return {"X": gradient, "Y": gradient}

    @kernel(op_type)
    def compute(xp: Any, X: Any, Y: Any, Out: Any) -> None:
        xp.multiply(X + Y, 2.0, out=Out)

    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        x, y = (fluid.data(name, [2], dtype="float64") for name in "xy")
        x.stop_gradient = y.stop_gradient = False
        cube = getattr(fluid.extend.ops(), op_type)(x, y) ** 3.0
        first = fluid.gradients(cube, [x, y])  # 6 z ** 2 for z = 2 (x + y)
        second = fluid.gradients(first[0], [x, y])  # 24 z
    program.verify()
    feed = {"x": np.array([1.0, 2.0]), "y": np.array([3.0, 5.0])}
    found = fluid.Executor().run(program, feed=feed, fetch_list=[*first, *second], scope=fluid.Scope())
    z = 2 * (feed["x"] + feed["y"])
    for value, expected in zip(found, [6 * z**2] * 2 + [24 * z] * 2, strict=True):
        np.testing.assert_allclose(value, expected)

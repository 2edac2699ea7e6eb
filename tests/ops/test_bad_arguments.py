"""Errors of ops and layers for senseless arguments: each sample of an op, with one thing changed."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from checks import Checks, each, some
from numeric import interpret
from samples import OPS, Sample, cast
from test_schema import OURS

import fluid
from fluid import layers
from fluid.errors import FluidError, FluidTypeError, InferenceError
from fluid.executor.binding.compiled import apply_op
from fluid.executor.kernels.table import KERNELS
from fluid.ir.checked import arguments_of
from fluid.ir.program import Program, program_guard
from fluid.opdef import registry
from fluid.opdef.registry import OpDef, Rule, choice, counted, ints, least, like, updated_input
from fluid.values.lod_array import array_of, lod_of, with_lod
from fluid.values.spec import Spec
from fluid.values.types import VarType, is_floating

ALLOWED = re.compile(
    r"\b(should|must|needs?|takes?|cannot|at least|at most|does not|do not|does not exist in|differ|outside|required|exactly"
    r"|is not|more than|fewer|against|but|has no|below|cast|give)\b"
)
"""How a message says what would have been right."""


@dataclass
class Mutation:
    """A sample with one argument changed."""

    what: str
    argument: str
    """The slot or attribute that was changed."""
    value: Any
    inputs: dict[str, Any]
    attrs: dict[str, Any]


# ------------------------------------------------------------------------------------------------------------- changes
def changed_arrays(array: Any) -> Iterator[tuple[str, Any]]:
    """An array with another element type, rank or extent."""
    kind, shape = array.dtype.kind, array.shape
    for other, dtype in (("f", "float32"), ("i", "int64"), ("b", "bool")):
        if kind != other:
            yield dtype, array.astype(dtype)
    if shape:
        yield "scalar", np.asarray(array.reshape(-1)[0] if array.size else np.zeros((), array.dtype))
        yield "no first dimension", array[0] if shape[0] else np.zeros(shape[1:], array.dtype)
        if len(shape) > 1:
            yield "no last dimension", array[..., 0] if shape[-1] else np.zeros(shape[:-1], array.dtype)
    yield "one dimension more", array[..., None]
    yield "one dimension before", array[None]
    for axis in range(len(shape)):
        yield f"axis {axis} longer", np.concatenate([array, np.take(array, [0], axis)], axis) if shape[axis] else array
        yield f"axis {axis} twice", np.concatenate([array, array], axis)
        yield f"axis {axis} empty", np.take(array, [], axis)


def changed_value(kind: str, value: Any) -> Iterator[Any]:
    """Values in place of an attribute's."""
    yield object()
    if kind in ("int", "long", "float", "float64", "bool", "scalar"):
        yield from ("text", [1, 2], {})
        if kind in ("int", "long"):
            yield from (100, -100, -1, 0, 2.5, 2**70, float("nan"))
        elif kind != "bool":
            yield from (-1.0, 0.0)
    elif kind == "string":
        yield from ("no such value", 3, ["text"], "")
    elif kind.endswith("s"):
        yield from (3, "text", [object()], ["text"])
        items = list(value or ())
        for changed in ([], items[:-1], [*items, *(items[-1:] or [1.0 if kind == "floats" else 1])]):
            if changed != items:
                yield changed
        if kind in ("ints", "longs"):
            for place in range(len(items)):
                for number in (100, -100, -1, 0):
                    if number != items[place]:
                        yield [*items[:place], number, *items[place + 1 :]]


def mutations(definition: OpDef, sample: Sample) -> Iterator[Mutation]:
    """The sample with one thing changed, in each way."""
    inputs = cast(sample.inputs, sample.dtypes[0])
    inputs = {slot: value for slot, value in inputs.items() if value is not None}
    for slot, value in inputs.items():
        first = value[0] if isinstance(value, list) else value
        for what, array in changed_arrays(first):
            lods = sample.lods.get(slot, ())
            lod = lods[0] if isinstance(value, list) and lods else lods
            if lod and (not array.ndim or array.shape[0] != first.shape[0]):
                continue  # no array of these sequences
            changed = with_lod(array, lod)
            others = (
                [with_lod(*pair) for pair in zip(value[1:], lods[1:] or [()] * len(value), strict=False)]
                if isinstance(value, list)
                else []
            )
            yield Mutation(
                what,
                slot,
                array,
                given(inputs, sample, {slot: [changed, *others] if isinstance(value, list) else changed}),
                sample.attrs,
            )
        if isinstance(value, list):
            yield Mutation("empty", slot, [], given(inputs, sample, {slot: []}), sample.attrs)
        if not definition.inputs[slot].optional:
            others = given(inputs, sample, {})
            del others[slot]
            yield Mutation("missing", slot, None, others, sample.attrs)
    full = definition.defaults(sample.attrs)
    for name, attr in definition.attrs.items():
        if attr.kind in ("block", "blocks"):
            continue
        for value in changed_value(attr.kind, full[name]):
            yield Mutation("attribute", name, value, given(inputs, sample, {}), {**sample.attrs, name: value})


def given(inputs: dict[str, Any], sample: Sample, changed: dict[str, Any]) -> dict[str, Any]:
    """`inputs` with their LoD, without the changed slots."""
    found = {}
    for slot, value in inputs.items():
        lods = sample.lods.get(slot, ())
        if isinstance(value, list):
            found[slot] = [with_lod(*pair) for pair in zip(value, lods or [()] * len(value), strict=True)]
        else:
            found[slot] = with_lod(value, lods)
    return {**found, **changed}


# ------------------------------------------------------------------------------------------------------------ verdicts
class Case:
    """A mutation appended to a program of its own, and run if that is taken."""

    def __init__(self, definition: OpDef, sample: Sample, mutation: Mutation, counts: dict[str, int]) -> None:
        self.mutation, self.definition = mutation, definition
        self.program = Program()
        block = self.program.global_block()
        self.feed: dict[str, Any] = {}
        inputs = {slot: self._data(slot, value) for slot, value in mutation.inputs.items()}
        self.outputs: dict[str, Any] = {}
        for name, slot in definition.outputs.items():
            source = updated_input(definition, name)
            if source in inputs:
                self.outputs[name] = inputs[source]
            elif slot.many:
                self.outputs[name] = [block.create_var(name=f"{name}_{i}") for i in range(counts.get(name, 1))]
            elif not slot.optional:
                self.outputs[name] = block.create_var(name=name, shape=sample.declared.get(name))
        self.inputs = inputs

    def _data(self, name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [self._data(f"{name}_{i}", item) for i, item in enumerate(value)]
        self.feed[name] = value
        array, lod = array_of(value), lod_of(value)
        shape = (-1, *array.shape[1:]) if lod else array.shape
        return self.program.global_block().create_var(name=name, shape=shape, dtype=array.dtype, lod_level=len(lod), is_data=True)

    def fault(self) -> str | None:
        """The fault of the op's answer to the mutation, or None."""
        block = self.program.global_block()
        try:
            block.append_op(self.definition.type, self.inputs, self.outputs, self.mutation.attrs)
        except FluidError as error:
            return self.fault_of_text(str(error))
        except Exception as error:
            return f"{type(error).__name__} while building: {error}"
        wanted = [var for value in self.outputs.values() for var in (value if isinstance(value, list) else [value])]
        try:
            found = interpret(self.program, self.feed, wanted)
        except FluidError as error:
            cause = error.__cause__
            by_value = any(-1 in var.shape for var in wanted)  # the shape is not known before, nor whether it can be
            return (
                None
                if isinstance(cause, FluidError) or by_value or "empty" in self.mutation.what
                else f"{type(cause).__name__} while running: {cause}"
            )
        except Exception as error:
            return f"{type(error).__name__} while running: {error}"
        for var, value in zip(wanted, found, strict=True):
            if isinstance(value, np.ndarray) and var.has_shape:
                same = len(var.shape) == value.ndim and all(a in (-1, b) for a, b in zip(var.shape, value.shape, strict=True))
                if not same:
                    return f"{var.name} was inferred as {var.shape} and is {value.shape}"
        return None

    def fault_of_gradient(self) -> str | None:
        """Python's own error in the gradient of the op, if the op runs; None if the gradient runs or is refused."""
        block = self.program.global_block()
        rule = self.definition.rule
        assert isinstance(rule, Rule)
        try:
            block.append_op(self.definition.type, self.inputs, self.outputs, self.mutation.attrs)
            targets = self.floats(self.outputs, rule.cotangents)
            interpret(self.program, self.feed, targets)
        except FluidError:
            return None
        try:
            gradients = fluid.gradients(targets, self.floats(self.inputs, rule.wrt)) if targets else []
            interpret(self.program, self.feed, [gradient for gradient in gradients if gradient is not None])
        except FluidError as error:
            cause = error.__cause__
            return None if cause is None or isinstance(cause, FluidError) else f"{type(cause).__name__}: {cause}"
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None

    def floats(self, values: dict[str, Any], slots: Sequence[str]) -> list[Any]:
        """The variables of floating numbers in some slots."""
        of_slots = [values[slot] if isinstance(values[slot], list) else [values[slot]] for slot in slots if slot in values]
        return [var for variables in of_slots for var in variables if var.has_dtype and is_floating(var.dtype)]

    def fault_of_text(self, text: str) -> str | None:
        """The missing part of a message."""
        head, _, tail = text.partition("\n")
        mutation, definition = self.mutation, self.definition
        if definition.type not in head:
            return f"the message does not name the op: {head}"
        if f"made at: {__file__}:" not in tail:
            return f"the message does not say where: {text}"
        if not any(names(argument, head) for argument in (*definition.inputs, *definition.attrs)):
            return f"the message does not name an argument: {head}"
        said = mutation.what != "attribute" or mutation.value != definition.attrs[mutation.argument].default
        if said and not names(mutation.argument, text) and mutation.what not in ("missing", "empty"):
            return f"the message does not name {mutation.argument}: {head}"
        if (
            said
            and mutation.what == "attribute"
            and not any(item in text for item in (str(mutation.value), repr(mutation.value)))
        ):
            return f"the message does not show {mutation.value!r}: {head}"
        if "do not fit together:" in head:
            return head
        if not ALLOWED.search(head):
            return f"the message does not say what is allowed: {head}"
        return None


def counts_of(op_type: str, sample: Sample) -> dict[str, int]:
    """How many variables each output of many has."""
    inputs = cast({slot: value for slot, value in sample.inputs.items() if value is not None}, sample.dtypes[0])
    outputs = apply_op(op_type, given(inputs, sample, {}), sample.attrs)
    return {slot: len(value) for slot, value in outputs.items() if isinstance(value, list)}


def names(argument: str, text: str) -> bool:
    """Whether a text has the name of an argument as a word."""
    return re.search(rf"(?<!\w){re.escape(argument)}(?!\w)", text) is not None


def distinct(samples: list[Sample]) -> list[Sample]:
    """The samples with different slots and attributes."""
    found: dict[Any, Sample] = {}
    for sample in samples:
        sizes = [np.size(item) for value in sample.inputs.values() for item in (value if isinstance(value, list) else [value])]
        if min(sizes, default=1):
            found.setdefault((tuple(sample.inputs), tuple(sorted(sample.attrs))), sample)
    return list(found.values())


OPERATORS = [
    op_type for op_type in sorted(OPS) if op_type in KERNELS and op_type not in OURS and not op_type.endswith("_grad_grad")
]
"""Those that only gradient rules make are left out."""


ONLY_WHEN_RUN = {
    "ctc_align": {"Input"},
    "sample_logits": {"num_samples"},
    "set_value": {"values", "starts", "ends", "steps"},
    "unsqueeze2": {"AxesTensor"},
    "linear_chain_crf": {"Emission"},
    "crf_decoding": {"Emission"},
}
"""Arguments of which some values are refused by the kernel alone, as the op runs: in its words, with the op and the line."""


@pytest.mark.random
@each("op_type", some(OPERATORS))
def test_op(op_type: str) -> None:
    check_samples(op_type, 1)


@pytest.mark.slow
@each("op_type", OPERATORS)
def test_more_samples(op_type: str) -> None:
    check_samples(op_type, 3)


def check_samples(op_type: str, count: int) -> None:
    """Each changed sample runs with the inferred shapes, or is refused with an error that names the fault."""
    definition = registry.get(op_type)
    faults = []
    for sample in distinct(OPS[op_type])[:count]:
        counts = counts_of(op_type, sample)
        for mutation in mutations(definition, sample):
            if mutation.argument in ONLY_WHEN_RUN.get(op_type, ()):
                continue
            fault = Case(definition, sample, mutation, counts).fault()
            if fault is not None:
                faults.append(f"{mutation.argument}: {mutation.what} ({shown(mutation)}): {fault}")
    assert not faults, "\n".join(faults)


def shown(mutation: Mutation) -> str:
    value = mutation.value
    return repr(value) if mutation.what == "attribute" else f"{np.asarray(value).dtype}{np.shape(value)}"


@each("op_type", [op_type for op_type in sorted(OPS) if op_type in OURS and isinstance(registry.get(op_type).rule, Rule)])
def test_gradients_of_ops_that_gradient_rules_make(op_type: str) -> None:
    """Such ops, which a program file may hold, refuse inputs that their gradients do not fit."""
    definition, faults = registry.get(op_type), []
    for sample in distinct(OPS[op_type])[:2]:
        counts = counts_of(op_type, sample)
        for mutation in mutations(definition, sample):
            fault = Case(definition, sample, mutation, counts).fault_of_gradient()
            if fault is not None:
                faults.append(f"{mutation.argument}: {mutation.what} ({shown(mutation)}): {fault}")
    assert not faults, "\n".join(faults)


def test_a_diagonal_is_of_a_square() -> None:
    """The kernel writes diagonals through strides, which would run beyond the end of a shape that is not square."""
    for equation, shape in (
        ("i->ii", (8, 3)),
        ("i->ii", (3, 8)),
        ("i->iji", (8, 2, 3)),
        ("ij->ij", (8, 3, 3)),
        ("i->...i", (8, 8)),
    ):
        with pytest.raises(InferenceError, match=r"has the sizes|does not name"):
            apply_op("einsum_like", {"Operands": [np.ones(8)], "Like": np.ones(shape)}, {"equation": equation})


# ----------------------------------------------------------------------------------------------------- what is declared
def test_what_a_signature_says_of_inputs() -> None:
    """Element types and extents, which names tie together; unknown extents fit anything."""

    @registry.define(
        "argument_probe(X: float[N, ..., C], Y*?: int|bool[N, 1]) -> Out", infer=like("X"), kind=least(1, counted(ints(1)))
    )
    def probe(f: Any, dOut: Any) -> Any:
        """For this test."""
        return {"X": dOut}

    try:
        assert [slot.describe() for slot in probe.inputs.values()] == ["float[N, ..., C]", "int or bool[N, 1]"]
        x, y = Spec((2, 5, 3), VarType.FP32), Spec((2, 1), VarType.INT64)
        attrs = probe.defaults({})
        for fitting in ([y], [y, y.with_dtype(VarType.BOOL)], [y.with_shape((-1, 1))], [y.with_shape((2, -1))]):
            assert probe.infer_specs({"X": x, "Y": fitting}, attrs) == {"Out": x}
        for inputs, said in (
            (
                {"X": x.with_dtype(VarType.INT32)},
                "X is int32[2, 5, 3]; it should be float[N, ..., C]; convert it by layers.cast(x, 'float32')",
            ),
            ({"X": x.with_shape((2,))}, "X is float32[2]; it should be float[N, ..., C]"),
            ({"X": x, "Y": [y, x]}, "Y is float32[2, 5, 3]; it should be int or bool[N, 1]"),
            ({"X": x, "Y": [y.with_shape((2, 2))]}, "Y is int64[2, 2]; it should be int or bool[N, 1]"),
            (
                {"X": x, "Y": [y.with_shape((4, 1))]},
                "Y is int64[4, 1]; it should be int or bool[N, 1], where N is 2 as in X float32[2, 5, 3]",
            ),
        ):
            with pytest.raises(InferenceError) as caught:
                probe.infer_specs(inputs, attrs)
            assert str(caught.value) == said
    finally:
        for name in ("argument_probe", "argument_probe_grad"):
            del registry._ops[name]


@each(
    ("attr", "value", "said"),
    [
        (choice("SAME", "VALID"), "same", "'same' is not 'SAME' or 'VALID'"),
        (least(1, 2), 0, "0 is below 1, the least that is allowed"),
        (least(0, ints(1, 2)), [3, -1], r"\[3, -1\] is below 0"),
        (counted(ints(1, 1)), [1], r"\[1\] does not have 2 items"),
        (counted(ints(), 0, 2), [1], r"\[1\] does not have 0 or 2 items"),
        (ints(), [2**31], "2147483648 does not fit into 32 bits"),
        (ints(), "12", "'12' is not a list"),
        (least(0, 1), "1", "'1' is not an integer"),
    ],
)
def test_what_an_attribute_refuses(attr: Any, value: Any, said: str) -> None:
    attr.check(attr.default)
    with pytest.raises((TypeError, ValueError, OverflowError), match=said):
        attr.check(value)


# -------------------------------------------------------------------------------------------------------------- layers
LAYERS = {
    name: layer
    for name, layer in sorted(vars(layers).items())
    if inspect.isfunction(layer) and not name.startswith("_") and layer.__module__.startswith("fluid.layers")
}


def stand_ins(annotation: str, variable: Callable[[], Any]) -> Any:
    """A value of an annotated kind, None where this is not known."""
    kinds = {
        "Variable": variable,
        "int": lambda: 2,
        "Positive": lambda: 2,
        "float": lambda: 0.5,
        "bool": lambda: True,
        "str": lambda: "x",
    }
    for part in annotation.split(" | "):
        if part in kinds:
            return kinds[part]()
        inner = part.removeprefix("Sequence[").removesuffix("]")
        if part != inner and inner in kinds:
            return [kinds[inner](), kinds[inner]()]
    return None


def check_annotations(name: str) -> None:
    """A layer refuses what its annotations do not allow."""
    layer = LAYERS[name]
    for argument, (what, holds, *_) in arguments_of(layer.__wrapped__).items():
        wrong = object()
        if not what:
            continue
        assert not holds(wrong)
        with pytest.raises(FluidTypeError) as caught:
            layer(**{argument: wrong})
        at = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
        assert str(caught.value).startswith(f"{name}: {argument} should be {what}, not object\n")
        assert f"made at: {__file__}:{at} in " in str(caught.value)


def check_any_tensors(name: str, dtype: str) -> None:
    """A layer takes tensors of some rank and element type, or its error at the call says which ones it takes."""
    layer = LAYERS[name]
    faults = []
    for shape in ((), (3,), (3, 2), (2, 3, 4), (2, 3, 4, 4), (1, 2, 3, 4, 4), (-1, 1)):
        program = Program()
        with program_guard(program, Program()):

            def variable(shape: Any = shape, program: Program = program) -> Any:
                return program.global_block().create_var(shape=shape, dtype=dtype)

            arguments = {
                argument: stand_ins(parameter.annotation, variable)
                for argument, parameter in inspect.signature(layer).parameters.items()
                if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            }
            if any(value is None for value in arguments.values()):
                return
            try:
                layer(**arguments)
            except FluidError as error:
                text = str(error)
                if not names(name, text.partition("\n")[0]) or f"made at: {__file__}:" not in text:
                    faults.append(f"{list(shape)}: {text}")
            except Exception as error:
                faults.append(f"{list(shape)}: {type(error).__name__}: {error}")
    assert not faults, "\n".join(faults)


@each("name", LAYERS)
def test_layer(name: str) -> None:
    with Checks() as check:
        with check(f"{name}, annotations"):
            check_annotations(name)
        for dtype in ("float32", "int64", "bool"):
            with check(f"{name}, any tensors, {dtype}"):
                check_any_tensors(name, dtype)

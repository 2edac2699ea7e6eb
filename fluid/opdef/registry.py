"""What an op is: slots, attributes, inference and gradient rule, said once.

An op is defined by a signature and a function, its gradient rule::

    @define("tanh(X) -> Out", infer=like("X"))
    def tanh(f, Out, dOut):
        \"\"\"Hyperbolic tangent of each element.\"\"\"
        return {"X": dOut * (1.0 - Out * Out)}

In the signature, ``X*`` is a slot of many variables, ``X?`` may be empty, ``Out~`` is an output that only the op's own
gradient reads, and ``Out&`` is an output that the op updates: it reads its value too. Attributes follow as keywords.

What an input has to be stands after a colon, element types first, ``int``, ``float`` or ``bool`` or several as ``int|float``,
then extents, as in ``batch_norm(X: float[N, C, ...], Scale: float[C], Bias: float[C])``. An extent is a number, a name, which
stands for the same number in all inputs, or ``...`` for any extents. What breaks this never reaches inference.

A rule names what it reads: input and output slots by name, the cotangent of the output ``Out`` as ``dOut``, attributes
by name or, as a dict, all of them as ``attrs``, ``wanted`` for the set of input slots whose gradients are wanted, and
first ``f``, the namespace of ops. A cotangent with a default of ``None`` may be absent (zero); others are made zeros when
they are. An input with a default of ``None`` may be missing from gradient ops in files. A slot annotated `ShapeOnly` is read for
its shape and dtype only. The rule returns input slot -> gradient; a function in place of a gradient is called only if that
gradient is wanted.

An op whose gradient is no short formula is decomposed instead: ``define(..., decomposition=fn)``, where ``fn(f, values, attrs)``
builds the op from ordinary ones and returns output slot -> value. Of the decorated function only the parameters count,
which say what the gradient op reads, all inputs that have a gradient among them. That op is computed by a kernel and
differentiated through its decomposition (`fluid.autodiff.expand`). `values` holds what the gradient op reads but for
cotangents, by slot, so that outputs without a gradient (what was drawn, say) can be read again.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import AttributeRuleError, InferenceError, ProgramError, did_you_mean
from ..values.types import VarType, is_floating

if TYPE_CHECKING:
    from ..values.spec import Spec
    from .inference import OpNamespace

__all__ = [
    "EMPTY",
    "NOT_DIFFERENTIABLE",
    "REGION",
    "ZERO_GRADIENT",
    "Attr",
    "OpDef",
    "Rule",
    "ShapeOnly",
    "Slot",
    "all_ops",
    "block",
    "choice",
    "counted",
    "define",
    "find",
    "floats",
    "get",
    "grad_slot",
    "ints",
    "least",
    "like",
    "long",
    "longs",
    "parameters_of",
    "required",
    "strings",
    "updated_input",
]


class ShapeOnly:
    """Annotation of a rule's parameter: only the shape and dtype of this slot are read, so its value need not be kept."""


_SHAPE_ONLY = (ShapeOnly, "ShapeOnly", "Like")
"""How annotations say it; `Like` is its name of before."""


class _NoGradient:
    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


NOT_DIFFERENTIABLE = _NoGradient("NOT_DIFFERENTIABLE")
"""Says that an op has no gradient: a gradient that would have to flow through it is an error."""
ZERO_GRADIENT = _NoGradient("ZERO_GRADIENT")
"""Says that an op's outputs do not change with its inputs (or are not numbers to differentiate): no gradient flows."""

REGION = _NoGradient("REGION")
"""Says that an op owns a block, into which `fluid.backward` recurses."""

EMPTY = "@EMPTY@"
"""Stands on the wire for 'no variable' at a place in a list of names."""


def grad_slot(slot: str) -> str:
    """The slot of a gradient op that holds the gradient of `slot`."""
    return slot + "@GRAD"


class Slot(NamedTuple):
    """A named place for variables of an op."""

    name: str
    many: bool = False
    optional: bool = False
    intermediate: bool = False
    updated: bool = False
    shape_only: bool = False
    """Only shape and dtype are read."""
    kinds: tuple[str, ...] = ()
    """Of elements: ``int``, ``float``, ``bool``; any by default."""
    extents: tuple[str, ...] | None = None
    """Numbers and names of extents, and ``...``, as the signature has them; any by default."""

    @property
    def says(self) -> str:
        """What a variable here should be, such as ``int[N, 1]``."""
        return " or ".join(self.kinds) + (f"[{', '.join(self.extents)}]" if self.extents is not None else "")


# ---------------------------------------------------------------------------------------------------- attributes
class Attr(NamedTuple):
    """An attribute: its kind on the wire (``int``, ``float``, ``string``, ``ints``, ..., ``block``) and its default."""

    kind: str
    default: Any = None
    required: bool = False
    choices: tuple[Any, ...] = ()
    """The only values that there are."""
    least: float | None = None
    """The least number, in lists too."""
    counts: tuple[int, ...] = ()
    """How many items a list may have."""
    element: bool = False
    """The number of an element type, or the default (-1 says nothing)."""

    def check(self, value: Any) -> Any:
        """`value` in this kind's Python form; ``TypeError``, ``ValueError`` or ``OverflowError`` where it has none."""
        found = _CHECKS[self.kind](value)
        if self.element and found != self.default and found not in VarType.__members__.values():
            raise ValueError(f"{found} is not the number of an element type, such as 5 for float32")
        if self.choices and found not in self.choices:
            raise ValueError(f"{found!r} is not {' or '.join(map(repr, self.choices))}")
        if self.counts and len(found) not in self.counts:
            raise ValueError(f"{found!r} does not have {' or '.join(map(str, self.counts))} items")
        if self.least is not None and any(item < self.least for item in (found if type(found) is list else (found,))):
            raise ValueError(f"{found!r} is below {self.least}, the least that is allowed")
        return found


def _to_int(value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, (str, bytes)) or not (hasattr(value, "__index__") or hasattr(value, "__int__")):
        raise TypeError(f"{value!r} is not a whole number")
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{value!r} is not a whole number")
    return int(value)


def _to_float(value: Any) -> float:
    if isinstance(value, (str, bytes)) or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _within(bits: int) -> Callable[[Any], int]:
    limit = 1 << (bits - 1)

    def check(value: Any) -> int:
        number = _to_int(value)
        if not -limit <= number < limit:
            raise OverflowError(f"{number} does not fit into {bits} bits")
        return number

    return check


_to_int32, _to_int64 = _within(32), _within(64)


def _to_bool(value: Any) -> bool:
    if value is True or value is False:
        return value
    if not isinstance(value, (str, list)) and value in (0, 1):
        return bool(value)
    raise ValueError(f"{value!r} is not a bool")


def _to_string(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(f"{value!r} is not a string")


def _each(check: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
    def check_all(value: Any) -> list[Any]:
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise TypeError(f"{value!r} is not a list")
        return [check(item) for item in value]

    return check_all


def _same(value: Any) -> Any:
    return value


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "int": _to_int32,
    "long": _to_int64,
    "float": _to_float,
    "float64": _to_float,
    "string": _to_string,
    "bool": _to_bool,
    "ints": _each(_to_int32),
    "longs": _each(_to_int64),
    "floats": _each(_to_float),
    "float64s": _each(_to_float),
    "strings": _each(_to_string),
    "bools": _each(_to_bool),
    "scalar": _same,
    "scalars": _each(_same),
    "block": _same,
    "blocks": _each(_same),
}
_KIND_OF = {bool: "bool", int: "int", float: "float", str: "string"}


def ints(*default: int) -> Attr:
    """A list of 32-bit integers."""
    return Attr("ints", list(default))


def longs(*default: int) -> Attr:
    """A list of 64-bit integers."""
    return Attr("longs", list(default))


def floats(*default: float) -> Attr:
    """A list of floats."""
    return Attr("floats", list(default))


def strings(*default: str) -> Attr:
    """A list of strings."""
    return Attr("strings", list(default))


def long(default: int) -> Attr:
    """A 64-bit integer."""
    return Attr("long", default)


def choice(default: Any, *others: Any) -> Attr:
    """One of these strings or numbers, the first by default."""
    return Attr(_KIND_OF[type(default)], default, choices=(default, *others))


def least(minimum: float, attr: Any) -> Attr:
    """An attribute that is not less than `minimum`, nor is any of its items."""
    return _as_attr(attr)._replace(least=minimum)


def counted(attr: Attr, *counts: int) -> Attr:
    """A list of so many items, by default as many as its default has."""
    return attr._replace(counts=counts or (len(attr.default),))


def _as_attr(value: Any, element: bool = False) -> Attr:
    attr = value if isinstance(value, Attr) else Attr(_KIND_OF[type(value)], value)
    return attr._replace(element=True) if element else attr


def block() -> Attr:
    """A sub-block of the program."""
    return Attr("block", required=True)


def required(kind: str) -> Attr:
    """An attribute without default."""
    return Attr(kind, required=True)


# -------------------------------------------------------------------------------------------------- gradient rules
def parameters_of(fn: Callable[..., Any]) -> dict[str, tuple[Any, bool]]:
    """Parameter -> its annotation (`inspect.Parameter.empty` if it has none), and whether it has a default.

    Those of plain functions are read off the code: `inspect.signature` takes six times as long, and there are many to define.
    """
    if type(fn) is not FunctionType or fn.__dict__ or fn.__code__.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        found = inspect.signature(fn).parameters
        return {name: (each.annotation, each.default is not each.empty) for name, each in found.items()}
    code = fn.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    first = code.co_argcount - len(fn.__defaults__ or ())
    optional = {*names[first : code.co_argcount], *(fn.__kwdefaults__ or ())}
    annotations, nothing = fn.__annotations__, inspect.Parameter.empty
    return {name: (annotations.get(name, nothing), name in optional) for name in names}


class Rule:
    """A gradient rule and what its signature says that it reads."""

    __slots__ = ("all_attrs", "attrs", "cotangents", "fn", "inputs", "optional", "outputs", "takes_wanted", "wrt")

    def __init__(self, fn: Callable[..., Mapping[str, Any]], definition: OpDef, wrt: tuple[str, ...] | None) -> None:
        self.fn = fn
        self.inputs: dict[str, bool] = {}
        self.outputs: dict[str, bool] = {}
        self.cotangents: list[str] = []
        self.optional: set[str] = set()
        self.attrs: list[str] = []
        self.all_attrs: tuple[str, ...] = ()
        self.takes_wanted = False
        for position, (name, (annotation, has_default)) in enumerate(parameters_of(fn).items()):
            shape_only = annotation in _SHAPE_ONLY
            if position == 0:
                continue
            if name == "wanted":
                self.takes_wanted = True
            elif name == "attrs":
                self.all_attrs = tuple(definition.attrs)
            elif name in definition.inputs:
                self.inputs[name] = shape_only
                if has_default:
                    self.optional.add(name)
            elif name in definition.outputs:
                self.outputs[name] = shape_only
            elif name[:1] == "d" and name[1:] in definition.outputs:
                self.cotangents.append(name[1:])
                if has_default:
                    self.optional.add(name[1:])
            elif name.rstrip("_") in definition.attrs:  # lambda_ reads the attribute lambda
                self.attrs.append(name)
            else:
                raise ProgramError(f"the gradient rule of {definition.type} names {name!r}, which is no slot or attribute of it")
        updated = tuple(slot.name for slot in definition.outputs.values() if slot.updated)
        self.wrt = wrt if wrt is not None else tuple(definition.inputs) + updated

    def __call__(self, f: OpNamespace, values: Mapping[str, Any], attrs: Mapping[str, Any], wanted: set[str]) -> dict[str, Any]:
        """The wanted gradients by input slot. `values` maps slots, and ``Out@GRAD`` for cotangents, to values."""
        kwargs: dict[str, Any] = {name: values.get(name) for name in self.inputs}
        kwargs.update((name, values.get(name)) for name in self.outputs)
        kwargs.update(("d" + name, values.get(grad_slot(name))) for name in self.cotangents)
        kwargs.update((name, attrs[name.rstrip("_")]) for name in self.attrs)
        if self.all_attrs:
            kwargs["attrs"] = {name: attrs[name] for name in self.all_attrs}
        if self.takes_wanted:
            kwargs["wanted"] = wanted
        found = self.fn(f, **kwargs)
        if found is None:
            raise ProgramError(f"{self.fn.__name__} is decomposed and has no gradient rule, so its gradient needs a kernel")
        return {slot: value() if callable(value) else value for slot, value in found.items() if slot in wanted}


# ------------------------------------------------------------------------------------------------------ definitions
@dataclass
class OpDef:
    """One op: its slots, attributes, inference, gradient and doc."""

    type: str
    inputs: dict[str, Slot]
    outputs: dict[str, Slot]
    attrs: dict[str, Attr]
    infer: Callable[..., Any] | None = None
    rule: Rule | _NoGradient | None = None
    grad_type: str = ""
    """The type of the gradient op, ``type_grad`` but for few."""
    inline_grad: bool = False
    """The gradient is written as the rule's ordinary ops, not as one ``type_grad`` op (as Paddle has it for this op)."""
    decomposition: Callable[..., Mapping[str, Any]] | None = None
    """Builds the op from ordinary ones, where the gradient is no short formula; see the module's text."""
    sparse_grad: str = ""
    """The input slot whose gradient is a `SelectedRows` where the attribute ``is_sparse`` is set."""
    constants: tuple[str, ...] = ()
    """Input slots on which the result depends, and to which no gradient flows all the same."""
    region: Callable[[Any], Any] | None = None
    """How values pass through the block that the op owns: a function from an op to `fluid.ir.regions.Region`."""
    gradient_of: str = ""
    """Of a gradient op that owns a block: the type of the op that it belongs to."""
    lod_aware: bool = False
    """Inference says which sequences the outputs hold; for other ops, each output has those of the first input that has
    some and as many rows."""
    doc: str = ""
    module: str = ""
    """Where it is defined."""
    forward: OpDef | None = None
    """Of a gradient op: the op whose rule it stands for."""
    infer_reads: tuple[str, ...] = field(default=(), repr=False)
    typed: tuple[Slot, ...] = field(init=False, repr=False)
    """The inputs of which the signature says what they should be."""

    def __post_init__(self) -> None:
        slots = self.inputs.values() if self.forward is None else ()
        self.typed = tuple(slot for slot in slots if slot.kinds or slot.extents is not None)

    def defaults(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """`attrs` completed with the defaults of this definition."""
        full = {name: attr.default for name, attr in self.attrs.items()}
        full.update(attrs)
        return full

    def check_attrs(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """`attrs` in their Python forms; an `AttributeRuleError` names one that has no legal value or is missing."""
        checked = {}
        for name, value in attrs.items():
            attr = self.attrs.get(name)
            if attr is not None:
                try:
                    value = attr.check(value)
                except (TypeError, ValueError, OverflowError) as error:
                    text = f"{self.type}: attribute {name!r} should be of kind {attr.kind}: {error}"
                    raise AttributeRuleError(text if repr(value) in text else f"{text}, in {value!r}") from None
            checked[name] = value
        for name, attr in self.attrs.items():
            if attr.required and name not in checked:
                raise AttributeRuleError(f"{self.type}: attribute {name!r} ({attr.kind}) is required and missing")
        return checked

    def check_inputs(self, inputs: Mapping[str, Any]) -> None:
        """`InferenceError` where a `Spec` is not what the signature says of its slot."""
        known: dict[str, tuple[int, str]] = {}
        for slot in self.typed:
            value = inputs.get(slot.name)
            if value is None:
                continue
            for spec in value if slot.many else (value,):
                if spec is None:
                    continue
                if slot.kinds and spec.dtype not in _ELEMENTS[slot.kinds]:
                    raise InferenceError(f"{slot.name} is {spec}; it should be {slot.says}")
                if slot.extents is not None and spec.type is VarType.LOD_TENSOR:
                    _match(slot, spec, known)

    def _naming_inputs(self, error: InferenceError, inputs: Mapping[str, Any]) -> InferenceError:
        """`error`; where it talks about shapes that could be any input's, with what each of them is."""
        text = str(error)
        if set(re.findall(r"\w+", text)).intersection(inputs):
            return error
        shown = (
            f"{slot} is {', '.join(map(str, value)) if isinstance(value, list) else value}"
            for slot, value in inputs.items()
            if value is not None and slot in self.inputs
        )
        return InferenceError("; ".join([str(text), *filter(None, [", ".join(shown)])]))

    def infer_specs(
        self,
        inputs: Mapping[str, Any],
        attrs: Mapping[str, Any],
        declared: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Output slot -> `Spec` (or list of them, for slots of many).

        `inputs` maps each non-empty slot to a `Spec` or a list; `attrs` must be complete (see `defaults`). `declared`
        holds what is already known of the outputs, for ops whose output a declaration can settle, such as a full
        reduction, of shape ``[1]`` in Fluid 1.x and ``[]`` in Paddle 2.6.
        """
        if self.typed:
            self.check_inputs(inputs)
        if self.infer is None:
            return {}
        kwargs: dict[str, Any] = {}
        for name in self.infer_reads:
            if name in self.inputs:
                kwargs[name] = inputs.get(name)
            elif name in self.attrs:
                kwargs[name] = attrs[name]
            elif name == "declared":
                kwargs[name] = declared or {}
            elif name == "inputs":
                kwargs[name] = inputs
            elif name == "attrs":
                kwargs[name] = attrs
        try:
            found = self.infer(**kwargs)
        except InferenceError as error:
            raise self._naming_inputs(error, inputs) from None
        if isinstance(found, dict):
            return found
        if not isinstance(found, tuple):
            found = (found,)
        return dict(zip(self.outputs, found, strict=False))


class _Elements(dict[tuple[str, ...], frozenset[VarType]]):
    """Kinds of elements, as a signature has them -> the element types."""

    def __missing__(self, kinds: tuple[str, ...]) -> frozenset[VarType]:
        numbers = (VarType.INT8, VarType.UINT8, VarType.INT16, VarType.INT32, VarType.INT64, VarType.SIZE_T)
        each = {"int": numbers, "bool": (VarType.BOOL,), "float": tuple(filter(is_floating, VarType))}
        found = self[kinds] = frozenset(dtype for kind in kinds for dtype in each[kind])
        return found


_ELEMENTS = _Elements()


def _match(slot: Slot, spec: Spec, known: dict[str, tuple[int, str]]) -> None:
    """Hold a shape against the extents of its slot; `known` has what names stand for, and as what input says."""
    names, shape = slot.extents or (), spec.shape
    if "..." in names:
        place = names.index("...")
        after = len(names) - place - 1
        fits = len(shape) >= len(names) - 1
        pairs = [*zip(names[:place], shape, strict=False), *(zip(names[-after:], shape[-after:], strict=False) if after else ())]
    else:
        fits = len(shape) == len(names)
        pairs = list(zip(names, shape, strict=False))
    if not fits:
        raise InferenceError(f"{slot.name} is {spec}; it should be {slot.says}")
    for name, extent in pairs:
        if extent < 0:
            continue
        if name.isdigit():
            if extent != int(name):
                raise InferenceError(f"{slot.name} is {spec}; it should be {slot.says}")
            continue
        expected, source = known.setdefault(name, (extent, f"{slot.name} {spec}"))
        if expected != extent:
            raise InferenceError(f"{slot.name} is {spec}; it should be {slot.says}, where {name} is {expected} as in {source}")


_ELEMENT_ATTRS = ("dtype", "in_dtype", "out_dtype")

_ops: dict[str, OpDef] = {}
_SIGNATURE = re.compile(r"\s*(\w+)\s*\(([^)]*)\)\s*->\s*(.*)")
_SLOT = re.compile(r"([\w@]+)([*?~&]*)(?:\s*:\s*([a-z|]*)\s*(?:\[([^]]*)\])?)?$")
_COMMA = re.compile(r",(?![^\[]*\])")


def _parse_slots(text: str, where: str) -> dict[str, Slot]:
    slots = {}
    for part in filter(None, (part.strip() for part in _COMMA.split(text))):
        slot = _parse_slot(part)
        if slot is None:
            raise ProgramError(
                f"{where}: {part!r} is not a slot such as X, X*, X?, Out~ or Out&, with what it takes as in X: float[N, C]"
            )
        slots[slot.name] = slot
    return slots


@cache  # most ops have an X and an Out
def _parse_slot(text: str) -> Slot | None:
    match = _SLOT.match(text)
    if match is None:
        return None
    name, marks, kinds, extents = match.groups()
    return Slot(
        name,
        "*" in marks,
        "?" in marks,
        "~" in marks,
        "&" in marks,
        kinds=tuple(filter(None, (kinds or "").split("|"))),
        extents=None if extents is None else tuple(filter(None, (item.strip() for item in extents.split(",")))),
    )


def define(
    signature: str,
    *,
    infer: Callable[..., Any] | None = None,
    grad: _NoGradient | None = None,
    wrt: Iterable[str] | None = None,
    inline_grad: bool = False,
    grad_type: str = "",
    decomposition: Callable[..., Mapping[str, Any]] | None = None,
    shape_only: Iterable[str] = (),
    constants: Iterable[str] = (),
    region: Callable[[Any], Any] | None = None,
    gradient_of: str = "",
    lod_aware: bool = False,
    sparse_grad: str = "",
    **attrs: Any,
) -> Callable[[Callable[..., Any]], OpDef]:
    """Define an op; decorates its gradient rule, whose docstring documents the op.

    Args:
        signature: ``"type(X, Y?) -> Out, Mask~"``, see the module's text.
        infer: function of input slots (as `Spec`), attributes and ``declared`` by name, giving the outputs' specs.
        grad: `NOT_DIFFERENTIABLE` or `ZERO_GRADIENT`, where there is no rule; the decorated function is then only its doc.
        wrt: input slots that have a gradient; all of them by default.
        inline_grad: write the rule's ops themselves on the wire, not one gradient op.
        grad_type: the type of the gradient op, where it is not ``type_grad``.
        decomposition: builds the op from ordinary ones, instead of a rule; see the module's text.
        shape_only: input slots of which only shape, dtype and sequences are read.
        constants: input slots without a gradient on which the result depends (see `OpDef`).
        region, gradient_of: of an op that owns a block (see `OpDef`).
        lod_aware: `infer` says which sequences the outputs hold (see `OpDef`).
        sparse_grad: the input slot whose gradient is sparse if ``is_sparse`` (see `OpDef`).
        attrs: attributes, as defaults (bool, int, float, str) or as `ints`, `longs`, `required`, ...
    """
    match = _SIGNATURE.match(signature)
    if match is None:
        raise ProgramError(f"{signature!r} is not a signature such as 'scale(X) -> Out'")
    name, ins, outs = match.groups()
    inputs = _parse_slots(ins, name)
    for slot in shape_only:
        inputs[slot] = inputs[slot]._replace(shape_only=True)
    definition = OpDef(
        type=name,
        inputs=inputs,
        outputs=_parse_slots(outs, name),
        attrs={key: _as_attr(value, key in _ELEMENT_ATTRS) for key, value in attrs.items()},
        infer=infer,
        grad_type=grad_type or name + "_grad",
        inline_grad=inline_grad,
        decomposition=decomposition,
        constants=tuple(constants),
        region=region,
        gradient_of=gradient_of,
        lod_aware=lod_aware,
        sparse_grad=sparse_grad,
    )
    if infer is not None:
        definition.infer_reads = tuple(parameters_of(infer))

    def register(fn: Callable[..., Any]) -> OpDef:
        definition.doc = inspect.getdoc(fn) or ""
        definition.module = fn.__module__
        if grad is not None:
            definition.rule = grad
        elif parameters_of(fn):
            definition.rule = Rule(fn, definition, tuple(wrt) if wrt is not None else None)
        add(definition)
        return definition

    return register


def add(definition: OpDef) -> None:
    """Put a definition, and the one of its gradient op, into the registry."""
    if definition.type in _ops:
        raise ProgramError(f"the op {definition.type!r} is already defined")
    _ops[definition.type] = definition
    if isinstance(definition.rule, Rule) and not definition.inline_grad:
        grad = _grad_definition(definition, definition.rule)
        _ops[grad.type] = grad


def _grad_definition(forward: OpDef, rule: Rule) -> OpDef:
    inputs = {}
    for name, shape_only in rule.inputs.items():
        slot = forward.inputs[name]
        inputs[name] = Slot(name, slot.many, slot.optional or name in rule.optional, shape_only=shape_only or slot.shape_only)
    for name, shape_only in rule.outputs.items():
        slot = forward.outputs[name]
        inputs[name] = Slot(name, slot.many, slot.optional, shape_only=shape_only)
    for name in rule.cotangents:
        slot = forward.outputs[name]
        inputs[grad_slot(name)] = Slot(grad_slot(name), slot.many, name in rule.optional or slot.optional)
    outputs = {grad_slot(name): Slot(grad_slot(name), forward.inputs[name].many, True) for name in rule.wrt}
    doc = f"Gradient of `{forward.type}`."
    return OpDef(forward.grad_type, inputs, outputs, forward.attrs, doc=doc, forward=forward)


_FULL_NAMES = {"SquaredAccum": "SquaredAccumulator", "LinearAccum": "LinearAccumulator"}


def updated_input(definition: OpDef, slot: str) -> str | None:
    """The input whose place the output `slot` takes over (``Param`` for ``ParamOut``), or None."""
    source = slot[:-3] if slot.endswith("Out") else ""
    source = _FULL_NAMES.get(source, source)
    return source if source in definition.inputs and not definition.inputs[source].many else None


def find(op_type: str) -> OpDef | None:
    """The definition of an op, or None."""
    return _ops.get(op_type)


def get(op_type: str) -> OpDef:
    """The definition of an op; a `ProgramError` that suggests near names where there is none."""
    definition = _ops.get(op_type)
    if definition is None:
        raise ProgramError(f"no op {op_type!r} is defined{did_you_mean(op_type, _ops)}")
    return definition


def all_ops() -> dict[str, OpDef]:
    """Every definition, by type, gradient ops included."""
    return dict(_ops)


# -------------------------------------------------------------------------------------------------- common inference
def like(slot: str) -> Callable[..., Spec]:
    """Inference of ops whose one output is shaped like `slot`."""

    def infer(inputs: Mapping[str, Any]) -> Spec:
        found: Spec = inputs[slot]
        return found

    return infer

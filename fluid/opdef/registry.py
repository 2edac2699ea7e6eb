"""Definitions of ops: slots, attributes, inference and gradient rule, in one place.

An op is defined by a signature and a function, its gradient rule::

    @define("tanh(X) -> Out", infer=like("X"))
    def tanh(f, Out, dOut):
        \"\"\"Hyperbolic tangent of each element.\"\"\"
        return {"X": dOut * (1.0 - Out * Out)}

In the signature, ``X*`` is a slot of many variables, ``X?`` may be empty, ``Out~`` is an output that only the op's own
gradient reads, and ``Out&`` is an output that the op updates: it also reads its value. Attributes follow as keywords.

After a colon stands what an input must be: first the element types ``int``, ``float`` or ``bool``, or of the floats only
the ``real`` or ``complex`` ones, or several as ``int|float``, then the shape, as in ``batch_norm(X: float[N, C, ...],
Scale: float[C], Bias: float[C])``. A dimension is a number, a name, which has the same value in all inputs, or ``...`` for any
number of dimensions; ``[one]`` is a single element of any rank. Inputs are checked against this before inference.

The parameters of a rule name its inputs: first ``f``, the namespace of ops; then input and output slots by name, the
cotangent of the output ``Out`` as ``dOut``, attributes by name or all of them as the dict ``attrs``, and ``wanted``, the set
of input slots whose gradients are wanted. A missing cotangent is replaced by zeros, or is None if its default is ``None``. An
input with a default of ``None`` may be missing from gradient ops in files. Only the shape and dtype of a slot annotated
`ShapeOnly` are read. The rule returns input slot -> gradient; a function in place of a gradient is called only if that
gradient is wanted.

An op whose gradient is not a short formula has a decomposition instead: ``define(..., decomposition=fn)``, where
``fn(f, values, attrs)`` builds the op from ordinary ones and returns output slot -> value. The body of the decorated function
is not used; its parameters say what the gradient op reads, which must include every input that has a gradient. The gradient
op is computed by a kernel and differentiated through the decomposition (`fluid.autodiff.expand`). `values` holds, by slot,
what the gradient op reads except cotangents, so that outputs without a gradient (such as random numbers) can be reused.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import AttributeRuleError, ElementTypeError, InferenceError, ProgramError, did_you_mean
from ..values.cache import Cache
from ..values.types import VarType, is_complex, is_floating, is_integer
from .parameters import OpFunction, grad_slot, parameters_of

if TYPE_CHECKING:
    from ..values.spec import Spec
    from .composition import Composition
    from .inference import OpNamespace

__all__ = [
    "ANALYTIC",
    "EMPTY",
    "EXPLICIT",
    "LINEAR",
    "NOT_DIFFERENTIABLE",
    "OUR_SLOTS",
    "PADDLE_OPS",
    "PADDLE_SLOTS",
    "REGION",
    "SEEDS",
    "SHAPE_ONLY",
    "VARIABLE_ATTRS",
    "ZERO_GRADIENT",
    "Attr",
    "OpDef",
    "Rule",
    "ShapeOnly",
    "Slot",
    "all_ops",
    "at_most",
    "block",
    "by_slot",
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
    "updated_slot",
]


class ShapeOnly:
    """Annotates a rule's parameter that is read only for its shape and dtype, so that its value need not be kept."""


SHAPE_ONLY = (ShapeOnly, "ShapeOnly", "Like")
"""Spellings of the annotation; `Like` is its former name."""


class _NoGradient:
    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


NOT_DIFFERENTIABLE = _NoGradient("NOT_DIFFERENTIABLE")
"""The op has no gradient; it is an error to need one."""
ZERO_GRADIENT = _NoGradient("ZERO_GRADIENT")
"""The gradient is zero: the outputs are piecewise constant in the inputs, or not differentiable numbers."""

REGION = _NoGradient("REGION")
"""The op owns a block, into which `fluid.backward` recurses."""

LINEAR, ANALYTIC, EXPLICIT = "linear", "analytic", "own"
"""How a gradient rule serves complex numbers (see `OpDef.complex_rule`)."""

EMPTY = "@EMPTY@"
"""Stands for 'no variable' in a list of names."""


PADDLE_SLOTS = {
    ("einsum_grad", "XShape"): "x_shape",
    ("meshgrid_grad", "Out@GRAD"): "outputs@GRAD",
    ("chunk_eval", "F1_Score"): "F1-Score",
    ("fused_softmax_mask_grad", "Out"): "Softmax",
}
"""(op, slot) -> Paddle's name of the slot, where it does not follow its own naming convention."""
OUR_SLOTS = {(op_type, name): slot for (op_type, slot), name in PADDLE_SLOTS.items()}
"""(op, Paddle's name of the slot) -> the slot, where they differ."""
PADDLE_OPS = {"shard_index_by_floor": "shard_index", "uncorrected_lamb": "lamb"}
"""Op type -> the type that files of Paddle 1.x have for it."""
VARIABLE_ATTRS = {(op_type, "output_size"): "OutputSize" for op_type in ("unpool", "unpool_grad")}
"""(op, attribute) -> the slot of the variables that Paddle names in the attribute."""
SEEDS = {"seed", "startup_seed", "use_random"}
"""Attributes that mark an op as one that draws random numbers."""
UNUSED_SLOTS = {("save", "kLookupTablePath")}
"""(op, slot) that Paddle has, and that nothing is written to here."""
UNREAD_SLOTS = {"batch_norm_grad": ("Mean", "Variance"), "leaky_relu_grad": ("Out",), "center_loss_grad": ("X",)}
"""Inputs that Paddle's gradient op has under some attributes, or in some versions, and that ours does without."""


_ONE = ("one",)
"""The dimensions of a slot for a single element."""


class Slot(NamedTuple):
    """A named input or output of an op, for one or many variables."""

    name: str
    many: bool = False
    optional: bool = False
    intermediate: bool = False
    updated: bool = False
    shape_only: bool = False
    """Only shape and dtype are read."""
    elements: tuple[str, ...] = ()
    """Allowed elements: ``int``, ``float``, ``bool``; any by default."""
    dims: tuple[str, ...] | None = None
    """Numbers and names of dimensions, and ``...``, or ``one``, as in the signature; any by default."""

    def describe(self, separator: str = " or ") -> str:
        """The kind of variable that fits here, such as ``int[N, 1]``."""
        return separator.join(self.elements) + (f"[{', '.join(self.dims)}]" if self.dims is not None else "")


def by_slot(slots: Mapping[str, Slot], values: Mapping[str, Sequence[Any]], fn: Callable[[Any], Any]) -> dict[str, Any]:
    """Apply `fn` to the values of declared slots: a slot of many gets a list. None stays None; empty slots are left out."""
    results: dict[str, Any] = {}
    for slot, listed in values.items():
        if listed and slot in slots:
            items = [None if value is None else fn(value) for value in listed]
            results[slot] = items if slots[slot].many else items[0]
    return results


_USUAL: dict[tuple[str, ...], str] = {("int",): "int64", ("float",): "float32", ("real",): "float32"}
"""Elements of a slot -> the element type to cast to."""


def _how_to_cast(slot: Slot) -> str:
    """A hint for messages about a wrong element type."""
    kind = _USUAL.get(slot.elements)
    return f"; convert it by layers.cast(x, {kind!r})" if kind is not None else ""


# ---------------------------------------------------------------------------------------------------- attributes
class Attr(NamedTuple):
    """An attribute: its kind in files (``int``, ``float``, ``string``, ``ints``, ..., ``block``) and its default."""

    kind: str
    default: Any = None
    required: bool = False
    choices: tuple[Any, ...] = ()
    """The allowed values; any if empty."""
    least: float | None = None
    """The least allowed number, also of the items of a list."""
    most: float | None = None
    """The largest allowed number, where the work of the op grows with it and with nothing else."""
    counts: tuple[int, ...] = ()
    """The allowed lengths of a list; any if empty."""
    or_one: bool = False
    """Whether one item may stand for a list of it."""
    element: bool = False
    """Whether the value must be the number of an element type, or the default (such as -1 for none)."""

    @property
    def is_free(self) -> bool:
        """Whether any value of the kind is allowed."""
        return not self.choices and self.least is None and self.most is None

    def check(self, value: Any) -> Any:
        """`value` as plain Python of this kind; ``TypeError``, ``ValueError`` or ``OverflowError`` if it is not allowed."""
        if self.or_one and not isinstance(value, Iterable):
            value = [value]
        value = _CHECKS[self.kind](value)
        if self.element and value != self.default and value not in VarType.__members__.values():
            raise ValueError(f"{value} is not the number of an element type, such as 5 for float32")
        if self.choices and value not in self.choices:
            raise ValueError(f"{value!r} is not {' or '.join(map(repr, self.choices))}")
        if self.counts and len(value) not in self.counts:
            raise ValueError(f"{value!r} does not have {' or '.join(map(str, self.counts))} items")
        items = value if type(value) is list else (value,)
        if self.least is not None and any(item < self.least for item in items):
            raise ValueError(f"{value!r} is below {self.least}, the least that is allowed")
        if self.most is not None and any(item > self.most for item in items):
            raise ValueError(f"{value!r} is above {self.most}, the most that is allowed")
        return value


def _to_int(value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, (str, bytes)) or not (hasattr(value, "__index__") or hasattr(value, "__int__")):
        raise TypeError(f"{value!r} is not an integer")
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{value!r} is not an integer")
    return int(value)


def _to_float(value: Any) -> float:
    if isinstance(value, (str, bytes)) or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _within(bits: int) -> Callable[[Any], int]:
    limit = 1 << (bits - 1)

    def check(value: Any) -> int:
        number = value if value.__class__ is int else _to_int(value)
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


def _list_of(check: Callable[[Any], Any]) -> Callable[[Any], list[Any]]:
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
    "ints": _list_of(_to_int32),
    "longs": _list_of(_to_int64),
    "floats": _list_of(_to_float),
    "float64s": _list_of(_to_float),
    "strings": _list_of(_to_string),
    "bools": _list_of(_to_bool),
    "scalar": _same,
    "scalars": _list_of(_same),
    "block": _same,
    "blocks": _list_of(_same),
}
_PythonType = type[Any]
_PLAIN: dict[str, _PythonType] = {"bool": bool, "float": float, "float64": float, "string": str}
"""Kind of attribute -> a Python type whose values all belong to the kind."""
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


def choice(default: Any, *alternatives: Any) -> Attr:
    """One of these strings or numbers; the first is the default."""
    return Attr(_KIND_OF[type(default)], default, choices=(default, *alternatives))


def least(minimum: float, attr: Any) -> Attr:
    """An attribute that is not below `minimum`; of a list, no item is."""
    return _as_attr(attr)._replace(least=minimum)


def at_most(maximum: float, attr: Any) -> Attr:
    """A number that is not above `maximum`: for how often an op repeats something, which no input bounds."""
    return _as_attr(attr)._replace(most=maximum)


def counted(attr: Attr, *counts: int) -> Attr:
    """A list whose length is one of `counts`, by default the length of its default."""
    return attr._replace(counts=counts or (len(attr.default),))


def _as_attr(value: Any, element: bool = False) -> Attr:
    attr = value if isinstance(value, Attr) else Attr(_KIND_OF[type(value)], value)
    return attr._replace(element=True) if element and not attr.choices else attr


def block() -> Attr:
    """A sub-block of the program."""
    return Attr("block", required=True)


def required(kind: str) -> Attr:
    """An attribute without default."""
    return Attr(kind, required=True)


# -------------------------------------------------------------------------------------------------- gradient rules
_CONTEXT = ("f", "wanted", "attrs")
"""What a rule gets besides slots, cotangents and attributes by name."""


class Rule:
    """A gradient rule. Its signature names the values that it reads."""

    __slots__ = ("_bound", "cotangents", "definition", "fn", "inputs", "intermediate", "optional", "outputs", "wrt")

    def __init__(self, fn: Callable[..., Mapping[str, Any]], definition: OpDef, wrt: tuple[str, ...] | None) -> None:
        self.fn, self.definition = fn, definition
        self.inputs: dict[str, bool] = {}
        self.outputs: dict[str, bool] = {}
        self.cotangents: list[str] = []
        self.optional: set[str] = set()
        context = (*_CONTEXT, *("d" + slot for slot in definition.outputs))
        self._bound = OpFunction.of_one(definition, fn, context, "gradient rule")
        parameters = parameters_of(fn)
        for name, source, _ in self._bound.parameters:
            annotation, has_default = parameters[name]
            slot = name[1:] if source == "context" else name
            if source == "in":
                self.inputs[slot] = annotation in SHAPE_ONLY
            elif source == "out":
                self.outputs[slot] = annotation in SHAPE_ONLY
            elif source == "attr" or name in _CONTEXT:
                continue
            else:
                self.cotangents.append(slot)
            if has_default and source != "out":
                self.optional.add(slot)
        updated = tuple(slot.name for slot in definition.outputs.values() if slot.updated)
        self.wrt = wrt if wrt is not None else tuple(definition.inputs) + updated
        read = [definition.outputs[name] for name in self.outputs]
        self.intermediate = [slot.name for slot in read if slot.intermediate and not slot.optional]
        """The outputs that it reads, and that programs without gradients may lack."""

    def reads_attr(self, attr: str) -> bool:
        """Whether gradients may depend on this attribute."""
        return any(name in (attr, "attrs") for name, source, _ in self._bound.parameters if source in ("attr", "context"))

    def __call__(self, f: OpNamespace, values: Mapping[str, Any], attrs: Mapping[str, Any], wanted: set[str]) -> dict[str, Any]:
        """The wanted gradients, by input slot. `values` maps slots to values, cotangents under ``Out@GRAD``."""
        context = {"f": f, "wanted": wanted, "attrs": self.definition.declared_attrs(attrs)}
        context |= {"d" + slot: values.get(grad_slot(slot)) for slot in self.cotangents}
        kwargs = self._bound.arguments(values, attrs, context, values)
        conjugates = self.definition.complex_rule == ANALYTIC and any(_complex(kwargs["d" + name]) for name in self.cotangents)
        if conjugates:
            kwargs.update((name, _conjugate(f, kwargs[name])) for name in ("d" + slot for slot in self.cotangents))
        gradients = self.fn(**kwargs)
        if gradients is None:
            raise ProgramError(f"{self.fn.__name__} is decomposed and has no gradient rule, so its gradient needs a kernel")
        results = {slot: value() if callable(value) else value for slot, value in gradients.items() if slot in wanted}
        return {slot: _conjugate(f, value) for slot, value in results.items()} if conjugates else results


def _complex(value: Any) -> bool:
    """Whether a value, or one of a list, is of complex numbers."""
    items = value if isinstance(value, (list, tuple)) else (value,)
    return any(item is not None and is_complex(item.dtype) for item in items)


def _conjugate(f: Any, value: Any) -> Any:
    """Conjugate a value or each value in a list; real numbers stay as they are."""
    if isinstance(value, (list, tuple)):
        return [_conjugate(f, item) for item in value]
    return f.conj(value) if _complex(value) else value


# ------------------------------------------------------------------------------------------------------ definitions
_INFERENCE = ("declared", "inputs", "attrs")
"""What an inference function gets besides input slots and attributes by name."""


@dataclass
class OpDef:
    """The definition of an op: slots, attributes, inference, gradient and documentation."""

    type: str
    inputs: dict[str, Slot]
    outputs: dict[str, Slot]
    attrs: dict[str, Attr]
    infer: Callable[..., Any] | None = None
    rule: Rule | _NoGradient | None = None
    grad_type: str = ""
    """The type of the gradient op, usually ``type_grad``."""
    inline_grad: bool = False
    """Whether the gradient is written as the rule's ordinary ops, not as one ``type_grad`` op (as in Paddle for this op)."""
    decomposition: Callable[..., Mapping[str, Any]] | None = None
    """Builds the op from ordinary ones, if the gradient is not a short formula; see the module's docstring."""
    composition: Composition | None = None
    """The ops that the op is made of, if it has no kernel; see `fluid.opdef.composition`."""
    meaning: Composition | None = None
    """The op as a formula of other ops, if it also has a kernel; engines without code of their own for the op compute this."""
    sparse_grad: str = ""
    """The input slot whose gradient is a `SelectedRows` if the attribute ``is_sparse`` is set."""
    constants: tuple[str, ...] = ()
    """Input slots that the result depends on, but that are treated as constants: no gradient flows to them."""
    passes_on: Callable[[Mapping[str, Any]], Mapping[str, str]] | None = None
    """Attributes -> the output slots that repeat the value of an input slot."""
    region: Callable[[Any], Any] | None = None
    """How values pass through the block that the op owns: a function from an op to `fluid.ir.regions.Region`."""
    gradient_of: str = ""
    """For a gradient op that owns a block: the type of the forward op."""
    complex_rule: str = ""
    """How the rule serves complex numbers. The gradient of a real L by ``x + iy`` is ``dL/dx + i dL/dy``.

    `LINEAR`: the op is linear with real coefficients, so rule and kernel are right as they are. `ANALYTIC`: the op is an
    analytic function of its inputs, whose formula the rule transposes, so cotangents go into the rule, and gradients come out
    of it, conjugated; the gradient's kernel is for real numbers. `EXPLICIT`: the rule handles complex numbers, the kernel does
    not. By default, gradients of complex numbers are refused."""
    lod_aware: bool = False
    """Whether inference gives the outputs' LoD. For other ops, an output has the LoD of the first input that has one and as
    many rows."""
    joins_rows: Callable[[Mapping[str, Any]], bool] | None = None
    """Tells by the attributes whether the output has the rows of all inputs, one after the other, and so their sequences."""
    doc: str = ""
    module: str = ""
    """The module that defines the op."""
    forward: OpDef | None = None
    """For a gradient op: the definition of the forward op, whose rule computes it."""
    typed: tuple[Slot, ...] = field(init=False, repr=False)
    """The inputs whose element types or shape the signature restricts."""

    def __post_init__(self) -> None:
        slots = self.inputs.values() if self.forward is None else ()
        self.typed = tuple(slot for slot in slots if slot.elements or slot.dims is not None)

    # Cached when first used: most ops are never asked for these.
    @cached_property
    def _inference(self) -> OpFunction | None:
        """The inference function, with the sources of its parameters."""
        return None if self.infer is None else OpFunction.of_one(self, self.infer, _INFERENCE, "inference function")

    @cached_property
    def infer_reads(self) -> tuple[str, ...]:
        """The parameters of the inference function."""
        return () if self._inference is None else tuple(name for name, _, _ in self._inference.parameters)

    @cached_property
    def required(self) -> tuple[str, ...]:
        """The input slots that may not be empty."""
        return tuple(slot.name for slot in self.inputs.values() if not slot.optional)

    @cached_property
    def required_attrs(self) -> tuple[str, ...]:
        """The attributes without default."""
        return tuple(name for name, attr in self.attrs.items() if attr.required)

    @cached_property
    def is_inferred(self) -> bool:
        """Whether the specs of the outputs can be inferred."""
        return self.infer is not None or self.forward is not None or self.composition is not None

    @property
    def formula(self) -> Composition | None:
        """The ops that compute the op: of a composed op, or of one with a meaning; None for other ops."""
        return self.composition or self.meaning

    @property
    def is_composed(self) -> bool:
        """Whether the op has neither inference nor a gradient rule of its own, only a formula."""
        return self.composition is not None and self.infer is None

    @cached_property
    def is_random(self) -> bool:
        """Whether the op draws random numbers, at least with some attributes."""
        return self.forward is None and not SEEDS.isdisjoint(self.attrs)

    @cached_property
    def updated(self) -> tuple[str, ...]:
        """The outputs that the op updates."""
        return tuple(slot.name for slot in self.outputs.values() if slot.updated)

    @cached_property
    def many(self) -> frozenset[str]:
        """The slots that take lists, of the op and of its gradient."""
        slots = (slot for slots in (self.inputs, self.outputs) for slot in slots.values() if slot.many)
        return frozenset(name for slot in slots for name in (slot.name, grad_slot(slot.name)))

    @cached_property
    def visible(self) -> tuple[str, ...]:
        """The outputs that are not intermediate."""
        return tuple(slot.name for slot in self.outputs.values() if not slot.intermediate)

    @cached_property
    def inferred_from(self) -> tuple[str, ...]:
        """The attributes on which inference depends."""
        reads_all = "attrs" in self.infer_reads or self.forward is not None or self.composition is not None
        return tuple(self.attrs) if reads_all else tuple(name for name in self.infer_reads if name in self.attrs)

    @cached_property
    def plain(self) -> dict[str, _PythonType]:
        """Attribute -> a Python type whose values are all allowed, where there is one."""
        return {name: _PLAIN[attr.kind] for name, attr in self.attrs.items() if attr.kind in _PLAIN and attr.is_free}

    @cached_property
    def inferred(self) -> Cache[Any, dict[str, Any]]:
        """Results of `fluid.ir.inference` for variables of certain shapes and types."""
        return Cache()

    def updates(self, slot: str) -> bool:
        """Whether this is an output that the op updates."""
        return slot in self.updated

    def declared_attrs(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes of this definition, without others that a file may add."""
        return {name: attrs[name] for name in self.attrs if name in attrs}

    def defaults(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """`attrs` completed with the defaults of this definition."""
        return {**self._defaults, **attrs}

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        return {name: attr.default for name, attr in self.attrs.items()}

    def check_attrs(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """`attrs` as plain Python; `AttributeRuleError` if a value is not allowed or a required attribute is missing."""
        checked = {}
        plain = self.plain
        for name, value in attrs.items():
            attr = self.attrs.get(name)
            if attr is not None and plain.get(name) is not value.__class__:
                try:
                    value = attr.check(value)
                except (TypeError, ValueError, OverflowError) as error:
                    text = f"{self.type}: attribute {name!r} should be of kind {attr.kind}: {error}"
                    raise AttributeRuleError(text if repr(value) in text else f"{text}, in {value!r}") from None
            checked[name] = value
        for name in self.required_attrs:
            if name not in checked:
                raise AttributeRuleError(f"{self.type}: attribute {name!r} ({self.attrs[name].kind}) is required and missing")
        return checked

    def check_inputs(self, inputs: Mapping[str, Any]) -> None:
        """`InferenceError` if a `Spec` does not have the element type or shape that the signature gives its slot."""
        sizes: dict[str, tuple[int, str]] = {}
        for slot in self.typed:
            value = inputs.get(slot.name)
            if value is None:
                continue
            for spec in value if slot.many else (value,):
                if spec is None:
                    continue
                if slot.elements and spec.dtype not in _ELEMENTS[slot.elements]:
                    raise ElementTypeError(f"{slot.name} is {spec}; it should be {slot.describe()}{_how_to_cast(slot)}")
                if slot.dims is not None and spec.type is VarType.LOD_TENSOR:
                    _match(slot, spec, sizes)

    def naming_inputs(self, error: InferenceError, inputs: Mapping[str, Any]) -> InferenceError:
        """`error`, followed by the specs of all inputs if its message names none of them."""
        text = str(error)
        if set(re.findall(r"\w+", text)).intersection(inputs):
            return error
        specs = (
            f"{slot} is {', '.join(map(str, value)) if isinstance(value, list) else value}"
            for slot, value in inputs.items()
            if value is not None and slot in self.inputs
        )
        return type(error)("; ".join(filter(None, [text, ", ".join(specs)])))

    def inferred_by_composition(self, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Infer the output specs of a composed op; empty for an op without inference."""
        if self.composition is None:
            return {}
        specs = [spec for value in inputs.values() for spec in (value if isinstance(value, list) else [value])]
        first = next(spec for spec in specs if spec is not None)
        return self.composition(first.namespace, inputs, attrs, set(self.outputs))

    def infer_specs(
        self, inputs: Mapping[str, Any], attrs: Mapping[str, Any], declared: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Output slot -> `Spec` (a list for slots of many).

        `inputs` maps each non-empty slot to a `Spec` or a list; `attrs` must be complete (see `defaults`). `declared` maps
        output slots to the specs that their variables were declared with. Some ops follow these: a full reduction has shape
        ``[1]`` in Fluid 1.x and ``[]`` in Paddle 2.6.
        """
        if self.typed:
            self.check_inputs(inputs)
        if self._inference is None:
            return self.inferred_by_composition(inputs, attrs)
        context = {"declared": declared or {}, "inputs": inputs, "attrs": attrs}
        try:
            specs = self._inference.fn(**self._inference.arguments(inputs, attrs, context))
        except InferenceError as error:
            raise self.naming_inputs(error, inputs) from None
        if isinstance(specs, dict):
            return specs
        return dict(zip(self.outputs, specs if isinstance(specs, tuple) else (specs,), strict=False))


class _Elements(dict[tuple[str, ...], frozenset[VarType]]):
    """Elements as in a signature, such as ``("int", "float")`` -> the element types."""

    def __missing__(self, elements: tuple[str, ...]) -> frozenset[VarType]:
        integers = tuple(filter(is_integer, VarType))
        floating, complexes = tuple(filter(is_floating, VarType)), tuple(filter(is_complex, VarType))
        reals = tuple(dtype for dtype in floating if dtype not in complexes)
        types = {"int": integers, "bool": (VarType.BOOL,), "float": floating, "real": reals, "complex": complexes}
        self[elements] = frozenset(dtype for element in elements for dtype in types[element])
        return self[elements]


_ELEMENTS = _Elements()


def _match(slot: Slot, spec: Spec, sizes: dict[str, tuple[int, str]]) -> None:
    """Check a shape against its slot; `sizes` maps names of dimensions to their sizes and to the inputs that set them."""
    names, shape = slot.dims or (), spec.shape
    if names == _ONE:
        if spec.size not in (1, -1):
            raise InferenceError(f"{slot.name} is {spec}; it should be one number")
        return
    if "..." in names:
        place = names.index("...")
        after = len(names) - place - 1
        fits = len(shape) >= len(names) - 1
        pairs = [*zip(names[:place], shape, strict=False), *(zip(names[-after:], shape[-after:], strict=False) if after else ())]
    else:
        fits = len(shape) == len(names)
        pairs = list(zip(names, shape, strict=False))
    if not fits or any(name.isdigit() and size not in (-1, int(name)) for name, size in pairs):
        raise InferenceError(f"{slot.name} is {spec}; it should be {slot.describe()}")
    for name, size in pairs:
        if size >= 0 and not name.isdigit():
            expected, source = sizes.setdefault(name, (size, f"{slot.name} {spec}"))
            if expected != size:
                text = f"{slot.name} is {spec}; it should be {slot.describe()}, where {name} is {expected} as in {source}"
                raise InferenceError(text)


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
                f"{where}: {part!r} is not a slot such as X, X*, X?, Out~ or Out&, or one with a type such as X: float[N, C]"
            )
        slots[slot.name] = slot
    return slots


@cache  # most ops have an X and an Out
def _parse_slot(text: str) -> Slot | None:
    match = _SLOT.match(text)
    if match is None:
        return None
    name, marks, types, shape = match.groups()
    elements = tuple(filter(None, (types or "").split("|")))
    dims = None if shape is None else tuple(filter(None, (item.strip() for item in shape.split(","))))
    return Slot(name, "*" in marks, "?" in marks, "~" in marks, "&" in marks, elements=elements, dims=dims)


def define(
    signature: str,
    *,
    infer: Callable[..., Any] | None = None,
    grad: _NoGradient | None = None,
    wrt: Iterable[str] | None = None,
    inline_grad: bool = False,
    grad_type: str = "",
    decomposition: Callable[..., Mapping[str, Any]] | None = None,
    composition: Composition | None = None,
    meaning: Composition | None = None,
    shape_only: Iterable[str] = (),
    constants: Iterable[str] = (),
    passes_on: Callable[[Mapping[str, Any]], Mapping[str, str]] | None = None,
    region: Callable[[Any], Any] | None = None,
    gradient_of: str = "",
    lod_aware: bool = False,
    joins_rows: Callable[[Mapping[str, Any]], bool] | None = None,
    sparse_grad: str = "",
    complex_rule: str = "",
    **attrs: Any,
) -> Callable[[Callable[..., Any]], OpDef]:
    """Define an op; decorates its gradient rule, whose docstring documents the op.

    Args:
        signature: ``"type(X, Y?) -> Out, Mask~"``, see the module's docstring.
        infer: a function that returns the outputs' specs; its parameters name input slots (as `Spec`), attributes, ``declared``.
        grad: `NOT_DIFFERENTIABLE` or `ZERO_GRADIENT` if there is no rule; the decorated function then only has the docstring.
        wrt: input slots that have a gradient; all of them by default.
        inline_grad: write the gradient as the rule's ops, not as one gradient op.
        grad_type: the type of the gradient op, if it is not ``type_grad``.
        decomposition: builds the op from ordinary ones, in place of a rule; see the module's docstring.
        composition: the ops that the op consists of, instead of a kernel; also of inference and a rule if there are none.
        meaning: the op as a formula of other ops, beside its kernel; see `fluid.opdef.composition.means`.
        shape_only: input slots read only for their shape, dtype and LoD.
        constants: input slots that are treated as constants (see `OpDef`).
        passes_on: tells which outputs repeat an input (see `OpDef`).
        region, gradient_of: for an op that owns a block (see `OpDef`).
        lod_aware: whether `infer` gives the outputs' LoD (see `OpDef`).
        joins_rows: tells whether the output has the rows of all inputs (see `OpDef`).
        sparse_grad: the input slot whose gradient is sparse if ``is_sparse`` (see `OpDef`).
        complex_rule: `LINEAR`, `ANALYTIC` or `EXPLICIT`, if the rule is right for complex numbers too (see `OpDef`).
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
        passes_on=passes_on,
        region=region,
        gradient_of=gradient_of,
        lod_aware=lod_aware,
        joins_rows=joins_rows,
        sparse_grad=sparse_grad,
        complex_rule=complex_rule,
    )

    def register(fn: Callable[..., Any]) -> OpDef:
        definition.doc = inspect.getdoc(fn) or ""
        definition.module = fn.__module__
        definition.composition = composition and composition.of(definition)
        definition.meaning = meaning and meaning.of(definition)
        if grad is not None:
            definition.rule = grad
        elif parameters_of(fn):
            definition.rule = Rule(fn, definition, tuple(wrt) if wrt is not None else None)
        elif definition.composition is not None:
            definition.rule = definition.composition.rule(definition, tuple(wrt) if wrt is not None else None)
        add(definition)
        return definition

    return register


def add(definition: OpDef) -> None:
    """Register a definition and the definition of its gradient op."""
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
    for name in UNREAD_SLOTS.get(forward.grad_type, ()):
        inputs[name] = Slot(name, optional=True, shape_only=True)
    outputs = {grad_slot(name): Slot(grad_slot(name), forward.inputs[name].many, True) for name in rule.wrt}
    doc = f"Gradient of `{forward.type}`."
    return OpDef(forward.grad_type, inputs, outputs, forward.attrs, doc=doc, forward=forward)


_FULL_NAMES = {"SquaredAccum": "SquaredAccumulator", "LinearAccum": "LinearAccumulator"}


def updated_slot(definition: OpDef, slot: str) -> str | None:
    """The input slot whose variables the output `slot` holds after an update (``Param`` for ``ParamOut``), or None."""
    source = slot[:-3] if slot.endswith("Out") else ""
    source = _FULL_NAMES.get(source, source)
    return source if source in definition.inputs else None


def updated_input(definition: OpDef, slot: str) -> str | None:
    """As `updated_slot`, for slots of one variable; None for slots of many."""
    source = updated_slot(definition, slot)
    return None if source is None or definition.inputs[source].many else source


def find(op_type: str) -> OpDef | None:
    """The definition of an op, or None."""
    return _ops.get(op_type)


def get(op_type: str) -> OpDef:
    """The definition of an op; if there is none, a `ProgramError` that suggests similar names."""
    definition = _ops.get(op_type)
    if definition is None:
        raise ProgramError(f"no op {op_type!r} is defined{did_you_mean(op_type, _ops)}")
    return definition


def is_slot(name: str) -> bool:
    """Whether any op has a slot of this name, here or in Paddle, or one for its gradient."""
    return name.partition("@")[0] in _slots(len(_ops))


@cache
def _slots(count: int) -> set[str]:
    """The slots of all ops, when there are so many ops."""
    defined = {slot for definition in _ops.values() for slot in (*definition.inputs, *definition.outputs)}
    return defined.union(PADDLE_SLOTS.values(), (slot for _, slot in UNUSED_SLOTS))


def all_ops() -> dict[str, OpDef]:
    """Every definition, by type, gradient ops included."""
    return dict(_ops)


# -------------------------------------------------------------------------------------------------- common inference
def like(slot: str) -> Callable[..., Spec]:
    """Inference of ops whose only output has the spec of `slot`."""
    return lambda inputs: inputs[slot]

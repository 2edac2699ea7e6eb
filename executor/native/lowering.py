"""Lowers ops to the tensor graph: one function per op type, with the op's slots and attributes as parameters.

A function under `lowers` takes tensors (`GraphTensor`; lists for list slots, None for absent inputs), attributes, and ``wanted``,
the set of output slots that are read. The parameters ``inputs``, ``attrs`` and ``specs`` receive all inputs, attributes and
output specs by name; ``transforms`` and ``planes``, the graph's Fourier transforms and its layout of images. The function
returns the tensor of the first output, or slot -> tensor. If it raises `NotLowered`, the op, with these shapes and attributes,
stays on its numpy kernel. A gradient op without such a function, or whose function raises `ByRule`, is lowered by running its
gradient rule over tensors. An op of complex numbers has another function, under `lowers_complex`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

from fluid.opdef.inference import OpNamespace, infer_specs
from fluid.opdef.parameters import OpFunction
from fluid.opdef.registry import OpDef, Rule, get, grad_slot
from fluid.opdef.tables import OpTable
from fluid.values.operators import ValueOperators
from fluid.values.spec import Spec
from fluid.values.types import VarType, accumulated, is_complex

from .emitter import BFLOAT16, BOOL, BYTE, DOUBLE, FLOAT, HALF, INT32, INT64, UBYTE, Type
from .graph import ChannelsFirst, Constant, GraphNode, View, constant, mapped, reshaped
from .transforms import Transforms

ELEMENTS: dict[VarType, Type] = {
    VarType.FP32: FLOAT,
    VarType.FP64: DOUBLE,
    VarType.INT32: INT32,
    VarType.INT64: INT64,
    VarType.BOOL: BOOL,
    VarType.FP16: HALF,
    VarType.BF16: BFLOAT16,
    VarType.INT8: BYTE,
    VarType.UINT8: UBYTE,
}
"""Element types that native code supports. Integers of 8 bits are for lowerings with `of_bytes` (`lowers`). Halves are only
stored: ops compute with floats, and round their results."""
_DTYPES = {element: dtype for dtype, element in ELEMENTS.items()}
HALVES = (HALF, BFLOAT16)


class NotLowered(Exception):
    """The op stays on its numpy kernel."""


class ByRule(NotLowered):
    """The gradient op's lowering function does not support these inputs; lower the op by its gradient rule."""


def element_of(dtype: VarType) -> Type:
    """The native element type of a dtype; raises `NotLowered` if there is none."""
    if dtype not in ELEMENTS:
        raise NotLowered(f"elements of {dtype.text}")
    return ELEMENTS[dtype]


def number_like(value: float, like: GraphNode) -> Constant:
    """A constant with the element type of a node."""
    return constant(value, like.element)


def differs(ids: GraphNode, number: int) -> GraphNode:
    """Whether integers differ from a number, which may be beyond their element type: the number of ignored labels, say."""
    wide = ids if ids.element == INT64 else mapped("convert", ids, element=INT64)
    return mapped("une", wide, constant(number, INT64), element=BOOL)


class GraphTensor(ValueOperators):
    """A node of the graph with operators, for lowering functions and gradient rules."""

    __slots__ = ("node",)

    def __init__(self, node: GraphNode) -> None:
        self.node = node

    def _ops(self) -> OpNamespace:
        return NAMESPACE

    @property
    def shape(self) -> tuple[int, ...]:
        return self.node.shape

    @property
    def ndim(self) -> int:
        return self.node.ndim

    @property
    def dtype(self) -> VarType:
        return _DTYPES[self.node.element]

    @property
    def spec(self) -> Spec:
        return Spec(self.shape, self.dtype)

    if TYPE_CHECKING:  # operators give tensors

        def __neg__(self) -> GraphTensor: ...
        def __lt__(self, other: Any) -> GraphTensor: ...
        def __le__(self, other: Any) -> GraphTensor: ...
        def __gt__(self, other: Any) -> GraphTensor: ...
        def __ge__(self, other: Any) -> GraphTensor: ...
        def astype(self, dtype: Any) -> GraphTensor: ...

    # Arithmetic of floats creates nodes directly; looking up the op each time takes three times as long.
    def _formula(self, formula: str, value: Any, swap: bool = False) -> GraphTensor | None:
        """Apply a formula to floats; None if the element types differ or are no floats."""
        node = self.node
        if not node.element.is_float:
            return None
        if isinstance(value, GraphTensor):
            operand = value.node
            if operand.element != node.element:
                return None
        elif isinstance(value, (int, float)):
            operand = constant(value, node.element)
        else:
            return None
        return GraphTensor(mapped(formula, operand, node) if swap else mapped(formula, node, operand))

    def __add__(self, other: Any) -> GraphTensor:
        result = self._formula("add", other)
        return super().__add__(other) if result is None else result

    def __sub__(self, other: Any) -> GraphTensor:
        result = self._formula("sub", other)
        return super().__sub__(other) if result is None else result

    def __rsub__(self, other: Any) -> GraphTensor:
        result = self._formula("sub", other, swap=True)
        return super().__rsub__(other) if result is None else result

    def __mul__(self, other: Any) -> GraphTensor:
        result = self._formula("mul", other)
        return super().__mul__(other) if result is None else result

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, other: Any) -> GraphTensor:
        result = self._formula("div", other) if isinstance(other, GraphTensor) else None
        return super().__truediv__(other) if result is None else result


def only_floats(*tensors: GraphTensor | None) -> None:
    """Raise `NotLowered` unless all tensors are of floats."""
    if any(tensor is not None and not tensor.node.element.is_float for tensor in tensors):
        raise NotLowered("elements that are no floats")


def only_numbers(*tensors: GraphTensor | None) -> None:
    """Raise `NotLowered` if any tensor is of truth values."""
    if any(tensor is not None and tensor.node.element == BOOL for tensor in tensors):
        raise NotLowered("truth values as numbers")


def only_truths(*tensors: GraphTensor) -> None:
    """Raise `NotLowered` unless all tensors are of truth values."""
    if any(tensor.node.element != BOOL for tensor in tensors):
        raise NotLowered("elements that are no truth values")


_Lowering = Callable[..., Any]
_L = TypeVar("_L", bound=_Lowering)
_CONTEXT = ("wanted", "inputs", "attrs", "specs", "transforms", "planes")
_LOWERINGS: OpTable[OpFunction] = OpTable("lowering")
_COMPLEX_LOWERINGS: OpTable[OpFunction] = OpTable("lowering of complex numbers")
_OF_BYTES: set[str] = set()
"""Ops whose lowering takes integers of 8 bits."""
_COPIES: set[str] = set()
"""Ops whose lowering only moves or converts elements of any type."""


def lowers(*op_types: str, of_bytes: bool = False, copies: bool = False) -> Callable[[_L], _L]:
    """Register the function that lowers these ops.

    Args:
        of_bytes: it takes integers of 8 bits, too.
        copies: it only moves or converts elements, of any type.
    """

    def register(fn: _L) -> _L:
        _OF_BYTES.update(op_types if of_bytes or copies else ())
        _COPIES.update(op_types if copies else ())
        _LOWERINGS.add(OpFunction.of(map(get, op_types), fn, _CONTEXT, _LOWERINGS.noun))
        return fn

    return register


def lowers_complex(*op_types: str) -> Callable[[_L], _L]:
    """Register the function that lowers these ops where they read or write complex numbers."""

    def register(fn: _L) -> _L:
        _COMPLEX_LOWERINGS.add(OpFunction.of(map(get, op_types), fn, _CONTEXT, _COMPLEX_LOWERINGS.noun))
        return fn

    return register


def needs_parts(op_type: str) -> bool:
    """Whether an op has a lowering of real numbers, and none of complex ones."""
    return op_type in _LOWERINGS and op_type not in _COMPLEX_LOWERINGS


FEWEST_PLACES = 8
"""The fewest places of an image [N, C, H, W] that fill vectors."""


@dataclass
class Planes:
    """The layout of images [N, C, H, W] for ops that compute them as they are, or with channels last.

    Images stay as they are if no op of the graph needs channels last. If one does, images are moved once, for all ops.

    Attributes:
        is_allowed: whether ops may leave images as they are.
        is_used: whether an op has left images as they are.
    """

    is_allowed: bool
    is_used: bool = False

    def keep(self, *images: GraphTensor) -> bool:
        """Decide whether an op leaves these images as they are, and note it."""
        is_kept = self.is_allowed and all(
            prod(image.shape[2:]) >= FEWEST_PLACES and not isinstance(image.node, (ChannelsFirst, View)) for image in images
        )
        self.is_used = self.is_used or is_kept
        return is_kept


class GraphNamespace(OpNamespace):
    """Ops over tensors of the graph.

    Args:
        transforms: the Fourier transforms of the graph so far.
        planes: the layout of its images.
    """

    def __init__(self, transforms: Transforms, planes: Planes) -> None:
        self.transforms = transforms
        self.planes = planes

    if TYPE_CHECKING:

        def __getattr__(self, op_type: str) -> Callable[..., GraphTensor]: ...

    def apply(self, definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
        values = {slot: list(value) if isinstance(value, tuple) else value for slot, value in inputs.items()}
        attrs = definition.defaults(definition.check_attrs(attrs))
        entry = _LOWERINGS.get(definition.type)
        specs: Mapping[str, Any] = {}
        if entry is None or _has_complex(values.values()) or any(name in ("specs", "wanted") for name, _, _ in entry.parameters):
            specs = infer_specs(definition, {slot: _specs(value) for slot, value in values.items()}, attrs)
        return lower(definition, values, attrs, specs, self)


NAMESPACE = GraphNamespace(Transforms(), Planes(is_allowed=False))
"""For ops that transform no signals."""


def _specs(value: Any) -> Any:
    return [item and item.spec for item in value] if isinstance(value, list) else value and value.spec


def _has_complex(values: Iterable[Any]) -> bool:
    """Whether any of these tensors, specs, or lists of them is of complex numbers."""
    flat = (item for value in values for item in (value if isinstance(value, (list, tuple)) else (value,)))
    return any(item is not None and is_complex(item.dtype) for item in flat)


def _holds(values: Iterable[Any], *elements: Type) -> bool:
    """Whether any of these tensors, or lists of them, is of one of these element types."""
    flat = (item for value in values for item in (value if isinstance(value, (list, tuple)) else (value,)))
    return any(isinstance(item, GraphTensor) and item.node.element in elements for item in flat)


def _widened(value: Any) -> Any:
    """Convert a tensor of halves, or each of a list, to floats; tensors of other types stay."""
    if isinstance(value, list):
        return [_widened(item) for item in value]
    if not isinstance(value, GraphTensor) or value.node.element not in HALVES:
        return value
    return GraphTensor(mapped("convert", value.node, element=FLOAT))


def _is_of_halves(spec: Any) -> bool:
    return spec is not None and accumulated(spec.dtype) is not spec.dtype


def _wider(spec: Any) -> Any:
    """Replace halves by float32 in a spec, or in each of a list."""
    if isinstance(spec, list):
        return [_wider(item) for item in spec]
    return spec if spec is None else spec.with_dtype(accumulated(spec.dtype))


def _rounded(value: Any, spec: Any) -> Any:
    """Round a result of floats, or each of a list, to halves if its spec is of halves."""
    if isinstance(value, list):
        return [_rounded(item, item_spec) for item, item_spec in zip(value, spec, strict=True)]
    if not _is_of_halves(spec) or not isinstance(value, GraphTensor) or value.node.element != FLOAT:
        return value
    return GraphTensor(mapped("convert", value.node, element=element_of(spec.dtype)))


def lower(
    definition: OpDef,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any],
    specs: Mapping[str, Any],
    namespace: GraphNamespace = NAMESPACE,
) -> dict[str, Any]:
    """Lower an op to tensors, by output slot; raises `NotLowered` if it stays on its numpy kernel.

    Args:
        inputs: tensors by slot; lists in list slots.
        attrs: all attributes, defaults included.
        specs: the specs of the outputs that are needed.
        namespace: the ops that formulas and rules use.
    """
    if definition.type not in _COPIES and _holds(inputs.values(), *HALVES):
        wide = {slot: _widened(value) for slot, value in inputs.items()}
        results = lower(definition, wide, attrs, {slot: _wider(spec) for slot, spec in specs.items()}, namespace)
        return {slot: _rounded(value, specs.get(slot)) for slot, value in results.items()}
    of_complex = _has_complex(inputs.values()) or _has_complex(specs.values())
    entry = (_COMPLEX_LOWERINGS if of_complex else _LOWERINGS).get(definition.type)
    if entry is None:
        return _by_rule(definition, inputs, attrs, specs, namespace)
    if definition.type not in _OF_BYTES and _holds(inputs.values(), BYTE, UBYTE):
        raise NotLowered("integers of 8 bits")
    wanted = {slot for slot, spec in specs.items() if spec is not None}
    of_graph = {"transforms": namespace.transforms, "planes": namespace.planes}
    context = {"wanted": wanted, "inputs": inputs, "attrs": attrs, "specs": specs, **of_graph}
    try:
        return entry.results(definition, entry.arguments(inputs, attrs, context))
    except ByRule:
        return _by_rule(definition, inputs, attrs, specs, namespace)


def _in_shape(value: Any, spec: Any) -> Any:
    """Reshape the result of a formula as inference says: a loss of shape [1], say, that is declared as []."""
    if isinstance(value, list):
        return [_in_shape(item, item_spec) for item, item_spec in zip(value, spec, strict=True)]
    if spec is None or not isinstance(value, GraphTensor) or value.shape == spec.shape or value.node.size != prod(spec.shape):
        return value  # sizes differ for the rows of a table that an update changes
    return GraphTensor(reshaped(value.node, spec.shape))


def _by_rule(
    definition: OpDef,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any],
    specs: Mapping[str, Any],
    namespace: GraphNamespace,
) -> dict[str, Any]:
    if definition.formula is not None:  # the number of rows of a sparse gradient is not inferred, so it has no specs
        wanted = {slot for slot, spec in specs.items() if spec is not None} or {next(iter(definition.outputs))}
        results = definition.formula(namespace, dict(inputs), attrs, wanted)
        return {slot: _in_shape(value, specs.get(slot)) for slot, value in results.items()}
    forward = definition.forward
    if forward is None or not isinstance(forward.rule, Rule):
        raise NotLowered(f"no lowering of {definition.type}")
    wanted = {slot for slot in forward.rule.wrt if specs.get(grad_slot(slot)) is not None}
    gradients = forward.rule(namespace, dict(inputs), attrs, wanted)
    results = {}
    for slot in wanted:
        gradient, spec = gradients.get(slot), specs[grad_slot(slot)]
        pairs = zip(gradient or (), spec, strict=True) if isinstance(spec, list) else [(gradient, spec)]
        if any(one is not None and (tensor is None or prod(tensor.shape) != prod(one.shape)) for tensor, one in pairs):
            raise NotLowered(f"a gradient of {definition.type} that is zero")
        results[grad_slot(slot)] = gradient
    return results

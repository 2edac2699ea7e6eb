"""Lowers ops to the tensor graph: one function per op type, with the op's slots and attributes as parameters.

A function under `lowers` takes tensors (`GraphTensor`; lists of them for slots of many, None for absent ones), attributes, and
``wanted``, the set of output slots that are read; ``inputs``, ``attrs`` and ``specs`` are all of them by name. It returns the
tensor of the first output, or slot -> tensor. Raising `NotLowered` leaves the op, with these shapes and attributes, to its
kernel. Gradient ops are lowered by their rules, run over tensors, where they have no function of their own, or where that
raises `ByRule`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

from fluid.opdef.inference import OpNamespace, infer_specs
from fluid.opdef.registry import OpDef, Rule, grad_slot
from fluid.values.operators import ValueOperators
from fluid.values.spec import Spec
from fluid.values.types import VarType

from .emitter import BOOL, DOUBLE, FLOAT, INT32, INT64, Type
from .graph import Constant, Node, constant, mapped

__all__ = [
    "ELEMENTS",
    "NAMESPACE",
    "ByRule",
    "GraphNamespace",
    "GraphTensor",
    "NotLowered",
    "element_of",
    "lower",
    "lowers",
    "number_like",
    "only_floats",
    "only_numbers",
    "only_truths",
]

ELEMENTS: dict[VarType, Type] = {
    VarType.FP32: FLOAT,
    VarType.FP64: DOUBLE,
    VarType.INT32: INT32,
    VarType.INT64: INT64,
    VarType.BOOL: BOOL,
}
"""Element types that native code computes with."""
_DTYPES = {element: dtype for dtype, element in ELEMENTS.items()}


class NotLowered(Exception):
    """The op is left to its kernel."""


class ByRule(NotLowered):
    """A gradient op is lowered by its rule, as what has a function does not do for its inputs."""


def element_of(dtype: VarType) -> Type:
    """The type of elements in native code; `NotLowered` if it has none."""
    if dtype not in ELEMENTS:
        raise NotLowered(f"elements of {dtype.text}")
    return ELEMENTS[dtype]


def number_like(value: float, like: Node) -> Constant:
    """A number, of the element type of a node."""
    return constant(value, like.element)


class GraphTensor(ValueOperators):
    """A node of the graph, as gradient rules see it."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
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

    # Arithmetic of floats is written down at once; asking for the op each time takes three times as long.
    def _formula(self, formula: str, other: Any, swap: bool = False) -> GraphTensor | None:
        """A formula of floats; None for other elements, and where the operands differ in theirs."""
        node = self.node
        if not node.element.is_float:
            return None
        if isinstance(other, GraphTensor):
            operand = other.node
            if operand.element != node.element:
                return None
        elif isinstance(other, (int, float)):
            operand = constant(other, node.element)
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
    """`NotLowered` unless the elements of tensors are floats."""
    if any(tensor is not None and not tensor.node.element.is_float for tensor in tensors):
        raise NotLowered("elements that are no floats")


def only_numbers(*tensors: GraphTensor | None) -> None:
    """`NotLowered` if the elements of tensors are truth values."""
    if any(tensor is not None and tensor.node.element == BOOL for tensor in tensors):
        raise NotLowered("truth values as numbers")


def only_truths(*tensors: GraphTensor) -> None:
    """`NotLowered` unless tensors hold truth values."""
    if any(tensor.node.element != BOOL for tensor in tensors):
        raise NotLowered("elements that are no truth values")


_Lowering = Callable[..., Any]
_L = TypeVar("_L", bound=_Lowering)
_LOWERINGS: dict[str, tuple[_Lowering, tuple[str, ...]]] = {}


def lowers(*op_types: str) -> Callable[[_L], _L]:
    """Register the function that lowers these ops."""

    def register(fn: _L) -> _L:
        for op_type in op_types:
            _LOWERINGS[op_type] = fn, tuple(inspect.signature(fn).parameters)
        return fn

    return register


class GraphNamespace(OpNamespace):
    """Ops over tensors of the graph."""

    if TYPE_CHECKING:

        def __getattr__(self, op_type: str) -> Callable[..., GraphTensor]: ...

    def apply(self, definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
        values = {slot: list(value) if isinstance(value, tuple) else value for slot, value in inputs.items()}
        attrs = definition.defaults(definition.check_attrs(attrs))
        entry = _LOWERINGS.get(definition.type)
        specs: Mapping[str, Any] = {}
        if entry is None or "specs" in entry[1] or "wanted" in entry[1]:
            specs = infer_specs(definition, {slot: _specs(value) for slot, value in values.items()}, attrs)
        return lower(definition, values, attrs, specs)


NAMESPACE = GraphNamespace()


def _specs(value: Any) -> Any:
    return [item and item.spec for item in value] if isinstance(value, list) else value and value.spec


def lower(definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any], specs: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of an op by slot, as tensors; `NotLowered` if it is left to its kernel.

    Args:
        inputs: tensors by slot, lists in slots of many.
        attrs: all attributes, defaults included.
        specs: the specs of the outputs that are wanted.
    """
    entry = _LOWERINGS.get(definition.type)
    if entry is None:
        return _by_rule(definition, inputs, attrs, specs)
    fn, parameters = entry
    operands: dict[str, Any] = {}
    for name in parameters:
        if name == "wanted":
            operands[name] = {slot for slot, spec in specs.items() if spec is not None}
        elif name == "inputs":
            operands[name] = inputs
        elif name == "attrs":
            operands[name] = attrs
        elif name == "specs":
            operands[name] = specs
        elif name[:1] == "d" and grad_slot(name[1:]) in definition.inputs:
            operands[name] = inputs.get(grad_slot(name[1:]))
        elif name in definition.attrs:
            operands[name] = attrs.get(name)
        else:
            operands[name] = inputs.get(name)
    try:
        result = fn(**operands)
    except ByRule:
        return _by_rule(definition, inputs, attrs, specs)
    return result if isinstance(result, dict) else {next(iter(definition.outputs)): result}


def _by_rule(definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any], specs: Mapping[str, Any]) -> dict[str, Any]:
    if definition.composition is not None:
        wanted = {slot for slot, spec in specs.items() if spec is not None}
        return definition.composition(NAMESPACE, dict(inputs), attrs, wanted)
    forward = definition.forward
    if forward is None or not isinstance(forward.rule, Rule):
        raise NotLowered(f"no lowering of {definition.type}")
    wanted = {slot for slot in forward.rule.wrt if specs.get(grad_slot(slot)) is not None}
    gradients = forward.rule(NAMESPACE, dict(inputs), attrs, wanted)
    results = {}
    for slot in wanted:
        gradient, spec = gradients.get(slot), specs[grad_slot(slot)]
        pairs = zip(gradient or (), spec, strict=True) if isinstance(spec, list) else [(gradient, spec)]
        if any(one is not None and (tensor is None or tensor.node.size != prod(one.shape)) for tensor, one in pairs):
            raise NotLowered(f"a gradient of {definition.type} that is zero")
        results[grad_slot(slot)] = gradient
    return results

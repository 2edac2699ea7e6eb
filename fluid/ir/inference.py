"""Inference over the variables of a block, and the namespace of ops that appends each op which is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .. import unique_name
from ..errors import ElementTypeError, FluidError, InferenceError, locate, said_of
from ..opdef.inference import OpNamespace, infer_specs
from ..opdef.registry import EMPTY, OpDef, Slot
from ..values.spec import Spec, agreed_sizes
from ..values.types import VarType, is_floating

if TYPE_CHECKING:
    from .program import Block, Operator, Variable


def gather_specs(op: Operator) -> dict[str, Any]:
    """Specs of the variables in an op's input slots, as `infer_specs` takes them."""
    definition = op.definition
    assert definition is not None
    specs: dict[str, Any] = {}
    for slot, names in op.inputs.items():
        described = definition.inputs.get(slot)
        if described is not None and described.many:
            specs[slot] = [op.block.var(name).spec if name != EMPTY else None for name in names]
        elif names and names[0] != EMPTY:
            specs[slot] = op.block.var(names[0]).spec
    return specs


def declared_specs(op: Operator) -> dict[str, Any]:
    """Specs of the outputs that have been declared with a shape, as `infer_specs` takes them."""
    variables = {slot: op.block.find_var(names[0]) for slot, names in op.outputs.items() if len(names) == 1}
    return {slot: var.spec for slot, var in variables.items() if var is not None and var.has_shape}


_MOST_ITEMS = 16
"""The longest list in an attribute that a signature holds."""


def _signature(op: Operator, definition: OpDef) -> tuple[Any, ...] | None:
    """All that the inference of an op depends on; None where that is too much to keep."""
    attrs, find_var = op.attrs, op.block.find_var
    parts: list[Any] = []
    for name in definition.inferred_from:
        value = attrs.get(name)
        if value.__class__ is list:
            if len(value) > _MOST_ITEMS:
                return None
            value = tuple(value)
        parts.append(value)
    for slot, names in op.inputs.items():
        parts.append(slot)
        for name in names:
            var = find_var(name)
            parts += (name,) if var is None else (var._shape, var._dtype, var._type, var.lod_level)
    if "declared" in definition.infer_reads:
        parts.append("declared")
        for slot, names in op.outputs.items():
            var = find_var(names[0]) if len(names) == 1 else None
            if var is not None and var._shape is not None:
                parts += (slot, var._shape, var._dtype, var._type, var.lod_level)
    return tuple(parts)


def _inferred(op: Operator, definition: OpDef) -> dict[str, Any]:
    """The specs of an op's outputs, by slot."""
    signature = None if definition.region is not None else _signature(op, definition)
    if signature is not None and (specs := definition.inferred.get(signature)) is not None:
        return specs
    try:
        specs = infer_specs(definition, gather_specs(op), op.attrs, declared_specs(op))
    except FluidError as error:
        try:
            return _inferred_of_integers(op, definition, error)
        except FluidError as error:
            raise type(error)(f"{said_of(op.type, error)}\n{locate(op)}") from None
    return specs if signature is None else definition.inferred.keep(signature, specs)


def _inferred_of_integers(op: Operator, definition: OpDef, error: FluidError) -> dict[str, Any]:
    """The specs of the outputs of an op that refuses labels, indices or sizes as floats; `error` if that is not the reason.

    A variable of `layers.data` may be fed integers, whatever it declares; so it counts as integers where an op takes nothing
    else, and the op looks at the fed array.
    """
    specs = gather_specs(op)
    free = {slot: integers for slot in specs if (integers := _as_integers(op, definition.inputs.get(slot))) is not None}
    if not free or not isinstance(error, ElementTypeError):
        raise error
    try:
        return infer_specs(definition, {**specs, **free}, op.attrs, declared_specs(op))
    except FluidError:
        raise error from None


def _as_integers(op: Operator, slot: Slot | None) -> Any:
    """The specs of the variables in a slot for integers, with integers in place of floats; None where no variable is free."""
    if slot is None or (slot.name != "Label" and (not slot.elements or "float" in slot.elements or "real" in slot.elements)):
        return None
    variables = [op.block.find_var(name) for name in op.inputs[slot.name]]
    are_free = [var is not None and var.is_data and not var.need_check_feed and is_floating(var.dtype) for var in variables]
    if not any(are_free):
        return None
    specs = [
        None if var is None else _of_integers(var.spec, slot) if is_free else var.spec
        for var, is_free in zip(variables, are_free, strict=True)
    ]
    return specs if slot.many else specs[0]


def _of_integers(spec: Spec, slot: Slot) -> Spec:
    """A spec with integers in place of floats; a row ``[1, N]`` is a list ``[N]`` where the slot wants one."""
    is_list = slot.dims is not None and len(slot.dims) == 1 and spec.size >= 0
    return (spec.with_shape((spec.size,)) if is_list else spec).with_dtype(VarType.INT64)


def infer_shape(op: Operator) -> None:
    """Infer the shapes and element types of an op's outputs from its inputs, and set them."""
    definition = op.definition
    if definition is None or not definition.is_inferred:
        return
    for slot, specs in _inferred(op, definition).items():
        names = op.outputs.get(slot)
        if not names or specs is None:
            continue
        if specs.__class__ is Spec:
            _set_spec(op, names[0], specs)
            continue
        if len(specs) != len(names):
            text = f"{op.type}: {slot} should have {len(specs)} variables, one for each output, not {len(names)}"
            raise InferenceError(f"{definition.naming_inputs(InferenceError(text), gather_specs(op))}\n{locate(op)}")
        for name, spec in zip(names, specs, strict=True):
            if spec is not None:
                _set_spec(op, name, spec)


def _set_spec(op: Operator, name: str, spec: Spec) -> None:
    """Set the shape and types of the variable of this name, which `op` writes."""
    var = op.block.find_var(name) if name != EMPTY else None
    if var is None or var.is_data:
        return
    if var._shape is not None and var.block is not op.block and len(var._shape) == len(spec.shape):
        # A loop or branch overwrites a variable from outside: a dimension on which they differ is unknown.
        var._shape = agreed_sizes(var._shape, spec.shape)
    elif not var.is_parameter:
        var._shape = spec.shape
    if var._dtype is None:
        var._dtype = spec.dtype
    if spec.lod:
        var.lod_level = len(spec.lod)
    if spec.type is not VarType.LOD_TENSOR:
        var._type = spec.type


def add_output(op: Operator, slot: str) -> None:
    """Give an op an output that it lacks, as new variables. Inference models lack what only gradients read."""
    definition = op.definition
    assert definition is not None
    inferred = infer_specs(definition, gather_specs(op), op.attrs, declared_specs(op)).get(slot)
    names = []
    for spec in inferred if isinstance(inferred, list) else [inferred]:
        name = op.block.program.fresh_name(f"{op.output_arg_names[0]}.{slot}" if op.output_arg_names else slot)
        op.block.create_var(name=name, **({} if spec is None else {"shape": spec.shape, "dtype": spec.dtype}))
        names.append(name)
    op.outputs = {**op.outputs, slot: names}


class BuildNamespace(OpNamespace):
    """A namespace of ops over variables: calling one appends it to a block.

    Args:
        block: the block.

    >>> x = fluid.data("x", [None, 2])
    >>> f = fluid.framework.BuildNamespace(x.block)
    >>> f.elementwise_add(x, f.tanh(x)).shape
    (-1, 2)
    """

    sizes_may_differ = True

    def __init__(self, block: Block) -> None:
        self._block = block

    def apply(self, definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Append an op; returns output slot -> variable or list.

        Args:
            definition: of the op.
            inputs: slot -> variable, or a list of them for slots of many.
            attrs: name -> value.
        """
        block = self._block
        count = {}
        if definition.many and any(slot.many for slot in definition.outputs.values()):
            specs = {
                slot: [item.spec for item in value] if isinstance(value, (list, tuple)) else value.spec
                for slot, value in inputs.items()
            }
            inferred = infer_specs(definition, specs, definition.check_attrs(attrs))
            count = {slot: len(value) for slot, value in inferred.items() if isinstance(value, list)}
        outputs: dict[str, Any] = {}
        for name, slot in definition.outputs.items():
            if slot.many:
                outputs[name] = [self._temporary() for _ in range(count.get(name, 1))]
            else:
                outputs[name] = inputs[name] if slot.updated and name in inputs else self._temporary()
        if definition.updated:
            inputs = {name: value for name, value in inputs.items() if name in definition.inputs}
        block.append_op(definition.type, inputs, outputs, attrs)
        return outputs

    def _temporary(self) -> Variable:
        while self._block.find_var(name := unique_name.generate("tmp")) is not None:
            pass
        return self._block.create_var(name=name)

"""Inference: the shapes and element types of ops' outputs. For gradient ops, their rules run over specs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..errors import FluidError, InferenceError, ProgramError
from ..values.lod_array import lods_by_rows
from ..values.spec import Spec, may_equal
from ..values.types import VarType
from .registry import OpDef, get, grad_slot


class OpNamespace:
    """Ops as functions: ``f.matmul_v2(x, y, trans_y=True)``.

    Positional arguments fill the input slots in the order of the op's signature; keywords name slots or attributes. The current
    value of an output that the op updates (an array that is written to) is a keyword, too; without it, the op makes a new one.
    Returns the op's output, or a tuple if it has several, not counting intermediate ones.

    Attributes:
        sizes_may_differ: a run may have other sizes than the values here say.
    """

    sizes_may_differ = False

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if op_type.startswith("_"):
            raise AttributeError(op_type)
        definition = get(op_type)

        def call(*args: Any, **kwargs: Any) -> Any:
            inputs = {slot: value for slot, value in zip(definition.inputs, args, strict=False) if value is not None}
            attrs = {}
            for name, value in kwargs.items():
                if name in definition.inputs or name in definition.updated:
                    if value is not None:
                        inputs[name] = value
                elif name in definition.attrs:
                    attrs[name] = value
                else:
                    raise ProgramError(f"{op_type} has no slot or attribute {name!r}")
            outputs = self.apply(definition, inputs, attrs)
            visible = definition.visible
            return outputs[visible[0]] if len(visible) == 1 else tuple([outputs[slot] for slot in visible])

        return call

    def apply(self, definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Apply an op to values, or lists of them for slots of many; returns output slot -> value or list."""
        raise NotImplementedError

    def apply_all(self, definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
        """As `apply`, and always with the intermediate outputs."""
        return self.apply(definition, inputs, attrs)


class SpecNamespace(OpNamespace):
    """Ops over specs, which infer the specs of the outputs."""

    def apply(self, definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
        return infer_specs(definition, inputs, definition.check_attrs(attrs))


Spec.namespace = SpecNamespace()


def infer_specs(
    definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any], declared: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Specs of an op's outputs, by slot; see `OpDef.infer_specs`.

    A gradient has the spec of its input. Where a gradient op does not read that input, its rule runs over specs to infer it.
    """
    attrs = definition.defaults(attrs)
    try:
        if definition.forward is None:
            specs = definition.infer_specs(inputs, attrs, declared)
        else:
            specs = specs_of_grad(definition, inputs, attrs)
        _refuse_negative(specs)
        if (definition.forward or definition).lod_aware:
            return specs
    except FluidError:
        raise
    except Exception as error:  # files may hold ops that no layer makes
        raise InferenceError(_why_not(definition, inputs, attrs, error)) from error
    for value in inputs.values():
        if value.lod if type(value) is Spec else value and any(spec is not None and spec.lod for spec in value):
            return _share_lod(inputs, specs, definition.joins_rows is not None and definition.joins_rows(attrs))
    return specs


def _refuse_negative(specs: Mapping[str, Any]) -> None:
    """`InferenceError` if an inferred shape has a dimension below -1, as nonsense in files may lead to."""
    for slot, value in specs.items():
        if type(value) is Spec:
            if value.shape and min(value.shape) < -1:
                raise InferenceError(f"{slot} would be {value}, and no dimension can be negative")
        elif value is not None:
            for spec in value:
                _refuse_negative({slot: spec})


def _why_not(definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any], error: Exception) -> str:
    """The reason why the inference of an op failed with `error`, for the message."""
    for name, slot in definition.inputs.items():
        if not (slot.optional or slot.intermediate) and inputs.get(name) in (None, []):
            return f"the input slot {name!r} is empty; it needs a variable"
    for name, attr in definition.attrs.items():
        try:
            attr.check(attrs.get(name))
        except (TypeError, ValueError, OverflowError) as why:
            return f"the attribute {name!r} should be of kind {attr.kind}: {why}"
    return f"its inputs and attributes do not fit together: {type(error).__name__}: {error}"


def _share_lod(inputs: Mapping[str, Any], outputs: Mapping[str, Any], joins_rows: bool) -> dict[str, Any]:
    """Give each output the LoD that `lods_by_rows` has for its number of rows."""
    values = [spec for value in inputs.values() for spec in (value if isinstance(value, list) else [value])]
    lods = lods_by_rows([(spec.shape, spec.lod) for spec in values if spec is not None], joins_rows)

    def shared(value: Any) -> Any:
        if isinstance(value, list):
            return [shared(item) for item in value]
        if value is None or value.type is VarType.SELECTED_ROWS:  # it has the number of rows of a table
            return value
        return value.with_lod(lods.get(value.shape[0], ()) if value.shape else ())

    return {slot: shared(value) for slot, value in outputs.items()}


def _check_grad_inputs(definition: OpDef, forward: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> None:
    """Raise `InferenceError` if a gradient op does not fit its forward op: inputs, outputs and gradients of outputs.

    Outputs are compared where the gradient op reads all that they are inferred from.
    """
    forward.check_inputs(inputs)
    forward_inputs = {slot: inputs[slot] for slot in forward.inputs if slot in inputs}
    if not forward.inputs.keys() <= definition.inputs.keys() or any(
        slot.name not in forward_inputs for slot in forward.inputs.values() if not slot.optional
    ):
        return
    declared = {slot: inputs.get(grad_slot(slot)) or inputs.get(slot) for slot in forward.outputs}
    declared = {slot: spec for slot, spec in declared.items() if isinstance(spec, Spec)}
    for slot, expected in forward.infer_specs(forward_inputs, attrs, declared).items():
        for name in (slot, grad_slot(slot)):
            actual = inputs.get(name) if name not in forward_inputs else None
            pairs = zip(expected, actual, strict=False) if isinstance(actual, list) else [(expected, actual)]
            for should, spec in pairs:
                if isinstance(should, Spec) and spec is not None and not _may_stand_for(spec, should):
                    raise InferenceError(f"{name} is {spec}; it should be {should}, as inferred for {slot} of {forward.type}")


def _may_stand_for(spec: Spec, expected: Spec) -> bool:
    """Whether a value may have the expected shape; one element has shape ``[1]`` or ``[]``, sparse rows any."""
    return may_equal(spec.shape, expected.shape) or spec.size == expected.size == 1 or spec.type is not VarType.LOD_TENSOR


def specs_of_grad(definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Specs of a gradient op's outputs, by slot; `InferenceError` if its inputs do not fit the op that it is the gradient of."""
    assert definition.forward is not None
    _check_grad_inputs(definition, definition.forward, inputs, attrs)
    rule: Any = definition.forward.rule
    gradients = {slot + "@GRAD": inputs[slot] for slot in rule.wrt if slot in inputs}
    if definition.forward.sparse_grad and attrs.get("is_sparse"):
        slot = definition.forward.sparse_grad + "@GRAD"
        gradients[slot] = replace(gradients[slot], type=VarType.SELECTED_ROWS)
    # An optional input that the rule reads, but that is missing here, was not given to the op: it has no gradient.
    absent = {slot for slot in rule.inputs if definition.forward.inputs[slot].optional}
    wanted = {slot for slot in rule.wrt if slot not in inputs and slot not in absent}
    if wanted:
        gradients.update((slot + "@GRAD", spec) for slot, spec in rule(Spec.namespace, inputs, attrs, wanted).items())
    return gradients

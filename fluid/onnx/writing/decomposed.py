"""Write ops through their decomposition (`define(..., decomposition=...)`) or composition into ordinary ops, and their gradients
too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fluid.backward import gradients
from fluid.ir.inference import BuildNamespace
from fluid.ir.program import Program, Variable, program_guard
from fluid.opdef.registry import OpDef, Rule, grad_slot

from .graph import NotExported, OnnxTensor
from .program import Names, ProgramWriter, decomposes


def _map_values(value: Any, function: Any) -> Any:
    return [function(item) for item in value] if isinstance(value, list) else function(value)


class _Decomposition:
    """A program of the ordinary ops of an op; variables stand for its inputs."""

    def __init__(self, writer: ProgramWriter, forward: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> None:
        self.program = Program()
        self.tensors: dict[str, OnnxTensor] = {}
        self.writer = writer
        self.variables: dict[str, Any] = {slot: _map_values(value, self._variable) for slot, value in inputs.items()}
        values = {slot: value for slot, value in self.variables.items() if "@GRAD" not in slot}
        with program_guard(self.program, Program()):
            namespace = BuildNamespace(self.program.global_block())
            try:
                if forward.decomposition is not None:
                    self.outputs = dict(forward.decomposition(namespace, values, attrs))
                else:
                    assert forward.composition is not None
                    self.outputs = forward.composition(namespace, values, attrs, set(forward.outputs))
            except KeyError as error:
                raise NotExported(f"{error.args[0]}, which is drawn") from None

    def _variable(self, tensor: OnnxTensor | None) -> Variable | None:
        if tensor is None:
            return None
        spec, block = tensor.spec, self.program.global_block()
        name = f"input_{len(self.tensors)}"
        var = block.create_var(name=name, shape=spec.shape, dtype=spec.dtype, lod_level=len(spec.lod), is_data=True)
        var.stop_gradient = False
        self.tensors[name] = tensor
        return var

    def write(self) -> Names:
        """Write the program's ops; return the tensors of its names."""
        names = Names(self.program.global_block())
        names.values.update(self.tensors)
        inner = self.writer.inner(self.program)
        inner.ops(self.program.global_block().ops, names)
        return names


@decomposes
def decomposed(
    writer: ProgramWriter, definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any], wanted: set[str]
) -> dict[str, Any]:
    """Write an op with a decomposition, or the gradient of one; return its outputs by slot."""
    forward = definition.forward or definition
    parts = _Decomposition(writer, forward, inputs, attrs)
    if definition.forward is None:
        names = parts.write()
        return {slot: _map_values(value, lambda var: names.get(var.name)) for slot, value in parts.outputs.items()}
    assert isinstance(forward.rule, Rule)
    targets, cotangents = [], []
    for slot in forward.rule.cotangents:
        seeds = parts.variables.get(grad_slot(slot))
        for var, seed in zip(
            *(side if isinstance(side, list) else [side] for side in (parts.outputs[slot], seeds)), strict=False
        ):
            if seed is not None:
                targets.append(var)
                cotangents.append(seed)
    slots = [slot for slot in forward.rule.wrt if grad_slot(slot) in wanted and parts.variables.get(slot) is not None]
    flat = [var for slot in slots for var in _listed(parts.variables[slot])]
    with program_guard(parts.program, Program()):
        grads = iter(gradients(targets, [var for var in flat if var is not None], cotangents))
    names = parts.write()
    results: dict[str, Any] = {}
    for slot in slots:

        def of(var: Variable | None) -> OnnxTensor | None:
            grad = None if var is None else next(grads)
            return None if grad is None else names.get(grad.name)

        results[grad_slot(slot)] = _map_values(parts.variables[slot], of)
    return results


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]

"""Steps as native loops on arrays: one step, a formula of ops, is compiled and runs for all steps, each at addresses of its own.

So a new number of steps compiles nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from fluid.ir.versions import Value
from fluid.opdef.inference import OpNamespace, infer_specs
from fluid.opdef.registry import OpDef
from fluid.values.cache import Cache
from fluid.values.spec import Spec, SpecValue

from ..binding.arrays import map_values
from ..stepwise.repeated import AT_ONCE
from .op_instructions import Op, OpInstruction
from .plans import with_native_code
from .repeated import BlockCode, RepeatedBlock, no_source
from .target import Target

Formula = Callable[[Any, Sequence[Any], Sequence[Any], Sequence[Any]], tuple[Sequence[Any], Sequence[Any]]]
"""(ops, parameters, states, inputs) -> (the states after the step, the outputs of the step); None for absent values."""


class _StepTensor(SpecValue):
    """A value of the step."""

    __slots__ = ("_namespace", "spec", "value")

    def __init__(self, value: Value, spec: Spec, namespace: _StepRecorder) -> None:
        self.value, self.spec, self._namespace = value, spec, namespace

    def _ops(self) -> OpNamespace:
        return self._namespace


class _StepRecorder(OpNamespace):
    """Records the ops that are applied to tensors as instructions."""

    def __init__(self) -> None:
        self.instructions: list[OpInstruction] = []
        self.specs: dict[Value, Spec] = {}

    def tensor(self, spec: Spec) -> _StepTensor:
        value = f"step.{len(self.specs)}", 0
        self.specs[value] = spec
        return _StepTensor(value, spec, self)

    def apply(self, definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
        slots = {slot: list(value) if isinstance(value, tuple) else value for slot, value in inputs.items()}
        attrs = definition.defaults(definition.check_attrs(attrs))
        outputs = map_values(self.tensor, infer_specs(definition, map_values(lambda tensor: tensor.spec, slots), attrs))
        op = Op(definition.type, attrs)
        self.instructions.append(OpInstruction(op, definition, _values_by_slot(slots), _values_by_slot(outputs)))
        return outputs


def _values_by_slot(tensors: Mapping[str, Any]) -> dict[str, list[Value | None]]:
    listed = {slot: items if isinstance(items, list) else [items] for slot, items in tensors.items()}
    return {slot: [None if item is None else item.value for item in items] for slot, items in listed.items()}


class StepLoop:
    """A compiled step, to run for any number of steps.

    Attributes:
        passed: for each state, the number of the output that is also this state after the step; None if there is none.
    """

    def __init__(
        self, block: RepeatedBlock, read: Sequence[Value | None], states: Sequence[Value], outputs: Sequence[Value]
    ) -> None:
        rows = {value: row for row, value in enumerate([*read, *states, *outputs]) if value is not None}
        self._block, self._operands = block, [rows[value] for value in block.external]
        self._lock = threading.Lock()
        self.passed = [outputs.index(state) if state in outputs else None for state in states]

    def run(self, addresses: Any) -> None:
        """Run steps in order.

        Args:
            addresses: the addresses [value, step] of parameters, states before the steps and inputs, which the steps read; of
                states after the steps, where no output is this state; and of outputs. Rows of absent values are ignored.
        """
        with self._lock:
            for start in range(0, addresses.shape[1], AT_ONCE):
                self._block.trips_at(addresses[self._operands, start : start + AT_ONCE]).run_all()


_loops: Cache[Any, StepLoop | None] = Cache()


Specs = tuple[tuple[Spec | None, ...], ...]
"""The specs of the parameters, of the states, and of the inputs of a step; None for absent values."""


def step_loop(key: Hashable, formula: Formula, specs: Specs, target: Target) -> StepLoop | None:
    """The loop of a formula for values like these; None if an op of the formula is not native.

    Args:
        key: all else that the formula depends on.
    """
    full_key = key, specs, target
    if full_key in _loops:
        return _loops[full_key]
    return _loops.keep(full_key, _compiled(formula, specs, target))


def _compiled(formula: Formula, specs: Specs, target: Target) -> StepLoop | None:
    f = _StepRecorder()
    tensors = [[None if spec is None else f.tensor(spec) for spec in group] for group in specs]
    read = [None if tensor is None else tensor.value for group in tensors for tensor in group]
    last_states, outputs = formula(f, *tensors)
    results = _distinct(f, outputs, read)
    after = _distinct(f, last_states, read)
    external = {value for value in (*read, *after, *results) if value is not None}
    items = with_native_code(f.instructions, f.specs, [*after, *results], {}, target, fewest=1)
    if not all(item.is_native for item in items):
        return None
    block = RepeatedBlock(BlockCode(items, f.specs, external, ()), target, no_source)
    return StepLoop(block, read, after, results)


def _distinct(f: _StepRecorder, tensors: Sequence[_StepTensor], read: Sequence[Value | None]) -> list[Value]:
    """The values of results: a copy where the value is read or is a result already, since each has memory of its own."""
    values: list[Value] = []
    for tensor in tensors:
        has_memory = tensor.value in read or tensor.value in values
        values.append(f.assign(tensor).value if has_memory else tensor.value)
    return values

"""Reports the memory of a compiled training step by cause, and the memory with some layers frozen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from ..errors import FluidError
from ..executor import Scope
from ..executor.native.fallback import NativeUnavailable
from ..executor.native.target import Target
from ..executor.planned.placement import Tenant
from ..executor.planned.plan import ArenaPlan
from ..ir.checked import checked
from ..ir.program import Operator, Program
from ..ir.roles import OpRole
from ..ir.versions import Value
from .freezing import updated_parameters
from .layout import Layout, LibraryFunction
from .library import Names, plan_functions, values_before
from .targets import find_target

_MOST_CHOICES = 6
"""The most ways to freeze parameters that are planned for a report."""


@dataclass(frozen=True)
class MemoryReport:
    """Bytes of memory that a training step needs, by cause. It can be printed.

    Attributes:
        state: parameters, moments of the optimizer, and other variables.
        constants: frozen parameters, which lie in the library.
        arena: activations that the backward part reads, gradients, and other values, all at the peak; images with a border of
            zeros; workspace of kernels; and gaps between values.
        at_peak: the op that runs when the values take most memory.
        frozen: names of frozen layers, from the first layer on -> bytes of state and of arena with them frozen.

    >>> loss = layers.mean(layers.fc(fluid.data("x", [2, 4]), 3))
    >>> _ = fluid.optimizer.SGD(0.1).minimize(loss)
    >>> report = fluid.ahead.report_memory(
    ...     fluid.default_main_program(), fetches=[loss], startup=fluid.default_startup_program(), target="cortex-m4"
    ... )
    >>> print(str(report).splitlines()[0])
    state: 72 bytes
    """

    state: Mapping[str, int]
    constants: int
    arena: Mapping[str, int]
    at_peak: str
    frozen: Mapping[str, tuple[int, int]]

    @property
    def state_bytes(self) -> int:
        """All bytes of the state."""
        return sum(self.state.values())

    @property
    def arena_bytes(self) -> int:
        """All bytes of the arena."""
        return sum(self.arena.values())

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"state: {self.state_bytes} bytes"
        yield from _rows(self.state)
        if self.constants:
            yield f"constants: {self.constants} bytes"
        yield f"arena: {self.arena_bytes} bytes; values are counted where most are alive, at {self.at_peak}"
        yield from _rows(self.arena)
        activations = self.arena["activations"]
        if activations:
            yield f"recomputing activations would save less than {activations} bytes of the arena"
        for layers, (state, arena) in self.frozen.items():
            yield f"freezing {layers} leaves a state of {state} bytes and an arena of {arena}"


def _rows(parts: Mapping[str, int]) -> Iterator[str]:
    return (f"  {size:>12} {name}" for name, size in parts.items() if size)


@checked
def report_memory(
    program: Program,
    feeds: Names | None = None,
    fetches: Names = (),
    *,
    startup: Program | None = None,
    scope: Scope | None = None,
    batch: int | Sequence[int] = (),
    freeze: Sequence[str] = (),
    frozen_as: str = "float32",
    target: str = "host",
    cpu: str = "",
    features: str = "",
) -> MemoryReport:
    """Tell what the memory of a compiled training step is for. Nothing is written.

    The step is planned again for some choices of layers to freeze, each with all layers before it.

    Args:
        program, feeds, fetches, startup, scope, batch, freeze, frozen_as, target, cpu, features: as for `compile_program`.

    Returns:
        Bytes by cause.

    Raises:
        ProgramError, FeedError, FluidError: the step cannot be compiled; see `compile_program`.

    >>> x, label = fluid.data("x", [None, 4]), fluid.data("label", [None, 1], "int64")
    >>> loss = layers.mean(layers.softmax_with_cross_entropy(layers.fc(layers.fc(x, 64, act="tanh"), 3), label))
    >>> _ = fluid.optimizer.Adam(0.1).minimize(loss)
    >>> report = fluid.ahead.report_memory(
    ...     fluid.default_main_program(), fetches=[loss], startup=fluid.default_startup_program(), batch=8, target="cortex-m4"
    ... )
    >>> report.state["parameters"], report.state["moments"]
    (2060, 4152)
    >>> list(report.frozen)
    ['fc_0']
    """
    try:
        processor = find_target(target, cpu, features)
        values = values_before(program, startup, scope)
        _, (step, *_), layout = plan_functions(program, feeds, fetches, (), values, batch, freeze, frozen_as, processor)
        choices = _choices(program, layout)
        frozen = {
            ", ".join(layers): _sizes(program, feeds, fetches, values, batch, [*freeze, *patterns], frozen_as, processor)
            for layers, patterns in choices
        }
    except NativeUnavailable as error:
        raise FluidError(f"the program cannot be compiled: {error}") from error
    constants = sum(spec.nbytes for _, spec in layout.frozen.values())
    arena, at_peak = _arena(step, layout)
    return MemoryReport(_state(program, layout), constants, arena, at_peak, frozen)


def _sizes(
    program: Program,
    feeds: Names | None,
    fetches: Names,
    values: Scope,
    batch: int | Sequence[int],
    freeze: Sequence[str],
    frozen_as: str,
    target: Target,
) -> tuple[int, int]:
    """Bytes of state and of arena with some parameters frozen."""
    _, _, layout = plan_functions(program, feeds, fetches, (), values, batch, freeze, frozen_as, target)
    return layout.state_bytes, layout.arena_bytes


def _choices(program: Program, layout: Layout) -> list[tuple[list[str], list[str]]]:
    """Choices of layers to freeze, as (names of layers, names of their parameters): the first layer, the first two, and so on."""
    updated = {name for name in updated_parameters(program) if name in layout.state}
    in_order = dict.fromkeys(name for op in program.global_block().ops for name in op.input_arg_names if name in updated)
    groups: dict[str, list[str]] = {}
    for name in in_order:
        groups.setdefault(name.partition(".")[0], []).append(name)
    counts = range(1, len(groups))
    chosen = counts[:: -(-len(counts) // _MOST_CHOICES)] if counts else counts
    layers = list(groups)
    return [(layers[:count], [name for layer in layers[:count] for name in groups[layer]]) for count in chosen]


def _state(program: Program, layout: Layout) -> dict[str, int]:
    """The bytes of the state by cause."""
    parts = {"parameters": 0, "moments": 0, "other variables": 0}
    ops = [op for block in program.blocks for op in block.ops if op.input("Param")]
    parameters = {name for op in ops for name in op.input("Param")}
    moments = {name for op in ops for name in op.output_arg_names} - parameters
    for name, (_, spec) in layout.state.items():
        parts["parameters" if name in parameters else "moments" if name in moments else "other variables"] += spec.nbytes
    return {**parts, "gaps": layout.state_bytes - sum(parts.values())}


def _arena(step: LibraryFunction, layout: Layout) -> tuple[dict[str, int], str]:
    """The bytes of the arena by cause at the peak, and the op that runs then."""
    plan, peak = step.plan, _peak(step.plan)
    backward = [_is_backward(instruction) for instruction in plan.instructions]
    writer = {value: number for number, instruction in enumerate(plan.instructions) for value in instruction.written}
    read_back = {value for number, instruction in enumerate(plan.instructions) if backward[number] for value in instruction.read}
    parts = {"activations": 0, "gradients": 0, "other values": 0}
    for value, tenant in _tenants(plan):
        if tenant.start <= peak <= tenant.end:
            is_gradient = value in writer and backward[writer[value]]
            parts["gradients" if is_gradient else "activations" if value in read_back else "other values"] += tenant.size
    parts |= {"images with a border": layout.image_bytes, "workspace": layout.workspace_bytes}
    op = plan.instructions[peak].op if plan.instructions else None
    return {**parts, "gaps": layout.arena_bytes - sum(parts.values())}, _name_of(op)


def _tenants(plan: ArenaPlan) -> list[tuple[Value, Tenant]]:
    """The tenants of a plan's arena, each with the first value that lies in it."""
    firsts: dict[int, tuple[Value, Tenant]] = {}
    for value, tenant in plan.tenants.items():
        firsts.setdefault(id(tenant), (value, tenant))
    return list(firsts.values())


def _peak(plan: ArenaPlan) -> int:
    """The number of the instruction at which the values of a plan take most memory."""
    changes = [0] * (len(plan.instructions) + 2)
    for _, tenant in _tenants(plan):
        changes[max(tenant.start, 0)] += tenant.size
        changes[tenant.end + 1] -= tenant.size
    alive = list(accumulate(changes))
    return max(range(len(plan.instructions)), key=alive.__getitem__, default=0)


def _is_backward(instruction: Any) -> bool:
    ops = getattr(instruction, "ops", None) or [instruction.op]
    return any(op.role & (OpRole.BACKWARD | OpRole.OPTIMIZE) for op in ops)


def _name_of(op: Operator | None) -> str:
    return f"{op.type} of {', '.join(op.output_arg_names)}" if op is not None else "no op"

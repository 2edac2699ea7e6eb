"""The memory of a plan, call by call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import FluidTypeError, ProgramError
from ..executor.planned.placement import Tenant
from ..executor.planned.plan import ArenaPlan
from .axes import axes_or_new

__all__ = ["arena", "memory"]

_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def memory(plan: ArenaPlan, axes: Any = None) -> Any:
    """Draw how many bytes of results are alive at each call of a plan, and the size of their arena.

    The call at the peak is named. Parameters and other variables of the scope are not part of it.

    Args:
        plan: the result of ``executor.plan(program, feed, fetch_list)``.
        axes: axes of matplotlib to draw on, by default the axes of a new figure.

    Returns:
        The axes.

    Raises:
        FluidTypeError: `plan` is none of numpy or native code; XLA places values itself.
        ProgramError: the plan has no values whose sizes are known before it runs.

    ::

        fluid.plots.memory(executor.plan(feed=feed, fetch_list=[loss]))
    """
    tenants = _tenants(plan, "memory")
    alive = _alive(tenants, len(plan.instructions))
    peak = int(alive.argmax())
    axes = axes_or_new(axes)
    size, unit = _unit(plan.arena_bytes)
    calls = np.arange(len(alive))
    axes.fill_between(calls, alive / size, step="mid", alpha=0.4)
    axes.step(calls, alive / size, where="mid", label="alive")
    axes.axhline(plan.arena_bytes / size, color="grey", linestyle="--", label=f"arena, {plan.arena_bytes / size:.3g} {unit}")
    axes.plot([peak], [alive[peak] / size], "o", color="C3")
    axes.annotate(
        f"{alive[peak] / size:.3g} {unit} at call {peak}, {_name(plan, peak)}",
        (peak, alive[peak] / size),
        xytext=(0, 8),
        textcoords="offset points",
        ha="left" if peak < len(alive) / 2 else "right",
        color="C3",
    )
    axes.set_xlabel("call of the plan")
    axes.set_ylabel(unit)
    axes.set_ylim(0, 1.2 * plan.arena_bytes / size)
    axes.legend(loc="lower center")
    axes.grid(alpha=0.3)
    return axes


def arena(plan: ArenaPlan, axes: Any = None) -> Any:
    """Draw the place of each value in the arena of a plan, and the calls during which it lives. Values that share bytes stand
    side by side.

    Args:
        plan: the result of ``executor.plan(program, feed, fetch_list)``.
        axes: axes of matplotlib to draw on, by default the axes of a new figure.

    Returns:
        The axes; the largest values are named on them.

    Raises:
        FluidTypeError, ProgramError: as of `memory`.
    """
    tenants = _tenants(plan, "arena")
    axes = axes_or_new(axes)
    from matplotlib.patches import Rectangle

    size, unit = _unit(plan.arena_bytes)
    names: dict[int, list[str]] = {}
    for (name, _), tenant in plan.tenants.items():
        names.setdefault(id(tenant), []).append(name)
    largest = sorted(tenants, key=lambda tenant: tenant.size * (tenant.end - tenant.start + 1))[-12:]
    named = {id(tenant) for tenant in largest}
    for number, tenant in enumerate(tenants):
        width, height = tenant.end - tenant.start + 1, tenant.size / size
        place = tenant.start - 0.5, tenant.offset / size
        axes.add_patch(Rectangle(place, width, height, facecolor=f"C{number % 10}", alpha=0.6, edgecolor="white", linewidth=0.5))
        is_wide = width > 0.2 * len(plan.instructions)
        if id(tenant) in named and tenant.size > (0.03 if is_wide else 0.3) * plan.arena_bytes:
            axes.text(
                place[0] + width / 2,
                place[1] + height / 2,
                names[id(tenant)][0],
                ha="center",
                va="center",
                fontsize="x-small",
                rotation=0 if is_wide else 90,
                clip_on=True,
            )
    axes.set_xlim(-1.5, len(plan.instructions) + 0.5)
    axes.set_ylim(0, plan.arena_bytes / size)
    axes.set_xlabel("call of the plan")
    axes.set_ylabel(f"place in the arena, {unit}")
    return axes


def _tenants(plan: Any, plot: str) -> list[Tenant]:
    """The values of a plan that have bytes in its arena; values that take turns count as one."""
    if not isinstance(plan, ArenaPlan):
        raise FluidTypeError(f"plots.{plot} draws what executor.plan(...) returns at a CPUPlace, not {type(plan).__name__}")
    tenants = list({id(tenant): tenant for tenant in plan.tenants.values()}.values())
    if not tenants:
        raise ProgramError(f"plots.{plot}: the plan has no values whose sizes are known before it runs")
    return tenants


def _alive(tenants: Sequence[Tenant], calls: int) -> Any:
    """The number of live bytes at each call, and after the last."""
    changes = np.zeros(calls + 3, np.int64)
    for tenant in tenants:
        changes[tenant.start + 1] += tenant.size
        changes[tenant.end + 2] -= tenant.size
    return changes.cumsum()[1 : calls + 1] if calls else changes.cumsum()[:1]


def _unit(size: int) -> tuple[int, str]:
    return next(unit for unit in _UNITS if size >= unit[0] or unit[0] == 1)


def _name(plan: ArenaPlan, number: int) -> str:
    """The name of the ops that a call of the plan computes."""
    instruction = plan.instructions[number] if number < len(plan.instructions) else None
    return instruction.label if instruction is not None else "the end"

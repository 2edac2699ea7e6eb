"""Placement of values in one arena: values that are alive at the same time never share bytes."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import accumulate

from fluid.values.memory import ALIGNMENT

__all__ = ["Tenant", "live_bytes", "padded", "place", "place_apart"]

_MOST_WORK = 1_000_000
"""If tenants times distinct sizes exceed this, sizes are rounded so that there are fewer."""

_Gap = tuple[int, int, int, int]
"""Free bytes: the first step, the last step negated, the offset negated, and the size."""


@dataclass(slots=True)
class Tenant:
    """A value, or several that reuse the same bytes in turn: `size` bytes, alive from step `start` through step `end`."""

    size: int
    start: int
    end: int
    offset: int = 0


def padded(size: int) -> int:
    """Round `size` up, so that the next value begins at a cache line."""
    return -(-max(size, 1) // ALIGNMENT) * ALIGNMENT


def live_bytes(tenants: Iterable[Tenant]) -> int:
    """The peak number of live bytes at one step."""
    changes: dict[int, int] = {}
    for tenant in tenants:
        changes[tenant.start] = changes.get(tenant.start, 0) + tenant.size
        changes[tenant.end + 1] = changes.get(tenant.end + 1, 0) - tenant.size
    return max(accumulate(changes[step] for step in sorted(changes)), default=0)


def place_apart(tenants: Iterable[Tenant]) -> int:
    """Place tenants without sharing bytes; returns the size of the arena."""
    top = 0
    for tenant in tenants:
        tenant.offset = top
        top += padded(tenant.size)
    return top


def place(tenants: Sequence[Tenant]) -> int:
    """Place tenants in an arena; tenants with disjoint live ranges may share bytes. Returns the size of the arena.

    The largest go first. Tenants of one size are placed in order of their starts: in the gap that ends first among the gaps that
    last long enough, or on top if there is none. A gap is a rectangle of bytes by steps, and a tenant leaves up to three smaller
    ones: before, after and beside. The work is about linear for each size, and programs have few sizes.
    """
    by_size: dict[int, list[Tenant]] = {}
    for tenant in tenants:
        by_size.setdefault(padded(tenant.size), []).append(tenant)
    if len(by_size) * len(tenants) > _MOST_WORK:
        exact, by_size = by_size, {}
        for size, equal in exact.items():
            by_size.setdefault(_rounded(size), []).extend(equal)
    last = max((tenant.end for tenant in tenants), default=0)
    gaps: list[_Gap] = []
    top = 0
    for size in sorted(by_size, reverse=True):
        gaps, top = _place_equal(by_size[size], size, gaps, top, last)
    return top


def _place_equal(tenants: list[Tenant], size: int, gaps: list[_Gap], top: int, last: int) -> tuple[list[_Gap], int]:
    """Place tenants of one size in gaps or on top; returns the remaining gaps and the new top."""
    left = [gap for gap in gaps if gap[3] < size]
    coming = [gap for gap in gaps if gap[3] >= size]
    heapify(coming)
    usable: list[_Gap] = []  # as (-end, -offset, start, size): sorted so that the gap that ends first, the lowest one, is last
    for tenant in sorted(tenants, key=lambda tenant: tenant.start):
        while coming and coming[0][0] <= tenant.start:
            start, end, offset, width = heappop(coming)
            insort(usable, (end, offset, start, width))
        while usable and -usable[-1][0] < tenant.start:
            end, offset, start, width = usable.pop()
            left.append((start, end, offset, width))
        position = bisect_right(usable, (-tenant.end, 1, 0, 0)) - 1
        if position >= 0:
            end, offset, start, width = usable.pop(position)
        else:
            end, offset, start, width = -last, -top, -1, size
            top += size
        tenant.offset = -offset
        if start < tenant.start:
            left.append((start, 1 - tenant.start, offset, size))
        if tenant.end < -end:
            heappush(coming, (tenant.end + 1, end, offset, size))
        if width >= 2 * size:
            insort(usable, (end, offset - size, start, width - size))
        elif width > size:
            left.append((start, end, offset - size, width - size))
    left += coming
    left += [(start, end, offset, width) for end, offset, start, width in usable]
    return left, top


def _rounded(size: int) -> int:
    """Round `size` up to a number with at most three bits set."""
    step = max(ALIGNMENT, 1 << max(size.bit_length() - 3, 0))
    return -(-size // step) * step

"""The geometry of convolutions: the user's parameters, and the walks over images that compute output and gradient."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

from .emitter import FLOAT, Type
from .halo import Halo
from .images import Images

_FEWEST_CHANNELS = 8
"""Minimal channels per tap for which a loop over taps costs little."""


@dataclass(frozen=True)
class Phase:
    """Inputs along one axis with the same position within a stride: every `stride`-th input, beginning at `first`.

    Attributes:
        taps: the taps of the filter that reach these inputs, in the order of the outputs.
        output: the index of the output for the first tap and the first input.
        step: distance of the outputs of consecutive taps.
        repeats: the number of merged phases. Each next one has `first` 1 higher and its taps `tap_shift` higher.
    """

    first: int
    count: int
    taps: tuple[int, ...]
    output: int
    step: int
    repeats: int = 1
    tap_shift: int = 0

    def merged(self, following: Phase) -> Phase | None:
        """Merge a following phase into this one; None if they differ in more than their places."""
        shifts = {after - before for before, after in zip(self._last_taps, following.taps, strict=False)}
        is_alike = all(getattr(self, name) == getattr(following, name) for name in ("count", "output", "step")) and len(
            self.taps
        ) == len(following.taps)
        if not is_alike or len(shifts) > 1 or (self.repeats > 1 and shifts - {self.tap_shift}):
            return None
        return replace(self, repeats=self.repeats + 1, tap_shift=max(shifts, default=0))

    @property
    def _last_taps(self) -> tuple[int, ...]:
        return tuple(tap + (self.repeats - 1) * self.tap_shift for tap in self.taps)


class _ConvolutionAxis(NamedTuple):
    """Rows or columns of a convolution."""

    extent: int
    out: int
    kernel: int
    stride: int
    pad: int
    dilation: int

    @property
    def halo(self) -> int:
        """How far the filter reaches beyond the input, at most, on either side."""
        end = (self.out - 1) * self.stride + (self.kernel - 1) * self.dilation - self.pad
        return max(self.pad, end - (self.extent - 1))

    def phases(self) -> list[Phase]:
        """The phases of the input. Inputs with the same position within a stride are reached by the same taps."""
        phases: list[Phase] = []
        for first in range(min(self.stride, self.extent)):
            distances = {tap: first + self.pad - tap * self.dilation for tap in reversed(range(self.kernel))}
            taps = tuple(tap for tap, distance in distances.items() if distance % self.stride == 0)
            outputs = [distances[tap] // self.stride for tap in taps] or [0]
            step = outputs[1] - outputs[0] if len(taps) > 1 else 1
            phase = Phase(first, -(-(self.extent - first) // self.stride), taps, outputs[0], step)
            merged = phases[-1].merged(phase) if phases else None
            phases[-1:] = [merged] if merged else [*phases[-1:], phase]
        return phases


def _reach(phases: list[Phase], extent: int) -> int:
    """How far the taps of phases reach beyond an axis of the output's gradient, at most."""
    needed = [0]
    for phase in phases:
        if phase.taps:
            last = phase.output + phase.count - 1 + (len(phase.taps) - 1) * phase.step
            needed += [-phase.output, last - (extent - 1)]
    return max(needed)


@dataclass(frozen=True)
class Convolution:
    """The geometry of a convolution.

    Attributes:
        x: the layout of the input, or its gradient.
        y: the layout of the output, or its gradient. Its extents imply the padding at the bottom and on the right.
        kernel: rows and columns of the filter; likewise `strides`, `pads` (at the top and on the left) and `dilations`.
    """

    x: Images
    y: Images
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)
    dilations: tuple[int, int] = (1, 1)
    groups: int = 1
    element: Type = FLOAT

    @property
    def channels(self) -> int:
        """Channels of the input in one group."""
        return self.x.channels // self.groups

    @property
    def filters(self) -> int:
        """Filters in one group."""
        return self.y.channels // self.groups

    @property
    def taps(self) -> int:
        return prod(self.kernel)

    @property
    def axes(self) -> tuple[_ConvolutionAxis, _ConvolutionAxis]:
        """Rows and columns."""
        x, y = self.x, self.y
        sides = self.kernel, self.strides, self.pads, self.dilations
        rows = _ConvolutionAxis(x.height, y.height, *(side[0] for side in sides))
        return rows, _ConvolutionAxis(x.width, y.width, *(side[1] for side in sides))

    @cached_property
    def phases(self) -> tuple[list[Phase], list[Phase]]:
        """The phases of rows and of columns, for the gradient of the input."""
        rows, columns = self.axes
        return rows.phases(), columns.phases()

    @property
    def places(self) -> int:
        """The number of kinds of positions of an input within a stride: the gradient of the input has separate code for each."""
        return prod(map(len, self.phases))

    @property
    def x_halo(self) -> Halo:
        """The minimal halo of the input, for the output and for the filter's gradient."""
        return Halo(*(max(0, axis.halo) for axis in self.axes))

    @property
    def y_halo(self) -> Halo:
        """The minimal halo of the output's gradient, for the gradient of the input."""
        rows, columns = self.phases
        return Halo(_reach(rows, self.y.height), _reach(columns, self.y.width))


@dataclass(frozen=True)
class Walk:
    """Sums of products over taps and channels, for a grid of pixels of `output`. Steps are in elements.

    Attributes:
        extents: rows and columns of the grid; `first` and `spacing` are its origin and spacing in the output.
        taps: rows and columns of the filter's taps, in order of use.
        start: offset of the source's element under the first tap of the first pixel.
        steps: strides in the source per row and column of the grid; `tap_steps`, per row and column of taps.
        rows_before: rows in each packed panel that belong to earlier walks.
        repeats: rows and columns of merged walks. Each next one begins 1 further in the output, and its taps `tap_shifts` further
            in the filter.
        source_rows: the source row under the first tap of the first pixel, and its increments per row of the grid and per
            row of taps; `source_columns` likewise.
    """

    source: Images
    output: Images
    channels: int
    filters: int
    extents: tuple[int, int]
    first: tuple[int, int]
    spacing: tuple[int, int]
    taps: tuple[tuple[int, ...], tuple[int, ...]]
    start: int
    steps: tuple[int, int]
    tap_steps: tuple[int, int]
    rows_before: int
    source_rows: tuple[int, int, int]
    source_columns: tuple[int, int, int]
    repeats: tuple[int, int] = (1, 1)
    tap_shifts: tuple[int, int] = (0, 0)

    @property
    def is_inside(self) -> bool:
        """Whether no row of taps touches the halo."""
        first, step, tap_step = self.source_rows
        last = first + (self.extents[0] - 1) * step + (len(self.taps[0]) - 1) * tap_step
        return 0 <= first and last < self.source.height

    @cached_property
    def skips_columns(self) -> bool:
        """Whether tiles skip columns of taps outside the image; it pays if more than a quarter of them are outside."""
        if self.channels < _FEWEST_CHANNELS:
            return False
        taps, (first, step, tap_step) = len(self.taps[1]), self.source_columns
        starts = first + step * np.arange(self.extents[1])
        columns = starts[:, None] + tap_step * np.arange(taps)
        covered = int(np.count_nonzero((columns >= 0) & (columns < self.source.width)))
        return covered < 0.75 * columns.size

    @property
    def runs(self) -> tuple[tuple[int, int], int]:
        """Rows and columns of taps to loop over, and the number of contiguous elements under each."""
        rows, columns = map(len, self.taps)
        if self.tap_steps[1] == self.channels and not self.skips_columns:
            return (rows, 1), columns * self.channels
        return (rows, columns), self.channels

    @property
    def rows(self) -> int:
        """Rows in each packed panel for one of the merged walks."""
        return prod(map(len, self.taps)) * self.channels


def forward_walk(g: Convolution) -> Walk:
    _, row, pixel = g.x.strides
    return Walk(
        g.x,
        g.y,
        g.channels,
        g.filters,
        extents=(g.y.height, g.y.width),
        first=(0, 0),
        spacing=(1, 1),
        taps=(tuple(range(g.kernel[0])), tuple(range(g.kernel[1]))),
        start=g.x.start - g.pads[0] * row - g.pads[1] * pixel,
        steps=(g.strides[0] * row, g.strides[1] * pixel),
        tap_steps=(g.dilations[0] * row, g.dilations[1] * pixel),
        rows_before=0,
        source_rows=(-g.pads[0], g.strides[0], g.dilations[0]),
        source_columns=(-g.pads[1], g.strides[1], g.dilations[1]),
    )


def input_walks(g: Convolution) -> list[Walk]:
    walks: list[Walk] = []
    _, row, pixel = g.y.strides
    rows_before = 0
    for rows in g.phases[0]:
        for columns in g.phases[1]:
            walk = Walk(
                g.y,
                g.x,
                g.filters,
                g.channels,
                extents=(rows.count, columns.count),
                first=(rows.first, columns.first),
                spacing=g.strides,
                taps=(rows.taps, columns.taps),
                start=g.y.start + rows.output * row + columns.output * pixel,
                steps=(row, pixel),
                tap_steps=(rows.step * row, columns.step * pixel),
                rows_before=rows_before,
                source_rows=(rows.output, 1, rows.step),
                source_columns=(columns.output, 1, columns.step),
                repeats=(rows.repeats, columns.repeats),
                tap_shifts=(rows.tap_shift, columns.tap_shift),
            )
            walks.append(walk)
            rows_before += walk.rows * prod(walk.repeats)
    return walks

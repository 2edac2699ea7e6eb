"""Packs filters [M, C / groups, rows, columns] in panels for native convolutions."""

from __future__ import annotations

from math import prod

from .emitter import Function, Type, Value, zero
from .geometry import Convolution, Walk, input_walks
from .images import affine, from_rows, parts, scaled_rows, square_lanes, to_places, write_transposed
from .kernel import Share
from .target import Target
from .tiles import Panel, Tiling, panels_of, tiling_of, width_of
from .winograd import forward_blocks, input_blocks

_AT_ONCE = 8
"""Elements that one turn of a copy loop moves, one by one."""


def forward_tiling(g: Convolution, target: Target) -> Tiling:
    blocks = forward_blocks(g, target)
    if blocks is not None:
        return blocks.tiling
    return tiling_of(g.y.width, g.filters, g.element, target, g.x.strides[2] * g.strides[1])


def input_tiling(g: Convolution, target: Target) -> Tiling:
    blocks = input_blocks(g, target)
    if blocks is not None:
        return blocks.tiling
    return tiling_of(-(-g.x.width // g.strides[1]), g.channels, g.element, target, g.y.strides[2])


def packed_rows(g: Convolution) -> int:
    """The number of rows of a panel of filters: one per tap and channel."""
    return g.taps * g.channels


def packed_row(f: Function, g: Convolution, index: Value) -> Value:
    """The row of a panel for an element of a filter; `index` is the element's index within the filter."""
    channel, tap = f.divided(index, g.taps)
    return f.add(f.mul(tap, g.channels), channel)


def packed_elements(geometry: Convolution, target: Target) -> int:
    """Number of elements that `write_packed_filter` writes."""
    panels = panels_of(geometry.filters, forward_tiling(geometry, target))
    return geometry.groups * packed_rows(geometry) * width_of(panels)


def packed_elements_for_input(geometry: Convolution, target: Target) -> int:
    """Number of elements that `write_packed_filter_for_input` writes."""
    panels = panels_of(geometry.channels, input_tiling(geometry, target))
    return geometry.groups * geometry.taps * geometry.filters * width_of(panels)


def write_packed_filter(
    f: Function, geometry: Convolution, filter_: Value, packed: Value, share: Share, target: Target, scale: Value | None = None
) -> None:
    """Pack a filter [M, C / groups, rows, columns], times a number per output channel, for `write_forward`:
    [groups][panels][taps][channels][filters of a panel]."""
    g, element = geometry, geometry.element
    panels = panels_of(g.filters, forward_tiling(g, target))
    rows = packed_rows(g)
    for panel in panels:

        def chunk(number: Value, panel: Panel = panel) -> None:
            group, panel_index = f.divided(number, panel.count)
            start = affine(f, panel.before * rows, (group, rows * width_of(panels)), (panel_index, panel.width * rows))
            first = affine(f, panel.first, (group, g.filters), (panel_index, panel.width))
            source = f.at(filter_, f.mul(first, rows), element)
            packed_panel = f.at(packed, start, element)

            def place(column: Value) -> Value:
                return f.at(packed_panel, f.mul(packed_row(f, g, column), panel.width), element)

            factors = f.at(scale, first, element) if scale is not None else None
            scaled = scaled_rows(f, element, from_rows(f, element, source, rows), factors)
            write_transposed(f, panel.filters, rows, square_lanes(element, target), scaled, to_places(f, element, place))
            _clear_padding(f, element, packed_panel, rows, panel)

        f.loop(*share.of(f, g.groups * panel.count), 1, [], chunk)


def _clear_padding(f: Function, element: Type, packed: Value, rows: int, panel: Panel) -> None:
    """Zero the padding lanes of a packed panel."""
    if panel.filters == panel.width:
        return

    def row(number: Value) -> None:
        at = f.at(packed, f.mul(number, panel.width), element)
        for column in range(panel.filters, panel.width):
            f.store_number(zero(element), f.at(at, column, element))

    f.loop(0, rows, 1, [], row)


def write_packed_filter_for_input(
    f: Function, geometry: Convolution, filter_: Value, packed: Value, share: Share, target: Target
) -> None:
    """Pack a filter [M, C / groups, rows, columns] for `write_input_gradient`: for each walk over the input,
    [groups][panels][taps of the walk][M / groups][channels of a panel]."""
    g, element = geometry, geometry.element
    panels = panels_of(g.channels, input_tiling(g, target))
    width = width_of(panels)
    for panel in panels:

        def chunk(number: Value, panel: Panel = panel) -> None:
            group, panel_index = f.divided(number, panel.count)
            first = affine(f, panel.first, (panel_index, panel.width))
            source = f.at(filter_, affine(f, 0, (group, g.filters * g.channels * g.taps), (first, g.taps)), element)
            targets = []
            for walk in input_walks(g):
                start = walk.rows_before * width + panel.before * walk.rows
                steps = (group, g.taps * g.filters * width), (panel_index, panel.width * walk.rows)
                targets.append((walk, f.at(packed, affine(f, start, *steps), element)))

            def row(filter_: Value) -> None:
                at, to = f.at(source, f.mul(filter_, g.channels * g.taps), element), f.mul(filter_, panel.width)
                for walk, output in targets:
                    _copy_taps(f, g, walk, panel, width, at, f.at(output, to, element))

            f.loop(0, g.filters, 1, [], row)

        f.loop(*share.of(f, g.groups * panel.count), 1, [], chunk)


def _copy_taps(f: Function, g: Convolution, walk: Walk, panel: Panel, width: int, source: Value, output: Value) -> None:
    """Copy one filter's elements for the channels of a panel, [channels][taps], to one row per tap of each merged walk.

    Each row is finished before the next one: rows are far apart, often at distances that conflict in caches.
    """
    rows, columns = walk.taps
    down, along = (taps[1] - taps[0] if len(taps) > 1 else 0 for taps in (rows, columns))

    def one_walk(number: Value) -> None:
        shift_down, shift_along = f.divided(number, walk.repeats[1])
        shift = affine(f, 0, (shift_down, walk.tap_shifts[0] * g.kernel[1]), (shift_along, walk.tap_shifts[1]))
        to = f.at(output, f.mul(number, walk.rows * width), g.element)
        f.loop(0, len(rows), 1, [], lambda row: f.loop(0, len(columns), 1, [], lambda column: tap(shift, to, row, column)))

    def tap(shift: Value, output: Value, row: Value, column: Value) -> None:
        first = rows[0] * g.kernel[1] + columns[0]
        taps = affine(f, first, (row, down * g.kernel[1]), (column, along))
        at = f.at(source, f.add(taps, shift), g.element)
        place = affine(f, 0, (row, len(columns)), (column, 1))
        _copy_row(f, g.element, at, f.at(output, f.mul(place, g.filters * panel.width), g.element), g.taps, panel)

    if rows and columns:
        f.loop(0, prod(walk.repeats), 1, [], one_walk)


def _copy_row(f: Function, element: Type, source: Value, output: Value, stride: int, panel: Panel) -> None:
    """Copy elements with a stride of `stride` elements to a row of a panel, and zero its padding lanes."""
    in_turns = panel.filters // _AT_ONCE * _AT_ONCE

    def copy(at: Value, to: Value, count: int) -> None:
        for number in range(count):
            f.store_number(f.load(f.at(at, number * stride, element), element), f.at(to, number, element))

    def turn(start: Value) -> None:
        copy(f.opaque(f.at(source, f.mul(start, stride), element)), f.opaque(f.at(output, start, element)), _AT_ONCE)

    if stride == 1:
        for start, lanes in parts(panel.filters, panel.vectors[0]):
            f.store(f.load(f.at(source, start, element), element.of(lanes)), f.at(output, start, element))
    else:
        f.loop(0, in_turns, _AT_ONCE, [], turn)
        copy(f.at(source, in_turns * stride, element), f.at(output, in_turns, element), panel.filters - in_turns)
    for column in range(panel.filters, panel.width):
        f.store_number(zero(element), f.at(output, column, element))

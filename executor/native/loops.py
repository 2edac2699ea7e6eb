"""Writes the kernel of a group without a core: loops over rows and columns (see `fusion.Group`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from math import gcd, prod
from typing import Any

from .emitter import BOOL, INT64, Function, Operand, Type, Value, constant
from .formulas import FORMULAS, combine, neutral
from .fusion import HEAVY, Group, source_of, strides_over
from .graph import Choice, Constant, GraphNode, Map, Position, Reduction, Rows, operands_by_element, operands_of
from .images import from_rows, lanes_of, square_lanes, to_rows, transpose
from .kernel import Share
from .target import Target


def stages_of(group: Group) -> tuple[dict[GraphNode, int], int]:
    """Node -> number of the pass over a row that computes it; and the number of passes.

    A node that reads a reduction along the row is computed one pass after the reduction.
    """
    members = set(group.nodes)
    stage: dict[GraphNode, int] = {}
    for node in group.nodes:
        sources = [source_of(operand) for operand in operands_of(node)]
        stage[node] = max((_available(group, stage, source, node) for source in sources if source in members), default=0)
    return stage, 1 + max(stage.values(), default=0)


def _available(group: Group, stage: Mapping[GraphNode, int], source: GraphNode, reader: GraphNode) -> int:
    along_rows = source in group.per_row and isinstance(source, Reduction)
    crosses = isinstance(reader, Choice) and source not in group.per_row
    return stage[source] + (1 if along_rows or crosses else 0)


_LEAST_EDGE = 4
"""The least edge of squares that are transposed in registers; copying elements one by one is faster than smaller squares."""
Totals = Sequence[tuple[Reduction, Value]]
"""Reductions with their values so far."""


@dataclass(frozen=True)
class _ColumnBlock:
    """A block of columns: its first column, and its coordinates along all dimensions except the last one."""

    start: Value
    places: list[Value]


@dataclass
class _LoopRow:
    """State of one row: its number, values that are constant along the row, and pointers to its start in operands."""

    number: Value
    places: list[Value]
    scalars: dict[Any, Value] = field(default_factory=dict)
    pointers: dict[Any, Value] = field(default_factory=dict)


class Nest:
    """The loop nest of a group.

    Args:
        group: the nodes to compute.
        stored: nodes of the group that get memory.
    """

    def __init__(self, group: Group, stored: Sequence[GraphNode], target: Target) -> None:
        self.group, self.stored, self.target, self.limits = group, list(stored), target, target.limits
        self.lanes = target.lanes(max((max(node.element.bytes, 4) for node in group.nodes), default=4))
        self.stage, self.passes = stages_of(group)
        self._members = {*group.nodes, *group.uniform}
        self._merge_dimensions()
        self._choose_chunks()

    # -- the index space
    def _merge_dimensions(self) -> None:
        """Merge dimensions that are contiguous in all operands; the last dimension is the columns."""
        group = self.group
        breaks = sorted(group.breaks | ({group.columns} if group.columns else set()), reverse=True)
        extents = [large // small for large, small in pairwise(breaks)]
        columns = group.columns
        parts = self._parts_of_index_space(extents)
        all_steps = [steps for steps in self._all_strides(extents) if steps is not None]
        merged: list[tuple[int, str]] = []
        for place, (extent, part) in enumerate(zip(extents, parts, strict=True)):
            mergeable = (
                bool(merged) and merged[-1][1] == part and all(steps[place - 1] == steps[place] * extent for steps in all_steps)
            )
            if mergeable:
                merged[-1] = (merged[-1][0] * extent, part)
            else:
                merged.append((extent, part))
        sizes = [extent for extent, _ in merged] or [1]
        inner_count = sum(part == "columns" for _, part in merged) if columns is not None else 1
        inner_count = max(inner_count, 1) if columns != 1 else 0
        cut = len(sizes) - inner_count
        self.row_extents, self.column_extents = sizes[:cut] or [1], sizes[cut:] or [1]
        self.columns = prod(self.column_extents)
        self.rows = prod(self.row_extents)
        self.flat = columns is None and self.rows == 1

    def _parts_of_index_space(self, extents: Sequence[int]) -> list[str]:
        """The part of each dimension: columns, rows that a sum reduces to one, or other rows."""
        columns, inner, parts = self.group.columns or 0, 1, []
        for extent in reversed(extents):
            is_summed = inner < columns * self.group.summed_rows
            parts.append("columns" if inner < columns else "summed" if is_summed else "rows")
            inner *= extent
        return parts[::-1]

    def _is_outside(self, operand: GraphNode) -> bool:
        """Whether an operand is in memory that another group has written."""
        return source_of(operand) not in self._members and not isinstance(operand, (Constant, Position))

    def _all_strides(self, extents: Sequence[int]) -> list[list[int] | None]:
        group, rows = self.group, None
        results = []
        if group.columns:
            rows = []
            inner = 1
            for extent in reversed(extents):
                if inner >= group.columns:
                    rows.append(extent)
                inner *= extent
            rows.reverse()
        for node in group.nodes:
            if _is_strided(node) and node in self.stored:
                if node.size == group.total:
                    results.append(strides_over(node, node.shape, extents))
                elif rows and (steps := strides_over(node, node.shape, rows)) is not None:
                    results.append(_with_columns(steps, extents))
            if isinstance(node, Reduction):
                if source_of(node.source) not in self._members:
                    results.append(strides_over(node.source, node.source.shape, extents))
            elif node.size == group.total and node not in group.per_row:
                operands = filter(self._is_outside, operands_by_element(node))
                results += [strides_over(operand, node.shape, extents) for operand in operands]
            elif isinstance(node, Map) and rows:
                for operand in node.operands:
                    if self._is_outside(operand):
                        steps = strides_over(operand, node.shape, rows)
                        if steps is not None:  # rows can merge only where these operands can merge, too
                            results.append(_with_columns(steps, extents))
        return results

    def _choose_chunks(self) -> None:
        cost = 1 + sum(6 if isinstance(node, Map) and node.formula in HEAVY else 1 for node in self.group.nodes)
        total = self.rows * self.columns
        has_rows = any(isinstance(node, Rows) for node in self.group.nodes)
        limits = self.limits
        self.is_serial = total * cost <= limits.serial or (has_rows and total < limits.serial_rows)
        if self.flat:
            part = min(max(limits.part // self.lanes * self.lanes, self.lanes), max(self.columns, 1))
            self.rows, self.columns, self.remaining_columns = self.columns // part, part, self.columns % part
            self.row_extents, self.column_extents = [self.rows], [self.columns]
        else:
            self.remaining_columns = 0
        is_split = len(self.column_extents) > 1 and 2 * self.column_extents[-1] >= self.lanes and not self.group.sums
        self.blocks = prod(self.column_extents[:-1]) if is_split else 1
        """Blocks of columns: all but the last dimension of columns stays the same in a block."""
        self.strip = self.row_extents[-1] if len(self.row_extents) > 1 else 1
        """Rows along the last dimension of rows; rows of a strip differ only in that coordinate."""
        strips = self.rows // self.strip if self.rows else 0
        least = 1 if not self.group.sums else -(-strips // limits.sum_chunks)
        self.chunk = max(-(-limits.part // max(self.columns * self.strip, 1)), least, 1)
        self._block_columns = 0
        """Columns that a chunk sums over all rows, in registers; 0 where chunks are of rows."""
        vectors = len(self.group.sums) * sum(count for _, count, _ in self._segments())
        self._in_registers = bool(self.group.sums) and vectors <= limits.sum_vectors * min(len(self.group.sums), 2)
        if self.group.sums and not self._in_registers:
            self._block_columns = self._columns_summed_at_once()
        if self._block_columns:
            self.chunk = max(strips, 1)
        elif self.sums_are_whole:
            self.chunk = self.group.summed_rows // self.strip
        elif self.is_serial and self.group.sums:
            self.chunk = max(strips, 1)
        elif self.group.sums and not self._in_registers:
            self.chunk = min(self.chunk, max(limits.summed_rows_in_memory // self.strip, 1))
        self.strips = strips
        self.chunks = -(-strips // self.chunk)
        self.all_chunks = self.chunks + (1 if self.remaining_columns else 0)
        if self._turns_rows:
            self._cut_turned()

    def _columns_summed_at_once(self) -> int:
        """The value of `_block_columns`: partial sums of few wide rows would be a large part of the work."""
        group, limits = self.group, self.limits
        if self.sums_are_whole or self.passes > 1 or group.per_row or not self.rows:
            return 0
        block = max(limits.sum_vectors * min(len(group.sums), 2) // len(group.sums), 1) * self.lanes
        is_shared = self.columns >= limits.wide_sum_blocks * block
        return block if self.rows <= (limits.wide_sum_rows if is_shared else limits.narrow_sum_rows) else 0

    @property
    def sums_are_whole(self) -> bool:
        """Whether sums are over some of the rows, and each chunk computes whole sums, not parts of them."""
        return 0 < self.group.summed_rows < self.rows

    # -- copies that turn rows into columns
    @cached_property
    def _turns_rows(self) -> bool:
        """Whether the group only copies an array whose rows, along the last dimension of rows here, are the columns here."""
        (node, *further), rows, columns = self.group.nodes, self.row_extents, self.column_extents
        if further or self.group.uniform or self.stored != [node] or not isinstance(node, Map) or node.formula != "copy":
            return False
        if self.flat or min(rows[-1], columns[-1]) < min(self._edge, _LEAST_EDGE):
            return False
        operand = node.operands[0]
        if not self._is_outside(operand) or operand.element != node.element or node.element == BOOL:
            return False
        steps, outputs = self._operand_strides(operand, node.shape), self._operand_strides(node, node.shape)
        return steps[len(rows) - 1] == 1 and steps[-1] > 1 and outputs[-1] == 1

    @cached_property
    def _edge(self) -> int:
        """The edge of the squares that are transposed in registers."""
        edge = square_lanes(self.group.nodes[0].element, self.target)
        while edge > max(min(self.row_extents[-1], self.column_extents[-1]), 1):
            edge //= 2
        return edge

    def _cut_turned(self) -> None:
        """Cut the rows into chunks of an even number of squares, which read and write whole cache lines."""
        squares = -(-self.row_extents[-1] // self._edge)
        self.turned = max(self.limits.part // (self._edge * self.column_extents[-1]) // 2 * 2, 2)
        outer = prod(self.row_extents[:-1]) * prod(self.column_extents[:-1])
        self.all_chunks = self.chunks = outer * -(-squares // self.turned)

    def _write_turned(self, number: Value) -> None:
        """Copy a chunk, in squares that are transposed in registers; the last ones overlap others.

        Squares follow each other in pairs of rows and columns, which share cache lines.
        """
        f, (node,), edge = self.f, self.group.nodes, self._edge
        assert isinstance(node, Map)
        (operand,), (*outer_rows, rows), (*outer_columns, columns) = node.operands, self.row_extents, self.column_extents
        squares_down, squares_across = -(-rows // edge), -(-columns // edge)
        outer, block = f.divided(number, -(-squares_down // self.turned))
        places = self._coordinates(outer, outer_rows + outer_columns) if outer_rows + outer_columns else []

        def pointer(first: Value, steps: list[int]) -> Value:
            between = steps[: len(outer_rows)] + steps[len(outer_rows) + 1 : -1]
            return self._strided_pointer(first, places, between, node.element)

        steps, outputs = self._operand_strides(operand, node.shape), self._operand_strides(node, node.shape)
        load = from_rows(f, node.element, pointer(self.pointers.first(operand), steps), steps[-1])
        store = to_rows(f, node.element, pointer(self.pointers.output(node), outputs), outputs[len(outer_rows)])

        def copy_square(across: Value, down: Value) -> None:
            column, row = (f.min(f.mul(place, edge), size - edge) for place, size in ((across, columns), (down, rows)))
            source, output = load(column, row), store(row, column)
            for shift, vector in enumerate(transpose(f, [source(shift, edge) for shift in range(edge)])):
                output(shift, vector)

        def copy_two_rows(down: Value) -> None:
            end = f.min(f.add(down, 2), stop)
            f.loop(0, squares_across, 2, [], lambda across: copy_two_columns(across, down, end))

        def copy_two_columns(first: Value, down: Value, end: Value) -> None:
            last = f.min(f.add(first, 2), squares_across)
            f.loop(first, last, 1, [], lambda across: f.loop(down, end, 1, [], partial(copy_square, across)))

        start = f.mul(block, self.turned)
        stop = f.min(f.add(start, self.turned), squares_down)
        f.loop(start, stop, 2, [], copy_two_rows)

    # -- writing
    def write(self, f: Function, pointers: Any, share: Share) -> None:
        """Write the loops; `pointers` holds the pointers to operands and outputs."""
        self.f, self.pointers = f, pointers
        self._numbers = write_uniforms(f, self.group, pointers)
        if self._block_columns:
            self._write_column_blocks(share)
            return
        start, stop = (0, self.all_chunks) if self.is_serial else share.of(f, self.all_chunks)
        if not self.all_chunks:
            return

        def chunk(number: Value) -> None:
            if self._turns_rows:
                self._write_turned(number)
                return
            if not self.remaining_columns:
                self._write_chunk(number)
                return
            if self.chunks:
                with f.when(f.compare("slt", number, self.chunks)):
                    self._write_chunk(number)
            with f.when(f.compare("eq", number, self.chunks)):
                columns, self.columns = self.columns, self.remaining_columns
                self.column_extents = [self.remaining_columns]
                self._strip_places: list[Value] = []
                self._write_row(f.int64(self.rows), columns, {})
                self.columns, self.column_extents = columns, [columns]

        f.loop(start, stop, 1, [], chunk)

    def _write_chunk(self, number: Value) -> None:
        """Write the rows of a chunk, with the partial sums over these rows."""
        f, (first, last) = self.f, self._strips_of(number)
        sums = [node for node in self.group.nodes if isinstance(node, Reduction) and node in self.group.sums]
        self._targets = {node: f.at(self.pointers.output(node), f.mul(number, self.columns), node.element) for node in sums}
        if self._in_registers:
            self._write_with_sums_in_registers(sums, first, last)
            return
        for node in sums:
            for at, count, width in self._segments():
                f.loop(0, count, 1, [], partial(self._clear_sums, node, at, width))
        self._loop_rows(first, last, [], lambda index: self._write_row(index, self.columns, None))

    def _strips_of(self, chunk: Value) -> tuple[Operand, Operand]:
        """The first strip of a chunk, and the end of its strips."""
        f = self.f
        if self.chunks == 1:
            return 0, self.strips
        if self.chunk == 1:
            return chunk, f.add(chunk, 1)
        first = f.mul(chunk, self.chunk)
        last = f.add(first, self.chunk)
        return first, f.min(last, self.strips) if self.strips % self.chunk else last

    def _clear_sums(self, node: Reduction, start: int, lanes: int, number: Value) -> None:
        """Store a vector of neutral elements, the sums before the first row; `number` counts vectors from column `start` on."""
        place = self.f.at(self._targets[node], self.f.add(self.f.mul(number, lanes), start), node.element)
        self.f.store(neutral(node.kind, node.element.of(lanes)), place)

    def _write_with_sums_in_registers(self, sums: Sequence[Reduction], first: Operand, last: Operand) -> None:
        """Write the rows of some strips; the loop over rows carries a vector for each sum and run of columns."""
        vectors = [(at, width) for start, count, width in self._segments() for at in range(start, start + count * width, width)]
        places = [(node, at) for node in sums for at, _ in vectors]
        begin = [(node, neutral(node.kind, node.element.of(width))) for node in sums for _, width in vectors]

        def row(index: Value, *values: Value) -> list[Value]:
            register_sums = dict(zip(places, values, strict=True))
            self._write_row(index, self.columns, register_sums)
            return [register_sums[place] for place in places]

        for (node, at), value in zip(places, self._loop_rows(first, last, begin, row), strict=True):
            self.f.store(value, self.f.at(self._targets[node], at, node.element))

    def _write_column_blocks(self, share: Share) -> None:
        """Add up all rows, some columns at a time."""
        f, block = self.f, self._block_columns
        sums = [node for node in self.group.nodes if isinstance(node, Reduction) and node in self.group.sums]

        def write(first: Value, columns: int) -> None:
            self._first_column, self._block_columns = first, columns
            self._targets = {node: f.at(self.pointers.output(node), first, node.element) for node in sums}
            self._write_with_sums_in_registers(sums, 0, self.strips)
            self._block_columns = block

        def bounds(count: int) -> tuple[Operand, Operand]:
            return (0, count) if self.is_serial else share.of(f, count)

        whole, remaining = divmod(self.columns, block)
        if whole:
            f.loop(*bounds(whole), 1, [], lambda number: write(f.mul(number, block), block))
        if remaining:
            f.loop(*bounds(1), 1, [], lambda _: write(f.int64(whole * block), remaining))

    def _loop_rows(self, first: Any, last: Any, totals: Totals, body: Callable[..., Any]) -> list[Value]:
        """Loop over strips and their rows; the loops carry the sums `totals`, from their first values on."""
        f = self.f

        def strip(number: Value, *values: Value) -> list[Value]:
            if self.strip == 1:
                self._strip_places = []
                return list(body(number, *values) or ())
            self._strip_places = self._coordinates(number, self.row_extents[:-1])
            first_row = f.mul(number, self.strip)

            def row(place: Value, *inner: Value) -> list[Value]:
                self._last_place = place
                return list(body(f.add(first_row, place), *inner) or ())

            inner_totals = [(node, value) for (node, _), value in zip(totals, values, strict=True)]
            return self._loop_in_parts((0, self.strip, 1), self.strip, self.limits.summed_rows, inner_totals, row)

        most = max(self.limits.summed_rows // self.strip, 1)
        return self._loop_in_parts((first, last, 1), self.chunk, most, totals, strip)

    def _loop_in_parts(
        self, span: tuple[Operand, Operand, int], count: int, most: int, totals: Totals, body: Callable[..., list[Value]]
    ) -> list[Value]:
        """Loop over at most `count` numbers. Sums restart after `most` of them, so that rounding errors do not grow.

        Args:
            span: start, stop and step.
            totals: the reductions that the loop carries, each with its first value.
        """
        f, (start, stop, step) = self.f, span
        nodes, begin = [node for node, _ in totals], [value for _, value in totals]
        if count <= most or not any(node.kind == "sum" and node.element.is_float for node in nodes):
            return f.loop(start, stop, step, begin, body, at_least_once=True)

        def part(first: Value, *before: Value) -> list[Value]:
            restart = [neutral(node.kind, value.type) for node, value in totals]
            values = f.loop(first, f.min(f.add(first, most), stop), step, restart, body, at_least_once=True)
            return [_combine(f, *reduction) for reduction in zip(nodes, before, values, strict=True)]

        return f.loop(start, stop, most, begin, part, at_least_once=True)

    def _segments(self) -> list[tuple[int, int, int]]:
        """The columns of a block as runs of vectors: (first column, number of vectors, lanes)."""
        runs, at, width, columns = [], 0, self.lanes, self._block_columns or self.columns // self.blocks
        while at < columns:
            while width > columns - at:
                width //= 2
            count = (columns - at) // width
            runs.append((at, count, width))
            at += count * width
        return runs

    # -- a row
    def _write_row(self, number: Value, row_size: int, register_sums: dict[Any, Value] | None) -> None:
        f, group = self.f, self.group
        self._row = _LoopRow(number, [*self._strip_places, self._last_place] if self._strip_places else [number])
        self._row_size = row_size
        for stage in range(self.passes):
            self._current_pass = stage
            for node in group.nodes:
                if node in group.per_row and self.stage[node] == stage and not isinstance(node, Reduction):
                    value = self._row.scalars[node] = self._compute_per_row(node)
                    if node in self.pointers.stored:
                        f.store_number(value, self._per_row_pointer(node))
            self._write_pass(stage, register_sums)

    def _coordinates(self, number: Value, extents: Sequence[int]) -> list[Value]:
        """Split a linear index into one index per dimension."""
        if len(extents) <= 1:
            return [number]
        f, places = self.f, []
        for extent in reversed(extents[1:]):
            places.append(f.rem(number, extent))
            number = f.div(number, extent)
        return [number, *reversed(places)]

    def _write_pass(self, stage: int, register_sums: dict[Any, Value] | None) -> None:
        """Write a pass over the columns of a row: stores, reductions along the row, and sums over rows."""
        f, group = self.f, self.group
        here = [node for node in group.nodes if self.stage[node] == stage]
        writes = [node for node in here if node in self.pointers.stored and node not in group.per_row and node not in group.sums]
        along = [node for node in here if isinstance(node, Reduction) and node in group.per_row]
        sums = [node for node in here if isinstance(node, Reduction) and node in group.sums]
        if not (writes or along or sums):
            return
        if self.blocks == 1:
            self._block = _ColumnBlock(self._first_column if self._block_columns else f.int64(0), [])
            totals = self._write_block(writes, along, sums, register_sums)
        else:
            start = [(node, neutral(node.kind, node.element)) for node in along]

            def block(number: Value, *before: Value) -> list[Value]:
                places = self._coordinates(number, self.column_extents[:-1])
                self._block = _ColumnBlock(f.mul(number, self.column_extents[-1]), places)
                parts = self._write_block(writes, along, [], None)
                return [
                    _combine(f, node, value, _combine_pairwise(f, node, parts[node]))
                    for node, value in zip(along, before, strict=True)
                ]

            ends = self._loop_in_parts((0, self.blocks, 1), self.blocks, self.limits.summed_rows, start, block)
            totals = {node: [end] for node, end in zip(along, ends, strict=True)}
        for node in along:
            total = _combine_pairwise(f, node, totals[node])
            self._row.scalars[node] = total
            if node in self.pointers.stored:
                f.store_number(total, self._per_row_pointer(node))

    def _write_block(
        self,
        writes: Sequence[GraphNode],
        along: Sequence[Reduction],
        sums: Sequence[Reduction],
        register_sums: dict[Any, Value] | None,
    ) -> dict[Reduction, list[Value]]:
        """Compute a block of columns; returns parts of the totals of reductions along the row."""
        f = self.f
        totals: dict[Reduction, list[Value]] = {node: [] for node in along}
        for at, count, width in self._segments():
            times = 4 if along and count >= 8 else 1
            begin = [(node, neutral(node.kind, node.element.of(width))) for node in along for _ in range(times)]

            def vectors(index: Value, *values: Value, at: int = at, width: int = width, times: int = times) -> list[Value]:
                results = list(values)
                for turn in range(times):
                    column = f.add(f.mul(index, width), at + turn * width)
                    self._write_vector(column, width, writes, sums, register_sums, None)
                    for position, node in enumerate(along):
                        value = self._operand(node.source, node.source.shape, width)
                        results[position * times + turn] = _combine(f, node, results[position * times + turn], value)
                return results

            if register_sums is not None and sums:
                for vector in range(count):
                    column = at + vector * width
                    self._write_vector(f.int64(column), width, writes, sums, register_sums, column)
                    for node in along:
                        totals[node].append(self._across(node, width))
                continue
            main = count // times * times
            most = times * self.limits.summed_rows
            ends = self._loop_in_parts((0, main, times), main, most, begin, vectors) if main else []
            for position, node in enumerate(along):
                parts = ends[position * times : (position + 1) * times]
                totals[node] += [_across(f, node, _combine_pairwise(f, node, parts))] if parts else []
            for vector in range(main, count):
                self._write_vector(f.int64(at + vector * width), width, writes, sums, register_sums, None)
                for node in along:
                    totals[node].append(self._across(node, width))
        return totals

    def _write_vector(
        self,
        column: Value,
        width: int,
        writes: Sequence[GraphNode],
        sums: Sequence[Reduction],
        register_sums: dict[Any, Value] | None,
        static: int | None,
    ) -> None:
        """Compute one vector of neighbouring columns of a block."""
        f, block = self.f, self._block
        self._column, self._memo = f.add(block.start, column), {}
        self._places = [*block.places, column] if block.places else [self._column]
        for node in writes:
            self._memo[node] = broadcast(f, self._operand(node, node.shape, width), width)
        of_sums = [(node, broadcast(f, self._operand(node.source, node.source.shape, width), width)) for node in sums]
        for node in writes:  # after all loads: an output may alias an operand
            self._store(self._memo[node], node)
        for node, value in of_sums:
            if register_sums is not None:
                assert static is not None
                register_sums[node, static] = _combine(f, node, register_sums[node, static], value)
            else:
                place = f.at(self._targets[node], column, node.element)
                f.store(_combine(f, node, f.load(place, node.element.of(width)), value), place)

    def _row_pointer(self, node: GraphNode, step: int) -> Value:
        """The pointer to the start of the current row of a stored node."""
        key = node, "stored"
        if _is_strided(node) and key not in self._row.pointers:
            outer = self._operand_strides(node, node.shape)[: len(self.row_extents)]
            self._row.pointers[key] = self._strided_pointer(self.pointers.output(node), self._row.places, outer, node.element)
        if key not in self._row.pointers:
            self._row.pointers[key] = self.f.at(self.pointers.output(node), self.f.mul(self._row.number, step), node.element)
        return self._row.pointers[key]

    def _operand_strides(self, node: GraphNode, shape: Sequence[int]) -> list[int]:
        """The strides of an operand, broadcast to `shape`, over the dimensions of rows and columns."""
        extents = [prod(shape)] if self.flat else [*self.row_extents, *self.column_extents]
        steps = strides_over(node, shape, extents)
        assert steps is not None, "dimensions are merged only where operands allow it"
        return [steps[0] * self._row_size, steps[0]] if self.flat else steps

    def _store(self, value: Value, node: GraphNode) -> None:
        """Store a vector of neighbouring columns of a node."""
        f = self.f
        pointer = self._row_pointer(node, self._row_size)
        if not _is_strided(node):
            f.store(value, f.at(pointer, self._column, node.element))
            return
        inner = self._operand_strides(node, node.shape)[len(self.row_extents) :]
        if len(inner) == len(self._places):
            f.store_steps(value, self._strided_pointer(pointer, self._places, inner, node.element), inner[-1])
            return
        for start, run, places in self._runs(value.type.lanes):
            first = self._strided_pointer(pointer, places, inner, node.element)
            f.store_steps(lanes_of(f, value, start, run), first, inner[-1])

    def _across(self, node: Reduction, width: int) -> Value:
        """Reduce the current vector of columns to one number."""
        return _across(self.f, node, broadcast(self.f, self._operand(node.source, node.source.shape, width), width))

    # -- values
    def _operand(self, node: GraphNode, shape: Sequence[int], width: int) -> Value:
        """The value of an operand, broadcast to `shape`, at the current columns; a number if it is the same for all columns."""
        f = self.f
        if isinstance(node, Constant):
            return constant(node.number, node.element)
        if isinstance(node, Position):
            return column_numbers(f, self._column, width, node.element)
        source = source_of(node)
        if source in self._numbers:
            return self._numbers[source]
        if source not in self._members:
            return self._load_operand(node, shape, width)
        if source in self.group.per_row:
            return self._row.scalars[source]
        if source in self._memo:
            return self._memo[source]
        if self.stage[source] < self._current_pass and source in self.pointers.stored and not _is_strided(source):
            value = f.load(
                f.at(self._row_pointer(source, self._row_size), self._column, source.element), source.element.of(width)
            )
        else:
            value = self._compute(source, width)
        self._memo[source] = value
        return value

    def _compute(self, node: GraphNode, width: int) -> Value:
        f = self.f
        if isinstance(node, Rows):
            if node.are_elements:
                places = broadcast(f, self._operand(node.ids, node.shape, width), width)
                return f.gather(self.pointers.first(node.table), places, node.element, node.table.shape[0])
            key = node, "row"
            if key not in self._row.pointers:
                number = f.between(f.convert(self._per_row_operand(node.ids, node.ids.shape), INT64), 0, node.table.shape[0] - 1)
                self._row.pointers[key] = f.at(self.pointers.first(node.table), f.mul(number, node.shape[-1]), node.element)
            return f.load(f.at(self._row.pointers[key], self._column, node.element), node.element.of(width))
        assert isinstance(node, Map)
        values = [self._operand(operand, node.shape, width) for operand in node.operands]
        return apply_formula(f, node, values, width)

    def _compute_per_row(self, node: GraphNode) -> Value:
        """Compute a per-row node for the current row."""
        f = self.f
        if isinstance(node, Choice):
            number = f.between(f.convert(self._per_row_operand(node.ids, node.ids.shape), INT64), 0, node.source.shape[-1] - 1)
            if source_of(node.source) in self._members:
                start = self._row_pointer(source_of(node.source), self._row_size)
            else:
                place = f.mul(self._row.number, node.source.shape[-1])
                start = f.at(self.pointers.first(node.source), place, node.element)
            return f.load(f.at(start, number, node.element), node.element)
        assert isinstance(node, Map)
        return apply_formula(f, node, [self._per_row_operand(operand, node.shape) for operand in node.operands], 1)

    def _per_row_operand(self, node: GraphNode, shape: Sequence[int]) -> Value:
        """The value of a per-row operand in the current row."""
        if isinstance(node, Constant):
            return constant(node.number, node.element)
        source = source_of(node)
        if source in self._numbers:
            return self._numbers[source]
        if source in self._members:
            return self._row.scalars[source]
        key = node, tuple(shape), "scalar"
        if key not in self._row.scalars:
            steps = strides_over(node, shape, self.row_extents)
            assert steps is not None
            pointer = self._strided_pointer(self.pointers.first(node), self._row.places, steps, node.element)
            self._row.scalars[key] = self.f.load(pointer, node.element)
        return self._row.scalars[key]

    def _per_row_pointer(self, node: GraphNode) -> Value:
        """The pointer to the current row's element of a per-row node."""
        if not _is_strided(node):
            return self.f.at(self.pointers.output(node), self._row.number, node.element)
        steps = strides_over(node, node.shape, self.row_extents)
        assert steps is not None
        return self._strided_pointer(self.pointers.output(node), self._row.places, steps, node.element)

    def _strided_pointer(self, pointer: Value, places: Sequence[Value], steps: Sequence[int], element: Type) -> Value:
        f = self.f
        for place, step in zip(places, steps, strict=True):
            if step:
                pointer = f.at(pointer, f.mul(place, step), element)
        return pointer

    def _load_operand(self, node: GraphNode, shape: Sequence[int], width: int) -> Value:
        f, row = self.f, self._row
        steps = self._operand_strides(node, shape)
        key = node, tuple(shape)
        outer, inner = steps[: len(self.row_extents)], steps[len(self.row_extents) :]
        if key not in row.pointers:
            row.pointers[key] = self._strided_pointer(self.pointers.first(node), row.places, outer, node.element)
        pointer = row.pointers[key]
        if not any(inner):
            if key not in row.scalars:
                row.scalars[key] = f.load(pointer, node.element)
            return row.scalars[key]
        if len(inner) == len(self._places):
            first = self._strided_pointer(pointer, self._places, inner, node.element)
            return f.load_steps(first, node.element.of(width), inner[-1])
        pieces = []
        for _, run, places in self._runs(width):
            first = self._strided_pointer(pointer, places, inner, node.element)
            pieces.append(broadcast(f, f.load_steps(first, node.element.of(run), inner[-1]), run))
        return f.join(pieces)

    def _runs(self, width: int) -> list[tuple[int, int, list[Value]]]:
        """The runs of a vector that lie along the last dimension of columns: first lane, number of lanes, coordinates.

        Vectors begin at multiples of their width.
        """
        f, (*outer, last) = self.f, self.column_extents
        run, runs = gcd(last, width), []
        for start in range(0, width, run):
            places = self._coordinates(f.div(f.add(self._column, start), run), [*outer, last // run])
            runs.append((start, run, [*places[:-1], f.mul(places[-1], run)]))
        return runs


def column_numbers(f: Function, column: Value, width: int, element: Type) -> Value:
    """A vector of consecutive column numbers, starting at `column`."""
    first = f.splat(column, width)
    if width == 1:
        return f.convert(first, element)
    steps = Value(f"<{', '.join(f'i64 {lane}' for lane in range(width))}>", INT64.of(width))
    return f.convert(f.add(first, steps), element)


def write_uniforms(f: Function, group: Group, pointers: Any) -> dict[GraphNode, Value]:
    """Compute the uniform scalars of a group, before its loops."""
    numbers: dict[GraphNode, Value] = {}
    for node in group.uniform:
        assert isinstance(node, Map)
        values = []
        for operand in node.operands:
            source = source_of(operand)
            if isinstance(operand, Constant):
                values.append(constant(operand.number, operand.element))
            elif source in numbers:
                values.append(numbers[source])
            else:
                values.append(f.load(pointers.first(operand), operand.element))
        numbers[node] = apply_formula(f, node, values, 1)
    return numbers


def broadcast(f: Function, value: Value, lanes: int) -> Value:
    """Broadcast a number to all lanes; vectors stay as they are."""
    return value if value.type.is_vector else f.splat(value, lanes)


def apply_formula(f: Function, node: Map, values: Sequence[Value], lanes: int) -> Value:
    """Apply the formula of a node: to numbers, or to vectors of `lanes` lanes if any value is a vector."""
    if node.formula == "convert":
        return f.convert(values[0], node.element)
    if any(value.type.is_vector for value in values):
        values = [broadcast(f, value, lanes) for value in values]
    return FORMULAS[node.formula](f, *values)


def _is_strided(node: GraphNode) -> bool:
    """Whether a node is not contiguous in memory: it has a halo, or is part of a larger array."""
    return bool(node.halo) or node.within is not None


def _with_columns(steps: Sequence[int], extents: Sequence[int]) -> list[int]:
    """Append strides of 0 for the columns to strides over rows."""
    return [*steps, *[0] * (len(extents) - len(steps))]


def _combine(f: Function, node: Reduction, total: Value, value: Value) -> Value:
    return combine(f, node.kind, total, broadcast(f, value, total.type.lanes) if total.type.is_vector else value)


def _across(f: Function, node: Reduction, vector: Value) -> Value:
    return f.across(vector, lambda a, b: _combine(f, node, a, b))


def _combine_pairwise(f: Function, node: Reduction, parts: Sequence[Value]) -> Value:
    """Combine values pairwise, as a tree."""
    values = list(parts)
    while len(values) > 1:
        paired = [_combine(f, node, a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = paired + ([values[-1]] if len(values) % 2 else [])
    return values[0]

"""Matrix products. Each kernel is written for one shape.

A product is cut into tiles of C. A tile stays in registers while the kernel loops over the inner extent. There are three ways:

- spread: lanes run along the columns. Each step of the inner extent multiplies one number of A by a vector of B. Contiguous rows
  of B are read in place. Otherwise, and for large products, a panel of B, as wide as a tile, is first copied into the
  workspace; a panel with contiguous columns is transposed on the way. A large A that lies by columns is copied, too.
- turned: the kernel computes C^T = B^T A^T as above and transposes tiles before storing them. For few columns.
- dots: lanes run along the inner extent and are summed at the end. For few rows or columns, where transposing would not pay.

Shape and strides alone fix the order of summation in each element of C, and each step rounds once (FMA). The error is at most
``(inner + 1) * eps * (|A| |B| + |C|)`` (C only if the product accumulates). The number of threads does not change a bit.

There is no call of a BLAS: at one thread these kernels were as fast as OpenBLAS or faster for nearly all shapes measured
(``benchmarks/native_products.py``), by up to three times. Slower were 64 x 10 x 512 (0.8) and 2048 cubed (0.92), in float64.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple, TypeAlias

from .costs import copies_left, copies_right, depth_bytes, panels_of_block
from .emitter import BYTE, FLOAT, Function, Operand, Type, Value, zero
from .kernel import Share
from .target import Target

Epilogue: TypeAlias = Callable[[Function, Value, Value, Value], "Value | None"]
"""``epilogue(f, value, row, column)``: the vector to store in place of a finished vector (neighbours in a row); None if the
epilogue has stored its results itself. In a batch, the row numbers continue from product to product."""

_BALANCED = 4
"""Number of threads that the tiling assumes: the best number of chunks is a multiple of it."""
_SQUARE = 8
"""Largest edge of the squares that are transposed: LLVM takes 10 ms for the shuffles of 16 x 16."""
_LINE = 64
"""Bytes of a line of a cache."""
_IN_FLIGHT = 8
"""Independent fused multiply-adds that keep a processor busy: latency times issues per cycle."""


@dataclass(frozen=True)
class MatrixProduct:
    """C[rows, columns] = A[rows, inner] B[inner, columns], or a batch of such products.

    Attributes:
        a_strides: strides of A along rows and along the inner extent, in elements.
        b_strides: strides of B along the inner extent and along columns.
        c_stride: stride of C along rows; its columns are contiguous.
        batch: (extent, strides of A, B and C) of each batch dimension, outermost first.
        accumulates: whether the product is added to the old contents of C.
        b_is_packed: whether B was packed by `write_pack`, from a matrix with these strides.
    """

    rows: int
    columns: int
    inner: int
    a_strides: tuple[int, int]
    b_strides: tuple[int, int]
    c_stride: int
    batch: tuple[tuple[int, int, int, int], ...] = ()
    accumulates: bool = False
    element: Type = FLOAT
    b_is_packed: bool = False

    def __post_init__(self) -> None:
        if self.b_is_packed and any(b_stride for _, _, b_stride, _ in self.batch):
            raise ValueError("A packed B is one matrix, the same for the whole batch.")

    @property
    def items(self) -> int:
        """Number of products in the batch."""
        return math.prod(extent for extent, *_ in self.batch)


@dataclass(frozen=True)
class _Tiling:
    """The tiling of a product.

    Attributes:
        way: "spread", "turned" or "dots".
        lanes: lanes of a vector.
        rows, columns: largest extents of a tile.
        packs: whether panels of B are copied.
        packs_a: whether the tiles' rows of A are copied.
        depth: largest part of the inner extent that one pass over the tiles computes.
        axis: the dimension that threads share: "batch", "columns" or "rows".
        block: panels that each row of tiles uses before the next row of tiles.
    """

    way: str
    lanes: int
    rows: int
    columns: int
    packs: bool
    packs_a: bool
    depth: int
    axis: str
    block: int = 1

    def block_bytes(self, product: MatrixProduct) -> int:
        """Bytes of the copied panels of B of a block."""
        return -(-self.block * self.columns * self.depth * product.element.bytes // 64) * 64 if self.packs else 0

    def workspace_bytes(self, product: MatrixProduct) -> int:
        """Bytes for one thread: panels of B, and a part of A plus one vector, because the last store exceeds the row."""
        rows = -(-(product.rows * self.depth + self.lanes) * product.element.bytes // 64) * 64 if self.packs_a else 0
        return self.block_bytes(product) + rows


@cache
def _tiling(product: MatrixProduct, target: Target) -> _Tiling:
    """Choose the way with the fewest steps (vectors multiplied or moved); prefer spread in a tie, as it has the least code."""
    rows, columns, inner = product.rows, product.columns, product.inner
    lanes = target.lanes(product.element.bytes)

    def spread_steps(product: MatrixProduct) -> int:
        transposing = 0 if product.b_is_packed or product.b_strides[1] == 1 else 5
        return inner * -(-product.columns // lanes) * (product.rows + transposing)

    steps = {"spread": spread_steps(product)}
    if not product.b_is_packed:
        if columns < 2 * lanes:
            steps["turned"] = spread_steps(_turned(product)) + 6 * rows * -(-columns // 12) * (columns > 1)
        if product.a_strides[1] == product.b_strides[0] == 1:
            steps["dots"] = rows * columns * (-(-inner // lanes) + 4)
    way = min(steps, key=lambda way: steps[way] * (0.97 if way == "spread" else 1.0))
    if way == "dots":
        return _dots_tiling(product, target)
    if way == "turned":
        return replace(_spread_tiling(_turned(product), target, 4 if _is_one_column(product) else 2), way=way, block=1)
    return _spread_tiling(product, target, 4)


def _spread_tiling(product: MatrixProduct, target: Target, widest: int) -> _Tiling:
    """Choose the tiles with the fewest loads, at most `widest` vectors wide, and whether to copy A and B."""
    rows, columns, inner, element_bytes = product.rows, product.columns, product.inner, product.element.bytes
    most = target.lanes(element_bytes)
    lanes = min(most, 1 << (columns - 1).bit_length())
    vectors = -(-columns // lanes)
    packs, packs_a = _packs(product, target)
    copying_b = (5 if product.b_strides[1] != 1 else 1) if packs else 0
    copying = {"rows": copying_b, "columns": lanes // 2 if packs_a else 0}
    is_shared = rows * columns * inner * product.items >= target.limits.shared_product

    def cost(size: tuple[int, int]) -> tuple[float, int]:
        height, width = size
        tiles, panels = -(-rows // height), -(-vectors // width)
        loads = panels * rows + tiles * vectors
        return loads / (_axis(product, tiles, panels, copying)[1] if is_shared else 1.0), height * width

    sizes = _packed_sizes(product, vectors, widest, target) if product.b_is_packed else _sizes(rows, min(vectors, widest), target)
    height, width = min(sizes, key=cost)
    axis, _ = _axis(product, -(-rows // height), -(-vectors // width), copying)
    is_in_place = not packs and not product.b_is_packed and product.b_strides[1] == 1
    deepest = depth_bytes(rows, inner * element_bytes, inner * columns * element_bytes, is_in_place, target.limits)
    parts = max(-(-inner * element_bytes // deepest), 1)
    depth = max(-(-inner // (parts * most)) * most, 1)
    panels = panels_of_block(rows * columns * element_bytes, depth * width * lanes * element_bytes, target.limits)
    block = min(panels, -(-vectors // width))
    return _Tiling("spread", lanes, height, width * lanes, packs, packs_a, depth, axis, block)


def _packs(product: MatrixProduct, target: Target) -> tuple[bool, bool]:
    """Whether it pays to copy panels of B, and to copy an A that lies by columns."""
    (a_row, a_inner), (_, b_column) = product.a_strides, product.b_strides
    rows, columns, depth_bytes = product.rows, product.columns, product.inner * product.element.bytes
    if product.b_is_packed:
        packs_b = False
    else:
        packs_b = b_column != 1 or copies_right(rows, depth_bytes * columns, target.limits)
    is_by_columns = a_row == 1 and a_inner != 1 and rows > 1
    step_bytes = a_inner * product.element.bytes
    return packs_b, is_by_columns and copies_left(columns, depth_bytes * rows, step_bytes, target.limits)


def _dots_tiling(product: MatrixProduct, target: Target) -> _Tiling:
    """Choose the tiles with the fewest loads."""
    rows, columns = product.rows, product.columns
    sizes = _sizes(min(rows, target.limits.dot_rows), columns, target)
    height, width = min(
        sizes, key=lambda size: (-(-columns // size[1]) * rows + -(-rows // size[0]) * columns, size[0] * size[1])
    )
    axis, _ = _axis(product, -(-rows // height), -(-columns // width), {})
    return _Tiling("dots", target.lanes(product.element.bytes), height, width, False, False, max(product.inner, 1), axis)


def _sizes(rows: int, columns: int, target: Target) -> list[tuple[int, int]]:
    """Tile sizes (rows, vectors) that fit in registers together with a row of B, one number of A and a spare register."""
    limits = target.limits
    sizes = itertools.product(range(1, min(rows, limits.tile_rows) + 1), range(1, min(columns, limits.tile_vectors) + 1))
    return [(height, width) for height, width in sizes if height * width + width + 1 < target.registers]


def _packed_sizes(product: MatrixProduct, vectors: int, widest: int, target: Target) -> list[tuple[int, int]]:
    """Tile sizes (rows, vectors) for a packed B of so many `vectors`."""
    in_row, limits = packed_vectors(target), target.limits
    if in_row > 1:
        panel = min(vectors, in_row)
        return [size for size in _sizes(product.rows, panel, target) if size[1] == panel]
    if product.rows <= limits.far_rows and product.inner * product.columns * product.element.bytes >= limits.far_bytes:
        return [(height, 1) for height in range(1, min(product.rows, target.registers // 2) + 1)]
    return _sizes(product.rows, min(vectors, widest), target)


@cache
def packed_vectors(target: Target) -> int:
    """The vectors in a row of a packed panel, for any number of rows: as wide as the tiles with the fewest loads.

    With vectors of a cache line, it is one, and tiles read several panels: which of them is best depends on the rows.
    """
    limits = target.limits
    if target.vector_bytes >= _LINE:
        return 1
    sizes = _sizes(limits.tile_rows, limits.tile_vectors, target)
    return min(sizes, key=lambda size: (1 / size[0] + 1 / size[1], -size[0] * size[1]))[1]


def _axis(product: MatrixProduct, tiles: int, panels: int, copying: Mapping[str, int]) -> tuple[str, float]:
    """Choose the axis that threads share; also returns the fraction of useful work at four threads.

    Threads that share rows each copy all of B; threads that share columns each copy all of A. `copying` gives this cost as a
    number of rows or columns that could be computed in the same time.
    """
    counts = {"batch": product.items, "columns": panels, "rows": tiles}
    useful = {axis: count / (-(-count // _BALANCED) * _BALANCED) if count else 1.0 for axis, count in counts.items()}
    for axis, extent in (("rows", product.rows), ("columns", product.columns)):
        cost = copying.get(axis, 0)
        useful[axis] *= (extent + cost) / (extent + _BALANCED * cost)
    axis = max(useful, key=lambda axis: useful[axis])
    return axis, useful[axis]


def _plain(product: MatrixProduct) -> MatrixProduct:
    """Set strides along extents of 1 to 1."""
    (a_row, a_inner), (b_inner, b_column) = product.a_strides, product.b_strides
    if product.inner == 1:
        a_inner = b_inner = 1
    if product.columns == 1:
        b_column = 1
    if product.rows == 1:
        a_row = 1
    return replace(product, a_strides=(a_row, a_inner), b_strides=(b_inner, b_column))


def _turned(product: MatrixProduct) -> MatrixProduct:
    """C^T = B^T A^T."""
    batch = tuple((extent, b, a, c) for extent, a, b, c in product.batch)
    a_strides, b_strides = product.b_strides[::-1], product.a_strides[::-1]
    return replace(product, rows=product.columns, columns=product.rows, a_strides=a_strides, b_strides=b_strides, batch=batch)


def _is_one_column(product: MatrixProduct) -> bool:
    """Whether C is one column whose elements are neighbours."""
    return product.columns == product.c_stride == 1


def workspace_bytes(product: MatrixProduct, target: Target) -> int:
    """Bytes of workspace per thread; the threads' parts are consecutive. Fastest if aligned to 64 bytes."""
    product = _plain(product)
    if not product.rows or not product.columns:
        return 0
    tiling = _tiling(product, target)
    return tiling.workspace_bytes(_turned(product) if tiling.way == "turned" else product)


def keeps_partial_sums(product: MatrixProduct, target: Target) -> bool:
    """Whether C holds partial sums while the kernel runs, because the inner extent is computed in several parts."""
    return _tiling(_plain(product), target).depth < product.inner


def packed_bytes(product: MatrixProduct, target: Target) -> int:
    """Bytes that `write_pack` fills."""
    lanes = _tiling(replace(_plain(product), b_is_packed=True), target).lanes
    return -(-product.columns // lanes) * lanes * product.inner * product.element.bytes


def write_pack(f: Function, product: MatrixProduct, b: Value, packed: Value, share: Share, target: Target) -> None:
    """Write code that packs B for products with `b_is_packed`: panel after panel, each contiguous."""
    product = _plain(product)
    tiling = _tiling(replace(product, b_is_packed=True), target)
    tiling = replace(tiling, axis="columns", columns=min(tiling.columns, packed_vectors(target) * tiling.lanes))
    writer = _ProductWriter(f, product, tiling, share, packed)

    def panel(column: Value, width: int) -> None:
        source = writer.at(b, f.mul(column, product.b_strides[1]))
        writer.pack(source, writer.at(packed, f.mul(column, product.inner)), product.inner, width)

    if product.columns:
        writer.for_panels(panel)


def write_product(
    f: Function,
    product: MatrixProduct,
    a: Value,
    b: Value,
    c: Value,
    share: Share,
    workspace: Value,
    target: Target,
    epilogue: Epilogue | None = None,
) -> None:
    """Write code for one thread's share of a product.

    Args:
        a, b, c: pointers to the first elements. If `keeps_partial_sums`, C holds partial sums until the last part of the
            inner extent is computed, even if the epilogue stores to other memory. So the epilogue must not read C's memory.
        workspace: pointer to `workspace_bytes` per thread; unused if that is 0.
        epilogue: transforms finished vectors before they are stored. Runs once per element; its code may be inside loops.
    """
    product = _plain(product)
    if product.rows and product.columns:
        tiling = _tiling(product, target)
        if tiling.way == "turned":
            product, a, b = _turned(product), b, a
        _ProductWriter(f, product, tiling, share, workspace, epilogue).write(a, b, c)


_Group: TypeAlias = "tuple[int, int, int, int]"
"""Neighbouring tiles of one size: number of the first tile, count, size, start of the first tile."""


def _split_evenly(extent: int, most: int) -> list[_Group]:
    """Cut an extent into the fewest parts of at most `most`; sizes differ by at most one."""
    parts = -(-extent // most)
    size, longer = divmod(extent, parts)
    return [(0, longer, size + 1, 0), (longer, parts - longer, size, longer * (size + 1))]


@dataclass(frozen=True)
class _Item:
    """One product of a batch: its operands, and the number of rows of all products before it."""

    a: Value
    b: Value
    c: Value
    rows_before: Value


@dataclass(frozen=True)
class _Part:
    """A part of the inner extent. `is_first` and `is_last` are None if it is the only part."""

    start: Value
    extent: Operand
    is_first: Value | None
    is_last: Value | None


@dataclass(frozen=True)
class _ProductTile:
    """A tile of C in one part of the inner extent: extents, start (row numbers continue through the batch), and pointer."""

    rows: int
    columns: int
    row: Value
    column: Value
    c: Value
    part: _Part


class _Panel(NamedTuple):
    """A part of a panel of B, or of several packed panels of one vector.

    Attributes:
        column, width: its columns.
        b: its first element.
        pitch, apart: the strides of its rows, and of the vectors of a row.
        is_padded: whether its rows are full vectors.
    """

    column: Value
    width: int
    b: Value
    pitch: int
    apart: int
    is_padded: bool

    def at(self, place: Value, lanes: int) -> _Panel:
        """The copy of the panel at a place, padded to full vectors."""
        return self._replace(b=place, pitch=-(-self.width // lanes) * lanes, apart=lanes, is_padded=True)


class _Piece(NamedTuple):
    """A vector of a tile's results: its place in the tile, and the number of valid lanes."""

    row: int
    column: int
    vector: Value
    lanes: int


@dataclass
class _ProductWriter:
    """Writes a product with a given tiling. If the way is "turned", `product` is already C^T = B^T A^T."""

    f: Function
    product: MatrixProduct
    tiling: _Tiling
    share: Share
    workspace: Value
    epilogue: Epilogue | None = None

    def __post_init__(self) -> None:
        product, width = self.product, self.tiling.columns
        self.vector = product.element.of(self.tiling.lanes)
        self.is_one_column = self.tiling.way == "turned" and _is_one_column(_turned(product))
        panels, remaining = divmod(product.columns, width)
        self.panels: list[_Group] = [(0, panels, width, 0), (panels, int(remaining > 0), remaining, panels * width)]
        self.tiles = _split_evenly(product.rows, self.tiling.rows)
        counts = {"batch": product.items}
        counts |= {axis: sum(group[1] for group in groups) for axis, groups in (("columns", self.panels), ("rows", self.tiles))}
        self.bounds: dict[str, tuple[Operand, Operand]] = {axis: (0, count) for axis, count in counts.items()}
        self.bounds[self.tiling.axis] = self.share.of(self.f, counts[self.tiling.axis])

    def at(self, pointer: Value, index: Operand) -> Value:
        return self.f.at(pointer, index, self.product.element)

    def _advanced(self, pointers: tuple[Value, Value], strides: tuple[int, int], steps: int = 1) -> tuple[Value, Value]:
        """Advance two pointers by `steps` strides."""
        first, second = (self.f.opaque(self.at(place, steps * stride)) for place, stride in zip(pointers, strides, strict=True))
        return first, second

    # -- loops, from the outermost to the innermost
    def _loop(
        self, start: Operand, stop: Operand, step: int, carried: Sequence[Value], body: Callable[..., Iterable[Value] | None]
    ) -> list[Value]:
        """A loop with its index visible to the code generator, which makes products some 5 % faster."""
        return self.f.loop(start, stop, step, carried, body, shows_index=True)

    def write(self, a: Value, b: Value, c: Value) -> None:
        f, product = self.f, self.product
        if self.tiling.packs or self.tiling.packs_a:
            mine = f.mul(self.share.thread, self.tiling.workspace_bytes(product))
            self.workspace = f.at(self.workspace, mine, BYTE)
        rows_of_a = f.at(self.workspace, self.tiling.block_bytes(product), BYTE)
        rows = product.columns if self.tiling.way == "turned" else product.rows

        def item(number: Value) -> None:
            pointers, outer = [a, b, c], number
            for extent, *strides in reversed(product.batch):
                index, outer = f.rem(outer, extent), f.div(outer, extent)
                pointers = [self.at(pointer, f.mul(index, stride)) for pointer, stride in zip(pointers, strides, strict=True)]
            a_item, b_item, c_item = pointers
            self._loop_parts(_Item(a_item, b_item, c_item, f.mul(number, rows)), rows_of_a)

        self._loop(*self.bounds["batch"], 1, [], item)

    def _loop_parts(self, item: _Item, rows_of_a: Value) -> None:
        f, inner, depth, a_inner = self.f, self.product.inner, self.tiling.depth, self.product.a_strides[1]

        def part(start: Value) -> None:
            remaining = f.sub(inner, start)
            this = _Part(start, inner, None, None)
            if inner > depth:
                this = _Part(start, f.min(remaining, depth), f.compare("eq", start, 0), f.compare("sle", remaining, depth))
            a = self.at(item.a, f.mul(start, a_inner))
            if self.tiling.packs_a:
                self._pack_rows(a, rows_of_a, this.extent)
                a = rows_of_a
            self._write_panels(item, a, this)

        self._loop(0, max(inner, 1), depth, [], part)

    def for_panels(self, body: Callable[[Value, int], None]) -> None:
        """Write loops over this thread's panels: ``body(column, width)``."""
        self._for_groups("columns", self.panels, body)

    def _for_groups(self, axis: str, groups: Sequence[_Group], body: Callable[[Value, int], None]) -> None:
        """Write loops over this thread's part of tile groups: ``body(begin, size)``."""
        f, (start, stop) = self.f, self.bounds[axis]

        def loop(first: int, count: int, size: int, begin: int) -> None:
            low = f.max(start, first) if isinstance(start, Value) else max(int(start), first)
            high = f.min(stop, first + count) if isinstance(stop, Value) else min(int(stop), first + count)
            self._loop(low, high, 1, [], lambda number: body(f.add(f.mul(f.sub(number, first), size), begin), size))

        for group in groups:
            if group[1]:
                loop(*group)

    def _write_panels(self, item: _Item, a: Value, part: _Part) -> None:
        """Write all tiles: panel by panel, or in blocks of panels."""
        if self.tiling.block > 1:
            return self._write_blocks(item, a, part)

        def panel(column: Value, width: int) -> None:
            right = self._panel(item, part, column, width)
            if self.tiling.packs:
                right = self._copied(right, self.workspace, part.extent)
            self._for_groups("rows", self.tiles, lambda row, rows: self._write_tile(item, a, part, right, row, rows))

        return self.for_panels(panel)

    def _write_blocks(self, item: _Item, a: Value, part: _Part) -> None:
        """Write the tiles of each block of panels, row of tiles by row of tiles."""
        f, tiling, (start, stop) = self.f, self.tiling, self.bounds["columns"]

        def block(first: Value) -> None:
            self.bounds["columns"] = first, f.min(f.add(first, tiling.block), stop)

            def copy_of(column: Value) -> Value:
                before = f.between(f.sub(column, f.mul(first, tiling.columns)), 0, (tiling.block - 1) * tiling.columns)
                return self.at(self.workspace, f.mul(before, part.extent))

            def copy(column: Value, width: int) -> None:
                self._copied(self._panel(item, part, column, width), copy_of(column), part.extent)

            def tiles(row: Value, rows: int) -> None:
                def tile(column: Value, width: int) -> None:
                    panel = self._panel(item, part, column, width)
                    right = panel.at(copy_of(column), tiling.lanes) if tiling.packs else panel
                    self._write_tile(item, a, part, right, row, rows)

                self.for_panels(tile)

            if tiling.packs:
                self.for_panels(copy)
            self._for_groups("rows", self.tiles, tiles)

        self._loop(start, stop, tiling.block, [], block)
        self.bounds["columns"] = start, stop

    def _panel(self, item: _Item, part: _Part, column: Value, width: int) -> _Panel:
        """A part of a panel of B where it lies."""
        f, product, (b_inner, b_column) = self.f, self.product, self.product.b_strides
        if product.b_is_packed:
            lanes, in_row = self.tiling.lanes, packed_vectors(f.module.target)
            pitch = min(-(-width // lanes), in_row) * lanes
            b = self.at(item.b, f.add(f.mul(column, product.inner), f.mul(part.start, pitch)))
            return _Panel(column, width, b, pitch, lanes if in_row > 1 else product.inner * lanes, is_padded=True)
        b = self.at(item.b, f.add(f.mul(part.start, b_inner), f.mul(column, b_column)))
        return _Panel(column, width, b, b_inner, self.tiling.lanes, is_padded=False)

    def _copied(self, panel: _Panel, to: Value, extent: Operand) -> _Panel:
        """Copy a panel of B to a place."""
        self.pack(panel.b, to, extent, panel.width)
        return panel.at(to, self.tiling.lanes)

    def _write_tile(self, item: _Item, a: Value, part: _Part, panel: _Panel, row: Value, rows: int) -> None:
        """Write a tile of a part: its sums, and what stores them."""
        f, product, tiling = self.f, self.product, self.tiling
        this = self._tile(item, part, row, panel.column, rows, panel.width)
        strides = (1, rows) if tiling.packs_a else product.a_strides
        a_tile = self.at(a, f.mul(row, part.extent if tiling.packs_a else strides[0]))
        if tiling.way == "dots":
            self._finish(this, self._dots(rows, panel.width, a_tile, panel.b))
            return
        pieces = self._spread(rows, a_tile, strides, panel, part.extent)
        finish = self._finish_turned if tiling.way == "turned" and not self.is_one_column else self._finish
        finish(this, pieces)

    def _tile(self, item: _Item, part: _Part, row: Value, column: Value, rows: int, columns: int) -> _ProductTile:
        if self.tiling.way == "turned":
            row, column, rows, columns = column, row, columns, rows
        c = self.at(item.c, self.f.add(self.f.mul(row, self.product.c_stride), column))
        return _ProductTile(rows, columns, self.f.add(item.rows_before, row), column, c, part)

    # -- copies
    def _pack_rows(self, source: Value, to: Value, extent: Operand) -> None:
        """Copy this thread's rows of an A that lies by columns, tile after tile, with the rows of a tile contiguous."""
        f, lanes, a_inner = self.f, self.tiling.lanes, self.product.a_strides[1]

        def tile(row: Value, rows: int) -> None:
            def column(_: Value, source: Value, to: Value) -> tuple[Value, Value]:
                for begin in range(0, rows, lanes):  # surplus lanes are overwritten by the next store
                    f.store(f.load_first(self.at(source, begin), self.vector, min(lanes, rows - begin)), self.at(to, begin))
                return self._advanced((source, to), (a_inner, rows))

            self._loop(0, extent, 1, [self.at(source, row), self.at(to, f.mul(row, extent))], column)

        self._for_groups("rows", self.tiles, tile)

    def pack(self, source: Value, to: Value, depth: Operand, width: int) -> None:
        """Copy a panel with consecutive rows, each padded with zeros to full vectors."""
        f, lanes, (b_inner, b_column) = self.f, self.tiling.lanes, self.product.b_strides
        pitch = -(-width // lanes) * lanes

        def row(_: Value, source: Value, to: Value) -> tuple[Value, Value]:
            for begin in range(0, width, lanes):
                vector = f.load_first(self.at(source, begin), self.vector, min(lanes, width - begin))
                f.store(vector, self.at(to, begin))
            return self._advanced((source, to), (b_inner, pitch))

        def strided_row(_: Value, source: Value, to: Value) -> tuple[Value, Value]:
            def one(column: Value) -> None:
                f.store_number(f.load(self.at(source, f.mul(column, b_column)), self.product.element), self.at(to, column))

            self._loop(0, width, 1, [], one)
            self._loop(width, pitch, 1, [], lambda column: f.store_number(zero(self.product.element), self.at(to, column)))
            return self._advanced((source, to), (b_inner, pitch))

        if b_column != 1 and b_inner == 1:
            self._pack_transposed(source, to, depth, width, pitch)
        else:
            self._loop(0, depth, 1, [source, to], row if b_column == 1 else strided_row)

    def _pack_transposed(self, source: Value, to: Value, depth: Operand, width: int, pitch: int) -> None:
        """Copy a panel with contiguous columns in squares, a few along each column, so that full cache lines are read."""
        f, edge, stride = self.f, min(self.tiling.lanes, _SQUARE), self.product.b_strides[1]
        vector = self.product.element.of(edge)

        def copy_square(source: Value, to: Value, columns: int, rows: int) -> None:
            vectors = [f.load_first(self.at(source, column * stride), vector, rows) for column in range(columns)]
            for row, values in enumerate(_transposed(f, vectors + [zero(vector)] * (edge - columns))[:rows]):
                f.store(values, self.at(to, row * pitch))

        def copy_rows(begin: Value, stop: Operand, rows: int) -> None:
            def copy_columns(column: Value, columns: int) -> None:
                def copy(row: Value) -> None:
                    place = self.at(to, f.add(f.mul(row, pitch), column))
                    copy_square(self.at(source, f.add(f.mul(column, stride), row)), place, columns, rows)

                self._loop(begin, stop, edge, [], copy)

            main = width // edge * edge
            self._loop(0, main, edge, [], partial(copy_columns, columns=edge))
            self._loop(main, width, edge, [], partial(copy_columns, columns=width - main))
            self._loop(-(-width // edge) * edge, pitch, edge, [], partial(copy_columns, columns=0))

        main, remaining_rows, far = self._multiple(depth, edge), self.product.inner % edge, 4 * edge
        self._loop(0, main, far, [], lambda begin: copy_rows(begin, f.min(f.add(begin, far), main), edge))
        if remaining_rows:
            with f.when(f.compare("slt", f.int64(main), depth)):
                copy_rows(f.int64(main), depth, remaining_rows)

    def _multiple(self, extent: Operand, step: int) -> Operand:
        """The greatest multiple of `step` up to `extent`."""
        return self.f.mul(self.f.div(extent, step), step) if isinstance(extent, Value) else int(extent) // step * step

    # -- tiles
    def _spread(self, rows: int, a: Value, a_strides: tuple[int, int], panel: _Panel, extent: Operand) -> list[_Piece]:
        """Compute a tile with lanes along the columns."""
        f, lanes, element, (a_row, a_inner), pitch = self.f, self.tiling.lanes, self.product.element, a_strides, panel.pitch
        vectors = [(begin, min(lanes, panel.width - begin)) for begin in range(0, panel.width, lanes)]

        def step(number: int, a: Value, b: Value, sums: Sequence[Value]) -> list[Value]:
            row_of_b = [
                f.load_first(
                    self.at(b, number * pitch + begin // lanes * panel.apart), self.vector, lanes if panel.is_padded else count
                )
                for begin, count in vectors
            ]
            numbers = (f.load(self.at(a, row * a_row + number * a_inner), element) for row in range(rows))
            factors = itertools.product((f.splat(number, lanes) for number in numbers), row_of_b)
            return [f.fma(x, y, value) for (x, y), value in zip(factors, sums, strict=True)]

        count = rows * len(vectors)
        sums = self._inner_loop(extent, 1 if count >= _IN_FLIGHT else 2, (a, panel.b), (a_inner, pitch), count, step)[2]
        places = itertools.product(range(rows), vectors)
        return [_Piece(row, begin, value, count) for (row, (begin, count)), value in zip(places, sums, strict=True)]

    def _dots(self, rows: int, columns: int, a: Value, b: Value) -> list[_Piece]:
        """Compute a tile with lanes along the inner extent."""
        f, product, lanes = self.f, self.product, self.tiling.lanes

        def vectors(pointer: Value, extent: int, stride: int, count: int) -> list[Value]:
            return [f.load_first(self.at(pointer, number * stride), self.vector, count) for number in range(extent)]

        def step(number: int, a: Value, b: Value, sums: Sequence[Value], count: int = lanes) -> list[Value]:
            x = vectors(self.at(a, number * lanes), rows, product.a_strides[0], count)
            y = vectors(self.at(b, number * lanes), columns, product.b_strides[1], count)
            return [f.fma(*pair, value) for pair, value in zip(itertools.product(x, y), sums, strict=True)]

        full_vectors, remaining_lanes = divmod(product.inner, lanes)
        a, b, sums = self._inner_loop(full_vectors, 1, (a, b), (lanes, lanes), rows * columns, step)
        if remaining_lanes:
            sums = step(0, a, b, sums, remaining_lanes)
        pieces = []
        for row, column in itertools.product(range(rows), range(0, columns, lanes)):
            count = min(columns - column, lanes)
            first = row * columns + column
            pieces.append(_Piece(row, column, _totals(f, sums[first : first + count]), count))
        return pieces

    def _inner_loop(
        self,
        extent: Operand,
        unrolled: int,
        pointers: tuple[Value, Value],
        strides: tuple[int, int],
        count: int,
        step: Callable[[int, Value, Value, Sequence[Value]], list[Value]],
    ) -> tuple[Value, Value, list[Value]]:
        """Write a loop along the inner extent: ``step(number, a, b, sums)`` returns the `count` new sums.

        If there are few sums, the loop keeps several copies, uses them in turn and adds them at the end. Otherwise each step
        would wait for the previous one.
        """
        f, copies = self.f, max(_IN_FLIGHT // count, 1)
        unrolled = max(unrolled, copies)

        def unrolled_steps(_: Value, a: Value, b: Value, *sums: Value) -> tuple[Value, ...]:
            parts = [list(sums[begin : begin + count]) for begin in range(0, len(sums), count)]
            for number in range(unrolled):
                parts[number % copies] = step(number, a, b, parts[number % copies])
            return *self._advanced((a, b), strides, unrolled), *itertools.chain(*parts)

        def single_step(_: Value, a: Value, b: Value, *sums: Value) -> tuple[Value, ...]:
            return *self._advanced((a, b), strides), *step(0, a, b, sums)

        main = self._multiple(extent, unrolled)
        a, b, *sums = self._loop(0, main, unrolled, [*pointers, *[zero(self.vector)] * (count * copies)], unrolled_steps)
        while len(sums) > count:
            half = len(sums) // count // 2 * count
            sums = [f.add(x, y) for x, y in zip(sums[:half], sums[half : 2 * half], strict=True)] + sums[2 * half :]
        if unrolled > 1:
            a, b, *sums = self._loop(main, extent, 1, [a, b, *sums], single_step)
        return a, b, sums

    # -- results
    def _finish(self, tile: _ProductTile, pieces: Sequence[_Piece]) -> None:
        """Store a tile, after the epilogue if there is one."""
        f, part, stride = self.f, tile.part, self.product.c_stride
        if self.product.accumulates or part.is_first is not None:
            pieces = [piece._replace(vector=self._accumulated(tile, piece)) for piece in pieces]
        if self.epilogue is None:
            self._store(pieces, tile.c, stride)
        elif part.is_last is None:
            self._apply_epilogue(self.epilogue, tile, pieces)
        else:
            with f.when(part.is_last):
                self._apply_epilogue(self.epilogue, tile, pieces)
            with f.when(f.bit_xor(part.is_last, 1)):
                self._store(pieces, tile.c, stride)

    def _finish_turned(self, tile: _ProductTile, pieces: Sequence[_Piece]) -> None:
        """Transpose and finish a tile, a few rows at a time: LLVM takes long for many shuffles."""
        f, product, edge = self.f, self.product, min(self.tiling.lanes, _SQUARE)
        vector = product.element.of(edge)
        staged = f.stack(product.element, tile.columns * tile.rows)
        self._store(pieces, staged, tile.rows)

        def finish_rows(begin: Value, rows: int) -> None:
            turned = []
            for column in range(0, tile.columns, edge):
                width = min(edge, tile.columns - column)
                places = [self.at(staged, f.add(begin, (column + number) * tile.rows)) for number in range(width)]
                vectors = [f.load_first(place, vector, rows) for place in places] + [zero(vector)] * (edge - width)
                turned += [_Piece(row, column, values, width) for row, values in enumerate(_transposed(f, vectors)[:rows])]
            place = self.at(tile.c, f.mul(begin, product.c_stride))
            self._finish(replace(tile, rows=rows, row=f.add(tile.row, begin), c=place), turned)

        main = tile.rows // edge * edge
        self._loop(0, main, edge, [], partial(finish_rows, rows=edge))
        self._loop(main, tile.rows, edge, [], partial(finish_rows, rows=tile.rows - main))

    def _accumulated(self, tile: _ProductTile, piece: _Piece) -> Value:
        """Add the old contents of C to a piece, except in the first part of a product that does not accumulate."""
        f, is_first = self.f, tile.part.is_first
        place = self.at(tile.c, piece.row * self.product.c_stride + piece.column)
        value = f.add(piece.vector, f.load_first(place, piece.vector.type, piece.lanes))
        return value if is_first is None or self.product.accumulates else f.select(is_first, piece.vector, value)

    def _store(self, pieces: Sequence[_Piece], to: Value, stride: int) -> None:
        for row, column, vector, lanes in pieces:
            self.f.store_first(vector, self.at(to, row * stride + column), lanes)

    def _apply_epilogue(self, epilogue: Epilogue, tile: _ProductTile, pieces: Sequence[_Piece]) -> None:
        """Apply the epilogue to a tile in a loop, so that there are few copies of its code, and store the results."""
        f, product, lanes = self.f, self.product, self.tiling.lanes
        staged = f.stack(product.element, tile.rows * tile.columns)
        self._store(pieces, staged, tile.columns)

        def line(row: Value) -> None:
            def piece(column: Value, lanes: int) -> None:
                value = f.load(self.at(staged, f.add(f.mul(row, tile.columns), column)), product.element.of(lanes))
                result = epilogue(f, value, f.add(tile.row, row), f.add(tile.column, column))
                if result is not None:
                    f.store(result, self.at(tile.c, f.add(f.mul(row, product.c_stride), column)))

            begin = 0
            for count in (lanes >> shift for shift in range(lanes.bit_length())):
                stop = begin + (tile.columns - begin) // count * count
                self._loop(begin, stop, count, [], partial(piece, lanes=count))
                begin = stop

        self._loop(0, tile.rows, 1, [], line)


def _totals(f: Function, vectors: Sequence[Value]) -> Value:
    """Sum the lanes of each vector; returns the sums as the first lanes of one vector."""
    lanes = segment = vectors[0].type.lanes
    remaining = list(vectors) + [zero(vectors[0].type)] * ((1 << (len(vectors) - 1).bit_length()) - len(vectors))
    count = len(remaining)

    def halves(x: Value, y: Value, sides: Sequence[int]) -> Value:
        """Add the two halves of each segment of one or two vectors; the order of the sums stays."""
        starts = [side + start for side in sides for start in range(0, x.type.lanes, segment)]
        low = [start + lane for start in starts for lane in range(segment // 2)]
        return f.add(f.shuffle(x, y, low), f.shuffle(x, y, [lane + segment // 2 for lane in low]))

    while len(remaining) > 1:
        remaining = [halves(x, y, (0, lanes)) for x, y in zip(remaining[::2], remaining[1::2], strict=True)]
        segment //= 2
    total = remaining[0]
    while total.type.lanes > max(count, 2):
        total = halves(total, total, (0,))
        segment //= 2
    return total if count > 1 else f.splat(f.total(total), 2)


def _transposed(f: Function, rows: Sequence[Value]) -> list[Value]:
    """Transpose a square of vectors. Shuffles first stay within 128 bits, then move 128-bit blocks."""
    vectors, lanes = list(rows), len(rows)
    quarter = min(16 // rows[0].type.bytes, lanes)

    def pairs(distance: int, halves: Sequence[Sequence[int]]) -> None:
        for low in range(lanes):
            if not low & distance:
                x, y = vectors[low], vectors[low + distance]
                vectors[low], vectors[low + distance] = (f.shuffle(x, y, half) for half in halves)

    unit = 1
    while unit < quarter:  # neighbours of the two rows alternate, by units
        starts = [range(high, high + quarter // 2, unit) for high in (0, quarter // 2)]
        halves = [
            [
                side + group + start + lane
                for group in range(0, lanes, quarter)
                for start in begin
                for side in (0, lanes)
                for lane in range(unit)
            ]
            for begin in starts
        ]
        pairs(unit, halves)
        unit *= 2
    while unit < lanes:  # even quarters of the two rows, then odd ones
        halves = [
            [side + group + lane for side in (0, lanes) for group in range(odd, lanes, 2 * quarter) for lane in range(quarter)]
            for odd in (0, quarter)
        ]
        pairs(unit, halves)
        unit *= 2
    if quarter == 4:  # the two stages within 128 bits have exchanged two bits of the rows' numbers
        vectors = [vectors[row & ~3 | (row & 1) << 1 | (row & 2) >> 1] for row in range(lanes)]
    return vectors

"""The tensor graph: native code's intermediate representation of a program.

A node is a tensor of fixed shape: an array of the plan (`PlanArray`), or the result of a computation on other nodes. `Map`
applies a formula elementwise, with broadcasting; `Reduction` sums or takes maxima over axes; `Product` multiplies matrices.
Aliases (`View`, `Reshaped`) compute nothing: they describe where elements lie. Nodes say neither when they are computed nor
whether they get memory; `fusion` decides that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate, count
from math import prod
from operator import attrgetter, mul
from typing import Any

from fluid.ir.versions import Value
from fluid.ops.shapes import reduced as reduced_shape

from .emitter import Type
from .fallback import NativeFault
from .halo import NO_HALO, Halo

Shape = tuple[int, ...]


@dataclass(eq=False, repr=False)
class GraphNode:
    """A tensor: its shape and the type of its elements."""

    shape: Shape
    element: Type
    serial: int = field(default_factory=count().__next__, init=False, repr=False)
    """Number of the node in order of creation."""
    halo: Halo = field(default=NO_HALO, init=False)
    """The border of zeros around images in memory."""
    within: View | None = field(default=None, init=False)
    """The node's place in its container (`Joined`); None if it has memory of its own."""
    quantized: Quantized | None = field(default=None, init=False)
    """The integers behind the node's floats, if it was quantized."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}{list(self.shape)}"

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)


@dataclass(frozen=True, eq=False)
class Quantized:
    """A tensor of floats as ``(levels - zero) * scale``; levels are integers from `least` to `least` + 255, held in floats."""

    levels: GraphNode
    scale: GraphNode
    zero: GraphNode | None
    least: int


@dataclass(eq=False, repr=False)
class PlanArray(GraphNode):
    """An array of the plan, contiguous in row-major order."""

    value: Value


@dataclass(eq=False, repr=False)
class Drawn(PlanArray):
    """Truth values that the op's numpy kernel draws, or fills in, before native code runs, into the array of `value`."""

    value: Value = ("", 0)


@dataclass(eq=False, repr=False)
class Constant(GraphNode):
    """A number."""

    number: float


@dataclass(eq=False, repr=False)
class Position(GraphNode):
    """The index of each element along the last axis."""


@dataclass(eq=False, repr=False)
class Map(GraphNode):
    """An elementwise formula. Operands have the same number of dimensions; extents of 1 are broadcast."""

    formula: str
    operands: tuple[GraphNode, ...]


@dataclass(eq=False, repr=False)
class Reduction(GraphNode):
    """A reduction over `axes`, which remain with extent 1; `kind` is ``sum``, ``prod``, ``max`` or ``min``."""

    kind: str
    source: GraphNode
    axes: tuple[int, ...]


@dataclass(eq=False, repr=False)
class Reshaped(GraphNode):
    """The same elements in the same order, in another shape."""

    source: GraphNode


@dataclass(eq=False, repr=False)
class View(GraphNode):
    """A strided view of another node's memory; offset and strides are in elements."""

    source: GraphNode
    offset: int
    strides: Shape


@dataclass(eq=False, repr=False)
class Rows(GraphNode):
    """Gather: the rows [R, width] of a table [V, width] at the numbers `ids` [R, 1]."""

    table: GraphNode
    ids: GraphNode
    in_bounds: bool = False
    """Whether `ids` were computed within bounds, so that nobody needs to check them."""

    @property
    def are_elements(self) -> bool:
        """Whether each row is one element. Then the node is elementwise: vectors are gathered."""
        return self.shape[-1] == 1


@dataclass(eq=False, repr=False)
class Choice(GraphNode):
    """Gather of one element per row: the elements [R, 1] of `source` [R, C] at the columns `ids` [R, 1]."""

    source: GraphNode
    ids: GraphNode


@dataclass(eq=False, repr=False)
class Joined(GraphNode):
    """A container: its parts are stored directly at their places in its memory."""

    parts: tuple[GraphNode, ...]


@dataclass(eq=False, repr=False)
class ChannelsFirst(GraphNode):
    """An alias of images [N, H, W, C] as [N, C, H, W], or of volumes. Elementwise formulas go through memory in its order."""

    source: GraphNode


class Core(GraphNode):
    """A node with a dedicated kernel; it can be the first node of a group."""


@dataclass(eq=False, repr=False)
class Product(Core):
    """The product of two stacks of matrices, [..., M, K] and [..., K, N]; leading extents of 1 are broadcast."""

    left: GraphNode
    right: GraphNode
    packed: PackedMatrix | None = None
    """The right matrix, packed, if several products share it, or if it never changes."""


@dataclass(eq=False, repr=False)
class PackedIntegers(Core):
    """A matrix [K, N] of signed bytes packed as the right operand of `IntegerProduct`, in segments of its rows.

    `fitting` sets its number of elements.
    """

    source: GraphNode
    segments: int = 1


@dataclass(eq=False, repr=False)
class IntegerProduct(Product):
    """The product of a matrix [M, K] of unsigned bytes and a packed matrix of signed bytes, as INT32.

    With `windows`, the left operand are images [N, H, W, C] with their padding, and the rows of the matrix are windows of them.
    Each row of a window is a segment of the packed matrix, or each of its pixels.
    """

    packed: PackedIntegers  # type: ignore[assignment]
    windows: Windows | None = None


@dataclass(eq=False, repr=False)
class Scattered(Core):
    """Scatter-add: `rows` [R, width] are added in order to the rows `ids` [R, 1] of a table [V, width].

    Negative ids are skipped. The table is updated in place; without a table, the result starts as zeros. `kind` is ``sum``, or,
    without a table, ``max`` or ``min``: then the result starts as the least or the greatest number.
    """

    rows: GraphNode
    ids: GraphNode
    table: GraphNode | None = None
    kind: str = "sum"
    in_bounds: bool = False
    """As for `Rows`."""


@dataclass(eq=False, repr=False)
class Firsts(Core):
    """For each of `ids` [R, 1], the place of the first equal id, [R, 1]; -1 for negative ids."""

    ids: GraphNode


@dataclass(eq=False, repr=False)
class Merged(Core):
    """Rows [R, width] with duplicates merged: each row is added to the first row with its id (see `Firsts`); the duplicates
    become zeros. A row of zeros follows at the end."""

    rows: GraphNode
    firsts: GraphNode


@dataclass(eq=False, repr=False)
class Put(Core):
    """A table, updated in place: `rows` replace its rows at `ids`; only the first row of each id counts."""

    table: GraphNode
    rows: GraphNode
    ids: GraphNode
    firsts: GraphNode


@dataclass(eq=False, repr=False)
class Places(Core):
    """For each row of a table [V, width], the place of the first id that names it, [V, 1]; R if there is none."""

    ids: GraphNode
    firsts: GraphNode


@dataclass(eq=False, repr=False)
class Leaves(Core):
    """The nodes where rows of `source` [N, F] end in decision trees, as INT32 [N, trees]. See the op ``tree_leaves``.

    A row takes at most `depth` steps. `bounds`, `features` and `children` have a row for each node.
    """

    source: GraphNode
    bounds: GraphNode
    features: GraphNode
    children: GraphNode
    depth: int


@dataclass(eq=False, repr=False)
class Solved(Core):
    """The solutions [B, N, K] of equations with small matrices [B, N, N] and right sides [B, N, K].

    Attributes:
        kind: "any", or which triangle of the matrices counts: "lower" or "upper"; "lower unit" and "upper unit" if their
            diagonals count as ones.
    """

    matrices: GraphNode
    right: GraphNode
    kind: str


@dataclass(eq=False, repr=False)
class Factored(Core):
    """The upper factors of Cholesky of small matrices [B, N, N], whose upper triangles count."""

    matrices: GraphNode


@dataclass(eq=False, repr=False)
class CtcPaths(Core):
    """The sums over the paths of each sequence's labels, as logs: see `fluid.executor.native.ctc`.

    A sequence has a number for each state after each step: the sum over the ways to that state. Its last number is the sum over
    all paths to the end; 0 if no path is short enough.

    Attributes:
        scores: logs of probabilities [steps, batch, classes].
        labels: [batch, labels].
        steps_of, labels_of: the numbers of steps and of labels of each sequence, [batch, 1].
        blank: the class of the blank.
    """

    scores: GraphNode
    labels: GraphNode
    steps_of: GraphNode
    labels_of: GraphNode
    blank: int


@dataclass(eq=False, repr=False)
class CtcGradient(CtcPaths):
    """The gradient of the logits, for the loss that is minus the last number of `paths`.

    It is the softmax, less the share of the paths that go through each class.
    """

    paths: GraphNode


@dataclass(eq=False, repr=False)
class Running(Core):
    """The running totals of `source` [before, count, after] along its middle axis; `kind` is ``sum`` or ``prod``.

    With `exclusive`, a total leaves the element itself out; with `reverse`, totals begin at the end.
    """

    source: GraphNode
    kind: str
    exclusive: bool = False
    reverse: bool = False


@dataclass(eq=False, repr=False)
class PackedMatrix(Core):
    """A matrix [K, N] packed as the right operand of products of any number of rows.

    `fitting` sets its number of elements.
    """

    source: GraphNode


@dataclass(frozen=True)
class Windows:
    """The windows of a convolution or pool; each attribute is (rows, columns). If the windows of an adaptive pool differ in size,
    their stride is 0, and `kernel` is a bound of their size."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[tuple[int, int], tuple[int, int]]
    dilations: tuple[int, int] = (1, 1)
    groups: int = 1


@dataclass(eq=False, repr=False)
class PackedFilter(Core):
    """A filter [M, C / groups, rows, columns] packed for a convolution or, if `for_input`, for the gradient of its input.

    `fitting` sets its number of elements, and `scale`: numbers [M] that a convolution's outputs are multiplied by.
    """

    filter: GraphNode
    windows: Windows
    images: tuple[Shape, Shape]
    for_input: bool
    scale: GraphNode | None = None


@dataclass(eq=False, repr=False)
class Convolved(Core):
    """The convolution of images [N, H, W, C] with a filter."""

    source: GraphNode
    packed: PackedFilter


@dataclass(eq=False, repr=False)
class ConvolvedBack(Core):
    """The gradient of a convolution's input; `source` is the gradient of its output."""

    source: GraphNode
    packed: PackedFilter


@dataclass(eq=False, repr=False)
class FilterGradient(Core):
    """The gradient of a convolution's filter; `source` is the input, `gradient` the gradient of the output."""

    source: GraphNode
    gradient: GraphNode
    windows: Windows


@dataclass(eq=False, repr=False)
class Pooled(Core):
    """Maxima or averages of windows. `kind` is ``max``, ``average``, or ``inside`` (average without padding)."""

    kind: str
    source: GraphNode
    windows: Windows


@dataclass(eq=False, repr=False)
class Positions(Core):
    """The position of the maximum in each window."""

    source: GraphNode
    windows: Windows


@dataclass(eq=False, repr=False)
class PooledBack(Core):
    """The gradient of a pool's input; `source` is the gradient of its output, `positions` the positions of the maxima."""

    kind: str
    source: GraphNode
    windows: Windows
    positions: GraphNode | None


def _of_source(node: Any) -> tuple[GraphNode, ...]:
    return (node.source,)


def _of_nothing(node: Any) -> tuple[GraphNode, ...]:
    return ()


_OPERANDS: dict[type[GraphNode], Callable[[Any], tuple[GraphNode, ...]]] = {
    **dict.fromkeys((PlanArray, Drawn, Constant, Position), _of_nothing),
    **dict.fromkeys((Reduction, Reshaped, View, ChannelsFirst, PackedMatrix, Pooled, Positions, Running), _of_source),
    Map: attrgetter("operands"),
    Joined: attrgetter("parts"),
    Rows: attrgetter("table", "ids"),
    Choice: attrgetter("source", "ids"),
    PackedIntegers: _of_source,
    IntegerProduct: attrgetter("left", "packed"),
    Product: lambda node: (node.left, node.right if node.packed is None else node.packed),
    PackedFilter: lambda node: (node.filter,) if node.scale is None else (node.filter, node.scale),
    Convolved: attrgetter("source", "packed"),
    ConvolvedBack: attrgetter("source", "packed"),
    FilterGradient: attrgetter("source", "gradient"),
    PooledBack: lambda node: (node.source,) if node.positions is None else (node.source, node.positions),
    Scattered: lambda node: (node.rows, node.ids) if node.table is None else (node.rows, node.ids, node.table),
    Firsts: lambda node: (node.ids,),
    Merged: attrgetter("rows", "firsts"),
    Put: attrgetter("table", "rows", "ids", "firsts"),
    Places: attrgetter("ids", "firsts"),
    Leaves: attrgetter("source", "bounds", "features", "children"),
    Solved: attrgetter("matrices", "right"),
    Factored: lambda node: (node.matrices,),
    CtcPaths: attrgetter("scores", "labels", "steps_of", "labels_of"),
    CtcGradient: attrgetter("scores", "labels", "steps_of", "labels_of", "paths"),
}


def operands_of(node: GraphNode) -> tuple[GraphNode, ...]:
    """The operands of a node."""
    return _OPERANDS[type(node)](node)


def operands_by_element(node: GraphNode) -> tuple[GraphNode, ...]:
    """The operands that a node reads element by element: each of its elements reads the one at the same place."""
    if isinstance(node, Map):
        return node.operands
    return (node.ids,) if isinstance(node, Rows) and node.are_elements else ()


# ------------------------------------------------------------------------------------------------------------- building
def constant(number: float, element: Type) -> Constant:
    return Constant((), element, number)


def strides_of(node: GraphNode) -> Shape:
    """The strides of a node in its memory, in elements."""
    if isinstance(node, View):
        return node.strides
    if node.within is not None:
        return node.within.strides
    if isinstance(node, ChannelsFirst):
        strides = strides_of(node.source)
        return tuple(strides[place] for place in places_of_channels_last(node.ndim))
    if node.halo:
        _, _, width, channels = node.shape
        row = (width + 2 * node.halo.columns) * channels
        return (node.shape[1] + 2 * node.halo.rows) * row, row, channels, 1
    return contiguous(node.shape)


def offset_of(node: GraphNode) -> int:
    """The offset of a node's first element in its memory, in elements."""
    if isinstance(node, View):
        if node.source.within is None:
            return node.offset
        if strides_of(node.source) != contiguous(node.source.shape):
            raise NativeFault("a view of a node that lies with gaps in its container")
        return node.offset + offset_of(node.source)
    if node.within is not None:
        return node.within.offset + offset_of(node.within.source)
    if isinstance(node, ChannelsFirst):
        return offset_of(node.source)
    _, row, pixel, _ = strides_of(node) if node.halo else (0, 0, 0, 0)
    return node.halo.rows * row + node.halo.columns * pixel


def memory_shape(node: GraphNode) -> Shape:
    """The shape of a node's memory, halo included."""
    if not node.halo:
        return node.shape
    images, height, width, channels = node.shape
    return images, height + 2 * node.halo.rows, width + 2 * node.halo.columns, channels


def contiguous(shape: Sequence[int]) -> Shape:
    """The row-major strides of a shape."""
    return tuple(accumulate((*shape[:0:-1],), mul, initial=1))[::-1] if shape else ()


def aligned(node: GraphNode, ndim: int) -> GraphNode:
    """Prepend extents of 1 to a node's shape, up to `ndim` dimensions."""
    return node if node.ndim == ndim else reshaped(node, (1,) * (ndim - node.ndim) + node.shape)


def mapped(formula: str, *operands: GraphNode, element: Type | None = None) -> GraphNode:
    """A formula of operands, broadcast as in numpy; the default element type is the first operand's."""
    if any(isinstance(operand, Position) for operand in operands):  # it counts along the last axis of [N, C, H, W]
        operands = tuple(_view(operand) if isinstance(operand, ChannelsFirst) else operand for operand in operands)
    ndim = max(operand.ndim for operand in operands)
    if any(isinstance(operand, ChannelsFirst) and operand.ndim == ndim for operand in operands):
        last = [operand if isinstance(operand, Constant) else channels_last(aligned(operand, ndim)) for operand in operands]
        return channels_first(mapped(formula, *last, element=element))
    shapes = {operand.shape for operand in operands if not isinstance(operand, Constant)}
    if len(shapes) == 1:
        return Map(shapes.pop(), element or operands[0].element, formula, operands)
    all_aligned = tuple(operand if isinstance(operand, Constant) else aligned(operand, ndim) for operand in operands)
    full = [operand.shape for operand in all_aligned if operand.ndim == ndim and not isinstance(operand, Constant)]
    shape = tuple(next((extent for extent in extents if extent != 1), 1) for extents in zip(*full, strict=True))
    return Map(shape, element or operands[0].element, formula, all_aligned)


def places_of_channels_last(ndim: int) -> tuple[int, ...]:
    """Dimension of images [N, C, H, W] -> its place in [N, H, W, C]; likewise for volumes."""
    return (0, ndim - 1, *range(1, ndim - 1))


def channels_first(node: GraphNode) -> GraphNode:
    """Move the channels of images or volumes to the front: [N, H, W, C] becomes [N, C, H, W]."""
    shape = tuple(node.shape[place] for place in places_of_channels_last(node.ndim))
    if node.size == shape[0] * shape[1] or shape[1] == 1:
        return reshaped(node, shape)
    return ChannelsFirst(shape, node.element, node)


def channels_last(node: GraphNode) -> GraphNode:
    """Move the channels of images or volumes to the end: [N, C, H, W] becomes [N, H, W, C]."""
    if isinstance(node, ChannelsFirst):
        return node.source
    images, channels, *extents = node.shape
    if node.size == images * channels or channels == 1:
        return reshaped(node, (images, *extents, channels))
    return transposed(node, (0, *range(2, node.ndim), 1))


def broadcast_to(node: GraphNode, shape: Shape) -> GraphNode:
    """Broadcast a node to a shape, as numpy does."""
    node = aligned(node, len(shape))
    return node if node.shape == shape else Map(shape, node.element, "copy", (node,))


_FEWEST_SUMMED_ROWS, _MOST_SUMMED_ROWS = 16, 1024
"""Rows that one running sum adds up: sums of fewer are not worth a pass over memory, sums of more lose digits (see
`Limits.summed_rows_in_memory`)."""


def summed(nodes: Iterable[GraphNode]) -> GraphNode:
    """Add nodes, one after the other."""
    return reduce(lambda total, node: mapped("add", total, node), nodes)


def reduced(kind: str, source: GraphNode, axes: Sequence[int]) -> GraphNode:
    """Reduce a node over axes, which remain with extent 1.

    Each run of neighbouring axes becomes one reduction, the last run first. A long sum over axes in the middle would lose
    digits: it becomes a sum of sums.
    """
    if isinstance(source, ChannelsFirst):
        places = places_of_channels_last(source.ndim)
        last = reduced(kind, source.source, [places[axis] for axis in axes])
        return channels_first(last)
    wanted = [axis for axis in sorted({axis % source.ndim for axis in axes}) if source.shape[axis] != 1]
    if not wanted:
        return source
    runs: list[list[int]] = []
    for axis in wanted:
        between = range(runs[-1][-1] + 1, axis) if runs else ()
        if runs and all(source.shape[axis_between] == 1 for axis_between in between):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    for run in reversed(runs):
        before, count, after = (prod(extents) for extents in _split_at(source.shape, run))
        if before != 1 and after != 1 and kind == "sum" and count > _MOST_SUMMED_ROWS and source.element.is_float:
            shape = reduced_shape(source.shape, run, keep_dim=True)
            source = reshaped(_sum_of_sums(reshaped(source, (before, count, after))), shape)
            continue
        source = Reduction(reduced_shape(source.shape, run, keep_dim=True), source.element, kind, source, tuple(run))
    return source


def _sum_of_sums(source: GraphNode) -> GraphNode:
    """The sums along the middle of three axes, which is long: sums of equal runs of rows, and of the rows behind them."""
    before, count, after = source.shape
    rows = max(size for size in range(1, _MOST_SUMMED_ROWS + 1) if count % size == 0)
    if rows >= _FEWEST_SUMMED_ROWS:
        return reduced("sum", reduced("sum", reshaped(source, (before, count // rows, rows, after)), [2]), [1])
    rows = round(count / -(-count // _MOST_SUMMED_ROWS))
    runs, remaining = divmod(count, rows)
    first, last = sliced(source, 1, 0, count - remaining), sliced(source, 1, count - remaining, remaining)
    parts = reduced("sum", reshaped(first, (before, runs, rows, after)), [2])
    return mapped("add", reduced("sum", reshaped(parts, (before, runs, after)), [1]), reduced("sum", last, [1]))


def _split_at(shape: Shape, run: Sequence[int]) -> tuple[Shape, Shape, Shape]:
    """Split a shape into the extents before, in and after a run of neighbouring axes."""
    return shape[: run[0]], shape[run[0] : run[-1] + 1], shape[run[-1] + 1 :]


def reshaped(node: GraphNode, shape: Shape) -> GraphNode:
    """Reshape a node; a view whose strides do not allow the new shape is copied."""
    if node.shape == shape or isinstance(node, Constant):
        return node
    if isinstance(node, Reshaped):
        return reshaped(node.source, shape)
    if isinstance(node, ChannelsFirst):
        if _keeps_channels(node.shape, shape):
            return channels_first(reshaped(node.source, (shape[0], *shape[2:], shape[1])))
        node = _view(node)
    if isinstance(node, View):
        strides = _strides_reshaped(node, shape)
        if strides is None:
            return Reshaped(shape, node.element, Map(node.shape, node.element, "copy", (node,)))
        return View(shape, node.element, node.source, node.offset, strides)
    return Reshaped(shape, node.element, node)


def _keeps_channels(old: Shape, new: Shape) -> bool:
    """Whether a reshape of images [N, C, ...] only adds or drops extents of 1 behind the channels, as for sequences."""
    extents = ([extent for extent in shape[2:] if extent != 1] for shape in (old, new))
    return len(new) > 2 and old[:2] == new[:2] and next(extents) == next(extents)


def _strides_reshaped(view: View, shape: Shape) -> Shape | None:
    """The strides of a view reshaped to `shape`; None if no strides fit."""
    old = [(extent, stride) for extent, stride in zip(view.shape, view.strides, strict=True) if extent != 1]
    merged: list[tuple[int, int]] = []
    for extent, stride in old:
        if merged and merged[-1][1] == stride * extent:
            merged[-1] = (merged[-1][0] * extent, stride)
        else:
            merged.append((extent, stride))
    strides: list[int] = []
    runs = iter(merged)
    remaining, stride = 1, 1
    for extent in shape:
        if extent == 1:
            strides.append(0)
            continue
        if remaining == 1:
            remaining, inner = next(runs, (0, 0))
            stride = inner * remaining
        if not remaining or remaining % extent:
            return None
        remaining //= extent
        stride //= extent
        strides.append(stride)
    return tuple(strides)


def _view(node: GraphNode) -> View:
    """A node as a view of memory."""
    if isinstance(node, View):
        return node
    if isinstance(node, ChannelsFirst):
        return transposed(node.source, places_of_channels_last(node.ndim))  # type: ignore[return-value]
    source = node.source if isinstance(node, Reshaped) else node
    return View(node.shape, node.element, source, 0, contiguous(node.shape))


def plain(node: GraphNode) -> GraphNode:
    """A contiguous node: the node, or a copy of it."""
    if isinstance(node, (View, ChannelsFirst)) and strides_of(_view(node)) != contiguous(node.shape):
        return Map(node.shape, node.element, "copy", (_view(node),))
    return node


def viewed(node: GraphNode, shape: Shape, offset: int, strides: Shape) -> GraphNode:
    """A strided view of a contiguous node."""
    base = _view(node)
    assert isinstance(base, View) and base.strides == contiguous(base.shape) and not base.offset
    return View(shape, node.element, base.source, offset, strides)


def transposed(node: GraphNode, axes: Sequence[int]) -> GraphNode:
    """Transpose a node: a view with permuted dimensions."""
    if list(axes) == list(range(node.ndim)):
        return node
    base = _view(node)
    shape, strides = tuple(node.shape[axis] for axis in axes), tuple(base.strides[axis] for axis in axes)
    return View(shape, node.element, base.source, base.offset, strides)


def sliced(node: GraphNode, axis: int, start: int, count: int, step: int = 1) -> GraphNode:
    """A view of `count` elements along an axis, from `start` on."""
    base = _view(node)
    shape = (*node.shape[:axis], count, *node.shape[axis + 1 :])
    strides = (*base.strides[:axis], base.strides[axis] * step, *base.strides[axis + 1 :])
    return View(shape, node.element, base.source, base.offset + start * base.strides[axis], strides)


def put_within(node: GraphNode, container: Joined, offset: int, strides: Shape) -> GraphNode:
    """Store a node within a container, at an offset and strides; it must not have a place yet."""
    node.within = View(node.shape, node.element, container, offset, strides)
    return node


def memory_of(node: GraphNode) -> GraphNode:
    """The outermost container of a node."""
    while node.within is not None:
        node = node.within.source
    return node


def joined(parts: Sequence[GraphNode], axis: int) -> GraphNode:
    """Concatenate tensors along an axis."""
    first = parts[0]
    extents = [part.shape[axis] for part in parts]
    shape = (*first.shape[:axis], sum(extents), *first.shape[axis + 1 :])
    starts = accumulate(extents[:-1], initial=0)
    return assembled(shape, [(part, (0,) * axis + (start,)) for part, start in zip(parts, starts, strict=True)])


def assembled(shape: Shape, parts: Sequence[tuple[GraphNode, Sequence[int]]]) -> GraphNode:
    """Compute a tensor from blocks that cover it; each is a tensor and its first indices, where missing ones are 0."""
    strides = contiguous(shape)
    pieces = tuple(Map(part.shape, part.element, "copy", (part,)) for part, _ in parts)
    result = Joined(shape, pieces[0].element, pieces)
    for piece, (_, start) in zip(pieces, parts, strict=True):
        put_within(piece, result, sum(map(mul, start, strides)), strides)
    return result


def packed_matrix(matrix: GraphNode) -> PackedMatrix:
    """A matrix, packed as the right operand of products."""
    return PackedMatrix((0,), matrix.element, matrix)


def product(left: GraphNode, right: GraphNode) -> GraphNode:
    """The product of two stacks of matrices; their leading dimensions broadcast."""
    left, right = (_view(node) if isinstance(node, ChannelsFirst) else node for node in (left, right))
    ndim = max(left.ndim, right.ndim)
    left, right = aligned(left, ndim), aligned(right, ndim)
    batch = tuple(max(pair) if 0 not in pair else 0 for pair in zip(left.shape[:-2], right.shape[:-2], strict=True))
    return Product((*batch, left.shape[-2], right.shape[-1]), left.element, left, right)

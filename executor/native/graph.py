"""What ops compute, as a graph of tensors: the form in which native code sees a program.

A node is a tensor of fixed shape: an array of the plan (`PlanArray`), or what is computed of other nodes. `Map` applies a formula
to each element, and broadcasts; `Reduction` sums, or takes the greatest, over axes; `Product` multiplies matrices. What only says
where elements lie (`View`, `Reshaped`) computes nothing. Nodes do not say when they are computed, nor whether they get memory:
that is found by `fusion`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count
from math import prod
from operator import attrgetter, mul
from typing import Any

from fluid.ir.versions import Value

from .emitter import Type

__all__ = [
    "Choice",
    "Constant",
    "Convolved",
    "ConvolvedBack",
    "Core",
    "Drawn",
    "FilterGradient",
    "Firsts",
    "Joined",
    "Map",
    "Merged",
    "Node",
    "PackedFilter",
    "PackedMatrix",
    "Places",
    "PlanArray",
    "Pooled",
    "PooledBack",
    "Position",
    "Positions",
    "Product",
    "Put",
    "Reduction",
    "Reshaped",
    "Rows",
    "Scattered",
    "Shape",
    "Turned",
    "View",
    "Windows",
    "broadcast_to",
    "channels_first",
    "channels_last",
    "constant",
    "contiguous",
    "joined",
    "mapped",
    "memory_of",
    "memory_shape",
    "offset_of",
    "operands_of",
    "plain",
    "product",
    "put_within",
    "reduced",
    "reshaped",
    "sliced",
    "strides_of",
    "transposed",
    "viewed",
]  # fmt: skip

Shape = tuple[int, ...]


@dataclass(eq=False, repr=False)
class Node:
    """A tensor: its shape and the type of its elements."""

    shape: Shape
    element: Type
    serial: int = field(default_factory=count().__next__, init=False, repr=False)
    """Nodes are numbered as they are made."""
    halo: int = field(default=0, init=False)
    """Pixels of zeros around images, where they lie in memory."""
    within: View | None = field(default=None, init=False)
    """Where the elements lie, if that is a part of another node's memory (`Joined`)."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}{list(self.shape)}"

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)


@dataclass(eq=False, repr=False)
class PlanArray(Node):
    """An array of the plan, whose elements lie side by side, rows first."""

    value: Value


@dataclass(eq=False, repr=False)
class Drawn(PlanArray):
    """Truth values that the kernel of the op draws, or fills in, before native code runs; `value` is where they are."""

    value: Value = ("", 0)


@dataclass(eq=False, repr=False)
class Constant(Node):
    """A number."""

    number: float


@dataclass(eq=False, repr=False)
class Position(Node):
    """The index of each element along the last axis."""


@dataclass(eq=False, repr=False)
class Map(Node):
    """A formula of the elements of operands, which have as many dimensions; those of extent 1 are broadcast."""

    formula: str
    operands: tuple[Node, ...]


@dataclass(eq=False, repr=False)
class Reduction(Node):
    """Elements combined over `axes`, which remain with extent 1: ``sum`` or ``max``."""

    kind: str
    source: Node
    axes: tuple[int, ...]


@dataclass(eq=False, repr=False)
class Reshaped(Node):
    """The same elements in the same order, in another shape."""

    source: Node


@dataclass(eq=False, repr=False)
class View(Node):
    """Elements of another node's memory: the first one's offset, and steps from one to the next by dimension, in elements."""

    source: Node
    offset: int
    strides: Shape


@dataclass(eq=False, repr=False)
class Rows(Node):
    """Rows of a table [V, width] by number: of `ids` [R, 1] the rows [R, width]."""

    table: Node
    ids: Node


@dataclass(eq=False, repr=False)
class Choice(Node):
    """One element of each row of `source` [R, C], by number: of `ids` [R, 1] the elements [R, 1]."""

    source: Node
    ids: Node


@dataclass(eq=False, repr=False)
class Joined(Node):
    """A tensor that consists of others, each of which is stored where it belongs."""

    parts: tuple[Node, ...]


@dataclass(eq=False, repr=False)
class Turned(Node):
    """Images [N, C, H, W] of a node that has them as [N, H, W, C]. What is computed of them elementwise is computed there."""

    source: Node


class Core(Node):
    """What has a kernel of its own, with which a group may begin."""


@dataclass(eq=False, repr=False)
class Product(Core):
    """The product of two stacks of matrices, [..., M, K] and [..., K, N]; leading extents of 1 are broadcast."""

    left: Node
    right: Node
    packed: PackedMatrix | None = None
    """The right one in the order in which it is read, where several products share it."""


@dataclass(eq=False, repr=False)
class Scattered(Core):
    """A table [V, width] to whose rows of the numbers `ids` [R, 1] those of `rows` [R, width] are added, one after the other.

    A negative number stands for no row. The table is one of zeros, or another one, in whose memory it stays.
    """

    rows: Node
    ids: Node
    table: Node | None = None


@dataclass(eq=False, repr=False)
class Firsts(Core):
    """For each of `ids` [R, 1] the place of the first one that is equal, [R, 1]; -1 for negative ones."""

    ids: Node


@dataclass(eq=False, repr=False)
class Merged(Core):
    """Rows [R, width], each added to the first one of its number (see `Firsts`), which the others leave zeros; behind them, a row
    of zeros."""

    rows: Node
    firsts: Node


@dataclass(eq=False, repr=False)
class Put(Core):
    """A table, in its own memory, with other rows at the numbers `ids`: those of `rows` that are the first of their number."""

    table: Node
    rows: Node
    ids: Node
    firsts: Node


@dataclass(eq=False, repr=False)
class Places(Core):
    """For each row of a table [V, width] the place of the first of `ids` that is its number, [V, 1]; R where there is none."""

    ids: Node
    firsts: Node


@dataclass(eq=False, repr=False)
class PackedMatrix(Core):
    """A matrix [K, N] in the order in which products read it that have it on the right, and as many rows.

    `fitting` says how many elements that has.
    """

    source: Node
    rows: int


@dataclass(frozen=True)
class Windows:
    """How windows go over images: rows and columns of each."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[tuple[int, int], tuple[int, int]]
    dilations: tuple[int, int] = (1, 1)
    groups: int = 1


@dataclass(eq=False, repr=False)
class PackedFilter(Core):
    """A filter [M, C / groups, rows, columns] in the order in which a convolution, or the gradient of its input, reads it.

    `fitting` says how many elements that has.
    """

    filter: Node
    windows: Windows
    images: tuple[Shape, Shape]
    for_input: bool


@dataclass(eq=False, repr=False)
class Convolved(Core):
    """The convolution of images [N, H, W, C] with a filter."""

    source: Node
    packed: PackedFilter


@dataclass(eq=False, repr=False)
class ConvolvedBack(Core):
    """The gradient of a convolution's input, of that of its output."""

    source: Node
    packed: PackedFilter


@dataclass(eq=False, repr=False)
class FilterGradient(Core):
    """The gradient of a convolution's filter, of its input and the gradient of its output."""

    source: Node
    gradient: Node
    windows: Windows


@dataclass(eq=False, repr=False)
class Pooled(Core):
    """The greatest elements of windows, or their averages: ``max``, ``average``, or ``inside`` of what lies within the image."""

    kind: str
    source: Node
    windows: Windows


@dataclass(eq=False, repr=False)
class Positions(Core):
    """Where in each window its greatest element is."""

    source: Node
    windows: Windows


@dataclass(eq=False, repr=False)
class PooledBack(Core):
    """The gradient of what was pooled, of that of the output, and of the positions of the greatest elements."""

    kind: str
    source: Node
    windows: Windows
    positions: Node | None


def _of_source(node: Any) -> tuple[Node, ...]:
    return (node.source,)


def _of_nothing(node: Any) -> tuple[Node, ...]:
    return ()


_OPERANDS: dict[type[Node], Callable[[Any], tuple[Node, ...]]] = {
    **dict.fromkeys((PlanArray, Drawn, Constant, Position), _of_nothing),
    **dict.fromkeys((Reduction, Reshaped, View, Turned, PackedMatrix, Pooled, Positions), _of_source),
    Map: attrgetter("operands"),
    Joined: attrgetter("parts"),
    Rows: attrgetter("table", "ids"),
    Choice: attrgetter("source", "ids"),
    Product: lambda node: (node.left, node.right if node.packed is None else node.packed),
    PackedFilter: lambda node: (node.filter,),
    Convolved: attrgetter("source", "packed"),
    ConvolvedBack: attrgetter("source", "packed"),
    FilterGradient: attrgetter("source", "gradient"),
    PooledBack: lambda node: (node.source,) if node.positions is None else (node.source, node.positions),
    Scattered: lambda node: (node.rows, node.ids) if node.table is None else (node.rows, node.ids, node.table),
    Firsts: lambda node: (node.ids,),
    Merged: attrgetter("rows", "firsts"),
    Put: attrgetter("table", "rows", "ids", "firsts"),
    Places: attrgetter("ids", "firsts"),
}


def operands_of(node: Node) -> tuple[Node, ...]:
    """The nodes that a node is computed of."""
    return _OPERANDS[type(node)](node)


# ------------------------------------------------------------------------------------------------------------- building
def constant(number: float, element: Type) -> Constant:
    return Constant((), element, number)


def strides_of(node: Node) -> Shape:
    """The steps from one element of a node to the next, by dimension, in the memory where they lie."""
    if isinstance(node, View):
        return node.strides
    if node.within is not None:
        return node.within.strides
    if isinstance(node, Turned):
        image, row, pixel, channel = strides_of(node.source)
        return image, channel, row, pixel
    if node.halo:
        _, _, width, channels = node.shape
        row = (width + 2 * node.halo) * channels
        return (node.shape[1] + 2 * node.halo) * row, row, channels, 1
    return contiguous(node.shape)


def offset_of(node: Node) -> int:
    """Elements before the first one of a node, in the memory where they lie."""
    if isinstance(node, View):
        return node.offset
    if node.within is not None:
        return node.within.offset + offset_of(node.within.source)
    if isinstance(node, Turned):
        return offset_of(node.source)
    _, row, pixel, _ = strides_of(node) if node.halo else (0, 0, 0, 0)
    return node.halo * (row + pixel)


def memory_shape(node: Node) -> Shape:
    """The shape of the memory of a node."""
    if not node.halo:
        return node.shape
    images, height, width, channels = node.shape
    return images, height + 2 * node.halo, width + 2 * node.halo, channels


def contiguous(shape: Sequence[int]) -> Shape:
    """The strides of elements that lie side by side, rows first."""
    return tuple(accumulate((*shape[:0:-1],), mul, initial=1))[::-1] if shape else ()


def aligned(node: Node, ndim: int) -> Node:
    """A node with ones before its shape, so that it has as many dimensions."""
    return node if node.ndim == ndim else reshaped(node, (1,) * (ndim - node.ndim) + node.shape)


def mapped(formula: str, *operands: Node, element: Type | None = None) -> Node:
    """A formula of operands that broadcast as in numpy; by default of the first one's element type."""
    if any(isinstance(operand, Position) for operand in operands):  # which counts along the last axis as it is given
        operands = tuple(_view(operand) if isinstance(operand, Turned) else operand for operand in operands)
    if any(isinstance(operand, Turned) for operand in operands):
        last = [operand if isinstance(operand, Constant) else channels_last(aligned(operand, 4)) for operand in operands]
        return channels_first(mapped(formula, *last, element=element))
    shapes = {operand.shape for operand in operands if not isinstance(operand, Constant)}
    if len(shapes) == 1:
        return Map(shapes.pop(), element or operands[0].element, formula, operands)
    ndim = max(operand.ndim for operand in operands)
    all_aligned = tuple(operand if isinstance(operand, Constant) else aligned(operand, ndim) for operand in operands)
    full = [operand.shape for operand in all_aligned if operand.ndim == ndim and not isinstance(operand, Constant)]
    shape = tuple(next((extent for extent in extents if extent != 1), 1) for extents in zip(*full, strict=True))
    return Map(shape, element or operands[0].element, formula, all_aligned)


def channels_first(node: Node) -> Node:
    """Images [N, C, H, W] of images [N, H, W, C]."""
    images, height, width, channels = node.shape
    shape = (images, channels, height, width)
    if node.size == images * channels or channels == 1:
        return reshaped(node, shape)
    return Turned(shape, node.element, node)


def channels_last(node: Node) -> Node:
    """Images [N, H, W, C] of images [N, C, H, W]."""
    if isinstance(node, Turned):
        return node.source
    images, channels, height, width = node.shape
    if node.size == images * channels or channels == 1:
        return reshaped(node, (images, height, width, channels))
    return transposed(node, (0, 2, 3, 1))


def broadcast_to(node: Node, shape: Shape) -> Node:
    """A node repeated along dimensions of extent 1, and leading ones that it lacks."""
    node = aligned(node, len(shape))
    return node if node.shape == shape else Map(shape, node.element, "copy", (node,))


def reduced(kind: str, source: Node, axes: Sequence[int]) -> Node:
    """A node reduced over axes, which remain with extent 1.

    Runs of neighbouring axes are reduced one after the other, the last ones first.
    """
    if isinstance(source, Turned):
        last = reduced(kind, source.source, [(0, 3, 1, 2)[axis] for axis in axes])
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
        before, after = prod(source.shape[: run[0]]), prod(source.shape[run[-1] + 1 :])
        if after != 1 and (before != 1 or kind != "sum"):  # not along rows, nor a sum over them: the axes are brought to the end
            order = [axis for axis in range(source.ndim) if axis not in run] + run
            turned = Map(tuple(source.shape[axis] for axis in order), source.element, "copy", (transposed(source, order),))
            rows = reduced(kind, turned, range(source.ndim - len(run), source.ndim))
            source = reshaped(rows, tuple(1 if axis in run else extent for axis, extent in enumerate(source.shape)))
            continue
        shape = tuple(1 if axis in run else extent for axis, extent in enumerate(source.shape))
        source = Reduction(shape, source.element, kind, source, tuple(run))
    return source


def reshaped(node: Node, shape: Shape) -> Node:
    """The same elements in another shape; what is no view of the memory that it stands for becomes a copy."""
    if node.shape == shape or isinstance(node, Constant):
        return node
    if isinstance(node, Reshaped):
        return reshaped(node.source, shape)
    if isinstance(node, Turned):
        node = _view(node)
    if isinstance(node, View):
        strides = _strides_reshaped(node, shape)
        if strides is None:
            return Reshaped(shape, node.element, Map(node.shape, node.element, "copy", (node,)))
        return View(shape, node.element, node.source, node.offset, strides)
    return Reshaped(shape, node.element, node)


def _strides_reshaped(view: View, shape: Shape) -> Shape | None:
    """The strides of a view in another shape; None if there are none."""
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


def _view(node: Node) -> View:
    """A node as a view of memory."""
    if isinstance(node, View):
        return node
    if isinstance(node, Turned):
        return transposed(node.source, (0, 3, 1, 2))  # type: ignore[return-value]
    source = node.source if isinstance(node, Reshaped) else node
    return View(node.shape, node.element, source, 0, contiguous(node.shape))


def plain(node: Node) -> Node:
    """A node whose elements lie side by side, rows first: a copy of one that is a view of others."""
    if isinstance(node, (View, Turned)) and strides_of(_view(node)) != contiguous(node.shape):
        return Map(node.shape, node.element, "copy", (_view(node),))
    return node


def viewed(node: Node, shape: Shape, offset: int, strides: Shape) -> Node:
    """A view whose offset and strides count elements of `node`, a tensor that lies side by side."""
    base = _view(node)
    assert isinstance(base, View) and base.strides == contiguous(base.shape) and not base.offset
    return View(shape, node.element, base.source, offset, strides)


def transposed(node: Node, axes: Sequence[int]) -> Node:
    """A view with the dimensions in another order."""
    if list(axes) == list(range(node.ndim)):
        return node
    base = _view(node)
    shape, strides = tuple(node.shape[axis] for axis in axes), tuple(base.strides[axis] for axis in axes)
    return View(shape, node.element, base.source, base.offset, strides)


def sliced(node: Node, axis: int, start: int, count: int, step: int = 1) -> Node:
    """A view of `count` elements along an axis, from `start` on."""
    base = _view(node)
    shape = (*node.shape[:axis], count, *node.shape[axis + 1 :])
    strides = (*base.strides[:axis], base.strides[axis] * step, *base.strides[axis + 1 :])
    return View(shape, node.element, base.source, base.offset + start * base.strides[axis], strides)


def put_within(node: Node, container: Joined, offset: int, strides: Shape) -> Node:
    """Let the elements of a node, which nothing else decides, lie in the memory of another node."""
    node.within = View(node.shape, node.element, container, offset, strides)
    return node


def memory_of(node: Node) -> Node:
    """The node whose memory holds the elements of one that lies within others."""
    while node.within is not None:
        node = node.within.source
    return node


def joined(parts: Sequence[Node], axis: int) -> Node:
    """Tensors side by side along an axis."""
    first = parts[0]
    extents = [part.shape[axis] for part in parts]
    shape = (*first.shape[:axis], sum(extents), *first.shape[axis + 1 :])
    strides = contiguous(shape)
    pieces = tuple(Map(part.shape, part.element, "copy", (part,)) for part in parts)
    result = Joined(shape, first.element, pieces)
    start = 0
    for piece, extent in zip(pieces, extents, strict=True):
        piece.within = View(piece.shape, piece.element, result, start * strides[axis], strides)
        start += extent
    return result


def product(left: Node, right: Node) -> Node:
    """The product of two stacks of matrices; their leading dimensions broadcast."""
    left, right = (_view(node) if isinstance(node, Turned) else node for node in (left, right))
    ndim = max(left.ndim, right.ndim)
    left, right = aligned(left, ndim), aligned(right, ndim)
    batch = tuple(max(pair) if 0 not in pair else 0 for pair in zip(left.shape[:-2], right.shape[:-2], strict=True))
    return Product((*batch, left.shape[-2], right.shape[-1]), left.element, left, right)

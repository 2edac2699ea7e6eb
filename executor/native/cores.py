"""Kernels of groups that begin with a core: a matrix product, a convolution or a pool.

The epilogue (all other nodes of the group) is computed from the core's results while they are in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, TypeAlias

from . import convolution, depthwise, integer_product, matmul, pooling, running, sparse, trees, winograd, winograd_gradient
from .ctc import CtcOperands, write_ctc_gradient, write_paths
from .emitter import BOOL, Function, Value, constant
from .fusion import Group, extents_of, source_of, strides_over
from .graph import (
    Constant,
    Convolved,
    ConvolvedBack,
    Core,
    CtcGradient,
    CtcPaths,
    Factored,
    FilterGradient,
    Firsts,
    GraphNode,
    IntegerProduct,
    Leaves,
    Map,
    Merged,
    PackedFilter,
    PackedIntegers,
    PackedMatrix,
    Places,
    Pooled,
    PooledBack,
    Position,
    Positions,
    Product,
    Put,
    Running,
    Scattered,
    Shape,
    Solved,
    Windows,
    memory_of,
    operands_of,
    strides_of,
)  # fmt: skip
from .halo import NO_HALO, Halo
from .images import Images, Pixel, affine
from .kernel import Share
from .loops import apply_formula, broadcast, column_numbers, write_uniforms
from .small_matrices import Matrices, write_factored, write_solved
from .target import Target

Phase: TypeAlias = "Callable[[Function, Any, Value, Share], None]"
"""Writes a kernel of a core, given the pointers to its operands and to the workspace."""


# ------------------------------------------------------------------------------------------------------------ geometry
def _images(node: GraphNode) -> Images:
    return _dense(node.shape, node.halo)


def _dense(shape: Sequence[int], halo: Halo = NO_HALO) -> Images:
    count, height, width, channels = shape
    return Images.dense(count, height, width, channels, halo)


def _convolution(x: Images, y: Images, windows: Windows, element: Any) -> convolution.Convolution:
    return convolution.Convolution(
        x,
        y,
        windows.kernel,
        windows.strides,
        (windows.pads[0][0], windows.pads[1][0]),
        windows.dilations,
        windows.groups,
        element,
    )


def _of_shapes(shapes: tuple[Sequence[int], Sequence[int]], windows: Windows, element: Any) -> convolution.Convolution:
    """A convolution of images without a halo."""
    x, y = map(_dense, shapes)
    return _convolution(x, y, windows, element)


def packed_filter_size(core: PackedFilter, target: Target) -> int:
    """Number of elements of a packed filter."""
    geometry, for_input = _of_shapes(core.images, core.windows, core.element), core.for_input
    if depthwise.is_depthwise(geometry):
        return geometry.taps * geometry.x.channels
    blocks = _blocks_of(geometry, for_input, target)
    if blocks is not None:
        return blocks.filter_elements
    size = convolution.packed_elements_for_input if for_input else convolution.packed_elements
    return size(geometry, target)


def _blocks_of(geometry: convolution.Convolution, for_input: bool, target: Target) -> winograd.Blocks | None:
    return (winograd.input_blocks if for_input else winograd.forward_blocks)(geometry, target)


def _layout_of(geometry: convolution.Convolution, for_input: bool, target: Target) -> Any:
    """What the layout of a packed filter depends on besides the size of an image."""
    blocks = None if depthwise.is_depthwise(geometry) else _blocks_of(geometry, for_input, target)
    return None if blocks is None else blocks.panels


def fewest_images(core: PackedFilter, target: Target) -> tuple[Shape, Shape]:
    """The shapes of the images for the least number of images with which the filter is packed in the same way.

    Plans for other batch sizes then share the packed filter.
    """
    count, geometry = core.images[0][0], _of_shapes(core.images, core.windows, core.element)
    layout, fewest = _layout_of(geometry, core.for_input, target), 1
    while fewest < count:
        x, y = ((fewest, *shape[1:]) for shape in core.images)
        if _layout_of(_of_shapes((x, y), core.windows, core.element), core.for_input, target) == layout:
            return x, y
        fewest *= 2
    return core.images


def _geometry_of(core: Convolved | ConvolvedBack) -> convolution.Convolution:
    """The convolution of a core, of images without a halo."""
    shapes = (core.source.shape, core.shape) if isinstance(core, Convolved) else (core.shape, core.source.shape)
    return _of_shapes(shapes, core.packed.windows, core.element)


def shares_work_of_images(core: Convolved, target: Target) -> bool:
    """Whether the filter's packing depends on the number of images: some kernels compute several images together."""
    return _blocks_of(_geometry_of(core), core.packed.for_input, target) is not None


def _pool(x: Images, y: Images, windows: Windows, element: Any) -> pooling.PoolGeometry:
    return pooling.PoolGeometry(x, y, windows.kernel, windows.strides, windows.pads, element)


def position_type(image: GraphNode, shape: Sequence[int], windows: Windows) -> Any:
    """The element type of `Positions` for pooled images of the given shape."""
    return _pool(_dense(image.shape), _dense(shape), windows, image.element).position


def halos_of(core: GraphNode) -> dict[GraphNode, Halo]:
    """Image that a core reads -> its minimal halo."""
    match core:
        case Convolved():
            return {core.source: _geometry_of(core).x_halo}
        case ConvolvedBack():
            return {core.source: _geometry_of(core).y_halo}
        case FilterGradient():
            geometry = _of_shapes((core.source.shape, core.gradient.shape), core.windows, core.element)
            return {core.source: geometry.x_halo, core.gradient: NO_HALO}
        case Pooled() | Positions():
            halo = _pool(_dense(core.source.shape), _dense(core.shape), core.windows, core.source.element).x_halo
            return {core.source: NO_HALO if isinstance(core, Positions) or core.kind == "max" else halo}
        case PooledBack():
            halo = _pool(_dense(core.shape), _dense(core.source.shape), core.windows, core.element).y_halo
            return {core.source: halo} | ({core.positions: halo} if core.positions is not None else {})
    return {}


# ------------------------------------------------------------------------------------------------------------- writing
def keeps_partial_sums(core: GraphNode, target: Target) -> bool:
    """Whether the kernel of a core stores partial sums in its output before it stores the results."""
    return (
        isinstance(core, Product)
        and not isinstance(core, IntegerProduct)
        and matmul.keeps_partial_sums(_matrix_product(core), target)
    )


def output_of(group: Group, stored: Iterable[GraphNode], target: Target) -> GraphNode:
    """The node that the kernel of a core stores directly: the last one that fits, or else the core itself.

    A node fits if its columns are contiguous. If the kernel keeps partial sums in its output, also no node of the group may read
    the memory that the output overwrites, nor another part of its container.
    """
    core = group.core
    assert core is not None
    candidates = set(stored)
    if keeps_partial_sums(core, target):
        candidates.difference_update(node for node, old in group.overwritten.items() if old in group.operands)
        sources = {memory_of(source_of(operand)) for operand in (*group.operands, *operands_of(core))}
        candidates = {node for node in candidates if memory_of(node) not in sources}
    for node in reversed(group.nodes):
        if node not in candidates or not _is_storable(core, node):
            continue
        if node.within is None:
            return node
        is_strided = isinstance(core, IntegerProduct) or (isinstance(core, Product) and core.ndim == 2)
        steps = strides_over(node, node.shape, extents_of(core)) if is_strided else None
        if steps is not None and steps[-1] == 1:
            return node
    return core


def _is_storable(core: Core, node: GraphNode) -> bool:
    """Whether the kernel of a core can store a node, by the type of its elements."""
    return node.element == core.element or (isinstance(core, IntegerProduct) and node.element != BOOL)


class _EpilogueWriter:
    """Writes the epilogue of a core: the other nodes of its group, at one place of the index space."""

    def __init__(self, f: Function, group: Group, pointers: Any) -> None:
        assert group.core is not None
        self.f, self.group, self.pointers, self.core = f, group, pointers, group.core
        self.extents = extents_of(group.core)
        self.numbers = write_uniforms(f, group, pointers)
        self.output = pointers.core_output
        """The node that the core's kernel stores directly."""

    @property
    def callback(self) -> Callable[..., Value | None] | None:
        """The callback for each vector of the core's result; None if the group has only the core."""
        if not any(isinstance(node, Map) for node in self.group.nodes):
            return None
        return self._of_pixel if len(self.extents) == 4 else self._of_row

    def _of_row(self, f: Function, value: Value, row: Value, column: Value) -> Value | None:
        return self._at(value, [row, column])

    def _of_pixel(self, f: Function, value: Value, pixel: Pixel, channel: Value) -> Value | None:
        column = pixel.column if pixel.first is None else pixel.first
        return self._at(value, [pixel.image, pixel.row, column, channel], pixel.shift)

    @property
    def at_places(self) -> Callable[..., Value] | None:
        """The callback for each vector of a core that gives all places; None if the group has only the core."""
        if self.callback is None:
            return None
        return lambda f, value, places, column: self._at(value, [*places, column])

    def _at(self, value: Value, places: Sequence[Value], shift: int = 0) -> Value:
        """Compute the epilogue at `places`, shifted by `shift` columns, and return the vector for the output."""
        f, width = self.f, value.type.lanes
        values: dict[GraphNode, Value] = {**self.numbers, self.core: value}
        stores: list[Callable[[], None]] = []

        def operand_value(operand: GraphNode, shape: Sequence[int]) -> Value:
            if isinstance(operand, Constant):
                return constant(operand.number, operand.element)
            if isinstance(operand, Position):
                return column_numbers(f, places[-1], width, operand.element)
            source = source_of(operand)
            if source in values:
                return values[source]
            steps = strides_over(operand, shape, self.extents)
            assert steps is not None, "operands of a group fit its index space"
            pointer = self._place(self.pointers.first(operand), places, steps, shift, operand.element)
            return f.load_steps(pointer, operand.element.of(width), steps[-1])

        for node in self.group.nodes:
            if isinstance(node, Map):
                values[node] = apply_formula(f, node, [operand_value(operand, node.shape) for operand in node.operands], width)
            if node in self.pointers.stored and node is not self.output and node in values:
                steps = strides_over(node, node.shape, self.extents)
                assert steps is not None
                stores.append(partial(self._store, broadcast(f, values[node], width), node, places, steps, shift))
        for store in stores:  # after all loads: an output may alias an operand
            store()
        return broadcast(f, values[self.output], width)

    def _store(self, value: Value, node: GraphNode, places: Sequence[Value], steps: Sequence[int], shift: int) -> None:
        self.f.store(value, self._place(self.pointers.output(node), places, steps, shift, node.element))

    def _place(self, pointer: Value, places: Sequence[Value], steps: Sequence[int], shift: int, element: Any) -> Value:
        """The pointer to `places`, shifted by `shift` columns. Pixels of a tile share the address of the first pixel."""
        first = self.f.at(pointer, affine(self.f, 0, *zip(places, steps, strict=True)), element)
        return self.f.at(first, shift * steps[-2], element) if shift else first


def phases_of(group: Group, target: Target) -> tuple[list[Phase], int]:
    """The kernels of a group that begins with a core, in order, and their workspace in bytes."""
    core = group.core
    match core:
        case IntegerProduct():
            return [_integer_product(group, core, target)], 0
        case Product():
            return _product_phases(group, core, target)
        case PackedIntegers():
            return [_packing_integers(core, target)], 0
        case PackedMatrix():
            return [_packing_matrix(core, target)], 0
        case Scattered() | Merged() | Put() | Places() | Firsts() | Leaves():
            return [_on_rows(core, target)], sparse.hash_bytes(core.size) if isinstance(core, Firsts) else 0
        case Solved() | Factored():
            return [_on_matrices(core, target)], 0
        case CtcPaths():
            return [_ctc(core, target)], 0
        case Running():
            return [_running(core, target)], 0
        case PackedFilter():
            return _packing_phases(core, target)
        case Convolved() | ConvolvedBack():
            return _convolution_phases(group, core, target)
        case FilterGradient():
            return _filter_gradient_phases(group, core, target)
        case Pooled() | Positions() | PooledBack():
            return [_pooling(group, core, target)], 0
    raise AssertionError(f"no kernel of {type(core).__name__}")


def _product_phases(group: Group, core: Product, target: Target) -> tuple[list[Phase], int]:
    product = _matrix_product(core)
    packed = core.packed

    def write(f: Function, pointers: Any, workspace: Value, share: Share) -> None:
        epilogue = _EpilogueWriter(f, group, pointers)
        left, right = (pointers.first(operand) for operand in (core.left, packed or core.right))
        output = epilogue.output
        steps = strides_over(output, output.shape, epilogue.extents) if core.ndim == 2 else None
        strided = product if steps is None else replace(product, c_stride=steps[0] if core.shape[0] > 1 else core.shape[1])
        matmul.write_product(f, strided, left, right, pointers.output(output), share, workspace, target, epilogue.callback)

    return [write], matmul.workspace_bytes(product, target) * target.threads


def _integers_of(packed: PackedIntegers) -> integer_product.PackedShape:
    rows, columns = packed.source.shape
    down, along = strides_of(packed.source)
    return integer_product.PackedShape(rows // packed.segments, columns, (down, along), packed.segments)


def packed_integers_size(core: PackedIntegers, target: Target) -> int:
    """Number of bytes of a packed matrix of integers."""
    return integer_product.packed_bytes(_integers_of(core), target)


def _packing_integers(core: PackedIntegers, target: Target) -> Phase:
    def write(f: Function, pointers: Any, workspace: Value, share: Share) -> None:
        shape = _integers_of(core)
        integer_product.write_pack(f, shape, pointers.first(core.source), pointers.output(core), share, target)

    return write


def _integer_product(group: Group, core: IntegerProduct, target: Target) -> Phase:
    left = strides_of(core.left)
    windows = core.windows
    by_left = left[:-1] if windows is None else (left[0], left[1] * windows.strides[0], left[2] * windows.strides[1])
    segments: tuple[tuple[int, int], ...] = ()
    if windows is not None:
        steps = (left[1] * windows.dilations[0], left[2] * windows.dilations[1])
        segments = tuple(zip(windows.kernel, steps, strict=True))[: 1 if core.packed.segments == windows.kernel[0] else 2]

    def write(f: Function, pointers: Any, workspace: Value, share: Share) -> None:
        epilogue = _EpilogueWriter(f, group, pointers)
        output = epilogue.output
        steps = strides_over(output, output.shape, epilogue.extents)
        assert steps is not None
        places = tuple(zip(epilogue.extents[:-1], by_left, steps[:-1], strict=True))
        shape = integer_product.ProductShape(places, _integers_of(core.packed), segments)
        of_left, packed, to = pointers.first(core.left), pointers.first(core.packed), pointers.output(output)
        integer_product.write_product(f, shape, of_left, packed, to, share, target, output.element, epilogue.at_places)

    return write


def _matrix_product(node: Product) -> matmul.MatrixProduct:
    """A product node as the input of `matmul`, with its strides."""
    left, right = strides_of(node.left), strides_of(node.right)
    rows, columns = node.shape[-2:]
    batch = []
    step = rows * columns
    for place in reversed(range(node.ndim - 2)):
        extent = node.shape[place]
        if extent != 1:
            a = left[place] if node.left.shape[place] != 1 else 0
            b = right[place] if node.right.shape[place] != 1 else 0
            batch.append((extent, a, b, step))
        step *= extent
    inner = node.left.shape[-1]
    a_strides, b_strides = (left[-2], left[-1]), (right[-2], right[-1])
    is_packed = node.packed is not None
    return matmul.MatrixProduct(
        rows, columns, inner, a_strides, b_strides, columns, tuple(reversed(batch)), False, node.element, is_packed
    )


def _packed_product(core: PackedMatrix) -> matmul.MatrixProduct:
    inner, columns = core.source.shape
    b_strides = strides_of(core.source)
    return matmul.MatrixProduct(
        1, columns, inner, (inner, 1), (b_strides[0], b_strides[1]), columns, (), False, core.element, True
    )


def packed_matrix_size(core: PackedMatrix, target: Target) -> int:
    """Number of elements of a packed matrix."""
    return matmul.packed_bytes(_packed_product(core), target) // core.element.bytes


def _packing_matrix(core: PackedMatrix, target: Target) -> Callable[..., None]:
    def write(f: Function, pointers: Any, workspace: Value, share: Share) -> None:
        matmul.write_pack(f, _packed_product(core), pointers.first(core.source), pointers.output(core), share, target)

    return write


def _on_rows(core: Scattered | Merged | Put | Places | Firsts | Leaves, target: Target) -> Callable[..., None]:
    """The writer of a kernel that takes rows by their ids."""

    def write(f: Function, pointers: Any, workspace: Value, share: Share) -> None:
        output = pointers.output(core)

        def rows(node: GraphNode) -> sparse.RowSource:
            return sparse.RowSource(pointers.first(node), strides_of(node), node.shape, node.element)

        match core:
            case Scattered():
                height = core.shape[0]
                cleared = height if core.table is None else 0
                sparse.write_scattered(f, rows(core.rows), rows(core.ids), output, height, cleared, core.kind, share, target)
            case Merged():
                sparse.write_merged(f, rows(core.rows), rows(core.firsts), output, share, target)
            case Put():
                sparse.write_put(f, rows(core.rows), rows(core.ids), rows(core.firsts), output, core.shape[0], share, target)
            case Places():
                sparse.write_places(f, rows(core.ids), rows(core.firsts), output, core.shape[0], share, target)
            case Firsts():
                sparse.write_firsts(f, rows(core.ids), output, workspace, share)
            case Leaves():
                tables = rows(core.bounds), rows(core.features), rows(core.children)
                trees.write_leaves(f, rows(core.source), *tables, output, core.shape[1], core.depth, share)

    return write


def _on_matrices(core: Solved | Factored, target: Target) -> Callable[..., None]:
    def write(f: Function, pointers: Any, workspace: Value, share: Share) -> None:
        def matrices(node: GraphNode, pointer: Value) -> Matrices:
            return Matrices(pointer, strides_of(node), node.shape, node.element)

        read, results = matrices(core.matrices, pointers.first(core.matrices)), matrices(core, pointers.output(core))
        if isinstance(core, Factored):
            write_factored(f, read, results, share, target)
        else:
            write_solved(f, read, matrices(core.right, pointers.first(core.right)), results, core.kind, share, target)

    return write


def _ctc(core: CtcPaths, target: Target) -> Phase:
    def write(f: Function, pointers: Any, workspace: Value, share: Share) -> None:
        def rows(node: GraphNode) -> sparse.RowSource:
            return sparse.RowSource(pointers.first(node), strides_of(node), node.shape, node.element)

        steps, batch, classes = core.scores.shape
        tables = rows(core.labels), rows(core.steps_of), rows(core.labels_of)
        ctc = CtcOperands(pointers.first(core.scores), *tables, (steps, batch, classes), core.element, core.blank)
        if isinstance(core, CtcGradient):
            write_ctc_gradient(f, ctc, pointers.first(core.paths), pointers.output(core), share, target)
        else:
            write_paths(f, ctc, pointers.output(core), share, target)

    return write


def _running(core: Running, target: Target) -> Phase:
    before, count, after = core.shape

    def write(f: Function, pointers: Any, workspace: Value, share: Share) -> None:
        kernel = running.RunningKernel((before, count, after), core.element, core.kind, core.exclusive, core.reverse)
        kernel.write(f, pointers.first(core.source), pointers.output(core), share, target)

    return write


def _packing_phases(core: PackedFilter, target: Target) -> tuple[list[Phase], int]:
    geometry = _of_shapes(core.images, core.windows, core.element)
    is_depthwise = depthwise.is_depthwise(geometry)
    blocks = _blocks_of(geometry, core.for_input, target)

    def packed(f: Function, pointers: Any, workspace: Value, share: Share) -> None:
        filter_, output = pointers.first(core.filter), pointers.output(core) if blocks is None else workspace
        if core.for_input and not is_depthwise:
            convolution.write_packed_filter_for_input(f, geometry, filter_, output, share, target)
            return
        pack = depthwise.write_packed_depthwise if is_depthwise else convolution.write_packed_filter
        pack(f, geometry, filter_, output, share, target, None if core.scale is None else pointers.first(core.scale))

    def transformed(f: Function, pointers: Any, workspace: Value, share: Share) -> None:
        assert blocks is not None
        winograd.write_transformed_filter(f, blocks, workspace, pointers.output(core), share)

    if blocks is None:
        return [packed], 0
    return [packed, transformed], blocks.packed_bytes


def _convolution_phases(group: Group, core: Convolved | ConvolvedBack, target: Target) -> tuple[list[Phase], int]:
    is_forward = isinstance(core, Convolved)

    def write(f: Function, pointers: Any, workspace: Value, share: Share) -> None:
        epilogue = _EpilogueWriter(f, group, pointers)
        source, output = _images(core.source), _dense(core.shape, epilogue.output.halo)
        x, y = (source, output) if is_forward else (output, source)
        geometry = _convolution(x, y, core.packed.windows, core.element)
        operands = pointers.start(core.source), pointers.first(core.packed), pointers.start(epilogue.output)
        if (blocks := _blocks_of(geometry, core.packed.for_input, target)) is not None:
            winograd.write_blocks(f, blocks, *operands, workspace, share, epilogue.callback)
            return
        convolve = convolution.write_forward if is_forward else convolution.write_input_gradient
        if depthwise.is_depthwise(geometry):
            convolve = depthwise.write_depthwise if is_forward else depthwise.write_depthwise_input_gradient
        convolve(f, geometry, *operands, share, target, epilogue.callback)

    blocks = _blocks_of(_geometry_of(core), core.packed.for_input, target)
    return [write], blocks.bytes * target.threads if blocks is not None else 0


def _filter_gradient_phases(group: Group, core: FilterGradient, target: Target) -> tuple[list[Phase], int]:
    geometry = _convolution(_images(core.source), _images(core.gradient), core.windows, core.element)
    blocks = winograd_gradient.gradient_blocks(geometry, target)
    is_depthwise = depthwise.is_depthwise(geometry)

    def sums(f: Function, pointers: Any, workspace: Value, share: Share) -> None:
        x, dy = pointers.start(core.source), pointers.start(core.gradient)
        if blocks is not None:
            winograd_gradient.write_partial_sums(f, blocks, x, dy, workspace, share)
            return
        write = depthwise.write_depthwise_partial_filters if is_depthwise else convolution.write_partial_filters
        write(f, geometry, x, dy, workspace, share, target)

    def total(f: Function, pointers: Any, workspace: Value, share: Share) -> None:
        epilogue = _EpilogueWriter(f, group, pointers)
        output = pointers.output(epilogue.output)
        if blocks is not None:
            winograd_gradient.write_filter_gradient(f, geometry, blocks, workspace, output, share, target, epilogue.callback)
            return
        write = depthwise.write_depthwise_filter_gradient if is_depthwise else convolution.write_filter_gradient
        write(f, geometry, workspace, output, share, target, epilogue.callback)

    if blocks is not None:
        size = blocks.shared_bytes + blocks.bytes * target.threads
    elif is_depthwise:
        size = depthwise.depthwise_partial_elements(geometry, target) * core.element.bytes
    else:
        size = convolution.partial_elements(geometry, target) * core.element.bytes
    return [sums, total], size


def _pooling(group: Group, core: Pooled | Positions | PooledBack, target: Target) -> Callable[..., None]:
    def write(f: Function, pointers: Any, workspace: Value, share: Share) -> None:
        source = pointers.start(core.source)
        if isinstance(core, Positions):
            pool = _pool(_images(core.source), _images(core), core.windows, core.source.element)
            pooling.write_max_pool(f, pool, source, None, share, target, pointers.start(core))
            return
        epilogue = _EpilogueWriter(f, group, pointers)
        output = pointers.start(epilogue.output)
        if isinstance(core, Pooled):
            pool = _pool(_images(core.source), _dense(core.shape, epilogue.output.halo), core.windows, core.element)
            if core.kind == "max":
                pooling.write_max_pool(f, pool, source, output, share, target, None, epilogue.callback)
            else:
                pooling.write_average_pool(f, pool, source, output, core.kind == "inside", share, target, epilogue.callback)
            return
        pool = _pool(_dense(core.shape, epilogue.output.halo), _images(core.source), core.windows, core.element)
        if core.positions is not None:
            positions = pointers.start(core.positions)
            pooling.write_max_pool_gradient(f, pool, positions, source, output, share, target, epilogue.callback)
        else:
            is_exclusive = core.kind == "inside"
            pooling.write_average_pool_gradient(f, pool, source, output, is_exclusive, share, target, epilogue.callback)

    return write


_WORK_OF_STATE = 8
"""About so many multiplications take as long as the sum of the ways to a state, in vectors."""


def work_of(core: Core) -> int:
    """Approximate number of multiplications of a core."""
    match core:
        case IntegerProduct():
            return core.size * core.right.shape[0]
        case Product():
            return core.size * core.left.shape[-1]
        case Convolved():
            return core.size * prod(core.packed.filter.shape[1:])
        case ConvolvedBack():
            return core.source.size * prod(core.packed.filter.shape[1:])
        case FilterGradient():
            return core.gradient.size * prod(core.shape[1:])
        case Pooled() | Positions() | PooledBack():
            return core.size * prod(core.windows.kernel)
        case Leaves():
            return core.size * core.depth
        case Solved() | Factored():
            return core.matrices.size * core.matrices.shape[-1] + core.size * core.shape[-2]
        case CtcPaths():
            return core.size * _WORK_OF_STATE
        case Scattered() | Merged() | Put():
            return core.rows.size + (core.size if isinstance(core, Scattered) and core.table is None else 0)
    return core.size


def is_small(core: Core, target: Target) -> bool:
    """Whether a core is so small that one thread computes it."""
    return work_of(core) < target.limits.small_core

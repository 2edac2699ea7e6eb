"""Lowers quantization; products and convolutions of quantized tensors become products of bytes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

from fluid.opdef.registry import get
from fluid.ops.quantization import lstm_by_range
from fluid.ops.shapes import aligned as aligned_shape

from .emitter import BYTE, FLOAT, INT32, UBYTE, Type
from .graph import (
    Constant,
    GraphNode,
    IntegerProduct,
    Map,
    PackedIntegers,
    Quantized,
    Reshaped,
    Shape,
    Windows,
    constant,
    joined,
    mapped,
    plain,
    reduced,
    reshaped,
    sliced,
    summed,
    transposed,
)  # fmt: skip
from .lowering import NAMESPACE, GraphTensor, NotLowered, lowers, number_like, only_floats
from .shape_lowering import padded


@lowers("fake_quantize_affine", of_bytes=True)
def fake_quantize_affine(
    X: GraphTensor, Scale: GraphTensor, ZeroPoint: GraphTensor | None, quant_axis: int, quant_min: int, quant_max: int
) -> GraphTensor:
    only_floats(X, Scale)
    x = X.node
    if Scale.node.element != x.element or max(Scale.ndim, 0 if ZeroPoint is None else ZeroPoint.ndim) > x.ndim:
        raise NotLowered("scales of another precision")
    scale = reshaped(Scale.node, aligned_shape(Scale.shape, x.ndim, quant_axis))
    levels, zero = mapped("rint", mapped("div", x, scale)), None
    if ZeroPoint is not None:
        aligned = reshaped(ZeroPoint.node, aligned_shape(ZeroPoint.shape, x.ndim, quant_axis))
        number = _known_number(aligned)
        zero = mapped("convert", aligned, element=x.element) if number is None else number_like(number, x)
        levels = mapped("add", levels, zero)
    levels = mapped("min", number_like(quant_max, x), mapped("max", number_like(quant_min, x), levels))
    out = mapped("mul", levels if zero is None else mapped("sub", levels, zero), scale)
    is_integer = not isinstance(zero, Constant) or float(zero.number).is_integer()
    if quant_max - quant_min <= 255 and x.element == FLOAT and is_integer:
        out.quantized = Quantized(levels, scale, zero, quant_min)
    return GraphTensor(out)


def _known_number(node: GraphNode) -> float | None:
    """The number that is each element of a node; None if it is not known."""
    while isinstance(node, Reshaped) or (isinstance(node, Map) and node.formula == "copy"):
        node = node.source if isinstance(node, Reshaped) else node.operands[0]
    return node.number if isinstance(node, Constant) else None


@lowers("matmul_integer", of_bytes=True)
def matmul_integer(X: GraphTensor, Y: GraphTensor, XZeroPoint: GraphTensor | None, YZeroPoint: GraphTensor | None) -> GraphTensor:
    is_of_bytes = all(side.node.element in (BYTE, UBYTE) for side in (X, Y))
    if not is_of_bytes or X.ndim < 2 or Y.ndim != 2 or not X.node.size * Y.node.size:
        raise NotLowered("a product of other integers than bytes, or of a stack of matrices")
    rows, inner = prod(X.shape[:-1]), X.shape[-1]
    left_zero, right_zero = _zero_of_rows(X, XZeroPoint), _zero_of_columns(Y, YZeroPoint)
    left_shift, right_shift = (128 if X.node.element == BYTE else 0), (0 if Y.node.element == BYTE else -128)
    left = shifted(reshaped(X.node, (rows, inner)), left_shift, UBYTE)
    right = _right_factor(Y.node, right_shift)
    out = _product(left, shifted_zero(left_zero, left_shift), right, shifted_zero(right_zero, right_shift))
    return GraphTensor(reshaped(out, (*X.shape[:-1], Y.shape[1])))


@dataclass(frozen=True, eq=False)
class _RightFactor:
    """The right factor of products: a matrix of signed bytes, the same one packed, and the sums of its columns."""

    matrix: GraphNode
    packed: PackedIntegers
    sums: GraphNode


_FACTORS: WeakKeyDictionary[GraphNode, _RightFactor] = WeakKeyDictionary()
"""Matrix -> it as a right factor, so that all steps of a recurrent network share the packed matrix."""


def _right_factor(matrix: GraphNode, shift: int = 0) -> _RightFactor:
    """A matrix of bytes as a right factor, after a shift to signed bytes. A matrix always has the same shift."""
    factor = _FACTORS.get(matrix)
    if factor is None:
        signed = shifted(matrix, shift, BYTE)
        factor = _FACTORS[matrix] = _RightFactor(signed, PackedIntegers((0,), BYTE, signed), _sums_of_columns(signed))
    return factor


def _zero_of_rows(X: GraphTensor, zero: GraphTensor | None) -> GraphNode | None:
    """The zero point of a left factor as INT32: a single one, or one for each row; None if it is 0."""
    if zero is None or _known_number(zero.node) == 0:
        return None
    node = mapped("convert", zero.node, element=INT32)
    if node.size == 1:
        return node
    if zero.shape != (*X.shape[:-1], 1):
        raise NotLowered("a zero point for some rows")
    return reshaped(node, (prod(X.shape[:-1]), 1))


def _zero_of_columns(Y: GraphTensor, zero: GraphTensor | None) -> GraphNode | None:
    """The zero point of a right factor as INT32: a single one, or one for each column; None if it is 0."""
    if zero is not None and zero.node.size not in (1, Y.shape[1]):
        raise NotLowered("a zero point for each element")
    is_zero = zero is None or _known_number(zero.node) == 0
    return None if zero is None or is_zero else mapped("convert", zero.node, element=INT32)


def shifted(node: GraphNode, shift: int, element: Type) -> GraphNode:
    """Add a number to bytes, which gives bytes of another type."""
    if node.element == element:
        return node
    return mapped("convert", mapped("add", mapped("convert", node, element=INT32), constant(shift, INT32)), element=element)


def shifted_zero(zero: GraphNode | None, shift: int) -> GraphNode | None:
    """The zero point of integers after a shift; None if it is 0."""
    if zero is None:
        return constant(shift, INT32) if shift else None
    return mapped("add", zero, constant(shift, INT32)) if shift else zero


def _product(left: GraphNode, left_zero: GraphNode | None, right: _RightFactor, right_zero: GraphNode | None) -> GraphNode:
    """``(left - left_zero) @ (right - right_zero)`` as INT32; the left bytes are unsigned, the right ones signed.

    The bytes are multiplied as they are. Zero points are subtracted from the product, times sums of rows and of columns.
    """
    rows, (inner, columns) = left.shape[0], right.matrix.shape
    out: GraphNode = IntegerProduct((rows, columns), INT32, left, right.matrix, right.packed)
    if left_zero is not None:
        out = mapped("sub", out, mapped("mul", left_zero, right.sums))
    if right_zero is not None:
        of_rows = reduced("sum", mapped("convert", left, element=INT32), [1])
        if left_zero is not None:
            of_rows = mapped("sub", of_rows, mapped("mul", left_zero, constant(inner, INT32)))
        out = mapped("sub", out, mapped("mul", of_rows, right_zero))
    return out


def _sums_of_columns(matrix: GraphNode) -> GraphNode:
    return reduced("sum", mapped("convert", matrix, element=INT32), [0])


_MOST_TERMS = (2**31 - 1) // 255**2
"""The most products of two levels, each less its zero point, whose sum fits into 32 bits whatever the levels are."""


def quantized_product(x: GraphNode, y: GraphNode, turn_y: bool) -> GraphNode | None:
    """Multiply quantized floats by a product of their integers; None if a factor is not quantized for that.

    The left factor needs a single scale. The right one is a matrix with a single scale, or with one for each column.
    """
    a, b = x.quantized, y.quantized
    if a is None or b is None or x.ndim < 2 or y.ndim != 2 or not x.size * y.size or a.scale.size != 1:
        return None
    if x.shape[-1] > _MOST_TERMS:
        return None
    by_columns = (y.shape[0], 1) if turn_y else (1, y.shape[1])
    if not all(part is None or part.size == 1 or part.shape == by_columns for part in (b.scale, b.zero)):
        return None
    rows, inner = prod(x.shape[:-1]), x.shape[-1]
    left = _bytes_of(reshaped(a.levels, (rows, inner)), -a.least, UBYTE)
    right = _bytes_of(b.levels, -b.least - 128, BYTE)
    right = transposed(right, [1, 0]) if turn_y else right
    left_zero, right_zero = _zero_of(a, -a.least), _zero_of(b, -b.least - 128)
    total = mapped("convert", _product(left, left_zero, _right_factor(right), right_zero), element=FLOAT)
    scale = mapped("mul", reshaped(a.scale, (1, 1)), reshaped(b.scale, (1, b.scale.size)))
    return reshaped(mapped("mul", total, scale), (*x.shape[:-1], right.shape[1]))


_MOST_STEPS = 1024
"""Maximal number of steps of a recurrent network. Each step adds nodes to the graph, which take 4 ms; on numpy, a step takes
0.25 ms in each run (Xeon of 2023)."""


@lowers("dynamic_quantize_lstm", of_bytes=True)
def dynamic_quantize_lstm(inputs: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    steps = inputs["Input"].shape[0]
    if steps > _MOST_STEPS:
        raise NotLowered("very many steps")
    if not inputs["Input"].node.size * inputs["InitH"].node.size:
        raise NotLowered("nothing to compute")
    slots: dict[str, Any] = {slot: inputs.get(slot) for slot in get("dynamic_quantize_lstm").inputs}
    return lstm_by_range(NAMESPACE, **slots, is_reverse=attrs["is_reverse"])


def quantized_convolution(a: Quantized, b: Quantized, windows: Windows, outputs: Shape) -> GraphNode | None:
    """Convolve quantized images by a product of integers: [N, rows, columns, M]; None if they are not quantized for that.

    Args:
        a: images [N, H, W, C] with a single scale, and a zero point that is a byte.
        b: a filter [M, C / groups, rows, columns] with a single scale or with M scales.
        windows: the windows of the filter.
        outputs: the shape of the result.
    """
    filters, channels, rows, columns = b.levels.shape
    is_by_filters = all(part is None or part.size == 1 or part.shape == (filters, 1, 1, 1) for part in (b.scale, b.zero))
    if a.scale.size != 1 or not is_by_filters or not a.levels.size * b.levels.size * prod(outputs):
        return None
    if rows * columns * channels > _MOST_TERMS or (windows.groups > 1 and channels < _FEWEST_CHANNELS):
        return None
    if a.zero is not None and not isinstance(a.zero, Constant):
        return None  # it may be no byte
    zero = (0 if a.zero is None else int(a.zero.number)) - a.least
    if not 0 <= zero <= 255:
        return None
    image, right = _bytes_of(a.levels, -a.least, UBYTE), _bytes_of(b.levels, -b.least - 128, BYTE)
    of_image = constant(zero, INT32) if zero else None
    out = convolved_bytes(image, of_image, right, _zero_of(b, -b.least - 128), windows, outputs)
    scale = mapped("mul", reshaped(a.scale, (1, 1, 1, 1)), reshaped(b.scale, (1, 1, 1, b.scale.size)))
    return mapped("mul", mapped("convert", out, element=FLOAT), scale)


_FEWEST_CHANNELS = 16
"""The fewest channels of a group to multiply as integers: with fewer, products of floats are faster."""


def convolved_bytes(
    image: GraphNode, zero: GraphNode | None, filters: GraphNode, of_filters: GraphNode | None, windows: Windows, outputs: Shape
) -> GraphNode:
    """Convolve ``image - zero`` with ``filters - of_filters``, as INT32 [N, rows, columns, M].

    Args:
        image: unsigned bytes [N, H, W, C].
        zero: a byte as INT32, as one element; it surrounds the image. None for 0.
        filters: signed bytes [M, C / groups, rows, columns].
        of_filters: INT32, as one element or M; None for 0.
    """
    count, channels, rows, columns = filters.shape
    groups, pads = windows.groups, [(0, 0), *windows.pads, (0, 0)]
    border = 0 if zero is None else mapped("convert", reshaped(zero, (1, 1, 1, 1)), element=UBYTE)
    padded_image = padded(image, pads, border)
    by_groups = reshaped(plain(transposed(filters, (2, 3, 1, 0))), (rows * columns * channels, count))
    in_rows = groups == 1 and windows.dilations[1] == 1
    parts = []
    for group in range(groups):
        start, size = group * (count // groups), count // groups
        right = by_groups if groups == 1 else plain(sliced(by_groups, 1, start, size))
        part = padded_image if groups == 1 else sliced(padded_image, 3, group * channels, channels)
        packed = PackedIntegers((0,), BYTE, right, rows if in_rows else rows * columns)
        out: GraphNode = IntegerProduct((*outputs[:3], size), INT32, part, right, packed, windows)
        if zero is not None:
            less = mapped("mul", reshaped(zero, (1, 1)), _sums_of_columns(right))
            out = mapped("sub", out, reshaped(less, (1, 1, 1, size)))
        if of_filters is not None:
            zeros = reshaped(of_filters, (1, 1, 1, of_filters.size))
            zeros = zeros if zeros.size == 1 else sliced(zeros, 3, start, size)
            out = mapped("sub", out, mapped("mul", _sums_of_windows(part, zero, windows, outputs), zeros))
        parts.append(out)
    return joined(parts, 3) if groups > 1 else parts[0]


def _sums_of_windows(image: GraphNode, zero: GraphNode | None, windows: Windows, outputs: Shape) -> GraphNode:
    """The sums of ``image - zero`` over each window, as INT32 [N, rows, columns, 1]; the image has its padding."""
    out = reduced("sum", mapped("convert", image, element=INT32), [3])
    for axis, size, by, gap in zip((1, 2), windows.kernel, windows.strides, windows.dilations, strict=True):
        taps = [sliced(out, axis, place * gap, outputs[axis], by) for place in range(size)]
        out = summed(taps)
    if zero is None:
        return out
    return mapped("sub", out, mapped("mul", constant(image.shape[3] * prod(windows.kernel), INT32), reshaped(zero, (1, 1, 1, 1))))


def _bytes_of(levels: GraphNode, shift: int, element: Type) -> GraphNode:
    """Convert levels, which floats hold, to bytes after a shift."""
    return mapped("convert", mapped("add", levels, number_like(shift, levels)) if shift else levels, element=element)


def _zero_of(quantized: Quantized, shift: int) -> GraphNode | None:
    """The zero point of levels after a shift, as INT32; None if it is 0."""
    zero = None if quantized.zero is None else mapped("convert", quantized.zero, element=INT32)
    return shifted_zero(None if zero is None else reshaped(zero, (1, zero.size)), shift)

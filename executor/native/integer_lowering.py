"""Lowers quantization, and products of quantized tensors as products of bytes."""

from __future__ import annotations

from math import prod

from fluid.ops.shapes import aligned as aligned_shape

from .emitter import BYTE, FLOAT, INT32, UBYTE, Type
from .graph import (
    Constant,
    IntegerProduct,
    Joined,
    Map,
    Node,
    PackedIntegers,
    Shape,
    Steps,
    Windows,
    broadcast_to,
    contiguous,
    mapped,
    plain,
    put_within,
    reduced,
    reshaped,
    transposed,
)  # fmt: skip
from .lowering import GraphTensor, NotLowered, lowers, number_like, only_floats

__all__ = ["convolution_of_steps", "product_of_steps"]


@lowers("fake_quantize_affine", of_bytes=True)
def fake_quantize_affine(
    X: GraphTensor, Scale: GraphTensor, ZeroPoint: GraphTensor | None, quant_axis: int, quant_min: int, quant_max: int
) -> GraphTensor:
    only_floats(X, Scale)
    x = X.node
    if Scale.node.element != x.element or max(Scale.ndim, 0 if ZeroPoint is None else ZeroPoint.ndim) > x.ndim:
        raise NotLowered("scales of another precision")
    scale = reshaped(Scale.node, aligned_shape(Scale.shape, x.ndim, quant_axis))
    counts, zero = mapped("rint", mapped("div", x, scale)), None
    if ZeroPoint is not None:
        aligned = reshaped(ZeroPoint.node, aligned_shape(ZeroPoint.shape, x.ndim, quant_axis))
        zero = number_like(aligned.number, x) if isinstance(aligned, Constant) else mapped("convert", aligned, element=x.element)
        counts = mapped("add", counts, zero)
    counts = mapped("min", number_like(quant_max, x), mapped("max", number_like(quant_min, x), counts))
    out = mapped("mul", counts if zero is None else mapped("sub", counts, zero), scale)
    if quant_max - quant_min <= 255 and x.element == FLOAT:
        out.steps = Steps(counts, scale, zero, quant_min)
    return GraphTensor(out)


@lowers("matmul_integer", of_bytes=True)
def matmul_integer(X: GraphTensor, Y: GraphTensor, XZeroPoint: GraphTensor | None, YZeroPoint: GraphTensor | None) -> GraphTensor:
    if (
        any(side.node.element not in (BYTE, UBYTE) for side in (X, Y))
        or X.ndim < 2
        or Y.ndim != 2
        or not X.node.size * Y.node.size
    ):
        raise NotLowered("a product of other integers than bytes, or of a stack of matrices")
    rows, inner = prod(X.shape[:-1]), X.shape[-1]
    left_zero, right_zero = (
        None if zero is None else mapped("convert", zero.node, element=INT32) for zero in (XZeroPoint, YZeroPoint)
    )
    if left_zero is not None and left_zero.size != 1:
        if XZeroPoint is None or XZeroPoint.shape != (*X.shape[:-1], 1):
            raise NotLowered("a zero point for some rows")
        left_zero = reshaped(left_zero, (rows, 1))
    if right_zero is not None and right_zero.size not in (1, Y.shape[1]):
        raise NotLowered("a zero point for each element")
    left_shift, right_shift = (128 if X.node.element == BYTE else 0), (0 if Y.node.element == BYTE else -128)
    left = _shifted(reshaped(X.node, (rows, inner)), left_shift, UBYTE)
    right = _shifted(Y.node, right_shift, BYTE)
    out = _product(left, _moved(left_zero, left_shift), right, _moved(right_zero, right_shift))
    return GraphTensor(reshaped(out, (*X.shape[:-1], Y.shape[1])))


def _shifted(node: Node, shift: int, element: Type) -> Node:
    """Integers of bytes, moved to the range of another type of bytes."""
    if node.element == element:
        return node
    return mapped("convert", mapped("add", mapped("convert", node, element=INT32), _integer(shift)), element=element)


def _integer(number: int) -> Constant:
    return Constant((), INT32, number)


def _moved(zero: Node | None, shift: int) -> Node | None:
    """The zero point of integers that are moved by `shift`; None if it is 0."""
    if zero is None:
        return _integer(shift) if shift else None
    return mapped("add", zero, _integer(shift)) if shift else zero


def _product(left: Node, left_zero: Node | None, right: Node, right_zero: Node | None) -> Node:
    """``(left - left_zero) @ (right - right_zero)`` as INT32, of bytes without and with a sign.

    Zero points are taken off afterwards: by sums over rows of the left matrix, and over columns of the right one.
    """
    rows, (inner, columns) = left.shape[0], right.shape
    out: Node = IntegerProduct((rows, columns), INT32, left, right, PackedIntegers((0,), BYTE, right))
    if left_zero is not None:
        out = mapped("sub", out, mapped("mul", left_zero, _sums_of_columns(right)))
    if right_zero is not None:
        of_rows = reduced("sum", mapped("convert", left, element=INT32), [1])
        if left_zero is not None:
            of_rows = mapped("sub", of_rows, mapped("mul", left_zero, _integer(inner)))
        out = mapped("sub", out, mapped("mul", of_rows, right_zero))
    return out


def _sums_of_columns(matrix: Node) -> Node:
    return reduced("sum", mapped("convert", matrix, element=INT32), [0])


def product_of_steps(x: Node, y: Node, turn_y: bool) -> Node | None:
    """The product of quantized floats by a product of their integers; None if a factor is not quantized so.

    The left factor has one scale; the right one is a matrix with one scale, or with one for each column.
    """
    a, b = x.steps, y.steps
    if a is None or b is None or x.ndim < 2 or y.ndim != 2 or not x.size * y.size or a.scale.size != 1:
        return None
    columns = 0 if turn_y else 1
    for part in (b.scale, b.zero):
        if (
            part is not None
            and part.size != 1
            and part.shape != tuple(n if axis == columns else 1 for axis, n in enumerate(y.shape))
        ):
            return None
    rows, inner = prod(x.shape[:-1]), x.shape[-1]
    left = _bytes_of(reshaped(a.counts, (rows, inner)), -a.least, UBYTE)
    right = _bytes_of(b.counts, -b.least - 128, BYTE)
    right = transposed(right, [1, 0]) if turn_y else right
    left_zero, right_zero = (_zero_of(steps, shift) for steps, shift in ((a, -a.least), (b, -b.least - 128)))
    total = mapped("convert", _product(left, left_zero, right, right_zero), element=FLOAT)
    scale = mapped("mul", reshaped(a.scale, (1, 1)), reshaped(b.scale, (1, b.scale.size)))
    return reshaped(mapped("mul", total, scale), (*x.shape[:-1], right.shape[1]))


def convolution_of_steps(a: Steps, b: Steps, windows: Windows, outputs: Shape) -> Node | None:
    """The convolution of quantized images by a product of integers: [N, rows, columns, M]; None if it is not one.

    The counts of `a` are images [N, H, W, C], with one scale; the filter of `b` is [M, C, rows, columns], with one or M scales.
    """
    filters, channels, rows, columns = b.counts.shape
    right_zero = _zero_of(b, -b.least - 128)
    of_filters = all(part is None or part.size == 1 or part.shape == (filters, 1, 1, 1) for part in (b.scale, b.zero))
    if a.scale.size != 1 or not of_filters or windows.groups != 1 or windows.dilations[1] != 1 or right_zero is not None:
        return None
    if not a.counts.size * b.counts.size * prod(outputs):
        return None
    number = -a.least if a.zero is None else int(a.zero.number) - a.least if isinstance(a.zero, Constant) else None
    if number is None:
        return None  # the padding is not known
    image = _bordered(_bytes_of(a.counts, -a.least, UBYTE), windows.pads, number)
    right = _bytes_of(plain(transposed(b.counts, (2, 3, 1, 0))), -b.least - 128, BYTE)
    right = reshaped(right, (rows * columns * channels, filters))
    packed = PackedIntegers((0,), BYTE, right, rows)
    out: Node = IntegerProduct(outputs, INT32, image, right, packed, windows)
    if number:
        out = mapped("sub", out, reshaped(mapped("mul", _integer(number), _sums_of_columns(right)), (1, 1, 1, filters)))
    scale = mapped("mul", reshaped(a.scale, (1, 1, 1, 1)), reshaped(b.scale, (1, 1, 1, b.scale.size)))
    return mapped("mul", mapped("convert", out, element=FLOAT), scale)


def _bordered(image: Node, pads: tuple[tuple[int, int], tuple[int, int]], number: int) -> Node:
    """Images [N, H, W, C] with a border of a number."""
    (top, bottom), (left, right) = pads
    if not top + bottom + left + right:
        return image
    count, height, width, channels = image.shape
    shape = count, top + height + bottom, left + width + right, channels
    strides = contiguous(shape)
    blocks = [
        (0, 0, top, shape[2]), (top + height, 0, bottom, shape[2]), (top, 0, height, left), (top, left + width, height, right),
    ]  # fmt: skip
    parts = [(top, left, image)]
    for row, column, high, wide in blocks:
        if high * wide:
            parts.append((row, column, broadcast_to(Constant((), image.element, number), (count, high, wide, channels))))
    pieces = tuple(Map(part.shape, part.element, "copy", (part,)) for _, _, part in parts)
    container = Joined(shape, image.element, pieces)
    for piece, (row, column, _) in zip(pieces, parts, strict=True):
        put_within(piece, container, row * strides[1] + column * strides[2], strides)
    return container


def _bytes_of(counts: Node, shift: int, element: Type) -> Node:
    """Integers that floats hold, moved by `shift`, as bytes."""
    return mapped("convert", mapped("add", counts, number_like(shift, counts)) if shift else counts, element=element)


def _zero_of(steps: Steps, shift: int) -> Node | None:
    zero = None if steps.zero is None else mapped("convert", steps.zero, element=INT32)
    if zero is not None:
        zero = reshaped(zero, (1, zero.size))
    return _moved(zero, shift)

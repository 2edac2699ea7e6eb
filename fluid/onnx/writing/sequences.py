"""Write ops on sequences, whose rows lie one after another."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor, Size
from .making import as_vector, filled
from .sequence_rows import (
    concatenated,
    cut_rows,
    ids_of,
    is_empty,
    lengths_of_rows,
    like_rows,
    longest_of,
    padded_rows,
    repeated,
    sequence_context,
    sequence_ends,
    sequence_reversed,
    sequence_scattered,
    starts_of,
    taken_rows,
    width,
    within,
)
from .shaping import add_rows as added_rows

# ----------------------------------------------------------------------------------------------------------- pooling
_LEAST = -3.0e38


def _padded(g: OnnxGraph, X: OnnxTensor, value: float) -> OnnxTensor:
    """Pad sequences to [sequences, longest, ...] with a number."""
    lengths = lengths_of_rows(X)
    index = padded_rows(g, lengths, longest_of(g, lengths))
    return taken_rows(g, X, index, g.number(value, X))


def _one_more(g: OnnxGraph, padded: OnnxTensor, value: float) -> OnnxTensor:
    """Append a step, so that there is at least one."""
    pads = [0] * (2 * padded.ndim)
    pads[padded.ndim + 1] = 1
    return g.sized_node(
        "Pad", [padded, g.ints(*pads), g.number(value, padded)], padded.dtype, (padded.sizes[0], -1, *padded.sizes[2:])
    )


def _column(g: OnnxGraph, vector: OnnxTensor, like: OnnxTensor) -> OnnxTensor:
    return g.unsqueeze(vector, *range(1, like.ndim))


def _sums(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    """Sum the rows of each sequence."""
    lengths = lengths_of_rows(X)
    ids = ids_of(g, lengths, g.size(X, 0))
    dims = g.joined_sizes([g.size(lengths, 0), *g.sizes_of(X)[1:]])
    zeros = filled(g, dims, 0, Spec((-1, *X.shape[1:]), X.dtype))
    return added_rows(g, zeros, ids, X)


def _argmax(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    lengths = lengths_of_rows(X)
    padded = _one_more(g, _padded(g, X, _LEAST), _LEAST)
    at = g.sized_node("ArgMax", [padded], VarType.INT64, (padded.sizes[0], *padded.sizes[2:]), axis=1, keepdims=0)
    rows = g.binary("Add", at, _column(g, starts_of(g, lengths), at))
    return g.where(_column(g, is_empty(g, lengths), at), g.constant(np.int64(-1)), rows)


@exports("sequence_pool")
def sequence_pool(g: OnnxGraph, X: OnnxTensor, pooltype: str, pad_value: float) -> dict[str, OnnxTensor]:
    pooltype, lengths = pooltype.upper(), lengths_of_rows(X)
    if pooltype in ("LAST", "FIRST"):
        index = sequence_ends(g, X, pooltype == "FIRST")
        result = taken_rows(g, X, index)
    elif pooltype == "MAX":
        result = g.reduce("ReduceMax", _one_more(g, _padded(g, X, _LEAST), _LEAST), [1])
    else:
        result = _sums(g, X)
        if pooltype != "SUM":
            count = g.cast(g.binary("Max", lengths, g.constant(np.int64(1))), X.dtype)
            count = count if pooltype == "AVERAGE" else g.unary("Sqrt", count)
            result = g.binary("Div", result, _column(g, count, result))
    result = g.where(_column(g, is_empty(g, lengths), result), g.number(pad_value, X), result)
    result.sizes = (lengths.sizes[0], *X.sizes[1:])
    if pooltype == "MAX":
        return {"Out": result, "MaxIndex": g.cast(_argmax(g, X), VarType.INT32)}
    dims = g.joined_sizes([g.size(lengths, 0), *g.sizes_of(X)[1:]])
    return {"Out": result, "MaxIndex": filled(g, dims, 0, Spec((-1, *X.shape[1:]), VarType.INT32))}


@exports("place_at_most")
def place_at_most(g: OnnxGraph, X: OnnxTensor, Index: OnnxTensor, Like: OnnxTensor) -> OnnxTensor:
    count = g.size(Like, 0)
    index = g.cast(Index, VarType.INT64)
    index = g.where(g.binary("Less", index, g.constant(np.int64(0))), g.squeeze(g.as_size(count), 0), index)
    padded_count: Size = count + 1 if isinstance(count, int) else g.binary("Add", count, g.ints(1))
    zeros = filled(g, g.joined_sizes([padded_count, *g.sizes_of(Like)[1:]]), 0, Spec((-1, *Like.shape[1:]), X.dtype))
    placed = g.node("ScatterElements", [zeros, index, X], zeros, axis=0)  # only the last row repeats; it is cut off
    result = g.sized_node("Slice", [placed, g.ints(0), g.as_size(count), g.ints(0)], X.dtype, Like.sizes)
    result.lengths = Like.lengths
    return result


@exports("take_at_most")
def take_at_most(g: OnnxGraph, X: OnnxTensor, Index: OnnxTensor) -> OnnxTensor:
    index = g.cast(Index, VarType.INT64)
    is_missing = g.binary("Less", index, g.constant(np.int64(0)))
    safe = g.binary("Max", index, g.constant(np.int64(0)))
    values = g.sized_node("GatherElements", [X, safe], X.dtype, index.sizes, axis=0)
    return g.where(is_missing, g.number(0, X), values)


@exports("sequence_softmax")
def sequence_softmax(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    ids = ids_of(g, lengths_of_rows(X), g.size(X, 0))
    top = g.reduce("ReduceMax", _one_more(g, _padded(g, X, _LEAST), _LEAST), [1])
    powers = g.unary("Exp", g.binary("Sub", X, g.gather(top, ids)))
    powers.lengths = X.lengths
    return like_rows(g.binary("Div", powers, g.gather(_sums(g, powers), ids)), X)


# ------------------------------------------------------------------------------------- expanding, joining and cutting
@exports("sequence_expand")
def sequence_expand(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor) -> OnnxTensor:
    index, lengths = repeated(g, X, lengths_of_rows(Y))
    result = g.gather(X, index)
    result.lengths = lengths
    if lengths is None:  # the result has the rows of Y
        result.sizes = (g.rows_of(lengths_of_rows(Y)), *result.sizes[1:])
    return result


@exports("sequence_expand_as")
def sequence_expand_as(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor) -> OnnxTensor:
    return like_rows(g.gather(X, ids_of(g, lengths_of_rows(Y), g.size(Y, 0))), Y)


@exports("sequence_concat")
def sequence_concat(g: OnnxGraph, X: list[OnnxTensor]) -> OnnxTensor:
    index = g.concat([concatenated(g, X, number) for number in range(len(X))], 0)
    rows = g.concat(X, 0)
    zeros = filled(g, g.dims(rows), 0, Spec(rows.shape, rows.dtype))
    result = g.node("ScatterND", [zeros, g.unsqueeze(index, 1), rows], rows)
    lengths = lengths_of_rows(X[0])
    for tensor in X[1:]:
        lengths = g.binary("Add", lengths, lengths_of_rows(tensor))
    result.lengths = lengths
    return result


@exports("sequence_slice")
def sequence_slice(g: OnnxGraph, X: OnnxTensor, Offset: OnnxTensor, Length: OnnxTensor) -> OnnxTensor:
    lengths = as_vector(g, Length)
    starts = g.binary("Add", starts_of(g, lengths_of_rows(X)), as_vector(g, Offset))
    result = g.gather(X, cut_rows(g, starts, lengths))
    result.lengths = lengths
    return result


@exports("sequence_pad")
def sequence_pad(g: OnnxGraph, X: OnnxTensor, PadValue: OnnxTensor, padded_length: int) -> dict[str, OnnxTensor]:
    lengths = lengths_of_rows(X)
    index = padded_rows(g, lengths, width(g, lengths, padded_length))
    value = PadValue
    if PadValue.spec.size == 1:
        value = g.reshape(PadValue, [])
    elif PadValue.ndim != X.ndim - 1:
        value = g.reshape(PadValue, g.sizes_of(X)[1:])
    return {"Out": taken_rows(g, X, index, value), "Length": g.identity(lengths)}


@exports("sequence_unpad")
def sequence_unpad(g: OnnxGraph, X: OnnxTensor, Length: OnnxTensor) -> OnnxTensor:
    lengths = as_vector(g, Length)
    steps = g.as_size(g.size(X, 1))
    starts = g.binary("Mul", g.arange(g.size(X, 0)), steps)
    sizes = g.sizes_of(X)
    inner: list[Size] = sizes[2:] or [1]
    result = g.gather(g.reshape(X, [g.product_of(sizes[:2]), *inner]), cut_rows(g, starts, lengths))
    result.lengths = lengths
    return result


@exports("sequence_reshape")
def sequence_reshape(g: OnnxGraph, X: OnnxTensor, new_dim: int) -> OnnxTensor:
    result = g.reshape(X, [-1, new_dim], (-1, new_dim))
    scaled = g.binary("Mul", lengths_of_rows(X), g.as_size(g.size(X, 1)))
    result.lengths = g.binary("Div", scaled, g.constant(np.int64(new_dim)))
    return result


@exports("sequence_reverse")
def sequence_reverse(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    return like_rows(g.gather(X, sequence_reversed(g, X)), X)


@exports("sequence_enumerate")
def sequence_enumerate(g: OnnxGraph, X: OnnxTensor, win_size: int, pad_value: int) -> OnnxTensor:
    index = sequence_context(g, X, 0, win_size)
    flat = g.reshape(X, [-1], (-1,))
    return like_rows(taken_rows(g, flat, index, g.number(pad_value, X)), X)


@exports("sequence_erase")
def sequence_erase(g: OnnxGraph, X: OnnxTensor, tokens: list[int]) -> OnnxTensor:
    lengths = lengths_of_rows(X)
    flat = g.reshape(X, [-1], (-1,))
    is_erased = g.differ(flat, flat)  # nowhere
    for token in tokens:
        is_erased = g.binary("Or", is_erased, g.binary("Equal", flat, g.number(token, flat)))
    is_kept = g.unary("Not", is_erased)
    rows = g.squeeze(g.sized_node("NonZero", [is_kept], VarType.INT64, (1, -1)), 0)
    counts = g.cast(is_kept, VarType.INT64)
    counts.lengths = lengths
    result = g.gather(X, rows)
    result.lengths = _sums(g, counts)
    return result


@exports("sequence_scatter")
def sequence_scatter(g: OnnxGraph, f: Any, X: OnnxTensor, Ids: OnnxTensor, Updates: OnnxTensor) -> Any:
    return f.scatter_nd_add(X, sequence_scattered(g, Ids), g.reshape(Updates, [-1], (-1,)))


# ------------------------------------------------------------------------------------------------------- convolution
@exports("row_conv")
def row_conv(g: OnnxGraph, X: OnnxTensor, Filter: OnnxTensor) -> OnnxTensor:
    if Filter.shape[0] < 0:
        raise NotExported("a filter whose size is known only at run time")
    index = sequence_context(g, X, 0, Filter.shape[0])
    flat = X if X.ndim == 2 else g.reshape(X, [-1, X.shape[2]], (-1, X.shape[2]))
    result = g.reduce("ReduceSum", g.binary("Mul", taken_rows(g, flat, index), Filter), [1])
    return like_rows(result, X) if X.ndim == 2 else g.reshape_as(result, X)


# --------------------------------------------------------------------------------------------------------------- LoD
@exports("lod_reset")
def lod_reset(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor | None, target_lod: list[int], append: bool) -> OnnxTensor:
    if append:
        raise NotExported("more than one level of sequences")
    result = g.identity(X)
    if Y is None:
        result.lengths = g.ints(*np.diff(target_lod).tolist())
    elif Y.lengths is not None:
        result.lengths = Y.lengths
    else:
        offsets = as_vector(g, Y)
        result.lengths = g.binary("Sub", g.slice(offsets, [0], [1], [2**31 - 1]), g.slice(offsets, [0], [0], [-1]))
    return result


@exports("im2sequence")
def im2sequence(
    g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor | None, kernels: list[int], strides: list[int], paddings: list[int]
) -> OnnxTensor:
    if (Y is not None and X.shape[0] != 1) or -1 in X.shape[1:]:
        raise NotExported("patches of images of different sizes, or of sizes that are known only at run time")
    index, count = _patches(X.shape, kernels, strides, paddings)
    flat = g.reshape(X, [g.size(X, 0), int(np.prod(X.shape[1:]))])
    padded = g.sized_node("Pad", [flat, g.ints(0, 0, 0, 1), g.number(0, X)], X.dtype, (X.sizes[0], flat.shape[1] + 1))
    rows = g.gather(padded, g.constant(index), 1)
    result = g.reshape(rows, [-1, index.shape[1]], (-1, index.shape[1]))
    result.lengths = g.expand(g.ints(count), g.as_size(g.size(X, 0)), (X.sizes[0],))
    return result


def _patches(shape: tuple[int, ...], kernels: list[int], strides: list[int], paddings: list[int]) -> tuple[Any, int]:
    """The indices of the elements of each patch of one image; the image's size stands for padding."""
    channels, high, wide = shape[1:]
    size = channels * high * wide
    image = np.pad(
        np.arange(size).reshape(channels, high, wide),
        ((0, 0), (paddings[0], paddings[2]), (paddings[1], paddings[3])),
        constant_values=size,
    )
    windows = np.lib.stride_tricks.sliding_window_view(image, tuple(kernels), (1, 2))[:, :: strides[0], :: strides[1]]
    turned = windows.transpose(1, 2, 0, 3, 4)
    return turned.reshape(turned.shape[0] * turned.shape[1], -1), turned.shape[0] * turned.shape[1]


@exports("patch_index")
def patch_index(
    g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor | None, kernels: list[int], strides: list[int], paddings: list[int]
) -> OnnxTensor:
    if (Y is not None and X.shape[0] != 1) or -1 in X.shape[1:]:
        raise NotExported("patches of images of different sizes, or of sizes that are known only at run time")
    index, _ = _patches(X.shape, kernels, strides, paddings)
    size = int(np.prod(X.shape[1:]))
    images = g.unsqueeze(g.binary("Mul", g.arange(g.size(X, 0)), g.constant(np.int64(size))), 1, 2)
    of_images = g.binary("Add", images, g.constant(np.where(index == size, 0, index)))
    placed = g.where(g.constant(index == size), g.constant(np.int64(-1)), of_images)
    return g.reshape(placed, [-1, index.shape[1]], (-1, index.shape[1]))


# ------------------------------------------------------------------------------------------------- pairs of two sequences
@exports("sequence_pairs")
def sequence_pairs(g: OnnxGraph, X: OnnxTensor, Y: OnnxTensor, times: int) -> dict[str, OnnxTensor]:
    lengths, widths = lengths_of_rows(X), lengths_of_rows(Y)
    counts = g.binary("Mul", g.binary("Mul", lengths, widths), g.ints(times))
    total = g.reduce("ReduceSum", counts, [0], keep=True)
    number = ids_of(g, counts, total)
    place = within(g, counts, total, number)
    high, wide = g.gather(lengths, number), g.gather(widths, number)
    size = g.binary("Max", g.binary("Mul", high, wide), g.ints(1))
    time, pair = g.binary("Div", place, size), g.binary("Mod", place, size)
    wide = g.binary("Max", wide, g.ints(1))
    row = g.binary("Add", g.gather(starts_of(g, lengths), number), g.binary("Div", pair, wide))
    column = g.binary("Add", g.gather(starts_of(g, widths), number), g.binary("Mod", pair, wide))
    results = {"First": g.binary("Add", g.binary("Mul", row, g.ints(times)), time), "Second": column}
    for index in results.values():
        index.lengths = counts
    return results


@exports("match_matrix_tensor")
def match_matrix_tensor(g: OnnxGraph, f: Any, X: OnnxTensor, Y: OnnxTensor, W: OnnxTensor, dim_t: int) -> dict[str, Any]:
    width = W.shape[2]
    if W.shape[0] < 0 or width < 0:
        raise NotExported("matrices whose size is known only at run time")
    half = g.reshape(g.matmul(X, g.reshape(W, [W.shape[0], -1])), [-1, width], (-1, width))
    first, second = f.sequence_pairs(X, Y, times=dim_t)
    products = g.binary("Mul", taken_rows(g, half, first), taken_rows(g, Y, second))
    out = g.reduce("ReduceSum", products, [1], keep=True)
    out.lengths = first.lengths
    return {"Out": out, "Tmp": g.reshape(half, [-1, 1], (-1, 1))}


# ------------------------------------------------------------------------------------------------ images of different sizes
def _by_image(g: OnnxGraph, counts: OnnxTensor, times: int) -> tuple[OnnxTensor, OnnxTensor, OnnxTensor]:
    """Repeat the rows of each image `times` times: the repetition of each result row, its source row, and the new lengths."""
    lengths = g.binary("Mul", counts, g.ints(times))
    total = g.reduce("ReduceSum", lengths, [0], keep=True)
    number = ids_of(g, lengths, total)
    place, size = within(g, lengths, total, number), g.binary("Max", g.gather(counts, number), g.ints(1))
    row = g.binary("Add", g.gather(starts_of(g, counts), number), g.binary("Mod", place, size))
    return g.binary("Div", place, size), row, lengths


@exports("patches_of_sequences")
def patches_of_sequences(g: OnnxGraph, ROW: OnnxTensor, COLUMN: OnnxTensor, attrs: dict[str, Any]) -> dict[str, OnnxTensor]:
    channels, high, wide = (attrs[name] for name in ("InputChannel", "KernelH", "KernelW"))
    rows, columns = lengths_of_rows(ROW), lengths_of_rows(COLUMN)

    def steps(sides: OnnxTensor, stride: int) -> OnnxTensor:
        return g.binary("Div", g.binary("Add", sides, g.ints(stride - 1)), g.ints(stride))

    across = steps(columns, attrs["StrideW"])
    counts = g.binary("Mul", steps(rows, attrs["StrideH"]), across)
    total = g.reduce("ReduceSum", counts, [0], keep=True)
    number = ids_of(g, counts, total)
    place = within(g, counts, total, number)
    width = g.binary("Max", g.gather(across, number), g.ints(1))
    channel, y, x = np.indices((channels, high, wide)).reshape(3, 1, -1)

    def along(step: OnnxTensor, stride: int, offsets: Any) -> OnnxTensor:
        return g.binary("Add", g.binary("Mul", g.unsqueeze(step, 1), g.ints(stride)), g.constant(offsets))

    def in_range(at: OnnxTensor, sides: OnnxTensor) -> OnnxTensor:
        after = g.binary("GreaterOrEqual", at, g.ints(0))
        return g.binary("And", after, g.binary("Less", at, sides))

    row = along(g.binary("Div", place, width), attrs["StrideH"], y - high // 2)
    column = along(g.binary("Mod", place, width), attrs["StrideW"], x - wide // 2)
    sizes = g.binary("Mul", g.binary("Mul", rows, columns), g.ints(channels))
    start, tall, broad = (g.unsqueeze(g.gather(per_sequence, number), 1) for per_sequence in (starts_of(g, sizes), rows, columns))
    index = g.binary("Add", g.binary("Mul", g.constant(channel), tall), row)
    index = g.binary("Add", g.binary("Add", g.binary("Mul", index, broad), column), start)
    is_inside = g.binary("And", in_range(row, tall), in_range(column, broad))
    patches = g.where(is_inside, index, g.ints(-1))
    element, patch, lengths = _by_image(g, counts, channels * high * wide)
    pair = g.concat([g.unsqueeze(column_part, 1) for column_part in (patch, element)], 1)
    elements = g.sized_node("GatherND", [patches, pair], VarType.INT64, (-1,))
    filter_, patch, products = _by_image(g, counts, attrs["OutputChannel"])
    order = g.binary("Add", g.binary("Mul", patch, g.ints(attrs["OutputChannel"])), filter_)
    elements.lengths, order.lengths = lengths, products
    return {"Patches": patches, "Elements": elements, "Order": order}

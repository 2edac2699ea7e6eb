"""Write ops that pick elements by index, and their transposes."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluid.values.spec import Spec
from fluid.values.types import VarType, as_dtype

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor, Size
from .making import as_vector, filled, zeros_like
from .shaping import add_rows, added_along, constant_axis, positions


# -------------------------------------------------------------------------------------------------------------- slices
@exports("gather", "gather_like")
def gather(g: OnnxGraph, X: OnnxTensor, Index: OnnxTensor, Axis: OnnxTensor | None, attrs: dict[str, Any]) -> OnnxTensor:
    axis = constant_axis(Axis, attrs.get("axis", 0))
    index = Index if Index.ndim < 2 else g.reshape(Index, [-1], Index.sizes[:1])
    return g.gather(X, g.cast(index, VarType.INT64), axis)


@exports("scatter_add_like")
def scatter_add_like(
    g: OnnxGraph, X: OnnxTensor, Index: OnnxTensor, Like: OnnxTensor, Axis: OnnxTensor | None, axis: int
) -> OnnxTensor:
    axis = constant_axis(Axis, axis) % Like.ndim
    index = as_vector(g, Index)
    x = X if X.ndim == Like.ndim else g.unsqueeze(X, axis)
    size = g.size(Like, axis)
    return added_along(g, x, _counted_from_front(g, index, size), axis, size, Like.sizes)


def _counted_from_front(g: OnnxGraph, index: OnnxTensor, size: Size) -> OnnxTensor:
    """Convert negative indices, which count from the end, to indices from 0 on."""
    if g.opset >= 16:
        return index
    below = g.binary("Less", index, g.constant(np.int64(0)))
    return g.where(below, g.binary("Add", index, g.as_size(size)), index)


@exports("scatter")
def scatter(g: OnnxGraph, X: OnnxTensor, Ids: OnnxTensor, Updates: OnnxTensor, overwrite: bool) -> OnnxTensor:
    ids = as_vector(g, Ids)
    if overwrite:
        return g.node("ScatterND", [X, g.unsqueeze(ids, 1), Updates], X)
    zeros = zeros_like(g, Updates)
    cleared = g.node("ScatterND", [X, g.unsqueeze(ids, 1), zeros], X)
    return add_rows(g, cleared, ids, Updates)


@exports("gather_nd")
def gather_nd(g: OnnxGraph, X: OnnxTensor, Index: OnnxTensor, specs: Any) -> OnnxTensor:
    if Index.shape[-1] == 0:
        return g.expand(X, g.joined_sizes([*g.sizes_of(Index)[:-1], *g.sizes_of(X)]), specs["Out"].shape)
    return g.sized_node("GatherND", [X, g.cast(Index, VarType.INT64)], X.dtype, specs["Out"].shape)


@exports("scatter_nd_add")
def scatter_nd_add(g: OnnxGraph, X: OnnxTensor, Index: OnnxTensor, Updates: OnnxTensor) -> OnnxTensor:
    depth = Index.shape[-1]
    if depth < 0:
        raise NotExported("an Index whose last dimension is known only at run time")
    if depth == 0:
        batch_rank = Updates.ndim - X.ndim
        return g.binary("Add", X, g.reduce("ReduceSum", Updates, range(batch_rank)))
    index = g.cast(Index, VarType.INT64)
    if g.opset >= 16:
        return g.node("ScatterND", [X, index, Updates], X, reduction="add")
    sizes = g.sizes_of(X)
    flat: OnnxTensor | None = None
    for place in range(depth):
        one = g.squeeze(g.slice(index, [index.ndim - 1], [place], [place + 1]), -1)
        one = _counted_from_front(g, one, sizes[place])
        flat = one if flat is None else g.binary("Add", g.binary("Mul", flat, g.as_size(sizes[place])), one)
    assert flat is not None
    width = g.product_of(sizes[depth:])
    base = g.reshape(X, [g.product_of(sizes[:depth]), width])
    rows = g.reshape(Updates, [g.product_of(g.sizes_of(flat)), width])
    return g.reshape_as(add_rows(g, base, g.reshape(flat, [-1], (-1,)), rows), X)


# -------------------------------------------------------------------------------------------------------------- tables
@exports("lookup_table", "lookup_table_v2")
def lookup_table(g: OnnxGraph, W: OnnxTensor, Ids: OnnxTensor, padding_idx: int, specs: Any) -> OnnxTensor:
    spec = specs["Out"]
    ids = g.cast(Ids, VarType.INT64)
    if ids.ndim == spec.ndim:
        ids = g.squeeze(ids, -1)
    rows = g.gather(W, ids)
    if padding_idx == -1:
        return rows
    padded = g.binary("Equal", g.unsqueeze(ids, -1), _padding_id(g, padding_idx, W))
    return g.where(padded, g.number(0, W), rows)


def _padding_id(g: OnnxGraph, padding_idx: int, table: OnnxTensor) -> OnnxTensor:
    """The id of the row of zeros; a negative id counts from the end."""
    if padding_idx >= 0:
        return g.constant(np.int64(padding_idx))
    return g.binary("Add", g.squeeze(g.as_size(g.size(table, 0)), 0), g.constant(np.int64(padding_idx)))


@exports("scatter_rows_like")
def scatter_rows_like(g: OnnxGraph, X: OnnxTensor, Ids: OnnxTensor, Like: OnnxTensor, padding_idx: int) -> OnnxTensor:
    width = g.size(Like, 1)
    ids = g.reshape(g.cast(Ids, VarType.INT64), [-1], (-1,))
    rows = g.reshape(X, [-1 if isinstance(width, int) else g.size(ids, 0), width], (-1, Like.shape[1]))
    if padding_idx != -1:
        padded = g.binary("Equal", g.unsqueeze(ids, 1), _padding_id(g, padding_idx, Like))
        rows = g.where(padded, g.number(0, rows), rows)
    zeros = filled(g, g.dims(Like), 0, Spec(Like.shape, X.dtype))
    return add_rows(g, zeros, ids, rows)


# ------------------------------------------------------------------------------------------------------------ elements
def picked(
    g: OnnxGraph, x: OnnxTensor, index: OnnxTensor, axis: int, ignore_index: int | None = None, default: float = 0.0
) -> OnnxTensor:
    """``x[.., index[.., j, ..], ..]`` along an axis; `default` at ignored indices."""
    index = g.cast(index, VarType.INT64)
    if ignore_index is None:
        return g.sized_node("GatherElements", [x, index], x.dtype, index.sizes, axis=axis % x.ndim)
    ignored = g.binary("Equal", index, g.constant(np.int64(ignore_index)))
    safe = g.where(ignored, g.constant(np.int64(0)), index)
    values = g.sized_node("GatherElements", [x, safe], x.dtype, index.sizes, axis=axis % x.ndim)
    return g.where(ignored, g.number(default, x), values)


def placed(g: OnnxGraph, x: OnnxTensor, index: OnnxTensor, axis: int, size: Size, sizes: tuple[int, ...]) -> OnnxTensor:
    """Add x to zeros at these indices, the transpose of `picked`; `size` is the zeros' size along the axis."""
    axis, index = axis % x.ndim, g.cast(index, VarType.INT64)
    if index.shape[axis] == 1:
        hit = g.binary("Equal", positions(g, size, axis, x.ndim), index)
        return g.where(hit, x, g.number(0, x))
    zeros = filled(
        g,
        g.joined_sizes([size if place == axis else axis_size for place, axis_size in enumerate(g.sizes_of(x))]),
        0,
        Spec(tuple(size if place == axis and isinstance(size, int) else n for place, n in enumerate(x.shape)), x.dtype),
    )
    if g.opset >= 16:
        return g.node("ScatterElements", [zeros, index, x], zeros, axis=axis, reduction="add")
    # One more dimension, after the axis: elements of the index.
    hit = g.binary("Equal", positions(g, size, axis, x.ndim + 1), g.unsqueeze(index, axis))
    spread = g.where(hit, g.unsqueeze(x, axis), g.number(0, x))
    return g.reduce("ReduceSum", spread, [axis + 1])


@exports("pick")
def pick(g: OnnxGraph, X: OnnxTensor, Index: OnnxTensor, axis: int, ignore_index: int, default: float) -> OnnxTensor:
    return picked(g, X, Index, axis, ignore_index, default)


@exports("place")
def place(g: OnnxGraph, X: OnnxTensor, Index: OnnxTensor, Like: OnnxTensor, axis: int, ignore_index: int) -> OnnxTensor:
    index = g.cast(Index, VarType.INT64)
    ignored = g.binary("Equal", index, g.constant(np.int64(ignore_index)))
    x = g.where(ignored, g.number(0, X), X)
    safe = g.where(ignored, g.constant(np.int64(0)), index)
    skipped = Like.ndim - X.ndim
    return placed(g, x, safe, axis, g.size(Like, axis % X.ndim + skipped), Like.sizes[skipped:])


def one_hot_of(g: OnnxGraph, ids: OnnxTensor, depth: Size, dtype: VarType) -> OnnxTensor:
    """One-hot vectors of the ids along a new last dimension."""
    hit = g.binary("Equal", g.unsqueeze(g.cast(ids, VarType.INT64), -1), positions(g, depth, ids.ndim, ids.ndim + 1))
    return g.cast(hit, dtype)


@exports("one_hot", "one_hot_v2")
def one_hot(g: OnnxGraph, X: OnnxTensor, depth_tensor: OnnxTensor | None, depth: int, dtype: int, specs: Any) -> OnnxTensor:
    ids = X if specs["Out"].ndim > X.ndim else g.squeeze(X, -1)
    count: Size = depth if depth_tensor is None else g.reshape(g.cast(depth_tensor, VarType.INT64), [1])
    return one_hot_of(g, ids, count, as_dtype(dtype))


@exports("take_along_axis")
def take_along_axis(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any) -> OnnxTensor:
    x, index = inputs["Input"], g.cast(inputs["Index"], VarType.INT64)
    return g.sized_node("GatherElements", [x, index], x.dtype, index.sizes, axis=attrs["Axis"] % x.ndim)


@exports("tdm_child")
def tdm_child(g: OnnxGraph, X: OnnxTensor, TreeInfo: OnnxTensor, specs: Any) -> dict[str, OnnxTensor]:
    info, nodes = g.cast(TreeInfo, VarType.INT64), g.cast(X, VarType.INT64)
    children = g.gather(g.slice(info, [1], [3], [2**31 - 1]), nodes)
    is_node = g.unsqueeze(g.differ(nodes, g.ints(0)), nodes.ndim)
    first_child = g.slice(children, [children.ndim - 1], [0], [1])
    has_children = g.binary("And", is_node, g.differ(first_child, g.ints(0)))
    children = g.where(has_children, children, g.ints(0))
    items = g.gather(g.squeeze(g.slice(info, [1], [0], [1]), 1), children)
    leaf = g.binary("And", has_children, g.differ(items, g.ints(0)))
    dtype = specs["Child"].dtype
    return {"Child": g.cast(children, dtype), "LeafMask": g.cast(leaf, dtype)}

"""Samples of `fluid.ops.indexing`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Data, Sample, add, structural

data = Data("indexing")


def added(X: Any, Index: Any, AddValue: Any, axis: int = 0) -> Any:
    out = np.moveaxis(X, axis, 0).copy()
    for place, part in zip(Index, np.moveaxis(AddValue, axis, 0), strict=True):
        out[place] += part
    return np.moveaxis(out, 0, axis)


for axis, shape in ((0, (4, 3)), (1, (2, 4)), (-1, (2, 3, 4))):
    part = list(shape)
    part[axis] = 3
    index = np.array([3, 1, 3])
    add("index_add", Sample({"X": data(*shape), "Index": index, "AddValue": data(*part)}, {"axis": axis}, added))


def put(x: Any, indices: Any, value: Any, accumulate: bool = False) -> Any:
    out = x.copy()
    if accumulate:
        np.add.at(out, tuple(indices), value)
    else:
        out[tuple(indices)] = value
    return out


def summed(values: Any, like: Any) -> Any:
    """Values summed to a shape that broadcasts to theirs."""
    shape = (1,) * (values.ndim - like.ndim) + like.shape
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1)
    return values.sum(axes, keepdims=True).reshape(like.shape)


I, J = np.array([2, 0]), np.array([1, -1])
MASK = np.array([True, False, True])
for indices, shape in (
    ([I], (2, 4)), ([I], (1,)), ([I, J], (2,)), ([I[:, None], J], (2, 2)), ([MASK], (2, 4)), ([MASK], (4,)), ([I, J], ()),
):  # fmt: skip
    for accumulate in (False, True):
        attrs = {"accumulate": accumulate}
        add("index_put", Sample({"x": data(3, 4), "indices": indices, "value": data(*shape)}, attrs, put, known=("indices",)))
    picked = data(3, 4)[tuple(indices)]
    for like in {shape, picked.shape}:
        sample = Sample(
            {"X": data(3, 4), "Indices": indices, "Like": data(*like)},
            {},
            lambda X, Indices, Like: summed(X[tuple(Indices)], Like),
        )
        add("picked_sum", sample)
twice = {"x": data(3, 2), "indices": [np.array([1, 1, 2])], "value": data(3, 2)}
add("index_put", Sample(twice, {"accumulate": True}, put))
add("index_put", Sample({"x": data(3, 4), "indices": [data.bools(3, 4)], "value": data(1)}, {}, put, known=("indices",)))
add("index_put", Sample({"x": data.ints(3), "indices": [I], "value": data.ints(2)}, {}, put))


def repeated(X: Any, RepeatsTensor: Any = None, Repeats: int = 0, dim: int = 0) -> Any:
    return np.repeat(X, Repeats if RepeatsTensor is None else RepeatsTensor, dim)


def unrepeated(X: Any, Like: Any, RepeatsTensor: Any = None, Repeats: int = 0, dim: int = 0) -> Any:
    counts = [Repeats] * Like.shape[dim] if RepeatsTensor is None else RepeatsTensor
    parts = np.split(X, np.cumsum(counts)[:-1], dim)
    return np.concatenate([part.sum(dim, keepdims=True) for part in parts], dim)


for dim, shape in ((0, (3, 2)), (1, (2, 3)), (-1, (2, 2, 3)), (0, (3,))):
    add("repeat_interleave", Sample({"X": data(*shape)}, {"Repeats": 2, "dim": dim}, repeated))
    for counts in ([2, 0, 1], [3]):
        tensor = {"RepeatsTensor": np.array(counts * (shape[dim] // len(counts)), "int32")}
        x = data(*shape)
        out = repeated(x, **tensor, dim=dim)
        add("repeat_interleave", Sample({"X": x, **tensor}, {"dim": dim}, repeated, shapes_by_value=True))
        add("repeat_like", Sample({"X": x, **tensor, "Like": out}, {"dim": dim}, repeated))
        add("interleaved_sum", Sample({"X": data(*out.shape), **tensor, "Like": x}, {"dim": dim}, unrepeated))
    out = repeated(x, Repeats=2, dim=dim)
    add("repeat_like", Sample({"X": x, "Like": out}, {"dim": dim, "Repeats": 2}, repeated))
    add("interleaved_sum", Sample({"X": data(*out.shape), "Like": x}, {"dim": dim, "Repeats": 2}, unrepeated))
for shapes in (((2, 3), (3,)), ((2, 1), (1, 3), ()), ((1,),), ((2, 0), (1,))):
    add(
        "broadcast_tensors",
        Sample({"X": [data(*shape) for shape in shapes]}, {}, lambda X: {"Out": [np.array(x) for x in np.broadcast_arrays(*X)]}),
    )


def with_diagonal(X: Any, value: float = 0.0, offset: int = 0, wrap: bool = False) -> Any:
    out = X.copy()
    for number, place in enumerate(np.ndindex(X.shape)):
        inside = wrap or number < X.shape[1] ** 2
        if X.ndim > 2:
            on = len(set(place)) == 1
        else:
            on = place[0] % (X.shape[1] + 1) == place[1]
        column = place[1] if X.ndim == 2 else place[-1]
        if inside and on and 0 <= column + offset < X.shape[1]:
            out[(*place[:-1], column + offset)] = value
    return out


for shape in ((3, 3), (4, 2), (2, 4), (7, 3)):
    for offset in (0, 1, -1):
        for wrap in (False, True):
            attrs = {"value": 3.0, "offset": offset, "wrap": wrap}
            add("fill_diagonal", Sample({"X": data(*shape)}, attrs, with_diagonal, known=("X",)))
for wrap in (False, True):
    add("fill_diagonal", Sample({"X": data(2, 2, 2)}, {"value": 1.5, "wrap": wrap}, with_diagonal, known=("X",)))
add("fill_diagonal", Sample({"X": data.ints(3, 3)}, {"value": 7.0}, with_diagonal))


def with_diagonals(X: Any, Y: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    out = X.copy()
    view = np.moveaxis(out, (dim1, dim2), (-2, -1))
    for number in range(Y.shape[-1]):
        view[..., number + max(-offset, 0), number + max(offset, 0)] = Y[..., number]
    return out


def embedded(Input: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    size = Input.shape[-1] + abs(offset)
    out = np.zeros((*Input.shape[:-1], size, size), Input.dtype)
    for number in range(Input.shape[-1]):
        out[..., number + max(-offset, 0), number + max(offset, 0)] = Input[..., number]
    return np.moveaxis(out, (-2, -1), (dim1, dim2))


for shape, offset, dims in (
    ((3, 4), 0, (0, 1)),
    ((3, 4), 1, (0, 1)),
    ((3, 4), -1, (1, 0)),
    ((2, 3, 4), 1, (0, 2)),
    ((3, 2, 2), -1, (-1, 0)),
):
    x, attrs = data(*shape), {"offset": offset, "dim1": dims[0], "dim2": dims[1]}
    y = data(*np.diagonal(x, offset, *dims).shape)
    add("fill_diagonal_tensor", Sample({"X": x, "Y": y}, attrs, with_diagonals))
row = {"X": data(3, 4), "Y": data(1, 3)}
add("fill_diagonal_tensor", Sample(row, {}, lambda X, Y: with_diagonals(X, Y[0]), known=("X", "Y")))
for shape in ((3,), (2, 3), (0, 2)):
    for attrs in ({}, {"offset": 1}, {"offset": -2, "dim1": 0, "dim2": -1}, {"dim1": -1, "dim2": 0}):
        add("diag_embed", Sample({"Input": data(*shape)}, attrs, embedded))
for rows, columns, offset in ((3, 3, 0), (2, 4, 1), (4, 2, -1), (0, 3, 0), (3, 2, 5), (3, 3, -5)):
    lower = {"rows": rows, "cols": columns, "offset": offset}
    add("tril_indices", Sample({}, lower, lambda rows, cols, offset: np.stack(np.tril_indices(rows, offset, cols))))
    upper = {"row": rows, "col": columns, "offset": offset}
    add("triu_indices", Sample({}, upper, lambda row, col, offset: np.stack(np.triu_indices(row, offset, col))))
add(
    "tril_indices",
    Sample({}, {"rows": 2, "cols": 2, "dtype": 2}, lambda rows, cols, dtype: np.stack(np.tril_indices(rows)).astype("int32")),
)


def strided(array: Any, dims: Any, stride: Any, offset: int = 0) -> Any:
    out = np.empty(dims, array.dtype)
    for place in np.ndindex(*dims):
        out[place] = array.reshape(-1)[offset + sum(p * s for p, s in zip(place, stride, strict=True))]
    return out


def strided_back(X: Any, Like: Any, dims: Any, stride: Any, offset: int = 0) -> Any:
    out = np.zeros(Like.size, X.dtype)
    for place in np.ndindex(*dims):
        out[offset + sum(p * s for p, s in zip(place, stride, strict=True))] += X[place]
    return out.reshape(Like.shape)


for dims, stride, offset in (
    ((2, 3), (4, 1), 1),
    ((3, 2), (2, 2), 0),
    ((2, 2, 2), (1, 3, 0), 2),
    ((), (), 5),
    ((0, 2), (1, 1), 0),
):
    attrs = {"dims": list(dims), "stride": list(stride), "offset": offset}
    add("as_strided", Sample({"input": data(3, 4)}, attrs, lambda input, **given: strided(input, **given)))
    add("strided_sum", Sample({"X": data(*dims), "Like": data(3, 4)}, attrs, strided_back))


def windows(input: Any, axis: int, size: int, step: int) -> Any:
    rows = np.moveaxis(input, axis, 0)
    found = np.stack([np.moveaxis(rows[s : s + size], 0, -1) for s in range(0, len(rows) - size + 1, step)])
    return np.moveaxis(found, 0, axis % input.ndim)


for axis, shape, size, step in (
    (0, (5, 2), 2, 1),
    (1, (2, 6), 3, 2),
    (-1, (2, 3, 5), 2, 3),
    (0, (4,), 4, 1),
    (1, (2, 5, 2), 1, 2),
):
    add("tensor_unfold", Sample({"input": data(*shape)}, {"axis": axis, "size": size, "step": step}, windows))
structural("test_indexing.py", "view_dtype")  # whose gradient of floats is the gradient's bits
for X, dtype, kind in (
    (data.ints(2, 3), 2, "int32"),
    (data.ints(2, 4, dtype="int32"), 3, "int64"),
    (data.ints(3, dtype="int32"), 5, "float32"),
    (np.uint8([[1, 2, 3, 4]]), 2, "int32"),
):
    add("view_dtype", Sample({"input": X}, {"dtype": dtype}, lambda input, kind=kind: input.view(kind)))
for shape, dims in (((2, 6), (3, 4)), ((4,), (2, -1)), ((), (1,)), ((0, 2), (0, 2))):
    add("view_shape", Sample({"input": data(*shape)}, {"dims": list(dims)}, lambda input, dims: input.reshape(dims)))
for shape, index, axis in (((3, 2), 1, 0), ((2, 3), 2, -1), ((3,), 0, 0)):
    add(
        "index_select_strided",
        Sample({"x": data(*shape)}, {"index": index, "axis": axis}, lambda x, index, axis: x.take(index, axis)),
    )


def renormed(X: Any, p: float, axis: int, max_norm: float) -> Any:
    others = tuple(a for a in range(X.ndim) if a != axis % X.ndim)
    norms = (np.abs(X) ** p).sum(others, keepdims=True) ** (1 / p)
    return np.where(norms > max_norm, X * (max_norm / (norms + 1e-7)), X).astype(X.dtype)


for p in (1.0, 2.0, 3.0):
    for axis, shape in ((0, (3, 4)), (1, (2, 3, 2)), (-1, (2, 3))):
        sample = Sample({"X": data.away(*shape)}, {"p": p, "axis": axis, "max_norm": 1.5}, renormed, tolerance=5)
        add("renorm", sample)
add("renorm", Sample({"X": np.array([[0.0, 0, 0], [3, 0, 4]])}, {"p": 2.0, "axis": 0, "max_norm": 1.0}, renormed, orders=0))

for mask in (data.bools(3, 4), data.bools(4), data.bools(2, 1, 1)):
    inputs = {"x": data(3, 4), "mask": mask, "value": data(1)}
    add("masked_fill", Sample(inputs, {}, lambda x, mask, value: np.where(mask, value, x)))

# of several values for an element the last counts; each gets the gradient, so there is nothing to compare with differences
elements = [np.array([1, 0, -2, 1]), np.array([[3], [-1]])]
add("index_put", Sample({"x": data(3, 4), "indices": elements, "value": data(2, 4)}, {}, put, orders=0))
for broadcast in ((4, 1), (2,)):
    add("index_put", Sample({"x": data(3, 2), "indices": elements[:1], "value": data(*broadcast)}, {}, put, orders=0))

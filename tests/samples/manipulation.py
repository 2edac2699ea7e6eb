"""Samples of `fluid.ops.manipulation`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("manipulation")


# ---------------------------------------------------------------------------------------------------- shapes
def reshaped(X: Any, shape: Sequence[int]) -> Any:
    return X.reshape([X.shape[i] if n == 0 else n for i, n in enumerate(shape)])


for name in ("reshape", "reshape2"):
    add(
        name,
        *(
            Sample({"X": data(*x)}, {"shape": shape}, reshaped)
            for x, shape in (
                ((2, 3), [3, 2]),
                ((2, 3, 4), [2, -1]),
                ((2, 3, 4), [0, 12]),
                ((2, 3, 4), [0, 0, -1]),
                ((2, 3, 4), [-1]),
                ((1,), [1, 1]),
                ((), [1]),
            )
        ),
        Sample({"X": data.ints(2, 3)}, {"shape": [6]}, reshaped),
        Sample({"X": data(0, 3, 4)}, {"shape": [0, -1]}, lambda X, shape: X.reshape(0, 12)),
    )
add(
    "reshape_like",
    *(
        Sample({"X": data(*x), "Like": data(*y)}, {}, lambda X, Like: X.reshape(Like.shape), wrt=["X"])
        for x, y in (((2, 3), (3, 2)), ((6,), (2, 3)), ((1,), ()), ((), (1, 1)), ((0, 2), (2, 0)))
    ),
)

for name in ("transpose", "transpose2"):
    add(
        name,
        *(
            Sample({"X": data(*x)}, {"axis": axis}, lambda X, axis: X.transpose(axis))
            for x, axis in (
                ((2, 3), [1, 0]),
                ((2, 3, 4), [2, 0, 1]),
                ((2, 3, 4), [0, 2, 1]),
                ((2, 1, 3, 2), [0, 2, 1, 3]),
                ((3,), [0]),
                ((0, 2), [1, 0]),
            )
        ),
    )


def squeezed(X: Any, axes: Sequence[int] = ()) -> Any:
    return np.squeeze(X, tuple(a for a in axes if X.shape[a] == 1) if axes else None)


for name in ("squeeze", "squeeze2"):
    add(
        name,
        *(
            Sample({"X": data(*x)}, attrs, squeezed)
            for x, attrs in (((2, 1, 3), {"axes": [1]}), ((1, 2, 1), {"axes": [0, -1]}), ((2, 3, 1), {"axes": [-1]}))
        ),
        Sample({"X": data(2, 3)}, {"axes": [0]}, squeezed, known=["X"]),
        Sample({"X": data(1, 2, 1)}, {}, squeezed, known=["X"]),
    )


def unsqueezed(X: Any, axes: Sequence[int]) -> Any:
    for axis in axes:
        X = np.expand_dims(X, axis)
    return X


for name in ("unsqueeze", "unsqueeze2"):
    add(
        name,
        *(
            Sample({"X": data(*x)}, {"axes": axes}, unsqueezed)
            for x, axes in (((2, 3), [0]), ((2, 3), [-1]), ((2, 3), [1, 3]), ((), [0]), ((3,), [0, 2]), ((0, 2), [1]))
        ),
    )


def flattened(X: Any, axis: int = 1) -> Any:
    return X.reshape(int(np.prod(X.shape[:axis])), int(np.prod(X.shape[axis:])))


for name in ("flatten", "flatten2"):
    add(name, *(Sample({"X": data(2, 3, 4)}, attrs, flattened) for attrs in ({}, {"axis": 0}, {"axis": 2}, {"axis": 3})))
add(
    "flatten_contiguous_range",
    *(
        Sample(
            {"X": data(2, 3, 4, 2)},
            attrs,
            lambda X, start_axis=1, stop_axis=1: X.reshape(X.shape[:start_axis] + (-1,) + X.shape[stop_axis % X.ndim + 1 :]),
        )
        for attrs in (
            {},
            {"start_axis": 1, "stop_axis": -1},
            {"start_axis": 0, "stop_axis": 1},
            {"start_axis": 0, "stop_axis": 3},
        )
    ),
)


# --------------------------------------------------------------------------------------------- joining, parting
add(
    "concat",
    *(
        Sample(
            {"X": [data(*shape) for shape in shapes]}, {"axis": axis} if axis else {}, lambda X, axis=0: np.concatenate(X, axis)
        )
        for shapes, axis in (
            (((2, 3), (1, 3)), 0),
            (((2, 3), (2, 1), (2, 2)), 1),
            (((2, 3), (2, 2)), -1),
            (((2, 3),), 0),
            (((0, 3), (2, 3)), 0),
            (((2,), (3,)), 0),
        )
    ),
    Sample({"X": [data.ints(2, 3), data.ints(1, 3)]}, {}, lambda X: np.concatenate(X, 0)),
)


def parted(X: Any, num: int = 0, sections: Sequence[int] = (), axis: int = 0) -> Any:
    if sections:
        rest = X.shape[axis] - sum(n for n in sections if n > 0)
        sections = [rest if n == -1 else n for n in sections]
        return np.split(X, np.cumsum(sections)[:-1], axis)
    return np.split(X, num, axis)


add(
    "split",
    *(
        Sample({"X": data(*x)}, attrs, parted)
        for x, attrs in (
            ((4, 3), {"num": 2}),
            ((2, 6), {"num": 3, "axis": 1}),
            ((2, 6), {"num": 2, "axis": -1}),
            ((2, 6), {"sections": [1, 2, 3], "axis": 1}),
            ((6, 2), {"sections": [4, -1]}),
            ((3, 2), {"num": 1}),
        )
    ),
)
for name in ("stack",):
    add(
        name,
        *(
            Sample(
                {"X": [data(*shape) for _ in range(count)]}, {"axis": axis} if axis else {}, lambda X, axis=0: np.stack(X, axis)
            )
            for shape, count, axis in (((2, 3), 3, 0), ((2, 3), 2, 1), ((2, 3), 2, -1), ((), 2, 0), ((2,), 1, 0), ((0, 2), 2, 0))
        ),
    )
add(
    "unstack",
    *(
        Sample(
            {"X": data(*x)},
            {"axis": axis, "num": x[axis]},
            lambda X, axis, num: [np.take(X, i, axis) for i in range(num)],
        )
        for x, axis in (((3, 2), 0), ((2, 3), 1), ((2, 3), -1), ((2,), 0))
    ),
)


# ------------------------------------------------------------------------------------------------- slices
def sliced(
    Input: Any,
    axes: Sequence[int],
    starts: Sequence[int],
    ends: Sequence[int],
    decrease_axis: Sequence[int] = (),
    strides: Sequence[int] = (),
) -> Any:
    index = [slice(None)] * Input.ndim
    for i, axis in enumerate(axes):
        index[axis] = slice(starts[i], ends[i], strides[i] if strides else None)
    found = Input[tuple(index)]
    for axis in sorted(decrease_axis, reverse=True):
        found = found.squeeze(axis)
    return found


BIG = 2**31 - 1
SLICES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((4, 5), {"axes": [0], "starts": [1], "ends": [3]}),
    ((4, 5), {"axes": [0, 1], "starts": [-3, 0], "ends": [-1, 100]}),
    ((4, 5), {"axes": [1], "starts": [2], "ends": [BIG]}),
    ((2, 3, 4), {"axes": [2], "starts": [0], "ends": [2]}),
    ((2, 3, 4), {"axes": [1], "starts": [-100], "ends": [2]}),
]
add(
    "slice",
    *(Sample({"Input": data(*x)}, attrs, sliced) for x, attrs in SLICES),
    Sample({"Input": data(4, 5)}, {"axes": [0], "starts": [1], "ends": [2], "decrease_axis": [0]}, sliced),
    Sample({"Input": data(4, 5)}, {"axes": [0, 1], "starts": [1, 2], "ends": [2, 4], "decrease_axis": [0]}, sliced),
    Sample({"Input": data(4, 5)}, {"axes": [0], "starts": [-1], "ends": [BIG], "decrease_axis": [0]}, sliced),
    Sample({"Input": data.ints(4)}, {"axes": [0], "starts": [1], "ends": [3]}, sliced),
)
add(
    "strided_slice",
    *(Sample({"Input": data(*x)}, {**attrs, "strides": [1] * len(attrs["axes"])}, sliced) for x, attrs in SLICES[:2]),
    Sample({"Input": data(5, 4)}, {"axes": [0], "starts": [0], "ends": [5], "strides": [2]}, sliced),
    Sample({"Input": data(5, 4)}, {"axes": [0, 1], "starts": [4, 1], "ends": [0, 4], "strides": [-2, 1]}, sliced),
)
add("flip", *(Sample({"X": data(2, 3)}, {"axis": axis}, lambda X, axis: np.flip(X, axis)) for axis in ([0], [1], [-1], [0, 1])))
add("reverse", *(Sample({"X": data(2, 3)}, {"axis": axis}, lambda X, axis: np.flip(X, axis)) for axis in ([0], [1], [0, 1])))
add(
    "tile",
    *(
        Sample({"X": data(2, 3)}, {"repeat_times": times}, lambda X, repeat_times: np.tile(X, repeat_times))
        for times in ([2, 1], [1, 3], [2, 2, 1], [2])
    ),
)
add(
    "expand",
    *(
        Sample({"X": data(2, 3)}, {"expand_times": times}, lambda X, expand_times: np.tile(X, expand_times))
        for times in ([2, 1], [1, 3], [2, 2])
    ),
)


def broadcast(X: Any, shape: Sequence[int]) -> Any:
    padded = X.reshape((1,) * (len(shape) - X.ndim) + X.shape)
    return np.broadcast_to(padded, [padded.shape[i] if n == -1 else n for i, n in enumerate(shape)]).copy()


add(
    "expand_v2",
    *(
        Sample({"X": data(*x)}, {"shape": shape}, broadcast)
        for x, shape in (((1, 3), [2, 3]), ((3,), [2, 3]), ((2, 1), [-1, 4]), ((1,), [3]), ((2, 3), [2, 3]))
    ),
)
add("expand_as_v2", Sample({"X": data(1, 3)}, {"target_shape": [2, 3]}, lambda X, target_shape: broadcast(X, target_shape)))


# ------------------------------------------------------------------------------------------------- gathering
def gathered(X: Any, Index: Any, axis: int = 0) -> Any:
    return np.take(X, Index.reshape(-1), axis)


add(
    "gather",
    Sample({"X": data(4, 3), "Index": np.int64([2, 0, 2])}, {}, gathered),
    Sample({"X": data(4, 3), "Index": np.int32([3])}, {}, gathered),
    Sample({"X": data(4, 3), "Index": np.int64([2, 0])}, {"axis": 1}, gathered),
    Sample({"X": data(4), "Index": np.int64([1, 1])}, {}, gathered),
    Sample({"X": data(4, 2, 2), "Index": np.int64([1, 3])}, {}, gathered),
    Sample({"X": data(4, 2), "Index": np.zeros(0, np.int64)}, {}, gathered),
)
add(
    "gather_nd",
    Sample(
        {"X": data(4, 3), "Index": np.int64([[2], [0], [2]])},
        {},
        lambda X, Index: X[tuple(np.moveaxis(Index, -1, 0))],
        known=["Index"],
    ),
    Sample(
        {"X": data(4, 3), "Index": np.int64([[2, 1], [0, 0], [2, 1]])},
        {},
        lambda X, Index: X[tuple(np.moveaxis(Index, -1, 0))],
        known=["Index"],
    ),
    Sample(
        {"X": data(4, 3, 2), "Index": np.int64([[[2, 1]], [[0, 0]]])},
        {},
        lambda X, Index: X[tuple(np.moveaxis(Index, -1, 0))],
        known=["Index"],
    ),
    Sample({"X": data(3, 2), "Index": np.zeros((2, 0), "int64")}, {}, lambda X, Index: np.stack([X, X]), known=["Index"]),
)


def scattered(X: Any, Ids: Any, Updates: Any, overwrite: bool = True) -> Any:
    out = X.copy()
    if overwrite:
        out[Ids.reshape(-1)] = Updates
    else:
        out[Ids] = 0
        np.add.at(out, Ids, Updates)
    return out


add(
    "scatter",
    Sample({"X": data(4, 3), "Ids": np.int64([2, 0]), "Updates": data(2, 3)}, {}, scattered),
    Sample({"X": data(4, 3), "Ids": np.int64([2, 0, 2]), "Updates": data(3, 3)}, {"overwrite": False}, scattered),
)


def looked_up(W: Any, Ids: Any, padding_idx: int = -1) -> Any:
    found = W[Ids]
    if padding_idx != -1:
        found = np.where((Ids == padding_idx % len(W))[..., None], 0, found)
    return found.astype(W.dtype)


add(
    "lookup_table_v2",
    Sample({"W": data(5, 3), "Ids": data.ints(4)}, {}, looked_up),
    Sample({"W": data(5, 3), "Ids": data.ints(2, 3)}, {}, looked_up),
    Sample({"W": data(5, 3), "Ids": np.int64([2, 0, 2, 4])}, {"padding_idx": 2}, looked_up),
    Sample({"W": data(5, 3), "Ids": np.int64([2, 2, 2])}, {}, looked_up),
    Sample({"W": data(5, 3), "Ids": np.int32([2, 1])}, {}, looked_up),
)
add(
    "lookup_table",
    Sample({"W": data(5, 3), "Ids": data.ints(4, 1)}, {}, lambda W, Ids: W[Ids[:, 0]]),
    Sample({"W": data(5, 3), "Ids": data.ints(2, 3, 1)}, {}, lambda W, Ids: W[Ids[..., 0]]),
    Sample(
        {"W": data(5, 3), "Ids": np.int64([[2], [0], [2]])},
        {"padding_idx": 2},
        lambda W, Ids, padding_idx: looked_up(W, Ids[:, 0], 2),
    ),
)


def hot(X: Any, depth: int, **_: Any) -> Any:
    return (X[..., None] == np.arange(depth)).astype("float32")


for ids in (data.ints(4, 1), data.ints(4, 1).astype("float64")):
    add("one_hot", Sample({"X": ids}, {"depth": 5}, lambda X, depth: hot(X[..., 0], depth)))
add("one_hot_v2", Sample({"X": data.ints(4).astype("float64")}, {"depth": 5}, hot))
add("one_hot_v2", *(Sample({"X": data.ints(*shape)}, {"depth": 5}, hot) for shape in ((4,), (2, 3))))
add(
    "where",
    *(
        Sample(
            {"Condition": data.bools(*shape), "X": data(*shape), "Y": data(*shape)},
            {},
            lambda Condition, X, Y: np.where(Condition, X, Y),
        )
        for shape in ((2, 3), (1,), (), (0, 2))
    ),
    Sample({"Condition": data.bools(3, 2)}, {}, lambda Condition: np.stack(Condition.nonzero(), 1), shapes_by_value=True),
)


# --------------------------------------------------------------------------------------------------- order
def largest(X: Any, k: int = 1, **_: Any) -> Any:
    order = np.argsort(-X, -1, kind="stable")[..., :k]
    return {"Out": np.take_along_axis(X, order, -1), "Indices": order}


for name in ("top_k", "top_k_v2"):
    add(
        name,
        *(
            Sample({"X": data.distinct(*shape)}, attrs, largest)
            for shape, attrs in (((3, 5), {}), ((3, 5), {"k": 2}), ((2, 2, 4), {"k": 3}), ((5,), {"k": 5}), ((3, 1), {}))
        ),
    )


for name, function in (("arg_max", np.argmax), ("arg_min", np.argmin)):
    add(
        name,
        *(
            Sample({"X": data.distinct(2, 3, 4)}, {"axis": axis}, lambda X, axis, function=function: function(X, axis))
            for axis in (0, 1, -1)
        ),
        Sample({"X": data.distinct(2, 3)}, {"axis": 1, "dtype": -1}, lambda X, function=function, **_: function(X, 1)),
    )


# ------------------------------------------------------------------------------------------ transposes of the above
def inverse(forward: Any) -> Any:
    """The transpose of a linear function of one array that only moves elements: they go back, meeting ones add up.

    `forward` takes positions, as integers, in place of elements; those that it does not move from the input are -1.
    """

    def transpose(X: Any, Like: Any) -> Any:
        out = np.zeros(Like.size, X.dtype)
        where = np.asarray(forward(np.arange(Like.size).reshape(Like.shape))).reshape(-1)
        np.add.at(out, where[where >= 0], X.reshape(-1)[where >= 0])
        return out.reshape(Like.shape)

    return transpose


add(
    "unreshape",
    *(
        Sample({"X": data(*x), "XShape": np.zeros((0, *like))}, {}, lambda X, XShape: X.reshape(XShape.shape[1:]), wrt=["X"])
        for x, like in (((2, 3), (3, 2)), ((6,), (2, 1, 3)), ((1,), ()), ((0, 2), (0,)))
    ),
)
add(
    "split_like",
    *(
        Sample(
            {"X": data(*x), "Like": [data(*like) for like in likes]},
            {"axis": axis} if axis else {},
            lambda X, Like, axis=0: np.split(X, np.cumsum([like.shape[axis] for like in Like])[:-1], axis),
            wrt=["X"],
        )
        for x, likes, axis in (((3, 2), [(1, 2), (2, 2)], 0), ((2, 3), [(2, 3)], -1), ((2, 6), [(2, 1), (2, 2), (2, 3)], 1))
    ),
)
for x, attrs in (
    ((5, 4), {"axes": [0], "starts": [0], "ends": [5], "strides": [2]}),
    ((5, 4), {"axes": [0, 1], "starts": [4, 1], "ends": [0, 4], "strides": [-2, 1]}),
):
    like = data(*x)
    add(
        "strided_unslice",
        Sample(
            {"X": data(*sliced(like, **attrs).shape), "Like": like},
            attrs,
            lambda X, Like, **attrs: inverse(lambda positions: sliced(positions, **attrs))(X, Like),
            wrt=["X"],
        ),
    )


def scattered_nd(X: Any, Index: Any, Updates: Any) -> Any:
    out = X.copy()
    for at in np.ndindex(Index.shape[:-1]):
        out[tuple(Index[at])] += Updates[at]
    return out


add(
    "scatter_nd_add",
    Sample({"X": data(4, 3), "Index": np.int64([[2], [0], [2]]), "Updates": data(3, 3)}, {}, scattered_nd),
    Sample({"X": data(4, 3), "Index": np.int64([[2, 1], [0, 0], [2, 1]]), "Updates": data(3)}, {}, scattered_nd),
    Sample({"X": data(4, 3, 2), "Index": np.int64([[[2, 1]], [[0, 0]]]), "Updates": data(2, 1, 2)}, {}, scattered_nd),
    Sample({"X": data(3, 2), "Index": np.zeros((2, 0), "int64"), "Updates": data(2, 3, 2)}, {}, scattered_nd),
    Sample({"X": data(3, 2), "Index": np.zeros((0, 1), "int64"), "Updates": data(0, 2)}, {}, scattered_nd),
)
for x, attrs in [*SLICES, ((4, 5), {"axes": [0, 1], "starts": [1, 2], "ends": [2, 4], "decrease_axis": [0]})]:
    like = data(*x)
    add(
        "unslice",
        Sample(
            {"X": data(*sliced(like, **attrs).shape), "Like": like},
            attrs,
            lambda X, Like, **attrs: inverse(lambda positions: sliced(positions, **attrs))(X, Like),
            wrt=["X"],
        ),
    )
add(
    "scatter_add_like",
    *(
        Sample(
            {"X": data(*x), "Index": np.int64(index), "Like": data(*like)},
            {"axis": axis} if axis else {},
            lambda X, Index, Like, axis=0: inverse(lambda positions: gathered(positions, Index, axis))(X, Like),
            wrt=["X"],
        )
        for x, index, like, axis in (
            ((3, 3), [2, 0, 2], (4, 3), 0),
            ((4, 2), [2, 0], (4, 3), 1),
            ((2,), [1, 1], (4,), 0),
            ((0, 2), [], (3, 2), 0),
        )
    ),
)


def rows(table: Any, Ids: Any, padding_idx: int = -1) -> Any:
    """Rows of a table of positions, -1 for the padding."""
    return np.where((Ids == padding_idx)[..., None] & (padding_idx != -1), -1, table[Ids])


add(
    "scatter_rows_like",
    *(
        Sample(
            {"X": data(*np.shape(ids), 3), "Ids": np.int64(ids), "Like": data(5, 3)},
            attrs,
            lambda X, Ids, Like, padding_idx=-1: inverse(lambda positions: rows(positions, Ids, padding_idx))(X, Like),
            wrt=["X"],
        )
        for ids, attrs in (([2, 0, 2, 4], {}), ([[1, 1], [3, 1]], {}), ([2, 0, 2], {"padding_idx": 2}))
    ),
)


def taken(X: Any, Index: Any, axis: int = -1, ignore_index: int = -100, default: float = 0.0) -> Any:
    found = np.take_along_axis(X, np.where(Index == ignore_index, 0, Index), axis)
    return np.where(Index == ignore_index, default, found).astype(X.dtype)


PICKS: list[tuple[tuple[int, ...], Any, dict[str, Any]]] = [
    ((3, 4), [[1], [0], [3]], {}),
    ((3, 4), [[1], [-100], [3]], {}),
    ((2, 3), [[2, 2], [0, 1]], {}),
    ((2, 3), [[1, 0, 1]], {"axis": 0}),
    ((2, 3), [[1], [2]], {"ignore_index": 2}),
]
add(
    "pick",
    *(Sample({"X": data(*x), "Index": np.int64(index)}, attrs, taken) for x, index, attrs in PICKS),
    Sample({"X": data(2, 3), "Index": np.int64([[1], [-100]])}, {"default": 1.5}, taken),
)
add(
    "place",
    *(
        Sample(
            {"X": data(*np.shape(index)), "Index": np.int64(index), "Like": data(*like)},
            attrs,
            lambda X, Index, Like, **attrs: inverse(lambda positions: taken(positions, Index, default=-1, **attrs))(X, Like),
            wrt=["X"],
        )
        for like, index, attrs in PICKS
    ),
)
for small, large in (((2, 3), (4, 3)), ((2, 3), (2, 9)), ((2, 3), (2, 4, 3)), ((1,), (3,))):
    add(
        "tile_like",
        Sample(
            {"X": data(*small), "Like": data(*large)},
            {},
            lambda X, Like: np.tile(X, [n // m for n, m in zip(Like.shape, (1,) * (Like.ndim - X.ndim) + X.shape, strict=True)]),
            wrt=["X"],
        ),
    )
    add(
        "untile",
        Sample(
            {"X": data(*large), "Like": data(*small)},
            {},
            lambda X, Like: inverse(
                lambda p: np.tile(p, [n // m for n, m in zip(X.shape, (1,) * (X.ndim - p.ndim) + p.shape, strict=True)])
            )(X, Like),
            wrt=["X"],
        ),
    )


# --------------------------------------------------------------------------------- attributes given by tensors instead
def count(*values: int) -> Any:
    return np.int32(values)


for name in ("reshape", "reshape2"):
    add(
        name,
        Sample(
            {"X": data(2, 3), "Shape": count(3, 2)}, {"shape": [-1, -1]}, lambda X, Shape: X.reshape(Shape), shapes_by_value=True
        ),
        Sample(
            {"X": data(2, 3), "ShapeTensor": [count(3), count(-1)]},
            {"shape": [-1, -1]},
            lambda X, ShapeTensor: X.reshape(3, 2),
            shapes_by_value=True,
        ),
    )

add(
    "concat",
    Sample(
        {"X": [data(2, 3), data(2, 1)], "AxisTensor": count(1)},
        {},
        lambda X, AxisTensor: np.concatenate(X, 1),
        shapes_by_value=True,
    ),
)
for name in ("unsqueeze2",):
    add(
        name,
        Sample(
            {"X": data(2, 3), "AxesTensor": count(0, 2)},
            {},
            lambda X, AxesTensor: unsqueezed(X, [0, 2]),
            shapes_by_value=True,
            known=["AxesTensor"],
        ),
        Sample(
            {"X": data(2, 3), "AxesTensorList": [count(1)]},
            {},
            lambda X, AxesTensorList: unsqueezed(X, [1]),
            shapes_by_value=True,
        ),
    )
add(
    "slice",
    Sample(
        {"Input": data(4, 5), "StartsTensor": count(1, 2), "EndsTensor": count(3, 4)},
        {"axes": [0, 1], "starts": [-1, -1], "ends": [-1, -1], "infer_flags": [-1, -1]},
        lambda Input, StartsTensor, EndsTensor: Input[1:3, 2:4],
        shapes_by_value=True,
    ),
    Sample(
        {"Input": data(4, 5), "StartsTensorList": [count(1)], "EndsTensorList": [count(3)]},
        {"axes": [0], "starts": [-1], "ends": [-1], "infer_flags": [-1]},
        lambda Input, StartsTensorList, EndsTensorList: Input[1:3],
        shapes_by_value=True,
    ),
)
add(
    "gather",
    Sample(
        {"X": data(4, 3), "Index": np.int64([2, 0]), "Axis": count(1)},
        {},
        lambda X, Index, Axis: X[:, [2, 0]],
        shapes_by_value=True,
    ),
)
add(
    "expand_v2",
    Sample(
        {"X": data(1, 3), "Shape": count(2, 3)}, {"shape": [-1, -1]}, lambda X, Shape: broadcast(X, Shape), shapes_by_value=True
    ),
    Sample(
        {"X": data(1, 3), "expand_shapes_tensor": [count(2), count(3)]},
        {"shape": [-1, -1]},
        lambda X, expand_shapes_tensor: broadcast(X, [2, 3]),
        shapes_by_value=True,
    ),
)
add("expand_as_v2", Sample({"X": data(1, 3), "Y": data(2, 3)}, {}, lambda X, Y: broadcast(X, Y.shape), wrt=["X"]))
add(
    "tile",
    Sample(
        {"X": data(2, 3), "RepeatTimes": count(2, 1)},
        {"repeat_times": [-1, -1]},
        lambda X, RepeatTimes: np.tile(X, (2, 1)),
        shapes_by_value=True,
    ),
)
add(
    "expand",
    Sample(
        {"X": data(2, 3), "ExpandTimes": count(2, 1)},
        {"expand_times": [-1, -1]},
        lambda X, ExpandTimes: np.tile(X, (2, 1)),
        shapes_by_value=True,
    ),
)
add(
    "one_hot_v2",
    Sample({"X": data.ints(4), "depth_tensor": count(5)}, {}, lambda X, depth_tensor: hot(X, 5), shapes_by_value=True),
)
add("top_k", Sample({"X": data.distinct(3, 5), "K": count(2)}, {}, lambda X, K: largest(X, 2), shapes_by_value=True))
add(
    "top_k_v2",
    *(
        Sample(
            {"X": data.distinct(3, 5)},
            attrs,
            lambda X, k, axis=-1, largest=True: {
                "Out": np.take_along_axis(X, np.take(np.argsort(-X if largest else X, axis), range(k), axis), axis),
                "Indices": np.take(np.argsort(-X if largest else X, axis), range(k), axis),
            },
        )
        for attrs in ({"k": 2, "axis": 0}, {"k": 2, "largest": False})
    ),
)


# ---------------------------------------------------------------------------------------------- triangles, diagonals
add(
    "tril_triu",
    *(
        Sample(
            {"X": data(*shape)},
            attrs,
            lambda X, diagonal=0, lower=False: (np.tril if lower else np.triu)(X, diagonal),
        )
        for shape in ((3, 4), (2, 3, 3))
        for attrs in ({}, {"lower": True}, {"diagonal": 1}, {"diagonal": -1, "lower": True})
    ),
)
DIAGONALS: list[dict[str, int]] = [{}, {"offset": 1}, {"offset": -1}, {"axis1": 1, "axis2": 0}, {"axis1": -2, "axis2": -1}]
DIAGONAL_SHAPES = ((3, 4), (2, 3, 4), (2, 2, 3, 2))


def traced(Input: Any, **attrs: Any) -> Any:
    found = np.trace(Input, **attrs)
    return found.reshape(found.shape or (1,))


def diagonal_of(X: Any, offset: int = 0, padding_value: float = 0.0) -> Any:
    if X.ndim == 2:
        return np.diag(X, offset)
    return np.where(np.diag(np.ones_like(X), offset) == 1, np.diag(X, offset), padding_value).astype(X.dtype)


def undiagonalled(X: Any, Like: Any, **attrs: Any) -> Any:
    out = np.zeros_like(Like)
    places = np.diagonal(np.arange(out.size).reshape(out.shape), **attrs)
    out.reshape(-1)[places] = X
    return out


for shape in DIAGONAL_SHAPES:
    for attrs in DIAGONALS:
        X = data(*shape)
        part = np.diagonal(X, **attrs).shape
        add("diagonal", Sample({"Input": X}, attrs, lambda Input, **attrs: np.diagonal(Input, **attrs)))
        add("undiagonal", Sample({"X": data(*part), "Like": X}, attrs, undiagonalled, wrt=["X"]))
        add("trace", Sample({"Input": X}, attrs, traced))
add("trace", Sample({"Input": data(3, 3)}, {}, lambda Input: np.trace(Input).reshape(1), declared={"Out": ()}))
add(
    "diag_v2",
    *(
        Sample(
            {"X": data(*shape)},
            attrs,
            diagonal_of,
        )
        for shape in ((3,), (3, 4))
        for attrs in ({}, {"offset": 1}, {"offset": -2}, {"padding_value": 0.5})
    ),
)


# ------------------------------------------------------------------------------------- rolling, choosing, parting, padding
add(
    "roll",
    *(
        Sample({"X": data(3, 4)}, attrs, lambda X, shifts, axis=None: np.roll(X, shifts, axis))
        for attrs in ({"shifts": [2], "axis": [0]}, {"shifts": [-1, 2], "axis": [0, -1]}, {"shifts": [5], "axis": [1]})
    ),
    Sample({"X": data(3, 4)}, {"shifts": [3]}, lambda X, shifts: np.roll(X, shifts[0])),
    Sample({"X": data(3, 4), "ShiftsTensor": np.array([2])}, {"axis": [1]}, lambda X, ShiftsTensor, axis: np.roll(X, 2, 1)),
)
add(
    "index_select",
    *(
        Sample(
            {"X": data(3, 4), "Index": np.array(index)},
            {"dim": dim} if dim else {},
            lambda X, Index, dim=0: np.take(X, Index, dim),
        )
        for index, dim in (([2, 0, 2], 0), ([1], 1), ([3, 3, 0, 1], -1))
    ),
)
add(
    "unbind",
    *(
        Sample({"X": data(*x)}, {"axis": axis} if axis else {}, lambda X, axis=0: list(np.moveaxis(X, axis, 0)), known=["X"])
        for x, axis in (((3, 2), 0), ((2, 3), 1), ((2, 3, 2), -1), ((2,), 0))
    ),
)


def margins(paddings: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(paddings[::2], paddings[1::2], strict=True))


add(
    "pad",
    *(
        Sample(
            {"X": data(*shape)},
            {"paddings": paddings, "pad_value": value},
            lambda X, paddings, pad_value: np.pad(X, margins(paddings), constant_values=pad_value),
        )
        for shape, paddings, value in (
            ((2, 3), [1, 2, 0, 1], 0.5),
            ((3,), [0, 0], 1.0),
            ((2, 1, 2), [0, 0, 2, 0, 0, 3], 0.0),
            ((0, 2), [1, 0, 0, 0], 2.0),
        )
    ),
)


def padded2d(X: Any, paddings: Sequence[int], mode: str = "constant", pad_value: float = 0.0, data_format: str = "NCHW") -> Any:
    around = margins(paddings)
    around = [(0, 0), *around, (0, 0)] if data_format == "NHWC" else [(0, 0), (0, 0), *around]
    return np.pad(X, around, mode, **({"constant_values": pad_value} if mode == "constant" else {}))


def padded3d(X: Any, paddings: Sequence[int], mode: str = "constant", value: float = 0.0, data_format: str = "NCDHW") -> Any:
    around = margins(paddings)[::-1]
    around = [(0, 0), *around, (0, 0)] if data_format == "NDHWC" else [(0, 0), (0, 0), *around]
    name = {"replicate": "edge", "circular": "wrap"}.get(mode, mode)
    return np.pad(X, around, name, **({"constant_values": value} if mode == "constant" else {}))


for mode in ("constant", "reflect", "edge"):
    for attrs in ({"pad_value": 0.5}, {"data_format": "NHWC"}):
        add("pad2d", Sample({"X": data(2, 3, 3, 2)}, {"paddings": [1, 2, 0, 1], "mode": mode, **attrs}, padded2d))
    in_tensor = {"X": data(2, 3, 3, 2), "Paddings": np.int32([1, 2, 0, 1])}
    add(
        "pad2d",
        Sample(
            in_tensor,
            {"mode": mode, "data_format": "NHWC"},
            lambda X, Paddings, mode, data_format: padded2d(X, Paddings.tolist(), mode, 0.0, data_format),
            wrt=["X"],
            shapes_by_value=True,
        ),
    )
for mode in ("constant", "reflect", "replicate", "circular"):
    for attrs in ({"value": 0.5}, {"data_format": "NDHWC"}):
        add("pad3d", Sample({"X": data(1, 3, 3, 2, 2)}, {"paddings": [1, 0, 0, 1, 1, 1], "mode": mode, **attrs}, padded3d))


def unpadded(X: Any, Like: Any, paddings: Sequence[int], mode: str) -> Any:
    if mode == "constant":
        return X[tuple(slice(low, low + size) for (low, _), size in zip(margins(paddings), Like.shape, strict=True))]
    out = np.zeros_like(Like)
    np.add.at(out.reshape(-1), np.pad(np.arange(out.size).reshape(out.shape), margins(paddings), mode), X)
    return out


for mode in ("reflect", "edge", "wrap", "constant"):
    attrs = {"paddings": [1, 2, 0, 1], "mode": mode}
    add("pad_by", Sample({"X": data(3, 2)}, attrs, lambda X, paddings, mode: np.pad(X, margins(paddings), mode)))
    add("unpad_by", Sample({"X": data(6, 3), "Like": data(3, 2)}, attrs, unpadded, wrt=["X"]))


BOUNDS = {"StartsTensor": count(1, 2), "EndsTensor": count(3, 4)}
ONE_EACH = {"StartsTensorList": [count(1), count(2)], "EndsTensorList": [count(3), count(4)]}
STRIDES = {"StridesTensor": count(1, 2)}
BOTH = {"axes": [0, 1], "starts": [-1, -1], "ends": [-1, -1]}
for tensors in (BOUNDS, ONE_EACH):
    add(
        "slice_like",
        Sample({"X": data(4, 5), "Like": data(2, 2), **tensors}, BOTH, lambda X, **_: X[1:3, 2:4], wrt=["X"]),
    )
    add(
        "strided_slice",
        Sample({"Input": data(4, 5), **tensors, **STRIDES}, BOTH, lambda Input, **_: Input[1:3, 2:4:2], shapes_by_value=True),
    )
    add(
        "strided_slice_like",
        Sample({"X": data(4, 5), "Like": data(2, 1), **tensors, **STRIDES}, BOTH, lambda X, **_: X[1:3, 2:4:2], wrt=["X"]),
    )
ROW = {"axes": [0], "starts": [1], "ends": [2], "decrease_axis": [0]}
add(
    "slice_like",
    Sample({"X": data(4, 5), "Like": data(4, 2)}, {"axes": [1], "starts": [1], "ends": [3]}, lambda X, **_: X[:, 1:3], wrt=["X"]),
    Sample({"X": data(5), "Like": data(1)}, ROW, lambda X, **_: X[1:2], wrt=["X"]),
    Sample({"X": data(5), "Like": data()}, ROW, lambda X, **_: X[1], wrt=["X"]),
)
add(
    "concat_like",
    Sample(
        {"X": [data(2, 3), data(2, 1)], "Like": data(2, 4), "AxisTensor": count(1)},
        {},
        lambda X, Like, AxisTensor: np.concatenate(X, 1),
        wrt=["X"],
    ),
)
add(
    "split_like",
    Sample(
        {"X": data(2, 4), "Like": [data(2, 3), data(2, 1)], "AxisTensor": count(1)},
        {},
        lambda X, Like, AxisTensor: [X[:, :3], X[:, 3:]],
        wrt=["X"],
    ),
)
add(
    "gather_like",
    Sample(
        {"X": data(4, 3), "Index": np.int64([2, 0, 2]), "Like": data(4, 3), "Axis": count(1)},
        {},
        lambda X, Index, Like, Axis: X[:, Index],
        wrt=["X"],
    ),
)
add(
    "split",
    Sample(
        {"X": data(4, 3), "AxisTensor": count(0)}, {"num": 2}, lambda X, AxisTensor, num: np.split(X, 2), shapes_by_value=True
    ),
    Sample(
        {"X": data(2, 5), "SectionsTensorList": [count(2), count(3)]},
        {"axis": 1},
        lambda X, SectionsTensorList, axis: [X[:, :2], X[:, 2:]],
        shapes_by_value=True,
    ),
    Sample(
        {"X": data(2, 5), "SectionsTensorList": [count(2), count(-1)], "AxisTensor": count(1)},
        {"sections": [2, -1]},
        lambda X, SectionsTensorList, AxisTensor: [X[:, :2], X[:, 2:]],
        shapes_by_value=True,
    ),
)
add(
    "expand",
    Sample(
        {"X": data(2, 3), "expand_times_tensor": [count(2), count(3)]},
        {"expand_times": [-1, -1]},
        lambda X, expand_times_tensor: np.tile(X, (2, 3)),
        shapes_by_value=True,
    ),
)
add(
    "top_k_v2",
    Sample(
        {"X": data.distinct(3, 5), "K": count(2)},
        {"axis": 0},
        lambda X, K, axis: {"Out": -np.sort(-X, 0)[:2], "Indices": np.argsort(-X, 0)[:2]},
        shapes_by_value=True,
    ),
)
add(
    "one_hot",
    Sample({"X": data.ints(4, 1), "depth_tensor": count(5)}, {}, lambda X, depth_tensor: hot(X[:, 0], 5), shapes_by_value=True),
)

# ------------------------------------------------------------------------------------------------- older and rarer ones
add(
    "expand_as",
    *(
        Sample(
            {"X": data(*x), "target_tensor": data(*target)},
            {},
            lambda X, target_tensor: np.tile(X, [b // a for a, b in zip(X.shape, target_tensor.shape, strict=True)]),
            wrt=["X"],
        )
        for x, target in (((2, 3), (4, 3)), ((1, 3), (5, 6)), ((2,), (2,)))
    ),
)
for vector in (data(4), data.ints(3), data(1)):
    add("diag", Sample({"Diagonal": vector}, {}, lambda Diagonal: np.diag(Diagonal)))
add(
    "meshgrid",
    *(
        Sample({"X": [data(*shape) for shape in shapes]}, {}, lambda X: [each.copy() for each in np.meshgrid(*X, indexing="ij")])
        for shapes in (((3,), (2,)), ((2,), (3,), (4,)), ((3,),), ((), (2,)), ((1,), (2,)))
    ),
)

# of several rows for an id the last counts; each gets the gradient, so there is nothing to compare with differences
repeated_ids = {"X": data(4, 3), "Ids": np.int64([2, 0, 2, 2, 0]), "Updates": data(5, 3)}
add("scatter", Sample(repeated_ids, {}, scattered, orders=0))

"""Samples of `fluid.ops.selection`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from fluid.values.types import VarType

from .base import Data, Sample, add

data = Data("selection")
INT32, INT64, FP64 = int(VarType.INT32), int(VarType.INT64), int(VarType.FP64)

# ------------------------------------------------------------------------------------------------ picking along an axis
for shape, index, axis in (
    ((3, 4), (3, 2), 1),
    ((3, 4), (5, 4), 0),
    ((2, 3, 4), (2, 6, 4), 1),
    ((4,), (3,), -1),
    ((2, 3), (2, 0), 1),
):
    add(
        "take_along_axis",
        Sample(
            {"Input": data(*shape), "Index": data.ints(*index, high=shape[axis])},
            {"Axis": axis},
            lambda Input, Index, Axis: np.take_along_axis(Input, Index, Axis),
        ),
    )
add(
    "index_sample",
    *(
        Sample(
            {"X": data(3, 4), "Index": data.ints(3, count, high=4, dtype=dtype)},
            {},
            lambda X, Index: np.take_along_axis(X, Index.astype("int64"), 1),
        )
        for count, dtype in ((2, "int64"), (6, "int32"))
    ),
)


COMBINED = {"add": np.add, "mul": np.multiply, "multiply": np.multiply, "amax": np.maximum, "amin": np.minimum}
NEUTRAL = {"add": 0, "mul": 1, "multiply": 1, "amax": -np.inf, "amin": np.inf}


def put(Input: Any, Index: Any, Value: Any, Axis: int, Reduce: str = "assign", Include_self: bool = True) -> Any:
    out = Input.copy()
    axis = Axis % Input.ndim
    places = {at: (*at[:axis], Index[at], *at[axis + 1 :]) for at in np.ndindex(Index.shape)}
    for place in places.values():
        if not Include_self and Reduce != "assign":
            out[place] = NEUTRAL[Reduce]
    for at, place in places.items():
        out[place] = Value[at] if Reduce == "assign" else COMBINED[Reduce](out[place], Value[at])
    return out


for reduce in ("assign", "add", "mul", "multiply", "amax", "amin"):
    for itself in (True, False):
        distinct = np.int64([[2, 0], [1, 3], [0, 1]])
        repeated = np.int64([[2, 2], [1, 3], [0, 0]])
        for ids in (distinct,) if reduce == "assign" else (distinct, repeated):
            inputs = {"Input": data(3, 4), "Index": ids, "Value": data.away(3, 2)}
            add("put_along_axis", Sample(inputs, {"Axis": 1, "Reduce": reduce, "Include_self": itself}, put))
add(
    "put_along_axis",
    Sample({"Input": data(3, 2), "Index": np.int64([[2, 0]]), "Value": data(1, 2)}, {"Axis": 0, "Reduce": "add"}, put),
)

# ------------------------------------------------------------------------------------------------------------- by mask
for mask in (np.array([[True, False, True], [False, False, True]]), np.zeros((2, 3), bool), np.ones((2, 3), bool)):
    count = int(mask.sum())
    add("masked_select", Sample({"X": data(2, 3), "Mask": mask}, {}, lambda X, Mask: X[Mask], shapes_by_value=True))
    add(
        "masked_pick",
        Sample({"X": data(2, 3), "Mask": mask, "Like": data(count)}, {}, lambda X, Mask, Like: X[Mask], wrt=["X"]),
    )

    def placed(X: Any, Mask: Any, Like: Any) -> Any:
        out = np.zeros_like(Like)
        out[Mask] = X
        return out

    add("masked_place", Sample({"X": data(count), "Mask": mask, "Like": data(2, 3)}, {}, placed, wrt=["X"]))


# ------------------------------------------------------------------------------------------------------------- sorting
def sorted_(X: Any, axis: int = -1, descending: bool = False) -> Any:
    order = np.argsort(-X if descending else X, axis, kind="stable")
    return {"Out": np.take_along_axis(X, order, axis), "Indices": order}


for attrs in ({}, {"axis": 0}, {"descending": True}, {"axis": 1, "descending": True}):
    add("argsort", Sample({"X": data.distinct(3, 4)}, attrs, sorted_), Sample({"X": data.ints(3, 4, high=3)}, attrs, sorted_))
add("argsort", Sample({"X": data.distinct(5)}, {}, sorted_), Sample({"X": data(0, 3)}, {}, sorted_))


# --------------------------------------------------------------------------------------------------- choosing and counting
def chosen(X: Any, Ids: Any) -> Any:
    return np.stack([X[which][row] for row, which in enumerate(Ids[:, 0])])


add(
    "multiplex",
    Sample({"X": [data(4, 3), data(4, 3), data(4, 3)], "Ids": np.int32([[2], [0], [2], [1]])}, {}, chosen),
    Sample({"X": [data(2, 3, 2), data(2, 3, 2)], "Ids": np.int32([[1], [0]])}, {}, chosen),
    Sample({"X": [data.ints(3, 2), data.ints(3, 2)], "Ids": np.int64([[1], [0], [0]])}, {}, chosen),
)


def in_shard(X: Any, size: int, shard_id: int, ignore_value: int) -> Any:
    return np.int64([[x % size if x // size == shard_id else ignore_value] for x in X[:, 0]])


for name, shard_size in (("shard_index", lambda count, shards: -(-count // shards)), ("shard_index_by_floor", operator.floordiv)):
    add(
        name,
        *(
            Sample(
                {"X": np.int64([[0], [7], [19], [10]])},
                {"index_num": 20, "nshards": shards, "shard_id": shard, "ignore_value": ignored},
                lambda X, index_num, nshards, shard_id, ignore_value, size=shard_size: in_shard(
                    X, size(index_num, nshards), shard_id, ignore_value
                ),
            )
            for shards, shard, ignored in ((2, 0, -1), (2, 1, -1), (3, 1, 99), (3, 2, -1))
        ),
    )
# Numbers of an implementation that gives those of Paddle 2.6.2 (test_paddle_math.py).
add(
    "hash",
    Sample(
        {"X": np.int64([[1, 2], [3, 4], [5, 6]])},
        {"num_hash": 2, "mod_by": 1000},
        lambda X: HASHED,
    ),
)
HASHED = np.int64([[[524], [896]], [[640], [562]], [[4], [791]]])


def in_order_of_coming(X: Any, dtype: int) -> tuple[Any, Any, Any]:
    values = list(dict.fromkeys(X.tolist()))
    kind = {INT32: "int32", INT64: "int64"}[dtype]
    index = np.array([values.index(x) for x in X.tolist()], kind)
    return np.array(values, X.dtype), index, np.bincount(index).astype(kind)


def unique(X: Any, dtype: int) -> Any:
    out, index, _ = in_order_of_coming(X, dtype)
    return {"Out": out, "Index": index}


def unique_sorted(X: Any, axis: Sequence[int] = (), **given: Any) -> Any:
    out, first, inverse, counts = np.unique(X, True, True, True, axis[0] if axis else None)
    found = {"Out": out}
    for slot, name, value in (
        ("Indices", "return_index", first),
        ("Index", "return_inverse", inverse),
        ("Counts", "return_counts", counts),
    ):
        found[slot] = value.reshape(-1).astype("int64") if given.get(name) else None
    return {slot: value for slot, value in found.items() if value is not None} | (
        {} if given.get("return_inverse") else {"Index": None}
    )


COMING = np.array([3.0, 1.0, 3.0, 2.0, 1.0, 3.0])
for kind in (INT32, INT64):
    add("unique", Sample({"X": COMING}, {"dtype": kind}, unique, shapes_by_value=True))
    add(
        "unique_with_counts",
        Sample(
            {"X": COMING},
            {"dtype": kind},
            lambda X, dtype: dict(zip(("Out", "Index", "Count"), in_order_of_coming(X, dtype), strict=True)),
            shapes_by_value=True,
        ),
    )
ALL = {"is_sorted": True, "return_index": True, "return_inverse": True, "return_counts": True}
add(
    "unique",
    Sample({"X": COMING}, ALL, unique_sorted, shapes_by_value=True),
    Sample({"X": data.ints(3, 4, high=4)}, ALL, unique_sorted, shapes_by_value=True),
    Sample({"X": np.int64([[1, 2], [0, 5], [1, 2]])}, {**ALL, "axis": [0]}, unique_sorted, shapes_by_value=True),
)


def followed(Ids: Any, Parents: Any) -> Any:
    steps, batch, beams = Ids.shape
    out = np.zeros_like(Ids)
    for b in range(batch):
        for beam in range(beams):
            at = beam
            for step in reversed(range(steps)):
                out[step, b, beam] = Ids[step, b, at]
                at = Parents[step, b, at]
    return out


add("gather_tree", Sample({"Ids": data.ints(4, 2, 3, high=9), "Parents": data.ints(4, 2, 3, high=3)}, {}, followed))


def masked(X: Any, maxlen: int = -1, out_dtype: int = INT64, MaxLenTensor: Any = None) -> Any:
    length = int(MaxLenTensor[0]) if MaxLenTensor is not None else maxlen if maxlen > 0 else int(X.max())
    return (np.arange(length) < X[..., None]).astype({INT64: "int64", FP64: "float64"}[out_dtype])


add(
    "sequence_mask",
    Sample({"X": np.int64([2, 0, 3])}, {"maxlen": 4}, masked),
    Sample({"X": np.int64([[2, 0], [3, 1]])}, {"maxlen": 2, "out_dtype": FP64}, masked),
    Sample({"X": np.float64([2, 0, 3])}, {"maxlen": 4}, masked),
    Sample({"X": np.int64([2, 0, 3])}, {}, masked, shapes_by_value=True),
    Sample({"X": np.int64([2, 0, 3]), "MaxLenTensor": np.int32([5])}, {}, masked, shapes_by_value=True),
)


# ----------------------------------------------------------------------------------------------------- writing to a part
def region(
    X: Any, axes: Any, starts: Any, ends: Any, steps: Any, decrease_axes: Any = (), none_axes: Any = (), **tensors: Any
) -> Any:
    index: list[Any] = [slice(None)] * X.ndim
    lists = [tensors.get(name + "TensorList") for name in ("Starts", "Ends", "Steps")]
    bounds = [[int(x[0]) for x in given] if given else other for given, other in zip(lists, (starts, ends, steps), strict=True)]
    for axis, *limits in zip(axes, *bounds, strict=True):
        index[axis] = slice(*limits)
    part = X[tuple(index)].view()
    for axis in sorted(decrease_axes, reverse=True):
        part = part.reshape(part.shape[:axis] + part.shape[axis + 1 :]) if part.base is None else np.squeeze(part, axis)
    for axis in none_axes:
        part = np.expand_dims(part, axis)
    return part


def set_value(Input: Any, ValueTensor: Any = None, values: Any = (), shape: Any = (), dtype: Any = None, **given: Any) -> Any:
    out = Input.copy()
    part = region(out, **given)
    part[...] = ValueTensor if ValueTensor is not None else np.array(values, out.dtype).reshape(shape)
    return out


def part_of(*axes: int, start: int = 0, end: int = 2, step: int = 1, **more: Any) -> dict[str, Any]:
    count = len(axes)
    return {"axes": list(axes), "starts": [start] * count, "ends": [end] * count, "steps": [step] * count, **more}


NUMBER = {"values": [2.5], "shape": [1], "dtype": FP64}
for shape, value, attrs in (
    ((3, 4), (2, 4), part_of(0)),
    ((3, 4), (4,), part_of(0)),
    ((3, 4), (1,), part_of(0, 1)),
    ((3, 4), (2, 2), part_of(0, 1, end=9, step=2)),
    ((3, 4), (2, 4), part_of(0, start=2, end=0, step=-1)),
    ((3, 4), (4,), part_of(0, end=1, decrease_axes=[0])),
    ((3, 4), (2, 1, 4), part_of(0, none_axes=[1])),
    ((3, 4), (1, 2, 4), part_of(0)),
):
    add("set_value", Sample({"Input": data(*shape), "ValueTensor": data(*value)}, attrs, set_value))
    add(
        "region_sum",
        Sample(
            {"X": data(*shape), "Like": data(*value)},
            attrs,
            lambda X, Like, **given: summed_like(region(X, **given), Like),
            wrt=["X"],
        ),
    )
    add("set_value", Sample({"Input": data(*shape)}, {**attrs, **NUMBER}, set_value))


def summed_like(part: Any, like: Any) -> Any:
    shape = (1,) * (part.ndim - like.ndim) + like.shape[max(like.ndim - part.ndim, 0) :]
    axes = tuple(axis for axis, extent in enumerate(shape) if extent == 1)
    return part.sum(axes, keepdims=True).reshape(like.shape).astype(part.dtype)


BOUNDS = {"StartsTensorList": [np.int32([1])], "EndsTensorList": [np.int32([3])], "StepsTensorList": [np.int32([1])]}
AXES = {"axes": [0], "starts": [], "ends": [], "steps": []}
add(
    "set_value",
    Sample({"Input": data(3, 4), "ValueTensor": data(2, 4), **BOUNDS}, AXES, set_value),
    Sample({"Input": data(3, 4), **BOUNDS}, {**AXES, **NUMBER}, set_value),
)
add(
    "region_sum",
    Sample(
        {"X": data(3, 4), "Like": data(1, 4), **BOUNDS},
        AXES,
        lambda X, Like, **given: summed_like(region(X, **given), Like),
        wrt=["X"],
    ),
)

# of several values for an element the last counts
repeated_places = {"Input": data(3, 4), "Index": np.int64([[2, 2], [1, 3], [0, 0]]), "Value": data(3, 2)}
add("put_along_axis", Sample(repeated_places, {"Axis": 1}, put))

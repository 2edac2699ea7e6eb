"""Kernels of `fluid.ops.selection`. Where an output's shape is known only now, the kernel makes and returns it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from fluid.errors import ExecutionError
from fluid.ops.selection import REDUCTIONS
from fluid.ops.shapes import broadcast, slice_of
from fluid.values.types import as_dtype

from .manipulation import check_ids, check_kept_ids, numbers, write_wanted
from .portable import copy, multiply_at, values_in_order
from .sorting import stable_order, take_along_last
from .table import Call, OutArray, Slots, checked, kernel, prepared


# ------------------------------------------------------------------------------------------------ picking along an axis
@checked("take_along_axis")
def check_take_along_axis(Input: Any, Index: Any, Axis: int) -> None:
    check_ids(Index, Input.shape[Axis], "take_along_axis")


@kernel("take_along_axis")
def take_along_axis(xp: Any, Input: Any, Index: Any, Axis: int, Result: Any) -> None:
    xp.copyto(Result, xp.take_along_axis(Input, Index, Axis))


@checked("index_sample")
def check_index_sample(X: Any, Index: Any) -> None:
    check_ids(Index, X.shape[1], "index_sample")


@kernel("index_sample")
def index_sample(xp: Any, X: Any, Index: Any, Out: Any) -> None:
    xp.copyto(Out, xp.take_along_axis(X, Index, 1))


@checked("index_sample_grad")
def check_index_sample_grad(xp: Any, Index: Any, dX: Any) -> None:
    check_kept_ids(xp, Index, -1, dX.shape[1])


@checked("put_along_axis")
def check_put_along_axis(Input: Any, Index: Any, Axis: int) -> None:
    check_ids(Index, Input.shape[Axis], "put_along_axis")


@kernel("put_along_axis")
def put_along_axis(xp: Any, Input: Any, Index: Any, Value: Any, Axis: int, Reduce: str, Include_self: bool, Result: Any) -> None:
    reduce = REDUCTIONS[Reduce]
    xp.copyto(Result, Input)
    if reduce != "assign" and not Include_self:
        neutral = Value if reduce in ("max", "min") else xp.asarray(float(reduce == "mul"), Value.dtype)
        xp.put_along_axis(Result, Index, neutral, Axis)
    grid = list(xp.ogrid[tuple(slice(0, extent) for extent in Index.shape)])
    grid[Axis] = Index
    index = tuple(grid)
    if reduce == "assign":
        Result[index] = values_in_order(xp, Result, index, Value)
    elif reduce != "mul":
        {"add": xp.add, "max": xp.maximum, "min": xp.minimum}[reduce].at(Result, index, Value)
    else:
        multiply_at(xp, Result, index, Value)


# ------------------------------------------------------------------------------------------------------------- by mask
@kernel("masked_select")
def masked_select(X: Any, Mask: Any) -> Any:
    return X[Mask]


@kernel("masked_pick")
def masked_pick(xp: Any, X: Any, Mask: Any, Out: Any) -> None:
    xp.copyto(Out, X[Mask].reshape(Out.shape))


@kernel("masked_place")
def masked_place(X: Any, Mask: Any, Out: Any) -> None:
    if X.size != (count := int(Mask.sum())):
        raise ExecutionError(f"masked_place: X has {X.size} elements, and Mask {count} places for them")
    Out.fill(0)
    Out[Mask] = X.reshape(-1)


# ------------------------------------------------------------------------------------------------------------- sorting
@kernel("argsort")
def argsort(xp: Any, X: Any, axis: int, descending: bool, Out: Any, Indices: Any) -> None:
    rows = xp.moveaxis(X, axis, -1) if X.ndim else X
    order = stable_order(xp, rows if not descending else -rows if X.dtype.kind == "f" else ~rows)
    sorted_rows = take_along_last(xp, rows, order) if Out is not None and X.ndim else rows
    for target, source in ((Indices, order), (Out, sorted_rows)):
        if target is not None:
            xp.copyto(target, xp.moveaxis(source, -1, axis) if X.ndim else source)


@kernel("argsort_grad")
def argsort_grad(xp: Any, Indices: Any, dOut: Any, axis: int, dX: Any) -> None:
    xp.put_along_axis(dX, Indices, dOut, axis)


# --------------------------------------------------------------------------------------------------- choosing and counting
@checked("multiplex")
def check_multiplex(X: list[Any], Ids: Any) -> None:
    check_ids(Ids, len(X), "multiplex")


@kernel("multiplex")
def multiplex(xp: Any, X: list[Any], Ids: Any, Out: Any) -> None:
    ids = Ids.reshape(-1)
    for number, source in enumerate(X):
        xp.copyto(Out, source, where=(ids == number).reshape(-1, *[1] * (Out.ndim - 1)))


@checked("shard_index", "shard_index_by_floor")
def check_shard_index(X: Any, index_num: int) -> None:
    check_ids(X, index_num, "shard_index")


@kernel("shard_index")
def shard_index(xp: Any, X: Any, index_num: int, nshards: int, shard_id: int, ignore_value: int, Out: Any) -> None:
    size = -(-index_num // nshards)
    xp.copyto(Out, xp.where(X // size == shard_id, X % size, ignore_value))


_PRIMES = (11400714785074694791, 14029467366897019727, 1609587929392839161, 9650029242287828579, 2870177450012600261)


def _rotated(xp: Any, words: Any, by: int) -> Any:
    return (words << xp.uint64(by)) | (words >> xp.uint64(64 - by))


def _xxh64(xp: Any, rows: Any, seed: int) -> Any:
    """XXH64 of each row of bytes, whose number is a multiple of four."""
    p1, p2, p3, p4 = (xp.uint64(prime) for prime in _PRIMES[:4])
    width, place = rows.shape[1], 0
    words = rows[:, : width // 8 * 8].copy().view("uint64")

    def mixed(state: Any, word: Any) -> Any:
        return _rotated(xp, state + word * p2, 31) * p1

    if width >= 32:
        starts = (seed + _PRIMES[0] + _PRIMES[1], seed + _PRIMES[1], seed, seed - _PRIMES[0])
        lanes = [xp.full(len(rows), start % 2**64, "uint64") for start in starts]
        while width - 8 * place >= 32:
            lanes = [mixed(lane, words[:, place + number]) for number, lane in enumerate(lanes)]
            place += 4
        digest = sum((_rotated(xp, lane, by) for lane, by in zip(lanes[1:], (7, 12, 18), strict=True)), _rotated(xp, lanes[0], 1))
        for lane in lanes:
            digest = (digest ^ mixed(xp.zeros_like(lane), lane)) * p1 + p4
    else:
        digest = xp.full(len(rows), (seed + _PRIMES[4]) % 2**64, "uint64")
    digest = digest + xp.uint64(width)
    for number in range(place, width // 8):
        digest = _rotated(xp, digest ^ mixed(xp.zeros_like(digest), words[:, number]), 27) * p1 + p4
    if width % 8:
        tail = rows[:, -4:].copy().view("uint32")[:, 0].astype("uint64")
        digest = _rotated(xp, digest ^ (tail * p1), 23) * p2 + p3
    digest = (digest ^ (digest >> xp.uint64(33))) * p2
    digest = (digest ^ (digest >> xp.uint64(29))) * p3
    return digest ^ (digest >> xp.uint64(32))


@kernel("hash")
def hash_(xp: Any, X: Any, num_hash: int, mod_by: int, Out: Any) -> None:
    rows = xp.ascontiguousarray(X).reshape(-1, X.shape[-1]).view("uint8")
    target = Out.reshape(len(rows), num_hash)
    for seed in range(num_hash):
        target[:, seed] = _xxh64(xp, rows, seed) % xp.uint64(mod_by)


def _in_order_of_coming(xp: Any, X: Any) -> tuple[Any, Any, Any]:
    """The distinct elements in the order of their first occurrence, the index of each element among them, and their counts."""
    if xp is np and X.dtype.kind in "iu" and X.size:
        return _integers_in_order_of_coming(X.reshape(-1))
    values, first, inverse, counts = xp.unique(X, return_index=True, return_inverse=True, return_counts=True)
    order = first.argsort()
    rank = xp.empty_like(order)
    rank[order] = xp.arange(len(order))
    return values[order], rank[inverse.reshape(-1)], counts[order]


def _integers_in_order_of_coming(X: Any) -> tuple[Any, Any, Any]:
    order = stable_order(np, X)
    is_new = np.empty(X.shape, bool)
    is_new[0] = True
    np.not_equal(X[order[1:]], X[order[:-1]], is_new[1:])
    first = np.flatnonzero(is_new)
    coming = order[first].argsort()
    rank = np.empty_like(coming)
    rank[coming] = np.arange(len(coming))
    inverse = np.empty_like(order)
    inverse[order] = rank[is_new.cumsum() - 1]
    return X[order[first[coming]]], inverse, np.diff(first, append=X.size)[coming]


@kernel("unique")
def unique(xp: Any, X: Any, axis: list[int], dtype: int, is_sorted: bool, attrs: Slots, Index: Any) -> Any:
    if not is_sorted:
        values, inverse, _ = _in_order_of_coming(xp, X)
        write_wanted((Index, inverse))
        return values
    values, first, inverse, counts = xp.unique(X, True, True, True, axis[0] if axis else None)
    write_wanted((Index, inverse.reshape(-1)))
    more = ((first, attrs["return_index"]), (counts, attrs["return_counts"]))
    return (values, *(array.astype(as_dtype(dtype).numpy) for array, wanted in more if wanted))


@kernel("unique_with_counts")
def unique_with_counts(xp: Any, X: Any, dtype: int, Index: Any) -> Any:
    values, inverse, counts = _in_order_of_coming(xp, X)
    write_wanted((Index, inverse))
    return values, counts.astype(as_dtype(dtype).numpy)


@checked("gather_tree")
def check_gather_tree(Ids: Any, Parents: Any) -> None:
    check_ids(Parents, Ids.shape[2], "gather_tree: Parents")


@kernel("gather_tree")
def gather_tree(xp: Any, Ids: Any, Parents: Any, Out: Any) -> None:
    if not len(Ids):
        return
    beams = xp.broadcast_to(xp.arange(Ids.shape[2]), Ids.shape[1:])
    for step in range(len(Ids) - 1, -1, -1):
        Out[step] = xp.take_along_axis(Ids[step], beams, 1)
        beams = xp.take_along_axis(Parents[step], beams, 1)


@kernel("sequence_mask")
def sequence_mask(xp: Any, X: Any, MaxLenTensor: Any, maxlen: int, out_dtype: int, Y: Any) -> Any:
    length = numbers(MaxLenTensor, None, [maxlen])[0]
    if MaxLenTensor is not None and length <= 0:
        raise ExecutionError(f"sequence_mask: MaxLenTensor is {length}; it should be above 0")
    if length < 0:
        length = int(X.max()) if X.size else 0
    mask = (xp.arange(length) < X[..., None]).astype(as_dtype(out_dtype).numpy)
    if Y is None:
        return mask
    xp.copyto(Y, mask)
    return None


# ----------------------------------------------------------------------------------------------------- writing to a part
def _region(array: Any, tensors: Slots, attrs: Slots) -> Any:
    """The region of `array`, shaped as values to be put there are, as a view."""
    index = [slice(None)] * array.ndim
    names = ("starts", "ends", "steps")
    bounds = [numbers(None, tensors.get(f"{name.capitalize()}TensorList"), attrs[name]) for name in names]
    for axis, *limits in zip(attrs["axes"], *bounds, strict=True):
        index[axis] = slice_of(*limits)
    part = array[tuple(index)]
    part = part[tuple(0 if axis in attrs["decrease_axes"] else slice(None) for axis in range(array.ndim)) + (Ellipsis,)]
    for axis in attrs["none_axes"]:
        part = part[(slice(None),) * axis + (None,)]
    return part


@prepared("set_value", inplace={"Out": "Input"})
def set_value(xp: Any, Input: Any, inputs: Slots, attrs: Slots, Out: Any) -> list[Call]:
    value = inputs.get("ValueTensor")
    if value is None:
        value = xp.asarray(attrs["values"]).astype(Out.dtype).reshape(attrs["shape"])
    tensors = {slot: item for slot, item in inputs.items() if slot.endswith("TensorList")}
    return [*copy(xp, Input, Out), partial(_set_region, Out, tensors, attrs, value)]


def _set_region(Out: OutArray, tensors: Slots, attrs: Slots, value: Any) -> None:
    part = _region(Out, tensors, attrs)
    value = value.reshape(value.shape[max(value.ndim - part.ndim, 0) :])
    if broadcast(part.shape, value.shape) != part.shape:
        raise ExecutionError(f"set_value: values of shape {list(value.shape)} do not broadcast to the region {list(part.shape)}")
    part[...] = value


@kernel("region_sum")
def region_sum(xp: Any, X: Any, inputs: Slots, attrs: Slots, Out: Any) -> None:
    part = _region(X, inputs, attrs)
    shape = (1,) * (part.ndim - Out.ndim) + Out.shape[max(Out.ndim - part.ndim, 0) :]
    axes = tuple(axis for axis, extent in enumerate(shape) if extent == 1 != part.shape[axis])
    xp.copyto(Out, part.sum(axes, keepdims=True).reshape(Out.shape) if axes else part.reshape(Out.shape))

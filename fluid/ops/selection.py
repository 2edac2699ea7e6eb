"""Ops that select, sort, count and place elements by index or by mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ElementTypeError, InferenceError
from ..opdef.composition import means
from ..opdef.registry import NOT_DIFFERENTIABLE, ZERO_GRADIENT, Attr, ShapeOnly, define, ints, least, long, longs, required
from ..values.spec import Spec
from ..values.types import VarType, as_dtype, is_floating
from .elementwise import merged
from .formulas import choose
from .manipulation import LIKE, _picked, like_result_of, sliced_size, transpose_of
from .shapes import broadcast, may_equal, normalize_axes, normalize_axis


# ------------------------------------------------------------------------------------------------ picking along an axis
def _take(Input: Spec, Index: Spec, Axis: int) -> Spec:
    return _picked(Input, Index, Axis)


@define("take_along_axis(Input, Index: int) -> Result", infer=_take, wrt=("Input",), Axis=required("int"))
def take_along_axis(f: Any, Input: ShapeOnly, Index: Any, dResult: Any, Axis: int) -> Any:
    """``Result[.., j, ..] = Input[.., Index[.., j, ..], ..]`` along `Axis`; the other dimensions of Input and Index are equal."""
    return {"Input": f.place(dResult, Index, Input, axis=Axis, ignore_index=-(2**62))}


def _index_sample(X: Spec, Index: Spec) -> Spec:
    if X.ndim != 2:
        raise InferenceError(f"index_sample: X {X} should have two dimensions")
    return _picked(X, Index, 1)


@define(
    "index_sample(X, Index: int) -> Out",
    infer=_index_sample,
    wrt=("X",),
    meaning=means(lambda f, X, Index: f.take_along_axis(X, Index, Axis=1)),
)
def index_sample(f: Any, X: ShapeOnly, Index: Any, dOut: Any) -> Any:
    """``Out[i, j] = X[i, Index[i, j]]``."""
    return {"X": f.place(dOut, Index, X, axis=1, ignore_index=-(2**62))}


REDUCTIONS = {"assign": "assign", "add": "add", "mul": "mul", "multiply": "mul", "amax": "max", "amin": "min"}
"""The attribute `Reduce` of `put_along_axis` -> how values are combined."""


def _put(Input: Spec, Index: Spec, Value: Spec, Axis: int, Reduce: str) -> Spec:
    placed = _picked(Input, Index, Axis)
    if Value.dtype is not Input.dtype or not may_equal(Value.shape, placed.shape):
        raise InferenceError(f"put_along_axis: Value {Value} should be {placed}, shaped as Index and typed as Input {Input}")
    if Reduce not in REDUCTIONS:
        raise InferenceError(f"put_along_axis: Reduce {Reduce!r} should be one of {', '.join(REDUCTIONS)}")
    return Input


def _by_factor(f: Any, Input: Any, Index: Any, Value: Any, dResult: Any, Axis: int, Include_self: bool) -> Any:
    """The gradient of a product by its factors: each has the product of the others, also where factors are 0."""
    is_zero = f.equal(Value, f.fill_zeros_like(Value)).astype(Value.dtype)
    factors = Value + is_zero
    products = f.put_along_axis(Input, Index, factors, Axis=Axis, Reduce="mul", Include_self=Include_self)
    zeros = f.put_along_axis(f.fill_zeros_like(Input), Index, is_zero, Axis=Axis, Reduce="add")
    others_have_none = f.equal(f.take_along_axis(zeros, Index, Axis=Axis), is_zero).astype(Value.dtype)
    return f.take_along_axis(dResult * products, Index, Axis=Axis) / factors * others_have_none


def _counts(f: Any, Input: Any, Index: Any, Value: Any, Axis: int) -> Any:
    """1 for the last of the values that are written to an element, 0 for those before it."""
    number = f.cumsum(f.fill_any_like(Index, value=1.0), axis=Axis)
    last = f.put_along_axis(f.fill_any_like(Input, value=0.0, dtype=Index.dtype), Index, number, Axis=Axis)
    return f.equal(f.take_along_axis(last, Index, Axis=Axis), number).astype(Value.dtype)


@define(
    "put_along_axis(Input, Index: int, Value) -> Result",
    infer=_put,
    wrt=("Input", "Value"),
    Axis=required("int"),
    Reduce="assign",
    Include_self=True,
)
def put_along_axis(
    f: Any, Input: Any, Index: Any, Value: Any, Result: Any, dResult: Any, Axis: int, Reduce: str, Include_self: bool
) -> Any:
    """Input with Value written to ``[.., Index[.., j, ..], ..]`` along `Axis`, or combined with it by `Reduce`: "add", "mul",
    "amax" or "amin".

    Without `Include_self` the elements at Index do not count. Of "mul", gradients of gradients hold where no factor is 0. Of
    "amax" and "amin", each element that equals the result gets its gradient. With "assign", the last value for an element counts,
    and gets the gradient.
    """
    how: dict[str, Any] = {"Axis": Axis, "Include_self": Include_self}
    reduce = REDUCTIONS[Reduce]

    def zeroed() -> Any:
        return f.put_along_axis(dResult, Index, f.fill_zeros_like(Value), Axis=Axis, Reduce="assign")

    if reduce == "mul":
        by_input = zeroed
        if Include_self:
            by_input = lambda: f.put_along_axis(dResult, Index, Value, Reduce="mul", **how)
        return {"Input": by_input, "Value": lambda: _by_factor(f, Input, Index, Value, dResult, **how)}
    if reduce in ("max", "min"):

        def of_value() -> Any:
            is_best = f.equal(Value, f.take_along_axis(Result, Index, Axis=Axis)).astype(Value.dtype)
            return f.take_along_axis(dResult, Index, Axis=Axis) * is_best

        of_input = lambda: dResult * f.equal(Input, Result).astype(Input.dtype)
        return {"Input": of_input if Include_self else zeroed, "Value": of_value}

    def gathered() -> Any:
        return f.take_along_axis(dResult, Index, Axis=Axis)

    if reduce == "add":
        return {"Input": (lambda: f.assign(dResult)) if Include_self else zeroed, "Value": gathered}
    return {"Input": zeroed, "Value": lambda: gathered() * _counts(f, Input, Index, Value, Axis)}


# ------------------------------------------------------------------------------------------------------------- by mask
def _masked(X: Spec, Mask: Spec) -> Spec:
    if Mask.dtype is not VarType.BOOL:
        raise ElementTypeError(f"Mask is {Mask}; it should be of bools")
    merged(X, Mask.with_dtype(X.dtype))
    return X


@define("masked_select(X, Mask: bool) -> Y", infer=lambda X, Mask: _masked(X, Mask).with_shape((-1,)), wrt=("X",))
def masked_select(f: Any, X: ShapeOnly, Mask: Any, dY: Any) -> Any:
    """The elements of X where Mask, of X's shape, is true, as a vector."""
    return {"X": f.masked_place(dY, Mask, X)}


@define("masked_place(X, Mask: bool, Like) -> Out", **transpose_of("masked_select"))
def masked_place(f: Any, X: ShapeOnly, Mask: Any, dOut: Any) -> Any:
    """Zeros of Like's shape with the elements of the vector X, in order, where Mask is true: transposes `masked_select`."""
    return {"X": f.masked_pick(dOut, Mask, X)}


@define("masked_pick(X, Mask: bool, Like) -> Out", **like_result_of("masked_select"))
def masked_pick(f: Any, X: ShapeOnly, Mask: Any, dOut: Any) -> Any:
    """As `masked_select`, with a result known to have the shape of Like."""
    return {"X": f.masked_place(dOut, Mask, X)}


# ------------------------------------------------------------------------------------------------------------- sorting
def _argsort(X: Spec, axis: int) -> tuple[Spec, Spec]:
    normalize_axis(axis, X.ndim)
    return X, X.with_dtype(VarType.INT64)


@define("argsort(X) -> Out, Indices", infer=_argsort, axis=-1, descending=False)
def argsort(f: Any, X: ShapeOnly, Indices: Any, dOut: Any, axis: int) -> Any:
    """X sorted along `axis`, and the indices of its elements in X; the sort is stable.

    Args:
        X: a tensor.
        axis: the dimension to sort along; negative ones count from the end.
        descending: whether the largest element comes first.
    """
    return {"X": f.place(dOut, Indices, X, axis=axis)}


# --------------------------------------------------------------------------------------------------- choosing and counting
def _multiplex(X: Sequence[Spec], Ids: Spec) -> Spec:
    out = merged(*X)
    if out.ndim < 2 or not may_equal(Ids.shape, (out.shape[0], 1)):
        raise InferenceError(f"multiplex: Ids {Ids} should have shape [{out.shape[0] if out.shape else 1}, 1], X 2 dimensions")
    return out


@define("multiplex(X*, Ids: int) -> Out", infer=_multiplex, wrt=("X",))
def multiplex(f: Any, X: ShapeOnly, Ids: Any, dOut: Any) -> Any:
    """Row i of ``X[Ids[i]]`` as row i; Ids has shape [rows, 1].

    Args:
        X: tensors of the same shape ``[rows, ...]``.
        Ids: for each row the number of the tensor that it is taken from, ``[rows, 1]``.
    """

    def chosen(number: int) -> Any:
        same = f.equal(Ids, f.fill_constant(shape=[1], dtype=int(Ids.dtype), value=float(number)))
        return f.elementwise_mul(dOut, same.astype(dOut.dtype), axis=0)

    return {"X": lambda: [chosen(number) for number in range(len(X))]}  # type: ignore[arg-type]  # a list of values


def _shard_index(X: Spec, index_num: int, nshards: int, shard_id: int) -> Spec:
    if is_floating(X.dtype) or not 0 <= shard_id < nshards or index_num < 1:
        raise InferenceError(f"shard_index: X {X} should be of integers, and shard_id {shard_id} in [0, {nshards})")
    return X


_SHARD: dict[str, Any] = {
    "index_num": required("int"),
    "nshards": required("int"),
    "shard_id": required("int"),
    "ignore_value": -1,
}
"""The attributes that name a shard."""


def _in_shard(f: Any, X: Any, shard_size: int, shard_id: int, ignore_value: int) -> Any:
    size = f.fill_any_like(X, value=float(shard_size))
    is_in_shard = f.equal(f.elementwise_floordiv(X, size), f.fill_any_like(X, value=float(shard_id)))
    return choose(f, is_in_shard, f.elementwise_mod(X, size), float(ignore_value))


def _in_shard_by_ceil(f: Any, X: Any, index_num: int, nshards: int, shard_id: int, ignore_value: int) -> Any:
    return _in_shard(f, X, -(-index_num // nshards), shard_id, ignore_value)


def _in_shard_by_floor(f: Any, X: Any, index_num: int, nshards: int, shard_id: int, ignore_value: int) -> Any:
    return _in_shard(f, X, index_num // nshards, shard_id, ignore_value)


def _shard_index_by_floor(X: Spec, index_num: int, nshards: int, shard_id: int) -> Spec:
    if index_num < nshards:
        raise InferenceError(f"shard_index of Paddle 1.6: {index_num} ids should be at least as many as the {nshards} shards")
    return _shard_index(X, index_num, nshards, shard_id)


@define(
    "shard_index(X: int) -> Out",
    infer=_shard_index,
    grad=ZERO_GRADIENT,
    meaning=means(_in_shard_by_ceil),
    **_SHARD,
)
def shard_index() -> None:
    """Ids in [0, `index_num`) as indices in shard `shard_id` of `nshards` equal ones; `ignore_value` for ids of other shards.

    Args:
        X: ids, of any shape.
        index_num: the number of ids.
        nshards: the number of shards, each of ``(index_num + nshards - 1) // nshards`` ids.
        shard_id: which shard, below `nshards`.
        ignore_value: stands for ids of other shards.
    """


@define(
    "shard_index_by_floor(X: int) -> Out",
    infer=_shard_index_by_floor,
    grad=ZERO_GRADIENT,
    composition=means(_in_shard_by_floor),
    **_SHARD,
)
def shard_index_by_floor() -> None:
    """`shard_index` with shards of ``index_num // nshards`` ids, as Paddle 1.6 has it: ids beyond the last shard are in none.

    Args:
        X, index_num, nshards, shard_id, ignore_value: see `shard_index`.
    """


def _hash(X: Spec, num_hash: int) -> Spec:
    if X.ndim < 2 or X.shape[-1] == 0 or X.dtype not in (VarType.INT32, VarType.INT64):
        raise InferenceError(f"hash: X is {X}; it should hold rows of int32 or int64, none of them empty")
    return Spec((*X.shape[:-1], num_hash, 1), X.dtype)


@define("hash(X) -> Out", infer=_hash, grad=ZERO_GRADIENT, num_hash=least(1, 1), mod_by=least(1, long(100000)))
def hash_() -> None:
    """`num_hash` numbers in [0, `mod_by`) for each row of X, by XXH64 of its bytes with the seeds 0, 1, and so on.

    Args:
        X: int32 or int64 ``[..., width]``; the bytes of a row are hashed together.
        num_hash: how many numbers per row.
        mod_by: what the hashes are taken modulo.
    """


def _unique(
    X: Spec, return_index: bool, return_inverse: bool, return_counts: bool, axis: list[int], dtype: int, is_sorted: bool
) -> dict[str, Spec | None]:
    numbers = Spec((-1,), as_dtype(dtype))
    out = X.with_shape((-1,))
    if not is_sorted:
        if X.ndim != 1:
            raise InferenceError(f"unique: X is {X}; unless is_sorted, it should be a vector")
        return {"Out": out, "Index": numbers.with_shape(X.shape)}
    count = X.size
    if axis:
        place = normalize_axis(axis[0], X.ndim)
        count = X.shape[place]
        out = X.with_shape((*X.shape[:place], -1, *X.shape[place + 1 :]))
    return {
        "Out": out,
        "Indices": numbers if return_index else None,
        "Index": numbers.with_shape((count,)) if return_inverse else None,
        "Counts": numbers if return_counts else None,
    }


@define(
    "unique(X) -> Out, Indices?, Index, Counts?",
    infer=_unique,
    grad=NOT_DIFFERENTIABLE,
    return_index=False,
    return_inverse=False,
    return_counts=False,
    axis=ints(),
    dtype=int(VarType.INT64),
    is_sorted=False,
)
def unique() -> None:
    """The distinct elements of the vector X in the order of their first occurrence, and for each element of X its index there.

    Args:
        X: a vector ``[N]``.
        return_index: whether there are Indices, the places of the first occurrences in X; with `is_sorted`.
        return_inverse: whether there is Index, the index in Out of each element of X; always without `is_sorted`.
        return_counts: whether there are Counts, the numbers of occurrences; with `is_sorted`.
        axis: the dimension of the slices that are compared, with `is_sorted`; by default elements are.
        dtype: element type of the indices.
        is_sorted: whether the distinct elements, or slices, are sorted; X may then have any shape.
    """


def _unique_with_counts(X: Spec, dtype: int) -> tuple[Spec, Spec, Spec]:
    if X.ndim != 1:
        raise InferenceError(f"unique_with_counts: X is {X}; it should be a vector")
    numbers = Spec((-1,), as_dtype(dtype))
    return X.with_shape((-1,)), numbers.with_shape(X.shape), numbers


@define(
    "unique_with_counts(X) -> Out, Index, Count", infer=_unique_with_counts, grad=NOT_DIFFERENTIABLE, dtype=int(VarType.INT32)
)
def unique_with_counts() -> None:
    """The distinct elements of the vector X in the order of their first occurrence, for each element of X its index there, and
    the numbers of occurrences.

    Args:
        X: a vector ``[N]``.
        dtype: element type of indices and counts.
    """


def _gather_tree(Ids: Spec, Parents: Spec) -> Spec:
    if Ids.ndim != 3:
        raise InferenceError(f"gather_tree: Ids {Ids} should have shape [steps, batch, beams]")
    return merged(Ids, Parents)


@define("gather_tree(Ids: int, Parents: int) -> Out", infer=_gather_tree, grad=ZERO_GRADIENT)
def gather_tree() -> None:
    """The sequences of a beam search: from the last step back, the ids along the chain of Parents.

    Args:
        Ids: the id that each beam appended in each step, ``[steps, batch, beams]``.
        Parents: of the same shape, the beam of the step before that each beam continues.
    """


def _sequence_mask(X: Spec, MaxLenTensor: Spec | None, maxlen: int, out_dtype: int) -> Spec:
    if MaxLenTensor is None and maxlen == 0:
        raise InferenceError(f"maxlen {maxlen} should be above 0, or -1 for the largest length in X {X}")
    width = maxlen if MaxLenTensor is None and maxlen > 0 else -1
    return Spec((*X.shape, width), as_dtype(out_dtype))


@define(
    "sequence_mask(X: int|float, MaxLenTensor?: int[one]) -> Y",
    infer=_sequence_mask,
    grad=ZERO_GRADIENT,
    maxlen=-1,
    out_dtype=int(VarType.INT64),
)
def sequence_mask() -> None:
    """``Y[..., j] = j < X[...]`` for j below MaxLenTensor or `maxlen`; if neither is given, below the largest number in X."""


# ----------------------------------------------------------------------------------------------------- writing to a part
REGION_SLOTS = "StartsTensorList*?: [one], EndsTensorList*?: [one], StepsTensorList*?: [one]"
_REGION: dict[str, Any] = {
    "axes": longs(),
    "starts": longs(),
    "ends": longs(),
    "steps": longs(),
    "decrease_axes": longs(),
    "none_axes": longs(),
}


def region_shape(shape: Sequence[int], attrs: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape of values for a region of shape `shape`: without `decrease_axes`, with `none_axes` added."""
    dropped = set(attrs["decrease_axes"])
    sizes = [size for axis, size in enumerate(shape) if axis not in dropped]
    for axis in attrs["none_axes"]:
        sizes.insert(axis, 1)
    return tuple(sizes)


def _set_value(inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> Spec:
    Input: Spec = inputs["Input"]
    normalize_axes([*attrs["axes"], *attrs["decrease_axes"]], Input.ndim)
    bounds = [attrs["axes"], attrs["starts"], attrs["ends"], attrs["steps"]]
    by_tensor = any(inputs.get(slot) for slot in ("StartsTensorList", "EndsTensorList", "StepsTensorList"))
    if 0 in attrs["steps"] or (not by_tensor and len({len(bound) for bound in bounds}) > 1):
        raise InferenceError(f"axes, starts, ends and steps {bounds} should be equally long, and no step 0")
    if not by_tensor:
        shape = list(Input.shape)
        for axis, start, end, step in zip(*bounds, strict=True):
            shape[axis] = sliced_size(shape[axis], start, end, step)
        if any(shape[axis] == 0 for axis in attrs["decrease_axes"]):
            raise InferenceError(
                f"the region {shape} of {Input} should have one element along decrease_axes {attrs['decrease_axes']}"
            )
        value = inputs.get("ValueTensor")
        put = value.shape if value is not None else tuple(attrs.get("shape", ()))
        region = region_shape(shape, attrs)
        extra = max(len(put) - len(region), 0)
        if any(size not in (1, -1) for size in put[:extra]) or (
            broadcast(region, put[extra:]) != region and -1 not in (*region, *put)
        ):
            raise InferenceError(
                f"set_value: values of shape {list(put)} do not broadcast to the region {list(region)} of {Input}"
            )
    return Input


@define(
    f"set_value(Input, ValueTensor?, {REGION_SLOTS}) -> Out",
    infer=_set_value,
    wrt=("Input", "ValueTensor"),
    dtype=int(VarType.FP32),
    values=Attr("scalars", []),
    shape=longs(),
    **_REGION,
)
def set_value(
    f: Any,
    ValueTensor: ShapeOnly,
    StartsTensorList: Any,
    EndsTensorList: Any,
    StepsTensorList: Any,
    dOut: Any,
    attrs: dict[str, Any],
) -> Any:
    """Input with a region, as `strided_slice` takes it along `axes`, replaced by ValueTensor or by `values` of shape `shape`.

    The values broadcast to the shape of the region without `decrease_axes` and with `none_axes` added.
    """
    bounds = {"StartsTensorList": StartsTensorList, "EndsTensorList": EndsTensorList, "StepsTensorList": StepsTensorList}
    region = {name: attrs[name] for name in _REGION}
    return {
        "Input": lambda: f.set_value(dOut, **bounds, **region, dtype=attrs["dtype"], values=[0.0], shape=[1]),
        "ValueTensor": lambda: f.region_sum(dOut, ValueTensor, **bounds, **region),
    }


@define(f"region_sum(X, Like, {REGION_SLOTS}) -> Out", **LIKE, **_REGION)
def region_sum(
    f: Any, X: ShapeOnly, StartsTensorList: Any, EndsTensorList: Any, StepsTensorList: Any, dOut: Any, attrs: dict[str, Any]
) -> Any:
    """The region of X that `set_value` would replace, summed to the shape of Like: transposes setting the values."""
    bounds = {"StartsTensorList": StartsTensorList, "EndsTensorList": EndsTensorList, "StepsTensorList": StepsTensorList}
    dtype = int(X.dtype)  # type: ignore[attr-defined]
    return {"X": f.set_value(f.fill_zeros_like(X), dOut, **bounds, **attrs, dtype=dtype)}

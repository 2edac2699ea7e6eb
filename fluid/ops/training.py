"""Ops for training: loss scaling for half precision, sums of parameters for averages, joined tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from ..errors import InferenceError
from ..opdef.composition import means
from ..opdef.registry import NOT_DIFFERENTIABLE, define, long, longs, required
from ..values.spec import Spec
from ..values.types import VarType, as_dtype
from .formulas import as_type_of, at_least, at_most, choose, number_like
from .manipulation import product


def _check_finite(X: Sequence[Spec]) -> tuple[list[Spec], Spec]:
    return list(X), Spec((1,), VarType.BOOL)


def _unscaled(f: Any, X: Sequence[Any], Scale: Any) -> dict[str, Any]:
    scale = f.reshape(Scale, shape=[1])
    finite = [f.reshape(f.reduce_all(f.isfinite_v2(x), reduce_all=True), shape=[1]) for x in X]
    return {
        "Out": [x / as_type_of(x, scale) for x in X],
        "FoundInfinite": f.logical_not(reduce(f.logical_and, finite)),
    }


@define(
    "check_finite_and_unscale(X*: float, Scale: [one]) -> Out*, FoundInfinite",
    infer=_check_finite,
    meaning=means(_unscaled),
    grad=NOT_DIFFERENTIABLE,
)
def check_finite_and_unscale() -> None:
    """Each X divided by Scale, and whether any element of any X is not finite."""


def _rescaled(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    infinite, *before = (
        f.reshape(values[slot], shape=[1]) for slot in ("FoundInfinite", "PrevLossScaling", "InGoodSteps", "InBadSteps")
    )
    scale, good, bad = before
    good, bad = choose(f, f.logical_not(infinite), good + 1, 0), choose(f, infinite, bad + 1, 0)
    shrinks = f.equal(bad, number_like(f, bad, attrs["decr_every_n_nan_or_inf"]))
    grows = f.equal(good, number_like(f, good, attrs["incr_every_n_steps"]))
    scale = f.where(shrinks, at_least(f, scale * attrs["decr_ratio"], 1.0), scale)
    larger = scale * attrs["incr_ratio"]
    scale = f.where(f.logical_and(grows, f.isfinite_v2(larger)), larger, scale)
    after = scale, choose(f, f.logical_not(grows), good, 0), choose(f, f.logical_not(shrinks), bad, 0)
    if values.get("StopUpdate") is not None:
        stops = f.reshape(values["StopUpdate"], shape=[1])
        after = tuple(f.where(stops, *pair) for pair in zip(before, after, strict=True))
    scale, good, bad = before if attrs["stop_update"] else after
    out = [f.where(f.expand_to(infinite, x), f.fill_zeros_like(x), x) for x in values.get("X") or ()]
    return {"Out": out, "LossScaling": scale, "OutGoodSteps": good, "OutBadSteps": bad}


@define(
    "update_loss_scaling(X*?, FoundInfinite: bool[one], PrevLossScaling: [one], InGoodSteps: int[one], InBadSteps: int[one],"
    " StopUpdate?: bool[one]) -> Out*?, LossScaling, OutGoodSteps, OutBadSteps",
    infer=lambda X, PrevLossScaling, InGoodSteps, InBadSteps: (list(X or ()), PrevLossScaling, InGoodSteps, InBadSteps),
    meaning=means(_rescaled),
    grad=NOT_DIFFERENTIABLE,
    incr_every_n_steps=required("int"),
    decr_every_n_nan_or_inf=required("int"),
    incr_ratio=required("float"),
    decr_ratio=required("float"),
    stop_update=False,
)
def update_loss_scaling() -> None:
    """The factor of the loss for the next step, and each X, replaced by zeros if FoundInfinite.

    After `incr_every_n_steps` good steps in a row the factor grows by `incr_ratio`; after `decr_every_n_nan_or_inf` bad ones
    it shrinks by `decr_ratio`, to 1 at least. With `stop_update`, or StopUpdate, factor and counts stay as they are.
    """


_SUMS = ("sum_1", "sum_2", "sum_3")
_COUNTS = ("num_accumulates", "old_num_accumulates", "num_updates")


def _average_accumulates(inputs: Any) -> dict[str, Spec]:
    param = inputs["param"]
    for name in _SUMS:
        if inputs["in_" + name].known and param.known and inputs["in_" + name].shape != param.shape:
            raise InferenceError(f"average_accumulates: in_{name} {inputs['in_' + name]} should be shaped as param {param}")
    return {"out_" + name: inputs["in_" + name] for name in (*_SUMS, *_COUNTS)}


MOST_IN_ONE_SUM = 16384
"""The most steps whose parameters are added to one sum before it is added to another, so that it stays exact."""


def _accumulated(f: Any, values: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    first, second, third = (values["in_" + name] for name in _SUMS)
    count, old, updates = (f.reshape(values["in_" + name], shape=[1]) for name in _COUNTS)
    count, updates, first = count + 1, updates + 1, first + values["param"]

    def is_zero(number: Any) -> Any:
        return f.equal(number, number_like(f, number, 0))

    is_full = is_zero(f.elementwise_mod(updates, number_like(f, updates, MOST_IN_ONE_SUM)))
    share = (updates.astype("float32") * attrs["average_window"]).astype("int64")  # in single precision, as in Paddle
    window = at_most(f, share.astype("float64"), float(attrs["max_average_window"]))
    window = at_least(f, window, float(attrs["min_average_window"]))
    ends = f.greater_equal(count.astype("float64"), window)

    def pick(condition: Any, x: Any, y: Any) -> Any:
        return f.where(f.expand_to(condition, x), x, y)

    zero = f.fill_zeros_like(first)
    first, second = pick(is_full, zero, first), pick(is_full, first + second, second)
    first, second, third = pick(ends, zero, first), pick(ends, zero, second), pick(ends, first + second, third)
    old, count = f.where(ends, count, old), choose(f, f.logical_not(ends), count, 0)
    return {
        f"out_{name}": value for name, value in zip((*_SUMS, *_COUNTS), (first, second, third, count, old, updates), strict=True)
    }


@define(
    f"average_accumulates(param, {', '.join(f'in_{name}: float' for name in _SUMS)},"
    f" {', '.join(f'in_{name}: int[one]' for name in _COUNTS)})"
    f" -> {', '.join('out_' + name for name in (*_SUMS, *_COUNTS))}",
    infer=_average_accumulates,
    meaning=means(_accumulated),
    grad=NOT_DIFFERENTIABLE,
    average_window=0.0,
    max_average_window=long(2**63 - 1),
    min_average_window=long(10000),
)
def average_accumulates() -> None:
    """Sums of a parameter's values over the last steps; `ModelAverage` computes their mean from them.

    The parameter is added to sum_1, which is added to sum_2 every 16384 steps. When the window is full, their sum becomes sum_3,
    and a new window begins. A window has at least `min_average_window` steps, and the integer part of ``num_updates *
    average_window`` steps but at most `max_average_window`.
    """


def coalesced_extent(size: int, itemsize: int, use_align: bool, align_size: int) -> int:
    """The number of elements that a tensor of `size` elements takes up in a joined tensor."""
    if not use_align or size < 0:
        return size
    step = align_size if align_size > 0 else 4096  # as in Paddle on CPUs
    return -(-size * itemsize // step) * step // itemsize


def _coalesce(
    Input: Sequence[Spec], dtype: int, use_align: bool, align_size: int, user_defined_size_of_dtype: int
) -> tuple[list[Spec], Spec]:
    element = as_dtype(dtype)
    itemsize = user_defined_size_of_dtype if user_defined_size_of_dtype > 0 else element.numpy.itemsize
    for spec in Input:
        if spec.dtype is not element:
            raise InferenceError(f"coalesce_tensor: an input is {spec}; all should be {element.text}")
    sizes = [coalesced_extent(product(spec.shape), itemsize, use_align, align_size) for spec in Input]
    return list(Input), Spec((-1 if -1 in sizes else sum(sizes),), element)


@define(
    "coalesce_tensor(Input*) -> Output*, FusedOutput",
    infer=_coalesce,
    grad=NOT_DIFFERENTIABLE,
    dtype=required("int"),
    copy_data=False,
    set_constant=False,
    persist_output=False,
    constant=0.0,
    use_align=True,
    align_size=-1,
    user_defined_size_of_dtype=-1,
    concated_shapes=longs(),
    concated_ranks=longs(),
)
def coalesce_tensor() -> None:
    """The inputs joined into one vector, FusedOutput, and one by one, Output; filled with `constant` if `set_constant`.

    Unlike in Paddle, FusedOutput and Output do not share memory: a later write to one does not change the other.
    """

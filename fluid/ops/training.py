"""Ops for training: loss scaling for half precision, sums of parameters for averages, joined tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InferenceError
from ..opdef.registry import NOT_DIFFERENTIABLE, define, long, longs, required
from ..values.spec import Spec
from ..values.types import VarType, as_dtype
from .manipulation import product


def _check_finite(X: Sequence[Spec]) -> tuple[list[Spec], Spec]:
    return list(X), Spec((1,), VarType.BOOL)


@define("check_finite_and_unscale(X*: float, Scale: [one]) -> Out*, FoundInfinite", infer=_check_finite, grad=NOT_DIFFERENTIABLE)
def check_finite_and_unscale() -> None:
    """Each X divided by Scale, and whether any element of any X is not finite."""


@define(
    "update_loss_scaling(X*?, FoundInfinite: bool[one], PrevLossScaling: [one], InGoodSteps: int[one], InBadSteps: int[one],"
    " StopUpdate?: bool[one]) -> Out*?, LossScaling, OutGoodSteps, OutBadSteps",
    infer=lambda X, PrevLossScaling, InGoodSteps, InBadSteps: (list(X or ()), PrevLossScaling, InGoodSteps, InBadSteps),
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


@define(
    f"average_accumulates(param, {', '.join(f'in_{name}: float' for name in _SUMS)},"
    f" {', '.join(f'in_{name}: int[one]' for name in _COUNTS)})"
    f" -> {', '.join('out_' + name for name in (*_SUMS, *_COUNTS))}",
    infer=_average_accumulates,
    grad=NOT_DIFFERENTIABLE,
    average_window=0.0,
    max_average_window=long(2**63 - 1),
    min_average_window=long(10000),
)
def average_accumulates() -> None:
    """Sums of a parameter's values over the last steps; `ModelAverage` computes their mean from them.

    The parameter is added to sum_1, which is added to sum_2 every 16384 steps. When the window is full, their sum becomes sum_3,
    and a new window begins. A window has at least `min_average_window` steps, and ``num_updates * average_window`` steps but at
    most `max_average_window`.
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

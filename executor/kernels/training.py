"""Kernels of `fluid.ops.training`."""

from __future__ import annotations

from typing import Any

from fluid.ops.training import coalesced_extent

from .manipulation import write_wanted
from .table import kernel


@kernel("check_finite_and_unscale")
def check_finite_and_unscale(xp: Any, X: list[Any], Scale: Any, Out: list[Any], FoundInfinite: Any) -> None:
    scale = Scale.reshape(())
    infinite = sum((xp.logical_not(xp.isfinite(x)).any() for x in X), xp.zeros((), bool))
    for x, out in zip(X, Out or (), strict=False):
        if out is not None:
            xp.divide(x, scale.astype(x.dtype), out=out)
    write_wanted((FoundInfinite, infinite))


@kernel("update_loss_scaling")
def update_loss_scaling(
    xp: Any,
    X: list[Any] | None,
    FoundInfinite: Any,
    PrevLossScaling: Any,
    InGoodSteps: Any,
    InBadSteps: Any,
    StopUpdate: Any,
    incr_every_n_steps: int,
    decr_every_n_nan_or_inf: int,
    incr_ratio: float,
    decr_ratio: float,
    stop_update: bool,
    Out: list[Any],
    LossScaling: Any,
    OutGoodSteps: Any,
    OutBadSteps: Any,
) -> None:
    infinite = bool(FoundInfinite.reshape(-1)[0])
    for x, out in zip(X or (), Out or (), strict=False):
        if out is not None:
            if infinite:
                out.fill(0)
            elif out is not x:
                xp.copyto(out, x)
    scale = PrevLossScaling.reshape(-1)[0].item()
    good, bad = int(InGoodSteps.reshape(-1)[0]), int(InBadSteps.reshape(-1)[0])
    if not (stop_update if StopUpdate is None else bool(StopUpdate.reshape(-1)[0])):
        good, bad = (0, bad + 1) if infinite else (good + 1, 0)
        if bad == decr_every_n_nan_or_inf:
            scale, bad = max(scale * decr_ratio, 1.0), 0
        if good == incr_every_n_steps:
            grown = LossScaling.dtype.type(scale * incr_ratio) if LossScaling is not None else scale
            scale, good = (grown if xp.isfinite(grown) else scale), 0
    write_wanted((LossScaling, scale), (OutGoodSteps, good), (OutBadSteps, bad))


MOST_IN_ONE_SUM = 16384


@kernel("average_accumulates")
def average_accumulates(
    xp: Any,
    param: Any,
    in_sum_1: Any,
    in_sum_2: Any,
    in_sum_3: Any,
    in_num_accumulates: Any,
    in_old_num_accumulates: Any,
    in_num_updates: Any,
    average_window: float,
    max_average_window: int,
    min_average_window: int,
    out_sum_1: Any,
    out_sum_2: Any,
    out_sum_3: Any,
    out_num_accumulates: Any,
    out_old_num_accumulates: Any,
    out_num_updates: Any,
) -> None:
    counts = (in_num_accumulates, in_old_num_accumulates, in_num_updates)
    count, old_count, updates = (int(number.reshape(-1)[0]) for number in counts)
    updates, count = updates + 1, count + 1
    sums = [in_sum_1 + param, in_sum_2, in_sum_3]
    if updates % MOST_IN_ONE_SUM == 0:
        sums = [xp.zeros_like(param), sums[0] + in_sum_2, in_sum_3]
    if count >= min_average_window and count >= min(max_average_window, updates * average_window):
        sums = [xp.zeros_like(param), xp.zeros_like(param), sums[0] + sums[1]]
        count, old_count = 0, count
    write_wanted(*zip((out_sum_1, out_sum_2, out_sum_3), sums, strict=True))
    write_wanted((out_num_accumulates, count), (out_old_num_accumulates, old_count), (out_num_updates, updates))


@kernel("coalesce_tensor")
def coalesce_tensor(
    xp: Any,
    Input: list[Any],
    set_constant: bool,
    constant: float,
    use_align: bool,
    align_size: int,
    user_defined_size_of_dtype: int,
    Output: list[Any],
    FusedOutput: Any,
) -> None:
    if FusedOutput is not None:
        itemsize = user_defined_size_of_dtype if user_defined_size_of_dtype > 0 else FusedOutput.itemsize
        FusedOutput.fill(constant if set_constant else 0)
        start = 0
        for source in Input:
            if not set_constant:
                FusedOutput[start : start + source.size] = source.reshape(-1)
            start += coalesced_extent(source.size, itemsize, use_align, align_size)
    for source, target in zip(Input, Output or (), strict=False):
        if target is None:
            continue
        if set_constant:
            target.fill(constant)
        elif target is not source:
            xp.copyto(target, source)

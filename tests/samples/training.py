"""Samples of `fluid.ops.training`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fluid.values.types import VarType

from .base import Data, Sample, add

data = Data("training")


def unscaled(X: Any, Scale: Any) -> Any:
    return {"Out": [x / Scale.astype(x.dtype) for x in X], "FoundInfinite": np.array([any(not np.isfinite(x).all() for x in X)])}


INFINITE = np.array([1.0, np.inf])
for tensors in ([data(2, 3), data(4)], [data(2, 3), INFINITE], [np.array([np.nan])]):
    add("check_finite_and_unscale", Sample({"X": tensors, "Scale": np.array([8.0])}, {}, unscaled))


def rescaled(
    X: Any,
    FoundInfinite: Any,
    PrevLossScaling: Any,
    InGoodSteps: Any,
    InBadSteps: Any,
    incr_every_n_steps: int,
    decr_every_n_nan_or_inf: int,
    incr_ratio: float,
    decr_ratio: float,
    stop_update: bool = False,
    StopUpdate: Any = None,
) -> Any:
    scale, good, bad = PrevLossScaling.copy(), InGoodSteps.copy(), InBadSteps.copy()
    if not stop_update and not (StopUpdate is not None and StopUpdate[0]):
        if FoundInfinite[0]:
            good[0], bad[0] = 0, bad[0] + 1
            if bad[0] == decr_every_n_nan_or_inf:
                scale[0], bad[0] = max(1.0, scale[0] * decr_ratio), 0
        else:
            good[0], bad[0] = good[0] + 1, 0
            if good[0] == incr_every_n_steps:
                scale[0], good[0] = scale[0] * incr_ratio, 0
    out = [np.zeros_like(x) if FoundInfinite[0] else x for x in X]
    return {"Out": out, "LossScaling": scale, "OutGoodSteps": good, "OutBadSteps": bad}


EVERY = {"incr_every_n_steps": 3, "decr_every_n_nan_or_inf": 2, "incr_ratio": 2.0, "decr_ratio": 0.5}
for infinite in (True, False):
    for good, bad, scale in ((0, 0, 8.0), (2, 1, 8.0), (2, 1, 1.5)):
        inputs = {
            "X": [data(2, 3), data(2)],
            "FoundInfinite": np.array([infinite]),
            "PrevLossScaling": np.array([scale]),
            "InGoodSteps": np.int32([good]),
            "InBadSteps": np.int32([bad]),
        }
        add("update_loss_scaling", Sample(inputs, EVERY, rescaled))
        add("update_loss_scaling", Sample(inputs, {**EVERY, "stop_update": True}, rescaled))
        add("update_loss_scaling", Sample({**inputs, "StopUpdate": np.array([True])}, EVERY, rescaled))


def accumulated(
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
) -> Any:
    updates, count, old = in_num_updates + 1, in_num_accumulates + 1, in_old_num_accumulates
    first, second, third = in_sum_1 + param, in_sum_2, in_sum_3
    if updates[0] % 16384 == 0:
        first, second = np.zeros_like(param), second + first
    if count[0] >= min_average_window and count[0] >= min(max_average_window, int(updates[0] * average_window)):
        third, first, second, old, count = first + second, np.zeros_like(param), np.zeros_like(param), count, np.int64([0])
    numbers = {"out_num_accumulates": count, "out_old_num_accumulates": old, "out_num_updates": updates}
    return {"out_sum_1": first, "out_sum_2": second, "out_sum_3": third, **numbers}


WINDOW = {"average_window": 0.5, "max_average_window": 20, "min_average_window": 2}
for counts in ((0, 0, 0), (1, 5, 3), (1, 5, 4), (1, 5, 30), (19, 5, 300), (3, 0, 16383)):
    add(
        "average_accumulates",
        Sample(
            {
                **{slot: data(2, 3) for slot in ("param", "in_sum_1", "in_sum_2", "in_sum_3")},
                "in_num_accumulates": np.int64([counts[0]]),
                "in_old_num_accumulates": np.int64([counts[1]]),
                "in_num_updates": np.int64([counts[2]]),
            },
            WINDOW,
            accumulated,
        ),
    )

FP32 = int(VarType.FP32)


def coalesced(Input: Any, **attrs: Any) -> Any:
    parts = [np.full_like(x, attrs["constant"]) if attrs.get("set_constant") else x for x in Input]
    step = attrs.get("align_size", 4096) // 4 if attrs.get("use_align", True) else 1
    fill = attrs["constant"] if attrs.get("set_constant") else 0
    padded = [np.concatenate([x.reshape(-1), np.full(-x.size % step, fill, x.dtype)]) for x in parts]
    return {"Output": parts, "FusedOutput": np.concatenate(padded)}


for attrs in (
    {"copy_data": True, "use_align": False},
    {"copy_data": True},
    {"set_constant": True, "constant": 0.5, "align_size": 32},
):
    add(
        "coalesce_tensor",
        Sample({"Input": [data(2, 3), data(4), data()]}, {"dtype": FP32, **attrs}, coalesced, dtypes=["float32"]),
    )

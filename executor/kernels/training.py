"""Kernels of `fluid.ops.training`."""

from __future__ import annotations

from typing import Any

from fluid.ops.training import coalesced_extent

from .table import kernel


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

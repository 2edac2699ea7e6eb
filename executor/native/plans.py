"""Inserts native code into plans. Importing this module imports all modules that lower ops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fluid.ir.versions import Value
from fluid.values.spec import Spec

from . import (  # noqa: F401  (they register lowerings)
    activation_lowering,
    complex_lowering,
    einsum_lowering,
    fourier_lowering,
    image_lowering,
    loss_lowering,
    ops,
    recurrent,
    reduction_lowering,
    shape_lowering,
)
from .image_blocks import in_blocks, regions_of
from .kernel_calls import find_calls
from .regions import native_regions
from .target import Target
from .verifying import verify_order, verify_partial_sums, verify_writes

__all__ = ["with_native_code"]


def with_native_code(
    instructions: Sequence[Any],
    specs: dict[Value, Spec],
    live_out: Iterable[Value],
    storage: Mapping[str, Spec],
    target: Target,
    fewest: int,
) -> list[Any]:
    """Replace ops of a plan by native regions, and verify the result (see `native_regions`)."""
    results = native_regions(instructions, specs, live_out, storage, target, fewest)
    results = in_blocks(results, specs, storage, target)
    regions = list(regions_of(results))
    verify_order(results, storage)
    verify_writes(instructions, results)
    verify_partial_sums(regions, storage)
    find_calls(regions)
    return results

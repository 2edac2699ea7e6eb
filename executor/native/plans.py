"""What plans ask of native code: it is loaded when the first of them does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fluid.ir.versions import Value
from fluid.values.spec import Spec

from . import activation_lowering, loss_lowering, ops, recurrent, reduction_lowering, shape_lowering  # noqa: F401  (say how ops are lowered)
from .compiler import host
from .instructions import OWN
from .regions import Region, native_regions
from .tables import Tables

__all__ = ["Tables", "with_native_code"]


def with_native_code(
    instructions: Sequence[Any], specs: dict[Value, Spec], kept: Iterable[Value], storage: Mapping[str, Spec]
) -> list[Any]:
    """The instructions of a plan, with native code of this processor in the place of ops (see `native_regions`)."""
    results = native_regions(instructions, specs, kept, storage, host().vector_bytes // 4)
    _verify(results)
    return results


def _verify(instructions: Sequence[Any]) -> None:
    """Hold instructions to their order: what regions hand to each other is written before it is read."""
    written: set[Value] = set()
    for instruction in instructions:
        if isinstance(instruction, Region):
            for value in instruction.read:
                assert value in written or not value[0].startswith(OWN), f"{instruction.describe()} reads {value[0]} too early"
            written.update(instruction.written)

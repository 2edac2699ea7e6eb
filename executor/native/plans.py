"""What plans ask of native code: it is loaded when the first of them does."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from fluid.ir.versions import Value
from fluid.values.spec import Spec

from . import (  # noqa: F401  (say how ops are lowered)
    activation_lowering,
    compiler,
    loss_lowering,
    ops,
    optimizer_lowering,
    recurrent,
    reduction_lowering,
    shape_lowering,
)
from .image_blocks import in_blocks, regions_of
from .instructions import OWN, NativeInstruction, is_persistable, values_read
from .kernel_calls import find_calls
from .regions import native_regions
from .tables import Tables

__all__ = ["Tables", "with_native_code"]


def with_native_code(
    instructions: Sequence[Any], specs: dict[Value, Spec], kept: Iterable[Value], storage: Mapping[str, Spec], fewest: int
) -> list[Any]:
    """The instructions of a plan, with native code of this processor in the place of ops (see `native_regions`)."""
    target = compiler.host()
    results = native_regions(instructions, specs, kept, storage, target, fewest)
    results = in_blocks(results, specs, storage, target)
    _verify_order(results, storage)
    _verify_writes(instructions, results)
    find_calls(regions_of(results))
    return results


def _verify_order(instructions: Sequence[Any], storage: Container[str]) -> None:
    """Assert that each value is written before it is read, and read before its memory is overwritten."""
    written: set[Value] = set()
    versions: dict[str, int] = {}
    for instruction in instructions:
        for name, version in values_read(instruction):
            is_there = versions.get(name, 0) == version if name in storage else (name, version) in written
            assert is_there or not (name in storage or name.startswith(OWN)), f"{_told(instruction)} reads {name} at a wrong time"
        for name, version in instruction.written:
            assert versions.get(name, 0) <= version or name not in storage, f"{_told(instruction)} writes {name} too late"
            versions[name] = version
            written.add((name, version))


def _verify_writes(given: Sequence[Any], instructions: Sequence[Any]) -> None:
    """Assert that the last value of each variable of the scope that the given instructions write is still written."""
    written = {value for instruction in instructions for value in instruction.written}
    last = {name: (name, version) for each in given for name, version in each.written if is_persistable(each.op, name)}
    lost = [name for name, value in last.items() if value not in written]
    assert not lost, f"no instruction writes {', '.join(lost)}"


def _told(instruction: Any) -> str:
    return instruction.describe() if isinstance(instruction, NativeInstruction) else str(instruction.op.type)

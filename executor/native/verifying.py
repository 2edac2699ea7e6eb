"""Verifies plans with native code before they run: an error is a `NativeFault`, and the program then runs on numpy.

Each of these faults once gave silently wrong results. Verification takes a small part of the planning time, and no time in a
run.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fluid.ir.versions import Value
from fluid.values.spec import Spec

from .fallback import fault
from .instructions import NATIVE_PREFIX, KernelCall, is_persistable

if TYPE_CHECKING:
    from .bounds import Footprint
    from .regions import NativeRegion


def verify_order(instructions: Sequence[Any], storage: Container[str], specs: Mapping[Value, Spec]) -> None:
    """Verify that each value is written before it is read, and read before its memory is overwritten.

    Args:
        storage: names whose values live in the scope, where they are overwritten in place.
        specs: the specs of values; nothing writes those without elements.
    """
    defined: set[Value] = set()
    versions: dict[str, int] = {}
    for instruction in instructions:
        for value in instruction.read_within:
            name, version = value
            is_present = versions.get(name, 0) == version if name in storage else value in defined
            is_computed = bool(version) and value in specs and specs[value].size != 0
            if not is_present and (is_computed or name in storage or name.startswith(NATIVE_PREFIX)):
                raise fault(f"{instruction.describe()} reads {name} at a wrong time")
        for name, version in instruction.written:
            if name in storage and version < versions.get(name, 0):
                raise fault(f"{instruction.describe()} writes {name} too late")
            versions[name] = version
            defined.add((name, version))


def verify_writes(originals: Sequence[Any], instructions: Sequence[Any]) -> None:
    """Verify that `instructions` write the final value of each scope variable that the original instructions wrote."""
    stored = {value for instruction in instructions for value in instruction.written}
    last = {name: (name, version) for op in originals for name, version in op.written if is_persistable(op.op, name)}
    lost = [name for name, value in last.items() if value not in stored]
    if lost:
        raise fault(f"no instruction writes {', '.join(lost)}")


def verify_partial_sums(regions: Iterable[NativeRegion], storage: Container[str]) -> None:
    """Verify that a kernel with partial sums in its output reads nothing else from that memory."""
    for region in regions:
        if (output := region.keeps_partial_sums_in) is None:
            continue
        for value in region.read:
            if value == output or (value[0] == output[0] and value[0] in storage):
                raise fault(f"{region.describe()} keeps partial sums in {output[0]}, which it reads")


def verify_accesses(
    calls: Iterable[KernelCall],
    footprints: Mapping[str, Sequence[Footprint]],
    size: Callable[[Value], int],
    workspace_bytes: int,
) -> None:
    """Verify that each kernel accesses only memory within its operands' arrays.

    Args:
        footprints: signature of a kernel -> the footprint of each operand.
        size: value -> bytes of its array.
    """
    sizes: dict[Value | None, int] = {None: workspace_bytes}
    for kernel, operands, _ in calls:
        of_kernel = footprints[kernel]
        if len(of_kernel) != len(operands):
            raise fault(f"a kernel of {len(of_kernel)} operands is given {len(operands)}")
        for (value, offset), (low, high) in zip(operands, of_kernel, strict=True):
            if value not in sizes:
                sizes[value] = size(value)  # type: ignore[arg-type]
            end = sizes[value]
            if (offset + low < 0 or offset + high > end) and low < high:
                name = "the workspace" if value is None else value[0]
                raise fault(f"a kernel accesses bytes {offset + low} to {offset + high} of {name}, which has {end}")

"""Writes the kernels that test ids: see `native_checks`."""

from __future__ import annotations

from collections.abc import Sequence

from .emitter import BOOL, BYTE, INT64, Function, Value, constant
from .emitter import Operand as Index
from .id_ranges import RangeTest
from .images import parts
from .instructions import WrittenKernel
from .kernel import Share, written_kernel
from .lowering import ELEMENTS
from .target import Target

__all__ = ["written_stop", "written_tests"]


def written_stop(target: Target, name: str) -> WrittenKernel:
    """Write a stand-in for the record that stops a table, which calls no kernel: it reads a byte."""

    def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
        f.load(f.at(pointers[0], 0, BYTE), BYTE)

    return written_kernel(name, 1, body, target)


def written_tests(tests: Sequence[RangeTest], target: Target, name: str) -> WrittenKernel:
    """Write a kernel whose first operand gets the number of the first check that fails, or 0."""

    def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
        failed = f.int64(0)
        for test in reversed(tests):
            is_wrong = _is_any_outside(f, test, pointers[test.operand], target)
            failed = f.select(is_wrong, f.int64(test.check), failed)
        f.loop(*share.of(f, 1), 1, [], lambda _: f.store_number(f.convert(failed, BYTE), f.at(pointers[0], 0, BYTE)))

    return written_kernel(name, 1 + max((test.operand for test in tests), default=0), body, target)


def _is_any_outside(f: Function, test: RangeTest, ids: Value, target: Target) -> Value:
    """Whether any of some ids is out of its range."""
    element, one = ELEMENTS[test.spec.dtype], test.id_range
    count = len(range(one.first, test.spec.size, one.step))
    lanes = target.lanes(INT64.bytes) if one.step == 1 else 1

    def outside(i: Index, wrong: Value, width: int) -> Value:
        place = f.at(ids, f.add(f.mul(f.int64(i), one.step), one.first), element)
        number = f.load(place, element.of(width))
        if element.is_float:  # NaN is outside, too
            is_outside = f.bit_or(f.compare("ult", number, 0.0), f.compare("ugt", number, float(one.extent)))
        else:  # as unsigned, a negative id is too great; the ignored one may be beyond 32 bits
            number = f.convert(number, INT64)
            is_outside = f.compare("uge", number, one.extent)
        if one.ignored is not None:
            is_outside = f.bit_and(is_outside, f.compare("ne", number, one.ignored))
        return f.bit_or(wrong, is_outside)

    whole = count // lanes * lanes
    none = constant(0, BOOL.of(lanes))
    (wrong,) = f.loop(0, whole, lanes, [none], lambda i, wrong: [outside(i, wrong, lanes)])
    result = f.any(wrong)
    for start, width in parts(count - whole, lanes):
        result = f.bit_or(result, f.any(outside(whole + start, constant(0, BOOL.of(width)), width)))
    return result

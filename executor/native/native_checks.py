"""Checks of ids, labels and small matrices as native code: a wrong value stops the table, and numpy's check then reports it.

This module is short because plans import it; `id_kernels` writes the kernels.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fluid.ir.versions import Value
from fluid.values.spec import Spec
from fluid.values.types import VarType

from .id_ranges import LabelTest, Test, ValueTest, tests_of, values_of
from .instructions import NATIVE_PREFIX, STOP, Check, KernelCall, NativeInstruction, Operand, Writer, WrittenKernel
from .target import Target

FAILED: Value = (f"{NATIVE_PREFIX}failed", 0)
"""One byte: the number of the check that has failed in a run, or 0."""
SPEC_OF_FAILED = Spec((1,), VarType.UINT8)
"""The spec of `FAILED`."""
MOST_CHECKS = 255


class NativeCheck(NativeInstruction):
    """Tests the values of neighbouring checks. If one is wrong, the records behind the check are skipped.

    Args:
        checks: number of a check -> the check and its tests.
        target: the processor.
    """

    is_check = True

    def __init__(self, checks: Mapping[int, tuple[Check, Sequence[Test]]], target: Target) -> None:
        self.checks: dict[int, Check] = {number: check for number, (check, _) in checks.items()}
        self.ops = [check.op for check in self.checks.values()]
        self.written, self.layouts, self.shares, self.workspace_bytes = [FAILED], {}, {}, 0
        tested = list(dict.fromkeys(value for _, tests in checks.values() for test in tests for value in values_of(test)))
        tests = [
            ValueTest(
                number,
                [1 + tested.index(value) for value in values_of(test)],
                [check.specs[value] for value in values_of(test)],
                test,
            )
            for number, (check, of_check) in checks.items()
            for test in of_check
        ]
        operands: list[Operand] = [(FAILED, 0), *((value, 0) for value in tested)]
        self.read = list(dict.fromkeys(value for check in self.checks.values() for value in check.read))
        signature = f"check {[_description(test) for test in tests]}"
        self.calls = [KernelCall(signature, operands, is_serial=True), KernelCall(STOP, [(FAILED, 0)], is_serial=False)]
        self.writers: dict[str, Writer] = {signature: partial(_write_tests, tests, target), STOP: partial(_write_stop, target)}

    def describe(self) -> str:
        return f"check ids: {', '.join(check.op.type for check in self.checks.values())}"

    def line(self, outs: str, ins: str) -> str:
        return f"check what {', '.join(check.op.type for check in self.checks.values())} reads: {ins}"


def _description(test: ValueTest) -> tuple[Any, ...]:
    """Everything that the code of a test depends on."""
    check, operands, specs, wanted = test
    nameless: Test = replace(wanted, value=("", 0))
    if isinstance(nameless, LabelTest):
        nameless = replace(nameless, lengths=("", 0))
    return check, operands, [(int(spec.dtype), spec.shape) for spec in specs], nameless


def _write_tests(tests: Sequence[ValueTest], target: Target, name: str) -> WrittenKernel:
    from .id_kernels import written_tests

    return written_tests(tests, target, name)


def _write_stop(target: Target, name: str) -> WrittenKernel:
    from .id_kernels import written_condition

    return written_condition(target, name)


def with_native_checks(instructions: Sequence[Any], specs: dict[Value, Spec], target: Target, first_number: int = 1) -> list[Any]:
    """Replace checks by native ones, so that the native instructions around them form one table. Adds the spec of `FAILED`."""
    results: list[Any] = []  # a dict holds the checks of one native instruction
    number = first_number
    for instruction in instructions:
        tests = tests_of(instruction) if isinstance(instruction, Check) and number <= MOST_CHECKS else None
        if tests is None:
            results.append(instruction)
        elif tests:
            if not (results and isinstance(results[-1], dict)):
                results.append({})
            results[-1][number] = instruction, tests
            number += 1
    if number > first_number:
        specs[FAILED] = SPEC_OF_FAILED
    return [NativeCheck(item, target) if isinstance(item, dict) else item for item in results]


def checks_of(instructions: Collection[Any]) -> dict[int, Check]:
    """Number -> the check, for all checks that native code makes; their numbers are stored in `FAILED`."""
    return {number: check for item in instructions for number, check in item.checks.items()}

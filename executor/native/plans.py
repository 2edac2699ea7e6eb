"""Inserts native code into plans. Importing this module imports all modules that lower ops."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, count
from typing import Any

from fluid.ir.regions import region_of
from fluid.ir.versions import Value
from fluid.values.spec import Spec

from ..stepwise.loop_body import BRANCHES, CHOICES
from . import (  # noqa: F401  (they register lowerings)
    activation_lowering,
    complex_lowering,
    ctc_lowering,
    einsum_lowering,
    fourier_lowering,
    grid_lowering,
    image_lowering,
    loss_lowering,
    matrix_lowering,
    metric_lowering,
    ops,
    recurrent,
    reduction_lowering,
    resampling_lowering,
    shape_lowering,
    sort_lowering,
    tree_lowering,
    volume_lowering,
)
from .branches import Branch, Branches, Guard
from .image_blocks import in_blocks, regions_of
from .kernel_calls import find_calls
from .lowering import NotLowered
from .op_instructions import OpInstruction
from .regions import native_regions
from .target import Target
from .verifying import verify_order, verify_partial_sums, verify_writes


def with_native_code(
    instructions: Sequence[Any],
    specs: dict[Value, Spec],
    live_out: Iterable[Value],
    storage: Mapping[str, Spec],
    target: Target,
    fewest: int,
    constants: Container[str] = (),
) -> list[Any]:
    """Replace ops of a plan by native regions for a processor, and verify the result (see `native_regions`).

    A branch becomes native if all ops of its block and of its gradient's block do.

    Raises:
        NotLowered: the instructions contain a `Branch` that cannot become native.
    """
    live_out, stepwise = list(live_out), set[int]()
    while True:
        all_specs = dict(specs)
        try:
            attempt = _Attempt(instructions, all_specs, live_out, storage, target, stepwise, constants)
            results = attempt.results(fewest)
            break
        except _RefusedError as error:
            if not error.numbers or error.numbers <= stepwise:
                raise NotLowered("a branch with an op that is not native") from error
            stepwise |= error.numbers
    specs.update(all_specs)
    regions = list(regions_of(results))
    verify_order(results, storage, specs)
    verify_writes(instructions, results)
    verify_partial_sums(regions, storage)
    find_calls(regions)
    return results


class _RefusedError(Exception):
    """Some ops that own branches, or choose among them, have to run step by step.

    Args:
        numbers: their numbers; empty if they have none.
    """

    def __init__(self, numbers: Iterable[int]) -> None:
        super().__init__()
        self.numbers = {number for number in numbers if number >= 0}


class _Attempt:
    """Native code for a plan whose refused ops run step by step.

    Args:
        target: the processor.
        stepwise: the numbers of these ops.
        constants: names of variables of the scope that never change. Branches do not use them: matrices are packed when the plan
            is bound, and code of branches never runs then.
    """

    def __init__(
        self,
        instructions: Sequence[Any],
        specs: dict[Value, Spec],
        live_out: Sequence[Value],
        storage: Mapping[str, Spec],
        target: Target,
        stepwise: Container[int],
        constants: Container[str],
    ) -> None:
        self._instructions, self._specs, self._live_out, self._storage = instructions, specs, live_out, storage
        self._stepwise, self._target, self._constants, self._tags = stepwise, target, constants, count(1)

    def results(self, fewest: int) -> list[Any]:
        """The instructions with native code; raises `_RefusedError` if more ops have to run step by step."""
        if not any(item.is_op and item.op.type in BRANCHES for item in self._instructions):
            return self._native(self._instructions, self._live_out, fewest, {}, "")
        read = {*self._live_out, *chain.from_iterable(item.read_within for item in self._instructions)}
        computed = chain.from_iterable(instruction.written for instruction in self._instructions)
        unread = {value for value in computed if value not in read and value[0] not in self._storage}
        branches = Branches(self._specs, self._storage, unread)
        items: list[Any] = []
        number_of: dict[int, int] = {}
        for number, instruction in enumerate(self._instructions):
            branches.number = number
            expanded = self._expanded(branches, number, instruction)
            number_of |= {id(item): number for item in expanded}
            items += expanded
        self._require_no_readers(branches.only_if, items)
        results = self._native(items, self._live_out, fewest, {}, "")
        left = {number_of[id(item)] for item in results if isinstance(item, OpInstruction)}
        if left:
            raise _RefusedError(left)
        return results

    def _expanded(self, branches: Branches, number: int, instruction: Any) -> list[Any]:
        if number not in self._stepwise:
            count_before = len(self._specs)
            with suppress(NotLowered):
                return branches.expand(instruction)
            while len(self._specs) > count_before:  # a result of a branch that runs step by step may not exist
                self._specs.popitem()
        region = region_of(instruction.op) if instruction.op.type in BRANCHES else None
        if region is not None and region.frames in branches.frames:
            raise _RefusedError([branches.frames[region.frames].number])  # its gradient reads other frames
        return [instruction]

    def _require_no_readers(self, only_if: Mapping[Value, Guard], items: Sequence[Any]) -> None:
        """Refuse branches that alone make a value which an ordinary op reads: it may not exist."""
        readers = [item for item in items if not (isinstance(item, OpInstruction) and item.op.type in CHOICES)]
        read = {*self._live_out, *chain.from_iterable(item.read_within for item in readers if not isinstance(item, Branch))}
        refused = {only_if[value].number for value in read & only_if.keys()}
        if refused:
            raise _RefusedError(refused)

    def _native(
        self, items: Sequence[Any], live_out: Iterable[Value], fewest: int, latest: Mapping[str, Value], tag: str
    ) -> list[Any]:
        """The instructions of a plan or of a branch, with native code."""
        refused: list[int] = []
        for branch in [item for item in items if isinstance(item, Branch)]:
            branch.body = self._native(branch.body, branch.live, 0, branch.latest, f"{next(self._tags)}.")
            stored = {value for instruction in branch.body for value in instruction.written}
            if not stored.issuperset(branch.live) or not all(item.is_native or item.is_check for item in branch.body):
                refused.append(branch.number)
        if refused:
            raise _RefusedError(refused)
        constants = () if tag else self._constants
        results = native_regions(items, self._specs, live_out, self._storage, self._target, fewest, latest, tag, constants)
        results = in_blocks(results, self._specs, self._target)
        return [part for item in results for part in (item.marked(self._target) if isinstance(item, Branch) else [item])]

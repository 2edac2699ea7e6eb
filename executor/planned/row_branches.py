"""Compute both branches of an ``IfElse`` for all rows, and choose among the results, where each row is computed by itself.

``split_lod_tensor`` gives the rows where a mask holds, and the remaining ones; values decide how many. Native code needs known
shapes. A part of the rows becomes all rows: of values, the first row of the part stands in the places of rows that the branch
should not see, if the program has gradients: a gradient could multiply zeros by infinities of these rows. Gradients of values are
zeros in these places, so they add nothing to the gradients of weights.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from typing import NamedTuple

from fluid.ir.copying import copy_to_rewrite, declare_like
from fluid.ir.nesting import walk
from fluid.ir.program import Block, Operator, Program
from fluid.opdef.registry import EMPTY, grad_slot
from fluid.values.types import VarType

from ..kernels.table import check_of
from ..stepwise.row_ops import computes_by_rows, outputs_of_rows
from .op_inserter import OpInserter
from .padded_rows import gives_zeros

__all__ = ["with_all_rows"]

_MERGES = ("merge_lod_tensor", "merge_lod_tensor_infer")
_GRAD = grad_slot("")


class _MixedRowsError(Exception):
    """A branch cannot compute all rows: an op reads several of them, or the rows may not be told apart."""


class _RowsOfBranch(NamedTuple):
    """The rows that a value has in the program.

    Attributes:
        mask: the mask that chooses them.
        holds: whether they are those where the mask holds.
        is_gradient: whether the value is a gradient, with zeros in the places of all other rows.
    """

    mask: str
    holds: bool
    is_gradient: bool


def with_all_rows(program: Program, fetches: Collection[str]) -> Program | None:
    """Copy a program, and let its branches compute all rows; None if it has none, or if one of them cannot."""
    splits = [op for op in walk(program.global_block().ops) if op.type == "split_lod_tensor"]
    if not splits:
        return None
    copy = copy_to_rewrite(program)
    blocks = list(dict.fromkeys(op.block for op in walk(copy.global_block().ops)))
    has_gradients = any(map(_splits_gradient, splits))
    parts: dict[Block, dict[str, _RowsOfBranch]] = {}
    try:
        for block in blocks:
            former = parts.get(block.forward, {}) if block.forward is not None else {}
            other_ops = [op for home in blocks if block not in (home, home.forward) for op in home.ops]
            elsewhere = {*fetches, *(name for op in other_ops for name in op.input_arg_names)}
            branches = _RowBranches(block, elsewhere, former, has_gradients)
            branches.rewrite()
            parts[block] = branches.parts
    except _MixedRowsError:
        return None
    return copy


def _splits_gradient(op: Operator) -> bool:
    """Whether a split op is the gradient of a merge op."""
    return _GRAD in op.input("X")[0]


class _RowBranches:
    """Rewrites the branches of a block.

    Args:
        block: the block.
        elsewhere: the names that a run returns, or that blocks read other than this one and the block of its gradient.
        parts: the parts of the block whose gradient this block is.
        has_gradients: whether the program has gradients of branches.

    Attributes:
        parts: name of a value with some rows -> which they are.
    """

    def __init__(self, block: Block, elsewhere: Set[str], parts: Mapping[str, _RowsOfBranch], has_gradients: bool) -> None:
        self._block, self._elsewhere, self._has_gradients = block, elsewhere, has_gradients
        self._former, self.parts = parts, dict(parts)

    def rewrite(self) -> None:
        """Rewrite all branches; raises `_MixedRowsError` if that is impossible."""
        for op in list(self._block.ops):
            if op.type == "split_lod_tensor":
                self._split(op)
            elif not self.parts.keys().isdisjoint(op.input_arg_names):
                if op.type in _MERGES:
                    self._merge(op)
                else:
                    self._require_rows(op)
        if not (self.parts.keys() - self._former.keys()).isdisjoint(self._elsewhere):
            raise _MixedRowsError

    def _split(self, op: Operator) -> None:
        """Let both parts have all rows."""
        (name,), (mask,) = op.input("X"), op.input("Mask")
        var, of_mask = self._block.find_var(name), self._block.find_var(mask)
        if name in self.parts or var is None or var.lod_level or of_mask is None or of_mask.dtype is not VarType.BOOL:
            raise _MixedRowsError
        blocks = [block for block in {self._block, self._block.forward} if block is not None]
        if sum(mask in maker.output_arg_names for block in blocks for maker in block.ops) > 1:
            raise _MixedRowsError  # the rows may be merged by another mask
        is_gradient, place = _splits_gradient(op), self._block.ops.index(op)
        self._block.remove_op(place)
        steps = OpInserter(op.block, place, op.frames)
        for slot, holds in (("OutTrue", True), ("OutFalse", False)):
            for part in op.output(slot):
                if part == EMPTY:
                    continue
                self.parts[part] = _RowsOfBranch(mask, holds, is_gradient)
                if not self._has_gradients:
                    steps.add("assign", {"X": [name]}, out=part)
                    continue
                filler = steps.add("fill_zeros_like", {"X": [name]}) if is_gradient else self._first_row(steps, name, mask, holds)
                self._choose(steps, self._rows(steps, mask, holds, var.ndim), name, filler, part)

    @staticmethod
    def _rows(steps: OpInserter, mask: str, holds: bool, ndim: int) -> str:
        """Truths of rank `ndim`, one for each row: whether the row is of a part."""
        rows = steps.add("reshape", {"X": [mask]}, shape=[-1, *[1] * (ndim - 1)])
        return rows if holds else steps.add("logical_not", {"X": [rows]})

    @staticmethod
    def _choose(steps: OpInserter, condition: str, true: str, false: str, out: str) -> None:
        """Choose by a condition that is the same for all elements of a row."""
        chosen = steps.add("expand_as_v2", {"X": [condition], "Y": [true]})
        steps.add("where", {"Condition": [chosen], "X": [true], "Y": [false]}, out=out)

    def _first_row(self, steps: OpInserter, name: str, mask: str, holds: bool) -> str:
        """The first row of a part in all places; some row, if the part has none."""
        numbers = steps.add("cast", {"X": [self._rows(steps, mask, holds, 1)]}, in_dtype=VarType.BOOL, out_dtype=VarType.INT64)
        first = steps.add("arg_max", {"X": [numbers]}, axis=0, keepdims=True)
        row = steps.add("gather", {"X": [name], "Index": [first]}, axis=0)
        return steps.add("expand_as_v2", {"X": [row], "Y": [name]})

    def _require_rows(self, op: Operator) -> None:
        """Require that an op computes each row by itself; its results have the rows of its inputs."""
        parts = {self.parts[name]._replace(is_gradient=False) for name in op.input_arg_names if name in self.parts}
        names = {name for name, part in self.parts.items() if part._replace(is_gradient=False) in parts}
        definition = op.definition
        if definition is None or definition.is_random or op.sub_blocks:
            raise _MixedRowsError
        if len(parts) > 1 or check_of(op.type) is not None or not computes_by_rows(op, definition.forward or definition, names):
            raise _MixedRowsError
        (part,) = parts
        results = outputs_of_rows(op, definition, names) - {EMPTY}
        gradients = {name for name in names if self.parts[name].is_gradient}
        if definition.forward is not None:
            cotangents = {name for slot, listed in op.inputs.items() if slot.endswith(_GRAD) for name in listed} - {EMPTY}
            if not cotangents <= gradients:
                raise _MixedRowsError
            self._clear_sums(op, part, results)
            part = part._replace(is_gradient=True)
        elif gives_zeros(op, gradients):
            part = part._replace(is_gradient=True)
        elif not gradients.isdisjoint(op.input_arg_names):
            raise _MixedRowsError
        self.parts |= dict.fromkeys(results, part)

    def _clear_sums(self, op: Operator, part: _RowsOfBranch, results: Collection[str]) -> None:
        """Let the gradients of weights be zeros if the part has no rows: the row in their place may give anything."""
        for slot, names in op.outputs.items():
            for place, name in enumerate(names):
                if name == EMPTY or name in results:
                    continue
                var = self._block.find_var(name)
                if var is None or not var.has_shape:
                    raise _MixedRowsError
                steps = OpInserter(op.block, self._block.ops.index(op) + 1, op.frames)
                total = names[place] = steps.declare(slot)
                declare_like(self._block, total, var)
                any_row = steps.add("reduce_any", {"X": [self._rows(steps, part.mask, part.holds, 1)]}, dim=[0], keep_dim=True)
                condition = steps.add("reshape", {"X": [any_row]}, shape=[1] * var.ndim)
                self._choose(steps, condition, total, steps.add("fill_zeros_like", {"X": [total]}), name)

    def _merge(self, op: Operator) -> None:
        """Choose rows of the two parts by the mask."""
        (mask,), (true,), (false,), (out,) = op.input("Mask"), op.input("InTrue"), op.input("InFalse"), op.output("Out")
        var, parts = self._block.find_var(true), [self.parts.get(name) for name in (true, false)]
        if [part and part[:2] for part in parts] != [(mask, True), (mask, False)] or var is None or not var.has_shape:
            raise _MixedRowsError
        place = self._block.ops.index(op)
        self._block.remove_op(place)
        steps = OpInserter(op.block, place, op.frames)
        self._choose(steps, self._rows(steps, mask, True, var.ndim), true, false, out)

"""Compute both branches of an ``IfElse`` for all rows, and choose among the results, where each row is computed by itself.

``split_lod_tensor`` gives the rows where a mask holds, and the remaining ones; values decide how many. Native code needs known
shapes. This is for predictions: a gradient could multiply zeros by infinities of rows that a branch should not see.
"""

from __future__ import annotations

from collections.abc import Collection

from fluid.ir.program import Block, Operator, Program
from fluid.values.types import VarType

from ..kernels.table import check_of
from ..stepwise.row_ops import computes_by_rows, outputs_of_rows

__all__ = ["with_all_rows"]

_MERGES = ("merge_lod_tensor", "merge_lod_tensor_infer")


class _MixedRowsError(Exception):
    """A branch cannot compute all rows: an op reads several of them, or the rows may not be told apart."""


def with_all_rows(program: Program, fetches: Collection[str]) -> Program | None:
    """Copy a program, and let its branches compute all rows; None if it has none, or if one of them cannot."""
    if not any(op.type == "split_lod_tensor" for block in program.blocks for op in block.ops):
        return None
    copy = program.clone()
    try:
        for block in copy.blocks:
            _RowBranches(block, fetches).rewrite()
    except _MixedRowsError:
        return None
    return copy


class _RowBranches:
    """Rewrites the branches of a block.

    Args:
        block: the block.
        fetches: the names that a run returns.
    """

    def __init__(self, block: Block, fetches: Collection[str]) -> None:
        self._block, self._fetches = block, fetches
        self._parts: dict[str, tuple[str, bool]] = {}
        """Name of a value with some rows -> the mask, and whether its rows are those where the mask holds."""

    def rewrite(self) -> None:
        """Rewrite all branches; raises `_MixedRowsError` if that is impossible."""
        for op in list(self._block.ops):
            if op.type == "split_lod_tensor":
                self._split(op)
            elif not self._parts.keys().isdisjoint(op.input_arg_names):
                if op.type in _MERGES:
                    self._merge(op)
                else:
                    self._require_rows(op)
        readers = [op for block in self._block.program.blocks if block is not self._block for op in block.ops]
        read = {name for op in readers for name in op.input_arg_names}
        if not self._parts.keys().isdisjoint(read | {*self._fetches}):
            raise _MixedRowsError

    def _split(self, op: Operator) -> None:
        """Let both parts have all rows."""
        (name,), (mask,) = op.input("X"), op.input("Mask")
        var, of_mask = self._block.find_var(name), self._block.find_var(mask)
        if name in self._parts or var is None or var.lod_level or of_mask is None or of_mask.dtype is not VarType.BOOL:
            raise _MixedRowsError
        if sum(mask in one.output_arg_names for one in self._block.ops) > 1:
            raise _MixedRowsError  # the rows may be merged by another mask
        place = self._block.ops.index(op)
        self._block.remove_op(place)
        for slot, holds in (("OutTrue", True), ("OutFalse", False)):
            for part in op.output(slot):
                self._parts[part] = mask, holds
                self._block.ops.insert(place, Operator(self._block, "assign", {"X": [name]}, {"Out": [part]}, {}, op.frames))

    def _require_rows(self, op: Operator) -> None:
        """Require that an op computes each row by itself; its results have the rows of its inputs."""
        parts = {self._parts[name] for name in op.input_arg_names if name in self._parts}
        names = {name for name, part in self._parts.items() if part in parts}
        definition = op.definition
        if definition is None or definition.forward is not None or definition.is_random or op.sub_blocks:
            raise _MixedRowsError
        if len(parts) > 1 or check_of(op.type) is not None or not computes_by_rows(op, definition, names):
            raise _MixedRowsError
        (part,) = parts
        self._parts |= dict.fromkeys(outputs_of_rows(op, definition, names), part)

    def _merge(self, op: Operator) -> None:
        """Choose rows of the two parts by the mask."""
        (mask,), (true,), (false,), (out,) = op.input("Mask"), op.input("InTrue"), op.input("InFalse"), op.output("Out")
        var, block = self._block.find_var(true), self._block
        if self._parts.get(true) != (mask, True) or self._parts.get(false) != (mask, False) or var is None or not var.has_shape:
            raise _MixedRowsError
        place, shape = block.ops.index(op), [-1, *[1] * (var.ndim - 1)]
        column, chosen = (
            block.create_var(name=block.program.fresh_name(f"{mask}.{kind}"), dtype="bool") for kind in ("rows", "all")
        )
        steps = [
            ("reshape", {"X": [mask]}, column.name, {"shape": shape}),
            ("expand_as_v2", {"X": [column.name], "Y": [true]}, chosen.name, {}),
            ("where", {"Condition": [chosen.name], "X": [true], "Y": [false]}, out, {}),
        ]
        block.ops[place : place + 1] = [
            Operator(block, kind, inputs, {"Out": [result]}, attrs, op.frames) for kind, inputs, result, attrs in steps
        ]

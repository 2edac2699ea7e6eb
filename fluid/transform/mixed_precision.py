"""Converts a float32 program to mixed precision: writes casts into its forward part.

An op of the white list computes in half precision, one of the gray list in the precision of its inputs, any other in float32
(`AutoMixedPrecisionLists`). What an op reads in another precision is cast right before it, once for each value and block; what a
half-precision op makes is in half precision under its own name. Parameters stay float32, and so does what passes into a block
that an op owns, from run to run, or out of it: sums over the runs of a loop, and of the gradients of weights in it, are in
float32.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import ProgramError, locate
from ..ir.inference import infer_shape
from ..ir.program import Block, Operator, OpRole, Program, Variable
from ..ir.regions import region_of
from ..opdef.registry import EMPTY
from ..training.precision import ANY_PRECISION, FLOAT32_SLOTS, AutoMixedPrecisionLists
from ..values.types import VarType


def use_half_precision(program: Program, lists: AutoMixedPrecisionLists, half: VarType, keep: tuple[str, ...] = ()) -> None:
    """Write casts into the forward part of a program, in place.

    Args:
        program: has no backward part yet, or one that was made after this function was called with the same arguments.
        half: `VarType.FP16` or `VarType.BF16`.
        keep: names whose values stay float32, such as the loss.

    Raises:
        ProgramError: ops that other ops' gradients belong to would have to change.
    """
    if any(op.role & OpRole.BACKWARD for block in program.blocks for op in block.ops):
        tried = program.clone()
        trial = _Casting(tried, lists, half, keep)
        trial.block(tried.global_block())
        if trial.changed:
            op = trial.changed[0]
            raise ProgramError(
                f"mixed precision: {op.type} would be computed in another precision, but the program has gradients already; "
                f"minimize by the decorated optimizer first, or decorate both\n{locate(op)}"
            )
        return
    _Casting(program, lists, half, keep).block(program.global_block())
    program._changed()


def _forward_ops(block: Block) -> Iterator[Operator]:
    return (op for op in block.ops if not op.role & (OpRole.BACKWARD | OpRole.OPTIMIZE | OpRole.LR_SCHED))


class _Casting:
    def __init__(self, program: Program, lists: AutoMixedPrecisionLists, half: VarType, keep: tuple[str, ...]) -> None:
        self._lists, self._half = lists, half
        self._suffix = "fp16" if half is VarType.FP16 else "bf16"
        self._fp32_names = {*keep, *_crossing_names(program)}
        self.changed: list[Operator] = []
        """Ops whose inputs or outputs have changed."""

    def block(self, block: Block) -> None:
        """Rewrite the ops of a block, and of the blocks that they own."""
        casts: dict[tuple[str, VarType], Variable] = {}
        computed: set[str] = set()
        """Names that an op of this block has computed in float32."""
        index = 0
        while index < len(block.ops):
            op = block.ops[index]
            if not op.role & (OpRole.BACKWARD | OpRole.OPTIMIZE | OpRole.LR_SCHED):
                for body in op.sub_blocks:
                    self.block(body)
                if op.definition is not None and op.type not in ANY_PRECISION and not op.sub_blocks:
                    index = self._op(block, index, casts, computed)
            for name in op.output_arg_names:
                for key in [key for key in casts if key[0] == name]:
                    del casts[key]
                if (var := block.find_var(name)) is not None and var._dtype is VarType.FP32:
                    computed.add(name)
            index += 1

    def _op(self, block: Block, index: int, casts: dict[tuple[str, VarType], Variable], computed: set[str]) -> int:
        """Rewrite the op at a position; its position now."""
        op = block.ops[index]
        is_half = op.type in self._lists.white_list or (op.type in self._lists.gray_list and self._follows(op, computed))
        is_half = is_half and self._lists.black_varnames.isdisjoint({*op.input_arg_names, *op.output_arg_names})
        stays = FLOAT32_SLOTS.get(op.type, frozenset()) if is_half else frozenset()
        for slot, names in op.inputs.items():
            wanted = self._half if is_half and slot not in stays else VarType.FP32
            for position, name in enumerate(names):
                var = block.find_var(name) if name != EMPTY else None
                if var is None or var.type is not VarType.LOD_TENSOR or not self._differs(var, wanted):
                    continue
                self.changed.append(op)
                twin = casts.get((name, wanted))
                if twin is None:
                    twin = casts[name, wanted] = self._cast(block, index, var, wanted, op)
                    index += 1
                names[position] = twin.name
        return self._outputs(block, index, op, casts) if is_half else index

    def _follows(self, op: Operator, computed: set[str]) -> bool:
        """Whether an op of the gray list gets half precision from some op, and computed float32 from none."""
        stays = FLOAT32_SLOTS.get(op.type, frozenset())
        names = [name for slot, names in op.inputs.items() if slot not in stays for name in names if name != EMPTY]
        variables = [var for name in names if (var := op.block.find_var(name)) is not None]
        is_half = any(var._dtype is self._half for var in variables)
        return is_half and not any(var._dtype is VarType.FP32 and var.name in computed for var in variables)

    def _differs(self, var: Variable, wanted: VarType) -> bool:
        opposite = VarType.FP32 if wanted is self._half else self._half
        return var._dtype is opposite

    def _stays(self, var: Variable) -> bool:
        return var.name in self._fp32_names or var.persistable or var.is_data

    def _cast(self, block: Block, index: int, var: Variable, dtype: VarType, source: Operator) -> Variable:
        suffix = self._suffix if dtype is self._half else "fp32"
        twin = block.create_var(
            name=block.program.fresh_name(f"{var.name}.cast_{suffix}"), dtype=dtype, stop_gradient=var.stop_gradient
        )
        attrs = {"in_dtype": int(var.dtype), "out_dtype": int(dtype)}
        block.insert_op(index, "cast", inputs={"X": var}, outputs={"Out": twin}, attrs=attrs, frames=source.frames)
        return twin

    def _outputs(self, block: Block, index: int, op: Operator, casts: dict[tuple[str, VarType], Variable]) -> int:
        """Let an op's outputs have the precision that it computes in; what has to stay float32 is cast. The position behind
        all."""
        twins: list[tuple[Variable, Variable]] = []
        renewed: list[Variable] = []
        for names in op.outputs.values():
            for position, name in enumerate(names):
                var = block.find_var(name) if name != EMPTY else None
                if (
                    var is None or var._dtype is not VarType.FP32 or name in op.input_arg_names
                ):  # statistics are updated as they are
                    continue
                if self._stays(var):
                    twin = block.create_var(
                        name=block.program.fresh_name(f"{name}.{self._suffix}"), stop_gradient=var.stop_gradient
                    )
                    names[position] = twin.name
                    twins.append((var, twin))
                else:
                    var._dtype = None  # inference says which
                    renewed.append(var)
        infer_shape(op)
        for var in renewed:
            var._dtype = var._dtype or VarType.FP32
        if twins or any(var._dtype is not VarType.FP32 for var in renewed):
            self.changed.append(op)
        for var, twin in twins:
            index += 1
            attrs = {"in_dtype": int(twin.dtype), "out_dtype": int(VarType.FP32)}
            block.insert_op(index, "cast", inputs={"X": twin}, outputs={"Out": var}, attrs=attrs, frames=op.frames)
            for key in [key for key in casts if key[0] == var.name]:
                del casts[key]
        return index


def _crossing_names(program: Program) -> set[str]:
    """Names of values that enter or leave the blocks of ops or pass from run to run, and names that are written repeatedly."""
    names: set[str] = set()
    assigned: set[tuple[int, str]] = set()
    for block in program.blocks:
        for op in _forward_ops(block):
            for name in op.output_arg_names:
                home = var.block.idx if (var := block.find_var(name)) is not None else block.idx
                if (home, name) in assigned or home != block.idx:
                    names.add(name)
                assigned.add((home, name))
            region = region_of(op)
            if region is None:
                continue
            names |= {*op.input_arg_names, *op.output_arg_names, *region.writes}
            names |= {name for pair in region.slices for name in pair}
            for state in region.states:
                names |= {state.before, state.after, state.first}
            for output in (*region.stacked, *region.summed, *region.final):
                names |= {output.name, output.inner, output.like}
    return names - {EMPTY}

"""An estimate of the memory of a program."""

from __future__ import annotations

from ..errors import ProgramError
from ..ir.checked import Positive, checked
from ..ir.program import Program
from ..values.types import VarType

__all__ = ["memory_usage"]


@checked
def memory_usage(program: Program, batch_size: Positive) -> tuple[float, float, str]:
    """Estimate the memory of the outputs of block 0's ops: 5 % below and above the sum of their sizes, and the unit, B, KB or MB.

    ``print(executor.plan(...))`` shows the real memory of a run: values that are never alive together share memory.

    Args:
        program: the program.
        batch_size: stands for each unknown size.

    Raises:
        ProgramError: a variable has several unknown sizes.

    >>> y = layers.fc(fluid.data("x", [None, 13]), 1)
    >>> fluid.contrib.memory_usage(fluid.default_main_program(), batch_size=64)
    (486.4, 537.6, 'B')
    """
    block = program.global_block()
    total, seen = 0.0, set()
    for op in block.ops:
        for name in op.output_arg_names:
            var = block.find_var(name)
            if name in seen or var is None or var.type is not VarType.LOD_TENSOR:
                continue
            seen.add(name)
            if var.shape.count(-1) > 1:
                raise ProgramError(f"memory_usage: {name} ({var.describe()}) has several unknown sizes")
            count = 1
            for size in var.shape:
                count *= size if size >= 0 else batch_size
            total += count * var.dtype.array_dtype.itemsize
    for unit in ("B", "KB"):
        if total <= 1024:
            return total * 0.95, total * 1.05, unit
        total /= 1024
    return total * 0.95, total * 1.05, "MB"

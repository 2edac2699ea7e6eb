"""Frequencies of ops in a program."""

from __future__ import annotations

from collections import Counter

from ..ir.checked import checked
from ..ir.program import Program

__all__ = ["op_freq_statistic"]


@checked
def op_freq_statistic(program: Program) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Types of the ops of block 0 with their counts, and pairs ``"producer->reader"`` of types with theirs; most frequent first.

    Args:
        program: the program.

    >>> y = layers.fc(fluid.data("x", [None, 13]), 1)
    >>> fluid.contrib.op_freq_statistic(fluid.default_main_program())
    ([('mul', 1), ('elementwise_add', 1)], [('mul->elementwise_add', 1)])
    """
    ops = program.global_block().ops
    types = Counter(op.type for op in ops)
    pairs: Counter[str] = Counter()
    producers: dict[str, str] = {}
    for op in ops:
        pairs.update(f"{producers[name]}->{op.type}" for name in op.input_arg_names if name in producers)
        producers.update(dict.fromkeys(op.output_arg_names, op.type))
    return types.most_common(), pairs.most_common()

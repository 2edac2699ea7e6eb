"""Walk over operators and the blocks that they own, and outwards over the blocks around a block.

>>> from fluid.ir.nesting import nested_blocks, outwards, walk
>>> block = fluid.default_main_program().global_block()
>>> i, n = fluid.layers.fill_constant([1], "int64", 0), fluid.layers.fill_constant([1], "int64", 3)
>>> less = fluid.layers.less_than(i, n)
>>> loop = fluid.layers.While(less)
>>> with loop.block():
...     i = fluid.layers.increment(i)
...     less = fluid.layers.less_than(i, n, cond=less)
>>> [op.type for op in walk(block.ops)]
['fill_constant', 'fill_constant', 'less_than', 'while', 'increment', 'less_than']
>>> [inner.idx for inner in nested_blocks(block.ops)]
[1]
>>> [outer.idx for outer in outwards(fluid.default_main_program().blocks[1])]
[1, 0]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .program import Block, Operator


def walk(ops: Iterable[Operator]) -> Iterator[Operator]:
    """Yield each operator, followed by the operators of the blocks that it owns, at any depth; each block once."""
    seen: set[int] = set()
    stack = [iter(ops)]
    while stack:
        op = next(stack[-1], None)
        if op is None:
            stack.pop()
            continue
        yield op
        blocks = [block for block in op.sub_blocks if id(block) not in seen]
        if blocks:
            seen.update(map(id, blocks))
            stack.append(chain.from_iterable(block.ops for block in blocks))


def nested_blocks(ops: Iterable[Operator]) -> Iterator[Block]:
    """Yield the blocks that operators own, at any depth; a block that two operators own comes twice."""
    return (block for op in walk(ops) for block in op.sub_blocks)


def declares_inside(op: Operator, prefix: str) -> bool:
    """Whether a block of an op declares a variable whose name begins with `prefix`."""
    return any(name.startswith(prefix) for body in op.sub_blocks for name in body.vars)


def outwards(block: Block | None) -> Iterator[Block]:
    """Yield a block and the blocks around it, from the innermost to block 0."""
    while block is not None:
        yield block
        block = block.parent

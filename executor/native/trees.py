"""The kernel of decision trees: rows walk down several trees at a time.

One step of one tree waits for two reads, one after the other. The steps of several trees do not wait for each other.
"""

from __future__ import annotations

from .emitter import INT32, INT64, Function, Value
from .images import affine, bounds_of
from .kernel import Share
from .sparse import RowSource

_TREES, _STEPS, _ROWS = 8, 4, 32
"""Trees that are walked at a time, steps between two tests whether all have ended, and rows for which they stay in the cache."""


def write_leaves(
    f: Function,
    x: RowSource,
    bounds: RowSource,
    features: RowSource,
    children: RowSource,
    leaves: Value,
    trees: int,
    depth: int,
    share: Share,
) -> None:
    """See `graph.Leaves`."""
    rows, _ = x.shape
    blocks = -(-rows // _ROWS)

    def walk(row: Value, first: Value, group: int) -> None:
        state, moves = f.stack(INT64, group), f.stack(INT64, 1)

        def step(node: Value) -> Value:
            feature = _clamped(f, features.number(f, node), x.shape[1])
            at = f.at(x.pointer, affine(f, 0, (row, x.strides[0]), (feature, x.strides[1])), x.element)
            bound = f.load(f.at(bounds.pointer, affine(f, 0, (node, bounds.strides[0])), bounds.element), bounds.element)
            is_above = f.convert(f.compare("ogt", f.load(at, x.element), bound), INT64)
            return _clamped(f, f.add(children.number(f, node), is_above), children.shape[0])

        def steps(count: int) -> None:
            """Walk some steps, unless all have ended."""
            with f.when(f.compare("ne", f.load(moves, INT64), 0)):
                nodes = [f.between(f.load(f.at(state, tree, INT64), INT64), 0, children.shape[0] - 1) for tree in range(group)]
                for _ in range(count):
                    parents, nodes = nodes, [step(node) for node in nodes]
                moved = f.int64(0)
                for tree, (node, parent) in enumerate(zip(nodes, parents, strict=True)):
                    f.store_number(node, f.at(state, tree, INT64))
                    moved = f.bit_or(moved, f.bit_xor(node, parent))
                f.store_number(moved, moves)

        for tree in range(group):
            f.store_number(f.add(first, tree), f.at(state, tree, INT64))
        f.store_number(f.int64(1), moves)
        f.loop(0, depth // _STEPS, 1, [], lambda _: steps(_STEPS))
        if depth % _STEPS:
            steps(depth % _STEPS)
        for tree in range(group):
            leaf = f.convert(f.load(f.at(state, tree, INT64), INT64), INT32)
            f.store_number(leaf, f.at(leaves, affine(f, tree, (row, trees), (first, 1)), INT32))

    def items(number: Value, start: int, count: int) -> None:
        group, block = f.divided(number, blocks)
        first = affine(f, start, (group, _TREES))
        f.loop(*bounds_of(f, block, blocks, rows), 1, [], lambda row: walk(row, first, count))

    groups, remaining = divmod(trees, _TREES)
    f.loop(*share.of(f, groups * blocks), 1, [], lambda number: items(number, 0, _TREES))
    if remaining:
        f.loop(*share.of(f, blocks), 1, [], lambda number: items(number, groups * _TREES, remaining))


def _clamped(f: Function, index: Value, extent: int) -> Value:
    """An index that is read from memory, moved into the bounds of an array."""
    return f.min(f.max(index, 0), extent - 1)

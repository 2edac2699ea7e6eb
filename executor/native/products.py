"""Writes the kernel of a group that begins with a product of matrices."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from .emitter import Function, Value, zero
from .formulas import FORMULAS
from .fusion import Group, source_of, steps_over, strides_of
from .graph import Constant, Map, Node, View, constant
from .kernel import Share

__all__ = ["write_product_group"]


def write_product_group(f: Function, group: Group, pointers: Mapping[Node, Value], share: Share, lanes: int) -> None:
    """A slow stand-in."""
    from .emitter import constant as number

    p = group.product
    assert p is not None
    lanes = lanes * 4 // p.element.bytes
    rows, columns, inner = p.shape[-2], p.shape[-1], p.left.shape[-1]
    batch = p.shape[:-2]

    def root(node: Node) -> Value:
        return f.at(pointers[source_of(node)], node.offset if isinstance(node, View) else 0, node.element)

    def of_matrix(b: Value) -> None:
        def where(node: Node) -> Value:
            pointer, rest = root(node), b
            for extent, own, stride in zip(reversed(batch), reversed(node.shape[:-2]), reversed(strides_of(node)[:-2]), strict=True):
                place = f.rem(rest, extent)
                rest = f.div(rest, extent)
                if own != 1:
                    pointer = f.at(pointer, f.mul(place, stride), node.element)
            return pointer

        a, c = where(p.left), where(p.right)
        (ar, ak), (bk, bn) = strides_of(p.left)[-2:], strides_of(p.right)[-2:]

        def row(r: Value) -> None:
            at = 0
            width = lanes if bn == 1 else 1
            while at < columns:
                while width > columns - at:
                    width //= 2
                count = (columns - at) // width

                def vector(i: Value, at: int = at, width: int = width) -> None:
                    column = f.add(f.mul(i, width), at)

                    def step(k: Value, total: Value) -> list[Value]:
                        x = f.splat(f.load(f.at(f.at(a, f.mul(r, ar), p.element), f.mul(k, ak), p.element), p.element), width)
                        y = f.load(f.at(f.at(c, f.mul(k, bk), p.element), f.mul(column, bn), p.element), p.element.of(width))
                        return [f.fma(x, y, total)]

                    (total,) = f.loop(0, inner, 1, [zero(p.element.of(width))], step)
                    _after(f, group, pointers, total, f.add(f.mul(b, rows), r), column, width)

                f.loop(0, count, 1, [], vector)
                at += count * width

        f.loop(0, rows, 1, [], row)

    start, stop = share.of(f, 1)
    f.loop(start, stop, 1, [], lambda _: f.loop(0, prod(batch), 1, [], of_matrix))
    del number


def _after(f: Function, group: Group, pointers: Mapping[Node, Value], value: Value, row: Value, column: Value, width: int) -> None:
    """Store the product's elements, and what is computed of them."""
    p = group.product
    assert p is not None
    rows, columns = prod(p.shape[:-1]), p.shape[-1]
    memo: dict[Node, Value] = {p: value}

    def of(node: Node, shape: tuple[int, ...]) -> Value:
        if isinstance(node, Constant):
            return constant_value(node)
        source = source_of(node)
        if source in memo:
            return memo[source]
        steps = steps_over(node, shape, [rows, columns])
        assert steps is not None
        pointer = f.at(pointers[source], node.offset if isinstance(node, View) else 0, node.element)
        pointer = f.at(f.at(pointer, f.mul(row, steps[0]), node.element), f.mul(column, steps[1]), node.element)
        if not steps[1]:
            return f.load(pointer, node.element)
        if steps[1] == 1:
            return f.load(pointer, node.element.of(width))
        vector = Value("poison", node.element.of(width))
        for lane in range(width):
            item = f.load(f.at(pointer, lane * steps[1], node.element), node.element)
            if width == 1:
                return item
            vector = f.value(f"insertelement {vector.type} {vector}, {node.element} {item}, i64 {lane}", vector.type)
        return vector

    def constant_value(node: Constant) -> Value:
        from .emitter import constant as number

        return number(node.number, node.element)

    for node in group.nodes:
        if isinstance(node, Map):
            values = [of(operand, node.shape) for operand in node.operands]
            values = [item if item.type.lanes == width else f.splat(item, width) for item in values]
            memo[node] = f.convert(values[0], node.element) if node.formula == "convert" else FORMULAS[node.formula](f, *values)
        if node in pointers and source_of(node) in memo:
            f.store(memo[node], f.at(f.at(pointers[node], f.mul(row, columns), node.element), column, node.element))

"""Writes the kernel of a group that begins with a product of matrices: what follows is computed of each part that is in registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from .emitter import Function, Value, constant
from .fusion import Group, source_of, steps_over, strides_of
from .graph import Constant, Map, Node, Product, View
from .kernel import Share
from .loops import applied, numbers_of
from .matmul import Product as MatrixProduct
from .matmul import workspace_bytes, write_product

__all__ = ["product_workspace", "write_product_group"]


def _matrix_product(node: Product) -> MatrixProduct:
    """A product with its strides, as `matmul` takes it."""
    left, right = strides_of(node.left), strides_of(node.right)
    rows, columns = node.shape[-2:]
    batch = []
    step = rows * columns
    for place in reversed(range(node.ndim - 2)):
        extent = node.shape[place]
        if extent != 1:
            a = left[place] if node.left.shape[place] != 1 else 0
            b = right[place] if node.right.shape[place] != 1 else 0
            batch.append((extent, a, b, step))
        step *= extent
    return MatrixProduct(
        rows,
        columns,
        node.left.shape[-1],
        (left[-2], left[-1]),
        (right[-2], right[-1]),
        columns,
        tuple(reversed(batch)),
        False,
        node.element,
    )


def product_workspace(group: Group, vector_bytes: int) -> int:
    """Bytes that the kernel of a group needs for each thread."""
    assert group.product is not None
    return workspace_bytes(_matrix_product(group.product), vector_bytes)


def write_product_group(
    f: Function, group: Group, pointers: Mapping[Node, Value], workspace: Value, share: Share, vector_bytes: int
) -> None:
    """Write the kernel; `pointers` has what is read and what is stored."""
    node = group.product
    assert node is not None
    rows, columns = prod(node.shape[:-1]), node.shape[-1]
    numbers = numbers_of(f, group, pointers)

    def root(operand: Node) -> Value:
        return f.at(pointers[source_of(operand)], operand.offset if isinstance(operand, View) else 0, operand.element)

    def after(f: Function, value: Value, row: Value, column: Value) -> Value | None:
        width = value.type.lanes
        values: dict[Node, Value] = {**numbers, node: value}

        def operand_value(operand: Node, shape: Sequence[int]) -> Value:
            if isinstance(operand, Constant):
                return constant(operand.number, operand.element)
            source = source_of(operand)
            if source in values:
                return values[source]
            steps = steps_over(operand, shape, [rows, columns])
            assert steps is not None
            pointer = f.at(root(operand), f.mul(row, steps[0]) if steps[0] else 0, operand.element)
            pointer = f.at(pointer, f.mul(column, steps[1]) if steps[1] else 0, operand.element)
            return f.load_steps(pointer, operand.element.of(width), steps[1])

        for item in group.nodes:
            if isinstance(item, Map):
                values[item] = applied(f, item, [operand_value(operand, item.shape) for operand in item.operands], width)
            if item in pointers and item is not target:
                f.store(values[item], f.at(pointers[item], f.add(f.mul(row, columns), column), item.element))
        return values[target]

    target = next((item for item in reversed(group.nodes) if item in pointers and item.element == node.element), node)
    product = _matrix_product(node)
    epilogue = after if len(group.nodes) > 1 else None
    write_product(f, product, root(node.left), root(node.right), pointers[target], share, workspace, vector_bytes, epilogue)

"""Products of matrices."""

from __future__ import annotations

from typing import Any

from ...values.types import VarType
from ..builder import Builder
from ..node import Node
from ..table import imports


@imports("MatMul")
def matmul(b: Builder, node: Node) -> Any:
    return b.f.matmul_v2(node[0], node[1])


@imports("Gemm")
def gemm(b: Builder, node: Node) -> Any:
    alpha, beta = node.float("alpha", 1.0), node.float("beta", 1.0)
    out = b.f.matmul_v2(node[0], node[1], trans_x=bool(node.int("transA", 0)), trans_y=bool(node.int("transB", 0)))
    if alpha != 1.0:
        out = b.f.scale(out, scale=alpha) if out.dtype in (VarType.FP32, VarType.FP64, VarType.FP16) else b.cast(b.f.scale(b.cast(out, VarType.FP64), scale=alpha), out.dtype)
    if node.value(2) is None or beta == 0.0:
        return out
    bias = node[2]
    return b.f.elementwise_add(out, bias if beta == 1.0 else b.f.scale(bias, scale=beta))


@imports("Einsum")
def einsum(b: Builder, node: Node) -> Any:
    equation = node.string("equation").replace(" ", "")
    inputs = node.variables()
    if "->" not in equation:
        letters = equation.replace(",", "").replace("...", "")
        kept = "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
        equation += "->" + ("..." if "..." in equation else "") + kept
    ends_in_scalar = equation.endswith("->")
    return (b.scalar if ends_in_scalar else b.f).einsum(inputs, equation=equation)


@imports("Det")
def det(b: Builder, node: Node) -> Any:
    x = node[0]
    size = x.shape[-1]
    parts = [
        [b.f.reshape2(b.f.slice(x, axes=[x.ndim - 2, x.ndim - 1], starts=[i, j], ends=[i + 1, j + 1]), shape=[*_outer(x), 1]) for j in range(size)]
        for i in range(size)
    ]
    out = _determinant(b, parts, list(range(size)), 0)
    return b.squeeze(out, [out.ndim - 1])


def _outer(x: Any) -> list[int]:
    return [size if size >= 0 else 0 for size in x.shape[:-2]]


def _determinant(b: Builder, parts: list[list[Any]], columns: list[int], row: int) -> Any:
    """The determinant by the first of the rows that are left; for matrices of a few rows."""
    if len(columns) > 4:
        return NotImplemented
    if len(columns) == 1:
        return parts[row][columns[0]]
    total = None
    for place, column in enumerate(columns):
        rest = _determinant(b, parts, [other for other in columns if other != column], row + 1)
        term = b.f.elementwise_mul(parts[row][column], rest)
        if total is None:
            total = term
        else:
            total = b.f.elementwise_sub(total, term) if place % 2 else b.f.elementwise_add(total, term)
    return total

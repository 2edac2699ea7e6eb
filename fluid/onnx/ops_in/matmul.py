"""Matrix products."""

from __future__ import annotations

from typing import Any

from ...values.types import VarType, is_floating
from ..builder import Builder
from ..node import OnnxNode
from ..table import imports


@imports("MatMul")
def matmul(b: Builder, node: OnnxNode) -> Any:
    return b.f.matmul_v2(node[0], node[1])


@imports("Gemm")
def gemm(b: Builder, node: OnnxNode) -> Any:
    alpha, beta = node.float("alpha", 1.0), node.float("beta", 1.0)
    out = b.f.matmul_v2(node[0], node[1], trans_x=bool(node.int("transA", 0)), trans_y=bool(node.int("transB", 0)))
    if alpha != 1.0:
        wide = out if is_floating(out.dtype) else b.cast(out, VarType.FP64)
        out = b.cast(b.f.scale(wide, scale=alpha), out.dtype)
    if node.value(2) is None or beta == 0.0:
        return out
    bias = node[2]
    return b.f.elementwise_add(out, bias if beta == 1.0 else b.f.scale(bias, scale=beta))


@imports("Einsum")
def einsum(b: Builder, node: OnnxNode) -> Any:
    equation = node.string("equation").replace(" ", "")
    inputs = node.variables()
    if "->" not in equation:
        letters = equation.replace(",", "").replace("...", "")
        result_letters = "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
        equation += "->" + ("..." if "..." in equation else "") + result_letters
    ends_in_scalar = equation.endswith("->")
    return (b.scalar if ends_in_scalar else b.f).einsum(inputs, equation=equation)


@imports("Det")
def det(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    return (b.scalar if x.ndim == 2 else b.f).determinant(x)

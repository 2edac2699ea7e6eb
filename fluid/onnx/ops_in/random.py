"""Random numbers. They come from Fluid's generators, so they differ from the numbers of other ONNX runtimes."""

from __future__ import annotations

from typing import Any

from ...values.types import VarType, accumulated
from ..builder import Builder
from ..node import OnnxNode
from ..table import imports
from ..types import element_type


def _like(b: Builder, node: OnnxNode) -> Any:
    """The shape of the first input, and the requested element type."""
    x = node[0]
    dtype = element_type(node.int("dtype"), "its dtype") if node.has("dtype") else x.dtype
    return [b.size_of(x, axis) for axis in range(x.ndim)], dtype


def _uniform(b: Builder, node: OnnxNode, numbers: list[Any], dtype: VarType) -> Any:
    low, high = node.float("low", 0.0), node.float("high", 1.0)
    return _drawn(b, b.f.uniform_random, numbers, dtype, min=low, max=high)


def _normal(b: Builder, node: OnnxNode, numbers: list[Any], dtype: VarType) -> Any:
    return _drawn(b, b.f.gaussian_random, numbers, dtype, mean=node.float("mean", 0.0), std=node.float("scale", 1.0))


def _drawn(b: Builder, op: Any, numbers: list[Any], dtype: VarType, **how: Any) -> Any:
    wide = accumulated(dtype)
    if all(isinstance(number, int) for number in numbers):
        return b.cast(op(shape=numbers, dtype=int(wide), **how), dtype)
    shape = [number if isinstance(number, int) else -1 for number in numbers]
    out = op(ShapeTensorList=[b.number_variable(number) for number in numbers], shape=shape, dtype=int(wide), **how)
    return b.cast(b.declare_shape(out, shape), dtype)


@imports("RandomUniform", trains=False)
def random_uniform(b: Builder, node: OnnxNode) -> Any:
    return _uniform(b, node, node.ints("shape"), element_type(node.int("dtype", 1), "its dtype"))


@imports("RandomNormal", trains=False)
def random_normal(b: Builder, node: OnnxNode) -> Any:
    return _normal(b, node, node.ints("shape"), element_type(node.int("dtype", 1), "its dtype"))


@imports("RandomUniformLike", trains=False)
def random_uniform_like(b: Builder, node: OnnxNode) -> Any:
    return _uniform(b, node, *_like(b, node))


@imports("RandomNormalLike", trains=False)
def random_normal_like(b: Builder, node: OnnxNode) -> Any:
    return _normal(b, node, *_like(b, node))


@imports("Bernoulli", trains=False)
def bernoulli(b: Builder, node: OnnxNode) -> Any:
    x = node[0]
    dtype = element_type(node.int("dtype"), "its dtype") if node.has("dtype") else x.dtype
    return b.cast(b.f.bernoulli(x), dtype)


@imports("Multinomial", trains=False)
def multinomial(b: Builder, node: OnnxNode) -> Any:
    chances = b.f.softmax(node[0])
    drawn = b.f.multinomial(chances, num_samples=node.int("sample_size", 1), replacement=True)
    return b.cast(drawn, element_type(node.int("dtype", 6), "its dtype"))

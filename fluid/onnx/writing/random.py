"""Write ops that draw random numbers. The numbers differ from Fluid's, with the same distribution."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from fluid.values.spec import Spec
from fluid.values.types import VarType

from .exporting import exports
from .graph import ELEMENTS, NotExported, OnnxGraph, OnnxTensor, Size, without_symbols
from .making import as_vector, filled, requested_shape
from .shaping import positions


def drawn_like(g: OnnxGraph, x: OnnxTensor, op: str, seed: int = 0, **arguments: Any) -> OnnxTensor:
    """Random 32-bit floats in the shape of a tensor; with a seed, the same in each session."""
    if seed:
        arguments["seed"] = float(seed % (1 << 24))
    spec = Spec(x.shape, VarType.FP32)
    result = g.node(op, [x if x.is_floating else g.cast(x, VarType.FP32)], spec, **{"dtype": ELEMENTS[VarType.FP32], **arguments})
    result.sizes = x.sizes
    return result


_Draw = Callable[[OnnxGraph, OnnxTensor, dict[str, Any]], OnnxTensor]


def _uniform(g: OnnxGraph, like: OnnxTensor, attrs: dict[str, Any]) -> OnnxTensor:
    return drawn_like(g, like, "RandomUniformLike", attrs.get("seed", 0), low=float(attrs["min"]), high=float(attrs["max"]))


def _normal(g: OnnxGraph, like: OnnxTensor, attrs: dict[str, Any]) -> OnnxTensor:
    return drawn_like(g, like, "RandomNormalLike", attrs.get("seed", 0), mean=float(attrs["mean"]), scale=float(attrs["std"]))


def _in_shape(g: OnnxGraph, dims: OnnxTensor, sizes: tuple[int, ...], attrs: dict[str, Any], draw: _Draw) -> OnnxTensor:
    shape = without_symbols(sizes)
    like = filled(g, dims, 0.0, Spec(shape, VarType.FP32))
    if like.value is not None:
        like = g.identity(like)
    return draw(g, like, attrs)


def _by_shape(draw: _Draw) -> Callable[..., OnnxTensor]:
    def drawn(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any) -> OnnxTensor:
        if attrs.get("diag_num"):
            raise NotExported("values of its own on the diagonal")
        dims = requested_shape(g, attrs["shape"], inputs.get("ShapeTensor"), inputs.get("ShapeTensorList"))
        return _in_shape(g, dims, specs["Out"].shape, attrs, draw)

    return drawn


def _by_batch(draw: _Draw) -> Callable[..., OnnxTensor]:
    def drawn(g: OnnxGraph, Input: OnnxTensor, attrs: dict[str, Any], specs: Any) -> OnnxTensor:
        sizes: list[Size] = list(attrs["shape"])
        sizes[attrs["output_dim_idx"]] = g.size(Input, attrs["input_dim_idx"])
        return _in_shape(g, g.joined_sizes(sizes), specs["Out"].shape, attrs, draw)

    return drawn


exports("uniform_random")(_by_shape(_uniform))
exports("gaussian_random")(_by_shape(_normal))
exports("uniform_random_batch_size_like")(_by_batch(_uniform))
exports("gaussian_random_batch_size_like")(_by_batch(_normal))


@exports("bernoulli")
def bernoulli(g: OnnxGraph, X: OnnxTensor) -> OnnxTensor:
    drawn = g.cast(drawn_like(g, X, "RandomUniformLike", low=0.0, high=1.0), X.dtype)
    return g.cast(g.binary("Less", drawn, X), X.dtype)


@exports("randint")
def randint(g: OnnxGraph, inputs: dict[str, Any], attrs: dict[str, Any], specs: Any) -> OnnxTensor:
    dims = requested_shape(g, attrs["shape"], inputs.get("ShapeTensor"), inputs.get("ShapeTensorList"))
    low, high = attrs["low"], attrs["high"]
    if high - low > 1 << 22:
        raise NotExported("integers from a wider range than 32-bit floats tell apart")
    drawn = _in_shape(g, dims, specs["Out"].shape, {**attrs, "min": low, "max": high}, _uniform)
    floored = g.unary("Floor", drawn)
    return g.cast(g.binary("Min", floored, g.number(high - 1, floored)), specs["Out"].dtype)


# ------------------------------------------------------------------------------------------------------ ops of Paddle 2.x
@exports("gaussian_inplace")
def gaussian_inplace(g: OnnxGraph, x: OnnxTensor, attrs: dict[str, Any]) -> OnnxTensor:
    return _normal(g, x, attrs)


@exports("uniform_random_inplace")
def uniform_random_inplace(g: OnnxGraph, X: OnnxTensor, attrs: dict[str, Any]) -> OnnxTensor:
    if attrs.get("diag_num"):
        raise NotExported("values of its own on the diagonal")
    return _uniform(g, X, attrs)


def _unit(g: OnnxGraph, like: OnnxTensor, seed: int = 0) -> OnnxTensor:
    """Numbers above 0 and below 1, so that their logarithms are finite."""
    drawn = drawn_like(g, like, "RandomUniformLike", seed, low=0.0, high=1.0)
    return g.binary("Min", g.binary("Max", drawn, g.number(_LEAST, drawn)), g.number(1 - 2.0**-24, drawn))


_LEAST = 2.0**-24


@exports("exponential")
def exponential(g: OnnxGraph, X: OnnxTensor, lambda_: float, seed: int) -> OnnxTensor:
    waits = g.unary("Neg", g.unary("Log", _unit(g, X, seed)))
    return g.binary("Mul", waits, g.number(1.0 / lambda_, waits))


@exports("gumbel_softmax")
def gumbel_softmax(g: OnnxGraph, X: OnnxTensor, temperature: float, hard: bool, axis: int, seed: int) -> OnnxTensor:
    if not X.ndim:
        return g.number(1, X)
    noise = g.unary("Log", g.unary("Neg", g.unary("Log", _unit(g, X, seed))))
    noisy = g.binary("Mul", g.binary("Sub", X, g.cast(noise, X.dtype)), g.number(1.0 / temperature, X))
    if not hard:
        return g.unary("Softmax", noisy, axis=axis)
    axis %= X.ndim
    sizes = tuple(1 if place == axis else size for place, size in enumerate(X.sizes))
    best = g.sized_node("ArgMax", [noisy], VarType.INT64, sizes, axis=axis, keepdims=1)
    return g.cast(g.binary("Equal", positions(g, g.size(X, axis), axis, X.ndim), best), X.dtype)


@exports("rrelu")
def rrelu(g: OnnxGraph, X: OnnxTensor, is_test: bool, lower: float, upper: float, seed: int) -> dict[str, OnnxTensor]:
    slope = g.number((lower + upper) / 2, X)
    if not is_test:
        slope = g.cast(drawn_like(g, X, "RandomUniformLike", seed, low=float(lower), high=float(upper)), X.dtype)
    noise = g.where(g.binary("Less", X, g.number(0, X)), slope, g.number(1, X))
    return {"Out": g.binary("Mul", X, noise), "Noise": noise}


@exports("truncated_gaussian_random")
def truncated_gaussian_random(g: OnnxGraph, f: Any, attrs: dict[str, Any], specs: Any) -> Any:
    """Apply the inverse distribution function to numbers between its values at two deviations."""
    edge = math.erf(2 / math.sqrt(2))
    bounds = {**attrs, "min": -edge, "max": edge}
    drawn = _in_shape(g, g.ints(*attrs["shape"]), specs["Out"].shape, bounds, _uniform)
    return f.erfinv(drawn) * (math.sqrt(2) * attrs["std"]) + attrs["mean"]


@exports("randperm")
def randperm(g: OnnxGraph, n: int, seed: int) -> OnnxTensor:
    drawn = _in_shape(g, g.ints(n), (n,), {"min": 0, "max": 1, "seed": seed}, _uniform)
    return _order(g, drawn, n)


def _order(g: OnnxGraph, keys: OnnxTensor, count: int) -> OnnxTensor:
    """The places of the `count` smallest numbers along the last dimension."""
    shape = (*keys.shape[:-1], count)
    spec = Spec(shape, keys.dtype)
    _, places = g.nodes("TopK", [keys, g.ints(count)], [spec, spec.with_dtype(VarType.INT64)], axis=-1, largest=0, sorted=1)
    places.sizes = (*keys.sizes[:-1], count)
    return places


@exports("multinomial")
def multinomial(g: OnnxGraph, X: OnnxTensor, num_samples: int, replacement: bool, seed: int) -> OnnxTensor:
    if X.ndim > 2:
        raise NotExported("weights of more than two dimensions")
    rows = X if X.ndim == 2 else g.unsqueeze(X, 0)
    ids = _with_replacement(g, rows, num_samples, seed) if replacement else _without_replacement(g, rows, num_samples, seed)
    return ids if X.ndim == 2 else g.squeeze(ids, 0)


def _without_replacement(g: OnnxGraph, rows: OnnxTensor, count: int, seed: int) -> OnnxTensor:
    """Draw without replacement: each column gets an exponential time with its weight as rate; the first ones win."""
    clocks = g.cast(g.unary("Neg", g.unary("Log", _unit(g, rows, seed))), rows.dtype)
    is_positive = g.binary("Greater", rows, g.number(0, rows))
    times = g.binary("Div", clocks, g.where(is_positive, rows, g.number(1, rows)))
    return _order(g, g.where(is_positive, times, g.number(math.inf, rows)), count)


def _with_replacement(g: OnnxGraph, rows: OnnxTensor, count: int, seed: int) -> OnnxTensor:
    sums = g.sized_node("CumSum", [rows, g.constant(np.int64(1))], rows.dtype, rows.sizes)
    row_total = g.slice(sums, [1], [-1], [2**31 - 1])
    like = g.expand(row_total, g.joined_sizes([g.size(rows, 0), count]), (rows.sizes[0], count))
    drawn = g.binary("Mul", g.cast(drawn_like(g, like, "RandomUniformLike", seed, low=0.0, high=1.0), rows.dtype), row_total)
    passed = g.binary("GreaterOrEqual", g.unsqueeze(drawn, 2), g.unsqueeze(sums, 1))
    ids = g.reduce("ReduceSum", g.cast(passed, VarType.INT64), [2])
    return g.binary("Min", ids, g.binary("Sub", g.as_size(g.size(rows, 1)), g.ints(1)))


@exports("sampling_id")
def sampling_id(g: OnnxGraph, X: OnnxTensor, min: float, max: float, seed: int) -> OnnxTensor:
    sums = g.sized_node("CumSum", [X, g.constant(np.int64(1))], X.dtype, X.sizes)
    like = g.slice(sums, [1], [0], [1])
    drawn = g.cast(drawn_like(g, like, "RandomUniformLike", seed, low=float(min), high=float(max)), X.dtype)
    ids = g.reduce("ReduceSum", g.cast(g.binary("LessOrEqual", sums, drawn), VarType.INT64), [1])
    return g.binary("Min", ids, g.binary("Sub", g.as_size(g.size(X, 1)), g.ints(1)))


# ------------------------------------------------------------------------------------------------------- nodes of trees
@exports("tdm_sampler")
def tdm_sampler(
    g: OnnxGraph, X: OnnxTensor, Travel: OnnxTensor, Layer: OnnxTensor, attrs: dict[str, Any], specs: Any
) -> dict[str, OnnxTensor]:
    """Each layer's nodes, except the one on the path, get random numbers; the smallest are drawn."""
    ways, nodes = g.gather(Travel, as_vector(g, X)), as_vector(g, Layer)
    samples, labels, masks = [], [], []
    offsets = attrs["layer_offset_lod"]
    for layer, (count, (start, end)) in enumerate(zip(attrs["neg_samples_num_list"], pairwise(offsets), strict=True)):
        if not count and not attrs["output_positive"]:
            continue
        path_node = g.cast(g.slice(ways, [1], [layer], [layer + 1]), VarType.INT64)
        layer_nodes = g.slice(nodes, [0], [start], [end])
        same = g.binary("Equal", path_node, g.unsqueeze(layer_nodes, 0))
        number = drawn_like(g, same, "RandomUniformLike", attrs["seed"] and attrs["seed"] + layer, low=0.0, high=1.0)
        number = g.where(same, g.number(2, number), number)
        kinds = [Spec((path_node.shape[0], count), kind) for kind in (VarType.FP32, VarType.INT64)]
        order = g.nodes("TopK", [number, g.ints(count)], kinds, axis=1, largest=0)[1]
        order.sizes = (path_node.sizes[0], count)
        parts = [path_node, g.gather(layer_nodes, order)] if attrs["output_positive"] else [g.gather(layer_nodes, order)]
        chosen = g.concat(parts, 1)
        is_on_path = g.differ(path_node, g.ints(0))
        is_own = g.constant(np.arange(chosen.shape[1])[None] < attrs["output_positive"])
        samples.append(g.where(is_on_path, chosen, g.ints(0)))
        labels.append(g.binary("And", is_on_path, is_own))
        masks.append(g.expand(is_on_path, g.dims(chosen), chosen.sizes))
    results = {"Out": samples, "Labels": labels, "Mask": masks}
    return {slot: g.cast(g.concat(parts_of_layers, 1), specs[slot].dtype) for slot, parts_of_layers in results.items()}

"""Write normalization and dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluid.ops.norm import channel_axis, dropout_scale, spectral_matrix, uses_global_stats
from fluid.values.types import VarType

from .exporting import exports
from .graph import NotExported, OnnxGraph, OnnxTensor
from .random import drawn_like
from .reductions import mean_of


def _stretched(g: OnnxGraph, vector: OnnxTensor, ndim: int, axis: int) -> OnnxTensor:
    """Reshape a vector to lie along an axis of `ndim` dimensions."""
    return g.unsqueeze(vector, *(place for place in range(ndim) if place != axis))


def _inverse(g: OnnxGraph, variance: OnnxTensor, epsilon: float) -> OnnxTensor:
    return g.unary("Reciprocal", g.unary("Sqrt", g.binary("Add", variance, g.number(epsilon, variance))))


def _affine(g: OnnxGraph, x: OnnxTensor, scale: OnnxTensor | None, bias: OnnxTensor | None) -> OnnxTensor:
    x = x if scale is None else g.binary("Mul", x, scale)
    return x if bias is None else g.binary("Add", x, bias)


@exports("batch_norm")
def batch_norm(
    g: OnnxGraph,
    X: OnnxTensor,
    Scale: OnnxTensor | None,
    Bias: OnnxTensor | None,
    Mean: OnnxTensor,
    Variance: OnnxTensor,
    attrs: dict[str, Any],
) -> dict[str, Any]:
    channel = channel_axis(attrs["data_layout"], X.ndim)
    reduced_axes = [axis for axis in range(X.ndim) if axis != channel]
    epsilon, momentum = attrs["epsilon"], attrs["momentum"]
    uses_running = uses_global_stats(attrs["is_test"], attrs["use_global_stats"], attrs["trainable_statistics"])
    reserve: dict[str, Any] = {"ReserveSpace": None}
    if uses_running:
        inverse = _inverse(g, Variance, epsilon)
        results = {"MeanOut": g.identity(Mean), "VarianceOut": g.identity(Variance), "SavedMean": g.identity(Mean)}
        results["SavedVariance"] = inverse
        if channel == 1 and X.ndim > 2 and Scale is not None and Bias is not None and X.dtype is VarType.FP32:
            y = g.node("BatchNormalization", [X, Scale, Bias, Mean, Variance], X, epsilon=float(epsilon))
            return {"Y": y, **results, **reserve}
        mean = Mean
    else:
        x = X
        means = mean_of(g, x, reduced_axes)
        centered = g.binary("Sub", x, means)
        variance = g.squeeze(mean_of(g, g.binary("Mul", centered, centered), reduced_axes), *reduced_axes)
        mean = g.squeeze(means, *reduced_axes)
        inverse = _inverse(g, variance, epsilon)
        results = {"SavedMean": mean, "SavedVariance": inverse}
        for slot, old, new in (("MeanOut", Mean, mean), ("VarianceOut", Variance, variance)):
            old_share, new_share = (
                g.binary("Mul", old, g.number(momentum, old)),
                g.binary("Mul", new, g.number(1 - momentum, new)),
            )
            results[slot] = g.binary("Add", old_share, new_share)
    mean, inverse = (_stretched(g, vector, X.ndim, channel) for vector in (mean, inverse))
    scale, bias = (vector if vector is None else _stretched(g, vector, X.ndim, channel) for vector in (Scale, Bias))
    normal = g.binary("Mul", g.binary("Sub", X, mean), inverse)
    return {"Y": _affine(g, normal, scale, bias), **results, **reserve}


def _normalized(
    g: OnnxGraph, x: OnnxTensor, axes: Sequence[int], epsilon: float
) -> tuple[OnnxTensor, OnnxTensor, OnnxTensor, OnnxTensor]:
    """Normalize x to mean 0 and variance 1 over axes; also return mean, variance and inverse deviation."""
    mean = mean_of(g, x, axes) if axes else x
    centered = g.binary("Sub", x, mean)
    squares = g.binary("Mul", centered, centered)
    variance = mean_of(g, squares, axes) if axes else squares
    inverse = _inverse(g, variance, epsilon)
    return g.binary("Mul", centered, inverse), mean, variance, inverse


@exports("layer_norm")
def layer_norm(
    g: OnnxGraph, X: OnnxTensor, Scale: OnnxTensor | None, Bias: OnnxTensor | None, epsilon: float, begin_norm_axis: int
) -> dict[str, OnnxTensor]:
    axes = list(range(begin_norm_axis, X.ndim))
    inner = [g.size(X, axis) for axis in axes]

    def row(vector: OnnxTensor | None) -> OnnxTensor | None:
        return vector if vector is None or len(axes) == 1 else g.reshape(vector, inner)

    scale, bias = row(Scale), row(Bias)
    normal, mean, variance, _ = _normalized(g, X, axes, epsilon)
    flat = [g.reshape(statistic, [-1], (-1,)) for statistic in (mean, variance)]
    if g.opset >= 17 and scale is not None and X.dtype in (VarType.FP32, VarType.FP64):
        y = g.node("LayerNormalization", [X, scale, bias], X, axis=begin_norm_axis, epsilon=float(epsilon))
    else:
        y = _affine(g, normal, scale, bias)
    return {"Y": y, "Mean": flat[0], "Variance": flat[1]}


def _spectral(
    g: OnnxGraph, Weight: OnnxTensor, U: OnnxTensor, V: OnnxTensor, attrs: dict[str, Any]
) -> tuple[OnnxTensor, OnnxTensor, OnnxTensor]:
    """The matrix [rows, columns], and u and v as columns."""
    order = spectral_matrix(Weight.ndim, attrs["dim"])
    turned = g.transpose(Weight, order)
    sizes = g.sizes_of(turned)
    matrix = g.reshape(turned, [sizes[0], g.product_of(sizes[1:])])
    u, v = g.unsqueeze(U, 1), g.unsqueeze(V, 1)
    back = g.transpose(matrix, [1, 0])

    def unit(x: OnnxTensor) -> OnnxTensor:
        length = g.unary("Sqrt", g.reduce("ReduceSum", g.binary("Mul", x, x), [0, 1]))
        return g.binary("Div", x, g.binary("Add", length, g.number(attrs["eps"], x)))

    for _ in range(attrs["power_iters"]):
        v = unit(g.matmul(back, u))
        u = unit(g.matmul(matrix, v))
    return matrix, u, v


@exports("spectral_norm")
def spectral_norm(g: OnnxGraph, Weight: OnnxTensor, U: OnnxTensor, V: OnnxTensor, attrs: dict[str, Any]) -> OnnxTensor:
    matrix, u, v = _spectral(g, Weight, U, V, attrs)
    sigma = g.matmul(g.transpose(u, [1, 0]), g.matmul(matrix, v))
    return g.binary("Div", Weight, g.reshape(sigma, []))


@exports("spectral_vectors")
def spectral_vectors(
    g: OnnxGraph, Weight: OnnxTensor, U: OnnxTensor, V: OnnxTensor, attrs: dict[str, Any]
) -> dict[str, OnnxTensor]:
    _, u, v = _spectral(g, Weight, U, V, attrs)
    return {"UOut": g.squeeze(u, 1), "VOut": g.squeeze(v, 1)}


@exports("dropout")
def dropout(g: OnnxGraph, X: OnnxTensor, Seed: OnnxTensor | None, attrs: dict[str, Any]) -> dict[str, OnnxTensor]:
    probability = attrs["dropout_prob"]
    factor = dropout_scale(probability, attrs["dropout_implementation"], attrs["is_test"])

    def times(x: OnnxTensor) -> OnnxTensor:
        return x if factor == 1.0 else g.binary("Mul", x, g.number(factor, x))

    if attrs["is_test"] or probability == 0.0:
        mask = g.expand(g.constant([1], VarType.UINT8), g.dims(X), X.sizes) if X.ndim else g.constant(1, VarType.UINT8)
        return {"Out": g.identity(X) if factor == 1.0 else times(X), "Mask": mask}
    if Seed is not None:
        raise NotExported("a seed that is computed")
    drawn = drawn_like(g, X, "RandomUniformLike", low=0.0, high=1.0)
    is_kept = g.binary("GreaterOrEqual", drawn, g.number(probability, drawn))
    return {"Out": g.where(is_kept, times(X), g.number(0, X)), "Mask": g.cast(is_kept, VarType.UINT8)}


@exports("dropout_nd")
def dropout_nd(g: OnnxGraph, X: OnnxTensor, Seed: OnnxTensor | None, attrs: dict[str, Any]) -> dict[str, OnnxTensor]:
    probability = attrs["dropout_prob"]
    factor = dropout_scale(probability, attrs["dropout_implementation"], attrs["is_test"])
    alone = {place % X.ndim for place in attrs["axis"]} or set(range(X.ndim))
    shared_axes = [axis for axis in range(X.ndim) if axis not in alone]
    like = g.slice(X, shared_axes, [0] * len(shared_axes), [1] * len(shared_axes)) if shared_axes else X
    if attrs["is_test"] or probability == 0.0:
        is_kept = g.binary("Equal", like, like)
        return {"Out": g.binary("Mul", X, g.number(factor, X)), "Mask": g.cast(is_kept, VarType.UINT8)}
    if Seed is not None:
        raise NotExported("a seed that is computed")
    drawn = drawn_like(g, like, "RandomUniformLike", low=0.0, high=1.0)
    is_kept = g.binary("GreaterOrEqual", drawn, g.number(probability, drawn))
    return {
        "Out": g.where(is_kept, g.binary("Mul", X, g.number(factor, X)), g.number(0, X)),
        "Mask": g.cast(is_kept, VarType.UINT8),
    }

"""Normalization and dropout.

The gradient rules compute the statistics again from X, so that second derivatives include how they depend on X; the kernels of
the gradient ops use the saved statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import InferenceError
from ..opdef.composition import means
from ..opdef.registry import ZERO_GRADIENT, ShapeOnly, at_most, define, ints, least
from ..values.spec import Spec
from ..values.types import VarType, accumulated
from .manipulation import product
from .pool import by_channel
from .shapes import may_equal, normalize_axis, within


# --------------------------------------------------------------------------------------------------------- batch_norm
def channel_axis(data_layout: str, ndim: int) -> int:
    """The axis of the channels: the last in layouts such as NHWC, else the second."""
    return ndim - 1 if data_layout in ("NHWC", "NDHWC", "NLC", "NWC") else 1


def _channels(X: Spec, data_layout: str) -> int:
    """The number of channels of X, or -1."""
    if data_layout not in ("NCHW", "NHWC", "NCDHW", "NDHWC", "NCL", "NLC", "NCW", "NWC", "NC", "AnyLayout"):
        raise InferenceError(f"data_layout is {data_layout!r}; it should be NCHW or NHWC; X is {X}")
    return X.shape[channel_axis(data_layout, X.ndim)]


def _check_vectors(op_type: str, size: int, why: str, **vectors: Spec | None) -> None:
    """`InferenceError` unless all `vectors` that are not None have shape ``[size]``."""
    for name, spec in vectors.items():
        if spec is not None and not may_equal(spec.shape, (size,)):
            raise InferenceError(f"{op_type}: {name} {spec} should have shape [{size}], {why}")


def uses_global_stats(is_test: bool, use_global_stats: bool, trainable_statistics: bool) -> bool:
    """Whether batch_norm normalizes by the running statistics instead of the batch's."""
    return use_global_stats or (is_test and not trainable_statistics)


def _passed_statistics(attrs: Mapping[str, Any]) -> Mapping[str, str]:
    """The running statistics that batch_norm passes on as they are."""
    uses_them = uses_global_stats(attrs["is_test"], attrs["use_global_stats"], attrs["trainable_statistics"])
    return {"MeanOut": "Mean", "VarianceOut": "Variance"} if uses_them else {}


def _batch_norm(
    X: Spec, Scale: Spec | None, Bias: Spec | None, Mean: Spec, Variance: Spec, data_layout: str, momentum: float
) -> dict[str, Spec]:
    within("momentum", momentum, 0, 1)
    if not 2 <= X.ndim <= 5:
        raise InferenceError(f"batch_norm: X {X} should have 2 to 5 dimensions")
    why = f"as X {X} ({data_layout}) has channels"
    _check_vectors("batch_norm", _channels(X, data_layout), why, Scale=Scale, Bias=Bias, Mean=Mean, Variance=Variance)
    statistics = {"MeanOut": Mean, "VarianceOut": Variance, "SavedMean": Mean, "SavedVariance": Variance}
    return {"Y": X, **statistics, "ReserveSpace": X.with_shape((0,))}  # a workspace of other backends


def _normalized(X: Any, mean: Callable[[Any], Any], epsilon: float) -> tuple[Any, Any, Callable[[Any], Any]]:
    """X with mean 0 and variance 1, its inverse deviation, and a function from the gradient of the first to the gradient of X."""
    centered = X - mean(X)
    inverse = (mean(centered * centered) + epsilon) ** -0.5
    normal = centered * inverse
    return normal, inverse, lambda grad: (grad - mean(grad) - normal * mean(grad * normal)) * inverse


_BATCH_NORM: dict[str, Any] = {
    "infer": _batch_norm,
    "wrt": ("X", "Scale", "Bias"),
    "constants": ("Mean", "Variance"),
    "passes_on": _passed_statistics,
    "is_test": False,
    "momentum": 0.9,
    "epsilon": least(0, 1e-5),
    "data_layout": "NCHW",
    "use_global_stats": False,
    "trainable_statistics": False,
}


def _with_statistics(
    f: Any, d_x: Any, X: Any, normal: Any, inverse: Any, channel: int, workers: int, d_mean: Any, d_variance: Any
) -> Any:
    """Add to the gradient `d_x` of X the parts through the saved mean and variance, whose gradients come from all workers."""
    if d_mean is not None or d_variance is not None:
        other_axes = [axis for axis in range(X.ndim) if axis != channel]
        count = f.reduce_sum(f.fill_any_like(X, value=float(workers)), dim=other_axes, keep_dim=True)
    if d_mean is not None:
        d_x = d_x + f.expand_to(d_mean, X, axis=channel) / count
    if d_variance is not None:
        d_x = d_x - f.elementwise_mul(normal * inverse * inverse / count, d_variance, axis=channel)
    return d_x


@define(
    "batch_norm(X: float, Scale?, Bias?, Mean: float, Variance: float, MomentumTensor?)"
    " -> Y, MeanOut, VarianceOut, SavedMean~, SavedVariance~, ReserveSpace?",
    **_BATCH_NORM,
)
def batch_norm(
    f: Any,
    X: Any,
    Scale: Any,
    Bias: ShapeOnly,
    MeanOut: ShapeOnly,
    VarianceOut: ShapeOnly,
    SavedMean: Any,
    SavedVariance: Any,
    ReserveSpace: ShapeOnly,
    dY: Any,
    epsilon: Any,
    data_layout: Any,
    is_test: Any,
    use_global_stats: Any,
    trainable_statistics: Any,
    dSavedMean: Any = None,
    dSavedVariance: Any = None,
) -> Any:
    """``(X - mean) / sqrt(variance + epsilon) * Scale + Bias`` for each channel.

    In training, the mean and the (biased) variance come from the batch, and the running statistics Mean and Variance are
    updated in place: ``MeanOut = Mean * momentum + mean * (1 - momentum)``. With `is_test` or `use_global_stats`, the running
    statistics are used. SavedMean and SavedVariance are the mean and the inverse standard deviation that were used.
    """
    channel = channel_axis(data_layout, X.ndim)
    other_axes = [axis for axis in range(X.ndim) if axis != channel]
    scaled = dY if Scale is None else f.elementwise_mul(dY, Scale, axis=channel)
    if uses_global_stats(is_test, use_global_stats, trainable_statistics):
        normal = f.elementwise_mul(f.elementwise_sub(X, SavedMean, axis=channel), SavedVariance, axis=channel)
        d_x = f.elementwise_mul(scaled, SavedVariance, axis=channel)  # the running statistics do not depend on X
    else:

        def mean(value: Any) -> Any:
            return f.reduce_mean(value, dim=other_axes, keep_dim=True)

        normal, inverse, back = _normalized(X, mean, epsilon)
        d_x = _with_statistics(f, back(scaled), X, normal, inverse, channel, 1, dSavedMean, dSavedVariance)
    return {
        "X": d_x,
        "Scale": lambda: f.sum_to(dY * normal, Scale, axis=channel),
        "Bias": lambda: f.sum_to(dY, Bias, axis=channel),
    }


@define(
    "sync_batch_norm(X: float, Scale?, Bias?, Mean: float, Variance: float, MomentumTensor?)"
    " -> Y, MeanOut, VarianceOut, SavedMean~, SavedVariance~, ReserveSpace?",
    **_BATCH_NORM,
    nranks=least(1, 1),
)
def sync_batch_norm(
    f: Any,
    X: Any,
    Scale: Any,
    Bias: ShapeOnly,
    SavedMean: Any,
    SavedVariance: Any,
    dY: Any,
    epsilon: Any,
    data_layout: Any,
    is_test: Any,
    use_global_stats: Any,
    trainable_statistics: Any,
    nranks: int,
    dSavedMean: Any = None,
    dSavedVariance: Any = None,
) -> Any:
    """`batch_norm` by the mean and the variance of all `nranks` workers' X, which have one shape."""
    channel = channel_axis(data_layout, X.ndim)
    other_axes = [axis for axis in range(X.ndim) if axis != channel]
    scaled = dY if Scale is None else f.elementwise_mul(dY, Scale, axis=channel)
    if uses_global_stats(is_test, use_global_stats, trainable_statistics):
        normal = f.elementwise_mul(f.elementwise_sub(X, SavedMean, axis=channel), SavedVariance, axis=channel)
        d_x = f.elementwise_mul(scaled, SavedVariance, axis=channel)  # the running statistics do not depend on X
    else:

        def total(value: Any) -> Any:
            return f.c_allreduce_sum(value, use_calc_stream=True, nranks=nranks)

        def mean(value: Any) -> Any:
            return total(f.reduce_mean(value, dim=other_axes, keep_dim=True)) * (1.0 / nranks)

        normal, inverse, back = _normalized(X, mean, epsilon)
        d_mean, d_variance = (None if value is None else total(value) for value in (dSavedMean, dSavedVariance))
        d_x = _with_statistics(f, back(scaled), X, normal, inverse, channel, nranks, d_mean, d_variance)
    return {
        "X": d_x,
        "Scale": lambda: f.sum_to(dY * normal, Scale, axis=channel),
        "Bias": lambda: f.sum_to(dY, Bias, axis=channel),
    }


# --------------------------------------------------------------------------------------- layer, instance and group norm
def _statistics_of(X: Spec, shape: tuple[int, ...]) -> Spec:
    return Spec(shape, accumulated(X.dtype))


def _layer_norm(X: Spec, Scale: Spec | None, Bias: Spec | None, begin_norm_axis: int) -> tuple[Spec, Spec, Spec]:
    if not 0 < begin_norm_axis < X.ndim:
        raise InferenceError(f"layer_norm: begin_norm_axis {begin_norm_axis} should be in [1, {X.ndim}) for X {X}")
    rows, columns = product(X.shape[:begin_norm_axis]), product(X.shape[begin_norm_axis:])
    _check_vectors("layer_norm", columns, f"the elements of a row of X {X}", Scale=Scale, Bias=Bias)
    statistics = _statistics_of(X, (rows,))
    return X, statistics, statistics


@define(
    "layer_norm(X: float, Scale?, Bias?) -> Y, Mean~, Variance~", infer=_layer_norm, epsilon=least(0, 1e-5), begin_norm_axis=1
)
def layer_norm(
    f: Any, X: Any, Scale: Any, Bias: ShapeOnly, Mean: Any, Variance: Any, dY: Any, epsilon: Any, begin_norm_axis: Any
) -> Any:
    """``(X - Mean) / sqrt(Variance + epsilon) * Scale + Bias``, with statistics over the axes from `begin_norm_axis`.

    Scale and Bias are vectors with an element for each element of these axes; Mean and Variance have one for each row.
    """

    def mean(value: Any) -> Any:
        return f.reduce_mean(value, dim=[1], keep_dim=True)

    x = f.flatten2(X, axis=begin_norm_axis)
    d_y = f.flatten2(dY, axis=begin_norm_axis)
    normal, _, back = _normalized(x, mean, epsilon)
    return {
        "X": lambda: f.reshape_like(back(d_y if Scale is None else d_y * Scale), X),
        "Scale": lambda: f.sum_to(d_y * normal, Scale),
        "Bias": lambda: f.sum_to(d_y, Bias),
    }


def _instance_norm(X: Spec, Scale: Spec | None, Bias: Spec | None) -> tuple[Spec, Spec, Spec]:
    if not 2 <= X.ndim <= 5:
        raise InferenceError(f"instance_norm: X {X} should have 2 to 5 dimensions")
    _check_vectors("instance_norm", X.shape[1], f"as X {X} has channels", Scale=Scale, Bias=Bias)
    statistics = _statistics_of(X, (product(X.shape[:2]),))
    return X, statistics, statistics


def _standardized(f: Any, x: Any, axes: list[int], epsilon: float) -> tuple[Any, Any, Any, Any]:
    """x with mean 0 and variance 1 over axes; also the means, variances and inverse deviations."""
    mean = f.reduce_mean(x, dim=axes, keep_dim=True) if axes else x
    centered = x - mean
    variance = f.reduce_mean(f.square(centered), dim=axes, keep_dim=True) if axes else f.square(centered)
    inverse = f.rsqrt(variance + epsilon)
    return centered * inverse, mean, variance, inverse


def _scaled_channels(f: Any, x: Any, Scale: Any, Bias: Any) -> Any:
    x = x if Scale is None else f.elementwise_mul(x, Scale, axis=1)
    return x if Bias is None else f.elementwise_add(x, Bias, axis=1)


def _instances(f: Any, X: Any, Scale: Any, Bias: Any, epsilon: float) -> dict[str, Any]:
    y, mean, _, inverse = _standardized(f, X, list(range(2, X.ndim)), epsilon)
    saved = [f.reshape(statistic, shape=[-1]) for statistic in (mean, inverse)]
    return {"Y": _scaled_channels(f, y, Scale, Bias), "SavedMean": saved[0], "SavedVariance": saved[1]}


@define(
    "instance_norm(X: float, Scale?, Bias?) -> Y, SavedMean~, SavedVariance~",
    infer=_instance_norm,
    epsilon=least(0, 1e-5),
    meaning=means(_instances),
)
def instance_norm(f: Any, X: Any, Scale: Any, SavedMean: Any, SavedVariance: Any, dY: Any, epsilon: float) -> Any:
    """``(X - mean) / sqrt(variance + epsilon) * Scale + Bias``, with statistics over the axes from the third.

    SavedMean and SavedVariance are the mean and the inverse standard deviation of each channel of each image.
    """
    places = list(range(2, X.ndim))

    def mean(value: Any) -> Any:
        return f.reduce_mean(value, dim=places, keep_dim=True) if places else value

    normal, _, back = _normalized(X, mean, epsilon)
    return {
        "X": lambda: back(dY if Scale is None else f.elementwise_mul(dY, Scale, axis=1)),
        "Scale": lambda: f.reduce_sum(dY * normal, dim=[0, *places]),
        "Bias": lambda: f.reduce_sum(dY, dim=[0, *places]),
    }


def _group_norm(X: Spec, Scale: Spec | None, Bias: Spec | None, groups: int, data_layout: str) -> tuple[Spec, Spec, Spec]:
    if X.ndim < 2:
        raise InferenceError(f"group_norm: X {X} should have 2 dimensions at least")
    channels = _channels(X, data_layout)
    if groups < 1 or (channels >= 0 and channels % groups):
        raise InferenceError(f"group_norm: {groups} groups do not divide the {channels} channels of X {X} ({data_layout})")
    _check_vectors("group_norm", channels, f"as X {X} has channels", Scale=Scale, Bias=Bias)
    statistics = _statistics_of(X, (X.shape[0], groups))
    return X, statistics, statistics


def _groups(f: Any, X: Any, Scale: Any, Bias: Any, epsilon: float, groups: int, data_layout: str) -> dict[str, Any]:
    last = channel_axis(data_layout, X.ndim) != 1
    x = f.transpose(X, axis=[0, X.ndim - 1, *range(1, X.ndim - 1)]) if last else X
    y, mean, variance, _ = _standardized(f, f.reshape(x, shape=[0, groups, -1]), [2], epsilon)
    y = _scaled_channels(f, f.reshape_like(y, x), Scale, Bias)
    statistics = [f.squeeze(statistic, axes=[2]) for statistic in (mean, variance)]
    return {
        "Y": f.transpose(y, axis=[0, *range(2, X.ndim), 1]) if last else y,
        "Mean": statistics[0],
        "Variance": statistics[1],
    }


@define(
    "group_norm(X: float, Scale?, Bias?) -> Y, Mean~, Variance~",
    infer=_group_norm,
    epsilon=least(0, 1e-5),
    groups=-1,
    data_layout="NCHW",
    meaning=means(_groups),
)
def group_norm(
    f: Any,
    X: Any,
    Scale: Any,
    Bias: ShapeOnly,
    Y: ShapeOnly,
    Mean: Any,
    Variance: Any,
    dY: Any,
    epsilon: float,
    groups: int,
    data_layout: str,
) -> Any:
    """``(X - Mean) / sqrt(Variance + epsilon) * Scale + Bias``, with statistics over `groups` groups of channels of an image."""
    ndim = X.ndim
    last = channel_axis(data_layout, ndim) != 1
    x, d_y = (f.transpose(value, axis=[0, ndim - 1, *range(1, ndim - 1)]) if last else value for value in (X, dY))

    def grouped(value: Any) -> Any:
        return f.reshape(value, shape=[0, groups, -1])

    def mean(value: Any) -> Any:
        return f.reduce_mean(value, dim=[2], keep_dim=True)

    normal, _, back = _normalized(grouped(x), mean, epsilon)

    def d_x() -> Any:
        scaled = d_y if Scale is None else f.elementwise_mul(d_y, Scale, axis=1)
        gradient = f.reshape_like(back(grouped(scaled)), x)
        return f.transpose(gradient, axis=[0, *range(2, ndim), 1]) if last else gradient

    other_axes = [axis for axis in range(ndim) if axis != 1]
    return {
        "X": d_x,
        "Scale": lambda: f.reduce_sum(d_y * f.reshape_like(normal, x), dim=other_axes),
        "Bias": lambda: f.reduce_sum(d_y, dim=other_axes),
    }


# -------------------------------------------------------------------------------------- by neighbours, by data, by matrix
def lrn_window(n: int) -> dict[str, Any]:
    """Pooling attributes for windows of `n` channels around each channel (see `by_channel`)."""
    before = (n - 1) // 2
    return {"ksize": [n, 1], "paddings": [before, n - 1 - before, 0, 0], "exclusive": False}


def _lrn(X: Spec, n: int, data_format: str) -> tuple[Spec, Spec]:
    if X.ndim != 4 or n < 1:
        raise InferenceError(f"X {X} should have 4 dimensions, and n {n} should be above 0")
    return X, X


def _by_neighbours(f: Any, X: Any, n: int, k: float, alpha: float, beta: float, data_format: str) -> dict[str, Any]:
    squares = by_channel(f, f.square(X), channel_axis(data_format, X.ndim), X.ndim)
    means_of_squares = f.pool2d(squares, pooling_type="avg", **lrn_window(n))
    mid = f.reshape_like(means_of_squares, X) * (alpha * n) + k
    return {"Out": X * mid**-beta, "MidOut": mid}


@define(
    "lrn(X: float) -> Out, MidOut",
    infer=_lrn,
    meaning=means(_by_neighbours),
    n=5,
    k=2.0,
    alpha=1e-4,
    beta=0.75,
    data_format="AnyLayout",
)
def lrn(
    f: Any,
    X: Any,
    Out: ShapeOnly,
    MidOut: Any,
    dOut: Any,
    n: int,
    alpha: float,
    beta: float,
    data_format: str,
    dMidOut: Any = None,
) -> Any:
    """``X / MidOut ** beta``, where MidOut is k plus alpha times the sum of squares of the `n` channels around each channel."""
    channel = channel_axis(data_format, X.ndim)
    d_mid = dOut * X * (MidOut ** (-beta - 1.0)) * -beta
    if dMidOut is not None:
        d_mid = d_mid + dMidOut
    like_x, d_sums = (by_channel(f, value, channel, X.ndim) for value in (X, d_mid))
    shared = f.pool2d_average_back(d_sums, like_x, **lrn_window(n))
    return {"X": dOut * MidOut**-beta + X * f.reshape_like(shared, X) * (2.0 * alpha * n)}


def _affine_channel(X: Spec, Scale: Spec, Bias: Spec, data_layout: str) -> Spec:
    if X.ndim < 2:
        raise InferenceError(f"X {X} should have 2 dimensions at least")
    _check_vectors("affine_channel", _channels(X, data_layout), f"as X {X} has channels", Scale=Scale, Bias=Bias)
    return X


def _scaled_and_shifted(f: Any, X: Any, Scale: Any, Bias: Any, data_layout: str) -> Any:
    channel = channel_axis(data_layout, X.ndim)
    return f.elementwise_add(f.elementwise_mul(X, Scale, axis=channel), Bias, axis=channel)


@define(
    "affine_channel(X: float, Scale, Bias) -> Out",
    infer=_affine_channel,
    data_layout="AnyLayout",
    meaning=means(_scaled_and_shifted),
)
def affine_channel(f: Any, X: Any, Scale: Any, dOut: Any, data_layout: str) -> Any:
    """``X * Scale + Bias``; Scale and Bias have a number for each channel."""
    channel = channel_axis(data_layout, X.ndim)
    other_axes = [axis for axis in range(X.ndim) if axis != channel]
    return {
        "X": lambda: f.elementwise_mul(dOut, Scale, axis=channel),
        "Scale": lambda: f.reduce_sum(dOut * X, dim=other_axes),
        "Bias": lambda: f.reduce_sum(dOut, dim=other_axes),
    }


def _data_norm(inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> tuple[Spec, Spec, Spec]:
    X: Spec = inputs["X"]
    if X.ndim != 2:
        raise InferenceError(f"X {X} should have 2 dimensions")
    for name in ("BatchSize", "BatchSum", "BatchSquareSum", "scale_w", "bias"):
        spec = inputs.get(name)
        if spec is not None and not may_equal(spec.shape, X.shape[1:]):
            raise InferenceError(f"{name} {spec} should have shape [{X.shape[1]}], a number for each column of X {X}")
    if attrs["enable_scale_and_shift"] and (inputs.get("scale_w") is None or inputs.get("bias") is None):
        raise InferenceError("enable_scale_and_shift needs scale_w and bias")
    if attrs["slot_dim"] > 0:
        raise InferenceError(f"slot_dim {attrs['slot_dim']} is not supported; leave it at -1")
    return X, inputs["BatchSize"], inputs["BatchSize"]


def _normalized_by_data(
    f: Any, scale_w: Any, bias: Any, X: Any, BatchSize: Any, BatchSum: Any, BatchSquareSum: Any, enable_scale_and_shift: bool
) -> Any:
    means, scales = BatchSum / BatchSize, f.sqrt(BatchSize / BatchSquareSum)
    normalized = (X - means) * scales
    return {"Y": normalized * scale_w + bias if enable_scale_and_shift else normalized, "Means": means, "Scales": scales}


@define(
    "data_norm(scale_w?, bias?, X: float, BatchSize: float, BatchSum, BatchSquareSum) -> Y, Means~, Scales~",
    infer=_data_norm,
    wrt=("X", "scale_w", "bias"),
    constants=("BatchSize", "BatchSum", "BatchSquareSum"),
    epsilon=least(0, 1e-4),
    slot_dim=-1,
    summary_decay_rate=0.9999999,
    enable_scale_and_shift=False,
    data_layout="NCHW",
    sync_stats=False,
    meaning=means(_normalized_by_data),
)
def data_norm(
    f: Any,
    scale_w: Any,
    bias: ShapeOnly,
    X: Any,
    Means: Any,
    Scales: Any,
    dY: Any,
    enable_scale_and_shift: bool,
    dMeans: Any = None,
    dScales: Any = None,
) -> Any:
    """``(X - Means) * Scales`` for each column, by statistics of all data so far: ``Means = BatchSum / BatchSize``.

    ``Scales = sqrt(BatchSize / BatchSquareSum)``. With `enable_scale_and_shift` the result is multiplied by scale_w, and bias
    is added. The statistics have no gradient, and the op does not update them.
    """
    scaled = dY if not enable_scale_and_shift else dY * scale_w
    return {  # dMeans and dScales only concern the statistics, which have no gradient
        "X": lambda: scaled * Scales,
        "scale_w": lambda: f.sum_to(dY * (X - Means) * Scales, scale_w),
        "bias": lambda: f.sum_to(dY, bias),
    }


def spectral_matrix(ndim: int, dim: int) -> list[int]:
    """The order of axes with `dim` in front."""
    return [dim, *(axis for axis in range(ndim) if axis != dim)]


def _check_singular(Weight: Spec, U: Spec, V: Spec, dim: int) -> None:
    if not 0 <= dim < Weight.ndim:
        raise InferenceError(f"dim {dim} should be an axis of Weight {Weight}")
    height = Weight.shape[dim]
    width = Weight.with_shape(tuple(size for axis, size in enumerate(Weight.shape) if axis != dim)).size
    for name, spec, size in (("U", U, height), ("V", V, width)):
        if not may_equal(spec.shape, (size,)):
            raise InferenceError(f"{name} {spec} should have shape [{size}] for Weight {Weight} and dim {dim}")


def _spectral_norm(Weight: Spec, U: Spec, V: Spec, dim: int) -> Spec:
    _check_singular(Weight, U, V, dim)
    return Weight


def _spectral_vectors(Weight: Spec, U: Spec, V: Spec, dim: int) -> tuple[Spec, Spec]:
    _check_singular(Weight, U, V, dim)
    return U, V


_SPECTRAL: dict[str, Any] = {"dim": 0, "power_iters": at_most(1000, least(0, 1)), "eps": least(0, 1e-12)}


@define("spectral_norm(Weight: float, U, V) -> Out", infer=_spectral_norm, wrt=("Weight",), constants=("U", "V"), **_SPECTRAL)
def spectral_norm(f: Any, Weight: Any, U: Any, V: Any, dOut: Any, attrs: dict[str, Any]) -> Any:
    """Weight divided by the greatest singular value of the matrix with the axis `dim` as rows and all others as columns.

    The value is ``u @ Weight @ v``, where u and v come from U and V, which do not change, by `power_iters` steps of power
    iteration. The gradient treats u and v as constants.
    """
    u, v = f.spectral_vectors(Weight, U, V, **attrs)
    order = spectral_matrix(Weight.ndim, attrs["dim"])
    turned = f.transpose(Weight, axis=order)
    matrix, d_out = f.flatten2(turned, axis=1), f.flatten2(f.transpose(dOut, axis=order), axis=1)
    direction = f.unsqueeze2(u, axes=[1]) * f.unsqueeze2(v, axes=[0])

    def total(value: Any) -> Any:
        return f.reduce_sum(value, dim=[0, 1], keep_dim=True)

    sigma = total(matrix * direction)
    d_matrix = d_out / sigma - direction * (total(d_out * matrix) / (sigma * sigma))
    back = sorted(range(Weight.ndim), key=order.__getitem__)
    return {"Weight": f.transpose(f.reshape_like(d_matrix, turned), axis=back)}


@define("spectral_vectors(Weight, U: float, V: float) -> UOut, VOut", infer=_spectral_vectors, grad=ZERO_GRADIENT, **_SPECTRAL)
def spectral_vectors() -> None:
    """The vectors u and v of `spectral_norm`, as constants."""


# ------------------------------------------------------------------------------------------------------------ dropout
def dropout_scale(dropout_prob: float, dropout_implementation: str, is_test: bool) -> float:
    """The factor of the elements that dropout keeps."""
    if dropout_implementation == "upscale_in_train":
        return 1.0 if is_test else (1.0 / (1.0 - dropout_prob) if dropout_prob < 1 else 0.0)
    return 1.0 - dropout_prob if is_test else 1.0


def _dropout(X: Spec, dropout_prob: float, dropout_implementation: str) -> tuple[Spec, Spec]:
    within("dropout_prob", dropout_prob, 0, 1)
    if dropout_implementation not in ("upscale_in_train", "downgrade_in_infer"):
        raise InferenceError(
            f"dropout: dropout_implementation {dropout_implementation!r} should be 'upscale_in_train' or 'downgrade_in_infer'"
        )
    return X, X.with_dtype(VarType.UINT8)


def _dropout_nd(X: Spec, dropout_prob: float, dropout_implementation: str, axis: list[int]) -> tuple[Spec, Spec]:
    out, mask = _dropout(X, dropout_prob, dropout_implementation)
    alone = {normalize_axis(item, X.ndim) for item in axis} or set(range(X.ndim))
    return out, mask.with_shape(tuple(size if place in alone else 1 for place, size in enumerate(X.shape)))


_DROPOUT: dict[str, Any] = {
    "wrt": ("X",),
    "dropout_prob": 0.5,
    "dropout_implementation": "downgrade_in_infer",
    "is_test": False,
    "fix_seed": False,
    "seed": 0,
}


@define("dropout(X: float, Seed?) -> Out, Mask~", infer=_dropout, **_DROPOUT)
def dropout(f: Any, Mask: Any, dOut: Any, dropout_prob: Any, dropout_implementation: Any, is_test: Any) -> Any:
    """X with each element set to zero with probability `dropout_prob`; Mask is 1 where an element is kept.

    "upscale_in_train" multiplies kept elements by ``1 / (1 - dropout_prob)`` in training, and returns X if `is_test`;
    "downgrade_in_infer" instead returns ``X * (1 - dropout_prob)`` if `is_test`.
    """
    unmasked = dOut if is_test else dOut * Mask.astype(dOut.dtype)
    return {"X": unmasked * dropout_scale(dropout_prob, dropout_implementation, is_test)}


@define("dropout_nd(X: float, Seed?) -> Out, Mask~", infer=_dropout_nd, **_DROPOUT, axis=ints())
def dropout_nd(f: Any, Mask: Any, dOut: Any, dropout_prob: Any, dropout_implementation: Any, is_test: Any) -> Any:
    """As `dropout`, where all elements that differ only along other axes than `axis` stay or go together.

    Mask, which broadcasts with X, is 1 where elements stay.
    """
    unmasked = dOut if is_test else f.elementwise_mul(dOut, Mask.astype(dOut.dtype))
    return {"X": unmasked * dropout_scale(dropout_prob, dropout_implementation, is_test)}

"""Ops that Paddle's passes for inference make by fusing other ops. Each is composed of these ops.

They are in programs that such a pass has written; here they compute the same as the ops that they replaced. In Paddle, most
of them have no gradient; here, they have the gradient of the replaced ops.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ..errors import InferenceError
from ..opdef.composition import composed, pullback
from ..opdef.registry import ShapeOnly, get, grad_slot, ints, least, required, strings
from . import activation, conv, elementwise, manipulation, matmul, norm, reduction  # noqa: F401  (what the ops are made of)
from .shapes import broadcast, may_equal

_NOTHING = ("", "identity", "linear")


def activated(f: Any, value: Any, kind: str, alpha: float = 0.0, beta: float = 0.0) -> Any:
    """An activation by the name that fused ops call it; `alpha` and `beta` are its attributes, as oneDNN has them."""
    if kind in _NOTHING:
        return value
    if kind == "leaky_relu":
        return f.leaky_relu(value, alpha=alpha)
    if kind == "clip":
        return f.clip(value, min=alpha, max=beta)
    if kind == "hard_sigmoid":
        return f.hard_sigmoid(value, slope=alpha, offset=beta) if alpha else f.hard_sigmoid(value)
    if kind == "swish":
        return f.swish(value, beta=alpha or 1.0)
    if kind in ("gelu", "gelu_erf", "gelu_tanh"):
        return f.gelu(value, approximate=kind == "gelu_tanh")
    plain = {"relu", "sigmoid", "tanh", "relu6", "hard_swish", "mish", "abs", "sqrt", "exp", "elu", "silu"}
    if kind not in plain:
        raise InferenceError(f"the fused activation {kind!r} is not known; known are {', '.join(sorted(plain))}, and some others")
    return getattr(f, kind)(value)


def _with_statistics(f: Any, value: Any, scale: Any, bias: Any, epsilon: float, axis: int) -> tuple[Any, Any, Any]:
    """Apply `layer_norm`; return its result with the mean and variance of the rows, as ordinary ops, which have gradients."""
    rows = f.flatten2(value, axis=axis)
    mean = f.reduce_mean(rows, dim=[1], keep_dim=True)
    variance = f.reduce_mean(f.square(rows - mean), dim=[1])
    y = f.layer_norm(value, scale, bias, epsilon=epsilon, begin_norm_axis=axis)
    return y, f.reshape2(mean, shape=[-1]), variance


def _linear(f: Any, x: Any, w: Any, bias: Any, columns: int, kind: str) -> Any:
    out = f.mul(x, w, x_num_col_dims=columns)
    return activated(f, out if bias is None else f.elementwise_add(out, bias), kind)


# ------------------------------------------------------------------------------------------------------------ products
@composed(
    "fc(Input: float, W: float, Bias?) -> Out",
    in_num_col_dims=least(1, 1),
    activation_type="",
    padding_weights=False,
)
def fc(f: Any, Input: Any, W: Any, Bias: Any, in_num_col_dims: int, activation_type: str, padding_weights: bool) -> Any:
    """``activation(Input @ W + Bias)``, of Input flattened behind its first `in_num_col_dims` dimensions.

    With `padding_weights`, W has four rows and columns more, which do not count.
    """
    if padding_weights:
        W = f.slice(W, axes=[0, 1], starts=[0, 0], ends=[-4, -4])
    return _linear(f, Input, W, Bias, in_num_col_dims, activation_type)


@composed(
    "fused_fc_elementwise_layernorm(X: float, W: float, Y: float, Bias0?, Scale?, Bias1?) -> Out, Mean?, Variance?",
    x_num_col_dims=least(1, 1),
    activation_type="",
    epsilon=least(0, 1e-5),
    begin_norm_axis=1,
)
def fused_fc_elementwise_layernorm(
    f: Any,
    X: Any,
    W: Any,
    Y: Any,
    Bias0: Any,
    Scale: Any,
    Bias1: Any,
    x_num_col_dims: int,
    activation_type: str,
    epsilon: float,
    begin_norm_axis: int,
) -> Any:
    """`layer_norm` of ``activation(X @ W + Bias0) + Y``."""
    product = _linear(f, X, W, Bias0, x_num_col_dims, activation_type)
    if min(*product.shape, *Y.shape) >= 0 and prod(product.shape) != prod(Y.shape):
        raise InferenceError(f"X @ W, of shape {list(product.shape)}, should have as many elements as Y {list(Y.shape)}")
    product = f.reshape_like(product, Y)
    out, mean, variance = _with_statistics(f, product + Y, Scale, Bias1, epsilon, begin_norm_axis)
    return {"Out": out, "Mean": mean, "Variance": variance}


@composed("fusion_repeated_fc_relu(X: float, W*, Bias*) -> ReluOut*~, Out")
def fusion_repeated_fc_relu(f: Any, X: Any, W: Any, Bias: Any) -> Any:
    """Products with several weights, one after another, each followed by its bias and `relu`."""
    layers = []
    for weight, bias in zip(W, Bias, strict=True):
        X = _linear(f, X, weight, bias, 1, "relu")
        layers.append(X)
    return {"ReluOut": layers[:-1], "Out": layers[-1]}


@composed("fusion_squared_mat_sub(X: float, Y: float) -> SquaredX~, SquaredY~, SquaredXY~, Out", scalar=1.0)
def fusion_squared_mat_sub(f: Any, X: Any, Y: Any, scalar: float) -> Any:
    """``scalar * ((X @ Y)^2 - X^2 @ Y^2)``, as factorization machines have it."""
    x, y, xy = f.square(X), f.square(Y), f.square(f.matmul_v2(X, Y))
    return {"SquaredX": x, "SquaredY": y, "SquaredXY": xy, "Out": (xy - f.matmul_v2(x, y)) * scalar}


def _arranged(f: Any, value: Any, shape: list[int], axes: list[int]) -> Any:
    value = f.reshape2(value, shape=shape) if shape else value
    return f.transpose2(value, axis=axes) if axes else value


@composed(
    "fused_matmul(X: float, Y: float, ResidualData?) -> Out",
    trans_x=False,
    trans_y=False,
    matmul_alpha=1.0,
    fuse_activation="",
    fuse_alpha=0.0,
    fuse_beta=0.0,
    fused_output_scale=1.0,
    fused_reshape_X=ints(),
    fused_transpose_X=ints(),
    fused_reshape_Y=ints(),
    fused_transpose_Y=ints(),
    fused_reshape_Out=ints(),
    fused_transpose_Out=ints(),
)
def fused_matmul(f: Any, X: Any, Y: Any, ResidualData: Any, attrs: Any) -> Any:
    """``activation(matmul_alpha * X @ Y + ResidualData)``; X and Y may be reshaped and transposed before, the result after it."""
    X = _arranged(f, X, attrs["fused_reshape_X"], attrs["fused_transpose_X"])
    Y = _arranged(f, Y, attrs["fused_reshape_Y"], attrs["fused_transpose_Y"])
    out = f.matmul_v2(X, Y, trans_x=attrs["trans_x"], trans_y=attrs["trans_y"]) * attrs["matmul_alpha"]
    out = out if ResidualData is None else out + ResidualData
    out = activated(f, out, attrs["fuse_activation"], attrs["fuse_alpha"], attrs["fuse_beta"]) * attrs["fused_output_scale"]
    out = _arranged(f, out, [], attrs["fused_transpose_Out"])
    return _arranged(f, out, attrs["fused_reshape_Out"], [])


# -------------------------------------------------------------------------------------------------------- convolutions
_CONV: dict[str, Any] = {
    name: get("conv2d").attrs[name] for name in ("strides", "paddings", "padding_algorithm", "dilations", "groups", "data_format")
}
_CONV3D: dict[str, Any] = {name: get("conv3d").attrs[name]._replace(default=attr.default) for name, attr in _CONV.items()}


def _convolved(f: Any, op: str, values: Any, attrs: Any) -> Any:
    out = getattr(f, op)(values["Input"], values["Filter"], **{name: attrs[name] for name in _CONV})
    if values.get("Bias") is not None:
        last = attrs["data_format"] in ("NHWC", "NDHWC")
        out = f.elementwise_add(out, f.reshape2(values["Bias"], shape=[-1]), axis=-1 if last else 1)
    return out if values.get("ResidualData") is None else out + values["ResidualData"]


_FILTERED = "(Input: float, Filter: float, Bias?, ResidualData?) -> Output"
_AFTER: dict[str, Any] = {"fuse_activation": "", "fuse_alpha": 0.0, "fuse_beta": 0.0, "fuse_residual_connection": False}


@composed("fused_conv2d" + _FILTERED, **_CONV, **{k: v for k, v in _AFTER.items() if k not in ("fuse_alpha", "fuse_beta")})
def fused_conv2d(f: Any, values: Any, attrs: Any) -> Any:
    """``activation(conv2d(Input, Filter) + Bias + ResidualData)``."""
    return activated(f, _convolved(f, "conv2d", values, attrs), attrs["fuse_activation"])


@composed("fused_conv3d" + _FILTERED, **_CONV3D, **{k: v for k, v in _AFTER.items() if k not in ("fuse_alpha", "fuse_beta")})
def fused_conv3d(f: Any, values: Any, attrs: Any) -> Any:
    """``activation(conv3d(Input, Filter) + Bias + ResidualData)``."""
    return activated(f, _convolved(f, "conv3d", values, attrs), attrs["fuse_activation"])


def _convolved_and_split(f: Any, values: Any, attrs: Any) -> Any:
    out = activated(f, _convolved(f, "conv2d", values, attrs), attrs["activation"], attrs["fuse_alpha"])
    if not attrs["split_channels"]:
        return out
    return {"Output": out, "Outputs": f.split(out, sections=attrs["split_channels"], axis=1)}


for _name in ("fused_conv2d_add_act", "conv2d_fusion"):

    @composed(_name + _FILTERED + ", Outputs*?", **_CONV, activation="relu", fuse_alpha=0.0, split_channels=ints())
    def fused_conv2d_add_act(f: Any, values: Any, attrs: Any) -> Any:
        """``activation(conv2d(Input, Filter) + Bias + ResidualData)``, also split into parts of `split_channels` channels."""
        return _convolved_and_split(f, values, attrs)


@composed("fused_scale_bias_add_relu(x1: float, scale1, bias1, x2, scale2?, bias2?) -> out", fuse_dual=required("bool"))
def fused_scale_bias_add_relu(f: Any, x1: Any, scale1: Any, bias1: Any, x2: Any, scale2: Any, bias2: Any, fuse_dual: bool) -> Any:
    """``relu(x1 * scale1 + bias1 + x2)``, with ``x2 * scale2 + bias2`` in place of x2 if `fuse_dual`; channels come last."""
    out = f.elementwise_add(f.elementwise_mul(x1, scale1), bias1)
    return f.relu(out + (f.elementwise_add(f.elementwise_mul(x2, scale2), bias2) if fuse_dual else x2))


# ------------------------------------------------------------------------------------------------------- normalizations
@composed("skip_layernorm(X: float, Y, Scale, Bias) -> Out", epsilon=required("float"), begin_norm_axis=required("int"))
def skip_layernorm(f: Any, X: Any, Y: Any, Scale: Any, Bias: Any, epsilon: float, begin_norm_axis: int) -> Any:
    """`layer_norm` of ``X + Y``."""
    return f.layer_norm(X + Y, Scale, Bias, epsilon=epsilon, begin_norm_axis=begin_norm_axis)


@composed("fused_embedding_eltwise_layernorm(Ids*: int, Embs*, Bias, Scale) -> Out", epsilon=least(0, 1e-5))
def fused_embedding_eltwise_layernorm(f: Any, Ids: Any, Embs: Any, Bias: Any, Scale: Any, epsilon: float) -> Any:
    """`layer_norm` of the sum of rows of several tables; ids have the shape [batch, length], or [batch, length, 1]."""
    rows = [(f.lookup_table if ids.ndim == 3 else f.lookup_table_v2)(table, ids) for ids, table in zip(Ids, Embs, strict=True)]
    return f.layer_norm(f.sum(rows), Scale, Bias, epsilon=epsilon, begin_norm_axis=2)


def _summed(f: Any, *terms: Any) -> Any:
    out = None
    for term in terms:
        if term is not None:
            out = term if out is None else f.elementwise_add(out, term)
    return out


@composed(
    "rms_norm(x: float, bias?, residual?, norm_weight, norm_bias?) -> out, residual_out?",
    epsilon=required("float"),
    begin_norm_axis=required("int"),
)
def rms_norm(
    f: Any, x: Any, bias: Any, residual: Any, norm_weight: Any, norm_bias: Any, epsilon: float, begin_norm_axis: int
) -> Any:
    """``y / sqrt(mean(y^2) + epsilon) * norm_weight + norm_bias`` of ``y = x + bias + residual``, which is residual_out.

    The mean is over the axes from `begin_norm_axis`.
    """
    y = _summed(f, x, bias, residual)
    axes = list(range(begin_norm_axis, y.ndim))
    scale = f.rsqrt(f.reduce_mean(f.square(y), dim=axes, keep_dim=True) + epsilon)
    out = f.elementwise_mul(f.elementwise_mul(y, scale), norm_weight)
    return {"out": _summed(f, out, norm_bias), "residual_out": y}


@composed(
    "fused_bias_residual_layernorm(x: float, bias?, residual?, norm_weight?, norm_bias?) -> out, residual_out?, mean, variance",
    epsilon=required("float"),
    residual_alpha=required("float"),
    begin_norm_axis=required("int"),
)
def fused_bias_residual_layernorm(f: Any, values: Any, attrs: Any) -> Any:
    """`layer_norm` of ``x + bias + residual_alpha * residual``, which is residual_out."""
    residual = values.get("residual")
    y = _summed(f, values["x"], values.get("bias"), None if residual is None else residual * attrs["residual_alpha"])
    affine = values.get("norm_weight"), values.get("norm_bias")
    out, mean, variance = _with_statistics(f, y, *affine, attrs["epsilon"], attrs["begin_norm_axis"])
    return {"out": out, "residual_out": y, "mean": mean, "variance": variance}


# ----------------------------------------------------------------------------------------------------------- elementwise
_BINARY: dict[str, Any] = {**_AFTER, "axis": -1, "fused_output_scale": 1.0, "fused_unsqueeze2_axes": ints()}
_BINARY |= {"scale_x": 1.0, "scale_y": 1.0, "scale_out": 1.0}
del _BINARY["fuse_residual_connection"]


def _binary(f: Any, op: str, X: Any, Y: Any, attrs: Any) -> Any:
    if any(attrs[name] != 1.0 for name in ("scale_x", "scale_y", "scale_out")):
        raise InferenceError(f"fused_{op} of 8-bit integers, which oneDNN computes, is not here")
    out = getattr(f, op)(X, Y, axis=attrs["axis"])
    out = activated(f, out, attrs["fuse_activation"], attrs["fuse_alpha"], attrs["fuse_beta"]) * attrs["fused_output_scale"]
    return f.unsqueeze2(out, axes=attrs["fused_unsqueeze2_axes"]) if attrs["fused_unsqueeze2_axes"] else out


def _define_binary(op: str) -> None:
    def fused(f: Any, X: Any, Y: Any, attrs: Any) -> Any:
        return _binary(f, op, X, Y, attrs)

    fused.__doc__ = f"`{op}`, then an activation and a factor."
    composed(f"fused_{op}(X: float, Y: float) -> Out", **_BINARY)(fused)


for _op in ("elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_div"):
    _define_binary(_op)


@composed("fused_softplus(X: float) -> Out", beta=1.0, threshold=20.0, fuse_activation="", fuse_alpha=0.0, fuse_beta=0.0)
def fused_softplus(f: Any, X: Any, attrs: Any) -> Any:
    """`softplus`, then an activation."""
    out = f.softplus(X, beta=attrs["beta"], threshold=attrs["threshold"])
    return activated(f, out, attrs["fuse_activation"], attrs["fuse_alpha"], attrs["fuse_beta"])


_COMBINED = ("elementwise_add", "elementwise_mul", "elementwise_sub")


def _combines(functor_list: list[str]) -> bool:
    """Whether the outer functor takes two operands; gradient ops name the functors by their gradients."""
    kinds = [kind.removesuffix("_grad") in _COMBINED for kind in functor_list]
    if len(kinds) != 2 or kinds[0] is kinds[1]:
        raise InferenceError(f"functor_list {functor_list!r} should be an op of two operands and one of one, in either order")
    return kinds[0]


def _functor(f: Any, number: int, attrs: Any) -> Any:
    """One of the functors, as a function of one or of two values."""
    kind = attrs["functor_list"][number].removesuffix("_grad")
    if kind in _COMBINED:
        return lambda X, Y: getattr(f, kind)(X, Y, axis=attrs["axis"])
    return lambda x: x * attrs["scale"] if kind == "scale" else activated(f, x, kind)


def _inner(f: Any, values: Any, attrs: Any) -> Any:
    """Apply the inner functor to Y or, if it takes two values, to X and Y."""
    inner = _functor(f, 1, attrs)
    return inner(values["Y"]) if _combines(attrs["functor_list"]) else inner(values["X"], values["Y"])


def _outer(f: Any, values: Any, attrs: Any) -> Any:
    """Apply the outer functor to the inner functor's result."""
    outer, between = _functor(f, 0, attrs), values["IntermediateOut"]
    return outer(values["X"], between) if _combines(attrs["functor_list"]) else outer(between)


def _compound(f: Any, values: Any, attrs: Any, wanted: set[str]) -> dict[str, Any]:
    between = _inner(f, values, attrs)
    return {"Out": _outer(f, {**values, "IntermediateOut": between}, attrs), "IntermediateOut": between}


def _of_intermediate(f: Any, values: Any, attrs: Any, wanted: set[str]) -> dict[str, Any]:
    return {"Out": _outer(f, values, attrs)}


def _define_compound(name: str) -> None:
    how: dict[str, Any] = {"axis": -1, "scale": 0.0, "save_intermediate_out": False, "functor_list": strings()}

    def compound(f: Any, values: Any, attrs: Any, wanted: set[str]) -> Any:
        """``outer(inner)`` of `functor_list`, one of them an op of X and Y, the other one an activation, or `scale`.

        If the outer one is the op of two, the activation is applied to Y.
        """
        return _compound(f, values, attrs, wanted)

    def gradient(f: Any, values: Any, Out: ShapeOnly, IntermediateOut: ShapeOnly, attrs: Any, wanted: set[str]) -> Any:
        """The gradient of an op of two functors, as Paddle's training programs have it; its `functor_list` names gradients."""
        seeds, inputs = {"Out": values["Out@GRAD"]}, {"X": values["X"], "Y": values["Y"]}
        shape = broadcast(tuple(inputs["X"].shape), tuple(inputs["Y"].shape), attrs["axis"])
        if not may_equal(tuple(seeds["Out"].shape), shape):
            raise InferenceError(f"Out@GRAD {list(seeds['Out'].shape)} should have the shape {list(shape)} of X and Y together")
        gradients = pullback(f, _compound, inputs, attrs, seeds, ["X", "Y"])
        if "IntermediateOut@GRAD" in wanted:
            inputs["IntermediateOut"] = _inner(f, inputs, attrs)
            gradients |= pullback(f, _of_intermediate, inputs, attrs, seeds, ["IntermediateOut"])
        return {grad_slot(slot): value for slot, value in gradients.items()}

    composed(f"{name}(X: float, Y: float) -> Out, IntermediateOut~", **how)(compound)
    slots = "X: float, Y: float, Out?, IntermediateOut?, Out@GRAD: float"
    composed(f"{name}_grad({slots}) -> X@GRAD?, Y@GRAD?, IntermediateOut@GRAD?", **how)(gradient)


for _name in ("fused_elemwise_activation", "fused_elemwise_add_activation"):
    _define_compound(_name)


@composed("fused_bias_act(x: float, bias?, dequant_scales?, shift?, smooth?) -> out", act_method="gelu")
def fused_bias_act(f: Any, x: Any, bias: Any, dequant_scales: Any, shift: Any, smooth: Any, act_method: str) -> Any:
    """``activation(x + bias)``; ``swiglu`` and ``geglu`` activate the first half of the columns and multiply by the second."""
    if dequant_scales is not None or shift is not None or smooth is not None:
        raise InferenceError("fused_bias_act of quantized numbers (dequant_scales, shift, smooth) is not here")
    x = _summed(f, x, bias)
    gates = {"swiglu": "silu", "geglu": "gelu"}
    if act_method not in gates:
        return activated(f, x, act_method)
    first, second = f.split(x, num=2, axis=x.ndim - 1)
    return activated(f, first, gates[act_method]) * second


# ------------------------------------------------------------------------------------------------------------- layouts
@composed(
    "fused_transpose(X: float) -> Out, XShape~",
    axis=required("ints"),
    fused_squeeze2_axes=ints(),
    fused_unsqueeze2_axes=ints(),
    fused_reshape2_shape=ints(),
    scale=1.0,
    shift=0.0,
    output_data_type="",
)
def fused_transpose(f: Any, X: Any, attrs: Any) -> Any:
    """`transpose2`, of an X that is squeezed before; the result is unsqueezed or reshaped."""
    if attrs["output_data_type"] not in ("", "fp32") or attrs["scale"] != 1.0 or attrs["shift"] != 0.0:
        raise InferenceError("fused_transpose of 8-bit integers or bfloat16, which oneDNN computes, is not here")
    out = f.squeeze2(X, axes=attrs["fused_squeeze2_axes"]) if attrs["fused_squeeze2_axes"] else X
    out = f.transpose2(out, axis=attrs["axis"])
    out = f.unsqueeze2(out, axes=attrs["fused_unsqueeze2_axes"]) if attrs["fused_unsqueeze2_axes"] else out
    return {"Out": _arranged(f, out, attrs["fused_reshape2_shape"], [])}


@composed(
    "fusion_transpose_flatten_concat(X*: float) -> Out",
    trans_axis=required("ints"),
    flatten_axis=required("int"),
    concat_axis=required("int"),
)
def fusion_transpose_flatten_concat(f: Any, X: Any, trans_axis: list[int], flatten_axis: int, concat_axis: int) -> Any:
    """Transposes each X, flattens it to a matrix, and puts these together."""
    return f.concat([f.flatten2(f.transpose2(x, axis=trans_axis), axis=flatten_axis) for x in X], axis=concat_axis)


@composed(
    "fused_linear_param_grad_add(x: float, dout: float, dweight?, dbias?) -> dweight_out, dbias_out?",
    multi_precision=True,
    has_bias=True,
)
def fused_linear_param_grad_add(f: Any, x: Any, dout: Any, dweight: Any, dbias: Any, has_bias: bool) -> Any:
    """The gradients of the weight and the bias of ``x @ weight + bias``, added to dweight and dbias."""
    rows, back = (f.flatten2(value, axis=value.ndim - 1) for value in (x, dout))
    grads = {"dweight_out": _summed(f, f.matmul_v2(rows, back, trans_x=True), dweight)}
    return grads | ({"dbias_out": _summed(f, f.reduce_sum(back, dim=[0]), dbias)} if has_bias else {})

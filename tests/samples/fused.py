"""Samples of `fluid.ops.fused`: what fused ops are made of, in plain numpy."""

from __future__ import annotations

from math import erf
from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("fused")


def relu(x: Any) -> Any:
    return np.maximum(x, 0)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def gelu(x: Any) -> Any:
    return (x * 0.5 * (1 + np.vectorize(erf)(x / 2**0.5))).astype(x.dtype)


ACTIVATIONS = {"": lambda x: x, "relu": relu, "sigmoid": sigmoid, "tanh": np.tanh, "gelu": gelu}


def normal(x: Any, scale: Any, bias: Any, epsilon: float, axis: int) -> dict[str, Any]:
    axes = tuple(range(axis, x.ndim))
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    y = (x - mean) / np.sqrt(variance + epsilon)
    y = y * (1 if scale is None else scale.reshape(x.shape[axis:])) + (0 if bias is None else bias.reshape(x.shape[axis:]))
    return {"Y": y, "Mean": mean.reshape(-1), "Variance": variance.reshape(-1)}


# ------------------------------------------------------------------------------------------------------------ products
def product(
    Input: Any, W: Any, Bias: Any = 0, in_num_col_dims: int = 1, activation_type: str = "", padding_weights: bool = False
):
    W = W[:-4, :-4] if padding_weights else W
    out = Input.reshape(*Input.shape[:in_num_col_dims], -1) @ W + Bias
    return ACTIVATIONS[activation_type](out)


add(
    "fc",
    Sample({"Input": data(3, 4), "W": data(4, 2)}, {}, product),
    Sample({"Input": data(3, 2, 2), "W": data(4, 2), "Bias": data(2)}, {"activation_type": "tanh"}, product),
    Sample({"Input": data(3, 2, 4), "W": data(4, 2), "Bias": data(1, 2)}, {"in_num_col_dims": 2}, product),
    Sample({"Input": data(3, 4), "W": data(8, 6)}, {"padding_weights": True, "activation_type": "relu"}, product),
)


def normal_product(X, W, Y, Bias0=0, Scale=None, Bias1=None, activation_type="", epsilon=1e-5, begin_norm_axis=1):
    made = normal(ACTIVATIONS[activation_type](X @ W + Bias0).reshape(Y.shape) + Y, Scale, Bias1, epsilon, begin_norm_axis)
    return {"Out": made["Y"], "Mean": made["Mean"], "Variance": made["Variance"]}


FC = {"X": data(4, 3), "W": data(3, 6)}
add(
    "fused_fc_elementwise_layernorm",
    Sample({**FC, "Y": data(4, 6)}, {}, normal_product, tolerance=10),
    Sample(
        {**FC, "Y": data(2, 2, 6), "Bias0": data(6), "Scale": data(6), "Bias1": data(6)},
        {"activation_type": "tanh", "epsilon": 1e-3, "begin_norm_axis": 2},
        normal_product,
        tolerance=10,
    ),
)


def repeated(X: Any, W: Any, Bias: Any) -> Any:
    made = []
    for weight, bias in zip(W, Bias, strict=True):
        X = relu(X @ weight + bias)
        made.append(X)
    return {"ReluOut": made[:-1], "Out": made[-1]}


add(
    "fusion_repeated_fc_relu",
    Sample({"X": data(3, 4) + 1, "W": [data(4, 2) + 1, data(2, 3) + 1], "Bias": [data(2), data(3)]}, {}, repeated),
)


def squared(X: Any, Y: Any, scalar: float = 1.0) -> Any:
    made = {"SquaredX": X**2, "SquaredY": Y**2, "SquaredXY": (X @ Y) ** 2}
    return {**made, "Out": scalar * (made["SquaredXY"] - made["SquaredX"] @ made["SquaredY"])}


add("fusion_squared_mat_sub", Sample({"X": data(3, 4), "Y": data(4, 2)}, {"scalar": 0.5}, squared))


def arranged_product(X: Any, Y: Any, ResidualData: Any = 0, **attrs: Any) -> Any:
    for name in "XY":
        value = X if name == "X" else Y
        if f"fused_reshape_{name}" in attrs:
            value = value.reshape(attrs[f"fused_reshape_{name}"]).transpose(attrs[f"fused_transpose_{name}"])
        value = value.swapaxes(-1, -2) if attrs.get(f"trans_{name.lower()}") else value
        X, Y = (value, Y) if name == "X" else (X, value)
    out = X @ Y * attrs.get("matmul_alpha", 1.0) + ResidualData
    out = ACTIVATIONS[attrs.get("fuse_activation", "")](out) * attrs.get("fused_output_scale", 1.0)
    if "fused_transpose_Out" in attrs:
        out = out.transpose(attrs["fused_transpose_Out"]).reshape(attrs["fused_reshape_Out"])
    return out


add(
    "fused_matmul",
    Sample({"X": data(2, 3), "Y": data(3, 4)}, {}, arranged_product),
    Sample(
        {"X": data(3, 2), "Y": data(4, 3), "ResidualData": data(2, 4)},
        {"trans_x": True, "trans_y": True, "matmul_alpha": 0.5, "fuse_activation": "tanh", "fused_output_scale": 2.0},
        arranged_product,
    ),
    Sample(
        {"X": data(2, 3, 4), "Y": data(2, 2, 2, 3)},
        {
            "fused_reshape_X": [2, 3, 2, 2],
            "fused_transpose_X": [0, 2, 1, 3],
            "fused_transpose_Out": [0, 2, 1, 3],
            "fused_reshape_Out": [2, 3, 6],
        },
        arranged_product,
    ),
)


# -------------------------------------------------------------------------------------------------------- convolutions
def convolved(Input: Any, Filter: Any, Bias: Any = None, ResidualData: Any = 0, **attrs: Any) -> Any:
    """Of strides 1, padded by one on each side."""
    space = Input.ndim - 2
    padded = np.pad(Input, [(0, 0), (0, 0), *[(1, 1)] * space])
    sizes = Filter.shape[2:]
    windows = np.lib.stride_tricks.sliding_window_view(padded, sizes, tuple(range(2, 2 + space)))
    letters = "xyz"[:space]
    out = np.einsum(f"nc{letters}{letters.upper()},kc{letters.upper()}->nk{letters}", windows, Filter)
    out = out + (0 if Bias is None else Bias.reshape(-1, *[1] * space)) + ResidualData
    return ACTIVATIONS[attrs.get("fuse_activation", attrs.get("activation", ""))](out)


IMAGE = {"Input": data(2, 2, 3, 3), "Filter": data(3, 2, 3, 3)}
MORE = {"Bias": data(3), "ResidualData": data(2, 3, 3, 3)}
ONES = {"paddings": [1, 1]}
add(
    "fused_conv2d",
    Sample(IMAGE, ONES, convolved),
    Sample({**IMAGE, **MORE}, {**ONES, "fuse_activation": "sigmoid"}, convolved),
)
VOLUME = {"Input": data(1, 2, 2, 3, 3), "Filter": data(2, 2, 3, 3, 3), "Bias": data(2)}
add(
    "fused_conv3d",
    Sample(VOLUME, {"strides": [1, 1, 1], "dilations": [1, 1, 1], "paddings": [1, 1, 1], "fuse_activation": "tanh"}, convolved),
)


def convolved_and_split(split_channels: Any = (), **given: Any) -> Any:
    out = convolved(**{"activation": "relu", **given})
    return {"Output": out, "Outputs": np.split(out, np.cumsum(split_channels)[:-1], 1)} if split_channels else out


for name in ("fused_conv2d_add_act", "conv2d_fusion"):
    add(
        name,
        Sample({**IMAGE, **MORE}, {**ONES, "activation": "sigmoid"}, convolved_and_split),
        Sample({**IMAGE, "Bias": data(3)}, {**ONES, "activation": "tanh", "split_channels": [1, 2]}, convolved_and_split),
    )


def scaled(x1: Any, scale1: Any, bias1: Any, x2: Any, fuse_dual: bool, scale2: Any = 1, bias2: Any = 0) -> Any:
    return relu(x1 * scale1 + bias1 + x2 * scale2 + bias2)


PAIR = {"x1": data.away(2, 3) + 4, "scale1": data(3), "bias1": data(3) + 6, "x2": data(2, 3)}
add(
    "fused_scale_bias_add_relu",
    Sample(PAIR, {"fuse_dual": False}, scaled),
    Sample({**PAIR, "scale2": data(3), "bias2": data(3)}, {"fuse_dual": True}, scaled),
)


# ------------------------------------------------------------------------------------------------------- normalizations
add(
    "skip_layernorm",
    Sample(
        {"X": data(2, 3, 4), "Y": data(2, 3, 4), "Scale": data(4), "Bias": data(4)},
        {"epsilon": 1e-4, "begin_norm_axis": 2},
        lambda X, Y, Scale, Bias, epsilon, begin_norm_axis: normal(X + Y, Scale, Bias, epsilon, begin_norm_axis)["Y"],
        tolerance=10,
    ),
)


def embedded(Ids: Any, Embs: Any, Bias: Any, Scale: Any, epsilon: float = 1e-5) -> Any:
    rows = sum(table[ids.reshape(2, 3)] for ids, table in zip(Ids, Embs, strict=True))
    return normal(rows, Scale, Bias, epsilon, 2)["Y"]


for last in ((), (1,)):
    ids = [data.ints(2, 3, *last, high=4), data.ints(2, 3, *last, high=5)]
    tables = {"Embs": [data(4, 4), data(5, 4)], "Bias": data(4), "Scale": data(4)}
    add("fused_embedding_eltwise_layernorm", Sample({"Ids": ids, **tables}, {}, embedded, tolerance=10))


def by_root(x: Any, norm_weight: Any, epsilon: float, begin_norm_axis: int, bias: Any = 0, residual: Any = 0, norm_bias: Any = 0):
    y = x + bias + residual
    root = np.sqrt((y**2).mean(tuple(range(begin_norm_axis, y.ndim)), keepdims=True) + epsilon)
    return {"out": y / root * norm_weight + norm_bias, "residual_out": y}


ROWS = {"x": data(2, 3, 4), "norm_weight": data(4)}
REST = {"bias": data(4), "residual": data(2, 3, 4), "norm_bias": data(4)}
add(
    "rms_norm",
    Sample(ROWS, {"epsilon": 1e-5, "begin_norm_axis": 2}, by_root),
    Sample({**ROWS, **REST}, {"epsilon": 1e-2, "begin_norm_axis": 2}, by_root),
)


def with_residual(x, epsilon, residual_alpha, begin_norm_axis, bias=0, residual=0, norm_weight=None, norm_bias=None):
    y = x + bias + residual_alpha * residual
    made = normal(y, norm_weight, norm_bias, epsilon, begin_norm_axis)
    return {"out": made["Y"], "residual_out": y, "mean": made["Mean"], "variance": made["Variance"]}


add(
    "fused_bias_residual_layernorm",
    Sample({**ROWS, **REST}, {"epsilon": 1e-4, "residual_alpha": 0.5, "begin_norm_axis": 2}, with_residual, tolerance=10),
)


# ----------------------------------------------------------------------------------------------------------- elementwise
OPERATORS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
for kind, function in OPERATORS.items():

    def combined(X: Any, Y: Any, function: Any = function, fuse_activation: str = "", **attrs: Any) -> Any:
        Y = Y.reshape(3, 1) if attrs.get("axis") == 1 else Y
        out = ACTIVATIONS[fuse_activation](function(X, Y)) * attrs.get("fused_output_scale", 1.0)
        return out[:, None] if "fused_unsqueeze2_axes" in attrs else out

    name = f"fused_elementwise_{kind}"
    add(name, Sample({"X": data(2, 3, 2), "Y": data(3) + 3}, {"axis": 1, "fuse_activation": "tanh"}, combined))
    attrs = {"fused_output_scale": 0.5, "fused_unsqueeze2_axes": [1], "fuse_activation": "gelu"}
    add(name, Sample({"X": data(2, 3), "Y": data(2, 3) + 3}, attrs, combined))

add(
    "fused_softplus",
    Sample({"X": data(2, 3)}, {"beta": 2.0, "fuse_activation": "tanh"}, lambda X, **_: np.tanh(np.log1p(np.exp(2 * X)) / 2)),
)


def compound(X: Any, Y: Any, functor_list: Any, axis: int = -1, scale: float = 0.0) -> Any:
    Y = Y.reshape(3, 1) if axis == 1 else Y
    functions = {**ACTIVATIONS, "scale": lambda x: x * scale, "elementwise_add": np.add, "elementwise_mul": np.multiply}
    outer, inner = (functions[kind] for kind in functor_list)
    if functor_list[0].startswith("elementwise"):
        second = inner(Y)
        return {"Out": outer(X, second), "IntermediateOut": second.reshape(-1) if axis == 1 else second}
    return {"Out": outer(inner(X, Y)), "IntermediateOut": inner(X, Y)}


for name in ("fused_elemwise_activation", "fused_elemwise_add_activation"):
    for functors in (["tanh", "elementwise_add"], ["elementwise_mul", "sigmoid"], ["elementwise_add", "scale"]):
        inputs = {"X": data(2, 3, 2), "Y": data(3)}
        add(name, Sample(inputs, {"functor_list": functors, "axis": 1, "scale": 1.5}, compound))


def compound_gradient(X: Any, Y: Any, functor_list: Any, axis: int, scale: float, **slots: Any) -> Any:
    """Of ``tanh(X + Y)``, ``X * sigmoid(Y)`` and ``X + scale * Y``."""
    seed, wide = slots["Out@GRAD"], Y.reshape(3, 1)
    if functor_list[0] == "tanh_grad":
        between = seed * (1 - np.tanh(X + wide) ** 2)
        by_x = by_y = between
    elif functor_list[0] == "elementwise_mul_grad":
        second = sigmoid(wide)
        by_x, between = seed * second, (seed * X).sum((0, 2))
        by_y = seed * X * second * (1 - second)
    else:
        by_x, between, by_y = seed, seed.sum((0, 2)), scale * seed
    return {"X@GRAD": by_x, "Y@GRAD": by_y.sum((0, 2)), "IntermediateOut@GRAD": between}


for name in ("fused_elemwise_activation_grad", "fused_elemwise_add_activation_grad"):
    for functors in (["tanh_grad", "elementwise_add_grad"], ["elementwise_mul_grad", "sigmoid_grad"],
                     ["elementwise_add_grad", "scale_grad"]):  # fmt: skip
        inputs = {"X": data(2, 3, 2), "Y": data(3), "Out@GRAD": data(2, 3, 2)}
        add(name, Sample(inputs, {"functor_list": functors, "axis": 1, "scale": 1.5}, compound_gradient))


def biased(x: Any, bias: Any = 0, act_method: str = "gelu") -> Any:
    x = x + bias
    if act_method in ACTIVATIONS:
        return ACTIVATIONS[act_method](x)
    first, second = np.split(x, 2, -1)
    return (gelu(first) if act_method == "geglu" else first * sigmoid(first)) * second


for kind in ("gelu", "tanh", "swiglu", "geglu"):
    add("fused_bias_act", Sample({"x": data(3, 4), "bias": data(4)}, {"act_method": kind}, biased))


# ------------------------------------------------------------------------------------------------------------- layouts
def transposed(X: Any, axis: Any, **attrs: Any) -> Any:
    out = X.squeeze(tuple(attrs.get("fused_squeeze2_axes", ()))).transpose(axis)
    out = np.expand_dims(out, attrs["fused_unsqueeze2_axes"]) if "fused_unsqueeze2_axes" in attrs else out
    return {"Out": out.reshape(attrs["fused_reshape2_shape"]) if "fused_reshape2_shape" in attrs else out}


add(
    "fused_transpose",
    Sample({"X": data(2, 3)}, {"axis": [1, 0]}, transposed),
    Sample({"X": data(2, 1, 3)}, {"axis": [1, 0], "fused_squeeze2_axes": [1], "fused_unsqueeze2_axes": [0]}, transposed),
    Sample({"X": data(2, 3)}, {"axis": [1, 0], "fused_reshape2_shape": [6]}, transposed),
)
add(
    "fusion_transpose_flatten_concat",
    Sample(
        {"X": [data(2, 3, 4, 5), data(2, 2, 4, 5)]},
        {"trans_axis": [0, 2, 3, 1], "flatten_axis": 1, "concat_axis": 1},
        lambda X, **_: np.concatenate([x.transpose(0, 2, 3, 1).reshape(2, -1) for x in X], 1),
    ),
)


def added(x: Any, dout: Any, dweight: Any = 0, dbias: Any = 0, has_bias: bool = True) -> Any:
    rows, back = x.reshape(-1, x.shape[-1]), dout.reshape(-1, dout.shape[-1])
    made = {"dweight_out": rows.T @ back + dweight}
    return {**made, "dbias_out": back.sum(0) + dbias} if has_bias else made


LINEAR = {"x": data(2, 3, 4), "dout": data(2, 3, 5)}
add(
    "fused_linear_param_grad_add",
    Sample(LINEAR, {}, added),
    Sample({**LINEAR, "dweight": data(4, 5)}, {"has_bias": False}, added),
    Sample({**LINEAR, "dweight": data(4, 5), "dbias": data(5)}, {}, added),
)

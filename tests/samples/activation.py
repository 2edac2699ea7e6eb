"""Samples of `fluid.ops.activation`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .base import Data, Sample, add, unary

data = Data("activation")


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    return np.where(x * beta > threshold, x, np.log1p(np.exp(np.minimum(x * beta, threshold))) / beta)


def erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=["float64"])(x)


unary("tanh", np.tanh)
unary("sigmoid", sigmoid)
unary("logsigmoid", lambda x: np.log(sigmoid(x)))
unary("exp", np.exp)
unary("expm1", np.expm1)
unary("log", np.log, low=0.3)
unary("log2", np.log2, low=0.3)
unary("log10", np.log10, low=0.3)
unary("log1p", np.log1p, low=-0.6)
unary("sqrt", np.sqrt, low=0.3)
unary("rsqrt", lambda x: 1 / np.sqrt(x), low=0.3)
unary("abs", np.abs, kinks=(0,))
unary("ceil", np.ceil, kinks=(-2, -1, 0, 1, 2))
unary("floor", np.floor, kinks=(-2, -1, 0, 1, 2))
unary("rint", np.rint, kinks=(-1.5, -0.5, 0.5, 1.5))
add("rint", Sample({"X": np.arange(-7, 8) / 2}, {}, lambda X: np.rint(X), orders=0))
unary("round", lambda x: np.trunc(x + np.copysign(0.5, x)), kinks=(-1.5, -0.5, 0.5, 1.5))
unary("sin", np.sin)
unary("cos", np.cos)
unary("tan", np.tan, low=-1, high=1)
unary("asin", np.arcsin, low=-0.8, high=0.8)
unary("acos", np.arccos, low=-0.8, high=0.8)
unary("atan", np.arctan)
unary("sinh", np.sinh)
unary("cosh", np.cosh)
unary("asinh", np.arcsinh)
unary("acosh", np.arccosh, low=1.3, high=3)
unary("atanh", np.arctanh, low=-0.8, high=0.8)
unary("reciprocal", lambda x: 1 / x, low=0.4)
unary("square", np.square)
unary("erf", erf)
unary("sign", np.sign, kinks=(0,))

unary("relu", lambda x: np.maximum(x, 0), kinks=(0,))
unary("relu6", lambda x, threshold=6.0: np.clip(x, 0, threshold), {"threshold": 1.5}, kinks=(0, 1.5, 6), low=-2, high=8)
unary("leaky_relu", lambda x, alpha=0.02: np.where(x > 0, x, alpha * x), {"alpha": 0.3}, {"alpha": 0.0}, kinks=(0,))
unary("elu", lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))), {"alpha": 0.4}, kinks=(0,))
unary("celu", lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha)), {"alpha": 0.4}, kinks=(0,))
unary(
    "selu",
    lambda x, scale=1.0507010221481323, alpha=1.6732631921768188: scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
    {"scale": 1.5, "alpha": 0.5},
    kinks=(0,),
)
unary(
    "gelu",
    lambda x, approximate=False: (
        0.5 * x * (1 + (np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)) if approximate else erf(x / math.sqrt(2))))
    ),
    {"approximate": True},
)
unary("swish", lambda x, beta=1.0: x * sigmoid(beta * x))
unary("silu", lambda x: x * sigmoid(x))
unary("mish", lambda x, threshold=20.0: x * np.tanh(softplus(x, 1.0, threshold)))
unary("softplus", softplus, {"beta": 2.0, "threshold": 3.0}, kinks=(1.5,))
unary(
    "soft_relu", lambda x, threshold=40.0: np.log1p(np.exp(np.clip(x, -threshold, threshold))), {"threshold": 1.0}, kinks=(-1, 1)
)
unary("softsign", lambda x: x / (1 + np.abs(x)), kinks=(0,))
unary("tanh_shrink", lambda x: x - np.tanh(x))
unary(
    "softshrink",
    lambda x, **a: np.sign(x) * np.maximum(np.abs(x) - a.get("lambda", 0.5), 0),
    {"lambda": 1.0},
    kinks=(-1, -0.5, 0.5, 1),
)
unary("hard_shrink", lambda x, threshold=0.5: np.where(np.abs(x) > threshold, x, 0), {"threshold": 1.0}, kinks=(-1, -0.5, 0.5, 1))
unary("thresholded_relu", lambda x, threshold=1.0: np.where(x > threshold, x, 0), {"threshold": 0.5}, kinks=(0.5, 1))
unary("brelu", lambda x, t_min=0.0, t_max=24.0: np.clip(x, t_min, t_max), {"t_min": -1.0, "t_max": 1.0}, kinks=(-1, 0, 1))
unary("stanh", lambda x, scale_a=0.67, scale_b=1.7159: scale_b * np.tanh(scale_a * x), {"scale_a": 0.5, "scale_b": 2.0})
unary(
    "hard_sigmoid",
    lambda x, slope=0.2, offset=0.5: np.clip(slope * x + offset, 0, 1),
    {"slope": 0.5, "offset": 0.4},
    kinks=(-2.5, -0.8, 1.2, 2.5),
    low=-4,
    high=4,
)
unary(
    "hard_swish",
    lambda x, threshold=6.0, scale=6.0, offset=3.0: x * np.clip(x + offset, 0, threshold) / scale,
    {"threshold": 4.0, "scale": 3.0, "offset": 2.0},
    kinks=(-3, -2, 2, 3),
    low=-5,
    high=5,
)
unary("pow", lambda x, factor=1.0: x**factor, {"factor": 3.0}, {"factor": 0.5}, {"factor": -1.5}, {"factor": 2.0}, low=0.3)
add(
    "clip",
    *(
        Sample({"X": data.away(*shape, kinks=(-0.5, 1))}, {"min": -0.5, "max": 1.0}, lambda X, min, max: np.clip(X, min, max))
        for shape in ((3, 4), (), (0, 2))
    ),
)

# Far from zero: no overflow, no NaN.
FAR = np.array([-1000.0, -90.0, -30.0, 30.0, 90.0, 1000.0])
for op_type, function in {
    "tanh": np.tanh,
    "sigmoid": lambda x: np.where(x > 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x)))),
    "logsigmoid": lambda x: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))),
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "swish": lambda x: np.where(x > -80, x, 0) / (1 + np.exp(np.minimum(-x, 80))),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "celu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
}.items():
    add(op_type, Sample({"X": FAR}, {}, lambda X, function=function: function(X).astype(X.dtype), tolerance=10))

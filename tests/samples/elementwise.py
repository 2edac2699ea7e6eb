"""Samples of `fluid.ops.elementwise`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import BROADCASTS, Data, Sample, add, aligned, binary, comparison

data = Data("elementwise")


def positive(*shape: int) -> Any:
    return data(*shape, low=0.5, high=2.0)


def small_ints(*shape: int) -> Any:
    return data.ints(*shape, low=1, high=6)


def apart_from_multiples(*shape: int) -> Any:
    return data.ints(*shape, low=-4, high=5) + data(*shape, low=0.2, high=0.8)


def ones(*shape: int) -> Any:
    return np.sign(data.away(*shape))


binary("elementwise_add", np.add, ints=small_ints)
binary("elementwise_sub", np.subtract, ints=small_ints)
binary("elementwise_mul", np.multiply, ints=small_ints)
binary("elementwise_div", np.divide, y=positive)
binary("elementwise_max", np.maximum, apart=True, ints=small_ints)
binary("elementwise_min", np.minimum, apart=True, ints=small_ints)
binary("elementwise_pow", np.power, x=positive, ints=small_ints)
binary("elementwise_mod", np.mod, x=apart_from_multiples, y=ones, ints=small_ints)
binary("elementwise_floordiv", np.floor_divide, x=apart_from_multiples, y=ones, ints=small_ints)
add("minus", *(Sample({"X": data(*shape), "Y": data(*shape)}, {}, lambda X, Y: X - Y) for shape in ((2, 3), (), (0, 2), (1,))))

for name, function in {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less_than": np.less,
    "less_equal": np.less_equal,
    "greater_than": np.greater,
    "greater_equal": np.greater_equal,
}.items():
    comparison(name, function)
for name, function in {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}.items():
    add(
        name,
        *(
            Sample({"X": data.bools(*x), "Y": data.bools(*y)}, {}, lambda X, Y, function=function: function(X, Y))
            for x, y in (((2, 3), (2, 3)), ((1,), (1,)), ((), ()), ((0, 2), (0, 2)))
        ),
    )
add("logical_not", *(Sample({"X": data.bools(*shape)}, {}, lambda X: np.asarray(~X)) for shape in ((2, 3), (1,), (), (0, 2))))

# Un-broadcasting and its transpose: whatever broadcasts, sums back.
for like, small, axis in BROADCASTS:
    if len(small) > len(like) or np.broadcast_shapes(like, aligned(np.empty(like), np.empty(small), axis).shape) != like:
        continue

    def summed(X: Any, Like: Any, axis: int = -1) -> Any:
        shape = aligned(X, Like, axis).shape
        shape = (1,) * (X.ndim - len(shape)) + shape
        axes = tuple(i for i, extent in enumerate(shape) if extent != X.shape[i])
        return X.sum(axes, keepdims=True).reshape(Like.shape)

    def expanded(X: Any, Like: Any, axis: int = -1) -> Any:
        return np.broadcast_to(aligned(Like, X, axis), Like.shape)

    attrs = {"axis": axis} if axis != -1 else {}
    add("sum_to", Sample({"X": data(*like), "Like": data(*small)}, attrs, summed, wrt=["X"]))
    add("expand_to", Sample({"X": data(*small), "Like": data(*like)}, attrs, expanded, wrt=["X"]))

add(
    "sum",
    *(
        Sample({"X": [data(*shape) for _ in range(count)]}, {}, lambda X: sum(X[1:], X[0]))
        for shape, count in (((2, 3), 3), ((2, 3), 1), ((), 2), ((0, 2), 2), ((1,), 5))
    ),
)


def scaled(X: Any, scale: float = 1.0, bias: float = 0.0, bias_after_scale: bool = True) -> Any:
    return np.asarray(X * scale + bias if bias_after_scale else (X + bias) * scale, X.dtype)


add(
    "scale",
    *(
        Sample({"X": data(*shape)}, attrs, scaled)
        for shape, attrs in (
            ((2, 3), {}),
            ((2, 3), {"scale": -2.5}),
            ((2, 3), {"scale": 2.0, "bias": 0.5}),
            ((2, 3), {"scale": 2.0, "bias": 0.5, "bias_after_scale": False}),
            ((), {"scale": 3.0, "bias": 1.0}),
            ((1,), {"bias": -1.0}),
            ((0, 2), {"scale": 2.0}),
        )
    ),
    Sample(
        {"X": data(2, 3), "ScaleTensor": np.array([1.5])},
        {"bias": 0.5},
        lambda X, ScaleTensor, bias: X * ScaleTensor + bias,
        wrt=["X"],
    ),
    Sample({"X": data.ints(2, 3)}, {"scale": 2.0, "bias": 1.0}, scaled),
)

ODD = np.array([[0.0, np.nan, 1.0], [np.inf, -np.inf, -2.0]])
for name, function in {"isfinite": np.isfinite, "isnan": np.isnan, "isinf": np.isinf}.items():
    add(name + "_v2", Sample({"X": ODD}, {}, lambda X, function=function: function(X)))
    add(
        name,
        *(
            Sample(
                {"X": X},
                {},
                lambda X, function=function, name=name: np.array([(np.all if name == "isfinite" else np.any)(function(X))]),
            )
            for X in (ODD, data(2, 3), data.ints(3))
        ),
    )
add(
    "pow",
    Sample({"X": positive(2, 3), "FactorTensor": np.array([1.5])}, {}, lambda X, FactorTensor: X**1.5, wrt=["X"]),
    Sample({"X": data.away(2, 3)}, {"factor": 2.0}, lambda X, factor: X**2),
    Sample({"X": data.away(2, 3)}, {"factor": 3.0}, lambda X, factor: X**3),
)
add(
    "clip",
    Sample(
        {"X": data.away(3, 4, kinks=(-0.5, 1)), "Min": np.array([-0.5]), "Max": np.array([1.0])},
        {"min": 0.0, "max": 0.0},
        lambda X, Min, Max: np.clip(X, -0.5, 1),
        wrt=["X"],
    ),
)

SHAPES_OF_THREE: list[tuple[tuple[int, ...], ...]] = [
    ((2, 3), (2, 3), (2, 3)),
    ((2, 3), (2, 3), (1,)),
    ((3,), (2, 1), (2, 3)),
    ((), (), ()),
]
add(
    "lerp",
    *(
        Sample(
            {"X": data(*x), "Y": data(*y), "Weight": data(*w)}, {}, lambda X, Y, Weight: np.asarray((1 - Weight) * X + Weight * Y)
        )
        for x, y, w in SHAPES_OF_THREE
    ),
)


for shape in ((2, 3), (0, 3), ()):
    add("is_empty", Sample({"X": data(*shape)}, {}, lambda X: np.array([X.size == 0]), known=["X"]))


def with_positions(X: Any, positions: Any, alpha: float = 1.0, beta: float = 1.0) -> Any:
    """`positions` are those along the dimension before the last."""
    half = X.shape[-1] // 2
    out = alpha * X
    for row, position in enumerate(positions):
        for k in range(half):
            angle = position / 10000 ** (k / (half - 1))
            out[..., row, k] += beta * np.sin(angle)
            out[..., row, half + k] += beta * np.cos(angle)
    return out.astype(X.dtype)


add(
    "add_position_encoding",
    *(
        Sample({"X": data(2, 5, 6)}, attrs, lambda X, **attrs: with_positions(X, range(X.shape[1]), **attrs))
        for attrs in ({}, {"alpha": 0.5, "beta": 2.0})
    ),
    *(
        Sample({"X": data(5, 4)}, {"alpha": 0.5}, lambda X, alpha, p=p: with_positions(X, p, alpha), lods={"X": lod})
        for lod, p in ((((0, 2, 2, 5),), (0, 1, 0, 1, 2)), (((0, 1, 2), (0, 4, 5)), (0, 1, 2, 3, 0)))
    ),
)

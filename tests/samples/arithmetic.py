"""Samples of `fluid.ops.arithmetic`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .base import Data, Sample, add, unary

data = Data("arithmetic")
SHAPES = (((2, 3), (2, 3)), ((2, 3), (3,)), ((3,), (2, 3)), ((2, 1), (3,)), ((), ()), ((2, 3), ()), ((0, 3), (3,)))


def broadcast(
    op_type: str, function: Callable[[Any, Any], Any], make: Callable[..., Any], names: tuple[str, str] = ("X", "Y")
) -> None:
    """Samples over pairs of shapes; `make` gives both operands."""

    def reference(**given: Any) -> Any:
        x, y = (given[name] for name in names)
        return np.asarray(function(x, y), np.result_type(x))

    for x_shape, y_shape in SHAPES:
        both = make(int(np.prod(x_shape)) + int(np.prod(y_shape)))
        x, y = both[: int(np.prod(x_shape))].reshape(x_shape), both[int(np.prod(x_shape)) :].reshape(y_shape)
        add(op_type, Sample(dict(zip(names, (x, y), strict=True)), {}, reference))


for name, function in {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}.items():
    broadcast(f"bitwise_{name}", function, lambda size: data.ints(size, low=-9, high=9))
    broadcast(f"bitwise_{name}", function, lambda size: data.bools(size))
    add(f"bitwise_{name}", Sample({"X": np.uint8([200, 7]), "Y": np.uint8([100, 9])}, {}, lambda X, Y, f=function: f(X, Y)))
for X in (data.ints(2, 3, low=-9, high=9), data.bools(3), np.uint8([0, 7, 255]), data.ints(0, 2, dtype="int32")):
    add("bitwise_not", Sample({"X": X}, {}, lambda X: ~X))
for name, function in {"left": np.left_shift, "right": np.right_shift}.items():
    broadcast(f"bitwise_{name}_shift", function, lambda size: data.ints(size, low=0, high=9), ("x", "y"))
    for dtype in ("int8", "uint16", "uint32", "uint64"):
        places = {"x": np.array([100, 3, 0], dtype), "y": np.array([1, 5, 2], dtype)}
        add(f"bitwise_{name}_shift", Sample(places, {}, lambda x, y, f=function: f(x, y)))
for X in (np.array([-1.5, -0.0, 0.0, 2.0, -np.inf, np.nan]), np.zeros((0, 2), "float32")):
    add("signbit", Sample({"X": X}, {}, lambda X: np.signbit(X)))
broadcast("elementwise_fmax", np.fmax, data.distinct)
broadcast("elementwise_fmin", np.fmin, data.distinct)
for name, function in (("fmax", np.fmax), ("fmin", np.fmin)):
    nan = {"X": np.array([np.nan, 1.0, np.nan]), "Y": np.array([2.0, np.nan, np.nan])}
    add(f"elementwise_{name}", Sample(nan, {}, lambda X, Y, f=function: f(X, Y), orders=0))
    ints = {"X": data.ints(4), "Y": data.ints(4)}
    add(f"elementwise_{name}", Sample(ints, {}, lambda X, Y, f=function: f(X, Y)))
broadcast("elementwise_heaviside", np.heaviside, data.away)
add(
    "elementwise_heaviside",
    Sample({"X": np.array([-1.0, 0, 0, 2]), "Y": data(4)}, {}, lambda X, Y: np.heaviside(X, Y), wrt=["Y"]),
)
broadcast("atan2", np.arctan2, data.away, ("X1", "X2"))
add("atan2", Sample({"X1": data.ints(4, low=-3), "X2": data.ints(4, low=1)}, {}, lambda X1, X2: np.arctan2(X1, X2)))
unary("trunc", np.trunc, kinks=(-2, -1, 0, 1, 2))
broadcast("nextafter", np.nextafter, data, ("x", "y"))
for axis, y_shape in ((-1, (3,)), (0, (2,)), (1, (3, 1))):
    full = y_shape if axis else (2, 1, 1)
    add(
        "grad_add",
        Sample(
            {"X": data(2, 3, 4) if axis != -1 else data(2, 3), "Y": data(*y_shape)},
            {"axis": axis},
            lambda X, Y, axis, full=full: X + Y.reshape(full),
        ),
    )

NEAR = {"Input": np.array([1.0, 2, np.nan, 0, 5]), "Other": np.array([1.00001, 2.1, np.nan, 1e-9, 5])}


def close(Input: Any, Other: Any, rtol: str = "1e-5", atol: str = "1e-8", equal_nan: bool = False, **tensors: Any) -> Any:
    relative, absolute = (
        float(tensors.get(name.title(), text).item() if name.title() in tensors else text)
        for name, text in (("rtol", rtol), ("atol", atol))
    )
    with np.errstate(all="ignore"):
        near = np.abs(Input - Other) <= absolute + relative * np.abs(Other)
    return near | (equal_nan & np.isnan(Input) & np.isnan(Other))


for attrs in ({}, {"rtol": "0.1"}, {"atol": "0.2", "equal_nan": True}, {"rtol": "0", "atol": "0"}):
    add("isclose", Sample(NEAR, attrs, close))
    add("allclose", Sample(NEAR, attrs, lambda **given: np.asarray(close(**given).all())))
add("isclose", Sample({**NEAR, "Rtol": np.array([0.1]), "Atol": np.array([0.0])}, {}, close))
add("isclose", Sample({"Input": data(2, 3), "Other": data(3)}, {"rtol": "0.5"}, close))
add("isclose", Sample({"Input": data.ints(4), "Other": data.ints(4)}, {}, lambda Input, Other: Input == Other))
add(
    "allclose",
    Sample(
        {"Input": data(3), "Other": data(3)},
        {"atol": "9"},
        lambda Input, Other, atol: np.asarray(np.allclose(Input, Other, atol=float(atol))),
        declared={"Out": (1,)},
    ),
)
for x, y in (
    (data(2, 3), data(2, 3)),
    (np.ones(3), np.ones(3)),
    (np.ones(3), np.ones((1, 3))),
    (np.ones((0, 2)), np.ones((0, 2))),
):
    add("equal_all", Sample({"X": x, "Y": y}, {}, lambda X, Y: np.asarray(np.array_equal(X, Y))))
pair = {"X": np.int64([1, 2]), "Y": np.int64([1, 2])}
add("equal_all", Sample(pair, {}, lambda X, Y: np.asarray(np.array_equal(X, Y)), declared={"Out": (1,)}))


def columns(X: list[Any], start_index: int = 0, length: int = -1) -> list[Any]:
    start = start_index + X[0].shape[1] if start_index < 0 else start_index
    return [x[:, start : x.shape[1] if length < 0 else start + length] for x in X]


for attrs in ({}, {"start_index": 1}, {"start_index": 1, "length": 2}, {"start_index": -3, "length": 2}, {"start_index": -1}):
    add("partial_sum", Sample({"X": [data(2, 4), data(2, 4)]}, attrs, lambda **given: sum(columns(**given)), known=("X",)))
    concat = lambda **given: np.concatenate(columns(**given), 1)
    add("partial_concat", Sample({"X": [data(2, 4), data(2, 4), data(2, 4)]}, attrs, concat, known=("X",)))

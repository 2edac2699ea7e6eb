"""Samples of `fluid.ops.creation`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fluid.values.types import VarType

from .base import Data, Sample, add

data = Data("creation")
FP32, FP64, INT64, INT32, BOOL = (int(VarType[name]) for name in ("FP32", "FP64", "INT64", "INT32", "BOOL"))


def filled(shape: Sequence[int] = (), dtype: int = FP32, value: float = 0.0, str_value: str = "") -> Any:
    number: Any = value if not str_value else float(str_value)
    return np.full(shape, number, VarType(dtype).numpy)


add(
    "fill_constant",
    *(
        Sample({}, attrs, filled)
        for attrs in (
            {"shape": [2, 3], "value": 1.5},
            {"shape": [2, 3], "value": 1.5, "dtype": FP64},
            {"shape": [1], "value": 7.0, "dtype": INT64},
            {"shape": [4], "value": 1.0, "dtype": BOOL},
            {"shape": [], "value": 2.0},
            {"shape": [0, 2], "value": 2.0},
            {"shape": [2], "str_value": "0.25"},
        )
    ),
)
add("fill_zeros_like", *(Sample({"X": data(*shape)}, {}, lambda X: np.zeros_like(X)) for shape in ((2, 3), (), (0, 2))))
add("fill_zeros_like", Sample({"X": data.ints(2, 3)}, {}, lambda X: np.zeros_like(X)))


add("fill_zeros_like2", Sample({"X": data(2, 3)}, {"dtype": 3}, lambda X: np.zeros(X.shape, np.int64)))
add(
    "fill",
    Sample({}, {"value": [1.0, 2.5], "shape": [2, 1], "dtype": 5}, lambda: np.float32([[1], [2.5]])),
    Sample({}, {"value": [1, 0, 7], "shape": [3], "dtype": 3}, lambda: np.array([1, 0, 7])),
)


def filled_like(X: Any, value: float = 0.0, dtype: int = -1) -> Any:
    return np.full(X.shape, value, X.dtype if dtype == -1 else VarType(dtype).numpy)


add(
    "fill_any_like",
    *(
        Sample({"X": data(*shape)}, attrs, filled_like)
        for shape, attrs in (((2, 3), {}), ((2, 3), {"value": 2.5}), ((2,), {"value": 2.0, "dtype": INT64}), ((), {"value": 1.0}))
    ),
)


def filled_batch(
    Input: Any,
    shape: Sequence[int],
    value: float = 0.0,
    dtype: int = FP32,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
) -> Any:
    found = list(shape)
    found[output_dim_idx] = Input.shape[input_dim_idx]
    return np.full(found, value, VarType(dtype).numpy)


add(
    "fill_constant_batch_size_like",
    *(
        Sample({"Input": data(3, 4)}, attrs, filled_batch)
        for attrs in (
            {"shape": [-1, 2], "value": 0.5, "dtype": FP32},
            {"shape": [2, -1], "value": 0.5, "dtype": FP32, "input_dim_idx": 1, "output_dim_idx": 1},
            {"shape": [-1], "value": 3.0, "dtype": INT64},
        )
    ),
)
add("assign", *(Sample({"X": data(*shape)}, {}, lambda X: X) for shape in ((2, 3), (), (0, 2), (1,))))
add("rnn_memory_helper", *(Sample({"X": data(*shape)}, {}, lambda X: X) for shape in ((2, 3), (), (0, 2))))
add("assign", Sample({"X": data.ints(2, 3)}, {}, lambda X: X), Sample({"X": data.bools(3)}, {}, lambda X: X))
add(
    "assign_value",
    Sample({}, {"shape": [2, 2], "dtype": FP32, "fp32_values": [1.0, 2.0, 3.0, 4.5]}, lambda: np.float32([[1, 2], [3, 4.5]])),
    Sample({}, {"shape": [3], "dtype": INT64, "int64_values": [1, 2, 3]}, lambda: np.int64([1, 2, 3])),
    Sample({}, {"shape": [1], "dtype": INT32, "int32_values": [7]}, lambda: np.int32([7])),
    Sample({}, {"shape": [2], "dtype": BOOL, "bool_values": [1, 0]}, lambda: np.array([True, False])),
)


def increased(X: Any, step: float = 1.0) -> Any:
    return (X + step).astype(X.dtype)


add(
    "increment",
    Sample({"X": data(1)}, {}, increased),
    Sample({"X": data(1)}, {"step": -2.5}, increased),
    Sample({"X": data.ints(1)}, {"step": 2.0}, increased),
)


def converted(X: Any, out_dtype: int, in_dtype: int = 0) -> Any:
    return X.astype(VarType(out_dtype).numpy)


add(
    "cast",
    Sample({"X": data(2, 3)}, {"in_dtype": FP64, "out_dtype": FP64}, converted, dtypes=["float64"]),
    Sample({"X": data(2, 3)}, {"in_dtype": FP32, "out_dtype": FP64}, converted, dtypes=["float32"], orders=0),
    Sample({"X": data(2, 3) * 5}, {"in_dtype": FP32, "out_dtype": INT64}, converted, dtypes=["float32"], orders=0),
    Sample({"X": data.ints(2, 3)}, {"in_dtype": INT64, "out_dtype": FP32}, converted),
    Sample({"X": data.ints(2, 3, high=2)}, {"in_dtype": INT64, "out_dtype": BOOL}, converted),
    Sample({"X": data.bools(3)}, {"in_dtype": BOOL, "out_dtype": FP32}, converted),
    Sample({"X": data()}, {"in_dtype": FP64, "out_dtype": FP64}, converted, dtypes=["float64"]),
)
add("shape", *(Sample({"Input": data(*shape)}, {}, lambda Input: np.int32(Input.shape)) for shape in ((2, 3), (4,), (0, 2))))
add("size", *(Sample({"Input": data(*shape)}, {}, lambda Input: np.array([Input.size])) for shape in ((2, 3), (0, 2))))
add(
    "range",
    Sample(
        {"Start": np.int64([1]), "End": np.int64([7]), "Step": np.int64([2])},
        {},
        lambda Start, End, Step: np.arange(1, 7, 2),
        shapes_by_value=True,
    ),
    Sample(
        {"Start": np.float64([0]), "End": np.float64([0.9]), "Step": np.float64([0.25])},
        {},
        lambda Start, End, Step: np.arange(0, 0.9, 0.25).astype(Start.dtype),
        shapes_by_value=True,
    ),
)
add(
    "where_index",
    Sample(
        {"Condition": np.array([[True, False], [True, True]])}, {}, lambda Condition: np.argwhere(Condition), shapes_by_value=True
    ),
)
add(
    "fill_constant",
    Sample(
        {"ShapeTensor": np.int32([2, 3])},
        {"value": 1.5},
        lambda ShapeTensor, value: filled([2, 3], FP32, value),
        shapes_by_value=True,
        known=["ShapeTensor"],
    ),
    Sample(
        {"ShapeTensorList": [np.int32([2]), np.int32([3])]},
        {"value": 1.5, "shape": [-1, -1]},
        lambda ShapeTensorList, value: filled([2, 3], FP32, value),
        shapes_by_value=True,
    ),
    Sample(
        {"ValueTensor": np.float32([2.5])}, {"shape": [2, 3]}, lambda ValueTensor: filled([2, 3], FP32, 2.5), dtypes=["float32"]
    ),
)
add(
    "linspace",
    Sample(
        {"Start": np.float32([0]), "Stop": np.float32([2]), "Num": np.int32([5])},
        {"dtype": FP32},
        lambda Start, Stop, Num, dtype: np.linspace(0, 2, 5, dtype=np.float32),
        dtypes=["float32"],
        shapes_by_value=True,
        wrt=[],
    ),
    Sample(
        {"Start": np.float64([0.5]), "Stop": np.float64([2]), "Num": np.int32([5])},
        {"dtype": FP64},
        lambda Start, Stop, Num, dtype: np.linspace(0.5, 2, 5),
        dtypes=["float64"],
        shapes_by_value=True,
    ),
    Sample(
        {"Start": np.float64([3]), "Stop": np.float64([-1]), "Num": np.int32([1])},
        {"dtype": FP64},
        lambda Start, Stop, Num, dtype: np.float64([3]),
        dtypes=["float64"],
        shapes_by_value=True,
    ),
)
add(
    "eye",
    Sample({}, {"num_rows": 3}, lambda num_rows: np.eye(3, dtype=np.float32)),
    Sample(
        {}, {"num_rows": 2, "num_columns": 3, "dtype": INT64}, lambda num_rows, num_columns, dtype: np.eye(2, 3, dtype=np.int64)
    ),
)

for start, stop, num, base in ((0.0, 3.0, 4, 2.0), (-1.0, 1.0, 5, 10.0), (2.0, 2.0, 1, 3.0)):
    inputs = {"Start": np.array([start]), "Stop": np.array([stop]), "Num": np.array([num]), "Base": np.array([base])}
    for dtype, kind in ((5, "float32"), (6, "float64"), (3, "int64")):
        values = (base ** np.linspace(start, stop, num)).astype(kind)
        wrt = None if kind == "float64" else []
        sample = Sample(inputs, {"dtype": dtype}, lambda Start, values=values: values, shapes_by_value=True, tolerance=5, wrt=wrt)
        add("logspace", sample)
for shape in ((2, 3), (), (0, 2)):
    add("empty", Sample({}, {"shape": list(shape)}, lambda shape: np.zeros(shape, "float32")))
    add("fill_any", Sample({"X": np.ones(shape)}, {"value": 2.5}, lambda X, value: np.full_like(X, value), orders=0))
add("fill_any", Sample({"X": np.ones((2, 2))}, {}, lambda X: np.zeros_like(X)))
add(
    "empty",
    Sample(
        {"ShapeTensor": np.array([2, 3])},
        {"dtype": 3},
        lambda ShapeTensor: np.zeros((2, 3), "int64"),
        shapes_by_value=True,
        known=("ShapeTensor",),
    ),
)
for dtype, kind in ((2, "int32"), (3, "int64")):
    attrs = {"value": [3, -1, 7], "dtype": dtype, "place": 0}
    add("full_int_array", Sample({}, attrs, lambda value, kind=kind: np.array(value, kind)))

"""Element types of ONNX, and the types that hold them in Fluid."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import FormatError
from ..values.types import VarType

STRING = 8

NAMES = {
    0: "UNDEFINED", 1: "FLOAT", 2: "UINT8", 3: "INT8", 4: "UINT16", 5: "INT16", 6: "INT32", 7: "INT64", 8: "STRING", 9: "BOOL",
    10: "FLOAT16", 11: "DOUBLE", 12: "UINT32", 13: "UINT64", 14: "COMPLEX64", 15: "COMPLEX128", 16: "BFLOAT16",
    17: "FLOAT8E4M3FN",
    18: "FLOAT8E4M3FNUZ", 19: "FLOAT8E5M2", 20: "FLOAT8E5M2FNUZ", 21: "UINT4", 22: "INT4", 23: "FLOAT4E2M1", 24: "FLOAT8E8M0",
    25: "UINT2", 26: "INT2",
}  # fmt: skip
"""Numbers of `onnx.TensorProto.DataType` -> names."""

_SAME = {
    1: VarType.FP32,
    2: VarType.UINT8,
    3: VarType.INT8,
    5: VarType.INT16,
    6: VarType.INT32,
    7: VarType.INT64,
    9: VarType.BOOL,
    10: VarType.FP16,
    11: VarType.FP64,
    13: VarType.SIZE_T,
    14: VarType.COMPLEX64,
    15: VarType.COMPLEX128,
    16: VarType.BF16,
}
_WIDER = {
    4: VarType.INT32,
    12: VarType.INT64,
    17: VarType.FP32,
    18: VarType.FP32,
    19: VarType.FP32,
    20: VarType.FP32,
    21: VarType.UINT8,
    22: VarType.INT8,
    23: VarType.FP32,
    24: VarType.FP32,
    25: VarType.UINT8,
    26: VarType.INT8,
}
"""Types that Paddle's programs lack -> a wider type that holds all their values."""

_BITS = {2: 8, 4: 16, 12: 32, 13: 64, 21: 4, 25: 2, 3: -8, 5: -16, 6: -32, 7: -64, 22: -4, 26: -2}
_FLOATS = {
    17: (4, -6, 448.0),
    18: (4, -7, 240.0),
    19: (3, -14, 57344.0),
    20: (3, -15, 57344.0),
    23: (2, 0, 6.0),
}


def name_of(number: int) -> str:
    """The name of an element type of ONNX."""
    return NAMES.get(number, f"{number} (which is no element type)")


def element_type(number: int, where: str) -> VarType:
    """Fluid's element type for one of ONNX; `FormatError` if there is none."""
    dtype = _SAME.get(number, _WIDER.get(number))
    if dtype is None:
        advice = (
            "programs hold no strings" if number == STRING else "it should be one of floats, integers, bools, complex numbers"
        )
        raise FormatError(f"{where}: the element type is {name_of(number)}; {advice}")
    return dtype


def integer_bits(number: int) -> int | None:
    """The bits of an integer type, negative for signed ones; None for other types."""
    return _BITS.get(number)


def float_format(number: int) -> tuple[int, int, float] | None:
    """The format of floats held in a wider type: bits of the mantissa (with the hidden one), least exponent, greatest number."""
    return _FLOATS.get(number)


def is_held_wider(number: int) -> bool:
    """Whether Fluid holds values of this type in a wider type."""
    return number in _WIDER


def numpy_type(number: int, where: str) -> np.dtype[Any]:
    """The numpy dtype of arrays that hold an element type of ONNX in Fluid."""
    return element_type(number, where).array_dtype


def number_of(dtype: VarType) -> int:
    """The number of the element type of ONNX that Fluid holds in this type, and not in a wider one."""
    return next(number for number, held in _SAME.items() if held is dtype)

"""Types of variables and of their elements, with Paddle's numbers."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Union

import numpy as np

from ..errors import FluidTypeError

BFLOAT16: np.dtype[Any] = np.dtype([("bfloat16", "<u2")])
"""The bits of bfloat16 as integers. numpy cannot compute with it: ops do in float32; see `fluid.executor.binding.halves`."""


class _NamedInt(IntEnum):
    """A number of Paddle's that is printed as its name: ``VarType.FP32``."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __bool__(self) -> bool:
        return True  # the number 0, too: `dtype or default` is the type wherever there is one

    def __format__(self, spec: str) -> str:
        return format(int(self), spec) if spec else str(self)


class VarType(_NamedInt):
    """Types of variables (7 to 18, 25 to 31) and of elements (the others), in one enum as Paddle's ``VarType.Type``.

    `UINT16` and `UINT32`, which Paddle lacks, have numbers far above its own, so Paddle cannot read a program that holds them.
    Its name for uint64 is `SIZE_T`.

    An element type equals its name, and numpy's type.

    >>> x = fluid.data("x", [None, 2])
    >>> x.dtype is fluid.core.VarType.FP32, x.type is fluid.core.VarType.LOD_TENSOR
    (True, True)
    >>> x.dtype == "float32", x.dtype == np.float32
    (True, True)
    >>> print(x.dtype)
    VarType.FP32
    """

    BOOL = 0
    INT16 = 1
    INT32 = 2
    INT64 = 3
    FP16 = 4
    FP32 = 5
    FP64 = 6
    LOD_TENSOR = 7
    SELECTED_ROWS = 8
    FEED_MINIBATCH = 9
    FETCH_LIST = 10
    STEP_SCOPES = 11
    LOD_RANK_TABLE = 12
    LOD_TENSOR_ARRAY = 13
    PLACE_LIST = 14
    READER = 15
    RAW = 17
    TUPLE = 18
    SIZE_T = 19
    UINT64 = 19
    UINT8 = 20
    INT8 = 21
    BF16 = 22
    COMPLEX64 = 23
    COMPLEX128 = 24
    STRING = 25
    STRINGS = 26
    VOCAB = 27
    FEED_LIST = 28
    PSTRING = 29
    SPARSE_COO = 30
    SPARSE_CSR = 31
    UINT16 = 1016
    UINT32 = 1032

    def __eq__(self, value: object) -> bool:
        if isinstance(value, int):
            return int.__eq__(self, value)
        if isinstance(value, (str, type, np.dtype)):
            try:
                return as_dtype(value) is self
            except FluidTypeError:
                return False
        return NotImplemented

    def __ne__(self, value: object) -> bool:
        return not self == value

    __hash__ = int.__hash__

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype of this element type, with which numpy computes; `FluidTypeError` if there is none."""
        try:
            return _TO_NUMPY[self]
        except KeyError:
            advice = "; fluid.bfloat16.widen(program) makes it float32" if self is VarType.BF16 else ""
            raise FluidTypeError(f"{self.name} is not an element type that numpy can compute with{advice}") from None

    @property
    def array_dtype(self) -> np.dtype[Any]:
        """The numpy dtype of arrays that hold such elements: `numpy`, and the bits of bfloat16."""
        return BFLOAT16 if self is VarType.BF16 else self.numpy

    @property
    def text(self) -> str:
        """The name as users write it: ``float32``, ``int64``, ..."""
        return "bfloat16" if self is VarType.BF16 else _TO_NUMPY[self].name if self in _TO_NUMPY else self.name.lower()


class AttrType(_NamedInt):
    """Kinds of attributes, with Paddle's numbers.

    >>> y = layers.scale(fluid.data("x", [None, 2]), 2.0)
    >>> y.op.attr_type("scale") is fluid.core.AttrType.FLOAT
    True
    """

    INT = 0
    FLOAT = 1
    STRING = 2
    INTS = 3
    FLOATS = 4
    STRINGS = 5
    BOOL = 6
    BOOLS = 7
    BLOCK = 8
    LONG = 9
    BLOCKS = 10
    LONGS = 11
    FLOAT64S = 12
    VAR = 13
    VARS = 14
    FLOAT64 = 15
    SCALAR = 16
    SCALARS = 17


DTypeLike = Union[VarType, str, int, type, np.dtype[Any]]

_TO_NUMPY: dict[VarType, np.dtype[Any]] = {
    VarType.BOOL: np.dtype("bool"),
    VarType.INT16: np.dtype("int16"),
    VarType.INT32: np.dtype("int32"),
    VarType.INT64: np.dtype("int64"),
    VarType.FP16: np.dtype("float16"),
    VarType.FP32: np.dtype("float32"),
    VarType.FP64: np.dtype("float64"),
    VarType.SIZE_T: np.dtype("uint64"),
    VarType.UINT8: np.dtype("uint8"),
    VarType.UINT16: np.dtype("uint16"),
    VarType.UINT32: np.dtype("uint32"),
    VarType.INT8: np.dtype("int8"),
    VarType.COMPLEX64: np.dtype("complex64"),
    VarType.COMPLEX128: np.dtype("complex128"),
}
_FROM_NUMPY = {dtype: element for element, dtype in _TO_NUMPY.items()} | {BFLOAT16: VarType.BF16}
_FROM_NAME = {element.text: element for element in _FROM_NUMPY.values()}
_COMPLEX = frozenset({VarType.COMPLEX64, VarType.COMPLEX128})
_WITH_PARTS = {VarType.FP32: VarType.COMPLEX64, VarType.FP64: VarType.COMPLEX128}
_PARTS = {full: part for part, full in _WITH_PARTS.items()}
_INTEGERS = frozenset(element for element, dtype in _TO_NUMPY.items() if dtype.kind in "iu")
_FLOATING = frozenset({VarType.FP16, VarType.FP32, VarType.FP64, VarType.BF16}) | _COMPLEX


def as_dtype(dtype: DTypeLike) -> VarType:
    """The element type for a `VarType`, its number, a name such as ``"float32"``, or a numpy dtype."""
    if isinstance(dtype, VarType):
        return dtype
    if isinstance(dtype, str) and dtype in _FROM_NAME:
        return _FROM_NAME[dtype]
    try:
        if isinstance(dtype, int):
            return VarType(dtype)
        numpy_dtype = np.dtype(dtype)
        if numpy_dtype not in _FROM_NUMPY and numpy_dtype.name == "bfloat16":  # jax has one that computes
            return VarType.BF16
        return _FROM_NUMPY[numpy_dtype]
    except (KeyError, TypeError, ValueError):
        names = ", ".join(sorted(_FROM_NAME))
        raise FluidTypeError(f"{dtype!r} is not an element type; known are {names}") from None


def is_floating(dtype: VarType | None) -> bool:
    """Whether this is a type of floats or complex numbers."""
    return dtype in _FLOATING


def is_integer(dtype: VarType | None) -> bool:
    """Whether this is a type of integers, signed or not."""
    return dtype in _INTEGERS


def is_complex(dtype: VarType | None) -> bool:
    """Whether this is a type of complex numbers."""
    return dtype in _COMPLEX


def real_of(dtype: VarType) -> VarType:
    """The type of the parts of complex numbers of a type; of other types, the type."""
    return _PARTS.get(dtype, dtype)


def complex_of(dtype: VarType) -> VarType:
    """The type of complex numbers with parts of a type; of complex types, the type."""
    return _WITH_PARTS.get(dtype, dtype)


def accumulated(dtype: VarType) -> VarType:
    """The type for sums and statistics of numbers of this type: float32 for half-precision floats."""
    return VarType.FP32 if dtype in (VarType.FP16, VarType.BF16) else dtype

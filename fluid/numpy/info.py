"""What there is: devices, element types, capabilities, as the array API standard asks for them."""

from __future__ import annotations

from typing import Any

from ..executor.binding.array_types import default_device
from ..values.types import VarType
from .array import devices
from .dtypes import DEFAULTS, KINDS, isdtype

__all__ = ["ArrayInfo"]

_NAMES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "complex64",
    "complex128",
]


class ArrayInfo:
    """Answers of `__array_namespace_info__`.

    >>> import fluid.numpy as xp
    >>> xp.__array_namespace_info__().default_device()
    'cpu'
    """

    def capabilities(self) -> dict[str, Any]:
        """Whether masks may index, and shapes may depend on elements: both. Arrays have 64 dimensions at most."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """The name of the device on which arrays are made."""
        return default_device()

    def devices(self) -> list[str]:
        """The names of all devices."""
        return devices()

    def default_dtypes(self, *, device: Any = None) -> dict[str, VarType]:
        """The element types that are taken where nothing else is said.

        Args:
            device: accepted; they are the same on all.
        """
        return {
            "real floating": DEFAULTS[float],
            "complex floating": DEFAULTS[complex],
            "integral": DEFAULTS[int],
            "indexing": VarType.INT64,
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, VarType]:
        """The element types by their names.

        Args:
            device: accepted; they are the same on all.
            kind: as in `fluid.numpy.isdtype`; all by default.
        """
        types = {dtype.text: dtype for dtypes in KINDS.values() for dtype in dtypes}
        return {name: types[name] for name in _NAMES if kind is None or isdtype(types[name], kind)}

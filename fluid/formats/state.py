"""Arrays by name in ``.pdparams`` and ``.pdopt``: what Paddle writes of parameters, and of the state of optimizers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import FormatError
from .pickles import read_pickle

__all__ = ["is_pickle", "read_state"]

_PARAMETER_NAMES = "StructuredToParameterName@@"
_SLICES = "UnpackBigParamInfor@@"


def is_pickle(head: bytes, size: int) -> bool:
    """Whether a file that begins so is a pickle."""
    return head.startswith(b"\x80")


def read_state(path: str) -> dict[str, Any]:
    """The arrays by name of one file. No code is run that it may contain.

    Raises:
        FormatError: the file is damaged, or holds no dict of arrays by name.
    """
    found = read_pickle(path)
    if not isinstance(found, dict):
        raise FormatError(f"{path}: it should hold a dict of arrays by name, but holds a {type(found).__name__}")
    slices, names = (found.pop(key, {}) for key in (_SLICES, _PARAMETER_NAMES))
    _join_slices(path, found, slices)
    if isinstance(names, dict):  # names within a layer -> names of the parameters, which programs know
        found = {names.get(name, name): value for name, value in found.items()}
    arrays = {
        name: value for name, value in found.items() if isinstance(name, str) and isinstance(value, (np.ndarray, np.generic))
    }
    if found and not arrays and not path.endswith(".pdopt"):  # the state of an optimizer may be its learning rate alone
        name, value = next(iter(found.items()))
        raise FormatError(f"{path}: it holds no array by name; under {name!r} is a {type(value).__name__}")
    return arrays


def _join_slices(path: str, found: dict[str, Any], slices: Any) -> None:
    """Put together the arrays that were too large for one piece."""
    for name, info in slices.items() if isinstance(slices, dict) else ():
        try:
            parts = [found.pop(part) for part in info["slices"]]
            found[name] = np.concatenate([np.ravel(part) for part in parts]).reshape(info["OriginShape"])
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{path}: the pieces of {name!r} do not make one array: {error!r}") from None

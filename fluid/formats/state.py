"""Arrays by name in ``.pdparams`` and ``.pdopt``, Paddle's files of parameters and of the state of optimizers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import FormatError
from .pickles import read_pickle, read_stamp

_PARAMETER_NAMES = "StructuredToParameterName@@"
_SLICES = "UnpackBigParamInfor@@"


def is_pickle(head: bytes, size: int) -> bool:
    """Whether a file with this head is a pickle."""
    return head.startswith(b"\x80")


def read_state(path: str) -> dict[str, Any]:
    """The arrays by name of one file. Code that it may contain does not run.

    Raises:
        FormatError: the file is damaged, or does not hold a dict of arrays by name.
    """
    state = read_pickle(path)
    if not isinstance(state, dict):
        raise FormatError(f"{path}: it should hold a dict of arrays by name, but holds a {type(state).__name__}")
    slices, names = (state.pop(key, {}) for key in (_SLICES, _PARAMETER_NAMES))
    _join_slices(path, state, slices)
    if isinstance(names, dict):  # name within a layer -> name of the parameter in programs
        state = {names.get(name, name): value for name, value in state.items()}
    arrays = {
        name: value for name, value in state.items() if isinstance(name, str) and isinstance(value, (np.ndarray, np.generic))
    }
    if state and not arrays and not path.endswith(".pdopt"):  # the state of an optimizer may be its learning rate alone
        name, value = next(iter(state.items()))
        raise FormatError(f"{path}: it holds no array by name; under {name!r} is a {type(value).__name__}")
    return arrays


def check_together(parameters: str, state: str) -> None:
    """`FormatError` if two files are of different saves: a process was killed when it had replaced one of them.

    Files of Paddle, of earlier versions, and of functions that save one file have no stamp, and go with any other.
    """
    stamps = read_stamp(parameters), read_stamp(state)
    if all(stamps) and stamps[0] != stamps[1]:
        raise FormatError(
            f"{parameters} and {state} were not saved together: their stamps are {' and '.join(stamps)}. A process was killed "
            "while it saved, or one was copied from elsewhere: take both from one save, or move one away to load the other alone"
        )


def _join_slices(path: str, state: dict[str, Any], slices: Any) -> None:
    """Join the pieces of arrays that were too large for one piece."""
    for name, info in slices.items() if isinstance(slices, dict) else ():
        try:
            parts = [state.pop(part) for part in info["slices"]]
            state[name] = np.concatenate([np.ravel(part) for part in parts]).reshape(info["OriginShape"])
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{path}: the pieces of {name!r} do not make one array: {error!r}") from None

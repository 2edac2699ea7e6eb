"""Saving and loading states of layers and optimizers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..eager.program import Parameter
from ..eager.tensor import Tensor
from ..errors import FormatError, ProgramError
from ..formats.commits import is_saved
from ..formats.pickles import read_pickle, write_arrays
from ..formats.state import check_together
from ..ir.checked import checked
from ..optimizer import is_state
from ..training.states import start_of
from ..values.lod_tensor import LoDTensor

__all__ = ["load_dygraph", "save_dygraph"]

_NAMES = "StructuredToParameterName@@"


class LoadedArray(np.ndarray[Any, Any]):
    """An array of a loaded state, with the methods of a tensor that scripts of Fluid 1.6 call."""

    __slots__ = ()

    def numpy(self) -> np.ndarray[Any, Any]:
        """The plain array."""
        return np.asarray(self)

    def value(self) -> LoadedArray:
        """The array itself, as the `value` of a tensor is that tensor."""
        return self

    def get_tensor(self) -> LoDTensor:
        """The array as a scope's value."""
        return LoDTensor(np.asarray(self))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return np.asarray(self).__reduce_ex__(protocol)


@checked
def save_dygraph(state_dict: Mapping[str, Any], model_path: str | os.PathLike[str]) -> None:
    """Save a `state_dict` of a layer, as ``<model_path>.pdparams``, or of an optimizer, as ``<model_path>.pdopt``.

    The tensors tell which it is; for plain arrays, such as from `load_dygraph`, the names do (moments and the like are of an
    optimizer). The files are pickles of arrays by name, as in Fluid 1.6.

    Raises:
        ProgramError: the state is empty, or `model_path` is a folder.

    >>> linear = dygraph.Linear(4, 2)
    >>> dygraph.save_dygraph(linear.state_dict(), "linear")
    >>> parameters, of_optimizer = dygraph.load_dygraph("linear")
    >>> sorted(parameters)
    ['bias', 'weight']
    """
    model_path = _start(model_path)
    if not state_dict:
        raise ProgramError("save_dygraph: the state is empty; an optimizer has one after its first step")
    if not os.path.basename(model_path):
        raise ProgramError(f"{model_path!r} names a folder; give the start of the files' names too, such as '{model_path}model'")
    suffix = ".pdopt" if _of_optimizer(state_dict) else ".pdparams"
    arrays = {
        name: value.numpy() if hasattr(value, "numpy") else np.asarray(value)
        for name, value in state_dict.items()
        if not isinstance(value, Mapping)
    }
    names = {name: value.name for name, value in state_dict.items() if hasattr(value, "name")}
    tables: dict[str, dict[str, Any]] = {_NAMES: names}
    if suffix == ".pdopt" and "global_step" in arrays:
        of_steps = {"step_num": int(arrays["global_step"].item())}
        tables["LR_Scheduler"] = dict(state_dict.get("LR_Scheduler", of_steps))  # which Fluid 1.8 reads
    write_arrays(model_path + suffix, arrays, tables)


@checked
def load_dygraph(
    model_path: str | os.PathLike[str], keep_name_table: bool = False
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The states of a layer and of an optimizer (None if missing) that `save_dygraph` or Paddle has saved: arrays by name.

    Args:
        model_path: the start of the names of the files.
        keep_name_table: accepted as in Fluid 1.8, without effect.

    Raises:
        FormatError: neither file exists, one is damaged, or they are of different saves of `fluid.save`.

    >>> linear = dygraph.Linear(4, 2)
    >>> dygraph.save_dygraph(linear.state_dict(), "linear")
    >>> parameters, of_optimizer = dygraph.load_dygraph("linear")
    >>> linear.set_dict(parameters)
    """
    start = _start(model_path)
    states = [_read(start + suffix) if is_saved(start + suffix) else None for suffix in (".pdparams", ".pdopt")]
    if states == [None, None]:
        raise FormatError(f"there is neither {start}.pdparams nor {start}.pdopt")
    if None not in states:
        check_together(start + ".pdparams", start + ".pdopt")
    return states[0] if states[0] is not None else {}, states[1]


def _start(model_path: str | os.PathLike[str]) -> str:
    """The path without the suffix."""
    return os.fspath(model_path).removesuffix(".pdparams").removesuffix(".pdopt")


def _of_optimizer(state: Mapping[str, Any]) -> bool:
    """Whether a state is an optimizer's, or an average's; else it is a layer's."""
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    if any(isinstance(value, Parameter) for value in tensors.values()):
        return False
    if is_state(state):
        return True
    # In a layer's state the keys are not the tensors' own names; names of optimizers' and averages' variables end in a number.
    return bool(tensors) and all(name == value.name and start_of(name) != name for name, value in tensors.items())


def _read(path: str) -> dict[str, Any]:
    content = read_pickle(path)
    if not isinstance(content, dict):
        raise FormatError(f"{path}: it should hold a dict of arrays by name, but holds a {type(content).__name__}")
    content.pop(_NAMES, None)
    return {
        name: value.view(LoadedArray) if type(value) is np.ndarray else value
        for name, value in content.items()
        if isinstance(name, str)
    }

"""Saves and loads a program with all its persistent values, in the three files of Paddle's `save`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

from ..errors import FormatError, ProgramError
from ..executor.runtime.scope import global_scope
from ..formats.commits import is_saved
from ..formats.pickles import stamp_of, write_arrays
from ..formats.program import serialize_program
from ..formats.state import check_together, read_state
from ..formats.writing import together, write_file
from ..ir.checked import checked
from ..ir.program import Program
from .variables import FilePath, as_array, check_dense, chosen_variables, fit_to_variable, is_parameter, is_persistable, value_of

__all__ = ["load", "load_program_state", "save", "set_program_state", "set_state"]

_PARAMETERS, _STATE, _PROGRAM = ".pdparams", ".pdopt", ".pdmodel"


@checked
def save(program: Program, model_path: FilePath) -> None:
    """Save a program and all its persistent values, as three files whose names begin with `model_path`.

    ``.pdparams`` holds the parameters and ``.pdopt`` the other persistent values, such as the state of optimizers, both as
    pickles of arrays by name; ``.pdmodel`` holds the program.

    When all three are on the disk, they replace the old ones together: if the process is killed, `load` finds the whole old save
    or the whole new one. ``.pdopt`` and ``.pdparams`` carry a stamp of the save; `load` refuses a pair that was copied from two.

    Args:
        program: the program.
        model_path: folder and start of the files' names.

    >>> y, exe = fluid.layers.fc(fluid.data("x", [None, 2]), 1), fluid.Executor(fluid.CPUPlace())
    >>> _ = exe.run(fluid.default_startup_program())
    >>> fluid.io.save(fluid.default_main_program(), "model")
    >>> sorted(os.listdir())
    ['model.pdmodel', 'model.pdopt', 'model.pdparams']

    Raises:
        ProgramError: `model_path` names a folder, not files in one.
        ExecutionError: a variable has no value in the scope.
    """
    model_path = os.fspath(model_path)
    _check_prefix(model_path)
    scope = global_scope()
    chosen = chosen_variables(program, None, is_persistable)
    values = {var: value_of(scope, var)[0] for var in chosen}
    for var, array in values.items():
        check_dense(model_path + _STATE, var.name, array)
    data = serialize_program(program)
    parameters, state = ({var.name: array for var, array in values.items() if is_parameter(var) is of} for of in (True, False))
    stamp = stamp_of({**parameters, **state})
    with together():  # the state first: who finds parameters must not take the state for missing
        write_arrays(model_path + _STATE, state, stamp=stamp)
        write_arrays(model_path + _PARAMETERS, parameters, stamp=stamp)
        write_file(model_path + _PROGRAM, [data])


@checked
def load(program: Program, model_path: FilePath, executor: Any = None) -> None:
    """Load the values that `save` wrote into the current scope, on the executor's place (the CPU if None).

    The scope changes only if every persistable variable of the program is there and fits.

    Args:
        program: the program whose variables are to be set.
        model_path: folder and start of the files' names, as given to `save`.
        executor: on whose place the values are put; the CPU if None.

    >>> y, exe = fluid.layers.fc(fluid.data("x", [None, 2]), 1), fluid.Executor(fluid.CPUPlace())
    >>> _ = exe.run(fluid.default_startup_program())
    >>> fluid.io.save(fluid.default_main_program(), "model")
    >>> fluid.io.load(fluid.default_main_program(), "model", exe)

    Raises:
        FormatError: a file is missing, damaged, lacks a variable, or has other shapes or dtypes than the program declares; or
            the two are of different saves.
    """
    model_path = os.fspath(model_path)
    set_state(program, load_program_state(model_path), model_path, getattr(executor, "place", None), complete=True)


@checked
def load_program_state(model_path: FilePath) -> dict[str, Any]:
    """The arrays by name that `save`, or Paddle's `save`, has saved under `model_path`: all persistent values in one dict.

    The program is not needed. Code that the files may contain does not run; see `fluid.formats.pickles`.

    Args:
        model_path: folder and start of the files' names, as given to `save`.

    >>> y, exe = fluid.layers.fc(fluid.data("x", [None, 2]), 1), fluid.Executor(fluid.CPUPlace())
    >>> _ = exe.run(fluid.default_startup_program())
    >>> fluid.io.save(fluid.default_main_program(), "model")
    >>> {name: array.shape for name, array in fluid.io.load_program_state("model").items()}
    {'fc_0.b_0': (1,), 'fc_0.w_0': (2, 1)}

    Raises:
        FormatError: a file is damaged, ``<model_path>.pdparams`` is missing, or the two are of different saves.
    """
    model_path = os.fspath(model_path)
    for suffix in (_PARAMETERS, _STATE, _PROGRAM):
        model_path = model_path.removesuffix(suffix)
    _check_prefix(model_path)
    state = read_state(model_path + _PARAMETERS)
    if is_saved(model_path + _STATE):
        check_together(model_path + _PARAMETERS, model_path + _STATE)
        state.update(read_state(model_path + _STATE))
    return state


@checked
def set_program_state(program: Program, state_dict: Mapping[str, Any]) -> None:
    """Set parameters and other persistable variables of a program, in the current scope.

    Args:
        program: the program with the variables.
        state_dict: arrays by name, as of `load_program_state`. A warning lists names that the program does not have;
            variables without an entry keep their values.

    >>> y = fluid.layers.fc(fluid.data("x", [None, 2]), 1, param_attr="w", bias_attr=False)
    >>> fluid.io.set_program_state(fluid.default_main_program(), {"w": np.ones([2, 1], "float32")})

    Raises:
        FormatError: an array has another shape or dtype than the program declares; then nothing changes.
    """
    unused = set_state(program, state_dict, "the state", None, complete=False)
    if unused:
        text = ", ".join(unused[:10]) + (", ..." if len(unused) > 10 else "")
        warnings.warn(f"set_program_state: the program keeps nothing under these {len(unused)} names: {text}", stacklevel=2)


def _check_prefix(model_path: str) -> None:
    if not os.path.basename(model_path):
        raise ProgramError(f"{model_path!r} names a folder; give the start of the files' names too, such as '{model_path}model'")


def set_state(program: Program, state: Mapping[str, Any], where: str, place: Any, complete: bool) -> list[str]:
    """Put arrays into the scope after checking them all; returns the names that no persistable variable has."""
    variables = {var.name: var for var in chosen_variables(program, None, is_persistable)}
    missing = [name for name in variables if name not in state]
    if complete and missing:
        var = variables[missing[0]]
        suffix = _PARAMETERS if is_parameter(var) else _STATE
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise FormatError(
            f"{where}{suffix}: there is no {var.name!r} ({var.describe()}){more}; was it saved for another program?"
        )
    arrays = {name: as_array(state[name], f"{where}, variable {name!r}") for name in variables if name in state}
    arrays = {name: fit_to_variable(variables[name], array, where) for name, array in arrays.items()}
    scope = global_scope()
    for name, array in arrays.items():
        scope.var(name).get_tensor().set(array, place)
    return [name for name in state if name not in variables]

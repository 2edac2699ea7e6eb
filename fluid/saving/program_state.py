"""Saves and loads a program with all its persistent values, in the three files of Paddle's `save`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import FormatError, ProgramError
from ..executor.runtime.scope import global_scope
from ..formats.commits import is_saved
from ..formats.pickles import stamp_of, write_arrays
from ..formats.program import serialize_program
from ..formats.state import check_together, read_state
from ..formats.tensors import open_tensors
from ..formats.writing import together, write_file
from ..ir.checked import checked
from ..ir.program import Program, Variable
from .variables import (
    FilePath,
    as_array,
    check_dense,
    chosen_variables,
    fit_to_variable,
    is_parameter,
    is_persistable,
    path_of,
    value_of,
)

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
def load(program: Program, model_path: FilePath, executor: Any = None, var_list: Iterable[Variable | str] | None = None) -> None:
    """Load the values that `save` wrote into the current scope, on the executor's place (the CPU if None).

    The scope changes only if every persistable variable of the program is there and fits. The folders and files that
    `save_params`, `save_persistables` and `save_vars` write are loaded, too: of a folder, the variables that have a file.

    Args:
        program: the program whose variables are to be set.
        model_path: folder and start of the files' names, as given to `save`; or a folder or file of `save_vars`.
        executor: on whose place the values are put; the CPU if None.
        var_list: variables or their names, to load these alone; a file of `save_vars` has no names, and needs all its variables.

    >>> y, exe = fluid.layers.fc(fluid.data("x", [None, 2]), 1), fluid.Executor(fluid.CPUPlace())
    >>> _ = exe.run(fluid.default_startup_program())
    >>> fluid.io.save(fluid.default_main_program(), "model")
    >>> fluid.io.load(fluid.default_main_program(), "model", exe)

    Raises:
        FormatError: a file is missing, damaged, lacks a variable, or has other shapes or dtypes than the program declares; or
            the two are of different saves.
        ProgramError: `var_list` is needed, and not given.
    """
    path = os.fspath(model_path)
    variables = None if var_list is None else chosen_variables(program, var_list, None)
    state = load_program_state(path, variables)
    if variables is None and not is_saved(path + _PARAMETERS):
        variables = [var for var in chosen_variables(program, None, is_persistable) if var.name in state]
    set_state(program, state, path, getattr(executor, "place", None), complete=True, variables=variables)


@checked
def load_program_state(model_path: FilePath, var_list: Iterable[Variable | str] | None = None) -> dict[str, Any]:
    """The arrays by name that `save`, or Paddle's `save`, has saved under `model_path`: all persistent values in one dict.

    The program is not needed. Code that the files may contain does not run; see `fluid.formats.pickles`. The folders and files of
    `save_params`, `save_persistables` and `save_vars` are read, too.

    Args:
        model_path: folder and start of the files' names, as given to `save`; or a folder or file of `save_vars`.
        var_list: variables or their names, to read these alone; a file of `save_vars` has no names, and needs all its variables.

    >>> y, exe = fluid.layers.fc(fluid.data("x", [None, 2]), 1), fluid.Executor(fluid.CPUPlace())
    >>> _ = exe.run(fluid.default_startup_program())
    >>> fluid.io.save(fluid.default_main_program(), "model")
    >>> {name: array.shape for name, array in fluid.io.load_program_state("model").items()}
    {'fc_0.b_0': (1,), 'fc_0.w_0': (2, 1)}

    Raises:
        FormatError: a file is damaged, ``<model_path>.pdparams`` is missing, or the two are of different saves.
        ProgramError: `var_list` is needed, and not given.
    """
    path = os.fspath(model_path)
    names = None if var_list is None else sorted({var if isinstance(var, str) else var.name for var in var_list})
    for suffix in (_PARAMETERS, _STATE, _PROGRAM):
        path = path.removesuffix(suffix)
    if not is_saved(path + _PARAMETERS):
        if os.path.isdir(path) and (files := os.listdir(path)) and not any(file.endswith(_PARAMETERS) for file in files):
            return _arrays_of_folder(path, names)
        if is_saved(path):
            return _arrays_of_file(path, names)
    _check_prefix(path)
    state = read_state(path + _PARAMETERS)
    if is_saved(path + _STATE):
        check_together(path + _PARAMETERS, path + _STATE)
        state.update(read_state(path + _STATE))
    return state if names is None else {name: state[name] for name in names if name in state}


def _arrays_of_folder(folder: str, names: Iterable[str] | None) -> dict[str, Any]:
    """The arrays of a folder with a file for each variable."""
    if names is None:
        paths = (os.path.join(root, file) for root, _, files in os.walk(folder) for file in files)
        names = [os.path.relpath(path, folder).replace(os.sep, "/") for path in paths]
    arrays = {}
    for name in sorted(names):
        with open_tensors(path_of(folder, name), f", variable {name!r}") as reader:
            arrays[name] = reader.read(name)[0]
            reader.finish(1)
    return arrays


def _arrays_of_file(path: str, names: Sequence[str] | None) -> dict[str, Any]:
    """The arrays of a file that holds all of these variables, in the order of their names."""
    if names is None:
        raise ProgramError(f"{path} holds arrays without names; give the variables that it was saved with, var_list=")
    with open_tensors(path) as reader:
        arrays = {name: reader.read(name)[0] for name in names}
        reader.finish(len(names))
    return arrays


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


def set_state(
    program: Program,
    state: Mapping[str, Any],
    where: str,
    place: Any,
    complete: bool,
    variables: Iterable[Variable] | None = None,
) -> list[str]:
    """Put arrays into the scope, after all of them are checked; returns the names that none of the variables has.

    Args:
        complete: refuse a state that lacks one of the variables.
        variables: of the program, to be set; by default all that persist.
    """
    by_name = {var.name: var for var in (chosen_variables(program, None, is_persistable) if variables is None else variables)}
    missing = [name for name in by_name if name not in state]
    if complete and missing:
        var = by_name[missing[0]]
        suffix = _PARAMETERS if is_parameter(var) else _STATE
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise FormatError(
            f"{where}{suffix}: there is no {var.name!r} ({var.describe()}){more}; was it saved for another program?"
        )
    arrays = {name: as_array(state[name], f"{where}, variable {name!r}") for name in by_name if name in state}
    arrays = {name: fit_to_variable(by_name[name], array, where) for name, array in arrays.items()}
    scope = global_scope()
    for name, array in arrays.items():
        scope.var(name).get_tensor().set(array, place)
    return [name for name in state if name not in by_name]

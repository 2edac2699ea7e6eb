"""Saves and loads variables of a program: a folder with one file per variable, or one file with all of them, in Paddle's format.

Files are written whole or not at all, and the files of one save replace older ones together (`fluid.formats.writing`). Values are
checked against the file's real size and the program before the scope changes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..distributed.process import communicator
from ..errors import ExecutionError, FluidTypeError, FormatError, ProgramError
from ..executor.runtime.scope import global_scope
from ..formats.tensors import Lod, open_tensors, write_rows, write_tensor
from ..formats.writing import atomic_writer, together
from ..ir.checked import checked
from ..ir.program import Parameter, Program, Variable, default_main_program
from ..values.bfloat16 import to_bfloat16, to_float32
from ..values.numeric import numeric_array
from ..values.place import CPUPlace
from ..values.selected_rows import SelectedRows
from ..values.types import BFLOAT16, VarType, as_dtype

_NOT_SAVED = frozenset({VarType.FEED_MINIBATCH, VarType.FETCH_LIST, VarType.READER, VarType.RAW, VarType.STEP_SCOPES})
Predicate = Callable[[Variable], bool]
FilePath = str | os.PathLike[str]


@checked
def is_parameter(var: Variable) -> bool:
    """Whether training changes this variable.

    >>> y = layers.fc(fluid.data("x", [None, 2]), 1)
    >>> [var.name for var in fluid.default_main_program().list_vars() if fluid.io.is_parameter(var)]
    ['fc_0.w_0', 'fc_0.b_0']
    """
    return isinstance(var, Parameter)


@checked
def is_persistable(var: Variable) -> bool:
    """Whether this variable keeps its value between runs and has a type that files can store.

    >>> x = fluid.data("x", [None, 2])
    >>> w = layers.create_parameter([2], "float32")
    >>> fluid.io.is_persistable(x), fluid.io.is_persistable(w)
    (False, True)
    """
    return var.persistable and var.type not in _NOT_SAVED


@checked
def is_belong_to_optimizer(var: Variable) -> bool:
    """Whether this variable is saved and no parameter: a state of an optimizer, a learning rate.

    >>> _ = fluid.optimizer.Momentum(0.1, 0.9).minimize(layers.mean(layers.fc(fluid.data("x", [None, 2]), 1)))
    >>> sorted(var.name for var in fluid.default_main_program().list_vars() if fluid.io.is_belong_to_optimizer(var))
    ['fc_0.b_0_velocity_0', 'fc_0.w_0_velocity_0', 'learning_rate_0']
    """
    return is_persistable(var) and not isinstance(var, Parameter)


@checked
def get_program_parameter(program: Program) -> list[Variable]:
    """The parameters of a program.

    >>> y = layers.fc(fluid.data("x", [None, 2]), 1)
    >>> [var.name for var in fluid.io.get_program_parameter(fluid.default_main_program())]
    ['fc_0.w_0', 'fc_0.b_0']
    """
    return [var for var in program.list_vars() if is_parameter(var)]


@checked
def get_program_persistable_vars(program: Program) -> list[Variable]:
    """The variables of a program that `save_persistables` saves.

    >>> updates, pairs = fluid.optimizer.SGD(0.1).minimize(layers.mean(layers.fc(fluid.data("x", [None, 2]), 1)))
    >>> [var.name for var in fluid.io.get_program_persistable_vars(fluid.default_main_program())]
    ['fc_0.w_0', 'fc_0.b_0', 'learning_rate_0']
    """
    return [var for var in program.list_vars() if is_persistable(var)]


# ------------------------------------------------------------------------------------------ choice of variables and files
def chosen_variables(program: Program, names: Iterable[Variable | str] | None, predicate: Predicate | None) -> list[Variable]:
    """Variables to save or load, sorted by name."""
    if names is None:
        chosen = {var.name: var for var in program.list_vars() if (predicate or is_persistable)(var)}
    else:
        listed = [program.global_block().var(var) if isinstance(var, str) else var for var in names]
        chosen = {var.name: var for var in listed if predicate is None or predicate(var)}
    for var in chosen.values():
        if var.type not in (VarType.LOD_TENSOR, VarType.SELECTED_ROWS):
            raise ProgramError(f"{var.name!r} is a {var.type.name.lower()}; only tensors can be saved to files and loaded")
    return [chosen[name] for name in sorted(chosen)]


def _check_combined(chosen: Iterable[Variable], filename: FilePath) -> None:
    """Raise `ProgramError` if a variable cannot be stored in one file with others."""
    for var in chosen:
        if var.type is VarType.SELECTED_ROWS:
            raise ProgramError(f"{var.name!r} is selected_rows, which need a file of their own: {filename} holds tensors only")


def file_of(dirname: str, var: Variable) -> str:
    """The path of a variable's file."""
    return path_of(dirname, var.name)


def path_of(dirname: str, name: str) -> str:
    """The path of the file of this variable. The name may be of an untrusted program, so it must not lead out of the folder."""
    parts = name.replace("\\", "/").split("/")
    if os.path.isabs(name) or ":" in parts[0] or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise ProgramError(f"the variable {name!r} cannot have a file of its own in {dirname}; use one file, with filename=")
    return os.path.join(dirname, *parts)


def _check_inside(dirname: str, path: str) -> None:
    """Raise `ProgramError` if a link within the folder leads out of it."""
    root, folder = os.path.realpath(dirname), os.path.realpath(os.path.dirname(path))
    if os.path.commonpath([root, folder]) != root:
        raise ProgramError(f"{path} is not in {dirname} but, by way of a link, in {folder}; nothing is written there")


def value_of(scope: Any, var: Variable) -> tuple[Any, Lod]:
    """Read the array of a variable from the scope, and the offsets of its sequences."""
    holder = scope.find_var(var.name)
    tensor = holder.get_tensor() if holder is not None else None
    if tensor is None or tensor.array is None:
        raise ExecutionError(
            f"{var.name!r} ({var.describe()}) has no value in the scope; run the startup program, or load it, before it is saved"
        )
    return tensor.array if isinstance(tensor.array, SelectedRows) else np.asarray(tensor), tensor.lod()


def check_dense(where: str, name: str, value: Any) -> None:
    if isinstance(value, SelectedRows):
        raise ProgramError(f"{where}: {name!r} is selected_rows, which it cannot hold; save_persistables writes them to a folder")


def fit_to_variable(var: Variable, array: Any, where: str) -> Any:
    """Convert an array that differs only in the file's form of bfloat16; `FormatError` if the program declares another type."""
    shape = array.shape
    scalars = ((), (1,))
    alike = len(shape) == len(var.shape) and all(b < 0 or a == b for a, b in zip(shape, var.shape, strict=True))
    adapted = _as_declared(var, array) if not isinstance(array, SelectedRows) else array
    if (var.has_shape and not alike and not (shape in scalars and var.shape in scalars)) or (
        var.has_dtype and _type_of(adapted) is not var.dtype
    ):
        held = "bfloat16" if array.dtype == BFLOAT16 else array.dtype
        raise FormatError(
            f"{where}, variable {var.name!r}: the file holds {held}{list(shape)}, the program declares {var.describe()}"
        )
    return adapted


def divided_variables(program: Program) -> list[Variable]:
    """The variables that are divided among workers."""
    return [var for var in chosen_variables(program, None, is_persistable) if var.division is not None]


def part_of_worker(var: Variable, array: Any) -> Any:
    """The part of an array of a file that this worker holds: all, unless the variable is divided among workers."""
    division = var.division
    if division is None or array.shape != division.shape:
        return array
    return division.part(array, communicator().rank)


def refuse_divided(variables: Iterable[Variable], action: str) -> None:
    """Raise `ProgramError` if variables are divided among workers: `action`, of one worker, would save one part."""
    divided = [var for var in variables if var.division is not None]
    if divided:
        raise ProgramError(
            f"{action}: each worker holds a part of {divided[0].name}; fleet.save_checkpoint, called by all workers, joins the "
            "parts, and one process can load what it saves"
        )


def put_value(scope: Any, name: str, value: Any, lod: Lod, place: Any) -> None:
    """Store a value in the scope. On the CPU, the array itself is stored, which is a view of the file if that is large."""
    variable = scope.var(name)
    tensor = variable.get_tensor()
    if isinstance(value, SelectedRows):
        asarray = (place or CPUPlace()).asarray
        variable.put(SelectedRows(asarray(value.index), asarray(value.value), value.height()))
    elif isinstance(place or CPUPlace(), CPUPlace):
        tensor.array = value
    else:
        tensor.set(value, place)
    tensor.set_lod(lod)


def _type_of(array: Any) -> VarType | None:
    try:
        return as_dtype(array.dtype)
    except FluidTypeError:
        return None


def as_array(value: Any, where: str) -> Any:
    """Convert an item of a state to an array."""
    return value if isinstance(value, np.ndarray) else np.asarray(numeric_array(value, where))


def _as_declared(var: Variable, array: Any) -> Any:
    """Convert between bfloat16 and float32 as the program declares; pickles and archives store bfloat16 as uint16."""
    if not var.has_dtype:
        return array
    if array.dtype == BFLOAT16 and var.dtype is VarType.FP32:
        return to_float32(array)
    if var.dtype is VarType.BF16 and array.dtype == np.uint16:
        return np.ascontiguousarray(array).view(BFLOAT16).reshape(array.shape)
    if var.dtype is VarType.BF16 and array.dtype == np.float32 and not (array.view(np.uint32) & 0xFFFF).any():
        return to_bfloat16(array)
    return array


# ------------------------------------------------------------------------------------------------------------ variables
@checked
def save_vars(
    executor: Any,
    dirname: FilePath,
    main_program: Program | None = None,
    vars: Iterable[Variable | str] | None = None,
    predicate: Predicate | None = None,
    filename: FilePath | None = None,
) -> None:
    """Save variables of the current scope, each to a file of its name, or all to one file.

    Args:
        executor: not used; accepted as in Fluid.
        dirname: folder, created if missing.
        main_program: the program with the variables; the default main program if None.
        vars: the variables or their names; if None, all that `predicate` accepts.
        predicate: function of a `Variable` that returns whether to save it.
        filename: name of one file for all variables; if None, one file per variable.

    Raises:
        ExecutionError: a variable has no value in the scope.

    >>> y, exe = layers.fc(fluid.data("x", [None, 2]), 1), fluid.Executor()
    >>> _ = exe.run(fluid.default_startup_program())
    >>> fluid.io.save_vars(exe, "model", vars=["fc_0.w_0"])
    >>> os.listdir("model")
    ['fc_0.w_0']
    """
    dirname = os.fspath(dirname)
    chosen = chosen_variables(main_program or default_main_program(), vars, predicate)
    scope = global_scope()
    values = [value_of(scope, var) for var in chosen]  # before writing: nothing is written if one is missing
    if filename is not None:
        _check_combined(chosen, filename)
        with atomic_writer(os.path.join(dirname, filename)) as file:
            for array, lod in values:
                write_tensor(file, array, lod)
        return
    paths = [file_of(dirname, var) for var in chosen]
    for path in paths:
        _check_inside(dirname, path)
    with together():
        for path, (array, lod) in zip(paths, values, strict=True):
            with atomic_writer(path) as file:
                write_rows(file, array) if isinstance(array, SelectedRows) else write_tensor(file, array, lod)


@checked
def save_params(executor: Any, dirname: FilePath, main_program: Program | None = None, filename: FilePath | None = None) -> None:
    """Save the parameters of a program; errors as of `save_vars`.

    Args:
        executor, dirname, main_program, filename: see `save_vars`.

    >>> y, exe = layers.fc(fluid.data("x", [None, 2]), 1), fluid.Executor()
    >>> _ = exe.run(fluid.default_startup_program())
    >>> fluid.io.save_params(exe, "model")
    >>> sorted(os.listdir("model"))
    ['fc_0.b_0', 'fc_0.w_0']
    """
    save_vars(executor, dirname, main_program, predicate=is_parameter, filename=filename)


@checked
def save_persistables(
    executor: Any, dirname: FilePath, main_program: Program | None = None, filename: FilePath | None = None
) -> None:
    """Save all variables that persist: parameters, statistics, the state of optimizers; see `save_vars`.

    Args:
        executor, dirname, main_program, filename: see `save_vars`.

    >>> y, exe = fluid.layers.fc(fluid.data("x", [None, 2]), 1), fluid.Executor(fluid.CPUPlace())
    >>> _ = exe.run(fluid.default_startup_program())
    >>> fluid.io.save_persistables(exe, "model")
    >>> sorted(os.listdir("model"))
    ['fc_0.b_0', 'fc_0.w_0']
    """
    save_vars(executor, dirname, main_program, predicate=is_persistable, filename=filename)


@checked
def load_vars(
    executor: Any,
    dirname: FilePath,
    main_program: Program | None = None,
    vars: Iterable[Variable | str] | None = None,
    predicate: Predicate | None = None,
    filename: FilePath | None = None,
) -> None:
    """Load variables into the current scope, on the executor's place. The scope changes only if every variable can be read.

    Args:
        executor: the executor on whose place the variables are put.
        dirname: the folder.
        main_program, vars, predicate, filename: see `save_vars`.

    Raises:
        FormatError: a file is missing, damaged, or has other shapes or dtypes than the program declares.

    >>> y, exe = layers.fc(fluid.data("x", [None, 2]), 1), fluid.Executor()
    >>> _ = exe.run(fluid.default_startup_program())
    >>> fluid.io.save_vars(exe, "model", vars=["fc_0.w_0"])
    >>> fluid.io.load_vars(exe, "model", vars=["fc_0.w_0"])
    """
    dirname = os.fspath(dirname)
    chosen = chosen_variables(main_program or default_main_program(), vars, predicate)
    loaded: list[tuple[Variable, Any, Lod]] = []
    if filename is not None:
        path = os.path.join(dirname, filename)
        _check_combined(chosen, filename)
        if chosen:
            with open_tensors(path) as reader:
                for var in chosen:
                    array, lod = reader.read(var.name)
                    loaded.append((var, fit_to_variable(var, array, path), lod))
                reader.finish(len(chosen))
    else:
        for var in chosen:
            path = file_of(dirname, var)
            with open_tensors(path, f", variable {var.name!r} ({var.describe()})") as reader:
                sparse = var.type is VarType.SELECTED_ROWS
                array, lod = (reader.read_rows(var.name), []) if sparse else reader.read(var.name)
                reader.finish(1)
            loaded.append((var, fit_to_variable(var, array, path), lod))
    scope, place = global_scope(), getattr(executor, "place", None)
    for var, array, lod in loaded:
        put_value(scope, var.name, array, lod, place)


@checked
def load_params(executor: Any, dirname: FilePath, main_program: Program | None = None, filename: FilePath | None = None) -> None:
    """Load the parameters of a program; errors as of `load_vars`.

    Args:
        executor, dirname, main_program, filename: see `load_vars`.

    >>> y, exe = layers.fc(fluid.data("x", [None, 2]), 1), fluid.Executor()
    >>> _ = exe.run(fluid.default_startup_program())
    >>> fluid.io.save_params(exe, "model")
    >>> fluid.io.load_params(exe, "model")
    """
    load_vars(executor, dirname, main_program, predicate=is_parameter, filename=filename)


@checked
def load_persistables(
    executor: Any, dirname: FilePath, main_program: Program | None = None, filename: FilePath | None = None
) -> None:
    """Load all variables that persist; errors as of `load_vars`.

    Args:
        executor, dirname, main_program, filename: see `load_vars`.

    >>> y, exe = fluid.layers.fc(fluid.data("x", [None, 2]), 1), fluid.Executor(fluid.CPUPlace())
    >>> _ = exe.run(fluid.default_startup_program())
    >>> fluid.io.save_persistables(exe, "model", filename="parameters")
    >>> fluid.io.load_persistables(exe, "model", filename="parameters")
    """
    load_vars(executor, dirname, main_program, predicate=is_persistable, filename=filename)


@checked
def get_parameter_value(para: Parameter, executor: Any) -> Any:
    """A copy of a parameter's value in the current scope, as a numpy array; `para` is the parameter, `executor` is not used.

    >>> w = fluid.layers.create_parameter([2], "float32", default_initializer=fluid.initializer.Constant(0.5))
    >>> exe = fluid.Executor(fluid.CPUPlace())
    >>> _ = exe.run(fluid.default_startup_program())
    >>> fluid.io.get_parameter_value(w, exe)
    array([0.5, 0.5], dtype=float32)
    """
    return value_of(global_scope(), para)[0].copy()


@checked
def get_parameter_value_by_name(name: str, executor: Any, program: Program | None = None) -> Any:
    """A copy of the value of a parameter in the current scope, as a numpy array.

    Args:
        name: the parameter's name.
        executor: not used; accepted as in Fluid.
        program: the program with the parameter; the default main program if None.

    Raises:
        ProgramError: the variable is no parameter.
        ExecutionError: it has no value in the scope.

    >>> y, exe = layers.fc(fluid.data("x", [None, 2]), 1, bias_attr="b"), fluid.Executor()
    >>> _ = exe.run(fluid.default_startup_program())
    >>> fluid.io.get_parameter_value_by_name("b", exe)
    array([0.], dtype=float32)
    """
    var = (program or default_main_program()).global_block().var(name)
    if not isinstance(var, Parameter):
        raise ProgramError(f"{name!r} is not a parameter of the program")
    return get_parameter_value(var, executor)

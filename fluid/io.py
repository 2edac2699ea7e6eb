"""Saving and loading of parameters, whole programs and inference models, in Paddle's formats.

A folder holds one file per variable, or one file with all of them; an inference model is such a folder with a program,
``__model__``, whose own ops feed and fetch. Files are written whole or not at all, and the files of one save replace older ones
together (`fluid.formats.writing`). Values are checked against the file's real size and the program before the scope changes.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from .errors import ExecutionError, FluidTypeError, FormatError, NameNotFoundError, ProgramError
from .executor.runtime.scope import global_scope
from .formats.bfloat16 import to_bfloat16, to_float32
from .formats.commits import is_saved
from .formats.pickles import stamp_of, write_arrays
from .formats.program import parse_program, serialize_program
from .formats.state import check_together, read_state
from .formats.tensors import Lod, open_tensors, read_file, write_rows, write_tensor
from .formats.writing import atomic_writer, together, write_file
from .ir.checked import checked
from .ir.program import Parameter, Program, Variable, default_main_program
from .loading import transforms
from .loading.collation import collate, collate_padded, collate_sequences
from .loading.datasets import ConcatDataset, Dataset, IterableDataset, MappedDataset, Subset, TensorDataset, random_split
from .loading.samplers import BatchSampler, DistributedBatchSampler, RandomSampler, SequentialSampler
from .loading.worker_info import WorkerInfo, get_worker_info
from .not_here import names_here
from .opdef.registry import EMPTY
from .reader import *  # noqa: F403
from .reader import __all__ as _READERS
from .saving.parameter_info import note_what_is_trained
from .transform.pruning import prune
from .values.numeric import numeric_array
from .values.place import CPUPlace
from .values.selected_rows import SelectedRows
from .values.types import BFLOAT16, VarType, as_dtype

__all__ = [
    "get_parameter_value", "get_parameter_value_by_name", "get_program_parameter", "get_program_persistable_vars", "is_parameter",
    "is_persistable", "load", "load_inference_model", "load_params", "load_persistables", "load_program_state", "load_vars",
    "prune", "save", "save_inference_model", "save_params", "save_persistables", "save_vars", "set_program_state", *_READERS,
    "BatchSampler", "ConcatDataset", "Dataset", "DistributedBatchSampler", "IterableDataset", "MappedDataset", "RandomSampler",
    "SequentialSampler", "Subset", "TensorDataset", "WorkerInfo", "collate", "collate_padded", "collate_sequences",
    "get_worker_info", "random_split", "transforms",
]  # fmt: skip

__dir__ = names_here(__name__)

_MODEL = "__model__"
_FEED, _FETCH = "feed", "fetch"
_NOT_SAVED = frozenset({VarType.FEED_MINIBATCH, VarType.FETCH_LIST, VarType.READER, VarType.RAW, VarType.STEP_SCOPES})


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
    """Whether this variable keeps its value between runs and holds what a file can store.

    >>> x = fluid.data("x", [None, 2])
    >>> w = layers.create_parameter([2], "float32")
    >>> fluid.io.is_persistable(x), fluid.io.is_persistable(w)
    (False, True)
    """
    return var.persistable and var.type not in _NOT_SAVED


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


Predicate = Callable[[Variable], bool]
FilePath = str | os.PathLike[str]


# ------------------------------------------------------------------------------------------ choice of variables and files
def _chosen(program: Program, names: Iterable[Variable | str] | None, predicate: Predicate | None) -> list[Variable]:
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


def _file_of(dirname: str, var: Variable) -> str:
    """The path of a variable's file. The name may come from an untrusted program, so it must not lead out of the folder."""
    parts = var.name.replace("\\", "/").split("/")
    if os.path.isabs(var.name) or ":" in parts[0] or "\0" in var.name or any(part in ("", ".", "..") for part in parts):
        raise ProgramError(f"the variable {var.name!r} cannot have a file of its own in {dirname}; use one file, with filename=")
    return os.path.join(dirname, *parts)


def _check_inside(dirname: str, path: str) -> None:
    """Raise `ProgramError` if a link within the folder leads out of it."""
    root, folder = os.path.realpath(dirname), os.path.realpath(os.path.dirname(path))
    if os.path.commonpath([root, folder]) != root:
        raise ProgramError(f"{path} is not in {dirname} but, by way of a link, in {folder}; nothing is written there")


def _value(scope: Any, var: Variable) -> tuple[Any, Lod]:
    """Read the array of a variable from the scope, and the offsets of its sequences."""
    holder = scope.find_var(var.name)
    tensor = holder.get_tensor() if holder is not None else None
    if tensor is None or tensor.array is None:
        raise ExecutionError(
            f"{var.name!r} ({var.describe()}) has no value in the scope; run the startup program, or load it, before it is saved"
        )
    return tensor.array if isinstance(tensor.array, SelectedRows) else np.asarray(tensor), tensor.lod()


def _check_dense(where: str, name: str, value: Any) -> None:
    if isinstance(value, SelectedRows):
        raise ProgramError(f"{where}: {name!r} is selected_rows, which it cannot hold; save_persistables writes them to a folder")


def _fitting(var: Variable, array: Any, where: str) -> Any:
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


def _put(scope: Any, name: str, value: Any, lod: Lod, place: Any) -> None:
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


def _array_of(value: Any, where: str) -> Any:
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
    chosen = _chosen(main_program or default_main_program(), vars, predicate)
    scope = global_scope()
    values = [_value(scope, var) for var in chosen]  # before writing: nothing is written if one is missing
    if filename is not None:
        _check_combined(chosen, filename)
        with atomic_writer(os.path.join(dirname, filename)) as file:
            for array, lod in values:
                write_tensor(file, array, lod)
        return
    paths = [_file_of(dirname, var) for var in chosen]
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
    chosen = _chosen(main_program or default_main_program(), vars, predicate)
    loaded: list[tuple[Variable, Any, Lod]] = []
    if filename is not None:
        path = os.path.join(dirname, filename)
        _check_combined(chosen, filename)
        if chosen:
            with open_tensors(path) as reader:
                for var in chosen:
                    array, lod = reader.read(var.name)
                    loaded.append((var, _fitting(var, array, path), lod))
                reader.finish(len(chosen))
    else:
        for var in chosen:
            path = _file_of(dirname, var)
            with open_tensors(path, f", variable {var.name!r} ({var.describe()})") as reader:
                sparse = var.type is VarType.SELECTED_ROWS
                array, lod = (reader.read_rows(var.name), []) if sparse else reader.read(var.name)
                reader.finish(1)
            loaded.append((var, _fitting(var, array, path), lod))
    scope, place = global_scope(), getattr(executor, "place", None)
    for var, array, lod in loaded:
        _put(scope, var.name, array, lod, place)


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


# -------------------------------------------------------------------------------------------------------- whole programs
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
    chosen = _chosen(program, None, is_persistable)
    values = {var: _value(scope, var)[0] for var in chosen}
    for var, array in values.items():
        _check_dense(model_path + _STATE, var.name, array)
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
    _set_state(program, load_program_state(model_path), model_path, getattr(executor, "place", None), complete=True)


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
    unused = _set_state(program, state_dict, "the state", None, complete=False)
    if unused:
        text = ", ".join(unused[:10]) + (", ..." if len(unused) > 10 else "")
        warnings.warn(f"set_program_state: the program keeps nothing under these {len(unused)} names: {text}", stacklevel=2)


@checked
def get_parameter_value(para: Parameter, executor: Any) -> Any:
    """A copy of a parameter's value in the current scope, as a numpy array; `para` is the parameter, `executor` is not used.

    >>> w = fluid.layers.create_parameter([2], "float32", default_initializer=fluid.initializer.Constant(0.5))
    >>> exe = fluid.Executor(fluid.CPUPlace())
    >>> _ = exe.run(fluid.default_startup_program())
    >>> fluid.io.get_parameter_value(w, exe)
    array([0.5, 0.5], dtype=float32)
    """
    return _value(global_scope(), para)[0].copy()


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


def _check_prefix(model_path: str) -> None:
    if not os.path.basename(model_path):
        raise ProgramError(f"{model_path!r} names a folder; give the start of the files' names too, such as '{model_path}model'")


def _set_state(program: Program, state: Mapping[str, Any], where: str, place: Any, complete: bool) -> list[str]:
    """Put arrays into the scope after checking them all; returns the names that no persistable variable has."""
    variables = {var.name: var for var in _chosen(program, None, is_persistable)}
    missing = [name for name in variables if name not in state]
    if complete and missing:
        var = variables[missing[0]]
        suffix = _PARAMETERS if is_parameter(var) else _STATE
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise FormatError(
            f"{where}{suffix}: there is no {var.name!r} ({var.describe()}){more}; was it saved for another program?"
        )
    arrays = {name: _array_of(state[name], f"{where}, variable {name!r}") for name in variables if name in state}
    arrays = {name: _fitting(variables[name], array, where) for name, array in arrays.items()}
    scope = global_scope()
    for name, array in arrays.items():
        scope.var(name).get_tensor().set(array, place)
    return [name for name in state if name not in variables]


# ---------------------------------------------------------------------------------------------------- inference models
@checked
def save_inference_model(
    dirname: FilePath,
    feeded_var_names: str | Iterable[str],
    target_vars: Variable | str | Iterable[Variable | str],
    executor: Any,
    main_program: Any = None,
    model_filename: FilePath | None = None,
    params_filename: FilePath | None = None,
    export_for_deployment: bool = True,
    program_only: bool = False,
) -> list[str]:
    """Save the part of a program that computes targets from fed variables, in test mode, and its parameters.

    Args:
        dirname: folder, created if missing.
        feeded_var_names: names of the variables to be fed.
        target_vars: the variables to compute, or their names.
        executor: as of `save_vars`.
        main_program: a Program or CompiledProgram; the default main program if None.
        model_filename: name of the program's file; ``__model__`` if None.
        params_filename: name of one file for all parameters; if None, one file per parameter.
        export_for_deployment: False saves the whole program, unchanged, to ``<model_filename>.main_program``.
        program_only: save no parameters.

    Returns:
        Names of the targets.

    >>> y, exe = fluid.layers.fc(fluid.data("x", [None, 2]), 1), fluid.Executor(fluid.CPUPlace())
    >>> _ = exe.run(fluid.default_startup_program())
    >>> fluid.io.save_inference_model("model", ["x"], [y], exe)
    ['fc_0.tmp_1']

    Raises:
        ProgramError: the targets need a variable that is neither fed, computed nor persistable.
    """
    feeds = [feeded_var_names] if isinstance(feeded_var_names, str) else list(feeded_var_names)
    if isinstance(target_vars, (str, Variable)):
        target_vars = [target_vars]
    targets = [target if isinstance(target, str) else target.name for target in target_vars]
    if not targets and export_for_deployment:
        raise ProgramError("save_inference_model needs at least one target variable")
    program = default_main_program() if main_program is None else getattr(main_program, "program", main_program)
    if not isinstance(program, Program):
        raise FluidTypeError(f"save_inference_model: main_program should be a Program, not {type(program).__name__}")
    path = os.path.join(dirname, os.path.basename(model_filename) if model_filename else _MODEL)
    if export_for_deployment:
        program = _inference_program(program, feeds, targets)
    else:
        path += ".main_program"
    data = serialize_program(program)
    with together():
        if not program_only:
            save_persistables(executor, dirname, program, os.path.basename(params_filename) if params_filename else None)
        write_file(path, [data])  # last: where the program is, its parameters are complete
    return targets


def _inference_program(program: Program, feeds: list[str], targets: list[str]) -> Program:
    if len(set(feeds)) < len(feeds):
        raise ProgramError(f"a variable is to be fed twice: {', '.join(feeds)}")
    test = program.clone(for_test=True)
    root = test.global_block()
    for name in (*feeds, *targets):
        if name not in root.vars:
            original = program.global_block().vars.get(name)
            if original is None:
                root.var(name)  # its error suggests similar names
                raise NameNotFoundError(f"no variable {name!r} is in block 0")
            var = Variable(
                root, name=name, type=original.type, lod_level=original.lod_level, stop_gradient=original.stop_gradient
            )
            var._shape, var._dtype = original._shape, original._dtype
            root.vars[name] = var
    root.ops = [op for op in root.ops if op.type not in (_FEED, _FETCH)]
    pruned = prune(test, targets, feeds)
    _check_complete(pruned, feeds, targets)
    for block in pruned.blocks:
        for op in block.ops:
            op.attrs.pop("op_callstack", None)  # paths of the machine that built the program
    root = pruned.global_block()
    for name in (_FEED, _FETCH):
        root.vars.pop(name, None)
    feed = root.create_var(name=_FEED, type=VarType.FEED_MINIBATCH, persistable=True)
    fetch = root.create_var(name=_FETCH, type=VarType.FETCH_LIST, persistable=True)
    for column, name in enumerate(feeds):
        root.insert_op(column, _FEED, inputs={"X": [feed]}, outputs={"Out": [name]}, attrs={"col": column}, frames=())
    for column, name in enumerate(targets):
        root.append_op(_FETCH, inputs={"X": [name]}, outputs={"Out": [fetch]}, attrs={"col": column}, frames=())
    return pruned


def _check_complete(program: Program, feeds: list[str], targets: list[str]) -> None:
    outputs = {name for block in program.blocks for op in block.ops for name in op.output_arg_names}
    # A recurrence itself writes the states that it passes from step to step.
    outputs |= {name for block in program.blocks for op in block.ops for name in op.attrs.get("ex_states", ())}
    for block in program.blocks:
        for op in block.ops:
            for name in op.input_arg_names:
                var = block.find_var(name)
                if name != EMPTY and name not in outputs and name not in feeds and not (var is not None and var.persistable):
                    raise ProgramError(
                        f"the targets {', '.join(targets)} need {name!r}, which is neither fed, computed nor persistable: "
                        f"add it to feeded_var_names ({', '.join(feeds) or 'empty'})\n  read by: {op}"
                    )
    root = program.global_block()
    for name in targets:
        if name not in outputs and name not in feeds and not root.var(name).persistable:
            raise ProgramError(f"the target {name!r} is neither fed, computed nor persistable")


@checked
def load_inference_model(
    dirname: FilePath,
    executor: Any,
    model_filename: FilePath | None = None,
    params_filename: FilePath | None = None,
    pserver_endpoints: Any = None,
) -> list[Any]:
    """Load a model saved by `save_inference_model` or Paddle, and its parameters into the current scope.

    Args:
        dirname: its folder; or, without file names, the common start of ``<path>.pdmodel`` and ``<path>.pdiparams``.
        executor: the executor on whose place parameters are put.
        model_filename: name of the program's file; ``__model__`` if None.
        params_filename: name of the one file of all parameters; if None, one file per parameter.
        pserver_endpoints: not used; there are no parameter servers.

    Returns:
        ``[program, feed_names, fetch_vars]``, in the order of the program's feeds and fetches.

    >>> y, exe = fluid.layers.fc(fluid.data("x", [None, 2]), 1, act="softmax"), fluid.Executor(fluid.CPUPlace())
    >>> _ = exe.run(fluid.default_startup_program())
    >>> _ = fluid.io.save_inference_model("model", ["x"], [y], exe)
    >>> program, feeds, fetches = fluid.io.load_inference_model("model", exe)
    >>> exe.run(program, {feeds[0]: np.ones([3, 2], "float32")}, fetches)[0].tolist()
    [[1.0], [1.0], [1.0]]

    Raises:
        FormatError: a file is missing or damaged, or the program lacks feed and fetch ops.
    """
    dirname = os.fspath(dirname)
    if model_filename is None and params_filename is None and is_saved(dirname + ".pdmodel"):
        dirname, prefix = os.path.split(dirname)
        model_filename, params_filename = prefix + ".pdmodel", prefix + ".pdiparams"
    path = os.path.join(dirname, os.path.basename(model_filename) if model_filename else _MODEL)
    data = read_file(path)
    try:
        program = parse_program(data)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None
    feeds = _columns(path, program, _FEED, "outputs", "Out")
    fetches = _columns(path, program, _FETCH, "inputs", "X")
    if not fetches:
        raise FormatError(f"{path}: the program fetches nothing, so it is not an inference model; use Program.parse_from_string")
    load_persistables(executor, dirname, program, os.path.basename(params_filename) if params_filename else None)
    if params_filename:
        note_what_is_trained(program, os.path.join(dirname, os.path.basename(params_filename)))
    root = program.global_block()
    return [program, feeds, [root.var(name) for name in fetches]]


def _columns(path: str, program: Program, op_type: str, side: str, slot: str) -> list[str]:
    """Names that feed or fetch ops copy, in the order of their columns."""
    root = program.global_block()
    by_column: dict[int, str] = {}
    for position, op in enumerate(root.ops):
        if op.type != op_type:
            continue
        names, column = getattr(op, side).get(slot, []), op.attrs.get("col", 0)
        where = f"{path}: block 0, op {position} ({op_type})"
        if len(names) != 1 or names[0] not in root.vars:
            raise FormatError(f"{where}: its slot {slot} should name one variable of the block, not {names}")
        if not isinstance(column, int) or column in by_column:
            raise FormatError(f"{where}: its column is {column!r}, which should be a number that no other {op_type} has")
        by_column[column] = names[0]
    return [by_column[column] for column in sorted(by_column)]

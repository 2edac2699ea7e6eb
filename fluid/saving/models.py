"""Loads models from files of any known format, and saves them.

========================  ==================================================================================
``model/``                a folder with ``__model__`` and one file per parameter, or one file ``params``
``net.pdmodel``           a program, with ``net.pdiparams`` or ``net.pdparams`` beside it
``net.json``              a program of Paddle 3, with ``net.pdiparams``, or ``net.pdparams`` and ``net.pdopt``, beside it
``net``                   the common start of such names
``net.txt``               the program as text (see `fluid.formats.text`), with the same files beside it
any ``ProgramDesc``       ``main.pb``, ``__model__``, ``train.main_program``, ...
``net.onnx``              an ONNX model, with its weights; needs ``pip install ".[onnx]"``
``net.pdparams``          parameters alone, as pickles (no code in them is run)
``net.npz``               parameters alone, as numpy's archives (nothing in them is unpickled)
``net.safetensors``       parameters alone
========================  ==================================================================================

The first bytes of a file tell its format; its name matters only for writing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ..errors import ExecutionError, FluidError, FormatError, NameNotFoundError, ProgramError, did_you_mean
from ..executor.runtime.scope import Scope, global_scope, scope_guard
from ..formats.commits import current, is_saved, names_in
from ..formats.foreign import foreign_file
from ..formats.pir.files import pir_bytes
from ..formats.program import serialize_program
from ..formats.table import ARRAYS, FORMATS, MESSAGE, ONNX, PROGRAMS, TEXT, UNNAMED, Format, format_of, head_of
from ..formats.writing import together, write_file
from ..ir.checked import checked
from ..ir.program import Program, Variable, default_main_program
from ..transform.op_versions import convert
from ..values.unchanging import unchanging
from .inference_models import columns_of, inference_program
from .parameter_info import note_what_is_trained
from .program_state import load_program_state, set_state
from .variables import as_array, check_dense, file_of, is_persistable, load_persistables, save_persistables

__all__ = ["Model", "load_model", "read_arrays", "save_arrays", "save_model"]

_PROGRAM_FILES = ("__model__",)
_PARAMETER_FILES = ("__params__", "params", "__variables__")
_NO_ARRAYS = "is not a file of arrays by name: no .npz, .safetensors or .pdparams"


@dataclass
class Model:
    """The result of `load_model`.

    Attributes:
        path: the file or folder.
        format: ``folder``, ``pdmodel``, ``program``, ``pir``, ``text``, ``onnx``, ``pdparams``, ``npz`` or ``safetensors``.
        program: the program, or None if the file holds only parameters.
        feeds: names of the variables to be fed, in order.
        fetches: the variables that it computes, in order; empty if the program does not tell.
        parameters: names of the variables whose values were put into the scope.
        missing: persistable variables of the program that no file holds.
        dimensions: of each feed of an ONNX model, the sizes of its dimensions, or their names where a run tells the sizes.
        scope: the scope with the values.

    >>> y = layers.fc(fluid.data("x", [None, 2]), 1)
    >>> _ = fluid.Executor().run(fluid.default_startup_program())
    >>> _ = fluid.save_model("model.pdmodel", feeds=["x"], fetches=[y])
    >>> model = fluid.load_model("model.pdmodel")
    >>> model.format, model.feeds
    ('pdmodel', ['x'])
    """

    path: str
    format: str
    program: Program | None
    feeds: list[str]
    fetches: list[Variable]
    parameters: list[str]
    scope: Scope
    missing: list[str] = field(default_factory=list)
    dimensions: dict[str, list[int | str | None]] = field(default_factory=dict)

    def value(self, name: str) -> Any:
        """A parameter as a numpy array; `NameNotFoundError` if it has no value."""
        value = self.scope.array(name)
        if value is None:
            raise NameNotFoundError(f"{self.path}: there is no value of {name!r}{did_you_mean(name, self.parameters)}")
        return np.asarray(value)

    def values(self) -> dict[str, Any]:
        """All parameters as numpy arrays by name."""
        return {name: self.value(name) for name in self.parameters}


# ------------------------------------------------------------------------------------------------------------- reading
@checked
def load_model(
    path: str | os.PathLike[str],
    *,
    params: str | os.PathLike[str] | None = None,
    scope: Scope | None = None,
    allow: Iterable[str] = (),
    sizes: Mapping[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> Model:
    """Load a model, or only parameters; the module's docstring lists the formats.

    Args:
        path: a file, a folder, or the common start of two files' names.
        params: the file or folder of the parameters, if it is not beside the program under one of the usual names.
        scope: the scope for the parameters; the current scope if None.
        allow: types of ops that may run although they touch files or run code
            (`fluid.executor.stepwise.unsupported.REACHES_OUT`).
        sizes: feed -> its shape, None for sizes that stay open; of an ONNX model also name of a dimension -> size. What the
            program computes from sizes is computed now, and branches are decided (see `Program.with_sizes`).
        constants: feed -> its value; it is not fed then. What decides how many dimensions a value has, such as the axes of a
            sum, must be known when the program of an ONNX model is built; the model may have it as an input.

    Raises:
        FormatError: a file is missing, damaged or not a model, or the parameters belong to another program; names the file,
            the place in it, and the expected content. Then the scope does not change.
        InferenceError: sizes do not fit the model.
        NameNotFoundError: the model has no feed, and no dimension, of a name in `sizes` or `constants`.

    >>> x = fluid.data("x", [None, 2])
    >>> y = layers.fc(x, 1, param_attr=fluid.initializer.Constant(0.5))
    >>> exe = fluid.Executor()
    >>> _ = exe.run(fluid.default_startup_program())
    >>> _ = fluid.save_model("model.pdmodel", feeds=[x], fetches=[y])
    >>> model = fluid.load_model("model.pdmodel", scope=fluid.Scope())
    >>> exe.run(model.program, {model.feeds[0]: np.ones([1, 2], "float32")}, model.fetches, scope=model.scope)
    [array([[1.]], dtype=float32)]
    """
    where = os.fspath(path)
    scope = scope if scope is not None else global_scope()
    file = _file_meant(where)
    head, size = head_of(file, "model")
    if foreign := foreign_file(file, head):
        raise FormatError(foreign)
    form = format_of(FORMATS, head, size)
    if form is None:  # the reader of programs reports the fault of an unknown format
        form = ONNX if file.endswith(".onnx") else MESSAGE
    parameters = os.fspath(params) if params is not None else None
    source = _Source(where, file, parameters, scope, frozenset(allow), sizes or {}, constants or {})
    return _LOADERS[form.name](source)


@dataclass(frozen=True)
class _Source:
    """The arguments of `load_model`, and the `file` that `path` names."""

    path: str
    file: str
    params: str | None
    scope: Scope
    allow: frozenset[str]
    sizes: Mapping[str, Any]
    constants: Mapping[str, Any]


def _load_arrays(source: _Source, form: Format[dict[str, Any]]) -> Model:
    if source.params is not None or source.sizes or source.constants:
        raise ProgramError(f"{source.path} holds parameters alone; params=, sizes= and constants= go with a program")
    arrays = _read_arrays(source.file, form)
    for name, array in arrays.items():
        source.scope.put(name, array)
    return Model(source.path, form.name, None, [], [], list(arrays), source.scope)


def _load_onnx(source: _Source) -> Model:
    if source.params is not None:
        raise ProgramError(f"{source.path} is an ONNX model, which holds its weights; params= goes with other programs")
    from ..onnx.importing import import_model

    constants = {name: None if value is None else np.asarray(value) for name, value in source.constants.items()}
    loaded = import_model(source.file, constants, source.sizes)
    for name, value in loaded.values.items():
        source.scope.put(name, value)
    root = loaded.program.global_block()
    fetches = [root.var(name) for name in loaded.fetches]
    names = list(loaded.values)
    return Model(source.path, ONNX.name, loaded.program, loaded.feeds, fetches, names, source.scope, [], loaded.dimensions)


def _refuse_unnamed(source: _Source) -> Model:
    raise FormatError(_why_unnamed(source.file))


def _load_program(source: _Source, form: Format[Program]) -> Model:
    program = _read_program(source.file, form)
    program.allowed_ops = source.allow
    feeds, fetches = _feeds_and_fetches(source.file, program)
    loaded, missing = _load_parameters(program, source.file, source.params, source.scope)
    if source.sizes or source.constants:
        program = program.with_sizes(source.sizes, source.constants, source.scope)
        feeds = [name for name in feeds if name not in source.constants]
        fetches = [program.global_block().var(var.name) for var in fetches]
    name = "folder" if os.path.isdir(source.path) else "pdmodel" if source.file.endswith(".pdmodel") else form.name
    return Model(source.path, name, program, feeds, fetches, loaded, source.scope, missing)


_LOADERS: dict[str, Callable[[_Source], Model]] = {
    ONNX.name: _load_onnx,
    UNNAMED.name: _refuse_unnamed,
    **{form.name: partial(_load_arrays, form=form) for form in ARRAYS},
    **{form.name: partial(_load_program, form=form) for form in PROGRAMS},
}
"""Name of a row of `fluid.formats.table` -> function that loads a model from such a file."""


def _file_meant(path: str) -> str:
    """The file that a path stands for: itself, the program in a folder, or the path with an extension."""
    if os.path.isdir(path):
        names = names_in(path)
        programs = [name for name in names if name in _PROGRAM_FILES] or [
            name for name in names if name.endswith((".pdmodel", ".json"))
        ]
        if len(programs) > 1:  # beside a model of Paddle 3 there may be other JSON
            with_parameters = [name for name in programs if os.path.splitext(name)[0] + ".pdiparams" in names]
            programs = with_parameters if len(with_parameters) == 1 else programs
        if len(programs) == 1:
            return os.path.join(path, programs[0])
        if programs:
            raise FormatError(f"{path}: the folder holds several programs, {', '.join(programs)}: name one")
        held = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise FormatError(f"{path}: the folder holds no __model__, {f'only {held}' if held else 'it is empty'}")
    if not os.path.exists(current(path)):
        for suffix in (".pdmodel", ".json", ".onnx", ".pdparams", ".txt", ".npz", ".safetensors"):
            if is_saved(path + suffix):
                return path + suffix
    return path


def _why_unnamed(path: str) -> str:
    """The message for a file of parameters without names where a model is expected, with advice."""
    stem = os.path.splitext(path)[0]
    for program_path in (stem + ".pdmodel", os.path.join(os.path.dirname(path), "__model__")):
        if is_saved(program_path):
            return f"{path} holds parameters without their names; load the program, {program_path}, with params={path!r}"
    return f"{path} holds parameters without their names, which only the program that they are of knows"


def _read_program(file: str, form: Format[Program]) -> Program:
    try:
        return form.read(file)
    except FormatError as error:
        raise error if str(error).startswith(file) else FormatError(f"{file}: {error}") from None


def _feeds_and_fetches(file: str, program: Program) -> tuple[list[str], list[Variable]]:
    """The feeds and fetches of a program: from its feed and fetch ops; without feed ops, its data."""
    root = program.global_block()
    feeds = columns_of(file, program, "feed", "outputs", "Out")
    fetches = columns_of(file, program, "fetch", "inputs", "X")
    return feeds or [name for name, var in root.vars.items() if var.is_data], [root.var(name) for name in fetches]


def _load_parameters(program: Program, file: str, params: str | None, scope: Scope) -> tuple[list[str], list[str]]:
    """Put the parameters of a program into the scope; returns their names, and the names that no file has."""
    wanted = [var for var in program.list_vars() if is_persistable(var)]
    names = sorted({var.name for var in wanted})
    if not names:
        return [], []
    folder, base = os.path.split(file)
    stem = os.path.splitext(file)[0]
    loaded = Scope()  # all or nothing
    with scope_guard(loaded):
        if params is None:
            beside = [stem + ".pdiparams", stem + ".pdparams", stem + ".npz", stem + ".safetensors"]
            if base in _PROGRAM_FILES:
                beside += [os.path.join(folder, name) for name in _PARAMETER_FILES]
            params = next((name for name in beside if is_saved(name)), None)
            if params is None:
                if not any(is_saved(file_of(folder, var)) for var in wanted if _has_file_name(folder, var)):
                    return [], names
                params = folder
        if os.path.isdir(params):
            load_persistables(None, params, program)
        elif params.endswith(".pdiparams") or not (head := head_of(params, "file"))[0] or UNNAMED.matches(*head):
            load_persistables(None, os.path.dirname(params), program, os.path.basename(params))
            note_what_is_trained(program, params)
        else:
            state = read_arrays(params)
            if not state.keys() & set(names):
                raise FormatError(f"{params} holds nothing of the program {file}: it has {few(state)}, not {few(names)}")
            set_state(program, state, params, None, complete=False)
    present = [name for name in names if loaded.array(name) is not None]
    for name in present:
        source = loaded.find_var(name)
        assert source is not None
        tensor = scope.var(name).get_tensor()
        array = source.get_tensor().array
        tensor.array = unchanging(array) if type(array) is np.ndarray and array.flags.c_contiguous else array
        tensor.set_lod(source.get_tensor().lod())
    return present, [name for name in names if name not in set(present)]


def _has_file_name(folder: str, var: Variable) -> bool:
    try:
        file_of(folder, var)
    except ProgramError:
        return False
    return True


def few(names: Iterable[str]) -> str:
    """The first three of some names, for a message."""
    listed = list(names)
    return ", ".join(listed[:3]) + (", ..." if len(listed) > 3 else "") if listed else "nothing"


# ------------------------------------------------------------------------------------------------------- arrays by name
@checked
def read_arrays(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The arrays by name in an npz archive, a safetensors file, or ``.pdparams`` together with ``.pdopt`` beside it, if any.

    >>> fluid.model_io.save_arrays("weights.npz", {"w": np.ones([2], "float32")})
    >>> fluid.model_io.read_arrays("weights.npz")
    {'w': array([1., 1.], dtype=float32)}
    """
    where = os.fspath(path)
    if os.path.isdir(where):
        raise FormatError(f"{where} is a folder; arrays by name are in one file, .npz, .safetensors or .pdparams")
    file = _file_meant(where)
    head, size = head_of(file, "file")
    form = format_of(ARRAYS, head, size)
    if form is None:
        if UNNAMED.matches(head, size):
            raise FormatError(_why_unnamed(file))
        is_program = format_of(PROGRAMS, head, size) is not None or file.endswith(".pdmodel")
        raise FormatError(f"{where} {'holds a program, not arrays by name' if is_program else _NO_ARRAYS}")
    return _read_arrays(file, form)


def _read_arrays(file: str, form: Format[dict[str, Any]]) -> dict[str, Any]:
    return load_program_state(file) if file.endswith((".pdparams", ".pdopt")) else form.read(file)


@checked
def save_arrays(path: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Write `arrays` by name to `path`, in the format of its extension: ``.npz``, ``.safetensors`` or ``.pdparams``.

    >>> fluid.model_io.save_arrays("weights.npz", {"w": np.ones([2], "float32")})
    """
    where = os.fspath(path)
    arrays = {name: as_array(array, f"{where}: {name!r}") for name, array in arrays.items()}
    form = next((form for form in ARRAYS if where.endswith("." + form.name)), None)
    if form is None:
        raise FluidError(f"{where}: arrays are written to names that end in .npz, .safetensors or .pdparams")
    form.write(where, arrays)


# ------------------------------------------------------------------------------------------------------------- writing
@checked
def save_model(
    path: str | os.PathLike[str],
    program: Program | None = None,
    feeds: str | Variable | Iterable[str | Variable] | None = None,
    fetches: str | Variable | Iterable[str | Variable] | None = None,
    *,
    scope: Scope | None = None,
    target: str | None = None,
    opset: int | None = None,
    external_data: bool | None = None,
) -> list[str]:
    """Save a model in the format of the path's extension.

    ``.pdmodel`` writes the program, and ``.pdiparams`` beside it; ``.json`` the same for Paddle 3; ``.txt`` the program's text;
    ``.npz``, ``.safetensors`` and ``.pdparams`` only the parameters; ``.onnx`` an ONNX model (docs/model_files.md says how a
    training program is one; needs ``pip install ".[onnx]"``); any other path is a folder with ``__model__`` and one file
    per parameter. All files are written before the first replaces an older one, the program last (`fluid.formats.writing`).

    Args:
        path: the file or folder.
        program: the program; the default main program if None.
        feeds, fetches: the variables that an inference model is fed and computes: the program is pruned to these and put into
            test mode. None saves the whole program, training part included.
        scope: the scope with the values; the current scope if None.
        target: ``"paddle-1.6"``, ``"paddle-2.6"`` or ``"paddle-3"``, which ``.json`` implies: write ops that this version has
            (see ``docs/model_files.md``). For 2.6, ops also get all attributes that Paddle needs to build on them, so that its
            ``append_backward`` works on a forward program from here.
        opset: of ``.onnx``: the version of ONNX's ops, from 13 on; 18 if None.
        external_data: of ``.onnx``: whether arrays go into a file beside the model; if None, where they exceed 2 GB.

    Returns:
        The files written, or the folder.

    Raises:
        ProgramError: the program has ops that `target`, or ONNX, lacks, all of them listed; the ending and `target` contradict
            each other; a fetch needs a variable that is not fed; or the path has the ending of an unknown format, and is no
            folder that exists.
        ExecutionError: a variable has no value in the scope.

    >>> x = fluid.data("x", [None, 2])
    >>> y = layers.fc(x, 1)
    >>> _ = fluid.Executor().run(fluid.default_startup_program())
    >>> fluid.save_model("model.pdmodel", feeds=[x], fetches=[y])
    ['model.pdmodel', 'model.pdiparams']
    """
    where = os.fspath(path)
    if not where:
        raise ProgramError("save_model: the path is empty; give that of a file, or of a folder")
    program = program if program is not None else default_main_program()
    scope = scope if scope is not None else global_scope()
    if fetches is not None:
        program = inference_program(program, _names(feeds), _names(fetches))
    elif feeds is not None:
        raise ProgramError("save_model: feeds without fetches; say what the model computes from them")
    ending = os.path.splitext(where)[1][1:]
    if ending == "json" and target is None:
        target = "paddle-3"
    if (ending == "json") != (target == "paddle-3"):
        raise ProgramError(f"{where}: programs for Paddle 3 have names that end in .json, those for other versions have not")
    if target is not None:
        program = convert(program, target).program
    if ending != "onnx" and (opset is not None or external_data is not None):
        raise ProgramError(f"save_model: opset and external_data are of .onnx files, and the path is {where!r}")
    with scope_guard(scope):
        if ending == "onnx":
            from ..onnx.writing import write_model

            return write_model(where, program, lambda name: _value(scope, name, where), opset, external_data)
        return _SAVERS.get(ending, _save_folder)(where, program, scope)


def _save_arrays(path: str, program: Program, scope: Scope) -> list[str]:
    names = sorted({var.name for var in program.list_vars() if is_persistable(var)})
    save_arrays(path, {name: _value(scope, name, path) for name in names})
    return [path]


def _save_text(path: str, program: Program, scope: Scope) -> list[str]:
    TEXT.write(path, program)
    return [path]


def _save_program(path: str, program: Program, scope: Scope, serialize: Callable[[Program], bytes]) -> list[str]:
    """Write a program, and its parameters to a file beside it."""
    data = serialize(program)  # before anything is written: it may fail
    params = os.path.splitext(path)[0] + ".pdiparams"
    folder, name = os.path.split(params)
    with together():
        save_persistables(None, folder, program, name)
        write_file(path, [data])
    return [path, params]


def _save_folder(path: str, program: Program, scope: Scope) -> list[str]:
    _check_is_folder(path, os.path.splitext(path)[1][1:])
    data = serialize_program(program)
    with together():
        save_persistables(None, path, program)
        write_file(os.path.join(path, "__model__"), [data])
    return [path]


_SAVERS: dict[str, Callable[[str, Program, Scope], list[str]]] = {
    **{form.name: _save_arrays for form in ARRAYS},
    "txt": _save_text,
    "pdmodel": partial(_save_program, serialize=serialize_program),
    "json": partial(_save_program, serialize=pir_bytes),
}
"""Extension of a path -> function that saves a model there, in the current scope; other paths are folders."""


def _check_is_folder(path: str, ending: str) -> None:
    """Raise `ProgramError` if a path looks like a file of another format, and not like a folder."""
    if ending[:1].isalpha() and not os.path.isdir(path):
        raise ProgramError(
            f"save_model: {path}: .{ending} is none of the formats that are written, which are .pdmodel, .json, .onnx, .txt, "
            ".npz, .safetensors and .pdparams; a path without such an ending is a folder. To save into a folder of this name, "
            "make it first"
        )


def _names(items: str | Variable | Iterable[str | Variable] | None) -> list[str]:
    if items is None:
        return []
    listed = [items] if isinstance(items, (str, Variable)) else items
    return [item if isinstance(item, str) else item.name for item in listed]


def _value(scope: Scope, name: str, where: str) -> Any:
    value = scope.array(name)
    if value is None:
        raise ExecutionError(f"{name!r} has no value in the scope; run the startup program, or load it, before it is saved")
    check_dense(where, name, value)
    return np.asarray(value)

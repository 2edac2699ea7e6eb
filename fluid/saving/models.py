"""Models in whatever files they come: one function that reads, one that writes.

========================  ==================================================================================
``model/``                a folder with ``__model__`` and a file a parameter, or one file ``params``
``net.pdmodel``           a program, with ``net.pdiparams`` or ``net.pdparams`` beside it
``net``                   the common start of such names
``net.txt``               the program as text (see `fluid.formats.text`), with the same files beside it
any ``ProgramDesc``       ``main.pb``, ``__model__``, ``train.main_program``, ...
``net.pdparams``          parameters alone, as pickles (no code in them is run)
``net.npz``               parameters alone, as numpy's archives (nothing in them is unpickled)
``net.safetensors``       parameters alone; needs ``pip install fluid-graph[safetensors]``
========================  ==================================================================================

What a file is, its first bytes say; names decide only what is written.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import io
from ..errors import ExecutionError, FluidError, FormatError, NameNotFoundError, ProgramError, did_you_mean
from ..executor.scope import Scope, global_scope, scope_guard
from ..formats.bfloat16 import BFLOAT16, as_bits, to_float32
from ..formats.pickles import check_numbers, not_numbers, write_arrays
from ..formats.program import parse_program, serialize_program
from ..formats.tensors import read_file
from ..formats.text import parse_program_text
from ..formats.writing import atomic_writer, reason, together, write_file
from ..ir.checked import checked
from ..ir.program import Program, Variable, default_main_program
from ..ir.verify import self_owning
from ..transform.op_versions import convert

__all__ = ["Model", "load_model", "read_arrays", "save_arrays", "save_model"]

_PROGRAM_FILES = ("__model__",)
_PARAMETER_FILES = ("__params__", "params", "__variables__")
_ARRAY_FORMATS = ("npz", "safetensors", "pdparams")
_ARCHIVE = (b"PK\x03\x04", b"PK\x05\x06")
_ROOM = 64 << 20
"""What is unpacked may be ten times as large as the file, and so many bytes more."""


@dataclass
class Model:
    """What `load_model` has found.

    Attributes:
        path: the file or folder.
        format: ``folder``, ``pdmodel``, ``program``, ``text``, ``pdparams``, ``npz`` or ``safetensors``.
        program: the program, or None where the file holds parameters alone.
        feeds: names of the variables to be fed, in order.
        fetches: the variables that it computes, in order; empty where the program does not say.
        parameters: names whose values were put into the scope.
        missing: persistable variables of the program that no file holds.
        scope: where the values are.
    """

    path: str
    format: str
    program: Program | None
    feeds: list[str]
    fetches: list[Variable]
    parameters: list[str]
    scope: Scope
    missing: list[str] = field(default_factory=list)

    def value(self, name: str) -> Any:
        """A parameter as a numpy array."""
        found = self.scope.array(name)
        if found is None:
            raise NameNotFoundError(f"{self.path}: there is no value of {name!r}{did_you_mean(name, self.parameters)}")
        return np.asarray(found)

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
) -> Model:
    """Load a model, or parameters alone; see the module's text for what this may be.

    Args:
        path: a file, a folder, or the common start of two files' names.
        params: the file or folder of the parameters, where it is not beside the program under one of the usual names.
        scope: where the parameters go; the current scope if None.
        allow: types of ops that touch files or run code of the process (`fluid.executor.unsupported.REACHES_OUT`), yet may run.

    Raises:
        FormatError: a file is missing, damaged, no model, or the parameters are those of another program; says which
            file, where in it, and what was expected. The scope is not changed then.
    """
    where = os.fspath(path)
    scope = scope if scope is not None else global_scope()
    file, kind = _recognized(where)
    if kind in _ARRAY_FORMATS:
        if params is not None:
            raise ProgramError(f"{where} holds parameters alone; params= goes with a program")
        arrays = read_arrays(file)
        for name, array in arrays.items():
            scope.put(name, array)
        return Model(where, kind, None, [], [], list(arrays), scope)
    program = _read_program(file, kind)
    program.allowed_ops = frozenset(allow)
    feeds, fetches = _traffic(file, program)
    found, missing = _load_parameters(program, file, os.fspath(params) if params is not None else None, scope)
    return Model(where, "folder" if os.path.isdir(where) else kind or "program", program, feeds, fetches, found, scope, missing)


def _recognized(path: str, what: str = "model") -> tuple[str, str]:
    """The file that is meant, and what it holds: a name of a format, or "" where that is not known."""
    if os.path.isdir(path):
        names = sorted(os.listdir(path))
        programs = [name for name in names if name in _PROGRAM_FILES] or [name for name in names if name.endswith(".pdmodel")]
        if len(programs) != 1:
            held = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
            found = (
                "several programs, " + ", ".join(programs) + ": name one"
                if programs
                else f"no __model__, {f'only {held}' if held else 'it is empty'}"
            )
            raise FormatError(f"{path}: the folder holds {found}")
        return _recognized(os.path.join(path, programs[0]))
    if not os.path.exists(path):
        for suffix in (".pdmodel", ".pdparams", ".txt", ".npz", ".safetensors"):
            if os.path.isfile(path + suffix):
                return _recognized(path + suffix)
    head = _head(path, what)
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= os.path.getsize(path) - 8:
        return path, "safetensors"
    if head.startswith(_ARCHIVE):
        return path, "npz"
    if head.startswith(b"\x80"):
        return path, "pdparams"
    if head.startswith(b"\0\0\0\0"):
        stem = os.path.splitext(path)[0]
        for other in (stem + ".pdmodel", os.path.join(os.path.dirname(path), "__model__")):
            if os.path.isfile(other):
                raise FormatError(f"{path} holds parameters without their names; load the program, {other}, with params={path!r}")
        raise FormatError(f"{path} holds parameters without their names, which only the program that they are of knows")
    if head.lstrip().startswith((b"block ", b"program ")):
        return path, "text"
    return path, "pdmodel" if path.endswith(".pdmodel") else "program" if head.startswith(b"\x0a") else ""


def _head(path: str, what: str = "model") -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(64)
    except (OSError, ValueError) as error:
        raise FormatError(f"{path or repr(path)}: there is no such {what}: {reason(error)}") from None


def _read_program(file: str, kind: str) -> Program:
    data = read_file(file)
    try:
        if kind != "text":
            return parse_program(data)
        program = parse_program_text(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise FormatError(f"{file}: the text is not UTF-8, at byte {error.start}") from None
    except FormatError as error:
        raise FormatError(f"{file}: {error}") from None
    found = self_owning(program.blocks)  # which text may say
    if found is not None:
        raise FormatError(f"{file}: block {found[0].idx} holds itself, by way of an op of block {found[1].idx}")
    return program


def _traffic(file: str, program: Program) -> tuple[list[str], list[Variable]]:
    """What a program is fed and fetches: by its feed and fetch ops, or what is declared as data."""
    root = program.global_block()
    feeds = io._columns(file, program, "feed", "outputs", "Out")
    fetches = io._columns(file, program, "fetch", "inputs", "X")
    return feeds or [name for name, var in root.vars.items() if var.is_data], [root.var(name) for name in fetches]


class _OnProcessor:
    """What `fluid.io` reads of an executor."""

    place = None


def _load_parameters(program: Program, file: str, params: str | None, scope: Scope) -> tuple[list[str], list[str]]:
    """Put the parameters that belong to a program into the scope: the names found, and those that no file has."""
    wanted = [var for var in program.list_vars() if io.is_persistable(var)]
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
            params = next((name for name in beside if os.path.isfile(name)), None)
            if params is None:
                if not any(os.path.isfile(io._file_of(folder, var)) for var in wanted if _has_file_name(folder, var)):
                    return [], names
                params = folder
        if os.path.isdir(params):
            io.load_persistables(_OnProcessor, params, program)
        elif params.endswith(".pdiparams") or _head(params, "file")[:4] in (b"\0\0\0\0", b""):
            io.load_persistables(_OnProcessor, os.path.dirname(params), program, os.path.basename(params))
        else:
            state = read_arrays(params)
            if not state.keys() & set(names):
                raise FormatError(f"{params} holds nothing of the program {file}: it has {_few(state)}, not {_few(names)}")
            io._set_state(program, state, params, None, complete=False)
    found = [name for name in names if loaded.array(name) is not None]
    for name in found:
        source = loaded.find_var(name)
        assert source is not None
        tensor = scope.var(name).get_tensor()
        tensor.array = source.get_tensor().array
        tensor.set_lod(source.get_tensor().lod())
    return found, [name for name in names if name not in set(found)]


def _has_file_name(folder: str, var: Variable) -> bool:
    try:
        io._file_of(folder, var)
    except ProgramError:
        return False
    return True


def _few(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:3]) + (", ..." if len(listed) > 3 else "") if listed else "nothing"


# ------------------------------------------------------------------------------------------------------- arrays by name
@checked
def read_arrays(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The arrays by name in an npz archive, a safetensors file, or ``.pdparams`` (with ``.pdopt`` beside it, both)."""
    where = os.fspath(path)
    if os.path.isdir(where):
        raise FormatError(f"{where} is a folder; arrays by name are in one file, .npz, .safetensors or .pdparams")
    _, kind = _recognized(where, "file")
    if kind == "npz":
        return _read_npz(where)
    if kind == "safetensors":
        return _read_safetensors(where)
    if kind == "pdparams":
        return io.load_program_state(where) if where.endswith((".pdparams", ".pdopt")) else io._read_state(where)
    what = "holds a program, not arrays by name" if kind else "is no file of arrays by name: no .npz, .safetensors or .pdparams"
    raise FormatError(f"{where} {what}")


@checked
def save_arrays(path: str | os.PathLike[str], arrays: Mapping[str, Any]) -> None:
    """Write arrays by name; the ending of the path says how: ``.npz``, ``.safetensors`` or ``.pdparams``."""
    where = os.fspath(path)
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    if where.endswith(".npz"):
        _write_npz(where, arrays)
    elif where.endswith(".safetensors"):
        _write_safetensors(where, arrays)
    elif where.endswith(".pdparams"):
        write_arrays(where, arrays)
    else:
        raise FluidError(f"{where}: arrays are written to names that end in .npz, .safetensors or .pdparams")


def _read_npz(path: str) -> dict[str, Any]:
    size = os.path.getsize(path)
    found: dict[str, Any] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
            total = sum(info.file_size for info in infos)
            if total > _ROOM + 10 * size:
                raise FormatError(
                    f"{path}: its {size} bytes claim to unpack to {total}; repack it without compression to load it"
                )
            for info in infos:
                name = info.filename.removesuffix(".npy")
                where = f"{path}, array {name!r}"
                if name == info.filename:
                    raise FormatError(f"{where}: it is no .npy file")
                if name in found:
                    raise FormatError(f"{where}: it is there twice")
                with archive.open(info) as file:
                    found[name] = _read_npy(file, info.file_size, where)
    except FluidError:
        raise
    except Exception as error:  # of many modules: archives, compression, headers of arrays
        raise FormatError(f"{path}: the archive cannot be read: {error}") from None
    return found


def _read_npy(file: Any, size: int, where: str) -> Any:
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise FormatError(f"{where}: its format {version} is unknown")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = read(file)
    if dtype.hasobject:
        raise FormatError(f"{where}: it holds Python objects, which would have to be unpickled")
    if not_numbers(dtype):
        raise FormatError(f"{where}: its elements are {not_numbers(dtype)}, not numbers")
    needed = math.prod(shape) * dtype.itemsize
    data = file.read(needed) if needed <= size else b""
    if any(extent < 0 for extent in shape) or len(data) != needed or file.read(1):
        raise FormatError(f"{where}: {dtype}{list(shape)} takes {needed} bytes, which is not what the archive holds")
    array = np.frombuffer(bytearray(data), dtype)
    array = np.asarray(array.reshape(shape, order="F" if by_columns else "C"), order="C")
    return array.astype(dtype.newbyteorder("="), copy=False)


def _write_npz(path: str, arrays: Mapping[str, Any]) -> None:
    check_numbers(path, arrays)
    with atomic_writer(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            if "\0" in name or any("\ud800" <= char <= "\udfff" for char in name):
                raise FluidError(f"{path}: the variable {name!r} has a name that archives cannot hold")
            info = zipfile.ZipInfo(f"{name}.npy")  # of a fixed date: equal arrays make equal files
            with archive.open(info, "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, as_bits(array), allow_pickle=False)


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError:
        raise FluidError("safetensors files need the package safetensors: pip install fluid-graph[safetensors]") from None
    return safetensors


def _read_safetensors(path: str) -> dict[str, Any]:
    library = _safetensors()
    try:
        with library.safe_open(path, framework="numpy") as file:
            kinds = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118  # no dict
            if all(kind in _SAFE_TYPES for kind in kinds.values()):
                return {name: file.get_tensor(name) for name in kinds}
        return {name: _from_safetensors(path, name, entry) for name, entry in library.deserialize(read_file(path))}
    except FluidError:
        raise
    except Exception as error:  # the library's own error derives from nothing narrower
        raise FormatError(f"{path}: the file cannot be read: {error}") from None


_SAFE_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?",
}  # fmt: skip


def _from_safetensors(path: str, name: str, entry: Mapping[str, Any]) -> Any:
    """A tensor of the library; bfloat16, which numpy lacks, as float32."""
    if entry["dtype"] == "BF16":
        upper = np.frombuffer(entry["data"], "<u2").astype(np.uint32) << 16
        return upper.view(np.float32).reshape(entry["shape"])
    if entry["dtype"] not in _SAFE_TYPES:
        raise FormatError(f"{path}: the tensor {name!r} is of {entry['dtype']}, which numpy cannot hold")
    return np.frombuffer(bytearray(entry["data"]), _SAFE_TYPES[entry["dtype"]]).reshape(entry["shape"])


def _write_safetensors(path: str, arrays: Mapping[str, Any]) -> None:
    library = _safetensors()
    check_numbers(path, arrays)
    for name, array in arrays.items():
        if array.dtype.kind == "c" or array.dtype.itemsize > 8:
            raise FluidError(f"{path}: {name!r} is {array.dtype}, which safetensors cannot hold; write .npz")
    plain = {name: to_float32(array) if array.dtype == BFLOAT16 else array for name, array in arrays.items()}
    write_file(path, [library.numpy.save({name: np.asarray(array, order="C") for name, array in plain.items()})])


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
) -> list[str]:
    """Save a model; the ending of the path says how.

    ``.pdmodel`` writes the program and ``.pdiparams`` beside it; ``.txt`` the program's text; ``.npz``, ``.safetensors``
    and ``.pdparams`` the parameters alone; any other path is a folder with ``__model__`` and a file a parameter. All files
    are written before the first replaces an older one, the program last (`fluid.formats.writing`).

    Args:
        program: the default main program if None.
        feeds, fetches: what an inference model is fed and computes: the program is pruned to that and put into test mode.
            None saves the program as it is, training part included.
        scope: where the values are; the current scope if None.
        target: ``"paddle-1.6"`` or ``"paddle-2.6"``: write ops that this version knows. For 2.6, ops also say all that Paddle
            needs to go on building with them: its ``append_backward`` works on a forward program from here.

    Returns:
        The files written, or the folder.

    Raises:
        ProgramError: the program has ops that `target` does not know, all of them listed; or a fetch needs what is not fed.
        ExecutionError: a variable has no value in the scope.
    """
    where = os.fspath(path)
    if not where:
        raise ProgramError("save_model: the path is empty; give that of a file, or of a folder")
    program = program if program is not None else default_main_program()
    scope = scope if scope is not None else global_scope()
    if fetches is not None:
        program = io._inference_program(program, _names(feeds), _names(fetches))
    elif feeds is not None:
        raise ProgramError("save_model: feeds without fetches; say what the model computes from them")
    if target is not None:
        program = convert(program, target).program
    ending = os.path.splitext(where)[1][1:]
    with scope_guard(scope):
        if ending in _ARRAY_FORMATS:
            names = sorted({var.name for var in program.list_vars() if io.is_persistable(var)})
            save_arrays(where, {name: _value(scope, name, where) for name in names})
            return [where]
        if ending == "txt":
            write_file(where, [program.to_string().encode("utf-8", "surrogateescape")])
            return [where]
        data = serialize_program(program)  # before anything is written: it may fail
        if ending == "pdmodel":
            params = where.removesuffix("pdmodel") + "pdiparams"
            folder, name = os.path.split(params)
            with together():
                io.save_persistables(None, folder, program, name)
                write_file(where, [data])
            return [where, params]
        with together():
            io.save_persistables(None, where, program)
            write_file(os.path.join(where, "__model__"), [data])
        return [where]


def _names(items: str | Variable | Iterable[str | Variable] | None) -> list[str]:
    if items is None:
        return []
    listed = [items] if isinstance(items, (str, Variable)) else items
    return [item if isinstance(item, str) else item.name for item in listed]


def _value(scope: Scope, name: str, where: str) -> Any:
    found = scope.array(name)
    if found is None:
        raise ExecutionError(f"{name!r} has no value in the scope; run the startup program, or load it, before it is saved")
    io._check_dense(where, name, found)
    return np.asarray(found)

"""Running `fluid.ops.files`: tensors to files and from them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from fluid.errors import ExecutionError
from fluid.framework import Operator

from .interpreter import HANDLERS, Environment, Machine
from .place import to_numpy
from .selected_rows import SelectedRows
from .sequences import array_of, lod_of, with_lod


def _save(machine: Machine, op: Operator, env: Environment) -> None:
    from fluid.tensor_io import write_rows, write_tensor
    from fluid.writing import atomic_writer

    path = str(op.attr("file_path"))
    if op.attrs.get("save_to_memory"):
        raise ExecutionError("save_combine: tensors cannot be saved to memory here; give a file_path and unset save_to_memory")
    if not op.attrs.get("overwrite", True) and os.path.exists(path):
        raise ExecutionError(f"{path} is there already, and the op may not overwrite it (overwrite=False)")
    values = {name: env.get(name) for name in op.input("X")}
    missing = [name for name, value in values.items() if value is None]
    if missing:
        raise ExecutionError(f"{missing[0]} has no value that could be saved")
    with atomic_writer(path) as file:
        for value in values.values():
            if isinstance(value, SelectedRows):
                write_rows(file, value)
                continue
            array = to_numpy(array_of(value))
            if op.attrs.get("save_as_fp16"):
                array = array.astype(np.float16)
            write_tensor(file, array, [list(level or ()) for level in lod_of(value)])


def _load(machine: Machine, op: Operator, env: Environment) -> None:
    from fluid.tensor_io import open_tensors

    path, names = str(op.attr("file_path")), op.output("Out")
    if op.attrs.get("model_from_memory") or op.attrs.get("seek", -1) not in (-1, 0) or op.attrs.get("shape"):
        raise ExecutionError(f"{op.type}: model_from_memory, seek and shape are not supported; give the path of a whole file")
    found: list[Any] = []
    with open_tensors(path) as reader:
        for name in names:
            array, lod = reader.read(name)
            if op.attrs.get("load_as_fp16"):
                array = array.astype(np.float16)
            found.append(with_lod(machine.xp.array(array), tuple(tuple(level) for level in lod)))
        reader.finish(len(names))
    for name, value in zip(names, found, strict=True):
        env.set(name, value)


HANDLERS.update({"save": _save, "save_combine": _save, "load": _load, "load_combine": _load})

"""Saving tensors to files and loading them (see `fluid.ops.files`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from fluid.errors import ExecutionError
from fluid.ir.program import Operator
from fluid.values.lod_array import array_of, lod_of, with_lod
from fluid.values.place import to_numpy
from fluid.values.selected_rows import SelectedRows
from fluid.values.spec import Lod

from .handlers import runs
from .interpreter import Environment, Machine

__all__ = ["read"]


@runs("save", "save_combine")
def _save(machine: Machine, op: Operator, env: Environment) -> None:
    from fluid.formats.tensors import write_rows, write_tensor
    from fluid.formats.writing import atomic_writer

    path = str(op.attr("file_path"))
    if op.attrs.get("save_to_memory"):
        raise ExecutionError("save_combine: tensors cannot be saved to memory here; give a file_path and unset save_to_memory")
    if not op.attrs.get("overwrite", True) and os.path.exists(path):
        raise ExecutionError(f"{path} exists already, and the op may not overwrite it (overwrite=False)")
    values = {name: env.get(name) for name in op.input("X")}
    for name, value in values.items():
        if value is None:
            raise ExecutionError(f"{name} has no value that could be saved")
    with atomic_writer(path) as file:
        for value in values.values():
            if isinstance(value, SelectedRows):
                write_rows(file, value)
                continue
            array = to_numpy(array_of(value))
            if op.attrs.get("save_as_fp16"):
                array = array.astype(np.float16)
            write_tensor(file, array, [list(level or ()) for level in lod_of(value)])


def read(path: str, names: Sequence[str], as_fp16: bool = False) -> list[tuple[Any, Lod]]:
    """The tensors of a file, one for each name, as arrays of numpy with their LoDs."""
    from fluid.formats.tensors import open_tensors

    tensors: list[tuple[Any, Lod]] = []
    with open_tensors(path) as reader:
        for name in names:
            array, lod = reader.read(name)
            tensors.append((array.astype(np.float16) if as_fp16 else array, tuple(tuple(level) for level in lod)))
        reader.finish(len(names))
    return tensors


@runs("load", "load_combine")
def _load(machine: Machine, op: Operator, env: Environment) -> None:
    names = op.output("Out")
    if op.attrs.get("model_from_memory") or op.attrs.get("seek", -1) not in (-1, 0) or op.attrs.get("shape"):
        raise ExecutionError(f"{op.type}: model_from_memory, seek and shape are not supported; give the path of a whole file")
    tensors = read(str(op.attr("file_path")), names, bool(op.attrs.get("load_as_fp16")))
    for name, (array, lod) in zip(names, tensors, strict=True):
        env.set(name, with_lod(machine.xp.array(array), lod))

"""Checkpoints: everything that training needs to continue with the same bits, in one file that is whole at any moment.

    start = 0
    if os.path.exists("model.ckpt"):
        start = fluid.load_checkpoint(program, "model.ckpt").step
    for step in range(start, 1000):
        exe.run(program, feed=batch(step), fetch_list=[loss])
        if step % 100 == 99:
            fluid.save_checkpoint(program, "model.ckpt", step=step + 1)

The file is a numpy archive (``numpy.load`` reads it) with an array for each persistable variable (parameters, the state of
optimizers, statistics, counters), and ``@CHECKPOINT@``, JSON as bytes: the step and the random state, that is, the seed of the
program and the number of runs in the scope. Its checksums detect changed bits.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import FluidTypeError, FormatError, LengthsError, ProgramError
from ..executor.runtime.random import seed_of
from ..executor.runtime.scope import Scope, global_scope, scope_guard
from ..formats.npz import is_archive, read_npz, write_npz
from ..formats.shards import is_manifest, read_shards
from ..formats.table import head_of
from ..ir.checked import checked
from ..ir.program import Program
from ..values.lod_array import check_offsets
from ..values.selected_rows import SelectedRows
from .models import few
from .variables import chosen_variables, fit_to_variable, is_persistable, part_of_worker, put_value, refuse_divided, value_of

__all__ = ["STATE", "Checkpoint", "load_checkpoint", "progress_of", "save_checkpoint"]

STATE = "@CHECKPOINT@"
_ROWS = "@ROWS"


@dataclass(frozen=True)
class Checkpoint:
    """The result of `load_checkpoint`.

    Attributes:
        path: the file.
        step: the step that was given to `save_checkpoint`.
        names: names of the variables, sorted.
        state: the state that was given to `save_checkpoint`, by name.
    """

    path: str
    step: int
    names: list[str]
    state: dict[str, Any] = field(default_factory=dict)


@checked
def save_checkpoint(
    program: Program,
    path: str | os.PathLike[str],
    step: int = 0,
    scope: Scope | None = None,
    state: Mapping[str, Any] | None = None,
) -> None:
    """Save the persistable variables of a training program, and the random state, to one file.

    The file replaces an older one only when it is complete and on the disk, so a process that is killed leaves the older one.

    Args:
        program: the training program.
        path: the file.
        step: the number of steps done; `load_checkpoint` returns it.
        scope: the scope with the values; the current scope if None.
        state: what else belongs to the training, by name: dicts and lists of numbers and texts, such as the ``state_dict()`` of a
            `fluid.io.DataLoader` or a `fluid.training.EarlyStopping`. `load_checkpoint` returns it.

    Raises:
        ExecutionError: a variable has no value in the scope.
        FluidTypeError: the state holds something else, such as arrays.
        FluidError: the file cannot be written.

    >>> loss = layers.mean(layers.fc(fluid.data("x", [None, 2]), 1))
    >>> updates, pairs = fluid.optimizer.Adam(0.1).minimize(loss)
    >>> exe, program = fluid.Executor(), fluid.default_main_program()
    >>> _ = exe.run(fluid.default_startup_program())
    >>> fluid.save_checkpoint(program, "training.ckpt", step=5)
    """
    refuse_divided(program.list_vars(), "save_checkpoint")
    write_npz(os.fspath(path), state_of(program, step, scope, state))


def state_of(program: Program, step: int, scope: Scope | None = None, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The arrays of a checkpoint, by name."""
    if not isinstance(step, (int, np.integer)) or isinstance(step, bool) or step < 0:
        raise ProgramError(f"save_checkpoint: step is {step!r}; it should be the number of steps that are done")
    scope = scope if scope is not None else global_scope()
    state: dict[str, Any] = {"format": 1, "step": int(step), "seed": seed_of(program.random_seed), "runs": scope.runs}
    state["lod"], state["height"] = {}, {}
    arrays: dict[str, Any] = {}
    with scope.lock, scope_guard(scope):
        for var in chosen_variables(program, None, is_persistable):
            array, lod = value_of(scope, var)
            if lod:
                state["lod"][var.name] = lod
            if isinstance(array, SelectedRows):
                state["height"][var.name] = array.height()
                arrays[var.name + _ROWS] = np.array(array.rows(), np.int64)
                array = np.asarray(array.get_tensor())
            arrays[var.name] = array
    if more is not None:
        state["state"] = dict(more)
    try:
        text = json.dumps(state)
    except (TypeError, ValueError, RecursionError) as error:
        raise FluidTypeError(
            f"save_checkpoint: state should hold dicts and lists of numbers and texts, such as state_dict() gives: {error}"
        ) from None
    arrays[STATE] = np.frombuffer(text.encode(), np.uint8)
    return arrays


@checked
def load_checkpoint(
    program: Program, path: str | os.PathLike[str], executor: Any = None, scope: Scope | None = None
) -> Checkpoint:
    """Load a file of `save_checkpoint`: training continues as if it had not stopped. The startup program need not run.

    The file may also be the manifest of the shards that several workers wrote (`fluid.saving.by_workers`).

    The saved seed becomes the program's `random_seed`, even if that was 0, which stands for a new seed in every process. Nothing
    changes unless everything can be read and fits.

    Args:
        program: the program that was saved, or one built in the same way.
        path: the file.
        executor: the executor on whose place values are put; on the CPU if None.
        scope: the scope for the values; the current scope if None.

    Raises:
        FormatError: the file is missing, damaged, not a checkpoint, or the checkpoint of another program.

    >>> loss = layers.mean(layers.fc(fluid.data("x", [None, 2]), 1))
    >>> updates, pairs = fluid.optimizer.Adam(0.1).minimize(loss)
    >>> exe, program = fluid.Executor(), fluid.default_main_program()
    >>> _ = exe.run(fluid.default_startup_program())
    >>> fluid.save_checkpoint(program, "training.ckpt", step=5)
    >>> fluid.load_checkpoint(program, "training.ckpt", exe).step
    5
    """
    where = os.fspath(path)
    scope = scope if scope is not None else global_scope()
    if os.path.isdir(where):
        raise FormatError(f"{where} is a folder; a checkpoint is one file: give that file's name")
    head = head_of(where, "checkpoint")
    if is_manifest(*head):
        arrays = read_shards(where)
    elif is_archive(*head):
        arrays = read_npz(where)
    else:
        raise FormatError(f"{where}: the file is not a checkpoint, which begins as archives do")
    state = _state(where, arrays.pop(STATE, None))
    wanted = {var.name: var for var in chosen_variables(program, None, is_persistable)}
    expected = {*wanted, *(name + _ROWS for name in state["height"])}
    if arrays.keys() != expected:
        lacking, unknown = sorted(expected - arrays.keys()), sorted(arrays.keys() - expected)
        more = f"it lacks {few(lacking)}; it has {few(unknown)} too much"
        raise FormatError(f"{where}: it is a checkpoint of another program: {more}")
    values = {}
    for name, var in wanted.items():
        array = arrays[name]
        if name in state["height"]:
            array = _sparse(f"{where}, variable {name!r}", arrays[name + _ROWS], array, state["height"][name])
        else:
            array = part_of_worker(var, array)
        values[name] = fit_to_variable(var, array, where)
    with scope.lock:
        for name, value in values.items():
            put_value(scope, name, value, state["lod"].get(name, []), getattr(executor, "place", None))
        scope.runs = state["runs"]
        if program.random_seed != state["seed"]:
            program.random_seed = state["seed"]
    return Checkpoint(where, state["step"], sorted(values), state.get("state", {}))


def progress_of(where: str, arrays: Mapping[str, Any]) -> dict[str, int]:
    """How far a checkpoint is, given its path and arrays: ``epoch`` if `fluid.training.fit` wrote it, else ``step``. Empty if the
    arrays are of another file."""
    if STATE not in arrays:
        return {}
    state = _state(where, arrays[STATE])
    epoch = state.get("state", {}).get("epoch")
    return {"epoch": epoch} if type(epoch) is int else {"step": int(state["step"])}


def _state(where: str, array: Any) -> dict[str, Any]:
    """The parsed and checked JSON of a checkpoint, from its bytes as an array."""
    if array is None:
        raise FormatError(f"{where}: the archive holds no {STATE}, so it is not a checkpoint; fluid.load_model reads arrays")
    try:
        state = json.loads(array.tobytes())
        if state["format"] != 1:
            raise FormatError(f"{where}: its format is {state['format']!r}; this version reads 1")
        for name in ("step", "seed", "runs"):
            if type(state[name]) is not int or not 0 <= state[name] < 1 << 63:
                raise ValueError(f"{name} is {state[name]!r}")
        if not all(type(height) is int and 0 <= height < 1 << 63 for height in state["height"].values()):
            raise ValueError("a height is not a number")
        if not isinstance(state.get("state", {}), dict):
            raise ValueError(f"state is {state['state']!r}")
        for lod in state["lod"].values():
            if not all(type(offset) is int for level in lod for offset in level):
                raise ValueError("an offset of a sequence is not a number")
            check_offsets(lod)
    except FormatError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, LengthsError) as error:
        raise FormatError(f"{where}: its {STATE} is damaged: {error}") from None
    return dict(state)


def _sparse(where: str, index: Any, value: Any, height: int) -> SelectedRows:
    fits = index.dtype == np.int64 and index.ndim == 1 and value.ndim > 0 and len(index) == len(value)
    if not fits or (len(index) and not 0 <= index.min() <= index.max() < height):
        raise FormatError(f"{where}: the rows do not fit their numbers, or these the height {height}")
    return SelectedRows(index, value, height)

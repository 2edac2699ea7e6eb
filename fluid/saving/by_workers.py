"""Checkpoints of training on several workers: written by worker 0, or by all in shards; read by any number of workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..distributed.communicator import statement_of
from ..distributed.process import communicator
from ..errors import CommunicationError, FluidError
from ..formats.npz import write_npz
from ..formats.shards import replacing_shards, write_manifest, write_shard
from ..ir.program import Program
from .checkpoint import STATE, Checkpoint, load_checkpoint, state_of
from .variables import divided_variables


def save_by_workers(
    program: Program,
    path: str | os.PathLike[str],
    step: int = 0,
    shards: bool = False,
    state: Mapping[str, Any] | None = None,
) -> None:
    """Save what training needs to go on; all workers call it, and return when it is on the disk.

    Args:
        program: the training program.
        path: the file; with `shards`, the manifest; the shards lie beside it. All workers see one disk.
        step: the number of steps done.
        shards: whether each worker writes a part of the variables; if not, worker 0 writes all.
        state: further state of the training, as in `save_checkpoint`; worker 0's state is saved.

    Raises:
        FluidError: on all workers, if one of them cannot write.
    """
    where, group = os.fspath(path), communicator()
    arrays = state_of(program, step, more=state)
    writers = {name: number % group.size if shards else 0 for number, name in enumerate(sorted(arrays.keys() - {STATE}))}
    _join_divided(program, arrays, writers)
    if shards:
        names = [name for name, writer in writers.items() if writer == group.rank] + [STATE] * (group.rank == 0)
        shard = {name: arrays[name] for name in names}
        label = f"step-{step}-shard"
        entries = _on_all(lambda: write_shard(where, group.rank, group.size, label, shard))
        _on_all(lambda: write_manifest(where, entries) if group.rank == 0 else None)
    else:
        _on_all(lambda: _write(where, arrays) if group.rank == 0 else None)


def _join_divided(program: Program, arrays: dict[str, Any], writers: Mapping[str, int]) -> None:
    """Replace the parts of tensors that are divided among the workers by the tensors, each on the worker that writes it."""
    group = communicator()
    divided = sorted(divided_variables(program), key=lambda var: var.name)
    if divided:
        group.state(statement_of("checkpoint of divided tensors", ((f"the variable {var.name}", str(var)) for var in divided)))
    for var in divided:
        part, division, writer = arrays[var.name], var.division, writers[var.name]
        assert division is not None
        counts = [part.size if rank == writer else 0 for rank in range(group.size)]
        elements, _ = group.exchange_rows(np.ascontiguousarray(part).reshape(-1), counts)
        if group.rank == writer:
            arrays[var.name] = division.join([piece.reshape(part.shape) for piece in np.split(elements, group.size)])


def _write(path: str, arrays: Mapping[str, Any]) -> None:
    with replacing_shards(path):
        write_npz(path, arrays)


def load_by_workers(program: Program, path: str | os.PathLike[str], executor: Any = None) -> Checkpoint:
    """Load a save of `save_by_workers`, with any number of workers; returns its step and state.

    Raises:
        FluidError: on all workers, if one of them cannot read, or they read checkpoints of different steps.
    """
    checkpoints: list[Checkpoint] = []

    def load() -> int:
        checkpoints.append(load_checkpoint(program, path, executor))
        return checkpoints[0].step

    steps = _on_all(load)
    if len(set(steps)) > 1:
        texts = ", ".join(f"worker {rank} step {step}" for rank, step in enumerate(steps))
        raise CommunicationError(f"{os.fspath(path)}: the workers read different checkpoints ({texts}); do they see one disk?")
    return checkpoints[0]


def _on_all(work: Callable[[], Any]) -> list[Any]:
    """Run `work` on each worker and return all results; if it fails on one, all raise an error."""
    error, result = None, None
    try:
        result = work()
    except FluidError as failure:
        error = failure
    answers = communicator().exchange([result, None if error is None else str(error)])
    if error is not None:
        raise error
    for rank, (_, message) in enumerate(answers):
        if message is not None:
            raise CommunicationError(f"worker {rank} failed: {message}")
    return [result for result, _ in answers]

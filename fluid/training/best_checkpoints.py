"""A folder with the checkpoints of the best steps."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import FormatError, ProgramError
from ..formats.writing import write_file
from .logs import number_of
from .stopping import Best

_INDEX = "best.json"


class BestCheckpoints:
    """Keeps the checkpoints of the best steps in a folder; the training loop provides the function that writes one.

    The folder's ``best.json`` lists them, so that training resumed in a new process keeps them.

    Args:
        folder: where the checkpoints lie; made if it lacks.
        keep: how many to keep.
        goal: ``"least"`` if a number that is less is better, such as a loss; ``"greatest"`` if one that is greater is.

    Raises:
        ProgramError: an argument cannot be used.
        FormatError: the folder's list is damaged.

    >>> best = fluid.training.BestCheckpoints("checkpoints", keep=1)
    >>> for step, loss in enumerate((0.5, 0.25, 0.3)):
    ...     kept = best.offer(step, loss, lambda path: fluid.save_checkpoint(fluid.Program(), path, step))
    >>> os.path.basename(best.path), sorted(os.listdir("checkpoints"))
    ('step-1.ckpt', ['best.json', 'step-1.ckpt'])
    """

    def __init__(self, folder: str | os.PathLike[str], keep: int = 1, goal: str = "least") -> None:
        if not isinstance(keep, int) or keep < 1:
            raise ProgramError(f"BestCheckpoints: keep should be a number of checkpoints, at least 1, not {keep!r}")
        Best("BestCheckpoints", goal)  # says whether there is such a goal
        self._folder, self._keep, self._sign = Path(folder), keep, 1.0 if goal == "least" else -1.0
        self._list: list[tuple[int, float]] = self._read()

    @property
    def path(self) -> str | None:
        """The path of the best checkpoint; None before the first."""
        return self._path(self._list[0][0]) if self._list else None

    @property
    def all(self) -> list[tuple[str, int, float]]:
        """Path, step and number of all kept checkpoints, the best first."""
        return [(self._path(step), step, number) for step, number in self._list]

    def offer(self, step: int, number: Any, save: Callable[[str], Any]) -> bool:
        """Save a checkpoint if it is one of the best; then delete checkpoints that no longer are.

        Args:
            step: the number of the step or epoch, which becomes part of the file's name.
            number: the criterion: a number, or an array or tensor of one element. NaN is worse than any.
            save: is given a path, and writes a file there, or files whose names begin with it and a dot, such as
                ``lambda path: fluid.save_checkpoint(program, path, step)``.

        Returns:
            Whether it was saved.
        """
        if not isinstance(step, int) or isinstance(step, bool) or step < 0:
            raise ProgramError(f"BestCheckpoints.offer: step should be the number of a step, at least 0, not {step!r}")
        value = number_of(number, "BestCheckpoints.offer: number")
        remaining = [entry for entry in self._list if entry[0] != step]
        ranked = sorted([*remaining, (step, value)], key=self._rank)
        if value != value or (step, value) not in ranked[: self._keep]:
            return False
        self._folder.mkdir(parents=True, exist_ok=True)
        save(self._path(step))
        self._list = ranked[: self._keep]
        write_file(str(self._folder / _INDEX), [json.dumps(self._list).encode()])
        for worse, _ in ranked[self._keep :]:
            self._delete(worse)
        return True

    def _rank(self, entry: tuple[int, float]) -> tuple[float, int]:
        return self._sign * entry[1], entry[0]

    def _path(self, step: int) -> str:
        return str(self._folder / f"step-{step}.ckpt")

    def _delete(self, step: int) -> None:
        for path in self._files(step):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def _files(self, step: int) -> list[Path]:
        """The existing files and folders of a checkpoint."""
        path = Path(self._path(step))
        return [candidate for candidate in (path, *self._folder.glob(f"{path.name}.*")) if candidate.exists()]

    def _read(self) -> list[tuple[int, float]]:
        index = self._folder / _INDEX
        if not index.exists():
            return []
        try:
            entries = [(step, float(number)) for step, number in json.loads(index.read_bytes())]
            if not all(type(step) is int and step >= 0 for step, _ in entries):
                raise ValueError("a step is not a number")
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise FormatError(f"{index}: it should list steps and numbers of checkpoints: {error}") from None
        return sorted((entry for entry in entries if self._files(entry[0])), key=self._rank)

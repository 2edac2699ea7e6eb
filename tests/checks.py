"""Several checks in one test: one that fails does not hide the next."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Checks"]


class Checks:
    """Checks of one subject, each under a ``with`` that names it; in the end, an error tells of all that failed::

    with Checks() as check:
        for op_type in op_types:
            with check(f"{op_type}, slots"):
                assert_slots(op_type)
    """

    def __init__(self) -> None:
        self._failures: list[tuple[str, BaseException]] = []

    def __enter__(self) -> Checks:
        return self

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            self._failures.append((what, error))

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._failures and error is None:
            report = "\n\n".join(f"{what}: {_told(failure)}" for what, failure in self._failures)
            raise AssertionError(report) from self._failures[0][1]


def _told(error: BaseException) -> str:
    """What an error says, and the last line of the tests that it comes through."""
    here = Path(__file__).parent
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if here in Path(frame.filename).parents]
    kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
    return f"{kind}{error}\n({Path(frames[-1].filename).relative_to(here)}:{frames[-1].lineno})"

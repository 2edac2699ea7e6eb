"""Processes that run the same compiled programs together: they compare programs before a run, and limit how long they wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import jax

from fluid.distributed.by_jax import JaxCommunicator
from fluid.distributed.communicator import Statement, time_limit
from fluid.distributed.environment import Worker
from fluid.distributed.process import communicator
from fluid.distributed.worker import fail
from fluid.errors import CommunicationError, FluidError


class SharedRuns:
    """The runs that this process shares with other processes.

    A run waits in a collective of XLA. No error can be raised there, and the collective knows neither programs nor shapes: it
    accepts any data of the same number of bytes. So a thread watches whether other processes wait elsewhere. After `time_limit`,
    it ends this process, and thereby all.
    """

    def __init__(self, group: JaxCommunicator) -> None:
        self._group, self._seconds = group, time_limit()
        self._runs = 0
        self._statement: Statement | None = None
        """The statement about the current run."""
        self._end: float | None = None
        """Deadline of the current wait; None while not waiting."""
        self._thread: threading.Thread | None = None

    def meet(self, statement: Statement) -> None:
        """Before each run, check that all processes are about to run the same program.

        It costs nothing if all repeat their last program. If only some do, they learn it while they wait for the others.
        """
        former, self._statement = self._statement, statement
        self._runs += 1
        if former is None or former.digest != statement.digest:
            self._group.meet(self._runs, statement)

    def call_blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that may block on other processes.

        Raises:
            CommunicationError: the other processes have ended.
        """
        former, self._end = self._end, time.monotonic() + self._seconds
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, name="fluid workers", daemon=True)
            self._thread.start()
        try:
            return function(*arguments)
        except (jax.errors.JaxRuntimeError, ValueError) as error:
            if isinstance(error, FluidError):
                raise
            raise CommunicationError(
                f"{self._group.who()} has lost the others, perhaps since one has died: {str(error).partition(chr(10))[0]}"
            ) from error
        finally:
            self._end = former

    def _look(self) -> None:
        while True:
            time.sleep(min(self._seconds / 10, 1.0))
            end, statement, run = self._end, self._statement, self._runs
            try:
                if end is None:
                    continue
                if statement is not None and self._group.is_awaited(run) and self._end == end:
                    self._group.state(statement)
                elif time.monotonic() > end:
                    raise self._group.waited_in_vain(self._seconds, "run of a program compiled by XLA")
            except CommunicationError as error:
                fail(f"{type(error).__module__}.{type(error).__name__}: {error}")


@cache
def shared_runs() -> SharedRuns:
    """The shared runs of this process, one of several that have joined jax."""
    group = communicator()
    if not isinstance(group, JaxCommunicator):
        group = JaxCommunicator(Worker(jax.process_index(), jax.process_count(), 0, "fluid.parallel.connect"))
    return SharedRuns(group)

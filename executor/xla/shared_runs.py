"""Several processes that run the same compiled programs: they compare what they run, and wait for each other for some time."""

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

__all__ = ["SharedRuns", "shared_runs"]


class SharedRuns:
    """The runs that this process makes together with others.

    What waits in a run is a collective of XLA, in which no error can be raised, and which knows neither programs nor shapes: it
    takes whatever of the others has as many bytes. So a thread looks meanwhile whether others wait elsewhere, and ends this
    process, and by that all, when it waits for longer than it should (`time_limit`).
    """

    def __init__(self, group: JaxCommunicator) -> None:
        self._group, self._seconds = group, time_limit()
        self._runs = 0
        self._statement: Statement | None = None
        """What is said of the present run."""
        self._end: float | None = None
        """When what is waited for should have come; None while nothing is waited for."""
        self._thread: threading.Thread | None = None

    def meet(self, statement: Statement) -> None:
        """Before each run, make sure that all are about to run the same.

        It costs nothing where all run what they ran before. Where only some do, these learn of it while they wait for the others.
        """
        former, self._statement = self._statement, statement
        self._runs += 1
        if former is None or former.digest != statement.digest:
            self._group.meet(self._runs, statement)

    def waiting(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function gives that may wait for other processes.

        Raises:
            CommunicationError: they have ended.
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
    """The runs of this process, which is one of several that have joined jax."""
    group = communicator()
    if not isinstance(group, JaxCommunicator):
        group = JaxCommunicator(Worker(jax.process_index(), jax.process_count(), 0, "fluid.parallel.connect"))
    return SharedRuns(group)

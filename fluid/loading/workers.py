"""Processes that make batches.

Each worker has its own pipe: it receives tasks there and answers in order. Tasks go to the workers in turns,
and answers are taken in turns, so that the order of batches does not depend on how fast workers are. The end of its process
reveals a worker that has ended, for any cause.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import secrets
import signal
import sys
import traceback
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from multiprocessing import connection, resource_tracker
from typing import Any, NamedTuple

import numpy as np

from ..errors import DataError, FluidTypeError, ProgramError, readable
from ..executor.runtime.threads import set_num_threads
from .reading import Batches
from .shared_batches import BatchReader, BatchWriter
from .termination import accept_termination, hold_termination
from .worker_info import WorkerInfo

_PATIENCE = 5.0
"""Seconds for a worker to end on request."""
_OF_SPAWN = """. What it said stands above. It imports the script anew, which therefore starts workers under
if __name__ == "__main__": and finds only classes of modules, not those of a notebook"""
_LONGEST = 1 << 13
"""The maximal length of a reported traceback."""


class _Begin(NamedTuple):
    """The message to a worker before the tasks of an epoch."""

    info: WorkerInfo
    first: int


class _Worker:
    """A process that makes batches, as its parent sees it."""

    def __init__(self, context: Any, reading: Batches, number: int, open_pipes: list[Any]) -> None:
        self.id, self._method = number, context.get_start_method()
        self._pipe, theirs = context.Pipe()
        prefix = f"fl{os.getpid():x}-{secrets.token_hex(4)}-"
        self._batches = BatchReader(prefix)
        self._tasks: deque[Any] = deque()
        """Tasks without an answer yet, the oldest first."""
        inherited = [*open_pipes, self._pipe] if self._method == "fork" else []
        arguments = (reading, theirs, prefix, inherited)
        self.process = context.Process(target=_work, args=arguments, daemon=True, name=f"DataLoader worker {number}")
        try:
            with hold_termination() if self._method == "fork" else nullcontext():
                self.process.start()
        except (AttributeError, TypeError, ValueError) as error:  # of pickle
            raise FluidTypeError(
                f"the dataset, or the collate_fn, cannot be sent to a worker started by {self._method}: {error}. "
                "What a worker gets has to be pickled there: no lambdas, functions in functions, or open files"
            ) from None
        except BaseException:
            self._pipe.close()
            raise
        finally:
            theirs.close()

    @property
    def pipe(self) -> Any:
        return self._pipe

    @property
    def is_busy(self) -> bool:
        """Whether answers are outstanding."""
        return bool(self._tasks)

    def begin(self, info: WorkerInfo, first: int) -> None:
        """Announce the epoch, and the position where it begins."""
        self._send(_Begin(info, first))

    def send_task(self, task: Any) -> None:
        """Send it a task."""
        self._tasks.append(task)
        self._send(task)

    def _send(self, message: Any) -> None:
        try:
            self._pipe.send((message, self._batches.released()))
        except (BrokenPipeError, ConnectionError):
            pass  # the worker has ended; reading its answer reports that

    def receive_batch(self, timeout: float | None) -> tuple[bool, Any]:
        """Receive (True, the next batch), or (False, None) after the last batch.

        Raises:
            DataError: it raised an error, ended, or took longer than `timeout` seconds.
        """
        ready = connection.wait([self._pipe, self.process.sentinel], timeout)
        if not ready:
            raise DataError(f"{self} has not made {self._describe_task()} in {timeout:g} s, the timeout of this DataLoader")
        try:
            if self._pipe not in ready and not self._pipe.poll():
                raise EOFError
            kind, content = self._pipe.recv()
        except (EOFError, ConnectionError):
            raise DataError(self._ended()) from None
        self._tasks.popleft()
        if kind == "error":
            message, trace = content
            raise DataError(f"{message}\n\nin {self}:\n\n{trace}")
        return kind == "batch", self._batches.read(content) if kind == "batch" else None

    def finish(self, timeout: float | None) -> None:
        """Receive the answers to unneeded tasks."""
        while self._tasks:
            self.receive_batch(timeout)

    def _describe_task(self) -> str:
        task = self._tasks[0]
        return (
            f"the batch of samples {', '.join(map(str, task[:8]))}{', ...' if len(task) > 8 else ''}"
            if task
            else "its next batch"
        )

    def _ended(self) -> str:
        """Describe how its process ended."""
        self.process.join(_PATIENCE)
        code = self.process.exitcode
        during = f"while it made {self._describe_task()}"
        if code is None or code >= 0:
            hint = _OF_SPAWN if code == 1 and self._method != "fork" else ""
            return f"{self} ended with the exit code {code} {during}{hint}"
        name = next((item.name for item in signal.Signals if item == -code), f"signal {-code}")
        hints = {"SIGKILL": "; is memory short?", "SIGBUS": "; is the shared memory, /dev/shm, full?"}
        return f"{self} was killed by {name} {during}{hints.get(name, '')}"

    def __str__(self) -> str:
        return f"worker {self.id} of a DataLoader (process {self.process.pid})"

    def end(self, is_idle: bool) -> None:
        """End the process, gracefully if it is idle, and remove its shared memory."""
        if is_idle:
            self._pipe.close()
            self.process.join(_PATIENCE)
        for end in (self.process.terminate, self.process.kill):
            if self.process.is_alive():
                end()
                self.process.join(_PATIENCE)
        self._pipe.close()
        self._batches.close()
        self.process.close()


class Workers:
    """Processes that make batches, until they are closed.

    Args:
        reading: makes batches.
        count: how many processes.
        start_method: ``"fork"``, ``"spawn"`` or ``"forkserver"``; None: fork on Linux, where processes start in milliseconds and
            need no pickles, and spawn elsewhere.
    """

    def __init__(self, reading: Batches, count: int, start_method: str | None) -> None:
        self._workers: list[_Worker] = []
        self._end = weakref.finalize(self, _end, self._workers, os.getpid())
        method = start_method or ("fork" if sys.platform == "linux" else "spawn")
        try:
            context: Any = multiprocessing.get_context(method)
        except ValueError:
            methods = ", ".join(multiprocessing.get_all_start_methods())
            raise ProgramError(f"DataLoader: start_method should be one of {methods}, not {start_method!r}") from None
        resource_tracker.ensure_running()  # one for all processes; it removes memory that a crash leaves behind
        try:
            with warnings.catch_warnings():
                for category in (DeprecationWarning, RuntimeWarning):  # of Python and jax: forks with threads,
                    warnings.simplefilter("ignore", category)  # workers use no thread of the parent
                for number in range(count):
                    pipes = [worker.pipe for worker in self._workers]
                    self._workers.append(_Worker(context, reading, number, pipes))
        except BaseException:
            self.close()
            raise

    def batches(self, info: WorkerInfo, first: int, tasks: Iterable[Any], ahead: int, timeout: float | None) -> Iterator[Any]:
        """The batches of these tasks, in order; each worker has up to `ahead` tasks at a time.

        Args:
            info: the seed and the epoch.
            first: as of `StreamBatches.start`.
            tasks: the batches to make.
            ahead: how many tasks a worker has at a time.
            timeout: how many seconds to wait for a worker; None: for ever.
        """
        left = iter(tasks)
        turns = deque(self._workers)
        for worker in turns:
            worker.begin(replace(info, id=worker.id, num_workers=len(turns)), first)
        for _ in range(ahead):
            for worker in turns:
                self._next_task(worker, left)
        while turns:
            worker = turns[0]
            if not worker.is_busy:
                return
            is_batch, batch = worker.receive_batch(timeout)
            if not is_batch:
                turns.popleft().finish(timeout)
                continue
            self._next_task(worker, left)
            turns.rotate(-1)
            yield batch

    @staticmethod
    def _next_task(worker: _Worker, left: Iterator[Any]) -> None:
        for task in left:
            worker.send_task(task)
            return

    def close(self) -> None:
        """End all workers. This also happens when this object is garbage collected, or when Python ends."""
        self._end()


def _end(workers: list[_Worker], owner: int) -> None:
    if os.getpid() != owner:
        return  # a copy in a forked process, of whose children these are none
    is_idle = not any(worker.is_busy for worker in workers)
    if not is_idle:
        for worker in workers:
            worker.process.terminate()
    with ExitStack() as stack:  # it continues with the others if one fails
        while workers:
            stack.callback(workers.pop().end, is_idle)


# ------------------------------------------------------------------------------------------------------ in the process
def _work(reading: Batches, pipe: Any, prefix: str, inherited: list[Any]) -> None:
    """The worker's main loop, until its parent closes the pipe or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it, too, and ends its workers
    accept_termination()
    for pipe_end in inherited:
        pipe_end.close()
    set_num_threads(1)
    batches = BatchWriter(prefix)
    parent = multiprocessing.parent_process()
    assert parent is not None
    try:
        make: Callable[[Any], Any]
        while pipe in connection.wait([pipe, parent.sentinel]):
            task, released = pipe.recv()
            batches.release(released)
            if isinstance(task, _Begin):
                _seed(task.info)
                make = reading.start(*task)
            else:
                pipe.send(_answer(make, batches, task))
    except (EOFError, ConnectionError):
        pass
    finally:
        batches.close()


def _seed(info: WorkerInfo) -> None:
    """Seed the process's generators differently in each worker and epoch."""
    state = np.random.SeedSequence([info.seed, info.epoch, info.id]).generate_state(2)
    np.random.seed(int(state[0]))
    random.seed(int(state[1]))


def _answer(make: Callable[[Any], Any], batches: BatchWriter, task: Any) -> tuple[str, Any]:
    try:
        return "batch", batches.write(make(task))
    except StopIteration:
        return "end", None
    except DataError as error:
        return "error", (str(error), _trace_of(error.__cause__ or error))
    except BaseException as error:
        return "error", (readable(f"{type(error).__name__}: {error}"), _trace_of(error))


def _trace_of(error: BaseException) -> str:
    """The traceback of an error, as text, without this package's own frames at its beginning."""
    trace = error.__traceback__
    here = os.path.dirname(__file__)
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename.startswith(here):
        trace = trace.tb_next
    return readable("".join(traceback.format_exception(type(error), error, trace))[-_LONGEST:])

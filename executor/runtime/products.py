"""Products of large matrices, in parts that threads share, and of deep ones, in blocks.

The parts of a product depend on its sizes alone, and BLAS computes each part with one thread. So the results have the same bits
for any number of threads. BLAS with internal threads does not guarantee this: there, the number of threads decides the parts.

A product with a vector is summed block by block of its depth. BLAS adds one row after the other, and rounds each time: of
160,000 rows (the gradient of a layer with one unit), it loses up to 4 of 7 digits.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import Any

import numpy as np

from .calls import Call, OutArray
from .threads import HAS_THREADS, blas_threads, get_num_threads

_PART = 8_000_000
"""The least multiplications in a part: some 100 us of one core, several times the cost of waking a thread."""
_MOST_PARTS = 16
_NARROWEST = 256
"""The least rows or columns of a part: for each part, BLAS copies the other factor, which costs as much as a tenth of these."""
_UNIT = 16
"""Rows or columns of a part are a multiple of this, for the inner loops of BLAS."""
BLOCK_DEPTH = 1024
"""The most terms of a sum by BLAS where a factor is a vector."""


def is_split(xp: Any, a: Any, b: Any, out: Any) -> bool:
    """Whether ``out = a @ b`` is computed in parts or in blocks."""
    return xp is np and (_is_deep(a, b, out) or len(_cuts(a, b, out)[1]) > 1)


def product_call(xp: Any, a: Any, b: Any, out: Any) -> Call:
    """The call of ``xp.matmul(a, b, out=out)``; large products of numpy are computed in parts, deep ones in blocks."""
    if xp is not np:
        return partial(xp.matmul, a, b, out=out)  # cupy takes it by its name alone
    if _is_deep(a, b, out):
        return partial(multiply_in_blocks, a, b, out)
    return partial(multiply_in_parts if len(_cuts(a, b, out)[1]) > 1 else np.matmul, a, b, out)


def multiply(xp: Any, a: Any, b: Any, out: Any = None) -> Any:
    """Compute ``xp.matmul(a, b, out)``, in parts if the product is large; `out` is a new array if None."""
    if out is None:
        if xp is not np or a.ndim < 2 or a.ndim != b.ndim or a.dtype != b.dtype:
            return xp.matmul(a, b)
        out = np.empty((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), a.dtype)
    product_call(xp, a, b, out)()
    return out


def _is_deep(a: Any, b: Any, out: Any) -> bool:
    """Whether a factor of ``out = a @ b`` is a vector, and sums are long."""
    return a.ndim == b.ndim == 2 and a.shape[1] > BLOCK_DEPTH and 1 in out.shape and a.dtype == b.dtype and a.dtype.kind in "fc"


def multiply_in_blocks(a: Any, b: Any, out: OutArray) -> None:
    """Compute ``out = a @ b`` of matrices, block by block of the depth."""
    count, remaining = divmod(a.shape[1], BLOCK_DEPTH)
    end = count * BLOCK_DEPTH
    blocks = a[:, :end].reshape(len(a), count, BLOCK_DEPTH).swapaxes(0, 1), b[:end].reshape(count, BLOCK_DEPTH, b.shape[1])
    sums = np.matmul(*blocks)
    if remaining:
        sums[0] += a[:, end:] @ b[end:]
    np.copyto(out, sums.sum(0), "same_kind")


def multiply_in_parts(a: Any, b: Any, out: OutArray) -> None:
    """Compute ``out = a @ b`` in parts, on several threads."""
    axis, cuts = _cuts(a, b, out)
    if a.__array_interface__["data"] == b.__array_interface__["data"]:
        np.matmul(a, b, out)  # BLAS makes the product of a matrix and its transpose symmetric
    elif axis == 0:
        _HELPERS.make([partial(np.matmul, _matrices(a, out, cut), _matrices(b, out, cut), out[cut]) for cut in cuts])
    elif axis == -2:
        _HELPERS.make([partial(np.matmul, a[..., cut, :], b, out[..., cut, :]) for cut in cuts])
    else:
        _HELPERS.make([partial(np.matmul, a, b[..., cut], out[..., cut]) for cut in cuts])


def _cuts(a: Any, b: Any, out: Any) -> tuple[int, list[slice]]:
    """The axis along which a product is cut (0 for a stack of matrices), and the parts. Only sizes and types decide."""
    if a.ndim < 2 or b.ndim < 2 or not a.dtype == b.dtype == out.dtype or out.dtype.kind not in "fc":
        return -1, [slice(None)]
    count = min(out.size * a.shape[-1] // _PART, _MOST_PARTS)
    if out.ndim > 2 and len(out) > 1:
        axis, unit, most = 0, 1, len(out)
    else:
        axis, unit = -2 if out.shape[-2] > out.shape[-1] else -1, _UNIT
        most = out.shape[axis] // _NARROWEST
    length, count = out.shape[axis], min(count, most)
    if count < 2:
        return -1, [slice(None)]
    step = -(-length // (count * unit)) * unit
    return axis, [slice(start, start + step) for start in range(0, length, step)]


def _matrices(factor: Any, out: Any, cut: slice) -> Any:
    """The matrices of a factor for a part of a stack of products."""
    return factor[cut] if factor.ndim == out.ndim and len(factor) > 1 else factor


class _Job:
    """A queue of calls; several threads take the next one until none is left."""

    def __init__(self, calls: list[Call]) -> None:
        self._left = list(calls)
        self.error: BaseException | None = None

    def work(self) -> None:
        try:
            while True:
                try:
                    call = self._left.pop()
                except IndexError:
                    return
                call()
        except BaseException as error:  # the waiting thread raises it again
            self.error = error
            self._left.clear()


class _Helper:
    """A thread that works on one job after another, and sleeps in between."""

    def __init__(self) -> None:
        self._begin, self._end = threading.Lock(), threading.Lock()
        self._begin.acquire()
        self._end.acquire()
        self._job: _Job | None = None
        threading.Thread(target=self._serve, name="fluid products", daemon=True).start()

    def begin(self, job: _Job) -> None:
        self._job = job
        self._begin.release()

    def wait(self) -> None:
        """Wait until the job has ended."""
        self._end.acquire()

    def _serve(self) -> None:
        np.seterr(all="ignore")  # as in runs of programs
        while True:
            self._begin.acquire()
            if self._job is not None:
                self._job.work()
            self._job = None
            self._end.release()


class _Helpers:
    """The threads that share products; one product at a time."""

    def __init__(self) -> None:
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        """Start without threads: after a fork, the threads of the parent do not run in the child."""
        self._lock = threading.Lock()
        self._helpers: list[_Helper] = []

    def make(self, calls: list[Call]) -> None:
        """Make calls on several threads, limited by `fluid.set_num_threads`."""
        count = min(get_num_threads(), len(calls)) - 1
        is_free = count > 0 and HAS_THREADS and blas_threads() is not None and self._lock.acquire(blocking=False)
        job = _Job(calls)
        if is_free:
            try:
                self._work(job, count)
            finally:
                self._lock.release()
        else:
            job.work()
        if job.error is not None:
            raise job.error

    def _work(self, job: _Job, count: int) -> None:
        helpers = self._start_helpers(count)
        for helper in helpers:
            helper.begin(job)
        job.work()
        try:
            for helper in helpers:
                helper.wait()
        except BaseException:  # the user interrupted: the helpers may still be working
            self._helpers = []
            raise

    def _start_helpers(self, count: int) -> list[_Helper]:
        """Start helpers until there are `count`; fewer if the system has no more threads."""
        while len(self._helpers) < count:
            try:
                self._helpers.append(_Helper())
            except RuntimeError:
                break
        return self._helpers[:count]


_HELPERS = _Helpers()

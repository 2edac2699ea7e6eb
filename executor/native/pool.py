"""Threads that run tables of kernels together.

There is one pool per process. The calling thread is its first thread, and it alone walks tables. Workers are Python threads that
stay in one compiled function, without the GIL. For each record that threads share, the first thread stores the record,
increments the *epoch*, on which the workers wait, and takes part itself. Threads take shares of the record one by one, and the
first thread takes the remaining ones. So it never waits for a thread that has no core, but only for shares that are being
computed. A waiting thread first spins, then yields its core, then sleeps on a futex. If that is often needed because other
processes use the cores, workers sleep sooner; with more threads than cores, they sleep at once.

On a platform without futex, there is one thread.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from ctypes import CFUNCTYPE, c_int32, c_int64, c_void_p
from functools import cache
from string import Template
from typing import Any

import numpy as np

from ..runtime.threads import available_cores, get_num_threads
from .cache import compile_kernels
from .compiler import host
from .instructions import BRANCH, RECORD_WORDS, SERIAL, UNLESS, WrittenKernel
from .target import Target

_SPIN = 50
"""Turns of spinning, some 1.5 us. Not more, since another thread may be waiting for this core."""
_AWAKE = 250
"""Turns before the first thread sleeps, some 50 us: several times the wake-up time, or one sleep would cause the next."""
_IDLE = 4
"""A worker waits at most this many times longer before it sleeps."""
_MOST_THREADS = 1 << 10
_RECORDS_BACK = 1 << 10
"""After so many records of loops, native code returns to Python, which handles interrupts. With 8 to 65,536, a loop of two
transposes and a softmax of 8,000 elements took the same time within the noise (2 cores)."""

# Layout of a context in 32-bit words; a cache line has 16. The word behind each word that threads wait on counts the sleepers.
# The record is in the cache line of the epoch, because a worker that sees the epoch change already has that line. There is a
# claim for each share: the last epoch that took it.
_EPOCH, _THREADS, _TURNS, _RECORD = 0, 2, 3, 4
_FINISHED, _PATIENCE, _CLAIMS = 16, 32, 48
_CONTEXT_WORDS = _CLAIMS + _MOST_THREADS

_FUTEX = {"x86_64": 202, "aarch64": 98}
"""Number of the futex system call on Linux."""
_PAUSE = {"x86_64": ("llvm.x86.sse2.pause()", "()"), "aarch64": ("llvm.aarch64.hint(i32 1)", "(i32)")}
"""The spin hint for the processor: a call, and the types of its arguments."""

_TEXT = Template("""
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
declare void @$pause_name$pause_types
declare i32 @llvm.smax.i32(i32, i32)
declare i32 @llvm.smin.i32(i32, i32)

; Wait until a word is no longer `old`, for so many turns awake: first spinning, then leaving the core to others.
; Returns whether it slept.
define internal i1 @wait(ptr %word, i32 %old, i32 %turns) #0 {
entry:
  %sleepers = getelementptr i32, ptr %word, i64 1
  br label %look
look:
  %turn = phi i32 [ 0, %entry ], [ %next_turn, %pause ], [ %next_turn, %yield ]
  %seen = load atomic i32, ptr %word acquire, align 4
  %changed = icmp ne i32 %seen, %old
  br i1 %changed, label %awake, label %tire
tire:
  %tired = icmp sge i32 %turn, %turns
  br i1 %tired, label %lie_down, label %stay
stay:
  %next_turn = add i32 %turn, 1
  %is_early = icmp slt i32 %turn, $spin
  br i1 %is_early, label %pause, label %yield
pause:
  call void @$pause
  br label %look
yield:
  %yielded = call i32 @sched_yield()
  br label %look
lie_down:
  %before = atomicrmw add ptr %sleepers, i32 1 seq_cst
  br label %sleep
sleep:
  %woken = call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i64 128, i32 %old, ptr null)
  %again = load atomic i32, ptr %word seq_cst, align 4
  %same = icmp eq i32 %again, %old
  br i1 %same, label %sleep, label %rise
rise:
  %after = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  br label %awake
awake:
  %slept = phi i1 [ false, %look ], [ true, %rise ]
  ret i1 %slept
}

; Move a word on, and wake who sleeps for it.
define internal void @advance(ptr %word) #0 {
entry:
  %sleepers = getelementptr i32, ptr %word, i64 1
  %old = atomicrmw add ptr %word, i32 1 seq_cst
  %count = load atomic i32, ptr %sleepers seq_cst, align 4
  %any = icmp sgt i32 %count, 0
  br i1 %any, label %wake, label %done
wake:
  %woken = call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i64 129, i32 2147483647)
  br label %done
done:
  ret void
}

; Compute the shares of the record that no thread has taken yet, the thread's own first. A share is taken by moving its claim from
; the epoch before to this one, so a thread that is late takes nothing of an old record.
define internal void @compute_shares(ptr %context, i32 %epoch, i32 %thread, i32 %threads) #0 {
entry:
  %record_at = getelementptr i32, ptr %context, i64 $record
  %claims = getelementptr i32, ptr %context, i64 $claims
  %finished = getelementptr i32, ptr %context, i64 $finished
  %before = sub i32 %epoch, 1
  %threads64 = sext i32 %threads to i64
  br label %claim
claim:
  %turn = phi i32 [ 0, %entry ], [ %next_turn, %on ]
  %place = add i32 %thread, %turn
  %is_behind = icmp sge i32 %place, %threads
  %from_first = sub i32 %place, %threads
  %share32 = select i1 %is_behind, i32 %from_first, i32 %place
  %share = sext i32 %share32 to i64
  %claim_at = getelementptr i32, ptr %claims, i64 %share
  %claimed = cmpxchg ptr %claim_at, i32 %before, i32 %epoch seq_cst seq_cst
  %is_taken = extractvalue { i32, i1 } %claimed, 1
  br i1 %is_taken, label %compute, label %on
compute:
  %at = load ptr, ptr %record_at
  %kernel = load ptr, ptr %at
  %operands_at = getelementptr i64, ptr %at, i64 1
  %operands = load ptr, ptr %operands_at
  call void %kernel(ptr %operands, i64 %share, i64 %threads64)
  call void @advance(ptr %finished)
  br label %on
on:
  %next_turn = add i32 %turn, 1
  %goes_on = icmp slt i32 %next_turn, %threads
  br i1 %goes_on, label %claim, label %done
done:
  ret void
}

; Compute a record with all threads that are awake. The first thread waits for shares that others have begun, and for nothing
; else. Where that ends in sleep, workers stay awake half as long as before, else an eighth longer.
define internal void @compute_together(ptr %context, ptr %record, i32 %threads) #0 {
entry:
  %record_at = getelementptr i32, ptr %context, i64 $record
  %finished = getelementptr i32, ptr %context, i64 $finished
  %turns_at = getelementptr i32, ptr %context, i64 $turns
  %patience_at = getelementptr i32, ptr %context, i64 $patience
  store ptr %record, ptr %record_at
  store atomic i32 0, ptr %finished release, align 4
  call void @advance(ptr %context)
  %epoch = load atomic i32, ptr %context acquire, align 4
  %turns = load i32, ptr %turns_at
  call void @compute_shares(ptr %context, i32 %epoch, i32 0, i32 %threads)
  br label %look
look:
  %has_slept = phi i1 [ false, %entry ], [ %sleeps, %wait ]
  %count = load atomic i32, ptr %finished acquire, align 4
  %is_finished = icmp eq i32 %count, %threads
  br i1 %is_finished, label %adapt, label %wait
wait:
  %slept = call i1 @wait(ptr %finished, i32 %count, i32 %turns)
  %sleeps = or i1 %has_slept, %slept
  br label %look
adapt:
  %patience = load atomic i32, ptr %patience_at monotonic, align 4
  %half = ashr i32 %patience, 1
  %less = call i32 @llvm.smax.i32(i32 %half, i32 %turns)
  %eighth = ashr i32 %patience, 3
  %sum = add i32 %patience, %eighth
  %most = mul i32 %turns, $idle
  %more = call i32 @llvm.smin.i32(i32 %sum, i32 %most)
  %new = select i1 %has_slept, i32 %less, i32 %more
  %differs = icmp ne i32 %new, %patience
  br i1 %differs, label %write, label %done
write:
  store atomic i32 %new, ptr %patience_at monotonic, align 4
  br label %done
done:
  ret void
}

; What a worker does until there are fewer threads than its number: wait for the next record, take part.
define void @worker(ptr %context, i32 %thread, i32 %start) #0 {
entry:
  %patience_at = getelementptr i32, ptr %context, i64 $patience
  %threads_at = getelementptr i32, ptr %context, i64 $threads
  br label %wait
wait:
  %epoch = phi i32 [ %start, %entry ], [ %next, %take_part ]
  %patience = load atomic i32, ptr %patience_at monotonic, align 4
  %slept = call i1 @wait(ptr %context, i32 %epoch, i32 %patience)
  %next = load atomic i32, ptr %context acquire, align 4
  %threads = load i32, ptr %threads_at
  %is_needed = icmp slt i32 %thread, %threads
  br i1 %is_needed, label %take_part, label %done
take_part:
  call void @compute_shares(ptr %context, i32 %next, i32 %thread, i32 %threads)
  br label %wait
done:
  ret void
}

; Let all workers look at the number of threads; there is no record.
define void @call_workers(ptr %context) #0 {
entry:
  call void @advance(ptr %context)
  ret void
}
""")

_RUN = Template("""
; How many of the next records a branch skips; a negative number leads back.
define internal i64 @skipped(ptr %record, i64 %flags) #0 {
entry:
  %operands_at = getelementptr i64, ptr %record, i64 1
  %operands = load ptr, ptr %operands_at
  %condition_at = load ptr, ptr %operands
  %condition = load i8, ptr %condition_at
  %is_true = icmp ne i8 %condition, 0
  %unless = and i64 %flags, $unless
  %is_unless = icmp ne i64 %unless, 0
  %runs = xor i1 %is_true, %is_unless
  %count_at = getelementptr i64, ptr %record, i64 3
  %count = load i64, ptr %count_at
  %skipped = select i1 %runs, i64 0, i64 %count
  ret i64 %skipped
}

; Run a table. Returns the number of the record behind the last one, or of the record to go on with: after many records of loops,
; so that Python can handle interrupts.
define i64 @run(ptr %context, ptr %table, i64 %count) #0 {
entry:
  %threads_at = getelementptr i32, ptr %context, i64 $threads
  %threads = load i32, ptr %threads_at
  %has_workers = icmp sgt i32 %threads, 1
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %record, label %done
record:
  %i = phi i64 [ 0, %entry ], [ %next, %on ]
  %patience = phi i64 [ $back, %entry ], [ %left, %on ]
  %start = mul i64 %i, $record_words
  %at = getelementptr i64, ptr %table, i64 %start
  %flags_at = getelementptr i64, ptr %at, i64 2
  %flags = load i64, ptr %flags_at
  %branch = and i64 %flags, $branch
  %branches = icmp ne i64 %branch, 0
  br i1 %branches, label %ask, label %choose
ask:
  %asked = call i64 @skipped(ptr %at, i64 %flags)
  br label %on
choose:
  %serial = and i64 %flags, $serial
  %is_shared = icmp eq i64 %serial, 0
  %is_common = and i1 %is_shared, %has_workers
  br i1 %is_common, label %together, label %alone
alone:
  %kernel = load ptr, ptr %at
  %operands_at = getelementptr i64, ptr %at, i64 1
  %operands = load ptr, ptr %operands_at
  call void %kernel(ptr %operands, i64 0, i64 1)
  br label %computed
together:
  $together
computed:
  br label %on
on:
  %over = phi i64 [ %asked, %ask ], [ 0, %computed ]
  %following = add i64 %i, 1
  %next = add i64 %following, %over
  %is_back = icmp slt i64 %over, 0
  %back = select i1 %is_back, i64 %over, i64 0
  %left = add i64 %patience, %back
  %is_within = icmp slt i64 %next, %count
  %is_patient = icmp sgt i64 %left, 0
  %goes_on = and i1 %is_within, %is_patient
  br i1 %goes_on, label %record, label %done
done:
  %end = phi i64 [ 0, %entry ], [ %next, %on ]
  ret i64 %end
}
""")
_TOGETHER = "call void @compute_together(ptr %context, ptr %at, i32 %threads)\n  br label %computed"


def _family_of(target: Target) -> str | None:
    """The processor family of a target; None if the pool has no threads there."""
    family, _, platform = target.triple.partition("-")
    return family if "linux" in platform and family in _FUTEX else None


_FUNCTIONS = ("run", "worker", "call_workers")


def pool_text(target: Target, name: str = "functions") -> str:
    """The pool's functions in LLVM's text form, and a function `name` that stores their addresses in the order of `_FUNCTIONS`.

    On targets without threads, only `run`.
    """
    family = _family_of(target)
    functions = _FUNCTIONS if family is not None else _FUNCTIONS[:1]
    stores = "".join(
        f"  %at{number} = getelementptr ptr, ptr %addresses, i64 {number}\n  store ptr @{function}, ptr %at{number}\n"
        for number, function in enumerate(functions)
    )
    together = _TOGETHER if family is not None else "br label %alone"
    numbers = {"record_words": RECORD_WORDS, "serial": SERIAL, "branch": BRANCH, "unless": UNLESS, "threads": _THREADS}
    text = _RUN.substitute(numbers, back=_RECORDS_BACK, together=together)
    text += f"\ndefine void @{name}(ptr %addresses) #0 {{\nentry:\n{stores}  ret void\n}}\n"
    if family is None:
        return text
    pause, types = _PAUSE[family]
    return text + _TEXT.substitute(
        numbers,
        futex=_FUTEX[family],
        pause=pause,
        pause_name=pause.partition("(")[0],
        pause_types=types,
        spin=_SPIN,
        idle=_IDLE,
        record=_RECORD,
        finished=_FINISHED,
        claims=_CLAIMS,
        turns=_TURNS,
        patience=_PATIENCE,
    )


class Pool:
    """Threads that run tables together. `pool()` returns the pool of the process."""

    def __init__(self) -> None:
        target = host()
        self._has_threads = _family_of(target) is not None
        writers = {f"pool {self._has_threads}": lambda name: WrittenKernel(pool_text(target, name), [])}
        self._kernels = compile_kernels(writers, target)
        addresses = np.zeros(len(_FUNCTIONS), np.int64)
        (write_addresses,) = self._kernels.addresses.values()
        CFUNCTYPE(None, c_void_p)(write_addresses)(addresses.ctypes.data)
        run, worker, call_workers = addresses.tolist()
        self._run = CFUNCTYPE(c_int64, c_void_p, c_void_p, c_int64)(run)
        if self._has_threads:
            self._worker = CFUNCTYPE(None, c_void_p, c_int32, c_int32)(worker)
            self._call_workers = CFUNCTYPE(None, c_void_p)(call_workers)
        memory = np.zeros(_CONTEXT_WORDS + 16, np.int32)
        start = -memory.ctypes.data // 4 % 16
        self._context = memory[start : start + _CONTEXT_WORDS]  # aligned to a cache line
        self._address = self._context.ctypes.data
        self._is_closed = False
        self._forget()
        atexit.register(self._close)  # stop workers before Python's shutdown frees their code
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Begin without workers. After a fork, the parent's workers do not exist in the child."""
        self._lock = threading.Lock()
        self._workers: list[threading.Thread] = []
        self._count = 1
        """The requested number of threads at the last start of workers."""
        self._context[:] = 0
        self._context[_THREADS] = 1

    def _close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._resize(1)

    def _resize(self, count: int) -> None:
        """Start or stop workers, so that there are `count` threads in total. The caller holds the lock."""
        self._count, context = count, self._context
        count = min(count, _MOST_THREADS)
        leaving = self._workers[max(count - 1, 0) :]
        if leaving:
            context[_THREADS] = count
            del self._workers[count - 1 :]
            context[_CLAIMS:] = np.int64(context[_EPOCH] + np.int64(1)).astype(np.int32)  # no share is left to take
            self._call_workers(self._address)
            for worker in leaving:
                worker.join()
        context[_CLAIMS:] = context[_EPOCH]
        while len(self._workers) + 1 < count:
            arguments = (self._address, len(self._workers) + 1, int(context[_EPOCH]))
            worker = threading.Thread(target=self._worker, args=arguments, name="fluid native", daemon=True)
            try:
                worker.start()
            except RuntimeError:  # the system refuses more threads: the present ones do the work
                break
            self._workers.append(worker)
        context[_THREADS] = len(self._workers) + 1
        context[_TURNS] = context[_PATIENCE] = _AWAKE if len(self._workers) < available_cores() else 0

    def caller(self, table: Any) -> Callable[[], None]:
        """A function that runs a table: an int64 array of shape [records, `RECORD_WORDS`]. See `stepper`."""
        assert table.dtype == np.int64 and table.flags.c_contiguous and table.shape[1:] == (RECORD_WORDS,)
        run, context, first, count, record = self._runner(table), self._address, table.ctypes.data, len(table), table.strides[0]

        def run_table(table: Any = table) -> None:
            place = run(context, first, count)
            while place < count:
                place += run(context, first + place * record, count - place)

        return run_table

    def stepper(self, tables: Any) -> Callable[[int], None]:
        """A function that runs one of several tables of equal length: an int64 array of shape [tables, records, `RECORD_WORDS`].

        Flags are read now. Kernels and operands may change later, but the array must not move. If all records are serial or
        branches, as in a table too small for threads, no other thread is woken.
        """
        assert tables.dtype == np.int64 and tables.flags.c_contiguous and tables.shape[2:] == (RECORD_WORDS,)
        run, first, count, (size, record, _) = self._runner(tables), tables.ctypes.data, tables.shape[1], tables.strides

        def run_table(number: int, tables: Any = tables) -> None:
            start, place = first + number * size, 0
            while place < count:
                place += run(self._address, start + place * record, count - place)

        return run_table

    def _runner(self, records: Any) -> Callable[[int, int, int], int]:
        """The function that runs some records: by this thread alone, or together with the others."""
        is_alone = not self._has_threads or bool((records[..., 2] & (SERIAL | BRANCH)).all())
        return self._run if is_alone else self._run_together

    def _run_together(self, address: int, table: int, count: int) -> int:
        """Run a table with all threads, or a part of it; returns as the compiled function does."""
        with self._lock:
            if self._count != get_num_threads() and not self._is_closed:
                self._resize(get_num_threads())
            return int(self._run(address, table, count))


@cache
def pool() -> Pool:
    """The pool of this process."""
    return Pool()

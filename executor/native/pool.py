"""Threads that run tables of kernels together.

There is one pool per process. The calling thread is its first thread. Workers are Python threads that stay in one compiled
function, without the GIL. For each run, the caller stores the table, increments the *epoch*, on which the workers wait, and takes
part itself. A waiting thread first spins, then yields its core, then sleeps on a futex. If threads are often late because other
processes use the cores, workers sleep sooner between runs; with more threads than cores, they sleep at once.

On a platform without futex, there is one thread.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from ctypes import CFUNCTYPE, c_int32, c_int64, c_void_p
from functools import cache, partial
from string import Template
from typing import Any

import numpy as np

from ..runtime.threads import available_cores, get_num_threads
from .cache import compile_kernels
from .compiler import host
from .instructions import AFTER_BARRIER, BRANCH, RECORD_WORDS, SERIAL, UNLESS, WrittenKernel
from .target import Target

_SPIN = 50
"""Turns of spinning, some 1.5 us. Not more, since another thread may be waiting for this core."""
_AWAKE = 250
"""Turns at a barrier before sleeping, some 50 us: several times the wake-up time, or one sleep would cause the next."""
_IDLE = 4
"""A worker waits at most this many times longer between two runs than at a barrier before it sleeps."""
_RECORDS_BACK = 1 << 10
"""After so many records of loops, native code returns to Python, which handles interrupts."""

# Layout of a context in 32-bit words; a cache line has 16. The word behind each word that threads wait on counts the sleepers.
# The table to run is in the cache line of the epoch, because a worker that sees the epoch change already has that line.
_EPOCH, _THREADS, _TURNS, _TABLE, _COUNT = 0, 2, 3, 4, 6
_GENERATION, _ARRIVED, _PATIENCE = 16, 32, 48
_CONTEXT_WORDS = 64

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

; Arrive at a barrier; the last one opens it. Returns whether this is the last one.
define internal i1 @arrive(ptr %context, i32 %threads) #0 {
entry:
  %arrived = getelementptr i32, ptr %context, i64 $arrived
  %before = atomicrmw add ptr %arrived, i32 1 acq_rel
  %count = add i32 %before, 1
  %last = icmp eq i32 %count, %threads
  br i1 %last, label %open, label %done
open:
  store atomic i32 0, ptr %arrived release, align 4
  %generation = getelementptr i32, ptr %context, i64 $generation
  call void @advance(ptr %generation)
  br label %done
done:
  ret i1 %last
}

; Wait until all threads have arrived. Where that ends in sleep, workers stay awake half as long between runs as before, else an
; eighth longer.
define internal void @barrier(ptr %context, i32 %threads) #0 {
entry:
  %generation = getelementptr i32, ptr %context, i64 $generation
  %old = load atomic i32, ptr %generation acquire, align 4
  %last = call i1 @arrive(ptr %context, i32 %threads)
  br i1 %last, label %done, label %wait
wait:
  %turns_at = getelementptr i32, ptr %context, i64 $turns
  %patience_at = getelementptr i32, ptr %context, i64 $patience
  %turns = load i32, ptr %turns_at
  %patience = load atomic i32, ptr %patience_at monotonic, align 4
  %slept = call i1 @wait(ptr %generation, i32 %old, i32 %turns)
  %half = ashr i32 %patience, 1
  %less = call i32 @llvm.smax.i32(i32 %half, i32 %turns)
  %eighth = ashr i32 %patience, 3
  %sum = add i32 %patience, %eighth
  %most = mul i32 %turns, $idle
  %more = call i32 @llvm.smin.i32(i32 %sum, i32 %most)
  %new = select i1 %slept, i32 %less, i32 %more
  %differs = icmp ne i32 %new, %patience
  br i1 %differs, label %write, label %done
write:
  store atomic i32 %new, ptr %patience_at monotonic, align 4
  br label %done
done:
  ret void
}

; One thread's part of all records of a table. The first thread computes serial records as if there were no other.
; Returns the number of the record behind the last one, or of the record to go on with (see `on`).
define internal i64 @share(ptr %context, ptr %table, i64 %count, i32 %thread32, i32 %threads32) #0 {
entry:
  %thread = sext i32 %thread32 to i64
  %threads = sext i32 %threads32 to i64
  %others = icmp ne i64 %thread, 0
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %record, label %done
record:
  %i = phi i64 [ 0, %entry ], [ %next, %on ]
  %patience = phi i64 [ $back, %entry ], [ %left, %on ]
  %start = mul i64 %i, $record_words
  %at = getelementptr i64, ptr %table, i64 %start
  %flags_at = getelementptr i64, ptr %at, i64 2
  %flags = load i64, ptr %flags_at
  %after_barrier = and i64 %flags, $after_barrier
  %waits = icmp ne i64 %after_barrier, 0
  br i1 %waits, label %meet, label %look
meet:
  call void @barrier(ptr %context, i32 %threads32)
  br label %look
look:
  %branch = and i64 %flags, $branch
  %branches = icmp ne i64 %branch, 0
  br i1 %branches, label %ask, label %choose
ask:
  %asked = call i64 @skipped(ptr %at, i64 %flags)
  br label %on
choose:
  %serial = and i64 %flags, $serial
  %is_serial = icmp ne i64 %serial, 0
  %skips = and i1 %is_serial, %others
  br i1 %skips, label %on, label %compute
compute:
  %kernel = load ptr, ptr %at
  %operands_at = getelementptr i64, ptr %at, i64 1
  %operands = load ptr, ptr %operands_at
  %sharing = select i1 %is_serial, i64 1, i64 %threads
  call void %kernel(ptr %operands, i64 %thread, i64 %sharing)
  br label %on
on:
  %over = phi i64 [ %asked, %ask ], [ 0, %choose ], [ 0, %compute ]
$go_on
done:
  %end = phi i64 [ 0, %entry ], [ %next, %on ]
  ret i64 %end
}

; What a worker does until there are fewer threads than its number: wait for the next run, take part.
define void @worker(ptr %context, i32 %thread, i32 %start) #0 {
entry:
  %patience_at = getelementptr i32, ptr %context, i64 $patience
  %threads_at = getelementptr i32, ptr %context, i64 $threads
  %table_at = getelementptr i32, ptr %context, i64 $table
  %count_at = getelementptr i32, ptr %context, i64 $count
  br label %wait
wait:
  %epoch = phi i32 [ %start, %entry ], [ %next, %run ]
  %patience = load atomic i32, ptr %patience_at monotonic, align 4
  %slept = call i1 @wait(ptr %context, i32 %epoch, i32 %patience)
  %next = add i32 %epoch, 1
  %threads = load i32, ptr %threads_at
  %is_needed = icmp slt i32 %thread, %threads
  br i1 %is_needed, label %run, label %done
run:
  %table = load ptr, ptr %table_at
  %count = load i64, ptr %count_at
  %end = call i64 @share(ptr %context, ptr %table, i64 %count, i32 %thread, i32 %threads)
  %last = call i1 @arrive(ptr %context, i32 %threads)
  br label %wait
done:
  ret void
}

; Run a table with all threads. Returns as `share` does.
define i64 @run(ptr %context, ptr %table, i64 %count) #0 {
entry:
  %threads_at = getelementptr i32, ptr %context, i64 $threads
  %table_at = getelementptr i32, ptr %context, i64 $table
  %count_at = getelementptr i32, ptr %context, i64 $count
  %threads = load i32, ptr %threads_at
  store ptr %table, ptr %table_at
  store i64 %count, ptr %count_at
  call void @advance(ptr %context)
  %end = call i64 @share(ptr %context, ptr %table, i64 %count, i32 0, i32 %threads)
  call void @barrier(ptr %context, i32 %threads)
  ret i64 %end
}
""")

_GO_ON = """\
  ; Go to the next record: behind the skipped ones, or back in a loop. Stop after many records of loops, so that Python can
  ; handle interrupts.
  %following = add i64 %i, 1
  %next = add i64 %following, %over
  %is_back = icmp slt i64 %over, 0
  %back = select i1 %is_back, i64 %over, i64 0
  %left = add i64 %patience, %back
  %is_within = icmp slt i64 %next, %count
  %is_patient = icmp sgt i64 %left, 0
  %goes_on = and i1 %is_within, %is_patient
  br i1 %goes_on, label %record, label %done"""

_ALONE = Template("""
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

; Run a table with one thread, which waits for nobody. Returns as `share` does.
define i64 @run_alone(ptr %table, i64 %count) #0 {
entry:
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
  br i1 %branches, label %ask, label %compute
ask:
  %asked = call i64 @skipped(ptr %at, i64 %flags)
  br label %on
compute:
  %kernel = load ptr, ptr %at
  %operands_at = getelementptr i64, ptr %at, i64 1
  %operands = load ptr, ptr %operands_at
  call void %kernel(ptr %operands, i64 0, i64 1)
  br label %on
on:
  %over = phi i64 [ %asked, %ask ], [ 0, %compute ]
$go_on
done:
  %end = phi i64 [ 0, %entry ], [ %next, %on ]
  ret i64 %end
}
""")


def _family_of(target: Target) -> str | None:
    """The processor family of a target; None if the pool has no threads there."""
    family, _, platform = target.triple.partition("-")
    return family if "linux" in platform and family in _FUTEX else None


_FUNCTIONS = ("run_alone", "run", "worker")


def pool_text(target: Target, name: str = "functions") -> str:
    """The pool's functions in LLVM's text form, and a function `name` that stores their addresses in the order of `_FUNCTIONS`.

    On targets without threads, only `run_alone`.
    """
    family = _family_of(target)
    functions = _FUNCTIONS if family is not None else _FUNCTIONS[:1]
    stores = "".join(
        f"  %at{number} = getelementptr ptr, ptr %addresses, i64 {number}\n  store ptr @{function}, ptr %at{number}\n"
        for number, function in enumerate(functions)
    )
    text = _ALONE.substitute(record_words=RECORD_WORDS, branch=BRANCH, unless=UNLESS, back=_RECORDS_BACK, go_on=_GO_ON)
    text += f"\ndefine void @{name}(ptr %addresses) #0 {{\nentry:\n{stores}  ret void\n}}\n"
    if family is None:
        return text
    pause, types = _PAUSE[family]
    return text + _TEXT.substitute(
        futex=_FUTEX[family],
        pause=pause,
        pause_name=pause.partition("(")[0],
        pause_types=types,
        spin=_SPIN,
        idle=_IDLE,
        record_words=RECORD_WORDS,
        serial=SERIAL,
        after_barrier=AFTER_BARRIER,
        branch=BRANCH,
        back=_RECORDS_BACK,
        go_on=_GO_ON,
        threads=_THREADS,
        table=_TABLE,
        count=_COUNT,
        arrived=_ARRIVED,
        generation=_GENERATION,
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
        run_alone, run, worker = addresses.tolist()
        self._run_alone = CFUNCTYPE(c_int64, c_void_p, c_int64)(run_alone)
        if self._has_threads:
            self._run = CFUNCTYPE(c_int64, c_void_p, c_void_p, c_int64)(run)
            self._worker = CFUNCTYPE(None, c_void_p, c_int32, c_int32)(worker)
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
        leaving = self._workers[max(count - 1, 0) :]
        if leaving:
            context[_THREADS] = count
            del self._workers[count - 1 :]
            self._run(self._address, None, 0)
            for worker in leaving:
                worker.join()
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
        return partial(self.stepper(table[None]), 0)

    def stepper(self, tables: Any) -> Callable[[int], None]:
        """A function that runs one of several tables of equal length: an int64 array of shape [tables, records, `RECORD_WORDS`].

        Flags are read now. Kernels and operands may change later, but the array must not move. If all records are serial or
        branches, as in a table too small for threads, no other thread is woken.
        """
        assert tables.dtype == np.int64 and tables.flags.c_contiguous and tables.shape[2:] == (RECORD_WORDS,)
        first, count, (size, record, _) = tables.ctypes.data, tables.shape[1], tables.strides

        def runner(run: Callable[[int, int], int]) -> Callable[[int], None]:
            def run_table(number: int, tables: Any = tables) -> None:
                start, place = first + number * size, 0
                while place < count:
                    place += run(start + place * record, count - place)

            return run_table

        is_alone = not self._has_threads or bool((tables[:, :, 2] & (SERIAL | BRANCH)).all())
        return runner(self._run_alone if is_alone else self._run_together)

    def _run_together(self, table: int, count: int) -> int:
        """Run a table with all threads, or a part of it; returns as the compiled functions do."""
        with self._lock:
            if self._count != get_num_threads() and not self._is_closed:
                self._resize(get_num_threads())
            if self._workers:
                return int(self._run(self._address, table, count))
        return int(self._run_alone(table, count))


@cache
def pool() -> Pool:
    """The pool of this process."""
    return Pool()

"""Mutates real models and programs of single ops, reads, differentiates and runs them, in processes with little memory.

A case that ends in anything but a model or a `FluidError`, takes a second of the processor, or needs more than 64 MiB and ten
times the size of its file, is named with its number; `--first NUMBER --cases 1` repeats it, with the traceback. The slowest
cases, and those that took most memory beyond ten times their files, are told. `--minutes` ends the run early.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

SECONDS = 1.0
ROOM = 64 << 20
TIMES = 10
BATCH = 2000


class Hung(BaseException):
    """Not an `Exception`, so that nothing on the way takes it for an error of its own."""


def hang(number, frame):
    raise Hung


def data_bytes():
    """Bytes of this process's private writable memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[5]) * resource.getpagesize()


def resident(field):
    """``VmRSS``, the memory that this process has in use, or ``VmHWM``, the most since `reset_peak`, in bytes."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field)) << 10


def reset_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def run_batch(seed, first, last, folder, more, results):
    """Cases `first` to `last`; what went wrong, how cases ended, the slowest and the largest, as a tuple put into `results`."""
    import warnings

    from fuzzing import corpus, make_case, onnx_corpus, op_corpus, run_case

    warnings.simplefilter("ignore")
    faulthandler.enable()
    signal.signal(signal.SIGVTALRM, hang)
    here = Path(folder, str(first))
    here.mkdir()
    bases = corpus(here, more) + op_corpus() + onnx_corpus()
    for base in {base.kind: base for base in bases}.values():  # what is imported and cached counts for no case
        make = make_case(seed, 0, [base])
        make.data = base.data
        run_case(make, here)
    ends, wrong, slowest, largest = collections.Counter(), [], (0.0, first, ""), (0, first, "")
    progress = Path(folder, f"{first}.at")
    for number in range(first, last):
        progress.write_text(str(number))
        case = make_case(seed, number, bases)
        allowed = ROOM + TIMES * len(case.data)
        resource.setrlimit(resource.RLIMIT_DATA, (data_bytes() + allowed, resource.RLIM_INFINITY))
        signal.setitimer(signal.ITIMER_VIRTUAL, 10 * SECONDS)
        reset_peak()
        before = resident("VmRSS")
        start = time.process_time()
        try:
            ends[case.base.kind, run_case(case, here)] += 1
        except (Exception, Hung) as error:
            what = f"{type(error).__name__}: {str(error)[:200]}"
            wrong.append((number, case.base.name, what, traceback.format_exc()))
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        seconds = time.process_time() - start
        slowest = max(slowest, (seconds, number, case.base.name))
        taken = resident("VmHWM") - before
        largest = max(largest, (taken - TIMES * len(case.data), number, case.base.name))
        if seconds > SECONDS:
            wrong.append((number, case.base.name, f"it took {seconds:.1f} s", ""))
        if taken > allowed:
            wrong.append((number, case.base.name, f"it took {taken >> 20} MiB", ""))
    results.put((first, ends, wrong, slowest, largest))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, help="a folder with more models to mutate")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no further cases after this time")
    parser.add_argument("-j", type=int, default=os.cpu_count(), help="processes (%(default)s)")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="fuzz-")
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    end = options.first + options.cases
    waiting = [(first, min(first + BATCH, end)) for first in range(options.first, end, BATCH)][::-1]
    running, ends, wrong, slowest, largest, done = {}, collections.Counter(), [], (0.0, 0, ""), (0, 0, ""), 0
    start = time.perf_counter()
    while waiting or running:
        if time.perf_counter() - start > 60 * options.minutes:
            waiting.clear()
        while waiting and len(running) < options.j:
            first, last = waiting.pop()
            process = context.Process(target=run_batch, args=(options.seed, first, last, folder, options.corpus, results))
            process.start()
            running[first] = process, last
        while not results.empty():
            first, found, bad, slow, large = results.get()
            process, last = running.pop(first)
            process.join()
            ends.update(found)
            wrong += bad
            for case, name, what, trace in bad:
                frames = "".join("\n    " + line for line in trace.splitlines()[-9:-1])
                print(f"\r  {case} {name}: {what}{frames}", file=sys.stderr, flush=True)
            slowest, largest = max(slowest, slow), max(largest, large)
            done += last - first
            print(f"\r{done} cases, {len(wrong)} wrong, {time.perf_counter() - start:.0f} s", end="", file=sys.stderr, flush=True)
        for first, (process, last) in list(running.items()):
            if not process.is_alive() and results.empty():
                time.sleep(0.2)
                if not results.empty():
                    break
                del running[first]
                at = Path(folder, f"{first}.at")
                number = int(at.read_text()) if at.exists() and at.read_text() else first
                wrong.append((number, "", f"the process ended with {process.exitcode}", ""))
                if number + 1 < last:
                    shutil.rmtree(Path(folder, str(first)), ignore_errors=True)
                    waiting.append((number + 1, last))
        time.sleep(0.05)
    shutil.rmtree(folder)
    print(file=sys.stderr)
    for (kind, how), count in sorted(ends.items()):
        print(f"{kind:12} {how:9} {count:7}")
    print(f"{done} cases, {len(wrong)} wrong; the slowest took {slowest[0]:.2f} s ({slowest[1]}, {slowest[2]})")
    print(f"the largest took {largest[0] / (1 << 20):.1f} MiB and {TIMES} times its file ({largest[1]}, {largest[2]})")
    for number, name, what, trace in wrong[:50]:
        print(f"  {number} {name}: {what}")
        if options.cases == 1:
            print(trace)
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()

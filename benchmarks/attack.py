"""Holds random programs against all that should be true of them, in as many processes as one likes. No speed is measured here.

Plan, interpreter, pruned program, wire and text have the same bits; gradients of two orders are those of central differences;
sparse gradients train as dense ones. What is wrong is printed with the smallest part of the program and its number;
`--seed NUMBER --count 1` repeats it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
BATCH = 50


def run_batch(first, last, until, thorough):
    """Check programs from number `first` on until the time is up; returns how many were checked, and the faults."""
    from attack import check, smallest

    warnings.simplefilter("ignore")
    wrong = []
    for seed in range(first, last):
        if time.time() > until:
            return seed - first, wrong
        try:
            check(seed, thorough)
        except Exception:
            wrong.append((seed, smallest(seed, thorough)))
    return last - first, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0, help="the number of the first program")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (%(default)s)")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after so long")
    parser.add_argument("--cheap", action="store_true", help="small programs and cheap checks, as in the tests")
    options = parser.parse_args()
    start, end = time.time(), options.seed + options.count
    until = start + 60 * options.minutes
    batches = [(first, min(first + BATCH, end), until, not options.cheap) for first in range(options.seed, end, BATCH)]
    count = failed = 0
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        for batch in [pool.apply_async(run_batch, each) for each in batches]:
            done, wrong = batch.get()
            count, failed = count + done, failed + len(wrong)
            for seed, what in wrong:
                print(f"program {seed}: {what}\n", flush=True)
            print(f"\r{count} programs, {failed} wrong, {time.time() - start:.0f} s", end="", file=sys.stderr, flush=True)
            if time.time() > until:
                break
    print(f"\n{count} programs, {failed} wrong; {time.time() - start:.0f} s")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()

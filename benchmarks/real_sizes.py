"""Runs random programs at real sizes on every engine and holds them against float64, for hours and in any number of processes.

A program that an engine runs wrongly is made smaller and printed with its seed, as a script that runs by itself. A log keeps all
of them. ``--replay ops:17`` repeats one program. ``--time`` compares instead how long ops take natively and on numpy, with one
thread each, and lists those that are slower natively.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing
import os
import queue
import shutil
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("FLUID_XLA_CACHE", "0")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "ops"))

BATCH = 25
"""Programs that a process checks before another takes its place."""
KINDS = ("ops", "nets", "control")


def run_batch(kind, seeds, engines, progress, until):
    """Answers of the programs of some seeds; `progress` is told which is next, for the case that the process ends."""
    from real_sizes.checking import check, choices_of

    answers = []
    for seed in seeds:
        if time.time() > until:
            break
        progress.write_text(str(seed))
        answers.append((seed, check(kind, choices_of(seed), engines_of(seed, engines))))
    return answers


def engines_of(seed, engines):
    """The engines that check a program; XLA checks few of them, because it compiles slowly."""
    every = int(os.environ.get("REAL_SIZES_XLA_EVERY", "1"))
    return [engine for engine in engines if engine != "xla" or seed % every == 0]


def work(tasks, results, engines, folder, until, shrinking):
    """Check batches until there are none, each in a process of its own; hand over answers and failures."""
    from real_sizes.checking import Answer, check_in_a_process, choices_of, find_failure, in_a_process

    progress = Path(folder, f"{os.getpid()}.at")
    os.environ["FLUID_NATIVE_CACHE"] = str(Path(folder, f"{os.getpid()}.kernels"))
    while True:
        try:
            kind, seeds = tasks.get(timeout=5)  # without waiting, it raises while another process takes a task
        except queue.Empty:
            return
        while seeds and time.time() < until:
            progress.unlink(missing_ok=True)
            answers = in_a_process(lambda: run_batch(kind, seeds, engines, progress, until), 180 * len(seeds))  # noqa: B023
            if isinstance(answers, Answer):  # the process ended
                at = int(progress.read_text()) if progress.exists() else seeds[0]
                results.put((kind, at, answers, None))
                done = seeds.index(at)
                repeated, seeds = seeds[:done], seeds[done + 1 :]
                seeds = [*repeated, *seeds]
                failure = find_failure(kind, at, engines_of(at, engines), shrinking)
                results.put((kind, at, None, failure or f"{kind}, seed {at}: {answers.text}, but not when it ran again"))
                continue
            for seed, answer in answers:
                if answer.kind:  # again with XLA: where it rounds alike, last bits decide
                    answer = check_in_a_process(kind, lambda: choices_of(seed), engines)  # noqa: B023
                results.put((kind, seed, answer, None))
                if answer.kind:
                    failure = find_failure(kind, seed, engines, shrinking)
                    results.put(
                        (kind, seed, None, failure or f"{kind}, seed {seed}: {answer.text}\n... but not when it ran again")
                    )
            break
        shutil.rmtree(os.environ["FLUID_NATIVE_CACHE"], ignore_errors=True)


class Summary:
    """The counts so far, and the log of failures."""

    def __init__(self, log):
        self.log, self.start = log, time.time()
        self.checked, self.unfit, self.failed = collections.Counter(), collections.Counter(), collections.Counter()
        self.undecided = 0
        self.distances = collections.defaultdict(list)

    def take(self, kind, seed, answer, failure):
        if failure is not None:
            self.failed[kind] += 1
            text = f"{'=' * 100}\n{failure}\n"
            print(text, flush=True)
            with open(self.log, "a") as file:
                file.write(text)
        elif answer.unfit:
            self.unfit[kind] += 1
        else:
            self.checked[kind] += 1
            self.undecided += answer.is_undecided
            for engine, distance in answer.distances.items():
                self.distances[engine].append(distance)
        print(f"\r{self}", end="", file=sys.stderr, flush=True)

    def __str__(self):
        kinds = [f"{self.checked[kind]} {kind}" for kind in KINDS if self.checked[kind] or self.unfit[kind]]
        unfit = sum(self.unfit.values())
        return (
            f"{', '.join(kinds)} ({self.undecided} past the range of float32, {unfit} more did not fit); "
            f"{sum(self.failed.values())} failed; {time.time() - self.start:.0f} s"
        )


def check_for_hours(options):
    """Check new seeds until the time is up, or so many; returns how many failed."""
    until = time.time() + min(3600 * options.hours, 1e9)
    first = options.first if options.first is not None else int(time.time()) % 1_000_000 * 1000
    print(f"the first seed is {first}; failures are kept in {options.log}", flush=True)
    context = multiprocessing.get_context("fork")
    tasks, results, folder = context.Queue(), context.Queue(), tempfile.mkdtemp(prefix="real-sizes-")
    for start in range(first, first + options.count, BATCH):
        for kind in options.kinds:
            tasks.put((kind, list(range(start, min(start + BATCH, first + options.count)))))
    arguments = (tasks, results, options.engines, folder, until, options.shrink)
    processes = [context.Process(target=work, args=arguments) for _ in range(options.jobs)]
    time.sleep(0.2)  # until the first tasks are in the pipe
    for process in processes:
        process.start()
    summary = Summary(options.log)
    while any(process.is_alive() for process in processes) or not results.empty():
        try:
            summary.take(*results.get(timeout=1))
        except queue.Empty:
            continue
    tasks.cancel_join_thread()
    shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{summary}")
    with open(options.log, "a") as file:
        file.write(f"seeds from {first}: {summary}\n")
    return sum(summary.failed.values())


def replay(options):
    """Check one program again, and shrink it if it fails; returns whether it does."""
    from real_sizes.checking import check_in_a_process, choices_of, find_failure

    kind, _, seed = options.replay.partition(":")
    failure = find_failure(kind, int(seed), options.engines, options.shrink)
    if failure is None:
        answer = check_in_a_process(kind, lambda: choices_of(int(seed)), options.engines)
        print(answer.unfit or f"nothing is wrong; errors beside their bounds: {answer.distances}")
        return 0
    print(failure)
    return 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=1e5, help="stop after so long")
    parser.add_argument("--count", type=int, default=1_000_000, help="seeds of each kind")
    parser.add_argument("--first", type=int, help="the first seed; a new one by default")
    parser.add_argument("--jobs", type=int, default=1, help="processes (%(default)s)")
    parser.add_argument("--kinds", default=",".join(KINDS), type=lambda text: text.split(","), help="of %(default)s")
    parser.add_argument("--engines", type=lambda text: text.split(","), help="numpy, native and, where jax is, xla")
    parser.add_argument("--xla-every", type=int, default=1, help="check every so many programs by XLA (%(default)s)")
    parser.add_argument("--shrink", type=float, default=90, help="seconds for making what fails smaller")
    parser.add_argument("--log", default="real_sizes.log", help="where failures are kept (%(default)s)")
    parser.add_argument("--replay", help="one program: KIND:SEED")
    parser.add_argument("--time", action="store_true", help="compare the time of ops, natively and on numpy")
    options = parser.parse_args()
    os.environ["REAL_SIZES_XLA_EVERY"] = str(options.xla_every)
    from real_sizes.running import ENGINES

    options.engines = options.engines or list(ENGINES)
    if options.time:
        from real_sizes.timing import compare_times

        compare_times(options.count if options.count < 1_000_000 else 400, options.first or 0)
        return
    sys.exit(bool(replay(options) if options.replay else check_for_hours(options)))


if __name__ == "__main__":
    main()

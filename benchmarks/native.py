"""Steps of whole models in Fluid, beside torch, torch.compile, jax and onnxruntime: the same model, the same first values.

Every system gets what it is best with: fused optimizers, compiled steps, donated buffers. All run in one process in turns, with
pauses in which threads of the others stop spinning; with --separate, each in a process of its own, still in turns, and with its
peak memory. The losses of the first steps have to agree.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Callable
from typing import Any

from common import check_losses, machine, milliseconds, race_blocks, timed_block

TOLERANCE = 1e-4
CHECKED_STEPS = 3


class Here:
    """A system's step of a workload in this process."""

    def __init__(self, peer: str, workload: str) -> None:
        from peers import step_of
        from workloads import WORKLOADS

        before = _status("VmRSS")
        self.step = step_of(peer, WORKLOADS[workload])
        self.losses = [self.step() for _ in range(CHECKED_STEPS)]
        _forget_peak()
        self.step()
        self.peak = _status("VmHWM") - before
        """Bytes of the process at their peak in a step, beyond what it had before the model was built."""

    def timed(self, seconds: float) -> list[float]:
        return timed_block(self.step, seconds)


class Elsewhere:
    """A system's step of a workload in a process of its own; `Unfit` as there."""

    def __init__(self, peer: str, workload: str) -> None:
        from peers import Unfit

        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        context.Process(target=_serve, args=(theirs, peer, workload), daemon=True).start()
        theirs.close()
        state, told = self._connection.recv()
        if state == "unfit":
            raise Unfit(told)
        self.losses, self.peak = told

    def timed(self, seconds: float) -> list[float]:
        self._connection.send(seconds)
        times: list[float] = self._connection.recv()
        return times


def _serve(connection: Any, peer: str, workload: str) -> None:
    """Time blocks of a step as they are asked for, until nobody asks any more."""
    from peers import Unfit, load

    try:
        load(peer)
        here = Here(peer, workload)
    except Unfit as reason:
        connection.send(("unfit", str(reason)))
        return
    connection.send(("ready", (here.losses, here.peak)))
    try:
        while True:
            connection.send(here.timed(connection.recv()))
    except EOFError:
        pass


def _status(name: str) -> int:
    """Bytes that Linux counts for this process under a name; 0 elsewhere."""
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))
    except (OSError, StopIteration):
        return 0


def _forget_peak() -> None:
    """Let the peak of memory begin anew."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass


def show(name: str, against: list[str], args: argparse.Namespace) -> str:
    """Race the systems on a workload; the row of the table."""
    from peers import PEERS, Unfit
    from workloads import WORKLOADS

    workload = WORKLOADS[name]
    runs: dict[str, Any] = {}
    make: Callable[[str, str], Any] = Elsewhere if args.separate else Here
    for peer in ["fluid", *against]:
        try:
            runs[peer] = make(peer, name)
        except Unfit as reason:
            print(f"{workload.what}: without {PEERS[peer][0]}: {reason}", flush=True)
    check_losses({peer: run.losses for peer, run in runs.items()}, TOLERANCE)
    medians = race_blocks({peer: run.timed for peer, run in runs.items()}, args.rounds, args.block)

    def cell(peer: str) -> str:
        if peer not in medians:
            return ""
        memory = f", {runs[peer].peak / 2**20:.0f} MiB" if args.separate else ""
        return milliseconds(medians[peer]) + memory

    others = {peer: seconds for peer, seconds in medians.items() if peer not in ("fluid", "numpy")}
    best = min(others, key=others.__getitem__, default=None)
    ratio = f"{medians['fluid'] / others[best]:.2f} of {PEERS[best][0]}" if best else ""
    cells = [workload.what, cell("fluid"), *map(cell, against), ratio, workload.remark]
    return f"| {' | '.join(cells)} |"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="workloads (all)")
    parser.add_argument("--against", default="torch,compile,jax,onnx", help="systems; numpy is another (%(default)s)")
    parser.add_argument("--threads", type=int, help="let each use so many cores (all)")
    parser.add_argument("--separate", action="store_true", help="a process for each system, and its peak memory")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (%(default)s)")
    parser.add_argument("--block", type=float, default=0.5, help="seconds of a turn (%(default)s)")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    if args.threads:  # before libraries are loaded, which ask for the number of cores
        cores = sorted(os.sched_getaffinity(0))
        if args.threads > len(cores):
            sys.exit(f"there are {len(cores)} cores")
        os.sched_setaffinity(0, cores[: args.threads])
    from peers import PEERS, versions
    from workloads import WORKLOADS

    against, names = [peer for peer in args.against.split(",") if peer], args.names or list(WORKLOADS)
    for kind, chosen, known in (("system", against, PEERS), ("workload", names, WORKLOADS)):
        if wrong := set(chosen) - set(known):
            sys.exit(f"there is no {kind} {', '.join(sorted(wrong))}; there are {', '.join(known)}")
    print(machine(), versions(), sep="\n")
    print(f"{args.threads or 'all'} cores used; {'a process for each' if args.separate else 'one process'}\n")
    rows = [show(name, against, args) for name in names]
    columns = ["what", "Fluid", *(PEERS[peer][0] for peer in against), "Fluid / best", "remark"]
    print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}", *rows, sep="\n")


if __name__ == "__main__":
    main()

"""A program with its feeds and fetches, and its text as a script that runs alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fluid.formats.text import program_to_string
from fluid.ir.nesting import walk
from fluid.ir.program import Program

from .arrays import Fed, sources_of

__all__ = ["Case", "Unfit", "script_of"]


class Unfit(Exception):
    """These choices make no program: an op refuses its inputs, or there would be too much work."""


@dataclass
class Case:
    """A program to be run.

    Attributes:
        feeds: what is fed in each run.
        fetches: names of variables.
        state: name -> what a variable of the scope holds before the first run, of those that `startup` does not initialize.
        is_single: native code is made of plans of one op, too.
        is_normwise: errors are as large as rounding makes them beside whole arrays, as those of decompositions are.
        expected: name of a fetch -> its array, where a test states it.
        title: what it is, in a word.
    """

    title: str
    main: Program
    startup: Program
    feeds: list[dict[str, Fed]]
    fetches: list[str]
    state: dict[str, Fed] = field(default_factory=dict)
    is_single: bool = False
    is_normwise: bool = False
    expected: dict[str, Any] = field(default_factory=dict)

    @property
    def draws_numbers(self) -> bool:
        """Whether a run draws random numbers, which XLA draws in its own way."""
        ops = walk(self.main.global_block().ops)
        return any(op.type == "dropout" and op.attr("dropout_prob") and not op.attr("is_test") for op in ops)

    @property
    def epsilon(self) -> float:
        """Half of the distance from 1 to the next number of the narrowest floats."""
        is_narrow = any(
            var.has_dtype and var.dtype.text == "float32" for block in self.main.blocks for var in block.vars.values()
        )
        return 2.0**-24 if is_narrow else 2.0**-53


HEAD = """\
from __future__ import annotations

import os

import numpy as np

import fluid
from fluid.executor.planned import plan
from fluid.formats.text import parse_program_text

"""

RUN = '''\
def run(native, threads=1):
    """The fetches of each run, and the variables of the scope after them."""
    os.environ["FLUID_NATIVE"] = native
    fluid.set_num_threads(threads)
    scope, executor, values = fluid.Scope(), fluid.Executor(), {}
    for name, array in first.items():
        scope.put(name, np.array(array, order="F"))
    for step, feed in enumerate(feeds):
        arrays = executor.run(main, feed, fetches, scope=scope)
        values |= {f"{name} of run {step}": np.asarray(array) for name, array in zip(fetches, arrays)}
    states = [name for name, var in main.global_block().vars.items() if var.persistable and scope.array(name) is not None]
    return values | {f"{name} afterwards": np.array(scope.array(name)) for name in states}


os.environ["FLUID_NATIVE"] = "0"
scope = fluid.Scope()
fluid.Executor().run(startup, scope=scope)
first |= {name: np.array(scope.array(name)) for name in startup.global_block().vars if scope.array(name) is not None}
numpy, native, threads = run("0"), run("1"), run("1", 2)
for name, value in numpy.items():
    error = np.abs(native[name].astype("float64") - value).max(initial=0), np.abs(np.asarray(value, "float64")).max(initial=0)
    bits = "" if native[name].tobytes() == threads[name].tobytes() else "; two threads have other bits"
    print(f"{name} {list(value.shape)}: native and numpy differ by {error[0]:.3g}, the largest is {error[1]:.3g}{bits}")
'''


def script_of(case: Case) -> str:
    """A script that runs a program natively and on numpy."""
    makers = {fed.maker for feed in (case.state, *case.feeds) for fed in feed.values()}
    parts = [HEAD, *((sources_of(makers), "\n\n") if makers else ())]
    for name, program in (("main", case.main), ("startup", case.startup)):
        parts.append(f'{name} = parse_program_text(r"""\n{program_to_string(program)}\n""")\n')
        parts.append(f"{name}.random_seed = {program.random_seed}\n")
    parts.append(f"first = {_dict_of(case.state)}\n")
    parts.append(f"feeds = [{', '.join(map(_dict_of, case.feeds))}]\n")
    parts.append(f"fetches = {case.fetches!r}\n")
    if case.is_single:
        parts.append("plan._FEWEST = 1  # native code of single ops\n")
    return "".join([*parts, "\n\n", RUN])


def _dict_of(feed: dict[str, Fed]) -> str:
    return "{" + ", ".join(f"{name!r}: {fed}" for name, fed in feed.items()) + "}"


def names_of(variables: Sequence[Any]) -> list[str]:
    return list(dict.fromkeys(var.name for var in variables))

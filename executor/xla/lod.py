"""Decides which batches of sequences are worth a compilation.

Offsets of sequences are constants of a compiled program, so each division of a batch into sequences needs its own compilation.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from fluid.ir.frames import warn_user
from fluid.ir.program import Program
from fluid.values.spec import Lod

MOST_LODS = 16
"""The number of LoDs for which one program with certain fetches is compiled."""


class LodPolicy:
    """Decides for each batch of sequences whether XLA compiles the program for it, or numpy runs it.

    XLA compiles for the first `MOST_LODS` LoDs, held in the order of their last use. After that, numpy runs batches with new
    LoDs, with a warning. A LoD that comes again soon replaces the least recently used one.
    """

    def __init__(self) -> None:
        self._programs: WeakKeyDictionary[Program, dict[Hashable, _Recent]] = WeakKeyDictionary()

    def is_compiled(self, program: Program, fetches: Sequence[str], lods: Mapping[str, Lod]) -> bool:
        """Whether XLA compiles a program with these fetches for these LoDs of the feeds."""
        of_program = self._programs.setdefault(program, {})
        recent = of_program.setdefault((program.version, *fetches), _Recent(OrderedDict(), OrderedDict()))
        key = tuple(sorted(lods.items()))
        if key not in recent.compiled and len(recent.compiled) >= MOST_LODS and key not in recent.on_numpy:
            if not recent.on_numpy:
                _warn(next(iter(lods)))
            _note(recent.on_numpy, key)
            return False
        recent.on_numpy.pop(key, None)
        _note(recent.compiled, key)
        return True


class _Recent(NamedTuple):
    """The LoDs of the feeds of one program, the most recently used last."""

    compiled: OrderedDict[Hashable, None]
    on_numpy: OrderedDict[Hashable, None]


def _note(recent: OrderedDict[Hashable, None], lods: Hashable) -> None:
    """Mark LoDs as most recently used; forget the least recently used ones beyond the limit."""
    recent[lods] = None
    recent.move_to_end(lods)
    while len(recent) > MOST_LODS:
        recent.popitem(last=False)


def _warn(name: str) -> None:
    warn_user(
        f"a program was compiled by XLA for {MOST_LODS} different lengths of the sequences in {name}; batches with others run on "
        "numpy. Bucket the sequences: batch those of like lengths, and fill them up to one of a few lengths, so that the same "
        "come again",
        RuntimeWarning,
    )

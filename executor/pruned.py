"""Copies of programs that keep only the ops that fetches need, for `Executor.run` with ``use_prune``."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Any

from fluid.ir.program import Program

_Key = tuple[int, tuple[str, ...], tuple[str, ...]]
"""Version of a program, names that are fed, and names that are fetched."""


class PrunedPrograms:
    """A cache of pruned copies of programs: they keep only the ops that fetches need."""

    def __init__(self) -> None:
        self._copies: weakref.WeakKeyDictionary[Program, dict[_Key, Program]] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def copy_for(self, program: Program, feed: Mapping[Any, Any], fetches: list[str]) -> tuple[Program, dict[Any, Any]]:
        """The copy of a program for fetches, and the feeds that it reads. Feeds of unknown names stay: a run refuses them."""
        feeds = {getattr(name, "name", name): value for name, value in feed.items()}
        declared = program.global_block().vars
        key = program.version, (*sorted(map(str, feeds)),), (*fetches,)
        with self._lock:
            copies = self._copies.setdefault(program, {})
            if key not in copies:
                for old in [old for old in copies if old[0] != program.version]:
                    del copies[old]
                copies[key] = program._prune_with_input([name for name in feeds if name in declared], fetches)
            copy = copies[key]
        return copy, {name: value for name, value in feeds.items() if name in copy.global_block().vars or name not in declared}

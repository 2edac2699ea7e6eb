"""Tables of an engine's functions by op type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from ..errors import ProgramError

Entry = TypeVar("Entry")


class OpTable(dict[str, Entry], Generic[Entry]):
    """Op type -> an engine's entry for ops of this type, each registered once.

    Args:
        noun: the entries' name in errors, such as ``"kernel"``.
    """

    def __init__(self, noun: str) -> None:
        super().__init__()
        self.noun = noun

    def add(self, entries: Mapping[str, Entry]) -> None:
        """Add entries; `ProgramError` if an op has one."""
        for op_type, entry in entries.items():
            if op_type in self:
                raise ProgramError(f"the op {op_type!r} already has a {self.noun}")
            self[op_type] = entry

    def register(self, *op_types: str) -> Callable[[Entry], Entry]:
        """Make a decorator that adds a function for each of these op types."""

        def register(entry: Entry) -> Entry:
            self.add(dict.fromkeys(op_types, entry))
            return entry

        return register

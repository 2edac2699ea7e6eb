"""Which ops Paddle runs in float16."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import ProgramError

__all__ = ["AutoMixedPrecisionLists"]


class AutoMixedPrecisionLists:
    """Types of ops to run in float16 (white) and in float32 (black); kept for scripts, without effect here.

    `ProgramError` if an op is in both lists.
    """

    def __init__(self, custom_white_list: Iterable[str] | None = None, custom_black_list: Iterable[str] | None = None) -> None:
        self.white_list, self.black_list = set(custom_white_list or ()), set(custom_black_list or ())
        self.gray_list: set[str] = set()
        if both := self.white_list & self.black_list:
            raise ProgramError(f"AutoMixedPrecisionLists: {', '.join(sorted(both))} cannot be in both lists")

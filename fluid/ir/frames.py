"""Where in the user's code something was made: a few bare frames, formatted only when somebody asks."""

from __future__ import annotations

import contextlib
import os
import sys
from types import CodeType

__all__ = ["OURS", "Frames", "user_frame", "user_frames"]

Frames = tuple[tuple[CodeType, int], ...]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_HERE = _PACKAGE + os.sep
_EXECUTOR = os.path.join(os.path.dirname(_PACKAGE), "executor") + os.sep


class _Ours(dict[str, bool]):
    """File name -> whether it is Fluid's own (or a file that stands between Fluid and its user)."""

    def __missing__(self, filename: str) -> bool:
        found = self[filename] = filename.startswith((_HERE, _EXECUTOR)) or filename == contextlib.__file__
        return found


OURS = _Ours()
_seen: dict[Frames, Frames] = {}
"""Ops made by one line share their frames: a loop makes thousands."""


def user_frames(limit: int = 3) -> Frames:
    """The innermost `limit` frames outside Fluid, innermost first, as (code, line) pairs."""
    frame = sys._getframe(1)
    while frame is not None and OURS[frame.f_code.co_filename]:
        frame = frame.f_back  # type: ignore[assignment]
    found: list[tuple[CodeType, int]] = []
    while frame is not None and len(found) < limit:
        found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back  # type: ignore[assignment]
    frames = tuple(found)
    return _seen.setdefault(frames, frames)


def user_frame(frames: Frames) -> tuple[str, int, str] | None:
    """(file, line, function) of the innermost of these frames."""
    if not frames:
        return None
    code, line = frames[0]
    return code.co_filename, line, code.co_name

"""The lines of the user's code that made an object: a few (code, line) pairs, formatted only when needed."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from types import CodeType, FrameType
from typing import NamedTuple

from ..values.cache import Cache


class CodeName(NamedTuple):
    """The file and name of code. It replaces the code in a pickle or a copy of frames, which cannot hold code."""

    co_filename: str
    co_name: str


Frames = tuple[tuple[CodeType | CodeName, int], ...]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_HERE = _PACKAGE + os.sep
_EXECUTOR = os.path.join(os.path.dirname(_PACKAGE), "executor") + os.sep


class _Ours(dict[str, bool]):
    """File name -> whether it is part of Fluid, or is contextlib, which calls the user's code on its behalf."""

    def __missing__(self, filename: str) -> bool:
        is_ours = self[filename] = filename.startswith((_HERE, _EXECUTOR)) or filename == contextlib.__file__
        return is_ours


OURS = _Ours()
_seen: dict[Frames, Frames] = {}
"""Ops made by the same line share their frames; a loop may make thousands."""
_at: Cache[tuple[int, ...], tuple[Frames, Frames]] = Cache()
"""Identities of code and instructions -> the frames at that place, since lines and hashes are slow to find. Each entry also
holds the frames with the very code objects, which keeps these alive and their identities unique."""


def user_frames(limit: int = 3) -> Frames:
    """The innermost `limit` frames outside Fluid, innermost first, as (code, line) pairs; equal code is the same object."""
    frame = innermost = _first_outside()
    place: list[int] = []
    while frame is not None and len(place) < 2 * limit:
        place += (id(frame.f_code), frame.f_lasti)
        frame = frame.f_back
    key = tuple(place)
    both = _at.get(key)
    if both is None:
        frames = _pairs(innermost, limit)
        both = _at.keep(key, (_seen.setdefault(frames, frames), frames))
    return both[0]


def current_frames(limit: int = 3) -> Frames:
    """`user_frames`, with the very code that runs now."""
    return _pairs(_first_outside(), limit)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line outside Fluid, however many calls lie between."""
    frame = _first_outside()
    if frame is None:
        warnings.warn(message, category, stacklevel=2)
        return
    space = frame.f_globals
    registry = space.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno, space.get("__name__"), registry)


def _first_outside() -> FrameType | None:
    """The innermost frame outside Fluid."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and OURS[frame.f_code.co_filename]:
        frame = frame.f_back
    return frame


def _pairs(frame: FrameType | None, limit: int) -> Frames:
    """(code, line) of `frame` and those around it."""
    pairs: list[tuple[CodeType | CodeName, int]] = []
    while frame is not None and len(pairs) < limit:
        pairs.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(pairs)


def is_run_again(frames: Frames) -> bool:
    """Whether the running code is a copy of the code in `frames`, at the same lines: a cell of a notebook that is run again.

    A loop runs the same code object, so it is not a copy.
    """
    cell = next((number for number, (code, _) in enumerate(frames) if code.co_name == "<module>"), len(frames))
    now = current_frames(len(frames))[: cell + 1]
    return now == frames[: cell + 1] and any(
        current[0] is not previous[0] for current, previous in zip(now, frames, strict=False)
    )


def portable(frames: Frames) -> Frames:
    """The same places, without the code."""
    return tuple((CodeName(code.co_filename, code.co_name), line) for code, line in frames)


def user_frame(frames: Frames) -> tuple[str, int, str] | None:
    """(file, line, function) of the innermost of these frames; None if there are none."""
    if not frames:
        return None
    code, line = frames[0]
    return code.co_filename, line, code.co_name

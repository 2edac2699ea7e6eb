"""Cache folders for compiled code; only folders that nobody else can write to are used."""

from __future__ import annotations

import os
import stat
import sys
import warnings
from dataclasses import dataclass

from fluid.formats.writing import reason

_warned: set[str] = set()
"""Folders with a warning already given."""


@dataclass(frozen=True)
class CacheFolder:
    """A folder of files that can be recreated.

    Attributes:
        variable: the environment variable that names the folder; ``0`` or empty: no folder.
        name: its name in the system's cache folder.
        holds: a description of its contents, for messages.
    """

    variable: str
    name: str
    holds: str

    def path(self) -> str | None:
        """The folder, created if missing; None if there is none, or if it cannot be trusted."""
        path = os.environ.get(self.variable, self._usual())
        if path in ("", "0"):
            return None
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
            status = os.lstat(path)
        except (OSError, ValueError) as error:
            self.warn(path, f"{path}: the folder cannot be made: {reason(error)}")
            return None
        if not stat.S_ISDIR(status.st_mode) or not is_own(status):
            self.warn(
                path,
                f"{path}: this has to be a folder, not a link, that belongs to you and that only you can write to (chmod 700)",
            )
            return None
        return path

    def _usual(self) -> str:
        """The cache folder of the user's system."""
        home = os.path.expanduser("~")
        if sys.platform == "win32":
            base = os.environ.get("LOCALAPPDATA", "")
        elif sys.platform == "darwin":
            base = os.path.join(home, "Library", "Caches")
        else:
            base = os.environ.get("XDG_CACHE_HOME", "")
            base = base if os.path.isabs(base) else os.path.join(home, ".cache")
        return os.path.join(base, "fluid", self.name) if os.path.isabs(base) else ""

    def warn(self, place: str, problem: str) -> None:
        """Warn, once for each folder, that nothing is cached."""
        if place in _warned:
            return
        _warned.add(place)
        message = f"{self.holds} are not kept on disk. {problem}. {self.variable} names another folder, or 0 for none"
        warnings.warn(message, RuntimeWarning, stacklevel=2)


def is_own(status: os.stat_result) -> bool:
    """Whether a file or folder belongs to the user, and nobody else can write to it."""
    return sys.platform == "win32" or (status.st_uid == os.geteuid() and not status.st_mode & 0o022)

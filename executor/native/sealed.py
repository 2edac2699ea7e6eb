"""Files of the cache of native code: each is sealed by a digest, belongs to the user, and can be made again.

The folder is ``FLUID_NATIVE_CACHE`` (``0`` or empty: no cache), or else the system's folder for user caches. It is used only if
it belongs to the user, is no link, and nobody else can write to it. The same holds for a file, whose digest must also be right;
other files are ignored and replaced. The limits are 64 MiB and 512 files; the least recently used files are removed first. If
nothing can be written, one warning is issued, and each process compiles for itself.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import threading
from contextlib import suppress

from ...formats.writing import reason
from ..runtime.cache_folder import CacheFolder, is_own

BUNDLE, PLAN, TOOLS = ".kernels", ".plan", ".tools"
"""File name suffixes of bundles, of plans (see `fluid.executor.planned.records`), and of facts about compiler and processor."""
MOST_BYTES, _MOST_FILES = 64 << 20, 512
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
"""Flags to create a file that must not exist."""
_NAME = re.compile(rf"[0-9a-f]{{64}}(?:{BUNDLE}|{PLAN}|{TOOLS})")
_FOLDER = CacheFolder("FLUID_NATIVE_CACHE", "native", "native kernels")


def folder() -> str | None:
    """The folder of the cache, created if it is missing; None if there is no cache or the folder is not trusted."""
    return _FOLDER.path()


def _files(place: str) -> list[tuple[float, str, int]]:
    """(time of last use, path, size) of each file, most recently used first."""
    files = []
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name):
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    files.append((status.st_mtime, entry.path, status.st_size))
    return sorted(files, reverse=True)


def bundles(place: str) -> list[str]:
    """The paths of all bundles."""
    with suppress(OSError):
        return [os.path.join(place, name) for name in os.listdir(place) if name.endswith(BUNDLE) and _NAME.fullmatch(name)]
    return []


def read(path: str, most: int = MOST_BYTES) -> bytes:
    """Read at most `most` bytes of a file; empty if it is not the user's, no regular file, or unreadable."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with suppress(OSError), open(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode) and is_own(status):
            return file.read(min(most, status.st_size))  # Python allocates the requested number of bytes
    return b""


def note_use(path: str) -> None:
    """Count a file as used now, so that it is removed later."""
    with suppress(OSError):
        os.utime(path)


def read_sealed(path: str, head: bytes) -> bytes | None:
    """The body of a file of the cache with this head; None if it is missing, damaged or not the user's."""
    body = unseal(head, read(path))
    if body is not None:
        note_use(path)
    return body


def write_sealed(path: str, head: bytes, body: bytes) -> None:
    """Write a file that `read_sealed` reads: the head, a digest and the body."""
    write_file(path, seal(head, body))


def write_file(path: str, data: bytes) -> None:
    """Write a file of the cache, then remove the oldest files above the limits."""
    place = os.path.dirname(path)
    temporary = f"{path}.{os.getpid()}-{threading.get_ident()}"
    try:
        with open(os.open(temporary, _NEW, 0o600), "wb") as file:
            file.write(data)  # an incomplete file has a wrong digest
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            os.unlink(temporary)
        _FOLDER.warn(place, f"{path}: the file cannot be written: {reason(error)}")
    total = 0
    for number, (_, old_path, size) in enumerate(_files(place)):
        total += size
        if total > MOST_BYTES or number >= _MOST_FILES:
            with suppress(OSError):
                os.unlink(old_path)


def seal(head: bytes, body: bytes) -> bytes:
    """The contents of a file: head, digest of the body, body."""
    return b"".join((head, hashlib.sha256(body).digest(), body))


def unseal(head: bytes, data: bytes) -> bytes | None:
    """The body of a file; None if its head or digest is wrong."""
    start = len(head) + 32
    if not data.startswith(head) or hashlib.sha256(data[start:]).digest() != data[len(head) : start]:
        return None
    return data[start:]

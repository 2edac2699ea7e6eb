"""Writing files so that none is half done, and several so that they belong together.

What is to be a file is first written to a temporary one in the same folder, is brought to the disk, and then takes the other's
name, which replaces an older file at once. Whenever the process ends, also by being killed, each name stands for the whole old
file or the whole new one. A new file has the permissions of the one that it replaces; through a link, what that leads to is
replaced.

Files that are written inside `together` all wait until the last of them is on the disk, and are renamed in the order in which
they were written. What can go wrong in writing (a disk that is full, a value that cannot be saved, a kill) thus leaves all of
them as they were. Only a process that ends between two renames, which follow each other at once, leaves some new beside
others old; so what readers look for first is to be written last.

A process that is killed leaves its temporaries: ``.fluid-<16 hexadecimal digits>``, which it had locked, and others with
``-<number>`` behind this. Who writes to the same folder next removes those that no process holds locked any more.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any, BinaryIO

from ..errors import FluidError

locks: Any
try:
    import fcntl as locks
except ImportError:  # where open files cannot be removed, which tells as much
    locks = None

__all__ = ["atomic_writer", "reason", "together", "write_file"]

_TEMPORARY = re.compile(r"(\.fluid-[0-9a-f]{16})(-[0-9]+)?")


def reason(error: Exception) -> str:
    """What went wrong with a file, in few words."""
    return getattr(error, "strerror", None) or str(error)


def _failed(path: str, error: Exception) -> FluidError:
    return FluidError(f"{path or repr(path)}: the file cannot be written: {reason(error)}")


class _Folder:
    """A folder that is written to: the names of temporaries there, for as long as the lock is held that says so."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._count = 0
        try:
            os.makedirs(path, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
        _remove_abandoned(path)
        while True:
            self._name = os.path.join(path, f".fluid-{secrets.token_hex(8)}")
            self._lock = open(self._name, "xb")  # noqa: SIM115
            if _locked(self._lock.fileno()) is not False and os.path.exists(self._name):
                break
            self._lock.close()  # somebody took it for abandoned before it was locked

    def temporary(self) -> str:
        self._count += 1
        return f"{self._name}-{self._count}"

    def flush(self) -> None:
        """Have the disk know the new names, where the system can."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def close(self) -> None:
        if locks is None:
            self._lock.close()
        with contextlib.suppress(OSError):
            os.unlink(self._name)
        self._lock.close()


def _locked(descriptor: int) -> bool | None:
    """Whether this could lock the file: False where another process has, None where it cannot be known."""
    if locks is None:
        return None
    try:
        locks.flock(descriptor, locks.LOCK_EX | locks.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True


def _remove_abandoned(folder: str) -> None:
    """Remove what killed processes have left in a folder; what is not surely theirs stays, and so does what cannot be removed."""
    try:
        found = [match for match in map(_TEMPORARY.fullmatch, os.listdir(folder)) if match]
    except OSError:
        return
    for lock in [match[0] for match in found if not match[2]]:
        path = os.path.join(folder, lock)
        with contextlib.suppress(OSError), _held(path):
            for match in found:
                if match[1] == lock and match[2]:
                    _remove_file(os.path.join(folder, match[0]))
            os.unlink(path)  # last, since the others are known by it


@contextlib.contextmanager
def _held(path: str) -> Iterator[None]:
    """Inside, nobody else holds this lock; `OSError` where somebody may."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise OSError
    if locks is None:
        os.rename(path, path)  # refused where it is open
        yield
        return
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not _locked(descriptor):
            raise OSError
        yield
    finally:
        os.close(descriptor)


def _remove_file(path: str) -> None:
    if stat.S_ISREG(os.lstat(path).st_mode):
        os.unlink(path)


def _target(path: str) -> str:
    """The file that a path leads to, by links too, whatever the working directory becomes."""
    if not os.path.basename(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return os.path.realpath(path)


def _check_name(path: str) -> None:
    """`OSError` or `ValueError` where no file can have this name: to be known before others have got theirs."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


class _Group:
    """Files that take their places when all are written."""

    def __init__(self) -> None:
        self._folders: dict[str, _Folder] = {}
        self._begun: list[str] = []
        self._written: list[tuple[str, str]] = []
        """(temporary, name) of those that are whole."""

    @contextlib.contextmanager
    def writer(self, path: str) -> Iterator[BinaryIO]:
        try:
            path = _target(path)
            home = os.path.dirname(path)
            folder = self._folders.get(home)
            if folder is None:
                folder = self._folders[home] = _Folder(home)
            _check_name(path)
            temporary = folder.temporary()
            file = open(temporary, "xb")  # noqa: SIM115
        except (OSError, ValueError) as error:
            raise _failed(path, error) from None
        self._begun.append(temporary)
        try:
            with file:
                with contextlib.suppress(OSError):  # of the older file, or none
                    os.chmod(temporary, stat.S_IMODE(os.stat(path).st_mode))
                yield file
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise _failed(path, error) from None
        self._written.append((temporary, path))

    def commit(self) -> None:
        """Give the files their names; the last one once the disk knows the others."""
        count = len(self._written)
        for number in range(count):
            if 0 < number == count - 1:
                self._flush()
            temporary, path = self._written[0]
            try:
                os.replace(temporary, path)
            except OSError as error:
                raise _failed(path, error) from None
            del self._written[0]
        self._flush()

    def _flush(self) -> None:
        for folder in self._folders.values():
            folder.flush()

    def close(self) -> None:
        for temporary in self._begun:
            with contextlib.suppress(OSError):  # most have got their names
                os.unlink(temporary)
        for folder in self._folders.values():
            folder.close()


_group: ContextVar[_Group | None] = ContextVar("_group", default=None)


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Files that are written inside the ``with`` take their places at its end, in order; on an error, none of them does."""
    if _group.get() is not None:
        yield  # inside another, which ends later
        return
    group = _Group()
    token = _group.set(group)
    try:
        yield
        group.commit()
    finally:
        _group.reset(token)
        group.close()


@contextlib.contextmanager
def atomic_writer(path: str) -> Iterator[BinaryIO]:
    """A file that takes its place under `path` only once everything has been written; on an error nothing changes.

    Raises:
        FluidError: the file cannot be written; says which, and why.
    """
    with together():
        group: Any = _group.get()
        with group.writer(path) as file:
            yield file


def write_file(path: str, chunks: Iterable[bytes]) -> None:
    """Write a file whole or not at all; errors as of `atomic_writer`."""
    with atomic_writer(path) as file:
        file.writelines(chunks)

"""Atomic writing of files, one at a time or several together.

A file is first written to a temporary file in the same folder and flushed to the disk; then it is renamed, which replaces an
older file atomically. If the process is killed, each name stands for the whole old file or the whole new one. A new file gets
the permissions of the old one; if the name is a link, the link's target is replaced. A special file (a device,
a fifo, a socket) is never replaced: that is an error before anything is written.

Files that are written inside `together` are renamed when the last of them is on the disk, in the order of writing. An error
before that (a full disk, a value that cannot be saved, a kill) leaves all old files unchanged. A process that ends between two
renames leaves a commit. Readers find all new files by it, and the next writer ends the renames (`fluid.formats.commits`). As
other programs know nothing of commits, write the file that they look for first last.

A process that is killed leaves temporary files: ``.fluid-<16 hexadecimal digits>``, which it had locked, and others with
``-<number>`` appended. The next process that writes to the folder removes files whose lock is free and that no save counts.
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
from .commits import Place, finish_commits, flush_folder, remove_commits, write_commits

locks: Any
try:
    import fcntl as locks
except ImportError:  # Windows, where an open file cannot be removed, which serves as a lock
    locks = None


_TEMPORARY = re.compile(r"(\.fluid-[0-9a-f]{16})(-[0-9]+)?")


def reason(error: Exception) -> str:
    """The text of an error, without number and path if it is an `OSError`."""
    return getattr(error, "strerror", None) or str(error)


def _failed(path: str, error: Exception) -> FluidError:
    return FluidError(f"{path or repr(path)}: the file cannot be written: {reason(error)}")


class _Folder:
    """A folder that is written to; holds the lock of the temporary files there, and makes their names."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._count = 0
        try:
            os.makedirs(path, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
        _finish_earlier(path)
        _remove_abandoned(path)
        while True:
            number = secrets.token_hex(8)
            self._name = os.path.join(path, f".fluid-{number}")
            self.place = path, number
            self._lock = open(self._name, "xb")  # noqa: SIM115
            if _locked(self._lock.fileno()) is not False and os.path.exists(self._name):
                break
            self._lock.close()  # another process removed it as abandoned before it was locked

    def temporary(self) -> str:
        self._count += 1
        return f"{self._name}-{self._count}"

    def close(self) -> None:
        if locks is None:
            self._lock.close()
        with contextlib.suppress(OSError):
            os.unlink(self._name)
        self._lock.close()


def _locked(descriptor: int) -> bool | None:
    """Lock a file; returns whether it worked: False if another process has the lock, None if locks are not supported."""
    if locks is None:
        return None
    try:
        locks.flock(descriptor, locks.LOCK_EX | locks.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True


def _finish_earlier(folder: str) -> None:
    """Finish the saves of killed processes in a folder; readers would take them for later than the save that begins."""
    try:
        finish_commits(folder)
    except OSError as error:
        raise OSError(
            error.errno, f"an earlier save there was interrupted, and its files cannot be renamed: {reason(error)}"
        ) from None


def _remove_abandoned(folder: str) -> None:
    """Remove the temporary files of killed processes from a folder, as far as possible; files that may be in use stay."""
    try:
        matches = [match for match in map(_TEMPORARY.fullmatch, os.listdir(folder)) if match]
    except OSError:
        return
    for lock in [match[0] for match in matches if not match[2]]:
        path = os.path.join(folder, lock)
        with contextlib.suppress(OSError), _held(path):
            finish_commits(folder)  # it may have ended right now
            remove_commits([(folder, lock.removeprefix(".fluid-"))])  # which does not count
            for match in matches:
                if match[1] == lock and match[2]:
                    _remove_file(os.path.join(folder, match[0]))
            os.unlink(path)  # last, since it identifies the others


@contextlib.contextmanager
def _held(path: str) -> Iterator[None]:
    """Inside the ``with``, this process holds the lock `path`; `OSError` if another may."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise OSError
    if locks is None:
        os.rename(path, path)  # fails if it is open
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
    """The absolute path of a file, with links resolved."""
    if not os.path.basename(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return os.path.realpath(path)


_SPECIAL = {stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}


def _check_name(path: str) -> None:
    """Raise `OSError` or `ValueError` if no file can have this name, or if it names something other than a regular file."""
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except FileNotFoundError:
        return
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if kind != stat.S_IFREG:
        special = _SPECIAL.get(kind, "special file")
        raise OSError(errno.EINVAL, f"it is a {special}, no regular file, and would be replaced by one; give the path of a file")


class _FileGroup:
    """Files that are renamed together, after all of them are written."""

    def __init__(self) -> None:
        self._folders: dict[str, _Folder] = {}
        self._begun: list[str] = []
        self._pending: list[tuple[str, str]] = []
        """(temporary, path) of the files that are complete."""

    @contextlib.contextmanager
    def writer(self, path: str) -> Iterator[BinaryIO]:
        try:
            _check_name(path)  # as it was given, and before anything is written
            path = _target(path)
            home = os.path.dirname(path)
            folder = self._folders.get(home)
            if folder is None:
                folder = self._folders[home] = _Folder(home)
            _check_name(path)  # again, since in a new folder other names are possible
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
        self._pending.append((temporary, path))

    def commit(self) -> None:
        """Rename the files; several at one moment, which is when their commits are on the disk."""
        files = self._files() if len(self._pending) > 1 else {}
        if files:
            self._write_commits(files)
        begun, self._begun = self._begun, [] if files else self._begun  # the temporary files are the commits' now
        for number, (temporary, path) in enumerate(self._pending):
            try:
                os.replace(temporary, path)
            except OSError as error:
                if files and not os.path.lexists(temporary):
                    continue  # another process, which found the commit, has renamed it
                if number == 0:  # the old files are all there
                    remove_commits(files)
                    self._begun = begun
                raise _failed(path, error) from None
        self._flush()
        remove_commits(files)
        self._begun = begun

    def _files(self) -> dict[Place, dict[str, str]]:
        """For the commit in each folder, the temporary file for each name."""
        files: dict[Place, dict[str, str]] = {}
        for temporary, path in self._pending:
            home, name = os.path.split(path)
            files.setdefault(self._folders[home].place, {})[name] = os.path.basename(temporary)
        return files

    def _write_commits(self, files: dict[Place, dict[str, str]]) -> None:
        self._flush()
        try:
            write_commits(files)
        except OSError as error:
            remove_commits(files)
            raise _failed(self._pending[0][1], error) from None
        except BaseException:
            remove_commits(files)
            raise

    def _flush(self) -> None:
        for home in self._folders:
            flush_folder(home)

    def close(self) -> None:
        for temporary in self._begun:
            with contextlib.suppress(OSError):  # most have been renamed
                os.unlink(temporary)
        for folder in self._folders.values():
            folder.close()


_group: ContextVar[_FileGroup | None] = ContextVar("_group", default=None)


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Files written inside the ``with`` replace older ones at its end, in order; on an error, none of them does."""
    if _group.get() is not None:
        yield  # the outer one renames
        return
    group = _FileGroup()
    token = _group.set(group)
    try:
        yield
        group.commit()
    finally:
        _group.reset(token)
        group.close()


@contextlib.contextmanager
def atomic_writer(path: str) -> Iterator[BinaryIO]:
    """Opens a file that replaces `path` when the ``with`` ends; on an error nothing changes.

    Raises:
        FluidError: the file cannot be written; names it and the reason.
    """
    with together():
        group: Any = _group.get()
        with group.writer(path) as file:
            yield file


def write_file(path: str, chunks: Iterable[bytes]) -> None:
    """Write a file atomically; errors as of `atomic_writer`."""
    with atomic_writer(path) as file:
        file.writelines(chunks)

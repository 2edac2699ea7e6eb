"""Saves of several files take effect at one moment, although their files are renamed one after the other.

A save of several files first writes them all under temporary names, then a commit, then it renames them, and removes the commit.
The commit tells which temporary file replaces which; it is a file in the folder ``.fluid-commit``. With it the save counts: if
the process is killed before all files have their names, readers take the temporary files in their place, and the next process
that writes to the folder ends the renames. So each reader here finds the whole old save or the whole new one.

Files of a save may lie in several folders. Each folder has a commit. The first folder's commit is written last; without it
the others do not count.

A commit is no more trusted than a file of parameters: it can rename only temporary files, within their folder. In a folder
where users may only remove their own files, such as ``/tmp``, the commits of other users do not count.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO

Place = tuple[str, str]
"""A folder, and the name of a commit in it."""
_FOLDER = ".fluid-commit"
_NAME = re.compile(r"[0-9a-f]{16}")
_TEMPORARY = re.compile(r"\.fluid-[0-9a-f]{16}-[0-9]+")
_MOST = 16 << 20
"""Bytes of a commit; a file takes about a hundred."""


@dataclass(frozen=True)
class _Commit:
    """A commit that was read.

    Attributes:
        place: where it is.
        files: the temporary file for each name.
        peers: the commits in other folders, if this is the first.
        first: the first commit, if this is another.
    """

    place: Place
    files: Mapping[str, str]
    peers: tuple[Place, ...]
    first: Place | None


# ------------------------------------------------------------------------------------------------------------- reading
def open_saved(path: str) -> BinaryIO:
    """Open the file that was last saved as `path`, to read its bytes; errors as of `open`."""
    try:
        return open(current(path), "rb")
    except FileNotFoundError:  # perhaps it was renamed after `current` had seen it
        return open(path, "rb")


def current(path: str) -> str:
    """The file that holds the last save of `path`: itself, or a temporary file that has not replaced it yet."""
    folder, name = os.path.split(os.path.realpath(path))
    for commit in reversed(_commits(folder)):
        if name in commit.files:
            temporary = os.path.join(folder, commit.files[name])
            return temporary if _is_regular(temporary) else path
    return path


def is_saved(path: str) -> bool:
    """Whether there is a file of this path, or one was saved as it and is not renamed yet."""
    try:
        return os.path.isfile(current(path))
    except ValueError:  # no file has such a name
        return False


def names_in(folder: str) -> list[str]:
    """The names in a folder, including files that are not renamed yet; errors as of `os.listdir`."""
    names = set(os.listdir(folder))
    for commit in _commits(os.path.realpath(folder)):
        names.update(commit.files)
    return sorted(names - {_FOLDER})


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _commits(folder: str) -> list[_Commit]:
    """The commits in a folder that count, in the order of finishing them."""
    try:
        names = sorted(filter(_NAME.fullmatch, os.listdir(os.path.join(folder, _FOLDER))))
    except (OSError, ValueError):
        return []
    commits = (_read((folder, name)) for name in names)
    return [commit for commit in commits if commit is not None and _first_of(commit) is not None]


def _first_of(commit: _Commit) -> _Commit | None:
    """The first commit of a commit's save; None if it is missing, so that the save does not count."""
    if commit.first is None:
        return commit
    first = _read(commit.first)
    return first if first is not None and commit.place in first.peers else None


def _read(place: Place) -> _Commit | None:
    """The commit at a place; None if there is none, or only a part of one, or one that is not trusted."""
    folder, name = place
    path = os.path.join(folder, _FOLDER, name)
    try:
        home, status = os.stat(folder), os.lstat(path)
        is_ours = not home.st_mode & stat.S_ISVTX or status.st_uid in (os.geteuid(), home.st_uid)
        if not is_ours or not stat.S_ISREG(status.st_mode) or status.st_size > _MOST:
            return None
        return _parsed(place, path, status.st_ino, status.st_mtime_ns, status.st_size)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


@lru_cache(maxsize=8)
def _parsed(place: Place, path: str, inode: int, time: int, size: int) -> _Commit:
    """The commit in a file, which is read again when its inode, its time or its size changes."""
    with open(path, "rb") as file:
        content = json.load(file)
    files, peers, first = content["files"], content.get("others", []), content.get("first")
    for name, temporary in files.items():
        if name in ("", ".", "..") or name != os.path.basename(name) or "\0" in name or not _TEMPORARY.fullmatch(temporary):
            raise ValueError(f"{name!r} is no name of a file in a folder, or {temporary!r} none of a temporary file")
    return _Commit(
        place, files, tuple(_place(place, *entry) for entry in peers), None if first is None else _place(place, *first)
    )


def _place(place: Place, folder: str, name: str) -> Place:
    """The place of a commit that another one names."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a commit")
    return os.path.realpath(os.path.join(place[0], folder)), name


# ------------------------------------------------------------------------------------------------------------- writing
def write_commits(files: Mapping[Place, Mapping[str, str]]) -> None:
    """Write the commits of a save: at each place, the temporary file for each name. At the end the save counts."""
    first, *peers = files
    for place in peers:
        _write(place, {"files": files[place], "first": _seen_from(place, first)})
    _write(first, {"files": files[first], "others": [_seen_from(first, place) for place in peers]})


def _seen_from(place: Place, target: Place) -> Place:
    try:
        return os.path.relpath(target[0], place[0]), target[1]
    except ValueError:  # of Windows, where they are on two drives
        return target


def _write(place: Place, content: Any) -> None:
    folder, name = place
    home = os.path.join(folder, _FOLDER)
    while True:
        with contextlib.suppress(FileExistsError):
            os.mkdir(home)
        try:
            file = open(os.path.join(home, name), "xb")  # noqa: SIM115
            break
        except FileNotFoundError:  # another process removed the folder, which was empty
            continue
    with file:
        file.write(json.dumps(content).encode())
        file.flush()
        os.fsync(file.fileno())
    flush_folder(home)
    flush_folder(folder)


def remove_commits(places: Iterable[Place]) -> None:
    """Remove the commits of a save, the first one first; skip missing ones."""
    for folder, name in places:
        home = os.path.join(folder, _FOLDER)
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(home, name))
        with contextlib.suppress(OSError):  # commits of others are in it
            os.rmdir(home)


def finish_commits(folder: str) -> None:
    """Rename the files of all saves that count and were not finished; `OSError` if one cannot be renamed.

    The process that made a save may still be alive and rename its files, too. Each temporary file is renamed only once.
    """
    for commit in _commits(os.path.realpath(folder)):
        first = _first_of(commit)
        if first is not None:
            _finish(first)


def _finish(first: _Commit) -> None:
    peers = [commit for commit in map(_read, first.peers) if commit is not None and commit.first == first.place]
    for commit in (first, *peers):
        folder = commit.place[0]
        for name, temporary in commit.files.items():
            source, target = os.path.join(folder, temporary), os.path.join(folder, name)
            if not _is_regular(source):
                continue  # it was renamed
            if os.path.lexists(target) and not _is_regular(target):
                raise OSError(errno.EINVAL, f"{target} is no regular file")
            with contextlib.suppress(FileNotFoundError):
                os.replace(source, target)
        flush_folder(folder)
    remove_commits((first.place, *first.peers))


def flush_folder(path: str) -> None:
    """Flush the names in a folder to the disk, where the system supports it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

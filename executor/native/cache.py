"""Kernels compiled together, and kept on disk.

A kernel's key is a digest of all that its code depends on: its signature, which says what its text is made of, the sources of
this package, which make it, processor, LLVM, and the format of this cache. So the text is written only where it is compiled.
Kernels that are neither loaded in this process nor on disk are compiled in few modules, by threads, which takes half the time of
a module for each, and the few objects that come of it are loaded in a third of the time of many. So a file of the cache is a
bundle: the keys of kernels that were compiled together, and their objects. It is named by its keys: what a program needs again is
found at once.
Kernels that programs share are found by what each bundle says of itself.

Plans lie beside them (`fluid.executor.planned.records`), under the same rules.

Bundles lie in ``FLUID_NATIVE_CACHE`` (``0`` or nothing: no cache), or in the folder that the user's system has for such files. A
folder is used only if it is the user's own, no link, and writable by nobody else; a file only if that is true of it and its
digest is right. Any other is passed over, and written anew. Files take 64 MiB at most, and are 512 at most: those that were
not used for longest go first. Where nothing can be written, there is one warning, and each process compiles for itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate, pairwise
from pathlib import Path
from weakref import WeakValueDictionary

from ...formats.writing import reason
from ..runtime.cache_folder import CacheFolder, is_own
from ..runtime.threads import available_cores, get_num_threads
from . import compiler
from .bounds import Footprint
from .compiler import Library, NativeUnavailable, compile_object, versions
from .instructions import Writer, WrittenKernel
from .target import Target

__all__ = ["PLAN", "Kernels", "available_kernels", "compile_kernels", "folder", "made_by", "read_sealed", "write_sealed"]

_FORMAT = 4
"""Counts the changes of bundles, of how kernels are called, and of how they are compiled."""
_HEAD = b"fluid kernels %d\n" % _FORMAT
_KEY_BYTES = 32
_MOST_BYTES, _MOST_FILES = 64 << 20, 512
_LONG_TEXT = 200_000
"""Characters of a text that take some 70 ms to compile; each module takes some 1.3 ms more."""
_BUNDLE, PLAN = ".kernels", ".plan"
"""How the names of files end: of bundles, and of plans (see `fluid.executor.planned.records`)."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
"""How files are opened that must not be there."""
_NAME = re.compile(rf"[0-9a-f]{{64}}(?:{_BUNDLE}|{PLAN})")
_DEFINED = re.compile(r"^(?:define [^@\n]*)?@([\w.]+)", re.MULTILINE)

_loaded: WeakValueDictionary[bytes, Library] = WeakValueDictionary()
"""Key of a kernel -> where it is loaded."""
_FOLDER = CacheFolder("FLUID_NATIVE_CACHE", "native", "native kernels")


@dataclass(frozen=True)
class Kernels:
    """Kernels that are loaded.

    Attributes:
        addresses: signature -> address. They hold as long as this object lives.
        footprints: signature -> what the kernel accesses of each operand.
    """

    addresses: Mapping[str, int]
    footprints: Mapping[str, Sequence[Footprint]]
    libraries: Collection[Library]


def compile_kernels(writers: Mapping[str, Writer], target: Target | None = None) -> Kernels:
    """Kernels ready to be called: those that are loaded already, those on disk, and the others written and compiled.

    Args:
        writers: signature of a kernel -> what writes its text. Equal signatures have to mean equal texts.
        target: this processor, or an older one whose code runs here.

    Raises:
        NativeUnavailable: they cannot be made here; says why.
    """
    target = target or compiler.host()
    keys = {signature: _key(signature, target) for signature in writers}
    place = folder()
    libraries = _available_libraries(place, keys.values())
    missing = {key: writers[signature] for signature, key in keys.items() if key not in libraries}
    if missing:
        bundle = _compiled(missing, target)
        libraries.update(bundle.load())
        if place:
            _write(place, bundle)
    return _kernels(keys, libraries)


def available_kernels(signatures: Iterable[str]) -> Kernels | None:
    """Kernels of this processor that are loaded already or on disk; None if one of them is not."""
    keys = {signature: _key(signature, compiler.host()) for signature in signatures}
    libraries = _available_libraries(folder(), keys.values())
    return _kernels(keys, libraries) if libraries.keys() >= set(keys.values()) else None


def _available_libraries(place: str | None, keys: Collection[bytes]) -> dict[bytes, Library]:
    """Of those kernels that are loaded already or on disk, where they are loaded."""
    libraries = {key: library for key in keys if (library := _loaded.get(key))}
    missing = [key for key in keys if key not in libraries]
    for bundle in _on_disk(place, missing) if place and missing else ():
        with suppress(NativeUnavailable):  # what cannot be loaded is compiled again
            libraries.update(bundle.load())
    return libraries


def _kernels(keys: Mapping[str, bytes], libraries: dict[bytes, Library]) -> Kernels:
    _loaded.update(libraries)
    addresses = {signature: libraries[key].addresses[_symbol(key)] for signature, key in keys.items()}
    footprints = {signature: libraries[key].footprints[_symbol(key)] for signature, key in keys.items()}
    return Kernels(addresses, footprints, [libraries[key] for key in keys.values()])


@cache
def _sources() -> str:
    """A digest of the modules that write texts; one of this process alone where they are not there."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    parts = [source.read_bytes() for source in sources] or [os.urandom(32)]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def made_by() -> tuple[str, ...]:
    """What plans with native code depend on besides programs and this package."""
    return versions(), repr(compiler.host())


def _key(signature: str, target: Target) -> bytes:
    """What a kernel is known by: 32 bytes."""
    parts = (str(_FORMAT), versions(), _sources(), repr(target), signature)
    return hashlib.sha256("\0".join(parts).encode()).digest()


def _symbol(key: bytes) -> str:
    """The name of a kernel in objects."""
    return f"k{key.hex()}"


def _compiled(writers: Mapping[bytes, Writer], target: Target) -> _Bundle:
    """Kernels compiled together. The next texts are written while other threads compile those before."""
    from concurrent.futures import ThreadPoolExecutor  # some modules, for what is compiled

    footprints: dict[bytes, Sequence[Footprint]] = {}
    with ThreadPoolExecutor(min(get_num_threads(), available_cores())) as threads:
        objects = list(threads.map(partial(compile_object, target=target), _modules(writers, footprints)))
    return _Bundle(footprints, objects)


def _modules(writers: Mapping[bytes, Writer], footprints: dict[bytes, Sequence[Footprint]]) -> Iterator[str]:
    """The texts of modules of kernels, as few as are worth a thread each; notes what each kernel accesses."""
    functions: list[str] = []
    declared: dict[str, None] = {}
    length = 0
    for key, write in writers.items():
        text, footprints[key] = _with_private_names(_symbol(key), write)
        lines = text.splitlines()
        declared.update(dict.fromkeys(line for line in lines if line.startswith("declare ")))
        functions += [line for line in lines if not line.startswith("declare ")]
        length += len(text)
        if length > _LONG_TEXT:
            yield "\n".join([*declared, *functions])
            functions, declared, length = [], {}, 0
    if functions:
        yield "\n".join([*declared, *functions])


def _with_private_names(symbol: str, write: Writer) -> WrittenKernel:
    """A kernel with its own functions renamed, so that other kernels may have some of the same names."""
    text, footprints = write(symbol)
    private_names = {name: f"@{symbol}.{name}" for name in _DEFINED.findall(text) if name != symbol}
    text = re.sub(r"@([\w.]+)", lambda match: private_names.get(match[1], match[0]), text) if private_names else text
    return WrittenKernel(text, footprints)


@dataclass(frozen=True)
class _Bundle:
    """Kernels that were compiled together: what each of them accesses, by its key, and their objects."""

    footprints: Mapping[bytes, Sequence[Footprint]]
    objects: Sequence[bytes]

    @property
    def keys(self) -> Collection[bytes]:
        return self.footprints.keys()

    def load(self) -> dict[bytes, Library]:
        """The library of each kernel: one for all."""
        footprints = {_symbol(key): footprints for key, footprints in self.footprints.items()}
        return dict.fromkeys(self.keys, Library(self.objects, footprints))

    def to_bytes(self) -> bytes:
        parts = [json.dumps(list(self.footprints.values())).encode(), *self.objects]
        sizes = [len(parts), *map(len, parts)]
        numbers = b"".join(size.to_bytes(4, "little") for size in sizes)
        return _sealed(_HEAD, b"".join((len(self.keys).to_bytes(4, "little"), *self.keys, numbers, *parts)))

    @classmethod
    def from_bytes(cls, data: bytes) -> _Bundle | None:
        """The bundle that a file holds; None if it is damaged, or none."""
        body = _unsealed(_HEAD, data)
        if body is None:
            return None
        keys = _keys_in(data)
        numbers = memoryview(body)[4 + _KEY_BYTES * len(keys) :]
        count = int.from_bytes(numbers[:4], "little")
        ends = list(
            accumulate((int.from_bytes(numbers[4 * i : 4 * i + 4], "little") for i in range(1, count + 1)), initial=4 * count + 4)
        )
        footprints, *objects = [bytes(numbers[start:end]) for start, end in pairwise(ends)]
        return cls(dict(zip(keys, json.loads(footprints), strict=True)), objects)


def _sealed(head: bytes, body: bytes) -> bytes:
    """What a file holds: how it begins, the digest of its body, and that."""
    return b"".join((head, hashlib.sha256(body).digest(), body))


def _unsealed(head: bytes, data: bytes) -> bytes | None:
    """The body of what a file holds; None if it is damaged, or another file."""
    start = len(head) + 32
    if not data.startswith(head) or hashlib.sha256(data[start:]).digest() != data[len(head) : start]:
        return None
    return data[start:]


def _keys_in(data: bytes) -> list[bytes]:
    """The keys that the beginning of a file says are in its bundle, which may be wrong."""
    start = len(_HEAD) + 32
    if not data.startswith(_HEAD):
        return []
    end = start + 4 + _KEY_BYTES * int.from_bytes(data[start : start + 4], "little")
    return [data[place : place + _KEY_BYTES] for place in range(start + 4, min(end, len(data)), _KEY_BYTES)]


# -- on disk
def folder() -> str | None:
    """The folder of the cache, which is made where it is missing; None if there is none, or it cannot be trusted."""
    return _FOLDER.path()


def _path(place: str, keys: Collection[bytes]) -> str:
    return os.path.join(place, hashlib.sha256(b"".join(sorted(keys))).hexdigest() + _BUNDLE)


def _files(place: str) -> list[tuple[float, str, int]]:
    """Of each file when it was last used, its path and its size, the last used first."""
    files = []
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name):
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    files.append((status.st_mtime, entry.path, status.st_size))
    return sorted(files, reverse=True)


def _read(path: str, most: int = _MOST_BYTES) -> bytes:
    """The beginning of a file, as many bytes at most; nothing if it is not the user's own, no plain file, or cannot be read."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with suppress(OSError), open(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode) and is_own(status):
            return file.read(min(most, status.st_size))  # Python makes room for as many bytes as are asked for
    return b""


def _on_disk(place: str, keys: Collection[bytes]) -> Iterator[_Bundle]:
    """Bundles that hold kernels, as few as may be: the one that holds just these, or those that hold the most of them."""
    paths = [_path(place, keys)]
    if not os.path.exists(paths[0]):
        bundles = [path for _, path, _ in _files(place) if path.endswith(_BUNDLE)]
        shared = [(len(set(_keys_in(_read(path, 1 << 16))).intersection(keys)), path) for path in bundles]
        paths = [path for number, path in sorted(shared, reverse=True) if number]
    left = set(keys)
    for path in paths:
        bundle = _Bundle.from_bytes(_read(path))
        if bundle and not left.isdisjoint(bundle.keys):
            left.difference_update(bundle.keys)
            _note_use(path)
            yield bundle


def _note_use(path: str) -> None:
    with suppress(OSError):
        os.utime(path)


def read_sealed(path: str, head: bytes) -> bytes | None:
    """The body of a file of the cache that begins so; None if there is none, or it is damaged or not the user's own."""
    body = _unsealed(head, _read(path))
    if body is not None:
        _note_use(path)
    return body


def write_sealed(path: str, head: bytes, body: bytes) -> None:
    """Write such a file, in the folder of the cache."""
    _write_file(path, _sealed(head, body))


def _write(place: str, bundle: _Bundle) -> None:
    _write_file(_path(place, bundle.keys), bundle.to_bytes())


def _write_file(path: str, data: bytes) -> None:
    """Write a file of the cache, and remove those that are too many."""
    place = os.path.dirname(path)
    temporary = f"{path}.{os.getpid()}-{threading.get_ident()}"
    try:
        with open(os.open(temporary, _NEW, 0o600), "wb") as file:
            file.write(data)  # what does not arrive on the disk has a wrong digest
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            os.unlink(temporary)
        _FOLDER.warn(place, f"{path}: the file cannot be written: {reason(error)}")
    total = 0
    for number, (_, old_path, size) in enumerate(_files(place)):
        total += size
        if total > _MOST_BYTES or number >= _MOST_FILES:
            with suppress(OSError):
                os.unlink(old_path)

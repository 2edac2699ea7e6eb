"""The cache of compiled kernels, in memory and on disk.

A kernel's key is a digest of everything that its code depends on: its signature (the inputs of its text), the sources of this
package (which write the text), processor, LLVM, and the format of this cache. So a cached kernel needs no text.

Missing kernels are compiled by threads, many kernels per module: that takes half the time of one module per kernel, and loading
the few objects takes a third of the time of loading many. A file of the cache is a bundle: keys and objects of kernels that were
compiled together. Its name is a digest of its keys, so a program finds its bundle at once. Kernels that programs share are found
by the list of keys in each bundle.

Plans are stored beside the bundles (`fluid.executor.planned.records`), under the same rules (`sealed.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate, pairwise
from pathlib import Path
from weakref import WeakValueDictionary

from ...values.cache import Cache
from ..runtime.forks import fork_safe_lock
from ..runtime.threads import available_cores, get_num_threads
from .bounds import Footprint
from .compiler import Library, NativeUnavailable, compile_object, versions
from .instructions import Writer, WrittenKernel
from .sealed import BUNDLE, bundles, folder, note_use, read, seal, unseal, write_file
from .target import Target

_FORMAT = 4
"""Version of the bundles' format, of the kernels' calling convention, and of the compiler's settings."""
_HEAD = b"fluid kernels %d\n" % _FORMAT
_KEY_BYTES = 32
_LONG_TEXT = 200_000
"""Characters per module: this many take some 70 ms to compile, and each module adds some 1.3 ms."""
_DEFINED = re.compile(r"^(?:define [^@\n]*)?@([\w.]+)", re.MULTILINE)

_loaded: WeakValueDictionary[bytes, Library] = WeakValueDictionary()
"""Key of a kernel -> the library that holds it."""
_keys_by_path: Cache[str, frozenset[bytes]] = Cache()
"""Path of a bundle on disk -> its keys. They never change, as the file's name is a digest of them."""
_recent: OrderedDict[int, Library] = OrderedDict()
"""The libraries that were used last, by id: they stay loaded when no plan uses them any more. LLVM 22 frees a library's code, but
keeps 9 kB and more about each library that it ever loaded."""
_loading = fork_safe_lock()
"""Held while kernels are compiled or loaded: scopes share plans, so several threads may need the same kernels. It is newer than
the lock of `ThreadPoolExecutor`, which compiling takes."""
_MOST_RECENT, _MOST_RECENT_BYTES = 256, 16 << 20


@dataclass(frozen=True)
class Kernels:
    """Loaded kernels.

    Attributes:
        addresses: signature -> address; valid as long as this object lives.
        footprints: signature -> the footprint of each operand.
    """

    addresses: Mapping[str, int]
    footprints: Mapping[str, Sequence[Footprint]]
    libraries: Collection[Library]


def compile_kernels(writers: Mapping[str, Writer], target: Target) -> Kernels:
    """Load kernels from memory or disk, and write and compile the missing ones.

    Args:
        writers: signature of a kernel -> its writer. Equal signatures must mean equal texts.
        target: this processor, or an older one with compatible code.

    Raises:
        NativeUnavailable: kernels cannot be compiled or loaded here; the message says why.
    """
    keys = {signature: _key(signature, target) for signature in writers}
    place = folder()
    with _loading:
        libraries = _available_libraries(place, keys.values())
        missing = {key: writers[signature] for signature, key in keys.items() if key not in libraries}
        if missing:
            bundle = _compile(missing, target)
            libraries.update(bundle.load())
            if place:
                _write(place, bundle)
        return _kernels(keys, libraries)


def available_kernels(signatures: Iterable[str], target: Target) -> Kernels | None:
    """Kernels for a processor, from memory or disk; None if one of them is missing."""
    keys = {signature: _key(signature, target) for signature in signatures}
    with _loading:
        libraries = _available_libraries(folder(), keys.values())
        return _kernels(keys, libraries) if libraries.keys() >= set(keys.values()) else None


def _available_libraries(place: str | None, keys: Collection[bytes]) -> dict[bytes, Library]:
    """Key -> library, for the kernels that are in memory or on disk."""
    libraries = {key: library for key in keys if (library := _loaded.get(key))}
    missing = [key for key in keys if key not in libraries]
    for bundle in _on_disk(place, missing) if place and missing else ():
        with suppress(NativeUnavailable):  # kernels that fail to load are compiled again
            libraries.update(bundle.load())
    return libraries


def _kernels(keys: Mapping[str, bytes], libraries: dict[bytes, Library]) -> Kernels:
    _loaded.update(libraries)
    addresses = {signature: libraries[key].addresses[_symbol(key)] for signature, key in keys.items()}
    footprints = {signature: libraries[key].footprints[_symbol(key)] for signature, key in keys.items()}
    _keep_loaded({id(library): library for library in libraries.values()})
    return Kernels(addresses, footprints, [libraries[key] for key in keys.values()])


def _keep_loaded(libraries: Mapping[int, Library]) -> None:
    """Keep libraries loaded until enough others are used after them."""
    for number in libraries:
        _recent.pop(number, None)
    _recent.update(libraries)
    size = sum(library.size for library in _recent.values())
    while len(_recent) > _MOST_RECENT or (size > _MOST_RECENT_BYTES and _recent):
        _, library = _recent.popitem(last=False)
        size -= library.size


@cache
def _sources() -> str:
    """A digest of the modules that write kernels; random if the sources are not installed."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    parts = [source.read_bytes() for source in sources] or [os.urandom(32)]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def made_by(target: Target) -> tuple[str, ...]:
    """The toolchain and processor that stored plans depend on."""
    return versions(), repr(target)


def _key(signature: str, target: Target) -> bytes:
    """A kernel's key: a digest of 32 bytes."""
    parts = (str(_FORMAT), versions(), _sources(), repr(target), signature)
    return hashlib.sha256("\0".join(parts).encode()).digest()


def _symbol(key: bytes) -> str:
    """The symbol of a kernel in object files."""
    return f"k{key.hex()}"


def _compile(writers: Mapping[bytes, Writer], target: Target) -> _Bundle:
    """Compile kernels to a bundle. This thread writes LLVM's text form while other threads compile."""
    footprints: dict[bytes, Sequence[Footprint]] = {}
    with ThreadPoolExecutor(min(get_num_threads(), available_cores())) as threads:
        objects = list(threads.map(partial(compile_object, target=target), _modules(writers, footprints)))
    return _Bundle(footprints, objects)


def _modules(writers: Mapping[bytes, Writer], footprints: dict[bytes, Sequence[Footprint]]) -> Iterator[str]:
    """Write kernels as the texts of a few long modules; also fills in `footprints`."""
    texts: list[str] = []
    for key, write in writers.items():
        text, footprints[key] = with_private_names(_symbol(key), write)
        texts.append(text)
        if sum(map(len, texts)) > _LONG_TEXT:
            yield joined(texts)
            texts = []
    if texts:
        yield joined(texts)


def joined(texts: Iterable[str]) -> str:
    """The texts of modules as one module, with each declaration once."""
    lines = [line for text in texts for line in text.splitlines()]
    declared = dict.fromkeys(line for line in lines if line.startswith("declare "))
    return "\n".join([*declared, *(line for line in lines if line not in declared)])


def with_private_names(symbol: str, write: Writer) -> WrittenKernel:
    """Write a kernel, with its private functions renamed so that kernels of one module do not clash."""
    text, footprints = write(symbol)
    private_names = {name: f"@{symbol}.{name}" for name in _DEFINED.findall(text) if name != symbol}
    text = re.sub(r"@([\w.]+)", lambda match: private_names.get(match[1], match[0]), text) if private_names else text
    return WrittenKernel(text, footprints)


@dataclass(frozen=True)
class _Bundle:
    """Kernels that were compiled together: key -> footprints, and their object files."""

    footprints: Mapping[bytes, Sequence[Footprint]]
    objects: Sequence[bytes]

    @property
    def keys(self) -> Collection[bytes]:
        return self.footprints.keys()

    def load(self) -> dict[bytes, Library]:
        """Key -> library; all kernels of a bundle share one library."""
        footprints = {_symbol(key): footprints for key, footprints in self.footprints.items()}
        return dict.fromkeys(self.keys, Library(self.objects, footprints))

    def to_bytes(self) -> bytes:
        parts = [json.dumps(list(self.footprints.values())).encode(), *self.objects]
        sizes = [len(parts), *map(len, parts)]
        numbers = b"".join(size.to_bytes(4, "little") for size in sizes)
        return seal(_HEAD, b"".join((len(self.keys).to_bytes(4, "little"), *self.keys, numbers, *parts)))

    @classmethod
    def from_bytes(cls, data: bytes) -> _Bundle | None:
        """Parse a file; None if it is no bundle or damaged."""
        body = unseal(_HEAD, data)
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


def _keys_in(data: bytes) -> list[bytes]:
    """The keys at the beginning of a bundle, unverified."""
    start = len(_HEAD) + 32
    if not data.startswith(_HEAD):
        return []
    end = start + 4 + _KEY_BYTES * int.from_bytes(data[start : start + 4], "little")
    return [data[place : place + _KEY_BYTES] for place in range(start + 4, min(end, len(data)), _KEY_BYTES)]


# -- on disk
def _path(place: str, keys: Collection[bytes]) -> str:
    return os.path.join(place, hashlib.sha256(b"".join(sorted(keys))).hexdigest() + BUNDLE)


def _keys_of(path: str) -> frozenset[bytes]:
    """The keys of a bundle; each process reads them once."""
    keys = _keys_by_path.get(path)
    if keys is None:
        keys = frozenset(_keys_in(read(path, 1 << 16)))
        if path == _path(os.path.dirname(path), keys):
            _keys_by_path.keep(path, keys)
    return keys


def _on_disk(place: str, keys: Collection[bytes]) -> Iterator[_Bundle]:
    """Load few bundles with the given kernels: the bundle of exactly these, or those with most of them first."""
    paths = [_path(place, keys)]
    if not os.path.exists(paths[0]):
        shared = [(len(_keys_of(path).intersection(keys)), path) for path in bundles(place)]
        paths = [path for number, path in sorted(shared, reverse=True) if number]
    left = set(keys)
    for path in paths:
        bundle = _Bundle.from_bytes(read(path))
        if bundle and not left.isdisjoint(bundle.keys):
            left.difference_update(bundle.keys)
            note_use(path)
            yield bundle


def _write(place: str, bundle: _Bundle) -> None:
    write_file(_path(place, bundle.keys), bundle.to_bytes())

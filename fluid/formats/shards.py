"""Arrays by name in several archives, the shards, and one manifest that lists them.

The manifest is JSON: the name, the size and a digest of each shard, which lies beside it. It is written when all shards are on
the disk, so that a manifest stands for a whole set, the old one or the new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ..errors import FormatError
from .npz import read_npz, write_npz
from .writing import write_file

_MARK = b'{"fluid shards": 1'
_MOST = 16 << 20
"""Bytes of a manifest."""


def is_manifest(head: bytes, size: int) -> bool:
    """Whether a file with this head is a manifest."""
    return head.startswith(_MARK)


def write_shard(path: str, number: int, count: int, label: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Write shard `number` of `count` beside the manifest `path`; return its entry for the manifest."""
    name = f"{os.path.basename(path)}.{label}-{number}-of-{count}"
    where = os.path.join(os.path.dirname(path), name)
    write_npz(where, arrays)
    return {"name": name, "size": os.path.getsize(where), "digest": _digest(where)}


def write_manifest(path: str, shards: Sequence[Mapping[str, Any]]) -> None:
    """Write the manifest of shards that are there."""
    with replacing_shards(path, {shard["name"] for shard in shards}):
        write_file(path, [json.dumps({"fluid shards": 1, "shards": list(shards)}).encode()])


@contextlib.contextmanager
def replacing_shards(path: str, retained: Collection[str] = ()) -> Iterator[None]:
    """If the ``with`` replaces the manifest `path`, remove the old manifest's shards at the end, except the `retained` ones."""
    former: list[str] = []
    with contextlib.suppress(FormatError, OSError):
        former = shard_names(path)
    yield
    for name in set(former) - set(retained):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(os.path.dirname(path), name))


def shard_names(path: str) -> list[str]:
    """The names of the shards of a manifest."""
    return [shard["name"] for shard in _manifest(path)]


def read_shards(path: str) -> dict[str, Any]:
    """The arrays of all shards of a manifest; `FormatError` if one is missing, or not the one that was written."""
    arrays: dict[str, Any] = {}
    for shard in _manifest(path):
        where = os.path.join(os.path.dirname(path), shard["name"])
        if not os.path.isfile(where):
            raise FormatError(f"{path}: its shard {shard['name']} is not beside it; copy all files of a checkpoint together")
        if os.path.getsize(where) != shard["size"] or _digest(where) != shard["digest"]:
            raise FormatError(f"{where}: it is not the shard that {path} was written for, or it is damaged")
        shard_arrays = read_npz(where)
        twice = sorted(arrays.keys() & shard_arrays.keys())
        if twice:
            raise FormatError(f"{where}: {twice[0]!r} is in another shard, too")
        arrays |= shard_arrays
    return arrays


def _manifest(path: str) -> list[dict[str, Any]]:
    try:
        if os.path.getsize(path) > _MOST:
            raise ValueError(f"it is longer than {_MOST} bytes")
        with open(path, "rb") as file:
            content = json.load(file)
        shards = content["shards"]
        for shard in shards:
            name = shard["name"]
            if type(name) is not str or name != os.path.basename(name) or name in ("", ".", "..") or "\0" in name:
                raise ValueError(f"{name!r} is not the name of a file beside it")
            if type(shard["size"]) is not int or type(shard["digest"]) is not str:
                raise ValueError(f"what it says of {name!r} is no size and digest")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(f"{path}: the manifest is damaged: {error}") from None
    return list(shards)


def _digest(path: str) -> str:
    digest = hashlib.blake2b()
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()

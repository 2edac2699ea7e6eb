"""How each op of ONNX is built from Fluid's ops: a function per op, in `ops_in`, valid from an opset on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any, NamedTuple


class Import(NamedTuple):
    """How an op is read.

    Attributes:
        since: the opset from which this holds, until the op's next entry.
        build: ``build(b, node)`` appends ops that compute the node, with the builder `b`, and returns the node's outputs:
            one value, or a tuple of values in order. A value is a variable, an array, or one of `fluid.onnx.values`.
        trains: whether gradients flow through it.
    """

    since: int
    build: Callable[[Any, Any], Any]
    trains: bool


IMPORTS: dict[str, list[Import]] = {}
"""Op type -> how it is read, by rising opsets. Ops of other domains are named ``domain::type``."""


def imports(*op_types: str, since: int = 1, trains: bool = True) -> Callable[[Any], Any]:
    """Register the decorated function as the importer of nodes of these types, from opset `since` on.

    >>> @imports("Relu")
    ... def relu(b, node):
    ...     return b.f.relu(node[0])
    """

    def register(build: Any) -> Any:
        for op_type in op_types:
            versions = IMPORTS.setdefault(op_type, [])
            versions.append(Import(since, build, trains))
            versions.sort(key=lambda version: version.since)
        return build

    return register


def import_of(op_type: str, opset: int) -> Import | None:
    """How an op is read in a model of this opset; None if it is not."""
    versions = IMPORTS.get(op_type, ())
    place = bisect_right([version.since for version in versions], opset)
    return versions[place - 1] if place else None

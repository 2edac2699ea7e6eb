"""Every place that knows an op: ``python -m fluid.ops.where tanh`` lists them, by what the place is for.

A place is a string that is the type of the op or of its gradient, or a function of that name that a decorator makes one of the
op's parts, in the source of this package.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ..errors import did_you_mean
from ..opdef import registry

_PACKAGE = __package__.partition(".")[0]


class OpPlace(NamedTuple):
    """A line that knows an op.

    Attributes:
        path: the module, from the root of the repository.
        line: its number.
        text: the line.
    """

    path: str
    line: int
    text: str


def places_of(op_type: str) -> list[OpPlace]:
    """The lines of this package that know an op, by module and number.

    >>> from fluid.ops.where import places_of
    >>> places = places_of("tanh")
    >>> "fluid/ops/activation.py" in {place.path for place in places}
    True
    """
    names = {op_type, f"{op_type}_grad"}
    folders = {"fluid": _PACKAGE, "executor": f"{_PACKAGE}.executor"}
    paths = {folder: Path((find_spec(package) or __spec__).origin or "").parent for folder, package in folders.items()}
    return sorted(place for folder, path in paths.items() for place in _places_in(folder, path, names))


def _places_in(folder: str, path: Path, names: set[str]) -> Iterator[OpPlace]:
    for module in path.rglob("*.py"):
        source = module.read_text(encoding="utf-8")
        if not any(name in source for name in names):
            continue
        lines = source.splitlines()
        numbers = {number for node in ast.walk(ast.parse(source)) if (number := _line_of(node, names)) is not None}
        relative = f"{folder}/{module.relative_to(path).as_posix()}"
        yield from (OpPlace(relative, number, lines[number - 1].strip()) for number in numbers)


def _line_of(node: ast.AST, names: set[str]) -> int | None:
    """The line of a node that knows an op by one of these names; None for others."""
    if isinstance(node, ast.FunctionDef):
        return node.lineno if node.name in names and node.decorator_list else None
    if isinstance(node, ast.Constant):
        return node.lineno if isinstance(node.value, str) and node.value in names else None
    return None


def main(arguments: list[str]) -> int:
    """Print the places of one op; 1 if there is no such op."""
    if len(arguments) != 1:
        print("usage: python -m fluid.ops.where OP", file=sys.stderr)
        return 2
    (op_type,) = arguments
    if registry.find(op_type) is None:
        print(f"there is no op {op_type!r}{did_you_mean(op_type, registry.all_ops())}", file=sys.stderr)
        return 1
    places = places_of(op_type)
    for place in places:
        print(f"{place.path}:{place.line}: {place.text}")
    print(f"{len(places)} places in {len({place.path for place in places})} modules")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

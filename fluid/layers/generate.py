"""Writes ``ops.py``, the layers that are one op each, from the op definitions: ``python -m fluid.layers.generate``.

The file is checked in, so that editors and type checkers see real functions; a test keeps it current.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from ..ops import registry
from ..ops.registry import OpDef

__all__ = ["PATH", "render"]

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ops.py")

_WIDTH = 130
_COMPARISONS = ("less_than", "less_equal", "greater_than", "greater_equal", "equal", "not_equal")
_BY_HAND = ("pow",)
_TYPES = {"float": "float", "int": "int", "bool": "bool", "string": "str", "long": "int"}
# Where Fluid's arguments are not the op's attributes under their own names: (argument, attribute, default). None leaves
# the op's own default.
_ARGUMENTS: dict[str, list[tuple[str, str, object]]] = {
    "cumsum": [("axis", "axis", None), ("exclusive", "exclusive", None), ("reverse", "reverse", None)],
    "hard_shrink": [("threshold", "threshold", None)],
    "selu": [("scale", "scale", None), ("alpha", "alpha", None)],
    "softshrink": [("alpha", "lambda", None)],
    "thresholded_relu": [("threshold", "threshold", None)],
}

_HEAD = '''"""Layers of one op each. Do not edit: ``python -m fluid.layers.generate`` writes this file from the op definitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..framework import Variable
from ..layer_helper import apply

__all__ = [  # noqa: RUF022  (in the order of the functions)
{names}
]


def _reduce(op_type: str, input: Variable, dim: int | Sequence[int] | None, keep_dim: bool, name: str | None) -> Variable:
    attrs: dict[str, Any] = {{"keep_dim": keep_dim}}
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        attrs["reduce_all"] = True
    else:
        attrs["dim"] = [dim] if isinstance(dim, int) else list(dim)
    return apply(op_type, {{"X": input}}, attrs, name=name)


def _compare(op_type: str, x: Variable, y: Variable, cond: Variable | None) -> Variable:
    found = apply(op_type, {{"X": x, "Y": y}}, outputs={{"Out": cond}})
    found.stop_gradient = True
    return found


def _given(attrs: dict[str, Any]) -> dict[str, Any]:
    return {{name: value for name, value in attrs.items() if value is not None}}
'''


def _doc(definition: OpDef) -> str:
    lines = definition.doc.replace("\\", "\\\\").splitlines() or [f"The op `{definition.type}`."]
    if len(lines) == 1:
        return f'    """{lines[0]}"""\n'
    body = "".join(f"    {line}".rstrip() + "\n" for line in lines[1:])
    return f'    """{lines[0]}\n{body}    """\n'


def _arguments(definition: OpDef) -> list[tuple[str, str, str, object]]:
    """(argument, its type, attribute, default) of a function of one tensor."""
    special = _ARGUMENTS.get(definition.type)
    if special is not None:
        return [
            (argument, _TYPES[definition.attrs[attribute].kind] + " | None", attribute, default)
            for argument, attribute, default in special
            if attribute in definition.attrs
        ]
    return [
        (name, _TYPES[attr.kind], name, attr.default)
        for name, attr in definition.attrs.items()
        if attr.kind in _TYPES and not attr.required
    ]


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _head(name: str, arguments: list[str]) -> str:
    """The line that begins a function, or lines, as the formatter breaks them."""
    line = f"def {name}({', '.join(arguments)}) -> Variable:\n"
    if len(line) <= _WIDTH + 1:
        return line
    inner = "    " + ", ".join(arguments) + "\n"
    if len(inner) > _WIDTH + 1:
        inner = "".join(f"    {argument},\n" for argument in arguments)
    return f"def {name}(\n{inner}) -> Variable:\n"


def _unary(definition: OpDef) -> str:
    arguments = _arguments(definition)
    said = [f"{name}: {kind} = {_literal(default)}" for name, kind, _, default in arguments]
    given = ", ".join(f'"{attribute}": {name}' for name, _, attribute, _ in arguments)
    if any(kind.endswith("None") for _, kind, _, _ in arguments):
        passed = f", _given({{{given}}})"
    else:
        passed = f", {{{given}}}" if given else ""
    return (
        _head(definition.type, ["x: Variable", *said, "name: str | None = None"])
        + _doc(definition)
        + f'    return apply("{definition.type}", {{"X": x}}{passed}, name=name)\n'
    )


def _elementwise(definition: OpDef) -> str:
    arguments = ["x: Variable", "y: Variable", "axis: int = -1", "act: str | None = None", "name: str | None = None"]
    call = f'    return apply("{definition.type}", {{"X": x, "Y": y}}, {{"axis": axis}}, name=name, act=act)\n'
    return _head(definition.type, arguments) + _doc(definition) + call


def _comparison(definition: OpDef) -> str:
    arguments = ["x: Variable", "y: Variable", "cond: Variable | None = None"]
    if definition.type == "less_than":
        arguments.insert(2, "force_cpu: bool | None = None")
    return _head(definition.type, arguments) + _doc(definition) + f'    return _compare("{definition.type}", x, y, cond)\n'


def _logical(definition: OpDef) -> str:
    arguments = ["x: Variable", "out: Variable | None = None", "name: str | None = None"]
    inputs = '"X": x'
    if "Y" in definition.inputs:
        arguments.insert(1, "y: Variable")
        inputs += ', "Y": y'
    call = f'    return apply("{definition.type}", {{{inputs}}}, name=name, outputs={{"Out": out}})\n'
    return _head(definition.type, arguments) + _doc(definition) + call


def _reduction(definition: OpDef) -> str:
    dim = "dim: int | Sequence[int] | None = None"
    arguments = ["input: Variable", dim, "keep_dim: bool = False", "name: str | None = None"]
    return (
        _head(definition.type, arguments)
        + _doc(definition)
        + f'    return _reduce("{definition.type}", input, dim, keep_dim, name)\n'
    )


def _functions() -> Iterator[tuple[str, str]]:
    from ..ops import activation

    unary = {value.type for value in vars(activation).values() if isinstance(value, OpDef)}
    for name, definition in sorted(registry.all_ops().items()):
        if definition.forward is not None or name in _BY_HAND:
            continue
        needed = [slot.name for slot in definition.inputs.values() if not slot.optional]
        seen = [slot.name for slot in definition.outputs.values() if not slot.intermediate]
        if name in unary and needed == ["X"] and seen == ["Out"]:
            yield name, _unary(definition)
        elif name.startswith("elementwise_") and needed == ["X", "Y"]:
            yield name, _elementwise(definition)
        elif name in _COMPARISONS:
            yield name, _comparison(definition)
        elif name.startswith("logical_"):
            yield name, _logical(definition)
        elif name.startswith("reduce_"):
            yield name, _reduction(definition)


def render() -> str:
    """The text of ``ops.py``."""
    functions = dict(_functions())
    names = "\n".join(f'    "{name}",' for name in functions)
    return _HEAD.format(names=names) + "".join(f"\n\n{text}" for text in functions.values())


if __name__ == "__main__":
    with open(PATH, "w", encoding="utf-8") as file:
        file.write(render())

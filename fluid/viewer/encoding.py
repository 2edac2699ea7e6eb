"""Encode a graph for the page: numbers and short texts, in lists and dicts for JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ..ir.printing import NOISE
from ..ir.program import Block, Operator, OpRole, Parameter
from ..values.types import VarType
from .graph import ViewGraph, ViewNode, ViewValue
from .pairs import has_role

_ROLES = {OpRole.RPC: "rpc", OpRole.DIST: "dist", OpRole.LR_SCHED: "learning rate", OpRole.LOSS: "loss"}
_CALLSTACK = "op_callstack"
_ABOUT_RUNS = ("op_", "use_mkldnn", "use_cudnn", "use_onednn", "mkldnn_", "cudnn_", "workspace_size_MB", "exhaustive_search")
"""Prefixes of attributes that only affect how an op runs on a device."""
_ITEMS = 32
_LETTERS = 1000


def encode(graph: ViewGraph) -> dict[str, Any]:
    """The graph as plain lists and dicts. Texts and lists of texts are stored once, under ``once``, and referenced by index."""
    places: dict[Any, int] = {}

    def once(item: Any) -> int:
        return places.setdefault(item, len(places))

    numbers: dict[tuple[str, int], int] = {}
    variables: list[list[Any]] = []
    values = []
    for value in graph.values:
        key = value.name, id(value.var)
        if key not in numbers:
            numbers[key] = len(variables)
            name, spec, flags, *size = _variable(value)
            variables.append([name, once(spec), once(flags), *size])
        values.append([numbers[key], value.version, value.block, value.node, value.source])
    return {
        "blocks": [{"number": block.idx, "program": graph.programs.index(block.program)} for block in graph.blocks],
        "areas": [area.owner for area in graph.areas],
        "nodes": [_node(graph, node, once) for node in graph.nodes],
        "values": values,
        "vars": variables,
        "links": graph.links,
        "loss": graph.loss(),
        "once": list(places),  # by now it has all
    }


def _node(graph: ViewGraph, node: ViewNode, once: Any) -> dict[str, Any]:
    """The fields of a node for the page, without missing and zero ones."""
    fields: dict[str, Any] = {
        "reads": _flat((once(slot), value) for slot, value in node.reads),
        "writes": _flat((once(slot), value) for slot, value in node.writes),
        "updates": node.updates,
        "block": node.block,
        "kind": node.kind,
        "difference": node.difference,
    }
    numbers = {
        "area": node.area if node.area != node.block else -1,
        "from": node.made_from,
        "alike": node.alike,
        "twin": node.twin,
    }
    fields |= {name: number for name, number in numbers.items() if number >= 0}
    fields = {name: content for name, content in fields.items() if content or name in numbers}
    if node.name:
        fields["name"] = once(_cut(node.name))
    if node.op is not None:
        fields |= _op(graph, node.op, once) | {"index": node.index}
    return fields


def _flat(pairs: Iterable[tuple[int, int]]) -> list[int]:
    return [number for pair in pairs for number in pair]


def _op(graph: ViewGraph, op: Operator, once: Any) -> dict[str, Any]:

    def each_once(items: Iterable[Any]) -> int:
        return int(once(tuple(map(once, items))))

    fields = {"type": once(_cut(op.type)), "attrs": each_once(_attrs(op)), "frames": each_once(_frames(op))}
    subs = [graph.place[sub] for sub in op.sub_blocks if sub in graph.place]
    if subs:
        fields["subs"] = subs
    roles = [name for bit, name in _ROLES.items() if has_role(op, bit)]
    if roles:
        fields["roles"] = once(", ".join(roles))
    if op.definition is None:
        fields["unknown"] = 1
    return fields


def _cut(text: str, letters: int = _LETTERS) -> str:
    return text if len(text) <= letters else f"{text[:letters]}... {len(text) - letters} more letters"


def show(value: Any) -> str:
    """The value of an attribute as a short text."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Block):
        return f"block {value.idx}"
    if isinstance(value, (list, tuple)):
        more = [f"... {len(value) - _ITEMS} more"] if len(value) > _ITEMS else []
        return f"[{', '.join([*map(show, value[:_ITEMS]), *more])}]"
    return _cut(repr(value))


def _attrs(op: Operator) -> list[tuple[str, str, int]]:
    """For each attribute: its name, its value, and 0; or 1 if it has the default, 2 if it does not affect the results."""
    definition = op.definition
    triples = []
    for name, value in {**(definition.defaults({}) if definition is not None else {}), **op.attrs}.items():
        if name == _CALLSTACK:
            continue
        attr = definition.attrs.get(name) if definition is not None else None
        usual = attr is not None and not attr.required and show(attr.default) == show(value)
        triples.append((_cut(name), show(value), 2 if name in NOISE or name.startswith(_ABOUT_RUNS) else int(usual)))
    return triples


def _frames(op: Operator) -> list[str]:
    """The lines of the user's code that made an op, innermost first."""
    if op.frames:
        return [f"{code.co_filename}:{line} in {code.co_name}" for code, line in op.frames]
    stack = op.attrs.get(_CALLSTACK)
    if not isinstance(stack, list):
        return []
    return [_cut(str(line).strip()) for line in stack[-2 * _ITEMS :] if str(line).strip()]


def _variable(value: ViewValue) -> tuple[Any, ...]:
    """Of a value's variable: name, spec, flags and, for parameters, the number of elements."""
    var = value.var
    if var is None:
        return _cut(value.name), "not declared", ()
    spec = f"{var.dtype.text if var.has_dtype else '?'}{list(var.shape) if var.has_shape else '[?]'}"
    kind = "" if var.type is VarType.LOD_TENSOR else var.type.name.lower().replace("_", " ") + " "
    flags = [
        ("parameter", isinstance(var, Parameter)),
        ("not trainable", isinstance(var, Parameter) and not var.trainable),
        ("persistable", var.persistable and not isinstance(var, Parameter)),
        ("data", var.is_data),
        (f"lod_level {var.lod_level}", var.lod_level),
        ("stop_gradient", var.stop_gradient),
    ]
    text = kind + (spec if var.has_dtype or var.has_shape else "")
    is_counted = isinstance(var, Parameter) and var.has_shape and all(extent >= 0 for extent in var.shape)
    size = [math.prod(var.shape)] if is_counted else []
    return _cut(value.name), _cut(text.strip(), 200), tuple(flag for flag, holds in flags if holds), *size

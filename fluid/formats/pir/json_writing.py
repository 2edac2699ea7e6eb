"""Writes programs of PIR as JSON, as Paddle 3.3 does; `json_reading` says how they look."""

from __future__ import annotations

import json
import math
from typing import Any

from ...errors import ProgramError
from .data import DENSE, PLAIN, Attribute, PirBlock, PirOp, PirProgram, PirType, PirValue
from .json_reading import DIALECTS

_NUMBERS = {name: number for number, name in DIALECTS.items()}
_OF_PD_OP = frozenset({"intarray", "dtype", "place", "layout", "scalar"})
"""Types of attributes of the dialect ``pd_op``; the others are of ``builtin``."""


def serialize_pir(program: PirProgram) -> bytes:
    """The program as the bytes of a file; `ProgramError` if a text in it is none of Unicode."""
    writer = _PirWriter()
    tree = {
        "base_code": {"magic": "pir", "trainable": True, "version": program.version},
        "program": {"regions": [writer.region(program.block)]},
    }
    text = json.dumps(tree, separators=(",", ":"), ensure_ascii=False)
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ProgramError(f"{text[error.start]!r}, in a name or a text, cannot be written as UTF-8") from None


class _PirWriter:
    def __init__(self) -> None:
        self._regions = 0

    def region(self, block: PirBlock) -> dict[str, Any]:
        number = self._regions
        self._regions += 1
        args = [{"#": value.id, "TT": type_tree(value.type)} for value in block.args]
        return {
            "#": f"region_{number}",
            "blocks": [{"#": f"block_{number}", "args": args, "ops": [self.op(op) for op in block.ops]}],
        }

    def op(self, op: PirOp) -> dict[str, Any]:
        if op.name == "builtin.parameter":
            return _parameter(op)
        dialect, _, name = op.name.partition(".")
        flags = {"stop_gradient": [value.stop_gradient for value in op.results]}
        if any(value.persistable for value in op.results):
            flags = {"persistable": [value.persistable for value in op.results], **flags}
        tree: dict[str, Any] = {
            "#": f"{_NUMBERS.get(dialect, dialect)}.{name}",
            "A": [{"AT": attribute_tree(value), "N": key} for key, value in op.attrs.items()],
            "I": [{"%": value.id if value is not None else 0} for value in op.operands],
            "O": [_result(value) for value in op.results],
            "OA": [{"AT": attribute_tree(Attribute("[bool]", value)), "N": key} for key, value in flags.items()]
            if op.results
            else [],
        }
        if op.regions:
            tree["regions"] = [self.region(region) for region in op.regions]
        return tree


def _result(value: PirValue) -> dict[str, Any]:
    return {"%": value.id, "TT": type_tree(value.type)}


def _parameter(op: PirOp) -> dict[str, Any]:
    value = op.results[0]
    flags = [int(op.attr("is_distributed", False)), 1, int(op.attr("need_clip", True))]
    return {
        "#": "p",
        "A": [*flags, op.attr("parameter_name")],
        "DA": [],
        "O": _result(value),
        "OA": [1, int(value.stop_gradient), int(op.attr("trainable"))],
        "QA": [],
    }


def type_tree(type_: PirType) -> dict[str, Any]:
    """A type as JSON."""
    if type_.kind == "null":
        return {"#": "NULL"}
    if type_.kind == "vec":
        return {"#": "0.t_vec", "D": [type_tree(part) for part in type_.parts]}
    dialect = "0" if type_.kind == DENSE else "1"
    unparsed = type_.unparsed if type_.unparsed is not None else PLAIN.get(type_.kind, PLAIN[DENSE])
    return {"#": f"{dialect}.t_{type_.kind}", "D": [{"#": f"0.t_{type_.dtype}"}, list(type_.shape), *unparsed]}


def attribute_tree(attribute: Attribute) -> dict[str, Any]:
    """An attribute as JSON."""
    kind, value = attribute
    if kind.startswith("["):
        return {"#": "0.a_array", "D": [attribute_tree(Attribute(kind[1:-1], item)) for item in value]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"#": f"0.a_{kind}", "VD": "NaN" if value != value else "INF" if value > 0 else "-INF"}
    if value is None:
        raise ProgramError(f"an attribute of type {kind} has no value")
    return {"#": f"{'1' if kind in _OF_PD_OP else '0'}.a_{kind}", "D": value}

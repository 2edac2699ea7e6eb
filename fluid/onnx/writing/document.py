"""Writes ``docs/onnx_ops.md``, which ops can be written to ONNX: ``python -m fluid.onnx.writing.document``.

The file is checked in; a test keeps it current.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator

import fluid.onnx.writing  # noqa: F401  # fills the tables
from fluid.opdef.registry import OpDef, Rule, all_ops

from .exporting import EXPORTS, is_exported
from .program import HANDLERS
from .refused import REFUSED

__all__ = ["PATH", "exported", "render"]

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 3, "docs", "onnx_ops.md")

_HEAD = """# Ops in ONNX

Which ops `fluid.save_model("m.onnx", ...)` can write. Do not edit: `python -m fluid.onnx.writing.document` writes this file from
the functions in `fluid/onnx/writing/`.

"a function" writes the op as ONNX's ops; "ordinary ops" are what it is decomposed into; "a graph inside" is a `Loop`, `If` or
`Scan` of its block, or handles a sequence of tensors; "a constant" is computed when the model is written, as it depends on shapes
alone. Gradients are written by their rules, unless an own function does. What an op is not written with stands beside it. A model
with an op that says "no" is refused before anything is written, and all such ops are named at once.

Of sequences, one level can be told, by lengths. Sparse gradients (`is_sparse`) become dense ones of the same numbers; Adam with
`lazy_mode` updates other rows, and is refused with them. Random ops draw other numbers than Fluid, of the same distribution.
"""


def _conditions(definition: OpDef) -> str:
    """What the function that writes an op says it cannot be written with."""
    entry = EXPORTS.get(definition.type)
    if entry is None:
        return ""
    said = re.findall(r'NotExported\(\s*"([^"]+)"', inspect.getsource(entry[0]))
    return "not with " + "; ".join(dict.fromkeys(said)) if said else ""


def exported(definition: OpDef) -> str:
    """How an op is written; empty if it is not."""
    if definition.type in REFUSED:
        return ""
    if definition.type in HANDLERS:
        return "a graph inside"
    if definition.type in EXPORTS:
        return "a function"
    if definition.decomposition is not None or definition.composition is not None:
        return "ordinary ops"
    return "a constant" if is_exported(definition) else ""


def _gradient(definition: OpDef) -> str:
    """How the gradient of an op is written."""
    if not isinstance(definition.rule, Rule):
        return "by a graph inside" if f"{definition.type}_grad" in HANDLERS else ""
    if definition.decomposition is not None or definition.composition is not None:
        return "of the ordinary ops"
    own = definition.grad_type in EXPORTS or definition.grad_type in HANDLERS
    return "by an own function" if own else "by its rule"


def _lines() -> Iterator[str]:
    families: dict[str, list[OpDef]] = {}
    for definition in all_ops().values():
        if definition.forward is None and not definition.gradient_of and definition.module.startswith("fluid.ops."):
            families.setdefault(definition.module.rpartition(".")[2], []).append(definition)
    every = [each for definitions in families.values() for each in definitions if each.type not in ("feed", "fetch")]
    count = sum(bool(exported(each)) for each in every)
    yield f"\n{count} of {len(every)} ops can be written.\n"
    for family, definitions in sorted(families.items()):
        yield f"\n## {family}\n\n| op | written by | its gradient | remark |\n|---|---|---|---|\n"
        for each in sorted(definitions, key=lambda one: one.type):
            if each.type in ("feed", "fetch"):
                yield f"| `{each.type}` | the model's inputs and outputs | | |\n"
                continue
            how = exported(each)
            remark = _conditions(each) if how else REFUSED[each.type]
            yield f"| `{each.type}` | {how or 'no'} | {_gradient(each) if how else ''} | {remark} |\n"


def render() -> str:
    """The text of the file."""
    return _HEAD + "".join(_lines())


if __name__ == "__main__":
    with open(PATH, "w", encoding="utf-8") as file:
        file.write(render())

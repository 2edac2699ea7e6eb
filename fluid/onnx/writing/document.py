"""Writes ``docs/onnx_ops.md``, the list of ops that can be written to ONNX: ``python -m fluid.onnx.writing.document``.

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

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 3, "docs", "onnx_ops.md")

_HEAD = """# Ops in ONNX

The ops that `fluid.save_model("m.onnx", ...)` can write. Do not edit: `python -m fluid.onnx.writing.document` writes this file
from the functions in `fluid/onnx/writing/`.

"a function" writes the op as ONNX's ops; "ordinary ops" are the op's decomposition; "a graph inside" is a `Loop`, `If` or `Scan`
of its block, or handles a sequence of tensors; "a constant" is computed when the model is written, as it depends only on shapes.
Gradients are written by their rules, except where the table names a separate function. A remark lists the cases that cannot be
written. A model with a "no" op is refused before anything is written, and all such ops are named at once.

Sequences may have one level, described by lengths. Sparse gradients (`is_sparse`) become dense gradients with the same numbers;
Adam with `lazy_mode` updates other rows, and is refused with them. Random ops draw other numbers than Fluid, with the same
distribution.
"""


def _conditions(definition: OpDef) -> str:
    """The conditions under which the function of an op refuses to write it."""
    entry = EXPORTS.get(definition.type)
    if entry is None:
        return ""
    reasons = re.findall(r'NotExported\(\s*"([^"]+)"', inspect.getsource(entry.fn))
    return "not with " + "; ".join(dict.fromkeys(reasons)) if reasons else ""


def exported(definition: OpDef) -> str:
    """How an op is written; empty if it is not."""
    if definition.type in REFUSED:
        return ""
    if definition.type in HANDLERS:
        return "a graph inside"
    if definition.type in EXPORTS:
        return "a function"
    if definition.decomposition is not None or definition.formula is not None:
        return "ordinary ops"
    return "a constant" if is_exported(definition) else ""


def _gradient(definition: OpDef) -> str:
    """How the gradient of an op is written."""
    if not isinstance(definition.rule, Rule):
        return "by a graph inside" if f"{definition.type}_grad" in HANDLERS else ""
    if definition.decomposition is not None or definition.is_composed:
        return "of the ordinary ops"
    has_function = definition.grad_type in EXPORTS or definition.grad_type in HANDLERS
    return "by an own function" if has_function else "by its rule"


def _lines() -> Iterator[str]:
    families: dict[str, list[OpDef]] = {}
    for definition in all_ops().values():
        if definition.forward is None and not definition.gradient_of and definition.module.startswith("fluid.ops."):
            families.setdefault(definition.module.rpartition(".")[2], []).append(definition)
    every = [
        definition for definitions in families.values() for definition in definitions if definition.type not in ("feed", "fetch")
    ]
    count = sum(bool(exported(definition)) for definition in every)
    yield f"\n{count} of {len(every)} ops can be written.\n"
    for family, definitions in sorted(families.items()):
        yield f"\n## {family}\n\n| op | written by | its gradient | remark |\n|---|---|---|---|\n"
        for definition in sorted(definitions, key=lambda one: one.type):
            if definition.type in ("feed", "fetch"):
                yield f"| `{definition.type}` | the model's inputs and outputs | | |\n"
                continue
            how = exported(definition)
            remark = _conditions(definition) if how else REFUSED[definition.type]
            yield f"| `{definition.type}` | {how or 'no'} | {_gradient(definition) if how else ''} | {remark} |\n"


def render() -> str:
    """The text of the file."""
    return _HEAD + "".join(_lines())


if __name__ == "__main__":
    with open(PATH, "w", encoding="utf-8") as file:
        file.write(render())

"""Descriptions of arguments that many layers have, for the layers' docstrings."""

from __future__ import annotations

import sys
from inspect import unwrap
from typing import Any

__all__ = ["COMMON", "completed", "describe_layers"]

COMMON = {
    "name": "first part of the names of the variables that the layer makes; by default the layer's name and a number.",
    "act": 'an op of one tensor that is applied to the result, such as ``"relu"``; by default none.',
    "use_cudnn": "accepted and ignored.",
    "force_cpu": "accepted and ignored.",
}
"""Argument -> its description in layers that do not describe it themselves."""

_MARGIN = "" if sys.version_info >= (3, 13) else " " * 4  # Python 3.13 keeps docstrings without their indentation
_AFTER = ("Returns:", "Raises:", ">>> ")


def completed(doc: str, parameters: tuple[str, ...]) -> str:
    """Add descriptions of common arguments among `parameters` to the end of ``Args:`` in `doc`, unless it describes them."""
    missing = [name for name in parameters if name in COMMON and f" {name}: " not in doc and f" {name}, " not in doc]
    if not missing:
        return doc
    texts = "".join([f"\n{_MARGIN}    {name}: {COMMON[name]}" for name in missing])
    args = doc.find(f"\n{_MARGIN}Args:\n")
    if args >= 0:
        end = doc.find("\n\n", args)
        end = end if end >= 0 else len(doc.rstrip())
        return doc[:end] + texts + doc[end:]
    ends = [place for place in (doc.find(f"\n{_MARGIN}{word}") for word in _AFTER) if place >= 0]
    end = min(ends, default=len(doc.rstrip()))
    return f"{doc[:end].rstrip()}\n\n{_MARGIN}Args:{texts}\n{doc[end:]}"


def describe_layers(namespace: dict[str, Any]) -> None:
    """Completes the docstrings of the layers in the namespace of a module."""
    for value in namespace.values():
        if getattr(value, "__module__", "").startswith(__package__) and value.__doc__:
            code = getattr(unwrap(value.__dict__.get("__init__", value)), "__code__", None)
            if code is not None:
                value.__doc__ = completed(value.__doc__, code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])

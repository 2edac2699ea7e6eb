"""What goes wrong, said to the person at the keyboard."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .ir.program import Operator

__all__ = [
    "AttributeRuleError",
    "BackwardError",
    "EOFException",
    "ExecutionError",
    "FeedError",
    "FluidError",
    "FluidTypeError",
    "FormatError",
    "InferenceError",
    "NameNotFoundError",
    "ProgramError",
    "did_you_mean",
    "locate",
]


class FluidError(Exception):
    """Every error that Fluid raises on purpose."""


class FluidTypeError(FluidError, TypeError):
    """A value or element type that cannot be used here."""


class ProgramError(FluidError, ValueError):
    """A program, block, operator or variable is used or built in a way that makes no sense."""


class NameNotFoundError(ProgramError, KeyError):
    """A name that no variable of the block, nor of the blocks around it, has."""

    __str__ = Exception.__str__


class AttributeRuleError(ProgramError):
    """An operator's slots or attributes break its definition."""


class InferenceError(ProgramError):
    """Shapes or dtypes of an operator's inputs do not fit together."""


class BackwardError(FluidError, RuntimeError):
    """A gradient cannot be built."""


class ExecutionError(FluidError, RuntimeError):
    """An operator failed while a program ran."""

    located = False
    """Whether the message says already which operator that was."""


class FeedError(ExecutionError, ValueError):
    """What was fed, or asked for, does not fit the program."""


class EOFException(ExecutionError, EOFError):
    """A loader has no more data to feed."""


class FormatError(FluidError, ValueError):
    """Bytes that are not what they claim to be."""


def did_you_mean(name: object, known: Iterable[str], most: int = 3, show: Callable[[str], str] = str) -> str:
    """The end of a sentence that suggests up to `most` of the known names, nearest first; "" if none is like `name`."""
    from difflib import get_close_matches

    near = get_close_matches(str(name), list(known), most)
    return f"; did you mean {' or '.join(map(show, near))}?" if near else ""


def locate(op: Operator) -> str:
    """Two or three lines that say which operator this is, on what, and which line of the user's code made it."""
    lines = [f"  op: {op}"]
    specs = []
    for name in op.input_arg_names:
        var = op.block.find_var(name)
        if var is not None:
            specs.append(f"{name}: {var.describe()}")
    if specs:
        lines.append("  inputs: " + "; ".join(specs))
    frame = op.user_frame
    if frame is not None:
        lines.append(f"  made at: {frame[0]}:{frame[1]} in {frame[2]}")
    return "\n".join(lines)

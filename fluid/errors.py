"""The exceptions that Fluid raises, and helpers for their messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ir.program import Operator

__all__ = [
    "AttributeRuleError",
    "BackwardError",
    "CommunicationError",
    "DataError",
    "EOFException",
    "EagerOnlyError",
    "ElementTypeError",
    "ExecutionError",
    "FeedError",
    "FeedTypeError",
    "FlagError",
    "FluidError",
    "FluidTypeError",
    "FormatError",
    "IndexRangeError",
    "InferenceError",
    "LengthsError",
    "MissingAttributeError",
    "MissingMethodError",
    "NameNotFoundError",
    "OutOfMemoryError",
    "ProgramError",
    "arguments_text",
    "did_you_mean",
    "gibibytes",
    "how_to_install",
    "locate",
    "no_room",
    "op_failure",
    "printable",
    "readable",
    "said_of",
    "shown",
    "type_name",
    "while_running",
]


def __dir__() -> list[str]:
    return __all__


_LONGEST, _LONGEST_LINE = 16_000, 2_000
"""The maximal length of a message, and of a line in it."""
_LONGEST_VALUE = 400
"""The maximal length of a shown value."""
_LONGEST_NAME = 200
"""The maximal length of compared names; the time grows with its square."""
_IMPOSSIBLE = ("array is too big", "Maximum allowed dimension exceeded", "Maximum allowed size exceeded")
"""The beginnings of numpy's messages for sizes beyond the address space."""


class FluidError(Exception):
    """Every error that Fluid raises on purpose. Its message is one that `readable` returns.

    >>> print(fluid.errors.FluidError("a name with a bell" + chr(7)))
    a name with a bell\\x07
    """

    def __init__(self, *_args: object, **_kwargs: Any) -> None:
        super().__init__(*(readable(arg) if isinstance(arg, str) else arg for arg in _args), **_kwargs)

    def restate(self, text: str) -> None:
        """Give the error another message.

        >>> error = fluid.errors.FluidError("too large")
        >>> error.restate(f"relu: {error}")
        >>> print(error)
        relu: too large
        """
        self.args = (readable(text),)


class FluidTypeError(FluidError, TypeError):
    """A value or element type that cannot be used here."""


class FlagError(FluidTypeError, ValueError):
    """An argument that should be True or False is neither; Fluid 1.6 raised a ValueError in some places, a TypeError in
    others."""


class MissingAttributeError(FluidError, AttributeError):
    """An object has no such attribute; the message says what to write instead."""

    def __init__(self, *_args: object) -> None:
        super().__init__(*_args, name=None)  # with a name, some versions of Python would suggest another one once more


class MissingMethodError(FluidError, NotImplementedError):
    """A class does not define a method that it should."""


class EagerOnlyError(MissingAttributeError, AssertionError):
    """A method of eager tensors is called on a variable of a program; Fluid 1.6 raised an AssertionError there."""


class ProgramError(FluidError, ValueError):
    """A program, block, operator or variable is built or used wrongly."""


class NameNotFoundError(ProgramError, KeyError):
    """No variable of the block, or of the blocks around it, has this name."""

    __str__ = Exception.__str__


class AttributeRuleError(ProgramError):
    """An operator's slots or attributes break its definition."""


class InferenceError(ProgramError):
    """Shapes or dtypes of an operator's inputs do not fit together."""


class ElementTypeError(InferenceError, FluidTypeError):
    """An operator's inputs have an element type that it does not take, or types that do not fit together."""


class BackwardError(FluidError, RuntimeError):
    """A gradient cannot be built."""


class ExecutionError(FluidError, RuntimeError):
    """An operator failed while a program ran."""

    located = False
    """Whether the message already names the operator."""


class OutOfMemoryError(ExecutionError, MemoryError):
    """There is no room in memory for an array."""


class CommunicationError(ExecutionError):
    """Workers cannot reach each other, wait in vain, or do not run the same."""


class DataError(ExecutionError):
    """A sample of a dataset cannot be read, or a process that reads samples has ended."""


class FeedError(ExecutionError, ValueError):
    """A feed or a fetch does not fit the program."""


class LengthsError(FeedError, AssertionError):
    """Lengths of sequences do not fit each other, or the data; Fluid 1.6 raised an AssertionError."""


class FeedTypeError(FeedError, FluidTypeError):
    """The program, the feed or a fetch is not a program, a dict or a variable."""


class IndexRangeError(ProgramError, ExecutionError, IndexError):
    """An index is out of range."""


class EOFException(ExecutionError, EOFError):
    """A loader has no more data to feed."""


class FormatError(FluidError, ValueError):
    """A file or its bytes do not have the expected format."""


def no_room(error: object) -> OutOfMemoryError | None:
    """The error that says which array had no room, for an error of numpy or cupy; None if it is an error of another kind.

    >>> print(fluid.errors.no_room(ValueError("another")))
    None
    """
    if isinstance(error, OutOfMemoryError):
        return error
    if isinstance(error, MemoryError):
        shape, element = getattr(error, "shape", None), getattr(error, "dtype", None)  # numpy's error has them
        if shape is None or element is None:
            return OutOfMemoryError(f"there is no room in memory: {error}")
        return OutOfMemoryError(
            f"there is no room in memory for {element}{list(shape)}, which takes {gibibytes(prod(shape) * element.itemsize)}"
        )
    if isinstance(error, ValueError) and str(error).startswith(_IMPOSSIBLE):
        return OutOfMemoryError("there is no room in memory for so many elements: no processor could address them")
    return None


def gibibytes(size: int) -> str:
    """A number of bytes as text.

    >>> fluid.errors.gibibytes(3 * 2**40)
    '3,072.0 GiB'
    """
    return f"{size / 2**30:,.1f} GiB"


def did_you_mean(name: object, choices: Iterable[str], most: int = 3, show: Callable[[str], str] = str) -> str:
    """Suggest choices that resemble a name, the closest first; "" if there are none.

    Args:
        name: the unknown name.
        choices: the valid names.
        most: how many are named at most.
        show: how one is shown.

    >>> fluid.errors.did_you_mean("lerning_rate", ["learning_rate", "name"])
    '; did you mean learning_rate?'
    """
    from difflib import get_close_matches

    text = str(name)
    if len(text) > _LONGEST_NAME:
        return ""
    choices = [choice for choice in choices if len(choice) <= _LONGEST_NAME]
    near = [choice for choice in choices if choice.lower() == text.lower()] or get_close_matches(text, choices, most)
    return f"; did you mean {' or '.join(map(show, near[:most]))}?" if near else ""


_ARGUMENTS_ELSEWHERE = {
    "activation": ("act",),
    "axes": ("dim", "axis"),
    "axis": ("dim", "axes"),
    "betas": ("beta1",),
    "bias": ("bias_attr",),
    "dim": ("axis", "axes"),
    "embedding_dim": ("size",),
    "eps": ("epsilon",),
    "filters": ("num_filters",),
    "in_channels": ("num_channels",),
    "in_features": ("input_dim",),
    "keepdim": ("keep_dim", "keepdims"),
    "keepdims": ("keep_dim", "keepdim"),
    "kernel_size": ("filter_size", "pool_size"),
    "lr": ("learning_rate",),
    "num_embeddings": ("size",),
    "num_features": ("num_channels",),
    "out_channels": ("num_filters",),
    "out_features": ("output_dim", "size"),
    "p": ("dropout_prob", "p"),
    "padding": ("pool_padding", "paddings"),
    "params": ("parameter_list",),
    "pool_size": ("kernel_size",),
    "rate": ("dropout_prob", "p"),
    "strides": ("stride", "pool_stride"),
    "stride": ("pool_stride",),
    "units": ("output_dim", "size"),
    "use_bias": ("bias_attr",),
    "weight_decay": ("regularization",),
}
"""An argument's name in other frameworks -> its names here, which differ between functions."""


def arguments_text(names: Iterable[str], wanted: str | None = None) -> str:
    """The end of a message about a call: the arguments that a function takes, and which of them was meant.

    Args:
        names: of its arguments.
        wanted: the name that the call has, and the function does not.

    >>> fluid.errors.arguments_text(["input", "num_filters", "filter_size"], "kernel_size")
    '; it takes input, num_filters, filter_size; did you mean filter_size?'
    """
    names = list(names)
    text = f"; it takes {', '.join(names) or 'no arguments'}"
    if wanted is None:
        return text
    here = [name for name in _ARGUMENTS_ELSEWHERE.get(wanted, ()) if name in names]
    return f"{text}; did you mean {here[0]}?" if here else text + did_you_mean(wanted, names)


def how_to_install(extra: str) -> str:
    """The command that installs an extra, quoted for every shell; Fluid is installed from its source.

    >>> print(fluid.errors.how_to_install("plot"))
    pip install ".[plot]" in the folder of Fluid's source
    """
    return f'pip install ".[{extra}]" in the folder of Fluid\'s source'


def printable(text: str, keep: str = "") -> str:
    """`text` with its unprintable characters escaped, except those in `keep`.

    Names in files may hold line breaks, a terminal's escape sequences, and marks that turn the direction of text.

    >>> fluid.errors.printable("a" + chr(7)) == "a" + chr(92) + "x07"
    True
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else repr(char)[1:-1] for char in text)


def readable(text: str) -> str:
    """Make a message readable: escape control characters, and cut long text in the middle.

    Files, and errors of other processes, put texts of any length into messages, with anything that moves a terminal's cursor.
    Line breaks and tabs stay.

    >>> fluid.errors.readable("x" * 5000)[1490:1540]
    'xxxxxxxxxx ... (3000 characters left out) ... xxxx'
    """
    if len(text) <= _LONGEST_LINE and text.isprintable():
        return text
    text = _shortened(text, _LONGEST)
    text = "\n".join(_shortened(printable(_shortened(line, _LONGEST_LINE), "\t"), _LONGEST_LINE) for line in text.split("\n"))
    return _shortened(text, _LONGEST)


def _shortened(text: str, most: int) -> str:
    """The first and the last part of a text that has more characters than this."""
    if len(text) <= most + 100:  # text that was shortened before stays
        return text
    end = most // 4
    return f"{text[: most - end]} ... ({len(text) - most} characters left out) ... {text[-end:]}"


def shown(value: object) -> str:
    """A short text for a value; only its type if its `repr` raises an error.

    >>> fluid.errors.shown([1, 2]), fluid.errors.shown(10**5000)
    ('[1, 2]', 'an object of the type int')
    """
    try:
        return _shortened(repr(value), _LONGEST_VALUE)
    except Exception:  # its __repr__ may raise anything
        return f"an object of the type {type(value).__name__}"


def type_name(value: object) -> str:
    """The name of a value's type, with its package unless this is Python's, numpy's or Fluid's own.

    >>> from collections import OrderedDict
    >>> fluid.errors.type_name(3), fluid.errors.type_name(OrderedDict())
    ('int', 'collections.OrderedDict')
    """
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    return kind.__name__ if package in ("builtins", "numpy", "fluid", "__main__") else f"{package}.{kind.__name__}"


def said_of(op_type: str, error: object, verb: str = "") -> str:
    """Put the op's type in front of an error's message, unless the message begins with it already.

    Args:
        op_type: the type of op.
        error: the error, or its message.
        verb: stands between the op and the message.

    >>> fluid.errors.said_of("relu", "there is no input")
    'relu: there is no input'
    """
    error = no_room(error) or error
    return f"{op_type}{verb}: {str(error).removeprefix(f'{op_type}: ')}"


def while_running(error: Exception, message: str) -> ExecutionError:
    """Make the error with this `message` for an operator that failed by `error`; errors of indices, memory and workers keep
    their class.

    >>> type(fluid.errors.while_running(IndexError(), "3 is out of range")).__name__
    'IndexRangeError'
    """
    for kind, failure in (
        (CommunicationError, CommunicationError),
        (MemoryError, OutOfMemoryError),
        (IndexError, IndexRangeError),
    ):
        if isinstance(no_room(error) or error, kind):
            return failure(message)
    return ExecutionError(message)


def op_failure(op: Operator, error: Exception, inputs: str = "") -> ExecutionError:
    """Make the error for an operator that failed by `error` while a program ran: what happened, where, and with what.

    Args:
        op: the operator.
        error: its error.
        inputs: describes the inputs at run time.

    >>> y = layers.relu(fluid.data("x", [None, 2]))
    >>> print(fluid.errors.op_failure(y.op, ValueError("there is no input"), "x is absent"))  # doctest: +ELLIPSIS
    relu failed: there is no input
      op: relu_0.tmp_0: float32[-1, 2] = relu(X=x)
      inputs: x: float32[-1, 2]
      made at: ...
      at run time: x is absent
    """
    at_run = f"\n  at run time: {inputs}" if inputs else ""
    failure = while_running(error, f"{said_of((op.origin or op).type, error, ' failed')}\n{locate(op)}{at_run}")
    failure.located = True
    return failure


def values_by_users_name(op: Operator, values: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Name of an input in the user's program -> its value. Values without such a name are left out."""
    names = (op.origin or op).inputs
    return {name: value for slot, listed in values.items() for name, value in zip(names.get(slot, ()), listed, strict=False)}


def locate(op: Operator) -> str:
    """Lines that describe an operator, its inputs, and the line of the user's code that made it.

    >>> y = layers.relu(fluid.data("x", [None, 2]))
    >>> print(fluid.errors.locate(y.op))  # doctest: +ELLIPSIS
      op: relu_0.tmp_0: float32[-1, 2] = relu(X=x)
      inputs: x: float32[-1, 2]
      made at: ...
    """
    op = op.origin or op
    lines = [f"  op: {op}"]
    variables = ((name, op.block.find_var(name)) for name in op.input_arg_names)
    if specs := [f"{printable(name)}: {var.describe()}" for name, var in variables if var is not None]:
        lines.append("  inputs: " + "; ".join(specs))
    frame = op.user_frame
    if frame is not None:
        lines.append(f"  made at: {frame[0]}:{frame[1]} in {frame[2]}")
    return "\n".join(lines)

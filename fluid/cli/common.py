"""Functions that the commands share: reading models, printing tables."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, TypeVar
from unicodedata import combining, east_asian_width

import click
import numpy as np

from ..errors import FeedError, FluidError, FormatError, ProgramError, printable
from ..executor import Scope
from ..ir.program import Program, Variable
from ..saving.models import Model, few, load_model

_F = TypeVar("_F", bound=Callable[..., Any])


def model_argument(name: str = "model") -> Callable[[_F], _F]:
    """A decorator that adds an argument for a model, and an option for its parameters."""

    def decorate(function: _F) -> _F:
        params = click.option(f"--{name}-params" if name != "model" else "--params", help="File or folder of the parameters.")
        return click.argument(name, type=click.Path())(params(function))

    return decorate


def sizes_option(function: _F) -> _F:
    """A decorator that adds an option for sizes of inputs, as texts for `read_model`."""
    note = "NAME=1,3,? for the shape of an input, ? for open sizes; NAME=8 for a named dimension of an ONNX model. Repeatable."
    return click.option("--size", "sizes", multiple=True, metavar="NAME=SIZES", help=note)(function)


def _parsed_sizes(texts: Sequence[str]) -> dict[str, Any]:
    sizes: dict[str, Any] = {}
    for text in texts:
        name, equals, listed_sizes = text.rpartition("=")
        items = [item.strip() for item in listed_sizes.split(",")]
        if not equals or not name or not all(item == "?" or item.isdigit() for item in items):
            raise click.BadParameter(f"{text!r} should be as x=1,3,? or n=8", param_hint="--size")
        numbers = [None if item == "?" else int(item) for item in items]
        sizes[name] = numbers if len(numbers) > 1 or "," in listed_sizes else numbers[0]
    return sizes


def read_model(path: str, params: str | None = None, sizes: Sequence[str] = ()) -> Model:
    """Load a model into a new scope; `sizes` are the values of `sizes_option`."""
    return load_model(path, params=params, scope=Scope(), sizes=_parsed_sizes(sizes))


@contextlib.contextmanager
def needing_parameters(model: Model) -> Iterator[None]:
    """A context that runs a model: if it needs values, and no file holds parameters, the error says where they could be."""
    try:
        yield
    except (FeedError, ProgramError) as error:
        if not model.missing or model.parameters:
            raise
        stem = os.path.splitext(os.path.basename(model.path))[0]
        raise FormatError(
            f"{model.path}: there is no file with its parameters, {few(model.missing)}; put it beside the model, such as "
            f"{stem}.pdiparams, or name it with --params"
        ) from error


def program_of(model: Model) -> Program:
    """The program of a model; `ProgramError` if it only has parameters."""
    if model.program is None:
        raise ProgramError(f"{model.path} holds parameters alone, no program")
    return model.program


def listed(values: Sequence[str]) -> list[str]:
    """Collect the names from a repeated option; one value may list several, separated by commas."""
    return [name.strip() for value in values for name in value.split(",") if name.strip()]


def human_bytes(number: float) -> str:
    """A number of bytes with a unit, such as ``1.5 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    raise AssertionError


def echo(text: str = "", **style: Any) -> None:
    """Print a line, styled on a terminal, with control characters and line breaks (from files) escaped."""
    click.secho(printable(text, "\t"), **style)


def echo_lines(text: str) -> None:
    """Print a text of several lines whose names are already escaped."""
    for line in text.split("\n"):
        echo(line)


def echo_wrapped(text: str, width: int) -> None:
    """Print a text of several lines; break lines longer than `width` at spaces, and never inside names."""
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip(" "))]
        indent = indent[: width // 2]
        for part in _wrapped(line.strip(" "), width, indent, indent + "    ") or [""]:
            echo(part)


def _wrapped(text: str, width: int, indent: str, further: str) -> list[str]:
    return textwrap.wrap(
        text,
        max(width, len(further) + 1),
        initial_indent=indent,
        subsequent_indent=further,
        expand_tabs=False,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
    )


def output_option(note: str, required: bool = False) -> Callable[[_F], _F]:
    """A decorator that adds the option ``-o`` for where to write; `note` is its help."""
    return click.option("-o", "--out", "--output", "output", required=required, type=click.Path(), help=note)


def output_as_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator for a command that needs an output: the path may also be the last argument, without ``-o``."""

    @functools.wraps(function)
    def call(output: str | None, last: str | None, **options: Any) -> Any:
        if output is None and last is None:
            raise click.UsageError("say where to write: -o OUTPUT")
        if output is not None and last is not None:
            raise click.UsageError(f"one output is written, but there are two: {last} and -o {output}")
        return function(output=output if output is not None else last, **options)

    return click.argument("last", required=False, type=click.Path(), metavar="-o OUTPUT")(call)


def overwriting(function: _F) -> _F:
    """A decorator that adds the option ``--force``, for `may_overwrite`."""
    return click.option("--force", is_flag=True, help="Write over what is there, without asking.")(function)


def may_overwrite(output: str, force: bool, source: str = "") -> None:
    """Ask whether an existing file may be overwritten; raise an error if there is no terminal to ask on.

    A model is more than one file: beside ``.pdmodel`` and ``.json`` lies ``.pdiparams``; a folder counts if anything is in it.

    Args:
        output: the path to write to.
        force: overwrite without asking.
        source: the model that is read, whose own files may be among them.

    Raises:
        FluidError: the input is no terminal.
        click.Abort: the answer is no.
    """
    stem, ending = os.path.splitext(output)
    beside = [stem + ".pdiparams"] if ending in (".pdmodel", ".json") else []
    existing = [path for path in (output, *beside) if os.path.isfile(path) or (os.path.isdir(path) and os.listdir(path))]
    if force or not existing:
        return
    names = " and ".join(existing)
    message = (
        f"{names} {'exist' if len(existing) > 1 else 'is a folder that is not empty' if os.path.isdir(output) else 'exists'}"
    )
    if source and beside and beside[0] in existing and os.path.splitext(source)[0] == stem and source != output:
        message += f", with the parameters of {source}: give OUTPUT another name, such as {stem}_converted{ending}"
    if not sys.stdin.isatty():
        raise FluidError(f"{message}; --force writes over what is there")
    click.confirm(printable(f"{message}; write over what is there?"), abort=True, err=True)


def as_json(value: Any) -> None:
    """Print as JSON; floats that JSON lacks are the strings "NaN", "Infinity" and "-Infinity"."""
    click.echo(json.dumps(_plain(value), indent=2, default=str, allow_nan=False))


def _plain(value: Any) -> Any:
    """Convert a value and all nested values to types of JSON."""
    if isinstance(value, Variable):
        return {"name": value.name, "type": value.describe()}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray) and (value.dtype.kind != "f" or np.isfinite(value).all()):
        return value.tolist()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "", right: Iterable[int] = ()) -> None:
    """Print a table: plain columns in a pipe; on a terminal framed by rich, if installed; as a list if it is too wide.

    Args:
        columns: the headings.
        rows: the cells.
        title: a line above the table.
        right: the indices of right-aligned columns.
    """
    texts = [[printable(str(cell)) for cell in row] for row in rows]
    numbers = set(right)
    on_terminal = sys.stdout.isatty()
    columns_here = shutil.get_terminal_size().columns
    if on_terminal and sum(_widths(columns, texts)) + 3 * len(columns) + 1 > columns_here:
        _entries(columns, texts, title, columns_here)
    elif on_terminal and importlib.util.find_spec("rich") is not None:
        _framed(columns, texts, title, numbers)
    else:
        _columns(columns, texts, title, numbers)


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """The width of each column in cells of a terminal."""
    return [max(_cells(line[at]) for line in (columns, *rows)) for at in range(len(columns))]


def _cells(text: str) -> int:
    """The number of cells that a terminal needs for a text: two for a wide character, none for an accent."""
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def _columns(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str, right: Container[int]) -> None:
    """Print a table as columns, with spaces between them."""
    if title:
        click.secho(title, bold=True)
    widths = _widths(columns, rows)
    for line in (columns, *rows):
        spaces = [" " * (width - _cells(cell)) for cell, width in zip(line, widths, strict=True)]
        cells = [space + cell if at in right else cell + space for at, (cell, space) in enumerate(zip(line, spaces, strict=True))]
        click.echo(("  " + "  ".join(cells)).rstrip())


def _framed(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str, right: Container[int]) -> None:
    """Print a table in a frame, by rich."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    framed = Table(title=title or None, title_justify="left", header_style="bold", expand=False)
    for at, column in enumerate(columns):
        framed.add_column(column, justify="right" if at in right else "left")
    for row in rows:
        framed.add_row(*map(Text, row))
    Console().print(framed)


def _entries(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str, width: int) -> None:
    """Print a table that is wider than the terminal: the first cell of each row on its own line, the others below."""
    click.secho(title or columns[0], bold=True)
    for first, *cells in rows:
        echo(f"  {first}")
        for column, cell in zip(columns[1:], cells, strict=True):
            for line in _wrapped(f"{column} {cell}", width, "    ", "      "):
                echo(line)

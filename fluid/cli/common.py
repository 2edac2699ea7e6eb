"""What the commands share: reading models, and writing tables that are plain in a pipe."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click
import numpy as np

from ..errors import ProgramError
from ..executor import Scope
from ..ir.program import Program, Variable
from ..saving.models import Model, load_model

__all__ = ["as_json", "echo", "human_bytes", "listed", "model_argument", "program_of", "read_model", "table"]

_F = TypeVar("_F", bound=Callable[..., Any])


def model_argument(name: str = "model") -> Callable[[_F], _F]:
    """An argument MODEL, and where its parameters are."""

    def decorate(function: _F) -> _F:
        params = click.option(f"--{name}-params" if name != "model" else "--params", help="File or folder of the parameters.")
        return click.argument(name, type=click.Path())(params(function))

    return decorate


def read_model(path: str, params: str | None = None) -> Model:
    """A model in a scope of its own."""
    return load_model(path, params=params, scope=Scope())


def program_of(model: Model) -> Program:
    """The program of a model; an error where it holds parameters alone."""
    if model.program is None:
        raise ProgramError(f"{model.path} holds parameters alone, no program")
    return model.program


def listed(values: Sequence[str]) -> list[str]:
    """Names given as several options, or in one with commas."""
    return [name.strip() for value in values for name in value.split(",") if name.strip()]


def human_bytes(number: float) -> str:
    """Such as ``1.5 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    raise AssertionError


def is_terminal() -> bool:
    return sys.stdout.isatty()


def echo(text: str = "", **style: Any) -> None:
    """A line, styled on a terminal; control characters, which files may hold, are shown as such."""
    text = "".join(char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in text)
    click.secho(text, **style)


def as_json(value: Any) -> None:
    """Print as JSON. What it has no numbers for are the strings "NaN", "Infinity" and "-Infinity"."""
    click.echo(json.dumps(_plain(value), indent=2, default=str, allow_nan=False))


def _plain(value: Any) -> Any:
    """What JSON can hold, of lists, dicts, arrays and what they hold."""
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
    """A table: framed on a terminal, words in columns in a pipe. `right` are columns of numbers."""
    texts = [[str(cell) for cell in row] for row in rows]
    texts = [["".join(char if char.isprintable() else repr(char)[1:-1] for char in cell) for cell in row] for row in texts]
    numbers = set(right)
    if not is_terminal():
        if title:
            click.echo(title)
        lines = [list(columns), *texts]
        widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
        for line in lines:
            cells = [cell.rjust(widths[at]) if at in numbers else cell.ljust(widths[at]) for at, cell in enumerate(line)]
            click.echo(("  " + "  ".join(cells)).rstrip())
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title or None, title_justify="left", header_style="bold", expand=False)
    for at, column in enumerate(columns):
        made.add_column(column, justify="right" if at in numbers else "left", overflow="fold")
    for row in texts:
        made.add_row(*(Text(cell) for cell in row))
    Console().print(made)

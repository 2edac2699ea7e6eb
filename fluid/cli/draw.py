"""Commands that draw programs: draw, view."""

from __future__ import annotations

import os
import shutil
import subprocess
import webbrowser

import click

from ..errors import FluidError
from ..formats.writing import write_file
from ..transform.graph import to_dot
from ..viewer import measure, write_html
from .common import echo, echo_lines, listed, model_argument, output_option, program_of, read_model
from .run import read_feeds


@click.command()
@model_argument()
@output_option("A .dot, .svg, .png or .pdf file; by default, the dot is printed.")
def draw(model: str, params: str | None, output: str | None) -> None:
    """Draw the program as a graph. Pictures need graphviz; large programs are better seen with `view`."""
    text = to_dot(program_of(read_model(model, params)))
    if output is None:
        return echo_lines(text.rstrip("\n"))
    kind = os.path.splitext(output)[1][1:]
    if kind in ("dot", "gv"):
        data = text.encode("utf-8", "replace")
    elif kind in ("svg", "png", "pdf"):
        dot = shutil.which("dot")
        if dot is None:
            raise FluidError(f"{output}: graphviz's command dot is not installed; write a .dot file, or use `view`")
        done = subprocess.run([dot, f"-T{kind}"], input=text.encode("utf-8", "replace"), capture_output=True, check=False)
        if done.returncode:
            raise FluidError(f"{output}: dot failed: {done.stderr.decode(errors='replace').strip()}")
        data = done.stdout
    else:
        raise FluidError(f"{output}: a drawing's name ends in .dot, .svg, .png or .pdf")
    write_file(output, [data])
    return echo(output)


@click.command()
@model_argument()
@output_option("The page; MODEL.html by default.")
@click.option("--open", "shows", is_flag=True, help="Open it in the browser.")
@click.option("--diff", "old", type=click.Path(), metavar="OLD", help="Show the model OLD beside it, and mark what differs.")
@click.option(
    "--run", "feeds", type=click.Path(), metavar="FEEDS", help="Run it on these arrays (.npz, ...); show times and values."
)
@click.option("--allow", multiple=True, help="With --run: ops that access files or run code, and are allowed to.")
def view(
    model: str,
    params: str | None,
    output: str | None,
    shows: bool,
    old: str | None,
    feeds: str | None,
    allow: tuple[str, ...],
) -> None:
    """Write a page that shows the program in any browser, offline.

    `fluid view --diff old new` shows two programs side by side. `fluid view --run feeds.npz model` runs the model on arrays
    from a file and colours its ops by time and memory; each value has its least and largest element, and its NaNs.
    """
    loaded = read_model(model, params)
    program = program_of(loaded)
    program.allowed_ops = frozenset(listed(allow))
    stem = os.path.normpath(model)
    title, before, measured = os.path.basename(stem), None, None
    if old is not None:
        before, title = program_of(read_model(old)), f"{os.path.basename(os.path.normpath(old))} → {title}"
    if feeds is not None:
        fetches = [var.name for var in loaded.fetches]
        measured = measure(program, read_feeds(loaded, feeds, {}, "--run"), fetches, loaded.scope)
    output = output if output is not None else stem.removesuffix(".pdmodel") + ".html"
    write_html(program, output, title, before, measured)
    echo(output)
    if shows:
        webbrowser.open(f"file://{os.path.abspath(output)}")


COMMANDS = [draw, view]

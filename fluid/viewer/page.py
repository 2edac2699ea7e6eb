"""Builds one HTML file from the graph, its rows, and the scripts and styles in this folder."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from importlib.resources import files
from typing import Any

from ..formats.writing import write_file
from ..ir.checked import checked, refuse
from ..ir.program import Program
from .areas import add_boxes
from .encoding import encode
from .graph import ViewGraph
from .layers import make_sheets
from .measuring import Measured, measures_of
from .twins import join_ops, join_rows

_SCRIPTS = (
    "graph.js", "words.js", "flow.js", "layout.js", "colouring.js", "look.js", "boxes.js", "ways.js", "camera.js", "overview.js",
    "painter.js", "element.js", "address.js", "panel.js", "search.js", "list.js", "export.js", "pointer.js", "keys.js", "main.js",
)  # fmt: skip
"""Scripts in the order of execution."""


@checked
def to_html(program: Program, title: str | None = None, before: Program | None = None, measured: Measured | None = None) -> str:
    """The HTML of a page that shows a program. It loads nothing and runs only its own script.

    Args:
        program: the program to show.
        title: the page's heading.
        before: another program, shown on the left, with the differences of `program` from it marked.
        measured: measurements of a run of `program` (`measure`), to colour ops by time and show statistics of values.

    Raises:
        FluidTypeError: `program` or `before` is not a program.

    Example:
        >>> import fluid
        >>> from fluid.viewer import to_html
        >>> "<title>mine</title>" in to_html(fluid.Program(), "mine")
        True
    """
    script = "(() => {\n'use strict';\n" + "\n".join(map(_read, _SCRIPTS)) + "\n})();\n"
    style = _read("page.css")
    allowed = f"script-src '{_digest(script)}'; style-src '{_digest(style)}'"
    parts = {
        "TITLE": html.escape(title if title is not None else "Program"),
        "POLICY": f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'",
        "STYLE": style,
        "DATA": _embedded(_data(program, before, measured)),
        "SCRIPT": script,
    }
    page = _read("page.html")
    pieces = []
    while "{{" in page:  # from left to right, so that inserted texts are not searched
        text, _, remaining = page.partition("{{")
        name, _, page = remaining.partition("}}")
        pieces += [text, parts[name]]
    return "".join([*pieces, page])


def _data(program: Program, before: Program | None, measured: Measured | None) -> dict[str, Any]:
    if measured is not None and not isinstance(measured, Measured):
        refuse("to_html", "measured", "what `measure` returns", measured)
    graph = ViewGraph(program) if before is None else ViewGraph(before, program)
    if before is not None:
        join_ops(graph)
    add_boxes(graph)
    if before is not None:
        join_rows(graph)
    data = {**encode(graph), "sheets": [sheet.to_json() for sheet in make_sheets(graph)]}
    if measured is not None:
        data["measured"] = measures_of(graph, program, measured)
    return data


@checked
def write_html(
    program: Program,
    path: str | os.PathLike[str],
    title: str | None = None,
    before: Program | None = None,
    measured: Measured | None = None,
) -> None:
    """Write the page of `to_html` to a file, atomically; `FluidError` if it cannot be written."""
    write_file(os.fspath(path), [to_html(program, title, before, measured).encode("utf-8", "xmlcharrefreplace")])


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _embedded(data: Any) -> str:
    """JSON that is safe in a script element: the characters that HTML interprets are escaped."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

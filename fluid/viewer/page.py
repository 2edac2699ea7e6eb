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
from ..ir.checked import checked
from ..ir.program import Program
from .graph import Graph
from .layers import make_sheets

__all__ = ["to_html", "write_html"]

_SCRIPTS = ("graph.js", "layout.js", "draw.js", "panel.js", "main.js")


@checked
def to_html(program: Program, title: str | None = None) -> str:
    """The HTML of a page that shows a program, with the heading `title`. It loads nothing and runs only its own script.

    Raises:
        FluidTypeError: `program` is not a program.
    """
    graph = Graph(program)
    data = {**graph.to_json(), "sheets": [sheet.to_json() for sheet in make_sheets(graph)]}
    script = "(() => {\n'use strict';\n" + "\n".join(map(_read, _SCRIPTS)) + "\n})();\n"
    style = _read("page.css")
    allowed = f"script-src '{_digest(script)}'; style-src '{_digest(style)}'"
    parts = {
        "TITLE": html.escape(title if title is not None else "Program"),
        "POLICY": f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'",
        "STYLE": style,
        "DATA": _embedded(data),
        "SCRIPT": script,
    }
    page = _read("page.html")
    pieces = []
    while "{{" in page:  # from left to right, so that inserted texts are not searched
        before, _, rest = page.partition("{{")
        name, _, page = rest.partition("}}")
        pieces += [before, parts[name]]
    return "".join([*pieces, page])


@checked
def write_html(program: Program, path: str | os.PathLike[str], title: str | None = None) -> None:
    """Write the page of `to_html` to a file, atomically; `FluidError` if it cannot be written."""
    write_file(os.fspath(path), [to_html(program, title).encode("utf-8", "xmlcharrefreplace")])


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _embedded(data: Any) -> str:
    """JSON that is safe in a script element: the characters that HTML interprets are escaped."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

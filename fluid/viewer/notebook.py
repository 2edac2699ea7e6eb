"""Show programs in a notebook: as coloured text with foldable blocks, or as the viewer's page in a cell."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

from ..ir.printing import program_to_screen
from ..ir.program import Program
from .page import to_html

_STYLE = "line-height: 1.4; overflow-x: auto; white-space: pre; font-family: monospace; font-size: 90%"
_COLOURS = (
    (r"(?P<role>-- [\w |]+ --)", "#188038"),
    (r"(?P<type>(?<== )\w+(?=\())", "#1a56c4"),
    (r"(?P<spec>(?<=: )\w+(?:\[[-\d, ]*\]|\?)*)", "#777"),
    (r"(?P<kind>^ *(?:param|data|var)(?= ))", "#a142a8"),
    (r"(?P<attrs>\{[^{}]*\}$)", "#777"),
)
"""Patterns to colour in a line, with colours that are readable on white and on black."""
_PARTS = re.compile("|".join(pattern for pattern, _ in _COLOURS))
_COLOUR_OF = {match[1]: colour for pattern, colour in _COLOURS if (match := re.match(r"\(\?P<(\w+)>", pattern))}


def program_as_html(program: Program) -> str:
    """The text of a program, shortened to fit a screen; blocks inside of ops are folded."""
    parts: list[str] = []
    for line in program_to_screen(program).split("\n"):
        if line.rstrip().endswith("{"):
            is_inside = bool(parts) and line.startswith(" ")
            parts.append(f"<details{'' if is_inside else ' open'}><summary>{_coloured(line)}</summary>")
        elif line.strip() == "}":
            parts.append("</details>")
        else:
            parts.append(f"<div>{_coloured(line)}</div>")
    return f'<div style="{_STYLE}">{"".join(parts)}</div>'


def _coloured(line: str) -> str:
    pieces: list[str] = []
    end = 0
    for match in _PARTS.finditer(line):
        colour = _COLOUR_OF[match.lastgroup or ""]
        pieces += [html.escape(line[end : match.start()]), f'<span style="color: {colour}">{html.escape(match[0])}</span>']
        end = match.end()
    return "".join([*pieces, html.escape(line[end:])])


@dataclass(frozen=True)
class Frame:
    """A page that a notebook shows in a cell.

    Attributes:
        page: its HTML.
        height: of the frame, in pixels.
    """

    page: str
    height: int

    def _repr_html_(self) -> str:
        style = f"width: 100%; height: {self.height}px; border: 1px solid #ccc"
        return f'<iframe sandbox="allow-scripts allow-downloads" style="{style}" srcdoc="{html.escape(self.page)}"></iframe>'


def framed(program: Program, height: int, title: str | None = None) -> Frame:
    """The viewer's page of a program, in a frame of this height in pixels."""
    return Frame(to_html(program, title), height)

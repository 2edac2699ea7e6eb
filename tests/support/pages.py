"""Runs the blocks of Python of a page of the documentation: in order, in one namespace, as a reader would.

What is fenced as ``python`` is run. A block fenced as ``output`` behind it is what it prints, in which ``...`` stands for
anything; where it is fenced as ``output about``, numbers may differ by a quarter: training rounds otherwise on another processor.
A block that needs a package has ``<!-- needs NAME -->`` above it, and is passed over where that is missing.

    FLUID_NATIVE=0 python tests/support/pages.py docs/tutorial/program.md

writes into a page what its blocks print, where that is not what stands there.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from paths import ROOT

DOCS = ROOT / "docs"

_BLOCK = re.compile(
    r"(?:^<!-- needs (?P<needs>\w+) -->\n+)?^```python\n(?P<code>.*?)^```\n"
    r"(?:\n```output(?P<about> about)?\n(?P<shown>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


_NUMBER = re.compile(r"\d+(?:\.\d+)?")


class Block(NamedTuple):
    """A block of Python of a page."""

    code: str
    shown: str | None
    needs: str | None = None
    line: int = 0
    """Of its first line of code in the page, from 1."""
    at: slice | None = None
    """Where in the page's text the output stands."""
    about: bool = False
    """Whether numbers may differ a little."""

    def shows(self, out: str) -> bool:
        """Whether the output equals the shown text, except for trailing spaces and numbers of generated names."""
        shown, out = (
            re.sub(r" +$|(?<=generated_tensor_)\d+", "", text, flags=re.MULTILINE)
            for text in (out if self.shown is None else self.shown, out)
        )
        if self.about:
            pairs = zip(map(float, _NUMBER.findall(shown)), map(float, _NUMBER.findall(out)), strict=False)
            if any(abs(one - other) > 0.25 * max(abs(one), abs(other)) for one, other in pairs):
                return False
            shown, out = _NUMBER.sub("0", shown), _NUMBER.sub("0", out)
        return doctest.OutputChecker().check_output(shown, out, doctest.ELLIPSIS)


def blocks(text: str) -> list[Block]:
    """The blocks of Python of a page, each with the output that is shown behind it."""
    return [
        Block(
            found["code"],
            found["shown"],
            found["needs"],
            text.count("\n", 0, found.start("code")) + 1,
            None if found["shown"] is None else slice(*found.span("shown")),
            found["about"] is not None,
        )
        for found in _BLOCK.finditer(text)
    ]


def run(blocks: Iterable[Block], name: str, names: dict[str, Any] | None = None) -> Iterator[tuple[Block, str]]:
    """Run the blocks in the current folder with these names; returns each block with its output.

    Messages that name lines name those of a script of this name that the blocks would be together.
    """
    from checks import fresh_programs, own_ops

    import fluid
    from fluid.executor.kernels.table import load_kernels

    load_kernels()  # before `own_ops` notes which there are
    namespace: dict[str, Any] = {"__name__": "__main__", **(names or {})}
    lines = 0
    try:
        with fresh_programs(), own_ops():
            fluid.seed(0)  # as it is for users
            for block in blocks:
                code, lines = "\n" * lines + block.code, lines + block.code.count("\n")
                if block.needs is None or importlib.util.find_spec(block.needs):
                    out = io.StringIO()
                    with contextlib.redirect_stdout(out):
                        exec(compile(code, name, "exec"), namespace)
                    yield block, out.getvalue()
    finally:
        fluid.dygraph.disable_dygraph()


def run_page(path: Path) -> Iterator[tuple[Block, str]]:
    """Run the blocks of a page; its script is called ``program.py`` for ``program.md``."""
    return run(blocks(path.read_text(encoding="utf-8")), f"{path.stem}.py")


def write(path: Path) -> None:
    """Write into the page what its blocks print."""
    text = path.read_text(encoding="utf-8")
    results = []
    try:
        for block, out in run_page(path):
            if block.at and not block.shows(out):
                results.append((block.at, out))
    finally:
        for at, out in reversed(results):
            text = text[: at.start] + re.sub(r" +$", "", out, flags=re.MULTILINE) + text[at.stop :]
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for page in [Path(name).absolute() for name in sys.argv[1:]]:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            write(page)
            os.chdir(DOCS)

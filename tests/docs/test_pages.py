"""The pages of the documentation: their Python blocks run and print the shown output; no public name is missing."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import DOCS, Block, blocks, run, run_page

import fluid

sys.path.insert(0, str(DOCS))
import make_reference
import pages_beside_code

MADE = {"ops.md", "onnx_ops.md", "onnx_ops_in.md"}
"""Pages that are made from the definitions, whose blocks are gradient rules."""
PAGES = sorted(
    path.relative_to(DOCS)
    for pattern in ("*.md", "tutorial/*.md", "how_to/*.md")
    for path in DOCS.glob(pattern)
    if path.name not in MADE and "```python" in path.read_text(encoding="utf-8")
)


@pytest.mark.numpy_alone  # pages that show native code switch it on themselves
@pytest.mark.parametrize("page", PAGES, ids=str)
def test_blocks_run_and_print_what_is_shown(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block, out in run_page(DOCS / page):
        assert block.shows(out), f"{page}, line {block.line}, prints\n{out}\nnot what is shown:\n{block.shown}"


def test_every_public_name_is_in_the_reference() -> None:
    described = {make_reference.identity(name.value) for page in make_reference.pages() for name in page.own}
    missing = [path for path, value in public_names() if make_reference.identity(value) not in described]
    assert not missing, f"docs/reference.md lacks the modules of {', '.join(missing)}"


def test_no_name_is_described_twice() -> None:
    pages = make_reference.pages()
    paths = [name.path for page in pages for name in page.own]
    assert len(paths) == len(set(paths)) > 700
    assert {"fluid.Executor", "fluid.layers.fc", "fluid.layers.pool2d", "fluid.optimizer.Adam", "fluid.dygraph.Linear"} <= set(
        paths
    )
    elsewhere = {path: first.path for page in pages for path, first in page.elsewhere}
    assert elsewhere["fluid.framework.Program"] == "fluid.Program"


def public_names() -> Iterator[tuple[str, Any]]:
    """Public names of functions, classes and constants, each with its object."""
    waiting, seen = {"fluid": fluid}, set()
    while waiting:
        path, module = waiting.popitem()
        seen.add(path)
        layers = [name for name, value in vars(module).items() if getattr(value, "__module__", "").startswith("fluid.layers.")]
        for name in [*getattr(module, "__all__", layers), *(fluid._LAZY if module is fluid else ())]:
            value = getattr(module, name)
            if inspect.ismodule(value):
                if f"{path}.{name}" not in seen:
                    waiting[f"{path}.{name}"] = value
            elif not name.startswith("_"):
                yield f"{path}.{name}", value


def test_what_counts_as_shown() -> None:
    missing = "<!-- needs no_such_package -->\n\n```python\n1 / 0\n```\n\n"
    text = missing + '```python\nprint(2.0)\nprint("b")\n```\n\n```output about\n2.2\nb\n```\n'
    absent, shown = blocks(text)
    assert absent.needs == "no_such_package" and shown.line == 8 and text[shown.at] == "2.2\nb\n"
    assert [(block, out) for block, out in run([absent, shown], "page.py")] == [(shown, "2.0\nb\n")]
    assert shown.shows("2.0\nb\n") and not shown.shows("3.0\nb\n") and not shown.shows("2.0\nc\n") and not shown.shows("2.0\n")
    assert Block("", "a ... z\n").shows("a 1 z\n") and not Block("", "a ... z\n").shows("a 1 y\n")
    assert not Block("", "0.5\n").shows("0.6\n")


def headings(path: Path) -> set[str]:
    """The anchors of the headings of a page."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_lead_to_files_of_the_repository() -> None:
    root = DOCS.parent
    of_docs = (path for path in DOCS.rglob("*.md") if path.name not in MADE and path.parent != pages_beside_code.FOLDER)
    pages = [*root.glob("*.md"), *of_docs, *pages_beside_code.pages()]
    broken = []
    for page in pages:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            file, _, place = target.partition("#")
            path = (page.parent / file).resolve() if file else page
            if not re.match(r"\w+:", target) and not (path.exists() and (not place or place in headings(path))):
                broken.append(f"{page.relative_to(root)}: {target}")
    assert len(pages) > 20 and not broken, broken


@pytest.mark.parametrize("folder", ["tutorial", "how_to", "notebooks"])
def test_each_page_stands_once_in_the_table_of_its_folder(folder: str) -> None:
    text = (DOCS / folder / "index.md").read_text(encoding="utf-8")
    entries = re.search(r"^```\{toctree\}\n(?::.*\n)*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1].split()
    assert sorted(entries) == sorted({path.stem for path in (DOCS / folder).iterdir() if path.is_file()} - {"index"})
    if folder == "how_to":
        assert re.findall(r"^- \[.*\]\((\w+)\.md\)", text, re.MULTILINE) == entries

"""The notebooks run from top to bottom, as plain Python and in Jupyter, and print the shown output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pages import DOCS, Block, run

pytest.importorskip("matplotlib", reason="needs matplotlib: the extra docs")

NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


def printed(cell: dict) -> str:
    """The printed output of a cell, without rich output."""
    return "".join("".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream")


def blocks_of(path: Path) -> list[Block]:
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    return [Block("".join(cell["source"]) + "\n", printed(cell), about=True) for cell in cells]


@pytest.mark.numpy_alone
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_print_what_is_shown(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    for block, out in run(blocks_of(path), f"{path.stem}.py", {"display": lambda value: None}):
        assert block.shows(out), f"{path.name} prints\n{out}\nnot what is shown:\n{block.shown}"


@pytest.mark.slow
@pytest.mark.numpy_alone
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_jupyter_runs_it(path: Path, tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="needs nbclient: the extra docs")
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient: the extra docs")
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for cell, block in zip((cell for cell in notebook.cells if cell.cell_type == "code"), blocks_of(path), strict=True):
        assert block.shows(printed(cell))
        kinds = {kind for output in cell.outputs for kind in output.get("data", ())}
        assert kinds == {
            kind
            for was in nbformat.read(path, as_version=4).cells
            if was.get("id") == cell.id
            for output in was.outputs
            for kind in output.get("data", ())
        }

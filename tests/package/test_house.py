"""The figures of the house: plain words, short functions, and an executor that knows no engine.

`test_floors` checks the imports, `test_design` the length of the pages. The bounds here are upper limits; `.ci/words.txt` holds
the present counts, which only fall.
"""

from __future__ import annotations

import ast
import re
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from statistics import median
from types import ModuleType

import pytest
from paths import ROOT

EXECUTOR = ROOT / "executor" / "executor.py"
ENGINES = re.compile(r"native|xla|cupy|planned|llvm|jax", re.IGNORECASE)


@pytest.fixture(scope="module")
def words() -> ModuleType:
    """The script `.ci/words`."""
    loader = SourceFileLoader("words", str(ROOT / ".ci" / "words"))
    module = module_from_spec(spec_from_loader("words", loader))  # type: ignore[arg-type]
    loader.exec_module(module)
    return module


def test_names_are_plain(words: ModuleType) -> None:
    """`.ci/words` allows each package fewer than 5 vague names of 1,000, and fewer than 2 round-about phrases in 1,000 words."""
    rows = [line.split() for line in words.BOUNDS.read_text().splitlines()]
    bounds = {name: (float(vague), float(phrases)) for name, vague, phrases in rows if name != "classes"}
    assert {"executor", "executor/native", "fluid", "fluid/onnx"} <= bounds.keys()
    assert {name: pair for name, pair in bounds.items() if pair[0] >= 5 or pair[1] >= 2} == {}


def test_words_are_counted(words: ModuleType) -> None:
    count = words.Count()
    text = 'def found(other, size):\n    """The sum of what it reads."""\n    # as many as there are\n    return size\n'
    count.add(text, frozenset())
    assert (count.names, count.vague, count.phrases) == (3, 2, 2)
    count.add(text, frozenset({"other"}))
    assert count.vague == 3


def lengths() -> list[int]:
    """The lines of each function of the package."""
    return [
        node.end_lineno - node.lineno + 1
        for folder in ("fluid", "executor")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.end_lineno is not None
    ]


def test_functions_are_short() -> None:
    """Half of them have at most 6 lines, and fewer than 1 of 300 has more than 60."""
    lines = lengths()
    assert len(lines) > 5000
    assert median(lines) <= 6
    assert sum(count > 60 for count in lines) / len(lines) < 1 / 300


TESTED_WITH = {"building": "layers", "incubate": "loading", "onnx": "onnx_models", "transpiler": "distributed"}
"""Package -> the folder of its tests, where that has another name. A folder `onnx` would hide the package."""


def test_each_package_has_a_folder_of_tests() -> None:
    packages = {path.parent.name for folder in ("fluid", "executor") for path in (ROOT / folder).glob("*/__init__.py")}
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")}
    assert {TESTED_WITH.get(name, name) for name in packages} <= folders


def test_the_executor_is_short_and_names_no_engine() -> None:
    """It knows backends by their interface alone; op by op is the reference that `Executor.interpret` runs."""
    source = EXECUTOR.read_text()
    assert len(source.splitlines()) < 350
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            names |= {node.module or "", *(alias.name for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
    assert "backends_of" in names
    assert {name for name in names if ENGINES.search(name)} == set()


NAMES_OF_TWO_CLASSES = {
    "BeamSearchDecoder", "ChunkEvaluator", "EditDistance", "Layer", "OpRole", "Parameter", "ProgramDesc",
}  # fmt: skip
"""The public interface gives each of these names to two classes."""


def test_a_name_belongs_to_one_class() -> None:
    """Private classes, too: a reader of a traceback, or of a search's results, knows which class is meant."""
    paths: dict[str, list[str]] = {}
    for folder in ("fluid", "executor"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    paths.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths[name] for name in sorted(paths) if len(paths[name]) > 1 and name not in NAMES_OF_TWO_CLASSES} == {}

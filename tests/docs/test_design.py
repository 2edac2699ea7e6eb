"""The overview of the design and the pages beside the code: every path, module and name in them exists; the overview is short."""

from __future__ import annotations

import ast
import builtins
import importlib
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from pages import DOCS
from test_floors import MODULES, tree_of

import fluid  # noqa: F401  (fills the registry)
from fluid.opdef import registry

sys.path.insert(0, str(DOCS))
import pages_beside_code

ROOT = DOCS.parent
OVERVIEW = DOCS / "design.md"
PAGES = [OVERVIEW, *pages_beside_code.pages()]

LIBRARIES = ("jax", "lax", "numpy", "onnx", "pickle", "xp")
"""Names of theirs are used, not defined here."""
OF_PADDLE = {"pd_op.if", "tril_triu"}
"""Names in Paddle's programs and messages."""
PLACEHOLDERS = {"foo_grad"}
OF_COMMANDS = {"import", "pytest", "with"}


@cache
def identifiers(path: Path) -> set[str]:
    """Names that a module defines: classes, functions, parameters, variables, attributes; outside of tests also strings that look
    like names, for slots and tables."""
    names = set()
    has_strings = not path.is_relative_to(ROOT / "tests")
    for node in ast.walk(tree_of(path)):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
        elif has_strings and isinstance(node, ast.Constant) and re.fullmatch(r"[@.\w-]+", str(node.value)):
            names.add(str(node.value))
    return names


@cache
def defined() -> set[str]:
    """Names that the package or its tests define, and the types, slots and attributes of ops."""
    paths = [*MODULES.values(), *(ROOT / "tests").rglob("*.py")]
    names = (OF_PADDLE | PLACEHOLDERS).union(*map(identifiers, paths), dir(builtins))
    for op in registry.all_ops().values():
        names |= {op.type, *op.inputs, *op.outputs, *op.attrs}
    return names | {part for module in MODULES for part in module.split(".")}


@cache
def sources() -> str:
    """The text of all modules of the package."""
    return "".join(path.read_text(encoding="utf-8") for path in MODULES.values())


@cache
def classes() -> dict[str, list[ast.ClassDef]]:
    """The classes of the package, by name."""
    found = defaultdict(list)
    for path in MODULES.values():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(node)
    return found


@cache
def members(class_name: str) -> set[str] | None:
    """Names that the classes of this name, and their bases in the package, define; None if there is no such class."""
    if class_name not in classes():
        return None
    names = set()
    for node in classes()[class_name]:
        for inner in ast.walk(node):
            if isinstance(inner, ast.FunctionDef):
                names.add(inner.name)
            elif isinstance(inner, (ast.Name, ast.Attribute)) and isinstance(inner.ctx, ast.Store):
                names.add(inner.id if isinstance(inner, ast.Name) else inner.attr)
            elif isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                names.add(inner.value)  # slots
        names |= set().union(*(members(base.id) or () for base in node.bases if isinstance(base, ast.Name)))
    return names


def is_path(text: str) -> bool:
    return bool(re.fullmatch(r"[\w.*/-]+", text)) and ("/" in text or bool(re.search(r"\.(py|pyi|md|txt|js)$", text)))


def exists(text: str, folder: Path) -> bool:
    """Whether there is such a file, from the repository's root or beside the page; a star stands for any name."""
    return text.startswith("/") or any(next(base.glob(text.rstrip("/")), None) is not None for base in (ROOT, folder))


def is_defined(text: str) -> bool:
    """Whether a dotted name exists: in a module, as a member of a class, or part by part."""
    if text.split(".")[0] in LIBRARIES:
        return True
    module, _, name = text.rpartition(".")
    full = next((full for full in (module, f"fluid.{module}") if full in MODULES), None)
    if text in MODULES or f"fluid.{text}" in MODULES:
        return True
    if full is not None and full != "fluid":
        return name in identifiers(MODULES[full]) or hasattr(importlib.import_module(full), name)
    of_class = members(module.rpartition(".")[2]) if module else None
    if of_class is not None:
        return name in of_class
    return text in defined() or all(part in defined() for part in text.split("."))


def missing(text: str, folder: Path) -> list[str]:
    """Code spans of a page that name a path or a thing which does not exist."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    absent = []
    for span in re.findall(r"`([^`]+)`", text):
        if is_path(span) or exists(span, folder):
            is_there = exists(span, folder)
        elif suffixes := re.findall(r"(?<=\w)@[A-Z]+", span):
            is_there = all(suffix in sources() for suffix in suffixes)
        elif command := re.match(r"python -m ([\w.]+)", span):
            is_there = command[1] in MODULES
        elif re.fullmatch(r"@?[A-Za-z_][\w.]*", span):
            is_there = is_defined(span.lstrip("@"))
        else:
            words = re.findall(r"[A-Za-z_]\w{3,}", re.sub(r'"[^"]*"', "", span))
            is_there = all(word in defined() or word in OF_COMMANDS or word.startswith("FLUID_") for word in words)
        if not is_there:
            absent.append(span)
    return absent


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_exist(page: Path) -> None:
    absent = missing(page.read_text(encoding="utf-8"), page.parent)
    assert not absent, f"{page.relative_to(ROOT)} names what does not exist: {absent}"


def test_absent_names_are_found() -> None:
    """The check itself: paths, modules, members of classes and plain names that do not exist."""
    folder = ROOT / "executor" / "native"
    good = "`fusion.py`, `executor/planned/`, `*_lowering.py`, `Function.between`, `fluid.ir.scan.scan`, `lax.scan`, `tanh`"
    assert missing(good, folder) == []
    for bad in (
        "fusions.py",
        "executor/plans/",
        "Function.betwixt",
        "fluid.ir.scan.scans",
        "NativeRegions",
        "run(no_such_flag=1)",
    ):
        assert missing(f"`{bad}`", folder) == [bad]


def test_pages_have_a_place() -> None:
    """The overview links each page beside the code, and the site's table of contents has each once."""
    text = OVERVIEW.read_text(encoding="utf-8")
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    for page, copy in pages_beside_code.pages().items():
        assert f"](../{page.relative_to(ROOT).as_posix()})" in text, page
        assert len(re.findall(rf"^packages/{copy.removesuffix('.md')}$", index, re.MULTILINE)) == 1, page
    assert len(re.findall(r"^packages/", index, re.MULTILINE)) == len(pages_beside_code.pages())


def test_pages_are_short() -> None:
    counts = {page.relative_to(ROOT).as_posix(): len(page.read_text(encoding="utf-8").split()) for page in PAGES}
    assert counts.pop("docs/design.md") <= 2500
    assert {name: count for name, count in counts.items() if count > 1200} == {}


def test_links_of_the_site_lead_to_copies() -> None:
    text = "[a](../executor/native/README.md#the-cache), [b](../CONTRIBUTING.md), [c](speed.md)"
    assert pages_beside_code.linked(text, DOCS) == (
        "[a](/packages/executor-native.md#the-cache), [b](/CONTRIBUTING.md), [c](speed.md)"
    )
    text = "[a](../planned/README.md), [b](../../docs/design.md#floors)"
    assert (
        pages_beside_code.linked(text, ROOT / "executor" / "native")
        == "[a](/packages/executor-planned.md), [b](/design.md#floors)"
    )


def test_commands_of_the_overview_run() -> None:
    for command in re.findall(r"`python (-m [\w. ]+)`", OVERVIEW.read_text(encoding="utf-8")):
        subprocess.run([sys.executable, *command.split()], capture_output=True, check=True, cwd=ROOT)

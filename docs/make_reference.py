"""Writes the pages of the reference, ``docs/reference/*.rst``, from the public names of the modules that `reference.md` lists.

`sphinx-build` calls it (`conf.py`). What is reached by several names is documented under the first one, and named at the others.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent / "reference"
TABLE = FOLDER.with_suffix(".md")
"""Names the modules, in the order in which they are read: a name is documented where it is met first."""


class Name(NamedTuple):
    """A public name: its place, and its object."""

    path: str
    value: Any

    @property
    def directive(self) -> str:
        """How Sphinx documents it."""
        if inspect.isclass(self.value):
            return "autoexception" if issubclass(self.value, BaseException) else "autoclass"
        return "autofunction" if callable(self.value) else "data"


class Page(NamedTuple):
    """The names of a module: those documented on this page, and links to the others."""

    module: str
    about: str
    own: list[Name]
    elsewhere: list[tuple[str, Name]]


def modules() -> list[str]:
    """The modules that have pages, by their names without the package's."""
    return re.findall(r"<reference/(\S+)>$", TABLE.read_text(encoding="utf-8"), re.MULTILINE)


def module_of(name: str) -> ModuleType:
    """The module that is called so, without the package's name, also where it lies elsewhere: ``text``, ``io.transforms``."""
    fluid = importlib.import_module("fluid")
    if name == "fluid":
        return fluid
    found = functools.reduce(lambda outer, part: getattr(outer, part, None), name.split("."), fluid)
    return found if isinstance(found, ModuleType) else importlib.import_module(f"fluid.{name}")


def names_of(name: str) -> list[Name]:
    """The public names of a module, sorted, without modules."""
    module = module_of(name)
    public = list(module.__all__)
    if name == "fluid":
        public += [
            late for late in module._LAZY_FROM if late not in module._OF_DYGRAPH
        ]  # those are described as `fluid.dygraph`'s
    prefix = {"fluid": "fluid", "layers": "fluid.layers"}.get(name.partition(".")[0], f"fluid.{name}")
    home = importlib.import_module("fluid.layers") if name.startswith("layers.") else module
    found = {public_name: getattr(home, public_name, NotImplemented) for public_name in public}
    return [
        Name(f"{prefix}.{public_name}", value)
        for public_name, value in sorted(found.items(), key=lambda item: (item[0].lower(), item[0]))
        if value is not NotImplemented and not (inspect.ismodule(value) and not callable(value))
    ]


def identity(value: Any) -> int:
    """The same for a function under all its names, whatever wraps it there."""
    return id(inspect.unwrap(value) if callable(value) else value)


def pages() -> list[Page]:
    """The pages of all modules."""
    documented: dict[int, Name] = {}
    pages = []
    for module in modules():
        page = Page(module, inspect.getdoc(module_of(module)) or "", [], [])
        for name in names_of(module):
            first = documented.setdefault(identity(name.value), name)
            if first is name:
                page.own.append(name)
            else:
                page.elsewhere.append((name.path, first))
        pages.append(page)
    return pages


def other_classes(value: Any) -> list[str]:
    """Attributes of a class that are classes of their own."""
    inner = vars(value).items() if inspect.isclass(value) else ()
    return [name for name, found in inner if inspect.isclass(found) and found.__qualname__ != f"{value.__qualname__}.{name}"]


def render(page: Page) -> str:
    """The page in reStructuredText, which docstrings are written in."""
    title = "fluid" if page.module == "fluid" else f"fluid.{page.module}"
    parts = [f"{title}\n{'=' * len(title)}", page.about]
    if page.elsewhere:
        also = ", ".join(f":py:obj:`{path} <{first.path}>`" for path, first in page.elsewhere)
        parts.append(f"Described elsewhere: {also}.")
    for name in page.own:
        module, _, last = name.path.rpartition(".")
        if name.directive == "data":
            parts.append(f".. py:data:: {name.path}\n   :type: {type(name.value).__name__}")
        else:
            others = ", ".join(other_classes(name.value))
            parts.append(f".. {name.directive}:: {module}::{last}" + (f"\n   :exclude-members: {others}" if others else ""))
    return "\n\n".join(parts) + "\n"


def write() -> None:
    """Write all pages; leave those as they are that have not changed, so that Sphinx need not read them again."""
    FOLDER.mkdir(exist_ok=True)
    texts = {f"{page.module}.rst": render(page) for page in pages()}
    for path in FOLDER.glob("*.rst"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        path = FOLDER / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")

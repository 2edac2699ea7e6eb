"""Every public name has a docstring that describes its parameters, and functions and classes have an example.

The modules are those of the reference; `fluid.layers` has a test of its own.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from checks import Checks, each
from paths import ROOT

import fluid
from fluid.not_here import NotHere

ALSO = ["default_scope_funcs", "incubate.fleet.base.fleet_base", "input", "transform.compare", "transform.flops"]
OTHERS = ("fluid.layers", "fluid.nets")
"""Names of these are no part of what is tested here."""


def modules_of_the_reference() -> list[str]:
    """The modules that have pages."""
    return re.findall(r"<reference/(\S+)>$", (ROOT / "docs" / "reference.md").read_text(encoding="utf-8"), re.MULTILINE)


def named(modules: list[str]) -> dict[str, str]:
    """The modules' own names by the short ones."""
    found = {name: getattr(fluid, name, None) for name in modules}
    own = {name: value.__name__ if inspect.ismodule(value) else f"fluid.{name}" for name, value in found.items()}
    own |= {name: value.replace("fluid.io.transforms", "fluid.loading.transforms") for name, value in own.items()}
    return {name: "fluid" if name == "fluid" else value for name, value in own.items()}


MODULES = named([name for name in (*modules_of_the_reference(), *ALSO) if not f"fluid.{name}".startswith(OTHERS)])

NO_EXAMPLE = {
    r"fluid\.((framework\.)?load_op_library|profiler\.cuda_profiler)": "an error wherever the tests run",
    r"fluid\.(\w+\.)*(FluidError|\w+Error|EOFException|EnforceNotMet|ComposeNotAligned)": "is raised by others",
    r"fluid\.(clip|regularizer)\.(append_\w+|error_clip_callback)": "called by optimizers",
    r"fluid\.(evaluator\.Evaluator|initializer\.Initializer|metrics\.MetricBase|optimizer\.Optimizer)": "base classes",
    r"fluid\.ahead\.CompiledLibrary": "compile_program's example makes one",
    r"fluid\.distributed\.Communicator": "a base class",
    r"fluid\.incubate\.fleet\.base\.\w+\.(DistributedOptimizer|Fleet|Mode|Role|RoleMakerBase)": "base classes",
    r"fluid\.incubate\.fleet\.base\.role_maker\.(GeneralRoleMaker|MPISymetricRoleMaker)": "as PaddleCloudRoleMaker",
    r"fluid\.data_feeder\.(Fed|sequences_of|stack_of)": "called by feeders",
    r"fluid\.dygraph\.BackwardStrategy": "changes nothing here",
    r"fluid\.dygraph\.(Edge|Node)": "AccumulateGrad's example shows one",
    r"fluid\.dygraph\.PyLayerContext": "PyLayer's example has one",
    r"fluid\.dygraph\.(ParallelStrategy|prepare_context)": "depend on the launcher",
    r"fluid\.contrib\.mixed_precision\.OptimizerWithMixedPrecison": "decorate's example has one",
    r"fluid\.extend\.(?!Spec|ops|BuildNamespace)\w+": "the module's text shows them in two examples",
    r"fluid\.executor\._fetch_var": "an old name that scripts import",
    r"fluid\.(plots\.\w+|training\.TensorBoardLog)": "need an extra",
    r"fluid\.parallel\.connect": "needs several processes",
    r"fluid\.profiler\.Timeline": "made by the profiler",
    r"fluid\.transform\.compare\.(match_ops|telling_attrs)": "called by diff and by the viewer",
}
"""Patterns of names of functions and classes without an example, and why."""

UNDESCRIBED = {
    r"fluid\.core\.(Var|Op|Block|Program)Desc.*": "views as Fluid 1.6 has them in C++; `fluid.framework` has the classes",
    r"fluid\.core\.(AttrType|VarType)": "enumerations",
    r"fluid\.core\.SelectedRows\..*": "what kernels do with rows",
    r"fluid\.data_feeder\.Fed.*": "a protocol, which `Variable` fulfils",
    r"fluid\.dygraph\.TracedFunction": "made by `trace`",
    r"fluid\.dygraph\.\w+\.forward": "the class says what it is called with",
    r"fluid\.extend\.Region": "made by functions that are given the op",
    r"fluid\.executor\._fetch_var": "an old name that scripts import",
}
"""Patterns of names whose parameters need no words, and why."""


class Documented(NamedTuple):
    """A public function, class or property, and the text that it has."""

    name: str
    value: Any
    text: str


def text_of(value: Any) -> str:
    """The docstring; a class has one of its own, but for exceptions and names of Fluid 1.6 that only extend another class."""
    if inspect.isclass(value) and not issubclass(value, Exception):
        return inspect.cleandoc(vars(value).get("__doc__") or "")
    return inspect.getdoc(value) or ""


def members(name: str, kind: type) -> Iterator[Documented]:
    """The public methods and properties that a class defines and its bases lack; overriding ones share docstrings."""
    for attribute, value in vars(kind).items():
        function = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        if attribute.startswith("_") or not (isinstance(function, property) or inspect.isfunction(function)):
            continue
        text = inspect.getdoc(getattr(kind, attribute)) or ""
        yield Documented(f"{name}.{attribute}", function, text)


def public(module: str) -> Iterator[Documented]:
    """The public names of a module, by its ``__all__``."""
    loaded = importlib.import_module(module)
    for name in loaded.__all__:
        value = getattr(loaded, name)
        home = getattr(value, "__module__", None) or ""
        if isinstance(value, NotHere) or not callable(value) or inspect.ismodule(value) or not home.startswith("fluid"):
            continue
        if home.startswith(OTHERS):
            continue
        yield Documented(f"{module}.{name}", value, text_of(value))
        if inspect.isclass(value):
            yield from members(f"{module}.{name}", value)


def parameters(value: Any) -> list[str]:
    if isinstance(value, property):
        return []
    try:
        found = inspect.signature(value).parameters.values()
    except ValueError:  # of a class of C's
        return []
    return [item.name for item in found if item.name not in ("self", "cls") and not item.name.startswith("_")]


def described(text: str) -> set[str]:
    """The names in the sections of arguments and attributes: ``name: description``, or several with commas."""
    sections = re.findall(r"^(?:Args|Attributes):\n((?: .*\n|\n)*)", text + "\n", re.MULTILINE)
    rows = [row for section in sections for row in re.findall(r"^ {4}(\w[\w, ]*):", section, re.MULTILINE)]
    return {name.strip() for row in rows for name in row.split(",")}


def undescribed(item: Documented) -> list[str]:
    """The parameters that the docstring says nothing of.

    A class, and a function of three parameters or more, has a section of arguments. A function of one is described by its
    sentence, and one of two may name them in backticks there.
    """
    names = parameters(item.value)
    if not inspect.isclass(item.value) and len(names) < 3:
        if len(names) == 1 and item.text:
            return []
        in_sentences = set(re.findall(r"`(\w+)`", item.text))
        names = [name for name in names if name not in in_sentences]
    return [name for name in names if name not in described(item.text)]


@each("module", MODULES)
def test_docstrings(module: str) -> None:
    with Checks() as check:
        for item in public(MODULES[module]):
            if any(re.fullmatch(pattern, item.name) for pattern in UNDESCRIBED):
                continue
            with check(item.name):
                assert item.text, "there is no docstring"
                missing = undescribed(item)
                assert not missing, f"nothing describes {', '.join(missing)}"


@each("module", MODULES)
def test_examples(module: str) -> None:
    depth = MODULES[module].count(".") + 1
    without = [item.name for item in public(MODULES[module]) if item.name.count(".") == depth and ">>> " not in item.text]
    missing = [name for name in without if not any(re.fullmatch(pattern, name) for pattern in NO_EXAMPLE)]
    assert not missing, f"no example: {', '.join(missing)}"


def test_exceptions_are_needed() -> None:
    """Each exception names existing functions that would fail without it."""
    items = {item.name: item for module in MODULES.values() for item in public(module)}
    for pattern in NO_EXAMPLE:
        assert any(re.fullmatch(pattern, name) and ">>> " not in item.text for name, item in items.items()), pattern
    for pattern in UNDESCRIBED:
        named = [item for name, item in items.items() if re.fullmatch(pattern, name)]
        assert any(not item.text or undescribed(item) for item in named), pattern


def absent_arguments(function: ast.FunctionDef, text: str) -> set[str]:
    """Names in the section of arguments of a docstring that are no parameters of the function."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    section = text.partition("Attributes:")[0]
    return described(section) - {argument.arg for argument in every if argument is not None}


def functions_of(path: Path) -> Iterator[tuple[ast.FunctionDef, str]]:
    """The functions in a file, each with its docstring, an ``__init__`` with the docstring of its class."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            yield node, ast.get_docstring(node) or ""
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef) and part.name == "__init__":
                    yield part, ast.get_docstring(node) or ""


@each("folder", ["fluid", "executor"])
def test_described_arguments_exist(folder: str) -> None:
    """Private functions, too. Docstrings of ops describe slots and attributes of the op."""
    absent = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        if (ROOT / "fluid" / "ops") not in path.parents:
            for function, text in functions_of(path):
                absent[f"{path.relative_to(ROOT)}:{function.lineno}"] = absent_arguments(function, text)
    assert not {place: names for place, names in absent.items() if names}

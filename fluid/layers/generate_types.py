"""Writes the types of layers as callers see them, ``*.pyi``, from their sources: ``python -m fluid.layers.generate_types``.

A layer of tensors gives tensors, and one of variables variables; its source, which appends ops to whatever it is given, says
`Variable` for both. Type checkers and editors read these files; a test keeps them current.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import os
from collections.abc import Iterator
from textwrap import fill
from types import FunctionType, ModuleType
from typing import Any

__all__ = ["render"]

_FLUID = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_FILES = {"fluid.input": "input.pyi", "fluid.layers": os.path.join("layers", "__init__.pyi"), "fluid.nets": "nets.pyi"}
_VARIABLES = {"Variable", "Sequence[Variable]", "list[Variable]", "Mapping[str, Variable]"}
"""The declarations of arguments whose type decides the result's type."""
_OF_PROGRAMS = ("data",)
"""Layers that return variables of a program in each mode."""
_TOOLS = ("arguments", "descriptions", "generate", "generate_types")
"""Modules in the folder that define no layers."""
_WIDTH = 130
_TIE = "\N{NO-BREAK SPACE}"

_HEAD = """\
# Made by python -m fluid.layers.generate_types, and not to be edited: a layer of tensors gives tensors, and one of variables
# variables. Where no argument tells which, it gives Any.
"""
_TYPE = '\n_V = TypeVar("_V", Variable, Tensor)\n'


class _Renamed(ast.NodeTransformer):
    """An annotation with another name for `Variable`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.name) if node.id == "Variable" else node


def _text(annotation: ast.expr, variable: str) -> str:
    """An annotation with another name in place of `Variable`."""
    return ast.unparse(_Renamed(variable).visit(ast.parse(ast.unparse(annotation), mode="eval").body))


def _members(annotation: ast.expr) -> Iterator[str]:
    """The types that a union joins."""
    if isinstance(annotation, ast.BinOp):
        yield from _members(annotation.left)
        yield from _members(annotation.right)
    else:
        yield ast.unparse(annotation)


def _arguments(arguments: ast.arguments) -> Iterator[tuple[str, ast.expr | None, bool]]:
    """(name, with its stars; annotation; whether it has a default) of the arguments, in order; also of a star alone."""
    plain = [*arguments.posonlyargs, *arguments.args]
    for number, item in enumerate(plain):
        yield item.arg, item.annotation, number >= len(plain) - len(arguments.defaults)
    if arguments.vararg is not None:
        yield f"*{arguments.vararg.arg}", arguments.vararg.annotation, False
    elif arguments.kwonlyargs:
        yield "*", None, False
    for item, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield item.arg, item.annotation, default is not None
    if arguments.kwarg is not None:
        yield f"**{arguments.kwarg.arg}", arguments.kwarg.annotation, False


def _signatures(function: ast.FunctionDef) -> list[str]:
    """The lines of a layer; `_V` is the type of its required variables, and of its results.

    Of one that takes a variable or a list of them, there are two: type checkers find `_V` in either, but not in their union.
    """
    assert function.returns is not None
    choices: list[list[str]] = []
    decides = False
    for name, annotation, has_default in _arguments(function.args):
        declared = [None] if annotation is None else [_text(annotation, "Variable")]
        if annotation is not None and not has_default and set(_members(annotation)) <= _VARIABLES:
            decides, declared = True, [_text(ast.parse(member, mode="eval").body, "_V") for member in _members(annotation)]
        texts = [name if text is None else f"{name}: {text}" for text in declared]
        choices.append([text + (" = ..." if has_default else "") for text in texts])
    result = "_V" if decides else "Variable" if function.name in _OF_PROGRAMS else "Any"
    end = f" -> {_text(function.returns, result)}: ...".replace(" ", _TIE)
    lines = []
    for chosen in itertools.product(*choices):
        body = ", ".join(text.replace(" ", _TIE) for text in chosen)
        line = f"def{_TIE}{function.name}({body}){end}"
        filled = fill(line, _WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
        lines.append(filled.replace(_TIE, " "))
    return lines if len(lines) == 1 else [f"@overload\n{line}" for line in lines]


def _names(tree: ast.Module, module: str) -> dict[str, str]:
    """Name -> the line that imports it, for names that a module imports, also for types only, or defines, except functions."""
    lines: dict[str, str] = {}
    for node in itertools.chain(tree.body, *(node.body for node in tree.body if isinstance(node, ast.If))):
        if isinstance(node, ast.ImportFrom):
            base = module.split(".")[: -node.level] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            lines.update((alias.asname or alias.name, f"from {source} import {alias.name}") for alias in node.names)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            lines[node.targets[0].id] = f"from {module} import {node.targets[0].id}"
        elif isinstance(node, ast.ClassDef):
            lines[node.name] = f"from {module} import {node.name}"
    return lines


def _tree(module: str) -> ast.Module:
    path = importlib.import_module(module).__file__
    assert path is not None
    with open(path, encoding="utf-8") as file:
        return ast.parse(file.read())


def _home(value: Any) -> str:
    """The module that defines an object, the package that a module is in, or nothing."""
    return value.__name__.rpartition(".")[0] if isinstance(value, ModuleType) else getattr(value, "__module__", None) or ""


def _stub(package: str) -> str:
    """The text of the file for a module, or for a package that re-exports its modules' names."""
    public = {
        name: (value, home)
        for name, value in sorted(vars(importlib.import_module(package)).items())
        if not name.startswith("_") and name not in _TOOLS and (home := _home(value)).startswith(package)
    }
    trees: dict[str, ast.Module] = {}
    imports = {"Any": "from typing import Any", "Variable": "from fluid.ir.program import Variable"}
    imports |= {"Tensor": "from fluid.eager.tensor import Tensor", "TypeVar": "from typing import TypeVar"}
    handed_on, signatures = [], []
    for name, (value, home) in public.items():
        if not isinstance(value, FunctionType):
            handed_on.append(f"from {home} import {name} as {name}")
            continue
        if home not in trees:
            trees[home] = _tree(home)
        function = next(node for node in trees[home].body if isinstance(node, ast.FunctionDef) and node.name == name)
        overloads = _signatures(function)
        signatures += overloads
        if len(overloads) > 1:
            imports["overload"] = "from typing import overload"
        imported = _names(trees[home], home)
        for node in ast.walk(ast.parse(overloads[0])):
            if not isinstance(node, ast.Name) or node.id not in imported or node.id in public:
                continue
            if imports.setdefault(node.id, imported[node.id]) != imported[node.id]:
                raise ValueError(f"{name}: {node.id} is one thing here ({imported[node.id]}), another there ({imports[node.id]})")
    return "\n".join([_HEAD, *sorted({*imports.values(), *handed_on}), _TYPE, *signatures]) + "\n"


def render() -> dict[str, str]:
    """Path -> text of the files."""
    return {os.path.join(_FLUID, path): _stub(module) for module, path in _FILES.items()}


if __name__ == "__main__":
    for path, text in render().items():
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

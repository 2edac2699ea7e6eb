"""Every public name of `fluid.layers`, `fluid.nets` and `fluid.input` says what its arguments are, and shows an example."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import pytest
from checks import Checks

import fluid
from fluid import layers
from fluid.layers.descriptions import COMMON, completed

MODULES = (fluid.layers, fluid.nets, fluid.input)


def public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    for name in module.__all__:
        yield f"{module.__name__}.{name}", getattr(module, name)


def with_methods(module: ModuleType) -> Iterator[tuple[str, Any]]:
    for name, value in public(module):
        yield name, value
        for method in dir(value) if isinstance(value, type) else ():
            if isinstance(inspect.getattr_static(value, method), (FunctionType, staticmethod)) and method.strip("_") in (
                method,
                "call",
            ):
                yield f"{name}.{method}", getattr(value, method)


def parameters(function: Any) -> set[str]:
    """The names of a function's parameters, or of a class's constructor parameters."""
    if isinstance(function, type):
        if function.__init__ is object.__init__:
            return set()
        function = function.__init__
    return set(inspect.signature(function).parameters) - {"self"}


def described(doc: str) -> set[str]:
    """The names that stand under ``Args:``."""
    args = re.search(r"^Args:\n((?: .*\n|\n)+)", doc + "\n", re.MULTILINE)
    names = re.findall(r"^ {4}(\w+(?:, \w+)*): \S", args.group(1), re.MULTILINE) if args is not None else []
    return {name for group in names for name in group.split(", ")}


@pytest.mark.parametrize("module", MODULES)
def test_each_argument_is_described(module: ModuleType) -> None:
    with Checks() as check:
        for name, function in with_methods(module):
            with check(name):
                assert described(inspect.getdoc(function) or "") == parameters(function)


@pytest.mark.parametrize("module", MODULES)
def test_each_has_an_example(module: ModuleType) -> None:
    missing = [name for name, function in public(module) if ">>> " not in (inspect.getdoc(function) or "")]
    assert not missing


def test_layers_show_only_layers() -> None:
    assert dir(layers) == sorted(layers.__all__)
    assert {"fc", "conv2d", "While", "generate_layer_fn", "Normal", "rnn"} <= set(dir(layers))
    for name, value in public(layers):
        assert callable(value) and value.__module__.startswith("fluid.layers."), name
    for name in ("autodoc", "deprecated", "templatedoc", "nn", "control_flow", "collective"):  # as scripts of Fluid 1.6 have it
        assert hasattr(layers, name) and name not in dir(layers)
    assert not {"Any", "ModuleType", "TYPE_CHECKING", "sys", "names_not_here"} & set(dir(layers))
    assert dir(fluid.nets) == sorted(fluid.nets.__all__)


def test_common_arguments_follow_those_that_a_layer_describes() -> None:
    def layer() -> None:
        """One line.

        Args:
            act: its own.

        >>> 1
        1
        """

    doc = inspect.cleandoc(completed(inner_of(layer), ("x", "act", "name")))
    assert doc == f"One line.\n\nArgs:\n    act: its own.\n    name: {COMMON['name']}\n\n>>> 1\n1"


def test_common_arguments_make_a_section() -> None:
    def layer() -> None:
        """One line.

        >>> 1
        1
        """

    doc = inspect.cleandoc(completed(inner_of(layer), ("x", "name")))
    assert doc == f"One line.\n\nArgs:\n    name: {COMMON['name']}\n\n>>> 1\n1"
    assert inspect.cleandoc(completed("One line.", ("name",))) == f"One line.\n\nArgs:\n    name: {COMMON['name']}"
    assert completed("One line.", ("x",)) == "One line."


def inner_of(function: Any) -> str:
    """The docstring of an inner function, as if it were in a module."""
    return re.sub(r"\n {4}(?=    )", "\n", function.__doc__)

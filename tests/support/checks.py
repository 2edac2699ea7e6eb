"""Several checks in one test: a failed check does not hide later ones."""

from __future__ import annotations

import functools
import gc
import inspect
import itertools
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from differentiation import new_case
from paths import TESTS

import fluid
from fluid.autodiff.expand import _EXPANSIONS
from fluid.autodiff.reverse import _REGION_GRADIENTS
from fluid.executor.kernels.table import KERNELS
from fluid.executor.stepwise.handlers import HANDLERS
from fluid.opdef import registry

__all__ = ["MORE", "Checks", "each", "few_optimizations", "fresh_programs", "own_ops", "some"]

MORE = int(os.environ.get("FLUID_MORE_EXAMPLES", "1"))
"""How many times as many random programs and files the tests marked `random` or `hypothesis` draw; twenty in ``.ci/release``."""


def some(cases: Iterable[Any]) -> list[Any]:
    """A third of many cases, for the default run; all with FLUID_MORE_EXAMPLES, as CI has it for tests marked `random`."""
    return list(cases) if MORE > 1 else list(cases)[::3]


class Checks:
    """Checks of one subject, each under a ``with`` that names it; in the end, an error tells of all that failed::

    with Checks() as check:
        for op_type in op_types:
            with check(f"{op_type}, slots"):
                assert_slots(op_type)
    """

    def __init__(self) -> None:
        self._failures: list[tuple[str, BaseException]] = []

    def __enter__(self) -> Checks:
        return self

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            self._failures.append((what, error))

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._failures and error is None:
            report = "\n\n".join(f"{what}: {_told(failure)}" for what, failure in self._failures)
            raise AssertionError(report) from self._failures[0][1]


def _told(error: BaseException) -> str:
    """The message of an error, and the last line of the tests in its traceback."""
    here = TESTS
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if here in Path(frame.filename).parents]
    kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
    return f"{kind}{error}\n({Path(frames[-1].filename).relative_to(here)}:{frames[-1].lineno})"


def each(
    names: str | Sequence[str], cases: Iterable[Any], ids: Any = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """In place of ``pytest.mark.parametrize``, where the cases are small and many: all of them are one test, which tells of
    each that fails.

    Each case has programs, names and a scope of its own, and of `tmp_path` a folder. ``pytest --case WORD`` runs those
    in whose name the word is.
    """
    listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    named = [_named(case, len(listed), ids, number) for number, case in enumerate(cases)]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        inner, parameters, others = getattr(test, "_each", (test, [], [("", ())]))  # of another `each` below this one
        parameters = [*parameters, *listed]
        pairs = itertools.product(others, named)
        products = [("-".join(filter(None, (one, two))), (*values, *more)) for (one, values), (two, more) in pairs]

        @functools.wraps(inner)
        def run(*, pytestconfig: pytest.Config, **fixtures: Any) -> None:
            word, skipped = pytestconfig.getoption("case"), []
            chosen = [(name, values) for name, values in products if word in name]
            with Checks() as check:
                for number, (name, values) in enumerate(chosen):
                    with check(name), _apart(fixtures, number, f"{inner.__name__}[{name}]") as own:
                        try:
                            inner(**own, **dict(zip(parameters, values, strict=True)))
                        except pytest.skip.Exception as reason:
                            skipped.append(str(reason))
            if len(skipped) == len(chosen):
                pytest.skip(skipped[0] if skipped else f"no case has {word!r} in its name")

        signature = inspect.signature(inner)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in parameters]
        config = inspect.Parameter("pytestconfig", inspect.Parameter.KEYWORD_ONLY)
        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in kept]
        run.__signature__ = signature.replace(parameters=[*own, config])  # type: ignore[attr-defined]
        run._each = inner, parameters, products  # type: ignore[attr-defined]
        return run

    return decorate


def _named(case: Any, count: int, ids: Any, number: int) -> tuple[str, Sequence[Any]]:
    """The name of a case, and its values."""
    name = getattr(case, "id", None)
    if hasattr(case, "values") and hasattr(case, "marks"):
        assert not case.marks, "a case with marks is a test of its own: use pytest.mark.parametrize"
        values = case.values
    else:
        values = tuple(case) if count > 1 else (case,)
    if name is None and ids is not None:
        name = ids(case) if callable(ids) else list(ids)[number]
    return str(name) if name is not None else "-".join(map(_told_as, values)), values


def _told_as(value: Any) -> str:
    text = getattr(value, "__name__", None) or str(value)
    return " ".join(text.split())[:60]


@contextmanager
def fresh_programs() -> Iterator[tuple[fluid.Program, fluid.Program]]:
    """Inside the ``with``, main and startup program, names and scope are new, and what draws without a seed starts from 1."""
    main, startup = fluid.Program(), fluid.Program()
    fluid.seed(1)
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        yield main, startup


def assert_no_cycles(step: Callable[[], None]) -> None:
    """Twenty more steps leave no objects that only the garbage collector would free."""
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for _ in range(20):
            step()
        assert len(gc.get_objects()) - before < 20
    finally:
        gc.enable()


@contextmanager
def few_optimizations() -> Iterator[None]:
    """Inside the ``with``, XLA compiles quickly, for programs that run once."""
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", False)


@contextmanager
def own_ops() -> Iterator[None]:
    """Ops that are defined inside the ``with``, with kernels, handlers and gradients, are forgotten at its end."""
    with ExitStack() as stack:
        for table in (registry._ops, KERNELS, HANDLERS, _REGION_GRADIENTS, _EXPANSIONS):
            stack.enter_context(patch.dict(table))
        yield


@contextmanager
def _apart(fixtures: dict[str, Any], number: int, title: str) -> Iterator[dict[str, Any]]:
    """Fixtures for one case of a test; cases share nothing."""
    own = dict(fixtures)
    with ExitStack() as stack:
        main, startup = stack.enter_context(fresh_programs())
        for name in own.keys() & {"program", "programs"}:
            main.random_seed = startup.random_seed = own[name].random_seed
            own[name] = main
        stack.enter_context(own_ops())
        if "case" in own:
            own["case"] = stack.enter_context(new_case(title))
        if "tmp_path" in own:
            own["tmp_path"] = own["tmp_path"] / str(number)
            own["tmp_path"].mkdir()
        if "monkeypatch" in own:
            own["monkeypatch"] = stack.enter_context(own["monkeypatch"].context())
        if "capsys" in own:
            own["capsys"].readouterr()
        yield own

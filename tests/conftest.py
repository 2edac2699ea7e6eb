"""Settings of the whole test run, and the table that the conformance suite ends with."""

from __future__ import annotations

import os

# The processes that the tests run in, and start, share the cores: threads of BLAS would only wait for each other. Before numpy.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import atexit
import copy
import gc
import shutil
import signal
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from checks import MORE, few_optimizations, fresh_programs
from hypothesis import settings

import fluid
from fluid.executor.kernels.table import load_kernels

settings.register_profile("fluid", max_examples=10 * MORE, deadline=None, derandomize=True, print_blob=True)
settings.load_profile("fluid")

for cache in ("FLUID_NATIVE_CACHE", "FLUID_XLA_CACHE"):
    if cache not in os.environ:  # of this run alone; the processes of pytest-xdist share it
        os.environ[cache] = tempfile.mkdtemp(prefix="fluid-cache-")
        atexit.register(shutil.rmtree, os.environ[cache], ignore_errors=True)

collect_ignore_glob = (
    [] if find_spec("llvmlite") else ["ahead/test_*.py", "native/test_*.py"]
)  # some need it as they are imported

pytest.register_assert_rewrite("conformance")
load_kernels()  # since tests look into the tables

Facts = dict[str, dict[str, set[Any]]]
"""What the conformance suite says, by op and kind of fact."""
CONFORMANCE = pytest.StashKey[Facts]()


def merge(facts: Facts, others: Facts) -> None:
    """Add other facts to these."""
    for op_type, row in others.items():
        for name, values in row.items():
            facts.setdefault(op_type, {}).setdefault(name, set()).update(values)


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Cases of tests that have many; without pytest-xdist, what setup.cfg says of its processes is passed over."""
    parser.addoption("--case", default="", help="of tests with many cases, run those with this word in their names")
    parser.addoption("--facet", default="", help="of the conformance suite, check the facets with this word in their names")
    if not pluginmanager.hasplugin("xdist"):
        for option in ("--numprocesses", "--dist"):
            parser.addoption(option, help="of pytest-xdist, which is not here")


@pytest.fixture(autouse=True)
def _handlers_are_restored() -> Iterator[None]:
    """Each test restores handlers of signals: one that exits could let a forked process run on as a copy of pytest."""
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in signals]
    yield
    assert [signal.getsignal(number) for number in signals] == before


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Each test has programs, names and a scope of its own, so that none finds what another has built.

    Weights are the same in every run, so that a comparison cannot fail once in a hundred; tests of entropy set a seed of 0.
    """
    with fresh_programs():
        yield


_FIRST_STATES: dict[int, Any] = {}
"""The id of a generator of random numbers -> its state before the first test."""


@pytest.fixture(autouse=True)
def _same_draws(request: pytest.FixtureRequest) -> None:
    """Each test draws the same numbers, whichever tests ran before it: the generators of its module start again."""
    for generator in vars(request.module).values() if request.module else ():
        if isinstance(generator, np.random.RandomState):
            generator.set_state(_FIRST_STATES.setdefault(id(generator), generator.get_state()))
        elif isinstance(generator, np.random.Generator):
            bits = generator.bit_generator
            bits.state = _FIRST_STATES.setdefault(id(generator), bits.state)


@pytest.fixture
def quick_to_compile() -> Iterator[None]:
    """XLA compiles programs with few optimizations, for tests that run them once."""
    with few_optimizations():
        yield


@pytest.fixture
def one_thread() -> Iterator[None]:
    """The executor computes in one thread, as compiled libraries do."""
    threads = fluid.get_num_threads()
    fluid.set_num_threads(1)
    yield
    fluid.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _numpy_alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests marked `numpy_alone` hold the plan of numpy's kernels to bits, calls or memory: native code rounds otherwise."""
    if request.node.get_closest_marker("numpy_alone"):
        monkeypatch.setenv("FLUID_NATIVE", "0")


@pytest.fixture(autouse=True)
def _draws_of_its_module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A generator of random numbers in a test file begins each test as it was at import: no test depends on those before it."""
    for name, value in vars(request.module).items():
        if isinstance(value, np.random.Generator):
            monkeypatch.setitem(vars(request.module), name, copy.deepcopy(value))


@pytest.fixture(scope="session")
def conformance(pytestconfig: pytest.Config) -> Facts:
    """Facts that the conformance suite collects; printed when the run ends."""
    return pytestconfig.stash.setdefault(CONFORMANCE, {})


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect slow tests and tests that install Paddle, unless the command line selects them by mark or name."""
    left_out = {mark for mark in ("paddle", "paddle3", "pyodide", "slow") if mark not in config.getoption("markexpr")}
    if any("::" in argument for argument in config.args):
        left_out.discard("slow")
    unasked = [item for item in items if any(item.get_closest_marker(mark) for mark in left_out)]
    config.hook.pytest_deselected(items=unasked)
    items[:] = [item for item in items if item not in set(unasked)]


def pytest_collection_finish() -> None:
    """Modules and tests stay: the garbage collector need not go through them again and again, nor look often at what comes."""
    collect_once()
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Exempt objects that a test file leaves behind from garbage collection, as caches are: `gc.collect` in later tests is
    faster."""
    if nextitem is not None and nextitem.path != item.path:
        collect_once()


def collect_once() -> None:
    """Collect garbage, and exempt all present objects from later collections."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send the facts of a pytest-xdist worker to the main process."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["conformance"] = session.config.stash.get(CONFORMANCE, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect the facts of the workers in the main process."""
    merge(node.config.stash.setdefault(CONFORMANCE, {}), getattr(node, "workeroutput", {}).get("conformance", {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    facts = config.stash.get(CONFORMANCE, {})
    if not facts:
        return
    orders = [max(row.get("orders", {0})) for row in facts.values()]
    terminalreporter.section("conformance of ops")
    with_table = config.getoption("verbose") > 0 or config.getoption("capture") == "no"
    if with_table:
        line = "{:<36} {:<32} {:>6}  {:<13} {:<12} {:>6}".format
        terminalreporter.write_line(line("op", "dtypes", "orders", "gradient", "-1 inference", "checks"))
        for (op_type, row), order in sorted(zip(facts.items(), orders, strict=True), key=lambda pair: pair[0][0]):
            dtypes = " ".join(sorted(row.get("dtypes", ())))
            unknown = "yes" if "unknown" in row else "-"
            terminalreporter.write_line(line(op_type, dtypes, order, *row["gradient"], unknown, len(row["facets"])))
    terminalreporter.write_line(
        f"{len(facts)} ops, {sum(len(row['facets']) for row in facts.values())} checks of facets of their samples; "
        f"derivatives checked to order 3 for {orders.count(3)}, to order 2 for {orders.count(2)}, "
        f"to order 1 for {orders.count(1)}; "
        f"{sum('kernel' in row['gradient'] for row in facts.values())} gradient kernels held against their rules; "
        f"engines: {', '.join(sorted(set().union(*(row['engines'] for row in facts.values()))))}"
        + ("" if with_table else " (-v prints the table)")
    )

"""Settings of the whole test run, and the table that the conformance suite ends with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

import fluid

settings.register_profile("fluid", deadline=None, derandomize="FLUID_MORE_EXAMPLES" not in os.environ, print_blob=True)
settings.load_profile("fluid")

CONFORMANCE = pytest.StashKey[dict[str, dict[str, Any]]]()


@pytest.fixture
def fresh() -> Iterator[None]:
    """Programs, names and a scope of the test's own."""
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        yield


@pytest.fixture(scope="session")
def conformance(pytestconfig: pytest.Config) -> dict[str, dict[str, Any]]:
    """What the conformance suite found out, by op; printed when the run ends."""
    return pytestconfig.stash.setdefault(CONFORMANCE, {})


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that install Paddle run only where they are asked for."""
    if "paddle" not in config.getoption("markexpr"):
        asked = [item for item in items if item.get_closest_marker("paddle") is None]
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("paddle") is not None])
        items[:] = asked


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    found = config.stash.get(CONFORMANCE, {})
    if not found:
        return
    orders = [max(row.get("orders", {0})) for row in found.values()]
    terminalreporter.section("conformance of ops")
    if config.getoption("verbose") > 0 or config.getoption("capture") == "no":
        line = "{:<36} {:<32} {:>6}  {:<13} {}".format
        terminalreporter.write_line(line("op", "dtypes", "orders", "gradient", "-1 inference"))
        for op_type, row in sorted(found.items()):
            dtypes = " ".join(sorted(row.get("dtypes", ())))
            terminalreporter.write_line(
                line(op_type, dtypes, max(row.get("orders", {0})), row["gradient"], "yes" if row.get("unknown") else "-")
            )
    terminalreporter.write_line(
        f"{len(found)} ops; derivatives checked to order 3 for {orders.count(3)}, to order 2 for {orders.count(2)}, "
        f"to order 1 for {orders.count(1)}; "
        f"{sum(row['gradient'] == 'kernel' for row in found.values())} gradient kernels held against their rules"
        + ("" if config.getoption("verbose") > 0 or config.getoption("capture") == "no" else " (-v prints the table)")
    )

"""The choices of `fluid.executor.native.costs` beside stored times of both ways (`benchmarks/kernel_choices.py`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checks import Checks

from fluid.executor.native.costs import copies_right, fast_transform_seconds, multiplication_seconds, uses_winograd
from fluid.executor.native.target import Target

FILES = sorted((Path(__file__).parent / "data").glob("choices_*.json"))
TOLERANCE = 1.1
"""How much longer than the other way a chosen one may take: near a bound, both take about the same."""


def way_of_product(case: dict[str, int], target: Target) -> str:
    return "packed" if copies_right(case["rows"], 4 * case["inner"] * case["columns"], target.limits) else "in place"


def way_of_convolution(case: dict[str, int], target: Target) -> str:
    tiles = case["images"] * (-(-case["size"] // 2)) ** 2
    limits = target.limits
    return "Winograd" if uses_winograd(case["channels"], case["filters"], tiles, limits.winograd_tiles, limits) else "direct"


def way_of_transform(case: dict[str, int], target: Target) -> str:
    product = multiplication_seconds(case["rows"] * case["size"] * 2 * case["modes"], 4, target)
    return "product" if product <= fast_transform_seconds(case["rows"] * case["size"]) else "fast"


WAYS: dict[str, Callable[[dict[str, int], Target], str]] = {
    "products": way_of_product,
    "convolutions": way_of_convolution,
    "transforms": way_of_transform,
}


def choices(path: Path, kind: str) -> list[tuple[str, str, dict[str, float]]]:
    """Sizes, the chosen way and the times of each way, for each stored case."""
    stored = json.loads(path.read_text())
    machine = stored["machine"]
    target = Target.of(machine["triple"], machine["cpu"], machine["features"])
    results = []
    for case in stored["times"][kind]:
        sizes: dict[str, Any] = {name: size for name, size in case.items() if name != "seconds"}
        results.append((str(sizes), WAYS[kind](sizes, target), case["seconds"]))
    return results


@pytest.mark.parametrize("kind", WAYS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_chosen_way_is_much_slower(path: Path, kind: str) -> None:
    with Checks() as checks:
        for sizes, way, seconds in choices(path, kind):
            with checks(sizes):
                assert seconds[way] <= TOLERANCE * min(seconds.values()), f"{way} of {seconds}"


@pytest.mark.parametrize("kind", WAYS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_choice_saves_time_and_depends_on_sizes(path: Path, kind: str) -> None:
    """Each way is chosen for some sizes, and all choices together take less time than either way alone."""
    chosen = choices(path, kind)
    assert len({way for _, way, _ in chosen}) == 2
    ratios = {way: [seconds[mine] / seconds[way] for _, mine, seconds in chosen] for way in chosen[0][2]}
    for way, of_cases in ratios.items():
        assert sum(of_cases) < len(of_cases), way


def test_there_are_stored_times() -> None:
    assert FILES

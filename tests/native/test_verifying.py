"""Faults that gave wrong results are found before anything runs, when they are made again: then numpy computes the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from beside_numpy import results_of
from checks import each

import fluid
from fluid import layers
from fluid.executor.native import cores, fallback, plans, regions
from fluid.executor.native.fusion import FusionSchedule
from fluid.executor.native.tiles import Panel
from fluid.ir.program import Variable


def regression() -> Sequence[Variable]:
    """Whose weight has a gradient that is a product of 1,025 terms."""
    loss = layers.mean(layers.square(layers.fc(fluid.data("x", [1025, 13]), 2)))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return [loss]


def convolution() -> Sequence[Variable]:
    loss = layers.mean(layers.square(layers.conv2d(fluid.data("x", [2, 3, 7, 9]), 5, 3)))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return [loss]


def output_that_is_read(patches: pytest.MonkeyPatch) -> None:
    """Partial sums are kept in the parameter that the update reads."""
    patches.setattr(cores, "keeps_partial_sums", lambda core, target: False)


def lost_write(patches: pytest.MonkeyPatch) -> None:
    """The op that writes a parameter counts as one that nobody needs."""
    owners_of = regions._owners

    def fewer(graph: Any) -> Any:
        return {value: node for value, node in owners_of(graph).items() if not value[0].endswith(".w_0")}

    patches.setattr(regions, "_owners", fewer)


def too_wide(patches: pytest.MonkeyPatch) -> None:
    """Whole vectors are read behind the last pixel of a gradient."""
    patches.setattr(Panel, "load_filters", Panel.load_padded)


def wrong_order(patches: pytest.MonkeyPatch) -> None:
    in_order = plans.native_regions
    patches.setattr(plans, "native_regions", lambda *arguments: in_order(*arguments)[::-1])


def number_that_is_read_twice() -> Sequence[Variable]:
    """A number that a product needs in memory, after a formula of it."""
    x = fluid.data("x", [1, 1])
    is_positive = layers.reshape(layers.greater_than(x, x * 0.0), [1, 1])
    chosen = layers.where(is_positive, x, layers.fill_constant([1, 1], "float32", 0.0))
    total = layers.where(is_positive, chosen, layers.fill_constant([1, 1], "float32", 2.0))
    return [layers.matmul(chosen, x + 1.0), layers.create_parameter([1, 1], "float32") + total]


def old_position(patches: pytest.MonkeyPatch) -> None:
    """A formula that may be computed before loops counts as placed where its sources were at first."""
    patches.setattr(FusionSchedule, "_position_of_last_source", lambda self, node: self.position_of[node])


@each(
    "fault, build, shape, message",
    [
        (
            output_that_is_read,
            regression,
            (1025, 13),
            r"keeps partial sums in fc_0.w_0, which it reads",
        ),
        (lost_write, regression, (1025, 13), r"no instruction writes fc_0.w_0"),
        (
            too_wide,
            convolution,
            (2, 3, 7, 9),
            r"a kernel accesses bytes 0 to \d+ of .*, which has 1400",
        ),
        (old_position, number_that_is_read_twice, (1, 1), r"a kernel computes Map\[1, 1\] before Map\[1, 1\], which it reads"),
        (wrong_order, regression, (1025, 13), r"at a wrong time"),
    ],
)
def test_a_fault_is_found_before_the_program_runs(
    fault: Callable[[pytest.MonkeyPatch], None], build: Callable[[], Sequence[Variable]], shape: tuple[int, ...], message: str
) -> None:
    feed = {"x": np.random.default_rng(0).standard_normal(shape).astype("float32")}
    expected = results_of(build, feed, native=False)
    with pytest.MonkeyPatch.context() as patches:
        patches.setenv("FLUID_NATIVE_CACHE", "0")
        patches.setattr(fallback, "_warned", {})
        fault(patches)
        with pytest.warns(RuntimeWarning, match=rf"{message}\. This is a fault of Fluid"):
            found = results_of(build, feed, native=True)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_a_number_that_is_read_twice_has_native_code() -> None:
    feed = {"x": np.array([[0.7]], "float32")}
    expected = results_of(number_that_is_read_twice, feed, native=False)
    for name, value in results_of(number_that_is_read_twice, feed, native=True).items():
        np.testing.assert_allclose(value, expected[name], err_msg=name)

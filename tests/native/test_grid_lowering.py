"""Images sampled by grids, natively, on odd sizes: beside numpy's kernels, with their first and second derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks import each, fresh_programs

import fluid
from fluid import layers


def sampled_and_derivatives(
    sizes: tuple[int, ...], mode: str, padding: str, aligned: bool, is_affine: bool, dtype: str = "float32"
) -> list[Any]:
    """The names of sampled images and of their derivatives, in the current program."""
    count, channels, height, width, rows, columns = sizes
    x = fluid.data("x", [count, channels, height, width], dtype)
    fed = fluid.data("grid", [count, 2, 3] if is_affine else [count, rows, columns, 2], dtype)
    x.stop_gradient = fed.stop_gradient = False
    grid = layers.affine_grid(fed, [count, channels, rows, columns]) if is_affine else fed
    block = fluid.default_main_program().global_block()
    sampled = block.create_var(name="sampled", dtype=dtype)
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    block.append_op("grid_sampler", {"X": [x.name], "Grid": [grid.name]}, {"Output": ["sampled"]}, attrs)
    first = fluid.gradients([layers.reduce_sum(layers.square(sampled))], [x, fed])
    second = fluid.gradients([layers.reduce_sum(layers.square(first[0]))], [x, fed]) if mode == "bilinear" else []
    return [sampled, *first, *second]


def results(fetches: list[Any], feed: dict[str, Any], native: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setenv("FLUID_NATIVE", native)
    executor = fluid.Executor()
    arrays = executor.run(feed=feed, fetch_list=fetches)
    if native == "1":
        text = executor.plan(fluid.default_main_program(), feed, fetches).to_string()
        assert "on numpy: none" in text, text.splitlines()[1]
    return arrays


@each("sizes", [(2, 3, 5, 7, 4, 6), (1, 1, 1, 1, 3, 3), (3, 17, 8, 1, 1, 9), (2, 40, 33, 31, 20, 20)])
@each("mode", ["bilinear", "nearest"])
@each("padding", ["zeros", "border", "reflection"])
@each("aligned", [True, False])
@each("is_affine", [True, False])
def test_sampled_images_and_their_derivatives(
    sizes: tuple[int, ...], mode: str, padding: str, aligned: bool, is_affine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, channels, height, width, rows, columns = sizes
    generator = np.random.default_rng(0)
    grid = generator.standard_normal((count, 2, 3)) if is_affine else generator.uniform(-2.2, 2.2, (count, rows, columns, 2))
    feed = {"x": generator.standard_normal((count, channels, height, width)).astype("float32"), "grid": grid.astype("float32")}
    with fresh_programs():
        fetches = sampled_and_derivatives(sizes, mode, padding, aligned, is_affine)
        native, on_numpy = (results(fetches, feed, native, monkeypatch) for native in "10")
    for var, array, expected in zip(fetches, native, on_numpy, strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max(), err_msg=var.name)


@each("sizes", [(2, 3, 5, 7, 4, 6), (2, 2, 1, 4, 2, 1)])
@each("padding", ["zeros", "border", "reflection"])
@each("aligned", [True, False])
def test_double_precision(sizes: tuple[int, ...], padding: str, aligned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    count, channels, height, width, rows, columns = sizes
    generator = np.random.default_rng(0)
    feed = {
        "x": generator.standard_normal((count, channels, height, width)),
        "grid": generator.uniform(-2.2, 2.2, (count, rows, columns, 2)),
    }
    with fresh_programs():
        fetches = sampled_and_derivatives(sizes, "bilinear", padding, aligned, False, "float64")
        native, on_numpy = (results(fetches, feed, native, monkeypatch) for native in "10")
    for array, expected in zip(native, on_numpy, strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-12, atol=1e-12)


@each("place", [np.nan, np.inf, -np.inf, 3e38, -1e9])
def test_places_outside_of_all_images_read_nothing(place: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coordinates that are no element's, such as NaN, must not become addresses."""
    fetches = sampled_and_derivatives((1, 2, 4, 4, 3, 3), "bilinear", "zeros", True, False)[:2]
    feed = {"x": np.ones((1, 2, 4, 4), "float32"), "grid": np.full((1, 3, 3, 2), place, "float32")}
    for native in "10":
        for array in results(fetches, feed, native, monkeypatch):
            np.testing.assert_array_equal(array, 0)

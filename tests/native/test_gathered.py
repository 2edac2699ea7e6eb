"""`gather`: along any axis of images between convolutions, and of tables of 8 bits and of halves."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from beside_numpy import assert_alike, results_of
from checks import Checks, fresh_programs
from harness import TARGETS, set_target

import fluid
from fluid import layers

EACH_TARGET = pytest.mark.parametrize("target", TARGETS, ids=lambda target: f"{target.vector_bytes} bytes")


def gathered(x: Any, index: Any, axis: int) -> Any:
    block = fluid.default_main_program().global_block()
    shape = [index.shape[0] if place == axis else size for place, size in enumerate(x.shape)]
    out = block.create_var(name=fluid.unique_name.generate("gathered"), dtype=x.dtype, shape=shape)
    block.append_op(type="gather", inputs={"X": [x], "Index": [index]}, outputs={"Out": [out]}, attrs={"axis": axis})
    return out


@EACH_TARGET
def test_pixels_of_images(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images lie with channels behind pixels between convolutions; gathered ones, too."""
    set_target(monkeypatch, target)
    with Checks() as checks:
        for shape in ((1, 3, 5, 7), (2, 5, 4, 3), (1, 1, 3, 17), (2, 17, 1, 6)):
            for axis in range(4):

                def build(shape: Any = shape, axis: int = axis) -> Any:
                    x, index = fluid.data("x", list(shape)), fluid.data("index", [9], "int64")
                    h = gathered(layers.conv2d(x, shape[1], 3, padding=1, act="relu"), index, axis)
                    return [h, layers.conv2d(gathered(h, index, 3), 4, 3, padding=1)]

                rng = np.random.default_rng(axis)
                feed = {
                    "x": rng.standard_normal(shape).astype("float32"),
                    "index": rng.integers(0, min(9, shape[axis], shape[3]), 9),
                }
                with checks(f"{shape}, axis {axis}"):
                    assert_alike(build, feed)


@EACH_TARGET
def test_rows_of_tables(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All stay in native code, as they are."""
    set_target(monkeypatch, target)
    with Checks() as checks:
        for dtype, kind in {"int8": "int8", "uint8": "uint8", "float16": "float16", "bfloat16": ml_dtypes.bfloat16}.items():
            for shape, axis in (((9, 5), 0), ((63, 17), 0), ((3, 1), 1), ((4, 7, 3), 1), ((2, 65), 1)):
                with checks(f"{dtype}, {shape}, axis {axis}"), fresh_programs() as (program, _):
                    x, index = fluid.data("x", list(shape), dtype), fluid.data("index", [6], "int64")
                    fetches = [gathered(x, index, axis), layers.transpose(x, list(range(len(shape)))[::-1])]
                    values = np.arange(np.prod(shape)).reshape(shape).astype(kind)
                    feed = {"x": values, "index": np.random.default_rng(0).integers(0, shape[axis], 6)}
                    executor = fluid.Executor()
                    result = executor.run(program, feed, fetches)[0]
                    np.testing.assert_array_equal(np.asarray(result, "f4"), np.take(values, feed["index"], axis).astype("f4"))
                    assert not any(
                        item.op.type == "gather" for item in executor.plan(program, feed, fetches).instructions if item.is_op
                    )  # type: ignore[attr-defined]


@EACH_TARGET
def test_single_elements(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are gathered in vectors, with the formulas that compute their places, and those that read them."""
    set_target(monkeypatch, target)
    with Checks() as checks:
        for number, (rows, columns, count) in enumerate(((1, 1, 1), (7, 3, 5), (1, 1025, 63), (65, 9, 8), (1023, 2, 17))):
            kind = ("int64", "int32")[number % 2]

            def build(rows: int = rows, columns: int = columns, count: int = count, kind: str = kind) -> Any:
                x = fluid.data("x", [rows, columns])
                x.stop_gradient = False
                row, places = fluid.data("row", [count], kind), fluid.data("places", [rows, count], kind)
                last = gathered(x, row, 1)
                some = layers.index_sample(x, places)
                pairs = layers.gather_nd(x, layers.stack([places[0] % rows, row], 1))
                truths = gathered(layers.cast(x > 0.0, "bool"), row, 1)
                total = layers.reduce_sum(layers.exp(last) * some) + layers.reduce_sum(pairs * pairs)
                return [last, some, pairs, layers.cast(truths, "float32"), *fluid.gradients([total], [x])]

            rng = np.random.default_rng(number)
            feed = {
                "x": rng.standard_normal((rows, columns)).astype("float32"),
                "row": rng.integers(0, columns, count).astype(kind),
                "places": rng.integers(0, columns, (rows, count)).astype(kind),
            }
            feed["x"].flat[0] = np.nan
            with checks(f"{rows} x {columns}, {count}"):
                assert_alike(build, feed)


def test_places_that_the_program_computes_are_checked_before_elements_are_read() -> None:
    """The kernel that computes them does not read the table at once."""

    def build() -> Any:
        x, places = fluid.data("x", [64, 5]), fluid.data("places", [64, 5])
        return [layers.index_sample(x, layers.cast(layers.floor(places * 2.0), "int64"))]

    feed = {"x": np.ones((64, 5), "float32"), "places": np.full((64, 5), 1e9, "float32")}
    for native in (True, False):
        with pytest.raises(fluid.errors.ExecutionError, match="index 2000000000 is outside"):
            results_of(build, feed, native)

"""Whole programs in native code, beside the same programs on numpy."""

from __future__ import annotations

import re

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import fluid
from fluid import layers


def test_a_plan_prints_its_native_code(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regions with the ops that they compute, values and layouts that only native code knows, and what is left to numpy."""
    monkeypatch.delenv("FLUID_NATIVE", raising=False)
    x = fluid.data("x", [2, 1, 3, 3])
    h = layers.conv2d(layers.tanh(x), 4, 3, padding=1, act="relu")
    y = layers.reduce_sum(layers.dropout(layers.transpose(h, [0, 2, 3, 1]), 0.5))
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    lines = executor.plan(feed={"x": np.zeros(x.shape, "float32")}, fetch_list=[y]).to_string(calls=True).splitlines()
    assert lines[0].startswith("plan: 7 ops, an arena of ")
    assert re.fullmatch(r"  native code: 6 ops, in \d+ \[regions\]; on numpy: dropout", lines[1])
    text = "\n".join(lines)
    assert re.search(
        r"""
 +\d  native.images.1@apart = \[tanh\]\(x@\d+\)
          native.images.1: float32\[2, 5, 5, 1\], channels last, halo 1
          6 x 3: tanh copy
 +\d  native.2@\d+ = \[conv2d \+ elementwise_add \+ relu\]\(native.images.1@apart, native.0@\d+, conv2d_0.b_0@scope\)
          native.2: float32\[2, 3, 3, 4\], channels last
          convolved\[2, 3, 3, 4\] add relu
""",
        text,
    )
    assert "dropout(transpose_0.tmp_0@" in text and "greater_equal(scratch0" in text

"""Kernels that take large arrays some elements at a time, and gradients of maxima where elements are equal."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from fluid.executor.interpreter import apply_op
from fluid.executor.kernels import activation, pool


def first_maxima(x: Any, d_out: Any, size: int, stride: int, pad: int) -> Any:
    """The gradient of maxima: the first largest element of each window, in the order of memory, gets what its window has."""
    found, dims = np.zeros_like(x), x.ndim - 2
    for image in product(*map(range, x.shape[:2])):
        for window in product(*map(range, d_out.shape[2:])):
            spans = [
                range(max(at * stride - pad, 0), min(at * stride - pad + size, extent))
                for at, extent in zip(window, x.shape[2:], strict=True)
            ]
            best = max(product(*spans), key=lambda place: (x[image][place], [-part for part in place]))
            assert len(best) == dims
            found[image][best] += d_out[image][window]
    return found


@pytest.mark.parametrize("part", [1, 200, 1 << 17])
@pytest.mark.parametrize(
    ("extents", "size", "stride", "pad"),
    [((7, 6), 3, 2, 1), ((8, 9), 3, 1, 0), ((9, 8), 4, 3, 0), ((10, 10), 3, 2, 0), ((5, 6, 5), 3, 2, 1), ((11, 10), 3, 4, 1)],
)
def test_of_equal_elements_the_first_gets_the_gradient(
    extents: tuple[int, ...], size: int, stride: int, pad: int, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_PART", part)
    random = np.random.default_rng(0)
    x = random.integers(0, 3, (3, 2, *extents)).astype("float64")
    op_type, dims = f"pool{len(extents)}d", len(extents)
    attrs = {"ksize": [size] * dims, "strides": [stride] * dims, "paddings": [pad] * dims, "pooling_type": "max"}
    out = apply_op(op_type, {"X": x}, attrs)["Out"]
    d_out = random.standard_normal(out.shape)
    found = apply_op(f"{op_type}_grad", {"X": x, "Out": out, "Out@GRAD": d_out}, attrs)["X@GRAD"]
    np.testing.assert_allclose(found, first_maxima(x, d_out, size, stride, pad), rtol=1e-12)
    if dims == 2:
        turned = {"X": x, "Out": out, "Out@GRAD": d_out}
        turned = {slot: np.ascontiguousarray(value.transpose(0, 2, 3, 1)) for slot, value in turned.items()}
        last = apply_op(f"{op_type}_grad", turned, {**attrs, "data_format": "NHWC"})["X@GRAD"]
        assert np.array_equal(last.transpose(0, 3, 1, 2), found)


def test_the_gradient_of_maxima_of_no_image() -> None:
    attrs = {"ksize": [3, 3], "strides": [2, 2], "pooling_type": "max"}
    x, out = np.zeros((0, 2, 7, 7)), np.zeros((0, 2, 3, 3))
    assert apply_op("pool2d_grad", {"X": x, "Out": out, "Out@GRAD": out}, attrs)["X@GRAD"].shape == x.shape


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op_type", ["gelu", "erf", "softplus", "elu", "celu", "selu", "mish"])
def test_formulas_do_not_depend_on_the_parts(op_type: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((7, 30)).astype(dtype) * 4
    whole = apply_op(op_type, {"X": x})["Out"]
    monkeypatch.setattr(activation, "_PART", 16)
    np.testing.assert_allclose(apply_op(op_type, {"X": x})["Out"], whole, rtol=4 * np.finfo(dtype).eps)


def test_erf_in_float32_is_right_to_a_few_units_in_the_last_place() -> None:
    x = np.concatenate([np.linspace(-6, 6, 5001), [0, 1e-30, 1e-5, -np.inf, np.inf]]).astype("float32")
    expected = np.array([math.erf(value) for value in x])
    found = apply_op("erf", {"X": x})["Out"]
    np.testing.assert_allclose(found, expected, rtol=6e-7)
    assert found.max() == 1 and found.min() == -1
    assert np.isnan(apply_op("erf", {"X": np.array([np.nan], "float32")})["Out"]).all()

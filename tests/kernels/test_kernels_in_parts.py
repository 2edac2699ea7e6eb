"""Kernels that take large arrays some elements at a time, and gradients of maxima where elements are equal."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from checks import each

from fluid.executor.binding.compiled import apply_op
from fluid.executor.kernels import activation, norm, pool
from fluid.opdef import registry

pytestmark = pytest.mark.numpy_alone


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


@each("part", [1, 200, 1 << 17])
@each(
    ("extents", "size", "stride", "pad"),
    [
        ((8, 6), 2, 2, 0),
        ((9, 7), 2, 2, 0),
        ((7, 6), 3, 2, 1),
        ((8, 9), 3, 1, 0),
        ((9, 8), 4, 3, 0),
        ((10, 10), 3, 2, 0),
        ((5, 6, 5), 3, 2, 1),
        ((11, 10), 3, 4, 1),
    ],
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


@each("dtype", ["float32", "float64"])
@each("op_type", ["gelu", "erf", "softplus", "elu", "celu", "selu", "mish"])
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


# ------------------------------------------------------------------------------------------------------- normalizations
def given_for(op_type: str, shape: tuple[int, ...], channel: int, dtype: str) -> dict[str, Any]:
    random = np.random.default_rng(0)
    channels = shape[channel]
    given = {"X": random.standard_normal(shape) * 3 + 1, "Scale": random.standard_normal(channels), "Bias": np.ones(channels)}
    if op_type == "batch_norm":
        given |= {"Mean": random.standard_normal(channels), "Variance": random.random(channels) + 1}
    return {slot: value.astype(dtype) for slot, value in given.items()}


@each("shape", [(3, 4, 5, 6), (2, 4, 400), (5, 4, 1), (3, 4)])
@each(
    ("op_type", "attrs"),
    [
        ("group_norm", {"groups": 2}),
        ("group_norm", {"groups": 1, "data_layout": "NHWC"}),
        ("instance_norm", {}),
        ("batch_norm", {}),
        ("batch_norm", {"data_layout": "NHWC"}),
        ("batch_norm", {"is_test": True}),
        ("batch_norm", {"use_global_stats": True, "data_layout": "NHWC"}),
    ],
)
def test_normalizations_do_not_depend_on_the_parts(
    op_type: str, attrs: dict[str, Any], shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = given_for(op_type, shape, -1 if attrs.get("data_layout") == "NHWC" else 1, "float64")
    d_y = np.random.default_rng(1).standard_normal(shape)

    def run(use_kernel: bool = True) -> list[Any]:
        made = {slot: value for slot, value in apply_op(op_type, dict(given), attrs).items() if value is not None}
        slots = registry.get(f"{op_type}_grad").inputs
        known = {slot: value for slot, value in {**given, **made, "Y@GRAD": d_y}.items() if slot in slots}
        grads = apply_op(f"{op_type}_grad", known, attrs, {"X@GRAD", "Scale@GRAD", "Bias@GRAD"}, use_kernel)
        return [made["Y"], *(grads[f"{slot}@GRAD"] for slot in ("X", "Scale", "Bias"))]

    whole = run()
    for ours, rule in zip(whole, run(use_kernel=False), strict=True):
        np.testing.assert_allclose(ours, rule, rtol=1e-9, atol=1e-9)
    for part in (1, 70, 900):
        monkeypatch.setattr(norm, "_PART", part)
        for ours, expected in zip(run(), whole, strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=1e-12)


@each("dtype", ["float16", "float32", "float64"])
@each("shape", [(90, 600), (300, 200), (4, 9), (2, 40_000)])
def test_layer_norm_in_parts(shape: tuple[int, int], dtype: str) -> None:
    given = given_for("layer_norm", shape, 1, dtype)
    d_y = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    x, scale, bias = (given[slot].astype("float64") for slot in ("X", "Scale", "Bias"))
    deviation = np.sqrt(x.var(1, keepdims=True) + 1e-5)
    normal = (x - x.mean(1, keepdims=True)) / deviation
    scaled = d_y.astype("float64") * scale
    d_x = (scaled - scaled.mean(1, keepdims=True) - normal * (scaled * normal).mean(1, keepdims=True)) / deviation
    before = np.getbufsize()
    made = apply_op("layer_norm", given)
    slots = registry.get("layer_norm_grad").inputs
    grads = apply_op("layer_norm_grad", {slot: {**given, **made, "Y@GRAD": d_y}[slot] for slot in slots})
    assert np.getbufsize() == before
    expected = [normal * scale + bias, d_x, (d_y * normal).sum(0), d_y.astype("float64").sum(0)]
    tolerance = {"float16": 2e-2, "float32": 3e-5, "float64": 1e-11}[dtype]
    for ours, value in zip([made["Y"], *(grads[f"{slot}@GRAD"] for slot in ("X", "Scale", "Bias"))], expected, strict=True):
        np.testing.assert_allclose(ours, value, rtol=tolerance, atol=tolerance * np.abs(value).max())


@each(
    ("op_type", "attrs", "shape", "slot"),
    [
        ("layer_norm", {}, (2, 110_000), "Mean"),
        ("group_norm", {"groups": 2}, (1, 4, 50_000), "Mean"),
        ("instance_norm", {}, (1, 2, 110_000), "SavedMean"),
        ("batch_norm", {}, (2, 2, 50_000), "SavedMean"),
        ("batch_norm", {"data_layout": "NHWC"}, (2, 50_000, 2), "SavedMean"),
    ],
)
def test_means_of_many_equal_numbers_are_right(op_type: str, attrs: dict[str, Any], shape: tuple[int, ...], slot: str) -> None:
    """Summed one after the other, each is rounded alike: a hundred units of the last place come together."""
    inputs = given_for(op_type, shape, -1 if attrs.get("data_layout") == "NHWC" else 1, "float32") | {
        "X": np.full(shape, 0.38363, "float32")
    }
    inputs = {slot: value for slot, value in inputs.items() if op_type != "layer_norm" or slot == "X"}
    mean = apply_op(op_type, inputs, attrs)[slot]
    np.testing.assert_allclose(mean, np.full(mean.shape, inputs["X"].flat[0]), rtol=32 * np.finfo("float32").eps)


@each("shape, dim", [((300_000, 3), [0]), ((70_000, 33), [0]), ((60_000, 3), [0]), ((513, 7), [0]), ((40_000, 2, 3), [0, 2])])
def test_sums_of_many_rows_are_right(shape: tuple[int, ...], dim: list[int]) -> None:
    """The bias gradient of a mean, say: its summands are equal, and so is what each of them loses."""
    random = np.random.default_rng(0).standard_normal(shape).astype("float32")
    for x in (np.full(shape, 0.38363, "float32"), random):
        total = apply_op("reduce_sum", {"X": x}, {"dim": dim})["Out"]
        size = np.abs(x).sum(tuple(dim), "float64")
        assert (np.abs(total - x.sum(tuple(dim), "float64")) <= 32 * np.finfo("float32").eps * size).all()


def test_the_gradient_of_layer_norm_over_a_long_row_is_right() -> None:
    """If all gradients of the output are equal, it is 0: the mean is subtracted from each."""
    x = np.random.default_rng(0).standard_normal((2, 700_001)).astype("float32")
    inputs = {"X": x, "Mean": x.mean(1), "Variance": x.var(1), "Y@GRAD": np.full(x.shape, 0.1, "float32")}
    results = apply_op("layer_norm_grad", inputs, {"epsilon": 1e-5, "begin_norm_axis": 1})
    assert np.abs(results["X@GRAD"]).max() < 1e-6


@each("width", [1, 2, 33])
def test_layer_norm_adds_up_many_rows(width: int) -> None:
    """Gradients of Scale and Bias are sums over rows; of narrow rows there are many."""
    rows = 120_001
    x = np.random.default_rng(0).standard_normal((rows, width)).astype("float32")
    inputs = {
        "X": x,
        "Scale": np.ones(width, "float32"),
        "Bias": np.ones(width, "float32"),
        "Mean": x.mean(1),
        "Variance": x.var(1),
    }
    gradient = np.full((rows, width), 1e-3, "float32")
    results = apply_op("layer_norm_grad", {**inputs, "Y@GRAD": gradient}, {"epsilon": 1e-5, "begin_norm_axis": 1})
    np.testing.assert_allclose(results["Bias@GRAD"], gradient.sum(0, "float64"), rtol=2e-5)


@each(("op_type", "attrs"), [("group_norm", {"groups": 2}), ("instance_norm", {}), ("batch_norm", {})])
def test_normalizations_of_no_image(op_type: str, attrs: dict[str, Any]) -> None:
    given = given_for(op_type, (0, 4, 3, 2), 1, "float32")
    made = {slot: value for slot, value in apply_op(op_type, given, attrs).items() if value is not None}
    slots = registry.get(f"{op_type}_grad").inputs
    known = {slot: value for slot, value in {**given, **made, "Y@GRAD": given["X"]}.items() if slot in slots}
    grads = apply_op(f"{op_type}_grad", known, attrs, {"X@GRAD", "Scale@GRAD", "Bias@GRAD"})
    assert grads["X@GRAD"].shape == given["X"].shape
    assert not grads["Bias@GRAD"].any() and not grads["Scale@GRAD"].any()


# ------------------------------------------------------------------------------------------------------------- formulas
@each("op_type", ["erf", "gelu"])
def test_formulas_of_erf_in_float16_are_computed_in_float32(op_type: str) -> None:
    x = np.array([-np.inf, -200.0, -3.0, -0.5, 0.0, 1e-3, 0.5, 3.0, 60_000.0, np.inf], "float16")[1 - (op_type == "erf") :]
    precise = apply_op(op_type, {"X": x.astype("float64")})["Out"]
    found = apply_op(op_type, {"X": x})["Out"]
    assert found.dtype == "float16"
    np.testing.assert_allclose(found, precise.astype("float16"), rtol=2e-3, atol=1e-6)


def test_gelu_in_float32_is_right_to_a_few_units_in_the_last_place() -> None:
    x = np.concatenate([np.linspace(-8, 8, 4001), [1e-30, 30, 1e19, 3e38]]).astype("float32")
    normal = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in x.astype("float64")])
    slope = normal + x.astype("float64") * np.exp(-0.5 * np.square(x, dtype="float64")) / math.sqrt(2 * math.pi)
    found = apply_op("gelu", {"X": x})["Out"]
    np.testing.assert_allclose(found, x * normal, rtol=3e-7, atol=3e-7)
    given = {"X": x, "Out": found, "Out@GRAD": np.ones_like(x)}
    grad = apply_op("gelu_grad", {slot: given[slot] for slot in registry.get("gelu_grad").inputs}, {})["X@GRAD"]
    np.testing.assert_allclose(grad, slope, atol=5e-7)


@each("dtype", ["float32", "float64"])
@each(
    ("shape", "axis"),
    [((3, 0), -1), ((5, 1), -1), ((7, 9), 1), ((7, 9), 0), ((2, 5, 3), 1), ((40,), 0), ((3, 4096), -1), ((2, 100_000), -1)],
)
def test_softmax_sums_rows_of_every_length(shape: tuple[int, ...], axis: int, dtype: str) -> None:
    x = (np.random.default_rng(0).standard_normal(shape) * 3).astype(dtype)
    exact = x.astype("float64")
    if x.size:
        exact = exact - exact.max(axis, keepdims=True)
        exact = exact - np.log(np.exp(exact).sum(axis, keepdims=True))
    out = apply_op("softmax", {"X": x}, {"axis": axis})["Out"]
    log_out = apply_op("log_softmax", {"X": x}, {"axis": axis})["Out"]
    d_out = np.cos(x)
    d_x = apply_op("softmax_grad", {"Out": out, "Out@GRAD": d_out}, {"axis": axis})["X@GRAD"]
    close = {"rtol": 2e-6 if dtype == "float32" else 1e-13, "atol": 1e-7 if dtype == "float32" else 1e-15}
    np.testing.assert_allclose(out, np.exp(exact), **close)
    np.testing.assert_allclose(log_out, exact, **close)
    expected = out * (d_out - (out * d_out.astype("float64")).sum(axis, keepdims=True))
    np.testing.assert_allclose(d_x, expected, **close)


@each(("dtype", "k", "largest"), product(("float32", "float64", "int64"), (1, 2, 5, 8, 9), (True, False)))
def test_the_first_of_equal_numbers_are_the_top_ones(dtype: str, k: int, largest: bool) -> None:
    rng = np.random.default_rng(k)
    few = rng.integers(-6, 7, (16, 2500)).astype(dtype)
    few[0], few[1] = 3, np.arange(2500)
    extremes = few.copy()
    extremes[:, 3:] = (
        few.dtype.type(-np.inf if largest else np.inf) if dtype != "int64" else few.min() - 1 if largest else few.max() + 1
    )
    for x in (few, extremes):
        top = apply_op("top_k_v2", {"X": x}, {"k": k, "largest": largest})
        order = np.argsort(-x if largest else x, -1, kind="stable")[:, :k]
        np.testing.assert_array_equal(top["Indices"], order)
        np.testing.assert_array_equal(top["Out"], np.take_along_axis(x, order, -1))


def test_the_first_true_elements_of_long_rows_are_the_top_ones() -> None:
    x = np.random.default_rng(0).random((16, 2500)) < 0.5
    top = apply_op("top_k_v2", {"X": x}, {"k": 4})
    order = np.argsort(~x, -1, kind="stable")[:, :4]
    np.testing.assert_array_equal(top["Indices"], order)
    np.testing.assert_array_equal(top["Out"], np.take_along_axis(x, order, -1))

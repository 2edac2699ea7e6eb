"""Layers on regions of interest, and deformable convolution: inference, training, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers
from fluid.errors import ExecutionError, FluidTypeError, InferenceError, ProgramError
from fluid.ir.program import Variable

ROIS = np.array([[0, 0, 3, 3], [1, 2, 5, 4], [2, 0, 7, 5]], "float32")


def image() -> Variable:
    return layers.data("x", [8, 6, 8])


def regions(**kwargs: Any) -> Variable:
    return layers.data("rois", [4], **{"lod_level": 1, **kwargs})


def moved_regions(x: Variable) -> Variable:
    """Parts of three regions, whose places are learned."""
    moves = layers.create_parameter([3, 2, 2, 2], "float32", name="moves")
    how: dict[str, Any] = {"pooled_height": 2, "pooled_width": 2, "sample_per_part": 2, "position_sensitive": True}
    return layers.deformable_roi_pooling(x, regions(), moves, spatial_scale=0.9, group_size=[2, 2], **how)


LAYERS: dict[str, tuple[Callable[[Variable], Variable], list[int]]] = {
    "roi_pool": (lambda x: layers.roi_pool(x, regions(), 2, 3), [-1, 8, 2, 3]),
    "roi_align": (lambda x: layers.roi_align(x, regions(), 3, 1, 0.5, 2), [-1, 8, 3, 1]),
    "prroi_pool": (lambda x: layers.prroi_pool(x, regions(), 0.5, 2, 3), [-1, 8, 2, 3]),
    "deformable_roi_pooling": (lambda x: moved_regions(x), [-1, 2, 2, 2]),
    "psroi_pool": (lambda x: layers.psroi_pool(x, regions(), 2, 1.0, 2, 2), [-1, 2, 2, 2]),
}


@each("name", LAYERS)
def test_regions_of_learned_images(name: str) -> None:
    make, shape = LAYERS[name]
    out = make(layers.conv2d(image(), 8, 3, padding=1))
    assert list(out.shape) == shape
    loss = layers.mean(layers.square(out - 1.0))
    fluid.optimizer.Adam(0.05).minimize(loss)
    exe = fluid.Executor()
    fluid.default_startup_program().random_seed = 1
    exe.run(fluid.default_startup_program())
    feed = {"x": np.random.RandomState(0).rand(2, 8, 6, 8).astype("float32"), "rois": (ROIS, [[1, 2]])}
    losses = [exe.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(40)]
    assert losses[-1] < losses[0] / 2


def test_an_upright_rectangle_is_cut_out() -> None:
    """Corners equal the corners of the result; beyond the proportions it is 0."""
    corners = np.array([[1, 1, 4, 1, 4, 3, 1, 3], [0, 0, 2, 0, 2, 5, 0, 5]], "float32")
    out, mask, matrix = layers.roi_perspective_transform(image(), layers.data("rois", [8], lod_level=1), 3, 6)
    x = np.random.RandomState(0).rand(2, 8, 6, 8).astype("float32")
    found = fluid.Executor().run(feed={"x": x, "rois": (corners, [[1, 1]])}, fetch_list=[out, mask, matrix])
    np.testing.assert_allclose(found[0][0, :, :, :4], x[0, :, 1:4, 1:5], 1e-5)
    np.testing.assert_allclose(found[0][0, :, :, 4:], 0)
    np.testing.assert_array_equal(found[1][0, 0], [[1, 1, 1, 1, 0, 0]] * 3)
    np.testing.assert_allclose(found[2], [[1, 0, 1, 0, 1, 1, 0, 0, 1], [2, 0, 0, 0, 2.5, 0, 0, 0, 1]], atol=1e-6)


@each("modulated", [True, False])
def test_places_of_a_deformable_convolution_are_learned(modulated: bool) -> None:
    x = image()
    offset = layers.conv2d(x, 2 * 2 * 9, 3, padding=1)
    mask = layers.sigmoid(layers.conv2d(x, 2 * 9, 3, padding=1)) if modulated else None
    out = layers.deformable_conv(x, offset, mask, 4, 3, padding=1, groups=2, deformable_groups=2, modulated=modulated)
    assert out.shape == (-1, 4, 6, 8)
    assert out.block.ops[-2].type == ("deformable_conv" if modulated else "deformable_conv_v1")
    loss = layers.mean(layers.square(out - layers.slice(x, [1], [0], [4])))
    fluid.optimizer.Adam(0.05).minimize(loss)
    exe = fluid.Executor()
    fluid.default_startup_program().random_seed = 1
    exe.run(fluid.default_startup_program())
    scope, names = fluid.global_scope(), [p.name for p in fluid.default_main_program().all_parameters()]
    before = {name: np.array(scope.find_var(name).get_tensor()) for name in names}
    feed = {"x": np.random.RandomState(0).rand(2, 8, 6, 8).astype("float32")}
    losses = [exe.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(40)]
    assert losses[-1] < losses[0] / 2
    assert all((np.array(scope.find_var(name).get_tensor()) != value).any() for name, value in before.items())


def test_without_offsets_it_is_a_convolution() -> None:
    x = image()
    given: dict[str, Any] = {"stride": [2, 1], "padding": [0, 1], "dilation": [2, 1], "groups": 2, "param_attr": "w"}
    still, whole = (layers.fill_constant([2, each * 6, 2, 8], "float32", value) for each, value in ((2, 0.0), (1, 1.0)))
    pair = [
        layers.deformable_conv(x, still, whole, 4, [2, 3], bias_attr=False, **given),
        layers.conv2d(x, 4, [2, 3], bias_attr=False, **given),
    ]
    exe = fluid.Executor()
    fluid.default_startup_program().random_seed = 1
    exe.run(fluid.default_startup_program())
    found, expected = exe.run(feed={"x": np.random.RandomState(0).rand(2, 8, 6, 8).astype("float32")}, fetch_list=pair)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no sequences": (
        lambda: layers.roi_pool(image(), layers.data("rois", [3, 4], append_batch_size=False)),
        InferenceError,
        r"ROIs float32\[3, 4\] should hold sequences; declare it with lod_level=1",
    ),
    "too few channels": (
        lambda: layers.psroi_pool(image(), regions(), 3, 1.0, 2, 2),
        InferenceError,
        "should have output_channels \\* pooled_height \\* pooled_width = 12 channels",
    ),
    "classes": (
        lambda: layers.deformable_roi_pooling(image(), regions(), layers.data("t", [6, 1, 1])),
        InferenceError,
        "should have two channels for each class; these share output_dim 8",
    ),
    "groups of parts": (
        lambda: layers.deformable_roi_pooling(image(), regions(), layers.data("t", [2, 1, 1]), group_size=[2, 1]),
        InferenceError,
        r"should have output_dim \* group_size\[0\] \* group_size\[1\] = 16 channels",
    ),
    "no mask": (
        lambda: layers.deformable_conv(image(), image(), None, 4, 3),
        ProgramError,
        "deformable_conv: give a mask, or modulated=False for none",
    ),
    "no variable": (
        lambda: layers.deformable_conv(3, image(), None, 4, 3),  # type: ignore[arg-type]
        FluidTypeError,
        "deformable_conv: input should be a Variable, not int",
    ),
    "offsets of another filter": (
        lambda: layers.deformable_conv(image(), layers.data("o", [8, 5, 7]), None, 4, 2, groups=2, modulated=False, padding=1),
        InferenceError,
        r"Offset float32\[-1, 8, 5, 7\] should have 7 elements along axis 2, as the output has",
    ),
    "too few offsets": (
        lambda: layers.deformable_conv(image(), layers.data("o", [6, 5, 7]), None, 4, 2, modulated=False),
        InferenceError,
        "should have 8 channels: a y and an x for each of 4 elements of the filter in 1 deformable_groups",
    ),
    "groups": (
        lambda: layers.deformable_conv(image(), layers.data("o", [24, 5, 7]), None, 4, 2, deformable_groups=3, modulated=False),
        InferenceError,
        "cannot be shared among 3 deformable_groups",
    ),
    "a large filter": (
        lambda: layers.deformable_conv(image(), layers.data("o", [162, 5, 7]), None, 4, 9, modulated=False),
        InferenceError,
        "should not be larger than the padded Input",
    ),
}


@each("name", ERRORS)
def test_refused(name: str) -> None:
    make, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        make()


@each(
    ("rois", "lengths", "kind", "message"),
    [
        (ROIS, [1, 1, 1], ExecutionError, "are regions of 3 images, but X .* holds 2"),
        (np.full_like(ROIS, np.nan), [1, 2], ExecutionError, "a region in ROIs reaches to nan .* should be at most 1048576"),
        (ROIS * 1e7, [1, 2], ExecutionError, "a region in ROIs reaches to 7e\\+07 "),
    ],
)
def test_regions_that_do_not_fit(rois: Any, lengths: list[int], kind: type[Exception], message: str) -> None:
    out = layers.roi_align(image(), regions())
    with pytest.raises(kind, match=message):
        fluid.Executor().run(feed={"x": np.zeros((2, 8, 6, 8), "float32"), "rois": (rois, [lengths])}, fetch_list=[out])


def test_counts_that_do_not_fit() -> None:
    block = fluid.default_main_program().global_block()
    counts = layers.data("counts", [2], dtype="int32", append_batch_size=False)
    out = block.create_var(name="out")
    block.append_op(
        "roi_pool",
        {"X": image(), "ROIs": regions(lod_level=0), "RoisNum": counts},
        {"Out": out, "Argmax": block.create_var()},
        {},
    )
    feed = {"x": np.zeros((2, 8, 6, 8), "float32"), "rois": ROIS, "counts": np.array([1, 1], "int32")}
    with pytest.raises(ExecutionError, match="3 regions in ROIs and 2 images in X, but RoisNum should say how many are in each"):
        fluid.Executor().run(feed=feed, fetch_list=[out])

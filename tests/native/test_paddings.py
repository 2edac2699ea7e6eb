"""Paddings that copy elements, and slices in the other direction, in native code beside numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from beside_numpy import assert_alike, assert_layer_is_native
from checks import each, fresh_programs

import fluid
from fluid import layers
from fluid.executor.native.regions import NativeRegion
from fluid.extend import ops
from fluid.ir.program import Variable


@each("mode", ["constant", "reflect", "edge"])
@each("paddings", [(1, 1, 1, 1), (0, 2, 3, 0), (3, 3, 0, 4), (0, 0, 0, 0)])
@each("data_format", ["NCHW", "NHWC"])
@each("is_filtered", [False, True])
def test_padded_images_are_those_of_numpy(is_filtered: bool, data_format: str, paddings: tuple[int, ...], mode: str) -> None:
    """Images come from memory with channels first, or from a convolution, with channels last."""
    shape = (2, 3, 4, 5) if data_format == "NCHW" else (2, 4, 5, 3)

    def layer(x: Variable) -> Variable:
        if is_filtered:
            x = layers.conv2d(x, 4, 1, bias_attr=False, data_format=data_format)
        return layers.pad2d(x, paddings, mode, data_format=data_format)

    assert_layer_is_native(shape, layer)


@each("mode", ["reflect", "replicate", "circular"])
@each("paddings", [(1, 1, 1, 1, 1, 1), (0, 2, 1, 0, 2, 2)])
def test_padded_volumes_are_those_of_numpy(paddings: tuple[int, ...], mode: str) -> None:
    assert_layer_is_native((2, 3, 3, 4, 5), lambda x: ops().pad3d(x, paddings=list(paddings), mode=mode))


def test_elements_that_are_copied_more_than_once_stay_on_numpy() -> None:
    assert_layer_is_native(
        (2, 3, 3, 4, 5), lambda x: ops().pad3d(x, paddings=[6] * 6, mode="circular"), on_numpy="pad3d, pad3d_grad"
    )


def test_slices_run_backwards() -> None:
    def build() -> Sequence[Variable]:
        x = fluid.data("x", [5, 7, 3])
        return [layers.strided_slice(x, [0, 1], [4, 6], [-6, 0], [-1, -2])]

    assert_alike(build, {"x": np.random.default_rng(0).standard_normal((5, 7, 3)).astype("float32")})


def test_elements_are_copied_once() -> None:
    cases: dict[str, Callable[[Variable], Variable]] = {
        "a slice": lambda x: layers.slice(x, [1, 2, 3], [1, 2, 3], [6, 30, 31]),
        "a roll": lambda x: layers.roll(x, 3, 1),
        "padding": lambda x: layers.pad2d(x, [1, 2, 3, 4], "reflect"),
        "a reshape, turned": lambda x: layers.transpose(layers.reshape(x, [28, 33, 17, 2]), [1, 3, 0, 2]),
        "shuffled channels": lambda x: layers.shuffle_channel(x, 7),
    }
    for what, layer in cases.items():
        with fresh_programs() as (main, _):
            out = layer(fluid.data("x", [4, 7, 33, 34]))
            plan = fluid.Executor().plan(main, {"x": np.zeros((4, 7, 33, 34), "float32")}, [out])
            regions = [step for step in plan.instructions if isinstance(step, NativeRegion)]  # type: ignore[attr-defined]
            copied = sum(node.size for region in regions for node in region.stored)
            assert copied == math.prod(out.shape), f"{what}: {[region.describe() for region in regions]}"


def test_views_of_a_reshaped_variable_see_it_before_it_changes() -> None:
    def build() -> Sequence[Variable]:
        x = layers.create_parameter([6, 4], "float32")
        reshaped = layers.reshape(x, [3, 8])
        layers.assign(x * 2.0, x)
        return [layers.transpose(reshaped, [1, 0]), layers.slice(reshaped, [1], [1], [5])]

    assert_alike(build, {})


def test_shuffled_channels_and_their_gradients() -> None:
    for shape, groups in (((2, 6, 3, 5), 3), ((1, 8, 1, 7), 4), ((3, 4, 9, 1), 1)):
        assert_layer_is_native(shape, lambda x, groups=groups: layers.shuffle_channel(x, groups))


def test_vectors_on_diagonals() -> None:
    for shape in ((1,), (7,), (2, 9), (3, 2, 65)):
        for attrs in ({}, {"offset": 2}, {"offset": -1, "dim1": 0, "dim2": -1}, {"offset": 1, "dim1": -1, "dim2": 0}):
            assert_layer_is_native(shape, lambda x, attrs=attrs: layers.diag_embed(x, **attrs))
    assert_layer_is_native((65,), layers.diag)


def test_a_slice_of_one_element_becomes_a_number() -> None:
    assert_layer_is_native((3,), lambda x: ops().slice(x, axes=[0], starts=[1], ends=[2], decrease_axis=[0]))

"""Layers of images and volumes: inference, runs, training, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers
from fluid.errors import ExecutionError, FluidError, FluidTypeError, InferenceError, ProgramError
from fluid.ir.program import Variable


def data(*shape: int, name: str = "x", dtype: str = "float32") -> Variable:
    return layers.data(name, list(shape), dtype=dtype)


def image() -> Variable:
    return data(4, 6, 8)


def volume() -> Variable:
    return data(2, 4, 6, 8)


def fixed(values: Any, dtype: str = "float32") -> Variable:
    return layers.assign(np.array(values, dtype))


LAYERS: dict[str, tuple[Callable[[], Any], list[int]]] = {
    "conv3d": (lambda: layers.conv3d(volume(), 4, 3, act="relu"), [-1, 4, 2, 4, 6]),
    "conv3d, channels last": (lambda: layers.conv3d(volume(), 4, 1, data_format="NDHWC"), [-1, 2, 4, 6, 4]),
    "conv3d, pairs": (
        lambda: layers.conv3d(volume(), 2, 3, padding=[[0, 0], [0, 0], [1, 1], [0, 1], [1, 0]], groups=2),
        [-1, 2, 4, 5, 7],
    ),
    "conv3d_transpose": (lambda: layers.conv3d_transpose(volume(), 3, filter_size=2, stride=2), [-1, 3, 8, 12, 16]),
    "conv3d_transpose to a size": (
        lambda: layers.conv3d_transpose(volume(), 3, output_size=[9, 13, 17], stride=2),
        [-1, 3, 9, 13, 17],
    ),
    "conv2d_transpose to a padded size": (
        lambda: layers.conv2d_transpose(image(), 3, output_size=[12, 16], stride=2, padding=[1, 0, 0, 1]),
        [-1, 3, 12, 16],
    ),
    "depthwise conv2d": (lambda: layers.conv2d(image(), 8, 3, groups=4, use_cudnn=False), [-1, 8, 4, 6]),
    "depthwise conv2d_transpose": (
        lambda: layers.conv2d_transpose(image(), 4, filter_size=3, groups=4, use_cudnn=False),
        [-1, 4, 8, 10],
    ),
    "pool3d": (lambda: layers.pool3d(volume(), 2, "avg", 2), [-1, 2, 2, 3, 4]),
    "pool3d, same": (lambda: layers.pool3d(volume(), 3, "max", 2, "SAME"), [-1, 2, 2, 3, 4]),
    "adaptive_pool3d": (lambda: layers.adaptive_pool3d(volume(), [2, 3, 1], "avg"), [-1, 2, 2, 3, 1]),
    "instance_norm": (lambda: layers.instance_norm(image()), [-1, 4, 6, 8]),
    "group_norm": (lambda: layers.group_norm(image(), 2, act="relu"), [-1, 4, 6, 8]),
    "group_norm, bare": (lambda: layers.group_norm(image(), 4, param_attr=False, bias_attr=False), [-1, 4, 6, 8]),
    "data_norm": (lambda: layers.data_norm(data(5)), [-1, 5]),
    "spectral_norm": (lambda: layers.spectral_norm(layers.create_parameter([3, 2, 4], "float32"), 1, 2), [3, 2, 4]),
    "lrn": (lambda: layers.lrn(image(), 3), [-1, 4, 6, 8]),
    "affine_channel": (lambda: layers.affine_channel(image(), fixed([1, 2, 3, 4]), fixed([0] * 4), act="relu"), [-1, 4, 6, 8]),
    "prelu, all": (lambda: layers.prelu(image(), "all"), [-1, 4, 6, 8]),
    "prelu, channel": (lambda: layers.prelu(image(), "channel"), [-1, 4, 6, 8]),
    "prelu, element": (lambda: layers.prelu(data(5), "element"), [-1, 5]),
    "maxout": (lambda: layers.maxout(image(), 2), [-1, 2, 6, 8]),
    "pixel_shuffle": (lambda: layers.pixel_shuffle(image(), 2), [-1, 1, 12, 16]),
    "shuffle_channel": (lambda: layers.shuffle_channel(image(), 2), [-1, 4, 6, 8]),
    "space_to_depth": (lambda: layers.space_to_depth(image(), 2), [-1, 16, 3, 4]),
    "temporal_shift": (lambda: layers.temporal_shift(image(), 2), [-1, 4, 6, 8]),
    "fsp_matrix": (lambda: layers.fsp_matrix(image(), data(3, 6, 8, name="y")), [-1, 4, 3]),
    "similarity_focus": (lambda: layers.similarity_focus(image(), 1, [0, 2]), [-1, 4, 6, 8]),
    "unfold": (lambda: layers.unfold(image(), [3, 2], 2, 1), [-1, 24, 15]),
    "unfold, padded": (lambda: layers.unfold(image(), 3, paddings=[1, 0]), [-1, 36, 36]),
    "crop": (lambda: layers.crop(image(), [2, 2, 3, 4], [0, 1, 1, 1]), [2, 2, 3, 4]),
    "crop like": (lambda: layers.crop(image(), data(3, 6, 8, name="y")), [-1, 3, 6, 8]),
    "crop_tensor": (lambda: layers.crop_tensor(image(), [-1, 2, 3, 4], [0, 1, 1, 1]), [-1, 2, 3, 4]),
    "crop_tensor by tensors": (
        lambda: layers.crop_tensor(image(), [2, fixed([2], "int32"), 3, 4], fixed([0, 1, 1, 1], "int32")),
        [2, -1, 3, 4],
    ),
    "pad_constant_like": (lambda: layers.pad_constant_like(image(), data(3, 6, 2, name="y"), 1.5), [-1, 4, 6, 8]),
    "random_crop": (lambda: layers.random_crop(image(), [4, 3, 3]), [-1, 4, 3, 3]),
    "random_crop by a seed": (lambda: layers.random_crop(image(), [2, 3, 3], seed=5), [-1, 2, 3, 3]),
    "image_resize": (lambda: layers.image_resize(image(), [3, 5]), [-1, 4, 3, 5]),
    "image_resize by scale": (lambda: layers.image_resize(image(), scale=1.5, resample="BICUBIC"), [-1, 4, 9, 12]),
    "image_resize by tensors": (lambda: layers.image_resize(image(), [3, fixed([5], "int32")]), [-1, 4, -1, -1]),
    "image_resize by a tensor": (lambda: layers.image_resize(image(), fixed([3, 5], "int32")), [-1, 4, -1, -1]),
    "image_resize by a scale": (lambda: layers.image_resize(image(), scale=fixed([2.0])), [-1, 4, -1, -1]),
    "image_resize, actual": (
        lambda: layers.image_resize(image(), [3, 5], actual_shape=fixed([4, 4], "int32")),
        [-1, 4, -1, -1],
    ),
    "image_resize of rows": (lambda: layers.image_resize(data(4, 6), [3], resample="LINEAR", data_format="NCW"), [-1, 4, 3]),
    "image_resize_short": (lambda: layers.image_resize_short(image(), 3), [-1, 4, 3, 4]),
    "resize_bilinear": (lambda: layers.resize_bilinear(image(), [3, 5], data_format="NHWC"), [-1, 3, 5, 8]),
    "resize_trilinear": (lambda: layers.resize_trilinear(volume(), [2, 3, 4]), [-1, 2, 2, 3, 4]),
    "resize_nearest": (lambda: layers.resize_nearest(image(), scale=2.0), [-1, 4, 12, 16]),
    "grid_sampler": (lambda: layers.grid_sampler(image(), data(2, 3, 2, name="y")), [-1, 4, 2, 3]),
    "affine_grid": (lambda: layers.affine_grid(data(2, 3), [2, 1, 3, 4]), [-1, 3, 4, 2]),
    "affine_grid by a tensor": (lambda: layers.affine_grid(data(2, 3), fixed([2, 1, 3, 4], "int32")), [-1, -1, -1, 2]),
}


def run(program: fluid.Program, fetch: list[Any], steps: int = 1) -> list[list[Any]]:
    """The fetches of some steps, fed with random numbers."""
    rng, executor = np.random.default_rng(3), fluid.Executor()
    executor.run(fluid.default_startup_program())
    feed = {
        var.name: rng.random([2 if extent < 0 else extent for extent in var.shape], dtype=np.float32)
        for var in program.global_block().vars.values()
        if var.is_data
    }
    return [executor.run(program, feed, fetch) for _ in range(steps)]


@each("case", LAYERS)
def test_layer(case: str) -> None:
    build, shape = LAYERS[case]
    out = build()
    assert list(out.shape) == shape
    ((value,),) = run(fluid.default_main_program(), [out])
    assert all(extent in (-1, actual) for extent, actual in zip(shape, value.shape, strict=True))
    assert np.isfinite(value).all()


def test_layers_train() -> None:
    """Parameters of all kinds, under layers that only move elements, get gradients."""
    x = image()
    hidden = layers.prelu(layers.conv2d(x, 8, 3, padding=1), "channel")
    hidden = layers.group_norm(layers.shuffle_channel(hidden, 2), 2)
    hidden = layers.lrn(layers.pixel_shuffle(hidden, 2))
    hidden = layers.resize_bilinear(hidden, [6, 8])
    hidden = layers.instance_norm(layers.unsqueeze(hidden, [2]))
    hidden = layers.adaptive_pool3d(layers.conv3d(hidden, 2, 1), [1, 3, 4], "avg")
    loss = layers.reduce_mean(layers.square(layers.reduce_sum(hidden, [1, 2]) - 1.0))
    fluid.optimizer.SGD(0.05).minimize(loss)
    losses = [float(np.ravel(value)[0]) for (value,) in run(fluid.default_main_program(), [loss], 8)]
    assert losses[-1] < 0.8 * losses[0]


@each(("layer", "make"), [(layers.adaptive_pool2d, image), (layers.adaptive_pool3d, volume)])
def test_adaptive_pool_with_index(layer: Any, make: Any) -> None:
    x = make()
    out, index = layer(x, 2, require_index=True)
    ((image_, values, places),) = run(fluid.default_main_program(), [x, out, index])
    flat = image_.reshape(*image_.shape[:2], -1)
    found = np.take_along_axis(flat, places.reshape(*places.shape[:2], -1).astype("int64"), 2)
    assert np.array_equal(found.reshape(values.shape), values)
    assert len(np.unique(places)) > 2


def test_depthwise_layers_make_their_ops() -> None:
    layers.conv2d(image(), 8, 3, groups=4, use_cudnn=False)
    layers.conv2d_transpose(data(4, 3, 3, name="y"), 4, filter_size=3, groups=4, use_cudnn=False)
    layers.conv2d_transpose(data(4, 3, 3, name="z"), 8, filter_size=3, groups=4, use_cudnn=False)
    types = [op.type for op in fluid.default_main_program().global_block().ops if "conv" in op.type]
    assert types == ["depthwise_conv2d", "depthwise_conv2d_transpose", "conv2d_transpose"]


def test_random_crop_by_a_seed_goes_on_from_it() -> None:
    out = layers.random_crop(data(40), [5], seed=5)
    (first,), (second,) = run(fluid.default_main_program(), [out], 2)
    assert not np.array_equal(first, second)
    fluid.default_startup_program()
    with fluid.scope_guard(fluid.Scope()):
        (again,), _ = run(fluid.default_main_program(), [out], 2)
    assert np.array_equal(first, again)


def test_data_norm_has_statistics_of_its_own() -> None:
    x = data(3)
    out = layers.data_norm(x, param_attr={"batch_size": 4.0, "batch_sum": 8.0, "batch_square_sum": 16.0}, name="clicks")
    assert fluid.default_main_program().global_block().var("clicks.batch_square_sum").shape == (3,)
    ((value, normal),) = run(fluid.default_main_program(), [x, out])
    np.testing.assert_allclose(normal, (value - 2) / 2, 1e-6)


ERRORS: dict[str, tuple[Callable[[], Any], type[FluidError], str]] = {
    "conv3d dimensions": (
        lambda: layers.conv3d(image(), 2, 3),
        ProgramError,
        r"5 dimensions \(NCDHW\); x is float32\[-1, 4, 6, 8\]",
    ),
    "conv3d groups": (lambda: layers.conv3d(volume(), 3, 3, groups=2), ProgramError, "2 channels of x and 3 filters .* 2 groups"),
    "conv3d filter_size": (lambda: layers.conv3d(volume(), 3, [3, 3]), ProgramError, "an integer or three of them"),
    "resize of images as of volumes": (
        lambda: layers.resize_bilinear(image(), [3, 5], data_format="NDHWC"),
        ProgramError,
        "x has 4 dimensions, so data_format should be NCHW or NHWC, not 'NDHWC'",
    ),
    "resize of volumes as of images": (
        lambda: layers.image_resize(volume(), [3, 5, 5], resample="TRILINEAR"),
        ProgramError,
        "5 dimensions, so data_format should be NCDHW or NDHWC, not 'NCHW'",
    ),
    "resize data_format": (
        lambda: layers.resize_nearest(image(), [3, 5], data_format="WHCN"),
        ProgramError,
        "should be NCHW or NHWC, not 'WHCN'",
    ),
    "conv3d data_format": (
        lambda: layers.conv3d(volume(), 3, 3, data_format="NCHW"),
        ProgramError,
        "'NCDHW' or 'NDHWC', not 'NCHW'",
    ),
    "conv3d large": (lambda: layers.conv3d(volume(), 3, 9), InferenceError, "should not be larger than the padded Input"),
    "conv3d padding of channels": (
        lambda: layers.conv3d(volume(), 3, 3, padding=[[0, 0], [1, 1], [1, 1], [1, 1], [1, 1]]),
        ProgramError,
        "batch and channels cannot be padded",
    ),
    "conv3d_transpose size": (lambda: layers.conv3d_transpose(volume(), 3), ProgramError, "give filter_size or output_size"),
    "conv3d_transpose output_size": (
        lambda: layers.conv3d_transpose(volume(), 3, [20, 6, 8], 1),
        InferenceError,
        "cannot have an output of size 20: the least possible is",
    ),
    "pool3d size": (lambda: layers.pool3d(volume()), ProgramError, "pool3d: give pool_size"),
    "pool3d large": (
        lambda: layers.pool3d(volume(), 9),
        InferenceError,
        r"pool3d: windows of pool_size \[9, 9, 9\] should not be larger",
    ),
    "adaptive_pool3d index": (
        lambda: layers.adaptive_pool3d(volume(), 2, "avg", True),
        ProgramError,
        "only maxima have an index",
    ),
    "data_norm": (lambda: layers.data_norm(image()), InferenceError, "data_norm: X .* should have 2 dimensions"),
    "lrn": (lambda: layers.lrn(data(4)), InferenceError, "lrn: X .* should have 4 dimensions"),
    "affine_channel": (lambda: layers.affine_channel(image()), ProgramError, "give scale and bias"),
    "affine_channel scale": (
        lambda: layers.affine_channel(image(), fixed([1, 2]), fixed([1, 2])),
        InferenceError,
        r"Scale float32\[2\] should have shape \[4\]",
    ),
    "spectral_norm": (
        lambda: layers.spectral_norm(layers.create_parameter([2, 3], "float32"), -1),
        InferenceError,
        "dim -1 should be an axis of Weight",
    ),
    "prelu mode": (lambda: layers.prelu(image(), "each"), ProgramError, "'all', 'channel' or 'element', not 'each'"),
    "maxout": (lambda: layers.maxout(image(), 3), InferenceError, "number of channels of X .*, 4, cannot be divided by 3"),
    "pixel_shuffle": (lambda: layers.pixel_shuffle(image(), 3), InferenceError, "pixel_shuffle: the number of channels .* by 9"),
    "space_to_depth": (
        lambda: layers.space_to_depth(image(), 4),
        InferenceError,
        "space_to_depth: the number of channels .* by 16",
    ),
    "shuffle_channel": (lambda: layers.shuffle_channel(image(), 3), InferenceError, "cannot be divided by 3"),
    "temporal_shift": (
        lambda: layers.temporal_shift(image(), 2, 0.6),
        InferenceError,
        r"shift_ratio 0.6 should be in \[0, 0.5\]",
    ),
    "fsp_matrix": (
        lambda: layers.fsp_matrix(image(), data(4, 6, 7, name="y")),
        InferenceError,
        r"Y is .* should be float\[N, D, H, W\], where W is 8 as in X",
    ),
    "similarity_focus": (
        lambda: layers.similarity_focus(image(), 1, [4]),
        InferenceError,
        r"indexes \[4\] should be in \[0, 4\)",
    ),
    "unfold": (
        lambda: layers.unfold(image(), 9),
        InferenceError,
        r"unfold: patches of kernel_sizes \[9, 9\] do not fit into images of \[6, 8\]",
    ),
    "unfold paddings": (lambda: layers.unfold(image(), 3, paddings=[1, 2, 3]), ProgramError, "does not have 1 or 2 or 4 items"),
    "crop shape": (lambda: layers.crop(image()), ProgramError, "crop: shape should be a list"),
    "crop beyond": (
        lambda: layers.crop(image(), [1, 4, 6, 8], [0, 1, 0, 0]),
        InferenceError,
        r"crop: shape \[1, 4, 6, 8\] from offsets \[0, 1, 0, 0\] on does not lie within axis 1",
    ),
    "crop offsets": (lambda: layers.crop(image(), [1, 4, 6, 8], [1]), InferenceError, r"offsets \[1\] should be 4 numbers"),
    "crop_tensor": (lambda: layers.crop_tensor(image(), [1, 2]), InferenceError, r"shape \[1, 2\] should have 4 numbers"),
    "pad_constant_like": (
        lambda: layers.pad_constant_like(image(), data(5, 6, 8, name="y")),
        InferenceError,
        "pad_constant_like: Y .* should fit into X",
    ),
    "random_crop": (lambda: layers.random_crop(image(), [5, 3, 3]), InferenceError, r"shape \[5, 3, 3\] should fit into"),
    "random_crop seed": (
        lambda: layers.random_crop(image(), [3, 3], "one"),
        FluidTypeError,
        "random_crop: seed should be an integer or a Variable",
    ),
    "image_resize": (lambda: layers.image_resize(image()), ProgramError, "give out_shape or scale"),
    "image_resize method": (lambda: layers.image_resize(image(), [2, 2], resample="BOX"), ProgramError, "not 'BOX'"),
    "image_resize dimensions": (lambda: layers.resize_trilinear(image(), [2, 2, 2]), ProgramError, "does not resize x, of 4"),
    "image_resize shape": (
        lambda: layers.image_resize(image(), [2]),
        ProgramError,
        r"out_shape should be 2 numbers for x, not \[2\]",
    ),
    "image_resize scale": (lambda: layers.image_resize(image(), scale=0.0), ProgramError, "scale should be above 0"),
    "image_resize align": (lambda: layers.image_resize(image(), [2, 2], align_mode=2), ProgramError, "align_mode 2 0 or 1"),
    "image_resize actual": (lambda: layers.image_resize(image(), [2, 2], actual_shape=[2, 2]), FluidTypeError, "actual_shape"),
    "image_resize to nothing": (lambda: layers.image_resize(image(), [0, 2]), InferenceError, r"\[0, 2\], should be above 0"),
    "image_resize_short": (lambda: layers.image_resize_short(data(3, -1, 4), 2), ProgramError, "images of known size"),
    "grid_sampler": (lambda: layers.grid_sampler(image(), data(2, 3, name="y")), InferenceError, r"of shape \[N, H', W', 2\]"),
    "affine_grid": (lambda: layers.affine_grid(data(3, 3), [1, 1, 2, 2]), InferenceError, r"should have shape \[N, 2, 3\]"),
    "affine_grid shape": (
        lambda: layers.affine_grid(data(2, 3), 4),
        FluidTypeError,
        "out_shape should be a Variable or a list of integers",
    ),
    "affine_grid numbers": (lambda: layers.affine_grid(data(2, 3), [2, 2]), InferenceError, "four numbers, N, C, H and W"),
}


@each("case", ERRORS)
def test_error(case: str) -> None:
    build, kind, message = ERRORS[case]
    with pytest.raises(kind, match=message):
        build()


def add_op(op_type: str, inputs: dict[str, Any], out: str = "Out", **attrs: Any) -> Any:
    block = fluid.default_main_program().global_block()
    made = block.create_var(name="out")
    block.append_op(
        op_type, {slot: fixed(value, str(np.asarray(value).dtype)) for slot, value in inputs.items()}, {out: made}, attrs
    )
    return made


ZEROS = np.zeros((1, 1, 2, 2), "float32")
INDEX = np.zeros((1, 1, 2, 2), "int32")
BUILDING: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "unpool ranks": ("unpool", {"X": ZEROS, "Indices": INDEX[0]}, {"ksize": [2, 2]}, "should have 4 dimensions each"),
    "unpool shapes": ("unpool", {"X": ZEROS, "Indices": INDEX[..., :1]}, {"ksize": [2, 2]}, "should have the same shape"),
    "unpool size": (
        "unpool",
        {"X": ZEROS, "Indices": INDEX},
        {"ksize": [2, 2], "output_size": [4]},
        "does not have 0 or 2 items",
    ),
    "fold ranks": ("fold", {"X": ZEROS}, {"output_sizes": [2, 2], "kernel_sizes": [1, 1]}, "should have 3 dimensions"),
    "fold patches": ("fold", {"X": ZEROS[0]}, {"output_sizes": [2, 2], "kernel_sizes": [1, 1]}, "has 2 patches"),
    "interp layout": ("bilinear_interp", {"X": ZEROS}, {"out_h": 1, "out_w": 1, "data_layout": "NCW"}, "'NCHW' or 'NHWC'"),
    "interp scale": (
        "bilinear_interp_v2",
        {"X": ZEROS, "Scale": np.full(3, 2.0, "float32")},
        {},
        "should be one number, or a number for each",
    ),
    "interp scales": (
        "bilinear_interp_v2",
        {"X": ZEROS},
        {"scale": [2.0, 1.0, 1.0]},
        "should be one number, or a number for each",
    ),
    "interp ranks": ("trilinear_interp", {"X": ZEROS}, {"out_h": 1, "out_w": 1}, "images of 5 dimensions"),
    "prelu alpha": ("prelu", {"X": ZEROS, "Alpha": ZEROS}, {"mode": "channel"}, "should have 1 elements"),
    "prelu mode": ("prelu", {"X": ZEROS, "Alpha": ZEROS}, {"mode": "each"}, "'each' is not 'all' or 'channel' or 'element'"),
}


@each("case", BUILDING)
def test_op_refuses(case: str) -> None:
    op_type, inputs, attrs, message = BUILDING[case]
    with pytest.raises(ProgramError, match=message):
        add_op(op_type, inputs, "Y" if op_type == "fold" else "Out", **attrs)


def test_grid_sampler_refuses_modes() -> None:
    with pytest.raises(InferenceError, match="mode 'cubic' should be 'bilinear' or 'nearest'"):
        add_op("grid_sampler", {"X": ZEROS, "Grid": np.zeros((1, 2, 2, 2), "float32")}, "Output", mode="cubic")
    with pytest.raises(InferenceError, match=r"there are 1 images in .* but 2 grids"):
        add_op("grid_sampler", {"X": ZEROS, "Grid": np.zeros((2, 2, 2, 2), "float32")}, "Output")


def test_running_refuses_what_lies_outside() -> None:
    out = add_op("unpool", {"X": ZEROS, "Indices": INDEX + 99}, ksize=[2, 2], strides=[2, 2])
    with pytest.raises(ExecutionError, match="index 99 lies outside of the output, whose images have 16 elements"):
        run(fluid.default_main_program(), [out])


def test_cropping_refuses_what_lies_outside() -> None:
    out = layers.crop_tensor(data(4), [2, 3], fixed([0, 2], "int32"))
    with pytest.raises(ExecutionError, match=r"3 elements from 2 on do not lie within axis 1 of the shape \[2, 4\]"):
        run(fluid.default_main_program(), [out])

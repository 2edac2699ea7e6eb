"""Ops of images and boxes, read and run beside onnxruntime, beyond what onnx's own cases ask."""

from __future__ import annotations

from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import Checks

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx_running import session_of

import fluid
from fluid.errors import FormatError

RANDOM = np.random.default_rng(11)


def model_of(op_type: str, inputs: dict[str, Any], opset: int = 20, constants: dict[str, Any] | None = None, **attrs: Any) -> Any:
    """A model of one node with one output; the constants are initializers."""
    constants = constants or {}
    node = helper.make_node(op_type, [*inputs, *constants], ["out"], **attrs)
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in inputs.items()]
    kind = TensorProto.INT64 if op_type == "NonMaxSuppression" else TensorProto.FLOAT
    graph = helper.make_graph(
        [node], "one", infos, [helper.make_tensor_value_info("out", kind, None)],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def check(path: Path, model: Any, inputs: dict[str, Any], by_onnxruntime: bool = True) -> None:
    """Beside onnxruntime, or onnx's reference evaluator."""
    onnx.save(model, path)
    loaded = fluid.load_model(path, scope=fluid.Scope())
    (result,) = fluid.Executor().run(loaded.program, feed=inputs, fetch_list=loaded.fetches, scope=loaded.scope)
    (expected,) = (session_of(str(path)) if by_onnxruntime else ReferenceEvaluator(model)).run(None, inputs)
    assert result.dtype == expected.dtype and result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=2e-5)


def test_images_between_their_elements(tmp_path: Path) -> None:
    flat, deep = (RANDOM.standard_normal(shape).astype("float32") for shape in ((2, 3, 5, 4), (2, 2, 3, 4, 5)))
    grids = {4: RANDOM.uniform(-1.7, 1.7, (2, 3, 4, 2)), 5: RANDOM.uniform(-1.7, 1.7, (2, 2, 3, 4, 3))}
    with Checks() as checks:
        for (x, mode), padding, aligned in product(
            ((flat, "cubic"), (deep, "linear")), ("zeros", "border", "reflection"), (0, 1)
        ):
            inputs = {"x": x, "grid": grids[x.ndim].astype("float32")}
            with checks(f"{x.ndim - 2} dimensions, {mode}, {padding}, {aligned}"):
                model = model_of("GridSample", inputs, mode=mode, padding_mode=padding, align_corners=aligned)
                check(tmp_path / "m.onnx", model, inputs)


def test_patches_of_volumes_and_lines(tmp_path: Path) -> None:
    """onnxruntime 1.32 differs from the reference evaluator, and from loops, for volumes with dilations."""
    how = {"strides": [2, 1, 1], "dilations": [1, 2, 1], "pads": [1, 0, 0, 0, 1, 2]}
    for size, block in (([7], [3]), ([4, 5, 4], [2, 2, 3])):
        count = len(size)
        attrs = {
            name: values[:count] if name != "pads" else [*values[:count], *values[3 : 3 + count]] for name, values in how.items()
        }
        places = [
            (extent + attrs["pads"][axis] + attrs["pads"][axis + count] - attrs["dilations"][axis] * (side - 1) - 1)
            // attrs["strides"][axis] + 1
            for axis, (extent, side) in enumerate(zip(size, block, strict=True))
        ]  # fmt: skip
        inputs = {"x": RANDOM.standard_normal((2, 3 * prod(block), prod(places))).astype("float32")}
        constants = {"size": np.array(size, "int64"), "block": np.array(block, "int64")}
        model = model_of("Col2Im", inputs, constants=constants, **attrs)
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
        check(tmp_path / "m.onnx", model, inputs, by_onnxruntime=False)


def test_greatest_elements_of_regions(tmp_path: Path) -> None:
    rois = np.array([[1, 0, 0, 9, 7], [0, 2, 3, 8, 6], [1, 4, 4, 4, 4], [0, 0, 0, 20, 20]], "float32")
    inputs = {"x": RANDOM.standard_normal((2, 3, 8, 10)).astype("float32"), "rois": rois}
    model = model_of("MaxRoiPool", inputs, pooled_shape=[3, 2], spatial_scale=0.5)
    check(tmp_path / "m.onnx", model, inputs)
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "count"
    check(tmp_path / "m.onnx", model, inputs)


@pytest.mark.filterwarnings("ignore")
def test_points_of_regions(tmp_path: Path) -> None:
    """Their mean, also of about one an element, or the greatest; of images whose elements are all negative, too. Some lie
    outside."""
    rois = np.array([[0.3, 0.7, 9.1, 7.9], [-9, -3, 5, 5], [4, 4, 4, 4], [6, 2, 30, 20], [-9, -9, -7, -7]], "float32")
    positive = RANDOM.uniform(0.1, 1, (2, 3, 8, 10)).astype("float32")
    images = np.array([1, 0, 1, 0, 0], "int64")
    shared: dict[str, Any] = {"output_height": 3, "output_width": 2, "spatial_scale": 0.7}
    with Checks() as checks:
        for x, mode, ratio, moved, unknown in product(
            (positive, -positive), ("avg", "max"), (0, 1, 2), ("half_pixel", "output_half_pixel"), (False, True)
        ):
            inputs = {"x": x, "rois": rois, "images": images}
            if mode == "max" and ratio == 0:
                continue
            with checks(f"{mode}, {ratio}, {moved}, {unknown}, {x.max() > 0}"):
                how = {**shared, "mode": mode, "sampling_ratio": ratio, "coordinate_transformation_mode": moved}
                model = model_of("RoiAlign", inputs, **how)
                for info in model.graph.input if unknown else ():
                    for axis, dim in enumerate(info.type.tensor_type.shape.dim):
                        if axis == 0 or (info.name == "x" and axis > 1 and mode == "avg"):
                            dim.dim_param = f"{info.name}_{axis}"
                check(tmp_path / "m.onnx", model, inputs)
    onnx.save(model_of("RoiAlign", inputs, mode="max"), tmp_path / "m.onnx")
    with pytest.raises(FormatError, match="sampling_ratio should be above 0"):
        fluid.load_model(tmp_path / "m.onnx")


def test_boxes_that_are_kept(tmp_path: Path) -> None:
    corners = RANDOM.uniform(0, 8, (2, 30, 2))
    boxes = np.concatenate([corners, corners + RANDOM.uniform(1, 5, corners.shape)], 2).astype("float32")
    inputs = {"boxes": boxes, "scores": RANDOM.permutation(2 * 4 * 30).reshape(2, 4, 30).astype("float32") / 240}
    limits = {"most": np.int64([3]), "overlap": np.float32([0.4]), "least": np.float32([0.2])}
    for center in (0, 1):
        model = model_of("NonMaxSuppression", inputs, constants=limits, center_point_box=center)
        check(tmp_path / "m.onnx", model, inputs)


def test_n_grams_of_a_senseless_pool(tmp_path: Path) -> None:
    inputs = {"x": np.array([[1, 2, 3]], "int64")}
    attrs: dict[str, Any] = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0}
    for pool, starts, columns, message in (
        ([1, 2, 3], [0, 2], [0, 1, 2], "where in pool_int64s"),
        ([1, 2, 2, 3], [0, 2], [0, 1], "name 2 columns, and its pool has 3"),
        ([1, 2, 2, 3], [0, 2], [0, 1, 1 << 40], "go up to"),
    ):
        model = model_of("TfIdfVectorizer", inputs, ngram_counts=starts, ngram_indexes=columns, pool_int64s=pool, **attrs)
        onnx.save(model, tmp_path / "m.onnx")
        with pytest.raises(FormatError, match=message):
            fluid.load_model(tmp_path / "m.onnx")


def _resized_as_torch_does(of: str) -> Any:
    """A model that resizes `y` as torch writes it: batch and channels are a tensor's sizes, the other sizes are constants."""
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Shape", [of], ["shape"]),
        helper.make_node("Slice", ["shape", "zero", "two", "zero"], ["first"]),
        helper.make_node("Concat", ["first", "pixels"], ["sizes"], axis=0),
        helper.make_node("Resize", ["y", "", "", "sizes"], ["out"], mode="linear", coordinate_transformation_mode="half_pixel"),
    ]
    constants = {"zero": [0], "two": [2], "pixels": [6, 7]}
    graph = helper.make_graph(
        nodes, "resized", [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2, 4, 5]) for name in ("x", "other")],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.array(value), name) for name, value in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_images_of_any_batch_are_resized(tmp_path: Path) -> None:
    inputs = {name: RANDOM.standard_normal((3, 2, 4, 5)).astype("float32") for name in ("x", "other")}
    check(tmp_path / "resized.onnx", _resized_as_torch_does("y"), inputs)

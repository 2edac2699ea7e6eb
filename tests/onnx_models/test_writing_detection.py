"""Object detection as ONNX models: an SSD, trained and looking for boxes, in onnxruntime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_running import run_program, session_of

import fluid
from fluid import layers
from fluid.opdef.registry import get

pytestmark = pytest.mark.numpy_alone

SIZE = 24


def ssd() -> tuple[Any, ...]:
    image = fluid.data("image", [None, 3, SIZE, SIZE])
    first = layers.conv2d(image, 4, 3, stride=4, padding=1, act="relu")
    second = layers.conv2d(first, 6, 3, stride=2, padding=1, act="relu")
    more: dict[str, Any] = {"min_sizes": [5.0, 10.0], "max_sizes": [10.0, 16.0], "flip": True}
    return layers.multi_box_head(
        [first, second], image, base_size=SIZE, num_classes=3, aspect_ratios=[[1.5]] * 2, kernel_size=3, pad=1, **more
    )


def batch(random: Any) -> dict[str, Any]:
    counts = random.integers(1, 3, 3)
    corners = random.uniform(0, 0.5, (counts.sum(), 2))
    offsets = [[0, *np.cumsum(counts).tolist()]]
    return {
        "image": random.standard_normal((3, 3, SIZE, SIZE)).astype("float32"),
        "box": (np.concatenate([corners, corners + random.uniform(0.2, 0.5, corners.shape)], 1).astype("float32"), offsets),
        "label": (random.integers(1, 3, (counts.sum(), 1)).astype("int32"), offsets),
    }


def test_boxes_that_are_found(tmp_path: Path) -> None:
    """Detection for any number of images; the lengths beside the rows give the detections of each image."""
    detections = layers.detection_output(*ssd(), nms_threshold=0.3, score_threshold=0.05, keep_top_k=20)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    path = str(tmp_path / "ssd.onnx")
    fluid.save_model(path, feeds=["image"], fetches=[detections])
    for images in (1, 3):
        image = batch(np.random.default_rng(images))["image"][:images]
        (expected,) = executor.run(feed={"image": image}, fetch_list=[detections], return_numpy=False)
        rows, lengths = session_of(path).run([detections.name, f"{detections.name}.lengths"], {"image": image})
        np.testing.assert_allclose(rows, np.asarray(expected), 1e-5, 1e-6)
        assert lengths.tolist() == expected.recursive_sequence_lengths()[0] and max(lengths) <= 20


def test_training(tmp_path: Path) -> None:
    box = fluid.data("box", [None, 4], lod_level=1)
    label = fluid.data("label", [None, 1], "int32", lod_level=1)
    location, confidence, prior, variance = ssd()
    loss = layers.reduce_sum(layers.ssd_loss(location, confidence, box, label, prior, variance))
    fluid.optimizer.SGD(0.01).minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    path = str(tmp_path / "train.onnx")
    fluid.save_model(path, fluid.default_main_program())
    session, state = session_of(path), {}
    updated = json.loads(session.get_modelmeta().custom_metadata_map["fluid.updated"])
    random = np.random.default_rng(3)
    for _ in range(3):
        feed = batch(random)
        fed: dict[str, Any] = {"image": feed["image"], **state}
        for name in ("box", "label"):
            fed[name], fed[f"{name}.lengths"] = feed[name][0], np.diff(np.array(feed[name][1][0], "int64"))
        (expected,) = executor.run(feed=feed, fetch_list=[loss])
        names = [loss.name, *updated.values()]
        results = dict(zip(names, session.run(names, fed), strict=True))
        np.testing.assert_allclose(results[loss.name], expected, 1e-5)
        state = {name: results[output] for name, output in updated.items()}
    for name, value in state.items():
        np.testing.assert_allclose(value, fluid.global_scope().array(name), 1e-4, 1e-6, err_msg=name)


def boxes(random: Any, count: int) -> Any:
    corners = random.uniform(0, 24, (count, 2))
    return np.concatenate([corners, corners + random.uniform(4, 16, (count, 2))], 1).astype("float32")


def test_targets_of_images_without_objects() -> None:
    """Of three images, one has no object, one has only a crowd; and one has no region except its objects."""
    random, block = np.random.default_rng(5), fluid.default_main_program().global_block()
    objects, regions = ((0, 0, 2, 3),), ((0, 4, 4, 9),)
    rows = {
        "Anchor": (boxes(random, 9), None),
        "GtBoxes": (boxes(random, 3), objects),
        "IsCrowd": (np.array([[0], [0], [1]], "int32"), objects),
        "GtLabels": (np.array([[2], [1], [1]], "int32"), objects),
        "RpnRois": (boxes(random, 9), regions),
        "ImInfo": (np.array([[40.0, 40.0, 1.0], [30.0, 40.0, 0.8], [40.0, 30.0, 1.5]], "float32"), None),
    }
    variables = {
        name: block.create_var(
            name=name, shape=(-1, *value.shape[1:]), dtype=value.dtype, lod_level=int(lod is not None), is_data=True
        )
        for name, (value, lod) in rows.items()
    }
    fed = {name: value if lod is None else (value, [list(lod[0])]) for name, (value, lod) in rows.items()}
    shared = {"use_random": False}
    anchors = {"rpn_batch_size_per_im": 6, "rpn_straddle_thresh": -1.0, "rpn_positive_overlap": 0.4, "rpn_negative_overlap": 0.9,
               "rpn_fg_fraction": 0.5, **shared}  # fmt: skip
    proposals = {"batch_size_per_im": 6, "fg_fraction": 0.5, "fg_thresh": 0.3, "bg_thresh_hi": 0.3, "bg_thresh_lo": 0.0,
                 "bbox_reg_weights": [0.1, 0.1, 0.2, 0.2], "class_nums": 3, **shared}  # fmt: skip
    labelled = {**variables, "GtClasses": variables["GtLabels"]}
    names = []
    for op_type, attrs in (
        ("rpn_target_assign", anchors),
        ("retinanet_target_assign", {"positive_overlap": 0.4, "negative_overlap": 0.9}),
        ("generate_proposal_labels", proposals),
    ):
        definition = get(op_type)
        outputs = {slot: block.create_var(name=f"{op_type}.{slot}") for slot in definition.outputs}
        block.append_op(op_type, {slot: labelled[slot] for slot in definition.required}, outputs, attrs)
        names += [var.name for var in outputs.values()]
    program = fluid.default_main_program()
    expected = fluid.Executor().run(program, fed, names, return_numpy=False)
    for name, value, result in zip(names, expected, run_program(program, fed, names), strict=True):
        array = np.asarray(getattr(value, "array", value))
        assert result.shape == array.shape and result.dtype == array.dtype, name
        np.testing.assert_allclose(result, array, 1e-5, 1e-5, err_msg=name)

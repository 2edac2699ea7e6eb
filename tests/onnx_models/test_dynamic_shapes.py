"""ONNX models with sizes known only at run time, or that compute sizes from sizes, give onnxruntime's values, in native code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import fluid
from fluid.errors import FluidError, FormatError, InferenceError, NameNotFoundError

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
node = helper.make_node
RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


def saved(
    path: Path, nodes: list[Any], inputs: dict[str, list[Any]], outputs: list[str], arrays: dict[str, Any], opset: int = 18
) -> Path:
    """A model's file. Inputs are name -> shape, of int64 where the name begins with ``n_``; arrays are initializers."""
    kind = {name: INT64 if name.startswith("n_") else FLOAT for name in inputs}
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, kind[name], shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in arrays.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)
    return path


def check(path: Path, *feeds: dict[str, Any], has_native_plan: bool = True) -> Any:
    """Compare runs with onnxruntime's; no op may run step by step. Returns the loaded model."""
    model = fluid.load_model(path, scope=fluid.Scope())
    session = onnxruntime.InferenceSession(path)
    executor = fluid.Executor()
    for feed in feeds:
        results = executor.run(model.program, feed, model.fetches, scope=model.scope)
        for result, wanted in zip(results, session.run(None, feed), strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)
            assert result.shape == wanted.shape and result.dtype == wanted.dtype
        plan: Any = executor.plan(model.program, feed, model.fetches, model.scope)
        if has_native_plan:
            assert not [item.op.type for item in plan.instructions if getattr(item, "dynamic", False)]
    return model


def sizes_of(name: str, first: int, last: int) -> list[Any]:
    """Nodes that make ``{name}.sizes``: the sizes of some axes of a value, counted by `first` and `last`."""
    return [
        node("Shape", [name], [f"{name}.shape"]),
        node("Slice", [f"{name}.shape", f"c{first}", f"c{last}"], [f"{name}.sizes"]),
    ]


COUNTS = {f"c{number}": np.array([number]) for number in range(5)}


@pytest.mark.parametrize(
    ("mode", "transformation"),
    [("nearest", "asymmetric"), ("nearest", "half_pixel"), ("linear", "pytorch_half_pixel"), ("cubic", "half_pixel_symmetric")],
)
def test_images_of_unknown_sizes_are_resized_by_scales(tmp_path: Path, mode: str, transformation: str) -> None:
    attrs = {"mode": mode, "coordinate_transformation_mode": transformation}
    resize = node("Resize", ["x", "", "scales"], ["y"], **attrs, **({"exclude_outside": 1} if mode == "cubic" else {}))
    scales = {"scales": np.array([1, 1, 1.7, 0.6], np.float32)}
    path = saved(tmp_path / "m.onnx", [resize], {"x": ["n", "c", "h", "w"]}, ["y"], scales, opset=19)
    check(path, {"x": floats(1, 3, 5, 6)}, {"x": floats(2, 3, 1, 4)})


@pytest.mark.parametrize("exclude_outside", [0, 1])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_images_of_unknown_sizes_are_reduced_without_aliasing(tmp_path: Path, mode: str, exclude_outside: int) -> None:
    resize = node("Resize", ["x", "", "scales"], ["y"], mode=mode, antialias=1, exclude_outside=exclude_outside)
    scales = {"scales": np.array([1, 1, 0.4, 0.25], np.float32)}
    results = []
    for sizes in ([3, 20, 16], ["c", "h", "w"]):
        path = saved(tmp_path / "m.onnx", [resize], {"x": [2, *sizes]}, ["y"], scales, opset=19)
        model = fluid.load_model(path, scope=fluid.Scope())
        x = np.random.default_rng(0).standard_normal((2, 3, 20, 16)).astype(np.float32)
        results += fluid.Executor().run(model.program, {"x": x}, model.fetches, scope=model.scope)
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-6)
    (expected,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    np.testing.assert_allclose(results[1], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_images_of_unknown_sizes_keep_their_ratio(tmp_path: Path, policy: str) -> None:
    resize = node(
        "Resize", ["x", "", "", "sizes"], ["y"], mode="nearest", axes=[2, 3], keep_aspect_ratio_policy=policy,
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    )  # fmt: skip
    path = saved(tmp_path / "m.onnx", [resize], {"x": ["n", 3, "h", "w"]}, ["y"], {"sizes": np.array([6, 9])}, opset=19)
    check(path, {"x": floats(1, 3, 4, 3)}, {"x": floats(1, 3, 2, 9)}, {"x": floats(1, 3, 6, 9)})


def test_corners_are_aligned_in_images_of_unknown_sizes(tmp_path: Path) -> None:
    resize = node("Resize", ["x", "", "scales"], ["y"], mode="linear", coordinate_transformation_mode="align_corners")
    scales = {"scales": np.array([1, 1, 2, 3], np.float32)}
    path = saved(tmp_path / "m.onnx", [resize], {"x": ["n", "c", "h", "w"]}, ["y"], scales)
    check(path, {"x": floats(1, 3, 5, 6)}, {"x": floats(2, 3, 1, 4)})


def test_images_are_resized_to_the_size_of_others(tmp_path: Path) -> None:
    nodes = [
        *sizes_of("like", 2, 4),
        *sizes_of("x", 0, 2),
        node("Concat", ["x.sizes", "like.sizes"], ["sizes"], axis=0),
        node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear"),
    ]
    path = saved(tmp_path / "m.onnx", nodes, {"x": ["n", 3, "h", "w"], "like": ["n", 3, "H", "W"]}, ["y"], COUNTS)
    check(path, {"x": floats(2, 3, 5, 6), "like": floats(2, 3, 9, 13)}, {"x": floats(1, 3, 4, 4), "like": floats(1, 3, 2, 2)})


def test_images_are_resized_by_computed_scales(tmp_path: Path) -> None:
    nodes = [
        *sizes_of("like", 2, 4),
        *sizes_of("x", 2, 4),
        *(node("Cast", [f"{name}.sizes"], [f"{name}.floats"], to=1) for name in ("like", "x")),
        node("Div", ["like.floats", "x.floats"], ["ratio"]),
        node("Concat", ["ones", "ratio"], ["scales"], axis=0),
        node("Resize", ["x", "", "scales"], ["y"], mode="linear"),
    ]
    arrays = {**COUNTS, "ones": np.ones(2, np.float32)}
    path = saved(tmp_path / "m.onnx", nodes, {"x": ["n", 3, "h", "w"], "like": ["n", 3, "H", "W"]}, ["y"], arrays)
    check(path, {"x": floats(2, 3, 5, 6), "like": floats(2, 3, 9, 13)})


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
def test_convolutions_that_keep_unknown_sizes(tmp_path: Path, auto: str) -> None:
    conv = node("Conv", ["x", "w"], ["y"], auto_pad=auto, strides=[2, 1])
    path = saved(tmp_path / "m.onnx", [conv], {"x": ["n", 3, "h", "w"]}, ["y"], {"w": floats(4, 3, 3, 2)})
    check(path, {"x": floats(2, 3, 7, 8)}, {"x": floats(1, 3, 8, 9)})


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
def test_dilated_convolutions_of_unknown_sizes_are_those_of_known_sizes(tmp_path: Path, auto: str) -> None:
    """onnxruntime refuses dilations with auto_pad."""
    conv, weights = node("Conv", ["x", "w"], ["y"], auto_pad=auto, dilations=[2, 1]), {"w": floats(4, 3, 3, 2)}
    results = []
    for sizes in ([7, 8], ["h", "w"]):
        path = saved(tmp_path / "m.onnx", [conv], {"x": [2, 3, *sizes]}, ["y"], weights)
        model = fluid.load_model(path, scope=fluid.Scope())
        images = np.arange(2 * 3 * 7 * 8, dtype=np.float32).reshape(2, 3, 7, 8) / 100
        results += fluid.Executor().run(model.program, {"x": images}, model.fetches, scope=model.scope)
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("rank", [1, 2])
def test_pools_that_keep_unknown_sizes(tmp_path: Path, auto: str, op_type: str, rank: int) -> None:
    pool = node(op_type, ["x"], ["y"], auto_pad=auto, strides=[2] * rank, kernel_shape=[3] * rank)
    path = saved(tmp_path / "m.onnx", [pool, node("Relu", ["x"], ["z"])], {"x": ["n", 3, *"hw"[:rank]]}, ["y", "z"], {})
    check(path, {"x": floats(2, 3, *(7, 8)[:rank])}, {"x": -1 - np.abs(floats(1, 3, *(4, 9)[:rank]))})


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pads_that_are_computed(tmp_path: Path, mode: str) -> None:
    """Images are padded at the end to a multiple of 4."""
    nodes = [
        *sizes_of("x", 2, 3),
        node("Mod", ["x.sizes", "c4"], ["rest"]),
        node("Sub", ["c4", "rest"], ["missing"]),
        node("Concat", ["zeros", "missing", "c1"], ["pads"], axis=0),
        node("Pad", ["x", "pads"], ["y"], mode=mode),
    ]
    path = saved(tmp_path / "m.onnx", nodes, {"x": ["n", 3, "h", "w"]}, ["y"], {**COUNTS, "zeros": np.zeros(6, int)}, opset=19)
    check(path, {"x": floats(1, 3, 6, 5)}, {"x": floats(2, 3, 7, 5)})


def test_pads_that_are_fed(tmp_path: Path) -> None:
    nodes = [node("Pad", ["x", "n_pads", "value"], ["y"]), node("Relu", ["y"], ["z"])]
    path = saved(tmp_path / "m.onnx", nodes, {"x": ["n", 3, "h"], "n_pads": [6]}, ["y", "z"], {"value": np.float32(2.5)})
    for pads in ([0, 0, 1, 0, 0, 2], [0, 1, 1, 0, 0, 2], [0, -1, 1, 0, 0, -2]):
        check(path, {"x": floats(1, 3, 6), "n_pads": np.array(pads)})


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_updates_of_an_unknown_number_are_scattered(tmp_path: Path, reduction: str) -> None:
    nodes = [
        node("ScatterElements", ["x", "n_places", "updates"], ["y"], reduction=reduction),
        node("ScatterND", ["x", "n_pairs", "numbers"], ["z"], reduction=reduction),
    ]
    inputs = {"x": ["n", "t"], "n_places": ["k", "t"], "updates": ["k", "t"], "n_pairs": ["m", 2], "numbers": ["m"]}
    path = saved(tmp_path / "m.onnx", nodes, inputs, ["y", "z"], {})
    count = 2 if reduction == "none" else 300
    places = np.array([[0] * 5, [2] * 5]) if reduction == "none" else RANDOM.integers(0, 4, (300, 5))
    pairs = np.array([[0, 1], [3, -1]]) if reduction == "none" else RANDOM.integers(-4, 4, (300, 2))
    check(path, {"x": floats(4, 5), "n_places": places, "updates": 1 + floats(count, 5) / 9, "n_pairs": pairs,
                 "numbers": 1 + floats(count) / 9}, has_native_plan=False)  # fmt: skip


def test_nodes_in_any_order(tmp_path: Path) -> None:
    branch = helper.make_graph([node("Neg", ["late"], ["t"])], "then", [], [helper.make_tensor_value_info("t", FLOAT, None)])
    other = helper.make_graph([node("Abs", ["late"], ["e"])], "else", [], [helper.make_tensor_value_info("e", FLOAT, None)])
    nodes = [
        node("If", ["is_one"], ["y"], then_branch=branch, else_branch=other),
        node("Equal", ["n_k", "one"], ["is_one"]),
        node("Relu", ["first"], ["late"]),
        node("Sub", ["x", "half"], ["first"]),
    ]
    path = saved(tmp_path / "m.onnx", nodes, {"x": ["n", 3], "n_k": []}, ["y"], {"one": np.int64(1), "half": np.float32(0.5)})
    check(path, {"x": floats(2, 3), "n_k": np.array(1)}, {"x": floats(2, 3), "n_k": np.array(2)})


def test_large_tensors_that_say_that_they_are_in_the_file(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", [node("Add", ["x", "w"], ["y"])], {"x": ["n", 3000]}, ["y"], {"w": floats(3000)})
    model = onnx.load(path)
    model.graph.initializer[0].data_location = TensorProto.DEFAULT
    onnx.save(model, path)
    assert model.graph.initializer[0].HasField("data_location")
    check(path, {"x": floats(2, 3000)})


def test_a_scale_in_the_scope_that_changes_decides_again(tmp_path: Path) -> None:
    """Plans know numbers of the scope that decide sizes; another number is another plan, even if it is written in place."""
    nodes = [
        node("Concat", ["ones", "factors"], ["scales"], axis=0),
        node("Resize", ["x", "", "scales"], ["y"], mode="nearest", coordinate_transformation_mode="asymmetric"),
    ]
    arrays = {"ones": np.ones(2, np.float32), "factors": np.full(2, 2.0, np.float32)}
    model = fluid.load_model(saved(tmp_path / "m.onnx", nodes, {"x": ["n", 3, "h", "w"]}, ["y"], arrays), scope=fluid.Scope())
    executor, feed = fluid.Executor(), {"x": floats(1, 3, 4, 5)}
    run = lambda: executor.run(model.program, feed, model.fetches, scope=model.scope)[0].shape
    assert run() == (1, 3, 8, 10) == run()
    model.scope.var("factors").get_tensor().set(np.full(2, 3.0, np.float32), fluid.CPUPlace())
    assert run() == (1, 3, 12, 15) == run()
    np.asarray(model.scope.array("factors"))[...] = 4
    assert run() == (1, 3, 16, 20) == run()


def squeezed_or_not(path: Path) -> Path:
    """A model that drops the first axis of `x` where it has one element, as torch writes ``x.squeeze(0)``, and sums it up."""
    info = lambda name: [helper.make_tensor_value_info(name, FLOAT, None)]
    dropped = helper.make_graph([node("Squeeze", ["x", "first"], ["t"])], "then", [], info("t"))
    same = helper.make_graph([node("Identity", ["x"], ["e"])], "else", [], info("e"))
    nodes = [
        *sizes_of("x", 0, 1),
        node("Equal", ["x.sizes", "one"], ["is_one"]),
        node("If", ["is_one"], ["squeezed"], then_branch=dropped, else_branch=same),
        node("MatMul", ["squeezed", "w"], ["product"]),
        node("ReduceSum", ["product"], ["y"], keepdims=0),
    ]
    arrays = {**COUNTS, "first": np.array([0]), "one": np.array([1]), "w": floats(4, 4)}
    return saved(path, nodes, {"x": ["n", 4]}, ["y"], arrays)


def test_branches_of_different_ranks(tmp_path: Path) -> None:
    """What follows the branches becomes part of both; a plan, which knows the sizes, runs one of them in native code."""
    model = check(squeezed_or_not(tmp_path / "m.onnx"), {"x": floats(1, 4)}, {"x": floats(3, 4)})
    plan: Any = fluid.Executor().plan(model.program, {"x": floats(3, 4)}, model.fetches, model.scope)
    assert [op.type for op in plan.ops if "block" in op.type] == []


def test_sizes_decide_branches_when_a_model_is_loaded(tmp_path: Path) -> None:
    path = squeezed_or_not(tmp_path / "m.onnx")
    for sizes in ({"n": 1}, {"x": [1, None]}, {"x": [1, 4]}):
        model = fluid.load_model(path, scope=fluid.Scope(), sizes=sizes)
        assert len(model.program.blocks) == 1 and model.dimensions == {"x": [1, 4]}
    x = floats(1, 4)
    (result,) = fluid.Executor().run(model.program, {"x": x}, model.fetches, scope=model.scope)
    np.testing.assert_allclose(result, onnxruntime.InferenceSession(path).run(None, {"x": x})[0], rtol=1e-5)
    with pytest.raises(NameNotFoundError, match="no input and no dimension is called 'm'"):
        fluid.load_model(path, scope=fluid.Scope(), sizes={"m": 1})
    with pytest.raises(InferenceError, match="do not fit the input 'x'"):
        fluid.load_model(path, scope=fluid.Scope(), sizes={"x": [1, 5]})


@pytest.mark.parametrize("is_swapped", [False, True])
def test_a_branch_that_no_node_can_follow(is_swapped: bool, tmp_path: Path) -> None:
    """As in Silero's voice detector, whose recurrence takes rows of the squeezed branch alone: a run must take the other."""
    path = squeezed_or_not(tmp_path / "m.onnx")
    model = onnx.load(path)
    graph = model.graph
    if is_swapped:
        branch = next(item for item in graph.node if item.op_type == "If")
        graph.node.insert(list(graph.node).index(branch), node("Not", ["is_one"], ["is_many"]))
        branch.input[0] = "is_many"
        first, second = branch.attribute
        first.name, second.name = second.name, first.name
    product = next(item for item in graph.node if item.op_type == "MatMul")
    graph.node.insert(list(graph.node).index(product), node("Transpose", ["squeezed"], ["turned"], perm=[0]))
    product.input[0] = "turned"
    onnx.save(model, path)
    model = check(path, {"x": floats(1, 4)})
    plan: Any = fluid.Executor().plan(model.program, {"x": floats(1, 4)}, model.fetches, model.scope)
    assert {op.type for op in plan.ops} & {"assert", "conditional_block"} == set()
    with pytest.raises(FluidError, match=r"axes \[0\] of X float32\[3, 4\] should have size 1"):
        fluid.Executor().run(model.program, {"x": floats(3, 4)}, model.fetches, scope=model.scope)


def test_outputs_of_different_ranks_ask_for_sizes(tmp_path: Path) -> None:
    path = squeezed_or_not(tmp_path / "m.onnx")
    model = onnx.load(path)
    model.graph.output[0].name = "product"
    onnx.save(model, path)
    with pytest.raises(FormatError, match=r"give load_model the sizes of inputs, sizes=\{"):
        fluid.load_model(path, scope=fluid.Scope())
    assert fluid.load_model(path, scope=fluid.Scope(), sizes={"n": 1}).fetches[0].shape == (4,)


IMAGES = {"x": ["n", 3, "h", "w"]}
FILTER = {"w": np.ones((3, 2, 3, 3), np.float32)}
CROPPED = {"scales": np.array([1, 1, 0.5, 0.5], np.float32), "roi": np.array([0, 0, 0, 0, 1, 1, 1, 1], np.float32)}
REFUSED = {
    "tf_crop_and_resize": (
        node("Resize", ["x", "roi", "scales"], ["y"], mode="linear", coordinate_transformation_mode="tf_crop_and_resize"),
        IMAGES,
        CROPPED,
        "'tf_crop_and_resize' is not supported for images whose size",
    ),
    "output_shape": (node("ConvTranspose", ["x", "w"], ["y"], output_shape=[8, 8]), IMAGES, FILTER, "output_shape and auto_pad"),
    "auto_pad": (node("ConvTranspose", ["x", "w"], ["y"], auto_pad="SAME_UPPER"), IMAGES, FILTER, "output_shape and auto_pad"),
    "boxes": (
        node("NonMaxSuppression", ["b", "x"], ["y"]),
        {"b": [1, "n", 4], "x": [1, 2, "n"]},
        {},
        "numbers of boxes and classes",
    ),
}
"""What docs/model_files.md lists: the node, the shapes of inputs, arrays, and the error."""


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_is_still_refused(name: str, tmp_path: Path) -> None:
    refused, inputs, arrays, why = REFUSED[name]
    path = saved(tmp_path / "m.onnx", [refused], inputs, ["y"], arrays)
    with pytest.raises(FormatError, match=why):
        fluid.load_model(path, scope=fluid.Scope())

"""`unpool` to a size that only a run tells, which Paddle 2 names in an attribute and Paddle 3 gives as an operand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import layers
from fluid.proto import ProgramDesc

VAR, VARS = 13, 14


def unpooled(joined: bool) -> tuple[Any, Any]:
    """Maxima of windows of 2 by 2, put back where they were in an image of the size of the input, times a weight."""
    x = fluid.data("x", [None, 2, None, None])
    root = fluid.default_main_program().global_block()
    f = fluid.framework.BuildNamespace(root)
    weight = layers.create_parameter([1], "float32", name="w", default_initializer=fluid.initializer.Constant(2.0))
    maxima, places = f.max_pool2d_with_index(x * weight, ksize=[2, 2], strides=[2, 2], paddings=[0, 0])
    sizes = layers.slice(layers.shape(x), axes=[0], starts=[2], ends=[4])
    parts = [sizes] if joined else [layers.slice(sizes, axes=[0], starts=[n], ends=[n + 1]) for n in (0, 1)]
    return x, f.unpool(maxima, places, parts, ksize=[2, 2], strides=[2, 2])


def expected(x: Any) -> Any:
    result = np.zeros_like(x)
    for n, c, row, column in np.ndindex(*x.shape[:2], x.shape[2] // 2, x.shape[3] // 2):
        window = (n, c, slice(2 * row, 2 * row + 2), slice(2 * column, 2 * column + 2))
        result[window] = np.where(x[window] == x[window].max(), 2 * x[window], 0)
    return result


@each("joined", [True, False])
@each("file_name", ["net.pdmodel", "net.json"])
def test_the_sizes_go_into_files_and_come_back(tmp_path: Path, file_name: str, joined: bool) -> None:
    x, out = unpooled(joined)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    fluid.save_model(tmp_path / file_name, fluid.default_main_program(), [x], [out])
    if file_name == "net.pdmodel":
        desc = ProgramDesc.FromString((tmp_path / file_name).read_bytes())
        (op,) = [op for op in desc.blocks[0].ops if op.type == b"unpool"]
        assert [attr.type for attr in op.attrs if attr.name == b"output_size"] == [VAR if joined else VARS]
        assert {slot.parameter for slot in op.inputs} == {b"X", b"Indices"}
    model = fluid.load_model(tmp_path / file_name, scope=fluid.Scope())
    random = np.random.default_rng(0)
    for sizes in ((1, 2, 5, 7), (3, 2, 4, 2)):
        value = random.standard_normal(sizes).astype("float32")
        (result,) = executor.run(model.program, {"x": value}, model.fetches, scope=model.scope)
        np.testing.assert_allclose(result, expected(value), rtol=1e-6)
    model.program.make_trainable(scope=model.scope)
    with fluid.program_guard(model.program, fluid.Program()):
        loss = layers.reduce_sum(model.program.global_block().var(model.fetches[0].name))
        ((parameter, gradient),) = fluid.append_backward(loss)
    (got,) = executor.run(model.program, {"x": value}, [gradient], scope=model.scope)
    assert parameter.name == "w"
    np.testing.assert_allclose(got, [expected(value).sum() / 2], rtol=1e-5)


@each("joined", [True, False])
def test_the_sizes_are_computed_in_onnx(tmp_path: Path, joined: bool) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    x, out = unpooled(joined)
    fluid.Executor().run(fluid.default_startup_program())
    fluid.save_model(tmp_path / "net.onnx", fluid.default_main_program(), [x], [out])
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    for sizes in ((1, 2, 5, 7), (3, 2, 4, 2)):
        value = np.random.default_rng(0).standard_normal(sizes).astype("float32")
        np.testing.assert_allclose(session.run(None, {"x": value})[0], expected(value), rtol=1e-6)


def test_sizes_that_cannot_be_say_so() -> None:
    x, _ = unpooled(joined=True)
    (op,) = [op for op in fluid.default_main_program().global_block().ops if op.type == "unpool"]
    sizes = fluid.data("sizes", [2], "int32")
    f = fluid.framework.BuildNamespace(x.block)
    bad = f.unpool(*(x.block.var(op.input(slot)[0]) for slot in ("X", "Indices")), [sizes], ksize=[2, 2], strides=[2, 2])
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    for wrong, message in ((-3, r"Out would be float32\[1, 2, 4, -3\]"), (0, "whose images have 0 elements")):
        feed = {"x": np.ones((1, 2, 4, 4), "float32"), "sizes": np.array([4, wrong], "int32")}
        with pytest.raises(fluid.errors.FluidError, match=message):
            executor.run(feed=feed, fetch_list=[bad])
    three = layers.fill_constant([3], "int32", 4)
    with pytest.raises(fluid.errors.FluidError, match="OutputSize should be 2 numbers, in one tensor or in 2"):
        f.unpool(*(x.block.var(op.input(slot)[0]) for slot in ("X", "Indices")), [three], ksize=[2, 2], strides=[2, 2])

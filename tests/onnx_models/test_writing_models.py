"""Complete programs as ONNX models: inference and training, loops and branches, files, and errors."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each
from control_flow_programs import BUILDERS
from differentiation import new_case

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
from click.testing import CliRunner
from onnx_running import lengths_of, run_bytes, run_program, session_of

import fluid
from fluid import layers
from fluid.cli.commands import cli
from fluid.errors import ExecutionError, FluidError, ProgramError
from fluid.onnx.writing.document import PATH, render
from fluid.onnx.writing.models import OLDEST
from fluid.opdef.registry import all_ops

pytestmark = pytest.mark.numpy_alone


def lenet() -> tuple[Any, Any]:
    """A small network with all that is common: its prediction and its loss."""
    image, label = fluid.data("image", [None, 1, 8, 8]), fluid.data("label", [None, 1], "int64")
    fluid.default_startup_program().random_seed = 1
    hidden = layers.batch_norm(image)  # not behind the convolution, whose bias would have a gradient of rounding errors
    hidden = fluid.nets.simple_img_conv_pool(hidden, 4, 3, 2, 2, conv_padding=1, act="relu")
    hidden = layers.fc(layers.dropout(hidden, 0.0), 12, act="tanh")
    prediction = layers.fc(hidden, 10, act="softmax")
    return prediction, layers.mean(layers.cross_entropy(prediction, label))


def batch(rows: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "image": rng.standard_normal((rows, 1, 8, 8)).astype("float32"),
        "label": rng.integers(0, 10, (rows, 1)),
    }


def state_of(program: Any) -> dict[str, Any]:
    scope = fluid.global_scope()
    names = [var.name for var in program.list_vars() if var.persistable and scope.array(var.name) is not None]
    return {name: np.array(scope.array(name)) for name in names}


@each("opset", [13, 17, 18, 21])
def test_inference(opset: int, tmp_path: Path) -> None:
    """A pruned model with constants inside, for any batch."""
    prediction, _ = lenet()
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    path = str(tmp_path / "net.onnx")
    assert fluid.save_model(path, feeds=["image"], fetches=[prediction], opset=opset) == [path]
    onnx.checker.check_model(path, full_check=True)
    session = session_of(path)
    assert [info.name for info in session.get_inputs()] == ["image"] and not session.get_overridable_initializers()
    assert onnx.load(path).opset_import[0].version == opset
    test = fluid.default_main_program().clone(for_test=True)
    for rows in (1, 5):
        (expected,) = executor.run(test, batch(rows), [prediction])
        (result,) = session.run([prediction.name], {"image": batch(rows)["image"]})
        np.testing.assert_allclose(result, expected, 1e-5, 1e-6)


@each("optimizer", ["SGD", "Adam", "Momentum"])
def test_training(optimizer: str, tmp_path: Path) -> None:
    """Weights and state are inputs and outputs; after three steps they equal Fluid's."""
    _, loss = lenet()
    more = {"momentum": 0.9} if optimizer == "Momentum" else {}
    getattr(fluid.optimizer, optimizer)(learning_rate=0.01, **more).minimize(loss)
    executor, main = fluid.Executor(), fluid.default_main_program()
    executor.run(fluid.default_startup_program())
    path = str(tmp_path / "train.onnx")
    fluid.save_model(path, main)
    onnx.checker.check_model(path, full_check=True)
    session = session_of(path)
    updated = json.loads(session.get_modelmeta().custom_metadata_map["fluid.updated"])
    assert {"fc_0.w_0", "batch_norm_0.w_1", "learning_rate_0"} - set(updated) == {"learning_rate_0"}
    assert "learning_rate_0" in {initializer.name for initializer in session.get_overridable_initializers()}
    outputs, state = [output.name for output in session.get_outputs()], {}
    for step in range(3):
        (expected,) = executor.run(main, batch(4 + step, step), [loss])
        results = dict(zip(outputs, session.run(None, {**batch(4 + step, step), **state}), strict=True))
        np.testing.assert_allclose(results[loss.name], expected, 1e-5)
        state = {name: results[output] for name, output in updated.items()}
    for name, value in state_of(main).items():
        if name in state:
            np.testing.assert_allclose(state[name], value, 1e-4, 1e-6, err_msg=name)


def test_training_in_float64(tmp_path: Path) -> None:
    """In float64, running means and Adam's updates from cancelling gradients agree, so float32 differs only by rounding."""
    image, label = fluid.data("image", [None, 3, 8, 8], "float64"), fluid.data("label", [None, 1], "int64")
    fluid.default_startup_program().random_seed = 1
    hidden = layers.relu(layers.batch_norm(layers.conv2d(image, 4, 3, padding=1, bias_attr=False)))
    hidden = layers.relu(hidden + layers.batch_norm(layers.conv2d(hidden, 4, 3, padding=1, bias_attr=False)))
    scores = layers.fc(layers.pool2d(hidden, pool_type="avg", global_pooling=True), 10)
    loss = layers.mean(layers.softmax_with_cross_entropy(scores, label))
    fluid.optimizer.Adam(0.01).minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    path = tmp_path / "train.onnx"
    fluid.save_model(path, fluid.default_main_program())
    model = onnx.load(path)
    names = [output.name for output in model.graph.output]
    updated = json.loads({entry.key: entry.value for entry in model.metadata_props}["fluid.updated"])
    feed, state = batch(4), {}
    feed["image"] = np.random.default_rng(2).standard_normal((4, 3, 8, 8))
    for _ in range(2):
        results = dict(zip(names, run_bytes(path.read_bytes(), {**feed, **state}), strict=True))
        state = {name: results[output] for name, output in updated.items()}
        (expected,) = executor.run(feed=feed, fetch_list=[loss])
        np.testing.assert_allclose(results[loss.name], expected, 1e-13)
    for name, value in state.items():
        wanted = np.asarray(fluid.global_scope().array(name))
        np.testing.assert_allclose(value, wanted, 1e-9, 1e-11 * np.abs(wanted).max(), err_msg=name)


def test_gradients(tmp_path: Path) -> None:
    """A program of gradients gives the loss and the gradient of each weight, and keeps nothing."""
    _, loss = lenet()
    pairs = fluid.append_backward(loss)
    executor, main = fluid.Executor(), fluid.default_main_program()
    executor.run(fluid.default_startup_program())
    before = state_of(main)
    path = str(tmp_path / "gradients.onnx")
    fluid.save_model(path, main)
    grads = [gradient for _, gradient in pairs]
    expected = executor.run(main, batch(3), [loss, *grads])
    session = session_of(path)
    assert {info.name for info in session.get_inputs()} == {"image", "label"}
    assert {parameter.name for parameter, _ in pairs} <= {
        initializer.name for initializer in session.get_overridable_initializers()
    }
    results = session.run([loss.name, *(grad.name for grad in grads)], {**batch(3), **{k: before[k] for k in ("fc_0.w_0",)}})
    for result, value in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, value, 1e-4, 1e-6)


QUICK = ("loop", "cond_in_cond", "rnn", "rnn_in_loop", "array_written_in_a_loop", "loop_that_grows", "branch_not_taken")
REFUSED = {"array_entry_overwritten_in_another_shape": "differ in their number of dimensions"}


def check_gradients(name: str) -> None:
    with new_case(name) as case:
        target, inputs = BUILDERS[name](case)
        grads = [grad for grad in fluid.gradients(target, inputs) if grad is not None]
        values = {key: np.asarray(value) for key, value in case.values.items()}
        persistable = {key for key in values if case.program.global_block().var(key).persistable}
        scope = fluid.Scope()
        with fluid.scope_guard(scope):
            case.executor.run(case.startup)
        for key in persistable:
            scope.put(key, values[key].copy())
        feeds = {key: value for key, value in values.items() if key not in persistable}
        fetches = [target, *grads]
        try:
            results = run_program(case.program, feeds, [var.name for var in fetches], scope.array)
        except ProgramError as error:
            assert name in REFUSED and REFUSED[name] in str(error)
            return
        expected = case.executor.run(case.program, feeds, fetches, scope=scope)
        for var, value, result in zip(fetches, expected, results, strict=True):
            np.testing.assert_allclose(np.reshape(result, np.shape(value)), value, 1e-7, 1e-9, err_msg=var.name)


@each("name", QUICK)
def test_control_flow(name: str) -> None:
    check_gradients(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in BUILDERS if name not in QUICK])
def test_more_control_flow(name: str) -> None:
    check_gradients(name)


def test_a_loop_is_a_loop(tmp_path: Path) -> None:
    """`while` is written as Loop, a branch as If, a recurrence as Scan, without unrolling."""
    for name, op in (("loop", "Loop"), ("cond_true", "If"), ("rnn", "Scan")):
        with new_case(name) as case:
            target, _ = BUILDERS[name](case)
            values = {key: np.asarray(value) for key, value in case.values.items()}
            feeds = [key for key in values if not case.program.global_block().var(key).persistable]
            for key, value in values.items():
                fluid.global_scope().put(key, value)
            path = str(tmp_path / f"{name}.onnx")
            fluid.save_model(path, case.program, feeds, [target])
            assert op in {node.op_type for node in onnx.load(path).graph.node}


def test_sequences(tmp_path: Path) -> None:
    """Rows of sequences go in with their lengths."""
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    rows = layers.embedding(words, [20, 6])
    states = layers.dynamic_lstm(layers.fc(rows, 16), 16)[0]
    out = layers.fc(layers.sequence_pool(states, "max"), 2)
    loss = layers.mean(out)
    fluid.optimizer.SGD(0.1).minimize(loss)
    executor, main = fluid.Executor(), fluid.default_main_program()
    executor.run(fluid.default_startup_program())
    path = str(tmp_path / "words.onnx")
    fluid.save_model(path, main)
    ids = np.arange(9).reshape(9, 1)
    fed = {"words": (ids, [[0, 2, 7, 9]])}
    session = session_of(path)
    assert {info.name for info in session.get_inputs()} == {"words", "words.lengths"}
    updated = json.loads(session.get_modelmeta().custom_metadata_map["fluid.updated"])
    names = [loss.name, updated["embedding_0.w_0"]]
    results = session.run(names, lengths_of(fed))
    expected = executor.run(main, fed, [loss])
    np.testing.assert_allclose(results[0], expected[0], 1e-5)
    np.testing.assert_allclose(results[1], fluid.global_scope().array("embedding_0.w_0"), 1e-5, 1e-7)


def assert_trained(path: str, loss: Any, fed: dict[str, Any]) -> None:
    """One training step of the default program, as a model: the loss and the next weights are Fluid's."""
    executor, main = fluid.Executor(), fluid.default_main_program()
    executor.run(fluid.default_startup_program())
    fluid.save_model(path, main)
    onnx.checker.check_model(path, full_check=True)
    session = session_of(path)
    updated = json.loads(session.get_modelmeta().custom_metadata_map["fluid.updated"])
    results = session.run([loss.name, *updated.values()], lengths_of(fed))
    (expected,) = executor.run(main, fed, [loss])
    np.testing.assert_allclose(results[0], expected, 1e-5)
    for name, value in zip(updated, results[1:], strict=True):
        np.testing.assert_allclose(value, fluid.global_scope().array(name), 1e-4, 1e-6, err_msg=name)


def test_dynamic_rnn(tmp_path: Path) -> None:
    """Steps of sequences of different lengths, with a state of rows and one of sequences."""
    words = fluid.data("words", [None, 6], lod_level=1)
    source = fluid.data("source", [None, 4], lod_level=1)
    rnn, boot = layers.DynamicRNN(), layers.fc(layers.sequence_pool(source, "last"), 5)
    with rnn.block():
        word = rnn.step_input(words)
        state = rnn.memory(init=boot, need_reorder=True)
        static = layers.sequence_pool(rnn.static_input(source), "sum")
        new = layers.fc([word, state, static], 5, act="tanh")
        rnn.update_memory(state, new)
        rnn.output(new)
    loss = layers.mean(layers.fc(layers.sequence_pool(rnn(), "last"), 1))
    fluid.optimizer.SGD(0.1).minimize(loss)
    rng = np.random.default_rng(1)
    fed = {
        "words": (rng.standard_normal((9, 6)).astype("float32"), [[0, 2, 6, 9]]),
        "source": (rng.standard_normal((7, 4)).astype("float32"), [[0, 3, 4, 7]]),
    }
    assert_trained(str(tmp_path / "rnn.onnx"), loss, fed)


def test_if_else(tmp_path: Path) -> None:
    """Rows in two parts, by a mask."""
    x = fluid.data("x", [None, 3])
    total = layers.reduce_sum(x, dim=1, keep_dim=True)
    either = layers.IfElse(layers.less_than(total, layers.zeros_like(total)))
    with either.true_block():
        either.output(layers.fc(either.input(x), 4, act="tanh"))
    with either.false_block():
        either.output(layers.fc(either.input(x), 4, act="sigmoid"))
    loss = layers.mean(either()[0])
    fluid.optimizer.SGD(0.1).minimize(loss)
    fed = {"x": np.random.default_rng(2).standard_normal((6, 3)).astype("float32")}
    assert_trained(str(tmp_path / "either.onnx"), loss, fed)


# --------------------------------------------------------------------------------------------------------------- files
def test_large_arrays_in_a_file_of_their_own(tmp_path: Path) -> None:
    x = fluid.data("x", [None, 40])
    out = layers.fc(x, 30)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    path = str(tmp_path / "net.onnx")
    files = fluid.save_model(path, feeds=["x"], fetches=[out], external_data=True)
    assert files == [path, path + ".data"] and (tmp_path / "net.onnx").stat().st_size < 2000
    assert (tmp_path / "net.onnx.data").stat().st_size == 8192
    value = np.ones((2, 40), "float32")
    (result,) = session_of(path).run(None, {"x": value})
    (expected,) = executor.run(feed={"x": value}, fetch_list=[out])
    np.testing.assert_allclose(result, expected, 1e-5, 1e-6)


def test_refusals_are_known_before_anything_is_written(tmp_path: Path) -> None:
    """All ops that cannot be written are named, and no file is."""
    x = fluid.data("x", [None, 4], "int64")
    layers.hash(x, 10)
    image = fluid.data("image", [1, 3, 8, 8])
    layers.random_crop(image, [3, 4, 4])
    path = tmp_path / "net.onnx"
    with pytest.raises(
        ProgramError, match=r"cannot be written to ONNX:\n  hash: it computes with unsigned.*\n  .*random_crop: it draws numbers"
    ):
        fluid.save_model(str(path), fluid.default_main_program())
    assert not list(tmp_path.iterdir())


def test_a_formula_refuses_an_open_number_of_classes(tmp_path: Path) -> None:
    """It would leave out the last class."""
    boxes, targets, scores = (
        fluid.data(name, [None, size]) for name, size in (("boxes", 4), ("targets", None), ("scores", None))
    )
    layers.box_decoder_and_assign(boxes, fluid.data("variance", [4]), targets, scores, 4.0)
    with pytest.raises(FluidError, match=r"the number of classes, columns of BoxScore .*, should be known"):
        fluid.save_model(str(tmp_path / "boxes.onnx"))
    assert not list(tmp_path.iterdir())


def test_an_open_number_of_channels_is_shuffled(tmp_path: Path) -> None:
    out = layers.shuffle_channel(fluid.data("image", [None, None, None, None]), 2)
    path, image = str(tmp_path / "shuffled.onnx"), np.arange(72, dtype="float32").reshape(1, 6, 3, 4)
    fluid.save_model(path)
    (shuffled,) = session_of(path).run([out.name], {"image": image})
    np.testing.assert_array_equal(shuffled, image[:, [0, 3, 1, 4, 2, 5]])


def test_lazy_updates_are_refused(tmp_path: Path) -> None:
    """A sparse gradient is written as a dense one, with which Adam in lazy mode would change other rows."""
    words = fluid.data("words", [None, 1], "int64")
    loss = layers.mean(layers.embedding(words, [20, 6], is_sparse=True))
    fluid.optimizer.Adam(0.1, lazy_mode=True).minimize(loss)
    fluid.Executor().run(fluid.default_startup_program())
    with pytest.raises(ProgramError, match="adam: with lazy_mode it leaves rows as they are"):
        fluid.save_model(str(tmp_path / "net.onnx"))


def test_convert_from_the_command_line(tmp_path: Path) -> None:
    prediction, _ = lenet()
    fluid.Executor().run(fluid.default_startup_program())
    fluid.save_model(str(tmp_path / "net.pdmodel"), feeds=["image"], fetches=[prediction])
    done = CliRunner().invoke(cli, ["convert", str(tmp_path / "net.pdmodel"), str(tmp_path / "net.onnx")])
    assert done.exit_code == 0, done.output
    assert [info.name for info in session_of(str(tmp_path / "net.onnx")).get_inputs()] == ["image"]


@pytest.mark.slow
def test_digits_are_learned_by_onnxruntime() -> None:
    example = Path(__file__).parents[2] / "examples" / "onnx_training.py"
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=True)
    assert "epoch 8/8" in done.stdout and not done.stderr


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    prediction, _ = lenet()
    path = str(tmp_path / "net.onnx")
    with pytest.raises(ExecutionError, match="has no value in the scope"):
        fluid.save_model(path, feeds=["image"], fetches=[prediction])
    fluid.Executor().run(fluid.default_startup_program())
    with pytest.raises(FluidError, match=f"opset 9 cannot be written; from {OLDEST} to"):
        fluid.save_model(path, feeds=["image"], fetches=[prediction], opset=9)
    with pytest.raises(ProgramError, match=r"opset and external_data are of \.onnx files"):
        fluid.save_model(str(tmp_path / "net.pdmodel"), feeds=["image"], fetches=[prediction], opset=18)
    with pytest.raises(ProgramError, match="computes nothing"):
        fluid.save_model(path, fluid.Program())
    assert not list(tmp_path.iterdir())


def test_fluid_does_not_load_onnx() -> None:
    script = "import sys, fluid; assert not any(name == 'onnx' or name.startswith('fluid.onnx') for name in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_table_of_ops_is_current() -> None:
    """Every op is in docs/onnx_ops.md, as `python -m fluid.onnx.writing.document` writes it."""
    with open(PATH, encoding="utf-8") as file:
        assert file.read() == render(), "run python -m fluid.onnx.writing.document"
    text = render()
    op_types = {name for name, op in all_ops().items() if op.forward is None and op.module.startswith("fluid.ops.")}
    assert all(f"| `{name}` |" in text for name in op_types if not all_ops()[name].gradient_of)


@pytest.mark.slow
def test_writing_takes_time_in_proportion_to_the_ops(tmp_path: Path) -> None:
    """Ten times as many ops take no more than twenty times as long."""

    def seconds(count: int) -> float:
        with fluid.program_guard(fluid.Program()):
            value = fluid.data("x", [None, 8])
            for _ in range(count):
                value = layers.scale(value, 1.1, 0.1)
            program = fluid.default_main_program()
        start = time.process_time()
        fluid.save_model(str(tmp_path / "net.onnx"), program)
        return time.process_time() - start

    seconds(100)
    assert seconds(10_000) < 20 * max(seconds(1_000), 0.01)


# ------------------------------------------------------------------------------------------------------ dynamic sizes
@each(("axis", "use_stack"), [(1, False), (0, True), (1, True), (2, True)])
def test_joined_entries_of_an_array_come_with_their_sizes(axis: int, use_stack: bool) -> None:
    x, array = fluid.data("x", [2, 5]), layers.create_array("float32")
    for number in range(3):
        layers.array_write(x * float(number), layers.fill_constant([1], "int64", number), array)
    fetches, feeds = layers.tensor_array_to_tensor(array, axis, use_stack=use_stack), {"x": np.ones([2, 5], "float32")}
    expected = fluid.Executor().run(feed=feeds, fetch_list=list(fetches))
    found = run_program(fluid.default_main_program(), feeds, [var.name for var in fetches])
    for value, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(value, wanted)


def frames_of_sound() -> Any:
    sound = layers.unsqueeze(fluid.data("x", [None, None]), [1, 2])
    return layers.squeeze(layers.conv2d(sound, 257, [1, 400], stride=[1, 160], bias_attr=False), [2])


def pooled_twice() -> Any:
    image = layers.unsqueeze(fluid.data("x", [None, None]), [1, 2])
    pooled = layers.pool2d(image, [1, 130], pool_stride=[1, 130], pool_type="avg")
    return layers.flatten(layers.squeeze(pooled, [2]), 2)


def every_hundredth() -> Any:
    x = layers.unsqueeze(fluid.data("x", [None, None]), [1])
    return layers.squeeze(layers.strided_slice(x, [2], [0], [2**31 - 1], [100]), [1]) * 2.0


@each("build", [frames_of_sound, pooled_twice, every_hundredth])
def test_a_dynamic_size_that_is_divided_is_no_number(build: Any) -> None:
    """A stride over 64 turned the stand-in for an unknown dimension into a number, which then became the model's size."""
    out = build()
    fluid.default_startup_program().random_seed = 1
    fluid.Executor().run(fluid.default_startup_program())
    value_of = fluid.global_scope().array
    for rows, length in ((1, 400), (2, 1601), (3, 7000)):
        feed = {"x": np.random.default_rng(length).standard_normal((rows, length)).astype("float32")}
        (want,) = fluid.Executor().run(feed=feed, fetch_list=[out])
        (result,) = run_program(fluid.default_main_program(), feed, [out.name], value_of)
        assert result.shape == want.shape
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-4)


def test_adaptive_pools_to_one_element_of_images_of_any_size(tmp_path: Path) -> None:
    x = fluid.data("x", [None, 3, None, None])
    outs = [layers.adaptive_pool2d(x, [1, 1], kind) for kind in ("avg", "max")]
    fluid.save_model(tmp_path / "pools.onnx", feeds=[x], fetches=outs)
    session = session_of(str(tmp_path / "pools.onnx"))
    for shape in ((2, 3, 5, 7), (1, 3, 4, 4)):
        images = np.random.default_rng(0).standard_normal(shape).astype("float32")
        means, maxima = session.run(None, {"x": images})
        np.testing.assert_allclose(means, images.mean((2, 3), keepdims=True), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(maxima, images.max((2, 3), keepdims=True))

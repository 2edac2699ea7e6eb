"""Programs that Fluid writes for Paddle 3, loaded and run by PaddlePaddle 3.3.1; and the ways between 1.x, 2.6 and 3.x.

    pytest -n 0 -m paddle3

Paddle is installed into environments of its own, once, with this Python; ``FLUID_PADDLE3_PYTHON`` and ``FLUID_PADDLE_PYTHON``
name the Pythons of those (3.3.1, 2.6.2) that are there already.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles import Paddle, environment, runner
from paddle_sweep import answers_of, cases, write
from test_paddle3 import FOLDER, INFERENCE, TRAINING, arrays_of, feed_of, losses
from test_paddle_files import PRELUDE, images, lenet, train

import fluid
from fluid import layers
from fluid.executor import Scope, scope_guard
from fluid.ir.program import Operator
from fluid.values.types import VarType

pytestmark = pytest.mark.paddle3


@pytest.fixture(scope="session")
def python3(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with Paddle 3.3.1."""
    return environment(pytestconfig, tmp_path_factory, "3.3.1", "FLUID_PADDLE3_PYTHON", "setuptools<81")


@pytest.fixture
def paddle3(python3: str, tmp_path: Path) -> Paddle:
    return runner(python3, tmp_path, PRELUDE)


@pytest.fixture
def paddle26(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Paddle:
    packages = ("numpy<2", "protobuf<=3.20.3", "setuptools<70")
    python = environment(pytestconfig, tmp_path_factory, "2.6.2", "FLUID_PADDLE_PYTHON", *packages)
    return runner(python, tmp_path, PRELUDE)


RUN = """
program, feeds, fetches = static.load_inference_model("{name}", executor)
for index, value in enumerate(executor.run(program, {{name: given[name] for name in feeds}}, fetches)):
    found[str(index)] = value
"""


def close(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", INFERENCE)
def test_models_of_paddle_3_survive_the_round_trip(paddle3: Paddle, tmp_path: Path, name: str) -> None:
    model = fluid.load_model(FOLDER / f"{name}.json", scope=Scope())
    fluid.save_model(tmp_path / "again.json", model.program, scope=model.scope)
    found = paddle3(RUN.format(name="again"), **feed_of(model, name))
    for index, want in enumerate(arrays_of(name, "out")):
        assert (found[str(index)].shape, found[str(index)].dtype) == (want.shape, want.dtype)
        close(found[str(index)], want)


@pytest.mark.parametrize("name", TRAINING)
def test_training_goes_on_in_paddle_3(paddle3: Paddle, tmp_path: Path, name: str) -> None:
    model = fluid.load_model(FOLDER / f"{name}.json", scope=Scope())
    losses(model, name, 0)
    with scope_guard(model.scope):
        losses(model, name, 1)
        fluid.save_model(tmp_path / "again.json", model.program, scope=model.scope)
    found = paddle3(
        """
        program, feeds, _ = static.load_inference_model("again", executor)
        ops = program.global_block().ops
        first = next(op for op in ops if op.name().endswith("_grad"))
        (loss,) = [op for op in ops if op.name() + "_grad" == first.name()
                   and op.operand_source(0).is_same(first.operand_source(0))]
        feed = {name: given[name] for name in feeds if name in given}
        found["losses"] = np.array([executor.run(program, feed, [loss.result(0)])[0] for _ in range(2)])
        """,
        **feed_of(model, name),
    )
    close(found["losses"].ravel(), np.ravel(arrays_of(name, "out")[0])[1:])


@pytest.mark.parametrize("name", ["array_loops", "attention", "branches", "convolutions", "loop", "recurrent"])
def test_paddle_2_6_runs_models_of_paddle_3(paddle26: Paddle, tmp_path: Path, name: str) -> None:
    model = fluid.load_model(FOLDER / f"{name}.json", scope=Scope())
    fluid.save_model(tmp_path / "old.pdmodel", model.program, scope=model.scope, target="paddle-2.6")
    found = paddle26(RUN.format(name="old"), **feed_of(model, name))
    for index, want in enumerate(arrays_of(name, "out")):
        close(found[str(index)], want)


def test_models_of_paddle_3_are_written_for_1_6_and_back(paddle3: Paddle, tmp_path: Path) -> None:
    model = fluid.load_model(FOLDER / "convolutions.json", scope=Scope())
    fluid.save_model(tmp_path / "first", model.program, scope=model.scope, target="paddle-1.6")
    again = fluid.load_model(tmp_path / "first", scope=Scope())
    fluid.save_model(tmp_path / "again.json", again.program, scope=again.scope)
    found = paddle3(RUN.format(name="again"), **feed_of(model, "convolutions"))
    close(found["0"], arrays_of("convolutions", "out")[0])


def test_a_model_of_1_x_runs_in_paddle_3(paddle3: Paddle, tmp_path: Path) -> None:
    prediction, loss = lenet(fluid.optimizer.Adam(0.01))
    fluid.default_startup_program().random_seed = 1
    fluid.Executor().run(fluid.default_startup_program())
    train(loss, 0, 2)
    test = fluid.default_main_program().clone(for_test=True)
    (want,) = fluid.Executor().run(test, {"img": images()["img"]}, [prediction.name])
    fluid.save_model(tmp_path / "net.json", feeds="img", fetches=prediction)
    close(paddle3(RUN.format(name="net"), img=images()["img"])["0"], want)


def test_paddle_3_continues_our_training(paddle3: Paddle, tmp_path: Path) -> None:
    _, loss = lenet(fluid.optimizer.Momentum(0.01, 0.9))
    fluid.default_startup_program().random_seed = 1
    fluid.Executor().run(fluid.default_startup_program())
    train(loss, 0, 2)
    root = fluid.default_main_program().global_block()
    fetch = root.create_var(name="fetch", type=VarType.FETCH_LIST, persistable=True)
    root.ops.append(Operator(root, "fetch", {"X": [loss.name]}, {"Out": [fetch.name]}, {"col": 0}))
    fluid.save_model(tmp_path / "net.json")
    root.ops.pop()
    want = train(loss, 2, 4)
    values = {f"{key}{number}": value for number in (2, 3) for key, value in images(number).items()}
    found = paddle3(
        """
        program, _, fetches = static.load_inference_model("net", executor)
        for step in (2, 3):
            found[str(step)], = executor.run(program, {"img": given[f"img{step}"], "label": given[f"label{step}"]}, fetches)
        """,
        **values,
    )
    close([found["2"].item(), found["3"].item()], [value.item() for value in want], 1e-4)


# ------------------------------------------------------------------------------------------------------ op by op
OTHERWISE = {
    "bipartite_match": "it does not know how many images there are",
    "check_finite_and_unscale": "scaled infinities are NaN there",
    "coalesce_tensor": "between the tensors is whatever the memory held",
    "eig": "the order of eigenvalues is open, and the factor of each vector",
    "eigvals": "the order of eigenvalues is open",
    "empty": "whatever the memory held",
    "erfinv": "at 1 and beyond, where it is infinite or NaN",
    "fake_quantize_dequantize_moving_average_abs_max": "states that it is not given are not written there",
    "fake_quantize_moving_average_abs_max": "states that it is not given are not written there",
    "fake_quantize_range_abs_max": "scales of batches to come are whatever the memory held",
    "fusion_lstm": "as lstm, which it is written as",
    "graph_khop_sampler": "random, and so is the number of edges",
    "histogram": "of no elements it is of floats",
    "i0e": "its gradient at 0",
    "kthvalue": "which of equal elements it names",
    "lamb": "of no elements it leaves the powers as they were",
    "logsumexp": "of infinities it is NaN there",
    "lstm": "the gradient of first states of sequences without rows",
    "lstsq": "what the driver does not compute is not written there",
    "median": "of NaN",
    "mv": "of no elements it has any gradient",
    "rnn": "the state of dropout is not kept here",
    "roi_align": "of regions without an area it ends the process",
    "segment_pool": "of no elements it ends the process",
    "shuffle_batch": "random",
    "unique_consecutive": "of no elements it ends the process",
    "unpool3d": "where two elements go to one place, both have the gradient there",
    "yolov3_loss": "where two boxes are of one cell, it has the gradient of the last one there",
}
"""Ops of which Paddle 3 computes something else, or ends the process, for some values, and why. Written are the same ops."""


@pytest.mark.filterwarnings("ignore:no gradient flows")
def test_ops_and_their_gradients_compute_the_same_in_paddle_3(paddle3: Paddle, tmp_path: Path) -> None:
    """An op that is written is the same op: Paddle may refuse what it does not allow, but computes nothing else."""
    refused = write(tmp_path, "paddle-3", cases())
    assert all("cannot be written for paddle-3" in why for why in refused.values())
    answers = answers_of(paddle3, [case.key for case in cases() if case.key not in refused])
    wrong = {key: answer for key, answer in answers.items() if answer.startswith("differs") or answer.endswith("process ended")}
    unexpected = {key: answer for key, answer in wrong.items() if key.rsplit("-grad")[0].rpartition("-")[0] not in OTHERWISE}
    assert not unexpected
    ends = Counter(answer.partition(" ")[0].rstrip(":") for answer in answers.values())
    assert ends["same"] > 4900 and ends["fails"] < 250 and len(refused) < 1750, ends


# -------------------------------------------------------------------------------------------------- loops and branches
def a_loop(x: fluid.Variable) -> list[fluid.Variable]:
    i, n, y = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 4), layers.assign(x)
    going = layers.less_than(i, n)
    with layers.While(going).block():
        layers.assign(layers.tanh(y) + x, y)
        layers.increment(i, 1)
        layers.less_than(i, n, cond=going)
    return [y, i]


def a_loop_that_swaps(x: fluid.Variable) -> list[fluid.Variable]:
    end = layers.fill_constant([1], "int64", 3)
    start = [layers.fill_constant([1], "int64", 0), x, x * 2.0]
    return layers.while_loop(lambda i, p, q: layers.less_than(i, end), lambda i, p, q: [layers.increment(i, 1), q, p], start)


def a_branch_in_a_branch(x: fluid.Variable) -> list[fluid.Variable]:
    mean, zero = layers.mean(x), layers.fill_constant([1], "float32", 0.0)
    return [layers.cond(mean < zero + 1.0, lambda: layers.cond(mean > zero, lambda: x * 5.0, lambda: x), lambda: x * 3.0)]


def a_switch(x: fluid.Variable) -> list[fluid.Variable]:
    zero = layers.fill_constant([1], "float32", 0.0)
    y = layers.assign(zero)
    with layers.Switch() as switch:
        with switch.case(layers.mean(x) > zero):
            layers.assign(zero + 2.0, y)
        with switch.default():
            layers.assign(zero + 3.0, y)
    return [y]


def an_array_in_a_loop(x: fluid.Variable) -> list[fluid.Variable]:
    array, end = layers.create_array("float32"), layers.fill_constant([1], "int64", 4)

    def step(i: Any, y: Any) -> list[Any]:
        inner = layers.array_write(layers.tanh(y), layers.fill_constant([1], "int64", 0))
        layers.array_write(layers.array_read(inner, layers.fill_constant([1], "int64", 0)) + x, i, array)
        return [i + 1, layers.array_read(array, i)]

    _, y = layers.while_loop(lambda i, y: i < end, step, [layers.fill_constant([1], "int64", 0), x])
    return [y, layers.tensor_array_to_tensor(array, axis=1)[0]]


def an_array_in_a_branch(x: fluid.Variable) -> list[fluid.Variable]:
    first = layers.fill_constant([1], "int64", 0)
    array, mean = layers.array_write(x, first), layers.mean(x)
    layers.cond(mean > 0.0, lambda: layers.array_write(x * 2.0, first, array) and None)
    return [layers.array_read(array, first) * x]


def a_recurrence(x: fluid.Variable) -> list[fluid.Variable]:
    cells = layers.StaticRNN()
    start = layers.fill_constant([3], "float32", 0.1)
    with cells.step():
        state = cells.memory(init=start)
        following = layers.tanh(cells.step_input(x) + state)
        cells.update_memory(state, following)
        cells.step_output(following)
    return [cells()]


CONTROL = [a_loop, a_loop_that_swaps, a_branch_in_a_branch, a_switch, an_array_in_a_loop, an_array_in_a_branch, a_recurrence]


@pytest.mark.parametrize("build", CONTROL)
def test_paddle_3_runs_our_gradients_of_loops_and_branches(paddle3: Paddle, tmp_path: Path, build: Any) -> None:
    """As loops and branches over arrays: of Paddle's own, none can be written."""
    x = fluid.data("x", [2, 3])
    x.stop_gradient = False
    loss = layers.sums([layers.reduce_sum(layers.square(out)) for out in [*build(x), x] if out.dtype is VarType.FP32])
    fetches = [loss, *fluid.gradients(loss, x)]
    root = fluid.default_main_program().global_block()
    fetch = root.create_var(name="fetch", type=VarType.FETCH_LIST, persistable=True)
    for column, variable in enumerate(fetches):
        root.ops.append(Operator(root, "fetch", {"X": [variable.name]}, {"Out": [fetch.name]}, {"col": column}))
    fluid.save_model(tmp_path / "net.json")
    for sign in (1, -1):
        value = sign * np.linspace(-0.5, 1, 6, dtype="float32").reshape(2, 3)
        found = paddle3(RUN.format(name="net"), x=value)
        loss_value, gradient = fluid.Executor().run(feed={"x": value}, fetch_list=fetches)
        close(found["0"].item(), loss_value.item())
        close(found["1"], gradient)


@pytest.mark.parametrize("build", CONTROL)
def test_paddle_3_runs_our_loops_and_branches(paddle3: Paddle, tmp_path: Path, build: Any) -> None:
    fetches = build(fluid.data("x", [None, 3]))
    fluid.save_model(tmp_path / "net.json", feeds="x", fetches=fetches)
    for sign in (1, -1):
        x = sign * np.linspace(-0.5, 1, 6, dtype="float32").reshape(2, 3)
        found = paddle3(RUN.format(name="net"), x=x)
        for index, want in enumerate(fluid.Executor().run(feed={"x": x}, fetch_list=fetches)):
            close(found[str(index)], want)


def test_slices_go_backwards_in_paddle_3(paddle3: Paddle, tmp_path: Path) -> None:
    """Where an end of -1 is the last element, not the one before the first."""
    x = fluid.data("x", [4, 5])
    fluid.save_model(tmp_path / "net.json", feeds="x", fetches=[x[::-1], x[:, ::-2], x[3:0:-1], x[-1:-4:-1]])
    value = np.arange(20, dtype="float32").reshape(4, 5)
    found = paddle3(RUN.format(name="net"), x=value)
    for index, want in enumerate([value[::-1], value[:, ::-2], value[3:0:-1], value[-1:-4:-1]]):
        np.testing.assert_array_equal(found[str(index)], want)


def test_a_result_of_another_type_in_paddle_3(paddle3: Paddle, tmp_path: Path) -> None:
    """Ranks are int64 there, and int32 here and for what reads them."""
    x = fluid.data("x", [3, 3])
    rank = fluid.extend.ops().matrix_rank(x, tol=0.0, use_default_tol=True)
    fluid.save_model(tmp_path / "net.json", feeds="x", fetches=[rank, rank + rank])
    found = paddle3(RUN.format(name="net"), x=np.diag([1.0, 2.0, 0.0]).astype("float32"))
    assert (found["0"].item(), found["1"].item()) == (2, 4) and found["0"].dtype == np.int32

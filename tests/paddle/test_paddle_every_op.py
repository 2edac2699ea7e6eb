"""Every sample of every op, and its gradients, written for PaddlePaddle 2.6.2 and run there.

    pytest -n 0 -m paddle tests/paddle/test_paddle_every_op.py

`tests/paddle/test_paddle3_oracle.py` does the same with Paddle 3; `tests/paddle/test_written_for_paddle.py` runs the
programs here.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from oracles import Paddle, environment, runner
from paddle_sweep import answers_of, cases, write
from test_paddle_files import PRELUDE

import fluid
from fluid import layers

pytestmark = [pytest.mark.paddle, pytest.mark.filterwarnings("ignore:no gradient flows")]

OTHERWISE = {
    "bincount": "of no elements it counts nothing there",
    "check_finite_and_unscale": "scaled infinities are NaN there",
    "coalesce_tensor": "between the tensors is whatever the memory held",
    "cross_entropy2": "MatchX, which its gradient alone reads, is 0 there where a label is ignored",
    "cummax": "of NaN, places differ, and of no elements, it ends the process",
    "cummin": "as of cummax",
    "dequantize_linear": "states that it is not given are not written there",
    "eig": "the order of eigenvalues is open, and the factor of each vector",
    "eigvals": "the order of eigenvalues is open",
    "empty": "whatever the memory held",
    "erfinv": "at 1 and beyond, where it is infinite or NaN",
    "fake_quantize_dequantize_moving_average_abs_max": "states that it is not given are not written there",
    "fake_quantize_moving_average_abs_max": "states that it is not given are not written there",
    "fake_quantize_range_abs_max": "scales of batches to come are whatever the memory held",
    "fusion_lstm": "as lstm, which it is written as",
    "graph_khop_sampler": "random, and so is the number of edges",
    "i0e": "its gradient at 0",
    "kthvalue": "which of equal elements it names",
    "lamb": "of no elements it leaves the powers as they were",
    "logsumexp": "of infinities it is NaN there",
    "lstm": "the gradient of first states of sequences without rows",
    "lstsq": "what the driver does not compute is not written there",
    "moving_average_abs_max_scale": "states that it is not given are not written there",
    "mv": "of no elements it has any gradient",
    "quantize_linear": "states that it is not given are not written there",
    "rnn": "the state of dropout is not kept here",
    "roi_align": "of regions without an area it ends the process",
    "segment_pool": "of no elements it ends the process",
    "self_dp_attention": "with AVX2 alone it ends the process",
    "shuffle_batch": "random",
    "sum": "of no elements it has no dimensions",
    "unique_consecutive": "of no elements it ends the process",
    "unpool": "where two elements go to one place, both have the gradient there",
    "unpool3d": "as unpool",
    "yolov3_loss": "where two boxes are of one cell, it has the gradient of the last one there",
}
"""Ops of which Paddle 2.6 computes something else, or ends the process, for some values, and why. Written are the same ops."""


@pytest.fixture
def paddle(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Paddle:
    packages = ("numpy<2", "protobuf<=3.20.3", "setuptools<70")
    return runner(environment(pytestconfig, tmp_path_factory, "2.6.2", "FLUID_PADDLE_PYTHON", *packages), tmp_path, PRELUDE)


def test_ops_and_their_gradients_compute_the_same_in_paddle_2_6(paddle: Paddle, tmp_path: Path) -> None:
    """An op that is written is the same op: Paddle may refuse what it does not allow, but computes nothing else."""
    refused = write(tmp_path, "paddle-2.6", cases())
    assert all("the program cannot be written for paddle-2.6:\n  - " in why for why in refused.values())
    answers = answers_of(paddle, [case.key for case in cases() if case.key not in refused])
    wrong = {key: answer for key, answer in answers.items() if answer.startswith("differs") or answer.endswith("process ended")}
    unexpected = {key: answer for key, answer in wrong.items() if key.rsplit("-grad")[0].rpartition("-")[0] not in OTHERWISE}
    assert not unexpected
    ends = Counter(answer.partition(" ")[0].rstrip(":") for answer in answers.values())
    assert ends["same"] > 5200 and ends["fails"] < 300 and len(refused) < 1400, ends


RUN = """
program, feeds, fetches = static.load_inference_model("net", executor)
for index, value in enumerate(executor.run(program, {name: given[name] for name in feeds}, fetches)):
    found[str(index)] = value
"""


def test_a_slice_with_a_step_runs_in_paddle_2_6(paddle: Paddle, tmp_path: Path) -> None:
    """Also one that does not say for each axis whether its bounds are known, as in models from ONNX."""
    x, ops = fluid.data("x", [4, 5]), fluid.extend.ops()
    bounds = {"axes": [0, 1], "starts": [3, -1], "ends": [-(2**31) + 1, 0], "strides": [-2, -1]}
    outs = [x[::2], x[::-1], x[:, ::-2], x[-1:-4:-1], x[1:4:2, -1::-3], ops.strided_slice(x, **bounds)]
    fluid.save_model(tmp_path / "net.pdmodel", feeds="x", fetches=outs, target="paddle-2.6")
    value = np.arange(20, dtype="float32").reshape(4, 5)
    found = paddle(RUN, x=value)
    wanted = [value[::2], value[::-1], value[:, ::-2], value[-1:-4:-1], value[1:4:2, -1::-3], value[3::-2, -1:0:-1]]
    for index, want in enumerate(wanted):
        np.testing.assert_array_equal(found[str(index)], want)


def test_a_maximum_over_all_axes_in_paddle_2_6(paddle: Paddle, tmp_path: Path) -> None:
    x, ops = fluid.data("x", [3, 4]), fluid.extend.ops()
    outs = [ops.reduce_amax(x, reduce_all=True), ops.reduce_amin(x, reduce_all=True), ops.reduce_amax(x, dim=[], keep_dim=True)]
    fluid.save_model(tmp_path / "net.pdmodel", feeds="x", fetches=outs, target="paddle-2.6")
    value = np.arange(1, 13, dtype="float32").reshape(3, 4)
    found = paddle(RUN, x=value)
    assert [found[str(i)].ravel().tolist() for i in range(3)] == [[12.0], [1.0], [12.0]]


def test_paddle_2_6_trains_a_batch_norm(paddle: Paddle, tmp_path: Path) -> None:
    """With the workspace that it asks for, which older programs and models from ONNX do not have: three steps go as here."""
    x = fluid.data("x", [4, 3, 2, 2])
    loss = layers.mean(layers.square(layers.batch_norm(layers.conv2d(x, 3, 1)) - 1.0))
    fluid.optimizer.SGD(0.1).minimize(loss)
    for op in fluid.default_main_program().global_block().ops:
        op.inputs.pop("ReserveSpace", None)
        op.outputs.pop("ReserveSpace", None)
    fluid.default_startup_program().random_seed = 1
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    fluid.save_model(tmp_path / "net.pdmodel", target="paddle-2.6")
    value = np.random.default_rng(0).standard_normal((4, 3, 2, 2)).astype("float32")
    want = [float(executor.run(feed={"x": value}, fetch_list=[loss])[0]) for _ in range(3)]
    found = paddle(
        f"""
        program = static.Program.parse_from_string(open("net.pdmodel", "rb").read())
        state = static.deserialize_persistables(program, open("net.pdiparams", "rb").read(), executor)
        found["losses"] = np.array([executor.run(program, {{"x": given["x"]}}, ["{loss.name}"])[0] for _ in range(3)])
        """,
        x=value,
    )
    np.testing.assert_allclose(found["losses"].ravel(), want, rtol=1e-4)
    assert want[2] < want[0]

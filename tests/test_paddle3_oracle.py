"""Programs that Fluid writes for Paddle 3, loaded and run by PaddlePaddle 3.3.1; and the ways between 1.x, 2.6 and 3.x.

    pytest -n 0 -m paddle3

Paddle is installed into environments of its own, once, with this Python; ``FLUID_PADDLE3_PYTHON`` and ``FLUID_PADDLE_PYTHON``
name the Pythons of those (3.3.1, 2.6.2) that are there already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles import Paddle, environment, runner
from samples import OPS, Sample, cast
from test_paddle3 import FOLDER, INFERENCE, TRAINING, arrays_of, feed_of, losses
from test_paddle_files import PRELUDE, images, lenet, train

import fluid
from fluid import layers
from fluid.errors import FluidError
from fluid.executor import Scope, scope_guard
from fluid.ir.program import Operator
from fluid.opdef.registry import Rule, all_ops
from fluid.values.types import VarType

pytestmark = [pytest.mark.paddle3, pytest.mark.usefixtures("fresh")]


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
def programs() -> Iterator[tuple[str, fluid.Program, dict[str, Any], list[str]]]:
    """For samples of each op, forward and with its gradient: a name, the program, what it is fed, what it computes."""
    for op_type, samples in sorted(OPS.items()):
        for index, sample in enumerate(samples[:3]):
            for gradient in (False, True)[: 1 + isinstance(all_ops()[op_type].rule, Rule)]:
                built = None if sample.lods else program_of(op_type, sample, gradient)
                if built is not None:
                    yield (f"{op_type}-{index}{'-grad' * gradient}", *built)


def program_of(op_type: str, sample: Sample, gradient: bool) -> tuple[fluid.Program, dict[str, Any], list[str]] | None:
    """The program of one sample; None for ops that are appended with what no sample says."""
    program, definition, feed = fluid.Program(), all_ops()[op_type], {}
    block = program.global_block()

    def data(name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [data(f"{name}_{i}", item) for i, item in enumerate(value)]
        feed[name] = value
        var = block.create_var(name=name, shape=value.shape, dtype=value.dtype, is_data=True, need_check_feed=True)
        var.stop_gradient = value.dtype.kind != "f"
        return var

    def flat(values: Any) -> list[Any]:
        return [item for value in values for item in (value if isinstance(value, list) else [value])]

    values = cast({slot: value for slot, value in sample.inputs.items() if value is not None}, sample.dtypes[0])
    inputs = {slot: data(slot, value) for slot, value in values.items()}
    try:
        with fluid.program_guard(program, fluid.Program()):
            outputs = block.namespace.apply(definition, inputs, sample.attrs)
            results = flat(value for slot, value in outputs.items() if not definition.outputs[slot].intermediate)
            if gradient:
                wanted = [var for var in flat(inputs.values()) if not var.stop_gradient]
                results = [var for var in results if var.dtype in (VarType.FP32, VarType.FP64)][:1]
                results = [var for var in fluid.gradients(results, wanted) if var is not None] if results and wanted else []
    except FluidError:
        return None
    return (program, feed, [var.name for var in results]) if results else None


OTHERWISE = {
    "batch_norm": "ReserveSpace is of bytes there",
    "check_finite_and_unscale": "scaled infinities are NaN there",
    "cholesky_solve": "its gradient by the decomposition differs there",
    "deformable_conv": "its gradient differs there",
    "dpsgd": "random",
    "dropout": "random",
    "eig": "the order of eigenvalues is open, and the factor of each vector",
    "eigvals": "the order of eigenvalues is open",
    "fused_bias_residual_layernorm": "it computes something else on a CPU there",
    "gaussian_inplace": "random",
    "gaussian_random": "random",
    "isclose": "infinities of either sign are close there",
    "masked_fill": "the gradient of its number is 0 there",
    "matrix_rank": "ranks are int64 there",
    "polygamma": "it is infinite or not at the poles",
    "rnn": "the state of dropout is not kept here, and its gradient not there",
    "seed": "random",
    "shuffle_batch": "random",
    "truncated_gaussian_random": "random",
    "uniform_random": "random",
    "uniform_random_batch_size_like": "random",
    "uniform_random_inplace": "random",
    "view_shape": "its predictor leaves the shape as it was",
    "yolov3_loss": "its gradient differs there",
}
"""Ops of which Paddle 3 computes something else, and why."""

SWEEP = """
import glob, os
for path in sorted(glob.glob("*.json")):
    key = path[:-5]
    reader, writer = os.pipe()
    child = os.fork()  # Paddle ends the process over some ops
    if not child:
        try:
            program, feeds, fetches = static.load_inference_model(key, executor)
            values = np.load(key + ".npz")
            outputs = executor.run(program, {name: values["in/" + name] for name in feeds}, fetches)
            answer = ""
            for index, output in enumerate(outputs):
                want = values[f"out/{index}"]
                if output.dtype != want.dtype or output.shape != want.shape and output.size * want.size != 1:
                    answer = f"differs: {output.dtype}{output.shape}, not {want.dtype}{want.shape}"
                elif not np.allclose(output, want, rtol=1e-3, atol=1e-4, equal_nan=True):
                    answer = f"differs by {np.abs(output.astype(float) - want.astype(float)).max()}"
        except BaseException as error:
            answer = "fails: " + str(error)[-300:]
        os.write(writer, (answer or "same").encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        found[key] = np.array(pipe.read().decode() or "fails: the process ended")
    os.waitpid(child, 0)
"""


def test_ops_and_their_gradients_compute_the_same_in_paddle_3(paddle3: Paddle, tmp_path: Path) -> None:
    """An op that is written is the same op: Paddle may refuse what it does not allow, but computes nothing else."""
    ends: Counter[str] = Counter()
    for key, program, feed, names in programs():
        with scope_guard(Scope()):
            try:
                want = fluid.Executor().run(program, feed, names)
            except FluidError:  # some outputs have no value
                continue
            root = program.global_block()
            root.create_var(name="fetch", type=VarType.FETCH_LIST, persistable=True)
            for column, name in enumerate(names):
                root.ops.append(Operator(root, "fetch", {"X": [name]}, {"Out": ["fetch"]}, {"col": column}))
            try:
                fluid.save_model(tmp_path / f"{key}.json", program)
            except FluidError as error:
                assert "cannot be written for paddle-3" in str(error), key
                ends["refused"] += 1
                continue
        arrays = {f"in/{name}": value for name, value in feed.items()}
        np.savez(tmp_path / f"{key}.npz", **arrays, **{f"out/{i}": np.asarray(value) for i, value in enumerate(want)})
    answers = {key: str(answer) for key, answer in paddle3(SWEEP).items()}
    ends.update(answer.partition(" ")[0].rstrip(":") for answer in answers.values())
    different = {key: answer for key, answer in answers.items() if answer.startswith("differs")}
    assert {key.partition("-")[0] for key in different} <= set(OTHERWISE), different
    assert ends["same"] > 1600 and ends["fails"] < 150, (ends, {k: v for k, v in answers.items() if v.startswith("fails")})


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

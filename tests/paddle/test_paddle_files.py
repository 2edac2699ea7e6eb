"""Files exchanged with PaddlePaddle 2.6.2: what one writes, the other loads and runs with the same numbers.

    pytest -m paddle tests/paddle/test_paddle_files.py

Paddle is installed into an environment of its own, once, with this Python (3.8 to 3.12); ``FLUID_PADDLE_PYTHON`` names the Python
of one that is there already.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles import Paddle, environment, runner

import fluid
from fluid import io, layers, nets
from fluid.executor import Scope, scope_guard
from fluid.ir.program import Program
from fluid.values.selected_rows import SelectedRows
from fluid.values.types import VarType

pytestmark = pytest.mark.paddle

PRELUDE = """
import numpy as np
import paddle
paddle.enable_static()
from paddle import static
executor = static.Executor(paddle.CPUPlace())
given = dict(np.load("given.npz"))
found = {}
"""


@pytest.fixture(scope="session")
def paddle_python(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with Paddle 2.6.2."""
    packages = ("numpy<2", "protobuf<=3.20.3", "setuptools<70")
    return environment(pytestconfig, tmp_path_factory, "2.6.2", "FLUID_PADDLE_PYTHON", *packages)


@pytest.fixture
def paddle(paddle_python: str, tmp_path: Path) -> Paddle:
    """Runs code in Paddle's Python, in the test's folder."""
    return runner(paddle_python, tmp_path, PRELUDE)


def images(number: int = 0) -> dict[str, Any]:
    draw = np.random.default_rng(number)
    return {"img": draw.normal(size=(4, 1, 28, 28)).astype("float32"), "label": draw.integers(0, 10, (4, 1))}


def lenet(optimizer: Any) -> tuple[fluid.Variable, fluid.Variable]:
    """The digits network of Paddle's book, with a batch_norm; its prediction and its loss."""
    img, label = fluid.data("img", [None, 1, 28, 28]), fluid.data("label", [None, 1], "int64")
    first = nets.simple_img_conv_pool(img, 6, 5, 2, 2, act="relu")
    second = nets.simple_img_conv_pool(layers.batch_norm(first), 16, 5, 2, 2, act="relu")
    prediction = layers.fc(layers.fc(second, 84, act="relu"), 10, act="softmax")
    loss = layers.mean(layers.cross_entropy(prediction, label))
    optimizer.minimize(loss)
    return prediction, loss


def train(loss: fluid.Variable, start: int, stop: int) -> list[Any]:
    executor = fluid.Executor()
    return [executor.run(feed=images(number), fetch_list=[loss])[0] for number in range(start, stop)]


def close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=tolerance, atol=tolerance)


# ------------------------------------------------------------------------------------------------------- ours by Paddle
def test_paddle_runs_our_inference_model(paddle: Paddle, tmp_path: Path) -> None:
    prediction, loss = lenet(fluid.optimizer.Adam(0.01))
    fluid.default_startup_program().random_seed = 1
    fluid.Executor().run(fluid.default_startup_program())
    train(loss, 0, 3)
    test = fluid.default_main_program().clone(for_test=True)
    (want,) = fluid.Executor().run(test, {"img": images()["img"]}, [prediction.name])
    io.save_inference_model(str(tmp_path), ["img"], [prediction], fluid.Executor(), None, "net.pdmodel", "net.pdiparams")
    fluid.save_model(tmp_path / "again.pdmodel", feeds="img", fetches=prediction, target="paddle-2.6")
    io.save_inference_model(str(tmp_path / "separate"), ["img"], [prediction], fluid.Executor())
    found = paddle(
        """
        for name in ("net", "again"):
            program, feeds, fetches = static.load_inference_model(name, executor)
            assert feeds == ["img"], feeds
            found[name], = executor.run(program, {"img": given["img"]}, fetches)
        names = {"model_filename": "__model__", "params_filename": None}
        program, feeds, fetches = static.load_inference_model("separate", executor, **names)
        found["separate"], = executor.run(program, {"img": given["img"]}, fetches)
        """,
        img=images()["img"],
    )
    for name in ("net", "again", "separate"):
        close(found[name], want)


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "adam": lambda: fluid.optimizer.Adam(0.01),
    "momentum": lambda: fluid.optimizer.Momentum(fluid.layers.exponential_decay(0.1, 2, 0.5), 0.9),
}


@pytest.mark.parametrize("way", ["combined", "separate", "pickles"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_paddle_continues_our_training(paddle: Paddle, tmp_path: Path, optimizer: str, way: str) -> None:
    _, loss = lenet(OPTIMIZERS[optimizer]())
    program = fluid.default_main_program()
    fluid.default_startup_program().random_seed = 1
    fluid.Executor().run(fluid.default_startup_program())
    train(loss, 0, 3)
    if way == "pickles":
        fluid.save(program, str(tmp_path / "net"))
        load = 'static.load(program, "net", executor)'
    else:
        (tmp_path / "net.pdmodel").write_bytes(program.serialize_to_string())
        filename = "all" if way == "combined" else None
        io.save_persistables(fluid.Executor(), str(tmp_path / "values"), program, filename)
        load = f'static.io.load_vars(executor, "values", program, predicate=static.io.is_persistable, filename={filename!r})'
    want = train(loss, 3, 5)
    values = {f"{key}{number}": value for number in (3, 4) for key, value in images(number).items()}
    found = paddle(
        f"""
        program = static.Program.parse_from_string(open("net.pdmodel", "rb").read())
        {load}
        for step in (3, 4):
            feed = {{"img": given[f"img{{step}}"], "label": given[f"label{{step}}"]}}
            found[f"loss{{step}}"], = executor.run(program, feed, ["{loss.name}"])
        found["w"] = np.array(static.global_scope().find_var("fc_1.w_0").get_tensor())
        """,
        **values,
    )
    close([found["loss3"].item(), found["loss4"].item()], [value.item() for value in want], 1e-4)
    close(found["w"], np.asarray(fluid.global_scope().array("fc_1.w_0")), 1e-4)


def test_paddle_reads_our_sparse_rows_and_sequences(paddle: Paddle, tmp_path: Path) -> None:
    program = Program()
    root = program.global_block()
    root.create_var(name="rows", shape=[7, 3], dtype="float32", type=VarType.SELECTED_ROWS, persistable=True)
    root.create_var(name="words", shape=[5, 1], dtype="float32", lod_level=2, persistable=True)
    root.create_var(name="half", shape=[2, 2], dtype="float16", persistable=True)
    scope = fluid.global_scope()
    scope.put("rows", SelectedRows(np.array([2, 5, 2]), np.arange(9, dtype="float32").reshape(3, 3), 7))
    scope.put("words", np.arange(5, dtype="float32").reshape(5, 1))
    scope.var("words").get_tensor().set_lod([[0, 2, 3], [0, 2, 4, 5]])
    scope.put("half", np.array([[1, 2], [0.5, -1]], "float16"))
    io.save_persistables(None, str(tmp_path / "values"), program)
    found = paddle(
        """
        program = static.Program()
        block = program.global_block()
        kinds = paddle.base.core.VarDesc.VarType
        for name, kind in (("rows", kinds.SELECTED_ROWS), ("words", kinds.LOD_TENSOR), ("half", kinds.LOD_TENSOR)):
            var = block.create_var(name=name, type=kind, persistable=True)
            block.append_op(type="load", outputs={"Out": [var]}, attrs={"file_path": "values/" + name})
        executor.run(program)
        scope = static.global_scope()
        rows = scope.find_var("rows").get_selected_rows()
        found["index"], found["height"], found["rows"] = rows.rows(), rows.height(), np.array(rows.get_tensor())
        words = scope.find_var("words").get_tensor()
        found["words"], (found["outer"], found["inner"]) = np.array(words), words.lod()
        found["half"] = np.array(scope.find_var("half").get_tensor())
        """
    )
    assert found["index"].tolist() == [2, 5, 2] and found["height"] == 7 and found["rows"].ravel().tolist() == list(range(9))
    assert found["words"].ravel().tolist() == list(range(5))
    assert found["outer"].tolist() == [0, 2, 3] and found["inner"].tolist() == [0, 2, 4, 5]
    assert found["half"].dtype == np.float16 and found["half"].tolist() == [[1, 2], [0.5, -1]]


# ------------------------------------------------------------------------------------------------------- Paddle's here
THEIRS = """
    paddle.seed(3)
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        img, label = static.data("img", [None, 1, 28, 28]), static.data("label", [None, 1], "int64")
        hidden = paddle.nn.functional.max_pool2d(paddle.nn.Conv2D(1, 6, 5)(img), 2, 2)
        hidden = paddle.nn.functional.relu(paddle.nn.BatchNorm2D(6)(hidden))
        prediction = paddle.nn.functional.softmax(static.nn.fc(hidden, 10))
        loss = paddle.mean(paddle.nn.functional.cross_entropy(prediction, label, use_softmax=False))
        test = main.clone(for_test=True)
        paddle.optimizer.Adam(0.01).minimize(loss)
    executor.run(startup)
    def step(number):
        feed = {"img": given[f"img{number}"], "label": given[f"label{number}"]}
        return executor.run(main, feed, [loss])[0]
    for number in range(3):
        step(number)
    static.save_inference_model("net", [img], [prediction], executor, program=main)
    static.io.save_vars(executor, "separate", main, predicate=static.io.is_persistable)
    static.save(main, "train")
    found["prediction"], = executor.run(test, {"img": given["img0"], "label": given["label0"]}, [prediction])
    found["losses"] = np.array([step(number).item() for number in (3, 4)])
    found["loss"], found["target"] = np.array(loss.name), np.array(prediction.name)
    found["w"] = np.array(static.global_scope().find_var("fc_0.w_0").get_tensor())
"""


def test_we_run_and_continue_what_paddle_wrote(paddle: Paddle, tmp_path: Path) -> None:
    values = {f"{key}{number}": value for number in range(5) for key, value in images(number).items()}
    found = paddle(THEIRS, **values)
    executor = fluid.Executor()
    with scope_guard(Scope()):
        model = fluid.load_model(tmp_path / "net")
        close(executor.run(model.program, {"img": values["img0"]}, model.fetches)[0], found["prediction"])
    with scope_guard(Scope()):
        program, feeds, fetches = io.load_inference_model(str(tmp_path / "net"), executor)
        close(executor.run(program, {feeds[0]: values["img0"]}, fetches)[0], found["prediction"])
        io.save_persistables(executor, str(tmp_path), program, "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / "net.pdiparams").read_bytes()
    program = Program.parse_from_string((tmp_path / "train.pdmodel").read_bytes())
    for load in (
        lambda: fluid.load(program, str(tmp_path / "train")),
        lambda: io.load_persistables(executor, str(tmp_path / "separate"), program),
    ):
        with scope_guard(Scope()):
            load()
            losses = [executor.run(program, images(number), [str(found["loss"])])[0].item() for number in (3, 4)]
            close(losses, found["losses"], 1e-4)
            close(fluid.global_scope().array("fc_0.w_0"), found["w"], 1e-4)


def test_we_read_paddles_bfloat16_and_sparse_rows(paddle: Paddle, tmp_path: Path) -> None:
    paddle(
        """
        main, startup = static.Program(), static.Program()
        with static.program_guard(main, startup):
            ids = static.data("ids", [None, 1], "int64")
            out = paddle.nn.Embedding(7, 3, sparse=True)(ids)
            gradient = static.append_backward(paddle.sum(out))[0][1]
            block = main.global_block()
            short = block.create_var(name="short", dtype="bfloat16", shape=[2, 2])
            value = paddle.full([2, 2], 1.7)
            block.append_op(type="cast", inputs={"X": [value]}, outputs={"Out": [short]}, attrs={"in_dtype": 5, "out_dtype": 22})
            for name, var in (("short", short), ("rows", gradient)):
                block.append_op(type="save", inputs={"X": [var]}, attrs={"file_path": name})
        executor.run(startup)
        executor.run(main, {"ids": np.array([[2], [5], [2]])})
        """
    )
    program = Program()
    root = program.global_block()
    root.create_var(name="rows", shape=[7, 3], dtype="float32", type=VarType.SELECTED_ROWS, persistable=True)
    root.create_var(name="short", shape=[2, 2], dtype="float32", persistable=True)
    io.load_persistables(fluid.Executor(), str(tmp_path), program)
    rows = fluid.global_scope().array("rows")
    assert rows.rows() == [2, 5, 2] and rows.height() == 7 and (np.asarray(rows.value) == 1).all()
    assert (fluid.global_scope().array("short") == np.float32(1.703125)).all() or (
        fluid.global_scope().array("short") == np.float32(1.6953125)
    ).all()

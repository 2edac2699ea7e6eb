"""Helpers for loops that train: stopping, learning rates, accumulation, checkpoints of the best, logs and their plots."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph, layers, training
from fluid.errors import ExecutionError, FluidTypeError, FormatError, NameNotFoundError, ProgramError


# -------------------------------------------------------------------------------------------------- stopping, and rates
def test_stopping_counts_what_is_not_better() -> None:
    stopping = training.EarlyStopping(patience=2, goal="greatest", least_change=0.1)
    assert [stopping.is_over(number) for number in (np.array([0.5]), 0.55, 0.65, 0.7)] == [False] * 4
    assert stopping.best == 0.65  # 0.7 is better by less than 0.1
    later = training.EarlyStopping(patience=2, goal="greatest", least_change=0.1)
    later.load_state_dict(stopping.state_dict())
    assert later.is_over(float("nan"))
    assert not training.EarlyStopping(patience=2).is_over(float("nan"))


def test_stopping_says_what_it_cannot_use() -> None:
    for arguments, said in (
        ({"patience": 0}, "patience .* not 0"),
        ({"goal": "min"}, "'least'.*not 'min'"),
        ({"least_change": -1}, "not -1"),
    ):
        with pytest.raises(ProgramError, match=said):
            training.EarlyStopping(**arguments)  # type: ignore[arg-type]
    with pytest.raises(FluidTypeError, match=r"EarlyStopping should be a number.*'low'"):
        training.EarlyStopping().is_over("low")


def regression(optimizer: Any, rows: int | None = None) -> Any:
    """A program that fits a small net, and its loss."""
    x, y = fluid.data("x", [rows, 4]), fluid.data("y", [rows, 1])
    hidden = layers.fc(x, 8, act="tanh")
    loss = layers.mean(layers.square_error_cost(layers.fc(hidden, 1), y))
    optimizer.minimize(loss)
    fluid.default_startup_program().random_seed = 3
    return loss


def feeds(count: int, rows: int = 4) -> list[dict[str, Any]]:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(count, rows, 4)).astype("float32")
    return [{"x": each, "y": each.sum(1, keepdims=True)} for each in x]


def values() -> dict[str, Any]:
    """Copies of all that the default program keeps."""
    kept = (var for var in fluid.default_main_program().list_vars() if var.persistable)
    return {var.name: np.array(fluid.global_scope().array(var.name)) for var in kept}


def test_a_rate_is_lowered_in_a_program() -> None:
    optimizer = fluid.optimizer.Adam(0.5)
    regression(optimizer)
    plateau = training.ReduceOnPlateau(optimizer, factor=0.5, patience=2, pause=1, least_rate=0.2)
    with pytest.raises(ExecutionError, match="run the startup program"):
        plateau.update(1.0)
    fluid.Executor().run(fluid.default_startup_program())
    plateau = training.ReduceOnPlateau(optimizer, factor=0.5, patience=2, pause=1, least_rate=0.2)
    assert [plateau.update(loss) for loss in (1, 1, 1, 1, 1, 1, 1, 1)] == [0.5, 0.5, 0.25, 0.25, 0.25, pytest.approx(0.2)] + [
        pytest.approx(0.2)
    ] * 2
    (name,) = [name for name in values() if "learning_rate" in name]
    assert values()[name] == np.float32(0.2)


def test_a_rate_is_lowered_eagerly() -> None:
    with dygraph.guard():
        w = dygraph.Parameter([1.0])
        optimizer = fluid.optimizer.SGD(0.5, parameter_list=[w])
        plateau = training.ReduceOnPlateau(fluid.optimizer.LookaheadOptimizer(optimizer, k=100), factor=0.5, patience=1)
        assert [plateau.update(1.0), plateau.update(1.0)] == [0.5, 0.25]
        for expected in (0.75, 0.625):  # 1 - 0.25, and then by half of that
            w.sum().backward()
            optimizer.step()
            optimizer.clear_grad()
            assert w.numpy() == [expected]
            plateau.update(1.0)


def test_a_rate_that_a_schedule_computes_is_not_set() -> None:
    optimizer = fluid.optimizer.SGD(layers.exponential_decay(0.1, 10, 0.5))
    with pytest.raises(ProgramError, match="computed by a schedule"):
        training.set_learning_rate(optimizer, 0.1)
    with pytest.raises(ProgramError, match="finite number, at least 0, not nan"):
        training.set_learning_rate(fluid.optimizer.SGD(0.1), float("nan"))
    with pytest.raises(FluidTypeError, match="should be an optimizer"):
        training.learning_rate_of(0.1)


# --------------------------------------------------------------------------------------------------------- accumulation
OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": lambda **more: fluid.optimizer.SGD(0.1, **more),
    "adam": lambda **more: fluid.optimizer.Adam(
        0.05, regularization=fluid.regularizer.L2Decay(0.01), grad_clip=fluid.clip.GradientClipByGlobalNorm(0.1), **more
    ),
}


@each("name", OPTIMIZERS)
def test_three_batches_update_as_one(name: str) -> None:
    """In a program, parameters equal those of joint batches, and do not change between updates."""
    parts, found = feeds(6), []
    whole = [{key: np.concatenate([part[key] for part in parts[at : at + 3]]) for key in ("x", "y")} for at in (0, 3)]
    for steps, batches in ((1, whole), (3, parts)):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
            regression(training.GradientAccumulation(OPTIMIZERS[name](), steps))
            executor = fluid.Executor()
            executor.run(startup)
            rests = []
            for feed in batches:
                before = values()["fc_0.w_0"]
                executor.run(main, feed)
                rests.append(np.array_equal(values()["fc_0.w_0"], before))
            found.append({key: value for key, value in values().items() if "accumulated" not in key})
            assert rests == ([False, False] if steps == 1 else [True, True, False] * 2)
    assert found[0].keys() == found[1].keys()
    for key in found[0]:
        np.testing.assert_allclose(found[0][key], found[1][key], rtol=1e-5, atol=1e-6, err_msg=key)


def test_sparse_gradients_are_accumulated() -> None:
    ids = fluid.data("ids", [None, 1], "int64")
    loss = layers.reduce_sum(layers.embedding(ids, [4, 2], is_sparse=True, param_attr=fluid.initializer.Constant(0.0)))
    training.GradientAccumulation(fluid.optimizer.SGD(1.0), 2).minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    for number in ([0, 1], [1, 3]):
        executor.run(feed={"ids": np.array(number)[:, None]})
    np.testing.assert_array_equal(values()["embedding_0.w_0"], [[-0.5, -0.5], [-1, -1], [0, 0], [-0.5, -0.5]])


def test_accumulation_goes_on_from_a_checkpoint_between_updates(tmp_path: Path) -> None:
    regression(training.GradientAccumulation(fluid.optimizer.Adam(0.1), 3))
    executor, batches = fluid.Executor(), feeds(6)
    executor.run(fluid.default_startup_program())
    for number, feed in enumerate(batches):
        if number == 4:
            fluid.save_checkpoint(fluid.default_main_program(), tmp_path / "a.ckpt", number)
        executor.run(feed=feed)
    expected = values()
    with fluid.scope_guard(fluid.Scope()):
        fluid.load_checkpoint(fluid.default_main_program(), tmp_path / "a.ckpt")
        for feed in batches[4:]:
            executor.run(feed=feed)
        for name, value in values().items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)


def test_gradients_are_accumulated_eagerly() -> None:
    with dygraph.guard():
        w = dygraph.Parameter([1.0, 2.0])
        optimizer = training.GradientAccumulation(fluid.optimizer.Adam(0.5, parameter_list=[w]), 2)
        other = dygraph.Parameter([1.0, 2.0])
        plain = fluid.optimizer.Adam(0.5, parameter_list=[other])
        for _ in range(3):
            for factor in ([1.0, -1.0], [3.0, 5.0]):
                loss = (w * w * dygraph.to_variable(np.array(factor, "float32"))).sum()
                loss.backward()
                optimizer.minimize(loss)
                optimizer.clear_grad()
            (other * other * dygraph.to_variable(np.array([2.0, 2.0], "float32"))).sum().backward()
            plain.step()
            plain.clear_grad()
        np.testing.assert_allclose(w.numpy(), other.numpy(), rtol=1e-6)
    with pytest.raises(ProgramError, match="steps should be a number of batches, at least 1, not 0"):
        training.GradientAccumulation(fluid.optimizer.SGD(0.1), 0)
    with pytest.raises(FluidTypeError, match="takes an optimizer"):
        training.GradientAccumulation(0.1, 2)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------- search of a rate
def test_a_rate_is_found_and_everything_put_back() -> None:
    optimizer = fluid.optimizer.Adam(0.25)
    loss = regression(optimizer)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    before, runs = values(), fluid.global_scope().runs
    search = training.find_learning_rate(
        lambda feed: executor.run(feed=feed, fetch_list=[loss]), feeds(7, 16), optimizer, least=1e-5, greatest=10.0, count=60
    )
    assert 20 < len(search.rates) == len(search.losses) == len(search.smoothed) <= 60
    assert search.rates[0] == pytest.approx(1e-5) and search.suggestion is not None and 1e-4 < search.suggestion < 3
    assert fluid.global_scope().runs == runs
    for name, value in values().items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)


def test_a_rate_is_found_eagerly() -> None:
    with dygraph.guard():
        net = dygraph.Linear(4, 1)
        optimizer = fluid.optimizer.Adam(0.25, parameter_list=net.parameters())

        def step(feed: dict[str, Any]) -> Any:
            loss = layers.mean(layers.square_error_cost(net(dygraph.to_variable(feed["x"])), dygraph.to_variable(feed["y"])))
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            return loss

        before = net.weight.numpy().copy()
        search = training.find_learning_rate(step, feeds(5, 16), optimizer, count=30, layer=net)
        assert len(search.losses) == 30 and min(search.losses) < search.losses[0]
        np.testing.assert_array_equal(net.weight.numpy(), before)
        assert training.learning_rate_of(optimizer) == 0.25 and not optimizer.state_dict()


def test_a_search_says_what_it_cannot_use() -> None:
    optimizer = fluid.optimizer.SGD(0.1)
    with pytest.raises(ProgramError, match="trains nothing yet"):
        training.find_learning_rate(lambda feed: 1.0, feeds(1), optimizer)
    regression(optimizer)
    fluid.Executor().run(fluid.default_startup_program())
    with pytest.raises(ProgramError, match="there are 0 finite losses"):
        training.find_learning_rate(lambda feed: float("nan"), feeds(3), optimizer)
    with pytest.raises(ProgramError, match="there are 3 finite losses"):
        training.find_learning_rate(lambda feed: 1.0, iter(feeds(3)), optimizer)
    with pytest.raises(ProgramError, match="0 < least < greatest"):
        training.find_learning_rate(lambda feed: 1.0, feeds(3), optimizer, least=0)


# ------------------------------------------------------------------------------------------------- checkpoints of the best
def test_the_best_are_kept_also_by_a_new_process(tmp_path: Path) -> None:
    def offer(best: training.BestCheckpoints, step: int, accuracy: float) -> bool:
        def save(path: str) -> None:
            Path(f"{path}.pdparams").write_text(str(accuracy))

        return best.offer(step, accuracy, save)

    best = training.BestCheckpoints(tmp_path / "kept", keep=2, goal="greatest")
    assert best.path is None
    assert [offer(best, step, accuracy) for step, accuracy in enumerate((0.5, 0.7, 0.6, 0.4))] == [True, True, True, False]
    best = training.BestCheckpoints(tmp_path / "kept", keep=2, goal="greatest")
    assert [(step, number) for _, step, number in best.all] == [(1, 0.7), (2, 0.6)]
    assert offer(best, 10, 0.65) and not offer(best, 11, float("nan"))
    names = sorted(path.name for path in (tmp_path / "kept").iterdir())
    assert names == ["best.json", "step-1.ckpt.pdparams", "step-10.ckpt.pdparams"]
    assert best.path == str(tmp_path / "kept" / "step-1.ckpt")


def test_what_fails_to_be_saved_deletes_nothing(tmp_path: Path) -> None:
    best = training.BestCheckpoints(tmp_path)
    best.offer(1, 0.5, lambda path: Path(path).write_text("whole"))
    with pytest.raises(OSError, match="disk"):
        best.offer(2, 0.25, lambda path: (_ for _ in ()).throw(OSError("the disk is full")))
    assert best.path is not None and Path(best.path).read_text() == "whole"
    (tmp_path / "best.json").write_text('[["../x", 1]]')
    with pytest.raises(FormatError, match=r"best\.json: it should list steps"):
        training.BestCheckpoints(tmp_path)


# ------------------------------------------------------------------------------------------------------------- progress
def test_progress_moves_with_batches(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tqdm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with training.Progress(epochs=2, batches=2) as progress:
        for _ in range(3):
            progress.step(8)
        assert progress._bar.n == 3 and progress._bar.total == 4
        progress.epoch(loss=0.25, accuracy="97 %")
    out, bar = capsys.readouterr()
    assert out == "" and "epoch 2/2  75%|" in bar and "loss 0.2500  accuracy 97 %  " in bar
    for arguments in ((0,), (1, 0), (1.5,)):
        with pytest.raises(ProgramError, match="there should be one epoch or more"):
            training.Progress(*arguments)  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------------------- logs and plots
def test_a_log_goes_on_where_a_checkpoint_does(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "log.csv"
    with training.CSVLog(path) as log:
        for step in range(4):
            log.write(step, loss=np.float32(1 / (step + 1)))
        log.write(4, loss=0.125, **{"top 5, all": 0.5})
        assert path.read_text().splitlines()[-1] == "4,0.125,0.5"  # before it is closed
    with training.CSVLog(path, first_step=3) as log:
        log.write(3, accuracy=float("nan"))
    assert path.read_text() == "step,loss,accuracy\n0,1.0,\n1,0.5,\n2,0.3333333432674408,\n3,,nan\n"
    curves = training.read_log(path)
    assert list(curves) == ["loss", "accuracy"]
    np.testing.assert_array_equal(curves["loss"], [[0, 1, 2], [1.0, 0.5, np.float32(1 / 3)]])
    training.CSVLog(path).close()
    assert training.read_log(path) == {}
    with pytest.raises(ProgramError, match="has been closed"):
        log.write(5, loss=1.0)


@each("text, said", [
    ("", "its first line should be step,name"),
    ("step,loss\n1\n", "line 2: it should hold a step and 1 numbers, not '1'"),
    ("step,loss\n1,low\n", "line 2"),
    ("step,loss\nx,1\n", "line 2"),
    ("step,loss\n99999999999999999999,1\n", "line 2"),
    ("step,a,a\n", "its first line"),
    ("step,loss\n1,\x00\n", "cannot be read|line 2"),
])  # fmt: skip
def test_other_files_are_no_logs(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(FormatError, match=said):
        training.read_log(tmp_path / "log.csv")


def test_what_is_no_number_is_not_logged(tmp_path: Path) -> None:
    with training.CSVLog(tmp_path / "log.csv") as log:
        with pytest.raises(FluidTypeError, match="write: loss should be a number, or an array of one element"):
            log.write(1, loss=np.zeros(2))
        with pytest.raises(ProgramError, match="step should be a number of a step, at least 0, not -1"):
            log.write(-1, loss=0.5)
    with pytest.raises(FormatError, match="cannot be read"):
        training.read_log(tmp_path / "none.csv")


def test_a_log_of_tensorboard_is_read_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    with training.TensorBoardLog(tmp_path) as log:
        for step in range(4):
            log.write(step, loss=1 / (step + 1), accuracy=step / 4)
    with training.TensorBoardLog(tmp_path, first_step=2) as log:
        log.write(2, loss=8.0)
    curves = training.read_log(tmp_path)
    np.testing.assert_array_equal(curves["loss"], [[0, 1, 2], [1.0, 0.5, 8.0]])
    np.testing.assert_array_equal(curves["accuracy"], [[0, 1], [0.0, 0.25]])
    (first, _) = sorted(tmp_path.iterdir())
    data = first.read_bytes()
    first.write_bytes(data[:-5])  # its process died
    assert len(training.read_log(tmp_path)["loss"][0]) == 3
    first.write_bytes(data[:12] + b"\xff" * (len(data) - 12))
    with pytest.raises(FormatError, match="an event is damaged"):
        training.read_log(tmp_path)


def test_curves_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    with training.CSVLog(tmp_path / "log.csv") as log:
        for step in range(3):
            log.write(step, loss=1 / (step + 1), accuracy=step / 4)
    assert fluid.plots.curves(tmp_path / "log.csv", axes=axes) is axes
    assert [(line.get_label(), list(line.get_ydata())) for line in axes.get_lines()] == [
        ("loss", [1, 1 / 2, 1 / 3]), ("accuracy", [0, 1 / 4, 1 / 2])
    ]  # fmt: skip
    axes = fluid.plots.curves(tmp_path / "log.csv", ["loss"])
    assert axes.get_ylabel() == "loss"
    with pytest.raises(NameNotFoundError, match="no 'los'; did you mean loss"):
        fluid.plots.curves(tmp_path / "log.csv", ["los"])
    with pytest.raises(FluidTypeError, match="axes should be Axes"):
        fluid.plots.curves(tmp_path / "log.csv", axes=3)
    search = training.RateSearch(np.geomspace(1e-3, 1, 4), np.ones(4), np.ones(4), 0.01)
    axes = fluid.plots.learning_rates(search, Figure().subplots())
    assert axes.get_xscale() == "log" and "suggested: 0.01" in [text.get_text() for text in axes.get_legend().get_texts()]
    axes.figure.savefig(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_helpers_are_loaded_when_used() -> None:
    code = (
        "import sys, fluid; fluid.training; "
        "print(*{'csv', 'matplotlib', 'multiprocessing', 'tensorboardX', 'tqdm', 'fluid.training.logs'} & set(sys.modules)); "
        "fluid.training.CSVLog; print('fluid.training.logs' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\nTrue\n"
    with pytest.raises(AttributeError, match="no attribute 'EarlyStoping'"):
        _ = training.EarlyStoping  # type: ignore[attr-defined]

"""Libraries that train some parameters only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each
from libraries import Library, assert_equal_states

import fluid
from fluid import layers

pytestmark = pytest.mark.usefixtures("one_thread")


def net(parameters: list[str] | None, optimizer: Any) -> tuple[fluid.Program, fluid.Program, Any, Any]:
    """A net whose optimizer updates some parameters, all by default."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, label = fluid.data("x", [None, 2, 6, 6]), fluid.data("label", [None, 1], "int64")
        h = layers.conv2d(layers.conv2d(x, 4, 3, padding=1, act="relu"), 4, 3, act="relu")
        logits = layers.fc(layers.fc(h, 9, act="tanh"), 3)
        loss = layers.mean(layers.softmax_with_cross_entropy(logits, label))
        optimizer().minimize(loss, parameter_list=parameters)
    return main, startup, loss, logits


def clipped(make: Callable[..., Any]) -> Any:
    clip, decay = fluid.clip.GradientClipByGlobalNorm(0.1), fluid.regularizer.L2Decay(0.01)
    return make(grad_clip=clip, regularization=decay)


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: fluid.optimizer.SGD(0.1),
    "adam, clipped": lambda: clipped(lambda **how: fluid.optimizer.Adam(0.01, **how)),
    "momentum, clipped": lambda: clipped(lambda **how: fluid.optimizer.Momentum(0.1, 0.9, **how)),
}


def assert_trains_and_predicts(
    compiled: Any, executor: Any, scope: fluid.Scope, main: fluid.Program, loss: Any, logits: Any
) -> None:
    """A few steps and predictions of a library have the bits of the executor's."""
    library, test = Library(compiled), main.clone(for_test=True)
    for number in range(4):
        rng = np.random.default_rng(number)
        feed = {"x": rng.standard_normal((5, 2, 6, 6)).astype("float32"), "label": rng.integers(0, 3, (5, 1))}
        (expected,) = executor.run(main, feed, [loss], scope=scope)
        assert library.step(feed).tobytes() == expected.tobytes()
        (scores,) = executor.run(test, feed, [logits], scope=scope)
        assert library.call("predict_5", feed)[1]["logits"].tobytes() == scores.tobytes()
    assert_equal_states(library, scope)


TRAINED = ["conv2d_1.b_0", "fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"]
FROZEN = ["conv2d_0.*", "conv2d_1.w_0"]


@each("name", OPTIMIZERS)
def test_others_are_trained_as_if_nothing_else_could_be(name: str, tmp_path: Path) -> None:
    main, startup, loss, logits = net(TRAINED, OPTIMIZERS[name])
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    of_all, _, loss_of_all, logits_of_all = net(None, OPTIMIZERS[name])
    for variable in of_all.global_block().vars.values():
        if variable.persistable and scope.array(variable.name) is None:  # a moment of a frozen parameter
            scope.put(variable.name, np.zeros(variable.shape, "float32"))
    size = {}
    for key, freeze in {"all": [], "some": FROZEN}.items():
        compiled = fluid.compile_program(
            of_all, fetches={"loss": loss_of_all}, predict={"logits": logits_of_all}, scope=scope, batch=5, freeze=freeze,
            output=tmp_path / key / "net",
        )  # fmt: skip
        size[key] = compiled.description["state_bytes"], compiled.description["arena_bytes"]
    assert size["some"][0] < size["all"][0] and size["some"][1] < size["all"][1]
    assert set(compiled.description["frozen"]) == {"conv2d_0.w_0", "conv2d_0.b_0", "conv2d_1.w_0"}
    assert not any(key.startswith(("conv2d_0.", "conv2d_1.w_0")) for key in compiled.description["state"]), "nor their moments"
    assert_trains_and_predicts(compiled, executor, scope, main, loss, logits)


def rounded(array: Any, dtype: str) -> Any:
    """A weight as a library stores it."""
    if dtype == "float16":
        return array.astype("float16").astype("float32")
    axes = (1, 2, 3) if array.ndim == 4 else (0,)
    scales = np.abs(array).max(axes, keepdims=True) / np.float32(127)
    return np.rint(array / scales) * scales


@each("dtype", ["float16", "int8"])
def test_frozen_weights_take_fewer_bytes(dtype: str, tmp_path: Path) -> None:
    """The library computes as the executor does with rounded weights; vectors are not rounded."""
    trained = ["conv2d_1.w_0", "conv2d_1.b_0", "fc_1.w_0", "fc_1.b_0"]  # gradients pass through the frozen fc_0
    main, startup, loss, logits = net(trained, OPTIMIZERS["momentum, clipped"])
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    of_all, _, loss_of_all, logits_of_all = net(None, OPTIMIZERS["momentum, clipped"])
    for variable in of_all.global_block().vars.values():
        if variable.persistable and scope.array(variable.name) is None:
            scope.put(variable.name, np.zeros(variable.shape, "float32"))
    before = {name: np.array(scope.array(name)) for name in ("conv2d_0.w_0", "fc_0.w_0")}
    options = {"scope": scope, "batch": 5, "freeze": ["conv2d_0.*", "fc_0.*"]}
    compiled = fluid.compile_program(
        of_all,
        fetches={"loss": loss_of_all},
        predict={"logits": logits_of_all},
        frozen_as=dtype,
        output=tmp_path / "net",
        **options,
    )
    assert all((scope.array(name) == array).all() for name, array in before.items())
    report = fluid.ahead.report_memory(of_all, fetches=[loss_of_all], frozen_as=dtype, **options)
    plain = fluid.ahead.report_memory(of_all, fetches=[loss_of_all], **options)
    assert report.constants < 0.6 * plain.constants and report.arena_bytes <= plain.arena_bytes + 4 * before["fc_0.w_0"].size
    for name, array in before.items():
        scope.put(name, rounded(array, dtype))
    assert_trains_and_predicts(compiled, executor, scope, main, loss, logits)


def test_weights_that_cannot_be_stored(tmp_path: Path) -> None:
    main, startup, loss, _ = net(None, OPTIMIZERS["sgd"])
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)

    def compile_as(dtype: str, freeze: list[str]) -> None:
        fluid.compile_program(main, fetches=[loss], scope=scope, batch=5, freeze=freeze, frozen_as=dtype, output=tmp_path / "net")

    with pytest.raises(fluid.errors.ProgramError, match="stored as float32, float16, int8; did you mean int8"):
        compile_as("int9", ["fc_0.*"])
    with pytest.raises(fluid.errors.ProgramError, match="no parameter is frozen"):
        compile_as("int8", [])
    scope.put("fc_0.w_0", np.full((64, 9), 1e5, "float32"))
    with pytest.raises(fluid.errors.ProgramError, match=r"fc_0.w_0 has numbers beyond float16"):
        compile_as("float16", ["fc_0.*"])
    scope.put("fc_0.w_0", np.full((64, 9), np.nan, "float32"))
    with pytest.raises(fluid.errors.ProgramError, match=r"fc_0.w_0 is not finite"):
        compile_as("int8", ["fc_0.*"])
    assert not list(tmp_path.iterdir())


def test_patterns_that_fit_nothing(tmp_path: Path) -> None:
    main, startup, loss, _ = net(None, OPTIMIZERS["sgd"])
    with pytest.raises(fluid.errors.ProgramError, match=r"freeze: 'conv2d_9.w_0' fits no parameter; did you mean conv2d_"):
        fluid.compile_program(
            main, fetches=[loss], startup=startup, batch=5, freeze=["fc_*", "conv2d_9.w_0"], output=tmp_path / "net"
        )
    with pytest.raises(fluid.errors.ProgramError, match="updates nothing"):
        fluid.compile_program(main, fetches=[loss], startup=startup, batch=5, freeze=["*"], output=tmp_path / "net")


def test_a_report_tells_what_memory_is_for(tmp_path: Path) -> None:
    """Its parts add up to what the library needs; layers to freeze need what a library that freezes them needs."""
    main, startup, loss, _ = net(None, OPTIMIZERS["adam, clipped"])
    options = {"startup": startup, "batch": 5, "target": "cortex-m4"}
    report = fluid.ahead.report_memory(main, fetches=[loss], **options)
    description = fluid.compile_program(main, fetches=[loss], output=tmp_path / "net", **options).description
    assert (report.state_bytes, report.arena_bytes) == (description["state_bytes"], description["arena_bytes"])
    parameters = {name: part["bytes"] for name, part in description["state"].items() if name.endswith(("w_0", "b_0"))}
    assert report.state["parameters"] == sum(parameters.values())
    assert 2 * report.state["parameters"] <= report.state["moments"] <= 2 * report.state["parameters"] + 16 * len(parameters)
    assert all(size >= 0 for size in report.arena.values()) and report.arena["activations"] > 0
    assert list(report.frozen) == ["conv2d_0", "conv2d_0, conv2d_1", "conv2d_0, conv2d_1, fc_0"]
    frozen = fluid.compile_program(main, fetches=[loss], freeze=["conv2d_*"], output=tmp_path / "net", **options).description
    assert report.frozen["conv2d_0, conv2d_1"] == (frozen["state_bytes"], frozen["arena_bytes"])
    text = str(report)
    assert f"state: {description['state_bytes']} bytes" in text and "activations" in text and "freezing conv2d_0 leaves" in text
    less = fluid.ahead.report_memory(main, fetches=[loss], freeze=["conv2d_*"], **options)
    assert less.constants == sum(size for name, size in parameters.items() if name.startswith("conv2d"))
    assert list(less.frozen) == ["fc_0"]

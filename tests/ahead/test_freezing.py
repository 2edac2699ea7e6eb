"""Libraries that train some parameters only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each
from libraries import Library, compiler_of_c

import fluid
from fluid import layers


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    compiler_of_c()
    threads = fluid.get_num_threads()
    fluid.set_num_threads(1)
    yield
    fluid.set_num_threads(threads)


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
TRAINED = ["conv2d_1.b_0", "fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"]
FROZEN = ["conv2d_0.*", "conv2d_1.w_0"]


@each("name", OPTIMIZERS)
def test_others_are_trained_as_if_nothing_else_could_be(name: str, tmp_path: Path) -> None:
    main, startup, loss, logits = net(TRAINED, OPTIMIZERS[name])
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    whole, _, whole_loss, whole_logits = net(None, OPTIMIZERS[name])
    for variable in whole.global_block().vars.values():
        if variable.persistable and scope.array(variable.name) is None:  # moments of what is frozen
            scope.put(variable.name, np.zeros(variable.shape, "float32"))
    size = {}
    for key, freeze in {"all": [], "some": FROZEN}.items():
        made = fluid.compile_program(
            whole, fetches={"loss": whole_loss}, predict={"logits": whole_logits}, scope=scope, batch=5, freeze=freeze,
            output=tmp_path / key / "net",
        )  # fmt: skip
        size[key] = made.description["state_bytes"], made.description["arena_bytes"]
    assert size["some"][0] < size["all"][0] and size["some"][1] < size["all"][1]
    assert set(made.description["frozen"]) == {"conv2d_0.w_0", "conv2d_0.b_0", "conv2d_1.w_0"}
    assert not any(key.startswith(("conv2d_0.", "conv2d_1.w_0")) for key in made.description["state"]), "nor their moments"
    library = Library(made)
    test = main.clone(for_test=True)
    for number in range(4):
        rng = np.random.default_rng(number)
        feed = {"x": rng.standard_normal((5, 2, 6, 6)).astype("float32"), "label": rng.integers(0, 3, (5, 1))}
        (expected,) = executor.run(main, feed, [loss], scope=scope)
        assert library.step(feed).tobytes() == expected.tobytes()
        (scores,) = executor.run(test, feed, [logits], scope=scope)
        assert library.call("predict_5", feed)[1]["logits"].tobytes() == scores.tobytes()
    for variable, array in library.variables().items():
        assert array.tobytes() == np.array(scope.array(variable)).tobytes(), variable


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
    given = {"startup": startup, "batch": 5, "target": "cortex-m4"}
    report = fluid.ahead.report_memory(main, fetches=[loss], **given)
    made = fluid.compile_program(main, fetches=[loss], output=tmp_path / "net", **given).description
    assert (report.state_bytes, report.arena_bytes) == (made["state_bytes"], made["arena_bytes"])
    parameters = {name: part["bytes"] for name, part in made["state"].items() if name.endswith(("w_0", "b_0"))}
    assert report.state["parameters"] == sum(parameters.values())
    assert 2 * report.state["parameters"] <= report.state["moments"] <= 2 * report.state["parameters"] + 16 * len(parameters)
    assert all(size >= 0 for size in report.arena.values()) and report.arena["activations"] > 0
    assert list(report.frozen) == ["conv2d_0", "conv2d_0, conv2d_1", "conv2d_0, conv2d_1, fc_0"]
    frozen = fluid.compile_program(main, fetches=[loss], freeze=["conv2d_*"], output=tmp_path / "net", **given).description
    assert report.frozen["conv2d_0, conv2d_1"] == (frozen["state_bytes"], frozen["arena_bytes"])
    text = str(report)
    assert f"state: {made['state_bytes']} bytes" in text and "activations" in text and "freezing conv2d_0 leaves" in text
    less = fluid.ahead.report_memory(main, fetches=[loss], freeze=["conv2d_*"], **given)
    assert less.constants == sum(size for name, size in parameters.items() if name.startswith("conv2d"))
    assert list(less.frozen) == ["fc_0"]

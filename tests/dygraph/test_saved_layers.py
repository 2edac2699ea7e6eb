"""Layers as saved models, saved models as layers, and functions as programs, as in Fluid 1.8."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph, layers
from fluid.dygraph import InputSpec, ProgramTranslator, Tensor, jit
from fluid.errors import FluidTypeError, ProgramError

X = np.random.default_rng(0).standard_normal((6, 2, 8, 8)).astype("float32")


class Net(dygraph.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv = dygraph.Conv2D(2, 3, 3)
        self.norm = dygraph.BatchNorm(3)
        self.drop = dygraph.Dropout(0.5)
        self.out = dygraph.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        pooled = layers.reduce_mean(self.norm(self.conv(x)), dim=[2, 3])
        return self.out(self.drop(pooled))


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    with dygraph.guard():
        yield


def trained() -> Net:
    """A net in the mode for training, whose moving statistics have changed since the beginning."""
    net = Net()
    net(Tensor(X))
    return net


def test_a_layer_comes_back_from_a_file(tmp_path: Path) -> None:
    net = trained()
    jit.save(net, tmp_path / "net", [InputSpec([None, 2, 8, 8])])
    assert net.training and net.drop.training
    loaded = jit.load(tmp_path / "net")
    assert isinstance(loaded, jit.TranslatedLayer) and not loaded.training
    net.eval()
    for x in (X, X[:1]):
        np.testing.assert_allclose(loaded(x).numpy(), net(Tensor(x)).numpy(), rtol=1e-5, atol=1e-6)
    program, feeds, fetches = fluid.io.load_inference_model(str(tmp_path / "net"), fluid.Executor())
    (result,) = fluid.Executor().run(program, {feeds[0]: X}, fetches)
    np.testing.assert_allclose(result, net(Tensor(X)).numpy(), rtol=1e-5, atol=1e-6)


def test_a_saved_model_trains_further_as_the_layer_does(tmp_path: Path) -> None:
    net = trained()
    net.drop = dygraph.Dropout(0.0)
    jit.save(net, tmp_path / "net", [InputSpec([None, 2, 8, 8])])
    losses = []
    for layer in (net, jit.load(tmp_path / "net")):
        layer.train()
        optimizer = fluid.optimizer.Adam(0.05, parameter_list=layer.parameters())
        losses.append([])
        for _ in range(4):
            loss = layers.reduce_mean(layers.square(layer(Tensor(X)) - 1.0))
            loss.backward()
            optimizer.minimize(loss)
            layer.clear_gradients()
            losses[-1].append(loss.numpy().item())
        layer.eval()  # with the statistics of the training
        losses[-1].append(layers.reduce_mean(layer(Tensor(X))).numpy().item())
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    assert losses[0][3] < losses[0][0]


def test_a_folder_of_a_program_is_a_layer(tmp_path: Path) -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 4])
        y, z = layers.fc(x, 3, act="relu"), layers.fc(x, 2)
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        fluid.io.save_inference_model(
            str(tmp_path / "model"), ["x"], [y, z], executor, model_filename="program", params_filename="weights"
        )
        feed = np.random.default_rng(0).standard_normal((5, 4)).astype("float32")
        wanted = executor.run(feed={"x": feed}, fetch_list=[y, z])
    runner = dygraph.StaticModelRunner(tmp_path / "model", "program", "weights")
    assert runner.training and len(runner.parameters()) == 4
    for result, right in zip(runner(Tensor(feed)), wanted, strict=True):
        np.testing.assert_allclose(result.numpy(), right, rtol=1e-5)
    with pytest.raises(ProgramError, match="the model has the inputs x, and gets 2 values"):
        runner(feed, feed)


def test_a_model_with_a_loop_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 4])
        y = layers.cond(layers.reduce_sum(x) > 0.0, lambda: layers.fc(x, 3), lambda: layers.fc(x, 3))
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        fluid.io.save_inference_model(str(tmp_path / "model"), ["x"], [y], executor)
    with pytest.raises(ProgramError, match=r"has a \w+, which cannot be a part of a layer: run the model by fluid.load_model"):
        jit.load(tmp_path / "model")
    with pytest.raises(FluidTypeError, match="takes the path of a model, not a int"):
        jit.load(3)  # type: ignore[arg-type]


def test_the_inputs_of_a_declarative_layer_are_those_of_its_last_call(tmp_path: Path) -> None:
    class Declared(dygraph.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.out = dygraph.Linear(4, 2)

        @jit.declarative
        def forward(self, x: Any) -> Any:
            return self.out(x)

    net = Declared()
    with pytest.raises(ProgramError, match=r"jit\.save: give input_spec, such as"):
        jit.save(net, tmp_path / "net")
    x = np.ones([3, 4], "float32")
    with dygraph.no_grad():
        wanted = net(Tensor(x)).numpy()
    jit.save(net, tmp_path / "net")
    np.testing.assert_array_equal(jit.load(tmp_path / "net")(x[:1]).numpy(), wanted[:1])


@each("by_name", [False, True])
def test_a_declarative_layer_is_saved_after_training(by_name: bool, tmp_path: Path) -> None:
    class Declared(dygraph.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.out = dygraph.Linear(4, 2)

        @jit.declarative
        def forward(self, x: Any, scale: Any = 1.0) -> Any:
            return self.out(x) * scale

    net = Declared()
    optimizer = fluid.optimizer.SGD(0.1, parameter_list=net.parameters())
    x, scale = Tensor(np.ones([3, 4], "float32")), Tensor(np.full([3, 1], 2.0, "float32"))
    for _ in range(2):
        loss = (net(x, scale=scale) if by_name else net(x, scale)).sum()
        loss.backward()
        optimizer.minimize(loss)
        net.clear_gradients()
    jit.save(net, tmp_path / "net")
    loaded = jit.load(tmp_path / "net")
    np.testing.assert_allclose(loaded(x[:2], scale[:2]).numpy(), net(x[:2], scale[:2]).numpy(), rtol=1e-6)
    net(x, 2.0)
    with pytest.raises(ProgramError, match="call the layer with tensors before"):
        jit.save(net, tmp_path / "net")


# ------------------------------------------------------------------------------------------------- functions as programs
def test_the_translator_is_one_and_gives_programs() -> None:
    translator = ProgramTranslator()
    assert translator is ProgramTranslator.get_instance() is dygraph.dygraph_to_static.ProgramTranslator()
    linear = dygraph.Linear(4, 2)

    @jit.declarative
    def function(x: Any) -> Any:
        return linear(x) * 2.0

    x = Tensor(np.ones([3, 4], "float32"))
    wanted = linear(x).numpy() * 2
    main, startup, inputs, outputs = translator.get_program(function, x)
    scope, executor = fluid.Scope(), fluid.Executor()
    executor.run(startup, scope=scope)
    (result,) = executor.run(main, {inputs[0].name: x.numpy()}, outputs, scope=scope)
    np.testing.assert_allclose(result, wanted, rtol=1e-6)
    np.testing.assert_allclose(translator.get_output(function, x).numpy(), wanted, rtol=1e-6)
    np.testing.assert_allclose(translator.get_output(lambda x: x + 1.0, x).numpy(), x.numpy() + 1)
    assert "return linear(x) * 2.0" in translator.get_code(function)
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        variable = translator.get_func(function)(fluid.data("x", [None, 4]))
        assert variable.shape == (-1, 2) and variable.op.type == "scale"
    with pytest.raises(FluidTypeError, match="takes functions of tensors, not a int"):
        translator.get_func(3)  # type: ignore[arg-type]


def test_the_translator_switches_declarative_functions_off() -> None:
    calls = []

    @jit.declarative
    def function(x: Any) -> Any:
        calls.append(1)
        return x * 2.0

    x = Tensor(np.ones([3], "float32"))
    for _ in range(3):
        function(x)
    assert len(calls) == 1  # traced
    ProgramTranslator().enable(False)
    try:
        assert [function(x).numpy().tolist() for _ in range(2)] == [[2.0] * 3] * 2
        assert len(calls) == 3
    finally:
        ProgramTranslator().enable(True)
    function(x)
    assert len(calls) == 3
    with pytest.raises(FluidTypeError, match="should be True or False, not 1"):
        ProgramTranslator().enable(1)  # type: ignore[arg-type]


def test_the_form_of_1_6_traces_open_sizes_too() -> None:
    linear = dygraph.Linear(4, 2)
    out, program = jit.trace(linear, [InputSpec([None, 4], name="x")], fetch_names=["out"])
    assert out.shape[1:] == [2] and program.global_block().var("x").shape == (-1, 4)
    scope, x = fluid.Scope(), np.ones([5, 4], "float32")
    for name, parameter in linear.state_dict().items():
        scope.var(name).get_tensor().set(parameter.numpy(), fluid.CPUPlace())
    (result,) = fluid.Executor().run(program, {"x": x}, ["out"], scope=scope)
    np.testing.assert_allclose(result, linear(Tensor(x)).numpy(), rtol=1e-6)

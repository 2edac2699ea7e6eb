"""Programs and models for certain sizes: what is computed from sizes is known then, and branches are decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers
from fluid.errors import ElementTypeError, InferenceError, NameNotFoundError, ProgramError


def halved() -> tuple[Any, Any]:
    """`x` [n, t, 4], and its rows in pairs, by sizes that the program computes."""
    x = fluid.data("x", [None, None, 4])
    sizes = layers.shape(x)
    n, t = (layers.slice(sizes, axes=[0], starts=[axis], ends=[axis + 1]) for axis in (0, 1))
    return x, layers.softmax(layers.reshape(x, [n, layers.elementwise_floordiv(t, layers.fill_constant([1], "int32", 2)), 8]))


def types(program: fluid.Program) -> list[str]:
    return [op.type for op in program.global_block().ops]


def test_arithmetic_on_sizes_is_gone() -> None:
    _, out = halved()
    program = fluid.default_main_program()
    before = str(program)
    new = program.with_sizes({"x": [3, 6, 4]})
    assert types(new) == ["reshape2", "softmax"] and new.global_block().var(out.name).shape == (3, 3, 8)
    assert str(program) == before
    feed = {"x": np.random.default_rng(0).standard_normal((3, 6, 4)).astype("float32")}
    executor = fluid.Executor()
    np.testing.assert_array_equal(executor.run(new, feed, [out])[0], executor.run(program, feed, [out])[0])
    with pytest.raises(fluid.errors.FeedError):
        executor.run(new, {"x": np.ones((2, 6, 4), "float32")}, [out])


def test_sizes_may_stay_open() -> None:
    _, out = halved()
    new = fluid.default_main_program().with_sizes({"x": [None, 6, 4]})
    feed = {"x": np.ones((5, 6, 4), "float32")}
    assert fluid.Executor().run(new, feed, [out])[0].shape == (5, 3, 8)
    assert new.global_block().var("x").shape == (-1, 6, 4)


def test_constants_decide_branches_and_are_not_fed() -> None:
    x, rate = fluid.data("x", [None, 4]), fluid.data("rate", [1], "int64")
    is_low = layers.equal(rate, layers.fill_constant([1], "int64", 8000))
    out = layers.cond(is_low, lambda: layers.scale(x, 2.0), lambda: layers.relu(x))
    program = fluid.default_main_program()
    for number, op_type, expected in ((8000, "scale", -2.0), (16000, "relu", 0.0)):
        new = program.with_sizes(constants={"rate": np.array([number])})
        assert op_type in types(new) and "conditional_block" not in types(new) and "equal" not in types(new)
        (result,) = fluid.Executor().run(new, {"x": -np.ones((2, 4), "float32")}, [out])
        assert (result == expected).all()


def test_what_trains_trains() -> None:
    _, out = halved()
    loss = layers.mean(layers.square(layers.fc(out, 2, num_flatten_dims=2)))
    fluid.optimizer.SGD(0.1).minimize(loss)
    executor = fluid.Executor()
    feed = {"x": np.random.default_rng(0).standard_normal((3, 6, 4)).astype("float32")}
    losses = []
    for program in (fluid.default_main_program(), fluid.default_main_program().with_sizes({"x": [3, 6, 4]})):
        with fluid.scope_guard(fluid.Scope()):
            executor.run(fluid.default_startup_program())
            losses.append([executor.run(program, feed, [loss])[0].item() for _ in range(3)])
    assert losses[0] == pytest.approx(losses[1]) and losses[0][0] > losses[0][2]


def test_a_model_of_paddle_is_loaded_for_sizes(tmp_path: Path) -> None:
    _, out = halved()
    fluid.save_model(tmp_path / "net.pdmodel", feeds=["x"], fetches=[out])
    model = fluid.load_model(tmp_path / "net.pdmodel", scope=fluid.Scope(), sizes={"x": [2, 4, 4]})
    assert types(model.program) == ["feed", "reshape2", "softmax", "fetch"]
    assert model.fetches[0].shape == (2, 2, 8)
    feed = {"x": np.ones((2, 4, 4), "float32")}
    (result,) = fluid.Executor().run(model.program, feed, model.fetches, scope=model.scope)
    np.testing.assert_allclose(result, np.full((2, 2, 8), 0.125), rtol=1e-6)


def test_what_does_not_fit_is_refused() -> None:
    halved()
    fluid.data("k", [1], "int64")
    program = fluid.default_main_program()
    with pytest.raises(NameNotFoundError, match="fed no 'y'"):
        program.with_sizes({"y": [1]})
    for sizes in ([3, 6], [3, 6, 5], [3, -2, 4]):
        with pytest.raises(InferenceError, match="do not fit"):
            program.with_sizes({"x": sizes})
    with pytest.raises(ElementTypeError, match=r"float32; .* takes int64"):
        program.with_sizes(constants={"k": np.ones(1, "float32")})
    with pytest.raises(InferenceError, match="has shape"):
        program.with_sizes(constants={"k": np.ones(2, "int64")})
    with pytest.raises(ProgramError, match="a program holds up to"):
        program.with_sizes(constants={"x": np.ones((50, 50, 4), "float32")})

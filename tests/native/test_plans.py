"""Whole programs in native code, beside the same programs on numpy."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attack import instructions_of
from beside_numpy import assert_alike
from checked_plans import CheckedTables, checked_plans
from checks import Checks, each, fresh_programs
from random_programs import Instruction, RandomProgram
from random_updates import check_updates

import fluid
from fluid import layers
from fluid.executor.native.fusion import FusionSchedule
from fluid.formats import tensors
from fluid.values.unchanging import never_changes, unchanging


def test_a_plan_prints_its_native_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The printed plan: regions with their ops, native values and layouts, and ops on numpy."""
    monkeypatch.delenv("FLUID_NATIVE", raising=False)
    x = fluid.data("x", [2, 1, 3, 3])
    h = layers.conv2d(layers.tanh(x), 4, 3, padding=1, act="relu")
    y = layers.reduce_sum(layers.dropout(layers.transpose(h, [0, 2, 3, 1]), 0.5))
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    lines = executor.plan(feed={"x": np.zeros(x.shape, "float32")}, fetch_list=[y]).to_string(calls=True).splitlines()
    assert lines[0].startswith("plan: 7 ops, an arena of ")
    assert re.fullmatch(r"  native code: 6 ops, in \d+ \[regions\]; on numpy: dropout", lines[1])
    text = "\n".join(lines)
    assert re.search(
        r"""
 +\d  native.images.1@apart = \[tanh\]\(x@\d+\)
          native.images.1: float32\[2, 5, 5, 1\], channels last, halo 1
          6 x 3: tanh copy
 +\d  native.2@\d+ = \[conv2d \+ elementwise_add \+ relu\]\(native.images.1@apart, native.0@\d+, conv2d_0.b_0@scope\)
          native.2: float32\[2, 3, 3, 4\], channels last
          convolved\[2, 3, 3, 4\] add relu
""",
        text,
    )
    assert re.search(r" 0  dropout_0.tmp_1@\d+ = dropout\(\)\n.*\n +greater_equal\(scratch0", text)


def on_both(
    program: fluid.Program, feed: dict[str, Any], fetch: Sequence[str], monkeypatch: pytest.MonkeyPatch, runs: int = 2
) -> tuple[list[Any], list[Any]]:
    """The results of the last of some runs, on numpy and in native code."""
    results = []
    for native in "01":
        monkeypatch.setenv("FLUID_NATIVE", native)
        executor, scope = fluid.Executor(), fluid.Scope()
        results.append([executor.run(program, feed, fetch, scope=scope) for _ in range(runs)][-1])
    return results[0], results[1]


def assert_close(values: Sequence[Any], expected: Sequence[Any], rtol: float = 1e-8, atol: float = 1e-9) -> None:
    """Compare values; the tolerance is relative to the greatest of the expected values."""
    for value, other in zip(values, expected, strict=True):
        assert value.shape == other.shape and value.dtype == other.dtype
        scale = max(1.0, float(np.abs(other).max(initial=0.0))) if other.dtype.kind == "f" else 1.0
        np.testing.assert_allclose(value, other, rtol, atol * scale)


RANDOM = {
    "what is computed of numbers in memory is taken into a group by two ways": [(16, 11, 11, 5), (16, 10, 8, 6), (9, 8, 6, 5)],
    "a formula of an image with one channel, as [N, C, H, W], after a pool": [(19, 4, 7, 10), (14, 6, 9, 3), (12, 8, 1, 4)],
    "the same after a convolution, as a matrix": [(13, 1, 4, 8), (17, 8, 3, 0), (19, 0, 11, 7), (19, 2, 3, 5), (14, 11, 1, 1)],
    "what is added to the gradient of a convolution": [(19, 2, 3, 5)],
}
"""Random programs that native code once computed wrongly, or not at all."""


@pytest.mark.parametrize("instructions", RANDOM.values(), ids=RANDOM)
def test_a_random_program(instructions: list[Instruction], monkeypatch: pytest.MonkeyPatch) -> None:
    check_random(instructions, 0, monkeypatch)


def check_random(instructions: list[Instruction], seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold a random program with its gradients of first and second order to numpy: all of it, and some of it."""
    made, rng = RandomProgram(instructions), random.Random(seed)
    first = [gradient for gradient in fluid.gradients(made.targets, made.inputs) if gradient is not None]
    second = (
        [gradient for gradient in fluid.gradients(first, made.inputs) if gradient is not None] if first and seed % 3 == 0 else []
    )
    names = [var.name for var in [*made.targets, *first, *second]]
    for fetch in (names, rng.sample(names, rng.randrange(1, len(names) + 1))):
        expected, values = on_both(made.program, made.feed, fetch, monkeypatch)
        assert_close(values, expected)


def test_formulas_of_formulas_take_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each formula is read thrice by the next: 3 ** 9 ways lead from the last to the first."""
    asked = []
    fits = FusionSchedule._fits
    monkeypatch.setattr(FusionSchedule, "_fits", lambda *arguments: asked.append(1) or fits(*arguments))
    with fresh_programs() as (main, _):
        h = fluid.data("x", [8])
        for _ in range(9):
            h = h * h + h * 0.5
        loss = layers.reduce_sum(h)
        expected, values = on_both(main, {"x": np.full(8, 0.1, "float32")}, [loss.name], monkeypatch)
    assert_close(values, expected, 1e-6)
    assert len(asked) < 1000


def state_after(
    monkeypatch: pytest.MonkeyPatch, append: Callable[..., None], shapes: dict[str, tuple[int, ...]], fetch: Sequence[str] = ()
) -> tuple[list[Any], list[Any]]:
    """A run's results and its scope afterwards, on numpy and in native code; `append` gets a block and the persistable
    variables."""
    with fresh_programs() as (main, _):
        block = main.global_block()
        state = [block.create_var(name=name, shape=shape, dtype="float32", persistable=True) for name, shape in shapes.items()]
        append(block, *state)
        results = []
        for native in "01":
            monkeypatch.setenv("FLUID_NATIVE", native)
            scope, draws = fluid.Scope(), np.random.default_rng(0)
            for var in state:
                scope.put(var.name, draws.uniform(-1, 1, var.shape).astype("float32"))
            values = fluid.Executor().run(main, {}, fetch, scope=scope)
            results.append([*values, *(np.array(scope.array(name)) for name in shapes)])
    return results[0], results[1]


def twice(block: Any, a: Any, b: Any) -> None:
    """A variable is overwritten twice, the second time by a value that is available earlier."""
    product = block.create_var(name="product", shape=a.shape, dtype="float32")
    block.append_op("matmul", {"X": b, "Y": a}, {"Out": product}, {"transpose_Y": True})
    block.append_op("tanh", {"X": product}, {"Out": a})
    block.append_op("square", {"X": b}, {"Out": a})


def velocity_as_gradient(block: Any, a: Any, b: Any) -> None:
    """The second overwriting reads the first overwritten variable."""
    rate = block.create_var(name="rate", shape=(1,), dtype="float32")
    block.append_op("fill_constant", {}, {"Out": rate}, {"shape": [1], "value": 0.5})
    inputs = {"Param": a, "Velocity": b, "Grad": b, "LearningRate": rate}
    block.append_op("momentum", inputs, {"ParamOut": a, "VelocityOut": b}, {"mu": 0.9, "use_nesterov": True})


def read_late(block: Any, a: Any, b: Any) -> None:
    """A value computed from a variable is read after the variable was overwritten."""
    mean, out = (block.create_var(name=name, shape=shape, dtype="float32") for name, shape in (("mean", (5,)), ("out", (5, 5))))
    block.append_op("reduce_mean", {"X": a}, {"Out": mean}, {"dim": [1]})
    rate = block.create_var(name="rate", shape=(1,), dtype="float32")
    block.append_op("fill_constant", {}, {"Out": rate}, {"shape": [1], "value": 0.5})
    inputs = {"Param": a, "Velocity": b, "Grad": a, "LearningRate": rate}
    block.append_op("momentum", inputs, {"ParamOut": a, "VelocityOut": b}, {"mu": 0.9, "use_nesterov": True})
    block.append_op("elementwise_mul", {"X": b, "Y": mean}, {"Out": out}, {"axis": 0})
    block.append_op("assign", {"X": out}, {"Out": b})


@each("append", [twice, velocity_as_gradient, read_late])
def test_what_a_scope_holds_is_overwritten_in_order(append: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    expected, values = state_after(monkeypatch, append, {"a": (5, 5), "b": (5, 5)})
    assert_close(values, expected, 1e-5, 1e-6)


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 1500), marks=pytest.mark.slow)], ids=["some", "many"])
def test_random_updates(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    with Checks() as checks:
        for seed in seeds:
            with checks(f"program {seed}"):
                check_updates(seed, monkeypatch)


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 1500), marks=pytest.mark.slow)], ids=["some", "many"])
def test_random_programs(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    with Checks() as checks:
        for seed in seeds:
            with checks(f"program {seed}"):
                check_random(instructions_of(seed, thorough=True), seed, monkeypatch)


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 400), marks=pytest.mark.slow)], ids=["some", "many"])
def test_kernels_of_random_programs_access_nothing_else(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    with checked_plans(monkeypatch) as tables:
        with Checks() as checks:
            for seed in seeds:
                with checks(f"program {seed}"):
                    check_random(instructions_of(seed, thorough=True), seed, monkeypatch)
                    check_updates(seed, monkeypatch)
        assert tables.calls > len(seeds)


def test_an_access_of_a_plan_that_lies_outside_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = CheckedTables.bounds

    def shorter(self: CheckedTables, operand: Any) -> tuple[int, int, int]:
        address, low, high = whole(self, operand)
        return address, low, high - 4

    with checked_plans(monkeypatch) as tables, fresh_programs() as (main, _):
        monkeypatch.setattr(tables, "bounds", shorter)
        x = fluid.data("x", [3, 5])
        with pytest.raises(fluid.errors.ExecutionError, match="operand 0 of a kernel is accessed at byte 56, outside"):
            on_both(main, {"x": np.zeros((3, 5), "float32")}, [layers.tanh(layers.relu(layers.sigmoid(x))).name], monkeypatch)


UNUSUAL = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-310, 1e300])


@pytest.mark.parametrize("seeds", [range(10), pytest.param(range(10, 300), marks=pytest.mark.slow)], ids=["some", "many"])
def test_random_programs_of_unusual_numbers(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN and infinity come out of native code where they come out of numpy."""
    with Checks() as checks:
        for seed in seeds:
            with checks(f"program {seed}"):
                made, draws = RandomProgram(instructions_of(seed, thorough=True)), np.random.default_rng(seed)
                feed = {name: with_unusual(array, draws) for name, array in made.feed.items()}
                for target in made.targets:
                    (expected,), (value,) = on_both(made.program, feed, [target.name], monkeypatch, runs=1)
                    finite = np.isfinite(expected)
                    np.testing.assert_array_equal(np.where(finite, 0, value), np.where(finite, 0, expected))


def with_unusual(array: Any, draws: np.random.Generator) -> Any:
    """A copy of floats with two unusual numbers; integers stay."""
    copy = np.array(array)
    if copy.dtype.kind == "f":
        flat = copy.reshape(-1)
        flat[draws.choice(copy.size, min(2, copy.size), replace=False)] = draws.choice(UNUSUAL)
    return copy


@each("view", [lambda a: a.T, lambda a: a[::-1], lambda a: np.repeat(a, 2, axis=1)[:, ::2], lambda a: np.asfortranarray(a)])
def test_a_scope_may_hold_views(view: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of any strides, which are read and overwritten."""
    with fresh_programs() as (main, _):
        weight = main.global_block().create_var(name="weight", shape=(4, 4), dtype="float32", persistable=True)
        loss = layers.reduce_sum(layers.tanh(layers.matmul(weight, layers.scale(weight, 0.5))))
        layers.assign(layers.scale(weight, 0.25, bias=1.0), weight)
        results = []
        for native in "01":
            monkeypatch.setenv("FLUID_NATIVE", native)
            scope = fluid.Scope()
            scope.put("weight", view(np.arange(16, dtype="float32").reshape(4, 4) / 8))
            losses = [fluid.Executor().run(main, {}, [loss], scope=scope)[0] for _ in range(2)]
            results.append([*losses, np.array(scope.array("weight"))])
    assert_close(results[1], results[0], 1e-6)


def _filter(x: Any) -> Any:
    return layers.conv2d(x, 2, 3, padding=1, param_attr=fluid.ParamAttr(initializer=fluid.initializer.Constant(0.1)))


PARTS: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "products": ((10, 10), lambda x: layers.matmul(x, x)),
    "large products": ((300, 300), lambda x: layers.tanh(layers.matmul(x, x, alpha=0.05))),
    "columns": ((9, 9), lambda x: layers.matmul(x, layers.slice(x, [1], [0], [1]))),
    "batches of products": ((3, 5, 5), lambda x: layers.matmul(x, x)),
    "convolutions": ((2, 3, 6, 6), _filter),
    "pools": ((2, 3, 6, 6), lambda x: layers.pool2d(x, 2, "avg", 2)),
    "rows": ((7, 5), lambda x: layers.reduce_sum(x, dim=1)),
    "formulas": ((4, 6), layers.sigmoid),
}


@each("name", PARTS)
def test_parts_side_by_side(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever computes them, and along whatever axis they are put together."""
    shape, part = PARTS[name]
    draws = np.random.default_rng(0)
    for place, joined in [(axis, joined) for axis in range(len(shape) + 1) for joined in (layers.stack, layers.concat)]:
        with fresh_programs() as (main, startup):
            x = fluid.data("x", list(shape))
            parts = [part(x), layers.relu(part(layers.scale(x, 2.0)))]
            if place > len(parts[0].shape) - (joined is layers.concat):
                continue
            y = layers.scale(joined(parts, place), 0.5)
            feed = {"x": draws.standard_normal(shape, np.float32)}
            results = []
            for native in "01":
                monkeypatch.setenv("FLUID_NATIVE", native)
                executor, scope = fluid.Executor(), fluid.Scope()
                executor.run(startup, scope=scope)
                results.append(executor.run(main, feed, [y], scope=scope))
        assert_close(results[1], results[0], 1e-5, 1e-5)


def test_numbers_without_dimensions_are_stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    with fresh_programs() as (main, _):
        x = fluid.data("x", [2])
        parts = [layers.fill_constant([], "float32", value) for value in (2.0, 3.0)]
        y = layers.tanh(layers.stack(parts) * x)
        expected, values = on_both(main, {"x": np.ones(2, "float32")}, [y.name], monkeypatch)
    assert_close(values, expected, 1e-6)


def test_dropout_is_applied_in_native_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numpy draws the masks before all else, with the bits that it draws without native code; they cut nothing in two."""
    x = fluid.data("x", [64, 32])
    h = layers.dropout(layers.fc(x, 32, act="relu"), 0.3, dropout_implementation="upscale_in_train")
    loss = layers.mean(layers.square(layers.dropout(layers.fc(h, 16), 0.5)))
    fluid.optimizer.SGD(0.1).minimize(loss)
    fluid.default_main_program().random_seed = 5
    fluid.default_startup_program().random_seed = 5
    feed = {"x": np.random.default_rng(3).standard_normal((64, 32), dtype="float32")}
    losses = []
    for native in "01":
        monkeypatch.setenv("FLUID_NATIVE", native)
        with fluid.scope_guard(fluid.Scope()):
            executor = fluid.Executor()
            executor.run(fluid.default_startup_program())
            losses.append([executor.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(3)])
            lines = executor.plan(feed=feed, fetch_list=[loss]).to_string().splitlines()
    np.testing.assert_allclose(losses[1], losses[0], 1e-5)
    kinds = ["native" if "= [" in line else "numpy" for line in lines if re.match(r" +\d+  ", line)]
    assert kinds[:2] == ["numpy", "numpy"] and set(kinds[2:]) == {"native"}, lines


def test_a_copy_of_a_number_is_made_before_the_number_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uniform numbers are computed by their readers, unless an operand is overwritten before."""
    x = fluid.data("x", [4])
    count = layers.create_global_var([1], 1.0, "float32", persistable=True, name="count")
    layers.increment(count, 0.5)
    before = layers.assign(count)
    twice = layers.scale(count, 2.0)
    layers.increment(count, 0.5)
    y = layers.sqrt(x) * before + twice
    feed = {"x": np.arange(4, dtype="float32")}
    with fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        for start in (1.0, 2.0):
            (value,) = executor.run(feed=feed, fetch_list=[y])
            np.testing.assert_allclose(value, np.sqrt(feed["x"]) * (start + 0.5) + 2 * (start + 0.5), 1e-6)


def test_rows_of_positions_are_not_those_of_a_reduction(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of one_hot has its classes; a row of the sum has more dimensions."""
    with fresh_programs() as (main, _):
        ids = fluid.data("ids", [2, 3, 1], "int64")
        total = layers.reduce_sum(layers.one_hot(ids, 4), dim=[1, 2])
        expected, values = on_both(main, {"ids": np.array([0, 1, 2, 3, 1, 0]).reshape(2, 3, 1)}, [total.name], monkeypatch)
    assert expected[0].tolist() == [3.0, 3.0]
    assert_close(values, expected)


def _on_numpy(monkeypatch: pytest.MonkeyPatch, fetches: list[fluid.Variable], feed: dict[str, Any]) -> list[Any]:
    """The results of a program without native code."""
    with monkeypatch.context() as patch:
        patch.setenv("FLUID_NATIVE", "0")
        return fluid.Executor().run(feed=feed, fetch_list=fetches)


def test_convolutions_that_differ_only_in_their_windows_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """They read and make the same shapes, in both directions, of filters of one size."""
    x = fluid.data("x", [2, 8, 12, 12])
    x.stop_gradient = False
    sides = [((3, 1), (1, 0), 1), ((1, 3), (0, 1), 1), ((3, 3), 1, 1), ((3, 3), 2, 2)]
    outs = [layers.conv2d(x, 8, size, padding=pad, dilation=apart, bias_attr=False) for size, pad, apart in sides]
    gradients = [fluid.gradients(layers.reduce_sum(layers.square(out)), x)[0] for out in outs]
    fluid.Executor().run(fluid.default_startup_program())
    feed = {"x": np.random.default_rng(0).standard_normal(x.shape, np.float32)}
    fetches = [*outs, *gradients]
    expected = _on_numpy(monkeypatch, fetches, feed)
    for value, other in zip(fluid.Executor().run(feed=feed, fetch_list=fetches), expected, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-4, atol=1e-4)


def test_dropout_that_drops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLUID_NATIVE", raising=False)
    x = fluid.data("x", [6, 3])
    y = layers.reduce_sum(layers.dropout(layers.tanh(x), 0.25), dim=1)
    program = fluid.default_main_program().clone(for_test=True)
    feed = {"x": np.ones((6, 3), "float32")}
    executor = fluid.Executor()
    np.testing.assert_allclose(executor.run(program, feed, [y])[0], np.full(6, 3 * 0.75 * np.tanh(1)), 1e-5)
    assert "[tanh + dropout + reduce_sum]" in executor.plan(program, feed, [y]).to_string()


def test_a_plan_that_is_bound_computes_the_same_bits_with_more_threads() -> None:
    """Kernels copy matrices to a workspace; each thread has its part of it."""
    a, b = fluid.data("a", [512, 300]), fluid.data("b", [512, 512])
    out = layers.relu(layers.matmul(a, b, transpose_x=True))
    random, executor = np.random.default_rng(0), fluid.Executor()
    feed = {"a": random.standard_normal(a.shape, np.float32), "b": random.standard_normal(b.shape, np.float32)}
    before = fluid.get_num_threads()
    try:
        results = []
        for count in (1, 2, 4, 3):
            fluid.set_num_threads(count)
            results.append(executor.run(feed=feed, fetch_list=[out])[0])
    finally:
        fluid.set_num_threads(before)
    np.testing.assert_allclose(results[0], np.maximum(feed["a"].T @ feed["b"], 0), rtol=1e-4, atol=1e-4)
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def _convolution() -> tuple[fluid.Executor, Callable[[], Any], fluid.LoDTensor]:
    """An executor, a function that runs a convolution, and its filter."""
    x = fluid.data("x", [1, 3, 5, 5])
    y = layers.relu(layers.conv2d(x, 4, 3, param_attr="filter", bias_attr=False))  # one op alone stays numpy's
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    images = np.random.default_rng(0).standard_normal(x.shape, np.float32)
    filter_ = fluid.global_scope().find_var("filter").get_tensor()
    return executor, lambda: executor.run(feed={"x": images}, fetch_list=[y])[0], filter_


def test_filters_that_nothing_can_write_are_packed_once() -> None:
    """Filters that are set anew, or overwritten by a program, are packed again."""
    _, run, filter_ = _convolution()
    first, memory = run(), np.array(filter_)
    filter_.array = unchanging(memory)
    assert np.array_equal(run(), first)
    memory *= 2  # as nobody may, who has said that it does not change
    assert np.array_equal(run(), first), "packed anew"
    filter_.array = unchanging(memory.copy())
    assert np.array_equal(run(), first * 2)
    with fluid.program_guard(fluid.Program()):
        var = fluid.layers.create_parameter([4, 3, 3, 3], "float32", "filter")
        layers.assign(var * 2.0, var)
        fluid.Executor().run(fluid.default_main_program())
    assert np.array_equal(run(), first * 4)


def test_constants_do_not_divide_what_is_fused() -> None:
    """A scale and a shift of channels, written as constants, are the epilogue of the convolution."""
    x = fluid.data("x", [1, 3, 8, 8])
    scale, shift = (np.arange(start, start + 4, dtype="float32").reshape([1, 4, 1, 1]) for start in (1, 5))
    y = layers.relu(layers.conv2d(x, 4, 3, bias_attr=False) * layers.assign(scale) + layers.assign(shift))
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    feed = {"x": np.random.default_rng(0).standard_normal(x.shape).astype("float32")}
    text = executor.plan(feed=feed, fetch_list=[y]).to_string()
    assert "[conv2d + elementwise_mul + elementwise_add + relu]" in text
    (found,), (expected,) = executor.run(feed=feed, fetch_list=[y]), executor.interpret(feed=feed, fetch_list=[y])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_filters_that_can_be_written_are_packed_in_each_run() -> None:
    _, run, filter_ = _convolution()
    first, memory = run(), np.array(filter_)
    memory.flags.writeable = False  # who owns it can take that back
    filter_.array = memory
    assert np.array_equal(run(), first)
    assert filter_.array is memory and not never_changes(memory)
    memory.flags.writeable = True
    memory *= 2
    assert np.array_equal(run(), first * 2)


def test_statistics_that_stay_are_read_by_gradients() -> None:
    """The gradient of a batch_norm in test mode reads its mean, which stays; a fault of Fluid would be an error."""
    x = fluid.data("x", [2, 4, 6, 8])
    loss = layers.mean(layers.square(layers.batch_norm(layers.tanh(x), is_test=True)))
    gradients = [gradient for _, gradient in fluid.append_backward(loss)]
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    feed = {"x": np.random.default_rng(0).standard_normal(x.shape, np.float32)}
    results = executor.run(feed=feed, fetch_list=gradients)
    assert "native code" in str(executor.plan(feed=feed, fetch_list=gradients))
    for one, other in zip(results, executor.interpret(feed=feed, fetch_list=gradients), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_predictions_normalize_while_they_convolve() -> None:
    """A batch_norm in test mode writes no statistics, and its factors are computed before the convolution that uses them."""
    x = fluid.data("x", [2, 4, 6, 8])
    y = layers.batch_norm(layers.conv2d(x, 8, 1, bias_attr=False), act="hard_swish", is_test=True)
    executor, main = fluid.Executor(), fluid.default_main_program()
    executor.run(fluid.default_startup_program())
    mean, variance = next(op for op in main.global_block().ops if op.type == "batch_norm").input_arg_names[3:5]
    scope, random = fluid.global_scope(), np.random.default_rng(0)
    for name, value in {mean: random.standard_normal(8), variance: random.uniform(1, 2, 8)}.items():
        scope.find_var(name).get_tensor().set(value.astype("float32"), fluid.CPUPlace())
    before = [np.array(scope.find_var(name).get_tensor()) for name in (mean, variance)]
    feed = {"x": random.standard_normal(x.shape, np.float32)}
    (result,) = executor.run(feed=feed, fetch_list=[y])
    np.testing.assert_allclose(result, executor.interpret(feed=feed, fetch_list=[y])[0], rtol=1e-5, atol=1e-5)
    assert "[conv2d + batch_norm + hard_swish]" in str(executor.plan(feed=feed, fetch_list=[y]))
    for name, value in zip((mean, variance), before, strict=True):
        np.testing.assert_array_equal(scope.find_var(name).get_tensor(), value)


def test_models_from_files_pack_their_filters_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the arrays are aligned in the file or not."""
    monkeypatch.setattr(tensors, "_LARGE_FILE", 1)
    monkeypatch.setattr(tensors, "_LARGE_ARRAY", 1)
    executor, run, _ = _convolution()
    expected = run()
    main = fluid.default_main_program()
    fluid.io.save_inference_model(str(tmp_path), ["x"], [main.global_block().ops[-1].output("Out")[0]], executor, main)
    with fluid.scope_guard(fluid.Scope()):
        program, feeds, fetches = fluid.io.load_inference_model(str(tmp_path), executor)
        images = np.random.default_rng(0).standard_normal([1, 3, 5, 5], np.float32)
        for _ in range(2):
            assert np.array_equal(executor.run(program, {feeds[0]: images}, fetches)[0], expected)
        assert never_changes(fluid.global_scope().array("filter"))


def test_halos_are_as_wide_as_the_filter_reaches_along_each_axis() -> None:
    """A filter of 3 taps that are 8,192 steps apart, over a line of 30,000 steps: training it took 45 GiB."""
    x = fluid.data("x", [1, 8, 1, 30_000])
    x.stop_gradient = False
    loss = layers.mean(layers.square(layers.conv2d(x, 8, [1, 3], padding=[0, 8192], dilation=[1, 8192])))
    gradients = fluid.gradients([loss], [x, *fluid.default_main_program().all_parameters()])
    feed = {"x": np.ones((1, 8, 1, 30_000), "float32")}
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    plan = executor.plan(fluid.default_main_program(), feed, [loss, *gradients])
    assert "channels last, halo 0 x 8192" in str(plan)
    assert max(spec.nbytes for spec in plan.specs.values()) == 4 * 8 * (30_000 + 2 * 8192)


def test_images_with_halos_take_turns_in_memory() -> None:
    """Images share memory only with equal layouts, and only if their live ranges do not overlap."""
    x = fluid.data("x", [2, 4, 8, 8])
    h = kept = layers.conv2d(x, 4, 3, padding=1, act="relu")
    for _ in range(4):
        h = layers.relu(layers.conv2d(h, 4, 3, padding=1))
    h = layers.conv2d(h + kept, 4, 3, padding=1)
    h = layers.relu(layers.conv2d(layers.conv2d(h, 4, 3), 4, 5, padding=2))  # of 6 x 6 pixels, with a halo of 2
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    feed = {"x": np.random.default_rng(0).standard_normal(x.shape, np.float32)}
    instructions = executor.plan(feed=feed, fetch_list=[h]).instructions
    layouts = {value: layout for each in instructions for value, layout in getattr(each, "layouts", {}).items()}
    former_of = {value: former for each in instructions for value, former in each.shares.items()}
    assert (sum("halo" in layout for layout in layouts.values()), len(former_of)) == (7, 3)
    for number, instruction in enumerate(instructions):
        for value, former in instruction.shares.items():
            assert layouts[value] == layouts[former]
            owners = [former]
            while owners[-1] in former_of:
                owners.append(former_of[owners[-1]])
            assert not any(owner in later.read for later in instructions[number:] for owner in owners)
    (expected,) = executor.interpret(feed=feed, fetch_list=[h])
    for _ in range(2):
        np.testing.assert_allclose(executor.run(feed=feed, fetch_list=[h])[0], expected, rtol=1e-5, atol=1e-5)


def test_what_is_put_together_of_constants_and_others_is_computed_in_each_run() -> None:
    """A concat of constant and variable parts runs each time: its parts are written separately."""
    block = fluid.default_main_program().global_block()
    for name in ("first", "last"):
        block.create_var(name=name, shape=[1], dtype="int64", persistable=True)
        fluid.global_scope().put(name, unchanging(np.int64([7])))
    x = fluid.data("x", [2], "int64")
    middle = layers.slice(x, [0], [1], [2]) * 2
    whole = layers.concat([block.var("first"), middle, block.var("last")])
    part = layers.slice(whole, [0], [1], [2])
    executor = fluid.Executor()
    for number in (2, 5):
        (found,) = executor.run(feed={"x": np.int64([1, number])}, fetch_list=[part])
        np.testing.assert_array_equal(found, [2 * number])


# ------------------------------------------------------------------------------------------- where elements lie in memory
@each(
    "optimizer",
    ["Momentum", "Adagrad", "DecayedAdagrad", "Adam", "Adamax", "Adadelta", "RMSProp", "Lamb", "NAdam", "RAdam", "Lion"],
)
@each("makes_images", [True, False])
def test_an_optimizer_stores_its_moments_in_the_order_of_their_parameter(optimizer: str, makes_images: bool) -> None:
    """The gradient of a parameter that is multiplied with images is computed with the channels last."""

    def build() -> Sequence[fluid.framework.Variable]:
        x, w = fluid.data("x", [2, 3, 4, 4]), layers.create_parameter([1, 3, 4, 4], "float32")
        product = layers.elementwise_mul(x, w)
        loss = layers.mean(layers.conv2d(product, 2, 3) if makes_images else layers.pool2d(product, 3, "max", 1))
        arguments = {"momentum": 0.9} if optimizer == "Momentum" else {}
        getattr(fluid.optimizer, optimizer)(0.1, **arguments).minimize(loss)
        return [loss]

    assert_alike(build, {"x": normal(2, 3, 4, 4)}, runs=3, tolerance=1e-4)


def normal(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def of_rows_within_a_larger_array() -> Sequence[fluid.framework.Variable]:
    """The gradient of a slice is within the gradient of the sliced tensor, which has more rows."""
    x = fluid.data("x", [2, 2, 6, 6])
    x.stop_gradient = False
    h = layers.layer_norm(x, begin_norm_axis=2, scale=False)
    loss = layers.mean(layers.expand(layers.slice(h, [3], [1], [3]), [1, 1, 3, 1]))
    return [loss, *fluid.gradients([loss], [x])]


def of_sums_within_a_larger_array() -> Sequence[fluid.framework.Variable]:
    x = fluid.data("x", [2, 2, 6, 6])
    results = []
    for axis in range(4):
        sums = layers.reduce_sum(layers.tanh(x), dim=axis, keep_dim=True)
        padded = layers.pad(layers.sigmoid(sums), [0, 0, 0, 0, 1, 2, 0, 3])
        results += [padded, layers.concat([sums, x], axis), layers.concat([x, layers.tanh(sums), sums], axis)]
    return results


def of_sums_with_a_halo() -> Sequence[fluid.framework.Variable]:
    """Sums over channels are images, around which a convolution wants zeros: attention to places."""
    x, results = fluid.data("x", [2, 2, 6, 6]), []
    for axis in ([1], [0], [0, 1], [2], [3], [2, 3]):
        for reduce in (layers.reduce_sum, layers.reduce_mean, layers.reduce_max):
            image = reduce(x, dim=axis, keep_dim=True)
            weights = layers.conv2d(image, 1 if axis == [1] else 2, 3, padding=1, act="sigmoid")
            results += [weights, layers.pool2d(layers.tanh(image), 3, "avg", 1, 1)]
            results += [layers.elementwise_mul(x, weights)] if axis == [1] else []
    image = layers.concat([layers.reduce_mean(x, dim=1, keep_dim=True), layers.reduce_max(x, dim=1, keep_dim=True)], axis=1)
    return [*results, layers.elementwise_mul(x, layers.conv2d(image, 1, 7, padding=3, act="sigmoid"))]


def of_two_shapes_one_after_the_other() -> Sequence[fluid.framework.Variable]:
    """[2, 8, 9] and [2, 6, 12] have no common dimensions."""
    x = layers.reshape(fluid.data("x", [2, 2, 6, 6]), [2, 8, 9])
    scaled = layers.elementwise_mul(x, layers.create_parameter([8, 1], "float32"))
    again = layers.elementwise_mul(layers.reshape(scaled, [2, 6, 12]), layers.create_parameter([6, 1], "float32"))
    return [layers.reduce_sum(layers.reshape(again, [2, 72]), dim=1)]


def of_two_shapes_side_by_side() -> Sequence[fluid.framework.Variable]:
    x = fluid.data("x", [2, 2, 6, 6])
    left = layers.elementwise_mul(layers.reshape(x, [2, 8, 9]), layers.create_parameter([8, 1], "float32"))
    right = layers.elementwise_mul(layers.reshape(x, [2, 6, 12]), layers.create_parameter([6, 1], "float32"))
    total = layers.elementwise_add(layers.reshape(left, [2, 72]), layers.reshape(right, [2, 72]))
    return [layers.reduce_sum(total, dim=1), layers.tanh(total)]


def of_images_in_two_shapes() -> Sequence[fluid.framework.Variable]:
    """The output of a convolution lies with the channels last."""
    h = layers.conv2d_transpose(fluid.data("x", [2, 2, 6, 6]), 15, filter_size=1, padding=1)
    rows = layers.reshape(layers.reshape(layers.flatten(h), [2, 16, 15]), [2, -1])
    return [layers.mean(rows), layers.reduce_sum(layers.reshape(layers.flatten(h), [2, 24, 10]), dim=2)]


@each(
    "build",
    [
        *(of_rows_within_a_larger_array, of_sums_within_a_larger_array, of_sums_with_a_halo),
        *(of_two_shapes_one_after_the_other, of_two_shapes_side_by_side, of_images_in_two_shapes),
    ],
)
def test_a_group_walks_over_dimensions_that_all_its_operands_have(build: Callable[[], Sequence[Any]]) -> None:
    assert_alike(build, {"x": normal(2, 2, 6, 6)})


@each("extents", [(1, 1), (1, 2), (2, 1), (1, 7), (7, 1)])
def test_images_of_one_row_or_column_are_convolved(extents: tuple[int, int]) -> None:
    """Tiles of 2 x 2 outputs have only one row of them, or one column."""

    def build() -> Sequence[fluid.framework.Variable]:
        x = fluid.data("x", [17, 16, *extents])
        loss = layers.mean(layers.square(layers.conv2d(layers.tanh(layers.conv2d(x, 16, 3, padding=1)), 16, 3, padding=1)))
        fluid.optimizer.SGD(0.1).minimize(loss)
        return [loss]

    assert_alike(build, {"x": normal(17, 16, *extents)}, tolerance=1e-4)


def test_numbers_that_many_formulas_share() -> None:
    x = fluid.data("x", [1])
    number = x
    for _ in range(40):  # each twice reads the one before
        number = number * 0.5 + number * number * 0.1
    data = np.array([0.7], "float32")
    result = fluid.Executor().run(feed={"x": data}, fetch_list=[number])[0]
    np.testing.assert_allclose(result, fluid.Executor().interpret(feed={"x": data}, fetch_list=[number])[0], rtol=1e-5)


@each(("shape", "axis", "count"), [((60, 128), 0, 400), ((5, 7, 9), 1, 20), ((5, 7, 9), 2, 30), ((1, 50), 1, 17), ((50,), 0, 80)])
@pytest.mark.filterwarnings("error")
def test_elements_at_indices_are_picked_and_added_natively(shape: tuple[int, ...], axis: int, count: int) -> None:
    """With their gradients; indices repeat."""
    random = np.random.default_rng(0)
    many = [*shape[:axis], count, *shape[axis + 1 :]]
    feed = {"x": random.standard_normal(shape, np.float32), "v": random.standard_normal(many, np.float32)}
    feed["i"] = random.integers(0, shape[axis], many)
    x, v, i = fluid.data("x", list(shape)), fluid.data("v", many), fluid.data("i", many, "int64")
    x.stop_gradient = v.stop_gradient = False
    ops = fluid.extend.ops()
    picked = ops.take_along_axis(layers.tanh(x), i, Axis=axis)
    added = ops.put_along_axis(layers.tanh(x), i, layers.tanh(v), Axis=axis, Reduce="add")
    loss = layers.reduce_sum(picked * picked * v) + layers.reduce_sum(added * added)
    fetched = [picked, added, *fluid.gradients(loss, [x, v])]
    executor = fluid.Executor()
    assert "on numpy: none" in executor.plan(feed=feed, fetch_list=fetched).to_string()
    results = executor.run(feed=feed, fetch_list=fetched)
    for one, other in zip(results, executor.interpret(feed=feed, fetch_list=fetched), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)

"""Feeds that native code reads where they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fluid
from fluid import layers

SHAPE = (256, 128)


def _trained(feeds: list[Any], native: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The loss of each step and the parameters after it; a feed of None stands for the array of one of them."""
    monkeypatch.setenv("FLUID_NATIVE", native)
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", SHAPE)
        initializer = fluid.initializer.Constant(0.5)
        w = layers.create_parameter(list(SHAPE), "float32", "w", default_initializer=initializer)
        v = layers.create_parameter([SHAPE[1]] * 2, "float32", "v", default_initializer=initializer)
        loss = layers.reduce_mean(layers.square(layers.elementwise_mul(layers.matmul(x, v), w)))  # x is read after w is updated
        fluid.optimizer.SGD(0.1).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(startup, scope=scope)
    results = []
    for feed in feeds:
        value = scope.array("w") if feed is None else feed.copy("K") if type(feed) is np.ndarray else feed
        results.append(executor.run(main, {"x": value}, [loss], scope=scope)[0])
        if type(value) is np.ndarray and feed is not None:
            assert np.array_equal(value, feed)
            value[...] = np.nan  # what was fed is the caller's again
        results += [scope.array(name).copy() for name in ("v", "w")]
    return results


def test_what_is_fed_is_read_in_any_layout_and_apart_from_what_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    plain = [random.standard_normal(SHAPE).astype(np.float32) for _ in range(3)]
    unaligned = np.frombuffer(b"\0" + plain[2].tobytes(), np.uint8)[1:].view(np.float32).reshape(SHAPE)
    feeds = [plain[0], plain[1], np.asfortranarray(plain[2]), plain[0].tolist(), None, plain[1], unaligned, plain[0][::-1], None]
    for actual, expected in zip(_trained(feeds, "1", monkeypatch), _trained(feeds, "0", monkeypatch), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=1e-6)


def _layouts(array: Any) -> dict[str, Any]:
    """An array in layouts that numpy has: all of them equal it."""
    wide = np.zeros((2 * SHAPE[1], 3 * SHAPE[1]), array.dtype)
    wide[::2, ::3] = array
    unaligned = np.frombuffer(b"\0" + array.tobytes(), np.uint8)[1:].view(array.dtype).reshape(array.shape)
    return {
        "plain": array,
        "by columns": np.asfortranarray(array),
        "every other": wide[::2, ::3],
        "backwards": array[::-1, ::-1].copy()[::-1, ::-1],
        "unaligned": unaligned,
    }


@pytest.mark.parametrize("is_writeable", [True, False])
def test_variables_that_are_only_read_have_any_layout(is_writeable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight that is given transposed is not read as if it were not."""
    monkeypatch.setenv("FLUID_NATIVE", "1")
    random = np.random.default_rng(0)
    x, weight = random.standard_normal(SHAPE).astype(np.float32), random.standard_normal((SHAPE[1],) * 2).astype(np.float32)
    row = np.broadcast_to(weight[0], weight.shape)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        w = layers.create_parameter([SHAPE[1]] * 2, "float32", "w")
        out = layers.tanh(layers.scale(layers.matmul(fluid.data("x", SHAPE), w), 0.1))
    for layout, array in {**_layouts(weight), "one row": row, "one number": np.broadcast_to(weight[0, 0], weight.shape)}.items():
        scope, view = fluid.Scope(), array.view()
        view.flags.writeable &= is_writeable
        scope.put("w", view)
        for _ in range(2):
            (actual,) = fluid.Executor().run(main, {"x": x}, [out], scope=scope)
            np.testing.assert_allclose(actual, np.tanh(0.1 * x @ array), rtol=2e-5, atol=1e-5, err_msg=layout)
        np.testing.assert_array_equal(scope.array("w"), array, layout)


@pytest.mark.parametrize("native", ["0", "1"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_a_branch_writes_is_kept_in_any_layout(order: Any, native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value of unknown extent goes to the scope itself, in place of the copy that the plan has made of the variable."""
    monkeypatch.setenv("FLUID_NATIVE", native)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [17, 5])
        state = layers.create_global_var([17, 5], 0.5, "float32", persistable=True, name="state")
        mask = layers.less_than(layers.reduce_mean(x, 1, keep_dim=True), layers.fill_constant([1], "float32", 0.0))
        some, others = layers.split_lod_tensor(x, mask)
        merged = layers.merge_lod_tensor(layers.tanh(some), layers.tanh(others), x, mask)

        def write() -> Any:
            layers.assign(layers.elementwise_add(state, merged), state)
            return layers.scale(merged, 2.0)

        flag = layers.less_than(layers.fill_constant([1], "float32", 0.0), layers.fill_constant([1], "float32", 1.0))
        loss = layers.mean(layers.cond(flag, write, lambda: merged))
    scope, executor = fluid.Scope(), fluid.Executor()
    scope.put("state", np.full((17, 5), 0.5, "float32", order=order))
    array = np.random.default_rng(0).standard_normal((17, 5)).astype("float32")
    for steps in (1, 2):
        executor.run(main, {"x": array}, [loss], scope=scope)
        np.testing.assert_allclose(scope.array("state"), 0.5 + steps * np.tanh(array), rtol=1e-5, atol=1e-6)


def test_large_results_are_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Native code writes them where the caller gets them; later runs, and ops that read them, leave them alone."""
    monkeypatch.setenv("FLUID_NATIVE", "1")
    x = fluid.data("x", SHAPE)
    doubled = x * 2.0
    shifted = doubled + 1.0
    fetches = [doubled, shifted, doubled, layers.reduce_sum(shifted), x]
    executor = fluid.Executor()
    results = []
    for number in range(3):
        feed = np.full(SHAPE, number, "float32")
        results.append(executor.run(feed={"x": feed}, fetch_list=fetches))
        feed[...] = np.nan
    for number, arrays in enumerate(results):
        shift = 2 * number + 1
        expected = [2 * number, shift, 2 * number, shift * SHAPE[0] * SHAPE[1], number]
        for array, value in zip(arrays, expected, strict=True):
            np.testing.assert_array_equal(array, np.full(array.shape, value, "float32"))
            assert array.flags.writeable and array.flags.aligned and array.flags.c_contiguous
    arrays = [array for run in results for array in run]
    for number, array in enumerate(arrays):
        assert not any(np.shares_memory(array, earlier) for earlier in arrays[:number])


def test_an_op_of_large_arrays_is_native_by_itself() -> None:
    """Its plan then copies neither its feeds nor its results."""
    executor, is_native = fluid.Executor(), []
    for name, shape in (("small", [4, 8]), ("large", list(SHAPE))):
        x = fluid.data(name, shape, "int64")
        plan = str(executor.plan(feed={name: np.ones(shape, "int64")}, fetch_list=[x + x]))
        is_native.append("native code: 1 ops" in plan)
    assert is_native == [False, True]


def test_results_are_the_callers_until_they_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result, or a view of it, does not change with later runs; the memory of a dropped one is used again."""
    monkeypatch.setenv("FLUID_NATIVE", "1")
    main, scope, executor = fluid.Program(), fluid.Scope(), fluid.Executor()
    with fluid.program_guard(main):
        x = fluid.data("x", SHAPE)
        fetches = [layers.scale(x, 2.0), layers.scale(x, 3.0)]
    fed, results = np.zeros(SHAPE, np.float32), []
    for number in range(9):
        fed[...] = number  # the same array, with other numbers
        double, triple = executor.run(main, {"x": fed}, fetches, scope=scope)
        assert (double == 2 * number).all() and (triple == 3 * number).all()
        results.append((number, double[1:3].reshape(-1), triple) if number % 2 else (number, double, triple.T[:2]))
    for number, doubles, triples in results:
        assert (doubles == 2 * number).all() and (triples == 3 * number).all()
    addresses = set()
    for _ in range(9):
        addresses.add(executor.run(main, {"x": fed}, fetches[:1], scope=scope)[0].ctypes.data)
    assert len(addresses) == 1
    (first,) = executor.run(main, {"x": fed}, fetches[:1], scope=scope)
    (second,) = executor.run(main, {"x": first}, fetches[:1], scope=scope)  # what is fed is in use
    assert (second == 2 * first).all() and (first == 16).all()

"""Loops in compiled libraries: trips that are counted in advance, and trips as long as a condition holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each
from libraries import Library, assert_equal_steps

import fluid
from fluid import layers
from fluid.extend import ops

pytestmark = pytest.mark.usefixtures("one_thread")


def _classified(h: Any) -> dict[str, Any]:
    label = fluid.data("label", [4, 1], "int64")
    loss = layers.mean(layers.softmax_with_cross_entropy(layers.fc(h, 3), label))
    fluid.optimizer.Adam(0.01).minimize(loss)
    return {"loss": loss, "h": h}


def recurrent(is_reversed: bool = False) -> dict[str, Any]:
    """A recurrent net with dropout and a branch in each step."""
    x = fluid.data("x", [5, 4, 8])
    rnn = layers.StaticRNN()
    with rnn.step():
        word, before = rnn.step_input(x), rnn.memory(shape=[-1, 6], batch_ref=x, init_value=0.5)
        h = layers.fc([word, before], 6, act="tanh")
        h = layers.dropout(h, 0.2)
        is_small = layers.less_than(layers.mean(word), layers.fill_constant([1], "float32", 0.1))
        h = layers.cond(is_small, lambda: layers.scale(h, 0.5), lambda: layers.sigmoid(h))
        rnn.update_memory(before, h)
        rnn.step_output(h)
        rnn.step_output(layers.reduce_sum(h, 1))
    hidden, sums = rnn()
    if is_reversed:
        for op in fluid.default_main_program().global_block().ops:
            if op.type == "recurrent":
                op.attrs["reverse"] = True
    return _classified(layers.concat([hidden[4], hidden[0], layers.transpose(sums, [1, 0])], 1))


def cells() -> dict[str, Any]:
    """Layers of cells with lengths of sequences, in both directions."""
    x, length = fluid.data("x", [4, 5, 8]), fluid.data("length", [4], "int64")
    h, _ = layers.rnn(layers.LSTMCell(6), x, sequence_length=length)
    back, _ = layers.rnn(layers.GRUCell(5), h, sequence_length=length, is_reverse=True)
    return _classified(layers.reduce_mean(layers.concat([h, back], 2), 1))


def counted() -> dict[str, Any]:
    """A ``while`` of 5 trips over a carried value, a parameter, and images with a border; all of them have gradients."""
    x, weight = fluid.data("x", [4, 8]), layers.create_parameter([8, 8], "float32")
    table = layers.create_parameter([5, 8], "float32")
    kernel = layers.create_parameter([2, 2, 3, 3], "float32")
    number, last = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 5)

    def body(number: Any, h: Any) -> list[Any]:
        images = layers.reshape(layers.matmul(h, weight), [4, 2, 2, 2])
        images = layers.relu(images + _convolved(images, kernel))
        return [number + 1, layers.tanh(layers.reshape(images, [4, 8]) + h + layers.gather(table, number))]

    _, h = layers.while_loop(lambda number, _: number < last, body, [number, layers.fc(x, 8)])
    return _classified(h)


def _convolved(images: Any, kernel: Any) -> Any:
    block = fluid.default_main_program().current_block()
    out = block.create_var(name=fluid.unique_name.generate("convolved"), dtype="float32", shape=[4, 2, 2, 2])
    block.append_op("conv2d", {"Input": [images], "Filter": [kernel]}, {"Output": [out]}, {"paddings": [1, 1], "strides": [1, 1]})
    return out


def decided() -> dict[str, Any]:
    """A ``while`` as long as a value is below another one: no trip at all, or some."""
    x, most = fluid.data("x", [4, 8]), fluid.data("most", [1])
    h = layers.fc(x, 8)
    start, trips = layers.abs(layers.assign(h)), layers.fill_constant([1], "float32", 0.0)
    start.stop_gradient = True
    doubled, count = layers.while_loop(
        lambda value, _: layers.reduce_sum(value) < most, lambda value, count: [value * 2.0, count + 1.0], [start, trips]
    )
    return {"doubled": doubled, "trips": count, **_classified(h)}


def absent() -> dict[str, Any]:
    """A ``while`` whose condition is false from the beginning: its values stay."""
    x = fluid.data("x", [4, 8])
    number, last = layers.fill_constant([1], "int64", 5), layers.fill_constant([1], "int64", 5)
    h = layers.fc(x, 8)
    start = layers.assign(h)
    start.stop_gradient = True
    _, same = layers.while_loop(lambda i, _: i < last, lambda i, h: [i + 1, layers.tanh(h)], [number, start])
    return {"same": same, **_classified(h)}


def solved() -> dict[str, Any]:
    """Each trip decomposes a matrix, and solves equations with it and with another one."""
    x = fluid.data("x", [4, 8])
    matrix = layers.matmul(x, x, transpose_y=True) + layers.assign(np.eye(4, dtype="float32"))
    number, last = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)

    def body(number: Any, h: Any) -> list[Any]:
        factor = ops().cholesky(matrix)
        return [number + 1, ops().cholesky_solve(h, factor) + ops().solve(matrix * 2.0, layers.tanh(h))]

    _, h = layers.while_loop(lambda number, _: number < last, body, [number, layers.fc(x, 8)])
    return _classified(h)


LOOPS: dict[str, Callable[[], dict[str, Any]]] = {
    "recurrent": recurrent,
    "reversed": lambda: recurrent(is_reversed=True),
    "cells": cells,
    "counted": counted,
    "decided": decided,
    "absent": absent,
    "solved": solved,
}


def inputs(number: int, shape: tuple[int, ...]) -> dict[str, Any]:
    """The inputs of a step; in the second step, the loop with a condition has no trip."""
    rng = np.random.default_rng(number)
    return {
        "x": np.random.default_rng(number + 9).standard_normal(shape).astype("float32"),
        "label": rng.integers(0, 3, (4, 1)),
        "length": rng.integers(1, 6, 4),
        "most": np.float32([0.0 if number == 1 else 1000.0]),
    }


@each("name", LOOPS)
def test_loops_have_the_bits_of_the_executor(name: str, tmp_path: Path) -> None:
    assert_equal_steps(LOOPS[name], inputs, 4, tmp_path)


def trips_by_value() -> Any:
    x, last = fluid.data("x", [4, 8]), fluid.data("last", [1], "int64")
    number = layers.fill_constant([1], "int64", 0)
    _, h = layers.while_loop(lambda i, _: i < last, lambda i, h: [i + 1, layers.tanh(h)], [number, layers.fc(x, 8)])
    return layers.mean(h)


def arrays_of_tensors() -> Any:
    x, number, last = fluid.data("x", [4, 8]), layers.zeros([1], "int64"), layers.fill_constant([1], "int64", 3)
    array = layers.array_write(layers.fc(x, 8), number)
    goes_on = layers.less_than(number, last)
    loop = layers.While(goes_on)
    with loop.block():
        h = layers.tanh(layers.array_read(array, number))
        layers.increment(number, 1, in_place=True)
        layers.array_write(h, number, array)
        layers.less_than(number, last, cond=goes_on)
    return layers.mean(layers.array_read(array, last))


def no_trip() -> Any:
    number, last = layers.fill_constant([1], "int64", 5), layers.fill_constant([1], "int64", 5)
    h = layers.fc(fluid.data("x", [4, 8]), 8)
    return layers.mean(layers.while_loop(lambda i, _: i < last, lambda i, h: [i + 1, layers.tanh(h)], [number, h])[1])


def growing() -> Any:
    number, last = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
    h = layers.fc(fluid.data("x", [4, 8]), 8)

    def body(i: Any, h: Any) -> list[Any]:
        return [i + 1, layers.concat([h, h], 0)]

    return layers.mean(layers.while_loop(lambda i, _: i < last, body, [number, h])[1])


REFUSED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "trips by value": (trips_by_value, "while", "its number of trips depends on values, but its gradient needs memory"),
    "no trip": (no_trip, "while", "it has no trip: its condition is false from the beginning"),
    "values that grow": (growing, "while", "before the loop, and"),
    "arrays of tensors": (arrays_of_tensors, "write_to_array", ""),
}
"""Loop, the type of the op that is named, and the reason."""


@each("name", REFUSED)
def test_loops_that_cannot_be_compiled(name: str, tmp_path: Path) -> None:
    build_loss, op_type, reason = REFUSED[name]
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = build_loss()
        fluid.optimizer.SGD(0.1).minimize(loss)
    with pytest.raises(fluid.errors.ProgramError) as error:
        fluid.compile_program(main, fetches=[loss], startup=startup, output=tmp_path / "net")
    assert f"  - {op_type} of " in str(error.value) and "test_library_loops.py:" in str(error.value)
    assert ("number of trips follows from sizes and constants" in str(error.value)) == bool(reason)
    assert reason in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_singular_matrix_is_a_code(tmp_path: Path) -> None:
    matrix, x = fluid.data("matrix", [3, 3]), fluid.data("x", [3, 1])
    loss = layers.mean(ops().solve(matrix, layers.fc(x, 1)))
    fluid.optimizer.SGD(0.1).minimize(loss)
    scope = fluid.Scope()
    fluid.Executor().run(fluid.default_startup_program(), scope=scope)
    compiled = fluid.compile_program(fluid.default_main_program(), fetches={"loss": loss}, scope=scope, output=tmp_path / "net")
    library, feed = Library(compiled), {"matrix": np.eye(3, dtype="float32"), "x": np.ones((3, 1), "float32")}
    code, _ = library.call("step", {**feed, "matrix": np.ones((3, 3), "float32")})
    assert library.error(code).startswith("matrix: a matrix is not invertible (solve, test_library_loops.py:")
    code, results = library.call("step", feed)
    assert code == 0 and np.isfinite(results["loss"])


@each("trips, length", [(5, 0), (70, 1)])
def test_states_that_grow_have_the_bits_of_the_executor(trips: int, length: int, tmp_path: Path) -> None:
    """Keys that a net attends to, a row more in each trip; 70 trips are several loops."""
    x, weight = fluid.data("x", [2, 8]), layers.create_parameter([8, 8], "float32")
    number, last = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", trips)

    def body(number: Any, h: Any, keys: Any) -> list[Any]:
        keys = layers.concat([keys, layers.unsqueeze(layers.matmul(h, weight), [1])], 1)
        weights = layers.softmax(layers.matmul(layers.unsqueeze(h, [1]), keys, transpose_y=True))
        return [number + 1, layers.tanh(h + layers.squeeze(layers.matmul(weights, keys), [1])), keys]

    first = [number, x, layers.fill_constant([2, length, 8], "float32", 0.0)]
    _, h, keys = layers.while_loop(lambda number, *_: number < last, body, first)
    executor, scope, main = fluid.Executor(), fluid.Scope(), fluid.default_main_program()
    executor.run(fluid.default_startup_program(), scope=scope)
    library = Library(fluid.compile_program(main, predict={"h": h, "keys": keys}, scope=scope, output=tmp_path / "net"))
    feed = {"x": np.random.default_rng(0).standard_normal((2, 8)).astype("float32")}
    code, computed = library.call("predict_1", feed)
    assert code == 0
    for name, expected in zip(("h", "keys"), executor.run(main, feed, [h, keys], scope=scope), strict=True):
        np.testing.assert_array_equal(computed[name], expected)


def test_a_label_that_is_the_blank_is_a_code(tmp_path: Path) -> None:
    logits, label = fluid.data("logits", [5, 2, 4]), fluid.data("label", [2, 3], "int32")
    loss = layers.mean(layers.warpctc(layers.fc(logits, 4, 2), label, 3, False, layers.assign([5, 5]), layers.assign([2, 3])))
    fluid.optimizer.SGD(0.1).minimize(loss)
    scope, feed = fluid.Scope(), {"logits": np.ones((5, 2, 4), "float32"), "label": np.int32([[0, 1, 3], [1, 2, 0]])}
    fluid.Executor().run(fluid.default_startup_program(), scope=scope)
    compiled = fluid.compile_program(fluid.default_main_program(), fetches={"loss": loss}, scope=scope, output=tmp_path / "net")
    library = Library(compiled)
    code, results = library.call("step", feed)
    (expected,) = fluid.Executor().run(feed=feed, fetch_list=[loss], scope=scope)
    assert not code
    np.testing.assert_array_equal(results["loss"], expected)
    code, _ = library.call("step", {**feed, "label": np.int32([[0, 3, 0], [1, 2, 0]])})
    assert library.error(code).startswith("label: a label is the blank, 3, or outside of [0, 4) (warpctc, test_library_loops.py:")

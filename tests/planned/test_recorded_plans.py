"""`CUDAPlace(recorded=True)`: programs whose calls a stream has recorded, beside the same programs call by call.

All runs on `support.strict_cupy`, whose streams record, with `support.host_cublas`.
"""

from __future__ import annotations

import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support.host_cublas import HostCuBlas
from support.host_cudnn import HostCuDnn
from support.strict_cupy import cupy as strict_cupy

import fluid
from fluid import layers
from fluid.errors import IndexRangeError
from fluid.executor import CUDAPlace, Executor, Scope
from fluid.executor.binding import array_types
from fluid.executor.planned import recording
from fluid.executor.runtime import cudnn
from fluid.executor.runtime.cublas import declare_functions

RECORDED = CUDAPlace(0, recorded=True)


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostCuBlas]:
    """cuBLAS and cupy's stand-ins."""
    monkeypatch.setitem(sys.modules, "cupy", strict_cupy)
    made = declare_functions(HostCuBlas())
    monkeypatch.setattr(recording, "load_cublas", lambda xp: made)
    array_types._array_types.clear()  # they name the namespace of "cuda:0"
    yield made
    array_types._array_types.clear()


def first_values() -> dict[str, Any]:
    scope = Scope()
    Executor(CUDAPlace(0)).run(fluid.default_startup_program(), scope=scope)
    return {name: scope.array(name).get() for name in scope.local_var_names()}


def train(
    place: CUDAPlace, values: dict[str, Any], batches: list[dict[str, Any]], fetches: list[Any]
) -> tuple[list[Any], Scope, Any]:
    """Train from these values; returns what was fetched, the scope and the plan of the last batch."""
    scope, executor = Scope(), Executor(place)
    for name, value in values.items():
        scope.var(name).get_tensor().set(value, place)
    fetched = [executor.run(feed=batch, fetch_list=fetches, scope=scope) for batch in batches]
    return fetched, scope, executor.plan(feed=batches[-1], fetch_list=fetches, scope=scope)


def assert_same_training(batches: list[dict[str, Any]], *fetches: Any) -> Any:
    """Compare training at both places; returns the plan of the recorded one."""
    values = first_values()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        expected, by_calls, _ = train(CUDAPlace(0), values, batches, list(fetches))
        found, recorded, plan = train(RECORDED, values, batches, list(fetches))
    for mine, theirs in zip(found, expected, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)
    for name in values:
        np.testing.assert_allclose(recorded.array(name).get(), by_calls.array(name).get(), rtol=2e-4, atol=1e-5, err_msg=name)
    return plan


def batches_of(count: int, make: Callable[[np.random.Generator], dict[str, Any]]) -> list[dict[str, Any]]:
    return [make(np.random.default_rng(number)) for number in range(count)]


def digits(rng: np.random.Generator, size: int = 8) -> dict[str, Any]:
    return {"image": rng.standard_normal((size, 1, 12, 12), "float32"), "label": rng.integers(0, 3, (size, 1))}


def perceptron() -> Any:
    x, label = fluid.data("image", [None, 1, 12, 12]), fluid.data("label", [None, 1], "int64")
    logits = layers.fc(layers.fc(x, 16, act="relu"), 3)
    return layers.mean(layers.softmax_with_cross_entropy(logits, label))


def trained_by_calls(count: int) -> tuple[Any, dict[str, Any], list[dict[str, Any]], list[Any]]:
    """The loss of a perceptron, its first values, some batches, and the losses of training by them call by call."""
    loss = perceptron()
    fluid.optimizer.SGD(0.1).minimize(loss)
    values, batches = first_values(), batches_of(count, digits)
    losses, _, _ = train(CUDAPlace(0), values, batches, [loss])
    return loss, values, batches, losses


def convolutions() -> Any:
    x, label = fluid.data("image", [None, 1, 12, 12]), fluid.data("label", [None, 1], "int64")
    hidden = layers.pool2d(layers.conv2d(x, 4, 3, act="relu"), 2, "max", 2)
    hidden = layers.pool2d(layers.batch_norm(layers.conv2d(hidden, 4, 3, padding=1, bias_attr=False), act="relu"), 2, "avg", 2)
    return layers.mean(layers.softmax_with_cross_entropy(layers.fc(hidden, 3), label))


def transformer() -> Any:
    ids, label = fluid.data("ids", [None, 6], "int64"), fluid.data("label", [None, 1], "int64")
    x = fluid.embedding(ids, [11, 8])
    query, key, value = (
        layers.transpose(layers.reshape(layers.fc(x, 8, 2, bias_attr=False), [0, 6, 2, 4]), [0, 2, 1, 3]) for _ in range(3)
    )
    weights = layers.softmax(layers.matmul(query, key, transpose_y=True, alpha=0.5))
    attended = layers.reshape(layers.transpose(layers.matmul(weights, value), [0, 2, 1, 3]), [0, 6, 8])
    x = layers.layer_norm(x + layers.fc(attended, 8, 2), begin_norm_axis=2)
    x = layers.layer_norm(x + layers.fc(layers.fc(x, 16, 2, act="gelu"), 8, 2), begin_norm_axis=2)
    return layers.mean(layers.softmax_with_cross_entropy(layers.fc(layers.reduce_mean(x, 1), 3), label))


def sentences(rng: np.random.Generator) -> dict[str, Any]:
    return {"ids": rng.integers(0, 11, (4, 6)), "label": rng.integers(0, 3, (4, 1))}


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "SGD, decayed": lambda: fluid.optimizer.SGD(layers.exponential_decay(0.1, 2, 0.5, staircase=True)),
    "Momentum, warmed up": lambda: fluid.optimizer.Momentum(layers.linear_lr_warmup(0.1, 4, 0.01, 0.1), 0.9),
    "Adam, noam": lambda: fluid.optimizer.Adam(layers.noam_decay(8, 4)),
    "Adam, clipped": lambda: fluid.optimizer.Adam(0.01, grad_clip=fluid.clip.GradientClipByGlobalNorm(0.5)),
}
NETS = {"perceptron": (perceptron, digits), "convolutions": (convolutions, digits), "transformer": (transformer, sentences)}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("net", NETS)
def test_recorded_training_is_training(net: str, optimizer: str, library: HostCuBlas) -> None:
    build, batch = NETS[net]
    loss = build()
    OPTIMIZERS[optimizer]().minimize(loss)
    plan = assert_same_training(batches_of(8, batch), loss)
    assert plan.recording.startswith("recorded: ") and (plan.recording.endswith("in 1 graph") or "warmed" in optimizer)
    assert plan.recording in str(plan)
    calls, launched = map(int, re.findall(r"(\d+) calls as (\d+)", plan.recording)[0])
    assert launched < calls * (0.4 if "Adam" in optimizer else 0.8) or shutil.which("cc") is None
    assert library.calls


def test_convolutions_by_cudnn_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    host = HostCuDnn()
    monkeypatch.setitem(sys.modules, "cudnn", host)
    cudnn._cudnn_on.cache_clear()
    loss = convolutions()
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    plan = assert_same_training(batches_of(7, digits), loss)
    cudnn._cudnn_on.cache_clear()
    assert len(host.graphs) == 5 and set(host.calls) == {"fprop", "dgrad", "wgrad"}, "the images have no gradient"
    assert "in 1 graph" in plan.recording and "call by call" not in plan.recording


def test_random_numbers_are_drawn_in_each_run(library: HostCuBlas) -> None:
    fluid.default_main_program().random_seed = 3
    x = fluid.data("x", [None, 6])
    dropped = layers.dropout(layers.fc(x, 50), 0.5)
    loss = layers.mean(layers.square(layers.fc(dropped, 1)))
    fluid.optimizer.Momentum(0.01, 0.9).minimize(loss)
    batches = batches_of(8, lambda rng: {"x": rng.standard_normal((4, 6), "float32")})
    plan = assert_same_training(batches, loss, dropped)
    assert plan.recording.endswith("in 2 graphs; call by call: dropout (draws random numbers)")


def test_a_recurrent_layer_that_draws_nothing_is_recorded() -> None:
    x = fluid.data("x", [5, None, 3])
    first = layers.fill_constant([1, 4, 6], "float32", 0.0)
    out, _, _ = layers.lstm(x, first, first, 5, 6, 1, dropout_prob=0.0)
    loss = layers.mean(layers.square(layers.fc(out, 1, 2)))
    fluid.optimizer.Adam(0.01).minimize(loss)
    batches = batches_of(8, lambda rng: {"x": rng.standard_normal((5, 4, 3), "float32")})
    assert "call by call" not in assert_same_training(batches, loss).recording


def test_accuracy_is_recorded() -> None:
    x, label = fluid.data("image", [None, 1, 12, 12]), fluid.data("label", [None, 1], "int64")
    probabilities = layers.softmax(layers.fc(x, 3))
    loss, right = layers.mean(layers.cross_entropy(probabilities, label)), layers.accuracy(probabilities, label)
    fluid.optimizer.SGD(0.1).minimize(loss)
    assert "call by call" not in assert_same_training(batches_of(8, digits), loss, right).recording


def test_a_batch_of_another_size_has_a_recording_of_its_own() -> None:
    loss = perceptron()
    fluid.optimizer.Adam(0.01).minimize(loss)
    batches = [digits(np.random.default_rng(number), 8 if number % 3 else 5 + number // 12) for number in range(18)]
    assert assert_same_training(batches, loss).recording.startswith("recorded: ")


def test_steps_without_a_fetch_and_state_that_is_set_between_them() -> None:
    loss = perceptron()
    fluid.optimizer.SGD(0.1).minimize(loss)
    values, batches = first_values(), batches_of(10, digits)
    weights = []
    for place in (CUDAPlace(0), RECORDED):
        scope, executor = Scope(), Executor(place)
        for name, value in values.items():
            scope.var(name).get_tensor().set(value, place)
        for number, batch in enumerate(batches):
            if number == 5:
                scope.var("learning_rate_0").get_tensor().set(np.array([0.3], "float32"), place)
            executor.run(feed=batch, scope=scope)
        weights.append([scope.array(name).get() for name in values])
    for mine, theirs in zip(*weights, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6)


def test_two_programs_of_one_scope_share_an_arena() -> None:
    loss = perceptron()
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    values, batches, found = first_values(), batches_of(12, digits), []
    for place in (CUDAPlace(0), RECORDED):
        scope, executor = Scope(), Executor(place)
        for name, value in values.items():
            scope.var(name).get_tensor().set(value, place)
        found.append([])
        for number, batch in enumerate(batches):
            found[-1] += executor.run(feed=batch, fetch_list=[loss], scope=scope)
            larger = digits(np.random.default_rng(100 + number), 8 if number < 6 else 40)
            found[-1] += executor.run(test_program, larger, [loss], scope=scope)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def test_labels_outside_are_found_at_the_end_of_a_recorded_run() -> None:
    loss = perceptron()
    fluid.optimizer.SGD(0.1).minimize(loss)
    scope, executor = Scope(), Executor(RECORDED)
    executor.run(fluid.default_startup_program(), scope=scope)
    good, bad = digits(np.random.default_rng(0)), digits(np.random.default_rng(1))
    bad["label"][2] = 3
    for number in range(7):
        with pytest.raises(IndexRangeError, match="3 is outside of \\[0, 3\\)") as raised:
            executor.run(feed=bad, fetch_list=[loss], scope=scope)
        assert "softmax_with_cross_entropy" in str(raised.value)
        assert ("this one has updated variables" in str(raised.value)) == (number > 3)
        executor.run(feed=good, fetch_list=[loss], scope=scope)


@pytest.mark.parametrize("number", range(2, 5))
def test_an_error_while_a_program_is_recorded(number: int) -> None:
    """What a stream refuses stays out of the graphs when the run that found this ends with an error."""
    ids = fluid.data("ids", [None, 1])
    scaled = layers.scale(ids, 2.0)
    hot = layers.one_hot(ids, 4)
    feeds = [np.array([[first], [2]], "float32") for first in (0, 1, 1, 1, 1, 0, 3)]
    feeds.insert(number, np.array([[0], [4]], "float32"))
    executor, scope = Executor(RECORDED), Scope()
    for feed in feeds:
        if feed.max() == 4:
            with pytest.raises(IndexRangeError):
                executor.run(feed={"ids": feed}, fetch_list=[scaled, hot], scope=scope)
            continue
        found = executor.run(feed={"ids": feed}, fetch_list=[scaled, hot], scope=scope)
        assert found[0].tolist() == (feed * 2).tolist() and found[1].tolist() == np.eye(4)[feed[:, 0].astype("int64")].tolist()


def test_a_recording_that_cannot_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    loss, values, batches, expected = trained_by_calls(6)
    end = type(strict_cupy.cuda.Stream()).end_capture

    def refuse(stream: Any) -> Any:
        end(stream)
        raise RuntimeError("cudaErrorStreamCaptureUnjoined")

    monkeypatch.setattr(type(strict_cupy.cuda.Stream()), "end_capture", refuse)
    with pytest.warns(RuntimeWarning, match="not recorded: .*cudaErrorStreamCaptureUnjoined"):
        found, _, _ = train(RECORDED, values, batches, [loss])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_ids_outside_wrap_around_in_a_graph() -> None:
    """Its ids are checked at the end of a run, so a graph scatters to them first, as cupy does."""
    x, ids = fluid.data("x", [3, 2]), fluid.data("ids", [3], "int64")
    out = layers.scatter(x * 1.0, ids, x)
    executor, scope = Executor(RECORDED), Scope()
    for last in (2, 1, 0, 2, 1, 3, -1, 1):
        feed = {"x": np.ones((3, 2), "float32"), "ids": np.array([0, 1, last])}
        if 0 <= last < 3:
            executor.run(feed=feed, fetch_list=[out], scope=scope)
            continue
        with pytest.raises(IndexRangeError, match=f"{last} is outside of \\[0, 3\\)"):
            executor.run(feed=feed, fetch_list=[out], scope=scope)


def test_what_depends_on_values_is_called_between_graphs() -> None:
    x = fluid.data("x", [None, 4])
    steps = layers.fill_constant([1], "int64", 0)
    state = layers.assign(layers.fc(x, 4))
    condition = layers.less_than(layers.reduce_sum(layers.abs(state)), layers.fill_constant([1], "float32", 50.0))
    loop = layers.While(condition)
    with loop.block():
        layers.assign(state * 2.0, state)
        layers.increment(steps)
        layers.less_than(layers.reduce_sum(layers.abs(state)), layers.fill_constant([1], "float32", 50.0), cond=condition)
    total = layers.mean(layers.square(state)) + layers.cast(steps, "float32")
    batches = [{"x": np.full((3, 4), 3.0**-number, "float32")} for number in range(8)]
    assert "call by call: while runs step by step" in assert_same_training(batches, total, steps).recording


def test_the_pool_of_a_graph_is_used_by_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in refuses a graph that uses memory of the default pool."""
    monkeypatch.setattr(strict_cupy.cuda, "using_allocator", lambda allocator: strict_cupy.cuda.Device(0))
    loss = perceptron()
    scope, executor = Scope(), Executor(RECORDED)
    executor.run(fluid.default_startup_program(), scope=scope)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for batch in batches_of(3, digits):
            executor.run(feed=batch, fetch_list=[loss], scope=scope)
    assert "memory of the default pool" in executor.plan(feed=batch, fetch_list=[loss], scope=scope).recording


def test_a_graph_that_computes_something_else_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    loss, values, batches, expected = trained_by_calls(6)
    launch = type(strict_cupy.cuda.Stream()).end_capture

    def without_the_last_call(stream: Any) -> Any:
        graph = launch(stream)
        del graph.calls[-1:]
        return graph

    monkeypatch.setattr(type(strict_cupy.cuda.Stream()), "end_capture", without_the_last_call)
    with pytest.warns(RuntimeWarning, match="not recorded: a graph computes fc_.* otherwise than its calls"):
        found, _, plan = train(RECORDED, values, batches, [loss])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert plan.recording.startswith("not recorded: a graph computes")


def test_a_graph_that_repeats_numbers_of_one_run_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing known freezes numbers in a graph. If something does, the first comparison cannot see it."""
    loss, values, batches, expected = trained_by_calls(8)
    record = recording.Recording.record

    class Frozen:
        def __init__(self, part: Any) -> None:
            self.part, self.graph, self.results = part, part.graph, list[Any]()

        def launch(self) -> None:
            self.graph.launch()
            self.results = self.results or [array.copy() for _, array in self.part.results]
            for (_, array), result in zip(self.part.results, self.results, strict=True):
                strict_cupy.copyto(array, result)

    def record_once(self: Any, part: Any, scratch: Any) -> Any:
        failed = record(self, part, scratch)
        part.graph = Frozen(part)
        return failed

    monkeypatch.setattr(recording.Recording, "record", record_once)
    with pytest.warns(RuntimeWarning, match="not recorded: a graph computes .* otherwise than its calls"):
        found, _, _ = train(RECORDED, values, batches, [loss])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_without_cublas_programs_run_call_by_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(xp: Any) -> Any:
        raise fluid.errors.ExecutionError("cuBLAS of CUDA 12 or later cannot be loaded: no such file")

    monkeypatch.setattr(recording, "load_cublas", missing)
    loss = perceptron()
    fluid.optimizer.SGD(0.1).minimize(loss)
    values, batches = first_values(), batches_of(5, digits)
    with pytest.warns(RuntimeWarning, match="a program runs call by call, since it is not recorded: cuBLAS of CUDA 12 or later"):
        found, _, _ = train(RECORDED, values, batches, [loss])
    np.testing.assert_allclose(found, train(CUDAPlace(0), values, batches, [loss])[0], rtol=1e-6)


def test_watched_runs_are_made_call_by_call() -> None:
    loss = perceptron()
    fluid.optimizer.SGD(0.1).minimize(loss)
    scope, executor = Scope(), Executor(RECORDED)
    executor.run(fluid.default_startup_program(), scope=scope)
    losses = [
        executor.run(feed=digits(np.random.default_rng(0)), fetch_list=[loss], scope=scope, check_nan=number % 2 == 1)[0].item()
        for number in range(8)
    ]
    assert losses == sorted(losses, reverse=True) and len(set(losses)) == 8


REFUSED = {
    "a value as a number": lambda xp, a: float(a.sum()),
    "a condition": lambda xp, a: bool((a > 0).all()),
    "a copy to the host": lambda xp, a: a.get(),
    "waiting": lambda xp, a: xp.cuda.Device(0).synchronize(),
    "a mask": lambda xp, a: a[a > 0],
    "a product of cupy": lambda xp, a: xp.matmul(a, a),
    "a draw": lambda xp, a: xp.random.default_rng(0),
    "an array of the host": lambda xp, a: xp.asarray(np.ones(3)),
    "a list in an index": lambda xp, a: a[[0, 1]],
    "how many there are": lambda xp, a: xp.nonzero(a),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_what_a_stream_that_records_refuses(refused: str) -> None:
    array, stream, pool = strict_cupy.ones((3, 3), "float32"), strict_cupy.cuda.Stream(), strict_cupy.cuda.MemoryPool()
    with strict_cupy.cuda.using_allocator(pool.malloc), stream:
        stream.begin_capture()
        with pytest.raises((RuntimeError, NotImplementedError, AssertionError)):
            REFUSED[refused](strict_cupy, array)


def test_a_stream_that_records_computes_nothing() -> None:
    a, b = strict_cupy.ones(3, "float32"), strict_cupy.zeros(3, "float32")
    stream, pool = strict_cupy.cuda.Stream(), strict_cupy.cuda.MemoryPool()
    with strict_cupy.cuda.using_allocator(pool.malloc), stream:
        stream.begin_capture()
        strict_cupy.add(a * 2, b, out=b)
        b[:2] += 1
        graph = stream.end_capture()
    assert b.get().tolist() == [0, 0, 0]
    for expected in ([3, 3, 2], [6, 6, 4]):
        graph.launch()
        assert b.get().tolist() == expected
    a.fill(5)
    graph.launch()
    assert b.get().tolist() == [17, 17, 14]

"""Runs that are not waited for, and feeds that are on the device already."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")
import jax

import fluid
from fluid.errors import ExecutionError, FeedError
from fluid.executor.executor import Executor
from fluid.executor.xla.sharding import OnDevice, OneDevice, StateArrays

pytestmark = pytest.mark.usefixtures("quick_to_compile")

X = np.random.default_rng(0).standard_normal((8, 5), np.float32)


def aligned(array: Any) -> Any:
    """A copy at an address whose memory jax shares on a CPU."""
    memory = np.zeros(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def device_array(array: Any) -> Any:
    with jax.enable_x64(True):
        return jax.device_put(array, jax.devices("cpu")[0])


def training() -> tuple[Any, fluid.Executor, fluid.Scope]:
    """The loss of a net that is trained, and where it has been started."""
    x = fluid.data("x", [None, 5])
    loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(x, 3, param_attr="w", bias_attr="b")))
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    executor, scope = fluid.Executor(fluid.XLAPlace()), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    return loss, executor, scope


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[Any]:
    """Record the calls of a function."""
    calls, original = [], getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)
    return calls


def test_tensors_stay_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    loss, executor, scope = training()
    waits, fetches = counted(monkeypatch, jax, "block_until_ready"), counted(monkeypatch, OneDevice, "fetch")
    (tensor,) = executor.run(feed={"x": X}, fetch_list=[loss], scope=scope, return_numpy=False)
    executor.run(feed={"x": X}, scope=scope)
    assert isinstance(tensor, fluid.LoDTensor) and isinstance(tensor.held, OnDevice)
    waited_for_feeds = all(array.shape == X.shape for arrays in waits for array in arrays[0])  # a GPU has to read them first
    assert waited_for_feeds and not any(values for _, values in fetches)
    assert tensor.shape() == [1] and float(tensor) > 0
    assert isinstance(tensor.array, np.ndarray)


def test_results_are_those_of_runs_that_are_waited_for() -> None:
    loss, executor, scope = training()
    start = {name: np.array(scope.array(name)) for name in ("w", "b")}
    expected = [executor.run(feed={"x": X * step}, fetch_list=[loss], scope=scope)[0].item() for step in range(5)]
    again = fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=again)
    for name, value in start.items():
        again.find_var(name).get_tensor().set(value)
    tensors = [executor.run(feed={"x": X * step}, fetch_list=[loss], scope=again, return_numpy=False)[0] for step in range(5)]
    assert [float(tensor) for tensor in tensors] == expected


def test_what_was_fed_may_change_at_once() -> None:
    """Runs that are not waited for have copied it."""
    x = fluid.data("x", [None, 700])
    kept = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True, name="kept")
    product = fluid.layers.matmul(x, x, transpose_y=True)
    for _ in range(4):
        product = fluid.layers.matmul(product, product) * 1e-3
    fluid.layers.assign(fluid.layers.reduce_mean(product) + fluid.layers.reduce_sum(x), kept)
    executor, scope = fluid.Executor(fluid.XLAPlace()), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    fed = aligned(np.full((700, 700), 1e-3, np.float32))
    executor.run(feed={"x": fed}, scope=scope)
    expected = scope.array("kept").copy()
    for _ in range(5):
        fed[...] = 1e-3
        executor.run(feed={"x": fed}, scope=scope)
        fed[...] = 7
        assert (scope.array("kept") == expected).all()
        fed[...] = 1e-3
        (tensor,) = executor.run(feed={"x": fed}, fetch_list=[product], scope=scope, return_numpy=False)
        fed[...] = 7
        assert np.asarray(tensor).max() < 1


def test_tensors_outlive_the_runs_that_follow() -> None:
    """Fetched tensors stay valid: parameters, whose memory the next run reuses, and feeds."""
    _, executor, scope = training()
    test = fluid.default_main_program().clone(for_test=True)
    weight, fed = executor.run(test, {"x": X}, ["w", "x"], scope=scope, return_numpy=False)
    expected = np.array(scope.find_var("w").get_tensor())
    (after,) = executor.run(feed={"x": X}, fetch_list=["w"], scope=scope, return_numpy=False)
    trained = np.array(scope.find_var("w").get_tensor())
    executor.run(feed={"x": X}, scope=scope)
    assert (np.asarray(weight) == expected).all() and (np.asarray(fed) == X).all()
    assert (np.asarray(after) == trained).all() and (trained != expected).any()


def test_errors_of_checks_come_with_the_run() -> None:
    x = fluid.data("x", [2])
    logs = fluid.layers.log(x)
    executor = fluid.Executor(fluid.XLAPlace())
    for fetches in ([], [logs]):
        kept = fluid.layers.create_global_var([2], 0.0, "float32", persistable=True, name=f"kept{len(fetches)}")
        fluid.layers.assign(logs, kept)
        executor.run(fluid.default_startup_program())
        with pytest.raises(ExecutionError, match="log makes infinity"):
            executor.run(feed={"x": np.zeros(2, "float32")}, fetch_list=fetches, return_numpy=False, check_nan=True)


def test_ids_are_checked_before_a_run_returns() -> None:
    ids = fluid.data("ids", [2], "int64")
    rows = fluid.embedding(ids, [4, 3])
    executor = fluid.Executor(fluid.XLAPlace(check_values=True))
    executor.run(fluid.default_startup_program())
    with pytest.raises(ExecutionError, match="9"):
        executor.run(feed={"ids": np.array([1, 9])}, fetch_list=[rows], return_numpy=False)


# ------------------------------------------------------------------------------------------- feeds on the device
def test_arrays_of_jax_take_the_fast_road(monkeypatch: pytest.MonkeyPatch) -> None:
    loss, executor, scope = training()
    (expected,) = executor.run(feed={"x": X}, fetch_list=[loss], scope=scope)
    fed = device_array(X)
    executor.run(feed={"x": fed}, fetch_list=[loss], scope=scope)
    checks, copies = counted(monkeypatch, Executor, "_check_request"), counted(monkeypatch, jax, "device_put")
    (value,) = executor.run(feed={"x": fed}, fetch_list=[loss], scope=scope)
    assert not checks and not copies
    assert value < expected
    executor.run(feed={"x": X}, fetch_list=[loss], scope=scope)
    assert not checks, "an array of numpy runs the same plan"


def test_arrays_of_jax_stay_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    x = fluid.data("x", [None, 5])
    twice = fluid.layers.scale(x, 2.0)
    executor = fluid.Executor(fluid.XLAPlace())
    tensor = executor.run(feed={"x": device_array(X)}, fetch_list=[twice], return_numpy=False)[0]
    fetches = counted(monkeypatch, OnDevice, "fetch")
    for _ in range(3):  # what comes from one run goes into the next
        tensor = executor.run(feed={"x": tensor}, fetch_list=[twice], return_numpy=False)[0]
    assert not fetches
    np.testing.assert_allclose(np.asarray(tensor), X * 16)


def test_arrays_of_jax_are_checked_as_those_of_numpy() -> None:
    x = fluid.data("x", [None, 5])
    label = fluid.data("label", [None, 1], "int64")
    total = fluid.layers.reduce_sum(x) + fluid.layers.cast(fluid.layers.reduce_sum(label), "float32")
    executor = fluid.Executor(fluid.XLAPlace())
    labels = np.full((8, 1), 2**33)
    (value,) = executor.run(feed={"x": device_array(X * 0), "label": device_array(labels)}, fetch_list=[total])
    assert value.item() == 2**36
    with pytest.raises(FeedError, match="x is declared"):
        executor.run(feed={"x": device_array(X[:, :3]), "label": labels}, fetch_list=[total])
    with pytest.raises(FeedError, match="float32"):
        executor.run(feed={"x": device_array(labels), "label": labels}, fetch_list=[total])


def test_arrays_of_jax_beside_sequences_and_at_other_places() -> None:
    x, words = fluid.data("x", [None, 5]), fluid.data("words", [None, 2], lod_level=1)
    total = fluid.layers.reduce_sum(x) + fluid.layers.reduce_sum(fluid.layers.sequence_pool(words, "sum"))
    rows = np.ones((3, 2), np.float32)
    for place in (fluid.XLAPlace(), fluid.CPUPlace()):
        executor = fluid.Executor(place)
        for lengths in ([1, 2], [3], [2, 1], [1, 1, 1]):
            (value,) = executor.run(feed={"x": device_array(X), "words": (rows, [lengths])}, fetch_list=[total])
            np.testing.assert_allclose(value, X.sum() + 6, rtol=1e-5)


# ------------------------------------------------------------------------------------------------------- the state
def test_programs_that_update_the_same_variables_take_turns() -> None:
    """Two batch sizes, a program that updates a part of the variables, and one that reads them."""
    x = fluid.data("x", [None, 5])
    loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(x, 3, param_attr="w", bias_attr="b")))
    test, part = (fluid.default_main_program().clone(for_test=is_test) for is_test in (True, False))
    fluid.optimizer.Adam(0.1).minimize(loss)
    with fluid.program_guard(part):
        fluid.optimizer.SGD(0.1).minimize(part.global_block().var(loss.name), parameter_list=["w"])
    results = []
    for place in (fluid.CPUPlace(), fluid.XLAPlace()):
        executor, scope = fluid.Executor(place), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)
        scope.find_var("w").get_tensor().set(np.full((5, 3), 0.5, np.float32))
        values = []
        for turn in range(12):
            program = (None, None, part, test, None, test)[turn % 6]
            rows = X[:5] if turn % 6 in (1, 2) else X
            values += executor.run(program, {"x": rows}, [loss], scope=scope)
            if turn in (4, 7):
                values.append(np.array(scope.find_var("w").get_tensor()))
        results.append(values)
    for value, expected in zip(*results, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)


def test_a_run_replaces_the_state_without_looking_at_each_array(monkeypatch: pytest.MonkeyPatch) -> None:
    loss, executor, scope = training()
    for _ in range(2):
        executor.run(feed={"x": X}, fetch_list=[loss], scope=scope)
    reads = []
    value = OnDevice.value
    monkeypatch.setattr(OnDevice, "value", property(lambda held: reads.append(held) or value.fget(held)))
    executor.run(feed={"x": X}, fetch_list=[loss], scope=scope)
    plan = executor.plan(feed={"x": X}, fetch_list=[loss], scope=scope)
    assert len(reads) == len(plan.lent) < len(plan.updated)


def test_a_variable_of_the_scope_called_as_a_temporary_keeps_its_value() -> None:
    x = fluid.data("x", [2, 5])
    temporary = fluid.layers.scale(x, 2.0)
    kept = fluid.layers.create_global_var([2, 5], 0.0, "float32", persistable=True)
    fluid.layers.assign(fluid.layers.scale(temporary, 3.0), kept)
    executor, scope = fluid.Executor(fluid.XLAPlace()), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    scope.var(temporary.name).get_tensor().set(np.full((2, 5), 7, np.float32))
    for _ in range(3):
        executor.run(feed={"x": X[:2]}, scope=scope)
    np.testing.assert_allclose(np.array(scope.find_var(kept.name).get_tensor()), X[:2] * 6, rtol=1e-6)
    assert (np.array(scope.find_var(temporary.name).get_tensor()) == 7).all()
    assert executor.plan(feed={"x": X[:2]}, scope=scope).updated == [kept.name]


def test_an_array_that_another_list_shows_is_freed() -> None:
    arrays = [OnDevice(object()) for _ in range(3)]
    all_of_them = StateArrays.of(arrays)
    assert StateArrays.of(list(arrays)) is all_of_them
    pair = StateArrays.of(arrays[:2])
    assert pair.is_current and not all_of_them.is_current and all_of_them[:2] == [None, None]
    assert arrays[2].value is all_of_them[2] and arrays[0].value is pair[0]
    pair[:] = ["new", "newer"]
    assert [held.value for held in arrays[:2]] == ["new", "newer"]
    assert StateArrays.of(arrays) == ["new", "newer", arrays[2].value] and not pair.is_current


def test_the_state_goes_with_its_scope() -> None:
    """At once, without Python's garbage collector: the memory of a device is scarce."""
    loss, executor, scope = training()
    for rows in (X, X[:3], X):
        executor.run(feed={"x": rows}, fetch_list=[loss], scope=scope)
    arrays = [weakref.ref(scope.held(name).value) for name in ("w", "b")]
    gc.disable()
    try:
        del scope
        assert [array() for array in arrays] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("runs_before", [0, 2])
def test_a_tensor_of_the_state_is_fed(runs_before: int) -> None:
    """Its memory is not reused before it is read, in the first run and later."""
    x = fluid.data("x", [4, 4])
    loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(x, 4, param_attr="w", bias_attr=False)))
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    executor, scope = fluid.Executor(fluid.XLAPlace()), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    for _ in range(runs_before):
        executor.run(feed={"x": np.ones((4, 4), np.float32)}, scope=scope)
    tensor = scope.find_var("w").get_tensor()
    for _ in range(3):
        assert isinstance(tensor.held, OnDevice)
        weight = tensor.held.fetch()
        (value,) = executor.run(feed={"x": tensor}, fetch_list=[loss], scope=scope)
        np.testing.assert_allclose(value, np.square(weight @ weight).mean(), rtol=1e-5)


# ------------------------------------------------------------------------------------------------------- loaders
def samples(count: int) -> Any:
    return fluid.io.TensorDataset(np.arange(count * 5, dtype="float32").reshape(count, 5))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_puts_the_next_batch_on_the_device(workers: int) -> None:
    loss, executor, scope = training()
    place = fluid.XLAPlace()
    loader = fluid.io.DataLoader(samples(20), batch_size=8, feed_list=["x"], num_workers=workers, places=[place])
    plain = fluid.io.DataLoader(samples(20), batch_size=8, feed_list=["x"])
    for _ in range(2):
        for batch, expected in zip(loader, plain, strict=True):
            assert isinstance(batch["x"], jax.Array) and batch["x"].devices() == {place.jax_device()}
            assert (np.asarray(batch["x"]) == expected["x"]).all()
            executor.run(feed=batch, fetch_list=[loss], scope=scope, return_numpy=False)


def test_a_loader_uploads_one_batch_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    fluid.data("x", [None, 5])
    uploads = counted(monkeypatch, fluid.XLAPlace, "upload")
    loader = fluid.io.DataLoader(samples(20), batch_size=4, feed_list=["x"], places=fluid.XLAPlace())
    assert [len(uploads) for _ in loader] == [2, 3, 4, 5, 5]


def test_the_position_of_a_loader_is_that_of_the_batches_returned() -> None:
    fluid.data("x", [None, 5])
    loader = fluid.io.DataLoader(samples(20), batch_size=4, feed_list=["x"], places=[fluid.XLAPlace()])
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    batches.close()
    assert state["batch"] == 1
    loader.load_state_dict(state)
    assert np.asarray(next(iter(loader))["x"])[0, 0] == 20


def test_an_error_comes_after_the_batches_before_it() -> None:
    class Broken(fluid.io.Dataset):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> Any:
            if index == 4:
                raise ValueError("no such sample")
            return (np.full(5, index, np.float32),)

    fluid.data("x", [None, 5])
    loader = fluid.io.DataLoader(Broken(), batch_size=2, feed_list=["x"], places=[fluid.XLAPlace()])
    batches = iter(loader)
    assert [float(np.asarray(next(batches)["x"])[0, 0]) for _ in range(2)] == [0, 2]
    with pytest.raises(fluid.errors.FluidError, match="no such sample"):
        next(batches)


def test_loaders_of_generators_upload() -> None:
    x = fluid.data("x", [None, 5])
    loader = fluid.io.DataLoader.from_generator([x], capacity=2)
    loader.set_batch_generator(lambda: ((X * number,) for number in range(4)), places=[fluid.XLAPlace()])
    values = [feed["x"] for (feed,) in loader()]
    assert all(isinstance(value, jax.Array) for value in values) and len(values) == 4
    assert (np.asarray(values[3]) == X * 3).all()


def test_batches_of_eager_mode_are_tensors() -> None:
    with fluid.dygraph.guard():
        loader = fluid.io.DataLoader(samples(4), batch_size=2, places=[fluid.XLAPlace()])
        (batch,) = next(iter(loader))
        assert isinstance(batch, fluid.framework.Variable) and batch.numpy().shape == (2, 5)


def test_loaders_know_places_only() -> None:
    fluid.data("x", [None, 5])
    with pytest.raises(fluid.errors.FluidError, match="places"):
        fluid.io.DataLoader(samples(4), feed_list=["x"], places=["gpu"])

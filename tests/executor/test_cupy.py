"""The same kernels on cupy: small training on a device. The conformance suite compares the ops with numpy.

Each test runs on `support.strict_cupy`, which refuses what cupy refuses, and on cupy where there is a CUDA device.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.strict_cupy import cupy as strict_cupy

import fluid
from fluid import dygraph, layers
from fluid.errors import IndexRangeError
from fluid.executor import CPUPlace, CUDAPlace, Executor, LoDTensor, Scope, is_compiled_with_cuda
from fluid.executor.binding import array_types

HAS_DEVICE = is_compiled_with_cuda()
NAMESPACES = ["strict", pytest.param("cupy", marks=pytest.mark.cupy)] if HAS_DEVICE else ["strict"]


@pytest.fixture(params=NAMESPACES)
def cupy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The namespace of CUDAPlace(0)."""
    if request.param == "strict":
        monkeypatch.setitem(sys.modules, "cupy", strict_cupy)
    array_types._array_types.clear()  # they name the namespace of "cuda:0"
    yield sys.modules["cupy"] if request.param == "strict" else pytest.importorskip("cupy")
    array_types._array_types.clear()


REFUSED = {
    "the output of a product by its position": lambda xp, a: xp.matmul(a, a, a),
    "how take treats ids outside": lambda xp, a: xp.take(a, xp.arange(2), 0, mode="clip"),
    "maxima by a ufunc": lambda xp, a: xp.maximum.reduce(a),
    "products at ids": lambda xp, a: xp.multiply.at(a, xp.arange(2), a[:2]),
    "a ufunc with a mask": lambda xp, a: xp.add(a, 1, a, where=a > 0),
    "the first value of maxima": lambda xp, a: a.max(initial=0),
    "masked maxima": lambda xp, a: xp.max(a, where=a > 0),
    "the output of einsum": lambda xp, a: xp.einsum("ij,jk->ik", a, a, out=a),
    "the output of minima": lambda xp, a: xp.min(a, 0, a[0]),
    "vecdot": lambda xp, a: xp.vecdot(a, a),
    "a stable sort by another name": lambda xp, a: xp.argsort(a, kind="mergesort"),
    "numpy's arrays in a ufunc": lambda xp, a: a + np.ones((3, 3)),
    "numpy's arrays first": lambda xp, a: np.ones((3, 3)) + a,
    "numpy's arrays in a copy": lambda xp, a: xp.copyto(a, np.ones((3, 3), "float32")),
    "numpy's arrays in an assignment": lambda xp, a: a.__setitem__(slice(None), np.ones((3, 3), "float32")),
    "numpy's arrays in a list": lambda xp, a: xp.concatenate([a, np.ones((3, 3))]),
    "numbers in a list": lambda xp, a: xp.stack([a[0, 0], 1.0]),
    "conversion to numpy": lambda xp, a: np.asarray(a),
    "an array as a Python int": lambda xp, a: range(xp.arange(3)[2]),
    "an array of objects": lambda xp, a: xp.asarray([None, "x"]),
    "float128": lambda xp, a: a.astype("longdouble"),
    "how astype casts": lambda xp, a: a.astype("float64", casting="safe"),
    "an item by its place": lambda xp, a: a.item(0),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_what_cupy_refuses(refused: str, cupy: Any) -> None:
    """The stand-in refuses it as cupy does: where one of the two takes it, kernels are held to the wrong interface."""
    with pytest.raises((TypeError, ValueError, NotImplementedError, AttributeError)):
        REFUSED[refused](cupy, cupy.ones((3, 3), "float32"))


def test_draws_without_a_size_are_one_number(cupy: Any) -> None:
    out = cupy.empty(5, "float32")
    cupy.random.default_rng(0).random(dtype="float32", out=out)
    assert len(set(out.get().tolist())) == 1


def digits() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    label = rng.integers(0, 3, (32, 1))
    image = rng.standard_normal((32, 1, 8, 8)).astype("float32") + label[:, :, None, None]
    return {"image": image.astype("float32"), "label": label}


def classifier() -> tuple[Any, Any]:
    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 1
    image, label = fluid.data("image", [-1, 1, 8, 8]), fluid.data("label", [-1, 1], "int64")
    hidden = layers.pool2d(layers.conv2d(image, 4, 3, act="relu"), 2, "max", 2)
    logits = layers.fc(layers.batch_norm(hidden), 3)
    loss = layers.mean(layers.softmax_with_cross_entropy(logits, label))
    return logits, loss


def initial_values() -> dict[str, Any]:
    """The values that the startup program computes on the processor."""
    scope = Scope()
    Executor(CPUPlace()).run(fluid.default_startup_program(), scope=scope)
    return {name: scope.array(name) for name in scope.local_var_names()}


@pytest.mark.parametrize(
    "optimizer",
    [lambda: fluid.optimizer.SGD(0.1), lambda: fluid.optimizer.Momentum(0.1, 0.9), lambda: fluid.optimizer.Adam(0.05)],
)
def test_training_on_a_device_and_on_the_processor(optimizer: Any, cupy: Any) -> None:
    _, loss = classifier()
    optimizer().minimize(loss)
    values, feed, found = initial_values(), digits(), {}
    for place in (CPUPlace(), CUDAPlace(0)):
        scope, exe = Scope(), Executor(place)
        for name, value in values.items():
            scope.var(name).get_tensor().set(value, place)
        found[place] = [float(exe.run(feed=feed, fetch_list=[loss], scope=scope)[0][0]) for _ in range(15)]
        assert all(isinstance(scope.array(name), cupy.ndarray if place == CUDAPlace(0) else np.ndarray) for name in values)
    np.testing.assert_allclose(found[CUDAPlace(0)], found[CPUPlace()], rtol=2e-3)
    assert found[CUDAPlace(0)][-1] < found[CUDAPlace(0)][0] / 2


def test_startup_feeds_and_fetches(cupy: Any) -> None:
    logits, _ = classifier()
    exe, scope, feed = Executor(CUDAPlace(0)), fluid.global_scope(), digits()
    exe.run(fluid.default_startup_program())
    assert isinstance(scope.array("conv2d_0.w_0"), cupy.ndarray)
    (found,) = exe.run(feed=feed, fetch_list=[logits])
    assert isinstance(found, np.ndarray)
    (tensor,) = exe.run(feed=feed, fetch_list=[logits], return_numpy=False)
    assert isinstance(tensor, LoDTensor) and isinstance(tensor.array, cupy.ndarray)
    on_device = {name: cupy.asarray(value) for name, value in feed.items()}
    assert np.array_equal(exe.run(feed=on_device, fetch_list=[logits])[0], np.asarray(tensor))
    (interpreted,) = exe.interpret(feed=feed, fetch_list=[logits])
    np.testing.assert_allclose(interpreted, found, rtol=1e-5, atol=1e-6)


def waits_of(run: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods by which a run of the stand-in reads values of the device, and so waits for it."""
    waits: list[str] = []

    def counted(name: str) -> Any:
        original = getattr(strict_cupy.ndarray, name)
        return lambda array, *args, **settings: (waits.append(name), original(array, *args, **settings))[1]

    for name in ("get", "item", "__bool__", "__int__", "__float__"):
        monkeypatch.setattr(strict_cupy.ndarray, name, counted(name))
    run()
    monkeypatch.undo()
    return waits


@pytest.mark.parametrize("ignored", [False, True])
def test_a_training_step_looks_at_its_labels_once(ignored: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look waits for the device, as the fetch does."""
    monkeypatch.setitem(sys.modules, "cupy", strict_cupy)
    array_types._array_types.clear()
    _, loss = classifier()
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    exe, scope, feed = Executor(CUDAPlace(0)), Scope(), digits()
    feed["label"][:5] = -100 if ignored else 1
    exe.run(fluid.default_startup_program(), scope=scope)
    exe.run(feed=feed, fetch_list=[loss], scope=scope)
    with monkeypatch.context() as patch:
        waits = waits_of(lambda: exe.run(feed=feed, fetch_list=[loss], scope=scope), patch)
    assert waits == ["__int__", "get"]
    before = {name: scope.array(name).get() for name in scope.local_var_names()}
    for wrong in (3, -1, -101, 2**40):
        feed["label"][7] = wrong
        with pytest.raises(IndexRangeError, match=rf"{wrong} is outside of \[0, 3\)"):
            exe.run(feed=feed, fetch_list=[loss], scope=scope)
    weights = [name for name in before if name.startswith(("conv", "fc"))]
    assert weights and all((scope.array(name).get() == before[name]).all() for name in weights)
    array_types._array_types.clear()


def test_the_gradient_alone_looks_at_its_labels(cupy: Any) -> None:
    """Where the loss is not computed, or of other labels."""
    logits, label, _ = fluid.data("x", [4, 3]), fluid.data("label", [4, 1], "int64"), fluid.data("other", [4, 1], "int64")
    loss = layers.softmax_with_cross_entropy(logits, label)
    logits.stop_gradient = False
    (gradient,) = fluid.gradients(loss, logits)
    op = next(op for op in fluid.default_main_program().global_block().ops if op.type == "softmax_with_cross_entropy_grad")
    feed = {"x": np.zeros((4, 3), "float32"), "label": np.array([[0], [1], [2], [3]]), "other": np.array([[0], [1], [2], [2]])}
    for place in (CPUPlace(), CUDAPlace(0)):
        for fetches in ([gradient], [gradient, loss]):
            with pytest.raises(IndexRangeError, match="3 is outside"):
                Executor(place).run(feed=feed, fetch_list=fetches)
    op.rename_input("label", "other")
    feed["label"], feed["other"] = feed["other"], feed["label"]
    for place in (CPUPlace(), CUDAPlace(0)):
        with pytest.raises(IndexRangeError, match="3 is outside"):
            Executor(place).run(feed=feed, fetch_list=[gradient, loss])


def test_what_was_set_on_one_place_runs_on_the_other(cupy: Any) -> None:
    y = layers.fc(fluid.data("x", [-1, 3]), 2, param_attr=fluid.ParamAttr(name="w"), bias_attr=False)
    scope, x = fluid.global_scope(), np.ones((2, 3), "float32")
    weight = np.arange(6, dtype="float32").reshape(3, 2)
    for first, second in ((CPUPlace(), CUDAPlace(0)), (CUDAPlace(0), CPUPlace())):
        scope.var("w").get_tensor().set(weight, first)
        assert np.array_equal(Executor(second).run(feed={"x": x}, fetch_list=[y])[0], x @ weight)
        assert np.array_equal(Executor(first).run(feed={"x": x}, fetch_list=[y])[0], x @ weight)


def test_what_was_set_on_one_place_is_interpreted_on_the_other(cupy: Any) -> None:
    rows = layers.embedding(fluid.data("ids", [-1, 1], "int64", lod_level=1), [4, 3], param_attr=fluid.ParamAttr(name="w"))
    y = layers.sequence_pool(rows, "sum") + layers.create_parameter([3], "float32", "b")
    scope, ids = fluid.global_scope(), np.array([[1], [2], [3]])
    table, bias = np.arange(12, dtype="float32").reshape(4, 3), np.ones(3, "float32")
    expected = np.stack([table[1] + table[2], table[3]]) + bias
    for first, second in ((CPUPlace(), CUDAPlace(0)), (CUDAPlace(0), CPUPlace())):
        scope.var("w").get_tensor().set(table, first)
        scope.var("b").get_tensor().set(bias, first)
        for place in (second, first, second):
            for run in (Executor(place).run, Executor(place).interpret):
                assert np.array_equal(run(feed={"ids": (ids, [[2, 1]])}, fetch_list=[y])[0], expected)


def test_sparse_values_of_a_scope_come_to_the_device(cupy: Any) -> None:
    grad = (
        fluid.default_main_program()
        .global_block()
        .create_var(name="grad", shape=[4, 2], dtype="float32", persistable=True, type=fluid.core.VarDesc.VarType.SELECTED_ROWS)
    )
    rows = fluid.global_scope().var("grad").get_selected_rows()
    rows.become(np.array([1, 3]), np.ones((2, 2), "float32"), 4)
    fluid.global_scope().put("grad", rows)
    merged = layers.get_tensor_from_selected_rows(grad)
    (found,) = Executor(CUDAPlace(0)).run(fetch_list=[merged])
    assert found.tolist() == [[1, 1], [1, 1]]


OPTIMIZERS = ("SGD", "Momentum", "Adam", "AdamW", "Lamb", "Adamax", "Adagrad", "DecayedAdagrad", "Adadelta", "RMSProp", "Ftrl")
OPTIMIZERS += ("NAdam", "RAdam", "Lion")


TAKE_SPARSE_GRADIENTS = ("SGD", "Momentum", "Adam", "AdamW", "Adagrad", "RMSProp", "Ftrl")


@pytest.mark.parametrize(
    "name, is_sparse", [*((name, False) for name in OPTIMIZERS), *((name, True) for name in TAKE_SPARSE_GRADIENTS)]
)
def test_optimizers_on_a_device(name: str, is_sparse: bool, cupy: Any) -> None:
    ids = fluid.data("ids", [-1, 1], "int64")
    loss = layers.mean(layers.square(layers.fc(layers.embedding(ids, [8, 3], is_sparse=is_sparse), 1)))
    settings = {"momentum": 0.9} if name == "Momentum" else {}
    getattr(fluid.optimizer, name)(learning_rate=0.05, **settings).minimize(loss)
    values, feed, losses = initial_values(), {"ids": np.array([[1], [2], [1], [7]])}, []
    for place in (CPUPlace(), CUDAPlace(0)):
        scope, exe = Scope(), Executor(place)
        for key, value in values.items():
            scope.var(key).get_tensor().set(value, place)
        losses.append([exe.run(feed=feed, fetch_list=[loss], scope=scope)[0].item() for _ in range(5)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)


def test_eager_training_on_a_device(cupy: Any) -> None:
    feed, losses = digits(), []
    for place in (CPUPlace(), CUDAPlace(0)):
        with dygraph.guard(place):
            fluid.seed(3)
            conv, fc = dygraph.Conv2D("conv", 4, 3, act="relu"), dygraph.Linear(36, 3)
            image, label = dygraph.to_variable(feed["image"]), dygraph.to_variable(feed["label"])
            conv(image)  # makes its parameters
            for number, parameter in enumerate([*conv.parameters(), *fc.parameters()]):
                parameter.set_value(np.random.default_rng(number).normal(0, 0.1, parameter.shape).astype("float32"))
            optimizer = fluid.optimizer.Adam(0.02, parameter_list=[*conv.parameters(), *fc.parameters()])
            losses.append([])
            for _ in range(12):  # more runs than calls are bound anew in
                hidden = layers.dropout(layers.pool2d(conv(image), 2, "max", 2), 0.0)
                loss = layers.mean(layers.softmax_with_cross_entropy(fc(layers.reshape(hidden, [32, 36])), label))
                loss.backward()
                optimizer.minimize(loss)
                conv.clear_gradients()
                fc.clear_gradients()
                losses[-1].append(loss.numpy().item())
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3)
    assert losses[1][-1] < losses[1][0] / 2


def test_first_values_and_masks_are_drawn_for_each_element(cupy: Any) -> None:
    drawn = [
        layers.create_parameter([64, 64], "float32", name, default_initializer=initializer)
        for name, initializer in {"a": fluid.initializer.Xavier(), "b": fluid.initializer.MSRA(), "c": None}.items()
    ]
    kept = layers.dropout(layers.fill_constant([100, 100], "float32", 1.0), 0.5)
    exe = Executor(CUDAPlace(0))
    exe.run(fluid.default_startup_program())
    *values, mask = exe.run(fetch_list=[*drawn, kept])
    assert all(len(np.unique(value)) > 1000 for value in values)
    assert 0.4 < np.mean(mask > 0) < 0.6


def test_loops_and_branches(cupy: Any) -> None:
    x = fluid.data("x", [2, 3])
    x.stop_gradient = False
    i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
    state = layers.assign(x)
    entries = layers.create_array("float32")
    condition = layers.less_than(i, n)
    loop = layers.While(condition)
    with loop.block():
        layers.assign(layers.tanh(state) * 1.5, state)
        layers.array_write(state, i, entries)
        layers.increment(i)
        layers.less_than(i, n, cond=condition)
    chosen = layers.cond(layers.reduce_sum(x) > 0.0, lambda: state * 2.0, lambda: state - 1.0)
    loss = layers.mean(chosen * layers.array_read(entries, layers.fill_constant([1], "int64", 1)))
    fetch = [loss, *fluid.gradients(loss, [x])]
    feed = {"x": np.random.default_rng(0).standard_normal((2, 3)).astype("float32")}
    expected = Executor(CPUPlace()).run(feed=feed, fetch_list=fetch)
    for run in (Executor(CUDAPlace(0)).run, Executor(CUDAPlace(0)).interpret):
        for value, other in zip(run(feed=feed, fetch_list=fetch), expected, strict=True):
            np.testing.assert_allclose(value, other, rtol=1e-4, atol=1e-6)


def test_seeds_repeat_on_a_device(cupy: Any) -> None:
    fluid.default_main_program().random_seed = 4
    out = layers.uniform_random([50], min=0.0)
    exe = Executor(CUDAPlace(0))
    scopes = [Scope(), Scope()]
    first, again = ([exe.run(fetch_list=[out], scope=scope)[0] for _ in range(2)] for scope in scopes)
    assert np.array_equal(first, again) and not np.array_equal(first[0], first[1])


def test_devices_that_are_not_there(cupy: Any) -> None:
    with pytest.raises(fluid.errors.ExecutionError, match="there is no CUDA device 1000 on this machine; use CPUPlace"):
        Executor(CUDAPlace(1000))

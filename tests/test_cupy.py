"""The same kernels on cupy: ops against numpy, and small training on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from samples import OPS, Sample, cast, with_lods

import fluid
from fluid import layers
from fluid.executor import CPUPlace, CUDAPlace, Executor, LoDTensor, Scope, is_compiled_with_cuda
from fluid.executor.binding.compiled import apply_op
from fluid.opdef import registry
from fluid.opdef.registry import Rule, grad_slot
from fluid.values.lod_array import array_of, lod_of, with_lod

pytestmark = [
    pytest.mark.cupy,
    pytest.mark.skipif(not is_compiled_with_cuda(), reason="needs cupy and a CUDA device"),
    pytest.mark.usefixtures("fresh"),
]


@pytest.fixture
def cupy() -> Any:
    return pytest.importorskip("cupy")


def host(value: Any) -> Any:
    """Arrays of the device as numpy's."""
    if isinstance(value, dict):
        return {slot: host(item) for slot, item in value.items()}
    if isinstance(value, list):
        return [host(item) for item in value]
    return None if value is None else array_of(value).get()


def assert_close(found: Any, expected: Any, what: str) -> None:
    if isinstance(expected, list):
        for position, pair in enumerate(zip(found, expected, strict=True)):
            assert_close(*pair, f"{what}[{position}]")
        return
    assert (found is None) == (expected is None), what
    expected = array_of(expected)
    if expected is not None:
        assert found.shape == expected.shape and found.dtype == expected.dtype, what
        scale = max(1.0, float(np.abs(expected, where=np.isfinite(expected), out=np.zeros_like(expected)).max(initial=0)))
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 * scale, err_msg=what)


CASES = {
    f"{op_type}-{number}": (op_type, sample)
    for op_type, samples in sorted(OPS.items())
    if op_type in registry.all_ops()
    for number, sample in enumerate(samples)
}


@pytest.mark.parametrize("case", CASES if is_compiled_with_cuda() else [])
def test_ops_and_their_gradients_give_what_numpy_gives(case: str, cupy: Any) -> None:
    op_type, sample = CASES[case]
    inputs = with_lods(cast(sample.inputs, "float32"), sample.lods)
    expected = apply_op(op_type, inputs, sample.attrs)
    found = apply_op(op_type, inputs, sample.attrs, xp=cupy)
    assert all(isinstance(array_of(item), cupy.ndarray) for value in found.values() for item in _flat(value) if item is not None)
    if sample.random:
        assert {slot: value.shape for slot, value in found.items()} == {slot: value.shape for slot, value in expected.items()}
        for slot, value in host(found).items():
            is_varied = np.ptp(expected[slot]) > 0 if expected[slot].size > 8 else False
            assert not is_varied or np.ptp(value) > 0, f"{op_type}.{slot}: one number for all elements"
        return
    for slot, value in host(found).items():
        assert_close(value, expected[slot], f"{op_type}.{slot}")
    _check_gradient(op_type, sample, inputs, expected, cupy)


def _flat(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _check_gradient(op_type: str, sample: Sample, inputs: dict[str, Any], outputs: dict[str, Any], cupy: Any) -> None:
    definition = registry.get(op_type)
    rule = definition.rule
    if not isinstance(rule, Rule) or definition.inline_grad or sample.orders == 0:
        return
    rng = np.random.default_rng(0)
    given: dict[str, Any] = {}
    for slot in rule.cotangents:
        arrays = _flat(outputs.get(slot))
        if all(item is not None and item.dtype.kind == "f" for item in arrays):
            made = [with_lod(rng.standard_normal(item.shape).astype(item.dtype), lod_of(item)) for item in arrays]
            given[grad_slot(slot)] = made if definition.outputs[slot].many else made[0]
    reads = {**{slot: inputs.get(slot) for slot in rule.inputs}, **{slot: outputs.get(slot) for slot in rule.outputs}, **given}
    reads = {slot: value for slot, value in reads.items() if value is not None}
    slots = sample.wrt if sample.wrt is not None else rule.wrt
    floats = [
        slot
        for slot in slots
        if slot in inputs and all(np.asarray(array_of(item)).dtype.kind == "f" for item in _flat(inputs[slot]))
    ]
    wanted = {grad_slot(slot) for slot in floats}
    if not given or not wanted:
        return
    expected = apply_op(definition.grad_type, reads, sample.attrs, wanted)
    found = apply_op(definition.grad_type, reads, sample.attrs, wanted, xp=cupy)
    for slot, value in host(found).items():
        assert_close(value, expected[slot], f"{definition.grad_type}.{slot}")


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
    """What the startup program makes on the processor."""
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


def test_what_was_set_on_one_place_runs_on_the_other(cupy: Any) -> None:
    y = layers.fc(fluid.data("x", [-1, 3]), 2, param_attr=fluid.ParamAttr(name="w"), bias_attr=False)
    scope, x = fluid.global_scope(), np.ones((2, 3), "float32")
    weight = np.arange(6, dtype="float32").reshape(3, 2)
    for first, second in ((CPUPlace(), CUDAPlace(0)), (CUDAPlace(0), CPUPlace())):
        scope.var("w").get_tensor().set(weight, first)
        assert np.array_equal(Executor(second).run(feed={"x": x}, fetch_list=[y])[0], x @ weight)
        assert np.array_equal(Executor(first).run(feed={"x": x}, fetch_list=[y])[0], x @ weight)


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

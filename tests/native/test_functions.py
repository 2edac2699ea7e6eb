"""Ops by themselves in native code, as eager mode runs them where arrays are large: beside the same ops on numpy."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph
from fluid.executor.binding import compiled as binding
from fluid.executor.binding.compiled import Argument, Compiled, compiled
from fluid.executor.kernels.table import load_kernels
from fluid.executor.native import fallback, functions
from fluid.executor.runtime.specs import spec_of
from fluid.opdef import registry

load_kernels()
RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_NATIVE", "1")
    monkeypatch.setattr(fallback, "_warned", {})
    monkeypatch.setattr(binding, "_variants", {})


def normal(*shape: int) -> Any:
    return RANDOM.standard_normal(shape, np.float32)


def one(value: float) -> Any:
    return np.full(1, value, np.float32)


def op_on(
    op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], wants: str, into: dict[str, str] | None = None
) -> Compiled:
    """Compile an op for arrays; gradients have the shapes of their variables."""
    definition = registry.get(op_type)
    arguments = [Argument(slot, spec_of(array)) for slot, array in inputs.items()]
    slots = wants.split()
    specs = {slot: spec_of(inputs[slot.removesuffix("@GRAD")]) for slot in slots} if definition.forward is not None else None
    wanted = dict.fromkeys(slots, True)
    return compiled(definition, definition.defaults(attrs), arguments, np, wants=wanted, specs=specs, into=into, write_after=0)


def case_of(name: str) -> tuple[dict[str, Any], dict[str, Any], str, dict[str, str]]:
    """Inputs, attributes and needed outputs of an op, and the inputs that outputs overwrite."""
    into: dict[str, str] = {}
    attrs: dict[str, Any] = {}
    x, y, row = normal(512, 300), normal(512, 300), normal(300)
    match name:
        case "mul" | "mul_grad":
            inputs, wants = {"X": normal(150, 320), "Y": normal(320, 300)}, "Out"
            gradient = normal(150, 300)
        case "conv2d" | "conv2d_grad":
            inputs, attrs, wants = (
                {"Input": normal(8, 16, 20, 20), "Filter": normal(24, 16, 3, 3)},
                {"paddings": [1, 1]},
                "Output",
            )
            gradient = normal(8, 24, 20, 20)
        case "pool2d" | "pool2d_grad":
            inputs, wants, gradient = {"X": normal(4, 20, 45, 45)}, "Out", normal(4, 20, 22, 22)
            attrs = {"pooling_type": "max", "ksize": [2, 2], "strides": [2, 2]}
        case "layer_norm" | "layer_norm_grad":
            inputs, wants, gradient = {"X": x, "Scale": row, "Bias": normal(300)}, "Y Mean Variance", y
        case "adam":
            inputs = {"Param": x, "Grad": y, "Moment1": normal(512, 300), "Moment2": normal(512, 300) ** 2}
            inputs |= {"LearningRate": one(0.1), "Beta1Pow": one(0.9), "Beta2Pow": one(0.999)}
            into = {f"{slot}Out": slot for slot in ("Param", "Moment1", "Moment2")}
            return inputs, attrs, " ".join(into), into
        case _:
            inputs, wants, gradient = {"X": x}, "Out", y
    if name.endswith("_grad"):
        forward = op_on(name.removesuffix("_grad"), inputs, attrs, wants)
        outputs = forward.by_slot(forward.run(*inputs.values()))
        reads = registry.get(name).inputs
        wants = " ".join(f"{slot}@GRAD" for slot in inputs)
        grads = {f"{next(iter(outputs))}@GRAD": gradient}
        inputs = {slot: array for slot, array in {**inputs, **outputs, **grads}.items() if slot in reads}
    return inputs, attrs, wants, into


OPS = [
    *("mul", "mul_grad", "conv2d", "conv2d_grad", "pool2d", "pool2d_grad", "layer_norm", "layer_norm_grad", "softmax"),
    *("gelu", "sigmoid", "adam"),
]


@each("name", OPS)
def test_a_large_op_gives_what_numpy_gives_with_any_number_of_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, attrs, wants, into = case_of(name)
    op = op_on(name, inputs, attrs, wants, into)
    assert isinstance(op.run, functions.NativeFunction)
    with monkeypatch.context() as patch:
        patch.setenv("FLUID_NATIVE", "0")
        on_numpy = op_on(name, inputs, attrs, wants, into)
    assert not isinstance(on_numpy.run, functions.NativeFunction)

    def results(op: Compiled) -> dict[str, Any]:
        arrays = [array.copy() for array in inputs.values()]
        values = op.by_slot(op.run(*arrays))
        for slot, source in into.items():
            assert values[slot] is arrays[list(inputs).index(source)]
        return values

    expected, before = results(on_numpy), fluid.get_num_threads()
    try:
        runs = []
        for threads in (1, 2, 4):
            fluid.set_num_threads(threads)
            runs.append(results(op))
    finally:
        fluid.set_num_threads(before)
    for slot, value in expected.items():
        np.testing.assert_allclose(runs[0][slot], value, rtol=2e-5, atol=2e-5 * float(np.abs(value).max()), err_msg=slot)
        for other in runs[1:]:
            np.testing.assert_array_equal(other[slot], runs[0][slot])


def test_several_threads_may_call_a_large_op() -> None:
    """Each call sets new operand addresses; intermediate values are in memory of the calling thread."""
    inputs, attrs, wants, _ = case_of("conv2d")
    op, images = op_on("conv2d", inputs, attrs, wants), [normal(*inputs["Input"].shape) for _ in range(8)]
    expected = [op.run(image, inputs["Filter"]) for image in images]
    with ThreadPoolExecutor(4) as threads:
        for _ in range(3):
            for value, other in zip(threads.map(lambda image: op.run(image, inputs["Filter"]), images), expected, strict=True):
                np.testing.assert_array_equal(value, other)


def test_gradients_of_large_tensors() -> None:
    x, w, c = (normal(256, 256) / 8 for _ in range(3))
    with dygraph.guard():
        a, b = dygraph.to_variable(x), dygraph.to_variable(w)
        a.stop_gradient = b.stop_gradient = False
        y = fluid.layers.softmax(fluid.layers.matmul(a, b))
        fluid.layers.reduce_sum(y * dygraph.to_variable(c)).backward()
    z = np.exp(x.astype(np.float64) @ w)
    z /= z.sum(axis=1, keepdims=True)
    dz = z * (c - (z * c).sum(axis=1, keepdims=True))
    for value, expected in ((y.numpy(), z), (a.gradient(), dz @ w.T), (b.gradient(), x.T @ dz)):
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-5 * float(np.abs(expected).max()))


def test_what_an_op_does_not_read_need_not_be_passed() -> None:
    inputs, attrs, wants, _ = case_of("conv2d_grad")
    op, both = op_on("conv2d_grad", inputs, attrs, "Filter@GRAD"), op_on("conv2d_grad", inputs, attrs, wants)
    assert list(inputs) == ["Input", "Filter", "Output@GRAD"] and op.read == {0, 2}
    image, _, gradient = inputs.values()
    np.testing.assert_array_equal(op.run(image, None, gradient), both.run(*inputs.values())[1])


def test_small_ops_and_those_of_many_shapes_are_left_to_numpy() -> None:
    """Code for a shape takes as long to compile as thousands of runs."""
    assert not isinstance(op_on("softmax", {"X": normal(8, 8)}, {}, "Out").run, functions.NativeFunction)
    binding._variants[("softmax", repr(registry.get("softmax").defaults({})))] = set(range(binding._MOST_VARIANTS))
    assert not isinstance(op_on("softmax", {"X": normal(512, 300)}, {}, "Out").run, functions.NativeFunction)


def test_a_fault_in_native_code_leaves_an_op_to_numpy_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **keywords: Any) -> Any:
        raise ZeroDivisionError("no tiles")

    monkeypatch.setattr(functions, "with_native_code", fail)
    x = normal(512, 300)
    with pytest.warns(RuntimeWarning, match="native code is not used, .* no tiles"):
        op = op_on("softmax", {"X": x}, {}, "Out")
    np.testing.assert_allclose(op.run(x).sum(axis=1), 1, rtol=1e-5)

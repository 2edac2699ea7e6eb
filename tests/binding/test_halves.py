"""Half-precision floats on numpy: ops compute in float32 and round once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks import each, fresh_programs
from numeric import flat
from samples import OPS

import fluid
from fluid import dygraph, layers
from fluid.errors import ElementTypeError, FluidError, FluidTypeError
from fluid.executor.binding.compiled import apply_op
from fluid.executor.binding.halves import is_half
from fluid.opdef import registry
from fluid.values.bfloat16 import BFLOAT16, to_bfloat16, to_float32
from fluid.values.lod_array import array_of
from fluid.values.types import VarType

HALVES = {"float16": (lambda x: x.astype("float16"), lambda x: x.astype("float32")), "bfloat16": (to_bfloat16, to_float32)}
FEW = [
    "relu", "softmax", "mul", "matmul_v2", "conv2d", "batch_norm", "layer_norm", "reduce_sum", "reduce_mean", "sum", "mean",
    "elementwise_add", "elementwise_add_grad", "conv2d_grad", "pool2d", "sgd", "adam", "lookup_table", "dropout", "gather",
    "concat", "transpose2", "cast", "top_k", "cumsum",
]  # fmt: skip
RANDOM_OR_BY_TYPE = ("cast", "dropout", "fake_init")
"""Ops that say an element type themselves, or draw numbers."""


def mapped(value: Any, fn: Any) -> Any:
    """Floats of a value, or a list of them, converted."""
    if isinstance(value, list):
        return [mapped(item, fn) for item in value]
    array = np.asarray(value)
    return fn(array.astype("float32")) if array.dtype.kind == "f" else value


def holds_plain_arrays(inputs: dict[str, Any]) -> bool:
    return all(isinstance(item, np.ndarray) for value in inputs.values() for item in flat(value))


def agreement(op_type: str, half: str) -> int:
    """Hold an op on halves against the rounded results of float32; the number of samples that it takes."""
    narrow, wide = HALVES[half]
    count = 0
    for sample in OPS[op_type]:
        if not holds_plain_arrays(sample.inputs) or any("dtype" in name for name in sample.attrs):
            continue
        halves = {slot: mapped(value, narrow) for slot, value in sample.inputs.items()}
        if not any(is_half(item) for value in halves.values() for item in flat(value)):
            continue
        widened = {slot: mapped(value, lambda x: wide(narrow(x))) for slot, value in sample.inputs.items()}
        try:
            expected = apply_op(op_type, widened, sample.attrs)
        except FluidError:
            continue  # of sequences, say
        try:
            actual = apply_op(op_type, halves, sample.attrs)
        except ElementTypeError:
            continue  # of float32 and float64 alone
        for slot, value in expected.items():
            for one, other in zip(flat(value), flat(actual[slot]), strict=True):
                if one is None:
                    continue
                one, other = array_of(one), array_of(other)
                if is_half(other):
                    one, other = narrow(one), wide(other)
                    one = wide(one)
                np.testing.assert_array_equal(one, other, f"{op_type} {slot}")
        count += 1
    return count


@each("half", ["float16", "bfloat16"])
def test_ops_compute_in_float32_and_round_once(half: str) -> None:
    assert all(agreement(op_type, half) for op_type in FEW if op_type not in RANDOM_OR_BY_TYPE and op_type in OPS)


@pytest.mark.slow
@each("half", ["float16", "bfloat16"])
def test_all_ops_compute_in_float32_and_round_once(half: str) -> None:
    left_out = {name for name in OPS if "random" in name or "seed" in registry.get(name).attrs} | {*RANDOM_OR_BY_TYPE}
    left_out |= {"sequence_concatenated", "eigvals"}  # of sequences alone; of complex numbers
    with np.errstate(all="ignore"):
        assert sum(agreement(op_type, half) > 0 for op_type in OPS if op_type not in left_out) > 500


@each("half", ["float16", "bfloat16"])
def test_sums_accumulate_in_float32(half: str) -> None:
    """In float16, a sum of ones would stop at 2048; in bfloat16, at 256."""
    narrow, wide = HALVES[half]
    ones = narrow(np.ones((5000, 2), "float32"))
    for op_type, inputs, attrs in (
        ("reduce_sum", {"X": ones}, {"dim": [0]}),
        ("matmul_v2", {"X": narrow(np.ones((1, 5000), "float32")), "Y": ones}, {}),
    ):
        (total,) = apply_op(op_type, inputs, attrs).values()
        assert wide(total).ravel().tolist() == wide(narrow(np.full(2, 5000, "float32"))).tolist()


@each("half", ["float16", "bfloat16"])
def test_programs_run_the_same_with_a_plan_and_without(half: str) -> None:
    x = fluid.data("x", [None, 6])
    low = layers.cast(x, half)
    normal = layers.softmax(layers.tanh(low) * 3.0 + low)
    kept = layers.concat([normal, layers.transpose(layers.reshape(low, [-1, 3, 2]), [0, 2, 1])[:, :, 0]], axis=1)
    exe, feed = fluid.Executor(), {"x": np.random.default_rng(0).standard_normal((5, 6)).astype("float32")}
    for _ in range(2):
        for one, other in zip(
            exe.run(feed=feed, fetch_list=[normal, kept]), exe.interpret(feed=feed, fetch_list=[normal, kept]), strict=True
        ):
            assert one.dtype == ("float16" if half == "float16" else "float32") and one.tobytes() == other.tobytes()
    step = 2.0**-8 if half == "bfloat16" else 2.0**-11
    exact = np.tanh(feed["x"].astype("float64")) * 3 + feed["x"]
    exact = np.exp(exact - exact.max(1, keepdims=True))
    np.testing.assert_allclose(exe.run(feed=feed, fetch_list=[normal])[0], exact / exact.sum(1, keepdims=True), rtol=16 * step)


def test_bfloat16_is_fed_and_fetched_as_float32() -> None:
    x = fluid.data("x", [None, 2], "bfloat16")
    y = layers.scale(x, 3.0)
    exe, numbers = fluid.Executor(), np.array([[1.00390625, 7.0]], "float32")
    for value in (numbers, numbers, numbers.tolist(), to_bfloat16(numbers), to_bfloat16(numbers)):
        (result,) = exe.run(feed={"x": value}, fetch_list=[y])
        assert result.dtype == np.float32 and result.tolist() == [[3.0, 21.0]]
    with pytest.raises(FluidError, match="makes infinity in"):
        exe.run(feed={"x": np.full((1, 2), 3e38, "float32")}, fetch_list=[y], check_nan=True)


def test_bfloat16_is_an_element_type_as_others() -> None:
    assert VarType.BF16.array_dtype == BFLOAT16 and VarType.BF16.text == "bfloat16"
    with pytest.raises(FluidTypeError, match="not an element type that numpy can compute with"):
        VarType.BF16.numpy  # noqa: B018


@each("half", ["float16", "bfloat16"])
def test_tensors_of_halves(half: str) -> None:
    """Functions that create, change and read tensors."""
    tensor = dygraph.to_tensor([1.0, 2.0], dtype=half)
    assert tensor.dtype.text == half and (tensor * 3.0).numpy().tolist() == [3.0, 6.0]
    assert (tensor.tolist(), tensor[1].item(), float(tensor[0])) == ([1.0, 2.0], 2.0, 1.0)
    assert repr(tensor) == f"Tensor([1., 2.], shape=[2], dtype={half})"
    assert dygraph.to_variable(tensor.numpy()).numpy().tolist() == [1.0, 2.0]
    assert dygraph.to_tensor(HALVES[half][0](np.ones(2, "float32")), dtype="float32").numpy().tolist() == [1.0, 1.0]
    tensor.set_value(np.array([3.0, 4.0], "float32"))
    tensor[0] = 5.0
    tensor.add_(1.0)
    assert tensor.tolist() == [6.0, 5.0]
    assert (tensor > 5.5).tolist() == [True, False] and tensor.astype("float32").tolist() == [6.0, 5.0]
    parameter = dygraph.Parameter([3.0, 4.0], dtype=half)
    for _ in range(2):  # each time two contributions, which are added, and added to what is there
        (parameter * parameter + parameter).sum().backward()
    assert parameter.grad.dtype.text == half and parameter.gradient().tolist() == [14.0, 18.0]
    (gradient,) = dygraph.grad((parameter * parameter).sum(), [parameter], create_graph=True)
    gradient.sum().backward()
    assert parameter.gradient().tolist() == [16.0, 20.0]
    assert dygraph.jacobian(lambda x: x * x, parameter, vectorize=True).numpy().tolist() == [[6.0, 0.0], [0.0, 8.0]]


@each("half", ["float16", "bfloat16"])
def test_nets_of_halves_train(half: str) -> None:
    values = np.array([[1.00390625, 0.1], [0.2, 0.3]])
    with fresh_programs():
        x = fluid.data("x", [None, 2], half)
        weight = fluid.ParamAttr(name="w", initializer=fluid.initializer.NumpyArrayInitializer(values))
        loss = layers.mean(layers.fc(layers.fc(x, 2, param_attr=weight), 1) + layers.assign(np.zeros(1, "float32")).astype(half))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
        executor = fluid.Executor()
        executor.run(fluid.default_startup_program())
        narrow, wide = HALVES[half]
        assert np.array_equal(wide(fluid.global_scope().array("w")), wide(narrow(values.astype("float32"))))
        feed = {"x": narrow(np.ones((3, 2), "float32"))}
        first, *_, last = [executor.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(4)]
    assert last < first


@each("half", ["float16", "bfloat16"])
def test_blocks_prints_and_functions_of_halves(half: str, capsys: pytest.CaptureFixture[str]) -> None:
    with fresh_programs():
        x = fluid.data("x", [2, 2])
        x.stop_gradient = False
        low = layers.cast(x, half)
        index, end = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
        state, going = layers.assign(low), layers.less_than(index, end)
        entries = layers.create_array(half)
        layers.array_write(low, index, entries)
        loop = layers.While(going)
        with loop.block():
            layers.assign(state + low, state)
            layers.increment(index, 1, in_place=True)
            layers.array_write(state, index, entries)
            layers.less_than(index, end, cond=going)
        layers.Print(state, message="here")
        doubled = main_var(half)
        layers.py_func(lambda array: array * 2, state, doubled)
        joined, _ = layers.tensor_array_to_tensor(entries, axis=0)
        total = layers.reduce_sum(layers.cast(state, "float32")) + layers.reduce_sum(layers.cast(joined, "float32"))
        (gradient,) = fluid.gradients(total, [x])
        values = np.array([[1.0, 0.5], [2.0, 0.25]], "float32")
        results = fluid.Executor().run(feed={"x": values}, fetch_list=[state, doubled, joined, gradient])
    assert [np.asarray(result, "float32").tolist() for result in results[:2]] == [(4 * values).tolist(), (8 * values).tolist()]
    assert np.array_equal(results[2], np.concatenate([values * factor for factor in (1, 2, 3, 4)]))
    assert results[3].tolist() == [[14.0, 14.0], [14.0, 14.0]]
    assert f"- dtype: {half}" in (text := capsys.readouterr().out) and "data: [4.0 2.0 8.0 1.0]" in text


def main_var(half: str) -> Any:
    return fluid.default_main_program().current_block().create_var(name="doubled", shape=[2, 2], dtype=half)


@each("dtype", ["float16", "bfloat16"])
@each("kind", [fluid.optimizer.Adam, fluid.optimizer.Adamax, fluid.optimizer.Lamb, fluid.optimizer.NAdam, fluid.optimizer.RAdam])
def test_numbers_that_optimizers_count_with_are_not_halves(kind: Any, dtype: str) -> None:
    """1 - 0.999 is 0 in bfloat16, and the step after 256 is 256."""
    weight = layers.create_parameter([3], dtype, default_initializer=fluid.initializer.Constant(1.0))
    kind(learning_rate=0.01).minimize(layers.reduce_sum(layers.cast(weight, "float32")))
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    for _ in range(10):
        executor.run(scope=scope)
    numbers = {name: scope.array(name) for name in scope.local_var_names() if "_pow_" in name or "step" in name}
    assert numbers and all(array.dtype == "float32" for array in numbers.values())
    value = HALVES[dtype][1](scope.array(weight.name))
    assert (value < 1).all() and np.isfinite(value).all()

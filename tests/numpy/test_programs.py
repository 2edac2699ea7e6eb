"""`fluid.numpy` on variables of programs, in traces, and beside other libraries and Fluid's own tensors."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
import fluid.numpy as xp
from fluid import dygraph, layers

X = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")

FUNCTIONS = {
    "arithmetic": lambda x: xp.sin(x) * 2.0 + x**2 - 1,
    "two types": lambda x: xp.add(x, xp.asarray([1, 2, 3, 4])),
    "sums": lambda x: xp.sum(x, axis=0) + xp.mean(x) + xp.max(x, axis=(0, 1)) + xp.var(x, correction=1),
    "order": lambda x: xp.sort(x, axis=1, descending=True) + xp.astype(xp.argsort(x, axis=0), xp.float32),
    "shapes": lambda x: xp.reshape(xp.permute_dims(x, (1, 0)), (2, 6)) + xp.broadcast_to(xp.asarray(1.0), (2, 6)),
    "joined": lambda x: xp.concat([x, xp.zeros_like(x), xp.ones((1, 4))]),
    "stacked": lambda x: xp.stack([x, xp.flip(x, axis=1), xp.roll(x, 1)], axis=1),
    "chosen": lambda x: xp.where(xp.greater(x, 0), x, 0.0),
    "bounded": lambda x: xp.clip(x, -0.5, 0.5),
    "rounded": lambda x: xp.round(x * 3) + xp.floor(x) + xp.sign(x),
    "taken": lambda x: xp.take(x, xp.asarray([2, -1]), axis=1),
    "products": lambda x: xp.matmul(x, xp.matrix_transpose(x)) + xp.tensordot(x, x, axes=2),
    "norms": lambda x: xp.linalg.vector_norm(x, axis=1) + xp.linalg.matrix_norm(x),
    "transformed": lambda x: xp.abs(xp.fft.rfft(x)),
    "solved": lambda x: xp.linalg.solve(xp.matmul(x, xp.matrix_transpose(x)) + xp.eye(3), xp.ones((3,))),
    "running": lambda x: xp.cumulative_sum(x, axis=1, include_initial=True) + xp.ones((5,)),
    "copies": lambda x: xp.tile(x, (2, 1)) + xp.repeat(x, 2, axis=0),
    "apart": lambda x: xp.diff(x, axis=0) + xp.unstack(x, axis=0)[0],
    "sums of powers": lambda x: xp.logaddexp(x, 1.0) + xp.hypot(x, x) + xp.copysign(x, -1.0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_in_programs_and_traces(name: str) -> None:
    function = FUNCTIONS[name]
    expected = function(xp.asarray(X)).numpy()
    program = fluid.Program()
    with fluid.program_guard(program):
        result = function(fluid.data("x", list(X.shape)))
        assert isinstance(result, fluid.Variable) and not isinstance(result, dygraph.Tensor)
        assert tuple(result.shape) == expected.shape
    (fetched,) = fluid.Executor().run(program, feed={"x": X}, fetch_list=[result])
    np.testing.assert_allclose(fetched, expected, rtol=1e-5, atol=1e-6)
    again = xp.asarray(X * 2)
    result = dygraph.trace(function, xp.asarray(X))(again)
    assert type(result) is xp.NDArray
    np.testing.assert_allclose(result.numpy(), function(again).numpy(), rtol=1e-5, atol=1e-6)


UNKNOWN = {
    **FUNCTIONS,
    "joined": lambda x: xp.concat([x, xp.zeros_like(x)]),
    "rolled": lambda x: xp.roll(x, (-4, 1), axis=(0, 1)),
    "differences": lambda x: xp.diff(x, axis=0, n=2),
    "beside a number": lambda x: (
        xp.where(xp.greater(x, 0), 1.0, x) + xp.logaddexp(0.5, x) + xp.hypot(x, 2.0) + xp.copysign(2.0, x)
    ),
    "rows and columns": lambda x: xp.where(xp.greater(x[:, :1], 0), xp.asarray([1.0, 2.0, 3.0, 4.0]), x[:, :1]),
    "broadcast": lambda x: xp.concat(xp.broadcast_arrays(x[:, :1], xp.ones((4,))), axis=1),
    "from the end": lambda x: xp.take(x, xp.asarray([-1, 0]), axis=0) + xp.take(x, xp.asarray(-2), axis=0),
    "behind a zero": lambda x: xp.cumulative_sum(x, axis=1, include_initial=True),
    "behind a one": lambda x: xp.cumulative_prod(x, axis=0, include_initial=True),
    "among": lambda x: xp.astype(xp.isin(xp.round(x), xp.asarray([0.0, 1.0])), xp.float32),
    "of one sample": lambda x: xp.std(x, axis=1, correction=1),
}
for _name in ("apart", "sums", "shapes", "stacked", "solved", "products"):  # functions of a declared size
    del UNKNOWN[_name]


@each("name", UNKNOWN)
def test_programs_that_know_a_size_when_they_run(name: str) -> None:
    program = fluid.Program()
    with fluid.program_guard(program):
        result = UNKNOWN[name](fluid.data("x", [None, 4]))
    (fetched,) = fluid.Executor().run(program, feed={"x": X}, fetch_list=[result])
    np.testing.assert_allclose(fetched, UNKNOWN[name](xp.asarray(X)).numpy(), rtol=1e-5, atol=1e-6)


@each("function", [
    lambda x: xp.var(x, correction=1), lambda x: xp.fft.fftshift(x), lambda x: xp.fft.fft(x, axis=0), lambda x: xp.unstack(x),
    lambda x: xp.repeat(x, xp.asarray([1, 2, 3]), axis=0), lambda x: xp.broadcast_to(x[0], x.shape),
])  # fmt: skip
def test_what_needs_a_size_says_so(function: Any) -> None:
    with fluid.program_guard(fluid.Program()), pytest.raises(ValueError, match="known only when the program runs"):
        function(fluid.data("x", [None, 4]))


@pytest.mark.parametrize("like, number", [("int64", 2**60 + 1), ("complex128", 1 + 2j), ("complex64", 3), ("float32", 0.5)])
def test_full_like_holds_the_number_exactly(like: str, number: complex) -> None:
    program = fluid.Program()
    with fluid.program_guard(program):
        result = xp.full_like(fluid.data("x", [-1, 2], like), number)
    (fetched,) = fluid.Executor().run(program, feed={"x": np.ones((3, 2), like)}, fetch_list=[result])
    np.testing.assert_array_equal(fetched, np.full((3, 2), number, like), strict=True)


def test_gradients_of_programs() -> None:
    program = fluid.Program()
    with fluid.program_guard(program):
        x = fluid.data("x", [3, 4])
        x.stop_gradient = False
        (slope,) = fluid.gradients([xp.sum(xp.tanh(x) ** 2)], [x])
    (fetched,) = fluid.Executor().run(program, feed={"x": X}, fetch_list=[slope])
    np.testing.assert_allclose(fetched, 2 * np.tanh(X) * (1 - np.tanh(X) ** 2), rtol=1e-5, atol=1e-6)


def test_constants_of_all_types_in_a_program() -> None:
    program, feed, results = fluid.Program(), {}, []
    with fluid.program_guard(program):
        for name, dtype in xp.__array_namespace_info__().dtypes().items():
            x = fluid.data(name, [2], name)
            results.append(xp.concat([x, xp.asarray([1, 0], dtype=dtype)]))
            feed[name] = np.array([0, 1], name)
        large = fluid.data("large", [1], "int64") + xp.full(1, 2**60)
    *fetched, total = fluid.Executor().run(program, feed=feed | {"large": np.array([1])}, fetch_list=[*results, large])
    assert [str(result.dtype) for result in fetched] == list(feed)
    assert all(result.tolist() == [0, 1, 1, 0] for result in fetched) and total.tolist() == [2**60 + 1]


def test_an_array_that_needs_a_gradient_does_not_enter_a_program() -> None:
    weight = xp.asarray([1.0])
    weight.stop_gradient = False
    with (
        fluid.program_guard(fluid.Program()),
        pytest.raises(ValueError, match="requires a gradient, which a program cannot give"),
    ):
        xp.add(fluid.data("x", [1]), weight)


def test_layers_and_optimizers_take_arrays() -> None:
    with dygraph.guard():
        net = dygraph.Linear(4, 2)
        optimizer = fluid.optimizer.SGD(0.1, parameter_list=net.parameters())
        loss = xp.mean(xp.square(net(xp.asarray(X))))
        before = float(loss)
        loss.backward()
        optimizer.minimize(loss)
        assert float(xp.mean(xp.square(net(xp.asarray(X))))) < before
    assert layers.relu(xp.asarray([-1.0, 1.0])).tolist() == [0.0, 1.0]


def test_other_tensors_keep_what_fluid_1_6_says() -> None:
    x = dygraph.Tensor([1, 2, 3])
    assert x[0].shape == (1,) and x.sum().shape == (1,)
    assert bool(dygraph.Tensor([1.0, 0.0]))
    with pytest.raises(TypeError, match="cast one"):
        x + dygraph.Tensor([0.5, 0.5, 0.5])
    assert type(x + x) is dygraph.Tensor
    assert xp.sum(x).shape == ()
    assert type(xp.sin(dygraph.Tensor([1.0]))) is xp.NDArray


def test_gradients_reach_fluids_tensors() -> None:
    x = dygraph.Tensor([1.0, 2.0], stop_gradient=False)
    xp.sum(xp.asarray(x) ** 2).backward()
    assert x.gradient().tolist() == [2.0, 4.0]


@pytest.mark.parametrize("sign", ["+=", "-=", "*=", "/=", "**="])
def test_gradients_through_operators_in_place(sign: str) -> None:
    def in_place(x: Any) -> Any:
        y = x * 1.5
        values = {"x": x, "y": y}
        exec(f"y {sign} x; y {sign} 2.0", values)
        return xp.sum(values["y"])

    def anew(x: Any) -> Any:
        binary = sign[:-1]
        return xp.sum(eval(f"((x * 1.5) {binary} x) {binary} 2.0", {"x": x}))

    point = xp.asarray([0.5, 1.5], dtype=xp.float64)
    np.testing.assert_allclose(xp.grad(in_place)(point).numpy(), xp.grad(anew)(point).numpy())


def test_namespace_of_a_tensor() -> None:
    assert dygraph.Tensor([1.0]).__array_namespace__() is xp
    assert xp.asarray(1).__array_namespace__(api_version="2024.12") is xp
    with pytest.raises(ValueError, match=r"serves version 2024\.12"):
        xp.asarray(1).__array_namespace__(api_version="2019.01")
    compat = pytest.importorskip("array_api_compat", reason='needs array-api-compat: pip install "fluid-graph[test]"')
    assert compat.array_namespace(xp.asarray([1.0])) is xp
    assert compat.is_array_api_obj(xp.asarray([1.0]))
    assert compat.device(xp.asarray([1.0])) == "cpu"
    assert compat.to_device(xp.asarray([1.0]), "cpu").device == "cpu"


def test_conversions_and_errors() -> None:
    assert (int(xp.asarray(3)), float(xp.asarray(2.5)), complex(xp.asarray(1j)), bool(xp.asarray(0))) == (3, 2.5, 1j, False)
    assert [10, 20][xp.asarray(1)] == 20
    assert [float(x) for x in xp.asarray([1.0, 2.0])] == [1.0, 2.0]
    for wrong, message in {
        lambda: bool(xp.asarray([1, 2])): "has 2 elements, not one; any or all makes one",
        lambda: xp.sin([1.0]): "a function of arrays was given list; asarray",
        lambda: xp.asarray([1], dtype=xp.int8) + 300: "300 is outside the numbers of int8",
        lambda: xp.reshape(xp.arange(6), (4, -1)): "cannot have the shape",
        lambda: xp.sum(xp.ones(2), axis=1): "axis 1 does not exist: there are 1 dimensions",
        lambda: xp.zeros(2, device="moon"): "there is no device 'moon'; there are 'cpu'",
        lambda: xp.squeeze(xp.ones((2, 1)), 0): "axis 0 of .2, 1. has the size 2, not 1",
        lambda: xp.where(xp.asarray([1]), 1, 2): "the condition should be of bools",
        lambda: xp.grad(lambda x: x)(xp.ones(2)): "the function should give one real number, not float32",
        lambda: xp.grad(xp.sum)(xp.asarray([1, 2])): "only floats have gradients: cast it",
        lambda: next(iter(xp.asarray(1))): "no elements to go through",
    }.items():  # fmt: skip
        with pytest.raises(fluid.errors.FluidError, match=message):
            wrong()


def test_methods_return_arrays() -> None:
    x = xp.asarray(X)
    assert x.sum().shape == x.max().shape == () and x.mean(axis=0).shape == (4,)
    for result in (x.detach(), x.clone(), x.reshape(4, 3), x.tanh(), x.astype("float64"), x.sum(), x.transpose(), x.squeeze()):
        assert type(result) is xp.NDArray


SCIPY = """
import numpy as np
from scipy import signal, special
import fluid.numpy as xp

x = np.linspace(0.5, 3.0, 12).reshape(3, 4)
calls = {
    "logsumexp": lambda x: special.logsumexp(x, axis=1),
    "softmax": lambda x: special.softmax(x, axis=0),
    "log_softmax": lambda x: special.log_softmax(x, axis=0),
    "xlogy": lambda x: special.xlogy(x, x),
    "entr": special.entr,
    "expit": special.expit,
    "logit": lambda x: special.logit(x / 4.0),
    "erf": special.erf,
    "detrend": signal.detrend,
    "envelope": lambda x: signal.hilbert(x, axis=0),
}
for name, call in calls.items():
    result = call(xp.asarray(x))
    assert isinstance(result, xp.NDArray), name
    np.testing.assert_allclose(np.asarray(result), call(x), rtol=1e-6, atol=1e-12, err_msg=name)
    print(name)
"""


def test_scipy() -> None:
    pytest.importorskip("scipy", minversion="1.15", reason="needs scipy 1.15")
    run = [sys.executable, "-c", SCIPY]
    done = subprocess.run(run, env=os.environ | {"SCIPY_ARRAY_API": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_traced_compiled_and_repeated_functions_return_arrays() -> None:
    def function(x: Any) -> Any:
        return xp.sum(x) + x[0, 0]

    for made in (dygraph.to_static(function), dygraph.compile(function), lambda x: dygraph.recompute(function, x)):
        for _ in range(3):
            x = xp.asarray(X)
            x.stop_gradient = False
            result = made(x)
            assert type(result) is xp.NDArray and result.shape == ()
            assert float(result) == pytest.approx(X.sum() + X[0, 0], rel=1e-5)

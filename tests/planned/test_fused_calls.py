"""Elementwise calls as few kernels: on `support.strict_cupy`, which compiles them as C."""

from __future__ import annotations

import ctypes
import shutil
from functools import partial
from typing import Any

import numpy as np
import pytest
from support.strict_cupy import cupy as xp
from support.strict_cupy.functions import RawKernel

from fluid.executor.planned.fused_calls import fuse
from fluid.values.memory import extent_of

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def numbers(*shape: int, dtype: str = "float32", seed: int = 0) -> Any:
    return xp.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype))


def is_kernel(call: Any) -> bool:
    return isinstance(call.func, RawKernel)


def assert_same_bits(
    arrays: list[Any], calls: list[Any], expected: int, scratch: tuple[Any, ...] = (), is_exact: bool = True
) -> list[Any]:
    """Make calls as they are and fused, from the same values; `calls` have owners. C has another exp and tanh than numpy."""
    fused = fuse(xp, calls, scratch)
    before = [array.copy() for array in arrays]
    for _, call in calls:
        call()
    results = [array.get() for array in arrays]
    for array, former in zip(arrays, before, strict=True):
        xp.copyto(array, former)
    for array in scratch:
        array.view("uint8").fill(255)
    for _, call in fused:
        call()
    for array, result in zip(arrays, results, strict=True):
        np.testing.assert_allclose(array.get(), result, 0 if is_exact else 1e-6)
    assert len(fused) == expected, [call for _, call in fused]
    return [call for _, call in fused]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_chain_is_one_kernel(dtype: str) -> None:
    a, b, out = (numbers(5, 700, dtype=dtype, seed=seed) for seed in range(3))
    rows, one = numbers(700, dtype=dtype), numbers(1, dtype=dtype)
    column, turned = numbers(5, 1, dtype=dtype), numbers(700, 5, dtype=dtype).T
    calls = [
        partial(xp.multiply, a, b, out),
        partial(xp.add, out, rows, out),
        partial(xp.subtract, out, column, out),
        partial(xp.divide, out, 3, out),
        partial(xp.add, out, turned, out=out),
        partial(xp.maximum, out, 0, out),
        partial(xp.multiply, out, one, out),
        partial(xp.absolute, out, out),
        partial(xp.sqrt, out, out),
        partial(xp.tanh, out, b),
        partial(xp.negative, b, a),
        partial(xp.minimum, a, 0.1, a),
        partial(xp.ndarray.fill, rows, 2.5),
    ]
    (kernel, fill) = assert_same_bits([a, b, out, rows], [("op", call) for call in calls], 2, is_exact=False)
    assert is_kernel(kernel) and not is_kernel(fill)


def test_an_array_is_read_along_rows_and_along_columns() -> None:
    a, out = numbers(5), numbers(5, 5)
    calls = [partial(xp.subtract, a.reshape(1, 5), a.reshape(5, 1), out), partial(xp.multiply, out, a, out)]
    assert_same_bits([out], [("op", call) for call in calls], 1)
    stack, square = numbers(5, 5), numbers(3, 5, 5)
    calls = [partial(xp.multiply, stack, stack.T, out), partial(xp.add, out, stack, out), partial(xp.add, square, stack, square)]
    assert_same_bits([out, square], [("op", call) for call in calls], 2)


def test_numbers_that_are_no_numbers_pass_through() -> None:
    a, b = numbers(6), numbers(6)
    a[:3], b[2:5] = np.nan, np.inf
    calls = [
        partial(xp.maximum, a, b, a),
        partial(xp.minimum, b, a, b),
        partial(xp.subtract, a, b, b),
        partial(xp.divide, b, b, a),
    ]
    with np.errstate(all="ignore"):
        assert_same_bits([a, b], [("op", call) for call in calls], 1)


def test_a_chain_ends_where_elements_meet_others() -> None:
    a, b = numbers(8), numbers(8, seed=1)
    shifted = partial(xp.add, a[1:], 1.0, b[1:])
    assert_same_bits([a, b], [("op", partial(xp.multiply, b, 2.0, a)), ("op", shifted), ("op", partial(xp.add, a, b, a))], 3)
    row, table = numbers(1, 4), numbers(3, 4)
    assert_same_bits([row, table], [("op", partial(xp.add, row, 1.0, row)), ("op", partial(xp.add, table, row, table))], 2)
    one, more = numbers(1), numbers(3000)
    raised = [partial(xp.multiply, more, one, more), partial(xp.multiply, one, 2.0, one), partial(xp.multiply, more, one, more)]
    assert_same_bits([one, more], [("op", call) for call in raised], 3)


def test_calls_that_are_not_elementwise_stay_between_kernels() -> None:
    a, sums = numbers(4, 6), numbers(4)
    ints = xp.arange(6)
    calls = [
        partial(xp.multiply, a, 2.0, a),
        partial(xp.add, a, 1.0, a),
        partial(xp.add.reduce, a, 1, None, sums),
        partial(xp.multiply, ints, 2, ints),
        partial(xp.sqrt, sums, sums),
        partial(xp.exp, sums, sums),
    ]
    with np.errstate(all="ignore"):
        found = assert_same_bits([a, sums, ints], [("op", call) for call in calls], 4, is_exact=False)
    assert [is_kernel(call) for call in found] == [True, False, False, True]


def test_updates_of_all_parameters_are_one_kernel() -> None:
    sizes, scratch, calls, arrays = [(3, 4), (5000,), (7,), (40, 60)], xp.empty(5000, "float32"), [], []
    rate = numbers(1)
    for number, shape in enumerate(sizes):
        param, grad, moment = (numbers(*shape, seed=seed) for seed in range(3))
        power, step = numbers(1), scratch[: param.size].reshape(shape)
        arrays += [param, moment, power]
        update = [
            partial(xp.multiply, moment, 0.9, moment),
            partial(xp.multiply, grad, power, step),
            partial(xp.add, moment, step, moment),
            partial(xp.multiply, moment, rate, step),
            partial(xp.subtract, param, step, param),
            partial(xp.multiply, power, 0.9, power),
        ]
        owner = f"op {number}"
        calls += [(owner, call) for call in update]
    found = assert_same_bits(arrays, calls, 2, (scratch,))
    assert all(map(is_kernel, found)) and found[0].args[2][-1] == found[1].args[2][-1] == len(sizes)


def test_updates_of_one_parameter_come_one_after_the_other() -> None:
    param, grads = numbers(100), [numbers(100, seed=seed) for seed in range(3)]
    calls = [(number, partial(xp.add, param, grad, param)) for number, grad in enumerate(grads)]
    calls += [(3, partial(xp.multiply, grads[0], param, grads[1])), (4, partial(xp.multiply, param, grads[0], grads[2]))]
    assert_same_bits([param, *grads], calls, 1)


@pytest.mark.random
@pytest.mark.parametrize("seed", range(6))
def test_random_calls_give_the_same_bits_fused(seed: int) -> None:
    """Calls on views of a little memory, which overlap, by owners with scratch memory: fused, they give the same bits."""
    rng = np.random.default_rng(seed)
    memory, scratch = numbers(64, seed=seed), numbers(40, seed=seed + 1)
    shapes = [(1,), (3,), (3, 1), (1, 3), (3, 3), (2, 3), (6,), (9,), ()]

    def view(shape: tuple[int, ...], pool: Any) -> Any:
        size = int(np.prod(shape))
        start = int(rng.integers(0, pool.size - size)) // 3 * 3
        array = pool[start : start + size].reshape(shape)
        return array.T if rng.random() < 0.2 else array

    calls: list[Any] = []
    for owner in range(8):
        written: list[Any] = []
        for _ in range(rng.integers(1, 6)):
            shape = shapes[rng.integers(len(shapes))]
            out = view(shape, scratch if rng.random() < 0.4 else memory)
            candidates = [*written, *(view(item, memory) for item in shapes)]
            candidates = [array for array in candidates if fits(array, out)]
            if not candidates:
                continue
            operands = [candidates[rng.integers(len(candidates))] if rng.random() < 0.8 else 0.5 for _ in range(2)]
            if any(isinstance(operand, xp.ndarray) for operand in operands):
                calls.append((owner, partial([xp.add, xp.subtract, xp.multiply, xp.maximum][rng.integers(4)], *operands, out)))
                written.append(out)
    fused = fuse(xp, calls, (scratch,))
    assert len(fused) < len(calls)
    before = memory.copy()
    for _, call in calls:
        call()
    expected = memory.get()
    xp.copyto(memory, before)
    scratch.fill(np.nan)
    for _, call in fused:
        call()
    np.testing.assert_array_equal(memory.get(), expected)


def fits(array: Any, out: Any) -> bool:
    """Whether an array can be broadcast to an output, whose memory is another one or the same."""
    if array.ndim > out.ndim or any(
        size not in (1, extent) for size, extent in zip(array.shape[::-1], out.shape[::-1], strict=False)
    ):
        return False
    (start, end), (first, last) = extent_of(array), extent_of(out)
    return end <= first or last <= start or (start == first and array.shape == out.shape and array.strides == out.strides)


def test_kernels_are_cuda() -> None:
    """nvrtc needs no device to compile them."""
    pathfinder = pytest.importorskip("cuda.pathfinder")
    try:
        nvrtc = ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path)
    except pathfinder.DynamicLibNotFoundError:
        pytest.skip("needs nvidia-cuda-nvrtc")
    test_a_chain_is_one_kernel("float32")
    test_a_chain_is_one_kernel("float64")
    test_updates_of_all_parameters_are_one_kernel()
    for code in RawKernel.compiled:
        program, log = ctypes.c_void_p(), ctypes.create_string_buffer(1 << 14)
        assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), code.encode(), b"fused.cu", 0, None, None) == 0
        options = (ctypes.c_char_p * 2)(b"--fmad=false", b"--gpu-architecture=compute_80")
        status = nvrtc.nvrtcCompileProgram(program, 2, options)
        nvrtc.nvrtcGetProgramLog(program, log)
        assert status == 0, log.value.decode()

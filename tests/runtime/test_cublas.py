"""Products by cuBLAS: the arguments that its functions get, on a stand-in for the library, and the library itself."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.host_cublas import HostCuBlas
from support.strict_cupy import cupy

from fluid.errors import ExecutionError
from fluid.executor.runtime import cublas
from fluid.executor.runtime.cublas import CuBlas, CuBlasNamespace, declare_functions


@pytest.fixture
def library() -> HostCuBlas:
    return declare_functions(HostCuBlas())  # type: ignore[no-any-return]


def numbers(*shape: int, dtype: str = "float32") -> Any:
    return cupy.asarray(np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype))


LAYOUTS = {
    "rows": lambda a: a,
    "columns": lambda a: cupy.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2),
    "a part of longer rows": lambda a: part_of_longer_rows(a),
    "a part of longer columns": lambda a: part_of_longer_rows(a.swapaxes(-1, -2)).swapaxes(-1, -2),
    "every other number": lambda a: every_other_number(a),
    "from the end": lambda a: cupy.ascontiguousarray(a[..., ::-1])[..., ::-1],
}


def part_of_longer_rows(a: Any) -> Any:
    longer = cupy.zeros((*a.shape[:-1], a.shape[-1] + 3), a.dtype)
    longer[..., 1 : a.shape[-1] + 1] = a
    return longer[..., 1 : a.shape[-1] + 1]


def every_other_number(a: Any) -> Any:
    wider = cupy.zeros((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
    wider[..., ::2] = a
    return wider[..., ::2]


def assert_product(library: HostCuBlas, a: Any, b: Any, out: Any) -> None:
    blas = CuBlas(library, cupy, cupy.cuda.Stream())
    out.fill(np.nan)
    blas.multiply(a, b, out)
    np.testing.assert_allclose(out.get(), a.get() @ b.get(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("of_out", LAYOUTS)
@pytest.mark.parametrize("of_b", LAYOUTS)
@pytest.mark.parametrize("of_a", LAYOUTS)
def test_products_of_matrices_in_any_layout(of_a: str, of_b: str, of_out: str, library: HostCuBlas) -> None:
    for rows, depth, columns in ((2, 3, 4), (1, 3, 4), (2, 1, 4), (2, 3, 1), (1, 1, 1), (1, 3, 1), (5, 4, 1)):
        for dtype in ("float32", "float64"):
            a, b = (LAYOUTS[of_a](numbers(rows, depth, dtype=dtype)), LAYOUTS[of_b](numbers(depth, columns, dtype=dtype)))
            assert_product(library, a, b, LAYOUTS[of_out](cupy.zeros((rows, columns), dtype)))


@pytest.mark.parametrize("of_b", LAYOUTS)
@pytest.mark.parametrize("of_a", LAYOUTS)
def test_products_of_stacks(of_a: str, of_b: str, library: HostCuBlas) -> None:
    shapes = [
        ((5,), (5,)),
        ((5, 2), (5, 2)),
        ((1,), (5,)),
        ((5,), ()),
        ((), (5,)),
        ((5, 1), (1, 2)),
        ((1, 1), (1, 1)),
        ((0,), (0,)),
    ]
    for left, right in shapes:
        a, b = LAYOUTS[of_a](numbers(*left, 2, 3)), LAYOUTS[of_b](numbers(*right, 3, 4))
        assert_product(library, a, b, cupy.zeros((*np.broadcast_shapes(left, right), 2, 4), "float32"))


def test_heads_of_an_attention_are_one_call(library: HostCuBlas) -> None:
    batch, steps, heads, width = 3, 4, 2, 5
    query, key = (numbers(batch, steps, heads, width).transpose(0, 2, 1, 3) for _ in range(2))
    out = cupy.zeros((batch, heads, steps, steps), "float32")
    assert_product(library, query, key.swapaxes(-1, -2), out)
    assert library.calls == ["SgemmStridedBatched"]


def test_a_product_without_terms_is_zero(library: HostCuBlas) -> None:
    assert_product(library, cupy.zeros((2, 0), "float32"), cupy.zeros((0, 3), "float32"), cupy.ones((2, 3), "float32"))
    assert not library.calls


def test_the_namespace_multiplies_as_cupy(library: HostCuBlas) -> None:
    xp = CuBlasNamespace(cupy, CuBlas(library, cupy, cupy.cuda.Stream()))
    shapes = [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 4)),
        ((5, 2, 3), (3,)),
        ((3,), (5, 3, 4)),
        ((5, 2, 3), (3, 4)),
        ((2, 3), (3, 4)),
    ]
    for left, right in shapes:
        a, b = numbers(*left), numbers(*right)
        expected = cupy.matmul(a, b)
        out = cupy.empty(expected.shape, "float32")
        assert xp.matmul(a, b, out=out) is out
        for found in (out, xp.matmul(a, b)):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found.get(), expected.get(), rtol=1e-5, atol=1e-6)
        if max(len(left), len(right)) < 3:
            np.testing.assert_allclose(xp.dot(a, b, cupy.empty(expected.shape, "float32")).get(), cupy.dot(a, b).get(), rtol=1e-5)
    for subscripts, shape in (
        ("rcp,rcp->rc", (2, 3, 4)),
        ("rc,rc->c", (2, 3)),
        ("...c,...c->...", (2, 3, 4)),
        ("ij,ij->i", (2, 3)),
    ):
        a, b, count = numbers(*shape), numbers(*shape), len(library.calls)
        np.testing.assert_allclose(xp.einsum(subscripts, a, b).get(), cupy.einsum(subscripts, a, b).get(), rtol=1e-4)
        assert len(library.calls) == count
    assert xp.einsum("ij,jk->ik", numbers(2, 3), numbers(3, 4)).shape == (2, 4)
    assert xp.matmul(cupy.ones((2, 3), "int64"), cupy.ones((3, 2), "int64")).dtype == "int64"
    with pytest.raises(ValueError):
        xp.matmul(numbers(2, 3), numbers(2, 3))


def test_errors_say_what_cublas_says(library: HostCuBlas) -> None:
    blas = CuBlas(library, cupy, cupy.cuda.Stream())
    blas._check(0)
    with pytest.raises(ExecutionError, match="cuBLAS: an unsupported value or parameter was passed"):
        blas._check(7)


def test_tf32_is_set_as_for_cupy(library: HostCuBlas, monkeypatch: pytest.MonkeyPatch) -> None:
    CuBlas(library, cupy, cupy.cuda.Stream())
    assert not library.math_modes
    monkeypatch.setenv("CUPY_TF32", "1")
    CuBlas(library, cupy, cupy.cuda.Stream())
    assert library.math_modes == [3]


def test_a_missing_library_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublas.ctypes, "CDLL", lambda path: SimpleNamespace())
    with pytest.raises(ExecutionError, match="cuBLAS of CUDA 12 or later cannot be loaded"):
        cublas.load_cublas(cupy)


@pytest.mark.skipif(importlib.util.find_spec("nvidia") is None, reason="needs nvidia-cublas, but no device")
def test_the_library_has_the_functions_that_are_called() -> None:
    pathfinder = pytest.importorskip("cuda.pathfinder")
    try:
        path = pathfinder.load_nvidia_dynamic_lib("cublas").abs_path
    except pathfinder.DynamicLibNotFoundError:
        pytest.skip("needs nvidia-cublas")
    library = declare_functions(cublas.ctypes.CDLL(path))
    assert b"unsupported value" in library.cublasGetStatusString(7)

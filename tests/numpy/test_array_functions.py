"""Functions of whole arrays beside array-api-strict: creation, shapes, order, sums, linear algebra, Fourier transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracle import (
    ALL,
    FLOATS,
    FULL_SHAPES,
    NUMBERS,
    REALS,
    SHAPES,
    agree,
    arrays,
    ours,
    same,
    strict,
    theirs,
)

import fluid.numpy as xp

few = settings(max_examples=20, deadline=None, derandomize=True)
TYPES = st.sampled_from([np.dtype(name) for name in ALL])


def axis_in(array: Any, data: Any, extra: int = 0) -> int:
    return data.draw(st.integers(-array.ndim - extra, array.ndim + extra - 1))


def some_axes(array: Any, data: Any) -> Any:
    """None, an axis or several."""
    if not array.ndim:
        return None
    one = st.integers(-array.ndim, array.ndim - 1)
    many = st.lists(st.integers(0, array.ndim - 1), unique=True, min_size=1).map(tuple)
    return data.draw(st.one_of(st.none(), one, many))


# ------------------------------------------------------------------------------------------------------------------- creation
@few
@given(SHAPES, TYPES, st.data())
def test_filled(shape: Any, dtype: Any, data: Any) -> None:
    for name in ("zeros", "ones"):
        agree(name, shape, dtype=dtype)
    number = data.draw(
        st.sampled_from({"b": [True], "i": [-3, 100], "u": [7], "f": [1.5, float("nan"), -0.0], "c": [1 + 2j, 3.0]}[dtype.kind])
    )
    same(xp.full(shape, number, dtype=getattr(xp, dtype.name)), strict.full(shape, number, dtype=getattr(strict, dtype.name)))
    x = np.zeros(shape, dtype)
    for name in ("zeros_like", "ones_like"):
        agree(name, x)
        agree(name, x, dtype=np.dtype("float64"))
    agree("full_like", x, number)
    assert xp.empty(shape).shape == xp.empty_like(ours(x)).shape == shape


def test_default_types() -> None:
    for number, dtype in ((True, xp.bool), (1, xp.int64), (1.0, xp.float32), (1j, xp.complex64)):
        for array in (xp.asarray(number), xp.asarray([number]), xp.full(2, number)):
            assert array.dtype is dtype
    assert xp.asarray([1, 2.5]).dtype is xp.float32
    assert xp.arange(3).dtype is xp.int64
    assert xp.arange(3.0).dtype is xp.float32
    assert xp.eye(2).dtype is xp.linspace(0, 1, 3).dtype is xp.float32


@few
@given(st.integers(-20, 20), st.integers(-20, 20), st.integers(1, 5), st.sampled_from([-1, 1]))
def test_arange(start: int, stop: int, step: int, sign: int) -> None:
    same(xp.arange(start, stop, sign * step), strict.arange(start, stop, sign * step))
    same(xp.arange(start), strict.arange(start))
    same(xp.arange(start, stop, 0.5, dtype=xp.float64), strict.arange(start, stop, 0.5))


@few
@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(0, 9), st.booleans())
def test_linspace_and_eye(start: int, stop: int, num: int, endpoint: bool) -> None:
    agree("linspace", start, stop, num, dtype=np.dtype("float64"), endpoint=endpoint)
    agree("eye", num, abs(start), k=stop, dtype=np.dtype("int16"))
    agree("eye", num, dtype=np.dtype("complex64"))


@few
@given(arrays(ALL, hnp.array_shapes(min_dims=2, max_dims=4, min_side=0, max_side=4)), st.integers(-4, 4))
def test_triangles(x: Any, k: int) -> None:
    agree("tril", x, k=k)
    agree("triu", x, k=k)


@few
@given(
    st.lists(arrays(("int64",), hnp.array_shapes(max_dims=1, min_side=0, max_side=3)), min_size=1, max_size=3),
    st.sampled_from(["xy", "ij"]),
)
def test_meshgrid(grids: Any, indexing: str) -> None:
    same(xp.meshgrid(*ours(grids), indexing=indexing), strict.meshgrid(*theirs(grids), indexing=indexing))


@few
@given(arrays(ALL), TYPES)
def test_asarray_and_astype(x: Any, dtype: Any) -> None:
    agree("asarray", x)
    loses_parts = x.dtype.kind == "c" and dtype.kind != "c"
    undefined = x.dtype.kind == "f" and (not np.isfinite(x).all() or (dtype.kind == "u" and (x < 0).any()))
    if not loses_parts and not undefined:
        agree("astype", x, dtype)
    array = ours(x)
    assert xp.astype(array, array.dtype, copy=False) is array
    assert xp.astype(array, array.dtype) is not array


def test_copy_of_asarray() -> None:
    x = xp.asarray([1.0, 2.0])
    shared, copied = xp.asarray(x, copy=False), xp.asarray(x, copy=True)
    x[0] = 5.0
    assert float(shared[0]) == 5.0 and float(copied[0]) == 1.0
    with pytest.raises(ValueError, match="has to be copied"):
        xp.asarray(x, dtype=xp.float64, copy=False)
    with pytest.raises(ValueError, match="no memory to share"):
        xp.asarray([1.0], copy=False)


@few
@given(arrays(ALL))
def test_dlpack(x: Any) -> None:
    same(xp.from_dlpack(x), strict.asarray(x))
    np.testing.assert_array_equal(np.from_dlpack(ours(x)), x)
    copied = xp.from_dlpack(ours(x), copy=True)
    same(copied, strict.asarray(x))


# --------------------------------------------------------------------------------------------------------------- manipulation
@pytest.mark.parametrize("dtype", [xp.int8, xp.uint8, xp.uint64])
def test_repeats_of_any_integers(dtype: Any) -> None:
    same(xp.repeat(xp.asarray([1, 2]), xp.asarray([2, 1], dtype=dtype)), np.asarray([1, 1, 2]))
    with pytest.raises(TypeError):
        xp.repeat(xp.asarray([1, 2]), xp.asarray([2.0, 1.0]))


@few
@given(arrays(ALL), st.data())
def test_one_array(x: Any, data: Any) -> None:
    agree("flip", x)
    agree("reshape", x, (-1,) if x.size else (0,))
    agree("expand_dims", x, axis_in(x, data, 1) if x.ndim else 0)
    agree("roll", x, data.draw(st.integers(-5, 5)))
    agree("tile", x, data.draw(st.lists(st.integers(0, 3), max_size=4).map(tuple)))
    agree("repeat", x, data.draw(st.integers(0, 3)))
    order = data.draw(st.permutations(range(x.ndim)))
    agree("permute_dims", x, tuple(order))
    target = (*data.draw(st.lists(st.integers(0, 3), max_size=2)), *x.shape)
    agree("broadcast_to", x, tuple(target))
    if x.ndim:
        axis = axis_in(x, data)
        agree("flip", x, axis=some_axes(x, data))
        agree("roll", x, data.draw(st.integers(-5, 5)), axis=axis)
        agree(
            "repeat",
            x,
            np.asarray(data.draw(st.lists(st.integers(0, 3), min_size=x.shape[axis], max_size=x.shape[axis])), np.int64),
            axis=axis,
        )
        agree("unstack", x, axis=axis)
        agree("moveaxis", x, axis, axis_in(x, data))
        many = data.draw(st.lists(st.integers(0, x.ndim - 1), unique=True).map(tuple))
        agree("moveaxis", x, many, tuple(data.draw(st.permutations(many))))
    ones = [axis for axis, size in enumerate(x.shape) if size == 1]
    agree("squeeze", x, tuple(ones))


@few
@given(st.data())
def test_several_arrays(data: Any) -> None:
    shape, first = data.draw(SHAPES), data.draw(arrays(NUMBERS, ()))
    same_kind = [name for name in NUMBERS if np.dtype(name).kind == first.dtype.kind]
    given_arrays = [data.draw(arrays(tuple(same_kind), shape)) for _ in range(data.draw(st.integers(1, 3)))]
    agree("stack", given_arrays, axis=data.draw(st.integers(-len(shape) - 1, len(shape))))
    agree("concat", given_arrays, axis=None)
    if shape:
        agree("concat", given_arrays, axis=data.draw(st.integers(-len(shape), len(shape) - 1)))
    shapes = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=3, min_side=0, max_dims=3, max_side=3)).input_shapes
    same(
        xp.broadcast_arrays(*[xp.ones(part) for part in shapes]),
        strict.broadcast_arrays(*[strict.ones(part, dtype=strict.float32) for part in shapes]),
    )
    assert xp.broadcast_shapes(*shapes) == np.broadcast_shapes(*shapes)


# ------------------------------------------------------------------------------------------------- order, positions, sums
@few
@given(arrays(REALS), st.data())
def test_order(x: Any, data: Any) -> None:
    if x.ndim:
        axis = axis_in(x, data)
        for descending in (False, True):
            if not np.isnan(x).any():
                agree("sort", x, axis=axis, descending=descending, signs=False)
                agree("argsort", x, axis=axis, descending=descending)
        if x.shape[axis]:
            for name in ("argmax", "argmin"):
                agree(name, x, axis=axis, keepdims=data.draw(st.booleans()))
        agree("nonzero", x)
        agree("diff", x, axis=axis, n=data.draw(st.integers(0, 2)))
    if x.size:
        for name in ("argmax", "argmin"):
            agree(name, x, keepdims=data.draw(st.booleans()))
    agree("count_nonzero", x, axis=some_axes(x, data), keepdims=data.draw(st.booleans()))


@few
@given(arrays(ALL))
def test_sets(x: Any) -> None:
    agree("unique_counts", x, signs=False)
    agree("unique_values", x, signs=False)
    agree("unique_inverse", x, signs=False)
    result, expected = xp.unique_all(ours(x)), strict.unique_all(theirs(x))
    same(result, expected, signs=False)
    if x.dtype.kind in "iu":
        agree("isin", x, x.reshape(-1)[:2])
        same(xp.isin(ours(x), ours(x.reshape(-1)[:2]), invert=True), ~strict.isin(theirs(x), theirs(x.reshape(-1)[:2])))


@few
@given(arrays(REALS, hnp.array_shapes(max_dims=1, min_side=1), special=False), st.data())
def test_searchsorted(x: Any, data: Any) -> None:
    values = data.draw(arrays(str(x.dtype), special=False))
    for side in ("left", "right"):
        agree("searchsorted", np.sort(x), values, side=side)
        agree("searchsorted", x, values, side=side, sorter=np.argsort(x))


@few
@given(st.data())
def test_where(data: Any) -> None:
    shapes = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=3, min_side=0, max_dims=3, max_side=3)).input_shapes
    x = data.draw(arrays(FLOATS, shapes[1]))
    agree("where", data.draw(arrays("bool", shapes[0])), x, data.draw(arrays(str(x.dtype), shapes[2])))
    agree("where", data.draw(arrays("bool", shapes[0])), x, 1.0)


@few
@given(arrays(NUMBERS, least=-5, most=5, special=False), st.data())
def test_sums(x: Any, data: Any) -> None:
    axis, keepdims = some_axes(x, data), data.draw(st.booleans())
    agree("sum", x, axis=axis, keepdims=keepdims, rtol=1e-4, signs=False)
    agree("prod", x, axis=axis, keepdims=keepdims, rtol=1e-4, signs=False)
    agree("sum", x, axis=(), signs=False)
    for name in ("all", "any"):
        agree(name, x, axis=axis, keepdims=keepdims)
    if x.dtype.kind in "fc":
        with np.errstate(all="ignore"):
            agree("mean", x, axis=axis, keepdims=keepdims, rtol=1e-4, signs=False)
    if x.dtype.kind == "f" and x.size:
        correction = data.draw(st.sampled_from([0.0, 0.5]))
        agree("var", x, axis=axis, keepdims=keepdims, correction=correction, rtol=1e-4)
        agree("std", x, axis=axis, keepdims=keepdims, correction=correction, rtol=1e-3)
    if x.dtype.kind != "c" and x.size:
        for name in ("max", "min"):
            agree(name, x, axis=axis, keepdims=keepdims, signs=False)
    if x.ndim:
        for name in ("cumulative_sum", "cumulative_prod"):
            agree(name, x, axis=axis_in(x, data), include_initial=data.draw(st.booleans()), rtol=1e-4, signs=False)
    agree("sum", x, dtype=np.dtype("complex128" if x.dtype.kind == "c" else "float64"), signs=False)


# ------------------------------------------------------------------------------------------------------------------- indexing
@few
@given(arrays(ALL, FULL_SHAPES), st.data())
def test_take(x: Any, data: Any) -> None:
    axis = axis_in(x, data)
    places = st.integers(0, x.shape[axis] - 1)
    agree("take", x, np.asarray(data.draw(st.lists(places)), np.int64), axis=axis)
    shape = list(x.shape)
    shape[axis] = data.draw(st.integers(0, 3))
    agree("take_along_axis", x, data.draw(hnp.arrays(np.int64, tuple(shape), elements=places)), axis=axis)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(arrays(ALL, SHAPES), st.data())
def test_indices(x: Any, data: Any) -> None:
    item = data.draw(hnp.basic_indices(x.shape, allow_newaxis=True, allow_ellipsis=True))
    same(ours(x)[item], strict.asarray(np.asarray(x[item])))
    mine, other = ours(x), np.array(x)
    value = np.asarray(data.draw(arrays(str(x.dtype), ())))
    mine[item], other[item] = ours(value), value
    same(mine, strict.asarray(other))
    mask = data.draw(arrays("bool", x.shape))
    same(ours(x)[ours(mask)], strict.asarray(x[mask]))
    mine[ours(mask)], other[mask] = value.item(), value.item()
    same(mine, strict.asarray(other))


@few
@given(arrays(ALL, FULL_SHAPES), st.data())
def test_integer_arrays_as_indices(x: Any, data: Any) -> None:
    shape = data.draw(hnp.array_shapes(max_dims=2, max_side=3, min_side=0))
    item = tuple(data.draw(hnp.arrays(np.int64, shape, elements=st.integers(-size, size - 1))) for size in x.shape)
    same(ours(x)[ours(item)], strict.asarray(x[item]))
    same(ours(x)[ours(item[0])], strict.asarray(x[item[0]]))
    same(ours(x)[(0, *ours(item[1:]))], strict.asarray(np.asarray(x[(0, *item[1:])])))


# --------------------------------------------------------------------------------------------------------------- matrices
SMALL = {"least": -4, "most": 4, "special": False}


@few
@given(st.data(), st.sampled_from(NUMBERS))
def test_products(data: Any, dtype: str) -> None:
    m, k, n = (data.draw(st.integers(0, 3)) for _ in range(3))
    batch = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=1, min_side=0)).input_shapes
    x, y = data.draw(arrays(dtype, (*batch[0], m, k), **SMALL)), data.draw(arrays(dtype, (*batch[1], k, n), **SMALL))
    agree("matmul", x, y, rtol=1e-4, signs=False)
    v = data.draw(arrays(dtype, (k,), **SMALL))
    agree("matmul", x, v, rtol=1e-4, signs=False)
    agree("matmul", v, y, rtol=1e-4, signs=False)
    agree("matmul", v, v, rtol=1e-4, signs=False)
    agree("vecdot", x, v, rtol=1e-4, signs=False)
    agree("vecdot", v, y, axis=-2 if False else -1, rtol=1e-4, signs=False) if k == n else None
    agree("matrix_transpose", x)
    agree("tensordot", x, y, axes=((-1,), (-2,)), rtol=1e-4, signs=False)
    agree("tensordot", v, y, axes=0, rtol=1e-4, signs=False)
    agree("linalg.outer", v, v, rtol=1e-4)
    three = data.draw(arrays(dtype, (*batch[0], 3), **SMALL)), data.draw(arrays(dtype, (3,), **SMALL))
    agree("linalg.cross", *three, rtol=1e-4, signs=False)


@few
@given(arrays(FLOATS, hnp.array_shapes(min_dims=2, max_dims=3, min_side=0, max_side=4), **SMALL), st.integers(-3, 3))
def test_matrices(x: Any, offset: int) -> None:
    agree("linalg.diagonal", x, offset=offset)
    agree("linalg.trace", x, offset=offset, rtol=1e-4, signs=False)
    for order in ("fro", "nuc", 1, -1, 2, -2, float("inf"), -float("inf")):
        if x.size:
            agree("linalg.matrix_norm", x, ord=order, keepdims=offset > 0, rtol=1e-2)
    agree("linalg.svdvals", x, rtol=1e-2, signs=False)
    agree("linalg.matrix_rank", x) if x.size else None
    U, S, Vh = xp.linalg.svd(ours(x), full_matrices=False)
    np.testing.assert_allclose(np.asarray((U * xp.astype(S, U.dtype)[..., None, :]) @ Vh), x, atol=1e-3)
    full, expected = xp.linalg.svd(ours(x)), strict.linalg.svd(theirs(x))
    assert [part.shape for part in full] == [part.shape for part in expected]
    for mode in ("reduced", "complete"):
        Q, R = xp.linalg.qr(ours(x), mode=mode)
        expected = strict.linalg.qr(theirs(x), mode=mode)
        assert (Q.shape, R.shape) == tuple(part.shape for part in expected)
        np.testing.assert_allclose(np.asarray(Q @ R), x, atol=1e-3)
    same(xp.linalg.pinv(ours(x)), strict.linalg.pinv(theirs(x)), 1e-2, False) if x.size and np.linalg.cond(
        x
    ).max() < 1e3 else None


@few
@given(arrays(FLOATS, st.integers(0, 4).flatmap(lambda n: st.sampled_from([(n, n), (2, n, n), (0, n, n)])), **SMALL))
def test_square_matrices(x: Any) -> None:
    n = x.shape[-1]
    x = x + 20 * np.eye(n, dtype=x.dtype)
    for name in ("inv", "det", "slogdet"):
        agree(f"linalg.{name}", x, rtol=1e-3, signs=False)
    for power in (-1, 0, 1, 3):
        agree("linalg.matrix_power", x, power, rtol=1e-3, signs=False)
    agree("linalg.solve", x, x, rtol=1e-3, signs=False)
    agree("linalg.solve", x, np.ones(n, x.dtype), rtol=1e-3, signs=False)
    hermitian = x + np.conj(np.swapaxes(x, -1, -2))
    agree("linalg.eigvalsh", hermitian, rtol=1e-3, signs=False)
    values, vectors = xp.linalg.eigh(ours(hermitian))
    np.testing.assert_allclose(
        np.asarray(ours(hermitian) @ vectors), np.asarray(vectors * xp.astype(values, vectors.dtype)[..., None, :]), atol=1e-2
    )
    positive = x @ np.conj(np.swapaxes(x, -1, -2))
    for upper in (False, True):
        agree("linalg.cholesky", positive, upper=upper, rtol=1e-3, signs=False)


@few
@given(arrays(FLOATS, **SMALL), st.data())
def test_vector_norms(x: Any, data: Any) -> None:
    axis = some_axes(x, data)
    for order in (1, 2, 0, 3, 2.5, -1):
        if x.size:
            with np.errstate(all="ignore"):
                agree("linalg.vector_norm", x, axis=axis, keepdims=data.draw(st.booleans()), ord=order, rtol=1e-3)
    if x.size:
        for order in (float("inf"), -float("inf")):
            agree("linalg.vector_norm", x, axis=axis, ord=order)


# --------------------------------------------------------------------------------------------------------- Fourier transforms
@few
@given(arrays(FLOATS, hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=5), **SMALL), st.data())
def test_fourier(x: Any, data: Any) -> None:
    axis, norm = axis_in(x, data), data.draw(st.sampled_from(["backward", "ortho", "forward"]))
    n = data.draw(st.one_of(st.none(), st.integers(1, 6)))
    if x.dtype.kind == "c":
        for name in ("fft", "ifft"):
            agree(f"fft.{name}", x, n=n, axis=axis, norm=norm, rtol=1e-3)
        for name in ("fftn", "ifftn"):
            agree(f"fft.{name}", x, norm=norm, rtol=1e-3)
        if x.shape[axis] > 1 or n:
            for name in ("irfft", "hfft"):
                agree(f"fft.{name}", x, n=n, axis=axis, norm=norm, rtol=1e-3, signs=False)
        if x.shape[-1] > 1:
            agree("fft.irfftn", x, norm=norm, rtol=1e-3, signs=False)
    else:
        for name in ("rfft", "ihfft"):
            agree(f"fft.{name}", x, n=n, axis=axis, norm=norm, rtol=1e-3)
        agree("fft.rfftn", x, norm=norm, rtol=1e-3)
    agree("fft.fftshift", x, axes=some_axes(x, data))
    agree("fft.ifftshift", x, axes=some_axes(x, data))
    size = data.draw(st.integers(1, 9))
    agree("fft.fftfreq", size, d=0.5, dtype=np.dtype("float64"))
    agree("fft.rfftfreq", size, dtype=np.dtype("float32"))


def test_norms_of_no_elements() -> None:
    for shape, axis in [((0, 3, 3), None), ((0, 3, 3), (0, 1)), ((0, 0), -1), ((3, 0), 1), ((0, 3), 1)]:
        agree("linalg.vector_norm", np.zeros(shape, "float32"), axis=axis, keepdims=True, ord=float("inf"))
    for order in ("fro", "nuc", 1, 2, float("inf")):
        agree("linalg.matrix_norm", np.zeros((0, 0)), ord=order)

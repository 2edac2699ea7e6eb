"""Functions and ufuncs of cupy, computed by numpy's under cupy's signatures."""

from __future__ import annotations

import ctypes
import inspect
import shutil
import subprocess
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np

from . import streams
from .arrays import HERE, assign, checked_dtype, lowered, lowered_index, ndarray, sources_of, wrapped

_JOINS = frozenset(("concatenate", "concat", "stack", "hstack", "vstack", "dstack", "column_stack", "row_stack"))
_OF_SCALARS = frozenset((
    "arange", "array", "asanyarray", "asarray", "asarray_chkfinite", "ascontiguousarray", "asfortranarray", "asnumpy",
    "broadcast_shapes", "can_cast", "empty", "eye", "full", "full_like", "identity", "indices", "iscomplexobj",
    "isrealobj", "isscalar", "ix_", "linspace", "logspace", "may_share_memory", "meshgrid", "min_scalar_type", "ndim",
    "ones", "pad", "promote_types", "put", "result_type", "shape", "shares_memory", "size", "take", "tri",
    "tril_indices", "triu_indices", "zeros",
))  # fmt: skip
"""Functions whose first argument may be something else than an array of the device."""
_TAKE_NUMPY = frozenset((
    "array", "asanyarray", "asarray", "asarray_chkfinite", "ascontiguousarray", "asfortranarray", "asnumpy", "full",
    "full_like", "pad", "put", "take",
))  # fmt: skip


def function(name: str, signature: inspect.Signature, computed_by: Callable[..., Any]) -> Callable[..., Any]:
    """A function with a signature of cupy that numpy's function computes."""
    short = name.rpartition(".")[2]

    def call(*args: Any, **keywords: Any) -> Any:
        bound = signature.bind(*args, **keywords).arguments
        check_operands(short, args, bound)
        takes_numpy = short in _TAKE_NUMPY
        host_keywords = {key: lowered(value, takes_numpy) for key, value in keywords.items()}
        return wrapped(computed_by(*lowered(args, takes_numpy), **host_keywords), sources_of((*args, *keywords.values())))

    return kind_of(name)(named(call, name))


_WAITING = frozenset((
    "argsort", "argwhere", "bincount", "compress", "extract", "flatnonzero", "histogram", "histogram2d", "histogramdd", "in1d",
    "intersect1d", "isin", "lexsort", "median", "msort", "nanmedian", "nanpercentile", "nanquantile", "nonzero", "partition",
    "argpartition", "percentile", "place", "quantile", "repeat", "roots", "setdiff1d", "setxor1d", "sort", "sort_complex",
    "union1d", "unique", "unique_all", "unique_counts", "unique_inverse", "unique_values",
))  # fmt: skip
"""Functions that wait for the device: they sort, or the shapes of their results depend on values."""
_BY_CUBLAS = frozenset(("dot", "einsum", "inner", "kron", "matmul", "outer", "tensordot", "vdot"))


def kind_of(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """How a function meets a stream that records."""
    path, _, short = name.rpartition(".")
    if short in _WAITING or path in ("linalg", "fft"):
        return streams.waiting
    return streams.by_cublas if short in _BY_CUBLAS else streams.launched


def check_operands(name: str, args: tuple[Any, ...], bound: dict[str, Any]) -> None:
    """Raise an error for operands that cupy refuses."""
    if bound.get("dtype") is not None:
        if isinstance(bound["dtype"], ndarray):
            raise TypeError(f"Cannot interpret {bound['dtype']!r} as a data type")
        checked_dtype(bound["dtype"])
    if bound.get("kind") not in (None, "stable"):
        raise ValueError("kind can only be None or 'stable'")
    if name in _JOINS and not all(isinstance(item, ndarray) for item in args[0]):
        raise TypeError("Only cupy arrays can be concatenated")
    if name not in (*_OF_SCALARS, *_JOINS) and args and not isinstance(args[0], (ndarray, str, list, tuple)):
        raise TypeError(f"{name}: the argument has an incorrect type (expected ndarray, got {type(args[0]).__name__})")


def named(call: Any, name: str) -> Any:
    call.__name__, call.__qualname__, call.__module__ = name.rpartition(".")[2], name.rpartition(".")[2], HERE
    return call


# ---------------------------------------------------------------------------------------------------------------- ufuncs
class ufunc:
    """An elementwise function: it computes the loops that cupy has, without `where`, and reduces as sums and products alone."""

    __module__ = HERE

    def __init__(self, name: str, inputs: str, outputs: str, scatter: str, *loops: str) -> None:
        self.name = f"cupy_{name}"
        self.__name__ = self.__qualname__ = name
        self.nin, self.nout, self.types, self._scatter = int(inputs), int(outputs), list(loops), scatter
        self.nargs = self.nin + self.nout
        self._by: Any = getattr(np, name)

    def __repr__(self) -> str:
        return f"<ufunc '{self.name}'>"

    @streams.launched
    def __call__(self, *args: Any, out: Any = None, dtype: Any = None, casting: str = "same_kind", **keywords: Any) -> Any:
        if keywords:
            raise TypeError(f"Wrong arguments {keywords}")
        if not self.nin <= len(args) <= self.nargs:
            raise TypeError(f"Wrong number of arguments for {self.name!r}: {len(args)}")
        inputs, outs = args[: self.nin], args[self.nin :] if out is None else out if isinstance(out, tuple) else (out,)
        for value in inputs:
            if not isinstance(value, (ndarray, bool, int, float, complex, np.generic)):
                raise TypeError(f"Unsupported type {type(value)}")
        if any(not isinstance(value, ndarray) for value in outs if value is not None):
            raise TypeError("Output arguments type must be cupy.ndarray")
        if dtype is not None:
            checked_dtype(dtype)
        self._check_loop(inputs)
        options = {"casting": casting} if dtype is None else {"casting": casting, "dtype": dtype}
        if outs and self._by is not np.fix and not isinstance(self._by, np.ufunc):
            raise NotImplementedError(f"{self.name}: out")
        if outs:
            options["out"] = tuple(map(lowered, outs))
        found = self._by(*map(lowered, inputs), **(options if isinstance(self._by, np.ufunc) else {}))
        return wrapped(found, tuple(value for value in outs if value is not None))

    def _check_loop(self, inputs: tuple[Any, ...]) -> None:
        loops = [loop.partition("->")[0] for loop in self.types if "E" not in loop and "V" not in loop]
        if not any(all(map(_fits, inputs, loop)) for loop in loops):
            kinds = ", ".join(str(getattr(value, "dtype", type(value).__name__)) for value in inputs)
            raise TypeError(f"Wrong type ({kinds}) of arguments for {self.name}")

    def reduce(self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        if self.name not in ("cupy_add", "cupy_multiply"):
            raise NotImplementedError(f"`{self.name}.reduce` is not supported yet")
        return (array.sum if self.name == "cupy_add" else array.prod)(axis, dtype, out, keepdims)

    def accumulate(self, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        if self.name not in ("cupy_add", "cupy_multiply"):
            raise NotImplementedError(f"`{self.name}.accumulate` is not supported yet")
        return (array.cumsum if self.name == "cupy_add" else array.cumprod)(axis, dtype, out)

    @streams.launched
    def reduceat(self, array: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        if self.name != "cupy_add":
            raise NotImplementedError(f"`{self.name}.reduceat` is not supported yet")
        sums = np.add.reduceat(array._host, lowered(indices, takes_numpy=True), axis, dtype, lowered(out))
        return wrapped(sums, sources_of([out]))

    @streams.launched
    def at(self, a: Any, indices: Any, b: Any = None) -> None:
        if self._scatter == "-":
            raise NotImplementedError(f"`{self.name}.at` is not supported yet")
        operands = () if b is None else (lowered(b),)
        self._by.at(a._host, lowered_index(a._host, indices), *operands)

    def outer(self, A: Any, B: Any, **keywords: Any) -> Any:
        return self(A.reshape(A.shape + (1,) * B.ndim), B, **keywords)


def _fits(value: Any, char: str) -> bool:
    """Whether an operand fits a loop; Python numbers take the type of the other operands."""
    if type(value) is bool:
        return True
    if type(value) in (int, float, complex):
        return np.dtype(char).kind in {int: "iufc", float: "fc", complex: "c"}[type(value)]
    return np.can_cast(value.dtype, char, "safe")


# ------------------------------------------------------------------- functions that differ in more than their parameters
def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = None) -> None:
    if isinstance(src, np.ndarray) and src.size != 1:
        raise ValueError("non-scalar numpy.ndarray cannot be used for copyto")
    if where is not None and not isinstance(where, ndarray):
        raise TypeError(f"Unsupported type {type(where)}")
    np.copyto(dst._host, lowered(src, takes_numpy=True), casting, True if where is None else where._host)


def min(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    return a.min(axis, out, keepdims)


amin = min


def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if (x is None) != (y is None):
        raise ValueError("Must provide both 'x' and 'y' or neither.")
    if x is None:
        return condition.nonzero()
    return wrapped(np.where(condition.astype("?", copy=False)._host, lowered(x), lowered(y)))


def einsum(*operands: Any, **keywords: Any) -> Any:
    unknown = [name for name in keywords if name not in ("dtype", "optimize")]
    if unknown:
        raise TypeError(f"Did not understand the following kwargs: {unknown}")
    return wrapped(np.einsum(*lowered(operands), **keywords))


def put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> None:
    places = np.take_along_axis(np.arange(arr.size).reshape(arr.shape), lowered(indices), axis)
    shown = np.broadcast_to(lowered(values), places.shape)
    assign(arr._host, np.unravel_index(places, arr.shape), shown)


def array(
    obj: Any,
    dtype: Any = None,
    copy: Any = True,
    order: str = "K",
    subok: bool = False,
    ndmin: int = 0,
    *,
    blocking: bool = False,
) -> Any:
    """An array from host or device; an object of another library that is on the device shares its memory."""
    checked_dtype(float if dtype is None else dtype)
    if not isinstance(obj, (ndarray, np.ndarray, list, tuple)) and hasattr(obj, "__cuda_array_interface__"):
        obj = _shared(obj)
    if order is None:
        order = "K"
    if isinstance(obj, (list, tuple)) and obj and not sources_of(obj):
        streams.upload(len(obj))
    host = lowered(obj, takes_numpy=True)
    if isinstance(obj, ndarray) or _is_on_device(obj):
        made = np.array(host, dtype, copy=True if copy else None, order=order, ndmin=ndmin)
    else:
        made = np.array(host, dtype, order=order, ndmin=ndmin)
    return wrapped(made, (obj,) if isinstance(obj, ndarray) else ())


def _is_on_device(obj: Any) -> bool:
    return not isinstance(obj, np.ndarray) and hasattr(obj, "__cuda_array_interface__")


def _shared(obj: Any) -> ndarray:
    """The memory of an array of another library."""

    class Memory:
        __array_interface__ = dict(obj.__cuda_array_interface__)
        holder = obj

    return ndarray._of(np.asarray(Memory()))


def asarray(a: Any, dtype: Any = None, order: Any = None, *, copy: Any = None, blocking: bool = False) -> Any:
    return array(a, dtype, copy, order)


def ascontiguousarray(a: Any, dtype: Any = None) -> Any:
    return array(a, dtype, False, "C", ndmin=1)


def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> Any:
    return a.get(order=order, out=out) if isinstance(a, ndarray) else np.asarray(a, order=order)


def from_dlpack(array: Any, *, device: Any = None, copy: Any = None) -> Any:
    """An array that shares the memory of one on the device."""
    if isinstance(array, ndarray):
        return array.view()
    if array.__dlpack_device__()[0] != 2:
        raise BufferError("the array is not on a CUDA device")

    class OnHost:
        __dlpack__ = staticmethod(lambda **_: array.__dlpack__())
        __dlpack_device__ = staticmethod(lambda: (1, 0))

    return ndarray._of(np.from_dlpack(OnHost()))


def matmul(*args: Any, out: Any = None, **keywords: Any) -> Any:
    if len(args) > 2:
        raise TypeError("_try_fastcall_matmul() got multiple values for argument 'out'")
    check_operands("matmul", args, {})
    given = {} if out is None else {"out": out._host}
    return wrapped(np.matmul(*lowered(args), **given, **keywords), sources_of([out]))


def eigh(a: Any, UPLO: str = "L") -> Any:
    """Eigenvectors have other signs than LAPACK's."""
    values, vectors = np.linalg.eigh(a._host, UPLO)
    return wrapped((values, -vectors))


def eig(a: Any) -> Any:
    values, vectors = np.linalg.eig(a._host)
    return wrapped((values.astype(np.result_type(values, "F")), -vectors.astype(np.result_type(vectors, "F"))))


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Singular vectors have other signs than LAPACK's."""
    if not compute_uv:
        return wrapped(np.linalg.svd(a._host, full_matrices, False))
    u, s, vh = np.linalg.svd(a._host, full_matrices)
    u[..., : s.shape[-1]] *= -1
    vh[..., : s.shape[-1], :] *= -1
    return wrapped((u, s, vh))


class Grid:
    """``ogrid`` or ``mgrid``."""

    def __init__(self, by: Any) -> None:
        self._by = by

    def __getitem__(self, key: Any) -> Any:
        axes = self._by[key]
        return wrapped(list(axes) if isinstance(axes, tuple) else axes)


# --------------------------------------------------------------------------------------------------------------- kernels
_AS_C = """
#include <math.h>
static struct { unsigned x; } blockIdx, threadIdx;
%s
typedef const long long* numbers;
void launch(unsigned blocks, unsigned threads, const unsigned long long* table, numbers sizes, numbers starts, int n) {
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++)
            fused(table, sizes, starts, n);
}
"""


@cache
def _compiled(code: str) -> Any:
    """A kernel as a function of the host, by its C compiler: one thread after the other."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise RuntimeError("there is no C compiler")
    with TemporaryDirectory() as folder:
        source, library = Path(folder) / "kernel.c", Path(folder) / "kernel.so"
        source.write_text(_AS_C % code.replace('extern "C" __global__', "static"), encoding="utf-8")
        options = ["-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-shared", "-fPIC"]
        subprocess.run([compiler, *options, str(source), "-o", str(library), "-lm"], check=True, capture_output=True)
        return ctypes.CDLL(str(library)).launch


class RawKernel:
    """A kernel of the one signature that programs have: a table of addresses, sizes, first blocks, and how many there are."""

    __module__ = HERE
    compiled: ClassVar[list[str]] = []

    def __init__(self, code: str, name: str, options: tuple[str, ...] = ()) -> None:
        assert name == "fused" and options == ("--fmad=false",)
        self._code = code

    def compile(self) -> None:
        streams.refuse_waiting()  # a module is loaded
        self._by = _compiled(self._code)
        self.compiled.append(self._code)

    def __call__(self, grid: tuple[int], block: tuple[int], args: tuple[Any, ...]) -> None:
        *arrays, count = args
        call = partial(self._by, *grid, *block, *(ctypes.c_void_p(array.data.ptr) for array in arrays), int(count))
        stream = streams.current_stream()
        stream.add_call(call) if stream.is_capturing() else call()


# -------------------------------------------------------------------------------------------------------- random numbers
class Generator:
    """Random numbers. A draw into `out` without a size is one number for all elements, as cupy's is."""

    __module__ = HERE

    def __init__(self, bit_generator: np.random.BitGenerator) -> None:
        self._by = np.random.Generator(bit_generator)


def draw(name: str, signature: inspect.Signature) -> Callable[..., Any]:
    """A method of `Generator` with a signature of cupy."""
    takes_dtype = name in ("random", "integers", "standard_exponential", "standard_gamma", "standard_normal")

    def method(self: Generator, *args: Any, **keywords: Any) -> Any:
        streams.refuse_waiting()
        given = signature.bind(self, *args, **keywords).arguments
        given = {key: lowered(value) for key, value in given.items() if key != "self"}
        out, dtype = given.pop("out", None), np.dtype(given.get("dtype", "float64"))
        if not takes_dtype:
            given.pop("dtype", None)
        if out is not None and (dtype != out.dtype or not out.flags.c_contiguous):
            raise TypeError(f"Supplied output array has the wrong type {out.dtype}, or is not contiguous")
        if out is not None and given.get("size") not in (None, out.shape, *out.shape[: out.ndim == 1]):
            raise ValueError("size must match out.shape when used together")
        found = np.asarray(getattr(self._by, name)(**given))
        if out is not None:
            out[...] = found
            return keywords.get("out", args[-1] if args else None)
        return wrapped(found if takes_dtype or "dtype" not in signature.parameters else found.astype(dtype))

    return named(method, f"Generator.{name}")


def philox(seed: Any = None, *, size: int = -1) -> np.random.BitGenerator:
    """A source of random bits; other ones than numpy's of the same seed."""
    streams.refuse_waiting()
    return np.random.Philox(None if seed is None else [int(seed) & (2**63 - 1), 1])


def default_rng(seed: Any = None) -> Generator:
    return Generator(philox(seed))

"""Ops that draw random numbers: with a `seed` the same numbers in every run, otherwise by the seed of the program."""

from __future__ import annotations

from typing import Any

from ..errors import ElementTypeError, InferenceError
from ..opdef.registry import ZERO_GRADIENT, define, least, like, longs, required
from ..values.spec import Spec
from ..values.types import VarType, as_dtype, is_floating
from .creation import FP32, filled, filled_like_batch, filled_plainly
from .shapes import in_order


def _of_floats(dtype: int) -> int:
    """`dtype`; `ElementTypeError` if it is no type of floats."""
    if not is_floating(as_dtype(dtype)):
        raise ElementTypeError(f"dtype {dtype} ({as_dtype(dtype).text}) should be of floats: float32, float64 or float16")
    return dtype


def _floats(shape: list[int], dtype: int, ShapeTensor: Spec | None, ShapeTensorList: list[Spec] | None) -> Spec:
    return filled(shape, _of_floats(dtype), ShapeTensor, ShapeTensorList)


def _floats_plainly(shape: list[int], dtype: int) -> Spec:
    return filled_plainly(shape, _of_floats(dtype))


def _floats_like_batch(Input: Spec, shape: list[int], dtype: int, input_dim_idx: int, output_dim_idx: int) -> Spec:
    return filled_like_batch(Input, shape, _of_floats(dtype), input_dim_idx, output_dim_idx)


def _uniform(
    shape: list[int], dtype: int, min: float, max: float, ShapeTensor: Spec | None, ShapeTensorList: list[Spec] | None
) -> Spec:
    in_order("min", min, "max", max)
    return _floats(shape, dtype, ShapeTensor, ShapeTensorList)


def _uniform_like_batch(
    Input: Spec, shape: list[int], dtype: int, input_dim_idx: int, output_dim_idx: int, min: float, max: float
) -> Spec:
    in_order("min", min, "max", max)
    return _floats_like_batch(Input, shape, dtype, input_dim_idx, output_dim_idx)


def _randint(
    shape: list[int], dtype: int, low: int, high: int, ShapeTensor: Spec | None, ShapeTensorList: list[Spec] | None
) -> Spec:
    if low >= high:
        raise InferenceError(f"low {low} should be below high {high}")
    return filled(shape, dtype, ShapeTensor, ShapeTensorList)


_UNIFORM: dict[str, Any] = {"min": -1.0, "max": 1.0, "seed": 0, "diag_num": 0, "diag_step": 0, "diag_val": 1.0, "dtype": FP32}
_NORMAL: dict[str, Any] = {"mean": 0.0, "std": least(0, 1.0), "seed": 0, "dtype": FP32}
_BATCH: dict[str, Any] = {"shape": required("ints"), "input_dim_idx": 0, "output_dim_idx": 0}


@define(
    "uniform_random(ShapeTensor?, ShapeTensorList*?: [one]) -> Out", infer=_uniform, grad=ZERO_GRADIENT, shape=longs(), **_UNIFORM
)
def uniform_random() -> None:
    """Numbers drawn uniformly from ``[min, max)``; then `diag_num` elements, at distances of `diag_step` + 1, are `diag_val`."""


@define(
    "gaussian_random(ShapeTensor?, ShapeTensorList*?: [one]) -> Out", infer=_floats, grad=ZERO_GRADIENT, shape=longs(), **_NORMAL
)
def gaussian_random() -> None:
    """Numbers drawn from the normal distribution with mean `mean` and standard deviation `std`."""


@define("truncated_gaussian_random() -> Out", infer=_floats_plainly, grad=ZERO_GRADIENT, shape=required("ints"), **_NORMAL)
def truncated_gaussian_random() -> None:
    """As `gaussian_random`; numbers that are more than two standard deviations from the mean are drawn again."""


@define(
    "uniform_random_batch_size_like(Input) -> Out",
    infer=_uniform_like_batch,
    lod_aware=True,
    grad=ZERO_GRADIENT,
    shape_only=["Input"],
    **_BATCH,
    **_UNIFORM,
)
def uniform_random_batch_size_like() -> None:
    """As `uniform_random`, with dimension `input_dim_idx` of `Input` as dimension `output_dim_idx`."""


@define(
    "gaussian_random_batch_size_like(Input) -> Out",
    infer=_floats_like_batch,
    lod_aware=True,
    grad=ZERO_GRADIENT,
    shape_only=["Input"],
    **_BATCH,
    **_NORMAL,
)
def gaussian_random_batch_size_like() -> None:
    """As `gaussian_random`, with dimension `input_dim_idx` of `Input` as dimension `output_dim_idx`."""


@define(
    "randint(ShapeTensor?, ShapeTensorList*?: [one]) -> Out",
    infer=_randint,
    grad=ZERO_GRADIENT,
    low=required("int"),
    high=required("int"),
    shape=longs(),
    dtype=int(VarType.INT64),
    seed=0,
)
def randint() -> None:
    """Integers drawn uniformly from ``[low, high)``."""


@define("bernoulli(X) -> Out", infer=like("X"), grad=ZERO_GRADIENT, seed=0)
def bernoulli() -> None:
    """For each element of X, 1 with that probability, 0 otherwise."""


def _randperm(n: int, dtype: int) -> Spec:
    if n < 1:
        raise InferenceError(f"randperm: n {n} should be above 0")
    return Spec((n,), as_dtype(dtype))


@define("randperm() -> Out", infer=_randperm, grad=ZERO_GRADIENT, n=required("int"), dtype=int(VarType.INT64), seed=0)
def randperm() -> None:
    """The integers from 0 to `n` - 1 in random order."""


def _multinomial(X: Spec, num_samples: int) -> Spec:
    if X.ndim not in (1, 2) or num_samples < 1:
        raise InferenceError(f"multinomial: X {X} should be a vector or rows of weights, and num_samples {num_samples} above 0")
    if X.shape[-1] == 0:
        raise InferenceError(f"multinomial: X {X} should have weights to draw from")
    return Spec((*X.shape[:-1], num_samples), VarType.INT64)


@define("multinomial(X) -> Out", infer=_multinomial, grad=ZERO_GRADIENT, num_samples=1, replacement=False, seed=0)
def multinomial() -> None:
    """For each row of X, `num_samples` indices drawn with the weights in the row, with or without `replacement`."""


def _sampling_id(X: Spec, min: float, max: float) -> Spec:
    if X.ndim != 2:
        raise InferenceError(f"sampling_id: X {X} should have shape [rows, classes]")
    in_order("min", min, "max", max)
    return Spec(X.shape[:1], VarType.INT64)


@define("sampling_id(X) -> Out", infer=_sampling_id, grad=ZERO_GRADIENT, min=0.0, max=1.0, seed=0)
def sampling_id() -> None:
    """For each row of X, which holds probabilities of classes, a class drawn from them.

    It is the first class whose cumulative probability exceeds a number drawn from ``[min, max)``.
    """


@define("seed() -> Out", infer=lambda: Spec((1,), VarType.INT32), grad=ZERO_GRADIENT, seed=0)
def seed() -> None:
    """A seed for ops that take one as a tensor: the attribute, or a random number where that is 0."""

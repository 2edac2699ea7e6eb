"""Ops that draw numbers. With a `seed` an op draws the same numbers in every run; without, those of its program's seed."""

from __future__ import annotations

from typing import Any

from ..errors import InferenceError
from ..types import VarType
from ..values import Spec
from .creation import FP32, filled, filled_like_batch, filled_plainly
from .registry import ZERO_GRADIENT, define, like, longs, required


def _randint(
    shape: list[int], dtype: int, low: int, high: int, ShapeTensor: Spec | None, ShapeTensorList: list[Spec] | None
) -> Spec:
    if low >= high:
        raise InferenceError(f"there is no whole number in [{low}, {high})")
    return filled(shape, dtype, ShapeTensor, ShapeTensorList)


_UNIFORM: dict[str, Any] = {"min": -1.0, "max": 1.0, "seed": 0, "diag_num": 0, "diag_step": 0, "diag_val": 1.0, "dtype": FP32}
_NORMAL: dict[str, Any] = {"mean": 0.0, "std": 1.0, "seed": 0, "dtype": FP32}
_BATCH: dict[str, Any] = {"shape": required("ints"), "input_dim_idx": 0, "output_dim_idx": 0}


@define("uniform_random(ShapeTensor?, ShapeTensorList*?) -> Out", infer=filled, grad=ZERO_GRADIENT, shape=longs(), **_UNIFORM)
def uniform_random() -> None:
    """Numbers drawn evenly from ``[min, max)``; then `diag_val` at `diag_num` places, `diag_step` and one apart."""


@define("gaussian_random(ShapeTensor?, ShapeTensorList*?) -> Out", infer=filled, grad=ZERO_GRADIENT, shape=longs(), **_NORMAL)
def gaussian_random() -> None:
    """Numbers drawn from the normal distribution with this mean and standard deviation."""


@define("truncated_gaussian_random() -> Out", infer=filled_plainly, grad=ZERO_GRADIENT, shape=required("ints"), **_NORMAL)
def truncated_gaussian_random() -> None:
    """As `gaussian_random`, with numbers more than two standard deviations from the mean drawn again."""


@define(
    "uniform_random_batch_size_like(Input) -> Out",
    infer=filled_like_batch,
    grad=ZERO_GRADIENT,
    likes=["Input"],
    **_BATCH,
    **_UNIFORM,
)
def uniform_random_batch_size_like() -> None:
    """As `uniform_random`, with extent `input_dim_idx` of `Input` as extent `output_dim_idx`."""


@define(
    "gaussian_random_batch_size_like(Input) -> Out",
    infer=filled_like_batch,
    grad=ZERO_GRADIENT,
    likes=["Input"],
    **_BATCH,
    **_NORMAL,
)
def gaussian_random_batch_size_like() -> None:
    """As `gaussian_random`, with extent `input_dim_idx` of `Input` as extent `output_dim_idx`."""


@define(
    "randint(ShapeTensor?, ShapeTensorList*?) -> Out",
    infer=_randint,
    grad=ZERO_GRADIENT,
    low=required("int"),
    high=required("int"),
    shape=longs(),
    dtype=int(VarType.INT64),
    seed=0,
)
def randint() -> None:
    """Whole numbers drawn evenly from ``[low, high)``."""


@define("bernoulli(X) -> Out", infer=like("X"), grad=ZERO_GRADIENT, seed=0)
def bernoulli() -> None:
    """1 with the probability that X says, 0 otherwise, element by element."""

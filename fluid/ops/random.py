"""Ops that draw random numbers: with a `seed` the same numbers in every run, otherwise by the seed of the program."""

from __future__ import annotations

from typing import Any

from ..errors import ElementTypeError, InferenceError
from ..opdef.registry import NOT_DIFFERENTIABLE, ZERO_GRADIENT, ShapeOnly, define, least, like, longs, required
from ..values.spec import Spec
from ..values.types import VarType, as_dtype, is_floating
from .creation import FP32, filled, filled_like_batch, filled_plainly
from .manipulation import product
from .shapes import fits, in_order, normalize_axis


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


def _between(X: Spec, min: float, max: float) -> Spec:
    in_order("min", min, "max", max)
    return X


_UNIFORM: dict[str, Any] = {"min": -1.0, "max": 1.0, "seed": 0, "diag_num": 0, "diag_step": 0, "diag_val": 1.0, "dtype": FP32}
_UNIFORM_INPLACE = {name: attr for name, attr in _UNIFORM.items() if name != "dtype"}
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
    """As `uniform_random`, with dimension `input_dim_idx` of `Input` as dimension `output_dim_idx`.

    Args:
        Input: a tensor; only its size is read.
        shape: the sizes; the one at `output_dim_idx` is replaced.
        min, max: the numbers lie in ``[min, max)``.
        seed: of the random numbers, the same in every run; 0 draws new ones.
        dtype: a float type.
        input_dim_idx: the dimension of Input that the size is taken from.
        output_dim_idx: the dimension of the result that gets it.
    """


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
    """As `gaussian_random`, with dimension `input_dim_idx` of `Input` as dimension `output_dim_idx`.

    Args:
        Input: a tensor; only its size is read.
        shape: the sizes; the one at `output_dim_idx` is replaced.
        seed: of the random numbers, the same in every run; 0 draws new ones.
        dtype: a float type.
        input_dim_idx: the dimension of Input that the size is taken from.
        output_dim_idx: the dimension of the result that gets it.
        mean: the mean.
        std: the standard deviation, at least 0.
    """


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

    Args:
        X: ``[rows, classes]``, each row summing to 1.
        min, max: bounds of the number drawn.
        seed: of the random numbers, the same in every run; 0 draws new ones.
    """


@define("seed() -> Out", infer=lambda: Spec((1,), VarType.INT32), grad=ZERO_GRADIENT, seed=0)
def seed() -> None:
    """A seed for ops that take one as a tensor: the attribute, or a random number where that is 0."""


# ------------------------------------------------------------------------------------------------ distributions of tensors
@define("poisson(X: real) -> Out", infer=like("X"), seed=0)
def poisson(f: Any, dOut: Any) -> Any:
    """For each element of X, a number drawn from the Poisson distribution with that mean."""
    return {"X": f.fill_zeros_like(dOut)}


_RATE: dict[str, Any] = {"lambda": 1.0}


@define("exponential(X: real) -> Out", infer=like("X"), inline_grad=True, seed=0, **_RATE)
def exponential(f: Any, dOut: Any) -> Any:
    """Numbers drawn from the exponential distribution with the rate `lambda`, in the shape of X."""
    return {"X": f.fill_any_like(dOut, value=0.0)}


def _dirichlet(Alpha: Spec) -> Spec:
    if not Alpha.ndim:
        raise InferenceError(f"dirichlet: Alpha is {Alpha}; it should have a dimension at least")
    return Alpha


@define("dirichlet(Alpha: real) -> Out", infer=_dirichlet, grad=NOT_DIFFERENTIABLE, seed=0)
def dirichlet() -> None:
    """For each row of Alpha (its last dimension), probabilities drawn from the Dirichlet distribution with that concentration."""


@define("uniform_random_inplace(X: real) -> Out", infer=lambda X, min, max: _between(X, min, max), **_UNIFORM_INPLACE)
def uniform_random_inplace(f: Any, dOut: Any) -> Any:
    """As `uniform_random`, in the shape and of the element type of X."""
    return {"X": f.fill_zeros_like(dOut)}


@define("gaussian_inplace(x: real) -> out", infer=like("x"), mean=0.0, std=least(0, 1.0), seed=0)
def gaussian_inplace(f: Any, dout: Any) -> Any:
    """As `gaussian_random`, in the shape and of the element type of x."""
    return {"x": f.fill_zeros_like(dout)}


def _gumbel(X: Spec, temperature: float, axis: int) -> Spec:
    if X.ndim:
        normalize_axis(axis, X.ndim)
    if temperature <= 0:
        raise InferenceError(f"temperature {temperature} should be above 0")
    return X


@define("gumbel_softmax(X: real) -> Out", infer=_gumbel, temperature=1.0, hard=False, axis=-1, seed=0)
def gumbel_softmax(f: Any, Out: Any, dOut: Any, temperature: float, axis: int) -> Any:
    """The softmax along `axis` of X, with numbers from the Gumbel distribution added, divided by `temperature`: nearly a class,
    drawn with probabilities whose logarithms are X. With `hard`, 1 for the largest and 0 elsewhere."""
    if not Out.ndim:
        return {"X": f.fill_zeros_like(dOut)}
    inner = f.reduce_sum(dOut * Out, dim=[axis], keep_dim=True)
    return {"X": Out * (dOut - inner) * (1.0 / temperature)}


def _rrelu(X: Spec, lower: float, upper: float) -> tuple[Spec, Spec]:
    in_order("lower", lower, "upper", upper)
    return X, X


@define("rrelu(X: real) -> Out, Noise~", infer=_rrelu, is_test=False, lower=0.125, upper=0.3333333432674408, seed=0)
def rrelu(f: Any, X: ShapeOnly, Noise: Any, dOut: Any, dNoise: Any = None) -> Any:
    """X where it is not negative; elsewhere X times a slope that is drawn from ``[lower, upper]``, or with `is_test` the middle.
    Noise has the slopes, and 1 where X is not negative."""
    return {"X": dOut * Noise}


def _shuffled(X: Spec, Seed: Spec) -> tuple[Spec, Spec, Spec]:
    if not X.ndim:
        raise InferenceError(f"shuffle_batch: X is {X}; it should have a dimension at least")
    return X, Spec((product(X.shape[:-1]),), VarType.INT64), Seed


@define("shuffle_batch(X, Seed: int[one]) -> Out, ShuffleIdx, SeedOut", infer=_shuffled, wrt=("X",), startup_seed=0)
def shuffle_batch(f: Any, ShuffleIdx: Any, dOut: Any) -> Any:
    """The rows of X (its last dimension) in an order that Seed draws, and that order; SeedOut is the seed of the next call. Where
    Seed is 0, `startup_seed` takes its place."""
    rows = f.flatten(dOut, axis=dOut.ndim - 1)
    return {"X": f.reshape_like(f.scatter_add_like(rows, ShuffleIdx, rows), dOut)}


def _top_p(x: Spec, ps: Spec, threshold: Spec | None) -> tuple[Spec, Spec]:
    if x.ndim != 2 or x.shape[1] == 0 or not fits(ps.size, x.shape[0]):
        raise InferenceError(f"top_p_sampling: x is {x} and ps {ps}; they should be rows of probabilities, and a number for each")
    if threshold is not None and not fits(threshold.size, x.shape[0]):
        raise InferenceError(f"top_p_sampling: threshold is {threshold}; it should be a number for each row of x, which is {x}")
    return x.with_shape((x.shape[0], 1)), Spec((x.shape[0], 1), VarType.INT64)


@define("top_p_sampling(x: real, ps: real, threshold?: real) -> out, ids", infer=_top_p, grad=NOT_DIFFERENTIABLE, seed=-1)
def top_p_sampling() -> None:
    """For each row of probabilities, an index drawn among the fewest largest ones whose sum reaches the number in `ps`, and its
    probability; those below the number in `threshold` are left out."""

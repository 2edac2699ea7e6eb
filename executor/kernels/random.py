"""Kernels of `fluid.ops.random`. Where `Out` is None, its shape is known only now: the kernel makes and returns it."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from fluid.errors import ExecutionError

from .creation import prepare_output
from .manipulation import write_wanted
from .sorting import stable_order
from .table import Slots, checked, kernel


def _draw(method: Callable[..., Any], out: Any) -> None:
    """Fill `out` by a method of a generator that draws float32 or float64.

    The size is passed although `out` has it: without a size, cupy's methods draw one number and spread it over `out`.
    """
    if out.dtype.kind == "f" and out.dtype.itemsize >= 4 and out.flags.c_contiguous:
        method(out.shape, dtype=out.dtype, out=out)
    else:
        out[...] = method(out.shape, dtype="float32").astype(out.dtype)


def _uniform(rng: Any, attrs: Slots, out: Any) -> None:
    _draw(rng().random, out)
    out *= attrs["max"] - attrs["min"]
    out += attrs["min"]
    count, step = attrs["diag_num"], attrs["diag_step"] + 1
    if count:
        out.reshape(-1)[: count * step : step] = attrs["diag_val"]


def _normal(rng: Any, mean: float, std: float, out: Any) -> None:
    _draw(rng().standard_normal, out)
    out *= std
    out += mean


@kernel("uniform_random")
def uniform_random(xp: Any, rng: Any, inputs: Slots, attrs: Slots, Out: Any) -> Any:
    out = prepare_output(xp, inputs, attrs, Out)
    _uniform(rng, attrs, out)
    return out


@kernel("uniform_random_batch_size_like")
def uniform_random_batch_size_like(rng: Any, attrs: Slots, Out: Any) -> None:
    _uniform(rng, attrs, Out)


@kernel("gaussian_random")
def gaussian_random(xp: Any, rng: Any, mean: float, std: float, inputs: Slots, attrs: Slots, Out: Any) -> Any:
    out = prepare_output(xp, inputs, attrs, Out)
    _normal(rng, mean, std, out)
    return out


@kernel("gaussian_random_batch_size_like")
def gaussian_random_batch_size_like(rng: Any, mean: float, std: float, Out: Any) -> None:
    _normal(rng, mean, std, Out)


@kernel("truncated_gaussian_random")
def truncated_gaussian_random(xp: Any, rng: Any, mean: float, std: float, Out: Any) -> None:
    generator = rng()
    _draw(generator.standard_normal, Out)
    outside = xp.abs(Out) > 2.0
    while count := int(outside.sum()):
        Out[outside] = generator.standard_normal(count, dtype="float32" if Out.dtype.itemsize <= 4 else "float64")
        outside = xp.abs(Out) > 2.0
    Out *= std
    Out += mean


@kernel("randint")
def randint(xp: Any, rng: Any, low: int, high: int, inputs: Slots, attrs: Slots, Out: Any) -> Any:
    out = prepare_output(xp, inputs, attrs, Out)
    out[...] = rng().integers(low, high, out.shape, dtype="int64")
    return out


@kernel("bernoulli")
def bernoulli(xp: Any, rng: Any, X: Any, Out: Any) -> None:
    xp.copyto(Out, rng().random(X.shape, dtype="float64") < X, "unsafe")


@kernel("randperm")
def randperm(xp: Any, rng: Any, n: int, Out: Any) -> None:
    Out[...] = xp.argsort(rng().random(n, dtype="float64"))


@checked("multinomial")
def check_multinomial(xp: Any, X: Any, num_samples: int, replacement: bool) -> None:
    weights = X.reshape(-1, X.shape[-1])
    if not bool((xp.isfinite(weights) & (weights >= 0)).all()):
        raise ExecutionError("multinomial: weights should be numbers, not below 0")
    least = 1 if replacement else num_samples
    if bool(((weights > 0).sum(1) < least).any()):
        raise ExecutionError(f"multinomial: each row should have at least {least} weights above 0 to draw from")


@kernel("multinomial")
def multinomial(xp: Any, rng: Any, X: Any, num_samples: int, replacement: bool, Out: Any) -> None:
    weights = X.reshape(-1, X.shape[-1]).astype("float64")
    generator = rng()
    if replacement:
        sums = xp.cumsum(weights, 1)
        drawn = generator.random((len(weights), num_samples), dtype="float64") * sums[:, -1:]
        ids = (drawn[:, :, None] >= sums[:, None, :]).sum(2)
    else:  # exponential race: the order of arrivals at these rates draws without replacement
        clocks = -xp.log1p(-generator.random(weights.shape, dtype="float64"))
        times = xp.where(weights > 0, clocks / xp.where(weights > 0, weights, 1), xp.inf)
        ids = times.argsort(1)[:, :num_samples]
    xp.copyto(Out, ids.reshape(Out.shape))


@kernel("sampling_id")
def sampling_id(xp: Any, rng: Any, X: Any, min: float, max: float, Out: Any) -> None:
    drawn = rng().random((len(X), 1), dtype="float64") * (max - min) + min
    xp.copyto(Out, xp.minimum((xp.cumsum(X.astype("float64"), 1) <= drawn).sum(1), X.shape[1] - 1))


@kernel("seed")
def seed(rng: Any, seed: int, Out: Any) -> None:
    Out[...] = seed or rng().integers(1, 2**31 - 1, 1, dtype="int64")


# ------------------------------------------------------------------------------------------------ distributions of tensors
def _draws(rng: Any, shape: tuple[int, ...]) -> Any:
    """Uniform numbers in (0, 1)."""
    return 1.0 - rng().random(shape, dtype="float64") * (1.0 - 2.0**-53)


@checked("poisson")
def check_poisson(xp: Any, X: Any) -> None:
    if not bool(((X >= 0) & (X < 2.0**62)).all()):
        raise ExecutionError("poisson: X should be means, not below 0 and not of 63 bits")


@kernel("poisson")
def poisson(rng: Any, X: Any, Out: Any) -> None:
    Out[...] = rng().poisson(X.astype("float64"), X.shape)


@kernel("exponential")
def exponential(xp: Any, rng: Any, X: Any, lambda_: float, Out: Any) -> None:
    xp.copyto(Out, -xp.log(_draws(rng, Out.shape)) / lambda_, "same_kind")


@checked("dirichlet")
def check_dirichlet(Alpha: Any) -> None:
    if not bool((Alpha > 0).all()):
        raise ExecutionError("dirichlet: the concentrations in Alpha should be above 0")


@kernel("dirichlet")
def dirichlet(xp: Any, rng: Any, Alpha: Any, Out: Any) -> None:
    drawn = rng().standard_gamma(Alpha.astype("float64"))
    xp.copyto(Out, drawn / drawn.sum(-1, keepdims=True), "same_kind")


@kernel("uniform_random_inplace")
def uniform_random_inplace(rng: Any, attrs: Slots, Out: Any) -> None:
    _uniform(rng, attrs, Out)


@kernel("gaussian_inplace")
def gaussian_inplace(rng: Any, mean: float, std: float, out: Any) -> None:
    _normal(rng, mean, std, out)


@kernel("gumbel_softmax")
def gumbel_softmax(xp: Any, rng: Any, X: Any, temperature: float, hard: bool, axis: int, Out: Any) -> None:
    if not X.ndim:
        Out.fill(1)
        return
    noisy = (X - xp.log(-xp.log(_draws(rng, X.shape)))) / temperature
    if hard:
        places = noisy.argmax(axis)
        Out.fill(0)
        xp.put_along_axis(Out, xp.expand_dims(places, axis), Out.dtype.type(1), axis)
        return
    powers = xp.exp(noisy - noisy.max(axis, keepdims=True))
    xp.copyto(Out, powers / powers.sum(axis, keepdims=True), "same_kind")


@kernel("rrelu")
def rrelu(xp: Any, rng: Any, X: Any, is_test: bool, lower: float, upper: float, Out: Any, Noise: Any) -> None:
    slopes = (lower + upper) / 2 if is_test else lower + rng().random(X.shape, dtype="float64") * (upper - lower)
    noise = xp.where(X < 0, slopes, 1).astype(X.dtype)
    write_wanted((Noise, noise), (Out, X * noise))


@kernel("shuffle_batch")
def shuffle_batch(xp: Any, X: Any, Seed: Any, startup_seed: int, Out: Any, ShuffleIdx: Any, SeedOut: Any) -> None:
    generator = xp.random.default_rng((int(Seed.reshape(-1)[0]) or startup_seed) & (2**63 - 1))
    rows = X.reshape(prod(X.shape[:-1]), X.shape[-1])
    order = xp.argsort(generator.random(len(rows), dtype="float64"))
    following = int(generator.integers(1, 2**31 - 1))
    write_wanted((ShuffleIdx, order), (SeedOut, following))
    if Out is not None:
        xp.copyto(Out, rows[order].reshape(Out.shape))


@kernel("top_p_sampling")
def top_p_sampling(xp: Any, rng: Any, x: Any, ps: Any, threshold: Any, out: Any, ids: Any) -> None:
    rows = xp.arange(len(x))
    order = stable_order(xp, -x)
    sorted_ = xp.take_along_axis(x, order, 1).astype("float64")
    sums = xp.cumsum(sorted_, 1)
    is_candidate = sums - sorted_ < ps.reshape(-1, 1)
    if threshold is not None:
        is_candidate &= sorted_ >= threshold.reshape(-1, 1)
    is_candidate[:, 0] = True
    sums = xp.cumsum(xp.where(is_candidate, sorted_, 0), 1)
    targets = rng().random((len(x), 1), dtype="float64") * sums[:, -1:]
    places = order[rows, xp.minimum((sums <= targets).sum(1), is_candidate.sum(1) - 1)]
    write_wanted((ids, places[:, None]), (out, x[rows, places][:, None]))

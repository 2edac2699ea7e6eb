"""Kernels of `fluid.ops.random`. Where `Out` is None, its shape is known only now: the kernel makes and returns it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fluid.errors import ExecutionError

from .creation import made
from .table import Slots, checked, kernel


def _draw(method: Callable[..., Any], out: Any) -> None:
    """Fill `out` by a method of a generator that draws float32 or float64."""
    if out.dtype.kind == "f" and out.dtype.itemsize >= 4 and out.flags.c_contiguous:
        method(dtype=out.dtype, out=out)
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
    out = made(xp, inputs, attrs, Out)
    _uniform(rng, attrs, out)
    return out


@kernel("uniform_random_batch_size_like")
def uniform_random_batch_size_like(rng: Any, attrs: Slots, Out: Any) -> None:
    _uniform(rng, attrs, Out)


@kernel("gaussian_random")
def gaussian_random(xp: Any, rng: Any, mean: float, std: float, inputs: Slots, attrs: Slots, Out: Any) -> Any:
    out = made(xp, inputs, attrs, Out)
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
    out = made(xp, inputs, attrs, Out)
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
    else:  # the races that exponential clocks of these rates win are draws without replacement
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

"""Kernels of special functions and distributions, by XLA's operations; the numpy kernels need known values, or are loops that
take long to compile."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from ..kernels.table import kernel as register
from .kernels import KERNELS
from .random import key_of_seed

kernel = partial(register, table=KERNELS)


# --------------------------------------------------------------------------------------------------- special functions
@kernel("digamma")
def digamma(X: Any, Out: Any) -> None:
    Out.write(lax.digamma(X.read()))


@kernel("polygamma")
def polygamma(x: Any, n: int, out: Any) -> None:
    value = jnp.asarray(x.read())
    out.write(lax.polygamma(jnp.full_like(value, n), value) if n else lax.digamma(value))


@kernel("histogram")
def histogram(X: Any, bins: int, min: int, max: int, Out: Any) -> None:
    value = jnp.asarray(X.read()).reshape(-1).astype(np.float64)
    low, high = (jnp.asarray(bound, np.float64) for bound in (min, max))
    if min == max and X.size:
        low, high = value.min(), value.max()
    low, high = jnp.where(low == high, low - 1, low), jnp.where(low == high, high + 1, high)
    places = jnp.minimum(((value - low) * bins / (high - low)).astype(np.int64), bins - 1)
    in_range = (value >= low) & (value <= high)
    Out.write(jnp.zeros(bins, np.int64).at[jnp.where(in_range, places, bins)].add(1, mode="drop"))


# --------------------------------------------------------------------------------------------------- triangular matrices
def _solved_triangular(X: Any, Y: Any, is_upper: bool, transpose: bool, is_unit: bool = False) -> Any:
    """The solutions for columns Y and triangles of X, which are transposed on demand."""
    batch = jnp.broadcast_shapes(X.shape[:-2], Y.shape[:-2])
    matrices, columns = (jnp.broadcast_to(value, (*batch, *value.shape[-2:])) for value in (X, Y))
    return lax.linalg.triangular_solve(
        matrices,
        columns,
        left_side=True,
        lower=not is_upper,
        transpose_a=transpose,
        unit_diagonal=is_unit,
    )


@kernel("triangular_solve")
def triangular_solve(X: Any, Y: Any, upper: bool, transpose: bool, unitriangular: bool, Out: Any) -> None:
    Out.write(_solved_triangular(jnp.asarray(X.read()), jnp.asarray(Y.read()), upper, transpose, is_unit=unitriangular))


# ------------------------------------------------------------------------------------------------------- distributions
@kernel("dirichlet")
def dirichlet(rng: Any, Alpha: Any, Out: Any) -> None:
    Out.write(rng().dirichlet(Alpha.read()))


@kernel("poisson")
def poisson(rng: Any, X: Any, Out: Any) -> None:
    Out.write(rng().poisson(X.read(), X.shape))


@kernel("shuffle_batch")
def shuffle_batch(X: Any, Seed: Any, startup_seed: int, Out: Any, ShuffleIdx: Any, SeedOut: Any) -> None:
    seed = jnp.asarray(Seed.read()).reshape(-1)[0]
    order, following = jax.random.split(key_of_seed(jnp.where(seed == 0, startup_seed, seed) & (2**63 - 1)))
    places = jax.random.permutation(order, prod(X.shape[:-1]))
    if ShuffleIdx is not None:
        ShuffleIdx.write(places.astype(ShuffleIdx.dtype))
    if SeedOut is not None:
        SeedOut.write(jax.random.randint(following, SeedOut.shape, 1, 2**31 - 1, SeedOut.dtype))
    if Out is not None:
        Out.write(X.read().reshape(-1, X.shape[-1])[places].reshape(X.shape))

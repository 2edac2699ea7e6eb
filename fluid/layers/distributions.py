"""Probability distributions whose parameters are numbers, arrays or variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..building.layer_helper import apply
from ..errors import FluidTypeError, ProgramError
from ..ir.program import Variable
from . import nn, ops, tensor
from .arguments import beside

__all__ = ["Categorical", "MultivariateNormalDiag", "Normal", "Uniform"]


def _variable(value: Any, where: str) -> Variable:
    """A parameter as a variable. Numbers and arrays become float32 constants, arrays of float64 stay float64."""
    if isinstance(value, Variable):
        return value
    if not isinstance(value, (int, float, list, tuple, np.ndarray, np.generic)):
        raise FluidTypeError(f"{where} should be a number, an array or a Variable, not {type(value).__name__}")
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise FluidTypeError(f"{where} should hold numbers, not {array.dtype}")
    double = isinstance(value, np.ndarray) and array.dtype == np.float64
    return tensor.assign(np.atleast_1d(array).astype(np.float64 if double else np.float32))


class Distribution:
    """A distribution: `sample` draws from it; all methods return variables."""

    def sample(self, shape: Sequence[int], seed: int = 0) -> Variable:
        """Random numbers.

        Args:
            shape: how many, as the first sizes of the result.
            seed: of the random numbers, the same in every run; 0 draws new ones.

        Raises:
            NotImplementedError: if the class has none.
        """
        raise NotImplementedError

    def entropy(self) -> Variable:
        """The differential entropy, or the entropy of the categories, with natural logarithms.

        Raises:
            NotImplementedError: if the class has none.
        """
        raise NotImplementedError

    def log_prob(self, value: Variable) -> Variable:
        """The natural logarithm of the density.

        Args:
            value: where it is wanted.

        Raises:
            NotImplementedError: if the class has none.
        """
        raise NotImplementedError

    def kl_divergence(self, other: Any) -> Variable:
        """The Kullback-Leibler divergence of this distribution from another one.

        Args:
            other: of the same class.

        Raises:
            NotImplementedError: if the class has none.
        """
        raise NotImplementedError


def _same_kind(one: Distribution, peer: Any) -> None:
    if type(peer) is not type(one):
        raise FluidTypeError(f"{type(one).__name__}.kl_divergence takes a {type(one).__name__}, not {type(peer).__name__}")


class _TwoParameters(Distribution):
    """A distribution of one number for each element of its two parameters, broadcast against each other."""

    def __init__(self, first: tuple[str, Any], second: tuple[str, Any]) -> None:
        self._numbers = all(isinstance(value, (int, float)) for _, value in (first, second))
        with beside((first, second)):
            self._a, self._b = (_variable(value, f"{type(self).__name__}: {name}") for name, value in (first, second))

    def _drawn(self, op_type: str, shape: Sequence[int], seed: int, **attrs: float) -> Variable:
        """Random numbers of shape ``[*shape, *batch]``, where ``batch`` is the broadcast shape of the parameters."""
        both = self._a + self._b
        sizes = [int(size) for size in shape]
        all_attrs: dict[str, Any] = {**attrs, "shape": [*sizes, *both.shape], "seed": seed, "dtype": int(both.dtype)}
        unknown = [axis for axis, size in enumerate(both.shape) if size < 0]
        if not unknown:
            with beside([both]):
                return apply(op_type, {}, all_attrs)
        if unknown != [0]:
            raise ProgramError(
                f"{type(self).__name__}.sample: only the first dimension of the parameters, {list(both.shape)}, may be unknown"
            )
        all_attrs.update(input_dim_idx=0, output_dim_idx=len(sizes))
        return apply(f"{op_type}_batch_size_like", {"Input": both}, all_attrs)

    def _shaped(self, samples: Variable, shape: Sequence[int]) -> Variable:
        """`samples`, of exactly `shape` if both parameters are plain numbers."""
        return nn.reshape(samples, list(shape)) if self._numbers else samples


class Uniform(_TwoParameters):
    """Uniform between `low` and `high`: density ``1 / (high - low)``.

    Args:
        low, high: numbers, arrays or variables, which broadcast against each other to the shape ``batch``.

    >>> with fluid.dygraph.guard():
    ...     layers.Uniform(low=0.0, high=2.0).entropy()
    Tensor([0.6931], shape=[1], dtype=float32)
    >>> layers.Uniform(low=0.0, high=2.0).sample([8, 3]).shape
    (8, 3)
    """

    def __init__(self, low: Any, high: Any) -> None:
        super().__init__(("low", low), ("high", high))
        self.low, self.high = self._a, self._b

    def sample(self, shape: Sequence[int], seed: int = 0) -> Variable:
        """Samples of shape ``[*shape, *batch]``, or just `shape` if `low` and `high` are plain numbers.

        Args:
            shape: the first sizes of the result.
            seed: of the random numbers, the same in every run; 0 draws new ones.
        """
        drawn = self._drawn("uniform_random", shape, seed, min=0.0, max=1.0)
        return self._shaped(drawn * (self.high - self.low) + self.low, shape)

    def log_prob(self, value: Variable) -> Variable:
        """The logarithm of the density at `value`; -inf outside.

        Args:
            value: float, where the density is wanted; it broadcasts against `low` and `high`.
        """
        is_in_range = tensor.cast(ops.less_than(self.low, value), value.dtype) * tensor.cast(
            ops.less_than(value, self.high), value.dtype
        )
        result: Variable = ops.log(is_in_range) - ops.log(self.high - self.low)
        return result

    def entropy(self) -> Variable:
        """``log(high - low)``."""
        return ops.log(self.high - self.low)


class Normal(_TwoParameters):
    """The normal distribution of mean `loc` and standard deviation `scale`.

    Args:
        loc, scale: numbers, arrays or variables, which broadcast against each other to the shape ``batch``.

    >>> with fluid.dygraph.guard():
    ...     layers.Normal(loc=[0.0, 1.0], scale=[1.0, 2.0]).entropy()
    Tensor([1.4189, 2.1121], shape=[2], dtype=float32)
    >>> layers.Normal(loc=0.0, scale=1.0).sample([8, 3]).shape
    (8, 3)
    """

    def __init__(self, loc: Any, scale: Any) -> None:
        super().__init__(("loc", loc), ("scale", scale))
        self.loc, self.scale = self._a, self._b

    def sample(self, shape: Sequence[int], seed: int = 0) -> Variable:
        """Samples of shape ``[*shape, *batch]``, or just `shape` if `loc` and `scale` are plain numbers.

        Args:
            shape: the first sizes of the result.
            seed: of the random numbers, the same in every run; 0 draws new ones.
        """
        drawn = self._drawn("gaussian_random", shape, seed, mean=0.0, std=1.0)
        return self._shaped(drawn * self.scale + self.loc, shape)

    def entropy(self) -> Variable:
        """``(1 + log(2 pi)) / 2 + log(scale)``."""
        result: Variable = ops.log(self.scale + 0.0 * self.loc) + (0.5 + 0.5 * math.log(2 * math.pi))
        return result

    def log_prob(self, value: Variable) -> Variable:
        """``-(value - loc)^2 / (2 scale^2) - log(scale) - log(2 pi) / 2``.

        Args:
            value: float, where the density is wanted; it broadcasts against `loc` and `scale`.
        """
        distance = (value - self.loc) / self.scale
        result: Variable = -0.5 * (distance * distance) - ops.log(self.scale) - 0.5 * math.log(2 * math.pi)
        return result

    def kl_divergence(self, other: Normal) -> Variable:
        """``(r - 1 - log(r) + ((loc - other.loc) / other.scale)^2) / 2`` with ``r = (scale / other.scale)^2``.

        Args:
            other: another `Normal`.
        """
        _same_kind(self, other)
        ratio = ops.square(self.scale / other.scale)
        result: Variable = 0.5 * (ratio + ops.square((self.loc - other.loc) / other.scale) - 1.0 - ops.log(ratio))
        return result


class Categorical(Distribution):
    """Categories whose probabilities are ``softmax(logits)``, along the last dimension.

    Args:
        logits: ``[..., categories]``, a variable, an array or a list.

    >>> with fluid.dygraph.guard():
    ...     layers.Categorical(logits=[1.0, 1.0]).entropy()
    Tensor([0.6931], shape=[1], dtype=float32)
    """

    def __init__(self, logits: Any) -> None:
        self.logits = _variable(logits, "Categorical: logits")

    def _log_probabilities(self) -> Variable:
        shifted = self.logits - ops.reduce_max(self.logits, dim=-1, keep_dim=True)
        result: Variable = shifted - ops.log(ops.reduce_sum(ops.exp(shifted), dim=-1, keep_dim=True))
        return result

    def entropy(self) -> Variable:
        """``-sum(p * log(p))``, of shape ``[..., 1]``."""
        log_p = self._log_probabilities()
        result: Variable = -1.0 * ops.reduce_sum(ops.exp(log_p) * log_p, dim=-1, keep_dim=True)
        return result

    def kl_divergence(self, other: Categorical) -> Variable:
        """``sum(p * (log(p) - log(q)))``, of shape ``[..., 1]``.

        Args:
            other: another `Categorical`, whose probabilities are q.
        """
        _same_kind(self, other)
        log_p, log_q = self._log_probabilities(), other._log_probabilities()
        result: Variable = ops.reduce_sum(ops.exp(log_p) * (log_p - log_q), dim=-1, keep_dim=True)
        return result


class MultivariateNormalDiag(Distribution):
    """The normal distribution of mean `loc`, ``[k]``, whose covariance is the diagonal matrix `scale`, ``[k, k]``.

    Args:
        loc: the mean, a variable, an array or a list of k numbers.
        scale: the covariance, ``[k, k]``; only the diagonal counts.

    >>> with fluid.dygraph.guard():
    ...     layers.MultivariateNormalDiag(loc=[0.0, 1.0], scale=[[1.0, 0.0], [0.0, 2.0]]).entropy()
    Tensor([3.1845], shape=[1], dtype=float32)
    """

    def __init__(self, loc: Any, scale: Any) -> None:
        with beside((loc, scale)):
            self.loc = _variable(loc, "MultivariateNormalDiag: loc")
            self.scale = _variable(scale, "MultivariateNormalDiag: scale")
        size = self.scale.shape[0] if self.scale.ndim else 0
        if size < 1 or tuple(self.scale.shape) != (size, size) or tuple(self.loc.shape) not in ((size,), (-1,)):
            raise ProgramError(
                "MultivariateNormalDiag: loc should be [k] and scale [k, k], "
                f"not {list(self.loc.shape)} and {list(self.scale.shape)}"
            )

    def _variances(self) -> Variable:
        """The diagonal of the covariance, ``[k]``."""
        with beside([self.loc]):
            eye = tensor.assign(np.eye(self.scale.shape[0], dtype=self.scale.dtype.numpy))
        result: Variable = ops.reduce_sum(self.scale * eye, dim=1)
        return result

    def entropy(self) -> Variable:
        """``(k * (1 + log(2 pi)) + log(det(scale))) / 2``, of shape [1]."""
        result: Variable = 0.5 * ops.reduce_sum(ops.log(self._variances()) + (1.0 + math.log(2 * math.pi)))
        return result

    def kl_divergence(self, other: MultivariateNormalDiag) -> Variable:
        """``(tr(S2^-1 S1) + (m2 - m1)^T S2^-1 (m2 - m1) - k + log(det(S2) / det(S1))) / 2``, of shape [1].

        Args:
            other: another `MultivariateNormalDiag`, with the mean m2 and the covariance S2.
        """
        _same_kind(self, other)
        one, two = self._variances(), other._variances()
        result: Variable = 0.5 * ops.reduce_sum(one / two + ops.square(other.loc - self.loc) / two - 1.0 + ops.log(two / one))
        return result

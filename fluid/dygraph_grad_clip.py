"""Gradient clips for ``optimizer.minimize(loss, grad_clip=...)``, under the names of Fluid 1.6."""

from __future__ import annotations

from .clip import GradientClipByGlobalNorm, GradientClipByNorm, GradientClipByValue
from .not_here import names_here

__all__ = ["GradClipByGlobalNorm", "GradClipByNorm", "GradClipByValue"]

__dir__ = names_here(__name__)


class GradClipByValue(GradientClipByValue):
    """Clip each element to ``[min_value, max_value]``; with one value, to ``[-|value|, |value|]``.

    Args:
        min_value: the least value; or the bound, if it is the only one.
        max_value: the greatest value.

    >>> clip = fluid.dygraph_grad_clip.GradClipByValue(-1.0, 1.0)
    """

    def __init__(self, min_value: float, max_value: float | None = None) -> None:
        limit = abs(float(min_value))
        super().__init__(limit if max_value is None else max_value, -limit if max_value is None else min_value)


class GradClipByNorm(GradientClipByNorm):
    """Scale each gradient down to a Euclidean norm of at most `clip_norm`; see `fluid.clip.GradientClipByNorm`.

    Args:
        clip_norm: the greatest norm, not below 0.

    >>> clip = fluid.dygraph_grad_clip.GradClipByNorm(1.0)
    """

    def __init__(self, clip_norm: float) -> None:
        super().__init__(clip_norm)


class GradClipByGlobalNorm(GradientClipByGlobalNorm):
    """Scale all gradients by one factor so that their joint Euclidean norm is at most `max_global_norm`.

    Args:
        max_global_norm: the greatest norm, not below 0; see `fluid.clip.GradientClipByGlobalNorm`.

    >>> clip = fluid.dygraph_grad_clip.GradClipByGlobalNorm(1.0)
    """

    def __init__(self, max_global_norm: float) -> None:
        super().__init__(max_global_norm)

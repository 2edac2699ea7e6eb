"""Gradient clips for ``optimizer.minimize(loss, grad_clip=...)``, under the names of Fluid 1.6."""

from __future__ import annotations

from .clip import GradientClipByGlobalNorm, GradientClipByNorm, GradientClipByValue

__all__ = ["GradClipByGlobalNorm", "GradClipByNorm", "GradClipByValue"]


class GradClipByValue(GradientClipByValue):
    """Clip each element to ``[min_value, max_value]``; with one value, to ``[-|value|, |value|]``."""

    def __init__(self, min_value: float, max_value: float | None = None) -> None:
        limit = abs(float(min_value))
        super().__init__(limit if max_value is None else max_value, -limit if max_value is None else min_value)


class GradClipByNorm(GradientClipByNorm):
    """Scale each gradient down to a Euclidean norm of at most `clip_norm`."""

    def __init__(self, clip_norm: float) -> None:
        super().__init__(clip_norm)


class GradClipByGlobalNorm(GradientClipByGlobalNorm):
    """Scale all gradients by one factor so that their joint Euclidean norm is at most `max_global_norm`."""

    def __init__(self, max_global_norm: float) -> None:
        super().__init__(max_global_norm)

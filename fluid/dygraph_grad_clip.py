"""Clips of gradients in eager mode, by the names that Fluid 1.6 has for them: ``optimizer.minimize(loss, grad_clip=...)``."""

from __future__ import annotations

from .clip import GradientClipByGlobalNorm, GradientClipByNorm, GradientClipByValue

__all__ = ["GradClipByGlobalNorm", "GradClipByNorm", "GradClipByValue"]


class GradClipByValue(GradientClipByValue):
    """Each element into ``[min_value, max_value]``; with one value, into ``[-|value|, |value|]``."""

    def __init__(self, min_value: float, max_value: float | None = None) -> None:
        limit = abs(float(min_value))
        super().__init__(limit if max_value is None else max_value, -limit if max_value is None else min_value)


class GradClipByNorm(GradientClipByNorm):
    """Each gradient shrunk so that its Euclidean norm is at most `clip_norm`."""

    def __init__(self, clip_norm: float) -> None:
        super().__init__(clip_norm)


class GradClipByGlobalNorm(GradientClipByGlobalNorm):
    """All gradients shrunk by one factor, so that the norm of all together is at most `max_global_norm`."""

    def __init__(self, max_global_norm: float) -> None:
        super().__init__(max_global_norm)

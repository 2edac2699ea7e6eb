"""Axes for plots."""

from __future__ import annotations

from typing import Any

from ..errors import FluidError, FluidTypeError, how_to_install

__all__ = ["axes_or_new"]


def axes_or_new(axes: Any = None) -> Any:
    """Return the given axes, or make a new figure of `matplotlib.pyplot` with axes.

    Raises:
        FluidError: matplotlib is not installed.
        FluidTypeError: `axes` are no axes of matplotlib.
    """
    if axes is None:
        try:
            from matplotlib import pyplot
        except ImportError:
            raise FluidError(f"plots need matplotlib: {how_to_install('plot')}") from None
        return pyplot.subplots(figsize=(7, 4), layout="constrained")[1]
    if not hasattr(axes, "plot"):
        raise FluidTypeError(f"axes should be Axes of matplotlib, such as pyplot.subplots() makes, not {axes!r}")
    return axes

"""Numbers over the steps of a training, and losses over learning rates."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import NameNotFoundError, did_you_mean
from ..training.logs import read_log
from .axes import axes_or_new

if TYPE_CHECKING:
    from ..training.rate_search import RateSearch

__all__ = ["curves", "learning_rates"]

Curves = Mapping[str, tuple[Any, Any]]


def curves(log: str | os.PathLike[str] | Curves, names: Iterable[str] | None = None, axes: Any = None) -> Any:
    """Draw logged numbers over their steps, a line for each name.

    Args:
        log: a file of `fluid.training.CSVLog`, a folder of `fluid.training.TensorBoardLog`, or what
            `fluid.training.read_log` returns of them.
        names: which numbers to draw, by default all.
        axes: axes of matplotlib to draw on, by default the axes of a new figure.

    Returns:
        The axes.

    Raises:
        NameNotFoundError: the log has no such number.
        FormatError: the log cannot be read.

    ::

        with fluid.training.CSVLog("training.csv") as log:
            for step in range(3):
                log.write(step, loss=1 / (1 + step))
        fluid.plots.curves("training.csv").figure.savefig("training.png")
    """
    series = log if isinstance(log, Mapping) else read_log(log)
    chosen = list(series) if names is None else list(names)
    for name in chosen:
        if name not in series:
            raise NameNotFoundError(
                f"the log has no {name!r}{did_you_mean(name, series)}; it has {', '.join(series) or 'nothing'}"
            )
    axes = axes_or_new(axes)
    for name in chosen:
        steps, values = series[name]
        axes.plot(steps, values, label=name, marker="." if len(steps) < 30 else "")
    axes.set_xlabel("step")
    if len(chosen) == 1:
        axes.set_ylabel(chosen[0])
    elif chosen:
        axes.legend()
    axes.grid(alpha=0.3)
    return axes


def learning_rates(search: RateSearch, axes: Any = None) -> Any:
    """Draw the losses of `fluid.training.find_learning_rate` over the rates, and the rate that it suggests.

    Args:
        search: the result of `find_learning_rate`.
        axes: axes of matplotlib to draw on, by default the axes of a new figure.

    Returns:
        The axes.
    """
    axes = axes_or_new(axes)
    axes.plot(search.rates, search.losses, alpha=0.35, label="loss")
    axes.plot(search.rates, search.smoothed, label="smoothed")
    if search.suggestion is not None:
        axes.axvline(search.suggestion, color="grey", linestyle="--", label=f"suggested: {search.suggestion:.2g}")
    axes.set_xscale("log")
    axes.set_xlabel("learning rate")
    axes.set_ylabel("loss")
    axes.legend()
    axes.grid(alpha=0.3)
    return axes

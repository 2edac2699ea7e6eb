"""Histograms of weights, and of gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..errors import FluidTypeError, NameNotFoundError, ProgramError, did_you_mean
from ..executor.executor import Executor
from ..executor.runtime.scope import Scope, global_scope
from ..ir.program import OpRole, Program
from ..values.bfloat16 import computable
from .axes import axes_or_new

__all__ = ["gradients", "weights"]

_BINS = 60
_BEHIND = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 1}
_FLOAT16 = 2.0**-24
"""The smallest number above zero in float16."""


def weights(source: Any, names: Iterable[str] | None = None, scope: Scope | None = None, axes: Any = None) -> Any:
    """Draw a histogram of each parameter, one above the other, over the values.

    Args:
        source: a program, a layer of eager mode, or arrays by name.
        names: which parameters to draw, by default all.
        scope: where the values of a program's parameters are, by default the current one.
        axes: axes of matplotlib to draw on, by default the axes of a new figure.

    Returns:
        The axes.

    Raises:
        NameNotFoundError: there is no such parameter.
        ProgramError: there is nothing to draw, such as before the startup program has run.

    ::

        executor.run(fluid.default_startup_program())
        fluid.plots.weights(fluid.default_main_program()).figure.savefig("weights.png")
    """
    arrays = _chosen(_weights_of(source, scope), names, "weights")
    values = {name: array[np.isfinite(array)] for name, array in arrays.items()}
    axes = _ridges(values, axes, lambda name: _not_finite(arrays[name]))
    axes.set_xlabel("value")
    return axes


def gradients(
    source: Any,
    names: Iterable[str] | None = None,
    feed: Mapping[str, Any] | None = None,
    scope: Scope | None = None,
    axes: Any = None,
) -> Any:
    """Draw a histogram of the gradient of each parameter, one above the other, over the powers of ten of the absolute values.

    Labels show the share of zeros and of numbers that are not finite. A line shows the smallest number of float16: what lies left
    of it is lost there, unless the loss is scaled (`fluid.contrib.mixed_precision.decorate`).

    Args:
        source: a program with a backward part, a layer of eager mode after ``backward()``, or arrays by name.
        names: parameters to draw, by default all.
        feed: the program's feed; it runs once, on copies of its variables, without the updates.
        scope: where the values of a program's variables are, by default the current one.
        axes: axes of matplotlib to draw on, by default the axes of a new figure.

    Returns:
        The axes.

    Raises:
        NameNotFoundError: there is no such parameter.
        ProgramError: there is nothing to draw, as without a backward part.

    ::

        loss.backward()
        fluid.plots.gradients(layer)
    """
    arrays = _chosen(_gradients_of(source, feed, scope), names, "gradients")
    sizes = {name: np.abs(array[np.isfinite(array) & (array != 0)]) for name, array in arrays.items()}

    def note(name: str) -> str:
        zero = np.mean(arrays[name] == 0) if arrays[name].size else 0.0
        return "  ".join(filter(None, (f"{zero:.0%} zero" if zero else "", _not_finite(arrays[name]))))

    axes = _ridges({name: np.log10(array) for name, array in sizes.items()}, axes, note)
    axes.axvline(np.log10(_FLOAT16), color="grey", linestyle="--", linewidth=1)
    axes.annotate(
        "least of float16", (np.log10(_FLOAT16), 1), xycoords=("data", "axes fraction"), xytext=(3, -3),
        textcoords="offset points", va="top", fontsize="small", color="grey",
    )  # fmt: skip
    axes.set_xlabel("log10 of the absolute value")
    return axes


def _weights_of(source: Any, scope: Scope | None) -> dict[str, Any]:
    if isinstance(source, Mapping):
        return dict(source)
    if isinstance(source, Program):
        scope = scope if scope is not None else global_scope()
        held = {param.name: scope.array(param.name) for param in source.all_parameters()}
        return {name: array for name, array in held.items() if array is not None}
    if hasattr(source, "parameters"):
        return {param.name: param.numpy() for param in source.parameters()}
    raise FluidTypeError(f"plots are of a program, a layer, or arrays by name, not of {source!r}")


def _gradients_of(source: Any, feed: Mapping[str, Any] | None, scope: Scope | None) -> dict[str, Any]:
    if isinstance(source, Program):
        return _computed_gradients(source, feed, scope if scope is not None else global_scope())
    if hasattr(source, "parameters") and not isinstance(source, Mapping):
        held = {param.name: param.gradient() for param in source.parameters()}
        return {name: gradient for name, gradient in held.items() if gradient is not None}
    return _weights_of(source, scope)


def _computed_gradients(program: Program, feed: Mapping[str, Any] | None, scope: Scope) -> dict[str, Any]:
    """Compute the gradients of one run on copies of the variables."""
    alone, copies = program.clone(), Scope()
    block = alone.global_block()
    block.ops = [op for op in block.ops if not op.role & (OpRole.OPTIMIZE | OpRole.LR_SCHED)]
    alone._changed()
    for var in alone.list_vars():
        if var.persistable and (array := scope.array(var.name)) is not None:
            copies.put(var.name, np.array(array))
    outputs = {name for op in block.ops for name in op.output_arg_names}
    wanted = [param.name for param in alone.all_parameters() if f"{param.name}@GRAD" in outputs]
    if not wanted:
        raise ProgramError(
            "plots.gradients: the program has no gradient of a parameter; minimize a loss, or append_backward, first"
        )
    gradients = Executor().run(alone, feed, [f"{name}@GRAD" for name in wanted], scope=copies)
    return dict(zip(wanted, gradients, strict=True))


def _chosen(arrays: Mapping[str, Any], names: Iterable[str] | None, plot: str) -> dict[str, Any]:
    chosen = list(arrays) if names is None else list(names)
    for name in chosen:
        if name not in arrays:
            hint = did_you_mean(name, arrays)
            raise NameNotFoundError(f"plots.{plot}: there is no {name!r}{hint}; there are {', '.join(arrays) or 'none'}")
    if not chosen:
        raise ProgramError(f"plots.{plot}: there are no values to draw; run the startup program, or backward, first")
    return {name: computable(np.asarray(arrays[name])).ravel() for name in chosen}


def _not_finite(array: Any) -> str:
    count = int((~np.isfinite(array)).sum())
    return f"{count} not finite" if count else ""


def _ridges(values: Mapping[str, Any], axes: Any, note: Callable[[str], str]) -> Any:
    """Draw histograms of equal height one above the other, the first on top."""
    axes = axes_or_new(axes)
    filled = [array for array in values.values() if array.size]
    low, high = (
        min((float(array.min()) for array in filled), default=0.0),
        max((float(array.max()) for array in filled), default=1.0),
    )
    margin = 0.02 * (high - low) or 0.5
    edges = np.linspace(low - margin, high + margin, _BINS + 1)
    for number, (name, array) in enumerate(reversed(list(values.items()))):
        counts, _ = np.histogram(array, edges)
        heights = 0.9 * counts / max(counts.max(), 1)
        axes.fill_between(edges, number, number + np.append(heights, heights[-1]), step="post", alpha=0.7, label=name)
        if text := note(name):
            axes.annotate(
                text, (1, number + 0.08), xycoords=("axes fraction", "data"), ha="right", fontsize="small", bbox=_BEHIND
            )
    axes.set_yticks(range(len(values)), list(values)[::-1], va="bottom", fontsize="small")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(0, len(values) + 0.1)
    axes.grid(axis="y", alpha=0.3)
    return axes

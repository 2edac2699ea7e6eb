"""Lowers metrics, and the checks of mixed precision."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from math import inf
from typing import Any

from .emitter import BOOL, DOUBLE, FLOAT, INT32
from .graph import Node, broadcast_to, constant, mapped, plain, reduced, reshaped
from .lowering import GraphTensor, NotLowered, element_of, lowers, number_like, only_floats


def _any(truths: Node, axes: Sequence[int]) -> Node:
    """Whether any of some truths holds; the axes remain with extent 1."""
    numbers = mapped("convert", truths, element=INT32)
    return mapped("une", reduced("max", numbers, axes), constant(0, INT32), element=BOOL)


def _number(node: Node, spec: Any) -> GraphTensor:
    """A number with the shape and the element type of an output."""
    return GraphTensor(reshaped(mapped("convert", node, element=element_of(spec.dtype)), spec.shape))


@lowers("accuracy")
def accuracy(Indices: GraphTensor, Label: GraphTensor, specs: dict[str, Any]) -> dict[str, GraphTensor]:
    rows, _ = Indices.shape
    element = DOUBLE if rows >= 1 << 24 else FLOAT
    labels = mapped("convert", reshaped(plain(Label.node), (rows, 1)), element=Indices.node.element)
    is_hit = _any(mapped("oeq", Indices.node, labels, element=BOOL), [1])
    correct = reduced("sum", mapped("convert", is_hit, element=element), [0])
    total = constant(rows, element)
    results = {"Accuracy": mapped("div", correct, total), "Correct": correct, "Total": broadcast_to(total, (1, 1))}
    return {slot: _number(node, specs[slot]) for slot, node in results.items() if specs.get(slot) is not None}


# ------------------------------------------------------------------------------------------------------ finite numbers
def _is_nan(node: Node) -> Node:
    return mapped("une", node, node, element=BOOL)


def _is_infinite(node: Node) -> Node:
    return mapped("oeq", mapped("abs", node), number_like(inf, node), element=BOOL)


def _is_not_finite(node: Node) -> Node:
    return mapped("or", _is_nan(node), _is_infinite(node), element=BOOL)


def _not(node: Node) -> Node:
    return mapped("not", node, element=BOOL)


@lowers("isnan_v2")
def isnan_v2(X: GraphTensor) -> GraphTensor:
    only_floats(X)
    return GraphTensor(_is_nan(X.node))


@lowers("isinf_v2")
def isinf_v2(X: GraphTensor) -> GraphTensor:
    only_floats(X)
    return GraphTensor(_is_infinite(X.node))


@lowers("isfinite_v2")
def isfinite_v2(X: GraphTensor) -> GraphTensor:
    only_floats(X)
    return GraphTensor(_not(_is_not_finite(X.node)))


def _anywhere(node: Node) -> Node:
    """Whether a truth holds anywhere, as [1]."""
    return reshaped(_any(reshaped(plain(node), (node.size,)), [0]), (1,))


@lowers("isnan")
def isnan(X: GraphTensor, specs: dict[str, Any]) -> GraphTensor:
    only_floats(X)
    return _number(_anywhere(_is_nan(X.node)), specs["Out"])


@lowers("isinf")
def isinf(X: GraphTensor, specs: dict[str, Any]) -> GraphTensor:
    only_floats(X)
    return _number(_anywhere(_is_infinite(X.node)), specs["Out"])


@lowers("isfinite")
def isfinite(X: GraphTensor, specs: dict[str, Any]) -> GraphTensor:
    only_floats(X)
    return _number(_not(_anywhere(_is_not_finite(X.node))), specs["Out"])


# ------------------------------------------------------------------------------------------------------ mixed precision
@lowers("check_finite_and_unscale")
def check_finite_and_unscale(X: list[GraphTensor], Scale: GraphTensor, specs: dict[str, Any]) -> dict[str, Any]:
    only_floats(*X)
    if any(tensor.node.element != Scale.node.element for tensor in X):
        raise NotLowered("a scale of another element type")
    results: dict[str, Any] = {}
    if specs.get("Out"):
        scale = Scale.node
        results["Out"] = [GraphTensor(mapped("div", x.node, reshaped(scale, (1,) * x.ndim))) for x in X]
    if specs.get("FoundInfinite") is not None:
        wrong = [_anywhere(_is_not_finite(x.node)) for x in X]
        results["FoundInfinite"] = _number(reduce(partial(mapped, "or", element=BOOL), wrong), specs["FoundInfinite"])
    return results


@lowers("update_loss_scaling")
def update_loss_scaling(
    X: list[GraphTensor] | None,
    FoundInfinite: GraphTensor,
    PrevLossScaling: GraphTensor,
    InGoodSteps: GraphTensor,
    InBadSteps: GraphTensor,
    StopUpdate: Any,
    incr_every_n_steps: int,
    decr_every_n_nan_or_inf: int,
    incr_ratio: float,
    decr_ratio: float,
    stop_update: bool,
    specs: dict[str, Any],
) -> dict[str, Any]:
    if StopUpdate is not None:
        raise NotLowered("a truth that only running tells")
    infinite, scale, good, bad = (
        reshaped(tensor.node, (1,)) for tensor in (FoundInfinite, PrevLossScaling, InGoodSteps, InBadSteps)
    )
    results: dict[str, Any] = {}
    if specs.get("Out"):
        results["Out"] = [_unless(infinite, x) for x in X or ()]
    if not stop_update:
        zero, one = number_like(0, good), number_like(1, good)
        bad = _select(infinite, mapped("add", bad, one), zero)
        good = _select(infinite, zero, mapped("add", good, one))
        shrinks = mapped("oeq", bad, number_like(decr_every_n_nan_or_inf, bad), element=BOOL)
        least = mapped("max", mapped("mul", scale, number_like(decr_ratio, scale)), number_like(1.0, scale))
        scale, bad = _select(shrinks, least, scale), _select(shrinks, zero, bad)
        grows = mapped("oeq", good, number_like(incr_every_n_steps, good), element=BOOL)
        grown = mapped("mul", scale, number_like(incr_ratio, scale))
        is_fine = mapped("and", grows, _not(_is_not_finite(grown)), element=BOOL)
        scale, good = _select(is_fine, grown, scale), _select(grows, zero, good)
    numbers = {"LossScaling": scale, "OutGoodSteps": good, "OutBadSteps": bad}
    return results | {slot: _number(node, specs[slot]) for slot, node in numbers.items() if specs.get(slot) is not None}


def _select(condition: Node, a: Node, b: Node) -> Node:
    like = b if a.shape == () else a
    return mapped("select", condition, a, b, element=like.element)


def _unless(infinite: Node, x: GraphTensor) -> GraphTensor:
    """A gradient, or zeros."""
    condition = reshaped(infinite, (1,) * x.ndim)
    return GraphTensor(mapped("select", condition, number_like(0.0, x.node), x.node, element=x.node.element))

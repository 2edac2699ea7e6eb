"""Lowers connectionist temporal classification (CTC) over padded sequences."""

from __future__ import annotations

from typing import Any

from .ctc import MOST_LABELS, size_of_paths
from .emitter import INT32, INT64
from .graph import CtcGradient, CtcPaths, mapped, plain, reshaped, sliced
from .lowering import NAMESPACE, GraphTensor, NotLowered, lowers, only_floats

f = NAMESPACE


@lowers("warpctc")
def warpctc(
    Logits: GraphTensor,
    Label: GraphTensor,
    LogitsLength: GraphTensor | None,
    LabelLength: GraphTensor | None,
    blank: int,
    wanted: set[str],
) -> dict[str, Any]:
    only_floats(Logits)
    if LogitsLength is None or LabelLength is None:
        raise NotLowered("sequences that are not padded")
    if Label.shape[1] > MOST_LABELS or any(one.node.element not in (INT32, INT64) for one in (Label, LogitsLength, LabelLength)):
        raise NotLowered("very many labels, or lengths of other elements")
    (_, batch, _), element, size = Logits.shape, Logits.node.element, size_of_paths(Logits.shape[0], Label.shape[1])
    steps_of, labels_of = (reshaped(plain(one.node), (batch, 1)) for one in (LogitsLength, LabelLength))
    scores, labels = plain(f.log_softmax(Logits, axis=-1).node), plain(Label.node)
    paths = CtcPaths((batch, size), element, scores, labels, steps_of, labels_of, blank)
    results = {"Loss": GraphTensor(mapped("neg", sliced(paths, 1, size - 1, 1)))}
    if "WarpCTCGrad" in wanted:
        gradient = CtcGradient(Logits.shape, element, scores, labels, steps_of, labels_of, blank, paths)
        results["WarpCTCGrad"] = GraphTensor(gradient)
    return results


@lowers("warpctc_grad")
def warpctc_grad(
    LogitsLength: GraphTensor | None, WarpCTCGrad: GraphTensor, dLoss: GraphTensor, norm_by_times: bool
) -> GraphTensor:
    if LogitsLength is None:
        raise NotLowered("sequences that are not padded")
    factor = f.reshape2(dLoss, shape=[1, -1, 1])
    if norm_by_times:
        times = f.clip(LogitsLength.astype(dLoss.dtype), min=1.0, max=3e38)
        factor = factor / f.reshape2(times, shape=[1, -1, 1])
    return WarpCTCGrad * factor

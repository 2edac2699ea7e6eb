"""Kernels of `fluid.ops.sampling`."""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np

from fluid.ops.sampling import CUSTOM, LOG_UNIFORM
from fluid.values.place import to_numpy
from fluid.values.selected_rows import SelectedRows, add_rows_at

from .activation import sigmoid_of
from .manipulation import check_ids, write_wanted
from .table import Slots, checked, kernel, sparse


def _log_uniform(xp: Any, rng: Any, shape: Any, classes: int) -> Any:
    """Integers in [0, classes), k with the probability ``log((k + 2) / (k + 1)) / log(classes + 1)``."""
    ids = xp.exp(rng.random(shape) * log(classes + 1)).astype("int64") - 1
    return xp.minimum(ids, classes - 1)


def _log_uniform_noise(xp: Any, labels: Any, dtype: Any, classes: int) -> Any:
    """The probability of each label in log-uniform draws."""
    return (xp.log((labels + 2.0) / (labels + 1.0)) / log(classes + 1)).astype(dtype)


def _scores(xp: Any, rows: Any, bias: Any, index: Any, x: Any) -> Any:
    """The product of each x with its rows, plus the bias of these."""
    products = xp.matmul(rows, x[:, :, None])[:, :, 0]
    return products if bias is None else products + bias.reshape(-1)[index]


# ----------------------------------------------------------------------------------------- noise-contrastive estimation
@checked("nce")
def check_nce(Label: Any, num_total_classes: int) -> None:
    check_ids(Label, num_total_classes, "Label")


@kernel("nce")
def nce(
    xp: Any,
    rng: Any,
    Input: Any,
    Label: Any,
    Weight: Any,
    Bias: Any,
    SampleWeight: Any,
    CustomDistProbs: Any,
    CustomDistAlias: Any,
    CustomDistAliasProbs: Any,
    num_total_classes: int,
    num_neg_samples: int,
    sampler: int,
    Cost: Any,
    SampleLogits: Any,
    SampleLabels: Any,
) -> None:
    shape = (len(Input), num_neg_samples)
    if sampler == LOG_UNIFORM:
        drawn = _log_uniform(xp, rng(), shape, num_total_classes - 1)
    else:
        generator = rng()
        drawn = (generator.random(shape) * num_total_classes).astype("int64")
        if sampler == CUSTOM:
            stays = generator.random(shape) < CustomDistAliasProbs.reshape(-1)[drawn]
            drawn = xp.where(stays, drawn, CustomDistAlias.reshape(-1)[drawn])
    labels = xp.concatenate([Label.astype(drawn.dtype), drawn], axis=1)
    probabilities = sigmoid_of(xp, _scores(xp, Weight[labels], Bias, labels, Input))
    write_wanted((SampleLabels, labels), (SampleLogits, probabilities))
    if Cost is None:
        return
    noise = _noise(xp, labels, probabilities.dtype, CustomDistProbs, sampler, num_total_classes) * num_neg_samples
    costs = xp.log(probabilities + noise)
    true_count = Label.shape[1]
    costs[:, :true_count] -= xp.log(probabilities[:, :true_count])
    costs[:, true_count:] -= xp.log(noise[:, true_count:])
    Cost[:, 0] = costs.sum(1)
    if SampleWeight is not None:
        Cost *= SampleWeight.reshape(-1, 1)


def _noise(xp: Any, labels: Any, dtype: Any, probabilities: Any, sampler: int, classes: int) -> Any:
    """The probability of drawing each label."""
    if sampler == CUSTOM:
        return probabilities.reshape(-1)[labels].astype(dtype)
    if sampler == LOG_UNIFORM:
        return _log_uniform_noise(xp, labels, dtype, classes - 1)
    return xp.full(labels.shape, 1.0 / classes, dtype)


@checked("nce_grad")
def check_nce_grad(SampleLabels: Any, num_total_classes: int) -> None:
    check_ids(SampleLabels, num_total_classes, "SampleLabels")


@kernel("nce_grad")
def nce_grad(
    xp: Any, Input: Any, Weight: Any, SampleLabels: Any, inputs: Slots, attrs: Slots, dInput: Any, dWeight: Any, dBias: Any
) -> None:
    slope = _nce_slope(xp, inputs, attrs)
    _deliver(xp, slope, SampleLabels, Weight, dInput, dBias)
    _deliver_rows(xp, slope, SampleLabels, Input, dWeight)


@sparse("nce_grad")
def nce_grad_of_rows(
    xp: Any, Input: Any, Weight: Any, SampleLabels: Any, inputs: Slots, attrs: Slots, dInput: Any, dBias: Any
) -> SelectedRows:
    slope = _nce_slope(xp, inputs, attrs)
    _deliver(xp, slope, SampleLabels, Weight, dInput, dBias)
    return _rows(xp, slope, SampleLabels, Input, Weight)


def _nce_slope(xp: Any, inputs: Slots, attrs: Slots) -> Any:
    """The derivative by each score."""
    labels, scores, weight = inputs["SampleLabels"], inputs["SampleLogits"], inputs.get("SampleWeight")
    classes, probabilities = attrs["num_total_classes"], inputs.get("CustomDistProbs")
    noise = _noise(xp, labels, scores.dtype, probabilities, attrs["sampler"], classes) * attrs["num_neg_samples"]
    true_classes = inputs["Label"].shape[1]
    slope = (1 - scores) / (scores + noise)
    slope[:, :true_classes] *= -noise[:, :true_classes]
    slope[:, true_classes:] *= scores[:, true_classes:]
    slope *= inputs["Cost@GRAD"].reshape(-1, 1)
    if weight is not None:
        slope *= weight.reshape(-1, 1)
    return slope


# The gradients of the scores ``x . weight[index] + bias[index]`` from their gradient `slope`; an index of -1 is a gap.
def _deliver(xp: Any, slope: Any, index: Any, weight: Any, dx: Any, dbias: Any) -> None:
    """Compute the gradients of x and bias, into `dx` and `dbias`."""
    is_valid = index >= 0
    if dx is not None:
        rows = weight[xp.maximum(index, 0)]
        dx[...] = xp.matmul(xp.where(is_valid, slope, 0)[:, None, :], rows)[:, 0]
    if dbias is not None:
        dbias.fill(0)
        add_rows_at(xp, xp.where(is_valid, slope, 0).reshape(-1), xp.maximum(index, 0).reshape(-1), dbias.reshape(-1))


def _rows(xp: Any, slope: Any, index: Any, x: Any, weight: Any) -> SelectedRows:
    """The gradient of the weight."""
    flat = index.reshape(-1)
    rows = (slope[:, :, None] * x[:, None]).reshape(flat.size, *x.shape[1:])
    return SelectedRows.chosen(xp, flat, rows, flat >= 0, len(weight))


def _deliver_rows(xp: Any, slope: Any, index: Any, x: Any, dweight: Any) -> None:
    if dweight is not None:
        dweight.fill(0)
        rows = xp.where(index >= 0, slope, 0)[:, :, None] * x[:, None]
        add_rows_at(xp, rows.reshape(-1, x.shape[1]), xp.maximum(index, 0).reshape(-1), dweight)


@kernel("is_label")
def is_label(Label: Any, Out: Any) -> None:
    Out.fill(0)
    Out[:, : Label.shape[1]] = 1


# ------------------------------------------------------------------------------------------------ hierarchical sigmoid
def _path(xp: Any, label: Any, table: Any, code: Any, num_classes: int, depth: int) -> tuple[Any, Any]:
    if table is not None:
        return xp.where(table < 0, -1, table), xp.where(table < 0, 0, code)
    leaf = label.reshape(-1, 1).astype("int64") + num_classes
    bits = xp.arange(depth)
    node = leaf >> (bits + 1)
    return node - 1, xp.where(node > 0, (leaf >> bits) & 1, 0)


@checked("tree_path", "hierarchical_sigmoid_grad")
def check_tree_path(Label: Any, PathTable: Any, num_classes: int) -> None:
    if PathTable is None:
        check_ids(Label, num_classes, "Label")


@checked("hierarchical_sigmoid")
def check_hierarchical_sigmoid(xp: Any, W: Any, Label: Any, PathTable: Any, PathCode: Any, num_classes: int) -> None:
    check_tree_path(Label, PathTable, num_classes)
    index, _ = _path(xp, Label, PathTable, PathCode, num_classes, (num_classes - 1).bit_length())
    check_ids(xp.maximum(index, 0), len(W), "a node of the path")


@kernel("tree_path")
def tree_path(xp: Any, Label: Any, PathTable: Any, PathCode: Any, num_classes: int, Index: Any, Code: Any) -> None:
    index, code = _path(xp, Label, PathTable, PathCode, num_classes, (Code if Index is None else Index).shape[1])
    write_wanted((Index, index), (Code, code))


@kernel("hierarchical_sigmoid")
def hierarchical_sigmoid(
    xp: Any,
    X: Any,
    W: Any,
    Label: Any,
    PathTable: Any,
    PathCode: Any,
    Bias: Any,
    num_classes: int,
    Out: Any,
    PreOut: Any,
    W_Out: Any,
) -> None:
    depth = (num_classes - 1).bit_length() if PathTable is None else PathTable.shape[1]
    index, code = _path(xp, Label, PathTable, PathCode, num_classes, depth)
    is_valid, nodes = index >= 0, xp.maximum(index, 0)
    scores = xp.clip(_scores(xp, W[nodes], Bias, nodes, X), -40.0, 40.0)
    scores = xp.where(is_valid, scores, 0)
    losses = xp.logaddexp(scores, xp.zeros_like(scores))
    write_wanted((PreOut, losses), (W_Out, W))
    if Out is not None:
        Out[:, 0] = (losses - code * scores).sum(1)


@kernel("hierarchical_sigmoid_grad")
def hierarchical_sigmoid_grad(xp: Any, X: Any, W: Any, inputs: Slots, num_classes: int, dX: Any, dW: Any, dBias: Any) -> None:
    index, slope = _path_slope(xp, inputs, num_classes)
    _deliver(xp, slope, index, W, dX, dBias)
    _deliver_rows(xp, slope, index, X, dW)


@sparse("hierarchical_sigmoid_grad")
def hierarchical_sigmoid_grad_of_rows(
    xp: Any, X: Any, W: Any, inputs: Slots, num_classes: int, dX: Any, dBias: Any
) -> SelectedRows:
    index, slope = _path_slope(xp, inputs, num_classes)
    _deliver(xp, slope, index, W, dX, dBias)
    return _rows(xp, slope, index, X, W)


def _path_slope(xp: Any, inputs: Slots, num_classes: int) -> tuple[Any, Any]:
    """The nodes on the way, and the derivative by the score of each."""
    label, table, code = (inputs.get(slot) for slot in ("Label", "PathTable", "PathCode"))
    losses = inputs["PreOut"]
    index, code = _path(xp, label, table, code, num_classes, losses.shape[1])
    return index, (-xp.expm1(-losses) - code.astype(losses.dtype)) * inputs["Out@GRAD"].reshape(-1, 1)


# ----------------------------------------------------------------------------------------------------- sampled softmax
def _different(rng: Any, count: int, classes: int) -> tuple[Any, int]:
    """Draw `count` different classes, one after the other; returns them and the number of tries."""
    seen: dict[int, None] = {}
    tries = 0
    while len(seen) < count:
        for value in to_numpy(_log_uniform(np, rng, count, classes)).tolist():
            tries += 1
            seen.setdefault(value)
            if len(seen) == count:
                break
    return np.array(list(seen), np.int64), tries


@checked("sample_logits")
def check_sample_logits(Logits: Any, Labels: Any, CustomizedSamples: Any, use_customized_samples: bool) -> None:
    check_ids(Labels, Logits.shape[1], "Labels")
    if use_customized_samples:
        check_ids(CustomizedSamples, Logits.shape[1], "CustomizedSamples")


@kernel("sample_logits")
def sample_logits(
    xp: Any,
    rng: Any,
    Logits: Any,
    Labels: Any,
    CustomizedSamples: Any,
    CustomizedProbabilities: Any,
    use_customized_samples: bool,
    uniq: bool,
    remove_accidental_hits: bool,
    num_samples: int,
    Samples: Any,
    Probabilities: Any,
    SampledLogits: Any,
    SampledLabels: Any,
) -> None:
    classes, true_count = Logits.shape[1], Labels.shape[1]
    if use_customized_samples:
        samples, shares = CustomizedSamples, CustomizedProbabilities
    else:
        seed = np.random.default_rng(int(to_numpy(rng().integers(0, 2**62, 1))[0]))  # each draw depends on former draws
        if uniq:
            drawn, tries = _different(seed, num_samples, classes)
        else:
            drawn, tries = _log_uniform(np, seed, num_samples, classes), num_samples
        rows = xp.broadcast_to(xp.asarray(drawn), (len(Labels), num_samples))
        samples = xp.concatenate([Labels.astype("int64"), rows], axis=1)
        shares = _log_uniform_noise(xp, samples, "float64", classes)
        shares = shares * num_samples if tries == num_samples else -xp.expm1(tries * xp.log1p(-shares))
        shares = shares.astype(Logits.dtype)
    write_wanted((Samples, samples), (Probabilities, shares), (SampledLabels, xp.arange(true_count)))
    if SampledLogits is None:
        return
    SampledLogits[...] = xp.take_along_axis(Logits, samples, 1) - xp.log(shares)
    if remove_accidental_hits:
        hits = (samples[:, true_count:, None] == Labels[:, None, :]).any(2)
        SampledLogits[:, true_count:] -= xp.where(hits, 1e20, 0).astype(Logits.dtype)

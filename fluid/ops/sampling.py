"""Losses over many classes that compute only few of them: random ones, or those on the way to a class in a tree."""

from __future__ import annotations

from math import log
from typing import Any

from ..errors import InferenceError
from ..opdef.composition import means
from ..opdef.registry import ZERO_GRADIENT, ShapeOnly, define, longs, required, strings
from ..values.spec import Spec
from ..values.types import VarType
from .formulas import choose, log1p_exp, number_like
from .shapes import fits

UNIFORM, LOG_UNIFORM, CUSTOM = 0, 1, 2
"""How `nce` draws classes: uniformly; class k with probability ``log((k + 2) / (k + 1)) / log(classes)`` (but never the last one,
as in Paddle); or with given probabilities."""


# ----------------------------------------------------------------------------------------- noise-contrastive estimation
def _nce(
    Input: Spec,
    Label: Spec,
    Weight: Spec,
    Bias: Spec | None,
    SampleWeight: Spec | None,
    CustomDistProbs: Spec | None,
    CustomDistAlias: Spec | None,
    CustomDistAliasProbs: Spec | None,
    num_total_classes: int,
    num_neg_samples: int,
    sampler: int,
) -> tuple[Spec, Spec, Spec]:
    if Input.ndim != 2 or Weight.ndim != 2 or not fits(Input.shape[1], Weight.shape[1]):
        raise InferenceError(f"Input {Input} should have shape [batch, width], Weight {Weight} [classes, width]")
    if not fits(Weight.shape[0], num_total_classes) or (Bias is not None and not fits(Bias.size, num_total_classes)):
        raise InferenceError(f"Weight {Weight} and Bias {Bias} should have a row for each of {num_total_classes} classes")
    if Label.ndim != 2 or not fits(Label.shape[0], Input.shape[0]):
        raise InferenceError(f"Label {Label} should have shape [batch, labels], where Input is {Input}")
    if SampleWeight is not None and not fits(SampleWeight.size, Input.shape[0]):
        raise InferenceError(f"SampleWeight {SampleWeight} should have a number for each row of Input {Input}")
    if sampler not in (UNIFORM, LOG_UNIFORM, CUSTOM):
        raise InferenceError(f"sampler is {sampler}; it should be 0 (uniform), 1 (log_uniform) or 2 (custom_dist)")
    if num_neg_samples < 1:
        raise InferenceError(f"num_neg_samples is {num_neg_samples}; at least one class should be drawn")
    if num_total_classes < 2:
        raise InferenceError(f"num_total_classes is {num_total_classes}; there should be at least two")
    if sampler == CUSTOM:
        for name, spec in (("Probs", CustomDistProbs), ("Alias", CustomDistAlias), ("AliasProbs", CustomDistAliasProbs)):
            if spec is None or not fits(spec.size, num_total_classes):
                raise InferenceError(f"CustomDist{name} {spec} should have a number for each of {num_total_classes} classes")
    rows = max(Input.shape[0], Label.shape[0])
    wide = -1 if Label.shape[1] < 0 else Label.shape[1] + num_neg_samples
    return Spec((rows, 1), Input.dtype), Spec((rows, wide), Input.dtype), Spec((rows, wide), VarType.INT64)


def _noise(f: Any, labels: Any, dtype: Any, probabilities: Any, sampler: int, classes: int) -> Any:
    """The probability of each of `labels` to be drawn."""
    if sampler == CUSTOM:
        return f.reshape_like(f.gather(probabilities, f.reshape2(labels, shape=[-1])), labels)
    if sampler == UNIFORM:
        return f.fill_any_like(labels, value=1.0 / classes, dtype=int(dtype))
    class_ = labels.astype(dtype)
    return f.log((class_ + 2.0) / (class_ + 1.0)) * (1.0 / log(classes))


@define(
    "nce(Input: float, Label: int, Weight: float, Bias?: float, SampleWeight?: float, CustomDistProbs?: float,"
    " CustomDistAlias?: int, CustomDistAliasProbs?: float)"
    " -> Cost, SampleLogits~, SampleLabels~",
    infer=_nce,
    wrt=("Input", "Weight", "Bias"),
    constants=("SampleWeight", "CustomDistProbs", "CustomDistAliasProbs"),
    sparse_grad="Weight",
    num_total_classes=required("int"),
    num_neg_samples=10,
    sampler=0,
    seed=0,
    is_sparse=False,
    remote_prefetch=False,
    is_test=False,
)
def nce(
    f: Any,
    Input: Any,
    Label: ShapeOnly,
    Weight: Any,
    Bias: Any,
    SampleWeight: Any,
    CustomDistProbs: Any,
    CustomDistAlias: ShapeOnly,
    CustomDistAliasProbs: ShapeOnly,
    SampleLogits: Any,  # read by the kernel of nce_grad; the rule makes them again, to be differentiable itself
    SampleLabels: Any,
    dCost: Any,
    num_total_classes: int,
    num_neg_samples: int,
    sampler: int,
) -> Any:
    """Noise-contrastive estimation, ``[batch, 1]``: distinguishes the labels of each row from `num_neg_samples` random classes.

    For the labels and the drawn classes (SampleLabels), ``o = sigmoid(Input . Weight[class] + Bias[class])`` (SampleLogits), and
    ``q = num_neg_samples * probability of the class to be drawn``. The cost of a label is ``-log(o / (o + q))``, the cost of a
    drawn class ``-log(q / (o + q))``, times SampleWeight of the row.
    """
    weights = f.take_rows(Weight, SampleLabels)
    product = f.unsqueeze2(Input, axes=[1]) * weights
    scores = f.reduce_sum(product, dim=[2])
    if Bias is not None:
        scores = scores + f.take_rows(f.reshape2(Bias, shape=[-1]), SampleLabels)
    outputs = f.sigmoid(scores)
    noise = _noise(f, SampleLabels, Input.dtype, CustomDistProbs, sampler, num_total_classes) * float(num_neg_samples)
    truth = f.is_label(SampleLabels, Label, outputs)
    # The derivative of the cost with respect to o, -q / (o (o + q)) for labels and 1 / (o + q) for others, times o (1 - o).
    slope = (1.0 - outputs) / (outputs + noise) * (outputs * (1.0 - truth) - noise * truth) * dCost
    if SampleWeight is not None:
        slope = slope * f.reshape_like(SampleWeight, dCost)
    column = f.unsqueeze2(slope, axes=[2])
    grads = {
        "Input": lambda: f.reduce_sum(column * weights, dim=[1]),
        "Weight": lambda: f.add_rows(column * f.unsqueeze2(Input, axes=[1]), SampleLabels, Weight),
    }
    if Bias is not None:
        grads["Bias"] = lambda: f.reshape_like(f.add_rows(slope, SampleLabels, f.reshape2(Bias, shape=[-1])), Bias)
    return grads


def _label_columns(f: Any, X: Any, Label: Any, Like: Any) -> Any:
    drawn = f.slice(X, axes=[1], starts=[Label.shape[1]], ends=[X.shape[1]])
    columns = [f.fill_any_like(ids, value=is_label, dtype=int(Like.dtype)) for ids, is_label in ((Label, 1.0), (drawn, 0.0))]
    return f.concat(columns, axis=1)


@define(
    "is_label(X, Label, Like) -> Out",
    infer=lambda Like: Like,
    meaning=means(_label_columns),
    grad=ZERO_GRADIENT,
    shape_only=("X", "Label", "Like"),
)
def is_label() -> None:
    """1 in the labels' columns, which come first, and 0 in the columns of drawn classes, with the dtype of Like."""


# ------------------------------------------------------------------------------------------------ hierarchical sigmoid
def _tree(Label: Spec, PathTable: Spec | None, PathCode: Spec | None, num_classes: int) -> tuple[Spec, Spec]:
    if (PathTable is None) != (PathCode is None):
        raise InferenceError("give both PathTable and PathCode, or neither")
    if PathTable is not None and PathCode is not None:
        if PathTable.ndim != 2 or PathCode.ndim != 2 or not all(map(fits, PathTable.shape, PathCode.shape)):
            raise InferenceError(f"PathTable {PathTable} and PathCode {PathCode} should be [batch, depth]")
        shape = tuple(max(pair) for pair in zip(PathTable.shape, PathCode.shape, strict=True))
    else:
        if num_classes < 2:
            raise InferenceError(f"num_classes is {num_classes}; there should be at least two")
        shape = (Label.size, (num_classes - 1).bit_length())
    return Spec(shape, VarType.INT64), Spec(shape, VarType.INT64)


def _nodes_and_directions(f: Any, Label: Any, PathTable: Any, PathCode: Any, num_classes: int) -> dict[str, Any]:
    if PathTable is not None:
        node, code = PathTable.astype(VarType.INT64), PathCode.astype(VarType.INT64)
        is_node = f.greater_equal(node, number_like(f, node, 0.0))
        return {"Index": choose(f, is_node, node, -1.0), "Code": choose(f, is_node, code, 0.0)}
    leaf = f.reshape2(Label, shape=[-1, 1]).astype(VarType.INT64)
    leaf = leaf + number_like(f, leaf, num_classes)
    two = number_like(f, leaf, 2.0)
    powers = f.concat([number_like(f, leaf, 2.0**bit) for bit in range((num_classes - 1).bit_length())], axis=0)
    from_bit = f.elementwise_floordiv(leaf, f.reshape2(powers, shape=[1, -1]))
    node = f.elementwise_floordiv(from_bit, two)
    is_node = f.greater_than(node, number_like(f, leaf, 0.0))
    return {"Index": node - number_like(f, leaf, 1.0), "Code": choose(f, is_node, f.elementwise_mod(from_bit, two), 0.0)}


@define(
    "tree_path(Label: int, PathTable?: int, PathCode?: int) -> Index, Code",
    infer=_tree,
    meaning=means(_nodes_and_directions),
    grad=ZERO_GRADIENT,
    num_classes=2,
)
def tree_path() -> None:
    """The nodes on the path from the root of a tree to each label, padded with -1, and the direction, 0 or 1, at each node.

    By default the tree is a binary heap whose leaves are the classes: the bits of ``label + num_classes`` are the directions. If
    PathTable and PathCode are given, they are the result.
    """


def _hierarchical(
    X: Spec, W: Spec, Label: Spec, PathTable: Spec | None, PathCode: Spec | None, Bias: Spec | None, num_classes: int
) -> tuple[Spec, Spec, Spec]:
    path, _ = _tree(Label, PathTable, PathCode, num_classes)
    if X.ndim != 2 or W.ndim != 2 or not fits(X.shape[1], W.shape[1]):
        raise InferenceError(f"X {X} should have shape [batch, width], W {W} [nodes, width]")
    if not fits(Label.size, X.shape[0]):
        raise InferenceError(f"Label {Label} should have a number for each row of X {X}")
    if Bias is not None and not fits(Bias.size, W.shape[0]):
        raise InferenceError(f"Bias {Bias} should have a number for each row of W {W}")
    rows = max(X.shape[0], path.shape[0])
    return Spec((rows, 1), X.dtype), Spec((rows, path.shape[1]), X.dtype), W


def _scores_on_path(f: Any, X: Any, weights: Any, Bias: Any, index: Any) -> Any:
    """The scores of the nodes of each path; 0 behind its end."""
    scores = f.reduce_sum(f.unsqueeze2(X, axes=[1]) * weights, dim=[2])
    scores = scores if Bias is None else scores + f.take_rows(f.reshape2(Bias, shape=[-1]), index)
    return f.clip(scores, min=-40.0, max=40.0)


def _path_losses(
    f: Any, X: Any, W: Any, Label: Any, PathTable: Any, PathCode: Any, Bias: Any, num_classes: int
) -> dict[str, Any]:
    index, code = f.tree_path(Label, PathTable, PathCode, num_classes=num_classes)
    scores = _scores_on_path(f, X, f.take_rows(W, index), Bias, index)
    losses = log1p_exp(f, scores)
    out = f.reduce_sum(losses - code.astype(X.dtype) * scores, dim=[1], keep_dim=True)
    return {"Out": out, "PreOut": losses, "W_Out": W}


@define(
    "hierarchical_sigmoid(X: float, W: float, Label: int, PathTable?: int, PathCode?: int, Bias?: float)"
    " -> Out, PreOut~, W_Out?~",
    infer=_hierarchical,
    wrt=("X", "W", "Bias"),
    meaning=means(_path_losses),
    sparse_grad="W",
    num_classes=2,
    trainer_id=0,
    height_sections=longs(),
    epmap=strings(),
    table_names=strings(),
    is_sparse=False,
)
def hierarchical_sigmoid(
    f: Any, X: Any, W: Any, Label: Any, PathTable: Any, PathCode: Any, Bias: Any, PreOut: Any, dOut: Any, num_classes: int
) -> Any:
    """Minus the log of the probability of the path from the root of a tree to the label's leaf, ``[batch, 1]``.

    At each node of the path (see `tree_path`), direction 1 has the probability ``sigmoid(p)``, where ``p = X . W[node] +
    Bias[node]`` is clipped to [-40, 40]. As in Paddle, ``log(2)`` is added for each node that a path has fewer than the
    longest one. W_Out is W.
    """
    index, code = f.tree_path(Label, PathTable, PathCode, num_classes=num_classes)
    weights = f.take_rows(W, index)
    slope = (f.sigmoid(_scores_on_path(f, X, weights, Bias, index)) - code.astype(X.dtype)) * dOut
    column = f.unsqueeze2(slope, axes=[2])
    grads = {
        "X": lambda: f.reduce_sum(column * weights, dim=[1]),
        "W": lambda: f.add_rows(column * f.unsqueeze2(X, axes=[1]), index, W),
    }
    if Bias is not None:
        grads["Bias"] = lambda: f.reshape_like(f.add_rows(slope, index, f.reshape2(Bias, shape=[-1])), Bias)
    return grads


# ----------------------------------------------------------------------------------------------------- sampled softmax
def _sample(
    Logits: Spec,
    Labels: Spec,
    CustomizedSamples: Spec | None,
    CustomizedProbabilities: Spec | None,
    use_customized_samples: bool,
    uniq: bool,
    num_samples: int,
) -> tuple[Spec, ...]:
    if Logits.ndim != 2 or Labels.ndim != 2 or not fits(Logits.shape[0], Labels.shape[0]):
        raise InferenceError(f"Logits {Logits} should be [batch, classes], Labels {Labels} [batch, labels]")
    rows = max(Logits.shape[0], Labels.shape[0])
    wide = -1 if Labels.shape[1] < 0 else Labels.shape[1] + num_samples
    if use_customized_samples:
        for name, spec in (("Samples", CustomizedSamples), ("Probabilities", CustomizedProbabilities)):
            if spec is None or spec.ndim != 2 or not all(map(fits, spec.shape, (rows, wide))):
                raise InferenceError(f"Customized{name} {spec} should have shape [{rows}, labels + num_samples]")
    elif Logits.shape[1] == 0:
        raise InferenceError(f"Logits {Logits} should have classes to draw from")
    elif num_samples < 1:
        raise InferenceError(f"num_samples is {num_samples}; at least one class should be drawn")
    elif uniq and 0 <= Logits.shape[1] < num_samples:
        raise InferenceError(f"{num_samples} different classes cannot be drawn of those of Logits {Logits}")
    samples, logits = Spec((rows, wide), VarType.INT64), Spec((rows, wide), Logits.dtype)
    dims = [spec.with_shape((*spec.shape, 0)) for spec in (Logits, Labels)]  # as in Paddle: arrays without elements
    return samples, logits, logits, Labels.with_dtype(VarType.INT64), *dims


@define(
    "sample_logits(Logits: float, Labels: int, CustomizedSamples?: int, CustomizedProbabilities?: float)"
    " -> Samples~, Probabilities~, SampledLogits, SampledLabels, LogitsDim~, LabelsDim~",
    infer=_sample,
    wrt=("Logits",),
    constants=("CustomizedProbabilities",),
    use_customized_samples=False,
    uniq=True,
    remove_accidental_hits=True,
    num_samples=required("int"),
    seed=0,
)
def sample_logits(f: Any, LogitsDim: Any, Samples: Any, dSampledLogits: Any) -> Any:
    """The logits of the labels and of `num_samples` drawn classes, minus the log of their probability to be drawn.

    The classes, the same for all rows, are drawn with probability ``log((k + 2) / (k + 1)) / log(classes + 1)``, without
    repetition if `uniq`. SampledLabels are the columns of the labels, ``0, 1, ...``. With `remove_accidental_hits`, 1e20 is
    subtracted from the logit of a drawn class that is a label of its row. CustomizedSamples and CustomizedProbabilities,
    ``[batch, labels + num_samples]``, replace the drawn classes.
    """
    zeros = f.reduce_sum(LogitsDim, dim=[2])
    return {"Logits": f.place(dSampledLogits, Samples, zeros, axis=1, ignore_index=-(2**62))}

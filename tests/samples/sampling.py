"""Samples of `fluid.ops.sampling`."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("sampling")
CLASSES = 6


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def log_uniform(k: Any, classes: int) -> Any:
    return np.log((k + 2.0) / (k + 1.0)) / np.log(classes + 1.0)


# ----------------------------------------------------------------------------------------- noise-contrastive estimation
def nce_cost(
    Input: Any,
    Label: Any,
    Weight: Any,
    labels: Any,
    num_total_classes: int,
    num_neg_samples: int,
    sampler: int = 0,
    Bias: Any = None,
    SampleWeight: Any = None,
    CustomDistProbs: Any = None,
    **_: Any,
) -> tuple[Any, Any]:
    """The cost for `labels`, the sampled classes and their probabilities."""
    scores = np.einsum("bd,bsd->bs", Input, Weight[labels]) + (0 if Bias is None else Bias.reshape(-1)[labels])
    found = sigmoid(scores)
    if sampler == 2:
        noise = CustomDistProbs[labels]
    else:
        noise = log_uniform(labels, num_total_classes - 1) if sampler else np.full(labels.shape, 1 / num_total_classes)
    noise = noise * num_neg_samples
    is_label = np.arange(labels.shape[1]) < Label.shape[1]
    costs = -np.log(np.where(is_label, found, noise) / (found + noise)).sum(1, keepdims=True)
    costs = costs * (1 if SampleWeight is None else SampleWeight.reshape(-1, 1))
    return costs.astype(Input.dtype), found.astype(Input.dtype)


def check_nce(attrs: dict[str, Any]) -> Any:
    def check(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        labels = outputs["SampleLabels"]
        known = inputs["Label"].shape[1]
        assert np.array_equal(labels[:, :known], inputs["Label"])
        assert labels.shape[1] == known + attrs["num_neg_samples"]
        assert labels.min() >= 0 and labels.max() < CLASSES
        cost, found = nce_cost(labels=labels, **inputs, **attrs)
        np.testing.assert_allclose(outputs["SampleLogits"], found, 1e-5)
        np.testing.assert_allclose(outputs["Cost"], cost, 1e-5)

    return check


PROBABILITIES = np.array([0.1, 0.05, 0.2, 0.25, 0.15, 0.25])
BY_TABLE = {
    "CustomDistProbs": PROBABILITIES,
    "CustomDistAlias": np.array([3, 5, 2, 2, 5, 3], np.int32),
    "CustomDistAliasProbs": np.array([0.6, 0.3, 1.0, 0.8, 0.9, 0.7]),
}
for sampler, labels, more in (
    (0, 1, {}),
    (0, 2, {"Bias": data(CLASSES, 1), "SampleWeight": data(4, 1, low=0.1)}),
    (1, 1, {"Bias": data(CLASSES)}),
    (2, 2, {"Bias": data(CLASSES, 1), **BY_TABLE}),
):
    given = {"num_total_classes": CLASSES, "num_neg_samples": 5, "sampler": sampler}
    values = {"Input": data(4, 3), "Label": data.ints(4, labels, high=CLASSES), "Weight": data(CLASSES, 3), **more}
    wrt = [slot for slot in ("Input", "Weight", "Bias") if slot in values]
    add("nce", Sample(values, {**given, "seed": 5}, check=check_nce(given), wrt=wrt, random=True))
add(
    "is_label",
    Sample(
        {"X": data.ints(2, 5), "Label": data.ints(2, 2), "Like": data(2, 5)},
        {},
        lambda Like: (np.arange(5) < 2) * np.ones_like(Like),
    ),
)


# ------------------------------------------------------------------------------------------------ hierarchical sigmoid
def path(Label: Any, num_classes: int = 2, PathTable: Any = None, PathCode: Any = None) -> Any:
    """From the leaf up, halving its number in the heap."""
    if PathTable is not None:
        return {"Index": PathTable, "Code": np.where(PathTable < 0, 0, PathCode)}
    depth = len(f"{num_classes - 1:b}")
    index, code = np.full((len(Label), depth), -1), np.zeros((len(Label), depth), np.int64)
    for row, leaf in enumerate(Label.reshape(-1).tolist()):
        node, at = leaf + num_classes, 0
        while node > 1:
            code[row, at], node = node % 2, node // 2
            index[row, at] = node - 1
            at += 1
    return {"Index": index, "Code": code}


def tree_cost(
    X: Any, W: Any, Label: Any, num_classes: int = 2, PathTable: Any = None, PathCode: Any = None, Bias: Any = None
) -> Any:
    found = path(Label, num_classes, PathTable, PathCode)
    cost = np.zeros((len(X), 1), X.dtype)
    for row, (nodes, codes) in enumerate(zip(found["Index"], found["Code"], strict=True)):
        for node, code in zip(nodes, codes, strict=True):
            score = 0.0 if node < 0 else X[row] @ W[node] + (0 if Bias is None else Bias.reshape(-1)[node])
            score = np.clip(score, -40, 40)
            cost[row] -= np.log(sigmoid(score if code else -score))
    return {"Out": cost, "W_Out": W}


TABLE = np.array([[0, 2, 4, -1], [0, 1, -1, -1], [0, 2, 3, 5], [0, 1, 6, -1]])
CODE = np.array([[0, 1, 0, -1], [1, 0, -1, -1], [0, 1, 1, 0], [1, 1, 1, -1]])
leaves = np.array([[0], [5], [2], [3]])
for inputs, attrs, nodes in (
    ({}, {"num_classes": 6}, 5),
    ({}, {"num_classes": 8}, 7),
    ({"PathTable": TABLE, "PathCode": CODE}, {}, 7),
):
    tree = {"X": data(4, 3), "W": data(nodes, 3), "Label": leaves, **inputs}
    add("hierarchical_sigmoid", Sample(tree, attrs, tree_cost), Sample({**tree, "Bias": data(nodes, 1)}, attrs, tree_cost))
    add("tree_path", Sample({"Label": leaves, **inputs}, attrs, path))


# ----------------------------------------------------------------------------------------------------- sampled softmax
def check_samples(attrs: dict[str, Any]) -> Any:
    def check(inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        logits, labels, samples = inputs["Logits"], inputs["Labels"], outputs["Samples"]
        known = labels.shape[1]
        assert np.array_equal(samples[:, :known], labels)
        assert np.array_equal(samples[:, known:], np.broadcast_to(samples[0, known:], (len(labels), attrs["num_samples"])))
        assert attrs.get("uniq", True) <= (len(set(samples[0, known:].tolist())) == attrs["num_samples"])
        assert np.array_equal(outputs["SampledLabels"], np.broadcast_to(np.arange(known), labels.shape))
        shares = outputs["Probabilities"]
        assert shares.min() > 0 and (shares.max() <= 1 or not attrs.get("uniq", True))
        if not attrs.get("uniq", True):
            np.testing.assert_allclose(shares, attrs["num_samples"] * log_uniform(samples, logits.shape[1]), 1e-6)
        expected = np.take_along_axis(logits, samples, 1) - np.log(shares)
        if attrs.get("remove_accidental_hits", True):
            hits = (samples[:, known:, None] == labels[:, None]).any(2)
            assert hits.any()
            expected[:, known:] = np.where(hits, expected[:, known:] - 1e20, expected[:, known:])
        np.testing.assert_allclose(outputs["SampledLogits"], expected, 1e-5, 1e-6)

    return check


few = {"Logits": data(4, 7), "Labels": np.array([[0, 1], [2, 0], [6, 1], [1, 3]])}
for attrs in ({}, {"uniq": False}, {"remove_accidental_hits": False}):
    attrs = {"num_samples": 5, **attrs}
    orders = 0 if attrs.get("remove_accidental_hits", True) else 2  # 1e20 leaves no digit of a logit
    sample = Sample(few, {**attrs, "seed": 3}, check=check_samples(attrs), wrt=["Logits"], random=True, orders=orders)
    add("sample_logits", sample)


def customized(Logits: Any, Labels: Any, CustomizedSamples: Any, CustomizedProbabilities: Any) -> Any:
    found = np.take_along_axis(Logits, CustomizedSamples, 1) - np.log(CustomizedProbabilities)
    return {"SampledLogits": found, "SampledLabels": np.zeros_like(Labels)}


add(
    "sample_logits",
    Sample(
        {
            "Logits": data(3, 7),
            "Labels": np.array([[0], [2], [4]]),
            "CustomizedSamples": np.array([[0, 1, 2], [2, 3, 5], [4, 6, 3]]),
            "CustomizedProbabilities": data(3, 3, low=0.1),
        },
        {"num_samples": 2, "use_customized_samples": True},
        customized,
        wrt=["Logits"],
    ),
)

"""Samples of `fluid.ops.ctc`: probabilities by going through every path."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np

from .base import Data, Sample, add
from .crf import parts_of

data = Data("ctc")


# ----------------------------------------------------------------------------------------------------------------- CTC
def read(path: Any, blank: int, merge: bool = True) -> list[int]:
    """The labels of a path of classes."""
    kept = [c for i, c in enumerate(path) if not merge or not i or path[i - 1] != c]
    return [int(c) for c in kept if c != blank]


def loss(logits: Any, label: list[int], blank: int) -> Any:
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    paths = product(range(logits.shape[1]), repeat=len(logits))
    every = [np.prod([row[c] for row, c in zip(shares, path, strict=True)]) for path in paths if read(path, blank) == label]
    return -np.log(sum(every)) if len(logits) and every else 0.0


def losses(logits_lod: Any, label_lod: Any) -> Any:
    def reference(Logits: Any, Label: Any, blank: int = 0, LogitsLength: Any = None, LabelLength: Any = None) -> Any:
        frames = Logits if LogitsLength is None else Logits.swapaxes(0, 1)
        pairs = zip(parts_of(frames, logits_lod, LogitsLength), parts_of(Label, label_lod, LabelLength), strict=True)
        found = [loss(logits, label.reshape(-1).tolist(), blank) for logits, label in pairs]
        return np.array(found, Logits.dtype).reshape(-1, 1)

    return reference


LOGITS, LABELS = ((0, 4, 6, 9, 10),), ((0, 2, 4, 6, 6),)
words = np.array([[1], [1], [2], [1], [1], [2]], np.int32)  # the second has too few steps for its blank, if it had one
for blank, label in ((0, words), (2, words - 1)):
    add(
        "warpctc",
        Sample({"Logits": data(10, 3), "Label": label}, {"blank": blank}, losses(LOGITS, LABELS),
               lods={"Logits": LOGITS, "Label": LABELS}),
    )  # fmt: skip
repeats = np.array([[1], [1], [2], [2], [1], [2]], np.int32)  # no path of the second sequence is short enough
add(
    "warpctc",
    Sample({"Logits": data(10, 3), "Label": repeats}, {}, losses(LOGITS, LABELS), lods={"Logits": LOGITS, "Label": LABELS}),
    Sample(
        {"Logits": data(10, 3), "Label": words},
        {"norm_by_times": True},  # of which the gradient is no derivative of the loss
        losses(LOGITS, LABELS),
        lods={"Logits": LOGITS, "Label": LABELS},
        orders=0,
    ),
)
padded = {
    "Logits": data(4, 3, 3),
    "Label": np.array([[1, 2], [2, 0], [1, 1]], np.int32),
    "LogitsLength": np.array([4, 2, 3]),
    "LabelLength": np.array([2, 1, 2]),
}
add("warpctc", Sample(padded, {}, losses(None, None)))
add("warpctc", Sample({**padded, "Label": padded["Label"][:, :1], "LabelLength": np.array([1, 0, 1])}, {}, losses(None, None)))


def states(blank: int, lod: Any, label_lod: Any) -> Any:
    """Plain loops over sequences, steps and states."""

    def reference(Logits: Any, Label: Any, LogitsLength: Any = None, LabelLength: Any = None) -> Any:
        labels = [part.reshape(-1).tolist() for part in parts_of(Label, label_lod, LabelLength)]
        counts = np.diff(lod[0]) if LogitsLength is None else LogitsLength
        steps = max(counts) if LogitsLength is None else len(Logits)
        wide = 2 * (max(map(len, labels)) if LabelLength is None else Label.shape[1]) + 1
        size = len(labels)
        rows = [
            [(lod[0][b] + t if LogitsLength is None else t * size + b) if t < counts[b] else -1 for b in range(size)]
            for t in range(steps)
        ]
        found = np.full((size, wide), blank)
        far = {name: np.full((size, wide), -1e30, Logits.dtype) for name in ("Start", "Skip", "End")}
        far["Start"][:, 0] = 0
        for b, label in enumerate(labels):
            found[b, 1 : 2 * len(label) : 2] = label
            far["End"][b, max(2 * len(label) - 1, 0) : 2 * len(label) + 1] = 0
            for s in range(2, wide):
                if found[b, s] not in (blank, found[b, s - 2]):
                    far["Skip"][b, s] = 0
        needed = [len(label) + sum(a == b for a, b in pairwise(label)) for label in labels]
        weight = [[float(0 < count >= need)] for count, need in zip(counts, needed, strict=True)]
        return {"Rows": np.array(rows), "States": found, **far, "Weight": np.array(weight, Logits.dtype)}

    return reference


add(
    "ctc_states",
    Sample({"Logits": data(10, 3), "Label": repeats}, {}, states(0, LOGITS, LABELS), lods={"Logits": LOGITS, "Label": LABELS}),
    Sample(padded, {}, states(0, None, None)),
)
add("held", Sample({"X": data(2, 3)}, {}, lambda X: X))

ALIGNED = ((0, 5, 8, 9, 11),)
classes = np.array([[0], [1], [1], [0], [1], [2], [2], [0], [0], [0], [3]])


def aligned(lod: Any) -> Any:
    def reference(
        Input: Any, blank: int = 0, merge_repeated: bool = True, padding_value: int = 0, InputLength: Any = None
    ) -> Any:
        found = [read(part.reshape(-1), blank, merge_repeated) for part in parts_of(Input, lod, InputLength)]
        if InputLength is None:
            return np.array([word for words in found for word in words] or [-1]).reshape(-1, 1)
        rows = [words + [padding_value] * (Input.shape[1] - len(words)) for words in found]
        return {"Output": np.array(rows), "OutputLength": np.array([[len(words)] for words in found])}

    return reference


for given in ({}, {"merge_repeated": False}, {"blank": 1}):
    add("ctc_align", Sample({"Input": classes}, given, aligned(ALIGNED), shapes_by_value=True, lods={"Input": ALIGNED}))
add("ctc_align", Sample({"Input": classes * 0}, {}, aligned(ALIGNED), shapes_by_value=True, lods={"Input": ALIGNED}))
add(
    "ctc_align",
    Sample(
        {"Input": data.ints(4, 6, high=3), "InputLength": np.array([[6], [0], [4], [1]])},
        {"padding_value": 9},
        aligned(None),
    ),
)


# ------------------------------------------------------------------------------------------------------- edit distance
def distance(one: list[int], other: list[int]) -> int:
    if not one or not other:
        return len(one) + len(other)
    return min(distance(one[1:], other) + 1, distance(one, other[1:]) + 1, distance(one[1:], other[1:]) + (one[0] != other[0]))


def distances(hyps: Any, refs: Any) -> Any:
    def reference(Hyps: Any, Refs: Any, normalized: bool = False, HypsLength: Any = None, RefsLength: Any = None) -> Any:
        pairs = zip(parts_of(Hyps, hyps, HypsLength), parts_of(Refs, refs, RefsLength), strict=True)
        lists = [(one.reshape(-1).tolist(), other.reshape(-1).tolist()) for one, other in pairs]
        found = [distance(*pair) / (len(pair[1]) if normalized else 1) for pair in lists]
        return {"Out": np.array(found, np.float32).reshape(-1, 1), "SequenceNum": np.array([len(found)])}

    return reference


for hyps, refs, normalized in (
    (((0, 4, 4, 9),), ((0, 3, 7, 8),), True),
    (((0, 4, 6, 9),), ((0, 3, 8, 8),), False),
):
    add(
        "edit_distance",
        Sample(
            {"Hyps": data.ints(9, 1, high=3), "Refs": data.ints(8, 1, high=3)},
            {"normalized": normalized},
            distances(hyps, refs),
            lods={"Hyps": hyps, "Refs": refs},
        ),
    )
add(
    "edit_distance",
    Sample(
        {
            "Hyps": data.ints(3, 4, high=3),
            "Refs": data.ints(3, 5, high=3),
            "HypsLength": np.array([4, 0, 3]),
            "RefsLength": np.array([5, 2, 1]),
        },
        {},
        distances(None, None),
    ),
)


# ---------------------------------------------------------------------------------------------------------- transducers
def transduced(
    input: Any, label: Any, input_lengths: Any, label_lengths: Any, blank: int = 0, fastemit_lambda: float = 0.0
) -> Any:
    """By the probability of having emitted so many labels at each step."""
    losses = []
    for scores, words, steps, count in zip(input, label, input_lengths, label_lengths, strict=True):
        sums = np.full((steps, count + 1), -np.inf)
        sums[0, 0] = 0
        for t in range(steps):
            for u in range(count + 1):
                if t:
                    sums[t, u] = np.logaddexp(sums[t, u], sums[t - 1, u] + scores[t - 1, u, blank])
                if u:
                    sums[t, u] = np.logaddexp(sums[t, u], sums[t, u - 1] + scores[t, u - 1, words[u - 1]])
        losses.append(-(sums[-1, -1] + scores[steps - 1, count, blank]))
    return np.array(losses, input.dtype)


def transducer(labels: list[list[int]], steps: list[int], counts: list[int]) -> dict[str, Any]:
    shape = (len(labels), max(steps), len(labels[0]) + 1, 4)
    lengths = {"input_lengths": np.array(steps, "int32"), "label_lengths": np.array(counts, "int32")}
    return {"input": np.log(data(*shape, low=0.1, high=0.9)), "label": np.array(labels, "int32"), **lengths}


for blank, labels in ((0, [[1, 2], [3, 3]]), (3, [[0, 2], [1, 0]])):
    for steps, counts in (([3, 2], [2, 1]), ([1, 4], [0, 2])):
        add("warprnnt", Sample(transducer(labels, steps, counts), {"blank": blank}, transduced))
inputs = transducer([[1, 2, 1]], [2], [3])
add("warprnnt", Sample(inputs, {"fastemit_lambda": 0.5}, transduced, orders=0))


def places(input: Any, label: Any, input_lengths: Any, label_lengths: Any) -> dict[str, Any]:
    width = input.shape[2]
    classes = np.zeros((*input.shape[:3], 1), "int64")
    for row, count in enumerate(label_lengths):
        classes[row, :, :count, 0] = label[row, :count]
    start = np.where(np.arange(width) == 0, 0, -1e30).astype(input.dtype)
    last = (input_lengths - 1) * width + label_lengths
    return {"Labels": classes, "Last": last[:, None].astype("int64"), "Start": np.tile(start, (len(input), 1))}


add("rnnt_places", Sample(transducer([[1, 2], [3, 3]], [3, 2], [2, 1]), {}, places))

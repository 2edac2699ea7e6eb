"""Samples of `fluid.ops.crf`: probabilities by going through every sequence of tags."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np

from .base import Data, Sample, add

data = Data("crf")

TAGS = 3
LOD = ((0, 2, 2, 5, 6),)  # an empty sequence inside
FULL = ((0, 3, 4, 6),)
LENGTHS = np.array([3, 0, 1, 2])

add(
    "padded_positions",
    *(
        Sample(
            {"X": data(4, 3, *inner), "Length": lengths},
            {},
            lambda X, Length: np.array(
                [[b * 3 + t if t < n else -1 for t in range(3)] for b, n in enumerate(np.reshape(Length, -1).tolist())]
            ),
        )
        for inner, lengths in (((2,), LENGTHS), ((), LENGTHS.reshape(-1, 1)))
    ),
)


# ------------------------------------------------------------------------------------------- conditional random fields
def score(emission: Any, transition: Any, tags: Any) -> Any:
    """How good a sequence of tags is."""
    found = transition[0, tags[0]] + transition[1, tags[-1]] + sum(row[tag] for row, tag in zip(emission, tags, strict=True))
    return found + sum(transition[2 + i, j] for i, j in pairwise(tags))


def parts_of(array: Any, lod: Any, Length: Any) -> list[Any]:
    if Length is not None:
        return [row[:n] for row, n in zip(array, np.reshape(Length, -1), strict=True)]
    return [array[start:end] for start, end in zip(lod[0], lod[0][1:], strict=False)]


def cost(emission: Any, transition: Any, label: Any) -> Any:
    if not len(emission):
        return 0.0
    every = [score(emission, transition, tags) for tags in product(range(TAGS), repeat=len(emission))]
    return np.log(np.exp(every).sum()) - score(emission, transition, np.reshape(label, -1).tolist())


def costs(lod: Any) -> Any:
    def reference(Emission: Any, Transition: Any, Label: Any, Length: Any = None) -> Any:
        pairs = zip(parts_of(Emission, lod, Length), parts_of(Label, lod, Length), strict=True)
        found = [cost(emission, Transition, label) for emission, label in pairs]
        return {"LogLikelihood": np.array(found, Emission.dtype).reshape(-1, 1)}

    return reference


def best(lod: Any) -> Any:
    def reference(Emission: Any, Transition: Any, Label: Any = None, Length: Any = None) -> Any:
        found = np.zeros(Emission.shape[:-1], np.int64)
        for path, emission in zip(parts_of(found, lod, Length), parts_of(Emission, lod, Length), strict=True):
            if len(path):
                paths = product(range(TAGS), repeat=len(path))
                path[:] = max(paths, key=lambda tags: score(emission, Transition, tags))
        if Label is not None:
            same = found == Label.reshape(found.shape)
            inside = np.ones(found.shape, bool) if Length is None else np.arange(found.shape[1]) < np.reshape(Length, (-1, 1))
            found = (same & inside).astype(np.int64)
        return found if Length is not None else found[:, None]

    return reference


transition = data(TAGS + 2, TAGS)
for lod in (LOD, FULL):
    rows = {"Emission": data(6, TAGS), "Transition": transition}
    label = data.ints(6, 1, high=TAGS)
    lods = {"Emission": lod}
    add(
        "linear_chain_crf",
        Sample({**rows, "Label": label}, {}, costs(lod), lods={**lods, "Label": lod}, known=["Transition"]),
    )
    add("crf_decoding", Sample(rows, {}, best(lod), lods=lods))
    add("crf_decoding", Sample({**rows, "Label": label}, {}, best(lod), lods={**lods, "Label": lod}))
for lengths, label in (
    (LENGTHS, data.ints(4, 3, high=TAGS)),
    (LENGTHS.reshape(-1, 1), data.ints(4, 3, 1, high=TAGS)),
):
    padded = {"Emission": data(4, 3, TAGS), "Transition": transition, "Length": lengths}
    add("linear_chain_crf", Sample({**padded, "Label": label}, {}, costs(None), known=["Transition"]))
    add("crf_decoding", Sample(padded, {}, best(None)), Sample({**padded, "Label": label}, {}, best(None)))


def counted(Label: Any, Rows: Any, Transition: Any) -> Any:
    found = np.zeros((len(Rows), *Transition.shape), Transition.dtype)
    for one, rows in zip(found, Rows, strict=True):
        tags = [int(Label.reshape(-1)[row]) for row in rows if row >= 0]
        if tags:
            one[0, tags[0]] += 1
            one[1, tags[-1]] += 1
        for i, j in pairwise(tags):
            one[2 + i, j] += 1
    return found


places = np.array([[0, 1, 2, -1], [3, -1, -1, -1], [-1, -1, -1, -1], [4, 5, 6, 7]])
add("crf_counts", Sample({"Label": data.ints(8, 1, high=TAGS), "Rows": places, "Transition": transition}, {}, counted))


# ------------------------------------------------------------------------------------------------------------- chunks
KINDS = {"IOB": "BI", "IOE": "IE", "IOBES": "BIES", "plain": "S"}


def chunks(tags: list[int], scheme: str, types: int) -> set[tuple[int, int, int]]:
    """(first, last, type) of each chunk of a sequence, read from left to right."""
    found, start = set(), None
    kinds = KINDS[scheme]
    for at, tag in enumerate([*tags, types * len(kinds)]):
        kind, chunk = kinds[tag % len(kinds)], tag // len(kinds)
        if start is not None:
            before_kind, before = kinds[tags[at - 1] % len(kinds)], tags[at - 1] // len(kinds)
            closed = before_kind == "E" or (before_kind == "S" and scheme != "plain")
            opened = kind == "B" or (kind == "S" and scheme != "plain")
            if closed or opened or chunk != before:
                found.add((start, at - 1, before))
                start = None
        if start is None and chunk != types:
            start = at
    return found


def evaluated(lod: Any) -> Any:
    def reference(
        Inference: Any,
        Label: Any,
        num_chunk_types: int,
        chunk_scheme: str,
        SeqLength: Any = None,
        excluded_chunk_types: Any = (),
    ) -> Any:
        inferred, labelled, correct = 0, 0, 0
        pairs = zip(parts_of(Inference, lod, SeqLength), parts_of(Label, lod, SeqLength), strict=True)
        for pair in pairs:
            one, other = (
                {chunk for chunk in chunks(tags.reshape(-1).tolist(), chunk_scheme, num_chunk_types)
                 if chunk[2] not in excluded_chunk_types}
                for tags in pair
            )  # fmt: skip
            inferred, labelled, correct = inferred + len(one), labelled + len(other), correct + len(one & other)
        shares = [correct / inferred if inferred else 0, correct / labelled if labelled else 0]
        shares.append(2 * shares[0] * shares[1] / sum(shares) if correct else 0)
        names = ["Precision", "Recall", "F1_Score", "NumInferChunks", "NumLabelChunks", "NumCorrectChunks"]
        values = [np.array([share], np.float32) for share in shares]
        return dict(zip(names, [*values, *(np.array([count]) for count in (inferred, labelled, correct))], strict=True))

    return reference


LONG = ((0, 11, 11, 12, 30),)
for scheme, kinds in KINDS.items():
    for excluded in ([], [1]):
        tags = data.ints(30, 1, high=2 * len(kinds) + 1)
        guess = np.where(data.bools(30, 1), tags, data.ints(30, 1, high=2 * len(kinds) + 1))
        given = {"num_chunk_types": 2, "chunk_scheme": scheme, "excluded_chunk_types": excluded}
        add(
            "chunk_eval",
            Sample({"Inference": guess, "Label": tags}, given, evaluated(LONG), lods={"Inference": LONG, "Label": LONG}),
        )
    wide = {"Inference": guess.reshape(3, 10), "Label": tags.reshape(3, 10), "SeqLength": np.array([10, 0, 4])}
    add("chunk_eval", Sample(wide, {"num_chunk_types": 2, "chunk_scheme": scheme}, evaluated(None)))


def best_tags(Input: Any, Transition: Any, Length: Any, include_bos_eos_tag: bool = True) -> dict[str, Any]:
    """All sequences of tags, scored one by one."""
    scores, paths = [], np.zeros((len(Input), Length.max()), "int64")
    for row, (emitted, length) in enumerate(zip(Input, Length, strict=True)):
        best = (-np.inf, ())
        for tags in product(range(Input.shape[2]), repeat=int(length)):
            score = sum(emitted[step, tag] for step, tag in enumerate(tags))
            score += sum(Transition[pair] for pair in pairwise(tags))
            if include_bos_eos_tag:
                score += Transition[-1, tags[0]] + Transition[-2, tags[-1]]
            best = max(best, (score, tags))
        scores.append(best[0])
        paths[row, :length] = best[1]
    return {"Scores": np.array(scores, Input.dtype), "Path": paths}


for ends in (True, False):
    for lengths in ([4, 2, 1], [2, 3, 3]):
        inputs = {"Input": data(3, 4, 3), "Transition": data(3, 3), "Length": np.array(lengths)}
        add("viterbi_decode", Sample(inputs, {"include_bos_eos_tag": ends}, best_tags, shapes_by_value=True))

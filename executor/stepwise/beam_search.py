"""Decoding the results of a beam search, which are arrays of tensors (see `fluid.ops.beam_search`)."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from fluid.errors import ExecutionError
from fluid.ir.program import Operator
from fluid.values.lod_array import LoDArray, array_of, ids_of, lod_of
from fluid.values.place import to_numpy
from fluid.values.spec import Lod

from .handlers import runs
from .interpreter import Environment, Machine


class _Step:
    """The ids and scores selected at one step of the search, on the host."""

    def __init__(self, ids: Any, scores: Any, step: int) -> None:
        lod = lod_of(ids)
        if len(lod) != 2 or lod[0] is None or lod[1] is None:
            raise ExecutionError(f"step {step} of Ids should have two levels of sequences, as beam_search makes them")
        self.ids, self.scores = (to_numpy(array_of(value)).reshape(-1) for value in (ids, scores))
        if len(self.ids) != len(self.scores):
            raise ExecutionError(f"step {step} has {len(self.ids)} ids, but {len(self.scores)} scores")
        self.sources = np.asarray(lod[1])[np.asarray(lod[0])].tolist()  # the rows of each source
        self.parents = ids_of(lod[1]).tolist()  # of each row, its row in the previous step


def _sentence(steps: list[_Step], last: int, row: int, end_id: int) -> list[tuple[Any, Any]]:
    """The words, with their scores, of the sentence that ends in a row of the step `last`."""
    words: list[tuple[Any, Any]] = []
    for step in reversed(steps[: last + 1]):
        if not words or step.ids[row] != end_id:  # a sentence that has ended repeats its end
            words.append((step.ids[row], step.scores[row]))
        row = step.parents[row]
    return words[::-1]


def _sentences(steps: list[_Step], end_id: int) -> list[list[list[tuple[Any, Any]]]]:
    """The sentences of each source, best first."""
    counts = {len(step.sources) - 1 for step in steps}
    if len(counts) != 1:
        raise ExecutionError(f"the steps of Ids should have the same number of sources, not {sorted(counts)}")
    by_source = []
    for source in range(counts.pop()):
        rows: list[int] = []
        last = len(steps)
        while not rows and last:
            last -= 1
            rows = list(range(*steps[last].sources[source : source + 2]))
        sentences = [_sentence(steps, last, row, end_id) for row in rows]
        by_source.append(sorted(sentences, key=lambda sentence: -sentence[-1][1]))
    return by_source


@runs("beam_search_decode")
def beam_search_decode(machine: Machine, op: Operator, env: Environment) -> None:
    lists = [env.get(op.input(slot)[0]) for slot in ("Ids", "Scores")]
    if not all(isinstance(steps, list) and steps and None not in steps for steps in lists) or len(lists[0]) != len(lists[1]):
        raise ExecutionError("Ids and Scores should be arrays of selections, with one entry for each step of the search")
    ids, scores = lists
    steps = [_Step(*pair, number) for number, pair in enumerate(zip(ids, scores, strict=True))]
    sources = _sentences(steps, int(op.attr("end_id")))
    sentences = [sentence for of_source in sources for sentence in of_source]
    lod: Lod = tuple(tuple(accumulate(map(len, lists), initial=0)) for lists in (sources, sentences))
    for slot, part, like in (("SentenceIds", 0, ids[0]), ("SentenceScores", 1, scores[0])):
        values = [word[part] for sentence in sentences for word in sentence]
        array = machine.xp.asarray(np.array(values, array_of(like).dtype))
        env.set(op.output(slot)[0], LoDArray(array, lod))

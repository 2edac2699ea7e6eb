"""Reading off what a beam search found: arrays of tensors are no arrays of a kernel (see `fluid.ops.beam_search`)."""

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
    """What was selected at one step of the search, on the host."""

    def __init__(self, ids: Any, scores: Any, step: int) -> None:
        lod = lod_of(ids)
        if len(lod) != 2 or lod[0] is None or lod[1] is None:
            raise ExecutionError(f"step {step} of Ids should have two levels of sequences, as beam_search makes them")
        self.ids, self.scores = (to_numpy(array_of(value)).reshape(-1) for value in (ids, scores))
        if len(self.ids) != len(self.scores):
            raise ExecutionError(f"step {step} has {len(self.ids)} ids, but {len(self.scores)} scores")
        self.sources = np.asarray(lod[1])[np.asarray(lod[0])].tolist()  # the rows of each source
        self.parents = ids_of(lod[1]).tolist()  # the row before of each row


def _sentence(steps: list[_Step], last: int, row: int, end_id: int) -> list[tuple[Any, Any]]:
    """Words and scores of what ends in a row of the step `last`."""
    found: list[tuple[Any, Any]] = []
    for step in reversed(steps[: last + 1]):
        if not found or step.ids[row] != end_id:  # a sentence that has ended repeats its end
            found.append((step.ids[row], step.scores[row]))
        row = step.parents[row]
    return found[::-1]


def _sentences(steps: list[_Step], end_id: int) -> list[list[list[tuple[Any, Any]]]]:
    """The sentences of each source, the best first."""
    counts = {len(step.sources) - 1 for step in steps}
    if len(counts) != 1:
        raise ExecutionError(f"the steps of Ids should be of one number of sources, not of {sorted(counts)}")
    every = []
    for source in range(counts.pop()):
        rows: list[int] = []
        last = len(steps)
        while not rows and last:
            last -= 1
            rows = list(range(*steps[last].sources[source : source + 2]))
        found = [_sentence(steps, last, row, end_id) for row in rows]
        every.append(sorted(found, key=lambda sentence: -sentence[-1][1]))
    return every


@runs("beam_search_decode")
def beam_search_decode(machine: Machine, op: Operator, env: Environment) -> None:
    lists = [env.get(op.input(slot)[0]) for slot in ("Ids", "Scores")]
    if not all(isinstance(found, list) and found and None not in found for found in lists) or len(lists[0]) != len(lists[1]):
        raise ExecutionError("Ids and Scores should be arrays of what was selected, with one entry for each step of the search")
    ids, scores = lists
    steps = [_Step(*pair, number) for number, pair in enumerate(zip(ids, scores, strict=True))]
    sources = _sentences(steps, int(op.attr("end_id")))
    sentences = [sentence for found in sources for sentence in found]
    lod: Lod = (
        tuple(accumulate(map(len, sources), initial=0)),
        tuple(accumulate(map(len, sentences), initial=0)),
    )
    for slot, which, like in (("SentenceIds", 0, ids[0]), ("SentenceScores", 1, scores[0])):
        values = [entry[which] for sentence in sentences for entry in sentence]
        array = machine.xp.asarray(np.array(values, array_of(like).dtype))
        env.set(op.output(slot)[0], LoDArray(array, lod))

"""Beam search over sources whose partial translations are the rows of a tensor: one step, and reading off what was found."""

from __future__ import annotations

from ..errors import InferenceError
from ..opdef.registry import NOT_DIFFERENTIABLE, define, required
from ..values.spec import Spec
from ..values.types import VarType
from .crf import fits
from .sequence import offsets_of


def _beam_search(
    pre_ids: Spec, pre_scores: Spec, ids: Spec | None, scores: Spec, level: int, beam_size: int
) -> tuple[Spec, Spec, Spec]:
    offsets_of(scores, "scores", level)
    if scores.ndim != 2 or (ids is not None and not all(map(fits, ids.shape, scores.shape))):
        raise InferenceError(f"scores {scores} should have shape [rows, candidates], and ids {ids} the same")
    for name, spec in (("pre_ids", pre_ids), ("pre_scores", pre_scores)):
        if not fits(spec.size, scores.shape[0]):
            raise InferenceError(f"{name} {spec} should have a number for each row of scores {scores}")
    if beam_size < 1:
        raise InferenceError(f"beam_size is {beam_size}; it should be at least 1")
    lod = (None, None)
    return (Spec((-1, 1), VarType.INT64, lod=lod), Spec((-1, 1), pre_scores.dtype, lod=lod), Spec((-1,), VarType.INT32))


@define(
    "beam_search(pre_ids: int, pre_scores: float, ids?: int, scores: float) -> selected_ids, selected_scores, parent_idx?",
    infer=_beam_search,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    level=0,
    beam_size=required("int"),
    end_id=required("int"),
    is_accumulated=True,
)
def beam_search() -> None:
    """The `beam_size` best ways to go on, for each source: a sequence of `level` of the scores, whose rows are the beams so far.

    A row whose last word, in pre_ids, is `end_id` goes on as it is, with its score in pre_scores. Others have the candidates
    ``ids[row]`` (by default 0, 1, ...) with ``scores[row]``, which, unless `is_accumulated`, are probabilities that the row's
    score does not count yet. A source of whose best ways all had ended already is done: nothing is selected for it.

    selected_ids and selected_scores, ``[selected, 1]``, have two levels: the rows before of each source, and what was selected
    for each of them; parent_idx, ``[selected]``, are those rows.
    """


def _decode(Ids: Spec, Scores: Spec) -> tuple[Spec, Spec]:
    lod = (None, None)
    return Spec((-1,), Ids.dtype, lod=lod), Spec((-1,), Scores.dtype, lod=lod)


@define(
    "beam_search_decode(Ids, Scores) -> SentenceIds, SentenceScores",
    infer=_decode,
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    beam_size=required("int"),
    end_id=required("int"),
)
def beam_search_decode() -> None:
    """The sentences that a beam search found, from the arrays of what it selected at each step: ``[words]`` in two levels, the
    sentences of each source from the highest last score to the lowest, and the words of each; one `end_id` at most."""

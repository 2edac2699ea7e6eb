"""Beam search: one step, and collecting the sentences at the end. The beams of all sources are the rows of a tensor."""

from __future__ import annotations

from ..errors import InferenceError
from ..opdef.registry import NOT_DIFFERENTIABLE, define, required
from ..values.spec import Spec
from ..values.types import VarType
from .sequence import offsets_of
from .shapes import fits


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
    selected = Spec((-1, 1), VarType.INT64, lod=(None, None))
    return selected, selected.with_dtype(pre_scores.dtype), Spec((-1,), VarType.INT32)


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
    """The `beam_size` best continuations for each source, which is a sequence of the given `level` of the scores.

    Each row is a beam. If its last word, in pre_ids, is `end_id`, it continues unchanged, with its score in pre_scores. Otherwise
    its candidates are ``ids[row]`` (by default 0, 1, ...) with ``scores[row]``; unless `is_accumulated`, these are probabilities
    that are yet to be added to the row's score. Nothing is selected for a source whose best beams have all ended.

    selected_ids and selected_scores, ``[selected, 1]``, have two levels of sequences: the previous rows of each source, and the
    rows selected for each previous row. parent_idx, ``[selected]``, has the previous row of each selected one.
    """


@define(
    "beam_search_decode(Ids, Scores) -> SentenceIds, SentenceScores",
    infer=lambda Ids, Scores: tuple(Spec((-1,), spec.dtype, lod=(None, None)) for spec in (Ids, Scores)),
    grad=NOT_DIFFERENTIABLE,
    lod_aware=True,
    beam_size=required("int"),
    end_id=required("int"),
)
def beam_search_decode() -> None:
    """The sentences of a beam search, from the arrays of its selections at each step: ``[words]`` with two levels of sequences,
    the sentences of each source by descending last score, and the words of each sentence up to the first `end_id`."""

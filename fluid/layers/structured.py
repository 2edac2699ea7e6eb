"""Structured prediction: fields over tags, unaligned labels, many classes, and beams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..building.layer_helper import LayerHelper, apply, apply_many, extent
from ..errors import ProgramError
from ..initializer import NumpyArrayInitializer
from ..ir.checked import Positive, check_variable
from ..ir.program import Variable
from ..param_attr import AttrLike, GivenParameter
from .nn import one_hot_of, softmax_with_cross_entropy, topk
from .ops import reduce_sum
from .tensor import argmax, cast

__all__ = [
    "beam_search",
    "beam_search_decode",
    "chunk_eval",
    "crf_decoding",
    "ctc_greedy_decoder",
    "edit_distance",
    "hsigmoid",
    "linear_chain_crf",
    "nce",
    "sampled_softmax_with_cross_entropy",
    "warpctc",
]


def _constants(*variables: Variable) -> tuple[Variable, ...]:
    for var in variables:
        var.stop_gradient = True
    return variables


# ------------------------------------------------------------------------------------------- conditional random fields
def _transition(helper: LayerHelper, input: Variable) -> Variable:
    """The parameter ``[tags + 2, tags]`` that `linear_chain_crf` learns; the one of that name, where there is one."""
    found: Any = helper.main_program.global_block().vars.get(getattr(helper.param_attr, "name", None) or "")
    if found is None:
        tags = extent(input, -1, "input")
        found = helper.create_parameter(helper.param_attr, [tags + 2 if tags > 0 else -1, tags], input.dtype)
    return found  # type: ignore[no-any-return]


def linear_chain_crf(input: Variable, label: Variable, param_attr: AttrLike = None, length: Variable | None = None) -> Variable:
    """Minus the log of the probability of each sequence of labels, ``[sequences, 1]``: a cost to make small.

    Args:
        input: the emissions: how much each row is for each tag, ``[rows, tags]``, in sequences; with `length`, ``[batch, steps,
            tags]``.
        label: int64 ``[rows, 1]``, or ``[batch, steps]``.
        param_attr: of the transitions, ``[tags + 2, tags]``: row 0 is for the first tag, row 1 for the last, row ``2 + i`` for
            the tag after tag i. Its name is what `crf_decoding` finds them by.
        length: int64 ``[batch]`` or ``[batch, 1]``, how many steps there are of each sequence.

    >>> emission = fluid.data("emission", [None, 5], lod_level=1)
    >>> labels = fluid.data("labels", [None, 1], "int64", lod_level=1)
    >>> layers.linear_chain_crf(emission, labels, param_attr=fluid.ParamAttr("transition")).shape
    (-1, 1)
    >>> fluid.default_main_program().global_block().var("transition").shape
    (7, 5)
    """
    check_variable(input, "linear_chain_crf: input")
    helper = LayerHelper("linear_chain_crf", param_attr=param_attr)
    inputs = {"Emission": input, "Transition": _transition(helper, input), "Label": label, "Length": length}
    found: Variable = helper.apply("linear_chain_crf", inputs)["LogLikelihood"]
    return found


def crf_decoding(
    input: Variable, param_attr: AttrLike, label: Variable | None = None, length: Variable | None = None
) -> Variable:
    """The most probable tags of each sequence, int64 ``[rows, 1]``; with `length`, ``[batch, steps]``, filled up with 0.

    Arguments are those of `linear_chain_crf`. With `label`, the result is 1 where the tag is the label, and 0 elsewhere.

    >>> emission = fluid.data("emission", [None, 5], lod_level=1)
    >>> layers.crf_decoding(emission, param_attr=fluid.ParamAttr("transition")).shape
    (-1, 1)
    """
    check_variable(input, "crf_decoding: input")
    helper = LayerHelper("crf_decoding", param_attr=param_attr)
    if input.block.program.eager and not isinstance(helper.param_attr, GivenParameter):
        raise ProgramError(
            "crf_decoding decodes with what linear_chain_crf has learned; on tensors give it that: param_attr=crf.weight, "
            "of crf = fluid.dygraph.LayerOf(fluid.layers.linear_chain_crf)"
        )
    inputs = {"Emission": input, "Transition": _transition(helper, input), "Label": label, "Length": length}
    (found,) = _constants(helper.apply("crf_decoding", inputs)["ViterbiPath"])
    return found


def chunk_eval(
    input: Variable,
    label: Variable,
    chunk_scheme: str,
    num_chunk_types: int,
    excluded_chunk_types: Sequence[int] | None = None,
    seq_length: Variable | None = None,
) -> tuple[Variable, ...]:
    """Which chunks of the labels were found: precision, recall and F1 (float32), and the numbers of chunks found, there, and
    right (int64), each of shape ``[1]``.

    Args:
        input, label: tags, int64 ``[rows, 1]`` in sequences; with `seq_length`, ``[batch, steps]``. A tag is ``chunk type * tag
            types + tag type``, or ``num_chunk_types * tag types`` outside of chunks.
        chunk_scheme: what the tag types are: ``"IOB"`` begin, inside; ``"IOE"`` inside, end; ``"IOBES"`` begin, inside, end,
            single; ``"plain"`` one.
        excluded_chunk_types: chunk types that do not count.

    >>> tags = fluid.data("tags", [None, 1], "int64", lod_level=1)
    >>> labels = fluid.data("labels", [None, 1], "int64", lod_level=1)
    >>> precision, recall, f1, *counts = layers.chunk_eval(tags, labels, chunk_scheme="IOB", num_chunk_types=3)
    >>> f1.shape, len(counts)
    ((1,), 3)
    """
    attrs = {
        "num_chunk_types": num_chunk_types,
        "chunk_scheme": chunk_scheme,
        "excluded_chunk_types": list(excluded_chunk_types or ()),
    }
    return _constants(*apply_many("chunk_eval", {"Inference": input, "Label": label, "SeqLength": seq_length}, attrs))


# --------------------------------------------------------------------------------------------------- unaligned labels
def warpctc(
    input: Variable,
    label: Variable,
    blank: int = 0,
    norm_by_times: bool = False,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> Variable:
    """The CTC loss, ``[sequences, 1]``: minus the log of the probability that the labels are read off the logits.

    Args:
        input: logits, before the softmax: ``[rows, classes]`` in sequences; with `input_length`, ``[steps, batch, classes]``.
        label: int32, ``[rows, 1]`` in sequences; with `label_length`, ``[batch, labels]``.
        blank: the class that stands between labels.
        norm_by_times: divide gradients by the number of steps.
        input_length, label_length: int64 ``[batch]``.

    >>> logits = fluid.data("logits", [None, 28], lod_level=1)
    >>> labels = fluid.data("labels", [None, 1], "int32", lod_level=1)
    >>> layers.warpctc(logits, labels, blank=27).shape
    (-1, 1)
    """
    inputs = {"Logits": input, "Label": label, "LogitsLength": input_length, "LabelLength": label_length}
    return apply("warpctc", inputs, {"blank": blank, "norm_by_times": norm_by_times})


def ctc_greedy_decoder(
    input: Variable, blank: int, input_length: Variable | None = None, padding_value: int = 0, name: str | None = None
) -> Variable | tuple[Variable, Variable]:
    """What reads off the most probable class of each step: equal neighbours as one, without `blank`.

    Of `input` ``[rows, classes]`` in sequences, int64 ``[words, 1]`` in sequences. With `input_length`, int64 ``[batch, 1]``, of
    `input` ``[batch, steps, classes]``: the words ``[batch, steps]``, filled up with `padding_value`, and how many,
    ``[batch, 1]``.

    >>> x = fluid.dygraph.to_variable([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.6, 0.4]]).with_lod([[0, 4]])
    >>> layers.ctc_greedy_decoder(x, blank=0)
    Tensor([[1]], shape=[1, 1], dtype=int64)
    """
    check_variable(input, "ctc_greedy_decoder: input")
    if blank < 0 or (input.ndim and 0 <= input.shape[-1] <= blank):
        raise ProgramError(f"ctc_greedy_decoder: blank is {blank}; it should be a class of input, {input.describe()}")
    attrs = {"blank": blank, "merge_repeated": True, "padding_value": padding_value}
    if input_length is None:
        return _constants(apply("ctc_align", {"Input": topk(input, 1)[1]}, attrs, layer="ctc_greedy_decoder", name=name))[0]
    helper = LayerHelper("ctc_greedy_decoder", name=name)
    count = helper.create_variable_for_type_inference()
    inputs = {"Input": argmax(input, axis=-1), "InputLength": input_length}
    words, count = _constants(*helper.apply("ctc_align", inputs, attrs, {"OutputLength": count}).values())
    return words, count


def edit_distance(
    input: Variable,
    label: Variable,
    normalized: bool = True,
    ignored_tokens: Sequence[int] | None = None,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> tuple[Variable, Variable]:
    """How many insertions, deletions and replacements make each sequence of `input` that of `label`, float32 ``[sequences, 1]``,
    and the number of sequences, int64 ``[1]``.

    Args:
        input, label: int64 ``[rows, 1]`` in sequences; with lengths, ``[batch, steps]``.
        normalized: divide by the length of the label.
        ignored_tokens: left out of both before; for sequences of rows only.
        input_length, label_length: int64 ``[batch]``.

    >>> x = fluid.dygraph.to_variable([[1], [2], [3], [4]]).with_lod([[0, 2, 4]])
    >>> y = fluid.dygraph.to_variable([[1], [3], [3], [4]]).with_lod([[0, 2, 4]])
    >>> layers.edit_distance(x, y, normalized=False)[0]
    Tensor([[1.],
            [0.]], shape=[2, 1], dtype=float32)
    """
    if ignored_tokens:
        if input_length is not None or label_length is not None:
            raise ProgramError("edit_distance: ignored_tokens are left out of sequences of rows only, not of padded ones")
        input, label = (apply("sequence_erase", {"X": var}, {"tokens": list(ignored_tokens)}) for var in (input, label))
    inputs = {"Hyps": input, "Refs": label, "HypsLength": input_length, "RefsLength": label_length}
    count, distance = _constants(*apply_many("edit_distance", inputs, {"normalized": normalized}))
    return distance, count


# -------------------------------------------------------------------------------------------------------- many classes
_SAMPLERS = ("uniform", "log_uniform", "custom_dist")


def _alias_table(probabilities: Sequence[float], count: int) -> tuple[Any, Any, Any]:
    """For drawing by Walker's method: the probabilities, and of each class which other one it stands for, and how seldom."""
    given = np.asarray(probabilities, np.float64)
    if given.shape != (count,) or not np.all(given >= 0) or not np.isclose(given.sum(), 1.0, atol=1e-3):
        raise ProgramError(f"nce: custom_dist should have a probability for each of {count} classes, 1 in all")
    others, stays = np.arange(count, dtype=np.int32), given * count
    small, large = (list(np.flatnonzero(found)) for found in (stays < 1, stays >= 1))
    while small and large:
        low, high = small.pop(), large.pop()
        others[low] = high
        stays[high] -= 1 - stays[low]
        (small if stays[high] < 1 else large).append(high)
    stays[[*small, *large]] = 1  # but for rounding they are
    return given.astype(np.float32), others, stays.astype(np.float32)


def nce(
    input: Variable,
    label: Variable,
    num_total_classes: Positive,
    sample_weight: Variable | None = None,
    param_attr: AttrLike = None,
    bias_attr: AttrLike = None,
    num_neg_samples: Positive | None = None,
    name: str | None = None,
    sampler: str = "uniform",
    custom_dist: Sequence[float] | None = None,
    seed: int = 0,
    is_sparse: bool = False,
) -> Variable:
    """Noise-contrastive estimation, ``[batch, 1]``: a cost for telling labels apart from classes that are drawn.

    Args:
        input: ``[batch, width]``.
        label: int64 ``[batch, labels]``.
        sample_weight: of each row, ``[batch, 1]``.
        param_attr, bias_attr: of the weights ``[num_total_classes, width]`` and the bias ``[num_total_classes, 1]``.
        num_neg_samples: how many classes are drawn for each row; 10 by default. The cost is divided by one more than that.
        sampler: how: ``"uniform"``, ``"log_uniform"`` (class k with ``log((k + 2) / (k + 1)) / log(num_total_classes)``), or
            ``"custom_dist"``, with the probabilities `custom_dist`.
        seed: of what is drawn; 0 for that of the program.
        is_sparse: the gradient of the weights holds only the rows of the labels and of what was drawn (a `SelectedRows`), and
            optimizers work on those.

    >>> hidden, words = fluid.data("hidden", [None, 64]), fluid.data("words", [None, 1], "int64")
    >>> layers.nce(hidden, words, num_total_classes=10000, num_neg_samples=5).shape
    (-1, 1)
    """
    check_variable(input, "nce: input")
    if sampler not in _SAMPLERS:
        raise ProgramError(f"nce: sampler is {sampler!r}; it should be one of {', '.join(_SAMPLERS)}")
    helper = LayerHelper("nce", name=name, param_attr=param_attr, bias_attr=bias_attr)
    count = 10 if num_neg_samples is None else int(num_neg_samples)
    inputs = {
        "Input": input,
        "Label": label,
        "SampleWeight": sample_weight,
        "Weight": helper.create_parameter(helper.param_attr, [num_total_classes, extent(input, 1, "input")], input.dtype),
    }
    if helper.bias_attr:
        inputs["Bias"] = helper.create_parameter(helper.bias_attr, [num_total_classes, 1], input.dtype, is_bias=True)
    if sampler == "custom_dist":
        if custom_dist is None:
            raise ProgramError("nce: with sampler='custom_dist', custom_dist should hold the probability of each class")
        tables = _alias_table(custom_dist, num_total_classes)
        for slot, table in zip(("CustomDistProbs", "CustomDistAlias", "CustomDistAliasProbs"), tables, strict=True):
            var = helper.create_global_variable(True, shape=table.shape, dtype=table.dtype, stop_gradient=True)
            helper.set_variable_initializer(var, NumpyArrayInitializer(table))
            inputs[slot] = var
    attrs = {
        "num_total_classes": int(num_total_classes),
        "num_neg_samples": count,
        "sampler": _SAMPLERS.index(sampler),
        "seed": seed,
        "is_sparse": is_sparse,
    }
    cost: Variable = helper.apply("nce", inputs, attrs)["Cost"]
    return cost / float(count + 1)  # type: ignore[no-any-return]


def hsigmoid(
    input: Variable,
    label: Variable,
    num_classes: int,
    param_attr: AttrLike = None,
    bias_attr: AttrLike = None,
    name: str | None = None,
    path_table: Variable | None = None,
    path_code: Variable | None = None,
    is_custom: bool = False,
    is_sparse: bool = False,
) -> Variable:
    """Minus the log of the probability to get to the label's leaf of a tree of classes, ``[batch, 1]``.

    Args:
        input: ``[batch, width]``.
        label: int64 ``[batch, 1]``.
        num_classes: leaves of the default tree, a heap; with `is_custom`, the number of inner nodes.
        param_attr, bias_attr: of the weights of inner nodes, ``[nodes, width]``, and the bias ``[nodes, 1]``.
        path_table, path_code: with `is_custom`, the inner nodes from the root to each label, int64 ``[batch, depth]``, -1 behind
            the last, and which way to go at each, 0 or 1.
        is_sparse: the gradient of the weights holds only the rows of the nodes on the way (a `SelectedRows`), and optimizers
            work on those.

    >>> hidden, words = fluid.data("hidden", [None, 64]), fluid.data("words", [None, 1], "int64")
    >>> layers.hsigmoid(hidden, words, num_classes=10000).shape
    (-1, 1)
    """
    check_variable(input, "hsigmoid: input")
    if is_custom != (path_table is not None) or is_custom != (path_code is not None):
        raise ProgramError(
            "hsigmoid: a tree of your own needs is_custom=True, path_table and path_code; the default one has none"
        )
    if num_classes < 2:
        raise ProgramError(f"hsigmoid: num_classes is {num_classes}; there should be at least two")
    helper = LayerHelper("hierarchical_sigmoid", name=name, param_attr=param_attr, bias_attr=bias_attr)
    nodes = num_classes if is_custom else num_classes - 1
    inputs = {"X": input, "Label": label, "PathTable": path_table, "PathCode": path_code}
    inputs["W"] = helper.create_parameter(helper.param_attr, [nodes, extent(input, 1, "input")], input.dtype)
    if helper.bias_attr:
        inputs["Bias"] = helper.create_parameter(helper.bias_attr, [nodes, 1], input.dtype, is_bias=True)
    found: Variable = helper.apply("hierarchical_sigmoid", inputs, {"num_classes": num_classes, "is_sparse": is_sparse})["Out"]
    return found


def sampled_softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    num_samples: Positive,
    num_true: int = 1,
    remove_accidental_hits: bool = True,
    use_customized_samples: bool = False,
    customized_samples: Variable | None = None,
    customized_probabilities: Variable | None = None,
    seed: int = 0,
) -> Variable:
    """Softmax and cross entropy over the labels and `num_samples` drawn classes, instead of all: ``[batch, 1]``.

    Args:
        logits: ``[batch, classes]``.
        label: int64 ``[batch, num_true]``.
        remove_accidental_hits: a drawn class that is a label does not count.
        use_customized_samples: use `customized_samples`, int64 ``[batch, num_true + num_samples]``, of which the first are the
            labels, and `customized_probabilities`, how probable each was to be drawn.
        seed: of what is drawn; 0 for that of the program.

    >>> logits, words = fluid.data("logits", [None, 10000]), fluid.data("words", [None, 1], "int64")
    >>> layers.sampled_softmax_with_cross_entropy(logits, words, num_samples=100).shape
    (-1, 1)
    """
    inputs = {"Logits": logits, "Labels": label}
    if use_customized_samples:
        if customized_samples is None or customized_probabilities is None:
            raise ProgramError("sampled_softmax_with_cross_entropy: give customized_samples and customized_probabilities too")
        inputs |= {"CustomizedSamples": customized_samples, "CustomizedProbabilities": customized_probabilities}
    attrs = {
        "use_customized_samples": use_customized_samples,
        "uniq": True,
        "remove_accidental_hits": remove_accidental_hits,
        "num_samples": num_samples,
        "seed": seed,
    }
    sampled, columns = apply_many("sample_logits", inputs, attrs, layer="sampled_softmax_with_cross_entropy")
    columns.stop_gradient = True
    truth = cast(reduce_sum(one_hot_of("one_hot_v2", columns, num_samples + num_true, False), 1), logits.dtype)
    truth.stop_gradient = True
    loss: Any = softmax_with_cross_entropy(sampled, truth, soft_label=True, numeric_stable_mode=False)
    return loss / float(num_true)  # type: ignore[no-any-return]


# --------------------------------------------------------------------------------------------------------------- beams
def beam_search(
    pre_ids: Variable,
    pre_scores: Variable,
    ids: Variable | None,
    scores: Variable,
    beam_size: int,
    end_id: int,
    level: int = 0,
    is_accumulated: bool = True,
    name: str | None = None,
    return_parent_idx: bool = False,
) -> tuple[Variable, ...]:
    """One step of a beam search: the `beam_size` best ways to go on, for each source.

    Args:
        pre_ids, pre_scores: the last word and the score of each beam so far, ``[rows, 1]``.
        ids: candidates of each beam, int64 ``[rows, candidates]``; 0, 1, ... by default.
        scores: of the candidates. The rows of a source are a sequence of its `level`.
        end_id: a beam with this last word has ended, and goes on as it is.
        is_accumulated: the scores count those of the beams; else they are probabilities, whose logs are added to `pre_scores`.

    Returns:
        The words selected and their scores, ``[selected, 1]``, with two levels of sequences, the beams of each source and what
        was selected for each; with `return_parent_idx`, the row of the beam of each too, int32 ``[selected]``.

    >>> ids, scores = fluid.data("ids", [None, 1], "int64", lod_level=2), fluid.data("scores", [None, 1], lod_level=2)
    >>> candidate_scores = fluid.data("candidate_scores", [None, 50], lod_level=2)
    >>> words, word_scores = layers.beam_search(ids, scores, None, candidate_scores, beam_size=4, end_id=1)
    >>> words.lod_level
    2
    """
    helper = LayerHelper("beam_search", name=name)
    inputs = {"pre_ids": pre_ids, "pre_scores": pre_scores, "ids": ids, "scores": scores}
    attrs = {"level": level, "beam_size": beam_size, "end_id": end_id, "is_accumulated": is_accumulated}
    outputs = {"parent_idx": helper.create_variable_for_type_inference()}
    found = helper.apply("beam_search", inputs, attrs, outputs)
    selected = _constants(*(found[slot] for slot in ("selected_ids", "selected_scores", "parent_idx")))
    return selected if return_parent_idx else selected[:2]


def beam_search_decode(
    ids: Variable, scores: Variable, beam_size: int, end_id: int, name: str | None = None
) -> tuple[Variable, Variable]:
    """The sentences that a beam search found, and the scores of their words, ``[words]``, with two levels of sequences: the
    sentences of each source, the best first, and the words of each.

    `ids` and `scores` are arrays of what `beam_search` selected at each step.
    """
    attrs = {"beam_size": beam_size, "end_id": end_id}
    words, totals = _constants(*apply_many("beam_search_decode", {"Ids": ids, "Scores": scores}, attrs, name=name))
    return words, totals

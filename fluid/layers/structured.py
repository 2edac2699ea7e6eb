"""Structured prediction: conditional random fields, CTC, losses over many classes, and beam search."""

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
from .tensor import argmax, cast, constant, constants_of

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
    return tuple(map(constant, variables))


# ------------------------------------------------------------------------------------------- conditional random fields
def _transition(helper: LayerHelper, input: Variable) -> Variable:
    """The parameter ``[tags + 2, tags]`` of `linear_chain_crf`; an existing one of the same name is used again."""
    transition: Any = helper.main_program.global_block().vars.get(getattr(helper.param_attr, "name", None) or "")
    if transition is None:
        tags = extent(input, -1, "input")
        transition = helper.create_parameter(helper.param_attr, [tags + 2 if tags > 0 else -1, tags], input.dtype)
    return transition  # type: ignore[no-any-return]


def linear_chain_crf(input: Variable, label: Variable, param_attr: AttrLike = None, length: Variable | None = None) -> Variable:
    """The negative log-likelihood of each sequence of labels, ``[sequences, 1]``: a cost to minimize.

    Formula: Lafferty, McCallum and Pereira, Conditional Random Fields, 2001.

    Args:
        input: emissions, a score for each row and tag: ``[rows, tags]`` in sequences; with `length`, ``[batch, steps, tags]``.
        label: int64 ``[rows, 1]``; with `length`, ``[batch, steps]``.
        param_attr: attributes of the transitions, ``[tags + 2, tags]``: row 0 has scores of the first tag, row 1 of the last, row
            ``2 + i`` of the tag after tag i. `crf_decoding` finds them by name.
        length: int64 ``[batch]`` or ``[batch, 1]``, the number of steps of each sequence.

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
    cost: Variable = helper.apply("linear_chain_crf", inputs)["LogLikelihood"]
    return cost


def crf_decoding(
    input: Variable, param_attr: AttrLike, label: Variable | None = None, length: Variable | None = None
) -> Variable:
    """The most probable tags of each sequence, int64 ``[rows, 1]``; with `length`, ``[batch, steps]``, padded with 0.

    Args:
        input, param_attr, length: as in `linear_chain_crf`, whose transitions are found by the name in `param_attr`.
        label: as in `linear_chain_crf`; with it, the result is 1 where the tag equals the label, and 0 elsewhere.

    Raises:
        ProgramError: on tensors, if `param_attr` is not the parameter of a `linear_chain_crf`.

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
    return constant(helper.apply("crf_decoding", inputs)["ViterbiPath"])


def chunk_eval(
    input: Variable,
    label: Variable,
    chunk_scheme: str,
    num_chunk_types: int,
    excluded_chunk_types: Sequence[int] | None = None,
    seq_length: Variable | None = None,
) -> tuple[Variable, ...]:
    """Precision, recall and F1 of chunks (float32), and the numbers of predicted, labelled and correct ones (int64), all ``[1]``.

    Args:
        input, label: tags, int64 ``[rows, 1]`` in sequences; with `seq_length`, ``[batch, steps]``. A tag is ``chunk type * tag
            types + tag type``, or ``num_chunk_types * tag types`` outside of chunks.
        chunk_scheme: ``"IOB"`` has the tag types begin, inside; ``"IOE"`` inside, end; ``"IOBES"`` begin, inside, end, single;
            ``"plain"`` one.
        num_chunk_types: number of chunk types.
        excluded_chunk_types: chunk types that are not counted.
        seq_length: int64 ``[batch]``, the number of steps of each sequence.

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
    return constants_of("chunk_eval", {"Inference": input, "Label": label, "SeqLength": seq_length}, attrs)  # type: ignore[no-any-return]


# --------------------------------------------------------------------------------------------------- unaligned labels
def warpctc(
    input: Variable,
    label: Variable,
    blank: int = 0,
    norm_by_times: bool = False,
    input_length: Variable | None = None,
    label_length: Variable | None = None,
) -> Variable:
    """The CTC loss, ``[sequences, 1]``: the negative log-likelihood of the labels, summed over all alignments.

    Formula: Graves et al., Connectionist Temporal Classification, 2006.

    Args:
        input: logits, before the softmax: ``[rows, classes]`` in sequences; with `input_length`, ``[steps, batch, classes]``.
        label: int32, ``[rows, 1]`` in sequences; with `label_length`, ``[batch, labels]``.
        blank: the class of the blank between labels.
        norm_by_times: divide gradients by the number of steps.
        input_length: lengths of the sequences of `input`, int64 ``[batch]``.
        label_length: lengths of the sequences of `label`, int64 ``[batch]``.

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
    """The most probable class of each step, with equal neighbours merged and `blank` removed.

    Args:
        input: scores, ``[rows, classes]`` in sequences; with `input_length`, ``[batch, steps, classes]``.
        blank: the class of the blank between labels.
        input_length: int64 ``[batch, 1]``.
        padding_value: stands after the words, with `input_length`.

    Returns:
        Int64 words ``[words, 1]`` in sequences; with `input_length`, words ``[batch, steps]`` and their numbers, ``[batch, 1]``.

    Raises:
        ProgramError: if `blank` is not a class.

    >>> x = fluid.dygraph.to_variable([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.6, 0.4]]).with_lod([[0, 4]])
    >>> layers.ctc_greedy_decoder(x, blank=0)
    Tensor([[1]], shape=[1, 1], dtype=int64)
    """
    check_variable(input, "ctc_greedy_decoder: input")
    if blank < 0 or (input.ndim and 0 <= input.shape[-1] <= blank):
        raise ProgramError(f"ctc_greedy_decoder: blank is {blank}; it should be a class of input, {input.describe()}")
    attrs = {"blank": blank, "merge_repeated": True, "padding_value": padding_value}
    if input_length is None:
        return constant(apply("ctc_align", {"Input": topk(input, 1)[1]}, attrs, layer="ctc_greedy_decoder", name=name))
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
    """The edit distances between sequences, float32 ``[sequences, 1]``, and the number of sequences, int64 ``[1]``.

    The distance is the smallest number of insertions, deletions and replacements that turn one sequence into the other.

    Formula: Levenshtein, Binary codes capable of correcting deletions, insertions, and reversals, 1966.

    Args:
        input, label: int64 ``[rows, 1]`` in sequences; with lengths, ``[batch, steps]``.
        normalized: divide by the length of the label.
        ignored_tokens: tokens to remove from both first; not supported with lengths.
        input_length: lengths of the sequences of `input`, int64 ``[batch]``.
        label_length: lengths of the sequences of `label`, int64 ``[batch]``.

    Raises:
        ProgramError: for `ignored_tokens` with lengths.

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
    count, distance = constants_of("edit_distance", inputs, {"normalized": normalized})
    return distance, count


# -------------------------------------------------------------------------------------------------------- many classes
_SAMPLERS = ("uniform", "log_uniform", "custom_dist")


def _alias_table(probabilities: Sequence[float], count: int) -> tuple[Any, Any, Any]:
    """Tables for Walker's alias method: the probabilities, the alias of each class, and the probability not to take it."""
    weights = np.asarray(probabilities, np.float64)
    if weights.shape != (count,) or not np.all(weights >= 0) or not np.isclose(weights.sum(), 1.0, atol=1e-3):
        raise ProgramError(f"nce: custom_dist should have a probability for each of {count} classes, 1 in all")
    aliases, stays = np.arange(count, dtype=np.int32), weights * count
    small, large = list(np.flatnonzero(stays < 1)), list(np.flatnonzero(stays >= 1))
    while small and large:
        low, high = small.pop(), large.pop()
        aliases[low] = high
        stays[high] -= 1 - stays[low]
        (small if stays[high] < 1 else large).append(high)
    stays[[*small, *large]] = 1  # apart from rounding they are
    return weights.astype(np.float32), aliases, stays.astype(np.float32)


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
    """Noise-contrastive estimation, ``[batch, 1]``: the cost of telling labels from randomly drawn classes.

    Formula: Gutmann and Hyvarinen, Noise-contrastive estimation, 2010.

    Args:
        input: ``[batch, width]``.
        label: int64 ``[batch, labels]``.
        num_total_classes: number of classes.
        sample_weight: weight of each row, ``[batch, 1]``.
        param_attr: attributes of the weights, ``[num_total_classes, width]``.
        bias_attr: attributes of the bias, ``[num_total_classes, 1]``; False for none.
        num_neg_samples: number of classes drawn for each row, by default 10; the cost is divided by this number plus 1.
        sampler: ``"uniform"``, ``"log_uniform"`` (probability of class k: ``log((k + 2) / (k + 1)) / log(num_total_classes)``),
            or ``"custom_dist"`` with the probabilities `custom_dist`.
        custom_dist: for each class its probability; they add up to 1.
        seed: seed of the draws; 0 for the program's seed.
        is_sparse: the gradient of the weights is a `SelectedRows` of only the classes used; optimizers update only these rows.

    Raises:
        ProgramError: for another `sampler`, or if `custom_dist` is no distribution over the classes.

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
    """Hierarchical sigmoid, ``[batch, 1]``: the negative log-probability of the path to the label's leaf in a tree of classes.

    Formula: Morin and Bengio, Hierarchical Probabilistic Neural Network Language Model, 2005.

    Args:
        input: ``[batch, width]``.
        label: int64 ``[batch, 1]``.
        num_classes: leaves of the default tree, a heap; with `is_custom`, the number of inner nodes.
        param_attr: attributes of the weights of inner nodes, ``[nodes, width]``.
        bias_attr: attributes of the bias, ``[nodes, 1]``; False for none.
        path_table: with `is_custom`, the inner nodes from the root to each label, int64 ``[batch, depth]``, padded with -1.
        path_code: with `is_custom`, the branch taken at each of them, 0 or 1, int64 ``[batch, depth]``.
        is_custom: whether `path_table` and `path_code` say what the tree is.
        is_sparse: the gradient of the weights is a `SelectedRows` of only the nodes on the paths; optimizers update only these.

    Raises:
        ProgramError: if there are less than two classes, or a part of a custom tree is missing.

    >>> hidden, words = fluid.data("hidden", [None, 64]), fluid.data("words", [None, 1], "int64")
    >>> layers.hsigmoid(hidden, words, num_classes=10000).shape
    (-1, 1)
    """
    check_variable(input, "hsigmoid: input")
    if is_custom != (path_table is not None) or is_custom != (path_code is not None):
        raise ProgramError("hsigmoid: a custom tree needs is_custom=True, path_table and path_code; the default tree has none")
    if num_classes < 2:
        raise ProgramError(f"hsigmoid: num_classes is {num_classes}; there should be at least two")
    helper = LayerHelper("hierarchical_sigmoid", name=name, param_attr=param_attr, bias_attr=bias_attr)
    nodes = num_classes if is_custom else num_classes - 1
    inputs = {"X": input, "Label": label, "PathTable": path_table, "PathCode": path_code}
    inputs["W"] = helper.create_parameter(helper.param_attr, [nodes, extent(input, 1, "input")], input.dtype)
    if helper.bias_attr:
        inputs["Bias"] = helper.create_parameter(helper.bias_attr, [nodes, 1], input.dtype, is_bias=True)
    cost: Variable = helper.apply("hierarchical_sigmoid", inputs, {"num_classes": num_classes, "is_sparse": is_sparse})["Out"]
    return cost


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
    """Softmax with cross entropy over the labels and `num_samples` drawn classes instead of all classes: ``[batch, 1]``.

    Formula: Jean et al., On Using Very Large Target Vocabulary for Neural Machine Translation, 2015.

    Args:
        logits: ``[batch, classes]``.
        label: int64 ``[batch, num_true]``.
        num_samples: number of classes drawn, the same for all rows.
        num_true: number of labels of a row; the loss is divided by it.
        remove_accidental_hits: do not count drawn classes that are labels.
        use_customized_samples: whether classes come from `customized_samples` instead of being drawn.
        customized_samples: int64 ``[batch, num_true + num_samples]``, labels first.
        customized_probabilities: the probability of drawing each of them, in the same shape.
        seed: seed of the draws; 0 for the program's seed.

    Raises:
        ProgramError: with `use_customized_samples`, without the samples or their probabilities.

    >>> logits, words = fluid.data("logits", [None, 10000]), fluid.data("words", [None, 1], "int64")
    >>> layers.sampled_softmax_with_cross_entropy(logits, words, num_samples=100).shape
    (-1, 1)
    """
    inputs = {"Logits": logits, "Labels": label}
    if use_customized_samples:
        if customized_samples is None or customized_probabilities is None:
            raise ProgramError("sampled_softmax_with_cross_entropy: give customized_samples and customized_probabilities too")
        inputs |= {"CustomizedSamples": customized_samples, "CustomizedProbabilities": customized_probabilities}
    attrs: dict[str, Any] = {"use_customized_samples": use_customized_samples, "uniq": True, "num_samples": num_samples}
    attrs |= {"remove_accidental_hits": remove_accidental_hits, "seed": seed}
    sampled, columns = apply_many("sample_logits", inputs, attrs, layer="sampled_softmax_with_cross_entropy")
    labels = reduce_sum(one_hot_of("one_hot_v2", constant(columns), num_samples + num_true, False), 1)
    target = constant(cast(labels, logits.dtype))
    loss: Any = softmax_with_cross_entropy(sampled, target, soft_label=True, numeric_stable_mode=False)
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
    """One step of a beam search: the `beam_size` best continuations for each source.

    Args:
        pre_ids: the last word of each beam so far, int64 ``[rows, 1]``.
        pre_scores: the score of each beam so far, ``[rows, 1]``.
        ids: candidates of each beam, int64 ``[rows, candidates]``; 0, 1, ... by default.
        scores: scores of the candidates. The rows of a source are a sequence of its `level`.
        beam_size: how many beams of a source are kept.
        end_id: a beam whose last word this is has ended, and is kept unchanged.
        level: the level of sequences that are sources.
        is_accumulated: scores include `pre_scores`; if False they are probabilities, whose logs are added to `pre_scores`.
        return_parent_idx: whether to return the row of each word's beam.

    Returns:
        The selected words and their scores, ``[selected, 1]``, with two levels of sequences: the beams of each source, and the
        words selected for each beam; with `return_parent_idx`, also the row of each word's beam, int32 ``[selected]``.

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
    results = helper.apply("beam_search", inputs, attrs, outputs)
    selected = _constants(*(results[slot] for slot in ("selected_ids", "selected_scores", "parent_idx")))
    return selected if return_parent_idx else selected[:2]


def beam_search_decode(
    ids: Variable, scores: Variable, beam_size: int, end_id: int, name: str | None = None
) -> tuple[Variable, Variable]:
    """The sentences found by a beam search, and the scores of their words, both ``[words]`` with two levels of sequences.

    The levels are the sentences of each source, best first, and the words of each, up to the first `end_id`.

    Args:
        ids: an array of the words that `beam_search` selected in each step.
        scores: an array of their scores.
        beam_size: the beam size of the search.
        end_id: the word that ends a sentence.

    >>> step = layers.zeros([1], "int64")
    >>> ids, scores = fluid.data("ids", [None, 1], "int64", lod_level=2), fluid.data("scores", [None, 1], lod_level=2)
    >>> words, totals = layers.beam_search_decode(
    ...     layers.array_write(ids, step), layers.array_write(scores, step), beam_size=2, end_id=1
    ... )
    >>> words.lod_level, totals.lod_level
    (2, 2)
    """
    attrs = {"beam_size": beam_size, "end_id": end_id}
    words, totals = constants_of("beam_search_decode", {"Ids": ids, "Scores": scores}, attrs, name)
    return words, totals

"""Ensembles of decision trees (ai.onnx.ml), as the op ``tree_leaves``.

The nodes of all trees become rows of tables. A node asks whether a feature, or its negative, is greater than a number. No goes to
its first child, yes to its second, which is the next row. NaN is greater than nothing, so the first child is where NaN goes. A
leaf asks for more than infinity and is its own child, so trees of other depths wait there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any, NamedTuple

import numpy as np

from ...errors import FormatError
from ...values.types import VarType
from ..builder import Builder
from ..node import OnnxNode
from .classical import as_floats, classical, post_transformed, whole_labels
from .elementwise import choose

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
Weights = list[tuple[int, float]]
"""Output and weight, for each weight of a leaf."""


class _Test(NamedTuple):
    """A node that tests a feature; `when_true` and `when_false` are keys of nodes."""

    mode: str
    feature: int
    threshold: float
    when_true: Hashable
    when_false: Hashable
    nan_is_true: bool


class _Question(NamedTuple):
    """Whether ``sign * feature > least``, or >= if `closed`.

    Attributes:
        no, yes: where this answer leads: the key of a node, another question, or a row that exists.
    """

    sign: int
    feature: int
    least: float
    closed: bool
    no: Any
    yes: Any


class _TableRow(NamedTuple):
    """A row of the tables that exists."""

    number: int


@dataclass
class _Tables:
    """The nodes of all trees; the roots come first.

    Attributes:
        signs: 1 or -1, and 0 for leaves.
        closed: whether features may equal `least`.
        depth: the most questions on a way from a root to a leaf.
        reached: the keys of all nodes.
    """

    trees: int
    features: list[int] = field(default_factory=list)
    signs: list[int] = field(default_factory=list)
    least: list[float] = field(default_factory=list)
    closed: list[bool] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    leaves: list[tuple[int, Weights]] = field(default_factory=list)
    depth: int = 0
    reached: set[Hashable] = field(default_factory=set)

    def add_leaves(self, count: int) -> int:
        """Add leaves without weights; returns the row of the first."""
        first = len(self.features)
        self.features += [0] * count
        self.signs += [0] * count
        self.least += [np.inf] * count
        self.closed += [False] * count
        self.children += range(first, first + count)
        return first


def _tables(roots: Sequence[Hashable], look: Callable[[Hashable], _Test | Weights]) -> _Tables:
    """Lay trees out as tables, level by level; `look` returns the node with a key."""
    tables = _Tables(len(roots))
    tables.add_leaves(len(roots))
    pending = [(number, root, 0) for number, root in enumerate(roots)]
    for row, entry, depth in pending:  # children are added to `pending` below
        tables.depth = max(tables.depth, depth)
        if isinstance(entry, _TableRow):
            tables.children[row] = entry.number
            continue
        node = entry if isinstance(entry, _Question) else look(entry)
        if isinstance(node, _Test) and entry in tables.reached:
            raise FormatError(f"its node {entry} is the child of two nodes, or of itself")
        tables.reached.add(entry)
        if isinstance(node, list):
            tables.leaves.append((row, node))
            continue
        first = tables.add_leaves(2)
        question = node if isinstance(node, _Question) else _question(node, first)
        tables.features[row], tables.signs[row] = question.feature, question.sign
        tables.least[row], tables.closed[row] = question.least, question.closed
        tables.children[row] = first
        below = depth + (3 if isinstance(node, _Test) and node.mode in ("BRANCH_EQ", "BRANCH_NEQ") else 1)
        pending += [(first, question.no, below), (first + 1, question.yes, below)]
    return tables


def _question(test: _Test, first: int) -> _Question:
    """The question of a test whose children are the rows `first` and the next; equality asks two."""
    mode, feature, bound, when_true, when_false, nan_is_true = test
    at_least, at_most, above, below = (
        (sign, feature, sign * bound, closed) for sign, closed in ((1, True), (-1, True), (1, False), (-1, False))
    )
    if mode == "BRANCH_EQ" and nan_is_true:
        return _Question(*below, _Question(*above, when_true, _TableRow(first + 1)), when_false)
    if mode in ("BRANCH_EQ", "BRANCH_NEQ"):
        equal, unequal = (when_true, when_false) if mode == "BRANCH_EQ" else (when_false, when_true)
        return _Question(*at_least, unequal, _Question(*at_most, _TableRow(first), equal))
    holds, fails = {
        "BRANCH_LEQ": (at_most, above),
        "BRANCH_LT": (below, at_least),
        "BRANCH_GTE": (at_least, below),
        "BRANCH_GT": (above, at_most),
    }[mode]
    return _Question(*fails, when_true, when_false) if nan_is_true else _Question(*holds, when_false, when_true)


def _leaf_weights(b: Builder, tables: _Tables, count: int, x: Any, aggregate: str) -> Any:
    """The weights of all rows for all outputs; the neutral number of the aggregate where a leaf has none."""
    b.reserve(len(tables.features), count, itemsize=16)
    combine, initial = {"MIN": (min, np.inf), "MAX": (max, -np.inf)}.get(aggregate, (add, 0.0))
    weights = np.full((len(tables.features), count), initial, np.float64)
    for row, of_leaf in tables.leaves:
        for output, weight in of_leaf:
            if not 0 <= output < count:
                raise FormatError(f"a leaf has a weight for output {output}, and there are {count}")
            weights[row, output] = combine(weights[row, output], weight)
    return b.constant(weights.astype(x.dtype.array_dtype))


def _leaves_of(b: Builder, tables: _Tables, x: Any) -> Any:
    """The leaves that the rows of `x` reach, as rows of the tables: [rows * trees]."""
    x, features = _signed_features(b, tables, x)
    dtype = x.dtype.array_dtype
    least = np.array(tables.least, np.float64).astype(dtype)
    least = np.where(tables.closed, np.nextafter(least, dtype.type(-np.inf)), least)
    nodes = (b.constant(array) for array in (least, features.astype(np.int32), np.array(tables.children, np.int32)))
    leaves = b.f.tree_leaves(x, *nodes, trees=tables.trees, depth=max(tables.depth, 1))
    return b.f.reshape2(leaves, shape=[-1])


def _signed_features(b: Builder, tables: _Tables, x: Any) -> tuple[Any, Any]:
    """The features and negatives of features that nodes test: [rows, columns]; and the column of each node."""
    used = max(tables.features, default=0) + 1
    if min(tables.features, default=0) < 0 or 0 <= x.shape[1] < used:
        raise FormatError(f"it tests feature {max(used - 1, 0)} of {x.shape[1]}")
    x = b.slice(x, 1, 0, used)
    signs, features = np.array(tables.signs), np.array(tables.features)
    if not (signs > 0).any():
        x = b.f.scale(x, scale=-1.0)
    elif (signs < 0).any():
        x = b.f.concat([x, b.f.scale(x, scale=-1.0)], axis=1)
        features[signs < 0] += used
    return x, features


def _scores(b: Builder, x: Any, tables: _Tables, count: int, aggregate: str) -> Any:
    """The scores that all trees give together: [rows, outputs]."""
    if aggregate not in _AGGREGATES:
        raise FormatError(f"its aggregate_function {aggregate!r} should be one of {', '.join(_AGGREGATES)}")
    is_extreme = aggregate in ("MIN", "MAX")
    weights = b.f.gather(_leaf_weights(b, tables, count, x, aggregate), _leaves_of(b, tables, x))
    of_trees = b.f.reshape2(weights, shape=[-1, tables.trees, count])
    scores = b.reduce(f"reduce_{aggregate.lower() if is_extreme else 'sum'}", of_trees, [1], False)
    if aggregate == "AVERAGE":
        return b.f.scale(scores, scale=1.0 / tables.trees)
    if is_extreme:  # outputs for which no leaf has a weight
        return choose(b, b.f.isinf_v2(scores), b.f.fill_zeros_like(scores), scores)
    return scores


def _with_base(b: Builder, scores: Any, base: Any) -> Any:
    """Scores plus the base values, if there are any."""
    return scores + b.variables(b.constant(base.astype(scores.dtype.array_dtype))) if base.size else scores


def _input(b: Builder, node: OnnxNode) -> Any:
    x = as_floats(b, node[0])
    if x.ndim not in (1, 2):
        raise FormatError(f"its input has {x.ndim} dimensions; it should have two, rows and features")
    return x if x.ndim == 2 else b.unsqueeze(x, [0])


def _numbers(node: OnnxNode, name: str) -> Any:
    """An attribute of floats, or of a tensor under its other name."""
    tensor = node.proto_of(f"{name}_as_tensor")
    return np.array(node.floats(name, []), np.float32) if tensor is None else node.reader.array_of(tensor, name).reshape(-1)


def _tensor(node: OnnxNode, name: str) -> list[Any]:
    """The elements of an attribute that is a tensor; none if it is absent."""
    tensor = node.proto_of(name)
    return [] if tensor is None else node.reader.array_of(tensor, name).reshape(-1).tolist()


def _equal_lengths(lists: Iterable[Sequence[Any]], label: str) -> None:
    lengths = {len(values) for values in lists}
    if len(lengths) != 1 or lengths == {0}:
        raise FormatError(
            f"the lists of its {label} have {', '.join(map(str, sorted(lengths)))} elements; they should have equally many"
        )


def _nan_flags(node: OnnxNode, count: int) -> list[bool]:
    flags = [bool(flag) for flag in node.ints("nodes_missing_value_tracks_true", [])] or [False] * count
    if len(flags) != count:
        raise FormatError(f"nodes_missing_value_tracks_true has {len(flags)} elements for {count} nodes")
    return flags


def _named_tables(node: OnnxNode, outputs: str) -> _Tables:
    """The tables of an op whose nodes are named by tree and number; `outputs` begins the names of the leaves' attributes."""
    names = ("treeids", "nodeids", "featureids", "truenodeids", "falsenodeids")
    trees, numbers, features, trues, falses = (node.ints(f"nodes_{name}", []) for name in names)
    modes, bounds = node.strings("nodes_modes", []), _numbers(node, "nodes_values")
    _equal_lengths((trees, numbers, features, trues, falses, modes, bounds), "nodes")
    flags = _nan_flags(node, len(trees))
    weights: dict[Hashable, Weights] = {}
    of_leaves = [node.ints(f"{outputs}_{name}", []) for name in ("treeids", "nodeids", "ids")]
    values = _numbers(node, f"{outputs}_weights")
    _equal_lengths((*of_leaves, values), "weights")
    for tree, number, output, weight in zip(*of_leaves, values.tolist(), strict=True):
        weights.setdefault((tree, number), []).append((output, weight))
    nodes: dict[Hashable, _Test | Weights] = {}
    children = set[Hashable]()
    for place, key in enumerate(zip(trees, numbers, strict=True)):
        if modes[place] == "LEAF":
            nodes[key] = weights.get(key, [])
            continue
        if modes[place] not in _MODES:
            raise FormatError(f"the mode {modes[place]!r} of a node should be LEAF or one of {', '.join(_MODES)}")
        when_true, when_false = (key[0], trues[place]), (key[0], falses[place])
        children |= {when_true, when_false}
        nodes[key] = _Test(modes[place], features[place], float(bounds[place]), when_true, when_false, flags[place])
    roots = [key for key in nodes if key not in children]
    if len(roots) != len(set(trees)):
        raise FormatError(f"it has {len(set(trees))} trees, and {len(roots)} nodes that are no child of others")

    def look(key: Hashable) -> _Test | Weights:
        if key not in nodes:
            raise FormatError(f"it has no node {key}, which is the child of another")
        return nodes[key]

    tables = _tables(roots, look)
    if missing := [key for key in nodes if key not in tables.reached]:
        raise FormatError(f"its node {missing[0]} is not reached from the root of a tree")
    return tables


@classical("TreeEnsembleRegressor", trains=False)
def tree_ensemble_regressor(b: Builder, node: OnnxNode) -> Any:
    x, count = _input(b, node), node.int("n_targets", 1)
    tables = _named_tables(node, "target")
    scores = _scores(b, x, tables, count, node.string("aggregate_function", "SUM"))
    scores = _with_base(b, scores, _numbers(node, "base_values"))
    return b.cast(post_transformed(b, scores, node.string("post_transform", "NONE")), VarType.FP32)


@classical("TreeEnsembleClassifier", trains=False)
def tree_ensemble_classifier(b: Builder, node: OnnxNode) -> Any:
    labels = whole_labels(node, "classlabels_int64s")
    x, classes = _input(b, node), len(labels)
    tables = _named_tables(node, "class")
    base, transform = _numbers(node, "base_values"), node.string("post_transform", "NONE")
    used = {output for _, weights in tables.leaves for output, _ in weights}
    if classes == 2 and used == {0}:
        return _of_two_classes(b, node, x, tables, labels, base, transform)
    scores = _with_base(b, _scores(b, x, tables, classes, "SUM"), base)
    if classes == 2 and used == {1}:
        label = _label_of_two(b, b.slice(scores, 1, 1, 2), labels, _are_probabilities(tables))
    else:
        best = b.f.arg_max(scores, axis=-1, keepdims=False, dtype=int(VarType.INT64))
        label = b.f.gather(b.variables(b.constant(labels)), best)
    return label, b.cast(post_transformed(b, scores, transform), VarType.FP32)


def _are_probabilities(tables: _Tables) -> bool:
    """Whether leaves hold probabilities of one class: no weight is negative. Else they hold margins."""
    return min((weight for _, weights in tables.leaves for _, weight in weights), default=0.0) >= 0


def _label_of_two(b: Builder, score: Any, labels: Any, is_probability: bool) -> Any:
    """The second label where the score of its class, [rows, 1], is large, as onnxruntime decides it; else the first."""
    is_second = b.f.greater_than(score, b.number(0.5 if is_probability else 0.0, score.dtype))
    return b.f.gather(b.variables(b.constant(labels)), b.f.reshape2(b.cast(is_second, VarType.INT64), shape=[-1]))


def _of_two_classes(b: Builder, node: OnnxNode, x: Any, tables: _Tables, labels: Any, base: Any, transform: str) -> Any:
    """Label and scores if only class 0 has weights, which score the second class. LOGISTIC alone changes these scores."""
    score = _with_base(b, _scores(b, x, tables, 1, "SUM"), base[:1])
    if base.size > 1:
        raise FormatError(f"it has {base.size} base values, and weights for one of two classes")
    if transform == "PROBIT":
        raise FormatError("its post_transform is PROBIT, and it has weights for one of two classes")
    is_probability = _are_probabilities(tables)
    label = _label_of_two(b, score, labels, is_probability)
    if transform == "LOGISTIC":
        both = b.f.sigmoid(b.f.concat([b.f.scale(score, scale=-1.0), score], axis=1))
    else:
        both = b.f.concat([1.0 - score if is_probability else b.f.scale(score, scale=-1.0), score], axis=1)
    return label, b.cast(both, VarType.FP32)


@classical("TreeEnsemble", trains=False)
def tree_ensemble(b: Builder, node: OnnxNode) -> Any:
    x = _input(b, node)
    modes, splits = _tensor(node, "nodes_modes"), _tensor(node, "nodes_splits")
    names = ("featureids", "truenodeids", "trueleafs", "falsenodeids", "falseleafs")
    features, trues, true_leaves, falses, false_leaves = (node.ints(f"nodes_{name}", []) for name in names)
    _equal_lengths((modes, splits, features, trues, true_leaves, falses, false_leaves), "nodes")
    targets, weights = node.ints("leaf_targetids", []), _tensor(node, "leaf_weights")
    _equal_lengths((targets, weights), "leaves")
    flags = _nan_flags(node, len(modes))

    def look(key: Hashable) -> _Test | Weights:
        assert isinstance(key, tuple)
        number, is_leaf = key
        if not 0 <= number < len(targets if is_leaf else modes):
            raise FormatError(f"it has no {'leaf' if is_leaf else 'node'} {number}, which is the child of another")
        if is_leaf:
            return [(targets[number], weights[number])]
        if not 0 <= modes[number] < len(_MODES):
            raise FormatError(f"the mode {modes[number]} of node {number} is not read here: {', '.join(_MODES)} are")
        when_true, when_false = (trues[number], bool(true_leaves[number])), (falses[number], bool(false_leaves[number]))
        return _Test(_MODES[modes[number]], features[number], splits[number], when_true, when_false, flags[number])

    tables = _tables([(root, False) for root in node.ints("tree_roots", [])], look)
    aggregate, transform = node.int("aggregate_function", 1), node.int("post_transform", 0)
    if not tables.trees or not 0 <= aggregate < len(_AGGREGATES) or not 0 <= transform < len(_TRANSFORMS):
        raise FormatError("it has no tree, or no such aggregate_function or post_transform")
    return post_transformed(b, _scores(b, x, tables, node.int("n_targets", 1), _AGGREGATES[aggregate]), _TRANSFORMS[transform])

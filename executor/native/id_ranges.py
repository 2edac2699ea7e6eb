"""Ranges of labels, ids and probabilities, which native code checks before it uses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fluid.ir.versions import Value
from fluid.values.spec import Spec

from .instructions import Check


@dataclass(frozen=True)
class IdRange:
    """A bound on elements of a tensor: integers are in ``0 <= id < extent``, floats in ``0 <= x <= extent``.

    Attributes:
        value: the tensor.
        extent: the number of rows or classes that integers choose from, or the greatest float.
        ignored: an integer that is allowed, too; None if there is none.
        takes_negatives: whether all negative integers are allowed, too.
        first, step: the bound holds for the elements ``first::step`` of the flat tensor.
    """

    value: Value
    extent: int
    ignored: int | None = None
    first: int = 0
    step: int = 1
    takes_negatives: bool = False


@dataclass(frozen=True)
class MatrixTest:
    """A test of small matrices.

    Attributes:
        value: the tensor.
        kind: "invertible", if elimination should meet no pivot of 0; "positive", if Cholesky's decomposition should meet positive
            pivots alone; or "nonzero diagonal".
        is_upper: whether Cholesky's decomposition reads the upper triangle.
    """

    value: Value
    kind: str
    is_upper: bool = True


@dataclass(frozen=True)
class LabelTest:
    """A test of padded labels, [batch, labels]. Those within the lengths are in ``0 <= label < classes``, and not the blank.

    Attributes:
        value: the labels.
        lengths: the number of labels in each row. Another test bounds them.
        classes: the number of classes.
        blank: the class that is no label.
    """

    value: Value
    lengths: Value
    classes: int
    blank: int


Test = IdRange | MatrixTest | LabelTest


def values_of(test: Test) -> tuple[Value, ...]:
    """The tensors that a test reads."""
    return (test.value, test.lengths) if isinstance(test, LabelTest) else (test.value,)


class ValueTest(NamedTuple):
    """A test of some values.

    Attributes:
        check: the number of the check that it belongs to.
        operands: the numbers of the operands that hold the values.
        specs: the specs of these operands.
        test: the test that the values should pass.
    """

    check: int
    operands: Sequence[int]
    specs: Sequence[Spec]
    test: Test


def tests_of(check: Check) -> Sequence[Test] | None:
    """The native tests that stand for a check; None if there are none."""
    rule = _TEST_RULES.get(check.op.type)
    return ranges_of(check) if rule is None else rule(check)


def ranges_of(check: Check) -> list[IdRange] | None:
    """The ranges that the numpy kernel of a check tests; None if it tests anything else."""
    instruction = check.instruction
    attrs = instruction.definition.defaults(check.op.attrs)
    slots = (instruction.reads | instruction.writes).items()
    values = {slot: listed[0] for slot, listed in slots if listed and listed[0]}
    definition = instruction.definition
    rule = _RULES.get(definition.type)
    if rule is None and definition.forward is not None:
        rule = _RULES.get(definition.forward.type)
    return rule(attrs, values, check.specs) if rule is not None else None


_Rule = Callable[[Mapping[str, Any], Mapping[str, Value], Mapping[Value, Any]], "list[IdRange] | None"]


def _along(ids: str, table: str, axis: str | int, ignored: str = "", none: int | None = None) -> _Rule:
    """A rule for ids that choose along an axis of a table.

    Args:
        ids, table: slots.
        axis: the axis, or an attribute that holds it.
        ignored: an attribute that holds the ignored id.
        none: the value of this attribute if no id is ignored.
    """

    def rule(attrs: Mapping[str, Any], values: Mapping[str, Value], specs: Mapping[Value, Any]) -> list[IdRange] | None:
        if attrs.get("soft_label") or table not in values:
            return []
        if "Axis" in values:
            return None
        number = attrs[axis] if isinstance(axis, str) else axis
        skipped = int(attrs[ignored]) if ignored and attrs[ignored] != none else None
        return [IdRange(values[ids], specs[values[table]].shape[number], skipped)]

    return rule


def _one_hot(attrs: Mapping[str, Any], values: Mapping[str, Value], specs: Mapping[Value, Any]) -> list[IdRange] | None:
    if "depth_tensor" in values:
        return None
    return [] if attrs["allow_out_of_range"] else [IdRange(values["X"], int(attrs["depth"]))]


def _columns(attrs: Mapping[str, Any], values: Mapping[str, Value], specs: Mapping[Value, Any]) -> list[IdRange] | None:
    """Column i of the ids chooses along dimension i of the table."""
    index, shape = values["Index"], specs[values["X"]].shape
    columns = specs[index].shape[-1]
    return [IdRange(index, shape[column], None, column, columns) for column in range(columns)]


def _rows_or_none(table: str) -> _Rule:
    """A rule for numbers of rows; negative numbers stand for none."""

    def rule(attrs: Mapping[str, Any], values: Mapping[str, Value], specs: Mapping[Value, Any]) -> list[IdRange]:
        return [IdRange(values["Index"], specs[values[table]].shape[0], takes_negatives=True)]

    return rule


def _predictions(attrs: Mapping[str, Any], values: Mapping[str, Value], specs: Mapping[Value, Any]) -> list[IdRange] | None:
    """The last column of the predictions holds probabilities, from 0 to 1."""
    columns = specs[values["Predict"]].shape[1]
    return [IdRange(values["Predict"], 1, None, columns - 1, columns)]


def _nodes(attrs: Mapping[str, Any], values: Mapping[str, Value], specs: Mapping[Value, Any]) -> list[IdRange]:
    """Nodes of trees name columns, and nodes."""
    children = values["Children"]
    return [IdRange(values["Features"], specs[values["X"]].shape[1]), IdRange(children, specs[children].shape[0])]


def _ends_of_edges(attrs: Mapping[str, Any], values: Mapping[str, Value], specs: Mapping[Value, Any]) -> list[IdRange]:
    """Edges lead from rows of x to rows of y."""
    return [IdRange(values[ids], specs[values[rows]].shape[0]) for ids, rows in (("src_index", "x"), ("dst_index", "y"))]


def _messages(attrs: Mapping[str, Any], values: Mapping[str, Value], specs: Mapping[Value, Any]) -> list[IdRange] | None:
    """Rows of X are sent to rows of the result."""
    if "Out_size" in values:
        return None
    rows, sizes = specs[values["X"]].shape[0], attrs["out_size"]
    results = sizes[0] if sizes and sizes[0] > 0 else rows
    return [IdRange(values["Src_index"], rows), IdRange(values["Dst_index"], results)]


def _nodes_on_path(attrs: Mapping[str, Any], values: Mapping[str, Value], specs: Mapping[Value, Any]) -> list[IdRange] | None:
    """Labels name leaves of a tree, whose other nodes have rows of W; or PathTable names the rows, and negative numbers none."""
    rows, classes = specs[values["W"]].shape[0], int(attrs["num_classes"])
    if "PathTable" in values:
        return [IdRange(values["PathTable"], rows, takes_negatives=True)]
    return [IdRange(values["Label"], classes)] if rows >= classes - 1 else None


_RULES: dict[str, _Rule] = {
    "auc": _predictions,
    "gather": _along("Index", "X", "axis"),
    "scatter": _along("Ids", "X", 0),
    "scatter_add_like": _along("Index", "Out", "axis"),
    "gather_nd": _columns,
    "graph_send_uv": _ends_of_edges,
    "graph_send_recv": _messages,
    "scatter_nd_add": _columns,
    "cross_entropy": _along("Label", "X", -1, "ignore_index"),
    "cross_entropy2": _along("Label", "X", -1, "ignore_index"),
    "hierarchical_sigmoid": _nodes_on_path,
    "nce_grad": _along("SampleLabels", "Weight", 0),
    "lookup_table": _along("Ids", "W", 0, "padding_idx", -1),
    "lookup_table_v2": _along("Ids", "W", 0, "padding_idx", -1),
    "scatter_rows_like": _along("Ids", "Out", 0, "padding_idx", -1),
    "one_hot": _one_hot,
    "one_hot_v2": _one_hot,
    "pick": _along("Index", "X", "axis", "ignore_index"),
    "place": _along("Index", "Out", "axis", "ignore_index"),
    "softmax_with_cross_entropy": _along("Label", "Logits", "axis", "ignore_index"),
    "softmax_with_cross_entropy_grad": _along("Label", "Softmax", "axis", "ignore_index"),
    "tree_leaves": _nodes,
    "take_rows": _rows_or_none("X"),
    "add_rows": _rows_or_none("Out"),
    "max_rows": _rows_or_none("Out"),
}


def _matrix_test(slot: str, kind: str) -> Callable[[Check], Sequence[MatrixTest]]:
    """A rule for the matrices in a slot."""

    def rule(check: Check) -> Sequence[MatrixTest]:
        attrs, value = check.instruction.definition.defaults(check.op.attrs), check.instruction.reads[slot][0]
        return [] if attrs.get("unitriangular") else [MatrixTest(value, kind, attrs.get("upper", True))]

    return rule


def _ctc_labels(check: Check) -> Sequence[Test] | None:
    """Tests of the labels of CTC, and of the lengths of padded sequences; None without lengths."""
    reads, specs = check.instruction.reads, check.specs
    values = [value for slot in ("Label", "Logits", "LogitsLength", "LabelLength") for value in reads.get(slot, ()) if value]
    if len(values) < 4:
        return None
    labels, logits, steps_of, labels_of = values
    (steps, _, classes), blank = specs[logits].shape, check.instruction.definition.defaults(check.op.attrs)["blank"]
    bounds = [IdRange(steps_of, steps + 1), IdRange(labels_of, specs[labels].shape[1] + 1)]
    return [*bounds, LabelTest(labels, labels_of, classes, blank)]


_TEST_RULES: dict[str, Callable[[Check], Sequence[Test] | None]] = {
    "cholesky": _matrix_test("X", "positive"),
    "cholesky_solve": _matrix_test("Y", "nonzero diagonal"),
    "inverse": _matrix_test("Input", "invertible"),
    "solve": _matrix_test("X", "invertible"),
    "triangular_solve": _matrix_test("X", "nonzero diagonal"),
    "warpctc": _ctc_labels,
}

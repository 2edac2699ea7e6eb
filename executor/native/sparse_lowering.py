"""Lowers ops on sparse gradients: some rows of a table's gradient, with their ids.

The number of ids is fixed in a plan, so a sparse gradient is a pair of tensors. Only the ops below accept it. If another op reads
it, or it is fetched, the op that creates it stays on its numpy kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from fluid.opdef.parameters import grad_slot
from fluid.opdef.registry import OpDef, updated_input
from fluid.opdef.tables import OpTable
from fluid.values.spec import Spec

from .emitter import INT64
from .graph import Firsts, GraphNode, Merged, Places, Put, Rows, Scattered, constant, joined, mapped, plain, reshaped, sliced
from .lowering import HALVES, GraphTensor, NotLowered, differs, lower, number_like


@dataclass(frozen=True, eq=False)
class SparseTensor:
    """A tensor given by some of its rows; all absent rows are zeros. Rows with the same id are added.

    Attributes:
        shape: shape of the dense tensor, [V, width].
        rows: the rows, [R, width].
        ids: their row numbers, [R, 1]; rows with a negative id are ignored.
        table_ids: `ids` with negative ids replaced by a valid one.
        firsts: see `graph.Firsts`.
        is_merged: whether all rows except the first one of each id are zeros.
        is_stored: whether it stands for the tensor of its rows, the result of get_tensor_from_selected_rows.
    """

    shape: tuple[int, int]
    rows: GraphNode
    ids: GraphNode
    table_ids: GraphNode
    firsts: Firsts
    is_merged: bool = False
    is_stored: bool = False

    @property
    def count(self) -> int:
        return self.rows.shape[0]

    def merged(self) -> SparseTensor:
        """The same tensor with duplicates merged: the first row of each id holds their sum."""
        if self.is_merged:
            return self
        return replace(self, rows=sliced(self._merged_rows_and_zeros(), 0, 0, self.count), is_merged=True)

    def _merged_rows_and_zeros(self) -> GraphNode:
        """The merged rows, and a row of zeros for ids that do not occur."""
        return Merged((self.count + 1, self.shape[1]), self.rows.element, self.rows, self.firsts)

    def dense(self) -> GraphNode:
        """The dense tensor; each row is gathered when it is read."""
        places = Places((self.shape[0], 1), INT64, self.ids, self.firsts)
        return Rows(self.shape, self.rows.element, self._merged_rows_and_zeros(), places)

    def of_table(self, table: GraphNode) -> GraphNode:
        """The rows of a table at the same ids."""
        return Rows(self.rows.shape, table.element, table, self.table_ids)


def _sparse(shape: tuple[int, ...], rows: GraphNode, ids: GraphNode, table_ids: GraphNode) -> SparseTensor:
    if len(shape) != 2:
        raise NotLowered("a table of other than two dimensions")
    return SparseTensor((shape[0], shape[1]), rows, ids, table_ids, Firsts(ids.shape, INT64, ids))


def masked_ids(ids: GraphNode, padding_idx: int) -> tuple[GraphNode, GraphNode, GraphNode | None]:
    """Ids [R, 1] with `padding_idx` replaced by -1, and by 0; and a mask of the valid ids (None if `padding_idx` is -1)."""
    ids = reshaped(plain(ids), (ids.size, 1))
    if padding_idx == -1:
        return ids, ids, None
    is_kept = differs(ids, padding_idx)
    negative, zero = (mapped("select", is_kept, ids, constant(padding, ids.element), element=ids.element) for padding in (-1, 0))
    return negative, zero, is_kept


# ---------------------------------------------------------------------------------------------------------------- ops
_Lowering = Callable[[OpDef, Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]
_LOWERINGS: OpTable[_Lowering] = OpTable("lowering for sparse rows")
_lowers = _LOWERINGS.register
_TAKE_STORED = ("square", "reduce_sum")
"""Ops that accept an `is_stored` tensor: additional rows of zeros do not change their results."""


def makes_sparse_gradient(definition: OpDef, attrs: Mapping[str, Any]) -> bool:
    """Whether an op creates a sparse gradient and can be lowered."""
    is_sparse = definition.forward is not None and bool(definition.forward.sparse_grad) and bool(attrs.get("is_sparse"))
    return is_sparse and definition.type in _LOWERINGS


def lower_sparse(
    definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any], specs: Mapping[str, Any]
) -> dict[str, Any]:
    """Like `lower`, for ops with inputs or outputs that are `SparseTensor`s."""
    if definition.type not in _LOWERINGS:
        raise NotLowered(f"no lowering of {definition.type} with sparse rows")
    if any(isinstance(value, GraphTensor) and value.node.element in HALVES for value in inputs.values()):
        raise NotLowered("sparse rows of halves")
    for value in inputs.values():
        if isinstance(value, SparseTensor) and value.is_stored != (definition.type in _TAKE_STORED):
            raise NotLowered("rows for a tensor, or a tensor for rows")
    return _LOWERINGS[definition.type](definition, inputs, attrs, specs)


@_lowers("lookup_table_grad", "lookup_table_v2_grad")
def _lookup_table_grad(definition: OpDef, inputs: Any, attrs: Any, specs: Any) -> dict[str, Any]:
    table, gradient = inputs["W"], inputs["Out@GRAD"].node
    ids, table_ids, _ = masked_ids(inputs["Ids"].node, attrs["padding_idx"])
    rows = reshaped(plain(gradient), (ids.size, table.shape[-1]))
    return {"W@GRAD": _sparse(table.shape, rows, ids, table_ids)}


@_lowers("nce_grad", "hierarchical_sigmoid_grad")
def _table_of_classes_grad(definition: OpDef, inputs: Any, attrs: Any, specs: Any) -> dict[str, Any]:
    """Lower by the rule of the op, which adds rows to a table; keep these rows apart."""
    assert definition.forward is not None
    table = definition.forward.sparse_grad
    slot = grad_slot(table)
    results = lower(definition, inputs, attrs, {**specs, slot: Spec(inputs[table].shape, inputs[table].dtype)})
    added = results[slot].node
    valid_ids = mapped("max", added.ids, number_like(0, added.ids))
    return {**results, slot: _sparse(added.shape, added.rows, added.ids, valid_ids)}


@_lowers("sum")
def _sum(definition: OpDef, inputs: Any, attrs: Any, specs: Any) -> dict[str, Any]:
    terms = inputs["X"]
    sparse_ones = [term for term in terms if isinstance(term, SparseTensor)]
    if len({(term.ids.element, term.rows.element) for term in sparse_ones}) > 1 or None in terms:
        raise NotLowered("terms of several element types")
    if any(term.is_merged for term in sparse_ones):
        raise NotLowered("terms between whose rows are some that stand for nothing")
    if len(sparse_ones) == len(terms):
        parts = ([getattr(term, name) for term in terms] for name in ("rows", "ids", "table_ids"))
        rows, ids, table_ids = (joined(nodes, 0) if len(nodes) > 1 else nodes[0] for nodes in parts)
        return {"Out": _sparse(terms[0].shape, rows, ids, table_ids)}
    total, *addends = (term.dense() if isinstance(term, SparseTensor) else term.node for term in terms)
    for addend in addends:
        total = mapped("add", total, addend)
    return {"Out": GraphTensor(total)}


def _on_rows(definition: OpDef, X: SparseTensor, inputs: Any, attrs: Any, specs: Any) -> dict[str, Any]:
    """Apply an op that maps zero to zero to the rows."""
    if any(isinstance(value, SparseTensor) for slot, value in inputs.items() if slot != "X"):
        raise NotLowered("several sparse inputs")
    result = lower(definition, {**inputs, "X": GraphTensor(X.rows)}, attrs, specs)["Out"].node
    if result.shape != X.rows.shape or result.element != X.rows.element:
        raise NotLowered("rows of another shape")
    return {"Out": replace(X, rows=result)}


@_lowers("assign")
def _assign(definition: OpDef, inputs: Any, attrs: Any, specs: Any) -> dict[str, Any]:
    return _on_rows(definition, inputs["X"], inputs, attrs, specs)


@_lowers("elementwise_mul", "elementwise_div")
def _by_number(definition: OpDef, inputs: Any, attrs: Any, specs: Any) -> dict[str, Any]:
    factor = inputs["Y"]
    if not isinstance(factor, GraphTensor) or factor.node.size != 1:
        raise NotLowered("a factor for each row or column")
    return _on_rows(
        definition, inputs["X"], {**inputs, "Y": GraphTensor(reshaped(factor.node, (1, 1)))}, {**attrs, "axis": -1}, specs
    )


@_lowers("scale")
def _scale(definition: OpDef, inputs: Any, attrs: Any, specs: Any) -> dict[str, Any]:
    if attrs["bias"] != 0 or not isfinite(attrs["scale"]):
        raise NotLowered("what changes rows that are absent")
    return _on_rows(definition, inputs["X"], inputs, attrs, specs)


@_lowers("clip")
def _clip(definition: OpDef, inputs: Any, attrs: Any, specs: Any) -> dict[str, Any]:
    if not attrs["min"] <= 0 <= attrs["max"] or inputs.get("Min") is not None or inputs.get("Max") is not None:
        raise NotLowered("what may change rows that are absent")
    return _on_rows(definition, inputs["X"].merged(), inputs, attrs, specs)


@_lowers("merge_selected_rows")
def _merge(definition: OpDef, inputs: Any, attrs: Any, specs: Any) -> dict[str, Any]:
    return {"Out": inputs["X"].merged()}


@_lowers("get_tensor_from_selected_rows")
def _stored_rows(definition: OpDef, inputs: Any, attrs: Any, specs: Any) -> dict[str, Any]:
    if not inputs["X"].is_merged:
        raise NotLowered("rows that are not added up")
    return {"Out": replace(inputs["X"], is_stored=True)}


@_lowers("square")
def _square(definition: OpDef, inputs: Any, attrs: Any, specs: Any) -> dict[str, Any]:
    return _on_rows(definition, inputs["X"], inputs, attrs, specs)


@_lowers("reduce_sum")
def _reduce_sum(definition: OpDef, inputs: Any, attrs: Any, specs: Any) -> dict[str, Any]:
    if not attrs["reduce_all"]:
        raise NotLowered("sums of columns")
    return lower(definition, {"X": GraphTensor(inputs["X"].rows)}, attrs, specs)


# ------------------------------------------------------------------------------------------------------------- optimizers
@_lowers("sgd")
def _sgd(definition: OpDef, inputs: Any, attrs: Any, specs: Any) -> dict[str, Any]:
    """Subtract rows in order, without merging; update merged rows row by row.

    With at least one id for each row of the table, rows of one id are added up first: a single step may be too small to change
    the parameter.
    """
    grad, param, rate = inputs["Grad"], inputs["Param"].node, inputs["LearningRate"].node
    if grad.is_merged:
        return _row_by_row(definition, inputs, attrs, specs)
    if grad.count >= grad.shape[0]:
        total = Scattered(grad.shape, grad.rows.element, grad.rows, grad.ids)
        return lower(definition, {**inputs, "Grad": GraphTensor(total)}, attrs, specs)
    if inputs.get("MasterParam") is not None or not grad.rows.element == param.element == rate.element:
        raise NotLowered("parameters of another precision")
    steps = mapped("neg", mapped("mul", grad.rows, reshaped(rate, (1, 1))))
    return {"ParamOut": GraphTensor(Scattered(param.shape, param.element, steps, grad.ids, param))}


def _tables(inputs: Any) -> list[str]:
    """The input slots with the shape of the parameter, without the gradient."""
    shape = inputs["Param"].shape
    return [slot for slot, value in inputs.items() if slot != "Grad" and isinstance(value, GraphTensor) and value.shape == shape]


def _row_by_row(definition: OpDef, inputs: Any, attrs: Any, specs: Any) -> dict[str, Any]:
    """Update only the rows of the gradient."""
    grad = inputs["Grad"].merged()
    tables = {slot: inputs[slot].node for slot in _tables(inputs)}
    gathered = {slot: GraphTensor(grad.of_table(table)) for slot, table in tables.items()}
    results = lower(definition, {**inputs, **gathered, "Grad": GraphTensor(grad.rows)}, attrs, specs)
    for slot in results:
        table = tables.get(updated_input(definition, slot) or "")
        if table is not None:
            put = Put(table.shape, table.element, table, results[slot].node, grad.ids, grad.firsts)
            results[slot] = GraphTensor(put)
    return results


def _everywhere(definition: OpDef, inputs: Any, attrs: Any, specs: Any) -> dict[str, Any]:
    """Update the whole table, or some tables."""

    def dense(grad: Any) -> Any:
        if isinstance(grad, list):
            return [dense(one) for one in grad]
        return GraphTensor(grad.dense()) if isinstance(grad, SparseTensor) else grad

    return lower(definition, {**inputs, "Grad": dense(inputs["Grad"])}, attrs, specs)


_lowers("adagrad", "ftrl")(_row_by_row)
_lowers(
    *("adadelta", "adamax", "decayed_adagrad", "lamb", "lars_momentum", "lion", "momentum", "nadam", "radam", "rmsprop"),
    "uncorrected_lamb",
)(_everywhere)


@_lowers("adam", "adamw")
def _adam(definition: OpDef, inputs: Any, attrs: Any, specs: Any) -> dict[str, Any]:
    """In `lazy_mode`, the moments of rows without a gradient stay unchanged, too."""
    return (_row_by_row if attrs["lazy_mode"] else _everywhere)(definition, inputs, attrs, specs)

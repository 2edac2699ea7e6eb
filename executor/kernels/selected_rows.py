"""Kernels for SelectedRows: those of `fluid.ops.selected_rows`, and what other ops do where an input or output is one.

An optimizer whose update changes nothing where the gradient is zero works on the rows that are there alone. Another goes
through the table part by part, so that the gradient is never there as a whole; only those that need its norm make it dense.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fluid.errors import ExecutionError
from fluid.ops import registry
from fluid.ops.registry import updated_input

from ..selected_rows import SelectedRows
from .manipulation import check_ids
from .table import KERNELS, bind, sparse

_PART = 1 << 20
"""Elements of a table that an optimizer works on together."""


# ------------------------------------------------------------------------------------------------- making and reading
@sparse("lookup_table_grad", "lookup_table_v2_grad")
def lookup_table_grad(xp: Any, W: Any, Ids: Any, dOut: Any, padding_idx: int) -> SelectedRows:
    ids = Ids.reshape(-1)
    rows = dOut.reshape(ids.size, *W.shape[1:])
    if padding_idx != -1:
        kept = ids != padding_idx
        ids, rows = ids[kept], rows[kept]
    check_ids(ids, len(W), "the table's rows")
    return SelectedRows(ids.copy(), rows.copy(), len(W))


def _checked(op_type: str, value: Any) -> SelectedRows:
    if not isinstance(value, SelectedRows):
        raise ExecutionError(f"{op_type} takes the sparse gradient of an embedding with is_sparse=True, not a whole tensor")
    return value


@sparse("merge_selected_rows")
def merge_selected_rows(xp: Any, X: Any) -> SelectedRows:
    return _checked("merge_selected_rows", X).merged(xp)


@sparse("get_tensor_from_selected_rows")
def get_tensor_from_selected_rows(X: Any) -> Any:
    return _checked("get_tensor_from_selected_rows", X).value.copy()


@sparse("select_rows_like")
def select_rows_like(xp: Any, X: Any, Like: Any) -> SelectedRows:
    index = xp.unique(_checked("select_rows_like", Like).index)
    return SelectedRows(index, X[index], len(X))


# ------------------------------------------------------------------------------------------------------ ordinary ops
@sparse("sum")
def add(xp: Any, X: list[Any], Out: Any) -> SelectedRows | None:
    sparse_ones = [x for x in X if isinstance(x, SelectedRows)]
    if Out is None:
        return SelectedRows.total(sparse_ones)
    Out.fill(0)
    for x in X:
        if isinstance(x, SelectedRows):
            x.add_to(xp, Out)
        else:
            xp.add(Out, x, out=Out)
    return None


def _on_rows(*op_types: str, merge: bool = False) -> None:
    """These ops work on the rows that are there; `merge`, on each row once."""

    def register(op_type: str) -> None:
        @sparse(op_type)
        def compute(xp: Any, scratch: Any, rng: Any, X: SelectedRows, inputs: Any, attrs: Any) -> SelectedRows:
            if not isinstance(X, SelectedRows) or any(isinstance(v, SelectedRows) for k, v in inputs.items() if k != "X"):
                raise ExecutionError(f"{op_type} takes a sparse gradient as its input X alone")
            rows = X.merged(xp) if merge else X
            out = xp.empty_like(rows.value)
            context = {"xp": xp, "scratch": scratch, "rng": rng}
            for step in bind(KERNELS[op_type], {**inputs, "X": rows.value}, {"Out": out}, attrs, context, {}):
                step()
            return SelectedRows(rows.index.copy(), out, X.shape[0])

    for op_type in op_types:
        register(op_type)


_on_rows("assign", "cast", "scale", "elementwise_mul", "elementwise_div")
_on_rows("clip", "clip_by_norm", "sign", merge=True)


@sparse("fill_zeros_like")
def fill_zeros_like(X: SelectedRows) -> SelectedRows:
    return X.empty()


@sparse("squared_l2_norm")
def squared_l2_norm(xp: Any, X: SelectedRows, Out: Any) -> None:
    flat = X.merged(xp).value.reshape(-1)
    Out[...] = xp.dot(flat, flat)


# -------------------------------------------------------------------------------------------------------- optimizers
Values = Mapping[str, Any]


def _update(op_type: str, xp: Any, rng: Any, inputs: Values, outputs: Values, attrs: Values) -> None:
    """Run the dense kernel."""
    context = {"xp": xp, "scratch": xp.empty, "rng": rng}
    for step in bind(KERNELS[op_type], inputs, outputs, attrs, context, {}):
        step()


def _tables(inputs: Values) -> list[str]:
    """The slots that hold a number for each element of the parameter: Param, accumulators, Grad."""
    shape = inputs["Param"].shape
    return [slot for slot, value in inputs.items() if getattr(value, "shape", None) == shape and slot != "Grad"]


def _row_by_row(op_type: str, xp: Any, rng: Any, inputs: Values, outputs: Values, attrs: Values) -> None:
    """Update the rows that the gradient has, and nothing else."""
    grad = inputs["Grad"].merged(xp)
    own = {slot: inputs[slot][grad.index] for slot in _tables(inputs)}
    results = {slot: own.get(updated_input(registry.get(op_type), slot) or "", value) for slot, value in outputs.items()}
    _update(op_type, xp, rng, {**inputs, **own, "Grad": grad.value}, results, attrs)
    for slot, value in outputs.items():
        if value is not None and value is not results[slot]:
            value[grad.index] = results[slot]


def _part_by_part(op_type: str, xp: Any, rng: Any, inputs: Values, outputs: Values, attrs: Values) -> None:
    """Update everything, with the gradient made dense for a part of the table at a time."""
    grad, tables, definition = inputs["Grad"].merged(xp), _tables(inputs), registry.get(op_type)
    height = grad.shape[0]
    count = max(1, _PART // max(1, grad.value[:1].size or 1))
    scalars = {slot: value for slot, value in inputs.items() if slot not in tables and slot != "Grad"}
    updated = {updated_input(definition, slot) for slot in outputs}
    firsts = {slot: value.copy() for slot, value in scalars.items() if slot in updated}
    dense = xp.empty((min(count, height), *grad.shape[1:]), grad.dtype)
    for start in range(0, height, count):
        end = min(start + count, height)
        low, high = (int(at) for at in xp.searchsorted(grad.index, xp.asarray([start, end])))
        part = dense[: end - start]
        part.fill(0)
        part[grad.index[low:high] - start] = grad.value[low:high]
        for slot, value in firsts.items():  # what is no table changes once
            scalars[slot][...] = value
        ins = {**scalars, **{slot: inputs[slot][start:end] for slot in tables}, "Grad": part}
        outs = {
            slot: value[start:end] if value is not None and updated_input(definition, slot) in tables else value
            for slot, value in outputs.items()
        }
        _update(op_type, xp, rng, ins, outs, attrs)


def _all_at_once(op_type: str, xp: Any, rng: Any, inputs: Values, outputs: Values, attrs: Values) -> None:
    def dense(grad: Any) -> Any:
        if isinstance(grad, list):
            return [dense(one) for one in grad]
        return grad.dense(xp) if isinstance(grad, SelectedRows) else grad

    _update(op_type, xp, rng, {**inputs, "Grad": dense(inputs["Grad"])}, outputs, attrs)


def _adam(op_type: str, xp: Any, rng: Any, inputs: Values, outputs: Values, attrs: Values) -> None:
    """With `lazy_mode`, rows without a gradient keep their moments too."""
    (_row_by_row if attrs["lazy_mode"] else _part_by_part)(op_type, xp, rng, inputs, outputs, attrs)


def _optimizers(how: Callable[..., None], *op_types: str) -> None:
    def register(op_type: str) -> None:
        @sparse(op_type)
        def compute(xp: Any, rng: Any, inputs: Any, outputs: Any, attrs: Any) -> None:
            how(op_type, xp, rng, inputs, outputs, attrs)

    for op_type in op_types:
        register(op_type)


_optimizers(_row_by_row, "sgd", "adagrad", "ftrl")
_optimizers(_adam, "adam", "adamw")
_optimizers(_part_by_part, "momentum", "adamax", "adadelta", "decayed_adagrad", "rmsprop")
_optimizers(_all_at_once, "lamb", "lars_momentum", "dpsgd")

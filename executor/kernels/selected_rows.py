"""Kernels for SelectedRows: the ops of `fluid.ops.selected_rows`, and sparse variants of other ops.

If a zero gradient changes nothing, an optimizer updates only the stored rows. Other optimizers go through the table part by part,
so that the full dense gradient never exists; only optimizers that need its norm make it dense.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np

from fluid.errors import ExecutionError
from fluid.opdef import registry
from fluid.opdef.registry import updated_input
from fluid.ops.shapes import aligned
from fluid.values.bfloat16 import BFLOAT16, computable, converted, to_bfloat16, to_float32
from fluid.values.place import to_numpy
from fluid.values.selected_rows import SelectedRows, put_rows
from fluid.values.types import as_dtype, is_floating

from .portable import sum_of_squares
from .table import KERNELS, Slots, bind, sparse

_PART = 1 << 20
"""Elements of a table that an optimizer works on together."""


# ------------------------------------------------------------------------------------------------- making and reading
@sparse("lookup_table_grad", "lookup_table_v2_grad")
def lookup_table_grad(xp: Any, W: Any, Ids: Any, dOut: Any, padding_idx: int) -> SelectedRows:
    ids = Ids.reshape(-1)
    rows = dOut.reshape(ids.size, *W.shape[1:])
    if padding_idx != -1:
        return SelectedRows.chosen(xp, ids, rows, ids != padding_idx, len(W))
    return SelectedRows(ids.copy(), rows.copy(), len(W))


@sparse("lookup_table", "lookup_table_v2")
def lookup_table(xp: Any, W: Any, Ids: Any, padding_idx: int, Out: Any) -> None:
    """Look up rows of a sparse table; all requested rows must be stored."""
    ids = Ids.reshape(-1)
    rows = Out.reshape(ids.size, *W.shape[1:])
    stored = ids != padding_idx if padding_idx != -1 else slice(None)
    rows[...] = 0
    rows[stored] = W.value[W.places(xp, ids[stored])]


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
    return SelectedRows(index, X.take(index, 0), len(X))


# ------------------------------------------------------------------------------------------------------ ordinary ops
@sparse("sum")
def add(xp: Any, X: list[Any], Out: Any) -> SelectedRows | None:
    sparse_ones = [x for x in X if isinstance(x, SelectedRows)]
    if Out is None:
        return SelectedRows.total(sparse_ones).merged(xp)
    Out.fill(0)
    for x in X:
        if isinstance(x, SelectedRows):
            x.add_to(xp, Out)
        else:
            Out[...] = converted(computable(Out) + computable(x), Out.dtype)
    return None


def _computed(op_type: str, xp: Any, rng: Any, inputs: Slots, outputs: Slots, attrs: Slots, scratch: Any = None) -> None:
    """Run the dense kernel; bfloat16 is computed in float32, and rounded once."""
    wide: dict[int, Any] = {}

    def widened(array: Any) -> Any:
        if isinstance(array, list):
            return [widened(item) for item in array]
        if getattr(array, "dtype", None) != BFLOAT16:
            return array
        return wide.setdefault(id(array), to_float32(array))

    context = {"xp": xp, "scratch": scratch or xp.empty, "rng": rng}
    ins, outs = ({slot: widened(array) for slot, array in slots.items()} for slots in (inputs, outputs))
    for step in bind(KERNELS[op_type], None, ins, outs, attrs, context, {}):
        step()
    for slot, value in outputs.items():
        pairs = zip(value, outs[slot], strict=True) if isinstance(value, list) else [(value, outs[slot])]
        for array, computed in pairs:
            if computed is not array:
                array[...] = to_bfloat16(computed)


def _on_rows(
    op_type: str, xp: Any, rng: Any, rows: SelectedRows, inputs: Slots, attrs: Slots, merge: bool = False, dtype: Any = None
) -> SelectedRows:
    """Apply an op that maps zero to zero to the stored rows; with `merge`, duplicate rows are summed first.

    Absent rows stay zero, even if they are multiplied by infinity, or divided by zero.
    """
    if not isinstance(rows, SelectedRows) or any(isinstance(v, SelectedRows) for k, v in inputs.items() if k != "X"):
        raise ExecutionError(f"{op_type} takes a sparse gradient as its input X alone")
    if merge or not is_floating(as_dtype(rows.dtype)):  # integers, bools: results need not add up
        rows = rows.merged(xp)
    operands = {**inputs, "X": rows.value}
    if "Y" in operands:
        operands["Y"], attrs = _factor(op_type, rows, operands["Y"], attrs["axis"]), {**attrs, "axis": -1}
    out = xp.empty(rows.value.shape, rows.dtype if dtype is None else dtype)
    _computed(op_type, xp, rng, operands, {"Out": out}, attrs)
    return SelectedRows(rows.index.copy(), out, rows.shape[0])


def _factor(op_type: str, rows: SelectedRows, Y: Any, axis: int) -> Any:
    """The part of the tensor Y that combines with the rows, with the same number of dimensions."""
    shape = aligned(Y.shape, len(rows.shape), axis)
    if len(shape) != len(rows.shape) or any(extent not in (1, size) for extent, size in zip(shape, rows.shape, strict=True)):
        raise ExecutionError(
            f"{op_type} of a sparse gradient of shape {list(rows.shape)} gives no larger one, but Y is of shape {list(Y.shape)}"
        )
    factor = Y.reshape(shape)
    return factor if shape[0] == 1 else factor[rows.index]


def _changes_absent_rows(operation: str) -> ExecutionError:
    return ExecutionError(
        f"{operation} would change the rows that a sparse gradient does not hold, which are zeros: "
        "use is_sparse=False for the embedding, or what leaves zeros as they are"
    )


def _register_on_rows(*op_types: str, merge: bool) -> None:
    def register(op_type: str) -> None:
        @sparse(op_type)
        def compute(xp: Any, rng: Any, X: Any, inputs: Any, attrs: Any) -> SelectedRows:
            return _on_rows(op_type, xp, rng, X, inputs, attrs, merge)

    for op_type in op_types:
        register(op_type)


_register_on_rows("assign", "elementwise_mul", "elementwise_div", merge=False)
_register_on_rows("clip_by_norm", "sign", merge=True)


@sparse("cast")
def cast(xp: Any, rng: Any, X: SelectedRows, inputs: Any, attrs: Any) -> SelectedRows:
    dtype = as_dtype(attrs["out_dtype"]).array_dtype
    rounds = not np.can_cast(X.dtype, dtype)  # the sum of rounded terms is not the rounded sum
    return _on_rows("cast", xp, rng, X, inputs, attrs, rounds, dtype)


@sparse("scale")
def scale(xp: Any, rng: Any, X: Any, scale: float, bias: float, inputs: Any, attrs: Any) -> SelectedRows:
    if bias != 0:
        raise _changes_absent_rows(f"scale with the bias {bias}")
    if inputs.get("ScaleTensor") is None and not isfinite(scale):
        raise _changes_absent_rows(f"scale by {scale}")
    return _on_rows("scale", xp, rng, X, inputs, attrs)


@sparse("clip")
def clip(xp: Any, rng: Any, X: Any, Min: Any, Max: Any, min: float, max: float, inputs: Any, attrs: Any) -> SelectedRows:
    low = min if Min is None else to_numpy(Min).item()
    high = max if Max is None else to_numpy(Max).item()
    if not low <= 0 <= high:
        raise _changes_absent_rows(f"clip from {low} to {high}")
    return _on_rows("clip", xp, rng, X, inputs, attrs, merge=True)


@sparse("fill_zeros_like")
def fill_zeros_like(X: SelectedRows) -> SelectedRows:
    return X.empty()


@sparse("squared_l2_norm")
def squared_l2_norm(xp: Any, X: SelectedRows, Out: Any) -> None:
    Out[...] = converted(xp.asarray(sum_of_squares(xp, computable(X.merged(xp).value))), Out.dtype)


# -------------------------------------------------------------------------------------------------------- optimizers
def _tables(inputs: Slots) -> list[str]:
    """The slots that hold a number for each element of the parameter: Param, accumulators, Grad."""
    shape = inputs["Param"].shape
    return [slot for slot, value in inputs.items() if getattr(value, "shape", None) == shape and slot != "Grad"]


def row_by_row(op_type: str, xp: Any, scratch: Any, rng: Any, inputs: Slots, outputs: Slots, attrs: Slots) -> None:
    """Update the rows that the gradient has, and nothing else."""
    grad = inputs["Grad"].distinct(xp)
    param = inputs["Param"]
    places = param.places(xp, grad.index) if isinstance(param, SelectedRows) else grad.index
    gathered = {slot: _gather(xp, scratch, _stored(inputs[slot]), places) for slot in _tables(inputs)}
    results = {slot: gathered.get(updated_input(registry.get(op_type), slot) or "", value) for slot, value in outputs.items()}
    _computed(op_type, xp, rng, {**inputs, **gathered, "Grad": grad.value}, results, attrs, scratch)
    for slot, value in outputs.items():
        if value is not None and value is not results[slot]:
            put_rows(_stored(value), places, results[slot])


def _gather(xp: Any, scratch: Any, table: Any, places: Any) -> Any:
    """Gather rows of a table. Places outside of it give arbitrary rows; writing them back raises an error."""
    if xp is not np:
        return table.take(places, 0)
    rows = scratch((len(places), *table.shape[1:]), table.dtype)
    return table.take(places, 0, rows, "wrap")  # "raise" would go through a buffer


def _stored(table: Any) -> Any:
    """The rows of a table: all rows, or the stored rows of a `SelectedRows`."""
    return table.value if isinstance(table, SelectedRows) else table


def _part_by_part(op_type: str, xp: Any, scratch: Any, rng: Any, inputs: Slots, outputs: Slots, attrs: Slots) -> None:
    """Update the full table; the gradient is made dense for one part of the table at a time."""
    grad, tables, definition = inputs["Grad"].merged(xp), _tables(inputs), registry.get(op_type)
    height = grad.shape[0]
    count = max(1, _PART // max(1, grad.value[:1].size or 1))
    scalars = {slot: value for slot, value in inputs.items() if slot not in tables and slot != "Grad"}
    updated = {updated_input(definition, slot) for slot in outputs}
    firsts = {slot: value.copy() for slot, value in scalars.items() if slot in updated}
    dense = scratch((min(count, height), *grad.shape[1:]), grad.dtype)
    for start in range(0, height, count):
        end = min(start + count, height)
        low, high = (int(at) for at in xp.searchsorted(grad.index, xp.asarray([start, end])))
        part = dense[: end - start]
        part.fill(0)
        part[grad.index[low:high] - start] = grad.value[low:high]
        for slot, value in firsts.items():  # scalars are updated once, not once per part
            scalars[slot][...] = value
        ins = {**scalars, **{slot: inputs[slot][start:end] for slot in tables}, "Grad": part}
        outs = {
            slot: value[start:end] if value is not None and updated_input(definition, slot) in tables else value
            for slot, value in outputs.items()
        }
        _computed(op_type, xp, rng, ins, outs, attrs)


def all_at_once(op_type: str, xp: Any, scratch: Any, rng: Any, inputs: Slots, outputs: Slots, attrs: Slots) -> None:
    def dense(grad: Any) -> Any:
        if isinstance(grad, list):
            return [dense(one) for one in grad]
        return grad.dense(xp) if isinstance(grad, SelectedRows) else grad

    _computed(op_type, xp, rng, {**inputs, "Grad": dense(inputs["Grad"])}, outputs, attrs)


def _adam(op_type: str, xp: Any, scratch: Any, rng: Any, inputs: Slots, outputs: Slots, attrs: Slots) -> None:
    """With `lazy_mode`, rows without a gradient keep their moments too."""
    (row_by_row if attrs["lazy_mode"] else _part_by_part)(op_type, xp, scratch, rng, inputs, outputs, attrs)


def _optimizers(how: Callable[..., None], *op_types: str) -> None:
    def register(op_type: str) -> None:
        @sparse(op_type)
        def compute(xp: Any, scratch: Any, rng: Any, inputs: Any, outputs: Any, attrs: Any) -> None:
            how(op_type, xp, scratch, rng, inputs, outputs, attrs)

    for op_type in op_types:
        register(op_type)


_optimizers(row_by_row, "sgd", "adagrad", "ftrl")
_optimizers(_adam, "adam", "adamw")
_optimizers(_part_by_part, "momentum", "adamax", "adadelta", "decayed_adagrad", "lion", "nadam", "radam", "rmsprop")
_optimizers(all_at_once, "lamb", "lars_momentum", "dpsgd", "uncorrected_lamb")

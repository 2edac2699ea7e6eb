"""Ops that compute each row by itself: the row of a result depends on the same row of each input that has rows.

Values of the further inputs, weights say, are the same for all rows. A value with padding rows stays right in its real rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from fluid.ir.program import Operator
from fluid.opdef.parameters import grad_slot
from fluid.opdef.registry import EMPTY, OpDef
from fluid.ops.shapes import aligned

__all__ = ["SHRINKING", "computes_by_rows", "outputs_of_rows"]

SHRINKING = "shrink_rnn_memory"
"""The op that keeps the rows of the sequences that are not over."""
_BROADCAST = "Y"
"""A slot that holds rows, or one value for all rows."""
_NO_ROWS = frozenset({"XShape"})
"""Outputs that are read for their shape alone."""
_Condition = Callable[[Operator], bool]


@dataclass(frozen=True)
class _RowOp:
    """How an op computes rows.

    Attributes:
        slots: the slots with rows.
        holds: whether the op computes each row by itself, with its attributes; None if it always does.
        broadcasts: whether `_BROADCAST` may be the same for all rows.
    """

    slots: tuple[str, ...] = ("X",)
    holds: _Condition | None = None
    broadcasts: bool = False


def _rank(op: Operator, slot: str) -> int:
    """The number of dimensions of an input, or of its gradient; 0 if it is not known."""
    names = op.inputs.get(slot) or op.outputs.get(grad_slot(slot)) or ()
    variables = [op.block.find_var(name) for name in names if name != EMPTY]
    return max((len(var.shape) for var in variables if var is not None and var.has_shape), default=0)


def _spares_rows(slot: str = "X", attr: str = "axis", *flags: str, tensors: tuple[str, ...] = (), more: int = 0) -> _Condition:
    """The condition that no axis in an attribute is the axis of rows, that no flag is set, and that no tensor holds an axis.

    Args:
        more: how many dimensions an output has more than the input.
    """

    def holds(op: Operator) -> bool:
        axes, rank = op.attr(attr), _rank(op, slot) + more
        axes = axes if isinstance(axes, (list, tuple)) else [axes]
        if not axes or rank <= more or None in axes or any(map(op.attr, flags)) or any(map(op.inputs.get, tensors)):
            return False
        return all(int(axis) % rank for axis in axes)

    return holds


def _repeats_columns(attr: str, *tensors: str) -> _Condition:
    """The condition that an op repeats columns alone, by numbers that no tensor holds."""

    def holds(op: Operator) -> bool:
        times = op.attr(attr)
        return not any(map(op.inputs.get, tensors)) and len(times) == _rank(op, "X") and times[0] == 1

    return holds


def _multiplies_rows(transposes: str) -> _Condition:
    """The condition that each row of X is multiplied by the matrix Y."""

    def holds(op: Operator) -> bool:
        return _rank(op, "X") == 2 and _rank(op, "Y") == 2 and not op.attr(transposes)

    return holds


def _is_off(*flags: str) -> _Condition:
    return lambda op: not any(map(op.attr, flags))


def _pads_columns(op: Operator) -> bool:
    return not any(op.attr("paddings")[:2])


_COMPARISONS = ("equal", "not_equal", "less_than", "less_equal", "greater_than", "greater_equal")
_ARITHMETIC = ("add", "sub", "mul", "div", "max", "min", "pow", "mod", "floordiv")
_REDUCTIONS = ("sum", "mean", "max", "min", "prod", "all", "any")
_ALONG_AXIS = _RowOp(holds=_spares_rows(tensors=("AxisTensor",)))

_ROW_OPS: dict[str, _RowOp] = {
    **dict.fromkeys(
        ("scale", "cast", "assign", "fill_zeros_like", "fill_any_like", "sum", "mul", SHRINKING, "clip", "logical_not",
         "one_hot", "one_hot_v2", "label_smooth"),
        _RowOp(),
    ),
    **dict.fromkeys(("concat", "split", "softmax", "log_softmax", "norm", "top_k_v2", "argsort"), _ALONG_AXIS),
    **dict.fromkeys(("arg_max", "arg_min", "cumsum"), _RowOp(holds=_spares_rows("X", "axis", "flatten"))),
    "stack": _RowOp(holds=_spares_rows(more=1)),
    "top_k": _RowOp(holds=lambda op: _rank(op, "X") > 1),
    **dict.fromkeys(
        (f"reduce_{kind}" for kind in _REDUCTIONS),
        _RowOp(holds=_spares_rows("X", "dim", "reduce_all", tensors=("AxisTensor", "AxisTensorList"))),
    ),
    "logsumexp": _RowOp(holds=_spares_rows("X", "axis", "reduce_all")),
    **dict.fromkeys(("slice", "strided_slice"), _RowOp(("Input",), _spares_rows("Input", "axes"))),
    "pad": _RowOp(holds=_pads_columns),
    "expand": _RowOp(holds=_repeats_columns("expand_times", "ExpandTimes", "expand_times_tensor")),
    "tile": _RowOp(holds=_repeats_columns("repeat_times", "RepeatTimes", "repeat_times_tensor")),
    "layer_norm": _RowOp(holds=lambda op: op.attr("begin_norm_axis") == 1),
    "dropout": _RowOp(holds=lambda op: bool(op.attr("is_test"))),
    "prelu": _RowOp(holds=lambda op: op.attr("mode") == "all"),
    "matmul": _RowOp(holds=_multiplies_rows("transpose_X")),
    "matmul_v2": _RowOp(holds=_multiplies_rows("trans_x")),
    **dict.fromkeys(("lookup_table", "lookup_table_v2"), _RowOp(("Ids",))),
    **dict.fromkeys((*(f"elementwise_{kind}" for kind in _ARITHMETIC), *_COMPARISONS), _RowOp(("X", "Y"), broadcasts=True)),
    **dict.fromkeys(
        ("minus", "logical_and", "logical_or", "logical_xor", "dot", "cos_sim", "squared_l2_distance", "bilinear_tensor_product",
         "huber_loss", "modified_huber_loss"),
        _RowOp(("X", "Y")),
    ),
    "where": _RowOp(("Condition", "X", "Y"), lambda op: bool(op.inputs.get("X") or op.outputs.get(grad_slot("X")))),
    **dict.fromkeys(("cross_entropy", "cross_entropy2", "bpr_loss", "teacher_student_sigmoid_loss"), _RowOp(("X", "Label"))),
    "softmax_with_cross_entropy": _RowOp(("Logits", "Label"), _spares_rows("Logits")),
    "sigmoid_cross_entropy_with_logits": _RowOp(("X", "Label"), _is_off("normalize")),
    "smooth_l1_loss": _RowOp(("X", "Y", "InsideWeight", "OutsideWeight")),
    "log_loss": _RowOp(("Predicted", "Labels")),
    "hinge_loss": _RowOp(("Logits", "Labels")),
    "rank_loss": _RowOp(("Label", "Left", "Right")),
    "margin_rank_loss": _RowOp(("X1", "X2", "Label")),
    "kldiv_loss": _RowOp(("X", "Target"), lambda op: op.attr("reduction") == "none"),
    "lstm_unit": _RowOp(("X", "C_prev")),
    "gru_unit": _RowOp(("Input", "HiddenPrev")),
    "iou_similarity": _RowOp(),
    "box_coder": _RowOp(("TargetBox",), lambda op: op.attr("code_type") == "encode_center_size" or not op.attr("axis")),
}  # fmt: skip
"""Type of an op -> how it computes rows."""
_ACTIVATION = _RowOp()


def _row_op(definition: OpDef) -> _RowOp | None:
    return _ACTIVATION if definition.module == "fluid.ops.activation" else _ROW_OPS.get(definition.type)


def computes_by_rows(op: Operator, forward: OpDef, names: Collection[str]) -> bool:
    """Whether an op, or the forward op of a gradient op, computes each row by itself.

    Args:
        names: the values with rows.
    """
    row_op = _row_op(forward)
    if row_op is None or (row_op.holds is not None and not row_op.holds(op)):
        return False
    for slot in forward.inputs:
        have_rows = [name in names for name in op.inputs.get(slot, []) if name != EMPTY]
        if slot not in row_op.slots:
            if any(have_rows):
                return False
        elif not all(have_rows) and not (row_op.broadcasts and slot == _BROADCAST and _is_same_for_all_rows(op)):
            return False
    return True


def _is_same_for_all_rows(op: Operator) -> bool:
    """Whether an elementwise op, or its gradient, broadcasts its second operand along the rows of the first one."""
    x, y = (op.block.find_var(op.inputs[slot][0]) for slot in ("X", _BROADCAST))
    if x is None or y is None or not (x.has_shape and y.has_shape) or y.ndim > x.ndim:
        return False
    return not x.ndim or aligned(y.shape, x.ndim, int(op.attr("axis")))[0] == 1


def outputs_of_rows(op: Operator, definition: OpDef, names: Collection[str]) -> set[str]:
    """The outputs of an op that have rows. In a gradient op these are the gradients of inputs with rows."""
    if definition.forward is None:
        return {name for slot, outputs in op.outputs.items() if slot not in _NO_ROWS for name in outputs}
    row_op, results = _row_op(definition.forward), set[str]()
    for slot in row_op.slots if row_op is not None else ():
        gradients, sources = op.outputs.get(grad_slot(slot), []), op.inputs.get(slot, [])
        shared = {gradient for gradient, source in zip(gradients, sources, strict=False) if source not in names}
        results |= {*gradients} - shared
    return results

"""Inputs of element types and shapes that Paddle 2.6 does not take."""

from __future__ import annotations

from ...ir.program import Operator
from ...opdef.registry import EMPTY
from ...values.types import VarType
from ..op_rows import (
    BOTH,
    Refused,
    Rewrite,
    Row,
    align,
    cast_input,
    constant,
    filled_like,
    input_of,
    is_written,
    put,
    put_view,
    set_type,
    shape_of,
    temporary,
    unsqueeze_input,
)


def _of_type(dtype: VarType, *slots: str) -> Rewrite:
    """Rewrites an op whose inputs in these slots have to have this element type."""

    def rewrite(op: Operator) -> None:
        for slot in slots:
            cast_input(op, slot, dtype)

    return rewrite


def _scaled_in_place(op: Operator) -> None:
    """Let the op overwrite copies of its inputs: Paddle does not write values that it does not change."""
    updates = {"PrevLossScaling": "LossScaling", "InGoodSteps": "OutGoodSteps", "InBadSteps": "OutBadSteps", "X": "Out"}
    for slot, changed in updates.items():
        for position, (name, out) in enumerate(zip(op.input(slot), op.output(changed), strict=True)):
            if out not in (name, EMPTY):
                put(op, "assign", {"X": name}, {"Out": out}, {}, after=False)
                op.inputs[slot][position] = out


def _one_hot_of_floats(op: Operator) -> None:
    if input_of(op).dtype not in (VarType.INT32, VarType.INT64):
        cast_input(op, "X", VarType.INT64)


def isclose(op: Operator) -> None:
    for slot in ("Rtol", "Atol"):
        cast_input(op, slot, VarType.FP64)
    if input_of(op, "Input").dtype not in (VarType.FP32, VarType.FP64):
        for slot in ("Input", "Other"):
            cast_input(op, slot, VarType.FP64)
    _broadcast(op, "Input", "Other")


def _broadcast(op: Operator, *slots: str) -> None:
    """Give two inputs one shape, by products with ones, where Paddle does not broadcast."""
    first, second = (input_of(op, slot) for slot in slots)
    if shape_of(first) == shape_of(second):
        return
    ones = [filled_like(op, like, 1.0) for like in (second, first)]
    for slot, var, like in zip(slots, (first, second), ones, strict=True):
        wide = temporary(op, var, None)
        put(op, "elementwise_mul", {"X": var, "Y": like}, {"Out": wide}, {"axis": -1}, after=False)
        op.inputs[slot] = [wide.name]


def _of_one_shape(*slots: str) -> Rewrite:
    """Rewrites an op of two inputs that Paddle does not broadcast."""
    return lambda op: _broadcast(op, *slots)


def _single_tensor(op: Operator) -> None:
    """One tensor is as it is: Paddle asks for two."""
    if len(op.input("X")) == 1:
        source = op.input("Out@GRAD") or op.input("outputs@GRAD") or op.input("X")
        op.inputs, op.outputs = {"X": source}, {"Out": next(iter(op.outputs.values()))}
        set_type(op, "assign")


def _variance_of_boxes(op: Operator) -> None:
    if not op.input("PriorBoxVar"):
        op.inputs["PriorBoxVar"] = [constant(op, input_of(op, "PriorBox"), [4], 1.0).name]


def columns_of_labels(op: Operator) -> None:
    """Give labels and losses the column that Paddle has there."""
    rank = len(shape_of(input_of(op)))
    for slot in ("Label", "Y@GRAD"):
        if op.input(slot) and len(shape_of(input_of(op, slot))) == rank - 1:
            unsqueeze_input(op, slot, [rank - 1])
    for slot in ("Y", "MatchX"):
        for out in op.output(slot):
            loss = op.block.var(out)
            sizes = shape_of(loss)
            if len(sizes) == rank - 1:
                column = temporary(op, loss, (*sizes, 1))
                op.outputs[slot] = [column.name]
                put_view(op, "squeeze2", column, out, {"axes": [rank - 1]}, after=True)


def product_of_vectors(op: Operator) -> None:
    """A vector is not transposed."""
    for slot, name in (("X", "trans_x"), ("Y", "trans_y")):
        if op.attr(name) and len(shape_of(input_of(op, slot))) == 1:
            op.attrs[name] = False


def matmul_v2_grad(op: Operator) -> None:
    """Give batches of fewer dimensions ones in front: Paddle does not sum over them otherwise."""
    product_of_vectors(op)
    ranks = {slot: len(shape_of(input_of(op, slot))) for slot in ("X", "Y")}
    for slot, rank in ranks.items():
        if 2 < rank < max(ranks.values()):
            unsqueeze_input(op, slot, range(max(ranks.values()) - rank))


def gather_grad(op: Operator) -> None:
    """Gather along the first axis of X transposed: Paddle takes the wrong rows along others."""
    if op.input("Axis"):
        raise Refused("its axis is in a tensor, and Paddle takes the wrong rows along any but the first")
    x, gradient = input_of(op), input_of(op, "Out@GRAD")
    rank = len(shape_of(x))
    axis = op.attr("axis") % rank if rank else 0
    if not axis or not is_written(op, "X@GRAD"):
        return
    if len(shape_of(gradient)) != rank:
        raise Refused("along an axis that is not the first, Paddle takes the wrong rows")
    names = op.output("X@GRAD")
    order = [axis, *(i for i in range(rank) if i != axis)]
    back = sorted(range(rank), key=order.__getitem__)
    for slot, var in (("X", x), ("Out@GRAD", gradient)):
        turned = temporary(op, var, [shape_of(var)[i] for i in order])
        put_view(op, "transpose2", var, turned, {"axis": order}, after=False)
        op.inputs[slot] = [turned.name]
    inner = temporary(op, x, [shape_of(x)[i] for i in order])
    op.outputs["X@GRAD"] = [inner.name]
    put_view(op, "transpose2", inner, names[0], {"axis": back}, after=True)
    op.attrs["axis"] = 0


def _of_a_number(op: Operator) -> None:
    """The gradient of a tensor without dimensions equals the gradient of the result, which Paddle takes for 1."""
    if not shape_of(input_of(op)):
        op.inputs, op.outputs = {"X": op.input("Out@GRAD")}, {"Out": op.output("X@GRAD")}
        set_type(op, "assign")


_INT32 = {
    "collect_fpn_proposals": ("MultiLevelRoIsNum",),
    "distribute_fpn_proposals": ("RoisNum",),
    "generate_mask_labels": ("GtClasses", "IsCrowd", "LabelsInt32"),
    "generate_proposal_labels": ("GtClasses", "IsCrowd"),
    "lod_reset": ("Y",),
    "lod_reset_grad": ("Y",),
    "logspace": ("Num",),
    "multiplex": ("Ids",),
    "retinanet_target_assign": ("GtLabels", "IsCrowd"),
    "rpn_target_assign": ("IsCrowd",),
}
"""Op -> the inputs that have to be int32."""

_NOT_BROADCAST = {"atan2": ("X1", "X2"), "elementwise_heaviside": ("X", "Y"), "nextafter": ("x", "y")}
"""Op -> the inputs that have to be of one shape."""

_ALIGNED = (
    *("equal", "not_equal", "less_than", "less_equal", "greater_than", "greater_equal"),
    *("elementwise_max_grad", "elementwise_min_grad", "elementwise_pow_grad", "grad_add"),
)
"""Ops that ignore `axis`, and align the last dimensions."""

ROWS = [
    Row("update_loss_scaling", _scaled_in_place),
    *[Row(kind, _of_type(VarType.INT32, *slots)) for kind, slots in _INT32.items()],
    Row("one_hot_v2", _one_hot_of_floats),
    Row("isclose", isclose),
    *[Row(kind, _of_one_shape(*slots)) for kind, slots in _NOT_BROADCAST.items()],
    *[Row(kind, align) for kind in _ALIGNED],
    *[Row(f"{kind}{grad}", _single_tensor) for kind in ("broadcast_tensors", "meshgrid") for grad in BOTH],
    Row("box_decoder_and_assign", _variance_of_boxes),
    Row("cross_entropy2", columns_of_labels),
    Row("matmul_v2", product_of_vectors),
    Row("matmul_v2_grad", matmul_v2_grad),
    Row("gather_grad", gather_grad),
    *[Row(f"{kind}_grad", _of_a_number) for kind in ("kthvalue", "mode")],
]

"""Ops that Paddle 2.6 computes wrongly, by ops that it computes right."""

from __future__ import annotations

from ...ir.program import Operator
from ...opdef.registry import EMPTY
from ...values.types import VarType
from ..op_rows import Refused, Row, cast_input, constant, input_of, is_written, put, put_view, set_type, shape_of, temporary
from .refusals import refuse_unread


def _relu6(op: Operator) -> None:
    threshold = op.attr("threshold")
    if threshold != 6.0:
        set_type(op, "clip", min=0.0, max=threshold)


def is_plain_hard_swish(op: Operator) -> bool:
    return (op.attr("threshold"), op.attr("scale"), op.attr("offset")) == (6.0, 6.0, 3.0)


def _hard_swish(op: Operator) -> None:
    if is_plain_hard_swish(op):
        return
    x = input_of(op)
    moved, bounded, product = (temporary(op, x, x._shape) for _ in range(3))
    put(op, "scale", {"X": x}, {"Out": moved}, {"scale": 1.0, "bias": op.attr("offset")}, after=False)
    put(op, "clip", {"X": moved}, {"Out": bounded}, {"min": 0.0, "max": op.attr("threshold")}, after=False)
    put(op, "elementwise_mul", {"X": x, "Y": bounded}, {"Out": product}, {"axis": -1}, after=False)
    op.inputs = {"X": [product.name]}
    set_type(op, "scale", scale=1.0 / op.attr("scale"), bias=0.0)


def _label_as_x(op: Operator) -> None:
    cast_input(op, "Label", input_of(op).dtype)


def _weighted_cross_entropy(op: Operator) -> None:
    """Write the op by its formula: where X is negative, Paddle adds -X once, and not pos_weight times."""
    _label_as_x(op)
    if not op.input("pos_weight"):
        return
    if op.attr("normalize"):
        raise Refused("it has a pos_weight and is normalized, and Paddle weights otherwise")
    x, label, weight = input_of(op), input_of(op, "Label"), input_of(op, "pos_weight")
    turned, soft, positive, missing, negative, total, counted = (temporary(op, x, x._shape) for _ in range(7))
    ignored = temporary(op, x, x._shape, VarType.BOOL)
    number = constant(op, x, [1], float(op.attr("ignore_index")))
    for type_, inputs, result, attrs in (
        ("not_equal", {"X": label, "Y": number}, ignored, {"axis": -1}),
        ("cast", {"X": ignored}, counted, {"in_dtype": int(VarType.BOOL), "out_dtype": int(x.dtype)}),
        ("scale", {"X": x}, turned, {"scale": -1.0}),
        ("softplus", {"X": turned}, soft, {}),
        ("elementwise_mul", {"X": soft, "Y": weight}, positive, {"axis": -1}),
        ("scale", {"X": label}, missing, {"scale": -1.0, "bias": 1.0}),
        ("elementwise_mul", {"X": missing, "Y": x}, negative, {"axis": -1}),
        ("elementwise_add", {"X": positive, "Y": negative}, total, {"axis": -1}),
    ):
        put(op, type_, inputs, {"Out": result}, attrs, after=False)
    op.inputs = {"X": [total.name], "Y": [counted.name]}
    set_type(op, "elementwise_mul", axis=-1)


def _softmax_with_cross_entropy_grad(op: Operator) -> None:
    """Add the gradient that comes through Softmax: Paddle has the one of Loss alone."""
    through = [name for name in op.input("Softmax@GRAD") if name != EMPTY]
    op.inputs.pop("Softmax@GRAD", None)
    if not through or not is_written(op, "Logits@GRAD"):
        return
    (out,), softmax = op.output("Logits@GRAD"), input_of(op, "Softmax")
    first, second = (temporary(op, softmax, softmax._shape) for _ in range(2))
    op.outputs["Logits@GRAD"] = [first.name]
    put(op, "elementwise_add", {"X": first, "Y": second}, {"Out": out}, {"axis": -1}, after=True)
    if op.attr("use_softmax"):
        inputs = {"Out": softmax, "Out@GRAD": through[0]}
        put(op, "softmax_grad", inputs, {"X@GRAD": second}, {"axis": op.attr("axis")}, after=True)
    else:
        put(op, "assign", {"X": through[0]}, {"Out": second}, {}, after=True)


def _nll_loss_grad(op: Operator) -> None:
    """Take the dimension of 1 from the gradient of a mean or sum, which has no dimensions there."""
    refuse_unread(op)
    gradient = input_of(op, "Out@GRAD")
    if op.attr("reduction") != "none" and shape_of(gradient) == (1,):
        flat = temporary(op, gradient, ())
        put_view(op, "squeeze2", gradient, flat, {"axes": [0]}, after=False)
        op.inputs["Out@GRAD"] = [flat.name]


def _exclusive_sums(op: Operator) -> None:
    """Move the sums by one place: Paddle gives zeros where it computes them in place of X."""
    if not op.attr("exclusive") or op.attr("reverse"):
        return
    x, out = input_of(op), op.block.var(op.output("Out")[0])
    sizes = list(shape_of(out))
    if op.attr("flatten"):
        flat = temporary(op, x, sizes)
        put_view(op, "reshape2", x, flat, {"shape": [-1]}, after=False)
        x = flat
        op.inputs["X"], op.attrs["flatten"] = [flat.name], False
    axis = op.attr("axis") % len(sizes) if sizes else 0
    first, zeros, sums = (temporary(op, x, shape) for shape in (None, None, sizes))
    before = temporary(op, x, [max(size - 1, -1) if i == axis else size for i, size in enumerate(sizes)])
    slice_attrs = {"axes": [axis], "decrease_axis": [], "infer_flags": [1]}
    put(op, "slice", {"Input": x}, {"Out": first}, {**slice_attrs, "starts": [0], "ends": [1]}, after=False)
    put(op, "fill_any_like", {"X": first}, {"Out": zeros}, {"value": 0.0, "dtype": -1}, after=False)
    put(op, "concat", {"X": [zeros, before]}, {"Out": out}, {"axis": axis}, after=True)
    put(op, "slice", {"Input": sums}, {"Out": before}, {**slice_attrs, "starts": [0], "ends": [-1]}, after=True)
    op.outputs["Out"], op.attrs["exclusive"] = [sums.name], False


def _polygamma(op: Operator) -> None:
    """Write order 0 as `digamma`: Paddle computes infinity."""
    if op.attr("n") == 0:
        op.inputs, op.outputs = {"X": op.input("x")}, {"Out": op.output("out")}
        set_type(op, "digamma")


def _zeros_of_second_order(op: Operator) -> None:
    """Fill outputs that no gradient reaches with zeros; Paddle leaves them unwritten."""
    for missing, slot, like in (("DDY", "DX", "X"), ("DDX", "DY", "Y")):
        if op.input(missing) in ([], [EMPTY]) and is_written(op, slot):
            put(op, "fill_any_like", {"X": op.input(like)}, {"Out": op.output(slot)}, {"value": 0.0, "dtype": -1}, after=True)
            op.outputs[slot] = []


ROWS = [
    Row("relu6", _relu6),
    Row("hard_swish", _hard_swish),
    Row("sigmoid_cross_entropy_with_logits", _weighted_cross_entropy),
    Row("sigmoid_cross_entropy_with_logits_grad", _label_as_x),
    Row("softmax_with_cross_entropy_grad", _softmax_with_cross_entropy_grad),
    Row("nll_loss_grad", _nll_loss_grad),
    Row("cumsum", _exclusive_sums),
    Row("polygamma", _polygamma),
    *[Row(f"{kind}_grad_grad", _zeros_of_second_order) for kind in ("matmul", "mul")],
]

"""Attributes that Paddle 2.6 ignores, or reads otherwise."""

from __future__ import annotations

from ...ir.program import Operator
from ...opdef.registry import EMPTY
from ..op_rows import BOTH, Refused, Rewrite, Row, constant, input_of, put, shape_of, temporary


def _from_the_front(*names: str, of: str = "X") -> Rewrite:
    """Rewrites an op that counts these axes of the input `of` from the front only."""

    def rewrite(op: Operator) -> None:
        rank = len(shape_of(input_of(op, of if op.input(of) else next(slot for slot in op.inputs if slot.endswith("@GRAD")))))
        for name in names:
            value = op.attr(name)
            if rank:
                op.attrs[name] = [axis % rank for axis in value] if isinstance(value, list) else value % rank

    return rewrite


def _every_axis(op: Operator) -> None:
    """Paddle reads ``dim`` alone."""
    if op.attr("reduce_all") or not op.attr("dim"):
        op.attrs["dim"] = list(range(len(shape_of(input_of(op)))))


def strided_slice(op: Operator) -> None:
    """A flag for each axis says whether its bounds are known; without them, Paddle ends the process.

    Backwards, an end is before the first element where it is -1, and never where it counts from behind.
    """
    tensors = [slot for slot in op.inputs if slot.endswith(("Tensor", "TensorList")) and op.input(slot)]
    op.attrs["infer_flags"] = [-1 if tensors else 1] * len(op.attr("axes"))
    sizes, ends = shape_of(input_of(op, "Input")), list(op.attr("ends"))
    for position, (axis, stride) in enumerate(zip(op.attr("axes"), op.attr("strides"), strict=False)):
        if stride < 0 and ends[position] < -1:
            size = sizes[axis]
            if size >= 0 or ends[position] < -(2**30):
                ends[position] = max(ends[position] + max(size, 0), -1)
    op.attrs["ends"] = ends


def _offsets(op: Operator) -> None:
    if not op.attr("offsets") and not any(op.input(slot) for slot in ("Offsets", "OffsetsTensor")):
        op.attrs["offsets"] = [0] * len(shape_of(input_of(op)))


def _start_index(op: Operator) -> None:
    """Paddle counts from the front; from behind, it reads the memory before the row."""
    start, columns = op.attr("start_index"), shape_of(op.block.var(op.input("X")[0]))[1]
    if start < 0:
        if columns < 0:
            raise Refused("it counts columns from behind, whose number is not known")
        op.attrs["start_index"] = start + columns


def _target_shape(op: Operator) -> None:
    if not op.attr("target_shape"):
        op.attrs["target_shape"] = list(shape_of(input_of(op, "Out@GRAD" if op.type.endswith("_grad") else "Y")))


def _equation(op: Operator) -> None:
    """Paddle wants no spaces, and the result said."""
    equation = "".join(op.attr("equation").split())
    if "->" not in equation:
        letters = [letter for letter in equation if letter.isalpha()]
        equation += "->" + "..." * ("..." in equation) + "".join(sorted(x for x in set(letters) if letters.count(x) == 1))
    op.attrs["equation"] = equation
    terms = equation.partition("->")[0].split(",")
    if len(terms) > 1 and any(len(set(term) - {"."}) < len(term.replace(".", "")) for term in terms):
        raise Refused(f"its equation {equation} has a label twice in one of two operands, over which Paddle does not sum")
    if len(terms) > 2:
        raise Refused("it has more than two operands, and Paddle's op has two")


def _scale_input(op: Operator, slot: str, name: str) -> None:
    """Multiply an input by an attribute, which is 1 then."""
    factor = op.attr(name)
    if factor != 1.0:
        var = input_of(op, slot)
        scaled = temporary(op, var, var._shape)
        put(op, "scale", {"X": var}, {"Out": scaled}, {"scale": factor}, after=False)
        op.inputs[slot], op.attrs[name] = [scaled.name], 1.0


def _adamw(op: Operator) -> None:
    """Paddle multiplies the decay by `lr_ratio`, and not the step, on a CPU."""
    _scale_input(op, "LearningRate", "lr_ratio")


def _momentum(op: Operator) -> None:
    """Paddle reads `rescale_grad` on a GPU only."""
    _scale_input(op, "Grad", "rescale_grad")


def _learning_rate(op: Operator) -> None:
    """Add a learning rate of 1: the op of Paddle 1.x has none, and takes the step as it is."""
    if not op.input("LearningRate"):
        op.inputs["LearningRate"] = [constant(op, input_of(op, "Param"), [1], 1.0).name]


def _first_axis_of_split(op: Operator) -> None:
    _from_the_front("axis")(op)
    if op.input("SectionsTensorList") and not op.attr("num") and not op.attr("sections"):
        op.attrs["sections"] = [-1] * len(op.output("Out"))


def _states_of_tests(op: Operator) -> None:
    """Paddle leaves the states unwritten where they stay as they are."""
    if not op.attr("is_test"):
        return
    for slot in ("Scale", "State", "Accum"):
        names, outs = op.input(f"In{slot}") or op.input(slot), op.output(f"Out{slot}")
        if names and outs and outs[0] not in (names[0], EMPTY):
            put(op, "assign", {"X": names[0]}, {"Out": outs[0]}, {}, after=True)


def _scale_of_tests(op: Operator) -> None:
    """Paddle does not compute it from the states where they stay as they are."""
    if op.attr("is_test") and op.input("InAccum") and op.input("InState"):
        inputs = {"X": op.input("InAccum"), "Y": op.input("InState")}
        put(op, "elementwise_div", inputs, {"Out": op.output("OutScale")}, {"axis": -1}, after=True)
    _states_of_tests(op)


_WITH_STATES = (
    "fake_quantize_moving_average_abs_max",
    "fake_quantize_dequantize_moving_average_abs_max",
    "quantize_linear",
    "dequantize_linear",
)

ROWS = [
    *[Row(f"reduce_{kind}{grad}", _every_axis) for kind in ("amax", "amin") for grad in BOTH],
    *[Row(f"strided_slice{grad}", strided_slice) for grad in BOTH],
    *[Row(f"{kind}{grad}", _offsets) for kind in ("crop", "crop_tensor") for grad in BOTH],
    *[Row(f"partial_{kind}{grad}", _start_index) for kind in ("sum", "concat") for grad in BOTH],
    *[Row(f"take_along_axis{grad}", _from_the_front("Axis", of="Input")) for grad in BOTH],
    *[Row(f"put_along_axis{grad}", _from_the_front("Axis", of="Index")) for grad in BOTH],
    *[Row(f"renorm{grad}", _from_the_front("axis")) for grad in BOTH],
    *[Row(f"repeat_interleave{grad}", _from_the_front("dim")) for grad in BOTH],
    *[Row(f"fill_diagonal_tensor{grad}", _from_the_front("dim1", "dim2")) for grad in BOTH],
    *[Row(f"fft_{kind}{grad}", _from_the_front("axes")) for kind in ("c2c", "c2r", "r2c") for grad in BOTH],
    *[Row(f"expand_as_v2{grad}", _target_shape) for grad in BOTH],
    *[Row(f"einsum{grad}", _equation) for grad in BOTH],
    Row("transpose_grad", lambda op: op.attrs.update(data_format="AnyLayout")),
    Row("split", _first_axis_of_split),
    Row("adamw", _adamw),
    Row("momentum", _momentum),
    Row("adadelta", _learning_rate),
    *[Row(kind, _states_of_tests) for kind in _WITH_STATES],
    Row("moving_average_abs_max_scale", _scale_of_tests),
]

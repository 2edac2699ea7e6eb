"""Writes ops on arrays of tensors. An array of PIR stays one value while its entries change."""

from __future__ import annotations

from ...ir.program import Operator
from ...opdef.registry import EMPTY, grad_slot
from .data import DENSE, Attribute, PirOp, PirType, PirValue
from .from_blocks import BlockWriter, Unwritable, is_in_place, writes, writes_arrays


def _input(at: BlockWriter, op: Operator, slot: str) -> PirValue:
    value = at.read(op.input(slot)[0])
    if value is None:
        raise Unwritable(f"its input {slot} is missing")
    return value


def _computed(at: BlockWriter, op: Operator, kind: str, operands: list[PirValue], slot: str = "Out", **attrs: Attribute) -> None:
    """Append an op with one result, which is the variable in a slot."""
    (name,) = op.output(slot)
    result = at.define(name)
    at.append(PirOp(kind, [*operands], [result], attrs))
    at.bind(name, result)


@writes("new_array")
def _new_array(at: BlockWriter, op: Operator) -> None:
    (name,) = op.output("Out")
    at.bind(name, at.empty_array(at.var(name)))


@writes("write_to_array")
def _write_to_array(at: BlockWriter, op: Operator) -> None:
    array = at.read(op.output("Out")[0])
    if array is None:
        raise Unwritable("it writes to nothing")
    at.append(PirOp("pd_op.array_write_", [array, _input(at, op, "X"), _input(at, op, "I")], [at.writer.value(array.type)]))


@writes("read_from_array")
def _read_from_array(at: BlockWriter, op: Operator) -> None:
    _computed(at, op, "pd_op.array_read", [_input(at, op, "X"), _input(at, op, "I")])


@writes("lod_array_length")
def _lod_array_length(at: BlockWriter, op: Operator) -> None:
    _computed(at, op, "pd_op.array_length", [_input(at, op, "X")])


@writes_arrays("slice")
def _slice(at: BlockWriter, op: Operator) -> None:
    start = _bound(at, op, "starts", "Starts")
    if op.attr("decrease_axis"):
        _computed(at, op, "pd_op.slice_array_dense", [_input(at, op, "Input"), start])
    else:
        _computed(at, op, "pd_op.slice_array", [_input(at, op, "Input"), start, _bound(at, op, "ends", "Ends")])


def _bound(at: BlockWriter, op: Operator, attr: str, slot: str) -> PirValue:
    for name in (f"{slot}TensorList", f"{slot}Tensor"):
        if op.inputs.get(name):
            return _input(at, op, name)
    return at.constant(op.attr(attr), "[]int64")


@writes("pop_from_array")
def _pop_from_array(at: BlockWriter, op: Operator) -> None:
    array = _input(at, op, "X")
    if not is_in_place(op):
        array = _copy(at, array)
        at.bind(op.output("Rest")[0], array)
    entry = at.define(op.output("Out")[0])
    index = Attribute("i32", op.attr("index"))
    at.append(PirOp("pd_op.array_pop", [array], [at.writer.value(array.type), entry], {"index": index}))
    at.bind(op.output("Out")[0], entry)


def _copy(at: BlockWriter, array: PirValue) -> PirValue:
    result = at.writer.value(array.type, array.stop_gradient)
    at.append(PirOp("pd_op.assign_array", [array], [result]))
    return result


def _joining(axis: int, use_stack: bool) -> dict[str, Attribute]:
    return {"axis": Attribute("i32", axis), "use_stack": Attribute("bool", use_stack)}


def _joined(at: BlockWriter, op: Operator, array: PirValue, **how: Attribute) -> None:
    """Append the op that joins an array's entries into one tensor, and their sizes if the op has them."""
    (name,), sizes = op.output("Out"), (op.outputs.get("OutIndex") or [EMPTY])[0]
    results = [at.define(name), at.define(sizes) if sizes != EMPTY else at.writer.value(PirType(DENSE, "i32", (-1,)), True)]
    at.append(PirOp("pd_op.array_to_tensor", [array], [*results], how))
    at.bind(name, results[0])
    at.bind(sizes, results[1])


@writes("tensor_array_to_tensor")
def _tensor_array_to_tensor(at: BlockWriter, op: Operator) -> None:
    _joined(at, op, _input(at, op, "X"), **_joining(op.attr("axis"), op.attr("use_stack")))


@writes("stack_array")
def _stack_array(at: BlockWriter, op: Operator) -> None:
    _joined(at, op, _input(at, op, "X"), **_joining(0, True))


@writes("join_array")
def _join_array(at: BlockWriter, op: Operator) -> None:
    """Join the entries of an array; missing ones are zeros."""
    array, like = _input(at, op, "X"), _input(at, op, "Like")
    zeros, filled = (at.writer.value(like.type) for _ in range(2))
    at.append(PirOp("pd_op.create_array_like", [like], [zeros], {"val": Attribute("f32", 0.0)}))
    at.append(PirOp("pd_op.add_n_array", [at.combined([zeros, array])], [filled]))
    _joined(at, op, filled, **_joining(op.attr("axis"), op.attr("use_stack")))


@writes("split_array")
def _split_array(at: BlockWriter, op: Operator) -> None:
    operands = [_input(at, op, "Like"), _input(at, op, "X")]
    _computed(at, op, "pd_op.tensor_to_array", operands, slot="Out", **_joining(op.attr("axis"), op.attr("use_stack")))


@writes("tensor_array_to_tensor_grad")
def _tensor_array_to_tensor_grad(at: BlockWriter, op: Operator) -> None:
    operands = [_input(at, op, "X"), _input(at, op, grad_slot("Out"))]
    how = _joining(op.attr("axis"), op.attr("use_stack"))
    _computed(at, op, "pd_op.tensor_to_array", operands, slot=grad_slot("X"), **how)


@writes("fill_array_like")
def _fill_array_like(at: BlockWriter, op: Operator) -> None:
    _computed(at, op, "pd_op.create_array_like", [_input(at, op, "X")], val=Attribute("f32", float(op.attr("value"))))


@writes_arrays("assign")
def _assign(at: BlockWriter, op: Operator) -> None:
    _computed(at, op, "pd_op.assign_array", [_input(at, op, "X")])


@writes_arrays("sum")
def _sum(at: BlockWriter, op: Operator) -> None:
    _computed(at, op, "pd_op.add_n_array", [at.combined(map(at.read, op.input("X")))])

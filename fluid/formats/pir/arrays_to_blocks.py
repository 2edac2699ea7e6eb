"""Reads PIR's arrays of tensors as arrays of blocks. In PIR, all values that stand for an array see the changes of each op."""

from __future__ import annotations

from typing import Any

from ...errors import FormatError
from .data import ARRAY, PirOp, PirValue
from .special_to_blocks import expect
from .to_blocks import BlockReader, special

_END = 2**31 - 1
"""The end of a slice that goes to the end of the array."""


def _array(at: BlockReader, op: PirOp, value: PirValue | None) -> str:
    """The name of an operand that should be an array."""
    if value is None or value.type.kind != ARRAY:
        raise FormatError(f"{op.name}: its first operand should be an array of tensors")
    return at.name(value)


@special("pd_op.create_array")
def _create_array(at: BlockReader, op: PirOp) -> None:
    """An array is made where it is declared; in a loop, in each run of the block."""
    expect(op, 0, 1)
    at.declare(op.results[0], f"array_{op.results[0].id}")


@special("pd_op.array_write_")
def _array_write(at: BlockReader, op: PirOp) -> None:
    expect(op, 3, 1)
    array = at.reader.names[op.results[0]] = _array(at, op, op.operands[0])
    at.append("write_to_array", {"X": [at.name(op.operands[1])], "I": [at.name(op.operands[2])]}, {"Out": [array]}, {})


@special("pd_op.array_read")
def _array_read(at: BlockReader, op: PirOp) -> None:
    expect(op, 2, 1)
    array, position = _array(at, op, op.operands[0]), at.name(op.operands[1])
    out = at.declare(op.results[0], f"array_read_{op.results[0].id}")
    at.append("read_from_array", {"X": [array], "I": [position]}, {"Out": [out.name]}, {})


@special("pd_op.slice_array")
def _slice_array(at: BlockReader, op: PirOp) -> None:
    expect(op, 3, 1)
    _sliced(at, op, {"StartsTensorList": [_bound(at, op, 1)], "EndsTensorList": [_bound(at, op, 2)]}, [])


@special("pd_op.slice_array_dense")
def _slice_array_dense(at: BlockReader, op: PirOp) -> None:
    """One entry, whose position may be counted from the end."""
    expect(op, 2, 1)
    _sliced(at, op, {"StartsTensorList": [_bound(at, op, 1)]}, [0])


def _sliced(at: BlockReader, op: PirOp, bounds: dict[str, list[str]], decrease_axis: list[int]) -> None:
    array = _array(at, op, op.operands[0])
    out = at.declare(op.results[0], f"slice_{op.results[0].id}")
    attrs = {"axes": [0], "starts": [0], "ends": [_END], "infer_flags": [-1], "decrease_axis": decrease_axis}
    at.append("slice", {"Input": [array], **bounds}, {"Out": [out.name]}, attrs)


def _bound(at: BlockReader, op: PirOp, index: int) -> str:
    """The one number in an operand that holds bounds."""
    names = at.all_names(op.operands[index])
    if len(names) != 1:
        raise FormatError(f"{op.name}: its operand {index} should hold one number, not {len(names)}")
    return names[0]


@special("pd_op.array_pop")
def _array_pop(at: BlockReader, op: PirOp) -> None:
    expect(op, 1, 2)
    array, index = _array(at, op, op.operands[0]), op.attr("index", -1)
    if type(index) is not int:
        raise FormatError(f"pd_op.array_pop: its index should be an integer, not {index!r}")
    at.reader.names[op.results[0]] = array
    out = at.declare(op.results[1], f"array_pop_{op.results[1].id}", shape=_shape_of_entries(op))
    at.append("pop_from_array", {"X": [array]}, {"Rest": [array], "Out": [out.name]}, {"index": index})


def _shape_of_entries(op: PirOp) -> tuple[int, ...]:
    """The shape of the first operand's entries: Paddle gives ``[0]`` as the shape of a popped entry."""
    array = op.operands[0]
    return () if array is None else array.type.shape


@special("pd_op.array_length")
def _array_length(at: BlockReader, op: PirOp) -> None:
    expect(op, 1, 1)
    array = _array(at, op, op.operands[0])
    out = at.declare(op.results[0], f"array_length_{op.results[0].id}", stop_gradient=True)
    at.append("lod_array_length", {"X": [array]}, {"Out": [out.name]}, {})


@special("pd_op.array_to_tensor")
def _array_to_tensor(at: BlockReader, op: PirOp) -> None:
    expect(op, 1, 2)
    array, (value, sizes) = _array(at, op, op.operands[0]), op.results
    outputs = {
        "Out": [at.declare(value, f"array_to_tensor_{value.id}").name],
        "OutIndex": [at.declare(sizes, f"array_to_tensor_{value.id}.sizes", stop_gradient=True).name],
    }
    at.append("tensor_array_to_tensor", {"X": [array]}, outputs, _joining(op))


def _joining(op: PirOp) -> dict[str, Any]:
    """The attributes that say how the entries are joined."""
    axis, use_stack = op.attr("axis", 0), op.attr("use_stack", False)
    if type(axis) is not int or type(use_stack) is not bool:
        raise FormatError(f"{op.name}: its axis should be an integer, and use_stack a bool")
    return {"axis": axis, "use_stack": use_stack}


@special("pd_op.tensor_to_array")
def _tensor_to_array(at: BlockReader, op: PirOp) -> None:
    """Split the gradient into parts shaped like the entries that `array_to_tensor` joined."""
    expect(op, 2, 1)
    inputs = {"X": [at.name(op.operands[1])], "Like": [_array(at, op, op.operands[0])]}
    out = at.declare(op.results[0], f"array_{op.results[0].id}")
    at.append("split_array", inputs, {"Out": [out.name]}, _joining(op))


@special("pd_op.create_array_like")
def _create_array_like(at: BlockReader, op: PirOp) -> None:
    expect(op, 1, 1)
    array, value = _array(at, op, op.operands[0]), op.attr("val", 0.0)
    if type(value) not in (int, float):
        raise FormatError(f"pd_op.create_array_like: its value should be a number, not {value!r}")
    out = at.declare(op.results[0], f"array_{op.results[0].id}")
    at.append("fill_array_like", {"X": [array]}, {"Out": [out.name]}, {"value": float(value)})


@special("pd_op.assign_array")
def _assign_array(at: BlockReader, op: PirOp) -> None:
    expect(op, 1, 1)
    array = _array(at, op, op.operands[0])
    out = at.declare(op.results[0], f"array_{op.results[0].id}")
    at.append("assign", {"X": [array]}, {"Out": [out.name]}, {})


@special("pd_op.add_n_array")
def _add_n_array(at: BlockReader, op: PirOp) -> None:
    expect(op, 1, 1)
    arrays = at.all_names(op.operands[0])
    out = at.declare(op.results[0], f"array_{op.results[0].id}")
    at.append("sum", {"X": arrays}, {"Out": [out.name]}, {})

"""Readers for the ops of PIR that have no row in the table: the dialect ``builtin``, edges of the program, constants."""

from __future__ import annotations

from typing import Any

from ...errors import FormatError
from ...opdef.registry import EMPTY
from ...values.types import VarType
from .data import DTYPES, ELEMENTS, PirOp
from .to_blocks import BlockReader, special


def expect(op: PirOp, operands: int, results: int) -> None:
    """`FormatError` unless the op has so many operands and results."""
    if (len(op.operands), len(op.results)) != (operands, results):
        raise FormatError(
            f"{op.name} has {len(op.operands)} operands and {len(op.results)} results; it should have {operands} and {results}"
        )


def _text(op: PirOp, name: str) -> str:
    value = op.attr(name)
    if not isinstance(value, str) or not value:
        raise FormatError(f"{op.name}: its attribute {name} should be a name, not {value!r}")
    return value


# -------------------------------------------------------------------------------------------------------------- edges
@special("builtin.parameter")
def _parameter(at: BlockReader, op: PirOp) -> None:
    expect(op, 0, 1)
    name, value = _text(op, "parameter_name"), op.results[0]
    root = at.reader.program.global_block()
    dtype = ELEMENTS.get(value.type.dtype)
    if name in root.vars or at.block is not root or dtype is None or any(size < 0 for size in value.type.shape):
        raise FormatError(f"the parameter {name} is there twice, in a region, or has no type of known sizes")
    at.reader.names[value] = name
    if not value.persistable:  # made anew by each process, and in no file
        at.variable(name, value)
        return
    var = root.create_parameter(name=name, shape=value.type.shape, dtype=dtype, trainable=op.attr("trainable") is True)
    var.stop_gradient = value.stop_gradient


@special("pd_op.data", "pd_op.feed")
def _data(at: BlockReader, op: PirOp) -> None:
    expect(op, 0, 1)
    name, value = _text(op, "name"), op.results[0]
    if name in at.block.vars or at.block.parent is not None:
        raise FormatError(f"{op.name}: the name {name} is there twice, or in a region")
    at.reader.names[value] = name
    at.variable(name, value, is_data=not value.persistable, need_check_feed=not value.persistable)
    if not value.persistable:
        at.reader.feeds.append(name)


@special("pd_op.fetch")
def _fetch(at: BlockReader, op: PirOp) -> None:
    expect(op, 1, len(op.results))
    column = op.attr("col", len(at.reader.columns))
    at.reader.columns.append((at.name(op.operands[0]), column if isinstance(column, int) else 0))
    for value in op.results:
        at.reader.names[value] = at.name(op.operands[0])


@special("builtin.shadow_output", "builtin.set_parameter")
def _set_parameter(at: BlockReader, op: PirOp) -> None:
    expect(op, 1, 0)
    name = _text(op, "output_name" if op.name.endswith("shadow_output") else "parameter_name")
    value = op.operands[0]
    if value is None:
        raise FormatError(f"{op.name} has no operand")
    if at.block.find_var(name) is None:
        at.variable(name, value, persistable=True)
    if at.name(value) != name:
        at.append("assign", {"X": [at.name(value)]}, {"Out": [name]}, {})


# -------------------------------------------------------------------------------------------------------------- lists
@special("builtin.combine")
def _combine(at: BlockReader, op: PirOp) -> None:
    expect(op, len(op.operands), 1)
    at.reader.lists[op.results[0]] = list(op.operands)


@special("builtin.split")
def _split(at: BlockReader, op: PirOp) -> None:
    expect(op, 1, len(op.results))
    parts = at.reader.lists.get(op.operands[0]) if op.operands[0] is not None else None
    if parts is None or len(parts) != len(op.results):
        raise FormatError("builtin.split: its operand is no list of as many values as it has results")
    for value, part in zip(op.results, parts, strict=True):
        at.reader.names[value] = at.name(part)


@special("builtin.slice")
def _slice(at: BlockReader, op: PirOp) -> None:
    expect(op, 1, 1)
    parts = at.reader.lists.get(op.operands[0]) if op.operands[0] is not None else None
    index = op.attr("index")
    if parts is None or not isinstance(index, int) or not 0 <= index < len(parts):
        raise FormatError(f"builtin.slice: {index!r} is no position in the list that it reads")
    at.reader.names[op.results[0]] = at.name(parts[index])


# ----------------------------------------------------------------------------------------------------------- constants
def _dtype(op: PirOp) -> VarType:
    return DTYPES.get(op.attr("dtype"), ELEMENTS.get(op.results[0].type.dtype, VarType.FP32))


@special("pd_op.full")
def _full(at: BlockReader, op: PirOp) -> None:
    expect(op, 0, 1)
    value = op.results[0]
    if value not in at.reader.read_as_tensors and value in at.reader.constants and not value.persistable:
        return
    number, dtype = op.attr("value"), _dtype(op)
    if type(number) not in (int, float, bool):
        raise FormatError(f"pd_op.full: its value should be a number, not {number!r}")
    attrs: dict[str, Any] = {"shape": op.attr("shape"), "dtype": int(dtype), "value": float(number)}
    if dtype is VarType.INT64 and float(number) != number:
        attrs["str_value"] = str(number)
    out = at.declare(value, f"full_{value.id}")
    at.append("fill_constant", {}, {"Out": [out.name]}, attrs)


@special("pd_op.full_int_array")
def _full_int_array(at: BlockReader, op: PirOp) -> None:
    expect(op, 0, 1)
    value = op.results[0]
    if value not in at.reader.read_as_tensors:
        return
    numbers = op.attr("value")
    if not isinstance(numbers, list) or any(type(number) is not int for number in numbers):
        raise FormatError("pd_op.full_int_array: its value should be a list of integers")
    _assign_values(at, op, [len(numbers)], _dtype(op), numbers)


_VALUES = {VarType.BOOL: "bool_values", VarType.INT32: "int32_values", VarType.INT64: "int64_values", VarType.FP32: "fp32_values",
           VarType.FP64: "fp64_values"}  # fmt: skip


def _assign_values(at: BlockReader, op: PirOp, shape: list[int], dtype: VarType, numbers: list[Any], out: str = "") -> None:
    out = out or at.declare(op.results[0], f"{op.name.partition('.')[2]}_{op.results[0].id}").name
    attr = _VALUES.get(dtype)
    if attr is None:
        raise FormatError(f"{op.name}: constants of {dtype.text} are not written by Paddle 3.0 to 3.3")
    plain = (
        [int(number) for number in numbers]
        if dtype in (VarType.BOOL, VarType.INT32, VarType.INT64)
        else list(map(float, numbers))
    )
    at.append("assign_value", {}, {"Out": [out]}, {"shape": shape, "dtype": int(dtype), attr: plain})


@special("pd_op.assign_value", "pd_op.assign_value_")
def _assign_value(at: BlockReader, op: PirOp) -> None:
    expect(op, len(op.operands), 1)
    shape, numbers = op.attr("shape"), op.attr("values")
    if not isinstance(shape, list) or not isinstance(numbers, list) or any(type(n) not in (int, float, bool) for n in numbers):
        raise FormatError(f"{op.name}: its values should be numbers, and its shape sizes")
    out = ""
    if op.operands:
        out = at.reader.names[op.results[0]] = at.name(op.operands[0])
    _assign_values(at, op, shape, _dtype(op), numbers, out)


@special("pd_op.full_with_tensor")
def _full_with_tensor(at: BlockReader, op: PirOp) -> None:
    expect(op, 2, 1)
    value, shape = op.operands
    inputs = {"ValueTensor": [at.name(value)]}
    inputs["ShapeTensorList" if shape in at.reader.lists else "ShapeTensor"] = at.all_names(shape)
    out = at.declare(op.results[0], f"full_{op.results[0].id}")
    at.append("fill_constant", inputs, {"Out": [out.name]}, {"dtype": int(_dtype(op)), "shape": []})


# ---------------------------------------------------------------------------------------------------------------- ops
@special("pd_op.shape64")
def _shape64(at: BlockReader, op: PirOp) -> None:
    """The op of 2.x gives int32."""
    expect(op, 1, 1)
    value = op.results[0]
    narrow = at.temporary(f"shape_{value.id}", value.type.shape, VarType.INT32, stop_gradient=True)
    at.append("shape", {"Input": [at.name(op.operands[0])]}, {"Out": [narrow]}, {})
    out = at.declare(value, f"shape64_{value.id}")
    at.append("cast", {"X": [narrow]}, {"Out": [out.name]}, {"in_dtype": int(VarType.INT32), "out_dtype": int(VarType.INT64)})


@special("pd_op.assign_out_")
def _assign_out(at: BlockReader, op: PirOp) -> None:
    expect(op, 2, 1)
    target = at.name(op.operands[1])
    if target == EMPTY:
        raise FormatError("pd_op.assign_out_ has nothing to write to")
    at.reader.names[op.results[0]] = target
    at.append("assign", {"X": [at.name(op.operands[0])]}, {"Out": [target]}, {})


@special("pd_op.arange")
def _arange(at: BlockReader, op: PirOp) -> None:
    """Read ``arange``. The op of 2.x counts in the type of its inputs."""
    expect(op, 3, 1)
    value, dtype = op.results[0], _dtype(op)
    names = []
    for operand in op.operands:
        name = at.name(operand)
        declared = at.block.find_var(name)
        if declared is not None and declared.has_dtype and declared.dtype is not dtype:
            narrow = at.temporary(f"{name}.{dtype.text}", declared._shape, dtype, stop_gradient=True)
            at.append("cast", {"X": [name]}, {"Out": [narrow]}, {"in_dtype": int(declared.dtype), "out_dtype": int(dtype)})
            name = narrow
        names.append([name])
    out = at.declare(value, f"arange_{value.id}")
    at.append("range", dict(zip(("Start", "End", "Step"), names, strict=True)), {"Out": [out.name]}, {})

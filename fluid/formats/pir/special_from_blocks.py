"""Ops whose equivalents in PIR the table does not tell: edges of the program, constants, branches and loops."""

from __future__ import annotations

from typing import Any

from ...ir.program import Block, Operator
from ...values.types import VarType
from .data import DENSE, ELEMENTS, Attribute, PirOp, PirType, PirValue
from .from_blocks import PLACE, BlockWriter, Unwritable, type_of, writes


# --------------------------------------------------------------------------------------------------------------- edges
@writes("feed")
def _feed(at: BlockWriter, op: Operator) -> None:
    """Append nothing: a feed is declared at the start, as ``pd_op.data``."""


@writes("fetch")
def _fetch(at: BlockWriter, op: Operator) -> None:
    value = at.read(op.input("X")[0])
    if value is None:
        raise Unwritable("it fetches nothing")
    column = int(op.attrs.get("col", 0))
    result = at.writer.value(value.type, value.stop_gradient)
    result.persistable = True
    attrs = {"name": Attribute("str", f"fetch_name_{column}"), "col": Attribute("i32", column)}
    at.append(PirOp("pd_op.fetch", [value], [result], attrs))


# ----------------------------------------------------------------------------------------------------------- constants
@writes("fill_constant")
def _fill_constant(at: BlockWriter, op: Operator) -> None:
    dtype, value = VarType(op.attr("dtype")), op.attr("value")
    text = op.attr("str_value")
    if text:
        value = float(text) if dtype not in (VarType.INT32, VarType.INT64) else int(text)
    if abs(value) < 1 << 53 or value != value or abs(value) == float("inf"):
        value = float(value)
    number, described = Attribute("f64", float(value)), Attribute("dtype", dtype.text)
    sizes = op.inputs.get("ShapeTensorList") or op.inputs.get("ShapeTensor") or []
    (name,) = op.output("Out")
    result = at.define(name)
    if sizes or op.inputs.get("ValueTensor"):
        shape = at.combined(map(at.read, sizes)) if op.inputs.get("ShapeTensorList") else at.read(sizes[0]) if sizes else None
        shape = shape if shape is not None else at.constant(op.attr("shape"), "[]int64")
        fill = at.read(op.inputs["ValueTensor"][0]) if op.inputs.get("ValueTensor") else at.constant(value, dtype.text)
        at.append(PirOp("pd_op.full_with_tensor", [fill, shape], [result], {"dtype": described}))
    else:
        attrs = {"shape": Attribute("intarray", list(op.attr("shape"))), "value": number, "dtype": described, "place": PLACE}
        at.append(PirOp("pd_op.full", [], [result], attrs))
    at.bind(name, result)


_VALUES = {
    VarType.BOOL: ("bool_values", "bool", bool),
    VarType.INT32: ("int32_values", "i32", int),
    VarType.INT64: ("int64_values", "i64", int),
    VarType.FP32: ("fp32_values", "f32", float),
    VarType.FP64: ("fp64_values", "f64", float),
}


@writes("assign_value")
def _assign_value(at: BlockWriter, op: Operator) -> None:
    dtype = VarType(op.attr("dtype"))
    if dtype not in _VALUES:
        raise Unwritable(f"it lists values of {dtype.text}")
    attr, kind, convert = _VALUES[dtype]
    values = op.attr(attr) or op.attrs.get("values") or []
    (name,) = op.output("Out")
    result = at.define(name)
    attrs = {
        "shape": Attribute("[i32]", list(op.attr("shape"))),
        "dtype": Attribute("dtype", dtype.text),
        "values": Attribute(f"[{kind}]", [convert(value) for value in values]),
        "place": PLACE,
    }
    at.append(PirOp("pd_op.assign_value", [], [result], attrs))
    at.bind(name, result)


# ------------------------------------------------------------------------------------------------------------ branches
def _inner(at: BlockWriter, op: Operator, around: dict[str, PirValue]) -> tuple[BlockWriter, Block]:
    body: Any = op.attrs.get("sub_block")
    if not isinstance(body, Block):
        raise Unwritable("it owns no block")
    inner = BlockWriter(at.writer, body, around)
    inner.shapes.update(at.shapes)
    return inner, body


def _yields(at: BlockWriter, values: list[PirValue | None]) -> None:
    at.append(PirOp("cf.yield", values))


def _blank(at: BlockWriter, name: str) -> PirValue:
    """Zeros, or an empty array, for a variable without a value in the branch that does not run."""
    if at.is_array(name):
        return at.empty_array(at.var(name))
    type_ = type_of(at.var(name))
    result = at.writer.value(type_, True)
    attrs = {
        "shape": Attribute("intarray", [max(size, 1) for size in type_.shape]),
        "value": Attribute("f64", 0.0),
        "dtype": Attribute("dtype", ELEMENTS[type_.dtype].text),
        "place": PLACE,
    }
    at.append(PirOp("pd_op.full", [], [result], attrs))
    return result


def _other_branch(at: BlockWriter, op: Operator) -> tuple[Operator, list[Operator]] | None:
    """The op that runs where this one does not, and the ops that choose between the results of both; None if there are none."""
    ops = at.block.ops
    after = ops[next(i for i, partner in enumerate(ops) if partner is op) + 1 :]
    negations = {
        partner.output("Out")[0] for partner in after if partner.type == "logical_not" and partner.input("X") == op.input("Cond")
    }
    partner = next(
        (later for later in after if later.type == op.type and later.input("Cond")[:1] and later.input("Cond")[0] in negations),
        None,
    )
    if partner is None:
        return None
    ours, theirs = ({*_handed_on(at, branch)} for branch in (op, partner))
    chosen = [one for one in after if one.type == "select_input" and len(one.input("X")) == 2]
    chosen = [one for one in chosen if one.input("X")[0] in theirs and one.input("X")[1] in ours]
    read = {name for later in after if later not in chosen and later is not partner for name in later.input_arg_names}
    if (ours | theirs) & read or (ours & theirs) or (ours | theirs) & at.values.keys():
        return None
    return partner, chosen


def _handed_on(at: BlockWriter, op: Operator) -> list[str]:
    """The variables around a branch that get other values in it."""
    replaced = {*at.handed_on(op.sub_blocks[0])}
    return [name for name in op.output("Out") if name in replaced]


@writes("conditional_block")
def _conditional_block(at: BlockWriter, op: Operator) -> None:
    if not op.attr("is_scalar_condition"):
        raise Unwritable("its condition is no single bool")
    if op in at.paired:
        return
    pair = _other_branch(at, op)
    if pair is not None:
        partner, choices = pair
        at.paired.update((partner, *choices))
        _if(at, op, partner, [(one.output("Out")[0], one.input("X")[1], one.input("X")[0]) for one in choices])
    else:
        _if(at, op, None, [(name, name, name) for name in _handed_on(at, op)])


def _if(at: BlockWriter, op: Operator, partner: Operator | None, results: list[tuple[str, str, str]]) -> None:
    """Append an if. A result is a triple: its name, and its names in the two branches."""
    regions = []
    for branch, index in ((op, 1), (partner, 2)):
        inner, _ = _inner(at, branch or op, at.values)
        if branch is not None:
            inner.write()
        values: list[PirValue | None] = []
        for names in results:
            held = inner.values.get(names[index])
            values.append(held if held is not None else _blank(inner, names[0]))
        _yields(inner, values)
        regions.append(inner.pir)
    outputs = [at.define(name) for name, _, _ in results]
    at.append(PirOp("pd_op.if", [at.read(op.input("Cond")[0])], outputs, {}, regions))
    for (name, _, _), value in zip(results, outputs, strict=True):
        at.bind(name, value)


@writes("select_input")
def _select_input(at: BlockWriter, op: Operator) -> None:
    """One of two values: written with the branches, where it belongs to such."""
    if op in at.paired:
        return
    names = op.input("X")
    mask = at.read(op.input("Mask")[0])
    if len(names) != 2 or mask is None:
        raise Unwritable(f"it chooses among {len(names)} values")
    (name,) = op.output("Out")
    condition = at.writer.value(PirType(DENSE, "bool", mask.type.shape), True)
    at.append(PirOp("pd_op.cast", [mask], [condition], {"dtype": Attribute("dtype", "bool")}))
    regions = []
    for source in (names[1], names[0]):
        inner = BlockWriter(at.writer, at.block, at.values)
        _yields(inner, [inner.read(source)])
        regions.append(inner.pir)
    result = at.define(name)
    at.append(PirOp("pd_op.if", [condition], [result], {}, regions))
    at.bind(name, result)


# --------------------------------------------------------------------------------------------------------------- loops
@writes("while")
def _while(at: BlockWriter, op: Operator) -> None:
    (condition,) = op.input("Condition")
    _, body = _inner(at, op, at.values)
    handed_on = at.handed_on(body)
    carried = [name for name in handed_on if name != condition and not at.var(name).persistable]
    overwritten = [name for name in handed_on if at.var(name).persistable]
    if overwritten:
        raise Unwritable(f"its block overwrites {', '.join(overwritten)}, which persists")
    first = [at.read(condition), *(at.values.get(name) or _blank(at, name) for name in carried)]
    inner, _ = _inner(at, op, at.values)
    for name in carried:
        value = at.writer.argument(type_of(at.var(name)), at.var(name).stop_gradient)
        inner.pir.args.append(value)
        inner.values[name] = value
    inner.write()
    _yields(inner, [inner.read(name) for name in (condition, *carried)])
    results = [at.define(name) for name in carried]
    at.append(PirOp("pd_op.while", first, results, {}, [inner.pir]))
    for name, value in zip(carried, results, strict=True):
        at.values[name] = value

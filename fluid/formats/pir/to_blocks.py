"""Makes a `Program` of a program of PIR: values get names, regions become blocks, constants become attributes again.

An op whose name ends in ``_`` overwrites an operand: there its result has the operand's name. An op without a correspondence in
2.x keeps its name: its type is its name in PIR, its slots are numbered, with a star for lists, and its attributes have their
types in their names. So nothing is lost, and it can be written again; ops that cannot run are listed before a program runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...errors import FormatError
from ...ir.inference import infer_shape
from ...ir.program import Block, Operator, OpRole, Program, Variable
from ...opdef import registry
from ...opdef.registry import EMPTY
from ...values.types import VarType
from .data import ARRAY, DTYPES, ELEMENTS, Attribute, PirBlock, PirOp, PirProgram, PirValue
from .table import IGNORED, Operand, PirRow, row_from, updated_operands

CONSTANTS = frozenset({"pd_op.full", "pd_op.full_int_array"})
"""Ops whose results stand for attributes, where an op takes them as such."""
XSHAPE = "XShape"
NAME_SCOPE = "op_namescope"
"""The attribute for PIR's ``struct_name``: the part of the model that an op belongs to."""
SINGLE = {
    "ShapeTensorList": "ShapeTensor",
    "StartsTensorList": "StartsTensor",
    "EndsTensorList": "EndsTensor",
    "StridesTensorList": "StridesTensor",
    "AxesTensorList": "AxesTensor",
    "repeat_times_tensor": "RepeatTimes",
    "expand_shapes_tensor": "Shape",
    "ShapeTensor": "Shape",
}
"""Slot of many numbers, one by one -> the slot of one tensor with all: the translation shows only one of them."""
UPDATES = frozenset(
    {"sgd", "momentum", "adam", "adamw", "adamax", "adagrad", "adadelta", "rmsprop", "lamb", "lars_momentum", "merged_momentum",
     "merged_adam", "ftrl", "dpsgd", "decayed_adagrad", "average_accumulates", "nadam", "radam", "rprop", "asgd"}
)  # fmt: skip
"""Ops of optimizers."""

_KINDS = {
    ARRAY: VarType.LOD_TENSOR_ARRAY,
    "selected_rows": VarType.SELECTED_ROWS,
    "slrow": VarType.SELECTED_ROWS,
}
"""Kinds of variables, by types of PIR."""

Special = Callable[["BlockReader", PirOp], None]
SPECIAL: dict[str, Special] = {}
"""Ops of PIR that are read by functions of their own."""


def special(*names: str) -> Callable[[Special], Special]:
    """A decorator for the function that reads these ops."""

    def decorate(function: Special) -> Special:
        SPECIAL.update(dict.fromkeys(names, function))
        return function

    return decorate


def program_of(pir: PirProgram) -> Program:
    """The program in blocks; `FormatError` where ops do not fit together."""
    reader = PirReader(pir)
    BlockReader(reader, reader.program.global_block()).read(pir.block)
    reader.finish()
    return reader.program


class PirReader:
    """The state of reading one program."""

    def __init__(self, pir: PirProgram) -> None:
        self.program = Program()
        self.names: dict[PirValue, str] = {}
        self.lists: dict[PirValue, list[PirValue | None]] = {}
        """Value of type ``vec`` -> the values in it."""
        self.constants: dict[PirValue, PirOp] = {}
        self.stacks: dict[PirValue, Any] = {}
        """Value that stands for a stack -> the state of the stack in `control_to_blocks`."""
        self.xshapes: dict[str, str] = {}
        """Name of an op's input -> the variable that keeps its shape for gradient ops."""
        self.columns: list[tuple[str, int]] = []
        self.feeds: list[str] = []
        self.used: set[str] = {"feed", "fetch"}
        self.numbers: dict[str, int] = {}
        """The last number that was put behind a name."""
        self.backward = False
        self.read_as_tensors: set[PirValue] = set()
        for op in _all_ops(pir.block):
            if op.name in CONSTANTS and len(op.results) == 1:
                self.constants[op.results[0]] = op
            self.used.update(attr.value for attr in op.attrs.values() if attr.type == "str")
        for op in _all_ops(pir.block):
            attribute_slots = attribute_operands(op)
            for at, value in enumerate(op.operands):
                if value in self.constants and not (
                    at in attribute_slots and _is_attribute(attribute_slots[at], self.constants[value])
                ):
                    self.read_as_tensors.add(value)

    def fresh(self, base: str) -> str:
        """A name that nothing has."""
        name = base
        while name in self.used:
            self.numbers[base] = self.numbers.get(base, 0) + 1
            name = f"{base}.{self.numbers[base]}"
        self.used.add(name)
        return name

    def finish(self) -> None:
        """Append ops that feed and fetch, if the program says which values."""
        root = self.program.global_block()
        if not self.columns:
            return
        feed = root.create_var(name="feed", type=VarType.FEED_MINIBATCH, persistable=True)
        fetch = root.create_var(name="fetch", type=VarType.FETCH_LIST, persistable=True)
        root.ops[:0] = [
            Operator(root, "feed", {"X": [feed.name]}, {"Out": [name]}, {"col": column}) for column, name in enumerate(self.feeds)
        ]
        for column, (name, _) in enumerate(sorted(self.columns, key=lambda pair: pair[1])):
            root.ops.append(Operator(root, "fetch", {"X": [name]}, {"Out": [fetch.name]}, {"col": column}))


def _all_ops(block: PirBlock) -> Iterable[PirOp]:
    stack = [iter(block.ops)]
    while stack:
        for op in stack[-1]:
            yield op
            if op.regions:
                stack += [iter(region.ops) for region in op.regions]
                break
        else:
            stack.pop()


def row_of(op: PirOp) -> PirRow | None:
    """The row of an op. An op that overwrites an operand may use the row of the op that does not."""
    dialect, _, name = op.name.partition(".")
    if dialect != "pd_op" or op.name in SPECIAL or op.regions:
        return None
    row = row_from(name)
    if row is None and name.endswith("_"):
        row = row_from(name[:-1])
    if row is None or len(op.operands) != len(row.operands) or len(op.results) > len(row.results) + 1:
        return None
    return row


def attribute_operands(op: PirOp) -> dict[int, Operand]:
    """Positions of operands that may be attributes."""
    row = row_of(op)
    if row is None:
        return {}
    return {at: operand for at, operand in enumerate(row.operands) if operand.type}


def _is_attribute(operand: Operand, constant: PirOp) -> bool:
    """Whether a constant can be an attribute: a list for lists, a single number for numbers."""
    value = constant.attr("value")
    if operand.slot and not operand.attr and value != operand.constant:
        return False  # the op takes it from a tensor alone
    if constant.name == "pd_op.full_int_array":
        return operand.type.startswith("[]") and isinstance(value, list)
    shape = constant.attr("shape")
    return isinstance(shape, list) and all(size == 1 for size in shape) and isinstance(value, (int, float))


class BlockReader:
    """Reads the ops of one block into a block of the program."""

    def __init__(self, reader: PirReader, block: Block) -> None:
        self.reader = reader
        self.block = block

    def read(self, pir: PirBlock) -> None:
        for op in pir.ops:
            function = SPECIAL.get(op.name)
            if function is not None:
                function(self, op)
                continue
            row = row_of(op)
            if row is None or not self.by_table(op, row):
                self.unknown(op)

    # -- variables
    def name(self, value: PirValue | None) -> str:
        """The name of a value; `EMPTY` for none."""
        if value is None:
            return EMPTY
        name = self.reader.names.get(value)
        if name is None:
            raise FormatError(f"the value {value.id} of PIR, a {value.type.kind}, is read where a tensor is expected")
        return name

    def all_names(self, value: PirValue | None) -> list[str]:
        """The names of the values in a list; of any other value, its own."""
        if value is None:
            return []
        parts = self.reader.lists.get(value)
        return [self.name(value)] if parts is None else [self.name(part) for part in parts]

    def declare(self, value: PirValue, base: str, **properties: Any) -> Variable:
        """A variable for a value."""
        name = self.reader.fresh(base)
        self.reader.names[value] = name
        return self.variable(name, value, **properties)

    def variable(self, name: str, value: PirValue, **properties: Any) -> Variable:
        """A variable of the type that a value has."""
        type_ = value.type
        dtype = ELEMENTS.get(type_.dtype)
        kind = _KINDS.get(type_.kind, VarType.LOD_TENSOR)
        defaults = {"shape": type_.shape, "persistable": value.persistable, "stop_gradient": value.stop_gradient}
        var = Variable(self.block, name=name, dtype=dtype, type=kind, **{**defaults, **properties})
        self.block.vars[name] = var
        return var

    def another(self, value: PirValue, base: str, stop_gradient: bool = False) -> str:
        """A new variable of the type that a value has, which is not the value."""
        name = self.reader.fresh(base)
        return self.variable(name, value, persistable=False, stop_gradient=stop_gradient).name

    def temporary(self, base: str, shape: Iterable[int] | None, dtype: VarType | None, stop_gradient: bool = False) -> str:
        """A new variable, not of a value of PIR."""
        name = self.reader.fresh(base)
        sizes = None if shape is None else tuple(shape)
        self.block.vars[name] = Variable(self.block, name=name, shape=sizes, dtype=dtype, stop_gradient=stop_gradient)
        return name

    def results(self, op: PirOp, value: PirValue, base: str) -> list[str]:
        """Declare a result: one variable, several for a list, `EMPTY` for nothing."""
        if value.type.kind == "null":
            self.reader.names[value] = EMPTY
            return [EMPTY]
        if value.type.kind == "vec":
            parts = [PirValue(0, part, value.stop_gradient) for part in value.type.parts]
            self.reader.lists[value] = list(parts)
            return [name for at, part in enumerate(parts) for name in self.results(op, part, f"{base}.{at}")]
        return [self.declare(value, base).name]

    # -- ops
    def append(self, type_: str, inputs: dict[str, list[str]], outputs: dict[str, list[str]], attrs: dict[str, Any]) -> Operator:
        op = Operator(self.block, type_, inputs, outputs, attrs)
        role = self.role(type_)
        if role:
            op.attrs[OpRole.NAME] = role
        self.block.ops.append(op)
        return op

    def infer(self, op: Operator) -> None:
        """Set shapes and types of outputs that PIR does not have."""
        infer_shape(op)

    def role(self, type_: str) -> int:
        """Gradient ops and all after them are the backward part, but for ops of optimizers."""
        if type_ in UPDATES:
            return OpRole.OPTIMIZE
        if type_.endswith("_grad"):
            self.reader.backward = True
        return OpRole.BACKWARD if self.reader.backward else OpRole.FORWARD

    def by_table(self, op: PirOp, row: PirRow) -> bool:
        """Append the op of 2.x that a row names; return False if an operand or attribute has no place in it."""
        definition = registry.find(row.type)
        inputs: dict[str, list[str]] = {}
        attrs: dict[str, Any] = dict(row.implied)
        for operand, value in zip(row.operands, op.operands, strict=True):
            constant = self.reader.constants.get(value) if value is not None else None
            if constant is not None and operand.type and _is_attribute(operand, constant):
                if operand.attr:
                    attrs[operand.attr] = converted(constant.attr("value"), _kind(definition, operand.attr), operand.type)
                elif operand.constant != constant.attr("value") and operand.constant is not None:
                    return False
                continue
            if value is None or (row.pir, operand.name) in IGNORED:
                continue
            if not operand.slot:
                return False
            slot = operand.slot
            if operand.many and operand.type and value not in self.reader.lists:
                slot = SINGLE.get(slot, slot)
            if slot == XSHAPE:
                inputs[slot] = [self.xshape(self.name(value), value)]
            else:
                inputs[slot] = self.all_names(value)
        names = {attr.name: attr for attr in row.attrs}
        for name, attribute in op.attrs.items():
            attr = names.get(name)
            if attr is not None and attr.attr:
                value_of = attribute_value(attribute, _kind(definition, attr.attr))
                if value_of is not None:
                    attrs[attr.attr] = value_of
            elif name == "struct_name" and attribute.type == "str":
                attrs[NAME_SCOPE] = attribute.value
            elif attr is None and name not in ("op_callstack", "chunk_id", "op_role"):
                attrs[f"{name}:{attribute.type}"] = attribute.value
        outputs = self.outputs_of(op, row)
        if definition is not None and "reduce_all" in definition.attrs and "dim" in attrs:
            attrs["reduce_all"] = not attrs["dim"]
        new_op = self.append(row.type, inputs, outputs, attrs)
        if definition is not None:
            self.say_types(row, op, new_op, definition)
            self.complete(new_op, definition)
        return True

    def say_types(self, row: PirRow, op: PirOp, new_op: Operator, definition: registry.OpDef) -> None:
        """Attributes for types of elements, which PIR has in the types of values alone."""
        names = new_op.inputs.get("X")
        source = self.block.find_var(names[0]) if names else None
        source_dtype = source.dtype if source is not None and source.has_dtype else None
        result = ELEMENTS.get(op.results[0].type.dtype) if op.results else None
        if "in_dtype" in definition.attrs and definition.attrs["in_dtype"].required:
            new_op.attrs["in_dtype"] = -1 if source_dtype is None else int(source_dtype)
        if (
            row.pir in ("sum", "prod") and result is not None and source_dtype is not result
        ):  # of bools and small integers, it is int64
            new_op.attrs["out_dtype"] = int(result)

    def outputs_of(self, op: PirOp, row: PirRow) -> dict[str, list[str]]:
        """The variables of the results, by slot: new ones, or operands that the op overwrites."""
        name = op.name.partition(".")[2]
        updated: dict[str, str] = {}
        if name.endswith("_"):
            updated = updated_operands(name, [one.name for one in row.operands], [one.name for one in row.results])
        sources = {operand.name: value for operand, value in zip(row.operands, op.operands, strict=True)}
        outputs: dict[str, list[str]] = {}
        for result, value in zip(row.results, op.results, strict=False):
            source = sources.get(updated.get(result.name, ""))
            if value.type.kind == "null":
                self.reader.names[value] = EMPTY
                if not result.slot.endswith("@GRAD"):
                    continue
                names = [EMPTY]
            elif source is not None and value.type.kind == "vec":
                self.reader.lists[value] = self.reader.lists.get(source, [source])
                names = self.all_names(source)
            elif source is not None:
                names = [self.name(source)]
                self.reader.names[value] = names[0]
            elif result.slot.endswith("@GRAD") and value.type.kind == "dtensor":
                of = sources.get(result.name.removesuffix("_grad"))
                base = f"{self.name(of)}@GRAD" if of is not None and of in self.reader.names else f"{name}_{value.id}"
                names = [self.declare(value, base).name]
            else:
                names = self.results(op, value, f"{name}_{value.id}")
            if result.slot:
                outputs[result.slot] = names
        return outputs

    def xshape(self, name: str, value: PirValue) -> str:
        """The variable that gives a gradient op the shape of the forward op's input."""
        xshape_name = self.reader.xshapes.get(name)
        if xshape_name is None or self.block.find_var(xshape_name) is None:
            xshape_name = self.temporary(f"{name}.xshape", (0, *value.type.shape), ELEMENTS.get(value.type.dtype))
            row = self.temporary(f"{name}.row", (1, *value.type.shape), ELEMENTS.get(value.type.dtype))
            self.append("unsqueeze2", {"X": [name]}, {"Out": [row], XSHAPE: [xshape_name]}, {"axes": [0]})
            self.reader.xshapes[name] = xshape_name
        return xshape_name

    def complete(self, op: Operator, definition: registry.OpDef) -> None:
        """Add outputs that the op has in 2.x alone."""
        lacking = [slot for slot in definition.outputs.values() if slot.name not in op.outputs and not slot.optional]
        if not lacking or op.type.endswith("_grad"):
            return
        for slot in lacking:
            source = self.block.find_var(op.inputs["X"][0]) if slot.name == XSHAPE and op.inputs.get("X") else None
            first = next(iter(op.outputs.values()), ["none"])[0]
            if source is not None:
                op.outputs[slot.name] = [self.temporary(f"{first}.xshape", (0, *(source._shape or ())), source._dtype)]
                self.reader.xshapes.setdefault(source.name, op.outputs[slot.name][0])
            else:
                op.outputs[slot.name] = [self.temporary(f"{first}.{slot.name}", None, None, stop_gradient=True)]
        if any(slot.name != XSHAPE for slot in lacking):
            self.infer(op)

    def unknown(self, op: PirOp) -> None:
        """Append an op that 2.x has no equivalent of, as it is."""
        if op.regions:
            raise FormatError(f"{op.name} owns regions, and is no op of Paddle 3.0 to 3.3 that is known here")
        inputs, outputs = {}, {}
        for at, operand in enumerate(op.operands):
            inputs[f"{at}*" if operand in self.reader.lists else str(at)] = self.all_names(operand) or [EMPTY]
        for at, result in enumerate(op.results):
            names = self.results(op, result, f"{op.name.partition('.')[2]}_{result.id}")
            outputs[f"{at}*" if result in self.reader.lists else str(at)] = names
        self.append(op.name, inputs, outputs, {f"{name}:{attr.type}": attr.value for name, attr in op.attrs.items()})


# --------------------------------------------------------------------------------------------------------- attributes
def _kind(definition: registry.OpDef | None, name: str) -> str:
    attr = definition.attrs.get(name) if definition is not None else None
    return attr.kind if attr is not None else ""


def attribute_value(attribute: Attribute, kind: str) -> Any:
    """The value of an attribute of 2.x of this kind; None if it is the default."""
    if attribute.type == "dtype":
        element = DTYPES.get(attribute.value)
        number = -1 if element is None else int(element)
        return attribute.value if kind == "string" else number
    if attribute.type == "place":
        return None
    return converted(attribute.value, kind, attribute.type)


def converted(value: Any, kind: str, type_: str) -> Any:
    """A value of a type of PIR, as Python has it in attributes of this kind."""
    if isinstance(value, list):
        return [converted(item, kind.removesuffix("s"), type_.strip("[]")) for item in value]
    if kind in ("ints", "longs", "floats", "float64s"):
        return [converted(value, kind[:-1], type_)]
    if type(value) in (int, float):
        if kind in ("int", "long"):
            return int(value) if value == value and abs(value) < 1 << 63 else value
        if type_ in ("f32", "float32") or kind == "float":
            with np.errstate(over="ignore"):
                return float(str(np.float32(value)))
        if kind == "bool":
            return bool(value)
    return value

"""Makes a program of PIR of a `Program`: each version of a name becomes a value, attributes become constants, blocks regions.

``pd_op.assign_out_`` writes the new value of a persistable variable into it, unless the op does so itself, as optimizers'
ops do. Ops that PIR has no equivalent of are rewritten before (`fluid.transform.op_versions`), or listed in one error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...errors import ProgramError, shown
from ...ir.program import Block, Operator, Parameter, Program, Variable
from ...ir.verify import refuse_deep
from ...ir.versions import outer_names
from ...opdef.registry import EMPTY, OpDef
from ...opdef.tables import OpTable
from ...values.types import VarType
from .data import ARRAY, DENSE, ELEMENTS, NULL, Attribute, PirBlock, PirOp, PirProgram, PirType, PirValue
from .table import Operand, PirAttr, PirRow, rows_to, updated_operands
from .to_blocks import NAME_SCOPE, SINGLE, UPDATES, XSHAPE

_NAMES = {element: name for name, element in ELEMENTS.items()}
_KINDS = {VarType.LOD_TENSOR: DENSE, VarType.LOD_TENSOR_ARRAY: ARRAY}
"""Kinds of values, by kinds of variables."""
_NEUTRAL = frozenset(
    {
        "in_dtype",
        "force_cpu",
        "place_type",
        "str_value",
        "reduce_all",
        "is_test",
        ("set_value", "dtype"),
        ("set_value_grad", "dtype"),
    }
)
"""Attributes that PIR need not have: it knows the types of values, and where they are."""
_DEFAULTS: Mapping[tuple[str, str], Any] = {
    ("round", "decimals"): 0,
    ("truncated_gaussian_random", "a"): -2.0,
    ("truncated_gaussian_random", "b"): 2.0,
}
"""Attributes that came after Paddle 2.6, and the values that give 2.6's behaviour."""
PLACE = Attribute("place", [0, 0, ""])
_ON_CPU = Attribute("place", [1, 0, ""])


class Unwritable(Exception):
    """Why an op cannot be written for Paddle 3."""


WriterOf = Callable[["BlockWriter", Operator], None]
WRITERS: OpTable[WriterOf] = OpTable("writer")
"""Ops that are written by functions of their own."""
ARRAY_WRITERS: OpTable[WriterOf] = OpTable("writer for arrays")
"""Ordinary ops that are written by functions of their own where an input is an array of tensors."""


def writes(*types: str) -> Callable[[WriterOf], WriterOf]:
    """A decorator for the function that writes these ops."""
    return WRITERS.register(*types)


def writes_arrays(*types: str) -> Callable[[WriterOf], WriterOf]:
    """A decorator for the function that writes these ops where an input is an array of tensors."""
    return ARRAY_WRITERS.register(*types)


def pir_of(program: Program) -> PirProgram:
    """The program as one of PIR.

    Raises:
        ProgramError: lists every op that has no equivalent.
    """
    refuse_deep(program)
    writer = PirWriter(program)
    root = BlockWriter(writer, program.global_block(), {})
    try:
        writer.declare(root)
    except Unwritable as reason:
        raise ProgramError(f"the program cannot be written for paddle-3: {reason}") from None
    root.write()
    if writer.refused:
        lines = [
            f"  - {type_}: {reason} ({'once' if count == 1 else f'{count} times'}, first as {first})"
            for (type_, reason), (count, first) in writer.refused.items()
        ]
        raise ProgramError("\n".join(["the program cannot be written for paddle-3:", *lines]))
    return PirProgram(root.pir)


class PirWriter:
    """The state of writing one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.refused: dict[tuple[str, str], tuple[int, str]] = {}
        self._last = 0
        self._last_arg = 0

    def value(self, type_: PirType, stop_gradient: bool = False) -> PirValue:
        self._last += 1
        return PirValue(self._last, type_, stop_gradient)

    def argument(self, type_: PirType, stop_gradient: bool) -> PirValue:
        """A value that a block is given: these are numbered downwards."""
        self._last_arg -= 1
        return PirValue(self._last_arg, type_, stop_gradient)

    def refuse(self, op: Operator, position: int, reason: object) -> None:
        key = op.type, str(reason)
        count, first = self.refused.get(key, (0, f"op {position} of block {op.block.idx}"))
        self.refused[key] = count + 1, first

    def declare(self, root: BlockWriter) -> None:
        """Declare parameters, then other variables that persist, then feeds."""
        block = self.program.global_block()
        used = {name for home in self.program.blocks for op in home.ops for name in (*op.input_arg_names, *op.output_arg_names)}
        only_updates = used - {
            name
            for home in self.program.blocks
            for op in home.ops
            if op.type not in UPDATES
            for name in (*op.input_arg_names, *op.output_arg_names)
        }
        states = []
        for var in sorted(block.vars.values(), key=lambda var: var.name):
            if not var.persistable or var.type is not VarType.LOD_TENSOR:
                continue
            if var.name in only_updates and not isinstance(var, Parameter):
                states.append(var)
                continue
            value = self.value(type_of(var), var.stop_gradient)
            value.persistable = True
            trainable = isinstance(var, Parameter) and var.trainable
            attrs = {"parameter_name": Attribute("str", var.name), "trainable": Attribute("bool", trainable)}
            root.append(PirOp("builtin.parameter", [], [value], attrs))
            root.values[var.name] = value
        for var in states:
            root.data(var, persistable=True)
        feeds = [op.output("Out")[0] for op in block.ops if op.type == "feed" and op.output("Out")]
        for name in feeds or [name for name, var in block.vars.items() if var.is_data]:
            root.data(block.var(name), persistable=False)


def type_of(var: Variable) -> PirType:
    """The type of the value that a variable holds."""
    if var.type not in _KINDS:
        advice = "; build the embedding with is_sparse=False" if var.type is VarType.SELECTED_ROWS else ""
        raise Unwritable(f"{var.name} is a {var.type.name.lower()}, and only tensors and arrays of them are written{advice}")
    if not var.has_dtype or var.dtype not in _NAMES:
        raise Unwritable(f"the element type of {var.name} is not known, or Paddle 3 has none like it")
    return PirType(_KINDS[var.type], _NAMES[var.dtype], tuple(max(size, -1) for size in var._shape or ()))


class BlockWriter:
    """Writes the ops of one block into a region; `values` says what names hold around it."""

    def __init__(self, writer: PirWriter, block: Block, around: Mapping[str, PirValue]) -> None:
        self.writer = writer
        self.block = block
        self.values: dict[str, PirValue] = dict(around)
        self.shapes: dict[str, PirValue] = {}
        """Variable that keeps a shape for gradient ops -> the variable with this shape."""
        self.paired: set[Operator] = set()
        """Ops that have been written with the branch that they belong to."""
        self.pir = PirBlock()

    def write(self) -> None:
        self.make_arrays()
        for position, op in enumerate(self.block.ops):
            before = len(self.pir.ops)
            try:
                function = self.writer_of(op)
                if function is not None:
                    function(self, op)
                    continue
                if is_of_pir(op.type):
                    self.as_read(op)
                else:
                    self.by_row(op, self.fitting_row(op))
            except (Unwritable, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                reason = error if isinstance(error, Unwritable) else f"it is not well formed: {error!r}"
                self.writer.refuse(op, position, reason)
                del self.pir.ops[before:]
                for name in op.output_arg_names:  # so that what reads them is not blamed, too
                    self.values.setdefault(name, self.writer.value(NULL))

    def writer_of(self, op: Operator) -> WriterOf | None:
        """The function that writes an op, if it has one of its own."""
        if op.type in ARRAY_WRITERS and any(self.is_array(name) for name in op.input_arg_names):
            return ARRAY_WRITERS[op.type]
        return WRITERS.get(op.type)

    def append(self, op: PirOp) -> PirOp:
        self.pir.ops.append(op)
        return op

    # -- values
    def is_array(self, name: str) -> bool:
        """Whether a variable is an array of tensors."""
        var = self.block.find_var(name)
        return var is not None and var.type is VarType.LOD_TENSOR_ARRAY

    def make_arrays(self) -> None:
        """Make the arrays that the block declares, unless an op makes them: PIR has no array before that."""
        seen: set[str] = set(self.values)
        for position, op in enumerate(self.block.ops):
            plain_outputs = set() if op.sub_blocks or is_in_place(op) else {*op.output_arg_names}.difference(op.input_arg_names)
            inner = [name for sub in op.sub_blocks for names in outer_names(sub) for name in names]
            for name in dict.fromkeys((*op.input_arg_names, *op.output_arg_names, *inner)):
                if name not in seen and name not in plain_outputs and name in self.block.vars and self.is_array(name):
                    try:
                        self.values[name] = self.empty_array(self.block.vars[name])
                    except Unwritable as reason:
                        self.writer.refuse(op, position, reason)
                        self.values[name] = self.writer.value(NULL)
                seen.add(name)

    def empty_array(self, var: Variable) -> PirValue:
        """A new array for a variable."""
        type_ = type_of(var)
        value = self.writer.value(type_, var.stop_gradient)
        self.append(PirOp("pd_op.create_array", [], [value], {"dtype": Attribute("dtype", ELEMENTS[type_.dtype].text)}))
        return value

    def handed_on(self, body: Block) -> list[str]:
        """Names from outside that a block overwrites, so that its region hands them on; not arrays that it only writes into."""
        replaced = _replaced(body)
        return [name for name in outer_names(body)[1] if name in replaced or not self.is_array(name)]

    def var(self, name: str) -> Variable:
        var = self.block.find_var(name)
        if var is None:
            raise Unwritable(f"it names {name}, which is not declared")
        return var

    def read(self, name: str) -> PirValue | None:
        if name == EMPTY:
            return None
        value = self.values.get(name)
        if value is None:
            raise Unwritable(f"it reads {name}, which has no value there")
        return value

    def combined(self, values: Iterable[PirValue | None]) -> PirValue:
        listed = list(values)
        parts = tuple(NULL if value is None else value.type for value in listed)
        result = self.writer.value(PirType("vec", parts=parts))
        self.append(PirOp("builtin.combine", listed, [result]))
        return result

    def constant(self, value: Any, type_: str) -> PirValue:
        """A constant in the place of an attribute: a list of integers, or one number."""
        if type_.startswith("[]"):
            numbers = [int(item) for item in (value if isinstance(value, (list, tuple)) else [value])]
            attrs = {"value": Attribute("[i64]", numbers), "dtype": Attribute("dtype", type_[2:]), "place": _ON_CPU}
            result = self.writer.value(PirType(DENSE, _PIR_NAMES[type_[2:]], (len(numbers),)), True)
            self.append(PirOp("pd_op.full_int_array", [], [result], attrs))
            return result
        attrs = {
            "shape": Attribute("intarray", [1]),
            "value": Attribute("f64", float(value)),
            "dtype": Attribute("dtype", type_),
            "place": _ON_CPU,
        }
        result = self.writer.value(PirType(DENSE, _PIR_NAMES[type_], (1,)), True)
        self.append(PirOp("pd_op.full", [], [result], attrs))
        return result

    def data(self, var: Variable, persistable: bool) -> None:
        value = self.writer.value(type_of(var), var.stop_gradient)
        value.persistable = persistable
        attrs = {
            "name": Attribute("str", var.name),
            "shape": Attribute("intarray", list(value.type.shape)),
            "dtype": Attribute("dtype", var.dtype.text),
            "place": PLACE,
        }
        self.append(PirOp("pd_op.data", [], [value], attrs))
        self.values[var.name] = value

    def define(self, name: str, updated: bool = False) -> PirValue:
        """A new value of a variable, which reads find from now on; one that persists is overwritten, unless the op does that."""
        if name == EMPTY:
            return self.writer.value(NULL)
        var = self.var(name)
        value = self.writer.value(type_of(var), var.stop_gradient)
        value.persistable = var.persistable and updated
        return value

    def bind(self, name: str, value: PirValue, updated: bool = False) -> None:
        if name == EMPTY:
            return
        if self.var(name).persistable and not updated:
            home = self.values.get(name)
            if home is None:
                raise Unwritable(f"it writes {name}, which is not declared in block 0")
            assigned = self.writer.value(value.type, value.stop_gradient)
            self.append(PirOp("pd_op.assign_out_", [value, home], [assigned]))
            value = assigned
        self.values[name] = value

    # -- ops
    def fitting_row(self, op: Operator) -> PirRow:
        """The first of an op's rows that has a place for all that is given; `Unwritable` if there is none."""
        rows = rows_to(op.type)
        if not rows:
            raise Unwritable("Paddle 3 has no equivalent")
        for row in rows:
            try:
                self.refuse_unsaid(op, row, attributes_of(op))
            except Unwritable as error:
                if row is rows[-1]:
                    raise error
            else:
                break
        return row

    def by_row(self, op: Operator, row: PirRow) -> None:
        attrs, definition = attributes_of(op), op.definition
        operands = [self.operand(op, operand, attrs) for operand in row.operands]
        updated = self.updates(row)
        results: list[PirValue] = []
        bound: list[tuple[str, PirValue, bool]] = []
        lists: list[tuple[PirValue, list[PirValue]]] = []
        for result in row.results:
            names = op.outputs.get(result.slot, []) if result.slot else []
            if result.many:
                parts = [self.define(name) for name in names]
                value = self.writer.value(PirType("vec", parts=tuple(part.type for part in parts)))
                results.append(value)
                lists.append((value, parts))
                bound += [(name, part, False) for name, part in zip(names, parts, strict=True)]
                continue
            name = names[0] if names else EMPTY
            if name == EMPTY and definition is not None and _is_made(definition, result.slot):
                results.append(self.writer.value(PirType(DENSE, "f32")))
                continue
            source = op.inputs.get(updated.get(result.name, ""), [])
            in_place = name != EMPTY and source[:1] == [name]
            value = self.define(name, in_place)
            results.append(value)
            bound.append((name, value, in_place))
        described = {attr.name: self.attribute(op, attr, attrs) for attr in row.attrs}
        scope = attrs.get(NAME_SCOPE)
        if isinstance(scope, str) and scope != "/":
            described["struct_name"] = Attribute("str", scope)
        self.append(PirOp(f"pd_op.{row.pir}", operands, results, described))
        for value, parts in lists:
            if parts:
                self.append(PirOp("builtin.split", [value], list(parts)))
        for name, value, in_place in bound:
            self.bind(name, value, in_place)
        if op.outputs.get(XSHAPE) and op.inputs.get("X"):
            source_value = operands[0]
            if source_value is not None:
                self.shapes[op.outputs[XSHAPE][0]] = source_value

    def as_read(self, op: Operator) -> None:
        """Write an op that PIR alone has, as `to_blocks.BlockReader.unknown` has read it."""
        operands: list[PirValue | None] = []
        for slot, names in op.inputs.items():
            operands.append(self.combined(map(self.read, names)) if slot.endswith("*") else self.read(names[0]))
        results, bound = [], []
        for slot, names in op.outputs.items():
            parts = [self.define(name) for name in names]
            many = slot.endswith("*")
            results.append(self.writer.value(PirType("vec", parts=tuple(part.type for part in parts))) if many else parts[0])
            bound += list(zip(names, parts, strict=True))
        attrs = {}
        for key, value in op.attrs.items():
            name, colon, type_ = key.rpartition(":")
            if colon:
                attrs[name] = Attribute(type_, value)
        self.append(PirOp(op.type, operands, results, attrs))
        for result, names in zip(results, op.outputs.values(), strict=True):
            if result.type.kind == "vec":
                self.append(PirOp("builtin.split", [result], [part for name, part in bound if name in names]))
        for name, value in bound:
            self.bind(name, value)

    def updates(self, row: PirRow) -> dict[str, str]:
        """Result -> the slot of the variable that the op overwrites with it."""
        if not row.pir.endswith("_"):
            return {}
        pairs = updated_operands(row.pir, [one.name for one in row.operands], [one.name for one in row.results])
        slots = {operand.name: operand.slot for operand in row.operands}
        return {result: slots.get(source, "") for result, source in pairs.items()}

    def operand(self, op: Operator, operand: Operand, attrs: Mapping[str, Any]) -> PirValue | None:
        for slot in (operand.slot, SINGLE.get(operand.slot, "")):
            names = op.inputs.get(slot, []) if slot else []
            if not any(name != EMPTY for name in names):
                continue
            if slot == XSHAPE:
                like = self.shapes.get(names[0])
                if like is None:
                    raise Unwritable(f"it reads {names[0]}, the shape that an op which is not there kept")
                return like
            if operand.many and slot == operand.slot:
                return self.combined(self.read(name) for name in names)
            if len(names) != 1:
                raise Unwritable(f"its slot {slot} holds {len(names)} variables")
            return self.read(names[0])
        if not operand.type:
            return None
        value: Any = attrs.get(operand.attr, operand.constant) if operand.attr else operand.constant
        if operand.attr == "dim" and attrs.get("reduce_all"):
            value = []
        if value is None:
            raise Unwritable(f"its attribute {operand.attr} has no value")
        if operand.attr in _ADJUSTED:
            value = _ADJUSTED[operand.attr](self, op, value)
        return self.constant(value, operand.type)

    def attribute(self, op: Operator, attr: PirAttr, attrs: Mapping[str, Any]) -> Attribute:
        value = attr.constant
        if attr.type == "dtype" and not attr.attr:  # 2.x goes by the type of the result
            value = self.var(next(iter(op.outputs.values()))[0]).dtype
        elif op.type == "quantize_linear" and attr.name in _BOUNDS:  # 2.x goes by the number of bits
            bits = attrs["bit_length"]
            if type(bits) is not int or not 1 <= bits <= 64:
                raise Unwritable(f"its bit_length is {shown(bits)}, not a number from 1 to 64")
            value = _BOUNDS[attr.name](bits)
        elif attr.attr:
            value = attrs.get(attr.attr, _DEFAULTS.get((op.type, attr.attr)))
            if attr.attr == "dim" and attrs.get("reduce_all"):
                value = []
            if attr.attr in _ADJUSTED:
                value = _ADJUSTED[attr.attr](self, op, value)
            if value is None and attr.type in _EMPTY:
                value = _EMPTY[attr.type]
        return encoded(value, attr)

    def refuse_unsaid(self, op: Operator, row: PirRow, attrs: Mapping[str, Any]) -> None:
        """Refuse an op with an attribute, or a variable, that its op of PIR has no place for.

        A gradient op repeats what the forward op has, needed or not; only another gradient would be lost.
        """
        definition, is_gradient = op.definition, op.type.endswith("_grad")
        stated = {*row.implied, *(attr.attr for attr in row.attrs), *(operand.attr for operand in row.operands)}
        for name, implied in row.implied.items():
            if attrs.get(name, implied) != implied:
                raise Unwritable(f"its attribute {name} is {attrs[name]!r}, where Paddle 3 has {implied!r}")
        for name, attr in definition.attrs.items() if definition is not None and not is_gradient else ():
            if (
                name not in stated
                and name not in _NEUTRAL
                and (op.type, name) not in _NEUTRAL
                and attrs.get(name) != attr.default
            ):
                if name == "axis" and attrs.get(name) == -1:
                    continue
                raise Unwritable(f"its attribute {name} is {attrs.get(name)!r}, and Paddle 3 has no such attribute")
        slots = {operand.slot for operand in row.operands}
        slots |= {SINGLE[slot] for slot in slots if slot in SINGLE}
        for slot, names in op.inputs.items():
            if slot not in slots and (slot.endswith("@GRAD") or not is_gradient) and any(name != EMPTY for name in names):
                raise Unwritable(f"its input {slot} is given, and Paddle 3 has no such input")


def is_in_place(op: Operator) -> bool:
    """Whether an op changes an array of tensors where it is."""
    return op.type == "write_to_array" or (op.type == "pop_from_array" and op.input("X") == op.output("Rest"))


def _replaced(block: Block) -> set[str]:
    """Names that ops of a block, and of blocks inside it, give new values."""
    replaced: set[str] = set()
    for op in block.ops:
        if op.sub_blocks:
            replaced.update(*map(_replaced, op.sub_blocks))
        elif not is_in_place(op):
            replaced.update(op.output_arg_names)
    return replaced


def is_of_pir(type_: str) -> bool:
    """Whether an op is one that PIR alone has: its type says the dialect."""
    return type_.startswith(("pd_op.", "custom_op."))


def attributes_of(op: Operator) -> dict[str, Any]:
    """The attributes of an op, with the defaults of its definition."""
    return op.attrs if op.definition is None else op.definition.defaults(op.attrs)


def _is_made(definition: OpDef, slot: str) -> bool:
    """Whether an op makes this output even if nothing takes it."""
    output = definition.outputs.get(slot)
    return output is not None and not output.optional and definition.forward is None


def _method(at: BlockWriter, op: Operator, value: Any) -> Any:
    """The interpolation method: 2.x's op names it by its type, Paddle 3 by the attribute."""
    return op.type.partition("_interp")[0] if "_interp" in op.type else value


def _target_shape(at: BlockWriter, op: Operator, value: Any) -> Any:
    return value or (at.var(op.input("Y")[0]).shape if op.input("Y") else value)


def _offsets(at: BlockWriter, op: Operator, value: Any) -> Any:
    return value or [0] * at.var(op.input("X")[0]).ndim


_ADJUSTED: Mapping[str, Callable[[BlockWriter, Operator, Any], Any]] = {
    "interp_method": _method, "target_shape": _target_shape, "offsets": _offsets
}  # fmt: skip
"""Attributes that Paddle 3 needs and 2.x infers."""

_BOUNDS: Mapping[str, Callable[[int], int]] = {
    "qmin": lambda bits: -(1 << (bits - 1)),
    "qmax": lambda bits: (1 << (bits - 1)) - 1,
}
"""The least and the greatest integer of so many bits, by the attributes for them."""

_PIR_NAMES = {element.text: name for name, element in ELEMENTS.items()}
_EMPTY: Mapping[str, Any] = {"bool": False, "i32": 0, "i64": 0, "f32": 0.0, "f64": 0.0, "str": "", "intarray": []}


def encoded(value: Any, attr: PirAttr) -> Attribute:
    """A value as an attribute of PIR of this type; `Unwritable` if the type cannot hold it."""
    kind = attr.type
    try:
        if kind == "dtype":
            return Attribute(kind, _dtype_name(value))
        if kind == "place":
            return PLACE
        if kind == "intarray":
            return Attribute(kind, [int(item) for item in value])
        if kind.startswith("["):
            one = _PYTHON.get(kind[1:-1], lambda item: item)
            return Attribute(kind, [one(item) for item in (value if isinstance(value, (list, tuple)) else [value])])
        return Attribute(kind, _PYTHON.get(kind, lambda item: item)(value))
    except (TypeError, ValueError, OverflowError):
        raise Unwritable(f"its attribute {attr.attr or attr.name} is {value!r}, which is no {kind}") from None


_PYTHON: Mapping[str, Callable[[Any], Any]] = {
    "bool": bool, "i32": int, "i64": int, "f32": float, "f64": float, "str": str
}  # fmt: skip


def _dtype_name(value: Any) -> str:
    if isinstance(value, str):
        return value or "Undefined(ALL_DTYPE)"
    if value is None or value < 0:
        return "Undefined(ALL_DTYPE)"
    return VarType(value).text

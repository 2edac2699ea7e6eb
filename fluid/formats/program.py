"""Reads and writes programs as Paddle's ``ProgramDesc``. No other module uses protobuf.

Facts in a file that a `Program` has no place for are kept in the ``wire`` slots of programs, blocks, variables and operators,
and written back: fields and attribute types that are newer than this reader, which optional fields were present, attributes whose
type in the file differs from their definition or value. They never override the program's current state.

Attributes of 32-bit floats are read as the shortest decimal that rounds to that float: 0.1 comes back as 0.1.

A file without any ``is_parameter`` (Fluid 1.x, and exported inference models) does not tell which variables are parameters.
There, a `Parameter` is a persistable floating-point variable of block 0 that some op other than optimizers' reads and only
optimizers' ops write: not the statistics of batch_norm, learning rates, moments or counters.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from ..errors import FormatError, ProgramError
from ..ir.attr_kinds import BY_NUMBER, KINDS, attr_kind, fits
from ..ir.checked import checked
from ..ir.collector import collector_paused
from ..ir.paddle_attrs import REQUIRED, SAME_INPUTS, attrs_of_paddle
from ..ir.program import Block, Operator, OpRole, Parameter, Program, Variable
from ..ir.verify import self_owning, too_deep
from ..opdef.registry import OUR_SLOTS, PADDLE_OPS, PADDLE_SLOTS, REGION, VARIABLE_ATTRS
from ..proto import BlockDesc, OpDesc, ProgramDesc, ProgramFrame, TensorDesc, VarDesc
from ..values.types import VarType, is_floating
from .gradient_inputs import missing_inputs
from .room import Room

__all__ = [
    "OpWire", "ProgramWire", "parse_program", "parse_tensor_desc", "serialize_program", "serialize_tensor_desc",
    "with_versions",
]  # fmt: skip

_CORRECTED = "Beta1PowOut"
"""An output of `lamb`. Paddle 1.x, which does not correct the bias of the moments, lacks it."""


# ---------------------------------------------------------------------------------------------- what only files know
@dataclass(frozen=True)
class ProgramWire:
    """Data of a file about a program beyond its `Program`."""

    data: bytes
    """All fields but the blocks, as a ``ProgramDesc``."""
    version: int
    """The version of Paddle that wrote the program, as a number; 0 if the file does not tell."""
    op_versions: list[tuple[str, int]]
    """Type and version of ops."""


@dataclass(slots=True)
class OpWire:
    """Data of a file about an op beyond its `Operator`."""

    type: str = ""
    """Type of the op in the file."""
    kinds: dict[str, str] = field(default_factory=dict)
    """Kinds of attributes that differ from `attr_kind`."""
    leftover: bytes = b""
    """Unknown fields, as an ``OpDesc``."""
    asides: list[tuple[int, str, bytes]] = field(default_factory=list)
    """Attributes repeated later in the file, and attributes of unknown types: position, name ("" for the latter), message."""
    parts: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """Unknown fields of slots and attributes: (``inputs``, ``outputs`` or ``attrs``, name) -> message."""
    filled: frozenset[str] = frozenset()
    """Inputs that the file does not list; see `missing_inputs`."""


@dataclass(slots=True, unsafe_hash=True)
class _VarWire:
    present: frozenset[str]
    """Optional fields that are present, even with default values."""
    leftover: bytes = b""
    guessed_parameter: bool = False
    kind: int | None = None
    """Number of a kind of variable that is not in `VarType`."""
    dtype: int | None = None
    """Number of an element type that is not in `VarType`."""


@dataclass(slots=True)
class _BlockWire:
    present: frozenset[str]
    leftover: bytes = b""


_NEW_VAR = _VarWire(frozenset(["persistable"]))
_NEW_BLOCK = _BlockWire(frozenset())
_NEW_PROGRAM = ProgramDesc()
_NEW_PROGRAM.version.version = 0

_TENSOR_FIELDS = {
    VarType.SELECTED_ROWS: "selected_rows",
    VarType.LOD_TENSOR_ARRAY: "tensor_array",
    VarType.STRING: "string",
    VarType.STRINGS: "strings",
    VarType.VOCAB: "vocab",
    VarType.SPARSE_COO: "sparse_coo",
    VarType.SPARSE_CSR: "sparse_csr",
}
"""The field with shape and element type, by kind of variable; ``lod_tensor`` for other kinds."""
_WITH_LOD = ("lod_tensor", "tensor_array")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


class _Texts(dict[bytes, str]):
    """Texts of a file by their bytes; most stand there many times, and share one string."""

    def __missing__(self, raw: bytes) -> str:
        text = self[raw] = _text(raw)
        return text


def _raw(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ProgramError(f"{text!r} cannot be written as UTF-8: {error.reason}") from None


def _short(value: float) -> float:
    """The shortest decimal that rounds to this 32-bit float."""
    return float(str(np.float32(value)))


def _short_all(values: Iterable[float]) -> list[float]:
    shortest: list[float] = np.array(list(values), np.float32).astype("U32").astype(np.float64).tolist()
    return shortest


_MOST_LEVELS = 64
"""Most LoD levels; models have at most three, and each level takes memory."""
_MOST_BYTES = (1 << 31) - 1
_MOST_VALUES = 1 << 22
"""Most values of one attribute: 16 MB of float32."""
_TOO_LARGE = (
    f"a file of the wire format holds at most {_MOST_BYTES}; values belong into persistable variables, which are saved beside "
    "the program, not into attributes"
)


def _leftover(message: Any, *read_fields: str) -> bytes:
    """The message without these fields."""
    remainder = type(message)()
    remainder.CopyFrom(message)
    for name in read_fields:
        remainder.ClearField(name)
    data: bytes = remainder.SerializeToString()
    return data


# ----------------------------------------------------------------------------------------------------------- writing
@checked
def serialize_program(program: Program) -> bytes:
    """The program as bytes of a ``ProgramDesc``; `ProgramError` if the format cannot express it."""
    writer, parts = _ProgramWriter(), []
    for index, block in enumerate(program.blocks):
        if block.idx != index:
            raise ProgramError(f"the block at position {index} of the program calls itself block {block.idx}")
        parts.append(_framed(1, writer.block(block)))
    data = b"".join([*parts, _NEW_PROGRAM.SerializeToString() if program.wire is None else program.wire.data])
    if len(data) > _MOST_BYTES:
        raise ProgramError(f"the program cannot be written, its {len(data)} bytes are too many: {_TOO_LARGE}")
    return data


def _versions_of(message: ProgramDesc) -> ProgramWire:
    """Keep the fields of a program's message that `Program` has no place for: all but the blocks."""
    versions = [(_text(pair.op_name), pair.op_version.version) for pair in message.op_version_map.pair]
    return ProgramWire(message.SerializeToString(), message.version.version, versions)


def with_versions(version: int, of_ops: Iterable[tuple[str, int]]) -> ProgramWire:
    """Make the ``wire`` of a program that this version of Paddle wrote, with these versions of its ops."""
    message = ProgramDesc()
    message.version.version = version
    for name, number in of_ops:
        pair = message.op_version_map.pair.add()
        pair.op_name, pair.op_version.version = _raw(name), number
    return _versions_of(message)


def _framed(field: int, data: bytes) -> bytes:
    """A field that holds bytes or a message, as protobuf writes it: its number, the length, the bytes themselves."""
    size = len(data)
    frame = [field << 3 | 2]
    while size > 0x7F:
        frame.append(size & 0x7F | 0x80)
        size >>= 7
    frame.append(size)
    return bytes(frame) + data


class _FramedNames(dict[str, bytes]):
    """Names -> the field of this number that holds each; a name stands in a file several times."""

    def __init__(self, field: int) -> None:
        self._field = field

    def __missing__(self, name: str) -> bytes:
        framed = self[name] = _framed(self._field, _raw(name))
        return framed


_ALIKE = frozenset({bool, int, float, str})
"""Types of attributes that are remembered when they are written."""


class _ProgramWriter:
    """Writes the blocks of one program as messages.

    Protobuf serializes each attribute, and each description of a variable, once, since they repeat. Messages with little but
    names are put together here, field by field in the order of their numbers; fields that only files know come last.
    """

    def __init__(self) -> None:
        self._types = _FramedNames(3)
        self._slots = _FramedNames(1)
        self._arguments = _FramedNames(2)
        self._var_names = _FramedNames(1)
        self._vars: dict[Any, bytes] = {}
        self._attrs: dict[Any, bytes] = {}

    def block(self, block: Block) -> bytes:
        """A block as a ``BlockDesc``."""
        wire, after = block.wire or _NEW_BLOCK, BlockDesc()
        if block.forward is not None or "forward_block_idx" in wire.present:
            after.forward_block_idx = block.forward_block_idx
        parts = [BlockDesc(idx=block.idx, parent_idx=block.parent_idx).SerializeToString()]
        parts += [_framed(3, self._var(name, var)) for name, var in block.vars.items()]
        parts += [_framed(4, self._op(op)) for op in block.ops]
        return b"".join([*parts, after.SerializeToString(), wire.leftover])

    def _var(self, name: str, var: Variable) -> bytes:
        is_parameter, stops = var.is_parameter, var._stop_gradient
        if is_parameter:
            stops = stops or not var.trainable  # type: ignore[attr-defined]
        key = (
            *(var._type, var._shape, var._dtype, var.lod_level, var._persistable, var.need_check_feed),
            *(is_parameter, stops, var.wire),
        )
        nameless = self._vars.get(key)
        if nameless is None:
            nameless = self._vars[key] = _without_name(var, is_parameter, stops)
        return self._var_names[name] + nameless

    def _op(self, op: Operator) -> bytes:
        wire, fields = op.wire, []
        parts = wire.parts if wire is not None else {}
        named = {name: slot for (type_, name), slot in VARIABLE_ATTRS.items() if type_ == op.type and op.inputs.get(slot)}
        for number, side, slots in ((1, "inputs", _inputs_to_write(op)), (2, "outputs", _outputs_to_write(op))):
            for slot, names in slots.items():
                if slot in named.values():
                    continue
                entry = [self._slots[PADDLE_SLOTS.get((op.type, slot), slot)], *map(self._arguments.__getitem__, names)]
                if parts and (side, slot) in parts:
                    entry.append(parts[side, slot])
                fields.append(_framed(number, b"".join(entry)))
        fields.append(self._types[PADDLE_OPS.get(op.type, op.type)])
        attrs = _attrs_to_write(op)
        if named:
            attrs = {name: value for name, value in attrs.items() if name not in named}
            for name, slot in named.items():
                names = op.inputs[slot]
                value, kind = (names[0], "var") if len(names) == 1 else (names, "vars")
                fields.append(_framed(4, _attr_entry(op, name, value, kind)))
        if wire is None:
            fields += [self._attr(op, name, value) for name, value in attrs.items()]
        else:
            fields += [_framed(4, entry) for entry in _attrs_of_file(op, attrs, wire)]
            fields.append(wire.leftover)
        return b"".join(fields)

    def _attr(self, op: Operator, name: str, value: Any) -> bytes:
        """The field of an attribute that no file describes."""
        if value.__class__ not in _ALIKE:
            return _framed(4, _attr_entry(op, name, value))
        key = op.type, name, value.__class__, value or repr(value)  # 0.0 equals -0.0
        field = self._attrs.get(key)
        if field is None:
            field = self._attrs[key] = _framed(4, _attr_entry(op, name, value))
        return field


def _without_name(var: Variable, is_parameter: bool, stops_gradient: bool) -> bytes:
    """A ``VarDesc`` of a variable, but for its name."""
    wire, message = var.wire or _NEW_VAR, VarDesc()
    message.MergeFromString(wire.leftover)
    kind = message.type
    kind.type = wire.kind if wire.kind is not None and var.type is VarType.RAW else int(var.type)
    if var.has_shape or var.has_dtype or var.lod_level or "lod_level" in wire.present:
        tensor_field = _TENSOR_FIELDS.get(var.type, "lod_tensor")
        tensor = getattr(kind, tensor_field)
        if tensor_field in _WITH_LOD:
            if var.lod_level or "lod_level" in wire.present:
                tensor.lod_level = var.lod_level
            tensor = tensor.tensor
        tensor.data_type = wire.dtype if wire.dtype is not None and not var.has_dtype else int(var.dtype)
        tensor.dims.extend(var.shape)
    for flag, value in (
        ("persistable", var.persistable),
        ("need_check_feed", var.need_check_feed),
        ("is_parameter", is_parameter and not wire.guessed_parameter),
        ("stop_gradient", stops_gradient),
    ):
        if value or flag in wire.present:
            setattr(message, flag, value)
    data: bytes = message.SerializeToString()
    return data


def _attrs_of_file(op: Operator, attrs: Mapping[str, Any], wire: OpWire) -> Iterator[bytes]:
    """Attributes as messages, in the order and kinds of the file that the op was read from, with what else stands there."""
    asides = [aside for aside in wire.asides if not aside[1] or aside[1] in op.attrs][::-1]
    position = 0
    for name, value in attrs.items():
        while asides and asides[-1][0] <= position:
            yield asides.pop()[2]
            position += 1
        yield _attr_entry(op, name, value, wire.kinds.get(name), wire.parts.get(("attrs", name), b""))
        position += 1
    for _, name, aside in reversed(asides):
        if not name:  # a repeated attribute comes before the one that counts
            yield aside


def _attr_entry(op: Operator, name: str, value: Any, kind: str | None = None, leftover: bytes = b"") -> bytes:
    """An attribute as a message; `kind` and `leftover` come from its file."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)) and len(value) > _MOST_VALUES:
        raise ProgramError(
            f"{op.type}, in block {op.block.idx}: the attribute {name!r} holds {len(value)} values; constants of more than "
            f"{_MOST_VALUES} do not belong into a program: let it read a persistable variable (layers.create_parameter, or a "
            "value put into the scope), which save_params saves beside it"
        )
    if kind is None or not fits(kind, value):
        kind = attr_kind(op, name, value)
    entry = OpDesc().attrs.add()
    entry.MergeFromString(leftover)
    entry.name = _raw(name)
    _write_value(op, kind, value, entry)
    data: bytes = entry.SerializeToString()
    return data


def _inputs_to_write(op: Operator) -> dict[str, list[str]]:
    """The inputs of an operator as in its file; a new one may have one more, where Paddle 1.8 asks for it."""
    if op.wire is not None and op.wire.type == op.type:
        return {slot: names for slot, names in op.inputs.items() if slot not in op.wire.filled}
    slot, same = SAME_INPUTS.get(op.type, ("", ""))
    return {**op.inputs, slot: op.inputs[same]} if op.inputs.get(same) and slot not in op.inputs else op.inputs


def _outputs_to_write(op: Operator) -> dict[str, list[str]]:
    """The outputs of an operator as in its file; a new `lamb` has an empty slot, which tells it from one of Paddle 1.x."""
    if op.type != "lamb" or _CORRECTED in op.outputs or (op.wire is not None and op.wire.type == op.type):
        return op.outputs
    return {**op.outputs, _CORRECTED: []}


def _attrs_to_write(op: Operator) -> dict[str, Any]:
    """The attributes of an operator, with defaults where Paddle has none: for gradient ops, and for ops that own blocks.

    An op that was read from a file has all attributes that it needs.
    """
    definition = op.definition
    if op.wire is not None and op.wire.type == op.type:
        return op.attrs
    if definition is None:
        return op.attrs
    if definition.forward is None and definition.rule is not REGION:
        return op.attrs | {name: definition.attrs[name].default for name in REQUIRED.get(op.type, ()) if name not in op.attrs}
    defaults = {name: attr.default for name, attr in definition.attrs.items() if not attr.required}
    defaults |= {name: value for name, (_, value) in attrs_of_paddle(op.type).items()}
    if definition.rule is REGION:  # Paddle derives names inside, and does not read them from lists
        defaults = {name: value for name, value in defaults.items() if not name.endswith("_grads")}
    return op.attrs | {name: value for name, value in defaults.items() if name not in op.attrs}


def _write_value(op: Operator, kind: str, value: Any, entry: Any) -> None:
    definition = KINDS[kind]
    entry.type = definition.number
    base = kind.removesuffix("s") if definition.many else kind
    if base in ("string", "var"):
        value = list(map(_raw, value)) if definition.many else _raw(value)
    elif base == "block":
        for block in value if definition.many else [value]:
            if block.idx >= len(op.block.program.blocks) or op.block.program.blocks[block.idx] is not block:
                raise ProgramError(f"{op.type} owns block {block.idx} of another program, or one that has been removed")
        value = [block.idx for block in value] if definition.many else value.idx
    elif base == "scalar":
        for item in value if definition.many else [value]:
            _write_scalar(item, entry.scalars.add() if definition.many else entry.scalar)
        return
    elif base == "float":
        value = np.asarray(value, np.float32).tolist()
    if definition.many:
        getattr(entry, definition.field).extend(value)
    else:
        setattr(entry, definition.field, value)


def _write_scalar(value: Any, message: Any) -> None:
    if isinstance(value, bool):
        message.type, message.b = 1, value
    elif isinstance(value, int):
        message.type, message.i = 2, value
    elif isinstance(value, float):
        message.type, message.r = 3, value
    else:
        message.type, message.c.r, message.c.i = 4, value.real, value.imag


# ----------------------------------------------------------------------------------------------------------- reading
@checked
def parse_program(data: bytes) -> Program:
    """The program in the bytes of a ``ProgramDesc`` of any version; `FormatError` tells where they are wrong."""
    if len(data) > _MOST_BYTES:
        raise FormatError(f"not a program: {len(data)} bytes, but programs have at most {_MOST_BYTES}, as all of the wire format")
    with collector_paused():
        return _ProgramReader(bytes(data)).program


def _looks_like(data: bytes) -> str:
    for start, hint in (
        (b"{", "; it looks like JSON, in which Paddle 3 writes programs: fluid.load_model reads those"),
        (b"\x80", "; it looks like a pickle, as .pdparams files are"),
        (b"PK", "; it looks like a zip archive"),
        (b"\0\0\0\0", "; it looks like a file of parameters"),
    ):
        if data.startswith(start):
            return hint
    with contextlib.suppress(UnicodeDecodeError):
        if re.fullmatch(r"[^\x00-\x08\x0e-\x1f\x7f]+", data[:64].decode("ascii")):
            return "; it looks like text, but not like a program's"
    return ""


class _ProgramReader:
    """Makes a program from bytes, op by op, so that only one of protobuf's op messages is in memory at a time.

    `careful` is set if the message that is read has fields that the schema lacks; `version` is Paddle's that wrote the file, 0 if
    it does not tell.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        message = self.message(ProgramFrame, data)
        if not len(message.blocks):
            problem = "the file is empty" if not data else f"{len(data)} bytes without a block{_looks_like(data)}"
            raise FormatError(f"not a program: {problem}")
        self.room = Room(len(data))
        self.texts = _Texts()
        self.presence: dict[tuple[str, ...], frozenset[str]] = {}
        self.plain: dict[str, OpWire] = {}
        self.marks_parameters = False

        self.program = Program()
        self.program.allowed_ops = frozenset()
        self.version = message.version.version
        self.blocks = self.program.blocks = [Block(self.program, index) for index in range(len(message.blocks))]
        for index, block in enumerate(message.blocks):
            self.room.block()
            self.link(index, block)
        self.check_tree()
        is_careful = self.careful
        for block, desc in zip(self.blocks, message.blocks, strict=True):
            self.read_block(block, desc, is_careful)
        self.check_owners()
        for op, names in missing_inputs(self.blocks):
            op.inputs |= names
            op.wire = replace(op.wire, filled=frozenset(names))
        self.guess_roles()
        message.ClearField("blocks")
        self.program.wire = _versions_of(message)

    def message(self, kind: Any, data: bytes) -> Any:
        """The bytes as a message of this kind."""
        message = kind()
        try:
            message.ParseFromString(data)
        except (DecodeError, RecursionError, ValueError, TypeError):
            raise FormatError(f"not a program{_looks_like(self.data)}: {find_damage(self.data)}") from None
        size = message.ByteSize()
        message.DiscardUnknownFields()
        self.careful = message.ByteSize() != size
        if self.careful:
            message.ParseFromString(data)
        return message

    def names_present(self, names: tuple[str, ...]) -> frozenset[str]:
        return self.presence.setdefault(names, frozenset(names))

    # -- the tree of blocks
    def link(self, index: int, desc: Any) -> None:
        block = self.blocks[index]
        if desc.idx != index:
            raise FormatError(f"block {index}: it says that it is block {desc.idx}")
        if not desc.HasField("parent_idx"):
            raise FormatError(f"block {index}: it does not say which block is its parent")
        for link, number in (("parent", desc.parent_idx), ("forward", desc.forward_block_idx)):
            if not -1 <= number < len(self.blocks):
                raise FormatError(f"block {index}: its {link} block is {number}, but the file holds {len(self.blocks)} blocks")
            if number >= 0:
                setattr(block, link, self.blocks[number])

    def check_tree(self) -> None:
        done: set[int] = set()
        for block in self.blocks:
            path: list[int] = []
            at: Block | None = block
            on_path: set[int] = set()
            while at is not None and at.idx not in done:
                if at.idx in on_path:
                    raise FormatError(f"block {at.idx}: it is its own ancestor, by way of its parent blocks")
                path.append(at.idx)
                on_path.add(at.idx)
                at = at.parent
            done.update(path)
        if self.blocks[0].parent is not None:
            raise FormatError(f"block 0: the root has a parent, block {self.blocks[0].parent_idx}")
        self.check_depth()

    def check_depth(self) -> None:
        if reason := too_deep(self.program):
            raise FormatError(reason)

    def check_owners(self) -> None:
        pair = self_owning(self.blocks)
        if pair is not None:
            raise FormatError(f"block {pair[0].idx}: it holds itself, by way of an op of block {pair[1].idx}")
        self.check_depth()

    # -- their contents
    def read_block(self, block: Block, frame: Any, is_careful: bool) -> None:
        for position, data in enumerate(frame.vars):
            desc = self.message(VarDesc, data)
            name = self.texts[desc.name]
            if not desc.HasField("name"):
                raise FormatError(f"block {block.idx}: variable {position} has no name")
            if name in block.vars:
                raise FormatError(f"block {block.idx}: the variable {name!r} is there twice")
            block.vars[name] = self.read_var(block, name, desc)
            self.room.variable()
        for position, data in enumerate(frame.ops):
            desc = self.message(OpDesc, data)
            try:
                block.ops.append(self.read_op(block, desc))
            except FormatError as error:
                raise FormatError(f"block {block.idx}, op {position} ({_text(desc.type) or 'without a type'}): {error}") from None
            self.room.op(block.ops[-1])
        presence = ("forward_block_idx",) if frame.HasField("forward_block_idx") else ()
        leftover = _leftover(frame, "idx", "parent_idx", "forward_block_idx", "vars", "ops") if is_careful else b""
        if presence or leftover:
            block.wire = _BlockWire(self.names_present(presence), leftover)

    def read_var(self, block: Block, name: str, desc: Any) -> Variable:
        where = f"block {block.idx}, variable {name!r}"
        if not desc.HasField("type") or not desc.type.HasField("type"):
            raise FormatError(f"{where}: it has no type")
        self.marks_parameters = self.marks_parameters or desc.HasField("is_parameter")
        kind, unknown_kind = _type_of_number(desc.type.type, VarType.RAW)
        tensor_field = _TENSOR_FIELDS.get(kind, "lod_tensor")
        shape, dtype, unknown_dtype, lod_level = None, None, None, 0
        presence = [flag for flag in _FLAGS if desc.HasField(flag)]
        fields = 1
        if desc.type.HasField(tensor_field):
            fields = 2
            tensor = getattr(desc.type, tensor_field)
            has_tensor = True
            if tensor_field in _WITH_LOD:
                if tensor.HasField("lod_level"):
                    presence.append("lod_level")
                    lod_level = tensor.lod_level
                    if not 0 <= lod_level <= _MOST_LEVELS:
                        raise FormatError(f"{where}: it has {lod_level} levels of sequences, it should be 0 to {_MOST_LEVELS}")
                has_tensor = tensor.HasField("tensor")
                tensor = tensor.tensor
            if has_tensor:
                shape = tuple(tensor.dims)
                if tensor.HasField("data_type"):
                    dtype, unknown_dtype = _type_of_number(tensor.data_type, None)
        properties: dict[str, Any] = {"type": kind, "name": name, "lod_level": lod_level, "is_data": desc.need_check_feed}
        properties |= {flag: getattr(desc, flag) for flag in ("persistable", "stop_gradient", "need_check_feed")}
        var = (
            Parameter(block, shape, dtype, trainable=not desc.stop_gradient, **properties)  # type: ignore[arg-type]
            if desc.is_parameter
            else Variable(block, shape=shape, dtype=dtype, **properties)
        )
        leftover = b""
        if self.careful or len(desc.attrs) or len(desc.type.ListFields()) > fields:
            leftover = _var_leftover(desc, tensor_field)
        var.wire = _VarWire(self.names_present(tuple(presence)), leftover, False, unknown_kind, unknown_dtype)
        return var

    def read_op(self, block: Block, desc: Any) -> Operator:
        if not desc.HasField("type"):
            raise FormatError("it has no type")
        parts: dict[tuple[str, str], bytes] = {}
        op_type = self.texts[desc.type]
        inputs = self.read_slots(op_type, "inputs", desc.inputs, parts)
        outputs = self.read_slots(op_type, "outputs", desc.outputs, parts)
        if op_type == "lamb" and self.version < 2_000_000 and _CORRECTED not in outputs:
            op_type = "uncorrected_lamb"
        op = Operator(block, op_type, inputs, outputs, {})
        kinds: dict[str, str] = {}
        strange = 0
        for entry in desc.attrs:  # Paddle itself writes some twice; the last one counts
            name = self.texts[entry.name]
            if not entry.HasField("name") or not entry.HasField("type"):
                raise FormatError(f"an attribute {name!r} lacks its {'type' if entry.HasField('name') else 'name'}")
            kind = BY_NUMBER.get(entry.type)
            if kind is None:
                strange += 1
                continue
            fields = [field.name for field, _ in entry.ListFields()]
            if len(fields) > 2 and KINDS[kind].field not in fields:
                held = next(field for field in fields if field not in ("name", "type"))
                raise FormatError(
                    f"the attribute {name!r} says that it is of kind {kind}, which the field {KINDS[kind].field!r} should hold, "
                    f"but there is only {held!r}"
                )
            value = op.attrs[name] = self.read_value(name, kind, entry)
            if attr_kind(op, name, value) == kind:
                kinds.pop(name, None)
            else:
                kinds[name] = kind
            parts.pop(("attrs", name), None)
            if self.careful or len(fields) > 3:
                leftover = _leftover(entry, "name", "type", KINDS[kind].field)
                if leftover:
                    parts["attrs", name] = leftover
        if op_type == "shard_index" and 0 < self.version < 1_007_000:
            op.type = op_type = "shard_index_by_floor"
        asides = _asides(desc.attrs, op) if strange or len(op.attrs) < len(desc.attrs) else []
        for name in [name for name, kind in kinds.items() if kind in ("var", "vars") and (op_type, name) in VARIABLE_ATTRS]:
            value = op.attrs.pop(name)
            op.inputs[VARIABLE_ATTRS[op_type, name]] = value if kinds.pop(name) == "vars" else [value]
        leftover = b""
        if self.careful or desc.HasField("is_target"):
            leftover = _leftover(desc, "type", "inputs", "outputs", "attrs")
        if kinds or leftover or parts or asides:
            op.wire = OpWire(op_type, kinds, leftover, asides, parts)
        else:
            op.wire = self.plain.get(op_type) or self.plain.setdefault(op_type, OpWire(op_type))
        return op

    def read_slots(self, op_type: str, side: str, entries: Any, parts: dict[tuple[str, str], bytes]) -> dict[str, list[str]]:
        slots: dict[str, list[str]] = {}
        for entry in entries:
            if not entry.HasField("parameter"):
                raise FormatError(f"one of its {side} has no slot")
            slot = self.texts[entry.parameter]
            slot = OUR_SLOTS.get((op_type, slot), slot)
            if slot in slots:
                raise FormatError(f"the slot {slot!r} is there twice in its {side}")
            slots[slot] = list(map(self.texts.__getitem__, entry.arguments))
            if self.careful:
                leftover = _leftover(entry, "parameter", "arguments")
                if leftover:
                    parts[side, slot] = leftover
        return slots

    def read_value(self, name: str, kind: str, entry: Any) -> Any:
        value = getattr(entry, KINDS[kind].field)
        if kind == "float":
            return _short(value)
        if kind in ("string", "var"):
            return self.texts[value]
        if kind == "block":
            return self.block(name, value)
        if kind == "scalar":
            return _read_scalar(name, value)
        if not KINDS[kind].many:
            return value
        if kind == "floats":
            return _short_all(value)
        if kind in ("strings", "vars"):
            return list(map(self.texts.__getitem__, value))
        if kind == "blocks":
            return [self.block(name, item) for item in value]
        if kind == "scalars":
            return [_read_scalar(name, item) for item in value]
        return list(value)

    def block(self, name: str, index: int) -> Block:
        if not 0 <= index < len(self.blocks):
            raise FormatError(f"the attribute {name!r} is block {index}, but the file holds {len(self.blocks)} blocks")
        return self.blocks[index]

    # -- old files
    def guess_roles(self) -> None:
        """Guess which variables are data and which are parameters, where the file does not say."""
        read: set[str] = set()
        used: set[str] = set()
        produced: set[str] = set()
        changed: set[str] = set()
        fed: set[str] = set()
        for block in self.blocks:
            for op in block.ops:
                read.update(op.input_arg_names)
                (fed if op.type == "feed" else produced).update(op.output_arg_names)
                role = op.attrs.get(OpRole.NAME)
                if not (isinstance(role, int) and role & OpRole.OPTIMIZE):
                    used.update(op.input_arg_names)
                    changed.update(op.output_arg_names)
        root = self.blocks[0]
        for name, var in root.vars.items():
            if var.type is not VarType.LOD_TENSOR:
                continue
            if not var.persistable:
                # An op reads it, and none writes it but one that feeds it.
                var.is_data = var.is_data or (name in read and name not in produced) or name in fed
            elif not self.marks_parameters and name in used and name not in changed and is_floating(var.dtype) and var.has_shape:
                root.vars[name] = _as_parameter(var)


def _asides(entries: Any, op: Operator) -> list[tuple[int, str, bytes]]:
    """An op's attributes that are repeated later or have unknown types; sorts the others by their position in the file."""
    last = {entry.name: position for position, entry in enumerate(entries) if entry.type in BY_NUMBER}
    op.attrs = {name: op.attrs[name] for name in map(_text, sorted(last, key=last.__getitem__))}
    return [
        (position, _text(entry.name) if entry.type in BY_NUMBER else "", entry.SerializeToString())
        for position, entry in enumerate(entries)
        if last.get(entry.name) != position
    ]


_FLAGS = ("persistable", "need_check_feed", "is_parameter", "stop_gradient")


def _type_of_number(number: int, otherwise: Any) -> tuple[Any, int | None]:
    """(type, None) for the number of a type, (`otherwise`, number) for an unknown number."""
    try:
        return VarType(number), None
    except ValueError:
        return otherwise, number


def _as_parameter(var: Variable) -> Parameter:
    flags = {key: getattr(var, key) for key in ("name", "lod_level", "stop_gradient", "is_data", "need_check_feed")}
    parameter = Parameter(var.block, var.shape, var.dtype, trainable=not var.stop_gradient, **flags)
    wire = var.wire
    parameter.wire = _VarWire(wire.present, wire.leftover, True, wire.kind, wire.dtype)
    return parameter


def _var_leftover(desc: Any, tensor_field: str) -> bytes:
    leftover = VarDesc()
    leftover.MergeFromString(_leftover(desc, "name", *_FLAGS))
    leftover.type.ClearField("type")
    if leftover.type.HasField(tensor_field):
        tensor = getattr(leftover.type, tensor_field)
        if tensor_field in _WITH_LOD:
            tensor.ClearField("lod_level")
            tensor.tensor.ClearField("data_type")
            tensor.tensor.ClearField("dims")
            if not tensor.tensor.ByteSize():
                tensor.ClearField("tensor")
        else:
            tensor.ClearField("data_type")
            tensor.ClearField("dims")
        if not tensor.ByteSize():
            leftover.type.ClearField(tensor_field)
    if not leftover.type.ByteSize():
        leftover.ClearField("type")
    data: bytes = leftover.SerializeToString()
    return data


def _read_scalar(name: str, message: Any) -> Any:
    values = {1: message.b, 2: message.i, 3: message.r, 4: complex(message.c.r, message.c.i)}
    if message.type not in values:
        raise FormatError(f"the attribute {name!r} is a scalar of the unknown type {message.type}")
    return values[message.type]


# ---------------------------------------------------------------------------------------------------- tensors in files
def serialize_tensor_desc(dtype: VarType, shape: Iterable[int]) -> bytes:
    """Element type and shape as the bytes of a ``TensorDesc``, which precedes a tensor in a file."""
    data: bytes = TensorDesc(data_type=int(dtype), dims=shape).SerializeToString()
    return data


def parse_tensor_desc(data: bytes) -> tuple[VarType, tuple[int, ...]]:
    """Element type and shape from the bytes of a ``TensorDesc``; `FormatError` if they are damaged."""
    message = TensorDesc()
    try:
        message.ParseFromString(data)
    except (DecodeError, RecursionError, ValueError, TypeError):
        raise FormatError("no description of a tensor can be read") from None
    if not message.HasField("data_type"):
        raise FormatError("the description of the tensor lacks an element type")
    dtype, unknown = _type_of_number(message.data_type, VarType.RAW)
    if unknown is not None:
        raise FormatError(f"its element type is number {unknown}, which is unknown")
    return dtype, tuple(message.dims)


# ------------------------------------------------------------------------------------------------------ damaged bytes
class _Damage(Exception):
    pass


def find_damage(data: bytes) -> str:
    """The first fault, as text, in bytes that should be a ``ProgramDesc``."""
    try:
        _walk(data, 0, len(data), ProgramDesc.DESCRIPTOR, "the program")
    except _Damage as damage:
        return str(damage)
    return "its bytes are not a message of the wire format"


def _varint(data: bytes, at: int, end: int, field_name: str, path: str) -> tuple[int, int]:
    value = 0
    for length in range(10):
        if at + length >= end:
            raise _Damage(f"at byte {at}, in {path}: {field_name} is cut short")
        byte = data[at + length]
        value |= (byte & 127) << (7 * length)
        if byte < 128:
            return value, at + length + 1
    raise _Damage(f"at byte {at}, in {path}: {field_name} is longer than a number can be")


def _walk(data: bytes, at: int, end: int, descriptor: Any, path: str) -> None:
    """Check the fields of a message; the recursion is as deep as the schema, which nests no message in itself."""
    counts: dict[int, int] = {}
    while at < end:
        start = at
        key, at = _varint(data, at, end, "a field's number", path)
        number, wire_type = key >> 3, key & 7
        field = descriptor.fields_by_number.get(number)
        if not number or wire_type in (3, 4, 6, 7):
            raise _Damage(f"at byte {start}, in {path}: no field begins like this")
        if wire_type == 0:
            _, at = _varint(data, at, end, "a number", path)
            continue
        size = {1: 8, 5: 4}.get(wire_type, 0)
        if wire_type == 2:
            size, at = _varint(data, at, end, "a length", path)
        if size > end - at:
            name = field.name if field is not None else f"field {number}"
            raise _Damage(f"at byte {start}, in {path}: {name} should take {size} bytes, but {end - at} are left")
        if wire_type == 2 and field is not None and field.message_type is not None:
            count = counts[number] = counts.get(number, -1) + 1
            _walk(data, at, at + size, field.message_type, f"{path}, {field.name}[{count}]")
        at += size

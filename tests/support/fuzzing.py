"""Mutated models, and everything to do with each: read, print, check, compile, differentiate, run.

A case is a seed and a number, and is made the same way each time. Whatever the mutation did, a case ends well or in a
`FluidError`; `tests/formats/test_fuzz.py` runs a few thousand, `benchmarks/fuzz.py` as many as wanted.
"""

from __future__ import annotations

import json
import math
import pickle
import random
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from paths import TESTS
from samples import OPS, Sample, cast

import fluid
from fluid import io
from fluid.errors import FluidError
from fluid.executor import Scope, scope_guard
from fluid.executor.planned.plan import compile_plan
from fluid.formats.pir.files import pir_bytes
from fluid.formats.pir.json_reading import parse_pir
from fluid.formats.program import parse_program, serialize_program
from fluid.formats.shards import shard_names
from fluid.formats.tensors import write_rows, write_tensor
from fluid.formats.text import parse_program_text
from fluid.ir.program import Operator
from fluid.ir.verify import find_faults
from fluid.opdef.registry import Rule, all_ops
from fluid.proto import ProgramDesc
from fluid.saving import models as model_io
from fluid.saving.by_workers import save_by_workers
from fluid.saving.checkpoint import load_checkpoint, save_checkpoint
from fluid.values.bfloat16 import to_bfloat16
from fluid.values.selected_rows import SelectedRows
from fluid.values.spec import Spec
from fluid.values.types import VarType, as_dtype, is_floating

try:
    import fuzzing_onnx
except ImportError:  # the package onnx is not installed
    fuzzing_onnx = None  # type: ignore[assignment]

GOLDEN = TESTS / "golden"


@dataclass
class Base:
    """A good file.

    Attributes:
        name, kind, data: its name, its kind, and its bytes.
        program: the program of parameters without names, and of checkpoints.
        feed: what the program of an op is fed.
        beside: the bytes of the files that lie beside it, by name.
    """

    name: str
    kind: str
    data: bytes
    program: bytes = b""
    feed: dict[str, Any] = field(default_factory=dict)
    beside: dict[str, bytes] = field(default_factory=dict)


def corpus(folder: Path, more: Path | None = None) -> list[Base]:
    """The golden files, and others made of them in `folder`; programs of `more` too, where given."""
    bases = []
    for root in filter(None, (GOLDEN / "zoo", more)):
        for path in sorted(root.glob("**/*")):
            name = path.relative_to(root).as_posix()
            if path.suffix in (".pb", ".pdmodel") or path.name == "__model__":
                bases.append(Base(name, "program", path.read_bytes()))
            elif path.suffix == ".pdiparams" and path.stat().st_size < 1 << 20:
                bases.append(Base(name, "params", path.read_bytes(), path.with_suffix(".pdmodel").read_bytes()))
            elif path.parent.name == "separate" and path.stat().st_size < 1 << 16:
                bases.append(Base(name, "param", path.read_bytes()))
    bases += [Base(f"paddle3/{path.name}", "pir", path.read_bytes()) for path in sorted((GOLDEN / "paddle3").glob("*.json"))]
    pickles = sorted((GOLDEN / "pickles").glob("*.pd[po][ap]*"))
    bases += [Base(path.name, "pickle", path.read_bytes()) for path in pickles]
    for name in ("linreg/train.pb", "while_rnn/train.pb"):
        text = parse_program((GOLDEN / "zoo" / name).read_bytes()).to_string()
        bases.append(Base(name + ".txt", "text", text.encode()))
    arrays = {
        "fc_0.w_0": np.arange(6, dtype="float32").reshape(2, 3),
        "mask": np.array([True, False]),
        "ids": np.arange(5),
        "empty": np.zeros((0, 4), "float16"),
    }
    for ending in ("npz", "safetensors", "pdparams"):
        model_io.save_arrays(folder / f"base.{ending}", arrays)
        kind = "pickle" if ending == "pdparams" else ending
        bases.append(Base(f"arrays.{ending}", kind, (folder / f"base.{ending}").read_bytes()))
    np.savez_compressed(folder / "packed.npz", **arrays)  # type: ignore[arg-type]
    bases.append(Base("packed.npz", "npz", (folder / "packed.npz").read_bytes()))
    bases += _trained(folder)
    bases += _tensors()
    return bases


def onnx_corpus() -> list[Base]:
    """Models of ONNX; none if the package onnx is not installed."""
    models = fuzzing_onnx.models() if fuzzing_onnx is not None else {}
    return [Base(f"{name}.onnx", "onnx", data) for name, data in models.items()]


def _trained(folder: Path) -> Iterator[Base]:
    """A checkpoint of a small program, and its sparse and nested tensors."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard(), scope_guard(Scope()):
        x = fluid.data("x", [None, 2])
        fluid.optimizer.Adam().minimize(fluid.layers.mean(fluid.layers.dropout(fluid.layers.fc(x, 2), 0.5)))
        fluid.Executor().run(fluid.default_startup_program())
        program = fluid.default_main_program()
        save_checkpoint(program, str(folder / "base.ckpt"), step=3)
        data = serialize_program(program)
        yield Base("checkpoint", "checkpoint", (folder / "base.ckpt").read_bytes(), data)
        save_by_workers(program, folder / "case.ckpt", step=3, shards=True)
        (shard,) = shard_names(str(folder / "case.ckpt"))
        beside = {shard: (folder / shard).read_bytes()}
        yield Base("shards", "shards", (folder / "case.ckpt").read_bytes(), data, beside=beside)


def _tensors() -> Iterator[Base]:
    """Files of one variable: sequences of sequences, bfloat16, and rows."""
    values = np.arange(12, dtype="float32").reshape(6, 2)
    records = {
        "sequences": lambda file: write_tensor(file, values, [[0, 2, 3], [0, 1, 4, 6]]),
        "short": lambda file: write_tensor(file, to_bfloat16(values)),
        "scalar": lambda file: write_tensor(file, np.array(True)),
    }
    for name, write in records.items():
        file = BytesIO()
        write(file)
        yield Base(name, "param", file.getvalue())
    file = BytesIO()
    write_rows(file, SelectedRows([5, 0, 5, 1, 2, 3], values, 7))
    yield Base("rows", "rows", file.getvalue())


def op_corpus(op_types: Iterable[str] = tuple(sorted(OPS))) -> list[Base]:
    """A program of each op by itself, with all attributes said, and with its gradient where it has one."""
    return [base for op_type in op_types for sample in _distinct(OPS[op_type]) if (base := op_base(op_type, sample)) is not None]


def _distinct(samples: list[Sample]) -> list[Sample]:
    """At most two samples, which fill different slots."""
    return list({tuple(sample.inputs): sample for sample in samples[::-1] if not sample.declared}.values())[:2]


def op_base(op_type: str, sample: Sample) -> Base | None:
    """The program of one sample of an op; None for ops that are appended with what no sample says."""
    program, definition, feed = fluid.Program(), all_ops()[op_type], {}
    block = program.global_block()

    def data(name: str, value: Any, lod: Any) -> Any:
        if isinstance(value, list):
            return [data(f"{name}_{i}", *pair) for i, pair in enumerate(zip(value, lod or [()] * len(value), strict=True))]
        feed[name] = (value, [list(np.diff(level)) for level in lod])
        shape = (-1, *value.shape[1:]) if lod else value.shape
        return block.create_var(
            name=name, shape=shape, dtype=value.dtype, lod_level=len(lod), is_data=True, stop_gradient=value.dtype.kind != "f"
        )

    values = cast({slot: value for slot, value in sample.inputs.items() if value is not None}, sample.dtypes[0])
    inputs = {slot: data(slot, value, sample.lods.get(slot, ())) for slot, value in values.items()}
    try:
        block.namespace.apply(definition, inputs, sample.attrs)
    except FluidError:
        return None
    op = block.ops[-1]
    op.attrs = {name: attr.default for name, attr in definition.attrs.items() if not attr.required} | op.attrs
    with suppress(FluidError):
        differentiate(program)
    return Base(op_type, "op", serialize_program(program), feed=feed)


# ----------------------------------------------------------------------------------------------------------- mutations
STRANGE = (-(1 << 63), -(1 << 31), -7, -2, -1, 0, 1, 2, 3, 7, 255, 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 62, (1 << 63) - 1)
SMALL = [number for number in STRANGE if -(1 << 31) <= number < 1 << 31]


def _bytes(draw: random.Random, data: bytes, bases: list[Base]) -> bytes:
    """Bits, bytes, cuts, pieces moved and pieces of other files, whatever the format."""
    found = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4, 8))):
        how, at = draw.randrange(9), draw.randrange(len(found) + 1)
        length = draw.choice((1, 1, 2, 4, 8, 40))
        if how <= 2 and found:
            found[at % len(found)] ^= 1 << draw.randrange(8)
        elif how == 3:
            found[at : at + length] = bytes(draw.choice((0, 1, 127, 128, 255)) for _ in range(length))
        elif how == 4:
            del found[at : at + length]
        elif how == 5:
            found[at:at] = draw.randbytes(length)
        elif how == 6:
            del found[at:]
        elif how == 7:
            start = draw.randrange(len(found) + 1)
            found[at:at] = found[start : start + length * 8]
        else:
            other = draw.choice(bases).data
            start = draw.randrange(len(other) + 1)
            found[at : at + length] = other[start : start + length * 8]
    return bytes(found[: 2 * len(data) + 1000])


_KINDS = sorted(all_ops())


def _desc(draw: random.Random, data: bytes, bases: list[Base]) -> bytes:
    """A program with one to three legal changes."""
    message = ProgramDesc.FromString(data)
    for _ in range(draw.choice((1, 1, 2, 3))):
        if not message.blocks:
            break
        block = draw.choice(message.blocks)
        change = draw.choice((_change_block, _change_var, _change_var, _change_op, _change_op, _change_attr, _change_attr))
        change(draw, message, block)
    found: bytes = message.SerializeToString()
    return found


def _change_block(draw: random.Random, message: Any, block: Any) -> None:
    how = draw.randrange(6)
    if how == 0:
        block.parent_idx = draw.choice((-2, -1, 0, 1, 2, 99))
    elif how == 1:
        block.forward_block_idx = draw.choice((-2, -1, 0, 1, 99))
    elif how == 2:
        block.idx = draw.choice((-1, 0, 1, 2))
    elif how == 3:
        del message.blocks[draw.randrange(len(message.blocks))]
    elif how == 4:
        new = message.blocks.add()
        new.CopyFrom(block)
        new.idx, new.parent_idx = len(message.blocks) - 1, draw.choice((0, block.idx))
    elif block.ops:
        ops = list(block.ops)
        draw.shuffle(ops)
        copies = [type(op).FromString(op.SerializeToString()) for op in ops]
        del block.ops[:]
        block.ops.extend(copies)


def _change_var(draw: random.Random, message: Any, block: Any) -> None:
    if not block.vars:
        return
    var = draw.choice(block.vars)
    tensor = var.type.lod_tensor.tensor
    how = draw.randrange(9)
    if how <= 1 and tensor.dims:
        tensor.dims[draw.randrange(len(tensor.dims))] = draw.choice(STRANGE)
    elif how == 2:
        tensor.dims.extend(draw.choice(STRANGE) for _ in range(draw.choice((1, 2, 70))))
    elif how == 3:
        del tensor.dims[:]
    elif how == 4:
        tensor.data_type = draw.choice((*range(7), 20, 22, 23, 24, 7, 99, -1))
    elif how == 5:
        var.type.type = draw.choice((7, 8, 9, 10, 11, 12, 13, 15, 17, 30, 99))
    elif how == 6:
        flag = draw.choice(("persistable", "need_check_feed", "is_parameter", "stop_gradient"))
        setattr(var, flag, not getattr(var, flag))
    elif how == 7:
        var.name = draw.choice((b"", b"../x", b"/etc/passwd", b"@EMPTY@", b"\xff\xfe", b"a" * 3000, draw.choice(block.vars).name))
    else:
        var.type.lod_tensor.lod_level = draw.choice(SMALL)


def _change_op(draw: random.Random, message: Any, block: Any) -> None:
    if not block.ops:
        return
    op = draw.choice(block.ops)
    slots = [*op.inputs, *op.outputs]
    slot = draw.choice(slots) if slots else None
    how = draw.randrange(8)
    if how <= 1:
        op.type = draw.choice(_KINDS).encode()
    elif how == 2 and slot is not None and slot.arguments:
        names = [var.name for var in block.vars] + [b"@EMPTY@", b"nowhere"]
        slot.arguments[draw.randrange(len(slot.arguments))] = draw.choice(names)
    elif how == 3 and slot is not None:
        slot.arguments.extend(slot.arguments or [b"nowhere"])
    elif how == 4 and slot is not None:
        del slot.arguments[:]
    elif how == 5 and slot is not None:
        slot.parameter = draw.choice((b"X", b"Y", b"Out", b"Out@GRAD", b"nonsense"))
    elif how == 6:
        block.ops.add().CopyFrom(op)
    else:
        del block.ops[draw.randrange(len(block.ops))]


def _change_attr(draw: random.Random, message: Any, block: Any) -> None:
    ops = [op for op in block.ops if op.attrs]
    if not ops:
        return
    attr = draw.choice(draw.choice(ops).attrs)
    how = draw.randrange(6)
    if how == 0:
        attr.type = draw.randrange(20)
    elif how == 1:
        attr.i = draw.choice(SMALL)
        attr.l = draw.choice(STRANGE)
        attr.block_idx = draw.choice((-1, 0, 1, 99))
    elif how == 2:
        attr.f = draw.choice((0.0, -1.0, math.inf, math.nan, 1e30))
        attr.s = draw.choice((b"", b"nonsense", b"\xff", b"NHWC", b"x" * 2000))
    elif how == 3:
        attr.ints.extend(draw.choice(SMALL) for _ in range(draw.choice((1, 2, 60))))
        attr.longs.extend(draw.choice(STRANGE) for _ in range(2))
    elif how == 4:
        for field in ("ints", "floats", "strings", "bools", "longs"):
            attr.ClearField(field)
        attr.b = not attr.b
    else:
        values = attr.ints
        if values:
            values[draw.randrange(len(values))] = draw.choice(SMALL)


SWEEP = ((1 << 31) - 1, -1, 0, 1 << 62)


def integers(message: Any) -> list[tuple[Any, int]]:
    """Each integer in an attribute of an op in block 0: the attribute, and the place in its list."""
    attrs = [attr for op in message.blocks[0].ops for attr in op.attrs if attr.name[:3] != b"op_"]
    return [(attr, place) for attr in attrs for place in range(len(attr.ints) + len(attr.longs) or attr.type in (0, 9))]


def change_integer(attr: Any, place: int, value: int) -> None:
    """Set an integer of an attribute, which becomes 64 bits wide if it takes that."""
    wide = not -(1 << 31) <= value < 1 << 31
    if attr.type in (0, 9):
        wide = wide or attr.type == 9
        attr.ClearField("l" if not wide else "i")
        attr.type = 9 if wide else 0
        setattr(attr, "l" if wide else "i", value)
        return
    values = [*attr.ints, *attr.longs]
    values[place] = value
    wide = wide or attr.type == 11
    attr.ClearField("ints")
    attr.ClearField("longs")
    attr.type = 11 if wide else 3
    (attr.longs if wide else attr.ints).extend(values)


def _sweep(draw: random.Random, data: bytes, bases: list[Base]) -> bytes:
    """One integer of an attribute, of the op or of its gradient op, at an extreme."""
    message = ProgramDesc.FromString(data)
    places = integers(message)
    if places:
        change_integer(*draw.choice(places), draw.choice(SWEEP))
    swept: bytes = message.SerializeToString()
    return swept


_TOKEN = re.compile(rb"[A-Za-z0-9_.@]+|\S")


def _text(draw: random.Random, data: bytes, bases: list[Base]) -> bytes:
    """Words and lines changed, left out, given twice."""
    lines = data.split(b"\n")
    for _ in range(draw.choice((1, 1, 2, 4))):
        at = draw.randrange(len(lines))
        words = list(_TOKEN.finditer(lines[at]))
        how = draw.randrange(6)
        if how == 0:
            del lines[at]
        elif how == 1:
            lines.insert(draw.randrange(len(lines) + 1), lines[at])
        elif words:
            word = draw.choice(words)
            new = draw.choice(
                (
                    b"",
                    b"[",
                    b"}",
                    b'"',
                    b"block",
                    b"{",
                    str(draw.choice(STRANGE)).encode(),
                    b"9" * 5000,
                    b"1e999",
                    draw.choice(_KINDS).encode(),
                )
            )
            if how == 2:
                new = draw.choice(list(_TOKEN.finditer(draw.choice(lines))) or [word])[0]
            lines[at] = lines[at][: word.start()] + new + lines[at][word.end() :]
        if not lines:
            lines = [b""]
    return b"\n".join(lines)


def _records(draw: random.Random, data: bytes, bases: list[Base]) -> bytes:
    """The numbers that head a tensor: levels, sizes, element type, extents."""
    starts = [found.start() for found in re.finditer(rb"\0{12}\0{4}", data)] or [0]
    at = draw.choice(starts)
    how = draw.randrange(4)
    if how == 0:
        at += draw.choice((0, 4, 12, 16))
        return data[:at] + struct.pack("<Q", draw.choice(STRANGE) & ((1 << 64) - 1)) + data[at + 8 :]
    if how == 1:
        at += draw.randrange(16, 34)
        return data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]
    if how == 2:
        level = draw.choice(([0, 2], [0, 5, 3], [1, 2], [0] * 50))
        lod = struct.pack(f"<QQ{len(level)}Q", 1, 8 * len(level), *level)
        return data[: at + 4] + lod + data[at + 12 :]
    desc = b"\x08" + bytes([draw.choice((5, 22, 3, 99))])
    for _ in range(draw.choice((1, 2, 40))):
        desc += b"\x10" + _varint(draw.choice(STRANGE))
    (size,) = struct.unpack_from("<i", data.ljust(at + 20, b"\0"), at + 16)
    return data[: at + 16] + struct.pack("<i", len(desc)) + desc + data[at + 20 + max(size, 0) :]


def _rows(draw: random.Random, data: bytes, bases: list[Base]) -> bytes:
    """The number of rows, one of their numbers, the height, or the version at the end of these."""
    (count,) = struct.unpack_from("<Q", data, 4)
    at = draw.choice((4, 12, 12 + 8 * draw.randrange(count), 12 + 8 * count, 12 + 8 * count, 20 + 8 * count))
    return data[:at] + struct.pack("<Q", draw.choice(STRANGE) & ((1 << 64) - 1)) + data[at + 8 :]


def _shards(draw: random.Random, data: bytes, bases: list[Base]) -> bytes:
    """A manifest's entries about its shards."""
    tree = json.loads(data)
    node = draw.choice(list(_containers(tree)))
    key = draw.choice(list(node) if isinstance(node, dict) else list(range(len(node))))
    if isinstance(node, list) and draw.random() < 0.3:
        node.append(node[key])
    else:
        node[key] = draw.choice((_otherwise(draw, node[key]), "../x", "case.ckpt", "\0", [], {}))
    return json.dumps(tree).encode("utf-8", "surrogatepass")


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _npz(draw: random.Random, data: bytes, bases: list[Base]) -> bytes:
    """The heads of arrays, and the numbers of the archive."""
    if draw.random() < 0.5:
        shapes = list(re.finditer(rb"\(\d[^)]*\)", data))
        new = draw.choice((b"(-1,)", b"(0, 9)", b"(4611686018427387904, 4)", b"(((", b"(1," * 30, b"[2]", b"(2.5,)"))
        if shapes:
            found = draw.choice(shapes)
            new = new[: len(found[0])].ljust(len(found[0]))
            return data[: found.start()] + new + data[found.end() :]
    marks = [found.start() for found in re.finditer(rb"PK(\x01\x02|\x03\x04|\x05\x06|\x06\x06)", data)]
    at = draw.choice(marks or [0]) + draw.choice((4, 6, 8, 10, 14, 18, 20, 22, 24, 26, 28, 30, 42))
    return data[:at] + struct.pack("<I", draw.choice(STRANGE) & 0xFFFFFFFF) + data[at + 4 :]


def _safetensors(draw: random.Random, data: bytes, bases: list[Base]) -> bytes:
    """A header's entries about a tensor."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    name = draw.choice([name for name in header if name != "__metadata__"])
    entry = header[name]
    how = draw.randrange(5)
    if how == 0:
        entry["shape"] = [draw.choice(STRANGE) for _ in range(draw.choice((0, 1, 2, 40)))]
    elif how == 1:
        entry["dtype"] = draw.choice(("F32", "F64", "BF16", "F8_E4M3", "nonsense", 3))
    elif how == 2:
        entry["data_offsets"] = [draw.choice(STRANGE), draw.choice(STRANGE)]
    elif how == 3:
        header[draw.choice(("__metadata__", "", "../x", "fc_0.w_0"))] = draw.choice((entry, {}, [], {"a": "b"}, "x"))
    else:
        entry.pop(draw.choice(list(entry)))
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + length :]


def _pickle(draw: random.Random, data: bytes, bases: list[Base]) -> bytes:
    """The value in another protocol, a changed part of it, or instructions put between."""
    how = draw.randrange(3)
    if how == 0:
        value = pickle.loads(data)  # one of our own files
        for _ in range(draw.randrange(1, 3)):
            key = draw.choice(list(value))
            strange = (None, [value[key]], {"a": 1}, np.float32(2), b"x", "x", -1, (1,) * 40, np.array(["text"]), {2: {3: {}}})
            value[draw.choice((key, "UnpackBigParamInfor@@", "StructuredToParameterName@@"))] = draw.choice(strange)
        return pickle.dumps(value, draw.randrange(6))
    at = draw.randrange(2, len(data))
    new = draw.choice(
        (b"0", b"1", b"2", b"(", b"l", b"d", b"t", b"u", b"e", b"R", b"b", b".", b"}", b"]", b"\x85", b"h\x00", b"\x94")
    )
    return data[:at] + new * draw.choice((1, 1, 3, 500)) + data[at + draw.choice((0, 1)) :]


def _pir(draw: random.Random, data: bytes, bases: list[Base]) -> bytes:
    """A program of Paddle 3 with one to three changes, as well-formed JSON."""
    tree = json.loads(data)
    for _ in range(draw.choice((1, 1, 2, 3))):
        nodes = list(_containers(tree))
        node = draw.choice(nodes)
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            continue
        key, how = draw.choice(keys), draw.randrange(8)
        value = node[key]
        if how <= 2:
            node[key] = _otherwise(draw, value)
        elif how == 3:
            del node[key]
        elif how == 4:
            other = draw.choice(nodes)
            node[key] = json.loads(json.dumps(other)) if len(json.dumps(other)) < 4000 else None
        elif how == 5 and isinstance(node, list):
            node.insert(draw.randrange(len(node) + 1), json.loads(json.dumps(value)))
        elif how == 6 and isinstance(node, list):
            draw.shuffle(node)
        elif isinstance(node, dict):
            node[draw.choice(("#", "%", "D", "I", "O", "A", "regions", "TT"))] = value
    return json.dumps(tree, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _containers(tree: Any) -> Iterator[Any]:
    if isinstance(tree, (dict, list)):
        yield tree
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from _containers(item)


_OF_PIR = (
    "1.relu", "1.while", "1.if", "2.yield", "1.full", "1.reshape", "0.combine", "0.split", "1.adam_", "2.tuple_pop", "p", "NULL",
    "2.stack_create", "1.set_value_", "9.nonsense", "0.t_f32", "0.t_vec", "0.a_array", "0.a_i32", "1.a_dtype",
)  # fmt: skip


def _otherwise(draw: random.Random, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return draw.choice((*STRANGE, 1.5, math.inf, 10**30, None))
    if isinstance(value, str):
        return draw.choice((*_OF_PIR, "", "x", "../x", "float32", "\ud800", "a" * 3000))
    return draw.choice(([], {}, None, 0, [[]], {"#": "NULL"}, "x"))


Mutation = Callable[[random.Random, bytes, list[Base]], bytes]
MUTATIONS: dict[str, tuple[Mutation, ...]] = {
    "program": (_bytes, _desc, _desc, _desc),
    "op": (_sweep, _sweep, _sweep, _desc),
    "text": (_bytes, _text, _text),
    "params": (_bytes, _records, _records),
    "param": (_bytes, _records, _records),
    "rows": (_bytes, _rows, _rows),
    "pickle": (_bytes, _pickle, _pickle),
    "pir": (_bytes, _pir, _pir, _pir),
    "npz": (_bytes, _npz),
    "safetensors": (_bytes, _safetensors),
    "checkpoint": (_bytes, _npz),
    "shards": (_bytes, _shards),
}
if fuzzing_onnx is not None:
    MUTATIONS["onnx"] = (_bytes, fuzzing_onnx.mutated, fuzzing_onnx.mutated)
_SHARES = {
    "onnx": 4,
    "program": 8,
    "op": 8,
    "text": 3,
    "params": 2,
    "param": 2,
    "pickle": 3,
    "pir": 6,
    "npz": 2,
    "safetensors": 2,
    "checkpoint": 2,
    "rows": 1,
    "shards": 1,
}


@dataclass
class Case:
    """A mutated file."""

    number: int
    base: Base
    data: bytes


def make_case(seed: int, number: int, bases: list[Base]) -> Case:
    """Case `number` of the run `seed`."""
    draw = random.Random(f"{seed}:{number}")
    kinds = sorted({base.kind for base in bases})
    kind = draw.choices(kinds, [_SHARES[kind] for kind in kinds])[0]
    base = draw.choice([base for base in bases if base.kind == kind])
    mutation = draw.choice(MUTATIONS[kind])
    return Case(number, base, mutation(draw, base.data, bases))


# ------------------------------------------------------------------------------------------------------- what is done
ENDINGS = {
    "program": "pdmodel",
    "op": "pdmodel",
    "text": "txt",
    "params": "pdiparams",
    "param": "fc_0",
    "pickle": "pdparams",
    "pir": "json",
    "checkpoint": "ckpt",
    "shards": "ckpt",
}


class Contract(AssertionError):
    """A case that ended as none may."""


def run_case(case: Case, folder: Path) -> str:
    """Do with the file all that reads it; how far it came. Anything but a `FluidError` comes through."""
    kind = case.base.kind
    path = folder / f"case.{ENDINGS.get(kind, kind)}"
    path.write_bytes(case.data)
    for name, data in case.base.beside.items():
        (folder / name).write_bytes(data)
    scope = Scope()
    try:
        if kind == "params":
            program = parse_program(case.base.program)
            (folder / "net.pdmodel").write_bytes(case.base.program)
            try:
                fluid.load_model(folder / "net.pdmodel", params=path, scope=scope)
            except FluidError as error:
                _check_message(error, path)
                return "refused"
            with scope_guard(scope):
                io.save_persistables(None, str(folder / "again"), program, "params")
            return "loaded"
        if kind in ("param", "rows"):
            return _one_tensor(path, folder, VarType.SELECTED_ROWS if kind == "rows" else VarType.LOD_TENSOR)
        if kind in ("checkpoint", "shards"):
            try:
                load_checkpoint(parse_program(case.base.program), str(path), scope=scope)
            except FluidError as error:
                _check_message(error, path)
                if scope.local_var_names():
                    raise Contract(f"the scope has changed: {scope.local_var_names()}") from error
                return "refused"
            return "loaded"
        try:
            model = fluid.load_model(path, scope=scope)
        except FluidError as error:
            _check_message(error, path)
            return "refused"
        if model.program is None:
            model.values()
            return "loaded"
        return use_program(model.program, case.base.feed)
    finally:
        path.unlink()


def _check_message(error: FluidError, path: Path) -> None:
    text = str(error)
    if str(path.parent) not in text or len(text) > 20_000:
        raise Contract(f"an error of {len(text)} characters that does not name the file: {text[:300]}") from error


def _one_tensor(path: Path, folder: Path, kind: VarType) -> str:
    program = fluid.Program()
    block = program.global_block()
    block.create_var(name=path.name, type=kind, persistable=True)  # of any shape
    with scope_guard(Scope()):
        try:
            io.load_vars(None, str(folder), program, [path.name])
        except FluidError as error:
            _check_message(error, path)
            return "refused"
        io.save_vars(None, str(folder / "again"), program, [path.name])
    return "loaded"


@contextmanager
def refused() -> Iterator[None]:
    """In the ``with`` block, a `FluidError` is fine, except for lack of memory: that would mean that sizes in a file were
    trusted."""
    try:
        yield
    except FluidError as error:
        if "fit together: MemoryError" in str(error):
            raise Contract(f"memory for what the file says: {error}") from error


def use_program(program: fluid.Program, feed: dict[str, Any]) -> str:
    """Print, check, write, parse again, compile, differentiate and run a program."""
    str(program)
    text = program.to_string()
    faults = find_faults(program)
    list(map(str, faults))
    program.unsupported_ops()
    try:
        data = serialize_program(program)
    except FluidError:
        data = b""
    if data:
        again = serialize_program(parse_program(data))
        if again != data:
            raise Contract("what is written is read otherwise")
    with refused():
        parse_pir(pir_bytes(program))
    with refused():  # names that hold what no text can, such as lone surrogates
        parse_program_text(text)
    with refused():
        differentiate(program.clone())
    end = "parsed"
    with refused():
        program.clone(for_test=True)
        for fetches in ends_of(program):
            end = max(end, run(program, feed, fetches), key=("parsed", "compiled", "ran").index)
    return end


def differentiate(program: fluid.Program) -> None:
    """Append gradients of the outputs of the last two ops by feeds and parameters."""
    root = program.global_block()
    floating = {name: var for name, var in root.vars.items() if var.has_dtype and is_floating(var.dtype)}
    inputs = [var for var in floating.values() if var.is_data or var.persistable]
    for var in inputs:
        var.stop_gradient = False
    ops = [op for op in root.ops if op.type not in ("feed", "fetch")]
    targets = [floating[name] for op in ops[-2:] for name in _with_gradient(op) if name in floating]
    if targets and inputs:
        fluid.gradients(targets, inputs)


def _with_gradient(op: Operator) -> list[str]:
    """The outputs of an op that have a gradient, by its definition."""
    rule = op.definition.rule if op.definition is not None else None
    return [name for slot, names in op.outputs.items() if not isinstance(rule, Rule) or slot in rule.cotangents for name in names]


def ends_of(program: fluid.Program) -> list[list[str]]:
    """The outputs of the first op and of the last two."""
    root = program.global_block()
    ops = [op for op in root.ops if op.type not in ("feed", "fetch")]
    parts = ([name for op in part for name in op.output_arg_names if name in root.vars][:2] for part in (ops[:1], ops[-2:]))
    return [names for names in parts if names]


MOST_RUN = 16 << 20
"""Most bytes of the values of a program that is run."""


def run(program: fluid.Program, feed: dict[str, Any], fetches: list[str]) -> str:
    """Compile a program and run it if it is small: on `feed`, or on zeros, with two rows where a size is not said."""
    root = program.global_block()
    scope, arrays = Scope(), {}
    for name, var in root.vars.items():
        if var.type is not VarType.LOD_TENSOR or not var.has_shape or not var.has_dtype:
            continue
        shape = tuple(2 if extent == -1 else extent for extent in var.shape)
        if any(extent < 0 for extent in shape) or var.dtype is VarType.BF16:
            continue
        try:
            array = np.broadcast_to(np.zeros((), var.dtype.numpy), shape)  # takes no memory
        except (ValueError, FluidError):
            continue
        if var.is_data:
            arrays[name] = array
        elif var.persistable:
            scope.put(name, array)
    if sum(array.nbytes for array in arrays.values()) > MOST_RUN:
        return "compiled"
    sequences = {name: lod for name, (_, lod) in feed.items() if lod}
    arrays |= {name: value for name, (value, _) in feed.items() if name in root.vars}
    if not sequences:
        specs = {name: Spec(array.shape, as_dtype(array.dtype)) for name, array in arrays.items()}
        plan = compile_plan(program, specs, fetches, scope)
        sizes = [spec.nbytes for spec in (*plan.storage.values(), *plan.externals.values(), *plan.feeds.values())]
        if plan.arena_bytes + sum(sizes) > MOST_RUN:
            return "compiled"
    if any(op.type == "while" for block in program.blocks for op in block.ops):
        return "compiled"  # it may be one that never ends
    fed = {name: (array, sequences[name]) if name in sequences else array for name, array in arrays.items()}
    fluid.Executor().run(program, fed, fetches, scope=scope)
    return "ran"

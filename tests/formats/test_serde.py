"""The wire format: values survive a round trip, so do unknown fields, and any bytes parse or fail with a reason."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time

import pytest
from checks import each
from hypothesis import given
from paths import ROOT, TESTS
from programs import content, programs
from test_text import small_program

from fluid.errors import FluidError, FluidTypeError, FormatError, ProgramError
from fluid.formats.program import find_damage, parse_program, serialize_program
from fluid.ir.attr_kinds import attr_kind
from fluid.ir.program import Operator, OpRole, Parameter, Program, Variable
from fluid.proto import ProgramDesc
from fluid.values.types import VarType

ZOO = TESTS / "golden" / "zoo"
FILES = sorted(
    path.relative_to(ZOO).as_posix()
    for path in ZOO.glob("**/*")
    if path.suffix in (".pb", ".pdmodel") or path.name == "__model__"
)


# ------------------------------------------------------------------------------------------------------------ the schema
def test_descriptor_is_that_of_the_proto_file():
    text = re.sub(r"//.*", "", (ROOT / "proto" / "framework.proto").read_text())
    declared = {}
    for message, body in re.findall(r"message (\w+) \{(.*?)\}", text, re.S):
        for label, kind, name, number in re.findall(r"(optional|repeated) (\w+) (\w+) = (\d+)", body):
            declared[message, name] = (int(number), label == "repeated", kind)
    kinds = {1: "double", 2: "float", 3: "int64", 5: "int32", 8: "bool", 12: "bytes"}
    loaded = {}
    for message, descriptor in ProgramDesc.DESCRIPTOR.file.message_types_by_name.items():
        for field in descriptor.fields:
            kind = field.message_type.name if field.message_type is not None else kinds[field.type]
            many = field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
            loaded[message, field.name] = (field.number, many, kind)
    assert loaded == declared
    assert ProgramDesc.DESCRIPTOR.full_name == "fluid.proto.ProgramDesc"


def test_a_schema_of_the_same_names_may_be_loaded_beside():
    code = """if True:
        from google.protobuf import descriptor_pb2, descriptor_pool
        other = descriptor_pb2.FileDescriptorProto(name="framework.proto", package="paddle.framework.proto", syntax="proto2")
        other.message_type.add(name="ProgramDesc")
        descriptor_pool.Default().Add(other) if hasattr(descriptor_pool.Default(), "Add") else None
        import fluid.proto
        again = descriptor_pb2.FileDescriptorProto(name="fluid/framework.proto", package="fluid.proto", syntax="proto2")
        again.message_type.add(name="ProgramDesc")
        descriptor_pool.Default().AddSerializedFile(again.SerializeToString())
    """
    subprocess.run([sys.executable, "-c", code], check=True)


# -------------------------------------------------------------------------------------------------------------- the wire
def message_of(program):
    return ProgramDesc.FromString(serialize_program(program))


def test_what_is_written():
    """Field by field, the message of a small program."""
    root, body = message_of(small_program()).blocks
    assert (root.idx, root.parent_idx, root.HasField("forward_block_idx")) == (0, -1, False)
    assert (body.idx, body.parent_idx) == (1, 0)
    w = next(var for var in root.vars if var.name == b"w")
    assert (w.persistable, w.is_parameter, w.type.type, w.type.lod_tensor.tensor.data_type) == (True, True, 7, 5)
    assert list(w.type.lod_tensor.tensor.dims) == [3, 4]
    x = next(var for var in root.vars if var.name == b"x")
    assert (x.persistable, x.need_check_feed, x.stop_gradient, x.is_parameter) == (False, True, True, False)
    xs = next(var for var in root.vars if var.name == b"xs")
    assert xs.type.lod_tensor.lod_level == 2
    steps = next(var for var in root.vars if var.name == b"steps")
    assert (steps.type.type, steps.type.HasField("lod_tensor")) == (11, False)
    op = root.ops[0]
    assert [(slot.parameter, list(slot.arguments)) for slot in op.inputs] == [(b"X", [b"x"]), (b"Y", [b"w"])]
    attrs = {attr.name: attr for attr in op.attrs}
    assert (attrs[b"num_col_dims"].type, attrs[b"num_col_dims"].i) == (0, 1)
    assert (attrs[b"scale"].type, attrs[b"scale"].f) == (1, 1.0)
    assert (attrs[b"names"].type, list(attrs[b"names"].strings)) == (5, [b"a", b"b"])
    assert (root.ops[1].attrs[0].type, root.ops[1].attrs[0].block_idx) == (8, 1)
    assert message_of(small_program()).version.HasField("version")


def test_golden_bytes():
    """A program of one variable and one op, spelled out by hand."""
    program = Program()
    block = program.global_block()
    block.vars["x"] = Variable(block, name="x", shape=[2], dtype="float32")
    block.ops.append(Operator(block, "relu", {"X": ["x"]}, {"Out": ["x"]}, {"axis": -1}))
    minus_one = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    var = b"\x0a\x01x" + b"\x12\x0a" + b"\x08\x07" + b"\x1a\x06" + b"\x0a\x04" + b"\x08\x05\x10\x02" + b"\x18\x00"
    op = b"\x0a\x06\x0a\x01X\x12\x01x" + b"\x12\x08\x0a\x03Out\x12\x01x" + b"\x1a\x04relu"
    op += b"\x22\x13" + b"\x0a\x04axis\x10\x00\x18" + minus_one
    content_ = b"\x08\x00\x10" + minus_one + b"\x1a" + bytes([len(var)]) + var + b"\x22" + bytes([len(op)]) + op
    assert serialize_program(program) == b"\x0a" + bytes([len(content_)]) + content_ + b"\x22\x02\x08\x00"


@given(programs(as_files_have_them=True))
def test_any_program_comes_back_equal(program):
    data = serialize_program(program)
    again = parse_program(data)
    # A variable that is read and never written is taken for fed.
    assert content(again, without=["is_data"]) == content(program, without=["is_data"])
    assert serialize_program(again) == data


@each("name", FILES)
def test_files_of_paddle_come_back_byte_for_byte(name):
    data = (ZOO / name).read_bytes()
    assert serialize_program(parse_program(data)) == data
    assert serialize_program(parse_program(data).clone()) == data


def test_an_attribute_given_twice_counts_as_the_last_time():
    """Paddle writes such: while_rnn/train.pb is one of its files."""
    message = message_of(small_program())
    attrs = message.blocks[0].ops[0].attrs
    del attrs[:]
    for name, value in ((b"a", 1), (b"b", 2), (b"a", 3), (b"c", 4), (b"a", 5)):
        attrs.add(name=name, type=0, i=value)
    attrs[0].MergeFromString(unknown(100))
    program = parse_program(message.SerializeToString())
    op = program.global_block().ops[0]
    assert op.attrs == {"b": 2, "c": 4, "a": 5}
    assert serialize_program(program) == message.SerializeToString()
    op.attrs["a"] = 6
    written = message_of(program).blocks[0].ops[0].attrs
    assert [(attr.name, attr.i) for attr in written] == [(b"a", 1), (b"b", 2), (b"a", 3), (b"c", 4), (b"a", 6)]
    del op.attrs["a"]
    assert [attr.name for attr in message_of(program).blocks[0].ops[0].attrs] == [b"b", b"c"]


def sorted_attrs(data):
    message = ProgramDesc.FromString(data)
    for block in message.blocks:
        for op in block.ops:
            attrs = sorted(attr.SerializeToString() for attr in op.attrs)
            del op.attrs[:]
            for attr in attrs:
                op.attrs.add().ParseFromString(attr)
    return message.SerializeToString()


def test_a_program_of_paddle_says_what_it_says():
    program = parse_program((ZOO / "linreg" / "train.pb").read_bytes())
    block = program.global_block()
    assert {parameter.name: parameter.shape for parameter in program.all_parameters()} == {"fc_0.b_0": (1,), "fc_0.w_0": (13, 1)}
    assert block.var("x").is_data and block.var("x").shape == (-1, 13)
    assert block.var("fc_0.w_0@GRAD").dtype is VarType.FP32
    assert {op.role for op in block.ops} == {OpRole.FORWARD, OpRole.BACKWARD, OpRole.OPTIMIZE, OpRole.FORWARD | OpRole.LOSS, 257}
    loops = parse_program((ZOO / "while_rnn" / "train.pb").read_bytes())
    assert [(block.parent_idx, block.forward_block_idx) for block in loops.blocks] == [(-1, -1), (0, -1), (0, 1)]


def test_floats_come_back_as_they_were_written_down():
    program = Program()
    values = [0.1, 1e-05, 3.0, -0.0, float("inf"), 3.4028235e38, 1.1754944e-38, 1e-45]
    program.global_block().append_op("thing", {}, {}, {"one": 0.1, "many": values})
    attrs = parse_program(serialize_program(program)).global_block().ops[0].attrs
    assert (attrs["one"], list(map(repr, attrs["many"]))) == (0.1, list(map(repr, values)))


@each(
    ("value", "kind"),
    [
        (True, "bool"),
        (1, "int"),
        (1 << 31, "long"),
        (-(1 << 63), "long"),
        (1.0, "float"),
        (1e300, "float64"),
        ("text", "string"),
        ([], "ints"),
        ([1, 1 << 40], "longs"),
        ([1, 0.5], "floats"),
        (["a"], "strings"),
        ([True], "bools"),
        (1j, "scalar"),
    ],
)
def test_kinds_of_attributes_nobody_defines(value, kind):
    op = Operator(Program().global_block(), "unknown", {}, {}, {"value": value})
    assert attr_kind(op, "value", value) == kind
    op.block.ops.append(op)
    again = parse_program(serialize_program(op.block.program)).global_block().ops[0]
    assert again.attrs["value"] == value and type(again.attrs["value"]) is type(value)


def test_kinds_of_attributes_by_definition():
    op = Operator(Program().global_block(), "concat", {}, {}, {"axis": 1, "op_role_var": [], "x": []})
    assert [attr_kind(op, name, value) for name, value in op.attrs.items()] == ["int", "strings", "ints"]
    lookup = Operator(op.block, "lookup_table_v2", {}, {}, {"padding_idx": -1})
    assert attr_kind(lookup, "padding_idx", -1) == "long"
    assert attr_kind(lookup, "padding_idx", 0.5) == "float"  # a value that its kind cannot hold is not bent


@each("value", [object(), {"a": 1}, [1, "a"], 1 << 70, None, "\ud800"])
def test_what_the_wire_cannot_hold_is_said(value):
    program = Program()
    program.global_block().ops.append(Operator(program.global_block(), "thing", {}, {}, {"attr": value}))
    with pytest.raises(ProgramError, match=r"thing: attribute 'attr'|cannot be written as UTF-8"):
        serialize_program(program)


def test_a_block_of_another_program_is_said():
    program, other = Program(), Program()
    program.global_block().append_op("thing", {}, {}, {"sub_block": other.create_block()})
    with pytest.raises(ProgramError, match="thing owns block 1 of another program"):
        serialize_program(program)


def test_names_in_other_encodings_survive():
    program = Program()
    name = b"\xc3\x28\xff".decode("utf-8", "surrogateescape")
    program.global_block().create_var(name=name, shape=[1], dtype="float32")
    data = serialize_program(program)
    assert b"\xc3\x28\xff" in data
    again = parse_program(data)
    assert list(again.global_block().vars) == [name] and serialize_program(again) == data


# ----------------------------------------------------------------------------------------------------- what is not known
def unknown(number, text=b"kept"):
    """A field that no schema has."""
    assert 100 <= number < 2048
    return bytes([(number << 3 | 2) & 127 | 128, number >> 4, len(text)]) + text


def strange_message():
    """A small program with something unknown in every message."""
    message = message_of(small_program())
    message.version.version = 3000000
    pair = message.op_version_map.pair.add()
    pair.op_name, pair.op_version.version = b"tanh", 4
    root = message.blocks[0]
    x, op = root.vars[0], root.ops[0]
    x.attrs.add(name=b"color", type=0, i=3)
    x.type.tuple.element_type.append(5)
    op.is_target = True
    op.attrs.add(name=b"newer", type=99, i=1)
    scalar = op.attrs.add(name=b"number", type=16).scalar
    scalar.type, scalar.c.r, scalar.c.i = 4, 0.0, 2.0
    root.vars[1].type.lod_tensor.tensor.data_type = 77
    next(var for var in root.vars if var.name == b"steps").type.type = 78
    where = [message, root, x, x.type, x.type.lod_tensor, x.type.lod_tensor.tensor, op, op.inputs[0], op.outputs[0], op.attrs[0]]
    for number, part in enumerate(where, 100):
        part.MergeFromString(unknown(number))
    return message


def test_what_is_unknown_survives():
    data = strange_message().SerializeToString()
    program = parse_program(data)
    again = serialize_program(program)
    assert sorted_attrs(again) == sorted_attrs(data)
    for number in range(100, 110):
        assert unknown(number) in again
    op = program.global_block().ops[0]
    assert "newer" not in op.attrs and op.attrs["number"] == 2j
    assert program.global_block().vars["steps"].type is VarType.RAW
    assert not program.global_block().vars["w"].has_dtype
    copied = serialize_program(program.clone())
    assert sorted_attrs(copied) == sorted_attrs(data)


@each("position", [0, 1, 3])
def test_attributes_of_unknown_types_stay_where_they_are(position):
    message = message_of(small_program())
    attrs = message.blocks[0].ops[0].attrs
    entries = [type(entry).FromString(entry.SerializeToString()) for entry in attrs]
    assert len(entries) >= 3
    entries.insert(position if position < 3 else len(entries), type(entries[0])(name=b"newer", type=99, i=1))
    del attrs[:]
    attrs.extend(entries)
    data = message.SerializeToString()
    program = parse_program(data)
    assert serialize_program(program) == serialize_program(program.clone()) == data
    op = program.global_block().ops[0]
    op.attrs.clear()
    assert [attr.name for attr in message_of(program).blocks[0].ops[0].attrs] == [b"newer"]


def test_what_the_program_says_now_is_what_is_written():
    program = parse_program(strange_message().SerializeToString())
    block = program.global_block()
    op = block.ops[0]
    op.attrs["num_col_dims"] = 2.5
    op.attrs["scale"] = "now text"
    del op.attrs["names"]
    op.rename_input("x", "xs")
    op.type = "your_mul"
    block.vars["w"].dtype = "int64"
    block.vars["steps"].type = VarType.LOD_TENSOR_ARRAY
    x = block.vars["x"]
    x.shape, x.stop_gradient, x.need_check_feed, x.persistable, x.lod_level = [7], False, False, True, 1
    block.remove_op(2)
    message = message_of(program)
    root = message.blocks[0]
    attrs = {attr.name: attr for attr in root.ops[0].attrs}
    assert set(attrs) == {b"num_col_dims", b"scale", b"newer", b"number"}
    assert (attrs[b"num_col_dims"].type, attrs[b"num_col_dims"].f) == (1, 2.5)
    assert (attrs[b"scale"].type, attrs[b"scale"].s) == (2, b"now text")
    assert root.ops[0].type == b"your_mul" and list(root.ops[0].inputs[0].arguments) == [b"xs"]
    found = {var.name: var for var in root.vars}
    assert found[b"w"].type.lod_tensor.tensor.data_type == 3
    assert found[b"steps"].type.type == 13
    x = found[b"x"]
    assert (x.stop_gradient, x.need_check_feed, x.persistable, x.type.lod_tensor.lod_level) == (False, False, True, 1)
    assert list(x.type.lod_tensor.tensor.dims) == [7]
    assert [op.type for op in root.ops] == [b"your_mul", b"my_loop", b"my_sgd"]


# ----------------------------------------------------------------------------------------------------------- old files
def old_file(program):
    """The program as Fluid 1.6 writes it: without marks of parameters, and with field 3."""
    message = message_of(program)
    for block in message.blocks:
        for var in block.vars:
            for flag in ("is_parameter", "stop_gradient", "need_check_feed"):
                var.ClearField(flag)
    return message.SerializeToString() + b"\x1a\x02\x0a\x00"


def test_parameters_of_files_that_do_not_mark_them():
    program = Program()
    block = program.global_block()
    for name in ("w", "lr", "moment", "mean", "frozen_ids", "unread"):
        block.create_var(name=name, shape=[3], dtype="int64" if name == "frozen_ids" else "float32", persistable=True)
    for name in ("x", "y", "made"):
        block.create_var(name=name, shape=[-1, 3], dtype="float32")
    block.append_op("my_mul", {"X": ["x"], "Y": ["w", "frozen_ids"]}, {"Out": ["made"]})
    block.append_op("my_norm", {"X": ["made"], "Mean": ["mean"]}, {"Out": ["made"], "MeanOut": ["mean"]})
    optimize = {"op_role": OpRole.OPTIMIZE}
    block.append_op("my_adam", {"Param": ["w"], "LR": ["lr"], "M": ["moment"]}, {"ParamOut": ["w"], "MOut": ["moment"]}, optimize)
    data = old_file(program)
    again = parse_program(data)
    assert [parameter.name for parameter in again.all_parameters()] == ["w"]
    w = again.global_block().vars["w"]
    assert isinstance(w, Parameter) and w.trainable and w.shape == (3,)
    assert [name for name, var in again.global_block().vars.items() if var.is_data] == ["x"]
    assert serialize_program(again) == data


def test_a_marked_parameter_keeps_others_from_being_guessed():
    block = small_program().global_block()
    block.append_op("my_mul", {"X": "lr"}, {"Out": "x"})
    again = parse_program(serialize_program(block.program))
    assert [parameter.name for parameter in again.all_parameters()] == ["w"]


# ------------------------------------------------------------------------------------------------------- hostile bytes
def changed(change):
    message = message_of(small_program())
    change(message)
    return message.SerializeToString()


def parents(*indices):
    def change(message):
        while len(message.blocks) < len(indices):
            message.blocks.add(idx=len(message.blocks))
        for block, index in zip(message.blocks, indices, strict=True):
            block.parent_idx = index

    return change


@each(
    ("change", "says"),
    [
        (lambda m: setattr(m.blocks[1], "idx", 5), "block 1: it says that it is block 5"),
        (lambda m: m.blocks[1].ClearField("parent_idx"), "block 1: it does not say which block is its parent"),
        (parents(-1, 9), "block 1: its parent block is 9, but the file holds 2 blocks"),
        (parents(-1, 2, 1), "is its own ancestor"),
        (parents(-1, 1), "block 1: it is its own ancestor"),
        (parents(1, -1), "block 0: the root has a parent, block 1"),
        (lambda m: setattr(m.blocks[1], "forward_block_idx", -7), "block 1: its forward block is -7"),
        (
            lambda m: setattr(m.blocks[0].ops[1].attrs[0], "block_idx", 9),
            "block 0, op 1 (my_loop): the attribute 'sub_block' is block 9",
        ),
        (lambda m: setattr(m.blocks[0].ops[1].attrs[0], "block_idx", -1), "but the file holds 2 blocks"),
        (lambda m: setattr(m.blocks[0].ops[1].attrs[0], "block_idx", 0), "block 0: it holds itself, by way of an op of block 0"),
        (lambda m: m.blocks[0].vars.add().CopyFrom(m.blocks[0].vars[0]), "block 0: the variable 'x' is there twice"),
        (lambda m: m.blocks[0].vars[1].ClearField("name"), "block 0: variable 1 has no name"),
        (lambda m: m.blocks[0].vars[1].type.ClearField("type"), "block 0, variable 'w': it has no type"),
        (lambda m: m.blocks[0].ops[0].ClearField("type"), "block 0, op 0 (without a type): it has no type"),
        (lambda m: m.blocks[0].ops[0].attrs[0].ClearField("type"), "op 0 (my_mul): an attribute 'num_col_dims' lacks its type"),
        (lambda m: m.blocks[0].ops[0].inputs[0].ClearField("parameter"), "op 0 (my_mul): one of its inputs has no slot"),
        (lambda m: setattr(m.blocks[0].ops[0].inputs[1], "parameter", b"X"), "the slot 'X' is there twice in its inputs"),
    ],
)
def test_nonsense_is_named(change, says):
    with pytest.raises(FormatError) as caught:
        parse_program(changed(change))
    assert says in str(caught.value)


@each(
    ("data", "says"),
    [
        (b"", "not a program: the file is empty"),
        (b'{"program": {}}', "it looks like JSON, in which Paddle 3 writes programs"),
        (b"\x80\x04\x95", "it looks like a pickle"),
        (b"PK\x03\x04", "it looks like a zip archive"),
        ((ZOO / "linreg" / "model.pdiparams").read_bytes(), "it looks like a file of parameters"),
        (b"\x22\x02\x08\x00", "4 bytes without a block"),
        (b"\x0a\x50\x08\x00", "at byte 0, in the program: blocks should take 80 bytes, but 2 are left"),
        (b"\x0a\x04\x08\x00\x1a\x7f", "at byte 4, in the program, blocks[0]: vars should take 127 bytes, but 0 are left"),
        (b"\xff" * 20, "at byte 0, in the program: a field's number is longer than a number can be"),
        (b"\x0b" * 5000, "at byte 0, in the program: no field begins like this"),
    ],
)
def test_what_is_no_program_is_named(data, says):
    with pytest.raises(FormatError) as caught:
        parse_program(data)
    assert says in str(caught.value)


def test_only_bytes_are_parsed():
    with pytest.raises(FluidTypeError, match="parse_program: data should be bytes, not "):
        parse_program("block 0 {}")


def test_truncated_bytes_say_where():
    data = serialize_program(small_program())
    for length in range(1, len(data) - 4):  # the last four are the version, which may be missing
        with pytest.raises(FormatError, match=r"not a program.*(at byte|without a block)|the file holds 1 blocks"):
            parse_program(data[:length])
    assert "in the program: blocks should take" in find_damage(data[:-6])


def test_damaged_bytes_end_in_a_program_or_a_format_error():
    """Whatever parses can also be printed, verified and written."""
    draw = random.Random(1)
    original = strange_message().SerializeToString()
    ends = {"program": 0, "error": 0}
    for _ in range(800):
        data = bytearray(original)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(data))
            how = draw.random()
            if how < 0.6:
                data[at] ^= 1 << draw.randrange(8)
            elif how < 0.8:
                del data[at : at + draw.randint(1, 9)]
            else:
                data[at:at] = bytes(draw.randrange(256) for _ in range(draw.randint(1, 9)))
        try:
            program = parse_program(bytes(data))
        except FormatError:
            ends["error"] += 1
            continue
        ends["program"] += 1
        str(program)
        try:
            program.verify()
            parse_program(serialize_program(program.clone()))
        except FluidError:
            pass
    assert min(ends.values()) > 50, ends


def test_huge_extents_allocate_nothing():
    program = parse_program(changed(lambda m: m.blocks[0].vars[0].type.lod_tensor.tensor.dims.extend([1 << 62, -(1 << 63)])))
    assert program.global_block().vars["x"].shape == (-1, 3, 1 << 62, -(1 << 63))


def test_parsing_takes_linear_time():
    def seconds(count):
        program = Program()
        block = program.global_block()
        for index in range(count):
            block.vars[f"v{index}"] = Variable(block, name=f"v{index}", shape=[1], dtype="float32")
            block.ops.append(Operator(block, "thing", {"X": [f"v{index}"]}, {"Out": ["v0"]}, {"axis": 1}))
        for _ in range(count // 4):
            program.create_block(program.blocks[-1 if len(program.blocks) % 60 else 0])
        data = serialize_program(program)
        start = time.perf_counter()
        parse_program(data)
        return time.perf_counter() - start

    few = min(seconds(500) for _ in range(3))
    assert seconds(8000) < 16 * 6 * few

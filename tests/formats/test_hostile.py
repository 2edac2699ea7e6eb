"""Hostile and broken files: each ends in an error that names the file, the place, and the expected content.

`test_serde.py`, `test_io.py`, `test_pickle_io.py` and `test_model_io.py` have each format's own damage; here is what a user does:
load a model, or run what could be loaded. `test_fuzz.py` does the same with thousands of random mutations.
"""

from __future__ import annotations

import pickle
import struct
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import Checks, each, fresh_programs
from fuzzing import differentiate, op_corpus
from paths import TESTS

import fluid
from fluid import errors, io, layers
from fluid.errors import FluidError, FluidTypeError, FormatError, InferenceError, ProgramError
from fluid.executor import Scope
from fluid.formats import program as serde
from fluid.formats import room
from fluid.formats import tensors as tensor_io
from fluid.formats.pir.files import pir_bytes
from fluid.formats.pir.from_blocks import pir_of
from fluid.formats.program import parse_program, serialize_program
from fluid.formats.text import parse_program_text
from fluid.ir.program import Block, Operator, Program
from fluid.ir.verify import find_faults
from fluid.opdef import registry
from fluid.opdef.inference import infer_specs
from fluid.proto import ProgramDesc
from fluid.transform.widen import widen
from fluid.values.bfloat16 import BFLOAT16, as_bits, to_bfloat16, to_float32
from fluid.values.selected_rows import SelectedRows
from fluid.values.spec import Spec
from fluid.values.types import VarType
from fluid.values.unchanging import never_changes

LINREG = TESTS / "golden" / "zoo" / "linreg"
GOOD = (LINREG / "model.pdmodel").read_bytes()
PARAMS = (LINREG / "model.pdiparams").read_bytes()


def changed(change: Callable[[Any], Any]) -> bytes:
    """The model after a change of its message: feed, mul (x, fc_0.w_0), elementwise_add (fc_0.b_0), scale, fetch."""
    message = ProgramDesc.FromString(GOOD)
    change(message)
    data: bytes = message.SerializeToString()
    return data


def flipped(data: bytes, at: int, bit: int = 0) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def var(message: Any, name: bytes) -> Any:
    return next(var for var in message.blocks[0].vars if var.name == name)


def op(message: Any, kind: bytes) -> Any:
    return next(op for op in message.blocks[0].ops if op.type == kind)


def attr(message: Any, kind: bytes, name: bytes) -> Any:
    return next(attr for attr in op(message, kind).attrs if attr.name == name)


def block(message: Any, parent: int) -> None:
    message.blocks.add(idx=len(message.blocks), parent_idx=parent)


def own(message: Any, number: int) -> None:
    op(message, b"scale").attrs.add(name=b"sub_block", type=8, block_idx=number)


def cycle(message: Any) -> None:
    block(message, 2)
    block(message, 1)


def axis(kind: int, **value: Any) -> Callable[[Any], None]:
    def change(message: Any) -> None:
        found = attr(message, b"elementwise_add", b"axis")
        found.ClearField("i")
        found.type = kind
        for name, item in value.items():
            getattr(found, name).extend(item) if isinstance(item, list) else setattr(found, name, item)

    return change


def dims(name: bytes, *extents: int) -> Callable[[Any], None]:
    def change(message: Any) -> None:
        tensor = var(message, name).type.lod_tensor.tensor
        del tensor.dims[:]
        tensor.dims.extend(extents)

    return change


PROGRAMS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "not a program: the file is empty"),
    "cut": (GOOD[:1000], "not a program: at byte 0, in the program: blocks should take 1095 bytes, but 997 are left"),
    "bit flipped in a length": (flipped(GOOD, 1, 6), "not a program: at byte"),
    "bit flipped in a wire type": (flipped(GOOD, 0, 2), "not a program: at byte 0, in the program: no field begins like this"),
    "parameters": (PARAMS, "holds parameters without their names; load the program, "),
    "json": (b'{"program": {}}', "not a program"),
    "text": (b"# Notes\n", "not a program; it looks like text, but not like a program's: at byte 0"),
    "a name twice": (changed(lambda m: m.blocks[0].vars.add().CopyFrom(m.blocks[0].vars[0])), "block 0: the variable"),
    "an unnamed variable": (changed(lambda m: m.blocks[0].vars[1].ClearField("name")), "block 0: variable 1 has no name"),
    "parents in a cycle": (changed(cycle), "it is its own ancestor, by way of its parent blocks"),
    "a parent that is not there": (changed(lambda m: block(m, 7)), "block 1: its parent block is 7, but the file holds 2 blocks"),
    "a sub-block out of range": (
        changed(lambda m: own(m, 5)),
        "block 0, op 3 (scale): the attribute 'sub_block' is block 5, but the file holds 1 blocks",
    ),
    "an op in its own block": (changed(lambda m: own(m, 0)), "block 0: it holds itself, by way of an op of block 0"),
    "an int that is a string": (
        changed(axis(0, s=b"1")),
        "block 0, op 2 (elementwise_add): the attribute 'axis' says that it is of kind int, which the field 'i' should hold, but "
        "there is only 's'",
    ),
    "ints that are one int": (changed(axis(3, i=1)), "of kind ints, which the field 'ints' should hold, but there is only 'i'"),
    "feeds of one column": (
        changed(lambda m: m.blocks[0].ops.add().CopyFrom(m.blocks[0].ops[0])),
        "block 0, op 5 (feed): its column is 0, which should be a number that no other feed has",
    ),
    "a feed of nothing": (
        changed(lambda m: op(m, b"feed").outputs[0].ClearField("arguments")),
        "its slot Out should name one variable",
    ),
}


TEXTS = {
    "parents in a cycle": (
        "block 0 {\n}\nblock 1 (parent 2) {\n}\nblock 2 (parent 1) {\n}\n",
        r"block [12] is its own ancestor, by way of its parent blocks",
    ),
    "an op in its own block": (
        "block 0 {\n  while() {sub_block=block 1}\n    block 1 {\n      while() {sub_block=block 1}\n    }\n}\n",
        "block 1 holds itself, by way of an op of block 1",
    ),
    "a block that is not there": ("block 0 {\n  while() {sub_block=block 7}\n}\n", "line 2, column 2"),
    "levels without end": (
        "block 0 {\n  data x: float32[1] lod_level=2147483647\n}\n",
        "line 2, column 32: there are 0 to 64 levels",
    ),
    "a name twice": ("block 0 {\n  var x: float32[1]\n  var x: float32[2]\n}\n", "'x' is declared twice in block 0"),
    "a kind that does not hold the value": (
        'block 0 {\n  tanh() {axis: int="1"}\n}\n',
        "'int' is not a kind of attribute that can hold",
    ),
}


@each("what", TEXTS)
def test_texts_that_are_refused(tmp_path: Path, what: str) -> None:
    text, says = TEXTS[what]
    path = tmp_path / "net.txt"
    path.write_text(text)
    with pytest.raises(FormatError, match=says) as caught:
        fluid.load_model(path)
    assert str(caught.value).startswith(f"{path}: ")


@each("what", PROGRAMS)
def test_programs_that_are_refused(tmp_path: Path, what: str) -> None:
    data, says = PROGRAMS[what]
    path = tmp_path / "net.pdmodel"
    path.write_bytes(data)
    (tmp_path / "net.pdiparams").write_bytes(PARAMS)
    with pytest.raises(FormatError) as caught:
        fluid.load_model(path)
    assert says in str(caught.value) and str(path) in str(caught.value)
    assert not fluid.global_scope().local_var_names()
    if "without their names" not in says:
        with pytest.raises(FormatError) as caught:
            io.load_inference_model(str(tmp_path / "net"), fluid.Executor())
        assert says in str(caught.value)


# What parses, and cannot be run: with which parameters, and what is said of it.
UNRUNNABLE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "an int attribute that is text": (
        axis(2, s=b"first"),
        "elementwise_add: the attribute 'axis' should be of kind int: 'first' is not an integer",
    ),
    "an int attribute that is a list": (axis(3, ints=[1, 2]), "elementwise_add: the attribute 'axis' should be of kind int"),
    "a slot without a variable": (
        lambda m: op(m, b"mul").inputs[0].ClearField("arguments"),
        "mul: the input slot 'X' is empty; it needs a variable",
    ),
    "a slot of another op": (
        lambda m: setattr(op(m, b"mul").inputs[0], "parameter", b"Input"),
        "mul: the input slot 'X' is empty; it needs a variable",
    ),
    "a required attribute that is missing": (
        lambda m: setattr(op(m, b"scale"), "type", b"eye"),
        "eye: the attribute 'num_rows' (long) is required and missing",
    ),
    "a name that is not declared": (
        lambda m: op(m, b"mul").inputs[0].arguments.__setitem__(0, b"nowhere"),
        "nowhere",
    ),
    "an op that nobody knows": (
        lambda m: setattr(op(m, b"mul"), "type", b"frobnicate"),
        "the op frobnicate is not known here, so it cannot run; once, first as op 1 of block 0",
    ),
    "an op that writes files": (
        lambda m: setattr(op(m, b"scale"), "type", b"save"),
        "the op save writes files, which a program from a file may do only where its allowed_ops name it",
    ),
    "an op that runs code": (lambda m: setattr(op(m, b"scale"), "type", b"py_func"), "the op py_func runs code of the process"),
    "a feed of another width": (dims(b"x", -1, 0), "x is declared float32[-1, 0], but float32[2, 13] is fed"),
    "a feed of negative width": (dims(b"x", -1, -7), "x is declared float32[-1, -7], but float32[2, 13] is fed"),
    "a feed of 2^62 columns": (dims(b"x", -1, 1 << 62), "x is declared float32[-1, 4611686018427387904], but"),
}


@each("what", UNRUNNABLE)
def test_programs_that_cannot_run(tmp_path: Path, what: str) -> None:
    change, says = UNRUNNABLE[what]
    path = tmp_path / "net.pdmodel"
    path.write_bytes(changed(change))
    (tmp_path / "net.pdiparams").write_bytes(PARAMS)
    model = fluid.load_model(path)
    str(model.program)
    model.program.to_string()
    with pytest.raises(FluidError) as caught:
        fluid.Executor().run(model.program, {"x": np.ones((2, 13), "float32")}, model.fetches)
    assert says in str(caught.value)


MISUSED = [
    ("rnn", "rnn_grad", "num_layers", -2, "rnn_grad: the attribute 'num_layers' should be of kind int: -2 is below 1"),
    ("rnn", "rnn_grad", "num_layers", 3, "should be"),
    ("rnn", "rnn", "num_layers", 2**31 - 1, "is above 256, the most that is allowed"),
    ("cudnn_lstm", "cudnn_lstm", "num_layers", 2**31 - 1, "is above 256, the most that is allowed"),
    ("cudnn_lstm", "cudnn_lstm_grad", "num_layers", 2**62, "does not fit into 32 bits"),
    ("rnn", "rnn_grad", "num_layers", 2**62, "does not fit into 32 bits"),
    ("cudnn_lstm", "cudnn_lstm_grad", "hidden_size", 2**31 - 1, "W should have|should be"),
    ("spectral_norm", "spectral_norm", "power_iters", 2**31 - 1, "is above 1000"),
    ("detection_map", "detection_map", "class_num", 2**31 - 1, "is above 65536"),
    ("generate_mask_labels", "generate_mask_labels", "resolution", 2**31 - 1, "is above 4096"),
    ("roi_align", "roi_align_grad", "sampling_ratio", 2**31 - 1, "is above 1024"),
    ("split", "split", "num", 2**31 - 1, r"num 2147483647 asks for 2147483647 outputs|cannot be cut into 2147483647"),
    ("eye", "eye", "num_rows", -2, "eye: the attribute 'num_rows' should be of kind long: -2 is below 0"),
    ("pixel_shuffle", "pixel_shuffle", "upscale_factor", -1, "-1 is below 1"),
    ("roi_pool", "roi_pool", "pooled_height", -1, "-1 is below 1"),
    ("roi_pool", "roi_pool_grad", "pooled_width", -2, "-2 is below 1"),
    ("conv2d", "conv2d_grad", "dilations", [-1, 1], "below 1"),
    ("relu", "relu_grad", "", (7,), r"shapes \[7\] and \[3, 4\].* do not broadcast"),
    ("pad2d", "pad2d_grad", "", (2, 3, 1, 1), r"Out@GRAD is float32\[2, 3, 1, 1\]; it should be"),
]
"""Op of a sample, op that is changed, its attribute (of none, the gradient that it gets has another shape), value, message."""


@each(("sample", "changed_op", "name", "value", "says"), MISUSED)
def test_ops_that_break_their_signatures(sample: str, changed_op: str, name: str, value: Any, says: str) -> None:
    """Also gradient ops, which only files can make so: each is refused before it runs, in no time, planned and op by op."""
    (base, *_) = op_corpus([sample])
    program = parse_program(base.data)
    found = next(op for op in program.global_block().ops if op.type == changed_op)
    if name:
        found.attrs[name] = value
    else:
        program.global_block().create_var(name="seed", shape=value, dtype="float32", is_data=True)
        found.inputs["Out@GRAD"] = ["seed"]
    feed = {fed: array for fed, (array, _) in base.feed.items()} | ({} if name else {"seed": np.ones(value, "float32")})
    fetches = [written for written in found.output_arg_names if written != "@EMPTY@"]
    start = time.process_time()
    for run in (fluid.Executor().run, fluid.Executor().interpret):
        with pytest.raises(FluidError, match=says) as caught:
            run(program, feed, fetches)
        assert changed_op in str(caught.value) and "op: " in str(caught.value)
    with suppress(FluidError):
        differentiate(program)
    assert time.process_time() - start < 1


def test_two_names_in_a_slot_of_one() -> None:
    """A plan took the first, op by op as well, and a gradient went to the first: the second was lost without a word."""

    def crowd(message: Any) -> None:
        op(message, b"mul").inputs[0].arguments.append(b"x")

    says = "mul: the input slot 'X' holds 2 names, x, x; it takes one"
    program = parse_program(changed(crowd))
    scope = fluid.global_scope()
    scope.put("fc_0.w_0", np.ones((13, 1), "float32"))
    scope.put("fc_0.b_0", np.ones(1, "float32"))
    for run in (fluid.Executor().run, fluid.Executor().interpret):
        with pytest.raises(FluidError, match=says):
            run(program, {"x": np.ones((2, 13), "float32")}, ["fc_0.tmp_1"])
    root = program.global_block()
    with pytest.raises(FluidError, match=says):
        fluid.gradients(root.vars["fc_0.tmp_1"], root.vars["fc_0.w_0"])
    x = fluid.data("x", [2, 3])
    with pytest.raises(ProgramError, match=r"tanh: the input slot 'X' holds 2 names, x, x; it takes one"):
        x.block.append_op("tanh", {"X": [x, x]}, {"Out": x.block.create_var(name="y")})


def test_declared_sizes_are_no_lists() -> None:
    """Ranks and numbers of outputs that follow from the declared shape of an input, of 2^31 elements."""
    with Checks() as check:
        for op_type, slot, attrs, says in (
            ("unstack", "X", {"axis": 0}, "asks for 2147483648 outputs"),
            ("reshape2", "Shape", {}, "a shape of 2147483648 dimensions is asked for"),
            ("fill_constant", "ShapeTensor", {}, "a shape of 2147483648 dimensions is asked for"),
            ("expand_v2", "Shape", {}, "a shape of 2147483648 dimensions is asked for"),
            ("tile", "RepeatTimes", {}, "a shape of 2147483648 dimensions is asked for"),
            ("unsqueeze2", "AxesTensor", {}, "a shape of 2147483650 dimensions is asked for"),
        ):
            definition, large = registry.get(op_type), Spec((1 << 31,), VarType.INT32)
            with check(op_type), pytest.raises(InferenceError, match=says):
                infer_specs(definition, {"X": Spec((2, 3), VarType.FP32), slot: large}, attrs)


ON_ARRAYS: list[tuple[str, dict[str, str], dict[str, Any], str]] = [
    ("split_array", {"X": "x", "Like": "x"}, {}, "x is float32[2, 3], and split_array takes an array of tensors (Like)"),
    ("join_array", {"X": "x", "Like": "x"}, {}, "x is float32[2, 3], and join_array takes an array of tensors (X)"),
    ("tensor_array_to_tensor", {"X": "x"}, {}, "takes an array of tensors (X)"),
    ("stack_array", {"X": "x"}, {}, "takes an array of tensors (X)"),
    ("lod_array_length", {"X": "x"}, {}, "takes an array of tensors (X)"),
    ("read_from_array", {"X": "x", "I": "i"}, {}, "takes an array of tensors (X)"),
    ("unstack_array", {"X": "array"}, {}, "array is a list of 1, and unstack_array takes a tensor (X)"),
    ("split_array", {"X": "array", "Like": "array"}, {}, "array is a list of 1, and split_array takes a tensor (X)"),
    ("relu", {"X": "array"}, {}, "array"),
    (
        "write_to_array",
        {"X": "x", "I": "far"},
        {},
        "the position far is 4611686018427387904; arrays have 1048576 entries at most",
    ),
]


@each(("op_type", "inputs", "attrs", "says"), ON_ARRAYS)
def test_ops_on_arrays_refuse_tensors(op_type: str, inputs: dict[str, str], attrs: dict[str, Any], says: str) -> None:
    """And the other way round; planned and op by op alike."""
    program = Program()
    root = program.global_block()
    root.create_var(name="x", shape=[2, 3], dtype="float32", is_data=True)
    root.create_var(name="array", type=VarType.LOD_TENSOR_ARRAY, dtype="float32", shape=[2, 3])
    for name in ("i", "far"):
        root.create_var(name=name, shape=[1], dtype="int64", is_data=True)
    root.append_op("write_to_array", {"X": "x", "I": "i"}, {"Out": "array"})
    kind = VarType.LOD_TENSOR_ARRAY if op_type == "write_to_array" else VarType.LOD_TENSOR
    root.create_var(name="out", shape=[2, 3], dtype="float32", type=kind)
    outputs = {"Out": ["out"]} | ({"OutIndex": ["sizes"]} if op_type == "tensor_array_to_tensor" else {})
    root.create_var(name="sizes", dtype="int32")
    root.ops.append(Operator(root, op_type, {slot: [name] for slot, name in inputs.items()}, outputs, attrs))
    feed = {"x": np.ones((2, 3), "float32"), "i": np.array([0]), "far": np.array([1 << 62])}
    program = parse_program(serialize_program(program))
    for run in (fluid.Executor().run, fluid.Executor().interpret):
        with pytest.raises(FluidError) as caught:
            run(program, feed, ["out"])
        assert says in str(caught.value)


def nested(depth: int) -> Program:
    """y, and z = y + 1, computed by branches inside of branches."""
    program = Program()
    block = program.global_block()
    for name, dtype in (("c", "bool"), ("x", "float32")):
        block.create_var(name=name, shape=[1], dtype=dtype, is_data=True)
    block.create_var(name="y", shape=[1], dtype="float32")
    for number in range(1, depth):  # by hand, since `create_block` would refuse
        program.blocks.append(Block(program, number, program.blocks[-1]))
    blocks = program.blocks
    for number, (block, inner) in enumerate(zip(blocks, [*blocks[1:], None], strict=True)):
        if inner is None:
            block.ops.append(Operator(block, "scale", {"X": ["x"]}, {"Out": ["y"]}, {"scale": 3.0}))
        else:
            block.create_var(name=f"scope{number}", type=VarType.STEP_SCOPES)
            inputs, outputs = {"Cond": ["c"], "Input": ["x"]}, {"Out": ["y"], "Scope": [f"scope{number}"]}
            block.ops.append(Operator(block, "conditional_block", inputs, outputs, {"sub_block": inner}))
    return program


def test_blocks_nested_deeply_end_in_no_recursion() -> None:
    feed = {"c": np.array([True]), "x": np.ones(1, "float32")}
    program = nested(64)
    root = program.global_block()
    root.vars["x"].stop_gradient = False
    (grad,) = fluid.gradients(root.vars["y"], root.vars["x"])
    assert [value.tolist() for value in fluid.Executor().run(program, feed, ["y", grad])] == [[3.0], [3.0]]
    program = nested(300)
    root = program.global_block()
    root.vars["x"].stop_gradient = False
    data, text = serialize_program(program), program.to_string()
    act: Callable[[], Any]
    for act in (
        lambda: fluid.gradients(root.vars["y"], root.vars["x"]),
        lambda: fluid.Executor().run(program, feed, ["y"]),
        lambda: fluid.Executor().interpret(program, feed, ["y"]),
        lambda: program.verify(),
        lambda: program.prune([], ["y"]),
        lambda: program.explain_gradient("y", "x"),
        lambda: program.extract(["x", "c"], ["y"]),
        lambda: pir_bytes(program),
        lambda: parse_program(data),
        lambda: parse_program_text(text),
    ):
        with pytest.raises(FluidError, match=r"blocks are nested more than 64 deep.*64 at most"):
            act()


def test_programs_of_many_blocks_are_checked_in_time_that_their_size_bounds() -> None:
    """Nested by ops that own them, or only by their parents; each name was looked up through all blocks around."""
    program = nested(30_000)
    for how in ("by ops that own them", "by their parents"):
        start = time.process_time()
        assert [fault.message for fault in find_faults(program)] == [
            f"blocks are nested more than 64 deep, {how}; a program may nest 64 at most"
        ]
        with pytest.raises(FluidError, match=f"nested more than 64 deep, {how}"):
            fluid.Executor().run(program, {"c": np.array([True]), "x": np.ones(1, "float32")}, ["y"])
        assert time.process_time() - start < 10
        for block in program.blocks:
            for op in block.ops:
                op.attrs.pop("sub_block", None)
    wide = Program()
    for name in range(300):
        wide.global_block().create_var(name=f"variable{name}" + "x" * 50_000 * (name % 2))
    wide.global_block().ops = [
        Operator(wide.global_block(), "f", {"X": [f"varible{name}" + "x" * 49_999 * (name % 2)]}, {}, {})
        for name in range(10_000)
    ]
    start = time.process_time()
    faults = find_faults(wide)
    assert time.process_time() - start < 10 and len(faults) == 10_000 and "did you mean" in faults[0].message


def nest_cond(depth: int, x: Any) -> Any:
    return layers.cond(x[0] > 0.0, lambda: nest_cond(depth - 1, x), lambda: x * 2.0) if depth else x * 3.0


def nest_while(depth: int, x: Any) -> Any:
    if not depth:
        return x * 3.0
    going, y = layers.fill_constant([1], "bool", True), layers.assign(x)
    with layers.While(going).block():
        layers.assign(nest_while(depth - 1, x), y)
        layers.fill_constant([1], "bool", False, out=going)
    return y


def nest_recurrence(depth: int, x: Any) -> Any:
    if not depth:
        return x * 3.0
    sequence, rnn = layers.unsqueeze(x, [0]), layers.StaticRNN()
    with rnn.step():
        rnn.output(nest_recurrence(depth - 1, rnn.step_input(sequence)))
    return layers.squeeze(rnn(), [0])


@each("build", [nest_cond, nest_while, nest_recurrence])
def test_blocks_that_would_be_nested_too_deeply_are_refused_while_building(build: Callable[[int, Any], Any]) -> None:
    x = fluid.data("x", [1], "float32")
    x.stop_gradient = False
    y = build(63, x)
    (grad,) = fluid.gradients(y, x)
    found = fluid.Executor().run(fluid.default_main_program(), {"x": np.ones(1, "float32")}, [y, grad])
    assert [value.tolist() for value in found] == [[3.0], [3.0]]
    blocks = len(fluid.default_main_program().blocks)
    with pytest.raises(ProgramError, match=r"a block in block \d+ would be nested more than 64 deep, which no program may be"):
        build(500, x)
    assert len(fluid.default_main_program().blocks) == blocks


def test_gradients_of_damaged_programs_end_in_errors_of_ours() -> None:
    """Rules meet attributes of other kinds, slots that are empty, and lists of other lengths."""
    for op_type, changed_op, change in (
        ("elementwise_add", "elementwise_add", lambda op: op.attrs.update(axis="first")),
        ("rnn", "rnn_grad", lambda op: op.attrs.update(num_layers=3)),
        ("softmax", "softmax", lambda op: op.attrs.update(axis=[1])),
        ("concat", "concat", lambda op: op.attrs.update(axis="no")),
        ("matmul", "matmul_grad", lambda op: op.attrs.update(alpha="no")),
        ("dropout", "dropout_grad", lambda op: op.attrs.update(dropout_prob=None)),
        ("pad", "pad", lambda op: op.inputs.update(X=[])),
    ):
        (base, *_) = op_corpus([op_type])
        program = parse_program(base.data)
        change(next(op for op in program.global_block().ops if op.type == changed_op))
        with suppress(FluidError):
            differentiate(program)


def test_a_loop_without_a_block() -> None:
    """A file may say that an op owns a block and not which; analyses walked into nothing."""
    program = nested(2)
    root = program.global_block()
    del root.ops[0].attrs["sub_block"]
    root.vars["x"].stop_gradient = False
    feed = {"c": np.array([True]), "x": np.ones(1, "float32")}
    for act in (
        lambda: fluid.gradients(root.vars["y"], root.vars["x"]),
        lambda: fluid.Executor().run(program, feed, ["y"]),
        lambda: fluid.Executor().interpret(program, feed, ["y"]),
        lambda: program.prune(["x"], ["y"]),
        lambda: program.explain_gradient("y", "x"),
    ):
        with pytest.raises(FluidError, match=r"conditional_block: .*'sub_block'"):
            act()


def test_an_op_is_found_in_the_message_of_what_cannot_run(tmp_path: Path) -> None:
    (tmp_path / "net.pdmodel").write_bytes(changed(UNRUNNABLE["a slot without a variable"][0]))
    (tmp_path / "net.pdiparams").write_bytes(PARAMS)
    model = fluid.load_model(tmp_path / "net")
    with pytest.raises(FluidError, match=r"op: .*mul\(Y=fc_0.w_0\)") as caught:
        fluid.Executor().run(model.program, {"x": np.ones((2, 13), "float32")}, model.fetches)
    assert "fc_0.w_0: float32[13, 1]" in str(caught.value)


def test_a_tensor_that_no_machine_can_hold_is_not_made() -> None:
    program = Program()
    root = program.global_block()
    root.create_var(name="x", shape=[1 << 62], dtype="float32")
    root.append_op("fill_constant", {}, {"Out": "x"}, {"shape": [1 << 62], "dtype": 5, "value": 1.0})
    again = parse_program(serialize_program(program))
    with pytest.raises(FluidError, match=r"x|fill_constant"):
        fluid.Executor().run(again, fetch_list=["x"])


# ---------------------------------------------------------------------------------------------------------- parameters
def tensor_head(levels: int = 0, desc: bytes = b"\x08\x05\x10\x01") -> bytes:
    return struct.pack("<IQIi", 0, levels, 0, len(desc)) + desc


TWO_62 = b"\x10" + b"\x80" * 8 + b"\x40"
PARAMETERS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty|the version of the record should take 4 bytes, but 0 are left in the file of 0"),
    "cut": (PARAMS[:-5], "variable 'fc_0.w_0', at byte 54: the elements of float32[13, 1] should take 52 bytes, but 47 are left"),
    "longer": (PARAMS + b"\0", "at byte 106: 1 bytes follow the 2 variables of the program"),
    "of another program": (
        PARAMS[28:] + PARAMS[:28],
        "variable 'fc_0.b_0': the file holds float32[13, 1], the program declares float32[1]",
    ),
    "bit flipped in a version": (
        flipped(PARAMS, 12),
        "variable 'fc_0.b_0', at byte 12: the version of the tensor is 1, it should be 0",
    ),
    "bit flipped in an element type": (
        flipped(PARAMS, 21, 1),
        "variable 'fc_0.b_0', at byte 20: LOD_TENSOR is not an element type",
    ),
    "2^62 levels": (
        tensor_head(1 << 62),
        "variable 'fc_0.b_0', at byte 4: 4611686018427387904 levels of sequence offsets cannot be in",
    ),
    "2^62 elements": (
        tensor_head(desc=b"\x08\x05" + TWO_62),
        "the elements of float32[4611686018427387904] should take 18446744073709551616",
    ),
    "an extent of -1": (
        tensor_head(desc=b"\x08\x05\x10" + b"\xff" * 9 + b"\x01"),
        "variable 'fc_0.b_0', at byte 20: the tensor's shape is [-1], which has a negative dimension",
    ),
    "an extent of 0": (
        tensor_head(desc=b"\x08\x05\x10\x00") + PARAMS[28:],
        "the file holds float32[0], the program declares float32[1]",
    ),
    "a program": (GOOD, "it has|pdmodel|version of the record"),
}


@each("what", PARAMETERS)
def test_parameters_that_are_refused(tmp_path: Path, what: str) -> None:
    data, says = PARAMETERS[what]
    (tmp_path / "net.pdmodel").write_bytes(GOOD)
    path = tmp_path / "net.pdiparams"
    path.write_bytes(data)
    with pytest.raises(FormatError) as caught:
        io.load_inference_model(str(tmp_path / "net"), fluid.Executor())
    assert any(text in str(caught.value) for text in says.split("|")) and str(path) in str(caught.value)
    with pytest.raises(FluidError) as caught:
        fluid.load_model(tmp_path / "net")
    assert str(path) in str(caught.value) and not fluid.global_scope().local_var_names()


@each("name", ["../out", "/etc/passwd", "a/../../b", "a\0b", "..", ".", "", "a//b", "..\\out", "C:\\x", "a/"])
def test_names_never_lead_out_of_the_folder(tmp_path: Path, name: str) -> None:
    def rename(message: Any) -> None:
        var(message, b"fc_0.w_0").name = name.encode()
        op(message, b"mul").inputs[1].arguments[0] = name.encode()

    folder = tmp_path / "a" / "model"
    folder.mkdir(parents=True)
    (folder / "__model__").write_bytes(changed(rename))
    (folder / "fc_0.b_0").write_bytes((LINREG / "separate" / "fc_0.b_0").read_bytes())
    (tmp_path / "a" / "out").write_bytes((LINREG / "separate" / "fc_0.w_0").read_bytes())
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ProgramError, match=r"cannot have a file of its own in .*model; use one file, with filename="):
        io.load_inference_model(str(folder), fluid.Executor())
    with pytest.raises(ProgramError, match="cannot have a file of its own"):
        fluid.load_model(folder)
    program = parse_program((folder / "__model__").read_bytes())
    scope = fluid.global_scope()
    scope.put(name, np.ones((13, 1), "float32"))
    scope.put("fc_0.b_0", np.ones(1, "float32"))
    with pytest.raises(ProgramError, match="cannot have a file of its own"):
        io.save_persistables(None, str(folder), program)
    assert sorted(tmp_path.rglob("*")) == before
    io.save_persistables(None, str(folder), program, "all")
    io.load_persistables(fluid.Executor(), str(folder), program, "all")
    for way in ("npz", "pdparams"):
        if "\0" not in name:
            fluid.save_model(folder / f"w.{way}", program)
            assert fluid.load_model(folder / f"w.{way}", scope=Scope()).value(name).shape == (13, 1)
    assert {path.parent for path in set(tmp_path.rglob("*")) - set(before)} == {folder}


def test_links_do_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "encoder").symlink_to(tmp_path / "elsewhere")
    program = Program()
    for name in ("a", "encoder/w"):
        program.global_block().create_var(name=name, shape=[1], dtype="float32", persistable=True)
        fluid.global_scope().put(name, np.ones(1, "float32"))
    with pytest.raises(ProgramError, match=r"encoder/w is not in .*model but, by way of a link, in .*elsewhere"):
        io.save_persistables(None, str(tmp_path / "model"), program)
    assert not list((tmp_path / "elsewhere").iterdir()) and [path.name for path in (tmp_path / "model").iterdir()] == ["encoder"]
    io.save_persistables(None, str(tmp_path / "other"), program)
    assert (tmp_path / "other" / "encoder" / "w").exists()


def test_names_of_files_given_do_not_leave_the_folder(tmp_path: Path) -> None:
    program = parse_program(GOOD)
    fluid.global_scope().put("fc_0.w_0", np.ones((13, 1), "float32"))
    fluid.global_scope().put("fc_0.b_0", np.ones(1, "float32"))
    io.save_inference_model(str(tmp_path / "m"), ["x"], ["fc_0.tmp_1"], None, program, "../net", "../../params")
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == ["net", "params"]


# ---------------------------------------------------------------------------------------- what is kept, and in what way
def test_selected_rows_have_files_of_their_own(tmp_path: Path) -> None:
    """As Paddle's save op writes them: version, numbers of the rows, height, and the rows as a tensor."""
    program = Program()
    program.global_block().create_var(name="g", shape=[7, 3], dtype="float32", type=VarType.SELECTED_ROWS, persistable=True)
    value = np.arange(12, dtype="float32").reshape(4, 3)
    fluid.global_scope().put("g", SelectedRows(np.array([2, 5, 2, 0]), value, 7))
    io.save_persistables(None, str(tmp_path), program)
    head = struct.pack("<IQ4qq", 0, 4, 2, 5, 2, 0, 7) + struct.pack("<Ii", 0, 6) + b"\x08\x05\x10\x04\x10\x03"
    data = head + value.tobytes()
    assert (tmp_path / "g").read_bytes() == data
    fluid.global_scope().erase(["g"])
    io.load_persistables(fluid.Executor(), str(tmp_path), program)
    found = fluid.global_scope().array("g")
    assert found.rows() == [2, 5, 2, 0] and found.height() == 7 and (found.value == value).all()
    for act in (io.save_persistables, io.load_persistables):
        with pytest.raises(ProgramError, match="'g' is selected_rows, which need a file of their own: all holds tensors only"):
            act(None, str(tmp_path), program, "all")
    for save in (lambda: fluid.save(program, str(tmp_path / "net")), lambda: fluid.save_model(tmp_path / "net.npz", program)):
        with pytest.raises(ProgramError, match=r"net.(pdopt|npz): 'g' is selected_rows, which it cannot hold; save_persistables"):
            save()
    for broken, says in (
        (data[:-1], "variable 'g', at byte 66: the elements of float32[4, 3] should take 48 bytes, but 47 are left"),
        (data[:4] + struct.pack("<Q", 1 << 60) + data[12:], "the numbers of 1152921504606846976 rows should take"),
        (data[:12] + struct.pack("<q", 7) + data[20:], "the rows are numbered 0 to 7, but the height is 7"),
        (data[:44] + struct.pack("<q", -1) + data[52:], "at byte 44: the height is -1"),
        (data[:4] + struct.pack("<Q", 3) + data[12:], "at byte 4: the rows are numbered 2 to 5, but the height is 0"),
    ):
        (tmp_path / "g").write_bytes(broken)
        with pytest.raises(FormatError) as caught:
            io.load_persistables(fluid.Executor(), str(tmp_path), program)
        assert any(text in str(caught.value) for text in says.split("|")) and str(tmp_path / "g") in str(caught.value)


def test_bfloat16_rounds_as_hardware_does() -> None:
    values = np.array([1.0, 1.7, -3.14159, 0.0, -0.0, 1e-40, 3.4e38, np.inf, -np.inf, np.nan, 1.00390625, 1.01171875], "float32")
    short = to_bfloat16(values)
    assert short.dtype == BFLOAT16 and as_bits(short)[:2].tolist() == [0x3F80, 0x3FDA]
    back = to_float32(short)
    np.testing.assert_allclose(back[:4], values[:4], rtol=2**-8)
    assert np.signbit(back[4]) and back[6] == np.inf and np.isnan(back[9]) and np.isfinite(back[5])
    assert back[10] == 1.0 and back[11] == 1.015625  # ties go to even
    assert as_bits(to_bfloat16(back)).tolist() == as_bits(short).tolist()
    assert to_float32(to_bfloat16(np.float32(2.0))).shape == ()


def bfloat_program() -> Program:
    program = Program()
    root = program.global_block()
    root.create_var(name="w", shape=[2, 3], dtype="bfloat16", persistable=True)
    root.create_var(name="h", shape=[2, 3], dtype="bfloat16")
    root.create_var(name="y", shape=[2, 3], dtype="float32")
    root.append_op("scale", {"X": "w"}, {"Out": "h"}, {"scale": 2.0})
    root.append_op("cast", {"X": "h"}, {"Out": "y"}, {"in_dtype": 22, "out_dtype": 5})
    return program


def test_bfloat16_is_kept_and_runs(tmp_path: Path) -> None:
    program, executor = bfloat_program(), fluid.Executor()
    record = bytes.fromhex("00000000000000000000000000000000 06000000 081610021003" + "d93f" * 6)  # of Paddle's save op
    (tmp_path / "w").write_bytes(record)
    io.load_persistables(executor, str(tmp_path), program)
    assert fluid.global_scope().array("w").dtype == BFLOAT16
    io.save_persistables(executor, str(tmp_path / "again"), program)
    assert (tmp_path / "again" / "w").read_bytes() == record
    for ending in ("npz", "safetensors", "pdparams"):
        fluid.save_model(tmp_path / f"net.{ending}", program)
        (tmp_path / "net.pdmodel").write_bytes(serialize_program(program))
        found = fluid.load_model(tmp_path / "net.pdmodel", params=tmp_path / f"net.{ending}", scope=Scope())
        assert as_bits(found.value("w")).tolist() == [[0x3FD9] * 3] * 2, ending
    before = program.to_string()
    (y,) = executor.run(program, fetch_list=["y"])
    assert y.dtype == np.float32 and (y == 2 * 1.6953125).all() and program.to_string() == before
    assert fluid.global_scope().array("w").dtype == BFLOAT16
    assert widen(program) == ["w", "h"]
    (y,) = executor.run(program, fetch_list=["y"])
    assert y.dtype == np.float32 and (y == 2 * 1.6953125).all()
    io.load_persistables(executor, str(tmp_path), program)  # into what is float32 now
    assert fluid.global_scope().array("w").dtype == np.float32
    program.global_block().vars["w"].dtype = "int64"
    with pytest.raises(
        FormatError, match=r"w, variable 'w': the file holds bfloat16\[2, 3\], the program declares int64\[2, 3\]"
    ):
        io.load_persistables(executor, str(tmp_path), program)


def test_types_that_no_tensor_has_are_refused_by_name(tmp_path: Path) -> None:
    program = bfloat_program()
    program.global_block().vars["w"].dtype = "float32"
    with pytest.raises(FormatError, match=r"the state, variable 'w': the file holds <U1\[2, 3\], the program declares float32"):
        io.set_program_state(program, {"w": np.full((2, 3), "x")})
    with pytest.raises(FluidTypeError, match=r"STRING is not an element type that numpy can compute with$"):
        VarType.STRING.numpy  # noqa: B018


def test_large_files_are_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that are only read stay views of the file; values that a run overwrites, or cannot read in place, are copied."""
    monkeypatch.setattr(tensor_io, "_LARGE_FILE", 1 << 16)
    monkeypatch.setattr(tensor_io, "_LARGE_ARRAY", 1 << 12)
    x = fluid.data("x", [None, 64])
    y = layers.fc(layers.fc(x, 300), 1)
    loss = layers.mean(y)
    test = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.SGD(0.1).minimize(loss)
    program, executor = fluid.default_main_program(), fluid.Executor()
    executor.run(fluid.default_startup_program())
    feed = {"x": np.ones((2, 64), "float32")}
    (want,) = executor.run(test, feed, [y])
    io.save_persistables(executor, str(tmp_path), program, "all")
    data = (tmp_path / "all").read_bytes()
    with fluid.scope_guard(Scope()):
        scope = fluid.global_scope()
        io.load_persistables(executor, str(tmp_path), program, "all")
        mapped = scope.array("fc_0.w_0")
        assert never_changes(mapped) and never_changes(scope.array("fc_0.b_0"))  # a small one is a copy, and no more writable
        assert np.asarray(scope.find_var("fc_0.w_0").get_tensor()).sum() == mapped.sum()
        np.testing.assert_array_equal(executor.run(test, feed, [y])[0], want)
        if mapped.flags.aligned:
            assert not scope.array("fc_0.w_0").flags.writeable
        assert scope.array("fc_0.w_0").flags.aligned
        io.save_persistables(executor, str(tmp_path), program, "all")  # over the very file that is mapped
        for _ in range(2):
            executor.run(program, feed, [loss])
        assert scope.array("fc_0.w_0").flags.writeable and (scope.array("fc_0.w_0") != mapped).any()
    assert (tmp_path / "all").read_bytes() == data
    (tmp_path / "all").write_bytes(data[:-4])
    with pytest.raises(FormatError, match=r"the elements of float32\[1\] should take 4 bytes, but 0 are left"):
        io.load_persistables(executor, str(tmp_path), program, "all")


# --------------------------------------------------------------------------------------------------------- large programs
def test_constants_that_are_too_large_for_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serde, "_MOST_VALUES", 100)
    program = Program()
    root = program.global_block()
    root.create_var(name="table", shape=[101], dtype="float32")
    root.append_op("assign_value", {}, {"Out": "table"}, {"shape": [101], "dtype": 5, "fp32_values": [0.5] * 101})
    with pytest.raises(ProgramError) as caught:
        serialize_program(program)
    assert str(caught.value) == (
        "assign_value, in block 0: the attribute 'fp32_values' holds 101 values; constants of more than 100 do not belong into a "
        "program: let it read a persistable variable (layers.create_parameter, or a value put into the scope), which save_params "
        "saves beside it"
    )


def test_programs_of_two_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program()
    program.global_block().ops.append(Operator(program.global_block(), "thing", {}, {}, {"text": "x" * 1000}))
    data = serialize_program(program)
    monkeypatch.setattr(serde, "_MOST_BYTES", 1000)
    with pytest.raises(
        ProgramError, match=r"its \d+ bytes are too many: .* values belong into persistable variables, which are saved"
    ):
        serialize_program(program)
    with pytest.raises(FormatError, match=r"not a program: \d+ bytes, but programs have at most 1000, as all of the wire format"):
        parse_program(data)


def test_a_gradient_op_whose_attribute_counts_dimensions_that_are_not_there() -> None:
    """Its gradient is an error, for which no list of two thousand million axes is made."""
    (base, *_) = op_corpus(["mul"])
    program = parse_program(base.data)
    grad = next(op for op in program.global_block().ops if op.type == "mul_grad")
    grad.attrs["y_num_col_dims"] = 2**24
    tracemalloc.start()
    try:
        with suppress(FluidError):
            differentiate(program)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the most memory that was in use")
def test_a_program_is_read_in_memory_that_its_size_bounds() -> None:
    """Protobuf takes ninety times the file for attributes this small, where it holds all of them at once."""
    program = Program()
    attrs = {first + second: 1 for first in "abcdefgh" for second in "abcdefgh"}
    program.global_block().ops = [Operator(program.global_block(), "f", {"X": ["some"]}, {"Out": ["some"]}, attrs)] * 2500
    data = serialize_program(program)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is told from here on
    before = _resident("VmRSS")
    read = parse_program(data)
    assert _resident("VmHWM") - before < (64 << 20) + 10 * len(data)
    ops = read.global_block().ops
    assert len({id(name) for op in ops for names in (op.inputs["X"], op.outputs["Out"]) for name in names}) == 1


def _resident(field: str) -> int:
    """``VmRSS``, the memory that this process has in use, or ``VmHWM``, the most that it had, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) << 10


def test_programs_far_denser_than_any_that_computes_something_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here they have 64 KiB and ten times the file, in place of 64 MiB, which would take seconds."""
    monkeypatch.setattr(room, "_SPARE", 64 << 10)
    of_ops, of_variables, of_blocks = Program(), Program(), Program()
    of_ops.global_block().ops = [Operator(of_ops.global_block(), "f", {}, {}, {})] * 1000
    for number in range(1000):
        of_variables.global_block().create_var(name=f"{number:x}")
        of_blocks.create_block(of_blocks.global_block())
    for program in (of_ops, of_variables, of_blocks):
        for read, data in ((parse_program, serialize_program(program)), (parse_program_text, program.to_string())):
            with pytest.raises(FormatError, match="so many, and so small, that they would take more than"):
                read(data)
    del of_ops.global_block().ops[100:]
    assert len(parse_program(serialize_program(of_ops)).global_block().ops) == 100


def test_parts_of_regions_are_as_many_as_their_gradient_has() -> None:
    """An attribute from a damaged file made a list of two thousand million numbers."""
    shapes = {"Output": [2, 1, 3, 3], "ROIs": [2, 4], "Trans": [2, 2, 3, 3], "Like": [1, 4, 8, 8]}
    inputs = {slot: fluid.data(slot, shape, lod_level=int(slot == "ROIs")) for slot, shape in shapes.items()}
    attrs = {"no_trans": False, "spatial_scale": 1.0, "output_dim": 1, "group_size": [2, 2], "pooled_width": 3}
    attrs |= {"part_size": [3, 3], "sample_per_part": 2, "trans_std": 0.1}
    f = fluid.framework.BuildNamespace(fluid.default_main_program().global_block())
    assert f.moved_parts_back(**inputs, **attrs, pooled_height=3).shape == (1, 4, 8, 8)
    with pytest.raises(InferenceError, match=r"Output float32\[2, 1, 3, 3\] should be float32\[2, 1, 2147483647, 3\]"):
        f.moved_parts_back(**inputs, **attrs, pooled_height=2**31 - 1)


# ------------------------------------------------------------------------------------------------------------ messages
HOSTILE_TEXT = "a\x1b[31m\x00\x85\u202e\udcff\r" + "b" * 100_000 + "\nc"


def test_messages_are_text_that_a_person_reads() -> None:
    """Whoever makes an error, of whatever text: no control character but line breaks, and no more than a screen or two."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, FluidError)]
    assert len(kinds) >= 20
    for kind in kinds:
        error = kind(HOSTILE_TEXT)
        again = pickle.loads(pickle.dumps(error))
        error.restate(f"where: {error}\n{HOSTILE_TEXT * 50}")
        for shown in (str(error), str(again), repr(again)):
            assert shown.replace("\n", "").isprintable() and len(shown) < 17_000, kind
            assert "a\\x1b[31m\\x00\\x85\\u202e\\udcff\\rbbb" in shown.replace("\\\\", "\\") and "characters left out" in shown
        assert str(again).endswith("b\nc") and max(map(len, str(error).split("\n"))) < 2_200


def test_messages_that_are_short_stay_as_they_are() -> None:
    for text in ("", "plain", "two\nlines\tand a tab", "Größe 12 µs, 名前", "x" * 2000, "\n".join(["y" * 100] * 100)):
        assert str(FluidError(text)) == errors.readable(errors.readable(text)) == text
    assert FluidError(3, "x").args == (3, "x")


def test_names_from_files_reach_no_message_as_they_are(tmp_path: Path) -> None:
    """A name of each kind in a program, with a terminal's escape sequences in it."""
    name = b"\x1b]0;x\x07\x00" + b"y" * 100_000

    def rename(message: Any) -> None:
        op(message, b"mul").inputs[0].arguments[0] = name

    changes: list[Callable[[Any], Any]] = [
        rename,
        lambda m: setattr(op(m, b"mul"), "type", name),
        lambda m: setattr(op(m, b"mul").inputs[0], "parameter", name),
        lambda m: setattr(op(m, b"scale").attrs.add(name=name, type=0), "s", b""),
        lambda m: m.blocks[0].vars.extend([var(m, b"x"), m.blocks[0].vars.add(name=name), m.blocks[0].vars.add(name=name)]),
    ]
    for number, change in enumerate(changes):
        (tmp_path / "net.pdmodel").write_bytes(changed(change))
        (tmp_path / "net.pdiparams").write_bytes(PARAMS)
        with pytest.raises(FluidError) as caught:
            model = fluid.load_model(tmp_path / "net.pdmodel")
            fluid.Executor().run(model.program, {"x": np.ones((2, 13), "float32")}, model.fetches)
        text = str(caught.value)
        assert text.replace("\n", "").isprintable() and len(text) < 17_000, number


def test_integers_of_too_many_bits_are_not_written_for_paddle_3() -> None:
    with fresh_programs() as (main, _):
        x, scale, zero = fluid.data("x", [2, 3]), fluid.data("scale", [2]), fluid.data("zero", [2])
        fluid.extend.ops().quantize_linear(x, scale, zero)
        op = main.global_block().ops[-1]
        for bits in (2**31, 0, -1):
            op.attrs["bit_length"] = bits
            with pytest.raises(ProgramError, match="bit_length"):
                pir_of(main)

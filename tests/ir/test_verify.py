"""Verification: well-formed programs pass, and each fault is named with its op, the user's line and the ops around it."""

from __future__ import annotations

import pytest
from checks import each
from paths import TESTS
from test_text import small_program

from fluid.errors import ProgramError
from fluid.formats.program import parse_program
from fluid.ir.program import Block, Operator, Program
from fluid.ir.verify import find_faults, verify

ZOO = TESTS / "golden" / "zoo"


def chain(length=6):
    """x -> tanh -> tanh -> ..."""
    program = Program()
    block = program.global_block()
    block.create_var(name="x", shape=[2], dtype="float32", is_data=True)
    block.create_var(name="flag", shape=[1], dtype="bool")
    for index in range(length):
        block.create_var(name=f"h{index}")
        block.append_op("tanh", {"X": f"h{index - 1}" if index else "x"}, {"Out": f"h{index}"})
    return program


def messages(program):
    return [str(fault) for fault in find_faults(program)]


@each("name", ["linreg/main.pb", "linreg/train.pb", "linreg/startup.pb", "linreg/model.pdmodel", "while_rnn/train.pb"])
def test_programs_of_paddle_are_well_formed(name):
    parse_program((ZOO / name).read_bytes()).verify()


def test_small_programs_are_well_formed():
    small_program().verify()
    chain().verify()
    Program().verify()


def rename_input(block):
    block.ops[3].inputs["X"] = ["h22"]


def empty_slot(block):
    block.ops[3].inputs["X"] = []


def missing_slot(block):
    del block.ops[3].outputs["Out"]


def absent_variable(block):
    block.ops[3].inputs["X"] = ["@EMPTY@"]


def two_names(block):
    block.ops[3].inputs["X"] = ["h1", "h2"]


def unknown_slot(block):
    block.ops[3].inputs["Z"] = ["h1"]


def wrong_attribute(block):
    block.append_op("concat", {"X": ["h1", "h2"]}, {"Out": "h3"}, {"axis": 0}).attrs["axis"] = "first"


def missing_attribute(block):
    block.ops[3] = Operator(block, "while", {"X": ["h1"], "Condition": ["flag"]}, {"Out": ["h1"], "StepScopes": ["h2"]}, {})


def strange_block(block):
    block.ops[3].block = Program().global_block()


def unseen_name(block):
    inner = block.program.create_block(block)
    inner.create_var(name="inside")
    block.append_op("loop", {}, {}, {"sub_block": inner})
    block.ops[3].inputs["X"] = ["inside"]


@each(
    ("harm", "says"),
    [
        (rename_input, "block 0, op 3 (tanh): it reads 'h22' (X), a name that no visible block declares; did you mean 'h2'?"),
        (empty_slot, "block 0, op 3 (tanh): the input slot 'X' is empty; it needs a variable"),
        (absent_variable, "block 0, op 3 (tanh): the input slot 'X' is empty; it needs a variable"),
        (missing_slot, "block 0, op 3 (tanh): the output slot 'Out' is empty; it needs a variable"),
        (two_names, "block 0, op 3 (tanh): the input slot 'X' holds 2 names, h1, h2; it takes one"),
        (unknown_slot, "block 0, op 3 (tanh): it has no input slot 'Z'; known are X"),
        (wrong_attribute, "block 0, op 6 (concat): the attribute 'axis' should be of kind int"),
        (missing_attribute, "block 0, op 3 (while): the attribute 'sub_block' (block) is required and missing"),
        (strange_block, "block 0, op 3 (tanh): it says that it belongs to block 0"),
        (unseen_name, "block 0, op 3 (tanh): it reads 'inside' (X), a name that no visible block declares"),
    ],
)
def test_faults_of_ops(harm, says):
    program = chain()
    harm(program.global_block())
    assert any(message.startswith(says) for message in messages(program)), messages(program)
    with pytest.raises(ProgramError, match="the program has a fault"):
        verify(program)


def test_names_of_blocks_around_are_visible():
    program = chain()
    block = program.global_block()
    inner = program.create_block(block)
    inner.create_var(name="inside")
    inner.append_op("tanh", {"X": "h1"}, {"Out": "inside"})
    block.append_op("loop", {}, {}, {"sub_block": inner})
    grad = program.create_block(block, forward=inner)
    grad.append_op("tanh", {"X": "inside"}, {"Out": "h2"})
    block.append_op("loop_grad", {}, {}, {"sub_block": grad})
    program.verify()
    grad.forward = None
    assert messages(program)[0].startswith("block 2, op 0 (tanh): it reads 'inside' (X)")


def orphan(program):
    program.blocks[1].parent = None


def cycle(program):
    program.blocks[1].parent = program.blocks[2]
    program.blocks[2].parent = program.blocks[1]


def foreign_parent(program):
    program.blocks[1].parent = Program().global_block()


def rooted(program):
    program.blocks[0].parent = program.blocks[1]


def misplaced(program):
    program.blocks.reverse()


def owned_twice(program):
    program.global_block().append_op("loop", {}, {}, {"sub_block": program.blocks[1]})


def foreign(program):
    program.global_block().append_op("loop", {}, {}, {"sub_block": Block(Program(), 1)})


def own_ancestor(program):
    program.blocks[2].append_op("loop", {}, {}, {"sub_block": program.blocks[1]})


@each(
    ("harm", "says"),
    [
        (orphan, "block 1: it has no parent; only block 0, the root, has none"),
        (cycle, "block 1: it is its own ancestor, by way of its parent blocks"),
        (foreign_parent, "block 1: its parent block is not in this program"),
        (rooted, "block 0: the root has a parent, block 1"),
        (misplaced, "block 2: it stands at position 0 of the program"),
        (owned_twice, "block 0, op 1 (loop): it owns block 1, which op 0 of block 0 owns already"),
        (foreign, "block 0, op 1 (loop): it owns block 1, which is not in this program"),
        (own_ancestor, "block 2, op 0 (loop): it owns block 1, in which it stands itself"),
    ],
)
def test_faults_of_the_tree(harm, says):
    program = Program()
    outer = program.create_block(program.global_block())
    inner = program.create_block(outer)
    program.global_block().append_op("loop", {}, {}, {"sub_block": outer})
    harm(program)
    assert any(message.startswith(says) for message in messages(program)), messages(program)
    assert inner.idx == 2


def test_faults_of_variables():
    program = chain()
    block = program.global_block()
    block.vars["h1"].name = "other"
    block.vars["h2"].block = Program().global_block()
    assert messages(program) == [
        "block 0: the variable listed as 'h1' calls itself 'other'",
        "block 0: the variable 'h2' says that it belongs to block 0",
    ]


def test_the_message_shows_every_fault_with_its_line_and_neighbours():
    program = chain()
    block = program.global_block()
    block.ops[3].inputs["X"] = ["gone"]
    block.ops[3].inputs["Y"] = ["h0"]
    block.ops[5].outputs["Out"] = []
    with pytest.raises(ProgramError) as caught:
        program.verify()
    lines = str(caught.value).split("\n")
    assert lines[0] == "the program has 3 faults"
    assert lines[1].startswith("block 0, op 3 (tanh): it reads 'gone' (X)")
    assert lines[2].startswith("  made at: ") and lines[2].endswith(" in chain") and "test_verify.py:" in lines[2]
    assert lines[3] == "block 0, op 3 (tanh): it has no input slot 'Y'; known are X"
    assert lines[5:10] == [
        "    1: h1: float32[2] = tanh(X=h0)",
        "    2: h2: float32[2] = tanh(X=h1)",
        "  > 3: h3: float32[2] = tanh(X=gone, Y=h0)",
        "    4: h4: float32[2] = tanh(X=h3)",
        "    5: tanh(X=h4)",
    ]
    assert lines[10] == "block 0, op 5 (tanh): the output slot 'Out' is empty; it needs a variable"


def test_the_message_is_cut():
    program = chain(40)
    for op in program.global_block().ops:
        op.inputs["X"] = ["gone"]
    with pytest.raises(ProgramError) as caught:
        program.verify()
    assert str(caught.value).endswith("\n... 20 more")

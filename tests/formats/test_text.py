"""The text of programs: its form, equal programs after parsing, and errors for other texts."""

from __future__ import annotations

import random
import time
import tracemalloc

import pytest
from checks import each
from hypothesis import given
from paths import TESTS
from programs import content, programs

from fluid.errors import FormatError
from fluid.formats import room
from fluid.formats.program import parse_program, serialize_program, with_versions
from fluid.formats.text import block_to_string, op_to_string, parse_program_text, program_to_screen, program_to_string
from fluid.ir.program import Block, Operator, OpRole, Program
from fluid.values.types import VarType

ZOO = TESTS / "golden" / "zoo"


def small_program():
    program = Program()
    block = program.global_block()
    x = block.create_var(name="x", shape=[-1, 3], dtype="float32", is_data=True, stop_gradient=True, need_check_feed=True)
    w = block.create_parameter(name="w", shape=[3, 4], dtype="float32")
    block.create_var(name="lr", shape=[1], dtype="float32", persistable=True)
    block.create_var(name="strange name", shape=[-1, 4], dtype="float32")
    block.create_var(name="xs", shape=[0], dtype="float32", lod_level=2)
    steps = block.create_var(name="steps", type=VarType.STEP_SCOPES)
    block.append_op("my_mul", {"X": x, "Y": w}, {"Out": "strange name"}, {"num_col_dims": 1, "scale": 1.0, "names": ["a", "b"]})
    body = program.create_block(block)
    inner = body.create_var(name="t", dtype="float32")
    body.append_op("tanh", {"X": "strange name"}, {"Out": inner})
    block.append_op("my_loop", {"X": ["x", "w"]}, {"Out": ["strange name", "xs"], "StepScopes": steps}, {"sub_block": body})
    block.append_op("my_mul_grad", {"X": x, "Empty": []}, {"X@GRAD": ["@EMPTY@"]}, {"op_role": OpRole.BACKWARD})
    block.append_op("my_sgd", {"LearningRate": "lr"}, {"ParamOut": w}, {"op_role": OpRole.OPTIMIZE, "op_role_var": ["w"]})
    return program


COMPLETE = """\
block 0 {
  data x: float32[-1, 3] stop_gradient need_check_feed
  param w: float32[3, 4]
  var lr: float32[1] persistable
  "strange name": float32[-1, 4] = my_mul(X=x, Y=w) {num_col_dims=1, scale=1.0, names=["a", "b"]}
  (Out=["strange name", xs: float32[0] lod_level=2], StepScopes=steps: step_scopes) = my_loop(X=[x, w]) {sub_block=block 1}
    block 1 {
      t: float32[-1, 4] = tanh(X="strange name")
    }
  -- backward --
  (X@GRAD=@EMPTY@) = my_mul_grad(X=x, Empty=[])
  -- optimizer --
  (ParamOut=w) = my_sgd(LearningRate=lr) {op_role_var=["w"]}
}
"""


def test_complete_text():
    assert program_to_string(small_program()) == COMPLETE
    assert block_to_string(small_program().global_block()) == COMPLETE.rstrip("\n")


def test_text_parses_back():
    assert content(parse_program_text(COMPLETE)) == content(parse_program_text(program_to_string(small_program())))
    program = parse_program_text(COMPLETE)
    assert program.global_block().vars["w"].trainable
    assert program.global_block().ops[1].attrs["sub_block"] is program.block(1)
    assert program.global_block().ops[2].role == OpRole.BACKWARD
    assert program.block(1).parent is program.global_block()


def test_random_seed_is_kept():
    program = small_program()
    program.random_seed = 7
    text = program_to_string(program)
    assert text.startswith("program {random_seed=7}\n")
    assert parse_program_text(text).random_seed == 7


def test_versions_are_kept():
    program = small_program()
    assert program_to_string(parse_program(serialize_program(program))) == program_to_string(program)  # version 0 is not told
    program.wire = with_versions(2006002, [("adam", 1), ("odd name", 4), ("adam", -1)])
    text = program_to_string(program)
    assert text.startswith('program {version=2006002, op_versions=[adam=1, "odd name"=4, adam=-1]}\nblock 0 {\n')
    again = parse_program_text(text)
    assert again.wire == program.wire and program_to_string(again) == text
    assert program_to_screen(program).startswith("block 0 {")
    again.wire, again.random_seed = with_versions(0, [("adam", 1)]), 7
    text = program_to_string(again)
    assert text.startswith("program {random_seed=7, op_versions=[adam=1]}\n")
    assert program_to_string(parse_program_text(text)) == text


@given(programs())
def test_any_program_comes_back_equal(program):
    text = program_to_string(program)
    again = parse_program_text(text)
    assert content(again) == content(program)
    assert program_to_string(again) == text
    program_to_screen(program)


@each("name", ["linreg/main.pb", "linreg/train.pb", "linreg/model.pdmodel", "while_rnn/train.pb"])
def test_programs_of_paddle_come_back_with_their_kinds(name):
    program = parse_program((ZOO / name).read_bytes())
    again = parse_program_text(program_to_string(program))
    assert content(again) == content(program)
    assert again.wire == program.wire
    assert program_to_string(parse_program(serialize_program(again))) == program_to_string(program)
    kinds = [op.wire.kinds if op.wire is not None else {} for block in program.blocks for op in block.ops]
    assert kinds == [op.wire.kinds if op.wire is not None else {} for block in again.blocks for op in block.ops]


def test_kinds_that_values_do_not_tell_are_written_out():
    text = 'block 0 {\n  unknown_op() {a: long=1, b: strings=[], c: float64=0.5, d: var="x", e: scalar=2, f=3}\n}\n'
    program = parse_program_text(text)
    assert program.global_block().ops[0].wire.kinds == {"a": "long", "b": "strings", "c": "float64", "d": "var", "e": "scalar"}
    assert program_to_string(program) == text
    assert program_to_string(parse_program(serialize_program(program))) == text
    program.global_block().ops[0].attrs["a"] = "text now"
    assert 'a="text now"' in program_to_string(program)


def test_line_of_an_op_leaves_out_what_says_nothing():
    program = small_program()
    block = program.global_block()
    assert op_to_string(block.ops[3]) == "(ParamOut=w: float32[3, 4]) = my_sgd(LearningRate=lr)"
    block.create_var(name="r")
    op = Operator(
        block, "reshape2", {"X": ["x"]}, {"Out": ["r"], "XShape": []}, {"shape": [-1], "op_role": 0, "op_callstack": ["File"]}
    )
    assert op_to_string(op) == "r: ?? = reshape2(X=x) {shape=[-1]}"


def test_default_attributes_are_left_out_on_the_screen():
    block = Program().global_block()
    for name in ("x", "y"):
        block.create_var(name=name, shape=[2, 2], dtype="float32")
    op = block.append_op("concat", {"X": ["x", "y"]}, {"Out": "y"}, {"axis": 0})
    assert str(op) == "y: float32[4, 2] = concat(X=[x, y])"
    assert "concat(X=[x, y]) {axis=0}" in program_to_string(block.program)


def test_screen_is_cut():
    program = Program()
    block = program.global_block()
    for index in range(500):
        block.create_var(name=f"w_{index}", shape=[1], dtype="float32", persistable=True)
        block.append_op("thing", {"X": [f"w_{i}" for i in range(50)]}, {"Out": f"w_{index}"}, {"numbers": list(range(1000))})
    text = program_to_screen(program)
    lines = text.split("\n")
    assert len(lines) <= 81
    assert sum(f"... {500 - 40} more ops" in line for line in lines) == 1
    assert "more variables" in text
    assert max(map(len, lines)) <= 160
    assert "[0, 1, 2, 3, 4, 5, 6, 7, ... 992 more]" in text
    assert len(program_to_string(program).split("\n")) == 1003


def test_many_blocks_are_cut_too():
    program = Program()
    for _ in range(300):
        program.create_block(program.global_block())
    assert program_to_screen(program).split("\n")[-1] == "... 522 more lines"


def test_deep_nesting_is_no_recursion():
    """As deep as a program may be it comes back; deeper ones, which only hands and files make, are refused in a line."""
    program = Program()
    for depth in range(2, 3000):
        block, inner = program.blocks[-1], Block(program, depth - 1, program.blocks[-1])
        program.blocks.append(inner)
        block.ops.append(Operator(block, "loop", {}, {}, {"sub_block": inner}))
        if depth == 64:
            assert content(parse_program_text(program_to_string(program))) == content(program)
    with pytest.raises(FormatError, match="blocks are nested more than 64 deep, by ops that own them"):
        parse_program_text(program_to_string(program))


def test_a_shared_block_is_printed_once():
    program = Program()
    root = program.global_block()
    body = program.create_block(root)
    for _ in range(2):
        root.append_op("loop", {}, {}, {"sub_block": body})
    body.append_op("loop", {}, {}, {"sub_block": root})
    text = program_to_string(program)
    assert text.count("block 1 {") == 1
    assert content(parse_program_text(text)) == content(program)


@each(
    ("text", "message"),
    [
        ("", "line 1, column 1: there is no block 0"),
        ("block 1 {\n}", "line 2, column 1: 1 blocks are given, but no block 0 among them"),
        ("block 0 {\n}\nblock 2 {\n}", "line 4, column 1: 2 blocks are given, but no block 1 among them"),
        ("block 0 {", "line 1, column 1: block 0 is not closed by '}'"),
        ("block 0 {\n}\n}", "line 3, column 1: '}' closes no block"),
        ("block 0 {\n  block 0 {\n", "line 2, column 9: block 0 is given twice"),
        ("block 0 {\n  x = tanh(X=§)", "line 2, column 14: '§' starts no word, string or sign"),
        ("block 0 {\n  x = tanh(X=x", "line 2, column 15: expected ',' or ')', not the end of the line"),
        ("block 0 {\n  x = tanh(X=x) {a=}", "line 2, column 20: expected a value, not '}'"),
        (
            "block 0 {\n  x = tanh(X=x) {a=1x}",
            "line 2, column 20: expected a number, a string, True, False, or a block, not '1x'",
        ),
        ("block 0 {\n  x = tanh(X=x, X=y)", "line 2, column 17: the slot 'X' is given twice"),
        ("block 0 {\n  x = tanh(X=x) {a=1, a=2}", "line 2, column 23: the attribute 'a' is given twice"),
        ("block 0 {\n  x = tanh(X=x) {a: ints=1}", "line 2, column 21: 'ints' is not a kind of attribute that can hold"),
        ("block 0 {\n  x = tanh(X=x) {b=block 4}\n}", "line 2, column 20: there is no block 4"),
        ("block 0 {\n  x = tanh(X=x) extra", "line 2, column 17: expected the end of the line, not 'extra'"),
        ("block 0 {\n  param x: float99[1]", "line 2, column 12: expected an element type such as float32, not 'float99'"),
        ("block 0 {\n  param x: float32[a]", "line 2, column 20: expected a dimension, not 'a'"),
        (
            "block 0 {\n  param x: tensor",
            "line 2, column 12: expected a type such as float32[-1, 13] or lod_tensor_array, not 'tensor'",
        ),
        (
            "block 0 {\n  const x: float32[1]",
            "line 2, column 3: expected 'param', 'data' or 'var' before a variable, not 'const'",
        ),
        ("block 0 {\n  var x: float32[1]\n  var x: float32[1]", "line 3, column 8: 'x' is declared twice in block 0"),
        ("block 0 {\n  -- sideways --", "line 2, column 6: 'sideways' is not a role"),
        ("x = tanh(X=x)", "line 1, column 1: expected a block, such as 'block 0 {', not 'x'"),
        ("block 0 (parent 3) {\n}", "line 1, column 17: there is no block 3"),
        ("program {seed=1}", "line 1, column 10: 'seed' is not random_seed, version or op_versions"),
        ("program {version=1, version=2}", "line 1, column 21: version is given twice"),
        ("program {version=1}\nprogram {version=1}", "line 2, column 10: version is given twice"),
        ("program {version=9223372036854775808}", "line 1, column 18: 9223372036854775808 takes more than 64 bits"),
        ("program {op_versions=[a=2147483648]}", "line 1, column 25: 2147483648 takes more than 32 bits"),
        ('program {op_versions=["\\ud800"=1]}', "line 1, column 1: '\\ud800' cannot be written as UTF-8"),
        ("program {op_versions=[a=x]}", "line 1, column 25: expected a version, not 'x'"),
        ('block 0 {\n  "\\x" = tanh(X=x)', "line 2, column 3: not a string"),
    ],
)
def test_bad_text_says_where(text, message):
    with pytest.raises(FormatError) as caught:
        parse_program_text(text)
    assert message in str(caught.value)


def test_damaged_text_ends_in_a_program_or_a_format_error():
    draw = random.Random(0)
    characters = '{}()[]=,:?|"\\ \n-0x'
    ends = set()
    for _ in range(600):
        text = list(COMPLETE)
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(text))
            text[at : at + draw.choice([0, 1, 5])] = draw.choice(characters)
        try:
            parse_program_text("".join(text))
            ends.add("program")
        except FormatError as error:
            assert str(error).startswith("line ")
            ends.add("error")
    assert ends == {"program", "error"}


SIZE = 100_000
HOSTILE = {
    "newlines": "\n" * SIZE,
    "signs": "a=" * (SIZE // 2),
    "signs in a block": "block 0 {\n" + "a=" * (SIZE // 2),
    "brackets": "(" * SIZE,
    "an open quote": "block 0 {\n  x = f(A=" + '"' + "x" * SIZE,
    "an open quote of escapes": "block 0 {\n  x = f(A=" + '"' + "\\" * SIZE,
    "names without end": "block 0 {\n  x = f(X=[" + "a," * (SIZE // 2),
    "numbers without end": "block 0 {\n  x = f() {a=[" + "1," * (SIZE // 2),
}


@each("what", HOSTILE)
def test_time_and_memory_of_texts_are_bounded_by_their_size(what: str) -> None:
    """About a second for a megabyte (three here), and memory of ten times the text: the parser keeps only the current part of a
    line."""
    text = HOSTILE[what]
    start = time.process_time()
    with pytest.raises(FormatError):
        parse_program_text(text)
    assert time.process_time() - start < 3 * SIZE / 1e6
    tracemalloc.start()
    try:
        with pytest.raises(FormatError):
            parse_program_text(text[: SIZE // 4])
        assert tracemalloc.get_traced_memory()[1] < (1 << 16) + 10 * SIZE // 4
    finally:
        tracemalloc.stop()


@each("parts", ["(%s=c)", "(){%s=1}"])
def test_thousands_of_names_of_their_own_are_refused(parts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dict with so many names takes fifty times the text."""
    monkeypatch.setattr(room, "_SPARE", 1 << 18)
    before, after = parts.split("%s")
    text = "block 0 {\n  a = b" + before + (after[:2] + ",").join(f"a{number}" for number in range(30_000)) + after + "\n}\n"
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="so many, and so small"):
            parse_program_text(text)
        assert tracemalloc.get_traced_memory()[1] < (1 << 20) + 10 * len(text)
    finally:
        tracemalloc.stop()


def test_strings_end_at_the_first_quote_that_is_not_escaped() -> None:
    for string in ("", '"', "\\", '\\"', "a\\\\", "\n\u202e", '"' * 5 + "\\" * 5):
        program = Program()
        program.global_block().ops.append(Operator(program.global_block(), "thing", {}, {}, {"text": string, "next": "b"}))
        assert parse_program_text(program.to_string()).global_block().ops[0].attrs == {"text": string, "next": "b"}


def test_names_that_a_text_repeats_share_one_string() -> None:
    ops = parse_program_text("block 0 {\n  some = f(Input=some)\n  some = f(Input=some)\n}").global_block().ops
    assert len({id(name) for op in ops for name in (*op.inputs["Input"], *op.outputs["Out"])}) == 1
    assert len({id(slot) for op in ops for slot in op.inputs}) == 1

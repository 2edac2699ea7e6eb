"""Random programs: gradients against central differences, round trips, pruning, plan against no plan.

A program is drawn as a list of instructions, numbers that say what is done to which of the variables made so far, so
that a failing program shrinks to a short one. Each run of the tests draws the same programs; with FLUID_MORE_EXAMPLES=20
in the environment it draws ten times as many.
"""

from __future__ import annotations

from itertools import chain

import pytest
from checks import MORE
from hypothesis import given, settings
from hypothesis import strategies as st
from numeric import interpret
from random_programs import (
    KINDS,
    STRAIGHT,
    Instruction,
    RandomProgram,
    assert_same_bits,
    check_gradients,
    check_runs,
    check_second_order,
)

import fluid
from fluid.ir.program import Variable

pytestmark = pytest.mark.numpy_alone


def drawn(first: int, end: int, most: int) -> st.SearchStrategy[list[Instruction]]:
    number = st.integers(0, 11)
    return st.lists(st.tuples(st.integers(first, end - 1), number, number, number), min_size=1, max_size=most)


straight_programs = drawn(0, STRAIGHT, 12)
block_programs = st.builds(
    lambda *parts: list(chain(*parts)), drawn(0, STRAIGHT, 3), drawn(STRAIGHT, len(KINDS), 2), drawn(0, len(KINDS), 4)
)


@settings(max_examples=20 * MORE)
@given(straight_programs)
def test_gradients(instructions: list[Instruction]) -> None:
    check_gradients(instructions)


@settings(max_examples=8 * MORE)
@given(block_programs)
def test_gradients_through_blocks(instructions: list[Instruction]) -> None:
    check_gradients(instructions)


@settings(max_examples=10 * MORE)
@given(straight_programs)
def test_second_order(instructions: list[Instruction]) -> None:
    check_second_order(instructions)


@settings(max_examples=4 * MORE)
@given(block_programs)
def test_second_order_through_blocks(instructions: list[Instruction]) -> None:
    check_second_order(instructions)


def test_every_structural_op_is_reached() -> None:
    """One instruction of each kind that makes blocks, twice differentiated, uses every op that owns blocks or handles arrays."""
    blocks = range(STRAIGHT, len(KINDS))
    instructions = [instruction for kind in blocks for instruction in ((kind, 0, 1, 1), (0, kind - STRAIGHT + 5, 0, 0))]
    check_gradients(instructions)
    check_second_order(instructions)
    made = RandomProgram(instructions)
    seen: set[str] = set()
    wanted: list[Variable] = made.vars[len(made.inputs) :]
    for _ in range(3):
        seen |= {op.type for block in made.program.blocks for op in block.ops}
        wanted = [grad for grad in fluid.gradients(wanted, made.inputs) if grad is not None]
    for op_type in (
        *("while", "while_grad", "conditional_block", "conditional_block_grad", "recurrent", "recurrent_grad"),
        *("select_input", "select_output", "write_to_array", "read_from_array", "new_array"),
        *("stack_array", "stack_array_like", "unstack_array"),
    ):
        assert op_type in seen, f"no {op_type} in the programs"


@settings(max_examples=13 * MORE)
@given(straight_programs | block_programs, st.integers(0, 2**16))
def test_runs_of_every_kind_agree(instructions: list[Instruction], chosen: int) -> None:
    check_runs(instructions, chosen)


@settings(max_examples=5 * MORE)
@given(straight_programs | block_programs)
def test_backward_changes_no_value(instructions: list[Instruction]) -> None:
    """Differentiating a program, even repeatedly, changes no value of its forward part."""
    plain, made = RandomProgram(instructions), RandomProgram(instructions)
    names = [var.name for var in made.vars]
    once = fluid.gradients(made.targets, made.inputs)
    again = fluid.gradients(made.targets, made.inputs)
    assert_same_bits(interpret(made.program, made.feed, names), interpret(plain.program, plain.feed, names))
    first, second = interpret(made.program, made.feed, once), interpret(made.program, made.feed, again)
    assert [value is None for value in first] == [value is None for value in second]
    assert_same_bits([value for value in first if value is not None], [value for value in second if value is not None])

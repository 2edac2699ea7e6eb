"""Random programs of nested loops, branches, recurrences, arrays and overwritten names, differentiated twice."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from control_flow_programs import branch, integer, repeat, total
from differentiation import Case, new_case

from fluid import layers
from fluid.framework import Variable

DEEPEST = 2


class Nest:
    """Writes a random program over matrices of two rows and columns."""

    def __init__(self, case: Case, rng: random.Random) -> None:
        self.rng = rng
        self.block = case.program.current_block
        self.inputs = [case.data("x", [2, 2]), case.parameter("w", [2, 2])]
        x, w = self.inputs
        self.zero = integer(0)
        self.array = layers.array_write(layers.tanh(x), self.zero)
        self.known = self.statements([layers.tanh(x * w), layers.exp(x) * 0.5], 0)

    def value(self, known: list[Variable]) -> Variable:
        """Something new, made of what is known."""
        a, b = (self.rng.choice([*known, *self.inputs]) for _ in range(2))
        choices: list[Callable[[], Variable]] = [
            lambda: layers.tanh(a * b),
            lambda: layers.sigmoid(a + b),
            lambda: layers.tanh(a) * b,
            lambda: layers.exp(a * -0.5),
            lambda: layers.tanh(layers.matmul(a, b)),
        ]
        return self.rng.choice(choices)()

    def statements(self, known: list[Variable], depth: int, may_write: bool = True) -> list[Variable]:
        """A few statements; what is known after them. Those inside a function of `cond` write nothing outside."""
        here = list(known)
        writing = [self.overwrite, self.overwrite_in_place, self.write_entry]
        nesting = [self.loop, self.branch, self.cond, self.while_loop, self.rnn]
        for _ in range(self.rng.randrange(2, 5)):
            statement = self.rng.choice([self.make, self.read_entry, *writing, *(nesting if depth < DEEPEST else [])])
            if may_write or statement not in (*writing, self.loop, self.branch):
                statement(here, depth)
        return here

    # -- statements
    def make(self, known: list[Variable], depth: int) -> None:
        known.append(self.value(known))

    def overwrite(self, known: list[Variable], depth: int) -> None:
        layers.assign(self.value(known), self.rng.choice(known))

    def overwrite_in_place(self, known: list[Variable], depth: int) -> None:
        var = self.rng.choice(known)
        self.block().append_op("tanh", {"X": var}, {"Out": var})

    def write_entry(self, known: list[Variable], depth: int) -> None:
        layers.array_write(self.value(known), integer(self.rng.randrange(2)), self.array)

    def read_entry(self, known: list[Variable], depth: int) -> None:
        known.append(layers.tanh(layers.array_read(self.array, self.zero)))

    def loop(self, known: list[Variable], depth: int) -> None:
        repeat(self.rng.randrange(3), lambda i: self.statements(known, depth + 1))

    def branch(self, known: list[Variable], depth: int) -> None:
        branch(self.coin(), lambda: self.statements(known, depth + 1))

    def cond(self, known: list[Variable], depth: int) -> None:
        def side() -> Variable:
            return self.value(self.statements(known, depth + 1, may_write=False))

        known.append(layers.cond(self.coin(), side, side))

    def while_loop(self, known: list[Variable], depth: int) -> None:
        _, found = layers.while_loop(
            lambda i, h: layers.less_than(i, integer(2)),
            lambda i, h: [layers.increment(i, in_place=False), layers.tanh(h * self.rng.choice(known))],
            [integer(0), self.rng.choice(known)],
        )
        known.append(found)

    def rnn(self, known: list[Variable], depth: int) -> None:
        sequence, first = self.rng.choice(known), layers.reduce_sum(self.rng.choice(known), dim=0)
        other = self.rng.choice([var for var in [*known, *self.inputs] if var is not sequence])
        rnn = layers.StaticRNN()
        with rnn.step():
            step, before = rnn.step_input(sequence), rnn.memory(init=first)
            after = layers.tanh(step * before + layers.reduce_mean(other, dim=0))
            if self.rng.random() < 0.3:
                repeat(2, lambda i: layers.assign(layers.tanh(after * step), after))
            rnn.update_memory(before, after)
            rnn.step_output(after)
        known.append(rnn())

    def coin(self) -> Variable:
        return layers.less_than(self.zero, integer(self.rng.randrange(2)))


@pytest.mark.parametrize("seed", range(25))
def test_two_orders(seed: int) -> None:
    rng = random.Random(seed)
    with new_case(f"nest_{seed}") as case:
        nest = Nest(case, rng)
        result = layers.array_read(nest.array, nest.zero)
        for var in nest.known:
            result = layers.tanh(result) + var * 0.3
        (grad,) = case.gradients(total(result), nest.inputs[0])
        assert grad is not None
        case.gradients(grad, nest.inputs, case.data("weight", [2, 2]))

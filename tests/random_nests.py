"""Random programs of nested loops, branches, recurrences and arrays that overwrite names anywhere, differentiated twice.

A number makes a program; `check_nest` holds its gradients of two orders against central differences, and its plan against
running it op by op. The tests check some hundred numbers, ``benchmarks/attack.py`` as many as one likes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
from control_flow_programs import branch, integer, repeat, total
from numeric import Arrays, assert_gradients, dot, interpret, interpreter

import fluid
from fluid import layers
from fluid.ir.program import Program, Variable

__all__ = ["Nest", "check_nest"]


class Nest:
    """Writes a random program over matrices of two rows and columns.

    Attributes:
        inputs: the variables that are fed.
        known: what the program has computed in block 0.
    """

    def __init__(self, program: Program, rng: random.Random, inputs: Sequence[Variable], deepest: int) -> None:
        self.rng, self.deepest = rng, deepest
        self.block = program.current_block
        self.inputs = list(inputs)
        x, w = self.inputs
        self.zero = integer(0)
        self.array = layers.array_write(layers.tanh(x), self.zero)
        self.known = self.statements([layers.tanh(x * w), layers.exp(x) * 0.5], 0)

    def target(self) -> Variable:
        """One number that depends on everything known."""
        result = layers.array_read(self.array, self.zero)
        for var in self.known:
            result = layers.tanh(result) + var * 0.3
        return total(result)

    def value(self, known: Sequence[Variable]) -> Variable:
        """Something new, made of what is known."""
        a, b = (self.rng.choice([*known, *self.inputs]) for _ in range(2))
        choices: list[Callable[[], Variable]] = [
            lambda: layers.tanh(a * b),
            lambda: layers.sigmoid(a + b),
            lambda: layers.tanh(a) * b,
            lambda: layers.exp(layers.tanh(a) * -0.5),
            lambda: layers.tanh(layers.matmul(a, b)),
        ]
        return self.rng.choice(choices)()

    def statements(self, known: Sequence[Variable], depth: int) -> list[Variable]:
        """A few statements; what is known after them."""
        here = list(known)
        flat = [self.make, self.read_entry, self.overwrite, self.overwrite_in_place, self.write_entry]
        nesting = [self.loop, self.branch, self.cond, self.case, self.switch_case, self.while_loop, self.rnn]
        for _ in range(self.rng.randrange(1, 3) if depth else self.rng.randrange(2, 5)):
            nest = depth < self.deepest and self.rng.random() < 0.55
            self.rng.choice(nesting if nest else flat)(here, depth)
        return here

    # -- statements
    def make(self, known: list[Variable], depth: int) -> None:
        known.append(self.value(known))

    def overwrite(self, known: list[Variable], depth: int) -> None:
        layers.assign(self.value(known), self.rng.choice(known))

    def overwrite_in_place(self, known: list[Variable], depth: int) -> None:
        var = self.rng.choice(known)
        op_type, attrs = self.rng.choice([("tanh", {}), ("scale", {"scale": 0.5, "bias": 0.25})])
        self.block().append_op(op_type, {"X": var}, {"Out": var}, attrs)

    def write_entry(self, known: list[Variable], depth: int) -> None:
        layers.array_write(self.value(known), integer(self.rng.randrange(2)), self.array)

    def read_entry(self, known: list[Variable], depth: int) -> None:
        known.append(layers.tanh(layers.array_read(self.array, self.zero)))

    def loop(self, known: list[Variable], depth: int) -> None:
        repeat(self.rng.randrange(3), lambda i: self.statements(known, depth + 1))

    def branch(self, known: list[Variable], depth: int) -> None:
        branch(self.coin(), lambda: self.statements(known, depth + 1))

    def side(self, known: Sequence[Variable], depth: int) -> Callable[[], Variable]:
        """A function that makes a value after some statements."""
        return lambda: self.value(self.statements(known, depth + 1))

    def cond(self, known: list[Variable], depth: int) -> None:
        known.append(layers.cond(self.coin(), self.side(known, depth), self.side(known, depth)))

    def case(self, known: list[Variable], depth: int) -> None:
        ways = [(self.coin(), self.side(known, depth)) for _ in range(2)]
        known.append(layers.case(ways, self.side(known, depth)))

    def switch_case(self, known: list[Variable], depth: int) -> None:
        ways = {number: self.side(known, depth) for number in range(2)}
        known.append(layers.switch_case(integer(self.rng.randrange(3)), ways, self.side(known, depth)))

    def while_loop(self, known: list[Variable], depth: int) -> None:
        trips = self.rng.randrange(3)
        _, found = layers.while_loop(
            lambda i, h: layers.less_than(i, integer(trips)),
            lambda i, h: [layers.increment(i, in_place=False), self.side([*known, h], depth)()],
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


def _difference(program: Program, feed: Arrays, targets: Sequence[Variable], weights: Sequence[Variable | None]):
    """The sum of targets, with their weights, as a function of what is fed."""
    names = [None if weight is None else weight.name for weight in weights]
    run = interpreter(program, targets)

    def objective(at: Arrays) -> float:
        return sum(dot(value, 1.0 if name is None else at[name]) for value, name in zip(run(at), names, strict=True))

    return objective


def check_nest(seed: int, deepest: int = 3, orders: int = 2) -> None:
    """Hold the gradients of program number `seed` against central differences, and the ways to run it against each other."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    program = Program()
    with fluid.program_guard(program, Program()), fluid.unique_name.guard():

        def data(name: str) -> Variable:
            feed[name] = numbers.uniform(0.2, 0.9, (2, 2))
            var = layers.data(name, [2, 2], append_batch_size=False, dtype="float64")
            var.stop_gradient = False
            return var

        feed: dict[str, np.ndarray] = {}
        inputs = [data("x"), data("w")]
        targets: list[Variable] = [Nest(program, rng, inputs, deepest).target()]
        weights: list[Variable | None] = [None]
        for order in range(1, orders + 1):
            before = program.clone()
            grads = fluid.gradients(targets, inputs, weights)
            program.verify()
            reached = [grad for grad in grads if grad is not None]
            fetch = [*targets, *reached]
            found = interpret(program, feed, fetch)
            planned = fluid.Executor().run(program, feed, fetch, scope=fluid.Scope())
            for var, one, other in zip(fetch, found, planned, strict=True):
                assert np.array_equal(one, other), f"{var.name} has other values in the plan"
            values = dict(zip([grad.name for grad in reached], found[len(targets) :], strict=True))
            assert_gradients(
                _difference(before, feed, targets, weights),
                feed,
                {v.name: np.zeros((2, 2)) if g is None else values[g.name] for v, g in zip(inputs, grads, strict=True)},
                numbers,
                tolerance=20.0**order,
                directions=1,
            )
            if not reached:
                break
            targets, weights = list(reached), [data(f"weight{order}_{number}") for number in range(len(reached))]

"""Random programs of nested loops, branches, recurrences and arrays that overwrite names anywhere, differentiated twice.

A number makes a program; `check_nest` holds its gradients of two orders against central differences, and its plan against
running it op by op. The tests check some hundred numbers, ``benchmarks/attack.py`` as many as one likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from control_flow_programs import branch, integer, repeat, total
from numeric import Arrays, assert_gradients, dot, interpret, interpreter
from real_sizes.choices import Choices

import fluid
from fluid import layers
from fluid.ir.program import Program, Variable

__all__ = ["Nest", "Statements", "check_nest"]

Statement = Callable[[list[Variable], int], None]
"""Appends to the current block; is given the variables that it may read, to which it adds its own, and how deep it is nested."""


class Statements:
    """Appends statements over matrices of one shape, nested in loops and branches.

    Attributes:
        array: entries are written to it and read from it.
        zero: the index of its first entry.
    """

    choices: Choices
    array: Variable
    zero: Variable

    def value(self, variables: Sequence[Variable]) -> Variable:
        """A new matrix, computed of some of the variables."""
        raise NotImplementedError

    def statements(self, variables: Sequence[Variable], depth: int) -> list[Variable]:
        """Append some statements; returns the variables that may be read after them."""
        raise NotImplementedError

    @contextmanager
    def repeated(self, trips: int) -> Iterator[None]:
        """Inside the ``with``, statements are appended that run so many times."""
        yield

    @property
    def flat(self) -> list[Statement]:
        """Statements without a block."""
        return [self.make, self.read_entry, self.overwrite, self.overwrite_in_place, self.write_entry]

    @property
    def nesting(self) -> list[Statement]:
        """Statements with blocks that contain other statements."""
        return [self.loop, self.cond, self.case, self.switch_case, self.while_loop]

    def make(self, variables: list[Variable], depth: int) -> None:
        variables.append(self.value(variables))

    def overwrite(self, variables: list[Variable], depth: int) -> None:
        layers.assign(self.value(variables), self.choices.pick(variables))

    def overwrite_in_place(self, variables: list[Variable], depth: int) -> None:
        var = self.choices.pick(variables)
        op_type, attrs = self.choices.pick((("tanh", {}), ("scale", {"scale": 0.5, "bias": 0.25})))
        fluid.default_main_program().current_block().append_op(op_type, {"X": var}, {"Out": var}, attrs)

    def write_entry(self, variables: list[Variable], depth: int) -> None:
        layers.array_write(self.value(variables), integer(self.choices.below(2)), self.array)

    def read_entry(self, variables: list[Variable], depth: int) -> None:
        variables.append(layers.tanh(layers.array_read(self.array, self.zero)))

    def loop(self, variables: list[Variable], depth: int) -> None:
        """Each trip overwrites a variable."""
        carried, trips = self.choices.pick(variables), self.choices.below(4)
        with self.repeated(trips):
            repeat(trips, lambda i: layers.assign(self.side(variables, depth)(), carried))

    def while_loop(self, variables: list[Variable], depth: int) -> None:
        trips = self.choices.below(4)
        with self.repeated(trips):
            _, result = layers.while_loop(
                lambda i, h: layers.less_than(i, integer(trips)),
                lambda i, h: [layers.increment(i, in_place=False), self.side([*variables, h], depth)()],
                [integer(0), self.choices.pick(variables)],
            )
        variables.append(result)

    def side(self, variables: Sequence[Variable], depth: int) -> Callable[[], Variable]:
        """A function that makes a value after some statements."""
        return lambda: self.value(self.statements(variables, depth + 1))

    def cond(self, variables: list[Variable], depth: int) -> None:
        variables.append(layers.cond(self.coin(), self.side(variables, depth), self.side(variables, depth)))

    def case(self, variables: list[Variable], depth: int) -> None:
        ways = [(self.coin(), self.side(variables, depth)) for _ in range(self.choices.between(1, 3))]
        variables.append(layers.case(ways, self.side(variables, depth)))

    def switch_case(self, variables: list[Variable], depth: int) -> None:
        ways = {number: self.side(variables, depth) for number in range(2)}
        variables.append(layers.switch_case(integer(self.choices.below(3)), ways, self.side(variables, depth)))

    def coin(self) -> Variable:
        return layers.less_than(self.zero, integer(self.choices.below(2)))


class Nest(Statements):
    """Writes a random program over matrices of two rows and columns.

    Attributes:
        inputs: the variables that are fed.
        variables: what the program has computed in block 0.
    """

    def __init__(self, choices: Choices, inputs: Sequence[Variable], deepest: int) -> None:
        self.choices, self.deepest = choices, deepest
        self.inputs = list(inputs)
        x, w = self.inputs
        self.zero = integer(0)
        self.array = layers.array_write(layers.tanh(x), self.zero)
        self.variables = self.statements([layers.tanh(x * w), layers.exp(x) * 0.5], 0)

    def target(self) -> Variable:
        """One number that depends on all variables."""
        result = layers.array_read(self.array, self.zero)
        for var in self.variables:
            result = layers.tanh(result) + var * 0.3
        return total(result)

    def value(self, variables: Sequence[Variable]) -> Variable:
        a, b = (self.choices.pick([*variables, *self.inputs]) for _ in range(2))
        makers: list[Callable[[], Variable]] = [
            lambda: layers.tanh(a * b),
            lambda: layers.sigmoid(a + b),
            lambda: layers.tanh(a) * b,
            lambda: layers.exp(layers.tanh(a) * -0.5),
            lambda: layers.tanh(layers.matmul(a, b)),
        ]
        return self.choices.pick(makers)()

    def statements(self, variables: Sequence[Variable], depth: int) -> list[Variable]:
        here, nesting = list(variables), [*self.nesting, self.branch, self.rnn]
        for _ in range(self.choices.between(1, 2) if depth else self.choices.between(2, 4)):
            nests = depth < self.deepest and self.choices.chance(55)
            self.choices.pick(nesting if nests else self.flat)(here, depth)
        return here

    def branch(self, variables: list[Variable], depth: int) -> None:
        branch(self.coin(), lambda: self.statements(variables, depth + 1))

    def rnn(self, variables: list[Variable], depth: int) -> None:
        sequence, first = self.choices.pick(variables), layers.reduce_sum(self.choices.pick(variables), dim=0)
        added = self.choices.pick([var for var in [*variables, *self.inputs] if var is not sequence])
        rnn = layers.StaticRNN()
        with rnn.step():
            step, before = rnn.step_input(sequence), rnn.memory(init=first)
            after = layers.tanh(step * before + layers.reduce_mean(added, dim=0))
            if self.choices.chance(30):
                repeat(2, lambda i: layers.assign(layers.tanh(after * step), after))
            rnn.update_memory(before, after)
            rnn.step_output(after)
        variables.append(rnn())


def _difference(program: Program, feed: Arrays, targets: Sequence[Variable], weights: Sequence[Variable | None]):
    """The weighted sum of targets as a function of the feeds."""
    names = [None if weight is None else weight.name for weight in weights]
    run = interpreter(program, targets)

    def objective(at: Arrays) -> float:
        return sum(dot(value, 1.0 if name is None else at[name]) for value, name in zip(run(at), names, strict=True))

    return objective


def check_nest(seed: int, deepest: int = 3, orders: int = 2) -> None:
    """Hold the gradients of program number `seed` against central differences, and the ways to run it against each other."""
    numbers = np.random.default_rng(seed)
    program = Program()
    with fluid.program_guard(program, Program()), fluid.unique_name.guard():

        def data(name: str) -> Variable:
            feed[name] = numbers.uniform(0.2, 0.9, (2, 2))
            var = layers.data(name, [2, 2], append_batch_size=False, dtype="float64")
            var.stop_gradient = False
            return var

        feed: dict[str, np.ndarray] = {}
        inputs = [data("x"), data("w")]
        targets: list[Variable] = [Nest(Choices(seed), inputs, deepest).target()]
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

"""Random programs with loops, branches, arrays and recurrences at sizes from practice, and their training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from control_flow_programs import integer, repeat
from random_nests import Statements

import fluid
from fluid import layers
from fluid.ir.program import Variable

from .building import SMOOTH, Builder, case_of, dense, refusals
from .cases import Case, Unfit
from .choices import BATCHES, Choices
from .training import minimize
from .windows import divisor

__all__ = ["make_control"]


class Program(Builder, Statements):
    """Writes statements over matrices [rows, width], which are nested in loops and branches.

    Attributes:
        weights: parameters [width, width] and [width].
        trips: how often the statement that is being written runs.
    """

    def __init__(self, choices: Choices) -> None:
        super().__init__(choices, products=10_000_000, elements=200_000)
        self.rows = choices.extent(4096, BATCHES)
        self.size = self.width(self.rows, most=1025)
        self.trips = 1
        x = self.data([self.rows, self.size])
        x.stop_gradient = False
        self.inputs = [x]
        if choices.chance(50):
            y = self.data(choices.pick(([self.rows, self.size], [1, self.size], [self.rows, 1], [1])))
            y.stop_gradient = False
            self.inputs.append(y)
        self.weights = [self.parameter([self.size])]
        if self.size * self.size <= 300_000 and self.rows * self.size * self.size <= 2_000_000:
            self.weights.append(layers.create_parameter([self.size, self.size], self.dtype))
        self.zero = integer(0)
        self.array = layers.array_write(layers.tanh(x), self.zero)
        self.states = [self.state([self.rows, self.size]) for _ in range(choices.between(0, 2))]
        first = layers.tanh(layers.elementwise_mul(x, self.weights[0], axis=1))
        self.variables = self.statements([first, x], 0)

    # -- values
    def value(self, variables: Sequence[Variable]) -> Variable:
        c = self.choices
        a, b = c.pick(variables), c.pick(variables)
        makers: list[Callable[[], Variable]] = [
            lambda: c.pick(SMOOTH)(layers.tanh(a)),
            lambda: layers.tanh(layers.elementwise_add(a, b)),
            lambda: layers.elementwise_mul(layers.tanh(a), b),
            lambda: self._broadcast(a),
            lambda: self._reduced(a),
            lambda: layers.sigmoid(layers.elementwise_sub(a, self.constant([1]))),
            lambda: layers.elementwise_max(a, layers.scale(b, 0.5)),
            lambda: layers.relu(a),
            lambda: layers.layer_norm(a) if self.trips == 1 else layers.softmax(a),
            lambda: self._largest(a),
            lambda: layers.dropout(
                layers.tanh(a), 0.2, dropout_implementation=c.pick(("downgrade_in_infer", "upscale_in_train"))
            ),
        ]
        if len(self.weights) > 1:
            makers += [lambda: self._product(a), lambda: self._product(a)]
        return c.pick(makers)()

    def _product(self, a: Variable) -> Variable:
        self.need(self.trips * self.rows * self.size**2)
        product = layers.matmul(a, self.weights[1], transpose_y=self.choices.chance(30))
        return layers.tanh(layers.elementwise_add(product, self.weights[0], axis=1) if self.choices.chance(50) else product)

    def _broadcast(self, a: Variable) -> Variable:
        function = self.choices.pick((layers.elementwise_add, layers.elementwise_mul, layers.elementwise_sub))
        return layers.tanh(function(a, self.choices.pick([*self.weights[:1], *self.inputs[1:]])))

    def _reduced(self, a: Variable) -> Variable:
        reduce = self.choices.pick((layers.reduce_mean, layers.reduce_max, layers.reduce_sum))
        return layers.tanh(layers.elementwise_sub(a, reduce(a, dim=self.choices.below(2), keep_dim=True)))

    def _largest(self, a: Variable) -> Variable:
        """Some of the largest elements of each row, by value or by position: both change little where `a` does."""
        if self.choices.chance(50):
            values, _ = layers.topk(a, min(self.choices.between(1, 4), self.size))
            return layers.tanh(layers.elementwise_sub(a, layers.reduce_mean(values, dim=1, keep_dim=True)))
        places = layers.reshape(layers.argmax(a, axis=1), [self.rows, 1])
        largest = layers.elementwise_mul(a, layers.one_hot(places, self.size))
        return layers.tanh(layers.elementwise_add(a, layers.reduce_sum(largest, dim=1, keep_dim=True)))

    # -- statements
    def statements(self, variables: Sequence[Variable], depth: int) -> list[Variable]:
        here = list(variables)
        flat = [*self.flat, self.write_state]
        nesting = [*self.nesting, self.branch, self.rnn, self.loop_over_array, self.loop_by_values]
        nesting += [self.loop_over_stack, self.rows_apart]
        for number in self.choices.repeat(4 if depth else 6, 60 if depth else 80):
            nests = depth < 2 and self.choices.chance(35 if depth or number else 70)
            statement = self.choices.pick(nesting if nests else flat)
            try:
                with refusals():
                    statement(here, depth)
            except Unfit:
                if fluid.default_main_program().current_block().idx:
                    raise  # a block may be left in the middle
        return here

    @contextmanager
    def repeated(self, trips: int) -> Iterator[None]:
        before = self.trips
        self.trips *= max(trips, 1)
        try:
            yield
        finally:
            self.trips = before

    def write_state(self, variables: list[Variable], depth: int) -> None:
        """A variable of the scope is written by a formula that reads it."""
        if not self.states:
            self.make(variables, depth)
            return
        state, value = self.choices.pick(self.states), self.value(variables)
        value.stop_gradient = False
        if self.choices.chance(50):
            layers.assign(layers.tanh(layers.elementwise_add(value, state)), state)
        else:
            layers.sums([layers.scale(value, 0.1), state], out=state)

    def loop_over_array(self, variables: list[Variable], depth: int) -> None:
        """Each trip reads an entry and writes the next one."""
        array = layers.array_write(layers.tanh(self.choices.pick(variables)), integer(0))
        trips = self.choices.between(1, 6)

        def body(i: Variable) -> None:
            entry = self.value([*variables, layers.array_read(array, i)])
            layers.array_write(layers.tanh(entry), layers.increment(i, in_place=False), array)

        with self.repeated(trips):
            repeat(trips, body)
        variables.append(layers.array_read(array, integer(trips)))

    def loop_over_stack(self, variables: list[Variable], depth: int) -> None:
        """A branch of each trip pushes to a stack, or joins its upper two entries, as integers say."""
        trips, one = self.choices.between(1, 8), integer(1)
        moves, size = self.integers([trips], 2), integer(1)
        stack = layers.array_write(layers.tanh(self.choices.pick(variables)), integer(0))

        def push() -> None:
            entry = self.value([*variables, layers.array_read(stack, size - 1)])
            layers.array_write(layers.tanh(entry), size, stack)
            layers.assign(size + 1, size)

        def join() -> None:
            below = layers.elementwise_max(size - 2, self.zero)
            lower, upper = layers.array_read(stack, below), layers.array_read(stack, size - 1)
            layers.array_write(layers.tanh(layers.elementwise_sub(self.value([lower, *variables]), upper)), below, stack)
            layers.assign(layers.elementwise_max(size - 1, one), size)

        with self.repeated(2 * trips):
            repeat(trips, lambda i: layers.cond(layers.equal(layers.gather(moves, i), one), push, join))
        variables.append(layers.array_read(stack, self.zero))

    def loop_by_values(self, variables: list[Variable], depth: int) -> None:
        """Values, not a counter, end it."""
        value = layers.elementwise_add(layers.square(layers.tanh(self.choices.pick(variables))), self.constant([1]))
        limit = layers.fill_constant([1], self.dtype, 50.0)
        goes_on = layers.less_than(layers.mean(layers.abs(value)), limit)
        with self.repeated(8), layers.While(goes_on).block():
            layers.assign(layers.elementwise_add(layers.scale(value, 1.7), layers.square(self.value(variables))), value)
            layers.less_than(layers.mean(layers.abs(value)), limit, cond=goes_on)
        variables.append(layers.tanh(layers.scale(value, 0.02)))

    def branch(self, variables: list[Variable], depth: int) -> None:
        """A switch that overwrites."""
        target = self.choices.pick(variables)
        with layers.Switch() as switch:
            with switch.case(self.coin()):
                layers.assign(self.value(self.statements(variables, depth + 1)), target)
            with switch.default():
                layers.assign(layers.scale(target, 0.5), target)

    def rnn(self, variables: list[Variable], depth: int) -> None:
        """A recurrence over the rows of parts of a matrix."""
        steps = divisor(self.choices, self.rows, (1, 2, 3, 4, 5, 8, 16, 25))
        sequence = layers.reshape(self.choices.pick(variables), [steps, self.rows // steps, self.size])
        first = layers.reduce_mean(layers.reshape(self.choices.pick(variables), [steps, self.rows // steps, self.size]), dim=0)
        if len(self.weights) > 1:
            self.need(self.trips * self.rows * self.size**2)
        rnn = layers.StaticRNN()
        with rnn.step():
            step, before = rnn.step_input(sequence), rnn.memory(init=first)
            mixed = (
                layers.matmul(before, self.weights[1])
                if len(self.weights) > 1
                else layers.elementwise_mul(before, self.weights[0])
            )
            after = self.choices.pick((layers.tanh, layers.sigmoid))(layers.elementwise_add(mixed, step))
            rnn.update_memory(before, after)
            rnn.step_output(layers.scale(after, 0.5) if self.choices.chance(40) else after)
        variables.append(layers.reshape(rnn(), [self.rows, self.size]))

    def rows_apart(self, variables: list[Variable], depth: int) -> None:
        """Send some rows through one branch and the others through another; the result has all rows."""
        if depth:
            self.make(variables, depth)
            return
        x = self.choices.pick(variables)
        branches = layers.IfElse(layers.less_than(layers.reduce_mean(x, dim=1, keep_dim=True), self.constant([1])))
        with branches.true_block():
            branches.output(layers.tanh(branches.input(x)))
        with branches.false_block():
            branches.output(layers.scale(layers.square(branches.input(x)), 0.5))
        mean = layers.reduce_mean(branches()[0], dim=0, keep_dim=True)
        variables.append(layers.elementwise_add(x, mean))


def _over_matrices(choices: Choices) -> tuple[Builder, list[Variable], int]:
    p = Program(choices)
    total = layers.array_read(p.array, p.zero)
    for var in p.variables[-4:]:
        total = layers.elementwise_add(layers.tanh(total), layers.scale(var, 0.3))
    loss = choices.pick((layers.mean, layers.reduce_mean))(total)
    computed = [var for var in p.variables[1:] if var.name not in p.feeds]
    fetches = [loss, *(var for var in computed if choices.chance(12))]
    train(choices, p, loss, fetches)
    return p, fetches, choices.between(1, 3)


def train(choices: Choices, p: Builder, loss: Variable, fetches: list[Variable]) -> None:
    """Append a backward part, or training, which may stand in a branch."""
    kind = choices.below(10)
    inputs = [var for var in p.inputs if not var.stop_gradient] if isinstance(p, Program) else []
    if kind == 0:
        return
    if kind < 4:
        fetches += dense(fluid.gradients([loss], [*inputs, *fluid.default_main_program().all_parameters()]))
    elif kind == 4:
        flag = layers.less_than(layers.mean(loss), p.constant([1]))

        def update() -> None:
            minimize(choices, loss, p.dtype)

        layers.cond(flag, update, None)
    else:
        minimize(choices, loss, p.dtype)


def _attended(choices: Choices, state: Variable, words: Variable) -> Variable:
    """What a step finds in the words of each sequence."""
    query = choices.pick((layers.sequence_expand, layers.sequence_expand_as))(state, words)
    kind = choices.pick(("softmax", "softmax of one number", "sum", "average", "sqrt", "max"))
    if kind == "softmax":
        scores = layers.fc(layers.tanh(words + query), 1, bias_attr=False)
    elif kind == "softmax of one number":
        scores = layers.reduce_mean(words * query, dim=1, keep_dim=True)
    else:
        return layers.sequence_pool(words * layers.sigmoid(query), kind)
    return layers.sequence_pool(words * layers.sequence_softmax(scores), "sum")


def _over_sequences(choices: Choices) -> tuple[Builder, list[Variable], int]:
    """A recurrence over sequences of different lengths, which may attend to other sequences."""
    b = Builder(choices, products=6_000_000)
    lengths = [choices.extent(33) for _ in range(choices.between(1, 33))]
    rows, width = sum(lengths), choices.extent(129)
    x = b.sequences(lengths, width)
    x.stop_gradient = False
    size = b.width(rows, width, most=257)
    b.need(rows * size * (size + width))
    embedded = layers.fc(x, size, act=choices.pick((None, "tanh"))) if choices.chance(60) else x
    words = None
    if choices.chance(40):
        source = [choices.between(0, 33) for _ in lengths[1:]]
        b.need(max(lengths) * sum(source) * size * size)
        words = layers.fc(b.sequences([choices.extent(33), *source], width), size)
    rnn = layers.DynamicRNN()
    with rnn.block():
        step = rnn.step_input(embedded)
        before = rnn.memory(shape=[size], value=choices.pick((0.0, 0.5)), dtype=b.dtype)
        parts = [step, before]
        if words is not None:
            parts.append(_attended(choices, before, rnn.static_input(words)))
        after = layers.fc(parts, size, act=choices.pick(("tanh", "sigmoid", "relu")))
        if choices.chance(30):
            after = layers.elementwise_add(after, before)
        rnn.update_memory(before, after)
        rnn.output(choices.pick((after, layers.scale(after, 0.5))))
    pooled = layers.sequence_pool(rnn(), choices.pick(("last", "sum", "average", "max", "first", "sqrt")))
    loss = layers.mean(choices.pick((layers.square, layers.tanh, layers.softmax))(layers.fc(pooled, choices.between(1, 5))))
    fetches = [loss]
    train(choices, b, loss, fetches)
    return b, fetches, choices.between(1, 2)


def make_control(choices: Choices) -> Case:
    """A program with loops and branches, and its gradients or training."""
    return case_of("control", choices, _over_sequences if choices.chance(12) else _over_matrices)

"""Small programs with loops, branches and recurrences, which the tests of differentiation share.

Each takes a `Case` and returns a target and the inputs whose gradients are of interest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from differentiation import Case

import fluid
from fluid import layers
from fluid.ir.program import Variable

__all__ = ["BUILDERS", "Build", "branch", "integer", "repeat", "total"]

Build = Callable[[Case], tuple[Variable, list[Variable]]]

BUILDERS: dict[str, Build] = {}


def _builder(build: Build) -> Build:
    BUILDERS[build.__name__.lstrip("_")] = build
    return build


def integer(value: int) -> Variable:
    return layers.fill_constant([1], "int64", value)


def repeat(trips: int | Variable, body: Callable[[Variable], Any]) -> Variable:
    """Run `body`, called with the trip's number, so many times; the number of trips that were made."""
    i, n = integer(0), integer(trips) if isinstance(trips, int) else trips
    go_on = layers.less_than(i, n)
    loop = layers.While(go_on)
    with loop.block():
        body(i)
        layers.increment(i)
        layers.less_than(i, n, cond=go_on)
    return i


def branch(condition: Variable, body: Callable[[], Any]) -> None:
    """Run `body` if the condition holds: one conditional_block."""
    with layers.Switch() as switch, switch.case(condition):
        body()


def total(value: Variable) -> Variable:
    return layers.reduce_sum(value)


# ------------------------------------------------------------------------------------------------------------- loops
@_builder
def loop(case: Case) -> tuple[Variable, list[Variable]]:
    """A carried variable is overwritten in each trip."""
    x = case.data("x")
    h = x * 0.5
    repeat(3, lambda i: layers.assign(layers.tanh(h * x), h))
    return total(h), [x]


@_builder
def loop_without_trips(case: Case) -> tuple[Variable, list[Variable]]:
    x = case.data("x")
    h = layers.exp(x)
    repeat(0, lambda i: layers.assign(layers.tanh(h * x), h))
    return total(h), [x]


@_builder
def loop_that_overwrites_twice(case: Case) -> tuple[Variable, list[Variable]]:
    """Each trip overwrites a variable twice, once by an op that also reads it."""
    x = case.data("x")
    h = layers.tanh(x)

    def body(i: Variable) -> None:
        block = h.block.program.current_block()
        block.append_op("exp", {"X": h}, {"Out": h})
        block.append_op("elementwise_mul", {"X": h, "Y": x}, {"Out": h})
        layers.assign(layers.tanh(h) + h * h * 0.1, h)

    repeat(2, body)
    return total(h * x), [x]


@_builder
def loop_that_swaps(case: Case) -> tuple[Variable, list[Variable]]:
    x, y = case.data("x"), case.data("y")
    _, a, b = layers.while_loop(
        lambda i, a, b: layers.less_than(i, integer(3)),
        lambda i, a, b: [layers.increment(i, in_place=False), b, layers.tanh(a * b + x)],
        [integer(0), x * 1.0, layers.exp(y)],
    )
    return total(a * b), [x, y]


@_builder
def loop_that_forgets(case: Case) -> tuple[Variable, list[Variable]]:
    """A trip's results do not depend on the trip before: earlier trips have no gradient."""
    x = case.data("x")
    h = layers.exp(x)
    repeat(3, lambda i: layers.assign(layers.tanh(x * layers.cast(i, "float64")), h))
    return total(h * x), [x]


@_builder
def loop_decided_by_values(case: Case) -> tuple[Variable, list[Variable]]:
    """The values, not a counter, end it."""
    x = case.data("x")
    h = x * 1.0
    limit = layers.fill_constant([1], "float64", 20.0)
    go_on = layers.less_than(total(h), limit)
    loop = layers.While(go_on)
    with loop.block():
        layers.assign(h * 1.5 + layers.exp(x), h)
        layers.less_than(total(h), limit, cond=go_on)
    return total(h * h) * 0.01, [x]


@_builder
def loop_that_makes_its_result(case: Case) -> tuple[Variable, list[Variable]]:
    """The result has no value before the first trip."""
    x = case.data("x")
    h, made = layers.tanh(x), layers.create_tensor("float64", name="made")

    def body(i: Variable) -> None:
        layers.assign(layers.exp(h) * x, made)
        layers.assign(layers.tanh(made), h)

    repeat(2, body)
    return total(made * h), [x]


@_builder
def loop_that_grows(case: Case) -> tuple[Variable, list[Variable]]:
    """The carried variable has another shape in each trip, and each trip reads two of its shapes."""
    x = case.data("x", [1, 2])
    h = layers.tanh(x)

    def body(i: Variable) -> None:
        layers.assign(layers.concat([h, layers.exp(x)], axis=0), h)
        layers.assign(layers.elementwise_add(h, layers.reduce_mean(h, dim=1), axis=0) * 0.5, h)
        layers.assign(layers.tanh(h), h)

    repeat(2, body)
    return total(h * h), [x]


@_builder
def loop_over_rows(case: Case) -> tuple[Variable, list[Variable]]:
    """The batch is unknown while the program is built."""
    x = layers.data("x", [3], dtype="float64")
    x.stop_gradient = False
    case.values["x"] = case.rng.uniform(0.2, 0.9, (4, 3))
    w = case.parameter("w", [3])
    h = layers.tanh(layers.elementwise_mul(x, w))
    repeat(2, lambda i: layers.assign(layers.tanh(layers.elementwise_add(h * x, w)), h))
    return total(h), [x, w]


@_builder
def parameter_inside_a_loop(case: Case) -> tuple[Variable, list[Variable]]:
    x, w = case.data("x"), case.parameter("w")
    h = layers.tanh(x)
    repeat(3, lambda i: layers.assign(layers.tanh(h * w), h))
    return total(h), [w]


@_builder
def parameter_inside_and_outside_a_loop(case: Case) -> tuple[Variable, list[Variable]]:
    x, w = case.data("x"), case.parameter("w")
    h = layers.tanh(x * w)
    repeat(3, lambda i: layers.assign(layers.tanh(h * w + layers.exp(w)), h))
    return total(h * w), [w]


@_builder
def parameter_in_different_blocks(case: Case) -> tuple[Variable, list[Variable]]:
    """In block 0, in two loops and in a branch."""
    x, w = case.data("x"), case.parameter("w")
    h = layers.tanh(x * w)
    repeat(2, lambda i: layers.assign(layers.tanh(h * w), h))
    branch(layers.less_than(integer(0), integer(1)), lambda: layers.assign(layers.exp(h * w), h))
    repeat(1, lambda i: layers.assign(layers.sigmoid(h + w), h))
    return total(h * w), [w]


@_builder
def name_overwritten_after_a_loop(case: Case) -> tuple[Variable, list[Variable]]:
    """The loop's gradient reads a value of block 0 that is overwritten after the loop."""
    x = case.data("x")
    y, h = layers.tanh(x), layers.exp(x)
    repeat(2, lambda i: layers.assign(layers.tanh(h * y), h))
    layers.assign(x * 0.1, y)
    return total(h * y), [x]


@_builder
def loop_in_loop(case: Case) -> tuple[Variable, list[Variable]]:
    """The inner loop makes one trip more in each trip of the outer one, none in the first."""
    x = case.data("x")
    h = x * 0.5

    def body(i: Variable) -> None:
        u, j = layers.tanh(h), integer(0)
        go_on = layers.less_than(j, i)
        inner = layers.While(go_on)
        with inner.block():
            layers.assign(layers.tanh(u * x * h), u)
            layers.increment(j)
            layers.less_than(j, i, cond=go_on)
        layers.assign(layers.tanh(u + h), h)

    repeat(3, body)
    return total(h * h), [x]


@_builder
def loop_in_loop_on_one_variable(case: Case) -> tuple[Variable, list[Variable]]:
    """Both loops carry the same variable of block 0, and a parameter is read in both."""
    x, w = case.data("x"), case.parameter("w")
    h = x * 0.5

    def body(i: Variable) -> None:
        layers.assign(layers.exp(h * w), h)
        repeat(2, lambda j: layers.assign(layers.tanh(h * x * w), h))

    repeat(2, body)
    return total(h), [w, x]


# ------------------------------------------------------------------------------------------------------------- arrays
@_builder
def array_written_in_a_loop(case: Case) -> tuple[Variable, list[Variable]]:
    x = case.data("x")
    array = layers.array_write(layers.tanh(x), integer(0))

    def body(i: Variable) -> None:
        h = layers.array_read(array, i)
        layers.array_write(layers.tanh(h * x + h), layers.increment(i, in_place=False), array)

    repeat(3, body)
    return total(layers.array_read(array, integer(3)) * layers.array_read(array, integer(0))), [x]


@_builder
def array_read_in_a_loop(case: Case) -> tuple[Variable, list[Variable]]:
    x, y = case.data("x"), case.data("y")
    array = layers.array_write(layers.tanh(x), integer(0))
    layers.array_write(x * y, integer(1), array)
    h = layers.exp(y)
    repeat(2, lambda i: layers.assign(layers.array_read(array, i) * h, h))
    return total(h), [x, y]


@_builder
def array_entry_overwritten(case: Case) -> tuple[Variable, list[Variable]]:
    """In block 0, and read before and after; the position is a name that is overwritten too."""
    x, i = case.data("x"), integer(0)
    array = layers.array_write(layers.tanh(x), i)
    before = layers.array_read(array, i)
    layers.array_write(before * x, i, array)
    after = layers.array_read(array, i)
    layers.increment(i)
    layers.array_write(layers.exp(after), i, array)
    return total(before * after * layers.array_read(array, i)), [x]


@_builder
def array_entry_overwritten_in_a_loop(case: Case) -> tuple[Variable, list[Variable]]:
    """The same position in each trip, read twice."""
    x, zero = case.data("x"), integer(0)
    array = layers.array_write(layers.tanh(x), zero)

    def body(i: Variable) -> None:
        product = layers.array_read(array, zero) * layers.array_read(array, zero)
        layers.array_write(layers.exp(product * x) * 0.5, zero, array)

    repeat(2, body)
    return total(layers.array_read(array, zero)), [x]


@_builder
def array_that_only_the_loop_reads(case: Case) -> tuple[Variable, list[Variable]]:
    """Its gradient begins empty; the other array's has a gap."""
    x = case.data("x")
    array, kept = layers.array_write(layers.tanh(x), integer(0)), layers.create_array("float64")

    def body(i: Variable) -> None:
        h = layers.tanh(layers.array_read(array, i) * x)
        layers.array_write(h * h, i, kept)
        layers.array_write(h, layers.increment(i, in_place=False), array)

    repeat(3, body)
    return total(layers.array_read(kept, integer(2)) + layers.array_read(kept, integer(0))), [x]


@_builder
def array_entry_overwritten_in_another_shape(case: Case) -> tuple[Variable, list[Variable]]:
    x, y, zero = case.data("x"), case.data("y", [4]), integer(0)
    array = layers.array_write(layers.tanh(x), zero)
    before = total(layers.array_read(array, zero) * x)
    layers.array_write(layers.exp(y), zero, array)
    return before + total(layers.array_read(array, zero) * y), [x, y]


@_builder
def array_entries_that_nobody_reads(case: Case) -> tuple[Variable, list[Variable]]:
    """Entries 0 and 2 of 3 have no gradient; the length has none either."""
    x = case.data("x")
    array = layers.create_array("float64")
    repeat(3, lambda i: layers.array_write(layers.tanh(x * (layers.cast(i, "float64") + 1.0)), i, array))
    return total(layers.array_read(array, integer(1)) * layers.cast(layers.array_length(array), "float64")), [x]


# ------------------------------------------------------------------------------------------------------------ branches
def _branch(case: Case, holds: bool) -> tuple[Variable, list[Variable]]:
    x, w = case.data("x"), case.parameter("w")
    h = layers.tanh(x * w)
    branch(layers.less_than(integer(0), integer(int(holds))), lambda: layers.assign(layers.exp(h * h * w), h))
    return total(h * x), [x, w]


@_builder
def branch_taken(case: Case) -> tuple[Variable, list[Variable]]:
    return _branch(case, True)


@_builder
def branch_not_taken(case: Case) -> tuple[Variable, list[Variable]]:
    return _branch(case, False)


def _switch(case: Case, value: float) -> tuple[Variable, list[Variable]]:
    """Three ways to write one variable, which has no value before."""
    x = case.data("x")
    chosen, out = case.data("chosen", [1], [value]), layers.create_tensor("float64", name="out")
    with layers.Switch() as switch:
        with switch.case(chosen < 1.0):
            layers.assign(layers.tanh(x), out)
        with switch.case(chosen < 2.0):
            layers.assign(x * x * x, out)
        with switch.default():
            layers.assign(layers.exp(x), out)
    return total(out * x), [x]


@_builder
def switch_first(case: Case) -> tuple[Variable, list[Variable]]:
    return _switch(case, 0.5)


@_builder
def switch_second(case: Case) -> tuple[Variable, list[Variable]]:
    return _switch(case, 1.5)


@_builder
def switch_default(case: Case) -> tuple[Variable, list[Variable]]:
    return _switch(case, 2.5)


def _cond(case: Case, holds: bool) -> tuple[Variable, list[Variable]]:
    """Either side, which depend on different inputs in part."""
    x, y, w = case.data("x"), case.data("y"), case.parameter("w")
    h = layers.exp(x)
    a, b = layers.cond(
        layers.less_than(integer(0), integer(int(holds))),
        lambda: (layers.tanh(h * w * x), h * x),
        lambda: (y * y * w, layers.sigmoid(y)),
    )
    return total(a * b * x), [x, y, w]


@_builder
def cond_true(case: Case) -> tuple[Variable, list[Variable]]:
    return _cond(case, True)


@_builder
def cond_false(case: Case) -> tuple[Variable, list[Variable]]:
    return _cond(case, False)


@_builder
def cond_in_cond(case: Case) -> tuple[Variable, list[Variable]]:
    x = case.data("x")
    yes, no = layers.less_than(integer(0), integer(1)), layers.less_than(integer(1), integer(0))
    out = layers.cond(
        yes,
        lambda: layers.cond(no, lambda: layers.exp(x), lambda: layers.tanh(x * x)) * x,
        lambda: layers.sigmoid(x),
    )
    return total(out), [x]


@_builder
def chosen_by_number(case: Case) -> tuple[Variable, list[Variable]]:
    x = case.data("x")
    functions = {0: lambda: layers.exp(x), 1: lambda: layers.tanh(x * x), 5: lambda: x * x * x}
    one, five = (layers.switch_case(integer(number), functions) for number in (1, 5))
    return total(one * five), [x]


@_builder
def branch_in_loop(case: Case) -> tuple[Variable, list[Variable]]:
    """Taken in some trips only."""
    x = case.data("x")
    h, one = x * 0.5, integer(1)

    def body(i: Variable) -> None:
        u = layers.tanh(h)
        branch(layers.less_than(i, one), lambda: layers.assign(layers.tanh(layers.exp(x * h) * u), u))
        layers.assign(layers.tanh(u * u + h), h)

    repeat(3, body)
    return total(h * h), [x]


@_builder
def cond_in_while_loop(case: Case) -> tuple[Variable, list[Variable]]:
    x, w = case.data("x"), case.parameter("w")

    def body(i: Variable, h: Variable) -> list[Variable]:
        odd = layers.equal(i, integer(1))
        return [
            layers.increment(i, in_place=False),
            layers.cond(odd, lambda: layers.exp(h * w) * 0.3, lambda: layers.tanh(h * x)),
        ]

    _, h = layers.while_loop(lambda i, h: layers.less_than(i, integer(3)), body, [integer(0), layers.tanh(x * w)])
    return total(h), [x, w]


def _loop_in_branch(case: Case, holds: bool) -> tuple[Variable, list[Variable]]:
    x = case.data("x")
    h = layers.tanh(x)
    condition = layers.less_than(integer(0), integer(int(holds)))
    branch(condition, lambda: repeat(2, lambda i: layers.assign(layers.tanh(h * x + h), h)))
    return total(h * h), [x]


@_builder
def loop_in_branch(case: Case) -> tuple[Variable, list[Variable]]:
    return _loop_in_branch(case, True)


@_builder
def loop_in_branch_not_taken(case: Case) -> tuple[Variable, list[Variable]]:
    return _loop_in_branch(case, False)


@_builder
def while_loop_in_cond(case: Case) -> tuple[Variable, list[Variable]]:
    x = case.data("x")

    def looped() -> Variable:
        made = layers.while_loop(
            lambda i, h: layers.less_than(i, integer(2)),
            lambda i, h: [layers.increment(i, in_place=False), layers.tanh(h * x)],
            [integer(0), layers.exp(x)],
        )
        result: Variable = made[1]
        return result

    return total(layers.cond(layers.less_than(integer(0), integer(1)), looped, lambda: x * 2.0) * x), [x]


# ---------------------------------------------------------------------------------------------------------- recurrence
def _rnn(
    case: Case, reverse: bool = False, body: Callable[[Variable, Variable, Variable], Variable] | None = None
) -> tuple[Variable, list[Variable]]:
    sequence, first, w = case.data("sequence", [3, 2]), case.data("first", [2]), case.parameter("w", [2])
    x = layers.tanh(sequence)
    rnn = layers.StaticRNN()
    with rnn.step():
        step = rnn.step_input(x)
        memory = rnn.memory(init=first)
        after = layers.tanh(step * memory * w + memory) if body is None else body(step, memory, w)
        rnn.update_memory(memory, after)
        rnn.step_output(after)
    out = rnn()
    if reverse:
        for op in case.ops("recurrent"):
            op.set_attr("reverse", True)
    return total(out * out * sequence), [sequence, first, w]


@_builder
def rnn(case: Case) -> tuple[Variable, list[Variable]]:
    return _rnn(case)


@_builder
def rnn_reverse(case: Case) -> tuple[Variable, list[Variable]]:
    return _rnn(case, reverse=True)


@_builder
def rnn_with_a_loop(case: Case) -> tuple[Variable, list[Variable]]:
    def body(step: Variable, memory: Variable, w: Variable) -> Variable:
        h = step * memory
        repeat(2, lambda i: layers.assign(layers.tanh(h * w + memory), h))
        return h

    return _rnn(case, body=body)


@_builder
def rnn_with_a_cond(case: Case) -> tuple[Variable, list[Variable]]:
    def body(step: Variable, memory: Variable, w: Variable) -> Variable:
        small = layers.less_than(total(step), layers.fill_constant([1], "float64", 0.95))
        found: Variable = layers.cond(small, lambda: layers.tanh(memory * w * step), lambda: layers.exp(step * 0.3) * memory)
        return found

    return _rnn(case, body=body)


@_builder
def rnn_of_two_memories(case: Case) -> tuple[Variable, list[Variable]]:
    """Two sequences, two states that each step swaps, and two outputs, one of them unused."""
    x, y, first = case.data("x", [3, 2]), case.data("y", [3, 2]), case.data("first", [2])
    rnn = layers.StaticRNN()
    with rnn.step():
        a, b = rnn.step_input(x), rnn.step_input(y)
        m, n = rnn.memory(init=first), rnn.memory(shape=[2], batch_ref=b, init_value=0.5)
        p, q = layers.tanh(m * a + n), layers.sigmoid(n * b)
        rnn.update_memory(m, q)
        rnn.update_memory(n, p)
        rnn.output(p * b, layers.exp(q))
    used, _ = rnn()
    return total(used * used), [x, y, first]


@_builder
def rnn_whose_memories_swap(case: Case) -> tuple[Variable, list[Variable]]:
    """Each step swaps the two memories: the gradients of the states are swapped, too."""
    x, p, q = case.data("x", [3, 2]), case.data("p", [2]), case.data("q", [2])
    rnn = layers.StaticRNN()
    with rnn.step():
        a, m, n = rnn.step_input(x), rnn.memory(init=p), rnn.memory(init=q)
        rnn.update_memory(m, n)
        rnn.update_memory(n, m)
        rnn.step_output(layers.tanh(m * a * n) + m)
    return total(rnn()), [x, p, q]


@_builder
def rnn_whose_memory_is_not_used(case: Case) -> tuple[Variable, list[Variable]]:
    """The memory does not reach the output: it has no gradient."""
    x, first = case.data("x", [3, 2]), case.data("first", [2])
    rnn = layers.StaticRNN()
    with rnn.step():
        a = rnn.step_input(x)
        m = rnn.memory(init=first)
        rnn.update_memory(m, layers.tanh(m * a))
        rnn.step_output(layers.exp(a) * a)
    return total(rnn()), [x, first]


@_builder
def rnn_in_loop(case: Case) -> tuple[Variable, list[Variable]]:
    x, first = case.data("x", [3, 2]), case.data("first", [2])
    h = layers.tanh(x)

    def body(i: Variable) -> None:
        rnn = layers.StaticRNN()
        with rnn.step():
            a = rnn.step_input(h)
            m = rnn.memory(init=first)
            n = layers.tanh(m * a + a)
            rnn.update_memory(m, n)
            rnn.step_output(n)
        layers.assign(rnn(), h)

    repeat(2, body)
    return total(h * h), [x, first]


@_builder
def rnn_of_layers(case: Case) -> tuple[Variable, list[Variable]]:
    """As users write it: with `fc`, whose parameters live in block 0, and an unknown batch."""
    x = layers.data("x", [3, -1, 2], append_batch_size=False, dtype="float64")
    x.stop_gradient = False
    case.values["x"] = case.rng.uniform(0.2, 0.9, (3, 2, 2))
    rnn = layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(x)
        before = rnn.memory(shape=[-1, 3], batch_ref=x, init_value=0.1)
        after = layers.fc([word, before], 3, act="tanh")
        rnn.update_memory(before, after)
        rnn.step_output(after)
    parameters = fluid.default_main_program().all_parameters()
    return total(rnn()), [x, *parameters]


# ------------------------------------------------------------------------------- nested, and overwritten afterwards
def _overwritten(v: Variable, x: Variable) -> None:
    layers.assign(layers.scale(x, 3.0), v)


@_builder
def cond_in_cond_overwritten_later(case: Case) -> tuple[Variable, list[Variable]]:
    """The inner branches read a variable that is overwritten at the end."""
    x, yes = case.data("x"), layers.less_than(integer(0), integer(1))
    v = layers.scale(x, 2.0)
    out = layers.cond(yes, lambda: layers.cond(yes, lambda: layers.tanh(v), lambda: layers.sin(v)), lambda: layers.scale(v, 0.5))
    _overwritten(v, x)
    return total(out), [x]


@_builder
def loop_in_cond_overwritten_later(case: Case) -> tuple[Variable, list[Variable]]:
    x, yes = case.data("x"), layers.less_than(integer(0), integer(1))
    v = layers.scale(x, 2.0)

    def looped() -> Variable:
        h = layers.exp(v)
        repeat(2, lambda i: layers.assign(layers.tanh(h * v), h))
        return h

    out = layers.cond(yes, looped, lambda: layers.scale(v, 0.5))
    _overwritten(v, x)
    return total(out), [x]


@_builder
def loop_of_cond_in_cond(case: Case) -> tuple[Variable, list[Variable]]:
    """No op overwrites a variable explicitly: the loop overwrites its carried variables."""
    x, yes = case.data("x"), layers.less_than(integer(0), integer(1))

    def body(i: Variable, h: Variable) -> list[Variable]:
        odd = layers.equal(i, integer(1))
        inner = lambda: layers.cond(odd, lambda: layers.tanh(h * x), lambda: layers.sin(h))
        return [layers.increment(i, in_place=False), layers.cond(yes, inner, lambda: layers.scale(h, 0.5))]

    _, h = layers.while_loop(lambda i, h: layers.less_than(i, integer(3)), body, [integer(0), layers.exp(x)])
    return total(h), [x]


@_builder
def case_of_three_overwritten_later(case: Case) -> tuple[Variable, list[Variable]]:
    x = case.data("x")
    yes, no = layers.less_than(integer(0), integer(1)), layers.less_than(integer(1), integer(0))
    v = layers.scale(x, 2.0)
    out = layers.case([(no, lambda: layers.sin(v)), (yes, lambda: layers.tanh(v))], lambda: layers.exp(v))
    _overwritten(v, x)
    return total(out), [x]


@_builder
def switch_case_of_three_overwritten_later(case: Case) -> tuple[Variable, list[Variable]]:
    x = case.data("x")
    v = layers.scale(x, 2.0)
    out = layers.switch_case(integer(7), {1: lambda: layers.sin(v), 7: lambda: layers.tanh(v)}, default=lambda: layers.exp(v))
    _overwritten(v, x)
    return total(out), [x]


@_builder
def cond_in_cond_overwritten_in_the_other_branch(case: Case) -> tuple[Variable, list[Variable]]:
    """First in the branch that is not taken, then in place, then in a second cond."""
    x, yes = case.data("x"), layers.less_than(integer(0), integer(1))
    v = layers.scale(x, 2.0)

    def other() -> Variable:
        _overwritten(v, x)
        return layers.scale(v, 0.5)

    first = layers.cond(yes, lambda: layers.cond(yes, lambda: layers.tanh(v), lambda: layers.sin(v)), other)
    v.block.append_op("exp", {"X": v}, {"Out": v})
    second = layers.cond(yes, lambda: layers.cond(yes, lambda: layers.sin(v), other), other)
    layers.cond(yes, lambda: _overwritten(v, x))
    return total(first * second * v), [x]


@_builder
def cond_in_cond_incremented_later(case: Case) -> tuple[Variable, list[Variable]]:
    x, yes = case.data("x", [1]), layers.less_than(integer(0), integer(1))
    v = layers.scale(x, 2.0)
    out = layers.cond(yes, lambda: layers.cond(yes, lambda: layers.tanh(v), lambda: layers.sin(v)), lambda: layers.scale(v, 0.5))
    layers.increment(v)
    return total(out * v), [x]


@_builder
def rnn_in_loop_in_branch_overwritten_later(case: Case) -> tuple[Variable, list[Variable]]:
    """The sequence is overwritten; its slices have the same name."""
    x, yes = case.data("x", [3, 2]), layers.less_than(integer(0), integer(1))
    sequence, out = layers.tanh(x), layers.scale(x, 0.5)

    def body(i: Variable) -> None:
        rnn = layers.StaticRNN()
        first = layers.reduce_sum(sequence, dim=0)
        with rnn.step():
            step, before = rnn.step_input(sequence), rnn.memory(init=first)
            after = layers.tanh(step * before)
            rnn.update_memory(before, after)
            rnn.step_output(after)
        layers.assign(rnn() * sequence * out, out)

    branch(yes, lambda: repeat(2, body))
    _overwritten(sequence, x)
    return total(out * sequence), [x]

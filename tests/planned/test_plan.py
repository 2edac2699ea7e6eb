"""Plans: their text, the memory that values share, and equal bits with and without sharing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from checks import MORE, each
from hypothesis import given, settings
from hypothesis import strategies as st

import fluid
from fluid import layers
from fluid.errors import ExecutionError
from fluid.executor import CPUPlace, Executor, Scope
from fluid.executor.planned.bound_plan import BoundArenaPlan
from fluid.executor.planned.placement import _MOST_WORK, Tenant, live_bytes, padded, place
from fluid.executor.planned.plan import ArenaPlan, compile_plan
from fluid.ir.program import Program, Variable, program_guard
from fluid.values.cache import OP_LIMIT
from fluid.values.memory import empty_array
from fluid.values.spec import Spec
from fluid.values.types import as_dtype

Feed = dict[str, Any]


pytestmark = pytest.mark.numpy_alone


def main() -> Program:
    return fluid.default_main_program()


def data(name: str = "x", shape: Sequence[int] = (2, 3), dtype: str = "float32") -> Variable:
    var = fluid.data(name, list(shape), dtype)
    var.stop_gradient = False
    return var


def array(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("float32")


def planned(feed: Feed, fetch: Sequence[Any], scope: Scope | None = None, reuse: bool = True) -> ArenaPlan:
    specs = {name: Spec(value.shape, as_dtype(value.dtype)) for name, value in feed.items()}
    names = [item if isinstance(item, str) else item.name for item in fetch]
    return compile_plan(main(), specs, names, scope or fluid.global_scope(), reuse)


def step_by_step(plan: ArenaPlan) -> list[str]:
    """Types of the ops that are not bound to arrays beforehand."""
    return [instruction.op.type for instruction in plan.instructions if instruction.dynamic]


def assert_same_bits(found: Sequence[Any], expected: Sequence[Any], fetch: Sequence[Any]) -> None:
    for one, other, name in zip(found, expected, fetch, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype, name
        assert one.tobytes() == other.tobytes(), f"{name} differs\n{one}\n{other}"


def assert_runs_agree(feeds: Sequence[Feed], fetch: Sequence[Any], scope: Callable[[], Scope] = Scope) -> ArenaPlan:
    """Run the main program for each of `feeds` with and without bytes that are shared, and without a plan.

    Before each run the arena is filled with NaN: nothing may be read that the run has not written.
    """
    scopes = [scope(), scope(), scope()]
    reusing, separate = (
        BoundArenaPlan(planned(feeds[0], fetch, place, reuse), place, CPUPlace())
        for place, reuse in zip(scopes, (True, False), strict=False)
    )
    for feed in feeds:
        for bound in (reusing, separate):
            bound.arena.fill(255)
        expected = Executor().interpret(main(), feed, list(fetch), scopes[2])
        assert_same_bits(reusing.run(feed), expected, fetch)
        assert_same_bits(separate.run(feed), expected, fetch)
    for name in scopes[2].local_var_names():
        assert_same_bits([s.array(name) for s in scopes[:2]], [scopes[2].array(name)] * 2, [name] * 2)
    assert reusing.plan.live_bytes <= reusing.plan.arena_bytes <= separate.plan.arena_bytes
    return reusing.plan


def test_a_loop_may_meet_another_shape_on_every_trip() -> None:
    x = data("x", (1, 2))
    h = layers.assign(x)
    trips = 3 * OP_LIMIT
    loop(trips, lambda i: layers.assign(layers.tanh(layers.concat([h, x], axis=0)), h))
    feed, expected = array(1, 2), array(1, 2)
    for _ in range(trips):
        expected = np.tanh(np.concatenate([expected, feed]))
    assert_runs_agree([{"x": feed}] * 2, [h])
    assert np.array_equal(Executor().run(main(), {"x": feed}, [h])[0], expected)


def test_a_plan_does_not_run_on_arrays_of_another_shape() -> None:
    w = main().global_block().create_var(name="w", shape=[-1, 3], dtype="float32", persistable=True)
    y, scope = data() * w, fluid.global_scope()
    feed = {"x": array(2, 3)}
    scope.var("w").get_tensor().set(array(1, 3))
    bound = BoundArenaPlan(planned(feed, [y]), scope, CPUPlace())
    scope.var("w").get_tensor().set(array(2, 3))
    with pytest.raises(ExecutionError, match="w was given another shape or type"):
        bound.run(feed)


def test_memory_of_plans_begins_with_a_line_of_the_cache() -> None:
    """Vectors that lie across two lines load slower, and numpy's large arrays begin anywhere."""
    for dtype in ("uint8", "float32", "complex128"):
        for shape in ((), (3, 5), (1 << 20,)):
            array = empty_array(np, shape, dtype)
            assert (array.shape, array.dtype, array.ctypes.data % 64) == (shape, dtype, 0)
        assert empty_array(np, (3, 0), dtype).shape == (3, 0)


# ---------------------------------------------------------------------------------------------------------- placement
def assert_apart(tenants: Sequence[Tenant], size: int) -> None:
    """No two that are alive together have a byte in common, and all lie in the arena, aligned."""
    for one in tenants:
        assert one.offset % 64 == 0 and 0 <= one.offset <= one.offset + one.size <= size
    for number, one in enumerate(tenants):
        for other in tenants[:number]:
            together = one.start <= other.end and other.start <= one.end
            assert not together or one.offset + one.size <= other.offset or other.offset + other.size <= one.offset


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(0, 9) | st.integers(0, 2000), st.integers(-1, 30), st.integers(0, 30)), max_size=40))
def test_tenants_have_their_bytes_for_themselves(drawn: list[tuple[int, int, int]]) -> None:
    tenants = [Tenant(size, start, start + steps) for size, start, steps in drawn]
    size = place(tenants)
    assert_apart(tenants, size)
    least = live_bytes([Tenant(padded(tenant.size), tenant.start, tenant.end) for tenant in tenants])
    assert least <= size <= sum(padded(tenant.size) for tenant in tenants)
    steps = range(-1, 61)
    alive = (sum(tenant.size for tenant in tenants if tenant.start <= step <= tenant.end) for step in steps)
    assert live_bytes(tenants) == max(alive)


def test_tenants_of_one_size_need_no_more_than_is_alive() -> None:
    random = np.random.default_rng(0)
    tenants = [Tenant(128, int(start), int(start + steps)) for start, steps in random.integers(0, 100, (500, 2))]
    assert place(tenants) == live_bytes(tenants)


def test_tenants_of_very_many_sizes() -> None:
    """Their sizes are rounded, which costs a quarter at most."""
    random = np.random.default_rng(0)
    tenants = [Tenant(int(size), start, start + 3) for start, size in enumerate(random.integers(1, 10**6, 1500))]
    assert len({padded(tenant.size) for tenant in tenants}) * len(tenants) > _MOST_WORK
    size = place(tenants)
    assert_apart(tenants, size)
    assert size < 1.5 * live_bytes(tenants)


# -------------------------------------------------------------------------------------------------------------- shape
def test_a_plan_prints_itself() -> None:
    y = layers.fc(data("x", (-1, 3)), 2, act="tanh")
    counter = layers.create_global_var([1], 0.0, "float32", persistable=True, name="counter")
    layers.increment(counter)
    exe = Executor()
    exe.run(fluid.default_startup_program())
    text = str(exe.plan(main(), {"x": array(4, 3)}, [y]))
    assert text.splitlines() == [
        "plan: 4 ops, an arena of 128 B for 144 B of values, at most 80 B alive at once",
        "  feed x: float32[4, 3] -> 0",
        "     0  fc_0.tmp_0@64 = mul(x@0, fc_0.w_0@scope)",
        "     1  fc_0.tmp_1@64 = elementwise_add(fc_0.tmp_0@64, fc_0.b_0@scope)",
        "     2  fc_0.tmp_2@64 = tanh(fc_0.tmp_1@64)",
        "     3  counter@scope = increment(counter@scope)",
        "  fetch fc_0.tmp_2@64",
    ]


def test_memory_is_shared_over_a_deep_network() -> None:
    x = data("x", (-1, 16))
    for _ in range(20):
        x = layers.fc(x, 16, act="relu")
    exe = Executor()
    exe.run(fluid.default_startup_program())
    feed = {"x": array(8, 16)}
    plan, separate = planned(feed, [x]), planned(feed, [x], reuse=False)
    assert plan.arena_bytes == plan.live_bytes == 2 * 8 * 16 * 4  # what is read and what is written
    assert separate.arena_bytes == 61 * 8 * 16 * 4


def test_training_keeps_only_what_backward_needs() -> None:
    """Each layer of an MLP leaves one activation for the backward part, and that is all that grows with its depth."""
    sizes = []
    for depth in (10, 20, 40):
        with program_guard(Program(), Program()), fluid.unique_name.guard(), fluid.scope_guard(Scope()):
            x = data("x", (-1, 32))
            for _ in range(depth):
                x = layers.fc(x, 32, act="relu", bias_attr=False)
            loss = layers.mean(x)
            fluid.optimizer.SGD(0.1).minimize(loss)
            Executor().run(fluid.default_startup_program())
            plan = planned({"x": array(64, 32)}, [loss])
            assert step_by_step(plan) == []
            sizes.append(plan.arena_bytes)
    activation = 64 * 32 * 4
    assert (sizes[2] - sizes[1]) / 20 == pytest.approx(activation, rel=0.1)
    assert (sizes[1] - sizes[0]) / 10 == pytest.approx(activation, rel=0.1)


@each("batch", [5, 64, 200])
@each("checkpoints", [0, 8])
def test_memory_follows_what_is_alive(checkpoints: int, batch: int) -> None:
    """Activations die while gradients, of another size, come to stay until the optimizer reads them."""
    x, outputs = data("x", (-1, 32)), []
    h = x
    for _ in range(64):
        h = layers.fc(h, 32, act="relu")
        outputs.append(h)
    loss, optimizer = layers.mean(h), fluid.optimizer.Momentum(0.1, 0.9)
    if checkpoints:
        optimizer = fluid.optimizer.RecomputeOptimizer(optimizer)
        optimizer._set_checkpoints(outputs[7::8])
    optimizer.minimize(loss)
    Executor().run(fluid.default_startup_program())
    plan = planned({"x": array(batch, 32)}, [loss])
    assert plan.arena_bytes < 1.05 * plan.live_bytes


def test_values_read_for_their_shape_need_no_memory() -> None:
    """`sum_to` in the gradient of a broadcast reads of its `Like` the shape only."""
    x, y = data("x", (64, 64)), data("y", (64,))
    hidden = layers.exp(layers.elementwise_add(x, y))
    grads = fluid.gradients(layers.mean(hidden), [x, y])
    feed = {"x": array(64, 64), "y": array(64, seed=1)}
    plan = assert_runs_agree([feed], grads)
    assert plan.live_bytes < 3.2 * 64 * 64 * 4


def test_in_place_ops_take_over_what_dies() -> None:
    x = data()
    y = layers.relu(layers.scale(layers.tanh(x), 2.0))
    plan = assert_runs_agree([{"x": array(2, 3)}], [y])
    assert len(set(plan.offset_of.values())) == 2
    assert sum(len(instruction.shares) for instruction in plan.instructions) == 2


@each(
    "build",
    [
        lambda x, t: (layers.relu(t), t),  # read again later
        lambda x, t: (layers.elementwise_add(t, t), t),  # twice by one op
        lambda x, t: (layers.elementwise_add(t, layers.relu(t)), x),  # by another op in between
        lambda x, t: (layers.elementwise_mul(layers.relu(t), t), x),
        lambda x, t: (layers.elementwise_sub(t, layers.reduce_sum(t)), x),
        lambda x, t: (layers.sums([t, layers.relu(t), t]), x),
        lambda x, t: (layers.assign(t), layers.relu(t)),
        lambda x, t: (layers.reshape(t, [3, 2]), layers.relu(t)),
        lambda x, t: (layers.softmax(t), layers.softmax(t)),
        lambda x, t: (layers.increment(layers.reduce_sum(t), 1.0), t),
    ],
)
def test_in_place_ops_spare_what_is_still_needed(build: Any) -> None:
    x = data()
    fetch = build(x, layers.tanh(x))
    assert_runs_agree([{"x": array(2, 3)}, {"x": array(2, 3, seed=1)}], fetch)
    loss = layers.reduce_sum(fetch[0] if fetch[0].shape == (1,) else layers.reduce_sum(fetch[0] * fetch[0]))
    assert_runs_agree([{"x": array(2, 3)}], [*fetch, *fluid.gradients(loss, [x])])


def test_fed_values_are_not_overwritten_while_needed() -> None:
    x = data()
    y = layers.relu(x)
    assert_runs_agree([{"x": array(2, 3)}], [y, x])
    assert_runs_agree([{"x": array(2, 3)}], [layers.elementwise_add(y, x)])


def test_an_overwritten_name_is_another_value() -> None:
    x = data()
    old = layers.tanh(x)
    name = layers.assign(old)
    product = name * x
    layers.assign(product, name)
    layers.assign(layers.relu(name) + old, name)
    assert_runs_agree([{"x": array(2, 3)}], [name, old, product, x])


@each("op_type", ["swish", "mish", "gelu", "layer_norm", "cumsum", "transpose2"])
def test_persistable_outputs_that_their_op_reads_are_not_torn(op_type: str) -> None:
    """A kernel may write its output before it has done with its input, which then must not be one array."""
    block = main().global_block()
    w = block.create_var(name="w", shape=[3, 3], dtype="float32", persistable=True)
    others = {"transpose2": ["XShape"], "layer_norm": ["Mean", "Variance"]}.get(op_type, [])
    outputs = {"Y" if op_type == "layer_norm" else "Out": w, **{slot: block.create_var(name=slot) for slot in others}}
    block.append_op(op_type, {"X": w}, outputs, {"axis": [1, 0]} if op_type == "transpose2" else {})
    value = array(3, 3)

    def scope() -> Scope:
        made = Scope()
        made.var("w").get_tensor().set(value)
        return made

    assert_runs_agree([{}, {}], ["w"], scope)


def test_updated_inputs_under_another_name() -> None:
    """`ParamOut` takes over the array of `Param`; where a program gives it another name, both keep their values."""
    block = main().global_block()
    p, g, rate = data("p"), data("g"), data("rate", [1])
    new = block.create_var(name="new", shape=[2, 3], dtype="float32")
    block.append_op("sgd", {"Param": p, "Grad": g, "LearningRate": rate}, {"ParamOut": new})
    feed = {"p": array(2, 3), "g": array(2, 3, seed=1), "rate": np.array([0.5], "float32")}
    assert_runs_agree([feed, feed], ["new", "p"])
    found = Executor().run(main(), feed, ["new", "p"])
    np.testing.assert_allclose(found[0], feed["p"] - 0.5 * feed["g"], rtol=1e-6)
    assert np.array_equal(found[1], feed["p"])


def test_plans_for_shapes_of_size_zero() -> None:
    x = data("x", (-1, 3))
    y = layers.concat([layers.relu(x), layers.fc(x, 3, bias_attr=False)], axis=1)
    exe = Executor()
    exe.run(fluid.default_startup_program())
    assert exe.run(main(), {"x": np.zeros((0, 3), "float32")}, [y])[0].shape == (0, 6)


# ------------------------------------------------------------------------------------------------- loops and branches
def count_to(n: int) -> tuple[Variable, Variable, Variable]:
    """A counter, its end, and whether the counter is below it."""
    i = layers.fill_constant([1], "int64", 0)
    end = layers.fill_constant([1], "int64", n)
    return i, end, layers.less_than(i, end)


def loop(n: int, body: Callable[[Variable], Any]) -> None:
    i, end, condition = count_to(n)
    w = layers.While(condition)
    with w.block():
        body(i)
        layers.increment(i)
        layers.less_than(i, end, cond=condition)


def test_after_a_loop_of_static_shapes_everything_is_planned() -> None:
    x = data("x", (-1, 3))
    state = layers.assign(x)
    loop(3, lambda i: layers.assign(layers.tanh(state * 1.5 + x), state))
    y = layers.softmax(layers.relu(state))
    loss = layers.mean(y * x)
    (grad,) = fluid.gradients(loss, [x])
    feeds = [{"x": array(4, 3)}, {"x": array(4, 3, seed=1)}]
    plan = assert_runs_agree(feeds, [loss, grad, y])
    assert step_by_step(plan) == ["while", "while_grad"]
    lines = [line for line in str(plan).splitlines() if re.match(r" +\d+ ", line)]
    after = lines[next(i for i, line in enumerate(lines) if "= while(" in line) + 1 :]
    assert all("(step by step)" not in line and "@cell" not in line for line in after if "while_grad" not in line)
    assert re.search(f"{state.name}@[0-9]", str(plan))


def test_a_loop_that_grows_a_tensor() -> None:
    x = data("x", (-1, 3))
    rows = layers.assign(x)
    loop(3, lambda i: layers.assign(layers.concat([rows, x * 2.0], axis=0), rows))
    total = layers.reduce_sum(rows * rows)
    (grad,) = fluid.gradients(total, [x])
    feeds = [{"x": array(2, 3)}, {"x": array(2, 3, seed=1)}]
    plan = assert_runs_agree(feeds, [rows, total, grad])
    assert "while" in step_by_step(plan) and "elementwise_mul" in step_by_step(plan)
    value = feeds[0]["x"]
    np.testing.assert_allclose(
        Executor().run(main(), feeds[0], [rows])[0], np.concatenate([value, value * 2, value * 2, value * 2]), rtol=1e-6
    )


def test_a_loop_that_settles_only_after_some_trips() -> None:
    """Shapes depend on the previous trip: a, b, c = b, c, concat(c, c)."""
    x = data("x", (1, 3))
    a, b, c = layers.assign(x), layers.assign(x), layers.assign(x)

    def body(i: Variable) -> None:
        layers.assign(b, a)
        layers.assign(c, b)
        layers.assign(layers.concat([c, c], axis=0), c)

    loop(4, body)
    still = x + 1.0
    plan = assert_runs_agree([{"x": array(1, 3)}], [a, b, c, still])
    assert not any(var.name in name for var in (a, b, c) for name, version in plan.specs if version > 1)
    assert Executor().run(main(), {"x": array(1, 3)}, [a])[0].shape == (4, 3)


def test_outputs_that_a_loop_lists_and_does_not_write() -> None:
    x = data()
    other, state = layers.exp(x), layers.assign(x)
    loop(2, lambda i: layers.assign(layers.tanh(state), state))
    main().global_block().ops[-1].outputs["Out"].append(other.name)
    y = layers.relu(other) + state
    plan = assert_runs_agree([{"x": array(2, 3)}, {"x": array(2, 3, seed=1)}], [y, other])
    assert step_by_step(plan) == ["while"]


def test_a_loop_that_runs_zero_times() -> None:
    x = data()
    state = layers.assign(x)
    made = main().global_block().create_var(name="made", dtype="float32", shape=[2, 3])

    def body(i: Variable) -> None:
        layers.assign(layers.tanh(state), state)
        layers.assign(state, made)

    loop(0, body)
    y = state * 2.0
    plan = assert_runs_agree([{"x": array(2, 3)}], [y, *fluid.gradients(layers.mean(y), [x])])
    assert set(step_by_step(plan)) <= {"while", "while_grad"}
    with pytest.raises(ExecutionError, match="made"):
        Executor().run(main(), {"x": array(2, 3)}, ["made"])


def test_arrays_written_in_a_loop() -> None:
    x = data()
    entries = layers.create_array("float32")
    state = layers.assign(x)

    def body(i: Variable) -> None:
        layers.assign(layers.tanh(state) * 1.5, state)
        layers.array_write(state, i, entries)

    loop(3, body)
    two = layers.fill_constant([1], "int64", 2)
    read = layers.array_read(entries, two)
    y = layers.relu(read * x)
    z = layers.exp(y)
    (grad,) = fluid.gradients(layers.mean(z), [x])
    plan = assert_runs_agree([{"x": array(2, 3)}, {"x": array(2, 3, seed=1)}], [y, z, grad])
    assert "relu" not in step_by_step(plan) and "exp" not in step_by_step(plan)


def test_reading_arrays_in_a_loop_keeps_shapes_known() -> None:
    x = data("x", (4, 2, 3))
    steps = layers.create_array("float32")
    for i in range(4):
        layers.array_write(x[i], layers.fill_constant([1], "int64", i), steps)
    state = layers.fill_constant([2, 3], "float32", 0.0)
    state.stop_gradient = False
    loop(4, lambda i: layers.assign(layers.tanh(state + layers.array_read(steps, i)), state))
    y = layers.relu(state)
    plan = assert_runs_agree([{"x": array(4, 2, 3)}], [y, *fluid.gradients(layers.mean(y), [x])])
    assert re.search(f"{state.name}@[0-9]", str(plan)) and "relu" not in step_by_step(plan)


def test_loops_in_loops_and_branches() -> None:
    x = data()
    outer, inner = layers.assign(x), layers.assign(x)
    zero = layers.fill_constant([1], "float32", 0.0)

    def outer_body(i: Variable) -> None:
        loop(2, lambda j: layers.assign(layers.tanh(inner + outer), inner))
        chosen = layers.cond(layers.reduce_sum(inner) > zero, lambda: inner * 2.0, lambda: inner - 1.0)
        layers.assign(layers.tanh(chosen), outer)

    loop(3, outer_body)
    y = layers.exp(outer)
    (grad,) = fluid.gradients(layers.mean(y), [x])
    plan = assert_runs_agree([{"x": array(2, 3)}, {"x": -array(2, 3)}], [y, grad])
    assert step_by_step(plan) == ["while", "while_grad"]


@each("sign", [1, -1])
def test_after_a_branch_everything_is_planned(sign: int) -> None:
    x = data()
    positive = layers.reduce_sum(x) > layers.fill_constant([1], "float32", 0.0)
    found = layers.cond(positive, lambda: [x * 2.0, layers.tanh(x)], lambda: [x - 1.0, x * x])
    y = layers.exp(found[0]) + found[1]
    (grad,) = fluid.gradients(layers.mean(y), [x])
    value = sign * np.abs(array(2, 3))
    plan = assert_runs_agree([{"x": value}, {"x": -value}, {"x": value}], [y, grad])
    assert set(step_by_step(plan)) <= {
        "conditional_block",
        "conditional_block_grad",
        "select_input",
        "select_output",
    }
    expected = np.exp(value * 2) + np.tanh(value) if sign > 0 else np.exp(value - 1) + value * value
    np.testing.assert_allclose(Executor().run(main(), {"x": value}, [y])[0], expected, rtol=1e-6)


def test_a_branch_not_taken_leaves_what_was_there() -> None:
    x = data("x", (1,))
    out = layers.assign(x)
    switch = layers.Switch()
    with switch, switch.case(layers.less_than(x, layers.fill_constant([1], "float32", 0.0))):
        layers.assign(x * 10.0, out)
    y = out + 1.0
    plan = assert_runs_agree([{"x": array(1)}, {"x": -array(1)}, {"x": array(1)}, {"x": -array(1)}], [y, out])
    assert step_by_step(plan) == ["conditional_block"]


def test_branches_that_differ_in_shape_stay_open() -> None:
    x = data("x", (-1, 3))
    out = layers.assign(x)
    switch = layers.Switch()
    with switch, switch.case(layers.reduce_sum(x) < layers.fill_constant([1], "float32", 0.0)):
        layers.assign(layers.concat([x, x], axis=0), out)
    others = [layers.scale(x, 3.0) for _ in range(4)]  # one takes the bytes in which out began
    y = layers.relu(out)
    value = np.abs(array(2, 3))
    plan = assert_runs_agree([{"x": value}, {"x": -value}, {"x": value}], [y, *others])
    assert step_by_step(plan) == ["conditional_block", "relu"]


def static_rnn(x: Variable, memory_from: Variable | None = None) -> tuple[Variable, Variable]:
    rnn = layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(x)
        previous = rnn.memory(init=memory_from) if memory_from is not None else rnn.memory(shape=[-1, 3], batch_ref=word)
        hidden = layers.fc([word, previous], 3, act="tanh", bias_attr=False)
        rnn.update_memory(previous, hidden)
        rnn.step_output(hidden)
    return rnn(), layers.relu(rnn())


def test_after_recurrence_everything_is_planned() -> None:
    x = data("x", (5, 2, 3))
    out, y = static_rnn(x)
    loss = layers.mean(y * y)
    grads = [grad for _, grad in fluid.backward.append_backward(loss)]
    assert len(grads) == 2
    executor = Executor()
    values = Scope()
    executor.run(fluid.default_startup_program(), scope=values)

    def scope() -> Scope:
        made = Scope()
        for name in values.local_var_names():
            made.var(name).get_tensor().set(values.array(name))
        return made

    feeds = [{"x": array(5, 2, 3)}, {"x": array(5, 2, 3, seed=1)}]
    plan = assert_runs_agree(feeds, [out, loss, *grads], scope)
    assert step_by_step(plan) == ["recurrent", "recurrent_grad"]
    assert plan.specs[plan.fetch_values[0]].shape == (5, 2, 3)


def test_what_recurrence_read_may_be_overwritten_before_its_gradient() -> None:
    """The slices that the gradient reads again are not views of memory that holds something else by then."""
    x = data("x", (4, 2, 3))
    sequence, first = layers.assign(x), layers.tanh(x[0])
    rnn = layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(sequence)
        previous = rnn.memory(init=first)
        hidden = layers.tanh(word * previous)
        rnn.update_memory(previous, hidden)
        rnn.step_output(hidden)
    out = rnn()
    layers.assign(layers.exp(x) * 9.0, sequence)
    layers.assign(layers.exp(x[0]) * 9.0, first)
    loss = layers.mean(out * layers.relu(sequence)) + layers.mean(first)
    grads = fluid.gradients(loss, [x])
    assert_runs_agree([{"x": array(4, 2, 3)}], [loss, *grads])


# ------------------------------------------------------------------------------------------------------ random programs
class Drawn:
    """A program that is told by numbers what to do with which of the variables made so far."""

    def __init__(self, instructions: Sequence[tuple[int, int, int]], depth: int = 0) -> None:
        self.depth = depth
        self.inputs = [data("a"), data("b"), data("c", (3,)), data("d", (1,))]
        self.vars = list(self.inputs)
        self.build(instructions)

    def pick(self, choice: int, shape: Any = None) -> Variable:
        found = [var for var in self.vars if shape is None or var.shape == shape]
        return found[choice % len(found)]

    def build(self, instructions: Sequence[tuple[int, int, int]]) -> None:
        for position, (kind, first, second) in enumerate(instructions):
            x = self.pick(first)
            y = self.pick(second, x.shape)
            if kind == 0:
                made = (layers.relu, layers.tanh, layers.softmax, layers.square)[second % 4](x)
            elif kind == 1:
                made = BINARY[second % 4](x, y)
            elif kind == 2:
                made = layers.scale(x, 0.5, 0.25)
            elif kind == 3:
                made = layers.elementwise_add(self.pick(first, (2, 3)), self.pick(second, (3,)))
            elif kind == 4:
                made = layers.reduce_sum(x)
            elif kind == 5:
                made = layers.sums([x, y, self.pick(first + second, x.shape)])
            elif kind == 6 and y is not x and not any(y is var for var in self.inputs):
                layers.assign(layers.tanh(x), y)
                continue
            elif kind == 7:
                made = layers.transpose(layers.reshape(self.pick(first, (2, 3)), [3, 2]), [1, 0])
            elif kind == 8:
                made = layers.dropout(x, 0.3, dropout_implementation="upscale_in_train")
            elif kind == 9:
                made, other = layers.split(layers.concat([x, y], axis=0), 2, dim=0)
                self.vars.append(other)
            elif kind == 10 and self.depth < 2:
                made = self.loop(instructions[position + 1 :], x, second)
            elif kind == 11 and self.depth < 2:
                made = self.branch(instructions[position + 1 :], x, y)
            else:
                continue
            self.vars.append(made)
            if kind in (10, 11):
                return

    def inside(self, rest: Sequence[tuple[int, int, int]], shape: Any) -> Variable:
        known, self.vars, self.depth = self.vars, list(self.vars), self.depth + 1
        self.build(rest[:4])
        found = self.pick(-1, shape)
        self.vars, self.depth = known, self.depth - 1
        return found

    def loop(self, rest: Sequence[tuple[int, int, int]], x: Variable, second: int) -> Variable:
        state = layers.assign(x)
        self.vars.append(state)
        shape = x.shape
        loop(second % 4, lambda i: layers.assign(layers.tanh(self.inside(rest, shape) + state), state))
        self.build(rest[4:])
        return layers.square(state)

    def branch(self, rest: Sequence[tuple[int, int, int]], x: Variable, y: Variable) -> Variable:
        shape = x.shape
        condition = layers.reduce_sum(x) > layers.fill_constant([1], "float32", 0.25)
        found: Variable = layers.cond(condition, lambda: layers.relu(self.inside(rest, shape)), lambda: layers.tanh(y))
        return found


choice = st.integers(0, 11)
PLAIN = {"relu", "tanh", "softmax", "square", "elementwise_add", "elementwise_mul", "dropout"}
BINARY = (layers.elementwise_add, layers.elementwise_mul, layers.elementwise_sub, layers.elementwise_max)


@settings(max_examples=30 * MORE)
@given(st.lists(st.tuples(choice, choice, choice), min_size=1, max_size=14), st.integers(0, 2**20), st.booleans())
def test_sharing_memory_changes_no_bit(instructions: list[tuple[int, int, int]], chosen: int, differentiated: bool) -> None:
    with program_guard(Program(), Program()), fluid.unique_name.guard():
        main().random_seed = 5
        drawn = Drawn(instructions)
        fetch = [var for position, var in enumerate(drawn.vars) if chosen >> position & 1] or [drawn.vars[-1]]
        if differentiated:
            grads = fluid.gradients(drawn.vars[-1], drawn.inputs)
            fetch += [grad for grad in grads if grad is not None]
        feeds = [
            {var.name: array(*var.shape, seed=10 * number + position) for position, var in enumerate(drawn.inputs)}
            for number in range(2)
        ]
        plan = assert_runs_agree(feeds, fetch)
        assert not set(step_by_step(plan)) & PLAIN


def test_the_calls_of_a_plan_can_be_printed() -> None:
    x, y = data("x", (2, 3)), data("y", (2, 4))
    h = layers.relu(layers.matmul(x, y, transpose_x=True))
    loss = layers.reduce_sum(layers.stack([layers.concat([h, h], axis=0)] * 2, axis=0))
    plan = Executor().plan(main(), {"x": array(2, 3), "y": array(2, 4)}, [loss])
    text = plan.to_string(calls=True)
    calls = [line.strip() for line in text.splitlines() if line.startswith("          ")]
    assert [line for line in text.splitlines() if not line.startswith("          ")] == str(plan).splitlines()
    product, positive, joined, stacked = "matmul_0.tmp_0", "relu_0.tmp_0", "concat_0.tmp_0", "stack_0.tmp_0"
    assert calls == [
        f"dot(x.view([3, 2], strides=[1, 3]), y) -> {product}",
        f"maximum({product}, 0.0) -> {positive}",
        f"concatenate([{positive}, {positive}], 0) -> {joined}",
        f"copyto({joined}) -> {stacked}.view([6, 4])",
        f"copyto({joined}) -> {stacked}.view([6, 4], offset=24)",
        f"dot({stacked}.view([48]), float32[48]) -> reduce_sum_0.tmp_0.view([])",
    ]
    assert plan.to_string() == str(plan)


def test_ops_that_run_step_by_step_have_no_calls_to_print() -> None:
    h = layers.assign(data("x", (1, 2)))
    loop(3, lambda i: layers.assign(layers.tanh(h), h))
    plan = Executor().plan(main(), {"x": array(1, 2)}, [h])
    lines = plan.to_string(calls=True).splitlines()
    number = next(number for number, line in enumerate(lines) if "(step by step)" in line)
    assert lines[number + 1].startswith("  fetch")


def test_a_test_program_that_reads_a_gradient_says_so() -> None:
    """The gradient of the penalty is written out for training, with what dropout leaves there; in test mode it is another one."""
    x = fluid.data("x", [2, 3])
    x.stop_gradient = False
    y = fluid.layers.dropout(fluid.layers.fc(x, 3, act="tanh"), 0.5)
    (grad,) = fluid.gradients([fluid.layers.reduce_sum(y)], [x])
    penalty = fluid.layers.mean(fluid.layers.square(grad))
    early = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.SGD(0.1).minimize(penalty)
    test = fluid.default_main_program().clone(for_test=True)
    fluid.Executor().run(fluid.default_startup_program())
    assert fluid.Executor().run(early, {"x": np.ones((2, 3), "float32")}, [penalty])[0] > 0
    assert fluid.Executor().run(test, {"x": np.ones((2, 3), "float32")}, [y])[0].shape == (2, 3)
    with pytest.raises(
        fluid.errors.FeedError,
        match=r"x@GRAD .* has no value; clone\(for_test=True\) .* leave out gradients that train: clone before minimize",
    ):
        fluid.Executor().run(test, {"x": np.ones((2, 3), "float32")}, [penalty])

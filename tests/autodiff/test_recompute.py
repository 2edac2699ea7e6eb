"""Recomputation: gradients of the same bits with less kept, over straight programs, blocks, random ops and state."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from checks import MORE, each
from control_flow_programs import BUILDERS, branch, integer, repeat, total
from differentiation import Case, new_case
from hypothesis import given, settings
from hypothesis import strategies as st
from random_nests import Nest
from real_sizes.choices import Choices
from test_random_programs import Instruction, RandomProgram, block_programs, straight_programs

import fluid
from fluid import layers
from fluid.backward import append_backward
from fluid.errors import BackwardError, ProgramError
from fluid.executor import Executor, Scope
from fluid.executor.kernels.table import KERNELS
from fluid.formats.text import parse_program_text
from fluid.ir.copying import RANDOM_STREAM
from fluid.ir.program import OpRole, Parameter, Program, Variable
from fluid.opdef.registry import all_ops

pytestmark = pytest.mark.numpy_alone

COPY = "@RECOMPUTE"
X = np.random.default_rng(0).standard_normal((8, 6)).astype("float32")


def copies(program: Program) -> list[str]:
    """The types of the ops of block 0 that compute something again."""
    return [op.type for op in program.global_block().ops if any(COPY in name for name in op.output_arg_names)]


def candidates(program: Program) -> list[str]:
    """The outputs of the ops of block 0, in order."""
    return list(dict.fromkeys(name for op in program.global_block().ops for name in op.output_arg_names))


# ----------------------------------------------------------------------------------------------------------- networks
Net = Callable[[Variable], list[Variable]]
"""Makes a network; gives the values between its layers, the last of which is its result."""


def perceptron(x: Variable) -> list[Variable]:
    found = [x]
    for _ in range(6):
        found.append(layers.fc(found[-1], 6, act="relu"))
    return found[1:]


def with_dropout(x: Variable) -> list[Variable]:
    found = [x]
    for _ in range(6):
        found.append(layers.dropout(layers.fc(found[-1], 6, act="tanh"), 0.4))
    return found[1:]


def with_batch_norm(x: Variable) -> list[Variable]:
    found = [x]
    for _ in range(5):
        found.append(layers.batch_norm(layers.fc(found[-1], 6), act="relu"))
    return found[1:]


def with_frozen_batch_norm(x: Variable) -> list[Variable]:
    found = [x]
    for _ in range(4):
        found.append(layers.tanh(layers.batch_norm(layers.fc(found[-1], 6), use_global_stats=True)))
    return found[1:]


def with_shared_weights(x: Variable) -> list[Variable]:
    found = [x]
    for _ in range(6):
        found.append(layers.fc(found[-1], 6, act="sigmoid", param_attr="shared_w", bias_attr="shared_b"))
    return found[1:]


def with_skips(x: Variable) -> list[Variable]:
    found = [x, layers.fc(x, 6, act="relu")]
    for _ in range(5):
        found.append(layers.fc(found[-1], 6, act="relu") * found[-2] + found[1])
    return found[1:]


def with_blocks(x: Variable) -> list[Variable]:
    """Dropout inside a loop, inside a branch, and inside both; a recurrence over the rows."""
    found = [layers.fc(x, 6, act="tanh")]
    weight = layers.create_parameter([6, 6], "float32")
    for trips in (2, 3):
        h = layers.scale(found[-1], 1.5)
        repeat(trips, lambda i, h=h: layers.assign(layers.dropout(layers.tanh(layers.matmul(h, weight)), 0.3), h))
        found.append(h)
        positive = layers.less_than(layers.reduce_mean(h), layers.fill_constant([1], "float32", 10.0))
        found.append(layers.cond(positive, lambda h=h: layers.dropout(layers.square(h), 0.2), lambda h=h: layers.sin(h)))

        def trip(i: Variable, h: Variable, y: Variable) -> list[Variable]:
            kept = layers.cond(
                layers.less_than(i, integer(1)), lambda: layers.dropout(layers.tanh(h), 0.5), lambda: layers.dropout(h * y, 0.1)
            )
            return [layers.increment(i, in_place=False), kept, layers.tanh(y + kept)]

        found.append(layers.while_loop(lambda i, *_: layers.less_than(i, integer(2)), trip, [integer(0), found[-1], h])[2])
        rnn, mean = layers.StaticRNN(), layers.reduce_mean(found[-1], dim=0)
        with rnn.step():
            step, before = rnn.step_input(found[-1]), rnn.memory(init=mean)
            after = layers.tanh(layers.elementwise_add(layers.dropout(step, 0.4), before))
            rnn.update_memory(before, after)
            rnn.step_output(after)
        found.append(rnn())
    return [*found, layers.fc(found[-1], 3)]


def with_counters(x: Variable) -> list[Variable]:
    """State that is updated in place, kept from run to run, and read."""
    count = layers.create_global_var([1], 1.0, "float32", persistable=True, name="count")
    found = [layers.fc(x, 6)]
    for _ in range(4):
        layers.increment(count, 0.5)
        found.append(layers.tanh(layers.fc(found[-1], 6) * count))
    return found


NETS: dict[str, Net] = {
    net.__name__: net
    for net in (
        perceptron,
        with_dropout,
        with_batch_norm,
        with_frozen_batch_norm,
        with_shared_weights,
        with_skips,
        with_blocks,
        with_counters,
    )
}


class Made:
    """A network with its gradients, made with some checkpoints."""

    def __init__(self, net: Net, chosen: Sequence[int] = ()) -> None:
        self.program, self.startup = Program(), Program()
        self.program.random_seed = self.startup.random_seed = 5
        with fluid.program_guard(self.program, self.startup), fluid.unique_name.guard():
            values = net(layers.data("x", [8, 6], append_batch_size=False))
            loss = layers.mean(layers.square(values[-1]))
            pairs = append_backward(loss, checkpoints=[values[number % len(values)] for number in chosen])
        self.fetch = [loss.name, *(grad.name for _, grad in pairs)]

    def run(self, program: Program | None = None, interpret: bool = False) -> list[Any]:
        """The results of two runs, and the state after them."""
        scope, executor = Scope(), Executor()
        executor.run(self.startup, scope=scope)
        run = executor.interpret if interpret else executor.run
        found = [value for _ in range(2) for value in run(program or self.program, {"x": X}, self.fetch, scope=scope)]
        kept = [var.name for var in self.program.list_vars() if var.persistable]
        return found + [np.array(scope.find_var(name).get_tensor()) for name in kept]


def assert_same_bits(found: Sequence[Any], expected: Sequence[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype and np.array_equal(one, other)


@each("net", NETS)
def test_same_bits(net: str) -> None:
    check_bits(net, (1, 3))


@pytest.mark.slow
@each("chosen", [(3,), (0, 1, 2, 3, 4), (4, 2, 2)], ids=str)
@each("net", NETS)
def test_same_bits_for_other_cuts(net: str, chosen: Sequence[int]) -> None:
    check_bits(net, chosen)


def check_bits(net: str, chosen: Sequence[int]) -> None:
    """Losses, gradients and state of two runs, planned and not, from the wire and from text, are those without checkpoints."""
    plain, made = Made(NETS[net]), Made(NETS[net], chosen)
    expected = plain.run()
    assert any(np.any(value != 0) for value in expected[1 : len(plain.fetch)])
    assert not copies(plain.program)
    assert copies(made.program) or len(chosen) == 5  # cut everywhere, a network may leave nothing between the cuts
    made.program.verify()
    assert_same_bits(made.run(), expected)
    assert_same_bits(made.run(interpret=True), expected)
    parsed = Program.parse_from_string(made.program.serialize_to_string())
    parsed.verify()
    parsed.random_seed = 5  # which the wire format has no place for
    assert_same_bits(made.run(parsed), expected)
    assert_same_bits(made.run(parse_program_text(made.program.to_string())), expected)
    assert_same_bits(made.run(made.program.clone()), expected)


def test_a_copy_draws_what_the_original_drew() -> None:
    made = Made(with_dropout, (2,))
    drawn = {op.outputs["Mask"][0] for op in made.program.global_block().ops if op.type == "dropout"}
    values = dict(zip(sorted(drawn), Executor().run(made.program, {"x": X}, sorted(drawn), scope=started(made)), strict=True))
    again = [name for name in drawn if COPY in name]
    assert again and len({values[name].tobytes() for name in drawn - set(again)}) == 6  # others draw other numbers
    for name in again:
        assert np.array_equal(values[name], values[name.split("@")[0]])
    for op in made.program.global_block().ops:
        assert (RANDOM_STREAM in op.attrs) == (op.type == "dropout" and COPY in op.outputs["Out"][0])


def started(made: Made) -> Scope:
    scope = Scope()
    Executor().run(made.startup, scope=scope)
    return scope


def test_every_op_that_draws_is_known_to() -> None:
    """A copy of an op that draws without this being known would draw other numbers."""
    drawing = {name for name, known in KERNELS.items() if ("rng", "context", "rng") in known.parameters}
    assert drawing and drawing <= {name for name, op in all_ops().items() if op.is_random}


def test_random_ops_that_write_to_one_name_are_kept() -> None:
    """The second draw of a name follows the first; a copy of the second op alone would repeat the first."""

    def net(x: Variable) -> list[Variable]:
        found = [layers.fc(x, 6)]
        for _ in range(2):
            h = layers.tanh(found[-1])
            for _ in range(2):
                mask = h.block.create_var(name=fluid.unique_name.generate("mask"), dtype="uint8", stop_gradient=True)
                h.block.append_op("dropout", {"X": h}, {"Out": h, "Mask": mask}, {"dropout_prob": 0.4})
            found.append(layers.square(h))
        return [*found, layers.fc(found[-1], 6)]

    made = Made(net, (1, 2))
    assert_same_bits(made.run(), Made(net).run())
    assert "dropout" not in copies(made.program) and "tanh" in copies(made.program)


def test_what_acts_on_the_world_is_done_once(capfd: pytest.CaptureFixture[str]) -> None:
    def net(x: Variable) -> list[Variable]:
        found = [layers.fc(x, 6, act="relu")]
        for _ in range(2):
            h = layers.square(found[-1])
            shown = h.block.create_var(name=fluid.unique_name.generate("shown"))
            h.block.append_op("print", {"In": h}, {"Out": shown}, {"message": "seen", "print_phase": "FORWARD"})
            found.append(layers.tanh(layers.square(shown)))
        return [*found, layers.fc(found[-1], 6)]

    made = Made(net, (0, 2))
    assert "print" not in copies(made.program) and "square" in copies(made.program)
    expected = Made(net).run()
    printed = "".join(capfd.readouterr())
    assert_same_bits(made.run(), expected)
    assert "seen" in printed and "".join(capfd.readouterr()).count("seen") == printed.count("seen")


# ------------------------------------------------------------------------------------------------------- what is alive
def live_bytes(chosen: Sequence[int], depth: int = 64) -> int:
    program, startup = Program(), Program()
    with fluid.program_guard(program, startup), fluid.unique_name.guard():
        h = layers.data("x", [256, 8], append_batch_size=False)
        between = []
        for _ in range(depth):
            h = layers.fc(h, 8, act="relu")
            between.append(h)
        loss = layers.mean(h)
        opt = fluid.optimizer.RecomputeOptimizer(fluid.optimizer.SGD(0.1))
        opt._set_checkpoints([between[number] for number in chosen])
        opt.minimize(loss)
    scope, executor = Scope(), Executor()
    executor.run(startup, scope=scope)
    return executor.plan(program, {"x": np.zeros([256, 8], "float32")}, [loss], scope=scope).live_bytes


def test_less_is_alive() -> None:
    """64 layers with 8 checkpoints: about 8 + 8 outputs are alive instead of 64."""
    output = 256 * 8 * 4
    gradients = 64 * (8 * 8 + 8) * 4
    assert live_bytes([63]) > 64 * output
    assert live_bytes(range(7, 64, 8)) < 19 * output + gradients


def test_nothing_is_copied_that_no_gradient_reads() -> None:
    def net(x: Variable) -> list[Variable]:
        h = layers.fc(x, 6, act="relu")
        layers.exp(layers.square(h))
        plus = layers.elementwise_add(layers.scale(h, 2.0), layers.scale(h, 3.0))
        return [h, plus, layers.fc(plus, 6)]

    made = Made(net, (1,))
    assert copies(made.program) == ["mul", "elementwise_add", "relu"]


# --------------------------------------------------------------------------------------------------------- checkpoints
def simple() -> tuple[Variable, Variable, Variable]:
    h = layers.fc(layers.fc(layers.data("x", [6]), 6, act="tanh"), 6, act="tanh")
    other = layers.exp(h)
    return h, other, layers.mean(layers.fc(h, 1))


def test_checkpoints_that_cut_nothing() -> None:
    """The loss, data and parameters are kept anyway; a value off the loss's path cuts where it is made."""
    h, other, loss = simple()
    program = h.block.program
    append_backward(loss, checkpoints=[loss, "x", "fc_0.w_0", loss.name])
    assert not copies(program)
    append_backward(loss, checkpoints=[])
    assert not copies(program)
    append_backward(loss, checkpoints=[other, other.name])
    assert copies(program) == ["mul", "elementwise_add", "tanh"]


def test_duplicate_checkpoints_count_once() -> None:
    found = []
    for checkpoints in (["tanh"], ["tanh", "tanh"]):
        with fluid.program_guard(Program(), Program()), fluid.unique_name.guard():
            h, _, loss = simple()
            append_backward(loss, checkpoints=[h if name == "tanh" else name for name in checkpoints])
            found.append(h.block.program.to_string())
    assert found[0] == found[1]


def test_errors() -> None:
    h, other, loss = simple()
    after = layers.square(loss)
    before = loss.block.program.to_string()
    with pytest.raises(BackwardError, match=r"checkpoints names 'nobody', which is not a variable of the program"):
        append_backward(loss, checkpoints=[h, "nobody"])
    with pytest.raises(BackwardError, match=r"checkpoints should hold Variables and names, not a int"):
        append_backward(loss, checkpoints=[7])  # type: ignore[list-item]
    with pytest.raises(BackwardError, match=rf"the checkpoint {after.name} is computed after the loss"):
        append_backward(loss, checkpoints=[after])
    with fluid.program_guard(Program()):
        foreign = layers.data("y", [1])
    with pytest.raises(BackwardError, match="checkpoints holds y of another program"):
        append_backward(loss, checkpoints=[foreign])
    assert loss.block.program.to_string() == before
    inner: list[Variable] = []
    repeat(2, lambda i: inner.append(layers.square(other)))
    with pytest.raises(BackwardError, match=rf"the checkpoint {inner[0].name} lives in a sub-block"):
        append_backward(layers.mean(h), checkpoints=inner)


def test_optimizer() -> None:
    """The wrapper trains as the optimizer alone does, and says when it was not told where to cut."""
    losses = []
    for wrap in (False, True):
        program, startup = Program(), Program()
        program.random_seed = startup.random_seed = 2
        with fluid.program_guard(program, startup), fluid.unique_name.guard():
            values = with_dropout(layers.data("x", [8, 6], append_batch_size=False))
            loss = layers.mean(layers.square(values[-1]))
            inner = fluid.optimizer.Adam(0.05, regularization=fluid.regularizer.L2Decay(0.1))
            if wrap:
                recompute = fluid.optimizer.RecomputeOptimizer(inner)
                recompute._set_checkpoints([values[1], values[3]])
                ops, pairs = recompute.minimize(loss)
                assert len(ops) == len(pairs) == len(program.all_parameters())
                assert copies(program)
            else:
                inner.minimize(loss)
        scope, executor = Scope(), Executor()
        executor.run(startup, scope=scope)
        losses.append([executor.run(program, {"x": X}, [loss], scope=scope)[0].item() for _ in range(5)])
    assert losses[0] == losses[1] and len(set(losses[0])) == 5


def test_optimizer_in_steps_and_its_errors() -> None:
    h, _, loss = simple()
    recompute = fluid.optimizer.RecomputeOptimizer(fluid.optimizer.SGD(0.1))
    with pytest.raises(ProgramError, match=r"_set_checkpoints"):
        recompute.minimize(loss)
    with pytest.raises(ProgramError, match=r"RecomputeOptimizer cannot load"):
        recompute.load({})
    recompute._set_checkpoints([h])
    pairs = recompute.backward(loss)
    assert copies(loss.block.program)
    assert len(recompute.apply_gradients(pairs)) == len(pairs)
    for wrong in (h, 3, [3]):
        with pytest.raises(fluid.errors.FluidError, match=r"_set_checkpoints takes a list of Variables and names"):
            recompute._set_checkpoints(wrong)  # type: ignore[arg-type]


def test_copies_are_no_part_of_a_test_program() -> None:
    made = Made(with_blocks, (1, 4))
    plain = Made(with_blocks)
    assert made.program.clone(for_test=True).to_string() == plain.program.clone(for_test=True).to_string()
    for op in made.program.global_block().ops:
        if any(COPY in name for name in op.output_arg_names):
            assert op.role & OpRole.BACKWARD


# ------------------------------------------------------------------------------------------------------- small programs
@pytest.mark.slow
@each("name", BUILDERS)
def test_blocks(name: str) -> None:
    """Each of the small programs with blocks, cut everywhere and here and there: gradients have the same bits."""
    found: list[dict[str, Any]] = []
    count = 0
    for chosen in (None, lambda names: names, lambda names: names[1::3], lambda names: names[2::4]):
        with new_case(name) as case:
            target, inputs = BUILDERS[name](case)
            loss = total(target)
            names = [n for n in candidates(case.program) if case.program.global_block().vars[n].shape is not None]
            wanted = [var.name for var in inputs] + [p.name for p in case.program.all_parameters()]
            pairs = fluid.append_backward(loss, list(dict.fromkeys(wanted)), checkpoints=chosen(names) if chosen else None)
            values = case.run([loss, *(grad for _, grad in pairs)])
            found.append(values)
            count += bool(copies(case.program))
    for other in found[1:]:
        assert list(other) == list(found[0])
        assert_same_bits(list(other.values()), list(found[0].values()))


@pytest.mark.slow
@each("name", BUILDERS)
def test_second_order_through_blocks(name: str) -> None:
    """A program whose gradients recompute is differentiated once more; `Case` checks by differences."""
    with new_case(f"recompute_{name}") as case:
        target, inputs = BUILDERS[name](case)
        loss = total(target)
        pairs = case.append_backward(loss, [var.name for var in inputs], checkpoints=candidates(case.program)[1::3])
        grads = list(pairs.values())
        if not grads:
            return
        second = case.gradients(total(grads[0]), inputs)
        assert len(second) == len(inputs)


@pytest.mark.random
@each("seed", range(MORE))
def test_random_nests(seed: int) -> None:
    """Random nests of loops, branches, recurrences, arrays and overwritten names."""
    found = []
    for cut in (False, True):
        with new_case(f"nest_{seed}") as case:
            inputs = [case.data("x", [2, 2]), case.parameter("w", [2, 2])]
            loss = Nest(Choices(seed), inputs, 2).target()
            names = candidates(case.program)
            chosen = random.Random(seed + 100).sample(names, min(3, len(names)))
            pairs = case.append_backward(loss, [var.name for var in inputs], checkpoints=chosen if cut else None)
            found.append(case.run([loss, *pairs.values()]))
            if cut and seed % 3 == 0:
                case.gradients(total(pairs["x"]), inputs)
    assert_same_bits(list(found[1].values()), list(found[0].values()))


def differentiated(instructions: list[Instruction], chosen: Sequence[int]) -> tuple[RandomProgram, list[str]]:
    made = RandomProgram(instructions)
    with fluid.program_guard(made.program, Program()), fluid.unique_name.guard("loss_"):
        loss = layers.sum([layers.reduce_sum(target) for target in made.targets])
    names = candidates(made.program)[:-1]
    checkpoints = [names[number % len(names)] for number in chosen] if names else []
    pairs = append_backward(loss, [var.name for var in made.inputs], checkpoints=checkpoints)
    return made, [loss.name, *(grad.name for _, grad in pairs)]


@settings(max_examples=8 * MORE)
@given(straight_programs | block_programs, st.lists(st.integers(0, 40), min_size=1, max_size=4))
def test_random_programs(instructions: list[Instruction], chosen: list[int]) -> None:
    plain, fetch = differentiated(instructions, [])
    made, same = differentiated(instructions, chosen)
    assert fetch == same
    made.program.verify()
    expected = Executor().run(plain.program, plain.feed, fetch, scope=Scope())
    assert_same_bits(Executor().run(made.program, made.feed, fetch, scope=Scope()), expected)
    parsed = Program.parse_from_string(made.program.serialize_to_string())
    assert_same_bits(Executor().interpret(parsed, made.feed, fetch, scope=Scope()), expected)


@settings(max_examples=2 * MORE)
@given(straight_programs | block_programs, st.lists(st.integers(0, 40), min_size=1, max_size=4))
def test_second_order_of_random_programs(instructions: list[Instruction], chosen: list[int]) -> None:
    """Second derivatives are equal with and without recomputation."""
    found = []
    for checkpoints in ([], chosen):
        made, fetch = differentiated(instructions, checkpoints)
        block = made.program.global_block()
        first = [block.vars[name] for name in fetch[1:]]
        second = fluid.gradients(first, made.inputs) if first else []
        names = [None if grad is None else grad.name for grad in second]
        values = iter(Executor().run(made.program, made.feed, [name for name in names if name], scope=Scope()))
        found.append([np.zeros(1) if name is None else next(values) for name in names])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, np.broadcast_to(other, one.shape) if one.size > other.size else other, 1e-9, 1e-11)


# ---------------------------------------------------------------------------------------------------- calls that follow
def test_two_losses_each_with_checkpoints() -> None:
    """The second call copies ops for itself, and leaves the first call's alone."""
    found = []
    for cut in (False, True):
        with fluid.program_guard(Program(), Program()), fluid.unique_name.guard():
            program, startup = fluid.default_main_program(), fluid.default_startup_program()
            program.random_seed = startup.random_seed = 4
            values = with_blocks(layers.data("x", [8, 6], append_batch_size=False))
            losses = [layers.mean(values[-1]), layers.mean(layers.square(values[-2]))]
            names = [loss.name for loss in losses]
            for loss, chosen in zip(losses, ((1, 5), (2, 4, 7)), strict=True):
                pairs = append_backward(loss, checkpoints=[values[number] for number in chosen] if cut else None)
                names += [grad.name for _, grad in pairs]
            program.verify()
            scope = Scope()
            Executor().run(startup, scope=scope)
            found.append(Executor().run(program, {"x": X}, names, scope=scope))
    assert_same_bits(found[1], found[0])


def test_parameters_updated_before_the_second_loss() -> None:
    """An optimizer changes the parameters between the losses, so their former values are saved."""
    found = []
    for cut in (False, True):
        with fluid.program_guard(Program(), Program()), fluid.unique_name.guard():
            program, startup = fluid.default_main_program(), fluid.default_startup_program()
            program.random_seed = startup.random_seed = 4
            values = with_dropout(layers.data("x", [8, 6], append_batch_size=False))
            losses = [layers.mean(layers.square(values[-1])), layers.mean(values[-1])]
            for loss in losses:
                opt: Any = fluid.optimizer.Momentum(0.1, 0.9)
                if cut:
                    opt = fluid.optimizer.RecomputeOptimizer(opt)
                    opt._set_checkpoints([values[1], values[3]])
                opt.minimize(loss)
            scope = Scope()
            Executor().run(startup, scope=scope)
            runs = [Executor().run(program, {"x": X}, losses, scope=scope) for _ in range(3)]
            kept = [np.array(scope.find_var(p.name).get_tensor()) for p in program.all_parameters()]
            found.append([value for run in runs for value in run] + kept)
    assert_same_bits(found[1], found[0])


def test_no_gradient_and_wanted_values_reach_their_copies() -> None:
    """In the second order a name means its copies too, whether no gradient flows through it or its gradient is wanted."""

    def build(case: Case, checkpoints: bool) -> tuple[Variable, Variable, Variable]:
        x = case.data("x")
        h = layers.tanh(x * 0.7)
        k = layers.square(h)
        loss = total(layers.sin(k * k))
        pairs = append_backward(loss, ["x"], checkpoints=[k] if checkpoints else None)
        return x, h, pairs[0][1]

    found = []
    for cut in (False, True):
        with new_case("copies") as case:
            x, h, grad = build(case, cut)
            assert bool(copies(case.program)) is cut
            (through,) = fluid.gradients(total(grad), x, no_grad_set={h.name})
            (wanted,) = fluid.gradients(total(grad), h)
            assert through is None and wanted is not None
            found.append(case.run([wanted])[wanted.name])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12)


def test_the_gradient_of_what_is_overwritten_and_computed_again() -> None:
    """It is ambiguous which value is meant, also in the copies: an error instead of a wrong gradient."""
    with new_case("overwritten") as case:
        x = case.data("x")
        h = layers.tanh(x * 0.7)
        h.block.append_op("square", {"X": h}, {"Out": h})
        k = layers.sin(h)
        pairs = append_backward(total(k * k), ["x"], checkpoints=[k])
        with pytest.raises(BackwardError, match=rf"{h.name} is overwritten and computed again"):
            fluid.gradients(total(pairs[0][1]), h)
        (second,) = fluid.gradients(total(pairs[0][1]), x)
        assert second is not None


def test_branch_that_writes_a_parameterless_state() -> None:
    """A persistable variable that a branch updates is updated once."""

    def net(x: Variable) -> list[Variable]:
        seen = layers.create_global_var([1], 0.0, "float32", persistable=True, name="seen")
        found = [layers.fc(x, 6)]
        for _ in range(3):
            h = layers.tanh(found[-1])
            one = layers.fill_constant([1], "float32", 1.0)

            def count(h: Variable = h) -> None:
                layers.increment(seen)
                layers.assign(layers.square(h) * seen, h)

            branch(layers.less_than(seen, one * 3.5), count)
            found.append(h)
        return [*found, layers.fc(found[-1], 6)]

    assert_same_bits(Made(net, (1, 2, 3)).run(), Made(net).run())


def test_parameters_are_no_copies() -> None:
    made = Made(with_batch_norm, (1, 3))
    assert [
        type(var) for name, var in made.program.global_block().vars.items() if COPY in name and isinstance(var, Parameter)
    ] == []
    assert not any(var.persistable for name, var in made.program.global_block().vars.items() if COPY in name)

"""Sequences at an XLAPlace: their offsets are constants of compiled programs, for a limited number of batches."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import fluid
from fluid import layers
from fluid.executor.xla.lod import MOST_LODS, LodPolicy
from fluid.extend import ops
from fluid.ir.program import Program, Variable

pytestmark = [pytest.mark.numpy_alone, pytest.mark.usefixtures("quick_to_compile")]


# -------------------------------------------------------------------------------------------------------------- policy
def test_the_first_lods_are_compiled_and_later_ones_run_on_numpy() -> None:
    policy, program = LodPolicy(), Program()
    lods = [{"x": ((0, length),)} for length in range(1, MOST_LODS + 3)]
    assert all(policy.is_compiled(program, ["y"], lod) for lod in lods[:MOST_LODS])
    with pytest.warns(RuntimeWarning, match=rf"for {MOST_LODS} different lengths of the sequences in x; .*Bucket the sequences"):
        assert not policy.is_compiled(program, ["y"], lods[MOST_LODS])
    assert not policy.is_compiled(program, ["y"], lods[MOST_LODS + 1])  # and no warning again
    assert all(policy.is_compiled(program, ["y"], lod) for lod in lods[:MOST_LODS])
    assert policy.is_compiled(program, ["z"], lods[MOST_LODS])  # other fetches are another program


def test_a_lod_that_comes_again_takes_the_place_of_the_oldest() -> None:
    policy, program = LodPolicy(), Program()
    lods = [{"x": ((0, length),)} for length in range(1, MOST_LODS + 2)]
    for lod in lods[:MOST_LODS]:
        policy.is_compiled(program, [], lod)
    with pytest.warns(RuntimeWarning):
        assert not policy.is_compiled(program, [], lods[-1])
    assert policy.is_compiled(program, [], lods[-1])
    with pytest.warns(RuntimeWarning):
        assert not policy.is_compiled(program, [], lods[0])
    assert policy.is_compiled(program, [], lods[1])


def test_a_program_that_changed_is_another_one() -> None:
    policy, program = LodPolicy(), Program()
    for length in range(MOST_LODS):
        policy.is_compiled(program, [], {"x": ((0, length),)})
    program.random_seed = 3
    assert policy.is_compiled(program, [], {"x": ((0, 100),)})


# ------------------------------------------------------------------------------------------------------------ programs
def pooled(x: Variable) -> Variable:
    return layers.sequence_pool(layers.fc(x, 4), "max")


def attended(x: Variable) -> Variable:
    return layers.sequence_pool(x * layers.sequence_softmax(layers.fc(x, 1)), "sum")


def convolved(x: Variable) -> Variable:
    return layers.sequence_pool(layers.sequence_conv(x, 4, 3), "sqrt")


def lstm(x: Variable) -> Variable:
    hidden, _ = layers.dynamic_lstm(layers.fc(x, 16), 16, use_peepholes=False)
    return layers.sequence_last_step(hidden)


def gru(x: Variable) -> Variable:
    return layers.sequence_last_step(layers.dynamic_gru(layers.fc(x, 12), 4))


def recurrent(x: Variable) -> Variable:
    """Steps of batches that shrink: the loop is compiled trip by trip."""
    rnn = layers.DynamicRNN()
    with rnn.block():
        word, before = rnn.step_input(x), rnn.memory(shape=[4], value=0.1)
        after = layers.fc([word, before], 4, act="tanh")
        rnn.update_memory(before, after)
        rnn.output(after)
    return layers.sequence_last_step(rnn())


def train(place: Any, lengths: list[list[int]], values: dict[str, Any] | None = None) -> tuple[list[float], fluid.Scope]:
    """The losses of the default program, a batch for each list of lengths, from first values by name."""
    executor, scope = fluid.Executor(place), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    for name, value in (values or {}).items():
        scope.find_var(name).get_tensor().set(value, fluid.CPUPlace())
    rng, losses = np.random.default_rng(0), []
    for batch in lengths:
        rows = rng.standard_normal((sum(batch), 4), np.float32)
        tensor = fluid.create_lod_tensor(rows, [batch], fluid.CPUPlace())
        losses += [value.item() for value in executor.run(feed={"x": tensor}, fetch_list=["loss"], scope=scope)]
    return losses, scope


def build(net: Callable[[Variable], Variable]) -> dict[str, Any]:
    """A net that is trained, in the default program; the first values of its parameters."""
    x = layers.data("x", [4], lod_level=1)
    loss = layers.mean(layers.square(net(x)), name="loss")
    loss.block.append_op("assign", {"X": loss}, {"Out": loss.block.create_var(name="loss", dtype="float32")})
    fluid.optimizer.SGD(0.1).minimize(loss)
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    executor.run(fluid.default_startup_program(), scope=scope)
    return {name: scope.array(name).copy() for name in scope.local_var_names()}


@pytest.mark.parametrize(
    "net", [pooled, recurrent, *(pytest.param(net, marks=pytest.mark.slow) for net in (attended, convolved, lstm, gru))]
)
def test_training_is_that_of_numpy(net: Callable[[Variable], Variable]) -> None:
    values = build(net)
    batches = [[3, 1, 2], [3, 1, 2], [2, 4]]
    expected, at_host = train(fluid.CPUPlace(), batches, values)
    losses, scope = train(fluid.XLAPlace(), batches, values)
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-6)
    for name in values:
        np.testing.assert_allclose(scope.array(name), at_host.array(name), rtol=1e-4, atol=1e-5, err_msg=name)


def test_lengths_that_never_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the most, numpy goes on where XLA was, and says so once."""
    monkeypatch.setattr("fluid.executor.xla.lod.MOST_LODS", 2)
    values = build(pooled)
    batches = [[1, 1], [2, 1], [3, 1], [4, 1], [1, 1], [4, 1]]
    expected, _ = train(fluid.CPUPlace(), batches, values)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        losses, _ = train(fluid.XLAPlace(), batches, values)
    told = [warning for warning in caught if "Bucket" in str(warning.message)]
    assert len(told) == 1 and told[0].filename == __file__
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("net", [lstm, gru])
def test_a_program_does_not_grow_with_the_lengths(net: Callable[[Variable], Variable]) -> None:
    build(net)
    executor = fluid.Executor(fluid.XLAPlace())
    executor.run(fluid.default_startup_program())
    sizes = []
    for lengths in ([4, 1, 0, 3], [40, 1, 0, 3]):
        feed = {"x": fluid.create_lod_tensor(np.ones((sum(lengths), 4), "float32"), [lengths], fluid.CPUPlace())}
        sizes.append(executor.plan(None, feed, ["loss"]).lowered().as_text().count("\n"))
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize(
    "kind, is_reverse",
    [
        ("lstm", True),
        ("lstmp", False),
        ("gru", True),
        ("gru_origin", False),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [("lstm", False), ("lstmp", True), ("gru", False), ("gru_origin", True)]
        ),
    ],
)
def test_recurrences_over_uneven_sequences(kind: str, is_reverse: bool) -> None:
    """Values and gradients of two orders, with first states, peepholes, clips and empty sequences."""
    lengths, random = [2, 0, 5, 1, 0], np.random.default_rng(5)
    size, feed = 3, {}

    def data(name: str, *shape: int, lod_level: int = 0) -> Variable:
        feed[name] = random.standard_normal(shape) * 0.7
        var = fluid.data(name, [-1 if lod_level else shape[0], *shape[1:]], "float64", lod_level)
        var.stop_gradient = False
        return var

    gates = 3 if kind.startswith("gru") else 4
    x = data("x", sum(lengths), gates * size, lod_level=1)
    feed["x"] = fluid.create_lod_tensor(feed["x"], [lengths], fluid.CPUPlace())
    handed = 2 if kind == "lstmp" else size
    h0, weight = data("h0", len(lengths), handed), data("weight", handed, gates * size)
    attrs = {"is_reverse": is_reverse}
    if gates == 3:
        bias, others = data("bias", 1, 3 * size), []
        hidden = ops().gru(x, h0, weight, bias, origin_mode=kind == "gru_origin", **attrs)[-1]
        total = layers.reduce_sum(hidden * hidden)
    else:
        bias, others = data("bias", 1, 7 * size), [data("c0", len(lengths), size)]
        if kind == "lstmp":
            others.append(data("projection", size, handed))
            outs = ops().lstmp(x, h0, *others[:1], weight, others[1], bias, cell_clip=0.9, proj_clip=0.8, **attrs)
        else:
            outs = ops().lstm(x, h0, *others, weight, bias, **attrs)
        total = layers.reduce_sum(outs[0] * outs[0]) + layers.reduce_sum(layers.sin(outs[1]))
    inputs = [x, h0, weight, bias, *others]
    first = fluid.gradients(total, inputs)
    second = fluid.gradients([layers.reduce_sum(gradient * gradient) for gradient in first], inputs)
    wanted = [total, *first, *second]
    by_xla, at_host = (
        fluid.Executor(place).run(feed=feed, fetch_list=wanted, scope=fluid.Scope())
        for place in (fluid.XLAPlace(), fluid.CPUPlace())
    )
    for one, other in zip(by_xla, at_host, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)

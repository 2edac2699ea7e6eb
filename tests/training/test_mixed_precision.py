"""Programs and eager mode in mixed precision: which ops are cast, that it trains, overflows, and the factor of the loss."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each, fresh_programs

import fluid
from fluid import layers
from fluid.contrib.mixed_precision import AutoMixedPrecisionLists, decorate
from fluid.dataset import digits
from fluid.errors import FluidError
from fluid.values.types import VarType

HALVES = ("float16", "bfloat16")
STEPS = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
"""The relative error of rounding."""


def main() -> Any:
    return fluid.default_main_program()


def precision_of(op_type: str, program: Any = None, nth: int = 0) -> str:
    """The element type of an op's output."""
    ops = [op for block in (program or main()).blocks for op in block.ops if op.type == op_type]
    return ops[nth].block.var(ops[nth].output_arg_names[0]).dtype.text


@contextmanager
def anew() -> Iterator[None]:
    """Programs, names and a scope of their own, inside the ``with``."""
    with fresh_programs():
        main().random_seed = fluid.default_startup_program().random_seed = 7
        yield


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    with anew():
        yield


def net(x: Any) -> Any:
    hidden = layers.fc(x, 16, act="tanh")
    return layers.fc(hidden, 3, act="softmax")


def trained(half: str | None, steps: int = 5, optimizer: Any = None, feed: Any = None, **arguments: Any) -> tuple[list[Any], Any]:
    """Losses of some steps, and the optimizer."""
    x, y = fluid.data("x", [None, 8]), fluid.data("y", [None, 1], "int64")
    loss = layers.mean(layers.cross_entropy(net(x), y))
    optimizer = optimizer or fluid.optimizer.Adam(0.01)
    if half is not None:
        optimizer = decorate(optimizer, dtype=half, **arguments)
    optimizer.minimize(loss)
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    feed = feed or batch()
    return [exe.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(steps)], optimizer


def batch(rows: int = 32) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, 8)).astype("float32")
    return {"x": x, "y": (x[:, :1] > 0).astype("int64") + (x[:, 1:2] > 0)}


def state() -> dict[str, Any]:
    scope = fluid.global_scope()
    return {var.name: scope.array(var.name).copy() for var in main().list_vars() if var.persistable}


@each("half", HALVES)
def test_losses_are_those_of_float32_within_rounding(half: str) -> None:
    with anew():
        exact, _ = trained(None)
    with anew():
        mixed, _ = trained(half, init_loss_scaling=1024.0)
        kinds = {
            op_type: precision_of(op_type) for op_type in ("mul", "elementwise_add", "tanh", "softmax", "cross_entropy", "mean")
        }
        assert list(kinds.values()) == [half] * 3 + ["float32"] * 3, kinds
        assert {param.dtype.text for param in main().all_parameters()} == {"float32"}
    assert mixed != exact
    np.testing.assert_allclose(mixed, exact, rtol=4 * STEPS[half])


@each("half", HALVES)
def test_gradients_are_unscaled_and_float32(half: str) -> None:
    names = ["fc_0.w_0@GRAD", "fc_1.b_0@GRAD"]
    grads = {}
    for scale in (None, 1.0, 4096.0):
        with anew():
            trained(None if scale is None else half, 0, fluid.optimizer.SGD(0.0), init_loss_scaling=scale) if scale else trained(
                None, 0
            )
            grads[scale] = fluid.Executor().run(feed=batch(), fetch_list=names)
            assert all(grad.dtype == np.float32 for grad in grads[scale])
    for one, exact in zip(grads[1.0] + grads[4096.0], grads[None] * 2, strict=True):
        np.testing.assert_allclose(one, exact, atol=8 * STEPS[half] * abs(exact).max())


def test_small_gradients_survive_by_scaling_alone() -> None:
    """A gradient of 2e-8 is 0 in float16; multiplied by 2**15, it is not."""
    for scale, survives in ((1.0, False), (2.0**15, True)):
        with anew():
            x = fluid.data("x", [1, 1])
            loss = layers.reduce_sum(layers.matmul(x, layers.create_parameter([1, 1], "float32"))) * 2e-8
            _, pairs = decorate(fluid.optimizer.SGD(0.1), init_loss_scaling=scale).minimize(loss)
            exe = fluid.Executor()
            exe.run(fluid.default_startup_program())
            (grad,) = exe.run(feed={"x": np.ones((1, 1), "float32")}, fetch_list=[pairs[0][1]])
            assert (grad.item() == pytest.approx(2e-8, rel=1e-3)) is survives and (grad.item() == 0.0) is not survives


def test_a_step_that_overflows_changes_nothing_but_the_scale() -> None:
    """Parameters, moments and their powers stay bit by bit; the factor follows the steps as Paddle's op says."""
    _, optimizer = trained(
        "float16", 3, init_loss_scaling=1024.0, use_dynamic_loss_scaling=True, incr_every_n_steps=2, decr_every_n_nan_or_inf=2,
        incr_ratio=4.0, decr_ratio=0.5,
    )  # fmt: skip
    exe, scale = fluid.Executor(), optimizer.get_loss_scaling().name
    before = state()
    assert before[scale].item() == 4096.0 and before["good_steps"].item() == 1
    bad = batch()
    bad["x"][3, 2] = np.inf
    exe.run(feed=bad)
    after = state()
    assert sorted(name for name in before if before[name].tobytes() != after[name].tobytes()) == ["bad_steps", "good_steps"]
    scales = []
    for feed in (bad, bad, bad, batch(), batch()):
        exe.run(feed=feed)
        scales.append(fluid.global_scope().array(scale).item())
    assert scales == [2048.0, 2048.0, 1024.0, 1024.0, 4096.0]  # bad steps 2 and 4 shrink it, good step 2 makes it grow
    moved = state()
    assert any(not np.array_equal(after[name], moved[name]) for name in after if "moment" in name)
    assert all(np.isfinite(value).all() for value in moved.values())


def test_a_scale_that_does_not_change_skips_as_well_and_one_of_1_asks_for_nothing() -> None:
    trained("float16", 1, init_loss_scaling=8.0)
    types = [op.type for op in main().global_block().ops]
    assert "check_finite_and_unscale" in types and "update_loss_scaling" not in types
    before, bad = state(), batch()
    bad["x"][0] = np.nan
    fluid.Executor().run(feed=bad)
    assert all(before[name].tobytes() == value.tobytes() for name, value in state().items())
    with anew():
        trained("bfloat16", 1)
        assert not {"check_finite_and_unscale", "conditional_block"} & {op.type for op in main().global_block().ops}


@each("half", HALVES)
def test_clips_and_decay_act_on_unscaled_gradients(half: str) -> None:
    """Clipped to a norm of 0.1, and decayed: the same steps with any factor, and as in float32 within rounding."""
    weights = []
    for scale in (None, 1.0, 1024.0):
        with anew():
            clip = fluid.clip.GradientClipByGlobalNorm(0.1)
            optimizer = fluid.optimizer.Momentum(0.1, 0.9, regularization=fluid.regularizer.L2Decay(0.1), grad_clip=clip)
            trained(None if scale is None else half, 4, optimizer, **({} if scale is None else {"init_loss_scaling": scale}))
            weights.append(state()["fc_0.w_0"])
    assert np.array_equal(weights[1], weights[2]) or half == "float16"  # a power of two changes no bits of bfloat16
    for mixed in weights[1:]:
        np.testing.assert_allclose(mixed, weights[0], atol=10 * STEPS[half] * 0.1)


def test_lists_are_honoured() -> None:
    lists = AutoMixedPrecisionLists(custom_white_list=["softmax"], custom_black_list=["tanh", "mul"])
    with anew():
        trained("float16", 1, amp_lists=lists)
        assert [precision_of(name) for name in ("mul", "tanh", "softmax", "cross_entropy")] == [
            "float32",
            "float32",
            "float16",
            "float32",
        ]
    for arguments, words in (
        ((["relu"], ["relu"]), "relu cannot be in both lists"),
        ((["relo"],), "no op 'relo' is defined; did you mean relu"),
        (("relu",), "should be a list of op types"),
    ):
        with pytest.raises(FluidError, match=words):
            AutoMixedPrecisionLists(*arguments)


def test_ops_of_black_variables_compute_in_float32() -> None:
    x = fluid.data("x", [None, 4])
    first = layers.fc(x, 4, bias_attr=False)
    second = layers.fc(first, 4, bias_attr=False)
    third = layers.fc(second, 4, bias_attr=False)
    lists = AutoMixedPrecisionLists(custom_black_varnames={second.name})
    decorate(fluid.optimizer.SGD(0.1), amp_lists=lists).minimize(layers.mean(third * third))
    assert [var.dtype.text for var in (first, second, third)] == ["float16", "float32", "float32"]


def test_gray_ops_follow_what_ops_give_them() -> None:
    x = fluid.data("x", [None, 4])
    product = layers.fc(x, 4, bias_attr=False)
    residual = product + x  # what is fed follows
    other = product + layers.exp(x)  # computed in float32
    alone = layers.relu(layers.exp(x))
    decorate(fluid.optimizer.SGD(0.1)).minimize(layers.mean(residual) + layers.mean(other) + layers.mean(alone))
    dtypes = [main().global_block().var(var.name).dtype for var in (residual, other, alone)]
    assert dtypes == [VarType.FP16, VarType.FP32, VarType.FP32]
    casts = [op.input_arg_names[0] for op in main().global_block().ops if op.type == "cast" and not op.role]
    assert casts.count(x.name) == 1  # each value is cast once


def rnn_loss(x: Any) -> Any:
    rnn = layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(x)
        before = rnn.memory(shape=[-1, 6], batch_ref=word)
        now = layers.tanh(layers.fc(word, 6, bias_attr=False) + layers.fc(before, 6))
        rnn.update_memory(before, now)
        rnn.step_output(now)
    return layers.mean(layers.square(rnn()))


def while_loss(x: Any) -> Any:
    index, end = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
    total = layers.fc(x, 6, bias_attr=False)
    index.stop_gradient = True
    going = layers.less_than(index, end)
    loop = layers.While(going)
    with loop.block():
        layers.assign(layers.tanh(layers.fc(total, 6, param_attr="looped")), total)
        layers.increment(index, 1, in_place=True)
        layers.less_than(index, end, cond=going)
    return layers.mean(total)


def cond_loss(x: Any) -> Any:
    hidden = layers.fc(x, 6, act="tanh")
    chosen = layers.cond(layers.reduce_sum(x) > 0.0, lambda: layers.fc(hidden, 6), lambda: layers.fc(hidden, 6) * 2.0)
    return layers.mean(layers.square(chosen))


@each("build", [rnn_loss, while_loss, cond_loss])
def test_inside_of_loops_branches_and_recurrences(build: Any) -> None:
    shape = [3, 4, 5] if build is rnn_loss else [4, 5]
    feed = {"x": np.random.default_rng(1).standard_normal(shape).astype("float32")}
    for half in HALVES:
        losses = {}
        for kind in (None, half):
            with anew():
                loss = build(fluid.data("x", shape))
                optimizer: Any = fluid.optimizer.SGD(0.3)
                if kind is not None:
                    optimizer = decorate(optimizer, init_loss_scaling=64.0, use_dynamic_loss_scaling=True, dtype=kind)
                optimizer.minimize(loss)
                main().verify()
                inner = [op for block in main().blocks[1:] for op in block.ops if op.type == "mul"]
                assert all(op.block.var(op.output_arg_names[0]).dtype.text == (kind or "float32") for op in inner) and inner
                exe = fluid.Executor()
                exe.run(fluid.default_startup_program())
                losses[kind] = [exe.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(4)]
        assert losses[half] != losses[None]
        np.testing.assert_allclose(losses[half], losses[None], rtol=12 * STEPS[half], atol=STEPS[half])


@each("half", HALVES)
def test_checkpoints_and_programs_hold_the_scale(half: str, tmp_path: Path) -> None:
    arguments: Any = {"init_loss_scaling": 64.0, "use_dynamic_loss_scaling": True, "incr_every_n_steps": 2}
    with anew():
        _, optimizer = trained(half, 3, **arguments)
        text, scale = main().serialize_to_string(), optimizer.get_loss_scaling().name
        again = fluid.Program.parse_from_string(text)
        assert str(again) == str(main()).removeprefix("program {random_seed=7}\n")
        fluid.save_checkpoint(main(), tmp_path / "c", step=3)
        exe, feed = fluid.Executor(), batch()
        exe.run(feed=feed)
        expected = state()
    with fluid.scope_guard(fluid.Scope()):
        fluid.load_checkpoint(again, tmp_path / "c", exe)
        assert fluid.global_scope().array(scale).item() == 128.0
        exe.run(again, feed=feed)
        for name, value in expected.items():
            assert fluid.global_scope().array(name).tobytes() == value.tobytes(), name


@each("half", HALVES)
def test_recomputed_parts_and_saved_models_compute_the_same(half: str, tmp_path: Path) -> None:
    losses = []
    for recomputes in (False, True):
        with anew():
            x, y = fluid.data("x", [None, 8]), fluid.data("y", [None, 1], "int64")
            hidden = layers.fc(x, 16, act="tanh")
            probabilities = layers.fc(hidden, 3, act="softmax")
            loss = layers.mean(layers.cross_entropy(probabilities, y))
            optimizer: Any = fluid.optimizer.Adam(0.01)
            if recomputes:
                optimizer = fluid.optimizer.RecomputeOptimizer(optimizer)
                optimizer._set_checkpoints([hidden])
            decorate(optimizer, init_loss_scaling=64.0, dtype=half).minimize(loss)
            main().verify()
            exe, feed = fluid.Executor(), batch()
            exe.run(fluid.default_startup_program())
            losses.append([exe.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(3)])
            test = main().clone(for_test=True)
            assert not any(op.type == "conditional_block" for op in test.global_block().ops)
            (expected,) = exe.run(test, feed, [probabilities])
            fluid.save_model(tmp_path / "net.pdmodel", feeds=[x], fetches=[probabilities])
            model = fluid.load_model(tmp_path / "net.pdmodel", scope=fluid.Scope())
            assert precision_of("mul", model.program) == half
            (found,) = exe.run(model.program, {"x": feed["x"]}, model.fetches, scope=model.scope)
            assert np.array_equal(found, expected)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)


def test_digits_are_learned_as_well() -> None:
    (images, labels), unseen = digits.arrays("train"), digits.arrays("test")
    right = {}
    for half in (None, *HALVES):
        with anew():
            x, y = fluid.data("x", [None, 64]), fluid.data("y", [None, 1], "int64")
            scores = layers.fc(layers.fc(x, 64, act="relu"), 10)
            loss = layers.mean(layers.softmax_with_cross_entropy(scores, y))
            test = main().clone(for_test=True)
            optimizer: Any = fluid.optimizer.Adam(0.005)
            if half is not None:
                optimizer = decorate(optimizer, init_loss_scaling=2.0**15, use_dynamic_loss_scaling=True, dtype=half)
            optimizer.minimize(loss)
            exe = fluid.Executor()
            exe.run(fluid.default_startup_program())
            for _ in range(8):
                for start in range(0, len(images), 128):
                    part = slice(start, start + 128)
                    exe.run(feed={"x": images[part].reshape(-1, 64), "y": labels[part].reshape(-1, 1)})
            assert not any(op.type == "cast" for op in test.global_block().ops)
            (found,) = exe.run(test, {"x": unseen[0].reshape(-1, 64), "y": unseen[1].reshape(-1, 1)}, [scores.name])
            right[half] = (found.argmax(1) == unseen[1].reshape(-1)).mean()
    assert min(right.values()) > 0.93 and max(right.values()) - min(right.values()) < 0.02, right


def test_what_cannot_be_is_told() -> None:
    sgd = fluid.optimizer.SGD(0.1)
    for arguments, words in (
        ({"init_loss_scaling": 0.0}, "init_loss_scaling should be a finite number above 0, not 0.0"),
        ({"incr_ratio": 1.0}, "incr_ratio should be above 1"),
        ({"decr_ratio": 1.0}, "decr_ratio should be between 0 and 1"),
        ({"incr_every_n_steps": 0}, "incr_every_n_steps should be at least 1"),
        ({"dtype": "float64"}, "of float32 and float16, or of float32 and bfloat16, not of float64"),
        ({"amp_lists": ["mul"]}, "amp_lists should be an AutoMixedPrecisionLists"),
    ):
        with pytest.raises(FluidError, match=words):
            decorate(sgd, **arguments)
    with pytest.raises(FluidError, match="decorate takes an optimizer, such as"):
        decorate(0.1)
    loss = layers.mean(layers.fc(fluid.data("x", [None, 4]), 1))
    with pytest.raises(FluidError, match="call backward first"):
        decorate(sgd).apply_gradients([])
    fluid.optimizer.SGD(0.1).minimize(loss)
    with pytest.raises(
        FluidError, match=r"(?s)mul would be computed in another precision, but the program has gradients already.*made at"
    ):
        decorate(sgd).minimize(loss)
    with (
        fluid.dygraph.guard(),
        pytest.raises(FluidError, match="in eager mode call the layers in 'with"),
    ):
        decorate(sgd).minimize(fluid.dygraph.to_variable([1.0]))


def test_sparse_gradients_are_unscaled_and_checked() -> None:
    ids = fluid.data("ids", [None, 1], "int64")
    rows = layers.embedding(ids, [10, 4], is_sparse=True, param_attr="table")
    loss = layers.mean(layers.fc(layers.reshape(rows, [-1, 4]), 3))
    optimizer = decorate(fluid.optimizer.SGD(0.1), init_loss_scaling=128.0, use_dynamic_loss_scaling=True)
    optimizer.minimize(loss)
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    before = fluid.global_scope().array("table").copy()
    exe.run(feed={"ids": np.array([[1], [4]], "int64")})
    moved = np.abs(fluid.global_scope().array("table") - before).max(1) > 0
    assert np.flatnonzero(moved).tolist() == [1, 4]

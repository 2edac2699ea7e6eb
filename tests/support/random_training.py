"""Random training programs: sparse and dense tables, optimizers with clipping and decay, trained for some steps."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
from checks import fresh_programs

import fluid
from fluid import layers, optimizer
from fluid.ir.program import Program

__all__ = ["check_training"]

OPTIMIZERS: list[Callable[[dict[str, Any]], Any]] = [
    lambda more: optimizer.SGD(0.1, **more),
    lambda more: optimizer.Momentum(0.1, 0.9, use_nesterov=True, **more),
    lambda more: optimizer.Adagrad(0.1, **more),
    lambda more: optimizer.Adam(0.1, **more),
    lambda more: optimizer.Adamax(0.1, **more),
    lambda more: optimizer.NAdam(0.1, **more),
    lambda more: optimizer.RAdam(0.1, **more),
    lambda more: optimizer.Lion(0.1, **more),
    lambda more: optimizer.RMSProp(0.1, centered=True, **more),
    lambda more: optimizer.DecayedAdagrad(0.1, **more),
    lambda more: optimizer.Adadelta(0.1, epsilon=1e-3, rho=0.9, **more),
    lambda more: optimizer.Ftrl(0.1, **more),
]
ROWS, WIDTH, STEPS = 6, 3, 3


def build(seed: int, is_sparse: bool) -> tuple[Program, Program, Any]:
    """Main and startup program number `seed`, and the loss."""
    rng = random.Random(seed)
    with fresh_programs() as (main, startup):
        main.random_seed = startup.random_seed = seed + 1
        ids, x = fluid.data("ids", [4], "int64"), fluid.data("x", [4, WIDTH])
        hidden = fluid.embedding(ids, [ROWS, WIDTH], is_sparse=is_sparse)
        for _ in range(rng.randrange(1, 3)):
            act = rng.choice(["tanh", "sigmoid", "softplus", None])
            hidden = layers.fc(hidden + x if rng.random() < 0.5 else hidden, WIDTH, act=act)
        if rng.random() < 0.3:
            hidden = layers.layer_norm(hidden)
        if rng.random() < 0.3:
            hidden = layers.dropout(hidden, 0.3)
        loss = layers.mean(layers.square(hidden - x))
        more: dict[str, Any] = {}
        if rng.random() < 0.3:
            more["regularization"] = fluid.regularizer.L2Decay(0.01)
        if rng.random() < 0.3:
            limit = rng.choice([fluid.clip.GradientClipByValue(0.05), fluid.clip.GradientClipByGlobalNorm(0.1)])
            fluid.clip.set_gradient_clip(limit)
        rng.choice(OPTIMIZERS)(more).minimize(loss)
    return main, startup, loss


def train(programs: tuple[Program, Program, Any], seed: int, run: str) -> list[Any]:
    """Losses and persistable variables after some steps; `run` is the method of the executor."""
    main, startup, loss = programs
    rng, scope, executor = np.random.default_rng(seed), fluid.Scope(), fluid.Executor()
    executor.run(startup, scope=scope)
    losses = []
    for _ in range(STEPS):
        feed = {"ids": rng.integers(0, ROWS, 4), "x": rng.standard_normal((4, WIDTH)).astype("float32")}
        losses += getattr(executor, run)(main, feed, [loss.name], scope=scope)
    kept = [var.name for var in main.list_vars() if var.persistable]
    return [*losses, *(np.array(scope.array(name)) for name in kept if scope.array(name) is not None)]


def check_training(seed: int) -> None:
    """Planned, op by op and from the wire: the same bits. With a dense gradient of the table: the same numbers."""
    programs = main, startup, loss = build(seed, is_sparse=True)
    expected = train(programs, seed, "interpret")
    from_wire = Program.parse_from_string(main.serialize_to_string())
    from_wire.random_seed = main.random_seed
    for others in (programs, (from_wire, startup, loss)):
        for one, other in zip(train(others, seed, "run"), expected, strict=True):
            assert np.array_equal(one, other), "the plan trains to other numbers"
    if any(op.type == "ftrl" for op in main.global_block().ops):
        return  # it sets rows that never had a gradient to 0, where the gradient is dense
    for one, other in zip(train(build(seed, is_sparse=False), seed, "run"), expected, strict=True):
        np.testing.assert_allclose(one, other, 2e-4, 2e-5, err_msg="a dense gradient of the table trains to other numbers")

"""Random programs, by seed, that overwrite scope variables in ways that depend on order."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from checks import fresh_programs

import fluid
from fluid import layers
from fluid.ir.program import Variable

__all__ = ["check_updates"]

RUNS = 3


class Updates:
    """A program over matrices, vectors and a number; some of them are scope variables."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.size = self.rng.choice([1, 2, 3, 4, 5, 17])
        self.dtype = self.rng.choice(["float32", "float64"])
        self.main = fluid.default_main_program()
        self.block = self.main.global_block()
        n = self.size
        self.state = [self._var(f"s{i}", shape, True) for i, shape in enumerate([(n, n), (n, n), (n,), (1,)])]
        self.others = [fluid.data("x", [n, n], self.dtype)]
        kinds = [
            self.unary,
            self.binary,
            self.scaled,
            self.turned,
            self.product,
            self.reduced,
            self.sgd,
            self.momentum,
            self.loop,
        ]
        for _ in range(self.rng.randrange(2, 11)):
            self.rng.choice(kinds)()

    def _var(self, name: str, shape: tuple[int, ...], persistable: bool = False) -> Variable:
        return self.block.create_var(name=name, shape=shape, dtype=self.dtype, persistable=persistable)

    def matrix(self) -> Variable:
        return self.rng.choice([var for var in [*self.others, *self.state] if len(var.shape) == 2])

    def target(self, *shape: int) -> Variable:
        """The output variable of an op: new, or in the scope."""
        own = [var for var in self.state if tuple(var.shape) == shape]
        if own and self.rng.random() < 0.5:
            return self.rng.choice(own)
        self.others.append(self._var(f"t{len(self.others)}", shape))
        return self.others[-1]

    def op(self, op_type: str, inputs: dict[str, Any], outputs: dict[str, Any], **attrs: Any) -> None:
        self.block.append_op(op_type, inputs, outputs, attrs)

    def unary(self) -> None:
        op_type, x = self.rng.choice(["tanh", "square", "sigmoid", "assign"]), self.matrix()
        self.op(op_type, {"X": x}, {"Out": self.target(*x.shape)})

    def binary(self) -> None:
        op_type, x, y = self.rng.choice(["elementwise_add", "elementwise_sub", "elementwise_max"]), self.matrix(), self.matrix()
        self.op(op_type, {"X": x, "Y": y}, {"Out": self.target(*x.shape)})

    def scaled(self) -> None:
        x = self.rng.choice(self.state)
        out = x if self.rng.random() < 0.5 else self.target(*x.shape)
        self.op("scale", {"X": x}, {"Out": out}, scale=self.rng.choice([0.5, 1.0, -1.0]), bias=self.rng.choice([0.0, 0.25]))

    def turned(self) -> None:
        x, shape = self.matrix(), self._var(f"shape{len(self.block.ops)}", (0, self.size, self.size))
        self.op("transpose2", {"X": x}, {"Out": self.target(*x.shape), "XShape": shape}, axis=[1, 0])

    def product(self) -> None:
        x, y, out = self.matrix(), self.matrix(), self._var(f"product{len(self.block.ops)}", (self.size, self.size))
        self.op(
            "matmul", {"X": x, "Y": y}, {"Out": out}, transpose_X=self.rng.random() < 0.5, transpose_Y=self.rng.random() < 0.5
        )
        self.op("tanh", {"X": out}, {"Out": self.target(*out.shape)})

    def reduced(self) -> None:
        mean, matrix = self.target(self.size), self.matrix()
        self.op("reduce_mean", {"X": matrix}, {"Out": mean}, dim=[self.rng.randrange(2)])
        self.op("elementwise_mul", {"X": self.matrix(), "Y": mean}, {"Out": self.target(*matrix.shape)}, axis=0)

    def sgd(self) -> None:
        param = self.rng.choice(self.state[:2])
        self.op("sgd", {"Param": param, "Grad": self.matrix(), "LearningRate": self.state[3]}, {"ParamOut": param})

    def momentum(self) -> None:
        param, velocity = self.rng.sample(self.state[:2], 2)
        inputs = {"Param": param, "Velocity": velocity, "Grad": self.matrix(), "LearningRate": self.state[3]}
        nesterov = self.rng.random() < 0.5
        self.op("momentum", inputs, {"ParamOut": param, "VelocityOut": velocity}, mu=0.9, use_nesterov=nesterov)

    def loop(self) -> None:
        """Two trips that overwrite a variable of the scope."""
        count, trips = layers.fill_constant([1], "int32", 0), layers.fill_constant([1], "int32", 2)
        goes_on, x = layers.less_than(count, trips), self.rng.choice(self.state[:3])
        with layers.While(goes_on).block():
            self.main.current_block().append_op("scale", {"X": x}, {"Out": x}, {"scale": 0.5, "bias": 0.1})
            layers.increment(count, 1.0, in_place=True)
            layers.less_than(count, trips, cond=goes_on)


def check_updates(seed: int, monkeypatch: Any) -> None:
    """Compare fetches and scope after some runs of program number `seed` with numpy."""
    with fresh_programs() as (main, _):
        made = Updates(seed)
        computed = [var.name for var in [*made.others[1:], *made.state]]
        fetch = made.rng.sample(computed, made.rng.randrange(min(len(computed), 4) + 1))
        draws = np.random.default_rng(seed)
        state = {var.name: draws.uniform(-1, 1, var.shape).astype(made.dtype) for var in made.state}
        feeds = [draws.uniform(-1, 1, (made.size, made.size)).astype(made.dtype) for _ in range(RUNS)]
        results: list[list[Any]] = []
        for native in "01":
            monkeypatch.setenv("FLUID_NATIVE", native)
            executor, scope = fluid.Executor(), fluid.Scope()
            for name, value in state.items():
                scope.put(name, value.copy())
            values = [value for x in feeds for value in executor.run(main, {"x": x}, fetch, scope=scope)]
            results.append([*values, *(np.array(scope.array(name)) for name in state)])
    bound = 1e-4 if made.dtype == "float32" else 1e-9
    for expected, value in zip(*results, strict=True):
        np.testing.assert_allclose(value, expected, bound, bound * max(1.0, float(np.abs(expected).max())))

"""Random programs of few small extents: axes with different meanings have one length, and many values are one number.

Native code tells axes apart by their extents in places; single numbers are computed by each kernel that reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from beside_numpy import assert_alike
from checks import MORE

import fluid
from fluid import layers
from fluid.ir.program import Variable

EXTENTS = ((1,), (1, 2), (3,), (1, 3), (2, 3), (1, 2, 3), (2,))
MOST = 24
"""Elements of the largest results of joins and products."""


class SmallProgram:
    """A program drawn from a seed, which appends itself to the default programs when it is built."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._extents = EXTENTS[seed % len(EXTENTS)]
        shapes = [self._shape() for _ in range(3)]
        self.feed = {f"x{number}": self._random.standard_normal(shape).astype("float32") for number, shape in enumerate(shapes)}
        self._state = self._random.bit_generator.state

    def build(self) -> Sequence[Variable]:
        """Append the program, and return its results and gradients."""
        self._random.bit_generator.state = self._state
        inputs = [fluid.data(name, list(array.shape)) for name, array in self.feed.items()]
        for var in inputs:
            var.stop_gradient = False
        self._floats, self._truths, self._numbers = list(inputs), list[Variable](), list[Variable]()
        if self._random.random() < 0.3:
            self._add_loop()
        else:
            self._add_ops(4, 25)
        results = [self._any(self._floats[len(inputs) :] or [layers.tanh(inputs[0])]) for _ in range(2)]
        loss = layers.mean(layers.square(results[0])) + layers.mean(layers.square(results[1]))
        return [*results, loss, *(grad for grad in fluid.gradients([loss], inputs) if grad is not None)]

    def _add_loop(self) -> None:
        """A loop of up to three trips, each of random ops."""
        self._add_ops(0, 4)
        before, end = list(self._floats), layers.fill_constant([1], "int64", int(self._random.integers(4)))

        def step(index: Any, state: Any) -> Sequence[Any]:
            self._floats, self._truths, self._numbers = [*before, state, state], [], []
            self._add_ops(3, 15)
            return [index + 1, self._like(state)]

        first = [layers.fill_constant([1], "int64", 0), layers.assign(self._any(before))]
        last = layers.while_loop(lambda index, state: layers.less_than(index, end), step, first)[1]
        self._floats, self._truths, self._numbers = [*before, last], [], []
        self._add_ops(0, 4)

    def _add_ops(self, least: int, most: int) -> None:
        ops = [op for name, op in vars(type(self)).items() if name.startswith("op_")]
        for _ in range(self._random.integers(least, most + 1)):
            self._any(ops)(self, self._any(self._floats[-4:] if self._random.random() < 0.7 else self._floats))

    # -- draws
    def _any(self, choices: Sequence[Any]) -> Any:
        return choices[self._random.integers(len(choices))]

    def _shape(self) -> list[int]:
        return [int(self._any(self._extents)) for _ in range(self._random.integers(1, 4))]

    def _axis(self, x: Variable) -> int:
        return int(self._random.integers(len(x.shape)))

    def _like(self, x: Variable) -> Variable:
        return self._any([var for var in self._floats if tuple(var.shape) == tuple(x.shape)])  # type: ignore[no-any-return]

    # -- ops: each adds a result
    def op_arithmetic(self, x: Variable) -> None:
        ops: Sequence[Callable[..., Any]] = (layers.elementwise_add, layers.elementwise_mul, layers.elementwise_sub)
        self._floats.append(self._any(ops)(x, self._like(x)))

    def op_function(self, x: Variable) -> None:
        ops = (layers.tanh, layers.sigmoid, layers.square, layers.relu, layers.exp)
        self._floats.append(self._any(ops)(layers.clip(x, -2.0, 2.0)))

    def op_reduction(self, x: Variable) -> None:
        reduce = self._any((layers.reduce_sum, layers.reduce_max, layers.reduce_mean))
        self._floats.append(reduce(x, [self._axis(x)], keep_dim=len(x.shape) == 1 or bool(self._random.integers(2))))

    def op_softmax(self, x: Variable) -> None:
        self._floats.append(layers.softmax(x))

    def op_new_axis(self, x: Variable) -> None:
        if len(x.shape) < 4:
            self._floats.append(layers.unsqueeze(x, [int(self._random.integers(len(x.shape) + 1))]))

    def op_transpose(self, x: Variable) -> None:
        self._floats.append(layers.transpose(x, [int(axis) for axis in self._random.permutation(len(x.shape))]))

    def op_reshape(self, x: Variable) -> None:
        self._floats.append(layers.reshape(x, self._any(([-1], [-1, 1], [1, -1]))))

    def op_compare(self, x: Variable) -> None:
        self._truths.append(layers.greater_than(x, self._like(x)))
        self._floats.append(layers.where(self._truths[-1], x, self._like(x)))

    def op_choose(self, x: Variable) -> None:
        for truth in [truth for truth in self._truths if tuple(truth.shape) == tuple(x.shape)][-1:]:
            self._floats.append(layers.where(truth, x, self._like(x)))

    def op_position(self, x: Variable) -> None:
        self._numbers.append(layers.argmax(x, self._axis(x)))

    def op_one_hot(self, x: Variable) -> None:
        for numbers in self._numbers[-1:]:
            self._floats.append(fluid.one_hot(layers.reshape(numbers, [-1, 1]), 4))

    def op_gather(self, x: Variable) -> None:
        for numbers in self._numbers[-1:]:
            self._floats.append(layers.gather(x, layers.reshape(numbers, [-1]) * 0))

    def op_product(self, x: Variable) -> None:
        if np.prod(x.shape) <= MOST:
            rows = layers.reshape(x, [-1, int(x.shape[-1])])
            self._floats.append(layers.matmul(rows, rows, transpose_y=True))

    def op_join(self, x: Variable) -> None:
        if np.prod(x.shape) <= MOST:
            self._floats.append(layers.concat([x, self._like(x)], self._axis(x)))

    def op_slice(self, x: Variable) -> None:
        axis = self._axis(x)
        end = int(x.shape[axis])
        self._floats.append(layers.slice(x, [axis], [self._any((0, end - 1))], [end]))

    def op_by_mean(self, x: Variable) -> None:
        self._floats.append(layers.elementwise_mul(x, layers.reduce_mean(self._like(x))))

    def op_mask(self, x: Variable) -> None:
        for truth in self._truths[-1:]:
            self._floats.append(layers.cast(truth, "float32"))

    def op_repeat(self, x: Variable) -> None:
        if np.prod(x.shape) <= MOST // 3:
            self._floats.append(layers.expand(x, [int(self._any(self._extents)) for _ in x.shape]))


@pytest.mark.parametrize("first", [0, 10, 20, 30])
def test_small_programs(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings are errors in tests, so a kernel that cannot be written fails, too."""
    monkeypatch.setenv("FLUID_NATIVE_CACHE", "0")
    for seed in range(first * MORE, (first + 10) * MORE):
        program = SmallProgram(seed)
        assert_alike(program.build, program.feed, runs=1, tolerance=1e-4)

"""Images [N, C, H, W] stay as they are where no op of a program needs channels last: `lowering.Planes`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from beside_numpy import assert_alike, assert_layer_is_native
from checks import Checks, each, fresh_programs

import fluid
from fluid import layers
from fluid.executor.native import plan_graph
from fluid.executor.native.graph import ChannelsFirst
from fluid.ir.program import Variable

SHAPES = (
    (1, 1, 1, 8),
    (2, 3, 3, 3),
    (1, 8, 7, 1),
    (2, 65, 5, 13),
    (3, 7, 9, 9),
    (2, 5, 33, 31),
    (40, 17, 3, 3),
    (2, 5, 5, 205),
)


def pointwise(x: Variable) -> Variable:
    return layers.conv2d(layers.conv2d(x, 6, 1, act="tanh"), 9, 1)


def normalized(x: Variable) -> Variable:
    return layers.batch_norm(x * 2.0, act="tanh")


@each("layer", [pointwise, normalized, lambda x: layers.conv2d_transpose(x, 7, filter_size=1)])
def test_each_size(layer: Callable[[Variable], Variable]) -> None:
    with Checks() as checks:
        for shape in SHAPES:
            with checks(str(shape)):
                assert_layer_is_native(shape, layer, tolerance=1e-4)


@each("layer", [pointwise, normalized, lambda x: layers.conv2d(pointwise(x), 4, 3, padding=1)])
def test_batches_without_images_train(layer: Callable[[Variable], Variable]) -> None:
    def build() -> list[Variable]:
        loss = layers.reduce_sum(layer(fluid.data("x", [None, 3, 5, 7])))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
        return [loss]

    assert_alike(build, {"x": np.ones((0, 3, 5, 7), "float32")})


def is_moved(layer: Callable[[Variable], Variable], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the last graph of a layer has images with channels last."""
    graphs = []
    original = plan_graph.PlanGraph.__init__
    monkeypatch.setattr(plan_graph.PlanGraph, "__init__", lambda self, *args: (graphs.append(self), original(self, *args))[1])
    with fresh_programs() as (program, startup):
        out, scope, executor = layer(fluid.data("x", [2, 5, 9, 9])), fluid.Scope(), fluid.Executor()
        executor.run(startup, scope=scope)
        executor.run(program, {"x": np.ones((2, 5, 9, 9), "float32")}, [out], scope=scope)
    return any(isinstance(node, ChannelsFirst) for node in graphs[-1].nodes.values())


def test_only_other_windows_move_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    for layer in (pointwise, normalized, lambda x: normalized(pointwise(x))):
        assert not is_moved(layer, monkeypatch)
    for layer in (lambda x: layers.conv2d(pointwise(x), 4, 3), lambda x: layers.pool2d(pointwise(x), 3)):
        assert is_moved(layer, monkeypatch)

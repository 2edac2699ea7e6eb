"""Dimensions of 0 and 1, and rank 0: right results, or an error that names the fault; see `edge_shapes`."""

from __future__ import annotations

import random
import zlib
from typing import Any

import numpy as np
import pytest
from checks import MORE, Checks, each
from edge_shapes import all_edges, check_edge
from numeric import assert_gradients, dot, interpreter

import fluid
from fluid.errors import FluidError
from fluid.executor.executor import Executor
from fluid.executor.runtime.scope import Scope
from fluid.ir.program import Program

pytestmark = pytest.mark.numpy_alone

EACH = 3 if MORE > 1 else 1
"""How many of an op's edges are checked."""


@pytest.mark.random
def test_edges() -> None:
    """Some edges of each op, others for another op; ``python benchmarks/edge_shapes.py`` checks all."""
    taken = count = 0
    with Checks() as check:
        for op_type, edges in all_edges().items():
            for edge in random.Random(zlib.crc32(op_type.encode())).sample(edges, min(EACH, len(edges))):
                with check(op_type):
                    taken += check_edge(edge)
                    count += 1
    assert count / 5 < taken < count  # both ways are taken


class OpProgram:
    """A program of one op on arrays by slot; `counts` says how many variables each output slot has."""

    def __init__(self, op_type: str, arrays: dict[str, Any], attrs: dict[str, Any], counts: dict[str, int]) -> None:
        self.program = Program()
        block = self.program.global_block()
        self.feed = {slot: np.asarray(value, "float64") for slot, value in arrays.items()}
        inputs = {
            slot: block.create_var(name=slot, shape=a.shape, dtype="float64", is_data=True) for slot, a in self.feed.items()
        }
        outputs = {slot: [block.create_var(name=f"{slot}_{i}") for i in range(count)] for slot, count in counts.items()}
        block.append_op(op_type, inputs, outputs, attrs)
        self.inputs, self.outputs = list(inputs.values()), [var for variables in outputs.values() for var in variables]

    def check(self, expected: Any) -> None:
        """The first output, and gradients, against central differences unless it is infinite."""
        run = interpreter(self.program.clone(), self.outputs[:1])
        grads = fluid.gradients(self.outputs[:1], self.inputs)
        (value, *found) = Executor().run(self.program, self.feed, [self.outputs[0], *grads], scope=Scope())
        np.testing.assert_allclose(value, expected)
        assert value.shape == np.shape(expected)
        gradients = {var.name: gradient for var, gradient in zip(self.inputs, found, strict=True)}
        if np.isfinite(expected).all():
            assert_gradients(lambda feed: dot(run(feed)[0], 1.0), self.feed, gradients, np.random.default_rng(0))
        assert [gradient.shape for gradient in found] == [array.shape for array in self.feed.values()]


TWO, THREE = [[0.5], [2.0]], [[0.5, 2.0, -1.0]]


@each(
    "op_type, arrays, attrs, expected",
    [
        ("reduce_prod", {"X": np.ones((0, 3))}, {"dim": [0]}, np.ones(3)),
        ("reduce_prod", {"X": np.ones((0, 3))}, {"dim": [1]}, np.ones(0)),
        ("dot", {"X": TWO, "Y": [[3.0]]}, {}, [1.5, 6.0]),
        ("dot", {"X": [[3.0, 1.0, 2.0]], "Y": [*THREE, *THREE]}, {}, [1.5, 1.5]),
        ("softmax", {"X": np.ones((2, 0))}, {}, np.ones((2, 0))),
        ("log_softmax", {"X": np.ones((2, 0))}, {}, np.ones((2, 0))),
        ("logsumexp", {"X": np.ones((0, 3))}, {"axis": [0]}, np.full(3, -np.inf)),
        ("logsumexp", {"X": np.ones((0, 3))}, {"axis": [1]}, np.ones(0)),
        ("label_smooth", {"X": np.ones((2, 0))}, {"epsilon": 0.1}, np.ones((2, 0))),
        ("pad", {"X": 2.0}, {"paddings": []}, 2.0),
    ],
)
def test_right_answers(op_type: str, arrays: dict[str, Any], attrs: dict[str, Any], expected: Any) -> None:
    OpProgram(op_type, arrays, attrs, {"Out": 1}).check(expected)


@each("op_type", ["conv2d", "depthwise_conv2d", "conv3d", "conv2d_transpose", "conv3d_transpose"])
def test_no_images_train_a_filter(op_type: str) -> None:
    """A last batch may hold none of the images that a filter needs."""
    volume, window = ([0, 3, 5, 5, 5], [3, 3, 3]) if "3d" in op_type else ([0, 3, 5, 5], [3, 3])
    depthwise = op_type == "depthwise_conv2d"
    arrays = {"Input": np.ones(volume), "Filter": np.ones([3, 1 if depthwise else 3, *window])}
    extent = 7 if "transpose" in op_type else 3
    attrs = {"groups": 3} if depthwise else {}
    OpProgram(op_type, arrays, attrs, {"Output": 1}).check(np.ones([0, 3, *[extent] * len(window)]))


@each(
    "op_type, arrays, attrs, counts, says",
    [
        ("unbind", {"X": np.ones((3, 2))}, {"axis": 0}, {"Out": 1}, "unbind: Out should have 3 variables, .* not 1"),
        ("unstack", {"X": np.ones((3, 2))}, {"axis": 0, "num": 3}, {"Y": 2}, "unstack: Y should have 3 variables, .* not 2"),
        ("split", {"X": np.ones((4, 2))}, {"axis": 0, "num": 2}, {"Out": 1}, "split: Out should have 2 variables, .* not 1"),
        ("reduce_max", {"X": np.ones((0, 3))}, {"dim": [0]}, {"Out": 1}, r"reduce_max: X of shape \[0, 3\] has no elements over"),
        (
            "pool2d",
            {"X": np.ones((1, 1, 0, 2))},
            {"pooling_type": "max", "ksize": [1, 1]},
            {"Out": 1},
            "should have elements to pool",
        ),
    ],
)
def test_refusals(op_type: str, arrays: dict[str, Any], attrs: dict[str, Any], counts: dict[str, int], says: str) -> None:
    with pytest.raises(FluidError, match=says):
        OpProgram(op_type, arrays, attrs, counts)

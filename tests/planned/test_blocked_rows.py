"""Scores between two products, computed block by block: results and gradients are numpy's, and the plan is native."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from beside_numpy import Built
from checks import each, fresh_programs

import fluid
from fluid import layers
from fluid.executor.planned import blocked_rows
from fluid.ir.program import Variable

_Build = Callable[[], Sequence[Variable]]
_BLOCK_BYTES = 1 << 10


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let blocks be small, so that small scores have many."""
    monkeypatch.setattr(blocked_rows, "_FEWEST_BYTES", 1)
    monkeypatch.setattr(blocked_rows, "_FEWEST_MATRIX_BYTES", 1)
    monkeypatch.setattr(blocked_rows, "_BLOCK_BYTES", _BLOCK_BYTES)


def operand(name: str, shape: Sequence[int], dtype: str = "float32") -> Any:
    variable = fluid.data(name, shape, dtype)
    variable.stop_gradient = False
    return variable


def attention(
    stack: Sequence[int],
    rows: int,
    columns: int,
    width: int = 3,
    bias: Sequence[int] | None = None,
    dtype: str = "float32",
    shares_keys: bool = False,
    dropout: bool = False,
) -> list[Any]:
    """The result, and the operands with gradients."""
    q, v = operand("q", [*stack, rows, width], dtype), operand("v", [*stack, columns, width + 1], dtype)
    k = operand("k", [columns, width] if shares_keys else [*stack, columns, width], dtype)
    scores = layers.matmul(q, k, transpose_y=True, alpha=0.5)
    if bias is not None:
        scores = layers.elementwise_add(scores, fluid.data("bias", bias, dtype))
    weights = layers.softmax(layers.scale(scores, 0.7))
    return [layers.matmul(layers.dropout(weights, 0.3, is_test=True) if dropout else weights, v), q, k, v]


CASES: dict[str, Callable[[], list[Any]]] = {
    **{f"{rows} x {columns}": lambda rows=rows, columns=columns: attention([2, 3], rows, columns) for rows, columns in
       [(64, 64), (7, 100), (100, 7), (13, 65), (1, 300), (257, 1)]},
    "one matrix": lambda: attention([], 50, 40),
    "a stack of one": lambda: attention([1, 1], 50, 40),
    "many small matrices": lambda: attention([4, 5], 6, 7),
    "keys for all matrices": lambda: attention([2, 3], 40, 30, shares_keys=True),
    "a bias for each": lambda: attention([2, 3], 40, 30, bias=[2, 3, 40, 30]),
    "a bias of each row": lambda: attention([2, 3], 40, 30, bias=[2, 3, 40, 1]),
    "a mask of columns": lambda: attention([2, 3], 40, 30, bias=[2, 1, 1, 30]),
    "a mask for all": lambda: attention([2, 3], 40, 30, bias=[40, 30]),
    "a vector for all": lambda: attention([2, 3], 40, 30, bias=[30]),
    "a mask for all, with a stack": lambda: attention([2, 3], 40, 30, bias=[1, 1, 40, 30]),
    "dropout of a test": lambda: attention([2, 3], 40, 30, dropout=True),
    "float64": lambda: attention([2, 3], 40, 30, dtype="float64"),
}  # fmt: skip


def fed(variables: Sequence[Any]) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    block = fluid.default_main_program().global_block()
    return {name: rng.standard_normal(var.shape).astype(var.dtype.numpy) for name, var in block.vars.items() if var.is_data}


def has_blocks(built: Built, feed: dict[str, Any]) -> bool:
    plan = built.plan(feed)
    assert "on numpy: none" in plan
    return blocked_rows._PREFIX in plan


@each("case", CASES)
@each("trains", [True, False])
def test_results_and_gradients(case: str, trains: bool) -> None:
    def build() -> Sequence[Variable]:
        result, *operands = CASES[case]()
        return [result, *(fluid.gradients(layers.reduce_sum(layers.square(result)), operands) if trains else ())]

    with fresh_programs():
        built = Built(build)
        feed = fed([])
        built.assert_alike(feed)
        assert has_blocks(built, feed)
        one, two = (built.results(feed, native=True, threads=threads) for threads in (1, 2))
        assert all(one[name].tobytes() == two[name].tobytes() for name in one)


def other_reader() -> list[Variable]:
    q, k, v = (operand(name, [2, 40, 3]) for name in "qkv")
    weights = layers.softmax(layers.matmul(q, k, transpose_y=True))
    result = layers.matmul(weights, v)
    return [result + layers.reduce_max(weights), *fluid.gradients(result, [q, k, v])]


def scores_of_itself() -> list[Variable]:
    x = operand("x", [2, 40, 3])
    result = layers.matmul(layers.softmax(layers.matmul(x, x, transpose_y=True)), x)
    return [result, *fluid.gradients(result, [x])]


def gradient_of_the_bias() -> list[Variable]:
    q, k, v, bias = (operand(name, [2, 40, 40]) for name in ("q", "k", "v", "bias"))
    result = layers.matmul(layers.softmax(layers.matmul(q, k) + bias), v)
    return [result, *fluid.gradients(result, [q, k, v, bias])]


def fetched_weights() -> list[Variable]:
    q, k, v = (operand(name, [2, 40, 3]) for name in "qkv")
    weights = layers.softmax(layers.matmul(q, k, transpose_y=True))
    return [layers.matmul(weights, v), weights]


def fetched_mask() -> list[Variable]:
    result, *_ = attention([2, 3], 40, 30, dropout=True)
    ops = fluid.default_main_program().global_block().ops
    (mask,) = (op.output("Mask")[0] for op in ops if op.type == "dropout")
    return [result, fluid.default_main_program().global_block().var(mask)]


def second_order() -> list[Variable]:
    result, q, k, v = attention([2], 40, 30)
    (first,) = fluid.gradients(layers.reduce_sum(layers.square(result)), [q])
    return [result, *fluid.gradients(layers.reduce_sum(layers.square(first)), [q, k, v])]


def softmax_of_rows() -> list[Variable]:
    q, k, v = (operand(name, [2, 40, 40]) for name in "qkv")
    return [layers.matmul(layers.softmax(layers.matmul(q, k), axis=1), v)]


def overwritten_keys() -> list[Variable]:
    q, k, v = (operand(name, [2, 40, 3]) for name in "qkv")
    keys = layers.scale(k, 1.0)
    weights = layers.softmax(layers.matmul(q, keys, transpose_y=True))
    layers.assign(k * 2.0, keys)
    return [layers.matmul(weights, v), keys + 0.0]


@each("build", [other_reader, scores_of_itself, fetched_mask, gradient_of_the_bias, fetched_weights, second_order,
                softmax_of_rows, overwritten_keys])  # fmt: skip
def test_scores_that_are_read_otherwise_stay(build: _Build) -> None:
    with fresh_programs():
        built = Built(build)
        feed = fed([])
        built.assert_alike(feed)
        assert not has_blocks(built, feed)


def test_chains_that_share_a_product() -> None:
    def build() -> Sequence[Variable]:
        q, k, v, w = (operand(name, [2, 40, 40]) for name in "qkvw")
        middle = layers.matmul(layers.softmax(layers.matmul(q, k)), v)
        result = layers.matmul(layers.softmax(middle), w)
        return [result, *fluid.gradients(layers.reduce_sum(layers.square(result)), [q, k, v, w])]

    with fresh_programs():
        built = Built(build)
        feed = fed([])
        built.assert_alike(feed)
        assert has_blocks(built, feed)


def test_infinite_masks_hide_columns() -> None:
    """With a mask of minus infinity, as attention over padded sequences has."""

    def build() -> Sequence[Variable]:
        result, *operands = attention([2, 3], 40, 30, bias=[2, 1, 1, 30])
        return [result, *fluid.gradients(layers.reduce_sum(layers.square(result)), operands)]

    with fresh_programs():
        built = Built(build)
        feed = fed([])
        feed["bias"] = np.where(np.arange(30) < 17, 0.0, -np.inf).astype("float32") + np.zeros((2, 1, 1, 1), "float32")
        built.assert_alike(feed)


def test_a_net_trains_as_on_numpy() -> None:
    """Two layers of attention, whose weights are updated."""

    def build() -> Sequence[Variable]:
        h = fluid.data("x", [2, 40, 8])
        for _ in range(2):
            q, k, v = (layers.transpose(layers.reshape(layers.fc(h, 8, 2), [2, 40, 2, 4]), [0, 2, 1, 3]) for _ in range(3))
            a = layers.matmul(layers.softmax(layers.matmul(q, k, transpose_y=True, alpha=0.5)), v)
            h = h + layers.fc(layers.reshape(layers.transpose(a, [0, 2, 1, 3]), [2, 40, 8]), 8, 2)
        loss = layers.reduce_mean(layers.square(h))
        fluid.optimizer.SGD(0.1).minimize(loss)
        return [loss]

    with fresh_programs():
        built = Built(build)
        feed = fed([])
        built.assert_alike(feed)
        assert has_blocks(built, feed)

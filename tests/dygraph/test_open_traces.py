"""Traces for any number of rows: open sizes, sizes that functions read, and why a size had to be fixed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import dygraph, layers
from fluid.dygraph import InputSpec, Tensor
from fluid.errors import FeedError, FluidTypeError, ProgramError


@pytest.fixture(autouse=True)
def _eager() -> Iterator[None]:
    with dygraph.guard():
        yield


def rows(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).uniform(-1, 1, shape).astype("float32"))


class Net(dygraph.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = dygraph.Conv2D(None, 4, 3, padding=1, act="relu")
        self.out = dygraph.Linear(4 * 6 * 6, 3)

    def forward(self, images: Tensor) -> Tensor:
        h = self.convolution(images)
        return self.out(layers.reshape(h, [h.shape[0], -1]))


FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "a reshape by the size of another tensor": lambda x: layers.reshape(x.tanh(), [x.shape[0], 2, -1]),
    "the method reshape": lambda x: x.reshape(x.shape[0], -1, 2),
    "the method reshape with -1": lambda x: x.reshape(-1, 2),
    "the whole shape": lambda x: layers.reshape(x * 2.0, x.shape),
    "a mean by hand": lambda x: layers.reduce_sum(x, dim=0) / x.shape[0],
    "a number by a size": lambda x: x * (1 / x.shape[0]),
    "a size on the left": lambda x: x.shape[0] * x,
    "arithmetic of sizes": lambda x: layers.reshape(x, [x.shape[0] * x.shape[1] // 2, 2]),
    "a constant of as many rows": lambda x: x + layers.fill_constant([x.shape[0], 1], "float32", 2.0),
    "a size less than another": lambda x: x + float(x.shape[1]),
    "the first row": lambda x: x[0],
    "the last row": lambda x: x[-1],
    "all but the last": lambda x: x[:-1],
    "all but the first": lambda x: x[1:],
    "more rows than the example has": lambda x: x[:10],
    "an assertion about equal sizes": lambda x: x if x.shape[0] == (x + 1.0 - 1.0).shape[0] else x * 0.0,
    "a text": lambda x: x if f"{x.shape[0]} rows, {x.shape}" else x * 0.0,
    "softmax over rows": lambda x: layers.softmax(x, axis=0),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_function_is_traced_for_any_number_of_rows(function: Callable[[Tensor], Any]) -> None:
    traced = dygraph.trace(function, rows(3, 4))
    assert traced.feeds[0].shape == (-1, 4) and not traced.program.fixed_sizes
    for count in (3, 1, 5, 20):
        given = rows(count, 4, seed=count)
        np.testing.assert_allclose(traced(given).numpy(), function(given).numpy(), rtol=1e-5, atol=1e-6)


def test_a_net_traced_with_one_row_takes_many() -> None:
    net = Net()
    for example in (rows(1, 1, 6, 6), InputSpec([None, 1, 6, 6])):
        traced = dygraph.trace(net, example)
        given = rows(7, 1, 6, 6)
        np.testing.assert_allclose(traced(given).numpy(), net(given).numpy(), rtol=1e-5, atol=1e-6)
        (reshape,) = [op for op in traced.program.global_block().ops if op.type == "reshape2"]
        assert reshape.attr("shape") == [0, -1] and not reshape.input("ShapeTensor")
        outcome = fluid.Executor().run(traced.program, {"images": given.numpy()}, traced.fetches, scope=traced.scope)
        assert outcome[0].shape == (7, 3)


def test_traced_programs_of_any_size_are_saved_and_differentiated(tmp_path: Any) -> None:
    net = Net()
    traced = dygraph.trace(lambda x: layers.mean(net(x) / x.shape[0]), rows(2, 1, 6, 6))
    with fluid.program_guard(traced.program):
        pairs = fluid.append_backward(traced.fetches[0])
    given = rows(5, 1, 6, 6)
    (bias,) = [grad for parameter, grad in pairs if parameter.shape == (3,)]
    (found,) = fluid.Executor().run(traced.program, {traced.feed_names[0]: given.numpy()}, [bias], scope=traced.scope)
    np.testing.assert_allclose(found, np.full(3, 1 / 15), rtol=1e-6)
    dygraph.trace(net, rows(2, 1, 6, 6)).save_inference_model(str(tmp_path))
    model = fluid.load_model(tmp_path, scope=fluid.Scope())
    (scores,) = fluid.Executor().run(model.program, {model.feeds[0]: given.numpy()}, model.fetches, scope=model.scope)
    np.testing.assert_allclose(scores, net(given).numpy(), rtol=1e-5, atol=1e-6)


def test_a_size_that_had_to_be_fixed_is_named() -> None:
    def repeated(x: Tensor) -> Tensor:
        total = x[0]
        for number in range(x.shape[0]):
            total = total + x[number]
        return total

    traced = dygraph.trace(repeated, rows(3, 4))
    assert traced(rows(3, 4)).shape == (4,)
    with pytest.raises(FeedError) as caught:
        traced(rows(5, 4))
    text = str(caught.value)
    assert "x is declared float32[3, 4], but float32[5, 4] is fed (size 3 of axis 0 had to be fixed in the trace: " in text
    assert "x.shape[0] is read as a number at " in text and "test_open_traces.py:" in text and " in repeated)" in text
    with pytest.raises(FeedError, match=r"had to be fixed in the trace: x\.shape\[0\] is read"):
        fluid.Executor().run(traced.program, {"x": np.ones([5, 4], "float32")}, traced.fetches, scope=traced.scope)


def test_other_reasons_for_fixed_sizes() -> None:
    table = rows(4, 3)
    traced = dygraph.trace(lambda x: x + table, rows(4, 3))  # 4 rows, or one
    assert "had to be fixed in the trace: " in traced.program.fixed_sizes["x"]
    traced = dygraph.trace(lambda x: x + Tensor(np.ones([len(x), 700], "float32")), rows(2, 700))
    assert "len" in traced.program.fixed_sizes["x"] or "read as a number" in traced.program.fixed_sizes["x"]
    assert traced(rows(2, 700)).shape == (2, 700)


def test_only_the_sizes_that_matter_are_fixed() -> None:
    traced = dygraph.trace(lambda x, w: layers.matmul(x, w), rows(5, 8), rows(8, 2))
    assert [var.shape for var in traced.feeds] == [(-1, 8), (8, 2)] and list(traced.program.fixed_sizes) == ["w"]
    assert traced(rows(9, 8), rows(8, 2)).shape == (9, 2)
    both = dygraph.trace(lambda x, y: layers.reduce_sum(x * y, dim=1), rows(5, 8), rows(5, 8))
    assert [var.shape for var in both.feeds] == [(-1, 8), (-1, 8)]


def test_an_input_spec() -> None:
    spec = InputSpec([None, 3, None, None], "float32", name="pixels")
    assert repr(spec) == "InputSpec([None, 3, None, None], 'float32', name='pixels')"
    net = dygraph.Conv2D(None, 2, 3)
    traced = dygraph.trace(lambda x: net(x), spec)
    assert traced.feed_names == ["pixels"] and traced.feeds[0].shape == (-1, 3, -1, -1)
    given = rows(2, 3, 9, 5)
    np.testing.assert_allclose(traced(given).numpy(), net(given).numpy(), rtol=1e-5, atol=1e-6)
    words = dygraph.Embedding(None, [10, 4])
    traced = dygraph.trace(words, InputSpec([-1, 1], "int64"))
    assert traced(Tensor(np.array([[1], [2], [9]], "int64"))).shape == (3, 4)
    nested = dygraph.trace(lambda pair: pair["a"] + pair["b"][0], {"a": InputSpec([None, 2]), "b": [rows(2, 2)]})
    assert nested({"a": rows(6, 2), "b": [rows(6, 2)]}).shape == (6, 2)
    with pytest.raises(FluidTypeError, match="shape should be a list of sizes, with None for an open one, not 3"):
        InputSpec(3)  # type: ignore[arg-type]
    fixed = dygraph.trace(lambda x: x * 2.0, InputSpec([4, 2]))
    with pytest.raises(
        FeedError, match=r"declared float32\[4, 2\], but float32\[5, 2\] is fed; declare a size that varies as None$"
    ):
        fixed(rows(5, 2))


def test_sizes_in_branches_and_loops() -> None:
    def f(x: Tensor) -> Tensor:
        count = x.shape[0]
        chosen = layers.cond(layers.reduce_sum(x) > 0, lambda: x / count, lambda: x * count)
        return chosen + layers.reshape(x, [count, -1])

    traced = dygraph.trace(f, rows(2, 3))
    for seed in range(4):
        given = rows(5, 3, seed=seed)
        np.testing.assert_allclose(traced(given).numpy(), f(given).numpy(), rtol=1e-6)


def test_a_layer_traced_as_in_fluid_1_6_takes_any_number_of_rows() -> None:
    net = Net()
    _, traced = dygraph.TracedLayer.trace(net, [rows(2, 1, 6, 6)])
    assert traced([rows(5, 1, 6, 6)])[0].shape == (5, 3)


def test_a_second_run_for_other_sizes_leaves_no_trace() -> None:
    net = dygraph.Sequential(dygraph.Linear(4, 4), dygraph.BatchNorm(None, 4))
    before = {name: value.numpy().copy() for name, value in net.state_dict().items()}
    dygraph.seed(3)
    first = layers.uniform_random([2]).numpy()
    dygraph.seed(3)
    dygraph.trace(lambda x: layers.dropout(net(x), 0.5), rows(3, 4))
    np.testing.assert_array_equal(layers.uniform_random([2]).numpy(), first)
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    with pytest.raises(ProgramError, match="while it is traced"):
        dygraph.trace(lambda x: x if x.numpy().max() > 0 else x * 2.0, rows(2, 2))


LAYERS_OF_ANY_SIZE: dict[str, tuple[Callable[[], Any], list[tuple[int, ...]]]] = {
    "LSTM": (lambda: dygraph.LSTM(4, 5, num_layers=2, direction="bidirect"), [(2, 3, 4), (3, 6, 4)]),
    "GRU": (lambda: dygraph.GRU(4, 5), [(2, 3, 4), (1, 6, 4)]),
    "MultiHeadAttention": (lambda: dygraph.MultiHeadAttention(4, 2), [(2, 3, 4), (3, 6, 4)]),
    "TransformerEncoderLayer": (lambda: dygraph.TransformerEncoderLayer(4, 2, 8, dropout=0.0), [(2, 3, 4), (3, 1, 4)]),
    "beams": (lambda: lambda x: layers.BeamSearchDecoder.tile_beam_merge_with_batch(x, 2), [(2, 3, 4), (3, 6, 4)]),
    "positions": (lambda: lambda x: x + layers.range(0, x.shape[1], 1, "float32").reshape([1, -1, 1]), [(2, 3, 4), (3, 6, 4)]),
    "heads": (lambda: lambda x: x.reshape([x.shape[0], x.shape[1], 2, 2]), [(2, 3, 4), (3, 6, 4)]),
    "rows": (lambda: lambda x: layers.reshape(x, [x.shape[0] * x.shape[1], 4]), [(2, 3, 4), (3, 6, 4)]),
    "attention": (lambda: lambda x: fluid.nets.multi_head_attention(x, x, x, 2), [(2, 3, 4), (3, 6, 4)]),
}


@pytest.mark.parametrize("name", LAYERS_OF_ANY_SIZE)
def test_layers_leave_rows_and_steps_open(name: str) -> None:
    make, shapes = LAYERS_OF_ANY_SIZE[name]
    with dygraph.guard(fluid.CPUPlace()):
        net = make()
        traced = dygraph.trace(net, dygraph.InputSpec([None, None, 4]))
        for number, shape in enumerate(shapes):
            x = dygraph.to_variable(np.random.default_rng(number).random(shape, np.float32))
            right, got = net(x), traced(x)
            right, got = (values[0] if isinstance(values, (tuple, list)) else values for values in (right, got))
            np.testing.assert_allclose(got.numpy(), right.numpy(), rtol=1e-5, atol=1e-6)


def test_a_range_takes_bounds_of_other_types() -> None:
    """A size is int32; the other bounds, and the result, have the type that was asked for."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 2])
        numbers = layers.range(0, layers.shape(x)[0], 1, "int64")
        evenly = layers.linspace(layers.fill_constant([1], "int32", 0), 1.0, 5, "float32")
        fetched = fluid.Executor().run(feed={"x": np.ones((3, 2), "float32")}, fetch_list=[numbers, evenly])
    np.testing.assert_array_equal(fetched[0], [0, 1, 2])
    np.testing.assert_array_equal(fetched[1], np.linspace(0, 1, 5, dtype="float32"))
    assert fetched[0].dtype == "int64"

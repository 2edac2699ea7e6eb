"""Times training steps of kinds of nets that no named workload has: natively, on numpy, and in torch.

Each time is that of one thread of the processor, the median of some steps: a loaded machine changes ratios little. torch may
live in another environment: ``python benchmarks/kinds.py --torch-python /path/to/python``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

Step = Callable[[], Any]
SECONDS = 2.0


def median_milliseconds(step: Step, seconds: float = SECONDS) -> float:
    """The processor's time of a step, after some that are not counted; steps are repeated for some seconds."""
    for _ in range(3):
        step()
    times: list[float] = []
    while len(times) < 5 or sum(times) < seconds:
        start = time.process_time()
        step()
        times.append(time.process_time() - start)
    return float(np.median(times)) * 1e3


# -------------------------------------------------------------------------------------------------------------- Fluid
def fluid_step(build: Callable[[], Any], feed: dict[str, Any], optimizer: str = "SGD") -> Step:
    return fluid_steps(build, repeat(feed), optimizer)


def fluid_steps(build: Callable[[], Any], feeds: Iterator[dict[str, Any]], optimizer: str) -> Step:
    """A step with the next feed."""
    import fluid

    fluid.set_num_threads(1)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = build()
        getattr(fluid.optimizer, optimizer)(0.01).minimize(loss)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    return lambda: executor.run(main, next(feeds), [loss], scope=scope)


def text_cnn() -> Step:
    import fluid
    from fluid import layers

    def build() -> Any:
        ids, label = fluid.data("ids", [32, 60], "int64"), fluid.data("label", [32, 1], "int64")
        words = layers.unsqueeze(fluid.embedding(ids, [5000, 128]), [1])
        parts = [layers.conv2d(words, 64, [size, 128], act="relu") for size in (3, 4, 5)]
        pooled = [layers.pool2d(part, [part.shape[2], 1], "max") for part in parts]
        scores = layers.fc(layers.reshape(layers.concat(pooled, 1), [32, -1]), 5)
        return layers.mean(layers.softmax_with_cross_entropy(scores, label))

    rng = np.random.default_rng(0)
    return fluid_step(build, {"ids": rng.integers(0, 5000, (32, 60)), "label": rng.integers(0, 5, (32, 1))})


def upsampling() -> Step:
    import fluid
    from fluid import layers

    def build() -> Any:
        return layers.mean(layers.square(layers.conv2d_transpose(fluid.data("x", [1, 21, 16, 16]), 21, None, 64, 16, 32)))

    return fluid_step(build, {"x": normal(1, 21, 16, 16)})


def while_loop() -> Step:
    import fluid
    from fluid import layers

    def build() -> Any:
        x, w = fluid.data("x", [32, 64]), layers.create_parameter([64, 64], "float32")
        end = layers.fill_constant([1], "int64", 100)
        _, last = layers.while_loop(
            lambda index, h: layers.less_than(index, end),
            lambda index, h: [index + 1, layers.tanh(layers.matmul(h, w))],
            [layers.fill_constant([1], "int64", 0), x],
        )
        return layers.mean(last)

    return fluid_step(build, {"x": normal(32, 64)})


def static_rnn() -> Step:
    import fluid
    from fluid import layers

    def build() -> Any:
        x, first = fluid.data("x", [35, 20, 128]), fluid.data("first", [20, 128])
        rnn = layers.StaticRNN()
        with rnn.step():
            word, before = rnn.step_input(x), rnn.memory(init=first)
            state = layers.fc([word, before], 128, act="tanh")
            rnn.update_memory(before, state)
            rnn.step_output(state)
        return layers.mean(rnn())

    return fluid_step(build, {"x": normal(35, 20, 128), "first": np.zeros((20, 128), "float32")})


def states_in_array() -> Step:
    """A recurrence that passes its state through an array of tensors, as decoders do."""
    import fluid
    from fluid import layers

    def build() -> Any:
        x, end = fluid.data("x", [30, 32, 128]), layers.fill_constant([1], "int64", 30)
        w, u = (layers.create_parameter([128, 128], "float32") for _ in range(2))
        first = layers.fill_constant([32, 128], "float32", 0.0)
        i = layers.fill_constant([1], "int64", 0)
        states, below = layers.array_write(first, i), layers.less_than(i, end)
        loop = layers.While(below)
        with loop.block():
            word = layers.reshape(layers.gather(x, i), [32, 128])
            h = layers.tanh(layers.matmul(word, w) + layers.matmul(layers.array_read(states, i), u))
            layers.increment(i, in_place=True)
            layers.array_write(h, i, states)
            layers.less_than(i, end, cond=below)
        return layers.mean(layers.array_read(states, end))

    return fluid_step(build, {"x": normal(30, 32, 128)})


def clipped_states() -> Step:
    """A recurrence whose state is divided by its norm where that is large, and goes through a product elsewhere."""
    import fluid
    from fluid import layers

    def build() -> Any:
        x, w = fluid.data("x", [32, 64]), layers.create_parameter([64, 64], "float32")
        end, limit = layers.fill_constant([1], "int64", 50), layers.fill_constant([1], "float32", 50.0)

        def trip(index: Any, h: Any) -> list[Any]:
            norm = layers.sqrt(layers.reduce_sum(layers.square(h)))
            is_large = layers.greater_than(norm, limit)
            after = layers.cond(
                is_large, lambda: layers.elementwise_mul(h, 20.0 / norm), lambda: layers.scale(layers.matmul(h, w), 1.5)
            )
            return [index + 1, after]

        start = layers.fill_constant([1], "int64", 0)
        _, last = layers.while_loop(lambda index, h: layers.less_than(index, end), trip, [start, x])
        return layers.mean(last)

    return fluid_step(build, {"x": normal(32, 64)})


def summed_gradients() -> Step:
    """Training that adds up the gradients of four batches before each update by Adam."""
    import fluid
    from fluid import layers

    fluid.set_num_threads(1)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        h = fluid.data("x", [16, 64])
        for _ in range(3):
            h = layers.fc(h, 128, act="relu")
        loss = layers.mean(layers.square(layers.fc(h, 1)))
        pairs = fluid.append_backward(loss)
        sums = [layers.create_global_var(list(param.shape), 0.0, "float32", persistable=True) for param, _ in pairs]
        number = layers.create_global_var([1], 0.0, "float32", persistable=True)
        for total, (_, gradient) in zip(sums, pairs, strict=True):
            layers.assign(total + gradient, total)
        layers.assign(number + 1.0, number)
        adam = fluid.optimizer.Adam(0.001)

        def update() -> None:
            adam.apply_gradients([(param, total) for (param, _), total in zip(pairs, sums, strict=True)])
            for total in (*sums, number):
                layers.assign(layers.zeros_like(total), total)

        layers.cond(layers.greater_equal(number, layers.fill_constant([1], "float32", 4.0)), update, None)
    executor, scope, feed = fluid.Executor(), fluid.Scope(), {"x": normal(16, 64)}
    executor.run(startup, scope=scope)

    def four_batches() -> None:
        for _ in range(4):
            executor.run(main, feed, [loss], scope=scope)

    return four_batches


def decoder(choose: Callable[[Any, list[Any]], list[Any]], rows: int, *states: Any) -> Step:
    """A loop of 30 steps over words, by a recurrent net of 256 units over 2,000 words.

    Args:
        choose: from scores [rows, words], and the state, words and further states, to the next of them.
        states: the first values of further states.
    """
    import fluid
    from fluid import layers

    fluid.set_num_threads(1)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        table, w, u, out = (
            layers.create_parameter(shape, "float32") for shape in ([2000, 64], [64, 256], [256, 256], [256, 2000])
        )
        end = layers.fill_constant([1], "int64", 30)

        def step(i: Any, state: Any, word: Any, *more: Any) -> list[Any]:
            after = layers.tanh(layers.matmul(layers.gather(table, word), w) + layers.matmul(state, u))
            return [layers.increment(i, in_place=False), *choose(layers.matmul(after, out), [after, word, *more])]

        first = [fluid.data("state", [rows, 256]), layers.fill_constant([rows], "int64", 1), *map(layers.assign, states)]
        start = layers.fill_constant([1], "int64", 0)
        words = layers.while_loop(lambda i, *_: layers.less_than(i, end), step, [start, *first])[2]
    executor, scope, feed = fluid.Executor(), fluid.Scope(), {"state": normal(rows, 256)}
    executor.run(startup, scope=scope)
    return lambda: executor.run(main, feed, [words], scope=scope)


def greedy_decoder() -> Step:
    from fluid import layers

    return decoder(lambda scores, states: [states[0], layers.argmax(scores, axis=1)], 8)


def beam_decoder() -> Step:
    from fluid import layers

    beams, words = 4, 2000

    def choose(scores: Any, states: list[Any]) -> list[Any]:
        total = layers.elementwise_add(layers.log(layers.softmax(scores)), states[2], axis=0)
        best, places = layers.topk(layers.reshape(total, [1, beams * words]), beams)
        places, count = layers.reshape(places, [beams]), layers.fill_constant([1], "int64", words)
        state = layers.gather(states[0], layers.elementwise_floordiv(places, count))
        return [state, layers.elementwise_mod(places, count), layers.reshape(best, [beams, 1])]

    return decoder(choose, beams, np.array([[0.0], [-1e9], [-1e9], [-1e9]], "float32"))


def dropped_rnn() -> Step:
    """A recurrence with dropout in each step: of words, and of states."""
    import fluid
    from fluid import layers

    def build() -> Any:
        x, first = fluid.data("x", [35, 20, 128]), layers.fill_constant([20, 128], "float32", 0.0)
        rnn = layers.StaticRNN()
        with rnn.step():
            word, before = rnn.step_input(x), rnn.memory(init=first)
            state = layers.fc([layers.dropout(word, 0.2), before], 128, act="tanh")
            rnn.update_memory(before, state)
            rnn.step_output(layers.dropout(state, 0.5, dropout_implementation="upscale_in_train"))
        return layers.mean(rnn())

    return fluid_step(build, {"x": normal(35, 20, 128)})


def wide_lstm() -> Step:
    import fluid
    from fluid import layers

    def build() -> Any:
        zeros = layers.fill_constant([1, 20, 650], "float32", 0.0)
        return layers.mean(layers.lstm(fluid.data("x", [35, 20, 650]), zeros, zeros, 35, 650, 1)[0])

    return fluid_step(build, {"x": normal(35, 20, 650)})


def tagger() -> Step:
    """The `rnn` of files of ONNX and Paddle 2: two layers of GRUs, both ways."""
    import fluid
    from fluid import layers
    from fluid.ops.rnn import Geometry

    def build() -> Any:
        words = layers.transpose(fluid.embedding(fluid.data("ids", [32, 30], "int64"), [5000, 100]), [1, 0, 2])
        weights = [layers.create_parameter(list(shape), "float32") for shape in Geometry("GRU", 2, 2, 100, 128).weight_shapes()]
        state, block = layers.fill_constant([4, 32, 128], "float32", 0.0), fluid.default_main_program().global_block()
        out, last, dropped, reserve = (block.create_var(name=name) for name in ("out", "last", "dropped", "reserve"))
        inputs = {"Input": words, "PreState": [state], "WeightList": weights}
        outputs = {"Out": out, "State": [last], "DropoutState": dropped, "Reserve": reserve}
        attrs = {"mode": "GRU", "input_size": 100, "hidden_size": 128, "num_layers": 2, "is_bidirec": True}
        block.append_op("rnn", inputs, outputs, attrs)
        return layers.mean(layers.square(layers.fc(out, 20, num_flatten_dims=2)))

    return fluid_step(build, {"ids": np.random.default_rng(0).integers(0, 5000, (32, 30))})


def heads() -> Step:
    """Attention as sums of products by labels."""
    import fluid
    from fluid import layers

    def product(equation: str, *operands: Any) -> Any:
        block = fluid.default_main_program().global_block()
        out, *copies = (block.create_var(name=fluid.unique_name.generate("product")) for _ in range(1 + len(operands)))
        block.append_op("einsum", {"Operands": operands}, {"Out": out, "InnerCache": copies}, {"equation": equation})
        return out

    def build() -> Any:
        x = fluid.data("x", [8, 64, 256])
        queries, keys, values = (product("bte,ehd->bthd", x, layers.create_parameter([256, 8, 32], "float32")) for _ in range(3))
        weights = layers.softmax(product("bqhd,bkhd->bhqk", queries, keys))
        return layers.mean(layers.square(product("bhqk,bkhd->bqhd", weights, values)))

    return fluid_step(build, {"x": normal(8, 64, 256)})


def gaussian_process() -> Step:
    import fluid
    from fluid import layers

    def build() -> Any:
        x, y, eye = (
            fluid.data(name, shape, "float64") for name, shape in (("x", [300, 3]), ("y", [300, 1]), ("eye", [300, 300]))
        )
        scale = layers.create_parameter([1], "float64", default_initializer=fluid.initializer.Constant(1.0))
        distances = layers.reduce_sum(layers.square(layers.unsqueeze(x, [1]) - layers.unsqueeze(x, [0])), 2)
        kernel = layers.exp(layers.scale(layers.elementwise_mul(distances, scale), -1.0)) + layers.scale(eye, 0.1)
        block = fluid.default_main_program().global_block()
        lower, solved = block.create_var(name="lower"), block.create_var(name="solved")
        block.append_op("cholesky", {"X": kernel}, {"Out": lower}, {"upper": False})
        block.append_op("triangular_solve", {"X": lower, "Y": y}, {"Out": solved}, {"upper": False})
        log_determinant = layers.reduce_sum(layers.log(layers.reduce_sum(lower * eye, 1)))
        return layers.scale(layers.reduce_sum(layers.square(solved)), 0.5) + log_determinant

    return fluid_step(build, {"x": double(300, 3), "y": double(300, 1), "eye": np.eye(300)})


# Fourier neural operators: Li and others, "Fourier neural operator for parametric partial differential equations" (2021).
_OPERATORS: dict[int, tuple[int, int, tuple[int, ...], tuple[int, ...]]] = {
    1: (32, 32, (256,), (16,)),
    2: (8, 16, (64, 64), (12, 12)),
}
"""Dimensions -> batch, width, points and modes of a net that maps two functions to one."""


def fourier_operator(ndim: int) -> Step:
    import fluid
    from fluid import layers
    from fluid.extend import ops

    batch, width, points, modes = _OPERATORS[ndim]
    axes, letters = list(range(2, 2 + ndim)), "xyz"[:ndim]

    def pointwise(x: Any, channels: int) -> Any:
        image = x if ndim == 2 else layers.unsqueeze(x, [2])
        result = layers.conv2d(image, channels, 1)
        return result if ndim == 2 else layers.squeeze(result, [2])

    def weight() -> Any:
        start = fluid.initializer.Uniform(0.0, 1.0 / width**2)
        parts = [layers.create_parameter([width, width, *modes], "float32", default_initializer=start) for _ in range(2)]
        return ops().complex(*parts)

    def modes_of(spectrum: Any, starts: list[int]) -> Any:
        """Some modes, each multiplied by a matrix of its own."""
        ends = [start + count for start, count in zip(starts, modes, strict=True)]
        part = ops().slice(spectrum, axes=axes, starts=starts, ends=ends)
        return ops().einsum([part, weight()], equation=f"bi{letters},io{letters}->bo{letters}")

    def spectral(x: Any) -> Any:
        f = ops()
        spectrum = f.fft_r2c(x, axes=axes, normalization="backward", forward=True, onesided=True)
        if ndim == 1:
            part = modes_of(spectrum, [0])
        else:  # low frequencies lie at both ends of the first axis
            rows, gap = points[0] - modes[0], points[0] - 2 * modes[0]
            zeros = layers.fill_constant([batch, width, gap, modes[1]], "float32", 0.0)
            part = f.concat([modes_of(spectrum, [0, 0]), f.complex(zeros, zeros), modes_of(spectrum, [rows, 0])], axis=2)
        whole = f.pad(part, paddings=[*[0] * (2 * ndim + 3), points[-1] // 2 + 1 - modes[-1]], pad_value=0.0)
        return f.fft_c2r(whole, axes=axes, normalization="backward", forward=False, last_dim_size=points[-1])

    def build() -> Any:
        x, y = fluid.data("x", [batch, 2, *points]), fluid.data("y", [batch, 1, *points])
        x = pointwise(x, width)
        for _ in range(4):
            x = layers.gelu(spectral(x) + pointwise(x, width))
        return layers.mean(layers.square(pointwise(layers.gelu(pointwise(x, 64)), 1) - y))

    return fluid_step(build, {"x": normal(batch, 2, *points), "y": normal(batch, 1, *points)}, "Adam")


def double(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape)


def normal(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


# -------------------------------------------------------------------------------------------------------------- torch
def torch_step(parameters: Any, loss: Callable[[], Any], algorithm: str = "SGD", **options: Any) -> Step:
    import torch

    torch.set_num_threads(1)
    optimizer = getattr(torch.optim, algorithm)(list(parameters), 0.01, **options)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def torch_text_cnn() -> Step:
    import torch
    from torch import nn

    words, head = nn.Embedding(5000, 128), nn.Linear(192, 5)
    filters = nn.ModuleList([nn.Conv2d(1, 64, (size, 128)) for size in (3, 4, 5)])
    ids, label = torch.randint(0, 5000, (32, 60)), torch.randint(0, 5, (32,))

    def loss() -> Any:
        image = words(ids)[:, None]
        pooled = torch.cat([torch.relu(part(image)).amax((2, 3)) for part in filters], 1)
        return nn.functional.cross_entropy(head(pooled), label)

    return torch_step([*words.parameters(), *head.parameters(), *filters.parameters()], loss)


def torch_upsampling() -> Step:
    import torch

    layer, x = torch.nn.ConvTranspose2d(21, 21, 64, 32, 16), torch.randn(1, 21, 16, 16)
    return torch_step(layer.parameters(), lambda: layer(x).square().mean())


def torch_while_loop() -> Step:
    import torch

    x, w = torch.randn(32, 64), torch.nn.Parameter(torch.randn(64, 64) / 10)

    def loss() -> Any:
        h = x
        for _ in range(100):
            h = torch.tanh(h @ w)
        return h.mean()

    return torch_step([w], loss)


def torch_clipped_states() -> Step:
    import torch

    x, w = torch.randn(32, 64), torch.nn.Parameter(torch.randn(64, 64) / 10)

    def loss() -> Any:
        h = x
        for _ in range(50):
            norm = h.square().sum().sqrt()
            h = h * (20.0 / norm) if norm > 50.0 else (h @ w) * 1.5
        return h.mean()

    return torch_step([w], loss)


def torch_summed_gradients() -> Step:
    import torch
    from torch import nn

    torch.set_num_threads(1)
    parts = [part for size in (64, 128, 128) for part in (nn.Linear(size, 128), nn.ReLU())]
    net, x = nn.Sequential(*parts, nn.Linear(128, 1)), torch.randn(16, 64)
    optimizer = torch.optim.Adam(net.parameters(), 0.001)

    def four_batches() -> None:
        for _ in range(4):
            net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return four_batches


def torch_decoder(choose: Callable[[Any, list[Any]], list[Any]], rows: int, *states: Any) -> Step:
    import torch

    torch.set_num_threads(1)
    table, w, u, out = (torch.randn(shape) / 16 for shape in ((2000, 64), (64, 256), (256, 256), (256, 2000)))
    first = [torch.tensor(normal(rows, 256)), torch.ones(rows, dtype=torch.int64), *map(torch.tensor, states)]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def decode() -> Any:
        state, word, *more = first
        for _ in range(30):
            after = torch.tanh(table[word] @ w + state @ u)
            state, word, *more = choose(after @ out, [after, word, *more])
        return word

    return decode


def torch_greedy_decoder() -> Step:
    return torch_decoder(lambda scores, states: [states[0], scores.argmax(1)], 8)


def torch_beam_decoder() -> Step:
    import torch

    def choose(scores: Any, states: list[Any]) -> list[Any]:
        best, places = (torch.log_softmax(scores, 1) + states[2]).reshape(-1).topk(4)
        return [states[0][places // 2000], places % 2000, best[:, None]]

    return torch_decoder(choose, 4, np.array([[0.0], [-1e9], [-1e9], [-1e9]], "float32"))


def torch_states_in_list() -> Step:
    import torch

    x, weights = torch.randn(30, 32, 128), [torch.nn.Parameter(torch.randn(128, 128) / 12) for _ in range(2)]

    def loss() -> Any:
        states = [torch.zeros(32, 128)]
        for word in x:
            states.append(torch.tanh(word @ weights[0] + states[-1] @ weights[1]))
        return states[-1].mean()

    return torch_step(weights, loss)


def torch_rnn() -> Step:
    import torch

    layer, x = torch.nn.RNN(128, 128), torch.randn(35, 20, 128)
    return torch_step(layer.parameters(), lambda: layer(x)[0].mean())


def torch_dropped_rnn() -> Step:
    import torch

    x, (w, u) = torch.randn(35, 20, 128), [torch.nn.Parameter(torch.randn(128, 128) / 12) for _ in range(2)]
    dropout = torch.nn.functional.dropout

    def loss() -> Any:
        state, outputs = torch.zeros(20, 128), []
        for word in x:
            state = torch.tanh(dropout(word, 0.2) @ w + state @ u)
            outputs.append(dropout(state, 0.5))
        return torch.stack(outputs).mean()

    return torch_step([w, u], loss)


def torch_wide_lstm() -> Step:
    import torch

    layer, x = torch.nn.LSTM(650, 650), torch.randn(35, 20, 650)
    return torch_step(layer.parameters(), lambda: layer(x)[0].mean())


def torch_tagger() -> Step:
    import torch

    words, layer = torch.nn.Embedding(5000, 100), torch.nn.GRU(100, 128, 2, bidirectional=True, batch_first=True)
    head, ids = torch.nn.Linear(256, 20), torch.randint(0, 5000, (32, 30))
    parameters = [*words.parameters(), *layer.parameters(), *head.parameters()]
    return torch_step(parameters, lambda: head(layer(words(ids))[0]).square().mean())


def torch_heads() -> Step:
    import torch

    x, weights = torch.randn(8, 64, 256), [torch.nn.Parameter(torch.randn(256, 8, 32) / 16) for _ in range(3)]

    def loss() -> Any:
        queries, keys, values = (torch.einsum("bte,ehd->bthd", x, weight) for weight in weights)
        shares = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", queries, keys), -1)
        return torch.einsum("bhqk,bkhd->bqhd", shares, values).square().mean()

    return torch_step(weights, loss)


def torch_gaussian_process() -> Step:
    import torch

    x, y, eye = (torch.tensor(array) for array in (double(300, 3), double(300, 1), np.eye(300)))
    scale = torch.nn.Parameter(torch.ones(1, dtype=torch.float64))

    def loss() -> Any:
        kernel = torch.exp(-((x[:, None] - x[None]) ** 2).sum(-1) * scale) + 0.1 * eye
        lower = torch.linalg.cholesky(kernel)
        solved = torch.linalg.solve_triangular(lower, y, upper=False)
        return (solved * solved).sum() * 0.5 + torch.log(torch.diagonal(lower)).sum()

    return torch_step([scale], loss)


def torch_fourier_operator(ndim: int) -> Step:
    import torch

    batch, width, points, modes = _OPERATORS[ndim]
    layer, letters = torch.nn.Conv1d if ndim == 1 else torch.nn.Conv2d, "xyz"[:ndim]
    corners = [tuple(slice(count) for count in modes)]
    if ndim == 2:
        corners.append((slice(-modes[0], None), slice(modes[1])))
    dims = tuple(range(2, 2 + ndim))
    lift, hidden, last = layer(2, width, 1), layer(width, 64, 1), layer(64, 1, 1)
    pointwise = torch.nn.ModuleList([layer(width, width, 1) for _ in range(4)])
    weights = [
        [torch.nn.Parameter(torch.rand(width, width, *modes, dtype=torch.cfloat) / width**2) for _ in corners] for _ in range(4)
    ]
    x, y = torch.randn(batch, 2, *points), torch.randn(batch, 1, *points)

    def spectral(x: Any, parts: Any) -> Any:
        spectrum = torch.fft.rfftn(x, dim=dims)
        result = torch.zeros_like(spectrum)
        for corner, weight in zip(corners, parts, strict=True):
            place = (slice(None), slice(None), *corner)
            result[place] = torch.einsum(f"bi{letters},io{letters}->bo{letters}", spectrum[place], weight)
        return torch.fft.irfftn(result, s=points, dim=dims)

    def loss() -> Any:
        h = lift(x)
        for parts, mix in zip(weights, pointwise, strict=True):
            h = torch.nn.functional.gelu(spectral(h, parts) + mix(h))
        return (last(torch.nn.functional.gelu(hidden(h))) - y).square().mean()

    modules = torch.nn.ModuleList([lift, hidden, last, pointwise])
    return torch_step([*modules.parameters(), *(weight for parts in weights for weight in parts)], loss, "Adam")


KINDS: dict[str, tuple[Callable[[], Step], Callable[[], Step]]] = {
    "text CNN, 32 sentences": (text_cnn, torch_text_cnn),
    "transposed convolution 64 x 64, stride 32": (upsampling, torch_upsampling),
    "while, 100 products": (while_loop, torch_while_loop),
    "while, 30 states of 128 in an array": (states_in_array, torch_states_in_list),
    "while with a branch, 50 states of 64": (clipped_states, torch_clipped_states),
    "MLP, gradients of 4 batches summed": (summed_gradients, torch_summed_gradients),
    "greedy decoding, 30 words of 2,000": (greedy_decoder, torch_greedy_decoder),
    "beam search, 30 words of 2,000, 4 beams": (beam_decoder, torch_beam_decoder),
    "StaticRNN, 35 steps of 128": (static_rnn, torch_rnn),
    "StaticRNN with dropout, 35 steps of 128": (dropped_rnn, torch_dropped_rnn),
    "LSTM, 35 steps of 650": (wide_lstm, torch_wide_lstm),
    "GRU tagger, 2 layers both ways": (tagger, torch_tagger),
    "attention by labels (einsum)": (heads, torch_heads),
    "Gaussian process of 300 points": (gaussian_process, torch_gaussian_process),
    "Fourier operator, 256 points": (partial(fourier_operator, 1), partial(torch_fourier_operator, 1)),
    "Fourier operator, 64 x 64 points": (partial(fourier_operator, 2), partial(torch_fourier_operator, 2)),
}


def all_kinds() -> dict[str, tuple[Callable[[], Step], Callable[[], Step]]]:
    """The kinds of this file, of `more_kinds.py`, `labelled_images.py` and `translation.py`."""
    import labelled_images
    import more_kinds
    import translation

    return KINDS | more_kinds.KINDS | labelled_images.KINDS | translation.KINDS


def fluid_milliseconds(native: bool) -> dict[str, float]:
    os.environ["FLUID_NATIVE"] = str(int(native))
    return {name: median_milliseconds(make()) for name, (make, _) in all_kinds().items()}


def torch_milliseconds(python: str) -> dict[str, float]:
    """Times of another Python; none without torch."""
    result = subprocess.run([python, __file__, "--torch"], capture_output=True, text=True, check=False)
    return json.loads(result.stdout) if not result.returncode else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", default=sys.executable, help="a Python that has torch")
    parser.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.torch:
        print(json.dumps({name: median_milliseconds(make()) for name, (_, make) in all_kinds().items()}))
        return
    native, on_numpy, in_torch = fluid_milliseconds(True), fluid_milliseconds(False), torch_milliseconds(options.torch_python)
    print("| training step, ms of one thread | native | numpy | torch | native / torch |\n|---|---|---|---|---|")
    for name in all_kinds():
        peer = in_torch.get(name)
        ratio = f"{peer:.2f} | {native[name] / peer:.2f}" if peer else "- | -"
        print(f"| {name} | {native[name]:.2f} | {on_numpy[name]:.2f} | {ratio} |")


if __name__ == "__main__":
    main()

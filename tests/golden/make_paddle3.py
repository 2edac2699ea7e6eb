"""Make `paddle3/`: models that Paddle 3 wrote, their feeds, and their results.

Run it by a Python that has paddlepaddle 3.0 to 3.3: ``python tests/golden/make_paddle3.py [folder [name...]]``. Beside
``name.json`` and ``name.pdiparams`` lies ``name.npz``: ``in/0``, ``in/1``, ... by position, and ``out/0``, ``out/1``, ...
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F
from paddle.static import InputSpec

RNG = np.random.default_rng(3)


def floats(*shape: int) -> Any:
    return RNG.normal(size=shape).astype("float32")


# ------------------------------------------------------------------------------------------------------------ inference
class Convolutions(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2D(1, 4, 3, padding=1, stride=2)
        self.norm = nn.BatchNorm2D(4)
        self.second = nn.Conv2D(4, 4, 3, groups=4, padding="SAME")
        self.up = nn.Conv2DTranspose(4, 2, 2, stride=2)
        self.out = nn.Linear(2 * 4, 3)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.norm(self.first(x)))
        x = F.max_pool2d(F.hardswish(self.second(x)), 2, 2)
        x = F.adaptive_avg_pool2d(self.up(x), 2)
        x = F.interpolate(x, size=[2, 2], mode="bilinear")
        return F.softmax(self.out(F.dropout(x.flatten(1), 0.5, training=self.training)))


class Attention(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(20, 8), nn.Embedding(6, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, activation="gelu")
        self.norm = nn.LayerNorm(8)

    def forward(self, ids: Any) -> Any:
        x = self.words(ids) + self.places(paddle.arange(ids.shape[1]).unsqueeze(0))
        mask = (ids == 0).astype("float32").unsqueeze([1, 2]) * -1e4
        x = self.layer(x, mask)
        return self.norm(x)[:, 0], x.mean(1)


class Recurrent(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(4, 5, num_layers=2, direction="bidirect"), nn.GRU(10, 3)

    def forward(self, x: Any) -> Any:
        y, (h, _) = self.lstm(x)
        z, last = self.gru(y)
        return z, last, h


class Parts(nn.Layer):
    def forward(self, x: Any, n: Any) -> Any:
        a, b = paddle.split(x, 2, axis=1)
        c = paddle.stack([a, b], 1).transpose([0, 2, 1])
        d = paddle.concat([c.reshape([paddle.shape(x)[0], -1]), x[:, ::2], x[:, 1:3]], axis=1)
        values, where = paddle.topk(d, 3)
        e = paddle.where(d > 0, d, paddle.exp(d)).clip(-1, 2) ** 2
        f = paddle.gather(e, paddle.argmax(e, 1) % 2, axis=1).cumsum(0)
        g = paddle.tile(e.sum(1, keepdim=True), [1, 2]).expand([-1, -1]) + paddle.full([1], 0.5)
        h = paddle.slice(x, [1], [n], [n + 2]) * paddle.sqrt(paddle.abs(x[0, 0]))
        i = paddle.nn.functional.one_hot(where, 12).max(-1).squeeze() + x.pow(3).std()
        return values, f, paddle.log1p(g * g), h, i, paddle.einsum("ij,kj->ik", x, x), paddle.logsumexp(x, 1), x.T @ x


class Medians(nn.Layer):
    """Ops that Paddle 2 composes of others; `masked_fill` is an op from 3.2 on."""

    def forward(self, x: Any, mask: Any) -> Any:
        smaller = paddle.median(x, axis=0, keepdim=True, mode="min")
        smaller = smaller[0] if isinstance(smaller, (tuple, list)) else smaller
        filled = paddle.masked_fill(x, mask, 2.5)
        return filled, paddle.median(x, axis=1), smaller, paddle.median(x), paddle.nanmedian(x, axis=1)


# --------------------------------------------------------------------------------------------------------- control flow
class Branches(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        y = x * 2
        if x.mean() > 0:
            z = self.left(x)
            y = y + 1
        else:
            z = self.right(x) - 1
            if x.max() > 1:
                z = z * 3
        return z, y


class Loop(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Linear(3, 3)

    def forward(self, x: Any, times: Any) -> Any:
        i, total = paddle.zeros([1], "int64"), paddle.zeros([1])
        while i < times:
            x = paddle.tanh(self.step(x))
            j = paddle.zeros([1], "int64")
            while j < i:
                total = total + x.sum() * 0.1
                j = j + 1
            if x.sum() > 0:
                total = total - 1
            i = i + 1
        return x, total, i


LAYERS: dict[str, Any] = {
    "convolutions": (Convolutions, [InputSpec([None, 1, 8, 8], "float32", "img")], lambda: [floats(2, 1, 8, 8)]),
    "attention": (Attention, [InputSpec([None, None], "int64", "ids")], lambda: [np.int64([[3, 5, 0, 0], [1, 2, 19, 7]])]),
    "recurrent": (Recurrent, [InputSpec([None, 6, 4], "float32", "x")], lambda: [floats(2, 6, 4)]),
    "parts": (Parts, [InputSpec([None, 6]), InputSpec([1], "int64")], lambda: [floats(4, 6), np.int64([1])]),
    "medians": (
        Medians,
        [InputSpec([None, 4]), InputSpec([None, 4], "bool")],
        lambda: [np.float32([[1, 5, 2, 8], [3, 1, 4, 1], [np.nan, 1, 2, 3]]), floats(3, 4) > 0],
    ),
    "branches": (Branches, [InputSpec([None, 3], "float32", "x")], lambda: [floats(4, 3)]),
    "loop": (Loop, [InputSpec([None, 3]), InputSpec([1], "int64", "times")], lambda: [floats(2, 3), np.int64([4])]),
}  # fmt: skip


def write_layer(name: str, folder: Path) -> None:
    make, specs, inputs = LAYERS[name]
    paddle.seed(1)
    layer, fed = make(), inputs()
    layer.eval()
    outputs = layer(*map(paddle.to_tensor, fed))
    paddle.jit.save(layer, str(folder / name), input_spec=specs)
    keep(folder / name, fed, [one.numpy() for one in (outputs if isinstance(outputs, tuple) else [outputs])])


def keep(path: Path, fed: list[Any], outputs: list[Any]) -> None:
    arrays = {f"in/{i}": value for i, value in enumerate(fed)} | {f"out/{i}": value for i, value in enumerate(outputs)}
    np.savez(path.with_suffix(".npz"), **arrays)


# --------------------------------------------------------------------------------------------------- arrays of tensors
def at(position: int) -> Any:
    return paddle.full([1], position, "int64")


def array_of(x: Any, count: int = 3) -> Any:
    array = paddle.tensor.create_array("float32")
    for position in range(count):
        paddle.tensor.array_write(x * (position + 1), at(position), array)
    return array


def arrays(x: Any) -> list[Any]:
    """Each op on arrays that Paddle 3 has, outside of loops."""
    read, length, ops = paddle.tensor.array_read, paddle.tensor.array_length, paddle._pir_ops
    first = array_of(x)
    copied = paddle.assign(first)
    paddle.tensor.array_write(x * 9, at(4), copied)
    last, second = ops.array_pop(first, -1), ops.array_pop(first, 1)
    later, middle, end = copied[1:3], copied[1], copied[-1]
    total = ops.add_n_array([first, copied])
    like = ops.create_array_like(copied, 2.0)
    wide, sizes = paddle.tensor.manipulation.tensor_array_to_tensor(later, axis=1)
    stacked, _ = paddle.tensor.manipulation.tensor_array_to_tensor(array_of(x), axis=1, use_stack=True)
    lengths = [length(array) for array in (first, copied, later, total, paddle.tensor.create_array("float32"))]
    return [last, second, middle, end, read(total, at(0)), read(total, at(4)), read(like, at(1)), wide, sizes, stacked, *lengths]


def array_loops(x: Any) -> list[Any]:
    """Arrays that loops and branches write into, make, pass on and choose."""
    tensor, loop = paddle.tensor, paddle.static.nn.while_loop
    written, small = array_of(x, 1), paddle.tensor.create_array("float32")

    def step(i: Any, total: Any, passed: Any) -> list[Any]:
        own = array_of(x * i.astype("float32"), 2)
        tensor.array_write(paddle.tanh(tensor.array_read(written, i) + 1), i + 1, written)
        small.append(total * 0.5)
        passed = paddle.assign(passed)
        tensor.array_write(total, i, passed)
        return [i + 1, total + tensor.array_read(own, at(1)), passed]

    _, total, passed = loop(lambda i, *_: i < 3, step, [at(0), x, array_of(x * 10)])
    positive = total.sum() > 0
    chosen = paddle.static.nn.cond(positive, lambda: array_of(x), lambda: array_of(x, 1))

    def left() -> Any:
        tensor.array_write(x * 7, at(1), chosen)
        return x

    def right() -> Any:
        tensor.array_write(x * 8, at(0), chosen)
        return x + 1

    branch = paddle.static.nn.cond(positive, left, right)
    joined = [tensor.manipulation.tensor_array_to_tensor(array, axis=0)[0] for array in (written, small, passed, chosen)]
    return [total, branch, tensor.array_length(chosen), *joined]


def array_gradients(x: Any) -> list[Any]:
    """Gradients through arrays, outside of loops; Paddle loses gradients through slices."""
    x.stop_gradient = False
    array = array_of(x)
    first = paddle.tensor.array_read(array, at(0))
    paddle.tensor.array_write(first * first * 3, at(0), array)
    copied = paddle.assign(array)
    wide, _ = paddle.tensor.manipulation.tensor_array_to_tensor(array, axis=1)
    stacked, _ = paddle.tensor.manipulation.tensor_array_to_tensor(copied, axis=0, use_stack=True)
    loss = (wide**2).sum() + (stacked**3).sum() + paddle.tensor.array_read(copied, at(0)).sum()
    return [loss, *paddle.static.gradients([loss], [x])]


FUNCTIONS: dict[str, Any] = {"arrays": arrays, "array_loops": array_loops, "array_gradients": array_gradients}


def write_function(name: str, folder: Path) -> None:
    """An inference model of a function of static variables."""
    paddle.enable_static()
    main, fed = paddle.static.Program(), floats(2, 3)
    with paddle.static.program_guard(main, paddle.static.Program()):
        x = paddle.static.data("x", [2, 3])
        fetches = FUNCTIONS[name](x)
        executor = paddle.static.Executor(paddle.CPUPlace())
        outputs = executor.run(main, feed={"x": fed}, fetch_list=fetches)
        paddle.static.save_inference_model(str(folder / name), [x], fetches, executor, program=main)
    keep(folder / name, [fed], outputs)
    paddle.disable_static()


# ------------------------------------------------------------------------------------------------------------- training
def regression() -> tuple[list[Any], Any, list[Any]]:
    x, y = paddle.static.data("x", [None, 4]), paddle.static.data("y", [None, 1])
    hidden = paddle.static.nn.fc(x, 3, activation="tanh")
    loss = paddle.mean((paddle.static.nn.fc(hidden, 1) - y) ** 2)
    paddle.optimizer.Adam(0.1).minimize(loss)
    return [x, y], loss, [floats(5, 4), floats(5, 1)]


def digits() -> tuple[list[Any], Any, list[Any]]:
    img, label = paddle.static.data("img", [None, 1, 8, 8]), paddle.static.data("label", [None, 1], "int64")
    net = nn.Sequential(
        nn.Conv2D(1, 2, 3), nn.BatchNorm2D(2), nn.ReLU(), nn.MaxPool2D(2, 2), nn.Flatten(), nn.Linear(18, 4), nn.LayerNorm(4)
    )
    loss = F.cross_entropy(net(img), label)
    paddle.optimizer.Momentum(0.1, weight_decay=1e-3).minimize(loss)
    return [img, label], loss, [floats(4, 1, 8, 8), np.int64([[0], [1], [2], [3]])]


def looped() -> tuple[list[Any], Any, list[Any]]:
    x = paddle.static.data("x", [None, 3])
    step = nn.Linear(3, 3)
    i, n = paddle.full([1], 0, "int64"), paddle.full([1], 3, "int64")
    x.stop_gradient = False
    _, y = paddle.static.nn.while_loop(lambda i, y: i < n, lambda i, y: [i + 1, paddle.tanh(step(y))], [i, x])
    z = paddle.static.nn.cond(y.sum() > 0, lambda: y * 2, lambda: step(y))
    loss = z.mean()
    paddle.optimizer.SGD(0.1).minimize(loss)
    return [x], loss, [floats(2, 3)]


PROGRAMS: dict[str, Any] = {"regression": regression, "digits": digits, "looped": looped}


def write_program(name: str, folder: Path) -> None:
    """A training program with its first values, and the losses of three steps."""
    paddle.enable_static()
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        paddle.seed(1)
        feeds, loss, fed = PROGRAMS[name]()
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(startup)
        paddle.static.save(main, str(folder / name))
        feed = {var.name: value for var, value in zip(feeds, fed, strict=True)}
        losses = [executor.run(main, feed=feed, fetch_list=[loss])[0] for _ in range(3)]
    keep(folder / name, fed, [np.array(losses)])
    paddle.disable_static()


def main(folder: str = "", *names: str) -> None:
    target = Path(folder or Path(__file__).parent / "paddle3")
    for name in names or [*LAYERS, *FUNCTIONS, *PROGRAMS]:
        (write_layer if name in LAYERS else write_function if name in FUNCTIONS else write_program)(name, target)
        print(name, [path.stat().st_size for path in sorted(target.glob(f"{name}.*"))])


if __name__ == "__main__":
    main(*sys.argv[1:])

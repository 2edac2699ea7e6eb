"""Makes `paddle_higher_orders.npz`: gradients of gradients in programs of Paddle 2.6. Run it where Paddle is installed.

For each case there are ``name.program``, the bytes of a program with gradients of up to the third order, ``name.fetch``, the
names of all of them, ``name.feed.variable`` and ``name.value.i``, what Paddle gives for them. Parameters are fed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

paddle.enable_static()
gradients = paddle.static.gradients
arrays: dict[str, Any] = {}
rng = np.random.default_rng(7)


def weighted(values: list[Any]) -> Any:
    """A number that depends on each element of these values in its own way, and not linearly."""
    return sum(paddle.sum(value * value * (1 + 0.1 * number)) for number, value in enumerate(values))


def case(name: str, function: Callable[..., Any], *shapes: list[int], order: int = 2, least: float = 0.5) -> None:
    main = paddle.static.Program()
    with paddle.static.program_guard(main, paddle.static.Program()):
        inputs = [paddle.static.data(f"x{number}", shape) for number, shape in enumerate(shapes)]
        for value in inputs:
            value.stop_gradient = False
        wanted: list[Any] = []
        total = weighted([function(*inputs)])
        for _ in range(order):
            found = [value for value in gradients([total], inputs) if value is not None]
            wanted += found
            total = weighted(found)
    feed = {value.name: rng.uniform(least, 1.5, shape).astype("float32") for value, shape in zip(inputs, shapes, strict=True)}
    fetch = [value.name for value in wanted]
    values = paddle.static.Executor(paddle.CPUPlace()).run(main, feed, fetch)
    ops = {op.type for op in main.global_block().ops}
    print(name, sorted(op for op in ops if "grad_grad" in op or "double" in op or "triple" in op))
    arrays[f"{name}.program"] = np.frombuffer(main.desc.serialize_to_string(), "uint8")
    arrays[f"{name}.fetch"] = np.array(fetch)
    arrays.update({f"{name}.feed.{key}": value for key, value in feed.items()})
    arrays.update({f"{name}.value.{number}": value for number, value in enumerate(values)})


UNARY: dict[str, Callable[[Any], Any]] = {
    "abs": paddle.abs,
    "celu": lambda x: F.celu(x, 0.7),
    "clip": lambda x: paddle.clip(x, -0.5, 0.9),
    "elu": lambda x: F.elu(x, 0.7),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "relu": F.relu,
    "softplus": lambda x: F.softplus(x, 2.0),
    "square": paddle.square,
    "pad3d": lambda x: F.pad(x, [1, 2], "constant", 0.3, data_format="NCL"),
    "reshape2": lambda x: paddle.reshape(x, [3, -1]),
    "pool2d": lambda x: F.avg_pool2d(paddle.unsqueeze(x, 0), 2, 1, 1),
}
for name, function in UNARY.items():
    case(name, function, [2, 3, 4], least=-1.5)
for name, function in {"log": paddle.log, "sqrt": paddle.sqrt, "rsqrt": paddle.rsqrt}.items():
    case(name, function, [2, 3])
THIRD: dict[str, Callable[[Any], Any]] = {
    "cos": paddle.cos,
    "sin": paddle.sin,
    "tanh": paddle.tanh,
    "sigmoid": F.sigmoid,
    "pow": lambda x: paddle.pow(x, 2.5),
}
for name, function in THIRD.items():
    case(name, function, [2, 3], order=3)
case("elementwise_add", lambda x, y: x + y, [2, 3, 4], [4], order=3)
case("elementwise_sub", lambda x, y: paddle.tanh(x - y), [2, 3, 4], [4])
case("elementwise_mul", lambda x, y: x * y, [2, 3], [2, 3], order=3)
case("elementwise_mul_of_row", lambda x, y: x * y, [2, 3, 4], [4])
case("elementwise_div", lambda x, y: x / y, [2, 3], [2, 3])
case("elementwise_div_by_row", lambda x, y: x / y, [2, 3, 4], [4])
case("matmul_v2", paddle.matmul, [2, 3], [3, 4], order=3)
case("matmul_v2_transposed", lambda x, y: paddle.matmul(x, y, True, True), [3, 2], [4, 3], order=3)
case("matmul_v2_of_batches", paddle.matmul, [2, 2, 3], [3, 4])
case("conv2d", lambda x, y: F.conv2d(x, y, stride=2, padding=1), [2, 2, 5, 5], [3, 2, 3, 3])
case("conv2d_of_groups", lambda x, y: F.conv2d(x, y, padding=1, groups=2), [2, 4, 4, 4], [4, 2, 3, 3])
case("conv3d", lambda x, y: F.conv3d(x, y, padding=1), [1, 2, 3, 3, 3], [2, 2, 2, 2, 2])
case("instance_norm", lambda x, y: F.instance_norm(x, weight=y, bias=y * 0.5) * x, [2, 2, 3, 4], [2])


def batch_normal(x: Any, y: Any) -> Any:
    """With running statistics that are computed, as parameters would have to be initialized."""
    mean, variance = paddle.zeros([2]), paddle.ones([2])
    mean.stop_gradient = variance.stop_gradient = True
    return F.batch_norm(x, mean, variance, weight=y, bias=y * 0.5, training=True) * x


case("batch_norm", batch_normal, [3, 2, 2, 2], [2])
case(
    "penalty",
    lambda x, y: paddle.sqrt(paddle.sum(paddle.square(gradients([F.leaky_relu(x @ y, 0.2)], [x])[0]))) * x,
    [3, 4],
    [4, 2],
)
case("bilinear_without_bias", F.bilinear, [2, 3], [2, 4], [3, 3, 4], order=1)  # beside them: one of the first order

np.savez_compressed(Path(__file__).with_name("paddle_higher_orders.npz"), **arrays)

"""Systems that compute the models of workloads.py: Fluid, torch eager and compiled, jax, onnxruntime.

Each has the ops that models are written with, by the best means that the system has for them, and makes a step of a workload: a
function that trains once and returns the loss, or predicts and returns the mean of absolute values. Libraries are imported when
a system is asked for.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import math
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from workloads import Workload

Step = Callable[[], float]
MOMENTUM = 0.9
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class Unfit(Exception):
    """Why a system does not take part."""


# -------------------------------------------------------------------------------------------------------------- Fluid
class FluidOps:
    """Parameters are names; their values are set after the startup program."""

    def __init__(self, first: Any) -> None:
        import fluid

        self.fluid, self.layers = fluid, fluid.layers
        self.values = dict(first)
        self._created: dict[str, Any] = {}

    def attr(self, name: str) -> Any:
        return self.fluid.ParamAttr(name=name, initializer=self.fluid.initializer.Constant(0.0))

    def data(self, batch: Any, name: str) -> Any:
        return self.fluid.data(name, batch[name].shape, batch[name].dtype.name)

    image = data

    def value(self, name: str) -> Any:
        if name not in self._created:
            shape = list(self.values[name].shape)
            initializer = self.fluid.initializer.Constant(0.0)
            self._created[name] = self.layers.create_parameter(shape, "float32", name, default_initializer=initializer)
        return self._created[name]

    def linear(self, x: Any, p: Any, name: str, act: str | None = None) -> Any:
        size, wide = self.values[f"{name}.w"].shape[1], 2 if len(x.shape) == 3 else 1
        return self.layers.fc(x, size, wide, self.attr(f"{name}.w"), self.attr(f"{name}.b"), act)

    def conv(self, x: Any, p: Any, name: str, stride: int = 1, padding: int = 0, groups: int = 1, act: str | None = None) -> Any:
        filters, _, size, _ = self.values[f"{name}.w"].shape
        bias = self.attr(f"{name}.b") if f"{name}.b" in self.values else False
        return self.layers.conv2d(
            x, filters, size, stride, padding, groups=groups, param_attr=self.attr(f"{name}.w"), bias_attr=bias, act=act
        )

    def batch_norm(self, x: Any, p: Any, name: str, act: str | None = None) -> Any:
        return self.layers.batch_norm(x, act, param_attr=self.attr(f"{name}.scale"), bias_attr=self.attr(f"{name}.shift"))

    def max_pool(self, x: Any, size: int, stride: int, padding: int = 0) -> Any:
        return self.layers.pool2d(x, size, "max", stride, padding)

    def global_pool(self, x: Any) -> Any:
        return self.layers.pool2d(x, pool_type="avg", global_pooling=True)

    def flat(self, x: Any) -> Any:
        return x

    def matmul(self, a: Any, b: Any) -> Any:
        return self.layers.matmul(a, b)

    def tanh(self, x: Any) -> Any:
        return self.layers.tanh(x)

    def relu(self, x: Any) -> Any:
        return self.layers.relu(x)

    def mean(self, x: Any) -> Any:
        return self.layers.mean(x)

    def embedding(self, ids: Any, p: Any, name: str, is_sparse: bool = False) -> Any:
        return self.fluid.embedding(ids, self.values[name].shape, is_sparse, param_attr=self.attr(name))

    def layer_norm(self, x: Any, p: Any, name: str) -> Any:
        return self.layers.layer_norm(
            x, begin_norm_axis=2, param_attr=self.attr(f"{name}.scale"), bias_attr=self.attr(f"{name}.shift")
        )

    def attention(self, queries: Any, keys: Any, values: Any, heads: int) -> Any:
        return self.fluid.nets.multi_head_attention(queries, keys, values, heads)

    def last_of_lstm(self, x: Any, p: Any, name: str, hidden: int) -> Any:
        parts = (self.values.pop(f"{name}.{part}") for part in ("input", "hidden", "input_bias", "hidden_bias"))
        self.values[f"{name}.w_0"] = np.concatenate([part.reshape(-1) for part in parts])
        state = self.layers.fill_constant([1, x.shape[1], hidden], "float32", 0.0)
        _, last, _ = self.layers.lstm(x, state, state, x.shape[0], hidden, 1, name=name)
        return self.layers.reshape(last, [-1, hidden])

    def cross_entropy(self, logits: Any, label: Any) -> Any:
        return self.layers.mean(self.layers.softmax_with_cross_entropy(logits, label))


class _Names(dict[str, str]):
    """Parameters that stand for themselves by name."""

    def __missing__(self, name: str) -> str:
        return name


Wrapper = Callable[[Any], Any]
"""Given an optimizer, returns the one to train with."""


def fluid_program(
    workload: Workload, place: Any = None, trained_by: Wrapper = lambda optimizer: optimizer
) -> tuple[Any, Any, Any, Any]:
    """An executor, the program, its fetches, and the scope with the first values."""
    import fluid

    batch = dict(workload.batch())
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ops = FluidOps(workload.first())
        out = workload.model(ops, _Names(), batch)
        if workload.optimizer is not None:
            kind, rate = workload.optimizer
            optimizers = {
                "sgd": lambda: fluid.optimizer.SGD(rate),
                "momentum": lambda: fluid.optimizer.Momentum(rate, MOMENTUM),
                "adam": lambda: fluid.optimizer.Adam(rate, BETA1, BETA2, EPSILON),
            }
            trained_by(optimizers[kind]()).minimize(out)
    executor = fluid.Executor(place)
    executor.run(startup, scope=scope)
    for name, value in ops.values.items():
        scope.find_var(name).get_tensor().set(value)
    return executor, main, out, scope


def _from_file(executor: Any, main: Any, feeds: list[str], out: Any, scope: Any) -> tuple[Any, Any]:
    """A prediction program and its fetches, saved and loaded; its weights replace those in the scope."""
    import fluid

    with tempfile.TemporaryDirectory() as folder, fluid.scope_guard(scope):
        fluid.io.save_inference_model(folder, feeds, [out], executor, main, params_filename="weights")
        program, _, fetches = fluid.io.load_inference_model(folder, executor, params_filename="weights")
    return program, fetches


def fluid_step(workload: Workload, place: Any = None, trained_by: Wrapper = lambda optimizer: optimizer) -> Step:
    executor, main, out, scope = fluid_program(workload, place, trained_by)
    batch = dict(workload.batch())
    if workload.optimizer is None:
        main, (out,) = _from_file(executor, main, list(batch), out, scope)
        return lambda: float(np.abs(executor.run(main, batch, [out], scope=scope)[0]).mean())
    return lambda: executor.run(main, batch, [out], scope=scope)[0].item()


# -------------------------------------------------------------------------------------------------------------- torch
class TorchOps:
    """Parameters are leaves, in Fluid's layout: of a matrix, rows are inputs."""

    def __init__(self) -> None:
        import torch

        self.torch, self.functional = torch, torch.nn.functional
        self.statistics: dict[str, tuple[Any, Any]] = {}
        """The running mean and variance of each norm."""

    def data(self, batch: Any, name: str) -> Any:
        return batch[name]

    image = data

    def value(self, parameter: Any) -> Any:
        return parameter

    def _activated(self, x: Any, act: str | None) -> Any:
        return x if act is None else {"relu": self.torch.relu, "relu6": self.functional.relu6}[act](x)

    def linear(self, x: Any, p: Any, name: str, act: str | None = None) -> Any:
        return self._activated(self.functional.linear(x, p[f"{name}.w"].t(), p[f"{name}.b"]), act)

    def conv(self, x: Any, p: Any, name: str, stride: int = 1, padding: int = 0, groups: int = 1, act: str | None = None) -> Any:
        return self._activated(self.functional.conv2d(x, p[f"{name}.w"], p.get(f"{name}.b"), stride, padding, groups=groups), act)

    def batch_norm(self, x: Any, p: Any, name: str, act: str | None = None) -> Any:
        scale, shift = p[f"{name}.scale"], p[f"{name}.shift"]
        if name not in self.statistics:
            self.statistics[name] = self.torch.zeros(len(scale)), self.torch.ones(len(scale))
        mean, variance = self.statistics[name]
        return self._activated(self.functional.batch_norm(x, mean, variance, scale, shift, True, 1 - MOMENTUM), act)

    def max_pool(self, x: Any, size: int, stride: int, padding: int = 0) -> Any:
        return self.functional.max_pool2d(x, size, stride, padding)

    def global_pool(self, x: Any) -> Any:
        return x.mean((2, 3))

    def flat(self, x: Any) -> Any:
        return x.flatten(1)

    def matmul(self, a: Any, b: Any) -> Any:
        return a @ b

    def tanh(self, x: Any) -> Any:
        return self.torch.tanh(x)

    def relu(self, x: Any) -> Any:
        return self.torch.relu(x)

    def mean(self, x: Any) -> Any:
        return x.mean()

    def embedding(self, ids: Any, p: Any, name: str, is_sparse: bool = False) -> Any:
        return self.functional.embedding(ids, p[name], sparse=is_sparse)

    def layer_norm(self, x: Any, p: Any, name: str) -> Any:
        return self.functional.layer_norm(x, x.shape[-1:], p[f"{name}.scale"], p[f"{name}.shift"])

    def attention(self, queries: Any, keys: Any, values: Any, heads: int) -> Any:
        parts = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (queries, keys, values))
        return self.functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2)

    def last_of_lstm(self, x: Any, p: Any, name: str, hidden: int) -> Any:
        state = x.new_zeros(1, x.shape[1], hidden)
        weights = [p[f"{name}.{part}"] for part in ("input", "hidden", "input_bias", "hidden_bias")]
        return self.torch.lstm(x, (state, state), weights, True, 1, 0.0, True, False, False)[1][0]

    def cross_entropy(self, logits: Any, label: Any) -> Any:
        return self.functional.cross_entropy(logits.flatten(0, -2), label.flatten())


def torch_step(workload: Workload, compiled: bool = False) -> Step:
    """A step on torch's default device, and its result."""
    start = start_torch(workload, compiled)
    return lambda: start().item()


def start_torch(workload: Workload, compiled: bool = False, batch: Any = None) -> Callable[[], Any]:
    """A function that starts a step on the tensors in `batch`, by name; on torch's default device."""
    import torch

    ops = TorchOps()
    if batch is None:
        batch = {name: torch.tensor(value) for name, value in workload.batch().items()}
    is_trained = workload.optimizer is not None
    p = {name: torch.tensor(value, requires_grad=is_trained) for name, value in workload.first().items()}

    def out_of() -> Any:
        return workload.model(ops, p, batch)

    if compiled:
        if workload.sparse:
            raise Unfit("it has no sparse gradients")
        out_of()  # makes what norms keep
        out_of = torch.compile(out_of, dynamic=False)
        try:
            out_of()
        except Exception as error:  # of whatever kind: not every model that runs can be compiled
            raise Unfit(f"it cannot compile this: {type(error).__name__}") from error
    if workload.optimizer is None:

        def predict() -> Any:
            with torch.no_grad():
                return out_of().abs().mean()

        return predict
    kind, rate = workload.optimizer
    fused = {} if workload.sparse else {"fused": True}
    optimizer = {
        "sgd": lambda: torch.optim.SGD(p.values(), rate, **fused),
        "momentum": lambda: torch.optim.SGD(p.values(), rate, MOMENTUM, **fused),
        "adam": lambda: torch.optim.Adam(p.values(), rate, (BETA1, BETA2), EPSILON, **fused),
    }[kind]()

    def step() -> Any:
        loss = out_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def compiled_step(workload: Workload) -> Step:
    return torch_step(workload, compiled=True)


# ---------------------------------------------------------------------------------------------------------------- jax
class JaxOps:
    """Images are kept with their channels last, filters ``[height, width, channels, filters]``, as XLA likes them on the CPU.

    Norms keep no running statistics, which no loss depends on.
    """

    def __init__(self) -> None:
        import jax

        self.jax, self.numpy = jax, jax.numpy

    def data(self, batch: Any, name: str) -> Any:
        return batch[name]

    def image(self, batch: Any, name: str) -> Any:
        return batch[name].transpose(0, 2, 3, 1)

    def value(self, parameter: Any) -> Any:
        return parameter

    def _activated(self, x: Any, act: str | None) -> Any:
        return x if act is None else {"relu": self.jax.nn.relu, "relu6": self.jax.nn.relu6}[act](x)

    def linear(self, x: Any, p: Any, name: str, act: str | None = None) -> Any:
        return self._activated(x @ p[f"{name}.w"] + p[f"{name}.b"], act)

    def conv(self, x: Any, p: Any, name: str, stride: int = 1, padding: int = 0, groups: int = 1, act: str | None = None) -> Any:
        out = self.jax.lax.conv_general_dilated(
            x,
            p[f"{name}.w"],
            (stride, stride),
            [(padding, padding)] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )
        return self._activated(out + p[f"{name}.b"] if f"{name}.b" in p else out, act)

    def batch_norm(self, x: Any, p: Any, name: str, act: str | None = None) -> Any:
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        scale = p[f"{name}.scale"] * self.jax.lax.rsqrt(variance + 1e-5)
        return self._activated((x - mean) * scale + p[f"{name}.shift"], act)

    def max_pool(self, x: Any, size: int, stride: int, padding: int = 0) -> Any:
        window, steps = (1, size, size, 1), (1, stride, stride, 1)
        edges = ((0, 0), (padding, padding), (padding, padding), (0, 0))
        return self.jax.lax.reduce_window(x, -self.numpy.inf, self.jax.lax.max, window, steps, edges)

    def global_pool(self, x: Any) -> Any:
        return x.mean((1, 2))

    def flat(self, x: Any) -> Any:
        return x.transpose(0, 3, 1, 2).reshape(len(x), -1)

    def matmul(self, a: Any, b: Any) -> Any:
        return a @ b

    def tanh(self, x: Any) -> Any:
        return self.numpy.tanh(x)

    def relu(self, x: Any) -> Any:
        return self.jax.nn.relu(x)

    def mean(self, x: Any) -> Any:
        return x.mean()

    def embedding(self, ids: Any, p: Any, name: str, is_sparse: bool = False) -> Any:
        return p[name] if ids is None else p[name][ids]  # of a sparse gradient, the rows themselves are the parameter

    def layer_norm(self, x: Any, p: Any, name: str) -> Any:
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) * self.jax.lax.rsqrt(variance + 1e-5) * p[f"{name}.scale"] + p[f"{name}.shift"]

    def attention(self, queries: Any, keys: Any, values: Any, heads: int) -> Any:
        parts = (part.reshape(*part.shape[:2], heads, -1) for part in (queries, keys, values))
        return self.jax.nn.dot_product_attention(*parts).reshape(queries.shape)

    def last_of_lstm(self, x: Any, p: Any, name: str, hidden: int) -> Any:
        sums = x @ p[f"{name}.input"].T + p[f"{name}.input_bias"] + p[f"{name}.hidden_bias"]
        weight, sigmoid, tanh = p[f"{name}.hidden"].T, self.jax.nn.sigmoid, self.numpy.tanh

        def step(state: Any, sums: Any) -> Any:
            h, cell = state
            i, f, g, out = self.numpy.split(sums + h @ weight, 4, 1)
            cell = sigmoid(f) * cell + sigmoid(i) * tanh(g)
            return (sigmoid(out) * tanh(cell), cell), None

        zeros = self.numpy.zeros((x.shape[1], hidden))
        return self.jax.lax.scan(step, (zeros, zeros), sums)[0][0]

    def cross_entropy(self, logits: Any, label: Any) -> Any:
        return -self.numpy.take_along_axis(self.jax.nn.log_softmax(logits), label, -1).mean()


class Bfloat16JaxOps(JaxOps):
    """Products in bfloat16, of parameters in float32; norms and losses in float32."""

    def _half(self, value: Any) -> Any:
        return value.astype("bfloat16")

    def linear(self, x: Any, p: Any, name: str, act: str | None = None) -> Any:
        halves = {key: self._half(p[key]) for key in (f"{name}.w", f"{name}.b")}
        return super().linear(self._half(x), halves, name, act)

    def conv(self, x: Any, p: Any, name: str, stride: int = 1, padding: int = 0, groups: int = 1, act: str | None = None) -> Any:
        halves = {key: self._half(p[key]) for key in (f"{name}.w", f"{name}.b") if key in p}
        return super().conv(self._half(x), halves, name, stride, padding, groups, act)

    def matmul(self, a: Any, b: Any) -> Any:
        return self._half(a) @ self._half(b)

    def batch_norm(self, x: Any, p: Any, name: str, act: str | None = None) -> Any:
        return super().batch_norm(x.astype("float32"), p, name, act)

    def layer_norm(self, x: Any, p: Any, name: str) -> Any:
        return super().layer_norm(x.astype("float32"), p, name)

    def attention(self, queries: Any, keys: Any, values: Any, heads: int) -> Any:
        return super().attention(*map(self._half, (queries, keys, values)), heads)

    def cross_entropy(self, logits: Any, label: Any) -> Any:
        return super().cross_entropy(logits.astype("float32"), label)


def jax_step(workload: Workload) -> Step:
    import jax.numpy as jnp

    batch = {name: jnp.asarray(value) for name, value in workload.batch().items()}
    if workload.optimizer is None:
        predict, p = jax_prediction(workload)
        return lambda: float(predict(p, batch))
    return jax_training_step(*jax_training(workload), batch)


def jax_training_step(run: Any, p: Any, state: Any, batch: Any) -> Step:
    """A step of `jax_training`, fed the same batch each time."""

    def step() -> float:
        nonlocal p, state
        loss, p, state = run(p, state, batch)
        return float(loss)

    return step


def _jax_parameters(workload: Workload) -> Any:
    import jax.numpy as jnp

    return {
        name: jnp.asarray(value.transpose(2, 3, 1, 0) if value.ndim == 4 else value) for name, value in workload.first().items()
    }


def jax_prediction(workload: Workload) -> tuple[Any, Any]:
    """A jitted function of parameters and a batch, and the parameters."""
    import jax
    import jax.numpy as jnp

    ops = JaxOps()
    return jax.jit(lambda p, batch: jnp.abs(workload.model(ops, p, batch)).mean()), _jax_parameters(workload)


def jax_training(workload: Workload, ops: Any = None) -> tuple[Any, Any, Any]:
    """A jitted function of parameters, the optimizer's state and a batch, which gives the loss and what becomes of the first two;
    and their first values."""
    import jax
    import jax.numpy as jnp

    ops, p = ops or JaxOps(), _jax_parameters(workload)

    def out_of(p: Any, batch: Any) -> Any:
        return workload.model(ops, p, batch)

    assert workload.optimizer is not None
    kind, rate = workload.optimizer
    zeros = jax.tree.map(jnp.zeros_like, p)
    state: Any = {
        "sgd": (),
        "momentum": zeros,
        "adam": (zeros, jax.tree.map(jnp.zeros_like, p), jnp.zeros(())),
    }[kind]

    def updated(p: Any, grads: Any, state: Any) -> Any:
        if kind == "sgd":
            return jax.tree.map(lambda a, g: a - rate * g, p, grads), state
        if kind == "momentum":
            state = jax.tree.map(lambda v, g: MOMENTUM * v + g, state, grads)
            return jax.tree.map(lambda a, v: a - rate * v, p, state), state
        first, second, count = state
        count = count + 1
        first = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, first, grads)
        second = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, second, grads)
        rest1, rest2 = (-jnp.expm1(count * math.log(beta)) for beta in (BETA1, BETA2))  # 1 - beta ** count
        scale = rate * jnp.sqrt(rest2) / rest1
        p = jax.tree.map(lambda a, m, v: a - scale * m / (jnp.sqrt(v) + EPSILON * jnp.sqrt(rest2)), p, first, second)
        return p, (first, second, count)

    def train(p: Any, state: Any, batch: Any) -> Any:
        if workload.sparse is None:
            loss, grads = jax.value_and_grad(out_of)(p, batch)
            return loss, *updated(p, grads, state)
        table, ids = p[workload.sparse], batch["ids"]
        loss, grad = jax.value_and_grad(lambda rows: workload.model(ops, {workload.sparse: rows}, {**batch, "ids": None}))(
            table[ids]
        )
        return loss, {workload.sparse: table.at[ids].add(-rate * grad)}, state

    return jax.jit(train, donate_argnums=(0, 1)), p, state


# -------------------------------------------------------------------------------------------------------- onnxruntime
class _Node:
    """A value of an ONNX graph: its name, and the graph that it is in."""

    def __init__(self, ops: OnnxOps, name: str) -> None:
        self.ops, self.name = ops, name

    def __add__(self, other: _Node) -> _Node:
        return self.ops.node("Add", [self, other])


class OnnxOps:
    """Ops of prediction models that add nodes to an ONNX graph."""

    def __init__(self, first: Any) -> None:
        from onnx import helper, numpy_helper

        self.helper = helper
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.weights = [numpy_helper.from_array(value, name) for name, value in first.items()]

    def node(self, kind: str, inputs: list[Any], **attributes: Any) -> _Node:
        out = f"{kind}_{len(self.nodes)}"
        names = [value.name if isinstance(value, _Node) else value for value in inputs]
        self.nodes.append(self.helper.make_node(kind, names, [out], **attributes))
        return _Node(self, out)

    def image(self, batch: Any, name: str) -> _Node:
        self.inputs.append(self.helper.make_tensor_value_info(name, 1, batch[name].shape))
        return _Node(self, name)

    def _activated(self, x: _Node, act: str | None) -> _Node:
        if act == "relu6":
            return self.node("Clip", [x, *map(self._constant, (0.0, 6.0))])
        return x if act is None else self.relu(x)

    def _constant(self, number: float) -> _Node:
        return self.node("Constant", [], value_float=number)

    def relu(self, x: _Node) -> _Node:
        return self.node("Relu", [x])

    def linear(self, x: _Node, p: Any, name: str, act: str | None = None) -> _Node:
        return self._activated(self.node("Gemm", [x, f"{name}.w", f"{name}.b"]), act)

    def conv(
        self, x: _Node, p: Any, name: str, stride: int = 1, padding: int = 0, groups: int = 1, act: str | None = None
    ) -> _Node:
        edges, steps = [padding] * 4, [stride] * 2
        return self._activated(self.node("Conv", [x, f"{name}.w", f"{name}.b"], group=groups, pads=edges, strides=steps), act)

    def max_pool(self, x: _Node, size: int, stride: int, padding: int = 0) -> _Node:
        return self.node("MaxPool", [x], kernel_shape=[size] * 2, strides=[stride] * 2, pads=[padding] * 4)

    def global_pool(self, x: _Node) -> _Node:
        return self.node("Flatten", [self.node("GlobalAveragePool", [x])])


def onnx_step(workload: Workload) -> Step:
    if workload.optimizer is not None:
        raise Unfit("it does not train")
    import onnxruntime

    ops, batch = OnnxOps(workload.first()), dict(workload.batch())
    out = workload.model(ops, None, batch)
    results = [ops.helper.make_tensor_value_info(out.name, 1, None)]
    graph = ops.helper.make_graph(ops.nodes, "model", ops.inputs, results, ops.weights)
    model = ops.helper.make_model(graph, opset_imports=[ops.helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return lambda: float(np.abs(session.run(None, batch)[0]).mean())


def numpy_step(workload: Workload) -> Step:
    if workload.hand_written is None:
        raise Unfit("not written by hand")
    return workload.hand_written(workload.first(), workload.batch())


PEERS: dict[str, tuple[str, str, Callable[[Workload], Step]]] = {
    "fluid": ("Fluid", "fluid", fluid_step),
    "torch": ("torch", "torch", torch_step),
    "compile": ("torch.compile", "torch", compiled_step),
    "jax": ("jax", "jax", jax_step),
    "onnx": ("onnxruntime", "onnxruntime", onnx_step),
    "numpy": ("numpy by hand", "numpy", numpy_step),
}
"""By name: how it is called in tables, what is imported for it, and what makes a step."""


def load(name: str) -> None:
    """Import the library of a system; `Unfit` if it is not installed."""
    module = PEERS[name][1]
    if importlib.util.find_spec(module) is None:
        raise Unfit(f"{module} is not installed")
    importlib.import_module(module)


def step_of(name: str, workload: Workload) -> Step:
    """A system's step of a workload; `Unfit` if it has none."""
    load(name)
    return PEERS[name][2](workload)


def versions() -> str:
    """The installed versions of jax, onnxruntime and llvmlite."""
    found = []
    for name in ("jax", "onnxruntime", "llvmlite"):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)

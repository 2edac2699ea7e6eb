"""Nothing of a tensor is lost on a trace: whatever is called with it becomes part of the program, or is refused.

Each case is traced with one example and called with another; where it was not refused with the user's line, it is to give what it
gives without a trace. The tables must name everything public that there is.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph, layers
from fluid.dygraph import Tensor, ops
from fluid.errors import FluidError

EXAMPLE = np.array([[0.5, 0.25, 0.75], [0.125, 1.0, 0.875]], "float32")
OTHER = np.array([[0.75, 0.5, 1.5], [2.0, 0.375, 0.25]], "float32")
SLOPE = np.array([[1.0, -2.0, 3.0], [0.5, 1.0, -1.0]], "float32")
_UNARY = """
abs ceil cos erf exp floor gelu leaky_relu log log1p log_softmax reciprocal relu round rsqrt sigmoid sign sin softmax
softplus sqrt square tanh
"""
_ABOUT = """
block device dtype error_clip gradient_clip_attr has_dtype has_shape is_data is_leaf lod_level name ndim optimize_attr output_nr
persistable regularizer shape size type
"""
_PYTHONS = """
__annotations__ __dict__ __dlpack_device__ __getattr__ __module__ __slots__ __weakref__ __hash__
"""
_NO_FUNCTIONS = """
AccumulateGrad AmpScaler BackwardStrategy CosineDecay Edge Env ParallelEnv ExponentialDecay InverseTimeDecay LayerList LayerOf
GradScaler InputSpec LearningRateDecay NaturalExpDecay Node NoamDecay ParallelStrategy ParameterList PiecewiseDecay
PolynomialDecay WEIGHT_NAMES WeightReport LambdaDecay LinearLrWarmup MultiStepDecay
ProgramTranslator ReduceLROnPlateau StaticModelRunner StepDecay TranslatedLayer
PyLayerContext RowConv SequenceConv amp_guard compile detect_anomaly disable_dygraph enable_dygraph enabled get_num_threads guard
is_grad_enabled jit load_dygraph prepare_context once_differentiable queue_callback saved_tensors_hooks set_detect_anomaly
set_num_threads
"""


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield


class Cube(dygraph.PyLayer):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        (x,) = ctx.saved_tensor()
        return dy * x * 7.0


def after(change: Any) -> Any:
    """A copy, and the tensor that it was computed from, after a change in place."""

    def call(x: Tensor) -> Any:
        y = x * 1.0
        given = change(y)
        return (y, x) if given is None or given is y else (y, given)

    return call


def with_gradient(function: Any) -> Any:
    """A function of a tensor that asks for a gradient, and its gradient."""

    def call(x: Tensor) -> Any:
        point = x * 1.0
        point.stop_gradient = False
        y = function(point)
        return y, dygraph.grad(y.sum(), point)[0]

    return call


def kept(x: Tensor) -> Any:
    """A hook's gradient."""
    point = x * 1.0
    point.stop_gradient = False
    y = point * x
    y.register_hook(lambda grad: grad * 5.0)
    return dygraph.grad((y * y).sum(), point)[0]


def accumulated(x: Tensor) -> None:
    x.register_post_accumulate_grad_hook(lambda leaf: None)


def cut(x: Tensor) -> Any:
    point = x * 1.0
    point.stop_gradient = False
    y = point * point
    y.stop_gradient = True
    return dygraph.grad((y * point).sum(), point)[0]


def backward_of(x: Tensor, call: Any) -> Any:
    point = x * 1.0
    point.stop_gradient = False
    point.retain_grads()
    call((point * x).sum())
    return point.grad


def node(x: Tensor) -> Any:
    point = x * 1.0
    point.stop_gradient = False
    with dygraph.no_grad():
        weight = x * 2.0
    function = (point * x).tanh().grad_fn
    with dygraph.no_grad():
        return function(weight)


def trip(x: Tensor) -> Any:
    return layers.while_loop(lambda i, y: y.sum() < 50.0, lambda i, y: [i + 1, y * 1.5], [Tensor([0]), x])


def saved(x: Tensor) -> Any:
    dygraph.save_dygraph({"x": x}, "/nonexistent/x")
    return x


def assigned(item: Any, value: Any) -> Any:
    def change(y: Tensor) -> None:
        y[item] = value(y) if callable(value) else value

    return after(change)


def augmented(statement: str) -> Any:
    def change(y: Tensor) -> Any:
        known = {"y": y, "y_": y, "half": 0.5}
        exec(statement, known)
        return known["y"]

    return after(change)


METHODS: dict[str, Any] = {
    "T": lambda x: x.T,
    "astype": lambda x: (x * 4.0).astype("int64"),
    "backward": lambda x: backward_of(x, lambda y: y.backward()),
    "clear_gradient": lambda x: (x.clear_gradient(), x)[1],
    "clone": lambda x: x.clone() + 1.0,
    "detach": lambda x: with_gradient(lambda p: p.detach() * p)(x),
    "get_tensor": lambda x: Tensor(np.asarray(x.get_tensor())),
    "describe": lambda x: x if x.describe() == "float32[2, 3]" else -x,
    "grad": lambda x: x if x.grad is None else -x,
    "gradient": lambda x: x if x.gradient() is None else -x,
    "grad_fn": node,
    "item": lambda x: x * x.item(0, 1),
    "lod": lambda x: x if x.lod == () else -x,
    "matmul": lambda x: x.matmul(x.transpose()),
    "numpy": lambda x: Tensor(x.numpy()),
    "program": lambda x: x if x.program() is not None else -x,
    "register_hook": kept,
    "requires_grad": lambda x: (setattr(x, "requires_grad", True), dygraph.grad((x * x).sum(), x)[0])[1],
    "retain_grads": lambda x: with_gradient(lambda p: (q := p * 2.0, q.retain_grads(), q * q)[2])(x),
    "reshape": lambda x: x.reshape(3, -1),
    "stop_gradient": cut,
    "squeeze": lambda x: x.unsqueeze(1).squeeze(1),
    "tolist": lambda x: x * x.tolist()[0][0],
    "trainable": lambda x: (setattr(x, "trainable", True), dygraph.grad((x * x).sum(), x)[0])[1],
    "transpose": lambda x: x.transpose(1, 0),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "version": after(lambda y: (y.zero_(), y + float(y.version))[1]),
    "to_string": lambda x: x if x.to_string(True) == repr(x) else -x,
    "value": lambda x: x.value() * 2.0,
    "with_lod": lambda x: layers.sequence_pool(x.with_lod(((0, 2),)), "sum"),
    "add_": after(lambda y: y.add_(y * 2.0)),
    "sub_": after(lambda y: y.sub_(1.0)),
    "mul_": after(lambda y: y.mul_(y)),
    "div_": after(lambda y: y.div_(y + 1.0)),
    "scale_": after(lambda y: y.scale_(3.0, 1.0)),
    "fill_": after(lambda y: y.fill_(3.0)),
    "zero_": after(lambda y: y.zero_()),
    "copy_": after(lambda y: y.copy_(y * 3.0)),
    "set_value": after(lambda y: y.set_value(y * 3.0)),
    "pow_": after(lambda y: y.pow_(2.0)),
    "clip_": after(lambda y: y.clip_(0.4, 1.0)),
    "masked_fill_": after(lambda y: y.masked_fill_(y > 0.5, 3.0)),
    "scatter_": after(lambda y: y.scatter_(Tensor([1]), y[:1] * 2.0)),
    "detach_": lambda x: with_gradient(lambda p: (p * 2.0).detach_() * p)(x),
    "requires_grad_": lambda x: dygraph.grad((x.requires_grad_() * x).sum(), x)[0],
    "retain_grad": lambda x: with_gradient(lambda p: (q := p * 2.0, q.retain_grad(), q * q)[2])(x),
    "retains_grad": lambda x: -x if x.retains_grad else x,
    "register_post_accumulate_grad_hook": lambda x: with_gradient(lambda p: (accumulated(p), p * p)[1])(x),
    **{name: (lambda x, name=name: getattr(x, name)(1)) for name in ("sum", "mean", "max", "min", "prod")},
    **{name: (lambda x, name=name: getattr(x, name)()) for name in _UNARY.split()},
    "argmax": lambda x: x.argmax(1),
    "argmin": lambda x: x.argmin(),
    "argsort": lambda x: x.argsort(0),
    "topk": lambda x: x.topk(2),
    "var": lambda x: x.var(1),
    "std": lambda x: x.std(),
    "view": lambda x: x.view(3, -1),
    "permute": lambda x: x.permute(1, 0),
    "flatten": lambda x: x.flatten(),
    "expand": lambda x: x.expand(2, 2, 3),
    "expand_as": lambda x: x[:1].expand_as(x),
    "clip": lambda x: x.clip(0.4, 1.0),
    "clamp": lambda x: x.clamp(max=1.0),
    "to": lambda x: x.to("float64"),
    "cpu": lambda x: x.cpu() * 2.0,
    "dim": lambda x: x * float(x.dim()),
    "numel": lambda x: x * float(x.numel()),
    "cumsum": lambda x: x.cumsum(1),
    "any": lambda x: (x > 0.5).any(1),
    "all": lambda x: (x > 0.5).all(),
    "mm": lambda x: x.mm(x.T),
    **{name: (lambda x, name=name: getattr(x, name)()) for name in ("bool", "double", "float", "half", "int", "long")},
    **{name: (lambda x, name=name: getattr(x, name)(x * 2.0)) for name in ("add", "sub", "mul", "div", "pow", "eq", "ne")},
    **{name: (lambda x, name=name: getattr(x, name)(0.5)) for name in ("lt", "le", "gt", "ge")},
    **{name: (lambda x, name=name: getattr(x, name)(x.T)) for name in ("bmm", "dot")},
    **{name: (lambda x, name=name: getattr(x, name)()) for name in ("contiguous", "copy", "norm", "ravel", "t", "tril", "triu")},
    **{name: (lambda x, name=name: getattr(x, name)()) for name in ("isfinite", "isinf", "isnan")},
    "chunk": lambda x: x.chunk(2, 1),
    "flip": lambda x: x.flip(1),
    "index_select": lambda x: x.index_select(1, Tensor(np.array([1, 0]))),
    "is_cuda": lambda x: -x if x.is_cuda else x,
    "masked_fill": lambda x: x.masked_fill(x > 0.5, 2.0),
    "masked_select": lambda x: x.masked_select(x > 0.5),
    "sort": lambda x: x.sort(),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "tile": lambda x: x.tile(2, 1),
    "type_as": lambda x: x.type_as(x.double()),
    "unbind": lambda x: x.unbind(1),
    "where": lambda x: x.where(x > 0.5, -1.0),
    "__abs__": abs,
    "__add__": lambda x: x + x * 2.0,
    "__and__": lambda x: (x > 0.4) & (x < 1.0),
    "__array__": lambda x: Tensor(np.asarray(x)),
    "__array_function__": lambda x: np.sum(x, axis=0),
    "__array_ufunc__": lambda x: (np.exp(x), EXAMPLE * x),
    "__array_namespace__": lambda x: x.__array_namespace__().sin(x),
    "__bool__": lambda x: x if x.sum() > 4.0 else -x,
    "__deepcopy__": lambda x: copy.deepcopy(x) * 2.0,
    "__divmod__": lambda x: divmod(x, x * 0.3),
    "__dlpack__": lambda x: Tensor(np.from_dlpack(x)),
    "__float__": lambda x: x * float(x[0, 0]),
    "__floordiv__": lambda x: x // 0.3,
    "__getitem__": lambda x: (x[0], x[:, 1:], x[..., ::2], x[[1, 0]], x[None]),
    "__index__": lambda x: [x, -x][(x[0, 0] * 2.0).astype("int64")],
    "__int__": lambda x: x * int(x[0, 0] * 4.0),
    "__invert__": lambda x: ~(x > 0.4),
    "__iter__": lambda x: list(x),
    "__len__": lambda x: x * float(len(x)),
    "__matmul__": lambda x: x @ x.T,
    "__mod__": lambda x: x % 0.3,
    "__mul__": lambda x: x * x,
    "__neg__": lambda x: -x,
    "__or__": lambda x: (x > 0.4) | (x < 0.2),
    "__pos__": lambda x: +x,
    "__pow__": lambda x: x**3.0,
    "__reduce__": lambda x: pickle.loads(pickle.dumps(x)),
    "__copy__": copy.copy,
    "__format__": lambda x: x if f"{x[0, 0]:.2f}" == "0.50" else -x,
    "__round__": lambda x: round(x * 3.0),
    "__setitem__": lambda x: [
        assigned((0, 1), 5.0)(x),
        assigned((slice(None), 1), lambda y: y[:, 0] * 2.0)(x),
        assigned([1], lambda y: y[:1])(x),
    ],
    "__sub__": lambda x: x - 1.0,
    "__truediv__": lambda x: x / (x + 1.0),
    "__xor__": lambda x: (x > 0.4) ^ (x < 1.0),
    "__eq__": lambda x: x == x * 1.0,
    "__ne__": lambda x: x != 0.5,
    "__lt__": lambda x: x < 0.5,
    "__le__": lambda x: x <= 0.5,
    "__gt__": lambda x: x > 0.5,
    "__ge__": lambda x: x >= 0.5,
    "__radd__": lambda x: 1.0 + x,
    "__rdivmod__": lambda x: divmod(2.0, x),
    "__rfloordiv__": lambda x: 2.0 // x,
    "__rmatmul__": lambda x: SLOPE.T @ x,
    "__rmod__": lambda x: 2.0 % x,
    "__rmul__": lambda x: SLOPE * x,
    "__rpow__": lambda x: 2.0**x,
    "__rsub__": lambda x: SLOPE - x,
    "__rtruediv__": lambda x: 1.0 / x,
    "__iadd__": augmented("y += y * half"),
    "__iand__": augmented("y = y > half; y &= y"),
    "__ifloordiv__": augmented("y //= 0.3"),
    "__imod__": augmented("y %= 0.3"),
    "__imul__": augmented("y *= y"),
    "__ior__": augmented("y = y > half; y |= ~y"),
    "__ipow__": augmented("y **= 2.0"),
    "__isub__": augmented("y -= half"),
    "__itruediv__": augmented("y /= half"),
    "__ixor__": augmented("y = y > half; y ^= y"),
}
METHODS |= {name + "_": after(lambda y, name=name + "_": getattr(y, name)()) for name in _UNARY.split()}
ABOUT = set(_ABOUT.split())
"""What says nothing of the elements."""
PYTHONS = set(_PYTHONS.split())

FUNCTIONS: dict[str, Any] = {
    "Tensor": lambda x: Tensor(x) * 2.0,
    "Parameter": lambda x: dygraph.Parameter(x) * 2.0,
    "PyLayer": with_gradient(Cube.apply),
    "backward": lambda x: backward_of(x, dygraph.backward),
    "enable_grad": lambda x: dygraph.enable_grad(with_gradient(lambda p: p * p))(x),
    "from_dlpack": lambda x: dygraph.from_dlpack(x) * 2.0,
    "grad": with_gradient(lambda p: dygraph.grad((p * p * p).sum(), p, create_graph=True)[0] * p),
    "gradcheck": lambda x: x if dygraph.gradcheck(lambda p: p * p, leaf64(x)) else -x,
    "gradgradcheck": lambda x: x if dygraph.gradgradcheck(lambda p: p * p, leaf64(x)) else -x,
    "hessian": lambda x: dygraph.hessian(lambda p: (p * p * p).sum(), x),
    "hvp": lambda x: dygraph.hvp(lambda p: (p * p * p).sum(), x, x * 2.0),
    "jacobian": lambda x: dygraph.jacobian(lambda p: p * p, x),
    "jvp": lambda x: dygraph.jvp(lambda p: p * p, x, x),
    "no_grad": dygraph.no_grad(lambda x: x * x),
    "ops": lambda x: ops.elementwise_add(ops.tanh(x), x),
    "recompute": with_gradient(lambda p: dygraph.recompute(lambda q: q * q, p)),
    "save_dygraph": saved,
    "seed": lambda x: (dygraph.seed(3), x)[1],
    "set_grad_enabled": lambda x: dygraph.set_grad_enabled(False)(lambda y: y * y)(x),
    "to_static": lambda x: dygraph.to_static(lambda y: y * 2.0)(x) + 1.0,
    "to_tensor": lambda x: dygraph.to_tensor(x) * 2.0,
    "to_variable": lambda x: dygraph.to_variable(x) * 2.0,
    "trace": lambda x: dygraph.trace(lambda y: y * 2.0, x)(x) + 1.0,
    "TracedFunction": lambda x: TWICE(x) + 1.0,
    "TracedLayer": lambda x: dygraph.TracedLayer(TWICE)([x])[0] + 1.0,
    "vhp": lambda x: dygraph.vhp(lambda p: (p * p * p).sum(), x, x * 2.0),
    "vjp": lambda x: dygraph.vjp(lambda p: p * p, x, x),
    "cond": lambda x: layers.cond(x.sum() > 4.0, lambda: x * 2.0, lambda: x - 1.0),
    "while_loop": trip,
    "numpy": lambda x: Tensor(np.concatenate([x, x])),
    "Executor.run": lambda x: Tensor(fluid.Executor().run(DOUBLE[0], {"x": x}, [DOUBLE[1]])[0]),
    "array_equal": lambda x: x if np.array_equal(x, EXAMPLE) else -x,  # which lets no error through
}
FUNCTIONS["declarative"] = FUNCTIONS["to_static"]
LAYERS: dict[str, Any] = {
    "BatchNorm": lambda: dygraph.BatchNorm(None, 3),
    "BatchNorm1D": lambda: dygraph.BatchNorm1D(3),
    "BatchNorm2D": lambda: image(dygraph.BatchNorm2D(1)),
    "BatchNorm3D": lambda: image(dygraph.BatchNorm3D(1), 1),
    "AvgPool2D": lambda: image(dygraph.AvgPool2D(2)),
    "MaxPool2D": lambda: image(dygraph.MaxPool2D(2)),
    "Flatten": lambda: dygraph.Flatten(),
    "FunctionLayer": lambda: dygraph.FunctionLayer(lambda x: x * 2.0),
    "GELU": lambda: dygraph.GELU(),
    "LeakyReLU": lambda: dygraph.LeakyReLU(),
    "ReLU": lambda: dygraph.ReLU(),
    "Sigmoid": lambda: dygraph.Sigmoid(),
    "Softmax": lambda: dygraph.Softmax(),
    "Tanh": lambda: dygraph.Tanh(),
    "BCEWithLogitsLoss": lambda: twice(dygraph.BCEWithLogitsLoss(), lambda x: x * 0.4),
    "CrossEntropyLoss": lambda: twice(dygraph.CrossEntropyLoss(), lambda x: (x[:, :1] * 0.9).astype("int64")),
    "L1Loss": lambda: twice(dygraph.L1Loss(), lambda x: x * 0.4),
    "MSELoss": lambda: twice(dygraph.MSELoss(), lambda x: x * 0.4),
    "AdaptiveAvgPool2D": lambda: image(dygraph.AdaptiveAvgPool2D(1)),
    "AdaptiveMaxPool2D": lambda: image(dygraph.AdaptiveMaxPool2D(1)),
    "BCELoss": lambda: twice(dygraph.BCELoss(), lambda x: x * 0.4),
    "ELU": lambda: dygraph.ELU(),
    "Hardswish": lambda: dygraph.Hardswish(),
    "Identity": lambda: dygraph.Identity(),
    "KLDivLoss": lambda: twice(dygraph.KLDivLoss(), lambda x: x * 0.4),
    "LogSoftmax": lambda: dygraph.LogSoftmax(),
    "NLLLoss": lambda: twice(dygraph.NLLLoss(), lambda x: (x[:, :1] * 0.9).astype("int64")),
    "SiLU": lambda: dygraph.SiLU(),
    "SmoothL1Loss": lambda: twice(dygraph.SmoothL1Loss(), lambda x: x * 0.4),
    "BilinearTensorProduct": lambda: twice(dygraph.BilinearTensorProduct(None, 2)),
    "Conv2D": lambda: image(dygraph.Conv2D(None, 2, 2)),
    "Conv2DTranspose": lambda: image(dygraph.Conv2DTranspose(None, 2, filter_size=2)),
    "Conv3D": lambda: image(dygraph.Conv3D(None, 2, 1), 1),
    "Conv3DTranspose": lambda: image(dygraph.Conv3DTranspose(None, 2, filter_size=1), 1),
    "DataParallel": lambda: dygraph.DataParallel(dygraph.Linear(3, 2), None),
    "Dropout": lambda: dygraph.Dropout(0.5),
    "Embedding": lambda: numbered(dygraph.Embedding(None, [4, 2])),
    "FC": lambda: dygraph.FC(None, 2),
    "GRU": lambda: row(dygraph.GRU(3, 2)),
    "GRUUnit": lambda: twice(dygraph.GRUUnit(None, 3), lambda x: x[:, :1]),
    "GroupNorm": lambda: image(dygraph.GroupNorm(None, 1)),
    "InstanceNorm": lambda: image(dygraph.InstanceNorm(None)),
    "LSTM": lambda: row(dygraph.LSTM(3, 2)),
    "Layer": lambda: Counting(),
    "LayerNorm": lambda: dygraph.LayerNorm(None),
    "Linear": lambda: dygraph.Linear(3, 2, act="tanh"),
    "MultiHeadAttention": lambda: row(dygraph.MultiHeadAttention(3, 1)),
    "NCE": lambda: twice(dygraph.NCE(None, 5, num_neg_samples=2), lambda x: (x[:, :1] * 1.9).astype("int64")),
    "PRelu": lambda: dygraph.PRelu(None, "all"),
    "Pool2D": lambda: image(dygraph.Pool2D(None, 2, "max")),
    "Sequential": lambda: dygraph.Sequential(dygraph.Linear(3, 2), dygraph.Dropout(0.3), dygraph.Linear(2, 2)),
    "SpectralNorm": lambda: dygraph.SpectralNorm(None),
    "TransformerEncoder": lambda: row(dygraph.TransformerEncoder(dygraph.TransformerEncoderLayer(3, 1, 4), 2)),
    "TransformerEncoderLayer": lambda: row(dygraph.TransformerEncoderLayer(3, 1, 4)),
}
NO_FUNCTIONS = set(_NO_FUNCTIONS.split())
"""Modules that are no functions of a tensor. `RowConv` and `SequenceConv` are functions of sequences."""

TWICE: Any = None
DOUBLE: Any = None


@pytest.fixture(autouse=True)
def _programs(_fresh: None) -> None:
    global TWICE, DOUBLE
    TWICE = dygraph.trace(lambda y: y * 2.0, Tensor(EXAMPLE))
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        x = fluid.data("x", [2, 3])
        DOUBLE = program, x * 2.0


class Counting(dygraph.Layer):
    """A layer that assigns another tensor to its buffer in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", Tensor(np.zeros((2, 3), "float32")))

    def forward(self, x: Tensor) -> Any:
        self.total = self.total * 0.5 + x
        return self.total * 1.0


class Wrapped(dygraph.Layer):
    def __init__(self, layer: Any, given: Any) -> None:
        super().__init__()
        self.layer, self.given = layer, given

    def forward(self, x: Tensor) -> Any:
        return self.layer(*self.given(x))


def image(layer: Any, more: int = 0) -> Any:
    return Wrapped(layer, lambda x: [x.reshape([1, *[1] * more, 1, 2, 3]) if more else x.reshape(1, 1, 2, 3)])


def row(layer: Any) -> Any:
    return Wrapped(layer, lambda x: [x.unsqueeze(0)])


def twice(layer: Any, second: Any = lambda x: x) -> Any:
    return Wrapped(layer, lambda x: [x, second(x)])


def numbered(layer: Any) -> Any:
    return Wrapped(layer, lambda x: [(x * 1.9).astype("int64").reshape(6, 1)])


def leaf64(x: Tensor) -> Tensor:
    found = x.astype("float64")
    found.stop_gradient = False
    return found


def values(found: Any) -> list[Any]:
    if isinstance(found, Tensor):
        return [found.numpy()]
    return [value for item in found for value in values(item)]


def assert_traced_or_refused(function: Any) -> None:
    dygraph.seed(5)
    expected = values(function(Tensor(OTHER)))
    try:
        traced = dygraph.trace(function, Tensor(EXAMPLE))
    except FluidError as error:
        assert "called at: " in str(error), error
        assert "traced" in str(error), error
        return
    dygraph.seed(5)
    found = values(traced(Tensor(OTHER)))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, 1e-5, 1e-6)
        assert (one.shape, one.dtype) == (other.shape, other.dtype)


def test_the_tables_name_all() -> None:
    public = {name for name in dir(Tensor) if not name.startswith("_")}
    assert public == {name for name in METHODS if not name.startswith("__")} | ABOUT
    special = {name for name in dir(Tensor) if name.startswith("__") and name not in dir(object)}
    of_classes = {"__firstlineno__", "__static_attributes__"}  # which Python has from 3.13 on
    assert special - METHODS.keys() - of_classes == PYTHONS - {"__hash__"}
    assert set(dygraph.__all__) - FUNCTIONS.keys() - LAYERS.keys() == NO_FUNCTIONS


@each("name", sorted(METHODS))
def test_a_method(name: str) -> None:
    assert_traced_or_refused(METHODS[name])


@pytest.mark.filterwarnings("ignore:trace. the backward of Cube")
@each("name", sorted(FUNCTIONS))
def test_a_function(name: str) -> None:
    assert_traced_or_refused(FUNCTIONS[name])


@each("training", [True, False])
@each("name", sorted(LAYERS))
def test_a_layer(name: str, training: bool) -> None:
    layer = LAYERS[name]()
    layer(Tensor(EXAMPLE))  # makes its parameters
    (layer.train if training else layer.eval)()
    state = {key: tensor.numpy() for key, tensor in layer.state_dict().items()}

    def run(function: Any) -> list[Any]:
        layer.set_dict(state)
        dygraph.seed(5)
        with dygraph.no_grad():
            found = [values(function(Tensor(value))) for value in (OTHER, EXAMPLE, OTHER)]
        return [*found, [tensor.numpy() for tensor in layer.state_dict().values()]]

    expected = run(layer)
    layer.set_dict(state)
    traced = dygraph.trace(layer, Tensor(EXAMPLE))
    for key, tensor in layer.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), state[key])  # a trace leaves all as it was
    for function in (traced, dygraph.to_static(lambda x: layer(x))):
        for one, other in zip(run(function), expected, strict=True):
            for a, b in zip(one, other, strict=True):
                np.testing.assert_allclose(a, b, 1e-5, 1e-6)

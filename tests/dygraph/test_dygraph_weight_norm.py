"""Parameters made of length and direction in eager mode: beside programs and torch, traced, kept, copied, refused."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph, layers, optimizer
from fluid.dygraph import Tensor
from fluid.errors import FluidTypeError, ProgramError
from fluid.param_attr import WeightNormParamAttr

pytestmark = pytest.mark.numpy_alone

RNG = np.random.default_rng(0)
STEPS = 4


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield


def array(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


def attr(value: Any, dim: int | None = None, **said: Any) -> WeightNormParamAttr:
    return WeightNormParamAttr(dim=dim, name="w", initializer=fluid.initializer.NumpyArrayInitializer(value), **said)


# ------------------------------------------------------------------------------------------- against layers of programs
W, FILTER, DEEP = array(5, 4), array(4, 2, 3, 3), array(2, 3, 3, 3)
TABLE, IDS = array(6, 3), np.array([[1], [4], [1]])
CASES: dict[str, tuple[Callable[[], dygraph.Layer], Callable[[Any], Any], Any]] = {
    "Linear": (
        lambda: dygraph.Linear(5, 4, param_attr=attr(W, 1), act="tanh"),
        lambda x: layers.fc(x, 4, param_attr=attr(W, 1), act="tanh"),
        array(3, 5),
    ),
    "Linear, one length": (
        lambda: dygraph.Linear(5, 4, param_attr=attr(W), bias_attr=False),
        lambda x: layers.fc(x, 4, param_attr=attr(W), bias_attr=False),
        array(3, 5),
    ),
    "FC": (
        lambda: dygraph.FC("fc", 4, param_attr=attr(W, 0, learning_rate=0.5)),
        lambda x: layers.fc(x, 4, param_attr=attr(W, 0, learning_rate=0.5)),
        array(3, 5),
    ),
    "Conv2D": (
        lambda: dygraph.Conv2D("conv", 4, 3, param_attr=attr(FILTER, 0, regularizer=fluid.regularizer.L2Decay(0.1))),
        lambda x: layers.conv2d(x, 4, 3, param_attr=attr(FILTER, 0, regularizer=fluid.regularizer.L2Decay(0.1))),
        array(2, 2, 6, 6),
    ),
    "Conv2DTranspose": (
        lambda: dygraph.Conv2DTranspose("conv", 3, filter_size=3, param_attr=attr(DEEP, 1)),
        lambda x: layers.conv2d_transpose(x, 3, filter_size=3, param_attr=attr(DEEP, 1)),
        array(2, 2, 4, 4),
    ),
    "Embedding": (
        lambda: dygraph.Embedding("table", [6, 3], param_attr=attr(TABLE, 0)),
        lambda x: layers.embedding(x, [6, 3], param_attr=attr(TABLE, 0)),
        IDS,
    ),
    "bias": (
        lambda: dygraph.Linear(5, 4, param_attr=fluid.initializer.Constant(0.3), bias_attr=attr(W[0])),
        lambda x: layers.fc(x, 4, param_attr=fluid.initializer.Constant(0.3), bias_attr=attr(W[0])),
        array(3, 5),
    ),
}


@each("name", CASES)
def test_training_gives_the_bits_of_the_program(name: str) -> None:
    make, build, x = CASES[name]
    fed = fluid.data("x", list(x.shape), str(x.dtype))
    fed.stop_gradient = True
    loss = layers.mean(layers.square(build(fed)))
    optimizer.SGD(0.1).minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    expected = [executor.run(feed={"x": x}, fetch_list=[loss])[0].item() for _ in range(STEPS)]
    layer, descent = make(), optimizer.SGD(0.1)
    losses = []
    for _ in range(STEPS):
        found = layers.mean(layers.square(layer(Tensor(x))))
        found.backward()
        descent.minimize(found)
        layer.clear_gradients()
        losses.append(found.item())
    assert losses == expected and len(set(losses)) == STEPS
    for param in layer.parameters():
        if param.name in ("w_v", "w_g"):
            np.testing.assert_array_equal(param.numpy(), fluid.global_scope().array(param.name))
    assert {"w_v", "w_g"} <= {param.name for param in layer.parameters()}


@each("dim", [0, 1, None])
def test_linear_as_torch(dim: int | None) -> None:
    torch = pytest.importorskip("torch")
    other = torch.nn.utils.parametrizations.weight_norm(
        torch.nn.Linear(5, 4), dim=None if dim is None else 1 - dim
    )  # which has it transposed
    layer = dygraph.Linear(5, 4, param_attr=WeightNormParamAttr(dim=dim))
    assert_trained_alike(torch, layer, other, lambda value: value.T, array(3, 5))


def test_conv_as_torch() -> None:
    torch = pytest.importorskip("torch")
    other = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv2d(2, 4, 3), dim=0)
    layer = dygraph.Conv2D("conv", 4, 3, param_attr=WeightNormParamAttr(dim=0))
    x = array(2, 2, 6, 6)
    layer(Tensor(x))
    assert_trained_alike(torch, layer, other, lambda value: value, x)


def assert_trained_alike(torch: Any, layer: Any, other: Any, turned: Callable[[Any], Any], x: Any) -> None:
    """Momentum over both: the same outputs and lengths and directions in each step."""
    length, direction = other.parametrizations.weight.original0, other.parametrizations.weight.original1
    g, v = length.detach().numpy() * 1.5, direction.detach().numpy()
    with torch.no_grad():
        length.copy_(torch.tensor(g))
    layer.weight_g.set_value(turned(g).reshape(layer.weight_g.shape))
    layer.weight_v.set_value(turned(v))
    layer.bias.set_value(other.bias.detach().numpy())
    mine = optimizer.Momentum(0.05, 0.9, parameter_list=layer.parameters())
    theirs = torch.optim.SGD(other.parameters(), 0.05, momentum=0.9)
    for _ in range(STEPS):
        found, expected = layer(Tensor(x)), other(torch.tensor(x))
        np.testing.assert_allclose(found.numpy(), expected.detach().numpy(), 1e-4, 1e-5)
        (found * found).mean().backward()
        (expected * expected).mean().backward()
        mine.step()
        theirs.step()
        mine.clear_grad()
        theirs.zero_grad()
        np.testing.assert_allclose(layer.weight_v.numpy(), turned(direction.detach().numpy()), 1e-4, 1e-5)
        np.testing.assert_allclose(layer.weight_g.numpy().ravel(), length.detach().numpy().ravel(), 1e-4, 1e-5)


# --------------------------------------------------------------------------------------------------- what the layer keeps
def test_the_layer_has_the_two() -> None:
    """In all that speaks of parameters there are g and v; the attribute is their product, which is recorded."""
    with dygraph.guard():
        layer = dygraph.Linear(5, 4, param_attr=WeightNormParamAttr(dim=1))
        assert [param.name for param in layer.parameters()] == ["linear_0.w_0_v", "linear_0.w_0_g", "linear_0.b_0"]
    assert list(layer.state_dict()) == ["weight_v", "weight_g", "bias"]
    assert repr(layer) == "Linear(weight_v=[5, 4], weight_g=[1, 4], bias=[4])"
    assert {"weight", "weight_g", "weight_v"} <= set(dir(layer))
    np.testing.assert_allclose(layer.weight.numpy(), layer.weight_v.numpy(), 1e-6)
    layer.weight_g.set_value(layer.weight_g.numpy() * 2)
    np.testing.assert_allclose(layer.weight.numpy(), layer.weight_v.numpy() * 2, 1e-6)
    assert not layer.weight.is_leaf and not layer.weight.stop_gradient
    with dygraph.no_grad():
        assert layer.weight.is_leaf


def test_recurrent_layers_too() -> None:
    plain = dygraph.LSTM(3, 4)
    layer = dygraph.LSTM(3, 4, param_attr=WeightNormParamAttr(dim=0))
    for name in ("weight_ih_l0", "weight_hh_l0"):
        getattr(layer, name + "_v").set_value(getattr(plain, name).numpy())
        getattr(layer, name + "_g").set_value(np.linalg.norm(getattr(plain, name).numpy(), axis=1, keepdims=True))
    for name in ("bias_ih_l0", "bias_hh_l0"):
        getattr(layer, name).set_value(getattr(plain, name).numpy())
    x = Tensor(array(2, 5, 3))
    out, expected = layer(x)[0], plain(x)[0]
    np.testing.assert_allclose(out.numpy(), expected.numpy(), 1e-4, 1e-5)
    (out * out).sum().backward()
    assert layer.weight_hh_l0_g.grad.shape == (16, 1) and np.any(layer.weight_hh_l0_v.grad.numpy())


def test_states_files_and_copies(tmp_path: Path) -> None:
    layer, other = (dygraph.Linear(5, 4, param_attr=WeightNormParamAttr(dim=1)) for _ in range(2))
    layer.weight_g.set_value(array(1, 4))
    x = Tensor(array(3, 5))
    expected = layer(x).numpy()
    dygraph.save_dygraph(layer.state_dict(), str(tmp_path / "layer"))
    other.set_dict(dygraph.load_dygraph(str(tmp_path / "layer"))[0])
    for same in (other, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert same.weight_g is not layer.weight_g
        np.testing.assert_array_equal(same(x).numpy(), expected)
        same.weight_g.set_value(array(1, 4))  # its own, and what it computes with
        assert not np.array_equal(same(x).numpy(), expected)
    np.testing.assert_array_equal(layer(x).numpy(), expected)


def test_traced_it_has_two_parameters() -> None:
    layer = dygraph.Sequential(
        dygraph.Linear(5, 4, param_attr=attr(W, 1)), dygraph.Conv2D("c", 2, 1, param_attr=WeightNormParamAttr())
    )
    layer[1](Tensor(array(3, 1, 2, 2)))

    def network(x: Any) -> Any:
        return layer[1](layer[0](x).reshape([3, 1, 2, 2]))

    x = Tensor(array(3, 5))
    traced = dygraph.trace(network, x)
    params = traced.program.all_parameters()
    assert {param.name for param in params} == {param.name for param in layer.parameters()}
    assert all(layer[0].weight_v.name != param.name or param.trainable for param in params)
    np.testing.assert_array_equal(traced(x)[0].numpy(), network(x)[0].numpy())
    layer[0].weight_g.set_value(array(1, 4))
    np.testing.assert_array_equal(traced(x).numpy(), network(x).numpy())  # of the same memory
    assert [op.type for op in traced.program.global_block().ops].count("reduce_sum") == 2  # once for each
    with fluid.program_guard(traced.program, fluid.Program()):
        optimizer.SGD(0.1).minimize(layers.mean(traced.fetches[0]))
    assert "w_g@GRAD" in traced.program.global_block().vars
    first = dygraph.trace(dygraph.FC("fc", 2, param_attr=WeightNormParamAttr()), x)  # whose parameters are made as it is traced
    assert {param.name[-2:] for param in first.program.all_parameters()} == {"_v", "_g", "_0"}


def test_attributes() -> None:
    """A value assigned to the attribute replaces both parameters."""

    class Block(dygraph.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.w = self.create_parameter(WeightNormParamAttr(), [2, 3])

    block = Block()
    with pytest.raises(
        FluidTypeError, match="w of block_0 is computed of w_v and w_g, and cannot become a Tensor; give these other"
    ):
        block.w = Tensor(array(2, 3))
    block.w = dygraph.Parameter(array(2, 3))
    assert list(block.state_dict()) == ["w"]
    block.w = block.create_parameter(WeightNormParamAttr(dim=0), [2, 3])
    assert list(block.state_dict()) == ["w_v", "w_g"] and block.w_g.shape == (2, 1)
    block.w_g = dygraph.Parameter(np.float32([[1.0], [2.0]]))
    np.testing.assert_allclose(np.linalg.norm(block.w.numpy(), axis=1), [1, 2], 1e-6)
    with pytest.raises(ProgramError, match="block_0 cannot have a part called 'w'; it is taken"):
        block.register_buffer("w", Tensor([1.0]))
    block.w_g = None
    with pytest.raises(ProgramError, match="w of block_0 is computed of w_v and w_g, but one of them is gone"):
        _ = block.w
    block.w = None
    assert block.w is None and block.parameters() == []
    block.w = block.create_parameter(WeightNormParamAttr(), [2, 3])
    del block.w
    assert block.parameters() == [] and not hasattr(block, "w") and not hasattr(block, "w_v")
    conv = dygraph.Conv2D("c", 2, 1, param_attr=WeightNormParamAttr(), bias_attr=False)
    assert conv.weight is None and conv.bias is None
    conv(Tensor(array(1, 1, 2, 2)))
    assert conv.weight.shape == (2, 1, 1, 1)
    conv.weight = None
    assert conv.weight is None and conv.parameters() == []


# -------------------------------------------------------------------------------------------------------------- errors
def test_errors() -> None:
    with pytest.raises(ProgramError, match=r"linear_0: WeightNormParamAttr has dim=2, but the parameter has the shape \[3, 4\]"):
        dygraph.Linear(3, 4, param_attr=WeightNormParamAttr(dim=2))
    layer = dygraph.Linear(3, 4)
    loose, x = layer.create_parameter(WeightNormParamAttr(), [3, 4]), Tensor(array(2, 3))
    assert repr(loose) == "WeightNorm(linear_1.w_1: float32[3, 4])"
    for use in (lambda: dygraph.ops.mul(x, loose), lambda: x + loose, lambda: np.asarray(loose)):
        with pytest.raises(
            FluidTypeError, match=r"linear_1.w_1 is made of the parameters linear_1.w_1_v and linear_1.w_1_g: assign"
        ):
            use()
    with pytest.raises(
        FluidTypeError, match="mul: y should be a Variable, not WeightNorm; assign it to an attribute of the layer"
    ):
        layers.mul(x, loose)
    with (
        dygraph.guard(),
        pytest.raises(ProgramError, match=r"let a Layer keep them: self.weight = self.create_parameter\(attr, shape"),
    ):
        layers.create_parameter([2, 3], "float32", attr=WeightNormParamAttr())
    with pytest.raises(
        ProgramError, match=r"fc would make its parameters anew in each call; in eager mode make, once, an object"
    ):
        layers.fc(x, 4, param_attr=WeightNormParamAttr())
    with pytest.raises(
        ProgramError, match=r"a ParameterList holds parameters, and linear_1.w_1 is computed of two; assign it to"
    ):
        dygraph.ParameterList([loose])
    with pytest.raises(ProgramError, match="cannot have a part called 'bias'; it is taken"):
        layer.__dict__["bias"] = 3
        layer.add_parameter("bias", loose)

    class Early(dygraph.Layer):
        def __init__(self) -> None:
            self.w = loose

    with pytest.raises(ProgramError, match=r"Early: call super\(\).__init__\(\) before assigning w"):
        Early()

"""Layers as objects: results, parameters and states, hooks, containers, files, guards."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph, layers
from fluid.dygraph import Tensor
from fluid.errors import BackwardError, CommunicationError, FluidError, FluidTypeError, FormatError, ProgramError

pytestmark = pytest.mark.numpy_alone

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield


def array(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


def positive(*shape: int) -> Any:
    return RNG.random(shape).astype("float32") + 0.5


# ------------------------------------------------------------------------------------------- against layers of programs
Build = Callable[..., Any]
CASES: dict[str, tuple[Callable[[], dygraph.Layer], Build, list[Any]]] = {
    "FC": (
        lambda: dygraph.FC("fc", 4, num_flatten_dims=2, act="tanh"),
        lambda x: layers.fc(x, 4, num_flatten_dims=2, act="tanh"),
        [array(2, 3, 5)],
    ),
    "FC of several": (lambda: _Listed(), lambda x, y: layers.fc([x, y], 4), [array(2, 3), array(2, 5)]),
    "Linear": (lambda: dygraph.Linear(5, 4, act="relu"), lambda x: layers.fc(x, 4, act="relu"), [array(3, 5)]),
    "Linear 3d": (lambda: dygraph.Linear(5, 4), lambda x: layers.fc(x, 4, num_flatten_dims=2), [array(2, 3, 5)]),
    "Linear without bias": (
        lambda: dygraph.Linear(5, 4, bias_attr=False), lambda x: layers.fc(x, 4, bias_attr=False), [array(3, 5)],
    ),
    "Conv2D": (
        lambda: dygraph.Conv2D("c", 4, 3, stride=2, padding=1, groups=2, act="relu"),
        lambda x: layers.conv2d(x, 4, 3, stride=2, padding=1, groups=2, act="relu"),
        [array(2, 2, 6, 7)],
    ),
    "Conv2D without bias": (
        lambda: dygraph.Conv2D("c", 4, (3, 2), dilation=2, bias_attr=False),
        lambda x: layers.conv2d(x, 4, (3, 2), dilation=2, bias_attr=False),
        [array(2, 2, 6, 7)],
    ),
    "Conv2DTranspose": (
        lambda: dygraph.Conv2DTranspose("c", 3, filter_size=3, stride=2, act="sigmoid"),
        lambda x: layers.conv2d_transpose(x, 3, filter_size=3, stride=2, act="sigmoid"),
        [array(2, 2, 4, 5)],
    ),
    "Conv3D": (lambda: dygraph.Conv3D("c", 2, 2), lambda x: layers.conv3d(x, 2, 2), [array(2, 2, 3, 4, 3)]),
    "Conv3DTranspose": (
        lambda: dygraph.Conv3DTranspose("c", 2, filter_size=2, stride=2),
        lambda x: layers.conv3d_transpose(x, 2, filter_size=2, stride=2),
        [array(1, 2, 2, 3, 2)],
    ),
    "Pool2D": (
        lambda: dygraph.Pool2D("p", 2, "avg", 2, 1, exclusive=False),
        lambda x: layers.pool2d(x, 2, "avg", 2, 1, exclusive=False),
        [array(2, 3, 5, 5)],
    ),
    "BatchNorm": (lambda: dygraph.BatchNorm("b", 3, act="relu"), lambda x: layers.batch_norm(x, act="relu"), [array(4, 3, 2, 2)]),
    "LayerNorm": (
        lambda: dygraph.LayerNorm("l", begin_norm_axis=2), lambda x: layers.layer_norm(x, begin_norm_axis=2), [array(2, 3, 4)],
    ),
    "LayerNorm without shift": (
        lambda: dygraph.LayerNorm("l", shift=False), lambda x: layers.layer_norm(x, shift=False), [array(2, 3, 4)],
    ),
    "GroupNorm": (lambda: dygraph.GroupNorm("g", 2), lambda x: layers.group_norm(x, 2), [array(2, 4, 3, 3)]),
    "Embedding": (
        lambda: dygraph.Embedding("e", [6, 3], padding_idx=2),
        lambda x: layers.embedding(x, [6, 3], padding_idx=2),
        [np.array([[1], [2], [5]])],
    ),
    "Embedding of many": (
        lambda: dygraph.Embedding("e", [6, 3]), lambda x: fluid.embedding(x, [6, 3]), [np.array([[1, 2], [5, 0]])],
    ),
    "PRelu": (lambda: dygraph.PRelu("p", "channel"), lambda x: layers.prelu(x, "channel"), [array(2, 3, 2, 2)]),
    "BilinearTensorProduct": (
        lambda: dygraph.BilinearTensorProduct("b", 3, act="tanh"),
        lambda x, y: layers.bilinear_tensor_product(x, y, 3, act="tanh"),
        [array(2, 4), array(2, 5)],
    ),
    "GRUUnit": (lambda: dygraph.GRUUnit("g", 12), lambda x, h: layers.gru_unit(x, h, 12), [array(2, 12), array(2, 4)]),
    "SpectralNorm": (
        lambda: dygraph.SpectralNorm("s", dim=1, power_iters=3), lambda w: layers.spectral_norm(w, 1, 3), [array(3, 5)],
    ),
}  # fmt: skip


class _Listed(dygraph.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.fc = dygraph.FC("fc", 4)

    def forward(self, x: Any, y: Any) -> Any:
        return self.fc([x, y])


def listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


@each("key", CASES)
def test_as_the_layer_of_programs(key: str) -> None:
    """The same bits forward, the same gradients, and parameters of the same shapes in the same order."""
    make, build, given = CASES[key]
    layer = make()
    inputs = [Tensor(value, stop_gradient=value.dtype != np.float32) for value in given]
    found = listed(layer(*inputs))
    variables = []
    for number, value in enumerate(given):
        variables.append(fluid.data(f"x{number}", list(value.shape), str(value.dtype)))
        variables[-1].stop_gradient = value.dtype != np.float32
    outputs = listed(build(*variables))
    own = [p for p in layer.parameters() if p.name.rpartition(".")[2][0] in "wb"]
    theirs = fluid.default_main_program().all_parameters()
    assert [parameter.shape for parameter in own] == [parameter.shape for parameter in theirs]
    assert [parameter.trainable for parameter in own] == [
        parameter.trainable and not parameter.stop_gradient for parameter in theirs
    ]
    start = [parameter.numpy() for parameter in own]
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    if key == "BatchNorm":
        start = [np.ones(3, "float32") if index in (0, 3) else np.zeros(3, "float32") for index in range(4)]
    for parameter, value in zip(theirs, start, strict=True):
        fluid.global_scope().var(parameter.name).get_tensor().set(value)
    loss = layers.reduce_sum(layers.square(outputs[0]))
    wanted = [p.name for p in theirs if p.trainable and not p.stop_gradient]
    grads = {param.name: grad for param, grad in fluid.append_backward(loss)} if wanted else {}
    feed = {f"x{number}": value for number, value in enumerate(given)}
    results = exe.run(feed=feed, fetch_list=[*outputs, *grads.values()])
    for one, other in zip(found, results, strict=False):
        np.testing.assert_array_equal(one.numpy(), other)
    (found[0] * found[0]).sum().backward()
    for name, expected in zip(grads, results[len(outputs) :], strict=True):
        (mine,) = (o for o, t in zip(own, theirs, strict=True) if t.name == name)
        np.testing.assert_allclose(mine.grad.numpy(), expected, 1e-5, 1e-6)


def test_batch_norm_moves_its_statistics_in_training_and_uses_them_in_tests() -> None:
    norm = dygraph.BatchNorm("b", 3, momentum=0.5)
    x = array(8, 3)
    norm(Tensor(x))
    np.testing.assert_allclose(norm._mean.numpy(), 0.5 * x.mean(0), 1e-5, 1e-6)
    np.testing.assert_allclose(norm._variance.numpy(), 0.5 + 0.5 * x.var(0), 1e-5)
    norm.eval()
    y = array(2, 3)
    expected = (y - norm._mean.numpy()) / np.sqrt(norm._variance.numpy() + 1e-5)
    for _ in range(2):
        np.testing.assert_allclose(norm(Tensor(y)).numpy(), expected, 1e-5, 1e-5)
    always = dygraph.BatchNorm("b", 3, is_test=True)
    np.testing.assert_allclose(always(Tensor(x)).numpy(), x / np.sqrt(1 + 1e-5), 1e-5)
    batch = dygraph.BatchNorm("b", 3, trainable_statistics=True).eval()
    np.testing.assert_allclose(batch(Tensor(x)).numpy().mean(0), 0, atol=1e-5)
    assert norm._mean.is_leaf and norm._mean.stop_gradient
    with pytest.raises(ProgramError, match=r"b/BatchNorm_\d is for 3 channels; the input is float32\[2, 4\]"):
        norm(Tensor(array(2, 4)))
    with pytest.raises(ProgramError, match=r"b/BatchNorm_\d has statistics of float32; the input is float64\[8, 3\]: cast it"):
        norm(Tensor(x.astype("float64")))
    assert dygraph.BatchNorm("b", 3, dtype="float64")(Tensor(x.astype("float64"))).numpy().dtype == "float64"
    plain = dygraph.BatchNorm("b", 3, param_attr=False, bias_attr=False)
    assert [name for name, _ in plain.named_parameters()] == ["_mean", "_variance"]


def test_dropout() -> None:
    x = Tensor(np.ones((100, 100), "float32"))
    drop = dygraph.Dropout(0.25)
    kept = drop(x).numpy()
    assert set(np.unique(kept)) == {0.0, 1.0} and abs(kept.mean() - 0.75) < 0.02
    assert not np.array_equal(drop(x).numpy(), kept)
    np.testing.assert_allclose(drop.eval()(x).numpy(), 0.75)
    scaled = dygraph.Dropout(0.25, seed=3, dropout_implementation="upscale_in_train")
    np.testing.assert_array_equal(scaled(x).numpy(), scaled(x).numpy())
    np.testing.assert_array_equal(scaled.eval()(x).numpy(), x.numpy())
    assert repr(drop) == "Dropout(p=0.25)"


def test_nce_and_row_conv() -> None:
    cost = dygraph.NCE("n", 20, num_neg_samples=5, seed=1)
    x, label = Tensor(array(4, 3), stop_gradient=False), Tensor(np.array([[1], [2], [3], [4]]))
    loss = cost(x, label)
    assert loss.shape == (4, 1)
    loss.sum().backward()
    assert cost.weight.shape == (20, 3) and cost.weight.grad is not None and cost.bias.grad is not None
    rows = dygraph.RowConv("r", 1)
    value = array(5, 2)
    found = rows(Tensor(value).with_lod(((0, 2, 5),))).numpy()
    weight = rows.weight.numpy()
    expected = value * weight[0]
    for row in (0, 2, 3):
        expected[row] += value[row + 1] * weight[1]
    np.testing.assert_allclose(found, expected, 1e-5, 1e-6)


# --------------------------------------------------------------------------------------------------------- against torch
def test_recurrent_networks_as_torch() -> None:
    torch = pytest.importorskip("torch")
    for ours, theirs in ((dygraph.LSTM, torch.nn.LSTM), (dygraph.GRU, torch.nn.GRU)):
        for layers_, direction in ((1, "forward"), (2, "bidirect")):
            layer = ours(3, 4, layers_, direction)
            other = theirs(3, 4, layers_, batch_first=True, bidirectional=direction == "bidirect")
            other.load_state_dict({name: torch.tensor(parameter.numpy()) for name, parameter in layer.named_parameters()})
            x = array(2, 5, 3)
            mine, leaf = Tensor(x, stop_gradient=False), torch.tensor(x, requires_grad=True)
            out, last = layer(mine)
            expected, expected_last = other(leaf)
            np.testing.assert_allclose(out.numpy(), expected.detach().numpy(), 1e-4, 1e-5)
            for one, two in zip(listed(last), listed(expected_last), strict=True):
                np.testing.assert_allclose(one.numpy(), two.detach().numpy(), 1e-4, 1e-5)
            (out * out).sum().backward()
            (expected * expected).sum().backward()
            np.testing.assert_allclose(mine.grad.numpy(), leaf.grad.numpy(), 1e-3, 1e-5)
            for name, parameter in other.named_parameters():
                np.testing.assert_allclose(getattr(layer, name).grad.numpy(), parameter.grad.numpy(), 1e-3, 1e-4)


def test_recurrent_networks_from_states_with_lengths_and_time_first() -> None:
    layer = dygraph.LSTM(3, 4)
    x, h, c = Tensor(array(2, 5, 3)), Tensor(array(1, 2, 4)), Tensor(array(1, 2, 4))
    out, (last, _) = layer(x, (h, c), Tensor(np.array([5, 2])))
    assert not out.numpy()[1, 2:].any()
    np.testing.assert_array_equal(out.numpy()[1, 1], last.numpy()[0, 1])
    first = dygraph.LSTM(3, 4, time_major=True)
    first.set_dict(layer.state_dict())
    turned, _ = first(x.transpose([1, 0, 2]), (h, c), Tensor(np.array([5, 2])))
    np.testing.assert_array_equal(turned.numpy(), out.numpy().transpose(1, 0, 2))
    gru = dygraph.GRU(3, 4, num_layers=2, dropout=0.5)
    assert not np.array_equal(gru(x)[0].numpy(), gru(x)[0].numpy())
    gru.eval()
    np.testing.assert_array_equal(gru(x)[0].numpy(), gru(x, Tensor(np.zeros((2, 2, 4), "float32")))[0].numpy())
    with pytest.raises(ProgramError, match=r"takes \[batch, time, 3\], not float32\[2, 5\]"):
        layer(Tensor(array(2, 5)))
    with pytest.raises(ProgramError, match="direction should be 'forward' or 'bidirect', not 'back'"):
        dygraph.LSTM(3, 4, direction="back")
    with pytest.raises(ProgramError, match="needs its parameters; an attribute cannot be False"):
        dygraph.LSTM(3, 4, bias_attr=False)


def encoder_state(layer: Any) -> dict[str, Any]:
    """Of a layer of ours, the parameters of torch's."""
    torch = pytest.importorskip("torch")

    def turned(linear: Any) -> Any:
        return linear.weight.numpy().T, linear.bias.numpy()

    attention = layer.self_attn
    heads = [turned(part) for part in (attention.q_proj, attention.k_proj, attention.v_proj)]
    found = {
        "self_attn.in_proj_weight": np.concatenate([weight for weight, _ in heads]),
        "self_attn.in_proj_bias": np.concatenate([bias for _, bias in heads]),
    }
    parts = {"self_attn.out_proj": attention.out_proj, "linear1": layer.linear1, "linear2": layer.linear2}
    for name, part in parts.items():
        found[name + ".weight"], found[name + ".bias"] = turned(part)
    for name in ("norm1", "norm2"):
        found[name + ".weight"], found[name + ".bias"] = getattr(layer, name).weight.numpy(), getattr(layer, name).bias.numpy()
    return {name: torch.tensor(np.ascontiguousarray(value)) for name, value in found.items()}


@each("before", [False, True])
def test_transformer_encoder_as_torch(before: bool) -> None:
    torch = pytest.importorskip("torch")
    encoder = dygraph.TransformerEncoder(dygraph.TransformerEncoderLayer(8, 2, 16, normalize_before=before), 2).eval()
    x = array(3, 5, 8)
    encoder(Tensor(x))
    for parameter in encoder.parameters():
        parameter.set_value(array(*parameter.shape) * 0.3 + (1.0 if parameter.ndim == 1 else 0.0))
    mask = np.triu(np.full((5, 5), -np.inf, "float32"), 1)
    other = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=before), 2, enable_nested_tensor=False
    ).eval()
    for mine, theirs in zip(encoder.layers, other.layers, strict=True):
        theirs.load_state_dict(encoder_state(mine))
    mine, leaf = Tensor(x, stop_gradient=False), torch.tensor(x, requires_grad=True)
    out, expected = encoder(mine, Tensor(mask)), other(leaf, torch.tensor(mask))
    np.testing.assert_allclose(out.numpy(), expected.detach().numpy(), 1e-4, 1e-4)
    np.testing.assert_allclose(encoder(mine, Tensor(mask == 0)).numpy(), out.numpy(), 1e-4, 1e-4)
    (out * out).sum().backward()
    (expected * expected).sum().backward()
    np.testing.assert_allclose(mine.grad.numpy(), leaf.grad.numpy(), 1e-3, 1e-3)


def test_attention_between_sequences() -> None:
    attention = dygraph.MultiHeadAttention(8, 2, kdim=3, vdim=4, need_weights=True)
    out, weights = attention(Tensor(array(2, 5, 8)), Tensor(array(2, 6, 3)), Tensor(array(2, 6, 4)))
    assert out.shape == (2, 5, 8) and weights.shape == (2, 2, 5, 6)
    np.testing.assert_allclose(weights.numpy().sum(-1), 1, 1e-5)
    dropping = dygraph.MultiHeadAttention(8, 2, dropout=0.5)
    x = Tensor(array(2, 5, 8))
    assert not np.array_equal(dropping(x).numpy(), dropping(x).numpy())
    with pytest.raises(ProgramError, match="embed_dim=8 cannot be dealt out to 3 heads"):
        dygraph.MultiHeadAttention(8, 3)
    with pytest.raises(ProgramError, match="'soft' is not an activation"):
        dygraph.Linear(2, 2, act="soft")


# ------------------------------------------------------------------------------------------------------------- the class
class Block(dygraph.Layer):
    def __init__(self) -> None:
        super().__init__("block")
        self.inner = dygraph.Linear(2, 2)
        self.scale = self.create_parameter(None, [2], default_initializer=fluid.initializer.Constant(2.0))
        self.register_buffer("seen", Tensor([0.0]))
        self.register_buffer("cache", Tensor([1.0]), persistable=False)

    def forward(self, x: Any) -> Any:
        self.seen.set_value(self.seen + 1.0)
        return self.inner(x) * self.scale


def test_parts_and_their_names() -> None:
    net = dygraph.Sequential(Block(), ("last", Block()))
    assert [name for name, _ in net.named_sublayers()] == ["0", "0.inner", "last", "last.inner"]
    assert [name for name, _ in net.named_parameters()] == [
        "0.scale", "0.inner.weight", "0.inner.bias", "last.scale", "last.inner.weight", "last.inner.bias",
    ]  # fmt: skip
    assert [name for name, _ in net.named_buffers("net")] == ["net.0.seen", "net.0.cache", "net.last.seen", "net.last.cache"]
    assert len(net.parameters()) == 6 and len(net.parameters(include_sublayers=False)) == 0 and len(net.buffers()) == 4
    assert len(net.sublayers()) == 4 and len(net.sublayers(include_sublayers=False)) == 2
    assert list(net.state_dict()) == [
        "0.scale", "0.seen", "0.inner.weight", "0.inner.bias", "last.scale", "last.seen", "last.inner.weight", "last.inner.bias",
    ]  # fmt: skip
    assert net[0].full_name() == "block/Block_0" and net["last"].full_name() == "block/Block_1"
    assert net[0].scale.name == "block/Block_0.w_0" and net[0].inner.weight.name == "linear_0.w_0"
    assert net[0].scale.tolist() == [2, 2]
    shared = dygraph.Sequential(net[0], net[0])
    assert len(shared.parameters()) == 3
    assert "scale" in dir(net[0]) and repr(net[0]) == "Block(scale=[2]\n  (inner): Linear(weight=[2, 2], bias=[2])\n)"
    visited = []
    net.apply(lambda layer: visited.append(layer.full_name()))
    assert len(visited) == 5


def test_attributes() -> None:
    block = Block()
    other = dygraph.Linear(2, 2)
    block.inner = other
    assert block.inner is other and block.sublayers() == [other]
    block.inner = None
    assert block.inner is None and block.sublayers() == []
    del block.scale
    assert [name for name, _ in block.named_parameters()] == []
    with pytest.raises(AttributeError, match="Block has no attribute 'scale'"):
        _ = block.scale
    block.seen = Tensor([5.0])
    assert block.state_dict()["seen"].tolist() == [5.0]
    block.plain = 3
    assert block.plain == 3
    block.add_parameter("w", dygraph.Parameter([1.0]))
    with pytest.raises(FluidTypeError, match="w of block/Block_0 is a Parameter, and cannot become a int; use set_value"):
        block.w = 3
    with pytest.raises(ProgramError, match="block/Block_0 cannot have a part called 'w'; it is taken"):
        block.add_sublayer("w", other)
    with pytest.raises(ProgramError, match=r"cannot have a part called 'a.b'; it has a point"):
        block.add_parameter("a.b", dygraph.Parameter([1.0]))
    with pytest.raises(FluidTypeError, match="parts of a layer have names, not 3"):
        block.add_parameter(3, dygraph.Parameter([1.0]))
    with pytest.raises(
        FluidTypeError, match=r"add_parameter\('v'\) takes a Parameter, such as of create_parameter, not a Tensor"
    ):
        block.add_parameter("v", Tensor([1.0]))
    with pytest.raises(FluidTypeError, match=r"add_sublayer\('v'\) takes a Layer, not a Tensor"):
        block.add_sublayer("v", Tensor([1.0]))
    with pytest.raises(FluidTypeError, match=r"register_buffer\('v'\) takes a Tensor, not a int"):
        block.register_buffer("v", 1)

    class Early(dygraph.Layer):
        def __init__(self) -> None:
            self.inner = dygraph.Linear(2, 2)

    with pytest.raises(ProgramError, match=r"Early: call super\(\).__init__\(\) before assigning inner"):
        Early()
    with pytest.raises(NotImplementedError, match=r"Layer should define forward"):
        dygraph.Layer()()
    with pytest.raises(ProgramError, match="a Layer has no backward; call that of the loss"):
        block.backward()


def test_train_and_eval_and_clear_gradients() -> None:
    net = dygraph.Sequential(dygraph.Dropout(0.9), dygraph.Sequential(dygraph.Linear(3, 3)))
    assert net.eval() is net
    assert [layer.training for layer in net.sublayers(include_self=True)] == [False] * 4
    assert net.train()[1].training
    net(Tensor(array(2, 3))).sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())
    net.clear_gradients()
    assert all(parameter.grad is None for parameter in net.parameters())


def test_hooks() -> None:
    layer = dygraph.Linear(2, 2)
    x = Tensor(array(1, 2))
    plain = layer(x).numpy()
    seen = []
    look = layer.register_forward_pre_hook(lambda layer, inputs: seen.append(inputs))
    double = layer.register_forward_pre_hook(lambda layer, inputs: inputs[0] * 2.0)
    after = layer.register_forward_post_hook(lambda layer, inputs, found: found + 100.0)
    np.testing.assert_allclose(layer(x).numpy(), (x.numpy() * 2) @ layer.weight.numpy() + 100, 1e-5)
    assert seen[0][0] is x
    for handle in (look, double, after):
        handle.remove()
    np.testing.assert_array_equal(layer(x).numpy(), plain)
    assert len(seen) == 1


def test_state_goes_from_layer_to_layer() -> None:
    one, other = Block(), Block()
    other.set_dict(one.state_dict())
    x = Tensor(array(3, 2))
    np.testing.assert_array_equal(one(x).numpy(), other(x).numpy())
    by_own_name = {tensor.name: tensor.numpy() for tensor in one.state_dict().values()}
    third = Block()
    third.scale.name, third.inner.weight.name, third.inner.bias.name = (
        one.scale.name, one.inner.weight.name, one.inner.bias.name,
    )  # fmt: skip
    third.seen.name = one.seen.name
    third.load_dict(by_own_name)
    np.testing.assert_array_equal(third.inner.weight.numpy(), one.inner.weight.numpy())
    with pytest.raises(ProgramError, match=r"block/Block_1: the state has no 'seen' \(float32\[1\]\); it has scale"):
        other.set_dict({"scale": np.ones(2)})
    before = other.scale.numpy()
    wrong = {**one.state_dict(), "scale": np.ones(2), "inner.bias": np.ones(3)}
    with pytest.raises(ProgramError, match=r"inner.bias is float32\[2\], but the state's has the shape \[3\]"):
        other.set_dict(wrong)
    np.testing.assert_array_equal(other.scale.numpy(), before)
    with pytest.warns(UserWarning, match="has nothing under these names of the state: extra"):
        other.set_dict({**one.state_dict(), "extra": np.ones(1)})


class Late(dygraph.Layer):
    """Two of its layers make their parameters in the first call."""

    def __init__(self, *, weight_norm: bool = False, bias_attr: Any = None) -> None:
        super().__init__("late")
        attr = fluid.WeightNormParamAttr(dim=0) if weight_norm else None
        self.conv = dygraph.Conv2D("conv", 2, 3, param_attr=attr, bias_attr=bias_attr)
        self.norm = dygraph.BatchNorm("norm", 2)
        self.fc = dygraph.FC("fc", 3, param_attr=fluid.ParamAttr(name="table"))
        self.last = dygraph.Linear(3, 1)

    def forward(self, x: Any) -> Any:
        return self.last(self.fc(self.norm(self.conv(x))))


@pytest.mark.parametrize("weight_norm", [False, True])
@pytest.mark.parametrize("own_names", [False, True])
def test_a_state_is_for_parameters_that_are_made_later_too(weight_norm: bool, own_names: bool, recwarn: Any) -> None:
    x = Tensor(array(2, 1, 4, 4))
    with dygraph.guard():
        one = Late(weight_norm=weight_norm)
        one(x)
        one.eval()
        state = {tensor.name if own_names else name: tensor for name, tensor in one.state_dict().items()}
        expected = one(x).numpy()
    with dygraph.guard():
        other = Late(weight_norm=weight_norm)
        other.eval()
        other.set_dict(state)
        one.conv.bias.set_value([5.0, 5.0])  # what was given is a copy
        np.testing.assert_array_equal(other(x).numpy(), expected)
        assert other.conv._given is None and {type(item) for item in other.parameters()} == {dygraph.Parameter}
    assert not recwarn.list


def test_a_state_given_before_the_first_call_is_part_of_the_state() -> None:
    x = Tensor(array(2, 1, 4, 4))
    one = Late()
    one(x)
    state = {name: tensor.numpy() for name, tensor in one.state_dict().items()}
    for start in ({}, {"conv.bias": np.float32([7.0, 8.0])}):  # the latest counts
        other = Late()
        other.set_dict({**state, **start})
        other.set_dict(state)
        assert other.state_dict().keys() == state.keys()
        third = copy.deepcopy(other)
        third.set_dict(other.state_dict())
        for name, tensor in third.state_dict().items():
            np.testing.assert_array_equal(tensor.numpy(), state[name])
        third(x)
        np.testing.assert_array_equal(third.conv.bias.numpy(), state["conv.bias"])


def test_a_state_that_does_not_fit_what_is_made_later() -> None:
    x = Tensor(array(2, 1, 4, 4))
    one = Late()
    one(x)
    state = {name: tensor.numpy() for name, tensor in one.state_dict().items()}
    other = Late()
    other.set_dict({**state, "conv.weight": np.ones((2, 3, 3, 3), "float32")})
    with pytest.raises(ProgramError, match=r"conv/Conv2D_1: weight is float32\[2, 1, 3, 3\], but .* has .* \[2, 3, 3, 3\]"):
        other(x)
    other.set_dict({name: value for name, value in state.items() if name != "fc.bias"})
    with pytest.raises(ProgramError, match=r"fc/FC_1: the state has no 'bias' \(float32\[3\]\); it has nothing"):
        other(x)
    other.set_dict({**state, "conv.weight": one.conv.weight.numpy()})
    with pytest.warns(UserWarning, match="late/Late_1 has nothing under these names of the state: conv.scale, extra"):
        other.set_dict({**state, "conv.scale": np.ones(2), "extra": np.ones(1)})
    np.testing.assert_array_equal(other(x).numpy(), one(x).numpy())
    without = Late(bias_attr=False)
    without.set_dict(state)
    with pytest.warns(UserWarning, match="conv/Conv2D_2 has nothing under these names of the state: bias"):
        without(x)


def test_lists_of_parameters_that_are_not_made_yet() -> None:
    x, net = Tensor(array(2, 1, 4, 4)), Late()
    with pytest.warns(UserWarning, match="late/Late_0: the parameters of conv/Conv2D_0, fc/FC_0 are not among these: they"):
        assert [item.name for item in net.parameters()] == [
            *(f"norm/BatchNorm_0.{name}" for name in ("w_0", "b_0", "w_1", "w_2")), "linear_0.w_0", "linear_0.b_0",
        ]  # fmt: skip
    with pytest.warns(UserWarning, match="late/Late_0: the parameters of conv/Conv2D_0, fc/FC_0 are not in the state"):
        assert "conv.weight" not in net.state_dict()
    net.clear_gradients()
    assert net.parameters(include_sublayers=False) == []
    net(x)
    assert len(net.parameters()) == 10 and len(net.state_dict()) == 10


@pytest.mark.filterwarnings("error")
def test_pooling_has_no_parameters_to_wait_for() -> None:
    net = dygraph.Sequential(dygraph.Conv2D(1, 2, 3), dygraph.Pool2D(pool_size=2), dygraph.Pool2D("named", 2))
    assert net.state_dict().keys() == {"0.weight", "0.bias"}
    net.set_dict(net.state_dict())
    fluid.optimizer.SGD(0.1, parameter_list=net.parameters())
    assert net[1].parameters() == [] and net[1].weight is None and net[1].bias is None


def test_what_does_not_depend_on_the_input_is_made_at_once() -> None:
    assert [item.shape for item in dygraph.GRUUnit("g", 6).parameters()] == [(2, 6), (1, 6)]
    assert dygraph.BatchNorm("b", 3).weight.tolist() == [1, 1, 1]
    assert [item.shape for item in dygraph.BatchNorm("b", 3, data_layout="NHWC").parameters()] == [(3,)] * 4
    layer = dygraph.TransformerEncoderLayer(8, 2, 16)
    assert {"norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias"} < layer.state_dict().keys()
    with pytest.raises(ProgramError, match="gru_unit: size should be a multiple of 3"):
        dygraph.GRUUnit("g", 4)


def test_parts_that_were_taken_away() -> None:
    x, linear, conv = Tensor(array(2, 3)), dygraph.Linear(3, 2), dygraph.Conv2D("conv", 2, 1)
    del linear.bias
    with pytest.raises(AttributeError, match="Linear has no attribute 'bias', which was deleted; if linear_0 is to do without"):
        linear(x)
    linear.bias = None
    np.testing.assert_allclose(linear(x).numpy(), x.numpy() @ linear.weight.numpy(), 1e-5)
    image = Tensor(array(1, 1, 2, 2))
    conv(image)
    for take in (lambda: delattr(conv, "bias"), lambda: setattr(conv, "bias", None)):
        take()
        with pytest.raises(ProgramError, match=r"conv/Conv2D_0 needs its bias, which was taken away: .* \(bias_attr=False\)"):
            conv(image)
        conv.bias = dygraph.Parameter([1.0, 2.0])
        conv(image)


def test_layers_are_copied_and_pickled() -> None:
    net = dygraph.Sequential(Block(), dygraph.BatchNorm("b", 2))
    x = Tensor(array(4, 2))
    net(x)
    twin = copy.deepcopy(net)
    assert twin[0].scale is not net[0].scale and twin[0].scale.name == net[0].scale.name
    assert isinstance(twin[0].scale, dygraph.Parameter) and twin.state_dict().keys() == net.state_dict().keys()
    np.testing.assert_array_equal(twin(x).numpy(), net(x).numpy())
    parameter = pickle.loads(pickle.dumps(net[1]._mean))
    assert isinstance(parameter, dygraph.Parameter) and not parameter.trainable
    np.testing.assert_array_equal(parameter.numpy(), net[1]._mean.numpy())
    linear = dygraph.Linear(2, 3, act="softmax")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(linear))(x).numpy(), linear(x).numpy())
    assert pickle.loads(pickle.dumps(dygraph.ops.tanh)) is dygraph.ops.tanh


def test_parameters_are_made_as_their_attributes_say() -> None:
    attr = fluid.ParamAttr(
        "mine", fluid.initializer.Constant(3.0), 0.5, fluid.regularizer.L2Decay(0.1), False, do_model_average=False
    )
    layer = dygraph.Linear(2, 2, param_attr=attr, bias_attr=fluid.initializer.Constant(1.0))
    weight = layer.weight
    assert (weight.name, weight.tolist(), weight.optimize_attr, weight.trainable) == (
        "mine", [[3, 3], [3, 3]], {"learning_rate": 0.5}, False,
    )  # fmt: skip
    assert weight.stop_gradient and isinstance(weight.regularizer, fluid.regularizer.L2DecayRegularizer)
    assert layer.bias.tolist() == [1, 1] and repr(layer.bias).startswith("Parameter linear_0.b_0: Tensor([1., 1.]")
    assert layer.create_parameter(False) is None
    dygraph.seed(7)
    one = dygraph.Linear(3, 4).weight.numpy()
    dygraph.seed(7)
    np.testing.assert_array_equal(dygraph.Linear(3, 4).weight.numpy(), one)
    limit = np.sqrt(6 / 7)
    assert np.abs(one).max() <= limit and len(np.unique(one)) == 12  # Xavier's
    assert isinstance(layer.create_variable(), Tensor)


# ------------------------------------------------------------------------------------------------------------ containers
def test_sequential() -> None:
    net = dygraph.Sequential("name", dygraph.Linear(2, 3), dygraph.Linear(3, 1))
    assert net.full_name() == "name/Sequential_0" and len(net) == 2 and len(list(net)) == 2
    assert net(Tensor(array(5, 2))).shape == (5, 1)
    net[1] = dygraph.Linear(3, 7)
    assert net(Tensor(array(5, 2))).shape == (5, 7)
    del net[1]
    assert len(net) == 1 and net[:1](Tensor(array(5, 2))).shape == (5, 3)


def test_lists() -> None:
    items = dygraph.LayerList([dygraph.Linear(1, n) for n in (1, 2, 3)])
    items.append(dygraph.Linear(1, 4))
    items.insert(0, dygraph.Linear(1, 9))
    assert [layer.weight.shape[1] for layer in items] == [9, 1, 2, 3, 4]
    assert [name for name, _ in items.named_sublayers()] == ["0", "1", "2", "3", "4"]
    items[1] = dygraph.Linear(1, 7)
    del items[0]
    assert [layer.weight.shape[1] for layer in items] == [7, 2, 3, 4]
    assert len(items[1:3]) == 2 and items[-1].weight.shape == (1, 4)
    with pytest.raises(FluidTypeError, match="a LayerList only holds its items and cannot be called; call these"):
        items(Tensor([1.0]))
    parameters = dygraph.ParameterList([dygraph.Parameter([float(n)]) for n in range(3)])
    assert [parameter.item() for parameter in parameters] == [0, 1, 2] and len(parameters.parameters()) == 3
    with pytest.raises(FluidTypeError, match=r"add_parameter\('3'\) takes a Parameter"):
        parameters.append(Tensor([1.0]))


# ----------------------------------------------------------------------------------------------------------------- files
def test_states_in_files(tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "model")
    with dygraph.guard():
        net, optimizer = Block(), fluid.optimizer.Adam(0.1)
        loss = net(Tensor(array(2, 2))).sum()
        loss.backward()
        optimizer.minimize(loss)
        dygraph.save_dygraph(net.state_dict(), path)
        dygraph.save_dygraph(optimizer.state_dict(), path)
    with dygraph.guard():
        again, second = Block(), fluid.optimizer.Adam(0.1)
        state, optimizer_state = dygraph.load_dygraph(path)
        again.set_dict(state)
        assert optimizer_state is not None
        second.set_dict(optimizer_state)
        for name, tensor in net.state_dict().items():
            np.testing.assert_array_equal(again.state_dict()[name].numpy(), tensor.numpy())
        assert optimizer_state.keys() == optimizer.state_dict().keys()
    plain = pickle.loads((tmp_path / "deep" / "model.pdparams").read_bytes())  # as Paddle writes and reads them
    assert plain["StructuredToParameterName@@"]["inner.weight"] == "linear_0.w_0"
    np.testing.assert_array_equal(plain["inner.weight"], net.inner.weight.numpy())
    assert "linear_0.w_0" in fluid.io.load_program_state(path)
    for of_layer in (state, {"seen": net.seen}, {"seen": net.seen.numpy()}):
        dygraph.save_dygraph(of_layer, str(tmp_path / "layer.pdparams"))
        assert dygraph.load_dygraph(str(tmp_path / "layer"))[0].keys() == of_layer.keys()
    for of_optimizer in (optimizer_state, optimizer.state_dict()):
        dygraph.save_dygraph(of_optimizer, str(tmp_path / "optimizer.pdopt"))
        assert dygraph.load_dygraph(str(tmp_path / "optimizer"))[0] == {}
    assert sorted(item.name for item in tmp_path.iterdir()) == ["deep", "layer.pdparams", "optimizer.pdopt"]
    with pytest.raises(FluidTypeError, match=r"block/Block_0.set_dict takes a dict of .*, not a tuple; load_dygraph gives two"):
        net.set_dict(dygraph.load_dygraph(path))  # type: ignore[arg-type]
    os_path = tmp_path / "deep" / "model.pdopt"
    os_path.unlink()
    assert dygraph.load_dygraph(path + ".pdparams")[1] is None
    with pytest.raises(FormatError, match=r"there is neither .*other.pdparams nor .*other.pdopt"):
        dygraph.load_dygraph(str(tmp_path / "other"))
    with pytest.raises(ProgramError, match="save_dygraph: the state is empty"):
        dygraph.save_dygraph({}, path)
    with pytest.raises(ProgramError, match="names a folder"):
        dygraph.save_dygraph(net.state_dict(), str(tmp_path) + "/")
    (tmp_path / "bad.pdparams").write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(FormatError, match=r"bad.pdparams: it should hold a dict of arrays by name, but holds a list"):
        dygraph.load_dygraph(str(tmp_path / "bad"))


@each(
    ("make", "name"),
    [
        (lambda: dygraph.Conv2D(3, 4, 3), "conv2d_0"),
        (lambda: dygraph.Conv3DTranspose(3, 4, 3), "conv3d_transpose_0"),
        (lambda: dygraph.Pool2D(2), "pool2d_0"),
        (lambda: dygraph.PRelu("all"), "prelu_0"),
        (lambda: dygraph.GRUUnit(12), "gru_unit_0"),
        (lambda: dygraph.LayerList(), "layer_list_0"),
        (lambda: type("HTTPServer3X", (dygraph.Layer,), {})(), "http_server3x_0"),
    ],
)
def test_names_without_a_scope_are_those_of_paddle_1_8(make: Callable[[], Any], name: str) -> None:
    """Measured in Paddle 1.8.5. States of optimizers are saved by them."""
    with fluid.unique_name.guard():
        assert make().full_name() == name


# ---------------------------------------------------------------------------------------------- guards and plain layers
def test_guard() -> None:
    assert not fluid.in_dygraph_mode() and not dygraph.enabled()
    with dygraph.guard(fluid.CPUPlace()):
        assert fluid.in_dygraph_mode()
        ones = layers.fill_constant([2], "float32", 1.0)
        assert isinstance(ones, Tensor) and ones.tolist() == [1, 1]
        assert dygraph.Linear(1, 1).full_name() == "linear_0"
        with fluid.program_guard(fluid.Program()):
            assert not fluid.in_dygraph_mode()
            assert isinstance(layers.fill_constant([2], "float32", 1.0), fluid.framework.Variable)
    with dygraph.guard():
        assert dygraph.Linear(1, 1).full_name() == "linear_0"  # names count from zero
        fluid.default_main_program().random_seed = 5
        one = layers.uniform_random([3]).numpy()
        fluid.default_startup_program().random_seed = 5
        np.testing.assert_array_equal(layers.uniform_random([3]).numpy(), one)
    dygraph.enable_dygraph()
    try:
        assert fluid.in_dygraph_mode()
    finally:
        dygraph.disable_dygraph()
    assert not fluid.in_dygraph_mode()


def test_to_variable() -> None:
    made = dygraph.to_variable(np.ones(2, "float32"), name="ones")
    assert made.name == "ones" and made.stop_gradient and dygraph.to_variable(made) is made
    assert isinstance(made, fluid.framework.Variable)  # as scripts ask
    with pytest.raises(FluidTypeError, match="x is a Variable of a program, which has no value until it runs"):
        dygraph.to_variable(fluid.data("x", [2]))


def test_layers_run_on_what_they_are_given() -> None:
    x = Tensor(array(2, 3), stop_gradient=False)
    value = x.numpy()
    for found, expected in [
        (layers.relu(x), np.maximum(value, 0)),
        (layers.elementwise_add(x, x, act="tanh"), np.tanh(2 * value)),
        (layers.reduce_sum(x, dim=1, keep_dim=True), value.sum(1, keepdims=True)),
        (layers.concat([x, x], axis=1), np.concatenate([value, value], 1)),
        (layers.split(x, 3, dim=1)[1], value[:, 1:2]),
        (layers.reshape(x, [3, -1]), value.reshape(3, 2)),
        (layers.reshape(x, [3, Tensor(np.array([2], "int32"))]), value.reshape(3, 2)),
        (layers.transpose(x, [1, 0]), value.T),
        (layers.topk(x, 2)[0], np.sort(value, 1)[:, ::-1][:, :2]),
        (layers.slice(x, [1], [1], [3]), value[:, 1:3]),
        (layers.cast(x, "float64"), value.astype("float64")),
        (layers.mean(x), value.mean(keepdims=True).reshape(1)),
        (layers.matmul(x, x, transpose_y=True), value @ value.T),
        (layers.pow(x, 2.0), value**2),
        (layers.scale(x, scale=Tensor([2.0])), value * 2),
        (layers.less_than(x, x), value < value),
        (layers.softmax_with_cross_entropy(x, Tensor([[0], [1]])), None),
        (layers.clip_by_norm(x, 0.5), value * 0.5 / np.sqrt((value**2).sum())),
        (layers.dice_loss(layers.softmax(x), Tensor([[0], [1]])), None),
        (fluid.nets.glu(layers.concat([x, x], 1), dim=1), value / (1 + np.exp(-value))),
    ]:
        assert isinstance(found, Tensor)
        if expected is not None:
            np.testing.assert_allclose(found.numpy(), expected, 1e-4, 1e-6)
    assert not fluid.default_main_program().global_block().ops
    with dygraph.guard():
        np.testing.assert_array_equal(layers.range(0, 4, 1, "int64").numpy(), np.arange(4))
        np.testing.assert_array_equal(layers.assign(value).numpy(), value)


def test_layers_write_to_what_they_are_given() -> None:
    with dygraph.guard():
        count = layers.fill_constant([1], "int64", 3)
        assert layers.increment(count, 2) is count and count.item() == 5
        target = layers.zeros([2], "float32")
        layers.assign(Tensor([1.0, 2.0]), target)
        assert target.tolist() == [1, 2]
        holds = layers.less_than(count, layers.fill_constant([1], "int64", 9))
        layers.less_than(count, count, cond=holds)
        assert not holds.item()
        source = Tensor([1.0], stop_gradient=False)
        made = layers.create_tensor("float32")
        layers.assign(source * 2.0, made)
        made.sum().backward()
        assert source.grad.tolist() == [2]


def test_layers_of_ones_own_as_fluid_writes_them() -> None:
    class Old(dygraph.Layer):
        def __init__(self, scope: str) -> None:
            super().__init__(scope)
            self._w = self.create_parameter(attr=fluid.ParamAttr(), shape=[3, 2], dtype="float32", is_bias=False)

        def forward(self, x: Any) -> Any:
            out = self._helper.create_variable_for_type_inference("float32")
            self._helper.append_op(
                type="mul", inputs={"X": [x], "Y": [self._w]}, outputs={"Out": [out]}, attrs={"x_num_col_dims": 1}
            )
            return self._helper.append_activation(self._helper.append_activation(out), act="relu")

    with dygraph.guard():
        layer = Old("old")
        x = array(4, 3)
        out = layer(Tensor(x))
        np.testing.assert_allclose(out.numpy(), np.maximum(x @ layer._w.numpy(), 0), 1e-5)
        out.sum().backward()
        np.testing.assert_allclose(layer._w.gradient(), x.T @ (out.numpy() > 0), 1e-5)
        assert layer._w.name == "old/Old_0.w_0"


def test_ops_of_ones_own_take_parameters_from_lists_in_both_modes() -> None:
    class Stacked(dygraph.Layer):
        def __init__(self) -> None:
            super().__init__("stacked")
            ones = fluid.initializer.Constant(2.0)
            self._ws = [self.add_parameter(f"w{i}", self.create_parameter(None, [3, 3], None, False, ones)) for i in range(2)]

        def forward(self, x: Any) -> Any:
            for w in self._ws:
                out = self.create_variable(dtype="float32")
                self._helper.append_op(type="mul", inputs={"X": [x], "Y": w}, outputs={"Out": [out]})
                x = self._helper.append_activation(out, act="relu")
            return x

    x = array(4, 3) + 1.0
    with dygraph.guard():
        eager = Stacked()(Tensor(x)).numpy()
    out = Stacked()(fluid.data("x", [None, 3]))
    exe = fluid.Executor()
    exe.run(fluid.default_startup_program())
    np.testing.assert_allclose(exe.run(feed={"x": x}, fetch_list=[out])[0], eager, 1e-5)


def test_parameters_under_the_names_of_fluid() -> None:
    """Scripts share tables, and look at gradients, by these."""
    with dygraph.guard():
        table, fc, conv = dygraph.Embedding("table", [4, 3]), dygraph.FC("fc", 2), dygraph.Conv2D("conv", 2, 1)
        hidden = layers.matmul(table(Tensor(np.array([[1], [2]]))), table._w, transpose_y=True)
        layers.reduce_sum(fc(hidden)).backward()
        assert table._w is table.weight and fc._w is fc.weight and fc._b is fc.bias and fc._w.gradient().shape == (4, 2)
        conv(Tensor(array(1, 2, 3, 3)))
        assert conv._filter_param is conv.weight and conv._bias_param is conv.bias
        norm, gru = dygraph.BatchNorm("norm", 3), dygraph.GRUUnit("gru", 6)
        assert norm._scale is norm.weight and norm._bias is norm.bias and gru._weight is gru.weight and not hasattr(norm, "_w")


def test_a_tensor_is_read_and_set_as_a_variable_of_a_scope() -> None:
    """As scripts reset parameters and states: ``v.value().get_tensor().set(...)``."""
    weight = Tensor(array(3, 2), stop_gradient=False)
    held, version = weight._ivar.value().get_tensor(), weight.version
    assert np.array_equal(np.array(held), weight.numpy()) and held.shape() == [3, 2] and held.lod() == []
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(held)[0] = 1.0  # what is not counted as a change would make gradients wrong
    held.set(np.zeros((3, 2), np.float32), fluid.CPUPlace())
    assert not weight.numpy().any() and not np.array(held).any() and weight.version > version
    with pytest.raises(ProgramError, match=r"cannot be given a value of shape \[2\]"):
        held.set(np.zeros(2, np.float32), fluid.CPUPlace())
    assert weight.to_string(throw_on_error=True) == str(weight)


def test_what_layers_refuse() -> None:
    x = Tensor(array(2, 3))
    with dygraph.guard():
        with pytest.raises(ProgramError, match=r"fc would make its parameters anew in each call; .*dygraph\.FC"):
            layers.fc(x, 2)
        step = layers.StaticRNN().step()
        with pytest.raises(ProgramError, match="blocks are parts of programs; in eager mode, use Python's own if, for and while"):
            step.__enter__()
        with pytest.raises(ProgramError, match="autoincreased_step_counter counts the runs of a program; in eager mode"):
            layers.autoincreased_step_counter()
    with pytest.raises(ProgramError, match=r"fc would make its parameters anew in each call"):
        layers.fc(x, 2)
    with pytest.raises(FluidTypeError, match=r"elementwise_add is given .*, a tensor, and x, a Variable of a program"):
        layers.elementwise_add(x, fluid.data("x", [2, 3]))
    with pytest.raises(FluidTypeError, match=r"lstm_\d takes tensors, not y, a Variable of a program; "):
        dygraph.LSTM(3, 2)(fluid.data("y", [2, 3]))
    for layer in (dygraph.Linear(3, 2), dygraph.LSTM(3, 2), dygraph.BatchNorm("norm", 3)):
        with pytest.raises(FluidTypeError, match=r"_\d.set_dict takes a dict of tensors or arrays by name, .*, not None, which"):
            layer.set_dict(None)  # type: ignore[arg-type]
    with pytest.raises(FluidTypeError, match=r"takes tensors, not a list; dygraph.to_variable makes one of an array"):
        dygraph.Conv2D("conv", 2, 3)(array(2, 3, 4, 4).tolist())  # type: ignore[arg-type]
    with pytest.raises(FluidTypeError, match=r"FC: the first argument is the layer's name, or None, not 3"):
        dygraph.FC(3, 2)  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match=r"linear_\d+ takes \[..., 4\], not float32\[2, 3\]"):
        dygraph.Linear(4, 2)(x)
    assert issubclass(ProgramError, FluidError)


# -------------------------------------------------------------------------------------------------------------- parallel
def test_one_process_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = dygraph.prepare_context()
    net = dygraph.DataParallel(Block(), strategy)
    loss = net.scale_loss(net(Tensor(array(2, 2))).sum())
    loss.backward()
    net.apply_collective_grads()
    assert list(net.state_dict()) == ["scale", "seen", "inner.weight", "inner.bias"]
    net.set_dict(net.state_dict())
    env = dygraph.Env()
    assert (env.nranks, env.local_rank, env.dev_id, env.current_endpoint, env.trainer_endpoints) == (1, 0, 0, "", [""])
    with pytest.raises(FluidTypeError, match="DataParallel takes a Layer, not a int"):
        dygraph.DataParallel(3)
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    monkeypatch.setenv("PADDLE_TRAINER_ID", "0")
    with pytest.raises(
        CommunicationError, match=r"that of process 0 of 2, and this is process 0 of 1; start 2 .python -m fluid.dist"
    ):
        dygraph.prepare_context()


def test_backward_strategy() -> None:
    strategy = dygraph.BackwardStrategy()
    strategy.sort_sum_gradient = True
    x = Tensor([3.0], stop_gradient=False)
    (x * x).backward(backward_strategy=strategy)
    (x * x).backward(strategy)
    assert x.gradient().tolist() == [12.0]


def test_a_script_of_fluid_trains(tmp_path: Path) -> None:
    class Mnist(fluid.dygraph.Layer):
        def __init__(self, name_scope: str) -> None:
            super().__init__(name_scope)
            self._conv = fluid.dygraph.nn.Conv2D(self.full_name(), num_filters=4, filter_size=5, act="relu", use_cudnn=False)
            self._pool = fluid.dygraph.nn.Pool2D(self.full_name(), pool_size=2, pool_type="max", pool_stride=2, use_cudnn=False)
            self._fc = fluid.dygraph.nn.FC(self.full_name(), 10, act="softmax")

        def forward(self, inputs: Any, label: Any = None) -> Any:
            x = self._fc(self._pool(self._conv(inputs)))
            return x if label is None else (x, fluid.layers.accuracy(input=x, label=label))

    with fluid.dygraph.guard(fluid.CPUPlace()):
        fluid.default_startup_program().random_seed = 90
        mnist = Mnist("mnist")
        adam = fluid.optimizer.AdamOptimizer(learning_rate=0.01)
        strategy = fluid.dygraph.BackwardStrategy()
        image, label = (
            fluid.dygraph.base.to_variable(array(16, 1, 12, 12)),
            fluid.dygraph.to_variable(RNG.integers(0, 10, (16, 1))),
        )
        losses = []
        for _ in range(8):
            cost, accuracy = mnist(image, label)
            average = fluid.layers.mean(fluid.layers.cross_entropy(cost, label))
            average.backward(strategy)
            adam.minimize(average)
            mnist.clear_gradients()
            losses.append(average.numpy().item())
        assert losses[-1] < losses[0] and 0 <= accuracy.numpy().item() <= 1
        fluid.dygraph.save_dygraph(mnist.state_dict(), str(tmp_path / "saved"))
        state, _ = fluid.dygraph.load_dygraph(str(tmp_path / "saved"))
        mnist.load_dict(state)
        mnist.eval()
        out, traced = fluid.dygraph.jit.TracedLayer.trace(mnist, inputs=[image])
        np.testing.assert_array_equal(traced([image])[0].numpy(), out.numpy())


# ------------------------------------------------------------------------------------------- parts of the first call
class Built(dygraph.Layer):
    def __init__(self) -> None:
        super().__init__("built")
        self.first = dygraph.FC("first", 3)
        self.calls: list[Any] = []

    def _build_once(self, x: Any, scale: float = 1.0) -> None:
        self.calls.append((x.shape, scale))
        self.weight = self.create_parameter(shape=[3, x.shape[1]])
        self.add_parameter("bias", self.create_parameter(shape=[x.shape[1]], is_bias=True))
        self.inner = dygraph.Linear(x.shape[1], 2)
        self.last = dygraph.FC("last", 2)

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        return self.last(self.inner(self.first(x) @ self.weight * scale + self.bias))


class Around(dygraph.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.built = Built()
        self.out = dygraph.Linear(2, 1)

    def forward(self, x: Any) -> Any:
        return self.out(self.built(x, scale=2.0))


def test_build_once_makes_parts_in_the_first_call() -> None:
    net, x = Around(), Tensor(np.random.default_rng(0).random((2, 4)).astype("float32"))
    with pytest.warns(UserWarning, match="the parameters of built/Built_0, first/FC_0 are not among these: they are made"):
        net.parameters()
    optimizer = fluid.optimizer.SGD(0.1, parameter_list=net)
    out = net(x)
    weight, before = net.built.weight, net.built.weight.numpy()
    out.sum().backward()
    optimizer.step()
    net(x)
    assert net.built.calls == [((2, 4), 2.0)] and net.built.weight is weight and len(net.parameters()) == 10
    assert not np.array_equal(weight.numpy(), before)
    expected = net(x).numpy()
    for make in (Around, lambda: copy.deepcopy(Around()), lambda: pickle.loads(pickle.dumps(Around()))):
        twin = make()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            twin.set_dict(net.state_dict())
            assert set(twin.state_dict()) == set(net.state_dict())
            np.testing.assert_array_equal(twin(x).numpy(), expected)
    traced = dygraph.to_static(Around())
    traced.set_dict(net.state_dict())
    with dygraph.no_grad():
        np.testing.assert_allclose(traced(x).numpy(), expected, rtol=1e-6)


def test_build_once_takes_a_state_by_the_names_of_parameters() -> None:
    x = Tensor(np.ones((2, 4), "float32"))
    with dygraph.guard():
        net = Built()
        expected = net(x).numpy()
        state = {tensor.name: tensor.numpy() for tensor in net.state_dict().values()}
    with dygraph.guard():
        twin = Built()
        twin.set_dict(state)
        np.testing.assert_array_equal(twin(x).numpy(), expected)


def test_a_state_that_does_not_fit_what_build_once_makes() -> None:
    net, x = Around(), Tensor(np.ones((2, 4), "float32"))
    net(x)
    state = {name: tensor.numpy() for name, tensor in net.state_dict().items()}
    twin = Around()
    twin.set_dict({name: value for name, value in state.items() if name != "built.weight"})
    for _ in range(2):
        with pytest.raises(ProgramError, match=r"built/Built_1: the state has no 'weight' \(float32\[3, 4\]\); it has bias, inn"):
            twin(x)
    twin.set_dict(state)
    np.testing.assert_array_equal(twin(x).numpy(), net(x).numpy())
    other = Around()
    other.set_dict({**state, "built.more": state["out.bias"]})
    with pytest.warns(UserWarning, match="built/Built_2 has nothing under these names of the state: more") as told:
        other(x)
    assert told[0].filename == __file__


def test_build_once_that_fails_is_called_again() -> None:
    class Failing(Built):
        def _build_once(self, x: Any, scale: float = 1.0) -> None:
            super()._build_once(x, scale)
            if len(self.calls) == 1:
                raise ValueError("not now")

    net, x = Failing(), Tensor(np.ones((2, 4), "float32"))
    with pytest.raises(ValueError, match="not now"):
        net(x)
    assert net._sub_layers.keys() == {"first"} and not net._parameters
    net(x)
    net(x)
    assert len(net.calls) == 2


def test_build_once_of_no_inputs_is_the_layers_own() -> None:
    class Own(dygraph.Layer):
        def __init__(self) -> None:
            super().__init__()
            self._build_once()

        def _build_once(self) -> None:  # type: ignore[override]
            self.weight = self.create_parameter(shape=[2])

        def forward(self, x: Any) -> Any:
            return x * self.weight

    net = Own()
    weight = net.weight
    net(Tensor(np.ones(2, "float32")))
    assert net.weight is weight and [id(param) for param in net.parameters()] == [id(weight)]


def test_backward_hooks_of_layers() -> None:
    """They see, and may replace, the gradients where these come out of the layer, in each pass and order."""
    linear = dygraph.Linear(2, 3, act="tanh")
    x = Tensor(array(4, 2), stop_gradient=False)
    seen: list[Any] = []

    def hook(layer: Any, of_inputs: Any, of_outputs: Any) -> Any:
        seen.append((layer, *(grad if grad is None else grad.numpy() for grad in (*of_inputs, *of_outputs))))
        return None if of_inputs[0] is None else (of_inputs[0] * 2.0,)

    (plain,) = dygraph.grad((linear(x) ** 2.0).sum(), x)
    with linear.register_backward_hook(hook):
        y = linear(x)
        (y**2.0).sum().backward(retain_graph=True)
        np.testing.assert_allclose(x.grad.numpy(), 2.0 * plain.numpy(), rtol=1e-6)
        ((layer, of_input, of_output),) = seen
        assert layer is linear
        np.testing.assert_allclose(of_input, plain.numpy(), rtol=1e-6)
        np.testing.assert_allclose(of_output, 2.0 * y.numpy(), rtol=1e-6)
        (slope,) = dygraph.grad(linear(x).sum(), x, create_graph=True)
        assert dygraph.grad(slope.sum(), x)[0].shape == x.shape
        del seen[:]
        linear(x.detach()).sum().backward()  # only its parameters require a gradient
        assert len(seen) == 1 and seen[0][1] is None
        with dygraph.no_grad():
            linear(x)
    linear(x).sum().backward()
    assert len(seen) == 1

    class InPlace(dygraph.Layer):
        def forward(self, x: Any) -> Any:
            return x.tanh_()

    layer = InPlace()
    layer.register_backward_hook(hook)
    with pytest.raises(BackwardError, match="in_place_0 modifies an input in place"):
        layer(x * 1.0)

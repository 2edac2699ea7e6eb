"""Small nets of torch, for a batch of any size, by the exporter that needs only torch: their outputs, training, and re-export."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F

import fluid
from fluid import layers

pytestmark = pytest.mark.slow

RATE, STEPS = 0.05, 5


class Net(nn.Module):  # type: ignore[misc]
    """``forward(net, *inputs)``, with parts by name."""

    def __init__(self, forward: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


def masked_attention(net: Any, x: Any, mask: Any) -> Any:
    batch, length, _ = x.shape
    q, k, v = (part.view(batch, length, 2, 4).transpose(1, 2) for part in net.qkv(x).chunk(3, -1))
    scores = (q @ k.transpose(-1, -2) / 2).masked_fill(mask[:, None, None, :] == 0, -1e9)
    x = net.norm(x + net.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, 8)))
    return x + net.down(F.gelu(net.up(x), approximate="tanh")) + F.gelu(x)


def interpolated(net: Any, x: Any) -> Any:
    x = net.conv(x)
    larger = F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)
    both = F.interpolate(larger, size=(7, 9), mode="bilinear", align_corners=True), F.interpolate(x, size=(7, 9), mode="nearest")
    return both[0] + both[1]


def rearranged(net: Any, x: Any) -> Any:
    y = net.linear(x)
    parts = torch.roll(y, 1, 1)[:, ::2], y[:, -3:], torch.flip(y, [1])[:, 1:4], y.tril()[:, :3], y.unfold(1, 3, 1).sum(2)[:, :3]
    return sum(parts)


def sorted_in_ways(net: Any, x: Any) -> Any:
    y = net.linear(x)
    return torch.cat([y.cumsum(1), y.topk(3, 1)[0], y.sort(1, descending=True)[0]], 1)


def normalized(net: Any, x: Any) -> Any:
    y = net.linear(x)
    shifted = y.std(1, keepdim=True) + y.logsumexp(1, keepdim=True)
    return F.normalize(y, dim=1) + shifted + F.softplus(y) + F.mish(y) + F.hardswish(y) + net.slopes(y)


def pooled_to_sizes(net: Any, x: Any) -> Any:
    x = net.conv(x)
    return net.linear(torch.cat([F.adaptive_avg_pool2d(x, (2, 4)).flatten(1), F.adaptive_max_pool2d(x, 1).flatten(1)], 1))


def scattered(net: Any, x: Any, index: Any) -> Any:
    return torch.zeros_like(x).scatter_add(1, index, net.linear(x)) + torch.gather(net.linear(x), 1, index)


def sampled(net: Any, x: Any, grid: Any) -> Any:
    return F.grid_sample(net.conv(x), torch.tanh(grid), mode="bilinear", padding_mode="border", align_corners=False)


def both_directions(net: Any, x: Any) -> Any:
    outputs, last = net.gru(x)
    return torch.cat([outputs, last.transpose(0, 1)[:, :1].repeat(1, 1, 2)], 1)


def nets() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Nets with random weights, and inputs."""
    torch.manual_seed(0)
    normal, image = torch.randn, torch.randn(2, 3, 6, 6)
    index = torch.tensor([[0, 1, 1, 3], [2, 2, 0, 1], [3, 0, 1, 2]])
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    transposed = {"first": nn.ConvTranspose2d(3, 6, 3, 2, 1, 1, groups=3), "second": nn.ConvTranspose2d(6, 2, 4, 2, 1)}
    norms = {"conv": nn.Conv2d(3, 8, 3, padding=1), "group": nn.GroupNorm(4, 8), "instance": nn.InstanceNorm2d(8, affine=True)}
    attention = {"qkv": nn.Linear(8, 24), "out": nn.Linear(8, 8), "norm": nn.LayerNorm(8), "up": nn.Linear(8, 16)}
    return {
        "transposed convolutions": (Net(lambda net, x: net.second(F.relu(net.first(x))), **transposed), (image,)),
        "norms of groups": (Net(lambda net, x: net.instance(net.group(net.conv(x))) + net.conv(x), **norms), (image,)),
        "masked attention": (Net(masked_attention, **attention, down=nn.Linear(16, 8)), (normal(2, 5, 8), mask)),
        "attention": (
            Net(
                lambda net, x: x + net.heads(x, x, x, need_weights=False)[0], heads=nn.MultiheadAttention(8, 2, batch_first=True)
            ),
            (normal(2, 5, 8),),
        ),
        "gru": (Net(both_directions, gru=nn.GRU(4, 6, 2, bidirectional=True, batch_first=True)), (normal(3, 5, 4),)),
        "lstm": (
            Net(
                lambda net, x: net.out(net.lstm(x)[0]),
                lstm=nn.LSTM(4, 5, bidirectional=True, batch_first=True),
                out=nn.Linear(10, 2),
            ),
            (normal(3, 5, 4),),
        ),
        "shuffled pixels": (
            Net(
                lambda net, x: F.pixel_unshuffle(net.after(F.pixel_shuffle(net.before(x), 2)), 2),
                before=nn.Conv2d(3, 12, 1),
                after=nn.Conv2d(3, 2, 1),
            ),
            (image,),
        ),
        "pooled to sizes": (
            Net(pooled_to_sizes, conv=nn.Conv2d(3, 4, 3, padding=1), linear=nn.Linear(36, 3)),
            (normal(2, 3, 8, 8),),
        ),
        "sampled": (Net(sampled, conv=nn.Conv2d(3, 4, 1)), (image, normal(2, 4, 3, 2))),
        "scattered": (Net(scattered, linear=nn.Linear(4, 4)), (normal(3, 4), index)),
        "sorted": (Net(sorted_in_ways, linear=nn.Linear(4, 6)), (normal(3, 4),)),
        "interpolated": (Net(interpolated, conv=nn.Conv2d(3, 2, 3, padding=1)), (image,)),
        "lines": (
            Net(
                lambda net, x: F.interpolate(net.conv(x), scale_factor=1.5, mode="linear"),
                conv=nn.Conv1d(3, 2, 3, padding=2, dilation=2),
            ),
            (normal(2, 3, 8),),
        ),
        "volumes": (
            Net(
                lambda net, x: net.back(F.leaky_relu(F.max_pool3d(net.conv(x), 2))),
                conv=nn.Conv3d(2, 3, 3, padding=1),
                back=nn.ConvTranspose3d(3, 1, 2, 2),
            ),
            (normal(1, 2, 4, 4, 4),),
        ),
        "looked up": (
            Net(
                lambda net, ids: net.linear(net.table(ids).mean(1)) * torch.where(net.table(ids).amax(1) > 0, 1.0, 0.5),
                table=nn.Embedding(11, 6),
                linear=nn.Linear(6, 6),
            ),
            (torch.randint(0, 11, (3, 4)),),
        ),
        "activations": (Net(normalized, linear=nn.Linear(4, 5), slopes=nn.PReLU(5)), (normal(3, 4),)),
        "rearranged": (Net(rearranged, linear=nn.Linear(4, 6)), (normal(3, 4),)),
    }


NETS = nets()


@pytest.mark.parametrize("name", NETS)
def test_net(name: str, tmp_path: Path) -> None:
    net, inputs = NETS[name]
    names = [f"in{number}" for number in range(len(inputs))]
    feed = {input_name: value.numpy() for input_name, value in zip(names, inputs, strict=True)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net, inputs, str(tmp_path / "net.onnx"), dynamo=False, input_names=names, output_names=["out"], opset_version=18,
            training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
            dynamic_axes={value_name: {0: "batch"} for value_name in (*names, "out")},
        )  # fmt: skip
    expected = net(*inputs).detach().numpy()
    model = fluid.load_model(tmp_path / "net.onnx", scope=fluid.Scope())

    def check_outputs(program: Any, fetch: str, scope: Any) -> None:
        (result,) = fluid.Executor().run(program, feed=feed, fetch_list=[fetch], scope=scope)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)

    check_outputs(model.program, model.fetches[0].name, model.scope)
    for file_name in ("again.onnx", "again.json"):
        fluid.save_model(tmp_path / file_name, model.program, feeds=model.feeds, fetches=model.fetches, scope=model.scope)
        again = fluid.load_model(tmp_path / file_name, scope=fluid.Scope())
        check_outputs(again.program, again.fetches[0].name, again.scope)
    with fluid.scope_guard(model.scope):
        check_outputs(fluid.optimize_for_inference(model.program), model.fetches[0].name, model.scope)

    model.program.make_trainable()
    with fluid.program_guard(model.program, fluid.Program()):
        loss = layers.mean(layers.square(model.program.global_block().var(model.fetches[0].name)))
        _, pairs = fluid.optimizer.SGD(RATE).minimize(loss)
        startup = fluid.default_startup_program()
    executor = fluid.Executor()
    executor.run(startup, scope=model.scope)
    optimizer = torch.optim.SGD(net.parameters(), RATE)
    of_torch = dict(net.named_parameters())
    pairs = [(parameter.name, grad) for parameter, grad in pairs if parameter.name in of_torch]
    for _ in range(STEPS):
        optimizer.zero_grad()
        its_loss = (net(*inputs) ** 2).mean()
        its_loss.backward()
        ours, *grads = executor.run(model.program, feed=feed, fetch_list=[loss, *(grad for _, grad in pairs)], scope=model.scope)
        np.testing.assert_allclose(ours.item(), its_loss.item(), rtol=1e-4)
        for (parameter, _), grad in zip(pairs, grads, strict=True):
            np.testing.assert_allclose(grad, of_torch[parameter].grad.numpy(), rtol=1e-4, atol=1e-4)
        optimizer.step()

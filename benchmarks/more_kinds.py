"""Further kinds of nets for `kinds.py`: each as a training step of Fluid and of torch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from kinds import Step, fluid_step, normal, torch_step

__all__ = ["KINDS"]


def integers(below: int, *shape: int) -> Any:
    return np.random.default_rng(0).integers(0, below, shape)


# -------------------------------------------------------------------------------------------------------------- images
def unet() -> Step:
    """Two scales, joined again by transposed convolutions."""
    import fluid
    from fluid import layers

    def twice(x: Any, channels: int) -> Any:
        for _ in range(2):
            x = layers.conv2d(x, channels, 3, padding=1, act="relu")
        return x

    def up(x: Any, skipped: Any, channels: int) -> Any:
        return twice(layers.concat([layers.conv2d_transpose(x, channels, None, 2, 0, 2), skipped], 1), channels)

    def build() -> Any:
        x, y = fluid.data("x", [4, 1, 64, 64]), fluid.data("y", [4, 1, 64, 64])
        first = twice(x, 16)
        second = twice(layers.pool2d(first, 2, "max", 2), 32)
        third = twice(layers.pool2d(second, 2, "max", 2), 64)
        scores = layers.conv2d(up(up(third, second, 32), first, 16), 1, 1)
        return layers.mean(layers.sigmoid_cross_entropy_with_logits(scores, y))

    return fluid_step(build, {"x": normal(4, 1, 64, 64), "y": np.float32(integers(2, 4, 1, 64, 64))})


def torch_unet() -> Step:
    import torch
    from torch import nn

    def twice(before: int, channels: int) -> Any:
        widths = [before, channels]
        return nn.Sequential(*[part for width in widths for part in (nn.Conv2d(width, channels, 3, padding=1), nn.ReLU())])

    downs = nn.ModuleList([twice(1, 16), twice(16, 32), twice(32, 64)])
    ups = nn.ModuleList([nn.ConvTranspose2d(64, 32, 2, 2), twice(64, 32), nn.ConvTranspose2d(32, 16, 2, 2), twice(32, 16)])
    last, x, y = nn.Conv2d(16, 1, 1), torch.randn(4, 1, 64, 64), torch.randint(0, 2, (4, 1, 64, 64)).float()

    def loss() -> Any:
        first = downs[0](x)
        second = downs[1](nn.functional.max_pool2d(first, 2))
        h = downs[2](nn.functional.max_pool2d(second, 2))
        for place, skipped in ((0, second), (2, first)):
            h = ups[place + 1](torch.cat([ups[place](h), skipped], 1))
        return nn.functional.binary_cross_entropy_with_logits(last(h), y)

    return torch_step([*downs.parameters(), *ups.parameters(), *last.parameters()], loss)


def style_blocks() -> Step:
    """Residual blocks of reflected padding, convolution and instance norm, as in style transfer."""
    import fluid
    from fluid import layers

    def part(x: Any) -> Any:
        return layers.instance_norm(layers.conv2d(layers.pad2d(x, [1, 1, 1, 1], "reflect"), 32, 3))

    def build() -> Any:
        h = fluid.data("x", [2, 32, 64, 64])
        for _ in range(2):
            h = h + part(layers.relu(part(h)))
        return layers.mean(layers.abs(h))

    return fluid_step(build, {"x": normal(2, 32, 64, 64)})


def torch_style_blocks() -> Step:
    import torch
    from torch import nn

    def part() -> list[Any]:
        return [nn.ReflectionPad2d(1), nn.Conv2d(32, 32, 3), nn.InstanceNorm2d(32, affine=True)]

    blocks, x = nn.ModuleList([nn.Sequential(*part(), nn.ReLU(), *part()) for _ in range(2)]), torch.randn(2, 32, 64, 64)

    def loss() -> Any:
        h = x
        for block in blocks:
            h = h + block(h)
        return h.abs().mean()

    return torch_step(blocks.parameters(), loss)


def group_norm_blocks() -> Step:
    """Residual blocks of group norm, swish and convolution, as in diffusion models."""
    import fluid
    from fluid import layers

    def build() -> Any:
        h = fluid.data("x", [4, 64, 32, 32])
        for _ in range(2):
            h = h + layers.conv2d(layers.swish(layers.group_norm(h, 8)), 64, 3, padding=1)
        return layers.mean(layers.square(h))

    return fluid_step(build, {"x": normal(4, 64, 32, 32)})


def torch_group_norm_blocks() -> Step:
    import torch
    from torch import nn

    blocks = nn.ModuleList([nn.Sequential(nn.GroupNorm(8, 64), nn.SiLU(), nn.Conv2d(64, 64, 3, padding=1)) for _ in range(2)])
    x = torch.randn(4, 64, 32, 32)

    def loss() -> Any:
        h = x
        for block in blocks:
            h = h + block(h)
        return h.square().mean()

    return torch_step(blocks.parameters(), loss)


def volumes() -> Step:
    import fluid
    from fluid import layers

    def build() -> Any:
        h, label = fluid.data("x", [4, 3, 8, 32, 32]), fluid.data("label", [4, 1], "int64")
        for channels in (16, 32):
            h = layers.pool3d(layers.conv3d(h, channels, 3, padding=1, act="relu"), 2, "max", 2)
        return layers.mean(layers.softmax_with_cross_entropy(layers.fc(h, 10), label))

    return fluid_step(build, {"x": normal(4, 3, 8, 32, 32), "label": integers(10, 4, 1)})


def torch_volumes() -> Step:
    import torch
    from torch import nn

    parts = [part for a, b in ((3, 16), (16, 32)) for part in (nn.Conv3d(a, b, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2))]
    net = nn.Sequential(*parts, nn.Flatten(), nn.Linear(32 * 2 * 64, 10))
    x, label = torch.randn(4, 3, 8, 32, 32), torch.randint(0, 10, (4,))
    return torch_step(net.parameters(), lambda: nn.functional.cross_entropy(net(x), label))


# ---------------------------------------------------------------------------------------------- sequences of channels
def _convolved(x: Any, channels: int, taps: int, dilation: int = 1) -> Any:
    """A convolution over sequences [N, C, L]: one over images of one row."""
    from fluid import layers

    padding, image = [0, taps // 2 * dilation], layers.unsqueeze(x, [2])
    return layers.squeeze(layers.conv2d(image, channels, [1, taps], padding=padding, dilation=[1, dilation]), [2])


def points() -> Step:
    """Three layers with batch norm over each point, and the maximum over all points, as PointNet has."""
    import fluid
    from fluid import layers

    def build() -> Any:
        h, label = fluid.data("x", [16, 3, 512]), fluid.data("label", [16, 1], "int64")
        for channels in (64, 64, 128):
            h = layers.batch_norm(_convolved(h, channels, 1), act="relu")
        scores = layers.fc(layers.fc(layers.reduce_max(h, 2), 64, act="relu"), 10)
        return layers.mean(layers.softmax_with_cross_entropy(scores, label))

    return fluid_step(build, {"x": normal(16, 3, 512), "label": integers(10, 16, 1)})


def torch_points() -> Step:
    import torch
    from torch import nn

    widths = (3, 64, 64, 128)
    parts = [part for a, b in pairwise(widths) for part in (nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU())]
    net, head = nn.Sequential(*parts), nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    x, label = torch.randn(16, 3, 512), torch.randint(0, 10, (16,))
    return torch_step([*net.parameters(), *head.parameters()], lambda: nn.functional.cross_entropy(head(net(x).amax(2)), label))


def gated_dilations() -> Step:
    """Gated convolutions with holes of 1 to 16 over 1,024 samples, as WaveNet has."""
    import fluid
    from fluid import layers

    def build() -> Any:
        h = _convolved(fluid.data("x", [8, 1, 1024]), 32, 1)
        for dilation in (1, 2, 4, 8, 16):
            gate = layers.sigmoid(_convolved(h, 32, 3, dilation))
            h = h + _convolved(layers.tanh(_convolved(h, 32, 3, dilation)) * gate, 32, 1)
        return layers.mean(layers.square(_convolved(layers.relu(h), 1, 1)))

    return fluid_step(build, {"x": normal(8, 1, 1024)})


def torch_gated_dilations() -> Step:
    import torch
    from torch import nn

    first, last, x = nn.Conv1d(1, 32, 1), nn.Conv1d(32, 1, 1), torch.randn(8, 1, 1024)
    blocks = nn.ModuleList([nn.ModuleList([*_torch_gates(dilation), nn.Conv1d(32, 32, 1)]) for dilation in (1, 2, 4, 8, 16)])

    def loss() -> Any:
        h = first(x)
        for values, gate, out in blocks:
            h = h + out(values(h).tanh() * gate(h).sigmoid())
        return last(h.relu()).square().mean()

    return torch_step([*first.parameters(), *blocks.parameters(), *last.parameters()], loss)


def _torch_gates(dilation: int) -> list[Any]:
    from torch import nn

    return [nn.Conv1d(32, 32, 3, padding=dilation, dilation=dilation) for _ in range(2)]


# ------------------------------------------------------------------------------------------------------------- products
def wide_layers() -> Step:
    """Layers of 8 MB for 8 rows: reading and updating the weights takes longer than multiplying."""
    import fluid
    from fluid import layers

    def build() -> Any:
        hidden = layers.fc(fluid.data("x", [8, 1024]), 2048, act="relu")
        return layers.mean(layers.square(layers.fc(hidden, 1024)))

    return fluid_step(build, {"x": normal(8, 1024)}, "Adam")


def torch_wide_layers() -> Step:
    import torch
    from torch import nn

    net, x = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024)), torch.randn(8, 1024)
    return torch_step(net.parameters(), lambda: net(x).square().mean(), "Adam", fused=True)


# ------------------------------------------------------------------------------------------------------------ equations
def burgers_equation() -> Step:
    """A net of two inputs that solves a differential equation, with its second derivatives."""
    import fluid
    from fluid import layers

    def build() -> Any:
        x = fluid.data("x", [1024, 2])
        x.stop_gradient = False
        h = x
        for _ in range(4):
            h = layers.fc(h, 50, act="tanh")
        u = layers.fc(h, 1)
        (slope,) = fluid.gradients([u], [x])
        by_x, by_t = (layers.slice(slope, [1], [place], [place + 1]) for place in (0, 1))
        (second,) = fluid.gradients([by_x], [x])
        return layers.mean(layers.square(by_t + u * by_x - layers.slice(second, [1], [0], [1]) * 0.003))

    return fluid_step(build, {"x": normal(1024, 2)})


def torch_burgers_equation() -> Step:
    import torch
    from torch import nn

    parts = [part for width in (2, 50, 50, 50) for part in (nn.Linear(width, 50), nn.Tanh())]
    net, x = nn.Sequential(*parts, nn.Linear(50, 1)), torch.randn(1024, 2).requires_grad_()

    def loss() -> Any:
        u = net(x)
        (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(slope[:, :1].sum(), x, create_graph=True)
        return (slope[:, 1:] + u * slope[:, :1] - second[:, :1] * 0.003).square().mean()

    return torch_step(net.parameters(), loss)


# ------------------------------------------------------------------------------------------------ tables, graphs, routing
def factorization_machine() -> Step:
    """Clicks by pairs of 26 features, and by an MLP of them (DeepFM), with sparse gradients."""
    import fluid
    from fluid import layers

    def build() -> Any:
        ids, label = fluid.data("ids", [512, 26], "int64"), fluid.data("label", [512, 1])
        vectors, weights = (fluid.embedding(ids, [100000, size], is_sparse=True) for size in (16, 1))
        pairs = layers.square(layers.reduce_sum(vectors, 1)) - layers.reduce_sum(layers.square(vectors), 1)
        hidden = layers.reshape(vectors, [512, 416])
        for size in (256, 128):
            hidden = layers.fc(hidden, size, act="relu")
        linear = layers.reduce_sum(weights, 1) + layers.reduce_sum(pairs, 1, keep_dim=True) * 0.5
        return layers.mean(layers.sigmoid_cross_entropy_with_logits(layers.fc(hidden, 1) + linear, label))

    return fluid_step(build, {"ids": integers(100000, 512, 26), "label": np.float32(integers(2, 512, 1))})


def torch_factorization_machine() -> Step:
    import torch
    from torch import nn

    table, weights = (nn.Embedding(100000, size, sparse=True) for size in (16, 1))
    net = nn.Sequential(nn.Linear(416, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1))
    ids, label = torch.randint(0, 100000, (512, 26)), torch.randint(0, 2, (512, 1)).float()

    def loss() -> Any:
        vectors = table(ids)
        pairs = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1, keepdim=True)
        return nn.functional.binary_cross_entropy_with_logits(net(vectors.flatten(1)) + weights(ids).sum(1) + pairs / 2, label)

    return torch_step([*table.parameters(), *weights.parameters(), *net.parameters()], loss)


def graph_convolution() -> Step:
    """Two layers that sum the neighbours of 2,000 nodes over 10,000 edges."""
    import fluid
    from fluid import layers

    def build() -> Any:
        h, label = fluid.data("x", [2000, 64]), fluid.data("label", [2000, 1], "int64")
        sources, targets = fluid.data("sources", [10000], "int64"), fluid.data("targets", [10000, 1], "int64")
        for size in (64, 16):
            messages = layers.gather(layers.fc(h, size, bias_attr=False), sources)
            h = layers.relu(layers.scatter_nd_add(layers.fill_constant([2000, size], "float32", 0.0), targets, messages))
        return layers.mean(layers.softmax_with_cross_entropy(layers.fc(h, 7), label))

    edges = {"sources": integers(2000, 10000), "targets": integers(2000, 10000, 1)}
    return fluid_step(build, {"x": normal(2000, 64), "label": integers(7, 2000, 1), **edges})


def torch_graph_convolution() -> Step:
    import torch
    from torch import nn

    first, second, last = nn.Linear(64, 64, bias=False), nn.Linear(64, 16, bias=False), nn.Linear(16, 7)
    x, label = torch.randn(2000, 64), torch.randint(0, 7, (2000,))
    sources, targets = torch.randint(0, 2000, (2, 10000))

    def loss() -> Any:
        h = x
        for layer in (first, second):
            values = layer(h)
            h = torch.zeros_like(values).index_add(0, targets, values[sources]).relu()
        return nn.functional.cross_entropy(last(h), label)

    return torch_step(nn.ModuleList([first, second, last]).parameters(), loss)


def capsules() -> Step:
    """Routing by agreement, in three turns."""
    import fluid
    from fluid import layers

    def build() -> Any:
        x, w = fluid.data("x", [16, 128, 1, 8]), layers.create_parameter([1, 128, 80, 8], "float32")
        votes = layers.reshape(layers.reduce_sum(w * x, 3), [16, 128, 10, 8])
        logits = layers.fill_constant([16, 128, 10], "float32", 0.0)
        for _ in range(3):
            sums = layers.reduce_sum(votes * layers.unsqueeze(layers.softmax(logits), [3]), 1)
            squares = layers.reduce_sum(layers.square(sums), 2, keep_dim=True)
            capsule = sums * (squares / ((1.0 + squares) * layers.sqrt(squares + 1e-7)))
            logits = logits + layers.reduce_sum(votes * layers.unsqueeze(capsule, [1]), 3)
        return layers.mean(layers.square(capsule))

    return fluid_step(build, {"x": normal(16, 128, 1, 8)})


def torch_capsules() -> Step:
    import torch

    w, x = torch.nn.Parameter(torch.randn(1, 128, 80, 8) * 0.05), torch.randn(16, 128, 1, 8)

    def loss() -> Any:
        votes, logits = (w * x).sum(3).reshape(16, 128, 10, 8), torch.zeros(16, 128, 10)
        for _ in range(3):
            sums = (votes * logits.softmax(2)[..., None]).sum(1)
            squares = sums.square().sum(2, keepdim=True)
            capsule = sums * (squares / ((1 + squares) * (squares + 1e-7).sqrt()))
            logits = logits + (votes * capsule[:, None]).sum(3)
        return capsule.square().mean()

    return torch_step([w], loss)


# ------------------------------------------------------------------------------------------------------------ sequences
def speech() -> Step:
    """A layer over 50 frames, with the loss of all alignments to 10 of 30 letters (CTC)."""
    import fluid
    from fluid import layers

    def build() -> Any:
        x, label = fluid.data("x", [16, 50, 64]), fluid.data("label", [16, 10], "int32")
        frames, letters = fluid.data("frames", [16], "int64"), fluid.data("letters", [16], "int64")
        scores = layers.transpose(layers.fc(x, 30, num_flatten_dims=2), [1, 0, 2])
        return layers.mean(layers.warpctc(scores, label, 0, False, frames, letters))

    lengths = {"frames": np.full(16, 50), "letters": np.full(16, 10)}
    return fluid_step(build, {"x": normal(16, 50, 64), "label": np.int32(integers(29, 16, 10) + 1), **lengths})


def torch_speech() -> Step:
    import torch
    from torch import nn

    net, x, label = nn.Linear(64, 30), torch.randn(16, 50, 64), torch.randint(1, 30, (16, 10))
    frames, letters = torch.full((16,), 50), torch.full((16,), 10)

    def loss() -> Any:
        scores = net(x).transpose(0, 1).log_softmax(2)
        return nn.functional.ctc_loss(scores, label, frames, letters, reduction="sum") / 16

    return torch_step(net.parameters(), loss)


# ---------------------------------------------------------------------------------------------------------- recurrences
def penalized_rnn() -> Step:
    """A recurrence whose loss has the squares of its gradient by the input."""
    import fluid
    from fluid import layers

    def build() -> Any:
        x, y = fluid.data("x", [20, 32, 32]), fluid.data("y", [32, 1])
        x.stop_gradient = False
        rnn = layers.StaticRNN()
        with rnn.step():
            word = rnn.step_input(x)
            before = rnn.memory(shape=[-1, 64], batch_ref=word)
            state = layers.fc([word, before], 64, act="tanh")
            rnn.update_memory(before, state)
            rnn.step_output(state)
        score = layers.fc(layers.reduce_mean(rnn(), 0), 1)
        (slope,) = fluid.gradients([score], [x])
        return layers.mean(layers.square(score - y)) + layers.mean(layers.square(slope))

    return fluid_step(build, {"x": normal(20, 32, 32), "y": normal(32, 1)})


def torch_penalized_rnn() -> Step:
    import torch
    from torch import nn

    of_word, of_state, out = nn.Linear(32, 64), nn.Linear(64, 64, False), nn.Linear(64, 1)
    x, y = torch.randn(20, 32, 32).requires_grad_(), torch.randn(32, 1)

    def loss() -> Any:
        state, states, words = torch.zeros(32, 64), [], of_word(x)
        for word in words:
            state = torch.tanh(word + of_state(state))
            states.append(state)
        score = out(torch.stack(states).mean(0))
        (slope,) = torch.autograd.grad(score.sum(), x, create_graph=True)
        return (score - y).square().mean() + slope.square().mean()

    return torch_step(nn.ModuleList([of_word, of_state, out]).parameters(), loss)


def beam_search() -> Step:
    """`dynamic_decode` of 32 sentences: 20 words of 2,000, 4 beams, by a GRU of 128."""
    import fluid
    from fluid import layers

    fluid.set_num_threads(1)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        decoder = layers.BeamSearchDecoder(
            *(layers.GRUCell(128), 0, 1, 4),
            embedding_fn=lambda ids: fluid.embedding(ids, [2000, 64], param_attr="words"),
            output_fn=lambda states: layers.fc(states, 2000, param_attr="scores", bias_attr=False),
        )
        ids, _ = layers.dynamic_decode(decoder, fluid.data("state", [32, 128]), max_step_num=19)
    executor, scope, feed = fluid.Executor(), fluid.Scope(), {"state": normal(32, 128)}
    executor.run(startup, scope=scope)
    return lambda: executor.run(main, feed, [ids], scope=scope, use_prune=True)


def torch_beam_search() -> Step:
    import torch
    from torch import nn

    torch.set_num_threads(1)
    table, cell, out, first = nn.Embedding(2000, 64), nn.GRUCell(64, 128), nn.Linear(128, 2000, False), torch.randn(32, 128)
    after_end = torch.full((2000,), -1e9)
    after_end[1] = 0

    @torch.inference_mode()
    def step() -> Any:
        state, word = first.repeat_interleave(4, 0), torch.zeros(128, dtype=torch.long)
        total, has_ended = torch.tensor([0.0, -1e9, -1e9, -1e9]).repeat(32, 1), torch.zeros(32, 4, dtype=torch.bool)
        words, parents = [], []
        for _ in range(20):
            state = cell(table(word), state)
            scores = out(state).log_softmax(1).view(32, 4, 2000)
            scores = torch.where(has_ended[..., None], after_end, scores)
            total, places = (total[..., None] + scores).view(32, -1).topk(4, 1)
            parent, chosen = places // 2000, places % 2000
            state = state.view(32, 4, 128).gather(1, parent[..., None].expand(-1, -1, 128)).view(128, 128)
            has_ended = has_ended.gather(1, parent) | (chosen == 1)
            words.append(chosen)
            parents.append(parent)
            word = chosen.view(-1)
        beams, ids = torch.arange(4).repeat(32, 1), []
        for chosen, parent in zip(reversed(words), reversed(parents), strict=True):
            ids.append(chosen.gather(1, beams))
            beams = parent.gather(1, beams)
        return torch.stack(ids[::-1])

    return step


KINDS: dict[str, tuple[Callable[[], Step], Callable[[], Step]]] = {
    "U-Net, 4 images of 64 x 64": (unet, torch_unet),
    "style transfer, 2 blocks of 32 channels, 64 x 64": (style_blocks, torch_style_blocks),
    "group norm and swish, 2 blocks of 64 channels, 32 x 32": (group_norm_blocks, torch_group_norm_blocks),
    "volumes, 4 of 8 x 32 x 32": (volumes, torch_volumes),
    "points, 16 clouds of 512": (points, torch_points),
    "gated convolutions with holes, 8 x 1,024 samples": (gated_dilations, torch_gated_dilations),
    "layers of 8 MB, 8 rows, Adam": (wide_layers, torch_wide_layers),
    "differential equation, second derivatives at 1,024 points": (burgers_equation, torch_burgers_equation),
    "DeepFM, 512 rows of 26 features": (factorization_machine, torch_factorization_machine),
    "graph convolution, 2,000 nodes, 10,000 edges": (graph_convolution, torch_graph_convolution),
    "capsules, 16 images": (capsules, torch_capsules),
    "CTC, 16 rows of 50 frames": (speech, torch_speech),
    "recurrence with a penalty on its gradient, 20 steps of 64": (penalized_rnn, torch_penalized_rnn),
    "dynamic_decode, 32 sentences, 4 beams": (beam_search, torch_beam_search),
}

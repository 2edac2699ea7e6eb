"""Kinds of nets for `kinds.py`, with new labels in each step: strips of text read by CTC, their decoding, and an SSD."""

from __future__ import annotations

from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
from kinds import Step, fluid_steps, torch_step

__all__ = ["KINDS"]

BATCHES, LETTERS, HEIGHT, WIDTH, FEATURES, IMAGE, CLASSES = 50, 10, 32, 96, 64, 64, 5
Batch = dict[str, Any]


def draw_offsets(number: int, most: int, sequences: int) -> tuple[np.random.Generator, Any]:
    """The generator of a batch, and random offsets of sequences of 1 to `most` rows."""
    rng = np.random.default_rng(number)
    return rng, np.concatenate([[0], np.cumsum(rng.integers(1, most + 1, sequences))])


# ------------------------------------------------------------------------------------------------------ strips of text
def strips(count: int) -> list[Batch]:
    """Images of text, and 1 to 8 letters for each."""
    batches = []
    for number in range(BATCHES):
        rng, offsets = draw_offsets(number, 8, count)
        label = rng.integers(0, LETTERS, (offsets[-1], 1)).astype("int32")
        batches.append({"x": rng.standard_normal((count, 1, HEIGHT, WIDTH), np.float32), "label": (label, [offsets.tolist()])})
    return batches


def reader(count: int) -> Step:
    """Two convolutions, GRUs both ways over the columns, and the loss of all alignments (CTC)."""
    import fluid
    from fluid import layers

    def build() -> Any:
        h, label = fluid.data("x", [None, 1, HEIGHT, WIDTH]), fluid.data("label", [None, 1], "int32", 1)
        for channels in (16, 32):
            h = layers.batch_norm(layers.conv2d(h, channels, 3, padding=1, bias_attr=False), act="relu")
            h = layers.pool2d(h, 2, "max", 2)
        columns = layers.im2sequence(h, [h.shape[2], 1], [1, 1])
        states = [layers.dynamic_gru(layers.fc(columns, 96), 32, is_reverse=is_reverse) for is_reverse in (False, True)]
        return layers.mean(layers.warpctc(layers.fc(states, LETTERS + 1), label, LETTERS))

    return fluid_steps(build, cycle(strips(count)), "Adam")


def torch_reader(count: int) -> Step:
    import torch
    from torch import nn

    parts: list[Any] = []
    for before, channels in ((1, 16), (16, 32)):
        conv = nn.Conv2d(before, channels, 3, padding=1, bias=False)
        parts += [conv, nn.BatchNorm2d(channels), nn.ReLU(), nn.MaxPool2d(2)]
    net, gru, out = nn.Sequential(*parts), nn.GRU(8 * HEIGHT, 32, bidirectional=True), nn.Linear(64, LETTERS + 1)
    feeds = cycle(strips(count))

    def loss() -> Any:
        batch = next(feeds)
        (label, (offsets,)), x = batch["label"], torch.from_numpy(batch["x"])
        scores = out(gru(net(x).permute(3, 0, 1, 2).flatten(2))[0]).log_softmax(2)
        lengths, steps = torch.tensor(offsets).diff(), torch.full((count,), len(scores))
        label = torch.from_numpy(label).view(-1).long()
        return nn.functional.ctc_loss(scores, label, steps, lengths, LETTERS, "sum", zero_infinity=True) / count

    return torch_step([*net.parameters(), *gru.parameters(), *out.parameters()], loss, "Adam")


def lines(count: int) -> list[Batch]:
    """Features of 1 to 60 steps, and 1 to 20 letters."""
    batches = []
    for number in range(BATCHES):
        (rng, steps), (_, letters) = draw_offsets(number, 60, count), draw_offsets(number + BATCHES, 20, count)
        x, label = rng.standard_normal((steps[-1], FEATURES), np.float32), rng.integers(0, LETTERS, (letters[-1], 1))
        batches.append({"x": (x, [steps.tolist()]), "label": (label, [letters.tolist()])})
    return batches


def decoder(count: int) -> Step:
    """Predicts by a layer, takes the best class of each step, and measures edit distances to the labels."""
    import fluid
    from fluid import layers

    fluid.set_num_threads(1)
    main, startup, feeds = fluid.Program(), fluid.Program(), cycle(lines(count))
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, label = fluid.data("x", [None, FEATURES], lod_level=1), fluid.data("label", [None, 1], "int64", 1)
        words = layers.ctc_greedy_decoder(layers.softmax(layers.fc(x, LETTERS + 1)), LETTERS)
        distances = layers.edit_distance(words, label, normalized=False)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    return lambda: executor.run(main, next(feeds), list(distances), scope=scope)


def torch_decoder(count: int) -> Step:
    """Edit distances are a loop in Python: torch has none."""
    import torch

    torch.set_num_threads(1)
    layer, feeds = torch.nn.Linear(FEATURES, LETTERS + 1), cycle(lines(count))

    def distance(words: list[int], label: list[int]) -> int:
        costs = list(range(len(label) + 1))
        for place, word in enumerate(words, 1):
            before, costs[0] = costs[0], place
            for column, letter in enumerate(label, 1):
                before, costs[column] = costs[column], min(costs[column] + 1, costs[column - 1] + 1, before + (word != letter))
        return costs[-1]

    def step() -> Any:
        (x, (steps,)), (label, (letters,)) = next(feeds).values()
        with torch.no_grad():
            best = layer(torch.from_numpy(x)).softmax(1).argmax(1).split(np.diff(steps).tolist())
            labels = torch.from_numpy(label).view(-1).split(np.diff(letters).tolist())
            paths = [torch.unique_consecutive(path) for path in best]
            return torch.tensor(
                [distance(path[path != LETTERS].tolist(), each.tolist()) for path, each in zip(paths, labels, strict=True)]
            )

    return step


# ------------------------------------------------------------------------------------------------------------- detection
def scenes() -> list[Batch]:
    """Images, and 1 to 8 boxes for each."""
    batches = []
    for number in range(BATCHES):
        rng, offsets = draw_offsets(number, 8, 8)
        centers, extents = rng.uniform(0.2, 0.8, (offsets[-1], 2)), rng.uniform(0.05, 0.2, (offsets[-1], 2))
        boxes = np.concatenate([centers - extents, centers + extents], 1).astype("float32")
        labels = rng.integers(1, CLASSES, (offsets[-1], 1)).astype("int32")
        x, lod = rng.standard_normal((8, 3, IMAGE, IMAGE), np.float32), [offsets.tolist()]
        batches.append({"x": x, "boxes": (boxes, lod), "labels": (labels, lod)})
    return batches


def detector() -> Step:
    """An SSD with priors on maps of 16, 8 and 4 rows, 4 at each place."""
    import fluid
    from fluid import layers

    def build() -> Any:
        x, boxes = fluid.data("x", [None, 3, IMAGE, IMAGE]), fluid.data("boxes", [None, 4], lod_level=1)
        labels, maps = fluid.data("labels", [None, 1], "int32", 1), [layers.conv2d(x, 16, 3, 2, 1, act="relu")]
        for _ in range(3):
            maps.append(layers.conv2d(maps[-1], 32, 3, 2, 1, act="relu"))
        sizes = {"min_sizes": [8.0, 16.0, 32.0], "max_sizes": [16.0, 32.0, 60.0]}
        head = layers.multi_box_head(maps[1:], x, IMAGE, CLASSES, [[2.0]] * 3, **sizes, offset=0.5, flip=True)
        location, confidence, priors, variances = head
        return layers.mean(layers.ssd_loss(location, confidence, boxes, labels, priors, variances))

    return fluid_steps(build, cycle(scenes()), "Adam")


def prior_boxes() -> Any:
    """Four boxes, as corners, at each place of maps of 16, 8 and 4 rows."""
    sides = [(np.arange(count) + 0.5) / count for count in (16, 8, 4)]
    grids = [np.stack(np.meshgrid(side, side), -1).reshape(-1, 1, 2) for side in sides]
    halves = [np.array([[1.0, 1], [1.4, 1.4], [1.4, 0.7], [0.7, 1.4]]) / len(side) / 2 for side in sides]
    corners = [np.concatenate([grid - half, grid + half], -1) for grid, half in zip(grids, halves, strict=True)]
    return np.concatenate([part.reshape(-1, 4) for part in corners]).astype("float32")


def torch_detector() -> Step:
    import torch
    from torch import nn
    from torch.nn import functional as f

    priors = torch.from_numpy(prior_boxes())
    first = nn.Conv2d(3, 16, 3, 2, 1)
    downs = nn.ModuleList([nn.Conv2d(before, 32, 3, 2, 1) for before in (16, 32, 32)])
    heads = nn.ModuleList([nn.Conv2d(32, 4 * size, 3, padding=1) for size in (4, CLASSES) for _ in range(3)])
    extents, middles = priors[:, 2:] - priors[:, :2], (priors[:, 2:] + priors[:, :2]) / 2
    areas, feeds = extents.prod(1), cycle(scenes())

    def targets(boxes: Any, labels: Any) -> tuple[Any, Any]:
        """The class that each prior should predict, and its box, relative to the prior."""
        across = torch.minimum(boxes[:, None, 2:], priors[:, 2:]) - torch.maximum(boxes[:, None, :2], priors[:, :2])
        shared = across.clamp(min=0).prod(2)
        similar = shared / ((boxes[:, 2:] - boxes[:, :2]).prod(1)[:, None] + areas - shared)
        best, box = similar.max(0)
        forced = similar.argmax(1)
        best[forced], box[forced] = 2.0, torch.arange(len(boxes))
        matched, sizes = boxes[box], (boxes[:, 2:] - boxes[:, :2])[box]
        moves = ((matched[:, 2:] + matched[:, :2]) / 2 - middles) / extents / 0.1
        return labels[box].masked_fill(best < 0.5, 0), torch.cat([moves, torch.log(sizes / extents) / 0.2], 1)

    def loss() -> Any:
        batch = next(feeds)
        (boxes, (offsets,)), h, predicted = batch["boxes"], first(torch.from_numpy(batch["x"])).relu(), []
        for down in downs:
            h = down(h).relu()
            predicted.append(h)
        sizes = [4] * 3 + [CLASSES] * 3
        rows = [
            head(h).permute(0, 2, 3, 1).reshape(8, -1, size) for head, h, size in zip(heads, predicted * 2, sizes, strict=True)
        ]
        location, confidence = torch.cat(rows[:3], 1), torch.cat(rows[3:], 1)
        counts = np.diff(offsets).tolist()
        parts = (torch.from_numpy(boxes).split(counts), torch.from_numpy(batch["labels"][0]).long().view(-1).split(counts))
        with torch.no_grad():
            classes, numbers = (torch.stack(part) for part in zip(*map(targets, *parts), strict=True))
        positive = classes > 0
        entropy = f.cross_entropy(confidence.flatten(0, 1), classes.view(-1), reduction="none").view(8, -1)
        with torch.no_grad():
            ranks = entropy.masked_fill(positive, 0).argsort(1, descending=True).argsort(1)
            learned = positive | (ranks < 3 * positive.sum(1, keepdim=True))
        distance = f.smooth_l1_loss(location[positive], numbers[positive], reduction="sum")
        return (distance + entropy[learned].sum()) / positive.sum()

    return torch_step([*first.parameters(), *downs.parameters(), *heads.parameters()], loss, "Adam")


KINDS = {
    "CRNN with CTC, 8 strips": (partial(reader, 8), partial(torch_reader, 8)),
    "CRNN with CTC, 32 strips": (partial(reader, 32), partial(torch_reader, 32)),
    "CTC decoded, with edit distances, 8 lines": (partial(decoder, 8), partial(torch_decoder, 8)),
    "CTC decoded, with edit distances, 32 lines": (partial(decoder, 32), partial(torch_decoder, 32)),
    "SSD, 8 images with 1,344 priors": (detector, torch_detector),
}

"""Times steps with batches that are new in each step: sequences of new lengths, dense batches of new sizes; beside torch eager.

Each side runs in a process of its own, so torch may live in another environment (``--torch-python PYTHON``). Both take turns, on
one thread; times are the processor's, medians over all turns. Both sides are fed the same ids and lengths.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

Batch = dict[str, Any]
Step = Callable[[Batch], Any]
SEQUENCES, LONGEST, WORDS, WIDTH, CLASSES = 64, 60, 5000, 64, 5
HIDDEN, FILTERS, TAGS = 128, 128, 57


# ------------------------------------------------------------------------------------------------------------- batches
def sequences(number: int, shortest: int = 1) -> Batch:
    """Ids of sequences of new lengths, their offsets, and a label for each."""
    rng = np.random.default_rng(number)
    lengths = rng.integers(shortest, LONGEST + 1, SEQUENCES)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids, tags = rng.integers(0, WORDS, offsets[-1]), rng.integers(0, TAGS, offsets[-1])
    steps = np.zeros((SEQUENCES, LONGEST), np.int64)
    steps[np.arange(LONGEST) < lengths[:, None]] = ids
    label = rng.integers(0, CLASSES, (SEQUENCES, 1))
    return {"ids": ids, "offsets": offsets, "tags": tags, "label": label, "steps": steps, "length": lengths}


def vectors(*shape: int) -> Callable[[int], Batch]:
    """Batches of new sizes, from 17 rows on, of vectors or images of a shape."""

    def batch(number: int) -> Batch:
        rng, rows = np.random.default_rng(number), 17 + number
        return {"x": rng.standard_normal((rows, *shape), np.float32), "label": rng.integers(0, CLASSES, (rows, 1))}

    return batch


def padded(number: int) -> Batch:
    """Sentences padded to a new number of words."""
    rng, steps = np.random.default_rng(number), 9 + number
    return {"ids": rng.integers(0, WORDS, (8, steps)), "label": rng.integers(0, CLASSES, (8, 1))}


# --------------------------------------------------------------------------------------------------------------- Fluid
def fluid_step(build: Callable[[], tuple[Any, Any]], optimizer: str = "SGD", trains: bool = True) -> Step:
    """A step that trains by the loss, or fetches the prediction, of the two that `build` returns."""
    import fluid

    fluid.set_num_threads(1)
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss, prediction = build()
        predicts = main.clone(for_test=True)
        if trains:
            getattr(fluid.optimizer, optimizer)(0.01).minimize(loss)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    program, fetched = (main, loss) if trains else (predicts, prediction)
    names = {name for name, var in program.global_block().vars.items() if var.is_data}

    def step(batch: Batch) -> Any:
        feed = {name: value for name, value in batch.items() if name in names}
        for name in {"ids", "tags"} & feed.keys() if "offsets" in batch else ():
            feed[name] = batch[name].reshape(-1, 1), [batch["offsets"]]
        if not trains:
            feed.pop("label", None)
            feed.pop("tags", None)
        return executor.run(program, feed, [fetched], scope=scope, use_prune=not trains)[0]

    return step


def fluid_classifier(features: Any) -> tuple[Any, Any]:
    """The loss and the scores of a classifier of features."""
    import fluid
    from fluid import layers

    scores = layers.fc(features, CLASSES)
    return layers.mean(layers.softmax_with_cross_entropy(scores, fluid.data("label", [None, 1], "int64"))), scores


def words(width: int = WIDTH, is_sparse: bool = False) -> Any:
    import fluid

    return fluid.embedding(fluid.layers.squeeze(fluid.data("ids", [None, 1], "int64", 1), [1]), [WORDS, width], is_sparse)


def pooled(kind: str, is_sparse: bool = False) -> tuple[Any, Any]:
    from fluid import layers

    return fluid_classifier(layers.sequence_pool(words(is_sparse=is_sparse), kind))


def convolved() -> tuple[Any, Any]:
    from fluid import layers

    return fluid_classifier(layers.sequence_pool(layers.sequence_conv(words(), FILTERS, 3, act="relu"), "max"))


def attended() -> tuple[Any, Any]:
    """Words weighted by a softmax over each sequence."""
    from fluid import layers

    x = words()
    weights = layers.sequence_softmax(layers.fc(layers.fc(x, WIDTH, act="tanh"), 1))
    return fluid_classifier(layers.sequence_pool(layers.elementwise_mul(x, weights), "sum"))


def expanded() -> tuple[Any, Any]:
    """Words beside the average of their sequence."""
    from fluid import layers

    x = words()
    mean = layers.fc(layers.sequence_pool(x, "average"), WIDTH)
    beside = layers.fc([x, layers.sequence_expand(mean, x)], WIDTH, act="relu")
    return fluid_classifier(layers.sequence_pool(beside, "max"))


def gru() -> tuple[Any, Any]:
    from fluid import layers

    states = layers.dynamic_gru(layers.fc(words(), 3 * HIDDEN, bias_attr=False), HIDDEN)
    return fluid_classifier(layers.sequence_last_step(states))


def analyser() -> tuple[Any, Any]:
    """A lexical analyser: two layers of GRUs both ways, and a conditional random field over tags."""
    import fluid
    from fluid import layers

    x, moves = words(HIDDEN), fluid.ParamAttr("moves")
    for _ in range(2):
        x = layers.concat([layers.dynamic_gru(layers.fc(x, 3 * HIDDEN), HIDDEN, is_reverse=back) for back in (False, True)], 1)
    scores = layers.fc(x, TAGS)
    cost = layers.linear_chain_crf(scores, fluid.data("tags", [None, 1], "int64", 1), param_attr=moves)
    return layers.mean(cost), layers.crf_decoding(scores, param_attr=moves)


def sentiment() -> tuple[Any, Any]:
    """An LSTM, and maxima of its inputs and states."""
    import fluid
    from fluid import layers

    x = layers.fc(words(), 4 * HIDDEN)
    states, _ = layers.dynamic_lstm(x, 4 * HIDDEN, use_peepholes=False)
    pools = [layers.sequence_pool(part, "max") for part in (x, states)]
    probabilities = layers.fc(pools, CLASSES, act="softmax")
    loss = layers.mean(layers.cross_entropy(probabilities, fluid.data("label", [None, 1], "int64")))
    return loss, probabilities


def normalized() -> tuple[Any, Any]:
    """Two blocks of dense layers for each word, with dropout and layer_norm, and an average."""
    from fluid import layers

    x = words()
    for _ in range(2):
        dense = layers.dropout(layers.fc(x, 2 * WIDTH, act="relu"), 0.1, dropout_implementation="upscale_in_train")
        x = layers.layer_norm(x + layers.fc(dense, WIDTH))
    return fluid_classifier(layers.sequence_pool(x, "average"))


def unpadded() -> tuple[Any, Any]:
    """Padded sentences, of which an op takes the words by fed lengths; a dense layer and a maximum."""
    import fluid
    from fluid import layers

    x = fluid.embedding(fluid.data("steps", [None, LONGEST], "int64"), [WORDS, WIDTH])
    rows = layers.sequence_unpad(x, fluid.data("length", [None], "int64"))
    return fluid_classifier(layers.sequence_pool(layers.fc(rows, FILTERS, act="tanh"), "max"))


def joined() -> tuple[Any, Any]:
    """Each sentence joined with a projection of itself; a dense layer and an average."""
    from fluid import layers

    x = words()
    rows = layers.fc(layers.sequence_concat([x, layers.fc(x, WIDTH, act="relu")]), WIDTH, act="tanh")
    return fluid_classifier(layers.sequence_pool(rows, "average"))


def padded_and_unpadded() -> tuple[Any, Any]:
    """Sentences padded for a dense layer, and unpadded for a maximum."""
    from fluid import layers

    steps, length = layers.sequence_pad(words(), layers.zeros([1], "float32"), LONGEST)
    rows = layers.sequence_unpad(layers.fc(steps, FILTERS, num_flatten_dims=2, act="tanh"), length)
    return fluid_classifier(layers.sequence_pool(rows, "max"))


def mlp() -> tuple[Any, Any]:
    import fluid
    from fluid import layers

    h = fluid.data("x", [None, 64])
    for _ in range(2):
        h = layers.fc(h, 128, act="relu")
    return fluid_classifier(h)


def lenet() -> tuple[Any, Any]:
    import fluid
    from fluid import layers

    h = fluid.data("x", [None, 1, 28, 28])
    for filters in (6, 16):
        h = layers.pool2d(layers.conv2d(h, filters, 5, act="relu"), 2, "max", 2)
    return fluid_classifier(layers.fc(layers.fc(h, 120, act="relu"), 84, act="relu"))


def transformer() -> tuple[Any, Any]:
    """A block of attention with four heads and of two dense layers, over sentences."""
    import fluid
    from fluid import layers

    x = fluid.embedding(fluid.data("ids", [None, None], "int64"), [WORDS, WIDTH])
    projected = [layers.fc(x, WIDTH, 2) for _ in range(3)]
    queries, keys, values = (layers.transpose(layers.reshape(part, [0, 0, 4, 16]), [0, 2, 1, 3]) for part in projected)
    weights = layers.softmax(layers.matmul(queries, keys, transpose_y=True, alpha=0.25))
    heads = layers.reshape(layers.transpose(layers.matmul(weights, values), [0, 2, 1, 3]), [0, 0, WIDTH])
    x = layers.layer_norm(x + layers.fc(heads, WIDTH, 2), begin_norm_axis=2)
    x = layers.layer_norm(x + layers.fc(layers.fc(x, 2 * WIDTH, 2, act="relu"), WIDTH, 2), begin_norm_axis=2)
    return fluid_classifier(layers.reduce_mean(x, 1))


# --------------------------------------------------------------------------------------------------------------- torch
def torch_step(build: Callable[[], tuple[Any, ...]], optimizer: str = "SGD", trains: bool = True) -> Step:
    """A step by what `build` returns: modules, a function of tensors to scores, and a loss of both, by default cross entropy."""
    import torch

    torch.set_num_threads(1)
    module, scores, *losses = build()
    updates = getattr(torch.optim, optimizer)(module.parameters(), lr=0.01) if trains else None

    def step(batch: Batch) -> Any:
        tensors = {name: torch.from_numpy(value) for name, value in batch.items()}
        if updates is None:
            with torch.no_grad():
                return scores(tensors).numpy()
        if losses:
            loss = losses[0](tensors)
        else:
            loss = torch.nn.functional.cross_entropy(scores(tensors), tensors["label"].flatten())
        updates.zero_grad()
        loss.backward()
        updates.step()
        return loss.item()

    return step


def torch_pooled(kind: str, is_sparse: bool = False) -> tuple[Any, Any]:
    import torch
    from torch import nn

    mode = {"average": "mean"}.get(kind, kind)
    bag, out = nn.EmbeddingBag(WORDS, WIDTH, mode=mode, sparse=is_sparse, include_last_offset=True), nn.Linear(WIDTH, CLASSES)
    return nn.ModuleList([bag, out]), lambda batch: out(bag(batch["ids"], batch["offsets"])).view(-1, CLASSES).to(torch.float32)


def split(rows: Any, batch: Batch, padding: float = 0.0) -> tuple[Any, Any]:
    """Rows as ``[sequences, steps, width]``, padded, and the mask of real rows."""
    import torch

    lengths = batch["offsets"].diff()
    x = torch.nn.utils.rnn.pad_sequence(rows.split(lengths.tolist()), True, padding)
    return x, torch.arange(x.shape[1]) < lengths[:, None]


def torch_convolved() -> tuple[Any, Any]:
    from torch import nn

    table, conv, out = nn.Embedding(WORDS, WIDTH), nn.Conv1d(WIDTH, FILTERS, 3, padding=1), nn.Linear(FILTERS, CLASSES)

    def scores(batch: Batch) -> Any:
        x, mask = split(table(batch["ids"]), batch)
        h = conv(x.transpose(1, 2)).relu().masked_fill(~mask[:, None], -1.0)
        return out(h.amax(2))

    return nn.ModuleList([table, conv, out]), scores


def torch_attended() -> tuple[Any, Any]:
    import torch
    from torch import nn

    table, first, second, out = (
        nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1), nn.Linear(WIDTH, CLASSES),
    )  # fmt: skip

    def scores(batch: Batch) -> Any:
        x, mask = split(table(batch["ids"]), batch)
        weights = second(torch.tanh(first(x))).masked_fill(~mask[..., None], float("-inf")).softmax(1)
        return out((x * weights).sum(1))

    return nn.ModuleList([table, first, second, out]), scores


def torch_expanded() -> tuple[Any, Any]:
    import torch
    from torch import nn

    table, of_mean, of_word, of_both, out = (
        nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False),
        nn.Linear(WIDTH, CLASSES),
    )  # fmt: skip

    def scores(batch: Batch) -> Any:
        x, offsets = table(batch["ids"]), batch["offsets"]
        mean = of_mean(torch.segment_reduce(x, "mean", offsets=offsets))
        beside = (of_word(x) + of_both(mean.repeat_interleave(offsets.diff(), 0))).relu()
        return out(torch.segment_reduce(beside, "max", offsets=offsets))

    return nn.ModuleList([table, of_mean, of_word, of_both, out]), scores


def torch_gru() -> tuple[Any, Any]:
    import torch
    from torch import nn

    table, layer, out = nn.Embedding(WORDS, WIDTH), nn.GRU(WIDTH, HIDDEN, batch_first=True), nn.Linear(HIDDEN, CLASSES)

    def scores(batch: Batch) -> Any:
        parts = table(batch["ids"]).split(batch["offsets"].diff().tolist())
        return out(layer(torch.nn.utils.rnn.pack_sequence(parts, enforce_sorted=False))[1][0])

    return nn.ModuleList([table, layer, out]), scores


def torch_analyser() -> tuple[Any, Any, Any]:
    """The loss of the random field by a loop over steps; the search for the best tags, too."""
    import torch
    from torch import nn

    table, layer = nn.Embedding(WORDS, HIDDEN), nn.GRU(HIDDEN, HIDDEN, 2, batch_first=True, bidirectional=True)
    out, moves = nn.Linear(2 * HIDDEN, TAGS), nn.Parameter(torch.zeros(TAGS + 2, TAGS))
    modules = nn.ModuleList([table, layer, out])
    modules.register_parameter("moves", moves)

    def emissions(batch: Batch) -> tuple[Any, Any]:
        lengths = batch["offsets"].diff()
        parts = table(batch["ids"]).split(lengths.tolist())
        packed = layer(nn.utils.rnn.pack_sequence(parts, enforce_sorted=False))[0]
        return out(nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)[0]), lengths

    def cost(batch: Batch) -> Any:
        scores, lengths = emissions(batch)
        tags, mask = split(batch["tags"], batch)
        alpha = moves[0] + scores[:, 0]
        for step in range(1, scores.shape[1]):
            after = torch.logsumexp(alpha[:, :, None] + moves[2:], 1) + scores[:, step]
            alpha = torch.where(mask[:, step, None], after, alpha)
        every = torch.logsumexp(alpha + moves[1], 1)
        of_tags = (scores.gather(2, tags[..., None])[..., 0] * mask).sum(1)
        steps = (moves[2:][tags[:, :-1], tags[:, 1:]] * mask[:, 1:]).sum(1)
        last = tags.gather(1, lengths[:, None] - 1)[:, 0]
        return (every - of_tags - steps - moves[0][tags[:, 0]] - moves[1][last]).mean()

    def path(batch: Batch) -> Any:
        scores, lengths = emissions(batch)
        best, ways = moves[0] + scores[:, 0], []
        for step in range(1, scores.shape[1]):
            after, way = (best[:, :, None] + moves[2:]).max(1)
            is_within = (step < lengths)[:, None]
            ways.append(torch.where(is_within, way, torch.arange(TAGS)))
            best = torch.where(is_within, after + scores[:, step], best)
        tags = [(best + moves[1]).argmax(1)]
        for way in ways[::-1]:
            tags.append(way.gather(1, tags[-1][:, None])[:, 0])
        return torch.stack(tags[::-1], 1)

    return modules, path, cost


def torch_sentiment() -> tuple[Any, Any]:
    from torch import nn

    table, dense, layer = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, 4 * HIDDEN), nn.LSTM(4 * HIDDEN, HIDDEN, batch_first=True)
    of_inputs, of_states = nn.Linear(4 * HIDDEN, CLASSES), nn.Linear(HIDDEN, CLASSES)

    def scores(batch: Batch) -> Any:
        x = dense(table(batch["ids"]))
        packed = layer(nn.utils.rnn.pack_sequence(x.split(batch["offsets"].diff().tolist()), enforce_sorted=False))[0]
        states = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True, padding_value=-2.0)[0]
        return of_inputs(split(x, batch, -1e9)[0].amax(1)) + of_states(states.amax(1))

    return nn.ModuleList([table, dense, layer, of_inputs, of_states]), scores


def torch_normalized() -> tuple[Any, Any]:
    import torch
    from torch import nn

    table, out = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, CLASSES)
    wide, narrow = (nn.ModuleList([nn.Linear(*sizes) for _ in range(2)]) for sizes in ((WIDTH, 2 * WIDTH), (2 * WIDTH, WIDTH)))
    norms, drop = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(2)]), nn.Dropout(0.1)
    modules = nn.ModuleList([table, out, wide, narrow, norms, drop])

    def scores(batch: Batch) -> Any:
        drop.train(torch.is_grad_enabled())
        x = table(batch["ids"])
        for first, second, norm in zip(wide, narrow, norms, strict=True):
            x = norm(x + second(drop(first(x).relu())))
        return out(torch.segment_reduce(x, "mean", offsets=batch["offsets"]))

    return modules, scores


def torch_unpadded() -> tuple[Any, Any]:
    import torch
    from torch import nn

    table, dense, out = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, FILTERS), nn.Linear(FILTERS, CLASSES)

    def scores(batch: Batch) -> Any:
        mask = torch.arange(LONGEST) < batch["length"][:, None]
        h = torch.tanh(dense(table(batch["steps"]))).masked_fill(~mask[..., None], -2.0)
        return out(h.amax(1))

    return nn.ModuleList([table, dense, out]), scores


def torch_joined() -> tuple[Any, Any]:
    import torch
    from torch import nn

    table, project, dense, out = (
        nn.Embedding(WORDS, WIDTH),
        *(nn.Linear(WIDTH, WIDTH) for _ in range(2)),
        nn.Linear(WIDTH, CLASSES),
    )

    def scores(batch: Batch) -> Any:
        x, lengths = table(batch["ids"]), batch["offsets"].diff()
        rows = torch.tanh(dense(torch.cat([x, project(x).relu()])))
        sentence = torch.repeat_interleave(torch.arange(SEQUENCES), lengths).repeat(2)
        return out(torch.zeros(SEQUENCES, WIDTH).index_add(0, sentence, rows) / (2 * lengths[:, None]))

    return nn.ModuleList([table, project, dense, out]), scores


def torch_padded() -> tuple[Any, Any]:
    import torch
    from torch import nn

    table, dense, out = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, FILTERS), nn.Linear(FILTERS, CLASSES)

    def scores(batch: Batch) -> Any:
        x, mask = split(table(batch["ids"]), batch)
        return out(torch.tanh(dense(x)).masked_fill(~mask[..., None], -2.0).amax(1))

    return nn.ModuleList([table, dense, out]), scores


def torch_mlp() -> tuple[Any, Any]:
    from torch import nn

    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, CLASSES))
    return net, lambda batch: net(batch["x"])


def torch_lenet() -> tuple[Any, Any]:
    from torch import nn

    net = nn.Sequential(
        *(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, CLASSES)),
    )
    return net, lambda batch: net(batch["x"])


def torch_transformer() -> tuple[Any, Any]:
    import torch
    from torch import nn

    table, out = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, CLASSES)
    parts = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(4)])
    norms, wide, narrow = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(2)]), nn.Linear(WIDTH, 128), nn.Linear(128, WIDTH)

    def scores(batch: Batch) -> Any:
        x = table(batch["ids"])
        queries, keys, values = (part(x).unflatten(-1, (4, 16)).transpose(1, 2) for part in parts[:3])
        heads = torch.nn.functional.scaled_dot_product_attention(queries, keys, values).transpose(1, 2).flatten(2)
        x = norms[0](x + parts[3](heads))
        return out(norms[1](x + narrow(wide(x).relu())).mean(1))

    return nn.ModuleList([table, out, parts, norms, wide, narrow]), scores


# --------------------------------------------------------------------------------------------------------------- kinds
def kind(batch: Callable[[int], Batch], ours: Any, theirs: Any, optimizer: str = "SGD", trains: bool = True) -> Any:
    return batch, partial(fluid_step, ours, optimizer, trains), partial(torch_step, theirs, optimizer, trains)


_POOLED = {
    f"{name}, {'predicted' if not trains else optimizer}{', sparse' * is_sparse}": kind(
        sequences, partial(pooled, pooltype, is_sparse), partial(torch_pooled, pooltype, is_sparse), optimizer, trains
    )
    for name, pooltype, optimizer, is_sparse, trains in (
        ("sum of embeddings", "sum", "SGD", False, True),
        ("sum of embeddings", "sum", "Adam", False, True),
        ("sum of embeddings", "sum", "SGD", True, True),
        ("sum of embeddings", "sum", "SGD", False, False),
        ("average of embeddings", "average", "SGD", False, True),
        ("maximum of embeddings", "max", "SGD", False, True),
    )
}
_OTHERS = {
    "sequence_conv": (sequences, convolved, torch_convolved),
    "sequence_softmax": (sequences, attended, torch_attended),
    "sequence_expand": (sequences, expanded, torch_expanded),
    "dynamic_gru": (sequences, gru, torch_gru),
    "lexical analyser": (sequences, analyser, torch_analyser),
    "sequence_unpad": (sequences, unpadded, torch_unpadded),
    "sequence_concat": (sequences, joined, torch_joined),
    "sequence_pad and sequence_unpad": (sequences, padded_and_unpadded, torch_padded),
    "layer_norm and dropout": (sequences, normalized, torch_normalized),
    "MLP, new batch size": (vectors(64), mlp, torch_mlp),
    "LeNet, new batch size": (vectors(1, 28, 28), lenet, torch_lenet),
    "transformer, new length": (padded, transformer, torch_transformer),
}
_SENTIMENT = {
    f"LSTM and maxima, {'Adam' if trains else 'predicted'}": kind(sequences, sentiment, torch_sentiment, "Adam", trains)
    for trains in (True, False)
}
KINDS: dict[str, tuple[Callable[[int], Batch], Callable[[], Step], Callable[[], Step]]] = (
    _POOLED
    | _SENTIMENT
    | {
        f"{name}, {'SGD' if trains else 'predicted'}": kind(*makers, trains=trains)
        for name, makers in _OTHERS.items()
        for trains in (True, False)
    }
)


def serve(side: int) -> None:
    """Answer lines of a name and a number of steps by the processor's milliseconds of so many steps with batches of their own."""
    steps: dict[str, tuple[Step, Any]] = {}
    for line in sys.stdin:
        name, number = json.loads(line)
        if name not in steps:
            steps[name] = KINDS[name][side](), count()
        step, numbers = steps[name]
        times = []
        for _ in range(number):
            batch = KINDS[name][0](next(numbers))
            start = time.process_time()
            step(batch)
            times.append((time.process_time() - start) * 1e3)
        print(json.dumps(times), flush=True)


class Side:
    """A process that serves times."""

    def __init__(self, python: str, side: int) -> None:
        command = [python, __file__, "--serve", str(side)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def times(self, name: str, number: int) -> list[float]:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps((name, number)), file=self._process.stdin, flush=True)
        times: list[float] = json.loads(self._process.stdout.readline())
        return times

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch-python", default=sys.executable, help="a Python that has torch")
    parser.add_argument("--kinds", default="", help="a regular expression; kinds whose names match")
    parser.add_argument("--turns", type=int, default=8, help="turns of each side (%(default)s)")
    parser.add_argument("--steps", type=int, default=15, help="steps in a turn, each with a new batch (%(default)s)")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.serve)
        return
    sides = {"fluid": Side(sys.executable, 1), "torch": Side(options.torch_python, 2)}
    print("| a step with a new batch, ms of one thread | Fluid | torch | Fluid / torch |\n|---|---|---|---|")
    for name in KINDS:
        if re.search(options.kinds, name):
            times: dict[str, list[float]] = {side: [] for side in sides}
            for _ in range(options.turns):
                for side, process in sides.items():
                    times[side] += process.times(name, options.steps)
            ours, theirs = (float(np.median(times[side][3:])) for side in sides)
            print(f"| {name} | {ours:.3f} | {theirs:.3f} | {ours / theirs:.2f} |", flush=True)
    for process in sides.values():
        process.close()


if __name__ == "__main__":
    main()

"""A kind of net for `kinds.py`: translation with attention over sentences, whose lengths are new in each step."""

from __future__ import annotations

from functools import cache
from itertools import cycle
from typing import Any

import numpy as np
from kinds import Step, fluid_steps, torch_step

__all__ = ["KINDS"]

BATCHES, SENTENCES, LONGEST, WORDS, SIZE = 100, 32, 24, 2000, 128
Batch = list[tuple[Any, Any]]
"""Of each sentence, the words of the source and those of the target."""


@cache
def batches() -> list[Batch]:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, LONGEST + 1, (BATCHES, SENTENCES, 2))
    return [[(rng.integers(0, WORDS, source), rng.integers(0, WORDS, target)) for source, target in batch] for batch in lengths]


def translation() -> Step:
    """GRUs both ways over the source, and a `DynamicRNN` that attends to it, as in the book of Paddle."""
    import fluid
    from fluid import layers

    def build() -> Any:
        source, target = (fluid.data(name, [None, 1], "int64", 1) for name in ("source", "target"))
        words = layers.embedding(source, [WORDS, SIZE])
        states = [layers.dynamic_gru(layers.fc(words, 3 * SIZE), SIZE, is_reverse=is_reverse) for is_reverse in (False, True)]
        encoded = layers.concat(states, axis=1)
        compared = layers.fc(encoded, SIZE)
        first = layers.fc(layers.sequence_first_step(states[1]), SIZE, act="tanh")
        rnn = layers.DynamicRNN()
        with rnn.block():
            word = rnn.step_input(target)
            state = rnn.memory(init=first, need_reorder=True)
            values, keys = rnn.static_input(encoded), rnn.static_input(compared)
            query = layers.sequence_expand(layers.fc(state, SIZE), keys)
            weights = layers.sequence_softmax(layers.fc(layers.tanh(keys + query), 1))
            context = layers.elementwise_mul(values, layers.reshape(weights, [-1]), axis=0)
            context = layers.sequence_pool(context, "sum")
            gates = layers.fc(context, 3 * SIZE) + layers.fc(layers.embedding(word, [WORDS, SIZE]), 3 * SIZE)
            after, _, _ = layers.gru_unit(gates, state, 3 * SIZE)
            rnn.update_memory(state, after)
            rnn.output(layers.fc(after, WORDS, act="softmax"))
        return layers.mean(layers.cross_entropy(rnn(), target))

    def rows(part: list[Any]) -> Any:
        return np.concatenate(part)[:, None], [[0, *np.cumsum([len(sentence) for sentence in part]).tolist()]]

    fed = [
        {name: rows(list(part)) for name, part in zip(("source", "target"), zip(*batch, strict=True), strict=True)}
        for batch in batches()
    ]
    return fluid_steps(build, cycle(fed), "Adam")


def torch_translation() -> Step:
    """The same over padded sentences."""
    import torch
    from torch import nn
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

    net = nn.ModuleDict(
        {
            "source": nn.Embedding(WORDS, SIZE), "encoder": nn.GRU(SIZE, SIZE, batch_first=True, bidirectional=True),
            "compared": nn.Linear(2 * SIZE, SIZE), "first": nn.Linear(SIZE, SIZE), "query": nn.Linear(SIZE, SIZE),
            "fitting": nn.Linear(SIZE, 1), "target": nn.Embedding(WORDS, SIZE), "cell": nn.GRUCell(3 * SIZE, SIZE),
            "scores": nn.Linear(SIZE, WORDS),
        }
    )  # fmt: skip

    def padded(part: Any) -> tuple[Any, Any]:
        return pad_sequence([torch.tensor(words) for words in part], True), torch.tensor([len(words) for words in part])

    fed = cycle([[padded(part) for part in zip(*batch, strict=True)] for batch in batches()])

    def loss() -> Any:
        (source, lengths), (target, steps) = next(fed)
        packed = pack_padded_sequence(net["source"](source), lengths, batch_first=True, enforce_sorted=False)
        states, last = net["encoder"](packed)
        encoded, _ = pad_packed_sequence(states, batch_first=True)
        keys, state = net["compared"](encoded), torch.tanh(net["first"](last[1]))
        is_padding = torch.arange(encoded.shape[1]) >= lengths[:, None]
        words, outputs = net["target"](target), []
        for step in range(target.shape[1]):
            fitting = net["fitting"](torch.tanh(keys + net["query"](state)[:, None]))[..., 0]
            weights = fitting.masked_fill(is_padding, -torch.inf).softmax(1)
            context = (encoded * weights[..., None]).sum(1)
            state = net["cell"](torch.cat([context, words[:, step]], 1), state)
            outputs.append(state)
        is_word = torch.arange(target.shape[1]) < steps[:, None]
        return nn.functional.cross_entropy(net["scores"](torch.stack(outputs, 1)[is_word]), target[is_word])

    return torch_step(net.parameters(), loss, "Adam")


KINDS = {f"translation with attention, {SENTENCES} sentences of 1 to {LONGEST} words": (translation, torch_translation)}

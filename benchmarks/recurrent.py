"""Training steps of recurrent networks whose step is a block of the program, SGD: an LSTM over sequences of one length
(StaticRNN), and one over sequences of different lengths, which are new in each step (DynamicRNN). In torch, the same loops are
written by hand."""

from __future__ import annotations

import argparse
import contextlib
from itertools import cycle

import numpy as np
import torch
from common import check_losses, header, parameters, race_row
from torch import nn

import fluid

RATE, WORDS, FEATURES, HIDDEN, CLASSES = 0.1, 1000, 64, 128, 2
BATCHES = 1000
"""So many batches of different lengths: more than a race runs."""


def trained(last, label, feeds):
    """A step that trains a classifier of the last hidden states, with the next of some feeds in turn."""
    loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(fluid.layers.fc(last, CLASSES), label))
    fluid.optimizer.SGD(RATE).minimize(loss)
    fluid.default_startup_program().random_seed = 1
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    program, feeds = fluid.default_main_program(), cycle(feeds)
    return lambda: executor.run(program, feed=next(feeds), fetch_list=[loss])[0].item()


def static_step(batches, labels):
    (words,) = batches
    ids = fluid.data("ids", [*words.shape, 1], "int64")  # [time, batch, 1]
    label = fluid.data("label", [None, 1], "int64")
    embedded = fluid.layers.embedding(ids, [WORDS, FEATURES])
    rnn = fluid.layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(embedded)
        hidden, cell = (rnn.memory(shape=[-1, HIDDEN], batch_ref=word) for _ in range(2))
        after, cell_after = fluid.layers.lstm_unit(word, hidden, cell)
        rnn.update_memory(hidden, after)
        rnn.update_memory(cell, cell_after)
        rnn.step_output(after)
    last = fluid.layers.slice(rnn(), axes=[0], starts=[-1], ends=[words.shape[0]])
    last = fluid.layers.reshape(last, [-1, HIDDEN])
    return trained(last, label, [{"ids": words[..., None], "label": labels[:, None]}])


def dynamic_step(batches, labels):
    ids = fluid.data("ids", [None, 1], "int64", lod_level=1)
    label = fluid.data("label", [None, 1], "int64")
    embedded = fluid.layers.embedding(ids, [WORDS, FEATURES])
    rnn = fluid.layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(embedded)
        hidden, cell = (rnn.memory(shape=[HIDDEN]) for _ in range(2))
        after, cell_after = fluid.layers.lstm_unit(word, hidden, cell)
        rnn.update_memory(hidden, after)
        rnn.update_memory(cell, cell_after)
        rnn.output(after)
    last = fluid.layers.sequence_last_step(rnn())
    fed = [(np.concatenate(words)[:, None], [[len(sentence) for sentence in words]]) for words in batches]
    return trained(last, label, [{"ids": ids, "label": labels[:, None]} for ids in fed])


def in_steps(words, labels):
    """Sentences sorted by length, so that the running ones are the first rows: the ids of each step, and the labels."""
    order = sorted(range(len(words)), key=lambda number: -len(words[number]))
    lengths = [len(words[number]) for number in order]
    active = [sum(length > step for length in lengths) for step in range(lengths[0])]
    ids = [torch.tensor([words[number][step] for number in order[:count]]) for step, count in enumerate(active)]
    return ids, torch.tensor(labels[order])


def torch_step(batches, labels, start):
    """The loop by hand. Sentences are sorted beforehand, which is not timed."""
    sorted_batches = cycle([in_steps(words, labels) for words in batches])
    params = [nn.Parameter(torch.tensor(value)) for value in start.values()]
    table, weight, bias, out_weight, out_bias = params
    optimizer = torch.optim.SGD(params, lr=RATE)

    def run(word, hidden, cell):
        i, f, o, g = torch.addmm(bias, torch.cat([word, hidden], 1), weight).chunk(4, 1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(cell), cell

    def step():
        ids, y = next(sorted_batches)
        hidden = cell = torch.zeros(len(y), HIDDEN)
        ended = []
        for word in ids:
            count = len(word)
            ended.append(hidden[count:])
            hidden, cell = run(table[word], hidden[:count], cell[:count])
        last = torch.cat([hidden, *reversed(ended)])
        loss = nn.functional.cross_entropy(last @ out_weight + out_bias, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def show(what, build, batches, labels, remark):
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        ours = build(batches, labels)
        start = parameters(fluid.default_main_program())
        by_sentence = [list(words.T) if isinstance(words, np.ndarray) else words for words in batches]
        runs = {"fluid": ours, "torch": torch_step(by_sentence, labels, start)}
        check_losses({name: [run() for _ in range(3)] for name, run in runs.items()})
        race_row(what, runs, remark)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=32, help="sentences in a batch (%(default)s)")
    parser.add_argument("--steps", type=int, default=20, help="words in the longest sentence (%(default)s)")
    args = parser.parse_args()
    random = np.random.default_rng(0)
    header("Recurrent networks with a block for a step: training steps")
    labels = random.integers(0, CLASSES, args.batch)
    torch.set_num_threads(1)  # ops so small are quicker without threads
    fluid.set_num_threads(1)
    with contextlib.suppress(ImportError):
        from threadpoolctl import threadpool_limits

        threadpool_limits(1)
    sizes = f"LSTM {FEATURES}-{HIDDEN}, batch {args.batch}"
    words = random.integers(0, WORDS, (args.steps, args.batch))
    show("StaticRNN", static_step, [words], labels, f"{sizes}, {args.steps} steps, SGD, one thread")
    batches = [
        [random.integers(0, WORDS, length) for length in random.integers(1, args.steps + 1, args.batch)] for _ in range(BATCHES)
    ]
    show("DynamicRNN", dynamic_step, batches, labels, f"{sizes}, 1 to {args.steps} steps, new in each step, SGD, one thread")


if __name__ == "__main__":
    main()

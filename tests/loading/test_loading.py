"""Data sets, the order and batches of their samples, and what transforms make of these, in one process."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph, io, layers
from fluid.errors import (
    DataError,
    FeedError,
    FluidTypeError,
    FormatError,
    IndexRangeError,
    ProgramError,
)
from fluid.io import transforms


class Noise(io.Dataset):
    """Samples that are random numbers."""

    def __len__(self) -> int:
        return 7

    def sample(self, index: int, generator: np.random.Generator) -> Any:
        return index, generator.normal()


class Stream(io.IterableDataset):
    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))


def flat(loader: Any) -> list[Any]:
    """All samples that a loader of single numbers gives."""
    return [number.item() for batch in loader for number in batch]


# ----------------------------------------------------------------------------------------------------------- data sets
def test_data_sets_of_others_pass_the_generator_on() -> None:
    joined = Noise() + io.Subset(Noise().map(lambda pair: pair), [6, 0])
    assert len(joined) == 9 and joined.draws and not io.TensorDataset(np.zeros(3)).draws
    first, again = ([float(value) for _, values in io.DataLoader(joined, 4) for value in values] for _ in range(2))
    assert first == again and len(set(first)) == 9  # sample 7 is sample 6 of the other, drawn as the seventh
    expected = [np.random.default_rng([0, 0, number]).normal() for number in range(9)]
    assert first == expected
    assert joined[8][0] == 0 and joined[-2][0] == 6
    with pytest.raises(IndexRangeError, match="sample 9 of a ConcatDataset of 9 samples"):
        joined[9]
    with pytest.raises(IndexRangeError, match="there is no sample 7 in a dataset of 7 samples"):
        io.Subset(Noise(), [7])


def test_draws_depend_on_seed_and_epoch() -> None:
    loader, other = io.DataLoader(Noise(), 7), io.DataLoader(Noise(), 7, seed=1)
    drawn = [np.asarray(next(iter(each))[1]) for each in (loader, loader, other)]
    assert not any(np.array_equal(a, b) for a, b in itertools.combinations(drawn, 2))


def test_map_changes_a_field() -> None:
    data = io.MappedDataset([{"a": 1, "b": 2}], lambda value: -value, field="b")
    assert data[0] == {"a": 1, "b": -2}
    marked = transforms.random(lambda value, generator: value + generator.integers(10))
    assert Noise().map(marked, field=1).draws and io.TensorDataset(np.zeros(2)).map(marked, field=0).draws
    with pytest.raises(FluidTypeError, match="map takes a function of a sample, not 3"):
        Noise().map(3)  # type: ignore[arg-type]


def test_tensors_have_rows_alike() -> None:
    with pytest.raises(ProgramError, match="the same number of rows, not 3, 2"):
        io.TensorDataset(np.zeros(3), np.zeros(2))
    with pytest.raises(FluidTypeError, match="arrays with rows"):
        io.TensorDataset(np.float32(1))
    with dygraph.guard():
        assert io.TensorDataset(dygraph.to_variable(np.ones((2, 3))))[1][0].shape == (3,)


def test_parts_of_a_random_split() -> None:
    parts = io.random_split(Noise(), [0.5, 0.3, 0.2], seed=3)
    assert [len(part) for part in parts] == [4, 2, 1]  # 3.5, 2.1, 1.4: what is left over goes to the first
    assert sorted(number for part in parts for number in part.indices) == list(range(7))
    assert [part.indices.tolist() for part in parts] == [part.indices.tolist() for part in io.random_split(Noise(), [4, 2, 1], 3)]
    assert parts[0].indices.tolist() != io.random_split(Noise(), [4, 3])[0].indices.tolist()
    assert sum(map(len, io.random_split(range(10), [0.1] * 10))) == 10
    for sizes, said in (
        ([3, 3], "sum up to 6, but there are 7"),
        ([0.5, 0.4], "sum up to 0.9, not to 1"),
        ([], "should be numbers"),
    ):
        with pytest.raises(ProgramError, match=said):
            io.random_split(Noise(), sizes)
    for arguments, said in (
        (([0], ["x"]), "sizes should be"),
        ((3, [1]), "should have __getitem__"),
        (([0], [1], -1), "seed should be"),
    ):
        with pytest.raises(fluid.FluidError, match=said):
            io.random_split(*arguments)  # type: ignore[arg-type]


# -------------------------------------------------------------------------------------------------- order, and batches
def test_the_order_is_that_of_the_seed_and_epoch() -> None:
    loader = io.DataLoader(range(20), 6, shuffle=True)
    epochs = [flat(loader) for _ in range(3)]
    assert all(sorted(epoch) == list(range(20)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] and loader.epoch == 3
    again = io.DataLoader(range(20), 3, shuffle=True)
    assert [flat(again) for _ in range(3)] == epochs
    assert flat(io.DataLoader(range(20), 6, shuffle=True, seed=1)) not in epochs
    assert len(loader) == 4 and len(io.DataLoader(range(20), 6, drop_last=True)) == 3
    assert [len(batch) for batch in io.DataLoader(range(20), 6, drop_last=True)] == [6, 6, 6]


def test_an_epoch_that_is_left_is_over() -> None:
    loader = io.DataLoader(range(6), 2)
    next(iter(loader))
    assert flat(loader) == list(range(6)) and loader.epoch == 2


def test_samplers_decide_the_order() -> None:
    assert flat(io.DataLoader("abcd", 3, sampler=[2, 0, 2], collate_fn=lambda texts: np.array(list(map(ord, texts))))) == [
        99,
        97,
        99,
    ]
    batches = io.DataLoader(range(9), batch_sampler=[[8, 1], [0]])
    assert [batch.tolist() for batch in batches] == [[8, 1], [0]] and len(batches) == 2
    for arguments in ({"batch_size": 2}, {"shuffle": True}, {"drop_last": True}, {"sampler": [1]}):
        with pytest.raises(ProgramError, match="batch_sampler takes the place of"):
            io.DataLoader(range(9), batch_sampler=[[1]], **arguments)  # type: ignore[arg-type]


def test_ranks_divide_the_batches_of_one_process() -> None:
    whole = [batch.tolist() for batch in io.DataLoader(range(22), 4, shuffle=True, seed=5, drop_last=True)]
    for count in (1, 2, 4):
        parts = [
            [
                batch.tolist()
                for batch in io.DataLoader(
                    range(22), batch_sampler=io.DistributedBatchSampler(range(22), 4, True, 5, rank, count)
                )
            ]
            for rank in range(count)
        ]
        assert [list(itertools.chain(*batch)) for batch in zip(*parts, strict=True)] == whole
    with pytest.raises(FeedError, match="cannot be divided evenly among 3 workers"):
        list(io.DistributedBatchSampler(range(22), 4, rank=0, count=3))


def test_a_loader_goes_on_from_its_state() -> None:
    def new() -> Any:
        return io.DataLoader(Noise(), 2, shuffle=True, seed=9)

    loader = new()
    epochs = [list(loader) for _ in range(3)]  # of 4 batches each
    for read in range(9):
        loader, later, started = new(), new(), new()
        for _ in itertools.islice(itertools.chain(loader, loader, loader), read):
            state = loader.state_dict()
        later.load_state_dict(state if read else loader.state_dict())
        started.start_at(read)
        np.testing.assert_equal(list(started), epochs[read // 4][read % 4 :])
        last = max(read - 1, 0) // 4  # the epoch that the last batch was of, of which nothing may be left
        np.testing.assert_equal(list(later), epochs[last][read - 4 * last :])
    assert state == {"epoch": 1, "batch": 4, "seed": 9, "batch_size": 2, "samples": 7}
    with pytest.raises(ProgramError, match="had seed 9, this one has 0"):
        io.DataLoader(Noise(), 2).load_state_dict(state)
    with pytest.raises(FluidTypeError, match="takes what state_dict"):
        loader.load_state_dict({"epoch": 1})


def test_training_goes_on_from_a_checkpoint_with_the_same_bits(tmp_path: Path) -> None:
    x, y = fluid.data("x", [None, 3]), fluid.data("y", [None, 1])
    loss = layers.mean(layers.square_error_cost(layers.fc(x, 1), y))
    fluid.optimizer.Adam(0.1).minimize(loss)
    draw = np.random.default_rng(0)
    data = io.TensorDataset(draw.normal(size=(20, 3)).astype("float32"), draw.normal(size=20))

    def new() -> Any:
        return io.DataLoader(data, 4, shuffle=True, feed_list=[x, y])

    program, executor, loader = fluid.default_main_program(), fluid.Executor(), new()
    executor.run(fluid.default_startup_program())
    losses, path = [], tmp_path / "a.ckpt"
    for epoch in range(2):
        for number, feed in enumerate(loader):
            losses.append(executor.run(program, feed, [loss])[0])
            if (epoch, number) == (0, 2):
                fluid.save_checkpoint(program, path, 3, state={"loader": loader.state_dict()})
    loader, again = new(), []
    with fluid.scope_guard(fluid.Scope()):
        checkpoint = fluid.load_checkpoint(program, path)
        loader.load_state_dict(checkpoint.state["loader"])
        for _ in range(2):
            again += [executor.run(program, feed, [loss])[0] for feed in loader]
    np.testing.assert_array_equal(again, losses[3:])
    with pytest.raises(FluidTypeError, match="state should hold dicts and lists of numbers"):
        fluid.save_checkpoint(program, path, state={"x": np.zeros(2)})
    fluid.save_checkpoint(program, path)
    assert fluid.load_checkpoint(program, path).state == {}


def test_a_stream_has_no_numbers() -> None:
    stream = Stream(5).map(lambda number: number * 2)
    assert [batch.tolist() for batch in io.DataLoader(stream, 2)] == [[0, 2], [4, 6], [8]] and list(stream) == [0, 2, 4, 6, 8]
    loader = io.DataLoader(stream, 2, drop_last=True)
    next(iter(loader))
    state = loader.state_dict()
    later = io.DataLoader(stream, 2, drop_last=True)
    later.load_state_dict(state)
    assert flat(later) == [4, 6]
    with pytest.raises(FluidTypeError, match="are not counted"):
        len(loader)
    with pytest.raises(ProgramError, match="no order to shuffle"):
        io.DataLoader(stream, shuffle=True)


@each("arguments, said", [
    ({"batch_size": 0}, "batch_size should be a number of samples, at least 1, not 0"),
    ({"num_workers": -1}, "num_workers should be a whole number from 0 to 1024, not -1"),
    ({"ahead": 0}, "ahead should be a whole number from 1"),
    ({"seed": -1}, "seed should be a whole number, at least 0, not -1"),
    ({"timeout": -1}, "timeout should be a number of seconds above 0"),
    ({"collate_fn": 3}, "collate_fn should be a function"),
    ({"worker_init_fn": 3}, "worker_init_fn should be a function of a worker's number, not 3"),
    ({"sampler": [1], "shuffle": True}, "a sampler takes the place of shuffle"),
    ({"feed_list": [1]}, "feed_list should hold Variables or names, not int"),
    ({"feed_list": ["x", "x"]}, "names a variable twice"),
    ({"dataset": iter([1])}, "should have __getitem__ and __len__, or be an IterableDataset, not list_iterator"),
])  # fmt: skip
def test_arguments_that_cannot_be_used(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(fluid.FluidError, match=said):
        io.DataLoader(**{"dataset": range(4), **arguments})


def test_an_error_names_the_sample() -> None:
    data = io.MappedDataset(range(10), lambda number: 1 // (number - 5))
    with pytest.raises(DataError, match="sample 5 of the dataset: ZeroDivisionError") as caught:
        list(io.DataLoader(data, 3))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(DataError, match="sample 2 of the stream: ZeroDivisionError"):
        list(io.DataLoader(Stream(4).map(lambda number: 1 // (number - 2)), 2))
    with pytest.raises(DataError, match=r"the batch of samples 0, 1: FeedError: .* sample 0 has the shape \[3\], sample 1 \[2\]"):
        list(io.DataLoader([np.zeros(3), np.zeros(2)], 2))


def test_from_generator_is_where_it_was() -> None:
    loader = io.DataLoader.from_generator([fluid.data("x", [None, 1])], capacity=2)
    loader.set_batch_generator(lambda: iter([[np.zeros((2, 1), "float32")]]))
    assert [feed[0]["x"].shape for feed in loader()] == [(2, 1)]


# ---------------------------------------------------------------------------------------------------------- collating
def test_batches_of_dicts_and_texts() -> None:
    batch = io.collate([{"text": "a", "x": [1, 2]}, {"text": "b", "x": [3, 4]}])
    assert batch["text"] == ["a", "b"] and batch["x"].tolist() == [[1, 2], [3, 4]]
    for samples, said in (
        ([{"a": 1}, {"b": 1}], "sample 1 of a batch is a dict of b, but sample 0 a dict of a"),
        ([(1, 2), (1,)], "sample 1 of a batch is 1 fields, but sample 0 2 fields"),
        ([object()], "cannot be stacked: sample 0 has a object; give the loader a collate_fn"),
    ):
        with pytest.raises(FeedError, match=said):
            io.collate(samples)


def test_sequences_are_those_of_the_feeder() -> None:
    """By the variables' levels, and by `collate_sequences`: what `DataFeeder` makes of the same rows."""
    words, label = fluid.data("words", [None, 1], "int64", lod_level=2), fluid.data("label", [None, 1], "int64")
    rows = [([[1, 2], [3]], 0), ([[4, 5, 6]], 1)]
    expected = fluid.DataFeeder([words, label], None).feed(rows)
    (fed,) = io.DataLoader(rows, 2, feed_list=[words, label])
    (named,) = io.DataLoader(rows, 2, feed_list=["words", "label"], collate_fn=io.collate_sequences(0, levels=2))
    for batch in (fed, named):
        assert (
            batch["words"].recursive_sequence_lengths() == [[2, 1], [2, 1, 3]] == expected["words"].recursive_sequence_lengths()
        )
        np.testing.assert_array_equal(np.asarray(batch["words"]), np.asarray(expected["words"]))
    assert fed["label"].shape == (2, 1) and fed["label"].dtype == np.int64
    pooled = layers.sequence_pool(layers.cast(words, "float32"), "sum")
    (found,) = fluid.Executor().run(feed=fed, fetch_list=[pooled])
    assert np.asarray(found).ravel().tolist() == [3, 3, 15]
    with pytest.raises(DataError, match="FeedError: field 0 should hold sequences: item 0 of level 1 is 1"):
        list(io.DataLoader([([1],)], collate_fn=io.collate_sequences(0, levels=2)))


def test_padding() -> None:
    pad = io.collate_padded("x", value=9, length=3)
    assert pad([{"x": [1]}, {"x": [1, 2, 3, 4]}, {"x": []}])["x"].tolist() == [[1, 9, 9], [1, 2, 3], [9, 9, 9]]
    assert io.collate_padded(0)([(np.ones((1, 2)),), (np.ones((3, 2)),)])[0].shape == (2, 3, 2)


def test_what_is_fed_is_converted_and_checked() -> None:
    x = fluid.data("x", [None, 1, 2, 2])
    (fed,) = io.DataLoader([(np.arange(4.0),)], feed_list=[x])
    assert fed["x"].shape == (1, 1, 2, 2) and fed["x"].dtype == np.float32
    (fed,) = io.DataLoader([{"x": np.zeros((1, 2, 2))}], feed_list=["x"])
    assert fed["x"].dtype == np.float64
    for samples, said in (
        ([(1, 2)], "a sample has 2 fields, but 1 variables are fed: x"),
        ([{"y": 1}], "has fields y; it should have x"),
    ):
        with pytest.raises(DataError, match=said):
            list(io.DataLoader(samples, feed_list=[x]))


def test_eager_mode_has_tensors() -> None:
    with dygraph.guard():
        batch = next(iter(io.DataLoader([({"a": 1.5}["a"], [1, 2])], 1)))
        assert isinstance(batch[0], fluid.eager.tensor.Tensor) and batch[1].shape == (1, 2)  # type: ignore[attr-defined]
        fed = next(iter(io.DataLoader([(1.5,)], feed_list=["x"])))
        assert float((fed["x"] * 2).numpy().item()) == 3.0


# ---------------------------------------------------------------------------------------------------------- transforms
IMAGE = np.arange(24, dtype="uint8").reshape(4, 2, 3) * 10


def test_images_become_floats() -> None:
    planes = transforms.Compose([transforms.ToFloat(), transforms.Normalize([0.1, 0.2, 0.3], 2.0)])(IMAGE)
    expected = (IMAGE.astype("float64").transpose(2, 0, 1) / 255 - np.array([0.1, 0.2, 0.3])[:, None, None]) / 2
    assert planes.dtype == np.float32
    np.testing.assert_allclose(planes, expected, atol=1e-6)
    assert transforms.ToFloat()(np.full((2, 2), 0.5)).tolist() == [[[0.5, 0.5], [0.5, 0.5]]]


def test_crops_and_margins() -> None:
    assert transforms.Pad(1)(IMAGE).shape == (6, 4, 3)
    np.testing.assert_array_equal(transforms.CenterCrop((2, 2))(IMAGE), IMAGE[1:3])
    crop, seen = transforms.RandomCrop((3, 2)), set()
    for seed in range(20):
        found = crop(IMAGE, np.random.default_rng(seed))
        seen.add(next(top for top in range(2) if np.array_equal(found, IMAGE[top : top + 3])))
    assert seen == {0, 1}
    assert transforms.RandomCrop((4, 2), margin=(1, 0), value=7)(IMAGE, np.random.default_rng(3)).shape == IMAGE.shape
    with pytest.raises(ProgramError, match="5 x 5 pixels cannot be cut out of 4 x 2"):
        transforms.CenterCrop(5)(IMAGE)


def test_flips() -> None:
    flip = transforms.RandomFlip(axis=0)
    found = {flip(IMAGE, np.random.default_rng(seed)).tobytes() for seed in range(20)}
    assert found == {IMAGE.tobytes(), IMAGE[::-1].tobytes()}


@each("size", [(4, 2), (2, 3), (3, 5), (8, 4)])
def test_resizing_is_that_of_the_op(size: tuple[int, int]) -> None:
    image = IMAGE.astype("float32")
    with dygraph.guard():
        batch = dygraph.to_variable(image.transpose(2, 0, 1)[None])
        expected = (
            layers.resize_bilinear(batch, out_shape=list(size), align_corners=False, align_mode=0).numpy()[0].transpose(1, 2, 0)
        )
    np.testing.assert_allclose(transforms.Resize(size)(image), expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(transforms.Resize(size)(IMAGE), np.rint(transforms.Resize(size)(image)).astype("uint8"))


@each("transform, value, said", [
    (transforms.ToFloat(), np.zeros(3), r"ToFloat takes an image, an array .* not float64\[3\]"),
    (transforms.Normalize(0.5, 0.5), IMAGE, r"Normalize takes a float image .*, as ToFloat"),
    (transforms.Normalize([0.5] * 2, 0.5), np.zeros((3, 2, 2)), "of 2 channels"),
    (transforms.Resize(2), np.zeros((0, 2)), "has no pixels"),
    (transforms.Tokenize(), 3, "Tokenize takes a text, not 3"),
    (transforms.Vocabulary(["a"]), "a text", "not the text 'a text'"),
    (transforms.Vocabulary(["a"]), ["b"], "the vocabulary has no 'b', and no word for unknown ones"),
    (lambda size: transforms.Resize(size), 0, "Resize: size should be a number, or height and width, at least 1, not 0"),
    (lambda std: transforms.Normalize(0.0, std), 0.0, "std should be above 0"),
    (lambda chance: transforms.RandomFlip(chance), 2, "probability should be from 0 to 1"),
    (lambda pattern: transforms.Tokenize(pattern), "(", "should be a regular expression"),
    (lambda words: transforms.Vocabulary(words), ["a", "b", "a"], "'a' is there twice"),
    (lambda unknown: transforms.Vocabulary(["a"], unknown), "b", "unknown should be one of the words"),
    (lambda function: transforms.Compose([function]), 3, "Compose takes functions, not 3"),
])  # fmt: skip
def test_what_transforms_cannot_use(transform: Any, value: Any, said: str) -> None:
    with pytest.raises(fluid.FluidError, match=said):
        transform(value)


def test_texts_become_numbers(tmp_path: Path) -> None:
    tokens = transforms.Tokenize()
    texts = [tokens(text) for text in ("A plot, a cast.", "a dull plot")]
    words = transforms.Vocabulary.of(texts, most=5, first=["<pad>"])
    assert words.words == ["<unk>", "<pad>", "a", "plot", ","]
    assert words(tokens("A dull plot")).tolist() == [2, 0, 3] and words.text([2, 3]) == ["a", "plot"]
    words.save(tmp_path / "words.json")
    again = transforms.Vocabulary.load(tmp_path / "words.json")
    assert (again.words, again.unknown) == (words.words, "<unk>")
    assert len(transforms.Vocabulary.of(texts, least_count=2, unknown=None)) == 2
    for text in ("[]", '{"words": [1], "unknown": null}', '{"words": ["a", "a"], "unknown": null}', "{"):
        (tmp_path / "words.json").write_text(text)
        with pytest.raises(FormatError, match="it should hold a Vocabulary"):
            transforms.Vocabulary.load(tmp_path / "words.json")

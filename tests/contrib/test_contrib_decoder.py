"""`fluid.contrib`'s StateCell and its decoders: one decoder trains a cell, the other one searches with it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from checks import Checks, each, fresh_programs

import fluid
from fluid import layers
from fluid.contrib.decoder.beam_search_decoder import BeamSearchDecoder, InitState, StateCell, TrainingDecoder
from fluid.errors import FluidError

START, END, WORDS, SIZE = 0, 1, 8, 12
SOURCES = [[2], [5, 6, 7], [3, 4], [6]]


def target(source: list[int]) -> list[int]:
    """The target of a source: its last word, and all words after that."""
    return list(range(source[-1], WORDS))


def sequences(name: str, dtype: str = "int64", levels: int = 1) -> Any:
    return layers.data(name, [1], dtype=dtype, lod_level=levels)


def tensor(rows: list[list[Any]], dtype: str = "int64") -> Any:
    flat = np.concatenate(rows).reshape(-1, 1).astype(dtype)
    return fluid.create_lod_tensor(flat, [[len(row) for row in rows]], fluid.CPUPlace())


def cell_of_sources() -> tuple[StateCell, Any]:
    """A cell that reads the word, and the sum of the source's words; and their vectors."""
    vectors = layers.embedding(sequences("source"), [WORDS, SIZE])
    boot = layers.fc(layers.sequence_last_step(vectors), SIZE, act="tanh")
    zero = InitState(init_boot=boot, shape=[-1, SIZE], value=0.0)
    cell = StateCell({"word": None, "source": None}, {"h": InitState(boot, need_reorder=True), "before": zero}, out_state="h")

    @cell.state_updater
    def update(cell: StateCell) -> None:
        seen = layers.sequence_pool(cell.get_input("source"), "sum")
        # The word comes first, from whose rows the state takes its sequences: in a search there have to be none as well.
        h = layers.fc([cell.get_input("word"), cell.get_state("h"), cell.get_state("before"), seen], SIZE, act="tanh")
        cell.set_state("before", cell.get_state("h"))
        cell.set_state("h", h)

    return cell, vectors


def trained() -> Any:
    """The loss of predicting each word of the targets."""
    cell, vectors = cell_of_sources()
    said = layers.embedding(sequences("said"), [WORDS, SIZE])
    decoder = TrainingDecoder(cell)
    with decoder.block():
        word = decoder.step_input(said)
        decoder.state_cell.compute_state(inputs={"word": word, "source": decoder.static_input(vectors)})
        decoder.output(layers.fc(cell.out_state(), WORDS, act="softmax"))
        cell.update_states()
    return layers.mean(layers.cross_entropy(decoder(), sequences("next")))


def searching(beam_size: int, max_len: int = 10, decode: Callable[[BeamSearchDecoder], Any] = BeamSearchDecoder.decode) -> Any:
    cell, vectors = cell_of_sources()
    first = sequences("ids", levels=2), sequences("scores", "float32", levels=2)
    sizes = {"topk_size": 50, "max_len": max_len, "beam_size": beam_size, "end_id": END}
    decoder = BeamSearchDecoder(cell, *first, WORDS, SIZE, {"source": vectors}, **sizes)
    decode(decoder)
    return decoder()


def beginnings(sources: list[list[int]]) -> dict[str, Any]:
    levels, place = [[1] * len(sources)] * 2, fluid.CPUPlace()
    return {
        "source": tensor(sources),
        "ids": fluid.create_lod_tensor(np.full([len(sources), 1], START), levels, place),
        "scores": fluid.create_lod_tensor(np.zeros([len(sources), 1], "float32"), levels, place),
    }


def best(result: Any) -> list[list[list[Any]]]:
    """For each source, its sequences, the best first."""
    of_source, of_words = result.lod()
    values = np.array(result).ravel()
    parts = [values[start:end].tolist() for start, end in pairwise(of_words)]
    return [parts[start:end] for start, end in pairwise(of_source)]


def searched(sources: list[list[int]] = SOURCES, **how: Any) -> tuple[list[Any], list[Any]]:
    """The sequences for each source, and their scores, by the parameters in the scope."""
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
        fetched = searching(**how)
    ids, scores = fluid.Executor().run(program, beginnings(sources), list(fetched), return_numpy=False)
    return best(ids), best(scores)


def by_hand(parameters: list[Any], source: list[int], beam_size: int, max_len: int) -> list[tuple[list[int], list[float]]]:
    """A beam search in plain numpy."""
    read, boot, boot_b, vectors, of_word, of_h, of_before, of_seen, bias, out, out_b = parameters
    h = np.tanh(read[source[-1]] @ boot + boot_b)
    beams = [([START], [0.0], h, np.zeros_like(h))]
    for _ in range(max_len):
        continued = []
        for words, scores, h, before in beams:
            if words[-1] == END and len(words) > 1:
                continued.append((words, scores, h, before))
                continue
            inputs = vectors[words[-1]] @ of_word + h @ of_h + before @ of_before + read[source].sum(0) @ of_seen
            after = np.tanh(inputs + bias)
            odds = np.exp(after @ out + out_b)
            logs = np.log(odds / odds.sum()) + scores[-1]
            continued += [([*words, word], [*scores, logs[word]], after, h) for word in range(WORDS)]
        beams = sorted(continued, key=lambda beam: -beam[1][-1])[:beam_size]
    return [(words, scores) for words, scores, _, _ in beams]


def test_what_is_trained_translates() -> None:
    """The losses fall, and the search, a program of its own, finds the targets by the same parameters."""
    with fresh_programs() as (main, startup):
        main.random_seed = startup.random_seed = 3
        loss = trained()
        fluid.optimizer.Adam(0.03).minimize(loss)
        targets = [target(source) for source in SOURCES]
        said, following = [[START, *words] for words in targets], [[*words, END] for words in targets]
        feed = {"source": tensor(SOURCES), "said": tensor(said), "next": tensor(following)}
        executor = fluid.Executor()
        executor.run(startup)
        losses = [executor.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(60)]
        assert losses[-1] < 0.1 < 1.5 < losses[0]
        for beam_size in (1, 3):
            ids, _ = searched(beam_size=beam_size)
            assert [found[0] for found in ids] == [[START, *words, END] for words in targets]


def in_a_block(decoder: BeamSearchDecoder) -> None:
    """The step of `decode` as scripts write it, where nothing is kept once all sequences have ended."""
    with decoder.block():
        ids = decoder.read_array(init=decoder._init_ids, is_ids=True)
        scores = decoder.read_array(init=decoder._init_scores, is_scores=True)
        words = layers.reshape(layers.embedding(ids, [WORDS, SIZE]), [-1, SIZE])
        cell, source = decoder.state_cell, decoder.read_array(init=decoder._input_var_dict["source"])
        expanded = layers.sequence_expand(source, scores)
        for name in ("h", "before"):
            cell.set_state(name, layers.sequence_expand(cell.get_state(name), scores))
        plain = layers.sequence_first_step(layers.lod_reset(words, layers.range(0, layers.shape(words)[0] + 1, 1, "int32")))
        cell.compute_state(inputs={"word": plain, "source": expanded})
        odds, candidates = layers.topk(layers.fc(layers.lod_reset(cell.out_state(), scores), WORDS, act="softmax"), k=WORDS)
        totals = layers.elementwise_add(layers.log(odds), layers.reshape(scores, [-1]), axis=0)
        new_ids, new_scores = layers.beam_search(ids, scores, candidates, totals, decoder._beam_size, END)
        with layers.Switch() as switch:
            with switch.case(layers.is_empty(new_ids)):
                decoder.early_stop()
            with switch.default():
                cell.update_states()
                decoder.update_array(ids, new_ids)
                decoder.update_array(scores, new_scores)
                decoder.update_array(source, expanded)


def test_the_search_is_that_of_plain_numpy() -> None:
    """By random parameters: words and scores, of one source and several, with both ways to end, and in a block of one's own."""
    with fresh_programs() as (main, startup), Checks() as check:
        searching(beam_size=1)
        fluid.Executor().run(startup)
        rng, parameters = np.random.default_rng(4), []
        for parameter in main.all_parameters():
            parameters.append(rng.normal(0, 0.7, parameter.shape).astype("float32"))
            fluid.global_scope().find_var(parameter.name).get_tensor().set(parameters[-1], fluid.CPUPlace())
        for sources, beam_size, max_len in ((SOURCES, 3, 4), (SOURCES, 2, 12), (SOURCES[1:2], 2, 5), (SOURCES, 1, 1)):
            expected = [by_hand(parameters, source, beam_size, max_len) for source in sources]
            for decode in (BeamSearchDecoder.decode, in_a_block):
                with check(f"{len(sources)} sources, {beam_size} beams, {max_len} steps, {decode.__name__}"):
                    ids, scores = searched(sources, beam_size=beam_size, max_len=max_len, decode=decode)
                    assert ids == [[words for words, _ in beams] for beams in expected]
                    flat = [score for beams in expected for _, scores in beams for score in scores]
                    np.testing.assert_allclose([one for beams in scores for beam in beams for one in beam], flat, rtol=1e-4)


def test_a_search_ends_early() -> None:
    """Once all sequences have ended, or where the block says so."""

    def one_step(decoder: BeamSearchDecoder) -> None:
        with decoder.block():
            ids = decoder.read_array(decoder._init_ids, is_ids=True)
            scores = decoder.read_array(decoder._init_scores, is_scores=True)
            decoder.update_array(ids, ids)
            decoder.update_array(scores, scores)
            decoder.state_cell.update_states()
            decoder.early_stop()

    for decode in (BeamSearchDecoder.decode, one_step):
        with fresh_programs() as (_, startup):
            cell = StateCell({}, {"h": InitState(sequences("source", "float32"))}, out_state="h")
            cell.state_updater(lambda cell: cell.set_state("h", layers.scale(cell.get_state("h"), 0.0)))
            # There is one word, which ends sequences: the first step finds none to continue.
            first = sequences("ids", levels=2), sequences("scores", "float32", levels=2)
            decoder = BeamSearchDecoder(cell, *first, target_dict_dim=1, word_dim=1, end_id=START)
            decode(decoder)
            decoder()
            fluid.Executor().run(startup)
            feed = {**beginnings([[1]]), "source": np.ones([1, 1], "float32")}
            assert fluid.Executor().run(feed=feed, fetch_list=[decoder._counter])[0].item() == 1


def plain_cell(**names: Any) -> StateCell:
    state = InitState(layers.data("boot", [SIZE]))
    cell = StateCell(**{"inputs": {"word": None}, "states": {"state": state}, "out_state": "state", **names})
    cell.state_updater(lambda cell: cell.set_state("state", layers.fc(cell.get_input("word"), SIZE)))
    return cell


def in_training(step: Callable[[TrainingDecoder, Any], Any], reads: bool = True) -> None:
    decoder = TrainingDecoder(plain_cell())
    with decoder.block():
        word = decoder.step_input(layers.data("word", [SIZE], lod_level=1)) if reads else None
        step(decoder, word)


def beams(**arguments: Any) -> BeamSearchDecoder:
    first = sequences("ids", levels=2), sequences("scores", "float32", levels=2)
    return BeamSearchDecoder(plain_cell(), *first, **{"target_dict_dim": WORDS, "word_dim": SIZE, **arguments})


def in_search(step: Callable[[BeamSearchDecoder], Any]) -> BeamSearchDecoder:
    decoder = beams()
    with decoder.block():
        step(decoder)
    return decoder


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no init": (lambda: InitState(shape=[-1, 3]), "InitState: give init, or init_boot"),
    "no such out_state": (lambda: plain_cell(out_state="stat"), "there is no 'stat', but state; did you mean state"),
    "no block": (lambda: plain_cell().get_state("state"), r"StateCell.get_state must be called in the block of a decoder"),
    "no step_input": (lambda: in_training(lambda d, _: d.state_cell.out_state(), reads=False), "must be called after step_input"),
    "no value": (lambda: in_training(lambda d, _: d.state_cell.compute_state({})), "word has no value; give it to compute_state"),
    "no such input": (lambda: in_training(lambda d, word: d.state_cell.compute_state({"x": word})), "there is no 'x', but word"),
    "no such state": (lambda: in_training(lambda d, word: d.state_cell.set_state("x", word)), "there is no 'x', but state"),
    "no update": (lambda: in_training(lambda d, word: d.output(word)), "TrainingDecoder never calls update_states"),
    "no output yet": (lambda: TrainingDecoder(plain_cell())(), "available after its block"),
    "two blocks of a cell": (
        lambda: in_training(lambda d, _: TrainingDecoder(d.state_cell).block().__enter__()),
        "StateCell is in the block of another decoder",
    ),
    "no updater": (
        lambda: in_training(lambda d, word: (d.state_cell.state_updater(None), d.state_cell.compute_state({"word": word}))),
        "nothing computes the states",
    ),
    "no such variable": (lambda: beams(input_var_dict={"words": sequences("x")}), "no 'words', but word; did you mean word"),
    "no beam": (lambda: beams(beam_size=0), "beam_size should be"),
    "outside": (lambda: beams().early_stop(), r"early_stop must be called in its block"),
    "no result yet": (lambda: beams()(), "available after decode"),
    "both": (lambda: in_search(lambda d: d.read_array(d._init_ids, True, True)), "holds the ids or the scores, not both"),
    "no array": (lambda: in_search(lambda d: d.update_array(d._init_ids, d._init_ids)), "should be a result of read_array"),
    "no ids": (lambda: in_search(lambda d: d.state_cell.update_states())(), r"read by read_array\(is_ids=True\)"),
}


@each("name", WRONG)
def test_errors_say_what_to_do(name: str) -> None:
    build, message = WRONG[name]
    with pytest.raises(FluidError, match=message):
        build()

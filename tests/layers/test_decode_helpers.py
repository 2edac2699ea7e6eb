"""`BasicDecoder` with its helpers: teacher forcing beside `rnn`, greedy and random decoding beside plain numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph, layers

SIZE, WORDS, END = 5, 7, 1
RNG = np.random.default_rng(0)
TABLE, WEIGHT, OUT = (RNG.normal(0, 2, shape).astype("float32") for shape in ((WORDS, SIZE), (SIZE, SIZE), (SIZE, WORDS)))
LENGTHS = np.array([6, 2, 4, 0])


class Cell(layers.RNNCell):
    """``tanh((inputs + states) W)``."""

    def call(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any]:
        out = layers.tanh(layers.matmul(inputs + states, layers.assign(WEIGHT)))
        return out, out


def run(fetches: list[Any], feed: dict[str, Any]) -> list[Any]:
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    results: list[Any] = executor.run(feed=feed, fetch_list=fetches)
    return results


def embed(ids: Any) -> Any:
    return layers.gather(layers.assign(TABLE), ids)


def score(hidden: Any) -> Any:
    return layers.matmul(hidden, layers.assign(OUT))


@each("time_major", [False, True])
@each("steps", [None, 6])
def test_teacher_forcing_is_rnn(time_major: bool, steps: int | None) -> None:
    """The same outputs, last states, and gradients of parameters, inputs and first states."""
    shape = [steps, None, 3] if time_major else [None, steps, 3]
    words, lengths, first = fluid.data("words", shape), fluid.data("lengths", [None], "int64"), fluid.data("first", [None, SIZE])
    words.stop_gradient = first.stop_gradient = False
    cell = layers.GRUCell(SIZE)
    decoder = layers.BasicDecoder(cell, layers.TrainingHelper(words, lengths, time_major))
    how = {"output_time_major": time_major, "impute_finished": True, "return_length": True}
    outputs, state, counts = layers.dynamic_decode(decoder, first, **how)
    expected, last = layers.rnn(cell, words, first, lengths, time_major)
    mask = layers.sequence_mask(lengths, maxlen=6, dtype="float32")
    mask = layers.unsqueeze(layers.transpose(mask, [1, 0]) if time_major else mask, [2])
    sources = [*fluid.default_main_program().all_parameters(), words, first]
    results = []
    for hidden, final in ((outputs.cell_outputs, state), (expected, last)):
        loss = layers.reduce_sum(layers.square(hidden * mask)) + layers.reduce_sum(final * final * final)
        results += [hidden * mask, final, *fluid.gradients(loss, sources)]
    array = RNG.normal(0, 1, (4, 6, 3)).astype("float32")
    feed = {"words": array.swapaxes(0, 1) if time_major else array, "lengths": LENGTHS, "first": TABLE[:4]}
    *values, ids, count = run([*results, outputs.sample_ids, counts], feed)
    for value, of_rnn in zip(values[: len(values) // 2], values[len(values) // 2 :], strict=True):
        np.testing.assert_allclose(value, of_rnn, 2e-5, 1e-6)
    assert np.array_equal(count, LENGTHS) and ids.dtype == np.int64 and ids.shape == ((6, 4) if time_major else (4, 6))


def test_finished_sequences_go_on_unless_imputed() -> None:
    words, lengths = fluid.data("words", [None, 6, SIZE]), fluid.data("lengths", [None], "int64")
    decoder = layers.BasicDecoder(Cell(), layers.TrainingHelper(words, lengths))
    first = fluid.data("first", [None, SIZE])
    states = [layers.dynamic_decode(decoder, first, impute_finished=imputes)[1] for imputes in (False, True)]
    array = RNG.normal(0, 1, (4, 6, SIZE)).astype("float32")
    last_states = run(states, {"words": array, "lengths": LENGTHS, "first": TABLE[:4]})
    for imputes, values in zip((False, True), last_states, strict=True):
        for row, length in enumerate(LENGTHS):
            state = TABLE[row]
            for step in range(length if imputes else 6):
                state = np.tanh((array[row, step] + state) @ WEIGHT)
            np.testing.assert_allclose(values[row], state, 1e-4, 1e-5)


def test_imputing_changes_nothing_where_no_beam_ends() -> None:
    """Log probabilities start at -1e9: adding the first step's must not round them."""
    scores = layers.assign(np.array([-100.0] + [0.0] * (len(OUT[0]) - 1), "float32"))
    table = fluid.initializer.NumpyArrayInitializer(TABLE)
    functions = {
        "embedding_fn": lambda ids: fluid.embedding(ids, [WORDS, SIZE], param_attr=table),
        "output_fn": lambda hidden: score(hidden) + scores,
    }
    decoder = layers.BeamSearchDecoder(Cell(), start_token=1, end_token=0, beam_size=3, **functions)
    first = fluid.data("first", [None, SIZE])
    states = [layers.dynamic_decode(decoder, first, 4, impute_finished=imputes)[1] for imputes in (False, True)]
    plain, imputed = run([state.log_probs for state in states], {"first": TABLE[:4]})
    np.testing.assert_allclose(imputed, plain, rtol=1e-6)


def greedy(steps: int) -> list[list[int]]:
    """What `Cell` chooses from id 0 on."""
    ids, state, chosen = np.zeros(4, int), TABLE[:4], []
    for _ in range(steps):
        state = np.tanh((TABLE[ids] + state) @ WEIGHT)
        ids = (state @ OUT).argmax(1)
        chosen.append(ids.tolist())
    return chosen


def decoded(helper: Callable[..., Any], *how: Any, most: int = 8) -> Any:
    """Ids ``[time, batch]`` and lengths."""
    start, first = fluid.data("start", [None], "int64"), fluid.data("first", [None, SIZE])
    decoder = layers.BasicDecoder(Cell(), helper(embed, start, END, *how), score)
    outputs, _, lengths = layers.dynamic_decode(
        decoder, first, max_step_num=most, output_time_major=True, return_length=True, is_test=True
    )
    return run([outputs.sample_ids, lengths], {"start": np.zeros(4, "int64"), "first": TABLE[:4]})


@each("how", [(layers.GreedyEmbeddingHelper,), (layers.SampleEmbeddingHelper, 1e-3)])
def test_greedy_decoding(how: Any) -> None:
    """A temperature near 0 leaves the most probable id alone."""
    ids, lengths = decoded(*how)
    chosen = greedy(len(ids))
    for row, length in enumerate(lengths):
        ours, theirs = ids[:length, row].tolist(), [step[row] for step in chosen[:length]]
        assert ours == theirs and END not in ours[:-1] and (ours[-1] == END or length == len(ids))


def test_ids_are_drawn_by_their_probabilities() -> None:
    """Without memory of the step before, each step draws anew: ids come as often as the softmax says."""

    class Fixed(layers.RNNCell):
        def call(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any]:
            return states, states

    logits = np.log(np.array([0.5, 0.3, 0.2], "float32"))
    start, first = fluid.data("start", [None], "int64"), fluid.data("first", [None, 3])
    decoder = layers.BasicDecoder(Fixed(), layers.SampleEmbeddingHelper(lambda ids: ids, start, end_token=-1))
    outputs, _ = layers.dynamic_decode(decoder, first, max_step_num=49)
    fluid.default_main_program().random_seed = 3
    (ids,) = run([outputs.sample_ids], {"start": np.zeros(100, "int64"), "first": np.tile(logits, (100, 1))})
    assert ids.shape == (100, 50)
    np.testing.assert_allclose(np.bincount(ids.ravel(), minlength=3) / ids.size, [0.5, 0.3, 0.2], atol=0.03)
    assert any((ids[:, step] != ids[:, 0]).any() for step in range(1, 50))


def test_on_tensors_as_in_programs() -> None:
    array = RNG.normal(0, 1, (4, 6, SIZE)).astype("float32")

    def decoded(value: Callable[..., Any]) -> Any:
        helper = layers.TrainingHelper(value("words", array), value("lengths", LENGTHS))
        outputs, state = layers.dynamic_decode(layers.BasicDecoder(Cell(), helper, score), value("first", TABLE[:4]))
        return [outputs.cell_outputs, outputs.sample_ids, state]

    of_program = run(decoded(lambda name, array: fluid.layers.assign(array)), {})
    with dygraph.guard():
        tensors = decoded(lambda name, array: dygraph.to_variable(array))
    for tensor, array in zip(tensors, of_program, strict=True):
        np.testing.assert_allclose(tensor.numpy(), array, 1e-4, 1e-5)


def test_helpers_without_methods() -> None:
    class Mine(layers.DecodeHelper):
        pass

    x = fluid.data("x", [2, SIZE])
    for call, wanted in (
        (lambda: Mine().initialize(), r"Mine should define initialize\(\)"),
        (lambda: Mine().sample(x, x, x), r"Mine should define sample\("),
        (lambda: Mine().next_inputs(x, x, x, x), r"Mine should define next_inputs\("),
    ):
        with pytest.raises(fluid.errors.ProgramError, match=wanted):
            call()
    with pytest.raises(TypeError, match="TrainingHelper: sequence_length should be a Variable"):
        layers.TrainingHelper(x, [1, 2])  # type: ignore[arg-type]


def test_senseless_arguments_are_refused() -> None:
    start: Any = fluid.data("start", [None], "int64")
    sampling, greedy = layers.SampleEmbeddingHelper, layers.GreedyEmbeddingHelper
    with pytest.raises(
        fluid.errors.FluidTypeError, match="GreedyEmbeddingHelper: embedding_fn should be a function of ids, not 3"
    ):
        greedy(3, start, END)  # type: ignore[arg-type]
    with pytest.raises(
        fluid.errors.FluidTypeError, match="SampleEmbeddingHelper: end_token should be an id, an integer, not 'a'"
    ):
        sampling(abs, start, "a")  # type: ignore[arg-type]
    with pytest.raises(fluid.errors.ProgramError, match="softmax_temperature should be above 0, not 0"):
        sampling(abs, start, END, softmax_temperature=0)
    with pytest.raises(fluid.errors.FluidTypeError, match="helper should be a DecodeHelper, such as TrainingHelper, not None"):
        layers.BasicDecoder(Cell(), None)  # type: ignore[arg-type]

"""Layers of structured prediction, in programs that learn and search: beam_search and beam_search_decode among them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from checks import each
from numeric import assert_gradients, dot, interpret
from samples.crf import FULL, LENGTHS, TAGS

import fluid
from fluid import layers
from fluid.backward import gradients
from fluid.errors import BackwardError, ExecutionError, FluidError, InferenceError, ProgramError
from fluid.ir.program import Program, Variable, program_guard
from fluid.values.lod_array import with_lod

rng = np.random.default_rng(8)
FIRST = rng.bit_generator.state


@pytest.fixture(autouse=True)
def program() -> Iterator[Program]:
    rng.bit_generator.state = FIRST
    main, startup = Program(), Program()
    main.random_seed = startup.random_seed = 3
    with program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        yield main


def data(name: str, shape: list[int], dtype: str = "float32", lod_level: int = 0) -> Variable:
    return layers.data(name, shape, append_batch_size=False, dtype=dtype, lod_level=lod_level)


def run(fetch: Any, feed: Any = None, start: bool = True, **kwargs: Any) -> list[Any]:
    executor = fluid.Executor()
    if start:
        executor.run(fluid.default_startup_program())
    return executor.run(feed=feed or {}, fetch_list=fetch, **kwargs)


def losses(loss: Variable, feed: Any, steps: int, rate: float) -> list[float]:
    """The losses of training, step by step."""
    fluid.optimizer.Adam(rate).minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    return [float(executor.run(feed=feed, fetch_list=[loss])[0].item()) for _ in range(steps)]


# ------------------------------------------------------------------------------------------- conditional random fields
def tagger(length: Variable | None, words: Variable, tags: Variable) -> tuple[Variable, Variable]:
    emission = layers.fc(layers.embedding(words, [10, 8]), TAGS, num_flatten_dims=1 if length is None else 2)
    cost = layers.linear_chain_crf(emission, tags, fluid.ParamAttr(name="crf"), length)
    return layers.mean(cost), layers.crf_decoding(emission, fluid.ParamAttr(name="crf"), length=length)


WORDS, LOD = np.array([1, 2, 3, 4, 5, 6, 7, 1, 2])[:, None], [[4, 3, 2]]
GOAL = np.array([0, 1, 2, 1, 0, 2, 2, 0, 1])[:, None]


def test_crf_learns_to_tag() -> None:
    words, tags = data("words", [-1, 1], "int64", 1), data("tags", [-1, 1], "int64", 1)
    cost, path = tagger(None, words, tags)
    emission = path.block.var(path.block.ops[-1].input("Emission")[0])
    right = layers.crf_decoding(emission, fluid.ParamAttr(name="crf"), tags)
    feed = {"words": (WORDS, LOD), "tags": (GOAL, LOD)}
    found = losses(cost, feed, 60, 0.1)
    assert found[-1] < 0.1 * found[0]
    decoded, hits = run([path, right], feed, start=False, return_numpy=False)
    assert np.array_equal(np.asarray(decoded), GOAL) and decoded.recursive_sequence_lengths() == LOD
    assert np.asarray(hits).all()


def test_crf_learns_the_same_from_padded_sequences() -> None:
    found = []
    for padded in (False, True):
        with program_guard(Program(), Program()), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
            fluid.default_startup_program().random_seed = 5
            if not padded:
                words, tags = data("words", [-1, 1], "int64", 1), data("tags", [-1, 1], "int64", 1)
                feed: Any = {"words": (WORDS, LOD), "tags": (GOAL, LOD)}
                length = None
            else:
                words, tags, length = (
                    data("words", [3, 4, 1], "int64"),
                    data("tags", [3, 4], "int64"),
                    data("length", [3], "int64"),
                )
                wide = np.zeros((2, 3, 4), np.int64)
                for row, (start, end) in enumerate(((0, 4), (4, 7), (7, 9))):
                    wide[0, row, : end - start], wide[1, row, : end - start] = WORDS[start:end, 0], GOAL[start:end, 0]
                feed = {"words": wide[0][:, :, None], "tags": wide[1], "length": np.array(LOD[0])}
            found.append(losses(tagger(length, words, tags)[0], feed, 5, 0.1))
    np.testing.assert_allclose(found[0], found[1], 1e-5)


def test_transitions_are_shared_by_name() -> None:
    """A program that only decodes makes the parameter that another trained."""
    emission = data("emission", [-1, TAGS], lod_level=1)
    layers.crf_decoding(emission, fluid.ParamAttr(name="crf"))
    assert tuple(fluid.default_main_program().global_block().var("crf").shape) == (TAGS + 2, TAGS)


def third_order(loss: Variable, wrt: list[Variable], feed: dict[str, Any], lods: dict[str, Any]) -> None:
    """The third derivative, through squares of gradients, against central differences."""

    def values(program: Program, arrays: dict[str, Any], fetch: Any) -> list[Any]:
        return interpret(program, {name: with_lod(value, lods.get(name, ())) for name, value in arrays.items()}, fetch)

    goal, main = layers.reduce_sum(loss), fluid.default_main_program()
    for order in (1, 2, 3):
        before, target = main.clone(), goal
        found = gradients([goal], wrt)
        grads = dict(zip([var.name for var in wrt], values(main, feed, found), strict=True))
        assert_gradients(
            lambda arrays, before=before, target=target: dot(values(before, arrays, [target])[0], np.ones(1)),
            feed,
            grads,
            rng,
            10.0**order,
        )
        goal = sum(layers.reduce_sum(grad * grad) for grad in found)  # type: ignore[assignment]


def test_third_order_of_crf() -> None:
    feed = {"e": rng.normal(size=(6, TAGS)), "t": rng.normal(size=(TAGS + 2, TAGS)), "l": rng.integers(0, TAGS, (6, 1))}
    e, t, label = data("e", [-1, TAGS], "float64", 1), data("t", [TAGS + 2, TAGS], "float64"), data("l", [-1, 1], "int64", 1)
    e.stop_gradient = t.stop_gradient = False
    f = fluid.framework.BuildNamespace(fluid.default_main_program().global_block())
    third_order(f.linear_chain_crf(e, t, label), [e, t], feed, {"e": FULL, "l": FULL})


def test_crf_refuses_what_does_not_fit() -> None:
    emission, label = data("emission", [-1, TAGS], lod_level=1), data("label", [-1, 1], "int64", 1)
    with pytest.raises(InferenceError, match=r"Transition float32\[4, 3\] should have shape \[tags \+ 2, tags\]"):
        f = fluid.framework.BuildNamespace(fluid.default_main_program().global_block())
        f.linear_chain_crf(emission, data("t", [4, TAGS]), label)
    with pytest.raises(InferenceError, match=r"with Length, Emission .* should have shape \[batch, steps, tags\]"):
        layers.linear_chain_crf(emission, label, length=data("length", [-1], "int64"))
    with pytest.raises(InferenceError, match=r"Emission .* should hold sequences; declare it with lod_level=1"):
        layers.crf_decoding(data("plain", [6, TAGS]), fluid.ParamAttr(name="other"))
    with pytest.raises(InferenceError, match=r"Label is float32\[-1, 3\]; it should be int"):
        layers.linear_chain_crf(emission, emission)
    cost = layers.linear_chain_crf(emission, label)
    with pytest.raises(ExecutionError, match=r"Label: index 3 is outside of \[0, 3\)"):
        run([cost], {"emission": (np.zeros((2, TAGS), "float32"), [[2]]), "label": (np.full((2, 1), TAGS), [[2]])})


def test_lengths_beyond_the_steps_are_refused() -> None:
    emission, label, length = data("e", [4, 3, TAGS]), data("l", [4, 3], "int64"), data("n", [4], "int64")
    cost = layers.linear_chain_crf(emission, label, length=length)
    feed = {"e": np.zeros((4, 3, TAGS), "float32"), "l": np.zeros((4, 3), "int64"), "n": LENGTHS + 1}
    with pytest.raises(ExecutionError, match=r"the lengths \[4, 1, 2, 3\] of Emission should be from 0 to 3"):
        run([cost], feed)


# ----------------------------------------------------------------------------------------------- chunks, edit distance
def test_chunks_of_a_sentence() -> None:
    """In IOB with two types: of the chunks (0-1, type 0), (2, type 1), (4, type 1) the second is found too long."""
    label, guess = [0, 1, 2, 4, 2, 4], [0, 1, 2, 3, 2, 4]
    tags = [data(name, [-1, 1], "int64", 1) for name in ("guess", "label")]
    found = layers.chunk_eval(*tags, "IOB", 2)
    feed = {"guess": (np.array(guess)[:, None], [[6]]), "label": (np.array(label)[:, None], [[6]])}
    precision, recall, f1, *counts = (value.item() for value in run(list(found), feed))
    assert b"F1-Score" in fluid.default_main_program().serialize_to_string()  # Paddle's name of the slot
    op = fluid.default_main_program().global_block().ops[-1]
    assert op.output("F1-Score") == op.output("F1_Score") == [found[2].name]
    slots = {"F1-Score" if slot == "F1_Score" else slot: op.output(slot) for slot in op.output_names}
    again = op.block.append_op(op.type, op.inputs, slots, op.attrs)
    assert again.outputs == op.outputs
    op.block.remove_op(len(op.block.ops) - 1)
    assert counts == [3, 3, 2]
    np.testing.assert_allclose([precision, recall, f1], [2 / 3] * 3, 1e-6)
    with pytest.raises(InferenceError, match="chunk_scheme is 'BIO'; it should be one of IOB, IOE, IOBES, plain"):
        layers.chunk_eval(*tags, "BIO", 2)
    few = layers.chunk_eval(*tags, "IOB", 1)
    with pytest.raises(ExecutionError, match="tags should be from 0 to 2"):
        run([few[0]], feed)


def test_edit_distance_without_tokens() -> None:
    one, other = data("one", [-1, 1], "int64", 1), data("other", [-1, 1], "int64", 1)
    distance, count = layers.edit_distance(one, other, normalized=False, ignored_tokens=[0])
    shares, _ = layers.edit_distance(one, other)
    feed = {"one": (np.array([[1], [0], [2], [3]]), [[3, 1]]), "other": (np.array([[1], [2], [0], [5], [4]]), [[3, 2]])}
    found = run([distance, count, shares], feed)
    assert found[0].tolist() == [[0.0], [2.0]] and found[1].tolist() == [2]
    np.testing.assert_allclose(found[2], [[2 / 3], [1.0]], 1e-6)
    with pytest.raises(ProgramError, match="left out of sequences of rows only"):
        layers.edit_distance(one, other, ignored_tokens=[0], input_length=count)
    with pytest.raises(ExecutionError, match="sequence 1 of Refs is empty"):
        run([shares], {**feed, "other": (np.array([[1], [2]]), [[2, 0]])})


# --------------------------------------------------------------------------------------------------- unaligned labels
def test_ctc_learns_to_read() -> None:
    """Frames become a word; the greedy decoder reads the word, from padded frames too."""
    frames, label = data("frames", [-1, 6], lod_level=1), data("label", [-1, 1], "int32", 1)
    logits = layers.fc(frames, 4)
    cost = layers.mean(layers.warpctc(logits, label, blank=3))
    words = layers.ctc_greedy_decoder(logits, blank=3)
    given = rng.normal(size=(11, 6)).astype("float32")
    label_value = np.array([[0], [1], [1], [2], [0]], "int32")
    feed = {"frames": (given, [[7, 4]]), "label": (label_value, [[3, 2]])}
    found = losses(cost, feed, 150, 0.1)
    assert found[-1] < 0.1 * found[0]
    (read,) = run([words], feed, start=False, return_numpy=False)
    assert np.array_equal(np.asarray(read), label_value) and read.recursive_sequence_lengths() == [[3, 2]]


def test_greedy_decoder_of_padded_frames() -> None:
    shares, length = data("shares", [2, 4, 3]), data("length", [2, 1], "int64")
    words, counts = layers.ctc_greedy_decoder(shares, blank=0, input_length=length, padding_value=-1)
    best = np.array([[1, 1, 0, 1], [2, 2, 1, 2]])
    found = run([words, counts], {"shares": np.eye(3, dtype="float32")[best], "length": np.array([[4], [2]])})
    assert found[0].tolist() == [[1, 1, -1, -1], [2, -1, -1, -1]] and found[1].tolist() == [[2], [1]]


def ctc(norm_by_times: bool = False) -> tuple[Variable, Variable, dict[str, Any], dict[str, Any]]:
    logits, label = data("logits", [-1, 3], "float64", 1), data("label", [-1, 1], "int64", 1)
    logits.stop_gradient = False
    feed = {"logits": rng.normal(size=(7, 3)), "label": np.array([[1], [2], [1]])}
    loss = layers.warpctc(logits, label, norm_by_times=norm_by_times)
    return loss, logits, feed, {"logits": ((0, 4, 7),), "label": ((0, 2, 3),)}


def test_third_order_of_ctc() -> None:
    loss, logits, feed, lods = ctc()
    third_order(loss, [logits], feed, lods)


def test_norm_by_times_divides_gradients_of_every_order(program: Program) -> None:
    found: list[list[Any]] = []
    values: dict[str, Any] = {}
    for norm in (False, True):
        with program_guard(Program(), Program()):
            loss, logits, feed, lods = ctc(norm)
            values = values or feed
            (first,) = gradients([loss], [logits])
            (second,) = gradients([first], [logits], [data("seed", [-1, 3], "float64", 1)])
            seed = np.cos(np.arange(21.0)).reshape(7, 3)
            given = {**values, "seed": seed}
            lods["seed"] = lods["logits"]
            given = {name: with_lod(value, lods[name]) for name, value in given.items()}
            found.append(interpret(fluid.default_main_program(), given, [loss, first, second]))
    times = np.repeat([4.0, 3.0], [4, 3])[:, None]
    np.testing.assert_allclose(found[1][0], found[0][0])
    for order in (1, 2):
        np.testing.assert_allclose(found[1][order] * times, found[0][order], 1e-12, 1e-12)


def test_gradient_of_a_file_that_names_no_labels(program: Program) -> None:
    """As in Paddle, warpctc_grad needs no Label; only to differentiate it, which says so."""
    loss, logits, feed, lods = ctc()
    (first,) = gradients([loss], [logits])
    op = next(op for op in program.global_block().ops if op.type == "warpctc_grad")
    given = {name: with_lod(value, lods[name]) for name, value in feed.items()}
    (expected,) = interpret(program, given, [first])
    op.inputs["Label"] = []
    (found,) = interpret(program, given, [first])
    assert np.array_equal(found, expected) and found.any()
    with pytest.raises(BackwardError, match="warpctc_grad has no Label input"):
        gradients([first], [logits])


def test_ctc_refuses_what_does_not_fit() -> None:
    logits, label = data("logits", [-1, 3], lod_level=1), data("label", [-1, 1], "int64", 1)
    with pytest.raises(InferenceError, match=r"blank is 3; it should be a class of Logits float32\[-1, 3\]"):
        layers.warpctc(logits, label, blank=3)
    with pytest.raises(InferenceError, match="give both LogitsLength and LabelLength, or neither"):
        layers.warpctc(logits, label, input_length=data("n", [2], "int64"))
    loss = layers.warpctc(logits, label)
    frames = (np.zeros((4, 3), "float32"), [[4]])
    with pytest.raises(ExecutionError, match="Label holds the blank, 0, which is no label"):
        run([loss], {"logits": frames, "label": (np.array([[1], [0]]), [[2]])})
    with pytest.raises(FluidError, match=r"Logits .* has 1 sequences, but Label .* has 2"):
        run([loss], {"logits": frames, "label": (np.array([[1], [1]]), [[1, 1]])})


# -------------------------------------------------------------------------------------------------------- many classes
CLASSES = 12


@each("sampler", ["uniform", "log_uniform", "custom_dist"])
def test_nce_draws_as_told(sampler: str) -> None:
    shares = {
        "uniform": np.full(CLASSES, 1 / CLASSES),
        "log_uniform": np.append(np.log(np.arange(2, CLASSES + 1) / np.arange(1, CLASSES)) / np.log(CLASSES), 0),
        "custom_dist": rng.dirichlet(np.ones(CLASSES)),
    }
    x, label = data("x", [-1, 4]), data("label", [-1, 1], "int64")
    custom = shares[sampler].tolist() if sampler == "custom_dist" else None
    layers.nce(x, label, CLASSES, num_neg_samples=30, sampler=sampler, custom_dist=custom)
    op = next(op for op in fluid.default_main_program().global_block().ops if op.type == "nce")
    feed = {"x": np.zeros((1000, 4), "float32"), "label": np.zeros((1000, 1), "int64")}
    (labels,) = run([op.output("SampleLabels")[0]], feed)
    drawn = np.bincount(labels[:, 1:].reshape(-1), minlength=CLASSES) / 30000
    np.testing.assert_allclose(drawn, shares[sampler], atol=5 * np.sqrt(0.25 / 30000))


@each("kind", ["nce", "nce_sparse", "hsigmoid", "sampled_softmax"])
def test_learns_classes_without_looking_at_all(kind: str) -> None:
    x, label = data("x", [-1, CLASSES]), data("label", [-1, 1], "int64")
    weight, bias = fluid.ParamAttr(name="w"), fluid.ParamAttr(name="b")
    if kind.startswith("nce"):
        cost = layers.nce(x, label, CLASSES, None, weight, bias, 6, is_sparse=kind == "nce_sparse")
    elif kind == "hsigmoid":
        cost = layers.hsigmoid(x, label, CLASSES)
    else:
        cost = layers.sampled_softmax_with_cross_entropy(layers.fc(x, CLASSES), label, num_samples=6)
    assert tuple(cost.shape) == (-1, 1)
    labels = np.arange(24) % CLASSES
    feed = {"x": (np.eye(CLASSES)[labels] + rng.normal(0, 0.1, (24, CLASSES))).astype("float32"), "label": labels[:, None]}
    found = losses(layers.mean(cost), feed, 200, 0.03)
    if kind.startswith("nce"):  # which costs something even where all is known, since labels are drawn too
        scope = fluid.global_scope()
        w, b = (np.asarray(scope.find_var(name).get_tensor()) for name in "wb")
        assert np.mean((feed["x"] @ w.T + b[:, 0]).argmax(1) == labels) > 0.8
    else:
        assert np.mean(found[-5:]) < 0.2 * found[0]


def test_tree_of_your_own() -> None:
    """The default tree, told by tables."""
    x, label = data("x", [-1, 4]), data("label", [-1, 1], "int64")
    table, code = data("table", [-1, 3], "int64"), data("code", [-1, 3], "int64")
    attrs = {"param_attr": fluid.ParamAttr(name="w"), "bias_attr": fluid.ParamAttr(name="b")}
    first = layers.hsigmoid(x, label, 6, **attrs)
    block = fluid.default_main_program().global_block()
    f = fluid.framework.BuildNamespace(block)
    second = f.hierarchical_sigmoid(x, block.var("w"), label, table, code, block.var("b"))
    feed = {
        "x": rng.normal(size=(3, 4)).astype("float32"),
        "label": np.array([[0], [3], [5]]),
        "table": np.array([[2, 0, -1], [3, 1, 0], [4, 1, 0]]),
        "code": np.array([[0, 1, -1], [1, 0, 0], [1, 1, 0]]),
    }
    one, other = run([first, second], feed)
    np.testing.assert_allclose(one, other, 1e-6)
    layers.hsigmoid(x, label, 5, path_table=table, path_code=code, is_custom=True)
    assert tuple(block.var(block.ops[-1].input("W")[0]).shape) == (5, 4)


def test_sampled_softmax_of_every_class_is_softmax() -> None:
    logits, label = data("logits", [3, 5]), data("label", [3, 1], "int64")
    samples, shares = data("samples", [3, 5], "int64"), data("shares", [3, 5])
    sampled = layers.sampled_softmax_with_cross_entropy(
        logits, label, 4, use_customized_samples=True, customized_samples=samples, customized_probabilities=shares
    )
    whole = layers.softmax_with_cross_entropy(logits, label)
    labels = np.array([[0], [2], [4]])
    rest = np.array([[c for c in range(5) if c != row[0]] for row in labels])
    feed = {
        "logits": rng.normal(size=(3, 5)).astype("float32"),
        "label": labels,
        "samples": np.concatenate([labels, rest], 1),
        "shares": np.ones((3, 5), "float32"),
    }
    one, other = run([sampled, whole], feed)
    np.testing.assert_allclose(one, other, 1e-5)


def test_many_classes_refuse_what_does_not_fit() -> None:
    x, label = data("x", [-1, 4]), data("label", [-1, 1], "int64")
    with pytest.raises(ProgramError, match="sampler is 'normal'; it should be one of uniform, log_uniform, custom_dist"):
        layers.nce(x, label, CLASSES, sampler="normal")
    with pytest.raises(ProgramError, match="custom_dist should hold the probability of each class"):
        layers.nce(x, label, CLASSES, sampler="custom_dist")
    with pytest.raises(ProgramError, match="a probability for each of 12 classes, 1 in all"):
        layers.nce(x, label, CLASSES, sampler="custom_dist", custom_dist=[0.5, 0.5])
    with pytest.raises(ProgramError, match="a custom tree needs is_custom=True, path_table and path_code"):
        layers.hsigmoid(x, label, CLASSES, path_table=label)
    with pytest.raises(ProgramError, match="give customized_samples and customized_probabilities too"):
        layers.sampled_softmax_with_cross_entropy(x, label, 2, use_customized_samples=True)
    with pytest.raises(InferenceError, match="5 different classes cannot be drawn of those of Logits"):
        layers.sampled_softmax_with_cross_entropy(x, label, 5)
    cost = layers.hsigmoid(x, label, CLASSES)
    with pytest.raises(ExecutionError, match=r"Label: index 12 is outside of \[0, 12\)"):
        run([cost], {"x": np.zeros((1, 4), "float32"), "label": np.array([[CLASSES]])})


# --------------------------------------------------------------------------------------------------------------- beams
START, END, VOCABULARY, STEPS = 1, 0, 4, 4
BEAMS = 64  # as many as there are ways to begin, so that none is lost


def search() -> list[Variable]:
    """A program that looks for the best sentences of a Markov chain, in a loop; the words, their scores, the table."""
    table = data("table", [VOCABULARY, VOCABULARY])
    first_ids, first_scores = data("first_ids", [-1, 1], "int64", 2), data("first_scores", [-1, 1], lod_level=2)
    step, limit = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", STEPS)
    ids, scores = layers.array_write(first_ids, step), layers.array_write(first_scores, step)
    going = layers.less_than(step, limit)
    loop = layers.While(going)
    with loop.block():
        pre_ids, pre_scores = layers.array_read(ids, step), layers.array_read(scores, step)
        best, words = layers.topk(layers.gather(table, layers.reshape(pre_ids, [-1])), VOCABULARY)
        totals = layers.elementwise_add(layers.log(best), layers.reshape(pre_scores, [-1]), axis=0)
        totals = layers.lod_reset(totals, pre_scores)
        new_ids, new_scores = layers.beam_search(pre_ids, pre_scores, words, totals, BEAMS, END)
        layers.increment(step, 1, in_place=True)
        layers.array_write(new_ids, step, ids)
        layers.array_write(new_scores, step, scores)
        layers.logical_and(layers.less_than(step, limit), layers.logical_not(layers.is_empty(new_ids)), out=going)
    return list(layers.beam_search_decode(ids, scores, BEAMS, END))


def sentences(table: Any) -> dict[tuple[int, ...], float]:
    """Every sentence and its score."""
    found = {}
    for words in product(range(VOCABULARY), repeat=STEPS):
        end = words.index(END) + 1 if END in words else STEPS
        sentence = [START, *words[:end]]
        found[tuple(sentence)] = float(sum(np.log(table[a, b]) for a, b in pairwise(sentence)))
    return found


def test_beam_search_finds_the_best_sentences() -> None:
    """The same ones as going through all, in order, for each of two sources."""
    table = rng.dirichlet(np.ones(VOCABULARY), VOCABULARY).astype("float32")
    feed = {
        "table": table,
        "first_ids": (np.full((2, 1), START), [[1, 1], [1, 1]]),
        "first_scores": (np.zeros((2, 1), "float32"), [[1, 1], [1, 1]]),
    }
    words, scores = run(search(), feed, return_numpy=False)
    counts, lengths = words.recursive_sequence_lengths()
    assert counts == [BEAMS, BEAMS]
    ends = np.cumsum(lengths)
    read = [part.tolist() for part in np.split(np.asarray(words), ends[:-1])]
    every = sentences(table)
    best = sorted(every.values(), reverse=True)[:BEAMS]
    for source in (read[:BEAMS], read[BEAMS:]):
        assert len(set(map(tuple, source))) == BEAMS
        np.testing.assert_allclose([every[tuple(sentence)] for sentence in source], best, 1e-5)  # sentences may be equally good
    np.testing.assert_allclose(np.asarray(scores)[ends - 1], best * 2, 1e-4)


def test_beam_search_tells_parents() -> None:
    """By probabilities that the scores do not count yet; the beam that has ended goes on as it is."""
    pre_ids, pre_scores = data("pre_ids", [-1, 1], "int64", 2), data("pre_scores", [-1, 1], lod_level=2)
    shares = data("shares", [-1, 3], lod_level=2)
    found = layers.beam_search(pre_ids, pre_scores, None, shares, 2, END, is_accumulated=False, return_parent_idx=True)
    lengths = [[2], [1, 1]]
    feed = {
        "pre_ids": (np.array([[END], [2]]), lengths),
        "pre_scores": (np.array([[-1.0], [-0.5]], "float32"), lengths),
        "shares": (np.array([[0.9, 0.9, 0.9], [0.1, 0.2, 0.7]], "float32"), lengths),
    }
    ids, scores, parents = run(list(found), feed, return_numpy=False)
    assert np.asarray(ids).tolist() == [[END], [2]] and np.asarray(parents).tolist() == [0, 1]
    np.testing.assert_allclose(np.asarray(scores), [[-1.0], [-0.5 + np.log(0.7)]], 1e-6)
    assert ids.recursive_sequence_lengths() == [[2], [1, 1]]


def test_beam_search_refuses_what_does_not_fit() -> None:
    pre_ids, pre_scores = data("pre_ids", [4, 1], "int64", 1), data("pre_scores", [4, 1], lod_level=1)
    with pytest.raises(InferenceError, match=r"ids int64\[4, 2\] the same"):
        layers.beam_search(pre_ids, pre_scores, data("ids", [4, 2], "int64", 1), data("scores", [4, 3], lod_level=1), 2, END)
    with pytest.raises(InferenceError, match="beam_size is 0; it should be at least 1"):
        layers.beam_search(pre_ids, pre_scores, None, data("scores", [4, 3], lod_level=1), 0, END)
    step = layers.fill_constant([1], "int64", 0)
    found = layers.beam_search_decode(layers.array_write(pre_ids, step), layers.array_write(pre_scores, step), 2, END)
    feed = {name: (np.zeros((4, 1), dtype), [[4]]) for name, dtype in (("pre_ids", "int64"), ("pre_scores", "float32"))}
    with pytest.raises(ExecutionError, match="step 0 of Ids should have two levels of sequences, as beam_search makes them"):
        run(list(found), feed)

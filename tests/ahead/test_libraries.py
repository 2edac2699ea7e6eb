"""Compiled libraries compute the bits of the executor, in memory of the caller."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each
from libraries import Library, Memory, assert_equal_states, assert_equal_steps, made
from networks import NETWORKS, build

import fluid
from fluid import layers
from fluid.extend import ops

__all__: list[str] = []


pytestmark = pytest.mark.usefixtures("one_thread")


@each("name", NETWORKS)
def test_steps_and_predictions_have_the_bits_of_the_executor(name: str, tmp_path: Path) -> None:
    network = build(name)
    executor, scope = network.started()
    library = Library(made(network, tmp_path, scope))
    test = network.main.clone(for_test=True)
    assert_equal_states(library, scope)
    for feed in network.batches(5):
        (loss,) = executor.run(network.main, feed, [network.loss], scope=scope)
        assert library.step(feed).tobytes() == loss.tobytes()
        assert_equal_states(library, scope)
        runs, before = scope.runs, library.state.bytes.tobytes()
        (prediction,) = executor.run(test, feed, [network.prediction], scope=scope)
        scope.runs = runs  # a compiled prediction counts as no run, as it draws nothing
        code, results = library.call("predict_6", feed)
        assert library.state.bytes.tobytes() == before
        assert code == 0 and results["prediction"].tobytes() == prediction.tobytes()


def test_many_steps_do_not_drift(tmp_path: Path) -> None:
    network = build("convolutions")
    executor, scope = network.started()
    library = Library(made(network, tmp_path, scope))
    batches = network.batches(20)
    for _ in range(25):
        for feed in batches:
            library.step(feed)
            executor.run(network.main, feed, [], scope=scope)
    assert_equal_states(library, scope)
    assert all(np.isfinite(array).all() for array in library.variables().values())


def test_memory_may_move_and_change_between_calls(tmp_path: Path) -> None:
    """State and arena hold no addresses; an arena that is overwritten as a whole is as good as a new one."""
    network = build("convolutions")
    _, scope = network.started()
    library, beside = (Library(made(network, tmp_path / folder, scope)) for folder in ("one", "two"))
    for number, feed in enumerate(network.batches(6)):
        moved = Memory(library.state.size, 8)
        moved.bytes[:] = library.state.bytes
        library.state.bytes[:] = 0xFF
        library.state = moved
        if number % 2:
            library.arena.bytes[:] = number
        else:
            library.arena = library.new_arena()
        assert library.step(feed).tobytes() == beside.step(feed).tobytes()
    assert library.state.bytes.tobytes() == beside.state.bytes.tobytes()


def test_masks_of_dropout_are_those_of_the_executor(tmp_path: Path) -> None:
    """Masks of all sizes, by seeds of programs, of ops and none; each run draws others, unless an op has a seed."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = 2**40 + 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [5, 9])
        sizes = {"a": (1, 0.5), "b": (7, 0.25), "c": (8, 0.9), "d": (9, 1e-9), "e": (9, 1.0), "f": (3, 0.0)}
        drawn = {key: layers.dropout(x[:, :width], probability) for key, (width, probability) in sizes.items()}
        drawn["g"] = layers.dropout(x, 0.5, seed=77)
        weight = layers.create_parameter([1], "float32")
        fluid.optimizer.SGD(0.1).minimize(layers.mean(layers.concat(list(drawn.values()), 1)) * weight)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    for program_seed in (main.random_seed, 0):
        main.random_seed = program_seed
        folder = tmp_path / str(program_seed)
        library = Library(fluid.compile_program(main, ["x"], drawn, scope=scope, output=folder / "net"))
        feed = {"x": np.ones([5, 9], "float32")}
        for _ in range(3):
            expected = executor.run(main, feed, list(drawn.values()), scope=scope)
            code, results = library.call("step", feed)
            assert code == 0
            assert all(result.tobytes() == array.tobytes() for result, array in zip(results.values(), expected, strict=True))


def test_random_numbers_are_those_of_the_executor(tmp_path: Path) -> None:
    """Of each distribution, also in a loop; many enough that the rare ways of the normal distribution are taken."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = 11
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, sequence = fluid.data("x", [5, 4]), fluid.data("sequence", [3, 5, 4])
        truncated = main.global_block().create_var(name="truncated", shape=[90, 100], dtype="float32")
        main.global_block().append_op(
            "truncated_gaussian_random", {}, {"Out": [truncated]}, {"shape": [90, 100], "mean": 1.0, "std": 0.5}
        )
        rnn = layers.StaticRNN()
        with rnn.step():
            word, total = rnn.step_input(sequence), rnn.memory(shape=[-1, 4], batch_ref=sequence)
            total_after = total + word * layers.uniform_random([5, 4]) + layers.gaussian_random([5, 4])
            rnn.update_memory(total, total_after)
            rnn.step_output(total_after)
        drawn = {
            "normal": layers.gaussian_random([500, 700], mean=0.25, std=3.0),
            "truncated": truncated,
            "seeded": layers.gaussian_random([7], seed=5),
            "uniform": layers.uniform_random([33], min=-2.0, max=3.0),
            "doubles": layers.uniform_random([33], dtype="float64", min=-2.0, max=3.0),
            "like": layers.uniform_random_batch_size_like(x, [-1, 3]),
            "normal_like": layers.gaussian_random_batch_size_like(x, [-1, 3]),
            "in_loop": rnn(),
        }
        weight = layers.create_parameter([1], "float32")
        fluid.optimizer.SGD(0.1).minimize(layers.mean(drawn["like"] * weight))
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    library = Library(fluid.compile_program(main, fetches=drawn, scope=scope, output=tmp_path / "net"))
    values = {"x": np.ones([5, 4], "float32"), "sequence": np.ones([3, 5, 4], "float32")}
    feed = {key: values[key] for key in library.description["functions"]["step"]["feeds"]}
    for _ in range(2):
        expected = executor.run(main, feed, list(drawn.values()), scope=scope)
        code, results = library.call("step", feed)
        assert code == 0
        different = {key: int((result != array).sum()) for (key, result), array in zip(results.items(), expected, strict=True)}
        assert not any(different.values()), different
        assert np.abs(results["normal"]).max() > 4 * 3 and np.abs(results["truncated"] - 1).max() <= 1


def test_branches_run_where_their_conditions_hold(tmp_path: Path) -> None:
    """In each other, with gradients, and around an update that every second step makes."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, zero = fluid.data("x", [6, 4]), layers.fill_constant([1], "float32", 0.0)
        weight = layers.create_parameter([4, 4], "float32")
        mean, h = layers.mean(x), layers.matmul(x, weight)

        def small() -> fluid.Variable:
            is_negative = layers.less_than(mean, zero)
            return layers.cond(is_negative, lambda: layers.tanh(h), lambda: layers.square(layers.matmul(h, weight)))

        chosen = layers.cond(layers.less_than(mean, zero + 1.0), small, lambda: layers.scale(h, 0.5))
        loss = layers.mean(chosen)
        ((_, gradient),) = fluid.append_backward(loss)
        total, steps = (layers.create_global_var(shape, 0.0, "float32", persistable=True) for shape in ([4, 4], [1]))
        layers.assign(total + gradient, total)
        layers.assign(steps + 1.0, steps)

        def update() -> None:
            fluid.optimizer.Momentum(0.1, 0.9).apply_gradients([(weight, total)])
            layers.assign(layers.zeros_like(total), total)
            layers.assign(layers.zeros_like(steps), steps)

        layers.cond(layers.greater_than(steps, zero + 1.5), update, None)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    library = Library(fluid.compile_program(main, ["x"], {"loss": loss, "chosen": chosen}, scope=scope, output=tmp_path / "net"))
    for number in (-2, 3, 0.5, -1, 0.25, 2, 1):
        feed = {"x": np.random.default_rng(0).standard_normal([6, 4]).astype("float32") + np.float32(number)}
        expected = executor.run(main, feed, [loss, chosen], scope=scope)
        code, results = library.call("step", feed)
        assert code == 0
        assert all(result.tobytes() == array.tobytes() for result, array in zip(results.values(), expected, strict=True))
    assert_equal_states(library, scope)


def metrics() -> dict[str, Any]:
    """Accuracy, tests of finite numbers, sizes, the loss of probabilities, and a dynamic scale of the loss."""
    x, label = fluid.data("x", [6, 5]), fluid.data("label", [6, 1], "int64")
    scores = layers.fc(x, 4, act="softmax")
    loss = layers.mean(layers.cross_entropy(scores, label))
    block = fluid.default_main_program().global_block()
    scale = layers.create_global_var([1], 4.0, "float32", persistable=True)
    good, bad = (layers.create_global_var([1], 0, "int32", persistable=True) for _ in range(2))
    gradients = [pair[1] for pair in fluid.append_backward(loss * scale)]
    infinite = block.create_var(name="infinite", shape=[1], dtype="bool")
    listed = {"X": gradients, "Scale": [scale]}
    block.append_op("check_finite_and_unscale", listed, {"Out": gradients, "FoundInfinite": [infinite]})
    counts = {"PrevLossScaling": [scale], "InGoodSteps": [good], "InBadSteps": [bad]}
    block.append_op(
        "update_loss_scaling",
        {"X": gradients, "FoundInfinite": [infinite], **counts},
        {"Out": gradients, "LossScaling": [scale], "OutGoodSteps": [good], "OutBadSteps": [bad]},
        {"incr_every_n_steps": 2, "decr_every_n_nan_or_inf": 1, "incr_ratio": 2.0, "decr_ratio": 0.5},
    )
    fluid.optimizer.Momentum(0.1, 0.9).apply_gradients(list(zip(block.all_parameters(), gradients, strict=True)))
    return {
        "loss": loss, "accuracy": layers.accuracy(scores, label), "second": layers.accuracy(scores, label, k=2),
        "finite": layers.isfinite(loss), "nan": layers.has_nan(scores), "size": layers.size(scores),
        "shape": layers.shape(scores), "infinite": infinite, "scale": scale,
    }  # fmt: skip


def images() -> dict[str, Any]:
    """Images resized in both ways, pooled by windows of different sizes; an update whose outputs read each other."""
    x = fluid.data("x", [6, 3, 5, 7])
    h = layers.resize_bilinear(layers.conv2d(x, 4, 3, padding=1), [9, 8])
    h = layers.resize_nearest(layers.conv2d(h, 4, 3, padding=1, act="tanh"), [6, 10])
    h = layers.adaptive_pool2d(h, [4, 3], "avg")
    loss = layers.mean(layers.square(h[:, :, ::2]))
    fluid.optimizer.Ftrl(0.1).minimize(loss)
    return {"loss": loss, "h": h}


def areas() -> dict[str, Any]:
    """The areas under ROC curves of all batches, of the last two, and of this one."""
    x, label = fluid.data("x", [6, 5]), fluid.data("label", [6, 1], "int64")
    scores = layers.fc(x, 2, act="softmax")
    loss = layers.mean(layers.cross_entropy(scores, layers.elementwise_min(label, layers.ones([1], "int64"))))
    fluid.optimizer.SGD(0.1).minimize(loss)
    all_batches, batch, _ = layers.auc(scores, label, num_thresholds=200, slide_steps=2)
    return {"loss": loss, "whole": all_batches, "batch": batch, "simple": layers.auc(scores, label)[0]}


def matrices() -> dict[str, Any]:
    """Parts of matrices, products of all kinds, running sums, remainders; images whose pixels and channels mix."""
    x = fluid.data("x", [6, 3])
    h = layers.fc(x, 12)
    f = ops()
    square, causal = layers.reshape(h, [6, 4, 3]), layers.tril(layers.matmul(h, h, transpose_y=True))
    image = layers.lrn(layers.pixel_shuffle(layers.reshape(h, [3, 4, 3, 2]), 2))
    turned = f.cross(square, square * square, dim=2)
    summed = layers.cumsum(h, axis=1, exclusive=True, reverse=True) + layers.cumsum(h, axis=0)
    left = layers.elementwise_mod(summed, layers.square(h) + 0.3)
    product = layers.reduce_prod(square, dim=[1, 2]) + f.trace(f.kron(x, causal))
    loss = layers.mean(layers.square(left)) + layers.mean(image) + layers.mean(turned) + layers.mean(layers.tanh(product))
    fluid.optimizer.SGD(0.01).minimize(loss)
    return {"loss": loss, "left": left, "product": product, "image": image}


MANY_OPS = {"metrics": metrics, "images": images, "areas": areas, "matrices": matrices}


@each("name", MANY_OPS)
def test_further_ops_have_the_bits_of_the_executor(name: str, tmp_path: Path) -> None:
    def values(number: int, shape: tuple[int, ...]) -> dict[str, Any]:
        rng = np.random.default_rng(number)
        x = rng.standard_normal(shape).astype("float32")
        x[0, 0] *= np.inf if number == 3 and name == "metrics" else 1.0
        return {"x": x, "label": rng.integers(0, 4, (6, 1))}

    assert_equal_steps(MANY_OPS[name], values, 5, tmp_path)


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    **{
        name: lambda name=name: getattr(fluid.optimizer, name)(0.05)
        for name in (
            "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "DecayedAdagrad", "Ftrl", "Lamb", "Lion", "NAdam", "RAdam",
            "RMSProp", "SGD",
        )
    },
    "Momentum": lambda: fluid.optimizer.Momentum(0.05, 0.9),
    "LarsMomentum": lambda: fluid.optimizer.LarsMomentum(0.05, 0.9),
}  # fmt: skip


@each("name", OPTIMIZERS)
def test_optimizers_of_tables_have_the_bits_of_the_executor(name: str, tmp_path: Path) -> None:
    """By sparse gradients of a table, and dense ones of other parameters."""

    def build() -> dict[str, Any]:
        h = fluid.embedding(fluid.data("x", [6, 4], "int64"), [11, 8], is_sparse=True)
        loss = layers.mean(layers.square(layers.fc(layers.reduce_mean(h, dim=1), 3)))
        OPTIMIZERS[name]().minimize(loss)
        return {"loss": loss}

    assert_equal_steps(build, lambda number, shape: {"x": np.random.default_rng(number).integers(0, 11, shape)}, 3, tmp_path)


def test_predictions_out_of_range_are_codes(tmp_path: Path) -> None:
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, label = fluid.data("x", [6, 2]), fluid.data("label", [6, 1], "int64")
        area = layers.auc(x, label)[0]
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    library = Library(fluid.compile_program(main, fetches={"area": area}, scope=scope, output=tmp_path / "net"))
    feed = {"x": np.full([6, 2], 0.5, "float32"), "label": np.ones([6, 1], "int64")}
    assert library.call("step", feed)[0] == 0
    for wrong in (1.5, -0.5, np.nan):
        feed["x"][3, 1] = wrong
        code, _ = library.call("step", feed)
        assert library.error(code).startswith("x: a number is outside of [0, 1] (auc, test_libraries.py:")
        with pytest.raises(fluid.errors.ExecutionError, match=r"predictions should be in \[0, 1\]"):
            executor.run(main, feed, [area], scope=scope)


def test_constants_and_sizes_are_computed_now(tmp_path: Path) -> None:
    """Of tables in the program, and of numbers that a range gives."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [4, 6])
        table = layers.assign(np.arange(24, dtype="float32").reshape(4, 6) / 7)
        places = layers.cast(layers.range(0, 6, 1, "int64"), "float32")
        diagonal = layers.diag(layers.assign(np.float32([1, 2, 3, 4, 5, 6])))  # numpy alone computes it
        h = layers.fc(x * table + layers.reshape(places, [1, 6]) + layers.matmul(x, diagonal), 3)
        loss = layers.mean(layers.square(h))
        fluid.optimizer.SGD(0.01).minimize(loss)
    executor, scope = fluid.Executor(), fluid.Scope()
    executor.run(startup, scope=scope)
    library = Library(fluid.compile_program(main, ["x"], {"loss": loss}, scope=scope, output=tmp_path / "net"))
    for number in range(3):
        feed = {"x": np.full([4, 6], number, "float32")}
        (expected,) = executor.run(main, feed, [loss.name], scope=scope)
        code, results = library.call("step", feed)
        assert code == 0 and results["loss"].tobytes() == expected.tobytes()
    assert_equal_states(library, scope)


def test_threads_with_arenas_of_their_own_do_not_meet(tmp_path: Path) -> None:
    network = build("convolutions")
    _, scope = network.started()
    library = Library(made(network, tmp_path, scope))
    batches = network.batches(8)
    expected = [library.step(feed) for feed in batches]
    losses: dict[int, list[Any]] = {}

    def train(number: int) -> None:
        memory = {"state": library.new_state(), "arena": library.new_arena()}
        losses[number] = [library.step(feed, **memory) for feed in batches]

    threads = [threading.Thread(target=train, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(losses[number], expected) for number in range(3))


def test_training_continues_on_either_side(tmp_path: Path) -> None:
    network = build("words")
    executor, scope = network.started()
    library = Library(made(network, tmp_path, scope))
    batches = network.batches(9)
    for feed in batches[:3]:
        library.step(feed)
    there = fluid.Scope()
    fluid.load_compiled_state(library.state.bytes.tobytes(), library.json, scope=there)
    for feed in batches[3:6]:
        executor.run(network.main, feed, [], scope=there)
    path = tmp_path / "after.state"
    fluid.save_compiled_state(path, library.json, scope=there)
    library.state.bytes[:] = np.fromfile(path, np.uint8)
    for feed in batches[6:]:
        library.step(feed)
    for feed in batches:
        executor.run(network.main, feed, [], scope=scope)
    assert_equal_states(library, scope)


WRONG = {"too great": ("label", 3), "negative": ("label", -2), "a word": ("x", 11), "a negative word": ("x", -1)}


@each("name", WRONG)
def test_ids_out_of_range_are_codes(name: str, tmp_path: Path) -> None:
    network = build("words")
    _, scope = network.started()
    library = Library(made(network, tmp_path, scope))
    (feed,) = network.batches(1)
    library.step(feed)
    before = library.state.bytes.tobytes()
    key, number = WRONG[name]
    wrong = {**feed, key: feed[key].copy()}
    wrong[key][2, 0] = number
    code, results = library.call("step", wrong)
    assert code > 0 and library.state.bytes.tobytes() == before and (results["loss"] == 7).all()
    assert library.error(code).startswith(f"{key}: an id is outside of [0, {3 if key == 'label' else 11}) (")
    assert "networks.py:" in library.error(code)
    library.step(feed)


def test_ignored_labels_and_nan_pass(tmp_path: Path) -> None:
    network = build("perceptron")
    executor, scope = network.started()
    library = Library(made(network, tmp_path, scope))
    (feed,) = network.batches(1)
    feed["label"][2:4] = -1
    assert library.step(feed).tobytes() == executor.run(network.main, feed, [network.loss], scope=scope)[0].tobytes()
    feed["x"][0, 0, 0, 0] = np.nan
    assert np.isnan(library.step(feed)).all()


def test_messages_of_codes(tmp_path: Path) -> None:
    network = build("perceptron")
    _, scope = network.started()
    library = Library(made(network, tmp_path, scope))
    assert library.error(0) == "no error"
    assert library.error(99) == library.error(-1) == library.error(2**31 - 1) == "an unknown code"


def test_a_fetch_may_be_null(tmp_path: Path) -> None:
    import ctypes

    network = build("perceptron")
    _, scope = network.started()
    library = Library(made(network, tmp_path, scope))
    (feed,) = network.batches(1)
    feeds = (ctypes.c_void_p * 2)(feed["x"].ctypes.data, feed["label"].ctypes.data)
    assert library.function("step")(library.state.address, library.arena.address, feeds, (ctypes.c_void_p * 1)(None)) == 0


def test_rows_of_predictions(tmp_path: Path) -> None:
    """There is a function for each number of rows; their arenas are one."""
    network = build("convolutions")
    executor, scope = network.started()
    library = Library(made(network, tmp_path, scope, batch=[6, 1, 3]))
    assert list(library.description["functions"]) == ["step", "predict_6", "predict_1", "predict_3"]
    (feed,) = network.batches(1)
    test = network.main.clone(for_test=True)
    for rows in (1, 6, 3, 1):
        some = {key: array[:rows] for key, array in feed.items()}
        (expected,) = executor.run(test, some, [network.prediction], scope=scope)
        code, results = library.call(f"predict_{rows}", some)
        assert code == 0 and results["prediction"].tobytes() == expected.tobytes()

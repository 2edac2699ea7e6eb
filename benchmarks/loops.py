"""Loops beside jax's `scan` and `while_loop`: processor time of one thread, all sides in turns.

The number of trips is constant, or values decide. Some loops look up rows by ids, which Fluid checks in each trip.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from fnmatch import fnmatch

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax
import jax.numpy as jnp
import numpy as np
from common import header, milliseconds
from jax import lax

import fluid
from fluid import layers

RANDOM = np.random.default_rng(0)
ROUNDS, BLOCK = 7, 0.15
WORKLOADS = {}
"""Name -> a function that makes a step of Fluid and one of jax."""


def workload(name, *args):
    def add(make):
        WORKLOADS[name.format(*args)] = lambda: make(*args)
        return make

    return add


def normal(*shape, scale=1.0):
    return (RANDOM.standard_normal(shape) * scale).astype("float32")


# -------------------------------------------------------------------------------------------------------------- sides
def of_fluid(build, feed, is_trained=False):
    """A step of the program that `build` makes of its feeds; trained ones return the gradients of the parameters, too."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard():
        main = fluid.default_main_program()
        results = [build(*(fluid.data(name, list(value.shape), str(value.dtype)) for name, value in feed.items()))]
        if is_trained:
            results = [layers.mean(layers.square(results[0]))]
            results += fluid.gradients(results, main.all_parameters())
        executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)
    return lambda: executor.run(main, feed, results, scope=scope)


def of_jax(compute, inputs, weights, is_trained=False):
    """A step of a function of weights and inputs."""
    if not is_trained:
        compiled = jax.jit(compute)
        return lambda: [np.asarray(compiled(weights, *inputs))]
    compiled = jax.jit(jax.value_and_grad(lambda weights, *inputs: jnp.mean(compute(weights, *inputs) ** 2)))

    def step():
        loss, gradients = compiled(weights, *inputs)
        return [np.asarray(loss), *map(np.asarray, gradients)]

    return step


def parameter(value):
    initializer = fluid.initializer.NumpyArrayInitializer(value)
    return layers.create_parameter(list(value.shape), "float32", attr=fluid.ParamAttr(initializer=initializer))


def repeat(trips, body, states):
    """The states after so many trips of a `while_loop`."""
    index, end = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", trips)
    return layers.while_loop(
        lambda index, *states: layers.less_than(index, end),
        lambda index, *states: [index + 1, *body(index, *states)],
        [index, *states],
    )[1:]


# -------------------------------------------------------------------------------------------------------------- loops
def differential_equation(rows, is_trained):
    """Fifty steps of Runge and Kutta for a small perceptron."""
    x, first, second, step = normal(rows, 2), normal(2, 64, scale=0.5), normal(64, 2, scale=0.5), 0.05

    def advance(y, slope):
        k1 = slope(y)
        k2 = slope(y + step / 2 * k1)
        k3 = slope(y + step / 2 * k2)
        return y + step / 6 * (k1 + 2.0 * k2 + 2.0 * k3 + slope(y + step * k3))

    def build(x):
        a, b = parameter(first), parameter(second)

        def slope(y):
            return layers.matmul(layers.tanh(layers.matmul(y, a)), b)

        return repeat(50, lambda index, y: [advance(y, slope)], [x])[0]

    def compute(weights, x):
        a, b = weights
        return lax.scan(lambda y, _: (advance(y, lambda y: jnp.tanh(y @ a) @ b), None), x, None, length=50)[0]

    return of_fluid(build, {"x": x}, is_trained), of_jax(compute, [x], [first, second], is_trained)


def recurrence(rows, is_trained):
    """An LSTM over 40 words that gathers the words of each step by its number."""
    words, weight, bias = normal(40, rows, 64), normal(128, 256, scale=0.1), normal(256, scale=0.1)

    def build(words):
        w, b = parameter(weight), parameter(bias)

        def step(index, h, c):
            word = layers.reshape(layers.gather(words, index), [rows, 64])
            i, f, o, g = layers.split(layers.matmul(layers.concat([word, h], 1), w) + b, 4, 1)
            c = layers.sigmoid(f) * c + layers.sigmoid(i) * layers.tanh(g)
            return [layers.sigmoid(o) * layers.tanh(c), c]

        zeros = layers.fill_constant([rows, 64], "float32", 0.0)
        return repeat(40, step, [zeros, zeros])[0]

    def compute(weights, words):
        w, b = weights

        def step(states, word):
            h, c = states
            i, f, o, g = jnp.split(jnp.concatenate([word, h], 1) @ w + b, 4, 1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        zeros = jnp.zeros((rows, 64))
        return lax.scan(step, (zeros, zeros), words)[0][0]

    return of_fluid(build, {"words": words}, is_trained), of_jax(compute, [words], [weight, bias], is_trained)


for size, mode in ((size, mode) for size in (1, 32) for mode in (False, True)):
    suffix = ", trained" if mode else ""
    workload(f"differential equation, batch {{}}{suffix}", size, mode)(differential_equation)
    workload(f"LSTM by gather, batch {{}}{suffix}", size, mode)(recurrence)


@workload("greedy decoding, 30 words, batch {}", 1)
@workload("greedy decoding, 30 words, batch {}", 32)
def decoding(rows):
    """Each word is the likeliest one after the word before it."""
    table, of_word, of_state, to_words = normal(1000, 64), normal(64, 64, scale=0.2), normal(64, 64, scale=0.2), normal(64, 1000)
    state = normal(rows, 64)

    def build(state):
        e, w, u, o = map(parameter, (table, of_word, of_state, to_words))

        def step(index, h, word):
            h = layers.tanh(layers.matmul(layers.gather(e, word), w) + layers.matmul(h, u))
            return [h, layers.argmax(layers.matmul(h, o), 1)]

        return repeat(30, step, [state, layers.fill_constant([rows], "int64", 1)])[0]

    def compute(weights, state):
        e, w, u, o = weights

        def step(states, _):
            h = jnp.tanh(e[states[1]] @ w + states[0] @ u)
            return (h, jnp.argmax(h @ o, 1)), None

        return lax.scan(step, (state, jnp.ones(rows, int)), None, length=30)[0][0]

    weights = [jnp.asarray(value) for value in (table, of_word, of_state, to_words)]
    return of_fluid(build, {"state": state}), of_jax(compute, [state], weights)


@workload("Newton's method on {} numbers", 7)
@workload("Newton's method on {} numbers", 1025)
def roots(count):
    """Square roots, until all are near."""
    numbers = np.abs(normal(count)) + np.float32(0.5)

    def build(numbers):
        near = layers.fill_constant([1], "float32", 1e-4)
        return layers.while_loop(
            lambda y: layers.greater_than(layers.reduce_max(layers.abs(y * y - numbers), keep_dim=True), near),
            lambda y: [0.5 * (y + numbers / y)],
            [layers.fill_constant([count], "float32", 1.0)],
        )[0]

    def compute(weights, numbers):
        return lax.while_loop(
            lambda y: jnp.max(jnp.abs(y * y - numbers)) > 1e-4, lambda y: 0.5 * (y + numbers / y), jnp.ones_like(numbers)
        )

    return of_fluid(build, {"numbers": numbers}), of_jax(compute, [numbers], [])


@workload("descent with a line search, {} numbers", 10)
@workload("descent with a line search, {} numbers", 300)
def line_search(count):
    """Thirty steps down a quadratic function; a loop in each one halves the step until it is good."""
    a = normal(count, count, scale=0.2)
    a, b = (a @ a.T + np.eye(count)).astype("float32"), normal(count, 1)

    def build(a, b):
        def loss(x):
            return layers.reduce_sum(x * layers.matmul(a, x), keep_dim=True) * 0.5 - layers.reduce_sum(x * b, keep_dim=True)

        def descend(index, x):
            slope, before = layers.matmul(a, x) - b, layers.reshape(loss(x), [1])
            least = 0.3 * layers.reduce_sum(slope * slope)

            def goes_on(step):
                is_bad = layers.greater_than(layers.reshape(loss(x - step * slope), [1]), before - step * least)
                return layers.logical_and(is_bad, layers.greater_than(step, layers.fill_constant([1], "float32", 1e-3)))

            step = layers.while_loop(goes_on, lambda step: [step * 0.5], [layers.fill_constant([1], "float32", 1.0)])[0]
            return [x - step * slope]

        return repeat(30, descend, [layers.fill_constant([count, 1], "float32", 0.0)])[0]

    def compute(weights, a, b):
        def loss(x):
            return 0.5 * jnp.sum(x * (a @ x)) - jnp.sum(x * b)

        def descend(index, x):
            slope, before = a @ x - b, loss(x)
            least = 0.3 * jnp.sum(slope * slope)
            step = lax.while_loop(
                lambda step: (loss(x - step * slope) > before - step * least) & (step > 1e-3),
                lambda step: step * 0.5,
                jnp.float32(1.0),
            )
            return x - step * slope

        return lax.fori_loop(0, 30, descend, jnp.zeros((count, 1)))

    return of_fluid(build, {"a": a, "b": b}), of_jax(compute, [a, b], [])


@workload("words, then sentences, batch {}", 1)
@workload("words, then sentences, batch {}", 16)
def sentences(rows):
    """A recurrence over five sentences, with one over eight words in each trip."""
    words, of_word, of_sentence = normal(40, rows, 32), normal(32, 32, scale=0.2), normal(32, 32, scale=0.2)

    def build(words):
        (w, v), zeros = map(parameter, (of_word, of_sentence)), layers.fill_constant([rows, 32], "float32", 0.0)

        def sentence(number, text):
            def word(index, h):
                return [layers.tanh(layers.matmul(h, w) + layers.reshape(layers.gather(words, number * 8 + index), [rows, 32]))]

            return [layers.tanh(layers.matmul(text, v) + repeat(8, word, [zeros])[0])]

        return repeat(5, sentence, [zeros])[0]

    def compute(weights, words):
        w, v = weights

        def sentence(text, words):
            h = lax.scan(lambda h, word: (jnp.tanh(h @ w + word), None), jnp.zeros((rows, 32)), words)[0]
            return jnp.tanh(text @ v + h), None

        return lax.scan(sentence, jnp.zeros((rows, 32)), words.reshape(5, 8, rows, 32))[0]

    return of_fluid(build, {"words": words}), of_jax(compute, [words], [of_word, of_sentence])


@workload("Viterbi by arrays, 50 words, {} tags", 5)
@workload("Viterbi by arrays, 50 words, {} tags", 40)
def viterbi(count):
    """One loop writes the best tags before each tag to an array, another one reads it from the end."""
    emitted, moves, steps = normal(50, count), normal(count, count), 50

    def build(emitted, moves):
        scores, end = layers.gather(emitted, layers.fill_constant([1], "int64", 0)), layers.fill_constant([1], "int64", steps - 1)
        before, path = layers.create_array("int64"), layers.create_array("int64")

        def word(index, scores):
            total = layers.transpose(scores, [1, 0]) + moves
            layers.array_write(layers.argmax(total, 0), index, before)
            return [layers.reshape(layers.reduce_max(total, 0), [1, count]) + layers.gather(emitted, index + 1)]

        def back(index, tag):
            tag = layers.gather(layers.array_read(before, end - 1 - index), tag)
            layers.array_write(tag, end - 1 - index, path)
            return [tag]

        (scores,) = repeat(steps - 1, word, [scores])
        repeat(steps - 1, back, [layers.reshape(layers.argmax(scores, 1), [1])])
        return layers.cast(layers.tensor_array_to_tensor(path, 0)[0], "int32")

    def compute(weights, emitted, moves):
        def word(scores, row):
            total = scores[:, None] + moves
            return jnp.max(total, 0) + row, jnp.argmax(total, 0)

        scores, before = lax.scan(word, emitted[0], emitted[1:])
        return lax.scan(lambda tag, row: (row[tag], row[tag]), jnp.argmax(scores), before, reverse=True)[1]

    return of_fluid(build, {"emitted": emitted, "moves": moves}), of_jax(compute, [emitted, moves], [])


@workload("recurrence that writes an array, batch {}, trained", 1)
@workload("recurrence that writes an array, batch {}, trained", 32)
def outputs_in_array(rows):
    words, weight = normal(20, rows, 16), normal(16, 16, scale=0.3)

    def build(words):
        w, outputs = parameter(weight), layers.create_array("float32")
        zeros = layers.fill_constant([rows, 16], "float32", 0.0)
        zeros.stop_gradient = False

        def word(index, h):
            h = layers.tanh(layers.matmul(h, w) + layers.reshape(layers.gather(words, index), [rows, 16]))
            layers.array_write(h, index, outputs)
            return [h]

        repeat(20, word, [zeros])
        return layers.tensor_array_to_tensor(outputs, 0)[0]

    def compute(weights, words):
        def word(h, row):
            h = jnp.tanh(h @ weights[0] + row)
            return h, h

        return lax.scan(word, jnp.zeros((rows, 16)), words)[1].reshape(20 * rows, 16)

    return of_fluid(build, {"words": words}, True), of_jax(compute, [words], [weight], True)


@workload("parser with a stack, {} words", 20)
def parser(count):
    """A move pushes a word, or joins the upper two entries of the stack."""
    order = np.array([0, 0, 1, 0, 0, 1, 1] * count)[: 2 * count - 1]
    depths = np.cumsum(1 - 2 * order)
    assert depths.min() > 0
    words, of_word, left, right = normal(len(order), 1, 32), *(normal(32, 32, scale=0.3) for _ in range(3))

    def build(words, order):
        w, u, v = map(parameter, (of_word, left, right))
        depth, one = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 1)
        stack = layers.array_write(layers.fill_constant([1, 32], "float32", 0.0), depth)

        def move(index):
            def push(state, place):
                layers.array_write(state, place, stack)
                layers.assign(place + 1, depth)

            def shift():
                push(layers.matmul(layers.squeeze(layers.gather(words, index), [0]), w), depth)

            def join():
                states = [
                    layers.matmul(layers.array_read(stack, depth - 2), u),
                    layers.matmul(layers.array_read(stack, depth - 1), v),
                ]
                push(layers.tanh(states[0] + states[1]), depth - 2)

            layers.cond(layers.equal(layers.gather(order, index), one), join, shift)

        index, end = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 2 * count - 1)
        goes_on = layers.less_than(index, end)
        loop = layers.While(goes_on)
        with loop.block():
            move(index)
            layers.increment(index, 1)
            layers.less_than(index, end, cond=goes_on)
        return layers.array_read(stack, layers.fill_constant([1], "int64", 0))

    def compute(weights, words, order):
        w, u, v = weights

        def move(states, step):
            (stack, depth), (word, kind) = states, step
            state = lax.cond(kind == 1, lambda: jnp.tanh(stack[depth - 2] @ u + stack[depth - 1] @ v), lambda: word @ w)
            place = jnp.where(kind == 1, depth - 2, depth)
            return (stack.at[place].set(state), place + 1), None

        return lax.scan(move, (jnp.zeros((count + 1, 1, 32)), 0), (words, order))[0][0][0]

    weights = [of_word, left, right]
    return of_fluid(build, {"words": words, "order": order}), of_jax(compute, [words, order], weights)


@workload("decoder without caches, {} words, batch {}", 24, 1)
@workload("decoder without caches, {} words, batch {}", 24, 8)
def prefix(steps, rows):
    """A layer of attention computes all words so far again in each trip."""
    table, query, key, value = normal(300, 32), *(normal(32, 32, scale=0.3) for _ in range(3))
    to_words, first = normal(32, 300, scale=0.4), RANDOM.integers(0, 300, (rows, 1))

    def build(first):
        e, q, k, v, o = map(parameter, (table, query, key, value, to_words))

        def step(index, words):
            x = layers.gather_nd(e, layers.unsqueeze(words, [2]))
            weights = layers.softmax(layers.matmul(layers.matmul(x, q), layers.matmul(x, k), transpose_y=True, alpha=0.2))
            last = layers.slice(layers.matmul(weights, layers.matmul(x, v)) + x, [1], [-1], [1000])
            best = layers.argmax(layers.matmul(layers.reshape(last, [rows, 32]), o), 1)
            return [layers.concat([words, layers.reshape(best, [rows, 1])], 1)]

        return layers.cast(repeat(steps, step, [first])[0], "int32")

    def compute(weights, first):
        e, q, k, v, o = weights
        words = jnp.zeros((rows, steps + 1), int).at[:, :1].set(first)

        def step(words, index):
            x = e[words]
            scores = jnp.where(jnp.arange(steps + 1) <= index, (x @ q) @ (x @ k).transpose(0, 2, 1) * 0.2, -jnp.inf)
            last = (jax.nn.softmax(scores) @ (x @ v) + x)[:, index]
            return words.at[:, index + 1].set(jnp.argmax(last @ o, 1)), None

        return lax.scan(step, words, jnp.arange(steps))[0]

    weights = [jnp.asarray(one) for one in (table, query, key, value, to_words)]
    return of_fluid(build, {"first": first}), of_jax(compute, [first], weights)


@workload("branches on {} rows, trained", 8)
def row_branches(rows):
    """Each row takes one of two layers in each of fifteen trips."""
    x, of_low, of_high = normal(rows, 16), normal(16, 16, scale=0.3), normal(16, 16, scale=0.3)

    def build(x):
        a, b = map(parameter, (of_low, of_high))

        def step(index, h):
            means = layers.reduce_mean(h, 1, keep_dim=True)
            branch = layers.IfElse(layers.less_than(means, layers.zeros_like(means)))
            with branch.true_block():
                branch.output(layers.tanh(layers.matmul(branch.input(h), a)))
            with branch.false_block():
                branch.output(layers.relu(layers.matmul(branch.input(h), b)))
            return branch()

        return repeat(15, step, [x])[0]

    def compute(weights, x):
        a, b = weights

        def step(h, _):
            return jnp.where(h.mean(1, keepdims=True) < 0, jnp.tanh(h @ a), jax.nn.relu(h @ b)), None

        return lax.scan(step, x, None, length=15)[0]

    return of_fluid(build, {"x": x}, True), of_jax(compute, [x], [of_low, of_high], True)


@workload("recurrence with dropout, batch {}, trained", 16)
def dropout(rows):
    """Both sides draw other numbers, so only the shapes of gradients are compared."""
    words, weight = normal(20, rows, 32), normal(32, 32, scale=0.3)

    def build(words):
        w = parameter(weight)

        def word(index, h):
            h = layers.dropout(h, 0.3, dropout_implementation="upscale_in_train")
            return [layers.tanh(layers.matmul(h, w) + layers.reshape(layers.gather(words, index), [rows, 32]))]

        return repeat(20, word, [layers.fill_constant([rows, 32], "float32", 0.0)])[0]

    def compute(weights, words):
        def word(h, step):
            row, key = step
            h = jnp.where(jax.random.bernoulli(key, 0.7, h.shape), h / 0.7, 0.0)
            return jnp.tanh(h @ weights[0] + row), None

        keys = jax.random.split(jax.random.PRNGKey(0), 20)
        return lax.scan(word, jnp.zeros((rows, 32)), (words, keys))[0]

    ours, theirs = of_fluid(build, {"words": words}, True), of_jax(compute, [words], [weight], True)
    return (lambda: [one * 0.0 for one in ours()]), (lambda: [one * 0.0 for one in theirs()])


@workload("recurrence over all rows of a feed, batch {}, trained", 1)
@workload("recurrence over all rows of a feed, batch {}, trained", 32)
def extent(rows):
    """A recurrence whose number of trips is read by `shape`, and whose block lists the factors of its units."""
    words, weight, factors = normal(30, rows, 16), normal(16, 16, scale=0.2), np.linspace(0.5, 1.0, 16).astype("float32")

    def build(words):
        index, end, w = layers.fill_constant([1], "int32", 0), layers.shape(words)[0], parameter(weight)

        def step(index, h):
            word = layers.reshape(layers.gather(words, index), [rows, 16])
            return [index + 1, layers.tanh(layers.matmul(h, w)) * layers.assign(factors) + word]

        zeros = layers.fill_constant([rows, 16], "float32", 0.0)
        return layers.while_loop(lambda index, h: layers.less_than(index, end), step, [index, zeros])[1]

    def compute(weights, words):
        (w,) = weights
        return lax.scan(lambda h, word: (jnp.tanh(h @ w) * factors + word, None), jnp.zeros((rows, 16)), words)[0]

    return of_fluid(build, {"words": words}, is_trained=True), of_jax(compute, [words], [weight], is_trained=True)


@workload("Kalman filter, {} steps", 100)
def kalman_filter(steps):
    """Means of four states, of which two are observed; each step solves two equations."""
    move, see = (np.eye(4) + 0.1 * np.eye(4, k=2)).astype("float32"), np.eye(2, 4, dtype="float32")
    noise, error = 0.01 * np.eye(4, dtype="float32"), 0.1 * np.eye(2, dtype="float32")
    observed = normal(steps, 2, 1)

    def build(observed):
        f, h, q, r = map(parameter, (move, see, noise, error))
        first = layers.fill_constant([4, 1], "float32", 0.0), layers.assign(np.eye(4, dtype="float32"))
        rnn = layers.StaticRNN()
        with rnn.step():
            seen = rnn.step_input(observed)
            mean, variance = (rnn.memory(init=value) for value in first)
            ahead = layers.matmul(f, mean)
            spread = layers.matmul(layers.matmul(f, variance), f, transpose_y=True) + q
            known = layers.matmul(h, spread)
            gain = fluid.extend.ops().solve(layers.matmul(known, h, transpose_y=True) + r, known)
            after = ahead + layers.matmul(gain, seen - layers.matmul(h, ahead), transpose_x=True)
            rnn.update_memory(mean, after)
            rnn.update_memory(variance, spread - layers.matmul(gain, known, transpose_x=True))
            rnn.step_output(after)
        return rnn()

    def compute(weights, observed):
        def step(states, seen):
            mean, variance = states
            ahead, spread = move @ mean, move @ variance @ move.T + noise
            known = see @ spread
            gain = jnp.linalg.solve(known @ see.T + error, known)
            after = ahead + gain.T @ (seen - see @ ahead)
            return (after, spread - gain.T @ known), after

        return lax.scan(step, (jnp.zeros((4, 1)), jnp.eye(4)), observed)[1]

    return of_fluid(build, {"observed": observed}), of_jax(compute, [observed], [])


# --------------------------------------------------------------------------------------------------------------- race
def processor_seconds(run, times):
    start = time.process_time()
    for _ in range(times):
        run()
    return (time.process_time() - start) / times


def race(ours, theirs):
    """Median processor seconds of a step of both sides, in turns of blocks."""
    times = {}
    for run in (ours, theirs):
        run()
        times[run] = max(1, int(BLOCK / max(processor_seconds(run, 3), 1e-6))), []
    for _ in range(ROUNDS):
        for run, (count, seconds) in times.items():
            seconds.append(processor_seconds(run, count))
    return [statistics.median(seconds) for _, seconds in times.values()]


def main():
    header("Loops beside jax", torch=False)
    fluid.set_num_threads(1)
    print(f"jax {jax.__version__}\n\n| loop | Fluid | jax | Fluid / jax |\n|---|---|---|---|")
    patterns = sys.argv[1:] or ["*"]
    for name, make in WORKLOADS.items():
        if any(fnmatch(name, pattern) for pattern in patterns):
            ours, theirs = make()
            for mine, expected in zip(ours(), theirs(), strict=True):
                np.testing.assert_allclose(mine, expected, rtol=1e-2, atol=2e-3 * np.abs(expected).max(), err_msg=name)
            fluid_seconds, jax_seconds = race(ours, theirs)
            print(f"| {name} | {milliseconds(fluid_seconds)} | {milliseconds(jax_seconds)} | {fluid_seconds / jax_seconds:.2f} |")


if __name__ == "__main__":
    main()

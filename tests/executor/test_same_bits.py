"""The same bits for any number of threads: programs on numpy alone and with native code, with blocks and sequences; eager mode.

With threads of its own OpenBLAS cuts the sums of products otherwise, from some 450 terms in float32 or 190 in float64, and a
million multiplications, on. Sizes here are beyond that.
"""

from __future__ import annotations

import ast
import gc
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import each

import fluid
from fluid import dygraph, layers
from fluid.executor.kernels.table import FAMILIES, MULTIPLYING
from fluid.executor.runtime import products, threads

COUNTS = (1, 2, 3)
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Native code that other tests have left does not hold BLAS to one thread; afterwards all is as before."""
    before, of_blas, holds = fluid.get_num_threads(), threads.blas_threads(), threads._THREADS._holds
    gc.collect()
    threads._THREADS._holds = 0
    yield
    threads._THREADS._holds += holds
    fluid.set_num_threads(before)
    if of_blas is not None:
        threads._set_blas(of_blas)


def values(*shape: int, dtype: str = "float32") -> Any:
    return RNG.standard_normal(shape).astype(dtype)


Feeds = dict[str, Any]
Build = Callable[[], tuple[Any, Feeds]]
"""Builds a loss, and gives what it is fed."""


def perceptron() -> tuple[Any, Feeds]:
    x = fluid.data("x", [None, 777])
    return layers.mean(layers.square(layers.fc(layers.fc(x, 301, act="tanh"), 129))), {"x": values(129, 777)}


def large_perceptron() -> tuple[Any, Feeds]:
    """Its products are computed in parts."""
    x = fluid.data("x", [None, 513])
    return layers.mean(layers.square(layers.fc(layers.fc(x, 800, act="tanh"), 401))), {"x": values(150, 513)}


def doubles() -> tuple[Any, Feeds]:
    x = fluid.data("x", [None, 257], "float64")
    return layers.mean(layers.square(layers.fc(x, 129, act="tanh"))), {"x": values(129, 257, dtype="float64")}


def images() -> tuple[Any, Feeds]:
    x = fluid.data("x", [None, 3, 33, 33])
    hidden = layers.conv2d(layers.conv2d(x, 20, 5, act="relu"), 33, 5, act="relu")
    return layers.mean(layers.square(hidden)), {"x": values(5, 3, 33, 33)}


def static_rnn() -> tuple[Any, Feeds]:
    x = fluid.data("x", [3, 40, 513])
    start = layers.fill_constant([40, 777], "float32", 0.0)
    rnn = layers.StaticRNN()
    with rnn.step():
        word, state = rnn.step_input(x), rnn.memory(init=start)
        new = layers.fc([word, state], 777, act="tanh")
        rnn.update_memory(state, new)
        rnn.step_output(new)
    return layers.mean(layers.square(rnn())), {"x": values(3, 40, 513)}


def loop() -> tuple[Any, Feeds]:
    x = fluid.data("x", [40, 513])
    w = layers.create_parameter([513, 513], "float32")
    i, n = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)
    _, out = layers.while_loop(
        lambda i, x: layers.less_than(i, n), lambda i, x: [i + 1, layers.tanh(layers.matmul(x, w))], [i, x]
    )
    return layers.mean(layers.square(out)), {"x": values(40, 513)}


def branch() -> tuple[Any, Feeds]:
    x = fluid.data("x", [40, 777])
    w = layers.create_parameter([777, 257], "float32")
    positive = layers.less_than(layers.fill_constant([1], "float32", -1e9), layers.reduce_sum(x))
    out = layers.cond(positive, lambda: layers.matmul(x, w), lambda: layers.matmul(layers.square(x), w))
    return layers.mean(layers.square(out)), {"x": values(40, 777)}


LENGTHS = [[40, 1, 29, 7, 52]]


def sequences() -> tuple[Any, Feeds]:
    x = layers.data("x", [777], lod_level=1)
    gates = layers.fc(x, 4 * 129)
    hidden, _ = layers.dynamic_lstm(gates, 4 * 129, use_peepholes=False)
    pooled = layers.sequence_pool(layers.sequence_conv(hidden, 65, 3), "max")
    return layers.mean(layers.square(layers.fc(pooled, 33))), {"x": (values(129, 777), LENGTHS)}


def steps_of_sequences() -> tuple[Any, Feeds]:
    x = layers.data("x", [513], lod_level=1)
    rnn = layers.DynamicRNN()
    with rnn.block():
        word, state = rnn.step_input(x), rnn.memory(shape=[777], value=0.0)
        new = layers.fc([word, state], 777, act="tanh")
        rnn.update_memory(state, new)
        rnn.output(new)
    return layers.mean(layers.square(layers.sequence_last_step(rnn()))), {"x": (values(80, 513), [[3, 1] * 20])}


def algebra() -> tuple[Any, Feeds]:
    x = fluid.data("x", [150, 150], "float64")
    ops = fluid.extend.ops()
    gram = layers.matmul(x, x, transpose_y=True) + layers.assign(200.0 * np.eye(150))
    parts = [ops.inverse(gram), ops.cholesky(gram), ops.matrix_power(gram, n=3), ops.svd(x, full_matrices=False)[1]]
    w = layers.create_parameter([150, 150], "float64")
    sums = [layers.reduce_sum(part) for part in [*parts, layers.matmul(x, w)]]
    return layers.sums([layers.reshape(item, [1]) for item in sums]), {"x": values(150, 150, dtype="float64")}


BUILDS: dict[str, Build] = {
    build.__name__: build
    for build in (
        perceptron, large_perceptron, doubles, images, static_rnn, loop, branch, sequences, steps_of_sequences, algebra,
    )
}  # fmt: skip


def trained(build: Build, steps: int = 2) -> list[bytes]:
    """The bits of the loss without training, of those in some steps of training, and of all that persists."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss, feeds = build()
        alone = main.clone(for_test=True)
        fluid.optimizer.Lamb(0.01).minimize(loss)  # which needs norms of all weights
    scope = fluid.Scope()
    fluid.Executor().run(startup, scope=scope)
    gc.collect()  # its native code
    losses = [fluid.Executor().run(alone, feeds, [loss], scope=scope)[0].tobytes()]
    executor = fluid.Executor()
    losses += [executor.run(main, feeds, [loss], scope=scope)[0].tobytes() for _ in range(steps)]
    return losses + [np.asarray(scope.array(name)).tobytes() for name in sorted(scope.local_var_names())]


def of_counts(run: Callable[[], list[bytes]]) -> list[list[bytes]]:
    """The results with each number of threads."""
    global RNG
    results = []
    for count in COUNTS:
        RNG = np.random.default_rng(0)
        gc.collect()  # native code of other programs, which holds BLAS to one thread
        fluid.set_num_threads(count)
        results.append(run())
    return results


@each("native", ["0", "1"])
@each("name", BUILDS)
def test_programs_compute_the_same_bits_with_any_number_of_threads(
    name: str, native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUID_NATIVE", native)
    one, two, three = of_counts(lambda: trained(BUILDS[name]))
    assert one == two and one == three


class Perceptron(dygraph.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = dygraph.Linear(777, 301, act="tanh")
        self.out = dygraph.Linear(301, 129)

    def forward(self, x: Any) -> Any:
        return self.out(self.hidden(x))


class Convolutions(dygraph.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first = dygraph.Conv2D("first", 20, 5, act="relu")
        self.second = dygraph.Conv2D("second", 33, 5, act="relu")

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x))


class Recurrent(dygraph.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = dygraph.LSTM(257, 129)

    def forward(self, x: Any) -> Any:
        return self.lstm(x)[0]


class Algebra(dygraph.Layer):
    def forward(self, x: Any) -> Any:
        return fluid.eager.dispatch.namespace.inverse(x.matmul(x.transpose([1, 0])) + 200.0 * np.eye(x.shape[0]))


NETS = {
    "perceptron": (Perceptron, (129, 777), "float32"),
    "images": (Convolutions, (5, 3, 33, 33), "float32"),
    "recurrence": (Recurrent, (20, 9, 257), "float32"),
    "algebra": (Algebra, (150, 150), "float64"),
}


def trained_eagerly(name: str, more: int, steps: int = 2) -> list[bytes]:
    kind, (rows, *sizes), dtype = NETS[name]
    fluid.seed(3)
    bits = []
    with dygraph.guard():
        net = kind()
        updates: Any = None
        for _ in range(steps):
            x = dygraph.Tensor(values(rows + more, *sizes, dtype=dtype), stop_gradient=False)
            loss = layers.mean(layers.square(net(x)))
            loss.backward()
            bits += [loss.numpy().tobytes(), x.gradient().tobytes()]
            if net.parameters():
                updates = updates or fluid.optimizer.Lamb(0.01, parameter_list=net.parameters())
                updates.minimize(loss)
                net.clear_gradients()
        return bits + [parameter.numpy().tobytes() for parameter in net.parameters()]


@each("native", ["0", "1"])
@each("name", NETS)
def test_eager_mode_computes_the_same_bits_with_any_number_of_threads(
    name: str, native: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLUID_NATIVE", native)
    before = dygraph.get_num_threads()

    def run() -> list[bytes]:
        dygraph.set_num_threads(fluid.get_num_threads())
        return trained_eagerly(name, int(native))  # rows of its own, as an op is compiled once for each shape

    try:
        one, two, three = of_counts(run)
    finally:
        dygraph.set_num_threads(before)
    assert one == two and one == three


# ------------------------------------------------------------------------------------------------------- products in parts
SHAPES = {
    "columns": ((64, 784), (784, 512)),
    "rows": ((2000, 100), (100, 100)),
    "a stack": ((8, 300, 200), (200, 300)),
    "a factor for all": ((1, 500, 300), (4, 300, 200)),
    "stacks of stacks": ((3, 2, 300, 200), (3, 2, 200, 300)),
    "small": ((20, 30), (30, 40)),
}


@each("dtype", ["float32", "float64", "complex64"])
@each("turned", [False, True])
@each("case", SHAPES)
def test_products_in_parts(case: str, turned: bool, dtype: str) -> None:
    a, b = (values(*shape).astype(dtype) for shape in SHAPES[case])
    if turned:
        a, b = (np.ascontiguousarray(factor.swapaxes(-1, -2)).swapaxes(-1, -2) for factor in (a, b))
    wide, found = np.result_type(dtype, "float64"), []
    with threads.OnNumpy():
        expected = a.astype(wide) @ b.astype(wide)
    for count in (1, 2, 3, 7):
        fluid.set_num_threads(count)
        with threads.OnNumpy():
            found.append(products.multiply(np, a, b))
    assert len({out.tobytes() for out in found}) == 1
    assert np.abs(found[0] - expected).max() < (1e-9 if dtype == "float64" else 1e-3)
    assert products.is_split(np, a, b, found[0]) == (case != "small")


def test_a_matrix_times_its_transpose_is_symmetric() -> None:
    fluid.set_num_threads(2)
    a = values(700, 801)
    with threads.OnNumpy():
        product = products.multiply(np, a, a.T)
    assert products.is_split(np, a, a.T, product) and np.array_equal(product, product.T)


def test_several_threads_make_calls() -> None:
    fluid.set_num_threads(3)
    barrier = threading.Barrier(3)  # which two would wait for in vain
    makers: set[int] = set()

    def call() -> None:
        barrier.wait(30)
        makers.add(threading.get_ident())

    products._HELPERS.make([partial(call)] * 3)
    assert len(makers) == 3 and threading.get_ident() in makers
    order: list[int] = []
    products._HELPERS.make([partial(products._HELPERS.make, [partial(order.append, 1)])] * 5)  # those inside find nobody free
    assert order == [1] * 5


def test_an_error_of_a_part_is_raised() -> None:
    fluid.set_num_threads(2)
    for _ in range(3):  # the threads go on after it
        with pytest.raises(ZeroDivisionError):
            products._HELPERS.make([partial(int.__floordiv__, 1, 0)] * 4)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no child processes of this kind")
def test_a_child_process_has_threads_of_its_own() -> None:
    fluid.set_num_threads(2)
    a, b = values(512, 512), values(512, 512)
    with threads.OnNumpy():
        expected = products.multiply(np, a, b).tobytes()
    child = os.fork()
    if child == 0:  # pytest must not go on here
        with threads.OnNumpy():
            os._exit(products.multiply(np, a, b).tobytes() != expected)
    assert os.waitpid(child, 0)[1] == 0


def test_kernels_that_multiply_are_known() -> None:
    """Where BLAS computes, it has to have one thread: eager mode sees to it for these families."""
    folder = Path(fluid.executor.kernels.table.__file__).parent
    found = set()
    for family in FAMILIES:
        tree = ast.parse((folder / f"{family}.py").read_text())
        for node in ast.walk(tree):
            is_product = isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.MatMult)
            is_named = isinstance(node, ast.Attribute) and node.attr in (
                "matmul", "dot", "vecdot", "vdot", "inner", "tensordot", "linalg", "outer", "matvec", "vecmat"
            )  # fmt: skip
            is_imported = isinstance(node, ast.ImportFrom) and (
                node.module in ("runtime.products", "matmul") or "sum_of_squares" in [alias.name for alias in node.names]
            )
            if is_product or is_named or is_imported:
                found.add(family)
    assert found == MULTIPLYING

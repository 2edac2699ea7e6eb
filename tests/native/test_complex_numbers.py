"""Complex numbers and Fourier transforms in native code, beside numpy."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
import pytest
from beside_numpy import assert_alike
from checked_plans import checked_plans
from checks import each, fresh_programs
from harness import set_target
from random_targets import OTHER_TARGETS, random_target

import fluid
from fluid import layers
from fluid.executor.planned import plan as planned
from fluid.extend import ops

TOLERANCE = {"float32": 2e-5, "float64": 1e-11}


@pytest.fixture(autouse=True)
def of_few_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Native code is made of programs of one op, too."""
    monkeypatch.setattr(planned, "_FEWEST", 1)


def data(name: str, shape: Sequence[int], dtype: str) -> Any:
    var = fluid.data(name, list(shape), dtype)
    var.stop_gradient = False
    return var


def values(shapes: dict[str, Sequence[int]], dtype: str, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}


def ops_on_numpy(build: Callable[[], Sequence[Any]], feed: dict[str, Any]) -> str:
    """What a plan says that numpy computes."""
    with fresh_programs() as (main, startup):
        fetches = list(build())
        executor = fluid.Executor()
        executor.run(startup)
        text = executor.plan(main, feed, fetches).to_string()
    return text.split("on numpy: ", 1)[1].splitlines()[0]


def check(build: Callable[[], Sequence[Any]], feed: dict[str, Any], dtype: str) -> None:
    """Assert that native code computes all ops, as numpy does."""
    assert ops_on_numpy(build, feed) == "none"
    assert_alike(build, feed, tolerance=TOLERANCE[dtype])


def with_gradients(result: Any, inputs: Sequence[Any]) -> list[Any]:
    """A real or complex result, and the gradients of the sum of the squares of its parts."""
    f = ops()
    real = f.as_real(result) if "complex" in str(result.dtype).lower() or result.dtype.name.startswith("COMPLEX") else result
    return [result, *fluid.gradients(layers.reduce_sum(layers.square(real)), list(inputs))]


# ------------------------------------------------------------------------------------------------------------- elementwise
ELEMENTWISE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda f, x, y: x + y,
    "subtract": lambda f, x, y: x - y,
    "multiply": lambda f, x, y: x * y,
    "divide": lambda f, x, y: x / y,
    "multiply by a conjugate": lambda f, x, y: x * f.conj(y),
    "length": lambda f, x, y: f.abs(x) * f.abs(y),
    "parts": lambda f, x, y: f.real(x) * f.imag(y),
    "swapped parts": lambda f, x, y: f.complex(f.imag(x), f.real(y)),
    "scaled": lambda f, x, y: f.scale(x, scale=2.0, bias=1.0) - f.square(y) * 3.0,
    "turned": lambda f, x, y: f.transpose2(x * y, axis=[1, 0])[0],
    "reshaped": lambda f, x, y: f.reshape2(x * y, shape=[-1])[0],
    "summed": lambda f, x, y: f.reduce_sum(x * y, dim=[0]),
    "joined": lambda f, x, y: f.concat([x, x * y], axis=1),
    "cut": lambda f, x, y: (x * y)[1:, :2],
    "padded": lambda f, x, y: f.pad(x * y, paddings=[0, 1, 2, 0], pad_value=0.0),
}


@each("name", ELEMENTWISE)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_elementwise(name: str, dtype: str) -> None:
    shapes = dict.fromkeys("abcd", (5, 7))

    def build() -> list[Any]:
        f = ops()
        a, b, c, d = (data(letter, shapes[letter], dtype) for letter in "abcd")
        return with_gradients(ELEMENTWISE[name](f, f.complex(a, b), f.complex(c, d)), [a, b, c, d])

    check(build, values(shapes, dtype), dtype)


def test_extreme_numbers() -> None:
    """Quotients and lengths do not overflow where they are finite themselves, and are exact at zero."""
    x = np.array([3e30 + 4e30j, 1e-30 - 1e-30j, 0, np.inf, 1j, -3e38], "complex64")
    y = np.array([1e30 - 2e30j, 3e-30 + 1e-30j, 1 + 1j, 1j, 1e-38j, 3e38], "complex64")

    def build() -> list[Any]:
        f = ops()
        a, b = fluid.data("a", [6], "complex64"), fluid.data("b", [6], "complex64")
        return [f.abs(a), f.elementwise_div(a, b)]

    assert ops_on_numpy(build, {"a": x, "b": y}) == "none"
    with fresh_programs() as (main, _):
        fetches = build()
        lengths, quotients = fluid.Executor().run(main, {"a": x, "b": y}, fetches)
    np.testing.assert_allclose(lengths, np.abs(x), rtol=1e-6)
    finite = np.array([0, 1, 2, 4, 5])
    np.testing.assert_allclose(quotients[finite], (x.astype("complex128") / y.astype("complex128"))[finite], rtol=1e-5)


# ---------------------------------------------------------------------------------------------------------------- products
PRODUCTS = {
    "modes": ("bix,iox->box", (3, 5, 7), (5, 2, 7)),
    "modes of images": ("bixy,ioxy->boxy", (2, 3, 5, 4), (3, 6, 5, 4)),
    "matrices": ("ij,jk->ik", (5, 7), (7, 3)),
    "vectors": ("i,i->i", (9,), (9,)),
    "one row": ("ij,jk->ik", (1, 7), (7, 1)),
}


@each("name", PRODUCTS)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_einsum(name: str, dtype: str) -> None:
    equation, left, right = PRODUCTS[name]
    shapes = {"a": left, "b": left, "c": right, "d": right}

    def build() -> list[Any]:
        f = ops()
        a, b, c, d = (data(letter, shapes[letter], dtype) for letter in "abcd")
        return with_gradients(f.einsum([f.complex(a, b), f.complex(c, d)], equation=equation), [a, b, c, d])

    check(build, values(shapes, dtype), dtype)


@each("shapes", [((5, 7), (7, 3)), ((2, 5, 7), (2, 7, 3)), ((2, 5, 7), (7, 3)), ((7,), (7, 3)), ((5, 7), (7,))])
@pytest.mark.parametrize("turned", [False, True])
def test_matmul(shapes: Any, turned: bool) -> None:
    left, right = shapes
    if turned and min(map(len, shapes)) > 1:
        left, right = ((*shape[:-2], shape[-1], shape[-2]) for shape in shapes)
    turn = turned and min(map(len, shapes)) > 1
    of_letters = {"a": left, "b": left, "c": right, "d": right}

    def build() -> list[Any]:
        f = ops()
        a, b, c, d = (data(letter, of_letters[letter], "float64") for letter in "abcd")
        return with_gradients(f.matmul_v2(f.complex(a, b), f.complex(c, d), trans_x=turn, trans_y=turn), [a, b, c, d])

    check(build, values(of_letters, "float64"), "float64")


# -------------------------------------------------------------------------------------------------------------- transforms
def spectral_net(seed: int, dtype: str) -> tuple[Callable[[], list[Any]], dict[str, Any]]:
    """A random layer of a Fourier neural operator: some modes of a transform, multiplied, and transformed back."""
    rng = random.Random(seed)
    ndim = rng.randint(1, 3)
    sizes = [rng.choice((1, 2, 3, 4, 5, 8, 9, 12, 17)) for _ in range(ndim)]
    batch, width, outputs = (rng.randint(1, 4) for _ in range(3))
    axes = rng.sample(range(2, 2 + ndim), rng.randint(1, ndim))
    normalization = rng.choice(("backward", "ortho", "forward"))
    spectrum = list(sizes)
    spectrum[axes[-1] - 2] = sizes[axes[-1] - 2] // 2 + 1
    modes = [rng.randint(1, extent) for extent in spectrum]
    starts = [rng.choice((0, extent - count)) for extent, count in zip(spectrum, modes, strict=True)]
    joins = rng.random() < 0.5
    letters = "xyz"[:ndim]
    shapes = {"x": (batch, width, *sizes), "real": (width, outputs, *modes), "imag": (width, outputs, *modes)}

    def padded(f: Any, part: Any) -> Any:
        for axis, (start, count, extent) in enumerate(zip(starts, modes, spectrum, strict=True), 2):
            if joins and count < extent:
                shape = [*part.shape[:axis], extent - count, *part.shape[axis + 1 :]]
                zeros = layers.fill_constant(shape, dtype, 0.0)
                parts = [part, f.complex(zeros, zeros)]
                part = f.concat(parts[::-1] if start else parts, axis=axis)
            elif count < extent:
                pads = [0] * 2 * len(part.shape)
                pads[2 * axis], pads[2 * axis + 1] = start, extent - count - start
                part = f.pad(part, paddings=pads, pad_value=0.0)
        return part

    def build() -> list[Any]:
        f = ops()
        x, real, imag = (data(name, shape, dtype) for name, shape in shapes.items())
        attrs = {"axes": axes, "normalization": normalization}
        whole = f.fft_r2c(x, **attrs, forward=True, onesided=True)
        ends = [start + count for start, count in zip(starts, modes, strict=True)]
        some = f.slice(whole, axes=list(range(2, 2 + ndim)), starts=starts, ends=ends)
        product = f.einsum([some, f.complex(real, imag)], equation=f"bi{letters},io{letters}->bo{letters}")
        back = f.fft_c2r(padded(f, product), **attrs, forward=False, last_dim_size=sizes[axes[-1] - 2])
        return with_gradients(back, [x, real, imag])

    return build, values(shapes, dtype, seed)


@contextmanager
def for_target(target: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patches:
        set_target(patches, target)
        yield


@each("seed", range(8))
def test_random_spectral_nets(seed: int) -> None:
    dtype = ("float32", "float64")[seed % 2]
    check(*spectral_net(seed, dtype), dtype)


@each("seed", range(6))
def test_random_spectral_nets_on_random_processors(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accesses of the kernels are within their operands, too."""
    monkeypatch.setenv("FLUID_NATIVE_CACHE", "0")
    target = [*OTHER_TARGETS.values(), random_target(seed)][seed]
    with for_target(target), checked_plans(monkeypatch):
        assert_alike(*spectral_net(100 + seed, "float64"), tolerance=TOLERANCE["float64"])


@each("axes", [[0], [1], [1, 0], [-1, 1]])
@pytest.mark.parametrize("forward", [True, False])
def test_transforms_of_complex_numbers(axes: list[int], forward: bool) -> None:
    shapes = dict.fromkeys("ab", (6, 5, 7))

    def build() -> list[Any]:
        f = ops()
        a, b = (data(letter, shapes[letter], "float64") for letter in "ab")
        attrs = {"axes": axes, "normalization": "ortho", "forward": forward}
        whole = f.fft_c2c(f.complex(a, b), **attrs)
        both_sides = f.fft_r2c(a, **attrs, onesided=False)
        return with_gradients(f.concat([whole, both_sides * whole], axis=0), [a, b])

    check(build, values(shapes, "float64"), "float64")


@each("axes", [[1], [0, 1], [1, 0]])
def test_doubled_frequencies(axes: list[int]) -> None:
    """The op stands alone in programs of second derivatives."""

    def build() -> list[Any]:
        f = ops()
        x = data("x", (6, 7), "float64")
        attrs = {"axes": axes, "normalization": "forward", "forward": False}
        doubled = f.double_inner(f.fft_r2c(x, **attrs, onesided=True), x, axis=axes[-1])
        return with_gradients(f.double_inner(doubled, x, axis=axes[-1]), [x])

    check(build, values({"x": (6, 7)}, "float64"), "float64")


def test_gradients_against_differences() -> None:
    build, feed = spectral_net(3, "float64")
    with fresh_programs() as (main, _):
        result, *gradients = build()
        executor = fluid.Executor()

        def loss(moved: dict[str, Any]) -> float:
            return float((executor.run(main, moved, [result])[0] ** 2).sum())

        for name, gradient in zip(feed, executor.run(main, feed, gradients), strict=True):
            direction = np.random.default_rng(1).standard_normal(feed[name].shape)
            up, down = (loss(feed | {name: feed[name] + step * direction}) for step in (1e-4, -1e-4))
            np.testing.assert_allclose((gradient * direction).sum(), (up - down) / 2e-4, rtol=1e-6)


def transform_of(size: int, modes: int) -> tuple[Callable[[], list[Any]], dict[str, Any]]:
    def build() -> list[Any]:
        f = ops()
        x = fluid.data("x", [4, size], "float32")
        spectrum = f.fft_r2c(layers.square(x), axes=[1], normalization="backward", forward=True, onesided=True)
        return [f.abs(f.slice(spectrum, axes=[1], starts=[0], ends=[modes]))]

    return build, values({"x": (4, size)}, "float32")


def test_few_modes_are_a_product_and_all_modes_of_a_long_transform_stay_fast() -> None:
    assert ops_on_numpy(*transform_of(1024, 9)) == "none"
    assert ops_on_numpy(*transform_of(1024, 513)) == "fft_r2c"
    assert ops_on_numpy(*transform_of(10000, 3)) == "fft_r2c"
    for modes in (9, 513):
        assert_alike(*transform_of(1024, modes))


def test_transforms_of_a_graph_share_matrices() -> None:
    """Four layers compute the roots of unity as often as one does."""

    def build(count: int) -> list[Any]:
        f = ops()
        x = fluid.data("x", [3, 32], "float32")
        for _ in range(count):
            spectrum = f.fft_r2c(layers.tanh(x), axes=[1], normalization="backward", forward=True, onesided=True)
            x = f.real(f.slice(spectrum, axes=[1], starts=[0], ends=[4]))
            x = f.concat([x] * 8, axis=1)
        return [x]

    def cosines(count: int) -> int:
        with fresh_programs() as (main, _):
            fetches = build(count)
            text = fluid.Executor().plan(main, {"x": np.zeros((3, 32), "float32")}, fetches).to_string(calls=True)
        return text.count(" cos ")

    assert cosines(4) == cosines(1) > 0


def test_complex_numbers_in_a_loop() -> None:
    def build() -> list[Any]:
        x, steps = data("x", (3, 5), "float64"), data("steps", (4, 3, 5), "float64")
        rnn = layers.StaticRNN()
        with rnn.step():
            f = ops()
            step = rnn.step_input(steps)
            state = rnn.memory(init=x)
            turned = f.complex(state, step) * f.complex(step, state)
            following = f.real(turned) - f.abs(turned)
            rnn.update_memory(state, following)
            rnn.step_output(following)
        return with_gradients(rnn(), [x])

    assert_alike(build, values({"x": (3, 5), "steps": (4, 3, 5)}, "float64"), tolerance=1e-11)


def test_complex_feeds_and_fetches() -> None:
    x, y = (np.random.default_rng(0).standard_normal((2, 5, 3)) @ np.array([[1], [1j], [2]]) for _ in range(2))

    def build() -> list[Any]:
        f = ops()
        a, b = (fluid.data(name, list(x.shape), "complex128") for name in "ab")
        return [a * b, f.conj(a), a + b, f.real(b)]

    feed = {"a": x, "b": y}
    assert ops_on_numpy(build, feed) == "none"
    with fresh_programs() as (main, _):
        fetches = build()
        results = fluid.Executor().run(main, feed, fetches)
    for result, expected in zip(results, (x * y, x.conj(), x + y, y.real), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-14)
    assert prod(results[0].shape) == 10

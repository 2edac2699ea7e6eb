"""Elementary functions of native code, held against numpy's in a longer type: errors over all exponents, and special values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from checks import Checks
from harness import CROSS, TARGETS, compiled, emits, run

from fluid.executor.native import mathematics
from fluid.executor.native.compiler import Target
from fluid.executor.native.emitter import DOUBLE, FLOAT, Function, Type, Value
from fluid.executor.native.kernel import Share

TYPES: dict[Any, Type] = {np.float32: FLOAT, np.float64: DOUBLE}
COUNT = 1 << 13


def kernel(names: Sequence[str], inputs: int, element: Type, lanes: int, count: int = COUNT) -> Callable[..., None]:
    """A kernel over `count` numbers that reads the inputs and writes each function's results to its output."""

    def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
        def step(i: Value) -> None:
            values = [f.load(f.at(pointer, i, element), element.of(lanes)) for pointer in pointers[:inputs]]
            for name, output in zip(names, pointers[inputs:], strict=True):
                f.store(getattr(mathematics, name)(f, *values), f.at(output, i, element))

        f.loop(0, count, lanes, [], step)

    return body


def computed(names: Sequence[str], inputs: Sequence[Any], target: Target, lanes: int | None = None) -> dict[str, Any]:
    """The results of each function, for vectors of the target's width or of `lanes` lanes."""
    dtype = inputs[0].dtype
    body = kernel(names, len(inputs), TYPES[dtype.type], lanes or target.vector_bytes // dtype.itemsize, len(inputs[0]))
    arrays = [*inputs, *(np.zeros_like(inputs[0]) for _ in names)]
    results = compiled(body, len(arrays), target)(arrays)
    return dict(zip(names, results[len(inputs) :], strict=True))


def samples(dtype: Any, seed: int = 0) -> Any:
    """Numbers of all exponents, more of them where functions are curved, and special values."""
    random = np.random.default_rng(seed)
    bits = random.integers(0, 2 ** (8 * dtype().itemsize), COUNT, dtype=f"u{dtype().itemsize}")
    numbers = bits.view(dtype)
    half = COUNT // 2
    top = math.log(np.finfo(dtype).maxexp)
    numbers[:half] = random.standard_normal(half) * np.exp(random.uniform(-12, top, half))
    special = edges(dtype)
    numbers[: len(special)] = special
    return numbers


def edges(dtype: Any) -> Any:
    limits = np.finfo(dtype)
    sizes = [0.0, np.inf, np.nan, 0.5, 1, 2, 3, 1.5, 2.5, limits.tiny, limits.smallest_subnormal, limits.max, limits.eps]
    return np.array([sign * size for size in sizes for sign in (1, -1)], dtype)


def sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


EXACT: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "expm1": np.expm1,
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "log": np.log,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": lambda x: np.array([math.erf(number) for number in x.astype(np.float64)]),  # itself within an ulp of float64
    "sinh": np.sinh,
    "cosh": np.cosh,
    "atan": np.arctan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "tan": np.tan,
}
BOUNDS: dict[Any, Sequence[float]] = {
    np.float32: (1, 2, 3, 3, 1, 2, 2, 2, 0.5, 1.5, 6.5, 3, 3, 2, 2, 2, 3),
    np.float64: (1, 3, 3, 3, 1, 2, 2, 2, 0.5, 1.5, 3, 3, 3, 2, 2, 2, 4),
}
"""The greatest errors in ulp, of `EXACT`, in its order."""


def errors(values: Any, exact: Any) -> Any:
    """Errors in units in the last place of the exact results; infinite where one is special and the other is not the same."""
    dtype = values.dtype.type
    rounded = exact.astype(dtype)
    limits = np.finfo(dtype)
    units = np.spacing(np.clip(np.abs(rounded), limits.tiny, limits.max))
    same = (values == rounded) | (np.isnan(values) & np.isnan(rounded))
    same &= (np.signbit(values) == np.signbit(rounded)) | (rounded != 0)
    plain = np.isfinite(values) & np.isfinite(rounded) & ((values != 0) | (rounded != 0) | same)
    size = np.abs(np.where(plain, values, 0) - np.where(plain, exact, 0)) / units
    return np.where(plain, size, np.where(same, 0, np.inf))


def test_errors_over_all_exponents() -> None:
    with Checks() as check, np.errstate(all="ignore"):
        for dtype, bounds in BOUNDS.items():
            x = samples(dtype)
            longer = x.astype(np.float64 if dtype is np.float32 else np.longdouble)
            if np.finfo(longer.dtype).nmant <= np.finfo(dtype).nmant:
                continue  # a platform without anything longer than float64
            exact = {name: function(longer) for name, function in EXACT.items()}
            for target in TARGETS:
                for (name, values), bound in zip(computed(list(EXACT), [x], target).items(), bounds, strict=True):
                    with check(f"{name}, {dtype.__name__}, {target.cpu}"):
                        size = errors(values, exact[name])
                        worst = int(np.argmax(size))
                        told = f"{size[worst]:.2f} ulp: {values[worst]!r}, not {exact[name][worst]!r}, of {x[worst]!r}"
                        assert size[worst] <= bound, told


def test_lanes_do_not_change_results() -> None:
    for dtype in TYPES:
        x = samples(dtype)
        one, many = (computed(list(EXACT), [x], TARGETS[0], lanes) for lanes in (1, 4))
        for name in EXACT:
            np.testing.assert_array_equal(one[name], many[name], err_msg=name)


def test_what_saturates_reaches_its_limit_and_does_not_pass_it() -> None:
    for dtype in TYPES:
        x = np.concatenate([np.linspace(-30, 30, COUNT - 4), [-1e9, 1e9, -40, 40]]).astype(dtype)
        values = computed(["tanh", "erf", "sigmoid"], [x], TARGETS[0])
        for name in ("tanh", "erf"):
            assert np.abs(values[name]).max() == 1, name
            np.testing.assert_array_equal(values[name][np.abs(x) > 20], np.sign(x[np.abs(x) > 20]), err_msg=name)
        np.testing.assert_array_equal(values["sigmoid"][x >= 40], 1)


PARTS: dict[str, Callable[..., Any]] = {
    "absolute": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round_": np.rint,
}
PAIRS: dict[str, Callable[..., Any]] = {
    "copysign": np.copysign,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "remainder": np.remainder,
    "floor_quotient": np.floor_divide,
}
"""Functions of two numbers."""
OF_FLOAT = {"remainder", "floor_quotient"}
"""Those of float32 alone."""


def assert_same(values: Any, expected: Any, signs: bool) -> None:
    """The same numbers; with `signs`, zeros of the same sign too."""
    np.testing.assert_array_equal(values, expected)
    if signs:
        is_zero = expected == 0
        np.testing.assert_array_equal(np.signbit(values[is_zero]), np.signbit(expected[is_zero]))


def test_parts_of_numbers_are_those_of_numpy() -> None:
    with Checks() as check, np.errstate(all="ignore"):
        for dtype in TYPES:
            x = samples(dtype)
            x[-200:] = np.linspace(-5, 4.95, 200)
            special = edges(dtype)
            pairs = [samples(dtype, 1), samples(dtype, 2)]
            for place, column in enumerate(np.meshgrid(special, special)):
                pairs[place][: column.size] = column.ravel()
            for target in TARGETS:
                functions = {name: fn for name, fn in PAIRS.items() if name not in OF_FLOAT or dtype is np.float32}
                parts, twos = computed(list(PARTS), [x], target), computed(list(functions), pairs, target)
                for name, function in PARTS.items():
                    with check(f"{name}, {dtype.__name__}, {target.cpu}"):
                        assert_same(parts[name], function(x), signs=True)
                for name, function in functions.items():
                    with check(f"{name}, {dtype.__name__}, {target.cpu}"):
                        assert_same(twos[name], function(*pairs), signs=name not in ("maximum", "minimum"))


def test_maximum_and_minimum_of_a_number_keep_nan() -> None:
    def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
        x = f.load(pointers[0], FLOAT.of(4))
        f.store(mathematics.maximum(f, x, 0.0), pointers[1])
        f.store(mathematics.minimum(f, x, 0.0), pointers[2])

    x = np.array([np.nan, -1, 1, np.inf], np.float32)
    _, high, low = run(body, [x, np.zeros_like(x), np.zeros_like(x)], threads=[1])
    np.testing.assert_array_equal(high, np.maximum(x, 0))
    np.testing.assert_array_equal(low, np.minimum(x, 0))


def test_powers() -> None:
    with Checks() as check, np.errstate(all="ignore"):
        for dtype in TYPES:
            special = edges(dtype)
            x, exponent = samples(dtype, 3), samples(dtype, 4)
            x[COUNT // 2 :] = np.abs(x[COUNT // 2 :])
            exponent[COUNT // 2 :] = np.linspace(-9, 9, COUNT // 2)
            close = slice(COUNT // 4, COUNT // 2)  # logarithms of few bits, times large exponents
            x[close] = np.linspace(0.5, 2, COUNT // 4)
            exponent[close] = np.linspace(-1000, 1000, COUNT // 4)[::-1]
            for column, values in zip((x, exponent), np.meshgrid(special, special), strict=True):
                column[: values.size] = values.ravel()
            longer = np.float64 if dtype is np.float32 else np.longdouble
            exact = np.power(x.astype(longer), exponent.astype(longer))
            for target in TARGETS:
                with check(f"{dtype.__name__}, {target.cpu}"):
                    values = computed(["power"], [x, exponent], target)["power"]
                    worst = int(np.argmax(errors(values, exact)))
                    told = f"{x[worst]} to {exponent[worst]} is {values[worst]}, not {exact[worst]}"
                    assert errors(values, exact)[worst] <= 0.8, told


def test_powers_of_integers_are_exact() -> None:
    pairs = [(base, by) for base in range(1, 300) for by in range(53) if base**by < 2**53]
    pairs = pairs[: len(pairs) // 64 * 64]  # kernels of these tests store whole vectors
    x, exponent = (np.array(column, np.float64) for column in zip(*pairs, strict=True))
    exact = np.array([float(base**by) for base, by in pairs])
    for target in TARGETS:
        np.testing.assert_array_equal(computed(["power"], [x, exponent], target)["power"], exact)
        np.testing.assert_array_equal(computed(["power"], [-x, exponent], target)["power"], exact * (-1) ** exponent)


def test_other_processors_and_accesses() -> None:
    """Code is made for each processor, and stays within its operands where every access is asked about."""
    single = kernel([*EXACT, *PARTS], 1, FLOAT, 16, count=64)
    for target in CROSS.values():
        for element in TYPES.values():
            body = kernel([*EXACT, *PARTS], 1, element, target.vector_bytes // element.bytes, count=64)
            emits(body, 1 + len(EXACT) + len(PARTS), target)
    x = samples(np.float32)[:64]
    run(single, [x, *(np.zeros_like(x) for _ in (*EXACT, *PARTS))], threads=[1])

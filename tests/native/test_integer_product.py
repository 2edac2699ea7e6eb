"""Products of bytes with sums of 32 bits: exact at every size, on every kind of processor; and the programs that use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from beside_numpy import assert_alike, results_of
from checked_plans import checked_plans
from checks import Checks, each, fresh_programs
from harness import CROSS, TARGETS, emits, run
from test_complex_numbers import ops_on_numpy

import fluid
from fluid import layers
from fluid.ahead.targets import find_target
from fluid.executor.native import compiler, integer_lowering
from fluid.executor.native.emitter import FLOAT, INT32, Function, Value
from fluid.executor.native.integer_product import PackedShape, ProductShape, packed_bytes, write_pack, write_product
from fluid.executor.native.kernel import Share
from fluid.executor.native.target import Target
from fluid.ir.program import Variable


@dataclass(frozen=True)
class Case:
    """A product of `lines` x `rows` rows, each of `segments` x `inner` bytes that lie `gap` bytes apart."""

    rows: int
    columns: int
    inner: int
    lines: int = 1
    segments: int = 1
    gap: int = 0
    turned: bool = False
    extreme: bool = False


CASES = [
    Case(1, 1, 1),
    Case(3, 5, 2, turned=True),
    Case(1, 100, 37),
    Case(6, 16, 64, extreme=True),
    Case(7, 33, 19, gap=3),
    Case(13, 70, 8, turned=True),
    Case(50, 17, 30),
    Case(97, 65, 7, extreme=True),
    Case(2, 3, 4099, extreme=True),
    Case(5, 9, 6, lines=4, segments=3, gap=5),
    Case(11, 40, 12, lines=2, segments=2),
    Case(5, 20, 3, segments=4, gap=1),
    Case(7, 18, 67, segments=4),
    Case(4, 16, 64),
    Case(16, 32, 128, extreme=True),
    Case(17, 33, 65, turned=True),
    Case(32, 47, 127, gap=3),
    Case(37, 48, 192),
    Case(69, 35, 130, turned=True),
    Case(48, 20, 66, lines=3, segments=2, gap=5),
    Case(111, 15, 70, segments=4),
    Case(3, 90, 200, turned=True),
]


def targets() -> list[Target]:
    """Processors whose code runs here, also without the instructions for bytes, and with other vectors."""
    host = compiler.host()
    plain = replace(host, features=host.features.replace("+avx512vnni", "-avx512vnni").replace("+avxvnni", "-avxvnni"))
    narrow = [replace(target, vector_bytes=size) for target in (host, plain) for size in (16, 32) if size < host.vector_bytes]
    few = replace(host, vector_bytes=4, registers=16)
    by_vectors = replace(host, features=host.features.replace("+amx-tile", "-amx-tile"))
    many_rows = replace(host, limits=replace(host.limits, byte_tile_rows=40))
    return [*TARGETS, plain, by_vectors, many_rows, *narrow, few]


def operands(case: Case) -> tuple[Any, Any]:
    """Rows [lines, rows, segments, inner] with gaps, and the right matrix."""
    random = np.random.default_rng(case.rows)
    memory = random.integers(0, 256, (case.lines, case.rows, case.segments, case.inner + case.gap), np.uint8)
    shape = (case.columns, case.segments * case.inner) if case.turned else (case.segments * case.inner, case.columns)
    right = random.integers(-128, 128, shape).astype(np.int8)
    if case.extreme:
        memory[...], right[...] = 255, -128
    return memory, right.T if case.turned else right


def check(case: Case, target: Target) -> None:
    memory, right = operands(case)
    shape = PackedShape(case.inner, case.columns, tuple(right.strides), case.segments)  # type: ignore[arg-type]
    lines, rows = memory.strides[:2]
    places = ((case.lines, lines, case.rows * case.columns), (case.rows, rows, case.columns))
    step = memory.strides[2]
    segments = ((2, 2 * step), (2, step)) if case.segments == 4 else ((case.segments, step),)
    product = ProductShape(places, shape, segments)

    def pack(f: Function, pointers: Sequence[Value], share: Share) -> None:
        write_pack(f, shape, pointers[1], pointers[2], share, target)

    def multiply(f: Function, pointers: Sequence[Value], share: Share) -> None:
        write_product(f, product, pointers[0], pointers[2], pointers[3], share, target)

    arrays = [
        memory,
        right,
        np.zeros(packed_bytes(shape, target), np.int8),
        np.zeros((case.lines, case.rows, case.columns), "int32"),
    ]
    result = run([pack, multiply], arrays, target)[3]
    left = memory[..., : case.inner].reshape(case.lines, case.rows, -1).astype(np.int64)
    np.testing.assert_array_equal(result, left @ right.astype(np.int64))


@pytest.mark.parametrize("number", range(len(targets())))
def test_products_are_exact(number: int) -> None:
    target = targets()[number]
    with Checks() as checks:
        for case in CASES if number < 2 else CASES[number % 2 :: 2]:
            with checks(f"{case}, {target.byte_products}, vectors of {target.vector_bytes} bytes"):
                check(case, target)


def test_the_processor_decides_how_bytes_are_multiplied() -> None:
    assert CROSS["AVX2"].byte_products == "pairs" and CROSS["NEON"].byte_products == "numbers"
    with_fours = replace(CROSS["AVX-512"], features=CROSS["AVX-512"].features + ",+avx512vnni")
    assert (CROSS["AVX-512"].byte_products, with_fours.byte_products) == ("pairs", "fours")
    with_tiles = replace(with_fours, features=with_fours.features + ",+amx-int8,+amx-tile")
    assert (with_tiles.byte_products, replace(with_tiles, vector_bytes=32).byte_products) == ("tiles", "fours")


def test_code_for_other_machines_multiplies_tiles() -> None:
    """This processor may have none."""
    target = replace(CROSS["AVX-512"], features=CROSS["AVX-512"].features + ",+avx512vnni,+amx-int8,+amx-tile")
    shape = PackedShape(130, 40, (40, 1))
    product = ProductShape(((37, 130, 40),), shape)

    def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
        write_product(f, product, pointers[0], pointers[1], pointers[2], share, target)

    assert emits(body, 3, target)


def test_libraries_for_this_processor_use_no_tiles() -> None:
    """A process has to ask the system for tiles, and a library does not."""
    with patch.object(compiler, "host", lambda: replace(TARGETS[0], features=TARGETS[0].features + ",+amx-int8,+amx-tile")):
        assert find_target("host").byte_products != "tiles"


def test_an_epilogue_is_given_each_place_once() -> None:
    case = Case(9, 37, 10, lines=2)
    memory, right = operands(case)
    shape = PackedShape(case.inner, case.columns, tuple(right.strides))  # type: ignore[arg-type]
    lines, rows = memory.strides[:2]
    product = ProductShape(((2, lines, 9 * 37), (9, rows, 37)), shape)
    target = TARGETS[0]

    def pack(f: Function, pointers: Sequence[Value], share: Share) -> None:
        write_pack(f, shape, pointers[1], pointers[2], share, target)

    def multiply(f: Function, pointers: Sequence[Value], share: Share) -> None:
        def epilogue(f: Function, value: Value, places: Sequence[Value], column: Value) -> Value:
            at = f.add(f.mul(f.add(f.mul(places[0], 9), places[1]), 37), column)
            seen = f.at(pointers[4], at, INT32)
            f.store(f.add(f.load(seen, value.type), 1), seen)
            return f.mul(f.convert(value, FLOAT), 0.5)

        write_product(f, product, pointers[0], pointers[2], pointers[3], share, target, FLOAT, epilogue)

    packed = np.zeros(packed_bytes(shape, target), np.int8)
    results = run(
        [pack, multiply], [memory, right, packed, np.zeros((2, 9, 37), np.float32), np.zeros((2, 9, 37), np.int32)], target
    )
    np.testing.assert_array_equal(results[3], memory.reshape(2, 9, 10).astype(np.float32) @ right.astype(np.float32) * 0.5)
    assert (results[4] == 1).all()


@pytest.mark.parametrize("name", CROSS)
def test_code_is_made_for_other_processors(name: str) -> None:
    shape, target = PackedShape(19, 33, (33, 1)), CROSS[name]

    def pack(f: Function, pointers: Sequence[Value], share: Share) -> None:
        write_pack(f, shape, pointers[0], pointers[1], share, target)

    def multiply(f: Function, pointers: Sequence[Value], share: Share) -> None:
        write_product(f, ProductShape(((7, 22, 33),), shape), pointers[0], pointers[1], pointers[2], share, target)

    emits([pack, multiply], 3, target)


# ------------------------------------------------------------------------------------------------------------- programs
def op(op_type: str, inputs: dict[str, Any], slot: str = "Out", **attrs: Any) -> Variable:
    block = fluid.default_main_program().current_block()
    out = block.create_var(name=fluid.unique_name.generate(op_type))
    block.append_op(op_type, inputs, {slot: out}, attrs)
    return out


def grid(x: Variable, scale: Any, zero: float = 0.0, axis: int = -1, least: int = -128) -> Variable:
    """Floats that integers of 8 bits hold."""
    inputs = {"X": x, "Scale": layers.assign(np.asarray(scale, "float32"))}
    if zero:
        inputs["ZeroPoint"] = layers.fill_constant([1], "float32", zero)
    return op("fake_quantize_affine", inputs, quant_axis=axis, quant_min=least, quant_max=least + 255)


RANDOM = np.random.default_rng(1)
X, W = RANDOM.standard_normal((7, 21)).astype("float32"), RANDOM.standard_normal((21, 35)).astype("float32")
IMAGE, FILTER = RANDOM.standard_normal((2, 5, 9, 8)).astype("float32"), RANDOM.standard_normal((6, 5, 3, 3)).astype("float32")
SECOND = RANDOM.standard_normal((4, 6, 3, 2)).astype("float32")
SCALES = np.linspace(0.01, 0.05, 35)


def product_of(x_zero: float, x_least: int, w_zero: float, w_least: int, turned: bool = False) -> Any:
    def build() -> list[Variable]:
        x, w = fluid.data("x", X.shape), fluid.data("w", W.T.shape if turned else W.shape)
        right = grid(w, [0.03] if w_zero else SCALES, w_zero, -1 if w_zero else 0 if turned else 1, w_least)
        out = op("matmul_v2", {"X": grid(x, [0.02], x_zero, least=x_least), "Y": right}, trans_y=turned)
        return [layers.relu(out + 0.5), out]

    return build, {"x": X, "w": W.T.copy() if turned else W}


def convolution_of(**attrs: Any) -> Any:
    def build() -> list[Variable]:
        x, w, v = fluid.data("x", IMAGE.shape), fluid.data("w", FILTER.shape), fluid.data("v", SECOND.shape)
        image = grid(x, [0.02], 120.0, least=0)
        out = op("conv2d", {"Input": image, "Filter": grid(w, SCALES[:6], axis=0)}, "Output", **attrs)
        second = grid(layers.relu(out), [0.1], 3.0, least=0)
        return [out, op("conv2d", {"Input": second, "Filter": grid(v, [0.03])}, "Output", paddings=[1, 1])]

    return build, {"x": IMAGE, "w": FILTER, "v": SECOND}


def drawn(dtype: str, *shape: int) -> Any:
    """Random integers of a type."""
    bounds = np.iinfo(dtype)
    return RANDOM.integers(bounds.min, bounds.max, shape, endpoint=True).astype(dtype)


PROGRAMS = {
    "signs on neither side": product_of(130.0, 0, 0.0, -128),
    "signs on both sides": product_of(3.0, -128, 0.0, -128, turned=True),
    "zero points on both sides": product_of(130.0, 0, 128.0, 0),
    "no zero points": product_of(0.0, -128, -5.0, -128),
}


@each("name", list(PROGRAMS))
def test_products_of_quantized_floats(name: str) -> None:
    """On numpy, they are products of floats."""
    build, feed = PROGRAMS[name]
    assert_alike(build, feed, tolerance=1e-6)


CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "padded": {"paddings": [1, 2]},
    "on one side": {"paddings": [0, 2, 1, 0]},
    "in strides": {"paddings": [1, 1], "strides": [2, 3]},
    "with holes": {"paddings": [2, 0], "dilations": [2, 1]},
    "with holes along rows": {"paddings": [0, 2], "dilations": [1, 2]},
}


@each("name", list(CONVOLUTIONS))
def test_convolutions_of_quantized_floats(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build, feed = convolution_of(**CONVOLUTIONS[name])
    with checked_plans(monkeypatch):
        assert_alike(build, feed, tolerance=2e-6)
    assert count_of_integer_products(lambda: results_of(build, feed, native=True)) == 2


def test_convolutions_of_groups_and_filters_with_zero_points(monkeypatch: pytest.MonkeyPatch) -> None:
    image, filters = (RANDOM.standard_normal(shape).astype("float32") for shape in ((2, 36, 7, 6), (10, 18, 3, 2)))

    def build() -> list[Variable]:
        x, w = fluid.data("x", image.shape), fluid.data("w", filters.shape)
        out = []
        for zero, least in ((0.0, -128), (90.0, 0)):
            inputs = {"Input": grid(x, [0.02], 100.0, least=0), "Filter": grid(w, [0.03], zero, least=least)}
            out.append(op("conv2d", inputs, "Output", groups=2, paddings=[1, 0, 0, 1], strides=[1, 2], dilations=[1, 2]))
        return out

    with checked_plans(monkeypatch):
        assert_alike(build, {"x": image, "w": filters}, tolerance=2e-6)
    assert count_of_integer_products(lambda: results_of(build, {"x": image, "w": filters}, native=True)) == 4


def count_of_integer_products(run: Callable[[], Any]) -> int:
    """How many products of bytes are lowered."""
    with patch.object(integer_lowering, "IntegerProduct", wraps=integer_lowering.IntegerProduct) as products:
        run()
    return products.call_count


@pytest.mark.parametrize("zero", [300.0, -7.0, 2.5])
def test_zero_points_that_are_no_bytes(zero: float) -> None:
    """Products of floats: a border of bytes would be another number."""

    def build() -> list[Variable]:
        x, w = fluid.data("x", IMAGE.shape), fluid.data("w", FILTER.shape)
        image = grid(x, [0.02], zero, least=0)
        out = op("conv2d", {"Input": image, "Filter": grid(w, SCALES[:6], axis=0)}, "Output", paddings=[1, 1])
        rows = layers.reshape(image, [-1, 8])
        return [out, op("matmul_v2", {"X": rows, "Y": grid(layers.reshape(w, [-1, 9])[:8], [0.03])})]

    assert_alike(build, {"x": IMAGE, "w": FILTER}, tolerance=2e-6)


def test_a_quantized_model_convolves_integers() -> None:
    """With images that have numbers below 0, too: their zero point is known."""

    with fresh_programs(), pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("FLUID_NATIVE", "1")
        out, executor = layers.conv2d(fluid.data("x", IMAGE.shape), 6, 3, padding=1), fluid.Executor()
        executor.run(fluid.default_startup_program())
        program = fluid.quantize_model(fluid.default_main_program(), {"x": IMAGE}).program.clone()
        assert count_of_integer_products(lambda: executor.run(program, {"x": IMAGE}, [out.name])) == 1


@pytest.mark.parametrize("left", ["uint8", "int8"])
@pytest.mark.parametrize("right", ["uint8", "int8"])
def test_products_of_fed_integers(left: str, right: str) -> None:
    def build() -> list[Variable]:
        x, y = fluid.data("x", [3, 4, 50], left), fluid.data("y", [50, 19], right)
        rows, columns = fluid.data("rows", [3, 4, 1], left), fluid.data("columns", [19], right)
        both = op("matmul_integer", {"X": x, "Y": y, "XZeroPoint": rows, "YZeroPoint": columns})
        return [both, op("matmul_integer", {"X": x, "Y": y}), layers.cast(x, "float32") + 1.0]

    feed = {"x": drawn(left, 3, 4, 50), "y": drawn(right, 50, 19), "rows": drawn(left, 3, 4, 1), "columns": drawn(right, 19)}
    native, plain = (results_of(build, feed, native=native) for native in (True, False))
    for name, value in plain.items():
        np.testing.assert_array_equal(native[name], value)


INTEGER_CONVOLUTIONS: dict[str, tuple[int, int, int, dict[str, Any]]] = {
    "plain": (3, 5, 3, {}),
    "padded": (3, 5, 3, {"paddings": [1, 2, 0, 1], "strides": [2, 1]}),
    "with holes": (4, 20, 3, {"paddings": [2, 2], "dilations": [2, 2]}),
    "channel by channel": (6, 6, 3, {"groups": 6, "paddings": [1, 1]}),
    "in groups": (8, 12, 2, {"groups": 4, "strides": [1, 2]}),
    "in large groups": (64, 6, 3, {"groups": 2, "paddings": [1, 1]}),
    "the same size": (3, 4, 2, {"padding_algorithm": "SAME"}),
}


@each("name", list(INTEGER_CONVOLUTIONS))
@pytest.mark.parametrize("left", ["uint8", "int8"])
@pytest.mark.parametrize("right", ["uint8", "int8"])
def test_convolutions_of_fed_integers(left: str, right: str, name: str) -> None:
    """A fed zero point surrounds the image; zero points of filters need sums over windows."""
    channels, filters, size, attrs = INTEGER_CONVOLUTIONS[name]
    shape = (filters, channels // attrs.get("groups", 1), size, size)

    def build() -> list[Variable]:
        x, w = fluid.data("x", [2, channels, 7, 9], left), fluid.data("w", shape, right)
        zero, of_filters = fluid.data("zero", [1], left), fluid.data("of_filters", [filters, 1, 1, 1], right)
        pairs = ({}, {"InputZeroPoint": zero}, {"InputZeroPoint": zero, "FilterZeroPoint": of_filters})
        turned = layers.cast(layers.transpose(layers.cast(x, "float32"), [0, 2, 3, 1]), left)
        last = {"Input": turned, "Filter": w, **pairs[2]}
        out = [op("conv2d_integer", {"Input": x, "Filter": w, **points}, "Output", **attrs) for points in pairs]
        return [*out, op("conv2d_integer", last, "Output", data_format="NHWC", **attrs)]

    feed = {"x": drawn(left, 2, channels, 7, 9), "w": drawn(right, *shape), "zero": drawn(left, 1)}
    feed["of_filters"] = drawn(right, filters, 1, 1, 1)
    assert ops_on_numpy(build, feed) == "none"
    native, plain = (results_of(build, feed, native=native) for native in (True, False))
    for fetch, value in plain.items():
        np.testing.assert_array_equal(native[fetch], value, err_msg=f"{name}, {fetch}")


def test_convolutions_of_extreme_integers_are_exact() -> None:
    """As large as sums of products of floats may be: 258 products of 255 * 255."""

    def build() -> list[Variable]:
        x, w = fluid.data("x", [1, 258, 2, 2], "uint8"), fluid.data("w", [2, 129, 1, 2], "int8")
        zeros = {"InputZeroPoint": fluid.data("xz", [1], "uint8"), "FilterZeroPoint": fluid.data("wz", [1], "int8")}
        return [op("conv2d_integer", {"Input": x, "Filter": w, **zeros}, "Output", groups=2)]

    feed = {"x": np.full((1, 258, 2, 2), 255, "u1"), "w": np.full((2, 129, 1, 2), -128, "i1")}
    results = results_of(build, {**feed, "xz": np.uint8([0]), "wz": np.int8([127])}, native=True, runs=1)
    assert (results["fetch 0"] == -258 * 255 * 255).all()


@each("inner", [33_025, 33_026, 70_000])
def test_products_of_more_terms_than_32_bits_hold(inner: int) -> None:
    """All levels are as far from their zero points as can be; longer sums are of floats."""

    def build() -> list[Variable]:
        x, w = fluid.data("x", [1, inner]), fluid.data("w", [inner, 2])
        return [op("matmul_v2", {"X": grid(x, [1.0], least=0), "Y": grid(w, [1.0], 255.0, least=0)})]

    feed = {"x": np.full((1, inner), 255, "float32"), "w": np.full((inner, 2), -255, "float32")}
    (result,) = (results_of(build, feed, native=True, runs=1)[name] for name in ["fetch 0"])
    np.testing.assert_allclose(result, np.full((1, 2), -(255.0**2) * inner), rtol=1e-6)

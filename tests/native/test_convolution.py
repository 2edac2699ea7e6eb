"""Native convolutions beside sums over taps in float64, with red zones around every array."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from checks import each
from harness import TARGETS, nth_target, texts
from red_zones import Guarded, Kernels, check_halo, inner, laid_out

from fluid.executor.native.compiler import compile_object
from fluid.executor.native.convolution import (
    Convolution,
    packed_elements,
    packed_elements_for_input,
    partial_elements,
    write_filter_gradient,
    write_forward,
    write_input_gradient,
    write_packed_filter,
    write_packed_filter_for_input,
    write_partial_filters,
)
from fluid.executor.native.depthwise import (
    depthwise_partial_elements,
    write_depthwise,
    write_depthwise_filter_gradient,
    write_depthwise_input_gradient,
    write_depthwise_partial_filters,
    write_packed_depthwise,
)
from fluid.executor.native.emitter import DOUBLE, FLOAT, Function, Type, Value
from fluid.executor.native.halo import Halo
from fluid.executor.native.images import Images, Pixel
from fluid.executor.native.target import Target

DTYPES = {FLOAT: np.float32, DOUBLE: np.float64}


@dataclass(frozen=True)
class Case:
    """A convolution's parameters, and the surplus width of its halos."""

    images: int
    channels: int
    extents: tuple[int, int]
    filters: int
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    groups: int = 1
    element: Type = FLOAT
    wider: int = 0
    depthwise: bool = False

    def geometry(self) -> Convolution:
        out = [
            (extent + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
            for extent, pad, dilation, kernel, stride in zip(
                self.extents, self.pads, self.dilations, self.kernel, self.strides, strict=True
            )
        ]
        x, y = Images.dense(self.images, *self.extents, self.channels), Images.dense(self.images, *out, self.filters)
        g = Convolution(x, y, self.kernel, self.strides, self.pads, self.dilations, self.groups, self.element)
        x_halo, y_halo = (Halo(*(number + self.wider for number in halo)) for halo in (g.x_halo, g.y_halo))
        x = Images.dense(self.images, *self.extents, self.channels, x_halo)
        return replace(g, x=x, y=Images.dense(self.images, *out, self.filters, y_halo))


def reference(g: Convolution, x: Any, w: Any, dy: Any) -> tuple[Any, Any, Any]:
    """Output, gradient of the input and gradient of the filter, in float64."""
    x, w, dy = (array.astype(np.float64) for array in (x, w, dy))
    halo = g.x_halo
    padded = np.pad(x, ((0, 0), (0, 0), *((number, number) for number in halo)))
    y, dw, d_padded = np.zeros(dy.shape), np.zeros(w.shape), np.zeros(padded.shape)
    for group in range(g.groups):
        c = slice(group * g.channels, (group + 1) * g.channels)
        m = slice(group * g.filters, (group + 1) * g.filters)
        for row in range(g.kernel[0]):
            for column in range(g.kernel[1]):
                starts = [
                    number - pad + tap * dilation
                    for number, pad, tap, dilation in zip(halo, g.pads, (row, column), g.dilations, strict=True)
                ]
                ends = [
                    start + stride * (extent - 1) + 1
                    for start, stride, extent in zip(starts, g.strides, dy.shape[2:], strict=True)
                ]
                at = (slice(None), c, *(slice(*each) for each in zip(starts, ends, g.strides, strict=True)))
                y[:, m] += np.einsum("nchw,mc->nmhw", padded[at], w[m, :, row, column])
                dw[m, :, row, column] = np.einsum("nchw,nmhw->mc", padded[at], dy[:, m])
                d_padded[at] += np.einsum("nmhw,mc->nchw", dy[:, m], w[m, :, row, column])
    return y, d_padded[:, :, halo.rows : halo.rows + g.x.height, halo.columns : halo.columns + g.x.width], dw


def check_close(actual: Any, expected: Any, magnitude: Any, terms: int) -> None:
    """Assert that each element is within the rounding error of a sum of `terms` terms with absolute sum `magnitude`."""
    bound = (terms + 2) * np.finfo(actual.dtype).eps * magnitude + 1e-300
    assert (np.abs(actual - expected) <= bound).all(), f"off by {(np.abs(actual - expected) / bound).max():.2g} of the bound"


@dataclass(frozen=True)
class Writers:
    """The kernels of a kind of convolution, and the elements of packed filters and partial sums."""

    forward: Any
    back: Any
    partials: Any
    total: Any
    pack: Any
    pack_back: Any
    sizes: Any


DENSE = Writers(
    write_forward,
    write_input_gradient,
    write_partial_filters,
    write_filter_gradient,
    write_packed_filter,
    write_packed_filter_for_input,
    lambda g, target: (packed_elements(g, target), packed_elements_for_input(g, target), partial_elements(g, target)),
)
DEPTHWISE = Writers(
    write_depthwise,
    write_depthwise_input_gradient,
    write_depthwise_partial_filters,
    write_depthwise_filter_gradient,
    write_packed_depthwise,
    write_packed_depthwise,
    lambda g, target: (g.taps * g.x.channels, g.taps * g.x.channels, depthwise_partial_elements(g, target)),
)
CASES = [
    Case(3, 5, (7, 9), 20),
    Case(2, 3, (8, 7), 10, strides=(2, 2), wider=1),
    Case(2, 16, (5, 6), 40, (1, 1), (2, 2), (0, 0), element=DOUBLE),
    Case(2, 4, (9, 8), 6, (5, 2), (1, 3), (3, 1), (1, 2), groups=2, element=DOUBLE),
    Case(2, 3, (5, 4), 7, (2, 2), pads=(0, 0)),
    Case(2, 3, (11, 22), 6, (8, 9), (4, 3), (2, 1), groups=3),
    Case(2, 3, (10, 24), 5, (2, 4), (5, 4), (0, 0), (3, 1), element=DOUBLE),
    Case(2, 9, (17, 13), 9, (8, 6), (4, 3), (2, 0), (1, 2), groups=9, depthwise=True),
    Case(2, 9, (6, 23), 11, (2, 19), (1, 1), (0, 0)),
    Case(1, 10, (5, 9), 8, (3, 9), (2, 2), (1, 8), (1, 2)),
    Case(2, 21, (9, 8), 21, groups=21, depthwise=True),
    Case(3, 10, (7, 8), 10, (3, 2), (2, 1), (1, 0), (1, 2), groups=10, element=DOUBLE, depthwise=True),
]
MORE = [
    Case(1, 1, (1, 1), 1, (1, 1), pads=(0, 0)),
    Case(0, 2, (4, 4), 3),
    Case(4, 64, (8, 8), 64),
    Case(2, 24, (14, 14), 56, (5, 5), pads=(0, 0)),
    Case(1, 33, (7, 7), 70),
    Case(2, 6, (11, 11), 9, dilations=(2, 2), pads=(2, 2), strides=(2, 2), groups=3),
    Case(2, 3, (12, 12), 8, (2, 2), (3, 3), (0, 0)),
    Case(2, 8, (6, 6), 8, (3, 3), (3, 2), (1, 1), (3, 2)),
    Case(1, 3, (32, 32), 64, (7, 7), (2, 2), (3, 3)),
    Case(1, 40, (14, 14), 40, (5, 5), (2, 2), (2, 2), groups=40, depthwise=True),
    Case(17, 16, (4, 4), 16, (7, 7), pads=(3, 3), groups=16, depthwise=True),
    Case(0, 4, (4, 4), 4, groups=4, depthwise=True),
]


@each("case, which", [(case, number % 2) for number, case in enumerate(CASES)])
def test_convolution_is_the_sum_over_taps(case: Case, which: int) -> None:
    check_convolution(case, nth_target(which))


@pytest.mark.slow
@each("case", CASES + MORE)
@each("element", [FLOAT, DOUBLE], ids=str)
@each("which", [0, 1])
def test_more_convolutions_are_the_sum_over_taps(case: Case, element: Type, which: int) -> None:
    check_convolution(replace(case, element=element), nth_target(which))


TWO_ROWS = [
    Case(1, 1, (1, 5), 1, (5, 5), pads=(2, 2), groups=1, depthwise=True),
    Case(2, 3, (3, 7), 3, (5, 5), pads=(2, 2), groups=3, depthwise=True),
    Case(1, 5, (4, 17), 5, (3, 3), pads=(1, 1), groups=5, depthwise=True),
    Case(1, 63, (9, 6), 63, (5, 4), pads=(2, 1), groups=63, depthwise=True),
    Case(1, 17, (65, 3), 17, (2, 3), pads=(0, 1), groups=17, depthwise=True),
    Case(2, 16, (10, 9), 16, (3, 3), (2, 2), (2, 2), (2, 2), groups=16, depthwise=True),
    Case(1, 4, (7, 9), 4, (3, 5), (1, 2), (1, 2), groups=4, element=DOUBLE, depthwise=True),
]
"""Tiles of two rows, with and without a single row at the end."""


@each("case", TWO_ROWS)
def test_depthwise_tiles_of_two_rows(case: Case) -> None:
    for number in range(len(TARGETS)):
        check_convolution(case, nth_target(number))


def check_convolution(case: Case, target: Target) -> None:
    """Output and both gradients, by the same kernels with 1, 2 and 4 threads, for a processor whose code runs here."""
    g, dtype = case.geometry(), DTYPES[case.element]
    random = np.random.default_rng(0)
    x, dy = (random.standard_normal((i.count, i.channels, i.height, i.width)).astype(dtype) for i in (g.x, g.y))
    w = random.standard_normal((case.filters, g.channels, *g.kernel)).astype(dtype)
    kernels = Kernels(target)
    writers = DEPTHWISE if case.depthwise else DENSE
    forward = kernels.add(3, lambda f, p, share: writers.forward(f, g, *p, share, target))
    back = kernels.add(3, lambda f, p, share: writers.back(f, g, *p, share, target))
    dense = replace(g, y=Images.dense(g.y.count, g.y.height, g.y.width, g.y.channels))  # nothing lies behind the last pixel
    add_up = kernels.add(3, lambda f, p, share: writers.partials(f, dense, *p, share, target))
    total = kernels.add(2, lambda f, p, share: writers.total(f, dense, *p, share, target))
    pack = kernels.add(2, lambda f, p, share: writers.pack(f, g, *p, share, target))
    pack_back = kernels.add(2, lambda f, p, share: writers.pack_back(f, g, *p, share, target))
    bits: list[Any] = []
    for threads in (1, 2, 4):
        filter_, packed, packed_back, partials = Guarded.of(w), *(Guarded((size,), dtype) for size in writers.sizes(g, target))
        image, gradient, dense_gradient = laid_out(g.x, x), laid_out(g.y, dy), laid_out(dense.y, dy)
        y, dx = (laid_out(images, np.full_like(array, np.nan)) for images, array in ((g.y, dy), (g.x, x)))
        dw = Guarded(w.shape, dtype)
        kernels.run(pack, [filter_, packed], threads)
        kernels.run(pack_back, [filter_, packed_back], threads)
        kernels.run(forward, [image, packed, y], threads)
        kernels.run(back, [gradient, packed_back, dx], threads)
        kernels.run(add_up, [image, dense_gradient, partials], threads)
        kernels.run(total, [partials, dw], threads)
        bits.append((inner(g.y, y.array), inner(g.x, dx.array), dw.array))
        check_halo(g.y, y)
        check_halo(g.x, dx)
    for others in bits[1:]:
        for one, other in zip(bits[0], others, strict=True):
            assert one.tobytes() == other.tobytes(), "the bits depend on the number of threads"
    terms = g.channels * g.taps, g.filters * g.taps, x.shape[0] * dy.shape[2] * dy.shape[3]
    exact, magnitudes = reference(g, x, w, dy), reference(g, abs(x), abs(w), abs(dy))
    for actual, expected, magnitude, count in zip(bits[0], exact, magnitudes, terms, strict=True):
        check_close(actual, expected, magnitude, count)


def test_an_epilogue_changes_what_is_stored() -> None:
    """A residual addition from images with another halo, and a sum by an update of the filter."""
    target = TARGETS[0]
    g = Case(2, 3, (5, 5), 19, wider=1).geometry()
    other = Images.dense(2, 5, 5, 19, Halo(3, 2))
    random = np.random.default_rng(0)
    x, y, w = (random.standard_normal(shape, np.float32) for shape in ((2, 3, 5, 5), (2, 19, 5, 5), (19, 3, 3, 3)))
    kernels = Kernels(target)

    def forward(f: Function, p: Any, share: Any) -> None:
        def residual(f: Function, value: Value, pixel: Pixel, channel: Value) -> Value:
            at = f.at(p[3], other.offset(f, pixel, channel), FLOAT)
            return f.max(f.add(value, f.load(at, value.type)), 0.0)

        write_forward(f, g, *p[:3], share, target, residual)

    def update(f: Function, p: Any, share: Any) -> None:
        def descend(f: Function, value: Value, row: Value, column: Value) -> None:
            at = f.at(p[1], f.add(f.mul(row, 27), column), FLOAT)
            f.store(f.fma(value, -0.5, f.load(at, value.type)), at)

        write_filter_gradient(f, g, *p, share, target, descend)

    plain = kernels.add(3, lambda f, p, share: write_forward(f, g, *p, share, target))
    fused = kernels.add(4, forward)
    pack = kernels.add(2, lambda f, p, share: write_packed_filter(f, g, *p, share, target))
    add_up = kernels.add(3, lambda f, p, share: write_partial_filters(f, g, *p, share, target))
    total = kernels.add(2, lambda f, p, share: write_filter_gradient(f, g, *p, share, target))
    descend = kernels.add(2, update)
    packed, image, dy = Guarded((packed_elements(g, target),)), laid_out(g.x, x), laid_out(g.y, y)
    kernels.run(pack, [Guarded.of(w), packed])
    outputs = laid_out(g.y, y * 0), laid_out(g.y, y * 0)
    kernels.run(plain, [image, packed, outputs[0]])
    kernels.run(fused, [image, packed, outputs[1], laid_out(other, y)])
    plain_output, fused_output = (inner(g.y, each.array) for each in outputs)
    assert np.array_equal(fused_output, np.maximum(plain_output + y, 0))
    partials, dw, filter_ = Guarded((partial_elements(g, target),)), Guarded(w.shape), Guarded.of(w)
    for kernel, written in ((total, dw), (descend, filter_)):
        kernels.run(add_up, [image, dy, partials])
        kernels.run(kernel, [partials, written])
    np.testing.assert_allclose(filter_.array, w - 0.5 * dw.array, rtol=1e-5, atol=1e-6)


def test_a_halo_that_is_too_narrow_is_refused() -> None:
    g = Case(1, 2, (4, 4), 3).geometry()
    narrow = replace(g, x=Images.dense(1, 4, 4, 2), y=Images.dense(1, 4, 4, 3))
    with pytest.raises(ValueError, match="the input has a halo of 0 pixels; this kernel reads 1"):
        texts(lambda f, p, share: write_forward(f, narrow, *p, share, TARGETS[0]), 3)
    with pytest.raises(ValueError, match="the gradient of the output has a halo of 0 pixels"):
        texts(lambda f, p, share: write_input_gradient(f, narrow, *p, share, TARGETS[0]), 3)
    rows_alone = replace(narrow, x=Images.dense(1, 4, 4, 2, Halo(1, 0)))
    with pytest.raises(ValueError, match="the input has a halo of 1 x 0 pixels; this kernel reads 1"):
        texts(lambda f, p, share: write_forward(f, rows_alone, *p, share, TARGETS[0]), 3)


def test_the_geometry_says_what_halos_and_how_much_code_it_takes() -> None:
    same, strided, full = Case(1, 2, (8, 8), 3), Case(1, 2, (8, 8), 3, strides=(2, 4)), Case(1, 2, (8, 8), 3, (5, 5), pads=(0, 0))
    facts = [(g.x_halo, g.y_halo, g.places) for g in (case.geometry() for case in (same, strided, full))]
    assert facts == [((1, 1), (1, 1), 1), ((1, 1), (1, 1), 6), ((0, 0), (4, 4), 1)]
    assert Case(1, 2, (80, 80), 3, (64, 64), (32, 32), (16, 16)).geometry().places == 4
    far = Case(1, 2, (1, 3000), 3, (1, 3), pads=(0, 1024), dilations=(1, 1024)).geometry()
    assert (far.x_halo, far.y_halo) == ((0, 1024), (0, 1024))


def test_kernels_compile_for_neon() -> None:
    """The emitters know no processor but the width of its vectors."""
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    neon = Target.of("aarch64-unknown-linux-gnu", "generic", "+neon,+fp-armv8")
    g = Case(2, 5, (7, 6), 9, strides=(2, 1)).geometry()
    depthwise = Case(2, 5, (7, 6), 5, groups=5).geometry()
    assert neon.vector_bytes == 16
    text = texts(lambda f, p, share: write_forward(f, g, *p, share, neon), 3).text
    assert compile_object(text, neon)[:4] == b"\x7fELF"
    text = texts(lambda f, p, share: write_depthwise(f, depthwise, *p, share, neon), 3).text
    assert compile_object(text, neon)[:4] == b"\x7fELF"


@each("depthwise", [False, True])
def test_an_epilogue_is_told_the_column_of_its_pixel(depthwise: bool) -> None:
    """As a value that is right by itself, whatever `Images.offset` makes of the tile that the pixel is in."""
    target = TARGETS[0]
    g = Case(1, 3, (3, 19), 3, (1, 1), pads=(0, 0), groups=3 if depthwise else 1).geometry()
    write = write_depthwise if depthwise else write_forward
    kernels = Kernels(target)

    def body(f: Function, p: Any, share: Any) -> None:
        def column(f: Function, value: Value, pixel: Pixel, channel: Value) -> Value:
            return f.splat(f.convert(f.add(f.mul(pixel.row, 100), pixel.column), FLOAT), value.type.lanes)

        write(f, g, *p, share, target, column)

    kernels.add(3, body)
    zeros = laid_out(g.x, np.zeros((1, 3, 3, 19), np.float32))
    packed, y = Guarded.of(np.zeros(packed_elements(g, target), np.float32)), Guarded(g.y.shape)
    kernels.run(0, [zeros, packed, y])
    assert np.array_equal(y.array, np.broadcast_to(np.add.outer(np.arange(3) * 100, np.arange(19))[None, ..., None], g.y.shape))

"""Convolutions by Winograd's algorithm beside sums over taps in float64, with red zones around every array."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from checked_plans import CheckedTables, checked_plans
from checks import each
from harness import AVX512, TARGETS, nth_target, texts
from red_zones import Guarded, Kernels, check_halo, inner, laid_out
from test_convolution import Case

import fluid
from fluid import layers
from fluid.executor.native.compiler import compile_object
from fluid.executor.native.convolution import Convolution, write_packed_filter, write_packed_filter_for_input
from fluid.executor.native.emitter import DOUBLE, Function, Value
from fluid.executor.native.halo import Halo
from fluid.executor.native.images import Images, Pixel
from fluid.executor.native.target import Target
from fluid.executor.native.winograd import Blocks, forward_blocks, input_blocks, write_blocks, write_transformed_filter
from fluid.executor.native.winograd_gradient import gradient_blocks, write_filter_gradient, write_partial_sums

EPS = np.finfo(np.float32).eps


def by_taps(x: Any, w: Any, pad: int, taps: tuple[int, int] = (3, 3)) -> Any:
    """The convolution of images [N, C, H, W], with as many zeros around them, in float64."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, taps, (2, 3))
    return np.einsum("nchwij,mcij->nmhw", windows, w.astype(np.float64), optimize=True)


B = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
A = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])


def both_sides(matrix: Any, values: Any) -> Any:
    """``M v M^T`` of the last two dimensions, with absolute values."""
    return np.einsum("ij,...jk,lk->...il", abs(matrix), abs(values), abs(matrix))


def tiles_of(images: Any, size: int, pad: int) -> Any:
    """Parts [N, C, rows, columns, size, size] of images, two pixels from each other, with zeros where images end."""
    odd = [extent % 2 for extent in images.shape[2:]]  # of outputs as of images, as padding is on both sides
    padded = np.pad(images, ((0, 0), (0, 0), (pad, pad + odd[0]), (pad, pad + odd[1])))
    return np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))[:, :, ::2, ::2]


def magnitudes(x: Any, w: Any, pad: int) -> Any:
    """For each output, the sum of the magnitudes of all terms that the algorithm adds."""
    products = np.einsum("nchwil,mcil->nmhwil", both_sides(B, tiles_of(x, 4, pad)), both_sides(G, w), optimize=True)
    sums = both_sides(A, products).transpose(0, 1, 2, 4, 3, 5)
    height, width = (extent + 2 * pad - 2 for extent in x.shape[2:])
    return sums.reshape(*sums.shape[:2], sums.shape[2] * 2, sums.shape[4] * 2)[:, :, :height, :width]


def check_close(actual: Any, x: Any, w: Any, pad: int) -> None:
    """Each output within what rounding of its terms may give: sums of 3 or 4, over rows and columns, before and after the sum
    over channels."""
    bound = (w.shape[1] + 14) * EPS * magnitudes(x, w, pad)
    error = np.abs(actual - by_taps(x, w, pad))
    assert (error <= bound).all(), f"off by {(error / bound).max():.2g} of the bound"


CASES = [
    Case(2, 16, (6, 8), 16),
    Case(3, 18, (7, 5), 20, wider=1),
    Case(3, 33, (4, 9), 70, pads=(0, 0)),
    Case(2, 20, (3, 4), 40, pads=(2, 2)),
]
MORE = [
    Case(1, 64, (14, 14), 128),
    Case(9, 16, (1, 1), 16),
    Case(8, 16, (2, 1), 256, wider=2),
    Case(5, 130, (7, 7), 64),
    Case(32, 16, (32, 32), 16),
    Case(2, 512, (4, 4), 64),
    Case(3, 17, (9, 3), 19, pads=(0, 0)),
]


@each("case, which", [(case, number % 2) for number, case in enumerate(CASES)])
def test_results_are_those_of_the_definition(case: Case, which: int) -> None:
    check(case, nth_target(which))


@pytest.mark.slow
@each("case", CASES + MORE)
@each("which", [0, 1])
def test_more_results_are_those_of_the_definition(case: Case, which: int) -> None:
    check(case, nth_target(which))


@each("case, which", [(case, number % 2) for number, case in enumerate(CASES[:3])])
def test_gradients_of_filters_are_those_of_the_definition(case: Case, which: int) -> None:
    check_gradient(replace(case, images=20), nth_target(which))


@pytest.mark.slow
@each("case", [replace(case, images=max(case.images, 20)) for case in CASES + MORE[-3:]])
@each("which", [0, 1])
def test_more_gradients_of_filters_are_those_of_the_definition(case: Case, which: int) -> None:
    check_gradient(case, nth_target(which))


def with_winograd(target: Target) -> Target:
    """A target that uses Winograd's algorithm for every convolution it supports."""
    limits: dict[str, Any] = dict.fromkeys(("winograd_channels", "winograd_tiles", "winograd_gradient_tiles"), 1)
    limits |= dict.fromkeys(("winograd_tile_work", "winograd_filter_work"), 1)
    return replace(target, limits=replace(target.limits, **limits))


def check_gradient(case: Case, target: Target) -> None:
    """Compare the kernels with 1, 2 and 4 threads, on a runnable target; the gradient is added to old contents."""
    g = case.geometry()
    random = np.random.default_rng(0)
    x, dy = (random.standard_normal((i.count, i.channels, i.height, i.width), np.float32) for i in (g.x, g.y))
    target = with_winograd(target)
    blocks = gradient_blocks(g, target)
    assert blocks is not None

    def added(p: Any) -> Any:
        def add(f: Function, value: Value, row: Value, column: Value) -> Value:
            at = f.at(p[1], f.add(f.mul(row, g.channels * 9), column), value.type.of(1))
            return f.add(value, f.load(at, value.type))

        return add

    kernels = Kernels(target)
    sums = kernels.add(3, lambda f, p, share: write_partial_sums(f, blocks, *p, share))
    total = kernels.add(2, lambda f, p, share: write_filter_gradient(f, g, blocks, *p, share, target))
    adding = kernels.add(2, lambda f, p, share: write_filter_gradient(f, g, blocks, *p, share, target, added(p)))
    bits = []
    for threads in (1, 2, 4):
        workspace, result = (
            Guarded(((blocks.shared_bytes + threads * blocks.bytes) // 4,)),
            Guarded((case.filters, g.channels, 3, 3)),
        )
        for kernel in (total, adding):
            kernels.run(sums, [laid_out(g.x, x), laid_out(g.y, dy), workspace], threads)
            kernels.run(kernel, [workspace, result], threads)
            bits.append(result.array.copy())
    assert all(one.tobytes() == bits[0].tobytes() for one in bits[::2]), "the bits depend on the number of threads"
    assert all(np.array_equal(two, 2 * bits[0]) for two in bits[1::2])
    exact = by_taps(x.transpose(1, 0, 2, 3), dy.transpose(1, 0, 2, 3), case.pads[0], dy.shape[2:]).transpose(1, 0, 2, 3)
    images, gradients = both_sides(B, tiles_of(x, 4, case.pads[0])), both_sides(A.T, tiles_of(dy, 2, 0))
    products = np.einsum("nchwil,nmhwil->mcil", images, gradients, optimize=True)
    bound = (images[:, 0, :, :, 0, 0].size + blocks.partials + 14) * EPS * both_sides(G.T, products)
    error = np.abs(bits[0] - exact)
    assert (error <= bound).all(), f"off by {(error / bound).max():.2g} of the bound"


def check(case: Case, target: Target) -> None:
    """Output and the gradient of the input, by the same kernels with 1, 2 and 4 threads, for a processor whose code runs here."""
    g = case.geometry()
    random = np.random.default_rng(0)
    x, dy = (random.standard_normal((i.count, i.channels, i.height, i.width), np.float32) for i in (g.x, g.y))
    w = random.standard_normal((case.filters, case.channels, 3, 3), np.float32)
    turned = w[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
    target = with_winograd(target)
    forward, back = forward_blocks(g, target), input_blocks(g, target)
    assert forward is not None and back is not None
    check_way(target, g, forward, write_packed_filter, (g.x, x), g.y, w, lambda y: check_close(y, x, w, case.pads[0]))
    check_way(
        target,
        g,
        back,
        write_packed_filter_for_input,
        (g.y, dy),
        g.x,
        w,
        lambda dx: check_close(dx, dy, turned, 2 - case.pads[0]),
    )


def check_way(
    target: Any, g: Convolution, blocks: Blocks, pack: Any, given: tuple[Images, Any], wanted: Images, w: Any, close: Any
) -> None:
    """The output, or the gradient of the input, from a filter to the result."""
    kernels = Kernels(target)
    packing = kernels.add(2, lambda f, p, share: pack(f, g, *p, share, target))
    transforming = kernels.add(2, lambda f, p, share: write_transformed_filter(f, blocks, *p, share))
    computing = kernels.add(4, lambda f, p, share: write_blocks(f, blocks, *p, share, None))
    bits = []
    for threads in (1, 2, 4):
        packed, filter_ = Guarded((blocks.packed_bytes // 4,)), Guarded((blocks.filter_elements,))
        result, workspace = laid_out(wanted, np.float32(np.nan)), Guarded((threads * blocks.bytes // 4,))
        kernels.run(packing, [Guarded.of(w), packed], threads)
        kernels.run(transforming, [packed, filter_], threads)
        kernels.run(computing, [laid_out(*given), filter_, result, workspace], threads)
        bits.append(inner(wanted, result.array))
        check_halo(wanted, result)
    assert all(each.tobytes() == bits[0].tobytes() for each in bits[1:]), "the bits depend on the number of threads"
    close(bits[0])


def test_few_blocks_are_computed_with_parts_of_the_filters() -> None:
    """So that all threads have work where there is one image."""
    blocks = forward_blocks(Case(1, 512, (7, 7), 512).geometry(), AVX512)
    assert blocks is not None
    assert (blocks.tiles.blocks, blocks.parts) == (1, 8)


@each("change", ["strides", "dilations", "groups", "kernel", "channels", "element", "tiles"])
def test_what_else_is_left_to_the_definition(change: str) -> None:
    images = Images.dense(2, 8, 8, 32)
    g = Convolution(images, images, (3, 3), pads=(1, 1))
    assert forward_blocks(g, AVX512) is not None
    others = {
        "strides": replace(g, strides=(2, 2), y=Images.dense(2, 4, 4, 32)),
        "dilations": replace(g, dilations=(2, 2), pads=(2, 2)),
        "groups": replace(g, groups=2),
        "kernel": replace(g, kernel=(3, 1), pads=(1, 0)),
        "channels": replace(g, x=Images.dense(2, 8, 8, 15)),
        "element": replace(g, element=DOUBLE),
        "tiles": replace(g, x=Images.dense(1, 4, 4, 32), y=Images.dense(1, 4, 4, 32)),
    }
    assert forward_blocks(others[change], AVX512) is None and input_blocks(others[change], AVX512) is None


def test_kernels_compile_for_neon() -> None:
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    neon = Target.of("aarch64-unknown-linux-gnu", "generic", "+neon,+fp-armv8")
    g = CASES[1].geometry()
    blocks, gradient = forward_blocks(g, neon), gradient_blocks(replace(CASES[1], images=20).geometry(), neon)
    assert blocks is not None and gradient is not None
    for text in (
        texts(lambda f, p, share: write_blocks(f, blocks, *p, share, None), 4).text,
        texts(lambda f, p, share: write_partial_sums(f, gradient, *p, share), 3).text,
    ):
        assert compile_object(text, neon)[:4] == b"\x7fELF"


@each("extents", [(4, 4), (5, 3)], ids=str)
def test_an_epilogue_sees_each_output_once(extents: tuple[int, int]) -> None:
    """A residual addition from images with another halo."""
    target = with_winograd(TARGETS[0])
    g = Case(2, 16, extents, 21, wider=1).geometry()
    other = Images.dense(2, *extents, 21, Halo(2, 3))
    blocks = forward_blocks(g, target)
    assert blocks is not None
    random = np.random.default_rng(0)
    x, y, w = (random.standard_normal(shape, np.float32) for shape in ((2, 16, *extents), (2, 21, *extents), (21, 16, 3, 3)))
    kernels = Kernels(target)

    def residual(p: Any) -> Any:
        def add(f: Function, value: Value, pixel: Pixel, channel: Value) -> Value:
            at = f.at(p[4], other.offset(f, pixel, channel), value.type.of(1))
            return f.add(value, f.load(at, value.type))

        return add

    pack = kernels.add(2, lambda f, p, share: write_packed_filter(f, g, *p, share, target))
    transform = kernels.add(2, lambda f, p, share: write_transformed_filter(f, blocks, *p, share))
    plain = kernels.add(4, lambda f, p, share: write_blocks(f, blocks, *p, share, None))
    fused = kernels.add(5, lambda f, p, share: write_blocks(f, blocks, *p[:4], share, residual(p)))
    packed, filter_ = Guarded((blocks.packed_bytes // 4,)), Guarded((blocks.filter_elements,))
    kernels.run(pack, [Guarded.of(w), packed])
    kernels.run(transform, [packed, filter_])
    workspace, outputs = Guarded((blocks.bytes // 4,)), [laid_out(g.y, y * 0) for _ in range(2)]
    kernels.run(plain, [laid_out(g.x, x), filter_, outputs[0], workspace])
    kernels.run(fused, [laid_out(g.x, x), filter_, outputs[1], workspace, laid_out(other, y)])
    plain_output, fused_output = (inner(g.y, each.array) for each in outputs)
    assert np.array_equal(fused_output, plain_output + y)


@each("number", [np.nan, np.inf], ids=str)
def test_what_is_not_finite_reaches_the_outputs_that_read_it(number: float) -> None:
    """And no others, wherever in a tile it is; of infinities there may be NaN."""
    x = np.zeros((4, 16, 12, 12), np.float32)
    for image, (row, column) in enumerate(((4, 4), (4, 5), (5, 4), (5, 5))):
        x[image, 3, row, column] = number
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        h = layers.conv2d(fluid.data("x", x.shape), 16, 3, padding=1, bias_attr=False)
        y = layers.relu(h)  # one op alone stays numpy's
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(fluid.default_startup_program(), scope=scope)
        result, _ = executor.run(feed={"x": x}, fetch_list=[h, y], scope=scope)
        assert "native code: 2 ops" in str(executor.plan(feed={"x": x}, fetch_list=[h, y], scope=scope))
    reached = np.zeros((4, 12, 12), bool)
    for image, (row, column) in enumerate(((4, 4), (4, 5), (5, 4), (5, 5))):
        reached[image, row - 1 : row + 2, column - 1 : column + 2] = True
    assert np.array_equal(~np.isfinite(result), np.broadcast_to(reached[:, None], result.shape))


@pytest.mark.parametrize("checked", [False, True])
def test_a_net_trains_as_on_numpy(checked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions of both kinds, with odd extents, in native code and on numpy, and with each access to memory checked."""
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [3, 3, 9, 9])
        h = layers.conv2d(x, 18, 3, padding=1, act="relu")
        h = layers.relu(layers.conv2d(h, 20, 3, padding=1) + layers.conv2d(h, 20, 1))
        h = layers.batch_norm(layers.conv2d(h, 17, 3, padding=0), act="relu")
        loss = layers.mean(layers.square(h))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
        main, startup = fluid.default_main_program(), fluid.default_startup_program()
    main.random_seed = startup.random_seed = 1
    feed = {"x": np.random.default_rng(0).standard_normal((3, 3, 9, 9), np.float32)}

    def train() -> list[float]:
        executor, scope = fluid.Executor(), fluid.Scope()
        executor.run(startup, scope=scope)
        return [executor.run(main, feed, [loss], scope=scope)[0].item() for _ in range(4)]

    monkeypatch.setenv("FLUID_NATIVE", "0")
    expected = train()
    monkeypatch.setenv("FLUID_NATIVE", "1")
    if checked:
        with checked_plans(monkeypatch):
            losses = train()
            assert CheckedTables.calls
    else:
        losses = train()
    np.testing.assert_allclose(losses, expected, rtol=2e-6)

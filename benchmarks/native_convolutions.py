"""Native convolutions and pools beside torch's, in one thread and in two, and how much of the processor's peak they reach.

    python benchmarks/native_convolutions.py [--avx2] [--only WORD]

Times are the least processor times of a call in one thread, in turns with torch; torch has the faster of its two layouts. Two
threads each take their share of many calls; what they gain is the time of one thread over that of the slower of the two. The
algorithm of Winograd has 4 / 9 of the multiplications that are counted here, so that it goes beyond the peak.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import CFUNCTYPE, c_int64, c_void_p
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from common import header
from native_calls import PEAK_SUMS, Body, aligned, peak_body
from torch.nn import functional

from fluid.executor.native import convolution, depthwise, winograd, winograd_gradient
from fluid.executor.native.compiler import Library, compile_object, host
from fluid.executor.native.emitter import FLOAT, Module
from fluid.executor.native.geometry import Convolution
from fluid.executor.native.halo import Halo
from fluid.executor.native.images import Images
from fluid.executor.native.kernel import write_kernel
from fluid.executor.native.pooling import (
    PoolGeometry,
    write_average_pool,
    write_average_pool_gradient,
    write_max_pool,
    write_max_pool_gradient,
)
from fluid.executor.native.target import Target

ROUNDS, CALLS = 5, 3
_random = np.random.default_rng(0)


@dataclass
class Kernel:
    """A compiled kernel with its operands."""

    body: Body
    operands: list[Any]
    seconds: float = field(init=False)

    def __post_init__(self) -> None:
        start = time.process_time()
        module = Module(host())
        write_kernel(module, "kernel", len(self.operands), self.body)
        code = compile_object(module.text, host())
        self.seconds = time.process_time() - start
        self._library = Library([code], module.footprints)
        self._words = np.array([array.ctypes.data for array in self.operands], np.int64)
        self._call = CFUNCTYPE(None, c_void_p, c_int64, c_int64)(self._library.addresses["kernel"])

    def __call__(self, thread: int = 0, threads: int = 1) -> None:
        self._call(self._words.ctypes.data, thread, threads)


def without_halo(images: Images, array: Any) -> Any:
    """The images of an array, without their halo."""
    rows, columns = images.halo
    return array[:, rows : rows + images.height, columns : columns + images.width]


def images_of(images: Images) -> tuple[Any, Any]:
    """An array laid out as `images`, and the same images as [N, C, H, W]."""
    array = aligned(images.shape)
    inner = without_halo(images, array)
    inner[...] = _random.standard_normal(inner.shape, np.float32)
    return array, np.ascontiguousarray(inner.transpose(0, 3, 1, 2))


def least_times(*runs: Callable[[], Any]) -> list[float]:
    """The least processor time of a call of each, in turns."""
    times = [float("inf")] * len(runs)
    for _ in range(ROUNDS):
        for number, run in enumerate(runs):
            for _ in range(CALLS):
                start = time.process_time()
                run()
                times[number] = min(times[number], time.process_time() - start)
    return times


def gain(kernels: Sequence[Kernel]) -> float:
    """How many times faster two threads are than one, each with its share of many calls."""

    def share(thread: int, threads: int) -> float:
        best = float("inf")
        for _ in range(4 * ROUNDS):
            start = time.thread_time()
            for kernel in kernels:
                kernel(thread, threads)
            best = min(best, time.thread_time() - start)
        return best

    alone = share(0, 1)
    with ThreadPoolExecutor(2) as pool:
        return alone / max(pool.map(share, (0, 1), (2, 2)))


def peak(vector_bytes: int) -> float:
    """Multiply-adds of this processor at its best, as GFLOP/s of one thread."""
    turns, values = 1_000_000, aligned((PEAK_SUMS + 1) * vector_bytes // 4)
    seconds = least_times(Kernel(peak_body(FLOAT, vector_bytes, turns), [values]))[0]
    return 2 * turns * PEAK_SUMS * vector_bytes / 4 / seconds / 1e9


def show(what: str, kernels: Sequence[Kernel], torch_runs: Sequence[Callable[[], Any]], work: float, best: float) -> None:
    """Print a row: times, ratio, GFLOP/s and share of the peak where `work` counts multiply-adds, gain of two threads."""
    ours, *theirs = least_times(lambda: [kernel() for kernel in kernels], *torch_runs)
    rate = f"{2 * work / ours / 1e9:4.0f} GFLOP/s {100 * 2 * work / ours / 1e9 / best:3.0f} %" if work else f"{'':18}"
    ratio = f"torch {min(theirs) * 1e3:8.3f} ms {ours / min(theirs):5.2f}" if theirs else f"{'':23}"
    compiled = sum(kernel.seconds for kernel in kernels) * 1e3
    print(
        f"{what:44} {ours * 1e3:8.3f} ms {rate}  {ratio}  two threads {gain(kernels):4.2f}  compiled in {compiled:3.0f} ms",
        flush=True,
    )


def convolutions(target: Target, best: float, word: str) -> None:
    dense = [
        ("ResNet-20", 32, 16, 32, 16, 3, 1),
        ("ResNet-20", 32, 16, 32, 32, 3, 2),
        ("ResNet-20", 32, 32, 16, 32, 3, 1),
        ("ResNet-20", 32, 32, 16, 64, 3, 2),
        ("ResNet-20", 32, 64, 8, 64, 3, 1),
        ("ResNet-20, first", 32, 3, 32, 16, 3, 1),
        ("LeNet, first", 64, 1, 28, 20, 5, 1),
        ("LeNet, second", 64, 20, 12, 50, 5, 1),
        ("ResNet-50, first", 2, 3, 224, 64, 7, 2),
        ("ResNet-50", 4, 64, 56, 64, 3, 1),
        ("ResNet-50", 4, 64, 56, 256, 1, 1),
        ("ResNet-50", 4, 256, 56, 64, 1, 1),
        ("ResNet-50", 4, 128, 56, 128, 3, 2),
        ("ResNet-50", 4, 256, 56, 512, 1, 2),
        ("ResNet-50", 4, 128, 28, 128, 3, 1),
        ("ResNet-50", 4, 256, 14, 256, 3, 1),
        ("ResNet-50", 4, 1024, 14, 256, 1, 1),
        ("ResNet-50", 4, 512, 7, 512, 3, 1),
        ("ResNet-50", 1, 512, 7, 512, 3, 1),
        ("ResNet-50", 1, 64, 56, 64, 3, 1),
    ]
    separate = [
        ("MobileNet", 8, 32, 112, 32, 3, 1),
        ("MobileNet", 8, 96, 112, 96, 3, 2),
        ("MobileNet", 8, 144, 56, 144, 3, 1),
        ("MobileNet", 8, 384, 14, 384, 3, 1),
        ("MobileNet", 8, 960, 7, 960, 3, 1),
        ("MobileNet", 1, 384, 14, 384, 3, 1),
    ]
    for cases, is_depthwise in ((dense, False), (separate, True)):
        for name, *case in cases:
            what = f"{name} N{case[0]} C{case[1]} {case[2]}x{case[2]} M{case[3]} {case[4]}x{case[4]} s{case[5]}"
            if word in what:
                convolution_rows(what, is_depthwise, *case, target, best)


def convolution_rows(
    what: str, is_depthwise: bool, n: int, c: int, h: int, m: int, k: int, stride: int, target: Target, best: float
) -> None:
    """Output, gradient of the input and of the filter, and packing, of one convolution."""
    pad = k // 2 if "LeNet" not in what else 0
    out, groups = (h + 2 * pad - k) // stride + 1, c if is_depthwise else 1
    g = Convolution(Images.dense(n, h, h, c), Images.dense(n, out, out, m), (k, k), (stride, stride), (pad, pad), groups=groups)
    g = replace(g, x=Images.dense(n, h, h, c, g.x_halo), y=Images.dense(n, out, out, m, g.y_halo))
    (x, x_torch), (dy, dy_torch) = images_of(g.x), images_of(g.y)
    y, dx = aligned(g.y.shape), aligned(g.x.shape)
    w = aligned((m, c // groups, k, k))
    w[...] = _random.standard_normal(w.shape, np.float32)
    if is_depthwise:
        sizes = c * k * k, c * k * k, depthwise.depthwise_partial_elements(g, target)
        writers: tuple[Any, ...] = (depthwise.write_packed_depthwise,) * 2
        writers += (depthwise.write_depthwise, depthwise.write_depthwise_input_gradient)
        add_up, total = depthwise.write_depthwise_partial_filters, depthwise.write_depthwise_filter_gradient
    else:
        sizes = (
            convolution.packed_elements(g, target),
            convolution.packed_elements_for_input(g, target),
            convolution.partial_elements(g, target),
        )
        writers = (convolution.write_packed_filter, convolution.write_packed_filter_for_input)
        writers += (convolution.write_forward, convolution.write_input_gradient)
        add_up, total = convolution.write_partial_filters, convolution.write_filter_gradient
    packed, packed_back, partials = (aligned((size,)) for size in sizes)
    dw = aligned(w.shape)
    operands = [w, packed], [w, packed_back], [x, packed, y], [dy, packed_back, dx]
    pack, pack_back, forward, back = (
        Kernel(lambda f, p, share, write=write: write(f, g, *p, share, target), list(arrays))
        for write, arrays in zip(writers, operands, strict=True)
    )
    if not is_depthwise:
        forward = in_blocks(g, winograd.forward_blocks(g, target), pack, [w, x, y]) or forward
        back = in_blocks(g, winograd.input_blocks(g, target), pack_back, [w, dy, dx]) or back
    sums = [
        Kernel(lambda f, p, share: add_up(f, g, *p, share, target), [x, dy, partials]),
        Kernel(lambda f, p, share: total(f, g, *p, share, target), [partials, dw]),
    ]
    gradient = None if is_depthwise else winograd_gradient.gradient_blocks(g, target)
    if gradient is not None:
        workspace = aligned((gradient.shared_bytes // 4 + gradient.bytes // 2,))
        sums = [
            Kernel(lambda f, p, share: winograd_gradient.write_partial_sums(f, gradient, *p, share), [x, dy, workspace]),
            Kernel(
                lambda f, p, share: winograd_gradient.write_filter_gradient(f, g, gradient, *p, share, target), [workspace, dw]
            ),
        ]
    pack()
    pack_back()
    tensors = [torch.from_numpy(array) for array in (x_torch, w, dy_torch)]
    layouts = [tensors, [tensor.to(memory_format=torch.channels_last) for tensor in tensors]]

    def forward_of(tx: Any, tw: Any, _: Any) -> Callable[[], Any]:
        return lambda: functional.conv2d(tx, tw, None, stride, pad, 1, groups)

    def back_of(tx: Any, tw: Any, td: Any, mask: tuple[bool, bool, bool]) -> Callable[[], Any]:
        sides = (stride, stride), (pad, pad), (1, 1), False, (0, 0), groups
        return lambda: torch.ops.aten.convolution_backward(td, tx, tw, None, *sides, mask)

    work = n * out * out * m * (c // groups) * k * k
    show(f"{what}, output", [forward], [forward_of(*each) for each in layouts], work, best)
    if c > 3:
        show(f"{what}, input", [back], [back_of(*each, (True, False, False)) for each in layouts], work, best)
    show(f"{what}, filter", sums, [back_of(*each, (False, True, False)) for each in layouts], work, best)
    show(f"{what}, packing", [pack, pack_back], [], 0, best)
    expected = forward_of(*tensors)().numpy()
    found = without_halo(g.y, y).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * abs(expected).max(), err_msg=what)


def in_blocks(g: Convolution, blocks: winograd.Blocks | None, pack: Kernel, operands: Sequence[Any]) -> Kernel | None:
    """The convolution by Winograd's algorithm, where native code computes it so; its filter is transformed here."""
    if blocks is None:
        return None
    w, source, target = operands
    packed, filter_, workspace = (
        aligned((size,)) for size in (blocks.packed_bytes // 4, blocks.filter_elements, blocks.bytes // 2)
    )
    Kernel(pack.body, [w, packed])()
    Kernel(lambda f, p, share: winograd.write_transformed_filter(f, blocks, *p, share), [packed, filter_])()
    return Kernel(lambda f, p, share: winograd.write_blocks(f, blocks, *p, share, None), [source, filter_, target, workspace])


def pools(target: Target, best: float, word: str) -> None:
    cases = [(32, 16, 32, 2, 2, 0), (64, 20, 24, 2, 2, 0), (8, 64, 112, 3, 2, 1), (8, 192, 28, 3, 1, 1), (8, 512, 7, 7, 1, 0)]
    for n, c, h, k, stride, pad in cases:
        what = f"pool N{n} C{c} {h}x{h} {k}x{k} s{stride} p{pad}"
        if word in what:
            pool_rows(what, n, c, h, k, stride, pad, target, best)


def pool_rows(what: str, n: int, c: int, h: int, k: int, stride: int, pad: int, target: Target, best: float) -> None:
    """Maxima and averages, and their gradients."""
    out = (h + 2 * pad - k) // stride + 1
    pool = PoolGeometry(
        Images.dense(n, h, h, c, Halo(pad, pad)), Images.dense(n, out, out, c), (k, k), (stride, stride), ((pad, pad), (pad, pad))
    )
    pool = replace(pool, y=Images.dense(n, out, out, c, pool.y_halo))
    (x, x_torch), (dy, dy_torch) = images_of(pool.x), images_of(pool.y)
    y, positions, dx = aligned(pool.y.shape), aligned(pool.y.shape, np.int8), aligned(pool.x.shape)
    kernels = {
        "maxima, positions": Kernel(
            lambda f, p, share: write_max_pool(f, pool, p[0], p[1], share, target, p[2]), [x, y, positions]
        ),
        "maxima, gradient": Kernel(lambda f, p, share: write_max_pool_gradient(f, pool, *p, share, target), [positions, dy, dx]),
        "averages": Kernel(lambda f, p, share: write_average_pool(f, pool, *p, True, share, target), [x, y]),
        "averages, gradient": Kernel(lambda f, p, share: write_average_pool_gradient(f, pool, *p, True, share, target), [dy, dx]),
    }
    sizes = [k, k], [stride, stride], [pad, pad]
    aten = torch.ops.aten

    def torch_runs(layout: Any) -> list[Callable[[], Any]]:
        tx, td = (torch.from_numpy(each).to(memory_format=layout) for each in (x_torch, dy_torch))
        index = functional.max_pool2d(tx, k, stride, pad, return_indices=True)[1]
        return [
            lambda: functional.max_pool2d(tx, k, stride, pad, return_indices=True),
            lambda: aten.max_pool2d_with_indices_backward(td, tx, *sizes, [1, 1], False, index),
            lambda: functional.avg_pool2d(tx, k, stride, pad, count_include_pad=False),
            lambda: aten.avg_pool2d_backward(td, tx, *sizes, False, False, None),
        ]

    runs = zip(torch_runs(torch.contiguous_format), torch_runs(torch.channels_last), strict=True)
    for (name, kernel), both in zip(kernels.items(), runs, strict=True):
        show(f"{what}, {name}", [kernel], both, 0, best)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--avx2", action="store_true", help="vectors of 256 bits, whatever the processor has")
    parser.add_argument("--only", default="", help="rows that have this in their names")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    header("Native convolutions and pools")
    target = replace(host(), vector_bytes=min(host().vector_bytes, 32)) if options.avx2 else host()
    best = peak(target.vector_bytes)
    print(f"vectors of {8 * target.vector_bytes} bits; peak of multiply-adds in one thread: {best:.0f} GFLOP/s\n")
    convolutions(target, best, options.only)
    pools(target, best, options.only)


if __name__ == "__main__":
    main()

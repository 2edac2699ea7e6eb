"""Matrix products as native kernels beside OpenBLAS and the peak of fused multiply-adds, in one thread; what two threads gain.

Both are called by the same compiled loop, so that no time of Python's is counted. Speeds are the best of several rounds in turns,
of the thread's own time, in units of 10^9 additions and multiplications a second; what two threads gain is of time on the clock,
and says nothing where other processes have the cores. Orders: "n" for rows that are contiguous, "t" for columns, of A and of B.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from common import header
from native_calls import HOST, PEAK_STEPS, PEAK_SUMS, Body, Runner, aligned, compiled, least, peak_body, words

import fluid
from fluid.executor.native.emitter import DOUBLE, FLOAT, INT64, Function, Type, Value
from fluid.executor.native.kernel import Share
from fluid.executor.native.matmul import MatrixProduct, packed_bytes, workspace_bytes, write_pack, write_product

STEPS = 35
"""Of the recurrence whose B is packed once."""


@dataclass(frozen=True)
class Case:
    what: str
    rows: int
    columns: int
    inner: int
    order: str = "nn"
    heads: tuple[int, int] = ()

    def product(self, element: Type) -> MatrixProduct:
        """The product; with heads, which lie beside each other in rows of A and of B, one for each of a batch."""
        count = self.heads[1] if self.heads else 1
        a_row = self.inner if self.order[0] == "n" else self.rows
        b_row = self.columns if self.order[1] == "n" else self.inner
        a, b = (
            (row * count, 1) if order == "n" else (1, row * count) for row, order in zip((a_row, b_row), self.order, strict=True)
        )
        sizes = self.rows, self.columns, self.inner
        batch = ()
        if self.heads:
            a_size, b_size, c_size = (x * y for x, y in ((sizes[0], sizes[2]), (sizes[2], sizes[1]), (sizes[0], sizes[1])))
            batch = ((self.heads[0], a_size * count, b_size * count, c_size * count), (count, a_row, b_row, c_size))
        return MatrixProduct(*sizes, a, b, self.columns, batch, element=element)


CUBES = [Case("cube", size, size, size) for size in (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)]
NETWORKS = [
    Case("tiny", 16, 32, 32),
    Case("MLP 1", 64, 512, 784),
    Case("MLP 1, weights", 784, 512, 64, "tn"),
    Case("MLP 2", 64, 512, 512),
    Case("MLP 2, input", 64, 512, 512, "nt"),
    Case("MLP 2, weights", 512, 512, 64, "tn"),
    Case("MLP 3", 64, 10, 512),
    Case("MLP 3, input", 64, 512, 10, "nt"),
    Case("MLP 3, weights", 512, 10, 64, "tn"),
    Case("transformer", 512, 128, 128),
    Case("transformer, weights", 128, 128, 512, "tn"),
    Case("transformer, wide", 512, 512, 128),
    Case("transformer, wide, input", 512, 128, 512, "nt"),
    Case("transformer, wide, weights", 128, 512, 512, "tn"),
    Case("transformer, narrow", 512, 128, 512),
    Case("attention", 64, 64, 32, "nt", (8, 4)),
    Case("attention, values", 64, 32, 64, "nn", (8, 4)),
    Case("LSTM", 20, 1024, 256, "nt"),
    Case("LSTM, input", 20, 256, 1024),
    Case("LSTM, weights", 256, 1024, 700, "tn"),
    Case("deep MLP", 512, 1024, 1024),
    Case("deep MLP, input", 512, 1024, 1024, "nt"),
    Case("deep MLP, weights", 1024, 1024, 512, "tn"),
    Case("long", 64, 64, 8192, "tn"),
    Case("outer", 512, 512, 1),
    Case("matrix, vector", 512, 1, 512),
    Case("vector, matrix", 1, 512, 512),
    Case("vector, transposed", 1, 512, 512, "nt"),
]


def product_body(product: MatrixProduct) -> Body:
    return lambda f, pointers, share: write_product(f, product, *pointers[:3], share, pointers[3], HOST)


def pack_body(product: MatrixProduct) -> Body:
    return lambda f, pointers, share: write_pack(f, product, *pointers, share, HOST)


def blas_body(product: MatrixProduct) -> Body:
    """Calls OpenBLAS, whose address is the first operand, for each product of the batch."""
    word = INT64 if blas_words() == 64 else Type("i32")
    rows_a, rows_b = product.a_strides[1] == 1, product.b_strides[1] == 1
    a_pitch, b_pitch = product.a_strides[not rows_a], product.b_strides[not rows_b]
    orders = f"i32 101, i32 {111 if rows_a else 112}, i32 {111 if rows_b else 112}"
    sizes = ", ".join(f"{word} {size}" for size in (product.rows, product.columns, product.inner))

    def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
        routine, *abc = pointers
        element = product.element

        def call(number: Value) -> None:
            rest, (a, b, c) = number, abc
            for extent, *strides in reversed(product.batch):
                index, rest = f.rem(rest, extent), f.div(rest, extent)
                a, b, c = (f.at(place, f.mul(index, stride), element) for place, stride in zip((a, b, c), strides, strict=True))
            scales = f"{element} 1.0, ptr {a}, {word} {a_pitch}, ptr {b}, {word} {b_pitch}, {element} 0.0, ptr {c}"
            f.write(f"call void {routine}({orders}, {sizes}, {scales}, {word} {product.c_stride})")

        f.loop(0, product.items, 1, [], call)

    return body


def blas_address(element: Type) -> tuple[int, int] | None:
    """The address of numpy's OpenBLAS's product, and the bits of its integers; None if numpy has another BLAS."""
    library = ctypes.CDLL(np._core._multiarray_umath.__file__)
    for prefix in ("scipy_", ""):
        for suffix, bits in (("64_", 64), ("", 32)):
            routine = getattr(library, f"{prefix}cblas_{'s' if element == FLOAT else 'd'}gemm{suffix}", None)
            if routine is not None:
                return ctypes.cast(routine, ctypes.c_void_p).value or 0, bits
    return None


def blas_words() -> int:
    address = blas_address(FLOAT)
    return address[1] if address else 64


def measure(case: Case, element: Type, threads: int, is_packed: bool = False) -> str:
    product, dtype = case.product(element), np.float32 if element == FLOAT else np.float64
    items, random = product.items, np.random.default_rng(0)
    a, b, c, of_blas = (
        aligned(items * x * y, dtype)
        for x, y in ((case.rows, case.inner), (case.inner, case.columns), (case.rows, case.columns), (case.rows, case.columns))
    )
    a[:], b[:] = random.standard_normal(len(a)), random.standard_normal(len(b))
    used = replace(product, b_is_packed=is_packed)
    workspace = aligned(workspace_bytes(used, HOST) * threads, np.uint8)
    packed = aligned(packed_bytes(product, HOST), np.uint8) if is_packed else b
    bodies = {"product": (4, product_body(used))}
    records = [("product", words(a, packed, c, workspace))]
    if is_packed:
        bodies["pack"] = 2, pack_body(product)
        records = [("pack", words(b, packed)), *records * STEPS]
    library, compiling = compiled(bodies)
    ours = Runner(library, records)
    peak_memory = aligned((PEAK_SUMS + 1) * HOST.vector_bytes, np.uint8)
    runners = {"native": (ours, 1), "more": (ours, threads)}
    peak, _ = compiled({"peak": (1, peak_body(element))})
    runners["peak"] = Runner(peak, [("peak", words(peak_memory))]), 1
    address = blas_address(element)
    if address is not None:
        blas, _ = compiled({"blas": (4, blas_body(product))})
        runners["OpenBLAS"] = Runner(blas, [("blas", words(address[0], a, b, of_blas))]), 1
    seconds, clock = least(runners)
    if address is not None:
        assert np.allclose(c, of_blas, rtol=0, atol=1e-3 * case.inner**0.5), case
        seconds["OpenBLAS"] *= STEPS if is_packed else 1
    flops = 2e-9 * items * case.rows * case.columns * case.inner * (STEPS if is_packed else 1)
    highest = 2e-9 * PEAK_STEPS * PEAK_SUMS * (HOST.vector_bytes // element.bytes) / seconds["peak"]
    native, beside = flops / seconds["native"], flops / seconds.get("OpenBLAS", float("nan"))
    gain = f"{clock['native'] / clock['more']:.2f}"
    kind = "float32" if element == FLOAT else "float64"
    shape = f"{case.rows} x {case.columns} x {case.inner} {case.order}" + (f", {items} times" if case.heads else "")
    name = case.what + (", B packed once" if is_packed else "")
    speeds = f"{native:.1f} | {beside:.1f} | {native / beside:.2f} | {native / highest:.2f}"
    return f"| {name} | {shape} | {kind} | {speeds} | {gain} | {compiling * 1e3:.0f} ms |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="which products: those in whose names one of these words is")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    fluid.set_num_threads(1)
    header(f"Matrix products, native and OpenBLAS's, with vectors of {HOST.vector_bytes} bytes", torch=False)
    print(f"| what | shape | type | native | OpenBLAS | ratio | of the peak | {arguments.threads} threads | compiled in |")
    print("|---" * 9 + "|")
    for element in (FLOAT, DOUBLE):
        for case in (*CUBES, *NETWORKS):
            if not arguments.words or any(word in case.what for word in arguments.words):
                print(measure(case, element, arguments.threads), flush=True)
                if case.what == "LSTM":
                    print(measure(case, element, arguments.threads, is_packed=True), flush=True)


if __name__ == "__main__":
    main()

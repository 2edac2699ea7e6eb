"""Native matrix products, held against numpy in float64: every way of computing them, edge sizes, strides, threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from checks import Checks
from harness import CROSS, TARGETS, compiled, emits

from fluid.executor.native.emitter import DOUBLE, FLOAT, Function, Type, Value
from fluid.executor.native.kernel import Share
from fluid.executor.native.matmul import (
    Epilogue,
    MatrixProduct,
    _plain,
    _tiling,
    packed_bytes,
    workspace_bytes,
    write_pack,
    write_product,
)
from fluid.executor.native.target import Target

Array = Any
Body = Callable[[Function, Sequence[Value], Share], None]


@dataclass(frozen=True)
class Case:
    """A product: the layouts of A and B, and its options.

    Orders are "n" for by rows, "t" for by columns, "s" for gaps everywhere, "r" for rows and columns in reverse, and "0" for one
    row that stands for all.
    """

    rows: int
    columns: int
    inner: int
    order: str = "nn"
    batch: tuple[int, ...] = ()
    shares_b: bool = False
    accumulates: bool = False
    gap: int = 0


CASES = [
    Case(0, 5, 3),
    Case(5, 0, 3),
    Case(3, 5, 0, gap=1),
    Case(1, 1, 1),
    Case(1, 1, 37, "tt"),
    Case(7, 3, 1, "ts"),
    Case(16, 32, 32),
    Case(13, 75, 9, "tn", gap=3),
    Case(5, 17, 33, "st", accumulates=True),
    Case(37, 45, 21, "nt", gap=2),
    Case(9, 35, 8, "ss"),
    Case(1, 150, 20),
    Case(1, 43, 50, "nt", accumulates=True),
    Case(43, 1, 50, "nn", gap=2, accumulates=True),
    Case(70, 1, 50, "tn"),
    Case(70, 1, 50, "tn", gap=4, accumulates=True),
    Case(100, 10, 60, "tn", gap=1, accumulates=True),
    Case(40, 3, 40, "st"),
    Case(9, 21, 12, "rr"),
    Case(9, 21, 12, "00"),
    Case(64, 10, 100, gap=1),
    Case(11, 6, 130, "nt"),
    Case(6, 21, 2500, "tn", accumulates=True),
    Case(40, 9, 2101, "tn", gap=1),
    Case(20, 33, 1500, "tt"),
    Case(4, 6, 5, batch=(2, 3)),
    Case(12, 20, 16, "nt", batch=(3, 2), shares_b=True, accumulates=True),
    Case(2, 2, 2, batch=(0, 4)),
]
LARGE = [Case(130, 530, 600, gap=1), Case(250, 130, 1030, "tn"), Case(30, 130, 700, "tn")]
"""Products that copy B, or A."""


def _ways() -> Iterator[tuple[Target, Type, list[Case]]]:
    """Processors, element types and cases, not in all combinations."""
    yield TARGETS[0], FLOAT, CASES
    yield TARGETS[-1], DOUBLE, CASES[1::2]
    yield replace(TARGETS[-1], vector_bytes=16), FLOAT, CASES[::2]
    in_blocks = _with_limits(block_bytes=5000, block_result_bytes=1, streamed_bytes=1, packed_rows=20, packed_bytes=1)
    yield in_blocks, FLOAT, [*CASES, Case(40, 107, 24, "nt"), Case(40, 107, 70), Case(15, 107, 70, accumulates=True)]


def _with_limits(**limits: int) -> Target:
    return replace(TARGETS[-1], limits=replace(TARGETS[-1].limits, **limits))


class Operands:
    """A, B and C of a case, and the product that they say."""

    def __init__(self, case: Case, element: Type) -> None:
        random, dtype = np.random.default_rng(0), np.float32 if element == FLOAT else np.float64

        def draw(batch: Sequence[int], rows: int, columns: int, order: str) -> Array:
            down, along, gap = {"s": (2, 3, 0), "r": (-1, -1, 0), "c": (1, 1, case.gap)}.get(order, (1, 1, 0))
            shape = (rows * abs(down), columns * abs(along) + gap)
            numbers = random.standard_normal((*batch, *(shape[::-1] if order == "t" else shape))).astype(dtype)
            if order == "0":
                return np.broadcast_to(numbers[..., :1, :], numbers.shape)
            numbers = numbers.swapaxes(-1, -2) if order == "t" else numbers[..., : columns * abs(along)]
            return numbers[..., ::down, ::along]

        self.a = draw(case.batch, case.rows, case.inner, case.order[0])
        b = draw(() if case.shares_b else case.batch, case.inner, case.columns, case.order[1])
        self.b = np.broadcast_to(b, (*case.batch, *b.shape[-2:]))
        self.c = draw(case.batch, case.rows, case.columns, "c")
        a, b, c = ([stride // dtype().itemsize for stride in array.strides] for array in (self.a, self.b, self.c))
        batch = tuple(zip(case.batch, a[:-2], b[:-2], c[:-2], strict=True))
        sizes = case.rows, case.columns, case.inner
        self.product = MatrixProduct(*sizes, (a[-2], a[-1]), (b[-2], b[-1]), c[-2], batch, case.accumulates, element)

    def exact(self) -> tuple[Array, Array]:
        """The product in float64, and how far a kernel may be from it."""
        a, b, c = (array.astype(np.float64) for array in (self.a, self.b, self.c))
        held = c if self.product.accumulates else np.zeros_like(c)
        eps = np.finfo(self.c.dtype).eps
        return a @ b + held, (self.product.inner + 1) * eps * (np.abs(a) @ np.abs(b) + np.abs(held)) + 1e-300

    def workspace(self, target: Target, threads: int) -> Array:
        return np.full((threads, workspace_bytes(self.product, target) // 4), np.nan, np.float32)


def _product(product: MatrixProduct, target: Target, epilogue: Epilogue | None = None) -> Body:
    def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
        a, b, c, workspace = pointers
        write_product(f, product, a, b, c, share, workspace, target, epilogue)

    return body


def check_product(case: Case, target: Target, element: Type, checked: bool) -> Array:
    """The product, computed by 1, 2 and 4 threads: the same bits, near the exact ones. Returns the workspace of four."""
    operands = Operands(case, element)
    kernels = compiled(_product(operands.product, target), 4, target, checked)
    results = []
    for threads in (1, 2, 4):
        arrays = [operands.a, operands.b, operands.c, operands.workspace(target, threads)]
        _, _, result, workspace = kernels(arrays, threads)
        results.append(result)
    exact, bound = operands.exact()
    error = np.abs(results[0] - exact)
    assert (error <= bound).all(), f"{error.max()} from the exact product"
    for other in results[1:]:
        assert results[0].tobytes() == other.tobytes(), "threads change bits"
    return workspace


def test_products_are_near_the_exact_ones() -> None:
    with Checks() as check:
        for target, element, cases in _ways():
            for case in cases:
                with check(f"{case}, {element}, {target.vector_bytes} bytes"):
                    check_product(case, target, element, checked=element == FLOAT and target.vector_bytes > 16)


def test_cases_are_computed_in_all_ways() -> None:
    """If this fails, the choice of the way has changed, and the cases must be adapted."""
    for target in TARGETS:
        tilings = [_tiling(_plain(Operands(case, FLOAT).product), target) for case in CASES if case.rows * case.columns]
        assert {tiling.way for tiling in tilings} == {"spread", "turned", "dots"}
        assert {tiling.axis for tiling in tilings} == {"batch", "columns", "rows"}
        assert {(tiling.way, tiling.packs) for tiling in tilings} > {("spread", True), ("turned", True), ("turned", False)}
        large = [_tiling(_plain(Operands(case, FLOAT).product), target) for case in LARGE]
        assert any(tiling.packs for tiling in large)
        assert any(tiling.packs_a for tiling in large)


def test_operands_of_large_products_are_copied() -> None:
    """A panel at a time of B, from some megabyte on; A where it lies by columns that are long, or many."""
    with Checks() as check:
        for case in LARGE:
            with check(str(case)):
                bytes_ = workspace_bytes(Operands(case, FLOAT).product, TARGETS[-1])
                assert 0 < bytes_ < 4 * (case.rows + case.columns) * case.inner
                workspace = check_product(case, TARGETS[-1], FLOAT, checked=False)
                assert not np.isnan(workspace).all(axis=1).any(), "each thread uses its own part"


def test_a_large_result_is_written_row_by_row() -> None:
    """The gradient of a weight is large, and each element is a short sum: writing it takes most of the time."""
    target = replace(TARGETS[-1], vector_bytes=32, registers=16)
    gradient = MatrixProduct(2048, 1024, 8, (1, 2048), (1024, 1), 1024)
    small = replace(gradient, rows=128, a_strides=(1, 128))
    assert _tiling(gradient, target).block == -(-1024 // _tiling(gradient, target).columns)
    assert _tiling(small, target).block == 1


def test_a_large_matrix_is_read_a_few_rows_at_a_time() -> None:
    limits = {"streamed_bytes": 1 << 18, "streamed_rows": 8, "streamed_depth_bytes": 64}
    few, more, tiny = (
        MatrixProduct(rows, size, size, (size, 1), (size, 1), size) for rows, size in ((8, 512), (9, 512), (8, 128))
    )
    deep = MatrixProduct(1, 2, 33_000, (33_000, 1), (2, 1), 2)
    depths = [_tiling(product, _with_limits(**limits)).depth for product in (few, more, tiny, deep)]
    assert depths[:3] == [16, 64, 128]
    assert -(-33_000 // depths[3]) <= 129, "a sum of many parts would lose digits"


def test_epilogue_is_given_each_element_once_and_where_it_is() -> None:
    """The epilogue's result is stored; if it returns None, only its own stores happen."""
    cases = [
        Case(13, 43, 20),
        Case(6, 3, 2300, gap=2),
        Case(11, 6, 130, "nt"),
        Case(70, 1, 50, "tn"),
        Case(100, 10, 60, "tn", accumulates=True),
        Case(3, 21, 8, batch=(2, 3)),
    ]

    def kernel(product: MatrixProduct, target: Target, gives: bool) -> Body:
        """Products times the numbers of another array, which are incremented, or become the result."""

        def body(f: Function, pointers: Sequence[Value], share: Share) -> None:
            *operands, workspace, other = pointers

            def epilogue(f: Function, value: Value, row: Value, column: Value) -> Value | None:
                place = f.at(other, f.add(f.mul(row, product.columns), column), FLOAT)
                number = f.load(place, value.type)
                result = f.mul(value, number)
                f.store(f.add(number, 1) if gives else result, place)
                return result if gives else None

            a, b, c = operands
            write_product(f, product, a, b, c, share, workspace, target, epilogue)

        return body

    with Checks() as check:
        for target in TARGETS:
            for case in cases:
                operands = Operands(case, FLOAT)
                exact, bound = operands.exact()
                factors = np.arange(1, operands.c.size + 1, dtype=np.float32).reshape(operands.c.shape)
                arrays = [operands.a, operands.b, operands.c, operands.workspace(target, 2), factors]
                with check(f"{case}, {target.vector_bytes} bytes"):
                    _, _, c, _, other = compiled(kernel(operands.product, target, True), 5, target)(arrays, 2)
                    assert (np.abs(c - exact * factors) <= 2 * bound * factors).all()
                    assert (other == factors + 1).all()
                    _, _, c, _, other = compiled(kernel(operands.product, target, False), 5, target)(arrays, 2)
                    assert (np.abs(other - exact * factors) <= 2 * bound * factors).all()
                    assert case.inner > 1000 or (c == operands.c).all()


def test_packed_operand_gives_the_product() -> None:
    """B packed by one record, and read by another."""
    with Checks() as check:
        cases = Case(5, 75, 40, "nt"), Case(20, 33, 1500, "tn"), Case(3, 9, 8, "ns", batch=(4,), shares_b=True), Case(37, 150, 9)
        for target in (*TARGETS, _with_limits(far_bytes=1)):
            for case in cases:
                operands = Operands(case, FLOAT)
                product = operands.product

                def pack(f: Function, pointers: Sequence[Value], share: Share, product=product, target=target) -> None:  # type: ignore[no-untyped-def]
                    write_pack(f, product, *pointers, share, target)

                packed = np.full(packed_bytes(product, target) // 4, np.nan, np.float32)
                with check(f"{case}, {target.vector_bytes} bytes"):
                    packed = compiled(pack, 2, target, checked=True)([operands.b, packed], 3)[1]
                    assert not np.isnan(packed).any()
                    multiply = compiled(_product(replace(product, b_is_packed=True), target), 4, target, checked=True)
                    result = multiply([operands.a, packed, operands.c, operands.workspace(target, 2)], 2)[2]
                    exact, bound = operands.exact()
                    assert (np.abs(result - exact) <= bound).all()


def test_code_for_other_processors() -> None:
    for case in (Case(13, 75, 9), Case(9, 6, 30, "nt"), Case(64, 3, 30, "tn"), Case(37, 45, 21, "nt")):
        emits(_product(Operands(case, FLOAT).product, CROSS["NEON"]), 4, CROSS["NEON"])

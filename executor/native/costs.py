"""Chooses among kernels and engines that compute the same, by their costs.

Choices compare estimated times, or sizes at which two measured times are equal; those are limits of the target
(`target.Limits`), since they depend on vectors, registers and caches. `benchmarks/kernel_choices.py` measures both ways of a
choice around it. Its times, with their machine, lie in `tests/native/data`, where a test holds the choices against them.

No choice is made by timing at run time: two ways may round differently, and results should not depend on a clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod, sqrt
from typing import Any

from fluid.values.spec import Spec

from .target import Limits, Target

# ---------------------------------------------------------------------------------------------------------------- products
_CYCLE = 1 / 2.45e9
"""Seconds of a cycle of the machine that fast transforms were timed on: only ratios of times matter."""


def multiplication_seconds(multiplications: int, element_bytes: int, target: Target) -> float:
    """The time of a product of matrices by one thread, with two vectors per cycle at three quarters of the peak."""
    return multiplications * _CYCLE / (2 * target.lanes(element_bytes) * 0.75)


def copies_right(rows: int, matrix_bytes: int, limits: Limits) -> bool:
    """Whether a product copies panels of its right matrix, which lies by rows.

    A copy takes as long as several passes of tiles over the matrix where it lies: seven in the second cache of Zen 3, two
    beyond it, where each row of a panel is in another page. So large matrices are copied for few rows.
    """
    if matrix_bytes >= limits.packed_far_bytes:
        return rows >= limits.packed_far_rows
    return rows >= limits.packed_rows and matrix_bytes >= limits.packed_bytes


def copies_left(columns: int, matrix_bytes: int, step_bytes: int, limits: Limits) -> bool:
    """Whether a product copies tiles of its left matrix, which lies by columns: each step is in another cache line."""
    is_far = step_bytes >= 2048 or matrix_bytes >= limits.packed_left_bytes
    return is_far and columns >= limits.packed_left_columns


_MOST_PARTS = 128
"""The most parts of a sum that are added one after the other: each addition rounds."""


def depth_bytes(rows: int, inner_bytes: int, matrix_bytes: int, is_in_place: bool, limits: Limits) -> int:
    """The bytes of a column of the right matrix that tiles compute before they go on to the next columns.

    A tile is one or two cache lines wide, and its next row lies in another page if the right matrix is large. If tiles use only a
    few rows at a time, they soon read the following lines, which the processor has fetched ahead.

    Args:
        inner_bytes: the bytes of a whole column.
        is_in_place: whether the right matrix lies by rows and is read there.
    """
    if not is_in_place or matrix_bytes < limits.streamed_bytes:
        return limits.product_depth_bytes
    streamed = limits.streamed_depth_bytes * (1 if rows <= limits.streamed_rows else 4)
    return min(max(streamed, inner_bytes // _MOST_PARTS), limits.product_depth_bytes)


def panels_of_block(result_bytes: int, panel_bytes: int, limits: Limits) -> int:
    """The number of panels of the right matrix with which a row of tiles is computed before the next row of tiles.

    With a single panel, tiles write pieces of one or two cache lines, each to another row. If the result is larger than a cache,
    this takes longer than to read a block of panels, which stays in the second cache, for each row of tiles.
    """
    return 1 if result_bytes < limits.block_result_bytes else max(limits.block_bytes // max(panel_bytes, 1), 1)


# ------------------------------------------------------------------------------------------------------------- convolutions
def uses_winograd(channels: int, filters: int, tiles: int, fewest: int, limits: Limits) -> bool:
    """Whether Winograd's algorithm is faster than the direct one, for 3 x 3 taps in float32.

    It multiplies 16 times per tile of 2 x 2 outputs instead of 36 times, and transforms tiles and the filter.

    Args:
        tiles: the number of tiles.
        fewest: the least number of tiles.
    """
    saved = (36 - 16) * tiles * channels * filters
    spent = limits.winograd_tile_work * tiles * (channels + filters) + limits.winograd_filter_work * channels * filters
    return min(channels, filters) >= limits.winograd_channels and tiles >= fewest and saved > spent


# -------------------------------------------------------------------------------------------------------------- transforms
_FAST_TRANSFORM = 5e-9
"""Seconds for each float, of signals of 256 to 1024 elements, with numpy 2.4 on Zen 3."""


def fast_transform_seconds(elements: int) -> float:
    """The time of numpy's fast Fourier transforms that read this number of floats, summed over the axes."""
    return elements * _FAST_TRANSFORM


# --------------------------------------------------------------------------------------------------------------- single ops
# A single op takes and returns arrays in numpy's layout, so the gain must pay for converting images to channels last and back.
# At these bounds, native code was as fast as numpy, both with one thread; more threads are an extra gain.
_ELEMENTS = {
    **dict.fromkeys(
        ("adam", "gelu", "gelu_grad", "layer_norm", "layer_norm_grad", "sigmoid", "softmax", "softmax_grad"), 1 << 15
    ),
    **dict.fromkeys(("exp", "momentum", "pool2d", "pool2d_grad", "sgd"), 1 << 17),
    **dict.fromkeys(("sigmoid_grad", "tanh", "tanh_grad"), 1 << 18),
}
"""Op -> the minimal number of elements of its largest array."""
_PRODUCTS = frozenset({"matmul", "matmul_grad", "matmul_v2", "matmul_v2_grad", "mul", "mul_grad"})
_CONVOLUTIONS = frozenset({"conv2d", "conv2d_grad"})
_MULTIPLICATIONS = 1 << 23
"""Minimal number of multiplications of a product or a convolution, about."""
_PER_ELEMENT = 40
"""Minimal number of multiplications of a convolution per element of its images."""


FEWEST_STEPS = 6
"""The fewest steps of a recurrent layer on numpy's arrays for which a step is compiled. For one sequence, with AVX-512, 4 steps
of 128 GRUs take 106 µs compiled and 95 µs on numpy, 6 steps 109 and 132 µs."""


def is_worth_it(op_type: str, attrs: Mapping[str, Any], specs: Mapping[str, Spec]) -> bool:
    """Whether to compute an op of eager mode natively; `specs` are the specs of its inputs and outputs, by slot."""
    if op_type in _PRODUCTS:
        sizes = [specs[slot].size if slot in specs else specs["Out@GRAD"].size for slot in ("X", "Y", "Out")]
        return sqrt(prod(sizes)) >= _MULTIPLICATIONS  # of [m, k], [k, n] and [m, n]: m k n
    if op_type in _CONVOLUTIONS:
        output = specs.get("Output") or specs["Output@GRAD"]
        multiplications = output.size * prod(specs["Filter"].shape[1:])
        return multiplications >= max(_MULTIPLICATIONS, _PER_ELEMENT * (specs["Input"].size + output.size))
    if op_type in ("pool2d", "pool2d_grad") and attrs["pooling_type"] != "max":
        return False
    return op_type in _ELEMENTS and max(spec.size for spec in specs.values()) >= _ELEMENTS[op_type]

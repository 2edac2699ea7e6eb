"""Targets: the processors that kernels are written for, and the limits at which kernels change their method.

A target is a plain value and an argument of all code that chooses or writes kernels. So code for another processor, tests with
tiny limits and code for this processor (`compiler.host`) take the same path.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

from ..runtime.threads import MOST_THREADS


@dataclass(frozen=True)
class Limits:
    """Sizes at which kernels change their method. Any positive numbers give right results; these were the fastest, measured with
    vectors of 64 bytes, on Zen 4 unless stated otherwise."""

    # -- products
    product_depth_bytes: int = 4096
    """Bytes of a column of the right matrix in one part; a longer inner extent is computed in several parts. From a quarter to
    twice this size, the speed is the same."""
    streamed_bytes: int = 1 << 62
    """Minimal bytes of a right matrix that tiles read in parts of a few rows. Not measured with vectors of 64 bytes."""
    streamed_rows: int = 8
    """Maximal rows of a product with the smallest parts; products of more rows read parts of four times that size."""
    streamed_depth_bytes: int = 64
    """Bytes of a column in the smallest part."""
    block_bytes: int = 256 << 10
    """Maximal bytes of a block of panels of the right matrix: half of the second cache of Zen 3, where it was measured."""
    block_result_bytes: int = 1 << 20
    """Minimal bytes of the result of a product that uses such blocks."""
    far_rows: int = 32
    """Maximal rows of a product that reads a large packed matrix in narrow panels: each pass over it waits for a far cache."""
    far_bytes: int = 512 << 10
    """Minimal bytes of such a matrix."""
    packed_rows: int = 128
    """Minimal rows of a product that copies panels of its right matrix."""
    packed_bytes: int = 1 << 20
    """Minimal bytes of the right matrix of such a product."""
    packed_far_rows: int = 128
    """Minimal rows if that matrix does not fit into the second cache."""
    packed_far_bytes: int = 1 << 20
    """Minimal bytes of such a matrix."""
    packed_left_bytes: int = 1 << 19
    """Minimal bytes of a left matrix, lying by columns, that is copied."""
    packed_left_columns: int = 128
    """Minimal columns of a product that copies such a left matrix."""
    tile_rows: int = 12
    """Maximal rows of a product's tile."""
    tile_vectors: int = 4
    """Maximal vectors in a row of a tile. Wider tiles, 5 x 5 or 4 x 6 with 32 registers, were slower by a tenth to a third."""
    dot_rows: int = 8
    """Maximal rows of a tile of dot products: more do not fit in one set of a cache."""
    integer_rows: int = 48
    """Rows of a product of bytes that a thread computes with the same columns."""
    byte_tile_rows: int = 4
    """Minimal rows of a product of bytes that uses the processor's tiles (AMX)."""
    shared_product: int = 1 << 19
    """Minimal multiplications of a product whose tiles are chosen for equal shares of four threads."""

    # -- formulas and sums
    part: int = 4096
    """Elements per chunk."""
    early_numbers: int = 4096
    """Maximal elements of a formula of variables that is computed before all else, so that kernels of cores can use it."""
    serial: int = 1 << 17
    """Maximal cost (elements times cost per element) of a group that one thread computes."""
    serial_rows: int = 1 << 17
    """The same limit for gathered rows of a table, in elements: moving rows between the caches of two cores takes longer than
    computing them. Updates of so few rows run on one thread, too (`small_core`)."""
    sum_vectors: int = 8
    """Maximal vectors of a sum over rows that stay in registers."""
    wide_sum_rows: int = 1024
    """Maximal rows of a sum whose chunks are columns."""
    wide_sum_blocks: int = 4
    """Minimal chunks of columns for so many rows: enough for some threads."""
    narrow_sum_rows: int = 128
    """Maximal rows of a sum with fewer chunks of columns."""
    sum_chunks: int = 32
    """Maximal chunks of rows if sums over rows stay in registers."""
    summed_rows: int = 128
    """Approximate number of rows in one running sum, before it is added to the total; limits rounding errors."""
    summed_rows_in_memory: int = 1024
    """The same limit for sums that are in memory, because they have many columns."""
    summed_parts: int = 32
    """The same limit for partial sums."""
    long_reduction: int = 1 << 14
    """Maximal elements of a reduction in one row."""
    reduction_rows: int = 1 << 10
    """Maximal rows of a long reduction that is split along its dimensions."""
    reduction_part: int = 8192
    """Maximal elements of a row of a split reduction."""

    # -- groups
    group_nodes: int = 48
    """Maximal nodes of a group, so that its code stays short."""
    group_operands: int = 24
    """Maximal operands of a group."""
    deferred_nodes: int = 16
    """Maximal length of a chain of deferred formulas."""
    nearby_groups: int = 6
    """Number of last groups that are tried for a node that could also run earlier."""
    long_row: int = 1 << 18
    """Maximal elements of a row in a group with rows: threads do not share a row. For 32 rows of 50,000, softmax takes 0.6 to 0.9
    of the time in such a group, layer_norm 0.35 (AVX-512, one thread)."""
    small_core: int = 1 << 17
    """Maximal multiplications of a core that one thread computes."""

    # -- convolutions and pools
    convolution_chunks: int = 32
    """Minimal chunks of convolutions and pools, if shapes allow it: enough for common machines."""
    convolution_block_bytes: int = 32 << 10
    """Bytes of images that all panels of filters use while these bytes are in the L1 cache."""
    convolution_filter_bytes: int = 640 << 10
    """Maximal bytes of packed filters for this order of loops: panels then come from the L2 cache, or are so many that reading
    them takes less time than multiplying by them."""
    summed_products: int = 1024
    """Products of a convolution in one running sum, before it is added to the total; limits rounding errors."""
    unrolled_products: int = 128
    """Maximal products of a run that is fully unrolled: the processor predicts loops of few turns badly."""
    gradient_rows: int = 6
    """Minimal rows of a tile of a filter's gradient: each row uses a vector of the output's gradient, read once from the L2
    cache."""
    gradient_bytes: int = 128 << 10
    """Bytes of the images of a block, while all tiles of a filter's gradient use it: the block stays in the L2 cache."""
    gradient_pixels: int = 128
    """Maximal pixels of such a block."""
    gradient_partials: int = 16
    """Maximal number of partial sums of a filter's gradient."""
    gradient_partial_bytes: int = 1 << 20
    """Maximal bytes of all these partial sums."""
    depthwise_taps: int = 9
    """Maximal taps of a depthwise filter that are unrolled."""
    depthwise_sums: int = 28
    """Sums of a depthwise filter's gradient that stay in registers."""
    winograd_channels: int = 16
    """Minimal channels, and filters, for Winograd's algorithm: with fewer, the transformations cost more than it saves."""
    winograd_tiles: int = 8
    """Minimal tiles of 2 x 2 outputs: with fewer, transforming the filter costs more than the algorithm saves."""
    winograd_tile_work: int = 1
    """Multiplications that take as long as transforming a tile, for each channel and filter."""
    winograd_filter_work: int = 1
    """The same for a filter of one channel. With vectors of 64 bytes, the limits above decide."""
    winograd_gradient_tiles: int = 64
    """Minimal tiles for a filter's gradient: with fewer, sums are read and written too often."""
    winograd_block_bytes: int = 512 << 10
    """Approximate bytes of a block's transformed tiles: they stay in the L2 cache."""
    winograd_block_tiles: tuple[int, int] = (24, 128)
    """Minimal and maximal tiles of a block: each block reads the filters once from a farther cache."""
    winograd_partial_bytes: int = 2 << 20
    """Maximal bytes of all partial sums of a filter's gradient, unless threads need more sums to be busy."""
    winograd_gradient_chunks: int = 8
    """Minimal chunks of such a gradient."""
    pool_vectors: int = 4
    """Maximal vectors of channels that a pool computes together."""
    pool_unrolled: int = 4
    """Maximal rows or columns of a pooling window that are unrolled."""
    image_block_bytes: int = 8 << 20
    """Bytes of a value of images above which neighbouring regions run block by block of images."""

    # -- tables, feeds
    table_vectors: int = 4
    """Maximal vectors of a table's row that one thread computes at a time."""
    feed_bytes: int = 1 << 16
    """Minimal bytes of a feed that is read in place: copying it takes longer than setting its address."""


@dataclass(frozen=True)
class Target:
    """A processor that code is compiled for.

    Attributes:
        triple, cpu, features: LLVM's names of the platform and the processor, and the processor's features
            (``+avx2,-avx512f``).
        vector_bytes: bytes of the vectors that kernels use.
        registers: number of vector registers that kernels assume.
        limits: sizes at which kernels change their method.
        pointer_bytes: bytes of a pointer.
        fused: LLVM's names of the types whose ``a * b + c`` is one instruction; for other types, it is two, which round twice.
        has_rounding: whether rounding to integers is one instruction; without it, kernels add and compare.
        has_halves: whether an instruction makes floats of halves; without it, kernels move bits.
        threads: the most threads that run a kernel together.
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    registers: int
    limits: Limits
    pointer_bytes: int = 8
    fused: tuple[str, ...] = ("float", "double")
    has_rounding: bool = True
    has_halves: bool = True
    threads: int = MOST_THREADS

    @classmethod
    def of(cls, triple: str, cpu: str, features: str) -> Target:
        """The target for a processor, with the widest useful vectors, all registers, and suitable limits."""
        present = frozenset(feature[1:] for feature in features.split(",") if feature.startswith("+"))
        family = triple.partition("-")[0]
        vector_bytes, registers = _vectors_of(family, present)
        pointer_bytes = 8 if "64" in family else 4
        return cls(
            triple, cpu, features, vector_bytes, registers, _limits_of(vector_bytes, registers), pointer_bytes,
            _fused_in(family, present), _has_rounding(family, present), _has_halves(family, present),
        )  # fmt: skip

    @property
    def byte_products(self) -> str:
        """How lanes of 32 bits add products of bytes: "fours", "pairs", both by one instruction of x86, or "numbers".

        "tiles" are like "fours", but products with enough rows multiply whole tiles by one instruction (AMX).
        """
        present = frozenset(feature[1:] for feature in self.features.split(",") if feature.startswith("+"))
        if not self.triple.startswith("x86_64") or self.vector_bytes not in (16, 32, 64):
            return "numbers"
        wide = self.vector_bytes == 64
        if ("avx512vnni" in present and (wide or "avx512vl" in present)) or ("avxvnni" in present and not wide):
            return "tiles" if wide and {"amx-int8", "amx-tile"} <= present else "fours"
        return "pairs" if not wide or "avx512bw" in present else "numbers"

    def lanes(self, element_bytes: int) -> int:
        """Elements of this size in a vector; 1 if they are larger than a vector."""
        return max(self.vector_bytes // element_bytes, 1)

    @property
    def attributes(self) -> str:
        """The function attributes in LLVM's text form."""
        return (
            f'attributes #0 = {{ nounwind "target-cpu"="{self.cpu}" "target-features"="{self.features}" '
            f'"prefer-vector-width"="{8 * self.vector_bytes}" }}'
        )


def _vectors_of(family: str, features: Set[str]) -> tuple[int, int]:
    """Bytes of a vector, and number of vector registers, of a family of processors: the first part of a triple."""
    if family == "x86_64":
        return (64, 32) if "avx512f" in features else (32 if "avx2" in features else 16, 16)
    if family in ("aarch64", "arm64"):
        return 16, 32
    if family.startswith("wasm"):
        return (16 if "simd128" in features else 4), 16
    return 4, 32 if family.startswith("riscv") else 16


def _fused_in(family: str, features: Set[str]) -> tuple[str, ...]:
    """The types with fused multiply-add of a family of processors."""
    if family in ("aarch64", "arm64") or (family == "x86_64" and not features.isdisjoint({"fma", "avx512f"})):
        return "float", "double"
    if family.startswith("riscv"):
        return tuple(name for name, feature in (("float", "f"), ("double", "d")) if feature in features)
    if family.startswith(("arm", "thumb")):
        return ("float",) if not features.isdisjoint({"vfp4d16sp", "fp-armv8d16sp"}) else ()
    return ()


def _has_rounding(family: str, features: Set[str]) -> bool:
    """Whether a family of processors has instructions that round to integers."""
    if family == "x86_64":
        return not features.isdisjoint({"sse4.1", "avx", "avx2", "avx512f"})
    return family in ("aarch64", "arm64") or family.startswith("wasm")


def _has_halves(family: str, features: Set[str]) -> bool:
    """Whether a family of processors has instructions that make floats of halves."""
    if family == "x86_64":
        return not features.isdisjoint({"f16c", "avx512f"})
    return family in ("aarch64", "arm64") or (family.startswith(("arm", "thumb")) and bool(_fused_in(family, features)))


def _limits_of(vector_bytes: int, registers: int) -> Limits:
    """The limits for a processor: with narrow vectors, copies pay for far smaller products."""
    limits = Limits()
    if vector_bytes < 64:
        limits = replace(limits, packed_rows=64, packed_bytes=1 << 16, packed_far_rows=64, packed_left_bytes=1 << 16)
    if vector_bytes == 4 and registers == 16:  # on Cortex-M4, larger tiles are not faster, and take a third more code
        limits = replace(limits, tile_rows=4, tile_vectors=2)
    if vector_bytes == 32:  # measured on Zen 3: `tests/native/data/choices_avx2.json`
        limits = replace(limits, packed_far_rows=40, streamed_bytes=1 << 18)
        limits = replace(limits, winograd_channels=8, winograd_tile_work=60, winograd_filter_work=275)
    return limits if registers > 16 else replace(limits, depthwise_sums=7)

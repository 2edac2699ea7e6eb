"""Targets: the processors that kernels are written for, and the limits at which kernels change how they compute.

A target is a value that is handed to whatever chooses or writes a kernel. So code for another processor, tests with tiny limits
and code for this processor (`compiler.host`) are one thing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["Limits", "Target"]


@dataclass(frozen=True)
class Limits:
    """Sizes at which kernels change how they compute. Any positive numbers give right results; these were the fastest. They are
    as measured with vectors of 64 bytes, on Zen 4 where nothing else is said."""

    # -- products
    product_depth_bytes: int = 4096
    """Bytes of a column of the right matrix that a product uses at a time; a longer inner extent is computed in parts. A quarter
    to the double of it is as fast."""
    packed_rows: int = 128
    """Rows from which on a product copies panels of its right matrix."""
    packed_bytes: int = 1 << 20
    """Bytes of the right matrix from which on it does."""
    packed_left_bytes: int = 1 << 19
    """Bytes of a left matrix that lies by columns from which on its rows are copied."""
    packed_left_columns: int = 128
    """Columns of a product from which on that pays."""
    tile_rows: int = 12
    """Rows of a tile of a product, at most."""
    tile_vectors: int = 4
    """Vectors in a row of a tile, at most. Wider tiles, 5 x 5 or 4 x 6 with 32 registers, were slower by a tenth to a third."""
    dot_rows: int = 8
    """Rows of a tile of dot products, at most: more do not fit in one set of a cache."""
    shared_product: int = 1 << 19
    """Multiplications from which on tiles are chosen so that four threads have equal shares."""

    # -- formulas and sums
    part: int = 4096
    """Elements that one thread takes at a time."""
    serial: int = 1 << 17
    """Elements, times what one costs, up to which one thread computes a group."""
    serial_rows: int = 1 << 17
    """The same for elements of rows of a table: moving rows from the cache of one core to that of another takes longer than
    computing them, and updates of as few rows are computed by one thread, too (`small_core`)."""
    sum_vectors: int = 8
    """Vectors of a sum over rows that are kept in registers while rows go by, at most."""
    sum_chunks: int = 32
    """Chunks that rows are cut in at most, where sums over them are kept in registers."""
    summed_rows: int = 128
    """Rows that are summed one after the other, about, before their sum is added to those of other rows."""
    summed_rows_in_memory: int = 1024
    """The same where sums have so many columns that they are kept in memory."""
    summed_parts: int = 32
    """The same for partial sums."""
    long_reduction: int = 1 << 14
    """Elements that are reduced in one row, at most."""
    reduction_rows: int = 1 << 10
    """Rows that a long reduction may be cut in along its own dimensions."""
    reduction_part: int = 8192
    """Elements of a row that a long reduction is cut in, at most."""

    # -- groups
    group_nodes: int = 48
    """Nodes of a group, at most, so that its code stays short."""
    group_operands: int = 24
    """Operands of a group, at most."""
    deferred_nodes: int = 16
    """Formulas that wait together for the group that reads them, at most."""
    nearby_groups: int = 6
    """How many of the last groups are tried for a node that could also run earlier."""
    long_row: int = 1 << 15
    """Elements from which on a group of many elements does not become one of a single row, which threads do not share."""
    small_core: int = 1 << 17
    """Multiplications up to which one thread computes a core."""

    # -- convolutions and pools
    convolution_chunks: int = 32
    """Chunks that convolutions and pools are cut in, at least, where shapes allow it: enough for common machines."""
    convolution_block_bytes: int = 32 << 10
    """Bytes of images that all panels of filters go over while these bytes are in the nearest cache."""
    convolution_filter_bytes: int = 640 << 10
    """Bytes of packed filters up to which they do: panels come from the second cache then, or are so many that reading them takes
    less time than multiplying by them."""
    unrolled_products: int = 128
    """Products of a run that is written without a loop: loops of few turns are predicted badly."""
    gradient_rows: int = 6
    """Rows of a tile of a filter's gradient, at least: it reads vectors of the output's gradient that often from the second
    cache."""
    gradient_bytes: int = 128 << 10
    """Bytes of the images of a block, while all tiles of a filter's gradient go over it: it stays in the second cache."""
    gradient_pixels: int = 128
    """Pixels of such a block, at most."""
    gradient_partials: int = 16
    """Partial sums of a filter's gradient, at most."""
    gradient_partial_bytes: int = 1 << 20
    """Bytes of all these partial sums, at most."""
    depthwise_taps: int = 9
    """Taps of a depthwise filter that are written without a loop."""
    depthwise_sums: int = 28
    """Sums of a depthwise filter's gradient that are kept in registers."""
    winograd_channels: int = 16
    """Channels, and filters, from which on Winograd's algorithm pays: with fewer, the transformations take what the products
    save."""
    winograd_tiles: int = 8
    """Tiles of 2 x 2 outputs from which on it pays: with fewer, transforming the filter takes what the products save."""
    winograd_gradient_tiles: int = 64
    """Tiles from which on it pays for a filter's gradient: with fewer, sums are read and written too often."""
    winograd_block_bytes: int = 512 << 10
    """Bytes of transformed tiles of a block, about: they stay in the second cache."""
    winograd_block_tiles: tuple[int, int] = (24, 128)
    """Tiles of a block, at least and at most: filters are read from further away once for each block."""
    winograd_partial_bytes: int = 2 << 20
    """Bytes of all partial sums of a filter's gradient, if there are more sums than it takes to give threads work."""
    winograd_gradient_chunks: int = 8
    """Chunks that such a gradient is cut in, at least."""
    pool_vectors: int = 4
    """Vectors of channels that a pool computes together, at most."""
    pool_unrolled: int = 4
    """Rows or columns of a pooling window that are written without a loop."""
    layout_pixels: int = 1024
    """Pixels that are one chunk of a change of layout."""
    image_block_bytes: int = 8 << 20
    """Bytes of a value of images from which on neighbouring regions run block by block of images."""

    # -- tables, feeds
    table_vectors: int = 4
    """Vectors of a row of a table that one thread computes at a time, at most."""
    feed_bytes: int = 1 << 16
    """Bytes of a feed from which on it is read where it is: copying takes longer than saying where that is."""


@dataclass(frozen=True)
class Target:
    """A processor that code is made for.

    Attributes:
        triple, cpu, features: LLVM's names of the platform and the processor, and the processor's features
            (``+avx2,-avx512f``).
        vector_bytes: bytes of the vectors that kernels use.
        registers: vector registers that kernels count on.
        limits: sizes at which kernels change how they compute.
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    registers: int
    limits: Limits

    @classmethod
    def of(cls, triple: str, cpu: str, features: str) -> Target:
        """A processor with the widest vectors that are worth using, all registers, and the limits that suit them."""
        is_wide = "+avx512f" in features
        vector_bytes = 64 if is_wide else 32 if "+avx2" in features else 16
        registers = 32 if is_wide or not triple.startswith("x86") else 16
        return cls(triple, cpu, features, vector_bytes, registers, _limits_of(vector_bytes, registers))

    @property
    def attributes(self) -> str:
        """The attributes of functions for LLVM."""
        return (
            f'attributes #0 = {{ nounwind "target-cpu"="{self.cpu}" "target-features"="{self.features}" '
            f'"prefer-vector-width"="{8 * self.vector_bytes}" }}'
        )


def _limits_of(vector_bytes: int, registers: int) -> Limits:
    """The limits that suit a processor: with narrow vectors, products gain by copies from far smaller sizes on."""
    limits = Limits() if vector_bytes == 64 else Limits(packed_rows=64, packed_bytes=1 << 16, packed_left_bytes=1 << 16)
    return limits if registers > 16 else replace(limits, depthwise_sums=7)

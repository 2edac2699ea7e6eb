"""Native code for blocks of loops. The compiler is imported on first use."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fluid.ir.program import Block
from fluid.values.spec import Spec

from ..stepwise.repeated import CompiledBlock
from .fallback import NativeUnavailable, or_unavailable, warn_of

__all__ = ["NativeBlocks"]


class NativeBlocks:
    """Compiles blocks whose ops are all native."""

    def compile(
        self, block: Block, specs: Mapping[str, Spec], outputs: Collection[str], summed: Collection[str]
    ) -> CompiledBlock | None:
        """Compile the ops of a block; None if some of them stay on numpy.

        Args:
            specs: name -> the spec of its value before a trip, for each name that the block reads first.
            outputs: names whose values after a trip are stored in the caller's memory.
            summed: names whose values are added up over the trips.
        """
        try:
            with or_unavailable():
                from .repeated import compiled_block

                return compiled_block(block, specs, outputs, summed)
        except NativeUnavailable as error:
            warn_of(error, block.program)
            return None

"""Native code for blocks of loops. The compiler is imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from fluid.ir.program import Program
from fluid.ir.versions import Value
from fluid.values.spec import Spec

from ..stepwise.indexed_arrays import ArrayRoom
from ..stepwise.loop_body import LoopBody
from ..stepwise.repeated import CompiledBlock, RandomSource
from .fallback import NativeUnavailable, or_unavailable, warn_of
from .target import Target

if TYPE_CHECKING:
    from .repeated import LoopWriter

LoopsIn: TypeAlias = "Callable[[Target, dict[Value, Spec]], LoopWriter]"
"""Returns the writer of a block's loops for a processor, from the specs of the block's values; specs are added."""


class NativeBlocks:
    """Compiles blocks whose ops are all native.

    Args:
        program: the program of the blocks, for warnings.
        target: the processor that runs them.
        loops: makes the writer of native code for loops in blocks.
    """

    def __init__(self, program: Program, target: Target, loops: LoopsIn) -> None:
        self._program, self._target, self._loops = program, target, loops

    def compile(
        self,
        body: LoopBody,
        specs: Mapping[Value, Spec],
        outputs: Collection[Value],
        source: RandomSource,
        rooms: Mapping[str, ArrayRoom],
    ) -> CompiledBlock | None:
        """Compile the steps of a block; numpy computes some ops between native code. None if the block has to run op by op.

        Args:
            specs: value before a trip -> its spec, for each value that the block reads first.
            outputs: values after a trip that are stored in the caller's memory.
            source: returns the source of random generators for an op and its attributes, defaults included.
            rooms: indexed array -> the size of its memory.
        """
        try:
            with or_unavailable():
                from .repeated import compiled_block

                loops = partial(self._loops, self._target)
                return compiled_block(body, specs, outputs, self._target, source, rooms, loops)
        except NativeUnavailable as error:
            warn_of(error, self._program)
            return None

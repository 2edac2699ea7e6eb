"""The part of Fluid 1.6's ``fluid.transpiler`` that makes sense on one device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import FluidTypeError
from ..executor.runtime.scope import Scope
from ..ir.nesting import walk
from ..ir.program import Program
from ..not_here import names_here, names_not_here
from ..values.place import Place, no_place

__all__ = ["InferenceTranspiler", "memory_optimize", "release_memory"]

__dir__ = names_here(__name__)

if not TYPE_CHECKING:
    __getattr__ = names_not_here(__name__)


class InferenceTranspiler:
    """Makes a program for predictions quicker, as in Fluid 1.x; `fluid.optimize_for_inference` does more.

    >>> x = fluid.data("x", [None, 3, 8, 8])
    >>> y = layers.batch_norm(layers.conv2d(x, 4, 3))
    >>> program = fluid.default_main_program().clone(for_test=True)
    >>> _ = fluid.Executor().run(fluid.default_startup_program())
    >>> fluid.transpiler.InferenceTranspiler().transpile(program, fluid.CPUPlace())
    >>> [op.type for op in program.global_block().ops]
    ['conv2d', 'elementwise_add']
    """

    def transpile(self, program: Program, place: Place | None = None, scope: Scope | None = None) -> None:
        """Change a program: its ops run in test mode, and batch_norms become part of the weights before them.

        Args:
            program: the program; one for training is refused.
            place: accepted as in Fluid, without effect.
            scope: has the values of the weights; the current one if None.

        Raises:
            FluidTypeError: `program` is no program, or `place` no place.
            ProgramError: the program has gradients.
        """
        if not isinstance(program, Program):
            raise FluidTypeError(f"InferenceTranspiler: program should be a Program, not {program!r}")
        if place is not None and not isinstance(place, Place):
            raise FluidTypeError(f"InferenceTranspiler: place should be a place, {no_place(place)}")
        for op in walk(program.global_block().ops):
            if op.has_attr("is_test"):
                op._set_attr("is_test", True)
        program.fold_batch_norm(scope)


def memory_optimize(
    input_program: Program, skip_opt_set: Any = None, print_log: bool = False, level: int = 0, skip_grads: bool = True
) -> None:
    """Does nothing, as in Fluid 1.6: plans share the memory of values that are never alive together.

    Args:
        input_program, skip_opt_set, print_log, level, skip_grads: accepted as in Fluid, without effect.

    >>> fluid.memory_optimize(fluid.default_main_program())
    """


def release_memory(input_program: Program, skip_opt_set: Any = None) -> None:
    """Does nothing, as in Fluid 1.6: plans share the memory of values that are never alive together.

    Args:
        input_program, skip_opt_set: accepted as in Fluid, without effect.

    >>> fluid.release_memory(fluid.default_main_program())
    """

"""Native code for single ops of eager mode, and for the steps of recurrent ones, if it is faster than numpy.

The compiler is imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fluid.opdef.registry import OpDef
from fluid.values.spec import Spec

from .costs import is_worth_it
from .fallback import NativeUnavailable, is_enabled, or_unavailable, warn_of


class NativeOps:
    """Compiles single ops that native code computes faster than numpy."""

    def takes(self, op_type: str, attrs: Mapping[str, Any], specs: Mapping[str, Spec]) -> bool:
        return is_enabled() and is_worth_it(op_type, attrs, specs)

    def compile(
        self,
        definition: OpDef,
        attrs: Mapping[str, Any],
        inputs: Sequence[tuple[str, Spec | None]],
        passed: Sequence[bool],
        outputs: Sequence[tuple[str, Spec | None]],
        into: Mapping[str, str],
    ) -> tuple[Callable[..., Any], frozenset[int]] | None:
        try:
            with or_unavailable():
                from . import compiler
                from .functions import native_function

                return native_function(definition, attrs, inputs, passed, outputs, compiler.host(), into)
        except NativeUnavailable as error:
            warn_of(error)
            return None


def recurrent_loops() -> Any:
    """The loops of recurrent layers; see `KernelEngine`."""
    from .recurrent_loops import LOOPS

    return LOOPS

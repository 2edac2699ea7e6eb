"""Switching eager mode on and off, by the name that Fluid 1.6 has for this: see `fluid.eager.program`."""

from ..eager.mode import no_grad
from ..eager.program import Parameter, _unpickled, disable_dygraph, enable_dygraph, enabled, guard, to_variable

__all__ = ["Parameter", "_unpickled", "disable_dygraph", "enable_dygraph", "enabled", "guard", "no_grad", "to_variable"]

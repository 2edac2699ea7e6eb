"""Switching eager mode on and off, under the module name of Fluid 1.6; see `fluid.eager.program`."""

from ..eager.mode import no_grad
from ..eager.program import Parameter, _unpickled, disable_dygraph, enable_dygraph, enabled, guard, to_variable

__all__ = ["Parameter", "_unpickled", "disable_dygraph", "enable_dygraph", "enabled", "guard", "no_grad", "to_variable"]

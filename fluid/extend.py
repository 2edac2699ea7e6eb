"""All that it takes to add an op of your own, from any module::

from fluid.extend import define, kernel, like, ops

@define("cube(X) -> Out", infer=like("X"))
def cube(f, X, dOut):
    \"\"\"The third power of each element.\"\"\"
    return {"X": 3.0 * dOut * X * X}

@kernel("cube")
def cube_kernel(xp, X, Out):
    xp.power(X, 3, out=Out)

y = ops().cube(x)  # x a variable: appends the op to the program
"""

from __future__ import annotations

from .executor.kernels.table import kernel, prepared
from .ir.inference import BuildNamespace
from .ir.program import default_main_program
from .opdef.registry import NOT_DIFFERENTIABLE, ZERO_GRADIENT, Like, define, floats, ints, like, long, longs, required, strings
from .values.spec import Spec

__all__ = [
    "NOT_DIFFERENTIABLE",
    "ZERO_GRADIENT",
    "Like",
    "Spec",
    "define",
    "floats",
    "ints",
    "kernel",
    "like",
    "long",
    "longs",
    "ops",
    "prepared",
    "required",
    "strings",
]


def ops() -> BuildNamespace:
    """Every op as a function of variables: ``ops().tanh(x)`` appends it to the current block of the default program."""
    return BuildNamespace(default_main_program().current_block())

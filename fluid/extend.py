"""Everything needed to add an op of your own, from any module::

    from fluid.extend import define, kernel, like, ops

    @define("cube(X) -> Out", infer=like("X"))
    def cube(f, X, dOut):
        \"\"\"The third power of each element.\"\"\"
        return {"X": 3.0 * dOut * X * X}

    @kernel("cube")
    def cube_kernel(xp, X, Out):
        xp.power(X, 3, out=Out)

    y = ops().cube(x)  # x a variable: appends the op to the program

An op that is other ops put together needs neither a kernel nor a gradient: every engine, and ONNX, computes the others::

    @composed("scaled_tanh(X: float) -> Out", scale=2.0)
    def scaled_tanh(f, X, scale):
        \"\"\"``scale * tanh(X)``.\"\"\"
        return f.tanh(X) * scale

Beside a kernel, ``define(..., meaning=means(formula))`` states such a formula for the engines that the kernel does not serve.
`lowers` registers native code of its own, `exports` ONNX nodes, `add_backend` an engine that runs whole programs.

An op that owns a block of the program, like a loop or branch, declares with a `Region` how values pass through the block; a
handler runs it, and its gradient is a separate op, ``type_grad``::

    def region(op):
        return Region(op, op.attr("sub_block"), repeats=True, writes=op.output("Out"), reads_slot="X", scopes_slot="StepScopes")

    @define("repeat(X*?) -> Out*, StepScopes?", grad=REGION, region=region, sub_block=block(), n=1)
    def repeat():
        \"\"\"Run the block `n` times.\"\"\"

    @define("repeat_grad(X*, Out*, Out@GRAD*?, StepScopes, Carried*?, Saved*?) -> X@GRAD*?, CarriedOut*?", grad=REGION,
            shape_only=("X",), region=gradient_region("X", "StepScopes"), gradient_of="repeat", sub_block=block(),
            input_grads=strings())
    def repeat_grad():
        \"\"\"Run the gradient block once for each run of the block, last first.\"\"\"

    differentiates("repeat")(differentiate_block)
    expands("repeat_grad")(expand_as_loop)  # for derivatives of higher order

    @runs("repeat")
    def run_repeat(machine, op, env):
        block_runs = Runs(machine, op, env)
        for number in range(op.attr("n")):
            block_runs.once(number)
        block_runs.finish()

    runs("repeat_grad")(run_backwards)

Inference, pruning, renaming, printing, explanations and the viewer use the region and need nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .autodiff.expand import expand_as_loop, expands
from .autodiff.regions import differentiate_block
from .autodiff.reverse import differentiates
from .executor.backend import add_backend
from .executor.kernels.table import kernel, load_kernels, prepared
from .executor.stepwise.control import Runs, run_backwards
from .executor.stepwise.handlers import runs
from .ir.inference import BuildNamespace
from .ir.program import default_main_program
from .ir.regions import Region, State, Taken, gradient_region
from .not_here import names_here
from .opdef.composition import composed, means
from .opdef.registry import (
    NOT_DIFFERENTIABLE,
    REGION,
    ZERO_GRADIENT,
    ShapeOnly,
    block,
    define,
    floats,
    ints,
    like,
    long,
    longs,
    required,
    strings,
)
from .values.spec import Spec

load_kernels()  # so that one more for an op that has one is refused

__all__ = [
    "NOT_DIFFERENTIABLE", "REGION", "ZERO_GRADIENT", "Like", "Region", "Runs", "ShapeOnly", "Spec", "State", "Taken",
    "add_backend", "block", "composed", "define", "differentiate_block", "differentiates", "expand_as_loop", "expands", "exports",
    "floats", "gradient_region", "ints", "kernel", "like", "long", "longs", "lowers", "means", "ops", "prepared", "required",
    "run_backwards", "runs", "strings",
]  # fmt: skip

__dir__ = names_here(__name__)

Like = ShapeOnly
"""The former name of `ShapeOnly`."""


def ops() -> BuildNamespace:
    """All ops as functions of variables: ``ops().tanh(x)`` appends the op to the current block of the default main program.

    >>> fluid.extend.ops().tanh(fluid.data("x", [None, 2])).shape
    (-1, 2)
    """
    return BuildNamespace(default_main_program().current_block())


def lowers(*op_types: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as native code of these ops; see `fluid.executor.native.lowering`.

    Args:
        op_types: the ops. The function takes tensors of the graph by slot and attributes by name, and returns the tensor of the
            output, usually by other ops.

    >>> @fluid.extend.define("half(X: float) -> Out", infer=fluid.extend.like("X"))
    ... def half(f, X: fluid.extend.ShapeOnly, dOut):
    ...     return {"X": dOut * 0.5}
    >>> @fluid.extend.lowers("half")
    ... def lower_half(X):
    ...     return X * 0.5
    """
    from .executor.native.lowering import lowers as register

    return register(*op_types)


def exports(*op_types: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function to write these ops as ONNX; see `fluid.onnx.writing.exporting`.

    Args:
        op_types: the ops. The function takes ``g``, the graph that makes nodes, tensors by slot and attributes by name, and
            returns the tensor of the output.

    >>> @fluid.extend.define("third(X: float) -> Out", infer=fluid.extend.like("X"))
    ... def third(f, X: fluid.extend.ShapeOnly, dOut):
    ...     return {"X": dOut * (1 / 3)}
    >>> @fluid.extend.exports("third")
    ... def write_third(g, X):
    ...     return g.binary("Div", X, g.number(3, X))
    """
    from .onnx.writing.exporting import exports as register

    return register(*op_types)

"""Tensors and their ops, which run at once and are recorded; `fluid.dygraph` is Fluid 1.6's interface on top.

The files are loaded together: lower ones use higher ones through `fluid.eager.parts`, which is filled here.
"""

from ..layers.nn import reshape
from . import (  # noqa: F401
    averaging,
    dispatch,
    effects,
    engine,
    functional,
    indexing,
    layers,
    methods,
    one_op,
    program,
    recompute,
    recorded,
    regions,
    saved,
    tensor,
)
from .parts import BackwardPasses, TensorOps, parts

parts.tensor = tensor.Tensor
parts.ops = TensorOps(
    namespace=dispatch.namespace,
    add=dispatch.simple("elementwise_add", "X", "Y"),
    sub=dispatch.simple("elementwise_sub", "X", "Y"),
    mul=dispatch.simple("elementwise_mul", "X", "Y"),
    div=dispatch.simple("elementwise_div", "X", "Y"),
    matmul=dispatch.simple("matmul_v2", "X", "Y"),
    assign=dispatch.simple("assign", "X"),
    scaled=dispatch.scaled,
    getitem=one_op.shortened(indexing.getitem),
    setitem=indexing.setitem,
    reshape=reshape,
    block=program.EAGER.global_block(),
)
parts.passes = BackwardPasses(engine.backward, engine.grad, dispatch.run_rule, recorded.program_of)

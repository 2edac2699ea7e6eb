"""Tensors and their ops, which run at once and are recorded; `fluid.dygraph` is Fluid 1.6's interface on top.

The files are loaded together, since lower ones use higher ones through `fluid.eager.parts`.
"""

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
)

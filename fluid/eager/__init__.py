"""Tensors and the ops on them, run at once and recorded; the faces of Fluid 1.6 on top are `fluid.dygraph`.

The files are loaded together, since lower ones reach higher ones through `fluid.eager.parts`.
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

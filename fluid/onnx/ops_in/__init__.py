"""What each op of ONNX is in Fluid's terms, a module a family; importing this fills `fluid.onnx.table`."""

from . import (  # noqa: F401  # noqa: F401
    activation,
    control_flow,
    convolution,
    elementwise,
    indexing,
    matmul,
    norm,
    pool,
    quantization,
    random,
    reduction,
    resize,
    rnn,
    sequence,
    shapes,
    signal,
)

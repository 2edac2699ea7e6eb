"""What each op of ONNX is in Fluid's terms, a module a family; importing this fills `fluid.onnx.table`."""

from . import (  # noqa: F401
    activation,
    control_flow,
    convolution,
    counting,
    detection,
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
    sampling,
    sequence,
    shapes,
    signal,
)

"""How each op of ONNX is built from Fluid's ops, one module per family; importing this fills `fluid.onnx.table`."""

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

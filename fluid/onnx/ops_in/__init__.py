"""What each op of ONNX is in Fluid's terms, a module a family; importing this fills `fluid.onnx.table`."""

from . import activation, control_flow, convolution, elementwise, indexing, matmul, norm, pool, quantization, random  # noqa: F401
from . import reduction, resize, rnn, sequence, shapes, signal  # noqa: F401

"""ONNX models as programs: read, and with that trained, changed, saved in other formats.

`reading` makes a checked `onnx.ModelProto` of a file, `importing` builds a program of it, node by node; what each op of ONNX is
in Fluid's terms stands in `ops_in`, a function an op. The package `onnx` (``pip install fluid-graph[onnx]``) is imported when a
file asks for it.
"""

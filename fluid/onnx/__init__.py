"""ONNX models as programs, and programs as ONNX models.

`reading` makes a checked `onnx.ModelProto` of a file, and `importing` a program of that, node by node: what each op of ONNX is in
Fluid's terms stands in `ops_in`, a function an op. `writing` is the way back. `import fluid` loads nothing of this; the package
``onnx`` (``pip install fluid-graph[onnx]``) is imported when a file asks for it.
"""

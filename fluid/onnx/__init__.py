"""Read ONNX models as programs, and write programs as ONNX models.

`reading` reads a file into a checked `onnx.ModelProto`. `importing` builds a program from it, node by node; `ops_in` has one
function for each op of ONNX. `writing` is the way back. `import fluid` loads none of this; the package ``onnx`` (``pip install
".[onnx]"``) is imported when a file needs it.
"""

"""Writes programs as ONNX models.

`graph.py` has the graph while it is written, `exporting.py` how ops become nodes, the files named by families the functions that
write ops, `program.py` a program's inputs, outputs and order, `serializing.py` the bytes.
"""

from . import arithmetic, images, indexing, losses, norms, products, reductions, shaping, updates  # noqa: F401
from .program import contents_of, refusals, signature_of
from .serializing import write_contents

__all__ = ["contents_of", "refusals", "signature_of", "write_contents"]

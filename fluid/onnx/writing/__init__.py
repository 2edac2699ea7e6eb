"""Writes programs as ONNX models.

`graph.py` has the graph while it is written, `exporting.py` how ops become nodes, the files named by families the functions that
write ops, `program.py` a program's inputs, outputs and order, `serializing.py` the bytes.
"""

from . import (  # noqa: F401
    arithmetic,
    arrays,
    control_flow,
    decomposed,
    images,
    indexing,
    labels,
    losses,
    making,
    norms,
    products,
    random,
    rank_tables,
    reductions,
    selection,
    sequences,
    shaping,
    updates,
    vision,
)
from .models import NEWEST, OLDEST, write_model
from .program import contents_of, refusals, signature_of

__all__ = ["NEWEST", "OLDEST", "contents_of", "refusals", "signature_of", "write_model"]

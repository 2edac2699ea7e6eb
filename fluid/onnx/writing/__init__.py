"""Writes programs as ONNX models.

`graph.py` has the graph under construction, `exporting.py` converts ops to nodes, the files named by families have one function
per op, `program.py` writes a program's inputs, outputs and order, `serializing.py` the bytes.
"""

from . import (  # noqa: F401
    activations,
    arithmetic,
    arrays,
    attention_lstm,
    control_flow,
    cumulative,
    decoding,
    decomposed,
    deformable_regions,
    detection,
    diagonals,
    graphs,
    images,
    indexing,
    labels,
    linalg,
    losses,
    making,
    matching,
    metrics,
    norms,
    padding,
    products,
    proposals,
    quadrangles,
    quantization,
    random,
    rank_tables,
    reductions,
    regions,
    selection,
    sequence_rows,
    sequences,
    shaping,
    special,
    statistics,
    suppression,
    tags,
    targets,
    updates,
    views,
    vision,
    yolo,
)
from .models import NEWEST, OLDEST, write_model
from .program import contents_of, refusals, signature_of

__all__ = ["NEWEST", "OLDEST", "contents_of", "refusals", "signature_of", "write_model"]

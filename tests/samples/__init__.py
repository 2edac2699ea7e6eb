"""Samples of every op, one module per family, named as in `fluid.ops`."""

from . import (  # noqa: F401
    activation,
    beam_search,
    control_flow,
    conv,
    creation,
    crf,
    ctc,
    debug,
    detection,
    einsum,
    elementwise,
    files,
    loss,
    manipulation,
    matmul,
    metric,
    nms,
    norm,
    optimizer,
    pool,
    random,
    rank_table,
    reduction,
    rnn,
    roi,
    sampling,
    selected_rows,
    selection,
    sequence,
    training,
    vision,
    yolo,
)
from .base import OPS, STRUCTURAL, Sample, cast, with_lods

__all__ = ["OPS", "STRUCTURAL", "Sample", "cast", "with_lods"]

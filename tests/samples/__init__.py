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
    einsum,
    elementwise,
    files,
    loss,
    manipulation,
    matmul,
    metric,
    norm,
    optimizer,
    pool,
    proposals,
    quantization,
    random,
    rank_table,
    recommendation,
    reduction,
    rnn,
    roi,
    sampling,
    selected_rows,
    selection,
    sequence,
    training,
    vision,
)
from .base import OPS, STRUCTURAL, Sample, cast, with_lods

__all__ = ["OPS", "STRUCTURAL", "Sample", "cast", "with_lods"]

"""Samples of every op, one module per family, named as in `fluid.ops`."""

from . import (  # noqa: F401
    activation,
    control_flow,
    conv,
    creation,
    debug,
    einsum,
    elementwise,
    loss,
    manipulation,
    matmul,
    metric,
    norm,
    optimizer,
    pool,
    random,
    rank_table,
    reduction,
    rnn,
    selection,
    selected_rows,
    sequence,
    training,
    vision,
)
from .base import OPS, STRUCTURAL, Sample, cast

__all__ = ["OPS", "STRUCTURAL", "Sample", "cast"]

"""Kernels: one module per family, named as in `fluid.ops`."""

from . import (  # noqa: F401, since importing them registers their kernels
    activation,
    beam_search,
    conv,
    creation,
    crf,
    ctc,
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
from .table import KERNELS

__all__ = ["KERNELS"]

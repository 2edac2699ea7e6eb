"""Kernels: one module per family, named as in `fluid.ops`."""

from . import (
    activation,
    conv,
    creation,
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
)
from .table import KERNELS

__all__ = [
    "KERNELS",
    "activation",
    "conv",
    "creation",
    "elementwise",
    "loss",
    "manipulation",
    "matmul",
    "metric",
    "norm",
    "optimizer",
    "pool",
    "random",
    "reduction",
]

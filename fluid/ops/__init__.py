"""Op definitions: the registry, and one module per family."""

from . import (
    activation,
    control_flow,
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
    registry,
)

__all__ = [
    "activation",
    "control_flow",
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
    "registry",
]

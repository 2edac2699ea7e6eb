"""Eager mode: ops run at once, and are recorded so that gradients can be asked for::

    from fluid import dygraph

    w = dygraph.Tensor([1.0, 2.0], stop_gradient=False)
    loss = (w * w).sum()
    loss.backward()
    print(w.grad)

The ops, their kernels and their gradient rules are those of programs.
"""

from __future__ import annotations

# ruff: noqa: I001  (a tensor's operators are ops, and ops make tensors: tensor comes first)
from .tensor import Tensor, from_dlpack, to_tensor
from .anomaly import detect_anomaly, set_detect_anomaly
from .engine import backward, get_num_threads, grad, queue_callback, set_num_threads
from .function import PyLayer, PyLayerContext
from .functional import gradcheck, gradgradcheck, hessian, hvp, jacobian, jvp, vhp, vjp
from .graph import AccumulateGrad, Edge, Node
from .mode import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from .recipe import namespace as ops
from ..executor.eager import RANDOM

__all__ = [
    "AccumulateGrad",
    "Edge",
    "Node",
    "PyLayer",
    "PyLayerContext",
    "Tensor",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "from_dlpack",
    "get_num_threads",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "hessian",
    "hvp",
    "is_grad_enabled",
    "jacobian",
    "jvp",
    "no_grad",
    "ops",
    "queue_callback",
    "seed",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_num_threads",
    "to_tensor",
    "vhp",
    "vjp",
]


def seed(number: int) -> None:
    """Let random ops draw from the stream of this seed, from its start.

    Without it they draw from the stream of the default program's ``random_seed``, or of a seed that is fresh in every process.
    """
    RANDOM.seed(number)

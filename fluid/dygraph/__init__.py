"""Eager mode: ops run at once, and are recorded so that gradients can be computed::

    from fluid import dygraph

    w = dygraph.Tensor([1.0, 2.0], stop_gradient=False)
    loss = (w * w).sum()
    loss.backward()
    print(w.grad)

Programs use the same ops, kernels and gradient rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..eager.anomaly import detect_anomaly, set_detect_anomaly
from ..eager.dispatch import namespace as ops
from ..eager.engine import backward, get_num_threads, grad, queue_callback, set_num_threads
from ..eager.function import PyLayer, PyLayerContext, once_differentiable
from ..eager.functional import gradcheck, gradgradcheck, hessian, hvp, jacobian, jvp, vhp, vjp
from ..eager.graph import AccumulateGrad, Edge, Node
from ..eager.mode import enable_grad, is_grad_enabled, no_grad, set_grad_enabled, state
from ..eager.program import Parameter, disable_dygraph, enable_dygraph, enabled, guard, to_variable
from ..eager.recompute import recompute
from ..eager.saved import saved_tensors_hooks
from ..eager.tensor import Tensor, from_dlpack, to_tensor
from ..executor.runtime.random import RANDOM
from ..not_here import names_here, names_not_here
from . import (
    amp,  # noqa: F401  (as in Paddle)
    base,  # noqa: F401  (as in Fluid 1.6)
    dygraph_to_static,  # noqa: F401  (as in Fluid 1.8)
    jit,
    static_runner,  # noqa: F401  (as in Fluid 1.8)
)
from .amp import AmpScaler, GradScaler, amp_guard
from .backward_strategy import BackwardStrategy
from .checkpoint import load_dygraph, save_dygraph
from .compiled import compile
from .container import FunctionLayer, LayerList, ParameterList, Sequential
from .layer_of import LayerOf
from .layers import Layer
from .learning_rate_scheduler import (
    CosineDecay,
    ExponentialDecay,
    InverseTimeDecay,
    LambdaDecay,
    LearningRateDecay,
    LinearLrWarmup,
    MultiStepDecay,
    NaturalExpDecay,
    NoamDecay,
    PiecewiseDecay,
    PolynomialDecay,
    ReduceLROnPlateau,
    StepDecay,
)
from .modules import (
    ELU,
    GELU,
    AdaptiveAvgPool2D,
    AdaptiveMaxPool2D,
    AvgPool2D,
    BatchNorm1D,
    BatchNorm2D,
    BatchNorm3D,
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    Flatten,
    Hardswish,
    Identity,
    KLDivLoss,
    L1Loss,
    LeakyReLU,
    LogSoftmax,
    MaxPool2D,
    MSELoss,
    NLLLoss,
    ReLU,
    Sigmoid,
    SiLU,
    SmoothL1Loss,
    Softmax,
    Tanh,
)
from .nn import (
    FC,
    GRU,
    LSTM,
    NCE,
    BatchNorm,
    BilinearTensorProduct,
    Conv2D,
    Conv2DTranspose,
    Conv3D,
    Conv3DTranspose,
    Dropout,
    Embedding,
    GroupNorm,
    GRUUnit,
    InstanceNorm,
    LayerNorm,
    Linear,
    MultiHeadAttention,
    Pool2D,
    PRelu,
    RowConv,
    SequenceConv,
    SpectralNorm,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from .open_traces import InputSpec, TracedLayer, trace
from .parallel import DataParallel, Env, ParallelEnv, ParallelStrategy, prepare_context
from .program_translator import ProgramTranslator
from .static_function import declarative, to_static
from .tracing import TracedFunction
from .translated import StaticModelRunner, TranslatedLayer
from .weights import WEIGHT_NAMES, WeightReport

__all__ = [
    "ELU",
    "FC",
    "GELU",
    "GRU",
    "LSTM",
    "NCE",
    "WEIGHT_NAMES",
    "AccumulateGrad",
    "AdaptiveAvgPool2D",
    "AdaptiveMaxPool2D",
    "AmpScaler",
    "AvgPool2D",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BackwardStrategy",
    "BatchNorm",
    "BatchNorm1D",
    "BatchNorm2D",
    "BatchNorm3D",
    "BilinearTensorProduct",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "CosineDecay",
    "CrossEntropyLoss",
    "DataParallel",
    "Dropout",
    "Edge",
    "Embedding",
    "Env",
    "ExponentialDecay",
    "Flatten",
    "FunctionLayer",
    "GRUUnit",
    "GradScaler",
    "GroupNorm",
    "Hardswish",
    "Identity",
    "InputSpec",
    "InstanceNorm",
    "InverseTimeDecay",
    "KLDivLoss",
    "L1Loss",
    "LambdaDecay",
    "Layer",
    "LayerList",
    "LayerNorm",
    "LayerOf",
    "LeakyReLU",
    "LearningRateDecay",
    "Linear",
    "LinearLrWarmup",
    "LogSoftmax",
    "MSELoss",
    "MaxPool2D",
    "MultiHeadAttention",
    "MultiStepDecay",
    "NLLLoss",
    "NaturalExpDecay",
    "NoamDecay",
    "Node",
    "PRelu",
    "ParallelEnv",
    "ParallelStrategy",
    "Parameter",
    "ParameterList",
    "PiecewiseDecay",
    "PolynomialDecay",
    "Pool2D",
    "ProgramTranslator",
    "PyLayer",
    "PyLayerContext",
    "ReLU",
    "ReduceLROnPlateau",
    "RowConv",
    "SequenceConv",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "SmoothL1Loss",
    "Softmax",
    "SpectralNorm",
    "StaticModelRunner",
    "StepDecay",
    "Tanh",
    "Tensor",
    "TracedFunction",
    "TracedLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "TranslatedLayer",
    "WeightReport",
    "amp_guard",
    "backward",
    "compile",
    "declarative",
    "detect_anomaly",
    "disable_dygraph",
    "enable_dygraph",
    "enable_grad",
    "enabled",
    "from_dlpack",
    "get_num_threads",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "guard",
    "hessian",
    "hvp",
    "is_grad_enabled",
    "jacobian",
    "jit",
    "jvp",
    "load_dygraph",
    "no_grad",
    "once_differentiable",
    "ops",
    "prepare_context",
    "queue_callback",
    "recompute",
    "save_dygraph",
    "saved_tensors_hooks",
    "seed",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_num_threads",
    "to_static",
    "to_tensor",
    "to_variable",
    "trace",
    "vhp",
    "vjp",
]

__dir__ = names_here(__name__)


if not TYPE_CHECKING:
    __getattr__ = names_not_here(__name__)


def seed(number: int) -> None:
    """Restart the stream that random ops draw from, with this seed.

    By default the seed is the default program's ``random_seed``, or a new one in every process.

    Args:
        number: the seed.

    >>> dygraph.seed(1)
    >>> with dygraph.guard():
    ...     first = layers.uniform_random([3]).numpy()
    ...     dygraph.seed(1)
    ...     bool((layers.uniform_random([3]).numpy() == first).all())
    True
    """
    if state.tracer is not None:
        state.tracer.refuse_call("seed()", "call it before tracing")
    RANDOM.seed(number)

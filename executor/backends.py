"""Registers the built-in backends of all places; later ones are preferred."""

import numpy as np

from fluid.values.place import CPUPlace, CUDAPlace, Place, XLAPlace

from .backend import add_backend
from .binding.compiled import add_compiler
from .kernels.engine import KernelEngine, add_engine
from .native.one_op import NativeOps, recurrent_loops
from .planned.backend import NativeBackend, PlannedBackend
from .stepwise.program import StepwiseBackend
from .xla.backend import XlaBackend

add_backend(Place, StepwiseBackend)
add_backend(CPUPlace, PlannedBackend)
add_backend(CPUPlace, NativeBackend)
add_backend(CUDAPlace, PlannedBackend)
add_backend(XLAPlace, XlaBackend)
add_compiler(NativeOps())
add_engine(KernelEngine(np, widens_halves=True, recurrent_loops=recurrent_loops))

"""Programs and what they are made of, by the name that Fluid 1.6 has for this: see `fluid.ir.program`."""

from .ir.inference import BuildNamespace
from .ir.program import (
    Block,
    Operator,
    OpRole,
    Parameter,
    Program,
    Variable,
    cpu_places,
    cuda_pinned_places,
    cuda_places,
    default_main_program,
    default_startup_program,
    in_dygraph_mode,
    is_compiled_with_cuda,
    load_op_library,
    name_scope,
    program_guard,
    require_version,
)

__all__ = [
    "Block",
    "BuildNamespace",
    "OpRole",
    "Operator",
    "Parameter",
    "Program",
    "Variable",
    "cpu_places",
    "cuda_pinned_places",
    "cuda_places",
    "default_main_program",
    "default_startup_program",
    "in_dygraph_mode",
    "is_compiled_with_cuda",
    "load_op_library",
    "name_scope",
    "program_guard",
    "require_version",
]

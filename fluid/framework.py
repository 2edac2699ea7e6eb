"""Programs, blocks, operators and variables under the module name of Fluid 1.6; defined in `fluid.ir.program`."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from .errors import ProgramError
from .ir.program import *  # noqa: F403
from .ir.program import Program, Variable, default_main_program, program_guard, static_defaults
from .ir.program import __all__ as _PROGRAM
from .not_here import names_here, names_not_here
from .opdef.registry import EMPTY
from .values.place import CPUPlace, cpu_places, cuda_pinned_places, cuda_places, is_compiled_with_cuda
from .values.types import DTypeLike, VarType, as_dtype, is_floating

__all__ = [
    "CONTROL_DEP_VAR_PREFIX", "EMPTY_VAR_NAME", "GRAD_VAR_SUFFIX", "TEMP_VAR_NAME", "ZERO_VAR_SUFFIX",
    "convert_np_dtype_to_dtype_", "cpu_places", "cuda_pinned_places", "cuda_places", "dtype_is_floating", "dygraph_not_support",
    "dygraph_only", "grad_var_name", "is_compiled_with_cuda", "load_op_library", "require_version", *_PROGRAM,
]  # fmt: skip

__dir__ = names_here(__name__)

if not TYPE_CHECKING:
    __getattr__ = names_not_here(__name__)

_Function = TypeVar("_Function", bound=Callable[..., Any])

EMPTY_VAR_NAME = EMPTY
TEMP_VAR_NAME = "@TEMP@"
GRAD_VAR_SUFFIX = "@GRAD"
ZERO_VAR_SUFFIX = "@ZERO"
CONTROL_DEP_VAR_PREFIX = "Control@Dependency"


def grad_var_name(var_name: str) -> str:
    """The name of the gradient of a variable; if it is a sum, or used already, a program has further names.

    >>> fluid.framework.grad_var_name("fc_0.w_0")
    'fc_0.w_0@GRAD'
    """
    return var_name + GRAD_VAR_SUFFIX


def convert_np_dtype_to_dtype_(np_dtype: DTypeLike) -> VarType:
    """The element type for a dtype of numpy, or its name.

    >>> fluid.framework.convert_np_dtype_to_dtype_("float32").text
    'float32'
    """
    return as_dtype(np_dtype)


def dtype_is_floating(dtype: DTypeLike) -> bool:
    """Whether this is an element type of floats.

    >>> fluid.framework.dtype_is_floating("float16"), fluid.framework.dtype_is_floating("int64")
    (True, False)
    """
    return is_floating(as_dtype(dtype))


def _get_var(name: str, program: Program | None = None) -> Variable:
    """The variable of this name in block 0 of a program (the default main program if None)."""
    return (program if program is not None else default_main_program()).global_block().var(name)


def _dygraph_tracer() -> Program | None:
    """In eager mode the program that runs ops at once, otherwise None: for scripts that ask whether there is one."""
    program = default_main_program()
    return program if program.eager else None


@contextlib.contextmanager
def _dygraph_guard(tracer: Any) -> Iterator[None]:
    """Inside the ``with``, if `tracer` is None, layers append to programs again, though eager mode is on around it."""
    with program_guard(*static_defaults()) if tracer is None and _dygraph_tracer() is not None else contextlib.nullcontext():
        yield


def dygraph_not_support(func: _Function) -> _Function:
    """Decorate a function that is for programs: calls in eager mode are errors.

    >>> @fluid.framework.dygraph_not_support
    ... def build():
    ...     return "built"
    >>> build()
    'built'
    """
    return _only(func, False, "builds a part of a program, and eager mode is on; call it outside of dygraph.guard()")


def dygraph_only(func: _Function) -> _Function:
    """Decorate a function that is for eager mode: calls outside of it are errors.

    >>> @fluid.framework.dygraph_only
    ... def step():
    ...     return "done"
    >>> with dygraph.guard():
    ...     step()
    'done'
    """
    return _only(func, True, "is for eager mode; call it inside dygraph.guard()")


def _only(func: _Function, in_eager_mode: bool, why: str) -> _Function:
    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        if (_dygraph_tracer() is not None) is not in_eager_mode:
            raise ProgramError(f"{func.__name__} {why}")
        return func(*args, **kwargs)

    return cast(_Function, call)


def _current_expected_place() -> CPUPlace:
    """The place of new values where none is given."""
    return CPUPlace()


def load_op_library(lib_filename: str) -> None:
    """Not supported: ops in C++, as in `lib_filename`, need Paddle's runtime; `fluid.extend` defines ops in Python.

    Raises:
        ProgramError: always.
    """
    raise ProgramError(
        f"load_op_library({lib_filename!r}): ops compiled for Paddle cannot run here; define the op in Python, with fluid.extend"
    )


def require_version(min_version: str, max_version: str | None = None) -> None:
    """Accepts every version: scripts that require some version of Paddle get the interface of 1.6, which this package has.

    Args:
        min_version, max_version: versions of Paddle; None for any.

    Raises:
        ProgramError: an argument is not a version such as ``"1.6.0"``.

    >>> fluid.require_version("1.6.0")
    """
    for version in (min_version, max_version):
        if version is not None and not (isinstance(version, str) and re.fullmatch(r"\d+(\.\d+){0,3}", version)):
            raise ProgramError(f"{version!r} is not a version such as '1.6.0'")

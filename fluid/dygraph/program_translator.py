"""`ProgramTranslator` of Fluid 1.8: programs of functions of tensors, and the switch of ``declarative``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..errors import FluidTypeError
from ..initializer import NumpyArrayInitializer
from ..ir.program import Program, Variable
from .open_traces import trace
from .static_function import BoundStatic, StaticFunction, TracedOnCall, declared
from .tracing import TracedFunction

__all__ = ["ProgramTranslator", "dygraph_to_static_func"]


class ProgramTranslator:
    """The programs of ``declarative`` functions, and their switch, for scripts of Fluid 1.8. There is a single instance.

    Functions are traced, not rewritten: where a value of a tensor decides, they use `fluid.layers.cond` and `while_loop`.

    >>> def double(x):
    ...     return x * 2.0
    >>> dygraph.ProgramTranslator().get_output(double, dygraph.Tensor([1.0, 2.0])).numpy()
    array([2., 4.], dtype=float32)
    """

    _instance: ProgramTranslator | None = None

    def __new__(cls) -> ProgramTranslator:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    @classmethod
    def get_instance(cls) -> ProgramTranslator:
        """The single instance."""
        return cls()

    def enable(self, enable_declarative: bool) -> None:
        """Switch ``declarative`` functions to run as programs, which is the default, or op by op."""
        if not isinstance(enable_declarative, bool):
            raise FluidTypeError(f"enable_declarative should be True or False, not {enable_declarative!r}")
        declared.run_as_programs = enable_declarative

    def get_output(self, dygraph_func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The result of a function, run as a program if no gradient is recorded.

        Args:
            dygraph_func: the function.
            args, kwargs: its arguments.
        """
        if isinstance(dygraph_func, (TracedOnCall, BoundStatic)):
            return dygraph_func(*args, **kwargs)
        return StaticFunction(dygraph_func)(*args, **kwargs)

    def get_func(self, dygraph_func: Callable[..., Any]) -> Callable[..., Any]:
        """The plain function `dygraph_func`: given Variables, it appends ops to a program."""
        return _plain(dygraph_func)

    def get_program(
        self, dygraph_func: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> tuple[Program, Program, list[Variable], list[Variable]]:
        """The program of a function, one that sets its parameters to their present values, its inputs and its outputs.

        Args:
            dygraph_func: the function.
            args, kwargs: its arguments.
        """
        traced = trace(_plain(dygraph_func), *args, **kwargs)
        return traced.program, _startup_of(traced), traced.feeds, traced.fetches

    def get_code(self, dygraph_func: Callable[..., Any]) -> str:
        """The source of `dygraph_func`, which is traced as it is."""
        return inspect.getsource(_plain(dygraph_func))


def _plain(function: Any) -> Callable[..., Any]:
    if isinstance(function, BoundStatic):
        return function._bound()
    if isinstance(function, TracedOnCall):
        return function._function
    if not callable(function):
        raise FluidTypeError(f"ProgramTranslator takes functions of tensors, not a {type(function).__name__}")
    return function  # type: ignore[no-any-return]


def _startup_of(traced: TracedFunction) -> Program:
    """A program that sets the outer tensors of a traced function."""
    startup = Program()
    block = startup.global_block()
    for name, tensor in traced.captured.items():
        value = block.create_var(name=name, shape=tensor.shape, dtype=tensor.dtype, persistable=True)
        NumpyArrayInitializer(tensor.numpy())(value, block)
    return startup


def dygraph_to_static_func(dygraph_func: Callable[..., Any]) -> Callable[..., Any]:
    """The function `dygraph_func` itself: layers build programs of Variables, and compute with tensors, without a decorator.

    >>> @dygraph.jit.dygraph_to_static_func
    ... def double(x):
    ...     return x * 2.0
    >>> double(fluid.data("x", [None, 2])).shape
    (-1, 2)
    """
    return dygraph_func

"""Layers in programs: called with a Variable, a layer appends its ops, with variables in place of its parameters.

These have the names of the parameters, and start from the same values. So a startup program repeats the draw that initialized a
parameter, or holds the values of one that has been set since.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..eager.mode import state
from ..eager.parts import Twins, parts
from ..eager.program import Parameter
from ..eager.tensor import Tensor
from ..executor.runtime.random import RANDOM, stream_of_draw
from ..initializer import ConstantInitializer, NumpyArrayInitializer
from ..ir.copying import RANDOM_STREAM
from ..ir.program import Block, Program, Variable, default_main_program

__all__ = ["appending", "drawing_for_program", "expect_parameters", "is_appending", "program_among", "twin_of"]


def program_among(values: Iterable[Any]) -> Program | None:
    """The default main program if an argument, or an item of a list among them, is a variable of a program; else None."""
    for value in values:
        if isinstance(value, (list, tuple)):
            value = next((item for item in value if isinstance(item, Variable)), None)
        if not isinstance(value, Tensor) and isinstance(value, Variable):
            return default_main_program()
    return None


@contextlib.contextmanager
def appending(program: Program | None) -> Iterator[None]:
    """Inside the ``with``, the parameters of layers are variables of this program; for None, tensors."""
    before, state.target = state.target, program
    try:
        yield
    finally:
        state.target = before


def is_appending(program: Program) -> bool:
    """Whether this is inside of `appending` for a program."""
    return state.target is program


def twin_of(tensor: Any) -> Any:
    """Inside `appending`, the variable that stands for a parameter or buffer of a layer; elsewhere, the tensor itself."""
    program = state.target
    if program is None or tensor is None:
        return tensor
    block = program.global_block()
    var = block.vars.get(tensor.name)
    if var is None:
        kwargs = {"name": tensor.name, "shape": tensor.shape, "dtype": tensor.dtype}
        if isinstance(tensor, Parameter):
            settings = tensor._settings()
            var = block.create_parameter(**kwargs, **{key: settings[key] for key in settings if key != "name"})
        else:
            var = block.create_var(**kwargs, persistable=True, stop_gradient=tensor.stop_gradient)
        program.startup.global_block().initialize(var, _Start(tensor))
    return var


class _Start:
    """Initializes a variable with the value of a tensor."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __call__(self, var: Variable, block: Block) -> Any:
        initializer, draws, version = self._tensor.__dict__.get("_start", (None, (), -1))
        drawn = len(draws) == 1 or isinstance(initializer, ConstantInitializer)
        if version != self._tensor.version or not drawn:
            return NumpyArrayInitializer(np.asarray(self._tensor))(var, block)
        op = initializer(var, block)
        if draws:
            op.attrs[RANDOM_STREAM] = stream_of_draw(draws[0])
        return op


def expect_parameters(layer: str) -> None:
    """Announce a layer that makes parameters later: random draws number parameters relative to its name."""
    program = default_main_program()
    RANDOM.expect(layer, None if program.eager else program.startup)


@contextlib.contextmanager
def drawing_for_program() -> Iterator[None]:
    """Inside the ``with``, layers initialize parameters with the values that the default program's seed would give them there."""
    program = default_main_program()
    with contextlib.nullcontext() if program.eager else RANDOM.for_program(program.startup):
        yield


def _stand_ins(args: Any, kwargs: Any) -> tuple[Any, Any] | None:
    if state.target is None:
        return None

    def one(value: Any) -> Any:
        if type(value) in (list, tuple):
            return type(value)(map(one, value))
        return _twin_or_value(value)

    return tuple(map(one, args)), {name: one(value) for name, value in kwargs.items()}


def _twin_or_value(value: Any) -> Any:
    """The twin of a parameter; other values unchanged. A computed tensor cannot be an initial value, and is still refused."""
    return twin_of(value) if isinstance(value, Parameter) else value


parts.twins = Twins(_twin_or_value, _stand_ins)

"""Functions whose parameters name the values of an op that they take: kernels, lowerings, rules, formulas, inference.

An example is ``def relu(xp, X, Out)``. `OpFunction` finds out once where each parameter comes from, and passes the op's values by
these names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ..errors import ProgramError

if TYPE_CHECKING:
    from .registry import OpDef


_NOTHING: Mapping[str, Any] = {}


def grad_slot(slot: str) -> str:
    """The slot of a gradient op for the gradient of `slot`."""
    return slot + "@GRAD"


def parameters_of(fn: Callable[..., Any]) -> dict[str, tuple[Any, bool]]:
    """Parameter -> its annotation (`inspect.Parameter.empty` if it has none), and whether it has a default.

    For plain functions they are read from the code object: `inspect.signature` takes six times as long, and there are many ops.
    """
    if type(fn) is not FunctionType or fn.__dict__ or fn.__code__.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        parameters = inspect.signature(fn).parameters
        return {name: (parameter.annotation, parameter.default is not parameter.empty) for name, parameter in parameters.items()}
    code = fn.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    first = code.co_argcount - len(fn.__defaults__ or ())
    optional = {*names[first : code.co_argcount], *(fn.__kwdefaults__ or ())}
    return {name: (fn.__annotations__.get(name, inspect.Parameter.empty), name in optional) for name in names}


@dataclass
class OpFunction:
    """A function with the source of each of its parameters.

    Attributes:
        fn: the function.
        parameters: (parameter, source: ``in``, ``out``, ``attr``, ``lod``, ``context`` or ``absent``, slot, attribute or name).
    """

    fn: Callable[..., Any]
    parameters: tuple[tuple[str, str, str], ...]

    @classmethod
    def of(
        cls, definitions: Iterable[OpDef], fn: Callable[..., Any], context: Iterable[str], noun: str, **more: Any
    ) -> dict[str, Any]:
        """Find out, for each of these ops, where the parameters of a function come from.

        A parameter names a slot; ``dX`` names ``X@GRAD``; ``X_lod`` the LoD of slot ``X``; an attribute, with ``_`` appended
        where Python reserves the word. Names in `context` come before these. It may be absent in some of the ops; there it is
        None, or its default.

        Raises:
            ProgramError: a parameter without a default is none of these in any of the ops.
        """
        names = parameters_of(fn)
        sources = {definition.type: {name: _source(definition, name, context) for name in names} for definition in definitions}
        for name, (_, has_default) in names.items():
            if sources and not has_default and all(source[name] is None for source in sources.values()):
                raise ProgramError(f"the {noun} of {', '.join(sources)} names {name!r}, which is no slot or attribute of it")
        entries = {}
        for op_type, source_of in sources.items():
            passed = (name for name, (_, has_default) in names.items() if source_of[name] is not None or not has_default)
            entries[op_type] = cls(fn, tuple((name, *(source_of[name] or ("absent", name))) for name in passed), **more)
        return entries

    @classmethod
    def of_one(cls, definition: OpDef, fn: Callable[..., Any], context: Iterable[str], noun: str) -> OpFunction:
        """As `of`, for a single op."""
        entry: OpFunction = cls.of([definition], fn, context, noun)[definition.type]
        return entry

    @property
    def reads_lods(self) -> bool:
        """Whether a parameter is the LoD of a slot."""
        return any(source == "lod" for _, source, _ in self.parameters)

    def arguments(
        self,
        inputs: Mapping[str, Any],
        attrs: Mapping[str, Any],
        context: Mapping[str, Any],
        outputs: Mapping[str, Any] = _NOTHING,
        lods: Mapping[str, Any] = _NOTHING,
    ) -> dict[str, Any]:
        """The function's arguments, by name; None for an absent slot."""
        arguments = {}
        for name, source, key in self.parameters:
            if source == "in":
                arguments[name] = inputs.get(key)
            elif source == "out":
                arguments[name] = outputs.get(key)
            elif source == "attr":
                arguments[name] = attrs.get(key)
            elif source == "lod":
                arguments[name] = lods.get(key, ())
            elif source == "context":
                arguments[name] = context[key]
            else:
                arguments[name] = None
        return arguments

    def results(self, definition: OpDef, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a function that returns the first output, or a dict by slot; return a dict by slot."""
        result = self.fn(**arguments)
        return result if isinstance(result, dict) else {next(iter(definition.outputs)): result}


def _source(definition: OpDef, name: str, context: Iterable[str]) -> tuple[str, str] | None:
    """Where a parameter comes from: the kind of source, and the key there; None if the op has nothing of this name."""
    if name in context:
        return "context", name
    for slot in (name, grad_slot(name[1:])) if name[0] == "d" else (name,):
        if slot in definition.inputs:
            return "in", slot
        if slot in definition.outputs:
            return "out", slot
    if name.endswith("_lod"):
        start = name.removesuffix("_lod")
        for slot in (start, grad_slot(start[1:])) if start[0] == "d" else (start,):
            if slot in definition.inputs or slot in definition.outputs:
                return "lod", slot
    attr = name.rstrip("_")
    return ("attr", attr) if attr in definition.attrs else None

"""Tables of an engine's functions by op type. A function's parameter names say which values of the op it takes.

A kernel, a lowering or an export is a function such as ``def relu(xp, X, Out)``. `OpFunction` finds out once where each parameter
comes from, and passes the values of an op by these names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..errors import ProgramError
from .registry import OpDef, get, grad_slot, parameters_of

__all__ = ["OpFunction", "OpTable"]

Entry = TypeVar("Entry")
Function = TypeVar("Function", bound=Callable[..., Any])

_NOTHING: Mapping[str, Any] = {}


class OpTable(dict[str, Entry], Generic[Entry]):
    """Op type -> an engine's entry for ops of this type, each registered once.

    Args:
        noun: the entries' name in errors, such as ``"kernel"``.
    """

    def __init__(self, noun: str) -> None:
        super().__init__()
        self.noun = noun

    def add(self, entries: Mapping[str, Entry]) -> None:
        """Add entries; `ProgramError` if an op has one."""
        for op_type, entry in entries.items():
            if op_type in self:
                raise ProgramError(f"the op {op_type!r} already has a {self.noun}")
            self[op_type] = entry

    def register(self, *op_types: str) -> Callable[[Entry], Entry]:
        """Make a decorator that adds a function for each of these op types."""

        def register(entry: Entry) -> Entry:
            self.add(dict.fromkeys(op_types, entry))
            return entry

        return register


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
        cls, op_types: Iterable[str], fn: Callable[..., Any], context: Iterable[str], noun: str, **more: Any
    ) -> dict[str, Any]:
        """Find out, for each of these ops, where the parameters of a function come from.

        A parameter names a slot; ``dX`` names ``X@GRAD``; ``X_lod`` the LoD of slot ``X``; an attribute, with ``_`` appended
        where Python reserves the word. Names in `context` come before these. It may be absent in some of the ops.

        Raises:
            ProgramError: a parameter without a default is none of these in any of the ops.
        """
        definitions = [get(op_type) for op_type in op_types]
        names = parameters_of(fn)
        sources = {definition.type: {name: _source(definition, name, context) for name in names} for definition in definitions}
        for name, (_, has_default) in names.items():
            if sources and not has_default and all(source[name] is None for source in sources.values()):
                types = ", ".join(sources)
                raise ProgramError(f"the {noun} of {types} names {name!r}, which is no slot or attribute of it")
        return {
            op_type: cls(fn, tuple((name, *(source or ("absent", name))) for name, source in of_op.items()), **more)
            for op_type, of_op in sources.items()
        }

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
    gradient = grad_slot(name[1:]) if name[:1] == "d" else ""
    for slot in (name, gradient):
        if slot in definition.inputs:
            return "in", slot
        if slot in definition.outputs:
            return "out", slot
    if name.endswith("_lod"):
        start = name.removesuffix("_lod")
        for slot in (start, grad_slot(start[1:])) if start[:1] == "d" else (start,):
            if slot in definition.inputs or slot in definition.outputs:
                return "lod", slot
    return ("attr", name.rstrip("_")) if name.rstrip("_") in definition.attrs else None

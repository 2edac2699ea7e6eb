"""What layers, optimizers and averages share in eager mode: lists of parameters, and states by name."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .errors import FluidTypeError, ProgramError

__all__ = ["GivenState", "asked", "check_state", "complete", "some", "start_of"]


def some(names: Iterable[Any]) -> str:
    """The first of these names, for a message."""
    found = [str(name) for name in names]
    return ", ".join(found[:10]) + (", ..." if len(found) > 10 else "") if found else "nothing"


def check_state(where: str, state: Any) -> None:
    """A `FluidTypeError` unless `state` is what a `state_dict` gives."""
    if isinstance(state, Mapping):
        return
    said = f"a {type(state).__name__}"
    if state is None:
        said = "None, which load_dygraph gives where there is no such file"
    elif isinstance(state, tuple):
        said += "; load_dygraph gives two states: of_layer, of_optimizer = load_dygraph(path)"
    raise FluidTypeError(f"{where} takes a dict of tensors or arrays by name, such as state_dict() gives, not {said}")


# ---------------------------------------------------------------------------------------------------- lists of parameters
def asked(source: Any) -> Any:
    """The parameters of a `parameter_list`: a list itself, those that a layer has now, or what a function gives."""
    if source is None or isinstance(source, list):
        return source
    named = getattr(source, "named_parameters", None)
    return [parameter for _, parameter in named()] if named is not None else list(source())


def complete(where: str, parameter_list: Any) -> Any:
    """A `parameter_list` to keep: a list of its own; a layer, or a function that gives a list, itself, to be `asked` later.

    Raises:
        ProgramError: it is what `Layer.parameters` gave while layers had not made theirs.
    """
    unmade = getattr(parameter_list, "unmade", None)
    if unmade is not None:
        raise ProgramError(
            f"{where}: parameter_list lacks the parameters of {unmade}, which are made in the first call of each: call the "
            "network once before, or give the layer itself where it is asked in each step: parameter_list=net"
        )
    if parameter_list is None or callable(parameter_list):
        return parameter_list
    return list(parameter_list)


# ------------------------------------------------------------------------------------------------------------------ states
def start_of(name: str) -> str:
    """The name of a variable without the number at its end, which counts those that are called alike."""
    return re.sub(r"_\d+$", "", name)


class GivenState:
    """A state of which each variable takes its own, now or when it is made.

    Names end in numbers that count the variables called alike in a process, so that a second optimizer of the same parameters
    has others: where a name is not found, the only one that starts alike is meant.

    Attributes:
        left: names that nothing has taken.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self.left: dict[str, Any] = dict(state or {})
        self._told: set[str] = set()
        self._alike: dict[str, list[str]] = {}
        for name in self.left:
            self._alike.setdefault(start_of(name), []).append(name)

    def __bool__(self) -> bool:
        return bool(self.left)

    def find(self, start: str, name: str) -> str | None:
        """The name in the state of the variable `name`, which starts so; None if there is none."""
        alike = self._alike.get(start, [])
        if name in alike:
            found = name
        elif len(alike) > 1:
            raise ProgramError(
                f"which of {some(alike)} of the state is for {name} cannot be told: parameters were called alike; give them "
                "names of their own, such as by ParamAttr(name=...)"
            )
        elif alike:
            (found,) = alike
        else:
            return None
        return found if found in self.left else None

    def give(self, variables: Iterable[tuple[str, Any]]) -> None:
        """Give variables, each with the start of its name, their values, if all that there are fit."""
        chosen: dict[str, Any] = {}
        for start, var in variables:
            found = self.find(start, var.name)
            if found is None or found in chosen:
                continue
            shape = np.shape(self.left[found])
            if tuple(shape) != var.shape:
                raise ProgramError(f"{var.name} is {var.describe()}; the state's has the shape {list(shape)}")
            chosen[found] = var
        for found, var in chosen.items():
            var.set_value(self.left.pop(found))

    def tell_unused(self, where: str, coming: Iterable[str] = ()) -> None:
        """Warn, once, of names that nothing has taken, but for those that begin like what is still coming."""
        unused = [name for name in self.left if name not in self._told and not name.startswith(tuple(coming))]
        self._told.update(unused)
        if unused:
            warnings.warn(
                f"{where}: nothing that it trains has had a use for these of the state: {some(unused)}. They are found by the "
                "names of the parameters, which count from zero in each fluid.dygraph.guard(), and by what it keeps for each",
                stacklevel=4,
            )

    def keep(self) -> None:
        """What is left is for variables that are made later: the tensors that it was taken from may change until then."""
        self.left = {
            name: value.detach().clone() if hasattr(value, "detach") else copy.deepcopy(value)
            for name, value in self.left.items()
        }

"""What layers, optimizers and averages share in eager mode: lists of parameters, and states by name."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from ..building.versions import program_of
from ..errors import FluidTypeError, ProgramError
from ..ir.program import Program, Variable

__all__ = ["ByProgram", "GivenState", "asked", "check_state", "complete", "some", "start_of", "unmade_of"]


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
def asked(where: str, source: Any) -> Any:
    """The parameters of a `complete` `parameter_list`: a list itself, those that a layer has now, or what a function gives."""
    if source is None or isinstance(source, list):
        return source
    named = getattr(source, "named_parameters", None)
    if named is not None:
        return [parameter for _, parameter in named()]
    found = source()
    return _checked(f"{where}: the function that is parameter_list", found, "give")


def complete(where: str, parameter_list: Any, kept: bool = True) -> Any:
    """A `parameter_list` to be `asked`: a list of its own, or a layer or a function that gives a list, itself.

    Raises:
        FluidTypeError: it is none of these.
        ProgramError: it is to be `kept`, and empty, or what `Layer.parameters` gave while layers had not made theirs.
    """
    if parameter_list is None or (callable(parameter_list) and not isinstance(parameter_list, (type, Variable))):
        return parameter_list
    if not kept:
        return _checked(f"{where}: parameter_list", parameter_list)
    unmade = getattr(parameter_list, "unmade", None)
    if unmade is not None:
        raise unmade_of(where, unmade, ", or give the layer itself where it is asked in each step: parameter_list=net")
    found = _checked(f"{where}: parameter_list", parameter_list)
    if not found:
        raise ProgramError(
            f"{where}: parameter_list is empty; give the parameters, such as layer.parameters(), or a layer that makes its "
            "parameters later itself"
        )
    return found


def unmade_of(where: str, layers: str, instead: str = "") -> ProgramError:
    """That layers have not made their parameters yet."""
    return ProgramError(
        f"{where}: parameter_list lacks the parameters of {layers}, which are made in the first call of each: call the network "
        f"once before{instead}"
    )


def _checked(where: str, found: Any, verb: str = "be") -> list[Any]:
    """The parameters, or names of such, in a list or the like, each once."""
    if isinstance(found, (str, type, Mapping, Variable, np.ndarray)) or not isinstance(found, Iterable):
        raise _no_list(f"{where} should {verb} a list of parameters", found)
    once: dict[Any, Any] = {}
    for item in found:
        if not isinstance(item, (Variable, str)):
            raise _no_list(f"{where} should {'hold' if verb == 'be' else verb} parameters", item)
        once[item if isinstance(item, str) else id(item)] = item
    return list(once.values())


def _no_list(should: str, found: Any) -> FluidTypeError:
    said, hint = f"{found!r}"[:100], ""
    if isinstance(found, Variable):
        said, hint = f"{found.name}, a single one", f"; write [{found.name}]"
    elif isinstance(found, type):
        said, hint = f"the class {found.__name__}", "; make an object of it"
    elif isinstance(found, Mapping):
        said = f"a dict of {some(map(repr, found))}"
        hint = "; groups have an optimizer each" if "params" in found else "; layer.parameters() gives a list"
    elif isinstance(found, tuple):
        said = f"a tuple of {' and '.join(type(item).__name__ for item in found)}"
        hint = "; named_parameters() gives names, too, and parameters() does not"
    elif hasattr(found, "named_parameters"):
        hint = "; a layer may be given itself, or by its parameters()"
    return FluidTypeError(f"{should}, such as layer.parameters(), not {said}{hint}")


_Value = TypeVar("_Value")


class ByProgram(WeakKeyDictionary[Program, _Value]):
    """What is kept for a program while that is there. What is kept in eager mode can be pickled."""

    def __reduce__(self) -> Any:
        if not all(program.eager for program in self):
            raise ProgramError(
                "what is kept for a program cannot be pickled: it is saved with the program, by fluid.save(program, path); in "
                "eager mode there is state_dict()"
            )
        return _unpickled, (list(self.values()),)


def _unpickled(values: list[Any]) -> ByProgram[Any]:
    return ByProgram(zip(filter(None, [program_of(values)]), values, strict=False))


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

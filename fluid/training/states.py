"""Lists of parameters, and states by name, for layers, optimizers and averages in eager mode."""

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


def some(names: Iterable[Any]) -> str:
    """Up to ten of these names as text, for a message."""
    texts = [str(name) for name in names]
    return ", ".join(texts[:10]) + (", ..." if len(texts) > 10 else "") if texts else "nothing"


def check_state(where: str, state: Any) -> None:
    """Raise a `FluidTypeError` unless `state` is a mapping, as from `state_dict`."""
    if isinstance(state, Mapping):
        return
    description = f"a {type(state).__name__}"
    if state is None:
        description = "None, which load_dygraph gives where there is no such file"
    elif isinstance(state, tuple):
        description += "; load_dygraph gives two states: of_layer, of_optimizer = load_dygraph(path)"
    raise FluidTypeError(f"{where} takes a dict of tensors or arrays by name, such as state_dict() gives, not {description}")


# ---------------------------------------------------------------------------------------------------- lists of parameters
def current_parameters(where: str, source: Any) -> Any:
    """The current parameters of a `complete` `parameter_list`: the list itself, the layer's parameters, or the function's
    result."""
    if source is None or isinstance(source, list):
        return source
    named = getattr(source, "named_parameters", None)
    if named is not None:
        return [parameter for _, parameter in named()]
    parameters = source()
    return _checked(f"{where}: the function that is parameter_list", parameters, "give")


def complete(where: str, parameter_list: Any, is_stored: bool = True) -> Any:
    """Check a `parameter_list` for `current_parameters`: return a new list of parameters, or a layer or a function unchanged.

    Raises:
        FluidTypeError: it is none of these.
        ProgramError: with `is_stored`, it is empty, or comes from `Layer.parameters` before all layers had made theirs.
    """
    if parameter_list is None or (callable(parameter_list) and not isinstance(parameter_list, (type, Variable))):
        return parameter_list
    if not is_stored:
        return _checked(f"{where}: parameter_list", parameter_list)
    unmade = getattr(parameter_list, "unmade", None)
    if unmade is not None:
        raise unmade_of(where, unmade, ", or give the layer itself where it is asked in each step: parameter_list=net")
    parameters = _checked(f"{where}: parameter_list", parameter_list)
    if not parameters:
        raise ProgramError(
            f"{where}: parameter_list is empty; give the parameters, such as layer.parameters(), or a layer that makes its "
            "parameters later itself"
        )
    return parameters


def unmade_of(where: str, layers: str, instead: str = "") -> ProgramError:
    """The error for layers that have not made their parameters yet."""
    return ProgramError(
        f"{where}: parameter_list lacks the parameters of {layers}, which are made in the first call of each: call the network "
        f"once before{instead}"
    )


def _checked(where: str, items: Any, verb: str = "be") -> list[Any]:
    """The parameters, or their names, without duplicates; an error for anything but an iterable of these."""
    if isinstance(items, (str, type, Mapping, Variable, np.ndarray)) or not isinstance(items, Iterable):
        raise _no_list(f"{where} should {verb} a list of parameters", items)
    once: dict[Any, Any] = {}
    for item in items:
        if not isinstance(item, (Variable, str)):
            raise _no_list(f"{where} should {'hold' if verb == 'be' else verb} parameters", item)
        once[item if isinstance(item, str) else id(item)] = item
    return list(once.values())


def _no_list(should: str, value: Any) -> FluidTypeError:
    description, hint = f"{value!r}"[:100], ""
    if isinstance(value, Variable):
        description, hint = f"{value.name}, a single one", f"; write [{value.name}]"
    elif isinstance(value, type):
        description, hint = f"the class {value.__name__}", "; make an object of it"
    elif isinstance(value, Mapping):
        description = f"a dict of {some(map(repr, value))}"
        hint = "; groups have an optimizer each" if "params" in value else "; layer.parameters() gives a list"
    elif isinstance(value, tuple):
        description = f"a tuple of {' and '.join(type(item).__name__ for item in value)}"
        hint = "; named_parameters() gives names, too, and parameters() does not"
    elif hasattr(value, "named_parameters"):
        hint = "; a layer may be given itself, or by its parameters()"
    return FluidTypeError(f"{should}, such as layer.parameters(), not {description}{hint}")


_Value = TypeVar("_Value")


class ByProgram(WeakKeyDictionary[Program, _Value]):
    """Values by program, dropped with the program. Values of the eager program can be pickled."""

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
def renamed(state: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Rename the attributes that earlier versions pickled.

    Args:
        state: the attributes of a pickled object.
        names: former name -> name now.
    """
    return {names.get(name, name): value for name, value in state.items()}


def start_of(name: str) -> str:
    """The name of a variable without the generated number at its end."""
    return re.sub(r"_\d+$", "", name)


class GivenState:
    """A loaded state. Each variable takes its value from it, at once or when the variable is made.

    Names end in generated numbers, which differ for a second optimizer of the same parameters: if a name is not found, the only
    one that is equal except for the number is used.

    Attributes:
        left: name -> a value that no variable has taken.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self.left: dict[str, Any] = dict(state or {})
        self._warned: set[str] = set()
        self._alike: dict[str, list[str]] = {}
        for name in self.left:
            self._alike.setdefault(start_of(name), []).append(name)

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(renamed(state, {"_told": "_warned"}))

    def __bool__(self) -> bool:
        return bool(self.left)

    def find(self, start: str, name: str) -> str | None:
        """The name in the state for the variable `name`, whose part before the number is `start`; None if there is none."""
        alike = self._alike.get(start, [])
        if name in alike:
            match = name
        elif len(alike) > 1:
            raise ProgramError(
                f"which of {some(alike)} of the state is for {name} cannot be told: parameters were called alike; give them "
                "names of their own, such as by ParamAttr(name=...)"
            )
        elif alike:
            (match,) = alike
        else:
            return None
        return match if match in self.left else None

    def give(self, variables: Iterable[tuple[str, Any]]) -> None:
        """Set variables, as (start of the name, variable), to their values; nothing changes if a shape does not fit."""
        chosen: dict[str, Any] = {}
        for start, var in variables:
            match = self.find(start, var.name)
            if match is None or match in chosen:
                continue
            shape = np.shape(self.left[match])
            if tuple(shape) != var.shape:
                raise ProgramError(f"{var.name} is {var.describe()}; the state's has the shape {list(shape)}")
            chosen[match] = var
        for match, var in chosen.items():
            var.set_value(self.left.pop(match))

    def tell_unused(self, where: str, coming: Iterable[str] = ()) -> None:
        """Warn once of unused names, except names that begin with one of `coming`."""
        unused = [name for name in self.left if name not in self._warned and not name.startswith(tuple(coming))]
        self._warned.update(unused)
        if unused:
            warnings.warn(
                f"{where}: nothing that it trains has had a use for these of the state: {some(unused)}. Names are matched by "
                "those of the parameters, which count from zero in each fluid.dygraph.guard(), and of what it keeps for each",
                stacklevel=4,
            )

    def keep(self) -> None:
        """Copy the remaining values for variables that are made later: their tensors may change until then."""
        self.left = {
            name: value.detach().clone() if hasattr(value, "detach") else copy.deepcopy(value)
            for name, value in self.left.items()
        }

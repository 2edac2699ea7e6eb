"""Positions in arrays of tensors that are known before a loop runs.

A position is usually a counter of the loop, plus a constant. So it is described as a sum of multiples of the integers that exist
when a trip starts; how these change from trip to trip decides the positions of all trips.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fluid.ir.program import Block
from fluid.ir.versions import BlockVersions, Value
from fluid.values.types import VarType

__all__ = ["Affine", "affine_values", "integer_of"]


@dataclass(frozen=True)
class Affine:
    """A constant plus a sum of multiples of named integers.

    Attributes:
        constant: the constant.
        factors: (name, factor) of each integer with a factor other than 0, sorted by name.
    """

    constant: int
    factors: tuple[tuple[str, int], ...] = ()

    def plus(self, term: Affine, sign: int = 1) -> Affine:
        factors = dict(self.factors)
        for name, factor in term.factors:
            factors[name] = factors.get(name, 0) + sign * factor
        return Affine(self.constant + sign * term.constant, tuple(sorted(item for item in factors.items() if item[1])))

    def times(self, number: int) -> Affine:
        return Affine(self.constant * number, tuple((name, factor * number) for name, factor in self.factors if number))

    def at(self, values: Mapping[str, Any]) -> Any:
        """The sum for values of the integers, numbers or arrays."""
        return sum((values[name] * factor for name, factor in self.factors), self.constant)

    def step(self, name: str) -> int | None:
        """The difference to the integer `name`, if it is constant; otherwise None."""
        return self.constant if self.factors == ((name, 1),) else None


def affine_values(versions: BlockVersions) -> dict[Value, Affine]:
    """Value of the block -> its sum, for single integers that are such sums of values from before a trip."""
    sums: dict[Value, Affine] = {}

    def sum_of(value: Value | None) -> Affine | None:
        if value is not None and value not in sums and not value[1] and _is_integer(versions.block, value[0]):
            sums[value] = Affine(0, ((value[0], 1),))
        return None if value is None else sums.get(value)

    for index, op in enumerate(versions.ops):
        if op.type == "read_from_array" and (read := _read_integer(versions, index)) is not None:
            sums[read] = Affine(0, ((integer_of(read), 1),))
        definition, rule = versions.definitions[index], _RULES.get(op.type)
        if definition is None or rule is None:
            continue
        (target,) = versions.writes[index].get("Out") or [None]
        reads = {slot: values for slot, values in versions.reads[index].items() if values}
        terms = {slot: term for slot, values in reads.items() if (term := sum_of(values[0])) is not None}
        if target is not None and terms.keys() == reads.keys() and _is_integer(versions.block, target[0]):
            result = rule(terms, definition.defaults(op.attrs))
            if result is not None:
                sums[target] = result
    for name in versions.read_first:
        sum_of((name, 0))
    return sums


def integer_of(value: Value) -> str:
    """The name of an integer that a trip reads from an array of tensors: a gradient finds the positions of other arrays there."""
    return f"{value[0]}/{value[1]}"


def _read_integer(versions: BlockVersions, index: int) -> Value | None:
    """The value that an op reads, if it is an integer of an array that trips only read."""
    (source,), (target,) = versions.reads[index]["X"], versions.writes[index]["Out"]
    is_constant = source is not None and not source[1] and source[0] not in {*versions.last, *versions.block.vars}
    return target if is_constant and target is not None and _is_integer(versions.block, target[0]) else None


def _is_integer(block: Block, name: str) -> bool:
    """Whether a variable is declared as a single integer."""
    var = block.find_var(name)
    if var is None or var.type is not VarType.LOD_TENSOR or not var.has_dtype or not var.has_shape:
        return False
    return var.dtype in (VarType.INT32, VarType.INT64) and set(var.shape) <= {1}


Terms = Mapping[str, Affine]
_Rule = Callable[[Terms, Mapping[str, Any]], "Affine | None"]


def _integral(number: float) -> int | None:
    return int(number) if float(number).is_integer() else None


def _copied(terms: Terms, attrs: Mapping[str, Any]) -> Affine | None:
    return terms["X"] if terms.keys() == {"X"} else None


def _incremented(terms: Terms, attrs: Mapping[str, Any]) -> Affine | None:
    step = _integral(attrs["step"])
    return None if step is None else terms["X"].plus(Affine(step))


def _scaled(terms: Terms, attrs: Mapping[str, Any]) -> Affine | None:
    factor, bias = _integral(attrs["scale"]), _integral(attrs["bias"])
    if factor is None or bias is None or terms.keys() != {"X"}:
        return None
    return terms["X"].times(factor).plus(Affine(bias if attrs["bias_after_scale"] else bias * factor))


def _product(terms: Terms, attrs: Mapping[str, Any]) -> Affine | None:
    left, right = terms["X"], terms["Y"]
    if right.factors:
        left, right = right, left
    return None if right.factors else left.times(right.constant)


def _filled(terms: Terms, attrs: Mapping[str, Any]) -> Affine | None:
    number = _integral(float(attrs["str_value"] or attrs["value"]))
    return None if terms or number is None else Affine(number)


_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("assign", "cast", "reshape2", "squeeze2", "unsqueeze2"), _copied),
    "increment": _incremented,
    "scale": _scaled,
    "elementwise_add": lambda terms, attrs: terms["X"].plus(terms["Y"]),
    "elementwise_sub": lambda terms, attrs: terms["X"].plus(terms["Y"], -1),
    "elementwise_mul": _product,
    "fill_constant": _filled,
}
"""Type of an op -> its output as a sum, from its inputs as sums and its attributes; None if it is no sum."""

"""Facts about the values of loops over the steps of sequences, which `padded_steps` writes as recurrences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fluid.ir.program import Operator

from .padded_rows import NotRewritten, Rewriter, RowFacts

__all__ = ["Condition", "First", "FirstGradients", "Ranked", "Steps", "Table", "fact_of", "has_as_many"]


class Table(NamedTuple):
    """A rank table, or the length of its longest sequence.

    Attributes:
        group: the LoD whose last level it ranks.
    """

    group: int


class Condition(NamedTuple):
    """The condition of a loop over the steps of a table's sequences, and its counter."""

    group: int
    counter: str


class Steps(NamedTuple):
    """An array of tensors with an entry for each step: the rows of a value."""

    group: int
    rows: str


class Ranked(NamedTuple):
    """Rows or sequences in rank order; `value` has them in the order of the batch."""

    group: int
    value: str


class First(NamedTuple):
    """An array of tensors that has only the first entry."""

    value: str


class FirstGradients(NamedTuple):
    """An array of gradients, whose first entry is the gradient of the first value of a state.

    Attributes:
        gradients: name of a first value -> the fact about its gradient, or the name of the gradient.
    """

    gradients: dict[str, Ranked | str]

    def write(self, to: Rewriter, op: Operator) -> Mapping[str, RowFacts]:
        """Write the gradient of a state's first value. Of states with one gradient, the first gets it, later ones zeros."""
        (value,), (out,) = op.input("X_W") or [""], op.output("Out")
        gradient = self.gradients.get(value)
        if gradient is None:
            raise NotRewritten
        ranked, name = (gradient, gradient.value) if isinstance(gradient, Ranked) else (None, gradient)
        zeros = to.add(op, "fill_zeros_like", {"X": name})
        for first, fact in self.gradients.items():
            if isinstance(fact, Ranked) and fact.value == name:
                self.gradients[first] = fact._replace(value=zeros)
            elif fact == name:
                self.gradients[first] = zeros
        if ranked is None:
            to.add(op, "assign", {"X": name}, out)
        else:
            to.loops[out] = ranked
        return {}


def fact_of(to: Rewriter, name: str, kind: type | tuple[type, ...]) -> Any:
    """The fact about a value of a loop; `NotRewritten` if it is no such value."""
    fact = to.loops.get(name)
    if not isinstance(fact, kind):
        raise NotRewritten
    return fact


def has_as_many(to: Rewriter, rows: RowFacts, group: int) -> bool:
    """Whether a value has one level of sequences, and the same number of them as a table."""
    return to.parent_of(rows.group) is None and to.sizes[rows.group][0] == to.sizes[group][0]

"""Bounds of indices, computed while a kernel is written. They give the kernel's footprint without running it.

An index is a `Sum`: a number plus factors times *variables*. A variable is known by its bounds alone: a loop counter, a thread
number, a quotient, a minimum. Its bounds are sums of older variables; it may have several, and all hold. To find the greatest
value of a sum, replace its newest variable by an upper bound (by a lower bound if the factor is negative), until only a number
remains; with several bounds, take the smallest result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import contextmanager
from math import gcd, inf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator


Footprint: TypeAlias = "tuple[int, int]"
"""The first byte of an operand that is accessed, and the byte after the last, relative to the operand's pointer."""


class Sum(NamedTuple):
    """An affine sum: a number plus variables, the newest first, times factors that are not zero."""

    number: int
    terms: tuple[tuple[int, int], ...] = ()

    def plus(self, addend: Sum, factor: int = 1) -> Sum:
        """This sum plus a factor times another sum."""
        if not addend.terms or not factor:
            return Sum(self.number + factor * addend.number, self.terms)
        terms = dict(self.terms)
        for variable, coefficient in addend.terms:
            terms[variable] = terms.get(variable, 0) + factor * coefficient
        return Sum(self.number + factor * addend.number, tuple(sorted([term for term in terms.items() if term[1]], reverse=True)))

    def times(self, factor: int) -> Sum:
        if not factor:
            return Sum(0)
        return Sum(self.number * factor, tuple([(variable, coefficient * factor) for variable, coefficient in self.terms]))

    def divided(self, by: int) -> Sum | None:
        """This sum divided by a number and rounded down; None if that is not a sum."""
        if any(factor % by for _, factor in self.terms):
            return None
        return Sum(self.number // by, tuple([(variable, factor // by) for variable, factor in self.terms]))

    @property
    def unit(self) -> int:
        """The greatest common divisor of the number and the factors: it divides every value of the sum. 0 for 0."""
        return gcd(self.number, *[factor for _, factor in self.terms])


Bound: TypeAlias = "tuple[Sum, int]"
"""A sum and its divisor."""


class IndexBounds:
    """The variables of a kernel, their bounds, and the kernel's accesses."""

    def __init__(self) -> None:
        self._lows: list[list[Bound]] = []
        self._highs: list[list[Bound]] = []
        self._facts: tuple[Sum, ...] = ()
        """Sums that are not negative in the code being written."""
        self._is_run = True
        """Whether the code being written can run at all."""
        self._greatest: dict[object, float] = {}
        self._divided: dict[tuple[Sum, int], tuple[Sum, Sum]] = {}
        """Sum and divisor -> the quotient and the remainder."""
        self._accesses: dict[tuple[int, tuple[tuple[int, int], ...], tuple[Sum, ...]], tuple[int, int]] = {}
        """Root, terms and facts of accesses -> the first byte, and the byte after the last, without the terms."""
        self._unbounded: set[int] = set()
        """Roots of accesses at unknown offsets."""

    # -- variables
    def variable(self, lows: Iterable[Sum | None] = (), highs: Iterable[Sum | None] = ()) -> Sum:
        """A new variable with the given bounds; None stands for an unknown bound."""
        self._lows.append([(low, 1) for low in lows if low is not None])
        self._highs.append([(high, 1) for high in highs if high is not None])
        return Sum(0, ((len(self._lows) - 1, 1),))

    def between(self, low: int, high: int) -> Sum:
        """A new variable between two numbers."""
        return self.variable([Sum(low)], [Sum(high)])

    def bound(self, variable: Sum, low: Sum | None = None, high: Sum | None = None, by: int = 1) -> None:
        """Add bounds of a variable, each divided by a number."""
        ((number, _),) = variable.terms
        self._lows[number] += [] if low is None else [(low, by)]
        self._highs[number] += [] if high is None else [(high, by)]
        self._greatest.clear()

    def greatest(self, total: Sum, facts: Sequence[Sum] = ()) -> float:
        """The greatest possible value of a sum; infinity if it is unknown."""
        if not total.terms:
            return total.number
        key = total, facts
        if key in self._greatest:
            return self._greatest[key]
        self._greatest[key] = result = inf
        (variable, factor), *_ = total.terms
        remaining = Sum(total.number, total.terms[1:])
        for bound, by in [*(self._highs if factor > 0 else self._lows)[variable], *self._bounds_by(facts, variable, factor > 0)]:
            value = self.greatest(remaining.times(by).plus(bound, factor) if by > 1 else remaining.plus(bound, factor), facts)
            result = min(result, value if value in (inf, -inf) else int(value) // by)
        self._greatest[key] = result
        return result

    def _bounds_by(self, facts: Sequence[Sum], variable: int, is_upper: bool) -> Iterator[Bound]:
        """Bounds of a variable from the facts that have it as their newest variable."""
        for fact in facts:
            if fact.terms and fact.terms[0][0] == variable and (fact.terms[0][1] < 0) is is_upper:
                factor = fact.terms[0][1]
                remaining = Sum(fact.number, fact.terms[1:])
                yield (remaining if is_upper else remaining.times(-1)), abs(factor)
                end = _number(self.greatest(remaining) // abs(factor))
                if end is not None:
                    yield end.times(1 if is_upper else -1), 1

    def least(self, total: Sum, facts: Sequence[Sum] = ()) -> float:
        """The least possible value of a sum; minus infinity if it is unknown."""
        return -self.greatest(total.times(-1), facts)

    def hull(self, a: Sum, b: Sum) -> tuple[Sum | None, Sum | None]:
        """A lower and an upper bound of both sums, as numbers."""
        return _number(min(self.least(a), self.least(b))), _number(max(self.greatest(a), self.greatest(b)))

    # -- results of instructions; None stands for unknown
    def product(self, a: Sum | None, b: Sum | None) -> Sum | None:
        if a is None or b is None:
            return None
        if not b.terms:
            return a.times(b.number)
        if not a.terms:
            return b.times(a.number)
        ends = [*(self.least(operand) for operand in (a, b)), *(self.greatest(operand) for operand in (a, b))]
        if inf in ends or -inf in ends:
            return None
        products = [int(x) * int(y) for x in ends[::2] for y in ends[1::2]]
        return self.between(min(products), max(products))

    def quotient(self, a: Sum | None, b: Sum | None) -> Sum | None:
        """The quotient of a truncating division."""
        return None if a is None or b is None or b.terms or b.number < 1 or self.least(a) < 0 else self._parts(a, b.number)[0]

    def remainder(self, a: Sum | None, b: Sum | None) -> Sum | None:
        """The remainder of a truncating division."""
        if b is None or b.terms or b.number < 1:
            return None
        if a is None or self.least(a) < 0:
            return self.between(1 - b.number, b.number - 1)
        return self._parts(a, b.number)[1]

    def _parts(self, a: Sum, by: int) -> tuple[Sum, Sum]:
        """Quotient and remainder of a sum that is not negative."""
        key = a, by
        if key not in self._divided:
            multiple = Sum(a.number // by * by, tuple([term for term in a.terms if term[1] % by == 0]))
            remaining = a.plus(multiple, -1)
            if self.least(remaining) >= 0 and self.greatest(remaining) < by:
                quotient = Sum(multiple.number // by, tuple([(v, factor // by) for v, factor in multiple.terms]))
                self._divided[key] = quotient, remaining
            else:
                least, most = (_number(end // by) for end in (self.least(a), self.greatest(a)))
                quotient = self.variable([least], [most, *[high.divided(by) for high in self._highs_of(a)]])
                self.bound(quotient, a.plus(Sum(1 - by)), a, by)
                remaining = a.plus(quotient, -by)
                self._divided[key] = quotient, self.variable([Sum(0), remaining], [Sum(by - 1), remaining])
        return self._divided[key]

    def _highs_of(self, total: Sum) -> list[Sum]:
        """Upper bounds of a sum with one variable; an empty list for other sums."""
        if len(total.terms) != 1 or total.terms[0][1] < 0:
            return []
        ((variable, factor),) = total.terms
        return [high.times(factor).plus(Sum(total.number)) for high, by in self._highs[variable] if by == 1]

    def masked(self, a: Sum | None, b: Sum | None) -> Sum | None:
        """The bitwise and of two sums."""
        numbers = [operand.number for operand in (a, b) if operand is not None and not operand.terms and operand.number >= 0]
        return self.between(0, numbers[0]) if numbers else None

    def either(self, a: Sum | None, b: Sum | None, fact: Sum | None = None) -> Sum | None:
        """The result of a select: `a` if the fact is not negative, else `b`. Without a fact, it may be either."""
        chosen = self._between(a, b, least=None)
        if chosen is not None and a is not None and b is not None and fact is not None and not a.plus(b, -1).terms:
            self._choose(chosen, a, b, fact)
            self._choose(chosen, b, a, fact.times(-1).plus(Sum(-1)))
        return chosen

    def _choose(self, chosen: Sum, a: Sum, b: Sum, fact: Sum) -> None:
        """Bound the result of a select between `a` (fact not negative) and `b` (fact is -1; it is never less)."""
        difference = a.number - b.number
        if not difference or self.least(fact) < -1:
            return
        ((variable, factor),) = chosen.terms
        bound = b.plus(fact.plus(Sum(1)), difference).plus(Sum(chosen.number), -1)
        low, high = (None, bound) if difference > 0 else (bound, None)
        self.bound(Sum(0, ((variable, 1),)), low, high, factor)

    def lesser(self, a: Sum | None, b: Sum | None) -> Sum | None:
        return self._between(a, b, least=True)

    def greater(self, a: Sum | None, b: Sum | None) -> Sum | None:
        return self._between(a, b, least=False)

    def _between(self, a: Sum | None, b: Sum | None, least: bool | None) -> Sum | None:
        if a is None or b is None:
            bound = a if b is None else b
            if bound is None or least is None:
                return None
            return self.variable([], [bound]) if least else self.variable([bound], [])
        difference = b.plus(a, -1)
        least_difference, greatest_difference = self.least(difference), self.greatest(difference)
        if least_difference == greatest_difference == 0:
            return a
        if least is not None and (least_difference >= 0 or greatest_difference <= 0):
            return a if least == (least_difference >= 0) else b
        unit = gcd(a.unit, b.unit)
        if unit > 1:
            return self._between(a.divided(unit), b.divided(unit), least).times(unit)  # type: ignore[union-attr]
        ahead, behind = _number(max(greatest_difference, 0)), _number(max(-least_difference, 0))
        """How far `b` may be above `a`, and below it."""
        low, high = self.hull(a, b)
        lows = [low, behind and a.plus(behind, -1), ahead and b.plus(ahead, -1)]
        highs = [high, ahead and a.plus(ahead), behind and b.plus(behind)]
        return self.variable(lows if least is not False else [a, b], highs if least is not True else [a, b])

    # -- accesses
    @contextmanager
    def assuming(self, facts: Sequence[Sum]) -> Iterator[None]:
        """In the ``with`` block, assume that these sums are not negative."""
        before = self._facts
        self._facts = (*before, *facts)
        with self.ignoring_if(any(self.greatest(fact) < 0 for fact in facts)):
            yield
        self._facts = before

    @contextmanager
    def ignoring_if(self, is_dead: bool) -> Iterator[None]:
        """In the ``with`` block, ignore accesses if the code there is dead: it cannot run."""
        before = self._is_run
        self._is_run = before and not is_dead
        yield
        self._is_run = before

    def access(self, root: int, place: Sum | None, size: int) -> None:
        """Note an access of `size` bytes at an offset (`place`, in bytes) from a root's pointer."""
        if not self._is_run:
            return
        if place is None:
            self._unbounded.add(root)
            return
        key = root, place.terms, self._facts
        low, high = self._accesses.get(key, (place.number, place.number + size))
        self._accesses[key] = min(low, place.number), max(high, place.number + size)

    def footprints(self) -> dict[int, tuple[float, float]]:
        """Root -> the first byte that is accessed, and the byte after the last."""
        self._greatest.clear()
        footprints: dict[int, tuple[float, float]] = dict.fromkeys(self._unbounded, (-inf, inf))
        for (root, terms, facts), (low, high) in self._accesses.items():
            first, end = footprints.get(root, (inf, -inf))
            least = self.least(Sum(low, terms), facts)
            greatest = self.greatest(Sum(high, terms), facts)
            footprints[root] = min(first, least), max(end, greatest)
        return footprints


def _number(value: float) -> Sum | None:
    """A number as a sum; None for infinity."""
    return Sum(int(value)) if -inf < value < inf else None


class Turns:
    """Bounds of a loop's index and of the values that it carries.

    Attributes:
        index: the index; None if it is unknown.
        are_none: whether the loop certainly makes no turn.
    """

    def __init__(self, bounds: IndexBounds, start: Sum | None, stop: Sum | None, step: int) -> None:
        self._bounds = bounds
        self.are_none = False
        self._turn, self._count = bounds.variable([Sum(0)]), bounds.variable([Sum(0)])
        """The number of the current turn, from 0 on; the number of turns."""
        if start is not None and stop is not None:
            extent = stop.plus(start, -1)
            most = bounds.greatest(extent)
            self.are_none = most <= 0
            before_end = extent.plus(Sum(-1))
            for bound in (_number((most - 1) // step), before_end.divided(step)):
                bounds.bound(self._turn, None, bound)
            bounds.bound(self._turn, None, before_end, step)
            count = extent.divided(step)
            if count is not None and extent.unit % step == 0 and bounds.least(extent) >= 0:
                self._count = count
            else:
                bounds.bound(self._count, None, extent.plus(Sum(step - 1)), step)
        self.index = start and start.plus(self._turn, step)

    def end(self, first: Sum | None, phi: Sum | None, last: Sum | None) -> Sum | None:
        """Bound a carried value, and return its bounds after the loop.

        Args:
            first: the value before the loop.
            phi: a variable without bounds: the value at the start of a turn.
            last: the value at the end of the turn, as a sum of `phi` and others.
        """
        if first is None or phi is None or last is None:
            return None
        step = last.plus(phi, -1)
        if phi.terms[0][0] in dict(step.terms):
            return None
        steps = self._bounds.least(step), self._bounds.greatest(step)
        if -inf in steps or inf in steps:
            return None
        low, high = (first.plus(self._turn, int(step_bound)) for step_bound in steps)
        self._bounds.bound(phi, low, high)
        least, most = (first.plus(self._count, int(step_bound)) for step_bound in steps)
        return least if steps[0] == steps[1] else self._bounds.variable([least], [most])


def facts_of(relation: str, x: Sum, y: Sum) -> list[Sum]:
    """Sums that are not negative if a relation holds. If there is only one, it is negative if the relation does not hold."""
    less, more = y.plus(x, -1), x.plus(y, -1)
    return {
        "slt": [less.plus(Sum(-1))],
        "sle": [less],
        "sgt": [more.plus(Sum(-1))],
        "sge": [more],
        "eq": [less, more],
    }.get(relation, [])

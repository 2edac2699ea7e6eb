"""Kernels of connectionist temporal classification (CTC): sums over all paths of a sequence's labels.

The states of a path are the labels, numbered from 0, and the blanks: blank j comes before label j. From step to step, a path
comes to blank j from itself and from label j - 1; to label j from itself, from blank j, and from label j - 1 of another class.
Blanks and labels lie in separate arrays, so that vectors hold several. Probabilities are logs. Threads share the sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import nan

from .emitter import INT64, Function, Operand, Type, Value, constant, zero
from .images import affine, each_vector
from .kernel import Share
from .mathematics import absolute, exp, log
from .sparse import RowSource
from .target import Target

_FAR = -1e30
"""Stands for the log of 0: a finite number, so its difference from itself is 0, not NaN."""
_STATES = 16
"""Blanks and labels are rounded up to a multiple of this, which is whole vectors on each processor."""
MOST_LABELS = 1000
"""The most labels of a sequence: the states of a step lie on the stack of a thread."""


def width_of(labels: int) -> int:
    """The number of blanks, and of labels, that a step has room for."""
    return -(-(labels + 1) // _STATES) * _STATES


def size_of_paths(steps: int, labels: int) -> int:
    """The numbers of a sequence in `graph.CtcPaths`: states before the first step and after each one, and their sum."""
    return (steps + 1) * _step_size(labels) + 1


def _step_size(labels: int) -> int:
    """The numbers of a step: blanks, one number that stands before the first label, and labels."""
    return 2 * width_of(labels) + 1


@dataclass(frozen=True)
class CtcOperands:
    """What both kernels read: logs of probabilities [steps, batch, classes], labels [batch, labels], and lengths [batch, 1]."""

    scores: Value
    labels: RowSource
    steps_of: RowSource
    labels_of: RowSource
    shape: tuple[int, int, int]
    element: Type
    blank: int

    def score(self, f: Function, step: Operand, number: Value, label: Operand) -> Value:
        """The place of the score of a class."""
        _, batch, classes = self.shape
        place = affine(f, 0, (f.int64(step), batch * classes), (number, classes), (f.int64(label), 1))
        return f.at(self.scores, place, self.element)


class _Sequence:
    """The labels of one sequence, on the stack."""

    def __init__(self, f: Function, ctc: CtcOperands, target: Target) -> None:
        self._f, self._ctc = f, ctc
        self.most = ctc.labels.shape[1]
        self.width, self.lanes = width_of(self.most), min(_STATES, target.lanes(ctc.element.bytes))
        self._classes = f.stack(INT64, self.most)
        self._skips, self._scores = (f.stack(ctc.element, self.width + 1) for _ in range(2))

    def load(self, number: Value) -> None:
        """Read the labels and lengths of a sequence. Numbers out of bounds are clipped: a check refuses them."""
        f, ctc, element = self._f, self._ctc, self._ctc.element
        steps, _, classes = ctc.shape
        self.number = number
        self.steps = f.min(f.max(ctc.steps_of.number(f, number), 0), steps)
        self.labels = f.min(f.max(ctc.labels_of.number(f, number), 0), self.most)
        nothing = zero(element.of(self.lanes))
        self.fill(self._skips, _FAR)
        f.store_number(constant(_FAR, element), f.at(self._skips, self.width, element))
        f.loop(0, self.width // self.lanes, 1, [], lambda i: f.store(nothing, self._vector(self._scores, i)))

        def note(label: Value, before: Value, repeats: Value) -> list[Value]:
            place = affine(f, 0, (number, ctc.labels.strides[0]), (label, ctc.labels.strides[1]))
            class_ = f.convert(f.load(f.at(ctc.labels.pointer, place, ctc.labels.element), ctc.labels.element), INT64)
            class_ = f.min(f.max(class_, 0), classes - 1)
            f.store_number(class_, f.at(self._classes, label, INT64))
            is_repeated = f.compare("eq", class_, before)
            skip = f.select(is_repeated, constant(_FAR, element), constant(0.0, element))
            f.store_number(skip, f.at(self._skips, label, element))
            return [class_, f.add(repeats, f.convert(is_repeated, INT64))]

        _, repeats = f.loop(0, self.labels, 1, [f.int64(-1), f.int64(0)], note)
        fits = f.compare("sle", f.add(self.labels, repeats), self.steps)
        self.is_possible = f.bit_and(fits, f.compare("sgt", self.steps, 0))
        self.vectors = f.between(f.div(f.add(self.labels, self.lanes), self.lanes), 1, self.width // self.lanes)

    def class_of(self, label: Value) -> Value:
        """The class of a label."""
        return self._f.between(self._f.load(self._f.at(self._classes, label, INT64), INT64), 0, self._ctc.shape[2] - 1)

    def _vector(self, pointer: Value, vector: Value) -> Value:
        """The place of a vector of states."""
        return self._f.at(pointer, self._f.mul(vector, self.lanes), self._ctc.element)

    def part(self, pointer: Value, vector: Value, shift: int = 0) -> Value:
        """A vector of states, or of the states some places further."""
        f, element = self._f, self._ctc.element
        return f.load(f.at(self._vector(pointer, vector), shift, element), element.of(self.lanes))

    def set_part(self, pointer: Value, vector: Value, states: Value) -> None:
        """Replace a vector of states."""
        self._f.store(states, self._vector(pointer, vector))

    def fill(self, pointer: Value, number: float) -> None:
        """Set all states to a number."""
        f, states = self._f, constant(number, self._ctc.element.of(self.lanes))
        f.loop(0, self.width // self.lanes, 1, [], lambda i: self.set_part(pointer, i, states))

    def skips(self, vector: Value, shift: int = 0) -> Value:
        """0 for labels that the label before may go to; else the log of no probability."""
        return self.part(self._skips, vector, shift)

    def over_vectors(self, body: Callable[..., None]) -> None:
        """Write ``body(vector)`` for the vectors of states that the sequence has."""
        self._f.loop(0, self.vectors, 1, [], body)

    def scores(self, step: Value) -> tuple[Value, Callable[[Value], Value]]:
        """The score of the blank in a step, in all lanes, and a function from the number of a vector to the scores of labels."""
        f, ctc, element = self._f, self._ctc, self._ctc.element
        row = ctc.score(f, step, self.number, 0)

        def collect(label: Value) -> None:
            score = f.load(f.at(row, self.class_of(label), element), element)
            f.store_number(score, f.at(self._scores, label, element))

        f.loop(0, self.labels, 1, [], collect)
        blank = f.splat(f.load(f.at(row, ctc.blank, element), element), self.lanes)
        return blank, lambda vector: self.part(self._scores, vector)

    def sum_of_ends(self, blanks: Value, labels: Value) -> Value:
        """The log of the sum over the two states where a path may end: the last label, and the blank behind it."""
        f, element = self._f, self._ctc.element
        last_blank = f.load(f.at(blanks, self.labels, element), element)
        last_label = f.load(f.at(labels, self.labels, element), element)  # of the place before the first label, if there is none
        return f.lane(_sum(f, f.splat(last_blank, 1), f.splat(last_label, 1)), 0)


def _sum(f: Function, a: Value, b: Value) -> Value:
    """The log of ``exp(a) + exp(b)``; NaN if one is NaN."""
    return f.add(f.max(a, b), log(f, f.add(exp(f, f.neg(absolute(f, f.sub(a, b)))), 1.0)))


def _sum_of_three(f: Function, a: Value, b: Value, c: Value) -> Value:
    """The log of ``exp(a) + exp(b) + exp(c)``; NaN if one is NaN."""
    top = f.max(f.max(a, b), c)
    first, second, third = (exp(f, f.sub(part, top)) for part in (a, b, c))
    return f.add(top, log(f, f.add(f.add(first, second), third)))


def write_paths(f: Function, ctc: CtcOperands, paths: Value, share: Share, target: Target) -> None:
    """See `graph.CtcPaths`."""
    (steps, batch, _), element = ctc.shape, ctc.element
    sequence = _Sequence(f, ctc, target)
    width, size, step_size = sequence.width, size_of_paths(steps, sequence.most), _step_size(sequence.most)

    def states(number: Value, step: Operand) -> tuple[Value, Value]:
        """The places of the blanks, and of the number before the first label."""
        place = affine(f, 0, (number, size), (f.int64(step), step_size))
        return f.at(paths, place, element), f.at(paths, f.add(place, width), element)

    def compute(number: Value) -> None:
        sequence.load(number)
        nothing, all_of = constant(_FAR, element), constant(0.0, element)
        blanks, labels = states(number, 0)
        for first in (blanks, f.at(labels, 1, element)):
            sequence.fill(first, _FAR)
        f.store_number(nothing, labels)
        f.store_number(all_of, blanks)

        def advance(step: Value) -> None:
            (blanks, labels), (new_blanks, new_labels) = states(number, step), states(number, f.add(step, 1))
            of_blank, of_labels = sequence.scores(step)
            f.store_number(nothing, new_labels)

            def move(i: Value) -> None:
                blank, label, before = sequence.part(blanks, i), sequence.part(labels, i, 1), sequence.part(labels, i)
                sequence.set_part(new_blanks, i, f.add(_sum(f, blank, before), of_blank))
                ways = _sum_of_three(f, label, blank, f.add(before, sequence.skips(i)))
                sequence.set_part(f.at(new_labels, 1, element), i, f.add(ways, of_labels(i)))

            sequence.over_vectors(move)

        f.loop(0, sequence.steps, 1, [], advance)
        total = sequence.sum_of_ends(*states(number, sequence.steps))
        f.store_number(f.select(sequence.is_possible, total, all_of), f.at(paths, affine(f, size - 1, (number, size)), element))

    f.loop(*share.of(f, batch), 1, [], compute)


def write_ctc_gradient(f: Function, ctc: CtcOperands, paths: Value, gradient: Value, share: Share, target: Target) -> None:
    """See `graph.CtcGradient`."""
    writer = _GradientWriter(f, ctc, paths, gradient, target)
    f.loop(*share.of(f, ctc.shape[1]), 1, [], writer.write)


class _GradientWriter:
    """Writes the gradient of one sequence after the other, from its last step to its first one.

    A state's number is the log of the sum over all ways from there to the end. `_blanks` and `_labels` hold these numbers behind
    a step, `_coming_blanks` and `_coming_labels` before it, that is, with the score of the step.
    """

    def __init__(self, f: Function, ctc: CtcOperands, paths: Value, gradient: Value, target: Target) -> None:
        self._f, self._ctc, self._paths, self._gradient = f, ctc, paths, gradient
        self._sequence = _Sequence(f, ctc, target)
        self._size = size_of_paths(ctc.shape[0], self._sequence.most)
        self._blanks, self._labels, self._coming_blanks, self._coming_labels = (
            f.stack(ctc.element, self._sequence.width + 1) for _ in range(4)
        )

    def write(self, number: Value) -> None:
        """Write the gradient of a sequence: zeros behind its last step, and everywhere if its labels do not fit into its steps.

        It is NaN if no path has a probability.
        """
        f, sequence, element = self._f, self._sequence, self._ctc.element
        sequence.load(number)
        total = f.load(f.at(self._paths, affine(f, self._size - 1, (number, self._size)), element), element)
        total = f.select(f.compare("ogt", total, _FAR / 2), total, constant(nan, element))
        zero_or_nan = f.sub(total, total)
        self._begin_at_end()
        last = f.sub(sequence.steps, 1)

        def probability(place: Value, lanes: int) -> Value:
            score = f.load(f.at(self._ctc.scores, place, element), element.of(lanes))
            return f.add(exp(f, score), f.splat(zero_or_nan, lanes))

        def go_back(turn: Value) -> None:
            step = f.between(f.sub(last, turn), 0, self._ctc.shape[0] - 1)
            of_blank, of_labels = sequence.scores(step)
            through = self._meet(step, total, of_blank, of_labels)
            self._put_row(step, probability)
            self._subtract_shares(step, through)
            sequence.over_vectors(self._move_back)

        learned = f.select(sequence.is_possible, sequence.steps, f.int64(0))
        f.loop(0, learned, 1, [], go_back)
        f.loop(learned, self._ctc.shape[0], 1, [], lambda step: self._put_row(step, lambda _, lanes: zero(element.of(lanes))))

    def _begin_at_end(self) -> None:
        """Let paths end in the last label, and in the blank behind it."""
        f, sequence, element = self._f, self._sequence, self._ctc.element
        for states in (self._blanks, self._labels, self._coming_blanks, self._coming_labels):
            sequence.fill(states, _FAR)
            f.store_number(constant(_FAR, element), f.at(states, sequence.width, element))
        f.store_number(constant(0.0, element), f.at(self._blanks, sequence.labels, element))
        with f.when(f.compare("sgt", sequence.labels, 0)):
            last = f.between(f.sub(sequence.labels, 1), 0, sequence.width - 1)
            f.store_number(constant(0.0, element), f.at(self._labels, last, element))

    def _meet(self, step: Value, total: Value, of_blank: Value, of_labels: Callable[[Value], Value]) -> Value:
        """Replace each label by its share of all paths, and return the share of the blanks, as a vector of parts.

        Args:
            step: the number of the step.
            total: the log of the sum over all paths.
            of_blank: the score of the blank.
            of_labels: as in `_Sequence.scores`.
        """
        f, sequence, element = self._f, self._sequence, self._ctc.element
        step_size = _step_size(sequence.most)
        place = affine(f, step_size, (sequence.number, self._size), (step, step_size))
        reached_blanks = f.at(self._paths, place, element)
        reached_labels = f.at(self._paths, f.add(place, sequence.width + 1), element)
        of_all = f.splat(total, sequence.lanes)

        def share_of(reached: Value, left: Value) -> Value:
            """The share of the paths through some states, from the sums over the ways to them and from them."""
            return exp(f, f.sub(f.add(reached, left), of_all))

        def meet(i: Value, through_blanks: Value) -> list[Value]:
            blank, label = sequence.part(self._blanks, i), sequence.part(self._labels, i)
            sequence.set_part(self._coming_blanks, i, f.add(blank, of_blank))
            sequence.set_part(self._coming_labels, i, f.add(label, of_labels(i)))
            sequence.set_part(self._labels, i, share_of(sequence.part(reached_labels, i), label))
            return [f.add(through_blanks, share_of(sequence.part(reached_blanks, i), blank))]

        (through,) = f.loop(0, sequence.vectors, 1, [zero(element.of(sequence.lanes))], meet)
        return through

    def _put_row(self, step: Value, compute: Callable[[Value, int], Value]) -> None:
        """Store a row of the gradient; ``compute(place, lanes)`` gives the vector at a place of all scores."""
        f, first = self._f, self._row(step)

        def put(column: Operand, lanes: int) -> None:
            place = f.add(first, column)
            f.store(compute(place, lanes), f.at(self._gradient, place, self._ctc.element))

        each_vector(f, self._ctc.shape[2], self._sequence.lanes, put)

    def _row(self, step: Value) -> Value:
        """The place of a step's scores."""
        _, batch, classes = self._ctc.shape
        return affine(self._f, 0, (step, batch * classes), (self._sequence.number, classes))

    def _subtract_shares(self, step: Value, through_blanks: Value) -> None:
        """Subtract from the softmax the share of the paths through each class."""
        f, sequence, element, row = self._f, self._sequence, self._ctc.element, self._row(step)

        def subtract(class_: Operand, amount: Value) -> None:
            at = f.at(self._gradient, f.add(row, class_), element)
            f.store_number(f.sub(f.load(at, element), amount), at)

        def subtract_label(label: Value) -> None:
            subtract(sequence.class_of(label), f.load(f.at(self._labels, label, element), element))

        subtract(self._ctc.blank, f.total(through_blanks))
        f.loop(0, sequence.labels, 1, [], subtract_label)

    def _move_back(self, i: Value) -> None:
        """Sum the ways from a vector of states over the states that they may come to."""
        f, sequence = self._f, self._sequence
        blank, label = sequence.part(self._coming_blanks, i), sequence.part(self._coming_labels, i)
        next_blank = sequence.part(self._coming_blanks, i, 1)
        next_label = f.add(sequence.part(self._coming_labels, i, 1), sequence.skips(i, 1))
        sequence.set_part(self._blanks, i, _sum(f, blank, label))
        sequence.set_part(self._labels, i, _sum_of_three(f, label, next_blank, next_label))

"""Decides by runs in float64 which engines are wrong: by how much results may differ follows from what rounding does to them.

The program runs op by op in float64. Then it runs again some times, and each array that it is fed, holds or computes is changed
at random by `_UNITS` times what rounding to float32 changes, and by more after long sums. An engine is wrong where its error is
more than four times what those changes do. So an ill-conditioned result, or one that a last bit decides (the kink of a relu, the
larger of two equal numbers), may differ as much as rounding makes it differ.

The changes are as large as what is summed up makes them, and pass through all that follows: where terms cancel out, their changes
remain. An op's result also changes, element by element, by as much as such changes of its inputs change it: terms that cancel
out inside of an op (a batch norm subtracts means) leave what rounding makes of each element, whatever the exact results add up
to. Some things do not grow with a change, so that the largest change does not show them:

- An optimizer divides a gradient by its size. Where the gradient cancels out, the size is that of the noise, and the update is
  not the largest where the noise is. So some runs change arrays by less (`_FRACTIONS`).
- An op that picks the largest element may give the gradient to each of several equal ones. Changes make one of them the largest.
  So some runs change arrays only after the last such op. Others round to float32, which makes more elements equal (a saturated
  tanh).
- In float32, terms often cancel out to exactly 0, which a factor never makes of a number; and the sign of 0 is neither that of a
  small positive number nor that of a negative one. So an element that some changes make positive and others negative, to whose
  error 0 belongs therefore, becomes 0 in some runs (`_Doubts`).
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

import fluid

from .cases import Case, Unfit
from .running import ENGINES, Arrays, Fault, errors_of_float32, first_values, run, run_alone, run_natively, run_widened

__all__ = ["Problem", "Verdict", "judge"]

_FLOAT32 = 2.0**-24
"""The unit roundoff of float32."""
_UNITS = 16.0
"""Unit roundoffs of the largest change."""
_FRACTIONS = (1.0, 1 / 16, 1.0, 1 / 4, 1.0, 1 / 64)
"""The changes of further pairs of runs, in turn, beside the largest."""
_WITH_ZEROS = 2
"""The turn whose runs set elements to 0."""
_AFTER_PICKS = 4
"""The turn whose runs change what comes after the last op that picks elements."""
_ROUNDED = 5
"""The turn whose runs round to float32."""
_FEW, _MORE, _MOST = 4, 20, 404
"""Changed runs that are made first where an engine seems wrong, and how many more as long as they explain further elements."""
_RARE, _RARE_SHARE = 64, 1e-3
"""The most wrong elements, rows or columns of an array, as a number and as a share of its elements, that rare changes explain:
changes that make another element the largest, or turn a unit off."""
_PATIENCE = 45.0
"""Seconds after which no more runs are made."""
_SHARED = 16.0
"""How many times as large as the best engine's an error may be, if that is large, too."""
_OPEN = 1000
"""Wrong elements prove nothing if the number of elements that last bits decide is larger by this factor."""
_EXACT_OPS = {"fill_constant", "increment", "assign", "cast", "one_hot", "one_hot_v2", "scale", "sum", "fill_zeros_like", "shape"}
"""Ops whose results are exact where they are small integers, such as counters."""
_PICKS = {"reduce_max", "reduce_min", "reduce_amax", "reduce_amin", "segment_pool", "sequence_pool", "pool2d", "pool3d", "maxout"}
"""Ops that pick elements, of some in certain modes: they round nothing, and gradients go where the element is that was picked."""
_COPIES = {"assign", "read_from_array", "reshape2", "select_input", "select_output", "transpose2", "write_to_array"}
"""Ops that copy: a copy that differs from its source would no longer be equal to the element that an op has picked of it."""
_SUMS = {
    *("sum", "elementwise_add", "elementwise_sub", "reduce_sum", "reduce_mean", "mean", "mul", "matmul"),
    *("batch_norm", "group_norm", "instance_norm", "layer_norm"),  # subtract means
}
"""Ops of terms that may cancel out, as those of gradients may."""
_RESIDUE = 2.0**-40
"""Beside the largest input, what float64 leaves of terms that cancel out."""
_SECONDS = 4.0
"""What a run may take; there are some thirty."""
_LARGEST, _SMALLEST = 1e37, 1e-35
"""Of float32, what it holds without loss."""
_ROOT = 1e18
"""Ops may square larger numbers on the way, which float32 does not hold."""
_BEYOND = 1e15
"""Losses of this size come from a 0 that stands for a number below the smallest: its logarithm counts as -1e20, also in means."""


@dataclass(frozen=True)
class Problem:
    """A fault of an engine.

    Attributes:
        kind: in a word; of programs that get smaller, it stays.
        size: the error beside what it may be.
    """

    engine: str
    kind: str
    message: str
    size: float = math.inf

    def __str__(self) -> str:
        return f"{self.engine}: {self.message}"


@dataclass(frozen=True)
class Distance:
    """An array's distance from the expected values.

    Attributes:
        ratio: the largest error beside its bound.
        count: how many elements are farther off than their bounds.
        is_rare: whether these elements are few, or lie in few rows or columns.
        where: the farthest element in words.
        is_past_range: there is NaN or a very large number where float32 cannot hold what leads to the number.
    """

    ratio: float = 0.0
    count: int = 0
    is_rare: bool = True
    where: str = ""
    is_past_range: bool = False


@dataclass
class Verdict:
    """The faults of a case, and the distances of engines from float64, with their bounds.

    Attributes:
        is_undecided: it is not known whether an engine is wrong: the program leaves the range of float32, or last bits decide so
            much that each run shows something new.
    """

    problems: list[Problem] = field(default_factory=list)
    distances: dict[str, float] = field(default_factory=dict)
    is_undecided: bool = False


class _Range:
    """Notes whether a run in float64 computes what float32 cannot hold, or NaN.

    A BLAS may pass over zeros, so that 0 times NaN is 0 in one product and NaN in another.
    """

    def __init__(self) -> None:
        self.is_left = self.has_nan = False

    def __call__(self, name: str, array: Any, op: Any = None) -> None:
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fc" or not array.size:
            return
        with np.errstate(all="ignore"):
            sizes = np.abs(array)
            self.has_nan |= bool(np.isnan(sizes).any())
            self.is_left |= bool(sizes.max() > _ROOT) or bool(((sizes < _SMALLEST) & (sizes > 0)).any())

    def number(self, number: float) -> float:
        return number


class _Zeros:
    """Sets to 0 what float64 leaves of terms that cancel out, whose sign is a matter of chance, and notes where terms do.

    Attributes:
        cancelled: of each array of the run, its name and the elements whose terms cancel out; None if there are none.
        last_pick: the number of arrays up to the last one of an op that picks elements, or of its gradient.
    """

    def __init__(self) -> None:
        self._largest: dict[str, float] = {}
        self.last_pick = 0
        self.cancelled: list[tuple[str, Any]] = []

    def __call__(self, name: str, array: Any, op: Any = None) -> None:
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fc" or not array.size or not array.flags.writeable:
            return
        with np.errstate(all="ignore"):
            sizes = np.abs(array)
            largest = (
                max((self._largest.get(source, 0.0) for source in op.input_arg_names), default=0.0) if op is not None else 0.0
            )
            cancels = sizes < _RESIDUE * largest
            if op is not None and (op.type in _SUMS or op.type.endswith("_grad")):
                array[cancels] = 0
            self.cancelled.append((name, cancels if cancels.any() else None))
            if op is not None and op.type.removesuffix("_grad") in _PICKS:
                self.last_pick = len(self.cancelled)
            self._largest[name] = float(sizes.max())

    def number(self, number: float) -> float:
        return number


class _Doubts:
    """For each array of a run: the elements that change sign with small changes of the inputs."""

    def __init__(self) -> None:
        self._seen: list[tuple[str, tuple[int, ...], Any, Any]] = []
        """Of each array: its name and shape, the elements that were negative first, those that had the other sign since."""

    def of(self, place: int, name: str, array: Any) -> Any:
        """The elements of the array number `place` of a run, whose sign is in doubt now; None if there are none."""
        if array.dtype.kind != "f":
            return None
        is_negative = np.packbits(array < 0)
        if place == len(self._seen):
            self._seen.append((name, array.shape, is_negative, np.zeros_like(is_negative)))
        if place > len(self._seen) or self._seen[place][:2] != (name, array.shape):  # the run took another branch
            return None
        _, _, before, doubtful = self._seen[place]
        doubtful |= before ^ is_negative
        return np.unpackbits(doubtful, count=array.size).reshape(array.shape).astype(bool) if doubtful.any() else None


class _Changes:
    """Changes arrays at random, as rounding would, but mostly by more.

    Args:
        size: of the changes, beside 1; negative for the opposite ones.
        doubts: of all runs.
        cancelled: see `_Zeros`.
        start: the number of arrays, at the start of the run, that do not change.
        has_zeros: in every other array, about half of the elements in doubt become 0, the other half with the opposite changes.
        rounds: what changes is rounded to float32.
    """

    def __init__(
        self,
        seed: int,
        size: float,
        doubts: _Doubts,
        cancelled: Sequence[tuple[str, Any]],
        start: int = 0,
        has_zeros: bool = False,
        rounds: bool = False,
    ) -> None:
        self._start, self._rounds = start, rounds
        self._seed, self._random, self._size = seed, np.random.default_rng(seed), size
        self._doubts, self._cancelled, self.has_zeros = doubts, cancelled, has_zeros
        self._values: dict[str, Any] = {}
        """Name -> its array now."""
        self._results: tuple[Any, Arrays] = (None, {})
        """The op that ran last, and its results for changed inputs, by name."""
        self._place = self._count = 0
        """Numbers of the next array, and of the next that changes."""

    def __call__(self, name: str, array: Any, op: Any = None) -> None:
        if not isinstance(array, np.ndarray):
            self._values.pop(name, None)
            return
        if array.dtype.kind in "fc" and array.size and array.flags.writeable:
            residue = self._residue(name, array, op)
            if self._place > self._start and not _is_exact(array, op):
                self._change(name, array, op)
            array += residue
        self._values[name] = array

    def _change(self, name: str, array: Any, op: Any) -> None:
        doubtful = self._doubts.of(self._count, name, array)
        self._count += 1
        with np.errstate(all="ignore"):
            array *= self._factors(array, self._grown(self._terms(op, array)))
            if self._rounds:
                array[...] = array.astype(np.complex64 if array.dtype.kind == "c" else np.float32)
        if self.has_zeros and doubtful is not None:
            random = np.random.default_rng((self._seed, self._count))
            numbers = random.uniform(-1, 1, array.shape)
            if random.integers(2):
                array[doubtful & (self._size * numbers > 0)] = 0

    def _residue(self, name: str, array: Any, op: Any) -> Any:
        """Rounding errors of terms that cancel inside an op, estimated by the effect of small changes of its inputs."""
        place, self._place = self._place, self._place + 1
        before, cancels = self._cancelled[place] if place < len(self._cancelled) else ("", None)
        if cancels is None or before != name or cancels.shape != array.shape or op is None or op.sub_blocks:
            return 0.0
        of, results = self._results
        if of is not op or name not in results:
            results = self._results_of_changed_inputs(op)
            self._results = op, results
        result = results.pop(name, array)
        if result.shape != array.shape:
            return 0.0
        with np.errstate(all="ignore"):
            return np.where(cancels, np.nan_to_num(np.abs(result - array), posinf=0.0), 0.0) * self._numbers(array)

    def _results_of_changed_inputs(self, op: Any) -> Arrays:
        """The results of an op for inputs changed as much as a sum over all of them would round."""
        values = {name: self._values[name] for name in op.input_arg_names if name in self._values}
        size = self._grown(max((value.size for value in values.values()), default=1))
        for name, value in values.items():
            if value.dtype.kind in "fc" and value.size:
                values[name] = value * self._factors(value, size)
        return run_alone(op, values)

    def number(self, number: float) -> float:
        """An attribute, changed by a few roundings."""
        return number * (1 + self._size / 4 * self._random.uniform(-1, 1))

    def _grown(self, terms: float) -> float:
        """The size of changes after sums of so many terms."""
        return self._size * (1 + math.log2(max(terms, 1)) / 2)

    def _factors(self, array: Any, size: float) -> Any:
        """Factors for the elements of an array, about 1."""
        factors = self._numbers(array)
        factors *= size
        factors += 1
        return factors

    def _numbers(self, array: Any) -> Any:
        """Numbers for the elements of an array, from -1.5 to 1.5."""
        numbers = self._some_random_numbers(array.size).reshape(array.shape)
        self._change_blocks(numbers)
        return numbers

    def _some_random_numbers(self, count: int) -> Any:
        """From -1 to 1; many are made once, as making them takes longer than most ops do."""
        start = self._random.integers(0, len(_pool()))
        return np.take(_pool(), np.arange(start, start + count), mode="wrap")

    def _change_blocks(self, numbers: Any) -> None:
        """Change parts of an array alike, along one axis: sums of many elements do not average these out."""
        axes = [axis for axis, extent in enumerate(numbers.shape) if extent > 1]
        if axes:
            axis = axes[self._random.integers(0, len(axes))]
            extent = numbers.shape[axis]
            parts = self._random.uniform(-0.5, 0.5, 8)[np.arange(extent) * min(8, extent) // extent]
            numbers += parts.reshape([-1 if place == axis else 1 for place in range(numbers.ndim)])

    def _terms(self, op: Any, array: Any) -> float:
        """About how many terms the sums of an op have: what products and convolutions of such sizes sum up."""
        names = [name for name in op.input_arg_names if name in self._values] if op is not None else []
        largest = sorted((self._values[name].size for name in names), reverse=True)[:2]
        if not largest:
            return 1.0
        return max(largest[0] / array.size, math.sqrt(math.prod(largest) / array.size) if len(largest) > 1 else 1.0, 1.0)


def _is_exact(array: Any, op: Any) -> bool:
    """Whether nothing is rounded: a counter, a copy, or elements that an op picks."""
    if op is not None and op.type in _COPIES:
        return True
    if array.size == 1 and (op is None or op.type in _EXACT_OPS) and _is_of_small_integers(array):
        return True
    return op is not None and _picks(op)


def _picks(op: Any) -> bool:
    """Whether each result of an op is one of its inputs' elements."""
    if op.type not in _PICKS:
        return False
    attrs = op.definition.defaults(op.attrs)
    modes = [attrs[name] for name in ("pooling_type", "pooltype") if name in attrs]
    return all(mode.lower() in ("max", "min", "first", "last") for mode in modes)


@cache
def _pool() -> Any:
    return np.random.default_rng(0).uniform(-1, 1, 1_000_003)


def _is_of_small_integers(array: Any) -> bool:
    return bool(np.isfinite(array).all() and (array == np.rint(array.real)).all() and np.abs(array).max() < 2**20)


# --------------------------------------------------------------------------------------------------------------- verdict
class _Bounds:
    """How far results may be from those in float64."""

    def __init__(self, case: Case, first: Arrays) -> None:
        self._case, self._first, self.epsilon = case, first, case.epsilon
        start = time.process_time()
        self.range = _Range()
        self.reference = run_widened(case, first, self.range)
        if time.process_time() - start > _SECONDS:
            raise Unfit(f"more than {_SECONDS} s")
        self._deviations = {name: np.zeros(np.shape(value)) for name, value in self.reference.items()}
        self._with_zeros = {name: np.zeros(np.shape(value)) for name, value in self.reference.items()}
        """Deviations of runs where elements became 0. These say nothing of other elements, which do not depend on them."""
        self._unsure: set[str] = set()
        """Names of what has another shape after changes."""
        self._runs, self._doubts, self._zeros = 0, _Doubts(), _Zeros()
        self._kernel_errors: Arrays = {}
        """What numpy's own kernels lose of float64, which no wider type shows: what they lose of float32, as a part of it."""

    def look_closer(self, runs: int) -> None:
        """See what changes do, in more runs."""
        if not self._runs and self.epsilon < 2.0**-40:
            errors = errors_of_float32(self._case, self._first)
            self._kernel_errors = {name: error * (self.epsilon / _FLOAT32) for name, error in errors.items()}
        for number in range(self._runs, runs):
            changes = self._changes(number) if number else self._zeros
            changed = run_widened(self._case, self._first, changes)
            deviations = self._with_zeros if isinstance(changes, _Changes) and changes.has_zeros else self._deviations
            for name, value in self.reference.items():
                if name not in changed or changed[name].shape != value.shape:
                    self._unsure.add(name)
                    continue
                with np.errstate(all="ignore"):
                    deviation = np.abs(_number(changed[name]) - _number(value))
                np.maximum(deviations[name], np.where(np.isfinite(deviation), deviation, np.inf), out=deviations[name])
        self._runs = max(self._runs, runs)

    def _changes(self, number: int) -> _Changes:
        """The changes of a run; every second one is the opposite of the one before."""
        pair = number // 2
        turn = pair % len(_FRACTIONS) if number >= _FEW else 0
        size = _UNITS * _FRACTIONS[turn] * self.epsilon
        start = self._zeros.last_pick if turn == _AFTER_PICKS else 0
        rounds = turn == _ROUNDED and self.epsilon == _FLOAT32
        signed = size if number % 2 else -size
        return _Changes(pair, signed, self._doubts, self._zeros.cancelled, start, turn == _WITH_ZEROS, rounds)

    def distance(self, name: str, value: Any, peers: Sequence[Any] = ()) -> Distance:
        """An array's distance from the expected values.

        Args:
            peers: what other engines computed: where each of them is wrong by much, too, rounding inside an op is to blame.
        """
        reference = self.reference[name]
        if name in self._unsure:
            return Distance()
        if value.shape != reference.shape:
            return Distance(math.inf, value.size, False, f"its shape is {list(value.shape)}, not {list(reference.shape)}")
        if not value.size:
            return Distance()
        exact, typical = _number(reference), _typical(self._deviations[name])
        deviation = np.maximum(self._deviations[name], self._with_zeros[name])
        with np.errstate(all="ignore"):
            is_open = ~np.isfinite(exact) | (np.abs(exact) > _LARGEST) | ~np.isfinite(deviation)
            is_past_range = ~(np.abs(_number(value)) < _BEYOND) & self._may_overflow
            error = _error(value, exact, is_open | is_past_range)
            if value.dtype.kind not in "fc":
                ratio = np.where((deviation > 0) | (error == 0), 0.0, np.inf)
            else:
                shared = [_error(peer, exact, is_open) for peer in peers if peer.shape == exact.shape]
                if name in self._kernel_errors and self._kernel_errors[name].shape == exact.shape:
                    shared = [self._kernel_errors[name]]
                bound = self._bound(exact, deviation, typical)
                ratio = error / (bound + _least(shared, bound if self._runs > _FEW else None))
                ratio = np.where(np.isfinite(error), ratio, np.inf)
        place = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
        wrong, number = np.nonzero(np.atleast_1d(ratio > 1)), value[place]
        count, lines = len(wrong[0]), min(len(np.unique(indices)) for indices in wrong)
        is_rare = lines <= max(_RARE, _RARE_SHARE * ratio.size)
        where = f"{[int(index) for index in place]} is {number:.9g}, not {exact[place]:.9g}; {count} of {ratio.size} are wrong"
        return Distance(float(ratio[place]), count, is_rare, where, bool((is_past_range & ~is_open).any()))

    def leaves_open(self, name: str, wrong: int) -> bool:
        """Whether last bits decide thousands of times as many elements of an array as seem wrong.

        So few changed runs need not show each of these, where a step of training has made another net of each run.
        """
        sizes = np.abs(_number(self.reference[name]))
        return _OPEN * wrong < int(((self._deviations[name] >= sizes) & (sizes > 0)).sum())

    @property
    def _may_overflow(self) -> bool:
        return self.range.has_nan or (self.range.is_left and self.epsilon == _FLOAT32)

    def _bound(self, exact: Any, deviation: Any, typical: float) -> Any:
        size = np.where(np.isfinite(exact), np.abs(exact), 0.0)
        part = math.sqrt(exact.size) if self._case.is_normwise else 0.1
        floor = 4 * _UNITS * self.epsilon * (size + part * _root_mean_square(np.minimum(size, _LARGEST)))
        return 4 * deviation + 2 * typical + floor + _SMALLEST


def _error(value: Any, exact: Any, is_open: Any) -> Any:
    """The distance of numbers from the expected ones; infinite for NaN, 0 where nothing is known."""
    error = np.abs(_number(value) - exact)
    return np.where(is_open | (value == exact), 0.0, np.where(np.isnan(error), np.inf, error))


def _least(errors: Sequence[Any], bound: Any) -> Any:
    """Some times the errors of the best engine.

    Where errors exceed the bound, changed runs have not shown all that last bits do to the array, as to what should cancel out
    inside of an op. Then any element may be as wrong as one is, and by the square of so many times: optimizers keep squares.

    Args:
        bound: that of the errors; None as long as it may grow with further runs.
    """
    finite = [np.where(np.isfinite(error), error, 0.0) for error in errors]
    beyond = [error for error in finite if bound is not None and bool((error > bound).any())]
    if beyond:
        return _SHARED**2 * max(error.max() for error in beyond)
    best = min(finite, key=_root_mean_square, default=np.zeros(()))
    return _SHARED * (best + _typical(best))


def _number(value: Any) -> Any:
    return value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)


def _root_mean_square(values: Any) -> float:
    return float(np.sqrt(np.mean(np.abs(values) ** 2))) if values.size else 0.0


def _typical(errors: Any) -> float:
    """The root mean square of the lower nine tenths: those at a kink say nothing of others."""
    finite = errors[np.isfinite(errors)]
    count = math.ceil(0.9 * finite.size)
    return _root_mean_square(np.partition(finite, count - 1, axis=None)[:count]) if count else 0.0


def judge(case: Case, engines: tuple[str, ...] = ENGINES) -> Verdict:
    """The verdict on the results of engines for a case."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first = first_values(case)
        bounds = _Bounds(case, first)
    verdict = Verdict()
    results = _results(case, first, engines, verdict)
    if case.expected and case.epsilon == _FLOAT32:  # another algorithm in float64 is as inexact as the op
        results["statement"] = {name: np.asarray(value) for name, value in case.expected.items()}
    distances = _settled(bounds, results, verdict)
    for (engine, name), distance in distances.items():
        verdict.distances[engine] = max(distance.ratio, verdict.distances.get(engine, 0.0))
        verdict.is_undecided |= distance.is_past_range or (distance.ratio > 1 and bounds.leaves_open(name, distance.count))
        if distance.ratio > 1 and not verdict.is_undecided:
            message = f"{name} {list(results[engine][name].shape)}: {distance.where} ({distance.ratio:.3g} times the bound)"
            verdict.problems.append(Problem(engine, "wrong values", message, distance.ratio))
    for engine, arrays in results.items():
        missing = bounds.reference.keys() - arrays.keys() if engine != "statement" else ()
        verdict.problems += [Problem(engine, "missing", f"there is no {name}") for name in sorted(missing)]
    _compare_threads(results, verdict)
    verdict.problems.sort(key=lambda problem: -problem.size)
    return verdict


def _results(case: Case, first: Arrays, engines: tuple[str, ...], verdict: Verdict) -> dict[str, Arrays]:
    """The results of engines; errors become problems."""
    results: dict[str, Arrays] = {}
    executor = fluid.Executor()
    for engine in engines if not case.draws_numbers else [engine for engine in engines if engine != "xla"]:
        for name in ("native", "native, 2 threads") if engine == "native" else (engine,):
            try:
                if engine == "native":
                    results[name] = run_natively(case, first, 2 if "2" in name else 1, executor)
                else:
                    results[name] = run(case, engine, first)
            except (Exception, Fault) as error:
                if not (engine == "xla" and _is_refusal(error)):
                    text = str(error).replace("\n", "\n    ")
                    verdict.problems.append(Problem(name, type(error).__name__, f"{type(error).__name__}: {text}"))
    return results


def _is_refusal(error: Exception) -> bool:
    """Whether XLA says that it does not compile such a program."""
    return any(text in str(error) for text in ("cannot run at an XLAPlace", "asks for a value", "a mask picks"))


def _settled(bounds: _Bounds, results: dict[str, Arrays], verdict: Verdict) -> dict[tuple[str, str], Distance]:
    """The distances of all results, after so many runs that more would not find fewer elements to be wrong."""
    start, runs = time.process_time(), 0
    distances = _distances(bounds, results)
    first = wrong = _count_wrong(distances)
    while wrong:
        if runs > _MOST or time.process_time() - start > _PATIENCE:
            verdict.is_undecided = wrong * 50 < first
            break
        runs += _MORE if runs else _FEW
        bounds.look_closer(runs)
        distances = _distances(bounds, results)
        before, wrong = wrong, _count_wrong(distances)
        batches = 8 if all(distance.is_rare for distance in distances.values()) else 2
        if wrong > 0.8 * before and runs >= _FEW + batches * _MORE:
            break
    return distances


def _count_wrong(distances: dict[tuple[str, str], Distance]) -> int:
    return sum(distance.count for distance in distances.values())


def _distances(bounds: _Bounds, results: dict[str, Arrays]) -> dict[tuple[str, str], Distance]:
    """Engine and name of a result -> its distance from the expected values."""
    distances = {}
    for engine, arrays in results.items():
        different = [values for peer, values in results.items() if _family(peer) != _family(engine)]
        for name, value in arrays.items():
            peers = [values[name] for values in different if name in values]
            distances[engine, name] = bounds.distance(name, value, peers)
    return distances


def _family(engine: str) -> str:
    """Engines that run the same kernels."""
    return engine.partition(",")[0]


def _compare_threads(results: dict[str, Arrays], verdict: Verdict) -> None:
    """Any number of threads gives the same bits."""
    one, two = (results.get(name, {}) for name in ("native", "native, 2 threads"))
    for name in one.keys() & two.keys():
        if one[name].tobytes() != two[name].tobytes():
            verdict.problems.append(Problem("native, 2 threads", "other bits", f"{name} has other bits than with one thread"))

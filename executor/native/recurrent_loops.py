"""Recurrent layers on numpy's arrays with native steps. The compiler is imported on first use.

Plans unroll short networks (`recurrent`). Longer ones, and the ops over sequences of different lengths, run here, as numpy's
kernels: each function computes the same as its counterpart in `fluid.executor.kernels.rnn`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fluid.ops.rnn import CELL_GRADIENTS, CELLS, MODES
from fluid.values.cache import OP_LIMIT, Cache
from fluid.values.spec import Spec
from fluid.values.types import as_dtype

from ..kernels.manipulation import flattened
from ..kernels.rnn import BACKWARD, FORWARD, Loops, StepFormula, gru_products, in_turn
from ..stepwise.repeated import Chain, equal_runs
from .costs import FEWEST_STEPS
from .fallback import NativeUnavailable, is_enabled, or_unavailable, warn_of

if TYPE_CHECKING:
    from .step_loops import StepLoop
    from .target import Target


_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def _takes(steps: int, state: Any) -> bool:
    """Whether so many steps are worth a compiled one, for states of this type."""
    return steps >= FEWEST_STEPS and is_enabled() and state.dtype in _FLOATS and bool(state.size)


def _loop(formula: StepFormula, states: Sequence[Spec | None], inputs: Sequence[Spec | None], target: Target) -> StepLoop | None:
    """The native loop of a formula; None if an op of it is not native, or nothing can be compiled."""
    try:
        with or_unavailable():
            from .step_loops import step_loop

            parameters = [None if array is None else _spec(array.shape, array) for array in formula.parameters]
            return step_loop(formula.key, formula.compute, (tuple(parameters), tuple(states), tuple(inputs)), target)
    except NativeUnavailable as error:
        warn_of(error)
        return None


def _host() -> Target | None:
    """The processor that steps are compiled for; None, after a warning, if nothing can be compiled."""
    try:
        with or_unavailable():
            from . import compiler

            return compiler.host()
    except NativeUnavailable as error:
        warn_of(error)
        return None


def _spec(shape: Sequence[int], array: Any) -> Spec:
    return Spec(tuple(shape), as_dtype(array.dtype))


def _with_rows(rows: int, arrays: Sequence[Any]) -> list[Spec | None]:
    """The specs of so many rows of arrays; None for absent ones."""
    return [None if array is None else _spec((rows, *array.shape[1:]), array) for array in arrays]


def _address(array: Any) -> int | None:
    return None if array is None else array.ctypes.data


def _table(addresses: Sequence[Any], steps: int) -> Any:
    """Addresses [value, step]; of each value a number, an array with one address for each step, or None for an absent value."""
    table = np.zeros((len(addresses), steps), np.int64)
    for row, address in zip(table, addresses, strict=True):
        if address is not None:
            row[...] = address
    return table


def _chain(first: Any, rows: int = 0) -> Chain:
    """The memory of a state that passes from step to step, with room for at least some rows; further rows are zeros."""
    state = np.zeros((max(rows, len(first)), *first.shape[1:]), first.dtype)
    state[: len(first)] = first
    chain = Chain(state, 1, has_all=False)
    chain.array[1] = 0
    return chain


# ------------------------------------------------------------------------------------------- sequences of different lengths
def padded_rows(rows: int, sequences: int) -> int:
    """Round a number of rows up to one of few numbers, so that few steps are compiled."""
    if sequences == 1:
        return 1
    power = max(4, 1 << (rows - 1).bit_length())
    return 3 * power // 4 if power >= 64 and rows <= 3 * power // 4 else power


def _in_turn(
    steps: Sequence[tuple[int, int]],
    states: Sequence[Any],
    outputs: Sequence[Any],
    prepare: Callable[[], tuple[Callable[..., None], Sequence[Any]]],
    formula: StepFormula,
    backwards: bool = False,
) -> None:
    """Run the steps of packed sequences natively."""
    target = _host() if _takes(len(steps), states[0]) else None
    turn = _Turn(_schedule(tuple(steps), len(states[0]), backwards), states, formula, target) if target is not None else None
    loops = None if turn is None else turn.loops()
    if turn is None or loops is None:
        in_turn(steps, states, outputs, prepare, formula, backwards)
    else:
        turn.run(loops, outputs)


_WHOLE, _PACKED, _RESULTS, _LAST_RESULTS, _BEFORE, _AFTER, _MASKS = range(7)
"""Patterns of addresses: an array that all steps read; packed rows; results, of the step and of the step before; the entries of a
chain before and after the step; masks."""


class _Schedule:
    """The rows that each step computes, in the order in which steps run. It depends on the lengths of the sequences alone.

    A step computes a padded number of rows: behind its own, it reads rows of the next packed step, and writes rows of the step
    that runs next, which overwrites them.

    Attributes:
        starts, counts, padded: the first row, the number of rows and the padded number of rows of each step.
        rows: the number of all rows.
        most: the largest padded number.
        is_exact: whether no step is padded.
        parts: padded number of rows, first step and end of each run of steps with equal numbers.
        patterns: the number of the row of each step, by pattern.
        beyond: the steps whose padded rows are not all among the packed rows.
    """

    def __init__(self, steps: Sequence[tuple[int, int]], sequences: int, backwards: bool) -> None:
        self.backwards = backwards
        self.starts, self.counts = np.array(steps[::-1] if backwards else steps, np.int64).T
        self.rows = int(self.counts.sum())
        of_count = {count: padded_rows(count, sequences) for count in set(self.counts.tolist())}
        self.padded = np.array([of_count[count] for count in self.counts.tolist()], np.int64)
        self.most = int(self.padded.max())
        self.is_exact = bool((self.padded == self.counts).all())
        self.parts = [(int(self.padded[start]), start, end) for start, end in equal_runs(self.padded)]
        self.beyond = (self.starts + self.padded > self.rows).nonzero()[0]
        at_results = self.starts if self.is_exact else self.counts.cumsum() - self.counts
        self.patterns = np.zeros((7, len(steps)), np.int64)
        self.patterns[_PACKED], self.patterns[_RESULTS] = self.starts, at_results
        self.patterns[_LAST_RESULTS, 1:] = at_results[:-1]
        self.patterns[_BEFORE, 1::2] = self.patterns[_AFTER, ::2] = 1
        self.patterns[_MASKS] = self.most - self.counts


_schedules: Cache[Any, _Schedule] = Cache(OP_LIMIT)


def _schedule(steps: tuple[tuple[int, int], ...], sequences: int, backwards: bool) -> _Schedule:
    """The schedule of steps: layers of a network share it."""
    key = steps, sequences, backwards
    return _schedules.get(key) or _schedules.keep(key, _Schedule(*key))


_Place: TypeAlias = "tuple[Any, int]"
"""An array, None for an absent one, and the pattern of the addresses within."""
_loops: Cache[Any, dict[int, StepLoop | None]] = Cache()
"""Formula, shapes and types of the inputs of a step -> number of rows -> the loop of such steps."""


class _Turn:
    """A run of steps over packed rows."""

    def __init__(self, schedule: _Schedule, states: Sequence[Any], formula: StepFormula, target: Target) -> None:
        self._schedule, self._states, self._target = schedule, states, target
        self._masks = [self._mask(state) for state in states] if schedule.backwards else []
        parameters = [None if part is None else np.ascontiguousarray(part) for part in formula.parameters]
        formula = formula._replace(parameters=parameters)
        self._formula = _masked_formula(formula, len(states)) if schedule.backwards else formula

    def _mask(self, state: Any) -> Any:
        """Truths for the most rows of a step, then falses: part of it masks the padding rows of a step."""
        most = self._schedule.most
        mask = np.zeros((2 * most, *state.shape[1:]), np.bool_)
        mask[:most] = True
        return mask

    def loops(self) -> dict[int, StepLoop] | None:
        """Number of rows -> the loop of steps with so many; None if numpy runs the steps."""
        formula, target = self._formula, self._target
        states, inputs = by_row = [*self._states], [*formula.inputs, *self._masks]
        kind = formula.key, target, *(None if array is None else (array.shape, array.dtype) for array in formula.parameters)
        kind += (*(None if array is None else (array.shape[1:], array.dtype) for arrays in by_row for array in arrays),)
        by_size = _loops.get(kind)
        if by_size is None:
            by_size = _loops.keep(kind, {})
        loops = {}
        for rows, _, _ in self._schedule.parts:
            if rows not in by_size:
                by_size[rows] = _loop(formula, _with_rows(rows, states), _with_rows(rows, inputs), target)
            loop = by_size[rows]
            if loop is None:
                return None
            loops[rows] = loop
        return loops

    def run(self, loops: Mapping[int, StepLoop], outputs: Sequence[Any]) -> None:
        """Run all steps and fill the outputs; backwards, leave the states before the first step in the states."""
        schedule, parameters = self._schedule, self._formula.parameters
        results = [self._results_for(array) for array in outputs]
        spares = [self._spare_for(array) if result is array else None for array, result in zip(outputs, results, strict=True)]
        inputs = [None if array is None else np.ascontiguousarray(array) for array in self._formula.inputs]
        before: list[_Place] = []
        after: list[_Place] = []
        first_rows: dict[int, Any] = {}
        for state, passed in zip(self._states, next(iter(loops.values())).passed, strict=True):
            if passed is None:
                chain = _chain(state, schedule.most).array
                before.append((chain, _BEFORE))
                after.append((chain, _AFTER))
            else:
                first_rows[len(parameters) + len(before)] = self._padded(state)
                before.append((results[passed], _LAST_RESULTS))
                after.append((None, _WHOLE))
        read = [*((array, _WHOLE) for array in parameters), *before, *((array, _PACKED) for array in inputs)]
        table = self._table(
            [*read, *((mask, _MASKS) for mask in self._masks), *after, *((result, _RESULTS) for result in results)]
        )
        self._move_last_results(table, [*read, *((None, _WHOLE) for _ in self._masks), *after], results, spares)
        for row, state in first_rows.items():
            table[row, 0] = state.ctypes.data
        copies = [array if array is None else self._last_rows(array) for array in inputs] if len(schedule.beyond) else []
        for row, copy in enumerate(copies, len(parameters) + len(before)):
            if copy is not None:
                rows = schedule.starts[schedule.beyond] + schedule.most - schedule.rows
                table[row, schedule.beyond] = copy.ctypes.data + rows * copy.strides[0]
        for size, start, end in schedule.parts:
            loops[size].run(table[:, start:end])
        for array, result, spare in zip(outputs, results, spares, strict=True):
            if result is not array:
                self._take(array, result)
            elif spare is not None:
                start = schedule.starts[schedule.beyond[0]]
                array[start:] = spare[: len(array) - start]
        if schedule.backwards:
            for state, (chain, _) in zip(self._states, before, strict=True):
                state[...] = chain[len(schedule.counts) % 2, : len(state)]

    def _table(self, places: Sequence[_Place]) -> Any:
        """Addresses [value, step], of places in arrays."""
        first = np.array([0 if array is None else array.ctypes.data for array, _ in places], np.int64)
        strides = np.array([0 if array is None else array.strides[0] for array, _ in places], np.int64)
        table = self._schedule.patterns[[pattern for _, pattern in places]]
        table *= strides[:, None]
        table += first[:, None]
        return table

    def _results_for(self, array: Any) -> Any:
        """The array that steps write an output to: with room for padding rows, if steps run backwards and there are any."""
        schedule = self._schedule
        if array.flags.c_contiguous and (schedule.is_exact or not schedule.backwards):
            return array
        return np.zeros((schedule.rows + schedule.most, *array.shape[1:]), array.dtype)

    def _spare_for(self, array: Any) -> Any:
        """ArrayRoom for the results of the last steps, whose padding rows do not fit into an output; None if they fit."""
        schedule = self._schedule
        if schedule.is_exact or not len(schedule.beyond):
            return None
        rows = schedule.rows - schedule.starts[schedule.beyond[0]] + schedule.most
        return np.zeros((rows, *array.shape[1:]), array.dtype)

    def _move_last_results(self, table: Any, places: Sequence[_Place], results: Sequence[Any], spares: Sequence[Any]) -> None:
        """Let the last steps write their results to spare room, and read the states before them there."""
        schedule = self._schedule
        first = int(schedule.beyond[0]) if len(schedule.beyond) else len(schedule.starts)
        for number, (result, spare) in enumerate(zip(results, spares, strict=True)):
            if spare is None:
                continue
            addresses = spare.ctypes.data + (schedule.starts[first:] - schedule.starts[first]) * spare.strides[0]
            table[len(places) + number, first:] = addresses
            for row, (array, pattern) in enumerate(places):
                if array is result and pattern == _LAST_RESULTS:
                    table[row, first + 1 :] = addresses[:-1]

    def _padded(self, state: Any) -> Any:
        """The first rows of a state; further rows are zeros."""
        if len(state) >= self._schedule.most and state.flags.c_contiguous:
            return state
        padded = np.zeros((self._schedule.most, *state.shape[1:]), state.dtype)
        count = min(len(padded), len(state))
        padded[:count] = state[:count]
        return padded

    def _last_rows(self, array: Any) -> Any:
        """A copy of the last rows of an input with room for padding rows."""
        schedule = self._schedule
        last = np.zeros((2 * schedule.most, *array.shape[1:]), array.dtype)
        count = min(schedule.most, schedule.rows)
        last[schedule.most - count : schedule.most] = array[schedule.rows - count : schedule.rows]
        return last

    def _take(self, array: Any, result: Any) -> None:
        """Fill packed rows with the results of all steps, which lie one after the other unless no step is padded."""
        schedule = self._schedule
        if schedule.backwards and not schedule.is_exact:
            ends = zip(schedule.starts, schedule.starts + schedule.counts, strict=True)
            array[np.concatenate([np.arange(*pair) for pair in ends])] = result[: schedule.rows]
        else:
            array[...] = result[: schedule.rows]


def _masked_formula(formula: StepFormula, states: int) -> StepFormula:
    """The formula with masks as further inputs, one for each state: states of padding rows become zeros."""

    def compute(f: Any, parameters: Any, before: Any, inputs: Any) -> tuple[list[Any], Any]:
        after, outputs = formula.compute(f, parameters, before, inputs[:-states])
        zeros = [f.fill_zeros_like(state) for state in after]
        return [f.where(*parts) for parts in zip(inputs[-states:], after, zeros, strict=True)], outputs

    return formula._replace(key=("masked", formula.key), compute=compute)


# ----------------------------------------------------------------------------------------------- steps with one number of rows
def _forward_step(mode: str, f: Any, parameters: Any, before: Any, inputs: Any) -> tuple[list[Any], list[Any]]:
    """A step of a mode. The arguments of sigmoids are halves (`FACTORS`); the last input says which rows keep their states."""
    (weight, bias), (pre, stays) = parameters, inputs

    def sigmoid(half: Any) -> Any:
        return f.scale(f.tanh(half), scale=0.5, bias=0.5)

    saved, after = CELLS[mode](f, pre, f.matmul_v2(before[0], weight) + bias, before, sigmoid)
    if stays is not None:
        after = [f.where(stays, *pair) for pair in zip(before, after, strict=True)]
    return after, [f.concat(saved, axis=-1)] if saved else []


def _backward_step(mode: str, f: Any, parameters: Any, states: Any, inputs: Any) -> tuple[list[Any], list[Any]]:
    """The gradient of a step of a mode. The last input says which rows keep their states."""
    (coming, gates, *saved, stays), count = inputs, len(states)
    grads = [states[0] + coming, *states[1:]]
    changed = grads if stays is None else [f.where(stays, f.fill_zeros_like(grad), grad) for grad in grads]
    parts = [] if gates is None else f.split(gates, num=MODES[mode].saved, axis=-1)
    d_gates, direct = CELL_GRADIENTS[mode](f, changed, parts, saved[:count], saved[count:])
    wide, hidden_gates = f.concat(d_gates, axis=-1), MODES[mode].gates
    of_hidden = wide if len(d_gates) == hidden_gates else f.concat(d_gates[:hidden_gates], axis=-1)
    through = f.matmul_v2(of_hidden, parameters[0])
    before = [through if direct[0] is None else through + direct[0], *direct[1:]]
    if stays is not None:
        before = [f.where(stays, *pair) for pair in zip(grads, before, strict=True)]
    return before, [wide]


class _Arrays:
    """Arrays with an entry for each step, [step, direction, batch, ...]. Specs of a step leave out a single direction."""

    def __init__(self, directions: int) -> None:
        self._start = 1 if directions > 1 else 2

    def spec(self, array: Any) -> Spec | None:
        return None if array is None else _spec(array.shape[self._start :], array)

    def parameter(self, array: Any) -> Any:
        """An array [direction, ...] that all steps read."""
        return np.ascontiguousarray(array if self._start == 1 else array[0])


def _at(array: Any, backwards: bool = False) -> Any:
    """The address of each entry of an array, in the order of steps; None for an absent array."""
    if array is None:
        return None
    addresses = array.ctypes.data + np.arange(len(array)) * array.strides[0]
    return addresses[::-1] if backwards else addresses


def _of_elements(mask: Any, layer: Any) -> Any:
    """The mask of steps, [step, direction, batch, 1], for each element of a state; None if there is no mask."""
    steps, directions, batch, size = layer.states[0, 1:].shape
    return np.broadcast_to(mask, (steps, directions, batch, size)).copy() if isinstance(mask, np.ndarray) else None


def _saved_gates(layer: Any) -> Any:
    """The gates of a layer, side by side; None if its mode saves none."""
    return flattened(layer.gates, 3) if layer.gates.size else None


def _forward(mode: str) -> Callable[..., None]:
    """The function that runs the steps of a layer of this mode."""

    def run(xp: Any, pre: Any, weight: Any, bias: Any, layer: Any, outside: Any) -> None:
        loop, arrays, steps = None, _Arrays(len(weight)), len(pre)
        target = _host() if _takes(steps, pre) else None
        if target is not None:
            stays = _of_elements(outside, layer)
            parameters = [arrays.parameter(weight), arrays.parameter(bias)]
            formula = StepFormula(mode, parameters, [pre, stays], partial(_forward_step, mode))
            loop = _loop(formula, [arrays.spec(state) for state in layer.states], [arrays.spec(pre), arrays.spec(stays)], target)
        if loop is None:
            FORWARD[mode](xp, pre, weight, bias, layer, outside)
            return
        states, gates = [_at(state) for state in layer.states], _saved_gates(layer)
        read = [*map(_address, parameters), *(at[:-1] for at in states), _at(pre), _at(stays)]
        loop.run(_table([*read, *(at[1:] for at in states), *([] if gates is None else [_at(gates)])], steps))

    return run


def _backward(mode: str) -> Callable[..., tuple[Any, Any]]:
    """The function that runs the steps of a layer of this mode backwards."""

    def run(xp: Any, coming: Any, grads: Sequence[Any], weight: Any, layer: Any, mask: Any) -> tuple[Any, Any]:
        loop, arrays, steps, gates = None, _Arrays(len(weight)), len(coming), _saved_gates(layer)
        target = _host() if _takes(steps, coming) else None
        if target is not None:
            parameters = [arrays.parameter(weight)]
            stays = _of_elements(None if mask is None else ~mask, layer)
            inputs = [coming, gates, *(state[:-1] for state in layer.states), *(state[1:] for state in layer.states), stays]
            formula = StepFormula((mode, "grad"), parameters, inputs, partial(_backward_step, mode))
            loop = _loop(formula, [arrays.spec(coming)] * len(grads), [arrays.spec(part) for part in inputs], target)
        if loop is None:
            plain: tuple[Any, Any] = BACKWARD[mode](xp, coming, grads, weight, layer, mask)
            return plain
        d_gates, chains = np.empty_like(coming if gates is None else layer.gates), [_chain(grad) for grad in grads]
        before, after = ([chain.addresses(np.arange(steps) + place) for chain in chains] for place in (0, 1))
        read = [*map(_address, parameters), *before, *(_at(part, backwards=True) for part in inputs)]
        loop.run(_table([*read, *after, _at(d_gates, backwards=True)], steps))
        for grad, chain in zip(grads, chains, strict=True):
            grad[...] = chain.value(steps)
        return gru_products(np, d_gates) if mode == "GRU" else (d_gates.reshape(*coming.shape[:3], -1),) * 2

    return run


LOOPS = Loops({mode: _forward(mode) for mode in MODES}, {mode: _backward(mode) for mode in MODES}, _in_turn)

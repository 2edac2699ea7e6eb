"""Recurrent layers on numpy's arrays with native steps. The compiler is imported on first use.

Plans unroll short networks (`recurrent`). Longer ones, and the ops over sequences of different lengths, run here, as numpy's
kernels: each function computes the same as its counterpart in `fluid.executor.kernels.rnn`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fluid.ops.rnn import CELL_GRADIENTS, CELLS, MODES
from fluid.values.spec import Spec
from fluid.values.types import as_dtype

from ..kernels.manipulation import flattened
from ..kernels.rnn import BACKWARD, FORWARD, Loops, StepFormula, gru_products, in_turn
from ..stepwise.repeated import Chain, equal_runs
from .costs import FEWEST_STEPS
from .fallback import NativeUnavailable, is_enabled, or_unavailable, warn_of

if TYPE_CHECKING:
    from .step_loops import StepLoop

__all__ = ["LOOPS", "padded_rows"]

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def _takes(steps: int, state: Any) -> bool:
    """Whether so many steps are worth a compiled one, for states of this type."""
    return steps >= FEWEST_STEPS and is_enabled() and state.dtype in _FLOATS and bool(state.size)


def _loop(formula: StepFormula, states: Sequence[Spec | None], inputs: Sequence[Spec | None]) -> StepLoop | None:
    """The native loop of a formula; None if an op of it is not native, or nothing can be compiled."""
    try:
        with or_unavailable():
            from . import compiler
            from .step_loops import step_loop

            parameters = [None if array is None else _spec(array.shape, array) for array in formula.parameters]
            return step_loop(formula.key, formula.compute, (tuple(parameters), tuple(states), tuple(inputs)), compiler.host())
    except NativeUnavailable as error:
        warn_of(error)
        return None


def _spec(shape: Sequence[int], array: Any) -> Spec:
    return Spec(tuple(shape), as_dtype(array.dtype))


def _address(array: Any) -> int | None:
    return None if array is None else array.ctypes.data


def _chain(first: Any, steps: int, rows: int = 0) -> Chain:
    """The memory of a state that passes from step to step, with room for at least some rows; further rows are zeros."""
    state = np.zeros((max(rows, len(first)), *first.shape[1:]), first.dtype)
    state[: len(first)] = first
    chain = Chain(state, steps, has_all=False)
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
    turn = _Turn(steps, states, formula, backwards) if _takes(len(steps), states[0]) else None
    loops = None if turn is None else turn.loops()
    if turn is None or loops is None:
        in_turn(steps, states, outputs, prepare, formula, backwards)
    else:
        turn.run(loops, outputs)


class _Turn:
    """Packed rows in the order of the steps that run.

    A step computes a padded number of rows: behind its own, it reads rows of the next packed step, and writes rows of the step
    that runs next, which overwrites them.
    """

    def __init__(self, steps: Sequence[tuple[int, int]], states: Sequence[Any], formula: StepFormula, backwards: bool) -> None:
        self._starts, self._counts = np.array(steps[::-1] if backwards else steps, np.int64).T
        self._rows = int(self._counts.sum())
        of_count = {count: padded_rows(count, len(states[0])) for count in np.unique(self._counts).tolist()}
        self._padded = np.array([of_count[count] for count in self._counts.tolist()], np.int64)
        self._most = int(self._padded.max())
        self._states, self._backwards = states, backwards
        self._masks = [self._mask(state) for state in states] if backwards else []
        parameters = [None if part is None else np.ascontiguousarray(part) for part in formula.parameters]
        formula = formula._replace(parameters=parameters)
        self._formula = _masked_formula(formula, len(states)) if backwards else formula

    def _mask(self, state: Any) -> Any:
        """Truths for the most rows of a step, then falses: part of it masks the padding rows of a step."""
        mask = np.zeros((2 * self._most, *state.shape[1:]), np.bool_)
        mask[: self._most] = True
        return mask

    def loops(self) -> dict[int, StepLoop] | None:
        """Number of rows -> the loop of steps with so many; None if numpy runs the steps."""
        loops = {}
        for rows in dict.fromkeys(self._padded.tolist()):
            states, inputs = (
                [None if array is None else _spec((rows, *array.shape[1:]), array) for array in arrays]
                for arrays in (self._states, [*self._formula.inputs, *self._masks])
            )
            loop = _loop(self._formula, states, inputs)
            if loop is None:
                return None
            loops[rows] = loop
        return loops

    def run(self, loops: Mapping[int, StepLoop], outputs: Sequence[Any]) -> None:
        """Run all steps and fill the outputs; backwards, leave the states before the first step in the states."""
        starts = self._counts.cumsum() - self._counts
        results = [np.zeros((self._rows + self._most, *array.shape[1:]), array.dtype) for array in outputs]
        at_results = [result.ctypes.data + starts * result.strides[0] for result in results]
        inputs = [self._input(array) for array in self._formula.inputs]
        at_inputs = [None if parts is None else self._at(*parts) for parts in inputs]
        at_masks = [mask.ctypes.data + (self._most - self._counts) * mask.strides[0] for mask in self._masks]
        chains, steps = [_chain(state, len(starts), self._most) for state in self._states], np.arange(len(starts))
        before = [
            chain.addresses(steps) if passed is None else np.append(chain.addresses(0), at_results[passed][:-1])
            for chain, passed in zip(chains, next(iter(loops.values())).passed, strict=True)
        ]
        read = [*map(_address, self._formula.parameters), *before, *at_inputs, *at_masks]
        after = [chain.addresses(steps + 1) for chain in chains]
        for start, end in equal_runs(self._padded):
            here = ([at[start:end] if isinstance(at, np.ndarray) else at for at in parts] for parts in (read, after, at_results))
            loops[int(self._padded[start])].run(end - start, *here)
        for array, result in zip(outputs, results, strict=True):
            self._take(array, result)
        if self._backwards:
            for state, chain in zip(self._states, chains, strict=True):
                state[...] = chain.value(len(steps))[: len(state)]

    def _input(self, array: Any) -> tuple[Any, Any] | None:
        """The packed rows of an input, and a copy of the last ones with room for padding rows; None for an absent input."""
        if array is None:
            return None
        last = np.zeros((2 * self._most, *array.shape[1:]), array.dtype)
        count = min(self._most, self._rows)
        last[self._most - count : self._most] = array[self._rows - count : self._rows]
        return np.ascontiguousarray(array), last

    def _at(self, array: Any, last: Any) -> Any:
        """The address of the rows of each step: in the copy of the last rows, if the padding rows are not all in the array."""
        beyond = self._starts + self._padded > self._rows
        rows = np.where(beyond, self._starts + self._most - self._rows, self._starts)
        return np.where(beyond, last.ctypes.data, array.ctypes.data) + rows * array.strides[0]

    def _take(self, array: Any, result: Any) -> None:
        """Fill packed rows with the results of all steps, which lie one after the other."""
        if self._backwards:
            in_order = np.concatenate([np.arange(*ends) for ends in zip(self._starts, self._starts + self._counts, strict=True)])
            array[in_order] = result[: self._rows]
        else:
            array[...] = result[: self._rows]


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
        if _takes(steps, pre):
            stays = _of_elements(outside, layer)
            parameters = [arrays.parameter(weight), arrays.parameter(bias)]
            formula = StepFormula(mode, parameters, [pre, stays], partial(_forward_step, mode))
            loop = _loop(formula, [arrays.spec(state) for state in layer.states], [arrays.spec(pre), arrays.spec(stays)])
        if loop is None:
            FORWARD[mode](xp, pre, weight, bias, layer, outside)
            return
        states, gates = [_at(state) for state in layer.states], _saved_gates(layer)
        read = [*map(_address, parameters), *(at[:-1] for at in states), _at(pre), _at(stays)]
        loop.run(steps, read, [at[1:] for at in states], [] if gates is None else [_at(gates)])

    return run


def _backward(mode: str) -> Callable[..., tuple[Any, Any]]:
    """The function that runs the steps of a layer of this mode backwards."""

    def run(xp: Any, coming: Any, grads: Sequence[Any], weight: Any, layer: Any, mask: Any) -> tuple[Any, Any]:
        loop, arrays, steps, gates = None, _Arrays(len(weight)), len(coming), _saved_gates(layer)
        if _takes(steps, coming):
            parameters = [arrays.parameter(weight)]
            stays = _of_elements(None if mask is None else ~mask, layer)
            inputs = [coming, gates, *(state[:-1] for state in layer.states), *(state[1:] for state in layer.states), stays]
            formula = StepFormula((mode, "grad"), parameters, inputs, partial(_backward_step, mode))
            loop = _loop(formula, [arrays.spec(coming)] * len(grads), [arrays.spec(part) for part in inputs])
        if loop is None:
            plain: tuple[Any, Any] = BACKWARD[mode](xp, coming, grads, weight, layer, mask)
            return plain
        d_gates, chains = np.empty_like(coming if gates is None else layer.gates), [_chain(grad, steps) for grad in grads]
        before, after = ([chain.addresses(np.arange(steps) + place) for chain in chains] for place in (0, 1))
        read = [*map(_address, parameters), *before, *(_at(part, backwards=True) for part in inputs)]
        loop.run(steps, read, after, [_at(d_gates, backwards=True)])
        for grad, chain in zip(grads, chains, strict=True):
            grad[...] = chain.value(steps)
        return gru_products(np, d_gates) if mode == "GRU" else (d_gates.reshape(*coming.shape[:3], -1),) * 2

    return run


LOOPS = Loops({mode: _forward(mode) for mode in MODES}, {mode: _backward(mode) for mode in MODES}, _in_turn)

"""A cell with named states, and two decoders that run it: one over given words, for training, one over its own best words."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ... import layers
from ...errors import ProgramError, did_you_mean
from ...ir.checked import Positive, check_variable, checked
from ...ir.program import Variable
from ...values.types import DTypeLike

__all__ = ["BeamSearchDecoder", "InitState", "StateCell", "TrainingDecoder"]


class InitState:
    """The initial value of a state of a `StateCell`: a row for each sequence.

    Args:
        init: the first state.
        shape, value, dtype: if `init` is None, the first state is `value` in this shape.
        init_boot: a variable with the number of rows that the first state should have.
        need_reorder: the rows are in the order of the sequences that `TrainingDecoder` reads, which it reorders by length;
            necessary wherever rows differ.

    >>> context = fluid.data("context", [None, 32])
    >>> fluid.contrib.InitState(init_boot=context, shape=[-1, 16], value=0.5).value.shape
    (-1, 16)
    """

    @checked
    def __init__(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        value: float = 0.0,
        init_boot: Variable | None = None,
        need_reorder: bool = False,
        dtype: DTypeLike = "float32",
    ) -> None:
        if init is None:
            if init_boot is None or shape is None:
                raise ProgramError("InitState: give init, or init_boot (a variable with as many rows) and the shape of the state")
            init = layers.fill_constant_batch_size_like(init_boot, shape, dtype, value)
        self.value, self.need_reorder = init, need_reorder


class _Decoder(Protocol):
    def _memory(self, state: InitState) -> Variable:
        """The value of a state before the current step."""

    def _update_memory(self, memory: Variable, value: Variable) -> None:
        """Store `value` as the state for the next step."""


class StateCell:
    """One step of a recurrence over named inputs and states, which decoders run.

    Args:
        inputs: name -> variable, or None for inputs from `compute_state` in each step.
        states: name -> the initial state.
        out_state: name of the state that words are predicted from.
        name: its name in errors.

    >>> context = fluid.data("context", [None, 16])
    >>> cell = fluid.contrib.StateCell({"word": None}, {"h": fluid.contrib.InitState(context, need_reorder=True)}, out_state="h")
    >>> @cell.state_updater
    ... def update(cell):
    ...     cell.set_state("h", layers.fc([cell.get_state("h"), cell.get_input("word")], 16, act="tanh"))
    """

    @checked
    def __init__(
        self,
        inputs: Mapping[str, Variable | None],
        states: Mapping[str, InitState],
        out_state: str,
        name: str | None = None,
    ) -> None:
        _check_name("StateCell: out_state", out_state, states)
        self._inits = dict(states)
        self._own_inputs = dict(inputs)
        self._out_state = out_state
        self._name = name or "StateCell"
        self._updater: Callable[[StateCell], Any] | None = None
        self._decoder: _Decoder | None = None
        self._is_updated = False
        self._inputs = dict(inputs)
        self._memories: dict[str, Variable] = {}
        """State -> its value before the step."""
        self._states: dict[str, Variable] = {}
        """State -> its value so far in the step."""

    def state_updater(self, updater: Callable[[StateCell], Any]) -> Callable[[StateCell], Any]:
        """Decorate `updater` to compute the steps: it gets the cell, reads inputs and states, and sets the states."""
        self._updater = updater
        return updater

    def compute_state(self, inputs: Mapping[str, Variable]) -> None:
        """Computes the states of a step from these inputs, by name, and the states before it."""
        self._check_inside("compute_state")
        if self._updater is None:
            raise ProgramError(f"{self._name}.compute_state: nothing computes the states; decorate a function with state_updater")
        for name, value in inputs.items():
            _check_name(f"{self._name}.compute_state: inputs", name, self._inputs)
            check_variable(value, f"{self._name}.compute_state: the input {name}")
        self._inputs.update(inputs)
        self._updater(self)

    def update_states(self) -> None:
        """Store the present states for the next step."""
        self._check_inside("update_states")
        assert self._decoder is not None
        for name, memory in self._memories.items():
            self._decoder._update_memory(memory, self._states[name])
        self._is_updated = True

    def get_input(self, input_name: str) -> Variable:
        """The input of this name."""
        _check_name(f"{self._name}.get_input", input_name, self._inputs)
        value = self._inputs[input_name]
        if value is None:
            raise ProgramError(f"{self._name}.get_input: {input_name} has no value; give it to compute_state, in inputs")
        return value

    def get_state(self, state_name: str) -> Variable:
        """The state of this name; until `compute_state` sets it, its value before the step."""
        self._check_inside("get_state")
        _check_name(f"{self._name}.get_state", state_name, self._states)
        return self._states[state_name]

    def set_state(self, state_name: str, state_value: Variable) -> None:
        """Makes `state_value` the state named `state_name`."""
        self._check_inside("set_state")
        _check_name(f"{self._name}.set_state", state_name, self._states)
        check_variable(state_value, f"{self._name}.set_state: the state {state_name}")
        self._states[state_name] = state_value

    def out_state(self) -> Variable:
        """The state that words are predicted from."""
        return self.get_state(self._out_state)

    def _check_inside(self, method: str) -> None:
        if self._decoder is None:
            raise ProgramError(f"{self._name}.{method} must be called in the block of a decoder: with decoder.block(): ...")
        if not self._memories:
            raise ProgramError(f"{self._name}.{method} must be called after step_input, which fixes the number of sequences")

    @contextlib.contextmanager
    def _in_decoder(self, decoder: _Decoder) -> Iterator[None]:
        """In the ``with``, `decoder` keeps the states from step to step; it calls `_begin` once it can."""
        if self._decoder is not None:
            raise ProgramError(f"{self._name} is in the block of another decoder; leave that first, or make another StateCell")
        self._decoder, self._is_updated = decoder, False
        try:
            yield
            if not self._is_updated:
                raise ProgramError(f"the block of {type(decoder).__name__} never calls update_states of its {self._name}")
        finally:
            self._decoder = None
            self._inputs = dict(self._own_inputs)
            self._memories, self._states = {}, {}

    def _begin(self) -> None:
        assert self._decoder is not None
        self._memories = {name: self._decoder._memory(init) for name, init in self._inits.items()}
        self._states = dict(self._memories)


def _check_name(where: str, name: str, names: Mapping[str, Any]) -> None:
    if name not in names:
        raise ProgramError(f"{where}: there is no {name!r}, but {', '.join(names) or 'none'}{did_you_mean(name, names)}")


class TrainingDecoder:
    """Runs a `StateCell` over given sequences of words, in a `layers.DynamicRNN`.

    Args:
        state_cell: its states have a row for each sequence.
        name: of the recurrence; generated if None.

    >>> words = fluid.data("words", [None, 8], lod_level=1)
    >>> state = fluid.contrib.InitState(fluid.data("context", [None, 16]), need_reorder=True)
    >>> cell = fluid.contrib.StateCell({"word": None}, {"h": state}, out_state="h")
    >>> @cell.state_updater
    ... def update(cell):
    ...     cell.set_state("h", layers.fc([cell.get_state("h"), cell.get_input("word")], 16, act="tanh"))
    >>> decoder = fluid.contrib.TrainingDecoder(cell)
    >>> with decoder.block():
    ...     cell.compute_state({"word": decoder.step_input(words)})
    ...     decoder.output(layers.fc(cell.out_state(), 100, act="softmax"))
    ...     cell.update_states()
    >>> decoder().shape
    (-1, 100)
    """

    @checked
    def __init__(self, state_cell: StateCell, name: str | None = None) -> None:
        self.state_cell = state_cell
        self.dynamic_rnn = layers.DynamicRNN(name)

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """Layers in the ``with`` append to the step."""
        with self.dynamic_rnn.block(), self.state_cell._in_decoder(self):
            yield

    def step_input(self, x: Variable) -> Variable:
        """The current step's rows of the sequences in `x`. The first call fixes the sequences."""
        row = self.dynamic_rnn.step_input(x)
        if not self.state_cell._memories:
            self.state_cell._begin()
        return row

    def static_input(self, x: Variable) -> Variable:
        """The rows (or sequences) of `x`, one for each sequence of the step input, whose sequences have this step."""
        return self.dynamic_rnn.static_input(x)

    def output(self, *outputs: Variable) -> None:
        """Adds outputs: the rows of each variable in every step."""
        self.dynamic_rnn.output(*outputs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs, in sequences like the first step input: one variable, or a list."""
        return self.dynamic_rnn(*args, **kwargs)

    def _memory(self, state: InitState) -> Variable:
        return self.dynamic_rnn.memory(state.value, need_reorder=state.need_reorder)

    def _update_memory(self, memory: Variable, value: Variable) -> None:
        self.dynamic_rnn.update_memory(memory, value)


class BeamSearchDecoder:
    """Finds the best sequences of words by running a `StateCell` over its own best words.

    `decode` builds the step that searches; to build another, overwrite it, or use `block`. The step of `decode` makes parameters
    in this order: the vectors of words, the parameters of the cell's updater, the parameters of the layer that predicts. If
    `TrainingDecoder` is used in this order too, and both programs are built under ``fluid.unique_name.guard()``, they share their
    parameters.

    Args:
        state_cell: its states have a row for each source.
        init_ids, init_scores: the first word of each source, int64 ``[sources, 1]``, and its score, float32; with two levels of
            sequences: each source has one prefix, and each prefix one word.
        target_dict_dim: number of words.
        word_dim: length of the vector of a word.
        input_var_dict: inputs of the cell, by name, that have a row (or sequence) for each source. All others are the vectors of
            the last words.
        topk_size: how many words are candidates to continue a prefix.
        sparse_emb: give the vectors of words sparse gradients.
        max_len: number of steps at most.
        beam_size: number of prefixes kept for each source.
        end_id: the word that ends sequences.
        name: of the loop; generated if None.

    >>> state = fluid.contrib.InitState(fluid.data("context", [None, 16]))
    >>> cell = fluid.contrib.StateCell({"word": None}, {"h": state}, out_state="h")
    >>> @cell.state_updater
    ... def update(cell):
    ...     cell.set_state("h", layers.fc([cell.get_state("h"), cell.get_input("word")], 16, act="tanh"))
    >>> init_ids = fluid.data("init_ids", [None, 1], "int64", lod_level=2)
    >>> init_scores = fluid.data("init_scores", [None, 1], lod_level=2)
    >>> decoder = fluid.contrib.BeamSearchDecoder(cell, init_ids, init_scores, target_dict_dim=100, word_dim=8, beam_size=4)
    >>> decoder.decode()
    >>> ids, scores = decoder()
    >>> ids.lod_level
    2
    """

    @checked
    def __init__(
        self,
        state_cell: StateCell,
        init_ids: Variable,
        init_scores: Variable,
        target_dict_dim: Positive,
        word_dim: Positive,
        input_var_dict: Mapping[str, Variable] | None = None,
        topk_size: Positive = 50,
        sparse_emb: bool = True,
        max_len: Positive = 100,
        beam_size: Positive = 1,
        end_id: int = 1,
        name: str | None = None,
    ) -> None:
        self.state_cell = state_cell
        self._init_ids, self._init_scores = init_ids, init_scores
        self._target_dict_dim, self._word_dim, self._sparse_emb = target_dict_dim, word_dim, sparse_emb
        self._input_var_dict = dict(input_var_dict or {})
        for input_name in self._input_var_dict:
            _check_name("BeamSearchDecoder: input_var_dict", input_name, state_cell._inputs)
        self._topk_size = min(topk_size, target_dict_dim)
        self._beam_size, self._end_id = beam_size, end_id
        self._name = name
        self._zero = layers.zeros([1], "int64")
        self._counter = layers.zeros([1], "int64")
        self._max_len = layers.fill_constant([1], "int64", max_len)
        self._continues = layers.less_than(self._counter, self._max_len)
        self._loop = layers.While(self._continues, is_test=True, name=name)
        self._outside = self._zero.block
        self._next: Variable | None = None
        """In the block, the index of the next step."""
        self._arrays: dict[str, Variable] = {}
        """Name of a result of `read_array` -> array of its values in all steps."""
        self._ids: Variable | None = None
        self._scores: Variable | None = None
        self._is_built = False

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """Layers in the ``with`` append to the step."""
        if self._is_built or self._next is not None:
            raise ProgramError("BeamSearchDecoder.block() can be entered only once")
        with self._loop.block():
            self._next = layers.increment(self._counter, in_place=False)
            with self.state_cell._in_decoder(self):
                self.state_cell._begin()
                yield
            layers.assign(self._next, self._counter)
            within = layers.less_than(self._counter, self._max_len)
            layers.logical_and(self._continues, within, out=self._continues)
        self._next, self._is_built = None, True

    def decode(self) -> None:
        """Build the step: continue each prefix by its `topk_size` most probable words, and keep the best."""
        with self.block():
            ids = self.read_array(self._init_ids, is_ids=True)
            scores = self.read_array(self._init_scores, is_scores=True)
            words = _rows(layers.embedding(ids, [self._target_dict_dim, self._word_dim], self._sparse_emb))
            cell = self.state_cell
            inputs = dict.fromkeys(cell._inputs, words)
            # A prefix is there once for each word that it was continued with.
            for name, init in self._input_var_dict.items():
                before = self.read_array(init)
                inputs[name] = layers.sequence_expand(before, scores)
                self.update_array(before, inputs[name])
            for name in cell._states:
                cell.set_state(name, layers.sequence_expand(cell.get_state(name), scores))
            cell.compute_state(inputs)
            probabilities = layers.fc(cell.out_state(), self._target_dict_dim, act="softmax")
            best, candidates = layers.topk(probabilities, self._topk_size)
            totals = layers.elementwise_add(layers.log(best), layers.reshape(scores, [-1]), axis=0)
            totals = layers.lod_reset(totals, scores)
            new_ids, new_scores = layers.beam_search(ids, scores, candidates, totals, self._beam_size, self._end_id)
            self.update_array(ids, new_ids)
            self.update_array(scores, new_scores)
            cell.update_states()
            with layers.Switch() as switch, switch.case(layers.is_empty(new_ids)):
                self.early_stop()

    def early_stop(self) -> None:
        """Makes the current step the last one."""
        self._check_inside("early_stop")
        layers.fill_constant([1], "bool", False, out=self._continues)

    def read_array(self, init: Variable, is_ids: bool = False, is_scores: bool = False) -> Variable:
        """The value that `update_array` stored in the step before; in the first step, `init`.

        Args:
            init: the first value.
            is_ids, is_scores: whether the array holds the words, or their scores, for the result.
        """
        self._check_inside("read_array")
        check_variable(init, "BeamSearchDecoder.read_array: init")
        if is_ids and is_scores:
            raise ProgramError("BeamSearchDecoder.read_array: an array holds the ids or the scores, not both")
        with self._outside.program.block_guard(self._outside):
            array = layers.array_write(init, self._zero)
        if is_ids:
            self._ids = array
        if is_scores:
            self._scores = array
        before: Variable = layers.array_read(array, self._counter)
        self._arrays[before.name] = array
        return before

    def update_array(self, array: Variable, value: Variable) -> None:
        """Store `value` for the next step; `array` is a result of `read_array`."""
        self._check_inside("update_array")
        check_variable(value, "BeamSearchDecoder.update_array: value")
        if not isinstance(array, Variable) or array.name not in self._arrays:
            raise ProgramError("BeamSearchDecoder.update_array: array should be a result of read_array()")
        assert self._next is not None
        layers.array_write(value, self._next, self._arrays[array.name])

    def __call__(self) -> tuple[Variable, Variable]:
        """The best sequences of words and their scores, as in `layers.beam_search_decode`."""
        if not self._is_built:
            raise ProgramError("the results of a BeamSearchDecoder are available after decode(), or after its block")
        if self._ids is None or self._scores is None:
            raise ProgramError("BeamSearchDecoder: no array in its block is read by read_array(is_ids=True), or is_scores=True")
        return layers.beam_search_decode(self._ids, self._scores, self._beam_size, self._end_id, name=self._name)

    def _check_inside(self, method: str) -> None:
        if self._next is None:
            raise ProgramError(f"BeamSearchDecoder.{method} must be called in its block: with decoder.block(): ...")

    def _memory(self, state: InitState) -> Variable:
        return self.read_array(state.value)

    def _update_memory(self, memory: Variable, value: Variable) -> None:
        self.update_array(memory, value)


def _rows(x: Variable) -> Variable:
    """`x` without its sequences, like a step of training: in a beam, sequences group prefixes, not words."""
    count = layers.slice(layers.shape(x), [0], [0], [1])
    offsets = layers.range(0, count + 1, 1, "int32")
    return layers.sequence_first_step(layers.lod_reset(x, offsets))

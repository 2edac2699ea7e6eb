"""`BasicDecoder` and its helpers, which choose the next inputs of the cell: a given sequence, or the words chosen before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..building.nested import flatten
from ..errors import FluidTypeError, ProgramError, shown
from ..ir.checked import check_variable
from ..ir.program import Variable
from ..values.types import VarType
from .ops import sampling_id
from .rnn import Decoder, RNNCell, map_variables, ops_here, sizes_from, swap_axes
from .tensor import argmax, fill_constant, fill_constant_batch_size_like

__all__ = ["BasicDecoder", "DecodeHelper", "GreedyEmbeddingHelper", "SampleEmbeddingHelper", "TrainingHelper"]


class DecodeHelper:
    """Base of the helpers of a `BasicDecoder`, which give it the inputs of each step. A subclass defines the three methods.

    >>> class OfZeros(layers.DecodeHelper):
    ...     def __init__(self, first):
    ...         self.first = first
    ...     def initialize(self):
    ...         return self.first, layers.fill_constant([2], "bool", False)
    ...     def sample(self, time, outputs, states):
    ...         return layers.argmax(outputs, axis=-1)
    ...     def next_inputs(self, time, outputs, states, sample_ids):
    ...         return layers.fill_constant([2], "bool", False), layers.zeros_like(self.first), states
    >>> first = layers.ones([2, 4], "float32")
    >>> decoder = layers.BasicDecoder(layers.GRUCell(3), OfZeros(first))
    >>> outputs, state = layers.dynamic_decode(decoder, layers.zeros([2, 3], "float32"), max_step_num=4)
    >>> outputs.cell_outputs.shape
    (2, -1, 3)
    """

    def initialize(self) -> tuple[Any, Variable]:
        """The inputs of the first step, and bools ``[batch]`` that say which sequences are finished from the start."""
        raise ProgramError(f"{type(self).__name__} should define initialize(): first inputs, finished")

    def sample(self, time: Variable, outputs: Variable, states: Any) -> Variable:
        """The ids that a step chooses, int64 ``[batch]``.

        Args:
            time: number of the step, int64 ``[1]``.
            outputs, states: of the cell.
        """
        raise ProgramError(f"{type(self).__name__} should define sample(time, outputs, states): the chosen ids")

    def next_inputs(self, time: Variable, outputs: Variable, states: Any, sample_ids: Variable) -> tuple[Variable, Any, Any]:
        """Which sequences are finished now, and inputs and states of the next step.

        Args:
            time, outputs, states: as for `sample`.
            sample_ids: the ids that `sample` has chosen.
        """
        raise ProgramError(
            f"{type(self).__name__} should define next_inputs(time, outputs, states, ids): finished, inputs, states"
        )


class TrainingHelper(DecodeHelper):
    """Gives the cell the steps of a given sequence, whichever ids it chooses: teacher forcing.

    Args:
        inputs: ``[batch, time, ...]``, or ``[time, batch, ...]`` if `time_major`; may be nested.
        sequence_length: int32 or int64 ``[batch]``; the number of steps after which each sequence is finished.
        time_major: whether the first dimension is time.

    >>> words, lengths = fluid.data("words", [None, 20, 16]), fluid.data("lengths", [None], "int64")
    >>> decoder = layers.BasicDecoder(layers.GRUCell(32), layers.TrainingHelper(words, lengths))
    >>> outputs, state = layers.dynamic_decode(decoder, inits=fluid.data("state", [None, 32]))
    >>> outputs.cell_outputs.shape, outputs.sample_ids.shape
    ((-1, -1, 32), (-1, -1))
    """

    def __init__(self, inputs: Any, sequence_length: Variable, time_major: bool = False) -> None:
        check_variable(sequence_length, "TrainingHelper: sequence_length")
        self.inputs, self.sequence_length, self.time_major = inputs, sequence_length, time_major
        self._steps = map_variables(lambda x: x if time_major else swap_axes(x), inputs)

    def initialize(self) -> tuple[Any, Variable]:
        """The first step of the inputs; sequences of length 0 are finished."""
        f, lengths = ops_here(), self.sequence_length
        return map_variables(lambda x: x[0], self._steps), f.equal(lengths, f.fill_zeros_like(lengths))

    def sample(self, time: Variable, outputs: Variable, states: Any) -> Variable:
        """The positions of the largest outputs.

        Args:
            time, outputs, states: see `DecodeHelper`.
        """
        return argmax(outputs, axis=-1)

    def next_inputs(self, time: Variable, outputs: Variable, states: Any, sample_ids: Variable) -> tuple[Variable, Any, Any]:
        """The next step of the inputs; after the end, the last step again.

        Args:
            time, outputs, states, sample_ids: see `DecodeHelper`.
        """
        f, following = ops_here(), time + 1
        finished = f.less_equal(self.sequence_length, following.astype(self.sequence_length.dtype))
        return finished, map_variables(lambda x: self._step(x, following), self._steps), states

    @staticmethod
    def _step(sequence: Variable, time: Variable) -> Variable:
        """Step `time` of a sequence, at most the last one."""
        steps = sizes_from(sequence, 0)[0]
        last = fill_constant([1], "int64", steps - 1) if isinstance(steps, int) else steps.astype("int64") - 1
        step: Variable = ops_here().squeeze2(ops_here().gather(sequence, ops_here().elementwise_min(time, last)), axes=[0])
        return step


class GreedyEmbeddingHelper(DecodeHelper):
    """Gives the cell the embedding of the most probable id of the step before.

    Args:
        embedding_fn: converts ids, int64 ``[batch]``, to the cell's inputs. It is called twice; name its parameters.
        start_tokens: the first ids, int64 ``[batch]``.
        end_token: the id that finishes a sequence.

    Raises:
        FluidTypeError: `embedding_fn` is no function, `start_tokens` no variable, or `end_token` no integer.

    >>> def embed(ids):
    ...     return fluid.embedding(ids, size=[1000, 16], param_attr="words")
    >>> start = fluid.data("start", [None], "int64")
    >>> decoder = layers.BasicDecoder(
    ...     layers.GRUCell(32), layers.GreedyEmbeddingHelper(embed, start, end_token=1), lambda hidden: layers.fc(hidden, 1000)
    ... )
    >>> outputs, state = layers.dynamic_decode(decoder, inits=fluid.data("state", [None, 32]), max_step_num=10)
    >>> outputs.sample_ids.shape
    (-1, -1)
    """

    def __init__(self, embedding_fn: Callable[[Variable], Any], start_tokens: Variable, end_token: int) -> None:
        name = type(self).__name__
        check_variable(start_tokens, f"{name}: start_tokens")
        if not callable(embedding_fn):
            raise FluidTypeError(f"{name}: embedding_fn should be a function of ids, not {shown(embedding_fn)}")
        if not isinstance(end_token, (int, np.integer)):
            raise FluidTypeError(f"{name}: end_token should be an id, an integer, not {shown(end_token)}")
        self.embedding_fn, self.start_tokens, self.end_token = embedding_fn, start_tokens, int(end_token)

    def initialize(self) -> tuple[Any, Variable]:
        """The embedding of the first ids; no sequence is finished."""
        finished = fill_constant_batch_size_like(self.start_tokens, [-1], "bool", False)
        return self.embedding_fn(self.start_tokens), finished

    def sample(self, time: Variable, outputs: Variable, states: Any) -> Variable:
        """The positions of the largest outputs.

        Args:
            time, outputs, states: see `DecodeHelper`.
        """
        return argmax(outputs, axis=-1)

    def next_inputs(self, time: Variable, outputs: Variable, states: Any, sample_ids: Variable) -> tuple[Variable, Any, Any]:
        """The embedding of the chosen ids; sequences that chose `end_token` are finished.

        Args:
            time, outputs, states, sample_ids: see `DecodeHelper`.
        """
        finished = ops_here().equal(sample_ids, fill_constant([1], "int64", self.end_token))
        return finished, self.embedding_fn(sample_ids), states


class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """Gives the cell the embedding of an id, drawn from the probabilities of the step before.

    Args:
        embedding_fn, start_tokens, end_token: as for `GreedyEmbeddingHelper`.
        softmax_temperature: a divisor of the cell's outputs, before the softmax; below 1, probable ids are drawn more often.
        seed: the seed of the draws; None for the program's seed.

    Raises:
        ProgramError: `softmax_temperature` is not above 0.

    >>> def embed(ids):
    ...     return fluid.embedding(ids, size=[1000, 16], param_attr="words")
    >>> helper = layers.SampleEmbeddingHelper(embed, fluid.data("start", [None], "int64"), 1, softmax_temperature=0.8)
    >>> decoder = layers.BasicDecoder(layers.GRUCell(32), helper, lambda hidden: layers.fc(hidden, 1000))
    >>> outputs, state = layers.dynamic_decode(decoder, inits=fluid.data("state", [None, 32]), max_step_num=10)
    >>> outputs.sample_ids.shape
    (-1, -1)
    """

    def __init__(
        self,
        embedding_fn: Callable[[Variable], Any],
        start_tokens: Variable,
        end_token: int,
        softmax_temperature: float | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(embedding_fn, start_tokens, end_token)
        if softmax_temperature is not None and not softmax_temperature > 0:
            raise ProgramError(f"SampleEmbeddingHelper: softmax_temperature should be above 0, not {softmax_temperature!r}")
        self.softmax_temperature, self.seed = softmax_temperature, seed

    def sample(self, time: Variable, outputs: Variable, states: Any) -> Variable:
        """Ids drawn from the softmax of the outputs.

        Args:
            time, outputs, states: see `DecodeHelper`.
        """
        scores = outputs if self.softmax_temperature is None else outputs / float(self.softmax_temperature)
        ids: Variable = sampling_id(ops_here().softmax(scores, axis=-1), seed=self.seed or 0).astype("int64")
        return ids


class _Outputs(NamedTuple):
    cell_outputs: Variable
    sample_ids: Variable


class BasicDecoder(Decoder):
    """Runs a cell with the inputs that a helper gives; `dynamic_decode` returns its ``cell_outputs`` and ``sample_ids``.

    Args:
        cell: an `RNNCell`; its first states are the `inits` of `dynamic_decode`.
        helper: a `TrainingHelper`, `GreedyEmbeddingHelper`, `SampleEmbeddingHelper`, or another `DecodeHelper`.
        output_fn: converts the cell's outputs, for example to scores over the vocabulary; by default they stay.

    Raises:
        FluidTypeError: `helper` lacks the methods of a `DecodeHelper`.

    >>> words, lengths = fluid.data("words", [None, 20, 16]), fluid.data("lengths", [None], "int64")
    >>> helper = layers.TrainingHelper(words, lengths)
    >>> decoder = layers.BasicDecoder(layers.GRUCell(32), helper, output_fn=lambda hidden: layers.fc(hidden, 1000))
    >>> outputs, state, steps = layers.dynamic_decode(decoder, inits=fluid.data("state", [None, 32]), return_length=True)
    >>> outputs.cell_outputs.shape, state.shape
    ((-1, -1, 1000), (-1, 32))
    """

    OutputWrapper = _Outputs

    def __init__(self, cell: RNNCell, helper: DecodeHelper, output_fn: Callable[[Variable], Variable] | None = None) -> None:
        if not all(hasattr(helper, method) for method in ("initialize", "sample", "next_inputs")):
            raise FluidTypeError(f"BasicDecoder: helper should be a DecodeHelper, such as TrainingHelper, not {shown(helper)}")
        self.cell, self.helper, self.output_fn = cell, helper, output_fn

    def initialize(self, initial_cell_states: Any) -> tuple[Any, Any, Variable]:
        """The helper's first inputs, the cell's first states, and which sequences are finished.

        Args:
            initial_cell_states: states of the cell, ``[batch, ...]``, may be nested.
        """
        flatten(initial_cell_states, "BasicDecoder: initial_cell_states")
        inputs, finished = self.helper.initialize()
        return inputs, initial_cell_states, finished

    def step(self, time: Variable, inputs: Any, states: Any, **kwargs: Any) -> tuple[_Outputs, Any, Any, Variable]:
        """Runs the cell, and asks the helper for ids and the next inputs.

        Args:
            time, inputs, states: see `Decoder`.
            kwargs: passed to the cell.
        """
        outputs, states = self.cell(inputs, states, **kwargs)
        if self.output_fn is not None:
            outputs = self.output_fn(outputs)
        ids = self.helper.sample(time, outputs, states)
        ids.stop_gradient = True
        finished, inputs, states = self.helper.next_inputs(time, outputs, states, ids)
        return _Outputs(outputs, ids), states, inputs, finished

    @property
    def output_dtype(self) -> Any:
        return _Outputs(VarType.FP32, VarType.INT64)  # type: ignore[arg-type]  # types in place of variables

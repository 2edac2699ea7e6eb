"""Recurrent networks: cells and `rnn`, decoders and `dynamic_decode`, and recurrent layers of one op each."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from .. import unique_name
from ..building.layer_helper import LayerHelper, extent, keeping_itself
from ..building.nested import flatten, rebuild, structure
from ..building.versions import builds
from ..errors import FluidTypeError, ProgramError
from ..initializer import Initializer
from ..ir.checked import Positive, check_variable
from ..ir.program import Variable, default_main_program
from ..ops.rnn import ACTIVATIONS
from ..param_attr import AttrLike, ParamAttr
from ..values.types import DTypeLike, VarType, as_dtype
from .arguments import beside
from .control_flow import StaticRNN, array_write, while_loop
from .nn import fc, one_hot, reshape, topk
from .tensor import fill_constant, fill_constant_batch_size_like

__all__ = [
    "BeamSearchDecoder",
    "Decoder",
    "GRUCell",
    "LSTMCell",
    "RNNCell",
    "dynamic_decode",
    "dynamic_gru",
    "dynamic_lstm",
    "dynamic_lstmp",
    "gru_unit",
    "lstm",
    "lstm_unit",
    "rnn",
]


def ops_here() -> Any:
    """The ops, as functions that append them to the current block."""
    return default_main_program().current_block().namespace


def map_variables(fn: Callable[..., Any], value: Any, *more: Any) -> Any:
    """Replace each variable in `value`, which may be nested, by `fn` of it and the variables at the same place in `more`."""
    variables = [flatten(item, "the values") for item in (value, *more)]
    return rebuild(value, iter([fn(*items) for items in zip(*variables, strict=True)]))


def swap_axes(x: Variable) -> Variable:
    """`x` with its first two axes exchanged."""
    check_variable(x, "a sequence")
    if x.ndim < 2:
        raise ProgramError(f"{x.name} ({x.describe()}) should have a batch and a time dimension")
    swapped: Variable = ops_here().transpose2(x, axis=[1, 0, *range(2, x.ndim)])
    return swapped


# --------------------------------------------------------------------------------------------------------------- cells
class RNNCell:
    """One step of a recurrent network. Subclasses define `call` and `state_shape`.

    >>> class Average(layers.RNNCell):
    ...     state_shape = [16]
    ...     def call(self, inputs, states):
    ...         mean = (inputs + states) * 0.5
    ...         return mean, mean
    >>> outputs, state = layers.rnn(Average(), fluid.data("words", [None, 20, 16]))
    >>> outputs.shape
    (-1, 20, 16)
    """

    def call(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any]:
        """The outputs and the new states, structured as `states`.

        Args:
            inputs: of one step, variables ``[batch, ...]``, may be nested.
            states: before the step, nested as `state_shape`.
            kwargs: what `rnn` is given beyond its own arguments.
        """
        raise ProgramError(f"{type(self).__name__} should define call(inputs, states), which returns outputs and new states")

    def __call__(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Run `call` with the arguments.

        Args:
            inputs, states, kwargs: as of `call`.
        """
        with beside((inputs, states)):
            return self.call(inputs, states, **kwargs)

    def get_initial_states(
        self,
        batch_ref: Any,
        shape: Any = None,
        dtype: DTypeLike | None = None,
        init_value: float = 0,
        batch_dim_idx: int = 0,
    ) -> Any:
        """States filled with `init_value`, for the batch size of the first variable in `batch_ref`.

        Args:
            batch_ref: a variable ``[batch, ...]``, may be nested.
            shape: the shape of each state without the batch, nested as the states are; by default the cell's `state_shape`.
            dtype: element type of the states; by default the cell's `state_dtype`.
            init_value: a number.
            batch_dim_idx: the dimension of the batch in `batch_ref`.
        """
        like = flatten(batch_ref, "get_initial_states: batch_ref")[0]
        dtype = as_dtype(dtype if dtype is not None else self.state_dtype)

        def filled(shape: Any) -> Any:
            if isinstance(shape, dict):
                return {key: filled(item) for key, item in shape.items()}
            if not isinstance(shape, (list, tuple)) or not all(isinstance(item, int) for item in shape):
                return type(shape)(filled(item) for item in shape)
            sizes = [-1, *(size for size in shape if size != -1)]
            return fill_constant_batch_size_like(like, sizes, dtype, init_value, batch_dim_idx)

        return filled(self.state_shape if shape is None else shape)

    @property
    def state_shape(self) -> Any:
        """The shape of each state without the batch, nested as the states are."""
        raise ProgramError(f"{type(self).__name__} should define state_shape, from which its initial states are made")

    @property
    def state_dtype(self) -> Any:
        """The element type of the states."""
        return "float32"


class Keeper(Protocol):
    """A layer of eager mode that keeps the parameters of a cell."""

    def keeping(self, part: str, input: Variable) -> contextlib.AbstractContextManager[None]:
        """Inside the ``with``, use the layer's parameters for a part of the cell; `input` is what the cell is called with."""


class CellParameters:
    """The parameters of a cell, created in its first call and shared by all later ones.

    Args:
        parts: names of the parts of the cell, each with a weight and a bias; ``""`` for a cell of one part.
    """

    keeper: Keeper | None = None
    """The layer of eager mode that keeps them, if any."""

    def __init__(self, name: str, parts: Sequence[str], param_attr: AttrLike, bias_attr: AttrLike, dtype: DTypeLike) -> None:
        self.helper = LayerHelper(name, unique_name.generate(name), param_attr, bias_attr)
        self.parts, self.dtype = parts, dtype
        self.pairs: dict[str, tuple[Variable, Variable | None]] = {}
        """Part -> weight and bias, where no layer keeps them."""

    def affine(self, part: str, inputs: Sequence[Variable], size: int, f: Any) -> Variable:
        """``concat(inputs) @ W + b`` with the weight and bias of a part of the cell."""
        joined = f.concat(list(inputs), axis=1)
        features = joined.shape[1]
        if features < 1:
            first = inputs[0]
            raise ProgramError(f"{self.helper.name}: the number of features of {first.name} ({first.describe()}) must be known")
        if self.keeper is not None:
            with self.keeper.keeping(part, joined):
                weight, bias = self._create(part, features, size)
        else:
            if part not in self.pairs:
                with keeping_itself():
                    self.pairs[part] = self._create(part, features, size)
            weight, bias = self.pairs[part]
        if weight.shape[0] != features:
            raise ProgramError(
                f"{self.helper.name} was made for {weight.shape[0]} features of input and state together, not {features}"
            )
        product: Variable = joined @ weight
        return product if bias is None else product + bias

    def _create(self, part: str, features: int, size: int) -> tuple[Variable, Variable | None]:
        helper = self.helper
        weight = helper.create_parameter(self._attr(helper.param_attr, part), [features, size], self.dtype)
        if helper.bias_attr is False:
            return weight, None
        return weight, helper.create_parameter(self._attr(helper.bias_attr, part), [size], self.dtype, is_bias=True)

    @staticmethod
    def _attr(attr: Any, part: str) -> Any:
        if isinstance(attr, ParamAttr) and attr.name and part:
            attr = copy.copy(attr)
            attr.name = f"{attr.name}_{part}"
        return attr


def _applied(f: Any, activation: Any, default: str, x: Variable) -> Variable:
    """Applies `activation` (None means `default`): a function, or the name of an op."""
    activation = default if activation is None else activation
    activated: Variable = activation(x) if callable(activation) else getattr(f, activation)(x)
    return activated


class CellUnit:
    """A layer that computes one step by its cell; eager layers find the parameters there."""

    cell: RNNCell


class GRUCell(RNNCell):
    """A gated recurrent unit: ``r, u = gate([x, h] W_g + b_g)``, ``c = activation([x, r h] W_c + b_c)``, ``u h + (1 - u) c``.

    Formula: Cho et al., Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation, 2014.

    Args:
        hidden_size: features of the state.
        param_attr: attributes of the weights; ``_gate`` or ``_candidate`` is appended to a name.
        bias_attr: the same of the biases; False for none.
        gate_activation: a function or the name of an op; sigmoid by default.
        activation: the same; tanh by default.
        dtype: element type of the parameters.
        name: of the cell; its parameters are named as in Fluid 1.6, ``name/BasicGRUUnit_0.w_0``.

    >>> cell = layers.GRUCell(hidden_size=32)
    >>> words, state = fluid.data("words", [None, 16]), fluid.data("state", [None, 32])
    >>> output, state = cell(words, state)
    >>> output.shape
    (-1, 32)
    """

    def __init__(
        self,
        hidden_size: int,
        param_attr: AttrLike = None,
        bias_attr: AttrLike = None,
        gate_activation: Any = None,
        activation: Any = None,
        dtype: DTypeLike = "float32",
        name: str = "GRUCell",
    ) -> None:
        self.hidden_size, self.dtype = hidden_size, dtype
        self._gate, self._activation = gate_activation, activation
        self._parameters = CellParameters(f"{name}/BasicGRUUnit", ("gate", "candidate"), param_attr, bias_attr, dtype)

    def call(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Variable, Variable]:
        """The new state, twice,.

        Args:
            inputs: ``[batch, features]``.
            states: the state, ``[batch, hidden_size]``.
            kwargs: accepted and ignored.
        """
        f = ops_here()
        gates = self._parameters.affine("gate", [inputs, states], 2 * self.hidden_size, f)
        reset, update = f.split(_applied(f, self._gate, "sigmoid", gates), num=2, axis=1)
        candidate = self._parameters.affine("candidate", [inputs, reset * states], self.hidden_size, f)
        candidate = _applied(f, self._activation, "tanh", candidate)
        state = candidate + update * (states - candidate)
        return state, state

    @property
    def state_shape(self) -> list[int]:
        return [self.hidden_size]

    @property
    def state_dtype(self) -> Any:
        return self.dtype


class LSTMCell(RNNCell):
    """A long short-term memory: ``i, j, f, o = [x, h] W + b``, ``c' = gate(f + forget_bias) c + gate(i) activation(j)``,
    ``h' = gate(o) activation(c')``. Its states are ``[h, c]``.

    Formula: Zaremba, Sutskever and Vinyals, Recurrent Neural Network Regularization, 2014.

    Args:
        hidden_size: features of each state.
        param_attr: attributes of the weight.
        bias_attr: attributes of the bias; False for none.
        gate_activation: a function or the name of an op; sigmoid by default.
        activation: the same; tanh by default.
        forget_bias: added to the forget gate before its activation.
        dtype: element type of the parameters.
        name: of the cell; its parameters are named as in Fluid 1.6, ``name/BasicLSTMUnit_0.w_0``.

    >>> cell = layers.LSTMCell(hidden_size=32)
    >>> words = fluid.data("words", [None, 16])
    >>> output, states = cell(words, cell.get_initial_states(words))
    >>> output.shape, len(states)
    ((-1, 32), 2)
    """

    def __init__(
        self,
        hidden_size: int,
        param_attr: AttrLike = None,
        bias_attr: AttrLike = None,
        gate_activation: Any = None,
        activation: Any = None,
        forget_bias: float = 1.0,
        dtype: DTypeLike = "float32",
        name: str = "LSTMCell",
    ) -> None:
        self.hidden_size, self.dtype, self.forget_bias = hidden_size, dtype, forget_bias
        self._gate, self._activation = gate_activation, activation
        self._parameters = CellParameters(f"{name}/BasicLSTMUnit", ("",), param_attr, bias_attr, dtype)

    def call(self, inputs: Any, states: Any, **kwargs: Any) -> tuple[Variable, list[Variable]]:
        """``h'`` and ``[h', c']``.

        Args:
            inputs: ``[batch, features]``.
            states: ``[h, c]``, each ``[batch, hidden_size]``.
            kwargs: accepted and ignored.
        """
        f = ops_here()
        hidden, cell = states
        i, j, forget, o = f.split(self._parameters.affine("", [inputs, hidden], 4 * self.hidden_size, f), num=4, axis=1)
        remembered = cell * _applied(f, self._gate, "sigmoid", forget + self.forget_bias)
        cell = remembered + _applied(f, self._gate, "sigmoid", i) * _applied(f, self._activation, "tanh", j)
        hidden = _applied(f, self._activation, "tanh", cell) * _applied(f, self._gate, "sigmoid", o)
        return hidden, [hidden, cell]

    @property
    def state_shape(self) -> list[list[int]]:
        return [[self.hidden_size], [self.hidden_size]]

    @property
    def state_dtype(self) -> Any:
        return self.dtype


def held(before: Any, after: Any, mask: Variable) -> Any:
    """States after a step; rows with mask 0 keep the states from before it.

    Each state is multiplied by 0 or 1. The sum ``old + (new - old) * mask`` would lose a new state beside a large old one, such
    as -1e9, the initial log probability of beams.
    """
    multiplied = partial(ops_here().elementwise_mul, axis=0)
    return map_variables(lambda old, new: multiplied(new, mask) + multiplied(old, 1.0 - mask), before, after)


def _has_unchecked_feeds(variable: Variable) -> bool:
    """Whether the program of a variable may be fed other sizes than declared: it has feeds of `layers.data`."""
    feeds = variable.block.program.global_block().vars.values() if isinstance(variable, Variable) else ()
    return any(feed.is_data and not feed.need_check_feed for feed in feeds)


def step_mask(sequence: Variable, lengths: Variable, dtype: VarType, axis: int = 0) -> Variable:
    """``[batch, time]`` for a sequence with the steps along `axis`: 1 before the end of each sequence, 0 after it.

    A run tells how many steps there are, where the declared number is open, or `layers.data` may be fed another one.
    """
    f, steps = ops_here(), sequence.shape[axis]
    if steps < 0 or _has_unchecked_feeds(sequence):
        steps = f.slice(f.shape(sequence), axes=[0], starts=[axis], ends=[axis + 1])
        mask: Variable = f.sequence_mask(lengths, steps, out_dtype=int(dtype))
    else:
        mask = f.sequence_mask(lengths, maxlen=steps, out_dtype=int(dtype))
    return mask


def rnn(
    cell: RNNCell,
    inputs: Any,
    initial_states: Any = None,
    sequence_length: Variable | None = None,
    time_major: bool = False,
    is_reverse: bool = False,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """Runs a cell over sequences: the outputs of all steps, and the last states.

    Args:
        cell: a `GRUCell`, an `LSTMCell`, or another `RNNCell`.
        inputs: ``[batch, time, ...]``, or ``[time, batch, ...]`` if `time_major`; may be nested.
        initial_states: structured as the cell's; by default its `get_initial_states`.
        sequence_length: int32 or int64 ``[batch]``; states do not change after the end of a sequence.
        time_major: whether the first dimension is time.
        is_reverse: run from the last step to the first.
        kwargs: passed to the cell.

    Returns:
        Outputs, ``[batch, time, ...]`` or ``[time, batch, ...]`` like `inputs`, and states.

    Raises:
        ProgramError: if the cell returns states of another structure than it takes.

    >>> words = fluid.data("words", [None, 20, 16])
    >>> outputs, state = layers.rnn(layers.GRUCell(hidden_size=32), words)
    >>> outputs.shape, state.shape
    ((-1, 20, 32), (-1, 32))
    """
    if initial_states is None:
        initial_states = cell.get_initial_states(batch_ref=map_variables(swap_axes, inputs) if time_major else inputs)
    f = ops_here()

    def in_order(x: Variable) -> Variable:
        ordered: Variable = f.reverse(x, axis=[0]) if is_reverse else x
        return ordered

    sequences = map_variables(lambda x: in_order(x if time_major else swap_axes(x)), inputs)
    mask = None
    if sequence_length is not None:
        first = flatten(sequences, "rnn: inputs")[0]
        dtype = flatten(initial_states, "rnn: initial_states")[0].dtype
        mask = in_order(swap_axes(step_mask(first, sequence_length, dtype)))

    def step(slices: Any, before: Any, mask: Any) -> tuple[Any, Any]:
        outputs, after = cell(slices, before, **kwargs)
        if structure(after) != structure(before):
            raise ProgramError(f"rnn: the cell takes states structured as {structure(before)} but returns {structure(after)}")
        if mask is not None:
            after = held(before, after, mask)
        return outputs, after

    def result(outputs: Any) -> Any:
        return map_variables(lambda x: in_order(x) if time_major else swap_axes(in_order(x)), outputs)

    return recur(step, sequences, initial_states, mask, result)


@builds
def recur(step: Callable[..., Any], sequences: Any, states: Any, mask: Any, result: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Runs `step` over sequences ``[time, ...]``: `result` of the outputs ``[time, ...]``, and the last states.

    Args:
        step: ``step(slices, states, slice of the mask) -> (outputs, states)``.
    """
    network = StaticRNN()
    with network.step():
        slices = map_variables(network.step_input, sequences)
        before = map_variables(lambda state: network.memory(init=state), states)
        outputs, after = step(slices, before, None if mask is None else network.step_input(mask))
        for old, new in zip(flatten(before, "rnn: states"), flatten(after, "rnn: states"), strict=True):
            network.update_memory(old, new)
        for item in (*flatten(outputs, "the outputs of the cell"), *flatten(after, "the cell's states")):
            network.step_output(item)
    results = network()
    results = iter(results if isinstance(results, list) else [results])
    outputs = map_variables(lambda _: next(results), outputs)
    return result(outputs), map_variables(lambda _: next(results)[-1], after)


# ------------------------------------------------------------------------------------------------------------ decoders
class Decoder:
    """Generates sequences step by step, each step from the last one's results; `dynamic_decode` runs it.

    >>> class CountDown(layers.Decoder):
    ...     output_dtype = "int64"
    ...     def initialize(self, inits):
    ...         return inits, inits, layers.less_than(inits, layers.zeros([1], "int64"))
    ...     def step(self, time, inputs, states):
    ...         less = inputs - 1
    ...         return inputs, less, less, layers.less_than(less, layers.zeros([1], "int64"))
    >>> outputs, state = layers.dynamic_decode(CountDown(), layers.fill_constant([1], "int64", 3))
    >>> fluid.Executor().run(fetch_list=[outputs])
    [array([[3, 2, 1, 0]])]
    """

    def initialize(self, inits: Any) -> tuple[Any, Any, Variable]:
        """Inputs and states of the first step, and bools that say which sequences are finished from the start.

        Args:
            inits: what `dynamic_decode` was given.
        """
        raise ProgramError(f"{type(self).__name__} should define initialize(inits): first inputs, first states, finished")

    def step(self, time: Variable, inputs: Any, states: Any) -> tuple[Any, Any, Any, Variable]:
        """Outputs of step `time` (int64 ``[1]``), states and inputs of the next, and which sequences are finished.

        Args:
            time: number of the step, from 0 on.
            inputs, states: of the step.
        """
        raise ProgramError(f"{type(self).__name__} should define step(time, inputs, states): outputs, states, inputs, finished")

    @property
    def output_dtype(self) -> Any:
        """The element types of the outputs, structured as they are."""
        raise ProgramError(f"{type(self).__name__} should define output_dtype, the element types of its outputs")

    def finalize(self, outputs: Any, final_states: Any, sequence_lengths: Variable) -> tuple[Any, Any]:
        """Converts the outputs of all steps, ``[time, batch, ...]``, and the last states to the results of `dynamic_decode`.

        Args:
            outputs: of all steps, ``[time, batch, ...]``.
            final_states: those after the last step.
            sequence_lengths: how many steps each sequence took until it was finished, int64.
        """
        return outputs, final_states


class _Output(NamedTuple):
    scores: Variable
    predicted_ids: Variable
    parent_ids: Variable


class _BeamState(NamedTuple):
    cell_states: Any
    log_probs: Variable
    finished: Variable
    lengths: Variable


_IMPOSSIBLE = -1e9
"""Stands for the logarithm of probability 0."""


class BeamSearchDecoder(Decoder):
    """Finds the `beam_size` most probable sequences that a cell generates.

    Args:
        cell: its inputs are results of `embedding_fn`; its first states are the `inits` of `dynamic_decode`, ``[batch, ...]``.
        start_token: the id at the start of sequences.
        end_token: the id at the end of sequences.
        beam_size: how many sequences are kept in each step.
        embedding_fn: converts ids, int64 ``[batch, beam_size]``, to the cell's inputs; by default they are the ids.
        output_fn: converts the cell's outputs to scores over the vocabulary; by default they are the outputs.

    `dynamic_decode` returns ids, int64 ``[batch, time, beam_size]``, and the last states, whose ``log_probs``, ``finished`` and
    ``lengths`` are ``[batch, beam_size]``.

    >>> def embed(ids):
    ...     return fluid.embedding(ids, size=[1000, 16])
    >>> def project(hidden):
    ...     return layers.fc(hidden, 1000)
    >>> decoder = layers.BeamSearchDecoder(layers.GRUCell(32), 0, 1, beam_size=4, embedding_fn=embed, output_fn=project)
    >>> ids, states = layers.dynamic_decode(decoder, inits=fluid.data("state", [None, 32]), max_step_num=10)
    >>> ids.shape
    (-1, -1, 4)
    """

    OutputWrapper = _Output
    StateWrapper = _BeamState

    def __init__(
        self,
        cell: RNNCell,
        start_token: int,
        end_token: int,
        beam_size: int,
        embedding_fn: Callable[[Variable], Any] | None = None,
        output_fn: Callable[[Variable], Variable] | None = None,
    ) -> None:
        self.cell, self.embedding_fn, self.output_fn = cell, embedding_fn, output_fn
        self.start_token, self.end_token, self.beam_size = int(start_token), int(end_token), int(beam_size)

    @staticmethod
    def tile_beam_merge_with_batch(x: Variable, beam_size: int) -> Variable:
        """Repeats each entry of ``[batch, ...]``: ``[batch * beam_size, ...]``, for inputs that a cell reads besides its states.

        Args:
            x: ``[batch, ...]``.
            beam_size: the decoder's.
        """
        return _merged(_tiled(x, beam_size))

    def initialize(self, initial_cell_states: Any) -> tuple[Any, _BeamState, Variable]:
        """All beams start from the cell's states; only the first has a probability above 0.

        Args:
            initial_cell_states: states of the cell, ``[batch, ...]``, may be nested.
        """
        first = flatten(initial_cell_states, "BeamSearchDecoder: initial_cell_states")[0]
        beams = self.beam_size

        def filled(value: float, dtype: str) -> Variable:
            return fill_constant_batch_size_like(first, [-1, beams], dtype, value)

        f = ops_here()
        impossible = (1.0 - one_hot(fill_constant([1, 1], "int64", 0), beams)) * _IMPOSSIBLE
        tokens = filled(self.start_token, "int64")
        finished = f.not_equal(tokens, tokens)
        states = _BeamState(
            cell_states=map_variables(lambda x: _tiled(x, beams), initial_cell_states),
            log_probs=filled(0.0, "float32") + reshape(impossible, [1, beams]),
            finished=finished,
            lengths=filled(0, "int64"),
        )
        return self._embedded(tokens), states, finished

    def _embedded(self, ids: Variable) -> Any:
        return ids if self.embedding_fn is None else self.embedding_fn(ids)

    def step(self, time: Variable, inputs: Any, states: Any, **kwargs: Any) -> tuple[_Output, _BeamState, Any, Variable]:
        """Selects the best continuations of all beams of each entry of the batch.

        Args:
            time: number of the step, which is not read.
            inputs: of the cell, ``[batch, beam_size, ...]``.
            states: what the step before returned.
            kwargs: passed to the cell.
        """
        f, beams = ops_here(), self.beam_size
        out, cell_states = self.cell(map_variables(_merged, inputs), map_variables(_merged, states.cell_states), **kwargs)
        if self.output_fn is not None:
            out = self.output_fn(out)
        size = out.shape[-1]
        logs = reshape(f.log_softmax(out), [-1, beams, size])
        # A finished beam continues with the end token, at no cost.
        done = f.unsqueeze2(states.finished.astype("float32"), axes=[2])
        end = reshape(one_hot(fill_constant([1, 1], "int64", self.end_token), size), [1, 1, size])
        logs = logs * (1.0 - done) + done * ((1.0 - end) * _IMPOSSIBLE)
        total = f.unsqueeze2(states.log_probs, axes=[2]) + logs
        scores, indices = topk(reshape(total, [-1, beams * size]), beams)
        indices = indices if indices.dtype is VarType.INT64 else indices.astype("int64")
        vocabulary = fill_constant([1], "int64", size)
        parents, tokens = indices // vocabulary, indices % vocabulary
        # Batch entry and beam of each selected continuation: [batch, beams, 2].
        rows = f.cumsum(f.fill_any_like(parents, value=1.0), axis=0, exclusive=True)
        where = f.stack([rows, parents], axis=2)
        cell_states = map_variables(lambda x: f.gather_nd(_split(x, beams), where), cell_states)
        finished = f.gather_nd(states.finished.astype("int64"), where)
        lengths = f.gather_nd(states.lengths, where) + (1 - finished)
        ended = f.logical_or(finished.astype("bool"), f.equal(tokens, fill_constant([1], "int64", self.end_token)))
        output = _Output(scores, tokens, parents)
        return output, _BeamState(cell_states, scores, ended, lengths), self._embedded(tokens), ended

    @property
    def output_dtype(self) -> Any:
        return _Output("float32", "int64", "int64")  # type: ignore[arg-type]

    def finalize(self, outputs: Any, final_states: Any, sequence_lengths: Variable) -> tuple[Variable, Any]:
        """The ids of each beam, traced back from its last step.

        Args:
            outputs: of all steps.
            final_states: those after the last step.
            sequence_lengths: accepted and ignored; the states have the lengths.
        """
        return ops_here().gather_tree(outputs.predicted_ids, outputs.parent_ids), final_states


def _tiled(x: Variable, beams: int) -> Variable:
    """``[batch, ...]`` repeated to ``[batch, beams, ...]``."""
    tiled: Variable = ops_here().expand(ops_here().unsqueeze2(x, axes=[1]), expand_times=[1, beams, *[1] * (x.ndim - 1)])
    return tiled


def sizes_from(x: Variable, start: int) -> list[int | Variable]:
    """The sizes of the dimensions from `start` on; variables for sizes known only in a run."""
    f = ops_here()
    axes = range(start, x.ndim)
    return [x.shape[i] if x.shape[i] >= 0 else f.slice(f.shape(x), axes=[0], starts=[i], ends=[i + 1]) for i in axes]


def _merged(x: Variable) -> Variable:
    """``[batch, beams, ...]`` as ``[batch * beams, ...]``."""
    if default_main_program().eager:  # sizes would be numbers, and so become fixed where the call is traced
        joined: Variable = ops_here().flatten_contiguous_range(x, start_axis=0, stop_axis=1)
        return joined
    return reshape(x, [-1, *sizes_from(x, 2)])


def _split(x: Variable, beams: int) -> Variable:
    """``[batch * beams, ...]`` as ``[batch, beams, ...]``."""
    return reshape(x, [-1, beams, *sizes_from(x, 1)])


def dynamic_decode(
    decoder: Decoder,
    inits: Any = None,
    max_step_num: int | None = None,
    output_time_major: bool = False,
    impute_finished: bool = False,
    is_test: bool = False,
    return_length: bool = False,
    **kwargs: Any,
) -> Any:
    """Runs a decoder until all sequences are finished, or for ``max_step_num + 1`` steps; see `BeamSearchDecoder`.

    Args:
        decoder: a `BeamSearchDecoder`, a `BasicDecoder`, or another `Decoder`.
        inits: passed to the decoder's `initialize`.
        max_step_num: the number of the last step, from 0 on; by default there is no limit.
        output_time_major: return outputs as ``[time, batch, ...]``, not ``[batch, time, ...]``.
        impute_finished: whether the states of a finished sequence stay as they were when it finished.
        is_test: accepted; whether a program is trained, its backward part says.
        return_length: return, too, how many steps each sequence took, int64.
        kwargs: passed to the decoder's `step`.

    Returns:
        Outputs of all steps and the last states, as returned by the decoder's `finalize`; the lengths, if `return_length`.

    >>> decoder = layers.BeamSearchDecoder(
    ...     layers.GRUCell(32), start_token=0, end_token=1, beam_size=4,
    ...     embedding_fn=lambda ids: fluid.embedding(ids, size=[1000, 16]),
    ...     output_fn=lambda hidden: layers.fc(hidden, 1000),
    ... )
    >>> ids, states = layers.dynamic_decode(decoder, inits=fluid.data("state", [None, 32]), max_step_num=10)
    >>> ids.shape, states.log_probs.shape
    ((-1, -1, 4), (-1, 4))
    """
    inputs, states, finished = decoder.initialize(inits)

    def goes_on(time: Variable, finished: Variable, *_: Any) -> Variable:
        f = ops_here()
        more: Variable = f.logical_not(f.reduce_all(finished, reduce_all=True))
        if max_step_num is not None:
            more = f.logical_and(more, f.less_equal(time, fill_constant([1], "int64", max_step_num)))
        return more

    def body(keep: Any, time: Variable, finished: Variable, lengths: Variable, inputs: Any, states: Any) -> list[Any]:
        f, before, goes_on = ops_here(), states, ops_here().logical_not(finished)
        outputs, states, inputs, ended = decoder.step(time, inputs, states, **kwargs)
        if impute_finished:
            states = map_variables(partial(_held_where, goes_on), before, states)
        lengths = lengths + goes_on.astype("int64")
        keep(outputs, time)
        return [time + 1, f.logical_or(ended, finished), lengths, inputs, states]

    zero = fill_constant([1], "int64", 0)
    lengths = finished.astype("int64")
    lengths = lengths - lengths
    outputs, loop_vars = decode(goes_on, body, [zero, finished, lengths, inputs, states])
    lengths, states = loop_vars[2], loop_vars[4]
    outputs, states = decoder.finalize(outputs, states, lengths)
    outputs = outputs if output_time_major else map_variables(swap_axes, outputs)
    return (outputs, states, lengths) if return_length else (outputs, states)


def _held_where(goes_on: Variable, before: Variable, after: Variable) -> Variable:
    """A state after a step, of any type; rows that do not go on keep the state from before it."""
    dtype = VarType.INT32 if after.dtype is VarType.BOOL else after.dtype
    state: Variable = held(before.astype(dtype), after.astype(dtype), goes_on.astype(dtype)).astype(after.dtype)
    return state


@builds
def decode(goes_on: Callable[..., Variable], body: Callable[..., Any], loop_vars: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """Loops while ``goes_on(*loop_vars)``: the outputs of all steps, ``[time, ...]``, and the last `loop_vars`.

    Args:
        body: ``body(keep, *loop_vars) -> loop_vars``, which calls ``keep(outputs, time)`` once.
    """
    parent = default_main_program().current_block()
    arrays: list[Any] = []

    def collect(value: Variable, time: Variable) -> Variable:
        """Writes an output of each step to an array outside the loop."""
        name = unique_name.generate("dynamic_decode.outputs")
        array = parent.create_var(name=name, type=VarType.LOD_TENSOR_ARRAY, dtype=value.dtype)
        parent.append_op("new_array", {}, {"Out": array}, {"dtype": int(value.dtype)})
        array.shape = value.shape
        stored: Variable = array_write(value, time, array)
        return stored

    def keep(outputs: Any, time: Variable) -> None:
        arrays.append(map_variables(lambda value: collect(value, time), outputs))

    loop_vars = while_loop(goes_on, partial(body, keep), loop_vars)
    return map_variables(lambda array: ops_here().stack_array(array), arrays[0]), loop_vars


# -------------------------------------------------------------------------------------------------- layers of one op
def lstm(
    input: Variable,
    init_h: Variable,
    init_c: Variable,
    max_len: int,
    hidden_size: Positive,
    num_layers: Positive,
    dropout_prob: float = 0.0,
    is_bidirec: bool = False,
    is_test: bool = False,
    name: str | None = None,
    default_initializer: Initializer | None = None,
    seed: int = -1,
) -> tuple[Variable, Variable, Variable]:
    """A stack of LSTM layers over ``input [time, batch, features]``: the op `cudnn_lstm`, with all weights in one parameter.

    Formula: Hochreiter and Schmidhuber, Long Short-Term Memory, 1997; with a forget gate.

    Args:
        input: float ``[time, batch, features]``; the features are known.
        init_h: initial hidden states, ``[num_layers * directions, batch, hidden_size]``.
        init_c: initial cells, of the same shape.
        max_len: accepted and ignored; sequences may have any length.
        hidden_size: features of each state.
        num_layers: number of layers.
        dropout_prob: probability of dropout between layers, unless `is_test`.
        is_bidirec: whether each layer runs in both directions, which are two then.
        is_test: whether nothing is dropped; `Program.clone` with ``for_test=True`` sets it.
        default_initializer: of the weights; by default Xavier's.
        seed: of the dropout, the same in every run; -1 and 0 draw new numbers.

    Returns:
        Outputs ``[time, batch, directions * hidden_size]`` and both states after the last step.

    >>> words = fluid.data("words", [20, 8, 16])
    >>> state = layers.zeros([2, 8, 32], "float32")
    >>> output, last_h, last_c = layers.lstm(words, state, state, max_len=20, hidden_size=32, num_layers=2)
    >>> output.shape, last_h.shape
    ((20, 8, 32), (2, 8, 32))
    """
    helper = LayerHelper("cudnn_lstm", name)
    check_variable(input, "lstm: input")
    features, directions = extent(input, -1, "input"), 1 + bool(is_bidirec)
    widths = [features, *[directions * hidden_size] * (num_layers - 1)]
    size = sum(4 * hidden_size * (width + hidden_size + 2) * directions for width in widths)
    weight = helper.create_parameter(None, [size], input.dtype, default_initializer=default_initializer)
    attrs: dict[str, Any] = {"hidden_size": hidden_size, "num_layers": num_layers, "input_size": features}
    attrs |= {"is_bidirec": is_bidirec, "dropout_prob": dropout_prob, "is_test": is_test, "seed": max(seed, 0)}
    outputs = helper.apply("cudnn_lstm", {"Input": input, "InitH": init_h, "InitC": init_c, "W": weight}, attrs)
    return outputs["Out"], outputs["LastH"], outputs["LastC"]


def lstm_unit(
    x_t: Variable,
    hidden_t_prev: Variable,
    cell_t_prev: Variable,
    forget_bias: float = 0.0,
    param_attr: AttrLike = None,
    bias_attr: AttrLike = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """One step of an LSTM, an `fc` of input and hidden state and the op `lstm_unit`.

    It computes ``c' = sigmoid(f + forget_bias) c + sigmoid(i) tanh(g)`` and ``h' = sigmoid(o) tanh(c')``.

    Args:
        x_t: ``[batch, features]``, float.
        hidden_t_prev: the hidden state before, ``[batch, size]``.
        cell_t_prev: the cell before, ``[batch, size]``.
        forget_bias: added to the forget gate.
        param_attr: attributes of the weights, ``[features + size, 4 * size]``: of i, f, o and g.
        bias_attr: attributes of the bias, ``[4 * size]``; False for none.

    Returns:
        The new hidden state and cell, ``[batch, size]``.

    Raises:
        ProgramError: if an input does not have two dimensions.

    >>> x, hidden, cell = (fluid.data(name, [None, 32]) for name in ("x", "hidden", "cell"))
    >>> hidden, cell = layers.lstm_unit(x, hidden, cell)
    >>> hidden.shape, cell.shape
    ((-1, 32), (-1, 32))
    """
    for argument, var in (("x_t", x_t), ("hidden_t_prev", hidden_t_prev), ("cell_t_prev", cell_t_prev)):
        check_variable(var, f"lstm_unit: {argument}")
        if var.ndim != 2:
            raise ProgramError(f"lstm_unit: {argument} should be [batch, features]; {var.name} is {var.describe()}")
    helper = LayerHelper("lstm_unit", name)
    joined = ops_here().concat([x_t, hidden_t_prev], axis=1)
    gates = fc(joined, 4 * cell_t_prev.shape[1], param_attr=param_attr, bias_attr=bias_attr)
    outputs = helper.apply("lstm_unit", {"X": gates, "C_prev": cell_t_prev}, {"forget_bias": forget_bias})
    return outputs["H"], outputs["C"]


def gru_unit(
    input: Variable,
    hidden: Variable,
    size: int,
    param_attr: AttrLike = None,
    bias_attr: AttrLike = None,
    activation: str = "tanh",
    gate_activation: str = "sigmoid",
    origin_mode: bool = False,
) -> tuple[Variable, Variable, Variable]:
    """One step of a GRU, the op `gru_unit`: the new hidden state, ``r * hidden``, and the gates.

    The state is ``u c + (1 - u) h`` of ``u, r = gate(x_u + h W_u), gate(x_r + h W_r)`` and ``c = activation(x_c + (r h) W_c)``.

    Formula: Chung et al., Empirical Evaluation of Gated Recurrent Neural Networks on Sequence Modeling, 2014.

    Args:
        input: ``[batch, size]``: x_u, x_r and x_c side by side.
        hidden: the state before, ``[batch, size / 3]``.
        size: three times the number of features of the state.
        param_attr: attributes of the weights, ``[size / 3, size]``.
        bias_attr: attributes of the bias, ``[1, size]``, which is added to `input`; False for none.
        activation: activation of the candidate: identity, sigmoid, tanh or relu.
        gate_activation: activation of the gates.
        origin_mode: whether the state is ``u h + (1 - u) c`` instead.

    Raises:
        ProgramError: if `size` is no multiple of 3.
        FluidTypeError: for another activation.

    >>> x, hidden = fluid.data("x", [None, 16]), fluid.data("hidden", [None, 32])
    >>> hidden, reset_hidden, gates = layers.gru_unit(layers.fc(x, 96), hidden, size=96)
    >>> hidden.shape, gates.shape
    ((-1, 32), (-1, 96))
    """
    if size < 3 or size % 3:
        raise ProgramError(f"gru_unit: size should be a multiple of 3, the features of two gates and the candidate, not {size}")
    helper = LayerHelper("gru_unit", None, param_attr, bias_attr)
    numbers = {name or "identity": number for number, name in enumerate(ACTIVATIONS)}
    for argument, value in (("activation", activation), ("gate_activation", gate_activation)):
        if value not in numbers:
            raise FluidTypeError(f"gru_unit: {argument} should be one of {', '.join(numbers)}, not {value!r}")
    inputs = {"Input": input, "HiddenPrev": hidden, **_weights(helper, input, size // 3, 3, size // 3, size)}
    attrs = {"activation": numbers[activation], "gate_activation": numbers[gate_activation], "origin_mode": origin_mode}
    outputs = helper.apply("gru_unit", inputs, attrs, also=("ResetHiddenPrev", "Gate"))
    return outputs["Hidden"], outputs["ResetHiddenPrev"], outputs["Gate"]


def _weights(helper: LayerHelper, input: Variable, size: int, blocks: int, rows: int, bias: int) -> dict[str, Any]:
    """The inputs Weight ``[rows, blocks * size]`` and, unless `bias_attr` is False, Bias ``[1, bias]``."""
    check_variable(input, f"{helper.layer_type}: input")
    weights = {"Weight": helper.create_parameter(helper.param_attr, [rows, blocks * size], input.dtype)}
    if helper.bias_attr is not False:
        weights["Bias"] = helper.create_parameter(helper.bias_attr, [1, bias], input.dtype, is_bias=True)
    return weights


def dynamic_lstm(
    input: Variable,
    size: int,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    param_attr: AttrLike = None,
    bias_attr: AttrLike = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    dtype: DTypeLike = "float32",
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """An LSTM over sequences of different lengths, the op `lstm`: hidden states and cells, ``[rows, size / 4]``.

    Formula: Hochreiter and Schmidhuber, Long Short-Term Memory, 1997; with a forget gate and, by default, peepholes.

    Args:
        input: sequences of rows ``[rows, size]``: the candidate and the gates i, f and o side by side, usually the result of
            `fc`.
        size: four times the number of features.
        h_0: initial hidden states, ``[sequences, size / 4]``; zeros by default.
        c_0: initial cells, ``[sequences, size / 4]``; zeros by default.
        param_attr: attributes of the weights, ``[size / 4, size]``.
        bias_attr: attributes of the bias, ``[1, size]``, or ``[1, 7 * size / 4]`` with peepholes; it cannot be False.
        use_peepholes: whether gates also see the cells.
        is_reverse: whether to run from the last row of each sequence to the first.
        gate_activation: activation of the gates: sigmoid, tanh, relu or identity.
        cell_activation: activation of the cell, in the hidden state.
        candidate_activation: activation of the candidate.
        dtype: accepted and ignored; `input` decides it.

    Raises:
        ProgramError: if `size` is no multiple of 4, or `bias_attr` is False.

    >>> words = fluid.data("words", [None, 16], lod_level=1)
    >>> hidden, cell = layers.dynamic_lstm(layers.fc(words, 128, bias_attr=False), size=128)
    >>> hidden.shape
    (-1, 32)
    """
    inputs, attrs, helper = _lstm_of("lstm", input, size, size // 4, name, param_attr, bias_attr, use_peepholes)
    attrs |= {"is_reverse": is_reverse, "gate_activation": gate_activation}
    attrs |= {"cell_activation": cell_activation, "candidate_activation": candidate_activation}
    outputs = helper.apply("lstm", {**inputs, "H0": h_0, "C0": c_0}, attrs)
    return outputs["Hidden"], outputs["Cell"]


def _lstm_of(
    layer: str,
    input: Variable,
    size: int,
    recurrent_size: int,
    name: str | None,
    param_attr: AttrLike,
    bias_attr: AttrLike,
    peepholes: bool,
) -> tuple[dict[str, Any], dict[str, Any], LayerHelper]:
    """Inputs, first attributes and helper of an LSTM over sequences that feeds back `recurrent_size` features."""
    if size < 4 or size % 4:
        raise ProgramError(
            f"dynamic_{layer}: size should be a multiple of 4, the features of the four gates together, not {size}"
        )
    helper = LayerHelper(layer, name, param_attr, bias_attr)
    if helper.bias_attr is False:
        raise ProgramError(f"dynamic_{layer} needs a bias: bias_attr cannot be False")
    weights = _weights(helper, input, size // 4, 4, recurrent_size, (7 if peepholes else 4) * (size // 4))
    return {"Input": input, **weights}, {"use_peepholes": peepholes}, helper


def dynamic_lstmp(
    input: Variable,
    size: int,
    proj_size: Positive,
    param_attr: AttrLike = None,
    bias_attr: AttrLike = None,
    use_peepholes: bool = True,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    candidate_activation: str = "tanh",
    proj_activation: str = "tanh",
    dtype: DTypeLike = "float32",
    name: str | None = None,
    h_0: Variable | None = None,
    c_0: Variable | None = None,
    cell_clip: float | None = None,
    proj_clip: float | None = None,
) -> tuple[Variable, Variable]:
    """`dynamic_lstm` that feeds back a projection of its hidden state, the op `lstmp`.

    Formula: Sak, Senior and Beaufays, Long Short-Term Memory Recurrent Neural Network Architectures for Large Scale Acoustic
    Modeling, 2014.

    Args:
        input: as in `dynamic_lstm`.
        size: four times the number of features of a cell.
        proj_size: number of features of the projection.
        param_attr: attributes of the weights; ``_proj`` is appended to a name for the weights of the projection.
        bias_attr, use_peepholes, is_reverse: as in `dynamic_lstm`.
        gate_activation, cell_activation, candidate_activation: as in `dynamic_lstm`.
        proj_activation: activation of the projection: sigmoid, tanh, relu or identity.
        dtype: accepted and ignored; `input` decides it.
        h_0: the initial projection, ``[sequences, proj_size]``; zeros by default.
        c_0: the initial cells, ``[sequences, size / 4]``; zeros by default.
        cell_clip: limit of the absolute values of cells; None for no limit.
        proj_clip: limit of the absolute values of projections; None for no limit.

    Returns:
        Projections ``[rows, proj_size]`` and cells ``[rows, size / 4]``.

    Raises:
        ProgramError: if `size` is no multiple of 4, or `bias_attr` is False.

    >>> words = fluid.data("words", [None, 16], lod_level=1)
    >>> projection, cell = layers.dynamic_lstmp(layers.fc(words, 128, bias_attr=False), size=128, proj_size=8)
    >>> projection.shape, cell.shape
    ((-1, 8), (-1, 32))
    """
    inputs, attrs, helper = _lstm_of("lstmp", input, size, proj_size, name, param_attr, bias_attr, use_peepholes)
    attr = CellParameters._attr(helper.param_attr, "proj")
    inputs["ProjWeight"] = helper.create_parameter(attr, [size // 4, proj_size], input.dtype)
    attrs |= {"is_reverse": is_reverse, "gate_activation": gate_activation, "proj_activation": proj_activation}
    attrs |= {"cell_activation": cell_activation, "candidate_activation": candidate_activation}
    attrs |= {"cell_clip": cell_clip or 0.0, "proj_clip": proj_clip or 0.0}
    outputs = helper.apply("lstmp", {**inputs, "H0": h_0, "C0": c_0}, attrs)
    return outputs["Projection"], outputs["Cell"]


def dynamic_gru(
    input: Variable,
    size: Positive,
    param_attr: AttrLike = None,
    bias_attr: AttrLike = None,
    is_reverse: bool = False,
    gate_activation: str = "sigmoid",
    candidate_activation: str = "tanh",
    h_0: Variable | None = None,
    origin_mode: bool = False,
) -> Variable:
    """A GRU over sequences of different lengths, the op `gru`: hidden states ``[rows, size]``.

    Each row is a step of `gru_unit`.

    Args:
        input: sequences of rows ``[rows, 3 * size]``: two gates and the candidate side by side.
        size: number of features of the state.
        param_attr: attributes of the weights, ``[size, 3 * size]``.
        bias_attr: attributes of the bias, ``[1, 3 * size]``; False for none.
        is_reverse: whether to run from the last row of each sequence to the first.
        gate_activation: activation of the gates: sigmoid, tanh, relu or identity.
        candidate_activation: activation of the candidate.
        h_0: initial states, ``[sequences, size]``; zeros by default.
        origin_mode: as in `gru_unit`.

    >>> words = fluid.data("words", [None, 16], lod_level=1)
    >>> layers.dynamic_gru(layers.fc(words, 96), size=32).shape
    (-1, 32)
    """
    helper = LayerHelper("gru", None, param_attr, bias_attr)
    inputs = {"Input": input, "H0": h_0, **_weights(helper, input, size, 3, size, 3 * size)}
    attrs = {"is_reverse": is_reverse, "gate_activation": gate_activation}
    attrs |= {"activation": candidate_activation, "origin_mode": origin_mode}
    hidden: Variable = helper.apply("gru", inputs, attrs)["Hidden"]
    return hidden

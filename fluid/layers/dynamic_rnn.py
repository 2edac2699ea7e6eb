"""Recurrence over sequences of different lengths, and branches taken row by row."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from ..building.layer_helper import LayerHelper, apply, apply_many, refuse_tensor
from ..errors import ProgramError
from ..ir.checked import check_variable
from ..ir.program import Block, Variable
from ..values.types import DTypeLike, VarType
from . import ops
from .control_flow import While, array_read, array_write, create_array, increment
from .tensor import constant, fill_constant, fill_constant_batch_size_like

__all__ = [
    "DynamicRNN",
    "IfElse",
    "array_to_lod_tensor",
    "lod_rank_table",
    "lod_tensor_to_array",
    "max_sequence_len",
    "merge_lod_tensor",
    "reorder_lod_tensor_by_rank",
    "shrink_memory",
    "split_lod_tensor",
]


def lod_rank_table(x: Variable, level: int = 0) -> Variable:
    """A table of the sequences in `x`'s level `level`, from the longest to the shortest.

    Args:
        x: rows of sequences (``lod_level`` above 0).
        level: which level of sequences, 0 being the outermost.

    >>> words = fluid.data("words", [None, 16], lod_level=1)
    >>> table = layers.lod_rank_table(words)
    >>> layers.reorder_lod_tensor_by_rank(words, table).shape
    (-1, 16)
    """
    helper = LayerHelper("lod_rank_table")
    table = helper.create_variable(name=helper.name + ".table", type=VarType.LOD_RANK_TABLE, stop_gradient=True)
    helper.apply("lod_rank_table", {"X": x}, {"level": level}, {"Out": table})
    return table


def max_sequence_len(rank_table: Variable) -> Variable:
    """The length of the longest sequence in the table: int64 of shape [1].

    Args:
        rank_table: what `lod_rank_table` returned.

    >>> words = fluid.create_lod_tensor(np.ones((5, 1), "float32"), [[2, 3]], fluid.CPUPlace())
    >>> table = layers.lod_rank_table(fluid.data("words", [None, 1], lod_level=1))
    >>> fluid.Executor().run(feed={"words": words}, fetch_list=[layers.max_sequence_len(table)])
    [array([3])]
    """
    return constant(apply("max_sequence_len", {"RankTable": rank_table}))


def lod_tensor_to_array(x: Variable, table: Variable) -> Variable:
    """An array of time steps: entry i has row i of every sequence of `x` longer than i, in the order of the table.

    Args:
        x: rows of sequences.
        table: what `lod_rank_table` returned.

    >>> words = fluid.create_lod_tensor(np.array([[1], [2], [3], [4], [5]]), [[2, 3]], fluid.CPUPlace())
    >>> x = fluid.data("words", [None, 1], "int64", lod_level=1)
    >>> steps = layers.lod_tensor_to_array(x, layers.lod_rank_table(x))
    >>> first = layers.array_read(steps, layers.fill_constant([1], "int64", 0))
    >>> fluid.Executor().run(feed={"words": words}, fetch_list=[first])
    [array([[3],
           [1]])]
    """
    helper = LayerHelper("lod_tensor_to_array")
    array = helper.create_variable(name=helper.name + ".out", type=VarType.LOD_TENSOR_ARRAY, dtype=x.dtype)
    helper.apply("lod_tensor_to_array", {"X": x, "RankTable": table}, outputs={"Out": array})
    return array


def array_to_lod_tensor(x: Variable, table: Variable) -> Variable:
    """The sequences whose steps are in the array `x`: the inverse of `lod_tensor_to_array`.

    Args:
        x: what `lod_tensor_to_array` returned, or an array like it.
        table: the table that its order is of.

    >>> words = fluid.create_lod_tensor(np.array([[1], [2], [3], [4], [5]]), [[2, 3]], fluid.CPUPlace())
    >>> x = fluid.data("words", [None, 1], "int64", lod_level=1)
    >>> table = layers.lod_rank_table(x)
    >>> again = layers.array_to_lod_tensor(layers.lod_tensor_to_array(x, table), table)
    >>> fluid.Executor().run(feed={"words": words}, fetch_list=[again], return_numpy=False)[0].recursive_sequence_lengths()
    [[2, 3]]
    """
    return apply("array_to_lod_tensor", {"X": x, "RankTable": table})


def shrink_memory(x: Variable, i: Variable, table: Variable) -> Variable:
    """The rows of `x` (one for each sequence, in the order of the table) whose sequences have a step `i`.

    Args:
        x: one row for each sequence, in the order of the table.
        i: one int64, the number of the step.
        table: what `lod_rank_table` returned.

    >>> words = fluid.create_lod_tensor(np.ones((5, 1), "float32"), [[2, 3]], fluid.CPUPlace())
    >>> table = layers.lod_rank_table(fluid.data("words", [None, 1], lod_level=1))
    >>> states = layers.assign(np.array([[1.0], [2.0]], "float32"))
    >>> left = layers.shrink_memory(states, layers.fill_constant([1], "int64", 2), table)
    >>> fluid.Executor().run(feed={"words": words}, fetch_list=[left])
    [array([[1.]], dtype=float32)]
    """
    return apply("shrink_rnn_memory", {"X": x, "I": i, "RankTable": table}, layer="shrink_memory")


def reorder_lod_tensor_by_rank(x: Variable, rank_table: Variable) -> Variable:
    """The sequences (or rows, if it has none) of `x` in the order of the table.

    Args:
        x: sequences, or rows, one for each entry of the table.
        rank_table: what `lod_rank_table` returned.

    >>> words = fluid.create_lod_tensor(np.array([[1], [2], [3], [4], [5]]), [[2, 3]], fluid.CPUPlace())
    >>> x = fluid.data("words", [None, 1], "int64", lod_level=1)
    >>> ordered = layers.reorder_lod_tensor_by_rank(x, layers.lod_rank_table(x))
    >>> fluid.Executor().run(feed={"words": words}, fetch_list=[ordered])[0].ravel()
    array([3, 4, 5, 1, 2])
    """
    return apply("reorder_lod_tensor_by_rank", {"X": x, "RankTable": rank_table})


def split_lod_tensor(input: Variable, mask: Variable, level: int = 0) -> tuple[Variable, Variable]:
    """The rows (or sequences) of `input` where `mask`, bool ``[rows, 1]``, is true, and those where it is false.

    Args:
        input: rows, or sequences of rows.
        mask: one bool for each row, or each sequence of `level`.
        level: which level of sequences; without sequences it has no effect.

    >>> x, mask = fluid.data("x", [None, 16]), fluid.data("mask", [None, 1], "bool")
    >>> true, false = layers.split_lod_tensor(x, mask)
    >>> layers.merge_lod_tensor(true, false, x, mask).shape
    (-1, 16)
    """
    true, false = apply_many("split_lod_tensor", {"X": input, "Mask": mask}, {"level": level})
    return true, false


def merge_lod_tensor(in_true: Variable, in_false: Variable, x: Variable, mask: Variable, level: int = 0) -> Variable:
    """The rows of `in_true` and `in_false` in the order given by `mask`: the inverse of `split_lod_tensor`.

    Args:
        in_true, in_false: the results of `split_lod_tensor`, or values computed from them.
        x: the tensor that was split; only its sequences are read.
        mask, level: as given to `split_lod_tensor`.

    >>> x = layers.assign(np.array([[1.0], [2.0], [3.0]], "float32"))
    >>> mask = layers.logical_not(layers.cast(x - 2.0, "bool"))
    >>> true, false = layers.split_lod_tensor(x, mask)
    >>> fluid.Executor().run(fetch_list=[layers.merge_lod_tensor(true * 10.0, false, x, mask)])[0].ravel()
    array([ 1., 20.,  3.], dtype=float32)
    """
    return apply("merge_lod_tensor", {"X": x, "Mask": mask, "InTrue": in_true, "InFalse": in_false}, {"level": level})


_BY_MASK = "Python's if, or choose rows: layers.gather of where(cond), and layers.scatter to put them back"
_ON_TENSORS = "dygraph.LSTM or GRU with sequence_length, or layers.rnn with a cell"


class DynamicRNN:
    """A recurrence over sequences of different lengths, without padding.

    A step works on one row of each sequence, from the longest to the shortest; as sequences end, steps have fewer rows.

    >>> embedded = fluid.data("embedded", [None, 64], lod_level=1)
    >>> rnn = layers.DynamicRNN()
    >>> with rnn.block():
    ...     word = rnn.step_input(embedded)
    ...     before = rnn.memory(shape=[200])
    ...     after = layers.fc([word, before], 200, act="tanh")
    ...     rnn.update_memory(before, after)
    ...     rnn.output(after)
    >>> layers.sequence_last_step(rnn()).shape
    (-1, 200)
    """

    def __init__(self, name: str | None = None) -> None:
        self.helper = LayerHelper("dynamic_rnn", name)
        self.lod_rank_table: Variable | None = None
        self.max_seq_len: Variable | None = None
        self.step_idx: Variable | None = None
        self.cond: Variable | None = None
        self.outputs: list[Variable] = []
        self._inputs: list[Variable] = []
        self._output_arrays: list[Variable] = []
        self._memories: dict[str, Variable] = {}
        """Name of a memory in the block -> array of its values."""
        self._updates: list[tuple[Variable, Variable]] = []
        self._zero: Variable | None = None
        self._outside: Block | None = None
        self._state = "before"

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """Layers in the ``with`` append to the step."""
        if self._state != "before":
            raise ProgramError("DynamicRNN.block() can be entered only once")
        program = self.helper.main_program
        self._outside = program.current_block()
        self._zero = fill_constant([1], "int64", 0)
        refuse_tensor(self._zero, "DynamicRNN", _ON_TENSORS)
        self.step_idx = fill_constant([1], "int64", 0)
        self.step_idx.stop_gradient = True
        self.cond = self.helper.create_variable(name=self.helper.name + ".cond", dtype="bool", shape=[1], stop_gradient=True)
        loop = While(self.cond)
        self._state = "inside"
        with loop.block():
            yield
            if self.max_seq_len is None:
                raise ProgramError("DynamicRNN: the block has no step_input, so the number of steps is not known")
            missing = [name for name in self._memories if name not in {memory.name for memory, _ in self._updates}]
            if missing:
                raise ProgramError(f"DynamicRNN: the memory {missing[0]} is never updated; call update_memory in the block")
            increment(self.step_idx, 1.0)
            for memory, new in self._updates:
                array_write(new, self.step_idx, self._memories[memory.name])
            ops.less_than(self.step_idx, self.max_seq_len, cond=self.cond)
        self._state = "after"
        assert self.lod_rank_table is not None
        self.outputs = [array_to_lod_tensor(array, self.lod_rank_table) for array in self._output_arrays]

    def _check_inside(self, method: str) -> None:
        if self._state != "inside":
            raise ProgramError(f"DynamicRNN.{method} must be called in the block of the recurrence: with rnn.block(): ...")

    @contextlib.contextmanager
    def _outside_block(self) -> Iterator[None]:
        assert self._outside is not None
        with self.helper.main_program.block_guard(self._outside):
            yield

    def step_input(self, x: Variable, level: int = 0) -> Variable:
        """The current step's rows of the sequences in `x`. The first call fixes the sequences: at level `level`.

        Args:
            x: rows of sequences; all inputs have the same number of sequences, of the same lengths.
            level: which level of sequences, 0 being the outermost.
        """
        self._check_inside("step_input")
        check_variable(x, "DynamicRNN.step_input: x")
        refuse_tensor(x, "DynamicRNN", _ON_TENSORS)
        if not x.lod_level:
            raise ProgramError(f"DynamicRNN.step_input: {x.name} ({x.describe()}) should hold sequences (lod_level > 0)")
        with self._outside_block():
            if self.lod_rank_table is None:
                self.lod_rank_table = lod_rank_table(x, level)
                self.max_seq_len = max_sequence_len(self.lod_rank_table)
                ops.less_than(self.step_idx, self.max_seq_len, cond=self.cond)  # type: ignore[arg-type]
            array = lod_tensor_to_array(x, self.lod_rank_table)
        self._inputs.append(array)
        return array_read(array, self.step_idx)  # type: ignore[arg-type]

    def static_input(self, x: Variable) -> Variable:
        """The rows (or sequences) of `x`, one for each sequence of the step input, whose sequences have this step.

        Args:
            x: rows or sequences of rows.
        """
        self._check_inside("static_input")
        check_variable(x, "DynamicRNN.static_input: x")
        if self.lod_rank_table is None:
            raise ProgramError("DynamicRNN.static_input must be called after step_input, which fixes the order of the sequences")
        with self._outside_block():
            ordered = reorder_lod_tensor_by_rank(x, self.lod_rank_table)
        return shrink_memory(ordered, self.step_idx, self.lod_rank_table)  # type: ignore[arg-type]

    def memory(
        self,
        init: Variable | None = None,
        shape: Sequence[int] | None = None,
        value: float = 0.0,
        need_reorder: bool = False,
        dtype: DTypeLike = "float32",
    ) -> Variable:
        """A variable that in each step holds what `update_memory` assigned to it in the step before, a row for each sequence.

        Args:
            init: the first value, with a row for each sequence.
            shape: shape of a row of the first value, if `init` is None.
            value: what such rows are filled with.
            need_reorder: whether the rows of `init` are in the order of the sequences, rather than from the longest to the
                shortest.
            dtype: element type of such rows.
        """
        self._check_inside("memory")
        if self.lod_rank_table is None or self.step_idx is None or self._zero is None:
            raise ProgramError("DynamicRNN.memory must be called after step_input, which fixes the number of sequences")
        if init is None and shape is None:
            raise ProgramError("DynamicRNN.memory: give init, or the shape of a row")
        with self._outside_block():
            if init is None:
                first = array_read(self._inputs[0], self._zero)
                assert shape is not None
                init = fill_constant_batch_size_like(first, [-1, *shape], dtype, value)
            elif need_reorder:
                init = reorder_lod_tensor_by_rank(init, self.lod_rank_table)
            array = array_write(init, self._zero)
        memory = shrink_memory(array_read(array, self.step_idx), self.step_idx, self.lod_rank_table)
        self._memories[memory.name] = array
        return memory

    def update_memory(self, ex_mem: Variable, new_mem: Variable) -> None:
        """Makes the memory `ex_mem` hold `new_mem` in the next step.

        Args:
            ex_mem: what `memory` returned.
            new_mem: a variable of the step, with the same number of rows.
        """
        self._check_inside("update_memory")
        if not isinstance(ex_mem, Variable) or ex_mem.name not in self._memories:
            raise ProgramError("DynamicRNN.update_memory: ex_mem should be a result of memory()")
        check_variable(new_mem, "DynamicRNN.update_memory: new_mem")
        self._updates.append((ex_mem, new_mem))

    def output(self, *outputs: Variable) -> None:
        """Adds outputs: the rows of each variable in every step.

        Args:
            outputs: variables of the step, with a row for each of its sequences.
        """
        self._check_inside("output")
        for var in outputs:
            check_variable(var, "DynamicRNN.output")
            with self._outside_block():
                array = create_array(var.dtype)
            array_write(var, self.step_idx, array)  # type: ignore[arg-type]
            self._output_arrays.append(array)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs, in sequences like the first step input: one variable, or a list.

        Args:
            args, kwargs: accepted and ignored.
        """
        if self._state != "after":
            raise ProgramError("the outputs of a DynamicRNN are available after its block")
        return self.outputs[0] if len(self.outputs) == 1 else self.outputs


class IfElse:
    """Two branches, one for the rows of a batch where `cond` is true, the other for those where it is false.

    Args:
        cond: bool ``[rows, 1]``.

    >>> x = fluid.data("x", [None, 1])
    >>> branches = layers.IfElse(x < 0.0)
    >>> with branches.true_block():
    ...     branches.output(layers.scale(branches.input(x), -1.0))
    >>> with branches.false_block():
    ...     branches.output(branches.input(x))
    >>> fluid.Executor().run(feed={"x": np.array([[-1.0], [2.0]], "float32")}, fetch_list=branches())
    [array([[1.],
           [2.]], dtype=float32)]
    """

    def __init__(self, cond: Variable, name: str | None = None) -> None:
        check_variable(cond, "IfElse: cond")
        refuse_tensor(cond, "IfElse", _BY_MASK)
        if cond.dtype is not VarType.BOOL:
            raise ProgramError(f"IfElse: cond should be bool [rows, 1]; {cond.name} is {cond.describe()}")
        self.helper = LayerHelper("ifelse", name)
        self.cond = cond
        self._parts: dict[str, tuple[Variable, Variable]] = {}
        self._outputs: dict[bool, list[Variable]] = {}
        self._branch: bool | None = None

    @contextlib.contextmanager
    def _block(self, branch: bool) -> Iterator[None]:
        if self._branch is not None:
            raise ProgramError("IfElse: a block cannot be entered inside the other")
        if branch in self._outputs:
            raise ProgramError(f"IfElse: the {str(branch).lower()}_block has been built already")
        self._branch, self._outputs[branch] = branch, []
        try:
            yield
        finally:
            self._branch = None
        if not self._outputs[branch]:
            raise ProgramError(f"IfElse: the {str(branch).lower()}_block has no output; call ie.output(...) in it")

    def true_block(self) -> Any:
        """Layers in the ``with`` work on the rows where the condition is true."""
        return self._block(True)

    def false_block(self) -> Any:
        """Layers in the ``with`` work on the rows where the condition is false."""
        return self._block(False)

    def input(self, x: Variable) -> Variable:
        """The rows of `x` that belong to this branch.

        Args:
            x: a variable with one row for each row of the condition.
        """
        if self._branch is None:
            raise ProgramError("IfElse.input must be called in true_block or false_block")
        if x.name not in self._parts:
            self._parts[x.name] = split_lod_tensor(x, self.cond)
        return self._parts[x.name][0 if self._branch else 1]

    def output(self, *outs: Variable) -> None:
        """Adds outputs of the branch for its rows.

        Args:
            outs: variables of the branch; both branches have the same number.
        """
        if self._branch is None:
            raise ProgramError("IfElse.output must be called in true_block or false_block")
        for var in outs:
            check_variable(var, "IfElse.output")
        self._outputs[self._branch] += outs

    def __call__(self) -> list[Variable]:
        """The outputs of both branches, merged in the order of the rows."""
        true, false = self._outputs.get(True), self._outputs.get(False)
        if true is None or false is None or self._branch is not None:
            raise ProgramError("the outputs of an IfElse are available after both blocks")
        if len(true) != len(false):
            raise ProgramError(f"IfElse: the true_block has {len(true)} outputs, but the false_block has {len(false)}")
        return [merge_lod_tensor(*pair, pair[0], self.cond) for pair in zip(true, false, strict=True)]

"""Compute large matrices between two products block by block, as in attention over long sequences.

Attention multiplies queries by keys, normalizes each row of the scores, and multiplies by values. The scores of long sequences
are larger than the caches, and each op passes over them. So these ops give way to a recurrence over the stack of matrices, whose
step computes a matrix in blocks of rows. The gradient of the recurrence takes the place of their gradients.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from fluid.autodiff.reverse import Differentiator
from fluid.ir.copying import copy_op, copy_with_ops
from fluid.ir.nesting import declares_inside
from fluid.ir.program import Operator, Program
from fluid.ir.versions import BlockVersions, Value, values_in
from fluid.opdef.registry import EMPTY, grad_slot
from fluid.values.spec import Spec
from fluid.values.types import VarType, is_floating

from .op_inserter import OpInserter

__all__ = ["has_blocked_rows", "with_blocked_rows"]

_PREFIX = "blocks."
"""Prefix of the names of new variables."""
_FEWEST_BYTES = 4 << 20
"""The least bytes of scores that are worth it: twice the second cache of most processors."""
_FEWEST_MATRIX_BYTES = 32 << 10
"""The least bytes of a matrix of the scores."""
_BLOCK_BYTES = 3 << 18
"""The most bytes of a block: about a third of that cache, as gradients pass over three blocks."""
_MOST_BLOCKS = 32
"""The most blocks of rows of a matrix: each has ops of its own."""
_TRANSPOSES = {"matmul": ("transpose_X", "transpose_Y"), "matmul_v2": ("trans_x", "trans_y")}
"""Type of a product -> its attributes that transpose a matrix."""
_ARITHMETIC = frozenset({"elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_div"})


def with_blocked_rows(
    program: Program, versions: BlockVersions, specs: Mapping[Value, Spec], fetches: Collection[str]
) -> Program | None:
    """Copy a program, and compute large matrices between two products in blocks of rows; None without such matrices in block 0.

    Args:
        versions: the values of the ops that run.
        specs: the specs of values, as far as they are known.
        fetches: the names that a run returns.
    """
    chains = [*_ChainFinder(versions, specs, fetches).chains()]
    if not chains:
        return None
    copy, copies = copy_with_ops(program)
    for chain in chains:
        _BlockWriter(chain.in_copy(copies)).rewrite()
    return copy


def has_blocked_rows(op: Operator) -> bool:
    """Whether an op owns a block that computes a block of rows."""
    return declares_inside(op, _PREFIX)


# ------------------------------------------------------------------------------------------------------------ finding
@dataclass(frozen=True)
class _AttentionChain:
    """A product, ops on its rows, and a second product, which reads their result. It has all their gradients, or none.

    Attributes:
        ops: the forward ops, in order.
        gradients: the gradient ops, in order.
        specs: name -> the spec of each value that the forward ops read or write.
    """

    ops: list[Operator]
    gradients: list[Operator]
    specs: dict[str, Spec]

    def in_copy(self, copies: Mapping[Operator, Operator]) -> _AttentionChain:
        """The chain in a copy of the program; `copies` has the copy of each op."""
        return replace(self, ops=[copies[op] for op in self.ops], gradients=[copies[op] for op in self.gradients])

    @property
    def scores(self) -> Spec:
        """The spec of the first product."""
        return self.specs[self.ops[0].output("Out")[0]]


class _ChainFinder:
    """Finds the chains of a block."""

    def __init__(self, versions: BlockVersions, specs: Mapping[Value, Spec], fetches: Collection[str]) -> None:
        self._versions, self._specs = versions, specs
        self._fetched = {versions.current(name) for name in fetches}

    @cached_property
    def _readers(self) -> dict[Value, list[int]]:
        """Value -> the ops that read it."""
        readers: dict[Value, list[int]] = {}
        for index, reads in enumerate(self._versions.reads):
            for value in {*values_in(reads)}:
                readers.setdefault(value, []).append(index)
        return readers

    def chains(self) -> Iterator[_AttentionChain]:
        """All chains of large matrices; no two of them share an op."""
        in_chains = set[Operator]()
        for index, op in enumerate(self._versions.ops):
            if op.type in _TRANSPOSES and self._is_large(index):
                chain = self._find_chain(index)
                if chain is not None and in_chains.isdisjoint(chain.ops):
                    in_chains.update(chain.ops)
                    yield chain

    def _is_large(self, index: int) -> bool:
        """Whether a product of rows is large, and in more than one block."""
        spec = self._spec(index, "Out")
        if spec is None or len(spec.shape) < 2 or not is_floating(spec.dtype) or spec.nbytes < _FEWEST_BYTES:
            return False
        return spec.nbytes >= _FEWEST_MATRIX_BYTES * prod(spec.shape[:-2]) and prod(_count_blocks(spec)) > 1

    def _has_large_matrices(self, index: int) -> bool:
        """Whether each matrix of a product is large. Predictions gain little by blocks of smaller ones, and lose their record."""
        spec = self._spec(index, "Out")
        return spec is not None and spec.nbytes >= _FEWEST_BYTES * prod(spec.shape[:-2])

    def _spec(self, index: int, slot: str) -> Spec | None:
        """The spec of an op's only input or output in a slot."""
        value = self._value(index, slot)
        return None if value is None else self._specs.get(value)

    def _value(self, index: int, slot: str) -> Value | None:
        """An op's only input or output in a slot."""
        values = self._versions.reads[index].get(slot) or self._versions.writes[index].get(slot) or [None]
        return values[0] if len(values) == 1 else None

    def _find_chain(self, first: int) -> _AttentionChain | None:
        """Find the chain that begins with a product; None if there is none."""
        ops, numbers, gradients = self._versions.ops, [first], set[int]()
        if ops[first].attr(_TRANSPOSES[ops[first].type][0]):
            return None
        while len(numbers) == 1 or ops[numbers[-1]].type not in _TRANSPOSES:
            value, readers = self._value(numbers[-1], "Out"), self._readers_of(numbers[-1])
            forward = [index for index in readers if not self._is_gradient(index)]
            if value is None or len(forward) != 1 or not self._keeps_rows(forward[0], value):
                return None
            gradients |= readers - {*forward}
            numbers += forward
        if not any(ops[number].type == "softmax" for number in numbers):
            return None
        backward = self._find_gradients(numbers) if gradients else []
        if backward is None or not gradients <= {*backward} or not self._can_move(numbers, backward):
            return None
        if not backward and not self._has_large_matrices(first):
            return None
        return self._describe(numbers, backward)

    def _readers_of(self, index: int) -> set[int]:
        """The ops that read the results of an op; none if something besides ops reads them, such as a fetch."""
        values = [*values_in(self._versions.writes[index])]
        if not all(map(self._is_temporary, values)):
            return set()
        return {reader for value in values for reader in self._readers.get(value, ())}

    def _is_gradient(self, index: int) -> bool:
        definition = self._versions.definitions[index]
        return definition is not None and definition.forward is not None

    def _is_temporary(self, value: Value) -> bool:
        var = self._versions.block.vars.get(value[0])
        return value not in self._fetched and var is not None and not var.persistable and not var.lod_level

    def _keeps_rows(self, index: int, value: Value) -> bool:
        """Whether an op computes each row by itself, or is the product that ends a chain."""
        op, spec = self._versions.ops[index], self._specs.get(value)
        if spec is None or self._value(index, "X") != value:
            return False
        if op.type in _TRANSPOSES:
            return not op.attr(_TRANSPOSES[op.type][0]) and self._value(index, "Y") not in (None, value)
        if op.type == "softmax":
            return op.attr("axis") in (-1, len(spec.shape) - 1)
        if op.type == "scale":
            return not op.input("ScaleTensor")
        if op.type == "dropout":
            return bool(op.attr("is_test"))
        result, operand = self._spec(index, "Out"), self._spec(index, "Y")
        if op.type not in _ARITHMETIC or result is None or operand is None or self._value(index, "Y") == value:
            return False
        has_last_axis = op.attr("axis") in (-1, len(spec.shape) - len(operand.shape))
        return has_last_axis and result.shape == spec.shape and result.dtype == spec.dtype

    def _find_gradients(self, numbers: list[int]) -> list[int] | None:
        """Find the gradient op of each op of a chain, last op first; None if one is missing, or has more readers or results."""
        backward, ops = list[int](), self._versions.ops
        source = self._value(numbers[-1], "X")
        for number in reversed(numbers):
            candidates = self._readers.get(source, []) if source is not None else []
            if backward and not (source and self._is_temporary(source) and len(candidates) == 1):
                return None
            fitting = [index for index in candidates if self._is_gradient_of(index, number)]
            if len(fitting) != 1 or (ops[number].type not in _TRANSPOSES and self._count_results(fitting[0]) != 1):
                return None
            backward += fitting
            source = self._value(fitting[0], "Out" if ops[fitting[0]].type == "scale" else grad_slot("X"))
        return backward

    def _count_results(self, index: int) -> int:
        """The number of values that an op writes."""
        return len([*values_in(self._versions.writes[index])])

    def _is_gradient_of(self, index: int, number: int) -> bool:
        """Whether an op is the gradient of op `number`."""
        gradient, op = self._versions.ops[index], self._versions.ops[number]
        if op.type == "scale":
            return gradient.type == "scale" and gradient.attr("scale") == op.attr("scale") and not gradient.attr("bias")
        return gradient.type == f"{op.type}_grad" and self._reads_same_inputs(index, number)

    def _reads_same_inputs(self, index: int, number: int) -> bool:
        """Whether a gradient op reads the op's own values in each slot that both have."""
        reads = self._versions.reads
        return all(reads[index].get(slot, values) == values for slot, values in reads[number].items())

    def _can_move(self, numbers: list[int], backward: list[int]) -> bool:
        """Whether the ops can move: nothing overwrites the values that they read or write."""
        versions = self._versions
        used = [slots for index in (*numbers, *backward) for slots in (versions.reads[index], versions.writes[index])]
        return all(versions.last.get(name, 0) == version for slots in used for name, version in values_in(slots))

    def _describe(self, numbers: list[int], backward: list[int]) -> _AttentionChain | None:
        """Make a chain of ops; None if a spec is not known, or a value is read twice."""
        versions, ops = self._versions, self._versions.ops
        inputs = [value for index in numbers for value in values_in(versions.reads[index])]
        results = [value for index in numbers for value in values_in(versions.writes[index])]
        specs = {value[0]: spec for value in (*inputs, *results) if (spec := self._specs.get(value)) is not None and spec.known}
        if len({*inputs}) != len(inputs) or specs.keys() != {name for name, _ in (*inputs, *results)}:
            return None
        stack = specs[ops[numbers[0]].output("Out")[0]].shape[:-2]
        if not all(_is_stacked(spec, stack) for spec in specs.values()):
            return None
        return _AttentionChain([ops[index] for index in numbers], [ops[index] for index in sorted(backward)], specs)


def _is_stacked(spec: Spec, stack: tuple[int, ...]) -> bool:
    """Whether a value has a matrix for each one of a stack, a matrix for all, or rows that matrices share."""
    outer = spec.shape[:-2]
    return prod(outer) == 1 or outer == stack or (spec.shape[-2] == 1 and len(outer) == len(stack))


def _count_blocks(scores: Spec) -> tuple[int, int]:
    """Choose the number of steps of the recurrence, and of blocks in a matrix. Blocks get equal sizes, if that takes few more."""
    *stack, rows, _ = scores.shape
    matrices = prod(stack)
    matrix_bytes = scores.nbytes // matrices
    together = max(size for size in range(1, max(_BLOCK_BYTES // matrix_bytes, 1) + 1) if matrices % size == 0)
    fewest = min(-(-matrix_bytes // _BLOCK_BYTES), _MOST_BLOCKS, rows)
    equal = (count for count in range(fewest, 2 * fewest) if rows % count == 0)
    return matrices // together, next(equal, fewest)


# ---------------------------------------------------------------------------------------------------------- rewriting
class _BlockWriter:
    """Puts a recurrence, and its gradient, in the place of a chain."""

    def __init__(self, chain: _AttentionChain) -> None:
        self._chain, self._block = chain, chain.ops[-1].block
        *self._stack, self._rows, _ = chain.scores.shape
        self._steps, blocks = _count_blocks(chain.scores)
        self._in_step = prod(self._stack) // self._steps
        size = -(-self._rows // blocks)
        self._sizes = [min(size, self._rows - start) for start in range(0, self._rows, size)]
        self._body = self._block.program.create_block(parent=self._block)
        self._slices: list[str] = []

    def rewrite(self) -> None:
        """Put the recurrence in the place of the last forward op, and its gradient in the place of the first gradient op."""
        chain, block = self._chain, self._block
        segment = self._write_forward()
        place = block.ops.index(chain.ops[-1])
        block.ops[place : place + 1] = segment
        if chain.gradients:
            backward = self._write_gradient(segment)
            place = block.ops.index(chain.gradients[0])
            block.ops[place : place + 1] = backward
        gone = {*chain.ops[:-1], *chain.gradients[1:]}
        block.ops = [op for op in block.ops if op not in gone]

    def _write_forward(self) -> list[Operator]:
        """Make the ops that compute the last product in blocks."""
        chain, block, end = self._chain, self._block, len(self._block.ops)
        steps = OpInserter(block, end, chain.ops[-1].frames)
        operands = [(chain.ops[0].input("X")[0], True)]
        operands += [(name, op.type in _ARITHMETIC) for op in chain.ops for name in op.inputs.get("Y", ())]
        blocks = {name: self._split_rows(self._slice_steps(steps, name), name, may_have_rows) for name, may_have_rows in operands}
        results = [self._add_block(number, blocks) for number in range(len(self._sizes))]
        result = chain.ops[-1].output("Out")[0]
        spec = chain.specs[result]
        stacked = self._declare(result, (self._in_step, self._rows, spec.shape[-1]))
        self._body.append_op("concat", {"X": results}, {"Out": stacked}, {"axis": 1})
        shape = (self._steps, *self._body.var(stacked).shape)
        block.create_var(name=stacked, shape=shape, dtype=spec.dtype, stop_gradient=False)
        self._add_recurrence(steps, stacked)
        steps.add("reshape", {"X": [stacked]}, result, shape=[*spec.shape])
        segment = block.ops[end:]
        del block.ops[end:]
        return segment

    def _slice_steps(self, steps: OpInserter, name: str) -> str:
        """Reshape a stack of matrices to [steps, matrices of a step, rows, columns]; one matrix for all steps stays."""
        spec = self._chain.specs[name]
        stack, matrix = spec.shape[:-2], [*spec.shape[-2:]]
        if prod(stack) == 1 < prod(self._stack):
            return steps.add("reshape", {"X": [name]}, shape=matrix) if stack else name
        if prod(stack) < prod(self._stack):
            name = steps.add("expand_v2", {"X": [name]}, shape=[*self._stack, *matrix])
        sliced = steps.add("reshape", {"X": [name]}, shape=[self._steps, self._in_step, *matrix])
        self._body.create_var(name=sliced, shape=(self._in_step, *matrix), dtype=spec.dtype, stop_gradient=False)
        self._slices.append(sliced)
        return sliced

    def _split_rows(self, inner: str, name: str, may_have_rows: bool) -> list[str]:
        """Give each block of rows its operand: the rows of a value that has them all, or the value itself.

        Args:
            inner: its name in the block.
            name: its name outside.
            may_have_rows: whether its rows are rows of the scores.
        """
        spec = self._chain.specs[name]
        if not may_have_rows or len(self._sizes) == 1 or len(spec.shape) < 2 or spec.shape[-2] == 1:
            return [inner] * len(self._sizes)
        shape = [*self._body.var(inner).shape] if inner in self._body.vars else [*spec.shape[-2:]]
        parts = [self._declare(name, (*shape[:-2], size, shape[-1])) for size in self._sizes]
        attrs = {"axis": len(shape) - 2, "sections": self._sizes, "num": 0}
        self._body.append_op("split", {"X": inner}, {"Out": parts}, attrs)
        return parts

    def _add_block(self, number: int, blocks: Mapping[str, Sequence[str]]) -> str:
        """Add the ops of a block of rows; returns the variable with its rows of the last product."""
        names = {name: parts[number] for name, parts in blocks.items()}
        for op in self._chain.ops:
            (result,) = op.output("Out")
            names[result] = self._declare(result, (self._in_step, self._sizes[number], self._chain.specs[result].shape[-1]))
            copy = copy_op(op, self._body, names)
            copy.outputs = {"Out": [names[result]]}
            if op.type == "softmax" or op.type in _ARITHMETIC:
                copy.attrs["axis"] = -1
            self._body.ops.append(copy)
        return names[result]

    def _declare(self, name: str, shape: Sequence[int]) -> str:
        """Declare a variable in the block like one of the chain, with another shape."""
        new: str = self._block.program.fresh_name(f"{_PREFIX}{name}")
        self._body.create_var(name=new, shape=tuple(shape), dtype=self._chain.specs[name].dtype, stop_gradient=False)
        return new

    def _add_recurrence(self, steps: OpInserter, stacked: str) -> None:
        """Insert the recurrence over the stack of matrices."""
        body = self._body
        local = {*self._slices, EMPTY, *(name for op in body.ops for name in op.output_arg_names)}
        parameters = [*dict.fromkeys(name for op in body.ops for name in op.input_arg_names if name not in local)]
        scopes = self._block.program.fresh_name(f"{_PREFIX}scopes")
        self._block.create_var(name=scopes, type=VarType.STEP_SCOPES)
        self._block.insert_op(
            steps.place,
            "recurrent",
            inputs={"inputs": self._slices, "initial_states": [], "parameters": parameters},
            outputs={"outputs": [stacked], "step_scopes": [scopes]},
            attrs={"sub_block": body, "ex_states": [], "states": [], "is_train": bool(self._chain.gradients)},
            frames=self._chain.ops[-1].frames,
        )
        steps.place += 1

    def _write_gradient(self, segment: list[Operator]) -> list[Operator]:
        """Make the ops that compute the results of the chain's gradient ops; `segment` are the forward ops."""
        chain, block = self._chain, self._block
        of_last, of_first = chain.gradients[0], chain.gradients[-1]
        targets = {
            op.input(slot)[0]: target
            for op, slot in ((of_first, "X"), (of_first, "Y"), (of_last, "Y"))
            for target in op.output(grad_slot(slot))
            if target != EMPTY
        }
        result, all_ops = chain.ops[-1].output("Out")[0], block.ops
        block.ops = [*segment]
        walker = Differentiator(block, block, frozenset(chain.specs) - targets.keys() - {result})
        try:
            gradients = walker.gradients_of(targets, [(result, of_last.input(grad_slot("Out"))[0])])
            steps = OpInserter(block, len(block.ops), of_last.frames)
            for name, gradient in gradients.items():
                assert gradient is not None, "the result depends on each operand"
                steps.add("assign", {"X": [gradient]}, targets[name])
            return block.ops[len(segment) :]
        finally:
            block.ops = all_ops

"""Nodes that hold graphs: branches, loops and scans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import FormatError, ProgramError
from ...ir.program import Variable
from ...ir.scan import scan
from ...layers.control_flow import While, build_cond
from ...values.types import VarType
from ..builder import Builder
from ..node import OnnxNode
from ..table import imports
from ..values import SequenceValue, TensorValue, Value
from .sequence import as_array

MOST_UNROLLED = 64
"""The most trips of a loop over sequences to unroll."""


@imports("If")
def if_(b: Builder, node: OnnxNode) -> Any:
    graphs = node.proto_of("then_branch"), node.proto_of("else_branch")
    if graphs[0] is None or graphs[1] is None:
        raise FormatError("it should have two branches")
    condition_value = node.array(0)
    if condition_value is not None:
        with node.reader.inner(graphs[0] if bool(np.reshape(condition_value, -1)[0]) else graphs[1], []) as outputs:
            return tuple(outputs)

    def outputs_of(graph: Any) -> Callable[[], list[Value]]:
        def build() -> list[Value]:
            with node.reader.inner(graph, []) as outputs:
                return list(outputs)

        return build

    return tuple(either(b, node[0], [outputs_of(graph) for graph in graphs]))


class RanksDiffer(Exception):
    """Two branches give values of different numbers of dimensions."""


def either(b: Builder, condition: Any, branches: Sequence[Callable[[], list[Value]]]) -> list[Value]:
    """Choose between the values that two functions build: the first function's if one bool is true.

    Raises:
        RanksDiffer: a value has one number of dimensions in one branch, and another one in the other.
    """
    structures: list[list[int | None]] = []
    singles: list[list[bool]] = []
    ranks: list[list[int]] = []

    def flattened(values_of: Callable[[], list[Value]]) -> Callable[[], list[Variable]]:
        def build() -> list[Variable]:
            values = values_of()
            flat: list[Variable] = []
            structure: list[int | None] = []
            single = [isinstance(value, TensorValue) and not value.shape for value in values]
            for value, is_single in zip(values, single, strict=True):
                if isinstance(value, SequenceValue) and value.items is not None:
                    structure.append(len(value.items))
                    flat += [b.variables(item) for item in value.items]
                elif isinstance(value, TensorValue):
                    structure.append(None)
                    flat.append(b.unsqueeze(value, [0]) if is_single else b.f.assign(value))
                else:
                    raise FormatError("a branch returns an optional, or a sequence whose length is known only at run time")
            structures.append(structure)
            singles.append(single)
            ranks.append([var.ndim for var in flat])
            return flat

        return build

    try:
        merged = list(build_cond(b.f.reshape2(condition, shape=[1]), *(flattened(branch) for branch in branches)))
    except ProgramError:
        if len(ranks) == 2 and len(ranks[0]) == len(ranks[1]) and ranks[0] != ranks[1]:
            raise RanksDiffer from None
        raise
    if structures[0] != structures[1]:
        raise FormatError("its branches give sequences of different lengths")
    out: list[Value] = []
    for count, *single in zip(structures[0], *singles, strict=True):
        if count is None:  # a single number has shape [1] if one branch gives this shape
            out.append(TensorValue(b.squeeze(merged.pop(0), [0]) if all(single) else merged.pop(0)))
        else:
            out.append(SequenceValue([TensorValue(merged.pop(0)) for _ in range(count)]))
    return out


def _always(graph: Any) -> bool:
    """Whether a loop body returns its condition unchanged, or True, so that only the trip count ends the loop."""
    cond = graph.output[0].name
    if len(graph.input) > 1 and cond == graph.input[1].name:
        return True
    for node in graph.node:
        if cond in node.output:
            if node.op_type == "Identity":
                return len(graph.input) > 1 and node.input[0] == graph.input[1].name
            if node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].HasField("t"):
                tensor = node.attribute[0].t
                return bool(any(tensor.raw_data) or any(tensor.int32_data))
    return False


@imports("Loop")
def loop(b: Builder, node: OnnxNode) -> Any:
    graph = node.proto_of("body")
    if graph is None or len(graph.output) < 1 or len(graph.input) < 2:
        raise FormatError("its body should take the number of the trip and a condition, and give a condition")
    carried = [node.value(n) for n in range(2, len(node))]
    count = len(carried)
    if len(graph.input) != count + 2 or len(graph.output) < count + 1:
        raise FormatError(
            f"it carries {count} values, and its body takes {len(graph.input) - 2} and gives {len(graph.output) - 1}"
        )
    trips, condition = node.scalar(0), node.scalar(1)
    always = _always(graph) and (node.value(1) is None or condition is True)
    holds_sequences = any(isinstance(value, SequenceValue) and value.items is not None for value in carried)
    if holds_sequences and always and trips is not None and trips <= MOST_UNROLLED:
        return _unrolled(b, node, graph, carried, int(trips))
    return _looped(b, node, graph, carried)


def _unrolled(b: Builder, node: OnnxNode, graph: Any, carried: list[Any], trips: int) -> Any:
    scanned: list[list[Any]] = [[] for _ in range(len(graph.output) - 1 - len(carried))]
    for trip in range(trips):
        inputs = [b.constant(np.int64(trip)), b.constant(np.bool_(True)), *carried]
        with node.reader.inner(graph, inputs) as outputs:
            carried = outputs[1 : 1 + len(carried)]
            for column, value in zip(scanned, outputs[1 + len(carried) :], strict=True):
                column.append(b.variables(value))
    return (*carried, *(b.f.stack(column, axis=0) for column in scanned))


def _looped(b: Builder, node: OnnxNode, graph: Any, carried: list[Any]) -> Any:
    trips = node.get(0)
    first = node.get(1)
    states: list[Variable] = []
    for place, value in enumerate(carried):
        if isinstance(value, SequenceValue):
            states.append(_own_array(b, node, value))
        elif isinstance(value, TensorValue):
            states.append(b.f.assign(value))
        else:
            raise FormatError(f"it carries an optional that holds nothing, as value {place}")
    number = b.f.assign(b.constant(np.zeros(1, np.int64)))
    condition = b.f.assign(b.f.reshape2(first, shape=[1])) if first is not None else b.f.assign(b.constant(np.ones(1, bool)))
    limit = None if trips is None else b.cast(b.f.reshape2(trips, shape=[1]), VarType.INT64)
    going = b.f.assign(condition if limit is None else b.f.logical_and(b.f.less_than(number, limit), condition))
    stacks: list[Variable] = [b.f.new_array(dtype=int(VarType.FP32)) for _ in graph.output[1 + len(carried) :]]
    count = len(states)
    with While(going).block():
        inputs: list[Value] = [TensorValue(b.squeeze(number, [0])), TensorValue(b.squeeze(condition, [0]))]
        inputs += [SequenceValue(variable=s) if s.type is VarType.LOD_TENSOR_ARRAY else TensorValue(s) for s in states]
        with node.reader.inner(graph, inputs) as outputs:
            for stack, value in zip(stacks, outputs[1 + count :], strict=True):
                item = b.variables(value)
                if stack._dtype is not item.dtype:
                    stack._dtype = item.dtype
                b.append("write_to_array", {"X": item, "I": number}, {"Out": stack}, {})
            results: list[Variable | None] = []
            for state, value in zip(states, outputs[1 : 1 + count], strict=True):
                if isinstance(value, SequenceValue) is not (state.type is VarType.LOD_TENSOR_ARRAY):
                    raise FormatError("a carried value and its next value should both be sequences, or both tensors")
                if isinstance(value, SequenceValue):
                    is_own = value.array_variable is state  # the body appended to it
                    results.append(None if is_own else b.f.assign(as_array(b, value)))
                    continue
                result = b.variables(value)
                if result.dtype is not state.dtype or result.ndim != state.ndim:
                    raise FormatError(
                        f"it carries {state.describe()} into its body, which gives {result.describe()}: element type and "
                        "number of dimensions should stay"
                    )
                results.append(b.f.assign(result))
            next_condition = b.f.assign(b.f.reshape2(outputs[0], shape=[1]))
            for state, result in zip(states, results, strict=True):
                if result is not None:
                    b.append("assign", {"X": result}, {"Out": state}, {})
            b.append("assign", {"X": next_condition}, {"Out": condition}, {})
            b.append("increment", {"X": number}, {"Out": number}, {"step": 1.0})
            continues = condition if limit is None else b.f.logical_and(b.f.less_than(number, limit), condition)
            b.append("assign", {"X": continues}, {"Out": going}, {})
    finals: list[Any] = [SequenceValue(variable=s) if s.type is VarType.LOD_TENSOR_ARRAY else s for s in states]
    return (*finals, *(b.f.stack_array(stack) for stack in stacks))


def _own_array(b: Builder, node: OnnxNode, value: SequenceValue) -> Variable:
    """Copy a sequence to an array that a loop may append to."""
    copy: Variable = as_array(b, value) if value.array_variable is None else b.f.assign(value.array_variable)
    return copy


def _steps(b: Builder, node: OnnxNode, graph: Any, states: list[Any], sequences: list[Any]) -> tuple[list[Any], list[Any]]:
    """Run a graph over sequences [time, ...]; return the last states, and the outputs of all steps, [time, ...]."""
    number = len(states)

    def step(f: Any, before: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
        with node.reader.inner(graph, [TensorValue(var) for var in (*before, *slices)]) as outputs:
            results = [b.f.assign(value) for value in outputs]
            return results[:number], [*results[number:], *(b.f.assign(var) for var in results[:number])]

    stacked = scan(step, states, sequences)
    outputs, finals = stacked[: len(stacked) - number], stacked[len(stacked) - number :]
    return [b.squeeze(b.slice(final, 0, -1, 2**31 - 1), [0]) for final in finals], outputs


def _body(node: OnnxNode, inputs: int) -> tuple[Any, int]:
    """The graph of a scan, and how many of its inputs are sequences."""
    graph, count = node.proto_of("body"), node.int("num_scan_inputs")
    if graph is None or not count or not 0 < count <= inputs:
        raise FormatError("it should have a body, and num_scan_inputs sequences")
    return graph, count


@imports("Scan", since=8)
def scan_batch(b: Builder, node: OnnxNode) -> Any:
    """Scan over a batch of sequences; each step is a scan over time."""
    graph, count = _body(node, len(node) - 1)
    if node.value(0) is not None:
        raise FormatError("sequences of different lengths are not supported")
    first = len(node) - count
    directions = node.ints("directions", [0] * count)
    number = first - 1

    def step(f: Any, before: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
        pairs = zip(slices[number:], directions, strict=True)
        sequences = [b.f.flip(x, axis=[0]) if direction else b.f.assign(x) for x, direction in pairs]
        last, outputs = _steps(b, node, graph, [b.f.assign(x) for x in slices[:number]], sequences)
        return [], [*last, *outputs]

    return tuple(scan(step, [], [b.f.assign(node[place]) for place in range(1, len(node))]))


@imports("Scan", since=9)
def scan_(b: Builder, node: OnnxNode) -> Any:
    graph, count = _body(node, len(node))
    states = [b.f.assign(node[n]) for n in range(len(node) - count)]
    directions = node.ints("scan_input_directions", [0] * count)
    axes = node.ints("scan_input_axes", [0] * count)
    sequences = []
    for place, (direction, axis) in enumerate(zip(directions, axes, strict=True)):
        x = node[len(states) + place]
        axis %= x.ndim
        x = b.transpose(x, [axis, *(n for n in range(x.ndim) if n != axis)])
        x = b.f.flip(x, axis=[0]) if direction else b.f.assign(x)
        sequences.append(x)
    last, outputs = _steps(b, node, graph, states, sequences)
    back = node.ints("scan_output_directions", [0] * len(outputs))
    places = node.ints("scan_output_axes", [0] * len(outputs))
    out = []
    for stack, direction, axis in zip(outputs, back, places, strict=True):
        directed = b.f.flip(stack, axis=[0]) if direction else stack
        axis %= directed.ndim
        out.append(b.transpose(directed, [*range(1, axis + 1), 0, *range(axis + 1, directed.ndim)]))
    return (*last, *out)

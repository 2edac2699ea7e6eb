"""Summary of a program or a layer: a table of its layers, with shapes, parameters and arithmetic."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from ..eager.tensor import Tensor
from ..errors import FeedError, FluidError, FluidTypeError
from ..executor import Scope
from ..executor.planned.plan import compile_plan
from ..ir.checked import checked
from ..ir.program import Operator, OpRole, Parameter, Program, Variable, default_main_program
from ..transform.flops import flops_of, human, with_shapes
from ..values.spec import Spec
from .layers import Layer
from .tracing import traced_call

__all__ = ["LayerRow", "Summary", "summary"]

_NOT_FORWARD = OpRole.BACKWARD | OpRole.OPTIMIZE | OpRole.LR_SCHED


@dataclass
class LayerRow:
    """Ops of one layer: the names of their parameters and outputs begin alike.

    Attributes:
        name: that beginning, such as ``fc_0``.
        ops: the types of the ops, in order.
        shape: the shape of the last op's output; None if unknown.
        parameters: elements of the parameters that no layer before reads.
        flops: operations of one run, of the ops whose shapes are known.
    """

    name: str
    ops: list[str] = field(default_factory=list)
    shape: tuple[int, ...] | None = None
    parameters: int = 0
    flops: int = 0


@dataclass
class Summary:
    """The layers of a program, which can be printed.

    Attributes:
        rows: the layers, in order.
        parameters: elements of all parameters.
        trainable: elements of all trained parameters.
        parameter_bytes: the memory of all parameters.
        flops: operations of one run of the forward ops.
        temporary_bytes: the peak memory of one run's results; None if unknown before a run.
    """

    rows: list[LayerRow]
    parameters: int
    trainable: int
    parameter_bytes: int
    flops: int
    temporary_bytes: int | None

    def __str__(self) -> str:
        columns = [("layer", *(row.name for row in self.rows)), ("ops", *(" + ".join(row.ops) for row in self.rows))]
        columns.append(("result", *("?" if row.shape is None else str(list(row.shape)) for row in self.rows)))
        columns.append(("parameters", *(f"{row.parameters:,}" if row.parameters else "" for row in self.rows)))
        columns.append(("FLOP", *(human(row.flops).strip() if row.flops else "" for row in self.rows)))
        widths = [max(map(len, column)) for column in columns]
        lines = [
            "  ".join(
                cell.rjust(width) if at > 2 else cell.ljust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in zip(*columns, strict=True)
        ]
        return "\n".join([line.rstrip() for line in lines] + ["", *self._totals()])

    def _repr_html_(self) -> str:
        """For notebooks."""
        return f"<pre>{html.escape(str(self))}</pre>"

    def _totals(self) -> Iterable[str]:
        yield f"parameters: {self.parameters:,}, of which {self.trainable:,} are trained; {human(self.parameter_bytes)}B"
        yield f"a run: {human(self.flops)}FLOP forward" + (
            "" if self.temporary_bytes is None else f", {human(self.temporary_bytes)}B of results at their peak"
        )


@checked
def summary(
    model: Program | Layer | None = None, input_shapes: Mapping[str, Sequence[int]] | Sequence[Sequence[int]] | None = None
) -> Summary:
    """A table of the layers of a program, or of a `fluid.dygraph` layer: shapes, parameters, arithmetic and memory of a run.

    Args:
        model: a program, by default the main one; of a training program, rows show the forward ops, and memory is for a whole
            step. A layer is called once, with zeros.
        input_shapes: the shapes of its data, by name or in their order. Unnamed data gets the batch size of named data, and 1 for
            unknown dimensions. A layer needs the shape of each argument; arguments are float32.

    Raises:
        FeedError, InferenceError: shapes do not fit the data, or the ops.

    >>> x = fluid.data("x", [None, 4])
    >>> y = fluid.layers.fc(x, 3, act="relu")
    >>> print(fluid.summary(input_shapes=[[8, 4]]))
    layer  ops                           result  parameters  FLOP
    fc_0   mul + elementwise_add + relu  [8, 3]          15   240
    <BLANKLINE>
    parameters: 15, of which 15 are trained; 60 B
    a run: 240 FLOP forward, 224 B of results at their peak
    """
    if isinstance(model, Layer):
        program, input_shapes = _traced(model, input_shapes), None
    else:
        program = default_main_program() if model is None else model
    sized = with_shapes(program, _shapes(program, input_shapes))
    forward = [op for op in sized.global_block().ops if not op.role & _NOT_FORWARD]
    parameters = [var for var in sized.list_vars() if isinstance(var, Parameter)]
    rows = _rows(forward)
    return Summary(
        rows,
        sum(map(_size, parameters)),
        sum(_size(var) for var in parameters if var.trainable),
        sum(_size(var) * var.dtype.array_dtype.itemsize for var in parameters),
        sum(row.flops for row in rows),
        _temporary_bytes(sized),
    )


def _traced(layer: Layer, input_shapes: Any) -> Program:
    if not isinstance(input_shapes, Sequence) or not input_shapes:
        raise FluidTypeError(
            "summary: a layer is called to see what it does; give the shapes of its arguments, such as [[8, 784]]"
        )
    return traced_call(layer, [Tensor(np.zeros(list(shape), np.float32)) for shape in input_shapes], {})[1].program


def _shapes(program: Program, input_shapes: Mapping[str, Sequence[int]] | Sequence[Sequence[int]] | None) -> dict[str, list[int]]:
    """Name of data -> its shape, without unknown dimensions."""
    data = {var.name: var for var in program.global_block().vars.values() if var.is_data and var.has_shape}
    if input_shapes is not None and not isinstance(input_shapes, Mapping):
        if len(input_shapes) != len(data):
            raise FeedError(f"summary: {len(input_shapes)} shapes for {len(data)} inputs: {', '.join(data) or 'none'}")
        input_shapes = dict(zip(data, input_shapes, strict=True))
    shapes: dict[str, list[int]] = {}
    for name, shape in (input_shapes or {}).items():
        var = data.get(name)
        if var is None:
            raise FeedError(f"summary: the program has no data {name!r}, but {', '.join(data) or 'none'}")
        if len(shape) != len(var.shape) or any(
            size not in (-1, declared_size) for size, declared_size in zip(var.shape, shape, strict=True)
        ):
            raise FeedError(f"summary: {list(shape)} does not fit {var.describe()}, the data {name!r}")
        shapes[name] = list(shape)
    batch = next((shape[0] for name, shape in shapes.items() if shape and data[name].shape[0] < 0), 1)
    for name in data.keys() - shapes.keys():
        first, *inner_sizes = data[name].shape or [1]
        shapes[name] = [batch if first < 0 else first, *(1 if size < 0 else size for size in inner_sizes)][: data[name].ndim]
    return shapes


def _rows(ops: Iterable[Operator]) -> list[LayerRow]:
    rows: list[LayerRow] = []
    counted: set[str] = set()
    for op in ops:
        if op.type in ("feed", "fetch"):
            continue
        read = [var for name in op.input_arg_names if isinstance(var := op.block.find_var(name), Parameter)]
        outputs = [var for name in op.output_arg_names if (var := op.block.find_var(name)) is not None and not var.persistable]
        name = _beginning(read[0].name if read else outputs[0].name if outputs else op.type)
        if not rows or rows[-1].name != name:
            rows.append(LayerRow(name))
        row = rows[-1]
        row.ops.append(op.type)
        row.parameters += sum(_size(var) for var in read if var.name not in counted)
        counted.update(var.name for var in read)
        row.flops += flops_of(op) or 0
        if outputs:
            row.shape = outputs[0].shape if outputs[0].has_shape else None
    return rows


def _beginning(name: str) -> str:
    """The layer that a name of a parameter or result begins with."""
    return name.rsplit(".", 1)[0]


def _size(var: Variable) -> int:
    return prod(var.shape) if var.has_shape else 0


def _temporary_bytes(program: Program) -> int | None:
    """The peak memory of a run's results on numpy; None if the shapes are unknown before the run."""
    block, scope = program.global_block(), Scope()
    for var in block.vars.values():
        if var.persistable and var.has_shape:
            scope.put(var.name, np.zeros(var.shape, var.dtype.array_dtype))  # untouched zeros take no memory
    feeds = {var.name: Spec(var.shape, var.dtype) for var in block.vars.values() if var.is_data and var.has_shape}
    read = {name for op in block.ops for name in op.input_arg_names}
    last = [name for op in block.ops for name in op.output_arg_names if name not in read and block.has_var(name)]
    try:
        plan = compile_plan(program, feeds, last, scope)
    except FluidError:
        return None
    is_known = not plan.step_by_step and not any(instruction.dynamic for instruction in plan.instructions)
    return plan.live_bytes if is_known else None

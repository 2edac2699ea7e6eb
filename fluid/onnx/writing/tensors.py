"""Tensors and nodes of the ONNX graph under construction, as plain data."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Union

from fluid.values.spec import Spec, SpecValue
from fluid.values.types import VarType, is_floating

if TYPE_CHECKING:
    from fluid.opdef.inference import OpNamespace

    from .graph import OnnxGraph


ELEMENTS: dict[VarType, int] = {
    VarType.FP32: 1,
    VarType.UINT8: 2,
    VarType.INT8: 3,
    VarType.INT16: 5,
    VarType.INT32: 6,
    VarType.INT64: 7,
    VarType.BOOL: 9,
    VarType.FP16: 10,
    VarType.FP64: 11,
    VarType.SIZE_T: 13,
    VarType.BF16: 16,
}
"""Element type -> ONNX's number for it."""


class Symbol(int):
    """A size known only at run time: it equals only itself, and arithmetic on it gives another symbol.

    As an int it is greater than any size, and than the symbols before it.
    """

    def __new__(cls) -> Symbol:
        return int.__new__(cls, next(_SYMBOLS))

    def _computed(self, *operands: int) -> Symbol:
        return Symbol()

    __add__ = __sub__ = __mul__ = __floordiv__ = __mod__ = _computed
    __radd__ = __rsub__ = __rmul__ = __rfloordiv__ = __rmod__ = _computed
    __neg__ = __pos__ = __abs__ = _computed


_SYMBOLS = itertools.count(1_000_000_007)


def is_number(size: int) -> bool:
    """Whether a size is known: neither -1 nor a symbol."""
    return size >= 0 and not isinstance(size, Symbol)


def without_symbols(sizes: Iterable[int]) -> tuple[int, ...]:
    """The sizes, with -1 for symbols."""
    return tuple(-1 if isinstance(size, Symbol) else size for size in sizes)


Size = Union[int, "OnnxTensor"]
"""The size of a dimension: a number, or an int64 tensor of shape [1]."""


class NotExported(Exception):
    """ONNX cannot express an op with these attributes and shapes, or its export is missing; the message says why."""


class NodeRecord:
    """A node: its op, the names of its inputs and outputs, and its attributes; a `GraphScope` attribute is an inner graph."""

    __slots__ = ("attrs", "inputs", "op", "outputs")

    def __init__(self, op: str, inputs: list[str], outputs: list[str], attrs: dict[str, Any]) -> None:
        self.op, self.inputs, self.outputs, self.attrs = op, inputs, outputs, attrs


@dataclass
class GraphScope:
    """The nodes of the graph, or of an inner graph, with its inputs and outputs."""

    nodes: list[NodeRecord] = field(default_factory=list)
    inputs: list[OnnxTensor] = field(default_factory=list)
    outputs: list[OnnxTensor] = field(default_factory=list)
    cached: dict[Any, OnnxTensor] = field(default_factory=dict)
    """Values to compute only once: shapes."""


class OnnxTensor(SpecValue):
    """A value of the graph.

    Attributes:
        name: its name there.
        spec: the spec, with -1 for unknown sizes.
        sizes: its shape, with a `Symbol` for sizes known only by identity; -1 for unknown ones.
        value: the elements of a constant.
        like: for a tensor that only stands for a shape: the tensor with this shape.
        lengths: for rows that form sequences: the lengths, int64 [sequences].
    """

    __slots__ = ("_name", "graph", "lengths", "like", "sizes", "spec", "value")

    def __init__(
        self, graph: OnnxGraph, name: str, spec: Spec, sizes: tuple[int, ...] | None = None, like: OnnxTensor | None = None
    ) -> None:
        self.graph, self._name = graph, name
        sizes = spec.shape if sizes is None else sizes
        if any(isinstance(size, Symbol) for size in sizes):
            spec = spec.with_shape(without_symbols(sizes))
        self.spec, self.sizes, self.like = spec, sizes, like
        self.value: Any = None
        self.lengths: OnnxTensor | None = None

    @property
    def name(self) -> str:
        if self.like is not None:
            return self.graph.empty_like(self).name
        return self._name

    def _ops(self) -> OpNamespace:
        return self.graph.ops

    @property
    def is_floating(self) -> bool:
        return is_floating(self.spec.dtype)

    def renamed(self, name: str) -> None:
        self._name = name

    def __str__(self) -> str:
        return f"{self._name}: {self.spec}"

    if TYPE_CHECKING:  # operators give tensors

        def __neg__(self) -> OnnxTensor: ...
        def __lt__(self, operand: Any) -> OnnxTensor: ...
        def __le__(self, operand: Any) -> OnnxTensor: ...
        def __gt__(self, operand: Any) -> OnnxTensor: ...
        def __ge__(self, operand: Any) -> OnnxTensor: ...
        def astype(self, dtype: Any) -> OnnxTensor: ...

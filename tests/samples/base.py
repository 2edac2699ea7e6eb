"""Samples of ops, and data and helpers that make them short."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fluid.values.lod_array import with_lod

__all__ = ["OPS", "STRUCTURAL", "Data", "Sample", "add", "binary", "cast", "comparison", "structural", "unary", "with_lods"]


@dataclass
class Sample:
    """Inputs and attributes of an op, and its expected outputs.

    `reference` is a plain numpy statement of the op. It is called with those inputs and given attributes that its
    signature names (all, if it takes ``**``) and returns the first output, or a dict of output slot to array. `check`
    states instead what holds of outputs that are not a function of the inputs.
    """

    inputs: dict[str, Any]
    attrs: dict[str, Any] = field(default_factory=dict)
    reference: Callable[..., Any] | None = None
    check: Callable[[dict[str, Any], dict[str, Any]], None] | None = None
    """Called with inputs and outputs, by slot; asserts."""
    wrt: Sequence[str] | None = None
    """Input slots to differentiate; all floating ones that have a gradient by default."""
    orders: int = 2
    """How many orders of derivatives to compare with central differences."""
    dtypes: Sequence[str] = ("float32", "float64")
    """What floating inputs are cast to; nothing is cast where no input floats."""
    within: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    """Input slot -> what makes of a direction one in which the input may move, such as its symmetric part."""
    tolerance: float = 1.0
    """Multiplies the tolerances of the type."""
    known: Sequence[str] = ()
    """Input slots whose shapes inference has to know."""
    declared: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes that a program declares for outputs before the op is added."""
    shapes_by_value: bool = False
    """The outputs' extents depend on values of inputs: inference may leave them unknown."""
    random: bool = False
    """The outputs are drawn."""
    lods: dict[str, Any] = field(default_factory=dict)
    """The LoD of input slots whose rows form sequences (a list in slots of many)."""


OPS: dict[str, list[Sample]] = {}
"""Samples by op."""
STRUCTURAL: dict[str, str] = {}
"""Ops that own blocks or handle what is no tensor -> the test file, or files, that cover them instead."""


def add(op_type: str, *samples: Sample) -> None:
    """Add samples of an op."""
    OPS.setdefault(op_type, []).extend(samples)


def structural(test_file: str, *op_types: str) -> None:
    """Register ops that `test_file` covers instead of samples; the file names each of them."""
    for op_type in op_types:
        STRUCTURAL[op_type] = test_file


class Data:
    """Arrays drawn for the samples of one family; floats are float64, the suite casts them."""

    def __init__(self, family: str) -> None:
        self._rng = np.random.default_rng(zlib.crc32(family.encode()))

    def __call__(self, *shape: int, low: float = -1.0, high: float = 1.0) -> Any:
        """Uniform floats."""
        return self._rng.uniform(low, high, shape)

    def complex(self, *shape: int) -> Any:
        """Complex numbers with uniform parts, none of them near 0."""
        return self.away(*shape) + 1j * self.away(*shape)

    def away(self, *shape: int, kinks: Sequence[float] = (0.0,), low: float = -2.0, high: float = 2.0, gap: float = 0.05) -> Any:
        """Uniform floats that keep a distance from `kinks`, so that differences do not straddle one."""
        found = self._rng.uniform(low, high, shape)
        for kink in kinks:
            near = np.abs(found - kink) < gap
            found = np.where(near, kink + np.where(found < kink, -gap, gap) * (1 + np.abs(found - kink)), found)
        return found

    def distinct(self, *shape: int, step: float = 0.1) -> Any:
        """Floats in random order with distances of at least `step`: no ties."""
        size = int(np.prod(shape))
        return ((self._rng.permutation(size) - size / 2 + 0.25) * step).reshape(shape)

    def ints(self, *shape: int, low: int = 0, high: int = 5, dtype: str = "int64") -> Any:
        """Integers in ``[low, high)``."""
        return self._rng.integers(low, high, shape).astype(dtype)

    def bools(self, *shape: int) -> Any:
        return self._rng.random(shape) < 0.5


def cast(value: Any, dtype: str) -> Any:
    """`value` with its floating arrays as `dtype`, and complex ones with parts of it, copied."""
    if isinstance(value, Mapping):
        return {slot: cast(item, dtype) for slot, item in value.items()}
    if isinstance(value, list):
        return [cast(item, dtype) for item in value]
    array = np.asarray(value)
    if array.dtype.kind == "c":
        return array.astype(np.result_type(dtype, "complex64"))
    return array.astype(dtype) if array.dtype.kind == "f" else array.copy()


def with_lods(values: Mapping[str, Any], lods: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays by slot; those in `lods` with their LoD."""
    return {
        slot: [with_lod(*pair) for pair in zip(value, lods[slot], strict=True)]
        if isinstance(value, list) and slot in lods
        else with_lod(value, lods.get(slot, ()))
        for slot, value in values.items()
    }


SHAPES = ((3, 4), (), (1,), (0, 3), (2, 3, 2))


def unary(
    op_type: str,
    function: Callable[..., Any],
    *attrs: dict[str, Any],
    low: float = -2.0,
    high: float = 2.0,
    kinks: Sequence[float] = (),
    orders: int = 2,
    ints: bool = False,
    tolerance: float = 1.0,
) -> None:
    """Samples of an op ``X -> Out`` over shapes, with default attributes and with each of `attrs`."""
    data = Data(op_type)

    def reference(X: Any, **given: Any) -> Any:
        return np.asarray(function(X, **given), X.dtype)

    for given in ({}, *attrs):
        for shape in SHAPES if not given else SHAPES[:1]:
            X = data.away(*shape, kinks=kinks, low=low, high=high)
            add(op_type, Sample({"X": X}, given, reference, orders=orders, tolerance=tolerance))
    if ints:
        add(op_type, Sample({"X": data.ints(3, 2, low=max(0, int(low)), high=int(high) + 1)}, {}, reference))


def aligned(x: Any, y: Any, axis: int = -1) -> Any:
    """`y` with ones after it, so that its first dimension stands at `axis` of `x`."""
    if axis == -1 or y.ndim >= x.ndim:
        return y
    while y.ndim > 1 and axis + y.ndim > x.ndim and y.shape[-1] == 1:
        y = y[..., 0]
    return y.reshape(y.shape + (1,) * (x.ndim - axis - y.ndim))


BROADCASTS: Sequence[tuple[tuple[int, ...], tuple[int, ...], int]] = (
    ((2, 3), (2, 3), -1),
    ((2, 3, 4), (4,), -1),
    ((2, 3, 4), (3, 4), 1),
    ((2, 3, 4), (3,), 1),
    ((2, 3, 4), (2, 3), 0),
    ((2, 3, 4), (2,), 0),
    ((2, 3, 4), (3, 1), 1),
    ((2, 3, 4), (2, 1, 4), -1),
    ((2, 1, 4), (2, 3, 1), -1),
    ((2, 3), (1,), -1),
    ((2, 3), (), -1),
    ((), (), -1),
    ((1,), (1,), -1),
    ((3,), (2, 3), -1),
    ((0, 3), (3,), -1),
)


def binary(
    op_type: str,
    function: Callable[[Any, Any], Any],
    *,
    x: Callable[..., Any] | None = None,
    y: Callable[..., Any] | None = None,
    apart: bool = False,
    orders: int = 2,
    ints: Callable[..., Any] | None = None,
    wrt: Sequence[str] | None = None,
) -> None:
    """Samples of an elementwise op ``X, Y -> Out`` over pairs of shapes and positions of the smaller one.

    Args:
        x, y: make the inputs of a shape; uniform floats by default.
        apart: no element of X equals one of Y.
        ints: makes integer inputs, for ops that take them.
    """
    data = Data(op_type)

    def reference(X: Any, Y: Any, axis: int = -1) -> Any:
        return np.asarray(function(X, aligned(X, Y, axis)), X.dtype)

    for x_shape, y_shape, axis in BROADCASTS:
        if apart:
            values = data.distinct(int(np.prod(x_shape)) + int(np.prod(y_shape)))
            X, Y = values[: int(np.prod(x_shape))].reshape(x_shape), values[int(np.prod(x_shape)) :].reshape(y_shape)
        else:
            X, Y = (x or data)(*x_shape), (y or data)(*y_shape)
        add(op_type, Sample({"X": X, "Y": Y}, {"axis": axis} if axis != -1 else {}, reference, orders=orders, wrt=wrt))
    if ints is not None:
        add(op_type, Sample({"X": ints(2, 3), "Y": ints(2, 3)}, {}, reference))
        add(op_type, Sample({"X": ints(2, 3), "Y": ints(2)}, {"axis": 0}, reference))


def comparison(op_type: str, function: Callable[[Any, Any], Any], make: Callable[..., Any] | None = None) -> None:
    """Samples of an op ``X, Y -> Out`` of bools; integers by default, so that ties occur."""
    data = Data(op_type)
    make = make or (lambda *shape: data.ints(*shape, high=3))

    def reference(X: Any, Y: Any, axis: int = -1) -> Any:
        return np.asarray(function(X, aligned(X, Y, axis)))

    for x_shape, y_shape, axis in BROADCASTS:
        add(op_type, Sample({"X": make(*x_shape), "Y": make(*y_shape)}, {"axis": axis} if axis != -1 else {}, reference))
    if np.asarray(make(1)).dtype.kind != "b":
        add(op_type, Sample({"X": make(3, 4) * 0.5, "Y": make(3, 4) * 0.5}, {}, reference))

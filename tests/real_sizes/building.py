"""Helpers of program generators: feeds, parameters, and the remaining work."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

from checks import fresh_programs

import fluid
from fluid import layers
from fluid.errors import FluidError
from fluid.ir.program import Operator, Variable

from .arrays import Fed
from .cases import Case, Unfit, names_of
from .choices import Choices

__all__ = ["ACTIVATIONS", "SMOOTH", "Builder", "broadcast_shape", "case_of", "dense", "random_order", "refusals"]

SMOOTH: Sequence[Callable[[Variable], Variable]] = (
    *(layers.tanh, layers.sigmoid, layers.square, layers.softsign, layers.gelu, layers.swish, layers.erf, layers.logsigmoid),
    *(layers.softplus, layers.stanh, layers.sin, layers.cos, layers.tanh_shrink, layers.silu, layers.mish),
    lambda x: layers.exp(layers.tanh(x)),
    lambda x: layers.sqrt(layers.scale(layers.square(x), bias=1.0)),
    lambda x: layers.log(layers.scale(layers.square(x), bias=0.5)),
    lambda x: layers.rsqrt(layers.scale(layers.square(x), bias=1.0)),
    lambda x: layers.reciprocal(layers.scale(layers.square(x), bias=1.0)),
    lambda x: layers.pow(layers.scale(layers.square(x), bias=0.5), 1.5),
    lambda x: layers.scale(x, -0.5, 0.25),
    lambda x: layers.scale(x, 2.0, 1.0, bias_after_scale=False),
)
"""Of matrices or any other tensors."""
ACTIVATIONS: Sequence[Callable[[Variable], Variable]] = (
    layers.relu,
    *SMOOTH,
    *(layers.abs, layers.relu6, layers.leaky_relu, layers.elu, layers.selu, layers.celu, layers.hard_sigmoid, layers.hard_swish),
    *(layers.brelu, layers.soft_relu, layers.softshrink, layers.hard_shrink, layers.thresholded_relu),
    lambda x: layers.clip(x, -0.5, 0.75),
    lambda x: layers.clip_by_norm(x, 1.0),
)


class Builder:
    """Appends a program to the default ones, within an amount of work.

    Attributes:
        dtype: of the floats.
        feeds: what is fed in the first run.
        values: floating variables that were made.
        products: multiplications that may still be asked for.
        elements: how large a variable may be.
        rows_of_sequences: rows that form sequences, if any do; programs are built before their number is known.
    """

    def __init__(self, choices: Choices, products: int = 12_000_000, elements: int = 1_000_000) -> None:
        self.choices, self.products, self.elements = choices, products, elements
        self.dtype = "float64" if choices.chance(12) else "float32"
        self.feeds: dict[str, Fed] = {}
        self.values: list[Variable] = []
        self.scale_of_numbers = choices.pick((1.0, 0.1, 3.0))
        self.rows_of_sequences = 0

    @property
    def block(self) -> Any:
        return fluid.default_main_program().current_block()

    # -- variables
    def data(self, shape: Sequence[int], scale: float | None = None) -> Variable:
        """Normal numbers that are fed."""
        name = f"x{len(self.feeds)}"
        arguments = (len(self.feeds), tuple(shape), self.dtype, self.scale_of_numbers if scale is None else scale)
        return self._fed(name, Fed("normal", arguments), shape, self.dtype)

    def targets(self, shape: Sequence[int], low: float, high: float) -> Variable:
        """Uniform numbers that are fed."""
        name = f"y{len(self.feeds)}"
        return self._fed(name, Fed("uniform", (len(self.feeds), tuple(shape), self.dtype, low, high)), shape, self.dtype)

    def integers(self, shape: Sequence[int], high: int, dtype: str = "int64") -> Variable:
        """Numbers below `high` that are fed."""
        name = f"i{len(self.feeds)}"
        return self._fed(name, Fed("integers", (len(self.feeds), tuple(shape), dtype, 0, high)), shape, dtype)

    def sequences(self, lengths: Sequence[int], width: int, high: int = 0) -> Variable:
        """Rows that form sequences of these lengths: normal numbers, or integers below `high`."""
        offsets = [0]
        for length in lengths:
            offsets.append(offsets[-1] + length)
        name, shape, number = f"s{len(self.feeds)}", (offsets[-1], width), len(self.feeds)
        fed = Fed("integers", (number, shape, "int64", 0, high)) if high else Fed("normal", (number, shape, self.dtype, 1.0))
        self.feeds[name] = Fed(fed.maker, fed.arguments, (tuple(offsets),))
        rows = offsets[-1] if self.choices.chance(30) else None
        return fluid.data(name, [rows, width], "int64" if high else self.dtype, 1)

    def _fed(self, name: str, fed: Fed, shape: Sequence[int], dtype: str) -> Variable:
        self.feeds[name] = fed
        var = fluid.data(name, list(shape), dtype)
        var.stop_gradient = dtype.startswith("int")
        return var

    def parameter(self, shape: Sequence[int]) -> Variable:
        self.need(0, prod(shape))
        first = fluid.initializer.Uniform(-1.0, 1.0) if len(shape) < 2 else None
        return layers.create_parameter(list(shape), self.dtype, default_initializer=first)

    def constant(self, shape: Sequence[int]) -> Variable:
        return layers.fill_constant(list(shape), self.dtype, self.choices.pick((1.0, 0.5, 3.0, -0.25)))

    def state(self, shape: Sequence[int], value: float = 0.5) -> Variable:
        """A variable of the scope that is no parameter."""
        name = fluid.unique_name.generate("state")
        return layers.create_global_var(list(shape), value, self.dtype, persistable=True, name=name)

    # -- work
    def need(self, products: int, elements: int = 1) -> None:
        """Take so much of the work that is left; `Unfit` if there is not so much."""
        if products > self.products or elements > self.elements:
            raise Unfit(f"{products} multiplications and {elements} elements are too many")
        self.products -= products

    def width(self, rows: int, each: int = 1, most: int = 5000) -> int:
        """An extent for a result with this many rows and this many multiplications per number."""
        most = min(most, self.elements // max(rows, 1), self.products // max(rows * each, 1))
        if most < 1:
            raise Unfit("nothing is left to do")
        return self.choices.extent(most)


def broadcast_shape(c: Choices, shape: Sequence[int]) -> list[int]:
    """A shape that is broadcast to `shape`: the same, its last axes, one number, or ones in some places."""
    kind = c.below(5)
    if kind == 0:
        return list(shape)
    if kind == 1:
        return list(shape[c.between(1, len(shape) - 1) :])
    if kind == 2:
        return [1]
    return [1 if c.chance(50) else extent for extent in shape]


def random_order(c: Choices, count: int) -> list[int]:
    """The numbers below `count` in any order."""
    left = list(range(count))
    return [left.pop(c.below(len(left))) for _ in range(count)]


def dense(gradients: Sequence[Variable | None]) -> list[Variable]:
    """The gradients that are there and are tensors, not rows of a table."""
    return [one for one in gradients if one is not None and one.type is fluid.core.VarType.LOD_TENSOR]


@contextmanager
def refusals() -> Iterator[None]:
    """Inside the ``with``, what Fluid refuses to build is `Unfit`."""
    try:
        yield
    except FluidError as error:
        raise Unfit(f"{type(error).__name__}: {error}") from error


def _jumps(program: fluid.Program) -> bool:
    """Whether parameters become exactly 0 where gradients do: FTRL without a threshold.

    Of gradients that cancel out, some engines make 0, others what rounding leaves, and the next run is one of another net.
    """
    return any(op.type == "ftrl" and not op.attrs.get("l1", 0.0) for op in program.global_block().ops)


def _normalized_extent(op: Operator) -> int | None:
    """How many elements an op normalizes together; None for other ops."""
    if op.type not in ("layer_norm", "batch_norm", "instance_norm", "group_norm"):
        return None
    attrs, shape = op.definition.defaults(op.attrs), op.block.var(op.inputs["X"][0]).shape  # type: ignore[union-attr]
    if op.type == "layer_norm":
        return prod(shape[attrs["begin_norm_axis"] :])
    if op.type == "batch_norm":
        return prod(shape) // shape[1]
    return prod(shape[1:]) // (shape[1] if op.type == "instance_norm" else attrs["groups"])


def case_of(title: str, choices: Choices, build: Callable[[Choices], tuple[Builder, list[Variable], int]]) -> Case:
    """The case that a generator makes of choices.

    Args:
        build: appends to the default programs; returns the builder, what is fetched, and the number of runs.
    """
    with fresh_programs() as (main, startup), refusals(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a loss without parameters, a name with no gradient
        main.random_seed = startup.random_seed = 1
        builder, fetches, runs = build(choices)
        if any(_normalized_extent(op) == 1 for op in main.global_block().ops):
            raise Unfit(
                "a norm over single elements: what is 0 without rounding, XLA fuses into a number times 1 / sqrt(epsilon)"
            )
        feeds = [builder.feeds]
        for _ in range(0 if _jumps(main) else runs - 1):
            feeds.append({name: fed.next_one() for name, fed in feeds[-1].items()})
        return Case(title, main, startup, feeds, names_of(fetches))

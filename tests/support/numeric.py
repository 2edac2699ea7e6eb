"""Running programs without a plan, and derivatives by central differences along random directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from fluid.executor.runtime.random import RandomStreams
from fluid.executor.stepwise.interpreter import Environment, Machine, step_captures
from fluid.ir.program import Program
from fluid.values.lod_array import LoDArray, array_of

__all__ = ["Arrays", "assert_gradients", "direction_like", "dot", "flat", "interpret", "interpreter", "moved", "slope"]

Arrays = Mapping[str, Any]
"""Slot or name -> array, or list of arrays."""

STEP = 1e-5


def interpreter(program: Program, fetch: Sequence[Any]) -> Callable[[Arrays], list[Any]]:
    """A function of arrays to feed that runs block 0 op by op and gives the values of `fetch` (variables, names, or None for
    None).

    What only shapes decide is worked out in the first call; the program must not change between calls.
    """
    streams = RandomStreams(np, program.random_seed)
    block = program.global_block()
    machine = Machine(np, streams, step_captures(program))
    names = [None if item is None else item if isinstance(item, str) else item.name for item in fetch]

    def run(feed: Arrays) -> list[Any]:
        streams.begin(0)
        values = {name: value if isinstance(value, (list, LoDArray)) else np.array(value) for name, value in feed.items()}
        environment = Environment(block, None, values)
        machine.run_block(block, environment)
        return [None if name is None else array_of(environment.get(name)) for name in names]

    return run


def interpret(program: Program, feed: Arrays, fetch: Sequence[Any]) -> list[Any]:
    """Run block 0 op by op on these arrays; the values of `fetch`, as of `interpreter`."""
    return interpreter(program, fetch)(feed)


def flat(value: Any) -> list[Any]:
    """The arrays of a slot, as a list."""
    return value if isinstance(value, list) else [value]


def dot(left: Any, right: Any) -> float:
    """Sum of products over all elements of arrays or of lists of arrays; None counts as zeros. Of complex numbers, the sum of
    products of their parts."""
    pairs = [(a, b) for a, b in zip(flat(left), flat(right), strict=True) if a is not None and b is not None]
    return float(sum((np.conj(a) * b).sum().real for a, b in pairs))


def direction_like(rng: np.random.Generator, value: Any) -> Any:
    """Random arrays of the same shapes and dtypes."""
    if isinstance(value, list):
        return [direction_like(rng, item) for item in value]
    dtype, drawn = np.asarray(value).dtype, rng.standard_normal(np.shape(value))
    return np.asarray(drawn + 1j * rng.standard_normal(np.shape(value)) if dtype.kind == "c" else drawn, dtype)


def moved(value: Any, direction: Any, by: float) -> Any:
    """`value` and `by` times `direction`."""
    if isinstance(value, list):
        return [moved(a, d, by) for a, d in zip(value, direction, strict=True)]
    return np.asarray(value + by * direction)


def slope(function: Callable[[dict[str, Any]], float], at: Arrays, name: str, direction: Any, step: float = STEP) -> float:
    """The derivative of `function` at `at` along `direction` in its argument `name`, by central differences."""
    ahead = function({**at, name: moved(at[name], direction, step)})
    behind = function({**at, name: moved(at[name], direction, -step)})
    return (ahead - behind) / (2 * step)


def assert_gradients(
    function: Callable[[dict[str, Any]], float],
    at: Arrays,
    gradients: Arrays,
    rng: np.random.Generator,
    tolerance: float = 1.0,
    directions: int = 2,
    step: float = STEP,
    within: Mapping[str, Callable[[Any], Any]] = MappingProxyType({}),
) -> None:
    """Compare gradients by name with central differences of `function` along random directions; `within` restricts the directions
    of some arguments."""
    for name, gradient in gradients.items():
        for found, value in zip(flat(gradient), flat(at[name]), strict=True):
            assert found is None or np.shape(found) == np.shape(value), (
                f"d{name} is {np.shape(found)}, {name} is {np.shape(value)}"
            )
        for _ in range(directions):
            direction = direction_like(rng, at[name])
            direction = within[name](direction) if name in within else direction
            expected, found = slope(function, at, name, direction, step), dot(gradient, direction)
            allowed = (
                2e-6
                * tolerance
                * max(1.0, abs(expected), *(float(np.abs(g).max(initial=0)) for g in flat(gradient) if g is not None), 0.0)
            )
            assert abs(found - expected) <= allowed, f"d{name} along a direction: {found!r}, by central differences {expected!r}"

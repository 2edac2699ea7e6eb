"""Counts the trips of a loop at trace time, if its condition depends on known values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fluid.errors import FluidError
from fluid.ir.dataflow import needed_ops
from fluid.ir.program import Operator
from fluid.ir.versions import BlockVersions
from fluid.opdef.registry import SEEDS

from ..runtime.random import RandomStreams
from ..stepwise.handlers import HANDLERS
from ..stepwise.interpreter import Environment, Machine
from .arrays import Array

_MOST_TRIPS = 1 << 16
"""Loops that run more often are not counted."""


@dataclass(frozen=True)
class Trips:
    """The known number of trips of a loop, and facts that follow from it.

    Attributes:
        count: the number of trips.
        last: name -> final value, for the carried values that decide the number.
        lengths: op that writes to an array of tensors -> length after its last write: the greatest position plus one.
    """

    count: int
    last: dict[str, Any]
    lengths: dict[Operator, int]


class _Slice:
    """The ops of a loop's block that compute certain values from known values alone."""

    def __init__(self, tracer: Any, op: Operator, env: Environment) -> None:
        self._region = tracer.region(op)
        self._env, self._body = env, self._region.body
        self._versions = BlockVersions(self._body)
        self.indices: set[int] = set()
        self.values: dict[str, Any] = {}

    def add(self, value: tuple[str, int]) -> bool:
        """Add the ops that compute a value; returns whether the value is known."""
        needed = {value, (value[0], 0)}
        indices = needed_ops(self._versions, needed, carried=self._region.carried)
        if not all(_is_plain(self._body.ops[index]) for index in indices):
            return False
        starts = {}
        for name, version in needed:
            if version or name in self._body.vars or (outside := self._env.get(name)) is None:
                continue
            if type(outside) is not Array or not outside.is_known:
                return False
            starts[name] = outside
        self.indices.update(indices)
        self.values.update({name: np.array(start.numpy()) for name, start in starts.items() if name not in self.values})
        return True

    def add_positions(self) -> dict[int, str]:
        """Add the ops that compute known write positions in arrays; returns op index -> name of its position."""
        positions = {}
        for index, op in enumerate(self._body.ops):
            if op.type == "write_to_array" and self.add(self._versions.before(op.input("I")[0], index)):
                positions[index] = op.input("I")[0]
        return positions


def known_trips(tracer: Any, op: Operator, env: Environment) -> Trips | None:
    """Count the trips of a loop by running the ops for its condition on numpy; None if that needs an unknown value."""
    region = tracer.region(op)
    body, (condition,) = region.body, op.input("Condition")
    needed = _Slice(tracer, op, env)
    if not needed.add(BlockVersions(body).current(condition)):
        return None
    positions = needed.add_positions()
    values, order = needed.values, sorted(needed.indices | positions.keys())
    carried = [name for name in values if name in region.writes]
    host, count, lengths = Environment(op.block, None, values), 0, dict.fromkeys((body.ops[index] for index in positions), 0)
    counting = Machine(np, RandomStreams(np, 1), {})
    try:
        while bool(values[condition].reshape(())):
            if count == _MOST_TRIPS:
                return None
            inner = Environment(body, host)
            for index in order:
                body_op = body.ops[index]
                if index in positions:
                    lengths[body_op] = max(lengths[body_op], int(inner.need(positions[index]).reshape(())) + 1)
                else:
                    counting.run_op(body_op, inner)
            count += 1
    except FluidError:
        return None  # the run itself will report it
    return Trips(count, {name: values[name] for name in carried}, lengths)


def _is_plain(op: Operator) -> bool:
    """Whether an op computes its outputs from its inputs alone, without side effects or random draws."""
    definition = op.definition
    return definition is not None and op.type not in HANDLERS and not (SEEDS & definition.attrs.keys())

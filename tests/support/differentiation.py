"""Helpers for tests of differentiation: `Case`, a float64 program whose gradients are checked whenever it is differentiated."""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
from numeric import assert_gradients, interpret, interpreter
from paths import TESTS

import fluid
from fluid import layers
from fluid.executor.stepwise.needed import ops_to_run
from fluid.formats.text import parse_program_text
from fluid.ir.program import Parameter, Program, Variable

__all__ = ["Case", "assert_golden", "new_case"]

GOLDEN = TESTS / "golden" / "backward"
UPDATE = bool(os.environ.get("FLUID_UPDATE_GOLDEN"))


def assert_golden(name: str, text: str) -> None:
    """Hold `text` against the file ``golden/backward/<name>.txt``; with FLUID_UPDATE_GOLDEN set, write it there."""
    path = GOLDEN / f"{name}.txt"
    if UPDATE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{path} is missing: look at the program and, if it is right, run again with FLUID_UPDATE_GOLDEN=1"
    assert text == path.read_text(encoding="utf-8"), f"not the program of {path.name}; FLUID_UPDATE_GOLDEN=1 rewrites it"


class Case:
    """A program, its feeds, and its gradients so far.

    `gradients` and `append_backward` are Fluid's, followed by checks: the program is well formed; run by its plan, and
    op by op after a round trip through the wire, it gives the same bits; each gradient is what central differences of the
    program as it was before give; and no gradient from an earlier call has another value.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.program, self.startup = Program(), Program()
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))
        self.values: dict[str, Any] = {}
        self.executor = fluid.Executor(fluid.CPUPlace())
        self._earlier: dict[str, Any] = {}

    # -- building
    def data(self, name: str, shape: Sequence[int] = (2, 3), value: Any = None, dtype: str = "float64") -> Variable:
        """A variable that is fed, and has a gradient if it can."""
        self.values[name] = np.asarray(self.rng.uniform(0.2, 0.9, shape) if value is None else value, dtype)
        var = layers.data(name, list(shape), append_batch_size=False, dtype=dtype)
        var.stop_gradient = False
        return var

    def parameter(self, name: str, shape: Sequence[int] = (2, 3)) -> Parameter:
        self.values[name] = self.rng.uniform(0.2, 0.9, shape)
        return self.program.global_block().create_parameter(name=name, shape=shape, dtype="float64")

    def shape_of(self, var: Variable) -> tuple[int, ...]:
        """The shape of a variable's value; feeds may have a declared shape with -1."""
        return tuple(self.values[var.name].shape) if var.name in self.values else var.shape

    @property
    def op_types(self) -> list[str]:
        return [op.type for op in self.program.global_block().ops]

    def ops(self, op_type: str) -> list[Any]:
        """The ops of this type in all blocks."""
        return [op for block in self.program.blocks for op in block.ops if op.type == op_type]

    # -- differentiating
    def append_backward(self, loss: Variable, *args: Any, frozen: Iterable[str] = (), **kwargs: Any) -> dict[str, Variable]:
        """`fluid.append_backward`, checked; parameter name -> gradient. `frozen` names what no gradient flows through."""
        before = self.program.clone()
        pairs = fluid.append_backward(loss, *args, **kwargs)
        found = {parameter.name: grad for parameter, grad in pairs}
        self._check(before, [(loss.name, None)], found, frozen)
        return found

    def gradients(
        self, targets: Any, inputs: Any, target_gradients: Any = None, frozen: Iterable[str] = (), **kwargs: Any
    ) -> list[Variable | None]:
        """`fluid.gradients`, checked. `frozen` names what no gradient flows through; it is fed instead of computed."""
        before = self.program.clone()
        found = fluid.gradients(targets, inputs, target_gradients, **kwargs)
        inputs, targets = _listed(inputs), _listed(targets)
        seeds = _listed(target_gradients) or [None] * len(targets)
        weighted = [(target.name, None if seed is None else seed.name) for target, seed in zip(targets, seeds, strict=True)]
        self._check(before, weighted, dict(zip([var.name for var in inputs], found, strict=True)), frozen)
        return found

    def golden(self, text: str | None = None) -> None:
        """Hold the printed program, which parses back, against the golden file of this case."""
        text = self.program.to_string() if text is None else text
        assert parse_program_text(text).to_string() == text
        assert_golden(self.name, text)

    # -- running
    def run(self, fetch: Iterable[Variable | str]) -> dict[str, Any]:
        """The values of these variables, after all the ways to run the program have been found to agree on them."""
        names = [item if isinstance(item, str) else item.name for item in fetch]
        program = self.program
        program.verify()
        with patch.dict(os.environ, FLUID_NATIVE="0"):  # which rounds otherwise than what runs op by op
            found = self._execute(self.executor.run, program, names)
        parsed = Program.parse_from_string(program.serialize_to_string())
        parsed.verify()
        values = self._execute(self.executor.interpret, parsed, names)
        for name in names:
            same = found[name].dtype == values[name].dtype and np.array_equal(found[name], values[name])
            assert same, f"{name} is another one op by op, after a round trip"
        return found

    def _execute(self, run: Any, program: Program, names: list[str]) -> dict[str, Any]:
        scope = fluid.Scope()
        self.executor.run(self.startup, scope=scope)
        feed = {}
        block = program.global_block()
        for name, value in self._inputs(program).items():
            if block.vars[name].persistable:
                scope.var(name).get_tensor().set(value, self.executor.place)
            else:
                feed[name] = value
        return dict(zip(names, run(program, feed, names, scope=scope), strict=True))

    def _inputs(self, program: Program) -> dict[str, Any]:
        """The inputs of the program, parameters included; parameters without a value get one."""
        for parameter in program.all_parameters():
            if parameter.name not in self.values:
                self.values[parameter.name] = self.rng.uniform(0.2, 0.9, parameter.shape)
        persistable = [name for name, var in program.global_block().vars.items() if var.persistable and name not in self.values]
        scope = fluid.Scope()
        self.executor.run(self.startup, scope=scope)
        self.values.update({name: np.array(scope.find_var(name).get_tensor()) for name in persistable})
        return {name: value for name, value in self.values.items() if name in program.global_block().vars}

    # -- checking
    def _check(
        self,
        before: Program,
        targets: Sequence[tuple[str, str | None]],
        found: Mapping[str, Variable | None],
        frozen: Iterable[str],
    ) -> None:
        """Compare gradients `found`, by name, with differences of the weighted targets."""
        names = [grad.name for grad in found.values() if grad is not None]
        values = self.run(dict.fromkeys([*names, *self._earlier, *(name for name, _ in targets)]))
        for name, value in self._earlier.items():
            np.testing.assert_allclose(values[name], value, rtol=1e-11, atol=1e-13, err_msg=f"{name} has changed")
        self._earlier.update((name, values[name]) for name in names)

        frozen = list(frozen)
        at = self._inputs(before)
        inner = [name for name in found if name not in at]
        at.update(zip([*inner, *frozen], interpret(only(before, [*inner, *frozen]), at, [*inner, *frozen]), strict=True))
        fetch = [name for name, _ in targets]

        @cache
        def objective_of(*fixed: str) -> Callable[[dict[str, Any]], float]:
            run = interpreter(only(cut(before, fixed), fetch), fetch)

            def objective(feed: dict[str, Any]) -> float:
                return sum(
                    float(value.sum() if weight is None else (value * feed[weight]).sum())
                    for value, (_, weight) in zip(run(feed), targets, strict=True)
                )

            return objective

        block = self.program.global_block()
        for name, grad in found.items():
            var = block.vars[name]
            if grad is None and (var.stop_gradient or at[name].dtype.kind != "f" or name in frozen):
                continue
            assert grad is None or (grad.shape == var.shape and grad.dtype == var.dtype)
            fixed = dict.fromkeys([*frozen, *([name] if name in inner else [])])
            gradient = np.zeros_like(at[name]) if grad is None else values[grad.name]
            assert_gradients(objective_of(*fixed), at, {name: gradient}, self.rng)


def cut(program: Program, names: Iterable[str]) -> Program:
    """A copy of the program without ops that write these names."""
    copy = program.clone()
    for op in copy.global_block().ops:
        for name in names:
            if name in op.output_arg_names:
                op.rename_output(name, name + "@CUT")
    return copy


def only(program: Program, fetch: Sequence[str]) -> Program:
    """A copy of the program with the ops that `fetch` needs."""
    copy = program.clone()
    block = copy.global_block()
    block.ops[:] = ops_to_run(block, fetch)
    return copy


@contextlib.contextmanager
def new_case(test_name: str) -> Iterator[Case]:
    """A case whose program is the default one inside the ``with``, called after the test."""
    case = Case(re.sub(r"[^a-z0-9]+", "_", test_name.removeprefix("test_").lower()).strip("_"))
    with fluid.program_guard(case.program, case.startup), fluid.unique_name.guard():
        yield case


def _listed(value: Any) -> list[Any]:
    return [] if value is None else [value] if isinstance(value, Variable) else list(value)

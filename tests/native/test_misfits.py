"""Native code computes every valid op or leaves it to numpy: no lowering fails for any shape or attribute."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from checks import each, some
from samples import OPS
from test_bad_arguments import Case, counts_of, distinct, mutations, shown

import fluid
from fluid.errors import FluidError
from fluid.executor.planned import plan
from fluid.opdef import registry
from fluid.opdef.registry import Rule


@pytest.mark.random
@each("op_type", some(sorted(OPS)))
def test_changed_samples_and_their_gradients_have_plans(op_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing lowering ends on numpy, with a warning that it is a fault."""
    monkeypatch.setenv("FLUID_NATIVE", "1")
    monkeypatch.setattr(plan, "_FEWEST", 1)
    definition, faults = registry.get(op_type), []
    for sample in distinct(OPS[op_type])[:1]:
        counts = counts_of(op_type, sample)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            changed = list(mutations(definition, sample))
        for mutation in changed:
            case = Case(definition, sample, mutation, counts)
            fetches = outputs_and_gradients(case)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                warnings.filterwarnings("error", message=".*native code.*")
                try:
                    fluid.Executor().plan(case.program, case.feed, fetches)
                except FluidError:
                    continue
                except RuntimeWarning as warning:
                    faults.append(f"{mutation.argument}: {mutation.what} ({shown(mutation)}): {warning}")
    assert not faults, "\n".join(faults)


def outputs_and_gradients(case: Case) -> list[Any]:
    """The outputs of an op, and the gradients of floating ones; none if the op or its gradient refuses its inputs."""
    definition = case.definition
    try:
        case.program.global_block().append_op(definition.type, case.inputs, case.outputs, case.mutation.attrs)
        outputs = [var for value in case.outputs.values() for var in (value if isinstance(value, list) else [value])]
        if not isinstance(definition.rule, Rule):
            return outputs
        targets, inputs = case.floats(case.outputs, definition.rule.cotangents), case.floats(case.inputs, definition.rule.wrt)
        gradients = fluid.gradients(targets, inputs) if targets and inputs else []
        return [*outputs, *(gradient for gradient in gradients if gradient is not None)]
    except FluidError:
        return []

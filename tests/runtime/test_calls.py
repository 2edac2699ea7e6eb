"""Calls of prepared kernels are data: see `fluid.executor.runtime.calls`."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from checks import each, some
from conformance.case import CASES, Case
from numeric import flat

from fluid.executor.binding import arrays as binding
from fluid.executor.binding.compiled import apply_op
from fluid.executor.kernels import loss
from fluid.executor.runtime.calls import Call, destinations, fault_of, fill, name_of
from fluid.opdef.registry import Rule, grad_slot


def bound_by(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """The calls of each op, as it is bound; each looks, when it is made, whether it writes to its destinations alone."""
    calls: list[Call] = []
    bind_op = binding.bind

    def bind(*args: Any) -> list[Any]:
        made = bind_op(*args)
        calls.extend(made)
        return [partial(make, call) for call in made]

    monkeypatch.setattr(binding, "bind", bind)
    return calls


def make(call: Call) -> Any:
    read = [item for item in arrays_in([*call.args, *call.keywords.values()]) if item.size]
    written = destinations(call)
    read = [array for array in read if not any(np.may_share_memory(array, other) for other in written)]
    before = [array.copy() for array in read]
    result = call()
    for old, new in zip(before, read, strict=True):
        assert old.tobytes() == new.tobytes(), f"{name_of(call.func)} writes to what is no destination"
    return result


def arrays_in(value: Any) -> list[Any]:
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, partial):
        value = [*value.args, *value.keywords.values()]
    return [array for item in value for array in arrays_in(item)] if isinstance(value, (list, tuple)) else []


def calls_of(key: str, bound: list[Call]) -> list[Call]:
    """The calls of a sample's op and of its gradient, all of them made."""
    bound.clear()
    case = Case(key, CASES[key][1].dtypes[0])
    outputs = case.outputs
    rule = case.definition.rule
    if isinstance(rule, Rule) and case.wrt and not case.definition.inline_grad:
        case.grad(case.grad_inputs(case.cotangents()), {grad_slot(slot) for slot in case.wrt})
    assert bound or not any(np.size(item) for value in outputs.values() for item in flat(value))
    return bound


@pytest.mark.random
@each("op_type", some(sorted({op_type for op_type, _ in CASES.values()})))
def test_calls_are_data(op_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call of the samples, and of their gradients, is one of a named function on data, and writes to its destinations."""
    bound = bound_by(monkeypatch)
    keys = [key for key in CASES if CASES[key][0] == op_type]
    assert [(key, fault) for key in keys for call in calls_of(key, bound) if (fault := fault_of(call))] == []


def test_what_is_no_data_is_named() -> None:
    x = np.zeros(3)

    class Hidden:
        def __call__(self) -> None:
            np.add(x, 1, x)

    for call, what in (
        (lambda: None, "is not a partial"),
        (partial(lambda: None), "has no name"),
        (partial(x.fill, 0), "has no name"),
        (partial(Hidden()), "has no name"),
        (partial(np.copyto, x, [Hidden()]), "is not data"),
        (partial(apply_op, "tanh", {"X": lambda: x}), "is not data"),
        (partial(apply_op, "tanh", [partial(x.fill, 0)]), "has no name"),
    ):
        assert what in fault_of(call)


def test_names_and_destinations() -> None:
    x, y, out = np.zeros(3), np.zeros(3), np.zeros(3)
    for call, name in (
        (partial(np.add, x, y, out), "add"),
        (partial(np.maximum, x, y, out=out), "maximum"),
        (partial(np.add.reduce, x, 0, None, out), "add.reduce"),
        (partial(np.copyto, out, x), "copyto"),
        (partial(np.dot, x, y, out), "dot"),
        (partial(np.clip, x, 0, 1, out), "clip"),
        (fill(np, out, 0), "ndarray.fill"),
        (partial(loss._soft_losses, np, x, y, 0, out), "kernels.loss._soft_losses"),
    ):
        assert name_of(call.func) == name
        assert [array is out for array in destinations(call)] == [True]
    assert destinations(partial(np.setbufsize, 512)) == []

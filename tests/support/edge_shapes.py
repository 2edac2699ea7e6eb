"""Samples of ops with dimensions of 0 and 1 in each place, and what has to hold of each: see `check_edge`.

The tests check some of all, ``benchmarks/edge_shapes.py`` every one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from conformance.case import CASES, TOLERANCES, Case, OneOp, call_reference, is_float
from conformance.on_numpy import assert_inferred
from numeric import flat
from samples import Sample
from test_schema import OURS

from fluid.backward import gradients
from fluid.errors import FluidError
from fluid.executor.binding.arrays import specs_of
from fluid.executor.executor import Executor
from fluid.executor.kernels.table import KERNELS
from fluid.executor.runtime.scope import Scope
from fluid.opdef.inference import infer_specs
from fluid.opdef.registry import grad_slot

__all__ = ["Edge", "all_edges", "check_edge", "edges"]

Place = tuple[str, int, int]
"""A dimension of an input: slot, index in the slot, axis."""

OF_THESE_INPUTS = {"hash-0", "log_softmax-7", "logsumexp-11", "sequence_scatter-0", "softmax-7"}
OF_THESE_INPUTS |= {f"{name}-{number}" for name in ("filter_by_instag", "generate_mask_labels") for number in range(6)}
"""Samples whose statement is about their own inputs alone."""


@dataclass
class Edge:
    """A sample with some dimensions of another size; `sample` makes it."""

    key: str
    what: str
    sample: Callable[[], Sample]


def cropped(array: Any, axes: dict[int, int]) -> Any:
    """An array with the first so many indices of some axes; ones where it has none."""
    for axis, size in axes.items():
        if size > array.shape[axis]:
            array = np.ones((*array.shape[:axis], size, *array.shape[axis + 1 :]), array.dtype)
        array = np.take(array, np.arange(size), axis)
    return array


def cropped_lod(lod: Any, rows: int) -> Any:
    """A LoD whose last level ends at `rows`."""
    return lod and (*lod[:-1], (*(min(offset, rows) for offset in lod[-1][:-1]), rows))


def resized(sample: Sample, places: dict[Place, int]) -> Sample:
    """A sample with these dimensions of these sizes."""
    inputs, lods = dict(sample.inputs), dict(sample.lods)
    for slot in {slot for slot, _, _ in places}:
        items, its_lods = list(flat(inputs[slot])), lods.get(slot)
        for index, item in enumerate(items):
            axes = {axis: size for (name, number, axis), size in places.items() if (name, number) == (slot, index)}
            items[index] = cropped(np.asarray(item), axes)
            if 0 in axes and its_lods and isinstance(its_lods, list):
                its_lods = [cropped_lod(lod, axes[0]) if number == index else lod for number, lod in enumerate(its_lods)]
            elif 0 in axes and its_lods:
                its_lods = cropped_lod(its_lods, axes[0])
        inputs[slot] = items if isinstance(inputs[slot], list) else items[0]
        if its_lods:
            lods[slot] = its_lods
    return replace(sample, inputs=inputs, lods=lods)


def of_rank_0(sample: Sample, slots: list[str]) -> Sample:
    """A sample with one element, without a dimension, in these slots."""
    inputs = dict(sample.inputs)
    for slot in slots:
        items = [np.asarray(item).reshape(-1)[:1].sum(dtype=np.asarray(item).dtype)[()] for item in flat(inputs[slot])]
        arrays = [np.asarray(item) for item in items]
        inputs[slot] = arrays if isinstance(inputs[slot], list) else arrays[0]
    return replace(sample, inputs=inputs)


def edges(key: str) -> Iterator[Edge]:
    """Variants of a sample with sizes of 0 and 1: for each dimension, for equal dimensions, for each axis, for all dimensions;
    and with inputs of rank 0."""
    sample = CASES[key][1]
    sample = replace(sample, inputs={slot: value for slot, value in sample.inputs.items() if value is not None})
    sizes: dict[Place, int] = {
        (slot, index, axis): size
        for slot, value in sample.inputs.items()
        for index, item in enumerate(flat(value))
        for axis, size in enumerate(np.shape(item))
    }
    if max(sizes.values(), default=0) > 10**6:
        return  # of values that take no memory, and would
    groups = [{place} for place in sizes]
    for axes in ({0}, {1}, {2}, set(range(9))):
        together = {place for place in sizes if place[2] in axes}
        groups += [together, *({place for place in together if sizes[place] == size} for size in {*sizes.values()})]
    for group in dict.fromkeys(map(frozenset, groups)):
        told = ", ".join(f"{slot}[{index}].shape[{axis}]" for slot, index, axis in sorted(group))
        for size in (0, 1):
            if any(sizes[place] != size for place in group):
                places = dict.fromkeys(group, size)
                yield Edge(key, f"{told} = {size}", lambda places=places: resized(sample, places))
    for slots in [[slot] for slot in sample.inputs] + [list(sample.inputs)]:
        if not any(slot in sample.lods for slot in slots):
            yield Edge(key, f"{', '.join(slots)} of rank 0", lambda slots=slots: of_rank_0(sample, slots))


def all_edges() -> dict[str, list[Edge]]:
    """The edges of all samples, by op. Left out are the ops of gradients, which only get what other ops have taken; the gradients
    of those reach them."""
    by_op: dict[str, list[Edge]] = {}
    for key, (op_type, _) in CASES.items():
        if op_type not in OURS and not op_type.endswith("_grad_grad"):
            by_op.setdefault(op_type, []).extend(edges(key))
    return by_op


def is_refusal(error: BaseException | None) -> bool:
    """Whether an error is Fluid's, down to its first cause: nothing that numpy says."""
    while isinstance(error, FluidError):
        error = error.__cause__
    return error is None


def check_edge(edge: Edge) -> bool:
    """Check an op on a sample with small sizes; returns whether the op accepts it. Compares with the sample's statement,
    inference with results, plan with interpreter, and gradients of two orders with shapes and rules.

    Otherwise the op refuses it; an error of numpy, a warning of numpy or anything wrong is an `AssertionError`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            _check(Case(edge.key, "float64", edge.sample()))
        except FluidError as error:
            assert is_refusal(error), f"{edge.key}, {edge.what}: {error}"
            return False
        except Exception as error:
            raise AssertionError(f"{edge.key}, {edge.what}: {type(error).__name__}: {error}") from error
    return True


def _check(case: Case) -> None:
    sample = case.sample
    inferred = infer_specs(case.definition, specs_of(case.with_lods(case.inputs)), case.attrs)
    assert_inferred(inferred, case.outputs, exact=not sample.shapes_by_value)
    _check_statement(case)
    one = OneOp(case)
    fetch = [var for value in one.outputs.values() for var in flat(value)]
    grads = one.first_order()[0] if case.wrt else []
    first = [grad for grad in grads if grad is not None]
    fetch += first
    if first and sample.orders > 1:
        fetch += [grad for grad in gradients(first, one.wrt) if grad is not None]
    one.program.random_seed = 1
    expected = Executor().interpret(one.program, one.fed, fetch, Scope())
    planned = Executor().run(one.program, one.fed, fetch, scope=Scope())
    for var, value, reference in zip(fetch, planned, expected, strict=True):
        assert value.dtype == reference.dtype and value.shape == reference.shape, f"{var.name} has another shape in the plan"
        assert np.array_equal(value, reference, equal_nan=is_float(value)), f"{var.name} has other values in the plan"
    shapes = {var.name: value.shape for var, value in zip(fetch, expected, strict=True)}
    for var, grad in zip(one.wrt, grads, strict=False):
        assert grad is None or shapes[grad.name] == one.feed[var.name].shape, f"the gradient of {var.name} is {shapes[grad.name]}"
    if case.wrt:
        _check_gradients(case)


def _check_statement(case: Case) -> None:
    """Outputs against the sample's plain statement, where that can make something of the inputs."""
    if case.sample.reference is None or case.sample.random or case.key in OF_THESE_INPUTS:
        return
    try:
        expected = call_reference(case.sample, case.inputs, case.definition)
    except Exception:  # numpy has no answer, or the statement is of other shapes
        return
    rtol, atol = (1e3 * limit * case.sample.tolerance for limit in TOLERANCES["float64"])
    for slot, values in expected.items():
        for out, value in zip(flat(case.outputs[slot]), flat(values), strict=True):
            if np.shape(value) == out.shape:  # statements may say the shape that their sample has; inference is asked above
                np.testing.assert_allclose(out, value, rtol, atol, err_msg=slot)


def _check_gradients(case: Case) -> None:
    cotangents = case.cotangents()
    expected = case.by_rule(cotangents, set(case.wrt))
    kernel = case.definition.grad_type in KERNELS
    found = case.grad(case.grad_inputs(cotangents), {grad_slot(slot) for slot in case.wrt}) if kernel else {}
    for slot in case.wrt:
        for value, own in zip(flat(expected[slot]), flat(case.inputs[slot]), strict=True):
            assert value is None or value.shape == own.shape, f"the rule makes a gradient of {slot} of shape {value.shape}"
        for one, other in zip(flat(found.get(grad_slot(slot), [])), flat(expected[slot]) if kernel else [], strict=True):
            np.testing.assert_allclose(one, other, 1e-8, 1e-9, err_msg=slot)

"""The parts of an engine: its own kernels, an array namespace, and how calls are made (see executor/kernels/README.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import recording
from checks import each, some
from conformance.case import CASES, NUMBERS, Case
from numeric import flat
from recording import Namespace, Recording, ValueAsked

from fluid.errors import ExecutionError, FluidError
from fluid.executor.binding.compiled import Argument, Compiled, compiled, updates_of
from fluid.executor.kernels import engine as engines
from fluid.executor.kernels.engine import KernelEngine, add_engine, engine_of
from fluid.executor.kernels.table import KERNELS, Kernel
from fluid.executor.runtime.calls import Call, name_of
from fluid.executor.runtime.specs import spec_of
from fluid.opdef import registry
from fluid.opdef.registry import OpDef, Rule, grad_slot
from fluid.values.lod_array import array_of

XP = Namespace()


@pytest.fixture(autouse=True)
def the_engine() -> Iterator[None]:
    add_engine(KernelEngine(XP, checks_values=False, writes_functions=False))
    yield
    engines._engines.pop(XP)


def bound_to(xp: Any, definition: OpDef, attrs: dict[str, Any], values: dict[str, Any], wants: Any) -> Compiled:
    arguments = [
        Argument(slot, None if item is None else spec_of(item)) for slot, value in values.items() for item in flat(value)
    ]
    updates = updates_of(definition)
    return compiled(definition, attrs, arguments, xp, wants=wants, into=updates, on_copies=True, rng=recording.refused)


def arrays_in(values: dict[str, Any]) -> list[Any]:
    arrays = [array_of(item) for value in values.values() for item in flat(value)]
    return [None if array is None else np.array(array, order="C") for array in arrays]


def results(found: Any) -> list[Any]:
    return [array_of(value) for value in found] if isinstance(found, tuple) else [array_of(found)]


def assert_played_back(definition: OpDef, attrs: dict[str, Any], values: dict[str, Any], wants: Any = None) -> None:
    """Play back a recording made on zeros; it gives the bits of the kernel."""
    inputs = arrays_in(values)
    with np.errstate(all="ignore"):
        expected = results(bound_to(np, definition, attrs, values, wants).bound_run(*arrays_in(values)))
        recording.current = Recording()
        zeros = [None if array is None else recording.current.input(np.zeros_like(array)) for array in inputs]
        outputs = results(bound_to(XP, definition, attrs, values, wants).bound_run(*zeros))
        played = recording.current.play([array for array in inputs if array is not None], outputs)
    for mine, value in zip(played, expected, strict=True):
        assert (mine.shape, mine.dtype) == (value.shape, value.dtype)
        assert mine.tobytes() == value.tobytes()


_COUNTS = "how many there are decides a shape"
_LENGTHS = "lengths decide what is computed"
_SEARCH = "what is found at one step decides the next"
_SINGULAR = "matrices that cannot be inverted are refused, such as the zeros that are recorded on"
BY_VALUE = {
    **dict.fromkeys(("masked_pick", "masked_place", "masked_select"), _COUNTS),
    **dict.fromkeys(("place_at_most", "take_at_most"), _COUNTS),
    **dict.fromkeys(("unique", "unique_with_counts", "where_index", "sequence_erase"), _COUNTS),
    **dict.fromkeys(("crf_decoding", "linear_chain_crf", "ctc_states", "warpctc", "lod_reset"), _LENGTHS),
    **dict.fromkeys(("sequence_slice", "sequence_sliced", "sequence_unpad", "sequence_mask"), _LENGTHS),
    **dict.fromkeys(("generate_proposals", "generate_proposals_v2", "retinanet_detection_output"), _COUNTS),
    **dict.fromkeys(("rpn_target_assign", "retinanet_target_assign", "generate_proposal_labels"), _COUNTS),
    "generate_mask_labels": _COUNTS,
    **dict.fromkeys(("distribute_fpn_proposals", "collect_fpn_proposals"), _COUNTS),
    **dict.fromkeys(("chunk_eval", "ctc_align", "edit_distance", "similarity_focus"), _SEARCH),
    **dict.fromkeys(("psroi_pool", "psroi_pool_back", "roi_align", "roi_align_back", "roi_pick", "roi_place"), "regions decide"),
    "roi_pool": "regions decide",
    **dict.fromkeys(("prroi_pool", "precise_parts", "precise_parts_back"), "regions decide"),
    **dict.fromkeys(("filter_by_instag", "rows_of_tagged"), _COUNTS),
    **dict.fromkeys(("nms", "multiclass_nms", "multiclass_nms2", "multiclass_nms3", "matrix_nms", "locality_aware_nms"), _COUNTS),
    **dict.fromkeys(("mine_hard_examples", "detection_map"), _COUNTS),
    "bipartite_match": _SEARCH,
    **dict.fromkeys(("range", "linspace", "logspace"), "the numbers decide a shape"),
    **dict.fromkeys(("bincount", "unique_consecutive", "segment_pool", "graph_reindex", "index_put", "picked_sum"), _COUNTS),
    **dict.fromkeys(("graph_sample_neighbors", "weighted_sample_neighbors", "graph_khop_sampler"), _COUNTS),
    **dict.fromkeys(("viterbi_decode", "histogram", "polygamma", "digamma"), _SEARCH),
    **dict.fromkeys(("inverse", "determinant", "slogdeterminant", "matrix_power", "solve", "cholesky_solve"), _SINGULAR),
    **dict.fromkeys(("cholesky", "qr", "lu", "triangular_solve"), _SINGULAR),
    **dict.fromkeys(("eig", "eigvals"), "numpy's eigenvalues are real where all are, and complex otherwise"),
    "lstsq": "residuals are there where all matrices have full rank",
    **dict.fromkeys(("shuffle_batch", "top_p_sampling"), "numbers are drawn"),
    "random_crop": "numbers are drawn",
    **dict.fromkeys(("c_lookup_rows", "c_send_rows"), _COUNTS),
}
"""Ops that depend on values -> in what."""


def by_value(key: str) -> bool:
    """Whether the ops that a sample calls depend on its values, or are drawn."""
    op_type, sample = CASES[key]
    also = {"Scale"} if "interp" in op_type else {"Y"} if op_type in ("im2sequence", "patch_index") else set()
    slots = {*sample.inputs} & {*NUMBERS, *also, *(["Seed"] if sample.random else [])}
    places_alone = op_type == "where" and "X" not in sample.inputs
    return bool(slots) or places_alone or op_type in BY_VALUE or sample.random


def assert_case_played_back(key: str) -> None:
    """The same of an op and of its gradient."""
    case = Case(key, CASES[key][1].dtypes[0])
    assert_played_back(case.definition, case.attrs, case.with_lods(case.inputs))
    rule = case.definition.rule
    if isinstance(rule, Rule) and case.wrt and not case.definition.inline_grad and case.definition.decomposition is None:
        values, wants = case.grad_inputs(case.cotangents()), {grad_slot(slot): True for slot in case.wrt}
        assert_played_back(registry.get(case.definition.grad_type), case.attrs, case.with_lods(values), wants)


PLAYED_BACK = [key for key in CASES if not by_value(key)]


@pytest.mark.random
@each("op_type", some(sorted({CASES[key][0] for key in PLAYED_BACK})))
def test_what_is_recorded_gives_the_same_bits(op_type: str) -> None:
    assert_case_played_back(next(key for key in PLAYED_BACK if CASES[key][0] == op_type))


@pytest.mark.slow
@each("key", PLAYED_BACK)
def test_every_sample_gives_the_same_bits(key: str) -> None:
    assert_case_played_back(key)


@each("op_type", BY_VALUE)
def test_what_is_said_to_depend_on_values_does(op_type: str) -> None:
    if op_type in ("eig", "eigvals") and np.lib.NumpyVersion(np.__version__) >= "2.5.0":
        return  # its eigenvalues are always complex
    keys = [key for key in CASES if CASES[key][0] == op_type]
    assert not all(map(is_played_back, keys))


def is_played_back(key: str) -> bool:
    try:
        assert_case_played_back(key)
    except (AssertionError, AttributeError, FluidError, IndexError, TypeError, ValueError):
        return False
    return True


def test_values_are_not_to_be_asked_for() -> None:
    array = recording.current.input(np.zeros(2))
    for ask in (bool, int, float, lambda value: value.item(), lambda value: value.tolist()):
        with pytest.raises(ValueAsked):
            ask(array[:1])


# ----------------------------------------------------------------------------------------------------------- the doors
def run(op_type: str, **inputs: Any) -> Any:
    definition = registry.get(op_type)
    return recording.plain(bound_to(XP, definition, definition.defaults({}), inputs, None).run(*arrays_in(inputs)))


def test_an_engines_kernel_is_asked_first() -> None:
    def twice(X: Any, Out: Any) -> None:
        Out[...] = X + X

    doubling = Kernel(twice, (("X", "in", "X"), ("Out", "out", "Out")))
    add_engine(KernelEngine(XP, kernels={"tanh": doubling}, writes_functions=False))
    x = np.ones(3, "float32")
    assert run("tanh", X=x).tolist() == [2, 2, 2]
    assert run("square", X=3 * x).tolist() == [9, 9, 9]
    assert KERNELS["tanh"] is not doubling


def test_an_engine_may_leave_out_what_looks_at_values() -> None:
    def nothing(X: Any, Index: Any, Out: Any) -> None:
        Out.fill(7)

    parameters = (("X", "in", "X"), ("Index", "in", "Index"), ("Out", "out", "Out"))
    kernels = {"gather": Kernel(nothing, parameters)}
    add_engine(KernelEngine(XP, kernels, checks_values=False, writes_functions=False))
    assert run("gather", X=np.zeros(3), Index=np.array([9])).tolist() == [7]
    add_engine(KernelEngine(XP, kernels, writes_functions=False))
    with pytest.raises(ExecutionError, match=r"gather: index 9 is outside of \[0, 3\)"):
        run("gather", X=np.zeros(3), Index=np.array([9]))


def test_an_engine_says_what_is_run_for_calls() -> None:
    names: list[str] = []

    def steps(calls: list[Call]) -> Sequence[Callable[[], Any]]:
        names.extend(name_of(call.func) for call in calls)
        return calls

    add_engine(KernelEngine(XP, writes_functions=False, steps=steps))
    run("sigmoid", X=np.zeros(3, "float32"))
    assert names == ["multiply", "exp", "add", "divide"]


def test_a_namespace_that_nobody_added_brings_nothing() -> None:
    engine = engine_of(np)
    assert (engine.kernels, engine.checks_values, engine.writes_functions) == ({}, True, True)
    calls: list[Call] = []
    assert engine.steps(calls) is calls

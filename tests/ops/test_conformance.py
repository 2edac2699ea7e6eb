"""Every op of the registry against its samples: see `samples` for what they are.

`test_samples[tanh]` checks all facets of all samples of an op, each in the dtypes that it is stated for, and reports every facet
that fails, with its sample; ``--case tanh-3`` chooses samples. A facet is a function under `facet`, which says where it applies.
"""

from __future__ import annotations

import inspect
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any
from unittest.mock import patch

import checks
import numpy as np
import pytest
from checks import Checks
from conftest import Facts, merge
from numeric import assert_gradients, direction_like, dot, flat, interpreter
from paths import TESTS
from samples import OPS, STRUCTURAL, Sample, cast, with_lods

import fluid.ops  # noqa: F401  (fills the registry)
from fluid.autodiff.explain import zero_gradients
from fluid.backward import gradients
from fluid.executor.binding.arrays import Recorder, bind_op, lods_of, map_values, specs_of
from fluid.executor.binding.compiled import apply_op
from fluid.executor.executor import Executor
from fluid.executor.kernels.table import KERNELS, kernel
from fluid.executor.runtime.random import RandomStreams
from fluid.executor.runtime.scope import Scope
from fluid.executor.runtime.specs import spec_of
from fluid.formats.text import parse_program_text, program_to_string
from fluid.ir.inference import BuildNamespace
from fluid.ir.program import Program, Variable
from fluid.opdef import registry
from fluid.opdef.inference import infer_specs
from fluid.opdef.registry import REGION, ZERO_GRADIENT, OpDef, Rule, grad_slot, updated_input
from fluid.values.lod_array import array_of, lod_of, with_lod
from fluid.values.spec import Spec
from fluid.values.types import is_floating

pytestmark = pytest.mark.numpy_alone

ORDINARY = {op_type: found for op_type, found in registry.all_ops().items() if found.forward is None and found.rule is not REGION}
CASES: dict[str, tuple[str, Sample]] = {
    f"{op_type}-{number}": (op_type, sample)
    for op_type, samples in sorted(OPS.items())
    for number, sample in enumerate(samples)
    if op_type in ORDINARY
}


class Case:
    """A sample of an op with its floats in one dtype; `sample` may be another one than that of the key.

    Cases of one sample and dtype may share their outputs: `computed` is a dict that holds them, with their LoDs.
    """

    def __init__(self, key: str, dtype: str, sample: Sample | None = None, computed: dict[str, Any] | None = None) -> None:
        self.key, self.dtype = key, dtype
        self.type, own = CASES[key]
        self.sample = own if sample is None else sample
        self.definition = ORDINARY[self.type]
        self.inputs = cast(self.sample.inputs, dtype)
        self.attrs = self.definition.defaults(self.definition.check_attrs(self.sample.attrs))
        self.lods: dict[str, Any] = dict(self.sample.lods)
        self.rng = np.random.default_rng(zlib.crc32(key.encode()))
        self.facts: dict[str, set[Any]] = {}
        """What the facets say of the op, for the table at the end."""
        self._computed = {} if computed is None else computed

    def note(self, **facts: Any) -> None:
        """Add to what is said of the op."""
        for name, value in facts.items():
            self.facts.setdefault(name, set()).add(value)

    def forward(self, inputs: dict[str, Any] | None = None) -> dict[str, Any]:
        """Arrays by output slot."""
        outputs = apply_op(self.type, self.with_lods(self.inputs if inputs is None else inputs), self.sample.attrs)
        self.lods = {**lods_of(outputs), **self.sample.lods}
        return map_values(array_of, outputs)

    def lods_of(self, values: dict[str, Any]) -> dict[str, Any]:
        """The LoD of the slots of an op, or of its gradient op, that have one."""
        lods = {slot: self.lods.get(slot.removesuffix("@GRAD")) for slot in values}
        return {slot: lod for slot, lod in lods.items() if lod}

    def with_lods(self, values: dict[str, Any]) -> dict[str, Any]:
        """Arrays by slot of an op, or of its gradient op, with the LoD of what holds sequences."""
        return with_lods(values, self.lods_of(values))

    def grad(self, values: dict[str, Any], wanted: set[str], use_kernel: bool = True) -> dict[str, Any]:
        """What the gradient op makes of arrays by its slots."""
        found = apply_op(self.definition.grad_type, self.with_lods(values), self.sample.attrs, wanted, use_kernel)
        return map_values(array_of, found)

    @property
    def outputs(self) -> dict[str, Any]:
        if "outputs" not in self._computed:
            self._computed.update(outputs=self.forward(), lods=self.lods)
        self.lods = self._computed["lods"]
        outputs: dict[str, Any] = self._computed["outputs"]
        return outputs

    @property
    def rule(self) -> Rule | None:
        return self.definition.rule if isinstance(self.definition.rule, Rule) else None

    @property
    def wrt(self) -> list[str]:
        """Input slots to differentiate."""
        if self.rule is None or self.sample.orders == 0:
            return []
        if self.sample.wrt is not None:
            return list(self.sample.wrt)
        return [slot for slot in self.rule.wrt if slot in self.inputs and all(is_float(item) for item in flat(self.inputs[slot]))]

    def cotangents(self) -> dict[str, Any]:
        """A random one for each output that has one, by slot."""
        assert self.rule is not None
        return {
            slot: direction_like(self.rng, self.outputs[slot])
            for slot in self.rule.cotangents
            if self.outputs.get(slot) is not None and all(is_float(item) for item in flat(self.outputs[slot]))
        }

    def grad_inputs(self, cotangents: dict[str, Any]) -> dict[str, Any]:
        """What the gradient op reads, by its slots."""
        assert self.rule is not None
        found = {slot: self.inputs[slot] for slot in self.rule.inputs if slot in self.inputs}
        found.update((slot, self.outputs[slot]) for slot in self.rule.outputs if slot in self.outputs)
        found.update((grad_slot(slot), value) for slot, value in cotangents.items())
        return found

    def by_rule(self, cotangents: dict[str, Any], wanted: set[str]) -> dict[str, Any]:
        """Gradients by input slot, computed by the rule over arrays, or by differentiating what the op means."""
        if self.definition.decomposition is not None:
            return Meaning(self).gradients(cotangents, wanted)
        values = self.grad_inputs(cotangents)
        if not self.definition.inline_grad:
            found = self.grad(values, {grad_slot(slot) for slot in wanted}, use_kernel=False)
            return {slot: found[grad_slot(slot)] for slot in wanted}
        assert self.rule is not None
        recorder = Recorder({"xp": np, "scratch": np.empty, "rng": None}, np.empty)
        lods = self.lods_of(values)
        wrapped = {slot: recorder.wrap(value, lods.get(slot, ())) for slot, value in values.items()}
        cells = self.rule(recorder, wrapped, self.attrs, wanted)
        for step in recorder.calls:
            step()
        return {
            slot: [None if cell is None else cell.array for cell in cells[slot]]
            if isinstance(cells.get(slot), (list, tuple))
            else None
            if cells.get(slot) is None
            else cells[slot].array.reshape(self.inputs[slot].shape)
            for slot in wanted
        }

    @property
    def draws_anew(self) -> bool:
        """Whether other numbers are drawn each time."""
        return self.sample.random and not self.attrs.get("seed")


def is_float(array: Any) -> bool:
    return np.asarray(array).dtype.kind in "fc"


def kind_of_gradient(definition: OpDef) -> str:
    """Who computes the gradient of an op."""
    if definition.rule is ZERO_GRADIENT:
        return "zero"
    if not isinstance(definition.rule, Rule):
        return "none"
    return "inline" if definition.inline_grad else "kernel" if definition.grad_type in KERNELS else "rule"


# ------------------------------------------------------------------------------------------------------------ facets
@dataclass(frozen=True)
class Facet:
    """One thing that holds of every sample that it applies to, in each of some dtypes."""

    check: Callable[[Case], None]
    dtypes: Callable[[Sample], Sequence[str]]
    applies: Callable[[Case], bool]

    @property
    def name(self) -> str:
        return self.check.__name__.replace("_", " ")


FACETS: list[Facet] = []


def every_dtype(sample: Sample) -> Sequence[str]:
    """Those of the sample; one if none of its inputs floats."""
    floats = any(is_float(item) for value in sample.inputs.values() for item in flat(value))
    return sample.dtypes if floats else sample.dtypes[:1]


def widest_dtype(sample: Sample) -> Sequence[str]:
    return ["float64"] if "float64" in sample.dtypes else sample.dtypes[:1]


def float64(sample: Sample) -> Sequence[str]:
    return ["float64"]


def float32(sample: Sample) -> Sequence[str]:
    return ["float32"]


def always(case: Case) -> bool:
    return True


def is_differentiated(case: Case) -> bool:
    return bool(case.wrt)


def has_gradient_kernel(case: Case) -> bool:
    return bool(case.wrt) and case.definition.grad_type in KERNELS


def facet(
    dtypes: Callable[[Sample], Sequence[str]], applies: Callable[[Case], bool] = always
) -> Callable[[Callable[[Case], None]], Callable[[Case], None]]:
    """The function states a facet of the samples that `applies` says (told of them in float64)."""

    def add(check: Callable[[Case], None]) -> Callable[[Case], None]:
        FACETS.append(Facet(check, dtypes, applies))
        return check

    return add


def check_facets(keys: Iterable[str], facts: Facts) -> None:
    """Check all facets of samples; the error tells of each that fails. What was checked is added to `facts`."""
    with Checks() as check:
        for key in keys:
            op_type, sample = CASES[key]
            _, _, number = key.rpartition("-")
            probe = Case(key, "float64")
            computed: dict[str, dict[str, Any]] = {}
            for item in FACETS:
                for dtype in item.dtypes(sample) if item.applies(probe) else ():
                    case = Case(key, dtype, computed=computed.setdefault(dtype, {}))
                    with check(f"{op_type}, sample {number}, {item.name}, {dtype}"):
                        item.check(case)
                    case.note(gradient=kind_of_gradient(case.definition), facets=f"{number} {item.name} {dtype}")
                    merge(facts, {op_type: case.facts})


KEYS_OF = {op_type: [key for key, _ in keys] for op_type, keys in groupby(CASES.items(), lambda item: item[1][0])}


FIRST = 2
"""How many samples of each op the default run has."""


@pytest.mark.parametrize("op_type", KEYS_OF)
def test_samples(op_type: str, conformance: Facts, pytestconfig: pytest.Config) -> None:
    check_chosen(KEYS_OF[op_type][:FIRST], conformance, pytestconfig)


@pytest.mark.slow
@pytest.mark.parametrize("op_type", [op_type for op_type, keys in KEYS_OF.items() if len(keys) > FIRST])
def test_further_samples(op_type: str, conformance: Facts, pytestconfig: pytest.Config) -> None:
    check_chosen(KEYS_OF[op_type][FIRST:], conformance, pytestconfig)


def check_chosen(keys: list[str], conformance: Facts, config: pytest.Config) -> None:
    check_facets([key for key in keys if config.getoption("case") in key], conformance)


def call_reference(sample: Sample, inputs: dict[str, Any], definition: OpDef) -> dict[str, Any]:
    """What the sample's numpy statement gives, by output slot."""
    assert sample.reference is not None
    given = {**inputs, **sample.attrs}
    parameters = inspect.signature(sample.reference).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        given = {name: value for name, value in given.items() if name in parameters}
    with np.errstate(all="ignore"):
        found = sample.reference(**given)
    return found if isinstance(found, dict) else {next(iter(definition.outputs)): found}


# ------------------------------------------------------------------------------------------------------ completeness
@cache
def text_of(test_file: str) -> str:
    (path,) = TESTS.rglob(test_file.rpartition("/")[2])
    return path.read_text(encoding="utf-8")


def faults_of(op_type: str) -> Iterator[str]:
    """What is missing from an op."""
    if op_type in OPS and op_type not in ORDINARY:
        yield f"there are samples of {op_type}, but no such op"
    if op_type in STRUCTURAL and op_type not in text_of(STRUCTURAL[op_type]):
        yield f"{STRUCTURAL[op_type]} should cover {op_type}"
    if op_type not in ORDINARY:
        return
    definition = ORDINARY[op_type]
    if not definition.doc:
        yield f"{op_type} has no docstring"
    if definition.rule is None:
        yield f"{op_type} has neither a gradient rule nor a word on why not"
    if op_type in STRUCTURAL:
        return
    if op_type not in OPS:
        yield f"{op_type} is defined but has no samples; add some to tests/samples"
    if definition.infer is None and definition.composition is None:
        yield f"{op_type} has no inference"
    if op_type in KERNELS and definition.composition is not None:
        yield f"{op_type} is made of other ops and has a kernel, which nothing calls"
    if op_type not in KERNELS and definition.formula is None:
        yield f"{op_type} should have a kernel, or a formula of other ops"


@checks.each("op_type", sorted({*ORDINARY, *OPS, *STRUCTURAL}))
def test_op(op_type: str) -> None:
    """An op is complete: what it is, a kernel or what it is made of, and samples or a file that covers it."""
    faults = list(faults_of(op_type))
    assert not faults, "\n".join(faults)


def test_no_derivative_goes_unchecked() -> None:
    """Every op with a gradient has a sample that is differentiated twice, and one with an extent that inference can miss."""
    checked = {op_type for key, (op_type, sample) in CASES.items() if sample.orders >= 2 and Case(key, "float64").wrt}
    with_rule = {op_type for op_type, definition in ORDINARY.items() if isinstance(definition.rule, Rule)}
    assert with_rule - checked - set(STRUCTURAL) == set()
    ranked = {op_type for op_type, sample in CASES.values() if any(np.ndim(i) for v in sample.inputs.values() for i in flat(v))}
    assert {op_type for op_type in with_rule - set(STRUCTURAL) if ORDINARY[op_type].inputs} <= ranked
    assert set(CASES) >= THIRD_ORDER


# ----------------------------------------------------------------------------------------------------------- forward
TOLERANCES = {"float32": (3e-5, 3e-6), "float64": (1e-10, 1e-11)}


@facet(every_dtype)
def forward(case: Case) -> None:
    """Outputs equal the plain numpy statement, in shape and dtype too; inputs stay as they are."""
    before = cast(case.inputs, case.dtype)
    rtol, atol = (limit * case.sample.tolerance for limit in TOLERANCES[case.dtype])
    for value in flat(next(iter(case.outputs.values()))):
        case.note(dtypes=str(value.dtype))
    if case.sample.check is not None:
        case.sample.check(case.inputs, case.outputs)
        return
    expected = call_reference(case.sample, before, case.definition)
    for slot, definition in case.definition.outputs.items():
        assert slot in expected or definition.intermediate or definition.optional, f"the reference does not give {slot}"
    for layout in ("C", "F"):
        case.inputs = {
            slot: [np.array(i, order=layout) for i in v] if isinstance(v, list) else np.array(v, order=layout)
            for slot, v in case.inputs.items()
        }  # type: ignore[call-overload]
        found = case.forward()
        for slot, values in expected.items():
            assert len(flat(found[slot])) == len(flat(values))
            for out, value in zip(flat(found[slot]), flat(values), strict=True):
                value = np.asarray(value)
                assert out.shape == value.shape, f"{slot} is {out.shape}, should be {value.shape}"
                assert out.dtype.kind == value.dtype.kind, f"{slot} is {out.dtype}, should be {value.dtype}"
                assert out.dtype.kind not in "fc" or out.dtype == value.dtype, f"{slot} is {out.dtype}, should be {value.dtype}"
                np.testing.assert_allclose(out, value, rtol, atol, err_msg=slot)
        for slot, value in before.items():
            for old, new in zip(flat(value), flat(case.inputs[slot]), strict=True):
                assert np.array_equal(old, new, equal_nan=is_float(old)), f"the kernel wrote to its input {slot}"


def assert_draws(runs: Callable[[int], dict[str, Any]]) -> None:
    """`runs` gives the same bits for the same seed, others for another (if anything is left to chance)."""
    first, again, other = runs(3), runs(3), runs(4)
    for slot, value in first.items():
        assert np.array_equal(value, again[slot])
    is_dropped = "Mask" in first and first["Mask"].dtype == np.uint8
    drawn = "Mask" if is_dropped else "Out" if "Out" in first else next(iter(first))
    if len(np.unique(first[drawn])) > 1:
        assert not np.array_equal(first[drawn], other[drawn])


@facet(float64, lambda case: case.sample.random)
def same_seed_same_bits(case: Case) -> None:
    """The seed of the op decides what is drawn, and without one, that of the program."""
    if "seed" in case.definition.attrs:
        assert_draws(lambda seed: apply_op(case.type, case.inputs, {**case.sample.attrs, "seed": seed}))
    one = OneOp(case)
    one.program.global_block().ops[0].attrs.update(seed=0)

    def run(seed: int) -> dict[str, Any]:
        one.program.random_seed = seed
        fetch = {slot: var for slot, var in one.outputs.items() if isinstance(var, Variable)}
        return dict(zip(fetch, Executor().run(one.program, one.fed, list(fetch.values()), scope=Scope()), strict=True))

    assert_draws(run)


# --------------------------------------------------------------------------------------------------------- inference
def unknown_extents(specs: dict[str, Any], known: Sequence[str]) -> list[dict[str, Any]]:
    """`specs` with each extent, those of the slots `known` left out, replaced by -1 in turn, and with all replaced."""

    def hide(spec: Spec, axes: set[int]) -> Spec:
        shape = tuple(-1 if i in axes else n for i, n in enumerate(spec.shape))
        return spec.with_shape(shape).with_lod((None,) * len(spec.lod) if 0 in axes else spec.lod)

    places = [
        (slot, position, axis)
        for slot, value in specs.items()
        if slot not in known
        for position, spec in enumerate(flat(value))
        for axis in range(len(spec.shape))
    ]
    variants = [{place} for place in places] + ([set(places)] if len(places) > 1 else [])
    found = []
    for hidden in variants:
        variant: dict[str, Any] = {}
        for slot, value in specs.items():
            items = [hide(spec, {a for s, p, a in hidden if s == slot and p == i}) for i, spec in enumerate(flat(value))]
            variant[slot] = items if isinstance(value, list) else items[0]
        found.append(variant)
    return found


def assert_inferred(inferred: dict[str, Any], outputs: dict[str, Any], exact: bool) -> None:
    for slot, arrays in outputs.items():
        if arrays is None:
            continue
        assert inferred.get(slot) is not None, f"nothing is inferred of {slot}"
        assert len(flat(inferred[slot])) == len(flat(arrays))
        for spec, array in zip(flat(inferred[slot]), flat(arrays), strict=True):
            assert spec.dtype == spec_of(array).dtype
            assert len(spec.shape) == array.ndim, f"{slot} is {array.shape}, inferred {spec.shape}"
            for extent, actual in zip(spec.shape, array.shape, strict=True):
                assert extent == actual or (extent == -1 and not exact), f"{slot} is {array.shape}, inferred {spec.shape}"


@facet(widest_dtype)
def inference(case: Case) -> None:
    """What is inferred is what is computed; extents that are not known may only make extents unknown."""
    specs = specs_of(case.with_lods(case.inputs))
    inferred = infer_specs(case.definition, specs, case.attrs)
    assert_inferred(inferred, case.outputs, exact=not case.sample.shapes_by_value)
    for slot, shape in case.sample.declared.items():
        declared = {slot: inferred[slot].with_shape(shape)}
        assert infer_specs(case.definition, specs, case.attrs, declared)[slot].shape == shape
    for variant in unknown_extents(specs, case.sample.known):
        assert_inferred(infer_specs(case.definition, variant, case.attrs), case.outputs, exact=False)
        case.note(unknown=True)


# ------------------------------------------------------------------------------------------------ first derivatives
@facet(float64, is_differentiated)
def gradient_rule(case: Case) -> None:
    """The rule, run over arrays, against central differences of the op; the same whichever gradients are wanted."""
    cotangents = case.cotangents()
    found = case.by_rule(cotangents, set(case.wrt))

    def objective(inputs: dict[str, Any]) -> float:
        outputs = case.forward(inputs)
        return sum(dot(outputs[slot], cotangent) for slot, cotangent in cotangents.items())

    assert_gradients(
        objective,
        case.inputs,
        {slot: found[slot] for slot in case.wrt if found[slot] is not None},
        case.rng,
        case.sample.tolerance,
        directions=1,
        within=case.sample.within,
    )
    for slot in case.wrt:
        alone = case.by_rule(cotangents, {slot})[slot]
        for one, both in zip(flat(alone), flat(found[slot]), strict=True):
            assert np.array_equal(one, both)
    specs = (specs_of(case.with_lods(values)) for values in (case.inputs, case.outputs))
    for slot in zero_gradients(case.definition, *specs, case.attrs).intersection(case.wrt):
        assert not any(map(np.any, flat(found[slot]))), f"explain_gradient takes the gradient of {slot} for zeros"
    case.note(orders=1)


@facet(every_dtype, has_gradient_kernel)
def gradient_kernel(case: Case) -> None:
    """The hand-written kernel of a gradient op against the rule that it replaces, whichever gradients are wanted."""
    rtol, atol = (10 * limit * case.sample.tolerance for limit in TOLERANCES[case.dtype])
    cotangents = case.cotangents()
    expected = case.by_rule(cotangents, set(case.wrt))
    for wanted in [set(case.wrt), *({slot} for slot in case.wrt)]:
        slots = {grad_slot(slot) for slot in wanted}
        found = case.grad(case.grad_inputs(cotangents), slots)
        for slot in wanted:
            for one, other in zip(flat(found[grad_slot(slot)]), flat(expected[slot]), strict=True):
                assert one.dtype == other.dtype
                np.testing.assert_allclose(one, other, rtol, atol, err_msg=slot)


@facet(every_dtype, lambda case: case.definition.meaning is not None)
def meaning(case: Case) -> None:
    """The formula of an op that has a kernel, against the kernel."""
    rtol, atol = (10 * limit * case.sample.tolerance for limit in TOLERANCES[case.dtype])
    found = apply_op(case.definition.type, case.with_lods(case.inputs), case.sample.attrs, use_kernel=False)
    for slot, value in map_values(array_of, found).items():
        for one, other in zip(flat(value), flat(case.outputs[slot]), strict=True):
            if one is not None and other is not None:
                assert one.dtype == other.dtype and one.shape == other.shape, slot
                np.testing.assert_allclose(one, other, rtol, atol, err_msg=slot)


def spoiled(array: Any) -> Any:
    """An array of this shape and type, of values that no kernel can take for the right ones."""
    return np.full_like(array, np.nan) if is_float(array) else ~array


@facet(widest_dtype)
def likes_are_read_for_their_shapes(case: Case) -> None:
    """The planner gives away the memory of inputs that are `Like`, so neither an op nor its gradient op may read their values."""

    def assert_same(definition: OpDef, values: dict[str, Any], run: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        likes = [slot for slot in values if definition.inputs[slot].shape_only and values[slot] is not None]
        if not likes:
            return
        expected, found = run(values), run({**values, **map_values(spoiled, {slot: values[slot] for slot in likes})})
        for slot, value in expected.items():
            for one, other in zip(flat(found[slot]), flat(value), strict=True):
                assert np.array_equal(one, other, equal_nan=is_float(other)), f"{slot} changes with the values of {likes}"

    if not case.sample.random:
        wanted = set(case.outputs)
        assert_same(
            case.definition,
            case.inputs,
            lambda values: map_values(
                array_of, apply_op(case.definition.type, case.with_lods(values), case.sample.attrs, wanted)
            ),
        )
    if case.wrt and not case.definition.inline_grad:
        slots = {grad_slot(slot) for slot in case.wrt}
        gradient = registry.get(case.definition.grad_type)
        assert_same(gradient, case.grad_inputs(case.cotangents()), lambda values: case.grad(values, slots))


# ------------------------------------------------------------------------------------------------------- how it binds
def bindings(case: Case) -> list[tuple[OpDef, dict[str, Any], dict[str, Any]]]:
    """The op, and its gradient op where that has a kernel, with inputs and outputs."""
    found = [(case.definition, case.inputs, case.outputs)]
    if case.wrt and not case.definition.inline_grad and case.definition.grad_type in KERNELS:
        definition = registry.get(case.definition.grad_type)
        inputs = case.grad_inputs(case.cotangents())
        found.append((definition, inputs, case.grad(inputs, {grad_slot(s) for s in case.wrt})))
    return found


def copied(arrays: dict[str, Any], make: Any = np.copy) -> dict[str, Any]:
    return {
        slot: None if value is None else [make(item) for item in value] if isinstance(value, list) else make(value)
        for slot, value in arrays.items()
    }


def steps_of(case: Case, definition: OpDef, inputs: dict[str, Any], outputs: dict[str, Any]) -> list[Any]:
    rng = RandomStreams(np, 0).source("", int(case.attrs.get("seed") or 0))
    context, lods = {"xp": np, "scratch": np.empty, "rng": rng}, case.lods_of({**inputs, **outputs})
    return bind_op(definition, inputs, outputs, case.attrs, context, np.empty, lods=lods)


@facet(widest_dtype, lambda case: not case.sample.shapes_by_value and not case.draws_anew)
def kernel_binds_once(case: Case) -> None:
    """What a prepared kernel returns computes from the values at the time of the call; outputs may hold anything."""
    for definition, inputs, expected in bindings(case):
        if any(slot in expected and updated_input(definition, slot) for slot in definition.outputs):
            continue  # inputs are outputs: held against the reference
        arrays, outputs = copied(inputs, np.zeros_like), copied(expected, np.zeros_like)
        if definition.type in KERNELS and not KERNELS[definition.type].is_prepared:
            arrays = copied(inputs)
        steps = steps_of(case, definition, arrays, outputs)
        for _ in range(2):
            for slot, value in inputs.items():
                for target, source in zip(flat(arrays[slot]), flat(value), strict=True):
                    np.copyto(target, source)
            for value in outputs.values():
                for target in flat(value):
                    if target is not None:
                        target.fill(77)
            for step in steps:
                step()
            for slot, value in expected.items():
                for one, other in zip(flat(outputs[slot]), flat(value), strict=True):
                    assert one is None or np.array_equal(one, other, equal_nan=is_float(one)), f"{definition.type}: {slot}"


@facet(widest_dtype)
def kernel_in_place(case: Case) -> None:
    """Where a kernel says that an output may share an input's array, sharing it changes no bit."""
    for definition, inputs, expected in bindings(case):
        for slot, source in KERNELS[definition.type].inplace.items() if definition.type in KERNELS else ():
            if slot not in expected or source not in inputs or updated_input(definition, slot):
                continue
            arrays, outputs = copied(inputs), copied(expected)
            shared = arrays[source] if isinstance(expected[slot], list) else flat(arrays[source])[0]
            pairs = list(zip(flat(shared), flat(expected[slot]), strict=True))
            if any(out is None or out.shape != one.shape or out.dtype != one.dtype for one, out in pairs):
                continue
            outputs[slot] = shared
            for step in steps_of(case, definition, arrays, outputs):
                step()
            for name, value in expected.items():
                for one, other in zip(flat(outputs[name]), flat(value), strict=True):
                    assert one is None or np.array_equal(one, other, equal_nan=is_float(one)), (
                        f"{definition.type}: {name} with {slot} in {source}"
                    )


# ---------------------------------------------------------------------------------------------------------- programs
class OneOp:
    """A program of one op, fed with the inputs of a case.

    Args:
        unknown: how many extents the program does not know, of each input that may have unknown ones.
    """

    def __init__(self, case: Case, unknown: int | None = None) -> None:
        self.case, self._unknown = case, unknown
        self.program = Program()
        block = self.program.global_block()
        self.feed: dict[str, Any] = {}
        self.lods: dict[str, Any] = {}
        self.inputs: dict[str, Any] = {slot: self._data(slot, value) for slot, value in case.with_lods(case.inputs).items()}
        self.outputs: dict[str, Any] = {}
        for slot, value in case.outputs.items():
            source = updated_input(case.definition, slot)
            if value is None or (case.definition.outputs[slot].optional and case.definition.composition is None):
                continue
            if source in self.inputs:
                self.outputs[slot] = self.inputs[source]
            elif isinstance(value, list):
                self.outputs[slot] = [block.create_var(name=f"{slot}_{i}") for i in range(len(value))]
            else:
                self.outputs[slot] = block.create_var(name=slot, shape=case.sample.declared.get(slot))
        block.append_op(case.type, self.inputs, self.outputs, case.sample.attrs)

    def _data(self, name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [self._data(f"{name}_{i}", item) for i, item in enumerate(value)]
        self.feed[name] = array_of(value)
        lod = lod_of(value)
        if lod:
            self.lods[name] = lod
        shape = (-1, *value.shape[1:]) if lod else value.shape
        if self._unknown is not None and not name.startswith(tuple(self.case.sample.known)):
            shape = tuple(-1 if axis < self._unknown else n for axis, n in enumerate(shape))
        return self.program.global_block().create_var(name=name, shape=shape, dtype=value.dtype, lod_level=len(lod), is_data=True)

    def interpreter(self, program: Program, fetch: Sequence[Any]) -> Callable[[dict[str, Any]], list[Any]]:
        """A function that runs a program of these inputs without a plan."""
        run = interpreter(program, fetch)
        return lambda feed: run({name: with_lod(value, self.lods.get(name, ())) for name, value in feed.items()})

    def interpret(self, program: Program, feed: dict[str, Any], fetch: Sequence[Any]) -> list[Any]:
        """Run a program of these inputs once."""
        return self.interpreter(program, fetch)(feed)

    @property
    def fed(self) -> dict[str, Any]:
        """What an executor is fed."""
        return {
            name: (value, [list(level) for level in self.lods[name]]) if name in self.lods else value
            for name, value in self.feed.items()
        }

    def factors(self, name: str, targets: Iterable[Variable], values: Iterable[Any], lods: Any = ()) -> list[Variable]:
        """A variable to feed with random numbers for each target; `values` tell the shapes that the targets leave open."""
        found = []
        for i, (var, value) in enumerate(zip(targets, values, strict=True)):
            factor = direction_like(self.case.rng, value).reshape(var.shape if -1 not in var.shape else value.shape)
            found.append(self._data(f"{name}_{i}", with_lod(np.asarray(factor), lods[i] if lods else ())))
        return found

    @property
    def wrt(self) -> list[Variable]:
        return [var for slot in self.case.wrt for var in flat(self.inputs[slot])]

    def first_order(self) -> tuple[list[Variable | None], dict[str, Any]]:
        """Gradients of a random combination of the outputs, and the combination's factors by output slot."""
        assert self.case.rule is not None
        factors: dict[str, Any] = {}
        targets: list[Variable] = []
        for slot in self.case.rule.cotangents:
            if slot in self.outputs and all(is_floating(var.dtype) for var in flat(self.outputs[slot])):
                lods = self.case.lods.get(slot, ())
                lods = [lods] if lods and not isinstance(lods, list) else lods
                found = self.factors(f"factor_{slot}", flat(self.outputs[slot]), flat(self.case.outputs[slot]), lods)
                factors[slot] = found if isinstance(self.outputs[slot], list) else found[0]
                targets += flat(self.outputs[slot])
        return gradients(targets, self.wrt, [var for value in factors.values() for var in flat(value)]), factors


class Meaning(OneOp):
    """A program of one op and, after it, of what that means in ordinary ops, whose outputs are `outputs`."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        assert case.definition.decomposition is not None
        known = {**self.inputs, **self.outputs}
        self.outputs = dict(case.definition.decomposition(BuildNamespace(self.program.global_block()), known, case.attrs))

    def gradients(self, cotangents: dict[str, Any], wanted: set[str]) -> dict[str, Any]:
        """Gradients by input slot."""
        given = self.case.with_lods({grad_slot(slot): value for slot, value in cotangents.items()})
        factors = [var for slot, value in given.items() for var in flat(self._data(slot, value))]
        targets = [var for slot in cotangents for var in flat(self.outputs[slot])]
        wrt = {slot: flat(self.inputs[slot]) for slot in sorted(wanted)}
        found = gradients(targets, [var for variables in wrt.values() for var in variables], factors)
        values = iter([array_of(value) for value in self.interpret(self.program, self.feed, found)])
        grads = {slot: [next(values) for _ in variables] for slot, variables in wrt.items()}
        return {slot: value if isinstance(self.inputs[slot], list) else value[0] for slot, value in grads.items()}


@facet(every_dtype, lambda case: case.definition.decomposition is not None)
def decomposition(case: Case) -> None:
    """The ordinary ops that an op stands for, against its kernel; their gradient against that of the op is tested above."""
    assert case.definition.grad_type in KERNELS, f"the gradient of {case.type} needs a kernel"
    one = Meaning(case)
    assert case.rule is not None and set(one.outputs) == set(case.rule.cotangents)
    rtol, atol = (10 * limit * case.sample.tolerance for limit in TOLERANCES[case.dtype])
    for slot, variables in one.outputs.items():
        found = [array_of(value) for value in one.interpret(one.program, one.feed, flat(variables))]
        for value, kept in zip(found, flat(case.outputs[slot]), strict=True):
            assert value.dtype == kept.dtype
            np.testing.assert_allclose(value, kept, rtol, atol, err_msg=slot)


@facet(float64, is_differentiated)
def second_order(case: Case) -> None:
    """The gradient program against the rule, and, differentiated again, against its own central differences."""
    one = OneOp(case)
    grads, factors = one.first_order()
    cotangents = {slot: cotangent_of(one, slot, value) for slot, value in factors.items()}
    expected = case.by_rule(cotangents, set(case.wrt))
    found = one.interpret(one.program, one.feed, grads)
    for value, by_rule in zip(found, [item for slot in case.wrt for item in flat(expected[slot])], strict=True):
        assert (value is None) == (by_rule is None)
        if value is not None:
            np.testing.assert_allclose(value, by_rule, 1e-12, 1e-12)
    if case.sample.orders < 2:
        return
    before, wrt = one.program.clone(), one.wrt + [var for value in factors.values() for var in flat(value)]
    first = [grad for grad in grads if grad is not None]
    lods = [one.lods.get(var.name, ()) for var, grad in zip(one.wrt, grads, strict=True) if grad is not None]
    weights = one.factors("weight", first, [value for value in found if value is not None], lods)
    second = gradients(first, wrt, weights)

    run = one.interpreter(before, first)

    def objective(feed: dict[str, Any]) -> float:
        return sum(dot(value, feed[weight.name]) for value, weight in zip(run(feed), weights, strict=True))

    values = one.interpret(one.program, one.feed, second)
    found = [np.zeros(one.feed[var.name].shape) if value is None else value for var, value in zip(wrt, values, strict=True)]
    expected = {var.name: value for var, value in zip(wrt, found, strict=True)}
    assert_gradients(objective, one.feed, expected, case.rng, case.sample.tolerance, directions=1, within=case.sample.within)
    case.note(orders=2)


BY_WEIGHTS = {
    *(
        "cudnn_lstm",
        "fused_embedding_fc_lstm",
        "fusion_gru",
        "fusion_lstm",
        "gru",
        "gru_unit",
        "lstm",
        "lstmp",
        "multi_gru",
        "rnn",
    ),
    *("match_matrix_tensor", "scatter_nd_add", "warpctc"),
}
"""Ops whose rules take sizes from weights. A program declares parameters, so a run has the same sizes."""


@facet(float64, lambda case: is_differentiated(case) and case.sample.orders >= 2 and case.type not in BY_WEIGHTS)
def rules_hold_at_any_size(case: Case) -> None:
    """What a rule appends to a program holds no size that the program declares, as a run may have another."""

    def appended(unknown: int | None) -> list[str]:
        one = OneOp(case, unknown)
        grads, factors = one.first_order()
        first = [grad for grad in grads if grad is not None]
        values = case.by_rule({slot: cotangent_of(one, slot, value) for slot, value in factors.items()}, set(case.wrt))
        arrays = [item for slot in case.wrt for item in flat(values[slot]) if item is not None]
        lods = [one.lods.get(var.name, ()) for var, grad in zip(one.wrt, grads, strict=True) if grad is not None]
        wrt = one.wrt + [var for value in factors.values() for var in flat(value)]
        gradients(first, wrt, one.factors("weight", first, arrays, lods))
        return [f"{op.type} {sizeless(op.attrs)}" for block in one.program.blocks for op in block.ops]

    declared = appended(None)
    for unknown in (1, 9):
        assert appended(unknown) == declared, f"with {unknown} unknown extents"


def sizeless(attrs: dict[str, Any]) -> dict[str, Any]:
    """Attributes without blocks and names of variables."""
    return {name: value for name, value in attrs.items() if name not in ("op_role_var", "sub_block", "input_grads")}


DIFFERENTIATED_THRICE = (
    *("tanh", "sigmoid", "exp", "softplus", "gelu", "swish", "elementwise_mul", "elementwise_div", "elementwise_pow", "matmul"),
    *("mul", "reduce_sum", "reduce_mean", "reduce_prod", "softmax", "log_softmax", "cross_entropy", "softmax_with_cross_entropy"),
    *("layer_norm", "batch_norm", "conv2d", "pool2d", "concat", "slice", "lookup_table_v2", "transpose2", "squared_l2_norm"),
    *("group_norm", "bilinear_tensor_product", "cos_sim", "huber_loss", "gru_unit", "lstm_unit", "sequence_pool"),
    "deformable_conv",
)
THIRD_ORDER = {f"{op_type}-0" for op_type in DIFFERENTIATED_THRICE}


@facet(float64, lambda case: case.key in THIRD_ORDER)
def third_order(case: Case) -> None:
    """The gradient of the gradient of the gradient, against central differences of the program before it."""
    one = OneOp(case)
    wrt, found = list(one.wrt), one.first_order()[0]
    for order in (2, 3):
        goals = [grad for grad in found if grad is not None]
        lods = [one.lods.get(var.name, ()) for var, grad in zip(wrt, found, strict=True) if grad is not None]
        weights = one.factors(f"weight_{order}", goals, one.interpret(one.program, one.feed, goals), lods)
        before = one.program.clone()
        found = gradients(goals, wrt, weights)
        if not any(grad is not None for grad in found):
            break  # a linear op: this and what comes after is zero

    run = one.interpreter(before, goals)

    def objective(feed: dict[str, Any]) -> float:
        return sum(dot(value, feed[weight.name]) for value, weight in zip(run(feed), weights, strict=True))

    values = one.interpret(one.program, one.feed, found)
    expected = {var.name: np.zeros(one.feed[var.name].shape) if v is None else v for var, v in zip(wrt, values, strict=True)}
    assert_gradients(objective, one.feed, expected, case.rng, case.sample.tolerance * 5, directions=1)
    case.note(orders=3)


def cotangent_of(one: OneOp, slot: str, factor: Any) -> Any:
    """The arrays that were fed as factors of an output slot, shaped as the op gives it."""
    if isinstance(factor, list):
        return [one.feed[var.name] for var in factor]
    return one.feed[factor.name].reshape(one.case.outputs[slot].shape)


@facet(float32)
def round_trips(case: Case) -> None:
    """A program of the op and of its gradient op is the same after a trip over the wire or through its text."""
    one = OneOp(case)
    if case.wrt:
        one.first_order()
    data, text = one.program.serialize_to_string(), program_to_string(one.program)
    from_wire, from_text = Program.parse_from_string(data), parse_program_text(text)
    assert from_wire.serialize_to_string() == data
    assert program_to_string(from_text) == text
    for program in (one.program, from_text):  # the text keeps no order of declarations
        program.global_block().vars = dict(sorted(program.global_block().vars.items()))
    assert from_text.serialize_to_string() == one.program.serialize_to_string()


@facet(every_dtype)
def plan(case: Case) -> None:
    """A planned run gives the bits of a run without a plan, each time, and leaves what is fed alone."""
    one = OneOp(case)
    fetch = [var for value in one.outputs.values() for var in flat(value)]
    if case.wrt:
        grads, _ = one.first_order()
        fetch += [grad for grad in grads if grad is not None]
    one.program.random_seed = 1
    expected = Executor().interpret(one.program, one.fed, fetch, Scope())
    executor, scope, before = Executor(), Scope(), copied(one.feed)
    for _ in range(1 if case.draws_anew else 2):
        found = executor.run(one.program, one.fed, fetch, scope=scope)
        for var, value, reference in zip(fetch, found, expected, strict=True):
            assert value.dtype == reference.dtype and value.shape == reference.shape
            assert np.array_equal(value, reference, equal_nan=is_float(value)), var.name
    for name, value in before.items():
        assert np.array_equal(value, one.feed[name], equal_nan=is_float(value)), f"the run wrote to what was fed as {name}"


# -------------------------------------------------------------------------------------------------------- the report
def test_the_report_names_each_facet_that_fails() -> None:
    """An op whose kernel is wrong in float32, and its gradient everywhere, fails in the facets that see it and in no other."""
    with patch.dict(registry._ops), patch.dict(KERNELS), patch.dict(ORDINARY), patch.dict(CASES):

        @registry.define("report_probe(X) -> Out", infer=registry.like("X"))
        def report_probe(f: Any, dOut: Any) -> Any:
            """Twice X; its gradient is off by a little."""
            return {"X": 2.001 * dOut}

        @kernel("report_probe")
        def twice(xp: Any, X: Any, Out: Any) -> None:
            xp.multiply(X, 2.01 if X.dtype == "float32" else 2, out=Out)

        @kernel("report_probe_grad")
        def three_times(xp: Any, dOut: Any, dX: Any) -> None:
            xp.multiply(dOut, 3, out=dX)

        ORDINARY["report_probe"] = report_probe
        CASES["report_probe-4"] = "report_probe", Sample({"X": np.ones(3)}, reference=lambda X: 2 * X)
        facts: Facts = {}
        with pytest.raises(AssertionError) as caught:
            check_facets(["report_probe-4"], facts)
    report = str(caught.value)
    assert re.findall(r"^report_probe, sample 4, (.*?):", report, re.MULTILINE) == [
        "forward, float32",
        "gradient rule, float64",
        "gradient kernel, float32",
        "gradient kernel, float64",
        "second order, float64",
    ]
    assert "Mismatched elements: 3 / 3" in report and "dX along a direction" in report
    first_line = inspect.getsourcelines(forward)[1]
    assert (
        first_line
        < int(re.search(r"\(ops/test_conformance.py:(\d+)\)", report)[1])
        < first_line + len(inspect.getsourcelines(forward)[0])
    )
    assert facts["report_probe"]["facets"] >= {
        "4 forward float32",
        "4 forward float64",
        "4 plan float32",
        "4 second order float64",
    }

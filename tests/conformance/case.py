"""A sample of an op in one element type, and programs of that op."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numeric import direction_like, flat, interpreter
from samples import OPS, Sample, cast, with_lods

import fluid.ops  # noqa: F401  (fills the registry)
from fluid.backward import gradients
from fluid.executor.binding.arrays import Recorder, lods_of, map_values
from fluid.executor.binding.compiled import apply_op
from fluid.ir.inference import BuildNamespace
from fluid.ir.program import Program, Variable
from fluid.opdef import registry
from fluid.opdef.registry import REGION, OpDef, Rule, grad_slot, updated_input
from fluid.values.lod_array import array_of, lod_of, with_lod
from fluid.values.types import is_floating

__all__ = ["CASES", "KEYS_OF", "NUMBERS", "ORDINARY", "TOLERANCES", "Case", "Meaning", "OneOp", "call_reference", "is_float"]

ORDINARY = {op_type: found for op_type, found in registry.all_ops().items() if found.forward is None and found.rule is not REGION}
CASES: dict[str, tuple[str, Sample]] = {
    f"{op_type}-{number}": (op_type, sample)
    for op_type, samples in sorted(OPS.items())
    for number, sample in enumerate(samples)
    if op_type in ORDINARY
}
"""Op and sample, by a key such as `tanh-3`."""
KEYS_OF = {op_type: [key for key, _ in keys] for op_type, keys in groupby(CASES.items(), lambda item: item[1][0])}
NUMBERS = [
    "Axis",
    "AxesTensor",
    "AxesTensorList",
    "AxisTensor",
    "AxisTensorList",
    "EndsTensor",
    "EndsTensorList",
    "ExpandTimes",
    "K",
    "MaxLenTensor",
    "Offsets",
    "OffsetsTensor",
    "OutSize",
    "Out_size",
    "OutputShape",
    "Paddings",
    "RepeatTimes",
    "RepeatsTensor",
    "SectionsTensorList",
    "Shape",
    "ShapeTensor",
    "ShapeTensorList",
    "ShiftsTensor",
    "SizeTensor",
    "StartsTensor",
    "StartsTensorList",
    "StepsTensorList",
    "StridesTensor",
    "StridesTensorList",
    "depth_tensor",
    "expand_shapes_tensor",
    "expand_times_tensor",
    "repeat_times_tensor",
]
"""Slots with numbers that say what to compute: axes, bounds, extents."""
TOLERANCES = {"float32": (3e-5, 3e-6), "float64": (1e-10, 1e-11)}
"""By the type of floats, how far results may be from the plain numpy statement, relative and absolute."""


class Case:
    """A sample of an op with its floats in one dtype; `sample` replaces the key's own sample.

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
        """Record facts about the op."""
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
        """Arrays by slot, of an op or of its gradient op, with the LoD of sequences."""
        return with_lods(values, self.lods_of(values))

    def grad(self, values: dict[str, Any], wanted: set[str], use_kernel: bool = True) -> dict[str, Any]:
        """Compute the gradient op on arrays by slot."""
        gradients = apply_op(self.definition.grad_type, self.with_lods(values), self.sample.attrs, wanted, use_kernel)
        return map_values(array_of, gradients)

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
        """The inputs of the gradient op, by slot."""
        assert self.rule is not None
        values = {slot: self.inputs[slot] for slot in self.rule.inputs if slot in self.inputs}
        values.update((slot, self.outputs[slot]) for slot in self.rule.outputs if slot in self.outputs)
        values.update((grad_slot(slot), value) for slot, value in cotangents.items())
        return values

    def by_rule(self, cotangents: dict[str, Any], wanted: set[str]) -> dict[str, Any]:
        """Gradients by input slot, computed by the rule over arrays, or by differentiating the decomposition."""
        if self.definition.decomposition is not None:
            return Meaning(self).gradients(cotangents, wanted)
        values = self.grad_inputs(cotangents)
        if not self.definition.inline_grad:
            gradients = self.grad(values, {grad_slot(slot) for slot in wanted}, use_kernel=False)
            return {slot: gradients[grad_slot(slot)] for slot in wanted}
        assert self.rule is not None
        recorder = Recorder({"xp": np, "scratch": np.empty, "rng": None}, np.empty)
        lods = self.lods_of(values)
        wrapped = {slot: recorder.wrap(value, lods.get(slot, ())) for slot, value in values.items()}
        cells = self.rule(recorder, wrapped, self.attrs, wanted)
        recorder.limit_to(cell for slot in wanted for cell in flat(cells.get(slot)))
        for step in recorder.calls():
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
        """Whether each call draws other numbers."""
        return self.sample.random and not self.attrs.get("seed")


def is_float(array: Any) -> bool:
    return np.asarray(array).dtype.kind in "fc"


def call_reference(sample: Sample, inputs: dict[str, Any], definition: OpDef) -> dict[str, Any]:
    """Call the sample's numpy statement; returns arrays by output slot."""
    assert sample.reference is not None
    given = {**inputs, **sample.attrs}
    parameters = inspect.signature(sample.reference).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        given = {name: value for name, value in given.items() if name in parameters}
    with np.errstate(all="ignore"):
        found = sample.reference(**given)
    return found if isinstance(found, dict) else {next(iter(definition.outputs)): found}


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
        """The feeds for an executor."""
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

    @property
    def results(self) -> list[Variable]:
        """The variables of the outputs."""
        return [var for value in self.outputs.values() for var in flat(value)]

    def with_gradients(self) -> list[Variable]:
        """The outputs, and the gradients of the inputs, which are added to the program."""
        gradients = self.first_order()[0] if self.case.wrt else []
        return self.results + [gradient for gradient in gradients if gradient is not None]

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
    """A program of one op and of its decomposition into ordinary ops, whose outputs are `outputs`."""

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

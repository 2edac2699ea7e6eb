"""One op on arrays of certain shapes and types: the one way to run an op.

`compiled` finds out once what those decide: what the op makes, and which kernel (or gradient rule) computes it. Then
``run(*arrays)`` computes it. At first it binds the kernel to the arrays each time; when it has been run often enough, the bound
calls are written down as a function (`fluid.executor.binding.codegen`), which takes as long as dozens of runs. Plans, whose
arrays are the same run after run, bind the kernel themselves, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fluid.errors import ExecutionError
from fluid.opdef import registry
from fluid.opdef.inference import infer_specs
from fluid.opdef.registry import OpDef, updated_input
from fluid.values.lod_array import LoDArray, array_of, with_lod
from fluid.values.selected_rows import SelectedRows
from fluid.values.spec import Spec
from fluid.values.types import VarType

from ..kernels.table import KERNELS
from ..random import RANDOM, RandomStreams
from .arrays import bind_op, lods_of, spec_of
from .calls import Call
from .codegen import Lender, function_of
from .engine import engine_of

__all__ = ["Argument", "Compiled", "apply_op", "compiled", "inputs_of", "updates_of"]

WRITE_AFTER = 8
"""So many times an op on arrays of one sort is run before its calls are written down."""


class Argument(NamedTuple):
    """One array that an op reads.

    Attributes:
        slot: where the op reads it.
        spec: what it is; None where a slot of many has a gap.
        passed: `run` takes it as an argument; other arrays are read for their shape, or are `zeros`.
    """

    slot: str
    spec: Spec | None
    passed: bool = True
    zeros: bool = False


def inputs_of(definition: OpDef, arguments: Sequence[Argument], values: Sequence[Any] | None = None) -> dict[str, Any]:
    """The arguments' specs, or other values for each of them, by slot."""
    inputs: dict[str, Any] = {}
    for argument, value in zip(arguments, values if values is not None else [each.spec for each in arguments], strict=True):
        if definition.inputs[argument.slot].many:
            inputs.setdefault(argument.slot, []).append(value)
        elif argument.spec is not None:
            inputs[argument.slot] = value
    return inputs


def compiled(
    definition: OpDef,
    attrs: Mapping[str, Any],
    arguments: Sequence[Argument],
    xp: Any,
    *,
    wants: Mapping[str, Any] | None = None,
    into: Mapping[str, str] | None = None,
    on_copies: bool = False,
    specs: Mapping[str, Any] | None = None,
    declared: Mapping[str, Any] | None = None,
    rng: Callable[[], Any] | None = None,
    use_kernel: bool = True,
    write_after: int | None = None,
) -> Compiled:
    """An op on arrays like these.

    Args:
        attrs: complete attributes.
        arguments: the arrays, in the order in which `run` takes them.
        xp: array namespace.
        wants: output slot -> whether to compute it, or a list of that in slots of many; by default all are.
        into: output slot -> input slot whose array is overwritten with it.
        on_copies: overwrite copies instead, but for tables of which sparse gradients change some rows.
        specs: of the outputs, where they are known already.
        declared: specs of outputs that a declaration settles.
        rng: gives the random generator of each execution; by default, that of the next draw outside programs.
        use_kernel: off, a gradient op is computed by its rule even where it has a kernel.
        write_after: so many runs bind the kernel; with 0, the calls are written down at once.
    """
    inputs = inputs_of(definition, arguments)
    if specs is None:
        specs = infer_specs(definition, inputs, attrs, declared)
    rng = rng or RANDOM.source(xp, int(attrs.get("seed") or 0))
    wants = dict.fromkeys(specs, True) if wants is None else wants
    runs = WRITE_AFTER if write_after is None else write_after
    return Compiled(definition, attrs, arguments, inputs, xp, specs, wants, into or {}, on_copies, rng, use_kernel, runs)


class Compiled:
    """An op on arrays of certain sorts, made by `compiled`.

    Attributes:
        specs: of all outputs, also those not wanted.
        places: (slot, number in a slot of many or None) of each output, in the order in which `run` gives them.
        lods: by slot, of inputs and outputs whose rows form sequences.
    """

    def __init__(
        self,
        definition: OpDef,
        attrs: Mapping[str, Any],
        arguments: Sequence[Argument],
        inputs: Mapping[str, Any],
        xp: Any,
        specs: Mapping[str, Any],
        wants: Mapping[str, Any],
        into: Mapping[str, str],
        on_copies: bool,
        rng: Callable[[], Any],
        use_kernel: bool,
        write_after: int,
    ) -> None:
        self._definition, self._attrs, self._arguments, self._xp, self._rng = definition, attrs, arguments, xp, rng
        self._engine = engine_of(xp)
        self._use_kernel, self._runs_left = use_kernel, write_after
        self.specs = specs
        self.lods: dict[str, Any] = {**lods_of(inputs), **lods_of(specs)}
        self._wanted = {slot: _wanted(spec, wants.get(slot, False)) for slot, spec in specs.items()}
        self.places: list[tuple[str, int | None]] = []
        self._unknown: list[str] = []
        """Outputs whose extents only the values decide, if one is wanted: the kernel makes their arrays, the others' too."""
        self._fresh: list[tuple[str, Any]] = []
        """Outputs that are new arrays, each with its shape and numpy dtype; None for what is none before it runs."""
        self._into = {slot: source for slot, source in into.items() if self._wanted.get(slot) is not None and source in inputs}
        self._shared = {slot: source for slot, source in self._into.items() if _may_share(definition, slot, source)}
        for slot, spec in self._wanted.items():
            if type(spec) is list:
                self.places += [(slot, number) for number, item in enumerate(spec) if item is not None]
            elif spec is not None:
                self.places.append((slot, None))
            if slot not in self._shared:
                self._fresh.append((slot, _extents(spec)))
        if any(self._wanted[slot] is not None and _is_unknown(spec) for slot, spec in specs.items()):
            self._unknown = [slot for slot, spec in specs.items() if _is_unknown(spec)]
        self._is_sparse = any(map(_is_sparse, inputs.values())) or any(map(_is_sparse, self._wanted.values()))
        self._copied = [*dict.fromkeys(self._into.values())] if on_copies and not self._is_sparse else []
        for slot, source in self._into.items():
            for made, target in zip(_listed(specs[slot]), _listed(inputs[source]), strict=True):
                if (target.shape, target.dtype) != (made.shape, made.dtype):
                    raise ExecutionError(f"{definition.type} makes {made}, which cannot take the place of {target}")
        self._is_writable = self._engine.writes_functions and not (self._is_sparse or self._unknown)
        self._fixed = None if all(argument.passed for argument in arguments) else self._stand_ins(passed=False)
        if self._is_writable and not write_after:
            self._write()

    # -- running
    def run(self, *arrays: Any) -> Any:
        """The outputs, from arrays whose elements lie in order: one array, or a tuple in the order of `places`."""
        if self._is_writable:
            self._runs_left -= 1
            if self._runs_left < 0 and self._write():
                return self.run(*arrays)
        return self.bound_run(*arrays)

    def bound_run(self, *arrays: Any) -> Any:
        """The same from arrays in any layout: the kernel is bound to them."""
        inputs = inputs_of(self._definition, self._arguments, arrays if self._fixed is None else self._with_fixed(arrays))
        for source in self._copied:
            inputs[source] = inputs[source].copy()
        outputs = self._outputs(inputs)
        result = None
        for step in self._engine.steps(self._bind(inputs, outputs, self._xp.empty)):
            result = step()
        if self._unknown:
            results = result if isinstance(result, tuple) else (result,)
            if len(results) != len(self._unknown) or results[0] is None:
                slots = ", ".join(self._unknown)
                raise ExecutionError(f"{self._definition.type}: the shape of {slots} is not known before it runs")
            outputs.update((slot, value) for slot, value in zip(self._unknown, results, strict=True) if slot in outputs)
        found = self._results(inputs, outputs)
        return found[0] if len(found) == 1 else tuple(found)

    @property
    def is_written(self) -> bool:
        """Whether `run` is a function made of the kernel's calls; otherwise it binds the kernel each time."""
        return "run" in self.__dict__

    def values(self, found: Any) -> Sequence[Any]:
        """What `run` gave, one value after another, with the LoDs that were inferred unless the kernel gave others."""
        values: tuple[Any, ...] = found if type(found) is tuple else (found,)
        if not self.lods:
            return values
        return [self._with_lod(*place, value) for place, value in zip(self.places, values, strict=True)]

    def _with_lod(self, slot: str, number: int | None, value: Any) -> Any:
        lod = self.lods.get(slot, ())
        if lod and number is not None:
            lod = lod[number]
        return value if type(value) is LoDArray or None in lod else with_lod(value, lod)

    def by_slot(self, found: Any) -> dict[str, Any]:
        """The same by output slot: lists in slots of many, with None for what is not wanted."""
        values = {slot: [None] * len(spec) if isinstance(spec, list) else None for slot, spec in self._wanted.items()}
        for (slot, number), value in zip(self.places, self.values(found), strict=True):
            if number is None:
                values[slot] = value
            else:
                values[slot][number] = value  # type: ignore[index]
        return {slot: value for slot, value in values.items() if self._wanted[slot] is not None}

    # -- binding
    def _stand_ins(self, passed: bool | None = None) -> list[Any]:
        """Arrays like the arguments', of those that are passed, are not, or of all."""
        return [
            None
            if argument.spec is None or passed not in (None, argument.passed)
            else (self._xp.zeros if argument.zeros else self._xp.empty)(argument.spec.shape, argument.spec.dtype.numpy)
            for argument in self._arguments
        ]

    def _with_fixed(self, arrays: Sequence[Any]) -> list[Any]:
        """A value for each argument, of which `arrays` are those that are passed."""
        passed = iter(arrays)
        fixed = self._fixed or ()
        return [next(passed) if each.passed else array for each, array in zip(self._arguments, fixed, strict=True)]

    def _outputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Arrays for what is wanted: those of inputs where their place is to be taken, else new ones."""
        empty = self._xp.empty
        outputs: dict[str, Any] = {}
        for slot, extents in self._fresh:
            if type(extents) is list:
                outputs[slot] = [None if each is None else empty(*each) for each in extents]
            else:
                outputs[slot] = None if extents is None else empty(*extents)
        for slot, source in self._shared.items():
            outputs[slot] = inputs[source]
        return outputs

    def _bind(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any], lend: Callable[..., Any]) -> list[Call]:
        context = {"xp": self._xp, "scratch": lend, "rng": self._rng}
        calls = bind_op(
            self._definition, inputs, outputs, self._attrs, context, lend, self._use_kernel, self.lods, self._is_sparse
        )
        for slot, source in self._into.items():
            if slot not in self._shared:
                pairs = zip(_listed(inputs[source]), _listed(outputs[slot]), strict=True)
                calls += [partial(self._xp.copyto, target, made) for target, made in pairs]
        return calls

    def _results(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> list[Any]:
        found = []
        for slot, number in self.places:
            source = self._into.get(slot)
            value = outputs[slot] if source is None else inputs[source]
            found.append(value if number is None else value[number])
        return found

    def _write(self) -> bool:
        """Let `run` be the kernel's calls as a function, if they can be written down."""
        stand_ins, lender = self._stand_ins(), Lender(self._xp)
        inputs = inputs_of(self._definition, self._arguments, stand_ins)
        outputs = self._outputs(inputs)
        calls = self._bind(inputs, outputs, lender)
        passed = [array for each, array in zip(self._arguments, stand_ins, strict=True) if each.passed]
        made = [array for value in outputs.values() for array in _listed(value) if array is not None]
        made = [array for array in made if not any(array is other for other in passed)]
        copied = [array for source in self._copied for array in _listed(inputs[source])]
        function = function_of(self._definition.type, calls, passed, made, self._results(inputs, outputs), lender, copied)
        self._is_writable = False
        if function is not None:
            self.__dict__["run"] = function
        return function is not None


def _wanted(spec: Any, want: Any) -> Any:
    """Of an output, what is to be computed: its spec, a list of them with None for what is not, or None."""
    if isinstance(spec, list):
        each = want if isinstance(want, list) else [want] * len(spec)
        return [item if yes else None for item, yes in zip(spec, each, strict=False)] if want else None
    return spec if want else None


def _is_unknown(spec: Any) -> bool:
    """Whether only running tells the shape of an output, or of one in a list, or how many of its rows are there."""
    if isinstance(spec, list):
        return any(map(_is_unknown, spec))
    return spec is not None and (-1 in spec.shape or spec.type is VarType.SELECTED_ROWS)


def _is_sparse(spec: Any) -> bool:
    if type(spec) is list:
        return any(map(_is_sparse, spec))
    return spec is not None and spec.type is VarType.SELECTED_ROWS


def _extents(spec: Any) -> Any:
    """Shape and numpy dtype of an output's array, a list of them, or None where there is none before it runs."""
    if isinstance(spec, list):
        return [_extents(item) for item in spec]
    return None if spec is None or _is_unknown(spec) else (spec.shape, spec.dtype.numpy)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _may_share(definition: OpDef, slot: str, source: str) -> bool:
    """Whether the kernel may write an output into the array of an input."""
    kernel = KERNELS.get(definition.type)
    return updated_input(definition, slot) == source or (kernel is not None and kernel.inplace.get(slot) == source)


# ------------------------------------------------------------------------------------------------------------- run once
def apply_op(
    op_type: str,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    wanted: Set[str] | None = None,
    use_kernel: bool = True,
    xp: Any = np,
) -> dict[str, Any]:
    """Run one op on arrays, once.

    Args:
        inputs: arrays, or `LoDArray`s (lists of them in slots of many), by slot.
        attrs: attributes; those left out take their defaults.
        wanted: output slots to compute; all by default.
        use_kernel: off, a gradient op is computed by its rule even where it has a kernel.

    Returns:
        Arrays by output slot.
    """
    definition = registry.get(op_type)
    full = definition.defaults(definition.check_attrs(attrs or {}))
    source = RandomStreams(xp, 0).source(op_type, int(full.get("seed") or 0))
    wants = None if wanted is None else {slot: slot in wanted for slot in definition.outputs}
    listed = {slot: value if definition.inputs[slot].many else [value] for slot, value in inputs.items()}
    values = [(slot, _as_value(xp, item)) for slot, items in listed.items() for item in items]
    arguments = [Argument(slot, None if value is None else spec_of(value)) for slot, value in values]
    op = compiled(
        definition,
        full,
        arguments,
        xp,
        wants=wants,
        into=updates_of(definition),
        on_copies=True,
        rng=source,
        use_kernel=use_kernel,
    )
    with np.errstate(all="ignore"):  # as in a run
        return op.by_slot(op.bound_run(*[array_of(value) for _, value in values]))


def _as_value(xp: Any, value: Any) -> Any:
    if type(value) is LoDArray:
        return LoDArray(xp.asarray(value.array), value.lod)
    return value if value is None or type(value) is SelectedRows else xp.asarray(value)


def updates_of(definition: OpDef) -> dict[str, str]:
    """Output slots that take over the array of an input -> that input."""
    pairs = ((slot, updated_input(definition, slot)) for slot in definition.outputs)
    return {slot: source for slot, source in pairs if source is not None}

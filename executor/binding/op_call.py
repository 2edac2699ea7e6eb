"""One op run on arrays again and again, with what their shapes decide found out once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from functools import partial
from typing import Any

import numpy as np

from fluid.errors import ExecutionError
from fluid.opdef import registry
from fluid.opdef.inference import infer_specs
from fluid.opdef.registry import OpDef, updated_input
from fluid.values.lod_array import LoDArray, array_of, with_lod
from fluid.values.selected_rows import SelectedRows
from fluid.values.spec import Lod, Spec
from fluid.values.types import VarType

from ..random import RandomStreams
from .arrays import bind_op, each, lods_of, specs_of
from .compiled import Argument, Compiled, compiled
from .kinds import kind_of

Wants = Mapping[str, Any]
"""Output slot -> whether it is wanted, or a list of that in slots of many."""


def apply_op(
    op_type: str,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
    wanted: Set[str] | None = None,
    use_kernel: bool = True,
    xp: Any = np,
) -> dict[str, Any]:
    """Run one op on arrays.

    Args:
        inputs: arrays, or `LoDArray`s (lists of them in slots of many), by slot.
        attrs: attributes; those left out take their defaults.
        wanted: output slots to compute; all by default.
        use_kernel: off, a gradient op is computed by its rule even where it has a kernel.

    Returns:
        Arrays by output slot.
    """
    definition = registry.get(op_type)
    arrays: dict[str, Any] = {}
    for slot, value in inputs.items():
        if definition.inputs[slot].many:
            arrays[slot] = [None if item is None else _as_value(xp, item) for item in value]
        elif value is not None:
            arrays[slot] = _as_value(xp, value)
    full = definition.defaults(definition.check_attrs(attrs or {}))
    source = RandomStreams(xp, 0).source(op_type, int(full.get("seed") or 0))
    wants = None if wanted is None else {slot: slot in wanted for slot in definition.outputs}
    with np.errstate(all="ignore"):  # as in a run
        return OpCall(definition, full, wants, source, xp, use_kernel)(arrays)


def _as_value(xp: Any, value: Any) -> Any:
    if type(value) is LoDArray:
        return LoDArray(xp.asarray(value.array), value.lod)
    return value if type(value) is SelectedRows else xp.asarray(value)


_KNOWN_SPECS = 64
"""An op may meet other shapes on every trip of a loop; so many are remembered."""


_WRITE_AT = 8
"""So often arrays of one kind are met before the calls are written down as a function, which takes as long as dozens of runs."""


class OpCall:
    """One op with all that is the same each time it is run: calling it with arrays by slot gives arrays by output slot.

    Args:
        attrs: complete attributes.
        wants: what to compute; everything by default.
        rng: gives the random generator of an execution.
        declared: specs of outputs that a declaration settles.
    """

    __slots__ = ("_attrs", "_context", "_declared", "_definition", "_known", "_updates", "_use_kernel", "_wants", "_xp")

    def __init__(
        self,
        definition: OpDef,
        attrs: Mapping[str, Any],
        wants: Wants | None,
        rng: Callable[[], Any],
        xp: Any,
        use_kernel: bool = True,
        declared: Mapping[str, Any] | None = None,
    ) -> None:
        self._definition, self._attrs, self._wants, self._xp = definition, attrs, wants, xp
        self._use_kernel, self._declared = use_kernel, declared
        self._context = {"xp": xp, "scratch": xp.empty, "rng": rng}
        pairs = ((slot, updated_input(definition, slot)) for slot in definition.outputs)
        self._updates = [(slot, source) for slot, source in pairs if source is not None]
        self._known: dict[Any, Made] = {}

    def __call__(self, arrays: dict[str, Any]) -> dict[str, Any]:
        return self.run(self.made(arrays), arrays)

    def run(self, made: Made, arrays: dict[str, Any]) -> dict[str, Any]:
        """Call it, where `made` is what it makes of such arrays."""
        definition, xp = self._definition, self._xp
        if made.lods:
            arrays = each(array_of, arrays)
        outputs: dict[str, Any] = {}
        for slot, shape, dtype in made.arrays:
            outputs[slot] = xp.empty(shape, dtype)
        for slot, spec, want in made.others:
            outputs[slot] = _allocated(xp, spec, want)
        for slot, source in made.updates:
            # A table may be large; where few of its rows change, they change in place.
            outputs[slot] = arrays[source] = arrays[source] if made.is_sparse else arrays[source].copy()
        result = None
        for step in bind_op(
            definition, arrays, outputs, self._attrs, self._context, xp.empty, self._use_kernel, made.lods, made.is_sparse
        ):
            result = step()
        if made.unknown:
            # Extents that only the values decide: the kernel makes the arrays, those that nobody wants too.
            results = result if isinstance(result, tuple) else (result,)
            if len(results) != len(made.unknown) or results[0] is None:
                raise ExecutionError(f"{definition.type}: the shape of {', '.join(made.unknown)} is not known before it runs")
            outputs.update((slot, value) for slot, value in zip(made.unknown, results, strict=True) if slot in outputs)
        return _with_lods(outputs, made.lods) if made.lods else outputs

    def written(self, made: Made, arrays: Mapping[str, Any]) -> Compiled | None:
        """The function that computes the op on arrays like these; None if its calls cannot be written down.

        It takes the arrays of all slots one after another, without gaps; they must lie in order.
        """
        arguments = [
            Argument(slot, None if item is None else kind_of(item), passed=item is not None)
            for slot, value in arrays.items()
            for item in (value if isinstance(value, list) else [value])
        ]
        into = dict(made.updates)
        found = compiled(self._definition, self._attrs, arguments, made.wants, self._xp, into, made.specs, self._context["rng"])
        if not found.is_written:
            return None
        passed = [argument.slot for argument in arguments if argument.passed]
        overwritten = [number for number, slot in enumerate(passed) if slot in into.values()]
        return found._replace(run=partial(_on_copies, found.run, overwritten)) if overwritten else found

    def made(self, arrays: Mapping[str, Any]) -> Made:
        """What the op makes of arrays of these shapes and types, found by inference the first time."""
        key = tuple([_kind(value) for value in arrays.values()])
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _KNOWN_SPECS:
                self._known.clear()
            given = specs_of(arrays)
            specs = infer_specs(self._definition, given, self._attrs, self._declared)
            wants = self._wants if self._wants is not None else dict.fromkeys(specs, True)
            found = self._known[key] = Made(given, specs, wants, self._updates, {**lods_of(arrays), **lods_of(specs)})
        return found


def _on_copies(run: Callable[..., Any], overwritten: list[int], *arrays: Any) -> Any:
    """Run with copies of the arrays that will be overwritten."""
    given = list(arrays)
    for number in overwritten:
        given[number] = given[number].copy()
    return run(*given)


class Made:
    """What an op makes of inputs of certain shapes.

    Attributes:
        lods: the LoD of its slots.
        is_sparse: whether an input or output is a `SelectedRows`.
        updates: wanted outputs that take over the array of an input.
        arrays: other wanted outputs: slot, shape, numpy dtype.
        others: those that are lists, or whose shape only running tells: slot, spec, what is wanted.
        unknown: the outputs whose shapes only running tells, if one of them is wanted.
        meetings: how often such inputs have been met.
        is_writable: whether its calls can be written down, as far as is known.
    """

    __slots__ = (
        "arrays",
        "is_sparse",
        "is_writable",
        "lods",
        "meetings",
        "others",
        "specs",
        "unknown",
        "updates",
        "wants",
    )

    def __init__(
        self,
        given: Mapping[str, Any],
        specs: Mapping[str, Any],
        wants: Wants,
        updates: list[tuple[str, str]],
        lods: dict[str, Any],
    ) -> None:
        self.lods, self.specs, self.wants, self.meetings = lods, specs, wants, 0
        self.is_sparse = any(_is_sparse(spec) for spec in (*given.values(), *specs.values()))
        wanted = {slot: wants[slot] for slot in specs if wants.get(slot)}
        self.updates = [(slot, source) for slot, source in updates if slot in wanted and source in given]
        fresh = [slot for slot in wanted if slot not in dict(self.updates)]
        plain = [slot for slot in fresh if isinstance(specs[slot], Spec) and not _unknown(specs[slot])]
        self.arrays = [(slot, specs[slot].shape, specs[slot].dtype.numpy) for slot in plain]
        self.others = [(slot, specs[slot], wanted[slot]) for slot in fresh if slot not in plain]
        unknown = [slot for slot, spec in specs.items() if _unknown(spec)]
        self.unknown = unknown if any(slot in wanted for slot in unknown) else []
        in_lists = any(isinstance(given[source], list) for _, source in self.updates)
        self.is_writable = not (lods or self.is_sparse or self.unknown or in_lists)


def _with_lods(outputs: Mapping[str, Any], lods: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays by slot, with the LoD that was inferred for them unless a kernel gave them another."""
    found = {}
    for slot, value in outputs.items():
        if isinstance(value, list):
            found[slot] = [_with_lod(item, lod) for item, lod in zip(value, lods.get(slot) or [()] * len(value), strict=True)]
        else:
            found[slot] = _with_lod(value, lods.get(slot, ()))
    return found


def _with_lod(value: Any, lod: Lod) -> Any:
    return value if type(value) is LoDArray or None in lod else with_lod(value, lod)


def _kind(value: Any) -> Any:
    """Shape and type of an array, or of those in a list."""
    if isinstance(value, list):
        return tuple([_kind(item) for item in value])
    if type(value) is LoDArray:
        return value.shape, value.dtype, value.lod
    if type(value) is SelectedRows:
        return value.shape, value.dtype, SelectedRows
    return None if value is None else (value.shape, value.dtype)


def _unknown(spec: Any) -> bool:
    """Whether an output, or one of a list of them, has extents that only running tells."""
    if isinstance(spec, list):
        return any(_unknown(item) for item in spec)
    return spec is not None and (-1 in spec.shape or spec.type is VarType.SELECTED_ROWS)


def _is_sparse(spec: Any) -> bool:
    if isinstance(spec, list):
        return any(_is_sparse(item) for item in spec)
    return spec is not None and spec.type is VarType.SELECTED_ROWS


def _allocated(xp: Any, spec: Any, want: Any) -> Any:
    """Arrays for what is wanted; None where it is not, or where only running tells the shape."""
    if isinstance(spec, list):
        wanted = want if isinstance(want, list) else [want] * len(spec)
        return [_allocated(xp, *pair) for pair in zip(spec, wanted, strict=False)]
    return None if spec is None or not want or _unknown(spec) else xp.empty(spec.shape, spec.dtype.numpy)

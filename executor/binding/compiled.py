"""Ops applied to arrays one at a time, with all that shapes decide found out once.

`compiled` gives, for an op on arrays of certain kinds, a function from arrays to arrays: inference is done, the kernel (or
the gradient rule) is bound, and what is left are its calls (`fluid.executor.binding.codegen`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from fluid.errors import ExecutionError
from fluid.opdef.inference import infer_specs
from fluid.opdef.registry import OpDef, updated_input
from fluid.values.spec import Spec
from fluid.values.types import VarType

from ..kernels.table import KERNELS, SPARSE_KERNELS, Call
from ..random import RANDOM
from .arrays import bind_op, lods_of
from .codegen import Lender, function_of
from .kinds import Kind, kind_like, kind_of

__all__ = ["Argument", "Compiled", "Kind", "compiled", "kind_like", "kind_of"]


# --------------------------------------------------------------------------------------------------------------- kinds


# ------------------------------------------------------------------------------------------------------------- silence


# ------------------------------------------------------------------------------------------------------------ functions
_LISTS = "use Python's lists in place of arrays"
_STEPS = (
    "loop in Python over the steps of padded sequences (sequence_pad), or use dygraph.LSTM or GRU with sequence_length, or "
    "layers.rnn with a cell"
)
_ROWS = "choose rows by a mask: layers.gather of where(mask), and layers.scatter to put them back"
INSTEAD = {
    **dict.fromkeys(("lod_rank_table", "max_sequence_len", "lod_tensor_to_array", "array_to_lod_tensor"), _STEPS),
    **dict.fromkeys(("shrink_rnn_memory", "reorder_lod_tensor_by_rank"), _STEPS),
    **dict.fromkeys(("split_lod_tensor", "merge_lod_tensor"), _ROWS),
    "beam_search_decode": "use layers.dynamic_decode with a BeamSearchDecoder, or gather_tree on the steps' ids and parents",
    **dict.fromkeys(("save", "save_combine", "load_combine"), "use dygraph.save_dygraph and load_dygraph"),
}
"""Op type -> what to use for it outside of programs."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One array that an op reads.

    Attributes:
        slot: where the op reads it.
        kind: of the array; None where a slot of many has a gap.
        passed: the function takes it as an argument; other arrays are read for their shape, or are `zeros`.
    """

    slot: str
    kind: Kind | None
    passed: bool = True
    zeros: bool = False


class Compiled(NamedTuple):
    """``run(*arrays)`` computes the op: one array, or a tuple in the order of `places`.

    Attributes:
        places: (slot, number in a slot of many or None, kind) of each output; no kind where only running tells it.
        specs: of all outputs, also those not wanted.
        is_written: `run` is made of the kernel's calls; otherwise it binds the kernel each time.
    """

    run: Callable[..., Any]
    places: tuple[tuple[str, int | None, Kind | None], ...]
    specs: Mapping[str, Any]
    is_written: bool


def compiled(
    definition: OpDef,
    attrs: Mapping[str, Any],
    arguments: Sequence[Argument],
    wants: Mapping[str, Any],
    xp: Any,
    into: Mapping[str, str] | None = None,
    specs: Mapping[str, Any] | None = None,
    rng: Callable[[], Any] | None = None,
) -> Compiled:
    """The function that computes an op on arrays of these kinds.

    Args:
        attrs: complete attributes.
        arguments: the arrays, in the order of the function's parameters.
        wants: output slot -> whether to compute it, or a list of that in slots of many; those not named are not computed.
        xp: array namespace.
        into: output slot -> input slot whose array is overwritten with it.
        specs: of the outputs, where they are known already.
        rng: gives the random generator of each execution; by default, that of the next draw outside programs.
    """
    if definition.forward is None and definition.type not in KERNELS and definition.type not in SPARSE_KERNELS:
        raise ExecutionError(f"{definition.type} runs in programs only; on tensors, {INSTEAD.get(definition.type, _LISTS)}")
    call = _Call(definition, attrs, arguments, xp, dict(into or {}), rng or RANDOM.source(xp, int(attrs.get("seed") or 0)))
    return call.compiled(infer_specs(definition, call.specs(), attrs) if specs is None else specs, wants)


class _Call:
    """An op about to be bound to arrays of certain kinds."""

    def __init__(
        self,
        definition: OpDef,
        attrs: Mapping[str, Any],
        arguments: Sequence[Argument],
        xp: Any,
        into: Mapping[str, str],
        rng: Callable[[], Any],
    ) -> None:
        self.definition, self.attrs, self.arguments, self.xp, self.into = definition, attrs, arguments, xp, into
        self.rng = rng
        self.stand_ins = [self._stand_in(argument) for argument in arguments]

    def _stand_in(self, argument: Argument) -> Any:
        if argument.kind is None:
            return None
        return (self.xp.zeros if argument.zeros else self.xp.empty)(argument.kind.shape, argument.kind.numpy_dtype)

    def specs(self) -> dict[str, Any]:
        """What inference is given."""
        return self._inputs([None if argument.kind is None else argument.kind.spec for argument in self.arguments])

    def _inputs(self, values: Iterable[Any]) -> dict[str, Any]:
        """A value for each argument, by slot."""
        found: dict[str, Any] = {}
        for argument, value in zip(self.arguments, values, strict=True):
            if self.definition.inputs[argument.slot].many:
                found.setdefault(argument.slot, []).append(value)
            elif argument.kind is not None:
                found[argument.slot] = value
        return found

    def _bind(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any], lend: Callable[..., Any]) -> list[Call]:
        context = {"xp": self.xp, "scratch": lend, "rng": self.rng}
        sparse = self._sparse
        steps = bind_op(self.definition, inputs, outputs, self.attrs, context, lend, lods=self._lods, is_sparse=sparse)
        for slot, source in self.into.items():
            for made, target in zip(_listed(outputs.get(slot)), _listed(inputs[source]), strict=True):
                if made is not None and made is not target:
                    steps.append(partial(self.xp.copyto, target, made))
        return steps

    def _outputs(self, wanted: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Arrays for what is wanted: those of inputs where their place is to be taken, else new ones."""

        def array(spec: Spec | None) -> Any:
            return None if spec is None or _is_unknown(spec) else self.xp.empty(spec.shape, spec.dtype.numpy)

        found: dict[str, Any] = {}
        for slot, spec in wanted.items():
            source = self.into.get(slot)
            if source is None:
                found[slot] = [array(item) for item in spec] if isinstance(spec, list) else array(spec)
                continue
            specs, targets = _listed(spec), _listed(inputs[source])
            for item, target in zip(specs, targets, strict=True):
                if (target.shape, target.dtype) != (item.shape, item.dtype.numpy):
                    raise ExecutionError(f"{self.definition.type} makes {item}, which cannot take the place of {kind_of(target)}")
            made = targets if _may_share(self.definition, slot, source) else [array(item) for item in specs]
            found[slot] = made if isinstance(spec, list) else made[0]
        return found

    def compiled(self, specs: Mapping[str, Any], wants: Mapping[str, Any]) -> Compiled:
        self._lods = {**lods_of(self.specs()), **lods_of(specs)}
        wanted: dict[str, Any] = {}
        places: list[tuple[str, int | None, Kind | None]] = []
        unknown = [slot for slot, spec in specs.items() if _is_unknown(spec)]
        for slot, spec in specs.items():
            want = wants.get(slot, False)
            if isinstance(spec, list):
                wish = want if isinstance(want, list) else [want] * len(spec)
                wanted[slot] = [item if yes else None for item, yes in zip(spec, wish, strict=True)]
                items: list[tuple[int | None, Any]] = list(enumerate(wanted[slot]))
            else:
                wanted[slot] = spec if want else None
                items = [(None, wanted[slot])]
            for number, item in items:
                if item is None:
                    continue
                if item.type not in (VarType.LOD_TENSOR, VarType.SELECTED_ROWS):
                    raise ExecutionError(f"{self.definition.type} makes no tensor; on tensors, {_LISTS}")
                known = not _is_unknown(item) and None not in item.lod
                places.append((slot, number, kind_like(item, self.xp) if known else None))
        kinds = [argument.kind.spec for argument in self.arguments if argument.kind is not None]
        made = [item for value in wanted.values() for item in (value if isinstance(value, list) else [value])]
        self._sparse = any(item is not None and item.type is VarType.SELECTED_ROWS for item in (*kinds, *made))
        known = not self._sparse and not any(wanted[slot] is not None for slot in unknown)
        function = self._written(wanted, places) if known else None
        run = function or self._rebinding(wanted, places, unknown)
        return Compiled(run, tuple(places), specs, function is not None)

    def _written(self, wanted: Mapping[str, Any], places: Sequence[Any]) -> Callable[..., Any] | None:
        """The calls as a function of their own, if they can be written down."""
        inputs, lender = self._inputs(self.stand_ins), Lender(self.xp)
        outputs = self._outputs(wanted, inputs)
        steps = self._bind(inputs, outputs, lender)
        passed = [array for argument, array in zip(self.arguments, self.stand_ins, strict=True) if argument.passed]
        made = [item for value in outputs.values() for item in (value if isinstance(value, list) else [value])]
        made = [array for array in made if array is not None and not any(array is given for given in passed)]
        results = [self._result(outputs, inputs, slot, number) for slot, number, _ in places]
        return function_of(self.definition.type, steps, passed, made, results, lender)

    def _result(self, outputs: Mapping[str, Any], inputs: Mapping[str, Any], slot: str, number: int | None) -> Any:
        if slot in self.into:
            target = inputs[self.into[slot]]
            return target if number is None else target[number]
        return outputs[slot] if number is None else outputs[slot][number]

    def _rebinding(self, wanted: Mapping[str, Any], places: Sequence[Any], unknown: Sequence[str]) -> Callable[..., Any]:
        """A function that binds the kernel each time that it is called."""
        fixed = [None if argument.passed else array for argument, array in zip(self.arguments, self.stand_ins, strict=True)]
        self.stand_ins = []

        def run(*arrays: Any) -> Any:
            given = iter(arrays)
            inputs = self._inputs(
                [next(given) if argument.passed else array for argument, array in zip(self.arguments, fixed, strict=True)]
            )
            outputs = self._outputs(wanted, inputs)
            result = None
            for step in self._bind(inputs, outputs, self.xp.empty):
                result = step()
            if unknown:  # extents that only the values decide: the kernel makes the arrays, those that nobody wants too
                results = result if isinstance(result, tuple) else (result,)
                if len(results) != len(unknown) or results[0] is None:
                    raise ExecutionError(f"{self.definition.type}: the shape of {', '.join(unknown)} is not known before it runs")
                outputs.update(zip(unknown, results, strict=True))
            found = [self._result(outputs, inputs, slot, number) for slot, number, _ in places]
            return found[0] if len(found) == 1 else tuple(found)

        return run


def _is_unknown(spec: Any) -> bool:
    """Whether only running tells the shape of an output, or of one in a list, or how many of its rows are there."""
    items = spec if isinstance(spec, list) else [spec]
    return any(item is not None and (-1 in item.shape or item.type is VarType.SELECTED_ROWS) for item in items)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _may_share(definition: OpDef, slot: str, source: str) -> bool:
    """Whether the kernel may write an output into the array of an input."""
    kernel = KERNELS.get(definition.type)
    return updated_input(definition, slot) == source or (kernel is not None and kernel.inplace.get(slot) == source)

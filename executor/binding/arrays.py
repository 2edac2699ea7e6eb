"""Binds the kernel, or the gradient rule, of an op to the arrays that it reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from fluid.errors import ExecutionError
from fluid.opdef.inference import OpNamespace, infer_specs
from fluid.opdef.registry import LINEAR, OpDef, Rule, grad_slot
from fluid.values.operators import ValueOperators
from fluid.values.spec import Lod, Spec
from fluid.values.types import VarType, as_dtype

from ..kernels.engine import KernelEngine, engine_of
from ..kernels.table import CHECKS, SPARSE_CHECKS, bind, check_call, kernel_of, sparse_kernel_of
from ..runtime.calls import Call, fill
from ..runtime.specs import spec_of
from .halves import widened

__all__ = ["Allocate", "Cell", "Recorder", "bind_op"]

Allocate = Callable[[tuple[int, ...], Any], Any]
"""Returns an uninitialized array of a shape and numpy dtype."""
_NO_LODS: Mapping[str, Any] = MappingProxyType({})


class Cell(ValueOperators):
    """An array, possibly with a LoD, for gradient rules; `namespace` records the ops on it."""

    __slots__ = ("_namespace", "array", "lod")

    def __init__(self, array: Any, namespace: Recorder, lod: Lod = ()) -> None:
        self.array, self.lod, self._namespace = array, lod, namespace

    def _ops(self) -> OpNamespace:
        return self._namespace

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def ndim(self) -> int:
        return int(self.array.ndim)

    @property
    def dtype(self) -> VarType:
        return as_dtype(self.array.dtype)

    @property
    def spec(self) -> Spec:
        return Spec(self.shape, self.dtype, lod=self.lod)


class Recorder(OpNamespace):
    """Ops on arrays: applying an op binds its kernel and records the calls in order, without making them."""

    def __init__(self, context: Mapping[str, Any], allocate: Allocate) -> None:
        self._context, self._allocate = context, allocate
        self.calls: list[Call] = []

    def wrap(self, array: Any, lod: Any = ()) -> Any:
        """Wrap an array in a cell, a list of arrays in a list of cells; None stays None."""
        if isinstance(array, list):
            return [self.wrap(*pair) for pair in zip(array, lod or [()] * len(array), strict=True)]
        return None if array is None else Cell(array, self, lod)

    def apply(self, definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
        cells = {slot: list(value) if isinstance(value, tuple) else value for slot, value in inputs.items()}
        attrs = definition.defaults(definition.check_attrs(attrs))
        specs = infer_specs(definition, map_values(lambda cell: cell.spec, cells), attrs)
        arrays, outputs = map_values(lambda cell: cell.array, cells), map_values(self._make, specs)
        lods = {**lods_of(cells), **lods_of(specs)}
        self.calls += bind_op(definition, arrays, outputs, attrs, self._context, self._allocate, lods=lods)
        return {slot: self.wrap(array, lods.get(slot, ())) for slot, array in outputs.items()}

    def _make(self, spec: Spec) -> Any:
        return self._allocate(spec.shape, spec.dtype.array_dtype)


def map_values(fn: Callable[[Any], Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Apply `fn` to all values, also in lists; None stays None."""
    results: dict[str, Any] = {}
    for slot, value in values.items():
        if isinstance(value, list):
            results[slot] = [None if item is None else fn(item) for item in value]
        else:
            results[slot] = None if value is None else fn(value)
    return results


def lods_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The LoDs by slot of specs, cells or `LoDArray`s; without slots that have none."""
    by_slot = {}
    for slot, value in values.items():
        if isinstance(value, list):
            lods = [getattr(item, "lod", ()) for item in value]
            if any(lods):
                by_slot[slot] = lods
        elif getattr(value, "lod", ()):
            by_slot[slot] = value.lod
    return by_slot


def specs_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The specs of arrays by slot, for inference."""
    return map_values(spec_of, {slot: value for slot, value in values.items() if value is not None})


def bind_op(
    definition: OpDef,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    attrs: Mapping[str, Any],
    context: Mapping[str, Any],
    allocate: Allocate,
    use_kernel: bool = True,
    lods: Mapping[str, Any] = _NO_LODS,
    is_sparse: bool = False,
) -> list[Call]:
    """The calls that compute an op from `inputs` into `outputs`; numpy computes half-precision floats in float32.

    The rule of a gradient op, or the formula of another op, is used if the op has no kernel, if the numbers are complex, or if
    `use_kernel` is off.

    Args:
        inputs, outputs: arrays by slot, lists of arrays in slots of many; None where absent or not wanted.
        attrs: all attributes, defaults included.
        context: further arguments that kernels may name, besides slots and attributes.
        allocate: lends arrays for intermediate results.
        lods: the LoDs of inputs and outputs by slot, where rows form sequences.
        is_sparse: whether an input or output is a `SelectedRows`.
    """
    engine = engine_of(context["xp"])
    if engine.widens_halves and not is_sparse:
        wide = widened(context["xp"], definition, inputs, outputs, attrs, allocate)
        if wide is not None:
            calls = _bind(engine, definition, wide.inputs, wide.outputs, wide.attrs, context, allocate, use_kernel, lods)
            return wide.wrap_calls(calls, returns=any(array is None for array in outputs.values()))
    return _bind(engine, definition, inputs, outputs, attrs, context, allocate, use_kernel, lods, is_sparse)


def _bind(
    engine: KernelEngine,
    definition: OpDef,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    attrs: Mapping[str, Any],
    context: Mapping[str, Any],
    allocate: Allocate,
    use_kernel: bool,
    lods: Mapping[str, Any],
    is_sparse: bool = False,
) -> list[Call]:
    kernel = engine.kernels.get(definition.type) or kernel_of(definition.type)
    check = CHECKS.get(definition.type) if engine.checks_values else None
    if is_sparse:
        sparse = engine.sparse_kernels.get(definition.type) or sparse_kernel_of(definition.type)
        if sparse is None:
            raise ExecutionError(
                f"{definition.type} does not take the sparse gradient of an embedding with is_sparse=True; "
                "use is_sparse=False there, or merge_selected_rows and get_tensor_from_selected_rows"
            )
        check = SPARSE_CHECKS.get(definition.type, check) if engine.checks_values else None
        return bind(sparse, check, inputs, outputs, attrs, context, lods)
    if kernel is not None and (use_kernel or not _has_formula(definition)) and not _needs_rule(definition.forward, inputs):
        return bind(kernel, check, inputs, outputs, attrs, context, lods)
    recorder = Recorder(context, allocate)
    cells = {slot: recorder.wrap(value, lods.get(slot, ())) for slot, value in inputs.items()}
    computed, calls = _compute_by_rule(definition, recorder, cells, outputs, attrs), recorder.calls
    for slot, value in computed.items():
        target = outputs[slot]
        for out, cell in zip(target, value or (), strict=False) if isinstance(target, list) else [(target, value)]:
            if out is not None:
                calls.append(_store(context["xp"], out, cell))
    return calls if check is None else [check_call(check, inputs, outputs, attrs, context, lods), *calls]


def _compute_by_rule(
    definition: OpDef, recorder: Recorder, cells: Mapping[str, Any], outputs: Mapping[str, Any], attrs: Mapping[str, Any]
) -> dict[str, Any]:
    """Compute the outputs of an op without a kernel, by slot, on cells: by its composition, or by a gradient rule."""
    slots = {slot for slot, array in outputs.items() if array is not None}
    if definition.formula is not None:
        return definition.formula(recorder, cells, attrs, slots)
    if definition.forward is None or not isinstance(definition.forward.rule, Rule):
        raise ExecutionError(f"the op {definition.type} has no kernel")
    rule = definition.forward.rule
    wanted = {slot for slot in rule.wrt if grad_slot(slot) in slots}
    gradients = rule(recorder, cells, attrs, wanted)
    return {grad_slot(slot): gradients.get(slot) for slot in wanted}


def _has_formula(definition: OpDef) -> bool:
    """Whether an op can be computed by other ops."""
    return definition.formula is not None or definition.forward is not None


def _needs_rule(forward: OpDef | None, inputs: Mapping[str, Any]) -> bool:
    """Whether a gradient needs its rule: the inputs are complex, and the kernel does not support that."""
    if forward is None or forward.complex_rule in ("", LINEAR):
        return False
    arrays = [item for value in inputs.values() for item in (value if isinstance(value, list) else [value])]
    return any(array is not None and array.dtype.kind == "c" for array in arrays)


def _store(xp: Any, out: Any, cell: Cell | None) -> Call:
    """The call that copies a gradient to `out`, or fills it with zeros for None."""
    if cell is None:
        return fill(xp, out, 0)
    same_shape = cell.array.shape == out.shape  # a single element may have shape [1] or []
    return partial(xp.copyto, out, cell.array if same_shape else cell.array.reshape(out.shape))

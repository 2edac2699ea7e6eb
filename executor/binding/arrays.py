"""Ops over arrays: binding the kernel, or the gradient rule, of an op to the arrays that it reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from fluid.errors import ExecutionError
from fluid.opdef.inference import OpNamespace, infer_specs
from fluid.opdef.registry import OpDef, Rule, grad_slot
from fluid.values.lod_array import lod_of
from fluid.values.operators import ValueOperators
from fluid.values.selected_rows import SelectedRows
from fluid.values.spec import Lod, Spec
from fluid.values.types import VarType, as_dtype

from ..kernels.table import CHECKS, KERNELS, SPARSE_CHECKS, SPARSE_KERNELS, bind
from .calls import Call, fill
from .engine import engine_of

__all__ = ["Allocate", "Cell", "Recorder", "bind_op", "spec_of"]

Allocate = Callable[[tuple[int, ...], Any], Any]
"""Gives an array of a shape and numpy dtype, contents undefined."""
_NO_LODS: Mapping[str, Any] = MappingProxyType({})


def spec_of(value: Any) -> Spec:
    """What the array, or other value of a tensor, is."""
    if type(value) is SelectedRows:
        return Spec(value.shape, as_dtype(value.dtype), VarType.SELECTED_ROWS)
    return Spec(tuple(value.shape), as_dtype(value.dtype), lod=lod_of(value))


class Cell(ValueOperators):
    """An array, with a LoD perhaps, as a value of gradient rules; the namespace says where its ops are recorded."""

    __slots__ = ("_namespace", "array", "lod")

    def __init__(self, array: Any, namespace: Recorder, lod: Lod = ()) -> None:
        self.array = array
        self.lod = lod
        self._namespace = namespace

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
    """Ops over arrays: applying one binds its kernel to arrays and records the calls, in order, without making them."""

    def __init__(self, context: Mapping[str, Any], allocate: Allocate) -> None:
        self._context = context
        self._allocate = allocate
        self.calls: list[Call] = []

    def wrap(self, array: Any, lod: Any = ()) -> Any:
        """Arrays as cells; lists and None stay what they are."""
        if isinstance(array, list):
            return [self.wrap(*pair) for pair in zip(array, lod or [()] * len(array), strict=True)]
        return None if array is None else Cell(array, self, lod)

    def apply(self, definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
        cells = {slot: list(value) if isinstance(value, tuple) else value for slot, value in inputs.items()}
        attrs = definition.defaults(definition.check_attrs(attrs))
        specs = infer_specs(definition, each(lambda cell: cell.spec, cells), attrs)
        arrays, outputs = each(lambda cell: cell.array, cells), each(self._make, specs)
        lods = {**lods_of(cells), **lods_of(specs)}
        self.calls += bind_op(definition, arrays, outputs, attrs, self._context, self._allocate, lods=lods)
        return {slot: self.wrap(array, lods.get(slot, ())) for slot, array in outputs.items()}

    def _make(self, spec: Spec) -> Any:
        return self._allocate(spec.shape, spec.dtype.numpy)


def each(fn: Callable[[Any], Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """`fn` of each value by slot, in lists too; None stays None."""
    return {
        slot: [None if item is None else fn(item) for item in value]
        if isinstance(value, list)
        else None
        if value is None
        else fn(value)
        for slot, value in values.items()
    }


def lods_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The LoD of the slots (a list in slots of many) that have any; values are specs, cells or arrays with a LoD."""
    found = {}
    for slot, value in values.items():
        if isinstance(value, list):
            lods = [getattr(item, "lod", ()) for item in value]
            if any(lods):
                found[slot] = lods
        elif getattr(value, "lod", ()):
            found[slot] = value.lod
    return found


def specs_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Specs of arrays by slot, as inference takes them."""
    return each(spec_of, {slot: value for slot, value in values.items() if value is not None})


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
    """The calls that compute an op from these arrays into these arrays.

    A gradient op without a kernel of its own (or with `use_kernel` off) is computed by its rule.

    Args:
        inputs, outputs: arrays (lists in slots of many) by slot; None for what is absent or unwanted.
        attrs: complete attributes.
        context: what kernels may ask for besides slots and attributes.
        allocate: lends arrays for intermediate results.
        lods: the LoD of inputs and outputs, by slot, where rows form sequences.
        is_sparse: whether an input or output is a `SelectedRows`.
    """
    engine = engine_of(context["xp"])
    check = CHECKS.get(definition.type) if engine.checks_values else None
    if is_sparse:
        sparse = engine.sparse_kernels.get(definition.type) or SPARSE_KERNELS.get(definition.type)
        if sparse is None:
            raise ExecutionError(
                f"{definition.type} does not take the sparse gradient of an embedding with is_sparse=True; "
                "use is_sparse=False there, or merge_selected_rows and get_tensor_from_selected_rows"
            )
        check = SPARSE_CHECKS.get(definition.type, check) if engine.checks_values else None
        return bind(sparse, check, inputs, outputs, attrs, context, lods)
    found = engine.kernels.get(definition.type) or KERNELS.get(definition.type)
    if found is not None and (use_kernel or definition.forward is None):
        return bind(found, check, inputs, outputs, attrs, context, lods)
    if definition.forward is None or not isinstance(definition.forward.rule, Rule):
        raise ExecutionError(f"the op {definition.type} has no kernel")
    recorder = Recorder(context, allocate)
    rule = definition.forward.rule
    wanted = {slot for slot in rule.wrt if outputs.get(grad_slot(slot)) is not None}
    found_grads = rule(
        recorder, {slot: recorder.wrap(value, lods.get(slot, ())) for slot, value in inputs.items()}, attrs, wanted
    )
    calls = recorder.calls
    for slot in wanted:
        target, value = outputs[grad_slot(slot)], found_grads.get(slot)
        for out, cell in zip(target, value or (), strict=False) if isinstance(target, list) else [(target, value)]:
            if out is not None:
                calls.append(_deliver(context["xp"], out, cell))
    return calls


def _deliver(xp: Any, out: Any, cell: Cell | None) -> Call:
    if cell is None:
        return fill(xp, out, 0)
    array = cell.array
    if array.shape != out.shape:
        array = array.reshape(out.shape)  # one element, of shape [1] or []
    return partial(xp.copyto, out, array)

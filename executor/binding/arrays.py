"""Binds the kernel, or the gradient rule, of an op to the arrays that it reads and writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from fluid.errors import ExecutionError
from fluid.opdef.inference import OpNamespace, infer_specs
from fluid.opdef.registry import LINEAR, OpDef, Rule, grad_slot
from fluid.values.spec import Lod, Spec, SpecValue
from fluid.values.types import as_dtype

from ..kernels.engine import KernelEngine, engine_of
from ..kernels.table import CHECKS, SPARSE_CHECKS, bind, check_call, kernel_of, sparse_kernel_of
from ..runtime.calls import Call, fill
from ..runtime.specs import spec_of
from .halves import widened

_VIEWS = frozenset(
    ("reshape2", "reshape", "squeeze2", "squeeze", "unsqueeze2", "unsqueeze", "flatten2", "flatten", "flatten_contiguous_range",
     "reshape_like")
)  # fmt: skip
"""Ops whose result is X in another shape."""


Allocate = Callable[[tuple[int, ...], Any], Any]
"""Returns an uninitialized array of a shape and numpy dtype."""
_NO_LODS: Mapping[str, Any] = MappingProxyType({})


class Cell(SpecValue):
    """An array, possibly with a LoD, for rules and formulas; `namespace` records the ops on it.

    Attributes:
        spec: its shape, element type and LoD.
        array: None for the result of an op that is not bound yet.
    """

    __slots__ = ("_namespace", "array", "spec")

    def __init__(self, spec: Spec, namespace: Recorder, array: Any = None) -> None:
        self.spec, self.array, self._namespace = spec, array, namespace

    def _ops(self) -> OpNamespace:
        return self._namespace

    @property
    def lod(self) -> Lod:
        return self.spec.lod


class Recorder(OpNamespace):
    """Ops on arrays. Applying an op records it; `calls` binds the kernels, when the wanted results and their places are known."""

    def __init__(self, context: Mapping[str, Any], allocate: Allocate) -> None:
        self._context, self._allocate = context, allocate
        self._ops: list[_RecordedOp] = []
        self._reads: Counter[int] = Counter()
        """The id of a cell -> how many ops and results read it."""
        self._intermediates = _IntermediateArrays(allocate)

    def wrap(self, array: Any, lod: Any = ()) -> Any:
        """Wrap an array in a cell, a list of arrays in a list of cells; None stays None."""
        if isinstance(array, list):
            return [self.wrap(*pair) for pair in zip(array, lod or [()] * len(array), strict=True)]
        return None if array is None else Cell(Spec(tuple(array.shape), as_dtype(array.dtype), lod=lod), self, array)

    def apply(self, definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
        cells = {slot: list(value) if isinstance(value, tuple) else value for slot, value in inputs.items()}
        attrs = definition.defaults(definition.check_attrs(attrs))
        specs = infer_specs(definition, map_values(lambda cell: cell.spec, cells), attrs)
        outputs = map_values(lambda spec: Cell(spec, self), specs)
        self._ops.append(_RecordedOp(definition, cells, attrs, outputs))
        return outputs

    def limit_to(self, results: Iterable[Cell | None]) -> None:
        """Forget the recorded ops that these results do not need."""
        cells = [cell for cell in results if cell is not None]
        wanted = set(map(id, cells))
        needed = []
        for op in reversed(self._ops):
            if op.definition.is_random or op.definition.updated or any(id(cell) in wanted for cell in _cells_of(op.outputs)):
                wanted.update(map(id, _cells_of(op.inputs)))
                needed.append(op)
        self._ops = needed[::-1]
        self._reads.update(id(cell) for op in needed for cell in _cells_of(op.inputs))
        self._reads.update(map(id, cells))

    def write_into(self, cell: Cell, out: Any) -> None:
        """Have the op of this cell write its result into `out`. So does the op before it if this op overwrites its operand."""
        cell.array = out
        maker = self._maker_of(cell)
        if maker is None:
            return
        if maker.is_view and maker.inputs["X"].array is None:
            self.write_into(maker.inputs["X"], out.reshape(maker.inputs["X"].shape))
        source = self._overwritten(maker, cell)
        if source is not None and self._is_read_once(source):
            self.write_into(source, out)

    def _maker_of(self, cell: Cell) -> _RecordedOp | None:
        """The op that computes a cell; None for an input."""
        return next((op for op in self._ops if any(output is cell for output in _cells_of(op.outputs))), None)

    def _is_read_once(self, cell: Cell) -> bool:
        """Whether a result has no array yet, and only one op will read its memory."""
        maker = self._maker_of(cell)
        is_last = cell.array is None and self._reads[id(cell)] == 1
        return is_last and (maker is None or not maker.is_view or self._is_read_once(maker.inputs["X"]))

    def calls(self) -> list[Call]:
        """Bind the recorded ops; a result without an array gets one."""
        return [call for op in self._ops for call in self._bind(op)]

    def _bind(self, op: _RecordedOp) -> list[Call]:
        xp = self._context["xp"]
        read = _cells_of(op.inputs)
        if op.is_view and _is_plain(xp, source := op.inputs["X"].array):
            out = next(iter(op.outputs.values()))
            if out.array is None:
                out.array = source.reshape(out.shape)
            if xp.may_share_memory(out.array, source):
                self._intermediates.share(out, op.inputs["X"], self._reads[id(out)])
                self._intermediates.finish(read)
                return []
        for cell in _cells_of(op.outputs):
            if cell.array is None:
                self._intermediates.place(cell, self._overwritten(op, cell), self._reads[id(cell)])
        inputs, outputs = (map_values(lambda cell: cell.array, cells) for cells in (op.inputs, op.outputs))
        lods = {**lods_of(op.inputs), **lods_of(op.outputs)}
        self._intermediates.finish(read)
        return bind_op(op.definition, inputs, outputs, op.attrs, self._context, self._allocate, lods=lods)

    def _overwritten(self, op: _RecordedOp, cell: Cell) -> Cell | None:
        """The input whose array the kernel of an op may overwrite with the output `cell`; None if there is none."""
        kernel = kernel_of(op.definition.type)
        if kernel is None or not engine_of(self._context["xp"]).writes_functions:
            return None
        slot = next((slot for slot, output in op.outputs.items() if output is cell), "")
        source = op.inputs.get(kernel.inplace.get(slot, ""))
        return source if isinstance(source, Cell) and source.spec == cell.spec else None


class _IntermediateArrays:
    """The arrays of intermediate results. An array is free for later results once all results in it have been read."""

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._buffers: dict[int, _IntermediateArray] = {}
        """The id of a cell -> the memory that holds it."""
        self._free: dict[Any, list[_IntermediateArray]] = {}
        """Shape and dtype -> the arrays that hold nothing."""

    def place(self, cell: Cell, source: Cell | None, reads: int) -> None:
        """Give a cell the array of `source`, if nothing else reads that, or a free or new array."""
        buffer = self._buffers.get(id(source))
        if source is not None and buffer is not None and buffer.reads == 1:
            cell.array = source.array
        else:
            layout = cell.shape, cell.dtype.array_dtype
            free = self._free.get(layout)
            buffer = free.pop() if free else _IntermediateArray(self._allocate(*layout))
            cell.array = buffer.array
        self._hold(cell, buffer, reads)

    def share(self, cell: Cell, source: Cell, reads: int) -> None:
        """Let a cell be a view of the array of `source`."""
        buffer = self._buffers.get(id(source))
        if buffer is not None:
            self._hold(cell, buffer, reads)

    def _hold(self, cell: Cell, buffer: _IntermediateArray, reads: int) -> None:
        """Note that a buffer holds a cell until it has been read so often."""
        buffer.reads += max(reads, 1)  # without readers, it is not used again
        self._buffers[id(cell)] = buffer

    def finish(self, cells: Iterable[Cell]) -> None:
        """Note that an op has read these cells."""
        for cell in cells:
            buffer = self._buffers.get(id(cell))
            if buffer is not None:
                buffer.reads -= 1
                if not buffer.reads:
                    self._free.setdefault((buffer.array.shape, buffer.array.dtype), []).append(buffer)


class _IntermediateArray:
    """An array, and how often the results in it are still to be read."""

    def __init__(self, array: Any) -> None:
        self.array, self.reads = array, 0


class _RecordedOp(NamedTuple):
    """An op on cells."""

    definition: OpDef
    inputs: Mapping[str, Any]
    attrs: Mapping[str, Any]
    outputs: Mapping[str, Any]

    @property
    def is_view(self) -> bool:
        """Whether the result may be X's array in another shape."""
        return self.definition.type in _VIEWS and -1 not in self.outputs["Out"].shape


def _is_plain(xp: Any, array: Any) -> bool:
    """Whether an array has an address and is contiguous."""
    return engine_of(xp).writes_functions and type(array) is xp.ndarray and bool(array.flags.c_contiguous)


def _cells_of(values: Mapping[str, Any]) -> list[Cell]:
    items = [item for value in values.values() for item in (value if isinstance(value, list) else (value,))]
    return [cell for cell in items if cell is not None]


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
    computed = _compute_by_rule(definition, recorder, cells, outputs, attrs)
    results: list[tuple[Any, Cell | None]] = []
    for slot, value in computed.items():
        target = outputs[slot]
        pairs = zip(target, value or (), strict=False) if isinstance(target, list) else [(target, value)]
        results += [(out, cell) for out, cell in pairs if out is not None]
    arrays = [array for value in inputs.values() for array in (value if isinstance(value, list) else (value,))]
    recorder.limit_to(cell for _, cell in results)
    for out, cell in results:
        if cell is not None and cell.array is None:
            recorder.write_into(
                cell, out if _takes(context["xp"], out, cell.spec, arrays) else allocate(cell.shape, cell.dtype.array_dtype)
            )
    calls = recorder.calls()
    calls += [_store(context["xp"], out, cell) for out, cell in results if cell is None or cell.array is not out]
    return calls if check is None else [check_call(check, inputs, outputs, attrs, context, lods), *calls]


def _takes(xp: Any, out: Any, spec: Spec, inputs: Iterable[Any]) -> bool:
    """Whether an op may write a value of this spec right into `out`: a plain array that shares no memory with the inputs."""
    return (
        _is_plain(xp, out)
        and out.shape == spec.shape
        and out.dtype == spec.dtype.array_dtype
        and not any(array is not None and xp.may_share_memory(out, array) for array in inputs)
    )


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

"""Ops on tensors, compiled once for the attributes and the kinds of the tensors, and cached."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from math import prod, sqrt
from typing import Any
from weakref import ref

import numpy as np

from ..errors import BackwardError, ExecutionError, FluidError, ProgramError, no_room, said_of, while_running
from ..executor.binding.array_types import CPU, ArrayType, array_of, array_type_like, array_type_of, default_xp, quietly
from ..executor.binding.compiled import Argument, compiled, inputs_of
from ..executor.kernels.table import kernel_of, may_thread, sparse_kernel_of
from ..executor.runtime.random import RANDOM
from ..executor.runtime.threads import on_one_thread
from ..executor.stepwise.meeting import stating
from ..opdef import registry
from ..opdef.inference import OpNamespace, infer_specs
from ..opdef.registry import NOT_DIFFERENTIABLE, REGION, ZERO_GRADIENT, OpDef, Rule, Slot, grad_slot
from ..values.cache import Cache
from ..values.lod_array import array_of as array_in
from ..values.lod_array import lod_of
from ..values.spec import Spec
from ..values.types import VarType, is_complex
from .graph import LARGE, OpNode, leaf_edge, line_text, sequence, user_line
from .mode import state
from .parts import parts
from .reads import Traced, Tracing, rule_sources
from .tensor import Tensor, make

Slots = tuple[tuple[str, "int | None"], ...]
"""The input slots in use: (slot, None), or (slot, number of tensors) for slots that take several."""
_PRODUCTS = ("matmul", "conv", "rnn")
"""Families of ops that multiply matrices."""
_LISTS = "use Python's lists in place of arrays"
_STEPS = (
    "loop in Python over the steps of padded sequences (sequence_pad), or use dygraph.LSTM or GRU with sequence_length, or "
    "layers.rnn with a cell"
)
_ROWS = "choose rows by a mask: layers.gather of where(mask), and layers.scatter to put them back"
_INSTEAD = {
    **dict.fromkeys(("lod_rank_table", "max_sequence_len", "lod_tensor_to_array", "array_to_lod_tensor"), _STEPS),
    **dict.fromkeys(("shrink_rnn_memory", "reorder_lod_tensor_by_rank"), _STEPS),
    **dict.fromkeys(("split_lod_tensor", "merge_lod_tensor"), _ROWS),
    "beam_search_decode": "use layers.dynamic_decode with a BeamSearchDecoder, or gather_tree on the steps' ids and parents",
    "assert": "use Python's assert",
    **dict.fromkeys(("save", "save_combine", "load_combine"), "use dygraph.save_dygraph and load_dygraph"),
}
"""Op type -> what to use instead of it outside programs."""


class TensorOp:
    """An op with fixed attributes and input slots, called with the tensors of all slots in order.

    It returns the visible outputs (all but intermediate ones): one tensor or list, or a tuple of them.
    """

    __slots__ = ("_compiled", "attrs", "definition", "slots", "visible")

    def __init__(self, definition: OpDef, attrs: Mapping[str, Any], slots: Slots, also: Sequence[str] = ()) -> None:
        if definition.rule is REGION:
            raise ExecutionError(
                f"{definition.type} owns a block of a program; outside programs, use Python's own if, for and while"
            )
        self.definition = definition
        self.attrs = definition.defaults(definition.check_attrs(attrs))
        self.slots = slots
        self.visible = [name for name, slot in definition.outputs.items() if not slot.intermediate or name in also]
        self._compiled: Cache[Any, CompiledOp] = Cache()

    def __call__(self, *tensors: Tensor) -> Any:
        if state.interceptor is not None:
            return state.interceptor.call(self, tensors)
        return self.compiled_for(tensors).call(tensors)

    def compiled_for(self, tensors: Sequence[Tensor]) -> CompiledOp:
        """The op compiled for tensors of these kinds."""
        if len(tensors) == 1:  # the commonest; where there are more, a loop over so few takes less time than a comprehension
            kinds: Any = tensors[0]._kind
        else:
            kinds = []
            for tensor in tensors:
                kinds.append(tensor._kind)
            kinds = tuple(kinds)
        return self._compiled.get(kinds) or self._compiled.keep(kinds, self._compile(tensors))

    def _compile(self, tensors: Sequence[Tensor]) -> CompiledOp:
        kinds = tuple(tensor._kind for tensor in tensors)
        try:
            return CompiledOp(self, kinds)
        except (FluidError, MemoryError, ValueError) as raised:
            error = raised if isinstance(raised, FluidError) else no_room(raised)
            if error is None:
                raise
            inputs = self._inputs_text(kinds)
            raise type(error)(
                f"{said_of(self.definition.type, error)}\n  inputs: {inputs}\n  called at: {line_text(user_line())}"
            ) from raised

    def _failure(self, error: Exception, tensors: Sequence[Tensor]) -> Exception:
        inputs = self._inputs_text([tensor._kind for tensor in tensors])
        line = line_text(user_line())
        message = said_of(self.definition.type, error, "" if isinstance(error, FluidError) else " failed")
        return while_running(error, f"{message}\n  inputs: {inputs}\n  called at: {line}")

    def _inputs_text(self, kinds: Sequence[ArrayType]) -> str:
        names = [slot for slot, _ in self.positions()]
        return "; ".join(f"{name} is {kind}" for name, kind in zip(names, kinds, strict=True)) or "none"

    def positions(self) -> list[tuple[str, int | None]]:
        """(slot, index in the slot or None) of each tensor."""
        return [(slot, number) for slot, count in self.slots for number in ([None] if count is None else range(count))]


_new_node = OpNode.__new__


class CompiledOp:
    """An op compiled for tensors of certain kinds.

    Attributes:
        run: computes the output arrays from the input arrays.
        out_kinds: kinds of the outputs, in order; None where unknown or not computed.
        single: the kind of the only output; None where there are several, or where it is unknown.
        recorded: whether calls are recorded: gradients may flow to the inputs (or it is an error if they do).
        not_wrt: positions of inputs that have no gradient.
        constants: the positions among them that the result depends on.
        saves: whether backward needs values of inputs or outputs.
    """

    __slots__ = (
        "_by_edges",
        "_edges",
        "_reads",
        "_save_in",
        "_save_out",
        "_slots",
        "_specs",
        "_variants",
        "all_wanted",
        "backwards",
        "constants",
        "device",
        "kinds",
        "large",
        "not_wrt",
        "op",
        "out_kinds",
        "recorded",
        "run",
        "saves",
        "single",
    )

    def __init__(self, op: TensorOp, kinds: tuple[ArrayType, ...]) -> None:
        definition = op.definition
        self.op, self.kinds = op, kinds
        devices = dict.fromkeys(kind.device for kind in kinds)
        if len(devices) > 1:
            raise ProgramError(f"the tensors are on different devices, {' and '.join(devices)}; bring them to one")
        rule = definition.rule
        read = rule.outputs if isinstance(rule, Rule) else {}
        wants = {name: name in op.visible or read.get(name) is False for name in definition.outputs}
        if not (definition.forward or definition.formula or kernel_of(definition.type) or sparse_kernel_of(definition.type)):
            reason = _INSTEAD.get(definition.type, _LISTS)
            raise ExecutionError(f"{definition.type} runs in programs only; on tensors, {reason}")
        arguments = [Argument(slot, kind.spec) for (slot, _), kind in zip(op.positions(), kinds, strict=True)]
        self._specs = infer_specs(definition, inputs_of(definition, arguments), op.attrs)
        xp = kinds[0].xp if kinds else default_xp()
        call = compiled(definition, op.attrs, arguments, xp, wants=wants, specs=self._specs, write_after=0)
        self.run = stating(definition.type, op.attrs, [kind.spec for kind in kinds], xp, call.run)
        if definition.is_random:
            self.run = RANDOM.naming(definition.type, self.run)
        self.out_kinds = tuple(self._out_kind(xp, *place) for place in call.places)
        if xp is np and may_thread(definition.type, sum([kind.size for kind in (*kinds, *self.out_kinds) if kind is not None])):
            self.run = on_one_thread(self.run)
        self._slots = tuple(slot for slot, _ in call.places)
        only = len(call.places) == len(op.visible) == 1 and call.places[0][1] is None
        self.single = self.out_kinds[0] if only else None
        self.recorded = rule is not ZERO_GRADIENT and any(kind.differentiable for kind in kinds)
        self.recorded &= any(kind is None or kind.differentiable for kind in self.out_kinds)
        self.not_wrt = frozenset(i for i, kind in enumerate(kinds) if not kind.differentiable)
        self.constants: tuple[int, ...] = ()
        self._save_in: tuple[int, ...] = ()
        self._save_out: tuple[int, ...] = ()
        if isinstance(rule, Rule):
            slots = [slot for slot, _ in op.positions()]
            inputs = definition.inputs
            self.not_wrt |= {i for i, slot in enumerate(slots) if slot not in rule.wrt}
            self.constants = tuple(i for i, s in enumerate(slots) if s in definition.constants and kinds[i].differentiable)
            self._save_in = tuple(i for i, s in enumerate(slots) if rule.inputs.get(s) is False and not inputs[s].shape_only)
            self._save_out = tuple(i for i, s in enumerate(self._slots) if rule.outputs.get(s) is False)
            self.recorded &= len(self.not_wrt) < len(slots)
        self.device = next(iter(devices), CPU)
        self.large = self._work() >= LARGE
        self.saves = bool(self._save_in or self._save_out)
        self.all_wanted = (True,) * len(kinds)
        self.backwards: dict[Any, Backward] = {}
        self._variants: Cache[Any, CompiledOp] = Cache()
        self._by_edges: Cache[Any, CompiledOp] = Cache()
        self._edges: tuple[bool, ...] | None = None
        self._reads: dict[tuple[bool, ...], list[tuple[str, str, Any]]] = {}

    def _out_kind(self, xp: Any, slot: str, number: int | None) -> ArrayType | None:
        """The kind of an output; None where it is known only after a run."""
        spec: Spec = self._specs[slot] if number is None else self._specs[slot][number]
        if spec.type is VarType.LOD_TENSOR:
            return None if -1 in spec.shape or None in spec.lod else array_type_like(spec, xp)
        if spec.type is not VarType.SELECTED_ROWS:
            raise ExecutionError(f"{self.op.definition.type} makes no tensor; on tensors, {_LISTS}")
        return None

    def _work(self) -> float:
        """Roughly the number of elements computed, or for products the number of multiplications."""
        sizes = [kind.size for kind in (*self.kinds, *self.out_kinds) if kind is not None]
        largest = max(sizes, default=0)
        if self.op.definition.module.rpartition(".")[2] not in _PRODUCTS:
            return largest
        factors = sorted(sizes)[-3:]
        return sqrt(prod(factors)) if len(factors) == 3 else largest  # of [m, k], [k, n] and [m, n]: m k n

    # -- forward
    def call(self, tensors: Sequence[Tensor]) -> Any:
        """Run the op on tensors of these kinds; record the call if one requires a gradient."""
        try:
            if len(tensors) == 1:
                results = quietly.run(self.run, tensors[0]._array)
            else:
                arrays = []
                for tensor in tensors:
                    arrays.append(tensor._array)  # noqa: PERF401
                results = quietly.run(self.run, *arrays)
        except Exception as error:
            raise self.op._failure(error, tensors) from error
        if self.recorded and state.recording:
            for tensor in tensors:
                if not tensor._stop:
                    return self._recorded(tensors, results)
        return self._plain(results)

    def _plain(self, results: Any) -> Any:
        return make(results, self.single) if self.single is not None else self.arrange(self.wrap(results))

    def _recorded(self, tensors: Sequence[Tensor], results: Any) -> Any:
        edges: list[Any] = []
        absent = deepest = 0
        for tensor in tensors:
            if tensor._stop or len(edges) in self.not_wrt:
                absent += 1
                edges.append(None)
            else:
                edge = tensor._edge or leaf_edge(tensor)
                edges.append(edge)
                if edge[0].topological_nr > deepest:
                    deepest = edge[0].topological_nr
        compiled_op = self
        if absent:
            if self.constants:
                self._warn_of_constants(tensors)
            if absent == len(edges):
                return self._plain(results)
            if self.saves and absent > len(self.not_wrt):
                compiled_op = self.with_edges(edges)
        node = _new_node(OpNode)
        if compiled_op.single is not None:
            result = make(results, compiled_op.single, (node, 0))
            node._saved = compiled_op.save(tensors, (result,)) if compiled_op.saves else ()
            node._keepers = ref(result) if state.keeps_gradients else None
        else:
            outputs = compiled_op.wrap(results)
            if None in compiled_op.out_kinds:
                compiled_op = compiled_op.with_kinds(tuple([output._kind for output in outputs]))
            keepers: dict[int, Any] = {}
            for number, output in enumerate(outputs):
                if output._kind.differentiable:
                    output._edge, output._stop = (node, number), False
                    keepers[number] = ref(output)
            node._keepers = keepers if state.keeps_gradients else None
            node._saved = compiled_op.save(tensors, outputs) if compiled_op.saves else ()
            result = compiled_op.arrange(outputs)
        node._compiled_op = compiled_op
        node._edges = tuple(edges)
        node._hooks = None
        node._line = user_line(4)  # past the frames of this method, `call` and its caller
        node.sequence_nr = next(sequence)
        node.topological_nr = deepest + 1
        return result

    def _warn_of_constants(self, tensors: Sequence[Tensor]) -> None:
        """Warn of tensors that require a gradient but are inputs that the op takes as constants."""
        for number in self.constants:
            if not tensors[number]._stop:
                slot = self.op.positions()[number][0]
                warnings.warn(
                    f"no gradient flows to {slot}, which {self.op.definition.type} takes as a constant; if that is meant, "
                    f"detach() it\n  called at: {line_text(user_line())}",
                    stacklevel=5,
                )

    def save(self, tensors: Sequence[Tensor], outputs: Sequence[Any]) -> tuple[tuple[Any, list[Any], int], ...]:
        """The values that backward needs, as (array, the tensor's version counter, its present count)."""
        saved = []
        for number in self._save_in:
            tensor = tensors[number]
            saved.append((tensor._array, tensor._version, tensor._version[0]))
        for number in self._save_out:
            tensor = outputs[number]
            saved.append((tensor._array, tensor._version, tensor._version[0]))
        return tuple(saved)

    def wrap(self, results: Any) -> list[Any]:
        """The results of `run` as tensors."""
        arrays = results if isinstance(results, tuple) else (results,)
        return [
            make(array, kind) if kind is not None else make(array_in(array), array_type_of(array_in(array), lod_of(array)))
            for array, kind in zip(arrays, self.out_kinds, strict=True)
        ]

    def with_kinds(self, out_kinds: tuple[ArrayType, ...]) -> CompiledOp:
        """A copy of this compiled op for these kinds of outputs, known only after a run."""
        variant = self._variants.get(out_kinds)
        if variant is None:
            variant = self._variants.keep(out_kinds, copy(self))
            variant.out_kinds, variant.backwards, variant._reads, variant._by_edges = out_kinds, {}, {}, Cache()
            variant._specs = {**self._specs, **self.by_slot([kind.spec for kind in out_kinds])}
        return variant

    # -- saved values
    def with_edges(self, edges: Sequence[Any]) -> CompiledOp:
        """A copy of this compiled op that saves only the values that the gradients along these edges read; None stands for no
        edge."""
        has_edge = tuple([edge is not None for edge in edges])
        return self._by_edges.get(has_edge) or self._by_edges.keep(has_edge, self._saving_for(has_edge))

    def _saving_for(self, edges: tuple[bool, ...]) -> CompiledOp:
        rule = self.op.definition.rule
        present = tuple(isinstance(rule, Rule) and slot in rule.cotangents for slot in self._slots)
        # With several cotangents, only backward knows which of them exist.
        if not isinstance(rule, Rule) or present.count(True) != 1 or self.op.definition.decomposition or None in self.out_kinds:
            return self
        read = Backward(self, edges, present).read | self._read_by_rule(rule, edges, present)
        if len(read) == len(self._save_in) + len(self._save_out):
            return self
        variant = copy(self)
        variant._edges, variant.backwards, variant._reads = edges, {}, {}
        variant._variants, variant._by_edges = Cache(), Cache()
        variant._save_in = tuple(at for number, at in enumerate(self._save_in) if number in read)
        variant._save_out = tuple(at for number, at in enumerate(self._save_out, len(self._save_in)) if number in read)
        variant.saves = bool(read)
        return variant

    def _read_by_rule(self, rule: Rule, edges: Sequence[bool], present: Sequence[bool]) -> frozenset[int]:
        """The numbers of the saved values that the rule reads for the gradients along these edges."""
        definition, saved_kinds, namespace = self.op.definition, self.saved_kinds(), Tracing()
        values: dict[str, Any] = {}
        slots = _slots_of_gradient(definition)
        for slot, source, item in self.reads(rule, present):
            kind = saved_kinds[item] if source == "saved" else self.out_kinds[item] if source == "grad" else item
            value = Traced(kind.spec, namespace, frozenset([item] if source == "saved" else []))
            if slots[slot].many:
                values.setdefault(slot, []).append(value)
            else:
                values[slot] = value
        wanted = {slot for (slot, _), edge in zip(self.op.positions(), edges, strict=True) if edge}
        return rule_sources(rule, namespace, values, self.op.attrs, wanted)

    def arrange(self, outputs: Sequence[Any]) -> Any:
        """The visible outputs as a call returns them."""
        by_slot = self.by_slot(outputs)
        seen = [by_slot.get(name) for name in self.op.visible]
        return seen[0] if len(seen) == 1 else tuple(seen)

    def by_slot(self, outputs: Sequence[Any]) -> dict[str, Any]:
        """Outputs by slot; a list for slots of several."""
        result: dict[str, Any] = {}
        for slot, output in zip(self._slots, outputs, strict=True):
            if self.op.definition.outputs[slot].many:
                result.setdefault(slot, []).append(output)
            else:
                result[slot] = output
        return result

    # -- backward
    def backward(self, wanted: Sequence[bool], grads: Sequence[Any]) -> Backward | None:
        """The code for the wanted gradients; some of `grads` may be None. None if all are, or no gradient is wanted."""
        if self._edges is not None:
            wanted = self._edges  # values for other gradients may not be saved
        if True not in wanted:
            return None
        if len(grads) == 1 and grads[0] is not None:
            key: Any = wanted
        else:
            present = tuple([grad is not None for grad in grads])
            if True not in present:
                return None
            key = (wanted, present)
        backward = self.backwards.get(key)
        if backward is None:
            present = tuple(grad is not None for grad in grads)
            backward = self.backwards[key] = Backward(self, tuple(wanted), present)
        return backward

    def gradient_rule(self, present: Sequence[bool]) -> Rule:
        """The op's rule; an error if no gradient can flow from the outputs for which one is present."""
        definition = self.op.definition
        rule = definition.rule
        if not isinstance(rule, Rule):
            reason = "is not differentiable" if rule is NOT_DIFFERENTIABLE else "has no gradient rule"
            raise BackwardError(
                f"the op {definition.type} {reason}, and a gradient would flow through it; detach() its output to cut it there"
            )
        for kind in (*self.kinds, *self.out_kinds):
            if kind is not None and is_complex(kind.dtype) and not definition.complex_rule:
                raise BackwardError(
                    f"{definition.type} has no gradient for complex numbers, and computes with {kind}; detach() what they "
                    "are computed from, or give the real and the imaginary parts as floats"
                )
        for slot, has_gradient in zip(self._slots, present, strict=True):
            if has_gradient and slot not in rule.cotangents:
                raise BackwardError(f"a gradient reaches the output {slot} of {definition.type}, which has none")
        return rule

    def reads(self, rule: Rule, present: Sequence[bool]) -> list[tuple[str, str, Any]]:
        """List the values that the rule reads, as (slot of the gradient op, source, index or kind).

        The source is ``"saved"`` or ``"grad"``, with an index into the saved values or the gradients; or ``"like"`` (only shape
        and dtype are read) or ``"zeros"``, with a kind.
        """
        key = tuple(present)
        reads = self._reads.get(key)
        if reads is None:
            reads = self._reads[key] = self._find_reads(rule, present)
        return reads

    def _find_reads(self, rule: Rule, present: Sequence[bool]) -> list[tuple[str, str, Any]]:
        reads: list[tuple[str, str, Any]] = []
        saved = itertools.count()
        for number, (slot, _) in enumerate(self.op.positions()):
            if slot in rule.inputs:
                is_saved = number in self._save_in
                reads.append((slot, "saved", next(saved)) if is_saved else (slot, "like", self.kinds[number]))
        for slot, shape_only in rule.outputs.items():
            if shape_only and slot in self._specs:
                spec = self._specs[slot]
                xp = self.kinds[0].xp
                reads += [(slot, "like", array_type_like(item, xp)) for item in (spec if isinstance(spec, list) else [spec])]
        for number, slot in enumerate(self._slots):
            if number in self._save_out:
                reads.append((slot, "saved", next(saved)))
            elif rule.outputs.get(slot) is False:
                reads.append((slot, "like", self.out_kinds[number]))
        with_gradient = {slot for slot, has_gradient in zip(self._slots, present, strict=True) if has_gradient}
        for number, slot in enumerate(self._slots):
            if slot in rule.cotangents and (slot in with_gradient or slot not in rule.optional):
                key = grad_slot(slot)
                reads.append((key, "grad", number) if present[number] else (key, "zeros", self.out_kinds[number]))
        return reads

    def saved_kinds(self) -> list[ArrayType | None]:
        """Kinds of the saved values."""
        return [self.kinds[i] for i in self._save_in] + [self.out_kinds[i] for i in self._save_out]


class Backward:
    """Computes the wanted gradients of a compiled op's inputs from the gradients of its outputs, on arrays.

    Attributes:
        read: numbers of the saved values that it reads.
    """

    __slots__ = ("_grads", "_places", "_run", "_saved", "read")

    def __init__(self, compiled_op: CompiledOp, wanted: tuple[bool, ...], present: tuple[bool, ...]) -> None:
        op = compiled_op.op
        rule = compiled_op.gradient_rule(present)
        grad = gradient_definition(op.definition, rule)
        arguments = []
        saved_kinds = compiled_op.saved_kinds()
        self._saved: list[int] = []
        self._grads: list[int] = []
        for slot, source, item in compiled_op.reads(rule, present):
            if source == "saved":
                arguments.append(Argument(slot, _spec(saved_kinds[item])))
                self._saved.append(item)
            elif source == "grad":
                arguments.append(Argument(slot, _spec(compiled_op.out_kinds[item])))
                self._grads.append(item)
            else:
                arguments.append(Argument(slot, _spec(item), passed=False, zeros=source == "zeros"))
        wants: dict[str, Any] = {}
        specs: dict[str, Any] = {}
        for (slot, nth), kind, want in zip(op.positions(), compiled_op.kinds, wanted, strict=True):
            if slot not in rule.wrt:
                continue
            key = grad_slot(slot)
            if slot == op.definition.sparse_grad and op.attrs.get("is_sparse"):
                wants[key], specs[key] = want, replace(kind.spec, type=VarType.SELECTED_ROWS)
            elif nth is None:
                wants[key], specs[key] = want, kind.spec
            else:
                wants.setdefault(key, []).append(want)
                specs.setdefault(key, []).append(kind.spec)
        call = compiled(grad, op.attrs, arguments, compiled_op.kinds[0].xp, wants=wants, specs=specs, write_after=0)
        places = {place: number for number, place in enumerate(call.places)}
        self._run = call.run
        self.read = frozenset(item for at, item in enumerate(self._saved) if call.read is None or at in call.read)
        order = [places.get((grad_slot(slot), nth), -1) for slot, nth in op.positions()]
        self._places = None if order == list(range(len(call.places))) else order

    def __call__(self, saved: Sequence[Any], grads: Sequence[Any]) -> Sequence[Any]:
        result: Any = self._run(*[saved[number] for number in self._saved], *[grads[number] for number in self._grads])
        gradients: tuple[Any, ...] = result if type(result) is tuple else (result,)
        if self._places is None:
            return gradients
        return [None if place < 0 else gradients[place] for place in self._places]


def _spec(kind: ArrayType | None) -> Spec | None:
    return None if kind is None else kind.spec


_inline: dict[str, OpDef] = {}


def gradient_definition(definition: OpDef, rule: Rule) -> OpDef:
    """The definition of an op's gradient op; made here for ops whose rule programs expand into ordinary ops."""
    registered = registry.find(definition.grad_type)
    if registered is not None and registered.forward is definition:
        return registered
    return _inline.setdefault(definition.type, registry._grad_definition(definition, rule))


def _slots_of_gradient(definition: OpDef) -> dict[str, Slot]:
    """The slots that a gradient rule may read, by name: inputs, outputs and cotangents."""
    cotangents = {grad_slot(name): slot for name, slot in definition.outputs.items()}
    return {**definition.inputs, **definition.outputs, **cotangents}


def run_rule(node: OpNode, grads: Sequence[Any], wanted: Sequence[bool], f: OpNamespace | None = None) -> list[Any]:
    """Compute the gradients of a node's inputs by the op's rule on tensors, or on the values of `f`, so that they are
    recorded."""
    compiled_op = node._compiled_op
    definition = compiled_op.op.definition
    present = [grad is not None for grad in grads]
    if True not in present:
        return [None] * len(wanted)
    rule = compiled_op.gradient_rule(present)
    kinds = compiled_op.kinds
    saved = []
    places = [*compiled_op._save_in, *(len(kinds) + number for number in compiled_op._save_out)]
    for number, kind, (array, version, _) in zip(places, compiled_op.saved_kinds(), node._saved, strict=True):
        kind = kind or array_type_of(array)
        edge = node._edges[number] if number < len(kinds) else (node, number - len(kinds)) if kind.differentiable else None
        saved.append(make(array, kind, edge, version))
    values: dict[str, Any] = {}
    slots = _slots_of_gradient(definition)
    for slot, source, item in compiled_op.reads(rule, present):
        if source == "saved":
            value = saved[item]
        elif source == "grad":
            value, kind = grads[item], compiled_op.out_kinds[item]
            if kind is not None and kind.lod != value._kind.lod:
                value = make(value._array, kind, value._edge, value._version)  # its rows are sequences as those it belongs to
        else:
            fill = item.xp.zeros if source == "zeros" else item.xp.empty
            value = make(fill(item.shape, item.numpy_dtype), item)
            if state.tracer is not None:
                state.tracer.constant(value, 0.0)
        if slots[slot].many:
            values.setdefault(slot, []).append(value)
        else:
            values[slot] = value
    positions = compiled_op.op.positions()
    names = {slot for (slot, _), want in zip(positions, compiled_op._edges or wanted, strict=True) if want}
    if definition.decomposition is not None:
        gradients = _through_decomposition(definition, values, compiled_op.op.attrs, names)
    else:
        gradients = rule(f or namespace, values, compiled_op.op.attrs, names)
    return [
        _shaped(_pick(gradients.get(slot), nth), kind) if want else None
        for (slot, nth), kind, want in zip(positions, kinds, wanted, strict=True)
    ]


def _through_decomposition(
    definition: OpDef, values: Mapping[str, Any], attrs: Mapping[str, Any], names: set[str]
) -> dict[str, Any]:
    """Gradients of an op, by differentiating the ordinary ops that it decomposes into."""
    inputs = {slot: value for slot, value in values.items() if not slot.endswith(grad_slot(""))}
    points: list[Tensor] = []

    def point(tensor: Any) -> Any:
        if tensor is None or not tensor._kind.differentiable:
            return tensor
        points.append(tensor.clone() if not tensor._stop else tensor.detach())
        points[-1]._stop = False
        return points[-1]

    for slot in names:
        inputs[slot] = [point(item) for item in inputs[slot]] if isinstance(inputs[slot], list) else point(inputs[slot])
    outputs = definition.decomposition(namespace, inputs, attrs)  # type: ignore[misc]
    pairs = []
    for slot, output in outputs.items():
        weights = values.get(grad_slot(slot))
        listed = zip(output, weights or [None] * len(output), strict=True) if isinstance(output, list) else [(output, weights)]
        pairs += [(item, _shaped(weight, item._kind)) for item, weight in listed if weight is not None and not item._stop]
    gradients = parts.passes.grad(
        [pair[0] for pair in pairs], points, [pair[1] for pair in pairs], create_graph=True, allow_unused=True
    )
    by_point = {id(tensor): part for tensor, part in zip(points, gradients, strict=True)}
    return {
        slot: [by_point.get(id(item)) for item in value] if isinstance(value, list) else by_point.get(id(value))
        for slot, value in inputs.items()
        if slot in names
    }


def _pick(value: Any, nth: int | None) -> Any:
    return value[nth] if nth is not None and value is not None else value


def _shaped(grad: Any, kind: ArrayType) -> Any:
    """The gradient in the shape of `kind`: a rule may give [1] in place of [], or the reverse."""
    if grad is None or grad._kind.shape == kind.shape:
        return grad
    return grad.reshape(kind.shape)


# ------------------------------------------------------------------------------------------------------- by the registry
_ops: Cache[Any, TensorOp] = Cache()


def op_on(definition: OpDef, attrs: Mapping[str, Any], slots: Slots, also: Sequence[str] = ()) -> TensorOp:
    """The cached op with these attributes and slots, which returns the intermediate outputs `also` too."""
    key = (definition.type, slots, *also, *[(name, _key(value)) for name, value in attrs.items()])
    try:
        op = _ops.get(key)
    except TypeError:  # the checks below refuse values that cannot be keys
        return TensorOp(definition, attrs, slots, also)
    return op if op is not None else _ops.keep(key, TensorOp(definition, attrs, slots, also))


def _key(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple([_key(item) for item in value])
    return value.__class__, repr(value) if _is_zero(value) else value


def _is_zero(value: Any) -> bool:
    """Whether a value is 0.0 or -0.0: these are equal as keys, but different attributes."""
    return isinstance(value, (float, np.floating)) and not value


class TensorNamespace(OpNamespace):
    """Ops over tensors: they run at once, and are recorded where an input requires a gradient."""

    def __init__(self) -> None:
        self._plain: dict[str, Any] = {}

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        general = super().__getattr__(op_type)
        definition = registry.get(op_type)
        single = [*itertools.takewhile(lambda name: not definition.inputs[name].many, definition.inputs)]
        plain = definition.forward is None
        ops: Cache[Any, TensorOp] = Cache()

        def call(*args: Any, **kwargs: Any) -> Any:
            key: Any = (len(args), *kwargs.items())
            try:
                op = ops.get(key)
            except TypeError:  # lists
                key = (len(args), *[(name, _key(value)) for name, value in kwargs.items()])
                try:
                    op = ops.get(key)
                except TypeError:  # the checks of the op refuse such values
                    return general(*args, **kwargs)
            for arg in args:
                if not isinstance(arg, Tensor):
                    return general(*args, **kwargs)
            if op is None:
                if not plain or len(args) > len(single) or not definition.attrs.keys() >= kwargs.keys():
                    return general(*args, **kwargs)
                op = op_on(definition, kwargs, tuple((name, None) for name in single[: len(args)]))
                if not any(map(_is_zero, kwargs.values())):
                    ops.keep(key, op)
            return op(*args)

        call.__name__, call.__qualname__ = op_type, f"namespace.{op_type}"  # pickle finds it by this name
        call.__doc__ = definition.doc
        self.__dict__[op_type] = call
        return call

    def apply(
        self, definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any], also: Sequence[str] = ()
    ) -> dict[str, Any]:
        if definition.forward is not None:
            return _apply_gradient(definition, inputs, attrs)
        tensors: list[Tensor] = []
        slots: list[tuple[str, int | None]] = []
        for name, slot in definition.inputs.items():
            value = inputs.get(name)
            if value is None:
                continue
            if slot.many:
                items = [as_tensor(item) for item in (value if isinstance(value, (list, tuple)) else [value])]
                tensors += items
                slots.append((name, len(items)))
            else:
                tensors.append(as_tensor(value))
                slots.append((name, None))
        op = op_on(definition, attrs, tuple(slots), also)
        result = op(*tensors)
        seen = op.visible
        return {seen[0]: result} if len(seen) == 1 else dict(zip(seen, result, strict=True))

    def apply_all(self, definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
        also = [name for name, slot in definition.outputs.items() if slot.intermediate] if definition.forward is None else []
        return self.apply(definition, inputs, attrs, also)


def _apply_gradient(definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Run a gradient op by its rule over tensors, so that it can be differentiated too."""
    assert definition.forward is not None
    rule = definition.forward.rule
    assert isinstance(rule, Rule)
    full = definition.defaults(definition.check_attrs(attrs))
    if definition.forward.decomposition is not None:
        present_slots = {slot for slot in rule.wrt if inputs.get(slot) is not None}
        gradients = _through_decomposition(definition.forward, inputs, full, present_slots)
    else:
        gradients = rule(namespace, inputs, full, set(rule.wrt))
    return {slot: gradients.get(slot[: -len(grad_slot(""))]) for slot in definition.outputs}


def as_tensor(value: Any) -> Tensor:
    """The value if it is a tensor, or a tensor of anything like an array."""
    return value if isinstance(value, Tensor) else Tensor._of(array_of(value))


namespace = TensorNamespace()
"""Ops as functions of tensors: ``ops.tanh(x)``, ``ops.softmax(x, axis=0)``."""


def simple(op_type: str, *slots: str) -> TensorOp:
    """An op with these input slots and default attributes."""
    return op_on(registry.get(op_type), {}, tuple((slot, None) for slot in slots))


_scales: Cache[float, TensorOp] = Cache()


def scaled(tensor: Tensor, by: float) -> Tensor:
    """``tensor * by``."""
    op = _scales.get(by) if by else op_on(registry.get("scale"), {"scale": by}, (("X", None),))  # -0.0 == 0.0
    if op is None:
        op = _scales.keep(by, op_on(registry.get("scale"), {"scale": by}, (("X", None),)))
    return op(tensor)  # type: ignore[no-any-return]


# ---------------------------------------------------------------------------------------------------------------- in place
class UpdateOp:
    """An op that overwrites some of the tensors it reads, called with the tensors of all slots; it is not recorded.

    Args:
        attrs: attributes; those left out take their defaults.
        slots: the input slots in use, one tensor each.
        into: output slot -> the input slot whose tensor it overwrites; other outputs are not computed.
    """

    __slots__ = ("_compiled", "_targets", "attrs", "definition", "into", "slots")

    def __init__(self, op_type: str, attrs: Mapping[str, Any], slots: Sequence[str], into: Mapping[str, str]) -> None:
        self.definition = registry.get(op_type)
        self.attrs = self.definition.defaults(self.definition.check_attrs(attrs))
        self.slots, self.into = tuple(slots), dict(into)
        self._targets = [self.slots.index(slot) for slot in into.values()]
        self._compiled: Cache[Any, Callable[..., Any]] = Cache()

    def __call__(self, *tensors: Tensor) -> None:
        if state.tracer is not None:
            state.tracer.update(self, tensors)
            return
        kinds = tuple([tensor._kind for tensor in tensors])
        run = self._compiled.get(kinds)
        if run is None:
            run = self._compiled.keep(kinds, self._compile(kinds))
        arrays = [tensor._array for tensor in tensors]
        with RANDOM.update(tensors[self._targets[0]].name) if self.definition.is_random else nullcontext():
            quietly.run(run, *arrays)
        line = user_line()
        for target in self._targets:
            version = tensors[target]._version
            version[0] += 1
            version[1:] = [self.definition.type, line]

    def _compile(self, kinds: Sequence[ArrayType]) -> Callable[..., Any]:
        arguments = [Argument(slot, kind.spec) for slot, kind in zip(self.slots, kinds, strict=True)]
        wants, into, xp = dict.fromkeys(self.into, True), self.into, kinds[0].xp
        run = compiled(self.definition, self.attrs, arguments, xp, wants=wants, into=into, write_after=0).run
        is_threaded = xp is np and may_thread(self.definition.type, sum([kind.size for kind in kinds]))
        return on_one_thread(run) if is_threaded else run


def update_op(op_type: str, inputs: Iterable[str], attrs: Mapping[str, Any], into: Mapping[str, str]) -> UpdateOp:
    """The op with these attributes and input slots that overwrites some of the tensors it reads; see `UpdateOp`."""
    key = (op_type, tuple(inputs), tuple(into.items()), _key(list(attrs.items())))
    op = _updates.get(key)
    return op if op is not None else _updates.keep(key, UpdateOp(op_type, attrs, key[1], into))


_updates: Cache[Any, UpdateOp] = Cache()

"""Tracing of training steps: backward passes, the `grad` of leaves, and updates by optimizers become part of the program.

The step runs eagerly while it is traced. For a backward pass the program is differentiated, as `fluid.gradients` does it; the
gradients that the eager pass computed stand for its variables.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..backward import gradients
from ..eager.dispatch import TensorOp, UpdateOp
from ..eager.graph import Node, sequence
from ..eager.mode import state, tracing
from ..eager.parts import parts
from ..eager.program import parameters_of
from ..eager.tensor import Tensor
from ..executor.runtime.random import RANDOM
from ..ir.program import OpRole, Parameter, Variable
from ..values.shape import Shape
from .tracing import Tracer, is_of_user, nodes_with_own_backward, own_backward

__all__ = ["LeafGradient", "StepTracer"]


class LeafGradient:
    """The `grad` of a leaf in a traced step.

    Attributes:
        leaf: the tensor.
        before: its `grad` before the step; None also if the step does not read it.
        is_read: the step reads the former `grad`, or adds to it.
        feed: the variable that is fed `before`; "" for none.
    """

    __slots__ = ("_array", "_original", "_version", "before", "feed", "is_read", "leaf")

    def __init__(self, leaf: Tensor, is_read: bool, feed: str) -> None:
        self.leaf, self.is_read, self.feed = leaf, is_read, feed
        self._original = leaf._grad
        self.before = leaf._grad if is_read else None
        self._array: Any = None
        self._version: list[Any] = []
        if self.before is not None:
            self._array, self._version = self.before._array.copy(), list(self.before._version)

    def restore(self) -> None:
        """Restore the `grad` as it was before the step."""
        before = self.leaf._grad = self._original
        if self._array is not None and before is not None:
            before._kind.xp.copyto(before._array, self._array)
            before._version[:] = self._version


class StepTracer(Tracer):
    """Traces a training step.

    Args:
        is_fixed: the sizes of the inputs are part of the program; otherwise the first size of each may vary.
        streams: random generators of Python and numpy that the step may not draw from.

    Attributes:
        leaves: id -> the `grad` of a leaf that the step reads or changes.
        schedules: variable that is fed -> the learning rate schedule that gives its value.
        optimizers: id -> an optimizer that makes updates.
        reads_size: the user's code has read a size that may vary.
        reads: tensors whose values Python code has read, with their versions.
        arrays: arrays that became constants, with copies.
    """

    def __init__(self, is_fixed: bool, streams: Sequence[Any]) -> None:
        super().__init__()
        self._is_fixed, self._start = is_fixed, next(sequence)
        self._inputs: list[Tensor] = []
        self._parameters: list[Tensor] = []
        """Parameters that were made in the step."""
        self.leaves: dict[int, LeafGradient] = {}
        self.schedules: dict[str, Any] = {}
        self.optimizers: dict[int, Any] = {}
        self.reads_size = False
        self.reads: list[tuple[Tensor, int]] = []
        self.arrays: list[tuple[Any, Any]] = []
        self._schedule_states: list[tuple[Any, dict[str, Any]]] = []
        self._streams = streams
        self._stream_states = list(map(_state_of, streams))

    # -- inputs and sizes
    def fed_shape(self, tensor: Tensor) -> tuple[int, ...]:
        shape = tensor._kind.shape
        return shape if self._is_fixed or not shape else (-1, *shape[1:])

    def feed(self, tensor: Tensor, name: str) -> Variable:
        self._inputs.append(tensor)
        return super().feed(tensor, name)

    def shape_of(self, tensor: Tensor) -> Shape:
        """The shape for the caller of `Tensor.shape`; the user's code gets one that notes reads of its first size."""
        shape = tensor._kind.shape
        if shape and self._may_vary(tensor) and is_of_user(sys._getframe(2)):
            return _TracedShape(shape).noted_by(self)
        return tensor._kind.shape_for_users

    def note_size(self, tensor: Tensor) -> None:
        """Note that the caller of a property or method of a tensor reads its size."""
        if self._may_vary(tensor) and is_of_user(sys._getframe(2)):
            self.reads_size = True

    def _may_vary(self, tensor: Tensor) -> bool:
        variable = self._variables.get(id(tensor._array))
        return variable is not None and not variable.persistable

    # -- ops
    def call(self, op: TensorOp, tensors: Sequence[Tensor]) -> Any:
        self.check_streams()
        return super().call(op, tensors)

    def note_created(self, tensor: Tensor, data: Any) -> None:
        self.check_streams()
        super().note_created(tensor, data)
        if isinstance(data, np.ndarray):
            self.arrays.append((data, data.copy()))

    def _write(self, target: Tensor, source: Tensor) -> None:
        super()._write(target, source)
        variable = self._variable(target)
        if (
            isinstance(variable, Parameter) and not variable.stop_gradient
        ):  # later gradients are those by its new value, as after an optimizer's update
            writer = self.program.current_block().ops[-1]
            writer.attrs[OpRole.NAME] = writer.role | OpRole.OPTIMIZE

    def note_parameter(self, parameter: Tensor) -> None:
        self._parameters.append(parameter)

    def check_parameters(self) -> None:
        """Raise an error for parameters that the step makes, except by layers: eager mode would make new ones in each call."""
        of_layers = {id(parameter) for layer, _, _ in self.layers.values() for parameter in layer.parameters()}
        for parameter in self._parameters:
            if id(parameter) not in of_layers and self.has_variable(parameter):
                self.refuse_call(f"the parameter {parameter.name}, which is made in the step,", "make it before")

    # -- values that Python sees
    def refuse_read(self, tensor: Tensor, by: str) -> None:
        super().refuse_read(tensor, by)
        if id(tensor._array) not in self._born:
            self.reads.append((tensor, tensor.version))

    def note_print(self, tensor: Tensor) -> None:
        self.refuse_read(tensor, "the text")

    def check_streams(self) -> None:
        """Raise an error if a random generator of Python or numpy was drawn from."""
        for stream, before in zip(self._streams, self._stream_states, strict=True):
            if _state_of(stream) != before:
                name = getattr(stream, "__name__", type(stream).__name__)
                raise self._refusal(
                    f"numbers were drawn from {name} here or just before, and the program would repeat them in each step; draw "
                    "by fluid.layers (uniform_random, gaussian_random, dropout), or pass the numbers as an argument"
                )

    # -- gradients
    def read_gradient(self, tensor: Tensor) -> None:
        if tensor._edge is not None:
            self.refuse_call(
                f"grad of {tensor.name}, which is computed in the step,", "compute its gradient by dygraph.grad(loss, tensor)"
            )
        self._gradient_of(tensor, is_read=True)

    def replace_gradient(self, tensor: Tensor) -> None:
        if tensor._edge is None:
            self._gradient_of(tensor, is_read=False)

    def _gradient_of(self, leaf: Tensor, is_read: bool) -> LeafGradient:
        """The entry of a leaf, made when its `grad` is read or replaced for the first time."""
        entry = self.leaves.get(id(leaf))
        if entry is None:
            before, feed = leaf._grad, ""
            if self._depth:
                self.refuse_call(f"a use of the grad of {leaf.name} inside a branch or loop", "use it before or after")
            if is_read and before is not None:
                if before.type is not leaf.type or before._edge is not None or self.has_variable(before):
                    self.refuse_call(
                        f"the grad of {leaf.name}, which is sparse, recorded, or used as another tensor too,",
                        "clear it before the step",
                    )
                feed = self._names(f"{leaf.name}@GRAD@BEFORE")
                self._feed_value(before, feed)
            entry = self.leaves[id(leaf)] = LeafGradient(leaf, is_read, feed)
        return entry

    def _feed_value(self, tensor: Tensor, name: str) -> None:
        """Feed a tensor that is no argument under a new name, with its shape."""
        self.bind(
            tensor,
            self.program.global_block().create_var(
                name=name, shape=tensor._kind.shape, dtype=tensor.dtype, is_data=True, stop_gradient=True
            ),
        )

    def is_outside(self, tensor: Tensor) -> bool:
        """Whether a traced tensor is an argument, or from outside the step."""
        variable = self._variables.get(id(tensor._array))
        return variable is None or variable.persistable or any(tensor is item for item in self._inputs)

    def backward(self, tensors: Sequence[Tensor], weights: Any, retain_graph: Any, create_graph: bool, inputs: Any) -> None:
        if create_graph:
            self.refuse_call(
                "backward(create_graph=True)", "use dygraph.grad(..., create_graph=True), and differentiate its result"
            )
        if self._depth:
            self.refuse_call("backward() inside a branch or loop", "call it on a result of the branch or loop")
        self._check_graph([tensor._edge[0] for tensor in tensors if tensor._edge is not None])
        leaves = self._leaves_of(tensors, inputs)
        entries = [self._gradient_of(leaf, is_read=True) for leaf in leaves]
        before = [None if leaf._grad is None else (leaf._grad, leaf._grad.version, self.variable(leaf._grad)) for leaf in leaves]
        with tracing(None):
            parts.passes.backward(list(tensors), weights, retain_graph, False, inputs)
        self.draws.events.append(None)
        reached = [
            (entry.leaf, None if old is None else old[2])
            for entry, old in zip(entries, before, strict=True)
            if entry.leaf._grad is not (None if old is None else old[0]) or (old is not None and old[0].version != old[1])
        ]
        seeds = None if weights is None else weights if isinstance(weights, (list, tuple)) else [weights]
        variables = gradients(
            [self.variable(tensor) for tensor in tensors],
            [self.variable(leaf) for leaf, _ in reached],
            None if seeds is None else [None if seed is None else self._seed(seed) for seed in seeds],
        )
        for (leaf, old), gradient in zip(reached, variables, strict=True):
            assert leaf._grad is not None
            self.bind(leaf._grad, self._total(leaf, old, gradient))

    def _seed(self, weights: Any) -> Variable:
        return self.variable(weights if isinstance(weights, Tensor) else Tensor(weights))

    def _total(self, leaf: Tensor, old: Variable | None, gradient: Variable | None) -> Variable:
        """The variable for the `grad` of a leaf: its gradient, added to the former one."""
        variable = self.variable(leaf)
        if gradient is None:
            assert leaf._grad is not None
            if old is not None or leaf._grad._host().any():
                self.refuse_call(f"the gradient of {leaf.name}", "the ops that it flows through have none in a program")
            gradient = self._appended("fill_zeros_like", {"X": variable}, {}, stop=True)
        elif gradient.shape != variable.shape and gradient.type is leaf.type:
            gradient = self._appended("reshape", {"X": gradient}, {"shape": list(variable.shape)}, stop=True)
        if old is not None:
            gradient = self._appended("sum", {"X": [old, gradient]}, {}, stop=True)
        gradient.stop_gradient = True
        return gradient

    def _leaves_of(self, tensors: Sequence[Tensor], inputs: Any) -> list[Tensor]:
        """The leaves whose `grad` a backward pass may add to."""
        if inputs is not None:
            wanted = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
            for tensor in wanted:
                if isinstance(tensor, Tensor) and tensor._edge is not None:
                    self.refuse_call(f"backward(inputs={tensor.name}), which is computed,", "use dygraph.grad(loss, tensor)")
            return wanted
        leaves: dict[int, Tensor] = {}
        for tensor in tensors:
            if not tensor._stop and tensor._edge is None:
                leaves[id(tensor)] = tensor
            leaves.update((id(leaf), leaf) for leaf in parameters_of(tensor))
        return list(leaves.values())

    def _check_graph(self, roots: Sequence[Node]) -> None:
        """Raise an error if a backward pass would run what the program does not know: hooks, PyLayers, nodes from outside."""
        unknown = nodes_with_own_backward(roots, self._start)
        if unknown:
            self.refuse_call(f"{own_backward(unknown[0])} ({unknown[0].where})", "compute such gradients by dygraph.grad")
        for node in _reached(roots):
            if node._saved is None:
                self.refuse_call(
                    f"a gradient through {node.name}, which an earlier backward freed ({node.where}),",
                    "pass retain_graph=True to that backward, or detach() the tensor",
                )
            if not node.is_leaf and node.sequence_nr < self._start:
                self.refuse_call(
                    f"a gradient through {node.name}, which was recorded before the step ({node.where}),",
                    "compute that tensor in the step, or detach() it",
                )
            if node.is_leaf and node._hooks is not None and (any(node._hooks.of_tensor.values()) or node._hooks.accumulated):
                self.refuse_call(
                    "a hook of a leaf", "remove it, or change the gradients in the step, between backward and update"
                )

    # -- updates
    def update(self, op: UpdateOp, tensors: Sequence[Tensor]) -> None:
        op_type = op.definition.type
        if op.definition.is_random:
            self.refuse_call(f"{op_type}, an update that draws random numbers,", "run this optimizer outside the step")
        for slot in op.into.values():
            self.prepare_write(tensors[op.slots.index(slot)], op_type)
            if self._variable(tensors[op.slots.index(slot)]).is_data:
                self.refuse_call(f"{op_type}, an update of an argument,", "let the step take it from outside")
        targets = set(op.into.values())
        inputs = {
            slot: self._variable(tensor) if slot in targets else self.variable(tensor)
            for slot, tensor in zip(op.slots, tensors, strict=True)
        }
        with tracing(None):
            op(*tensors)
        block = self.program.current_block()
        outputs = {out: inputs[slot] for out, slot in op.into.items()}
        for out, place in op.definition.outputs.items():
            if out not in outputs and not place.optional:
                outputs[out] = block.create_var(name=self._names(self._names(op_type) + ".tmp"))
        with self.program.role_guard(OpRole.OPTIMIZE):
            block.append_op(op_type, inputs, outputs, _non_default(op))

    def scheduled_rate(self, schedule: Any) -> Tensor:
        self._schedule_states.append((schedule, dict(vars(schedule)) if hasattr(schedule, "__dict__") else {}))
        with tracing(None):
            rate = Tensor([float(schedule())])
        name = self._names("scheduled_rate")
        self._feed_value(rate, name)
        self.schedules[name] = schedule
        return rate

    def note_optimizer(self, optimizer: Any) -> None:
        self.optimizers[id(optimizer)] = optimizer

    # -- the end
    @contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """Inside the ``with``, ops are traced; an error restores tensors, gradients, buffers, schedules and the random stream."""
        draws: list[Any] = []
        before, sizes = RANDOM.position(), state.sizes
        state.sizes = self
        try:
            with RANDOM.noting(draws), tracing(self):
                yield
        except BaseException:
            self.restore()
            for entry in self.leaves.values():
                entry.restore()
            for layer, training, buffers in self.layers.values():
                layer._buffers.update(buffers)
                layer.__dict__["training"] = training
            for schedule, attributes in reversed(self._schedule_states):
                vars(schedule).update(attributes)
            RANDOM.take_back(before, len(draws))
            raise
        finally:
            state.sizes = sizes


def _non_default(op: UpdateOp) -> Mapping[str, Any]:
    declared = op.definition.attrs
    return {name: value for name, value in op.attrs.items() if name not in declared or value != declared[name].default}


def _reached(roots: Iterable[Node]) -> Iterator[Node]:
    """The nodes that gradients of these nodes flow to."""
    stack, seen = list(roots), set(roots)
    while stack:
        node = stack.pop()
        yield node
        for edge in node._edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                stack.append(edge[0])


# ---------------------------------------------------------------------------------------------------------------- sizes
class _TracedShape(Shape):
    """A shape that notes reads of its first size."""

    _tracer: StepTracer

    def noted_by(self, tracer: StepTracer) -> _TracedShape:
        """Note reads in this tracer from now on; the shape itself."""
        self._tracer = tracer
        return self

    def _read(self) -> None:
        self._tracer.reads_size = True

    def __getitem__(self, index: Any) -> Any:
        if 0 in (range(len(self))[index] if isinstance(index, slice) else (range(len(self))[index],)):
            self._read()
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[int]:
        self._read()
        return super().__iter__()


def _noted(name: str) -> Any:
    """A method of shapes that reads all sizes."""
    method = getattr(Shape, name)

    def read(self: _TracedShape, *args: Any) -> Any:
        self._read()
        return method(self, *args)

    return read


for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__contains__", "__add__", "__radd__",
              "__mul__", "__rmul__", "__repr__", "__reduce__", "__reduce_ex__", "count", "index"):  # fmt: skip
    setattr(_TracedShape, _name, _noted(_name))


# -------------------------------------------------------------------------------------------------------- random streams
def _state_of(stream: Any) -> Any:
    """A part of the state of a random generator that each draw changes."""
    if stream is np.random:
        legacy: Any = np.random.get_state(legacy=False)
        return legacy["state"]["pos"], legacy["has_gauss"], legacy["state"]["key"][:4].tobytes()
    if isinstance(stream, np.random.RandomState):
        legacy = stream.get_state(legacy=False)
        return legacy["state"]["pos"], legacy["has_gauss"], legacy["state"]["key"][:4].tobytes()
    if isinstance(stream, np.random.Generator):
        return repr(stream.bit_generator.state)
    return hash(stream.getstate())  # of Python's module, or one of its generators

"""Tracing: functions of tensors, and layers, as programs.

A traced function runs on its examples, and each op is also appended to a program. The array of a tensor identifies its variable.
Tensors from outside the function, such as parameters, become persistable variables in the same memory, so changes of one show in
the other.
"""

from __future__ import annotations

import copy
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Any

import numpy as np

from .. import unique_name
from ..building.nested import flatten, rebuild
from ..eager.dispatch import TensorOp, UpdateOp
from ..eager.function import PyLayerNode
from ..eager.graph import Node, OpNode, leaf_edge, line_text, sequence, user_line
from ..eager.layers import loop
from ..eager.mode import enable_grad, no_grad, state, tracing
from ..eager.nested import refilled, tensors_in
from ..eager.program import Parameter, to_variable
from ..eager.recorded import append_call
from ..eager.regions import EagerRegion, Refusal, RegionNode
from ..eager.tensor import Tensor, make, of_class_of
from ..errors import FluidTypeError, ProgramError
from ..executor import Executor, Scope, scope_guard
from ..executor.binding.array_types import place_of_programs
from ..executor.runtime.random import RANDOM, Caller, Draws
from ..initializer import VALUES, constant_attrs, value_attrs
from ..ir.copying import _is_random
from ..ir.frames import warn_user
from ..ir.nesting import walk
from ..ir.program import Operator, Program, Variable, _clone_op, default_main_program, default_startup_program, program_guard
from ..ir.renaming import redirect
from ..layers import control_flow
from ..opdef.registry import updated_input
from ..ops.norm import uses_global_stats
from ..values.place import XLAPlace
from ..values.selected_rows import SelectedRows
from .layers import Layer

__all__ = [
    "TENSOR",
    "TracedFunction",
    "Tracer",
    "check_layer",
    "copied_inputs",
    "fetched_variables",
    "from_fetched",
    "input_names",
    "is_of_user",
    "modified_inputs",
    "name_of",
    "nodes_with_own_backward",
    "own_backward",
    "to_feed",
    "traced_call",
    "without_tensors",
]

_SMALL = 1024
"""Constants of up to this many elements are written into the program."""
_PACKAGE = __name__.partition(".")[0] + "."


class Tracer:
    """Appends the ops that run in this thread to a program.

    Attributes:
        program: the ops traced so far.
        captured: variable -> the tensor from outside in the same memory.
        layers: id -> a layer that was called, its mode (`training`) and its buffers before the call.
        draws: how the program draws like eager mode.
    """

    def __init__(self) -> None:
        self.program = Program()
        self.startup = Program()
        self.captured: dict[str, Tensor] = {}
        self.layers: dict[int, tuple[Layer, bool, dict[str, Any]]] = {}
        self.draws = Draws({}, [], {})
        self._recording = state.recording
        self._is_differentiable = False
        """True in the forward of a `PyLayer`: ops are not recorded, but gradients flow through them in the program."""
        self._names = unique_name.UniqueNameGenerator()
        self._variables: dict[int, Variable] = {}
        self._arrays: list[Any] = []
        """All arrays that have a variable, kept alive so that their ids are not reused."""
        self._born: set[int] = set()
        """Arrays of tensors that were made of data while tracing."""
        self._fixed: set[int] = set()
        """In a branch or loop, the arrays from outside, which must not be modified."""
        self._depth = 0
        self._gone: set[int] = set()
        """Arrays that were made inside a branch or loop that has ended."""
        self._views: dict[int, list[Tensor]] = {}
        """Array -> a tensor and its detached views in the same memory, which are other variables."""
        self._aliases: dict[tuple[int, Any], Variable] = {}
        """(Array, edge) -> the variable of tensors from outside that share a captured tensor's memory but have another edge."""
        self._before: dict[int, tuple[Tensor, Any, list[Any], Any, bool]] = {}
        """State of tensors from outside before they were modified; the array is None if another entry has it already."""
        self._saved: set[int] = set()
        """Arrays in `_before`."""
        self._readers: list[dict[str, Any]] = []
        """For each open branch or loop: variable -> edge of the tensor that was read, if it requires a gradient."""
        self._refused: ProgramError | None = None

    # -- variables of tensors
    def has_variable(self, tensor: Tensor) -> bool:
        """Whether the tensor is a variable of the program."""
        return id(tensor._array) in self._variables

    def bind(self, tensor: Tensor, variable: Variable) -> None:
        """Associate a tensor with a variable."""
        self._variables[id(tensor._array)] = variable
        self._arrays.append(tensor._array)

    def fed_shape(self, tensor: Tensor) -> tuple[int, ...]:
        """The declared shape of an input; -1 for a size that may vary."""
        return (-1, *tensor.shape[1:]) if tensor.lod else tensor.shape

    def noting_sizes(self) -> AbstractContextManager[None]:
        """Inside the ``with``, the sizes that the user's code reads are noted, if they are open."""
        return nullcontext()

    def feed(self, tensor: Tensor, name: str) -> Variable:
        """Declare a fed variable for a tensor; a tensor in the memory of an earlier input keeps the earlier variable."""
        if self.program.global_block().has_var(name):
            raise ProgramError(f"trace: two inputs are called {name!r}")
        variable = self.program.global_block().create_var(
            name=name,
            shape=self.fed_shape(tensor),
            dtype=tensor.dtype,
            lod_level=len(tensor.lod),
            is_data=True,
            need_check_feed=True,
            stop_gradient=tensor.stop_gradient,
        )
        if not self.has_variable(tensor):
            self.bind(tensor, variable)
        return variable

    def variable(self, tensor: Tensor) -> Variable:
        """The variable of a tensor; a tensor from outside gets a persistable one."""
        variable = self._variable(tensor)
        owner = self.captured.get(variable.name)
        if owner is not None and owner is not tensor and owner._array is tensor._array:
            variable = self._alias(tensor, variable, owner)
        if self._readers and not tensor._stop:
            edge = tensor._edge or leaf_edge(tensor)
            for reader in self._readers:
                reader[variable.name] = edge
        return variable

    def _variable(self, tensor: Tensor) -> Variable:
        """The variable of a tensor's array."""
        variable = self._variables.get(id(tensor._array))
        if variable is None:
            if id(tensor._array) in self._gone:
                raise self._refusal(
                    f"{tensor.name} ({tensor.describe()}) was made inside a branch or loop, and is not known outside it; let the "
                    "function of the branch, or the body of the loop, return it"
                )
            variable = self._made_here(tensor) if id(tensor._array) in self._born else self._capture(tensor)
        return variable

    # -- tensors from outside that share memory but have different edges
    def _alias(self, tensor: Tensor, variable: Variable, owner: Tensor) -> Variable:
        """The variable of a tensor in the memory of `owner`, which was captured as `variable`."""
        edge, owner_edge = _gradient_edge(tensor), _gradient_edge(owner)
        if edge == owner_edge:
            return variable
        key = id(tensor._array), edge
        alias = self._aliases.get(key)
        if alias is None:
            if edge is None:
                alias = self._appended("assign", {"X": variable}, {}, stop=True)
            elif owner_edge is None:
                return self._promote(tensor, variable)
            elif key[0] in self._saved:
                raise self._shared(tensor, owner)
            else:
                alias = self._declare(tensor)
            self._aliases[key] = alias
        return alias

    def _shared(self, tensor: Tensor, owner: Tensor) -> ProgramError:
        return self._refusal(
            f"{tensor.name} and {owner.name} are in the same memory, both require a gradient, and this memory is modified in "
            "place: that cannot be traced; use a clone() of one, or let one have stop_gradient set"
        )

    def _drop_alias(self, key: int) -> None:
        """Drop the copy without a gradient of an array that was modified: it is out of date."""
        self._aliases.pop((key, None), None)

    def _promote(self, tensor: Tensor, stopped: Variable) -> Variable:
        """Capture a tensor that requires a gradient although `stopped`, without a gradient, was captured for the same memory.

        `stopped` becomes a copy of it without a gradient, made again after each op of the program that writes to it.
        """
        home, name = self.program.global_block(), stopped.name
        del self.captured[name]
        captured = self._capture(tensor)
        for key, variable in self._variables.items():
            if variable is stopped:
                self._variables[key] = captured
        stopped.persistable, stopped.stop_gradient = False, True
        last = max((number for number, op in enumerate(home.ops) if name in op.output_arg_names), default=-1)
        copied: str | None = None
        for number, op in enumerate(list(home.ops)):
            if name in op.output_arg_names:
                redirect(op, {name: captured.name})
                copied = None
            elif number < last and _reads(op, name):
                if copied is None:
                    copied = home.create_var(name=self._names(self._names("assign") + ".tmp")).name
                    home.var(copied).stop_gradient = True
                    home.insert_op(home.ops.index(op), "assign", inputs={"X": captured}, outputs={"Out": copied})
                redirect(op, {name: copied})
        first = next((number for number, op in enumerate(home.ops) if _reads(op, name)), len(home.ops))
        home.insert_op(first, "assign", inputs={"X": captured}, outputs={"Out": stopped})
        self._aliases[id(tensor._array), None] = stopped
        return captured

    def note_created(self, tensor: Tensor, data: Any) -> None:
        """Note a tensor that was made of `data` while tracing: each run of the program makes it."""
        self._born.add(id(tensor._array))
        self._arrays.append(tensor._array)

    def constant(self, tensor: Tensor, value: float) -> None:
        """Bind a tensor whose elements all are `value`."""
        self.bind(tensor, self._appended("fill_constant", {}, constant_attrs(tensor.shape, tensor.dtype, value)))

    def _made_here(self, tensor: Tensor) -> Variable:
        if tensor.size <= _SMALL and tensor.dtype in VALUES:
            variable = self._appended("assign_value", {}, value_attrs(tensor._host(), tensor.dtype))
        else:
            copy = make(tensor._array.copy(), tensor._kind)  # the tensor itself may change
            variable = self._appended("assign", {"X": self._capture(copy)}, {})
        self.bind(tensor, variable)
        return variable

    def _appended(self, op_type: str, inputs: Mapping[str, Any], attrs: Mapping[str, Any], stop: bool = False) -> Variable:
        block = self.program.current_block()
        variable = block.create_var(name=self._names(self._names(op_type) + ".tmp"))
        block.append_op(op_type, inputs, {"Out": variable}, attrs)
        if stop:
            variable.stop_gradient = True
        return variable

    def _capture(self, tensor: Tensor) -> Variable:
        variable = self._declare(tensor)
        self.bind(tensor, variable)
        return variable

    def _declare(self, tensor: Tensor) -> Variable:
        home = self.program.global_block()
        name = tensor.name
        while home.has_var(name):
            name = self._names(tensor.name)
        settings: dict[str, Any] = {"name": name, "shape": tensor.shape, "dtype": tensor.dtype, "persistable": True}
        if isinstance(tensor, Parameter) or (not tensor._stop and tensor._edge is None):
            settings.update((key, getattr(tensor, key)) for key in ("optimize_attr", "regularizer", "gradient_clip_attr"))
            variable: Variable = home.create_parameter(
                trainable=tensor.trainable,
                do_model_average=getattr(tensor, "do_model_average", True),
                stop_gradient=tensor.stop_gradient,
                **settings,
            )
        else:
            variable = home.create_var(stop_gradient=tensor._stop, **settings)
        self.captured[name] = tensor
        return variable

    # -- ops on tensors
    def call(self, op: TensorOp, tensors: Sequence[Tensor]) -> Any:
        """Run an op, and append it."""
        inputs: dict[str, Any] = {}
        for (slot, number), tensor in zip(op.positions(), tensors, strict=True):
            variable = self.variable(tensor)
            if number is None:
                inputs[slot] = variable
            else:
                inputs.setdefault(slot, []).append(variable)
        drawn, caller = RANDOM.drawn, RANDOM.caller
        with tracing(None):
            result = op(*tensors)
        by_slot = dict(zip(op.visible, [result] if len(op.visible) == 1 else result, strict=True))
        definition = op.definition

        def count(slot: str) -> int:
            value = by_slot.get(slot)
            return len(value) if isinstance(value, list) else int(value is not None)

        appended = append_call(self.program, definition, op.attrs, inputs, self._names, count)
        if definition.is_random:
            self._note_draws(appended.output_arg_names[0], definition.type, caller, RANDOM.drawn != drawn)
        block = self.program.current_block()
        if self._recording and not state.recording and not self._is_differentiable:
            for name in appended.output_arg_names:
                block.var(name).stop_gradient = True  # inside a no_grad() of the function
        for slot, value in by_slot.items():
            for name, item in zip(appended.outputs.get(slot, ()), value if isinstance(value, list) else [value], strict=False):
                if item is not None:
                    self.bind(item, block.var(name))
        self._bind_saved(op, tensors, appended, by_slot)
        return result

    def _note_draws(self, name: str, op_type: str, caller: Caller | None, has_drawn: bool) -> None:
        """Note how the random op that writes `name` draws."""
        if self.draws.events:
            self.draws.events_before[name] = len(self.draws.events)
        if caller is not None:
            self.draws.callers[name] = caller
        if not has_drawn and not self._depth:
            self.draws.events.append(caller or Caller(op_type))

    def _bind_saved(self, op: TensorOp, tensors: Sequence[Tensor], appended: Operator, by_slot: Mapping[str, Any]) -> None:
        """Bind the intermediate outputs that the op's gradient reads, by the arrays that the node saved."""
        outputs = [item for value in by_slot.values() for item in (value if isinstance(value, list) else [value])]
        node = next((item._edge[0] for item in outputs if item is not None and item._edge is not None), None)
        if not isinstance(node, OpNode) or not node._saved:
            return
        compiled_op = node._compiled_op
        for number, (array, _, _) in zip(compiled_op._save_out, node._saved[len(compiled_op._save_in) :], strict=True):
            slot = compiled_op._slots[number]
            if id(array) not in self._variables and not op.definition.outputs[slot].many:
                self._variables[id(array)] = self.program.current_block().var(appended.outputs[slot][0])
                self._arrays.append(array)

    def bind_copy(self, new: Tensor, old: Tensor, stop: bool = False) -> None:
        """Bind `new`, a copy of `old` made without an op; with `stop`, no gradient flows through it."""
        self.bind(new, self._appended("assign", {"X": self.variable(old)}, {}, stop))

    def bind_view(self, tensor: Tensor) -> Tensor:
        """A tensor in the same memory as another variable, through which no gradient flows."""
        if (tensor._stop and self._recording) or not hasattr(tensor._array, "view"):
            return make(tensor._array, tensor._kind, None, tensor._version)
        view = make(tensor._array.view(), tensor._kind, None, tensor._version)
        self.bind_copy(view, tensor, stop=True)
        group = self._views.setdefault(id(tensor._array), [tensor])
        group.append(view)
        self._views[id(view._array)] = group
        return view

    def set_stop_gradient(self, tensor: Tensor) -> None:
        """Note that the tensor's `stop_gradient` was set."""
        variable = self._variables.get(id(tensor._array))
        if variable is not None and not variable.persistable and not variable.stop_gradient:
            self.bind_copy(tensor, tensor, stop=True)

    def clear_stop_gradient(self, tensor: Tensor) -> None:
        """Note that the tensor's `stop_gradient` was cleared."""
        variable = self._variables.get(id(tensor._array))
        if variable is not None and variable.is_data:
            variable.stop_gradient = False

    def prepare_write(self, target: Tensor, by: str) -> None:
        """Prepare for an in-place modification of `target` by the op `by`; an error if it cannot be traced."""
        key = id(target._array)
        traced = self._variables.get(key)
        outside = key not in self._born and (traced is None or traced.persistable)
        norm = self._norm_of(traced) if self._depth else None
        if norm is not None and _is_steady(norm):
            return
        if self._depth and (outside or key in self._fixed):
            instead = "return the new value"
            if norm is not None:
                by = f"{norm.type} in training"
                instead = (
                    "call it before or after, or use the moving statistics there: by eval() of the layer, or use_global_stats"
                )
            raise self._refusal(
                f"{by}: {target.name} is from outside the branch or loop, and cannot be modified in it; {instead}"
            )
        group = self._views.get(key)
        if group is not None and group[0]._array is not target._array and not self.variable(group[0]).persistable:
            raise self._refusal(
                f"{by}: {target.name} is a detached tensor in the memory of {group[0].name}, and cannot be modified in place "
                "while it is traced; give it a clone()"
            )
        if outside:
            self._drop_alias(key)
            shared = next(
                (variable for (array, edge), variable in self._aliases.items() if array == key and edge is not None), None
            )
            if shared is not None:
                raise self._shared(self.captured[shared.name], self.captured[self._variables[key].name])
        if outside and id(target) not in self._before and not isinstance(target._array, SelectedRows):
            array = None if key in self._saved else target._array.copy()
            self._before[id(target)] = target, array, list(target._version), target._edge, target._stop
            self._saved.add(key)
            self._arrays.append(target._array)

    def _norm_of(self, variable: Variable | None) -> Operator | None:
        """The op just traced if it is a batch norm with this variable as a moving statistic."""
        ops = self.program.current_block().ops
        if variable is None or not ops or not ops[-1].type.endswith("batch_norm"):
            return None
        return ops[-1] if variable.name in (*ops[-1].input("Mean"), *ops[-1].input("Variance")) else None

    def restore(self) -> None:
        """Restore tensors from outside."""
        for target, array, version, edge, stop in reversed(self._before.values()):
            if array is not None:
                target._kind.xp.copyto(target._array, array)
                target._version[:] = version
            target._edge, target._stop = edge, stop

    def trace_write(self, target: Tensor, value: Any) -> None:
        """Trace an in-place modification of `target` to `value`."""
        source = value if isinstance(value, Tensor) else Tensor(value, target.dtype)
        if source.dtype is not target.dtype:
            source = source.astype(target.dtype)
        group = self._views.get(id(target._array))
        owner = target if group is None else group[0]
        self._write(owner, source)
        for view in group or ():
            if view is not owner:
                self.bind_copy(view, owner, stop=True)

    def _write(self, target: Tensor, source: Tensor) -> None:
        variable, new = self._variable(target), self.variable(source)
        if self._depth:
            norm = self._norm_of(variable)
            if norm is not None and _is_steady(norm):
                return
        self._drop_alias(id(target._array))
        if not variable.persistable:
            self.bind(target, self._appended("assign", {"X": new}, {}))
            return
        op = self.program.current_block().ops[-1] if self.program.current_block().ops else None
        if op is not None and op.definition is not None:
            for slot, names in op.outputs.items():
                place = updated_input(op.definition, slot)
                if place is not None and names == [new.name] and op.inputs.get(place) == [variable.name]:
                    op.rename_output(new.name, variable.name)  # the op updates this input in place
                    op.block.remove_var(new.name)
                    self.bind(source, variable)
                    return
        self.program.current_block().append_op("assign", {"X": new}, {"Out": variable})

    # -- refused operations
    def refuse_read(self, tensor: Tensor, by: str) -> None:
        """Raise an error if `by` would read the value of a traced tensor."""
        if (
            self.has_variable(tensor)
            or id(tensor._array) in self._gone
            or (not tensor._stop and id(tensor._array) not in self._born)
        ):
            raise self._refusal(
                f"{by} of {tensor.name} ({tensor.describe()}) while it is traced: Python would see the value that the example "
                "has, and the program would not depend on it. To branch or loop on a tensor use fluid.layers.cond or "
                "fluid.layers.while_loop; to compute with it, ops on tensors"
            )

    def note_parameter(self, parameter: Parameter) -> None:
        """Note a parameter that is made while tracing."""

    def note_print(self, tensor: Tensor) -> None:
        """Note that a tensor is printed: by default, the values of the example are."""

    def backward(self, tensors: Sequence[Tensor], weights: Any, retain_graph: Any, create_graph: bool, inputs: Any) -> None:
        """Trace `fluid.dygraph.backward`, as `StepTracer` does."""
        self.refuse_call("backward()", "gradients in a program are values: use dygraph.grad(...), or append_backward later")

    def read_gradient(self, tensor: Tensor) -> None:
        """Trace a read of the `grad` of a tensor, as `StepTracer` does."""
        self.refuse_call(
            f"a use of the grad of {tensor.name}, as by an optimizer,",
            "gradients in a program are values: use dygraph.grad(...), or trace the loss and minimize it as a program; "
            "dygraph.compile traces whole training steps",
        )

    def replace_gradient(self, tensor: Tensor) -> None:
        """Trace that the `grad` of a tensor is cleared or replaced, as `StepTracer` does."""
        self.refuse_call(f"a change of the grad of {tensor.name}", "do it before or after the traced call")

    def update(self, op: UpdateOp, tensors: Sequence[Tensor]) -> None:
        """Trace an update by an optimizer, as `StepTracer` does."""
        self.refuse_call(f"an update ({op.definition.type})", "trace the loss, and minimize it as a program")

    def scheduled_rate(self, schedule: Any) -> Any:
        """Trace the use of a learning rate schedule, as `StepTracer` does."""
        self.refuse_call(f"a {type(schedule).__name__}", "trace the loss, and minimize it as a program")

    def note_optimizer(self, optimizer: Any) -> None:
        """Note an optimizer that makes updates."""

    def refuse_call(self, call: str, instead: str) -> None:
        """Raise an error for a call that cannot be part of a program."""
        raise self._refusal(f"{call} cannot be traced; {instead}")

    def _refusal(self, message: str) -> ProgramError:
        self._refused = ProgramError(f"{message}\n  called at: {line_text(user_line())}")
        return self._refused

    def check(self) -> None:
        """Raise the last refusal again if the function caught it, as numpy's ``array_equal`` does: its result is a constant."""
        if self._refused is not None:
            raise self._refused

    # -- branches and loops
    def _static(self, build: Callable[[Callable[..., Any]], Any]) -> Any:
        """Call ``build(as_user)`` with this program as the default; ``as_user(fn, *args)`` calls with the user's default."""
        main, startup = default_main_program(), default_startup_program()
        generator = unique_name.switch(self._names)

        def as_user(function: Callable[..., Any], *args: Any) -> Any:
            mine = unique_name.switch(generator)
            try:
                with program_guard(main, startup):
                    return function(*args)
            finally:
                unique_name.switch(mine)

        try:
            with program_guard(self.program, self.startup):
                return build(as_user)
        finally:
            unique_name.switch(generator)

    def _in_block(self, function: Callable[[], Any]) -> Any:
        """Call a function in another block: variables that it makes are not visible outside."""
        outside, aliases, fixed = dict(self._variables), dict(self._aliases), self._fixed
        self._fixed = fixed | set(outside) | self._born
        self._depth += 1
        try:
            return function()
        finally:
            persistables = {key: variable for key, variable in self._variables.items() if variable.persistable}
            self._gone |= self._variables.keys() - persistables.keys() - outside.keys() - (self._born & self._fixed)
            self._variables, self._fixed = {**outside, **persistables}, fixed
            self._aliases = {key: variable for key, variable in self._aliases.items() if variable.persistable or key in aliases}
            self._depth -= 1

    def _variables_of(self, value: Any) -> Any:
        """Nested tensors as variables."""
        return rebuild(value, iter([self.variable(item) for item in _tensors(value)]))

    def cond(self, pred: Tensor, true_fn: Any, false_fn: Any) -> Any:
        """`fluid.layers.cond` of a traced tensor: trace both functions and return the result of the chosen one."""
        results: dict[bool, Any] = {False: None, True: None}
        chosen = bool(pred._array.item())

        def build(as_user: Callable[..., Any]) -> Any:
            def branch(is_true: bool, function: Any) -> Any:
                def run() -> Any:
                    with nullcontext() if is_true is chosen else RANDOM.repeating(()):
                        results[is_true] = as_user(function)
                    return self._variables_of(results[is_true])

                return None if function is None else lambda: self._in_block(run)

            return control_flow.cond(self.variable(pred), branch(True, true_fn), branch(False, false_fn))

        region = EagerRegion(self, "cond")
        merged = region.build(lambda: self._static(build))
        return self._results_of(region, results[chosen], merged, [part for part in results.values() if part is not None])

    def bound(self, tensors: Any, variables: Any, edges: Sequence[Any]) -> Any:
        """Copies of nested tensors, bound to these variables, with these edges (or None)."""
        copies = [make(tensor._array.copy(), tensor._kind, edge) for tensor, edge in zip(_tensors(tensors), edges, strict=True)]
        for item, variable in zip(copies, flatten(variables, "a result"), strict=True):
            self.bind(item, variable)
        return rebuild(tensors, iter(copies))

    def _results_of(self, region: EagerRegion, result: Any, variables: Any, parts: Sequence[Any]) -> Any:
        """The result of a branch or loop as bound tensors; `parts` are the results of its functions."""
        if result is None:
            return None
        names = [variable.name for variable in flatten(variables, "a result")]
        return self.bound(result, variables, region.edges_of(_tensors(result), names, map(_tensors, parts)))

    @contextmanager
    def record_reads(self, reads: dict[str, Any]) -> Iterator[None]:
        """Inside the ``with``, note the variables that are read and the edges of their tensors, if they require gradients."""
        self._readers.append(reads)
        try:
            yield
        finally:
            self._readers.pop()

    def while_loop(self, cond: Any, body: Any, loop_vars: Sequence[Any], is_test: bool) -> Any:
        """`fluid.layers.while_loop` of traced tensors: trace the body once and return the result of the last iteration."""
        before = list(loop_vars)
        results: list[Any] = []

        def build(as_user: Callable[..., Any]) -> Any:
            def lifted(function: Any) -> Any:
                def run(*variables: Any) -> Any:
                    cut = Refusal(
                        "a gradient from inside a while_loop to values before it would skip the iterations in between; "
                        "differentiate the result of the loop",
                        _tensors(before),
                    )

                    def trip() -> Any:
                        values = self.bound(before, list(variables), cut.edges)
                        with RANDOM.repeating(()):
                            results.append(as_user(function, *values))
                        return self._variables_of(results[-1])

                    return self._in_block(trip)

                return run

            return control_flow.while_loop(lifted(cond), lifted(body), self._variables_of(before), is_test)

        region = EagerRegion(self, "while_loop")
        after = region.build(lambda: self._static(build))
        with tracing(None):
            last = loop(cond, body, before)
        return self._results_of(region, last, after, [before, *results])

    @contextmanager
    def differentiable(self) -> Iterator[None]:
        """Inside the ``with``, gradients flow through the traced ops although they are not recorded."""
        before, self._is_differentiable = self._is_differentiable, True
        try:
            yield
        finally:
            self._is_differentiable = before

    # -- layers
    def note_layer(self, layer: Layer) -> None:
        """Note a layer that is called."""
        if id(layer) not in self.layers:
            self.layers[id(layer)] = layer, layer.training, dict(layer._buffers)

    def settle_buffers(self) -> None:
        """Copy tensors that were assigned to buffers into the former buffers, here and in the program."""
        for layer, _, before in self.layers.values():
            for name, old in before.items():
                new = layer._buffers.get(name)
                if new is old or old is None or new is None:
                    continue
                if (new.shape, new.dtype) != (old.shape, old.dtype):
                    self.refuse_call(
                        f"giving the buffer {name} of {layer.full_name()}, {old.describe()}, a {new.describe()}",
                        "use a new layer",
                    )
                layer._buffers[name] = old
                with no_grad():
                    old.copy_(new)

    # -- programs in the program
    def call_traced(self, traced: TracedFunction, arguments: Sequence[Any]) -> list[Tensor]:
        """Call a traced function: its ops become part of the program."""
        for tensor in traced._modified:
            self.prepare_write(tensor, traced.name)
        variables = self.inline(traced, arguments)
        with tracing(None):
            results = traced._run(arguments)
        for tensor, variable in zip(results, variables, strict=True):
            variable.stop_gradient = True
            self.bind(tensor, variable)
        return results

    def inline(self, traced: TracedFunction, arguments: Sequence[Any]) -> list[Variable]:
        """Append a copy of a traced function's ops on these tensors; the variables that it fetches."""
        source, home = traced.program, self.program.current_block()
        names = dict(zip(traced.feed_names, [self.variable(to_variable(item)).name for item in arguments], strict=True))
        modified = {id(tensor) for tensor in traced._modified}
        for key, tensor in traced.captured.items():
            names[key] = (self._variable(tensor) if id(tensor) in modified else self.variable(tensor)).name
        for tensor in traced._modified:
            self._drop_alias(id(tensor._array))
        used_names = {
            name.partition("/")[0] for program in (source, self.program) for block in program.blocks for name in block.vars
        }
        start = next(start for start in (f"inlined_{number}" for number in itertools.count()) if start not in used_names)
        blocks = {0: home}
        for block in source.blocks[1:]:
            assert block.parent is not None
            forward = blocks[block.forward.idx] if block.forward is not None else None
            blocks[block.idx] = self.program.create_block(blocks[block.parent.idx], forward)
        for block in source.blocks:
            for name, variable in block.vars.items():
                if block.idx == 0:
                    if name in names:
                        continue
                    if variable.persistable:
                        raise self._refusal(
                            f"the program of {traced!r} has got a variable {name} since it was traced, and cannot be part of "
                            "another program"
                        )
                    names[name] = f"{start}/{name}"
                twin = copy.copy(variable)
                twin.block, twin.name = blocks[block.idx], names[name] if block.idx == 0 else name
                blocks[block.idx].vars[twin.name] = twin
        inlined = []
        for block in source.blocks:
            for op in block.ops:
                twin_op = _clone_op(op, blocks[block.idx], blocks)  # type: ignore[arg-type]
                blocks[block.idx].ops.append(twin_op)
                if block.idx == 0:
                    inlined.append(twin_op)
        for op in inlined:
            redirect(op, names)
        self.program._changed()
        return [home.var(names[name]) for name in traced._fetched()]


def _gradient_edge(tensor: Tensor) -> Any:
    """The edge of a tensor; None if no gradient flows to it."""
    return None if tensor._stop else tensor._edge or leaf_edge(tensor)


def _is_steady(norm: Operator) -> bool:
    """Whether a batch norm does not change its moving statistics."""
    return uses_global_stats(*(bool(norm.attr(name)) for name in ("is_test", "use_global_stats", "trainable_statistics")))


def _reads(op: Operator, name: str) -> bool:
    """Whether an op, or one in the blocks that it owns, reads a variable."""
    return any(name in inner.input_arg_names for inner in walk([op]))


def _tensors(value: Any) -> list[Any]:
    """The tensors in nested lists, tuples and dicts; an error where there is anything else."""
    return list(flatten(value, "what a branch or loop returns"))


# --------------------------------------------------------------------------------------------------------- public interface
class TracedFunction:
    """A function as a program. Called with tensors like the examples, it returns the program's results, without gradients.

    `trace` makes it. The program does not change: it keeps the parameters and buffers, the mode of layers (`train`, `eval`) and
    the values of Python variables at the time of tracing. Functions made by `to_static` are traced again when these change.

    Attributes:
        program: the ops, which `append_backward` can differentiate, and an executor run in `scope`.
        feed_names, fetch_names: names of the inputs and outputs, in order.
        scope: holds the tensors from outside the function, in the same memory.
        captured: variable -> tensor from outside the function.

    >>> traced = dygraph.trace(dygraph.Linear(4, 3), dygraph.Tensor(np.ones([2, 4], "float32")))
    >>> [op.type for op in traced.program.global_block().ops]
    ['mul', 'elementwise_add']
    """

    def __init__(
        self, tracer: Tracer, examples: Any, feeds: Sequence[str], fetches: Sequence[str], result: Any, name: str, device: str
    ) -> None:
        self.program, self.feed_names, self.fetch_names = tracer.program, list(feeds), list(fetches)
        self.name, self._result = name, result
        self.scope = Scope()
        self.captured = dict(tracer.captured)
        for key, tensor in self.captured.items():
            self.scope.var(key).tensor.array = tensor._array
        self.executor = Executor(place_of_programs(device))
        self._examples = examples
        args, kwargs = examples
        self._plain = len(args) if not kwargs and all(item is TENSOR for item in args) else -1
        self._updates: list[tuple[int, str]] = []
        """(Index of an input that the function modifies in place, variable with its new value)."""
        self._same: dict[int, int] = {}
        self._classes: list[type[Tensor]] = []
        """The classes of the results of a function that was called with examples."""
        """Index of an input -> index of an earlier input in the same memory."""
        blocks = self.program.blocks
        written_names = {name for block in blocks for op in block.ops for name in op.output_arg_names}
        self._modified = [tensor for key, tensor in self.captured.items() if key in written_names]
        self._sent: dict[str, tuple[Any, ...]] | None = {} if isinstance(self.executor.place, XLAPlace) else None
        """For a scope on a device: the arrays from outside that it holds, with the versions of their tensors."""
        self._draws = tracer.draws
        self._random = bool(tracer.draws.events) or any(_is_random(op) for block in blocks for op in block.ops)

    @property
    def feeds(self) -> list[Variable]:
        """The variables that are fed."""
        return [self.program.global_block().var(name) for name in self.feed_names]

    @property
    def fetches(self) -> list[Variable]:
        """The variables that are fetched."""
        return [self.program.global_block().var(name) for name in self.fetch_names]

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Run the program on tensors (or arrays); results have the structure of the function's results.

        While another function is traced, the ops become part of its program.

        Raises:
            ProgramError: the arguments differ from the examples in number, structure, keys, or values that are not tensors.
        """
        if len(inputs) == self._plain and not named and all(map(_is_given, inputs)):
            arguments: Sequence[Any] = inputs
        else:
            arguments = self._matched([list(inputs), named])
        for number, first in self._same.items():
            if _memory(arguments[number]) is not _memory(arguments[first]):
                raise ProgramError(
                    f"{self.name} was traced with one tensor for both {self.feed_names[first]} and {self.feed_names[number]}, "
                    "and now they are two; trace it for that, too"
                )
        memories = {id(_memory(item)) for item in arguments} if self._updates and not self._same else arguments
        if len(memories) < len(arguments):
            raise ProgramError(
                f"{self.name} changes {self.feed_names[self._updates[0][0]]} in place, and was traced with other tensors for "
                "each of its arguments; now two are in the same memory: give it a clone() of one"
            )
        if state.tracer is not None:
            results = state.tracer.call_traced(self, arguments)
        else:
            results = self._run(arguments)
        for (number, _), value in zip(self._updates, results[len(self.fetch_names) :], strict=True):
            if isinstance(arguments[number], Tensor):
                arguments[number].set_value(value)
        for result, computed_as in zip(results, self._classes, strict=False):
            result.__class__ = computed_as
        return refilled(self._result, iter(results))

    def _run(self, arguments: Sequence[Any]) -> list[Tensor]:
        feed = self._feed(arguments)
        if self._sent is not None:
            self._send(self._sent)
        with self._drawing():
            results = self.executor.run(self.program, feed, self._fetched(), scope=self.scope, return_numpy=False)
        for tensor in self._modified:
            tensor._version[0] += 1
            tensor._version[1:] = [self.name, None]
        if self._sent is not None:
            self._fetch(self._sent)
        return [from_fetched(value) for value in results]

    def _feed(self, arguments: Sequence[Any]) -> dict[str, Any]:
        return {name: to_feed(tensor) for name, tensor in zip(self.feed_names, arguments, strict=True)}

    def _drawing(self) -> AbstractContextManager[None]:
        """Inside the ``with``, random ops of a run draw as in eager mode."""
        return RANDOM.shared(self._draws) if self._random else nullcontext()

    def _send(self, sent: dict[str, tuple[Any, ...]]) -> None:
        """Give the scope the arrays from outside that have changed since the last run."""
        for key, tensor in self.captured.items():
            now = tensor._array, tensor._version[0]
            before = sent.get(key)
            if before is None or before[0] is not now[0] or before[1] != now[1]:
                self.scope.var(key).tensor.array = tensor._array
                sent[key] = now

    def _fetch(self, sent: dict[str, tuple[Any, ...]]) -> None:
        """Copy variables that the run wrote back into the memory of their tensors."""
        modified = {id(tensor) for tensor in self._modified}
        for key, tensor in self.captured.items():
            if id(tensor) in modified:
                np.copyto(tensor._array, np.asarray(self.scope.var(key).tensor))
                sent[key] = tensor._array, tensor._version[0]

    def _fetched(self) -> list[str]:
        return self.fetch_names + [name for _, name in self._updates] if self._updates else self.fetch_names

    def _matched(self, inputs: Any) -> list[Any]:
        """The tensors among the arguments; an error if these do not match the examples."""
        tensors: list[Any] = []
        try:
            _match(self._examples[0], inputs[0], "", tensors)
            _match(self._examples[1], inputs[1], "", tensors)
        except _Differs as error:
            count, wanted = len(tensors_in(inputs)), len(self.feed_names)
            many = f"was traced with {wanted} tensors, not {count}" if count != wanted else "was traced with other arguments"
            raise ProgramError(f"{self.name} {many}: {error}") from None
        return tensors

    def save_inference_model(
        self, dirname: str, feed: Sequence[int] | None = None, fetch: Sequence[int] | None = None
    ) -> list[str]:
        """Save the program as an inference model (see `fluid.io`).

        Args:
            dirname: folder, created if missing.
            feed, fetch: the indices of the inputs and outputs that it has; all by default.

        Returns:
            Names of the outputs.
        """
        from ..saving.inference_models import save_inference_model

        feeds = [self.feed_names[number] for number in (range(len(self.feed_names)) if feed is None else feed)]
        fetches = [self.fetches[number] for number in (range(len(self.fetch_names)) if fetch is None else fetch)]
        with scope_guard(self.scope):
            return save_inference_model(dirname, feeds, fetches, self.executor, self.program)

    def __repr__(self) -> str:
        return f"<traced {self.name}: {', '.join(self.feed_names)} -> {', '.join(self.fetch_names)}>"


def to_feed(tensor: Any) -> Any:
    if not isinstance(tensor, Tensor):
        return tensor
    return (tensor._array, [list(level or ()) for level in tensor.lod]) if tensor.lod else tensor._array


def from_fetched(value: Any) -> Tensor:
    tensor, lod = Tensor._of(value.array), value.lod()
    return tensor.with_lod(tuple(tuple(level) for level in lod)) if lod else tensor


class _TensorPlaceholder:
    """Stands for a tensor in the structure of the examples."""

    def __repr__(self) -> str:
        return "a tensor"


TENSOR = _TensorPlaceholder()


class _Differs(Exception):
    """How arguments differ from the examples."""


def _memory(value: Any) -> Any:
    return value._array if isinstance(value, Tensor) else value


def _is_given(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray))


def _match(example: Any, value: Any, where: str, tensors: list[Any]) -> None:
    """Add the tensors of a value to `tensors`; `_Differs` if it does not match the example."""
    place = f"argument {where}" if where else "the arguments"
    if example is TENSOR:
        if not _is_given(value):
            raise _Differs(f"{place} was a tensor, and now is {value!r}")
        tensors.append(value)
    elif isinstance(example, Mapping):
        if not isinstance(value, Mapping) or value.keys() != example.keys():
            now = f"the keys {_keys(value)}" if isinstance(value, Mapping) else repr(value)
            raise _Differs(f"{place} had the keys {_keys(example)}, and now {now}")
        for key in sorted(example, key=str):
            _match(example[key], value[key], f"{where}[{key!r}]" if where else str(key), tensors)
    elif isinstance(example, (list, tuple)):
        if not isinstance(value, (list, tuple)) or len(value) != len(example):
            now = str(len(value)) if isinstance(value, (list, tuple)) else repr(value)
            raise _Differs(f"{place} had {len(example)} entries, and now {now}")
        for number, (part, item) in enumerate(zip(example, value, strict=True)):
            _match(part, item, f"{where}[{number}]" if where else str(number), tensors)
    elif value is not example and not (type(value) is type(example) and _equal(value, example)):
        raise _Differs(f"{place} was {example!r}, which became part of the program, and now is {value!r}; trace it for that, too")


def _keys(value: Mapping[Any, Any]) -> str:
    return ", ".join(repr(key) for key in sorted(value, key=str)) or "none"


def _equal(one: Any, peer: Any) -> bool:
    try:
        return bool(one == peer)
    except Exception:  # raised by a user's class
        return False


def input_names(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], count: int) -> list[str]:
    """Names for `count` inputs, after the function's parameters."""
    target = function.forward if isinstance(function, Layer) else function
    try:
        names = [name for name, p in inspect.signature(target).parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    except (TypeError, ValueError):
        names = []
    named_args = [(names[n] if n < len(names) else f"input_{n}", example) for n, example in enumerate(args)]
    input_names = []
    for base, example in [*named_args, *((key, kwargs[key]) for key in sorted(kwargs))]:
        inner = len(tensors_in(example))
        input_names += [base] if inner == 1 else [f"{base}_{number}" for number in range(inner)]
    return input_names if len(set(input_names)) == count else [f"input_{number}" for number in range(count)]


def traced_call(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    feed_names: Sequence[str] | None = None,
    fetch_names: Sequence[str] | None = None,
    keep: bool = False,
    layers: Sequence[Layer] = (),
    shared: bool = False,
    tracer: Tracer | None = None,
) -> tuple[Any, TracedFunction, Tracer]:
    """Call a function with examples and trace it: its result, the program, and the tracer.

    Args:
        keep: keep the function's changes of tensors from outside and of the examples, as in an ordinary call.
        layers: the layers that it will use.
        shared: preserve sharing of memory among the examples, and require it in each call.
        tracer: traces the call; by default, a new one for the examples' sizes.
    """
    if state.tracer is not None:
        state.tracer.refuse_call("trace()", "a function is being traced already: what it calls becomes part of its program")
    examples = [list(args), dict(kwargs)]
    originals = tensors_in(examples)
    arguments = [to_variable(item) for item in originals]
    names = list(feed_names) if feed_names is not None else input_names(function, args, kwargs, len(arguments))
    if len(names) != len(arguments):
        raise ProgramError(f"trace: there are {len(arguments)} example tensors, but {len(names)} feed_names")
    tracer, start = tracer or Tracer(), next(sequence)
    for layer in layers:
        tracer.note_layer(layer)
    inputs, same = copied_inputs(tracer, arguments, names, shared)
    called = name_of(function)
    passed_args, passed_kwargs = refilled(examples, iter(inputs))
    with tracing(tracer), tracer.noting_sizes(), nullcontext() if keep else _state_restored(tracer):
        result = function(*passed_args, **passed_kwargs)
        tracer.check()
        outputs = tensors_in(result)
        if not outputs or any(not isinstance(item, Tensor) for item in outputs):
            raise FluidTypeError(f"trace: {called} should return tensors, alone or in lists, tuples or dicts, not {result!r}")
        if not keep:
            _warn_of_backwards([item._edge[0] for item in outputs if item._edge is not None], start, called)
        fetches = fetched_variables(tracer, outputs, fetch_names or ())
        tracer.settle_buffers()
        updates = modified_inputs(tracer, inputs, names, same)
    shape = refilled(examples, iter([TENSOR] * len(arguments)))
    traced = TracedFunction(tracer, shape, names, fetches, without_tensors(result), called, outputs[0].device)
    traced._updates, traced._same = updates, same
    traced._classes = [item._computed_as for item in outputs]
    if keep:
        for number, _ in updates:
            if isinstance(originals[number], Tensor):
                originals[number].set_value(inputs[number])
    return result, traced, tracer


def name_of(function: Any) -> str:
    """The name of a function or layer, for messages."""
    return getattr(function, "__name__", None) or (function.full_name() if isinstance(function, Layer) else "function")


def copied_inputs(
    tracer: Tracer, arguments: Sequence[Tensor], names: Sequence[str], shared: bool
) -> tuple[list[Tensor], dict[int, int]]:
    """Copies of the examples, which the tracer feeds; and index -> index of an earlier one in the same memory, if `shared`."""
    inputs: list[Tensor] = []
    same: dict[int, int] = {}
    for number, (tensor, name) in enumerate(zip(arguments, names, strict=True)):
        first = next((n for n in range(number) if shared and arguments[n]._array is tensor._array), None)
        if first is None:
            copied = make(tensor._array.copy(), tensor._kind)
        else:
            same[number] = first
            copied = (
                inputs[first]
                if arguments[first] is tensor
                else make(inputs[first]._array, tensor._kind, None, inputs[first]._version)
            )
        of_class_of(tensor, copied)._stop = tensor._stop
        tracer.feed(copied, name)
        inputs.append(copied)
    return inputs, same


def fetched_variables(tracer: Tracer, outputs: Sequence[Tensor], wanted_names: Sequence[str] = ()) -> list[str]:
    """The variables to fetch for a function's results; a copy where one is fed, persistable or fetched already."""
    fetches: list[str] = []
    block = tracer.program.global_block()
    for number, item in enumerate(outputs):
        variable = tracer.variable(item)
        wanted = wanted_names[number] if number < len(wanted_names) else None
        if variable.is_data or variable.persistable or variable.name in fetches or wanted is not None:
            out = block.create_var(name=wanted or tracer._names("out"))
            block.append_op("assign", {"X": variable}, {"Out": out})
            variable = out
        fetches.append(variable.name)
    return fetches


def modified_inputs(
    tracer: Tracer, inputs: Sequence[Tensor], names: Sequence[str], same: Mapping[int, int]
) -> list[tuple[int, str]]:
    """(Index, variable with the new value) of the inputs that the function modified in place."""
    return [
        (number, tracer.variable(copied).name)
        for number, (copied, name) in enumerate(zip(inputs, names, strict=True))
        if number not in same and tracer.variable(copied).name != name
    ]


def nodes_with_own_backward(roots: Sequence[Node], start: int) -> list[Node]:
    """The nodes recorded since `start` whose backward a program does not know: hooks and PyLayers."""
    unknown: list[Node] = []
    stack, seen = list(roots), set(roots)
    while stack:
        node = stack.pop()
        if node.is_leaf or node.sequence_nr < start:
            continue
        edges = list(node._edges)
        hooks = node._hooks
        hooked = hooks is not None and any((hooks.before, hooks.after, *hooks.of_tensor.values()))
        if hooked or (isinstance(node, PyLayerNode) and not _is_print(node)):
            unknown.append(node)
        if isinstance(node, RegionNode) and node._saved is not None:
            edges += [tensor._edge for tensor in node._saved[2]]
        for edge in edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                stack.append(edge[0])
    return sorted(unknown, key=lambda node: node.sequence_nr)


def own_backward(node: Node) -> str:
    """What a node of `nodes_with_own_backward` computes its gradient by, for messages."""
    return f"the backward of {node._cls.__name__}" if isinstance(node, PyLayerNode) else "the hook of a tensor"


def _warn_of_backwards(roots: Sequence[Node], start: int, called: str) -> None:
    """Warn of nodes recorded since `start` whose backward `append_backward` does not know."""
    unknown = nodes_with_own_backward(roots, start)
    if unknown:
        first = unknown[0]
        culprit = own_backward(first)
        more = f" and of {len(unknown) - 1} more" if len(unknown) > 1 else ""
        warn_user(
            f"trace: {culprit} ({first.where}){more} is not part of the program of {called}: append_backward would differentiate "
            "what ran forward. To have such gradients in the program, compute them inside, by dygraph.grad"
        )


def _is_print(node: PyLayerNode) -> bool:
    return node._cls.__module__.rpartition(".")[2] == "effects"


@contextmanager
def _state_restored(tracer: Tracer) -> Iterator[None]:
    """Inside the ``with``, ops are recorded; at the end, tensors from outside and the random stream are restored."""
    draws: list[Any] = []
    before = RANDOM.position()
    try:
        with enable_grad(), RANDOM.noting(draws):
            tracer._recording = True
            yield
    finally:
        tracer.restore()
        RANDOM.take_back(before, len(draws))


def without_tensors(result: Any) -> Any:
    """The structure of a result, without its tensors."""
    return refilled(result, iter([np.empty(0)] * len(tensors_in(result))))


def check_layer(where: str, layer: Any) -> None:
    """Raise a `FluidTypeError` unless `layer` is a Layer."""
    if not isinstance(layer, Layer):
        raise FluidTypeError(f"{where} takes a Layer, not a {type(layer).__name__}; dygraph.trace takes any function")


def is_of_user(frame: FrameType) -> bool:
    """Whether a frame runs code outside of this package."""
    return not str(frame.f_globals.get("__name__", "")).startswith(_PACKAGE)

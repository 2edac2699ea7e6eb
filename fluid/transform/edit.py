"""Edits of programs: each succeeds or changes nothing, leaves a well-formed program, and reports its changes.

The methods of `Program` call these functions. An edit changes the program in place, so that references to variables stay valid.
If anything fails, including the user's own builder, the program is restored.
"""

from __future__ import annotations

import copy
import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from types import TracebackType
from typing import Any

import numpy as np

from .. import unique_name
from ..errors import InferenceError, NameNotFoundError, ProgramError, locate, printable
from ..executor.runtime.scope import Scope, global_scope
from ..ir.checked import checked
from ..ir.inference import add_output, declared_specs, gather_specs
from ..ir.printing import op_to_string
from ..ir.program import Block, Operator, OpRole, Parameter, Program, Variable, program_guard
from ..ir.regions import is_gradient_op, region_of
from ..ir.renaming import redirect, redirect_reads, rename_variables
from ..ir.verify import describe_faults, find_faults, refuse_deep
from ..opdef.inference import infer_specs
from ..opdef.registry import EMPTY
from ..values.spec import Spec
from ..values.types import VarType, is_floating
from .dequantizing import dequantize_weights
from .pruning import prune_in_place
from .untying import STATISTICS, is_weight, merged_uses, read_from

__all__ = ["Edit", "EditReport", "extract", "insert", "make_trainable", "prune", "rename", "replace", "set_shape", "show_var"]

NameList = Variable | str | Iterable[Variable | str]
OpLike = Operator | Variable | str | int
"""An op: itself, its position in block 0, or a variable that only it writes."""
Builder = Callable[..., Any]
_MOST_LINES = 30
_TRAFFIC = ("feed", "fetch")


# ------------------------------------------------------------------------------------------------------------ reports
@dataclass(frozen=True)
class EditReport:
    """The changes of an edit; it can be printed.

    Attributes:
        what: a description of the edit.
        program: the program that was changed, or the new one.
        removed_ops, added_ops: ops as text.
        changed_ops: ops before and after, as text.
        removed_vars, added_vars: variables as text.
        changed_vars: variables before and after, as text.
        values: names of variables whose values in the scope were set.
        notes: the parts left unchanged, and why.
        startup_program: the program that initializes the parameters that the edit created, if any.
    """

    what: str
    program: Program
    removed_ops: tuple[str, ...] = ()
    added_ops: tuple[str, ...] = ()
    changed_ops: tuple[tuple[str, str], ...] = ()
    removed_vars: tuple[str, ...] = ()
    added_vars: tuple[str, ...] = ()
    changed_vars: tuple[tuple[str, str], ...] = ()
    values: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    startup_program: Program | None = None

    @property
    def changed(self) -> bool:
        """Whether the edit changed anything."""
        ops, variables = self.removed_ops + self.added_ops, self.removed_vars + self.added_vars
        return bool(ops or self.changed_ops or variables or self.changed_vars or self.values)

    def __str__(self) -> str:
        counts = []
        for verb, ops, variables in (
            ("removed", self.removed_ops, self.removed_vars),
            ("added", self.added_ops, self.added_vars),
            ("changed", self.changed_ops, self.changed_vars),
        ):
            text = " and ".join(_count(len(items), noun) for items, noun in ((ops, "op"), (variables, "variable")) if items)
            if text:
                counts.append(f"{text} {verb}")
        if self.values:
            counts.append(f"{_count(len(self.values), 'value')} set in the scope")
        lines = [f"{self.what}: {', '.join(counts) or 'nothing changed'}"]
        for sign, items in {
            "-": self.removed_ops,
            "+": self.added_ops,
            "~": [f"{before}\n    becomes {after}" for before, after in self.changed_ops],
            "- var": self.removed_vars,
            "+ var": self.added_vars,
            "~ var": [f"{before}  ->  {after}" for before, after in self.changed_vars],
            "=": self.values,
            "note:": self.notes,
        }.items():
            lines += _listed(sign, items)
        return "\n".join(lines)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _listed(sign: str, items: Sequence[str]) -> Iterator[str]:
    for item in items[:_MOST_LINES]:
        yield f"  {sign} {item}"
    if len(items) > _MOST_LINES:
        yield f"  {sign} ... {len(items) - _MOST_LINES} more"


# ------------------------------------------------------------------------------------------- all of it or none of it
_VAR_SLOTS = [slot for cls in (*Variable.__mro__, Parameter) for slot in getattr(cls, "__slots__", ())]


@dataclass
class _OpState:
    op: Operator
    type: str
    inputs: dict[str, list[str]]
    outputs: dict[str, list[str]]
    attrs: dict[str, Any]
    wire: Any
    text: str = ""

    @staticmethod
    def of(op: Operator) -> _OpState:
        return _OpState(
            op,
            op.type,
            {slot: list(names) for slot, names in op.inputs.items()},
            {slot: list(names) for slot, names in op.outputs.items()},
            {name: list(value) if isinstance(value, list) else value for name, value in op.attrs.items()},
            op.wire,
        )

    def is_now(self) -> bool:
        op = self.op
        return (self.type, self.inputs, self.outputs, self.attrs) == (op.type, op.inputs, op.outputs, op.attrs)

    def restore(self) -> None:
        op = self.op
        op.type, op.inputs, op.outputs, op.attrs, op.wire = self.type, self.inputs, self.outputs, self.attrs, self.wire

    def show(self, block: Block) -> str:
        """The old op as text; `block` has the old variables."""
        return op_to_string(Operator(block, self.type, self.inputs, self.outputs, self.attrs))


@dataclass
class _BlockState:
    block: Block
    idx: int
    parent: Block | None
    forward: Block | None
    vars: dict[str, Variable]
    ops: list[_OpState]


@checked
def show_var(var: Variable) -> str:
    """A declaration as a line: name, type, shape and flags."""
    flags = {
        "persistable": var.persistable and not isinstance(var, Parameter),
        "data": var.is_data,
        "not trainable": isinstance(var, Parameter) and not var.trainable,
        "stop_gradient": var.stop_gradient and not var.is_data,
    }
    word = "param " if isinstance(var, Parameter) else ""
    return " ".join([f"{word}{printable(var.name)}: {var.describe()}", *(flag for flag, is_set in flags.items() if is_set)])


class Edit:
    """A change of a program, in a ``with``: if anything is raised inside, the program is restored.

    At the end, a fault that the program did not have before is an error; otherwise `report` tells what has changed.

    Attributes:
        values: arrays by name that are put into the scope when the edit has succeeded.
        notes: notes for the report.
    """

    def __init__(self, program: Program, label: str, scope: Scope | None = None) -> None:
        self.program = program
        self.label = label
        self.scope = scope
        self.values: dict[str, Any] = {}
        self.notes: list[str] = []
        self.startup_program: Program | None = None
        self._report: EditReport | None = None

    @property
    def report(self) -> EditReport:
        assert self._report is not None, "the edit has not ended"
        return self._report

    def __enter__(self) -> Edit:
        program = self.program
        refuse_deep(program)
        self._known_faults = {fault.message for fault in find_faults(program)}
        self._blocks = [
            _BlockState(b, b.idx, b.parent, b.forward, dict(b.vars), [_OpState.of(op) for op in b.ops]) for b in program.blocks
        ]
        self._vars = {id(var): (var, copy.copy(var)) for state in self._blocks for var in state.vars.values()}
        self._saved_state = program._current, program._seed, program._role, program._frames, program.wire
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self._restore()
            return
        faults = [fault for fault in find_faults(self.program) if fault.message not in self._known_faults]
        if faults:
            text = describe_faults(faults)
            self._restore()
            raise ProgramError(f"{self.label}: the result would not be well formed, so nothing is changed; {text}")
        self._report = self._compare()
        if self._report.changed:
            self.program._changed()
        if self.scope is not None:
            for name, value in self.values.items():
                self.scope.put(name, value)

    def _restore(self) -> None:
        program = self.program
        program.blocks = [state.block for state in self._blocks]
        for state in self._blocks:
            block = state.block
            block._idx, block.parent, block.forward = state.idx, state.parent, state.forward
            block.vars = state.vars
            block.ops = [op_state.op for op_state in state.ops]
            for op_state in state.ops:
                op_state.restore()
                op_state.op.block = block
        for var, before in self._vars.values():
            for slot in _VAR_SLOTS:
                if hasattr(before, slot):
                    object.__setattr__(var, slot, getattr(before, slot))
        program._current, program._seed, program._role, program._frames, program.wire = self._saved_state
        program._changed()

    def _compare(self) -> EditReport:
        now = {id(op): op for block in self.program.blocks for op in block.ops}
        before = {id(old.op) for state in self._blocks for old in state.ops}
        removed, changed = [], []
        for state, twin in zip(self._blocks, self._blocks_before(), strict=True):
            for old in state.ops:
                if id(old.op) not in now:
                    removed.append(old.show(twin))
                elif not old.is_now():
                    changed.append((old.show(twin), op_to_string(old.op)))
        added = [op_to_string(op) for key, op in now.items() if key not in before]
        vars_now = {id(var): var for var in self.program.list_vars()}
        replaced = {(var.block, var.name): var for var in vars_now.values() if id(var) not in self._vars}
        removed_vars, changed_vars, same_place = [], [], set()
        for key, (_, was) in self._vars.items():
            after = vars_now.get(key)
            if after is None:
                after = replaced.get((was.block, was.name))  # another object under the name, such as a Parameter
                same_place.add(id(after))
            if after is None:
                removed_vars.append(show_var(was))
            elif show_var(was) != show_var(after):
                changed_vars.append((show_var(was), show_var(after)))
        return EditReport(
            self.label,
            self.program,
            tuple(removed),
            tuple(added),
            tuple(changed),
            tuple(removed_vars),
            tuple(show_var(var) for key, var in vars_now.items() if key not in self._vars and key not in same_place),
            tuple(changed_vars),
            tuple(self.values),
            tuple(self.notes),
            self.startup_program,
        )

    def _blocks_before(self) -> list[Block]:
        """Blocks with the old variables, for printing old ops."""
        twins = {id(state.block): Block(self.program, state.idx) for state in self._blocks}
        for state in self._blocks:
            twin = twins[id(state.block)]
            twin.parent = twins.get(id(state.parent))
            twin.forward = twins.get(id(state.forward))
            twin.vars = {name: self._vars[id(var)][1] for name, var in state.vars.items()}
        return [twins[id(state.block)] for state in self._blocks]


# ------------------------------------------------------------------------------------------------------- finding things
def _name_of(item: Variable | str) -> str:
    return item if isinstance(item, str) else item.name


def _names(items: NameList | None) -> list[str]:
    if items is None:
        return []
    if isinstance(items, (str, Variable)):
        items = [items]
    return [_name_of(item) for item in items]


def find_op(program: Program, wanted: OpLike) -> Operator:
    """The op that is given as itself, its position in block 0, or a variable (or its name) that only it writes.

    `ProgramError` if there is none, or more than one.
    """
    if isinstance(wanted, Operator):
        if wanted.block.program is not program or not any(op is wanted for op in wanted.block.ops):
            raise ProgramError(f"the op is not in this program (any more): {wanted}")
        return wanted
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        ops = program.global_block().ops
        if not -len(ops) <= wanted < len(ops):
            raise ProgramError(f"there is no op {wanted}: block 0 has {len(ops)} ops")
        return ops[wanted]
    if not isinstance(wanted, (str, Variable)):
        raise ProgramError(f"an op is given as an Operator, a position in block 0 or an output of it, not as {wanted!r}")
    name = _name_of(wanted)
    writers = [op for block in program.blocks for op in block.ops if name in op.output_arg_names and op.type != "feed"]
    if len(writers) == 1:
        return writers[0]
    if writers:
        listed = "\n".join(f"  {op}" for op in writers[:5])
        raise ProgramError(f"{len(writers)} ops write {name!r}; give the Operator itself:\n{listed}")
    program.global_block().var(name)  # its error suggests similar names
    raise ProgramError(f"no op writes {name!r}")


def _any_var(program: Program, name: str) -> Variable:
    """The variable of block 0 with this name, otherwise the only one of another block; `ProgramError` if there are several."""
    var = program.global_block().vars.get(name)
    if var is not None:
        return var
    matches = [block.vars[name] for block in program.blocks if name in block.vars]
    if len(matches) > 1:
        raise ProgramError(f"{name!r} is the name of variables of blocks {', '.join(str(var.block.idx) for var in matches)}")
    return matches[0] if matches else program.global_block().var(name)


def _refuse_backward(program: Program, op: Operator, label: str) -> None:
    """Raise `ProgramError` when a forward op would change in a program that has gradient ops."""
    if op.role & (OpRole.BACKWARD | OpRole.OPTIMIZE):
        return
    backward = sum(bool(candidate.role & OpRole.BACKWARD) for block in program.blocks for candidate in block.ops)
    if backward:
        raise ProgramError(
            f"{label}: the program has {_count(backward, 'gradient op')}, made from the forward ops as they are; "
            "change it before append_backward or minimize, or change a clone(for_test=True)"
        )


# ------------------------------------------------------------------------------------------------------------- cutting
@checked
def prune(program: Program, feeds: NameList | None, targets: NameList) -> EditReport:
    """Keep only the ops and variables that the targets need; see `Program.prune`."""
    wanted = _names(targets)
    if not wanted:
        raise ProgramError("prune: there is nothing to keep: name at least one target")
    fed = _names(feeds) if feeds is not None else None
    with Edit(program, f"prune to {_some(wanted)}") as edit:
        root = program.global_block()
        for name in fed or ():
            root.var(name)
        root.ops = [op for op in root.ops if op.type not in _TRAFFIC]
        prune_in_place(program, wanted, fed or [])
        _check_fed(program, fed, wanted, edit.label)
    return edit.report


@checked
def extract(program: Program, inputs: NameList, outputs: NameList) -> EditReport:
    """Copy the ops between inputs and outputs to a new program; see `Program.extract`."""
    fed, wanted = _names(inputs), _names(outputs)
    if not wanted:
        raise ProgramError("extract: there is nothing to compute: name at least one output")
    part = program.clone()
    with Edit(part, f"extract {_some(wanted)} from {_some(fed) or 'nothing'}") as edit:
        root = part.global_block()
        root.ops = [op for op in root.ops if op.type not in _TRAFFIC]
        for name in fed:
            old = root.var(name)
            if old.block is not root:
                raise ProgramError(f"extract: {name!r} lives in block {old.block.idx}; inputs are variables of block 0")
        prune_in_place(part, wanted, fed)
        for name in fed:
            old = root.vars[name]
            new = Variable(root, type=old.type, name=name, lod_level=old.lod_level, is_data=True, need_check_feed=True)
            new._shape, new._dtype, new.stop_gradient = old._shape, old._dtype, True
            root.vars[name] = new
        read = {name for block in part.blocks for op in block.ops for name in op.input_arg_names}
        edit.notes += [f"{name} is not needed" for name in fed if name not in read and name not in wanted]
        _check_fed(part, fed, wanted, edit.label)
    return edit.report


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _check_fed(program: Program, feeds: Sequence[str] | None, targets: Sequence[str], label: str) -> None:
    """Raise `ProgramError` if a value that is read is missing; with `feeds` None, all data may be fed."""
    computed = {name for block in program.blocks for op in block.ops for name in op.output_arg_names}
    computed |= {name for block in program.blocks for op in block.ops for name in op.attrs.get("ex_states", ())}
    regions = [region for block in program.blocks for op in block.ops if (region := region_of(op)) is not None]
    slices = {(region.body, inner) for region in regions for inner, _ in region.slices}

    def is_there(block: Block, name: str) -> bool:
        var = block.find_var(name)
        if (
            var is None
            or name in computed
            or (var.block, name) in slices
            or var.persistable
            or var.type is not VarType.LOD_TENSOR
        ):
            return True
        return var.is_data if feeds is None else name in feeds

    for block in program.blocks:
        for op in block.ops:
            for name in op.input_arg_names:
                if not is_there(block, name):
                    fed = ", ".join(feeds or ()) or "nothing"
                    raise ProgramError(
                        f"{label}: {name!r} is needed, but it is neither computed, persistable nor fed ({fed})\n{locate(op)}"
                    )
    root = program.global_block()
    for name in targets:
        if not is_there(root, name):
            raise ProgramError(f"{label}: {name!r} is neither computed, persistable nor fed")


# ------------------------------------------------------------------------------------------------------------ renaming
@checked
def rename(
    program: Program, old: Variable | str | Mapping[str, str], new: str | None = None, scope: Scope | None = None
) -> EditReport:
    """Rename variables wherever they are named; see `Program.rename`."""
    requested: Mapping[str, Any] = old if isinstance(old, Mapping) else {_name_of(old): new}
    mapping: dict[str, str] = {}
    for before, after in requested.items():
        if not isinstance(before, str) or not isinstance(after, str) or not after or after == EMPTY:
            raise ProgramError(f"rename: {before!r} cannot be called {after!r}; give rename(old, new), or a dict of names")
        if before != after:
            mapping[before] = after
    variables = {name: _any_var(program, name) for name in mapping}
    twice = {name for name in mapping.values() if list(mapping.values()).count(name) > 1}
    if twice:
        raise ProgramError(f"rename: two variables would be called {sorted(twice)[0]!r}")
    for before, after in mapping.items():
        for block in program.blocks:
            if after in block.vars and after not in mapping:
                raise ProgramError(f"rename: {before!r} cannot be called {after!r}: block {block.idx} has such a variable")
    label = "rename " + _some([f"{before} to {after}" for before, after in mapping.items()])
    with Edit(program, label, scope) as edit:
        rename_variables({var: mapping[name] for name, var in variables.items()})
        if scope is not None:
            edit.values = {mapping[n]: scope.array(n) for n in mapping if variables[n].persistable and scope.array(n) is not None}
    return edit.report


# -------------------------------------------------------------------------------------------------------------- shapes
@checked
def set_shape(program: Program, var: Variable | str, shape: Sequence[int]) -> EditReport:
    """Declare another shape, and infer again all shapes that depend on it; see `Program.set_shape`."""
    name = _name_of(var)
    target = _any_var(program, name)
    sizes = tuple(map(int, shape))
    if any(size < -1 for size in sizes):
        raise ProgramError(f"set_shape: {list(sizes)} for {name!r} has a dimension below -1, which stands for unknown")
    label = f"set_shape of {name} to {list(sizes)}"
    with Edit(program, label) as edit:
        blocks = [block for block in program.blocks if block.find_var(name) is target]
        writers = [op for block in blocks for op in block.ops if name in op.output_arg_names]
        for op in writers:
            for output, spec in _inferred(op, label):
                if output is target and not agree(spec.shape, sizes):
                    raise InferenceError(
                        f"{label}: {op.type} makes {name} as {spec.dtype.text}{list(spec.shape)}, "
                        f"which contradicts {list(sizes)}\n{locate(op)}"
                    )
        target._shape = sizes
        infer_downstream(program, [target], label)
    return edit.report


def agree(left: Sequence[int], right: Sequence[int]) -> bool:
    """Whether two declared shapes may be the same; -1 fits any size, and ``()`` and ``(1,)`` fit each other."""
    scalars = ((), (1,))
    if tuple(left) in scalars and tuple(right) in scalars:
        return True
    return len(left) == len(right) and all(a == b or -1 in (a, b) for a, b in zip(left, right, strict=True))


def _inferred(op: Operator, label: str) -> Iterator[tuple[Variable, Spec]]:
    """The variables that an op writes, with their inferred specs."""
    definition = op.definition
    if op.sub_blocks and is_gradient_op(op):  # the gradient of an input has its shape
        for slot, names in op.inputs.items():
            for name, grad in zip(names, op.outputs.get(slot + "@GRAD", ()), strict=False):
                var, like = op.block.find_var(grad), op.block.find_var(name)
                if var is not None and like is not None and like.has_shape:
                    yield var, like.spec
        return
    if definition is None or not definition.is_inferred:
        return
    try:
        inferred = infer_specs(definition, gather_specs(op), op.attrs, declared_specs(op))
    except (InferenceError, NameNotFoundError) as error:
        raise InferenceError(f"{label} does not fit the op {op.type}: {error}\n{locate(op)}") from None
    for slot, specs in inferred.items():
        for name, spec in zip(op.outputs.get(slot, ()), specs if isinstance(specs, list) else [specs], strict=False):
            var = op.block.find_var(name) if name != EMPTY else None
            if var is not None and spec is not None:
                yield var, spec


def infer_downstream(program: Program, changed: Iterable[Variable], label: str) -> None:
    """Infer again the outputs of every op that depends on these variables.

    Raises:
        InferenceError: an op does not accept the new shapes, or its output contradicts a parameter or fed variable; names both
            sides.
    """
    dirty = {id(var) for var in changed}
    visited: set[int] = set()

    def walk(block: Block) -> None:
        visited.add(block.idx)
        for op in block.ops:
            for sub in op.sub_blocks:
                if sub.idx not in visited:
                    walk(sub)
            if not any(id(block.find_var(name)) in dirty for name in op.input_arg_names):
                continue
            for var, spec in list(_inferred(op, label)):
                if var.type is VarType.LOD_TENSOR and spec.type is VarType.LOD_TENSOR:
                    declare(op, var, spec)

    def declare(op: Operator, var: Variable, spec: Spec) -> None:
        """Declare the new spec of an output, or check it, if the output has a fixed one."""
        is_fixed = isinstance(var, Parameter) or var.is_data or (var.block is not op.block and var.has_shape)
        if is_fixed and var.has_shape and not agree(var.shape, spec.shape):
            raise InferenceError(
                f"{label}: {op.type} makes {spec.dtype.text}{list(spec.shape)} of it, which contradicts "
                f"{var.name}, declared {var.describe()}\n{locate(op)}"
            )
        if not is_fixed and (var._shape != spec.shape or var._dtype is not spec.dtype):
            var._shape, var._dtype = spec.shape, spec.dtype
            dirty.add(id(var))

    walk(program.global_block())


# -------------------------------------------------------------------------------------------------- putting in new ops
def _build(
    edit: Edit, position: int, op: Operator, builder: Builder, arguments: dict[str, Any], role: int
) -> tuple[list[Operator], Any]:
    """Call `builder`, which inserts ops at a position of the op's block; returns these ops and the builder's result."""
    program, block = edit.program, op.block
    startup = Program()
    tail = block.ops[position:]
    del block.ops[position:]
    with (
        program_guard(program, startup),
        unique_name.guard(unique_name.unused_in(program)),
        program.block_guard(block),
        program.role_guard(role),
    ):
        result = builder(**arguments)
    new_ops = block.ops[position:]
    block.ops += tail
    edit.startup_program = startup if startup.global_block().ops else None
    return new_ops, result


def _variables(op: Operator, slots: Mapping[str, list[str]], defined: Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments of a builder: variables by slot, lists in slots of many."""
    by_slot: dict[str, Any] = {}
    for slot, names in slots.items():
        variables = [op.block.var(name) for name in names if name != EMPTY]
        definition = defined.get(slot) if defined is not None else None
        many = definition.many if definition is not None else len(variables) != 1
        if variables:
            by_slot[slot] = variables if many else variables[0]
    return by_slot


def _by_slot(edit: Edit, op: Operator, slots: Mapping[str, list[str]], result: Any, side: str) -> dict[str, Variable]:
    """The result of a builder as a dict, old name -> new variable."""
    if result is None:
        return {}
    if not isinstance(result, Mapping):
        definition = op.definition
        defined = (definition.outputs if side == "output" else definition.inputs) if definition is not None else {}
        main = [slot for slot, names in slots.items() if names and not (slot in defined and defined[slot].intermediate)]
        if len(main) > 1 and slots is op.outputs:
            main = [s for s in main if any(not _is_persistent(op, n) for n in slots[s])] or main
        if len(main) != 1:
            raise ProgramError(f"{edit.label}: the op has the {side} slots {', '.join(slots)}; return a dict of slot -> Variable")
        result = {main[0]: result}
    replacements: dict[str, Variable] = {}
    for slot, value in result.items():
        values = list(value) if isinstance(value, (list, tuple)) else [value]
        names = slots.get(slot)
        if names is None or len(names) != len(values) or not all(isinstance(item, Variable) for item in values):
            held = ", ".join(f"{key} ({len(value)})" for key, value in slots.items())
            raise ProgramError(f"{edit.label}: {slot!r} cannot be {value!r}; the op's {side} slots hold variables so: {held}")
        for item in values:
            if item.block.program is not edit.program:
                raise ProgramError(f"{edit.label}: {item.name!r} belongs to another program")
        replacements.update((name, item) for name, item in zip(names, values, strict=True) if name != EMPTY)
    return replacements


def _is_persistent(op: Operator, name: str) -> bool:
    var = op.block.find_var(name)
    return var is not None and var.persistable


@checked
def replace(program: Program, op: OpLike, builder: Builder) -> EditReport:
    """Replace an op by the ops that `builder` appends; see `Program.replace`."""
    target = find_op(program, op)
    _refuse_backward(program, target, f"replace {target.type}")
    block = target.block
    with Edit(program, f"replace {target.type}") as edit:
        position = target.idx
        definition = target.definition
        arguments = _variables(target, target.inputs, definition.inputs if definition is not None else None)
        new_ops, result = _build(edit, position, target, builder, arguments, target.role)
        new = _by_slot(edit, target, target.outputs, result, "output")
        if not new and any(target.outputs.values()):
            raise ProgramError(f"{edit.label}: the builder should return what takes the place of the op's output, not {result!r}")
        del block.ops[position + len(new_ops)]
        end = position + len(new_ops)
        _check_unread(edit, target, {name for name in target.output_arg_names if name not in new})
        for name, var in new.items():
            made_here = var.block is block and any(var.name in new_op.output_arg_names for new_op in new_ops)
            if made_here and not var.persistable and [v.name for v in new.values()].count(var.name) == 1:
                for new_op in new_ops:
                    redirect(new_op, {var.name: name})
                block.vars.pop(var.name, None)
            else:
                block.insert_op(end, "assign", inputs={"X": var}, outputs={"Out": name}, frames=target.frames)
                end += 1
            old = block.var(name)
            if not agree(old.shape, var.shape) and (isinstance(old, Parameter) or old.is_data):
                raise InferenceError(f"{edit.label}: {name} is {old.describe()}, its replacement is {var.describe()}")
            old._shape, old._dtype = var._shape, var._dtype
        _drop_unused(program, set(target.output_arg_names))
        infer_downstream(program, [block.var(name) for name in new], edit.label)
    return edit.report


def _check_unread(edit: Edit, op: Operator, names: set[str]) -> None:
    for block in edit.program.blocks:
        for reader in block.ops:
            for name in reader.input_arg_names:
                if name in names and not _is_persistent(op, name):
                    slot = next(slot for slot, outputs in op.outputs.items() if name in outputs)
                    raise ProgramError(
                        f"{edit.label}: nothing takes the place of its output {slot} ({name}), which is read by another op: "
                        f"return a dict of slot -> Variable that has {slot!r}\n{locate(reader)}"
                    )


def _drop_unused(program: Program, names: Iterable[str]) -> None:
    """Remove the given variables that no op uses."""
    used = {name for block in program.blocks for op in block.ops for name in (*op.input_arg_names, *op.output_arg_names)}
    for block in program.blocks:
        for name in names:
            if name not in used:
                block.vars.pop(name, None)


@checked
def insert(program: Program, builder: Builder, *, before: OpLike | None = None, after: OpLike | None = None) -> EditReport:
    """Insert the ops that `builder` appends before or after an op; see `Program.insert`."""
    place = before if before is not None else after
    if place is None or (before is not None and after is not None):
        raise ProgramError("insert: say before=op or after=op")
    target = find_op(program, place)
    block = target.block
    word = "before" if before is not None else "after"
    with Edit(program, f"insert {word} {target.type}") as edit:
        slots = target.inputs if before is not None else target.outputs
        definition = target.definition
        defined = None if definition is None else definition.inputs if before is not None else definition.outputs
        position = target.idx + (after is not None)
        new_ops, result = _build(edit, position, target, builder, _variables(target, slots, defined), target.role)
        new = _by_slot(edit, target, slots, result, "input" if before is not None else "output")
        if new:
            _refuse_backward(program, target, edit.label)
        if before is not None:
            redirect_reads(target, {name: var.name for name, var in new.items()})
            for output, spec in _inferred(target, edit.label):
                if not isinstance(output, Parameter) and not output.is_data:
                    output._shape, output._dtype = spec.shape, spec.dtype
            changed = [block.var(name) for name in target.output_arg_names] if new else []
        else:
            changed = list(new.values())
            for name, var in new.items():
                _read_instead(edit, block, position + len(new_ops), name, var)
        infer_downstream(program, changed, edit.label)
    return edit.report


def _read_instead(edit: Edit, block: Block, start: int, name: str, var: Variable) -> None:
    """Make the ops from number `start` on read `var` instead of `name`, until an op overwrites `name`."""

    def check(inner: Block) -> None:
        if name in inner.vars:
            return
        for op in inner.ops:
            if name in op.output_arg_names:
                raise ProgramError(
                    f"{edit.label}: {name!r} is overwritten in block {inner.idx}, so that {var.name!r} cannot take its place "
                    f"there\n{locate(op)}"
                )
            for sub in op.sub_blocks:
                check(sub)

    for op in block.ops[start:]:
        for sub in op.sub_blocks:
            check(sub)
        redirect_reads(op, {name: var.name})
        if name in op.output_arg_names:
            return
    if block.idx != 0 and name not in block.vars:
        raise ProgramError(f"{edit.label}: {name!r} lives outside block {block.idx}, where others may read it")


# ---------------------------------------------------------------------------------------------------------- fine-tuning
@checked
def make_trainable(program: Program, pattern: str | Iterable[str] | None = None, scope: Scope | None = None) -> EditReport:
    """Make the weights of a loaded program trainable parameters; see `Program.make_trainable`."""
    scope = global_scope() if scope is None else scope
    patterns = [pattern] if isinstance(pattern, str) else list(pattern or ())
    root = program.global_block()
    with Edit(program, f"make_trainable {_some(patterns)}".rstrip(), scope) as edit:
        _weights(program)  # refuses a program for training
        _dequantize(edit, scope)
        origins = _separate_merged(edit, root, scope)
        weights = _weights(program)
        parameters = [name for name in weights if isinstance(root.vars[name], Parameter)] or weights
        matching = [name for name in weights if origins.get(name, name) in patterns] if patterns else _trained(root, parameters)
        matching += [name for name in parameters if any(fnmatch.fnmatchcase(name, wanted) for wanted in patterns)]
        chosen = set(matching)
        for wanted in patterns:
            if not any(fnmatch.fnmatchcase(origins.get(name, name), wanted) for name in chosen):
                near = get_close_matches(wanted, weights, 3) or weights[:3]
                choice = f"there are {len(weights)}, such as {', '.join(near) or 'none'}"
                raise ProgramError(f"make_trainable: no weight is called {wanted!r}; {choice}")
        removed = [op for op in root.ops if op.type in _TRAFFIC]
        fed = {name for op in removed if op.type == "feed" for name in op.output_arg_names}
        root.ops = [op for op in root.ops if op.type not in _TRAFFIC]
        _drop_unused(program, {name for op in removed for name in (*op.input_arg_names, *op.output_arg_names)} - fed)
        for name in weights:
            var = root.vars[name]
            if not isinstance(var, Parameter):
                if name not in parameters and name not in chosen:
                    var._stop_gradient = True  # a buffer
                    continue
                var = root.vars[name] = _as_parameter(var)
            var.trainable = name in chosen
            var._stop_gradient = name not in chosen
        for name in fed:
            if name in root.vars:
                root.vars[name].is_data = True
                root.vars[name]._stop_gradient = True
        frozen = set(weights) - chosen
        for block in program.blocks:
            for op in block.ops:
                _to_training(op, frozen, edit)
        _let_gradients_through(program, chosen)
    return edit.report


def _dequantize(edit: Edit, scope: Scope) -> None:
    """Replace weights of integers, whose ops have no gradient, by weights of floats."""
    values, replaced, notes = dequantize_weights(edit.program, scope)
    _drop_unused(edit.program, replaced)
    edit.values |= values
    edit.notes += notes


def _separate_merged(edit: Edit, root: Block, scope: Scope) -> dict[str, str]:
    """Give each parameter that an exporter merged with others a variable of its own; return the old names by the new ones."""
    origins: dict[str, str] = {}
    for old, groups in merged_uses(root).items():
        var = root.vars[old]
        if isinstance(var, Parameter) and not (var.wire is not None and var.wire.guessed_parameter):
            continue  # whoever made the parameter uses it several times
        text = f"{old} is {len(groups)} parameters of equal values that the exporter merged"
        value = scope.array(old)
        if value is None:
            if any(use.slot in STATISTICS for group in groups for use in group):
                raise ProgramError(
                    f"make_trainable: {text}, statistics of batch_norm among them, and has no value in the scope; load the "
                    f"values first, or say where they are: make_trainable(scope=model.scope)\n{locate(groups[0][0].op)}"
                )
            edit.notes.append(f"{text}; they train as one, since it has no value in the scope")
            continue
        for group in groups[1:]:
            name = edit.program.fresh_name(old)
            while scope.find_var(name) is not None or name in origins:
                name = edit.program.fresh_name(name + "_")
            part = root.vars[name] = copy.copy(var)
            part.name = name
            origins[name] = old
            edit.values[name] = np.array(value)
            for use in group:
                read_from(use, old, name)
        edit.notes.append(f"{text}; each has a variable of its own now")
    return origins


def _weights(program: Program) -> list[str]:
    """Names of persistable floating-point variables of block 0 that are read but never written, except statistics."""
    read: dict[str, None] = {}
    not_weights: set[str] = set()
    for block in program.blocks:
        for op in block.ops:
            not_weights.update(op.output_arg_names)
            not_weights.update(_statistics(op))
            if not op.role & OpRole.OPTIMIZE:
                read.update(dict.fromkeys(op.input_arg_names))
            if op.role & (OpRole.BACKWARD | OpRole.OPTIMIZE):
                raise ProgramError(f"make_trainable: the program is one for training already: it has {op}")
    root = program.global_block()

    return [name for name in read if name in root.vars and name not in not_weights and is_weight(root.vars[name])]


def _trained(root: Block, parameters: Iterable[str]) -> list[str]:
    """The parameters that were trained, as far as the model's files say which; otherwise all."""
    trained = [name for name in parameters if getattr(root.vars[name], "trainable", True)]
    return trained or list(parameters)


def _as_parameter(var: Variable) -> Parameter:
    parameter = Parameter(var.block, var.shape, var.dtype, name=var.name, lod_level=var.lod_level)
    parameter.wire = var.wire
    return parameter


def _to_training(op: Operator, frozen: set[str], edit: Edit) -> None:
    definition = op.definition
    if definition is None:
        return
    affine = [name for slot in ("Scale", "Bias") for name in op.inputs.get(slot, ())]
    stays = op.type.endswith("batch_norm") and bool(affine) and all(name in frozen for name in affine)
    if op.has_attr("is_test") and op.attr("is_test"):
        op.attrs["is_test"] = False
    if op.has_attr("use_global_stats") and bool(op.attr("use_global_stats")) is not stays:
        op.attrs["use_global_stats"] = stays
    if stays:
        edit.notes.append(f"{op.type} of {affine[0]} keeps its statistics, since its weights are not trained")
    for slot, described in definition.outputs.items():
        source = op.inputs.get(slot.removesuffix("Out"), [])
        if slot.endswith("Out") and slot != "Out" and source and not op.outputs.get(slot) and not described.optional:
            op.outputs[slot] = list(source)  # running statistics are updated in place
        elif op.type.endswith("batch_norm") and slot.removesuffix("Out") in STATISTICS and op.outputs[slot] != source:
            _update_in_place(op, slot, source[0])
        elif described.intermediate and not op.outputs.get(slot):
            _add_intermediate(op, slot)


def _update_in_place(op: Operator, slot: str, statistic: str) -> None:
    """Have a batch_norm update its running statistic, and copy it to the variable that the op wrote instead."""
    (copied,) = op.outputs[slot]
    op.outputs[slot] = [statistic]
    op.block._insert_op(op.block.ops.index(op) + 1, type="assign", inputs={"X": [statistic]}, outputs={"Out": [copied]})


def _add_intermediate(op: Operator, slot: str) -> None:
    """Give an op an output that files of inference models lack and that its gradient reads."""
    try:
        add_output(op, slot)
    except InferenceError as error:
        raise InferenceError(f"make_trainable does not fit the op {op.type}: {error}\n{locate(op)}") from None


def _let_gradients_through(program: Program, chosen: set[str]) -> None:
    """Clear stop_gradient of all values computed from the chosen weights; files of inference models may set it everywhere.

    Running statistics have no gradient, so theirs is set.
    """
    flows = set(chosen)
    for block in program.blocks:
        for op in block.ops:
            statistics = set(_statistics(op))
            for name in statistics | set(op.output_arg_names if flows & set(op.input_arg_names) else ()):
                var = block.find_var(name)
                if var is None:
                    continue
                if name in statistics:
                    var._stop_gradient = True
                elif not var.persistable and is_floating(var.dtype):
                    var._stop_gradient = False
                    flows.add(name)


def _statistics(op: Operator) -> list[str]:
    """Names of the running statistics of a batch_norm, before and after it."""
    if not op.type.endswith("batch_norm"):
        return []
    slots = [*STATISTICS, *(slot + "Out" for slot in STATISTICS)]
    return [name for slot in slots for name in (*op.inputs.get(slot, ()), *op.outputs.get(slot, ()))]

"""Explains why a gradient flows from a loss to a variable, or why not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..errors import NameNotFoundError, ProgramError, printable
from ..ir.dataflow import needed_ops
from ..ir.inference import gather_specs
from ..ir.program import Block, Operator, Program, Variable
from ..ir.regions import Region, is_gradient_op, region_of
from ..ir.verify import refuse_deep
from ..ir.versions import BlockVersions, Value, outer_names
from ..opdef.inference import SpecNamespace
from ..opdef.registry import EMPTY, NOT_DIFFERENTIABLE, REGION, ZERO_GRADIENT, OpDef, Rule, grad_slot
from ..values.types import VarType, is_floating

_MOST_STEPS = 12

Reached = dict[Value, tuple[Value | None, int]]
"""Values through which a gradient flows to the variable; for each, the previous value on the path and the op between them."""


def explain_gradient(program: Program, loss: Variable | str, var: Variable | str) -> str:
    """Text that lists the ops along which a gradient flows from `loss` to `var`, or names the op or flag that cuts it.

    The program is not changed.
    """
    refuse_deep(program)
    block = program.global_block()
    names = []
    for role, item in (("loss", loss), ("variable", var)):
        name = item.name if isinstance(item, Variable) else item
        if block.find_var(name) is None:
            sub_block = next((home.idx for home in program.blocks if name in home.vars), None)
            hint = f"; it lives in sub-block {sub_block}, and only what is visible in block 0 has gradients" if sub_block else ""
            raise ProgramError(f"the {role} {name!r} is not a variable of this program's block 0{hint}")
        names.append(name)
    return "\n".join(map(printable, _Explanation(block, *names).lines()))


class _Explanation:
    def __init__(self, block: Block, loss: str, var: str) -> None:
        self.block, self.loss, self.var = block, loss, var
        self.versions = BlockVersions(block)
        self.target = self.versions.current(loss)
        self.needed = {self.target}
        needed_ops(self.versions, self.needed)
        self.cuts: dict[str, None] = {}

    def lines(self) -> list[str]:
        starts = [(self.var, v) for v in range(self.versions.last.get(self.var, 0) + 1) if (self.var, v) in self.needed]
        if not starts:
            return [self._unreachable()]
        start = starts[0]
        flag = _flag(self.block, self.var)
        if flag is not None:
            return [f"No gradient of {self.loss} reaches {self.var}: {flag}."]
        if start == self.target:
            return [f"{self.var} is the target itself: its gradient is 1."]
        reached = self._flow(self.versions, {start}, self.needed)
        if self.target in reached:
            return self._path(start, reached)
        lines = [f"No gradient of {self.loss} reaches {self.var}, although {self.loss} depends on it:"]
        return lines + ([f"  - {cut}" for cut in self.cuts] or ["  - nothing differentiable leads from one to the other"])

    def _unreachable(self) -> str:
        names_read = {op: {name for sub in op.sub_blocks for name in outer_names(sub)[0]} for op in self.block.ops}
        readers = [op for op, names in names_read.items() if self.var in op.input_arg_names or self.var in names]
        text = f"{self.loss} does not depend on {self.var}: "
        if not readers:
            return text + f"no op reads {self.var}."
        names = ", ".join(dict.fromkeys(_name(op) for op in readers[:3]))
        return text + f"it is read by {names}, whose results do not lead to {self.loss}."

    def _flow(self, versions: BlockVersions, starts: Iterable[Value], needed: set[Value]) -> Reached:
        """The values of `needed` through which a gradient flows to `starts`; adds what cuts it to `cuts`."""
        reached: Reached = dict.fromkeys(starts, (None, -1))
        for index, op in enumerate(versions.ops):
            sources = [(slot, value) for slot, _, value in versions.read_at(index) if value in reached]
            outputs = [value for _, _, value in versions.written_at(index) if value in needed]
            if not sources or not outputs:
                continue
            definition = op.definition
            rule = definition.rule if definition is not None else None
            if definition is not None and (rule is ZERO_GRADIENT or rule is NOT_DIFFERENTIABLE):
                zero = "its outputs do not change smoothly with its inputs"
                self.cuts[f"{_name(op)} cuts it: {zero if rule is ZERO_GRADIENT else 'it is not differentiable'}"] = None
                continue
            if rule is None and (definition is None or definition.forward is None):
                self.cuts[f"{_name(op)} cuts it: the op has no gradient rule"] = None
                continue
            differentiable = sources
            region = region_of(op) if rule is REGION and not is_gradient_op(op) else None
            if region is not None:
                names = self._through(region, sources, outputs)
                outputs = [value for value in outputs if value[0] in names]
            elif isinstance(rule, Rule):
                differentiable = [(slot, value) for slot, value in sources if slot in rule.wrt]
                if not differentiable:
                    slots = ", ".join(dict.fromkeys(slot for slot, _ in sources))
                    self.cuts[f"{_name(op)} has no gradient for its input {slots}"] = None
                    continue
                zeros = _zeros_of(op, rule.definition)
                differentiable = [(slot, value) for slot, value in differentiable if slot not in zeros]
                if not differentiable:
                    self.cuts[f"{_name(op)} cuts it: its gradient is zero everywhere"] = None
                    continue
            for value in outputs:
                flag = _flag(versions.block, value[0])
                if flag is None:
                    reached.setdefault(value, (differentiable[0][1], index))
                elif rule is not REGION:
                    self.cuts[f"after {_name(op)}: {flag}"] = None
        return reached

    def _through(self, region: Region, sources: Iterable[tuple[str, Value]], outputs: Iterable[Value]) -> set[str]:
        """Names of the outputs whose gradient flows through an op's block to `sources`."""
        inner = BlockVersions(region.body)
        last = {value[0]: inner.current(region.leaving.get(value[0], value[0])) for value in outputs}
        names = {value[0] for _, value in sources}
        needed = set(last.values())
        needed_ops(inner, needed, carried=region.carried)
        starts = {(inner_name, 0) for name in names for inner_name in region.entering(name)}
        while True:
            reached = self._flow(inner, starts, needed)
            more = {(before, 0) for before, after in region.carried.items() if inner.current(after) in reached} - starts
            if not more:
                break
            starts |= more
        through = {name for name, value in last.items() if value in reached}
        return through | (names & last.keys() if region.may_skip else set())

    def _path(self, start: Value, reached: Reached) -> list[str]:
        steps = []
        value: Value | None = self.target
        while value is not None and value != start:
            before, index = reached[value]
            steps.append(f"  {value[0]}  <-  {_name(self.versions.ops[index])}  <-  {before[0] if before else '?'}")
            value = before
        if len(steps) > _MOST_STEPS:
            half = _MOST_STEPS // 2
            steps = [*steps[:half], f"  ... {len(steps) - _MOST_STEPS} more ops ...", *steps[-half:]]
        return [f"The gradient of {self.loss} reaches {self.var} along:", *steps]


class _Zeros(SpecNamespace):
    """Ops over specs, each result an object of its own. It remembers which results consist of zeros alone."""

    def __init__(self) -> None:
        self._zeros: list[Any] = []

    def apply(self, definition: OpDef, inputs: Mapping[str, Any], attrs: Mapping[str, Any]) -> dict[str, Any]:
        outputs = {
            slot: [replace(spec) for spec in value] if isinstance(value, list) else replace(value)
            for slot, value in super().apply(definition, inputs, attrs).items()
        }
        if definition.type == "fill_zeros_like":
            self._zeros.append(outputs["Out"])
        return outputs

    def includes(self, result: Any) -> bool:
        return any(result is zeros for zeros in self._zeros)


def zero_gradients(
    definition: OpDef, inputs: Mapping[str, Any], outputs: Mapping[str, Any], attrs: Mapping[str, Any]
) -> set[str]:
    """The input slots of an op for which its gradient rule gives zeros, whatever the values are.

    Args:
        definition: of the op.
        inputs, outputs: slot -> spec, or a list of them.
        attrs: name -> value.
    """
    namespace, rule = _Zeros(), definition.rule
    values = {**inputs, **outputs, **{grad_slot(slot): value for slot, value in outputs.items()}}
    if not isinstance(rule, Rule):
        return set()
    try:
        gradients = rule(namespace, values, definition.defaults(attrs), set(rule.wrt))
    except Exception:  # specs may say too little, or a file too much: such an op counts as differentiable
        return set()
    return {slot for slot, gradient in gradients.items() if namespace.includes(gradient)}


def _zeros_of(op: Operator, definition: OpDef) -> set[str]:
    """`zero_gradients` of an op; none of one whose variables are not all declared, as in a file."""
    try:
        inputs = gather_specs(op)
        specs = {slot: [op.block.var(name).spec for name in names if name != EMPTY] for slot, names in op.outputs.items()}
    except NameNotFoundError:
        return set()
    outputs = {slot: result if slot in definition.many else result[0] for slot, result in specs.items() if result}
    return zero_gradients(definition, inputs, outputs, op.attrs)


def _flag(block: Block, name: str) -> str | None:
    """Why no gradient flows through variables of this name, or None."""
    var = block.find_var(name)
    if var is None:
        return f"{name} is not declared"
    if var.has_dtype and not is_floating(var.dtype):
        return f"{name} is {var.describe()}, and only floating-point values have gradients"
    if var.type not in (VarType.LOD_TENSOR, VarType.LOD_TENSOR_ARRAY, VarType.SELECTED_ROWS):
        return f"{name} is not a tensor"
    if var.stop_gradient:
        return f"{name} has stop_gradient set"
    return None


def _name(op: Operator) -> str:
    frame = op.user_frame
    return f"{op.type} ({frame[0]}:{frame[1]})" if frame is not None else op.type

"""Why a gradient flows, or does not."""

from __future__ import annotations

from .errors import ProgramError
from .framework import Block, Operator, Program, Variable
from .ops.registry import NOT_DIFFERENTIABLE, REGION, ZERO_GRADIENT, Rule
from .types import VarType, is_floating
from .versions import BlockVersions, Value, outer_names

__all__ = ["explain_gradient"]

_SHOWN = 12


def explain_gradient(program: Program, loss: Variable | str, var: Variable | str) -> str:
    """In words: along which ops a gradient flows from `loss` to `var`, or which op or flag cuts it.

    Nothing is added to the program.
    """
    block = program.global_block()
    names = []
    for what, item in (("loss", loss), ("variable", var)):
        name = item.name if isinstance(item, Variable) else item
        if block.find_var(name) is None:
            raise ProgramError(f"the {what} {name!r} is no variable of this program's block 0")
        names.append(name)
    return _Explanation(block, *names).text()


class _Explanation:
    def __init__(self, block: Block, loss: str, var: str) -> None:
        self.block, self.loss, self.var = block, loss, var
        self.versions = BlockVersions(block)
        self.target = self.versions.current(loss)
        # What the loss depends on at all, and by which op each value goes on towards it.
        self.next_op: dict[Value, int] = {}
        needed = {self.target}
        for index in range(self.versions.writer.get(self.target, -1), -1, -1):
            if any(value in needed for _, _, value in self.versions.written_at(index)):
                for _, _, value in self.versions.read_at(index):
                    self.next_op[value] = index
                    needed.add(value)
        self.needed = needed

    def text(self) -> str:
        starts = [(self.var, v) for v in range(self.versions.last.get(self.var, 0) + 1) if (self.var, v) in self.needed]
        if not starts:
            return self._unreachable()
        start = starts[0]
        flag = self._flag(self.var)
        if flag is not None:
            return f"No gradient of {self.loss} reaches {self.var}: {flag}."
        if start == self.target:
            return f"{self.var} is the target itself: its gradient is 1."
        reached, cuts = self._flow(start)
        if self.target in reached:
            return self._path(start, reached)
        lines = [f"No gradient of {self.loss} reaches {self.var}, although {self.loss} depends on it:"]
        lines += [f"  - {cut}" for cut in cuts] or ["  - nothing differentiable leads from one to the other"]
        return "\n".join(lines)

    def _unreachable(self) -> str:
        readers = [op for op in self.block.ops if self.var in op.input_arg_names or self._inside(op)]
        text = f"{self.loss} does not depend on {self.var}: "
        if not readers:
            return text + f"no op reads {self.var}."
        kinds = ", ".join(dict.fromkeys(_name(op) for op in readers[:3]))
        return text + f"what {kinds} make(s) of it does not lead to {self.loss}."

    def _inside(self, op: Operator) -> bool:
        return any(self.var in outer_names(sub)[0] for sub in op.sub_blocks)

    def _flag(self, name: str) -> str | None:
        """Why no gradient flows through variables of this name, or None."""
        var = self.block.find_var(name)
        if var is None:
            return f"{name} is not declared"
        if var.has_dtype and not is_floating(var.dtype):
            return f"{name} is {var.describe()}, and only floating-point values have gradients"
        if var.type not in (VarType.LOD_TENSOR, VarType.LOD_TENSOR_ARRAY, VarType.SELECTED_ROWS):
            return f"{name} is no tensor"
        if var.stop_gradient:
            return f"{name} has stop_gradient set"
        return None

    def _flow(self, start: Value) -> tuple[dict[Value, tuple[Value | None, int]], list[str]]:
        """Values that a gradient connects with `start`, each with the value and op before it; and what cut others off."""
        reached: dict[Value, tuple[Value | None, int]] = {start: (None, -1)}
        cuts: dict[str, None] = {}
        for index, op in enumerate(self.versions.ops):
            sources = [(slot, value) for slot, _, value in self.versions.read_at(index) if value in reached]
            written = [value for _, _, value in self.versions.written_at(index) if value in self.needed]
            if not sources or not written:
                continue
            definition = op.definition
            rule = definition.rule if definition is not None else None
            if definition is not None and (rule is ZERO_GRADIENT or (rule is NOT_DIFFERENTIABLE)):
                why = "its outputs do not change smoothly with its inputs" if rule is ZERO_GRADIENT else "it is not differentiable"
                cuts[f"{_name(op)} cuts it: {why}"] = None
                continue
            if rule is None and (definition is None or definition.forward is None):
                cuts[f"{_name(op)} cuts it: the op has no gradient rule"] = None
                continue
            if isinstance(rule, Rule):
                taken = [value for slot, value in sources if slot in rule.wrt]
                if not taken:
                    slots = ", ".join(dict.fromkeys(slot for slot, _ in sources))
                    cuts[f"{_name(op)} has no gradient for its input {slots}"] = None
                    continue
            else:
                taken = [value for _, value in sources]
            for value in written:
                flag = self._flag(value[0])
                if flag is not None and rule is not REGION:
                    cuts[f"after {_name(op)}: {flag}"] = None
                elif flag is None:
                    reached.setdefault(value, (taken[0], index))
        return reached, list(cuts)

    def _path(self, start: Value, reached: dict[Value, tuple[Value | None, int]]) -> str:
        steps = []
        value: Value | None = self.target
        while value is not None and value != start:
            before, index = reached[value]
            steps.append(f"  {value[0]}  <-  {_name(self.versions.ops[index])}  <-  {before[0] if before else '?'}")
            value = before
        if len(steps) > _SHOWN:
            half = _SHOWN // 2
            steps = [*steps[:half], f"  ... {len(steps) - _SHOWN} more ops ...", *steps[-half:]]
        return "\n".join([f"The gradient of {self.loss} reaches {self.var} along:", *steps])


def _name(op: Operator) -> str:
    frame = op.user_frame
    return f"{op.type} ({frame[0]}:{frame[1]})" if frame is not None else op.type

"""Programs as text: complete, to be compared and parsed back (`fluid.formats.text`), or cut to fit a screen."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ..values.types import VarType
from .attr_kinds import BlockValue, fits
from .paddle_attrs import is_paddle_default
from .roles import COMMON_ATTRS, ROLE_NAMES, OpRole

if TYPE_CHECKING:
    from .program import Block, Operator, Program, Variable


NOISE = frozenset(COMMON_ATTRS)
"""Attributes that do not affect what an op computes."""
_BACKENDS = frozenset({
    "enable_cache_runtime_context", "exhaustive_search", "fuse_relu_before_depthwise_conv", "is_use_gpu", "mkldnn_data_type",
    "use_addto", "use_cudnn", "use_mkldnn", "use_onednn", "use_quantizer", "workspace_size_MB",
})  # fmt: skip
"""Attributes that choose between kernels of Paddle's, and mean nothing here."""
_PLAIN = re.compile(r"[A-Za-z0-9_.@/-]+")
_DEEPEST_INDENT = 20
_SCREEN_LINES = 80
_SCREEN_COLUMNS = 160


@dataclass(frozen=True)
class _Style:
    """The limits of a printout: none, or as much as fits a screen. A limit of 0 is none."""

    complete: bool = True
    items: int = 0
    """Most names or numbers in a list."""
    ops: int = 0
    """Most ops of a section of a block."""
    vars: int = 0
    """Most variables at the head of a block."""
    columns: int = 0
    """Longest line."""


_COMPLETE = _Style()
_SHORT = _Style(complete=False, items=8)


def _quoted(text: str) -> str:
    """Quote a string as JSON does; escape characters that are invisible or turn the direction of text."""
    quoted = json.dumps(text, ensure_ascii=False)
    if quoted.isprintable():
        return quoted
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in quoted)


def _name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else _quoted(name)


def _listed(items: Sequence[Any], style: _Style, show: Any) -> str:
    if style.items and len(items) > style.items + 1:
        return f"[{', '.join(map(show, items[: style.items]))}, ... {len(items) - style.items} more]"
    return f"[{', '.join(map(show, items))}]"


def _value(value: Any, style: _Style) -> str:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, bool):
        return repr(value)
    if isinstance(value, int):
        return repr(int(value))
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, str):
        if style.items and len(value) > 60:
            value = value[:57] + "..."
        return _quoted(value)
    if isinstance(value, BlockValue):
        return f"block {value.idx}"
    if isinstance(value, (list, tuple)):
        return _listed(value, style, lambda item: _value(item, style))
    return f"<{type(value).__name__}>"


def _attrs(op: Operator, style: _Style, in_section: bool) -> str:
    definition = op.definition
    kinds = op.wire.kinds if style.complete and op.wire is not None else {}
    texts = []
    for name, value in op.attrs.items():
        if not style.complete:
            attr = definition.attrs.get(name) if definition is not None else None
            if name in NOISE or name in _BACKENDS or (attr is not None and not attr.required and attr.default == value):
                continue
            if is_paddle_default(op.type, name, value):
                continue
        elif in_section and name == OpRole.NAME and _section(op):
            continue
        mark = f": {kinds[name]}" if name in kinds and fits(kinds[name], value) else ""
        texts.append(f"{_name(name)}{mark}={_value(value, style)}")
    return f" {{{', '.join(texts)}}}" if texts else ""


def _slot(names: list[str], style: _Style, show: Any) -> str:
    return show(names[0]) if len(names) == 1 else _listed(names, style, show)


def _slots(slots: dict[str, list[str]], style: _Style, show: Any) -> list[str]:
    return [f"{_name(slot)}={_slot(names, style, show)}" for slot, names in slots.items() if names or style.complete]


def _type(var: Variable) -> str:
    spec = f"{var.dtype.text if var.has_dtype else '?'}{list(var.shape) if var.has_shape else '?'}"
    if var.type is VarType.LOD_TENSOR:
        return spec
    return var.type.name.lower() + (f" {spec}" if var.has_dtype or var.has_shape else "")


def _flags(var: Variable, style: _Style) -> str:
    parameter = var.is_parameter
    flags = {
        f"lod_level={var.lod_level}": var.lod_level,
        "persistable" if var.persistable else "not_persistable": var.persistable is not parameter,
        "data": parameter and var.is_data,
        "not_trainable": not getattr(var, "trainable", True),
        "stop_gradient": var.stop_gradient and (style.complete or not var.is_data),  # data usually stops gradients
        "need_check_feed": var.need_check_feed and style.complete,
    }
    return "".join(f" {flag}" for flag, is_set in flags.items() if is_set)


def _declaration(var: Variable, style: _Style) -> str:
    return f"{_name(var.name)}: {_type(var)}{_flags(var, style)}"


def _op_line(op: Operator, style: _Style, show_output: Any, in_section: bool) -> str:
    outputs = op.outputs if style.complete else {slot: names for slot, names in op.outputs.items() if names}
    reads = _slots(op.inputs, style, _name)
    call = f"{_name(op.type)}({', '.join(reads)}){_attrs(op, style, in_section)}"
    if list(outputs) == ["Out"]:
        return f"{_slot(outputs['Out'], style, show_output)} = {call}"
    if not outputs:
        return call
    writes = _slots(outputs, style, show_output)
    line = f"({', '.join(writes)}) = {call}"
    if style.columns and len(line) > style.columns:  # the op's type and first slots say more than a long list of outputs
        line = f"({_first(writes, 1)}) = {_name(op.type)}({_first(reads, 4)}){_attrs(op, style, in_section)}"
    return line


def _first(items: Sequence[str], count: int) -> str:
    return ", ".join([*items[:count], f"... {len(items) - count} more"] if len(items) > count + 1 else items)


def op_to_string(op: Operator) -> str:
    """An op as one line: its outputs (with types), its type, its inputs, and the attributes that are not at their defaults.

    >>> y = layers.relu(fluid.data("x", [None, 2]))
    >>> fluid.text.op_to_string(y.op)
    'relu_0.tmp_0: float32[-1, 2] = relu(X=x)'
    """

    def show(name: str) -> str:
        var = op.block.find_var(name)
        return _name(name) if var is None else f"{_name(name)}: {_type(var)}"

    return _op_line(op, _SHORT, show, False)


def _section(op: Operator) -> int:
    role = op.attrs.get(OpRole.NAME)
    return role if type(role) is int and role > 0 else 0


def _section_line(role: int) -> str:
    names = [name for bit, name in ROLE_NAMES.items() if role & bit]
    unnamed = role & ~sum(ROLE_NAMES)
    return f"-- {'|'.join(names + ([str(unnamed)] if unnamed else [])) or 'forward'} --"


def _runs(ops: Iterable[Operator], style: _Style) -> Iterator[tuple[int, list[Operator]]]:
    """Runs of neighbouring ops with the same role; on a screen, the loss and its gradient are not runs of their own."""
    run: list[Operator] = []
    role = 0
    for op in ops:
        section = _section(op) if style.complete else _section(op) & ~OpRole.LOSS
        if section != role:
            if run:
                yield role, run
            role, run = section, []
        run.append(op)
    if run:
        yield role, run


_Item: TypeAlias = "str | Block"


def _block_items(block: Block, around: Block | None, depth: int, style: _Style) -> Iterator[_Item]:
    """The lines of a block, with each sub-block itself at the place where it is to be printed."""
    indent = "  " * min(depth, _DEEPEST_INDENT)
    where = []
    if block.parent is not around:
        where.append(f"parent {block.parent_idx}")
    if block.forward is not None:
        where.append(f"forward {block.forward_block_idx}")
    links = f" ({', '.join(where)})" if where else ""
    yield f"{indent}block {block.idx}{links} {{"
    indent = "  " * min(depth + 1, _DEEPEST_INDENT)

    assigned = {name for op in block.ops for names in op.outputs.values() for name in names}
    inner = {
        name for name, var in block.vars.items() if name in assigned and not (var.is_parameter or var.is_data or var.persistable)
    }
    heads = [var for name, var in block.vars.items() if name not in inner]
    shown = heads[: style.vars] if style.vars and len(heads) > style.vars + 1 else heads
    for var in shown:
        word = "param" if var.is_parameter else "data" if var.is_data else "var"
        yield f"{indent}{word} {_declaration(var, style)}"
    if len(shown) < len(heads):
        yield f"{indent}... {len(heads) - len(shown)} more variables"

    def show(name: str) -> str:
        if name in inner:
            inner.discard(name)
            return _declaration(block.vars[name], style)
        return _name(name)

    last = 0
    for role, run in _runs(block.ops, style):
        if role != last:
            yield indent + _section_line(role)
            last = role
        shown_ops = run[: style.ops] if style.ops and len(run) > style.ops + 1 else run
        for op in shown_ops:
            yield indent + _op_line(op, style, show, True)
            yield from op.sub_blocks
        if len(shown_ops) < len(run):
            yield f"{indent}... {len(run) - len(shown_ops)} more ops"
    yield "  " * min(depth, _DEEPEST_INDENT) + "}"


def _lines(block: Block, style: _Style, printed: set[int]) -> Iterator[str]:
    """The lines of a block and of the blocks under it; not recursive, since files may nest blocks deeply."""
    printed.add(id(block))
    stack = [(block, _block_items(block, None, 0, style))]
    while stack:
        outer, items = stack[-1]
        for item in items:
            if isinstance(item, str):
                yield item
            elif id(item) not in printed:
                printed.add(id(item))
                # Each level indents the head of a block and its lines.
                stack.append((item, _block_items(item, outer, 2 * len(stack), style)))
                break
        else:
            stack.pop()


def _header(program: Program, style: _Style) -> list[str]:
    entries = [f"random_seed={program.random_seed}"] if program.random_seed else []
    if program.wire and style.complete:
        version, of_ops = program.wire.version, program.wire.op_versions
        entries += [f"version={version}"] if version else []
        entries += [f"op_versions={_listed(of_ops, style, lambda pair: f'{_name(pair[0])}={pair[1]}')}"] if of_ops else []
    return entries


def _program_lines(program: Program, style: _Style) -> Iterator[str]:
    header = _header(program, style)
    if header:
        yield f"program {{{', '.join(header)}}}"
    printed: set[int] = set()
    for block in program.blocks:
        if id(block) not in printed:
            yield from _lines(block, style, printed)


def block_to_string(block: Block) -> str:
    """The complete text of a block and the blocks under it.

    >>> x = fluid.data("x", [None, 2])
    >>> print(fluid.text.block_to_string(x.block))
    block 0 {
      data x: float32[-1, 2] stop_gradient need_check_feed
    }
    """
    return "\n".join(_lines(block, _COMPLETE, set()))


def program_to_string(program: Program) -> str:
    """The complete text of a program, which `parse_program_text` turns back into an equal program.

    >>> y = layers.relu(fluid.data("x", [None, 2]))
    >>> text = fluid.text.program_to_string(fluid.default_main_program())
    >>> fluid.text.program_to_string(fluid.text.parse_program_text(text)) == text
    True
    """
    return "\n".join(_program_lines(program, _COMPLETE)) + "\n"


def program_to_screen(program: Program) -> str:
    """The text of a program, shortened to fit a screen: without default attributes, with long lists, lines and blocks cut.

    >>> x = fluid.data("x", [None, 2])
    >>> print(fluid.text.program_to_screen(fluid.default_main_program()))
    block 0 {
      data x: float32[-1, 2]
    }
    """
    lines: list[str] = []
    for most in (_SCREEN_LINES, 40, 24, 16, 10, 6, 4, 2):
        lines = []
        style = _Style(complete=False, items=8, ops=most, vars=max(2, most // 2), columns=_SCREEN_COLUMNS)
        for line in _program_lines(program, style):
            lines.append(line if len(line) <= _SCREEN_COLUMNS else line[: _SCREEN_COLUMNS - 4] + " ...")
            if len(lines) > _SCREEN_LINES and most > 2:
                break
        else:
            break
    if len(lines) > _SCREEN_LINES + 1:
        lines[_SCREEN_LINES:] = [f"... {len(lines) - _SCREEN_LINES} more lines"]
    return "\n".join(lines)

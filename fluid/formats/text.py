"""Programs as text, to read and to compare line by line; the complete form can be parsed back.

::

    block 0 {
      param fc_0.w_0: float32[13, 1]
      data x: float32[-1, 13] stop_gradient
      fc_0.tmp_0: float32[-1, 1] = mul(X=x, Y=fc_0.w_0) {x_num_col_dims=1}
      while(X=[i], Condition=less) {sub_block=block 1}
        block 1 {
          i = increment(X=i) {step=1.0}
        }
      -- backward --
      (X@GRAD=x@GRAD: float32[-1, 13]) = mul_grad(X=x, Y=fc_0.w_0, Out@GRAD=fc_0.tmp_0@GRAD)
    }

A block first lists parameters, data, persistable variables and variables that none of its ops writes; every other variable is
declared where it is first written. Names before ``=`` without a slot are in the slot ``Out``. A line ``-- backward --``
sets the role of the ops after it; after ``-- forward --`` they have none. A sub-block is printed under the (first) op that owns
it; its parent is the block around it unless ``(parent 3)`` says otherwise, and ``(forward 2)`` names the block that it
differentiates. An attribute ``name: longs=[1]`` is stored in files as another kind than its definition, or its value, suggests.
Names with characters other than letters, digits and ``_.@/-`` are quoted as in JSON.

A line ``program {random_seed=7, version=2006002, op_versions=[adam=1, pad2d=1]}`` comes before the blocks if the program has any
of these: a seed, the version of Paddle that wrote it, the versions of its ops.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, NoReturn

from ..errors import FormatError, ProgramError
from ..ir.checked import checked
from ..ir.program import COMMON_ATTRS, Block, Operator, OpRole, Parameter, Program, Variable
from ..ir.verify import on_cycles, too_deep
from ..not_here import names_here
from ..values.types import VarType
from .room import Room

__all__ = ["NOISE", "block_to_string", "op_to_string", "parse_program_text", "program_to_screen", "program_to_string"]

__dir__ = names_here(__name__)

_ROLES = {
    OpRole.BACKWARD: "backward",
    OpRole.OPTIMIZE: "optimizer",
    OpRole.RPC: "rpc",
    OpRole.DIST: "dist",
    OpRole.LR_SCHED: "lr_sched",
    OpRole.LOSS: "loss",
}
_ROLE_BITS = {name: bit for bit, name in _ROLES.items()}
NOISE = frozenset(COMMON_ATTRS)
"""Attributes that do not affect what an op computes."""
_BACKENDS = frozenset({
    "enable_cache_runtime_context", "exhaustive_search", "fuse_relu_before_depthwise_conv", "is_use_gpu", "mkldnn_data_type",
    "use_addto", "use_cudnn", "use_mkldnn", "use_onednn", "use_quantizer", "workspace_size_MB",
})  # fmt: skip
"""Attributes that choose between kernels of Paddle's, and mean nothing here."""
_PLAIN = re.compile(r"[A-Za-z0-9_.@/-]+")
_DEEPEST_INDENT = 20
_MOST_LEVELS = 64
_SCREEN_LINES = 80
_SCREEN_COLUMNS = 160


# ---------------------------------------------------------------------------------------------------------- printing
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
    if isinstance(value, Block):
        return f"block {value.idx}"
    if isinstance(value, (list, tuple)):
        return _listed(value, style, lambda item: _value(item, style))
    return f"<{type(value).__name__}>"


def _fits(kind: str, value: Any) -> bool:
    from .program import fits

    return fits(kind, value)


def _attrs(op: Operator, style: _Style, in_section: bool) -> str:
    definition = op.definition
    kinds = op.wire.kinds if style.complete and op.wire is not None else {}
    texts = []
    for name, value in op.attrs.items():
        if not style.complete:
            attr = definition.attrs.get(name) if definition is not None else None
            if name in NOISE or name in _BACKENDS or (attr is not None and not attr.required and attr.default == value):
                continue
        elif in_section and name == OpRole.NAME and _section(op):
            continue
        mark = f": {kinds[name]}" if name in kinds and _fits(kinds[name], value) else ""
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
    parameter = isinstance(var, Parameter)
    flags = {
        f"lod_level={var.lod_level}": var.lod_level,
        "persistable" if var.persistable else "not_persistable": var.persistable is not parameter,
        "data": parameter and var.is_data,
        "not_trainable": isinstance(var, Parameter) and not var.trainable,
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


@checked
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
    names = [name for bit, name in _ROLES.items() if role & bit]
    unnamed = role & ~sum(_ROLES)
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


_Item = str | Block


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
        name
        for name, var in block.vars.items()
        if name in assigned and not (isinstance(var, Parameter) or var.is_data or var.persistable)
    }
    heads = [var for name, var in block.vars.items() if name not in inner]
    shown = heads[: style.vars] if style.vars and len(heads) > style.vars + 1 else heads
    for var in shown:
        word = "param" if isinstance(var, Parameter) else "data" if var.is_data else "var"
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
        from .program import versions_of

        version, of_ops = versions_of(program.wire)
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


@checked
def block_to_string(block: Block) -> str:
    """The complete text of a block and the blocks under it.

    >>> x = fluid.data("x", [None, 2])
    >>> print(fluid.text.block_to_string(x.block))
    block 0 {
      data x: float32[-1, 2] stop_gradient need_check_feed
    }
    """
    return "\n".join(_lines(block, _COMPLETE, set()))


@checked
def program_to_string(program: Program) -> str:
    """The complete text of a program, which `parse_program_text` turns back into an equal program.

    >>> y = layers.relu(fluid.data("x", [None, 2]))
    >>> text = fluid.text.program_to_string(fluid.default_main_program())
    >>> fluid.text.program_to_string(fluid.text.parse_program_text(text)) == text
    True
    """
    return "\n".join(_program_lines(program, _COMPLETE)) + "\n"


@checked
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


# ----------------------------------------------------------------------------------------------------------- parsing
_TOKEN = re.compile(r'[ \t\r]*(?:([A-Za-z0-9_.@/+-]+)|("(?:[^"\\]*")?)|([()\[\]{}=:,?|])|(\Z))')
_KINDS = ("", "word", "string", "", "end")
"""The kinds of tokens, by the groups of `_TOKEN`; a sign is a kind of its own."""
_DTYPES = {kind.text: kind for kind in VarType}
_VAR_KINDS = {kind.name.lower(): kind for kind in VarType}
_SPACE = re.compile(r"[ \t\r]*")
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_LONGEST = 64
_TOKENS_AT_ONCE = 64


class _Token(NamedTuple):
    kind: str
    """``word``, ``string``, ``end``, or the sign itself."""
    text: str
    column: int


_token = partial(tuple.__new__, _Token)
"""A `_Token` of its three parts, in half the time."""


class _Line:
    """The tokens of a line, read from left to right; only those around the present one are kept.

    `texts` are names that have been read: most are there many times, and share one string.
    """

    def __init__(self, text: str, number: int, texts: dict[str, str]) -> None:
        self.number = number
        self._text, self._texts = text, texts
        self._matches = self._matches_from(0)
        self._end = 0
        """The end of the last token that has been read."""
        self._tokens: list[_Token] = []
        """The token before the present one, the present one, and some after it."""
        self._at = 0
        self._read()
        self.first = self.token = self._tokens[0]

    def look(self, by: int) -> _Token:
        """The token `by` places after the present one; at the end of the line, the last."""
        tokens = self._tokens
        while self._at + by >= len(tokens):
            if tokens[-1].kind == "end":
                return tokens[-1]
            self._read()
        return tokens[self._at + by]

    def advance(self) -> _Token:
        """Goes on to the next token, if there is one; returns the present one."""
        token = self.token
        if token.kind != "end":
            self._at += 1
            if self._at == len(self._tokens):
                del self._tokens[:-1]
                self._at = 1
                self._read()
            self.token = self._tokens[self._at]
        return token

    def back(self) -> None:
        """Goes back to the token before the present one, once."""
        self._at -= 1
        self.token = self._tokens[self._at]

    def _matches_from(self, start: int) -> Iterator[re.Match[str]]:
        return iter(_TOKEN.scanner(self._text, start).match, None)  # type: ignore[attr-defined]

    def _read(self) -> None:
        """Read some tokens more, at least one, up to a string or the end of the line."""
        text, tokens, match = self._text, self._tokens, None
        for match in islice(self._matches, _TOKENS_AT_ONCE):
            number = match.lastindex or 0
            kind, word, start = _KINDS[number], match[number], match.start(number)
            if word == '"':  # the string has escapes, or is not closed
                end = _end_of_string(text, start)
                if end < 0:
                    raise self._no_token(start)
                tokens.append(_token((kind, text[start:end], start + 1)))
                self._end, self._matches = end, self._matches_from(end)
                return
            tokens.append(_token((kind or word, word, start + 1)))
            if kind == "end":
                break
        if match is None:
            raise self._no_token(_SPACE.match(text, self._end).end())  # type: ignore[union-attr]
        self._end = match.end()

    def _no_token(self, start: int) -> FormatError:
        text = f"{self._text[start]!r} starts no word, string or sign"
        return FormatError(f"line {self.number}, column {start + 1}: {text}")

    def ahead(self, kind: str, text: str | None = None, by: int = 0) -> bool:
        token = self.look(by) if by else self.token
        return token.kind == kind and (text is None or token.text == text)

    def fail(self, message: str, token: _Token | None = None) -> NoReturn:
        raise FormatError(f"line {self.number}, column {(token or self.token).column}: {message}")

    def unexpected(self, expected: str) -> NoReturn:
        text = self.token.text if len(self.token.text) <= _LONGEST else self.token.text[:_LONGEST] + "..."
        self.fail(f"expected {expected}, not {repr(text) if text else 'the end of the line'}")

    def take(self, kind: str, expected: str | None = None, text: str | None = None) -> str:
        token = self.token
        if token.kind != kind or (text is not None and token.text != text):
            self.unexpected(expected or repr(text or kind))
        return self.advance().text

    def one_of(self, words: Container[str], expected: str, examples: str) -> str:
        """The next word, which should be one of these; `expected` and `examples` say what if there is no word, or another."""
        word = self.take("word", expected)
        if word not in words:
            self.back()
            self.unexpected(examples)
        return word

    def accept(self, kind: str, text: str | None = None) -> bool:
        if self.ahead(kind, text):
            self.advance()
            return True
        return False

    def name(self, expected: str = "a name") -> str:
        token = self.token
        if token.kind == "word":
            text = self.advance().text
        elif token.kind == "string":
            text = self.string()
        else:
            self.unexpected(expected)
        return self._texts.setdefault(text, text)

    def string(self) -> str:
        try:
            text: str = json.loads(self.token.text)
        except ValueError as error:
            self.fail(f"not a string: {error}")
        self.advance()
        return text

    def integer(self, expected: str, bits: int = 0) -> int:
        if not (self.ahead("word") and _INTEGER.fullmatch(self.token.text)):
            self.unexpected(expected)
        token, number = self.token, int(self.take("word"))
        if bits and not -(1 << bits - 1) <= number < 1 << bits - 1:
            self.fail(f"{number} takes more than {bits} bits", token)
        return number

    def many(self, close: str, item: Any) -> list[Any]:
        """The items, separated by commas, up to `close`; the opening sign has been taken."""
        items: list[Any] = []
        while (kind := self.token.kind) != close:
            if items:
                if kind != ",":
                    self.unexpected(f"',' or {close!r}")
                self.advance()
            items.append(item())
        self.advance()
        return items


def _end_of_string(text: str, start: int) -> int:
    """The position after the quote that closes the string at `start`; -1 if none does."""
    end = start
    while (end := text.find('"', end + 1)) >= 0:
        escapes = end
        while text[escapes - 1] == "\\":
            escapes -= 1
        if (end - escapes) % 2 == 0:
            return end + 1
    return -1


def _lines_of(text: str) -> Iterator[str]:
    """The lines of a text, one by one: a list of short ones takes more than the text."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]


class _BlockRef:
    """Stands for a block until all blocks are parsed."""

    def __init__(self, index: int, line: _Line, token: _Token) -> None:
        self.index = index
        self.line = line
        self.token = token


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.room = Room(len(text))
        self.program = Program()
        self.program.allowed_ops = frozenset()
        self.blocks: dict[int, Block] = {}
        self.links: list[tuple[Block, str, _BlockRef]] = []
        self.refs: list[tuple[dict[str, Any], str]] = []
        self.open_blocks: list[Block] = []
        self.roles: list[int] = []
        self.facts: dict[str, Any] = {}

    def parse(self) -> Program:
        number, texts = 0, dict[str, str]()
        for number, content in enumerate(_lines_of(self.text), 1):
            if not content.strip(" \t\r"):
                continue
            line = _Line(content, number, texts)
            if not line.ahead("end"):
                self.line(line)
                if not line.ahead("end"):
                    line.unexpected("the end of the line")
        if self.open_blocks:
            raise FormatError(f"line {number}, column 1: block {self.open_blocks[-1].idx} is not closed by '}}'")
        if not self.blocks:
            raise FormatError(f"line {number}, column 1: there is no block 0")
        for index in range(len(self.blocks)):
            if index not in self.blocks:
                count = len(self.blocks)
                raise FormatError(f"line {number}, column 1: {count} blocks are given, but no block {index} among them")
        self.program.blocks = [self.blocks[index] for index in sorted(self.blocks)]
        for block, link, ref in self.links:
            setattr(block, link, self.resolve(ref))
        for attrs, name in self.refs:
            value = attrs[name]
            attrs[name] = [self.resolve(item) for item in value] if isinstance(value, list) else self.resolve(value)
        for block in on_cycles(self.program):
            raise FormatError(f"line {number}, column 1: block {block.idx} is its own ancestor, by way of its parent blocks")
        if reason := too_deep(self.program):
            raise FormatError(f"line {number}, column 1: {reason}")
        return self.program

    def resolve(self, item: Any) -> Any:
        if not isinstance(item, _BlockRef):
            return item
        if item.index not in self.blocks:
            item.line.fail(f"there is no block {item.index}", item.token)
        return self.blocks[item.index]

    # -- lines
    def line(self, line: _Line) -> None:
        first, after = line.token, line.look(1)
        if first.kind == "}":
            line.advance()
            if not self.open_blocks:
                line.fail("'}' closes no block", first)
            self.open_blocks.pop()
            self.roles.pop()
            return None
        if first.kind == "word":
            if not self.open_blocks and first.text == "program":
                return self.header(line)
            if first.text == "block" and after.kind == "word":
                return self.open_block(line)
        if not self.open_blocks:
            line.unexpected("a block, such as 'block 0 {'")
        # A declaration begins with two words; in an op's line, '(', ':', '=' or ',' follows the first name.
        if first.kind == "word" and after.kind in ("word", "string"):
            if first.text == "--" and after.kind == "word":
                return self.section(line)
            word = line.take("word")
            if word not in ("param", "data", "var"):
                line.fail(f"expected 'param', 'data' or 'var' before a variable, not {word!r}", first)
            return self.declaration(line, line.name(), word)
        return self.op(line)

    def header(self, line: _Line) -> None:
        line.take("word")
        line.take("{")
        line.many("}", lambda: self.fact(line))
        self.program._seed = self.facts.get("random_seed", 0)
        if self.facts.keys() & {"version", "op_versions"}:
            from .program import with_versions

            try:
                self.program.wire = with_versions(self.facts.get("version", 0), self.facts.get("op_versions", []))
            except ProgramError as error:
                line.fail(str(error), line.first)

    def fact(self, line: _Line) -> None:
        """An entry of the header, such as ``version=2006002``."""
        facts, token = self.facts, line.token
        word = line.take("word", "random_seed, version or op_versions")
        if word not in ("random_seed", "version", "op_versions") or word in facts:
            line.fail(
                f"{word} is given twice" if word in facts else f"{word!r} is not random_seed, version or op_versions", token
            )
        line.take("=")
        if word == "op_versions":
            line.take("[")
            facts[word] = line.many("]", lambda: self.op_version(line))
        else:
            facts[word] = line.integer("an integer", 64)

    def op_version(self, line: _Line) -> tuple[str, int]:
        name = line.name("the type of an op")
        line.take("=")
        return name, line.integer("a version", 32)

    def open_block(self, line: _Line) -> None:
        line.take("word")
        token = line.token
        index = line.integer("the number of the block")
        if index < 0 or index in self.blocks:
            line.fail(f"block {index} is given twice" if index in self.blocks else "blocks are numbered from 0", token)
        around = self.open_blocks[-1] if self.open_blocks else None
        block = Block(self.program, index, around)
        self.blocks[index] = block
        self.room.block()
        if line.accept("("):
            line.many(")", lambda: self.link(line, block))
        line.take("{")
        self.open_blocks.append(block)
        self.roles.append(0)

    def link(self, line: _Line, block: Block) -> None:
        word = line.one_of(("parent", "forward"), "'parent' or 'forward'", "'parent' or 'forward'")
        token = line.token
        index = line.integer("the number of a block")
        if index < 0:
            setattr(block, word, None)
        else:
            self.links.append((block, word, _BlockRef(index, line, token)))

    def section(self, line: _Line) -> None:
        line.take("word")
        role = 0
        while True:
            token = line.token
            word = line.take("word", "a role")
            if _INTEGER.fullmatch(word) and int(word) > 0:
                role |= int(word)
            elif word in _ROLE_BITS:
                role |= _ROLE_BITS[word]
            elif word != "forward":
                line.fail(f"{word!r} is not a role; known are forward, {', '.join(_ROLE_BITS)}", token)
            if not line.accept("|"):
                break
        line.take("word", text="--")
        self.roles[-1] = role

    def declaration(self, line: _Line, name: str, word: str) -> None:
        """The rest of a declaration after the name: ``: float32[-1, 13] stop_gradient``."""
        block = self.open_blocks[-1]
        if name in block.vars:
            line.fail(f"{name!r} is declared twice in block {block.idx}")
        line.take(":")
        kind = VarType.LOD_TENSOR
        if not (line.ahead("[", by=1) or line.ahead("?", by=1)) or line.ahead("[", by=2) or line.ahead("?", by=2):
            kind = _VAR_KINDS[line.one_of(_VAR_KINDS, "a type", "a type such as float32[-1, 13] or lod_tensor_array")]
        dtype, shape = None, None
        if kind is VarType.LOD_TENSOR or line.ahead("[", by=1) or line.ahead("?", by=1):
            if not line.accept("?"):
                dtype = _DTYPES[line.one_of(_DTYPES, "an element type", "an element type such as float32")]
            if not line.accept("?"):
                line.take("[")
                shape = line.many("]", lambda: line.integer("a dimension"))
        flags = {"persistable": word == "param", "data": word == "data", "trainable": True}
        lod_level = 0
        while line.ahead("word"):
            flag = line.take("word")
            if flag == "lod_level":
                line.take("=")
                token = line.token
                lod_level = line.integer("a number of levels")
                if not 0 <= lod_level <= _MOST_LEVELS:
                    line.fail(f"there are 0 to {_MOST_LEVELS} levels of sequences", token)
            elif flag in ("persistable", "data", "stop_gradient", "need_check_feed"):
                flags[flag] = True
            elif flag in ("not_persistable", "not_trainable"):
                flags[flag[4:]] = False
            else:
                line.back()
                line.unexpected("lod_level=, persistable, stop_gradient, need_check_feed or the like")
        properties: dict[str, Any] = {"type": kind, "name": name, "lod_level": lod_level, "is_data": flags["data"]}
        properties |= {flag: flags.get(flag, False) for flag in ("persistable", "stop_gradient", "need_check_feed")}
        if word == "param":
            block.vars[name] = Parameter(block, shape, dtype, trainable=flags["trainable"], **properties)  # type: ignore[arg-type]
        else:
            block.vars[name] = Variable(block, shape=shape, dtype=dtype, **properties)
        self.room.variable()

    def op(self, line: _Line) -> None:
        block = self.open_blocks[-1]
        outputs: dict[str, list[str]] = {}

        def read_name() -> str:
            name = line.name()
            if line.ahead(":"):
                self.declaration(line, name, "")
            return name

        if line.accept("("):
            outputs = self.slots(line, read_name)
            line.take("=")
        elif line.ahead("[") or not line.ahead("(", by=1):
            outputs = {"Out": self.slot(line, read_name)}
            line.take("=", "'=' and the op")
        type_ = line.name("the type of an op")
        line.take("(")
        inputs = self.slots(line, line.name)
        op = Operator(block, type_, inputs, outputs, {})
        kinds: dict[str, str] = {}
        if line.accept("{"):
            line.many("}", lambda: self.attr(line, op, kinds))
        if kinds:
            from .program import OpWire

            op.wire = OpWire(kinds=kinds)
        if self.roles[-1] and OpRole.NAME not in op.attrs:
            op.attrs[OpRole.NAME] = self.roles[-1]
        block.ops.append(op)
        self.room.op(op)

    def slot(self, line: _Line, item: Any) -> list[str]:
        return line.many("]", item) if line.accept("[") else [item()]

    def slots(self, line: _Line, item: Any) -> dict[str, list[str]]:
        by_name: dict[str, list[str]] = {}

        def one() -> None:
            token = line.token
            name = line.name("a slot")
            if name in by_name:
                line.fail(f"the slot {name!r} is given twice", token)
            self.room.name(name)
            line.take("=")
            by_name[name] = self.slot(line, item)

        line.many(")", one)
        return by_name

    # -- attributes
    def attr(self, line: _Line, op: Operator, kinds: dict[str, str]) -> None:
        token = line.token
        name = line.name("an attribute")
        if name in op.attrs:
            line.fail(f"the attribute {name!r} is given twice", token)
        self.room.name(name)
        kind_token = line.look(1)
        kind = line.take("word", "a kind of attribute") if line.accept(":") else ""
        line.take("=")
        value = line.many("]", lambda: self.value(line)) if line.accept("[") else self.value(line)
        if kind:
            if not kind.startswith("block") and not _fits(kind, value):
                line.fail(f"{kind!r} is not a kind of attribute that can hold this value", kind_token)
            kinds[name] = kind
        op.attrs[name] = value
        if any(isinstance(item, _BlockRef) for item in (value if isinstance(value, list) else [value])):
            self.refs.append((op.attrs, name))

    def value(self, line: _Line) -> Any:
        token = line.token
        if token.kind == "string":
            return line.string()
        word = line.take("word", "a value")
        if _INTEGER.fullmatch(word):
            return int(word)
        if word in ("True", "False"):
            return word == "True"
        if word == "block":
            return _BlockRef(line.integer("the number of a block"), line, token)
        try:
            return _float(word)
        except ValueError:
            line.back()
            line.unexpected("a number, a string, True, False, or a block")


_FLOAT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?inf|nan")


def _float(word: str) -> float:
    if len(word) > 400 or not _FLOAT.fullmatch(word):
        raise ValueError(word)
    return float(word)


@checked
def parse_program_text(text: str) -> Program:
    """The program in a text that `program_to_string` has made; `FormatError`, with line and column, if it is not one.

    >>> x = fluid.data("x", [None, 2])
    >>> program = fluid.text.parse_program_text(fluid.text.program_to_string(fluid.default_main_program()))
    >>> program.global_block().var("x").shape
    (-1, 2)
    """
    return _Parser(text).parse()

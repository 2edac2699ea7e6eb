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
from collections.abc import Container, Iterator
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, NoReturn

from ..errors import FormatError, ProgramError
from ..ir import printing
from ..ir.attr_kinds import fits
from ..ir.checked import checked
from ..ir.printing import NOISE
from ..ir.program import Block, Operator, Parameter, Program, Variable
from ..ir.roles import ROLE_NAMES, OpRole
from ..ir.verify import on_cycles, too_deep
from ..not_here import names_here
from ..values.types import VarType
from .room import Room

__all__ = ["NOISE", "block_to_string", "op_to_string", "parse_program_text", "program_to_screen", "program_to_string"]

__dir__ = names_here(__name__)

block_to_string = checked(printing.block_to_string)
op_to_string = checked(printing.op_to_string)
program_to_screen = checked(printing.program_to_screen)
program_to_string = checked(printing.program_to_string)

_ROLE_BITS = {name: bit for bit, name in ROLE_NAMES.items()}
_MOST_LEVELS = 64


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
        is_from_file = self.program.wire is not None
        if kinds or is_from_file:
            from .program import OpWire

            op.wire = OpWire(op.type if is_from_file else "", kinds)
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
            if not kind.startswith("block") and not fits(kind, value):
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

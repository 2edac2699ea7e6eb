"""Reads programs of PIR from JSON, as Paddle 3.0 to 3.3 write them.

An op is ``{"#": "1.relu", "I": [operands], "O": [results], "A": [attributes], "OA": [of results], "regions": [...]}``: numbers
stand for dialects. An operand is ``{"%": id}``, 0 for none; a result also has its type, ``"TT"``. Types and attributes are
``{"#": name, "D": data}``. Parameters are shortened to ``{"#": "p", "A": [distributed, parameter, need_clip, name], ...}``.

Each object becomes a small tuple as soon as it is parsed, so that reading takes little more memory than the result. Nested
lists, which a file could make large otherwise, are counted before.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, NoReturn

from ...errors import FormatError
from ..room import Room
from .data import ARRAY, DENSE, NULL, PLAIN, Attribute, PirBlock, PirOp, PirProgram, PirType, PirValue

DIALECTS = {"0": "builtin", "1": "pd_op", "2": "cf", "3": "custom_op", "4": "dist_op"}
_SCALARS = {"bool": (bool,), "i8": (int,), "i16": (int,), "i32": (int,), "i64": (int,), "f32": (int, float), "f64": (int, float),
            "str": (str,), "dtype": (str,), "layout": (str,)}  # fmt: skip
"""Types of attributes, and the types of JSON that hold them."""
_DEEPEST = 40
"""The deepest nesting of regions."""
_MOST_DIMENSIONS = 64
_LIST, _COMMA, _TEXT, _OBJECT = 72, 8, 60, 72
"""Bytes of memory that parts of JSON may take."""
_NOT_FINITE = {"NaN": float("nan"), "INF": float("inf"), "-INF": float("-inf")}


class Tagged(NamedTuple):
    """``{"#": tag, "D": data}``."""

    tag: str
    data: Any = None


class Named(NamedTuple):
    """``{"N": name, "AT": attribute}``."""

    name: str
    attribute: Any


def is_pir(head: bytes, size: int) -> bool:
    """Whether a file with these first bytes may be a program of PIR."""
    return head.lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"{")


def parse_pir(data: bytes) -> PirProgram:
    """The program in a file; `FormatError` if it is damaged, or no program that computes something is as large."""
    room = Room(len(data))
    counts = {part: data.count(part) for part in (b"[", b",", b'","')}
    room.take(_LIST * counts[b"["] + _COMMA * counts[b","] + _TEXT * counts[b'","'])
    try:
        tree = json.loads(data, object_pairs_hook=_Objects(room))
    except FormatError:
        raise
    except RecursionError:
        raise FormatError("not a program of Paddle 3: the JSON is nested too deep") from None
    except UnicodeDecodeError as error:
        raise FormatError(f"not a program of Paddle 3: the text is not UTF-8, at byte {error.start}") from None
    except ValueError as error:
        raise FormatError(f"not a program of Paddle 3: {error}") from None
    del data
    return _PirReader(room).program(tree)


class _Objects:
    """Makes a small tuple, or an operand's number, of each object of JSON."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._tagged: dict[Any, Tagged] = {}
        self._named: dict[Any, Named] = {}

    def __call__(self, pairs: list[tuple[str, Any]]) -> Any:
        if len(pairs) == 1:
            ((key, value),) = pairs
            if key == "%":
                return value
            if key == "#":
                return self._shared(value, None)
        elif len(pairs) == 2:
            (key, value), (second_key, data) = pairs
            if key == "#" and second_key == "D":
                return self._shared(value, data)
            if key == "AT" and second_key == "N":
                return Named(data, value)
            if key == "N" and second_key == "AT":
                return Named(value, data)
        self._room.take(_OBJECT + 100 * len(pairs))
        members = dict(pairs)
        if len(members) < len(pairs):
            names = [key for key, _ in pairs]
            raise FormatError(f"not a program of Paddle 3: an object has {max(names, key=names.count)!r} twice")
        return members

    def _shared(self, tag: Any, data: Any) -> Tagged:
        """Most attributes and types stand in a file many times."""
        key = (tag, data.__class__, data)
        try:
            shared = self._tagged.get(key)
        except TypeError:  # a list
            self._room.take(_OBJECT)
            return Tagged(tag, data)
        if shared is None:
            self._room.take(4 * _OBJECT)
            shared = self._tagged[key] = Tagged(tag, data)
        return shared


def _fail(message: str) -> NoReturn:
    raise FormatError(f"not a program of Paddle 3: {message}")


class _PirReader:
    """Makes ops of the tree of one file; knows the values that are defined so far, and in view."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._values: dict[int, PirValue] = {}
        self._seen: set[int] = set()
        self._types: dict[Any, PirType] = {}
        self._where = ""

    def fail(self, message: str) -> NoReturn:
        _fail(f"{self._where}{message}")

    def expect(self, value: Any, kind: type, subject: str) -> Any:
        if value.__class__ is not kind:
            self.fail(f"{subject} should be {_TEXTS[kind]}, not {_shown(value)}")
        return value

    def program(self, tree: Any) -> PirProgram:
        self.expect(tree, dict, "the file")
        base, program = tree.get("base_code"), tree.get("program")
        self.expect(base, dict, "base_code")
        if base.get("magic") != "pir":
            self.fail(f"base_code.magic should be 'pir', not {_shown(base.get('magic'))}")
        version = self.expect(base.get("version"), int, "base_code.version")
        if not 0 < version <= 4:
            self.fail(f"it is written in version {_shown(version)} of the format; 1 to 4 are known, of Paddle 3.0 to 3.3")
        regions = self.expect(self.expect(program, dict, "program").get("regions"), list, "program.regions")
        if len(regions) != 1:
            self.fail(f"a program has one region, not {len(regions)}")
        return PirProgram(self.region(regions[0], 0), version)

    def region(self, tree: Any, depth: int) -> PirBlock:
        if depth > _DEEPEST:
            self.fail(f"regions lie deeper in each other than {_DEEPEST}")
        blocks = self.expect(self.expect(tree, dict, "a region").get("blocks"), list, "the blocks of a region")
        if len(blocks) != 1:
            self.fail(f"a region has one block, not {len(blocks)}")
        block = self.expect(blocks[0], dict, "a block")
        self._room.block()
        result = PirBlock()
        defined: list[int] = []
        for arg in self.expect(block.get("args", []), list, "the arguments of a block"):
            self.expect(arg, dict, "an argument of a block")
            result.args.append(self.define(arg.get("#"), arg.get("TT"), defined))
        if block.get("kwargs"):
            self.fail("a block with arguments by name, which Paddle 3.0 to 3.3 do not write")
        where = self._where
        for index, op in enumerate(self.expect(block.get("ops"), list, "the ops of a block")):
            self._where = f"{where}op {index}: "
            result.ops.append(self.op(op, depth, defined))
        self._where = where
        for number in defined:
            del self._values[number]
        return result

    def define(self, number: Any, type_: Any, defined: list[int]) -> PirValue:
        self.expect(number, int, "the number of a value")
        if number == 0 or number in self._seen:
            self.fail(
                f"the value {_shown(number)} is defined again" if number else "a value has the number 0, which stands for none"
            )
        self._room.variable()
        value = self._values[number] = PirValue(number, self.type(type_))
        self._seen.add(number)
        defined.append(number)
        return value

    def use(self, number: Any) -> PirValue | None:
        if number.__class__ is not int:
            self.fail(f"an operand should be the number of a value, not {_shown(number)}")
        if number == 0:
            return None
        value = self._values.get(number)
        if value is None:
            problem = "is out of view" if number in self._seen else "is not defined before"
            self.fail(f"the operand {_shown(number)} {problem}")
        return value

    def op(self, tree: Any, depth: int, defined: list[int]) -> PirOp:
        self.expect(tree, dict, "an op")
        tag = self.expect(tree.get("#"), str, "the name of an op")
        where = self._where
        self._where = f"{where[:-2]} ({tag.partition('.')[2] or tag}): "
        self._room.take(_OP)
        if tag == "p":
            op = self.parameter(tree, defined)
        else:
            op = PirOp(self.full_name(tag))
            op.operands = [self.use(number) for number in self.expect(tree.get("I", []), list, "the operands")]
            op.attrs = self.attributes(tree.get("A", []))
            for region in self.expect(tree.get("regions", []), list, "the regions"):
                op.regions.append(self.region(region, depth + 1))
            for result in self.expect(tree.get("O", []), list, "the results"):
                self.expect(result, dict, "a result")
                op.results.append(self.define(result.get("%"), result.get("TT"), defined))
            self.of_results(op, self.attributes(tree.get("OA", [])))
        self._where = where
        return op

    def of_results(self, op: PirOp, attrs: dict[str, Attribute]) -> None:
        for name, attribute in attrs.items():
            flags = attribute.value
            if name in ("stop_gradient", "persistable") and flags.__class__ is list:
                for value, flag in zip(op.results, flags, strict=False):
                    setattr(value, name, flag is True)

    def parameter(self, tree: Any, defined: list[int]) -> PirOp:
        attrs = self.expect(tree.get("A"), list, "the attributes of a parameter")
        result = self.expect(tree.get("O"), dict, "the result of a parameter")
        flags = self.expect(tree.get("OA", []), list, "the attributes of a parameter's result")
        if len(attrs) != 4 or attrs[3].__class__ is not str:
            self.fail(f"a parameter has three flags and a name, not {_shown(attrs)}")
        value = self.define(result.get("%"), result.get("TT"), defined)
        persistable, stop_gradient, trainable = (*flags, 1, 0, 1)[:3] if len(flags) == 3 else (1, 0, 1)
        value.persistable, value.stop_gradient = persistable == 1, stop_gradient == 1
        described = {
            "parameter_name": Attribute("str", attrs[3]),
            "trainable": Attribute("bool", trainable == 1),
            "need_clip": Attribute("bool", attrs[2] == 1),
            "is_distributed": Attribute("bool", attrs[0] == 1),
        }
        return PirOp("builtin.parameter", [], [value], described)

    def full_name(self, tag: str) -> str:
        dialect, dot, name = tag.partition(".")
        return f"{DIALECTS.get(dialect, dialect)}.{name}" if dot else tag

    # -- attributes and types
    def attributes(self, trees: Any) -> dict[str, Attribute]:
        by_name: dict[str, Attribute] = {}
        for tree in self.expect(trees, list, "the attributes"):
            if tree.__class__ is not Named or tree.name.__class__ is not str:
                self.fail(f"an attribute should have a name and a value, not {_shown(tree)}")
            if tree.name in by_name:
                self.fail(f"the attribute {_shown(tree.name)} stands there twice")
            self._room.take(_ATTRIBUTE)
            by_name[tree.name] = self.attribute(tree.name, tree.attribute)
        return by_name

    def attribute(self, name: str, tree: Any) -> Attribute:
        if tree.__class__ is dict and tree.get("VD").__class__ is str and tree["VD"] in _NOT_FINITE:
            tree = Tagged(str(tree.get("#")), _NOT_FINITE[tree["VD"]])
        if tree.__class__ is not Tagged or tree.tag.__class__ is not str:
            self.fail(f"the attribute {_shown(name)} should have a type and data, not {_shown(tree)}")
        kind = tree.tag.partition("a_")[2] or tree.tag
        if kind == "array":
            items = [self.attribute(name, item) for item in self.expect(tree.data, list, f"the list {_shown(name)}")]
            kinds = {item.type for item in items}
            if len(kinds) > 1:
                self.fail(f"the list {_shown(name)} holds several types, {', '.join(sorted(kinds))}")
            return Attribute(f"[{kinds.pop() if kinds else ''}]", [item.value for item in items])
        if kind == "intarray":
            return Attribute(
                kind, [self.integer(name, item) for item in self.expect(tree.data, list, f"the list {_shown(name)}")]
            )
        types = _SCALARS.get(kind)
        if types is not None and tree.data.__class__ not in types:
            self.fail(f"the attribute {_shown(name)} is of type {kind}, but holds {_shown(tree.data)}")
        if kind in ("i32", "i64"):
            self.integer(name, tree.data, 1 << (31 if kind == "i32" else 63))
        return Attribute(kind, tree.data)

    def integer(self, name: str, value: Any, limit: int = 1 << 63) -> int:
        if value.__class__ is not int or not -limit <= value < limit:
            self.fail(f"the attribute {_shown(name)} should hold integers of {limit.bit_length()} bits, not {_shown(value)}")
        return int(value)

    def type(self, tree: Any, depth: int = 0) -> PirType:
        if tree.__class__ is not Tagged or tree.tag.__class__ is not str:
            self.fail(f"a type should have a name and data, not {_shown(tree)}")
        kind = tree.tag.partition("t_")[2] or tree.tag
        if kind == "NULL":
            return NULL
        if kind in (DENSE, ARRAY, "selected_rows", "slrow"):
            data = self.expect(tree.data, list, "the data of a type")
            if len(data) < 2 or data[0].__class__ is not Tagged or data[0].tag.__class__ is not str:
                self.fail(f"a tensor's type should say elements and shape, not {_shown(data)}")
            shape = self.expect(data[1], list, "a shape")
            if len(shape) > _MOST_DIMENSIONS or any(size.__class__ is not int or not -1 << 62 < size < 1 << 62 for size in shape):
                self.fail(f"a shape should be at most {_MOST_DIMENSIONS} sizes, or -1, not {_shown(shape)}")
            shape = [max(size, -1) for size in shape]  # Paddle multiplies unknown sizes: -3 is three times -1
            unparsed = None if data[2:] == PLAIN.get(kind) else data[2:]
            result = PirType(kind, data[0].tag.partition("t_")[2], tuple(shape), (), unparsed)
            return self._types.setdefault(repr(result), result)
        if kind == "vec" and depth < 4:
            parts = self.expect(tree.data, list, "the types of a list of values")
            self._room.take(_ATTRIBUTE * len(parts))
            return PirType(kind, parts=tuple(self.type(part, depth + 1) for part in parts))
        return PirType(kind, unparsed=tree.data)


_OP, _ATTRIBUTE = 700, 130
"""Bytes for an op and an attribute of PIR, including the objects made from them."""
_TEXTS = {dict: "an object", list: "a list", str: "a text", int: "an integer"}


def _shown(value: Any) -> str:
    text = repr(value)[:200] if not isinstance(value, (list, tuple, dict)) else repr(type(value).__name__)
    return text if len(text) < 80 else text[:77] + "..."

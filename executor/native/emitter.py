"""Writes functions in the text form of LLVM's intermediate language: values, loops with carried values, vectors.

`Function` has a method for each instruction that kernels need. The text is in static single assignment form and needs no
optimization passes before the code generator: unrolled loops are written unrolled, vectors are written as vectors.

A *vector* has one element per lane; the number of lanes is a power of two. A *number* is the same for all lanes: an index, a
pointer, a broadcast element. LLVM has one type for numbers and for vectors of one lane; the emitter has two. Sums over lanes,
vector stores and shuffles take vectors. `Function.splat` broadcasts a number. All operands of an instruction must have the same
type, otherwise writing it raises `TypeError`. A Python number becomes a constant of the other operand's type. Pointers are
untyped; `Function.at` counts in elements of a type.

A pointer has a root: the operand that it points into. In a `checked` module, each access through such a pointer is tested
against the operand's bounds (`Function.guard`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from math import inf
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from fluid.values.bfloat16 import to_bfloat16

from .bounds import Footprint, IndexBounds, Sum, Turns, facts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .target import Target


Number: TypeAlias = "int | float"

_BITS = {
    "i1": 1, "i8": 8, "u8": 8, "i16": 16, "i32": 32, "i64": 64, "half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64
}  # fmt: skip
_IN_LLVM = {"u8": "i8", "bfloat": "i16"}
"""Elements -> their type in LLVM, if it is another. LLVM's bfloat needs functions of a runtime on most processors."""


@dataclass(frozen=True)
class Type:
    """A type of values: a number, or a vector of `lanes` lanes.

    LLVM's integers have no sign. Bytes without one have the element "u8", which LLVM calls i8; there is no arithmetic of them,
    nor of bfloat16.
    """

    element: str
    lanes: int = 1
    is_vector: bool = False

    def __str__(self) -> str:
        element = _IN_LLVM.get(self.element, self.element)
        return element if self.lanes == 1 else f"<{self.lanes} x {element}>"

    def __repr__(self) -> str:
        return f"a vector of {self.lanes} {self.element}" if self.is_vector else f"a number of {self.element}"

    @cache  # noqa: B019  types are few
    def of(self, lanes: int) -> Type:
        """The vector type with these elements and `lanes` lanes."""
        return Type(self.element, lanes, True)

    @property
    def number(self) -> Type:
        """The type of one element."""
        return _NUMBERS[self.element]

    def with_element(self, element: Type) -> Type:
        """The same kind of type, with the same lanes, but another element type."""
        return element.of(self.lanes) if self.is_vector else element.number

    @property
    def is_float(self) -> bool:
        return self.element in ("half", "bfloat", "float", "double")

    @property
    def bits(self) -> int:
        """Bits of one element."""
        return _BITS[self.element]

    @property
    def bytes(self) -> int:
        """Bytes of one element in memory."""
        return max(self.bits // 8, 1)

    @property
    def suffix(self) -> str:
        """The type's name in intrinsics: ``f32``, ``v8f32``, ``i64``."""
        name = {"half": "f16", "float": "f32", "double": "f64"}.get(self.element, _IN_LLVM.get(self.element, self.element))
        return name if self.lanes == 1 else f"v{self.lanes}{name}"


_NUMBERS = {element: Type(element) for element in _BITS}
BOOL, BYTE, UBYTE, INT16, INT32, INT64 = (_NUMBERS[element] for element in ("i1", "i8", "u8", "i16", "i32", "i64"))
HALF, BFLOAT16, FLOAT, DOUBLE, POINTER = (_NUMBERS[element] for element in ("half", "bfloat", "float", "double", "ptr"))


@dataclass(frozen=True, slots=True)
class Value:
    """A value in a function: its name in the text, and its type.

    Attributes:
        root: the operand that a pointer points into; -1 if unknown.
        affine: an index as an affine sum of variables (see `bounds`), or a pointer's byte offset from its root; None if unknown.
    """

    text: str
    type: Type
    root: int = -1
    affine: Sum | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return self.text


Operand: TypeAlias = "Value | int | float"


def constant(number: Number, type_: Type) -> Value:
    """A number as a value of a type, the same in all lanes."""
    with np.errstate(over="ignore"):  # numbers that the type cannot hold are infinite, as on numpy
        if type_.element == "half":
            text = f"0xH{int(np.float16(number).view(np.uint16)):04X}"
        elif type_.element == "bfloat":
            text = str(int(to_bfloat16(number).view("<u2")))
        elif type_.is_float:
            number = float(np.float32(number)) if type_.element == "float" else number
            text = f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
        else:
            text = str(int(number))
    if type_.lanes > 1:
        text = f"splat ({type_.number} {text})"
    return Value(text, type_)


@lru_cache(1 << 12)
def _index(number: int) -> Value:
    """A number as an index."""
    return Value(str(number), INT64, affine=Sum(number))


def zero(type_: Type) -> Value:
    """Zero in all lanes."""
    return constant(0, type_)


class Module:
    """Functions that are compiled together, with their declarations.

    Args:
        target: the processor that they are for.
        checked: whether kernels test each access to an operand against its bounds; slow, for tests.
    """

    def __init__(self, target: Target, checked: bool = False) -> None:
        self.target, self.checked = target, checked
        self._declarations: dict[str, None] = {}
        self._functions: dict[str, str] = {}
        self._exported: list[str] = []
        self.footprints: dict[str, list[Footprint]] = {}
        """Kernel -> the footprint of each operand."""

    def declare(self, text: str) -> None:
        """Add a declaration such as ``declare float @llvm.fma.f32(float, float, float)``."""
        self._declarations[text] = None

    def add(self, name: str, text: str, linkage: str = "") -> None:
        """Add a function; one that is not ``"internal"`` can be called from outside."""
        self._functions[name] = text
        if linkage != "internal":
            self._exported.append(name)

    def __contains__(self, name: str) -> bool:
        return name in self._functions

    @property
    def names(self) -> list[str]:
        """Functions that can be called from outside."""
        return list(self._exported)

    @property
    def text(self) -> str:
        return "\n".join((*self._declarations, *self._functions.values()))


def _weights(start: Operand, stop: Operand, step: int) -> str:
    """How often a loop goes on, for the code generator: registers belong to the loops with the most turns."""
    if not (isinstance(start, int) and isinstance(stop, int)):
        return ""
    turns = min(-(-(stop - start) // step), 1 << 30)
    return f', !prof !{{!"branch_weights", i32 {turns - 1}, i32 1}}'


@dataclass
class Function:
    """Writes one function.

    Args:
        module: `end` adds the function to this module.
        name: the function's name.
        parameters: the types of the parameters; their values are in `arguments`.
        result: the return type; None for void.
        linkage: ``"internal"`` if only functions of the module call it.
    """

    module: Module
    name: str
    parameters: Sequence[Type]
    result: Type | None = None
    linkage: str = ""
    arguments: list[Value] = field(init=False)
    _stack: list[str] = field(default_factory=list, init=False)
    _lines: list[str] = field(default_factory=list, init=False)
    _count: int = field(default=0, init=False)
    _block: str = field(default="entry", init=False)
    _reusable: dict[str, Value] = field(default_factory=dict, init=False)
    """Text of an instruction without side effects, since the last label -> its value."""
    _guard: _Guard | None = field(default=None, init=False)
    _stacks: list[int] = field(default_factory=list, init=False)
    """The bytes of each `stack`."""
    bounds: IndexBounds = field(default_factory=IndexBounds, init=False)
    """Bounds of indices, and footprints of accesses."""
    _compared: dict[str, tuple[str, Sum, Sum]] = field(default_factory=dict, init=False)
    """Name of a truth value -> the relation of indices that it tests."""
    _both: dict[str, tuple[Value, Value]] = field(default_factory=dict, init=False)
    """Name of a truth value -> the two truth values that it is the conjunction of."""

    def __post_init__(self) -> None:
        self.arguments = [Value(f"%a{number}", type_) for number, type_ in enumerate(self.parameters)]

    # -- writing
    def _new(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def write(self, line: str) -> None:
        """Add an instruction without a result."""
        self._lines.append(f"  {line}")

    def value(self, instruction: str, type_: Type, root: int = -1, affine: Sum | None = None) -> Value:
        """Add an instruction with a result, and return it."""
        name = self._new()
        self._lines.append(f"  {name} = {instruction}")
        return Value(name, type_, root, affine)

    def _label(self, name: str) -> None:
        self._lines.append(f"{name}:")
        self._block = name
        self._reusable.clear()

    def _once(self, text: str, type_: Type, root: int = -1, affine: Sum | None = None) -> Value:
        """The result of an instruction without side effects; the same text within a basic block is written once."""
        if text not in self._reusable:
            self._reusable[text] = self.value(text, type_, root, affine)
        return self._reusable[text]

    def end(self, result: Operand | None = None) -> None:
        """Write the return, and add the function to its module."""
        returned = "void" if self.result is None else str(self.result)
        value = "" if result is None else f" {self._as(result, self.result or INT64)}"
        self.write(f"ret {returned}{value}")
        parameters = ", ".join(f"{argument.type} {argument}" for argument in self.arguments)
        head = f"define {self.linkage}{' ' if self.linkage else ''}{returned} @{self.name}({parameters}) #0 {{"
        self.module.add(self.name, "\n".join([head, "entry:", *self._stack, *self._lines, "}"]), self.linkage)

    # -- control flow
    def loop(
        self,
        start: Operand,
        stop: Operand,
        step: int,
        carried: Sequence[Value],
        body: Callable[..., Iterable[Value] | None],
        at_least_once: bool = False,
        shows_index: bool = False,
    ) -> list[Value]:
        """Write a loop: ``body(i, *values)`` takes the index and the carried values, and returns the next ones.

        Returns the carried values after the loop. With Python numbers as bounds, a loop without iterations is left out, and a
        single iteration is written without a loop. With other bounds, `at_least_once` leaves out the test before the first
        iteration. The code generator replaces addresses computed from the index by stepping pointers only with `shows_index`:
        that takes a quarter of its time, and few kernels gain by it.
        """
        if isinstance(start, int) and isinstance(stop, int):
            if start >= stop:
                return list(carried)
            if start + step >= stop:
                return list(body(self.int64(start), *carried) or ())
            at_least_once = True
        self._count += 1
        number = self._count
        if not at_least_once:
            enters = self.compare("slt", self.int64(start), self.int64(stop))
            self.write(f"br i1 {enters}, label %loop{number}, label %done{number}")
        else:
            self.write(f"br label %loop{number}")
        before = self._block
        turns = Turns(self.bounds, self.int64(start).affine, self.int64(stop).affine, step)
        index = Value(self._new(), INT64, affine=turns.index)
        phis = [Value(self._new(), value.type, value.root, value.affine and self.bounds.variable()) for value in carried]
        self._label(f"loop{number}")
        head = len(self._lines)
        self._lines.append("")
        with self.bounds.ignoring_if(turns.are_none):
            after = list(body(index, *phis) or ())
        following = self.value(f"add nuw nsw i64 {index}, {step}", INT64)
        if not shows_index:
            following = self._hidden(following)
        goes_on = self.compare("slt", following, self.int64(stop))
        back = self._block
        self.write(f"br i1 {goes_on}, label %loop{number}, label %done{number}{_weights(start, stop, step)}")
        lines = [f"  {index} = phi i64 [ {self.int64(start)}, %{before} ], [ {following}, %{back} ]"]
        lines += [
            f"  {phi} = phi {phi.type} [ {first}, %{before} ], [ {last}, %{back} ]"
            for phi, first, last in zip(phis, carried, after, strict=True)
        ]
        self._lines[head] = "\n".join(lines)
        self._label(f"done{number}")
        results = []
        for first, phi, last in zip(carried, phis, after, strict=True):
            affine = turns.end(first.affine, phi.affine, last.affine)
            if at_least_once:
                results.append(replace(last, affine=affine))
            else:
                phi_text = f"phi {last.type} [ {first}, %{before} ], [ {last}, %{back} ]"
                results.append(self.value(phi_text, last.type, last.root, affine))
        return results

    def search(self, start: Value, body: Callable[[Value], tuple[Value, Value]]) -> Value:
        """Write a search loop: ``body(value)`` returns whether `value` matches, and the next value to try.

        Returns the matching value.
        """
        self._count += 1
        number = self._count
        before = self._block
        self.write(f"br label %look{number}")
        value = Value(self._new(), start.type, affine=start.affine and self.bounds.variable())
        self._label(f"look{number}")
        head = len(self._lines)
        self._lines.append("")
        is_last, following = body(value)
        if start.affine is not None and following.affine is not None and value.affine is not None:
            self.bounds.bound(value.affine, *self.bounds.hull(start.affine, following.affine))
        self._lines[head] = f"  {value} = phi {value.type} [ {start}, %{before} ], [ {following}, %{self._block} ]"
        self.write(f"br i1 {is_last}, label %end{number}, label %look{number}")
        self._label(f"end{number}")
        return value

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Run the code that the ``with`` block writes only if the condition holds."""
        self._count += 1
        number = self._count
        self.write(f"br i1 {condition}, label %then{number}, label %end{number}")
        self._label(f"then{number}")
        with self.bounds.assuming(self._facts_of(condition)):
            yield
        self.write(f"br label %end{number}")
        self._label(f"end{number}")

    # -- bounds
    def between(self, index: Value, low: int, high: int) -> Value:
        """The same index with bounds that the caller guarantees: `low` to `high`, inclusive."""
        return replace(index, affine=self.bounds.between(low, high))

    def _facts_of(self, condition: Value) -> list[Sum]:
        """Sums that are not negative if a condition holds."""
        if condition.text in self._compared:
            return facts_of(*self._compared[condition.text])
        return [fact for part in self._both.get(condition.text, ()) for fact in self._facts_of(part)]

    def _fact_of(self, condition: Value) -> Sum | None:
        """The sum that is not negative if and only if a condition holds; None if there is none."""
        facts = self._facts_of(condition) if condition.text in self._compared else []
        return facts[0] if len(facts) == 1 else None

    # -- constants and conversions
    def int64(self, number: Operand) -> Value:
        return self._as(number, INT64)

    @staticmethod
    def _as(operand: Operand, type_: Type) -> Value:
        if isinstance(operand, Value):
            return operand
        return _index(int(operand)) if type_ is INT64 else constant(operand, type_)

    def _pair(self, a: Operand, b: Operand) -> tuple[Value, Value]:
        if isinstance(a, Value):
            b = self._as(b, a.type)
        else:
            assert isinstance(b, Value), "one operand says the type"
            a = self._as(a, b.type)
        if a.type != b.type:
            raise TypeError(f"{a.type!r} is combined with {b.type!r}")
        return a, b

    def splat(self, number: Value, lanes: int) -> Value:
        """Broadcast a number to all lanes of a vector."""
        _require_number(number)
        all_ = number.type.of(lanes)
        if lanes == 1:
            return Value(number.text, all_)
        first = self.value(f"insertelement {all_} poison, {number.type} {number}, i64 0", all_)
        zeros = f"<{lanes} x i32> zeroinitializer"
        return self.value(f"shufflevector {all_} {first}, {all_} poison, {zeros}", all_)

    def shuffle(self, a: Value, b: Value, lanes: Sequence[int]) -> Value:
        """Select lanes of two vectors; the lanes of `b` are numbered after the lanes of `a`."""
        _require_vector(a)
        _require_vector(b)
        if a.type.lanes == 1:  # LLVM has no vectors of one lane
            assert len(lanes) == 1, "vectors of one lane have two lanes together"
            return (a, b)[lanes[0]]
        if len(lanes) == 1:
            place = lanes[0]
            number = self.lane(a, place) if place < a.type.lanes else self.lane(b, place - a.type.lanes)
            return Value(number.text, a.type.of(1))
        mask = f"<{len(lanes)} x i32> <{', '.join(f'i32 {lane}' for lane in lanes)}>"
        return self.value(f"shufflevector {a.type} {a}, {b.type} {b}, {mask}", a.type.of(len(lanes)))

    def lane(self, vector: Value, number: int) -> Value:
        """One lane of a vector, as a number."""
        _require_vector(vector)
        if vector.type.lanes == 1:
            return Value(vector.text, vector.type.number)
        return self.value(f"extractelement {vector.type} {vector}, i64 {number}", vector.type.number)

    def convert(self, value: Value, element: Type) -> Value:
        """Convert a value to another element type, as C does; conversion to BOOL tests for not zero."""
        old, new = value.type, value.type.with_element(element)
        if old.element == new.element:
            return value
        if old.element == "bfloat":
            wide = self.value(f"zext {old} {value} to {old.with_element(INT32)}", old.with_element(INT32))
            return self.convert(self.bits_as(self.shift_left(wide, 16), FLOAT), element)
        if new.element == "bfloat":
            return self._rounded_to_bfloat16(self.convert(value, FLOAT))
        if "half" in (old.element, new.element) and not self.module.target.has_halves:
            from_half = old.element == "half"
            return self.convert(self._widened(value), element) if from_half else self._narrowed(self.convert(value, FLOAT))
        if new.element == "i1":
            return self.compare("une" if old.is_float else "ne", value, 0)
        if {old.element, new.element} == {"half", "double"}:  # x86 has no instruction for it
            return self.convert(self.convert(value, FLOAT), element)
        if old.is_float and new.is_float:
            return self.value(f"{'fpext' if new.bits > old.bits else 'fptrunc'} {old} {value} to {new}", new)
        if new.bits == old.bits == 8:
            return Value(value.text, new)
        if old.is_float and new.bits == 8:  # a byte without a sign may exceed the range of one with a sign
            return self.convert(self.convert(value, INT32), element)
        if old.is_float:
            return self.value(f"fptosi {old} {value} to {new}", new)
        is_unsigned = old.element in ("i1", "u8")
        if new.is_float:
            return self.value(f"{'uitofp' if is_unsigned else 'sitofp'} {old} {value} to {new}", new)
        if new.bits < old.bits:
            return self.value(f"trunc {old} {value} to {new}", new)
        return self.value(f"{'zext' if is_unsigned else 'sext'} {old} {value} to {new}", new)

    def _widened(self, half: Value) -> Value:
        """A half as a float, by its bits: a product moves the exponent, also of denormals; infinity and NaN keep theirs."""
        bits = self.convert(self.bits_as(half, INT16), INT32)
        size = self.shift_left(self.bit_and(bits, 0x7FFF), 13)
        number = self.mul(self.bits_as(size, FLOAT), 2.0**112)
        is_finite = self.compare("slt", size, 31 << 23)
        number = self.select(is_finite, number, self.bits_as(self.bit_or(size, 0xFF << 23), FLOAT))
        sign = self.shift_left(self.bit_and(bits, 0x8000), 16)
        return self.bits_as(self.bit_or(self.bits_as(number, INT32), sign), FLOAT)

    def _narrowed(self, number: Value) -> Value:
        """A float as a half, rounded to even, by its bits."""
        bits = self.bits_as(number, INT32)
        size = self.bit_and(bits, 0x7FFFFFFF)
        is_odd = self.bit_and(self.shift_right_logical(size, 13), 1)
        normal = self.shift_right_logical(self.add(self.add(size, ((15 - 127) << 23) + 0xFFF), is_odd), 13)
        # Adding 0.5 leaves the bits of a denormal half at the end, rounded.
        denormal = self.sub(self.bits_as(self.add(self.bits_as(size, FLOAT), 0.5), INT32), 126 << 23)
        special = self.select(self.compare("sgt", size, 0xFF << 23), constant(0x7E00, size.type), constant(0x7C00, size.type))
        finite = self.select(self.compare("slt", size, 113 << 23), denormal, normal)
        half = self.select(self.compare("slt", size, 143 << 23), finite, special)
        sign = self.shift_right_logical(self.bit_and(bits, -(1 << 31)), 16)
        return self.bits_as(self.convert(self.bit_or(half, sign), INT16), HALF)

    def _rounded_to_bfloat16(self, value: Value) -> Value:
        """Round float32 to nearest, ties to even, denormals too; the instruction of some processors takes these for zeros."""
        bits = self.bits_as(value, INT32)
        is_odd = self.bit_and(self.shift_right_logical(bits, 16), 1)
        rounded = self.add(self.add(bits, is_odd), 0x7FFF)
        quiet = self.bit_or(bits, 1 << 22)
        high = self.shift_right_logical(self.select(self.compare("uno", value, value), quiet, rounded), 16)
        new = value.type.with_element(BFLOAT16)
        return self.value(f"trunc {high.type} {high} to {new}", new)

    def bits_as(self, value: Value, element: Type) -> Value:
        """Reinterpret the bits as another element type; the lanes of a vector fill the same bits."""
        lanes = value.type.lanes * value.type.bits // element.bits
        new = element.of(lanes) if value.type.is_vector else element.number
        return self.value(f"bitcast {value.type} {value} to {new}", new)

    # -- arithmetic; floats and integers
    def _binary(self, floats: str, integers: str, a: Operand, b: Operand) -> Value:
        x, y = self._pair(a, b)
        if x.type.is_float:
            return self.value(f"{floats} {x.type} {x}, {y}", x.type)
        affine = _RESULTS[integers](self.bounds, x.affine, y.affine) if x.type is INT64 else None
        return self._once(f"{integers} {x.type} {x}, {y}", x.type, affine=affine)

    def add(self, a: Operand, b: Operand) -> Value:
        if isinstance(a, int) and isinstance(b, int):
            return self.int64(a + b)
        if isinstance(b, int) and b == 0 and isinstance(a, Value) and not a.type.is_float:
            return a
        return self._binary("fadd", "add", a, b)

    def sub(self, a: Operand, b: Operand) -> Value:
        return self._binary("fsub", "sub", a, b)

    def mul(self, a: Operand, b: Operand) -> Value:
        if isinstance(b, int) and b == 1 and isinstance(a, Value) and not a.type.is_float:
            return a
        return self._binary("fmul", "mul", a, b)

    def div(self, a: Operand, b: Operand) -> Value:
        """The quotient; truncated for integers."""
        return self._binary("fdiv", "sdiv", a, b)

    def rem(self, a: Operand, b: Operand) -> Value:
        return self._binary("frem", "srem", a, b)

    def divided(self, index: Value, by: int) -> tuple[Value, Value]:
        """Quotient and remainder of an index that is not negative."""
        if by == 1:
            return index, self.int64(0)
        quotient = self.div(index, by)
        remaining = self.sub(index, self.mul(quotient, by))
        return quotient, replace(remaining, affine=self.bounds.remainder(index.affine, Sum(by)))

    def bit_and(self, a: Operand, b: Operand) -> Value:
        x, y = self._pair(a, b)
        affine = self.bounds.masked(x.affine, y.affine) if x.type is INT64 else None
        result = self.value(f"and {x.type} {x}, {y}", x.type, affine=affine)
        if x.type is BOOL:
            self._both[result.text] = x, y
        return result

    def bit_or(self, a: Operand, b: Operand) -> Value:
        x, y = self._pair(a, b)
        return self.value(f"or {x.type} {x}, {y}", x.type)

    def bit_xor(self, a: Operand, b: Operand) -> Value:
        x, y = self._pair(a, b)
        return self.value(f"xor {x.type} {x}, {y}", x.type)

    def shift_left(self, a: Value, by: Operand) -> Value:
        return self.value(f"shl {a.type} {a}, {self._as(by, a.type)}", a.type)

    def shift_right_logical(self, a: Value, by: Operand) -> Value:
        """Logical shift: fills with zeros."""
        affine = self.bounds.between(0, (1 << 64 - by) - 1) if a.type is INT64 and isinstance(by, int) and by > 0 else None
        return self.value(f"lshr {a.type} {a}, {self._as(by, a.type)}", a.type, affine=affine)

    def neg(self, a: Value) -> Value:
        return self.value(f"fneg {a.type} {a}", a.type) if a.type.is_float else self.sub(0, a)

    def intrinsic(self, name: str, *operands: Value, result: Type | None = None) -> Value:
        """Call an LLVM intrinsic, overloaded on the type of the first operand."""
        result = result or operands[0].type
        if any(operand.type.is_vector is not operands[0].type.is_vector for operand in operands):
            raise TypeError(f"{name} of {', '.join(repr(operand.type) for operand in operands)}")
        full = f"llvm.{name}.{operands[0].type.suffix}"
        self.module.declare(f"declare {result} @{full}({', '.join(str(operand.type) for operand in operands)})")
        arguments = ", ".join(f"{operand.type} {operand}" for operand in operands)
        return self.value(f"call {result} @{full}({arguments})", result)

    def of_processor(self, name: str, result: Type, *operands: Value) -> Value:
        """Call an LLVM intrinsic of a family of processors, by its full name without ``llvm.``."""
        self.module.declare(f"declare {result} @llvm.{name}({', '.join(str(operand.type) for operand in operands)})")
        arguments = ", ".join(f"{operand.type} {operand}" for operand in operands)
        return self.value(f"call {result} @llvm.{name}({arguments})", result)

    def fma(self, a: Value, b: Operand, c: Operand) -> Value:
        """``a * b + c``, rounded once if the processor has an instruction for it, else twice."""
        if a.type.element not in self.module.target.fused:
            return self.add(self.mul(a, b), c)
        return self.intrinsic("fma", a, self._as(b, a.type), self._as(c, a.type))

    def compare(self, relation: str, a: Operand, b: Operand) -> Value:
        """Test a relation. Floats: ``oeq``, ``une``, ``olt``, ``ole``, ``ogt``, ``oge``, ``uno`` and the like. Integers: ``eq``,
        ``ne``, ``slt``, ``sle``, ``sgt``, ``sge``."""
        x, y = self._pair(a, b)
        result = self.value(f"{'f' if x.type.is_float else 'i'}cmp {relation} {x.type} {x}, {y}", x.type.with_element(BOOL))
        if x.affine is not None and y.affine is not None:
            self._compared[result.text] = relation, x.affine, y.affine
        return result

    def select(self, condition: Value, a: Operand, b: Operand) -> Value:
        """Select `a` in lanes where the condition holds, `b` elsewhere. A number as condition selects all lanes at once."""
        x, y = self._pair(a, b)
        if condition.type not in (BOOL, x.type.with_element(BOOL)):
            raise TypeError(f"{condition.type!r} chooses between {x.type!r} and another")
        root, affine = -1, None
        if x.type is INT64 or (x.type is POINTER and x.root == y.root):
            root, affine = x.root, self.bounds.either(x.affine, y.affine, self._fact_of(condition))
        return self.value(f"select {condition.type} {condition}, {x.type} {x}, {y.type} {y}", x.type, root, affine)

    def max(self, a: Operand, b: Operand) -> Value:
        """The maximum of two values; `b` if either is NaN."""
        x, y = self._pair(a, b)
        result = self.select(self.compare("ogt" if x.type.is_float else "sgt", x, y), x, y)
        return replace(result, affine=self.bounds.greater(x.affine, y.affine)) if x.type is INT64 else result

    def min(self, a: Operand, b: Operand) -> Value:
        """The minimum; for floats `b` if either is NaN."""
        x, y = self._pair(a, b)
        result = self.select(self.compare("olt" if x.type.is_float else "slt", x, y), x, y)
        return replace(result, affine=self.bounds.lesser(x.affine, y.affine)) if x.type is INT64 else result

    # -- lanes together
    def across(self, vector: Value, combine: Callable[[Value, Value], Value]) -> Value:
        """Reduce all lanes to a number, half with half; the order depends on the number of lanes alone."""
        _require_vector(vector)
        while vector.type.lanes > 2:
            half = vector.type.lanes // 2
            vector = combine(self.shuffle(vector, vector, range(half)), self.shuffle(vector, vector, range(half, 2 * half)))
        first = self.lane(vector, 0)
        return first if vector.type.lanes == 1 else combine(first, self.lane(vector, 1))

    def total(self, vector: Value) -> Value:
        """The sum of all lanes."""
        return self.across(vector, self.add)

    def any(self, condition: Value) -> Value:
        """Whether a condition holds in any lane."""
        if condition.type.lanes == 1:
            return Value(condition.text, BOOL)
        return self.intrinsic("vector.reduce.or", condition, result=BOOL)

    # -- memory
    def _hidden(self, index: Value) -> Value:
        """The same index, with its origin hidden from the code generator until instruction selection.

        Unlike `opaque`, this needs no register.
        """
        self.module.declare("declare i64 @llvm.expect.i64(i64, i64)")
        return self.value(f"call i64 @llvm.expect.i64(i64 {index}, i64 0)", INT64, affine=index.affine)

    def opaque(self, pointer: Value) -> Value:
        """The same pointer, with its origin hidden from the code generator.

        A loop that advances such a pointer keeps it in a register and reads at constant offsets from it. Otherwise LLVM spends
        half of the compile time searching for better addressing, and finds none.
        """
        return self.value(f'call ptr asm "", "=r,0"(ptr {pointer})', POINTER, pointer.root, pointer.affine)

    def at(self, pointer: Value, index: Operand, element: Type) -> Value:
        """The pointer to an element of an array."""
        if isinstance(index, int) and index == 0:
            return pointer
        at = self.int64(index)
        affine = None if pointer.affine is None or at.affine is None else pointer.affine.plus(at.affine, element.bytes)
        text = f"getelementptr inbounds {_in_memory(element)}, ptr {pointer}, i64 {at}"
        return self._once(text, POINTER, pointer.root, affine)

    def load(self, pointer: Value, type_: Type, align: int | None = None) -> Value:
        """Load a value of a type: one element, or consecutive elements for the lanes of a vector. Truth values are bytes."""
        if type_.element == "i1":
            return self.convert(self.load(pointer, type_.with_element(BYTE), align), BOOL)
        root = pointer.root if type_ == POINTER else -1
        pointer = self.within(pointer, type_.bytes * type_.lanes)
        return self.value(f"load {type_}, ptr {pointer}, align {align or self._alignment(type_)}", type_, root)

    def _alignment(self, type_: Type) -> int:
        """The least alignment of an element in memory."""
        return self.module.target.pointer_bytes if type_ == POINTER else type_.bytes

    def load_first(self, pointer: Value, type_: Type, count: int) -> Value:
        """Load `count` consecutive elements into the first lanes; the remaining lanes are zero and their memory is not read."""
        assert type_.is_vector, "a vector has lanes"
        if count == type_.lanes:
            return self.load(pointer, type_)
        mask, name = BOOL.of(type_.lanes), f"llvm.masked.load.{type_.suffix}.p0"
        self.module.declare(f"declare {type_} @{name}(ptr, i32, {mask}, {type_})")
        lanes = f"{mask} {_first_lanes(type_.lanes, count)}, {type_} zeroinitializer"
        pointer = self.within(pointer, type_.bytes * count)
        return self.value(f"call {type_} @{name}(ptr {pointer}, i32 {type_.bytes}, {lanes})", type_)

    def store_first(self, value: Value, pointer: Value, count: int) -> None:
        """Store the first `count` lanes to consecutive elements; memory behind them is not touched."""
        _require_vector(value)
        type_ = value.type
        if count == type_.lanes:
            return self.store(value, pointer)
        mask, name = BOOL.of(type_.lanes), f"llvm.masked.store.{type_.suffix}.p0"
        self.module.declare(f"declare void @{name}({type_}, ptr, i32, {mask})")
        lanes = f"{mask} {_first_lanes(type_.lanes, count)}"
        pointer = self.within(pointer, type_.bytes * count)
        self.write(f"call void @{name}({type_} {value}, ptr {pointer}, i32 {type_.bytes}, {lanes})")

    def load_steps(self, pointer: Value, type_: Type, step: int) -> Value:
        """Load a vector with a stride of `step` elements; with a stride of 0, load one number."""
        if step in (0, 1):
            return self.load(pointer, type_.number if step == 0 else type_)
        vector = Value("poison", type_)
        for lane in range(type_.lanes):
            item = self.load(self.at(pointer, lane * step, type_), type_.number)
            vector = self.with_lane(vector, lane, item)
        return vector

    def gather(self, pointer: Value, places: Value, element: Type, count: int) -> Value:
        """Load the element at each of some places of an array of `count` elements."""
        if element.element == "i1":
            return self.convert(self.gather(pointer, places, BYTE, count), BOOL)
        type_ = element.of(places.type.lanes)
        if self._guard is not None or type_.lanes == 1:
            vector = Value("poison", type_)
            for lane in range(type_.lanes):
                place = self.between(self.convert(self.lane(places, lane), INT64), 0, count - 1)
                vector = self.with_lane(vector, lane, self.load(self.at(pointer, place, element), element))
            return vector
        all_of_it = None if pointer.affine is None else pointer.affine.plus(self.bounds.between(0, count - 1), element.bytes)
        self.bounds.access(pointer.root, all_of_it, element.bytes)
        lanes, mask = f"<{type_.lanes} x ptr>", BOOL.of(type_.lanes)
        pointers = self.value(f"getelementptr inbounds {element}, ptr {pointer}, {places.type} {places}", POINTER.of(type_.lanes))
        name = f"llvm.masked.gather.{type_.suffix}.v{type_.lanes}p0"
        self.module.declare(f"declare {type_} @{name}({lanes}, i32, {mask}, {type_})")
        arguments = f"{lanes} {pointers}, i32 {element.bytes}, {mask} splat (i1 true), {type_} poison"
        return self.value(f"call {type_} @{name}({arguments})", type_)

    def store_steps(self, vector: Value, pointer: Value, step: int) -> None:
        """Store the lanes of a vector with a stride of `step` elements."""
        if step == 1:
            return self.store(vector, pointer)
        for lane in range(vector.type.lanes):
            self.store_number(self.lane(vector, lane), self.at(pointer, lane * step, vector.type))

    def join(self, vectors: Sequence[Value]) -> Value:
        """One vector of the lanes of several of equal width, whose number is a power of two."""
        width = vectors[0].type.lanes
        if width == 1:
            joined = Value("poison", vectors[0].type.of(len(vectors)))
            for lane, vector in enumerate(vectors):
                joined = self.with_lane(joined, lane, self.lane(vector, 0))
            return joined
        while len(vectors) > 1:
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [self.shuffle(first, second, range(2 * first.type.lanes)) for first, second in pairs]
        return vectors[0]

    def with_lane(self, vector: Value, lane: int, number: Value) -> Value:
        """Replace one lane of a vector by a number."""
        _require_vector(vector)
        _require_number(number)
        if vector.type.lanes == 1:
            return Value(number.text, vector.type)
        return self.value(f"insertelement {vector.type} {vector}, {number.type} {number}, i64 {lane}", vector.type)

    def stack(self, type_: Type, count: int) -> Value:
        """Allocate stack memory for `count` values; it lives until the function returns."""
        name = self._new()
        self._stack.append(f"  {name} = alloca {type_}, i64 {count}, align 64")
        self._stacks.append(type_.bytes * type_.lanes * count)
        return Value(name, POINTER, -1 - len(self._stacks), Sum(0))

    def store(self, vector: Value, pointer: Value, align: int | None = None) -> None:
        """Store the lanes of a vector to consecutive elements."""
        _require_vector(vector)
        self._store(vector, pointer, align)

    def store_number(self, number: Value, pointer: Value) -> None:
        """Store one element."""
        _require_number(number)
        self._store(number, pointer)

    def _store(self, value: Value, pointer: Value, align: int | None = None) -> None:
        if value.type.element == "i1":
            value = self.convert(value, BYTE)
        pointer = self.within(pointer, value.type.bytes * value.type.lanes)
        self.write(f"store {value.type} {value}, ptr {pointer}, align {align or self._alignment(value.type)}")

    # -- tiles of AMX: 8 registers of up to 16 rows of 64 bytes
    def configure_tiles(self, rows: Sequence[int]) -> None:
        """Set the number of rows of each tile; `release_tiles` ends this."""
        words = bytes([1, *[0] * 15, *[64, 0] * len(rows), *[0, 0] * (16 - len(rows)), *rows, *[0] * (16 - len(rows))])
        memory = self.stack(INT32, 16)
        for number in range(16):
            word = int.from_bytes(words[4 * number : 4 * number + 4], "little")
            self.store_number(constant(word, INT32), self.at(memory, number, INT32))
        self._of_tiles("ldtilecfg", memory)

    def release_tiles(self) -> None:
        self._of_tiles("tilerelease")

    def clear_tile(self, tile: int) -> None:
        self._of_tiles("tilezero", tile)

    def load_tile(self, tile: int, pointer: Value, rows: int, stride: int) -> None:
        """Load rows of 64 bytes, which lie `stride` bytes apart."""
        self._note_tile(pointer, rows, stride)
        self._of_tiles("tileloadd64", tile, pointer, self.int64(stride))

    def store_tile(self, tile: int, pointer: Value, rows: int, stride: int) -> None:
        """Store rows of 64 bytes `stride` bytes apart."""
        self._note_tile(pointer, rows, stride)
        self._of_tiles("tilestored64", tile, pointer, self.int64(stride))

    def multiply_tiles(self, sums: int, a: int, b: int) -> None:
        """Add the products of unsigned bytes of `a` and signed bytes of `b`, in fours, to the sums of 32 bits."""
        self._of_tiles("tdpbusd", sums, a, b)

    def _note_tile(self, pointer: Value, rows: int, stride: int) -> None:
        for row in range(rows):
            self.within(self.at(pointer, row * stride, BYTE), 64)

    def _of_tiles(self, name: str, *operands: Value | int) -> None:
        types = ["i8 immarg" if isinstance(operand, int) else str(operand.type) for operand in operands]
        self.module.declare(f"declare void @llvm.x86.{name}({', '.join(types)})")
        arguments = ", ".join(f"i8 {each}" if isinstance(each, int) else f"{each.type} {each}" for each in operands)
        self.write(f"call void @llvm.x86.{name}({arguments})")

    def guard(self, bounds: Sequence[tuple[Value, Value]], fault: Value) -> None:
        """From here on, test each access through a pointer with a root against the bounds of the root.

        The first access outside is recorded; all accesses outside are redirected to dummy memory. Called functions have no
        guard, and their pointer arguments have no root.

        Args:
            bounds: per root, the addresses of its first byte and of the byte after its last, INT64.
            fault: pointer to two words of 64 bits: root + 1, and the byte offset of the access from the root's first byte.
        """
        if _WITHIN not in self.module:
            _write_within(self.module)
        self._guard = _Guard(bounds, fault, self.value(f"alloca [{_NOWHERE_BYTES} x i8], align 64", POINTER))

    def footprints(self, operands: int) -> list[Footprint]:
        """The footprint of each operand of a kernel.

        Raises:
            ValueError: the kernel may access memory outside of its operands, or the extent of an access is unknown.
        """
        by_root = self.bounds.footprints()
        for number, size in enumerate(self._stacks):
            low, high = by_root.pop(-2 - number, (0, 0))
            if low < 0 or high > size:
                raise ValueError(f"{self.name} accesses bytes {low} to {high} of {size} on the stack")
        footprints = []
        for number in range(operands):
            low, high = by_root.pop(number, (0, 0))
            if -inf in (low, high) or inf in (low, high):
                raise ValueError(f"{self.name} accesses nobody knows how much of operand {number}")
            footprints.append((int(low), int(high)))
        if by_root:
            raise ValueError(f"{self.name} uses a pointer with an unknown target")
        return footprints

    def within(self, pointer: Value, size: int) -> Value:
        """Note an access of `size` bytes, and return the pointer for it; a guard replaces pointers outside by safe ones."""
        self.bounds.access(pointer.root, pointer.affine, size)
        if self._guard is None or pointer.root < 0:
            return pointer
        assert size <= _NOWHERE_BYTES, "an access fits in the memory that serves for nothing"
        low, high = self._guard.bounds[pointer.root]
        operands = (pointer, self.int64(size), low, high, self.int64(pointer.root), self._guard.fault, self._guard.nowhere)
        safe = self.call(_WITHIN, *operands, result=POINTER)
        assert safe is not None
        return safe

    def call(self, name: str, *operands: Value, result: Type | None = None) -> Value | None:
        """Call a function of the module by its name."""
        arguments = ", ".join(f"{operand.type} {operand}" for operand in operands)
        if result is None:
            self.write(f"call void @{name}({arguments})")
            return None
        return self.value(f"call {result} @{name}({arguments})", result)


_RESULTS: dict[str, Callable[[IndexBounds, Sum | None, Sum | None], Sum | None]] = {
    "add": lambda bounds, a, b: None if a is None or b is None else a.plus(b),
    "sub": lambda bounds, a, b: None if a is None or b is None else a.plus(b, -1),
    "mul": IndexBounds.product,
    "sdiv": IndexBounds.quotient,
    "srem": IndexBounds.remainder,
}


def _first_lanes(lanes: int, count: int) -> str:
    return f"<{', '.join(f'i1 {int(lane < count)}' for lane in range(lanes))}>"


def _in_memory(element: Type) -> Type:
    return BYTE if element.element == "i1" else element.number


def _require_vector(value: Value) -> None:
    if not value.type.is_vector:
        raise TypeError(f"{value.type!r} stands in the place of a vector")


def _require_number(value: Value) -> None:
    if value.type.is_vector:
        raise TypeError(f"{value.type!r} stands in the place of a number")


@dataclass(frozen=True)
class _Guard:
    """The arguments of `Function.guard`, and dummy memory for accesses outside."""

    bounds: Sequence[tuple[Value, Value]]
    fault: Value
    nowhere: Value


_WITHIN = "within"
_NOWHERE_BYTES = 1024


def _write_within(module: Module) -> None:
    """Write the function that a guard calls: it records an access outside, and returns the pointer to use instead."""
    f = Function(module, _WITHIN, [POINTER, INT64, INT64, INT64, INT64, POINTER, POINTER], POINTER, "internal")
    pointer, size, low, high, root, fault, nowhere = f.arguments
    address = f.value(f"ptrtoint ptr {pointer} to i64", INT64)
    is_outside = f.bit_or(f.compare("slt", address, low), f.compare("sgt", f.add(address, size), high))
    is_first = f.compare("eq", f.load(fault, INT64), 0)
    with f.when(f.bit_and(is_outside, is_first)):
        f.store_number(f.add(root, 1), fault)
        f.store_number(f.sub(address, low), f.at(fault, 1, INT64))
    f.end(f.select(is_outside, nowhere, pointer))

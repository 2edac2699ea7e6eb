"""Elementwise calls of a plan as few CUDA kernels.

Neighbouring calls of ufuncs are a *chain*, which goes over the elements once: results of one call are in registers for the next.
Chains of the same code that do not touch each other's memory are one kernel, with a table of addresses: so the updates of all
parameters by an optimizer are one kernel. Each operation is rounded as in cupy's own kernels, so results have the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fluid.values.memory import address_of, extent_of

from ..runtime.calls import Call

__all__ = ["fuse"]

_THREADS, _CHUNK = 256, 1024
"""Threads of a block, and the elements that a block computes."""
_GREATER = "({0} != {0} || {1} != {1}) ? {0} + {1} : ({0} > {1} ? {0} : {1})"
_EXPRESSIONS = {
    "add": "{0} + {1}",
    "subtract": "{0} - {1}",
    "multiply": "{0} * {1}",
    "divide": "{0} / {1}",
    "negative": "-{0}",
    "square": "{0} * {0}",
    "maximum": _GREATER,
    "minimum": _GREATER.replace(">", "<"),
    **{name: f"{name}#({{0}})" for name in ("sqrt", "exp", "log", "tanh")},
    "absolute": "fabs#({0})",
}
"""Name of a ufunc -> its value in C, of operands; # stands for the f of functions of floats."""
_Owner = TypeVar("_Owner")
_Key = tuple[Any, ...]
"""An address with the shape of an array: arrays of one key have the same elements at the same indices."""


class _ElementwiseStep(NamedTuple):
    """An elementwise call.

    Attributes:
        value: its value in C.
        operands: arrays, and numbers in C.
    """

    value: str
    operands: list[Any]
    out: Any


def _key(array: Any) -> _Key:
    return (address_of(array), array.size if array.flags.c_contiguous else (array.shape, array.strides))


def _step_of(xp: Any, call: Call) -> _ElementwiseStep | None:
    """A call as a step of a chain; None for other calls, types and layouts."""
    args, keywords = list(call.args), dict(call.keywords)
    name = next((name for name in _EXPRESSIONS if call.func is getattr(xp, name)), "")
    if name:
        count = 2 if "{1}" in _EXPRESSIONS[name] else 1
        out = args.pop() if len(args) == count + 1 else keywords.pop("out", None)
        value = _EXPRESSIONS[name]
    elif call.func is xp.copyto or call.func is xp.ndarray.fill:
        count, value = 1, "{0}"
        out = args.pop(0) if args else None
    else:
        return None
    if keywords or len(args) != count or not isinstance(out, xp.ndarray) or not out.flags.c_contiguous or not out.size:
        return None
    if out.dtype not in (np.float32, np.float64):
        return None
    operands = [_operand(xp, operand, out) for operand in args]
    return None if any(operand is None for operand in operands) else _ElementwiseStep(value, operands, out)


def _operand(xp: Any, value: Any, out: Any) -> Any:
    """An operand of a step: an array of the output's type, or a number in C; None for others."""
    if isinstance(value, xp.ndarray):
        fits = value.dtype == out.dtype and value.ndim <= out.ndim
        return value if fits and np.broadcast_shapes(value.shape, out.shape) == out.shape else None
    if type(value) not in (bool, int, float) and getattr(value, "dtype", None) != out.dtype:
        return None
    number = float(out.dtype.type(value))
    return f"({number.hex()}{'f' if out.dtype == np.float32 else ''})" if isfinite(number) else None


def _index(array: Any, out: Any) -> str:
    """The index of an operand's element, in C, for element `i` of the output."""
    if array.size == 1:
        return "0"
    if array.size == out.size and array.flags.c_contiguous:
        return "i"
    strides = (0,) * (out.ndim - array.ndim) + array.strides
    shape, terms, below = (1,) * (out.ndim - array.ndim) + array.shape, [], 1
    for extent, size, stride in zip(reversed(out.shape), reversed(shape), reversed(strides), strict=True):
        if size > 1 and stride:
            place = "i" if below == 1 else f"i / {below}"
            terms.append(f"{place} % {extent}" + (f" * {stride // array.itemsize}" if stride != array.itemsize else ""))
        below *= extent
    return " + ".join(terms) or "0"


class _ElementwiseChain:
    """Steps that go over the elements together.

    Values of one element are computed by every thread, and stored by one. So a chain with more elements does not overwrite a
    single number that it reads.
    """

    def __init__(self, dtype: Any) -> None:
        self.dtype, self.size = dtype, 1
        self.calls: list[Call] = []
        self._numbers: list[str] = []
        """Code for single numbers, which comes before the loop over elements."""
        self._lines: list[str] = []
        """Code inside the loop over elements."""
        self._registers: dict[tuple[_Key, str], str] = {}
        """Array and index -> the element."""
        self._stores: dict[_Key, Any] = {}
        self._arrays: dict[_Key, Any] = {}
        """Arrays whose memory it accesses, by key, in the order of their pointers."""
        self._loaded: list[_Key] = []

    def takes(self, step: _ElementwiseStep) -> bool:
        """Whether a step can be added."""
        out, size = _key(step.out), step.out.size
        if step.out.dtype != self.dtype or (size > 1 and self.size not in (1, size)):
            return False
        arrays = [array for array in step.operands if not isinstance(array, str)]
        reads = [array for array in arrays if (_key(array), _index(array, step.out)) not in self._registers]
        if max(size, self.size) > 1:  # threads would load what another one stores
            loaded = {*self._loaded, *map(_key, reads)}
            stored = {key for key, array in self._stores.items() if array.size == 1} | ({out} if size == 1 else set())
            if not loaded.isdisjoint(stored):
                return False
        if any(_overlap(read, stored) for read in reads for stored in self._stores.values()):
            return False
        accessed = [array for key, array in {**self._arrays, **self._stores}.items() if key != out]
        accessed += [array for array in arrays if _key(array) != out]
        return not any(_overlap(step.out, array) for array in accessed)

    def add(self, step: _ElementwiseStep, call: Call) -> None:
        """Add a call, as a step that it takes."""
        self.size = max(self.size, step.out.size)
        self.calls.append(call)
        lines = self._numbers if step.out.size == 1 else self._lines
        values = [operand if isinstance(operand, str) else self._load(operand, step.out) for operand in step.operands]
        value = step.value.format(*values).replace("#", "f" if self.dtype == np.float32 else "")
        register, key = f"r{len(self._numbers) + len(self._lines)}", _key(step.out)
        self._registers[key, _index(step.out, step.out)], self._stores[key] = register, step.out
        lines.append(f"const T {register} = {value};")

    def _load(self, array: Any, out: Any) -> str:
        key, index = _key(array), _index(array, out)
        register = self._registers.get((key, index))
        if register is None:
            self._arrays.setdefault(key, array)
            self._loaded.append(key)
            self._registers[key, index] = register = f"r{len(self._numbers) + len(self._lines)}"
            place = f"p{list(self._arrays).index(key)}[{index}]"
            (self._numbers if array.size == 1 else self._lines).append(f"const T {register} = {place};")
        return register

    @property
    def loads(self) -> list[tuple[int, int]]:
        """The memory that it reads."""
        return [extent_of(self._arrays[key]) for key in self._loaded]

    def forget(self, memory: Sequence[tuple[int, int]]) -> None:
        """Forget the results in this memory: nothing reads them any more."""
        for key, array in list(self._stores.items()):
            start, end = extent_of(array)
            if any(first <= start and end <= last for first, last in memory):
                del self._stores[key], self._registers[key, _index(array, array)]

    def finish(self) -> None:
        """Write the code, with stores of the results that are not forgotten."""
        for key, array in self._stores.items():
            self._arrays.setdefault(key, array)
        places = list(self._arrays)
        stores = [
            (array.size, f"p{places.index(key)}", self._registers[key, _index(array, array)])
            for key, array in self._stores.items()
        ]
        numbers = "\n".join(
            [*self._numbers, *(f"if (first == 0) {place}[0] = {value};" for size, place, value in stores if size == 1)]
        )
        lines = "\n".join([*self._lines, *(f"{place}[i] = {value};" for size, place, value in stores if size > 1)])
        pointers = "\n".join(f"T* p{number} = (T*)pointers[{number}];" for number in range(len(places)))
        self.source = _SOURCE % {
            "type": "float" if self.dtype == np.float32 else "double",
            "index": "int" if self.size < 1 << 30 else "long long",
            "count": len(places),
            "pointers": pointers,
            "numbers": numbers,
            "lines": lines,
            "chunk": _CHUNK,
            "threads": _THREADS,
        }
        self.arrays = list(self._arrays.values())
        self.stores = [extent_of(array) for array in self._stores.values()]


_SOURCE = """
typedef %(type)s T;
extern "C" __global__ void fused(const unsigned long long* table, const long long* sizes, const long long* starts, int segments) {
int low = 0, high = segments;
while (high - low > 1) {
const int middle = (low + high) / 2;
if (starts[middle] <= (long long)blockIdx.x) low = middle; else high = middle;
}
const unsigned long long* pointers = table + (long long)low * %(count)s;
const long long start = ((long long)blockIdx.x - starts[low]) * %(chunk)s, first = start + threadIdx.x;
const long long end = start + %(chunk)s < sizes[low] ? start + %(chunk)s : sizes[low];
%(pointers)s
%(numbers)s
for (%(index)s i = first; i < end; i += %(threads)s) {
%(lines)s
}
}
"""


def _overlap(a: Any, b: Any) -> bool:
    return _meet([extent_of(a)], [extent_of(b)])


def _meet(first: Sequence[tuple[int, int]], second: Sequence[tuple[int, int]]) -> bool:
    """Whether any two ranges of addresses, one of each list, overlap."""
    return any(start < other_end and other_start < end for start, end in first for other_start, other_end in second)


@dataclass
class _FusedKernel:
    """Chains of the same code, which do not touch each other's memory."""

    source: str
    chains: list[_ElementwiseChain] = field(default_factory=list)
    loads: list[tuple[int, int]] = field(default_factory=list)
    stores: list[tuple[int, int]] = field(default_factory=list)

    def add(self, chain: _ElementwiseChain) -> None:
        self.chains.append(chain)
        self.loads += chain.loads
        self.stores += chain.stores

    def meets(self, chain: _ElementwiseChain) -> bool:
        """Whether a chain writes memory that it accesses, or the reverse."""
        return _meet(chain.stores, self.loads) or _meet(chain.stores, self.stores) or _meet(chain.loads, self.stores)

    def call(self, xp: Any) -> Call:
        """The call that starts it, or its only call. Its tables are copied to the device now."""
        if len(self.chains) == len(self.chains[0].calls) == 1:
            return self.chains[0].calls[0]
        sizes = [chain.size for chain in self.chains]
        blocks = [-(-size // _CHUNK) for size in sizes]
        table = np.array([[address_of(array) for array in chain.arrays] for chain in self.chains], "uint64")
        starts = np.cumsum([0, *blocks[:-1]], dtype="int64")
        arguments = (xp.asarray(table), xp.asarray(np.array(sizes, "int64")), xp.asarray(starts), np.int32(len(sizes)))
        kernel = xp.RawKernel(self.source, "fused", options=("--fmad=false",))
        kernel.compile()
        return partial(kernel, (sum(blocks),), (_THREADS,), arguments)


def fuse(xp: Any, calls: Sequence[tuple[_Owner, Call]], scratch: Sequence[Any]) -> list[tuple[_Owner, Call]]:
    """Put kernels in place of elementwise calls.

    Args:
        calls: calls with their owners: neighbouring calls of one owner share intermediate results in scratch memory.
        scratch: this memory, as arrays. Results that an owner leaves in it are not read.

    Returns:
        Calls with owners; a kernel belongs to the first of its owners.
    """
    memory = [extent_of(array) for array in scratch]
    items: list[tuple[_Owner, Call | _ElementwiseChain]] = []
    chain: _ElementwiseChain | None = None
    of_owner: list[_ElementwiseChain] = []
    """The chains of the present owner since its last call that is in none."""
    for number, (owner, call) in enumerate(calls):
        step = _step_of(xp, call)
        if step is None or not _ElementwiseChain(step.out.dtype).takes(step):
            chain, of_owner = None, []
            items.append((owner, call))
        else:
            if chain is None or not chain.takes(step):
                chain = _ElementwiseChain(step.out.dtype)
                items.append((owner, chain))
            chain.add(step, call)
            of_owner += [chain] if not of_owner or of_owner[-1] is not chain else []
        if number + 1 == len(calls) or calls[number + 1][0] is not owner:
            _forget(of_owner, memory)
            of_owner = []
    return [(owner, item.call(xp) if isinstance(item, _FusedKernel) else item) for owner, item in _merge(items)]


def _forget(chains: Sequence[_ElementwiseChain], memory: Sequence[tuple[int, int]]) -> None:
    """Let chains forget their results in this memory, which nothing after them reads, unless a later chain does."""
    for chain in reversed(chains):
        chain.forget(memory)
        if _meet(memory, chain.loads):
            break


def _merge(items: Sequence[tuple[_Owner, Any]]) -> list[tuple[_Owner, Any]]:
    """Put kernels in place of chains."""
    merged: list[tuple[_Owner, Any]] = []
    for owner, item in items:
        if not isinstance(item, _ElementwiseChain):
            merged.append((owner, item))
            continue
        item.finish()
        kernel = _kernel_for(item, merged)
        if kernel is None:
            kernel = _FusedKernel(item.source)
            merged.append((owner, kernel))
        kernel.add(item)
    return merged


def _kernel_for(chain: _ElementwiseChain, before: Sequence[tuple[Any, Any]]) -> _FusedKernel | None:
    """The last kernel with the code of a chain, if the chain meets neither it nor a kernel behind it; else None."""
    for _, kernel in reversed(before):
        if not isinstance(kernel, _FusedKernel) or kernel.meets(chain):
            return None
        if kernel.source == chain.source:
            return kernel
    return None

"""Bound kernels as functions of the arrays that they were bound to.

A prepared kernel does its work for given shapes once, when it is bound, and returns calls on the arrays that it was bound to.
Where arrays change from run to run, that work would be repeated. Instead the kernel is bound to placeholder arrays, and its calls
become the source of a function whose parameters (inputs) and local variables (outputs, intermediate results) replace those::

    def elementwise_add_grad(a0):
        b0 = empty((16, 32), float32)
        copyto(b0, a0)
        b1 = dot(c0, a0)
        return b0, b1

Calls are data (`fluid.executor.runtime.calls`), so everything that a call works on is known. If a call is not data, such as a
lambda of a user's kernel, `function_of` returns None.

Large intermediate results lie in the thread's spare memory, which the function gives back at its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from keyword import iskeyword
from types import CodeType
from typing import Any

import numpy as np

from fluid.values.cache import Cache
from fluid.values.memory import address_of

from ..runtime import spare
from ..runtime.calls import PLAIN, Call, is_named

_ALIGNED = 64
"""Arrays in spare memory start at multiples of this many bytes."""
_MOST_BROADCAST = 32
"""Dimensions of arrays whose shapes numpy's `broadcast_shapes` compares."""


class _Opaque(Exception):
    """A call is not data."""


class Lender:
    """Allocates arrays for intermediate results; those allocated while a kernel is bound become local variables."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        self.lent: list[Any] = []

    def __call__(self, shape: Any, dtype: Any) -> Any:
        array = self.xp.empty(shape, dtype)
        self.lent.append(array)
        return array


def function_of(
    name: str,
    calls: Sequence[Call],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    results: Sequence[Any],
    lender: Lender,
    copied: Sequence[Any] = (),
) -> Callable[..., Any] | None:
    """Write a function of arrays like `inputs` that makes these calls and returns arrays like `results`; None if a call is not
    data.

    Args:
        calls: the calls, on the inputs, the outputs, arrays of the lender, and constants.
        inputs: placeholders of the arguments; None for arguments that nothing reads.
        outputs: arrays that the calls write to; the function allocates new ones.
        copied: the inputs that the calls overwrite; the function copies them first.
        results: the inputs and outputs that the function returns: one array, or a tuple of several; None stays None.
    """
    writer = _SourceWriter(inputs, [*outputs, *lender.lent], lender)
    try:
        for array in copied:
            writer.lines.append(f"{writer.root_name(array)} = {writer.root_name(array)}.copy()")
        for call in calls:
            writer.call(call)
        names = [writer.root_name(array) for array in results]
    except _Opaque:
        return None
    returned = names[0] if len(names) == 1 else f"({''.join(item + ', ' for item in names)})"
    parameters = ", ".join(f"a{number}" for number in range(len(inputs)))
    body = "".join(f"    {line}\n" for line in [*writer.body(), f"return {returned}"])
    name = f"{name}_" if iskeyword(name) else name
    source = f"def {name}({parameters}):\n{body}"
    code = _codes.get(source) or _codes.keep(source, compile(source, f"<{name}>", "exec"))
    exec(code, writer.constants)
    function: Callable[..., Any] = writer.constants[name]
    function.__doc__ = source
    return function


def parameters_read(function: Callable[..., Any]) -> frozenset[int]:
    """The positions of the parameters that the body of a written function names."""
    return frozenset(map(int, re.findall(r"\ba(\d+)\b", (function.__doc__ or "").partition("\n")[2])))


_codes: Cache[str, CodeType] = Cache()
"""Source -> its code object, which functions that differ only in constants share."""


class _SourceWriter:
    """Writes calls as source lines. `constants` are the globals of the function."""

    def __init__(self, inputs: Sequence[Any], local: Sequence[Any], lender: Lender) -> None:
        self._xp = lender.xp
        self._roots = {id(array): (array, f"a{number}") for number, array in enumerate(inputs) if array is not None}
        self._locals = {id(array): (array, f"b{number}") for number, array in enumerate(local) if array is not None}
        self._spare = {id(array) for array in lender.lent if lender.xp is np and array.nbytes >= spare.LARGE}
        self._spare_bytes = 0
        self._views: dict[Any, str] = {}
        self._constant_names: dict[int, str] = {}
        self.constants: dict[str, Any] = {}
        self.lines: list[str] = []

    def body(self) -> list[str]:
        """All lines but the return statement."""
        if not self._spare_bytes:
            return self.lines
        take_line = f"spare = {self.constant(spare.take)}({self._spare_bytes})"
        return [take_line, *self.lines, f"{self.constant(spare.give_back)}(spare)"]

    # ------------------------------------------------------------------------------------------------------- calls
    def call(self, call: Call) -> None:
        if not isinstance(call, partial):
            raise _Opaque
        function, args, keywords = call.func, call.args, call.keywords
        if not self._fills_new(function, args, keywords):
            name = self._named(function)
            self.lines.append(f"{name}({self._operands(args, keywords)})")

    def _operands(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> str:
        parts = [self.expression(arg) for arg in args]
        return ", ".join([*parts, *(f"{key}={self.expression(value)}" for key, value in keywords.items())])

    def _fills_new(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Write a call that fills a new array as one that returns it, if both have the same result: this saves an allocation."""
        if self._xp is not np:
            return False
        copied = function is np.copyto and len(args) == 2 and not kwargs
        target, sources = (args[0], args[1:]) if copied else _destination(function, args, kwargs)
        if target is not None:
            target = self._full_root(target)
        if target is None or id(target) not in self._locals or id(target) in self._spare or not target.ndim:
            return False
        if not (_alike(sources[0], target) if copied else _makes(function, sources, target)):
            return False
        values = [self.expression(source) for source in sources]
        if id(target) in self._roots:  # already written, or read by this call
            return False
        self._roots[id(target)] = self._locals[id(target)]
        expression = f"{values[0]}.copy()" if copied else f"{self.constant(function)}({', '.join(values)})"
        self.lines.append(f"{self._locals[id(target)][1]} = {expression}")
        return True

    # -------------------------------------------------------------------------------------------------- expressions
    def expression(self, value: Any) -> str:
        if value is None or isinstance(value, (bool, int)):
            return repr(value)
        if isinstance(value, self._xp.ndarray):
            return self.array(value)
        if isinstance(value, (list, tuple)):
            inner = "".join(self.expression(item) + ", " for item in value)
            return f"[{inner}]" if isinstance(value, list) else f"({inner})"
        if isinstance(value, dict):
            if not self._holds_arrays(value):
                return self.constant(value)
            return f"{{{''.join(f'{key!r}: {self.expression(item)}, ' for key, item in value.items())}}}"
        if isinstance(value, partial):
            return f"{self.constant(partial)}({self._named(value.func)}, {self._operands(value.args, value.keywords)})"
        return self.constant(value) if isinstance(value, PLAIN) else self._named(value)

    def _holds_arrays(self, value: Any) -> bool:
        if isinstance(value, (dict, list, tuple)):
            return any(map(self._holds_arrays, value.values() if isinstance(value, dict) else value))
        return isinstance(value, self._xp.ndarray)

    def _named(self, function: Any) -> str:
        if not is_named(function):
            raise _Opaque
        return self.constant(function)

    def constant(self, value: Any) -> str:
        name = self._constant_names.get(id(value))
        if name is None:
            name = self._constant_names[id(value)] = f"c{len(self.constants)}"
            self.constants[name] = value
        return name

    def root_name(self, array: Any) -> str:
        """The variable name of an input or output (not of a view); "None" for None."""
        return "None" if array is None else self._name(array)

    def _name(self, root: Any) -> str:
        if id(root) in self._roots:
            return self._roots[id(root)][1]
        self._roots[id(root)] = self._locals[id(root)]
        name = self._locals[id(root)][1]
        arguments = f"{root.shape!r}, {self.constant(root.dtype)}"
        if id(root) in self._spare:
            self.lines.append(f"{name} = {self.constant(np.ndarray)}({arguments}, spare, {self._spare_bytes})")
            self._spare_bytes += -(-root.nbytes // _ALIGNED) * _ALIGNED
        else:
            self.lines.append(f"{name} = {self.constant(self._xp.empty)}({arguments})")
        return name

    def _root(self, array: Any) -> tuple[Any, int]:
        """The input or local array under a view, and the offset in bytes; (`array`, 0) if there is none."""
        root = array
        while id(root) not in self._roots and id(root) not in self._locals:
            root = getattr(root, "base", None)  # as_strided puts an object that is not an array between the two
            if root is None:
                return array, 0
        return root, address_of(array) - address_of(root) if array.size else 0

    def _full_root(self, array: Any) -> Any:
        """The root of `array` if the view equals the root; otherwise `array`."""
        root, offset = self._root(array)
        same = offset == 0 and (array.shape, array.strides, array.dtype) == (root.shape, root.strides, root.dtype)
        return root if same else array

    def array(self, array: Any) -> str:
        root, offset = self._root(array)
        if root is array and id(root) not in self._roots and id(root) not in self._locals:
            if any(self._xp.may_share_memory(array, owned) for owned, _ in (*self._roots.values(), *self._locals.values())):
                raise _Opaque
            return self.constant(array)
        name = self._name(root)
        if self._full_root(array) is root:
            return name
        key = (name, array.shape, array.strides, array.dtype, offset)
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = f"v{len(self._views)}"
            self.lines.append(f"{view} = {self._view(name, root, array, offset)}")
        return view

    def _view(self, name: str, root: Any, array: Any, offset: int) -> str:
        if offset == 0 and array.dtype == root.dtype and array.size == root.size:
            if array.flags.c_contiguous:
                return f"{name}.reshape({array.shape!r})"
            if (root.T.shape, root.T.strides) == (array.shape, array.strides):
                return f"{name}.T"
            axes = [*range(root.ndim - 2), root.ndim - 1, root.ndim - 2]
            transposed = root.transpose(axes) if root.ndim > 1 else root
            if (transposed.shape, transposed.strides) == (array.shape, array.strides):
                return f"{name}.transpose({axes!r})"
        if self._xp is not np:
            raise _Opaque
        return f"{self.constant(np.ndarray)}({array.shape!r}, {self.constant(array.dtype)}, {name}, {offset}, {array.strides!r})"


def _alike(source: Any, target: Any) -> bool:
    """Whether ``source.copy()``, which is C-contiguous, is an array like `target`."""
    return isinstance(source, np.ndarray) and (source.shape, source.dtype) == (target.shape, target.dtype)


def _destination(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    """The array that a call writes to, and the arguments without it, which make the function return it; (None, ()) if unknown."""
    if _is_reduction(function) and len(args) == 5 and args[4] is True and not kwargs:
        return args[3], (*args[:3], None, True)
    count = function.nin if isinstance(function, np.ufunc) and function.nout == 1 else 2 if function is np.dot else 0
    if count and len(args) == count + 1 and not kwargs:
        return args[count], args[:count]
    if count and len(args) == count and set(kwargs) == {"out"}:
        return kwargs["out"], args
    return None, ()


def _is_reduction(function: Any) -> bool:
    return isinstance(getattr(function, "__self__", None), np.ufunc) and function.__name__ == "reduce"


def _makes(function: Any, sources: tuple[Any, ...], target: Any) -> bool:
    """Whether ``function(*sources)`` returns an array like `target`."""
    if _is_reduction(function):
        reduced, _, dtype, *_ = sources
        return dtype is None and reduced.dtype == target.dtype and target.dtype.kind == "f" and reduced.flags.c_contiguous
    if target.ndim > _MOST_BROADCAST or not all(isinstance(source, np.ndarray) for source in sources):
        return False
    if function is np.dot:
        return sources[0].ndim in (1, 2) and sources[0].dtype == sources[1].dtype == target.dtype
    if not isinstance(function, np.ufunc) or function.signature is not None:
        return False
    if not all(source.size == 1 or source.flags.c_contiguous for source in sources):  # numpy's result follows their layout
        return False
    if np.broadcast_shapes(*(source.shape for source in sources)) != target.shape:
        return False
    types = tuple(source.dtype for source in sources)
    return bool(function.resolve_dtypes((*types, None))[-1] == target.dtype)

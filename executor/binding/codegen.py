"""Bound kernels as functions of the arrays that they were bound to.

A prepared kernel does its work for given shapes once, when it is bound, and gives calls on the arrays that it got. Where
arrays differ from one time to the next, that work would be done again each time. Instead the kernel is bound to arrays that
stand for others, and its calls are written down as the source of a function in which those arrays are parameters (inputs)
and local variables (outputs, intermediate results)::

    def elementwise_add_grad(a0):
        b0 = empty((16, 32), float32)
        copyto(b0, a0)
        b1 = dot(c0, a0)
        return b0, b1

Calls are data (`fluid.executor.binding.calls`), so all that a call works on is there to be written. Of a call that is not,
such as a lambda of a user's kernel, nothing is written: then `function_of` gives None.

Large intermediate results are parts of the thread's spare memory, which the function gives back when it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from keyword import iskeyword
from types import CodeType
from typing import Any

import numpy as np

from fluid.values.cache import Cache

from . import spare
from .calls import PLAIN, Call, is_named

__all__ = ["Lender", "function_of"]

_ALIGNED = 64
"""Arrays in spare memory start at multiples of so many bytes."""


class _Opaque(Exception):
    """A call is no data."""


class Lender:
    """Gives arrays for intermediate results; those given while a kernel is bound become local variables."""

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
    """A function of arrays like `inputs` that makes these calls and gives arrays like `results`; None if it cannot be written.

    Args:
        calls: on the arrays named next, on arrays of the lender, and on constants.
        inputs: arrays that stand for the arguments; None for arguments that nothing reads.
        outputs: arrays that the calls write, to be made anew each time.
        copied: of `inputs`, those that the calls overwrite and the function copies first.
        results: of `inputs` and `outputs`, what the function returns: one array as itself, several as a tuple. None stays None.
    """
    writer = _Writer(inputs, [*outputs, *lender.lent], lender)
    try:
        for array in copied:
            writer.lines.append(f"{writer.whole(array)} = {writer.whole(array)}.copy()")
        for call in calls:
            writer.call(call)
        found = [writer.whole(array) for array in results]
    except _Opaque:
        return None
    returned = found[0] if len(found) == 1 else f"({''.join(item + ', ' for item in found)})"
    parameters = ", ".join(f"a{number}" for number in range(len(inputs)))
    body = "".join(f"    {line}\n" for line in [*writer.whole_body(), f"return {returned}"])
    name = f"{name}_" if iskeyword(name) else name
    source = f"def {name}({parameters}):\n{body}"
    code = _codes.get(source) or _codes.keep(source, compile(source, f"<{name}>", "exec"))
    exec(code, writer.constants)
    function: Callable[..., Any] = writer.constants[name]
    function.__doc__ = source
    return function


_codes: Cache[str, CodeType] = Cache()
"""Source -> that compiled, which is the same for functions that differ in constants only."""


class _Writer:
    """Writes calls as source. `constants` are the globals of the function."""

    def __init__(self, inputs: Sequence[Any], made: Sequence[Any], lender: Lender) -> None:
        self._xp = lender.xp
        self._roots = {id(array): (array, f"a{number}") for number, array in enumerate(inputs) if array is not None}
        self._made = {id(array): (array, f"b{number}") for number, array in enumerate(made) if array is not None}
        self._spare = {id(array) for array in lender.lent if lender.xp is np and array.nbytes >= spare.LARGE}
        self._spare_bytes = 0
        self._views: dict[Any, str] = {}
        self._constant_names: dict[int, str] = {}
        self.constants: dict[str, Any] = {}
        self.lines: list[str] = []

    def whole_body(self) -> list[str]:
        """All lines but the last, which says what is returned."""
        if not self._spare_bytes:
            return self.lines
        taken = f"spare = {self.constant(spare.take)}({self._spare_bytes})"
        return [taken, *self.lines, f"{self.constant(spare.give_back)}(spare)"]

    # ------------------------------------------------------------------------------------------------------- calls
    def call(self, call: Call) -> None:
        if not isinstance(call, partial):
            raise _Opaque
        function, args, keywords = call.func, call.args, call.keywords
        if not self._fills_new(function, args, keywords):
            named = self._named(function)
            self.lines.append(f"{named}({self._operands(args, keywords)})")

    def _operands(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> str:
        parts = [self.expression(arg) for arg in args]
        return ", ".join([*parts, *(f"{key}={self.expression(value)}" for key, value in keywords.items())])

    def _fills_new(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Write calls that fill an array just as the function would make it, if asked: that saves one call."""
        if self._xp is not np:
            return False
        copied = function is np.copyto and len(args) == 2 and not kwargs
        target, sources = (args[0], args[1:]) if copied else _destination(function, args, kwargs)
        if target is not None:
            target = self._whole(target)
        if target is None or id(target) not in self._made or id(target) in self._spare or not target.ndim:
            return False
        if not (_alike(sources[0], target) if copied else _makes(function, sources, target)):
            return False
        values = [self.expression(source) for source in sources]
        if id(target) in self._roots:  # written before, or read by this call
            return False
        name = self._made[id(target)][1]
        self.lines.append(
            f"{name} = {values[0]}.copy()" if copied else f"{name} = {self.constant(function)}({', '.join(values)})"
        )
        self._roots[id(target)] = self._made[id(target)]
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

    def whole(self, array: Any) -> str:
        """An array among the inputs and outputs themselves."""
        return "None" if array is None else self._name(array)

    def _name(self, root: Any) -> str:
        found = self._roots.get(id(root))
        if found is None:
            found = self._roots[id(root)] = self._made[id(root)]
            kind = f"{root.shape!r}, {self.constant(root.dtype)}"
            if id(root) in self._spare:
                self.lines.append(f"{found[1]} = {self.constant(np.ndarray)}({kind}, spare, {self._spare_bytes})")
                self._spare_bytes += -(-root.nbytes // _ALIGNED) * _ALIGNED
            else:
                self.lines.append(f"{found[1]} = {self.constant(self._xp.empty)}({kind})")
        return found[1]

    def _root(self, array: Any) -> tuple[Any, int]:
        """What `array` is a view of, and where it starts there; itself where it is no other view than the whole."""
        root = array
        while id(root) not in self._roots and id(root) not in self._made:
            root = getattr(root, "base", None)  # as_strided puts an object that is no array between the two
            if root is None:
                return array, 0
        return root, _address(array) - _address(root) if array.size else 0

    def _whole(self, array: Any) -> Any:
        """What `array` is a view of, if it shows that just as it is; else itself."""
        root, offset = self._root(array)
        same = offset == 0 and (array.shape, array.strides, array.dtype) == (root.shape, root.strides, root.dtype)
        return root if same else array

    def array(self, array: Any) -> str:
        root, offset = self._root(array)
        if root is array and id(root) not in self._roots and id(root) not in self._made:
            if any(self._xp.may_share_memory(array, known) for known, _ in (*self._roots.values(), *self._made.values())):
                raise _Opaque
            return self.constant(array)
        name = self._name(root)
        if self._whole(array) is root:
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
            for axes in ([*range(root.ndim)][::-1], [*range(root.ndim - 2), root.ndim - 1, root.ndim - 2]):
                turned = root.transpose(axes) if root.ndim > 1 else root
                if (turned.shape, turned.strides) == (array.shape, array.strides):
                    return f"{name}.transpose({axes!r})"
        if self._xp is not np:
            raise _Opaque
        return f"{self.constant(np.ndarray)}({array.shape!r}, {self.constant(array.dtype)}, {name}, {offset}, {array.strides!r})"


def _address(array: Any) -> int:
    interface = getattr(array, "__array_interface__", None) or array.__cuda_array_interface__
    return int(interface["data"][0])


def _alike(source: Any, target: Any) -> bool:
    return isinstance(source, np.ndarray) and (source.shape, source.dtype) == (target.shape, target.dtype) and _plain(source)


def _plain(array: Any) -> bool:
    return bool(array.flags.c_contiguous)


def _destination(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    """The array that a call writes to, and the call's other arguments; (None, ()) where that is not known."""
    count = function.nin if isinstance(function, np.ufunc) and function.nout == 1 else 2 if function is np.dot else 0
    if count and len(args) == count + 1 and not kwargs:
        return args[count], args[:count]
    if count and len(args) == count and set(kwargs) == {"out"}:
        return kwargs["out"], args
    return None, ()


def _makes(function: Any, sources: tuple[Any, ...], target: Any) -> bool:
    """Whether ``function(*sources)`` gives an array that is as `target` is."""
    if not all(isinstance(source, np.ndarray) for source in sources):
        return False
    if function is np.dot:
        return sources[0].ndim in (1, 2) and sources[0].dtype == sources[1].dtype == target.dtype
    if not isinstance(function, np.ufunc) or function.signature is not None:
        return False
    # Of operands in other orders numpy makes a result in another order.
    if not all(source.size == 1 or _plain(source) for source in sources):
        return False
    if np.broadcast_shapes(*(source.shape for source in sources)) != target.shape:
        return False
    types = tuple(source.dtype for source in sources)
    return bool(function.resolve_dtypes((*types, None))[-1] == target.dtype)

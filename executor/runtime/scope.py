"""Scopes hold the values that outlive a run, by name."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeVar

from fluid.errors import ExecutionError
from fluid.values.lod_array import array_of, lod_of, to_lengths, with_lod
from fluid.values.lod_tensor import LoDTensor, LoDTensorArray
from fluid.values.memory import names_in_shared_memory
from fluid.values.numeric import has
from fluid.values.selected_rows import SelectedRows

__all__ = ["LoDTensor", "LoDTensorArray", "Scope", "ScopeVariable", "checked_scope", "global_scope", "scope_guard"]


_Number = TypeVar("_Number", int, float)


class ScopeVariable:
    """A variable of a scope: a tensor, or another value of a program."""

    __slots__ = ("__weakref__", "_rows", "name", "tensor", "value")

    def __init__(self, name: str, owner: Scope) -> None:
        self.name = name
        self._rows: SelectedRows | None = None
        self.tensor = LoDTensor(owner=owner)
        self.value: Any = None

    def get_tensor(self) -> LoDTensor:
        """Its tensor."""
        return self.tensor

    def is_selected_rows(self) -> bool:
        """Whether it holds a sparse value, or was asked for one before it held anything."""
        return isinstance(self.tensor.held, SelectedRows) or (self._rows is not None and self.tensor.held is None)

    def get_selected_rows(self) -> SelectedRows:
        """Its sparse value, which can be set, and shows updates by later runs; at first, it has no rows.

        `ExecutionError` if it holds a whole tensor.
        """
        held = self.tensor.array
        if held is not None and not isinstance(held, SelectedRows):
            raise ExecutionError(f"{self.name} holds no sparse gradient but a whole tensor, which get_tensor() gives")
        if self._rows is None:
            self._rows = SelectedRows([], 0)
            variable = weakref.ref(self)  # weak, so that an unused scope is freed at once
            self._rows.watch(lambda: _take_rows(variable()))
            if held is not None:
                self._rows.become(held.index, held.value, held.height())
        return self._rows

    def put(self, array: Any) -> None:
        """Hold an array or a `SelectedRows`; after `get_selected_rows`, a dense array sets all rows of its value."""
        if self._rows is not None and array is not None:
            array = array if isinstance(array, SelectedRows) else SelectedRows.of_all_rows(array)
            self._rows.become(array.index, array.value, array.height())
        self.tensor.array = array

    def get_lod_tensor_array(self) -> LoDTensorArray:
        """The array of tensors that it holds; at first, an empty one."""
        if self.value is None:
            self.value = LoDTensorArray()
        if not isinstance(self.value, LoDTensorArray):
            raise ExecutionError(f"{self.name} holds no array of tensors")
        return self.value

    def get_lod_rank_table(self) -> Any:
        """The rank table that it holds: ``items()`` lists its sequences, from the longest to the shortest."""
        if not hasattr(self.value, "items"):
            raise ExecutionError(f"{self.name} holds no rank table")
        return self.value

    # -- one number of Python, which programs do not see
    def set_int(self, value: int) -> None:
        """Hold a number of Python, which programs do not see."""
        self.value = int(value)

    def set_float(self, value: float) -> None:
        """Hold a number of Python, which programs do not see."""
        self.value = float(value)

    def is_int(self) -> bool:
        """Whether it holds an integer of Python."""
        return type(self.value) is int

    def is_float(self) -> bool:
        """Whether it holds a float of Python."""
        return type(self.value) is float

    def get_int(self) -> int:
        """The integer that it holds; `ExecutionError` if it holds none."""
        return self._number(int)

    def get_float(self) -> float:
        """The float that it holds; `ExecutionError` if it holds none."""
        return self._number(float)

    def _number(self, kind: type[_Number]) -> _Number:
        if not isinstance(self.value, kind):
            raise ExecutionError(f"{self.name} holds no {kind.__name__}")
        return self.value


def _take_rows(variable: ScopeVariable | None) -> None:
    """Publish rows set by the user to runs, once the number of values matches."""
    if variable is not None and variable._rows is not None:
        variable.tensor.array = variable._rows.complete()


def _arrays_of(variable: ScopeVariable) -> list[Any]:
    """What the tensor of a variable holds, then the entries of its array of tensors; of sparse rows, their values."""
    tensors = [variable.tensor, *(variable.value if isinstance(variable.value, list) else ())]
    held = [tensor.held for tensor in tensors]
    return [value.value if isinstance(value, SelectedRows) else value for value in held]


def _value_of(tensor: LoDTensor) -> Any:
    """The array of a tensor, as a `LoDArray` where its rows form sequences."""
    return with_lod(tensor.array, tuple(map(tuple, tensor.lod())))


class Scope:
    """Variables by name; names not found here are looked up in the parent scope.

    `runs` counts the runs of programs in this scope; with the program's seed it determines what random ops draw.
    A program that runs in this scope holds `lock`.

    Args:
        parent: the scope around this one, if any.

    >>> scope = fluid.Scope()
    >>> scope.var("x").get_tensor().set(np.ones([2], "float32"), fluid.CPUPlace())
    >>> np.asarray(scope.find_var("x").get_tensor())
    array([1., 1.], dtype=float32)
    """

    __slots__ = ("__weakref__", "_generation", "_kids", "_parent", "_variables", "lock", "runs")

    def __init__(self, parent: Scope | None = None) -> None:
        self._parent = parent
        self._variables: dict[str, ScopeVariable] = {}
        self._kids: list[Scope] = []
        self._generation = self.runs = 0
        self.lock = threading.RLock()

    @property
    def generation(self) -> int:
        """A counter that changes whenever a tensor of this scope or of a parent gets another array."""
        return self._generation + (self._parent.generation if self._parent is not None else 0)

    def tensor_changed(self) -> None:
        """Note that a tensor of this scope got another array: `generation` changes."""
        self._generation += 1

    def var(self, name: str) -> ScopeVariable:
        """The variable of this name in this scope itself, created if missing."""
        if name not in self._variables:
            self._variables[name] = ScopeVariable(name, self)
            self.tensor_changed()
        return self._variables[name]

    def find_var(self, name: str) -> ScopeVariable | None:
        """The variable of this name in this scope or a parent, or None."""
        scope: Scope | None = self
        while scope is not None:
            variable = scope._variables.get(name)
            if variable is not None:
                return variable
            scope = scope._parent
        return None

    def array(self, name: str) -> Any:
        """The array of a variable's tensor, or None if there is none."""
        variable = self.find_var(name)
        return variable.tensor.array if variable is not None else None

    def arrays(self) -> dict[Any, Any]:
        """The arrays of this scope and its parents: by name, or, where the name gives no such array, by another key. The latter
        are entries of arrays of tensors, and variables of a parent whose name this scope has, too. Without arrays on a device."""
        arrays: dict[Any, Any] = {}
        names: set[str] = set()
        scope: Scope | None = self
        while scope is not None:
            for name, variable in scope._variables.items():
                for number, array in enumerate(_arrays_of(variable)):
                    if has(array, "flags"):
                        arrays[(scope, name, number) if number or name in names else name] = array
            names.update(scope._variables)
            scope = scope._parent
        return arrays

    def separate(self, names: Collection[str]) -> None:
        """Give each of these variables, which a run overwrites, an array of its own if another variable of the scope has its
        memory, or if it cannot be written."""
        arrays = self.arrays() if names else {}
        shared = names_in_shared_memory(arrays, names)
        for name in names:
            array = arrays.get(name)
            if name in shared or (array is not None and not getattr(array.flags, "writeable", True)):
                self.put(name, self.value(name).copy())

    def held(self, name: str) -> Any:
        """Like `array`, but a value on a device stays there: returns its `Remote`."""
        variable = self.find_var(name)
        return variable.tensor.held if variable is not None else None

    def value(self, name: str) -> Any:
        """The array of a variable's tensor, as a `LoDArray` where its rows form sequences; a list of such values for an array of
        tensors; a rank table; None if there is nothing."""
        variable = self.find_var(name)
        if variable is None:
            return None
        value = variable.value
        if variable.tensor.held is not None or value is None or isinstance(value, (int, float)):
            return _value_of(variable.tensor)
        return value if not isinstance(value, list) else list(map(_value_of, value)) or None

    def put(self, name: str, value: Any) -> None:
        """Give the variable called `name` a `value`, and create it in this scope if it does not exist.

        Args:
            name: the variable's name.
            value: an array for its tensor, a `LoDArray`, a list of them for an array of tensors, or a rank table. The scope holds
                the array itself, and runs that update the variable write to it: give two scopes copies.
        """
        variable = self.find_var(name) or self.var(name)
        if isinstance(value, list):
            variable.get_lod_tensor_array()[:] = map(LoDTensor.of, value)
            return
        if not has(value, "dtype"):
            variable.value = value
            return
        variable.put(array_of(value))
        variable.tensor.set_recursive_sequence_lengths(to_lengths(lod_of(value)))

    def erase(self, names: Sequence[str]) -> None:
        """Forget the variables of these names; unknown ones are passed over."""
        for name in names:
            self._variables.pop(name, None)
        self.tensor_changed()

    def new_scope(self) -> Scope:
        """A scope inside this one."""
        kid = Scope(self)
        self._kids.append(kid)
        return kid

    def drop_kids(self) -> None:
        """Forget the scopes inside this one."""
        self._kids.clear()

    def local_var_names(self) -> list[str]:
        """The names of the variables of this scope itself."""
        return list(self._variables)


def checked_scope(scope: Any) -> Scope:
    """`scope`; `ExecutionError` if it is none."""
    if not isinstance(scope, Scope):
        raise ExecutionError(f"a program runs in a Scope, such as fluid.Scope() or fluid.global_scope(), not {scope!r}")
    return scope


_global = Scope()


class _CurrentScope(threading.local):
    """The current scope of each thread, at first the global one."""

    def __init__(self) -> None:
        self.scope = _global


_current = _CurrentScope()


def global_scope() -> Scope:
    """The default scope of programs.

    >>> w = layers.create_parameter([2], "float32", "w", default_initializer=fluid.initializer.Constant(0.5))
    >>> _ = fluid.Executor().run(fluid.default_startup_program())
    >>> np.asarray(fluid.global_scope().find_var("w").get_tensor())
    array([0.5, 0.5], dtype=float32)
    """
    return _current.scope


@contextlib.contextmanager
def scope_guard(scope: Scope) -> Iterator[None]:
    """In the ``with`` block, programs of this thread run in `scope`.

    >>> w = layers.create_parameter([2], "float32", "w")
    >>> exe, scope = fluid.Executor(), fluid.Scope()
    >>> with fluid.scope_guard(scope):
    ...     _ = exe.run(fluid.default_startup_program())
    >>> scope.find_var("w") is not None, fluid.global_scope().find_var("w") is not None
    (True, False)
    """
    old, _current.scope = _current.scope, checked_scope(scope)
    try:
        yield
    finally:
        _current.scope = old

"""``x[...]`` and ``x[...] = v`` of tensors."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..building.gathering import gather_items, naming, parts_of, scatter_items, with_whole_axes
from ..errors import FluidTypeError, IndexRangeError, ProgramError
from ..executor.binding.array_types import CPU
from ..values.cache import Cache
from ..values.types import VarType
from .dispatch import as_tensor, namespace
from .mode import state
from .one_op import ConstantTensor, one_op
from .tensor import Tensor

_END = 2**31 - 1


def getitem(x: Tensor, item: Any) -> Tensor:
    """``x[item]`` as in numpy, but always a copy, and of shape ``[1]`` where numpy gives a scalar.

    Integers, slices, ``...`` and None, or tuples of them, become slicing ops. Other indices that numpy takes (slices with a step,
    lists, arrays and tensors of integers or bools) gather elements.
    """
    items = item if isinstance(item, tuple) else (item,)
    if all(is_plain(entry) for entry in items):
        return _slice(x, items)
    if type(item) is list and item and x.ndim and all(type(entry) is int for entry in item):
        return namespace.gather(x, _rows(x, tuple(item)))  # type: ignore[no-any-return]
    if state.tracer is not None and _reads_tensors(items):
        return _gather(x, items) if any(isinstance(entry, Tensor) for entry in items) else _slice_by_tensors(x, items)
    places = _places(x, item)
    gathered = namespace.gather(x.reshape(-1), Tensor._of(_on_device(x, places.reshape(-1))))
    return gathered.reshape(places.shape or (1,))  # type: ignore[no-any-return]


def _gather(x: Tensor, items: tuple[Any, ...]) -> Tensor:
    """Gather elements by ops alone, so that a program reads the indices in each run."""
    with naming(partial(_subject, x, items)):
        slices, entries = parts_of(x, items)
        return gather_items(namespace, getitem(x, tuple(slices)), entries, as_tensor)  # type: ignore[no-any-return]


def _subject(x: Tensor, items: tuple[Any, ...]) -> str:
    """A tensor and its index, for messages."""
    return f"{x.describe()}, indexed by {_text(items)}"


def _reads_tensors(items: tuple[Any, ...]) -> bool:
    """Whether an index, or a bound of a slice, is a tensor."""
    return any(isinstance(entry, Tensor) or _has_tensor_bound(entry) for entry in items)


def _has_tensor_bound(entry: Any) -> bool:
    return isinstance(entry, slice) and any(isinstance(bound, Tensor) for bound in (entry.start, entry.stop, entry.step))


def _slice_by_tensors(x: Tensor, items: tuple[Any, ...]) -> Tensor:
    """Slice by ops alone, so that a program reads the bounds in each run."""
    region, gone = _region_by_tensors(x, items)
    return namespace.slice(x, **region, infer_flags=[-1] * len(region["axes"]), decrease_axis=gone)  # type: ignore[no-any-return]


def _region_by_tensors(x: Tensor, items: tuple[Any, ...]) -> tuple[dict[str, Any], list[int]]:
    """Inputs and attributes for an op on a region, if tensors are bounds of its slices; and the axes to drop."""
    if any(entry is None for entry in items):
        raise ProgramError(f"{_subject(x, items)}: None beside a tensor as bound; use unsqueeze")
    axes, starts, ends, gone = list[int](), list[Tensor](), list[Tensor](), list[int]()
    for axis, entry in enumerate(with_whole_axes(items, x.ndim - sum(entry is not Ellipsis for entry in items))):
        if not isinstance(entry, slice):
            gone.append(axis)
            entry = slice(int(entry), int(entry) + 1 or None)
        elif entry.step is not None and not (_is_number(entry.step) and entry.step == 1):
            raise ProgramError(f"{_subject(x, items)}: a step beside a tensor as bound, in a trace")
        if (entry.start, entry.stop) != (None, None):
            axes.append(axis)
            starts.append(_bound(x, entry.start, 0))
            ends.append(_bound(x, entry.stop, _END))
    unknown = [-1] * len(axes)
    return {"axes": axes, "starts": unknown, "ends": unknown, "StartsTensorList": starts, "EndsTensorList": ends}, gone


def _bound(x: Tensor, bound: Any, default: int) -> Tensor:
    """A bound of a slice as a tensor of one element."""
    if not isinstance(bound, Tensor):
        return as_tensor(np.array([default if bound is None else bound], "int32"))
    if bound.size != 1 or bound.dtype not in (VarType.INT32, VarType.INT64):
        raise FluidTypeError(f"{x.describe()}: a bound of a slice should be one integer, not {bound.describe()}")
    return bound


def setitem(x: Tensor, item: Any, value: Any) -> None:
    """``x[item] = value`` in place; gradients flow to `value`, and to the elements of `x` that are not overwritten."""
    is_array = hasattr(value, "dtype") and not isinstance(value, np.generic)
    value = as_tensor(value if is_array else x._values(value, "setitem"))
    if value.dtype is not x.dtype:
        raise FluidTypeError(f"{x.describe()} cannot hold {value.describe()}; use astype")
    x._check_modifiable("setitem")
    items = item if isinstance(item, tuple) else (item,)
    if x._stop and value._stop and state.tracer is None:
        _write_array(x, item, value)
    elif state.tracer is not None and _reads_tensors(items):
        x._take_over(_write_items(x, items, value), "setitem")
    elif all(is_plain(entry) and entry is not None for entry in items):
        x._take_over(_with_region(x, value, items), "setitem")
    else:
        places = _places(x, item)
        sources = _sources(x, places, value)
        if places.size:
            x._take_over(_with_elements(x, value, sources), "setitem")


def _write_array(x: Tensor, item: Any, value: Tensor) -> None:
    """Write into the memory of `x`, where no gradients are wanted."""
    array = x._array
    try:
        array[_indices(item)] = value._array.reshape(()) if value.size == 1 else value._array
    except (IndexError, ValueError) as error:
        raise ProgramError(f"{x.describe()} cannot be assigned to in this way: {error}") from None
    x._modified("setitem")


def _sources(x: Tensor, places: Any, value: Tensor) -> Any:
    """For each element of flat `x`, the element of flat `value` to write there; -1 for none."""
    try:
        numbers = np.broadcast_to(np.arange(value.size).reshape(() if value.size == 1 else value.shape), places.shape)
    except ValueError as error:
        raise ProgramError(
            f"{value.describe()} does not fit into {list(places.shape)} elements of {x.describe()}: {error}"
        ) from None
    sources = np.full(x.size, -1, np.int64)
    sources[places.reshape(-1)] = numbers.reshape(-1)
    return sources


def _with_elements(x: Tensor, value: Tensor, sources: Any) -> Tensor:
    """A copy of `x` with elements of `value`; see `_sources`."""
    is_written = Tensor._of(_on_device(x, sources.reshape(x.shape) >= 0))
    spread = namespace.gather(value.reshape(-1), Tensor._of(_on_device(x, np.maximum(sources, 0))))
    return namespace.where(is_written, spread.reshape(x.shape), x)  # type: ignore[no-any-return]


def _write_items(x: Tensor, items: tuple[Any, ...], value: Tensor) -> Tensor:
    """A copy of `x` after ``x[items] = value``, by ops alone, so that a program reads the indices in each run."""
    if any(isinstance(entry, Tensor) for entry in items):
        with naming(partial(_subject, x, items)):
            slices, entries = parts_of(x, items)
            value = scatter_items(namespace, getitem(x, tuple(slices)), entries, value, as_tensor)
        items = tuple(slices)
    region, gone = _region_by_tensors(x, items)
    attrs = {"steps": [1] * len(region["axes"]), "decrease_axes": gone, "dtype": int(x.dtype), "shape": []}
    return namespace.set_value(x, value, **region, **attrs)  # type: ignore[no-any-return]


def is_plain(entry: Any) -> bool:
    """Whether an index is an integer, a slice of step 1, ``...`` or None."""
    if entry is None or entry is Ellipsis:
        return True
    if isinstance(entry, slice):
        parts = (entry.start, entry.stop, entry.step)
        return all(part is None or _is_number(part) for part in parts) and entry.step in (None, 1)
    return _is_number(entry)


def _is_number(entry: Any) -> bool:
    return isinstance(entry, (int, np.integer)) and not isinstance(entry, bool)


_Bounds = tuple[list[int], list[int], list[int], list[int], list[int]]


def bounds_of(x: Tensor, items: tuple[Any, ...]) -> _Bounds:
    """Axes, starts and ends of the region that plain indices choose, the axes to drop, and the shape of the result."""
    named = sum(entry is not None and entry is not Ellipsis for entry in items)
    if named > x.ndim or sum(entry is Ellipsis for entry in items) > 1:
        raise IndexRangeError(f"{x.describe()} has {x.ndim} dimensions; these are too many indices: {_text(items)}")
    axes, starts, ends, gone, shape = [], [], [], [], []
    axis = 0
    for entry in with_whole_axes(items, x.ndim - named):
        if entry is None:
            shape.append(1)
            continue
        size = x.shape[axis]
        if isinstance(entry, slice):
            start, stop, _ = entry.indices(size)
            end = max(start, stop)
            shape.append(end - start)
        else:
            number = int(entry)
            if not -size <= number < size:
                # an IndexError ends a loop over x
                raise IndexRangeError(f"index {number} is outside dimension {axis} of {x.describe()}")
            start, end = number % size, number % size + 1
            gone.append(axis)
        if not isinstance(entry, slice) or (start, end) != (0, size):
            axes.append(axis)
            starts.append(start)
            ends.append(end)
        axis += 1
    return axes, starts, ends, gone, shape


def _slice(x: Tensor, items: tuple[Any, ...]) -> Tensor:
    axes, starts, ends, gone, shape = bounds_of(x, items)
    if state.tracer is not None:
        axes, starts, ends = _as_written(x, tuple(entry for entry in items if entry is not None))
    if not axes:
        result = x.clone()
    else:
        result = namespace.slice(x, axes=axes, starts=starts, ends=ends, infer_flags=[1] * len(axes), decrease_axis=gone)
    return result.reshape(shape) if shape and list(result.shape) != shape else result


def _as_written(x: Tensor, items: tuple[Any, ...]) -> tuple[list[int], list[int], list[int]]:
    """Axes, starts and ends as the index states them, even beyond the end: a program may run with another size."""
    named = sum(entry is not Ellipsis for entry in items)
    axes, starts, ends = [], [], []
    for axis, entry in enumerate(with_whole_axes(items, x.ndim - named)):
        if isinstance(entry, slice):
            start = 0 if entry.start is None else int(entry.start)
            end = _END if entry.stop is None else int(entry.stop)
        else:
            start = int(entry)
            end = start + 1 or _END
        if (start, end) != (0, _END):
            axes.append(axis)
            starts.append(start)
            ends.append(end)
    return axes, starts, ends


@one_op
def _with_region(x: Tensor, value: Tensor, items: tuple[Any, ...]) -> Tensor:
    """Write `value`, broadcast, into the region of `x` that plain indices choose."""
    axes, starts, ends, gone, shape = bounds_of(x, items)
    extra = value.ndim - len(shape)
    if value.size == 1:
        value = value.reshape(1)
    elif extra > 0 or any(size not in (1, length) for size, length in zip(value.shape[::-1], shape[::-1], strict=False)):
        raise ProgramError(f"{value.describe()} does not fit into {shape} elements of {x.describe()}")
    steps = [1] * len(axes)
    region = {"axes": axes, "starts": starts, "ends": ends, "steps": steps, "decrease_axes": gone}
    return namespace.set_value(x, value, **region, dtype=int(x.dtype), shape=[])  # type: ignore[no-any-return]


_indices_of_rows: Cache[Any, Tensor] = Cache()


def _rows(x: Tensor, numbers: tuple[int, ...]) -> Tensor:
    """Row numbers as a tensor, all at least 0."""
    size = x.shape[0]
    rows = _indices_of_rows.get((numbers, size, x.device))
    if rows is None:
        for number in numbers:
            if not -size <= number < size:
                raise IndexRangeError(f"index {number} is outside dimension 0 of {x.describe()}")
        array = np.array([number % size for number in numbers], "int64")
        rows = _indices_of_rows.keep((numbers, size, x.device), Tensor._of(_on_device(x, array)))
        rows.__class__ = ConstantTensor
    return rows


def _indices(item: Any) -> Any:
    """An index in numpy's types."""
    if isinstance(item, tuple):
        return tuple(_indices(entry) for entry in item)
    if isinstance(item, Tensor):
        return item._array
    if isinstance(item, slice):
        start, stop, step = (int(part) if isinstance(part, Tensor) else part for part in (item.start, item.stop, item.step))
        if step == 0:
            raise ProgramError("the step of a slice should not be 0")
        return slice(start, stop, step)
    return item


def _places(x: Tensor, item: Any) -> Any:
    """The indices into flat `x` of the elements of ``x[item]``."""
    indices = item if isinstance(item, tuple) else (item,)
    indices = tuple(entry.numpy() if isinstance(entry, Tensor) else _indices(entry) for entry in indices)
    try:
        return np.arange(x.size).reshape(x.shape)[indices]
    except IndexError as error:
        raise IndexRangeError(f"{x.describe()} cannot be indexed in this way: {error}") from None


def _on_device(x: Tensor, array: Any) -> Any:
    return np.ascontiguousarray(array) if x.device == CPU else x._kind.xp.asarray(array)


def _text(items: tuple[Any, ...]) -> str:
    return ", ".join("..." if entry is Ellipsis else repr(entry) for entry in items)

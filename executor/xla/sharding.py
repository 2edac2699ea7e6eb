"""The placement of a compiled program's arrays: on one device, or over the devices of a mesh.

A program means the same on a mesh as on one device: each value is the full array. XLA divides the work by the placement of the
arrays, and adds the communication between devices.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from fluid.errors import ExecutionError, FeedError
from fluid.ir.program import Program
from fluid.parallel.annotations import check_fits
from fluid.parallel.mesh import DATA, Mesh
from fluid.values.lod_tensor import Remote
from fluid.values.place import XLAPlace
from fluid.values.types import as_dtype

from .arrays import for_numpy
from .shared_runs import shared_runs


class OnDevice(Remote):
    """An array of a scope that lives on a device; runs replace its value.

    Attributes:
        arrays, position: the list that holds the array of jax, and where (see `StateArrays`).
        sharers: the names of the variables that share it, if there are several (see `equal_state`).
    """

    __slots__ = ("arrays", "position", "sharers")

    def __init__(self, value: Any) -> None:
        self.arrays: list[Any] = [value]
        self.position = 0
        self.sharers: tuple[str, ...] = ()

    @property
    def value(self) -> Any:
        """The array of jax."""
        return self.arrays[self.position]

    @value.setter
    def value(self, value: Any) -> None:
        self.arrays[self.position] = value

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return as_dtype(self.value.dtype).array_dtype

    @property
    def device_array(self) -> Any:
        # A copy if the next run of a program may reuse the memory for a new value, before it has read the feed.
        return self.value.copy() if isinstance(self.arrays, StateArrays) else self.value

    def fetch(self) -> np.ndarray[Any, Any]:
        return gather_array(self.value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.asarray(self.fetch(), dtype)

    def __repr__(self) -> str:
        return f"<{self.dtype}{list(self.shape)} on {', '.join(map(str, self.value.devices()))}>"


class StateArrays(list[Any]):
    """The values of some `OnDevice`s, in order. A run replaces all of them by one assignment, instead of one by one.

    Attributes:
        is_current: whether each of them still shows its value in this list; other programs may have moved some to their lists.
    """

    __slots__ = ("is_current",)

    def __init__(self, members: Sequence[OnDevice]) -> None:
        super().__init__([member.value for member in members])
        self.is_current = True
        for position, member in enumerate(members):
            former = member.arrays
            if isinstance(former, StateArrays):
                former.is_current = False
                former[member.position] = None  # it would keep the array in memory
            member.arrays, member.position = self, position

    @classmethod
    def of(cls, members: Sequence[OnDevice]) -> StateArrays:
        """The list that shows these `OnDevice`s: their present one if it has no others, for programs of the same state."""
        present = members[0].arrays if members else None
        is_shared = isinstance(present, StateArrays) and len(present) == len(members)
        if is_shared and all(member.arrays is present and member.position == i for i, member in enumerate(members)):
            return present  # type: ignore[return-value]
        return cls(members)


class OneDevice:
    """All arrays lie on one device."""

    full_sharding: Any
    """The sharding of a value that every device holds in full."""
    is_alone = True
    """Whether no other process takes part in the runs, so that they need not be waited for."""
    keeps_words = True
    """Whether the random words of coming runs are kept on the device."""

    def __init__(self, place: XLAPlace) -> None:
        self.full_sharding = place.jax_sharding()

    def of_state(self, name: str, shape: Sequence[int]) -> Any:
        """The sharding of a persistable variable."""
        return self.full_sharding

    def of_feed(self, name: str, shape: Sequence[int]) -> Any:
        """The sharding of a feed."""
        return self.full_sharding

    def global_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape that jax sees for a persistable variable."""
        return tuple(shape)

    def fed_shape(self, name: str, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape over all processes of a feed that has this shape in this process."""
        return tuple(shape)

    def put(self, value: Any, sharding: Any) -> Any:
        """Put a value of the scope on the device."""
        return jax.device_put(value, sharding)

    def fed(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Convert the feeds to arguments of the compiled program."""
        for value in values.values():
            if type(value) is not np.ndarray and not self._is_here(value):
                return self.on_devices(values)
        return values

    def _is_here(self, value: Any) -> bool:
        """Whether a value is an array on the device."""
        if not isinstance(value, jax.Array):
            return False
        sharding = value.sharding
        return sharding is self.full_sharding or bool(sharding == self.full_sharding)

    def uploaded(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Copy feeds to the device, so that the caller may change them as soon as this returns."""
        at_host = [name for name, value in values.items() if isinstance(value, np.ndarray)]
        if not at_host:
            return self.fed(values)
        is_cpu = next(iter(self.full_sharding.device_set)).platform == "cpu"
        copies = {**values, **{name: np.array(values[name]) for name in at_host}} if is_cpu else values
        arrays = self.on_devices(copies)
        if not is_cpu:
            jax.block_until_ready([arrays[name] for name in at_host])  # waits for the transfer, not for the run before
        return arrays

    def on_devices(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Put feeds on the device."""
        return {
            name: value if self._is_here(value) else jax.device_put(value, self.full_sharding) for name, value in values.items()
        }

    def words(self, value: Any) -> Any:
        """Convert the random words of a run to an argument of the compiled program."""
        return value

    def unstack(self, table: np.ndarray[Any, Any]) -> Sequence[Any]:
        """Put the rows of a table on the device, as one array each."""
        return _unstacked(self.full_sharding)(table)

    def held(self, value: Any) -> OnDevice:
        """Wrap an array on the device for the scope."""
        return OnDevice(value)

    def fetch(self, values: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        """Copy arrays from the device to numpy."""
        return [for_numpy(np.array(value)) for value in values]

    def call_blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that may block on other processes."""
        return function(*arguments)

    def over_devices(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Turn a function of one worker's values into a function of the arrays over all devices."""
        return function

    def described(self) -> Iterator[tuple[str, str]]:
        """(subject, text) pairs that must be the same in all processes."""
        return iter(())


@functools.lru_cache
def _unstacked(sharding: Any) -> Callable[[Any], Sequence[Any]]:
    return jax.jit(list, out_shardings=sharding)  # type: ignore[no-any-return]


class MeshLayout(OneDevice):
    """Arrays lie on a mesh: feeds are split over the axis `DATA`, persistable variables by the program's annotations.

    A feed is split along its first dimension if that is declared unknown, or is a multiple of the number of devices. With several
    processes, each feeds its part if the dimension is declared unknown, otherwise the full array. Rows of sequences are not
    split.

    Raises:
        ExecutionError: there are too few devices.
    """

    keeps_words = False

    def __init__(self, mesh: Mesh, place: XLAPlace, program: Program) -> None:
        devices = jax.devices(place.device)
        if mesh.size > len(devices) or (mesh.size != len(devices) and jax.process_count() > 1):
            here = f"there {'is' if len(devices) == 1 else 'are'} {len(devices)}"
            more = "; for tries on a CPU, XLA_FLAGS=--xla_force_host_platform_device_count=8 makes 8 of it"
            raise ExecutionError(
                f"{mesh} takes {mesh.size} devices of the kind {place.device!r}, but {here}"
                f"{f', in {jax.process_count()} processes' if jax.process_count() > 1 else ''}; give its axes other numbers"
                f"{more if place.device == 'cpu' and jax.process_count() == 1 else ''}"
            )
        names, extents = zip(*mesh.axes, strict=True)
        self._mesh, self._vars = mesh, program.global_block().vars
        self._grid = jax.sharding.Mesh(np.array(devices[: mesh.size]).reshape(extents), names)
        self.full_sharding = NamedSharding(self._grid, PartitionSpec())
        self.is_alone = jax.process_count() == 1

    def of_state(self, name: str, shape: Sequence[int]) -> Any:
        var = self._vars.get(name)
        if var is None or var.sharding is None:
            return self.full_sharding
        check_fits(self._mesh, var, shape, var.sharding)
        return NamedSharding(self._grid, PartitionSpec(*var.sharding))

    def of_feed(self, name: str, shape: Sequence[int]) -> Any:
        var = self._vars[name]
        if var.sharding is not None:
            return self.of_state(name, shape)
        extent = self._mesh.extent(DATA)
        if not shape or extent == 1 or var.lod_level or (shape[0] % extent and not self._is_batch(name)):
            return self.full_sharding
        if shape[0] % extent:
            raise FeedError(
                f"{name} is fed {shape[0]} rows, which cannot be split evenly over the {extent} devices of the axis {DATA!r} of "
                f'{self._mesh}; feed a multiple of {extent}, or have each device take all of it: program.shard("{name}", [])'
            )
        return NamedSharding(self._grid, PartitionSpec(DATA))

    def _is_batch(self, name: str) -> bool:
        """Whether a variable is declared with an unknown number of rows, and may be split over the data axis."""
        var = self._vars[name]
        return var.shape[:1] == (-1,) and not var.lod_level and (var.sharding is None or var.sharding[:1] == (DATA,))

    def fed_shape(self, name: str, shape: Sequence[int]) -> tuple[int, ...]:
        if self.is_alone or not self._is_batch(name):
            return tuple(shape)
        axis = self._grid.axis_names.index(DATA) if DATA in self._grid.axis_names else None
        if axis is None:
            return tuple(shape)
        here = {
            place[axis] for place, device in np.ndenumerate(self._grid.devices) if device.process_index == jax.process_index()
        }
        return (shape[0] * self._mesh.extent(DATA) // len(here), *shape[1:])

    def put(self, value: Any, sharding: Any) -> Any:
        if self.is_alone:
            return jax.device_put(value, sharding)
        return _divided(self.call_blocking(multihost_utils.broadcast_one_to_all, value), sharding)

    def fed(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: self._feed(name, value) for name, value in values.items()}

    on_devices = fed

    def _feed(self, name: str, value: Any) -> Any:
        shape = self.fed_shape(name, value.shape)
        sharding = self.of_feed(name, shape)
        if self.is_alone:
            return jax.device_put(value, sharding)
        value = np.asarray(value)
        if self._is_batch(name):
            return jax.make_array_from_process_local_data(sharding, value, shape)
        return _divided(value, sharding)

    def words(self, value: Any) -> Any:
        return self.put(value, self.full_sharding)

    def fetch(self, values: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        return [gather_array(value) for value in values]

    def call_blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments) if self.is_alone else shared_runs().call_blocking(function, *arguments)

    def described(self) -> Iterator[tuple[str, str]]:
        yield "the mesh", str(self._mesh)
        for name, var in self._vars.items():
            if var.sharding is not None:
                yield f"how {name} is split", f"{name}: {list(var.sharding)}"


def _divided(value: Any, sharding: Any) -> Any:
    """Split a value that all processes hold over the devices."""
    value = np.asarray(value)
    return jax.make_array_from_callback(value.shape, sharding, lambda part: value[part])


def gather_array(value: Any) -> np.ndarray[Any, Any]:
    """Copy a full array to numpy; if processes hold parts of it, all of them must call this."""
    if value.is_fully_addressable or value.is_fully_replicated:
        return for_numpy(np.array(value))  # type: ignore[no-any-return]
    gathered = shared_runs().call_blocking(lambda: np.array(multihost_utils.process_allgather(value, tiled=True)))
    return for_numpy(gathered)  # type: ignore[no-any-return]

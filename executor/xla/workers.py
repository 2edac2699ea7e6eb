"""Data-parallel processes: each process is a worker with one device and a copy of all variables.

A program with collective ops describes one worker. XLA runs it on every worker's device (`jax.shard_map`), and the ops become
XLA's collectives. jax sees each value as one array over all devices; its first dimension counts the workers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from fluid.distributed.communicator import Communicator, Statement
from fluid.distributed.process import communicator
from fluid.errors import CommunicationError, ExecutionError
from fluid.values.place import XLAPlace
from fluid.values.types import BFLOAT16

from .arrays import Array, for_numpy, wrap
from .sharding import OnDevice, OneDevice
from .shared_runs import shared_runs

_WORKERS = "workers"
_REDUCTIONS: dict[str, Callable[[Any, str], Any]] = {"sum": lax.psum, "max": lax.pmax, "min": lax.pmin}


class OnWorker(OnDevice):
    """An array of a scope that lives on the device of each worker; values differ between workers."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape[1:])

    @property
    def device_array(self) -> Any:
        return None  # a program takes the part of this worker

    def fetch(self) -> np.ndarray[Any, Any]:
        return _here(self.value)


def _here(value: Any) -> np.ndarray[Any, Any]:
    """This worker's part of a value."""
    part: np.ndarray[Any, Any] = for_numpy(np.array(value.addressable_shards[0].data)[0])
    return part


class WorkersLayout(OneDevice):
    """Every array lies on the device of each worker: the place names one device per process."""

    is_alone = keeps_words = False

    def __init__(self, place: XLAPlace) -> None:
        super().__init__(place)
        by_process: dict[int, list[Any]] = {}
        for device in sorted(jax.devices(place.device), key=lambda device: device.id):
            by_process.setdefault(device.process_index, []).append(device)
        self._device = place.jax_device()
        number = by_process[jax.process_index()].index(self._device)
        if any(number >= len(devices) for devices in by_process.values()):
            raise ExecutionError(f"XLAPlace({place.device!r}, {place.index}): other workers have fewer devices of this kind")
        devices = [by_process[process][number] for process in sorted(by_process)]
        self._size = len(devices)
        self._grid = jax.sharding.Mesh(np.array(devices), (_WORKERS,))
        self.full_sharding = NamedSharding(self._grid, PartitionSpec(_WORKERS))

    def global_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (self._size, *shape)

    def fed_shape(self, name: str, shape: Sequence[int]) -> tuple[int, ...]:
        return self.global_shape(shape)

    def put(self, value: Any, sharding: Any) -> Any:
        part = jax.device_put(np.asarray(value)[None], self._device)
        return jax.make_array_from_single_device_arrays(self.global_shape(part.shape[1:]), sharding, [part])

    def fed(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: self.put(value, self.full_sharding) for name, value in values.items()}

    def words(self, value: Any) -> Any:
        return self.put(value, self.full_sharding)

    def held(self, value: Any) -> OnDevice:
        return OnWorker(value)

    def fetch(self, values: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        return [_here(value) for value in values]

    def call_blocking(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return shared_runs().call_blocking(function, *arguments)

    def over_devices(self, function: Callable[..., Any]) -> Callable[..., Any]:
        group = _TracedWorkers(self._size)

        def of_one_worker(*arguments: Any) -> Any:
            with _tracing(group):
                results = function(*jax.tree.map(lambda value: value[0], arguments))
            return jax.tree.map(lambda value: jnp.asarray(value)[None], results)

        spec = PartitionSpec(_WORKERS)
        of_all: Callable[..., Any] = jax.shard_map(of_one_worker, mesh=self._grid, in_specs=spec, out_specs=spec, check_vma=False)
        return of_all


# --------------------------------------------------------------------------------------- communicator of collective ops
_traced: list[_TracedWorkers] = []
"""The workers of the programs being traced, innermost last."""


@contextlib.contextmanager
def _tracing(group: _TracedWorkers) -> Iterator[None]:
    _traced.append(group)
    try:
        yield
    finally:
        _traced.pop()


def group_of_trace() -> Communicator:
    """The workers of the program being traced.

    Raises:
        CommunicationError: there are several workers, and they do not communicate through jax.
    """
    if _traced:
        return _traced[-1]
    group = communicator()
    if group.size > 1:
        raise CommunicationError(
            f"{group.who()} runs a program with collective ops at an XLAPlace, and the workers speak by MPI, of which XLA knows "
            "nothing: start them by python -m fluid.distributed.launch --backend jax"
        )
    return group


class _TracedWorkers(Communicator):
    """The workers while their program is traced: each call adds a collective to it. The rank is a traced value."""

    def __init__(self, size: int) -> None:
        super().__init__(-1, size)

    def start_allreduce(self, arrays: Sequence[Array], kind: str, sent_as: np.dtype[Any] | None = None) -> None:
        for array in arrays:
            value = array.read()
            sent = value.astype(jnp.bfloat16) if sent_as == BFLOAT16 else value
            if kind == "prod":
                total = jnp.prod(lax.all_gather(sent, _WORKERS), axis=0, dtype=sent.dtype)
            else:
                total = _REDUCTIONS[kind](sent, _WORKERS)
            array.write(total.astype(value.dtype))

    def finish(self, arrays: Sequence[Array]) -> None:
        return

    def reduce(self, array: Array, root: int) -> None:
        total = lax.psum(array.read(), _WORKERS)
        array.write(jnp.where(lax.axis_index(_WORKERS) == root, total, jnp.zeros_like(total)))

    def broadcast(self, array: Array, root: int) -> None:
        value = jnp.asarray(array.read())
        bits = value.astype(np.uint8) if value.dtype == np.bool_ else value
        array.write(lax.psum(jnp.where(lax.axis_index(_WORKERS) == root, bits, jnp.zeros_like(bits)), _WORKERS))

    def allgather(self, array: Array, out: Array) -> None:
        out.write(lax.all_gather(array.read(), _WORKERS, tiled=True))

    def reducescatter(self, array: Array, out: Array) -> None:
        out.write(lax.psum_scatter(array.read(), _WORKERS, tiled=True))

    def gather_rows(self, *arrays: Array) -> list[Any]:
        return [wrap(lax.all_gather(array.read(), _WORKERS, tiled=True)) for array in arrays]

    def exchange(self, item: Any) -> list[Any]:
        raise ExecutionError("while a program is traced for XLA, workers have nothing to tell each other")

    def barrier(self) -> None:
        return

    def state(self, statement: Statement) -> None:
        return

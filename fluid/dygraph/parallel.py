"""Training in several processes: each has all parameters and a part of each batch, and their gradients are summed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ..distributed.communicator import statement_of
from ..distributed.environment import worker_of
from ..distributed.process import communicator
from ..eager.mode import state
from ..errors import CommunicationError, FluidTypeError
from ..executor.kernels.collective import group_of
from ..values.place import namespace_of
from ..values.selected_rows import SelectedRows
from .layers import Layer

__all__ = ["DataParallel", "Env", "ParallelEnv", "ParallelStrategy", "prepare_context"]

_BUCKET = 1 << 20
"""Bytes of gradients that are reduced together."""


class Env:
    """The rank of this process and their number, from the launcher's environment (see `fluid.distributed.worker_of`).

    >>> dygraph.ParallelEnv().nranks
    1
    """

    def __init__(self) -> None:
        worker = worker_of()
        self._count, self._number = worker.size, worker.rank
        self._device = int(os.environ.get("FLAGS_selected_gpus", "0"))  # noqa: SIM112
        self._endpoints = os.environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")
        self._endpoint = os.environ.get("PADDLE_CURRENT_ENDPOINT", "")

    @property
    def nranks(self) -> int:
        """The number of processes."""
        return self._count

    @property
    def local_rank(self) -> int:
        """The rank of this process."""
        return self._number

    @property
    def dev_id(self) -> int:
        """The device that this process should use."""
        return self._device

    @property
    def current_endpoint(self) -> str:
        """The address of this process, ``PADDLE_CURRENT_ENDPOINT``."""
        return self._endpoint

    @property
    def trainer_endpoints(self) -> list[str]:
        """The addresses of all processes, ``PADDLE_TRAINER_ENDPOINTS``."""
        return self._endpoints


ParallelEnv = Env


class ParallelStrategy:
    """The rank of this process, the number of processes, and their addresses."""

    def __init__(self) -> None:
        env = Env()
        self.nranks, self.local_rank = env.nranks, env.local_rank
        self.trainer_endpoints, self.current_endpoint = env.trainer_endpoints, env.current_endpoint


def prepare_context(strategy: ParallelStrategy | None = None) -> ParallelStrategy:
    """Connect the processes of a strategy and return it; `CommunicationError` if they cannot connect."""
    strategy = strategy if strategy is not None else ParallelStrategy()
    group = communicator()
    if (strategy.nranks, strategy.local_rank) != (group.size, group.rank):
        raise CommunicationError(
            f"the strategy is that of process {strategy.local_rank} of {strategy.nranks}, and this is process {group.rank} of "
            f"{group.size}; start {strategy.nranks} (python -m fluid.distributed.launch -n {strategy.nranks} script.py)"
        )
    return strategy


class DataParallel(Layer):
    """A layer whose gradients are summed over processes; with one process, the layer itself.

    All processes start from the parameters of process 0. A layer that makes parameters in its first call is called once more,
    with the parameters of process 0.

    Args:
        layers: the layer.
        strategy: the processes; from the launcher's environment if None.

    >>> with fluid.dygraph.guard():
    ...     net = fluid.dygraph.DataParallel(fluid.dygraph.Linear(2, 1))
    ...     loss = net.scale_loss((net(fluid.dygraph.to_variable(np.ones((3, 2), "float32"))) ** 2).mean())
    ...     loss.backward()
    ...     net.apply_collective_grads()
    """

    def __init__(self, layers: Layer, strategy: ParallelStrategy | None = None) -> None:
        super().__init__(layers.full_name() + "_data_parallel" if isinstance(layers, Layer) else None)
        if not isinstance(layers, Layer):
            raise FluidTypeError(f"DataParallel takes a Layer, not a {type(layers).__name__}")
        self._strategy = prepare_context(strategy)
        self._layers = layers
        self._shared: set[str] = set()
        """Names of tensors already copied from process 0."""
        self._share()

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        outputs = self._layers(*inputs, **kwargs)
        return self._layers(*inputs, **kwargs) if self._share() else outputs

    def _share(self) -> bool:
        """Copy the layer's state from process 0; return whether this changed any of it."""
        if self._strategy.nranks == 1:
            return False
        tensors = self._layers._state(None, include_sublayers=True)  # parameters made later are shared in the first call
        names = [name for name in tensors if name not in self._shared]
        values = {name: tensors[name].numpy() for name in names}
        if values:
            lines = [(name, f"{name}: {value.dtype}{list(value.shape)}") for name, value in values.items()]
            group_of(namespace_of(values[names[0]])).state(statement_of("sharing of the parameters of a DataParallel", lines))
        for name, value in values.items():
            group_of(namespace_of(value)).broadcast(value, 0)
            tensors[name].set_value(value)
        self._shared.update(names)
        return bool(names)

    def scale_loss(self, loss: Any) -> Any:
        """Divide the loss by the number of processes, so that the sum of gradients belongs to the mean of losses."""
        return loss if self._strategy.nranks == 1 else loss / float(self._strategy.nranks)

    def apply_collective_grads(self) -> None:
        """Replace the gradients of the parameters by their sums over all processes; sparse gradients by the rows of all
        processes.

        Raises:
            CommunicationError: the processes have gradients of other parameters, or of other shapes.
        """
        if self._strategy.nranks == 1:
            return
        if state.tracer is not None:
            state.tracer.refuse_call(
                "apply_collective_grads() of several processes",
                "compile the forward and backward part, and the update, as two steps",
            )
        gradients = {param.name: param._grad._array for param in self._layers.parameters() if param._grad is not None}
        arrays = [array.value if isinstance(array, SelectedRows) else array for array in gradients.values()]
        group = group_of(namespace_of(arrays[0])) if arrays else communicator()
        lines = [(f"the gradient of {name}", f"{name}: {array.dtype}{list(array.shape)}") for name, array in gradients.items()]
        group.state(statement_of("sum of the gradients of a DataParallel", lines))
        if not arrays:
            group.barrier()  # the others may have some, and learn here that this one has none
            return
        sparse = [array for array in gradients.values() if isinstance(array, SelectedRows)]
        for rows in sparse:
            rows.index, rows.value = group.gather_rows(rows.index, rows.value)
        buckets = list(_buckets([array for array in gradients.values() if not isinstance(array, SelectedRows)]))
        joined = [_joined(bucket) for bucket in buckets]
        for joined_bucket in joined:
            group.start_allreduce(joined_bucket, "sum")
        for joined_bucket, bucket in zip(joined, buckets, strict=True):
            group.finish(joined_bucket)
            start = 0
            for array in bucket:
                array[...] = joined_bucket[start : start + array.size].reshape(array.shape)
                start += array.size

    def state_dict(
        self, destination: dict[str, Any] | None = None, include_sublayers: bool = True, structured_name_prefix: str = ""
    ) -> dict[str, Any]:
        return self._layers.state_dict(destination, include_sublayers, structured_name_prefix)

    def set_dict(self, stat_dict: Any, include_sublayers: bool = True, use_structured_name: bool = True) -> None:
        self._layers.set_dict(stat_dict, include_sublayers, use_structured_name)

    load_dict = set_dict


def _buckets(arrays: list[Any]) -> Iterator[list[Any]]:
    """Group gradients into buckets of one element type, in backward's order: the last parameters first."""
    bucket: list[Any] = []
    for array in reversed(arrays):
        if bucket and (array.dtype != bucket[0].dtype or sum(gradient.nbytes for gradient in bucket) >= _BUCKET):
            yield bucket
            bucket = []
        bucket.append(array)
    if bucket:
        yield bucket


def _joined(arrays: list[Any]) -> Any:
    return namespace_of(arrays[0]).concatenate([array.reshape(-1) for array in arrays])

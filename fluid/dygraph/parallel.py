"""The interface of training in several processes; only one is supported, with which scripts for several run unchanged."""

from __future__ import annotations

import os
from typing import Any

from ..errors import FluidTypeError, ProgramError
from .layers import Layer

__all__ = ["DataParallel", "Env", "ParallelStrategy", "prepare_context"]


class Env:
    """The rank of this process and their number, from the launcher's environment (``PADDLE_TRAINERS_NUM`` and others)."""

    def __init__(self) -> None:
        self._count = int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
        self._number = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
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
        return self._endpoint

    @property
    def trainer_endpoints(self) -> list[str]:
        return self._endpoints


class ParallelStrategy:
    """The rank of this process, the number of processes, and their addresses."""

    def __init__(self) -> None:
        env = Env()
        self.nranks, self.local_rank = env.nranks, env.local_rank
        self.trainer_endpoints, self.current_endpoint = env.trainer_endpoints, env.current_endpoint


def prepare_context(strategy: ParallelStrategy | None = None) -> ParallelStrategy:
    """The strategy if it is for one process; `ProgramError` for more, as communication is not supported."""
    strategy = strategy if strategy is not None else ParallelStrategy()
    if strategy.nranks > 1:
        raise ProgramError(f"training in {strategy.nranks} processes is not supported; start one (PADDLE_TRAINERS_NUM=1)")
    return strategy


class DataParallel(Layer):
    """A layer whose gradients are averaged over processes; with one process, the layer itself."""

    def __init__(self, layers: Layer, strategy: ParallelStrategy | None = None) -> None:
        super().__init__(layers.full_name() + "_data_parallel" if isinstance(layers, Layer) else None)
        if not isinstance(layers, Layer):
            raise FluidTypeError(f"DataParallel takes a Layer, not a {type(layers).__name__}")
        prepare_context(strategy)
        self._layers = layers

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self._layers(*inputs, **kwargs)

    def scale_loss(self, loss: Any) -> Any:
        """The loss divided by the number of processes."""
        return loss

    def apply_collective_grads(self) -> None:
        """Average the gradients over processes; has no effect with one."""

    def state_dict(self, destination: dict[str, Any] | None = None, include_sublayers: bool = True) -> dict[str, Any]:
        return self._layers.state_dict(destination, include_sublayers)

    def set_dict(self, stat_dict: Any, include_sublayers: bool = True) -> None:
        self._layers.set_dict(stat_dict, include_sublayers)

    load_dict = set_dict

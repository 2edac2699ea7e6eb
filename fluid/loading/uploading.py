"""Puts batches on the device before they are fed."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from ..errors import FluidTypeError
from ..values.place import Place, XLAPlace, no_place


def device_of(places: Any, who: str) -> Place | None:
    """The device among the places of a loader that its batches go to; None if they stay at the host.

    Raises:
        FluidTypeError: `places` holds something else than places.
    """
    listed = list(places) if isinstance(places, (list, tuple)) else [] if places is None else [places]
    for place in listed:
        if not isinstance(place, Place):
            raise FluidTypeError(f"{who}: places should hold places, {no_place(place)}")
    return listed[0] if len(listed) == 1 and isinstance(listed[0], XLAPlace) else None


class UploadAhead:
    """Iterates over batches on a device; the next one is on its way while the caller computes with one.

    Args:
        batches: an iterator over batches at the host.
        place: the device.
    """

    def __init__(self, batches: Any, place: Place) -> None:
        self._batches, self._place = batches, place
        self._waiting: deque[Any] = deque()
        self._end: Exception | None = None

    def __iter__(self) -> UploadAhead:
        return self

    def __next__(self) -> Any:
        while self._end is None and len(self._waiting) < 2:
            try:
                self._waiting.append(_uploaded(next(self._batches), self._place))
            except Exception as error:  # also the end: the batches before it come first
                self._end = error
        if not self._waiting:
            assert self._end is not None
            raise self._end
        return self._waiting.popleft()

    def close(self) -> None:
        """End the iteration over the batches at the host."""
        self._waiting.clear()
        self._batches.close()


def _uploaded(batch: Any, place: Place) -> Any:
    """A batch whose arrays are on a device; sequences stay as they are."""
    if isinstance(batch, dict):
        return {name: _uploaded(value, place) for name, value in batch.items()}
    if type(batch) is list:
        return [_uploaded(value, place) for value in batch]
    return place.upload(batch) if type(batch) is np.ndarray else batch

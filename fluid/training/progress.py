"""Progress of training: a bar on a terminal (if tqdm is installed), plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

from ..errors import ProgramError


class Progress:
    """Counts samples and shows numbers after each epoch.

    It shows a bar of tqdm (``pip install ".[progress]"``) if stderr is a terminal, else a line for each epoch.

    Args:
        epochs: how many epochs there are to be.
        batches: how many batches an epoch has; the bar then moves with each `step`, otherwise with each epoch.
        done: how many epochs were done before, for a training that is resumed.

    Raises:
        ProgramError: one is no such number.

    >>> with fluid.training.Progress(epochs=2) as progress:
    ...     for epoch in range(2):
    ...         # for each batch: progress.step(samples=32)
    ...         progress.epoch(loss=0.5 - epoch / 4, accuracy="97.1 %")
    epoch   1/2  loss 0.5000  accuracy 97.1 %
    epoch   2/2  loss 0.2500  accuracy 97.1 %
    """

    def __init__(self, epochs: int, batches: int | None = None, done: int = 0) -> None:
        if not isinstance(epochs, int) or epochs < 1 or not (batches is None or (isinstance(batches, int) and batches > 0)):
            raise ProgramError(f"Progress: there should be one epoch or more, and batches, not {epochs!r} and {batches!r}")
        self._epochs, self._batches = epochs, batches
        self._done, self._samples = done, 0
        self._seconds = 0.0
        self._start = time.perf_counter()
        self._bar: Any = None
        if sys.stderr is not None and sys.stderr.isatty():
            try:
                from tqdm import tqdm
            except ImportError:
                return
            form = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
            steps = batches or 1
            self._bar = tqdm(
                total=epochs * steps,
                initial=done * steps,
                desc=f"epoch {done + 1}/{epochs}",
                bar_format=form,
                dynamic_ncols=True,
            )

    def __enter__(self) -> Progress:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def step(self, samples: int) -> None:
        """Count the samples of one more batch."""
        now = time.perf_counter()
        self._samples += samples
        self._seconds += now - self._start
        self._start = now
        if self._bar is not None and self._batches is not None:
            self._bar.update()

    def epoch(self, **numbers: float | str) -> None:
        """End an epoch and show these numbers or texts. Time since the last step, for example for testing, is not counted."""
        self._done += 1
        texts = [f"{key} {value if isinstance(value, str) else f'{float(value):.4f}'}" for key, value in numbers.items()]
        if self._seconds:
            texts.append(f"{self._samples / self._seconds:,.0f} samples/s")
        shown = "  ".join(texts)
        if self._bar is not None:
            self._bar.set_description_str(f"epoch {min(self._done + 1, self._epochs)}/{self._epochs}", refresh=False)
            self._bar.set_postfix_str(shown, refresh=self._batches is not None)
            if self._batches is None:
                self._bar.update()
        else:
            print(f"epoch {self._done:3}/{self._epochs}  {shown}", flush=True)
        self._samples, self._seconds, self._start = 0, 0.0, time.perf_counter()

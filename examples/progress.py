"""How far a training is: a bar on a terminal (where tqdm is installed), plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any


class Progress:
    """Counts samples and shows numbers after each epoch::

    with Progress(epochs=10) as progress:
        for epoch in range(10):
            for batch in reader():
                progress.step(len(batch))
            progress.epoch(loss=0.25, accuracy="97.1 %")
    """

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs
        self.done = 0
        self.samples = 0
        self.seconds = 0.0
        self.bar: Any = None
        if sys.stderr.isatty():
            try:
                from tqdm import tqdm
            except ImportError:
                return
            form = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
            self.bar = tqdm(total=epochs, desc="epoch 1", bar_format=form, dynamic_ncols=True)

    def __enter__(self) -> Progress:
        self.start = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def step(self, samples: int) -> None:
        """So many samples more have been trained on."""
        now = time.perf_counter()
        self.samples += samples
        self.seconds += now - self.start
        self.start = now

    def epoch(self, **numbers: float | str) -> None:
        """An epoch has ended with these numbers. The time since the last step (testing, say) is not counted."""
        self.done += 1
        shown = "  ".join(f"{key} {value if isinstance(value, str) else f'{value:.4f}'}" for key, value in numbers.items())
        shown += f"  {self.samples / self.seconds:,.0f} samples/s"
        if self.bar is not None:
            self.bar.set_description_str(f"epoch {min(self.done + 1, self.epochs)}/{self.epochs}", refresh=False)
            self.bar.set_postfix_str(shown, refresh=False)
            self.bar.update()
        else:
            print(f"epoch {self.done:3}/{self.epochs}  {shown}", flush=True)
        self.samples, self.seconds, self.start = 0, 0.0, time.perf_counter()

"""Load a dataset beside torch: an expensive transformation by workers, and the cost of a batch alone."""

from __future__ import annotations

import time
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

import numpy as np
from common import header

import fluid

IMAGE = (64, 64, 3)


def changed(image):
    """More than half a millisecond of numpy: an image enlarged, blurred by hand, and normalized."""
    values = np.kron(image.astype("float32"), np.ones((2, 2, 1), "float32"))
    for _ in range(8):
        values = (values + np.roll(values, 1, 0) + np.roll(values, 1, 1)) / 3
    return np.ascontiguousarray(values[::2, ::2].transpose(2, 0, 1))


class Expensive:
    """256 images, each changed when it is read."""

    def __init__(self):
        self.images = np.random.default_rng(0).integers(0, 255, (64, *IMAGE), "uint8")

    def __len__(self):
        return 256

    def __getitem__(self, index):
        return changed(self.images[index % 64]), index


class Cheap:
    """Rows of an array that is there."""

    def __init__(self, size):
        self.rows = np.zeros((64, size), "float32")

    def __len__(self):
        return 6400

    def __getitem__(self, index):
        return self.rows[index % 64]


def processor_time():
    """Seconds of processor time that this process and its children that have ended took."""
    return sum(usage.ru_utime + usage.ru_stime for usage in map(getrusage, (RUSAGE_SELF, RUSAGE_CHILDREN)))


def seconds(loader):
    """Seconds a batch: of the clock, from the first batch on, when workers have started; of processors, with starting them."""
    of_processors = processor_time()
    batches = iter(loader)
    next(batches)
    start = time.perf_counter()
    count = sum(1 for _ in batches)
    taken = time.perf_counter() - start
    del batches
    return taken / count, (processor_time() - of_processors) / (count + 1)


def main():
    from torch.utils.data import DataLoader

    header("Loading data, microseconds a batch: the fastest of seven epochs; and processor time, the median")
    print("| what | workers | Fluid | torch | Fluid / torch | Fluid, processors | torch | Fluid / torch |")
    print("|---|---|---|---|---|---|---|---|")
    for what, data, size in (
        ("8 images, each changed in 0.6 ms", Expensive(), 8),
        ("64 rows of 100 numbers", Cheap(100), 64),
        ("64 rows of 12,288 numbers, 3 MiB", Cheap(12_288), 64),
    ):
        for workers in (0, 1, 2):
            loaders = fluid.io.DataLoader(data, size, num_workers=workers), DataLoader(data, size, num_workers=workers)
            times = [[seconds(loader) for loader in loaders] for _ in range(7)]
            clock, processors = np.min(times, axis=0)[:, 0] * 1e6, np.median(times, axis=0)[:, 1] * 1e6
            shown = (f"{own:,.0f} | {other:,.0f} | {own / other:.2f}" for own, other in (clock, processors))
            print(f"| {what} | {workers} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main()

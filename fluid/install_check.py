"""Checks that the installation works."""

from __future__ import annotations

import numpy as np

from . import layers
from .errors import ExecutionError
from .executor import CPUPlace, CUDAPlace, Executor, Scope
from .ir.program import Program, program_guard
from .not_here import names_here
from .optimizer import SGD
from .unique_name import guard
from .values.place import is_compiled_with_cuda

__all__ = ["run_check"]

__dir__ = names_here(__name__)


def run_check() -> None:
    """Train a small program for some steps, on the CUDA device if there is one, and print that it worked.

    `ExecutionError` if the loss does not fall. Default programs, names and the global scope do not change.

    >>> fluid.install_check.run_check()  # doctest: +ELLIPSIS
    Fluid works: ...
    """
    main, startup, scope = Program(), Program(), Scope()
    with program_guard(main, startup), guard():
        x = layers.data("x", [2])
        loss = layers.mean(layers.square(layers.fc(x, 1) - layers.reduce_sum(x, dim=1, keep_dim=True)))
        SGD(0.1).minimize(loss)
    place = CUDAPlace(0) if is_compiled_with_cuda() else CPUPlace()
    executor = Executor(place)
    main.random_seed = startup.random_seed = 1
    executor.run(startup, scope=scope)
    feed = {"x": np.array([[1.0, 2.0], [-1.0, 0.5], [0.5, -1.0]], np.float32)}
    losses = [float(executor.run(main, feed, [loss], scope=scope)[0].item()) for _ in range(20)]
    if not losses[-1] < 0.5 * losses[0]:
        change = f"from {losses[0]} to {losses[-1]}"
        raise ExecutionError(f"training a small program took its loss {change}; the installation is broken")
    print(f"Fluid works: a small program was trained on {place}, its loss fell from {losses[0]:.3g} to {losses[-1]:.3g}")

"""Kernels where little of the address space is free."""

from __future__ import annotations

import subprocess
import sys

import pytest

CROWDED = """
import ctypes, numpy as np, fluid

PAGE, NO_ACCESS, PRIVATE_ANONYMOUS_UNBACKED = 4096, 0, 0x4022
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
reserve = lambda size: libc.mmap(None, size, NO_ACCESS, PRIVATE_ANONYMOUS_UNBACKED, -1, 0)

x = fluid.data("x", [None, 300])
loss = fluid.layers.mean(fluid.layers.log(fluid.layers.softmax(fluid.layers.gelu(fluid.layers.fc(x, 64, act="tanh")))))
fluid.optimizer.Adam(0.01).minimize(loss)
executor = fluid.Executor()
executor.run(fluid.default_startup_program())
block = reserve(6 << 30)
while reserve(PAGE) > block:  # what is free above it
    pass
libc.munmap(block + (5 << 30), PAGE)  # constants fit here, code does not
print(executor.run(feed={"x": np.ones((4, 300), "float32")}, fetch_list=[loss])[0])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="maps memory as Linux does")
def test_code_and_constants_lie_near_each_other() -> None:
    """An instruction reaches 2 GiB at most: where a module's parts were spread further, LLVM ended the process."""
    ended = subprocess.run(
        [sys.executable, "-c", CROWDED], env={"FLUID_NATIVE_CACHE": "0"}, capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    assert float(ended.stdout.strip("[]\n")) < 0

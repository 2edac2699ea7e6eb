"""Kernels that lie on disk run without LLVM's library; objects that the loader does not know are left to LLVM's linker."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import Checks

from fluid.executor.native import compiler, loader
from fluid.executor.native.compiler import Library, compile_object

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not compiler.host().triple.startswith("x86_64"), reason="for x86-64 Linux"
)

PROGRAM = """
import sys
import numpy as np
import fluid
from fluid import layers

x = fluid.data("x", [None, 40])
out = layers.softmax(layers.fc(layers.fc(x, 40, act="gelu"), 9))
fluid.default_startup_program().random_seed = 7
executor = fluid.Executor()
executor.run(fluid.default_startup_program())
feed = {"x": np.arange(400, dtype="float32").reshape(10, 40) / 100}
print(executor.run(feed=feed, fetch_list=[out])[0].tobytes().hex(), "llvmlite" in sys.modules)
assert "[regions]" in str(executor.plan(fluid.default_main_program(), feed, [out]))
"""


def test_a_process_that_finds_all_kernels_does_without_llvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUID_NATIVE_CACHE", str(tmp_path))
    first, second = (
        subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    )
    assert first == [second[0], "True"]
    assert second[1] == "False"


def compiled(*bodies: str) -> list[bytes]:
    return [compile_object(body, compiler.host()) for body in bodies]


def call(address: int, *numbers: float) -> float:
    function = ctypes.CFUNCTYPE(ctypes.c_double, *[ctypes.c_double] * len(numbers))(address)
    return float(function(*numbers))


SINE = "declare double @sin(double)\ndefine double @{}(double %x) #0 {{\n  %y = call double @sin(double %x)\n  ret double %y\n}}"
TABLE = (
    "@{0}.table = private constant [3 x double] [double 1.5, double 2.5, double 4.5]\n"
    "define double @{0}(double %x) #0 {{\n  %n = fptosi double %x to i64\n"
    "  %p = getelementptr double, ptr @{0}.table, i64 %n\n  %y = load double, ptr %p\n  ret double %y\n}}"
)
CALLS = (
    "define internal double @{0}.square(double %x) noinline #0 {{\n  %y = fmul double %x, %x\n  ret double %y\n}}\n"
    "define double @{0}(double %x) #0 {{\n  %y = call double @{0}.square(double %x)\n  ret double %y\n}}"
)
ADDRESS = (
    "declare double @cos(double)\ndefine double @{}(double %x) #0 {{\n  %f = icmp ne ptr @cos, null\n"
    "  %b = select i1 %f, ptr @cos, ptr null\n  %y = call double %b(double %x)\n  ret double %y\n}}"
)
VARIABLE = (
    "@{0}.last = internal global double 0.0\ndefine double @{0}(double %x) #0 {{\n"
    "  %y = load double, ptr @{0}.last\n  store double %x, ptr @{0}.last\n  ret double %y\n}}"
)
KINDS = {"sine": SINE, "table": TABLE, "calls": CALLS, "address": ADDRESS}


def expected(name: str) -> float:
    return {"sine": np.sin(2.0), "table": 4.5, "calls": 4.0, "address": np.cos(2.0)}[name]


def test_all_kinds_of_addresses() -> None:
    """Functions of the process, constants and functions of an object, and the address of a function."""
    image = loader.load(compiled(*(text.format(name) for name, text in KINDS.items())))
    assert image is not None
    with Checks() as checks:
        for name in KINDS:
            with checks(name):
                assert call(image.addresses[name], 2.0) == expected(name)


def test_what_is_not_known_is_left_to_llvm() -> None:
    variable = compiled(VARIABLE.format("counted"))
    assert loader.load(variable) is None
    library = Library(variable, {"counted": ()})
    assert [call(library.addresses["counted"], number) for number in (1.0, 2.0)] == [0.0, 1.0]
    missing = compiled(SINE.replace("@sin(", "@no_such_function(").format("missing"))
    assert loader.load(missing) is None
    with pytest.raises(compiler.NativeUnavailable, match="compiled kernels cannot be loaded"):
        Library(missing, {"missing": ()})


def test_damaged_objects_are_refused_or_loaded_but_never_an_error() -> None:
    (code,) = compiled(SINE.format("sine"))
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(code)
        for place in rng.integers(0, len(code), 4):
            damaged[place] = rng.integers(256)
        loader.load([bytes(damaged)])
        loader.load([code[: rng.integers(len(code))]])
    assert loader.load([b"no object"]) is None


def test_memory_is_given_back() -> None:
    objects = compiled(SINE.format("sine"))

    def executable() -> int:
        lines = Path("/proc/self/maps").read_text().splitlines()
        return sum(" r-xp 00000000 00:00 0" in line for line in lines)

    images: list[Any] = [loader.load(objects)]
    before = executable()
    images += [loader.load(objects) for _ in range(50)]
    assert len({image.addresses["sine"] for image in images}) == 51
    del images
    gc.collect()
    assert executable() <= before

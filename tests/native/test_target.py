"""What targets say of processors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from checks import each
from harness import texts
from test_mathematics import computed, samples

from fluid.executor.native import compiler
from fluid.executor.native.emitter import DOUBLE, FLOAT, INT64, POINTER
from fluid.executor.native.target import Target

FACTS: dict[str, tuple[tuple[str, str, str], tuple[Any, ...]]] = {
    "x86-64": (("x86_64-unknown-linux-gnu", "x86-64", ""), (16, 16, 8, ())),
    "x86-64 with AVX2": (("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma"), (32, 16, 8, ("float", "double"))),
    "x86-64 with AVX-512": (("x86_64-pc-windows-msvc", "x86-64-v4", "+avx512f"), (64, 32, 8, ("float", "double"))),
    "AVX-512 taken away": (("x86_64-unknown-linux-gnu", "x86-64-v4", "-avx512f,+avx2"), (32, 16, 8, ())),
    "AArch64": (("aarch64-unknown-linux-gnu", "cortex-a72", "+neon"), (16, 32, 8, ("float", "double"))),
    "WebAssembly": (("wasm32-unknown-unknown", "generic", "+simd128"), (16, 16, 4, ())),
    "WebAssembly without vectors": (("wasm32-unknown-unknown", "generic", ""), (4, 16, 4, ())),
    "RISC-V": (("riscv64-unknown-linux-gnu", "generic-rv64", "+m,+f,+d"), (4, 32, 8, ("float", "double"))),
    "Cortex-M4": (("thumbv7em-none-eabihf", "cortex-m4", "+vfp4d16sp,-fp64"), (4, 16, 4, ("float",))),
    "Cortex-M3": (("thumbv7m-none-eabi", "cortex-m3", ""), (4, 16, 4, ())),
}


@each("name", FACTS)
def test_processors_have_vectors_registers_and_pointers(name: str) -> None:
    processor, facts = FACTS[name]
    target = Target.of(*processor)
    assert (target.vector_bytes, target.registers, target.pointer_bytes, target.fused) == facts
    assert target.lanes(4) == max(target.vector_bytes // 4, 1) and target.lanes(64) == 1


def test_only_fused_types_use_the_instruction() -> None:
    """Another processor would call a function of the C library for it."""

    def body(f: Any, pointers: Any, share: Any) -> None:
        for element in (FLOAT, DOUBLE):
            x = f.load(pointers[0], element)
            f.store_number(f.fma(x, x, x), pointers[0])

    text = texts(body, 1, target=Target.of(*FACTS["Cortex-M4"][0])).text
    assert "llvm.fma.f32" in text and "llvm.fma.f64" not in text and "fmul double" in text
    assert "load ptr, ptr" in text and "align 4" in text and "align 8" not in text.split("load ptr, ptr")[1].split("\n")[0]


@each("dtype", [np.float32, np.float64])
def test_rounding_by_additions_has_the_same_bits(dtype: Any) -> None:
    """Some processors have no instruction for it."""
    names = ("floor", "ceil", "trunc", "round_", "round_away")
    x = samples(dtype, 3)
    x[:64] = np.concatenate(
        [base + np.array([-0.0, 0.5, -0.5, 0.49999997, 1, 1.5, 2.5, -1.5]) for base in (-3, -1, -0.0, 0, 1, 7, 2**22, 2**51)]
    )
    host = compiler.host()
    expected, added = (computed(names, [x], replace(host, has_rounding=has_rounding)) for has_rounding in (True, False))
    for name in names:
        is_number = ~np.isnan(x)
        assert expected[name][is_number].tobytes() == added[name][is_number].tobytes(), name
        assert np.isnan(added[name][~is_number]).all()


def test_one_thread_computes_all_chunks() -> None:
    """A kernel of a target with one thread asks nobody for its share."""

    def body(f: Any, pointers: Any, share: Any) -> None:
        f.loop(*share.of(f, 8), 1, [], lambda i: f.store_number(i, f.at(pointers[0], i, INT64)))

    one = Target("x86_64-unknown-linux-gnu", "x86-64", "", 16, 16, Target.of("x86_64-", "", "").limits, threads=1)
    module = texts(body, 1, target=one)
    assert "%a1" not in module.text.partition("{")[2] and "%a2" not in module.text.partition("{")[2]
    assert module.footprints["kernel0"] == [(0, 8 * np.dtype(np.int64).itemsize)] and POINTER.bytes == 8

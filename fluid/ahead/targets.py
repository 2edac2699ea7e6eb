"""Processors by name."""

from __future__ import annotations

from dataclasses import replace

from ..errors import ProgramError, did_you_mean
from ..executor.native import compiler
from ..executor.native.target import Target

TARGETS: dict[str, tuple[str, str, str]] = {
    "x86-64": ("x86_64-unknown-linux-gnu", "x86-64", ""),
    "x86-64-v3": ("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt"),
    "x86-64-v4": ("x86_64-unknown-linux-gnu", "x86-64-v4", "+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl,+avx2,+fma"),
    "aarch64": ("aarch64-unknown-linux-gnu", "generic", "+neon"),
    "wasm32": ("wasm32-unknown-unknown", "generic", "+simd128,+bulk-memory"),
    "riscv64": ("riscv64-unknown-linux-gnu", "generic-rv64", "+m,+a,+f,+d,+c"),
    "cortex-m3": ("thumbv7m-unknown-none-eabi", "cortex-m3", ""),
    "cortex-m4": ("thumbv7em-unknown-none-eabihf", "cortex-m4", "+vfp4d16sp,-fp64"),
    "cortex-m7": ("thumbv7em-unknown-none-eabihf", "cortex-m7", "+vfp4d16sp,-fp64"),
    "cortex-m33": ("thumbv8m.main-unknown-none-eabihf", "cortex-m33", "+fp-armv8d16sp,-fp64"),
}
"""Name -> LLVM's names of the platform and the processor, and the processor's features. Triples are names of targets, too."""

_FAMILIES = ("x86_64", "aarch64", "arm64", "wasm32", "riscv64", "riscv32", "thumb", "arm")
"""How triples begin of processors that kernels can be written for."""


def find_target(name: str, cpu: str = "", features: str = "") -> Target:
    """The target of a name, for code that one thread runs.

    Args:
        name: ``host`` for this processor, a name in `TARGETS`, or a triple of LLVM (``aarch64-apple-darwin``).
        cpu: LLVM's name of the processor, in place of the target's usual one.
        features: LLVM's features, such as ``+dotprod,-fp16``, in addition to the usual ones.

    Raises:
        ProgramError: there is no such target.
        NativeUnavailable: llvmlite is missing.
    """
    if name == "host":
        host = compiler.host()
        without_tiles = [part for part in host.features.split(",") if not part.startswith("+amx")]
        triple, usual_cpu, usual_features = host.triple, host.cpu, ",".join(without_tiles)  # a process has to ask for tiles
    elif name in TARGETS:
        triple, usual_cpu, usual_features = TARGETS[name]
    elif name.count("-") >= 2:
        # LLVM takes the second of three parts for the vendor, which "none" is not.
        triple = name.replace("-none-", "-unknown-none-") if name.count("-") == 2 else name
        usual_cpu = usual_features = ""
    else:
        choices = ", ".join(["host", *TARGETS])
        raise ProgramError(f"there is no target {name!r}{did_you_mean(name, TARGETS)}; there are {choices}, and LLVM's triples")
    family = triple.partition("-")[0]
    if not family.startswith(_FAMILIES):
        raise ProgramError(f"nothing is compiled for {family}, only for {', '.join(_FAMILIES)}")
    all_features = ",".join(part for part in (usual_features, features) if part)
    return replace(Target.of(triple, cpu or usual_cpu, all_features), threads=1)

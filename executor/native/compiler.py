"""Compiles functions in LLVM's text form to machine code for this processor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

__all__ = ["Library", "Target", "compile_object", "host"]


@dataclass(frozen=True)
class Target:
    """A processor that code is made for: LLVM's names of platform and processor, and its features (``+avx2,-avx512f``)."""

    triple: str
    cpu: str
    features: str

    @property
    def vector_bytes(self) -> int:
        """Bytes of the widest vectors that are worth using."""
        if "+avx512f" in self.features:
            return 64
        return 32 if "+avx2" in self.features else 16

    @property
    def registers(self) -> int:
        """Vector registers."""
        return 32 if "+avx512f" in self.features or not self.triple.startswith("x86") else 16

    @property
    def attributes(self) -> str:
        return (
            f'attributes #0 = {{ nounwind "target-cpu"="{self.cpu}" "target-features"="{self.features}" '
            f'"prefer-vector-width"="{8 * self.vector_bytes}" }}'
        )


@cache
def _llvm() -> Any:
    """llvmlite's binding, ready for use."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@cache
def host() -> Target:
    """This processor."""
    llvm = _llvm()
    return Target(llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())


def _machine(target: Target) -> Any:
    """LLVM's code generator for a processor."""
    llvm = _llvm()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=1, reloc="pic", codemodel="small", jit=True
    )


def compile_object(text: str, target: Target) -> bytes:
    """Machine code, as an object file, of the functions in a text."""
    module = _llvm().parse_assembly(f'target triple = "{target.triple}"\n{text}\n{target.attributes}')
    module.verify()
    return bytes(_machine(target).emit_object(module))


@dataclass
class Library:
    """Machine code that is loaded into this process.

    Attributes:
        addresses: name of a function -> its address. They hold as long as the library lives.
    """

    code: bytes
    names: Sequence[str]
    addresses: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        llvm = _llvm()
        linker = llvm.create_lljit_compiler(_machine(host()))
        builder = llvm.JITLibraryBuilder().add_object_img(self.code).add_current_process()
        for name in self.names:
            builder.export_symbol(name)
        self._tracker = builder.link(linker, f"library{id(self)}")
        self._linker = linker
        self.addresses = {name: self._tracker[name] for name in self.names}

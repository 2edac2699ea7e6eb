"""Compiles functions in LLVM's text form to machine code for this processor.

Whatever is in the way of native code is a `NativeUnavailable`, which says what: callers warn once, and go on without.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import string_at
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import Any

from .fallback import NativeUnavailable

__all__ = ["Library", "NativeUnavailable", "Target", "compile_object", "host", "versions"]

_OLDEST_LLVM = 20


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
    try:
        import llvmlite.binding as llvm
    except (ImportError, OSError) as error:
        raise NativeUnavailable(f"llvmlite cannot be imported: {error}") from None
    version = llvm.llvm_version_info
    if version[0] < _OLDEST_LLVM:
        release = ".".join(map(str, version))
        raise NativeUnavailable(f"this llvmlite brings LLVM {release}; LLVM {_OLDEST_LLVM} is needed: pip install -U llvmlite")
    try:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    except RuntimeError as error:
        raise NativeUnavailable(f"LLVM makes no code for this processor: {error}") from None
    return llvm


@cache
def versions() -> str:
    """The releases of llvmlite and of its LLVM."""
    import llvmlite

    return f"llvmlite {llvmlite.__version__}, LLVM {_llvm().llvm_version_info}"


@cache
def host() -> Target:
    """This processor.

    Raises:
        NativeUnavailable: kernels are not made for its kind, or it lacks what they are made of.
    """
    llvm = _llvm()
    triple = llvm.get_process_triple()
    try:
        features = llvm.get_host_cpu_features()
    except RuntimeError as error:
        raise NativeUnavailable(f"LLVM does not know this processor's features: {error}") from None
    if triple.startswith("x86_64"):
        missing = [name for name in ("avx2", "fma") if not features.get(name)]
        if missing:
            raise NativeUnavailable(f"this processor lacks {' and '.join(missing)}")
    elif not triple.startswith(("aarch64", "arm64")):
        raise NativeUnavailable(f"kernels are made for x86-64 and 64-bit ARM, not for {triple}")
    return Target(triple, llvm.get_host_cpu_name(), features.flatten())


def _machine(target: Target) -> Any:
    """LLVM's code generator for a processor."""
    llvm = _llvm()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=1, reloc="pic", codemodel="small", jit=True
    )


def compile_object(text: str, target: Target) -> bytes:
    """Machine code, as an object file, of the functions in a text. Several threads may do this at the same time.

    Raises:
        NativeUnavailable: LLVM refuses the text, or the target.
    """
    llvm = _llvm()
    context = llvm.create_context()  # what threads share of another one would keep them from working at the same time
    try:
        with llvm.parse_assembly(f'target triple = "{target.triple}"\n{text}\n{target.attributes}', context) as module:
            module.verify()
            return _emitted(module, _machine(target))
    except RuntimeError as error:
        raise NativeUnavailable(f"LLVM makes no code of a kernel: {error}") from None


def _emitted(module: Any, machine: Any) -> bytes:
    """The object file that a code generator makes of a module.

    llvmlite's own method holds a lock that all threads share, though LLVM needs none for modules of different contexts.
    """
    from llvmlite.binding import ffi

    emit = ffi.lib.LLVMPY_TargetMachineEmitToMemory
    with ffi.OutputString() as error:
        memory = getattr(emit, "_cfn", emit)(machine, module, 1, error)
        if not memory:
            raise RuntimeError(str(error))
    try:
        return string_at(ffi.lib.LLVMPY_GetBufferStart(memory), ffi.lib.LLVMPY_GetBufferSize(memory))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(memory)


@cache
def _linker() -> Any:
    """What loads libraries into this process.

    LLVM's older linker asks for memory section by section. Where these came to lie further apart than instructions reach, because
    others had taken what was free in between, it ended the process.
    """
    return _llvm().create_lljit_compiler(_machine(host()), use_jit_link=True)


_numbers = count()


@dataclass
class Library:
    """Machine code that is loaded into this process.

    Attributes:
        addresses: name of a function -> its address. They hold as long as the library lives.

    Raises:
        NativeUnavailable: the code cannot be loaded.
    """

    objects: Sequence[bytes]
    names: Sequence[str]
    addresses: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        builder = _llvm().JITLibraryBuilder().add_current_process()
        for code in self.objects:
            builder.add_object_img(code)
        for name in self.names:
            builder.export_symbol(name)
        try:
            self._tracker = builder.link(_linker(), f"library{next(_numbers)}")
        except RuntimeError as error:
            raise NativeUnavailable(f"compiled kernels cannot be loaded: {error}") from None
        self.addresses = {name: self._tracker[name] for name in self.names}

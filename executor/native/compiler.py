"""Compiles functions in LLVM's text form to machine code for this processor.

Every obstacle to native code raises `NativeUnavailable` with the reason; callers warn once and continue without native code.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from ctypes import CDLL, string_at
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from itertools import count, takewhile
from typing import Any, NamedTuple

from .bounds import Footprint
from .fallback import NativeUnavailable
from .loader import load
from .sealed import TOOLS, folder, read_sealed, write_sealed
from .target import Target

__all__ = ["Library", "NativeUnavailable", "compile_library", "compile_object", "host", "versions"]

_OLDEST_LLVM = 20


@cache
def _llvm() -> Any:
    """Initialize llvmlite's binding and return it."""
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


def versions() -> str:
    """The releases of llvmlite and of its LLVM."""
    return _tools().versions


_HEAD_OF_TOOLS = b"fluid tools 1\n"
"""Begins the files of `_Tools`, with the version of their format."""
_PROCESSOR_LINES = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")
"""Lines of ``/proc/cpuinfo`` that tell processors apart."""


class _Tools(NamedTuple):
    """The compiler, and LLVM's names of this processor and its features."""

    versions: str
    triple: str
    cpu: str
    features: dict[str, bool]


@cache
def _tools() -> _Tools:
    """Ask LLVM about itself and this processor, or read its former answer in the cache, without loading LLVM."""
    path = _path_of_tools()
    body = read_sealed(path, _HEAD_OF_TOOLS) if path is not None else None
    if body is not None:
        return _Tools(*json.loads(body))
    llvm = _llvm()
    import llvmlite

    try:
        features = dict(llvm.get_host_cpu_features())
    except RuntimeError as error:
        raise NativeUnavailable(f"LLVM does not know this processor's features: {error}") from None
    versions = f"llvmlite {llvmlite.__version__}, LLVM {llvm.llvm_version_info}"
    tools = _Tools(versions, llvm.get_process_triple(), llvm.get_host_cpu_name(), features)
    if path is not None:
        write_sealed(path, _HEAD_OF_TOOLS, json.dumps(tools).encode())
    return tools


def _path_of_tools() -> str | None:
    """The file for this llvmlite and processor; None if there is no cache, or the system does not describe the processor."""
    place, llvmlite = folder(), find_spec("llvmlite")
    if place is None or llvmlite is None or llvmlite.origin is None:
        return None
    try:
        with open("/proc/cpuinfo") as lines:
            described = [line for line in takewhile(str.strip, lines) if line.partition("\t")[0].strip() in _PROCESSOR_LINES]
        library = os.path.join(os.path.dirname(llvmlite.origin), "binding", "libllvmlite.so")
        facts = [(path, status.st_size, status.st_mtime_ns) for path in (llvmlite.origin, library) for status in [os.stat(path)]]
    except OSError:
        return None
    digest = sha256(repr((facts, described, sys.version_info, sys.maxsize)).encode()).hexdigest()
    return os.path.join(place, digest + TOOLS) if described else None


@cache
def host() -> Target:
    """This processor, without the features that ``FLUID_NATIVE_FEATURES`` removes (``-avx512f``, or several, with commas).

    Raises:
        NativeUnavailable: the processor's family is not supported, or it lacks a required feature.
    """
    _, triple, cpu, features = _tools()
    features = dict(features)
    for name in _features_to_leave_out(features):
        features |= {feature: False for feature in features if feature == name or _needs(feature, name)}
    if features.get("amx-tile") and not _lets_use_tiles():
        features |= {feature: False for feature in features if feature.startswith("amx")}
    if triple.startswith("x86_64"):
        missing = [name for name in ("avx2", "f16c", "fma") if not features.get(name)]
        if missing:
            raise NativeUnavailable(f"this processor lacks {' and '.join(missing)}")
    elif not triple.startswith(("aarch64", "arm64")):
        raise NativeUnavailable(f"kernels are made for x86-64 and 64-bit ARM, not for {triple}")
    feature_flags = ",".join(f"{'+' if features[name] else '-'}{name}" for name in sorted(features))
    return Target.of(triple, cpu, feature_flags)


def _lets_use_tiles() -> bool:
    """Ask the system to let this process, and its threads, use the tiles of AMX. Linux lets it if signal stacks have room."""
    if not sys.platform.startswith("linux"):
        return False
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    return int(CDLL(None).syscall(arch_prctl, request_permission, tile_data)) == 0


def _features_to_leave_out(features: Collection[str]) -> list[str]:
    """The features that the user removes with ``FLUID_NATIVE_FEATURES``."""
    removals = [word.strip() for word in os.environ.get("FLUID_NATIVE_FEATURES", "").split(",") if word.strip()]
    wrong = [word for word in removals if not word.startswith("-") or word[1:] not in features]
    if wrong:
        raise NativeUnavailable(f"FLUID_NATIVE_FEATURES: {wrong[0]} takes no feature from this processor, such as -avx512f does")
    return [word[1:] for word in removals]


def _needs(feature: str, name: str) -> bool:
    """Whether a feature depends on another one: all of AVX-512 depends on avx512f."""
    return name == "avx512f" and feature.startswith("avx512")


def _machine(target: Target) -> Any:
    """LLVM's code generator for this processor."""
    llvm = _llvm()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=1, reloc="pic", codemodel="small", jit=True
    )


def compile_object(text: str, target: Target) -> bytes:
    """Compile the functions in a text to an object file. Thread-safe.

    Raises:
        NativeUnavailable: LLVM refuses the text, or the target.
    """
    llvm = _llvm()
    context = llvm.create_context()  # with a shared context, threads could not compile at the same time
    try:
        with llvm.parse_assembly(f'target triple = "{target.triple}"\n{text}\n{target.attributes}', context) as module:
            module.verify()
            return _emit_object(module, _machine(target))
    except RuntimeError as error:
        raise NativeUnavailable(f"LLVM makes no code of a kernel: {error}") from None


def compile_library(text: str, target: Target) -> bytes:
    """Compile the functions in a text, for any processor, to an object file for its usual linker.

    Raises:
        NativeUnavailable: LLVM does not know the target, or refuses the text.
    """
    llvm = _llvm()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    has_loader = "-none" not in target.triple and not target.triple.startswith("wasm")
    try:
        machine = llvm.Target.from_triple(target.triple).create_target_machine(
            cpu=target.cpu,
            features=target.features,
            opt=1,
            reloc="pic" if has_loader else "static",
            codemodel="default",
            abiname="lp64d" if target.triple.startswith("riscv64") and "double" in target.fused else "",
        )
        head = f'target triple = "{target.triple}"\ntarget datalayout = "{machine.target_data}"\n'
        with llvm.parse_assembly(f"{head}{text}\n{target.attributes}", llvm.create_context()) as module:
            module.verify()
            return _emit_object(module, machine)
    except RuntimeError as error:
        raise NativeUnavailable(f"LLVM makes no code for {target.triple}: {error}") from None


def _emit_object(module: Any, machine: Any) -> bytes:
    """Generate the object file of a module.

    llvmlite's method for this holds a global lock, though LLVM needs none for modules of different contexts.
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
    """The JIT linker, which loads libraries into this process.

    LLVM's older linker (RuntimeDyld) allocates memory section by section. In a crowded address space, sections could end up
    further apart than instructions reach; then it aborted the process.
    """
    return _llvm().create_lljit_compiler(_machine(host()), use_jit_link=True)


_numbers = count()


@dataclass
class Library:
    """Machine code, loaded into this process.

    Attributes:
        footprints: name of a function -> the footprint of each operand.
        addresses: name of a function -> its address, valid as long as the library lives.

    Raises:
        NativeUnavailable: the code cannot be loaded.
    """

    objects: Sequence[bytes]
    footprints: Mapping[str, Sequence[Footprint]]
    addresses: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self._image = load(self.objects)
        addresses = self._linked() if self._image is None else self._image.addresses
        self.addresses = {name: addresses[name] for name in self.footprints}

    def _linked(self) -> Any:
        """Load the objects by LLVM's linker; returns the address of each function by its name."""
        builder = _llvm().JITLibraryBuilder().add_current_process()
        for code in self.objects:
            builder.add_object_img(code)
        for name in self.footprints:
            builder.export_symbol(name)
        try:
            self._tracker = builder.link(_linker(), f"library{next(_numbers)}")
        except RuntimeError as error:
            raise NativeUnavailable(f"compiled kernels cannot be loaded: {error}") from None
        return self._tracker

    @property
    def size(self) -> int:
        """The bytes of its object files."""
        return sum(map(len, self.objects))

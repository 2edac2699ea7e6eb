"""The command that reports Fluid's environment."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, metadata, version

import click
import numpy as np

from .. import __version__
from ..errors import ExecutionError, FluidError, how_to_install
from ..executor.native.compiler import host
from ..executor.native.fallback import NativeUnavailable, is_enabled, or_unavailable
from ..executor.native.sealed import folder
from ..executor.runtime.threads import available_cores, blas_threads, get_num_threads
from ..install_check import run_check
from ..values.place import XLA_DEVICES, get_cuda_device_count
from .common import as_json, table

_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "FLUID_NATIVE",
    "FLUID_NATIVE_CACHE",
    "JAX_PLATFORMS",
    "OMP_NUM_THREADS",
    "OPENBLAS_CORETYPE",
)
"""Environment variables that change results or speed."""


@click.command()
@click.option("--json", "is_json", is_flag=True, help="For programs.")
def doctor(is_json: bool) -> None:
    """Say versions, threads, devices and optional parts, and train a small program to see that all works."""
    facts = {"part": _parts(), "extra": _extras(), "variable": _environment()}
    if is_json:
        return as_json(facts)
    for kind, lines in facts.items():
        table([kind, "packages" if kind == "extra" else "here"], lines.items())
    try:
        run_check()
    except FluidError as error:
        raise ExecutionError(f"a small program could not be trained: {error}") from error
    return None


def _parts() -> dict[str, str]:
    """Report the parts that run programs."""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "protobuf", "networkx", "click"))
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    threads = blas_threads()
    of_cuda, of_xla = get_cuda_device_count(), _xla_devices()
    return {
        "fluid": __version__,
        "python": f"{platform.python_version()}, {platform.python_implementation()}",
        "machine": f"{platform.system()} {platform.machine()}, {available_cores()} cores",
        "libraries": libraries,
        "BLAS": f"{blas['name']} {blas['version']}" + ("" if threads is None else f", {threads} threads"),
        "threads": f"{get_num_threads()} (fluid.set_num_threads)",
        "native code": _native_code(),
        "CUDA devices": str(of_cuda),
        "XLA devices": of_xla,
        "a GPU": _way_to_gpu(of_cuda, of_xla),
    }


def _way_to_gpu(of_cuda: int, of_xla: str) -> str:
    """Say how programs run on a GPU, from the number of cupy's devices and the list of XLA's."""
    convolutions = "convolutions by cuDNN" if importlib.util.find_spec("cudnn") else f"cuDNN: {how_to_install('cudnn')}"
    by_cupy = (
        "fluid.CUDAPlace(0) for eager mode, and for what XLA refuses "
        f"(recorded=True: programs of small steps as CUDA graphs; {convolutions})"
    )
    if of_xla.endswith(" gpu") or " gpu," in of_xla:
        return f'fluid.XLAPlace("gpu"); {by_cupy}' if of_cuda else 'fluid.XLAPlace("gpu")'
    if of_cuda:
        return f'fluid.XLAPlace("gpu") after pip install "jax[cuda13]" (or "jax[cuda12]"); {by_cupy}'
    return "none that jax or cupy finds"


def _native_code() -> str:
    """Report whether ops become vector code, for which processor, and where it is cached."""
    if not is_enabled():
        is_off = os.environ.get("FLUID_NATIVE") == "0"
        return "off: FLUID_NATIVE=0" if is_off else f"none: llvmlite is not installed ({how_to_install('native')})"
    try:
        with or_unavailable():
            return f"for {host().cpu}, vectors of {host().vector_bytes} bytes; kernels are kept in {folder() or 'no folder'}"
    except NativeUnavailable as error:
        return f"none: {error}"


_LISTING = """
import sys
import jax
for kind in sys.argv[1:]:
    try:
        print(f"{len(jax.devices(kind))} {kind}")
    except RuntimeError:
        pass
"""
_MOST_SECONDS = 60
"""The time limit for jax to find devices; with a broken driver it may never end."""


def _xla_devices() -> str:
    """Count the devices of each kind that jax finds. A subprocess asks jax, because jax reserves the devices and may hang."""
    if importlib.util.find_spec("jax") is None:
        return f"none: jax is not installed ({how_to_install('xla')})"
    try:
        answer = subprocess.run(
            [sys.executable, "-c", _LISTING, *XLA_DEVICES], capture_output=True, text=True, timeout=_MOST_SECONDS, check=True
        )
    except subprocess.TimeoutExpired:
        return f"unknown: jax has not answered for {_MOST_SECONDS} s; JAX_PLATFORMS=cpu has it look for no others"
    except subprocess.CalledProcessError as error:
        return f"none: jax fails: {(error.stderr.splitlines() or [''])[-1]}"
    return ", ".join(answer.stdout.splitlines()) or "none"


def _extras() -> dict[str, str]:
    """Extra -> its packages, with the installed versions."""
    try:
        requirements = metadata("fluid-graph").get_all("Requires-Dist") or []
    except PackageNotFoundError:
        return {}
    packages: dict[str, list[str]] = {}
    for line in requirements:
        requirement, _, marker = line.partition(";")
        if "extra ==" not in marker:
            continue
        extra = marker.split("extra ==")[1].strip(" '\"")
        name = next(iter(requirement.replace("[", " ").replace(">", " ").replace("=", " ").replace("<", " ").split()))
        packages.setdefault(extra, []).append(name if name == "fluid-graph" else f"{name} {_version(name)}")
    return {extra: ", ".join(name for name in names if name != "fluid-graph") for extra, names in sorted(packages.items())}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(not installed)"


def _environment() -> dict[str, str]:
    return {name: os.environ.get(name, "not set") for name in _VARIABLES}


COMMANDS = [doctor]

"""The cache of kernels: kernels are compiled once, untrusted files are never loaded, and failures do not stop programs."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import shutil
import signal
import sys
import threading
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import Checks, each

import fluid
from fluid import layers
from fluid.executor.native import cache, compiler, sealed
from fluid.executor.native.cache import Kernels, Writer
from fluid.executor.native.compiler import NativeUnavailable
from fluid.executor.native.emitter import DOUBLE, Function, Module, Value
from fluid.executor.native.instructions import WrittenKernel
from fluid.executor.native.kernel import Share, write_kernel
from fluid.executor.native.sealed import folder, read
from fluid.executor.native.target import Target
from fluid.executor.runtime import cache_folder


def written(name: str, add: float, helper: bool = False) -> WrittenKernel:
    """A kernel that adds a number to its operand, in a function that it calls or by itself."""
    module = Module(compiler.host())
    if helper:
        f = Function(module, "plus", [DOUBLE], DOUBLE, "internal")
        f.end(f.fma(f.arguments[0], 1.0, add))

    def body(f: Function, pointers: Any, share: Share) -> None:
        x = f.load(pointers[0], DOUBLE)
        total = f.call("plus", x, result=DOUBLE) if helper else f.fma(x, 1.0, add)
        assert isinstance(total, Value)
        f.store_number(total, pointers[0])

    write_kernel(module, name, 1, body)
    return WrittenKernel(module.text, module.footprints[name])


def writers(*added: float, helper: bool = False) -> dict[str, Writer]:
    return {f"add{number}": partial(written, add=number, helper=helper) for number in added}


def bad(text: str) -> Writer:
    """Writes a text, with the kernel's name in it."""
    return lambda name: WrittenKernel(text.format(name), [])


def unwritten(name: str) -> str:
    """Stands for a text that nobody needs."""
    raise AssertionError(f"{name} is written again")


def compile_kernels(writers: dict[str, Writer], target: Target | None = None) -> Kernels:
    """Compile kernels, for this processor unless a target is given."""
    return cache.compile_kernels(writers, target or compiler.host())


def results(kernels: Kernels) -> dict[str, float]:
    """The result of each kernel for 0."""
    values = {}
    for name, address in kernels.addresses.items():
        x = np.zeros(1)
        words = np.array([x.ctypes.data], np.int64)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)(words.ctypes.data, 0, 1)
        values[name] = float(x[0])
    return values


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own, in a process where nothing is loaded; no warning may appear."""
    path = tmp_path / "cache"
    compiler.host()  # its file lies elsewhere
    monkeypatch.setenv("FLUID_NATIVE_CACHE", str(path))
    forget()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield path
    forget()


def forget() -> None:
    """Make this process as if it were new to the cache."""
    forget_kernels()
    cache_folder._warned.clear()


def forget_kernels() -> None:
    cache._recent.clear()
    gc.collect()
    cache._loaded.clear()


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many kernels each compilation had."""
    counts: list[int] = []

    def counting(text: str, target: Target) -> bytes:
        counts.append(text.count("define void"))
        return compiler.compile_object(text, target)

    monkeypatch.setattr(cache, "compile_object", counting)
    return counts


def test_what_is_loaded_or_on_disk_is_not_compiled_again(place: Path, compiled: list[int]) -> None:
    first = compile_kernels(writers(1, 2))
    assert results(first) == {"add1": 1, "add2": 2} and compiled == [2]
    same = compile_kernels({"add2": unwritten})
    assert same.addresses["add2"] == first.addresses["add2"]
    del first, same
    forget()
    assert compile_kernels({"add1": unwritten, "add2": unwritten}).addresses.keys() == {"add1", "add2"}
    forget()
    assert results(compile_kernels(writers(2, 1))) == {"add2": 2, "add1": 1} and compiled == [2]
    forget()
    # kernels of two bundles, and one that is in none
    compile_kernels(writers(3))
    forget()
    assert results(compile_kernels(writers(1, 3, 4))) == {"add1": 1, "add3": 3, "add4": 4}
    assert compiled == [2, 1, 1] and len(list(place.iterdir())) == 3
    assert compile_kernels({}).addresses == {}


@each("limit", ["_MOST_RECENT", "_MOST_RECENT_BYTES"])
def test_unused_kernels_are_unloaded_when_others_are_used(place: Path, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    size = compile_kernels(writers(1)).libraries[0].size
    forget_kernels()
    monkeypatch.setattr(cache, limit, 2 if limit == "_MOST_RECENT" else 2 * size + size // 2)
    for number in (1, 2, 1, 3):
        compile_kernels(writers(number))
    gc.collect()
    assert set(cache._loaded) == {cache._key(f"add{number}", compiler.host()) for number in (1, 3)}


def test_kernels_are_loaded_once_for_many_scopes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM keeps some memory of each library that was ever loaded."""
    y = layers.scale(layers.tanh(fluid.data("x", [None, 8])), 3.0)
    loads, load = [], compiler.Library.__post_init__

    def counting(library: compiler.Library) -> None:
        loads.append(library.footprints.keys())
        load(library)

    monkeypatch.setattr(compiler.Library, "__post_init__", counting)
    for _ in range(5):
        fluid.Executor().run(feed={"x": np.ones((3, 8), "float32")}, fetch_list=[y], scope=fluid.Scope())
        gc.collect()
    assert len(loads) == len(set(map(frozenset, loads)))


def test_functions_of_kernels_keep_apart(place: Path) -> None:
    kernels = compile_kernels(writers(1, 2, helper=True) | writers(3))
    assert results(kernels) == {"add1": 1, "add2": 2, "add3": 3}


def test_kernels_are_compiled_in_several_modules(place: Path, compiled: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """By several threads, into one bundle; a text that LLVM refuses is told, whichever it is."""
    monkeypatch.setattr(cache, "get_num_threads", lambda: 3)
    monkeypatch.setattr(cache, "available_cores", lambda: 3)
    monkeypatch.setattr(cache, "_LONG_TEXT", 2 * len(written("k" * 65, 1, helper=True).text) - 1)
    numbers = range(7)
    expected = {f"add{number}": number for number in numbers}
    assert results(compile_kernels(writers(*numbers, helper=True))) == expected
    assert sorted(compiled) == [1, 2, 2, 2] and len(list(place.iterdir())) == 1
    forget()
    assert results(compile_kernels(dict.fromkeys(expected, unwritten))) == expected
    forget()
    with pytest.raises(NativeUnavailable, match="LLVM makes no code"):
        compile_kernels(writers(10, 11) | {"bad": bad("define void @{}() {{\n  ret i32 %nothing\n}}")} | writers(12, 13))


def test_kernels_of_other_sources_are_not_taken(place: Path, compiled: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The sources changed after a bundle was stored, or cannot be read."""
    compile_kernels(writers(1))
    here = Path(str(cache.__file__)).parent
    assert cache._sources() == cache._sources.__wrapped__()
    changed = place.parent / "package"
    shutil.copytree(here, changed, ignore=shutil.ignore_patterns("__pycache__"))
    (changed / "loops.py").write_text((here / "loops.py").read_text() + "# changed")
    for folder_of_sources in (changed, place.parent / "nowhere"):
        forget()
        cache._sources.cache_clear()
        monkeypatch.setattr(cache, "__file__", str(folder_of_sources / "cache.py"))
        assert results(compile_kernels(writers(1))) == {"add1": 1}
    assert compiled == [1, 1, 1]
    cache._sources.cache_clear()


def test_processors_have_kernels_of_their_own(place: Path, compiled: list[int]) -> None:
    host = compiler.host()
    older = Target.of(host.triple, "x86-64-v3" if host.triple.startswith("x86") else "generic", "")
    kernels = [compile_kernels(writers(1), target) for target in (host, older, host)]
    assert compiled == [1, 1]
    assert kernels[0].addresses == kernels[2].addresses != kernels[1].addresses


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x40
    path.write_bytes(data)


def replace_by(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


HEAD = len(cache._HEAD) + 32
DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: os.truncate(path, path.stat().st_size - 1),
    "cut in its head": lambda path: os.truncate(path, HEAD - 1),
    "empty": lambda path: os.truncate(path, 0),
    "another object": lambda path: flip(path, -100),
    "another key": lambda path: flip(path, HEAD + 5),
    "a billion keys": lambda path: flip(path, HEAD + 3),
    "another digest": lambda path: flip(path, HEAD - 1),
    "something else": lambda path: path.write_bytes(b"x" * 5000),
    "of no use": lambda path: path.write_bytes(
        cache._Bundle(dict.fromkeys(cache._keys_in(path.read_bytes()), ()), [b"no object"]).to_bytes()
    ),
    "writable by others": lambda path: path.chmod(0o622),
    "a fifo": lambda path: replace_by(path, os.mkfifo),
    "a link": lambda path: path.symlink_to(path.rename(path.with_name("elsewhere"))),
}


def test_what_is_damaged_is_made_anew(place: Path, compiled: list[int]) -> None:
    compile_kernels(writers(1))
    (path,) = place.iterdir()
    whole = path.read_bytes()
    with Checks() as check:
        for name, damage in DAMAGES.items():
            with check(name):
                forget()
                compiled.clear()
                damage(path)
                for _ in range(2):  # with what is damaged as its own, and as what may share a kernel
                    assert results(compile_kernels(writers(1))) == {"add1": 1}
                assert compiled == [1]
                assert path.read_bytes() == whole and not path.is_symlink()
                assert path.stat().st_mode & 0o777 == 0o600
    assert (place / "elsewhere").read_bytes() == whole


def test_damage_does_not_spread_to_other_bundles(place: Path, compiled: list[int]) -> None:
    """Where several bundles hold a kernel, one that is damaged is passed over, and one whose object cannot be loaded."""
    for name, damage in DAMAGES.items():
        for path in place.iterdir() if place.exists() else ():
            path.unlink()
        forget()
        compile_kernels(writers(1, 2))
        (path,) = place.iterdir()
        damage(path)
        forget()
        assert results(compile_kernels(writers(1))) == {"add1": 1}, name


def test_bundles_of_other_kernels_are_read_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    read = cache.read
    monkeypatch.setattr(cache, "read", lambda path, *most: reads.append(path) or read(path, *most))
    for number in range(1, 6):
        compile_kernels(writers(number))
        forget()
    assert len(reads) == len(set(reads)) == 4
    assert results(compile_kernels({**writers(3), "add9": writers(9)["add9"]})) == {"add3": 3, "add9": 9}


UNTRUSTED: dict[str, Callable[[Path], object]] = {
    "a link": lambda path: path.symlink_to(path.parent),
    "a file": lambda path: path.write_bytes(b""),
    "writable by the group": lambda path: (path.mkdir(), path.chmod(0o770)),
    "writable by all": lambda path: (path.mkdir(), path.chmod(0o707)),
}
if hasattr(os, "geteuid") and os.geteuid() == 0:
    UNTRUSTED["another's"] = lambda path: (path.mkdir(mode=0o700), os.chown(path, 12345, 12345))


@each("make", [pytest.param(make, id=name) for name, make in UNTRUSTED.items()])
def test_a_folder_that_cannot_be_trusted_is_not_used(
    make: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cache"
    make(path)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setenv("FLUID_NATIVE_CACHE", str(path))
    forget()
    with pytest.warns(RuntimeWarning, match=rf"not kept on disk. {path}: .*FLUID_NATIVE_CACHE names another") as told:
        assert results(compile_kernels(writers(1))) == {"add1": 1}
        forget_kernels()
        assert results(compile_kernels(writers(1))) == {"add1": 1}
    assert len(told) == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_what_cannot_be_written_is_told_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.parent.joinpath("file").write_bytes(b"")

    def fails(source: str, target: str) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)

    for setting, problem in (
        (place.parent / "file" / "cache", "the folder cannot be made"),
        (place, "(?i)no space left on device"),
    ):
        forget()
        monkeypatch.setenv("FLUID_NATIVE_CACHE", str(setting))
        monkeypatch.setattr(os, "replace", fails)
        with pytest.warns(RuntimeWarning, match=problem) as told:
            for number in (1, 1, 2):
                assert results(compile_kernels(writers(number))) == {f"add{number}": number}
        assert len(told) == 1


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("FLUID_NATIVE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if sys.platform == "linux":
        usual = tmp_path / ".cache" / "fluid" / "native"
        assert folder() == str(usual) and usual.stat().st_mode & 0o777 == 0o700
        monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
        assert folder() == str(usual)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
        assert folder() == str(tmp_path / "x" / "fluid" / "native")
        monkeypatch.setattr(sys, "platform", "darwin")
        assert folder() == str(tmp_path / "Library" / "Caches" / "fluid" / "native")
        monkeypatch.setattr(sys, "platform", "win32")
        assert folder() is None
        monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
        assert folder() == str(tmp_path / "local" / "fluid" / "native")
    for none in ("", "0"):
        monkeypatch.setenv("FLUID_NATIVE_CACHE", none)
        assert folder() is None
        assert results(compile_kernels(writers(7))) == {"add7": 7}


def test_what_was_not_used_for_longest_goes_first(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def store(number: int) -> Path:
        forget()
        before = set(place.iterdir()) if place.exists() else set()
        compile_kernels(writers(number))
        return (set(place.iterdir()) - before or {place}).pop()

    paths = [store(number) for number in range(4)]
    for age, path in enumerate(paths):
        os.utime(path, (1e9 + age, 1e9 + age))
    notes = place / "notes.txt"
    notes.write_bytes(b"the user's")
    store(0)  # is used again
    monkeypatch.setattr(sealed, "_MOST_FILES", 3)
    newest = store(4)
    assert set(place.iterdir()) == {paths[0], paths[3], newest, notes}
    monkeypatch.setattr(sealed, "MOST_BYTES", 2 * newest.stat().st_size - 1)
    newest = store(5)
    assert set(place.iterdir()) == {newest, notes}


# -- what is in the way of native code
def test_a_text_that_llvm_refuses(place: Path) -> None:
    with pytest.raises(
        NativeUnavailable, match=r"(?s)LLVM makes no code of a kernel: .*error: use of undefined value '%nothing'"
    ):
        compile_kernels(
            {"bad": bad("define void @{}(ptr %a0, i64 %a1, i64 %a2) #0 {{\n  %v = add i64 %nothing, 1\n  ret void\n}}")}
        )
    with pytest.raises(NativeUnavailable, match=r"(?s)compiled kernels cannot be loaded"):
        missing = "declare void @no_such_function()\n"
        body = "define void @{}(ptr %a, i64 %b, i64 %c) #0 {{\n  call void @no_such_function()\n  ret void\n}}"
        compile_kernels({"bad": bad(missing + body)})


def test_a_machine_without_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    import llvmlite.binding as llvm

    monkeypatch.setenv("FLUID_NATIVE_CACHE", "0")

    def unavailable(ask: Callable[[], object]) -> str:
        for function in (compiler._llvm, compiler._tools, compiler.host):
            function.cache_clear()
        with pytest.raises(NativeUnavailable) as told:
            ask()
        return str(told.value)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(llvm, "llvm_version_info", (15, 0, 7))
            assert "this llvmlite brings LLVM 15.0.7; LLVM 20 is needed: pip install -U llvmlite" in unavailable(compiler.host)
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "llvmlite.binding", None)
            patch.delattr(sys.modules["llvmlite"], "binding")
            assert "llvmlite cannot be imported" in unavailable(lambda: compile_kernels(writers(1)))
        with monkeypatch.context() as patch:
            patch.setattr(llvm, "get_process_triple", lambda: "riscv64-unknown-linux-gnu")
            assert unavailable(compiler.host) == "kernels are made for x86-64 and 64-bit ARM, not for riscv64-unknown-linux-gnu"
        with monkeypatch.context() as patch:
            patch.setattr(llvm, "get_process_triple", lambda: "x86_64-pc-linux-gnu")
            patch.setattr(llvm, "get_host_cpu_features", lambda: {"avx2": False, "fma": False, "sse2": True})
            assert unavailable(compiler.host) == "this processor lacks avx2 and f16c and fma"
        with monkeypatch.context() as patch:
            patch.setattr(llvm, "get_process_triple", lambda: "x86_64-pc-linux-gnu")
            features = dict.fromkeys(("avx2", "f16c", "fma", "avx512f", "avx512vl"), True)
            patch.setattr(llvm, "get_host_cpu_features", lambda: features)
            for words, vector_bytes in {"": 64, "-avx512vl": 64, "-avx512f": 32, " -avx512f, -avx512vl,": 32}.items():
                patch.setenv("FLUID_NATIVE_FEATURES", words)
                compiler._tools.cache_clear()
                compiler.host.cache_clear()
                assert compiler.host().vector_bytes == vector_bytes
            assert compiler.host().features == "+avx2,-avx512f,-avx512vl,+f16c,+fma"
            patch.setenv("FLUID_NATIVE_FEATURES", "-fma,-avx2")
            assert unavailable(compiler.host) == "this processor lacks avx2 and fma"
            for wrong in ("+avx2", "avx2", "-avx2x"):
                patch.setenv("FLUID_NATIVE_FEATURES", wrong)
                assert unavailable(compiler.host).startswith(f"FLUID_NATIVE_FEATURES: {wrong} takes no feature")
    finally:
        for function in (compiler._llvm, compiler._tools, compiler.host):
            function.cache_clear()


def test_reading_takes_memory_that_the_size_of_the_file_bounds(tmp_path: Path) -> None:
    """Python allocates the requested number of bytes, so the request must not exceed the size of the file."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1000)
    tracemalloc.start()
    try:
        assert read(str(path)) == b"x" * 1000 and read(str(path), 10) == b"x" * 10
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_fork_waits_while_another_thread_compiles(place: Path) -> None:
    """The child has not that thread, and would wait for its kernels for ever."""
    begun = threading.Event()

    def slowly(name: str) -> WrittenKernel:
        begun.set()
        time.sleep(0.3)
        return written(name, 1.0)

    thread = threading.Thread(target=compile_kernels, args=({"slow": slowly},))
    thread.start()
    begun.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python and jax, where a test before this one imported it, warn of forks with threads
        child = os.fork()
    if not child:
        signal.alarm(60)
        try:
            os._exit(list(results(compile_kernels(writers(2.0))).values()) != [2.0])
        except BaseException:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0

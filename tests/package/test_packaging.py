"""The installed package: the wheel holds every module and data file of the three folders, under one import name, and is small.

The pages beside the code, for developers, are in the sdist only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile

import networkx
import numpy
import pytest
from paths import ROOT

import fluid

FOLDERS = {"fluid": "fluid", "executor": "fluid/executor", "proto": "fluid/proto"}


def run(*command, **kwargs):
    found = subprocess.run(command, capture_output=True, text=True, **kwargs)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy of the tree, without a network, so that nothing of an earlier build gets in."""
    pytest.importorskip("setuptools", "70.1", reason="builds the wheel")
    source = tmp_path_factory.mktemp("source")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    out = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(out)]
    run(sys.executable, "-m", "pip", "wheel", *options, str(source))
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The environment of a process that imports the wheel, before anything else that is installed."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return {**os.environ, "PYTHONPATH": str(site)}


@pytest.mark.slow
def test_wheel_holds_every_file_of_the_three_folders_and_no_other(wheel):
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {
        f"{target}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, target in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.parent.name != "__pycache__" and path.name != "README.md"
    }
    assert held == expected
    assert {"fluid/py.typed", "fluid/dataset/digits.npz", "fluid/proto/framework.proto"} <= held


def test_python_in_the_checkout_imports_the_checkout():
    """Even where another Fluid is installed: the folder lies before site-packages, and `-S` hides editable installs."""
    if not (ROOT / "executor").exists():
        pytest.skip("this is no checkout")
    places = {os.path.dirname(os.path.dirname(module.__file__)) for module in (numpy, networkx)}
    code = "import fluid, fluid.proto; print(fluid.executor.__file__, fluid.proto.__file__, sep='\\n')"
    done = run(sys.executable, "-S", "-c", code, cwd=ROOT, env={**os.environ, "PYTHONPATH": os.pathsep.join(places)})
    assert done.splitlines() == [str(ROOT / "executor" / "__init__.py"), str(ROOT / "proto" / "__init__.py")]


def test_the_version_is_one():
    assert f"\nversion = {fluid.__version__}\n" in (ROOT / "setup.cfg").read_text()


@pytest.mark.slow
def test_sdist_holds_the_repository(tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("this is no repository")
    tracked = run("git", "ls-files", "-z", cwd=ROOT).split("\0")[:-1]
    for name in tracked:
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "source" / name)
    code = f"import setuptools.build_meta as backend; backend.build_sdist({str(tmp_path)!r})"
    run(sys.executable, "-c", code, cwd=tmp_path / "source")
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        held = {name.partition("/")[2] for name in archive.getnames() if archive.getmember(name).isfile()}
    assert {name for name in held if ".egg-info/" not in name} == {*tracked, "PKG-INFO"}


@pytest.mark.slow
def test_wheel_is_small_and_carries_its_licence(wheel):
    assert wheel.stat().st_size < 2_200_000
    with zipfile.ZipFile(wheel) as archive:
        licence = next(name for name in archive.namelist() if name.endswith("LICENSE"))
        assert b"Apache License" in archive.read(licence)


@pytest.mark.slow
def test_every_module_of_the_wheel_imports(installed, tmp_path):
    code = """
import importlib, os, pkgutil, fluid
assert os.path.dirname(os.path.dirname(fluid.__file__)) == os.environ["PYTHONPATH"], fluid.__file__
for module in pkgutil.walk_packages(fluid.__path__, "fluid."):
    try:
        print(importlib.import_module(module.name).__name__)
    except ModuleNotFoundError as error:  # what computes with an extra asks for it at its top
        assert (error.name.split(".")[0], module.name.rsplit(".", 1)[0]) == ("jax", "fluid.executor.xla"), (module.name, error)
"""
    names = run(sys.executable, "-c", code, env=installed, cwd=tmp_path).split()
    assert {"fluid.proto", "fluid.executor.kernels.table", "fluid.dataset.digits", "fluid.framework"} <= set(names)


@pytest.mark.slow
def test_import_leaves_out_what_is_rarely_used(installed, tmp_path):
    code = "import sys, fluid; print(*{'networkx', 'cupy', 'tqdm', 'matplotlib', 'hypothesis', 'torch'} & set(sys.modules))"
    assert run(sys.executable, "-c", code, env=installed, cwd=tmp_path).split() == []


@pytest.mark.slow
def test_building_a_program_needs_neither_kernels_nor_protobuf(installed, tmp_path):
    """The dependencies point one way: `framework` knows neither how ops are computed nor how they are written."""
    code = """
import sys, types
package = types.ModuleType("fluid")  # an empty fluid/__init__.py
package.__path__ = [sys.argv[1] + "/fluid"]
sys.modules["fluid"] = package
import fluid.framework
print(*(name for name in sys.modules if name.startswith(("fluid.executor", "fluid.proto", "google.protobuf"))))
"""
    assert run(sys.executable, "-c", code, installed["PYTHONPATH"], env=installed, cwd=tmp_path).split() == []


TRAINING = """
import numpy as np, fluid
from fluid import layers
x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
loss = layers.mse_loss(layers.fc(x, 1, param_attr=fluid.initializer.Constant(0.0)), y)
fluid.optimizer.Adam(0.1).minimize(loss)
trainer = fluid.training.ProgramTrainer(loss)
feed = {"x": np.ones([4, 4], "float32"), "y": np.ones([4, 1], "float32")}
for epochs in (2, 4):
    history = fluid.training.fit(trainer, [feed], epochs, checkpoint="x.ckpt")
assert len(history) == 4 and history[-1]["loss"] < history[0]["loss"], history
fluid.save_model("net.pdmodel")
fluid.save_model("weights.safetensors")
assert fluid.load_model("net.pdmodel", scope=fluid.Scope()).parameters
print("trained")
"""
"""A program that imports, trains, saves, resumes and loads."""


def test_trains_without_what_only_posix_systems_have(tmp_path):
    """Modules and functions of os that Windows lacks are taken away; native code asks for the system by its name, and is off."""
    code = """
import os, sys
sys.modules.update(dict.fromkeys(["fcntl", "grp", "pty", "pwd", "resource", "termios"]))
for name in ("fork", "geteuid", "getuid", "pread", "register_at_fork", "sched_getaffinity", "sync", "sysconf"):
    if hasattr(os, name):
        delattr(os, name)
"""
    env = {**os.environ, "FLUID_NATIVE": "0"}
    assert run(sys.executable, "-c", code + TRAINING, cwd=tmp_path, env=env).splitlines()[-1] == "trained"


@pytest.mark.slow
def test_the_wheel_under_wine(wheel, tmp_path):
    """`FLUID_WINDOWS_PYTHON` is the path of a python.exe with numpy, protobuf, networkx and click."""
    python = os.environ.get("FLUID_WINDOWS_PYTHON")
    if shutil.which("wine") is None or python is None:
        pytest.skip("needs wine, and FLUID_WINDOWS_PYTHON: so Windows is not tested here (docs/how_to/platforms.md)")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    (tmp_path / "train.py").write_text(TRAINING)
    assert run("wine", python, "train.py", cwd=tmp_path).split()[-1] == "trained"

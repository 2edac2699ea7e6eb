"""Fluid in a browser: tests under Pyodide in node, and the page that trains.

Pyodide is npm's; `FLUID_PYODIDE` names a folder that has it already. numpy is the wheel of Pyodide's CDN; where that cannot be
reached, `FLUID_PYODIDE_NUMPY` names a wheel that was built for this version of Pyodide.
"""

from __future__ import annotations

import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT, TESTS

HERE = TESTS
sys.path.insert(0, str(ROOT / "docs" / "try_it"))
from build import PYODIDE, build  # noqa: E402

pytestmark = pytest.mark.pyodide
PURE = [
    "protobuf",
    "networkx",
    "pytest",
    "iniconfig",
    "pluggy",
    "packaging",
    "pygments",
    "hypothesis",
    "sortedcontainers",
    "tqdm",
]
PURE += ["click", "rich", "markdown-it-py", "mdurl"]
STACK = "ulimit -s 60000 2>/dev/null; exec node --stack-size=8000 "  # Python's stack is node's
FILES = [
    "backward", "backward_control_flow", "conformance", "constants", "dataset", "dynamic_rnn", "eager", "eager_functional",
    "executor", "explain", "io", "layers", "loading", "lod_tensor", "math_layers", "metrics", "optimizer",
    "plan", "rnn", "save_load", "serde", "summary", "text", "to_static", "trace", "verify",
]  # fmt: skip
"""Tests that run in Pyodide: what a browser can be asked to do, in some minutes."""
UNKNOWN_FIELDS = "fails with protobuf in pure Python, which is what the index has for a browser: unknown fields are lost"
LEFT_OUT = {
    "test_serde.py::test_an_attribute_given_twice_counts_as_the_last_time": UNKNOWN_FIELDS,
    "test_serde.py::test_what_is_unknown_survives": UNKNOWN_FIELDS,
    "test_serde.py::test_parameters_of_files_that_do_not_mark_them": UNKNOWN_FIELDS,
    "test_eager.py::test_nodes_that_wait_for_each_other_need_no_other_thread": "is about passes that have several threads",
    "test_eager.py::test_tensors_are_compared_element_by_element_and_hashed_by_what_they_are": "compares with numpy's int32",
    "test_eager.py::test_the_number_of_threads_changes_no_bit": "runs until several threads took part",
    "test_eager.py::test_backward_inside_backward_a_hundred_deep": "asks for threads, which is an error of Fluid's there",
}


@pytest.fixture(scope="session")
def pyodide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of Pyodide."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("needs node and npm")
    given = os.environ.get("FLUID_PYODIDE")
    if given:
        return Path(given)
    folder = tmp_path_factory.mktemp("npm")
    done = subprocess.run(["npm", "install", f"pyodide@{PYODIDE}"], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"npm cannot install pyodide: {done.stderr.strip().splitlines()[-1]}")
    return folder / "node_modules" / "pyodide"


@pytest.fixture(scope="session")
def numpy_wheel(pyodide: Path) -> Path | None:
    """The wheel that stands for numpy; None where Pyodide can get its own."""
    given = os.environ.get("FLUID_PYODIDE_NUMPY")
    if given:
        return Path(given)
    load = (
        "import { loadPyodide } from './pyodide.mjs'; await (await loadPyodide()).loadPackage('numpy', { checkIntegrity: true });"
    )
    code = f"{load} process.exit(0);"
    done = subprocess.run(
        ["node", "--input-type=module", "-e", code], cwd=pyodide, capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode or not list(pyodide.glob("numpy-*.whl")):
        pytest.skip("Pyodide cannot get its numpy; FLUID_PYODIDE_NUMPY names a wheel")
    return None


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of Fluid."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    source = folder / "source"  # nothing of an earlier build gets in
    for name in ("fluid", "executor", "proto"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(source)], check=True)
    return next(folder.glob("*.whl"))


def test_the_tests_pass_in_pyodide(pyodide: Path, numpy_wheel: Path | None, wheel: Path, tmp_path: Path) -> None:
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--platform", "any"]
    subprocess.run([*download, "--python-version", "3.13", "--dest", str(tmp_path), *PURE], check=True)
    for path in filter(None, (numpy_wheel, wheel)):
        shutil.copy(path, tmp_path)
    names = [f"/repository/tests/test_{name}.py" for name in FILES]
    left = [f"--deselect=tests/{name}" for name in LEFT_OUT]
    arguments = [
        HERE / "pyodide" / "run.mjs",
        pyodide,
        tmp_path,
        ROOT,
        HERE / "pyodide" / "run_tests.py",
        "--tb=short",
        *left,
        *names,
    ]
    command = STACK + " ".join(f"'{argument}'" for argument in arguments)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    found = re.search(r"(\d+) passed, (?:(\d+) skipped, )?", done.stdout)
    assert found is not None and int(found[1]) > 1000 and int(found[2] or 0) < 60, done.stdout[-2_000:]


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files, and counts the bytes of each."""

    extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }
    sent: dict[str, int] = {}

    def send_header(self, keyword: str, value: str) -> None:
        if keyword == "Content-Length":
            Handler.sent[self.path] = int(value)
        super().send_header(keyword, value)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def site(pyodide: Path, numpy_wheel: Path | None, wheel: Path, tmp_path: Path) -> Iterator[str]:
    """The address of the page."""
    build(tmp_path / "site", str(pyodide), numpy_wheel, wheel)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=tmp_path / "site")) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        Handler.sent.clear()
        yield f"http://127.0.0.1:{server.server_address[1]}/index.html"
        server.shutdown()


def test_the_page_trains(site: str, tmp_path: Path) -> None:
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: the extra test-browser")
    from test_viewer_browser import CHROMIUM, DRIVER, FLAGS

    if not CHROMIUM or not DRIVER:
        pytest.skip("needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        driver.get(site)
        wait = webdriver.support.ui.WebDriverWait(driver, 240)
        state = "return document.documentElement.dataset"
        wait.until(lambda _: driver.execute_script(state).keys() & {"ready", "failed"})
        assert driver.execute_script(state).get("ready") == "yes", driver.find_element("id", "status").text
        ours = sum(size for name, size in Handler.sent.items() if not re.search("/pyodide/|/numpy-", name))
        assert 1_000_000 < ours < 10_000_000, Handler.sent  # what it takes beyond Pyodide and numpy
        driver.find_element("id", "train").click()
        wait.until(lambda _: driver.execute_script(state).keys() & {"accuracy", "failed"})
        status = driver.find_element("id", "status").text
        assert float(driver.execute_script(state).get("accuracy", "0")) > 0.9, status
        text = driver.find_element("id", "program").text
        assert "-- backward --" in text and "adam(" in text and len(driver.find_elements("css selector", "#digits figure")) >= 12
        assert len(driver.find_element("css selector", "#loss polyline").get_attribute("points").split()) == 8 * 23
        driver.save_screenshot(os.environ.get("FLUID_SCREENSHOT", str(tmp_path / "page.png")))

        driver.execute_script("document.getElementById('script').value = 'fluid.data()'")  # what a user gets wrong is told
        driver.find_element("id", "train").click()
        wait.until(lambda _: driver.execute_script(state).get("failed"))
        assert "NameError: name 'fluid' is not defined" in driver.find_element("id", "status").text
        assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []
    finally:
        driver.quit()

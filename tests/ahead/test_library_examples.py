"""The examples of the page "Train without Python", built and run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import pytest
from libraries import compiler_of_c
from paths import ROOT

EXAMPLES = ROOT / "examples" / "without_python"


def tool(name: str) -> str:
    return shutil.which(name) or pytest.skip(f"{name} is not installed")


def ran(*command: Any, folder: Path, text: str = "") -> str:
    """The output of a command that succeeds."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)} if command[0] == sys.executable else None
    done = subprocess.run(
        list(map(str, command)), cwd=folder, input=text, capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_digits_are_learned_in_c(tmp_path: Path) -> None:
    compiler = compiler_of_c()
    ran(sys.executable, EXAMPLES / "digits.py", "--output", tmp_path, folder=tmp_path)
    options = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-I", tmp_path]
    ran(compiler, *options, EXAMPLES / "digits.c", "net.o", "-o", "digits", folder=tmp_path)
    first = ran("./digits", "digits.bin", "digits.state", folder=tmp_path).splitlines()
    second = ran("./digits", "digits.bin", "digits.state", folder=tmp_path).splitlines()
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in (first[0], first[-1], second[0])]
    assert losses[0] > 4 * losses[1] and losses[2] < 1.5 * losses[1], "a second run continues"


def test_digits_are_learned_in_webassembly(tmp_path: Path) -> None:
    node = tool("node")
    ran(sys.executable, EXAMPLES / "digits.py", "--target", "wasm32", "--output", tmp_path, folder=tmp_path)
    for name in ("train.js", "train_in_node.mjs"):
        shutil.copy(EXAMPLES / name, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    assert "epoch 8: loss 0." in ran(node, "train_in_node.mjs", folder=tmp_path)


IN_PAGE = """<script type="module">
const [train, pad, report, guess] = ["train", "pad", "report", "guess"].map((id) => document.getElementById(id));
const waited = () => new Promise((resolve) => setTimeout(resolve, 100));
while (!train.onclick) await waited();
await train.onclick();
const at = pad.getBoundingClientRect();
for (let y = 20; y < 140; y += 3)
  pad.dispatchEvent(new PointerEvent("pointermove", { buttons: 1, clientX: at.left + 80, clientY: at.top + y }));
pad.dispatchEvent(new PointerEvent("pointerup"));
await fetch("/", { method: "POST", body: `${report.textContent}; ${guess.textContent}` });
</script>"""


@pytest.mark.browser
def test_the_page_learns_digits_and_reads_a_drawn_one(tmp_path: Path) -> None:
    chromium = tool("chromium")
    ran(sys.executable, EXAMPLES / "digits.py", "--target", "wasm32", "--output", tmp_path, folder=tmp_path)
    shutil.copy(EXAMPLES / "train.js", tmp_path)
    (tmp_path / "page.html").write_text((EXAMPLES / "page.html").read_text() + IN_PAGE)
    reports = Queue[str]()

    class Handler(SimpleHTTPRequestHandler):
        def do_POST(self) -> None:
            reports.put(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(204)
            self.end_headers()

        def log_message(self, *parts: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(tmp_path))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/page.html"
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", f"--user-data-dir={tmp_path}/user"]
        browser = subprocess.Popen([chromium, *flags, address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            report = reports.get(timeout=120)
        finally:
            browser.terminate()
            browser.wait()
            server.shutdown()
    match = re.fullmatch(r"352 steps, ([\d.]+) % of unseen digits; this is a \d", report)
    assert match and float(match[1]) > 93, report


def test_a_server_learns_clicks(tmp_path: Path) -> None:
    """It learns that ids divisible by three are clicked on, in any field."""
    compiler = tool("g++")
    ran(sys.executable, EXAMPLES / "clicks.py", "--output", tmp_path, folder=tmp_path)
    options = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-I", tmp_path]
    ran(compiler, *options, EXAMPLES / "clicks.cpp", "net.o", "-o", "clicks", folder=tmp_path)
    shown = [f"{'click' if number % 3 == 0 else 'skip'} {number % 30} {number % 30 + 100} 7" for number in range(2400)]
    lines = [*shown, "ask 3 103 7", "ask 4 104 7", "ask 3 103 1000", "sell 1 2 3"]
    likely, unlikely, error, usage = ran("./clicks", folder=tmp_path, text="\n".join(lines)).splitlines()
    assert float(likely) > 0.9 and float(unlikely) < 0.1
    assert error.startswith("ids: an id is outside of [0, 1000)") and usage.startswith("expected: click")


def test_a_board_learns_from_a_sensor(tmp_path: Path) -> None:
    compiler, emulator = tool("arm-none-eabi-gcc"), tool("qemu-system-arm")
    ran(sys.executable, EXAMPLES / "sensor.py", "--output", tmp_path, folder=tmp_path)
    options = [
        "-mthumb",
        "-mcpu=cortex-m4",
        "-mfloat-abi=hard",
        "-mfpu=fpv4-sp-d16",
        "--specs=rdimon.specs",
        "-O2",
        "-I",
        tmp_path,
    ]
    sources = [EXAMPLES / "mps2.c", EXAMPLES / "sensor.c", "net.o"]
    ran(compiler, *options, "-T", EXAMPLES / "mps2.ld", *sources, "-o", "sensor.elf", folder=tmp_path)
    machine = ["-M", "mps2-an386", "-nographic", "-semihosting-config", "enable=on,target=native"]
    lines = ran(emulator, *machine, "-kernel", "sensor.elf", folder=tmp_path).splitlines()
    assert lines[-1].startswith("after 6000 values: mean squared error 0.0")


def test_the_net_of_a_sensor_learns_here(tmp_path: Path) -> None:
    compiler = compiler_of_c()
    ran(sys.executable, EXAMPLES / "sensor.py", "--target", "host", "--output", tmp_path, folder=tmp_path)
    ran(compiler, "-std=c11", "-O2", "-I", tmp_path, EXAMPLES / "sensor.c", "net.o", "-o", "sensor", folder=tmp_path)
    ran("./sensor", folder=tmp_path)

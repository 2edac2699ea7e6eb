"""Runs tests in Pyodide; `run.mjs` says `ARGUMENTS`, which go to pytest. The value is pytest's exit status.

What a browser has not, threads and processes, is skipped where a test asks for it, whatever it is about.
"""

import os
import sys

import pytest

MISSING = (
    "emscripten does not support processes",
    "can't start new thread",
    "No module named 'fcntl'",
    "No module named 'pty'",
    "No module named 'termios'",
    "stack switching not supported",
    "need the package safetensors",
)


class Plugin:
    """Turns failures from missing features of a browser into skips, and prints other failures at once."""

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = (yield).get_result()
        lacks = next((text for text in MISSING if report.failed and text in str(report.longrepr)), None)
        if lacks:
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: in a browser: {lacks}")
        elif report.failed:
            print(f"\nFAILED {report.nodeid}", flush=True)


os.chdir("/home/pyodide")
sys.path.insert(0, "/repository/tests")
options = ["-q", "-c", "/repository/setup.cfg", "--rootdir", "/repository", "-o", "addopts=", "--strict-markers"]
int(pytest.main([*options, "-p", "no:cacheprovider", "-p", "no:xdist", *ARGUMENTS], plugins=[Plugin()]))  # noqa: F821

"""The README's Python blocks run, each in a new process, and print the shown output."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
FIRST, TRAINING, RESUMING, EAGERLY = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def output_of(code: str, folder: Path) -> str:
    """The output of code in a new process, in a folder."""
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True, timeout=120
    ).stdout


def test_the_first_program_prints_what_is_shown(tmp_path: Path) -> None:
    shown = README.split("```\nblock 0 {", 1)[1].split("```", 1)[0]
    assert output_of(FIRST, tmp_path) == "block 0 {" + shown


def test_training_resuming_and_predicting(tmp_path: Path) -> None:
    out = output_of(TRAINING + RESUMING, tmp_path)
    assert [line for line in out.splitlines() if line.startswith("epoch ")][19:21][0].startswith("epoch  20/20")
    assert "\nepoch  21/60  loss " in out
    found = re.search(r"^loss (0\.\d+)\n(?:epoch .*\n){40}right on (\d+)% of what it has not seen$", out, re.MULTILINE)
    assert found is not None and float(found[1]) < 0.4 and int(found[2]) >= 90
    assert {path.name for path in tmp_path.iterdir()} == {"training.ckpt", "classifier.pdmodel", "classifier.pdiparams"}


def test_the_same_eagerly(tmp_path: Path) -> None:
    data, _, _ = TRAINING.partition("x, y =")
    out = output_of(data + EAGERLY, tmp_path)
    assert out.startswith("block 0 {") and " = relu(" in out
    assert [path.name for path in tmp_path.iterdir()] == ["net.pdparams"]

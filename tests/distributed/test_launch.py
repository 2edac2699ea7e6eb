"""The launcher, and the example of training by several workers in each of its ways."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from workers import SCRIPTS, alone, environment, launched, needs_mpi, together

import fluid
from fluid.distributed.launch import main

EXAMPLE = Path(__file__).parents[2] / "examples" / "distributed.py"


def losses(text: str) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in re.findall(r"^step (\d+): loss ([\d.]+)$", text, re.MULTILINE)}


def close(some: dict[int, float], others: dict[int, float]) -> None:
    assert some.keys() == others.keys()
    np.testing.assert_allclose(list(some.values()), list(others.values()), atol=2e-5)


def test_what_cannot_be_started(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where logs go
    (tmp_path / "file").write_text("")
    (tmp_path / "folder" / "worker.0.log").mkdir(parents=True)
    one = [str(EXAMPLE)]
    for arguments, message in (
        (["no_script.py"], "there is no script no_script.py"),
        (["folder"], "there is no script folder"),
        *(
            (["-n", count, *one], f"-n is {count}; it should be the number of workers, from 1 to 65536")
            for count in ("0", "-1", "two", "1.5", "9" * 20, "9" * 500, "65537", "\u0663")
        ),
        (["--backend", "jax", "-n", "65536", *one], "65536 workers are too many for this machine"),
        *(
            (["--timeout", seconds, *one], f"--timeout is '{seconds}'; it should be a number of seconds")
            for seconds in ("nan", "inf", "-1", "0", "1e300", "soon")
        ),
        (["--mpiexec", "/nowhere/mpiexec -v", *one], "/nowhere/mpiexec cannot be started"),
        *((["--mpiexec", words, *one], "--mpiexec is empty") for words in ("", " ", "\t")),
        (["--log-dir", "file", *one], "the logs cannot go to file (file: File exists)"),
        (["--log-dir", "file/below", *one], "the logs cannot go to file/below (file/below: Not a directory)"),
        (["--log-dir", "/proc/nowhere/log", *one], "the logs cannot go to /proc/nowhere/log (/proc/nowhere"),
        (["--log-dir", "x" * 300, *one], "File name too long); --log-dir should be a folder to write to"),
        (["--log-dir", "a\0b", *one], "embedded null"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert message in capsys.readouterr().err and caught.value.code == 2, arguments


def test_logs_replace_those_of_an_earlier_run_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder of the scripts, one of which may be called worker.py."""
    monkeypatch.chdir(tmp_path)
    names = {"worker.py", "worker.abc.running", "worker.log", "worker.1.error.old", "worker.\u0663.log"}
    for name in (*names, "worker.0.log", "worker.11.error", "worker.3.running"):
        (tmp_path / name).write_text("")
    assert main(["--mpiexec", "true", "--log-dir", ".", str(EXAMPLE)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == names


def test_errors_of_workers_are_shown_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "mpiexec"
    script.write_text("#!/bin/sh\ncd log; printf '\\033[2J%0100000d' 1 > worker.1.error; touch worker.abc.error; exit 3\n")
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert main(["--mpiexec", str(script), str(EXAMPLE)]) == 3
    shown = capsys.readouterr().err
    assert "worker 1 failed first" in shown and "\\x1b[2J0000" in shown and "characters left out" in shown and len(shown) < 5000


@pytest.mark.slow
@needs_mpi
def test_the_example_is_the_same_in_each_way(tmp_path: Path) -> None:
    """In one process, in two, and stopped and gone on with by other numbers of workers."""
    one = losses(alone(EXAMPLE, "--steps", 20))
    assert len(one) == 20 and one[19] < one[0]
    close(losses(together(EXAMPLE, "--steps", 20)), one)
    parts: dict[int, float] = {}
    for count, steps, shards in ((2, 7, ["--shards"]), (1, 13, []), (4, 20, ["--shards"])):
        out, _ = launched(tmp_path / "log", "-n", count, EXAMPLE, "--steps", steps, "--checkpoint", tmp_path / "ck", *shards)
        assert losses(out).keys() == set(range(len(parts), steps))
        parts |= losses(out)
    close(parts, one)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "ck",
        *(f"ck.step-20-shard-{rank}-of-4" for rank in range(4)),
        "log",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["xla", "xla-2"])
def test_the_example_on_xla(where: str) -> None:
    if not hasattr(fluid, "XLAPlace"):
        pytest.skip("there is no XLAPlace")
    pytest.importorskip("jax")
    variables = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    close(losses(alone(EXAMPLE, "--steps", 20, "--on", where, **variables)), losses(alone(EXAMPLE, "--steps", 20)))


@pytest.mark.slow
@needs_mpi
def test_a_killed_job_goes_on_with_another_number_of_workers(tmp_path: Path) -> None:
    """The worker that is killed takes the others with it; what was saved is whole."""
    close_to = losses(alone(EXAMPLE, "--steps", 12))
    saved, _ = launched(tmp_path / "log", "-n", 2, EXAMPLE, "--steps", 5, "--checkpoint", tmp_path / "ck", "--shards")
    command = [sys.executable, "-m", "fluid.distributed.launch", "-n", "2", "--log-dir", str(tmp_path / "log"), str(EXAMPLE)]
    command += ["--steps", "100000", "--checkpoint", str(tmp_path / "ck"), "--shards"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as job:
        assert job.stdout is not None
        while not job.stdout.readline().startswith("step 8:"):
            assert job.poll() is None
        job.terminate()
        assert job.wait(30) != 0
    out, _ = launched(tmp_path / "log", "-n", 1, EXAMPLE, "--steps", 12, "--checkpoint", tmp_path / "ck")
    close({**losses(saved), **losses(out)}, close_to)


@pytest.mark.slow
@needs_mpi
def test_logs_and_the_error_of_the_worker_that_failed_first(tmp_path: Path) -> None:
    for fault, message in (
        ("raises", "worker 1 failed first; the logs are in .*log\n(.|\n)*ValueError: a fault of worker 1"),
        ("exits", "worker 1 failed first(.|\n)*SystemExit: 3"),
        ("killed", "a worker ended with code 9 and left no error .was it killed.."),
        ("leaves", r"worker 0 .code 0., 1 .code 0. ended before the script did and left no error .*os\._exit"),
        ("hangs", "worker 0 failed first(.|\n)*worker 0 of 2 has waited 2 s for the others"),
    ):
        _, errors = launched(tmp_path / "log", "-n", 2, "--timeout", 2, SCRIPTS / "faults.py", fault, status=None)
        assert re.search(message, errors), errors
        assert {"worker.0.log", "worker.1.log"} <= {path.name for path in (tmp_path / "log").iterdir()}


@pytest.mark.slow
@needs_mpi
def test_who_ends_the_launcher_ends_the_workers(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fluid.distributed.launch", "-n", "2", "--log-dir", str(tmp_path)]
    with subprocess.Popen([*command, str(SCRIPTS / "faults.py"), "hangs"], env=environment(), stdout=subprocess.PIPE) as job:
        assert job.stdout is not None
        numbers = [int(job.stdout.readline())]
        log, end = tmp_path / "worker.1.log", time.monotonic() + 20
        while not (log.exists() and log.read_text().strip()):
            assert time.monotonic() < end
            time.sleep(0.1)
        numbers.append(int(log.read_text().split()[0]))
        job.terminate()
        assert job.wait(30) == 143
    while any(Path(f"/proc/{number}").exists() for number in numbers):
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.slow
@needs_mpi
def test_eager_layers_train_as_in_one_process() -> None:
    np.testing.assert_allclose(json.loads(together("eager.py")), json.loads(alone("eager.py")), rtol=2e-6)


@pytest.mark.parametrize(("backend", "module"), [("jax", "jax"), pytest.param("mpi", "mpi4py", marks=needs_mpi)])
def test_without_what_workers_speak_by(tmp_path: Path, backend: str, module: str) -> None:
    (tmp_path / f"{module}.py").write_text("raise ImportError('not here')")
    arguments = "-n", 2, "--backend", backend, SCRIPTS / "faults.py", "none"
    _, errors = launched(tmp_path / "log", *arguments, status=None, PYTHONPATH=str(tmp_path))
    assert re.search(r"errors.CommunicationError: .* of 2 .*pip install .\.\[", errors), errors


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
def test_workers_that_a_batch_system_has_started_show_their_errors(tmp_path: Path) -> None:
    """As each pod of Kubernetes has a log of its own; otherwise only worker 0 shows what it prints."""
    command = [sys.executable, "-m", "fluid.distributed.launch", "--backend", "jax", "--timeout", "1", "--log-dir", str(tmp_path)]
    of_job = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}
    done = subprocess.run(
        [*command, str(EXAMPLE)], capture_output=True, text=True, timeout=60, env=environment(**of_job), check=False
    )
    assert done.returncode == 1 and "process 1 of 2 did not come together with the others" in done.stderr, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
def test_others_that_do_not_come() -> None:
    """jax itself would crash."""
    script = "import fluid; fluid.parallel.connect('127.0.0.1:9', 2, 1, timeout=1)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=environment())
    message = "process 1 of 2 did not come together with the others at 127.0.0.1:9: it has waited for 1 s; start all of them"
    assert done.returncode == 1 and message in done.stderr, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
def test_workers_that_join_jax(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import jax, jax.numpy as jnp\n"
        "from jax.experimental.multihost_utils import process_allgather\n"
        "print(jax.process_count(), process_allgather(jnp.ones(1) * jax.process_index()).ravel().tolist())\n"
    )
    out, _ = launched(tmp_path / "log", "-n", 2, "--backend", "jax", script, JAX_PLATFORMS="cpu")
    assert "2 [0.0, 1.0]" in out and "2 [0.0, 1.0]" in (tmp_path / "log" / "worker.1.log").read_text()

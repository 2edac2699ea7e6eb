"""The examples, and the code in README.md and CONTRIBUTING.md, run in separate processes; the tests read their output."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys

import pytest
from checks import each
from paths import ROOT

import fluid

EXAMPLES = ROOT / "examples"


def run(script, *options, status=0):
    """Output and errors of an example."""
    command = [sys.executable, str(EXAMPLES / script), *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == status, done.stdout[-2000:] + done.stderr
    return done.stdout, done.stderr


def numbers(pattern, text):
    return [float(found) for found in re.findall(pattern, text, re.MULTILINE)]


def test_digits_are_recognised(tmp_path):
    """The main job: at least 97 % of the images that the net has not seen."""
    out, _ = run("recognize_digits.py", "--output", tmp_path / "model")
    losses = numbers(r"epoch +\d+/15  loss ([\d.]+)  accuracy [\d.]+%  [\d,]+ samples/s", out)
    assert len(losses) == 15 and losses[-1] < 0.1 < 1 < losses[0] * 4
    (accuracy,) = numbers(r"accuracy on unseen images: ([\d.]+)%", out)
    (last,) = numbers(r"epoch +15/15 .* accuracy ([\d.]+)%", out)
    assert accuracy == last >= 97
    for part in (" = conv2d_grad(", " = pool2d_grad(", " = mul_grad(", "-- optimizer --", " = adam(Param=fc_0.w_0, "):
        assert part in out
    model = {path.name for path in (tmp_path / "model").iterdir()}
    assert "__model__" in model and {"fc_0.w_0", "conv2d_0.w_0", "conv2d_1.b_0"} <= model
    assert not any("moment" in name or "learning_rate" in name for name in model)
    assert "@@" in out.split("loaded again")[1]


@pytest.mark.slow
def test_digits_that_are_changed_are_recognised(tmp_path):
    out, _ = run("augmented_digits.py", "--output", tmp_path)
    losses = numbers(r"^epoch .* validation ([\d.]+)", out)
    assert 10 < len(losses) <= 40 and losses.index(min(losses)) + 1 == numbers(r"was number (\d+);", out)[0]
    (accuracy,) = numbers(r"accuracy on unseen images: ([\d.]+)%", out)
    assert accuracy >= 96
    curves = fluid.training.read_log(tmp_path / "log.csv")
    assert set(curves) == {"loss", "validation", "accuracy", "rate"} and len(curves["rate"][0]) == len(losses)
    assert curves["rate"][1][-1] < curves["rate"][1][0]
    assert [path.name for path in (tmp_path / "checkpoints").glob("*.ckpt")] == [f"step-{losses.index(min(losses)) + 1}.ckpt"]


@pytest.mark.slow
def test_digits_not_learned_are_an_error(tmp_path):
    _, errors = run("recognize_digits.py", "--epochs", 1, "--goal", 0.999, "--output", tmp_path / "model", status=1)
    assert errors.strip() == "that is less than the goal of 99.90%; more --epochs may reach it"


@pytest.mark.slow
def test_the_same_seed_gives_the_same_losses(tmp_path):
    def losses(seed):
        out, _ = run("fit_a_line.py", "--epochs", 2, "--goal", -99, "--seed", seed, "--output", tmp_path / "model")
        return numbers(r"epoch .* loss ([\d.]+)", out)

    assert losses(3) == losses(3) != losses(4)


def test_a_line_is_fitted(tmp_path):
    out, _ = run("fit_a_line.py", "--output", tmp_path / "model")
    (r2,) = numbers(r"R2 ([\d.]+)", out)
    ((error, of_mean),) = re.findall(r"mean squared error on unseen patients: ([\d.]+) \(predicting the mean: ([\d.]+)\)", out)
    assert 0.35 < r2 < 0.6 and abs(1 - float(error) / float(of_mean) - r2) < 1e-3
    weights = re.findall(r"^  (\w+) +([+-][\d.]+)$", out, re.MULTILINE)
    assert len(weights) == 10 and {"bmi", "ltg"} <= {name for name, _ in weights[:4]}
    assert "mul_grad" in out and "sgd(" in out
    assert {path.name for path in (tmp_path / "model").iterdir()} == {"__model__", "weights", "bias"}


@pytest.mark.slow
def test_words_that_are_used_alike_are_near():
    out, _ = run("word2vec.py")
    losses = numbers(r"epoch +\d+/20  loss ([\d.]+)", out)
    assert len(losses) == 20 and losses[0] > 2 and losses[-1] < 0.3
    assert re.findall(r"param (\w+): float32\[61", out) == ["shared_w"]
    assert out.count(" = lookup_table(W=shared_w") == 4 and "shared_w@GRAD@RENAME@3" in out
    near = re.search(r"^  second +(.*)$", out, re.MULTILINE).group(1)
    assert len(re.findall(r"(?:third|[a-z]+th) 0\.\d\d", near)) == 4
    assert "three French hens two turtle doves and a partridge in a pear-tree ." in out.split("my true love sent ...")[1]


@pytest.mark.slow
def test_a_loaded_model_learns_more_digits():
    out, _ = run("fine_tune.py")
    ((before, after),) = re.findall(r"accuracy on unseen images: ([\d.]+)% before, ([\d.]+)% after 400 images", out)
    assert float(before) < 55 and float(after) >= 88
    assert "~ var param conv2d_0.w_0: float32[20, 1, 3, 3]  ->  param conv2d_0.w_0: float32[20, 1, 3, 3] not trainable" in out
    assert "- fc_1.tmp_2: float32[-1, 10] = softmax(X=fc_1.tmp_1)" in out


@pytest.mark.slow
@each(
    "script",
    [
        "image_classification.py vgg",
        "label_semantic_roles.py",
        "recommender_system.py",
        "understand_sentiment.py dynamic_rnn",
        "understand_sentiment.py stacked_lstm",
    ],
)
def test_a_glance_shows_the_loss_fall(script):
    out, _ = run(*script.split(), "--quick")
    first, second = numbers(r"epoch +\d+/2  loss ([\d.]+)", out)
    assert second < first
    assert re.search(r"^\w.* unseen .*: -?[\d.]+%$", out, re.MULTILINE)


@pytest.mark.slow
def test_digits_are_recognised_eagerly():
    out, _ = run("eager_digits.py")
    losses = numbers(r"epoch +\d+/12  loss ([\d.]+)", out)
    (accuracy,) = numbers(r"^accuracy on unseen images: ([\d.]+)%$", out)
    assert len(losses) == 12 and losses[-1] < 0.1 < losses[0] and accuracy >= 97
    assert "(features): Sequential(" in out and " = conv2d(Input=constant_0, Filter=conv/Conv2D_0.w_0)" in out


@pytest.mark.slow
def test_a_penalty_on_gradients_is_learned_from():
    out, _ = run("gradient_penalty.py", "--quick")
    assert len(numbers(r"penalty ([\d.]+)$", out)) == 10 and "of the made points are near a heap" in out


@pytest.mark.slow
def test_shapes_are_found_in_pictures():
    out, _ = run("object_detection.py")
    losses = numbers(r"epoch +\d+/10  loss ([\d.]+)", out)
    (reached,) = numbers(r"^mean average precision on unseen pictures: ([\d.]+)%$", out)
    assert losses[-1] < losses[0] / 3 and reached >= 80
    assert re.search(r"in a picture of (disk|square|triangle)", out)
    assert re.search(r"\+(disk|square|triangle) \d+%", out)


@pytest.mark.slow
def test_a_net_goes_from_eager_mode_to_a_program():
    out, _ = run("eager_to_static.py")
    first, last = re.search(r"^loss ([\d.]+) at first, ([\d.]+) at last$", out, re.MULTILINE).groups()
    assert float(last) < float(first) / 2
    assert " = conditional_block(Cond=" in out and "loaded again, it predicts the same" in out
    (reached,) = numbers(r"^R2 on unseen patients: ([\d.]+)%$", out)
    assert reached >= 35
    run("eager_to_static.py", "--quick")


@pytest.mark.slow
@each("script", ["image_classification.py resnet --epochs 3", "understand_sentiment.py conv --epochs 2"])
def test_what_was_learned_holds_for_unseen_data(script):
    out, _ = run(*script.split(), "--goal", 0.9)
    (reached,) = numbers(r"^accuracy on unseen \w+: ([\d.]+)%$", out)
    assert reached >= 90


@pytest.mark.slow
def test_a_goal_that_is_not_reached_is_an_error():
    _, errors = run("understand_sentiment.py", "conv", "--epochs", 1, "--samples", 32, "--goal", 1.01, status=1)
    assert errors.strip() == "that is less than the goal of 101.0%; more --epochs may reach it"


@pytest.mark.slow
def test_a_search_shows_the_best_translations():
    out, _ = run("machine_translation.py", "--quick")
    first, second = numbers(r"epoch +\d+/2  loss ([\d.]+)", out)
    assert second < first
    shown = re.findall(r"^ {6}(.*)$", out, re.MULTILINE)
    assert len(shown) == 4 * (1 + 3)  # of each source itself, and a beam of three
    assert all(line.startswith("<s>") is bool(number % 4) for number, line in enumerate(shown))


SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py") if "def main()" in path.read_text())


@pytest.fixture(scope="module")
def helps():
    """Script -> (status, output) of its --help; one process asks all of them."""
    code = """
import contextlib, io, json, runpy, sys
folder, *scripts = sys.argv[1:]
sys.path[0] = folder
helps = {}
for script in scripts:
    sys.argv = [script, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            runpy.run_path(f"{folder}/{script}", None, "__main__")
            status = 0
        except SystemExit as end:
            status = end.code
    helps[script] = status, out.getvalue()
print(json.dumps(helps))
"""
    done = subprocess.run([sys.executable, "-c", code, str(EXAMPLES), *SCRIPTS], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@each("script", SCRIPTS)
def test_help_says_what_an_example_does(helps, script):
    status, out = helps[script]
    assert status == 0, out
    assert "usage" in out and "--" in out and len(out.splitlines()) > 8


def on_a_terminal(*command, columns=120, typed="", status=0):
    """The output of a process on a terminal of 24 rows, with typed input."""
    import fcntl
    import pty
    import termios

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    os.write(master, typed.encode())
    env = dict(os.environ)  # without the width of another terminal, which readline may have told C's environment
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, close_fds=True, env=env) as process:
        os.close(slave)
        written = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # how Linux says that the other side has closed
                break
            if not part:
                break
            written += part
    os.close(master)
    assert process.returncode == status, written.decode()
    return written.decode()


@pytest.mark.skipif(sys.platform == "win32", reason="has no pseudo-terminals")
@pytest.mark.parametrize("has_tqdm", [True, False])
def test_progress_is_a_bar_on_a_terminal_where_tqdm_is_installed(tmp_path, has_tqdm):
    if has_tqdm:
        pytest.importorskip("tqdm")
    script = EXAMPLES / "fit_a_line.py"
    argv = [str(script), "--epochs", "3", "--goal", "-99", "--output", str(tmp_path / "model")]
    hide = "" if has_tqdm else "sys.modules['tqdm'] = None; "
    run = f"runpy.run_path({argv[0]!r}, None, '__main__')"
    code = f"import runpy, sys; {hide}sys.path[0] = {str(EXAMPLES)!r}; sys.argv = {argv}; {run}"
    written = on_a_terminal(sys.executable, "-c", code)
    assert ("epoch 3/3 100%|" in written) is has_tqdm
    assert ("epoch   3/3  loss" in written) is not has_tqdm
    assert "samples/s" in written


def code_blocks(name):
    """Texts of the blocks between ``` in a document, the Python ones first."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [text for language, text in found if language == "python"], [text for language, text in found if not language]


def test_the_readme_shows_what_its_program_prints():
    (program, *_), (printed, *_) = code_blocks("README.md")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == printed.strip()


@pytest.mark.parametrize("op", ["squareplus", "squareplus2"])
def test_the_op_of_contributing_works(op):
    (formula, sample, definition, kernel), _ = code_blocks("CONTRIBUTING.md")
    assert len(formula.splitlines()) <= 4 and len(definition.splitlines()) + len(kernel.splitlines()) <= 10
    assert sample.startswith('unary("squareplus"')
    imports = "from typing import Any\nimport fluid, numpy as np\nfrom fluid.extend import composed, define, kernel, like, ops\n"
    check = """
x = fluid.data("x", [None, 3], dtype="float64")
x.stop_gradient = False
y = ops().OP(x)
first = fluid.gradients(y, x)
second = fluid.gradients(first, x)
v = np.array([[-1.0, 0.5, 2.0]])
got = fluid.Executor(fluid.CPUPlace()).run(feed={"x": v}, fetch_list=[y, *first, *second])
root = np.sqrt(v * v + 4)
for ours, truth in zip(got, [(v + root) / 2, (1 + v / root) / 2, 2 / root**3]):
    np.testing.assert_allclose(ours, truth, rtol=1e-12)
"""
    subprocess.run([sys.executable, "-c", imports + formula + definition + kernel + check.replace("OP", op)], check=True)

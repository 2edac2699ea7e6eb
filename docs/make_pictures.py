"""Makes the pictures of the documentation, in ``docs/pictures/``: the curve of a training, the page that shows a program, and the
plots of a run.

    pip install matplotlib selenium && python docs/make_pictures.py

needs Chromium and chromedriver, too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest.mock
from pathlib import Path

import numpy as np

import fluid
from fluid import layers
from fluid.dataset import digits

FOLDER = Path(__file__).parent / "pictures"


def build():
    """The net of the second chapter: its loss, accuracy, and program for testing."""
    image = fluid.data("image", [None, 1, 8, 8])
    label = fluid.data("label", [None, 1], "int64")
    hidden = layers.conv2d(image, num_filters=16, filter_size=3, padding=1, act="relu")
    hidden = layers.pool2d(hidden, pool_size=2, pool_stride=2)
    hidden = layers.fc(hidden, size=64, act="relu")
    hidden = layers.dropout(hidden, 0.2, dropout_implementation="upscale_in_train")
    scores = layers.fc(hidden, size=10)
    loss = layers.mean(layers.softmax_with_cross_entropy(scores, label))
    accuracy = layers.accuracy(layers.softmax(scores), label)
    test_program = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Adam(learning_rate=0.003).minimize(loss)
    return loss, accuracy, test_program


def train(loss, accuracy, test_program, epochs=12):
    """The loss of each step, and after each epoch the accuracy on unseen images."""
    program = fluid.default_main_program()
    program.random_seed = fluid.default_startup_program().random_seed = 1
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    images, labels = digits.arrays("train")
    unseen = dict(zip(("image", "label"), digits.arrays("test"), strict=True))
    order = np.random.default_rng(0)
    losses, reached = [], []
    for _ in range(epochs):
        for chosen in np.split(order.permutation(len(images)), range(32, len(images), 32)):
            losses += executor.run(program, {"image": images[chosen], "label": labels[chosen]}, [loss])
        reached += executor.run(test_program, unseen, [accuracy])
    return np.ravel(losses), np.ravel(reached)


def draw_training(losses, reached, path):
    """The losses, their mean over an epoch, and the accuracy."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams.update({"svg.hashsalt": "fluid", "svg.fonttype": "none", "font.size": 11})
    steps = len(losses) // len(reached)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    left.plot(losses, color="#9db8e8", linewidth=1, label="each step")
    means = np.convolve(losses, np.ones(steps) / steps, "valid")
    left.plot(np.arange(steps - 1, len(losses)), means, color="#1a56c4", linewidth=2, label=f"mean of {steps} steps")
    left.set(xlabel="step", ylabel="loss", ylim=(0, None))
    left.legend(frameon=False)
    right.plot(range(1, len(reached) + 1), 100 * reached, "o-", color="#b3541e")
    right.set(xlabel="epoch", ylabel="right on unseen images, %", ylim=(80, 100))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def draw_run(loss, folder):
    """When what ran in two steps without native code, the memory of a step, and the gradients; call it after the training."""
    program, (images, labels) = fluid.default_main_program(), digits.arrays("train")
    feed = {"image": images[:128], "label": labels[:128]}
    executor = fluid.Executor()
    fluid.set_num_threads(1)  # whatever else the machine does
    with unittest.mock.patch.dict(os.environ, FLUID_NATIVE="0"):
        executor.run(program, feed, [loss])
        traces = []
        for _ in range(30):
            with fluid.profiler.trace() as trace:
                for _ in range(2):
                    executor.run(program, feed, [loss])
            traces.append(trace)
        plan = executor.plan(program, feed, [loss])
    least = min(traces, key=lambda trace: trace.events[-1].end - trace.events[0].start)
    for name, axes in (
        ("timeline", fluid.plots.timeline(least)),
        ("memory", fluid.plots.memory(plan)),
        ("gradients", fluid.plots.gradients(program, feed=feed)),
    ):
        axes.figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


SMALL = """
import fluid
from fluid import layers
from fluid.viewer import write_html

image = fluid.data("image", [None, 1, 8, 8])
label = fluid.data("label", [None, 1], "int64")
hidden = layers.pool2d(layers.conv2d(image, num_filters=16, filter_size=3), pool_size=2, pool_stride=2)
loss = layers.mean(layers.softmax_with_cross_entropy(layers.fc(hidden, size=10), label))
fluid.optimizer.SGD(learning_rate=0.1).minimize(loss)
write_html(fluid.default_main_program(), "page.html", "digits")
"""
"""A script of its own, since the page shows the lines that made an op."""


def photograph_viewer(path):
    """The page that `fluid view` writes, in a browser, where a gradient op was clicked."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.support.ui import WebDriverWait

    options = webdriver.ChromeOptions()
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1100,840"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = f"exec(compile({SMALL!r}, 'digits.py', 'exec'))"
            subprocess.run([sys.executable, "-c", run], cwd=folder, check=True)
            driver.get((Path(folder) / "page.html").as_uri())
            WebDriverWait(driver, 60).until(
                lambda driver: driver.execute_script("return document.documentElement.dataset.ready === 'yes'")
            )
            place = driver.execute_script("""
                const p = fluidViewer.painter, box = fluidViewer.canvas.getBoundingClientRect();
                const n = fluidViewer.graph.nodes.find((n) => n.type === "mul_grad");
                return [box.x + p.camera.x + (n.x + n.w / 2) * p.camera.scale, box.y + p.camera.y + (n.y + 12) * p.camera.scale];
            """)
            actions = ActionChains(driver)
            actions.w3c_actions.pointer_action.move_to_location(*map(round, place))
            actions.click().perform()
            driver.find_element("xpath", "//button[text()='Fit']").click()
            time.sleep(1)  # until the panel has been drawn
            driver.save_screenshot(str(path))
    finally:
        driver.quit()


def main():
    FOLDER.mkdir(exist_ok=True)
    parts = build()
    photograph_viewer(FOLDER / "viewer.png")
    draw_training(*train(*parts), FOLDER / "training.svg")
    draw_run(parts[0], FOLDER)
    for path in sorted(FOLDER.iterdir()):
        print(path.name, path.stat().st_size)
        if path.stat().st_size > 150_000:
            sys.exit(f"{path} is larger than 150 kB")


if __name__ == "__main__":
    main()

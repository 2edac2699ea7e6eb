"""Plots of weights, gradients, timelines and memory."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import fluid
from fluid import dygraph, layers, plots
from fluid.errors import FluidError

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (only if it is there)

FEED = {"x": np.linspace(-1, 1, 32 * 8, dtype="float32").reshape(32, 8)}


@pytest.fixture(autouse=True)
def _closed() -> Any:
    yield
    pyplot.close("all")


def trained() -> tuple[Any, Any]:
    x = fluid.data("x", [None, 8])
    loss = layers.mean(layers.square(layers.fc(layers.fc(x, 16, act="tanh"), 1)))
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    return loss, executor


def heights(collection: Any) -> float:
    """How high a filled histogram is above its row."""
    ys = collection.get_paths()[0].vertices[:, 1]
    return float(ys.max() - ys.min())


def test_weights_have_a_histogram_each() -> None:
    trained()
    main = fluid.default_main_program()
    axes = plots.weights(main)
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names[::-1] == [param.name for param in main.all_parameters()]
    assert len(axes.collections) == 4 and all(heights(item) == pytest.approx(0.9) for item in axes.collections)
    values = fluid.global_scope().array("fc_0.w_0")
    xs = axes.collections[3].get_paths()[0].vertices
    filled = xs[xs[:, 1] > 3.001, 0]  # its row is the third from below
    assert filled.min() <= values.min() and filled.max() >= values.max() and axes.get_xlabel() == "value"
    own = pyplot.subplots()[1]
    assert plots.weights(main, ["fc_1.w_0"], axes=own) is own and len(own.collections) == 1
    assert len(plots.weights({"all": np.ones(3), "none": np.zeros(0)}).collections) == 2
    with pytest.raises(FluidError, match=r"there is no 'fc_0.w'; did you mean fc_0.w_0"):
        plots.weights(main, ["fc_0.w"])
    with pytest.raises(FluidError, match="run the startup program"):
        plots.weights(main, scope=fluid.Scope())
    with pytest.raises(FluidError, match="plots are of a program, a layer, or arrays by name"):
        plots.weights(3)


def test_gradients_of_a_program_change_nothing() -> None:
    trained()
    main, scope = fluid.default_main_program(), fluid.global_scope()
    before = {var.name: scope.array(var.name).copy() for var in main.list_vars() if var.persistable}
    text = str(main)
    axes = plots.gradients(main, feed=FEED)
    assert len(axes.collections) == 4 and str(main) == text
    assert all(scope.array(name).tobytes() == value.tobytes() for name, value in before.items())
    vertices = plots.gradients(main, ["fc_1.w_0"], feed=FEED).collections[0].get_paths()[0].vertices
    filled = vertices[vertices[:, 1] > 1e-6, 0]
    powers = np.log10(abs(fluid.Executor().run(main, FEED, ["fc_1.w_0@GRAD"])[0]))  # a step of training
    width = float(1.1 * (powers.max() - powers.min()) / 60 + 1e-3)
    assert filled.min() == pytest.approx(powers.min(), abs=width) and filled.max() == pytest.approx(powers.max(), abs=width)
    assert any(line.get_xdata()[0] == pytest.approx(np.log10(2.0**-24)) for line in axes.lines)
    with pytest.raises(FluidError, match="the program has no gradient of a parameter"):
        plots.gradients(main.clone(for_test=True), feed=FEED)


def test_gradients_of_a_layer_and_of_arrays() -> None:
    with dygraph.guard():
        layer = dygraph.Linear(8, 4)
        with pytest.raises(FluidError, match="or backward, first"):
            plots.gradients(layer)
        layers.mean(layer(dygraph.to_variable(FEED["x"]))).backward()
        names = [text.get_text() for text in plots.gradients(layer).get_yticklabels()]
    assert names[::-1] == [param.name for param in layer.parameters()]
    notes = [text.get_text() for text in plots.gradients({"g": np.array([0.0, 0.0, 1.0, np.inf])}).texts]
    assert "50% zero  1 not finite" in notes


def test_a_timeline_has_a_bar_for_each_event_in_a_row_for_each_thread() -> None:
    loss, executor = trained()

    def work() -> None:
        layers.tanh(dygraph.Tensor([1.0]))

    with fluid.profiler.trace() as trace:
        executor.run(feed=FEED, fetch_list=[loss])
        thread = threading.Thread(target=work, name="another")
        thread.start()
        thread.join()
    axes = plots.timeline(trace)
    assert len(axes.patches) == len(trace.events)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["MainThread", "another"]
    rows = {patch.get_y() for patch in axes.patches}
    assert rows == {0, 1, 2}  # the run, what ran in it, and the other thread
    seconds = sum(event.end - event.start for event in trace.events)
    assert sum(patch.get_width() for patch in axes.patches) == pytest.approx(1e3 * seconds)
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels[0] == "run" and any(label.startswith("tanh, ") for label in labels)
    with pytest.raises(FluidError, match=r"plots\.timeline draws what"):
        plots.timeline([])
    with fluid.profiler.trace() as empty:
        pass
    with pytest.raises(FluidError, match="nothing ran inside"):
        plots.timeline(empty)


def test_time_inside_of_blocks_counts_once() -> None:
    from fluid.executor.runtime.timeline import Timeline
    from fluid.ir.program import Operator

    trace = Timeline()
    block = fluid.default_main_program().global_block()
    trace.add("tanh", 0.1, 0.3, ops=[Operator(block, "tanh", {}, {}, {})])
    trace.add("while", 0.0, 1.0, ops=[Operator(block, "while", {}, {}, {})])
    labels = [text.get_text() for text in plots.timeline(trace).get_legend().get_texts()]
    assert labels == ["while, 800 ms", "tanh, 200 ms"]


@pytest.mark.numpy_alone
def test_memory_names_its_peak() -> None:
    x = fluid.data("x", [64, 8])
    wide = layers.expand(x, [1, 100])
    out = layers.reduce_sum(layers.tanh(wide) + layers.exp(wide))
    plan = fluid.Executor().plan(feed={"x": np.zeros((64, 8), "float32")}, fetch_list=[out])
    axes = plots.memory(plan)
    (curve,) = [line for line in axes.lines if line.get_label() == "alive"]
    assert len(curve.get_xdata()) == len(plan.instructions) and axes.get_ylabel() == "KiB"
    assert curve.get_ydata().max() * 1024 == pytest.approx(plan.live_bytes)
    peak = int(np.argmax(curve.get_ydata()))
    assert axes.texts[0].get_text().endswith(f"at call {peak}, {plan.instructions[peak].op.type}")
    assert any(text.get_text().startswith("arena, ") for text in axes.get_legend().get_texts())


def test_places_in_the_arena_are_drawn_as_the_plan_has_them() -> None:
    loss, executor = trained()
    plan = executor.plan(feed=FEED, fetch_list=[loss])
    axes = plots.arena(plan)
    drawn = {(round(patch.get_x() + 0.5), patch.get_y()) for patch in axes.patches}
    size = 1024 if axes.get_ylabel().endswith("KiB") else 1
    assert drawn == {(tenant.start, tenant.offset / size) for tenant in plan.tenants.values()}
    for one in axes.patches:  # nothing that lives at the same time shares bytes
        for other in axes.patches:
            apart = (
                one.get_x() + one.get_width() <= other.get_x() + 1e-9
                or other.get_x() + other.get_width() <= one.get_x() + 1e-9
                or one.get_y() + one.get_height() <= other.get_y() + 1e-9
                or other.get_y() + other.get_height() <= one.get_y() + 1e-9
            )
            assert one is other or apart
    for draw in (plots.memory, plots.arena):
        with pytest.raises(FluidError, match=r"draws what executor\.plan\(\.\.\.\) returns"):
            draw(str(plan))

"""Additions to the page that shows a program: a comparison with a second program, and results of a run."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from checks import MORE
from hypothesis import given, settings
from programs import programs
from test_viewer import EVIL, convolutional, looping, read, reload, residual, rows_of, scoped

import fluid
from fluid import layers
from fluid.errors import ExecutionError, FluidTypeError
from fluid.executor import Scope
from fluid.ir.program import Operator
from fluid.viewer import measure, to_html
from fluid.viewer.areas import add_boxes
from fluid.viewer.graph import ALONE, CHANGED, FORWARD, SAME, ViewGraph
from fluid.viewer.layers import make_sheets
from fluid.viewer.twins import join_ops, join_rows


def joined(before, after):
    """The graph of two programs, and for each node its row."""
    graph = ViewGraph(before, after)
    join_ops(graph)
    add_boxes(graph)
    join_rows(graph)
    return graph, rows_of(graph, make_sheets(graph))


def differing(graph, difference):
    """(number of the program, type) of the ops that compare so."""
    ops = [node for node in graph.nodes if node.op is not None and node.difference == difference]
    return [(graph.programs.index(node.op.block.program), node.op.type) for node in ops]


def net(hidden=8, act="relu", depth=2):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        found = fluid.data("x", [-1, 4])
        for _ in range(depth):
            found = layers.fc(found, hidden, act=act)
        fluid.optimizer.Adam(0.1).minimize(layers.mean(layers.fc(found, 1)))
    return main


# ----------------------------------------------------------------------------------------------------- two programs
@pytest.mark.parametrize("build", [convolutional, looping, lambda: residual(6), lambda: scoped(20)])
def test_a_program_is_the_same_as_itself_read_again(build):
    program = build()
    graph, place = joined(program, reload(program))
    assert not differing(graph, CHANGED) and not differing(graph, ALONE)
    for number, node in enumerate(graph.nodes):
        if node.op is not None:
            twin = graph.nodes[node.twin]
            assert twin.twin == number and twin.op.type == node.op.type and twin.op.block.idx == node.op.block.idx
            assert place[number] == place[node.twin]  # side by side
        if node.name:
            assert graph.nodes[node.twin].name == node.name and node.difference == SAME


def test_what_is_added_and_changed_is_marked_and_nothing_else():
    graph, _ = joined(net(), net(act="tanh"))
    assert sorted(differing(graph, ALONE)) == sorted(
        (side, name) for side, act in enumerate(("relu", "tanh")) for name in (act, act, f"{act}_grad", f"{act}_grad")
    )
    graph, _ = joined(net(), net(hidden=16))
    changed = differing(graph, CHANGED)
    assert (0, "mul") in changed and (1, "adam") in changed and not differing(graph, ALONE)


def test_an_added_layer_shifts_names_but_not_differences():
    graph, place = joined(net(depth=2), net(depth=3))
    alone = differing(graph, ALONE)
    assert alone.count((1, "mul")) == alone.count((1, "mul_grad")) == 1 and alone.count((1, "adam")) == 2
    assert not any(side == 0 for side, _ in alone)
    last = max(number for number, node in enumerate(graph.nodes) if node.op is not None and node.op.type == "mean")
    assert graph.nodes[last].difference == SAME and place[last] == place[graph.nodes[last].twin]


def test_an_attribute_or_a_shape_that_differs_is_a_change():
    def scaled(factor, size=2):
        main = fluid.Program()
        with fluid.program_guard(main), fluid.unique_name.guard():
            layers.relu(layers.scale(fluid.data("x", [size]), factor))
        return main

    graph, _ = joined(scaled(2.0), scaled(3.0))
    assert differing(graph, CHANGED) == [(0, "scale"), (1, "scale")]
    graph, _ = joined(scaled(2.0), scaled(2.0, 3))
    assert [node.difference for node in graph.nodes if node.op is None] == [CHANGED, CHANGED]
    assert len(differing(graph, CHANGED)) == 4


def test_boxes_know_what_differs_in_them():
    graph, _ = joined(scoped(20), scoped(21))
    boxes = {(node.block, node.name): node.difference for node in graph.nodes if node.name and node.kind == FORWARD}
    assert boxes[0, "encoder"] == SAME and boxes[1, "encoder"] == CHANGED and boxes[1, "layer_20"] == ALONE


def test_programs_without_anything_in_common():
    program = fluid.Program()
    block = program.global_block()
    evil = EVIL.replace("\ud800", "")
    block.ops.append(Operator(block, evil, {evil: [evil]}, {"Out": [evil]}, {evil: evil}))
    graph, _ = joined(looping(), program)
    assert (1, evil) in differing(graph, ALONE)
    page = to_html(program, evil, before=looping())
    assert page.count("</script") == 2
    assert len(read(page)["blocks"]) == len(looping().blocks) + 1
    joined(fluid.Program(), fluid.Program())


def test_only_a_program_can_be_compared_with():
    with pytest.raises(FluidTypeError, match=r"to_html: before should be a Program"):
        to_html(fluid.Program(), before="old.pdmodel")


@settings(max_examples=3 * MORE)
@given(programs(), programs())
def test_any_two_programs_can_be_compared(one, two):
    joined(one, two)
    json.dumps(read(to_html(two, before=one)))


# ------------------------------------------------------------------------------------------------------------- a run
def test_a_run_tells_times_and_values():
    program, scope = net(depth=1), Scope()
    with fluid.program_guard(program):
        loss = program.global_block().var("mean_0.tmp_0")
    for parameter in program.all_parameters():
        scope.put(parameter.name, np.full(parameter.shape, 0.5, "float32"))
    for var in program.list_vars():
        if var.persistable and var.name not in {parameter.name for parameter in program.all_parameters()}:
            scope.put(var.name, np.ones(var.shape, "float32"))
    x = np.array([[1, 2, 3, 4], [-1, -2, -3, -4]], "float32")
    measured = measure(program, {"x": x}, [loss.name], scope)
    ops = program.global_block().ops
    assert set(measured.seconds) == {(0, index) for index in range(len(ops))}
    assert all(seconds > 0 for seconds in measured.seconds.values())
    stats = measured.values[(0, 0), "fc_0.tmp_0"]  # x times a matrix of halves
    assert (stats.least, stats.mean, stats.most) == (-5.0, 0.0, 5.0)
    assert (stats.dtype, stats.shape, stats.bytes, stats.nans) == ("float32", (2, 8), 64, 0)

    data = read(to_html(program, measured=measured))
    assert len(data["measured"]["seconds"]) == len(ops)
    (value,) = [index for index, entry in enumerate(data["values"]) if data["vars"][entry[0]]["name"] == "fc_0.tmp_0"]
    assert dict(data["measured"]["values"])[value] == ["float32[2, 8]", 64, -5.0, 0.0, 5.0, 0, 0]
    assert "measured" not in read(to_html(program))


def test_what_is_no_number_is_counted():
    main = fluid.Program()
    with fluid.program_guard(main):
        x = fluid.data("x", [5])
        y = layers.log(x)
        z = layers.cast(layers.scale(y, 0.0), "bool")
    measured = measure(main, {"x": np.array([-1, 0, 1, math.e, math.inf], "float32")}, [z.name], Scope())
    stats = measured.values[(0, 0), y.name]
    assert (stats.nans, stats.infinities, stats.least) == (1, 2, 0.0) and stats.most == pytest.approx(1.0)
    measured = measure(main, {"x": np.full(5, np.nan, "float32")}, [z.name], Scope())
    stats = measured.values[(0, 0), y.name]
    assert (stats.nans, stats.least, stats.mean, stats.most) == (5, None, None, None)
    json.loads(json.dumps(read(to_html(main, measured=measured)), allow_nan=False))


def test_loops_are_measured_with_what_they_hold():
    program, scope = looping(), Scope()
    startup = fluid.Program()
    for var in program.list_vars():
        if var.persistable:
            startup.global_block().create_var(name=var.name, shape=var.shape, dtype=var.dtype, persistable=True)
            scope.put(var.name, np.full(var.shape, 0.1, "float32"))
    measured = measure(program, {"x": np.ones((2, 8), "float32")}, [], scope)
    while_ = next(index for index, op in enumerate(program.global_block().ops) if op.type == "while")
    assert measured.seconds[0, while_] > 0
    assert any(place[0] == 1 for place, _ in measured.values)  # ops of the loop's block
    loss = next(index for index, op in enumerate(program.global_block().ops) if op.type == "mean")
    assert measured.seconds[0, loss] > 0  # nothing was said of what to fetch
    assert read(to_html(program, measured=measured))["measured"]["values"]


def test_a_run_needs_its_feeds():
    with pytest.raises(ExecutionError, match="x has no value; feed it"):
        measure(net(), {}, ["mean_0.tmp_0"], Scope())

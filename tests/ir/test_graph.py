"""Programs as networkx graphs."""

from __future__ import annotations

import networkx

import fluid
from fluid.transform.graph import to_networkx


def test_values_and_ops_are_nodes_and_overwritten_names_are_several_values():
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        x = fluid.data("x", [2])
        y = fluid.layers.tanh(x)
        fluid.layers.assign(fluid.layers.exp(y), output=y)
        fluid.layers.mean(y)
    graph = to_networkx(program)
    assert [data["label"] for node, data in graph.nodes(data=True) if len(node) == 2] == ["tanh", "exp", "assign", "mean"]
    assert networkx.is_directed_acyclic_graph(graph)
    assert (0, y.name, 1) in graph and (0, y.name, 2) in graph
    assert networkx.has_path(graph, (0, "x", 0), (0, y.name, 2))
    assert graph.edges[(0, "x", 0), (0, 0)]["slot"] == "X"
    assert graph.nodes[(0, "x", 0)]["var"] is program.global_block().var("x")


def test_blocks_are_joined_to_what_is_around_them():
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        x = fluid.data("x", [1])
        x.stop_gradient = False
        step = fluid.layers.fill_constant([1], "int64", 0)
        last = fluid.layers.fill_constant([1], "int64", 3)
        total = fluid.layers.scale(x, 2.0)
        go = fluid.layers.less_than(step, last)
        loop = fluid.layers.While(go)
        with loop.block():
            fluid.layers.assign(fluid.layers.elementwise_mul(total, x), output=total)
            fluid.layers.increment(step)
            fluid.layers.less_than(step, last, cond=go)
        loss = fluid.layers.mean(total)
    fluid.append_backward(loss, parameter_list=[x])
    graph = to_networkx(program)
    assert {node[0] for node in graph} == {0, 1, 2}
    multiply = next(node for node, data in graph.nodes(data=True) if data["label"] == "elementwise_mul")
    assert multiply[0] == 1
    assert networkx.has_path(graph, (0, "x", 0), multiply)
    assert networkx.has_path(graph, multiply, (0, loss.name, 1))

"""The boxes of the page that shows a program: which ops are put together, and under which names."""

from __future__ import annotations

import json

from checks import MORE, each
from hypothesis import given, settings
from programs import programs
from test_viewer import EVIL, convolutional, looping, read, reload, residual, rows_of, scoped

import fluid
from fluid import layers
from fluid.ir.program import Operator
from fluid.viewer import to_html
from fluid.viewer.areas import add_boxes
from fluid.viewer.graph import BACKWARD, FORWARD, UPDATE, ViewGraph
from fluid.viewer.layers import make_sheets


def boxed(program):
    graph = ViewGraph(program)
    add_boxes(graph)
    return graph


def boxes_around(graph, node):
    """Names of the boxes around a node, outermost first."""
    names = []
    while (owner := graph.areas[graph.nodes[node].area].owner) >= 0:
        names.insert(0, graph.nodes[owner].name)
        node = owner
    return names


def levels(graph):
    """For each area, the ops and boxes of forward ops in it."""
    found = [[] for _ in graph.areas]
    for number, node in enumerate(graph.nodes):
        if node.kind == FORWARD and (node.op or node.name):
            found[node.area].append(number)
    return found


def ops_in(graph, box):
    """The numbers of all nodes of ops in a box."""
    return [number for number, node in enumerate(graph.nodes) if node.op is not None and box in owners(graph, number)]


def owners(graph, node):
    found = []
    while (node := graph.areas[graph.nodes[node].area].owner) >= 0:
        found.append(node)
    return found


def chained(names, types=("relu",)):
    """The main program of a chain of ops; each op with a name reads a parameter."""
    program = fluid.Program()
    block = program.global_block()
    block.create_var(name="v0", shape=[2], dtype="float32", is_data=True)
    for number, name in enumerate(names):
        reads = {"X": [f"v{number}"]}
        if name:
            reads["Y"] = [name]
            block.create_parameter(name=name, shape=[2], dtype="float32") if name not in block.vars else None
        block.create_var(name=f"v{number + 1}", shape=[2], dtype="float32")
        block.ops.append(Operator(block, types[number % len(types)], reads, {"Out": [f"v{number + 1}"]}, {}))
    return program


def test_ops_of_a_scope_are_boxed_with_their_gradients_and_updates():
    graph = boxed(scoped(2))
    scopes = {
        number: [part for part in node.op.attrs.get("op_namescope", "/").split("/") if part]
        for number, node in enumerate(graph.nodes)
        if node.op is not None and node.kind == FORWARD
    }
    for number, scope in scopes.items():
        assert boxes_around(graph, number) == scope
    assert ["encoder", "layer_1"] in scopes.values()
    for number, node in enumerate(graph.nodes):
        if node.op is not None and node.made_from >= 0:
            assert boxes_around(graph, number) == scopes[node.made_from]
        if node.op is not None and node.op.type == "adam" and "fc_4" in node.op.input("Param")[0]:
            assert boxes_around(graph, number) == ["head"]
    assert {node.kind for node in graph.nodes if node.name == "head"} == {FORWARD, BACKWARD, UPDATE}


@each("path", [["encoder.0.fc.weight", "encoder.0.fc.bias"], ["encoder/0/fc/kernel"] * 2, ["block0_w_0", "block0_w_1"]])
def test_without_scopes_names_of_parameters_say_which_layer_an_op_is_of(path):
    names = []
    for layer in range(12):
        names += [name.replace("0", str(layer), 1) for name in path] + [None, None]
    graph = boxed(chained(names))
    title = {"encoder.0.fc.weight": ["encoder", "encoder.0"], "encoder/0/fc/kernel": ["encoder", "encoder.0"]}.get(
        path[0], ["block0_w"]
    )
    assert [boxes_around(graph, number) for number in range(4)] == [title] * 4
    assert boxes_around(graph, 4) == [name.replace("0", "1") for name in title]


def test_an_op_that_reads_what_is_fed_ends_a_layer():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        found = fluid.data("x", [-1, 4])
        for _ in range(20):
            found = layers.fc(found, 4, act="relu")
        layers.mean(layers.cross_entropy(layers.softmax(found), fluid.data("label", [-1, 1], "int64")))
    graph = boxed(main)
    around = {graph.nodes[number].op.type: boxes_around(graph, number) for number in range(len(main.global_block().ops))}
    assert around["softmax"] and not around["cross_entropy"] and not around["mean"]


def test_small_blocks_show_their_ops():
    for program in (convolutional(), looping()):
        assert not any(node.name for node in boxed(program).nodes)


@each(
    "build",
    [
        lambda: residual(40),
        lambda: residual(80),
        lambda: reload(scoped(40)),
        lambda: chained([None] * 2000),
        lambda: chained(["w"] * 400),
    ],
)
def test_no_level_is_long_unless_it_repeats(build):
    graph = boxed(build())
    for level in levels(graph):
        alike = [number for number in level if graph.nodes[number].alike >= 0]
        assert len(level) <= 30 or alike == level
    assert 0 < len(levels(graph)[0]) <= 30
    rows_of(graph, make_sheets(graph))


@each("build", [lambda: residual(40), lambda: scoped(30), lambda: chained([None] * 200)])
def test_values_flow_through_boxes_one_way(build):
    """A box holds consecutive ops, and lies below the values that it reads."""
    graph = boxed(build())
    place = rows_of(graph, make_sheets(graph))
    order = [number for number, node in enumerate(graph.nodes) if node.kind == FORWARD and node.op is not None]
    for number, node in enumerate(graph.nodes):
        if node.name and node.kind == FORWARD:
            inside = ops_in(graph, number)
            start = order.index(inside[0])
            assert order[start : start + len(inside)] == inside
        if node.kind == FORWARD and (node.op or node.name):
            for value in node.all_reads():
                maker = graph.values[value].node
                while maker >= 0 and graph.nodes[maker].area != node.area:
                    maker = graph.areas[graph.nodes[maker].area].owner
                if maker >= 0:
                    assert place[maker][1] < place[number][1]


def test_boxes_of_the_same_structure_are_known():
    def build(other):
        main = fluid.Program()
        with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
            found = fluid.data("x", [-1, 4])
            for number in range(6):
                with fluid.name_scope("layer"):
                    found = layers.fc(found, 4, act=other if number == 3 else "relu")
        graph = boxed(main)
        firsts = [node.alike for node in graph.nodes if node.name]
        return [[name for name, first in zip(firsts, firsts, strict=True)].index(first) if first >= 0 else -1 for first in firsts]

    assert build("relu") == [0] * 6
    assert build("tanh") == [0, 0, 0, -1, 4, 4]


def test_repeats_are_found_without_names():
    """Layers of four ops whose parameters' names tell nothing."""
    names = [None]
    for number in range(64):
        names += [f"p{number}", None]
    graph = boxed(chained(names, ("tanh", "mul", "relu", "mul", "softmax")))
    alike = [node for node in graph.nodes if node.name and node.alike >= 0]
    assert len(alike) >= 12 and len({node.alike for node in alike}) < 6


def test_an_open_box_names_what_it_is_given():
    graph = boxed(scoped(2))
    (first,) = [number for number, node in enumerate(graph.nodes) if node.name == "layer_1" and node.kind == FORWARD]
    (area,) = [number for number, area in enumerate(graph.areas) if area.owner == first]
    (given,) = [node for node in graph.nodes if node.area == area and node.op is None]
    assert graph.values[given.writes[0][1]].name == "tmp_0"
    assert [name for slot, name in graph.nodes[first].reads] == [given.writes[0][1]]


def test_large_blocks_of_loops_have_boxes_too():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        found = layers.fill_constant([1, 4], "float32", 1.0)
        found.stop_gradient = False
        step, last = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 5)
        go_on = layers.less_than(step, last)
        loop = layers.While(go_on)
        with loop.block():
            inner = found
            for _ in range(20):
                inner = layers.fc(inner, 4, act="tanh")
            layers.assign(inner, output=found)
            layers.increment(step)
            layers.less_than(step, last, cond=go_on)
        fluid.append_backward(layers.mean(found))
    graph = boxed(main)
    rows_of(graph, make_sheets(graph))
    kinds = {(node.block, node.kind) for node in graph.nodes if node.name}
    assert {(1, FORWARD), (2, BACKWARD)} <= kinds
    assert read(to_html(main))["areas"]


@each("scope", [EVIL, "/" + "a/" * 5000, 3, ["a"], "", "/" + "x" * 10**5 + "/"])
def test_hostile_scopes(scope):
    program = chained([None] * 4)
    for op in program.global_block().ops[:2]:
        op.attrs["op_namescope"] = scope
    page = to_html(program)
    assert page.count("</script") == 2 and len(page) < len(to_html(chained([None] * 4))) + 30_000
    json.dumps(read(page))
    assert len([node for node in read(page)["nodes"] if "name" in node]) <= 1


def test_hostile_names_of_parameters():
    for name in (EVIL, "." * 50, "/" * 50, "a." * 5000, "_"):
        page = to_html(chained([name, None, None] * 20))
        assert page.count("</script") == 2


@settings(max_examples=3 * MORE)
@given(programs())
def test_any_program_can_be_boxed(program):
    graph = boxed(program)
    rows_of(graph, make_sheets(graph))

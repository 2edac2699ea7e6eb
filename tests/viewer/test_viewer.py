"""The content of the page that shows a program. `test_viewer_browser` tests it in a browser."""

from __future__ import annotations

import json
import re

import pytest
from checks import MORE, each
from hypothesis import given, settings
from programs import programs

import fluid
from fluid import layers
from fluid.errors import FluidTypeError
from fluid.ir.program import Block, Operator
from fluid.viewer import to_html, write_html
from fluid.viewer.graph import BACKWARD, FORWARD, UPDATE, ViewGraph
from fluid.viewer.layers import make_sheets

EVIL = "</script><script>alert(1)</script><!--\"'`&amp;{{DATA}} 名 \u2028 \ud800 \x00"


def convolutional():
    """A convolutional network with Adam; main program."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        image = fluid.data("image", [-1, 1, 8, 8])
        label = fluid.data("label", [-1, 1], "int64")
        found = fluid.nets.simple_img_conv_pool(image, 4, 3, 2, 2, act="relu")
        found = layers.fc(found, 10, act="softmax")
        loss = layers.mean(layers.cross_entropy(found, label))
        fluid.optimizer.Adam(0.01).minimize(loss)
    return main


def looping():
    """A loop that carries a hidden state through a parameter, with SGD; main program."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        x = fluid.data("x", [-1, 8])
        hidden = layers.fc(x, 8, act="tanh")
        weight = layers.create_parameter([8, 8], "float32", name="w")
        step, last = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 5)
        go_on = layers.less_than(step, last)
        loop = layers.While(go_on)
        with loop.block():
            layers.assign(layers.tanh(layers.mul(hidden, weight) + x), output=hidden)
            layers.increment(step)
            layers.less_than(step, last, cond=go_on)
        loss = layers.mean(layers.fc(hidden, 1))
        fluid.optimizer.SGD(0.1).minimize(loss)
    return main


def residual(blocks):
    """Blocks of three layers with a way around them, with Adam: 29 ops for each; main program."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        found = layers.fc(fluid.data("x", [-1, 16]), 16)
        for _ in range(blocks):
            inner = layers.fc(layers.fc(found, 16, act="relu"), 16, act="tanh")
            found = found + inner * layers.fc(found, 16, act="sigmoid")
        loss = layers.mean(layers.fc(found, 1))
        fluid.optimizer.Adam(0.1).minimize(loss)
    return main


def scoped(count):
    """Layers of an encoder, each in a scope of its own, with Adam: 16 ops for each; main program."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        found = fluid.data("ids", [-1, 8])
        with fluid.name_scope("encoder"):
            for _ in range(count):
                with fluid.name_scope("layer"):
                    found = found + layers.fc(layers.fc(found, 16, act="tanh"), 8)
        with fluid.name_scope("head"):
            found = layers.fc(found, 1, act="sigmoid")
        loss = layers.mean(found)
        fluid.optimizer.Adam(0.1).minimize(loss)
    return main


def read(page):
    """The data that a page carries, with variables, attributes and lines written out."""
    data = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)[1])
    once = data["once"]
    data["vars"] = [{"name": name, "spec": once[spec], "flags": once[flags]} for name, spec, flags, *_ in data["vars"]]
    for node in data["nodes"]:
        node |= {name: [once[item] for item in once[node[name]]] for name in ("attrs", "frames") if name in node}
    return data


def batched(numbers):
    """Numbers in pairs."""
    return zip(numbers[::2], numbers[1::2], strict=True)


def reload(program):
    """As if it came from a file: nothing but names links gradient ops to forward ops."""
    return fluid.Program.parse_from_string(program.serialize_to_string())


def rows_of(graph, sheets):
    """Node -> (sheet, row); each node is placed exactly once."""
    found = {}
    for number, sheet in enumerate(sheets):
        for row, cells in enumerate(sheet.rows):
            assert len(cells) == len(sheet.columns)
            for (block, kind), cell in zip(sheet.columns, cells, strict=True):
                for node in (item for item in cell if item >= 0):
                    assert node not in found
                    assert (graph.nodes[node].area, graph.nodes[node].kind) == (block, kind)
                    found[node] = number, row
    assert sorted(found) == list(range(len(graph.nodes)))
    return found


# ------------------------------------------------------------------------------------------------------------ contents
def test_page_holds_every_op_with_slots_shapes_attributes_and_line():
    program = convolutional()
    data = read(to_html(program))
    ops = [node for node in data["nodes"] if "type" in node]
    once = data["once"]
    assert [once[node["type"]] for node in ops] == [op.type for op in program.global_block().ops]
    conv = ops[0]
    slots = {once[slot]: data["vars"][data["values"][value][0]] for slot, value in batched(conv["reads"])}
    assert slots["Input"]["name"] == "image" and slots["Input"]["spec"] == "float32[-1, 1, 8, 8]"
    assert slots["Filter"]["flags"] == ["parameter"]
    attrs = {name: (value, usual) for name, value, usual in conv["attrs"]}
    assert attrs["strides"] == ("[1, 1]", 1) and attrs["groups"][0] == "1"
    assert f"{__file__}:" in conv["frames"][0] and conv["frames"][0].endswith("in convolutional")
    loss = data["values"][data["loss"]]
    assert data["vars"][loss[0]]["name"] == "mean_0.tmp_0"


def test_lines_are_found_in_what_paddle_keeps_of_them():
    program = fluid.Program()
    program.global_block().append_op(
        "fill_constant", {}, {"Out": program.global_block().create_var(name="x")}, {"shape": [1]}, frames=()
    )
    program.global_block().ops[0].attrs["op_callstack"] = ['  File "net.py", line 3, in <module>', "    x = zeros()"]
    data = read(to_html(program))
    assert data["nodes"][0]["frames"] == ['File "net.py", line 3, in <module>', "x = zeros()"]


def test_page_needs_nothing_else_and_runs_nothing_else():
    page = to_html(convolutional(), "a <title>")
    outside = re.sub(r'<script id="data".*?</script>', "", page, flags=re.DOTALL).replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\(|\ssrc=|\shref=|fetch\(|XMLHttpRequest|innerHTML|eval\(", outside)
    assert re.search(r"""content="default-src 'none'; script-src 'sha256-[^' ]+'; style-src 'sha256-""", page)
    assert "<h1>a &lt;title&gt;</h1>" in page
    assert re.findall(r"<script[^>]*>", page) == ['<script id="data" type="application/json">', "<script>"]


def test_hostile_names_stay_text(tmp_path):
    program = fluid.Program()
    block = program.global_block()
    block.create_var(name=EVIL, shape=[2], dtype="float32")
    block.ops.append(
        Operator(block, EVIL, {EVIL: [EVIL]}, {"Out": [EVIL]}, {EVIL: EVIL, "op_role": EVIL, "op_callstack": [EVIL]})
    )
    path = tmp_path / "page.html"
    write_html(program, path, title=EVIL)
    page = path.read_text(encoding="utf-8")
    assert page.count("</script") == 2 and "alert(1)</script>" not in page and page.count("<!--") == 0
    data = read(page)
    assert data["vars"][0]["name"] == EVIL
    assert data["once"][next(node for node in data["nodes"] if "type" in node)["type"]] == EVIL
    assert "{{DATA}}" in page[: page.index("</title>")]  # a title is not a place to put things in


def test_long_values_are_cut():
    program = fluid.Program()
    block = program.global_block()
    block.ops.append(Operator(block, "x" * 10**6, {}, {}, {"values": list(range(10**5)), "text": "y" * 10**6}))
    page = to_html(program)
    assert len(page) < len(to_html(fluid.Program())) + 10_000
    shown = {name: value for name, value, _ in read(page)["nodes"][0]["attrs"]}
    assert shown["values"].endswith("31, ... 99968 more]")


def test_what_is_no_program_is_refused():
    with pytest.raises(FluidTypeError, match=r"to_html: program should be a Program, not 'model\.pdmodel'"):
        to_html("model.pdmodel")


# --------------------------------------------------------------------------------------------------------------- pairs
@each("build", [convolutional, looping, lambda: residual(2)])
def test_gradient_ops_are_paired_with_the_ops_they_were_made_from(build):
    program = build()
    graph, loaded = ViewGraph(program), ViewGraph(reload(program))
    pairs = {number: node.made_from for number, node in enumerate(graph.nodes) if node.made_from >= 0}
    assert pairs == {number: node.made_from for number, node in enumerate(loaded.nodes) if node.made_from >= 0}
    gradients = [number for number, node in enumerate(graph.nodes) if node.op is not None and node.op.type.endswith("_grad")]
    assert gradients and set(gradients) <= set(pairs)
    for number in gradients:
        gradient, forward = graph.nodes[number].op, graph.nodes[pairs[number]].op
        assert gradient.type == forward.type + "_grad"
        assert gradient.frames == forward.frames  # what the differentiator knew
        assert set(forward.output_arg_names) & {re.sub("@(GRAD|SAVED).*", "", name) for name in gradient.input_arg_names}


def test_overwritten_names_pair_in_reverse():
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        x = fluid.data("x", [2])
        x.stop_gradient = False
        y = layers.relu(x)
        for _ in range(3):
            program.global_block().append_op("relu", {"X": y}, {"Out": y})
        fluid.append_backward(layers.mean(y), parameter_list=[x])
    nodes = [node for node in ViewGraph(reload(program)).nodes if node.op is not None]
    assert [node.made_from for node in nodes if node.op.type == "relu_grad"] == [
        number for number in range(len(nodes) - 1, -1, -1) if nodes[number].op.type == "relu"
    ]


def test_gradients_that_are_ordinary_ops_are_paired():
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        x = fluid.data("x", [2])
        x.stop_gradient = False
        fluid.append_backward(layers.mean(layers.scale(layers.tanh(x), 2.0)), parameter_list=[x])
    graph = ViewGraph(program)
    scales = [number for number, node in enumerate(graph.nodes) if node.op is not None and node.op.type == "scale"]
    assert [graph.nodes[number].made_from for number in scales] == [-1, scales[0]]


# ---------------------------------------------------------------------------------------------------------------- rows
@each("build", [convolutional, looping, lambda: residual(3)])
def test_forward_ops_lie_in_layers_and_gradients_beside_them(build):
    graph = ViewGraph(build())
    sheets = make_sheets(graph)
    place = rows_of(graph, sheets)
    for number, node in enumerate(graph.nodes):
        for value in node.all_reads():
            maker = graph.values[value].node
            if maker < 0 or (graph.nodes[maker].block, graph.nodes[maker].kind) != (node.block, node.kind):
                continue
            if node.kind == FORWARD:
                assert place[maker][1] < place[number][1]
            elif node.kind == BACKWARD:  # gradients flow upwards
                assert place[maker][1] > place[number][1]
        if node.op is not None and node.op.type.endswith("_grad"):
            assert place[number] == place[node.made_from]
    assert {node.kind for node in graph.nodes} == {FORWARD, BACKWARD, UPDATE}


def test_updates_lie_beside_the_gradients_they_use():
    graph = ViewGraph(convolutional())
    place = rows_of(graph, make_sheets(graph))
    adams = [(number, node) for number, node in enumerate(graph.nodes) if node.op is not None and node.op.type == "adam"]
    assert len(adams) == 4
    for number, node in adams:
        (gradient,) = [value for slot, value in node.reads if slot == "Grad"]
        assert place[number] == place[graph.values[gradient].node]


def test_a_loop_shares_rows_with_its_gradient_and_its_values_are_joined():
    graph = ViewGraph(looping())
    sheets = make_sheets(graph)
    assert [sheet.columns for sheet in sheets] == [[(0, 0), (0, 1), (0, 2)], [(1, 0), (1, 1), (2, 1)]]
    named = {(value.block, value.name, value.version): number for number, value in enumerate(graph.values)}
    hidden = "fc_0.tmp_2"
    assert (named[0, hidden, 1], named[1, hidden, 0]) in graph.links  # into the loop
    assert (named[1, hidden, 1], named[1, hidden, 0]) in graph.links  # from trip to trip
    assert (named[1, hidden, 1], named[0, hidden, 2]) in graph.links  # out of it
    assert (named[1, "tanh_0.tmp_0", 1], named[2, "tanh_0.tmp_0", 0]) in graph.links  # kept for the gradient


def test_rows_stay_narrow_and_ways_few():
    graph = ViewGraph(residual(40))
    (sheet,) = make_sheets(graph)
    assert max(len(cell) for cells in sheet.rows for cell in cells) <= 16
    startup = fluid.Program()
    with fluid.program_guard(startup):
        for _ in range(100):
            layers.fill_constant([1], "float32", 0.0)
    (sheet,) = make_sheets(ViewGraph(startup))
    assert [len(cells[0]) for cells in sheet.rows] == [8] * 12 + [4]


@each("shared", [100, 3000])
def test_values_that_live_long_do_not_fill_the_page(shared):
    """Each op of a chain also reads a value from twice as far back: far too many edges to draw."""
    program = fluid.Program()
    block = program.global_block()
    for index in range(shared):
        block.ops.append(Operator(block, "sum", {"X": [f"v{index - 1}", f"v{shared - index}"]}, {"Out": [f"v{index}"]}, {}))
    sheets = make_sheets(ViewGraph(program))
    assert sum(len(cell) for sheet in sheets for cells in sheet.rows for cell in cells) <= 14 * shared


def test_blocks_that_own_each_other_or_that_nobody_owns_are_shown_once():
    program = fluid.Program()
    root = program.global_block()
    program.blocks += [Block(program, 1, root), Block(program, 2, root), Block(program, 3, root)]
    root.ops.append(Operator(root, "a", {}, {"Out": ["x"]}, {"sub_block": program.blocks[1], "again": program.blocks[1]}))
    for index, owned in ((1, 2), (2, 1), (3, 3)):
        block = program.blocks[index]
        block.ops.append(Operator(block, f"op_{index}", {"X": ["x"]}, {"Out": ["y"]}, {"sub_block": program.blocks[owned]}))
    program.blocks[1].forward, program.blocks[2].forward = program.blocks[2], program.blocks[1]
    graph = ViewGraph(program)
    rows_of(graph, make_sheets(graph))
    assert [area.owner for area in graph.areas] == [-1, 0, 1, -1]
    assert len(read(to_html(program))["sheets"]) == 4


@settings(max_examples=3 * MORE)
@given(programs())
def test_any_program_can_be_shown(program):
    graph = ViewGraph(program)
    rows_of(graph, make_sheets(graph))
    data = read(to_html(program))
    assert sum("type" in node for node in data["nodes"]) == sum(len(block.ops) for block in program.blocks)

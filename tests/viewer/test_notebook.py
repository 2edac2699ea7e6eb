"""Programs and plans as notebooks show them."""

from __future__ import annotations

import html
import re

import numpy as np

import fluid
from fluid import layers
from fluid.viewer import to_html


def text_of(page: str) -> str:
    """The text between tags, a line for each block's or op's."""
    lines = re.sub(r"</(div|summary)>", "\n", page)
    return html.unescape(re.sub(r"<[^>]*>", "", lines)).rstrip("\n")


def test_a_program_is_its_text_with_blocks_to_fold() -> None:
    x = fluid.data("x", [None, 3])
    layers.cond(layers.reduce_sum(x) > 0, lambda: layers.scale(x, 2.0), lambda: x)
    program = fluid.default_main_program()
    page = program._repr_html_()
    shown = [line for line in str(program).split("\n") if line.strip() != "}"]
    assert text_of(page).split("\n") == shown
    assert page.count("<details open>") == 1 and page.count("<details>") == len(program.blocks) - 1
    assert page.count("<details") == page.count("</details>")
    assert re.search(r'<span style="color: #1a56c4">scale</span>\(X=x', page)


def test_names_are_text() -> None:
    block = fluid.default_main_program().global_block()
    block.create_var(name="<img src=x onerror=alert(1)>", shape=[1], dtype="float32")
    page = fluid.default_main_program()._repr_html_()
    assert "<img" not in page and "&lt;img src=x onerror=alert(1)&gt;" in page


def test_the_viewer_in_a_cell() -> None:
    layers.tanh(fluid.data("x", [2]))
    program = fluid.default_main_program()
    cell = program.view(height=321, title="a net")._repr_html_()
    source = re.fullmatch(
        r'<iframe sandbox="allow-scripts allow-downloads" style="width: 100%; height: 321px;[^"]*" srcdoc="([^"]*)"></iframe>',
        cell,
    )
    assert source is not None and html.unescape(source[1]) == to_html(program, "a net")


def test_a_plan() -> None:
    y = layers.tanh(fluid.data("x", [2]))
    plan = fluid.Executor().plan(feed={"x": np.zeros(2, "float32")}, fetch_list=[y])
    assert html.unescape(plan._repr_html_()) == f"<pre>{plan}</pre>"

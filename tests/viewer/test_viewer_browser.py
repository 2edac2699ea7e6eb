"""The page that shows a program, in a real browser: Chromium without a window, driven with a mouse and keys."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from test_viewer import EVIL, convolutional, looping, reload, residual, scoped

import fluid
from fluid.ir.program import Operator
from fluid.viewer import measure, write_html

webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: the extra test-browser")
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM or not DRIVER, reason="needs chromium and chromedriver (Debian: chromium-driver)"),
]

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--window-size=1500,950",
]


class Page:
    """A page in the browser, with a user's actions."""

    def __init__(self, driver):
        self.driver = driver

    def show(self, program, path, title="A program", address="", **more):
        write_html(program, path, title, **more)
        self.driver.get_log("browser")
        self.driver.get("about:blank")
        self.driver.get(path.as_uri() + address)
        self.wait("document.documentElement.dataset.ready === 'yes'")

    def run(self, code, *values):
        return self.driver.execute_script(f"const v = fluidViewer, p = v.painter, g = v.graph; {code}", *values)

    def wait(self, condition):
        WebDriverWait(self.driver, 60).until(lambda driver: driver.execute_script(f"return {condition}"))

    def draw(self):
        """Wait for the next frame; returns the types of the visible ops."""
        before = self.run("const n = p.drawn.frames; p.ask(); return n")
        self.wait(f"fluidViewer.painter.drawn.frames > {before}")
        return self.run("return p.drawn.nodes.filter((n) => n.isOp).map((n) => n.type)")

    def find(self, name):
        return self.driver.find_element(By.ID, name)

    def text(self, name="panel"):
        return self.find(name).text

    def node(self, op_type, position=0, block=0):
        """The number of a node."""
        code = "return g.nodes.filter((n) => n.type === arguments[0] && n.block.id === arguments[1])[arguments[2]].id"
        return self.run(code, op_type, block, position)

    def spot(self, node):
        """Where the head of a node's box is in the window."""
        code = """
            const n = g.nodes[arguments[0]], box = v.canvas.getBoundingClientRect();
            return [box.x + v.camera.x + (n.x + n.w / 2) * v.camera.scale, box.y + v.camera.y + (n.y + 12) * v.camera.scale];
        """
        return [round(at) for at in self.run(code, node)]

    def mouse(self, node):
        actions = ActionChains(self.driver)
        actions.w3c_actions.pointer_action.move_to_location(*self.spot(node))
        return actions

    def click(self, node):
        self.mouse(node).click().perform()

    def size(self, width, height, mobile=False):
        """Set the size of the window; None restores the former size."""
        if width is None:
            self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        else:
            metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
            self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def keys(self, *keys):
        ActionChains(self.driver).send_keys(*keys).perform()

    def search(self, text):
        box = self.find("search")
        box.clear()
        box.send_keys(text)
        return [item.text for item in self.driver.find_elements(By.CSS_SELECTOR, "#results li")]

    def path(self):
        """Types of the ops on the highlighted path, in their order."""
        code = """
            if (!v.look.path) return null;
            return [...v.look.path.nodes].filter((n) => n.isOp).sort((a, b) => a.id - b.id).map((n) => `${n.block.id} ${n.type}`);
        """
        return self.run(code)

    def colours(self):
        """The colours that the canvas shows, the corner's first."""
        code = """
            const copy = document.createElement('canvas');
            Object.assign(copy, { width: v.canvas.width, height: v.canvas.height });
            const c = copy.getContext('2d', { willReadFrequently: true });
            c.drawImage(v.canvas, 0, 0);
            return [...new Set(new Uint32Array(c.getImageData(0, 0, copy.width, copy.height).data.buffer))];
        """
        return [tuple(colour.to_bytes(4, "little"))[:3] for colour in self.run(code)]


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in [*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def page(driver, request, tmp_path):
    """A page; after the test, the console must be empty. FLUID_SCREENSHOTS names a folder for pictures of how tests end."""
    page = Page(driver)
    page.file = tmp_path / "page.html"
    yield page
    folder = os.environ.get("FLUID_SCREENSHOTS")
    if folder:
        driver.save_screenshot(str(Path(folder) / f"{request.node.name}.png"))
    assert driver.get_log("browser") == []


def test_every_op_is_drawn_beside_its_gradient(page):
    program = convolutional()
    page.show(program, page.file)
    page.find("fit").click()
    assert sorted(page.draw()) == sorted(op.type for op in program.global_block().ops)
    roles = [op.attrs.get("op_role", 0) & 3 for op in program.global_block().ops]
    parts = ", ".join(f"{roles.count(role)} {name}" for role, name in enumerate(("forward", "backward", "optimizer")))
    assert page.text("summary") == f"{len(roles)} ops ({parts}), 1 block"
    level, left = page.run("""
        const pairs = g.nodes.filter((n) => n.from && n.type.endsWith('_grad'));
        return [pairs.filter((n) => n.y === n.from.y).length, pairs.every((n) => n.x > n.from.x + n.from.w)];
    """)
    assert level == sum(op.type.endswith("_grad") for op in program.global_block().ops)
    assert left
    assert len(page.colours()) > 20


def test_boxes_never_lie_on_each_other(page):
    for program in (convolutional(), looping(), residual(6), scoped(3)):
        page.show(program, page.file)
        assert (
            page.run("""
            const apart = (a, b) => a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y;
            const inside = (a, b) => a.x >= b.x && a.y > b.y && a.x + a.w <= b.x + b.w && a.y + a.h <= b.y + b.h;
            const seen = g.nodes.filter((n) => n.visible);
            const bad = [];
            const owns = (a, b) => {
                let { owner } = b.area;
                while (owner && owner !== a) ({ owner } = owner.area);
                return Boolean(owner);
            };
            seen.forEach((a, i) => seen.slice(0, i).forEach((b) => {
                const good = owns(b, a) ? inside(a, b) : owns(a, b) ? inside(b, a) : apart(a, b);
                if (!good) bad.push([a.type, b.type]);
            }));
            return bad;
        """)
            == []
        )


def test_a_click_shows_slots_attributes_shapes_and_the_users_line(page):
    page.show(convolutional(), page.file)
    page.click(page.node("conv2d"))
    shown = page.text()
    for part in (
        "conv2d",
        "op 0 of block 0",
        "forward",
        "Filter",
        "conv2d_0.w_0 float32[4, 1, 3, 3]",
        "image float32[-1, 1, 8, 8]",
    ):
        assert part in shown
    assert "strides" in page.text("attributes") and "[1, 1]" in page.text("attributes")
    assert "test_viewer.py:" in page.text("line") and "in convolutional" in page.text("line")
    assert "conv2d_grad op" in shown

    page.driver.find_element(By.CSS_SELECTOR, f'#panel [data-node="{page.node("conv2d_grad")}"]').click()
    assert "null" not in page.text() and "undefined" not in page.text()
    assert page.text().split("\n")[1] == "conv2d_grad" and "GRADIENT OF\nconv2d op 0 of block 0" in page.text()

    page.keys(Keys.ESCAPE)
    assert not page.find("panel").is_displayed()


def test_a_click_on_a_line_shows_the_variable(page):
    page.show(convolutional(), page.file)
    x, y = page.run("""
        const s = v.layout.segments.find((s) => s.value.var.name === 'conv2d_0.tmp_0'), box = v.canvas.getBoundingClientRect();
        return [box.x + v.camera.x + (s.x0 + s.x1) / 2 * v.camera.scale, box.y + v.camera.y + (s.y1 + s.y2) / 2 * v.camera.scale];
    """)
    actions = ActionChains(page.driver)
    actions.w3c_actions.pointer_action.move_to_location(round(x), round(y))
    actions.click().perform()
    shown = page.text()
    assert "conv2d_0.tmp_0\nfloat32[-1, 4, 6, 6]\nwritten by op 0 of block 0" in shown
    assert "READ BY\nelementwise_add" in shown and "ITS GRADIENT\nconv2d_0.tmp_0@GRAD" in shown


def test_search_finds_ops_and_variables_and_goes_there(page):
    page.show(residual(20), page.file)
    assert "fc_33.w_0" not in page.run("return p.drawn.nodes.map((n) => n.below).join()")
    found = page.search("fc_33.w_0")
    assert found[0].startswith("fc_33.w_0 float32[16, 16]") and found[-1] == f"{len(found) - 1} found"
    page.find("search").send_keys(Keys.ENTER)
    page.draw()
    assert "fc_33.w_0" in page.run("return p.drawn.nodes.map((n) => n.below).join()")
    assert page.text().split("\n")[1] == "fc_33.w_0"
    assert "parameter" in page.text() and "READ BY\nmul op" in page.text()

    found = page.search("tanh_grad")
    assert found[0].startswith("tanh_grad op ") and found[-1] == "20 found"
    assert page.run("return [...v.look.found].filter((n) => n.type === 'tanh_grad').length") == 20
    page.find("search").send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
    assert page.run("return v.look.selected.id") == page.node("tanh_grad", 1)
    assert not page.find("results").is_displayed()  # one is there
    page.keys("n")
    assert page.run("return v.look.selected.id") == page.node("tanh_grad", 2)
    assert page.search("no such thing") == ["0 found"]


def test_blocks_fold_and_unfold(page):
    page.show(looping(), page.file)
    page.find("fit").click()
    loop, inside = page.node("while"), page.node("tanh", block=1)
    assert page.draw().count("tanh") == 2
    size = "const n = g.nodes[arguments[0]]; return [n.w, n.h, g.nodes[arguments[1]].visible, v.layout.bounds.h]"
    w, h, visible, height = page.run(size, loop, inside)
    assert visible
    page.mouse(loop).double_click().perform()
    folded = page.run(size, loop, inside)
    assert folded[0] < w and folded[1] < h and not folded[2]
    page.find("fold").click()
    assert page.run(size, loop, inside)[3] < height
    types = page.draw()
    assert types.count("tanh") == 1 and "while" in types and "while_grad" in types

    page.search("tanh op 2 of block 1")
    page.find("search").send_keys(Keys.ENTER)  # what is hidden is unfolded when one goes there
    assert page.run(size, loop, inside)[2]
    page.find("unfold").click()
    assert page.run(size, loop, inside) == [w, h, True, height]
    page.click(loop)
    page.find("toggle").click()
    assert not page.run(size, loop, inside)[2]


def test_a_double_click_unfolds_where_the_panel_comes_to_stand(page):
    page.show(scoped(24), page.file)
    page.draw()
    head = page.run("return g.nodes.find((n) => n.name === 'head' && n.kind === 2).id")
    page.run("const n = g.nodes[arguments[0]]; v.camera.pan(v.camera.width - 200 - n.x * v.camera.scale - v.camera.x, 0)", head)
    page.mouse(head).double_click().perform()
    assert page.run("return g.nodes.filter((n) => n.name === 'head').every((n) => n.open)")


def test_what_a_frame_draws_is_bounded(page):
    """However far one zooms out: what cannot be told apart is not drawn, and open boxes only where they are in view."""
    program = residual(173)
    page.show(program, page.file)
    page.run("v.foldAll(true)")
    steps = page.run("""
        const counts = [];
        let count = 0, longest = 0;
        const c = new Proxy({ fillRect() {} }, {
            get: (_, name) => (...at) => {
                count += 1;
                if (name === 'roundRect') longest = Math.max(longest, at[3] * v.camera.scale);
            },
            set: () => true,
        });
        v.camera.show('whole');
        for (let { scale } = v.camera; scale < 4; scale *= 2) {
            v.camera.scale = scale;
            v.camera.y = v.camera.height / 2 - v.camera.bounds.h / 2 * scale;
            v.camera.x = v.camera.width / 2 - (v.camera.bounds.x + v.camera.bounds.w / 2) * scale;
            count = 0;
            p.paint(c, v.camera.window(), scale);
            counts.push(count);
        }
        return [Math.max(...counts), longest / v.camera.height];
    """)
    assert steps[0] < 10_000 and steps[1] < 4


def test_fit_can_always_be_read(page):
    """Titles of boxes are at least 8 pixels high, and as much of the program is in view as that allows."""
    readable = """
        const sizes = [];
        let last = 0;
        const size = (font) => parseFloat(font.split(' ').find((word) => word.endsWith('px')));
        const c = new Proxy({}, {
            get: (_, name) => (text) => { if (name === 'fillText' && text.length > 1) sizes.push(last); },
            set: (_, name, value) => {
                if (name === 'font') last = size(value);
                return true;
            },
        });
        v.camera.show('readable');
        p.boxes.draw(c, p.nodes.filter((n) => !n.open), v.camera.scale, v.look);
        return Math.min(...sizes) * v.camera.scale;
    """
    for program in (convolutional(), looping(), residual(4), residual(100), scoped(3)):
        page.show(program, page.file)
        assert page.run(readable) >= 8
        page.run("v.foldAll(true)")
        assert page.run(readable) >= 8


def test_the_gradient_of_a_loop_lies_beside_it_inside_too(page):
    page.show(looping(), page.file)
    assert page.run("""
        const inner = g.nodes.filter((n) => n.block.id === 2 && n.type.endsWith('_grad'));
        return inner.length > 2 && inner.every((n) => n.from.block.id === 1 && n.y === n.from.y && n.x > n.from.x);
    """)


def test_paths_to_the_loss_are_highlighted(page):
    page.show(looping(), page.file)
    page.search("w")
    page.find("search").send_keys(Keys.ENTER)
    page.find("path").click()
    assert page.path() == ["0 while", "0 mul", "0 elementwise_add", "0 mean"] + [
        "1 mul",
        "1 elementwise_add",
        "1 tanh",
        "1 assign",
    ]
    assert page.text("answer").startswith("8 ops on the way to mean_0.tmp_0:")

    page.search("fc_1.b_0")
    page.find("search").send_keys(Keys.ENTER, Keys.ESCAPE)
    assert page.path() is None
    page.search("fc_1.b_0")
    page.find("search").send_keys(Keys.ENTER)
    page.find("path").click()
    assert page.path() == ["0 elementwise_add", "0 mean"]

    for name in ("learning_rate_0", "fill_constant_0.tmp_0"):  # the latter counts trips: the loop reads it, the loss does not
        page.search(name)
        page.find("search").send_keys(Keys.ENTER)
        page.find("path").click()
        assert page.path() is None and page.text("answer") == "No value flows from here to mean_0.tmp_0."


def test_paths_may_end_elsewhere(page):
    page.show(convolutional(), page.file)
    page.search("conv2d_0.w_0@GRAD")
    page.find("search").send_keys(Keys.ENTER)
    page.find("target").click()
    page.search("label")
    page.find("search").send_keys(Keys.ENTER)
    page.find("path").click()
    path = page.path()
    assert "0 cross_entropy_grad" in path and path[-1] == "0 conv2d_grad" and "0 adam" not in path


def test_mouse_and_keys_move_and_zoom(page):
    page.show(residual(5), page.file)
    start = page.run("return v.camera")
    actions = ActionChains(page.driver)
    actions.move_to_element_with_offset(page.find("canvas"), 0, 0).click_and_hold().move_by_offset(-60, -90).release().perform()
    moved = page.run("return v.camera")
    assert (moved["x"], moved["y"], moved["scale"]) == (start["x"] - 60, start["y"] - 90, start["scale"])
    assert not page.find("panel").is_displayed()  # that was no click
    ActionChains(page.driver).scroll_by_amount(0, 0).scroll_from_origin(
        webdriver.common.actions.wheel_input.ScrollOrigin.from_element(page.find("canvas")), 0, 300
    ).perform()
    assert page.run("return v.camera.scale") < moved["scale"]
    page.keys("0")
    assert len(page.draw()) == page.run("return g.nodes.filter((n) => n.isOp).length")
    page.keys("1", Keys.PAGE_DOWN)
    assert 0 < len(page.draw()) < 60


def test_dark_and_light(page):
    page.show(convolutional(), page.file)
    page.draw()
    light = page.colours()[0]
    page.find("theme").click()
    page.draw()
    assert min(light) > 230 and max(page.colours()[0]) < 40
    page.find("theme").click()
    page.draw()
    assert page.colours()[0] == light


def test_five_thousand_ops(page):
    """Folded, they fit a screen; unfolded, only visible ops are drawn; search, paths and clicks still work."""
    program = residual(173)
    count = len(program.global_block().ops)
    assert count > 5000
    page.show(reload(program), page.file)
    assert page.text("summary").startswith(f"{count:,} ops")
    page.draw()
    assert 2 < page.run("return p.drawn.nodes.filter((n) => n.isBox).length") < 100
    assert page.run("return p.drawn.nodes.length === g.nodes.filter((n) => n.visible).length && v.camera.scale >= 0.4")
    page.find("unfold").click()
    assert 5 < len(page.draw()) < 200
    page.keys("0")
    assert len(page.draw()) == count
    page.search("fc_300.w_0")
    page.find("search").send_keys(Keys.ENTER)
    page.find("path").click()
    assert len(page.path()) == 5 + 73 * 11 + 3  # from the gate of block 99 on; 73 whole blocks; the last layer and the mean
    assert len(page.draw()) < 80
    page.click(page.run("return v.look.selected.readers[0].id"))
    assert page.text().split("\n")[1] == "mul" and "fc_300.w_0 float32[16, 16]" in page.text()
    assert not page.run("return document.getElementById('map').hidden")


def test_boxes_hold_scopes_and_open_with_their_gradients(page):
    page.show(scoped(24), page.file)
    title = "return p.drawn.nodes.filter((n) => !n.isInput).map((n) => `${n.kind} ${v.look.title(n)}`)"
    page.draw()
    assert {"0 encoder", "1 encoder", "2 encoder", "0 head", "0 mean"} <= set(page.run(title))
    assert page.run("return v.camera.scale") >= 0.4
    below = "return g.nodes.filter((n) => n.name === 'encoder').map((n) => n.below)"
    assert page.run(below)[0] == "24 \u00d7 6 ops \u00b7 6.7k weights"
    page.search("encoder")
    assert page.find("results").text.startswith("encoder group of ")
    page.find("search").send_keys(Keys.ENTER)
    assert "encoder\n" in page.text() and "INSIDE\nlayer " in page.text()
    assert "ids float32[-1, 8]" in page.text()  # what it reads, by name
    page.find("toggle").click()
    page.draw()
    assert (
        page.run(
            "return [0, 1, 2].map((k) => g.nodes.filter((n) => n.name.startsWith('layer') && n.kind === k && n.visible).length)"
        )
        == [24] * 3
    )
    page.find("once").click()
    page.draw()
    assert page.run(title).count("0 layer \u00d7 24") == page.run(title).count("2 layer \u00d7 24") == 1
    assert page.run("return g.nodes.filter((n) => n.name.startsWith('layer') && n.visible).length") == 3
    page.search("tanh op 128")
    page.find("search").send_keys(Keys.ENTER)  # lies in one of those that are not shown
    assert page.run("return v.look.selected.visible && v.look.selected.type") == "tanh"
    page.find("fold").click()
    assert not page.run("return v.look.selected.visible")


def test_escape_goes_back_one_step_at_a_time(page):
    page.show(convolutional(), page.file)
    page.search("fc_0.w_0")
    page.find("search").send_keys(Keys.ENTER)
    page.find("path").click()
    page.find("search").send_keys(" ")
    page.find("keys").click()
    state = """
        const byId = (id) => document.getElementById(id);
        const { path, selected } = v.look;
        return [!byId('help').hidden, !byId('results').hidden, Boolean(path), Boolean(selected), byId('search').value];
    """
    page.run("v.search.openList(true)")
    steps = [page.run(state)]
    for _ in range(5):
        page.keys(Keys.ESCAPE)
        steps.append(page.run(state))
    assert steps == [
        [True, True, True, True, "fc_0.w_0 "],
        [False, True, True, True, "fc_0.w_0 "],
        [False, False, True, True, "fc_0.w_0 "],
        [False, False, False, True, "fc_0.w_0 "],
        [False, False, False, False, "fc_0.w_0 "],
        [False, False, False, False, ""],
    ]


def test_hints_go_when_what_they_tell_of_moves(page):
    page.show(convolutional(), page.file)
    page.draw()
    for move in (
        "v.camera.pan(0, 0); v.pointer.wheel(new WheelEvent('wheel', {deltaY: 100}))",
        "v.foldAll(true)",
        "v.select(g.nodes[0])",
    ):
        page.mouse(page.node("conv2d")).perform()
        assert page.text("tip").startswith("conv2d_0.tmp_0: float32[-1, 4, 6, 6]\n")
        page.run(move)
        assert not page.find("tip").is_displayed()
        page.run("v.select(null); v.camera.show('readable')")
        page.draw()
    page.mouse(page.node("conv2d")).perform()
    page.keys(Keys.ARROW_DOWN)
    assert not page.find("tip").is_displayed()


def test_the_keyboard_goes_from_op_to_op(page):
    page.show(scoped(24), page.file)
    page.draw()
    page.run("v.canvas.focus()")
    name = "return v.look.selected && `${v.look.selected.kind} ${v.look.title(v.look.selected)}`"
    page.keys(Keys.ARROW_DOWN)
    assert page.run(name) == "0 ids"
    page.keys(Keys.ARROW_DOWN)
    assert page.run(name) == "0 encoder" and page.text("said").startswith("encoder, forward, 144 ops")
    page.keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert page.run(name) == "2 encoder"
    page.keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.ENTER)
    assert page.run("return v.look.selected.open")
    for _ in range(3):
        page.keys(Keys.ARROW_DOWN)
        page.draw()
    assert page.run("return around(v.look.selected)[0].name".replace("around", "((n) => [n.area.owner])")) == "encoder"
    focus = page.run("return getComputedStyle(v.canvas).outlineStyle")
    assert focus != "none"
    assert page.run("const n = v.look.selected, w = v.camera.window(); return n.y >= w.y0 && n.y + n.h <= w.y1")


def test_the_list_has_all_ops_as_a_tree(page):
    page.show(scoped(24), page.file)
    page.keys("l")
    items = "return [...document.querySelectorAll('#list [role=treeitem]')].map((i) => i.getAttribute('aria-label'))"
    outer = page.run(items)
    assert outer[:4] == [
        "ids, forward, fed",
        "encoder, forward, 144 ops",
        "head, forward, 3 ops",
        "mean, forward, op 147 of block 0",
    ]
    assert page.run("return document.activeElement.getAttribute('role')") == "treeitem"
    page.keys(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    assert "layer_3, forward, 6 ops" in page.run(items)
    page.keys(*[Keys.ARROW_RIGHT] * 5)
    assert page.run("return document.activeElement.getAttribute('aria-label')") == "mul, forward, op 0 of block 0"
    page.keys(Keys.ENTER)
    assert page.text().split("\n")[1] == "mul" and page.run("return v.look.selected.visible")
    page.run("document.querySelector('#list [tabindex=\"0\"]').focus()")
    page.keys(*[Keys.ARROW_LEFT] * 7)
    assert page.run(items) == outer
    page.keys(Keys.ESCAPE, Keys.ESCAPE)
    assert not page.find("list").is_displayed()


def test_an_address_leads_to_what_was_selected(page):
    page.show(looping(), page.file)
    page.click(page.node("tanh"))
    assert page.run("return location.hash") == "#op-0-2"
    page.find("address").click()
    for item, title in (
        ("g.nodes.find((n) => n.block.id === 1 && n.type === 'tanh')", "tanh"),
        ("g.values.find((x) => x.var.name === 'w')", "w"),
    ):
        address = page.run(f"v.select({item}); return location.hash")
        page.show(looping(), page.file, address=address)
        assert page.text().split("\n")[1] == title
    for nothing in ("#op-9-9", "#box-0", "#value-0-0-%", "#value-0-0-none", "#x"):
        page.show(looping(), page.file, address=nothing)
        assert not page.find("panel").is_displayed()


def test_pictures_show_the_whole_program(page):
    page.show(scoped(24), page.file, "n<b>")
    code = """
        const done = arguments[arguments.length - 1], [v] = [window.fluidViewer];
        const saved = [];
        URL.createObjectURL = (blob) => { saved.push(blob); return '#'; };
        document.getElementById('svg').click();
        document.getElementById('png').click();
        const wait = async () => {
            if (saved.length < 2) return setTimeout(wait, 20);
            const picture = await createImageBitmap(saved[1]);
            done([await saved[0].text(), saved[1].type, picture.width, picture.height, v.layout.bounds.w]);
        };
        wait();
    """
    svg, kind, width, _, wide = page.driver.execute_async_script(code)
    drawing = ElementTree.fromstring(svg)
    texts = [element.text for element in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert {"▸ encoder", "▸ head", "forward"} <= set(texts)
    assert kind == "image/png" and width >= wide
    evil = fluid.Program()
    evil.global_block().ops.append(Operator(evil.global_block(), EVIL, {}, {"Out": ["x"]}, {}))
    page.show(evil, page.file)
    ElementTree.fromstring(page.driver.execute_async_script(code)[0])


def test_a_phone_shows_everything_in_its_width(page):
    try:
        page.size(390, 844, mobile=True)
        page.show(scoped(24), page.file, "A rather long name of a model.pdmodel")
        fits = "return document.documentElement.scrollWidth <= 390 && document.body.scrollWidth <= 390"
        assert page.run(fits)
        assert page.run("return v.camera.height") > 500
        page.click(page.run("return g.nodes.find((n) => n.name === 'encoder').id"))
        assert page.run(fits) and page.run("return document.getElementById('panel').getBoundingClientRect().width") == 390
        page.find("list-button").click()
        assert page.run(fits)
        page.driver.find_elements(By.CSS_SELECTOR, "#list li")[1].click()
        assert not page.find("list").is_displayed()
    finally:
        page.size(None, None)


def test_the_panel_begins_with_what_tells_most(page):
    program = convolutional()
    program.global_block().ops[0].attrs["use_mkldnn"] = True
    page.show(program, page.file)
    page.run("v.select(g.nodes.find((n) => n.type === 'conv2d'))")
    assert page.text("facts") == "Makes float32[-1, 4, 6, 6]\nWeights 36 in 1 parameter"
    shown = page.text("attributes").split("\n")
    assert shown[:3] == ["strides [1, 1]", "paddings [0, 0]", "dilations [1, 1]"]
    assert not any("mkldnn" in line or "op_role" in line for line in shown)
    assert not page.find("others").is_displayed()
    page.driver.find_element(By.CSS_SELECTOR, "#panel summary").click()
    assert "use_mkldnn" in page.text("others")


def test_two_programs_lie_side_by_side(page):
    page.show(scoped(22), page.file, "old → new", before=scoped(20))
    page.draw()
    assert page.find("next").is_displayed()
    assert page.text("legend").split("\n")[0].endswith("ops the same") and "34 ops only after" in page.text("legend")
    sides = page.run("""
        const [one, two] = g.nodes.filter((n) => n.name === 'encoder' && n.kind === 0);
        return [one.twin === two, one.y === two.y, one.x < two.x, two.difference];
    """)
    assert sides == [True, True, True, 1]
    page.run("v.toggle(g.nodes.find((n) => n.name === 'encoder'))")
    assert page.run("return g.nodes.filter((n) => n.name === 'encoder').every((n) => n.open)")
    assert page.run("""
        const outer = g.nodes.filter((n) => n.isBox && n.visible && n.twin);
        return outer.every((n) => n.y === n.twin.y) && outer.length;
    """) >= 40  # fmt: skip
    page.keys("d")
    assert "op 120 of block 0, before" in page.text() and "It reads what other ops make." in page.text()
    page.keys("d", "d", "d")
    assert "op 120 of block 0, after" in page.text() and "Only the program after has it." in page.text()
    page.keys("d", "D")
    assert "op 120 of block 0, after" in page.text()


def test_what_a_changed_op_says_differently(page):
    def scaled(factor):
        main = fluid.Program()
        with fluid.program_guard(main), fluid.unique_name.guard():
            fluid.layers.relu(fluid.layers.scale(fluid.data("x", [2]), factor))
        return main

    page.show(scaled(3.0), page.file, before=scaled(2.0))
    page.keys("d")
    assert "before after\nscale 2.0 3.0" in page.text("differences")
    Select(page.find("colouring")).select_by_visible_text("kind")
    assert page.text("legend").startswith("forward")


def test_a_run_colours_ops_and_tells_values(page):
    main = fluid.Program()
    with fluid.program_guard(main):
        x = fluid.data("x", [-1, 300])
        found = fluid.layers.log(fluid.layers.matmul(x, x, transpose_y=True))
    measured = measure(main, {"x": np.array([[1] * 300, [-1] * 300], "float32")}, [found.name], fluid.Scope())
    page.show(main, page.file, measured=measured)
    assert page.text("colours").startswith("Colours by") and page.text("legend").endswith("NaN or infinite")
    assert page.run("return v.look.bad.size") == 1  # the logarithm of negative numbers
    page.run("v.select(g.values.find((x) => x.node && x.node.type === 'log'))")
    for part in ("float32[2, 2]", "Least 5.70378", "Most 5.70378", "Takes 16 B", "Odd 2 NaN"):
        assert part in page.text("facts")
    page.run("v.select(g.nodes.find((n) => n.type === 'matmul'))")
    assert "Time " in page.text("facts") and "Made 16 B" in page.text("facts")
    tint = "return v.look.tint(g.nodes.find((n) => n.type === 'matmul'))"
    by_time = page.run(tint)
    Select(page.find("colouring")).select_by_visible_text("memory")
    assert page.run("return v.look.colouring.text(g.nodes.find((n) => n.type === 'matmul'))") == "16 B \u00b7 50.0 %"
    Select(page.find("colouring")).select_by_visible_text("kind")
    assert page.run(tint) != by_time


def test_hostile_names_do_nothing(page):
    program = fluid.Program()
    block = program.global_block()
    evil = EVIL.replace("\ud800", "") + "<img src=x onerror=\"document.title='bad'\">"
    block.create_var(name=evil, shape=[2], dtype="float32")
    block.ops.append(Operator(block, evil, {evil: [evil]}, {"__proto__": ["constructor"]}, {"__proto__": evil, "op_role": evil}))
    page.show(program, page.file, evil)
    page.click(page.run("return g.nodes.find((n) => n.isOp).id"))
    assert "<img src=x onerror=" in page.text() and "not defined here" in page.text() and "constructor" in page.text()
    assert len(page.search("</script>")) == 3
    page.find("search").send_keys(Keys.ENTER)
    assert page.driver.find_elements(By.TAG_NAME, "img") == []
    program.global_block().ops[0].attrs["op_namescope"] = f"/{evil.replace('/', '')}/"
    for _ in range(2):
        block.ops.append(Operator(block, "relu", {}, {"Out": [evil]}, dict(program.global_block().ops[0].attrs)))
    page.show(program, page.file, evil, before=program)
    page.keys("l")
    page.run("v.select(g.nodes.find((n) => n.isBox)); v.toggle(v.look.selected)")
    assert "onerror=" in page.text() and "onerror=" in page.text("list")
    assert page.driver.find_elements(By.TAG_NAME, "img") == []
    assert "<script>alert(1)" in page.driver.title


def test_an_empty_program(page):
    page.show(fluid.Program(), page.file)
    assert page.text("summary") == "0 ops, 1 block" and page.draw() == []
    page.find("fit").click()
    assert not page.find("unfold").is_displayed()
    assert page.search("x") == ["0 found"]


def test_the_page_works_in_a_notebooks_cell(page):
    """There it has no address of its own, and the page around must not be left."""
    cell = convolutional().view(height=700)._repr_html_()
    page.file.write_text(f"<!DOCTYPE html><html><body>{cell}</body></html>", encoding="utf-8")
    page.driver.get(page.file.as_uri())
    page.driver.switch_to.frame(0)
    page.wait("document.documentElement.dataset.ready === 'yes'")
    page.run("v.visit(g.nodes.find((n) => n.type === 'conv2d'))")
    assert "op 0 of block 0" in page.text() and not page.driver.find_elements(By.ID, "address")
    page.find("keys").click()
    page.keys(Keys.ESCAPE, Keys.ESCAPE)
    assert not page.find("panel").is_displayed()
    page.driver.switch_to.default_content()
    assert page.driver.current_url == page.file.as_uri()


def test_the_page_asks_no_network(page):
    page.show(convolutional(), page.file)
    assert page.run("return performance.getEntriesByType('resource').map((entry) => entry.name)") == []
    denied = page.driver.execute_async_script(
        "fetch('http://127.0.0.1:9/').then(() => arguments[0]('sent'), (e) => arguments[0](e.message))"
    )
    assert denied == "Failed to fetch"
    assert any("Content Security Policy" in entry["message"] for entry in page.driver.get_log("browser"))

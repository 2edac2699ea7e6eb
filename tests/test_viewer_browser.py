"""The page that shows a program, in a real browser: Chromium without a window, driven with a mouse and keys."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from test_viewer import EVIL, convolutional, looping, reload, residual

import fluid
from fluid.ir.program import Operator
from fluid.viewer import write_html

webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: the extra test-browser")
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

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
    """A page in the browser, and what a person would do there."""

    def __init__(self, driver):
        self.driver = driver

    def show(self, program, path, title="A program"):
        write_html(program, path, title)
        self.driver.get_log("browser")
        self.driver.get(path.as_uri())
        self.wait("document.documentElement.dataset.ready === 'yes'")

    def run(self, code, *values):
        return self.driver.execute_script(f"const v = fluidViewer, p = v.painter, g = v.graph; {code}", *values)

    def wait(self, condition):
        WebDriverWait(self.driver, 60).until(lambda driver: driver.execute_script(f"return {condition}"))

    def draw(self):
        """Wait for the next frame to be drawn, and say what it shows: types of ops."""
        before = self.run("const n = p.drawn.frames; p.ask(); return n")
        self.wait(f"fluidViewer.painter.drawn.frames > {before}")
        return self.run("return p.drawn.nodes.filter((n) => !n.isInput).map((n) => n.type)")

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
            return [box.x + p.view.x + (n.x + n.w / 2) * p.view.scale, box.y + p.view.y + (n.y + 12) * p.view.scale];
        """
        return [round(at) for at in self.run(code, node)]

    def mouse(self, node):
        actions = ActionChains(self.driver)
        actions.w3c_actions.pointer_action.move_to_location(*self.spot(node))
        return actions

    def click(self, node):
        self.mouse(node).click().perform()

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
            if (!p.path) return null;
            return [...p.path.nodes].filter((n) => !n.isInput).sort((a, b) => a.id - b.id).map((n) => `${n.block.id} ${n.type}`);
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
        page.draw()
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
    for program in (convolutional(), looping(), residual(6)):
        page.show(program, page.file)
        assert (
            page.run("""
            const apart = (a, b) => a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y;
            const inside = (a, b) => a.x >= b.x && a.y > b.y && a.x + a.w <= b.x + b.w && a.y + a.h <= b.y + b.h;
            const seen = g.nodes.filter((n) => n.visible);
            const bad = [];
            const owns = (a, b) => {
                let { owner } = b.block;
                while (owner && owner !== a) ({ owner } = owner.block);
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
    assert page.text().split("\n")[1] == "conv2d_grad" and "GRADIENT OF\nconv2d op 0 of block 0" in page.text()

    page.keys(Keys.ESCAPE)
    assert not page.find("panel").is_displayed()


def test_a_click_on_a_line_shows_the_variable(page):
    page.show(convolutional(), page.file)
    x, y = page.run("""
        const s = v.layout.segments.find((s) => s.value.var.name === 'conv2d_0.tmp_0'), box = v.canvas.getBoundingClientRect();
        return [box.x + p.view.x + (s.x0 + s.x1) / 2 * p.view.scale, box.y + p.view.y + (s.y1 + s.y2) / 2 * p.view.scale];
    """)
    actions = ActionChains(page.driver)
    actions.w3c_actions.pointer_action.move_to_location(round(x), round(y))
    actions.click().perform()
    shown = page.text()
    assert "conv2d_0.tmp_0\nfloat32[-1, 4, 6, 6]\nwritten by op 0 of block 0" in shown
    assert "READ BY\nelementwise_add" in shown and "ITS GRADIENT\nconv2d_0.tmp_0@GRAD" in shown


def test_search_finds_ops_and_variables_and_goes_there(page):
    page.show(residual(20), page.file)
    assert "fc_33.w_0" not in page.run("return p.drawn.nodes.map((n) => n.params).join()")
    found = page.search("fc_33.w_0")
    assert found[0].startswith("fc_33.w_0 float32[16, 16]") and found[-1] == f"{len(found) - 1} found"
    page.find("search").send_keys(Keys.ENTER)
    page.draw()
    assert "fc_33.w_0" in page.run("return p.drawn.nodes.map((n) => n.params).join()")
    assert page.text().split("\n")[1] == "fc_33.w_0"
    assert "parameter" in page.text() and "READ BY\nmul op" in page.text()

    found = page.search("tanh_grad")
    assert found[0].startswith("tanh_grad op ") and found[-1] == "20 found"
    assert page.run("return [...p.found].every((n) => n.type === 'tanh_grad') && p.found.size") == 20
    page.find("search").send_keys(Keys.ENTER, Keys.ENTER)
    assert page.run("return p.selected.id") == page.node("tanh_grad", 1)
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
    start = page.run("return p.view")
    actions = ActionChains(page.driver)
    actions.move_to_element_with_offset(page.find("canvas"), 0, 0).click_and_hold().move_by_offset(-60, -90).release().perform()
    moved = page.run("return p.view")
    assert (moved["x"], moved["y"], moved["scale"]) == (start["x"] - 60, start["y"] - 90, start["scale"])
    assert not page.find("panel").is_displayed()  # that was no click
    ActionChains(page.driver).scroll_by_amount(0, 0).scroll_from_origin(
        webdriver.common.actions.wheel_input.ScrollOrigin.from_element(page.find("canvas")), 0, 300
    ).perform()
    assert page.run("return p.view.scale") < moved["scale"]
    page.keys("0")
    assert len(page.draw()) == page.run("return g.nodes.filter((n) => !n.isInput).length")
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
    """Only what is in view is drawn; search, paths and clicks work as ever."""
    program = residual(173)
    count = len(program.global_block().ops)
    assert count > 5000
    page.show(reload(program), page.file)
    assert page.text("summary").startswith(f"{count} ops")
    assert 5 < len(page.draw()) < 60
    page.keys("0")
    assert len(page.draw()) == count
    page.search("fc_300.w_0")
    page.find("search").send_keys(Keys.ENTER)
    page.find("path").click()
    assert len(page.path()) == 5 + 73 * 11 + 3  # from the gate of block 99 on; 73 whole blocks; the last layer and the mean
    assert len(page.draw()) < 80
    page.click(page.run("return p.selected.readers[0].id"))
    assert page.text().split("\n")[1] == "mul" and "fc_300.w_0 float32[16, 16]" in page.text()
    assert not page.run("return document.getElementById('map').hidden")


def test_hostile_names_do_nothing(page):
    program = fluid.Program()
    block = program.global_block()
    evil = EVIL.replace("\ud800", "") + "<img src=x onerror=\"document.title='bad'\">"
    block.create_var(name=evil, shape=[2], dtype="float32")
    block.ops.append(Operator(block, evil, {evil: [evil]}, {"__proto__": ["constructor"]}, {"__proto__": evil, "op_role": evil}))
    page.show(program, page.file, evil)
    page.click(page.run("return g.nodes.find((n) => !n.isInput).id"))
    assert "<img src=x onerror=" in page.text() and "not defined here" in page.text() and "constructor" in page.text()
    assert len(page.search("</script>")) == 3
    page.find("search").send_keys(Keys.ENTER)
    assert page.driver.find_elements(By.TAG_NAME, "img") == []
    assert "<script>alert(1)" in page.driver.title


def test_an_empty_program(page):
    page.show(fluid.Program(), page.file)
    assert page.text("summary") == "0 ops, 1 block" and page.draw() == []
    page.find("fit").click()
    page.find("unfold").click()
    assert page.search("x") == ["0 found"]


def test_the_page_asks_no_network(page):
    page.show(convolutional(), page.file)
    assert page.run("return performance.getEntriesByType('resource').map((entry) => entry.name)") == []
    denied = page.driver.execute_async_script(
        "fetch('http://127.0.0.1:9/').then(() => arguments[0]('sent'), (e) => arguments[0](e.message))"
    )
    assert denied == "Failed to fetch"
    assert any("Content Security Policy" in entry["message"] for entry in page.driver.get_log("browser"))

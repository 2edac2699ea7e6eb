"""The documentation's site: it builds without a warning, and works in a browser from its files, without a server or network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

import pytest
from pages import DOCS

pytest.importorskip("furo", reason="needs sphinx and furo: the extra docs")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site: the one that ``FLUID_SITE`` names, or a new one."""
    if os.environ.get("FLUID_SITE"):
        return Path(os.environ["FLUID_SITE"])
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", "auto", str(DOCS), str(folder)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


class Links(HTMLParser):
    """Where a page's links and pictures lead, and the places in it that links may lead to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.ids: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            if (tag, name) in {("a", "href"), ("img", "src"), ("link", "href"), ("script", "src")} and value:
                self.targets.append(value)


def test_links_lead_somewhere(site: Path) -> None:
    pages = {page: Links(page) for page in site.rglob("*.html")}
    broken, outside = [], set()
    for page, links in pages.items():
        for target in links.targets:
            if re.match(r"\w+:", target):
                outside.add(target)
                continue
            file, place = urldefrag(target)
            path = (page.parent / unquote(file).partition("?")[0]).resolve() if file else page
            if not path.exists() or (place and path in pages and unquote(place) not in pages[path].ids and place != "#"):
                broken.append(f"{page.relative_to(site)}: {target}")
    assert len(pages) > 80 and not broken, "\n".join(broken[:20])
    loaded = [
        target for page in pages for target in re.findall(r'(?:src|@import)="(https?:[^"]*)', page.read_text(encoding="utf-8"))
    ]
    assert not loaded, f"the site loads from elsewhere: {set(loaded)}"


def test_every_page_can_be_reached(site: Path) -> None:
    """From the first page, by the links that a reader sees on every page."""
    first = Links(site / "index.html")
    reached = {
        (site / unquote(urldefrag(target)[0])).resolve() for target in first.targets if target.split("#")[0].endswith(".html")
    }
    missing = set(site.rglob("*.html")) - reached - {site / name for name in ("index.html", "genindex.html", "search.html")}
    missing -= {path for path in missing if path.name.startswith("py-modindex")}
    assert {"program.html", "own_op.html", "layers.vision.html", "ops.html", "append_backward_from_scratch.html"} <= {
        path.name for path in reached
    }
    assert not missing, sorted(str(path.relative_to(site)) for path in missing)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: the extra test-browser")
    from test_viewer_browser import CHROMIUM, DRIVER, FLAGS, Service

    if not CHROMIUM or not DRIVER:
        pytest.skip("needs chromium and chromedriver (Debian: chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in [*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


def wait(driver: Any, condition: str) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(driver, 60).until(lambda driver: driver.execute_script(f"return {condition}"))


@pytest.mark.browser
def test_search_finds_a_layer(site: Path, driver: Any) -> None:
    driver.get((site / "index.html").as_uri())
    box = driver.find_element("css selector", "input.sidebar-search")
    box.send_keys("pool2d\n")
    wait(driver, "document.querySelectorAll('#search-results li').length > 3")
    wait(driver, "/finished|found/i.test(document.querySelector('#search-results').textContent)")
    found = {link.text: link.get_attribute("href") for link in driver.find_elements("css selector", "#search-results li a")}
    assert any("fluid.layers.pool2d" in text for text in found), found
    (layer,) = [link for text, link in found.items() if text == "fluid.layers.pool2d"]
    driver.get(layer)
    assert driver.find_element("id", "fluid.layers.pool2d").text.startswith("fluid.layers.pool2d(")


PAGES = ("index.html", "tutorial/program.html", "how_to/own_op.html", "reference/layers.vision.html", "design.html", "speed.html",
         "notebooks/append_backward_from_scratch.html", "ops.html")  # fmt: skip


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 1400])
def test_pages_have_no_errors_and_fit_the_window(site: Path, driver: Any, width: int) -> None:
    """At the width of a phone, wide content (code, tables) scrolls by itself."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    )
    driver.get_log("browser")
    for page in PAGES:
        driver.get((site / page).as_uri())
        wait(driver, "document.readyState === 'complete'")
        widths = driver.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
        assert widths[0] <= width and widths[1] == width, f"{page} is {widths} wide in a window of {width}"
        pictures = driver.execute_script(
            "return [...document.images].filter((i) => i.complete && !i.naturalWidth).map((i) => i.src)"
        )
        assert not pictures, f"{page} lacks {pictures}"
    assert not [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]


@pytest.mark.browser
def test_navigation_of_the_sidebar(site: Path, driver: Any) -> None:
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    driver.get((site / "index.html").as_uri())
    links = driver.execute_script("return [...document.querySelectorAll('.sidebar-tree a.internal')].map((a) => a.href)")
    assert len(links) > 80
    for link in links[:12]:
        driver.get(link)
        assert driver.find_elements("css selector", "article h1"), link

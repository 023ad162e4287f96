"""The documentation site in a real browser: the search finds, pictures can be read on a phone, nothing is wider."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

ROOT = Path(__file__).resolve().parents[2]
PHONE = {"width": 390, "height": 844}
PAGES = ("index.html", "start.html", "concepts/families.html", "concepts/phases.html", "guide/cost.html",
         "reference/api.html", "reference/networks.html", "reference/commands.html")  # fmt: skip


def zensical() -> str | None:
    places = [ROOT / ".venv-site" / "bin", Path(sys.executable).parent]
    found = (shutil.which("zensical", path=str(place)) for place in places)
    return next(filter(None, found), None) or shutil.which("zensical")


pytestmark = pytest.mark.skipif(zensical() is None, reason="make site installs zensical")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format, *args):  # noqa: A002 - the name of the base class
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The site, built in a folder of its own and served as ``make site`` says."""
    import site_pages

    folder = tmp_path_factory.mktemp("site")
    site_pages.gather(folder / "build" / "pages")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    built = subprocess.run(
        [str(zensical()), "build", "--clean", "--strict"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder / "site")))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def opened(browser, url, scheme="light", **viewport):
    page = browser.new_page(viewport=viewport or {"width": 1280, "height": 900}, color_scheme=scheme)
    said = []
    # What a browser only notes (a fragment of the address wins over a field with the focus) is no fault of a page.
    page.on("console", lambda message: said.append(message.text) if message.type != "info" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url) if not request.url.startswith("http://127.") else None)
    page.goto(url)
    page.wait_for_load_state("networkidle")
    return page, said


def test_the_search_finds_a_page_when_the_site_is_served(browser, address, shots):
    page, said = opened(browser, address + "index.html")
    page.keyboard.press("Control+k")
    page.wait_for_timeout(300)
    page.keyboard.type("texture engine")
    page.wait_for_timeout(1500)
    page.screenshot(path=shots / "site-search.png")
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "index.html" not in url, timeout=10_000)
    assert "texture engine" in page.locator("article").inner_text().lower()
    assert not said
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_a_phone_and_loads_nothing_from_elsewhere(browser, address, shots, name, scheme):
    page, said = opened(browser, address + name, scheme, **PHONE)
    wide, screen = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    page.screenshot(path=shots / f"site-{name.replace('/', '-').removesuffix('.html')}-{scheme}.png")
    assert wide <= screen
    assert not said
    page.close()


@pytest.mark.parametrize("name", ["concepts/families.html", "concepts/phases.html", "start.html"])
def test_pictures_keep_their_size_on_a_phone_and_scroll(browser, address, name):
    page, _ = opened(browser, address + name, **PHONE)
    pictures = page.evaluate(
        "[...document.querySelectorAll('article img')].map(img => "
        "[img.getBoundingClientRect().width, img.parentElement.scrollWidth, img.parentElement.clientWidth, img.alt])"
    )
    assert pictures
    for width, inside, visible, words in pictures:
        assert width >= 600, words
        assert inside > visible, words
        assert words
    page.close()


def test_pictures_turn_dark_with_the_page(browser, address):
    """The lightness of a picture is turned round in the dark colours, so that no white sheet glares."""
    filters = {}
    for scheme in ("light", "dark"):
        page, _ = opened(browser, address + "concepts/phases.html", scheme)
        filters[scheme] = page.evaluate("getComputedStyle(document.querySelector('article img')).filter")
        page.close()
    assert filters["light"] == "none"
    assert filters["dark"].startswith("invert(")

"""The served page and the page of a sweep in a real browser (``make test-page``; the browser is a fixture there)."""

from __future__ import annotations

import shutil
import sys
import threading
from pathlib import Path

import pytest

from aneforge.files import write_whole
from aneforge.reports.serve import Server
from aneforge.reports.sweep import sweep
from aneforge.reports.sweep.summary import page as sweep_page

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
sys.path.append(str(ROOT / "tests"))  # jobs of the tests are functions of serve_kit


@pytest.fixture(scope="module")
def address():
    server = Server(port=0, target="m1,m5")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.url
    server.stop()
    thread.join()
    server.close()


@pytest.fixture
def opened(browser):
    """Opens an address; at the end of the test the console must have stayed silent, and no other server was asked."""
    contexts, said, elsewhere = [], [], []

    def open_page(url, scheme="light", width=1200, may_fail=False):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme))
        page = contexts[-1].new_page()
        if not may_fail:  # a browser writes failed requests to the console itself
            page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: elsewhere.extend(() if is_local(request.url) else [request.url]))
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not said
    assert not elsewhere


def is_local(url):
    return url.startswith(("file:", "data:", "blob:", "http://127.0.0.1:"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_dropped_model_becomes_a_report(opened, address, shots, scheme):
    page = opened(address, scheme)
    page.set_input_files("#file", EXAMPLES / "detector.onnx")
    page.wait_for_selector("#result:not([hidden])", timeout=60_000)
    report = page.frame_locator("#report")
    assert report.locator("h1").inner_text() == "detector.onnx"
    report.locator("nav a").nth(2).click()
    page.screenshot(path=shots / f"served-{scheme}.png")
    with page.context.expect_page() as tab:
        page.click("#open")
    tab.value.wait_for_selector("h1")
    assert tab.value.locator("h1").inner_text() == "detector.onnx"


def test_sizes_are_asked_for_on_the_page(opened, address, shots):
    page = opened(address)
    page.set_input_files("#file", EXAMPLES / "tiny_encoder.onnx")
    page.wait_for_selector("#sizes:not([hidden])", timeout=60_000)
    page.screenshot(path=shots / "served-sizes.png")
    assert page.locator("#sizes-list label").inner_text().strip() == "batch"
    page.fill("#sizes-list input", "2")
    page.click("#sizes button")
    page.wait_for_selector("#result:not([hidden])", timeout=60_000)
    assert "input_ids 2x16" in page.frame_locator("#report").locator("header").inner_text()


def test_a_folder_is_packed_here(opened, address, tmp_path):
    folder = tmp_path / "net"
    folder.mkdir()
    for name in ("convnet.plist", "convnet.weights.bin"):
        shutil.copy(EXAMPLES / name, folder)
    page = opened(address)
    page.set_input_files("#folder", folder)
    page.wait_for_selector("#result:not([hidden])", timeout=60_000)
    assert page.frame_locator("#report").locator("h1").inner_text() == "convnet.plist"


def test_an_example_chips_and_range_and_earlier_reports(opened, address, shots):
    page = opened(address)
    page.click("#example")
    page.wait_for_selector("#result:not([hidden])", timeout=60_000)
    report = page.frame_locator("#report")
    assert report.locator("#chips tbody th a").all_inner_texts() == ["M1", "M5"]
    page.fill("#target", "m3")
    page.fill("#max-abs", "4")
    page.click("#again")
    page.wait_for_selector("#result[hidden]", state="attached")
    page.wait_for_selector("#result:not([hidden])", timeout=60_000)
    assert report.locator("#chips tbody th a").all_inner_texts() == ["M3"]
    page.reload()
    page.wait_for_selector("#earlier:not([hidden])")
    assert page.locator("#earlier-list button").all_inner_texts()[:2] == ["example.aneforge"] * 2
    page.screenshot(path=shots / "served-earlier.png")
    page.locator("#earlier-list button").nth(1).click()
    page.wait_for_selector("#result:not([hidden])")
    assert report.locator("#chips tbody th a").all_inner_texts() == ["M1", "M5"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_axe_finds_nothing_on_the_first_page(opened, address, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = opened(address, scheme, width)
    assert [one["id"] for one in axe.Axe().run(page).response["violations"]] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_file_that_is_dropped_on_the_page_is_sent(opened, address):
    page = opened(address)
    page.evaluate(
        """() => {
          const data = new DataTransfer();
          data.items.add(new File(["hello"], "bad.onnx"));
          document.dispatchEvent(new DragEvent("drop", { dataTransfer: data, cancelable: true }));
        }"""
    )
    page.wait_for_selector("#error:not([hidden])", timeout=60_000)
    assert page.inner_text("#error").startswith("bad.onnx: not an ONNX model")
    page.set_input_files("#file", EXAMPLES / "detector.onnx")  # and the next one is taken
    page.wait_for_selector("#result:not([hidden])", timeout=60_000)
    assert page.is_hidden("#error")


def test_the_page_is_used_by_keyboard_and_on_a_phone(opened, address, shots):
    page = opened(address, width=390)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "file"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.screenshot(path=shots / "served-phone.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_state_of_the_page_fits_a_phone_and_can_be_read(opened, address, shots, scheme, monkeypatch):
    page = opened(address, scheme, 390)

    def look(state):
        page.screenshot(path=shots / f"served-{state}-{scheme}.png")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, state
        assert page.evaluate(CONTRAST) == [], state

    look("idle")
    monkeypatch.setattr("aneforge.reports.serve.jobs.FUNCTION", "serve_kit:sleep")
    page.set_input_files("#file", EXAMPLES / "detector.onnx")
    page.get_by_text("detector.onnx: sleeping").wait_for()
    assert page.locator("#bar").evaluate("bar => [bar.value, bar.max]") == [3, 8]
    assert page.evaluate("document.activeElement.id") == "cancel"
    look("working")
    page.keyboard.press("Enter")
    assert page.is_hidden("#work")
    assert page.evaluate("document.activeElement.id") == "file"
    monkeypatch.undo()
    page.set_input_files("#file", {"name": "bad.onnx", "mimeType": "application/octet-stream", "buffer": b"hello"})
    page.wait_for_selector("#error:not([hidden])", timeout=60_000)
    look("error")
    page.set_input_files("#file", EXAMPLES / "detector.onnx")
    page.wait_for_selector("#result:not([hidden])", timeout=60_000)
    assert page.is_hidden("#work")
    assert page.locator("#report").bounding_box()["y"] < 300  # the report has most of the room
    look("report")


def test_an_upload_has_a_bar(opened, address):
    page = opened(address)
    page.context.new_cdp_session(page).send(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 200_000},
    )
    page.set_input_files(
        "#file", {"name": "large.onnx", "mimeType": "application/octet-stream", "buffer": bytes(2_000_000)}
    )
    page.get_by_text("sending large.onnx").wait_for()
    sent = 0  # the page's own policy forbids what wait_for_function does
    while not 0 < sent < 2_000_000:
        assert page.is_visible("#work")
        page.wait_for_timeout(20)
        sent = page.evaluate("document.getElementById('bar').value")
    page.click("#cancel")
    assert page.is_hidden("#work")


def test_a_server_that_has_ended_is_told(opened):
    server = Server(port=0, target="m1")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    page = opened(server.url, may_fail=True)
    server.stop()
    thread.join()
    server.close()
    page.set_input_files("#file", EXAMPLES / "detector.onnx")
    page.wait_for_selector("#error:not([hidden])", timeout=60_000)
    assert page.inner_text("#error") == "The server cannot be reached. Is it still running?"


# The page of a sweep.


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """The address of a page of three models, one of them bad, on three chips."""
    folder = tmp_path_factory.mktemp("sweep")
    names = ["detector.onnx", "convnet.plist", "bad.onnx"]  # in one folder: models are named by their path
    for name in ("detector.onnx", "convnet.plist", "convnet.weights.bin"):
        shutil.copy(EXAMPLES / name, folder / name)
    (folder / "bad.onnx").write_text("hello")
    done = sweep([folder / name for name in names], "m1,m2,m5", folder / "out")
    write_whole(folder / "page.html", sweep_page(done.table))
    return (folder / "page.html").as_uri()


def models(page):
    return [name.rpartition("/")[2] for name in page.locator("#matrix tbody th").all_inner_texts()]


def test_the_page_of_a_sweep_is_filtered(opened, swept, shots):
    page = opened(swept)
    rows = page.locator("#matrix tbody tr")
    assert rows.count() == 3
    page.fill("#find", "detector")
    assert models(page) == ["detector.onnx"]
    assert rows.locator("td.part").count() == 1
    assert rows.locator("td.part").inner_text().startswith("◐")  # not by colour alone
    assert rows.locator("td.wrong").inner_text().startswith("! ")
    page.fill("#find", "")
    page.select_option("#show", "failed")
    assert "not an ONNX model" in rows.inner_text()
    page.select_option("#show", "notwhole")
    assert models(page) == ["detector.onnx", "bad.onnx"]
    assert page.inner_text("#count") == "2 of 3 models"
    heads = page.locator("table:not(#matrix) thead th").all_inner_texts()
    assert heads[3] == "wrong numbers"
    assert page.locator("table:not(#matrix) tbody tr").first.locator("th, td").count() == len(heads)
    assert page.locator("#matrix").bounding_box()["y"] < page.locator("table:not(#matrix)").bounding_box()["y"]


def test_the_page_of_a_sweep_is_ordered(opened, swept):
    page = opened(swept)
    assert models(page) == ["detector.onnx", "convnet.plist", "bad.onnx"]
    page.select_option("#order", "ops")
    assert models(page)[0] == "detector.onnx"
    head = page.locator("[data-sort='2']")  # the last chip
    head.click()
    assert models(page) == ["convnet.plist", "detector.onnx", "bad.onnx"]  # the one without a time is last
    assert page.locator("#matrix th[aria-sort]").get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Enter")  # the head has kept the focus
    assert models(page) == ["detector.onnx", "convnet.plist", "bad.onnx"]
    assert page.locator("#matrix th[aria-sort]").get_attribute("aria-sort") == "descending"
    page.select_option("#order", "name")
    assert models(page) == sorted(models(page))


def test_a_cell_of_a_sweep_tells_its_details_by_mouse_and_by_keyboard(opened, swept):
    page = opened(swept)
    page.locator("#matrix td.part").click()
    detail = page.locator("#detail")
    assert "detector.onnx on M1: in part; 21 of 22 operations on the engine" in detail.inner_text()
    page.keyboard.press("ArrowRight")
    assert "detector.onnx on M2: numbers can be wrong; 22 of 22" in detail.inner_text()
    page.keyboard.press("ArrowRight")
    assert "detector.onnx on M5: yes; 22 of 22" in detail.inner_text()
    page.keyboard.press("ArrowDown")
    assert "convnet.plist on M5: yes" in detail.inner_text()
    page.keyboard.press("Home")
    assert "convnet.plist on M1: yes" in detail.inner_text()
    page.keyboard.press("ArrowDown")
    assert "not an ONNX model" in detail.inner_text()
    page.keyboard.press("ArrowUp")
    assert page.locator("#matrix td[tabindex='0']").count() == 1  # one stop for the Tab key


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1300])
def test_the_page_of_a_sweep_can_be_read_everywhere(opened, swept, shots, scheme, width):
    page = opened(swept, scheme, width)
    page.locator("#matrix td.part").click()
    assert page.evaluate(CONTRAST) == []
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    assert [one["id"] for one in axe.Axe().run(page).response["violations"]] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("a").count() == 0  # it links to nothing
    page.screenshot(path=shots / f"sweep-{scheme}-{width}.png", full_page=True)
    name = page.locator("#matrix tbody th").first.bounding_box()
    assert name["x"] + name["width"] < 0.6 * width  # there is room for times beside the names

"""The served page and the page of a sweep in a real browser (``make test-page``; the browser is a fixture there)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from aneforge.output.files import write_whole
from aneforge.serve import Server
from aneforge.sweep import sweep
from aneforge.sweep.page import page as sweep_page

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


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
    """Opens an address; at the end of the test the console must have stayed silent."""
    contexts, said = [], []

    def open_page(url, scheme="light", width=1200):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme))
        page = contexts[-1].new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not said


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


def test_the_page_of_a_sweep_is_filtered_and_ordered(opened, shots, tmp_path):
    bad = tmp_path / "bad.onnx"
    bad.write_text("hello")
    done = sweep([EXAMPLES / "detector.onnx", EXAMPLES / "convnet.plist", bad], "m1,m5", tmp_path / "out")
    write_whole(tmp_path / "page.html", sweep_page(done.table))
    page = opened((tmp_path / "page.html").as_uri())
    rows = page.locator("#matrix tbody tr")
    assert rows.count() == 3
    page.fill("#find", "detector")
    assert rows.count() == 1
    assert rows.locator("td.part").count() == 1
    page.fill("#find", "")
    page.select_option("#show", "failed")
    assert "not an ONNX model" in rows.inner_text()
    page.select_option("#show", "all")
    page.select_option("#order", "ops")
    assert rows.first.locator("th").inner_text().endswith("detector.onnx")
    page.screenshot(path=shots / "sweep.png")

"""What the tests of the page share: a browser, pages of reports, and a folder for the pictures.

They need Playwright's Python client and a Chromium: ``make test-page`` installs the first and says how to get the
second. Pictures are kept in ``.page-shots`` (or in the folder that ANEFORGE_SHOTS names), for somebody to look at.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[2]
DETECTOR = HERE / "examples" / "detector.onnx"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOW = "Install Debian's package (apt-get install chromium), or name a Chromium in ANEFORGE_CHROMIUM."


def browser_path() -> str:
    named = os.environ.get("ANEFORGE_CHROMIUM")
    found = named if named and Path(named).exists() else next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.exit(f"no browser: {', '.join(BROWSERS)} are not on the path. {HOW}", returncode=2)
    return found


@pytest.fixture(scope="session")
def browser():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.exit("no Playwright: run pip install 'aneforge-compiler[page]'", returncode=2)
    path = browser_path()
    with sync_playwright() as playwright:
        # A container's root has no sandbox of its own; the pages are our own files.
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def shots():
    folder = Path(os.environ.get("ANEFORGE_SHOTS") or HERE / ".page-shots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def reports(tmp_path_factory):
    """The pages: the detector as it is without options, with what a Mac could say, and two versions of it compared."""
    import aneforge as af
    from aneforge.reports.against import compare_reports
    from aneforge.reports.gather import report
    from aneforge.study.plan import compute_plan

    folder = tmp_path_factory.mktemp("pages")
    told = report(DETECTOR, "macs,phones", max_abs=100.0, measured=(compute_plan(DETECTOR, "m1"), "plan.json", "m1"))
    told.save(folder / "report.html")
    report(af.input((1, 8, 4, 4), name="x"), "macs,phones", changes=0).save(folder / "empty.html")
    compare_reports(report(DETECTOR, "m1"), report(DETECTOR, "m5")).save(folder / "against.html")
    encoder = report(HERE / "examples" / "tiny_encoder.onnx", "macs,phones", dims={"batch": 1})
    encoder.save(folder / "encoder.html")
    report(HERE / "examples" / "attention.plist", "m1,h12,h11").save(folder / "attention.html")
    report(HERE / "examples" / "convnet.plist", "macs,phones").save(folder / "convnet.html")
    report(DETECTOR, "macs,phones").save(folder / "unbounded.html")
    shutil.copy(DETECTOR, folder / "it's $(rm -r x).onnx")
    report(folder / "it's $(rm -r x).onnx", "m1", changes=0).save(folder / "strange.html")
    beside = af.topk(af.input((1, 8, 16, 16), name="x").reshape(8, 256), 5).named("best")
    report((beside.relu() * 2).named("after"), "m1,m5", changes=0).save(folder / "beside.html")
    return folder, told


class Opened:
    """A page with what its console said."""

    def __init__(self, page, url):
        self.page, self.said = page, []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.asked(request.url))
        self.requests = []
        page.goto(url)
        page.wait_for_selector("html[data-ready]", timeout=30_000)

    def asked(self, url):
        if not url.startswith(("file:", "data:", "blob:")):
            self.requests.append(url)


@pytest.fixture
def opened(browser, reports):
    """Opens a page; at the end of the test its console must have stayed silent and its network unused."""
    folder, _ = reports
    pages = []

    def open_page(name="report.html", width=1300, height=900, scheme="light", **options):
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, accept_downloads=True, **options
        )
        name, _, anchor = name.partition("#")
        url = (folder / name).as_uri() + (f"#{anchor}" if anchor else "")
        one = Opened(context.new_page(), url)
        pages.append((context, one))
        return one.page

    yield open_page
    for context, one in pages:
        context.close()
        assert one.said == []
        assert one.requests == []

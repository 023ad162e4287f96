"""Take the pictures of the report's page that README and docs/start.md show, in docs/pictures: ``make pictures``.

Needs Playwright's client and a Chromium, as ``make test-page`` does. Run it after a change of the page, look at the
pictures, and commit them. ``python tools/screenshots.py FOLDER`` writes them elsewhere.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import aneforge as af
from aneforge.reports import report

__all__ = ["PICTURES", "SHOTS", "Shot", "take"]

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
MODEL, CHIPS = ROOT / "examples" / "detector.onnx", "m1..m6"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@dataclass(frozen=True)
class Shot:
    """A picture of a part of the page: a section, or the top of the page; ``before`` is a script that runs first."""

    section: str = ""
    width: int = 1000
    height: int = 690
    before: str = ""


SHOTS = {
    "report.png": Shot(width=1180, height=900),
    "report-why.png": Shot(section="why", before="document.querySelector('#why details').open = true"),
    "report-program.png": Shot(section="placed", width=1200),
}
"""The pictures by file name."""


class PictureError(Exception):
    """What is missing to take pictures."""


def take(folder: Path) -> list[Path]:
    """Write a report of the example, open it and take every picture; the files written."""
    try:
        from playwright.sync_api import sync_playwright  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise PictureError("Playwright is not installed: run pip install '.[page]'") from None
    browser = os.environ.get("ANEFORGE_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise PictureError("no Chromium on the path: run apt-get install chromium, or set ANEFORGE_CHROMIUM")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        page_file = Path(name) / "report.html"
        report(MODEL, CHIPS).save(page_file)
        opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        for file, shot in SHOTS.items():
            page = opened.new_page(viewport={"width": shot.width, "height": shot.height}, color_scheme="light")
            page.goto(page_file.as_uri())
            page.wait_for_selector("html[data-ready]")
            if shot.section:  # the bar that stays in view would lie over the picture
                page.evaluate("document.getElementById('choose').style.position = 'static'")
            if shot.before:
                page.evaluate(shot.before)
            (page.locator(f"#{shot.section}") if shot.section else page).screenshot(path=folder / file)
            page.close()
        opened.close()
    return [folder / file for file in SHOTS]


def main(arguments: list[str]) -> int:
    try:
        files = take(Path(arguments[0]) if arguments else PICTURES)
    except (PictureError, af.AneforgeError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"wrote {', '.join(map(str, files))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

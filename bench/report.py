"""Speed and size of reports. Asserts no times.

Run with ``make bench`` or ``python bench/report.py [--json] [MODEL]``: a ResNet-50 written with ops (or MODEL) on each
engine of a Mac or a phone, and a graph of 20,000 operations on all 28 targets, with the time until the page can be
used (where Playwright and a Chromium are installed). Seconds are those of the processor.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from networks import resnet50, synthetic

from aneforge.formats.arguments import Source
from aneforge.reports.gather import report

MANY = 20_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def ready_ms(page: Path) -> float | None:
    """Milliseconds from opening the page until it can be used; None without a browser."""
    browser = os.environ.get("ANEFORGE_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    try:
        from playwright.sync_api import sync_playwright  # type: ignore[import-not-found]
    except ImportError:
        return None
    if browser is None:
        return None
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        tab = opened.new_page()
        tab.goto(page.as_uri(), wait_until="commit")
        tab.wait_for_selector("html[data-ready]", timeout=120_000)
        taken = tab.evaluate("performance.now()")
        opened.close()
    return float(taken)


def measured(model: Source, chips: str, changes: int) -> dict[str, Any]:
    """Seconds to gather and to write, the size of the page, and the time until it can be used."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        told = report(model, chips, changes=changes)
        gathered = time.process_time()
        (page,) = told.save(Path(folder) / "report.html")
        written = time.process_time()
        return {
            "operations": len(told.ops),
            "chips": len(told.chips),
            "gather_s": round(gathered - start, 2),
            "write_s": round(written - gathered, 2),
            "page_kb": round(page.stat().st_size / 1024),
            "ready_ms": ready_ms(page),
        }


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--json"]
    first: Source = words[0] if words else resnet50()
    figures = {
        words[0] if words else "resnet50": measured(first, "macs,phones", 3),
        "20,000": measured(synthetic(MANY), "all", 0),
    }
    if "--json" in sys.argv:
        print(json.dumps(figures))
        return
    for name, row in figures.items():
        ready = "no browser" if row["ready_ms"] is None else f"usable after {row['ready_ms']:.0f} ms"
        print(
            f"report {name:10} {row['operations']:6,} ops on {row['chips']} chips: {row['gather_s']:.1f} s of the "
            f"processor, page written in {row['write_s']:.2f} s, {row['page_kb']:,} KB, {ready}"
        )


if __name__ == "__main__":
    main()

"""Speed and size of reports. Asserts no times.

Run with ``make bench`` or ``python bench/report.py [--json] [MODEL]``: a ResNet-50 written with ops (or MODEL) on all
28 targets, the page's time until it can be used (where Playwright and a Chromium are installed), and the same for a
graph of 20,000 operations.
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


def measured(model: Source, changes: int) -> dict[str, Any]:
    """Seconds to gather and to write, the size of the page, and the time until it can be used."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        told = report(model, "all", changes=changes)
        gathered = time.perf_counter()
        (page,) = told.save(Path(folder) / "report.html")
        written = time.perf_counter()
        return {
            "operations": len(told.ops),
            "gather_s": round(gathered - start, 2),
            "write_s": round(written - gathered, 2),
            "page_kb": round(page.stat().st_size / 1024),
            "ready_ms": ready_ms(page),
        }


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--json"]
    first: Source = words[0] if words else resnet50()
    figures = {"resnet50" if not words else words[0]: measured(first, 3), "20,000": measured(synthetic(MANY), 0)}
    if "--json" in sys.argv:
        print(json.dumps(figures))
        return
    for name, row in figures.items():
        ready = "no browser" if row["ready_ms"] is None else f"usable after {row['ready_ms']:.0f} ms"
        print(
            f"report {name:10} {row['operations']:6,} ops on 28 targets: {row['gather_s']:.1f} s, page written in "
            f"{row['write_s']:.2f} s, {row['page_kb']:,} KB, {ready}"
        )


if __name__ == "__main__":
    main()

"""Write the reports that docs/gallery.md names into the pages of the site, for ``make site``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from aneforge.files import write_whole
from aneforge.reports import report

__all__ = ["ROW", "write"]

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "pages"
ROW = re.compile(
    r"^\| (?P<title>[^|]+) (?P<rest>\|[^|]+\| "
    r"`aneforge report (?P<model>\S+)(?: --dim (?P<dim>\w+)=(?P<size>\d+))?` \|)$",
    re.MULTILINE,
)
"""A row of the page: the title of a model, and the command of its report."""


def write(pages: Path) -> list[Path]:
    """Write a report for each row of the gallery's page, and link the row to it."""
    page = pages / "gallery.md"
    files: list[Path] = []

    def linked(row: re.Match[str]) -> str:
        dims = {row["dim"]: int(row["size"])} if row["dim"] else None
        file = pages / "gallery" / f"{Path(row['model']).stem}.html"
        file.parent.mkdir(exist_ok=True)
        report(ROOT / row["model"], "macs,phones", dims=dims).save(file)
        files.append(file)
        return f'| <a href="gallery/{file.name}">{row["title"].strip()}</a> {row["rest"]}'

    text = page.read_text(encoding="utf-8")
    write_whole(page, ROW.sub(linked, text))
    return files


if __name__ == "__main__":
    written = write(Path(sys.argv[1]) if sys.argv[1:] else PAGES)
    print(f"{len(written)} reports in the gallery")

"""``aneforge report``: one model on many chips as a page, as Markdown or as values."""

from __future__ import annotations

import sys
from pathlib import Path

from aneforge.cli import say
from aneforge.cli.model_file import ModelFile
from aneforge.errors import AneforgeError
from aneforge.report.document import FORMATS
from aneforge.report.gather import report

__all__ = ["run"]


def run(
    model: str | ModelFile,
    chips: str,
    out: str | None,
    format_name: str | None,
    scope: str,
    changes: int,
    max_abs: float | None,
) -> None:
    """Write the report, or print it where it is text and no file is named."""
    file = ModelFile.of(model)
    if format_name is not None and format_name not in FORMATS.values():
        raise AneforgeError(f"--format: {format_name!r} is not a format. Choose one: {', '.join(FORMATS.values())}.")
    place = Path(out) if out is not None else None
    kind = format_name or (FORMATS.get(place.suffix.casefold()) if place is not None else "md")
    if place is None and kind == "html":
        place = Path(f"{Path(str(file.path)).stem}.html")
    if place is not None:
        _require_place(place, kind)
    gathered = report(
        file.path, chips, scope, changes, max_abs, progress=lambda what: say.progress(f"{what} ..."), **file.options
    )
    say.progress("")
    if place is None:
        (content,) = list(gathered.written(kind or "md", Path("report.md")).values())[:1]
        sys.stdout.write(content if isinstance(content, str) else content.decode())
        return
    written = gathered.save(place, kind)
    say.note(f"wrote {', '.join(str(path) for path in written)}")


def _require_place(place: Path, kind: str | None) -> None:
    """Refuse what cannot be written before the work, not after it."""
    if place.is_dir():
        raise AneforgeError(f"--out {place}: a folder; give the name of a file, as {place / 'report.html'}")
    if kind is None:
        known = ", ".join(FORMATS)
        raise AneforgeError(f"--out {place}: {place.suffix!r} is not a format. End it in {known}, or give --format.")
    if not place.parent.is_dir():
        raise AneforgeError(f"--out {place}: folder {place.parent} does not exist; create it first")

"""``aneforge report``: one model on many chips as a page, as Markdown or as values; or two of them compared."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from aneforge.cli import say
from aneforge.cli.notes import working
from aneforge.cli.options import ModelFile, require_file
from aneforge.errors import AneforgeError
from aneforge.progress import Progress
from aneforge.reports import against
from aneforge.reports.document import FORMATS, Report, format_of
from aneforge.reports.evaluation.section import read_summary
from aneforge.reports.gather import Measured, report
from aneforge.reports.saved import is_saved_report, read_report
from aneforge.study.plan_files import read_plan

_BINARY = ("html", "onnx")  # what nobody wants on a terminal gets a name of its own


@dataclass(frozen=True)
class ReportOptions:
    """What the command was asked for besides the model."""

    chips: str
    out: str | None = None
    format_name: str | None = None
    scope: str | None = None
    changes: int = 3
    max_abs: float | None = None
    measured: str | None = None
    evaluation: str | None = None
    against: str | None = None
    against_target: str | None = None

    @property
    def compares(self) -> bool:
        return self.against is not None or self.against_target is not None


def run(model: str | ModelFile, options: ReportOptions) -> None:
    """Write the report or the comparison, or print it where it is text and no file is named."""
    file = ModelFile.of(model)
    kind, place = _wanted(file, options)
    with working(f"reading {file.name}") as progress:
        if options.compares:
            result = _comparison(file, options, progress)
            text = None if place is not None else result.written(kind)
        else:
            result = _one(file, options, options.chips, progress)
            text = None if place is not None else next(iter(result.written(kind, Path("report.md")).values()))
    if place is None:
        assert isinstance(text, str)
        sys.stdout.write(text)
        return
    written = result.save(place, kind)
    say.note(f"wrote {', '.join(str(path) for path in written)}")


def _wanted(file: ModelFile, options: ReportOptions) -> tuple[str, Path | None]:
    """The format and the file, refused before the work where they cannot be had."""
    known = list(against.FORMATS if options.compares else FORMATS.values())
    if options.format_name is not None and options.format_name not in known:
        raise AneforgeError(f"--format: {options.format_name!r} is not a format here. Choose one: {', '.join(known)}.")
    place = Path(options.out) if options.out is not None else None
    kind = options.format_name or (format_of(place) if place is not None else "md")
    if place is not None:
        _require_place(place, kind, file)
    if kind is None or kind not in known:
        raise AneforgeError(f"--out {place}: not a format here. Give --format, one of: {', '.join(known)}.")
    if place is None and kind in _BINARY:
        stem = Path(str(file.path)).stem
        place = Path(f"{stem}.html" if kind == "html" else f"{stem}.annotated.onnx")
        _require_place(place, kind, file)
    return kind, place


def _require_place(place: Path, kind: str | None, file: ModelFile) -> None:
    """Refuse what cannot be written before the work, not after it."""
    require_file(place)
    if kind is None:
        known = ", ".join(FORMATS)
        raise AneforgeError(f"--out {place}: {place.suffix!r} is not a format. End it in {known}, or give --format.")
    if place.exists() and Path(file.path).exists() and place.samefile(file.path):
        raise AneforgeError(f"--out {place}: this is the model itself; give another name")


def _one(
    file: ModelFile, options: ReportOptions, chips: str, progress: Progress | None, path: str | None = None
) -> Report:
    """The report of a model, or one that was saved."""
    source = path or file.path
    if is_saved_report(source):
        return read_report(source)
    return report(
        source,
        chips,
        options.scope,
        options.changes,
        options.max_abs,
        _measured(options.measured),
        None if options.evaluation is None else read_summary(options.evaluation),
        progress=progress,
        **file.options,
    )


def _measured(asked: str | None) -> Measured | None:
    """``FILE``, or ``CHIP=FILE`` where the file does not name its chip."""
    if asked is None:
        return None
    chip, _, path = asked.rpartition("=")
    if chip and Path(asked).exists():
        chip, path = "", asked
    return read_plan(path), Path(path).name, chip or None


def _comparison(file: ModelFile, options: ReportOptions, progress: Progress | None) -> against.ReportComparison:
    if options.measured is not None:
        raise AneforgeError("--measured goes with one report, --compare compares two; choose one")
    before = _one(file, options, options.chips, progress)
    after = _one(file, options, options.against_target or options.chips, progress, options.against)
    return against.compare_reports(before, after)

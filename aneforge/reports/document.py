"""A report: one model on many chips, as rows. Every format is written from it, and it is written by its suffix."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aneforge import text
from aneforge.chips.assumed import fact_label
from aneforge.compiler.passes import PASSES
from aneforge.cost.estimate import Estimate
from aneforge.errors import AneforgeError
from aneforge.files import written_file
from aneforge.frames import Tabular
from aneforge.reports.rows import (
    ChangeRow,
    ChipRow,
    DivergenceRow,
    FindingRow,
    MeasuredTable,
    OpRow,
    ProgramRow,
    RiskRow,
    StoredRow,
)
from aneforge.version import __version__

SCHEMA = 2
FORMATS = {
    ".html": "html",
    ".md": "md",
    ".csv": "csv",
    ".json": "json",
    ".trace.json": "perfetto",
    ".onnx": "onnx",
    ".sarif": "sarif",
}
"""What a file is by its suffix; ``--format`` says it otherwise."""


def format_of(path: str | Path) -> str | None:
    """The format that the name of a file asks for; of two suffixes that fit, the longer one."""
    name = Path(path).name.casefold()
    fitting = [suffix for suffix in FORMATS if name.endswith(suffix)]
    return FORMATS[max(fitting, key=len)] if fitting else None


@dataclass(frozen=True)
class Report(Tabular):
    """Rows of everything that is known of a model on the chips that were asked for."""

    model: Mapping[str, Any]
    scope: str
    chips: tuple[ChipRow, ...]
    ops: tuple[OpRow, ...]
    findings: tuple[FindingRow, ...]
    programs: tuple[ProgramRow, ...]
    changes: tuple[ChangeRow, ...]
    risks: tuple[RiskRow, ...]
    risk_chips: tuple[str, ...] = ()
    """The chips that the risks were worked out for: one of each arithmetic."""
    doubts: tuple[str, ...] = ()
    max_abs: float | None = None
    divergences: tuple[DivergenceRow, ...] = ()
    divergence_note: str = ""
    """Which chips were compared, or why none were."""
    measured: MeasuredTable | None = None
    accuracy: Mapping[str, Any] | None = None
    """The figures of an evaluation on a data set, where there are some."""
    stored: tuple[StoredRow, ...] = ()
    """What other forms of the weights would make of it."""
    stored_note: str = ""
    """Which forms were left out."""
    estimates: Mapping[str, Estimate] = field(default_factory=dict, repr=False, compare=False)
    """The estimates behind the rows, which drawings are made from; a report that was read back has none."""
    version: str = __version__
    """The aneforge that gathered it."""
    source: Path | None = field(default=None, repr=False)
    """The file that the model was read from; never written into a report."""

    @property
    def ok(self) -> bool:
        """Whether every chip takes the whole model and gives the right numbers."""
        return all(chip.grade == "yes" for chip in self.chips)

    @property
    def reasons(self) -> list[list[int]]:
        """The findings by rule and chips, in the order of the gravest of each: fifty shapes that one rule refuses are
        one reason."""
        alike: dict[tuple[object, ...], list[int]] = {}
        for place, row in enumerate(self.findings):
            alike.setdefault((row.grade, row.rule or row.id, row.chips), []).append(place)
        return list(alike.values())

    def records(self) -> list[dict[str, Any]]:
        """A row for each chip: verdict, time and memory."""
        names = ("label", "verdict", "likely", "ops", "engine_ops", "us", "engine_us", "energy_mj", "memory_bytes")
        return [{name: getattr(chip, name) for name in names} for chip in self.chips]

    def _repr_html_(self) -> str:
        """The page of the report in a frame of its own, so that its styles and the notebook's stay apart."""
        from html import escape

        from aneforge.reports.html import page

        source = escape(page(self), quote=True)
        title = escape(f"report of {self.model.get('name', 'a model')}", quote=True)
        return f'<iframe title="{title}" srcdoc="{source}" style="width:100%;height:720px;border:0"></iframe>'

    def save(self, path: str | Path, format: str | None = None) -> list[Path]:  # noqa: A002 - the option's name
        """Write the report, whole or not at all, in the format of the suffix or of ``format``; the files written. A
        table of values comes with one of the layers beside it."""
        file = Path(path)
        kind = format or format_of(file)
        if kind is None or kind not in FORMATS.values():
            known = ", ".join(FORMATS.values())
            raise AneforgeError(f"{path}: {format or file.suffix or 'no suffix'}: not a format. Choose one: {known}.")
        contents = self.written(kind, file)
        with ExitStack() as staged:  # all of them take their places, or none
            for place, content in contents.items():
                data = content.encode("utf-8") if isinstance(content, str) else content
                staged.enter_context(written_file(place)).write(data)
        return list(contents)

    def written(self, kind: str, file: Path) -> Mapping[Path, str | bytes]:
        """The content of each file of a format, by its name."""
        from aneforge.reports import annotated, html, markdown, sarif, tables, trace

        if kind == "html":
            return {file: html.page(self)}
        if kind == "md":
            return {file: markdown.markdown(self)}
        if kind == "csv":
            files = {file: tables.summary_csv(self), file.with_suffix(".layers.csv"): tables.layers_csv(self)}
            if self.measured is not None:
                files[file.with_suffix(".measured.csv")] = tables.measured_csv(self)
            return files
        if kind == "perfetto":
            return {file: trace.trace_json(self)}
        if kind == "sarif":
            return {file: sarif.sarif_text(self)}
        if kind == "onnx":
            return {file: annotated.annotated_onnx(self)}
        return {file: f"{text.as_json(self.to_json())}\n"}

    def to_json(self) -> dict[str, Any]:
        used = {step.pass_ for program in self.programs for step in program.steps}
        return {
            "schema": SCHEMA,
            "aneforge": self.version,
            "model": dict(self.model),
            "scope": self.scope,
            "ok": self.ok,
            "max_abs": self.max_abs,
            "chips": [row.to_json() for row in self.chips],
            "ops": [row.to_json() for row in self.ops],
            "findings": [row.to_json() for row in self.findings],
            "reasons": self.reasons,
            "programs": [row.to_json() for row in self.programs],
            "changes": [row.to_json() for row in self.changes],
            "risks": [row.to_json() for row in self.risks],
            "risk_chips": list(self.risk_chips),
            "doubts": list(self.doubts),
            "divergences": [row.to_json() for row in self.divergences],
            "divergence_note": self.divergence_note,
            "measured": None if self.measured is None else self.measured.to_json(),
            "accuracy": None if self.accuracy is None else dict(self.accuracy),
            "stored": [row.to_json() for row in self.stored],
            "stored_note": self.stored_note,
            "passes": {
                name: {"purpose": known.purpose, "reads": [fact_label(key) for key in known.reads]}
                for name, known in PASSES.items()
                if name in used
            },
        }

"""A model at every shape that its file allows: a check, a partition or an estimate for each, and where inside a range
the answer of a chip changes.

Graphs of one file share their weights and their answers (:class:`aneforge.study.answers.Answers`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

from aneforge import text
from aneforge.chips import store
from aneforge.chips.evidence import Fact, fact
from aneforge.chips.names import chip_labels
from aneforge.formats.arguments import Chips, graph_of
from aneforge.formats.shapes import DEFAULT, Asked, FlexibleShapes, ShapePoint, shapes_of
from aneforge.study.checking import Check, Paint
from aneforge.study.outcomes import FAIL_ON
from aneforge.study.study import Study
from aneforge.text import wrapped

_RULE = "flexible-input"


@dataclass(frozen=True)
class Boundary:
    """Where inside a range the answer of some chips changes: the last size with the first answer."""

    name: str
    last: int
    verdict: str
    then: str
    chips: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{chip_labels(self.chips)}: {self.verdict} up to {self.name}={self.last}, then {self.then} "
            f"from {self.name}={self.last + 1}"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "dim": self.name, "last": self.last, "verdict": self.verdict, "then": self.then, "chips": list(self.chips)
        }  # fmt: skip


class ShapedStudies:
    """The studies of one model file at the shapes that were asked for."""

    def __init__(
        self,
        path: str | Path,
        shapes: FlexibleShapes,
        target: Chips,
        asked: Asked,
        function: str | None,
        **options: Any,
    ) -> None:
        self.path, self.shapes, self.asked, self.function = path, shapes, asked, function
        self.points = shapes.points(asked)
        self._known: dict[tuple[Any, ...], Study] = {}
        self._first = Study(self._graph(self.points[0].sizes), target, **options)
        self._first.model = str(path)
        self._known[tuple(self.points[0].sizes.items())] = self._first

    def _graph(self, sizes: Mapping[str, int]) -> Any:
        return graph_of(str(self.path), dict(sizes), self.function)

    def at(self, sizes: Mapping[str, int]) -> Study:
        """The study at some sizes."""
        key = tuple(sizes.items())
        if key not in self._known:
            study = self._known[key] = self._first.with_graph(self._graph(sizes))
            study.model = str(self.path)
        return self._known[key]

    def __iter__(self) -> Iterator[tuple[ShapePoint, Study]]:
        for point in self.points:
            yield point, self.at(point.sizes)

    # Limits inside a range.

    def boundaries(self) -> list[Boundary]:
        """For the one dimension that varies between two points of a range: the last size with the first answer. The
        answer is taken to change once."""
        ends = [point.sizes for point in self.points if point.role in ("smallest", "largest")]
        if len(ends) != 2:
            return []
        least, most = ends
        varied = [name for name in most if least[name] != most[name]]
        if len(varied) != 1:
            return []
        by_change: dict[tuple[int, str, str], list[str]] = {}
        for chip in self._first.chips:
            first, last = self._word(least, chip), self._word(most, chip)
            if first != last:
                size = self._last_like(least, varied[0], most[varied[0]], chip, first)
                by_change.setdefault((size, first, last), []).append(chip)
        return [Boundary(varied[0], size, first, then, tuple(on)) for (size, first, then), on in by_change.items()]

    def _word(self, sizes: Mapping[str, int], chip: str) -> str:
        return self.at(sizes).judged()[chip].outcome.kind

    def _last_like(self, least: Mapping[str, int], name: str, high: int, chip: str, word: str) -> int:
        low = least[name]

        def is_alike(size: int) -> bool:
            return self._word({**least, name: size}, chip) == word

        for guess in self._limits({**least, name: high}, chip, high):
            for size in (guess, guess + 1):
                if low < size < high:
                    low, high = (size, high) if is_alike(size) else (low, size)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if is_alike(middle) else (low, middle)
        return low

    def _limits(self, sizes: Mapping[str, int], chip: str, high: int) -> list[int]:
        """Where limits of the rules lie for what was refused at the end, if extents grow with the dimension."""
        report = self.at(sizes).preflights()[chip]
        refused = [entry for grade in ("reject", "oversize") for entry in report.of(grade)]
        pairs = ((_number(entry.limit), _number(entry.extent)) for entry in refused)
        return sorted({int(high * limit // extent) for limit, extent in pairs if limit > 0 and extent > 0})


def _number(value: Any) -> float:
    """A limit or an extent; 0 where it is no number."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0


# What the runtime does with inputs that may have several shapes.


@dataclass(frozen=True)
class FlexibleFinding:
    """What Core ML does with the flexible inputs of a file at some shapes."""

    message: str
    hint: str
    effect: str
    """``stays``, ``off-engine``, ``reject`` or ``unknown``."""
    applies: str
    """``default``, ``others`` or ``all`` shapes."""
    evidence: Fact[Any]

    def concerns(self, point: ShapePoint) -> bool:
        return self.applies == "all" or (self.applies == "default") == (point.role == DEFAULT)

    def __str__(self) -> str:
        return f"{self.message} {self.evidence.label()}"

    def to_json(self) -> dict[str, Any]:
        words = ("message", "hint", "effect", "applies")
        return {"rule": _RULE, **{word: getattr(self, word) for word in words}, "evidence": self.evidence.to_json()}


def flexible_findings(shapes: FlexibleShapes) -> list[FlexibleFinding]:
    """What is published about a file's flexible inputs in Core ML; files of other formats have not met it yet."""
    if not shapes.file.casefold().endswith((".mlpackage", ".mlmodel")):
        return []
    count = max((len(port.listed) for port in shapes.inputs), default=0)
    findings = []
    for record in store.load("gate_limits")["flexible"]:
        if record["form"] == shapes.kind and count > record.get("above", -1):
            evidence = fact({**record, "v": record["effect"]}, (), about=f"{record['form']} inputs in Core ML")
            message = record["says"].replace("{count}", f"{count:,}")
            findings.append(FlexibleFinding(message, record["hint"], record["effect"], record["applies"], evidence))
    return findings


# Checks.


class ShapeChecks:
    """The check of a model at each shape. ``ok`` is False where a chip does worse than allowed at one of them."""

    def __init__(self, studies: ShapedStudies, fail_on: str) -> None:
        self._studies, self.shapes, self._fail_on = studies, studies.shapes, fail_on
        self.checks = [(point, Check(study, fail_on)) for point, study in studies]
        self.findings = flexible_findings(studies.shapes)

    @cached_property
    def boundaries(self) -> list[Boundary]:
        return self._studies.boundaries()

    def _kept_off(self, point: ShapePoint) -> list[FlexibleFinding]:
        return [one for one in self.findings if one.effect in ("off-engine", "reject") and one.concerns(point)]

    @property
    def ok(self) -> bool:
        """Whether no chip has an outcome that ``fail_on`` names, at any shape."""
        kept_off = "placement" in self.checks[0][1].fail_on and any(self._kept_off(point) for point, _ in self.checks)
        return all(check.ok for _, check in self.checks) and not kept_off

    def likely(self, point: ShapePoint, words: str) -> str:
        return "none" if self._kept_off(point) else words

    def to_json(self) -> dict[str, Any]:
        first = self.checks[0][1].to_json()
        shapes = [self._shape_json(point, check) for point, check in self.checks]
        flexible = {**self.shapes.to_json(), "findings": [finding.to_json() for finding in self.findings]}
        more = {"flexible": flexible, "boundaries": [boundary.to_json() for boundary in self.boundaries]}
        return {**first, "ok": self.ok, **more, "shapes": shapes}

    def _shape_json(self, point: ShapePoint, check: Check) -> dict[str, Any]:
        likely = {chip: self.likely(point, words) for chip, words in check.likely.items()}
        return {"sizes": dict(point.sizes), "role": point.role, **check.to_json(), "likely": likely}

    def text(self, paint: Paint = str, everything: bool = False) -> str:
        """A table of shapes by chips, what the runtime does with them, and every reason once."""
        parts = [wrapped(f"{len(self.checks)} shapes are checked: {self.shapes}"), self._table()]
        if self.boundaries:
            parts.append("\n".join(wrapped(str(boundary), "", "  ") for boundary in self.boundaries))
        parts += [self._finding_text(finding) for finding in self.findings]
        seen: set[tuple[Any, ...]] = set()
        for point, check in self.checks:
            reasons = check.reasons_beside(seen, paint, everything)
            parts += [f"at {point.label}:\n{reasons[0]}", *reasons[1:]] if reasons else []
        failed = list(dict.fromkeys(chip for _, check in self.checks for chip in check.failed))
        if failed and (cure := self._cure()):
            parts.append(wrapped(cure))
        if failed:
            grades = ", ".join(self.checks[0][1].fail_on)
            parts.append(wrapped(f"fails on {grades} at some shapes: {chip_labels(failed)}"))
        return "\n\n".join(parts)

    def _cure(self) -> str:
        """The command that writes the model at the largest shape which runs on all chips; empty where none does."""
        running = [point.sizes for point, check in self.checks if check.ok]
        limits = [{**self.checks[0][0].sizes, boundary.name: boundary.last} for boundary in self.boundaries]
        running += [sizes for sizes in limits if Check(self._studies.at(sizes), self._fail_on).ok]
        if not running:
            return ""
        best = max(running, key=lambda sizes: prod(sizes.values()))
        asked = " ".join(f'--dim "{name}={size}"' for name, size in best.items())
        return (
            "do: keep to shapes that run on all these chips, and cut longer inputs in front of the model: "
            f"'aneforge export MODEL {asked} --out FILE.mlpackage' writes it at the largest of them"
        )

    def _finding_text(self, finding: FlexibleFinding) -> str:
        lines = [wrapped(f"Core ML: {finding}")]
        return "\n".join([*lines, *([wrapped(f"do: {finding.hint}", "  ")] if finding.hint else [])])

    def _table(self) -> str:
        rows = []
        for point, check in self.checks:
            for labels, outcome, likely, _ in check.groups():
                shape = f"{point.label} ({point.role})"
                rows.append((shape, ", ".join(labels), outcome.short(), self.likely(point, likely)))
        study = self.checks[0][1]
        return text.columns(("shape", "chips", *study.heads), rows)


def open_shapes(path: str, asked: Asked, function: str | None) -> FlexibleShapes | None:
    """The shapes of a file where more than one is to be judged; None for one shape, and for what is no model file."""
    file = Path(path)
    is_range = any(not isinstance(wish, int) for wish in asked.values())
    if not file.exists() or (file.suffix.casefold() == ".onnx" and not is_range):
        return None  # an open dimension of ONNX has no range: without one that is asked for there is one shape
    shapes = shapes_of(file, function)
    if not shapes.flexible and not is_range:
        return None
    return shapes if is_range or len(shapes.points(asked)) > 1 else None


def check_shapes(
    model: str | Path,
    target: Chips = None,
    route: str | None = None,
    fail_on: str = FAIL_ON,
    *,
    max_abs: float | None = None,
    dims: Asked | None = None,
    function: str | None = None,
) -> ShapeChecks:
    """Check a model file at its default shape, every other listed shape, and both ends of each range.

    ``dims`` narrows them by dimension: a size, or both ends of a range. ``.boundaries`` says where inside a range the
    answer of a chip changes. The other parameters are those of ``check``.
    """
    asked = dict(dims or {})
    studies = ShapedStudies(model, shapes_of(model, function), target, asked, function, route=route, max_abs=max_abs)
    return ShapeChecks(studies, fail_on)

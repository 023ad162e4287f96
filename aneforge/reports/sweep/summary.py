"""A sweep in short: for each chip how many models run, for each model where it runs and how long it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from aneforge import text
from aneforge.reports.commonmark import inert, table_row
from aneforge.reports.pages import embedded, page_text
from aneforge.reports.sweep.table import Row, Table, model_name
from aneforge.study.outcomes import grade_of
from aneforge.text import first_of, grouped, more, wrapped

_MODELS = 20
_CHIP_HEADS = ("chip", "models", "whole", "wrong numbers", "in part", "no", "failed", "median us")
_MODEL_HEADS = ("model", "ops", "whole on", "wrong on", "in part on", "fastest", "us", "slowest", "us")


@dataclass(frozen=True)
class ChipSummary:
    """What one chip does with the models."""

    chip: str
    models: int
    whole: int
    """How many run whole with the right numbers, also in several programs."""
    wrong: int
    """How many run whole and can give wrong numbers."""
    in_part: int
    no: int
    """How many do not run, or nobody knows."""
    failed: int
    median_us: float | None

    @property
    def cells(self) -> tuple[object, ...]:
        counts = (self.models, self.whole, self.wrong, self.in_part, self.no, self.failed)
        return self.chip, *(count or "-" for count in counts), _us(self.median_us)


@dataclass(frozen=True)
class ModelSummary:
    """What the chips do with one model."""

    model: str
    chips: int
    whole: int
    wrong: int
    """On how many chips it runs whole and can give wrong numbers."""
    in_part: int
    ops: int | None
    fastest: Row | None
    slowest: Row | None
    error: str

    @property
    def cells(self) -> tuple[object, ...]:
        ends = [cell for row in (self.fastest, self.slowest) for cell in _end(row)]
        counts = (self.whole, self.wrong, self.in_part)
        return self.model, self.ops, *(count or "-" for count in counts), *ends


def chips_of_table(table: Table) -> list[ChipSummary]:
    """The chips in their order."""
    return [_chip(rows) for rows in grouped(table.rows, lambda row: row["target"]).values()]


def models_of_table(table: Table) -> list[ModelSummary]:
    """The models in their order."""
    return [_model(rows) for rows in grouped(table.rows, model_name).values()]


def summary(table: Table, everything: bool = False) -> str:
    """Both tables as text, and the models without an answer."""
    models = models_of_table(table)
    answered, failed = _answered(models)
    parts = [text.columns(_CHIP_HEADS, [chip.cells for chip in chips_of_table(table)])]
    if answered:
        listed = text.columns(_MODEL_HEADS, [one.cells for one in first_of(answered, _MODELS, everything)])
        parts.append("\n".join([listed, *more(len(answered), _MODELS, "models", everything)]))
    if failed:
        lines = [wrapped(f"{one.model}: {one.error}", "  ") for one in first_of(failed, _MODELS, everything)]
        parts.append(
            "\n".join([f"without an answer: {len(failed)}", *lines, *more(len(failed), _MODELS, "models", everything)])
        )
    return "\n\n".join(parts)


def markdown(table: Table) -> str:
    """The same for a page of text, with every model."""
    models = models_of_table(table)
    answered, failed = _answered(models)
    parts = ["# Sweep", f"{len(models)} models, {len(failed)} without an answer."]
    parts += ["## Chips", _pipes(_CHIP_HEADS, [chip.cells for chip in chips_of_table(table)])]
    if answered:
        parts += ["## Models", _pipes(_MODEL_HEADS, [one.cells for one in answered])]
    if failed:
        parts += ["## Without an answer", _pipes(("model", "why"), [(one.model, one.error) for one in failed])]
    return "\n\n".join(parts) + "\n"


def _answered(models: Iterable[ModelSummary]) -> tuple[list[ModelSummary], list[ModelSummary]]:
    listed = list(models)
    return [one for one in listed if not one.error], [one for one in listed if one.error]


def _chip(rows: Sequence[Row]) -> ChipSummary:
    grades = Counter(grade_of(row["verdict"]) for row in rows)
    times = [row["us"] for row in rows if row["us"] is not None]
    return ChipSummary(
        rows[0]["chip"],
        len(rows),
        grades["yes"] + grades["programs"],
        grades["wrong"],
        grades["part"],
        grades["no"] + grades["unknown"],
        sum(row["kind"] != "done" for row in rows),
        median(times) if times else None,
    )


def _model(rows: Sequence[Row]) -> ModelSummary:
    grades = Counter(grade_of(row["verdict"]) for row in rows)
    timed = sorted((row for row in rows if row["us"] is not None), key=lambda row: row["us"])
    return ModelSummary(
        model_name(rows[0]),
        len(rows),
        grades["yes"] + grades["programs"],
        grades["wrong"],
        grades["part"],
        rows[0]["ops"],
        timed[0] if timed else None,
        timed[-1] if timed else None,
        next((row["error"] for row in rows if row["kind"] != "done"), ""),
    )


def _end(row: Row | None) -> tuple[str, str]:
    return ("-", "-") if row is None else (row["chip"], _us(row["us"]))


def _us(us: float | None) -> str:
    return "-" if us is None else f"{us:,.0f}"


def _pipes(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    cells = ([inert("?" if cell is None else str(cell)) for cell in line] for line in rows)
    return "\n".join(map(table_row, (heads, ["---"] * len(heads), *cells)))


# A sweep as one page: a matrix of models by chips in a file that needs nothing else.


def page(table: Table) -> str:
    """The page as text."""
    models, chips = models_of_table(table), chips_of_table(table)
    return page_text(
        "aneforge.reports.sweep",
        "page.html",
        ("rows.js", "page.js"),
        title=f"{text.plural(len(models), 'model')} on {text.plural(len(chips), 'chip')}",
        failed=sum(bool(model.error) for model in models),
        chips=chips,
        chip_heads=_CHIP_HEADS,
        **embedded(_matrix(table)),
    )


def _matrix(table: Table) -> dict[str, Any]:
    """The rows as a matrix of models by chips.

    A cell is the verdict, the operations on the engine, the time with its interval, and the number of its rules; many
    cells have the same rules.
    """
    places: dict[str, int] = {}
    labels: list[str] = []
    for row in table.rows:
        if places.setdefault(row["target"], len(places)) == len(labels):
            labels.append(row["chip"])
    models: dict[str, dict[str, Any]] = {}
    rules: dict[str, int] = {"": 0}
    for row in table.rows:
        name = model_name(row)
        empty = {"name": name, "ops": row["ops"], "error": row["error"], "cells": [None] * len(labels)}
        us = None if row["us"] is None else [round(row[name], 1) for name in ("us", "us_low", "us_high")]
        cell = [grade_of(row["verdict"]), row["engine_ops"], us, rules.setdefault(row["rules"], len(rules))]
        models.setdefault(name, empty)["cells"][places[row["target"]]] = cell
    for model, short_name in zip(models.values(), short_names(list(models)), strict=True):
        model["short"] = short_name
    return {"chips": labels, "models": list(models.values()), "rules": list(rules)}


def short_names(names: Sequence[str]) -> list[str]:
    """Of each path as many last parts as tell it from the others."""
    ends = [_ends(name) for name in names]
    uses = Counter(end for listed in ends for end in listed)
    return [next((end for end in listed if uses[end] == 1), name) for name, listed in zip(names, ends, strict=True)]


def _ends(name: str) -> list[str]:
    """The last part of a path, the last two, and so on."""
    parts = name.split("/")
    return ["/".join(parts[-count:]) for count in range(1, len(parts) + 1)]

"""A sweep as one page: a matrix of models by chips in a file that needs nothing else."""

from __future__ import annotations

from typing import Any

from aneforge.output.pages import embedded, page_text
from aneforge.sweep.summary import chips_of_table, models_of_table
from aneforge.sweep.table import Table, model_name

_GRADES = {"yes": "yes", "in part": "part", "no": "no"}


def page(table: Table) -> str:
    """The page as text."""
    models = models_of_table(table)
    return page_text(
        "aneforge.sweep",
        "page.html",
        ("rows.js", "page.js"),
        models=len(models),
        failed=sum(bool(model.error) for model in models),
        chips=chips_of_table(table),
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
        cell = [_GRADES.get(row["verdict"], "none"), row["engine_ops"], us, rules.setdefault(row["rules"], len(rules))]
        models.setdefault(name, empty)["cells"][places[row["target"]]] = cell
    return {"chips": labels, "models": list(models.values()), "rules": list(rules)}

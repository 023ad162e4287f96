"""A sweep as one page: a matrix of models by chips in a file that needs nothing else."""

from __future__ import annotations

import json
from importlib.resources import files

from aneforge.sweep.summary import chips_of_table, models_of_table
from aneforge.sweep.table import Table, model_name
from aneforge.version import __version__

__all__ = ["page"]

_GRADES = {"yes": "yes", "in part": "part", "no": "no"}


def page(table: Table) -> str:
    """The page as text."""
    import jinja2  # here, because no other part of a sweep needs it

    folder = files("aneforge.sweep") / "page_parts"
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string((folder / "page.html").read_text(encoding="utf-8"))
    models = models_of_table(table)
    return template.render(
        version=__version__,
        models=len(models),
        failed=sum(bool(model.error) for model in models),
        chips=chips_of_table(table),
        style=(folder / "page.css").read_text(encoding="utf-8"),
        script=(folder / "page.js").read_text(encoding="utf-8"),
        data=_data(table),
    )


def _data(table: Table) -> str:
    """The matrix as JSON that no browser takes for markup: a name of a file may hold anything."""
    chips: dict[str, str] = {}
    models: dict[str, dict[str, object]] = {}
    for row in table.rows:
        chips.setdefault(row["target"], row["chip"])
        model = models.setdefault(model_name(row), {"ops": row["ops"], "error": row["error"], "cells": {}})
        cells: dict[str, object] = model["cells"]  # type: ignore[assignment]
        grade = _GRADES.get(row["verdict"], "none")
        us = None if row["us"] is None else [round(row[name], 1) for name in ("us", "us_low", "us_high")]
        cells[row["target"]] = [grade, row["engine_ops"], us, row["rules"]]
    document = {"chips": chips, "models": models}
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")

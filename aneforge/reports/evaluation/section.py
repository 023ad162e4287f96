"""The accuracy on a data set as a section of a report: rows of the document that an evaluation leaves behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

from aneforge.documents import Misshapen, read_json, typed
from aneforge.errors import AneforgeError, LoadError
from aneforge.reports.evaluation.metrics import METRICS

SUMMARY = "summary.json"
"""The file of a folder that holds the figures."""
Document = Mapping[str, Any]


class _Score(TypedDict):
    value: float | None
    low: float | None
    high: float | None


class _Difference(TypedDict):
    run: str
    against: str
    metric: str
    difference: float | None
    p: float | None


class _Summary(TypedDict):
    data: str
    samples: int
    of: int
    whole: bool
    mode: str
    reference: str | None
    scores: dict[str, dict[str, _Score]]
    differences: list[_Difference]


_HEADS = ("run", "metric", "value", "from", "to", "against", "difference", "p")


def read_summary(place: str | Path) -> dict[str, Any]:
    """The figures in a folder of an evaluation, or in the file that ``evaluate merge --out`` wrote."""
    file = Path(place)
    file = file / SUMMARY if file.is_dir() else file
    try:
        document = typed(_Summary, read_json(file))
    except (LoadError, Misshapen):
        raise AneforgeError(
            f"{place}: no figures of an evaluation. Write them with: aneforge evaluate MODEL --data DATA --out FOLDER"
        ) from None
    return document


def section_head(document: Document) -> str:
    """What was evaluated, in one line."""
    of = "" if document["whole"] else f" of {document['of']}"
    reference = f", float reference {document['reference']}" if document["reference"] else ""
    return f"{document['samples']}{of} samples of {document['data']}, {document['mode']} sums{reference}"


def section_rows(document: Document) -> Iterator[tuple[str, ...]]:
    """A row for each run and metric, with the difference to the float reference, else to the first run."""
    apart = {}
    for row in reversed(document["differences"]):  # the reference's rows come first, so they are what stays
        apart[row["run"], row["metric"]] = row
    for run, scores in document["scores"].items():
        for metric, score in scores.items():
            is_share = metric in METRICS and METRICS[metric].is_share
            cells = [_figure(score[name], is_share) for name in ("value", "low", "high")]
            row = apart.get((run, metric))
            if row is None:
                yield (run, metric, *cells, "", "", "")
            else:
                difference = _figure(row["difference"], is_share, signed=True)
                yield (run, metric, *cells, row["against"], difference, _figure(row["p"], False))


def section_heads() -> tuple[str, ...]:
    return _HEADS


def _figure(value: float | None, is_share: bool, signed: bool = False) -> str:
    if value is None:
        return "∞"
    sign = "+" if signed else ""
    return f"{100 * value:{sign}.2f} %" if is_share else f"{value:{sign}.4g}"

"""A report as tables of values: one line for each chip, and one for each layer of each chip's programs."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from typing import Any

from aneforge.reports.document import Report
from aneforge.reports.rows import BOUNDS

# Tables as CSV that a spreadsheet shows as it is: names are strangers', and none of them may act as a formula.


_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_GUARD = "'"


def csv_text(head: Iterable[str], rows: Iterable[Sequence[Any]]) -> str:
    """The table with its head. Text that a spreadsheet would take for a formula is :func:`guarded`; None is empty."""
    lines = _Lines()
    # The writer quotes what is in its line end: with both characters there, a lone one in a cell ends no line either.
    writer = csv.writer(lines, lineterminator="\r\n")
    writer.writerow(head)
    writer.writerows([guarded(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return "".join(f"{line[:-2]}\n" for line in lines.written)


class _Lines:
    """What a writer writes, line by line."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, line: str) -> None:
        self.written.append(line)


def guarded(text: str) -> str:
    """The text, with a quote in front if it begins as a formula does; :func:`unguarded` takes the quote away."""
    return f"{_GUARD}{text}" if _is_risky(text) else text


def unguarded(text: str) -> str:
    return text[1:] if text.startswith(_GUARD) and _is_risky(text[1:]) else text


def _is_risky(text: str) -> bool:
    """Text that looks guarded already is one more, or it would be another text when it is read back."""
    return text.lstrip(_GUARD).startswith(_FORMULA)


def summary_csv(report: Report) -> str:
    """One line for each chip."""
    head = ("model", "chip", "label", "target", "verdict", "operations", "on_engine", "us", "low_us", "high_us")
    head += ("engine_us", "energy_mj", "weight_bytes", "peak_l2_bytes", "memory_bytes", "basis")
    rows = []
    for chip in report.chips:
        ends = chip.interval or (None, None)
        basis = "" if chip.us is None else "fitted" if chip.basis_measured else "by law"
        places = (report.model["name"], chip.name, chip.label, chip.target, chip.verdict, chip.ops, chip.engine_ops)
        sizes = (chip.weight_bytes, chip.peak_l2, chip.memory_bytes)
        rows.append((*places, chip.us, *ends, chip.engine_us, chip.energy_mj, *sizes, basis))
    return csv_text(head, rows)


def layers_csv(report: Report) -> str:
    """One line for each layer on each chip, with the operations that it came from."""
    head = ("chip", "layer", "op", "engine", "fused", "shape", "us", "bound", "flops", "bytes", "task_group", "from")
    rows = []
    for chip in report.chips:
        if chip.program is None:
            continue
        layers = report.programs[chip.program].layers
        for layer, us, bound in zip(layers, chip.layer_us, chip.layer_bounds, strict=True):
            sources = " ".join(report.ops[number].name for number in layer.sources)
            shape = "x".join(map(str, layer.shape))
            about = (chip.name, layer.number, layer.op, layer.engine, " ".join(layer.fused), shape, us)
            rows.append((*about, BOUNDS[bound], layer.flops, layer.traffic, layer.task_group, sources))
    return csv_text(head, rows)


def measured_csv(report: Report) -> str:
    """One line for each operation that a Mac's plan names, predicted beside measured."""
    head = ("chip", "operation", "op", "predicted", "measured", "supported", "predicted_share", "share", "us")
    rows = []
    table = report.measured
    if table is None:
        return csv_text(head, rows)
    for row in table.rows:
        op = report.ops[row.op]
        places = (table.chip, op.name, op.op, row.predicted, row.measured, " ".join(row.supported))
        rows.append((*places, row.predicted_share, row.share, row.us))
    return csv_text(head, rows)

"""A report as tables of values: one line for each chip, and one for each layer of each chip's programs."""

from __future__ import annotations

from aneforge.output.csv_text import csv_text
from aneforge.report.document import Report
from aneforge.report.rows import BOUNDS


def summary_csv(report: Report) -> str:
    """One line for each chip."""
    head = ("model", "chip", "label", "target", "verdict", "operations", "on_engine", "us", "low_us", "high_us")
    head += ("engine_us", "energy_mj", "weight_bytes", "peak_l2_bytes", "memory_bytes", "basis")
    rows = []
    for chip in report.chips:
        ends = chip.interval or (None, None)
        basis = "" if chip.us is None else "measured" if chip.basis_measured else "by law"
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

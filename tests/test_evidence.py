"""The product against an extract of the published measurements, in every clone.

The extract is chosen by kind, not by how well the product does (tools/extract_facts.py). Its figures are no accuracy:
the fit has seen these rows. They are here to show at once when somebody moves them. docs/reference/cost-accuracy.md
and verdict-accuracy.md say how good the answers are on rows that were left out.
"""

from __future__ import annotations

import json
from statistics import median

import pytest
from evidence_kit import EXTRACT

from aneforge.cost.evaluate import figures, predict, read_rows
from aneforge.study.agreement import evaluate

TIMES = read_rows(EXTRACT / "times.json")
RATIOS = {
    "attention": 1.028,
    "conv1x1": 0.939,
    "conv3x3": 1.051,
    "conv_chain": 1.018,
    "conv_kernel_shape": 0.965,
    "decode_step": 1.001,
    "elementwise": 0.972,
    "gemm": 1.009,
    "gemv": 0.966,
    "gemv_chain": 1.009,
    "layer_norm": 0.997,
    "pe_chain": 1.13,
    "pool": 1.022,
    "reduction": 1.022,
    "rms_norm": 1.007,
    "sdpa": 0.93,
    "select": 0.988,
    "softmax": 0.928,
    "sparsity": 1.047,
    "weight_format": 1.029,
    "weight_stream": 1.017,
}
"""Estimated over measured time, in the median of a class of ops. A new fit writes them anew."""


def test_the_extract_has_rows_of_every_kind():
    rows = json.loads((EXTRACT / "verdicts.json").read_text(encoding="utf-8"))["rows"]
    numbers = json.loads((EXTRACT / "numbers.json").read_text(encoding="utf-8"))["facts"]
    assert len(TIMES) + len(rows) + len(numbers) >= 300
    assert len({row["chip"] for row in TIMES}) >= 6
    assert all(row.get("source") for row in (*TIMES, *rows))


def test_times_as_a_whole():
    found = figures(TIMES)
    assert found.median < 7.5
    assert found.p90 < 32
    assert found.rank > 0.94


@pytest.mark.parametrize("op_class", RATIOS)
def test_times_of_each_class_of_ops(op_class):
    """Within two per cent: planar times that are 8 % lower move three classes by more than that."""
    ratios = [predict(row) / row["latency_us"] for row in TIMES if row["op_class"] == op_class]
    assert median(ratios) == pytest.approx(RATIOS[op_class], abs=0.02)


def test_verdicts():
    rows = json.loads((EXTRACT / "verdicts.json").read_text(encoding="utf-8"))["rows"]
    result = evaluate(rows)
    assert result.exact >= 0.985, result.misses
    assert result.runs == 1.0
    assert result.boundary == 1.0
    assert result.wrong_results == 1.0

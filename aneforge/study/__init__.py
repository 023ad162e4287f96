"""Every answer about one model on some chips: which ops run where, in which programs, how long, with which numbers.

``Study`` is the one place that answers; the functions here ask it. ``aneforge`` has the main ones at the top.
``calibrate`` measures ranges on data, ``divergences_between`` and ``risks_on`` answer for tensors and targets, and
``graph_verdicts`` says what the published facts say about every op of a graph on two chips. ``compute_plan`` predicts
which device Core ML prefers for each operation; ``read_plan`` reads such a plan from a Mac.
"""

from __future__ import annotations

from typing import Any

from aneforge.lazy import first_use

HOMES = {
    "comparison": "Comparison compare",
    "contribute": "contributed_rows timed_row",
    "pairwise": "Divergence DivergenceReport Divergences divergences_between diverges",
    "plan": "compute_plan",
    "plan_files": "ComputePlan PlannedOp read_plan",
    "ranges": "calibrate",
    "risk": "RiskReport Risks precision_risk risks risks_on",
    "study": "Study",
    "verdicts": "graph_verdicts",
}


def __getattr__(name: str) -> Any:
    return first_use(__name__, HOMES, name)

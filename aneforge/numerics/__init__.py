"""Where chips give different numbers for one model, and what each of them can lose: the functions across chips.

This module is their public home; ``aneforge`` has the main ones at the top. ``diverges`` bounds the differences of
chips without running anything, ``compare`` simulates several, and ``risks`` finds what each can lose. ``rewritten``
applies the safe rewrites that ``risks`` suggests, ``calibrate`` measures ranges on data, and
``predict_fp16_divergence``, ``verdict`` and ``graph_verdicts`` answer for single ops from published facts.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aneforge.divergence.verdicts import graph_verdicts, predict_fp16_divergence, verdict
    from aneforge.numerics.comparison import Comparison, compare
    from aneforge.numerics.cures import reduce_sum_to_matmul, rewritten
    from aneforge.numerics.pairwise import Divergence, DivergenceReport, Divergences, divergences_between, diverges
    from aneforge.numerics.ranges import calibrate
    from aneforge.numerics.risk import Risk, RiskReport, Risks, precision_risk, risks, risks_on

__all__ = [
    "Comparison",
    "Divergence",
    "DivergenceReport",
    "Divergences",
    "Risk",
    "RiskReport",
    "Risks",
    "calibrate",
    "compare",
    "divergences_between",
    "diverges",
    "graph_verdicts",
    "precision_risk",
    "predict_fp16_divergence",
    "reduce_sum_to_matmul",
    "rewritten",
    "risks",
    "risks_on",
    "verdict",
]

# Nothing is imported until it is used: the simulator and the compiler are heavy.
_HOMES = {
    "aneforge.numerics.comparison": "Comparison compare",
    "aneforge.numerics.cures": "reduce_sum_to_matmul rewritten",
    "aneforge.divergence.verdicts": "graph_verdicts predict_fp16_divergence verdict",
    "aneforge.numerics.pairwise": "Divergence DivergenceReport Divergences divergences_between diverges",
    "aneforge.numerics.ranges": "calibrate",
    "aneforge.numerics.risk": "Risk RiskReport Risks precision_risk risks risks_on",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Every answer about one model on some chips: which ops run where, in which programs, how long, with which numbers.

``Study`` is the one place that answers; the functions here ask it. ``aneforge`` has the main ones at the top.
``calibrate`` measures ranges on data, ``divergences_between`` and ``risks_on`` answer for tensors and targets, and
``graph_verdicts`` says what the published facts say about every op of a graph on two chips.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aneforge.study.comparison import Comparison, compare
    from aneforge.study.pairwise import Divergence, DivergenceReport, Divergences, divergences_between, diverges
    from aneforge.study.ranges import calibrate
    from aneforge.study.risk import RiskReport, Risks, precision_risk, risks, risks_on
    from aneforge.study.study import Study
    from aneforge.study.verdicts import graph_verdicts

__all__ = [
    "Comparison",
    "Divergence",
    "DivergenceReport",
    "Divergences",
    "RiskReport",
    "Risks",
    "Study",
    "calibrate",
    "compare",
    "divergences_between",
    "diverges",
    "graph_verdicts",
    "precision_risk",
    "risks",
    "risks_on",
]

# Nothing is imported until it is used: the simulator and the compiler are heavy.
_HOMES = {
    "comparison": "Comparison compare",
    "pairwise": "Divergence DivergenceReport Divergences divergences_between diverges",
    "ranges": "calibrate",
    "risk": "RiskReport Risks precision_risk risks risks_on",
    "study": "Study",
    "verdicts": "graph_verdicts",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Where chips give different numbers for one graph, and what each of them can lose.

``diverges`` bounds the differences of two chips without running anything, ``compare`` simulates several, ``risks``
finds what one can lose and ``rewritten`` removes what can be removed safely; ``predict_fp16_divergence`` answers for
one op.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aneforge.divergence.verdicts import graph_verdicts, predict_fp16_divergence, verdict
    from aneforge.numerics.comparison import Comparison, compare
    from aneforge.numerics.cures import reduce_sum_to_matmul, rewritten
    from aneforge.numerics.pairwise import Divergence, Divergences, diverges
    from aneforge.numerics.ranges import calibrate
    from aneforge.numerics.risk import Risk, Risks, risks

__all__ = [
    "Comparison",
    "Divergence",
    "Divergences",
    "Risk",
    "Risks",
    "calibrate",
    "compare",
    "diverges",
    "graph_verdicts",
    "predict_fp16_divergence",
    "reduce_sum_to_matmul",
    "rewritten",
    "risks",
    "verdict",
]

# Nothing is imported until it is used: the simulator and the compiler are heavy.
_HOMES = {
    "aneforge.numerics.comparison": "Comparison compare",
    "aneforge.numerics.cures": "reduce_sum_to_matmul rewritten",
    "aneforge.divergence.verdicts": "graph_verdicts predict_fp16_divergence verdict",
    "aneforge.numerics.pairwise": "Divergence Divergences diverges",
    "aneforge.numerics.ranges": "calibrate",
    "aneforge.numerics.risk": "Risk Risks risks",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

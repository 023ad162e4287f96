"""A committed record of a model on several chips, and the differences of the model from it.

``observe`` collects the facts, ``save_baseline`` and ``load_baseline`` write and read them, and ``compare`` lists
every difference.
"""

from __future__ import annotations

from aneforge.chips.names import chip_list
from aneforge.reports.baseline.compare import Limits, compare
from aneforge.reports.baseline.file import CHECKS, FORMAT, Baseline, BaselineError, load_baseline, save_baseline
from aneforge.reports.baseline.observe import Named, ObservationPlan, Observed, observe
from aneforge.reports.baseline.outcome import RULES, BaselineReport, ChangeOutcome

__all__ = [
    "CHECKS",
    "FORMAT",
    "RULES",
    "Baseline",
    "BaselineError",
    "BaselineReport",
    "ChangeOutcome",
    "Limits",
    "Named",
    "ObservationPlan",
    "Observed",
    "chip_list",
    "compare",
    "load_baseline",
    "observe",
    "save_baseline",
]

"""A committed record of a model on several chips, and the differences of the model from it.

``observe`` collects the facts, ``save_baseline`` and ``load_baseline`` write and read them, and ``compare`` lists
every difference.
"""

from __future__ import annotations

from aneforge.baseline.compare import Limits, compare
from aneforge.baseline.file import BaselineError, load_baseline, save_baseline
from aneforge.baseline.observe import Named, Observed, Plan, observe
from aneforge.baseline.outcome import RULES, Outcome, Report
from aneforge.baseline.record import CHECKS, FORMAT, Baseline
from aneforge.targets.listed import chip_list

__all__ = [
    "CHECKS",
    "FORMAT",
    "RULES",
    "Baseline",
    "BaselineError",
    "Limits",
    "Named",
    "Observed",
    "Outcome",
    "Plan",
    "Report",
    "chip_list",
    "compare",
    "load_baseline",
    "observe",
    "save_baseline",
]

"""Changes of a model: what would help, equivalent forms, and weights in smaller forms; each priced by the study and
checked in the simulator.
"""

from __future__ import annotations

from typing import Any

from aneforge.lazy import first_use

HOMES = {
    "calibration": "quantise",
    "compression": "advise_weights",
    "compression_options": "ChipWeightAdvice WeightAdvice",
    "form_search": "SearchLimits search tune",
    "forms": "apply_form attention_tiles tune_attention",
    "precision": "tune_precision",
    "proposals": "Figure",
    "ranking": "Advice PricedChange advise",
    "tuning": "Candidate Tuning",
}


def __getattr__(name: str) -> Any:
    return first_use(__name__, HOMES, name)

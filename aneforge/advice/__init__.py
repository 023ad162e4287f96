"""Changes of a model: what would help, equivalent forms, and weights in smaller forms; each priced by the study and
checked in the simulator.
"""

from __future__ import annotations

from aneforge.advice.calibration import quantise
from aneforge.advice.compression import advise_weights
from aneforge.advice.compression_options import ChipWeightAdvice, WeightAdvice
from aneforge.advice.form_search import SearchLimits, search, tune
from aneforge.advice.forms import attention_tiles, tune_attention
from aneforge.advice.precision import tune_precision
from aneforge.advice.proposals import Figure
from aneforge.advice.ranking import Advice, PricedChange, advise
from aneforge.advice.tuning import Candidate, Tuning

__all__ = [
    "Advice",
    "Candidate",
    "ChipWeightAdvice",
    "Figure",
    "PricedChange",
    "SearchLimits",
    "Tuning",
    "WeightAdvice",
    "advise",
    "advise_weights",
    "attention_tiles",
    "quantise",
    "search",
    "tune",
    "tune_attention",
    "tune_precision",
]

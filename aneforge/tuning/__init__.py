"""Equivalent forms of a graph, ranked by the cost model and checked in the simulator."""

from __future__ import annotations

from aneforge.tuning.precision import tune_precision
from aneforge.tuning.records import Candidate, Figure, Tuning
from aneforge.tuning.search import Limits, search, tune
from aneforge.tuning.tiles import attention_tiles, tune_attention

__all__ = [
    "Candidate",
    "Figure",
    "Limits",
    "Tuning",
    "attention_tiles",
    "search",
    "tune",
    "tune_attention",
    "tune_precision",
]

"""What to change so that a model takes less time: each change with its own estimate."""

from __future__ import annotations

from aneforge.advice.change import LEAST_GAIN, Change
from aneforge.advice.ranking import Advice, advise

__all__ = ["LEAST_GAIN", "Advice", "Change", "advise"]

"""Weights in smaller forms: which to take on each chip, fitted to data, and 8 bits on both sides of a product."""

from __future__ import annotations

from aneforge.compress.adviser import advise
from aneforge.compress.quantise import quantise
from aneforge.compress.records import Advice, ChipAdvice
from aneforge.compress.storage import encode

__all__ = ["Advice", "ChipAdvice", "advise", "encode", "quantise"]

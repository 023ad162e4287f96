"""Warnings about numbers. They never stop a compile."""

from __future__ import annotations


class PrecisionWarning(UserWarning):
    """fp16 may not hold what a graph computes."""


class CrossChipFP16Warning(UserWarning):
    """The same graph can give other numbers on another chip."""

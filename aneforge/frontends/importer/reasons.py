"""Reasons that several formats give."""

from __future__ import annotations

__all__ = ["INTEGERS"]

INTEGERS = "it computes with integers, which the engine does not"

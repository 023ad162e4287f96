"""Reasons that several formats give."""

from __future__ import annotations

INTEGERS = "it computes with integers, which the engine does not"

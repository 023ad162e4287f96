"""Weights from fp16 to stored forms and back: what each form holds, bit for bit."""

from __future__ import annotations

from aneforge.graph.codecs.encoding import ENCODINGS, encode

__all__ = ["ENCODINGS", "encode"]

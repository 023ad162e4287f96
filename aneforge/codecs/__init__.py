"""Weights from fp16 to stored forms and back: what each form holds, bit for bit, and which chips stream it."""

from __future__ import annotations

from aneforge.codecs.encoding import ENCODINGS, encode
from aneforge.codecs.flows import flow_of

__all__ = ["ENCODINGS", "encode", "flow_of"]

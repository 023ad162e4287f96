"""The engine's language: backend ops with their floor and engine, a text form, and a verifier."""

from __future__ import annotations

from aneforge.anec.interpret import interpret
from aneforge.anec.ir import AnecError, Module, Op, TensorType, rank5
from aneforge.anec.spec import OpSpec, kinds_with, spec, spec_names, structural_names
from aneforge.anec.text import parse, read, write
from aneforge.anec.traits import Trait
from aneforge.anec.verify import problems, verify

__all__ = [
    "AnecError",
    "Module",
    "Op",
    "OpSpec",
    "TensorType",
    "Trait",
    "interpret",
    "kinds_with",
    "parse",
    "problems",
    "rank5",
    "read",
    "spec",
    "spec_names",
    "structural_names",
    "verify",
    "write",
]

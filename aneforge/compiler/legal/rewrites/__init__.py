"""Graphs that replace an op: each function takes a :class:`Context` and returns the tensor that replaces the op.

:mod:`aneforge.compiler.legal.table` says which op is replaced on which chip, and how exact the replacement is.
"""

from __future__ import annotations

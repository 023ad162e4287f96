"""Graphs that stand in for an op: each function takes a :class:`Context` and gives the tensor in the op's place.

Which op is replaced on which chip, and how exact that is, stands in :mod:`aneforge.compiler.legal.table`.
"""

from __future__ import annotations

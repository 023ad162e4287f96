"""Netplists: the property lists that the engine's compiler reads. Their units become ops of the graph.

The keys are those of table 22.6 and layers.json ``netplist``. Anything that the published schema leaves open is
refused, except the order of a kernel's numbers (U52).
"""

from __future__ import annotations

from pathlib import Path

from aneforge.formats.netplist.network import Network
from aneforge.formats.netplist.procedures import InputPort, Procedure, read_procedure
from aneforge.graph.graph import Graph

__all__ = ["InputPort", "Procedure", "read", "read_procedure"]


def read(file: Path, function: str | None = None) -> Graph:
    """The graph of the only procedure of a netplist, or of the one that ``function`` names."""
    return Network(file, read_procedure(file, function)).graph()

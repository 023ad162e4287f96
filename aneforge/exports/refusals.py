"""What the writers of all formats refuse, and with which error."""

from __future__ import annotations

from aneforge.errors import AneforgeError
from aneforge.graph.graph import Graph


class ExportError(AneforgeError, ValueError):
    """A graph that has no form in the other language: which node, and why."""


def refuse_host_ops(graph: Graph) -> None:
    """Ops of the host and integers have no place in a program of the engine."""
    for node in graph.nodes:
        if node.op == "host" or node.dtype == "int32":
            name = graph.names()[node.uid]
            raise ExportError(
                f"{name}: the op works on whole numbers or runs on the host. Export the engine's part: aneforge "
                "partition lists the "
                "regions, --region N (or af.partition(...).graph_of(N)) takes one."
            )

"""One graph for one model, however its exporter spelled it.

Exporters write the same layer in many ways: a gelu as five products and an erf, a group norm as an instance norm
between two reshapes, a scale on the scores or on both factors. The readers translate what a file says. Recognition
then finds the layers in the graph, for every format alike, as the vendor's converter does (N85: it fuses
``x * sigmoid(x)`` back to silu). Graphs that are written in Python stay as they are written.
"""

from __future__ import annotations

from aneforge.graph.recognise.walk import Recognised, recognised

__all__ = ["Recognised", "recognised"]

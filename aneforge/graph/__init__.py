"""The user's model: a lazy graph of tensors, with shapes and types known at every line."""

from __future__ import annotations

from aneforge.graph.graph import Graph, load_graph
from aneforge.graph.node import definition, definitions
from aneforge.graph.reference import evaluate
from aneforge.graph.tensor import Tensor

__all__ = ["Graph", "Tensor", "definition", "definitions", "evaluate", "load_graph"]

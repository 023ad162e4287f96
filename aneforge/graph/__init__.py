"""The user's model: a lazy graph of tensors, with shapes and types known at every line."""

from __future__ import annotations

from typing import Any

from aneforge.graph.graph import Graph, load_graph
from aneforge.graph.node import definition, definitions
from aneforge.graph.reference import evaluate
from aneforge.graph.tensor import Tensor
from aneforge.lazy import first_use

# Builders that existing code imports from here are read from their modules when they are first used.
_BUILDERS = {
    "ops.elementwise": "maximum minimum select where",
    "ops.contraction": "conv conv_transpose",
    "ops.leaf": "image_input input",
    "ops.shape": "concat gather split stack",
}


def __getattr__(name: str) -> Any:
    return first_use(__name__, _BUILDERS, name)


__all__ = ["Graph", "Tensor", "definition", "definitions", "evaluate", "load_graph"]

"""The loss of a model file: its output as it is, or compared with a target that the data bring along."""

from __future__ import annotations

from aneforge.errors import AneforgeError, ArgumentError
from aneforge.graph.graph import Graph
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.train.backward import Objective
from aneforge.train.losses import mse, softmax_cross_entropy

LOSSES = ("output", "mse", "cross-entropy")
TARGET = "target"
"""The name of the input that a loss adds."""


def objective_of(graph: Graph, loss: str = "output", name: str = "model") -> Objective:
    """A graph of one output as something to train. ``output``: it is the loss itself; ``mse`` and ``cross-entropy``
    compare it with an input called ``target``, which they add."""
    if loss not in LOSSES:
        raise ArgumentError("loss", f"{loss!r} is unknown; choose one: {', '.join(LOSSES)}.")
    if len(graph.outputs) != 1:
        raise AneforgeError(f"{name}: has {len(graph.outputs)} outputs; training needs one. Name it: FILE.py:NAME.")
    if not graph.parameters:
        raise AneforgeError(
            f"{name}: has no parameters, so there is nothing to train. Build the graph in Python with af.parameter "
            "and af.conv_param; weights of model files are constants."
        )
    (out,) = graph.outputs
    if loss == "output":
        return out
    target = graph_input(out.shape, name=TARGET)
    return mse(out, target) if loss == "mse" else softmax_cross_entropy(out, target)

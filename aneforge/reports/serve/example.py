"""A model to try the served page with: a small classifier whose last operation an old chip refuses."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import numpy as np


@cache
def example_model() -> bytes:
    """The file of a graph, as :meth:`aneforge.graph.graph.Graph.save` writes it."""
    from aneforge.formats.arguments import graph_of
    from aneforge.graph.ops.contraction import conv
    from aneforge.graph.ops.leaf import input as image_input
    from aneforge.graph.ops.ranking import topk

    draw = np.random.default_rng(0)

    def weight(*shape: int) -> np.ndarray:
        return (draw.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float16)

    x = image_input((1, 3, 64, 64), name="image", max_abs=1.0)
    for number, (channels, stride) in enumerate(((16, 2), (32, 2), (64, 2)), 1):
        x = conv(x, weight(channels, x.shape[1], 3, 3), stride=stride, pad=1).named(f"conv_{number}").relu()
    scores = x.mean((2, 3)).reshape(1, 64).linear(weight(10, 64)).named("scores")
    best = topk(scores.softmax(-1).named("probabilities"), 3).named("best")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "example.aneforge"
        graph_of(best).save(file)
        return file.read_bytes()

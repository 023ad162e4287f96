"""Graphs without their large weights: small files that hold all that a compile or an estimate asks of a network.

Constants of up to 8,192 numbers are kept, since their values decide what is recognised; of a larger weight its shape.
Reading draws nothing: a large weight comes back as one number that is repeated, a number of its own for each weight.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np

from aneforge import Graph

MOST = 8192


def write(graph: Graph, path: Path) -> None:
    """Write a sketch of a graph, through a file beside it."""
    document = graph.to_json(weights=False)
    large = {key: list(weight.shape) for key, weight in graph.weights.items() if np.prod(weight.shape) > MOST}
    beside = path.with_suffix(".part")
    with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("graph.json", json.dumps(document))
        archive.writestr("large.json", json.dumps(large))
        for key, weight in graph.weights.items():
            if key not in large:
                stream = io.BytesIO()
                np.save(stream, weight.array, allow_pickle=False)
                archive.writestr(f"weights/{key}.npy", stream.getvalue())
    beside.replace(path)


def read(path: Path) -> Graph:
    with zipfile.ZipFile(path) as archive:
        document, large = (json.loads(archive.read(name)) for name in ("graph.json", "large.json"))
        weights = {
            Path(name).stem: np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
            for name in archive.namelist()
            if name.startswith("weights/")
        }
    for place, (key, shape) in enumerate(large.items()):
        weights[key] = np.broadcast_to(np.float16(0.01 + place * 2.0**-13), shape)
    return Graph.from_json(document, weights)

"""Which layers of a compiled model have their kernel brought in as it is stored."""

from __future__ import annotations

from collections.abc import Collection

from aneforge.study.partition import Partition

__all__ = ["streams_of"]


def streams_of(split: Partition, forms: Collection[str]) -> dict[str, bool]:
    """Of each encoded layer on the engine, whether its kernel reaches the engine as it is stored."""
    layers: dict[str, set[str]] = {}  # by what a program may call the kernel: as its layer, or as its constant
    for node in split.graph.nodes:
        name = split.names[node.uid]
        if name in forms:
            layers.setdefault(name, set()).add(name)
            layers.setdefault(split.names[node.inputs[1].uid], set()).add(name)
    streams: dict[str, bool] = {}
    for program in split.programs.values():
        for weight in program.weights:
            kept = bool(weight.streams) and weight.encoding != "fp16"
            for layer in {layer for source in weight.sources for layer in layers.get(source, ())}:
                if weight.flow is not None:
                    streams[layer] = streams.get(layer, True) and kept
    return streams

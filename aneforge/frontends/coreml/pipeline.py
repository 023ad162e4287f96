"""Pipelines: several models in one file, each of which reads what earlier ones give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aneforge.errors import LoadError
from aneforge.graph.graph import Graph
from aneforge.graph.node import remade
from aneforge.graph.origins import FileNodes
from aneforge.graph.tensor import Tensor

_READ = ("mlProgram", "neuralNetwork", "neuralNetworkClassifier", "neuralNetworkRegressor")


def read_pipeline(
    file: str, pipeline: Any, outputs: Sequence[str], stage: str | None, read: Callable[[Any], Graph]
) -> Graph:
    """One stage of a pipeline by its name or number, or all stages as one graph if each is a network."""
    models = list(pipeline.models)
    labels = [pipeline.names[place] if place < len(pipeline.names) else str(place) for place in range(len(models))]
    listed = ", ".join(f"{label!r} ({model.WhichOneof('Type')})" for label, model in zip(labels, models, strict=True))
    if stage is not None:
        if stage in labels:
            return read(models[labels.index(stage)])
        if stage.isdecimal() and int(stage) < len(models):
            return read(models[int(stage)])
        raise LoadError(f"{file}: the pipeline has no stage {stage!r}; choose one: {listed}")
    if not models:
        raise LoadError(f"{file}: the pipeline has no stages; save the model again")
    others = [label for label, model in zip(labels, models, strict=True) if model.WhichOneof("Type") not in _READ]
    if others:
        usable = next((label for label in labels if label not in others), "0")
        raise LoadError(
            f"{file}: the pipeline has a stage that is not a network ({others[0]!r}), which no engine runs. "
            f"Load one stage: af.load(..., function={usable!r}); "
            f"the stages are {listed}"
        )
    return _joined(file, [read(model) for model in models], outputs)


def _joined(file: str, graphs: Sequence[Graph], outputs: Sequence[str]) -> Graph:
    """The stages as one graph: an input with the name of an earlier output is that output."""
    given: dict[str, Tensor] = {}
    file_nodes = FileNodes()
    for graph in graphs:
        file_nodes.append(graph.file, graph.nodes)
        made: dict[int, Tensor] = {}
        for node in graph.nodes:
            earlier = given.get(node.name or "") if node.op == "input" else None
            if earlier is not None and earlier.shape != node.shape:
                raise LoadError(
                    f"{file}: {node.name!r} leaves one stage as {list(earlier.shape)} and enters the next as "
                    f"{list(node.shape)}; correct the pipeline"
                )
            made[node.uid] = earlier if earlier is not None else _on_operands(node, made)
        given |= {str(output.name): made[output.uid] for output in graph.outputs}
    missing = [name for name in outputs if name not in given]
    if missing:
        there = ", ".join(given)
        raise LoadError(f"{file}: no stage gives the output {missing[0]!r}; the stages give {there}")
    joined = Graph([given[name] for name in outputs] if outputs else list(graphs[-1].outputs))
    joined.file = file_nodes
    return joined


def _on_operands(node: Tensor, made: dict[int, Tensor]) -> Tensor:
    operands = [made[operand.uid] for operand in node.inputs]
    if all(new is old for new, old in zip(operands, node.inputs, strict=True)):
        return node
    return remade(node, operands, node.name)

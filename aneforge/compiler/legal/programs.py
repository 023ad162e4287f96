"""What a graph asks of one program as a whole: its weights, its kind, and its attention layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from aneforge.chips.assumed import constant
from aneforge.compiler.legal.patterns import attention_extents
from aneforge.compiler.legal.rules.base import rule_records
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait

_VOCABULARY = 16384
"""Outputs from which a product at the end of a decoder is a head over a vocabulary."""


@dataclass(frozen=True, eq=False)
class ProgramWeights:
    """The weights of a graph as the model stores them, and what kind of program they make."""

    node: Tensor
    """The op with which the weights first exceed the smallest ceiling."""
    weight_bytes: int
    kind: str
    """``convolutions``, ``decoder`` (attention and a head over a vocabulary) or ``layers``."""

    @property
    def attrs(self) -> dict[str, Any]:
        return {"weight_bytes": self.weight_bytes, "kind": self.kind}


@cache
def least_ceiling() -> float:
    """Below it no record speaks, and most graphs need no more than the sum of their weights."""
    records = rule_records()["program-size"]
    return min(constant(record["constant"]) if "constant" in record else record["v"] for record in records)


def program_of(graph: Graph) -> ProgramWeights | None:
    """The weights of a graph, if they are more than the smallest ceiling of any runtime. Equal weights count once."""
    total, last = 0, None
    counted: set[int] = set()
    for node in graph.nodes:
        for operand in node.inputs:
            if operand.is_a(GraphTrait.STORED) and operand.uid not in counted:
                counted.add(operand.uid)
                total += stored_bytes(operand)
                if last is None and total > least_ceiling():
                    last = node
    return None if last is None else ProgramWeights(last, total, _kind(graph))


def stored_bytes(constant_node: Tensor) -> int:
    """The bytes of a constant in the form that it came in."""
    storage = constant_node.signature.result[2]
    if storage not in ("", "fp16"):
        weight = constant_node.weight
        if weight is not None and weight.encoded is not None:
            return weight.encoded.stored_bytes
    return 2 * constant_node.size


def _kind(graph: Graph) -> str:
    attends = any(attention_extents(node) is not None for node in graph.nodes)
    if attends and any(_is_head(node) for node in graph.outputs):
        return "decoder"
    plain = not attends and not any(node.is_a(GraphTrait.RECURRENT) for node in graph.nodes)
    return "convolutions" if plain and any(node.is_a(GraphTrait.STORED_KERNEL) for node in graph.nodes) else "layers"


def _is_head(node: Tensor) -> bool:
    """Whether an output is a product with as many results as a vocabulary has words, and what only reshapes it."""
    while node.is_a(GraphTrait.MOVEMENT) or node.op == "add":
        node = node.inputs[0]
    outputs = node.definition.kernel_axis
    return outputs is not None and node.inputs[1].shape[outputs] >= _VOCABULARY


def decode_layers(graph: Graph, most: int) -> Iterator[tuple[Tensor, int]]:
    """Every softmax at which a program of attention layers with one query each has to be cut, and how many of them
    follow one another. The engine's own layer is no part of this: each has a program of its own."""
    layers = {node.uid for node in graph.nodes if node.op == "softmax" and (attention_extents(node) or (0, 0))[0] == 1}
    if len(layers) <= most:
        return
    depths: dict[int, int] = {}
    for node in graph.nodes:
        before = max((depths[operand.uid] for operand in node.inputs), default=0)
        depths[node.uid] = before + (node.uid in layers)
    for node in graph.nodes:
        if node.uid in layers and depths[node.uid] > most and depths[node.uid] % most == 1 % most:
            yield node, max(depths.values())

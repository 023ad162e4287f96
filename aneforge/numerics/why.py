"""What differs between two chips inside one node of a graph, in words."""

from __future__ import annotations

from collections.abc import Sequence

from aneforge.anec.ir import Op
from aneforge.anec.traits import Trait
from aneforge.numerics.transfer import Walk
from aneforge.sim.convolution import winograd_fits
from aneforge.sim.engine import Engine
from aneforge.sim.int8 import integer_operands
from aneforge.sim.rules.contraction import passes_no_accumulator, stored_as_int8, window_of

__all__ = ["causes_of"]

_BY_SET = ("tanh", "gelu", "swish")
"""The activations in which the two sets of tables differ."""


def causes_of(node: str, walks: Sequence[Walk]) -> tuple[str, ...]:
    """The ways of the chips that are not the same for the ops of a node, whether the data ever meet them or not."""
    told = [_traits(node, each) for each in walks]
    found = [f"{trait} on {walks[0].engine.target.name} only" for trait in told[0] if trait not in told[1]]
    found += [f"{trait} on {walks[1].engine.target.name} only" for trait in told[1] if trait not in told[0]]
    return tuple(found)


def _traits(node: str, made: Walk) -> list[str]:
    found: dict[str, None] = {}
    for op in made.module.ops:
        if op.sources[-1:] == (node,) and op.layer is not None:
            found |= dict.fromkeys(_of_op(op, made.engine))
    return list(found)


def _of_op(op: Op, engine: Engine) -> list[str]:
    found = []
    if op.is_a(Trait.CONTRACTION) or op.kind == "sdpa":
        if engine.tile_losses:
            found.append("tiles of four terms that add in fp16 above 4096")
        if engine.flush_subnormals:
            found.append("subnormal operands read as zero")
    if op.kind == "convolution":
        if engine.winograd and winograd_fits(window_of(op)):
            found.append("the Winograd form, rounded in between")
        if passes_no_accumulator(engine, op):
            found.append("one channel that passes no accumulator")
    if op.kind in ("convolution", "linear"):
        if integer_operands(engine, op) is not None:
            found.append("8-bit products added as integers")
        elif engine.int8_activations_q4 and stored_as_int8(op):
            found.append("activations above 4094 infinite in front of 8-bit weights")
    if op.labels.get("storage") == "q4":
        found.append("the crop route, infinite above 4094")
    if op.kind in _BY_SET and not op.attrs.get("hard"):
        found.append(f"the {engine.tables} table of {op.kind}")
    if op.kind == "div" and engine.reciprocal_divide:
        found.append("division by a rounded reciprocal")
    return found

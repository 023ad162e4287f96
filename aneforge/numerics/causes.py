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

__all__ = ["BY_SET", "adds_on_the_planar_path", "causes_of"]

BY_SET = ("tanh", "gelu", "swish")
"""The activations in which the two sets of tables differ."""


def adds_on_the_planar_path(op: Op) -> bool:
    """Whether an op adds many numbers there: a sum or mean, a norm, a softmax or what holds one."""
    if op.is_a(Trait.REDUCTION):
        return not op.is_a(Trait.EXACT)
    return op.is_a(Trait.NORMALISATION) or op.kind == "sdpa"


def causes_of(node: str, walks: Sequence[Walk]) -> tuple[str, ...]:
    """What the two chips do differently in the ops of a node, whether or not the data ever reach it."""
    traits = [_traits(node, walk) for walk in walks]
    causes = [f"{trait} on {walks[0].engine.target.name} only" for trait in traits[0] if trait not in traits[1]]
    causes += [f"{trait} on {walks[1].engine.target.name} only" for trait in traits[1] if trait not in traits[0]]
    return tuple(causes)


def _traits(node: str, walk: Walk) -> list[str]:
    traits: dict[str, None] = {}
    for op in walk.module.ops:
        if op.sources[-1:] == (node,) and op.layer is not None:
            traits |= dict.fromkeys(_of_op(op, walk.engine))
    return list(traits)


def _of_op(op: Op, engine: Engine) -> list[str]:
    """What of a chip's ways an op takes; each is there or not."""
    contracts = op.is_a(Trait.CONTRACTION) or op.kind == "sdpa"
    convolves, has_kernel = op.kind == "convolution", op.kind in ("convolution", "linear")
    integers = has_kernel and integer_operands(engine, op) is not None
    traits = {
        "tiles of four terms that add in fp16 above 4096": contracts and engine.tile_losses,
        "subnormal operands read as zero": contracts and engine.flush_subnormals,
        "the Winograd form, rounded in between": convolves and engine.winograd and winograd_fits(window_of(op)),
        "one channel that passes no accumulator": convolves and passes_no_accumulator(engine, op),
        "8-bit products added as integers": integers,
        "activations above 4094 infinite in front of 8-bit weights": (
            has_kernel and not integers and engine.int8_activations_q4 and stored_as_int8(op)
        ),
        "the crop path, infinite above 4094": op.labels.get("storage") == "q4",
        f"the {engine.tables} table of {op.kind}": op.kind in BY_SET and not op.attrs.get("hard"),
        f"sums by the path for {engine.reduction_transpose_extent} elements (0x3f0)": adds_on_the_planar_path(op),
        "division by a rounded reciprocal": op.kind == "div" and engine.reciprocal_divide,
    }
    return [trait for trait, taken in traits.items() if taken]

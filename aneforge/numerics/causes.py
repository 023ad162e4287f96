"""What differs between two chips inside one node of a graph, in words."""

from __future__ import annotations

from collections.abc import Sequence

from aneforge.anec.ir import Op
from aneforge.anec.traits import Trait
from aneforge.numerics.products import arithmetic
from aneforge.numerics.rules import is_clamped_copy
from aneforge.numerics.transfer import Walk
from aneforge.sim.convolution import winograd_fits
from aneforge.sim.int8 import integer_operands
from aneforge.sim.rules.contraction import passes_no_accumulator, stored_as_int8, window_of
from aneforge.targets.numeric_facts import FP16_SLICE_SAT

BY_SET = ("tanh", "gelu", "swish")
"""The activations in which the two sets of tables differ."""


def adds_on_the_planar_path(op: Op) -> bool:
    """Whether an op adds many numbers there: a sum or mean, a norm, a softmax or what holds one."""
    if op.is_a(Trait.REDUCTION):
        return not op.is_a(Trait.EXACT)
    return op.is_a(Trait.NORMALISATION) or op.kind == "sdpa"


def causes_of(node: str, walks: Sequence[Walk], reached: bool = False) -> tuple[str, ...]:
    """What the two chips do differently in the ops of a node: whether or not the data ever reach it, or only what
    they can reach."""
    ways = [_ways(node, walk, reached) for walk in walks]
    causes = [f"{way} on {walks[0].engine.target.name} only" for way in ways[0] if way not in ways[1]]
    causes += [f"{way} on {walks[1].engine.target.name} only" for way in ways[1] if way not in ways[0]]
    return tuple(causes)


def _ways(node: str, walk: Walk, reached: bool) -> list[str]:
    ways: dict[str, None] = {}
    for op in walk.module.ops:
        if op.sources[-1:] == (node,) and op.layer is not None:
            ways |= dict.fromkeys(_of_op(op, walk, reached))
    return list(ways)


def _of_op(op: Op, walk: Walk, reached: bool) -> list[str]:
    """What of a chip's ways an op takes; each is there or not."""
    engine = walk.engine
    contracts = op.is_a(Trait.CONTRACTION) or op.kind == "sdpa"
    convolves = op.kind == "convolution"
    has_kernel = op.is_a(Trait.STORED_KERNEL) and op.kind != "deconvolution"
    integers = integer_operands(engine, op) is not None
    clamps = is_clamped_copy(op) or (has_kernel and not integers and engine.int8_activations_q4 and stored_as_int8(op))
    tiles = contracts and engine.tile_losses
    if reached and (clamps or tiles):
        read = [walk.values[operand] for operand in op.operands]
        clamps = clamps and (read[0].special or read[0].size > FP16_SLICE_SAT)
        tiles = tiles and bool(arithmetic(engine, op, *read[:2])[1])
    ways = {
        "tiles of four terms that add in fp16 above 4096": tiles,
        "subnormal operands read as zero": contracts and engine.flush_subnormals,
        "the Winograd form, rounded in between": convolves and engine.winograd and winograd_fits(window_of(op)),
        "one channel that passes no accumulator": convolves and passes_no_accumulator(engine, op),
        "8-bit products added as integers": integers,
        "activations above 4094 infinite in front of 8-bit weights": clamps and has_kernel,
        "the crop path, infinite above 4094": clamps and not has_kernel,
        f"the {engine.tables} table of {op.kind}": op.kind in BY_SET and not op.attrs.get("hard"),
        f"sums by the path for {engine.reduction_transpose_extent} elements (0x3f0)": adds_on_the_planar_path(op),
        "division by a rounded reciprocal": op.kind == "div" and engine.reciprocal_divide,
    }
    return [way for way, taken in ways.items() if taken]

"""Backend code in the forms that a netplist can state: a few rewrites before each op is spelled as a unit.

Lowering spells some layers in several ops, lays operands out for layers, and uses flags and operands that no published
key says. Here they become what a file can hold, with the same numbers when it is read back. Whatever has no such form
stays as it is, and the writer refuses it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from aneforge.compiler.fuse.moves import order_of, pairs_of
from aneforge.compiler.passes import Pattern, Rewriter, is_const, merged_sources, rewrite_by_kind
from aneforge.engine.ir import Module, Op, TensorType
from aneforge.engine.native import AXES, AXIS_NAMES
from aneforge.engine.tensor_type import Params
from aneforge.engine.traits import Trait

MOST_INDEX = 2048
"""The largest index of a gather: fp16 holds every integer up to it."""

_ROWS_TO_COLUMNS = ((2, 4), (4, 2))  # C and W exchanged: what the flags of a product do
_LOG2_E = np.float16(1 / np.log(2))
_STRETCH = 2, 3, 4


class ValueNames:
    """The user's own names of values. An op without one is part of the layer whose result has one."""

    def __init__(self, module: Module, given: frozenset[str]) -> None:
        self.module, self.given = module, given
        self._names = {id(standing): name for name, standing in module.lineage.items()}

    def of(self, op: Op) -> list[str]:
        """Every node whose value an op has, in the order of the graph."""
        return [self._names[id(standing)] for standing in op.stands if id(standing) in self._names]

    def has_own(self, op: Op) -> bool:
        return any(name in self.given for name in self.of(op))


def in_published_forms(module: Module, names: ValueNames) -> None:
    """Rewrite a module in place."""
    moves: dict[str, Pattern] = {"reshape": partial(_reshape, names), "transpose": partial(_transpose, names)}
    while rewrite_by_kind(module, moves):
        pass
    patterns = {kind: partial(pattern, names) for kind, pattern in _PATTERNS.items()}
    rewrite_by_kind(module, patterns)
    module.sweep()


# Moves that only lay out an operand or a result.


def _reshape(names: ValueNames, walk: Rewriter, op: Op) -> Op | None:
    before = op.operands[0]
    if op.type == before.type and not names.has_own(op):
        return before
    if before.kind not in ("reshape", "flatten") or names.has_own(before):
        return None
    source = before.operands[0]
    assert op.type is not None
    if before.kind == "flatten":  # the unit gives a line along the width for each image
        n, *image = source.shape
        return _unit(walk, op, "Flatten", [source]) if op.shape == (n, 1, 1, 1, math.prod(image)) else None
    if source.type == op.type:
        return source
    return walk.emit(op.name, [source], op.type, op.attrs, merged_sources(before, op))


def _transpose(names: ValueNames, walk: Rewriter, op: Op) -> Op | None:
    before = op.operands[0]
    if before.kind != "transpose" or names.has_own(before):
        return None
    first, second = order_of(before), order_of(op)
    moved = pairs_of(tuple(first[axis] for axis in second))
    if not moved:
        return before.operands[0]
    assert op.type is not None
    return walk.emit(op.name, [before.operands[0]], op.type, {"transpose_list": moved}, merged_sources(before, op))


# Layers that the graph spells in several ops.


def _unit(walk: Rewriter, op: Op, tag: str, operands: list[Op], **params: Any) -> Op:
    assert op.type is not None
    return walk.emit("anec.unit", operands, op.type, {"type": tag, "params": Params(params)}, op.sources)


def _number(walk: Rewriter, op: Op) -> float | None:
    """The value of a stored constant of one number."""
    if not is_const(op) or np.prod(op.shape) != 1:
        return None
    return float(walk.module.weights[op.attrs["weight"]].array.reshape(-1)[0])


def _cast(names: ValueNames, walk: Rewriter, op: Op) -> Op | None:
    """A comparison's unit gives 0 and 1 by itself, and a port of bytes is read as numbers."""
    before = op.operands[0]
    is_bytes = before.kind == "live_in" and before.type is not None and before.type.dtype == "ui8"
    return before if before.is_a(Trait.COMPARISON) or is_bytes else None


def _spread(x: Op, vector: Op) -> bool:
    """Whether one operand has one number for each channel of the other, or one for all."""
    n, d, c, h, w = vector.shape
    own = x.shape[2]
    return (d, h, w) == (1, 1, 1) and n in (1, x.shape[0]) and c in (1, own) and vector.shape != x.shape


def _inner_product(names: ValueNames, op: Op, operand: Op) -> bool:
    return operand.kind == "mult" and operand.only_user is op and not names.has_own(operand)


def _add(names: ValueNames, walk: Rewriter, op: Op) -> Op | None:
    """A product and then a sum are one gain-offset layer, and so is a sum with one number for each channel. Of stored
    numbers only two scalars are: no key holds a stored vector."""
    x, offset = op.operands
    if _inner_product(names, op, x) and x.shape == op.shape:
        value, gain = x.operands
        scalars = _number(walk, gain), _number(walk, offset)
        if scalars[0] is not None and scalars[1] is not None and value.shape == op.shape:
            return _unit(walk, op, "GOC", [value], ScaleScalar=scalars[0], BiasScalar=scalars[1])
        live = not (is_const(gain) and is_const(offset))
        if live and not is_const(value) and _spread(value, gain) and _spread(value, offset):
            return _unit(walk, op, "DynamicGOC", [value, gain, offset], BiasOnly=False)
    if not is_const(offset) and not is_const(x) and x.shape == op.shape and _spread(x, offset):
        return _unit(walk, op, "DynamicGOC", [x, offset], BiasOnly=True)
    return None


def _mult(names: ValueNames, walk: Rewriter, op: Op) -> Op | None:
    """A natural logarithm times 1 / ln 2 is the authored Log2."""
    x, factor = op.operands
    if x.kind != "log2" or x.only_user is not op or names.has_own(x) or not x["base_e"] or x["epsilon"]:
        return None
    return _unit(walk, op, "Neuron", [x.operands[0]], Type="Log2") if _number(walk, factor) == _LOG2_E else None


def _affine(names: ValueNames, walk: Rewriter, op: Op) -> Op | None:
    """A gain-offset with stored operands as a product and a sum, which phase 1 joins again."""
    if len(op.operands) == 1 or op["gain"] != 1.0 or op["bias"] != 0.0:
        return None
    x, *vectors = op.operands
    assert op.type is not None
    if len(vectors) == 2:
        scalars = [_number(walk, vector) for vector in vectors]
        if None not in scalars and scalars[0] != 1 and scalars[1] != 0:
            return _unit(walk, op, "GOC", [x], ScaleScalar=scalars[0], BiasScalar=scalars[1])
    value = x
    for kind, vector, neutral in zip(("mult", "add"), vectors, (1, 0), strict=False):
        stored = walk.module.weights[vector.attrs["weight"]].array if is_const(vector) else None
        if stored is None or not (stored == neutral).all():
            value = walk.emit(f"anec.{kind}", [value, vector], op.type, None, op.sources)
    return value


# Flags and operands without a key of their own.


def _convolution(names: ValueNames, walk: Rewriter, op: Op) -> Op | None:
    """The bias as a sum behind the layer."""
    if len(op.operands) < 3:
        return None
    assert op.type is not None
    product = walk.emit(op.name, op.operands[:2], op.type, op.attrs, op.sources)
    return walk.emit("anec.add", [product, op.operands[2]], op.type, None, op.sources)


def _matmul(names: ValueNames, walk: Rewriter, op: Op) -> Op | None:
    """Flags as transposes, the bias as a sum."""
    flags = [bool(op["transpose_lhs"]), bool(op["transpose_rhs"])]
    if not any(flags) and len(op.operands) == 2:
        return None
    assert op.type is not None
    sides = []
    for operand, turned in zip(op.operands, flags, strict=False):
        n, d, c, h, w = operand.shape
        attrs = {"transpose_list": _ROWS_TO_COLUMNS}
        swapped = TensorType((n, d, w, h, c))
        sides.append(walk.emit("anec.transpose", [operand], swapped, attrs, op.sources) if turned else operand)
    product = walk.emit("anec.matmul", sides, op.type, None, op.sources)
    if len(op.operands) == 2:
        return product
    return walk.emit("anec.add", [product, op.operands[2]], op.type, None, op.sources)


# Layers under the type that was authored.


def _sigmoid(names: ValueNames, walk: Rewriter, op: Op) -> Op | None:
    """Of the two sigmoids only the precise one was authored."""
    return _unit(walk, op, "Neuron", [op.operands[0]], Type="SigmoidHighPrecision")


def _square(names: ValueNames, walk: Rewriter, op: Op) -> Op | None:
    assert op.type is not None
    return walk.emit("anec.mult", [op.operands[0], op.operands[0]], op.type, None, op.sources)


def _tile(names: ValueNames, walk: Rewriter, op: Op) -> Op | None:
    """Copies along axes of one are a broadcast, whose sizes are free; those of Tile are not."""
    extents, multiples = op.operands[0].shape, op["multiples"]
    grown = [axis for axis in range(5) if multiples[axis] > 1]
    if any(extents[axis] != 1 or axis not in _STRETCH for axis in grown):
        return None
    info = [{"Dimension": AXIS_NAMES[axis], "Size": multiples[axis]} for axis in grown]
    return _unit(walk, op, "Broadcast", [op.operands[0]], BroadcastInfo=info)


def _line(names: ValueNames, walk: Rewriter, op: Op) -> Op | None:
    """A line of channels, which no unit gives, as the reshape that it is."""
    assert op.type is not None
    return walk.emit("anec.reshape", op.operands, op.type, {"shape": op.shape}, op.sources)


def _gather(names: ValueNames, walk: Rewriter, op: Op) -> Op | None:
    """Indices at equal distances along one axis are a view with a step; others are a stored operand."""
    indices, axes = op.attrs.get("indices"), op["axes"]
    if not indices or len(axes) != 1 or AXIS_NAMES[axes[0]] not in AXES:
        return None
    assert op.type is not None
    step = indices[1] - indices[0] if len(indices) > 1 else 1
    if step < 1 or any(late - early != step for early, late in pairwise(indices)):
        if max(indices) > MOST_INDEX:
            return None
        stored = walk.constant(indices, TensorType((1, 1, 1, len(indices), 1)), op.sources)
        return walk.emit(op.name, [op.operands[0], stored], op.type, {"axes": axes}, op.sources)
    view = {"Dimension": AXIS_NAMES[axes[0]], "Offset": indices[0], "Size": len(indices), "Step": step}
    return _unit(walk, op, "InputView", [op.operands[0]], **view)


_PATTERNS: Mapping[str, Callable[[ValueNames, Rewriter, Op], Op | None]] = {
    "add": _add,
    "cast": _cast,
    "convolution": _convolution,
    "deconvolution": _convolution,
    "flatten": _line,
    "gain_offset_control": _affine,
    "gather_nd": _gather,
    "matmul": _matmul,
    "mult": _mult,
    "n_relu": lambda names, walk, op: _unit(
        walk, op, "Neuron", [op.operands[0]], Type="ClampedReLU", ReluMin=0.0, ReluMax=op["max_val"]
    ),
    "sigmoid": _sigmoid,
    "square": _square,
    "tile": _tile,
}

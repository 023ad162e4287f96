"""Sums of many numbers on the planar path: reductions, and through them softmax and the norms.

The order of these sums is not known (N60). This model gives the level of every printed error norm to within some per
cent, and the sign and size by which sums of positive numbers come out too large: neighbours are added as a small tree,
some of its results one after the other, every addition rounded to fp16; the results of these groups are added exactly.
A step has the bits of fp16 and more exponents: only a stored number is infinite, so the mean of many numbers can be
finite where their plain sum is not. The reciprocal of the count, in fp16, multiplies the whole sum; one rounding gives
the result (U50).
"""

from __future__ import annotations

import math

import numpy as np

from aneforge.anec.ir import Op
from aneforge.sim import native
from aneforge.sim.engine import Engine
from aneforge.sim.half import narrowed, paired, round_step, widened
from aneforge.targets.assumed import constant

Array = np.ndarray


def summed(x: Array, axes: tuple[int, ...]) -> Array:
    """The sum along some axes, which stay with extent one; elements in the order of those axes."""
    return narrowed(totals(x, axes))


def averaged(x: Array, axes: tuple[int, ...]) -> Array:
    """The sum times the reciprocal of the count in fp16, which gives layer norms their error level."""
    count = math.prod(x.shape[axis] for axis in axes)
    return narrowed(totals(x, axes) * float(np.float16(1 / count)))


def totals(x: Array, axes: tuple[int, ...]) -> Array:
    """The sums of ``summed`` before they are stored, in float64."""
    kept = tuple(axis for axis in range(x.ndim) if axis not in axes)
    shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(x.shape))
    count = math.prod(x.shape[axis] for axis in axes)
    lines = np.ascontiguousarray(x.transpose(*kept, *axes)).reshape(-1, count)
    tree, run = constant("reduction_tree"), constant("reduction_run")
    short = -count % (tree * run)
    padded = np.pad(lines, ((0, 0), (0, short))) if short else lines
    form = native.line_sums if native.available() else line_sums
    return form(padded, tree, run).reshape(shape)


def line_sums(lines: Array, tree: int, run: int) -> Array:
    """The sum of each line: trees of neighbours, ``run`` of them in sequence, in steps; those groups exactly."""
    parts = widened(lines)
    with np.errstate(invalid="ignore"):  # opposite infinities
        for _ in range(tree.bit_length() - 1):
            parts = _step(parts[:, 0::2], parts[:, 1::2])
        parts = parts.reshape(len(parts), -1, run)
        total = parts[:, :, 0]
        for place in range(1, run):
            total = _step(total, parts[:, :, place])
        return total.sum(axis=1)


def _step(a: Array, b: Array) -> Array:
    """One addition; an indeterminate form is zero (N32)."""
    return round_step(np.nan_to_num(a + b, nan=0.0, posinf=np.inf, neginf=-np.inf))


def _entering(op: Op, x: Array) -> Array:
    return paired("mult", x, x) if op.attrs.get("square_input") else x


def _sum(engine: Engine, op: Op, x: Array) -> Array:
    return summed(_entering(op, x), op.attrs["axes"])


def _average(engine: Engine, op: Op, x: Array) -> Array:
    return averaged(_entering(op, x), op.attrs["axes"])


REDUCTIONS = {"reduce_sum": _sum, "reduce_avg": _average}

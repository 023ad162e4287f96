"""Elementwise arithmetic, activations, softmax and the norms: fp16 with a rounding at every step (N47, N53)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from aneforge.chips.assumed import constant
from aneforge.compiler.legalise.floors import FLOOR_DIVIDE
from aneforge.engine.interpret import rule_of
from aneforge.engine.ir import Op
from aneforge.graph.halves import FP16_MAX
from aneforge.sim import native
from aneforge.sim.engine import Engine
from aneforge.sim.half import gained, narrowed, paired, round_step, widened
from aneforge.sim.mac import CEILING
from aneforge.sim.tables import activation, look_up, looked_up

# Sums of many numbers on the planar path: reductions, and through them softmax and the norms.


def summed(x: Array, axes: tuple[int, ...]) -> Array:
    """The sum along some axes, which stay with extent one; elements in the order of those axes."""
    return narrowed(totals(x, axes))


def averaged(x: Array, axes: tuple[int, ...]) -> Array:
    """The sum times the reciprocal of the count in fp16, which gives layer norms their error level."""
    share = np.float16(1 / math.prod(x.shape[axis] for axis in axes))
    if constant("mean_share") == "first":
        return narrowed(totals(paired("mult", x, np.array([share])), axes))
    return narrowed(totals(x, axes) * float(share))


def totals(x: Array, axes: tuple[int, ...]) -> Array:
    """The sums of ``summed`` before they are stored, in float64."""
    kept = tuple(axis for axis in range(x.ndim) if axis not in axes)
    shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(x.shape))
    count = math.prod(x.shape[axis] for axis in axes)
    lines = np.ascontiguousarray(x.transpose(*kept, *axes)).reshape(-1, count)
    tree, run = constant("reduction_tree"), constant("reduction_run")
    if constant("reduction_order") == "running":
        return running_sums(lines, run).reshape(shape)
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


def running_sums(lines: Array, steps: int) -> Array:
    """The sum of each line in so many parts of equal count, each exact, added one after the other in steps."""
    parts = np.array_split(widened(lines), steps, axis=1)
    total = np.zeros(len(lines))
    with np.errstate(invalid="ignore"):
        for part in parts:
            total = _step(total, part.sum(axis=1))
    return total


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


Array = np.ndarray
Rule = Callable[..., Array]


def _pair(operation: str) -> Rule:
    return lambda engine, op, a, b: paired(operation, a, b)


def _divided(engine: Engine, op: Op, a: Array, b: Array) -> Array:
    """Some chips multiply by a reciprocal that was rounded before (N44, N72, U62)."""
    if not engine.reciprocal_divide:
        return paired("div", a, b)
    return paired("mult", a, paired("div", np.ones(1, np.float16), b))


def _multiplied(engine: Engine, op: Op, a: Array, b: Array) -> Array:
    """One rounding, except before the floor that ends a floor-divide: that floor reads the unrounded product, so that
    floor(6 / 3) is 1 where a third was rounded down (N44)."""
    reader = op.only_user
    if reader is not None and reader.labels.get("data_path") == FLOOR_DIVIDE:
        return narrowed(np.floor(widened(a) * widened(b)))
    return paired("mult", a, b)


def _scaled(engine: Engine, op: Op, a: Array, b: Array) -> Array:
    """The pair, then the scale, which a product ignores as the layer does on silicon (layers.json)."""
    mode, scale = op.attrs["mode"], op.attrs["scale"]
    if mode in ("Add", "Mult"):
        result = paired(mode.lower(), a, b)
    else:
        result = narrowed((np.minimum if mode == "Min" else np.maximum)(widened(a), widened(b)))
    return result if mode == "Mult" else paired("mult", result, np.array([scale]).astype(np.float16))


def _quantised(engine: Engine, op: Op, x: Array) -> Array:
    """Integers of the scale, ties away from zero, moved by the zero point and clamped to the range of 8 bits."""
    low, high = (0, 255) if op.attrs["to"] == "ui8" else (-128, 127)
    with np.errstate(all="ignore"):
        steps = widened(x) / op.attrs["scale"]
        whole = np.trunc(steps + np.copysign(0.5, steps)) + op.attrs["zero_point"]
    return np.clip(whole, low, high).astype(np.float16)


def _dequantised(engine: Engine, op: Op, x: Array) -> Array:
    """The distance from the zero point, which is exact, times the scale: one rounding (U67)."""
    with np.errstate(all="ignore"):
        return narrowed((widened(x) - op.attrs["zero_point"]) * op.attrs["scale"])


def _square(engine: Engine, op: Op, x: Array) -> Array:
    return paired("mult", x, x)


def _table(engine: Engine, op: Op, x: Array) -> Array:
    settings = {name: float(value) for name, value in op.attrs.items() if isinstance(value, (int, float))}
    return look_up(activation(op.kind, tuple(sorted(settings.items())), engine.tables), x)


def _gain_offset(engine: Engine, op: Op, x: Array, scale: Array | None = None, offset: Array | None = None) -> Array:
    """One rounding for gain and offset together (U48). In front of a table of its own layer, the accumulators add the
    offset, and they are infinite from 2^15 on (U49)."""
    summed = any(user.layer == op.layer and user.kind in TABLES for user in op.users)
    return gained(x, scale, offset, op["gain"], op["bias"], CEILING if summed else np.inf)


def _swish(engine: Engine, op: Op, x: Array) -> Array:
    """The plain form is a table; the hard one is its float64 meaning, rounded."""
    return (
        narrowed(rule_of(op)(op, widened(x)))
        if op.attrs.get("hard")
        else look_up(activation("swish", (), engine.tables), x)
    )


def _softmax(engine: Engine, op: Op, x: Array) -> Array:
    return weighed(engine, x, op.attrs["axes"])


def weighed(engine: Engine, x: Array, axes: tuple[int, ...], subtract_max: bool = True) -> Array:
    """The maximum is subtracted in fp16, powers come from the table, their sum is that of a reduction, the quotient is
    rounded (N28, N61). An attention may leave the maximum in: then a power above 11.09 is infinite (N29)."""
    table = activation("exp2", (("base_e", 1.0),), engine.tables)
    lines = _lines(x, axes)
    if lines is not None and subtract_max and lines.shape[1] <= FP16_MAX:
        done = native.softmax_lines(lines, table, constant("reduction_tree"), constant("reduction_run"))
        return done.reshape(x.shape)
    shifted = paired("sub", x, narrowed(widened(x).max(axis=axes, keepdims=True))) if subtract_max else x
    powers = look_up(table, shifted)
    if math.prod(x.shape[axis] for axis in axes) <= FP16_MAX:
        return paired("div", powers, summed(powers, axes))
    whole = round_step(totals(powers, axes))  # inside the layer, where a sum has more exponents than fp16 (U50)
    return narrowed(widened(powers) / whole, twice=True)


def _lines(x: Array, axes: tuple[int, ...]) -> Array | None:
    """A dense array as [outer, count, inner], where some neighbouring axes are the count; None where the C form cannot
    have it."""
    usual = constant("reduction_order") == "groups" and constant("mean_share") == "last"
    dense = usual and native.available() and x.flags.c_contiguous and x.size > 0
    if not dense or axes != tuple(range(axes[0], axes[0] + len(axes))):
        return None
    return x.reshape(math.prod(x.shape[: axes[0]]), -1, math.prod(x.shape[axes[-1] + 1 :]))


def _norm(engine: Engine, op: Op, x: Array, gamma: Array | None = None, beta: Array | None = None) -> Array:
    """Mean, difference, square, mean, epsilon, reciprocal root, product, gain and offset, each rounded to fp16."""
    axes, groups = op["axes"], op.attrs.get("groups", 1)  # an instance norm has no groups
    roots = activation("r_sqrt", (), engine.tables)
    epsilon = np.array([op.attrs["epsilon"]]).astype(np.float16)
    lines = None if groups > 1 else _lines(x, axes)
    along = [operand for operand in (gamma, beta) if operand is not None]
    if lines is not None and all(operand.size == lines.shape[1] for operand in along):
        gains, starts = (None if operand is None else np.ascontiguousarray(operand) for operand in (gamma, beta))
        tree, run = constant("reduction_tree"), constant("reduction_run")
        return native.norm_lines(lines, roots, gains, starts, epsilon[0], tree, run).reshape(x.shape)
    split = x
    if groups > 1:
        n, _, c, h, w = x.shape
        split = x.reshape(n, groups, c // groups, h, w)  # depth is one in this form, so its axis can hold the groups
        axes = tuple(axis for axis in axes if axis != 1)
    centred = paired("sub", split, averaged(split, axes))
    spread = averaged(paired("mult", centred, centred), axes)
    shifted = paired("add", spread, epsilon)
    result = paired("mult", centred, look_up(roots, shifted)).reshape(x.shape)
    result = result if gamma is None else paired("mult", result, gamma)
    return result if beta is None else paired("add", result, beta)


TABLES = frozenset(looked_up()) - {"swish"}
"""Functions that are one table in every form; a swish also has a hard form."""

PLANAR: dict[str, Rule] = {
    "add": _pair("add"),
    "sub": _pair("sub"),
    "mult": _multiplied,
    "div": _divided,
    "dequant": _dequantised,
    "quant": _quantised,
    "scaled_elementwise": _scaled,
    "square": _square,
    "sqr": _square,
    "softmax": _softmax,
    "layer_norm": _norm,
    "instance_norm": _norm,
    "swish": _swish,
    **REDUCTIONS,
    "gain_offset_control": _gain_offset,
    **dict.fromkeys(TABLES, _table),
}

"""Ops that become other functions of numbers: special functions, recurrences, sums, interpolation, host numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from aneforge import special
from aneforge.compiler.legal.bounds import TAN_OF_ENGINE
from aneforge.compiler.legal.rewrites.context import Context, RewriteResult
from aneforge.compiler.legal.rewrites.movement import PieceCut, joined
from aneforge.graph.node import Shape, make, ops_with
from aneforge.graph.ops.contraction import conv, conv_transpose, linear, matmul
from aneforge.graph.ops.leaf import CONST, const
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.graph.weights import Weight, derived_weight


def special_function(op: str) -> Callable[[Context], Tensor]:
    """The function of that name, applied to the operands of a node."""
    function = getattr(special, op)

    def apply(context: Context) -> Tensor:
        return function(*context.inputs)

    apply.__doc__ = function.__doc__
    return apply


def tan(context: Context) -> Tensor | RewriteResult:
    """Sine over cosine: the engine's own where it has them, else of one shared range reduction."""
    x = context.inputs[0]
    if context.native("sin") and context.native("cos"):
        return RewriteResult(x.sin() / x.cos(), TAN_OF_ENGINE)
    return special.tan(x)


# Recurrent cells, unrolled: the input product of all steps at once, then one small product per gate and step.


def _gates(weight: Tensor, gates: int) -> list[Tensor]:
    """Equal parts along the first axis; parts of a constant are constants."""
    rows = weight.shape[0] // gates
    if weight.op == "const" and weight.weight is not None:
        values = weight.weight.array
        return [const(values[i * rows : (i + 1) * rows]) for i in range(gates)]
    if weight.ndim == 1:  # cut along an axis that is not the last
        column = weight.reshape(weight.shape[0], 1)
        return [column.slice_by_size([i * rows, 0], [rows, 1]).reshape(rows) for i in range(gates)]
    return [weight.slice_by_size([i * rows, 0], [rows, weight.shape[1]]) for i in range(gates)]


def _steps(x: Tensor) -> list[Tensor]:
    """[steps, batch, features] as one [batch, features] per step."""
    _, batch, features = x.shape
    return [x.slice_by_size([i, 0, 0], [1, batch, features]).reshape(batch, features) for i in range(x.shape[0])]


def _unrolled(context: Context, gates: int, cell: Callable[..., tuple[Tensor, ...]]) -> Tensor:
    x, w, r, b, *states = context.inputs
    weights, biases = _gates(w, gates), _gates(b, gates)
    input_parts = [_steps(linear(x, weight, bias)) for weight, bias in zip(weights, biases, strict=True)]
    recurrent = _gates(r, gates)
    outputs = []
    for parts in zip(*input_parts, strict=True):
        states = list(cell(parts, recurrent, *states))
        outputs.append(states[0].expand_dims(0))
    return joined(outputs, 0)


def rnn(context: Context) -> Tensor:
    """tanh(input part + recurrent part), step after step."""

    def cell(parts: tuple[Tensor, ...], r: list[Tensor], h: Tensor) -> tuple[Tensor, ...]:
        return ((parts[0] + linear(h, r[0])).tanh(),)

    return _unrolled(context, 1, cell)


def lstm(context: Context) -> Tensor:
    """Gates input, forget, cell, output as sigmoid and tanh of sums, step after step."""

    def cell(parts: tuple[Tensor, ...], r: list[Tensor], h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        i, f, g, o = (part + linear(h, weight) for part, weight in zip(parts, r, strict=True))
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c

    return _unrolled(context, 4, cell)


def gru(context: Context) -> Tensor:
    """Gates reset, update, new; the reset multiplies the recurrent product."""

    def cell(parts: tuple[Tensor, ...], r: list[Tensor], h: Tensor) -> tuple[Tensor, ...]:
        reset = (parts[0] + linear(h, r[0])).sigmoid()
        update = (parts[1] + linear(h, r[1])).sigmoid()
        fresh = (parts[2] + reset * linear(h, r[2])).tanh()
        return ((1.0 - update) * fresh + update * h,)

    return _unrolled(context, 3, cell)


# Running sums as products with a triangle of ones, and product reductions by halving.


_PRODUCT_RANK = 4  # products take at most this many axes (matmul-rank)
_BLOCK = 512  # a triangle of this extent is half a megabyte; longer axes are summed in blocks of it


def _upper(extent: int) -> Tensor:
    return const(np.triu(np.ones((extent, extent), np.float16)))


def cumsum(context: Context) -> Tensor:
    """The axis last, times an upper triangle of ones; long axes in blocks, with the sums of earlier blocks added."""
    x, axis = context.inputs[0], context.node.attrs["axis"]
    if x.ndim > _PRODUCT_RANK:  # all axes before, the axis, and all behind it
        sides = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
        lines = x.reshape(*sides).transpose([0, 2, 1])
        return _last_axis(lines).transpose([0, 2, 1]).reshape(*x.shape)
    order = [i for i in range(x.ndim) if i != axis] + [axis]
    moved = axis != x.ndim - 1
    lines = x.transpose(order) if moved else x
    result = _last_axis(lines)
    return result.transpose([order.index(i) for i in range(x.ndim)]) if moved else result


def _last_axis(x: Tensor) -> Tensor:
    extent = x.shape[-1]
    if extent <= _BLOCK:
        rows = x if x.ndim > 1 else x.reshape(1, extent)
        result = matmul(rows, _upper(extent))
        return result if x.ndim > 1 else result.reshape(extent)
    blocks = -(-extent // _BLOCK)
    rows = x.reshape(x.size // extent, extent)
    spare = blocks * _BLOCK - extent
    if spare:
        rows = rows.pad([(0, 0), (0, spare)])
    folded = rows.reshape(rows.shape[0], blocks, _BLOCK)
    totals = folded.sum(2).reshape(rows.shape[0], blocks)
    earlier = totals.pad([(0, 0), (1, 0)]).slice_by_size([0, 0], totals.shape)  # a zero first, the last one out
    sums = matmul(folded, _upper(_BLOCK)) + _last_axis(earlier).reshape(rows.shape[0], blocks, 1)
    flat = sums.reshape(rows.shape)
    if spare:
        flat = flat.slice_by_size([0, 0], [rows.shape[0], extent])
    return flat.reshape(x.shape)


def prod(context: Context) -> Tensor:
    """The first half times the second, again and again; an odd element waits until the end."""
    x = context.inputs[0]
    for axis in context.node.attrs["axes"]:
        x = _product(x, axis)
    return x


def _product(x: Tensor, axis: int) -> Tensor:
    spare: Tensor | None = None
    while x.shape[axis] > 1:
        cut = PieceCut(x, axis)
        half = x.shape[axis] // 2
        if x.shape[axis] % 2:
            last = cut.whole(cut.piece(2 * half, 1))
            spare = last if spare is None else spare * last
        x = cut.whole(cut.piece(0, half) * cut.piece(half, half))
    return x if spare is None else x * spare


# Random numbers: chips without the generator get them from the host, as inputs of the program.


@dataclass(frozen=True, eq=False)
class HostInput:
    """An input the host must fill before a run: what to draw, and the seed that repeats the reference."""

    tensor: Tensor
    name: str
    shape: Shape
    distribution: str
    parameters: tuple[float, ...]
    seed: int

    def values(self, seed: int | None = None) -> np.ndarray:
        """The numbers to feed: those of the op's reference, or of another seed."""
        draw = np.random.default_rng(self.seed if seed is None else seed)
        first, second = self.parameters
        if self.distribution == "uniform":
            return draw.uniform(first, second, self.shape)
        if self.distribution == "normal":
            return draw.normal(first, second, self.shape)
        return (draw.random(self.shape) >= first) * second

    def drawn(self) -> Weight:
        """The numbers of the reference, as the initial value of a port; drawn when they are first read."""
        return derived_weight(f"drawn by the host: {sorted(self.to_json().items())}", (), self.shape, self.values)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "shape": list(self.shape),
            "distribution": self.distribution,
            "parameters": list(self.parameters),
            "seed": self.seed,
        }


def dropout(context: Context) -> Tensor:
    """x times a mask of 0 and 1 / (1 - rate) that the host draws; rate 0 is x itself.

    The host scales the mask, so that the chip does one product and rounds once.
    """
    attrs = context.node.attrs
    rate = attrs["rate"]
    if rate == 0:
        return context.inputs[0]
    scale = 1 / (1 - rate)
    return context.inputs[0] * context.host("mask", context.node.shape, (rate, scale), attrs["seed"], scale)


def random_uniform(context: Context) -> Tensor:
    """An input of uniform numbers that the host draws."""
    attrs = context.node.attrs
    low, high = attrs["low"], attrs["high"]
    return context.host("uniform", context.node.shape, (low, high), attrs["seed"], max(abs(low), abs(high)))


def random_normal(context: Context) -> Tensor:
    """An input of normal numbers that the host draws."""
    attrs = context.node.attrs
    return context.host("normal", context.node.shape, (attrs["mean"], attrs["std"]), attrs["seed"], None)


# The numbers of a resize: the kernel of an upsampling by whole factors, and the matrix of any other.


def kernel_size(factor: int, linear: bool) -> int:
    """The outputs that one element touches along an axis: its own, or half a neighbour more on both sides."""
    return 2 * factor - factor % 2 if linear and factor > 1 else factor


def upsampling_kernel(channels: int, factors: tuple[int, int], linear: bool) -> Weight:
    """The channel-wise kernel of a deconvolution by the factors."""
    lines = [_line(factor, linear) for factor in factors]
    shape = (channels, 1, len(lines[0]), len(lines[1]))
    recipe = f"{'linear' if linear else 'nearest'} upsampling by {factors[0]} and {factors[1]}"
    return derived_weight(recipe, (), shape, lambda: np.broadcast_to(np.outer(*lines), shape))


def _line(factor: int, linear: bool) -> np.ndarray:
    """The kernel along one axis: ones, or the triangle around an element's centre at half-pixel positions."""
    size = kernel_size(factor, linear)
    if not linear or factor == 1:
        return np.ones(size)
    places = np.arange(size) - factor // 2
    return 1 - np.abs((places + 0.5) / factor - 0.5)


def fits_fp16(numbers: np.ndarray) -> bool:
    """Whether every number is an fp16 number."""
    return bool((numbers.astype(np.float16) == numbers).all())


def exact_upsampling(factors: tuple[int, int], linear: bool) -> bool:
    """Whether fp16 holds every weight of the deconvolution as it is: powers of two divide evenly."""
    return fits_fp16(np.outer(*(_line(factor, linear) for factor in factors)))


def passes_through(size: int, out: int, mode: str) -> bool:
    """Whether every output along an axis is the input at the same place."""
    return size == out and mode != "OffsetCorners"


def interpolation_kernel(size: int, out: int, method: str, mode: str) -> Weight:
    """The matrix as the kernel of a 1 x 1 convolution over an axis that lies on the channels."""
    recipe = f"resize {size} to {out}, {method}, {mode}"
    return derived_weight(recipe, (), (out, size, 1, 1), lambda: interpolation(size, out, method, mode))


def interpolation(size: int, out: int, method: str, mode: str) -> np.ndarray:
    """What each output takes of each input along one axis, for the sampling grids of enums.json."""
    from aneforge.engine.interpret_spatial import sample_positions  # few models need it, and every check imports this

    places = sample_positions(size, out, mode)
    matrix = np.zeros((out, size))
    rows = np.arange(out)
    if method == "NearestNeighbor":  # the default grid rounds down, the others to the nearest
        nearest = np.floor(places + (0.0 if mode == "Default" else 0.5)).astype(int)
        matrix[rows, np.minimum(nearest, size - 1)] = 1.0
        return matrix
    low = np.floor(places).astype(int)
    part = places - low
    matrix[rows, low] += 1 - part
    matrix[rows, np.minimum(low + 1, size - 1)] += part
    return matrix


# The two ways to resize without a texture engine, as ops of the graph: a deconvolution, or a product along each
# axis.


RESIZES = tuple(sorted(ops_with(GraphTrait.RESIZE)))


def resized_by_deconvolution(context: Context) -> Tensor:
    """A channel-wise deconvolution by whole factors, with its edges repeated once for linear sampling."""
    x, shape = context.inputs[0], context.node.shape
    linear = "bilinear" in context.node.op
    factors = shape[2] // x.shape[2], shape[3] // x.shape[3]
    kernel = make(CONST, weight=upsampling_kernel(x.shape[1], factors, linear))
    pads: list[int] = []
    for axis, factor in zip((2, 3), factors, strict=True):
        if linear and factor > 1:
            cut = PieceCut(x, axis)
            x = cut.whole(joined([cut.piece(0, 1), cut.x, cut.piece(x.shape[axis] - 1, 1)], cut.axis))
            pads += [factor + factor // 2, kernel_size(factor, linear) - factor // 2]
        else:
            pads += [0, 0]
    return conv_transpose(x, kernel, stride=factors, pad=pads, groups=x.shape[1])


def resized_by_products(context: Context) -> Tensor:
    """Each resized axis in turn on the channels, mixed there by a 1 x 1 convolution."""
    node, value = context.node, context.inputs[0]
    linear = "bilinear" in node.op
    method = "Linear" if linear else "NearestNeighbor"
    mode = "Default" if not linear else "StrictAlignedCorners" if node.attrs["align_corners"] else "UnalignedCorners"
    for axis in (2, 3):
        size, out = value.shape[axis], node.shape[axis]
        if not passes_through(size, out, mode):
            order = [0, 2, 1, 3] if axis == 2 else [0, 3, 2, 1]
            kernel = make(CONST, weight=interpolation_kernel(size, out, method, mode))
            value = conv(value.transpose(order), kernel).transpose(order)
    return value

"""Convolutions, products and attention: the multiply-accumulate path.

A maker reads an op once, decodes and lays out its weights, and returns the ops to read and the function to call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aneforge.engine.interpret_contraction import unpacked
from aneforge.engine.ir import AnecError, Op
from aneforge.engine.traits import Trait
from aneforge.engine.windows import effective_padding, effective_stride
from aneforge.sim.convolution import winograd_fits
from aneforge.sim.engine import Engine
from aneforge.sim.half import Window, gained, narrowed, paired
from aneforge.sim.int8 import Integers, integer_operands
from aneforge.sim.rules.moves import q4
from aneforge.sim.rules.planar import weighed
from aneforge.sim.stored import convolution_form, matrix_form

Array = np.ndarray
_CHANNELS, _LINE = 2, 4  # where outputs lie: of a convolution, of a product
PreparedCall = tuple[tuple[Op, ...], Callable[..., Array]]
Shape = tuple[int, ...]
Form = Callable[[Array, "Array | None"], Array]
Maker = Callable[[Engine, Op, "Array | None", dict[str, Array]], PreparedCall]


def decoded_kernel(op: Op, weight: Array, outputs: int, named: dict[str, Array]) -> Array:
    """A stored kernel as fp16. The engine decodes a kernel that streams and rounds half away; the host decodes a
    kernel that is folded and rounds ties to even."""
    if not named:
        return weight
    wide = unpacked(op, weight.astype(np.float64), outputs, **named)
    if is_decoded_on_host(op):
        with np.errstate(over="ignore"):
            return wide.astype(np.float16)
    return narrowed(wide)


def is_decoded_on_host(op: Op) -> bool:
    """Whether a kernel of codes is expanded before it reaches the engine. The pass that packs kernels writes this on
    the stored constant, since one constant may serve several ops."""
    coded = any(name in op.attrs for name in op.spec.stored)
    return coded and op.operands[1].labels.get("weight_flow") == "fold"


def sums_codes(engine: Engine, op: Op) -> bool:
    """Whether a product is summed in the numbers that its kernel stores, and scaled at its end (N67, N69, N70).

    That is the case for codes of 4 bits, and for tables with a scale. Bytes with a scale are decoded first (U66), and
    so is what the host expands.
    """
    if not engine.scaled_code_sums or "kernel_scale" not in op.attrs or is_decoded_on_host(op):
        return False
    kernel = op.operands[1].type
    looked_up = any(name.lower().endswith("lut") for name in op.attrs)
    return kernel is not None and (looked_up or kernel.dtype in ("si4", "ui4"))


def kernel_as_read(engine: Engine, op: Op, stored: Array, outputs: int, named: dict[str, Array]) -> Array:
    """What the multipliers read of a stored kernel: the decoded numbers, or the codes where the scale comes last."""
    if not sums_codes(engine, op):
        return decoded_kernel(op, stored, outputs, named)
    return unpacked(op, stored.astype(np.float64), outputs, **without_scale(named)).astype(np.float16)


def without_scale(named: dict[str, Array]) -> dict[str, Array]:
    return {name: part for name, part in named.items() if name != "kernel_scale"}


def stored_as_int8(op: Op) -> bool:
    """Whether the kernel is 8-bit numbers; indices into a table do not count."""
    kernel = op.operands[1].type
    looked_up = any(name.lower().endswith("lut") for name in op.attrs)
    return kernel is not None and kernel.dtype in ("si8", "ui8") and not looked_up


def _activations(engine: Engine, op: Op) -> Callable[[Array], Array]:
    """How activations reach the multipliers: through fixed point in front of 8-bit weights (N17)."""
    return q4 if engine.int8_activations_q4 and stored_as_int8(op) else lambda x: x


# Convolutions.


def _convolution(engine: Engine, op: Op, kernel: Array | None, named: dict[str, Array]) -> PreparedCall:
    integers = integer_operands(engine, op)
    if integers is not None and kernel is not None and _reads_planes(op):
        return _integer_convolution(op, kernel, named, integers)
    form = _one_channel if passes_no_accumulator(engine, op) else _laid_kernels
    return _with_kernel(engine, op, kernel, named, form, outputs=0)


def has_stored_kernel(op: Op) -> bool:
    """Whether an op of this path has a constant for its second operand, which its rule lays out once."""
    return op.is_a(Trait.STORED_KERNEL) and op.operands[1].kind == "const_in"


def reads_stored_matrix(op: Op) -> bool:
    """Whether an op is a product with one constant matrix."""
    if op.kind != "matmul" or op.operands[1].kind != "const_in":
        return False
    left, right = (operand.shape for operand in op.operands[:2])
    return left[:2] == right[:2] == (1, 1) and right[3] == 1


def joins(op: Op) -> tuple[Any, ...] | None:
    """What convolutions must share to be computed as one; None for a convolution that is computed alone.

    A split layer's pieces read one map by one window and differ in their output channels, which are independent.
    """
    if op.kind != "convolution" or not has_stored_kernel(op) or op.attrs["groups"] != 1:
        return None
    if any(name in op.attrs for name in op.spec.stored) or any(
        operand.kind != "const_in" for operand in op.operands[2:]
    ):
        return None
    geometry = tuple(op.attrs[name] for name in ("kernel_sizes", "strides", "dilation_rates", "explicit_padding"))
    padding_mode = op["padding_mode"]
    return (op.operands[0].uid, len(op.operands), stored_as_int8(op), padding_mode, *geometry)


def joined(engine: Engine, ops: Sequence[Op], kernels: Sequence[Array]) -> PreparedCall:
    """One convolution for several that read the same map; its result holds theirs one after the other."""
    form = _one_channel if passes_no_accumulator(engine, ops[0]) else _laid_kernels
    shape = (*ops[0].shape[:2], sum(op.shape[2] for op in ops), *ops[0].shape[3:])
    convolve = form(engine, ops[0], np.concatenate(kernels), shape)
    entering = _activations(engine, ops[0])
    biases = tuple(operand for op in ops for operand in op.operands[2:])

    def call(x: Array, *starts: Array) -> Array:
        return convolve(entering(x), np.concatenate([bias.reshape(-1) for bias in starts]) if starts else None)

    return (ops[0].operands[0], *biases), call


def _with_kernel(
    engine: Engine, op: Op, stored: Array | None, named: dict[str, Array], form: Callable[..., Form], outputs: int
) -> PreparedCall:
    """A form that keeps its kernel: laid out once where it is stored, at every run where it is computed."""
    entering = _activations(engine, op)
    if stored is None:

        def call(x: Array, kernel: Array, bias: Array | None = None) -> Array:
            return form(engine, op, kernel, op.shape)(entering(x), None if bias is None else bias.reshape(-1))

        return tuple(op.operands), call
    run = form(engine, op, kernel_as_read(engine, op, stored, outputs, named), op.shape)
    if sums_codes(engine, op):
        return _without_kernel(op), _scaled_at_the_end(op, run, named["kernel_scale"])
    return _without_kernel(op), lambda x, bias=None: run(entering(x), None if bias is None else bias.reshape(-1))


def _scaled_at_the_end(op: Op, run: Form, scale: Array) -> Callable[..., Array]:
    """The sum as fp16, then scale and bias with one more rounding, as in the gain-offset unit (U48)."""
    axis = _LINE if op.kind == "linear" else _CHANNELS
    if scale.size not in (1, op.shape[axis]):
        raise AnecError(
            f"{op.name}: kernel_scale has {scale.size} numbers; "
            f"sums of codes take 1, or one for each of {op.shape[axis]} outputs"
        )

    def along(line: Array) -> Array:
        numbers = np.ascontiguousarray(line.reshape(-1).astype(np.float16))
        return numbers.reshape(tuple(-1 if i == axis else 1 for i in range(5)))

    factor = along(scale)

    def call(x: Array, bias: Array | None = None) -> Array:
        return gained(run(x, None), factor, None if bias is None else along(bias))

    return call


def _without_kernel(op: Op) -> tuple[Op, ...]:
    return (op.operands[0], *op.operands[2:])


def passes_no_accumulator(engine: Engine, op: Op) -> bool:
    """Whether a convolution has one input channel and one element, which some chips compute as a planar product
    (N06)."""
    attrs = op.attrs
    plain = set(attrs["kernel_sizes"]) == set(attrs["strides"]) == {1} and not any(attrs["explicit_padding"])
    return engine.one_channel_planar and plain and attrs["groups"] == 1 and op.operands[0].shape[2] == 1


def _one_channel(engine: Engine, op: Op, kernel: Array, shape: Shape) -> Form:
    gains = np.ascontiguousarray(kernel.reshape(1, 1, -1, 1, 1))

    def call(x: Array, bias: Array | None) -> Array:
        result = paired("mult", x, gains)
        return result if bias is None else paired("add", result, bias.reshape(1, 1, -1, 1, 1))

    return call


def replicates_edges(op: Op) -> bool:
    return op["padding_mode"] == "Replication"


def window_of(op: Op) -> Window:
    """The window that a convolution reads of a plane. Edges that are repeated are laid around the plane before.

    A step that is never taken is none, as registers have it: else a program would take Winograd's form only after it
    was written and read back.
    """
    attrs = op.attrs
    pads = (0,) * 6 if replicates_edges(op) else attrs["explicit_padding"]
    size, stride, dilation = (tuple(attrs[name][1:]) for name in ("kernel_sizes", "strides", "dilation_rates"))
    before, after = (pads[2], pads[4]), (pads[3], pads[5])
    if dilation == (1, 1) != stride and not replicates_edges(op):
        shapes = op.operands[0].shape, op.shape
        stride = effective_stride(*shapes, size, stride, before)
        padding = effective_padding(*shapes, size, stride, before)
        after = (padding[3], padding[5])
    return Window(size, stride, dilation, before, after)


def _laid_kernels(engine: Engine, op: Op, kernel: Array, shape: Shape) -> Form:
    """Every image and output depth is a plane; the depths that a kernel reads are stacked as channels."""
    attrs = op.attrs
    pads, groups = attrs["explicit_padding"], attrs["groups"]
    replicated = replicates_edges(op)
    around = ((0, 0), tuple(pads[0:2]), (0, 0), tuple(pads[2:4]), tuple(pads[4:6]))
    window = window_of(op)
    form = _plane_form(engine, kernel, window, groups, takes_winograd(engine, op))
    depths, step, reach = attrs["kernel_sizes"][0], attrs["strides"][0], attrs["dilation_rates"][0]
    plain = depths == step == 1 and not any(pads[0:2]) and not replicated

    def call(x: Array, bias: Array | None) -> Array:
        if plain:
            planes = [form(image, bias) for image in x.reshape(-1, *x.shape[2:])]
            return (planes[0] if len(planes) == 1 else np.stack(planes)).reshape(shape)
        padded = np.pad(x, around, mode="edge") if replicated else np.pad(x, (*around[:2], *((0, 0),) * 3))
        result = np.empty(shape, np.float16)
        for image, depth in np.ndindex(shape[:2]):
            read = padded[image, depth * step : depth * step + reach * (depths - 1) + 1 : reach]
            result[image, depth] = form(_stacked(read, groups), bias)
        return result

    return call


def _stacked(slices: Array, groups: int) -> Array:
    """[depths, channels, rows, columns] as channels: group by group, every depth of it."""
    depths, channels, *plane = slices.shape
    split = slices.reshape(depths, groups, channels // groups, *plane).swapaxes(0, 1)
    return np.ascontiguousarray(split).reshape(depths * channels, *plane)


def takes_winograd(engine: Engine, op: Op) -> bool:
    """Whether a convolution is computed by the width Winograd form. Of 8-bit kernels only those in front of 8-bit
    activations may be (C76), and their sums are integers."""
    plain = op.kind == "convolution" and not stored_as_int8(op)
    return engine.winograd and plain and winograd_fits(window_of(op))


def _plane_form(engine: Engine, kernel: Array, window: Window, groups: int, by_winograd: bool) -> Form:
    """A kernel [outputs, depths, inputs, rows, columns], kept for one of the two forms."""
    flat = kernel.reshape(kernel.shape[0], -1, *kernel.shape[3:])
    return convolution_form(engine, flat, window, groups, by_winograd)


def _reads_planes(op: Op) -> bool:
    """Whether a convolution stays in one depth and pads with zeros: what integer sums are known for."""
    attrs = op.attrs
    return attrs["kernel_sizes"][0] == 1 and not replicates_edges(op) and not any(attrs["explicit_padding"][0:2])


def _integer_convolution(op: Op, kernel: Array, named: dict[str, Array], integers: Integers) -> PreparedCall:
    """Two 8-bit operands (N16)."""
    groups, outputs = op.attrs["groups"], kernel.shape[0]
    window = window_of(op)
    codes, scale = integers.kernel(kernel.reshape(outputs, -1).T, named)
    matrices = list(codes.T.reshape(groups, outputs // groups, -1))

    def call(x: Array, bias: Array | None = None) -> Array:
        start = None if bias is None else bias.astype(np.float64).reshape(-1)
        images = x.reshape(-1, *x.shape[2:])
        planes = [integers.convolved(image, matrices, scale[:, None], start, window) for image in images]
        return np.stack(planes).reshape(op.shape)

    return (integers.source, *op.operands[2:]), call


def _deconvolution(engine: Engine, op: Op, kernel: Array | None, named: dict[str, Array]) -> PreparedCall:
    """Computed as the convolution of the map, with holes between its elements, and the flipped kernel."""
    return _with_kernel(engine, op, kernel, named, _laid_holes, outputs=2)


def _laid_holes(engine: Engine, op: Op, kernel: Array, shape: Shape) -> Form:
    attrs = op.attrs
    stride, dilation = attrs["strides"], attrs["dilation_rates"]
    sizes, pads, groups = attrs["kernel_sizes"], attrs["explicit_padding"], attrs["groups"]
    turned = _turned_kernel(kernel, groups)
    form = _plane_form(engine, turned, Window(tuple(sizes[1:]), dilation=tuple(dilation[1:])), groups, False)
    reach = [dilation[axis] * (sizes[axis] - 1) for axis in range(3)]

    def call(x: Array, bias: Array | None) -> Array:
        spread = _with_holes(x, stride)
        for axis, place in enumerate((1, 3, 4)):
            spread = _edged(spread, place, reach[axis] - pads[2 * axis], reach[axis] - pads[2 * axis + 1])
        result = np.empty(shape, np.float16)
        for image, depth in np.ndindex(shape[:2]):
            read = spread[image, depth : depth + reach[0] + 1 : dilation[0]]
            result[image, depth] = form(_stacked(read, groups), bias)
        return result

    return call


def _turned_kernel(kernel: Array, groups: int) -> Array:
    """[inputs, depths, outputs per group, ...] as a convolution's [outputs, depths, inputs per group, ...]."""
    inputs, (depths, outputs, *plane) = kernel.shape[0] // groups, kernel.shape[1:]
    split = kernel[:, ::-1, :, ::-1, ::-1].reshape(groups, inputs, depths, outputs, *plane)
    return np.ascontiguousarray(split.transpose(0, 3, 2, 1, 4, 5)).reshape(groups * outputs, depths, inputs, *plane)


def _with_holes(x: Array, stride: Sequence[int]) -> Array:
    n, depths, channels, rows, columns = x.shape
    grown = [(size - 1) * step + 1 for size, step in zip((depths, rows, columns), stride, strict=True)]
    spread = np.zeros((n, grown[0], channels, *grown[1:]), np.float16)
    spread[:, :: stride[0], :, :: stride[1], :: stride[2]] = x
    return spread


def _edged(x: Array, axis: int, before: int, after: int) -> Array:
    """Zeros around an axis, or elements cut from it where the count is negative."""
    grown = np.pad(x, [(max(0, before), max(0, after)) if i == axis else (0, 0) for i in range(x.ndim)])
    cut = slice(max(0, -before), grown.shape[axis] - max(0, -after))
    return grown[tuple(cut if i == axis else slice(None) for i in range(x.ndim))]


# Products.


def _linear(engine: Engine, op: Op, kernel: Array | None, named: dict[str, Array]) -> PreparedCall:
    integers = integer_operands(engine, op)
    if integers is not None and kernel is not None:
        return _integer_linear(op, kernel, named, integers)
    return _with_kernel(engine, op, kernel, named, _laid_matrix, outputs=2)


def _laid_matrix(engine: Engine, op: Op, weight: Array, shape: Shape) -> Form:
    form = matrix_form(engine, weight[0, 0, :, 0, :])

    def call(x: Array, bias: Array | None) -> Array:
        return form(np.ascontiguousarray(x.reshape(-1, x.shape[4])), bias).reshape(shape)

    return call


def _integer_linear(op: Op, weight: Array, named: dict[str, Array], integers: Integers) -> PreparedCall:
    codes, scale = integers.kernel(weight[0, 0, :, 0, :].T, named)

    def call(x: Array, bias: Array | None = None) -> Array:
        start = None if bias is None else bias.astype(np.float64).reshape(-1)
        return integers.products(x.reshape(-1, x.shape[4]), codes, scale, start).reshape(op.shape)

    return (integers.source, *op.operands[2:]), call


def _matmul(engine: Engine, op: Op, kernel: Array | None, named: dict[str, Array]) -> PreparedCall:
    turned_left, turned_right = "transpose_lhs" in op.attrs, "transpose_rhs" in op.attrs
    if kernel is not None:
        return _stored_matmul(engine, op, _matrices(kernel, turned_right)[0, 0], turned_left)

    def call(a: Array, b: Array, bias: Array | None = None) -> Array:
        left, right = _matrices(a, turned_left), _matrices(b, turned_right)
        batch = np.broadcast_shapes(left.shape[:2], right.shape[:2])
        lefts, rights = (
            np.broadcast_to(stack, (*batch, *stack.shape[2:])).reshape(-1, *stack.shape[2:]) for stack in (left, right)
        )
        if bias is None and len(lefts) > 1:
            result = engine.stacked_products(lefts, rights)
        else:
            start = None if bias is None else bias.reshape(-1)
            pairs = zip(lefts, rights, strict=True)
            dense = ((np.ascontiguousarray(lhs), np.ascontiguousarray(rhs)) for lhs, rhs in pairs)
            result = np.stack([engine.products(lhs, rhs, start) for lhs, rhs in dense])
        return result.reshape(*batch, *result.shape[1:]).transpose(0, 2, 1, 3)[:, None]

    return tuple(op.operands), call


def _stored_matmul(engine: Engine, op: Op, matrix: Array, turned_left: bool) -> PreparedCall:
    """A product with one stored matrix for all heads."""
    form = matrix_form(engine, matrix.T)

    def call(a: Array, bias: Array | None = None) -> Array:
        left = _matrices(a, turned_left)[0]
        rows = np.ascontiguousarray(left).reshape(-1, matrix.shape[0])
        result = form(rows, None if bias is None else bias.reshape(-1)).reshape(*left.shape[:2], -1)
        return result.transpose(1, 0, 2)[None, None]

    return _without_kernel(op), call


def _matrices(x: Array, turned: bool) -> Array:
    rows = x[:, 0].transpose(0, 2, 1, 3)
    return rows.swapaxes(2, 3) if turned else rows


def _sdpa(engine: Engine, op: Op, kernel: Array | None, named: dict[str, Array]) -> PreparedCall:
    """Two products in the accumulators, and between them scale, mask and softmax in fp16."""
    subtract_max = bool(op.attrs.get("subtract_max"))

    def call(q: Array, k: Array, v: Array, scale: Array, mask: Array | None = None) -> Array:
        result = np.empty((q.shape[0], q.shape[3], q.shape[2], v.shape[4]), np.float16)
        queries, keys, values = _matrices(q, False), _matrices(k, True), _matrices(v, False)
        for i, j in np.ndindex(result.shape[:2]):
            query, key = np.ascontiguousarray(queries[i, j]), np.ascontiguousarray(keys[i, j])
            scores = paired("mult", engine.products(query, key), scale.reshape(1, 1))
            if mask is not None:
                plane = _matrices(mask, False)
                scores = paired("add", scores, plane[i % plane.shape[0], j % plane.shape[1]])
            shares = weighed(engine, scores, (1,), subtract_max)
            result[i, j] = engine.products(shares, np.ascontiguousarray(values[i, j]))
        return result.transpose(0, 2, 1, 3)[:, None]

    return tuple(op.operands), call


CONTRACTIONS: dict[str, Maker] = {
    "convolution": _convolution,
    "deconvolution": _deconvolution,
    "linear": _linear,
    "matmul": _matmul,
    "sdpa": _sdpa,
}

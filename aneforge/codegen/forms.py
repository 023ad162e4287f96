"""Which register form a layer has: elementwise, convolution, bypass (activation, transpose), pool or reduction."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from aneforge.codegen.plan import Kernel
from aneforge.compiler.shown import ProgramLayer
from aneforge.engine.interpret import laid_out
from aneforge.engine.ir import Module, Op
from aneforge.engine.traits import Trait
from aneforge.engine.windows import effective_stride
from aneforge.sim.tables import tabulated

Array = np.ndarray
TURNED = ((2, 4), (4, 2))
"""The transpose that a MAC task does on its way out: channels and columns change places."""
_ELEMENTWISE = {"add": "add", "sub": "sub", "mult": "mul", "max": "max", "min": "min", "div": "mul"}
_COMMUTES = ("add", "mult", "max", "min")
_LOG2_E = 1.4426950408889634
_PLAIN_REDUCTIONS = ("reduction of columns", "reduction of channels")
WIDEST, MOST_CHANNELS = (1 << 15) - 1, (1 << 17) - 1


@dataclass(frozen=True)
class Form:
    """The work of a layer as registers say it."""

    name: str
    engine: str
    operation: str
    operands: tuple[Op, ...]
    kernel: Kernel = field(default_factory=Kernel)
    weights: Array | None = None
    bias: Array | None = None
    activation: str = "none"
    """``none``, ``relu``, or the name of a table."""
    transposes: bool = False
    sampled: tuple[str, ...] = ()
    mask: int = 0
    """Axes over which the second source is stretched: bits of the word of the planar engine."""
    numbers: tuple[float, float] | None = None
    """What is added to the source, and what it is multiplied with, where both are one number."""
    vector: tuple[Array, Array] | None = None
    """The same where they are a number for each channel."""
    table: ActivationTable | None = None
    """A table that is made of its attributes: a clamp, a slope below zero."""
    post_scale: float = 1.0
    same_bias: float = 0.0
    """One bias for all output channels."""
    images: int = 1
    is_matrix: bool = False
    """Whether it is a matrix by a constant."""
    turns_source: bool = False
    """Whether the matrix that is multiplied has to be turned first."""
    turns_kernel: bool = False
    """Whether the matrix that is the kernel of a product has to be turned first."""
    rows: int = 0
    """Of the first matrix of a product."""
    pairs: int = 1
    """Products, side by side in the rows of the tensors."""
    swaps: bool = False
    """Whether a product is the turned one of the turned operands, and the pairs are channels of the result."""
    axes: tuple[int, ...] = ()
    """Of a reduction, a softmax or a norm: 2 for channels, 3 for rows, 4 for columns."""
    epsilon: float = 0.0
    """Of a norm."""
    first: int = 0
    """Where a slice begins along its axis."""

    @property
    def rounds(self) -> bool:
        """Whether its tasks round where the op does not: a quotient by a table, a slope that is a half, values between
        the tasks of a softmax or a norm. What is read from them is right, but not to the bit the op's value."""
        named = ("division", "logarithm", "softmax", "norm")
        return self.name.startswith(named) or self.activation == "leaky_relu"

    @property
    def goes_by_channels(self) -> bool:
        """Whether some channels of its result need the same channels of its operands alone."""
        return self.name in ("elementwise", "stretched")

    @property
    def is_checked_by_numbers(self) -> bool:
        """Whether its tasks turn and split tensors, so that only numbers show that they do its work."""
        is_turned = self.name.startswith("reduction") and self.name not in _PLAIN_REDUCTIONS
        is_split = self.name == "product" and (
            self.pairs > 1 or self.swaps or self.rows > product_lanes(self.rows) * 16
        )
        return self.name.startswith(("softmax", "norm")) or is_turned or is_split


@dataclass(frozen=True)
class ActivationTable:
    """What a table does: bounds for a clamp, or the slope below zero."""

    low: float = -np.inf
    high: float = np.inf
    slope: float | None = None

    @property
    def is_range(self) -> bool:
        """Whether it has two bounds; published programs have one."""
        return bool(np.isfinite(self.low) and np.isfinite(self.high))


def form_of(layer: ProgramLayer, module: Module) -> Form | str:
    """The form of a layer, or why it has none."""
    ops = layer.ops
    primary = ops[0]
    for op in (*ops, *(operand for operand in ops[0].operands if operand.kind != "const_in")):
        if op.type is None or op.type.dtype != "f16":
            return "only fp16 tensors have published words"
        n, d, c, h, w = op.shape
        if d != 1 or (n != 1 and primary.kind not in _ELEMENTWISE):
            return "a batch or a depth of more than one has no published words"
        if max(h, w) > WIDEST or c > MOST_CHANNELS:
            return "an extent is larger than its register field"
    if primary.kind == "gain_offset_control":
        return _gain(ops, module)
    if primary.kind in ("max", "min") and any(operand.kind == "const_in" for operand in primary.operands):
        return _clamp(ops, module)
    if primary.kind in _ELEMENTWISE:
        return _elementwise(ops)
    if primary.is_a(Trait.REDUCTION) or (primary.is_a(Trait.POOL) and primary.kind != "l2norm_pool"):
        return _reduction(ops)
    if primary.kind in ("linear", "matmul"):
        return _matrix(ops, module)
    if primary.kind == "softmax":
        return _softmax(ops)
    if primary.kind == "layer_norm":
        return _layer_norm(ops, module)
    return _mac(ops, module)


def _elementwise(ops: list[Op]) -> Form | str:
    primary, rest = ops[0], ops[1:]
    left, right = primary.operands[0], primary.operands[-1]
    if "const_in" in (left.kind, right.kind):
        return "an elementwise operand that is a constant tensor has no published words"
    if left.shape != primary.shape and right.shape == primary.shape and primary.kind in _COMMUTES:
        left, right = right, left
    if left.shape != primary.shape:
        return "stretching the first source has no published words"
    mask = _stretched(left.shape, right.shape)
    if primary.kind == "div":
        return Form("division", "planar", "mul", (left, right), mask=mask) if not rest else _behind(rest)
    if rest and [op.kind for op in rest] != ["relu"]:
        return _behind(rest)
    operation = _ELEMENTWISE[primary.kind]
    name, images = ("stretched" if mask else "elementwise"), primary.shape[0]
    if images > 1 and right.shape[0] not in (1, images):
        return "a batch of another size has no published words"
    activation = "relu" if rest else "none"
    return Form(name, "planar", operation, (left, right), activation=activation, mask=mask, images=images)


def _behind(rest: list[Op]) -> str:
    return f"{rest[-1].kind} behind an elementwise op has no published words"


def _stretched(whole: tuple[int, ...], part: tuple[int, ...]) -> int:
    """Bits for the axes over which the second source is stretched: columns, rows, channels."""
    bits = ((4, 0x10), (3, 0x20), (2, 0x80))
    return sum(bit for axis, bit in bits if part[axis] == 1 and whole[axis] > 1)


def _gain(ops: list[Op], module: Module) -> Form | str:
    """A number, or one for each channel, added and multiplied with."""
    primary, rest = ops[0], ops[1:]
    if rest:
        return _behind(rest)
    if any(operand.kind != "const_in" for operand in primary.operands[1:]) or len(primary.operands) != 3:
        return "a gain or an offset that is computed has no published words"
    gain, offset = (_constant(module, operand) for operand in primary.operands[1:])
    if gain.size == offset.size == 1:
        numbers = float(offset.reshape(-1)[0]), float(gain.reshape(-1)[0])
        return Form("number", "planar", "add", (primary.operands[0],), numbers=numbers)
    channels = primary.shape[2]
    if {gain.size, offset.size} - {1, channels} or {gain.shape, offset.shape} - {(1, 1, channels, 1, 1), (1,) * 5}:
        return "a constant that is not one number a channel has no published words"
    vector = [np.broadcast_to(values.reshape(-1), channels).astype(np.float16) for values in (offset, gain)]
    return Form("vector", "planar", "add", (primary.operands[0],), vector=(vector[0], vector[1]))


def _clamp(ops: list[Op], module: Module) -> Form | str:
    """The larger or smaller of a tensor and a number: a table."""
    primary, rest = ops[0], ops[1:]
    if rest:
        return _behind(rest)
    tensors = [operand for operand in primary.operands if operand.kind != "const_in"]
    number = next(operand for operand in primary.operands if operand.kind == "const_in")
    values = _constant(module, number).reshape(-1)
    if len(tensors) != 1 or len(values) != 1:
        return "a clamp by a tensor of constants has no published words"
    bound = float(values[0])
    table = ActivationTable(high=bound) if primary.kind == "min" else ActivationTable(low=bound)
    return Form("clamp", "mac", "bypass", (tensors[0],), activation="clamp", table=table)


def _reduction(ops: list[Op]) -> Form | str:
    primary = ops[0]
    if len(ops) > 1:
        return f"{ops[-1].kind} behind a reduction has no published words"
    if primary.is_a(Trait.REDUCTION):
        axes = tuple(axis for axis in primary.attrs["axes"] if primary.operands[0].shape[axis] > 1)
        name = _reduced(primary.operands[0].shape, axes)
        if not name:
            return f"{primary.kind} over these axes has no published words"
        return Form(name, "planar", primary.kind, (primary.operands[0],), axes=axes)
    _, height, width = primary.attrs["ksize"]
    _, _, top, _, left, _ = primary.attrs["padding"]
    shapes, stride = (primary.operands[0].shape, primary.shape), primary.attrs["stride"]
    kernel = Kernel(height, width, effective_stride(*shapes, (height, width), stride, (top, left)), top, left)
    if primary.kind == "average_pool" and any(primary.attrs["padding"]) and not primary.attrs.get("inc_pad"):
        return "a mean that does not count its padding has no published words"
    problem = _unfit(kernel)
    return problem or Form("pool", "planar", primary.kind, (primary.operands[0],), kernel, sampled=("planar.pool",))


def _reduced(shape: tuple[int, ...], axes: tuple[int, ...]) -> str:
    """The name of a reduction; empty for one whose tasks are not published."""
    names = {
        (2, 3, 4): "reduction of everything",
        (3,): "reduction of rows",
        (4,): "reduction of columns",
        (3, 4): "reduction of a map",
    }
    if axes != (2,):
        return names.get(axes, "")
    return "reduction of channels" if shape[3:] == (1, 1) else "reduction of channels of a map"


_OVER: dict[tuple[int, ...], str] = {(2,): "channels", (3,): "rows", (4,): "columns"}


def _over(axes: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """What a softmax or a norm goes over; a row of each channel needs no copy."""
    if axes != (4,) or shape[3] > 1:
        return _OVER[axes]
    return "a row" if shape[2] == 1 else "a row a channel"


def _softmax(ops: list[Op]) -> Form | str:
    primary = ops[0]
    if len(ops) > 1:
        return f"{ops[-1].kind} behind a softmax has no published words"
    stated = tuple(primary.attrs["axes"])
    axes = tuple(axis for axis in stated if primary.shape[axis] > 1) or stated
    if axes not in _OVER or (axes != (2,) and primary.shape[axes[0]] == 1):
        return "a softmax over these axes has no published words"
    return Form(f"softmax of {_over(axes, primary.shape)}", "planar", "mul", (primary.operands[0],), axes=axes)


def _layer_norm(ops: list[Op], module: Module) -> Form | str:
    """A norm, with a number for each channel behind it or none."""
    primary, vectors = ops[0], ops[0].operands[1:]
    if len(ops) > 1:
        return f"{ops[-1].kind} behind a norm has no published words"
    shape, axes = primary.shape, tuple(sorted(primary.attrs["axes"]))
    wide = tuple(axis for axis in axes if shape[axis] > 1)
    if wide not in ((2,), (4,)) or primary["groups"] > 1:
        return "a norm over these axes has no published words"
    if any(operand.kind != "const_in" for operand in vectors):
        return "a scale or a shift of a norm that is computed has no published words"
    values = [_constant(module, operand) for operand in vectors]
    gain, shift = (
        (*values, np.ones(1, np.float16), np.zeros(1, np.float16))[:2]
        if len(values) != 1
        else (*values, np.zeros(1, np.float16))
    )
    vector = None
    if not ((gain == 1).all() and (shift == 0).all()):
        channels = shape[2]
        if {gain.shape, shift.shape} - {(1, 1, channels, 1, 1), (1,) * 5, (1,)}:
            return "a scale of a norm that is not one number a channel has no published words"
        pair = [np.broadcast_to(one.reshape(-1), channels).astype(np.float16) for one in (shift, gain)]
        vector = pair[0], pair[1]
    name, axes = f"norm of {_over(wide, shape)}", axes if wide == (4,) else wide
    if name == "norm of columns" and shape[2] == 1:
        name = "norm of the rows of a channel"
    epsilon = float(primary.attrs["epsilon"])
    return Form(name, "planar", "mul", (primary.operands[0],), axes=axes, epsilon=epsilon, vector=vector)


def _matrix(ops: list[Op], module: Module) -> Form | str:
    """A matrix by a constant, with a bias or an activation behind it."""
    primary, rest = ops[0], list(ops[1:])
    source, constants = primary.operands[0], primary.operands[1:]
    if primary.kind == "matmul" and source.kind != "const_in" and constants[0].kind != "const_in":
        return _product(primary, rest, module)
    if source.kind == "const_in" or any(operand.kind != "const_in" for operand in constants):
        return f"{primary.kind} of these operands has no published words"
    if any(module.weights[operand.attrs["weight"]].encoded for operand in constants):
        return "a kernel in a compressed form has no published words"
    weights = _constant(module, constants[0]).reshape(constants[0].shape[2], constants[0].shape[4])
    if primary.kind == "matmul" and not primary.attrs.get("transpose_rhs"):
        weights = weights.T
    is_turned = bool(primary.attrs.get("transpose_lhs"))
    if source.shape[3] != 1 or source.shape[2 if is_turned else 4] != weights.shape[1]:
        return f"{primary.kind} of this shape has no published words"
    bias, same = None, 0.0
    if len(constants) > 1:
        bias = _constant(module, constants[1]).reshape(-1)
        if len(bias) != len(weights):
            return "one bias for all channels has no published words"
        if len(np.unique(bias.view(np.uint16))) == 1:
            bias, same = None, float(bias[0])
    activation = "none"
    if rest and (rest[0].kind == "relu" or (rest[0].kind in tabulated() and not rest[0].attrs)):
        activation = rest.pop(0).kind
    stays = bool(rest) and _turns_matrix(rest[0])
    if len(rest) > stays:
        return f"{rest[-1].kind} behind a product has no published words"
    kernel = np.ascontiguousarray(weights)[:, :, None, None]
    return Form(
        "convolution",
        "mac",
        "convolution",
        (source,),
        Kernel(),
        kernel,
        bias,
        activation,
        transposes=not stays,
        same_bias=same,
        is_matrix=True,
        turns_source=not is_turned,
    )


def _product(op: Op, rest: list[Op], module: Module) -> Form | str:
    """A matrix by a matrix, both computed: the first one is the kernel. Several pairs lie in the rows of tensors."""
    left, right = op.operands
    turns_kernel, turned = bool(op.attrs.get("transpose_lhs")), bool(op.attrs.get("transpose_rhs"))
    rows, columns = (left.shape[4], left.shape[2]) if turns_kernel else (left.shape[2], left.shape[4])
    if left.shape[3] != right.shape[3] or columns != right.shape[4 if turned else 2]:
        return "a product of these shapes has no published words"
    swaps = bool(rest) and rest[-1].kind == "transpose" and rest[-1].attrs["transpose_list"] == _PAIRS_FIRST
    if swaps:  # the turned product is that of the turned matrices, in the other order
        rest.pop()
        left, right, turns_kernel, turned = right, left, not turned, not turns_kernel
        rows = left.shape[4] if turns_kernel else left.shape[2]
    if columns % _ALIGNED_COLUMNS and rows % _PRODUCT_STEP:
        return f"a product of {rows} rows of two tensors and {columns} terms has no published words that we write"
    form = Form(
        "product",
        "mac",
        "convolution",
        (left, right),
        turns_source=turned,
        turns_kernel=turns_kernel,
        rows=rows,
        pairs=left.shape[3],
        swaps=swaps,
    )
    if rest and rest[0].kind == "gain_offset_control":
        gain = _gain(rest[:1], module)
        if isinstance(gain, str) or gain.numbers is None or gain.numbers[0]:
            return "a factor or an offset behind a product that is not one number has no published words"
        rest.pop(0)
        form = replace(form, post_scale=gain.numbers[1])
    form = _activated(form, rest)
    return form if not rest else f"{rest[0].kind} behind a product has no published words"


_WIDEST_WINDOW = 8
"""Columns of a window that one task writes as they are; wider ones take two columns a step in published programs."""
_PRODUCT_STEP, _MOST_LANES = 16, 8
_PAIRS_FIRST = ((2, 3), (3, 4), (4, 2))


def product_parts(rows: int) -> list[tuple[int, int]]:
    """The first row and the number of rows of each part of a product: a multiple of 16, and what is left."""
    most = rows // _PRODUCT_STEP * _PRODUCT_STEP
    return [part for part in ((most, rows - most), (0, most)) if part[1]]


def product_lanes(rows: int) -> int:
    """Rows of the first matrix of a product that lie side by side: the largest power of two up to rows / 16, at most
    8."""
    return min(_MOST_LANES, 1 << max(0, (rows // _PRODUCT_STEP).bit_length() - 1))


def _mac(ops: list[Op], module: Module) -> Form | str:
    rest = list(ops)
    source = rest[0].operands[0] if rest[0].operands else None
    if source is None or source.kind == "const_in":
        return f"{rest[0].kind} of a constant has no published words"
    form = Form("bypass", "mac", "bypass", (source,))
    if rest[0].kind == "convolution":
        found = _convolution(rest.pop(0), module)
        if isinstance(found, str):
            return found
        form = found
    elif len(rest) == 1 and _is_slice(rest[0]):
        first, axis = int(rest[0].attrs["offset"]), int(rest[0].attrs["dimension"])
        return replace(form, name="slice", first=first, axes=(axis,))
    elif len(rest) == 1 and rest[0].kind == "transpose" and set(rest[0].attrs["transpose_list"]) == _ROWS_FIRST:
        return replace(form, name="rows for channels")
    elif len(rest) == 1 and rest[0].kind == "broadcast" and source.shape[:2] == rest[0].shape[:2]:
        mask = sum(bit for axis, bit in _FIRST_OVER if source.shape[axis] == 1 < rest[0].shape[axis])
        return Form("tile", "planar", "tile", (source,), mask=mask)
    elif len(rest) == 1 and rest[0].kind == "abs":
        return Form("absolute", "planar", "abs", (source,))
    elif len(rest) == 1 and rest[0].kind == "log2" and rest[0].attrs.get("base_e"):
        return Form("logarithm", "mac", "bypass", (source,), activation="log2")
    form = _activated(form, rest)
    if rest and _turns_matrix(rest[0]):
        rest.pop(0)
        name = form.name if form.name != "bypass" else "transpose"
        form = replace(form, name=name, transposes=True)
    if rest or form.name == "bypass":
        return f"{(rest or ops)[0].kind} has no published words"
    return form


_FIRST_OVER = ((4, 0x1), (3, 0x2), (2, 0x8))
_ROWS_FIRST = {(2, 3), (3, 2)}
_ALIGNED_COLUMNS = 8


def _is_slice(op: Op) -> bool:
    """Whether it is a part of one tensor that starts where a bank of the engine's memory does."""
    if op.kind != "input_view" or op.attrs.get("step", 1) != 1 or op.attrs["dimension"] < 2:
        return False
    return op.attrs["dimension"] < 4 or op.attrs["offset"] % _ALIGNED_COLUMNS == 0


def _turns_matrix(op: Op) -> bool:
    """Whether channels and columns change places: a transpose, or a reshape of one number a channel to a row."""
    if op.kind == "reshape":
        source, result = op.operands[0].shape, op.shape
        return source[3] == 1 and source[::-1][:3] == result[2:] and 1 in (source[2], source[4])
    return op.kind == "transpose" and op.attrs["transpose_list"] == TURNED


def _convolution(op: Op, module: Module) -> Form | str:
    if any(operand.kind != "const_in" for operand in op.operands[1:]):
        return "a kernel that is computed has no published words"
    if any(module.weights[operand.attrs["weight"]].encoded for operand in op.operands[1:]):
        return "a kernel in a compressed form has no published words"
    if max(op.attrs["dilation_rates"]) > 1 or op.attrs["kernel_sizes"][0] != 1:
        return "a dilation or a depth of a kernel has no published words"
    kernel = _kernel_of(op)
    if kernel.width > _WIDEST_WINDOW:
        return f"a window of more than {_WIDEST_WINDOW} columns is published in a form that we do not write"
    problem = _unfit(kernel)
    if problem:
        return problem
    weights, bias = _constant(module, op.operands[1])[:, 0], None
    if len(op.operands) > 2:
        bias = _constant(module, op.operands[2]).reshape(-1)
        if len(bias) != len(weights):
            return "one bias for all channels has no published words"
        bias = bias if bias.view(np.uint16).any() else None
    return Form("convolution", "mac", "convolution", (op.operands[0],), kernel, weights, bias)


def _activated(form: Form, rest: list[Op]) -> Form:
    """The form with the activation that comes next, which is taken from ``rest``."""
    if not rest:
        return form
    op, name = rest[0], form.name if form.operation == "convolution" else "activation"
    if op.kind in ("clamped_relu", "n_relu"):
        bounds = rest.pop(0).attrs
        table = ActivationTable(float(bounds.get("min_val", 0.0)), float(bounds["max_val"]))
        name = name if form.operation == "convolution" else "clamp"
        return replace(form, name=name, activation="clamp", table=table)
    if op.kind == "leaky_relu" and len(op.operands) == 1:
        table = ActivationTable(slope=float(rest.pop(0).attrs["negative_slope"]))
        return replace(form, name=name, activation="leaky_relu", table=table)
    if op.kind == "exp2" and op.attrs.get("base_e") and form.operation == "bypass":
        return replace(form, name=name, activation=rest.pop(0).kind, post_scale=_LOG2_E)
    if op.kind == "relu" or (op.kind in tabulated() and not op.attrs):
        return replace(form, name=name, activation=rest.pop(0).kind)
    return form


def _kernel_of(op: Op) -> Kernel:
    _, height, width = op.attrs["kernel_sizes"]
    _, _, top, _, left, _ = op.attrs["explicit_padding"]
    groups, shapes = op.attrs["groups"], (op.operands[0].shape, op.shape)
    stride = effective_stride(*shapes, (height, width), op.attrs["strides"], (top, left))
    return Kernel(height, width, stride, top, left, groups, groups > 1 and groups == op.operands[0].shape[2])


def _unfit(kernel: Kernel) -> str:
    """Why a window does not fit its register fields; empty where it does."""
    if max(kernel.stride) > 3:
        return f"a stride of {max(kernel.stride)} does not fit its register field, which holds 3"
    if max(kernel.height, kernel.width, kernel.top, kernel.left) > 31:
        return "a window or a padding of more than 31 does not fit its register field"
    return "" if kernel.groups < 1 << 13 or kernel.is_depthwise else "the groups do not fit their register field"


def _constant(module: Module, op: Op) -> Array:
    return laid_out(module.weights[op.attrs["weight"]].array, op.shape)

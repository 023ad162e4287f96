"""Matrix products of the ranks that NumPy allows, and Fourier transforms made of them."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats.forms.movement import gathered, padded, sliced
from aneforge.formats.forms.numbers import as_number, scaled
from aneforge.formats.forms.reductions import vector_norm
from aneforge.formats.values import Array, NoForm, Numeric, Value, along_axis, as_tensor, axis_of
from aneforge.graph import builders as af
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

_LONGEST = 8192
_WIDEST_LINE = 16384  # the widest line that every chip takes (limits.json spatial_extent)
_WIDEST_KERNEL = 13  # the widest kernel that every chip takes (limits.json conv_kernel_w_fp16)


def matmul(x: Value, y: Value, transpose_x: bool = False, transpose_y: bool = False) -> Tensor:
    """The product of two operands. A known matrix on the right is a stored weight, for any rank on the left."""
    left = as_tensor(swap_last_axes(x) if transpose_x and x.ndim > 1 else x)
    y = swap_last_axes(y) if transpose_y and y.ndim > 1 else y
    if isinstance(y, (np.ndarray, Encoded)) and y.ndim == 2 and left.ndim > 1:
        return linear(left, y.T)
    right = as_tensor(y)
    if left.ndim == 1 and right.ndim == 1:
        return (left * right).sum((0,))
    if left.ndim == 1:
        result = left.reshape(1, left.shape[0]) @ right
        return result.squeeze([result.ndim - 2])
    if right.ndim == 1:
        result = left @ right.reshape(right.shape[0], 1)
        return result.squeeze([result.ndim - 1])
    return left @ right


def swap_last_axes(value: Value) -> Value:
    """Swap the last two axes; a known weight stays known."""
    if isinstance(value, Tensor):
        return value.mT
    if isinstance(value, Encoded):
        order = list(range(value.ndim))
        return value.transpose([*order[:-2], order[-1], order[-2]])
    return value.swapaxes(-1, -2)


def linear(x: Tensor, weight: Value, bias: Value | None = None) -> Tensor:
    """x @ weight.T + bias with a weight [out, in], or [in] for a result without the last axis. An input of rank 5 is
    reshaped to rows, since products take rank 4."""
    if weight.ndim == 1:
        row = weight.expand_dims(0) if isinstance(weight, Encoded) else weight.reshape(1, weight.shape[0])
        rows = linear(
            x,
            row,
            None if bias is None else bias.reshape(1) if isinstance(bias, Tensor) else np.asarray(bias).reshape(1),
        )
        return rows.reshape(*(x.shape[:-1] or (1,)))
    if isinstance(bias, np.ndarray) and not bias.any():
        bias = None  # some formats always write a bias; the accumulators start at zero
    image = _flattened_image(x)
    if image is not None and isinstance(weight, np.ndarray) and (bias is None or isinstance(bias, np.ndarray)):
        kernel = weight.reshape(weight.shape[0], *image.shape[1:])
        return af.conv(image, kernel, bias=bias).reshape(x.shape[0], weight.shape[0])
    rows = x if x.ndim < 5 else x.reshape(-1, x.shape[-1])
    if isinstance(weight, Tensor):
        result = rows @ weight.transpose([1, 0])
        result = result if bias is None else result + as_tensor(bias)
    elif isinstance(bias, Tensor):
        result = rows.linear(weight) + bias
    else:
        result = rows.linear(weight, bias)
    return result if x.ndim < 5 else result.reshape(*x.shape[:-1], weight.shape[0])


def _flattened_image(x: Tensor) -> Tensor | None:
    """The image that was flattened to a line longer than some chips' widths. The product is then a convolution of the
    image with a kernel of the same size, which computes the same sums."""
    if x.op != "reshape" or x.ndim != 2 or x.shape[1] <= _WIDEST_LINE:
        return None
    image = x.inputs[0]
    if image.ndim != 4 or image.shape[0] != x.shape[0] or max(image.shape[2:]) > _WIDEST_KERNEL:
        return None
    return image


def einsum(values: list[Value], equation: str) -> Tensor:
    """Combine two operands at a time. An axis that no later operand and no result names is summed at once."""
    operands = [as_tensor(value) for value in values]
    text = equation.replace(" ", "")
    terms, arrow, output = text.partition("->")
    if "." in text:
        if len(operands) > 2:
            raise NoForm(f"einsum {equation!r} has {len(operands)} operands and '...'; name every axis")
        return af.einsum(text, *operands)
    letters = terms.replace(",", "")
    result_axes = output if arrow else "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    spare = next(letter for letter in string.ascii_letters if letter not in text)
    parts = terms.split(",")
    while len(operands) > 2:
        later_axes = set(result_axes) | set("".join(parts[2:]))
        middle = "".join(dict.fromkeys(letter for letter in parts[0] + parts[1] if letter in later_axes))
        middle, joined = _sum_products(parts[:2], operands[:2], middle, spare)
        parts, operands = [middle, *parts[2:]], [joined, *operands[2:]]
    return _sum_products(parts, operands, result_axes, spare)[1]


def _sum_products(parts: Sequence[str], values: Sequence[Tensor], axes: str, spare: str) -> tuple[str, Tensor]:
    """One sum of products and its axes. A result needs at least one axis, so a result without axes gets ``spare``."""
    if axes:
        return axes, af.einsum(f"{','.join(parts)}->{axes}", *values)
    raised = values[0].reshape(1, *values[0].shape)
    return spare, af.einsum(f"{','.join([spare + parts[0], *parts[1:]])}->{spare}", raised, *values[1:])


def cumulative_sum(x: Numeric, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """A product with a triangle of ones along the axis. The graph has an op for the plain sum, which runs the same
    way."""
    axis = axis_of(axis, x.ndim)
    size = x.shape[axis]
    if size > _LONGEST:
        raise NoForm(f"the running sum is over {size:,} elements; the limit is {_LONGEST:,}")
    if not exclusive and not reverse:
        return x.cumsum(axis)
    triangle = np.tril(np.ones((size, size)), -1 if exclusive else 0)
    return along_axis(x, axis, triangle.T if reverse else triangle)


def gemm(
    a: Tensor,
    b: Value,
    c: Value | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Tensor:
    """alpha * a @ b + beta * c. A known matrix is a stored weight, and a known row of ``c`` its bias."""
    left = a.transpose([1, 0]) if transpose_a else a
    if isinstance(b, (np.ndarray, Encoded)):
        weight = b if alpha == 1.0 else np.asarray(b, np.float64) * alpha
        weight = weight if transpose_b else weight.T
        by_column = c is None or (isinstance(c, np.ndarray) and c.size == weight.shape[0])
        bias = None if c is None or not by_column else np.asarray(c, np.float64).reshape(-1) * beta
        product = linear(left, weight, bias)
        return product if by_column or c is None else product + as_tensor(c) * beta
    product = left @ (b.transpose([1, 0]) if transpose_b else b)
    product = product if alpha == 1.0 else product * alpha
    return product if c is None else product + (as_tensor(c) if beta == 1.0 else as_tensor(c) * beta)


def add_matmul(c: Value, a: Value, b: Value, beta: float = 1.0, alpha: float = 1.0) -> Tensor:
    """beta * c + alpha * a @ b for any ranks. A known matrix and a known row of ``c`` are one op."""
    is_row = isinstance(c, np.ndarray) and c.shape == b.shape[1:] and b.ndim == 2
    if is_row and alpha == beta == 1.0 and isinstance(a, Tensor) and isinstance(b, (np.ndarray, Encoded)):
        return linear(a, b.T, c)
    product = scaled(matmul(a, b), alpha)
    return product if beta == 0.0 else scaled(as_number(c), beta) + product


def outer(x: Numeric, y: Numeric) -> Tensor:
    return x.reshape(x.size, 1) * y.reshape(1, y.size)


def bilinear(x: Numeric, y: Numeric, weight: Numeric, bias: Numeric | None = None) -> Tensor:
    """result[k] = x' weight[k] y for each row of ``x`` and ``y``."""
    left, right = x.reshape(-1, x.shape[-1]), y.reshape(-1, 1, y.shape[-1])
    mixed = left @ weight.transpose([1, 0, 2]).reshape(weight.shape[1], -1)
    lines = mixed.reshape(left.shape[0], weight.shape[0], weight.shape[2])
    result = (lines * right).sum((2,)).reshape(*x.shape[:-1], weight.shape[0])
    return result if bias is None else result + bias


def distances(x: Numeric, y: Numeric, p: float = 2.0) -> Tensor:
    """The distance between every row of ``x`` and every row of ``y``."""
    if p not in (1.0, 2.0, math.inf):
        raise LoadError(f"p {p:g} is not supported; choose one: 1, 2, inf")
    gap = x.reshape(*x.shape[:-1], 1, x.shape[-1]) - y.reshape(*y.shape[:-2], 1, *y.shape[-2:])
    return vector_norm(gap, (gap.ndim - 1,), p).reshape(*gap.shape[:-1])


def cumulative_product(x: Numeric, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """Each round multiplies by the elements at twice the distance of the round before."""
    axis = axis_of(axis, x.ndim)
    products = x.reverse([axis]) if reverse else x
    if exclusive:
        products = _shift(products, axis, 1)
    reach = 1
    while reach < x.shape[axis]:
        products = products * _shift(products, axis, reach)
        reach *= 2
    return products.reverse([axis]) if reverse else products


def _shift(x: Tensor, axis: int, distance: int) -> Tensor:
    """Shift elements along an axis and fill the start with ones."""
    widths = [(distance, -distance) if i == axis else (0, 0) for i in range(x.ndim)]
    return padded(x, widths, "constant", 1.0)


# Fourier transforms as products with known matrices. The last axis holds the real and imaginary parts.


_MOST_WEIGHTS = 1 << 24
_MOST_SLICES = 32


def dft(
    signal: Tensor, axis: int = -2, size: int | None = None, inverse: bool = False, onesided: bool = False
) -> Tensor:
    place = axis_of(axis, signal.ndim)
    if place == signal.ndim - 1:
        raise NoForm(f"axis {axis} is the axis of real and imaginary parts; choose another axis")
    extent, parts = signal.shape[place], signal.shape[-1]
    size = size or (2 * (extent - 1) if inverse and onesided else extent)
    matrix = _dft_matrix(size, extent, parts, inverse, onesided)
    order = [*(i for i in range(signal.ndim - 1) if i != place), place, signal.ndim - 1]
    lines = signal if order == sorted(order) else signal.transpose(order)
    lead = lines.shape[:-2]
    flat = lines.reshape(math.prod(lead), extent * parts).linear(matrix.reshape(matrix.shape[0] * matrix.shape[1], -1))
    spectrum = flat.reshape(*lead, *matrix.shape[:2])
    return spectrum if order == sorted(order) else spectrum.transpose([order.index(i) for i in range(signal.ndim)])


def _dft_matrix(size: int, extent: int, parts: int, inverse: bool, onesided: bool) -> Array:
    """Return the matrix [out, out parts, in, in parts]. An input of another length is zero-padded or cut."""
    if parts not in (1, 2):
        raise NoForm(f"the last axis has {parts} elements; it must have 1 (real numbers) or 2 (complex numbers)")
    if 4 * size * extent > _MOST_WEIGHTS:
        raise NoForm(
            f"a transform of {extent} elements to {size} needs a matrix of {4 * size * extent:,} weights; the limit "
            f"is {_MOST_WEIGHTS:,}"
        )
    phases = np.exp((2j if inverse else -2j) * np.pi / size * np.outer(np.arange(size), np.arange(extent)))
    phases[:, size:] = 0.0
    phases = phases / size if inverse else phases
    if inverse and onesided:  # the missing half mirrors the given one; the result is real
        phases = np.where((np.arange(extent) == 0) | (2 * np.arange(extent) == size), 1.0, 2.0) * phases
        phases[:, size // 2 + 1 :] = 0.0
    elif onesided:
        phases = phases[: size // 2 + 1]
    real, imaginary = np.real(phases), np.imag(phases)
    rows = [[real, -imaginary], [imaginary, real]]
    rows = rows[:1] if inverse and onesided else rows
    return np.stack([np.stack(row[:parts], axis=-1) for row in rows], axis=1)


def stft(
    signal: Tensor, step: int, window: Array | None = None, size: int | None = None, onesided: bool = True
) -> Tensor:
    """Weight and transform the frames of a signal with one product. A convolution would need kernels wider than the
    engine's limit."""
    if size is None:
        if window is None:
            raise NoForm("frame_length and window are missing; one of them must be given")
        size = window.size
    pairs = signal if signal.ndim == 3 else signal.reshape(*signal.shape, 1)
    matrix = _dft_matrix(size, size, pairs.shape[2], False, onesided)
    matrix = matrix if window is None else matrix * window.reshape(-1)[:, None]
    frames = _split_frames(pairs, size, step)
    spectrum = linear(frames, matrix.reshape(matrix.shape[0] * 2, -1))
    return spectrum.reshape(*spectrum.shape[:2], matrix.shape[0], 2)


def _split_frames(x: Tensor, size: int, step: int) -> Tensor:
    """Reshape [samples, places, parts] to [samples, frames, size * parts]. The block is the common divisor of size and
    step, so each frame is a concatenation of shifted blocks."""
    samples, places, parts = x.shape
    if not 0 < size <= places or step < 1:
        raise NoForm(
            f"frames of {size} elements with step {step} do not fit a signal of {places}; the length must be 1 to "
            f"{places} and the step 1 or more"
        )
    frames, block = (places - size) // step + 1, math.gcd(size, step)
    if size // block > _MOST_SLICES:
        if frames * size > _MOST_WEIGHTS // 16:
            raise NoForm(
                f"{frames} frames of {size} elements need {frames * size:,} indices; the limit is "
                f"{_MOST_WEIGHTS // 16:,}"
            )
        positions = np.arange(frames)[:, None] * step + np.arange(size)
        return gathered(x, 1, positions).reshape(samples, frames, size * parts)
    full = sliced(x, 1, 0, places // block * block)
    blocks = full.reshape(samples, places // block, block * parts)
    stride = step // block
    reach = (frames - 1) * stride + 1
    taps = [blocks[:, tap : tap + reach : stride] for tap in range(size // block)]
    return taps[0] if len(taps) == 1 else af.concat(taps, axis=2)

"""The numbers of a resize: the kernel of an upsampling by whole factors, and the matrix of any other."""

from __future__ import annotations

import numpy as np

from aneforge.graph.weights import Weight, derived_weight


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
    from aneforge.anec.interpret_spatial import sample_positions  # few models need it, and every check imports this

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

"""Weights that are laid out once, for every run of a model: kernels of convolutions and matrices of linear layers.

The laid-out form is done in C where the numbers of a run say that no sum can reach the ceiling. Elsewhere, and without
the C library, the general form does the same sums, to the bit in the exact mode.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from aneforge.sim import native
from aneforge.sim.convolution import direct, winograd, winograd_kernels
from aneforge.sim.engine import Engine
from aneforge.sim.half import Window

Array = np.ndarray
PlaneForm = Callable[[Array, "Array | None"], Array]


def convolution_form(engine: Engine, kernel: Array, window: Window, groups: int, by_winograd: bool) -> PlaneForm:
    """The convolution of maps [channels, rows, columns] with a kernel [outputs, inputs per group, rows, columns]."""
    turned = by_winograd and not engine.fast
    outputs = kernel.shape[0] // groups
    matrices = list(kernel.reshape(groups, outputs, -1))
    around = ((0, 0), *zip(window.before, window.after, strict=True))

    @lru_cache(maxsize=1)
    def general() -> PlaneForm:
        if turned:
            tiles = winograd_kernels(kernel, groups)
            return lambda image, bias: winograd(np.pad(image, around), tiles, bias)
        prepared = [engine.prepare_matrix(matrix) for matrix in matrices]
        return lambda image, bias: direct(image, prepared, bias, window, engine.products)

    if not engine.keeps_weights or not kernel.size:
        return general()
    if kernel.shape[1] == 1 and groups > 1:
        whole = winograd_kernels(kernel)[0] if turned else [kernel]
        kernels = np.ascontiguousarray(np.stack([part.reshape(len(kernel), -1) for part in whole]), np.float16)
        return _depthwise(kernels, window, engine.fast, general)
    if turned:
        parts = [[part.reshape(outputs, -1) for part in group] for group in winograd_kernels(kernel, groups)]
    else:
        parts = [[matrix] for matrix in matrices]
    stored = [native.store_kernels(group) for group in parts]

    def call(image: Array, bias: Array | None) -> Array:
        inputs = image.shape[0] // groups
        result = np.empty((groups * outputs, *window.outputs(image.shape[1:])), np.float16)
        for group, kernels in enumerate(stored if native.available() else ()):
            own = slice(group * outputs, (group + 1) * outputs)
            start = None if bias is None else bias[own]
            some = image[group * inputs : (group + 1) * inputs]
            if native.convolve(kernels, some, window, start, engine.fast, result[own]) is None:
                break
        else:
            if native.available():
                return result
        return general()(image, bias)

    return call


def _depthwise(kernels: Array, window: Window, fast: bool, general: Callable[[], PlaneForm]) -> PlaneForm:
    def call(image: Array, bias: Array | None) -> Array:
        result = native.depthwise(kernels, image, window, bias, fast) if native.available() else None
        return general()(image, bias) if result is None else result

    return call


def matrix_form(engine: Engine, lines: Array) -> PlaneForm:
    """The product of rows [rows, depth] with a matrix whose lines [columns, depth] are given."""

    @lru_cache(maxsize=1)
    def general() -> Array:
        return engine.prepare_matrix(np.ascontiguousarray(lines.T))

    stored = native.store_matrix(lines) if engine.keeps_weights and lines.size else None

    def call(rows: Array, bias: Array | None) -> Array:
        result = None
        if stored is not None and rows.size and native.available():
            result = native.multiply(rows, stored, bias, engine.fast)
        return engine.products(rows, general(), bias) if result is None else result

    return call

"""The simulator's arithmetic in C, where the package was built with a compiler: the same bits as the NumPy form.

``ANEFORGE_NATIVE=0`` turns it off, ``ANEFORGE_THREADS`` sets how many threads it may use (all CPUs otherwise), and
``ANEFORGE_NATIVE_PATH`` names the instruction set (see ``paths``) in place of the best one. None of them changes a
bit of any result. The library is loaded on first use.
"""

from aneforge.sim.native.contraction import accumulate, products, settled, stacked_products
from aneforge.sim.native.library import available, paths, settings, threads, why_not
from aneforge.sim.native.packed import convolve, depthwise, multiply, products_inside, store_kernels, store_matrix
from aneforge.sim.native.planar import (
    clamped,
    gained,
    has_special,
    line_sums,
    looked_up,
    narrowed,
    norm_lines,
    operands,
    paired,
    patches,
    settled_single,
    softmax_lines,
    stored,
    widened,
)

__all__ = [
    "accumulate",
    "available",
    "clamped",
    "convolve",
    "depthwise",
    "gained",
    "has_special",
    "line_sums",
    "looked_up",
    "multiply",
    "narrowed",
    "norm_lines",
    "operands",
    "paired",
    "patches",
    "paths",
    "products",
    "products_inside",
    "settings",
    "settled",
    "settled_single",
    "softmax_lines",
    "stacked_products",
    "store_kernels",
    "store_matrix",
    "stored",
    "threads",
    "why_not",
    "widened",
]

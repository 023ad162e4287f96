"""The arithmetic facts in which chips differ, looked up once per target."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aneforge.chips.assumed import compile_fact
from aneforge.chips.chip import Target
from aneforge.errors import AneforgeError
from aneforge.sim import native
from aneforge.sim.fast import fast_products, stacked_fast, to_single
from aneforge.sim.mac import products, products_in_tiles

Array = np.ndarray
MODES = ("exact", "fast")


@dataclass(frozen=True)
class Engine:
    """The arithmetic of one target."""

    target: Target
    fast: bool
    """Single-precision sums and one rounding in place of the engine's own (``aneforge.sim.fast``)."""
    winograd: bool
    """Convolutions of three columns and unit stride take the width Winograd form (N56, C76, U38)."""
    flush_subnormals: bool
    """The multipliers read subnormals as zero: claimed for the M1 (N34) and excluded by its printed norms (U39)."""
    tile_losses: bool
    """Four terms at a time lose what fp16 cannot hold beside a term of 4096 or more (N08, N09, U45)."""
    one_channel_planar: bool
    """A 1 x 1 convolution of one input channel does not pass the accumulators (N06, C20)."""
    int8_sums: bool
    """Products of two 8-bit operands are added as 32-bit integers (N16, U46)."""
    scaled_code_sums: bool
    """Codes of 4 bits, or numbers of a table, that have a scale are summed first; the sum is rounded to fp16, scaled
    and rounded again (N67, N69, N70, U65)."""
    int8_activations_q4: bool
    """Activations above 4094 are infinite in front of 8-bit weights (N17, U47)."""
    tables: str
    """The set of activation tables (U40)."""
    reduction_transpose_extent: int | None
    """The extent from which a reduction is transposed first (HAL 0x3f0). Printed sums of long rows differ between
    chips with different extents, in an order that is not known (N60): the simulator adds in the same order on all
    (U50)."""
    reciprocal_divide: bool
    """A division is the product with a rounded reciprocal (N44, N72, U62)."""

    @classmethod
    def of(cls, target: Target, mode: str = "exact") -> Engine:
        if mode not in MODES:
            raise AneforgeError(f"mode {mode!r} is unknown; choose one: {', '.join(MODES)}")

        def has(key: str) -> bool:
            return bool(compile_fact(target, key).value)

        return cls(
            target,
            mode == "fast",
            winograd=has("winograd"),
            flush_subnormals=has("mac_flushes_subnormals"),
            tile_losses=has("tile_losses"),
            one_channel_planar=has("one_channel_planar"),
            int8_sums=has("int8_sums"),
            scaled_code_sums=has("scaled_code_sums"),
            int8_activations_q4=has("int8_activations_q4"),
            tables=str(compile_fact(target, "table_set").value),
            reduction_transpose_extent=compile_fact(target, "reduce_transpose_extent").value,
            reciprocal_divide=has("reciprocal_divide"),
        )

    @property
    def keeps_weights(self) -> bool:
        """Whether weights are laid out for the C form, which has no chip that reads subnormals as zero."""
        return native.available() and not self.flush_subnormals

    def products(self, a: Array, b: Array, bias: Array | None = None) -> Array:
        """``a @ b + bias`` of [rows, depth] and [depth, columns], as the engine, or the fast mode, gives it (fp16)."""
        if bias is None and a.dtype == b.dtype == np.float16:
            inside = self._inside(a[None], b[None])
            if inside is not None:
                return inside[0]
        if self.fast:
            return fast_products(a, b, bias)
        if self.tile_losses:
            return products_in_tiles(a, b, bias, self.flush_subnormals)
        return products(a, b, bias, self.flush_subnormals)

    def _inside(self, a: Array, b: Array) -> Array | None:
        """The products of two stacks where the C form has them: no sum can leave the range on its way."""
        if not self.keeps_weights or not a.size or not b.size:
            return None
        return native.products_inside(np.ascontiguousarray(a), np.ascontiguousarray(b), self.fast)

    def stacked_products(self, a: Array, b: Array) -> Array:
        """The products of two stacks of matrices, matrix by matrix."""
        left, right = np.ascontiguousarray(a), np.ascontiguousarray(b)
        inside = self._inside(left, right)
        if inside is not None:
            return inside
        if self.fast:
            return stacked_fast(left, right)
        if self.tile_losses or not native.available() or not left.size:
            return np.stack([self.products(*pair) for pair in zip(left, right, strict=True)])
        return native.stacked_products(left, right, self.flush_subnormals)

    def prepare_matrix(self, matrix: Array) -> Array:
        """A weight matrix in the form that ``products`` reads fastest, to be kept between runs."""
        return to_single(matrix) if self.fast else np.ascontiguousarray(matrix)

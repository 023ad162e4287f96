"""Products of two 8-bit operands: 32-bit integer sums, scaled at their end (N16).

A sum that leaves 32 bits is infinite. The scale, and after it the bias, apply to the whole sum; one rounding, half
away, gives the fp16 result, which may lie above 32768.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from aneforge.engine.ir import Op
from aneforge.engine.traits import Trait
from aneforge.sim.engine import Engine
from aneforge.sim.half import SMALLEST_NORMAL, Window, narrowed, patches

Array = np.ndarray
_CODES = ("si8", "ui8")
_LIMIT = 2.0**31
_AT_ONCE = 1 << 22  # numbers of a map that are laid out for a kernel at a time, as float64
_LARGEST_SCALE = 128.0  # times any difference of two codes this stays within fp16


@dataclass(frozen=True)
class Integers:
    """Activations that are stored codes: where they come from, and which numbers the codes mean."""

    source: Op
    scale: float
    zero_point: float
    moved: bool = False
    """Whether ``source`` gives the decoded numbers, in another order: a layer decodes what it reads first, and then
    turns or cuts it (fusion.json ``atom_order``, InputDeQuant)."""

    def centred(self, values: Array) -> Array:
        """The values of ``source`` in a run as integers around zero."""
        wide = values.astype(np.float64)
        return np.rint(wide / self.scale) if self.moved else wide - self.zero_point

    def kernel(self, codes: Array, named: Mapping[str, Array]) -> tuple[Array, Array]:
        """Stored weights [depth, outputs] as integers, and the scale of each output's sum."""
        outputs = codes.shape[1]
        zero = named.get("kernel_zero_point", np.zeros(1)).reshape(-1)
        scale = np.broadcast_to(named["kernel_scale"].reshape(-1), (outputs,)) * self.scale
        return codes.astype(np.float64) - zero, scale

    def products(self, codes: Array, kernel: Array, scale: Array, bias: Array | None) -> Array:
        """[rows, depth] of stored codes and [depth, columns] of integers, as fp16."""
        return _settled(self.centred(codes) @ kernel, scale, bias)

    def convolved(self, image: Array, kernels: list[Array], scale: Array, bias: Array | None, window: Window) -> Array:
        """One image of stored codes; the matrices of the groups hold integers."""
        plane = window.outputs(image.shape[1:])
        inputs, outputs = image.shape[0] // len(kernels), kernels[0].shape[0]
        results = []
        for group, kernel in enumerate(kernels):
            own = slice(group * outputs, (group + 1) * outputs)
            centred = self.centred(image[group * inputs : (group + 1) * inputs]).astype(
                np.float16
            )  # exact: small codes
            start = None if bias is None else bias[own, None]
            some = max(1, _AT_ONCE // max(1, kernel.shape[1] * plane[1]))  # rows of the result at a time
            parts = []
            for first in range(0, plane[0], some):
                read = patches(centred, window, first, min(some, plane[0] - first))
                parts.append(_settled(kernel @ read.astype(np.float64), scale[own], start))
            results.append(np.concatenate(parts, axis=1))
        return np.concatenate(results).reshape(-1, *plane)


def _settled(sums: Array, scale: Array, bias: Array | None) -> Array:
    """Integer sums as fp16. They are exact in float64, in whatever order they were added."""
    lost = (sums >= _LIMIT) | (sums < -_LIMIT)
    scaled = sums * scale
    scaled = scaled if bias is None else scaled + bias
    return narrowed(np.where(lost, np.copysign(np.inf, sums), scaled))


def integer_operands(engine: Engine, op: Op) -> Integers | None:
    """The codes behind a product whose two operands are stored in 8 bits, where the chip adds those as integers.

    A kernel with a palette is decoded first, as on other chips.
    """
    if not op.is_a(Trait.STORED_KERNEL) or op.kind == "deconvolution":
        return None
    activation, weight = op.operands[0], op.operands[1]
    moved = False
    while activation.is_a(Trait.MOVEMENT) and len(activation.operands) == 1 and "storage" not in activation.labels:
        activation, moved = activation.operands[0], True
    named = [name for name in op.spec.stored if name in op.attrs]
    plain = "kernel_scale" in named and not any(name.lower().endswith("lut") for name in named)
    if not engine.int8_sums or activation.kind != "dequant" or not plain:
        return None
    stored = activation.operands[0]
    dtypes = [operand.type.dtype if operand.type is not None else "" for operand in (stored, weight)]
    if not all(dtype in _CODES for dtype in dtypes):
        return None
    scale, zero = float(activation.attrs["scale"]), float(activation.attrs["zero_point"])
    if not moved:
        return Integers(stored, scale, zero)
    # Codes can be recovered from decoded numbers wherever fp16 holds every product of a code and the scale to 11 bits.
    return Integers(op.operands[0], scale, zero, True) if SMALLEST_NORMAL <= scale <= _LARGEST_SCALE else None

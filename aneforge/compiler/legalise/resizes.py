"""The three strategies of a resize (table 35.3)."""

from __future__ import annotations

from aneforge.anec.ir import Module, Op
from aneforge.compiler.facts import Facts
from aneforge.compiler.legal.bounds import REORDERED, rounded_weights
from aneforge.compiler.legal.rewrites.interpolation import exact_upsampling, kernel_size, passes_through
from aneforge.compiler.legalise.relabel import Relayer, rewritten
from aneforge.compiler.legalise.upsampling import deconvolved, mixed, rounded_axes
from aneforge.compiler.lower.builder import reject_string
from aneforge.compiler.passes import pass_
from aneforge.compiler.refusal import Refused

_METHODS = ("NearestNeighbor", "Linear")
_GRIDS = ("Default", "UnalignedCorners", "OffsetCorners", "AlignedCorners", "StrictAlignedCorners")
_UPSAMPLES = (("NearestNeighbor", "Default"), ("NearestNeighbor", "UnalignedCorners"), ("Linear", "UnalignedCorners"))
"""Methods and grids whose kernel is the same at every output of a whole factor."""


@pass_(
    "resize-strategies",
    2,
    reads=[
        "texture_engine",
        "one_by_one_upsample",
        "max_f16_conv_kernel_dim_x",
        "max_tensor_width",
        "max_tensor_height",
        "limit:channel_extent",
    ],
    requires=["layers"],
    ensures=["mapped resizes"],
    rounds=True,
    only=["resize"],
)
def resize_strategies(module: Module, chip: Facts) -> int:
    """DecomposeResize: the texture engine (HAL 0x81d), else a deconvolution, else transposes and convolutions.

    The three round differently, so a resize gives different numbers on different chips.
    """

    def rewrite(walk: Relayer, op: Op) -> None:
        if chip["texture_engine"]:
            op.mark(data_path="texture")
            walk.changes += 1
            walk.keep(op)
        else:
            _decompose(walk, op, chip)

    return rewritten(module, lambda op: op.kind == "resize", rewrite)


def _decompose(walk: Relayer, op: Op, chip: Facts) -> None:
    """Replace a resize. A deconvolution keeps the slots behind it; behind a transpose they open a layer of their
    own."""
    mode = op.attrs["sampling_modes"]
    if op.attrs["sampling_methods"] not in _METHODS or mode not in _GRIDS:
        raise _unmapped(op, f"sampling {op.attrs['sampling_methods']} on the grid {mode} is not published")
    factors = _upsample_factors(op, chip)
    if factors is not None:
        linear = op.attrs["sampling_methods"] == "Linear"
        walk.record(op, "resize-deconvolution", REORDERED if exact_upsampling(factors, linear) else None)
        result = deconvolved(walk, op, factors, linear)
        walk.attach(walk.behind(op), result)
    else:
        _check_turned(op, chip)
        rounded = rounded_axes(op)
        walk.record(op, "resize-products", rounded_weights(rounded) if rounded else REORDERED)
        result = mixed(walk, op)
        walk.detach(walk.behind(op))
    walk.replace(op, result)


def _upsample_factors(op: Op, chip: Facts) -> tuple[int, int] | None:
    """QualifiesforUpsampleDecomposition: whole factors, a kernel of small width, and a 1 x 1 map by flag only."""
    (height, width), (rows, columns) = op.operands[0].shape[3:], op.shape[3:]
    method, mode = op.attrs["sampling_methods"], op.attrs["sampling_modes"]
    if (method, mode) not in _UPSAMPLES or (height, width) == (rows, columns):
        return None
    if rows % height or columns % width:
        return None
    if (height, width) == (1, 1) and not chip["one_by_one_upsample"]:  # U25
        return None
    factors = rows // height, columns // width
    small = all(kernel_size(factor, method == "Linear") <= chip["max_f16_conv_kernel_dim_x"] for factor in factors)
    return factors if small else None


def _check_turned(op: Op, chip: Facts) -> None:
    """Refuse a resize whose axes do not fit when each resized axis takes the place of the channels."""
    x, mode = op.operands[0], op.attrs["sampling_modes"]
    for axis, cap in ((3, chip["max_tensor_height"]), (4, chip["max_tensor_width"])):
        size, out = x.shape[axis], op.shape[axis]
        if passes_through(size, out, mode):
            continue
        if x.shape[2] > cap:
            raise _unmapped(op, f"{x.shape[2]} channels exceed the {cap} that fit on axis {'NDCHW'[axis]}")
        if max(size, out) > chip["limit:channel_extent"]:
            raise _unmapped(
                op, f"an axis of {max(size, out)} exceeds the {chip['limit:channel_extent']} channels of this target"
            )


def _unmapped(op: Op, reason: str) -> Refused:
    return Refused(
        op,
        "resize-unmapped",
        f"cannot resize without a texture engine: {reason}",
        reject_string("Resize", "failed to map"),
    )

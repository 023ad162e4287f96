"""Group convolutions whose dot products are too long for the grouped form."""

from __future__ import annotations

from aneforge.anec.ir import Module, Op
from aneforge.compiler.facts import Facts
from aneforge.compiler.fuse.scales import stored_weight
from aneforge.compiler.legalise.pieces import Piece, split
from aneforge.compiler.legalise.relabel import rewritten
from aneforge.compiler.passes import pass_


@pass_(
    "group-convolutions",
    2,
    reads=["limit:group_conv_decompose"],
    requires=["layers", "native strides"],
    ensures=["native groups"],
    only=["convolution"],
)
def group_convolutions(module: Module, chip: Facts) -> int:
    """Group-convolution decomposition: groups with more inputs times kernel area than the limit run one by one (U35).

    Runs after the large strides, which move pixels to the channels of each group. A live kernel cannot be cut along
    its outputs, which lie on the batch axis, so it stays whole.
    """
    limit = chip["limit:group_conv_decompose"]

    def too_long(op: Op) -> bool:
        return _too_long(op, limit) and stored_weight(module, op.operands[1]) is not None

    return rewritten(module, too_long, lambda walk, op: split(walk, op, _one_by_one(op)))


def _one_by_one(op: Op) -> list[Piece]:
    groups = op.attrs["groups"]
    outputs = op.shape[2] // groups
    return [Piece(number * outputs, outputs, 1) for number in range(groups)]


def _too_long(op: Op, limit: int) -> bool:
    if op.kind != "convolution" or op.attrs["groups"] == 1 or "channel_wise" in op.attrs:
        return False
    _, height, width = op.attrs["kernel_sizes"]
    return op.operands[0].shape[2] // op.attrs["groups"] * height * width > limit

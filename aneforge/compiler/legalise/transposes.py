"""Transposes beyond the native one."""

from __future__ import annotations

from collections.abc import Iterator

from aneforge.anec.ir import Module, Op, TensorType
from aneforge.compiler.facts import Facts
from aneforge.compiler.fuse.transposes import order_of
from aneforge.compiler.legalise.relabel import Relayer, rewritten, typed
from aneforge.compiler.passes import pass_


@pass_(
    "multi-pass-transposes",
    2,
    reads=["max_transpose_h", "max_transpose_w"],
    requires=["layers", "family forms", "mapped resizes"],
    ensures=["native transposes"],
    only=["transpose"],
)
def multi_pass_transposes(module: Module, chip: Facts) -> int:
    """IsValidNETransposeConfiguration: beyond HAL 0x468 and 0x470 a transpose is exchanges of two axes by DMA.

    A cap of zero means that there is no native transpose at all. A transpose that is not native leaves its epilogue
    slot, and so do the ops behind it in that layer.
    """

    def beyond(op: Op) -> bool:
        return op.kind == "transpose" and not _native(op, chip["max_transpose_h"], chip["max_transpose_w"])

    return rewritten(module, beyond, _in_passes)


def _in_passes(walk: Relayer, op: Op) -> None:
    walk.detach(walk.behind(op))
    value = op.operands[0]
    for pair in _exchanges(op):
        value = _exchange(walk, op, value, pair)
    walk.replace(op, value)


def _native(op: Op, tallest: int, widest: int) -> bool:
    shapes = (op.operands[0].shape, op.shape)
    return all(shape[3] <= tallest and shape[4] <= widest for shape in shapes)


def _exchanges(op: Op) -> Iterator[tuple[int, int]]:
    """Pairs of axes whose exchange, one after the other, is the transpose; none for two axes of one."""
    wanted = order_of(op)
    order = list(range(5))
    extents = list(op.operands[0].shape)
    for place, axis in enumerate(wanted):
        source = order.index(axis)
        if source == place:
            continue
        if (extents[place], extents[source]) != (1, 1):
            yield place, source
        for line in (order, extents):
            line[place], line[source] = line[source], line[place]


def _exchange(walk: Relayer, op: Op, x: Op, pair: tuple[int, int]) -> Op:
    first, second = pair
    shape = list(x.shape)
    shape[first], shape[second] = shape[second], shape[first]
    attrs = {"transpose_list": ((first, second), (second, first))}
    exchange = walk.layer("transpose", [x], TensorType(tuple(shape), typed(op).dtype), attrs, op.sources)
    exchange.mark(data_path="dma")
    return exchange

"""Large layers in pieces: some rows or some outputs at a time where a layer's tensors do not fit on the chip, and long
sums in several shorter ones."""

from __future__ import annotations

from aneforge.compiler.legal.rewrites.pieces import Cut
from aneforge.graph.ops.contraction import conv, linear
from aneforge.graph.ops.shape import concat
from aneforge.graph.tensor import Tensor
from aneforge.rewrites.rewrite import Rewrite, Scene, Site
from aneforge.rewrites.stored import Dense, Kernel, dense_of, kernel_of
from aneforge.tuning.attention import row_bounds

__all__ = ["TILING_FORMS"]

_COUNTS = (2, 4)


def _spills(x: Tensor, node: Tensor, scene: Scene) -> bool:
    return 2 * (x.size + node.size) > scene.working_set


def _by_outputs(count: int) -> Rewrite:
    """Each tile makes some of the outputs from the whole input."""

    def find(node: Tensor, scene: Scene) -> Site | None:
        found = dense_of(node) or kernel_of(node)
        if found is None or found.weight.shape[0] < count or not _spills(found.x, node, scene):
            return None
        if isinstance(found, Kernel) and found.groups != 1:
            return None

        def build(x: Tensor) -> Tensor:
            parts = []
            for begin, size in row_bounds(found.weight.shape[0], count):
                weight = found.weight[begin : begin + size]
                bias = None if found.bias is None else found.bias[begin : begin + size]
                parts.append(_layer(found, x, weight, bias))
            return concat(parts, axis=1 if isinstance(found, Kernel) else x.ndim - 1)

        return Site(node, (found.x,), build)

    return Rewrite("tiling", f"output-tiles-{count}", f"The outputs of a large layer in {count} tiles.", find)


def _layer(found: Dense | Kernel, x: Tensor, weight: object, bias: object) -> Tensor:
    if isinstance(found, Dense):
        return linear(x, weight, bias)
    return conv(x, weight, found.stride, found.pad, found.dilation, found.groups, bias)


def _by_rows(count: int) -> Rewrite:
    """Each tile makes all outputs of some rows: of a matrix, or of an image where every place stands by itself."""

    def find(node: Tensor, scene: Scene) -> Site | None:
        found = dense_of(node) or kernel_of(node)
        if found is None or not _spills(found.x, node, scene):
            return None
        if isinstance(found, Kernel) and not found.pointwise:
            return None
        axis = 2 if isinstance(found, Kernel) else found.x.ndim - 2
        if found.x.ndim < 2 or found.x.shape[axis] < count:
            return None

        def build(x: Tensor) -> Tensor:
            cut = Cut(x, axis)
            tiles = [cut.piece(begin, size) for begin, size in row_bounds(x.shape[axis], count)]
            return concat([_layer(found, each, found.weight, found.bias) for each in tiles], axis=axis)

        return Site(node, (found.x,), build)

    return Rewrite("tiling", f"row-tiles-{count}", f"The rows of a large layer in {count} tiles.", find)


def _split_sum(count: int) -> Rewrite:
    """Each part sums some of the inputs; partial sums are rounded to fp16 before they are added."""

    def find(node: Tensor, scene: Scene) -> Site | None:
        found = dense_of(node)
        if found is None or found.weight.shape[1] < max(scene.long_sum, count):
            return None

        def build(x: Tensor) -> Tensor:
            cut = Cut(x, x.ndim - 1)
            total: Tensor | None = None
            for begin, size in row_bounds(found.weight.shape[1], count):
                bias = found.bias if total is None else None
                part = linear(cut.whole(cut.piece(begin, size)), found.weight[:, begin : begin + size], bias)
                total = part if total is None else total + part
            assert total is not None
            return total

        return Site(node, (found.x,), build)

    return Rewrite("tiling", f"split-sum-{count}", f"A long sum as {count} shorter ones, added.", find)


TILING_FORMS = (
    *(_by_outputs(count) for count in _COUNTS),
    *(_by_rows(count) for count in _COUNTS),
    *(_split_sum(count) for count in _COUNTS),
)

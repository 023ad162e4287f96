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
        layer = dense_of(node) or kernel_of(node)
        if layer is None or layer.weight.shape[0] < count or not _spills(layer.x, node, scene):
            return None
        if isinstance(layer, Kernel) and layer.groups != 1:
            return None

        def build(x: Tensor) -> Tensor:
            parts = []
            for begin, size in row_bounds(layer.weight.shape[0], count):
                weight = layer.weight[begin : begin + size]
                bias = None if layer.bias is None else layer.bias[begin : begin + size]
                parts.append(_layer(layer, x, weight, bias))
            return concat(parts, axis=1 if isinstance(layer, Kernel) else x.ndim - 1)

        return Site(node, (layer.x,), build)

    return Rewrite("tiling", f"output-tiles-{count}", f"The outputs of a large layer in {count} tiles.", find)


def _layer(layer: Dense | Kernel, x: Tensor, weight: object, bias: object) -> Tensor:
    if isinstance(layer, Dense):
        return linear(x, weight, bias)
    return conv(x, weight, layer.stride, layer.pad, layer.dilation, layer.groups, bias)


def _by_rows(count: int) -> Rewrite:
    """Each tile makes all outputs of some rows: of a matrix, or of an image where every place stands by itself."""

    def find(node: Tensor, scene: Scene) -> Site | None:
        layer = dense_of(node) or kernel_of(node)
        if layer is None or not _spills(layer.x, node, scene):
            return None
        if isinstance(layer, Kernel) and not layer.pointwise:
            return None
        axis = 2 if isinstance(layer, Kernel) else layer.x.ndim - 2
        if layer.x.ndim < 2 or layer.x.shape[axis] < count:
            return None

        def build(x: Tensor) -> Tensor:
            cut = Cut(x, axis)
            tiles = [cut.piece(begin, size) for begin, size in row_bounds(x.shape[axis], count)]
            return concat([_layer(layer, tile, layer.weight, layer.bias) for tile in tiles], axis=axis)

        return Site(node, (layer.x,), build)

    return Rewrite("tiling", f"row-tiles-{count}", f"The rows of a large layer in {count} tiles.", find)


def _split_sum(count: int) -> Rewrite:
    """Each part sums some of the inputs; partial sums are rounded to fp16 before they are added."""

    def find(node: Tensor, scene: Scene) -> Site | None:
        layer = dense_of(node)
        if layer is None or layer.weight.shape[1] < max(scene.long_sum, count):
            return None

        def build(x: Tensor) -> Tensor:
            cut = Cut(x, x.ndim - 1)
            total: Tensor | None = None
            for begin, size in row_bounds(layer.weight.shape[1], count):
                bias = layer.bias if total is None else None
                part = linear(cut.whole(cut.piece(begin, size)), layer.weight[:, begin : begin + size], bias)
                total = part if total is None else total + part
            assert total is not None
            return total

        return Site(node, (layer.x,), build)

    return Rewrite("tiling", f"split-sum-{count}", f"A long sum as {count} shorter ones, added.", find)


TILING_FORMS = (
    *(_by_outputs(count) for count in _COUNTS),
    *(_by_rows(count) for count in _COUNTS),
    *(_split_sum(count) for count in _COUNTS),
)

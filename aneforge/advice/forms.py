"""Every form that is weighed: attention, large layers in pieces, layers by another op, and weights in stored forms."""

from __future__ import annotations

from functools import cache

import numpy as np

from aneforge.advice.attention import ATTENTION_FORMS, row_bounds
from aneforge.codecs.storages import Storage, streamed_storages
from aneforge.compiler.legal.rewrites.pieces import Cut
from aneforge.graph.forms import FormContext, GraphForm, Site
from aneforge.graph.layer_forms import OP_FORMS, layer_of
from aneforge.graph.ops.shape import concat
from aneforge.graph.tensor import Tensor
from aneforge.targets.chip import Target

__all__ = ["PLAIN_FORMS", "TILING_FORMS", "encoding_forms", "forms_for"]

_COUNTS = (2, 4)


def _spills(x: Tensor, node: Tensor, context: FormContext) -> bool:
    return 2 * (x.size + node.size) > context.working_set


def _by_outputs(count: int) -> GraphForm:
    """Each tile makes some of the outputs from the whole input."""

    def find(node: Tensor, context: FormContext) -> Site | None:
        layer = layer_of(node)
        if layer is None or layer.groups != 1 or layer.weight.shape[0] < count or not _spills(layer.x, node, context):
            return None

        def build(x: Tensor) -> Tensor:
            parts = []
            for begin, size in row_bounds(layer.weight.shape[0], count):
                bias = None if layer.bias is None else layer.bias[begin : begin + size]
                parts.append(layer.build(x, layer.weight[begin : begin + size], bias))
            return concat(parts, axis=x.ndim - 1 if layer.steps is None else 1)

        return Site(node, (layer.x,), build)

    return GraphForm("tiling", f"output-tiles-{count}", f"The outputs of a large layer in {count} tiles.", find)


def _by_rows(count: int) -> GraphForm:
    """Each tile makes all outputs of some rows: of a matrix, or of an image where every place stands by itself."""

    def find(node: Tensor, context: FormContext) -> Site | None:
        layer = layer_of(node)
        if layer is None or not _spills(layer.x, node, context):
            return None
        if layer.steps is not None and not layer.is_pointwise:
            return None
        axis = layer.x.ndim - 2 if layer.steps is None else 2
        if layer.x.ndim < 2 or layer.x.shape[axis] < count:
            return None

        def build(x: Tensor) -> Tensor:
            cut = Cut(x, axis)
            tiles = [cut.piece(begin, size) for begin, size in row_bounds(x.shape[axis], count)]
            return concat([layer.build(tile, layer.weight, layer.bias) for tile in tiles], axis=axis)

        return Site(node, (layer.x,), build)

    return GraphForm("tiling", f"row-tiles-{count}", f"The rows of a large layer in {count} tiles.", find)


def _split_sum(count: int) -> GraphForm:
    """Each part sums some of the inputs; partial sums are rounded to fp16 before they are added."""

    def find(node: Tensor, context: FormContext) -> Site | None:
        layer = layer_of(node)
        if layer is None or layer.steps is not None or layer.weight.shape[1] < max(context.long_sum, count):
            return None

        def build(x: Tensor) -> Tensor:
            cut = Cut(x, x.ndim - 1)
            total: Tensor | None = None
            for begin, size in row_bounds(layer.weight.shape[1], count):
                bias = layer.bias if total is None else None
                part = layer.build(cut.whole(cut.piece(begin, size)), layer.weight[:, begin : begin + size], bias)
                total = part if total is None else total + part
            assert total is not None
            return total

        return Site(node, (layer.x,), build)

    return GraphForm("tiling", f"split-sum-{count}", f"A long sum as {count} shorter ones, added.", find)


TILING_FORMS = (
    *(_by_outputs(count) for count in _COUNTS),
    *(_by_rows(count) for count in _COUNTS),
    *(_split_sum(count) for count in _COUNTS),
)
PLAIN_FORMS = (*ATTENTION_FORMS, *TILING_FORMS, *OP_FORMS)
"""Forms that keep the weights as they are."""


def _stored_as(storage: Storage) -> GraphForm:
    def find(node: Tensor, context: FormContext) -> Site | None:
        layer = layer_of(node)
        if layer is None or not storage.pays(layer.weight):
            return None
        stored = cache(lambda: storage.write(layer.weight))  # a weight is written when somebody tries it, and once
        kept = np.count_nonzero(layer.weight) if storage.name == "sparse" else 0
        return layer.stored_as(stored, traits=kept)

    name = storage.encoding
    return GraphForm("encoding", name, f"The weights of a layer stored as {name}.", find)


def encoding_forms(target: Target) -> tuple[GraphForm, ...]:
    """A form for each way of storing weights that the chip streams."""
    return tuple(map(_stored_as, streamed_storages(target)))


def forms_for(target: Target, compressed: bool = False) -> tuple[GraphForm, ...]:
    """Every form that a search on a target weighs; compressed weights only where they are allowed."""
    return (*PLAIN_FORMS, *encoding_forms(target)) if compressed else PLAIN_FORMS

"""Layers with their weights in the forms that a chip streams, as rewrites."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from aneforge.codecs.encoders import Encoder, encoders_for, is_worth_encoding
from aneforge.graph.encoding import Encoded
from aneforge.graph.ops.contraction import conv, linear
from aneforge.graph.tensor import Tensor
from aneforge.rewrites.rewrite import Rewrite, Scene, Site
from aneforge.rewrites.stored import Dense, Kernel, dense_of, kernel_of
from aneforge.targets.chip import Target

__all__ = ["encoding_forms", "stored_site"]


def encoding_forms(target: Target) -> tuple[Rewrite, ...]:
    """A rewrite for each form that the chip streams."""
    return tuple(_form(encoder) for encoder in encoders_for(target))


def _form(encoder: Encoder) -> Rewrite:
    def find(node: Tensor, scene: Scene) -> Site | None:
        layer = dense_of(node) or kernel_of(node)
        if layer is None or not is_worth_encoding(layer.weight) or not encoder.pays(layer.weight):
            return None
        stored = cache(lambda: encoder.write(layer.weight))  # a weight is written when somebody tries it, and once

        kept = np.count_nonzero(layer.weight) if encoder.name == "sparse" else 0
        return stored_site(node, layer, stored, traits=kept)

    return Rewrite("encoding", encoder.name, f"The weights of a layer stored as {encoder.name}.", find)


def stored_site(
    node: Tensor, layer: Dense | Kernel, stored: Callable[[], Encoded | Tensor], traits: object = None
) -> Site:
    """A layer with its weight in another form, which is made when the layer is built."""

    def build(x: Tensor) -> Tensor:
        if isinstance(layer, Dense):
            return linear(x, stored(), layer.bias)
        return conv(x, stored(), layer.stride, layer.pad, layer.dilation, layer.groups, layer.bias)

    return Site(node, (layer.x,), build, traits=traits)

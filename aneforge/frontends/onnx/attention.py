"""Attention and rotary positions of the ONNX standard."""

from __future__ import annotations

import numpy as np

from aneforge.frontends.forms import LARGEST, added_mask
from aneforge.frontends.forms.attention import as_heads, as_line, attention, rotary
from aneforge.frontends.onnx.node import Node, Rule, Value
from aneforge.frontends.values import NoForm, as_tensor, known
from aneforge.graph.tensor import Tensor

__all__ = ["PREFERRED", "RULES"]


def _rotary(node: Node, x: Value, cos: Value, sin: Value, places: Value | None = None) -> Tensor:
    tensor, heads = as_tensor(x), int(node.attr("num_heads", 0))
    named = None if places is None else known(places, "the positions").astype(int)
    if tensor.ndim == 3 and not heads:
        raise NoForm("rotary positions of heads side by side, without their number")
    split = as_heads(tensor, heads) if tensor.ndim == 3 else tensor
    turned, size = bool(node.attr("interleaved", 0)), int(node.attr("rotary_embedding_dim", 0))
    result = rotary(split, cos, sin, named, interleaved=turned, size=size)
    return as_line(result) if tensor.ndim == 3 else result


def _attention(
    node: Node, q: Value, k: Value, v: Value, mask: Value | None = None, *rest: Value | None
) -> Tensor | list[Tensor]:
    """Plain attention as the engine's layer. What it leaves out, the standard's own definition says."""
    if any(operand is not None for operand in rest) or node.outputs > 1:
        raise NoForm("attention with a past or further results")
    if any(int(node.attr(name, -1)) >= 0 for name in ("left_window_size", "right_window_size")):
        raise NoForm("attention within a window")
    operands = [as_tensor(operand) for operand in (q, k, v)]
    flat = operands[0].ndim == 3
    if flat:
        heads = [int(node.attr("q_num_heads", 0)), *[int(node.attr("kv_num_heads", 0))] * 2]
        operands = [as_heads(operand, count) for operand, count in zip(operands, heads, strict=True)]
    queries, keys = operands[0].shape[2], operands[1].shape[2]
    causal, scale = bool(node.attr("is_causal", 0)), node.attr("scale")
    if causal and queries != keys:
        raise NoForm("attention that looks back from other places than its keys have")
    if mask is not None and (mask.shape[-1] != keys or causal):
        raise NoForm("a mask of another length")
    added = None if mask is None else _added(mask)
    settings = {"scale": None if scale is None else float(scale), "softcap": float(node.attr("softcap", 0.0))}
    result = attention(operands[0], operands[1], operands[2], mask=added, causal=causal, **settings)
    return as_line(result) if flat else result


def _added(mask: Value) -> Value:
    """What is added to the scores; truth values say what counts. A row where nothing counts gives zeros, which a sum
    cannot say."""
    if isinstance(mask, Tensor):
        if mask.dtype == "bool":
            raise NoForm("computed truth values, which may leave nothing to look at")
        return mask
    array = np.asarray(mask)
    if ((~array).all(axis=-1) if array.dtype == bool else array.max(axis=-1) <= -LARGEST).any():
        raise NoForm("a row of the mask leaves nothing to look at")
    return added_mask(array)


RULES: dict[str, Rule] = {"RotaryEmbedding": _rotary}

PREFERRED: dict[str, Rule] = {"Attention": _attention}
"""Forms that are better than the standard's own definition of an op, where they hold; it stands where they refuse."""

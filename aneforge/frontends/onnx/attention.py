"""Attention and rotary embeddings of the ONNX standard."""

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
    positions = None if places is None else known(places, "input 'position_ids'").astype(int)
    if tensor.ndim == 3 and not heads:
        raise NoForm("num_heads is missing; an input of rank 3 needs it")
    split = as_heads(tensor, heads) if tensor.ndim == 3 else tensor
    interleaved, size = bool(node.attr("interleaved", 0)), int(node.attr("rotary_embedding_dim", 0))
    result = rotary(split, cos, sin, positions, interleaved=interleaved, size=size)
    return as_line(result) if tensor.ndim == 3 else result


def _attention(
    node: Node, q: Value, k: Value, v: Value, mask: Value | None = None, *unsupported: Value | None
) -> Tensor | list[Tensor]:
    """Map plain attention to the engine's layer. Other cases use the standard's own definition."""
    if any(operand is not None for operand in unsupported) or node.outputs > 1:
        raise NoForm("a past or further results are not supported; export keys and values apart")
    if any(int(node.attr(name, -1)) >= 0 for name in ("left_window_size", "right_window_size")):
        raise NoForm("left_window_size and right_window_size are not supported; use a mask")
    operands = [as_tensor(operand) for operand in (q, k, v)]
    flat = operands[0].ndim == 3
    if flat:
        heads = [int(node.attr("q_num_heads", 0)), *[int(node.attr("kv_num_heads", 0))] * 2]
        operands = [as_heads(operand, count) for operand, count in zip(operands, heads, strict=True)]
    queries, keys = operands[0].shape[2], operands[1].shape[2]
    causal, scale = bool(node.attr("is_causal", 0)), node.attr("scale")
    if causal and queries != keys:
        raise NoForm(f"is_causal with {queries} queries and {keys} keys is not supported; both counts must be equal")
    if mask is not None and (mask.shape[-1] != keys or causal):
        raise NoForm(
            f"a mask of shape {list(mask.shape)} with is_causal={int(causal)} is not supported; its last axis must "
            f"have {keys} elements, and is_causal must be 0"
        )
    added = None if mask is None else _additive_mask(mask)
    settings = {"scale": None if scale is None else float(scale), "softcap": float(node.attr("softcap", 0.0))}
    result = attention(operands[0], operands[1], operands[2], mask=added, causal=causal, **settings)
    return as_line(result) if flat else result


def _additive_mask(mask: Value) -> Value:
    """Return what is added to the scores. In a boolean mask, True keeps a key. ONNX gives zeros for a row that
    excludes every key; a sum cannot give that."""
    if isinstance(mask, Tensor):
        if mask.dtype == "bool":
            raise NoForm(
                "a computed boolean mask is not supported; a row of it may exclude every key. Use a mask of numbers"
            )
        return mask
    array = np.asarray(mask)
    if ((~array).all(axis=-1) if array.dtype == bool else array.max(axis=-1) <= -LARGEST).any():
        raise NoForm("a row of the mask excludes every key; each query needs at least one key")
    return added_mask(array)


RULES: dict[str, Rule] = {"RotaryEmbedding": _rotary}

PREFERRED: dict[str, Rule] = {"Attention": _attention}
"""Rules that are tried before the standard's own definition of an op, which is used where they raise."""

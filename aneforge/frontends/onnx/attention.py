"""Attention and rotary embeddings of the ONNX standard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aneforge.frontends.forms import added_mask
from aneforge.frontends.forms.attention import as_heads, as_line, attention, rotary
from aneforge.frontends.importer.op import Op
from aneforge.frontends.values import Array, NoForm, Value
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.tensor import Tensor


def _rotary(
    x: Tensor,
    cos_cache: Value,
    sin_cache: Value,
    position_ids: Array | None = None,
    num_heads: int = 0,
    interleaved: bool = False,
    rotary_embedding_dim: int = 0,
) -> Tensor:
    if x.ndim == 3 and not num_heads:
        raise NoForm("num_heads is missing; an input of rank 3 needs it")
    return rotated(x, cos_cache, sin_cache, position_ids, num_heads, interleaved, rotary_embedding_dim)


def rotated(
    x: Tensor, cos: Value, sin: Value, places: Array | None, heads: int, interleaved: bool, size: int
) -> Tensor:
    """Rotary positions of [samples, heads, places, features], or of rank 3 with all heads in one line."""
    split = as_heads(x, heads) if x.ndim == 3 else x
    positions = None if places is None else places.astype(int)
    result = rotary(split, cos, sin, positions, interleaved=interleaved, size=size)
    return as_line(result) if x.ndim == 3 else result


def _attention(
    op: Op,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    nonpad_kv_seqlen: Value | None = None,
    q_num_heads: int = 0,
    kv_num_heads: int = 0,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float = 0.0,
    left_window_size: int = -1,
    right_window_size: int = -1,
) -> Tensor | list[Tensor]:
    """Map plain attention to the engine's layer. Other cases use the standard's own definition."""
    if any(value is not None for value in (past_key, past_value, nonpad_kv_seqlen)) or len(op.outputs) > 1:
        raise NoForm("a past or further results are not supported; export keys and values apart")
    if left_window_size >= 0 or right_window_size >= 0:
        raise NoForm("left_window_size and right_window_size are not supported; use a mask")
    flat = q.ndim == 3
    if flat:
        q, k, v = as_heads(q, q_num_heads), as_heads(k, kv_num_heads), as_heads(v, kv_num_heads)
    queries, keys = q.shape[2], k.shape[2]
    if is_causal and queries != keys:
        raise NoForm(f"is_causal with {queries} queries and {keys} keys is not supported; both counts must be equal")
    if attn_mask is not None and (attn_mask.shape[-1] != keys or is_causal):
        raise NoForm(
            f"a mask of shape {list(attn_mask.shape)} with is_causal={int(is_causal)} is not supported; its last axis "
            f"must have {keys} elements, and is_causal must be 0"
        )
    added = None if attn_mask is None else _additive_mask(attn_mask)
    result = attention(q, k, v, mask=added, causal=is_causal, scale=scale, softcap=softcap)
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
    if ((~array).all(axis=-1) if array.dtype == bool else array.max(axis=-1) <= -FP16_MAX).any():
        raise NoForm("a row of the mask excludes every key; each query needs at least one key")
    return added_mask(array)


FUNCTIONS: dict[str, Callable[..., Any]] = {"attention_of": _attention, "rotary": _rotary}

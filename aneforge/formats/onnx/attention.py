"""Attention and rotary embeddings: of the ONNX standard, and of the domain com.microsoft."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats import forms
from aneforge.formats.forms.attention import as_heads, as_line, attention, causal_mask
from aneforge.formats.forms.pointwise import UNARY
from aneforge.formats.importer.op import FileOp
from aneforge.formats.onnx.node import OnnxNode
from aneforge.formats.ops import OPS
from aneforge.formats.values import Array, NoForm, Value, as_tensor, known
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.tensor import Tensor


def rotary(
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
    result = forms.rotary(split, cos, sin, positions, interleaved=interleaved, size=size)
    return as_line(result) if x.ndim == 3 else result


def attention_of(
    op: FileOp,
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
    return forms.added_mask(array)


# Of com.microsoft.


def rotary_by_places(
    x: Tensor,
    position_ids: Array,
    cos_cache: Value,
    sin_cache: Value,
    num_heads: int = 0,
    interleaved: bool = False,
    rotary_embedding_dim: int = 0,
) -> Tensor:
    length = x.shape[1] if x.ndim == 3 else x.shape[2]
    if position_ids.size == 1:  # the first position; the others follow it
        position_ids = np.arange(length)[None] + int(position_ids.reshape(-1)[0])
    if x.ndim == 3 and not num_heads:
        num_heads = x.shape[2] // (rotary_embedding_dim or 2 * cos_cache.shape[-1])
    return rotated(x, cos_cache, sin_cache, position_ids, num_heads, interleaved, rotary_embedding_dim)


def attention_of_one(
    op: FileOp,
    x: Tensor,
    weight: Value,
    bias: Value | None = None,
    mask: Value | None = None,
    past: Value | None = None,
    scores_bias: Value | None = None,
    num_heads: int = 1,
    qkv_hidden_sizes: list[int] | None = None,
    do_rotary: bool = False,
    scale: float = 0.0,
    unidirectional: bool = False,
    mask_filter_value: float = -10000.0,
) -> list[Value]:
    """Compute queries, keys and values with one product, then attention."""
    if past is not None or do_rotary:
        raise NoForm(
            "a past in one tensor, do_rotary and inputs after the sixth are not supported; export keys and values "
            "apart"
        )
    lines = forms.linear(x, forms.swap_last_axes(weight), bias)
    sizes = qkv_hidden_sizes or [lines.shape[-1] // 3] * 3
    q, k, v = (as_heads(part, num_heads) for part in forms.parts(lines, 2, sizes))
    padding = _padding_mask(mask_filter_value, mask, q, k)
    result = _masked_attention(q, k, v, scale, unidirectional, padding, scores_bias)
    return [as_line(result), forms.stacked([k, v], 0)] if op.used(1) else [as_line(result)]


def _masked_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, padding: Array | None, scores_bias: Value | None
) -> Tensor:
    """Apply attention with a bias on the scores and a mask for padded keys."""
    queries, keys = q.shape[2], k.shape[2]
    mask: Value | None = scores_bias
    if padding is not None:
        mask = _add_masks(mask, padding)
    if causal and mask is not None:
        mask = _add_masks(mask, causal_mask(queries, keys, keys - queries).reshape(1, 1, queries, keys))
        causal = False
    return attention(q, k, v, scale=scale or None, mask=mask, causal=causal)


def _add_masks(a: Value | None, b: Value) -> Value:
    if a is None:
        return b
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return forms.added(a, b)
    return np.asarray(a, np.float64) + np.asarray(b, np.float64)


def _padding_mask(excluded: float, padding: Value | None, q: Tensor, k: Tensor) -> Array | None:
    """The mask must be known: lengths [samples], or flags [samples, keys] or [samples, queries, keys]."""
    if padding is None:
        return None
    samples, queries, keys = q.shape[0], q.shape[2], k.shape[2]
    marks = known(padding, "the padding mask")
    if marks.shape == (samples,):
        marks = np.arange(keys)[None] < marks.reshape(-1, 1)
    if marks.shape == (samples, keys):
        marks = marks.reshape(samples, 1, 1, keys)
    elif marks.shape == (samples, queries, keys):
        marks = marks.reshape(samples, 1, queries, keys)
    else:
        raise NoForm(
            f"a mask of shape {list(marks.shape)} is not supported; expected [{samples}], [{samples}, {keys}] or "
            f"[{samples}, {queries}, {keys}]"
        )
    return np.where(marks.astype(bool), 0.0, excluded)


def multi_head_attention(
    q: Tensor,
    k: Value | None = None,
    v: Value | None = None,
    bias: Value | None = None,
    padding: Value | None = None,
    scores_bias: Value | None = None,
    past_k: Value | None = None,
    past_v: Value | None = None,
    num_heads: int = 1,
    scale: float = 0.0,
    unidirectional: bool = False,
    mask_filter_value: float = -10000.0,
) -> list[Value]:
    """Queries, keys and values are already projected; keys and values may be split into heads."""
    if k is None or v is None or q.ndim != 3:
        raise NoForm("packed queries, keys and values are not supported; export three tensors of rank 3")
    added: Sequence[Any] = [None] * 3
    if bias is not None:
        sizes = [q.shape[-1], q.shape[-1], as_tensor(v).shape[-1]]
        is_known = not isinstance(bias, Tensor)
        added = np.split(np.asarray(bias), np.cumsum(sizes)[:-1]) if is_known else forms.parts(bias, 0, sizes)
    query = as_heads(with_bias(q, added[0]), num_heads)
    key, value = (
        as_tensor(operand) if as_tensor(operand).ndim == 4 else as_heads(with_bias(operand, part), num_heads)
        for operand, part in zip((k, v), added[1:], strict=True)
    )
    if past_k is not None and past_v is not None:
        key, value = forms.joined([past_k, key], 2), forms.joined([past_v, value], 2)
    mask = _padding_mask(mask_filter_value, padding, query, key)
    result = as_line(_masked_attention(query, key, value, scale, unidirectional, mask, scores_bias))
    return [result, key, value]


def with_bias(x: Value, bias: Value | None) -> Tensor:
    return as_tensor(x) if bias is None else forms.added(x, bias)


def group_query_attention(
    q: Tensor,
    k: Value | None = None,
    v: Value | None = None,
    past_k: Value | None = None,
    past_v: Value | None = None,
    seqlens_k: list[int] | None = None,
    total_sequence_length: int | None = None,
    cos_cache: Value | None = None,
    sin_cache: Value | None = None,
    num_heads: int = 1,
    kv_num_heads: int = 1,
    do_rotary: bool = False,
    rotary_interleaved: bool = False,
    local_window_size: int = -1,
    softcap: float = 0.0,
    scale: float = 0.0,
    smooth_softmax: bool = False,
) -> list[Value]:
    """Causal attention. The length of the past must be known when the file is read."""
    if smooth_softmax:
        raise NoForm("inputs after sin_cache and smooth_softmax are not supported; export the model without them")
    query, key, value = _split_heads(q, k, v, num_heads, kv_num_heads)
    queries = query.shape[2]
    length = _total_length(seqlens_k, total_sequence_length)
    past_length = length - queries
    if past_length < 0:
        raise NoForm(
            f"the sequence has {length} positions, fewer than the {queries} new ones; padded prompts are not "
            "supported. Use a prompt without padding"
        )
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise NoForm("do_rotary is set, but cos_cache or sin_cache is missing; both must be given")
        places, size = np.arange(past_length, length)[None], 2 * cos_cache.shape[-1]
        query, key = (
            forms.rotary(part, cos_cache, sin_cache, places, interleaved=rotary_interleaved, size=size)
            for part in (query, key)
        )
    keys_and_values, present = _join_past(key, value, past_k, past_v, past_length)
    window = max(local_window_size, 0)
    whole_prompt = past_length == 0 and not window
    no_mask = whole_prompt or (queries == 1 and not window)
    mask = None if no_mask else causal_mask(queries, length, past_length, window)
    causal = whole_prompt and queries > 1
    result = attention(query, *keys_and_values, scale=scale or None, mask=mask, causal=causal, softcap=softcap)
    return [as_line(result), *present]


def _split_heads(
    q: Tensor, k: Value | None, v: Value | None, heads: int, kv_heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    if k is None or v is None:
        size = q.shape[-1] // (heads + 2 * kv_heads)
        q, k, v = forms.parts(q, 2, [heads * size, kv_heads * size, kv_heads * size])
    return as_heads(q, heads), as_heads(as_tensor(k), kv_heads), as_heads(as_tensor(v), kv_heads)


def _total_length(lengths: list[int] | None, total: int | None) -> int:
    """Return the sequence length with the new positions. ``lengths`` has the last index of each sample; all must be
    equal."""
    if lengths is None:
        if total is None:
            raise LoadError("input 'total_sequence_length' is missing; the op needs it")
        return total
    totals = {last + 1 for last in lengths}
    if len(totals) != 1:
        raise NoForm(f"the samples have different lengths {sorted(totals)}; all samples must have the same length")
    return totals.pop()


def _join_past(
    key: Tensor, value: Tensor, past_k: Value | None, past_v: Value | None, past_length: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the keys and values to attend to, and the present ones. A past longer than needed is a buffer, whose
    unused part is kept."""
    new = [key, value]
    if past_k is None or past_v is None:
        if past_length:
            raise NoForm(
                f"the sequence has {past_length} past positions, but past_key or past_value is missing; both must be "
                "given"
            )
        return new, new
    caches = [as_tensor(past_k), as_tensor(past_v)]
    room, added = caches[0].shape[2], key.shape[2]
    if room < past_length:
        raise NoForm(f"the past has {room} positions; the sequence needs at least {past_length}")
    cut = [forms.sliced(cache, 2, 0, past_length) if past_length else None for cache in caches]
    joined = [part if old is None else forms.joined([old, part], 2) for old, part in zip(cut, new, strict=True)]
    if room <= past_length or room < past_length + added:
        return joined, joined
    unused = [
        forms.sliced(cache, 2, past_length + added, room) if room > past_length + added else None for cache in caches
    ]
    present = [part if end is None else forms.joined([part, end], 2) for end, part in zip(unused, joined, strict=True)]
    return joined, present


# Ops of the domain com.microsoft: fused ops that exporters and ONNX Runtime's optimiser write.


# Products and activations.


def fused_matmul(
    x: Tensor,
    y: Value,
    alpha: float = 1.0,
    transpose_x: bool = False,
    transpose_y: bool = False,
    transpose_batch: bool = False,
) -> Tensor:
    if transpose_batch:
        raise NoForm("transBatchA and transBatchB are not supported; use a Transpose node")
    return forms.scaled(OPS["matmul"](x, y, transpose_x, transpose_y), alpha)


def bias_gelu(x: Value, bias: Value | None = None, mode: str = "none") -> Tensor:
    return forms.gelu(with_bias(x, bias), mode)


_ACTIVATIONS: dict[str, Callable[[Tensor, list[float]], Tensor]] = {
    "": lambda x, settings: x,
    "Relu": lambda x, settings: UNARY["relu"](x),
    "Sigmoid": lambda x, settings: UNARY["sigmoid"](x),
    "Tanh": lambda x, settings: UNARY["tanh"](x),
    "LeakyRelu": lambda x, settings: forms.leaky_relu(x, *settings[:1]),
    "Clip": lambda x, settings: forms.clamped(x, settings[0], settings[1]),
    "HardSigmoid": lambda x, settings: forms.hard_sigmoid(x, *(settings or [0.2, 0.5])),
}
_ACTIVATION = ("activation", "activation_params", "activation_alpha", "activation_beta")


def _activate(node: OnnxNode, x: Tensor) -> Tensor:
    """The activation that ONNX Runtime fused behind an op, by four attributes of the node."""
    kind = str(node.attr("activation", ""))
    if kind not in _ACTIVATIONS:
        raise NoForm(
            f"fused activation {kind!r} is not supported; the reader has {', '.join(filter(None, _ACTIVATIONS))}"
        )
    settings = [float(setting) for setting in node.attr("activation_params", [])]
    separate = [node.attr("activation_alpha"), node.attr("activation_beta")]
    return _ACTIVATIONS[kind](x, settings or [float(setting) for setting in separate if setting is not None])


def _plain(node: OnnxNode, kind: str, inputs: Sequence[Value | None]) -> Tensor:
    """The op of the standard without what ONNX Runtime fused to it."""
    attrs = {name: value for name, value in node.attrs.items() if name not in _ACTIVATION}
    return node.result_of(kind, inputs, attrs)


def fused_conv(node: OnnxNode) -> Tensor:
    """A fourth input is added to the result."""
    result = _plain(node, "Conv", node.inputs[:3])
    addend = node.inputs[3] if len(node.inputs) > 3 else None
    return _activate(node, result if addend is None else forms.added(result, addend))


def fused_gemm(node: OnnxNode) -> Tensor:
    return _activate(node, _plain(node, "Gemm", node.inputs))


def nhwc_conv(node: OnnxNode) -> Tensor:
    """Input and output have channels last; the kernel has the usual layout."""
    x, *others = node.inputs
    image = as_tensor(x)
    inner, outer = _channel_orders(image.ndim)
    result = _plain(node, "Conv", [forms.transposed(image, inner), *others])
    return forms.transposed(_activate(node, result), outer)


def _channel_orders(rank: int) -> tuple[list[int], list[int]]:
    """Return the axis orders from channels last to channels first, and back."""
    return [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]


# Norms.


def skip_layer_norm(
    op: FileOp,
    x: Value,
    skip: Value,
    gamma: Value,
    beta: Value | None = None,
    bias: Value | None = None,
    epsilon: float = 1e-12,
) -> list[Value]:
    total = with_bias(with_bias(x, skip), bias)
    axes = (total.ndim - 1,)
    if not any(op.used(place) for place in (1, 2)):
        return [forms.layer_norm(total, axes, gamma, beta, epsilon), total, total, total]
    return [*forms.layer_norm_with_statistics(total, axes, gamma, beta, epsilon), total]


def skip_rms_norm(
    op: FileOp, x: Value, skip: Value, gamma: Value, bias: Value | None = None, epsilon: float = 1e-6
) -> list[Value]:
    total = with_bias(with_bias(x, skip), bias)
    axes = (total.ndim - 1,)
    result = forms.rms_norm(total, axes, gamma, epsilon)
    if not any(op.used(place) for place in (1, 2)):
        return [result, total, total, total]
    return [result, *forms.root_mean_square(total, axes, epsilon), total]


def rms_norm_of(op: FileOp, x: Tensor, gamma: Value, axis: int = -1, epsilon: float = 1e-5) -> Tensor:
    if op.used(1):
        raise NoForm("a second output is not supported; the engine gives the norm only. Remove the output")
    return OPS["rms_norm"](x, gamma, axis, epsilon)


def group_norm_of(
    x: Tensor,
    gamma: Value,
    beta: Value,
    groups: int,
    epsilon: float = 1e-5,
    channels_last: bool = True,
    activation: bool = False,
) -> Tensor:
    """Channels are last unless channels_last is 0; a swish may follow."""
    inner, outer = _channel_orders(x.ndim)
    result = forms.group_norm(forms.transposed(x, inner) if channels_last else x, groups, gamma, beta, epsilon)
    result = forms.swish(result) if activation else result
    return forms.transposed(result, outer) if channels_last else result

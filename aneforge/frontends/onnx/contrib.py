"""Ops of the domain com.microsoft: fused ops that exporters and ONNX Runtime's optimiser write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aneforge.frontends import forms
from aneforge.frontends.forms.attention import as_heads, as_line, attention, causal_mask, rotary
from aneforge.frontends.forms.norms import whitened
from aneforge.frontends.onnx import elementwise, products, spatial
from aneforge.frontends.onnx.node import Node, Rule, Value
from aneforge.frontends.values import NoForm, as_tensor, known, whole_numbers
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["CONTRIB", "RULES"]

# Products and activations.


def _fused_matmul(node: Node, a: Value, b: Value) -> Tensor:
    if node.attr("transBatchA", 0) or node.attr("transBatchB", 0):
        raise NoForm("transBatchA and transBatchB are not supported; use a Transpose node")
    left = as_tensor(a).mT if node.attr("transA", 0) else as_tensor(a)
    right: Value = b
    if node.attr("transB", 0):
        right = b.mT if isinstance(b, Tensor) else b.T if b.ndim == 2 else np.swapaxes(np.asarray(b), -1, -2)
    alpha = float(node.attr("alpha", 1.0))
    product = forms.matmul(left, right)
    return forms.scaled(product, alpha)


def _add_bias(x: Value, bias: Value | None) -> Tensor:
    return as_tensor(x) if bias is None else forms.added(x, bias)


def _fast_gelu(node: Node, x: Value, bias: Value | None = None) -> Tensor:
    return forms.gelu(_add_bias(x, bias), "tanh")


def _bias_gelu(node: Node, x: Value, bias: Value | None = None) -> Tensor:
    return forms.gelu(_add_bias(x, bias))


def _quick_gelu(node: Node, x: Value) -> Tensor:
    return forms.swish(as_tensor(x), float(node.attr("alpha", 1.702)))


_ACTIVATIONS: dict[str, Callable[[Tensor, list[float]], Tensor]] = {
    "": lambda x, settings: x,
    "Relu": lambda x, settings: x.relu(),
    "Sigmoid": lambda x, settings: x.sigmoid(),
    "Tanh": lambda x, settings: x.tanh(),
    "LeakyRelu": lambda x, settings: x.leaky_relu(settings[0] if settings else 0.01),
    "Clip": lambda x, settings: forms.clamped(x, settings[0], settings[1]),
    "HardSigmoid": lambda x, settings: x.sigmoid_hard(*(settings or [0.2, 0.5])),
}


def _activate(node: Node, x: Tensor) -> Tensor:
    kind = str(node.attr("activation", ""))
    if kind not in _ACTIVATIONS:
        raise NoForm(
            f"fused activation {kind!r} is not supported; the reader has {', '.join(filter(None, _ACTIVATIONS))}"
        )
    settings = [float(setting) for setting in node.attr("activation_params", [])]
    separate = [node.attr("activation_alpha"), node.attr("activation_beta")]
    return _ACTIVATIONS[kind](x, settings or [float(setting) for setting in separate if setting is not None])


def _fused_conv(node: Node, x: Value, weight: Value, bias: Value | None = None, addend: Value | None = None) -> Tensor:
    result = spatial.RULES["Conv"](node, x, weight, bias)
    assert isinstance(result, Tensor)
    return _activate(node, result if addend is None else result + as_tensor(addend))


def _fused_gemm(node: Node, a: Value, b: Value, c: Value | None = None) -> Tensor:
    result = products.RULES["Gemm"](node, a, b, c)
    assert isinstance(result, Tensor)
    return _activate(node, result)


def _nhwc_conv(node: Node, x: Value, weight: Value, bias: Value | None = None) -> Tensor:
    """Input and output have channels last; the kernel has the usual layout."""
    image = as_tensor(x)
    inner, outer = _channel_orders(image.ndim)
    result = spatial.RULES["Conv"](node, image.transpose(inner), weight, bias)
    assert isinstance(result, Tensor)
    return _activate(node, result).transpose(outer)


def _channel_orders(rank: int) -> tuple[list[int], list[int]]:
    """Return the axis orders from channels last to channels first, and back."""
    return [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]


# Norms.


def _skip_layer_norm(
    node: Node, x: Value, skip: Value, gamma: Value, beta: Value | None = None, bias: Value | None = None
) -> list[Value]:
    total = _add_bias(_add_bias(x, skip), bias)
    eps, axes = float(node.attr("epsilon", 1e-12)), (total.ndim - 1,)
    if node.outputs < 2:
        return [forms.layer_norm(total, axes, gamma, beta, eps)]
    white, mean, reciprocal = whitened(total, axes, eps)
    scaled = white * as_tensor(gamma)
    results: list[Value] = [scaled if beta is None else scaled + as_tensor(beta), mean, reciprocal, total]
    return results[: node.outputs]


def _skip_rms_norm(node: Node, x: Value, skip: Value, gamma: Value, bias: Value | None = None) -> list[Value]:
    total = _add_bias(_add_bias(x, skip), bias)
    eps, axes = float(node.attr("epsilon", 1e-6)), (total.ndim - 1,)
    spread = total.square().mean(axes)
    results = [forms.rms_norm(total, axes, gamma, eps), spread.sqrt(), spread.rsqrt(eps), total]
    return list(results[: max(1, node.outputs)])


def _rms_norm(node: Node, x: Value, gamma: Value) -> Tensor:
    tensor = as_tensor(x)
    if node.outputs > 1:
        raise NoForm("a second output is not supported; the engine gives the norm only. Remove the output")
    axis = int(node.attr("axis", -1)) % tensor.ndim
    return forms.rms_norm(tensor, tuple(range(axis, tensor.ndim)), gamma, float(node.attr("epsilon", 1e-5)))


def _group_norm(node: Node, x: Value, gamma: Value, beta: Value) -> Tensor:
    """Channels are last unless channels_last is 0; a swish may follow."""
    tensor = as_tensor(x)
    inner, outer = _channel_orders(tensor.ndim)
    channels_last = bool(node.attr("channels_last", 1))
    channels_first = tensor.transpose(inner) if channels_last else tensor
    result = forms.group_norm(channels_first, int(node.attr("groups")), gamma, beta, float(node.attr("epsilon", 1e-5)))
    result = result.silu() if node.attr("activation", 0) else result
    return result.transpose(outer) if channels_last else result


# Attention.


def _rotary(node: Node, x: Value, places: Value, cos: Value, sin: Value) -> Tensor:
    tensor, heads = as_tensor(x), int(node.attr("num_heads", 0))
    positions = known(places, "input 'position_ids'").astype(int)
    length = tensor.shape[1] if tensor.ndim == 3 else tensor.shape[2]
    if positions.size == 1:  # the first position; the others follow it
        positions = np.arange(length)[None] + int(positions.reshape(-1)[0])
    size = int(node.attr("rotary_embedding_dim", 0))
    if tensor.ndim == 3 and not heads:
        heads = tensor.shape[2] // (size or 2 * cos.shape[-1])
    split = as_heads(tensor, heads) if tensor.ndim == 3 else tensor
    result = rotary(split, cos, sin, positions, interleaved=bool(node.attr("interleaved", 0)), size=size)
    return as_line(result) if tensor.ndim == 3 else result


def _attention(
    node: Node,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    mask: Value | None = None,
    past: Value | None = None,
    scores_bias: Value | None = None,
    *unsupported: Value | None,
) -> list[Value]:
    """Compute queries, keys and values with one product, then attention."""
    if past is not None or any(operand is not None for operand in unsupported) or node.attr("do_rotary", 0):
        raise NoForm(
            "a past in one tensor, do_rotary and inputs after the sixth are not supported; export keys and values "
            "apart"
        )
    tensor, heads = as_tensor(x), int(node.attr("num_heads"))
    stored = weight.T if not isinstance(weight, Tensor) else weight.transpose([1, 0])
    lines = forms.linear(tensor, stored, bias)
    width = lines.shape[-1] // 3
    sizes = [int(size) for size in node.attr("qkv_hidden_sizes", [width] * 3)]
    q, k, v = (as_heads(part, heads) for part in forms.parts(lines, 2, sizes))
    result = _masked_attention(node, q, k, v, mask, scores_bias)
    present = [] if node.outputs < 2 else [af.stack([k, v], axis=0)]
    return [as_line(result), *present]


def _masked_attention(
    node: Node, q: Tensor, k: Tensor, v: Tensor, padding: Value | None, scores_bias: Value | None
) -> Tensor:
    """Apply attention with a bias on the scores and a mask for padded keys."""
    scale = float(node.attr("scale", 0.0)) or None
    causal = bool(node.attr("unidirectional", 0))
    queries, keys = q.shape[2], k.shape[2]
    mask: Value | None = scores_bias
    if padding is not None:
        mask = _add_masks(mask, _padding_mask(node, padding, q.shape[0], queries, keys))
    if causal and mask is not None:
        mask = _add_masks(mask, causal_mask(queries, keys, keys - queries).reshape(1, 1, queries, keys))
        causal = False
    return attention(q, k, v, scale=scale, mask=mask, causal=causal)


def _add_masks(a: Value | None, b: Value) -> Value:
    if a is None:
        return b
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return forms.added(a, b)
    return np.asarray(a, np.float64) + np.asarray(b, np.float64)


def _padding_mask(node: Node, padding: Value, samples: int, queries: int, keys: int) -> np.ndarray:
    """The mask must be known: lengths [samples], or flags [samples, keys] or [samples, queries, keys]."""
    marks = known(padding, "the padding mask")
    excluded = float(node.attr("mask_filter_value", -10000.0))
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


def _multi_head(
    node: Node,
    q: Value,
    k: Value | None = None,
    v: Value | None = None,
    bias: Value | None = None,
    padding: Value | None = None,
    scores_bias: Value | None = None,
    past_k: Value | None = None,
    past_v: Value | None = None,
    *unsupported: Value | None,
) -> list[Value]:
    """Queries, keys and values are already projected; keys and values may be split into heads."""
    if any(operand is not None for operand in unsupported):
        raise NoForm("a cache that is written in place is not supported; export the past as inputs and outputs")
    if k is None or v is None or as_tensor(q).ndim != 3:
        raise NoForm("packed queries, keys and values are not supported; export three tensors of rank 3")
    heads = int(node.attr("num_heads"))
    added = [None] * 3 if bias is None else _bias_parts(bias, as_tensor(q).shape[-1], as_tensor(v).shape[-1])
    query = as_heads(_add_bias(q, added[0]), heads)
    key, value = (
        as_tensor(operand) if as_tensor(operand).ndim == 4 else as_heads(_add_bias(operand, part), heads)
        for operand, part in zip((k, v), added[1:], strict=True)
    )
    if past_k is not None and past_v is not None:
        key = af.concat([as_tensor(past_k), key], axis=2)
        value = af.concat([as_tensor(past_v), value], axis=2)
    result = as_line(_masked_attention(node, query, key, value, padding, scores_bias))
    results: list[Value] = [result, key, value]
    return results[: max(1, node.outputs)]


def _bias_parts(bias: Value, queries: int, values: int) -> list[Any]:
    sizes = [queries, queries, values]
    if isinstance(bias, Tensor):
        return forms.parts(bias, 0, sizes)
    return np.split(np.asarray(bias), np.cumsum(sizes)[:-1])


def _group_query(
    node: Node,
    q: Value,
    k: Value | None,
    v: Value | None,
    past_k: Value | None = None,
    past_v: Value | None = None,
    lengths: Value | None = None,
    total: Value | None = None,
    cos: Value | None = None,
    sin: Value | None = None,
    *unsupported: Value | None,
) -> list[Value]:
    """Causal attention. The length of the past must be known when the file is read."""
    if any(operand is not None for operand in unsupported) or node.attr("smooth_softmax", 0):
        raise NoForm("inputs after sin_cache and smooth_softmax are not supported; export the model without them")
    heads, kv_heads = int(node.attr("num_heads")), int(node.attr("kv_num_heads"))
    query, key, value = _split_heads(as_tensor(q), k, v, heads, kv_heads)
    queries = query.shape[2]
    length = _total_length(lengths, total)
    past_length = length - queries
    if past_length < 0:
        raise NoForm(
            f"the sequence has {length} positions, fewer than the {queries} new ones; padded prompts are not "
            "supported. Use a prompt without padding"
        )
    if node.attr("do_rotary", 0):
        if cos is None or sin is None:
            raise NoForm("do_rotary is set, but cos_cache or sin_cache is missing; both must be given")
        places = np.arange(past_length, length)[None]
        interleaved = bool(node.attr("rotary_interleaved", 0))
        size = 2 * cos.shape[-1]
        query, key = (rotary(part, cos, sin, places, interleaved=interleaved, size=size) for part in (query, key))
    keys_and_values, present = _join_past(key, value, past_k, past_v, past_length)
    window, softcap = int(node.attr("local_window_size", -1)), float(node.attr("softcap", 0.0))
    scale = float(node.attr("scale", 0.0)) or None
    whole_prompt = past_length == 0 and window <= 0
    mask = (
        None
        if whole_prompt or (queries == 1 and window <= 0)
        else causal_mask(queries, length, past_length, max(window, 0))
    )
    causal = whole_prompt and queries > 1
    result = attention(query, *keys_and_values, scale=scale, mask=mask, causal=causal, softcap=softcap)
    results: list[Value] = [as_line(result), *present]
    return results[: max(1, node.outputs)]


def _split_heads(
    q: Tensor, k: Value | None, v: Value | None, heads: int, kv_heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    if k is None or v is None:
        size = q.shape[-1] // (heads + 2 * kv_heads)
        q, k, v = forms.parts(q, 2, [heads * size, kv_heads * size, kv_heads * size])
    return as_heads(q, heads), as_heads(as_tensor(k), kv_heads), as_heads(as_tensor(v), kv_heads)


def _total_length(lengths: Value | None, total: Value | None) -> int:
    """Return the sequence length with the new positions. ``lengths`` has the last index of each sample; all must be
    equal."""
    if lengths is None:
        return whole_numbers(total, "input 'total_sequence_length'")[0]
    totals = {last + 1 for last in whole_numbers(lengths, "input 'seqlens_k'")}
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
    joined = [part if old is None else af.concat([old, part], axis=2) for old, part in zip(cut, new, strict=True)]
    if room <= past_length or room < past_length + added:
        return joined, joined
    unused = [
        forms.sliced(cache, 2, past_length + added, room) if room > past_length + added else None for cache in caches
    ]
    present = [
        part if end is None else af.concat([part, end], axis=2) for end, part in zip(unused, joined, strict=True)
    ]
    return joined, present


RULES: dict[str, Rule] = {"SimplifiedLayerNormalization": _rms_norm}
"""Ops that ONNX Runtime adds to the standard's own domain."""

CONTRIB: dict[str, Rule] = {
    "Attention": _attention,
    "BiasGelu": _bias_gelu,
    "FastGelu": _fast_gelu,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
    "Gelu": _bias_gelu,
    "GroupNorm": _group_norm,
    "GroupQueryAttention": _group_query,
    "MultiHeadAttention": _multi_head,
    "NhwcConv": _nhwc_conv,
    "NhwcFusedConv": _nhwc_conv,
    "QuickGelu": _quick_gelu,
    "RotaryEmbedding": _rotary,
    "SimplifiedLayerNormalization": _rms_norm,
    "SkipLayerNormalization": _skip_layer_norm,
    "SkipSimplifiedLayerNormalization": _skip_rms_norm,
    "Trilu": elementwise.RULES["Trilu"],
}
"""By op, for the domain com.microsoft."""

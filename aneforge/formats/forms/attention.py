"""Attention and rotary positions over [samples, heads, places, features]."""

from __future__ import annotations

import math

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats.forms.movement import gathered, parts
from aneforge.formats.forms.numbers import MASKED, added_mask, scaled
from aneforge.formats.values import Value, as_tensor
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

Array = np.ndarray


def as_heads(x: Tensor, heads: int) -> Tensor:
    """[samples, places, features] as [samples, heads, places, features of a head]."""
    samples, places, features = x.shape
    if heads < 1 or features % heads:
        raise LoadError(f"{features} features do not divide into {heads} heads; the heads must divide the features")
    return x.reshape(samples, places, heads, features // heads).transpose([0, 2, 1, 3])


def as_line(x: Tensor) -> Tensor:
    """[samples, heads, places, features] as [samples, places, heads * features]."""
    samples, heads, places, features = x.shape
    return x.transpose([0, 2, 1, 3]).reshape(samples, places, heads * features)


def causal_mask(queries: int, keys: int, before: int = 0, window: int = 0) -> Array:
    """The mask added to the scores so that no place sees later places, or places further back than a window.
    ``before`` places precede the first query."""
    rows, columns = np.arange(queries)[:, None] + before, np.arange(keys)
    visible = columns <= rows
    visible = visible & (columns > rows - window) if window > 0 else visible
    return np.where(visible, 0.0, MASKED)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | None = None,
    mask: Value | None = None,
    causal: bool = False,
    softcap: float = 0.0,
) -> Tensor:
    """softmax(q k' * scale + mask) v. The mask is added and broadcasts to [samples, heads, queries, keys]. If there
    are fewer heads of keys and values, each serves several heads of queries. Operands of other ranks than 4 have no
    heads.

    It is products and a softmax: the conversion route refuses the engine's own attention layer, which ``af.sdpa``
    and the form ``fused-layer`` of ``af.tune`` choose. The scale is on the queries, where it is cheapest."""
    planar = q.ndim == k.ndim == v.ndim == 4
    k, v = (_repeat_heads(tensor, q.shape[1]) if planar else tensor for tensor in (k, v))
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    queries, keys = q.shape[-2], k.shape[-2]
    plane = None if mask is None else added_mask(mask)
    if plane is not None and planar and plane.ndim != 4:
        plane = plane.reshape(*(1,) * (4 - plane.ndim), *plane.shape)
    scores = scaled(q, factor) @ k.mT
    if softcap:
        scores = scaled(scaled(scores, 1 / softcap).tanh(), softcap)
    if causal:
        scores = scores + af.const(
            causal_mask(queries, keys, keys - queries).reshape(*(1,) * (q.ndim - 2), queries, keys)
        )
    scores = scores if plane is None else scores + plane
    return scores.softmax(-1) @ v


def _repeat_heads(x: Tensor, heads: int) -> Tensor:
    samples, key_heads, places, features = x.shape
    if heads in (key_heads, 1) or key_heads == 1:
        return x  # the product itself repeats a single head
    if heads % key_heads:
        raise LoadError(
            f"the queries have {heads} heads; they must be a multiple of the {key_heads} heads of the keys"
        )
    lines = x.reshape(samples, key_heads, 1, places * features).tile([1, 1, heads // key_heads, 1])
    return lines.reshape(samples, heads, places, features)


def rotary(x: Tensor, cos: Value, sin: Value, places: Array | None, *, interleaved: bool, size: int = 0) -> Tensor:
    """Rotate the first ``size`` features of [samples, heads, places, features] in pairs by the angles of each place.

    ``cos`` and ``sin`` are [samples, places, pairs], or a table of places that ``places`` [samples, places] reads."""
    width = x.shape[-1]
    turned = size or width
    angles = [_angles(table, places) for table in (cos, sin)]
    if angles[0].shape[-1] * 2 != turned:
        raise LoadError(
            f"cos and sin have {angles[0].shape[-1]} angles; {turned} features need {turned // 2}, one for each pair"
        )
    head, *tail = parts(x, 3, [turned, width - turned]) if turned < width else [x]
    rotated = _rotate_pairs(head, *angles) if interleaved else _rotate_halves(head, *angles)
    return af.concat([rotated, *tail], axis=3) if tail else rotated


def _angles(table: Value, places: Array | None) -> Value:
    """The angles of each place, as [samples or 1, 1, places, pairs]."""
    if isinstance(table, Tensor):
        angles = table if places is None else gathered(table, 0, places)
        return angles.reshape(angles.shape[0], 1, *angles.shape[1:])
    numbers = np.asarray(table)
    picked = numbers if places is None else numbers[places]
    picked = picked[:1] if (picked == picked[:1]).all() else picked  # all samples share one line
    return picked.reshape(picked.shape[0], 1, *picked.shape[1:])


def _rotate_halves(x: Tensor, cos: Value, sin: Value) -> Tensor:
    if not isinstance(cos, Tensor) and not isinstance(sin, Tensor):
        return af.rope(x, *(np.concatenate([np.asarray(table)] * 2, axis=-1) for table in (cos, sin)))
    first, second = af.split(x, 2, axis=3)
    c, s = as_tensor(cos), as_tensor(sin)
    return af.concat([first * c - second * s, first * s + second * c], axis=3)


def _rotate_pairs(x: Tensor, cos: Value, sin: Value) -> Tensor:
    even, odd = x[:, :, :, 0::2], x[:, :, :, 1::2]
    c, s = as_tensor(cos), as_tensor(sin)
    turned = af.stack([even * c - odd * s, even * s + odd * c], axis=4)
    return turned.reshape(*x.shape)

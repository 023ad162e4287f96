"""What the sentences of measured rows mean, in the names and numbers that rules read.

Rows describe small graphs, lowerings and weights in words ("gate and up convs, gelu, mul, down conv"). The tables here
are all that reads them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from aneforge.native.schema import layer_types

Shapes = tuple[tuple[int, ...] | None, ...] | None

_SENTENCES: tuple[tuple[str | None, str, str], ...] = (
    ("chain:concat", r"slic.*(last|width)|(last|width).*slic", "joined-width-slices"),
    (None, r"reduce_\w+.*mul(tiply|tiplied)? by (a )?(0|zero)", "reduction-times-zero"),
    ("chain:round", r"round, then mul", "round-then-scale"),
    ("chain:square", r"square, then", "square-before-a-function"),
    ("chain:ffn", r"", "gated-feed-forward"),
    (None, r"quanti[sz]e.*dequanti[sz]e.*mul\w*.*quanti[sz]e", "two-quantise-pairs-around-a-product"),
    (None, r"^(?!.*topk).*cast", "cast-behind-an-fp32-input"),
    (None, r"topk,( and)? cast", "selection-behind-a-product"),
    (None, r"fused attention inside", "fused-attention-among-other-layers"),
    (None, r"running maximum", "softmax-in-blocks"),
    (None, r"linear,.*hard[-_ ]?swish", "linear-before-hard-swish"),
    (None, r"\bisnan\b", "test-for-nan"),
)
"""The op of a row (None: any), the wording of its graph, and the pattern that it describes."""

_TWO_BRANCHES = r"(gelu|silu|swish), mul"
_FP32_FIRST = r"\bfp32 \w+.*\bconv"
_CLAMPED = r"\bclamp"
_INT8_ACTIVATIONS = ("a8", "w8a8")
_COMPRESSED = ("lut", "int", "uint", "sparse", "vq")

_ATTRIBUTES: tuple[tuple[str, str, Any], ...] = (
    (r"\bscatter(?!-free)|\bindex_(copy|put|add)\b|slice_update", "writes", "computed places"),
    (r"(position|index|indices) computed|computed (position|ind)", "writes", "computed places"),
    (r"\bcache.*\bas (a )?(mutable )?state\b", "updates", "a cache"),
    (r"section has length 0", "sections", (0,)),
)
"""The wording of a graph, and the attribute that it means."""

_KINDS: tuple[tuple[str, str], ...] = (
    (r"conv_stack|stack of conv", "convolutions"),
    (r"whole[ _](model|decoder)|with (its |the )?head", "decoder"),
    (r"", "layers"),
)
"""The wording of a program or its name, and its kind; the first that occurs counts."""

_FORMS: tuple[tuple[str, str, str], ...] = (
    ("group_norm", "flatten", "flattened"),
    ("group_norm", "", "tiled"),
    ("layer_norm", "rank-4", "rank-4"),
    ("layer_norm", "", "rank-2"),
)
"""An op, a word of its ``lowering`` sentence (the first that occurs counts) and the form that it means."""

_WEIGHTS: tuple[tuple[str, str, Any], ...] = (
    (r"group|\bper block\b|\bblocks? of \d", "palette_per_group", True),
    (r"palette of int8 values", "palette_of_codes", True),
    (r"vectors along the input", "vectors_along", "input"),
    (r"integer constant", "encoding", "integer"),  # codes without a scale, unlike an affine int8 weight
)
"""The wording of weights, and the property that it means."""


def patterns_of(op: str, attrs: Mapping[str, Any], weights: Mapping[str, Any]) -> frozenset[str]:
    """The patterns that a row describes: by the sentence about its graph, and by that sentence and its types."""
    text = _text(attrs)
    shown = {
        pattern
        for described, wording, pattern in _SENTENCES
        if described in (None, op) and re.search(wording, text, re.IGNORECASE)
    }
    encoding = str(weights.get("encoding", ""))
    # With int8 activations each branch has a quantiser of its own.
    unlike_branches = encoding.startswith(_INT8_ACTIVATIONS) and re.search(_TWO_BRANCHES, text)
    unlike_scales = "scale_out" in attrs and attrs.get("scale_b") != attrs["scale_out"]
    if (unlike_branches or unlike_scales) and not re.search(_CLAMPED, text):
        shown.add("two-quantise-pairs-around-a-product")
    if encoding == "a8w4" and weights.get("palette_of_codes") and attrs.get("repeat", 1) > 1:
        shown.add("palettes-of-codes-in-a-row")
    if re.search(_FP32_FIRST, text) and encoding.startswith(_COMPRESSED):
        shown.add("fp32-before-a-compressed-convolution")
    if attrs.get("io") == "fp32" and attrs.get("precision") != "fp32":
        shown.add("cast-behind-an-fp32-input")  # fp32 surfaces around fp16 arithmetic
    if op == "reduce_argmax" and attrs.get("axis") in (1, -3):
        shown.add("argmax-of-channels")
    return frozenset(shown)


def settings_of(op: str, attrs: Mapping[str, Any], shapes: Shapes) -> dict[str, Any]:
    """The attributes without sentences: a lowering as a form, a mask as a count of planes, a size in bytes."""
    settings = {key: value for key, value in attrs.items() if key not in ("graph", "lowering", "mask", "program_mb")}
    lowering, first, text = attrs.get("lowering"), shapes[0] if shapes else None, _text(attrs)
    settings |= {name: value for wording, name, value in _ATTRIBUTES if re.search(wording, text)}
    if isinstance(attrs.get("program_mb"), (int, float)):
        settings["weight_bytes"] = attrs["program_mb"] * 1e6
        settings["kind"] = next(kind for wording, kind in _KINDS if re.search(wording, f"{op} {text}"))
    if isinstance(attrs.get("repeat"), int):
        counted = {"chain:decode_": "decode_layers", "chain:deltanet": "recurrent_layers"}
        settings |= {name: attrs["repeat"] for start, name in counted.items() if op.startswith(start)}
    if "one softmax over" in text and first:
        settings["attended_keys"] = first[-1]  # the product behind it is contracted over all of them at once
    if isinstance(lowering, str):
        settings["form"] = next((form for named, word, form in _FORMS if named == op and word in lowering), None)
    if attrs.get("mask") == "per head":
        settings["mask_planes"] = (
            first[-3] if first and len(first) > 2 else 2
        )  # at least two, where no shape says more
    return settings


def weights_of(described: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """What a row says about its weights, in fields or in a sentence."""
    if isinstance(described, Mapping):
        return {**fields, **described}
    text = str(described or "")
    return {**fields, **{name: value for wording, name, value in _WEIGHTS if re.search(wording, text)}}


def _text(attrs: Mapping[str, Any]) -> str:
    graph = attrs.get("graph")
    return graph if isinstance(graph, str) else ""


def bottoms_of(op: str, shapes: Shapes, const: Mapping[str, Any], settings: Mapping[str, Any]) -> Shapes:
    """The bottoms of a layer. Rows about layers list what arrives at run time: constants, such as the scale of an
    attention before its mask, are put in their places, and bottoms that a row leaves out are unknown."""
    known = next((layer for layer in layer_types() if op in (layer.tag, layer.name)), None)
    if known is None or shapes is None:
        return shapes
    stored = tuple(const.values())
    if known.tag == "SDPA":
        return (*shapes[:3], None, *shapes[3:])
    missing = known.fewest - len(shapes) - len(stored)
    return (*shapes, *stored, *(None,) * missing)

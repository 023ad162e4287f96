"""Names for the parameters of layers whose names in a netplist are not published (U87).

They are the backend's attributes where those are published (layers.json ``anec_attribute_schema``: ``height``,
``crop_dims``) and our own words elsewhere. ``af.bridge`` takes them; a netplist cannot state them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from aneforge.native import LayerType, Param, layer_type
from aneforge.targets.evidence import Fact


def _int(key: str, required: bool = False, default: int | None = None) -> Param:
    return Param(key, "int", required, default)


def _float(key: str, default: float) -> Param:
    return Param(key, "float", False, default)


def _sizes(key: str) -> Param:
    return Param(key, "array", True, None)


def _choice(key: str, *values: str, required: bool = False) -> Param:
    return Param(key, "enum", required, None if required else values[0], values)


_SAMPLING = (
    _choice("sampling_methods", "Linear", "NearestNeighbor"),
    _choice("sampling_modes", "UnalignedCorners", "StrictAlignedCorners"),
)
_AXES = ("Width", "Height", "Channel")

_OWN: Mapping[str, tuple[Param, ...]] = {
    "AffineTransform": (
        _int("height", required=True),
        _int("width", required=True),
        Param("align_corners", "bool", False, False),
    ),
    "ArgMinMax": (Param("Step", "array", False, None),),
    "CropResize": (_sizes("crop_dims"), _sizes("output_dims")),
    "Dropout": (_float("rate", 0.5), _int("seed", default=0)),
    "InstanceNormalization": (_float("epsilon", 1e-5),),
    "L2Normalization": (_choice("axis", *_AXES), _float("epsilon", 1e-12)),
    "LayerNormalization": (_choice("axis", *_AXES), _int("groups", default=1), _float("epsilon", 1e-5)),
    "Linear": (),
    "MinMaxNormalization": (_choice("Dimension", *_AXES, required=True),),
    "Padding": (
        _sizes("padding_sizes"),
        _choice("padding_modes", "Zero", "Background", "Replication", "Symmetric", "Reflective"),
        _float("background_value", 0.0),
    ),
    "RandomGenerator": (_sizes("shape"), _float("low", 0.0), _float("high", 1.0), _int("seed", default=0)),
    "Resize": (_int("height", required=True), _int("width", required=True), *_SAMPLING),
    "ResizeAs": _SAMPLING,
    "RingBufferWriter": (_int("offset", default=0),),
    "Unflatten": (_sizes("destination_size"),),
}


def _reader() -> LayerType:
    """The counterpart of RingBufferWriter, which has a backend op and no published layer."""
    params = {param.key: param for param in (_int("offset", default=0), _int("size", required=True))}
    evidence: Fact[Any] = layer_type("RingBufferWriter").evidence
    return LayerType("RingBufferReader", "RingBufferReader", None, None, 1, 1, params, (), (), evidence)


@cache
def own_types() -> Mapping[str, LayerType]:
    """The types that take our names, by tag."""
    types = {}
    for tag, params in _OWN.items():
        known = layer_type(tag)
        types[tag] = replace(known, params={**known.params, **{param.key: param for param in params}})
    return {**types, "RingBufferReader": _reader()}


def named_by_us(name: str) -> LayerType:
    """The type of a tag or a descriptor's name, with our names for what is not published."""
    own = own_types()
    return own[name] if name in own else own.get(layer_type(name).tag, layer_type(name))

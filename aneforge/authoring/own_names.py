"""Names for the parameters of layers whose names in a netplist are not published (U87).

They are the backend's attributes where those are published (layers.json ``anec_attribute_schema``: ``height``,
``crop_dims``) and our own words elsewhere. ``af.bridge`` takes them; a netplist cannot state them.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from aneforge.native import LayerType, Param, layer_type
from aneforge.targets.evidence import Fact

_AXIS = "Width,Height,Channel"
_SAMPLING = "sampling_methods:Linear,NearestNeighbor sampling_modes:UnalignedCorners,StrictAlignedCorners"
_OWN: Mapping[str, str] = {
    "AffineTransform": "height:int! width:int! align_corners:bool=False",
    "ArgMinMax": "Step:array",
    "CropResize": "crop_dims:array! output_dims:array!",
    "Dropout": "rate:float=0.5 seed:int=0",
    "InstanceNormalization": "epsilon:float=1e-5",
    "L2Normalization": f"axis:{_AXIS} epsilon:float=1e-12",
    "LayerNormalization": f"axis:{_AXIS} groups:int=1 epsilon:float=1e-5",
    "Linear": "",
    "MinMaxNormalization": f"Dimension:{_AXIS}!",
    "Padding": "padding_sizes:array! padding_modes:Zero,Background,Replication,Symmetric,Reflective "
    "background_value:float=0.0",
    "RandomGenerator": "shape:array! low:float=0.0 high:float=1.0 seed:int=0",
    "Resize": f"height:int! width:int! {_SAMPLING}",
    "ResizeAs": _SAMPLING,
    "RingBufferWriter": "offset:int=0",
    "Unflatten": "destination_size:array!",
}
"""By tag: the name and the kind of each parameter, or its values, of which the first is the default. ``!`` marks what
must be stated, ``=`` gives another default."""


def _params(row: str) -> dict[str, Param]:
    params = {}
    for word in row.split():
        key, _, rest = word.partition(":")
        kind, _, default = rest.partition("=")
        required, values = kind.endswith("!"), kind.removesuffix("!").split(",")
        if len(values) > 1:
            params[key] = Param(key, "enum", required, None if required else values[0], tuple(values))
        else:
            params[key] = Param(key, values[0], required, ast.literal_eval(default) if default else None)
    return params


def _reader() -> LayerType:
    """The counterpart of RingBufferWriter, which has a backend op and no published layer."""
    evidence: Fact[Any] = layer_type("RingBufferWriter").evidence
    params = _params("offset:int=0 size:int!")
    return LayerType("RingBufferReader", "RingBufferReader", None, None, 1, 1, params, (), (), evidence)


@cache
def own_types() -> Mapping[str, LayerType]:
    """The types that take our names, by tag."""
    types = {}
    for tag, row in _OWN.items():
        known = layer_type(tag)
        types[tag] = replace(known, params={**known.params, **_params(row)})
    return {**types, "RingBufferReader": _reader()}


def named_by_us(name: str) -> LayerType:
    """The type of a tag or a descriptor's name, with our names for what is not published."""
    own = own_types()
    return own[name] if name in own else own.get(layer_type(name).tag, layer_type(name))

"""The engine's own vocabulary of layers: the types that a netplist names, their parameters and their bottoms.

One table serves all who speak of native layers: the authoring functions, the netplist reader and writer, the
validators and the documentation. It is data (``layers.json``), with the few things that the data leaves open.
"""

from __future__ import annotations

from aneforge.native.layer import AXES, Layer, dimensions
from aneforge.native.schema import LayerType, Param, ParamError, checked_params, layer_type, layer_types

__all__ = [
    "AXES",
    "Layer",
    "LayerType",
    "Param",
    "ParamError",
    "checked_params",
    "dimensions",
    "layer_type",
    "layer_types",
]

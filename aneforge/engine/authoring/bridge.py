"""``af.bridge``: a native layer by its type, as a netplist names it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from aneforge.chips.evidence import Fact
from aneforge.engine.authoring.build import AuthoringError, Unit, build_layer
from aneforge.engine.authoring.native_rules import attention
from aneforge.engine.native import LayerType, Param, checked_params, dimensions, layer_type
from aneforge.errors import AneforgeError
from aneforge.graph.ops.leaf import as_tensor, const
from aneforge.graph.tensor import Tensor

# Names for the parameters of layers whose names in a netplist are not published (U87).


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


_FIELDS = ("OutputChannels", "NumGroups")
"""What a unit states beside its Params."""
_WITH_KERNEL = ("Conv", "Linear")
_BUFFERS = ("RingBufferWriter", "RingBufferReader")
_RANKS = {"Flatten": 1}
"""Types whose result has the rank of the named function, not that of the first bottom."""
_INTERNAL = {
    "RCAS": "contrast-adaptive sharpening has no exported validator, so direct authoring does not reach it",
    "Reverse": "reverse has no exported validator, so direct authoring does not reach it; use x.reverse(axes)",
}


def bridge(type: str, bottoms: Any, name: str | None = None, **params: Any) -> Tensor:  # noqa: A002 - the users' word
    """A native layer by its type (``"SDPA"``, ``"TopK"``), with the parameters that a netplist states.

    ``bottoms`` are tensors, arrays or numbers, of rank 1 to 5: [W], [C, W], [C, H, W], [N, C, H, W], [N, C, D, H, W].
    The result has the rank of the first. Attention takes [1, heads, sequence, features], as ``af.sdpa`` does. A kernel
    (``Conv``, ``Linear``) is an array behind the other bottoms. Parameters have the descriptor's defaults;
    ``params`` are others, by the netplist's names. ``name`` is that of the node.

    A type that means the same as an ordinary op becomes that op; every other one is a layer of its own and a segment
    of the program.
    """
    try:
        result = _built(type, bottoms, params)
    except AneforgeError as error:
        raise AuthoringError(f'bridge("{type}"): {error}') from None
    return result if name is None else result.named(name)


def _built(tag: Any, bottoms: Any, params: dict[str, Any]) -> Tensor:
    if not isinstance(tag, str):
        raise AuthoringError("the type must be the name of a layer; for example SDPA or TopK")
    if tag in _INTERNAL:
        raise AuthoringError(_INTERNAL[tag])
    known = named_by_us(tag)
    listed = list(bottoms) if isinstance(bottoms, (list, tuple)) else [bottoms]
    fields = {key: params.pop(key) for key in _FIELDS if key in params and key not in known.params}
    kernel = None
    if known.tag in _WITH_KERNEL and len(listed) == 2:
        kernel = _Kernel(listed.pop())
        fields.setdefault("OutputChannels", kernel.numbers.shape[0])
    tensors = [_as_tensor(bottom, place) for place, bottom in enumerate(listed)]
    if known.tag == "SDPA" and known.fewest <= len(tensors) <= (known.most or 0):
        return attention(Unit(known.tag, tensors, checked_params(known, params)), heads_first=True)
    if known.tag in _BUFFERS or not tensors:
        return build_layer(known.tag, tensors, params, fields, kernel, own_names=True)
    laid = [_as_image(tensor) for tensor in tensors]
    result = build_layer(known.tag, laid, params, fields, kernel, own_names=True)
    return _with_rank(result, _RANKS.get(known.tag, len(tensors[0].shape)))


def _as_tensor(bottom: Any, place: int) -> Tensor:
    """A tensor, or a constant; integers are numbers of fp16 where fp16 holds them."""
    if isinstance(bottom, Tensor):
        return bottom
    numbers = np.asarray(bottom)
    if numbers.dtype.kind in "iu":
        halves = numbers.astype(np.float16)
        if (halves.astype(np.float64) != numbers).any():
            raise AuthoringError(
                f"bottom {place} holds an integer that fp16 does not hold; the limit of exact integers is 2048"
            )
        return as_tensor(halves, f"bottom {place}")
    return as_tensor(bottom, f"bottom {place}")


class _Kernel:
    """The numbers of a kernel, given when the layer asks for their shape."""

    def __init__(self, value: Any) -> None:
        stored = value.weight if isinstance(value, Tensor) else None
        if isinstance(value, Tensor) and stored is None:
            raise AuthoringError("the kernel must be a constant; use af.dynamic_conv for one that is computed")
        self.numbers = np.asarray(value if stored is None else stored.array)

    def __call__(self, shape: tuple[int, ...]) -> np.ndarray:
        if self.numbers.shape != shape:
            raise AuthoringError(f"the kernel is {list(self.numbers.shape)}; the parameters say {list(shape)}")
        return self.numbers


def _as_image(tensor: Tensor) -> Tensor:
    """[N, C, H, W], or [N, C, D, H, W] where there is a depth."""
    n, c, d, h, w = dimensions(tensor.shape)
    shape = (n, c, h, w) if d == 1 else (n, c, d, h, w)
    if tensor.shape == shape:
        return tensor
    if tensor.weight is not None and tensor.op == "const":
        return const(tensor.weight.array.reshape(shape))
    return tensor.reshape(*shape)


def _with_rank(result: Tensor, rank: int) -> Tensor:
    """The result with a rank, or with the next one that has an axis for each of its extents."""
    if len(result.shape) != 4 or rank == 4:
        return result
    n, c, h, w = result.shape
    if rank == 5:
        return result.reshape(n, c, 1, h, w)
    forms = (((w,), n == c == h == 1), ((c, w), n == h == 1), ((c, h, w), n == 1))
    shape = next((shape for shape, fits in forms[max(rank, 1) - 1 :] if fits), result.shape)
    if shape == result.shape:
        return result
    laid = result.op == "reshape" and result.inputs[0].shape == shape  # the layer's own result, before it was laid out
    return result.inputs[0] if laid else result.reshape(*shape)

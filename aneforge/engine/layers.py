"""Ops of the engine's language as native layers: the type, parameters and bottoms that a netplist states for each.

The validators ask about these layers, and the netplist writer spells them. Which unit an op is and what its attributes
are called there, is a row of its declaration (:mod:`aneforge.engine.spec`); the forms of attributes that are more than
another name are here. An op that no layer stands for (a port, a constant) has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aneforge.engine.ir import Op
from aneforge.engine.native import AXIS_NAMES, NativeLayer
from aneforge.engine.traits import Trait

Params = dict[str, Any]
Shape = tuple[int, ...]


def layer_of(op: Op) -> NativeLayer | None:
    """The layer of an op, or None for an op that is none."""
    if op.kind == "unit":
        return NativeLayer(op.attrs["type"], op.attrs["params"], _bottoms(op, len(op.operands)))
    # Gain or offset that come at run time are a layer of its own. Stored ones are part of the static one.
    if op.kind == "gain_offset_control" and any(operand.kind != "const_in" for operand in op.operands[1:]):
        bias_only = {"BiasOnly": True} if len(op.operands) == 2 else {}
        return NativeLayer("DynamicGOC", bias_only, _bottoms(op, len(op.operands)))
    unit = op.spec.unit
    if unit is None:
        return None
    takes_all = unit.operands[0].startswith("*")
    bottoms = _bottoms(op, len(op.operands) if takes_all else len(unit.operands))
    params = unit.stated({setting.name: op[setting.name] for setting in unit.renamed})
    for setting in unit.settings:
        if setting.form:
            params |= _FORMS[setting.form](op, op[setting.name] if setting.name else None, setting.theirs)
    return NativeLayer(unit.name, params, bottoms, _fields(op))


def _bottoms(op: Op, count: int) -> tuple[Shape, ...]:
    return tuple(_port_shape(operand.shape) for operand in op.operands[:count])


def _port_shape(shape: Shape) -> Shape:
    """NDCHW as a user writes it: [N, C, H, W], or [N, C, D, H, W] where there is a depth."""
    n, d, c, h, w = shape
    return (n, c, h, w) if d == 1 else (n, c, d, h, w)


def _fields(op: Op) -> Params:
    """What a unit with a kernel states outside its Params."""
    if not op.is_a(Trait.STORED_KERNEL):
        return {}
    groups = {"NumGroups": op["groups"]} if op.is_a(Trait.CONVOLUTION) else {}
    return {"OutputChannels": op.shape[2], **groups}


def _kind(op: Op, value: Any, key: str) -> Params:
    """A deconvolution is the layer's other type; only the channel-wise one, also of one channel, is published."""
    if op.kind == "convolution":
        return {"Type": "Conv"}
    by_channel = op["channel_wise"] or op["groups"] == op.operands[0].shape[2] == op.shape[2]
    return {"Type": "ChannelWiseDeConv" if by_channel else "DeConv"}


def _broadcast(op: Op, value: Any, key: str) -> Params:
    before, after = op.operands[0].shape, op["shape"]
    grown = [axis for axis in range(5) if before[axis] != after[axis]]
    return {"BroadcastInfo": tuple({"Dimension": AXIS_NAMES[axis], "Size": after[axis]} for axis in grown)}


def _axes(op: Op, value: Any, key: str) -> Params:
    return {key: tuple(AXIS_NAMES[axis] for axis in value)}


def _one_or_more_axes(op: Op, value: Any, key: str) -> Params:
    return {key: AXIS_NAMES[value[0]]} if len(value) == 1 else _axes(op, value, key)


def _sides(op: Op, value: Any, key: str) -> Params:
    names = ("Front", "Back", "Top", "Bot", "Left", "Right")[-len(value) :]
    return {f"{key}{name}": side for name, side in zip(names, value, strict=True)}


def _window(op: Op, value: Any, key: str) -> Params:
    names = ("Depth", "Height", "Width")[-len(value) :]
    return {f"{key}{name}": size for name, size in zip(names, value, strict=True)}


def _factors(op: Op, value: Any, key: str) -> Params:
    z, y, x = value
    return {f"{key}X": x, f"{key}Y": y, f"{key}Z": z}


def _extents(op: Op, value: Any, key: str) -> Params:
    """A depth of one is not stated."""
    extents = zip(AXIS_NAMES, value, strict=True)
    return {f"{key}{name}": extent for name, extent in extents if name != "Depth" or extent != 1}


def _moves(op: Op, value: Any, key: str) -> Params:
    keys = ("TransposeDestinationDimension", "TransposeSourceDimension")
    return {key: tuple(dict(zip(keys, map(AXIS_NAMES.__getitem__, move), strict=True)) for move in value)}


_FORMS: dict[str, Callable[[Op, Any, str], Params]] = {
    "axes": _axes,
    "axis": lambda op, value, key: {key: AXIS_NAMES[value]},
    "base": lambda op, value, key: {"Type": op.kind.capitalize().removesuffix("2" if op["base_e"] else "")},
    "broadcast": _broadcast,
    "counts": lambda op, value, key: {AXIS_NAMES[axis]: count for axis, count in enumerate(value) if count != 1},
    "extents": _extents,
    "factors": _factors,
    "hard": lambda op, value, key: {"Type": "SwishHard" if op["hard"] else "Swish"},
    "kind": _kind,
    "moves": _moves,
    "not": lambda op, value, key: {key: not value},
    "one_or_more_axes": _one_or_more_axes,
    "sides": _sides,
    "window": _window,
}
"""By the names that rows have for them: the op, the value of the attribute, and the key or the start of the keys."""

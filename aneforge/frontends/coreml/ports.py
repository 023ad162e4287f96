"""What the description of a Core ML model says of its inputs and states."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aneforge.frontends.importer.ports import Port

__all__ = ["ports_of"]


def ports_of(features: Iterable[Any]) -> dict[str, Port]:
    """What a description says of inputs and states: default shapes, what else they may be, and which are images."""
    return {each.name: _port(each.type) for each in features}


def _port(kind: Any) -> Port:
    form = kind.WhichOneof("Type")
    if form == "imageType":
        image = kind.imageType
        channels = 1 if image.colorSpace in (10, 40) else 3
        return Port((1, channels, int(image.height), int(image.width)), *_image_sizes(image, channels), image=True)
    if form == "stateType":
        return _array(kind.stateType.arrayType)
    return _array(kind.multiArrayType) if form == "multiArrayType" else Port()


def _array(array: Any) -> Port:
    shape = tuple(int(each) for each in array.shape)
    form = array.WhichOneof("ShapeFlexibility")
    if form == "enumeratedShapes":
        return Port(shape, (), tuple(tuple(int(n) for n in each.shape) for each in array.enumeratedShapes.shapes))
    if form == "shapeRange":
        return Port(shape, tuple((int(each.lowerBound), int(each.upperBound)) for each in array.shapeRange.sizeRanges))
    return Port(shape)


def _image_sizes(image: Any, channels: int) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, ...], ...]]:
    form = image.WhichOneof("SizeFlexibility")
    if form == "enumeratedSizes":
        return (), tuple((1, channels, int(each.height), int(each.width)) for each in image.enumeratedSizes.sizes)
    if form == "imageSizeRange":
        sizes = image.imageSizeRange.heightRange, image.imageSizeRange.widthRange
        bounds = [(int(each.lowerBound), int(each.upperBound)) for each in sizes]
        return ((1, 1), (channels, channels), *bounds), ()
    return (), ()

"""Inputs and states from the description of a Core ML model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aneforge.frontends.importer.ports import Port


def ports_of(features: Iterable[Any]) -> dict[str, Port]:
    """The ports by name: their default shapes, the other shapes they may have, and which are images."""
    return {feature.name: _port(feature.type) for feature in features}


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
    shape = tuple(int(extent) for extent in array.shape)
    form = array.WhichOneof("ShapeFlexibility")
    if form == "enumeratedShapes":
        return Port(shape, (), tuple(tuple(int(n) for n in option.shape) for option in array.enumeratedShapes.shapes))
    if form == "shapeRange":
        return Port(
            shape, tuple((int(bounds.lowerBound), int(bounds.upperBound)) for bounds in array.shapeRange.sizeRanges)
        )
    return Port(shape)


def _image_sizes(image: Any, channels: int) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, ...], ...]]:
    form = image.WhichOneof("SizeFlexibility")
    if form == "enumeratedSizes":
        return (), tuple((1, channels, int(size.height), int(size.width)) for size in image.enumeratedSizes.sizes)
    if form == "imageSizeRange":
        sizes = image.imageSizeRange.heightRange, image.imageSizeRange.widthRange
        bounds = [(int(size.lowerBound), int(size.upperBound)) for size in sizes]
        return ((1, 1), (channels, channels), *bounds), ()
    return (), ()

"""A Core ML file of any kind: which kind it is, what its description says, and who reads it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from aneforge.errors import first_line
from aneforge.frontends import LoadError
from aneforge.frontends.coreml.blobs import Weights
from aneforge.frontends.coreml.mil import import_function
from aneforge.frontends.coreml.package import specification
from aneforge.frontends.coreml.proto import model_proto
from aneforge.frontends.importer.ports import Port
from aneforge.frontends.records import Function
from aneforge.graph.graph import Graph

__all__ = ["ports_of", "read_model", "read_program"]

_MOST_SPECIFICATION = (1 << 31) - 1  # bytes: protobuf reads no more
_NETWORKS = ("neuralNetwork", "neuralNetworkClassifier", "neuralNetworkRegressor")
_NEWEST = 10  # specification version, and what a program of it calls its opset
_NEWEST_OPSETS = {"coreml": _NEWEST - 1, "ios": 26}
_PIPELINES = ("pipeline", "pipelineClassifier", "pipelineRegressor")


def read_model(file: Path, dims: Mapping[str, int], fixed: Mapping[str, Any], function: str | None) -> Graph:
    package = file.is_dir()
    if not package and not file.is_file():
        raise LoadError(f"no file {str(file)!r}")
    place = specification(file) if package else file
    model = _parsed(file, place)
    kind = model.WhichOneof("Type")
    if kind == "mlProgram":
        return _program(file, place if package else None, model, dims, fixed, function)
    if function is not None:
        raise LoadError(f"{file.name}: function {function!r}: only an ML program has functions, this is a {kind}")
    if kind in _NETWORKS:
        from aneforge.frontends.coreml.network import read_network

        return read_network(file, model, getattr(model, kind), dims, fixed)
    if kind in _PIPELINES:
        raise LoadError(f"{file.name}: a pipeline of several models: take it apart and load each network by itself")
    raise LoadError(f"{file.name}: a {kind or 'model without content'}: only neural networks run on this engine")


def _parsed(file: Path, place: Path) -> Any:
    proto = model_proto(file)
    if place.stat().st_size > _MOST_SPECIFICATION:
        raise LoadError(f"{file.name}: a specification of {place.stat().st_size:,} bytes; protobuf ends at 2 GiB")
    model = proto.Model()
    try:
        model.ParseFromString(place.read_bytes())
    except Exception as error:  # protobuf's errors have no common class across its versions
        raise LoadError(f"{file.name}: not a Core ML model ({type(error).__name__}: {first_line(error)})") from None
    if not model.specificationVersion or model.WhichOneof("Type") is None:
        raise LoadError(f"{file.name}: not a Core ML model: it says neither its version nor its kind")
    if model.specificationVersion > _NEWEST:
        raise LoadError(f"{file.name}: specification version {model.specificationVersion}; read are 1 to {_NEWEST}")
    return model


def _program(
    file: Path,
    place: Path | None,
    model: Any,
    dims: Mapping[str, int],
    fixed: Mapping[str, Any],
    function: str | None,
) -> Graph:
    from aneforge.frontends.coreml.spec import program

    functions = program(model.mlProgram, file.name)
    name = chosen_function(file, functions, function, model.description.defaultFunctionName)
    told = next((each for each in model.description.functions if each.name == name), model.description)
    ports = ports_of([*told.input, *told.state])
    weights = Weights(file.name, None if place is None else place.parent, None if place is None else file)
    return import_function(file.name, functions[name], weights, dims, fixed, ports)


def chosen_function(file: Path, functions: Mapping[str, Function], wanted: str | None, default: str) -> str:
    name = _chosen(file, functions, wanted, default)
    opset = functions[name].opset
    found = re.fullmatch(r"(coreml|ios)(\d+)", opset.casefold())
    if found is not None and int(found[2]) > _NEWEST_OPSETS[found[1]]:
        raise LoadError(f"{file.name}: function {name!r} is written in opset {opset}, newer than what is read")
    return name


def _chosen(file: Path, functions: Mapping[str, Function], wanted: str | None, default: str) -> str:
    names = list(functions)
    if not names:
        raise LoadError(f"{file.name}: a program without functions")
    if wanted is not None:
        if wanted not in functions:
            raise LoadError(f"{file.name}: no function {wanted!r}; there is {', '.join(names)}")
        return wanted
    for name in (default, "main"):
        if name and name in functions:
            return name
    if len(names) > 1:
        raise LoadError(f"{file.name}: functions {', '.join(names)}: name one: af.load(..., function={names[0]!r})")
    return names[0]


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


def read_program(
    file: Path, source: str, dims: Mapping[str, int], fixed: Mapping[str, Any], function: str | None
) -> Graph:
    from aneforge.frontends.coreml.text import default_shapes, parsed

    functions, notes = parsed(source, file.name)
    name = chosen_function(file, functions, function, "")
    try:
        ports = {key: Port(tuple(shape)) for key, shape in default_shapes(notes[name]).items()}
    except (ValueError, TypeError):
        ports = {}
    return import_function(file.name, functions[name], Weights(file.name, file.parent), dims, fixed, ports)

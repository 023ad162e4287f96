"""Read a Core ML file of any kind: open its package, find its kind, read its description and call the reader of that
kind. A pipeline is several models in one file, each of which reads what earlier ones give.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aneforge.errors import LoadError, first_line
from aneforge.formats.coreml.blobs import BlobWeights
from aneforge.formats.coreml.mil import import_function
from aneforge.formats.coreml.spec import model_class
from aneforge.formats.importer.op import FilePort
from aneforge.formats.kinds import SPECIFICATIONS
from aneforge.formats.records import Function
from aneforge.graph.graph import Graph
from aneforge.graph.node import remade
from aneforge.graph.origins import FileNodes
from aneforge.graph.tensor import Tensor

_WEIGHTS = "weights"
_MOST_TEXT = 1 << 30  # bytes of MIL text
_MOST_MANIFEST = 1 << 24  # bytes: a manifest lists a few files
_MOST_SPECIFICATION = (1 << 31) - 1  # bytes, the limit of protobuf
_NETWORKS = ("neuralNetwork", "neuralNetworkClassifier", "neuralNetworkRegressor")
_NEWEST = 10  # specification version; the opsets of its programs are below
_NEWEST_OPSETS = {"coreml": _NEWEST - 1, "ios": 26}
_PIPELINES = ("pipeline", "pipelineClassifier", "pipelineRegressor")


def read(
    file: Path,
    dims: Mapping[str, int] | None = None,
    fixed: Mapping[str, Any] | None = None,
    function: str | None = None,
) -> Graph:
    """The graph of a package or a model file; ``function`` names one of several functions of a program."""
    file = Path(file)
    package = file.is_dir()
    if not package and not file.is_file():
        raise LoadError(f"{str(file)!r}: no such file; check the path")
    path = _specification(file) if package else file
    beside = path if package or (file.parent / _WEIGHTS).is_dir() else None
    return _read_parsed(file, beside, _parse_model(file, path), dims or {}, fixed or {}, function)


def _read_parsed(
    file: Path,
    path: Path | None,
    model: Any,
    dims: Mapping[str, int],
    fixed: Mapping[str, Any],
    function: str | None,
) -> Graph:
    """A model that is the whole file, or one stage of a pipeline. ``path`` is the specification where weight files can
    be beside it: in a package, or taken out of one."""
    kind = model.WhichOneof("Type")
    if kind in _PIPELINES:
        pipeline = model.pipeline if kind == "pipeline" else getattr(model, kind).pipeline
        taken = {name for stage in pipeline.models for name in (*_dims_of(stage, dims), *_fixed_of(stage, fixed))}
        unused = [name for name in (*dims, *fixed) if name not in taken]
        if unused:
            raise LoadError(f"{file.name}: no stage of the pipeline has an input for {unused[0]!r}; leave it out")
        return _read_pipeline(
            file.name,
            pipeline,
            [port.name for port in model.description.output],
            function,
            lambda stage: _read_parsed(file, path, stage, _dims_of(stage, dims), _fixed_of(stage, fixed), None),
        )
    if kind == "mlProgram":
        return _read_ml_program(file, path, model, dims, fixed, function)
    if function is not None:
        raise LoadError(f"{file.name}: a {kind} has no functions; leave out function {function!r}")
    if kind in _NETWORKS:
        from aneforge.formats.coreml.network import read_network

        return read_network(file, model, getattr(model, kind), dims, fixed)
    raise LoadError(f"{file.name}: a {kind} is not supported; use an ML program or a neural network")


def _fixed_of(stage: Any, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """The fixed values of those inputs that a stage has."""
    names = {port.name for port in stage.description.input}
    return {name: value for name, value in fixed.items() if name in names}


def _dims_of(stage: Any, dims: Mapping[str, int]) -> dict[str, int]:
    """The sizes that a stage may use: those named by one of its inputs."""
    names = [port.name for port in stage.description.input]
    return {name: size for name, size in dims.items() if any(name.startswith(f"{port}[") for port in names)}


def _parse_model(file: Path, path: Path) -> Any:
    kind = model_class(file.name)
    if path.stat().st_size > _MOST_SPECIFICATION:
        raise LoadError(
            f"{file.name}: the specification has {path.stat().st_size:,} bytes; the limit of protobuf is 2 GiB"
        )
    model = kind()
    try:
        model.ParseFromString(path.read_bytes())
    except Exception as error:  # protobuf's errors have no common class across its versions
        raise LoadError(f"{file.name}: not a Core ML model ({type(error).__name__}: {first_line(error)})") from None
    if not model.specificationVersion or model.WhichOneof("Type") is None:
        raise LoadError(f"{file.name}: not a Core ML model; a model has a specification version and a kind")
    if model.specificationVersion > _NEWEST:
        raise LoadError(
            f"{file.name}: specification version {model.specificationVersion} is not supported; "
            f"the newest supported version is {_NEWEST}"
        )
    return model


def description_in(file: Path) -> Any:
    """The description of a model (its inputs, outputs and functions), without its layers and weights."""
    from aneforge.formats.shapes import DESCRIPTION, field_bytes

    path = _specification(file) if file.is_dir() else file
    description = model_class(file.name)().description
    try:
        for content in field_bytes(path, (DESCRIPTION,)):
            description.MergeFromString(content)
    except Exception as error:  # protobuf's errors have no common class across its versions
        raise LoadError(f"{file.name}: not a Core ML model ({type(error).__name__}: {first_line(error)})") from None
    return description


def _read_ml_program(
    file: Path,
    path: Path | None,
    model: Any,
    dims: Mapping[str, int],
    fixed: Mapping[str, Any],
    function: str | None,
) -> Graph:
    from aneforge.formats.coreml.spec import program

    functions = program(model.mlProgram, file.name)
    name = chosen_function(file, functions, function, model.description.defaultFunctionName)
    description = next((entry for entry in model.description.functions if entry.name == name), model.description)
    ports = ports_of([*description.input, *description.state])
    root = file if file.is_dir() else file.parent / _WEIGHTS  # of one file, nothing else beside it is read
    weights = BlobWeights(file.name, None if path is None else path.parent, None if path is None else root)
    return import_function(file.name, functions[name], weights, dims, fixed, ports)


def chosen_function(file: Path, functions: Mapping[str, Function], requested: str | None, default: str) -> str:
    names = list(functions)
    if not names:
        raise LoadError(f"{file.name}: the program has no functions")
    if requested is not None and requested not in functions:
        raise LoadError(f"{file.name}: no function {requested!r}; choose one: {', '.join(names)}")
    usual = (
        [requested] if requested is not None else [name for name in (default, "main") if name and name in functions]
    )
    if not usual and len(names) > 1:
        raise LoadError(
            f"{file.name}: the program has several functions; choose one: {', '.join(names)} "
            f"(af.load(..., function={names[0]!r}))"
        )
    name = (usual or names)[0]
    opset = functions[name].opset
    match = re.fullmatch(r"(coreml|ios)(\d+)", opset.casefold())
    if match is not None and int(match[2]) > _NEWEST_OPSETS[match[1]]:
        raise LoadError(f"{file.name}: function {name!r} uses opset {opset}, which is newer than the supported opsets")
    return name


def read_text(
    file: Path,
    dims: Mapping[str, int] | None = None,
    fixed: Mapping[str, Any] | None = None,
    function: str | None = None,
) -> Graph:
    """The graph of MIL text. Its weight files are in the same folder, as in a compiled model."""
    file = Path(file)
    if not file.is_file():
        raise LoadError(f"{str(file)!r}: no such file; check the path")
    return _read_source(file, file, dims or {}, fixed or {}, function)


def read_compiled(
    file: Path,
    dims: Mapping[str, int] | None = None,
    fixed: Mapping[str, Any] | None = None,
    function: str | None = None,
) -> Graph:
    """The graph of a compiled model (``.mlmodelc``): a folder with its program as MIL text, and its weight files."""
    file = Path(file)
    source = file / "model.mil"
    if source.is_file():
        if not source.resolve().is_relative_to(file.resolve()):
            raise LoadError(f"{file.name}: model.mil is a link out of the folder; it must be inside")
        return _read_source(file, source, dims or {}, fixed or {}, function)
    stages = sorted(place.name for place in file.glob("model*") if (place / "coremldata.bin").is_file())
    if stages:
        raise LoadError(
            f"{file.name}: a compiled pipeline of {len(stages)} models, and how they are joined is not published. "
            f"Give the .mlpackage, or one stage: {file.name}/{stages[0]}"
        )
    if any(file.glob("*.espresso.net")):
        raise LoadError(
            f"{file.name}: a compiled neural network, whose layers are in a form that is not published. Give the "
            ".mlmodel that it was compiled from"
        )
    raise LoadError(f"{file.name}: not a compiled ML program (no model.mil). Give the .mlpackage or .mlmodel")


def _read_source(
    file: Path, text: Path, dims: Mapping[str, int], fixed: Mapping[str, Any], function: str | None
) -> Graph:
    """The graph of the MIL text of a model, which is ``file`` to the user."""
    from aneforge.formats.coreml.text import default_shapes, parsed

    size = text.stat().st_size
    if size > _MOST_TEXT:
        raise LoadError(f"{file.name}: the MIL text has {size:,} bytes; the limit is {_MOST_TEXT:,}")
    try:
        source = text.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"{file.name}: not MIL text ({type(error).__name__})") from None
    functions, notes = parsed(source, file.name)
    name = chosen_function(file, functions, function, "")
    try:
        ports = {key: FilePort(tuple(shape)) for key, shape in default_shapes(notes[name]).items()}
    except (ValueError, TypeError):
        ports = {}
    return import_function(file.name, functions[name], BlobWeights(file.name, text.parent), dims, fixed, ports)


# Packages: a folder with a manifest that names the model file.


def _specification(package: Path) -> Path:
    """The model specification inside a package, or in a folder that lost its manifest. A path or link out of the
    package is refused."""
    manifest = package / "Manifest.json"
    if not manifest.is_file():
        return _specification_without_manifest(package)
    document = _manifest(package, manifest)
    entries, root = document.get("itemInfoEntries"), document.get("rootModelIdentifier")
    if not isinstance(entries, dict) or not isinstance(root, str) or not isinstance(entries.get(root), dict):
        raise LoadError(f"{package.name}: Manifest.json has no root model; copy the package again")
    path = entries[root].get("path")
    if not isinstance(path, str) or not path:
        raise LoadError(f"{package.name}: Manifest.json has no path for its root model")
    model_file = (package / "Data" / path).resolve()
    if not model_file.is_relative_to(package.resolve()):
        raise LoadError(
            f"{package.name}: Manifest.json names {path!r}, which points outside the package; it must be inside"
        )
    if not model_file.is_file():
        raise LoadError(f"{package.name}: the model file {path!r} does not exist; copy the package again")
    return model_file


def _specification_without_manifest(package: Path) -> Path:
    """The specification where exporters put it: a folder that was copied in part still has it."""
    place = next((place for place in SPECIFICATIONS if (package / place).is_file()), None)
    if place is None:
        raise LoadError(f"{package.name}: not a Core ML package; a package has a Manifest.json")
    if not (package / place).resolve().is_relative_to(package.resolve()):
        raise LoadError(f"{package.name}: {place} is a link out of the package; it must be inside")
    return (package / place).resolve()


def _manifest(package: Path, manifest: Path) -> dict[str, Any]:
    if not manifest.resolve().is_relative_to(package.resolve()):
        raise LoadError(f"{package.name}: Manifest.json is a link out of the package; it must be inside")
    if manifest.stat().st_size > _MOST_MANIFEST:
        raise LoadError(
            f"{package.name}: Manifest.json has {manifest.stat().st_size:,} bytes; the limit is {_MOST_MANIFEST:,}"
        )
    try:
        document = json.loads(manifest.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise LoadError(f"{package.name}: Manifest.json cannot be read: {first_line(error)[:200]}") from None
    if not isinstance(document, dict):
        raise LoadError(f"{package.name}: Manifest.json must be a JSON object")
    return document


# Inputs and states from the description of a model.


def ports_of(features: Iterable[Any]) -> dict[str, FilePort]:
    """The ports by name: their default shapes, the other shapes they may have, and which are images."""
    return {feature.name: _port(feature.type) for feature in features}


def _port(kind: Any) -> FilePort:
    form = kind.WhichOneof("Type")
    if form == "imageType":
        image = kind.imageType
        channels = 1 if image.colorSpace in (10, 40) else 3
        return FilePort((1, channels, int(image.height), int(image.width)), *_image_sizes(image, channels), image=True)
    if form == "stateType":
        return _array(kind.stateType.arrayType)
    return _array(kind.multiArrayType) if form == "multiArrayType" else FilePort()


def _array(array: Any) -> FilePort:
    shape = tuple(int(extent) for extent in array.shape)
    form = array.WhichOneof("ShapeFlexibility")
    if form == "enumeratedShapes":
        return FilePort(
            shape, (), tuple(tuple(int(n) for n in option.shape) for option in array.enumeratedShapes.shapes)
        )
    if form == "shapeRange":
        return FilePort(
            shape, tuple((int(bounds.lowerBound), int(bounds.upperBound)) for bounds in array.shapeRange.sizeRanges)
        )
    return FilePort(shape)


def _image_sizes(image: Any, channels: int) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, ...], ...]]:
    form = image.WhichOneof("SizeFlexibility")
    if form == "enumeratedSizes":
        return (), tuple((1, channels, int(size.height), int(size.width)) for size in image.enumeratedSizes.sizes)
    if form == "imageSizeRange":
        sizes = image.imageSizeRange.heightRange, image.imageSizeRange.widthRange
        bounds = [(int(size.lowerBound), int(size.upperBound)) for size in sizes]
        return ((1, 1), (channels, channels), *bounds), ()
    return (), ()


# Pipelines.


def _read_pipeline(
    file: str, pipeline: Any, outputs: Sequence[str], stage: str | None, read: Callable[[Any], Graph]
) -> Graph:
    """One stage of a pipeline by its name or number, or all stages as one graph if each is a network."""
    models = list(pipeline.models)
    labels = [pipeline.names[place] if place < len(pipeline.names) else str(place) for place in range(len(models))]
    kinds = [model.WhichOneof("Type") for model in models]
    listed = ", ".join(f"{label!r} ({kind})" for label, kind in zip(labels, kinds, strict=True))
    if stage is not None:
        if stage in labels:
            return read(models[labels.index(stage)])
        if stage.isdecimal() and int(stage) < len(models):
            return read(models[int(stage)])
        raise LoadError(f"{file}: the pipeline has no stage {stage!r}; choose one: {listed}")
    if not models:
        raise LoadError(f"{file}: the pipeline has no stages; save the model again")
    others = [label for label, kind in zip(labels, kinds, strict=True) if kind not in ("mlProgram", *_NETWORKS)]
    if others:
        usable = next((label for label in labels if label not in others), "0")
        raise LoadError(
            f"{file}: the pipeline has a stage that is not a network ({others[0]!r}), which no engine runs. "
            f"Load one stage: af.load(..., function={usable!r}); "
            f"the stages are {listed}"
        )
    return _joined(file, [read(model) for model in models], outputs)


def _joined(file: str, graphs: Sequence[Graph], outputs: Sequence[str]) -> Graph:
    """The stages as one graph: an input with the name of an earlier output is that output."""
    given: dict[str, Tensor] = {}
    file_nodes = FileNodes(runtime="coreml")
    for graph in graphs:
        file_nodes.append(graph.file, graph.nodes)
        made: dict[int, Tensor] = {}
        for node in graph.nodes:
            earlier = given.get(node.name or "") if node.op == "input" else None
            if earlier is not None and earlier.shape != node.shape:
                raise LoadError(
                    f"{file}: {node.name!r} leaves one stage as {list(earlier.shape)} and enters the next as "
                    f"{list(node.shape)}; correct the pipeline"
                )
            if earlier is not None:
                made[node.uid] = earlier
                continue
            operands = [made[operand.uid] for operand in node.inputs]
            unchanged = all(new is old for new, old in zip(operands, node.inputs, strict=True))
            made[node.uid] = node if unchanged else remade(node, operands, node.name)
        given |= {str(output.name): made[output.uid] for output in graph.outputs}
    missing = [name for name in outputs if name not in given]
    if missing:
        there = ", ".join(given)
        raise LoadError(f"{file}: no stage gives the output {missing[0]!r}; the stages give {there}")
    joined = Graph([given[name] for name in outputs] if outputs else list(graphs[-1].outputs))
    joined.file = file_nodes
    return joined

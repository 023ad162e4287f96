"""Read a Core ML file of any kind: find its kind, read its description and call the reader of that kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aneforge.errors import first_line
from aneforge.frontends import LoadError
from aneforge.frontends.coreml.blobs import Weights
from aneforge.frontends.coreml.mil import import_function
from aneforge.frontends.coreml.package import specification
from aneforge.frontends.coreml.ports import ports_of
from aneforge.frontends.coreml.proto import model_class
from aneforge.frontends.importer.ports import Port
from aneforge.frontends.records import Function
from aneforge.graph.graph import Graph

_MOST_SPECIFICATION = (1 << 31) - 1  # bytes, the limit of protobuf
_NETWORKS = ("neuralNetwork", "neuralNetworkClassifier", "neuralNetworkRegressor")
_NEWEST = 10  # specification version; the opsets of its programs are below
_NEWEST_OPSETS = {"coreml": _NEWEST - 1, "ios": 26}
_PIPELINES = ("pipeline", "pipelineClassifier", "pipelineRegressor")


def read_model(file: Path, dims: Mapping[str, int], fixed: Mapping[str, Any], function: str | None) -> Graph:
    package = file.is_dir()
    if not package and not file.is_file():
        raise LoadError(f"{str(file)!r}: no such file; check the path")
    path = specification(file) if package else file
    return _read_parsed(file, path if package else None, _parse_model(file, path), dims, fixed, function)


def _read_parsed(
    file: Path,
    path: Path | None,
    model: Any,
    dims: Mapping[str, int],
    fixed: Mapping[str, Any],
    function: str | None,
) -> Graph:
    """A model that is the whole file, or one stage of a pipeline. ``path`` is the specification in a package."""
    kind = model.WhichOneof("Type")
    if kind in _PIPELINES:
        from aneforge.frontends.coreml.pipeline import read_pipeline

        pipeline = model.pipeline if kind == "pipeline" else getattr(model, kind).pipeline
        taken = {name for stage in pipeline.models for name in (*_dims_of(stage, dims), *_fixed_of(stage, fixed))}
        unused = [name for name in (*dims, *fixed) if name not in taken]
        if unused:
            raise LoadError(f"{file.name}: no stage of the pipeline has an input for {unused[0]!r}; leave it out")
        return read_pipeline(
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
        from aneforge.frontends.coreml.network import read_network

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


def _read_ml_program(
    file: Path,
    path: Path | None,
    model: Any,
    dims: Mapping[str, int],
    fixed: Mapping[str, Any],
    function: str | None,
) -> Graph:
    from aneforge.frontends.coreml.spec import program

    functions = program(model.mlProgram, file.name)
    name = chosen_function(file, functions, function, model.description.defaultFunctionName)
    description = next((entry for entry in model.description.functions if entry.name == name), model.description)
    ports = ports_of([*description.input, *description.state])
    weights = Weights(file.name, None if path is None else path.parent, None if path is None else file)
    return import_function(file.name, functions[name], weights, dims, fixed, ports)


def chosen_function(file: Path, functions: Mapping[str, Function], requested: str | None, default: str) -> str:
    name = _pick_name(file, functions, requested, default)
    opset = functions[name].opset
    match = re.fullmatch(r"(coreml|ios)(\d+)", opset.casefold())
    if match is not None and int(match[2]) > _NEWEST_OPSETS[match[1]]:
        raise LoadError(f"{file.name}: function {name!r} uses opset {opset}, which is newer than the supported opsets")
    return name


def _pick_name(file: Path, functions: Mapping[str, Function], requested: str | None, default: str) -> str:
    names = list(functions)
    if not names:
        raise LoadError(f"{file.name}: the program has no functions")
    if requested is not None:
        if requested not in functions:
            raise LoadError(f"{file.name}: no function {requested!r}; choose one: {', '.join(names)}")
        return requested
    for name in (default, "main"):
        if name and name in functions:
            return name
    if len(names) > 1:
        raise LoadError(
            f"{file.name}: the program has several functions; choose one: {', '.join(names)} "
            f"(af.load(..., function={names[0]!r}))"
        )
    return names[0]


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

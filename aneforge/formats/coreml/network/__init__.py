"""Neural networks of ``.mlmodel`` files: lists of layers, the format before ML programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats.coreml.network import nd, pointwise, recurrent, spatial
from aneforge.formats.coreml.network.values import Blob, NetworkLayer, of_planes
from aneforge.formats.coreml.reader import ports_of
from aneforge.formats.importer.control import is_true, spend_round
from aneforge.formats.importer.importer import Importer
from aneforge.formats.importer.language import Control, Language, Scope
from aneforge.formats.importer.op import FilePort
from aneforge.formats.records import Block, Function, Operation, Ref, Type, ValueType
from aneforge.formats.values import as_tensor, shaped
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor

__all__ = ["CONTROL", "LAYERS", "REFUSED", "read_network"]

LAYERS = {**spatial.LAYERS, **pointwise.LAYERS, **nd.LAYERS, **recurrent.LAYERS}

REFUSED = {
    "categoricalDistribution": "drawing from a computed distribution is not supported; use a fixed one",
    "custom": "custom layers are not supported; their code is in the app",
    "loopBreak": "leaving a loop in the middle of a round is not supported; the engine has no loops",
    "loopContinue": "skipping the rest of a round is not supported; the engine has no loops",
}

_INT32 = 131104  # the data type of integers in a description of an array
_BGR = 30  # a colour space


def read_network(file: Path, model: Any, network: Any, dims: Mapping[str, int], fixed: Mapping[str, Any]) -> Graph:
    records = _Records(file.name, model, network)
    language = _Network(records)
    function = records.function(fixed)
    return Importer(file.name, language, function, dims=dims, fixed=fixed, ports=records.ports).graph()


class _Records:
    """A network as records: each layer is one operation; branches and loops hold blocks of operations."""

    def __init__(self, file: str, model: Any, network: Any) -> None:
        self.file, self.network, self.description = file, network, model.description
        self.exact = network.arrayInputShapeMapping == 1
        self.ports = ports_of(self.description.input)
        self.features = {feature.name: feature for feature in self.description.input}
        self.shapes: dict[str, tuple[int, ...]] = {}  # of outputs, where the description states them

    def function(self, fixed: Mapping[str, Any]) -> Function:
        inputs = [(name, self._type(name, port, fixed)) for name, port in self.ports.items()]
        block = self.block(self.network)
        names = {*self.ports, *(name for layer in self.network.layers for name in layer.output)}
        block.outputs = self._outputs(names)
        return Function(inputs, block)

    def block(self, network: Any) -> Block:
        return Block([], [], [self._operation(layer, place) for place, layer in enumerate(network.layers)])

    def _operation(self, layer: Any, place: int) -> Operation:
        kind = str(layer.WhichOneof("layer"))
        inner: Sequence[Any] = ()
        if kind == "branch":
            inner = (layer.branch.ifBranch, layer.branch.elseBranch)
        elif kind == "loop":
            inner = (layer.loop.conditionNetwork, layer.loop.bodyNetwork)
        return Operation(
            kind,
            {"": [Ref(name) for name in layer.input]},
            [(name, None) for name in layer.output],
            blocks=[self.block(network) for network in inner],
            name=layer.name or f"{kind}_{place}",
            source=layer,
        )

    def _type(self, name: str, port: FilePort, fixed: Mapping[str, Any]) -> Type:
        kind = self.features[name].type
        form = kind.WhichOneof("Type")
        if name in fixed:
            return ValueType("fp32", np.shape(fixed[name]))
        if not port.shape:
            raise LoadError(
                f"{self.file}: input {name!r} ({form}) has no shape; only images and arrays with a shape are supported"
            )
        is_integer = form == "multiArrayType" and kind.multiArrayType.dataType == _INT32
        return ValueType("int32" if is_integer else "fp32", port.shape)

    def _outputs(self, names: set[str]) -> list[str]:
        """The outputs that are arrays. A classifier gives its probabilities; the label stays with the host."""
        outputs = []
        for feature in self.description.output:
            if feature.name in names:
                kind = feature.type
                array = kind.WhichOneof("Type") == "multiArrayType"
                self.shapes[feature.name] = tuple(int(n) for n in kind.multiArrayType.shape) if array else ()
                outputs.append(feature.name)
        scores = getattr(self.network, "labelProbabilityLayerName", "")
        if not outputs or scores:
            if not self.network.layers and not outputs:
                raise LoadError(f"{self.file}: the network has no layers")
            name = scores or self.network.layers[-1].output[0]
            outputs += [name] if name not in outputs else []
        return outputs


class _Network(Language):
    """Values are blobs, since older networks give every value five axes. They state no types: Core ML computes them in
    the engine's."""

    runtime = "coreml"

    def __init__(self, records: _Records) -> None:
        self.records = records
        self.control = CONTROL

    def entered(self, importer: Importer, name: str, value: Any) -> Any:
        records, port = self.records, self.records.ports[name]
        extents = list(value.shape)
        if port.image:
            shape = (1, *extents) if records.network.imageInputShapeMapping == 0 else tuple(extents)
        elif records.exact or len(extents) == 5:
            shape = tuple(extents)
        elif len(extents) in (1, 3):  # channels, or channels, height and width: sequence and batch are added
            shape = (1, 1, *extents, *(1,) * (3 - len(extents)))
        else:
            raise LoadError(
                f"{importer.file}: input {name!r} has {len(extents)} axes; this network takes one, three or five"
            )
        blob = Blob(value, shape) if isinstance(value, Tensor) else Blob.of(value.reshape(shape))
        for preprocessing in records.network.preprocessing:
            images = [key for key, feature in records.features.items() if records.ports[key].image]
            target = preprocessing.featureName or (images[0] if images else "")
            if target not in records.features:
                raise LoadError(
                    f"{importer.file}: preprocessing names {target!r}; choose one: {', '.join(records.features)}"
                )
            if target == name:
                blob = self._preprocess(importer, blob, preprocessing, records.features[name])
        return blob

    def _preprocess(self, importer: Importer, blob: Blob, preprocessing: Any, feature: Any) -> Blob:
        """Scale and shift an image, or subtract the mean image."""
        x = blob.planes()
        if preprocessing.WhichOneof("preprocessor") == "meanImage":
            mean = np.array(preprocessing.meanImage.meanImage, np.float32)
            if mean.size != x.size // x.shape[0]:
                raise LoadError(
                    f"{importer.file}: the mean image has {mean.size} numbers; the input has {x.size // x.shape[0]}"
                )
            return of_planes(x - as_tensor(mean.reshape(1, *x.shape[1:])), blob.shape)
        return of_planes(_scale_image(x, preprocessing.scaler, feature.type.imageType.colorSpace), blob.shape)

    def bind(self, importer: Importer, operation: Operation, scope: Scope) -> NetworkLayer:
        layer = operation.source
        inputs = [importer.bound(binding, scope) for binding in operation.inputs[""]]
        params = getattr(layer, operation.kind, None)
        return NetworkLayer(operation.kind, operation.name, params, inputs, len(layer.output), self.records.exact)

    def is_known(self, op: NetworkLayer) -> bool:
        return False  # the rules of the layers handle known values themselves

    def rule(self, op: NetworkLayer) -> Callable[[NetworkLayer], Any] | None:
        return LAYERS.get(op.kind)

    def refusal(self, op: NetworkLayer) -> str:
        return REFUSED.get(op.kind, f"layer {op.kind!r} is not supported")

    def tensor_in(self, value: Any) -> Any:
        return value.value if isinstance(value, Blob) else value

    def output_value(self, importer: Importer, place: int, label: str, value: Any) -> tuple[str, Any]:
        shape = self.records.shapes.get(label, ())
        if not shape or math.prod(shape) != math.prod(value.shape):
            shape = value.shape
            if not self.records.exact and len(shape) == 5 and shape[:2] == (1, 1):
                # The outputs of older networks have the channels, or the channels, height and width.
                shape = shape[2:3] if shape[3:] == (1, 1) else shape[2:]
        return label, shaped(as_tensor(value.value), shape)


# Layers that decide which layers run. All later layers can read the results of those.


def _branch(importer: Importer, operation: Operation, op: NetworkLayer, scope: Scope) -> list[Any]:
    chosen = 0 if is_true(op.x.known, "the condition") else 1
    importer.run(operation.blocks[chosen], scope)
    return []


def _loop(importer: Importer, operation: Operation, op: NetworkLayer, scope: Scope) -> list[Any]:
    """Write out a loop whose number of rounds follows from known values."""
    test, body = operation.blocks
    rounds, condition = int(op.maxLoopIterations), op.conditionVar
    if op.inputs:
        count = op.x.known
        if count is None:
            raise LoadError("the number of rounds is computed while the network runs; the engine has no loops")
        rounds = int(count.reshape(-1)[0])
    if not rounds and not condition:
        raise LoadError("the loop has no end")
    finished = 0
    while not rounds or finished < rounds:
        if condition:
            importer.run(test, scope)
            if not is_true(scope[condition].known if condition in scope else None, "when the loop ends"):
                break
        finished += 1
        spend_round(finished)
        importer.run(body, scope)
    return []


CONTROL: dict[str, Control] = {"branch": _branch, "loop": _loop}


def _scale_image(x: Tensor, scaler: Any, colours: int) -> Tensor:
    if x.shape[1] == 1:
        bias = [scaler.grayBias]
    else:
        bias = [scaler.redBias, scaler.greenBias, scaler.blueBias]
        bias = bias[::-1] if colours == _BGR else bias
    scale = scaler.channelScale or 1.0
    moved = x.linear_activation(scale, 0.0) if scale != 1.0 else x
    if not any(bias):
        return moved
    if len(set(bias)) == 1:
        return x.linear_activation(scale, bias[0])
    return moved + as_tensor(np.array(bias).reshape(1, -1, 1, 1))

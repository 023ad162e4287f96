"""Neural networks of ``.mlmodel`` files: a list of layers, older than ML programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.errors import AneforgeError, first_line
from aneforge.frontends import LoadError
from aneforge.frontends.coreml.network import nd, pointwise, recurrent, spatial
from aneforge.frontends.coreml.network.blob import Blob, Layer, of_planes
from aneforge.frontends.coreml.reader import ports_of
from aneforge.frontends.importer.importer import Port
from aneforge.frontends.values import NoForm, as_tensor, shaped
from aneforge.graph.graph import Graph
from aneforge.graph.ops.leaf import const
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.tensor import Tensor

__all__ = ["CONTROL", "LAYERS", "REFUSED", "read_network"]

LAYERS = {**spatial.LAYERS, **pointwise.LAYERS, **nd.LAYERS, **recurrent.LAYERS}

REFUSED = {
    "categoricalDistribution": "it draws from a distribution that the network computes",
    "custom": "a layer that the app brings its own code for",
    "loopBreak": "a way out of the middle of a loop",
    "loopContinue": "a way out of the middle of a round of a loop",
}

CONTROL = ("branch", "loop")
"""Layers that say which layers run: settled while the network is read."""

_MOST_ELEMENTS = 1 << 31
_MOST_ROUNDS = 1024  # of a loop that is written out
_MOST_LAYERS = 1 << 20  # walked, loops written out
_MOST_DEPTH = 32
_BROKEN = (NoForm, AneforgeError, ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError)


def read_network(file: Path, model: Any, network: Any, dims: Mapping[str, int], fixed: Mapping[str, Any]) -> Graph:
    return _Reader(file.name, model, network, dims, fixed).graph()


class _Reader:
    def __init__(self, file: str, model: Any, network: Any, dims: Mapping[str, int], fixed: Mapping[str, Any]) -> None:
        self.file, self.model, self.network, self.dims, self.fixed = file, model, network, dims, fixed
        self.exact = network.arrayInputShapeMapping == 1
        self.blobs: dict[str, Blob] = {}
        self.told: set[int] = set()  # uids of tensors that carry a name of the file
        self.used_dims: set[str] = set()
        self.walked = 0

    def graph(self) -> Graph:
        description = self.model.description
        for name, port in ports_of(description.input).items():
            self.blobs[name] = self._input(name, port, next(each for each in description.input if each.name == name))
        self._refuse_unknown()
        for preprocessing in self.network.preprocessing:
            self._prepared(preprocessing)
        self._layers(self.network, 0)
        outputs: list[Tensor] = []
        for name, shape in self._wanted():
            outputs.append(self._output(name, shape, outputs))
        return Graph(outputs)

    def _refuse_unknown(self) -> None:
        absent = [name for name in self.fixed if name not in self.blobs]
        if absent:
            raise LoadError(f"{self.file}: no input {absent[0]!r} to fix; there is {', '.join(self.blobs) or 'none'}")
        unknown = [name for name in self.dims if name not in self.used_dims]
        if unknown:
            known = ", ".join(sorted(self.used_dims)) or "none"
            raise LoadError(f"{self.file}: no open dimension {unknown[0]!r}; the inputs have {known}")

    # Inputs.

    def _input(self, name: str, port: Port, feature: Any) -> Blob:
        if not port.shape and name not in self.fixed:
            form = feature.type.WhichOneof("Type")
            raise LoadError(f"{self.file}: input {name!r} is a {form}, or has no shape: give arrays a shape")
        told = self._extents(name, port) if name not in self.fixed else list(np.shape(self.fixed[name]))
        if port.image:
            shape = (1, *told) if self.network.imageInputShapeMapping == 0 else tuple(told)
        else:
            shape = tuple(told) if self.exact else _five(told, f"{self.file}: input {name!r}")
        if name in self.fixed:
            return Blob.of(np.asarray(self.fixed[name]).reshape(shape))
        whole = feature.type.WhichOneof("Type") == "multiArrayType" and feature.type.multiArrayType.dataType == 131104
        made = graph_input(told, dtype="int32" if whole else "fp16", name=name, max_abs=255.0 if port.image else None)
        return Blob(made, shape)

    def _extents(self, name: str, port: Port) -> list[int]:
        told = []
        for axis, extent in enumerate(port.shape):
            label = f"{name}[{axis}]"
            if axis < len(port.ranges) or port.choices:
                self.used_dims.add(label)
            told.append(int(self.dims[label]) if label in self.used_dims and label in self.dims else int(extent))
        if any(each < 1 for each in told) or int(np.prod(told, dtype=object)) > _MOST_ELEMENTS:
            raise LoadError(f"{self.file}: input {name!r} of {told}")
        if port.choices and tuple(told) not in port.choices:
            raise LoadError(f"{self.file}: input {name!r} of {told} is none of the shapes that the model allows")
        for (least, most), extent in zip(port.ranges, told, strict=False):
            if extent < least or (most >= 0 and extent > most):
                raise LoadError(f"{self.file}: input {name!r} of {told} is beyond what the model allows")
        return told

    def _prepared(self, told: Any) -> None:
        """An image as the network wants it: scaled and shifted, or without the mean image."""
        images = [each.name for each in self.model.description.input if each.type.WhichOneof("Type") == "imageType"]
        name = told.featureName or (images[0] if images else "")
        if name not in self.blobs:
            raise LoadError(f"{self.file}: preprocessing of {name!r}, which is no input")
        blob = self.blobs[name]
        x = blob.planes()
        if told.WhichOneof("preprocessor") == "meanImage":
            mean = np.array(told.meanImage.meanImage, np.float32)
            if mean.size != x.size // x.shape[0]:
                raise LoadError(f"{self.file}: a mean image of {mean.size} numbers for {list(x.shape)}")
            self.blobs[name] = of_planes(x - const(mean.reshape(1, *x.shape[1:])), blob.shape)
            return
        feature = next(each for each in self.model.description.input if each.name == name)
        self.blobs[name] = of_planes(_scaled(x, told.scaler, feature.type.imageType.colorSpace), blob.shape)

    # Layers.

    def _layers(self, network: Any, depth: int) -> None:
        for place, layer in enumerate(network.layers):
            self._layer(layer, place, depth)

    def _layer(self, proto: Any, place: int, depth: int) -> None:
        kind = proto.WhichOneof("layer")
        name = proto.name or f"{kind}_{place}"
        where = f"{self.file}: {name} ({kind})"
        self.walked += 1
        if self.walked > _MOST_LAYERS or depth > _MOST_DEPTH:
            raise LoadError(
                f"{where}: more than {_MOST_LAYERS:,} layers, loops written out, or {_MOST_DEPTH} levels of them"
            )
        if kind not in LAYERS and kind not in CONTROL:
            raise LoadError(f"{where}: {REFUSED.get(str(kind), 'no rule for this layer')}")
        missing = [each for each in proto.input if each not in self.blobs]
        if missing:
            raise LoadError(f"{where}: reads {missing[0]!r}, which no input or earlier layer gives")
        if kind == "branch":
            taken = proto.branch.ifBranch if self._truth(proto.input[0], where) else proto.branch.elseBranch
            self._layers(taken, depth + 1)
            return
        if kind == "loop":
            self._loop(proto, where, depth)
            return
        layer = Layer(
            str(kind),
            name,
            getattr(proto, str(kind)),
            [self.blobs[each] for each in proto.input],
            len(proto.output),
            self.exact,
        )
        try:
            made = LAYERS[str(kind)](layer)
            found = list(made) if isinstance(made, (list, tuple)) else [made]
            if len(found) < len(proto.output):
                raise LoadError(f"{len(found)} results for {len(proto.output)} names")
        except _BROKEN as error:
            raise LoadError(f"{where}: {first_line(error)}") from None
        except MemoryError:
            raise LoadError(f"{where}: its values do not fit this machine's memory") from None
        for number, (key, blob) in enumerate(zip(proto.output, found, strict=False)):
            self._tell(blob, name if len(proto.output) == 1 else f"{name}.{number}")
            self.blobs[key] = blob

    def _truth(self, name: str, where: str) -> bool:
        known = self.blobs[name].known if name in self.blobs else None
        if known is None:
            raise LoadError(f"{where}: {name!r} decides what runs, and is only known while the network runs")
        return bool(known.reshape(-1)[0])

    def _loop(self, proto: Any, where: str, depth: int) -> None:
        """A loop whose end follows from known values, written out."""
        told = proto.loop
        rounds = int(told.maxLoopIterations)
        if proto.input:
            known = self.blobs[proto.input[0]].known
            if known is None:
                raise LoadError(f"{where}: how often it runs is only known while the network runs")
            rounds = int(known.reshape(-1)[0])
        done = 0
        while not rounds or done < rounds:
            if told.conditionVar:
                self._layers(told.conditionNetwork, depth + 1)
                if not self._truth(told.conditionVar, where):
                    return
            elif not rounds:
                raise LoadError(f"{where}: a loop without an end")
            if done >= _MOST_ROUNDS:
                raise LoadError(f"{where}: a loop of more than {_MOST_ROUNDS} rounds")
            self._layers(told.bodyNetwork, depth + 1)
            done += 1

    def _tell(self, blob: Blob, name: str) -> None:
        """The last tensor of a layer carries its name, so that every later message speaks it."""
        value = blob.value
        if isinstance(value, Tensor) and value.op not in ("input", "const") and value.uid not in self.told:
            self.told.add(value.named(name).uid)

    # Outputs.

    def _wanted(self) -> list[tuple[str, tuple[int, ...]]]:
        """The outputs that are arrays; of a classifier the probabilities, whose label stays with the host."""
        found = []
        for each in self.model.description.output:
            if each.name in self.blobs:
                kind = each.type
                array = kind.WhichOneof("Type") == "multiArrayType"
                found.append((each.name, tuple(int(n) for n in kind.multiArrayType.shape) if array else ()))
        scores = getattr(self.network, "labelProbabilityLayerName", "")
        if not found or scores:
            layers = self.network.layers
            if not layers and not found:
                raise LoadError(f"{self.file}: a network without layers")
            name = scores or layers[-1].output[0]
            if name not in self.blobs:
                raise LoadError(f"{self.file}: output {name!r} is made by no layer")
            if name not in [key for key, _ in found]:
                found.append((name, ()))
        return found

    def _output(self, name: str, shape: tuple[int, ...], others: list[Tensor]) -> Tensor:
        blob = self.blobs[name]
        count = int(np.prod(blob.shape, dtype=object))
        wanted = shape if shape and int(np.prod(shape, dtype=object)) == count else self._plain_shape(blob.shape)
        try:
            made = shaped(as_tensor(blob.value), wanted)
            if made.op == "input" or any(made is each for each in others):
                made = made.reshape(*made.shape)
        except AneforgeError as error:
            raise LoadError(f"{self.file}: output {name!r}: {first_line(error)}") from None
        return made.named(name)

    def _plain_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Older networks give an array of channels, or of channels, height and width."""
        if self.exact or len(shape) != 5 or shape[:2] != (1, 1):
            return shape
        return shape[2:3] if shape[3:] == (1, 1) else shape[2:]


def _five(shape: list[int], where: str) -> tuple[int, ...]:
    """[sequence, batch, channels, height, width] of an array that has channels, or channels, height and width."""
    if len(shape) == 1:
        return (1, 1, shape[0], 1, 1)
    if len(shape) == 3:
        return (1, 1, *shape)
    if len(shape) == 5:
        return tuple(shape)
    raise LoadError(f"{where} has {len(shape)} axes; this network takes one, three or five")


def _scaled(x: Tensor, scaler: Any, colours: int) -> Tensor:
    if x.shape[1] == 1:
        bias = [scaler.grayBias]
    else:
        bias = [scaler.redBias, scaler.greenBias, scaler.blueBias]
        bias = bias[::-1] if colours == 30 else bias
    scale = scaler.channelScale or 1.0
    moved = x.linear_activation(scale, 0.0) if scale != 1.0 else x
    if not any(bias):
        return moved
    if len(set(bias)) == 1:
        return x.linear_activation(scale, bias[0])
    return moved + const(np.array(bias).reshape(1, -1, 1, 1))

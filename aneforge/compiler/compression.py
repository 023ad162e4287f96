"""A graph with its weights in stored forms: what ``compile(compress=...)`` does before the compiler starts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from aneforge.chips.assumed import compile_fact
from aneforge.chips.chip import Target
from aneforge.chips.streams import Flow, LayerConditions, tiles_overlap
from aneforge.compiler.storage import flow_of, is_mostly_zeros, is_worth_encoding
from aneforge.errors import ArgumentError, nearest
from aneforge.graph.codecs.encoding import ENCODINGS, encode
from aneforge.graph.encoding import Encoded
from aneforge.graph.forms import Site, applied
from aneforge.graph.graph import Graph
from aneforge.graph.node import remade
from aneforge.graph.ops.contraction import linear
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.graph.weights import Weight
from aneforge.text import columns

AUTO = "auto"
MODES = (*ENCODINGS, AUTO)
"""What ``compress`` may be, for all layers or for one."""
DEFAULT_ATOL, DEFAULT_BLOCK = 0.05, 32
Compress = str | Mapping[str, str | None] | None
"""A mode for all layers, or modes by the names of nodes, with ``*`` and ``?`` for any characters."""

_ALL = "*"
_SAMPLES = 64  # inputs of a layer whose outputs are compared
_AT_ONCE = 1 << 22  # numbers of a weight that are multiplied at a time


@dataclass(frozen=True)
class LayerCompression:
    """What became of one layer's weight."""

    node: str
    op: str
    mode: str | None
    """What was asked for this layer."""
    encoding: str
    """The form that it has now; ``fp16`` where it has none."""
    streams: bool
    """Whether the chip streams that form in this layer; a form that folds rounds the weight and saves nothing."""
    reason: str
    error: float | None
    """Of its outputs (:func:`drawn_error`); None where the weight was left alone."""
    bytes_before: int
    bytes_after: int
    """As the model stores it; a form that folds takes ``bytes_before`` in the program."""

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Compression:
    """What ``compress`` did, layer by layer."""

    target: str
    layers: tuple[LayerCompression, ...]

    @property
    def bytes_before(self) -> int:
        return sum(layer.bytes_before for layer in self.layers)

    @property
    def bytes_after(self) -> int:
        return sum(layer.bytes_after for layer in self.layers)

    def __getitem__(self, node: str) -> LayerCompression:
        """The layer of a node, by its name."""
        found = next((layer for layer in self.layers if layer.node == node), None)
        if found is None:
            near = ", ".join(nearest(node, [layer.node for layer in self.layers])) or "none"
            raise ArgumentError("node", f"{node!r} has no stored kernel; nearest: {near}.")
        return found

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "layers": [layer.to_json() for layer in self.layers],
        }

    def __str__(self) -> str:
        rows = []
        for layer in self.layers:
            flow = "-" if layer.encoding == "fp16" else ("streams" if layer.streams else "folds")
            error = "-" if layer.error is None else f"{layer.error:.2g}"
            rows.append((layer.node, layer.encoding, flow, layer.bytes_after, layer.bytes_before, error, layer.reason))
        table = columns(("layer", "form", "flow", "bytes", "was", "error", "why"), rows, fit=True)
        total = f"{len(self.layers)} layers for {self.target}: {self.bytes_after:,} bytes of {self.bytes_before:,}"
        return f"{table}\n{total}"


@dataclass(frozen=True)
class CompressionOptions:
    """The checked options of a compile that are about stored weights."""

    compress: str | Mapping[str, str | None]
    atol: float = DEFAULT_ATOL
    block_size: int = DEFAULT_BLOCK

    @classmethod
    def of(
        cls, int8: bool, compress: Compress, atol: float = DEFAULT_ATOL, block_size: int = DEFAULT_BLOCK
    ) -> CompressionOptions | None:
        """The options as the public functions take them, or None where no weight is to be encoded. ``int8`` is
        ``compress="int8"`` (U117)."""
        if int8 and compress not in (None, "int8"):
            raise ArgumentError(
                "int8", f"int8=True is compress='int8'; choose one: int8=True or compress={compress!r}."
            )
        chosen = "int8" if int8 else compress
        modes = set(chosen.values()) if isinstance(chosen, Mapping) else {chosen}
        for mode in modes:
            if mode is not None and mode not in MODES:
                near = ", ".join(nearest(str(mode), MODES)) or ", ".join(MODES)
                raise ArgumentError("compress", f"{mode!r} is unknown; nearest: {near}, or None.")
        for name, value, default in (("compress_atol", atol, DEFAULT_ATOL), ("block_size", block_size, DEFAULT_BLOCK)):
            if chosen is None and value != default:
                raise ArgumentError(name, f"{name}={value!r} has no effect without compress=. Leave it out.")
        if isinstance(atol, bool) or not isinstance(atol, (int, float)) or not 0 <= atol < math.inf:
            raise ArgumentError("compress_atol", f"{atol!r} is not a tolerance. Give a number from 0.")
        if isinstance(block_size, bool) or not isinstance(block_size, int) or block_size < 1:
            raise ArgumentError("block_size", f"{block_size!r} is not a size. Give a whole number from 1.")
        return None if chosen is None else cls(chosen, float(atol), block_size)

    def mode_of(self, node: str) -> str | None:
        """The mode of a node: by its own name, by the first pattern that fits, or that of ``*``."""
        if isinstance(self.compress, str):
            return self.compress
        if node in self.compress:
            return self.compress[node]
        fits = (mode for pattern, mode in self.compress.items() if pattern != _ALL and fnmatchcase(node, pattern))
        return next(fits, self.compress.get(_ALL))

    def check_patterns(self, nodes: list[str]) -> None:
        """Refuse patterns that fit no layer, so that a misspelled name is not ignored."""
        for pattern in self.compress if isinstance(self.compress, Mapping) else ():
            if pattern != _ALL and pattern not in nodes and not any(fnmatchcase(node, pattern) for node in nodes):
                near = ", ".join(nearest(str(pattern), nodes)) or ", ".join(nodes[:4]) or "none"
                raise ArgumentError("compress", f"{pattern!r} names no layer with a stored kernel; nearest: {near}.")


def compressed(graph: Graph, target: Target, options: CompressionOptions) -> tuple[Graph, Compression]:
    """The graph with its kernels in the forms that the options ask for, and what was done.

    An explicit mode encodes every kernel, whether the chip streams it or not; what cannot be encoded is an error.
    ``auto`` tries the forms of the seed page that the chip streams in that layer, smallest first, and keeps fp16 where
    none is accurate enough (U115). A weight that came encoded stays as it is.
    """
    layers = list(_layers(graph))
    options.check_patterns([layer.name for layer in layers])
    tried: dict[tuple[Any, ...], _Choice] = {}
    sites: list[Site] = []
    report: list[LayerCompression] = []
    for layer in layers:
        mode = options.mode_of(layer.name)
        key = (layer.weight.key, mode, layer.node.op == "conv_transpose", layer.conditions(target))
        if key not in tried:
            tried[key] = _choose(layer, mode, target, options)
        choice = tried[key]
        if choice.encoded is not None:
            sites.append(layer.site(choice.encoded))
        before = 2 * layer.weight.size if layer.weight.encoded is None else layer.weight.encoded.stored_bytes
        after = before if choice.encoded is None else choice.encoded.stored_bytes
        form = layer.weight.encoding if choice.encoded is None else choice.encoded.name
        report.append(
            LayerCompression(
                layer.name, layer.node.op, mode, form, choice.streams, choice.reason, choice.error, before, after
            )
        )
    return (applied(graph, sites) if sites else graph), Compression(target.name, tuple(report))


@dataclass(frozen=True, eq=False)
class _Layer:
    """A node with a stored kernel."""

    node: Tensor
    name: str
    weight: Weight

    @property
    def outputs_axis(self) -> int:
        """The axis of :attr:`numbers` along which the outputs lie."""
        assert self.node.definition.kernel_axis is not None
        return 0 if self.node.op == "matmul" else self.node.definition.kernel_axis

    @property
    def numbers(self) -> np.ndarray:
        """The kernel; that of a plain product is turned, so that its outputs come first."""
        return self.weight.array.T if self.node.op == "matmul" else self.weight.array

    def conditions(self, target: Target) -> LayerConditions:
        """What of the layer decides whether its weight streams; the passes ask the same of the lowered op."""
        attrs = self.node.attrs
        if "stride" not in attrs:
            return LayerConditions()
        stride, dilation, shape = attrs["stride"], attrs["dilation"], self.weight.shape
        larger = 2 * max(math.prod(side.shape) for side in (self.node.inputs[0], self.node))
        height = shape[-2] if len(shape) > 3 else 1
        working_set = compile_fact(target, "max_operand_bytes").value
        return LayerConditions(
            unit_stride=all(step == 1 for step in stride),
            no_dilation=all(rate == 1 for rate in dilation),
            tiles_overlap=tiles_overlap(height, stride[0], larger, working_set),
        )

    def flow(self, target: Target, encoding: str | Encoded) -> Flow:
        flow = flow_of(target, encoding, self.conditions(target))
        if self.node.op == "conv_transpose" and flow.streams:
            return Flow(False, "a transposed convolution stores its kernel as fp16", (), flow.cap, keeps_form=False)
        return flow

    def site(self, encoded: Encoded) -> Site:
        """The same layer with the stored form in place of its weight. A product with a constant becomes a dense
        layer, which is the op whose kernel can be stored."""
        node = self.node
        others = tuple(operand for place, operand in enumerate(node.inputs) if place != 1)
        if node.op == "matmul":
            return Site(node, others, lambda x: linear(x, encoded))

        def build(*operands: Tensor) -> Tensor:
            x, *rest = operands
            return remade(node, [x, const(encoded), *rest], None)

        return Site(node, others, build)


def _layers(graph: Graph) -> Iterator[_Layer]:
    names = graph.names()
    for node in graph.nodes:
        if not node.is_a(GraphTrait.STORED_KERNEL) or node.inputs[0].op == "const":
            continue
        weight = node.inputs[1]
        if weight.op == "const" and weight.weight is not None and (node.op != "matmul" or weight.ndim == 2):
            yield _Layer(node, names[node.uid], weight.weight)


@dataclass(frozen=True)
class _Choice:
    encoded: Encoded | None
    reason: str
    error: float | None = None
    streams: bool = False


def _choose(layer: _Layer, mode: str | None, target: Target, options: CompressionOptions) -> _Choice:
    if layer.weight.encoded is not None:
        flow = layer.flow(target, layer.weight.encoded)
        return _Choice(None, f"came in this form; {flow.reason}", streams=flow.streams)
    if mode is None:
        return _Choice(None, "not asked for")
    if mode == AUTO:
        return _automatic(layer, target, options)
    encoded = _encode(layer, mode, options)
    flow = layer.flow(target, encoded)
    return _Choice(encoded, flow.reason, drawn_error(layer.numbers, encoded), flow.streams)


def _encode(layer: _Layer, mode: str, options: CompressionOptions) -> Encoded:
    outputs = layer.outputs_axis
    settings: dict[str, Any] = {}
    if mode in ("int8", "int4-affine"):
        settings["axis"] = outputs
    elif mode == "blockwise":
        settings |= {"axis": 1 - outputs, "block_size": options.block_size}
    what = f"{layer.node.op} {layer.name!r}: its weight"
    return encode(layer.numbers, mode, name=what, **settings)


def _automatic(layer: _Layer, target: Target, options: CompressionOptions) -> _Choice:
    weight = layer.numbers
    if not is_worth_encoding(weight):
        return _Choice(None, f"auto: {weight.size} numbers are too few to gain from a form")
    streaming = [name for name in _AUTO if layer.flow(target, name).streams]
    if not streaming:
        return _Choice(None, f"auto: no form streams here; {layer.flow(target, 'int4').reason}")
    sizes = {name: size for name in streaming if (size := _AUTO[name](weight, options.block_size)) is not None}
    rejected = []
    for name in sorted(sizes, key=lambda form: (sizes[form], form)):
        encoded = _encode(layer, name, options)
        error = drawn_error(weight, encoded)
        if error <= options.atol:
            others = f"; {', '.join(rejected)}" if rejected else ""
            return _Choice(encoded, f"auto: smallest form within {options.atol:g}{others}", error, streams=True)
        rejected.append(f"{name} has an error of {error:.2g}")
    return _Choice(None, f"auto: {', '.join(rejected) or 'no form that streams here fits the weight'}")


def _sparse_size(weight: np.ndarray, block_size: int) -> float | None:
    return weight.size / 8 + 2 * int(np.count_nonzero(weight)) if is_mostly_zeros(weight) else None


def _blockwise_size(weight: np.ndarray, block_size: int) -> float | None:
    fits = weight.ndim > 1 and weight.shape[1] % block_size == 0
    return weight.size * (1 + 2 / block_size) if fits else None


_AUTO: dict[str, Callable[[np.ndarray, int], float | None]] = {
    "int4": lambda weight, _: weight.size / 2,
    "sparse": _sparse_size,
    "int8": lambda weight, _: float(weight.size),
    "blockwise": _blockwise_size,
}
"""The forms that ``auto`` tries, with the bytes that each would take; None where it does not fit the weight."""


def drawn_error(weight: np.ndarray, encoded: Encoded) -> float:
    """How far a layer's outputs move: the root mean square of their error over the largest of them, for 64 inputs of
    unit normal numbers with a fixed seed (U115). The weight has its outputs first."""
    rows, stored = weight.reshape(weight.shape[0], -1), encoded.decode(np.float16).reshape(weight.shape[0], -1)
    inputs = np.random.default_rng(0).standard_normal((rows.shape[1], _SAMPLES), np.float32)
    squares, peak = 0.0, 0.0
    step = max(1, _AT_ONCE // rows.shape[1])
    for first in range(0, len(rows), step):
        part = rows[first : first + step].astype(np.float32)
        change = (stored[first : first + step].astype(np.float32) - part) @ inputs
        squares += float(np.sum(change * change, dtype=np.float64))
        peak = max(peak, float(np.abs(part @ inputs).max()))
    if squares == 0:
        return 0.0
    return math.sqrt(squares / (len(rows) * _SAMPLES)) / peak if peak else math.inf

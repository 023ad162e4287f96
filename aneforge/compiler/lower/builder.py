"""The builder that lowering rules use: it emits ops in order, stores each constant once and keeps layout changes
few.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np

from aneforge.chips import store
from aneforge.compiler.legal.words import without_places
from aneforge.compiler.storage import scales_outputs
from aneforge.engine.ir import Op, TensorType
from aneforge.engine.native import PLACES_OF_RANK
from aneforge.engine.tensor_type import Params
from aneforge.errors import AneforgeError
from aneforge.graph.encoding import Encoded
from aneforge.graph.graph import Graph
from aneforge.graph.node import Shape, located
from aneforge.graph.tensor import Tensor
from aneforge.graph.weights import Weight, derived_weight, intern_weight

DTYPES = {"fp16": "f16", "bool": "i1", "uint8": "ui8"}
N, D, C, H, W = range(5)

SMALLEST_CAP = 16384
"""What every chip takes along H and W (0x138, 0x140): a layout that is ours to choose stays within it."""
MOST_CHANNELS = 65536
"""What every chip takes along C (limits.json channel_extent)."""

_TOKENS = (H, C, W)
"""Where the axes of [1, S, D] lie: where those of [S, D] do."""


def places_of(*shapes: Shape) -> tuple[int, ...]:
    """Where each axis of shapes that meet in one op lies in NDCHW. Rank 3 is CHW, except that a batch of one is none:
    [1, S, D] lies as [S, D] does, as [1, C, H, W] and [C, H, W] lie alike."""
    rank = len(shapes[0])
    return _TOKENS if rank == 3 and all(shape[0] == 1 for shape in shapes) else PLACES_OF_RANK[rank]


def laid_at(shape: Shape, places: tuple[int, ...]) -> Shape:
    """A shape as NDCHW, with each axis at its place."""
    extents = [1] * 5
    for place, extent in zip(places, shape, strict=True):
        extents[place] = extent
    return tuple(extents)


@lru_cache(maxsize=65536)  # few shapes, asked for again and again
def layout(shape: Shape) -> Shape:
    """A user's shape laid out as NDCHW."""
    return laid_at(shape, places_of(shape))


typed = lru_cache(maxsize=65536)(TensorType)


@lru_cache(maxsize=4096)
def _reshape_to(shape: Shape) -> Mapping[str, Any]:
    """The attributes of a reshape, one object for all that are alike."""
    return {"shape": shape}


@lru_cache(maxsize=4096)
def _transpose_to(source: Shape, order: tuple[int, ...]) -> tuple[Shape, Mapping[str, Any] | None]:
    """The shape that a transpose gives, and its attributes; None where no element changes its place."""
    shape = tuple(source[axis] for axis in order)
    wide = [axis for axis in order if source[axis] != 1]
    if wide == sorted(wide):
        return shape, None
    return shape, {"transpose_list": tuple((result, axis) for result, axis in enumerate(order) if result != axis)}


def has_room(shape: Shape) -> bool:
    """Whether every chip has room for a layout that we choose, apart from the batch axis."""
    _, d, c, h, w = shape
    return max(d, h, w) <= SMALLEST_CAP and c <= MOST_CHANNELS


@lru_cache(maxsize=4096)
def _plane(d: int, c: int, h: int, w: int) -> tuple[int, int]:
    """The elements of one image as rows and columns: split between two axes if that fits, else anywhere."""
    splits = ((d * c * h, w), (d * c, h * w), (d, c * h * w))
    size = d * c * h * w
    anywhere = ((size // columns, columns) for columns in range(SMALLEST_CAP, 0, -1) if size % columns == 0)
    return next((split for split in (*splits, *anywhere) if max(split) <= SMALLEST_CAP), splits[0])


class LoweringError(AneforgeError, ValueError):
    """A node that has no form in the engine's language, or that breaks a rule checked before lowering."""

    def __init__(self, node: Tensor, message: str, reject: str | None = None, sources: tuple[str, ...] = ()) -> None:
        self.node, self.reject, self.sources = node, reject, sources
        name = f" {node.name!r}" if node.name else ""
        quote = f'; the compiler says "{reject}"' if reject else ""
        super().__init__(f"{node.op}{name} {list(node.shape)} at {located(node.where)}: {message}{quote}")


@cache
def reject_string(layer: str, start: str) -> str:
    """The compiler's own words for a layer that it refuses, from layers.json, found by how they start."""
    row = next(record for record in store.load("layers")["layers"] if record["name"] == layer)
    return without_places(next(text for text in row["reject_strings"] if text.startswith(start)))


Rule = Callable[["Builder", Tensor], Op]
_RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register how graph ops of these names are lowered."""

    def register(function: Rule) -> Rule:
        for name in names:
            if name in _RULES:
                raise ValueError(f"{name}: this graph op already has a lowering rule")
            _RULES[name] = function
        return function

    return register


def rules() -> Mapping[str, Rule]:
    """Every rule, by graph op."""
    from aneforge.compiler.lower import contraction, movement, native, normal, pointwise, spatial

    _ = contraction, movement, native, normal, pointwise, spatial  # importing them registers their rules
    return _RULES


class Builder:
    """One lowering in progress."""

    def __init__(self, graph: Graph, names: Mapping[int, str] | None = None) -> None:
        self.graph = graph
        self.names = graph.names() if names is None else names
        self.ops: list[Op] = []
        self.weights: dict[str, Weight] = {}
        self.values: dict[int, Op] = {}
        self.sources: tuple[str, ...] = ()
        self._constants: dict[tuple[str, Shape], Op] = {}

    # Ops and values.

    def emit(
        self,
        kind: str,
        operands: Iterable[Op],
        shape: Shape,
        attrs: Mapping[str, Any] | None = None,
        dtype: str = "f16",
    ) -> Op:
        """Append one op that gives an NDCHW tensor."""
        op = Op(f"anec.{kind}", operands, typed(shape, dtype), attrs, self.sources)
        self.ops.append(op)
        return op

    def unit(self, layer: str, operands: Iterable[Op], shape: Shape, **params: Any) -> Op:
        """A native layer without a backend op."""
        return self.emit("unit", operands, shape, {"type": layer, "params": Params(params)})

    def value(self, node: Tensor) -> Op:
        """What a node gives, in the layout of its shape."""
        value = self.values.get(node.uid)
        return self._stored(node, layout(node.shape)) if value is None else value

    def constant(self, values: Any, shape: Shape) -> Op:
        """A constant of the compiler's own, rounded to fp16 as every stored constant is."""
        return self._const_in(intern_weight(values, "constant"), shape)

    def _stored(self, node: Tensor, shape: Shape) -> Op:
        assert node.weight is not None
        return self._const_in(node.weight, shape, (self.names[node.uid],))

    def _const_in(self, weight: Weight, shape: Shape, sources: tuple[str, ...] = ()) -> Op:
        key = (weight.key, shape)
        constant = self._constants.get(key)
        if constant is None:
            self.weights[weight.key] = weight
            sources = sources or self.sources
            constant = Op("anec.const_in", (), TensorType(shape), {"weight": weight.key}, sources)
            self._constants[key] = constant
            self.ops.append(constant)
        return constant

    def kernel(self, node: Tensor, table: str) -> tuple[Op, dict[str, str]]:
        """A stored kernel in the form it came in, and the attributes that say how: bytes with a scale for each output
        channel, or places in one table. Any other form becomes an fp16 kernel, and the packing decides how it is
        stored."""
        encoded = None if node.weight is None else node.weight.encoded
        if encoded is None or not is_packed(encoded):
            return self.value(node), {}
        parts = {
            name: part for name, part in (("kernel_scale", encoded.scale), (table, encoded.table)) if part is not None
        }
        if encoded.zero_point is not None:
            parts["kernel_zero_point"] = encoded.zero_point
        attrs = {}
        for name, part in parts.items():
            weight = intern_weight(part.astype(np.float64).reshape(-1), name)
            self.weights[weight.key] = weight
            attrs[name] = weight.key
        return self._codes(node, encoded), attrs

    def _codes(self, node: Tensor, encoded: Encoded) -> Op:
        assert node.weight is not None
        codes = derived_weight("codes", (node.weight,), encoded.shape, lambda _: encoded.codes)
        signed = encoded.form == "affine" and encoded.codes.dtype.kind == "i"  # the places of a table have no sign
        kind = f"{'si' if signed else 'ui'}{encoded.bits}"
        self.weights[codes.key] = codes
        attrs = {"weight": codes.key}
        constant = Op("anec.const_in", (), TensorType(layout(encoded.shape), kind), attrs, (self.names[node.uid],))
        self.ops.append(constant)
        return constant

    @cached_property
    def read_as_numbers(self) -> frozenset[int]:
        """The uids of quantised values that something besides a dequantiser reads: another op, or the caller."""
        uids = {output.uid for output in self.graph.outputs if output.op == "quantize"}
        for node in self.graph.nodes:
            if node.op != "dequantize":
                uids.update(operand.uid for operand in node.inputs if operand.op == "quantize")
        return frozenset(uids)

    @staticmethod
    def is_const(node: Tensor) -> bool:
        return node.op == "const"

    # Layouts.

    def laid(self, node: Tensor, shape: Shape) -> Op:
        """The value of a node, as if the user had declared it with another shape of the same elements in the same
        order."""
        if node.shape == shape:
            return self.value(node)
        if node.op == "const" and not _deep(shape) and not _deep(node.shape):
            return self._stored(node, layout(shape))  # a constant is stored once and read in any layout
        return self.reshaped(self.value(node), node.shape, shape)

    def placed(self, node: Tensor, places: tuple[int, ...]) -> Op:
        """The value of a node with its axes at these places, and axes of one in front of them (NumPy's alignment)."""
        shape = (1,) * (len(places) - len(node.shape)) + node.shape
        layout_ = laid_at(shape, places)
        if node.op == "const" and len(shape) < 5:
            return self._stored(node, layout_)
        return self.stored_reshape(self.laid(node, shape), layout_)

    def vector(self, node: Tensor, axis: int = C) -> Op:
        """A line of numbers along one NDCHW axis: a bias, a gain, a slope."""
        size = 1
        for extent in node.shape:
            size *= extent
        shape = tuple(size if i == axis else 1 for i in range(5))
        if node.op == "const":
            return self._stored(node, shape)
        return self.stored_reshape(self.value(node), shape)

    def stored_reshape(self, value: Op, shape: Shape) -> Op:
        """The elements in their stored order under another NDCHW shape."""
        if value.shape == shape:
            return value
        return self.emit("reshape", (value,), shape, _reshape_to(shape), _dtype(value))

    def reshaped(self, value: Op, before: Shape, after: Shape) -> Op:
        """The elements in the user's order under another user's shape.

        A volume (NCDHW) is stored with depth before channels, so its order has to be restored first.
        """
        if before == after:
            return value
        if _deep(before):
            value = self.transposed(value, (N, C, D, H, W))
        if not _deep(after):
            return self.stored_reshape(value, layout(after))
        value = self.stored_reshape(value, after)  # NCDHW in the places of NDCHW
        return self.transposed(value, (N, C, D, H, W))

    def transposed(self, value: Op, order: Sequence[int]) -> Op:
        """Result axis i is source axis ``order[i]``; a reshape where no element changes its place."""
        shape, attrs = _transpose_to(value.shape, tuple(order))
        if attrs is None:
            return self.stored_reshape(value, shape)
        return self.emit("transpose", (value,), shape, attrs, _dtype(value))

    def channels_first(self, node: Tensor) -> tuple[Op, Shape]:
        """[N, C, ...] with its channels on C: ranks 2 and 3 are brought to rank 4."""
        shape = node.shape
        if len(shape) == 2:
            shape = (*shape, 1, 1)
        elif len(shape) == 3:
            shape = (shape[0], shape[1], 1, shape[2])
        return self.laid(node, shape), shape

    def off_batch(self, value: Op) -> tuple[Op, Shape]:
        """The batch laid on the channels, for layers that take no batch axis; and the shape to go back to.

        The rest lies on rows and columns, in the first split that every chip has room for. An axis of the image may be
        cut by it, so an op that looks at more than the channels must not use this.
        """
        n, *image = value.shape
        return self.stored_reshape(value, (1, 1, n, *_plane(*image))), value.shape

    def refuse(self, node: Tensor, message: str, reject: str | None = None) -> LoweringError:
        return LoweringError(node, message, reject, self.sources)


def is_packed(encoded: Encoded) -> bool:
    """Whether a kernel's own attributes can say how it is stored: 4 or 8 bits with scales along its outputs that fp16
    holds to all its digits, or one table of single numbers, with or without such scales."""
    if encoded.form == "palette":
        table = encoded.table
        if table is None or math.prod(table.shape[:-2]) * table.shape[-1] != 1 or encoded.shape == ():
            return False
        return encoded.scale is None or scales_outputs(encoded)
    return encoded.form == "affine" and encoded.bits in _CODE_BITS and scales_outputs(encoded)


_CODE_BITS = (4, 8)  # what constexpr_blockwise_shift_scale and constexpr_affine_dequantize hold


def _deep(shape: Shape) -> bool:
    """Whether a shape is a volume whose stored order differs from the user's."""
    return len(shape) == 5 and shape[1] > 1 and shape[2] > 1


def _dtype(value: Op) -> str:
    assert value.type is not None
    return value.type.dtype

"""An ML program in protobuf, as records."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.errors import LoadError, install_hint
from aneforge.formats.records import (
    PACKED,
    STORED,
    Binding,
    Block,
    Function,
    Operation,
    OtherType,
    Ref,
    StateType,
    StoredValue,
    Type,
    ValueType,
    from_bytes,
    numpy_type,
)

_UNSIGNED = "uint8 uint16 uint32 uint64 uint4 uint2 uint1 uint6 uint3"
_TYPES = {
    **{1: "bool", 2: "string", 10: "fp16", 11: "fp32", 12: "fp64", 13: "bf16", 40: "fp8e4m3fn", 41: "fp8e5m2"},
    **{21: "int8", 22: "int16", 23: "int32", 24: "int64", 25: "int4"},
    **dict(enumerate(_UNSIGNED.split(), 31)),
}
"""DataType of MIL.proto."""

_MOST_ELEMENTS = 1 << 28  # of a value inside the specification; larger ones are in weight files
_MOST_DEPTH = 32


def program(proto: Any, name: str) -> dict[str, Function]:
    """Every function of an ML program. A function has one block for each opset; the block of its stated opset is
    read."""
    functions = {}
    for key in sorted(proto.functions):
        function = proto.functions[key]
        blocks = function.block_specializations
        if function.opset not in blocks:
            raise LoadError(f"{name}: function {key!r} has no block for its opset {function.opset!r}")
        block = _block(blocks[function.opset], name, 0)
        functions[key] = Function(_ports(function.inputs, name), block, function.opset)
    return functions


def _ports(ports: Sequence[Any], name: str) -> list[tuple[str, Type]]:
    return [(port.name, _type(port.type, name)) for port in ports]


def _block(proto: Any, name: str, depth: int) -> Block:
    if depth > _MOST_DEPTH:
        raise LoadError(f"{name}: blocks are nested too deep; the limit is {_MOST_DEPTH}")
    return Block(_ports(proto.inputs, name), list(proto.outputs), _Operations(proto, name, depth))


class _Operations:
    """Operations that are made one at a time, so that a large program is not in memory twice."""

    def __init__(self, proto: Any, name: str, depth: int) -> None:
        self.proto, self.name, self.depth = proto, name, depth

    def __iter__(self) -> Iterator[Operation]:
        for operation in self.proto.operations:
            yield _operation(operation, self.name, self.depth)


def _operation(proto: Any, name: str, depth: int) -> Operation:
    outputs = _ports(proto.outputs, name)
    where = f"{name}: {outputs[0][0] if outputs else 'operation'} ({proto.type})"
    inputs: dict[str, list[Binding]] = {}
    for key in sorted(proto.inputs):  # protobuf's own order of a map differs from process to process
        inputs[key] = [
            Ref(binding.name) if binding.WhichOneof("binding") == "name" else _value(binding.value, where)
            for binding in proto.inputs[key].arguments
        ]
    attributes = {key: _value(proto.attributes[key], where) for key in sorted(proto.attributes)}
    blocks = [_block(block, name, depth + 1) for block in proto.blocks]
    return Operation(proto.type, inputs, outputs, attributes, blocks)


def _type(proto: Any, where: str) -> Type:
    kind = proto.WhichOneof("type")
    if kind == "stateType":
        wrapped = _type(proto.stateType.wrappedType, where) if proto.stateType.HasField("wrappedType") else None
        if not isinstance(wrapped, ValueType):
            raise LoadError(f"{where}: a state must hold a tensor")
        return StateType(wrapped)
    if kind != "tensorType":
        return OtherType(str(kind or "nothing").removesuffix("Type"))
    tensor = proto.tensorType
    dtype = _TYPES.get(tensor.dataType)
    if dtype is None:
        raise LoadError(
            f"{where}: data type {tensor.dataType} is not supported; see DataType of MIL.proto up to {max(_TYPES)}"
        )
    extents = [
        int(dimension.constant.size) if dimension.WhichOneof("dimension") == "constant" else None
        for dimension in tensor.dimensions
    ]
    if tensor.rank >= 0 and tensor.rank != len(extents):
        raise LoadError(f"{where}: a type states rank {tensor.rank} but has {len(extents)} dimensions")
    return ValueType(dtype, tuple(extents))


def _value(proto: Any, where: str) -> Binding:
    kind = _type(proto.type, where)
    form = proto.WhichOneof("value")
    if form == "blobFileValue":
        if not isinstance(kind, ValueType):
            raise LoadError(f"{where}: a weight file holds tensors, not a {kind}")
        return StoredValue(proto.blobFileValue.fileName, int(proto.blobFileValue.offset), kind)
    if form != "immediateValue":
        raise LoadError(f"{where}: a value is missing; every value must be stored in the model or in a weight file")
    immediate = proto.immediateValue
    form = immediate.WhichOneof("value")
    if form == "tensor" and isinstance(kind, ValueType):
        return _immediate(immediate.tensor, kind, where)
    if form in ("tuple", "list"):
        return [_value(element, where) for element in getattr(immediate, form).values]
    if form == "dictionary":
        return [(_value(entry.key, where), _value(entry.value, where)) for entry in immediate.dictionary.values]
    raise LoadError(f"{where}: a value of kind {form} is not supported; use a tensor, tuple, list or dictionary")


def _immediate(proto: Any, kind: ValueType, where: str) -> np.ndarray:
    shape = kind.static
    if shape is None:
        raise LoadError(f"{where}: a stored value is {kind}; its shape must be fixed")
    count = math.prod(shape)
    if count > _MOST_ELEMENTS:
        raise LoadError(
            f"{where}: a value has {count:,} elements; the limit inside the specification is {_MOST_ELEMENTS:,}"
        )
    form = proto.WhichOneof("value")
    if form is None:
        if count:
            raise LoadError(f"{where}: a value of {kind} has no numbers")
        return np.zeros(shape, STORED[kind.dtype])
    values = getattr(proto, form).values
    if form == "bytes":
        return _from_bytes(np.frombuffer(values, np.uint8), kind, shape, where)
    if len(values) != count:
        raise LoadError(f"{where}: a value of {kind} has {len(values):,} numbers; expected {count:,}")
    try:
        return np.array(values, numpy_type(kind.dtype)).reshape(shape)
    except (ValueError, TypeError, OverflowError):
        raise LoadError(f"{where}: {form} do not fit a value of {kind}") from None


def _from_bytes(data: np.ndarray, kind: ValueType, shape: tuple[int, ...], where: str) -> np.ndarray:
    count = math.prod(shape)
    bits = PACKED.get(kind.dtype, 0) or np.dtype(STORED[kind.dtype]).itemsize * 8
    if data.size == count and bits < 8:  # one element a byte
        return data.view(STORED[kind.dtype]).reshape(shape)
    if kind.dtype == "string" or data.size != -(-count * bits // 8):
        raise LoadError(f"{where}: {data.size:,} bytes do not fit a value of {kind}")
    return from_bytes(data, kind.dtype, shape)


# The protobuf classes of Core ML models, from descriptors that this package ships.


# pyright: reportMissingImports=false


_DESCRIPTORS = Path(__file__).parent / "descriptors" / "model.binpb"
_PACKAGE = "CoreML.Specification"


def model_class(file: str) -> Any:
    """The class ``Model``. The error names ``file`` if protobuf is missing or does not fit."""
    try:
        return message_class("Model")
    except (ImportError, TypeError, AttributeError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise LoadError(f"{file}: reading Core ML needs protobuf ({reason}): {install_hint('coreml')}") from None


@lru_cache(maxsize=64)
def message_class(name: str) -> Any:
    """The class of one message of Core ML's specification."""
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@lru_cache(maxsize=1)
def _pool() -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(_DESCRIPTORS.read_bytes()).file:
        pool.Add(file)
    return pool

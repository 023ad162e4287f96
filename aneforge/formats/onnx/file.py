# pyright: reportMissingImports=false
"""Open an ONNX file without reading its weights: they stay in the file, mapped, until they are used.

The file is a protobuf message. Its large weights are cut out before the onnx package parses it. In their place
stand references (the standard's external data) to their bytes in this same file.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.errors import LoadError, first_line
from aneforge.files import regular_file
from aneforge.formats.cache import depends_on

_MODEL_GRAPH, _GRAPH_NODE, _GRAPH_INITIALIZER = 7, 1, 5  # field numbers of onnx.proto
_TENSOR_TYPE, _TENSOR_RAW, _TENSOR_EXTERNAL, _TENSOR_LOCATION = 2, 9, 13, 14
_SMALLEST_EXTERNAL = 4096  # smaller weights stay in the message
_WHOLE_BYTES = frozenset((1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16))  # element types of whole bytes
_VARINT_BYTES = 10  # the limit of protobuf
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5


def open_model(onnx: Any, file: Path) -> Any:
    """Return the model of a file; large weights stay in the file."""
    try:
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            model = onnx.ModelProto()
            model.ParseFromString(_strip_weights(data, file.name))
    except Exception as error:
        raise LoadError(f"{file.name}: not an ONNX model ({type(error).__name__}: {first_line(error)})") from None
    if not model.HasField("graph") or not model.graph.output:
        raise LoadError(f"{file.name}: not an ONNX model; it must have a graph with outputs")
    return model


def count_nodes(file: Path) -> int:
    """How many nodes the graph of a file has; none of them is parsed. ValueError, IndexError or OSError if it is no
    ONNX file."""
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        graphs = [field for field in fields(data, 0, len(data)) if field[:2] == (_MODEL_GRAPH, _BYTES)]
        return sum(field[0] == _GRAPH_NODE for *_, body, end in graphs for field in fields(data, body, end))


def fields(data: Any, begin: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield for each field: its number, wire type, start, start of content, and end."""
    place = begin
    while place < end:
        start = place
        tag, place = _varint(data, place)
        kind = tag & 7
        if kind == _VARINT:
            body = place
            _, place = _varint(data, place)
        elif kind == _BYTES:
            size, body = _varint(data, place)
            place = body + size
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            body, place = place, place + (8 if kind == _EIGHT_BYTES else 4)
        else:
            raise ValueError(f"a field has wire type {kind}, which protobuf does not use here")
        if place > end:
            raise ValueError("the file is cut off")
        yield tag >> 3, kind, start, body, place


def _varint(data: Any, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * _VARINT_BYTES, 7):
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise ValueError(f"the number at byte {place - _VARINT_BYTES} has more than {_VARINT_BYTES} bytes")


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _message(number: int, content: bytes) -> bytes:
    return _encode_varint(number << 3 | _BYTES) + _encode_varint(len(content)) + content


def _strip_weights(data: Any, name: str) -> bytes:
    pieces = []
    for number, kind, start, body, end in fields(data, 0, len(data)):
        if number == _MODEL_GRAPH and kind == _BYTES:
            graph = [
                _message(_GRAPH_INITIALIZER, _as_external(data, b, e, name))
                if field == _GRAPH_INITIALIZER and wire == _BYTES and e - b >= _SMALLEST_EXTERNAL
                else data[s:e]
                for field, wire, s, b, e in fields(data, body, end)
            ]
            pieces.append(_message(_MODEL_GRAPH, b"".join(graph)))
        else:
            pieces.append(data[start:end])
    return b"".join(pieces)


def _as_external(data: Any, begin: int, end: int, name: str) -> bytes:
    """Return a weight's message with its bytes replaced by a reference to this file."""
    parts = list(fields(data, begin, end))
    kinds = [_varint(data, body)[0] for number, kind, _, body, _ in parts if number == _TENSOR_TYPE and not kind]
    raw = [(body, stop) for number, _, _, body, stop in parts if number == _TENSOR_RAW]
    if len(raw) != 1 or not set(kinds) <= _WHOLE_BYTES:
        return data[begin:end]
    (first, last), *_ = raw
    pieces = [data[start:stop] for number, _, start, _, stop in parts if number != _TENSOR_RAW]
    entries = {"location": name, "offset": str(first), "length": str(last - first)}
    for key, value in entries.items():
        pieces.append(_message(_TENSOR_EXTERNAL, _message(1, key.encode()) + _message(2, value.encode())))
    return b"".join([*pieces, _encode_varint(_TENSOR_LOCATION << 3), b"\x01"])


class StoredWeights:
    """The weights of a model. Files are mapped, and only files in the model's own folder are opened."""

    def __init__(self, onnx: Any, name: str, folder: Path | None) -> None:
        self._onnx, self._name = onnx, name
        self._folder = None if folder is None else folder.resolve()
        self._maps: dict[Path, mmap.mmap] = {}

    def array(self, tensor: Any) -> np.ndarray:
        where = f"{self._name}: weight {tensor.name!r}"
        known = self._onnx.TensorProto.DataType.values()
        if tensor.data_type not in known:
            raise LoadError(f"{where}: element type {tensor.data_type} is not in ONNX, which ends at {max(known)}")
        try:
            if tensor.data_location != self._onnx.TensorProto.EXTERNAL:
                return self._onnx.numpy_helper.to_array(tensor)
            return self._external_array(tensor, where)
        except (ValueError, TypeError, OSError, OverflowError) as error:
            raise LoadError(f"{where}: {first_line(error)}") from None

    def _external_array(self, tensor: Any, where: str) -> np.ndarray:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        path = self._resolve_file(entries.get("location", ""), where)
        begin = int(entries.get("offset", 0))
        kind = np.dtype(self._onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
        count = int(np.prod([int(extent) for extent in tensor.dims], dtype=object))
        packed = tensor.data_type not in _WHOLE_BYTES
        size = -(-count // 2) if packed else count * kind.itemsize
        data = self._map_file(path, where)
        if begin < 0 or begin + size > len(data):
            raise LoadError(
                f"{where} needs bytes {begin} to {begin + size} of {path.name!r}, which has {len(data)} bytes"
            )
        if packed:  # sub-byte types: the onnx package unpacks them
            inline = self._onnx.TensorProto(data_type=tensor.data_type, dims=tensor.dims)
            inline.raw_data = data[begin : begin + size]
            return self._onnx.numpy_helper.to_array(inline)
        return np.frombuffer(data, kind, count, begin).reshape(tuple(tensor.dims)) if count else np.zeros(0, kind)

    def _resolve_file(self, location: str, where: str) -> Path:
        if self._folder is None:
            raise LoadError(
                f"{where} is in another file ({location!r}), and a model in memory has no folder; name the folder: "
                "af.onnx_to_tensor(model, folder=...), or load the model from its file"
            )
        path = (self._folder / location).resolve()
        if not location or not path.is_relative_to(self._folder):
            raise LoadError(f"{where} points outside the model's folder, which is not allowed: {location!r}")
        depends_on(path)  # also where it is missing: a copy of it changes the answer
        if not path.exists():
            raise LoadError(f"{where} needs the file {path.name!r}, which does not exist")
        return regular_file(path, f"{where} needs the file {path.name!r}")

    def _map_file(self, path: Path, where: str) -> mmap.mmap:
        if path not in self._maps:
            with path.open("rb") as stream:
                if not path.stat().st_size:
                    raise LoadError(f"{where} needs the file {path.name!r}, which is empty")
                self._maps[path] = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        return self._maps[path]

    def release(self) -> None:
        """Release the memory of weights that were read; the file still has them."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for mapping in self._maps.values():
                mapping.madvise(mmap.MADV_DONTNEED)

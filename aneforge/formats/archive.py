"""The ``.anef`` file that ``Model.save`` writes and ``af.load_program`` reads: a compiled program in one file.

The file is an archive of aneforge's own: a saved graph (``af.load`` reads it as one) and, beside it, the program as
backend text with its labels, the weights that compiling made, the target, the route and what the program rests on. It
has a version and a checksum of every entry, and is written as a whole or not at all.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from aneforge.chips.names import target as find_target
from aneforge.compiler.lower import Port
from aneforge.compiler.passes import PASSES, PassLog
from aneforge.compiler.program import Program
from aneforge.documents import parse_json
from aneforge.engine.ir import Module
from aneforge.engine.text import parse
from aneforge.engine.verify import verify
from aneforge.errors import AneforgeError, LoadError, first_line
from aneforge.files import array_of, check_archive, entry_of, regular_file, write_archive
from aneforge.graph.encoding import Encoded
from aneforge.graph.graph import Graph, load_graph
from aneforge.graph.node import made_from
from aneforge.graph.weights import Weight

VERSION = 1
_MANIFEST, _TEXT = "program.json", "program.mlir"
_WEIGHTS, _ENCODED = "program/weights/", "program/encoded/"
_DAMAGED = (OSError, KeyError, TypeError, ValueError, AttributeError, EOFError, MemoryError, zipfile.BadZipFile,
            NotImplementedError, RuntimeError, IndexError)  # fmt: skip
Entry = tuple[str, Callable[[IO[bytes]], object]]


# Writing.


@dataclass(frozen=True)
class SavedProgram:
    """What an archive holds of a compiled model."""

    graph: Graph
    program: Program
    mode: str
    keys: tuple[str, ...] | None = None
    """The names of the outputs, where a call gives them by name."""


def save_program(model: SavedProgram, path: str | Path) -> None:
    """Write a compiled model to one file."""
    digests: dict[str, str] = {}

    def entries() -> Iterator[Entry]:
        for name, write in _entries(model):

            def write_hashed(stream: IO[bytes], name: str = name, write: Any = write) -> None:
                hashing = _Hashing(stream)
                write(hashing)
                digests[name] = hashing.digest.hexdigest()

            yield name, write_hashed
        yield _MANIFEST, lambda stream: stream.write(json.dumps(_manifest(model, digests), sort_keys=True).encode())

    write_archive(path, entries())


class _Hashing(io.RawIOBase):
    """A stream that counts what passes through it into a checksum."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.digest = hashlib.blake2b(digest_size=16)

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self.digest.update(data)
        return self._stream.write(data)


def _entries(model: SavedProgram) -> Iterator[Entry]:
    yield from model.graph.entries()
    program = model.program
    yield _TEXT, lambda stream: stream.write(program.mlir.encode("utf-8"))
    weights = dict(program.module.weights)
    weights |= {port.initial.key: port.initial for port in program.inputs if port.initial is not None}
    for key, weight in weights.items():
        if key in model.graph.weights:
            continue
        if weight.encoded is None:
            yield f"{_WEIGHTS}{key}.npy", partial(_write_array, weight.array)
            continue
        form = json.dumps(weight.encoded.to_json()).encode("utf-8")
        yield f"{_ENCODED}{key}/form.json", lambda stream, form=form: stream.write(form)
        for name, part in weight.encoded.parts.items():
            yield f"{_ENCODED}{key}/{name}.npy", partial(_write_array, part)


def _write_array(array: np.ndarray, stream: IO[bytes]) -> None:
    np.lib.format.write_array(stream, array, allow_pickle=False)


def _manifest(model: SavedProgram, digests: Mapping[str, str]) -> dict[str, Any]:
    program = model.program
    return {
        "aneforge_program": VERSION,
        "target": program.target.name,
        "route": program.route,
        "mode": model.mode,
        "keys": None if model.keys is None else list(model.keys),
        "inputs": [_port_record(port) for port in program.inputs],
        "outputs": [_port_record(port) for port in program.outputs],
        "passes": [[*entry[:-1], 0.0] for entry in program.log],
        "stats": program.stats,
        "evidence": [[name, key, fact.to_json()] for name, key, fact in program.assumptions],
        "entries": dict(digests),
    }


def _port_record(port: Port) -> dict[str, Any]:
    initial = None if port.initial is None else port.initial.key
    shapes = {"shape": list(port.user_shape), "ndchw": list(port.ndchw_shape)}
    return {"name": port.name, **shapes, "dtype": port.dtype, "initial": initial, "state": port.is_state}


# Reading.


def read_program(file: Path) -> SavedProgram:
    """The contents of a file that :func:`save_program` wrote."""
    try:
        with zipfile.ZipFile(regular_file(file, file.name)) as archive:
            check_archive(archive, file.name)
            manifest = _checked_manifest(archive, file.name)
            module = parse(entry_of(archive, _TEXT, file.name).decode("utf-8"))
            weights = _read_weights(archive, file.name)
    except AneforgeError:
        raise
    except _DAMAGED as error:
        raise LoadError(f"{file.name}: not a program that aneforge saved ({first_line(error)})") from None
    try:
        with made_from(file.name):
            graph = load_graph(file)
    except AneforgeError as error:
        raise LoadError(f"{file.name}: the graph in the file cannot be read: {error}") from None
    try:
        module.weights = {**graph.weights, **weights}
        for op in module.ops:
            if op.kind == "const_in" and op.attrs["weight"] not in module.weights:
                missing = op.attrs["weight"]
                raise LoadError(f"{file.name}: weight {missing} of the program is not in the file. Save it again.")
        verify(module)
        program = _program(manifest, module)
    except AneforgeError:
        raise
    except _DAMAGED as error:
        raise LoadError(f"{file.name}: the program in the file cannot be read ({first_line(error)})") from None
    keys = manifest["keys"]
    return SavedProgram(graph, program, manifest["mode"], None if keys is None else tuple(keys))


def _checked_manifest(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
    """The manifest, once every entry has the checksum that it states."""
    names = archive.namelist()
    if _MANIFEST not in names:
        hint = "It is a saved graph; use af.load." if "graph.json" in names else "Save it again with Model.save."
        raise LoadError(f"{name}: has no {_MANIFEST}, so it is not a saved program. {hint}")
    manifest = parse_json(entry_of(archive, _MANIFEST, name), name)
    version = manifest.get("aneforge_program") if isinstance(manifest, dict) else None
    if version != VERSION:
        raise LoadError(
            f"{name}: a saved program of version {version!r}; this aneforge reads {VERSION}. Compile the model again."
        )
    stated = manifest["entries"]
    if len(set(names)) != len(names) or {*stated, _MANIFEST} != set(names):
        odd = sorted({*stated, _MANIFEST} ^ set(names)) or ["a name twice"]
        raise LoadError(f"{name}: the entries are not those that were written ({odd[0]}). Save it again.")
    for entry, digest in stated.items():
        if hashlib.blake2b(entry_of(archive, entry, name), digest_size=16).hexdigest() != digest:
            raise LoadError(f"{name}: {entry} has other bytes than were written. Save it again.")
    return manifest


def _read_weights(archive: zipfile.ZipFile, where: str) -> dict[str, Weight]:
    """Weights under the keys of the file. They are not shared with other programs: a stranger's key proves nothing."""
    weights: dict[str, Weight] = {}
    forms: dict[str, Any] = {}
    parts: dict[str, dict[str, np.ndarray]] = {}
    for name in archive.namelist():
        if name.startswith(_WEIGHTS):
            array = array_of(entry_of(archive, name, where), f"{where}: {name}")
            if array.dtype != np.float16:
                raise LoadError(f"{name}: a weight of {array.dtype}; expected float16")
            weights[Path(name).stem] = Weight(Path(name).stem, array)
        elif name.startswith(_ENCODED):
            key, part = name.removeprefix(_ENCODED).split("/")
            if part == "form.json":
                forms[key] = parse_json(entry_of(archive, name, where), where)
            else:
                content = entry_of(archive, name, where)
                parts.setdefault(key, {})[Path(part).stem] = array_of(content, f"{where}: {name}")
    for key, form in forms.items():
        encoded = Encoded.from_parts(form, parts.get(key, {}))
        weights[key] = Weight(key, None, encoded.shape, partial(encoded.decode, np.float16), encoded)
    return weights


def _program(manifest: Mapping[str, Any], module: Module) -> Program:
    inputs = tuple(_port(record, module.weights) for record in manifest["inputs"])
    outputs = tuple(_port(record, module.weights) for record in manifest["outputs"])
    log = tuple(PassLog(*entry) for entry in manifest["passes"] if entry[0] in PASSES)
    return Program(find_target(manifest["target"]), module, inputs, outputs, log, route=str(manifest["route"]))


def _port(record: Mapping[str, Any], weights: Mapping[str, Weight]) -> Port:
    initial = None if record["initial"] is None else weights[record["initial"]]
    shape, ndchw, is_state = tuple(record["shape"]), tuple(record["ndchw"]), record.get("state") is True
    return Port(str(record["name"]), shape, ndchw, str(record["dtype"]), initial, is_state)

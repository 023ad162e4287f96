"""Checkpoints: the state of a training run in one file, written whole or not at all, and checked when it is read.

The file is an archive: ``checkpoint.json`` says its version, which model it belongs to and the checksum of every
array; ``values/N.npy`` and ``SLOT/N.npy`` are the arrays, bit for bit.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from aneforge.documents import parse_json
from aneforge.errors import AneforgeError, LoadError, first_line
from aneforge.files import array_of, check_archive, entry_of, regular_file, write_archive
from aneforge.graph.graph import Graph
from aneforge.train.optimisers import OptimiserState

VERSION = 1
_MANIFEST = "checkpoint.json"
_DAMAGED = (OSError, KeyError, TypeError, ValueError, AttributeError, EOFError, MemoryError, zipfile.BadZipFile,
            NotImplementedError, RuntimeError, IndexError)  # fmt: skip


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds: the state, where the run was, and what it belongs to."""

    state: OptimiserState
    model: str
    """The fingerprint of the graph."""
    optimiser: Mapping[str, Any]
    """Which optimiser, with its settings; where it runs."""
    target: str
    steps: int
    skipped: int
    lr: float
    loss_scale: float
    names: tuple[str, ...] = ()
    """The parameters, in order."""


def fingerprint(graph: Graph, params: tuple[Any, ...]) -> str:
    """A checksum of a graph: its ops, attributes, shapes and constants, and which parameters are trained; not the
    values that parameters start with, nor where the graph was written."""
    digest = hashlib.blake2b(digest_size=16)
    place = {node.uid: number for number, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        stored = node.weight.key if node.op == "const" and node.weight is not None else ""
        operands = [place[operand.uid] for operand in node.inputs]
        digest.update(repr((node.op, node.signature.attrs, node.shape, operands, stored)).encode())
    digest.update(repr([place[param.uid] for param in params]).encode())
    return digest.hexdigest()


def write_checkpoint(path: str | Path, checkpoint: Checkpoint) -> None:
    """One file, whole or not at all."""
    arrays = _arrays(checkpoint.state)
    contents = {name: _npy(array) for name, array in arrays.items()}
    manifest = {
        "aneforge_checkpoint": VERSION,
        "model": checkpoint.model,
        "optimiser": dict(checkpoint.optimiser),
        "target": checkpoint.target,
        "steps": checkpoint.steps,
        "skipped": checkpoint.skipped,
        "updates": checkpoint.state.updates,
        "lr": checkpoint.lr.hex(),
        "loss_scale": checkpoint.loss_scale.hex(),
        "parameters": list(checkpoint.names),
        "slots": list(checkpoint.state.slots),
        "entries": {name: _digest(content) for name, content in contents.items()},
    }
    contents[_MANIFEST] = json.dumps(manifest, sort_keys=True, indent=1).encode()
    write_archive(path, ((name, partial(_write, content)) for name, content in contents.items()))


def read_checkpoint(path: str | Path) -> Checkpoint:
    """What :func:`write_checkpoint` wrote; a damaged file, or another kind of file, is refused."""
    file = Path(path)
    try:
        with zipfile.ZipFile(regular_file(file, file.name)) as archive:
            check_archive(archive, file.name)
            manifest = _manifest(archive, file.name)
            arrays = {name: _read(archive, name, file.name, digest) for name, digest in manifest["entries"].items()}
        count = len(manifest["parameters"])
        groups = {
            slot: tuple(arrays[f"{slot}/{number}.npy"] for number in range(count))
            for slot in ("values", *manifest["slots"])
        }
        values = groups.pop("values")
        return Checkpoint(
            OptimiserState(values, groups, int(manifest["updates"])),
            str(manifest["model"]),
            dict(manifest["optimiser"]),
            str(manifest["target"]),
            int(manifest["steps"]),
            int(manifest["skipped"]),
            float.fromhex(manifest["lr"]),
            float.fromhex(manifest["loss_scale"]),
            tuple(manifest["parameters"]),
        )
    except AneforgeError:
        raise
    except _DAMAGED as error:
        raise LoadError(f"{file.name}: not a checkpoint that aneforge saved ({first_line(error)})") from None


def _arrays(state: OptimiserState) -> dict[str, np.ndarray]:
    groups = {"values": state.values, **state.slots}
    return {f"{group}/{number}.npy": array for group, arrays in groups.items() for number, array in enumerate(arrays)}


def _npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.ascontiguousarray(array), allow_pickle=False)
    return stream.getvalue()


def _write(content: bytes, stream: IO[bytes]) -> None:
    stream.write(content)


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _manifest(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
    if _MANIFEST not in archive.namelist():
        raise LoadError(f"{name}: has no {_MANIFEST}, so it is not a checkpoint. Give a file that Trainer.save wrote.")
    manifest = parse_json(entry_of(archive, _MANIFEST, name), name)
    version = manifest.get("aneforge_checkpoint") if isinstance(manifest, dict) else None
    if version != VERSION:
        raise LoadError(f"{name}: a checkpoint of version {version!r}; this aneforge reads {VERSION}. Train it again.")
    if {*manifest["entries"], _MANIFEST} != set(archive.namelist()):
        raise LoadError(f"{name}: the entries are not those that were written. Use an older checkpoint.")
    return manifest


def _read(archive: zipfile.ZipFile, entry: str, name: str, digest: str) -> np.ndarray:
    content = entry_of(archive, entry, name)
    if _digest(content) != digest:
        raise LoadError(f"{name}: {entry} has other bytes than were written. Use an older checkpoint.")
    return array_of(content, f"{name}: {entry}").copy()

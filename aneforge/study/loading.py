"""``af.load_onnx`` and ``af.load_program``: a file as a model that runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aneforge.chips.chip import Target
from aneforge.errors import AneforgeError, ArgumentError, LoadError
from aneforge.files import regular_file
from aneforge.formats import onnx_graph
from aneforge.graph.graph import Graph
from aneforge.graph.ops.leaf import image_input
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.sim.engine import MODES
from aneforge.study.model import Model, MultiModel
from aneforge.study.model import compile as compile_model

PROGRAM_FILES = (".anef", ".hwx", ".anec")
"""Endings of files that hold a compiled program."""
_CONTAINER = b"\xce\xfa\xef\xbe"
_DRIVER_FILE = ".anec"
_ARCHIVE = b"PK"


def load_onnx(
    path: Any,
    dims: Mapping[str, int] | None = None,
    fixed: Mapping[str, Any] | None = None,
    target: str | int | Target | None = None,
    **options: Any,
) -> Model:
    """An ONNX file, whatever its name ends in, compiled for one chip and ready to be called.

    ``dims`` gives values to the symbolic dimensions of its inputs, ``fixed`` to whole inputs that are the same for
    every run; ``target`` and ``options`` are those of :func:`aneforge.compile`. ``af.load`` gives the graph instead,
    and ``af.partition(af.load(path))`` runs a model that the engine does not take whole.
    """
    return compile_model(onnx_graph(path, dims, fixed), target=target, **options)


def load_program(path: str | Path, mode: str | None = None) -> Model:
    """The compiled model of a file: of an archive that :meth:`Model.save` wrote (``.anef``), or of a container
    (``.hwx``), ours or the vendor's for h13, or of a file of the Linux driver (``.anec``).

    A model from an archive runs, estimates and explains as it did. One from a container runs: its ops come from the
    registers and constants. ``mode`` is as for :func:`aneforge.compile`; None is that of the file.
    """
    if mode is not None and mode not in MODES:
        raise ArgumentError("mode", f"{mode!r} is not a mode; choose one: {', '.join(MODES)}.")
    file = Path(path)
    if not file.is_file():
        problem = "this is not a file" if file.exists() else "no such file"
        raise LoadError(f"{str(path)!r}: {problem}; check the path")
    with regular_file(file, file.name).open("rb") as stream:
        magic = stream.read(4)
    if magic == _CONTAINER or file.suffix.casefold() == _DRIVER_FILE:
        return _container(file, mode or "exact")
    if magic[:2] != _ARCHIVE:
        raise LoadError(
            f"{file.name}: neither an archive (.anef) nor a container (.hwx); its first bytes are {magic!r}"
        )
    from aneforge.formats.archive import read_program

    saved = read_program(file)
    how = mode or saved.mode
    if saved.keys is not None:
        return MultiModel(saved.graph, saved.program, saved.keys, how)
    return Model.of(saved.graph, saved.program, how)


class ContainerModel(Model):
    """A model that was read from a container: it runs, and has no graph of the user's to explain."""

    def estimate(self, scope: str = "") -> Any:
        raise AneforgeError(f"{self._names}: {_NO_PHASES.format('estimated')}")

    def explain(self, node: str | None = None) -> Any:
        raise AneforgeError(f"{self._names}: {_NO_PHASES.format('explained')}")

    def save(self, path: str | Path) -> None:
        raise AneforgeError(f"{self._names}: a program from a container cannot be saved again. Copy the file.")

    @property
    def _names(self) -> str:
        return ", ".join(port.name for port in self.program.outputs[:4])


_NO_PHASES = "a program from a container cannot be {}, since it has no layers of a schedule. Save the model as .anef."


def _container(file: Path, mode: str) -> ContainerModel:
    from aneforge.codegen.anec import read_compiled
    from aneforge.codegen.decoding import decode

    try:
        program = decode(read_compiled(file))
    except AneforgeError as error:
        raise LoadError(f"{file.name}: {error}") from None
    ports = [port for port in program.inputs if port.initial is None]
    make = [image_input if port.dtype in ("uint8", "ui8") else graph_input for port in ports]
    inputs = [make_input(port.user_shape, name=port.name) for make_input, port in zip(make, ports, strict=True)]
    return ContainerModel(Graph(inputs), program, mode)

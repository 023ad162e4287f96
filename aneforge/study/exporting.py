"""``af.export_coreml``: a model as a Core ML package. What the target lacks is rewritten first, as ``check`` says."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from aneforge.chips.chip import Target
from aneforge.chips.families import Family
from aneforge.compiler.compile import resolve_target, write_build
from aneforge.compiler.draft import Draft
from aneforge.compiler.legal.passes import as_graph_for, rewritten_for
from aneforge.compiler.record import Record
from aneforge.errors import AneforgeError, install_hint
from aneforge.files import write_whole
from aneforge.formats.arguments import Source, chip_of, graph_of
from aneforge.formats.exports.coreml import Exported, write_package
from aneforge.formats.exports.mil import RULES, ExportError, refuse_host_ops
from aneforge.study.model import Model
from aneforge.study.study import Study


def export_coreml(
    model: Source,
    path: str | Path,
    target: str | int | Target | None = None,
    overwrite: bool = False,
    *,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
) -> Exported:
    """Write a model as ``x.mlpackage`` (fp16, iOS 18).

    ``target`` is the chip for which ops are rewritten as its ``check`` says (that of a compiled model by itself);
    without one, only what no chip has. States become states of the package.
    """
    file = Path(path)
    if file.suffix != ".mlpackage":
        raise ExportError(f"{file.name}: the name of a package ends in .mlpackage. Change the name.")
    if file.exists() and not overwrite:
        raise ExportError(f"{file}: the package exists. Use overwrite=True (--overwrite) to replace it.")
    if not file.resolve().parent.is_dir():
        raise ExportError(f"{file}: the folder {file.parent} does not exist. Create it first.")
    graph = graph_of(model, dims, function)
    refuse_host_ops(graph)
    if target is None and not isinstance(model, Model):
        return write_package(file, rewritten_for(graph, resolve_target(Family.A16), frozenset(RULES)), graph.states)
    draft, left, refused = _for_chip(Study(graph, chip_of(target, model)))
    return write_package(file, draft, graph.states, left, refused)


def write_build_of(model: Model, folder: str | Path) -> None:
    """The files of a build. Where the graph can be said in MIL and coremltools is installed, ``model.mil`` and
    ``weights.bin`` are among them, which ``af.load`` reads; else ``model.mil.txt`` says why they are not."""
    from aneforge.formats.exports.text import WEIGHTS, mil_of_package

    write_build(model.program, folder)
    home = Path(folder)
    (home / "model.mil.txt").unlink(missing_ok=True)  # of an earlier build
    try:
        if find_spec("coremltools") is None:
            raise ExportError(f"coremltools is not installed; say {install_hint('coreml-export')}")
        with tempfile.TemporaryDirectory() as scratch:
            package = Path(scratch) / "model.mlpackage"
            export_coreml(model, package)
            text, weights = mil_of_package(package)
    except AneforgeError as error:
        write_whole(home / "model.mil.txt", f"model.mil was not written: {error}\n")
        return
    write_whole(home / WEIGHTS, weights)
    write_whole(home / "model.mil", text)


def _for_chip(study: Study) -> tuple[Draft, tuple[Record, ...], tuple[str, ...]]:
    """The graph as the compiler rewrites it for a chip; the rewrites that a graph cannot say; the refused nodes."""
    (chip,) = study.targets
    surveyed = study.shelf.surveys([chip], None)[chip.name]
    records = [record for records in surveyed.records.values() for record in records]
    draft = as_graph_for(study.graph, chip, records)
    made = {(record.node, record.rewrite) for record in draft.records}
    left = tuple(record for record in records if (record.node, record.rewrite) not in made)
    return draft, left, tuple(surveyed.refused_by(chip))

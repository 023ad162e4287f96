"""``aneforge export``: a model as a Core ML package or as a netplist."""

from __future__ import annotations

from pathlib import Path

from aneforge import text
from aneforge.chips.names import DEFAULT, one_chip
from aneforge.cli.notes import working
from aneforge.cli.options import ModelFile
from aneforge.errors import ArgumentError
from aneforge.formats.arguments import Source, graph_of
from aneforge.formats.exports.coreml import Exported
from aneforge.formats.exports.netplist import SavedNetplist, save_netplist
from aneforge.study.exporting import export_coreml
from aneforge.study.plan import partition


def run(
    model: str | ModelFile,
    out: str,
    target: str | None,
    region: int | None,
    overwrite: bool,
    as_json: bool,
    binary: bool = False,
) -> None:
    file = ModelFile.of(model)
    chip = None if target is None else one_chip(target)
    source: Source = file.path
    options = file.options
    is_netplist = Path(out).suffix == ".plist"
    if not is_netplist and Path(out).suffix != ".mlpackage":
        raise ArgumentError("out", f"{out}: end the name in .mlpackage (Core ML) or .plist (a netplist).")
    if binary and not is_netplist:
        raise ArgumentError("binary", "it is for netplists. Leave it out, or name a file that ends in .plist.")
    written: Exported | SavedNetplist
    with working(f"exporting {file.name} to {out}"):
        if region is not None:
            graph = graph_of(source, **options)
            source, options = partition(graph, chip or one_chip(DEFAULT)).only.graph_of(region), {}
        if is_netplist:
            written = save_netplist(source, out, binary, chip, overwrite, **options)
        else:
            written = export_coreml(source, out, chip, overwrite, **options)
    print(text.as_json(written.to_json()) if as_json else written)

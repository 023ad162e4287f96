"""``aneforge export``: a model as a Core ML package."""

from __future__ import annotations

from aneforge.arguments import graph_of
from aneforge.cli.model_file import ModelFile
from aneforge.defaults import DEFAULT_CHIPS
from aneforge.exports import export_coreml
from aneforge.output import text
from aneforge.regions import partition
from aneforge.targets.listed import one_chip


def run(
    model: str | ModelFile, out: str, target: str | None, region: int | None, overwrite: bool, as_json: bool
) -> None:
    file = ModelFile.of(model)
    chip = None if target is None else one_chip(target)
    graph = graph_of(file.path, **file.options)
    if region is not None:
        graph = partition(graph, chip or DEFAULT_CHIPS["partition"]).only.graph_of(region)
    exported = export_coreml(graph, out, chip, overwrite)
    print(text.as_json(exported.to_json()) if as_json else exported)

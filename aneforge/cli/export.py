"""``aneforge export``: a model as a Core ML package."""

from __future__ import annotations

from aneforge.cli.model_file import ModelFile, load_model
from aneforge.exports import export_coreml
from aneforge.output import text
from aneforge.regions import partition
from aneforge.targets.listed import one_chip


def run(
    model: str | ModelFile, path: str, target: str | None, region: int | None, overwrite: bool, as_json: bool
) -> None:
    chip = None if target is None else one_chip(target)
    graph = load_model(model)
    if region is not None:
        graph = partition(graph, chip or "m1").graph_of(region)
    told = export_coreml(graph, path, chip, overwrite)
    print(text.as_json(told.to_json()) if as_json else told)

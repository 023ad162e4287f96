"""``aneforge export``: a model as a Core ML package."""

from __future__ import annotations

from aneforge.cli.model_file import ModelFile, load_model
from aneforge.exports import export_coreml
from aneforge.output import text
from aneforge.regions import partition


def run(
    model: str | ModelFile, path: str, target: str | None, region: int | None, overwrite: bool, as_json: bool
) -> None:
    graph = load_model(model)
    if region is not None:
        graph = partition(graph, target or "m1").graph_of(region)
    told = export_coreml(graph, path, target, overwrite)
    print(text.as_json(told.to_json()) if as_json else told)

"""``aneforge export``: a model as a Core ML package."""

from __future__ import annotations

from aneforge.cli.model_file import ModelFile, load_model
from aneforge.exports import export_coreml
from aneforge.report import text


def run(model: str | ModelFile, path: str, target: str | None, overwrite: bool, as_json: bool) -> None:
    told = export_coreml(load_model(model), path, target, overwrite)
    print(text.as_json(told.to_json()) if as_json else told)

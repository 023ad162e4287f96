"""``aneforge partition``: which part of a model runs where."""

from __future__ import annotations

from aneforge.cli.model_file import ModelFile
from aneforge.cli.progress import working
from aneforge.output import text
from aneforge.study.plan import partition


def run(model: str | ModelFile, chips: str, by: str, as_json: bool, everything: bool = False) -> None:
    file = ModelFile.of(model)
    with working(f"splitting {file.name} for {chips}"):
        split = partition(file.path, chips, by, **file.options)
        answer = text.as_json(split.to_json()) if as_json else split.text(everything)
    print(answer)

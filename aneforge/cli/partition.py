"""``aneforge partition``: which part of a model runs where."""

from __future__ import annotations

from aneforge import text
from aneforge.cli.notes import working
from aneforge.cli.options import ModelFile
from aneforge.study.plan import partition


def run(model: str | ModelFile, chips: str, by: str | None, as_json: bool, everything: bool = False) -> None:
    file = ModelFile.of(model)
    with working(f"splitting {file.name} for {chips}"):
        split = partition(file.path, chips, by, **file.options)
        answer = text.as_json(split.to_json()) if as_json else split.text(everything)
    print(answer)

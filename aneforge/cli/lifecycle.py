"""``aneforge lifecycle``: what a model takes to load, to wake and to keep, on each chip."""

from __future__ import annotations

from aneforge import text
from aneforge.cli.notes import working
from aneforge.cli.options import ModelFile
from aneforge.study.lifecycle import Lifecycle
from aneforge.study.study import Study


def run(model: str | ModelFile, chips: str, as_json: bool) -> None:
    file = ModelFile.of(model)
    with working(f"working out the life of {file.name} on {chips}"):
        life = Lifecycle(Study(file.path, chips, **file.options), file.path)
        answer = text.as_json(life.to_json()) if as_json else str(life)
    print(answer)

"""``aneforge partition``: which part of a model runs where."""

from __future__ import annotations

from functools import partial

from aneforge.cli.notes import working
from aneforge.cli.options import ModelFile
from aneforge.cli.shapes import at_each_shape
from aneforge.study.plan import partition


def run(model: str | ModelFile, chips: str, by: str | None, as_json: bool, everything: bool = False) -> None:
    file = ModelFile.of(model)
    with working(f"splitting {file.name} for {chips}"):
        ask = partial(partition, by=by)
        answer = at_each_shape(file, chips, ask, lambda split: split.text(everything), as_json)
    print(answer)

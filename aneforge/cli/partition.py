"""``aneforge partition``: which part of a model runs where."""

from __future__ import annotations

from aneforge.cli.model_file import ModelFile, load_model
from aneforge.output import text
from aneforge.regions import partition
from aneforge.targets.listed import chip_list


def run(model: str | ModelFile, chips: str, by: str, as_json: bool) -> None:
    asked = chip_list(chips)
    graph = load_model(model)
    found = {chip: partition(graph, chip, by) for chip in asked}
    if as_json:
        print(text.as_json({chip: each.to_json() for chip, each in found.items()}))
    else:
        print("\n\n".join(str(each) for each in found.values()))

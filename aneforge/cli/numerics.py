"""``aneforge diverges`` and ``aneforge risks``: what chips disagree about, and what one of them can lose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aneforge.cli.arrays import read_arrays
from aneforge.cli.model_file import ModelFile, load_model
from aneforge.errors import AneforgeError
from aneforge.graph.graph import Graph
from aneforge.numerics.cures import rewritten
from aneforge.numerics.pairwise import diverges
from aneforge.numerics.ranges import Ranges, calibrate
from aneforge.numerics.risk import risks
from aneforge.output import text
from aneforge.targets.listed import chip_list


def _ranges(graph: Graph, chips: list[str], max_abs: float | None, data: str | None) -> Ranges:
    """One bound for all inputs, or what a run on data shows of every node."""
    if max_abs is not None and data is not None:
        raise AneforgeError("give --max-abs or --input, not both: the data say what the ranges are")
    if data is None:
        return max_abs
    return calibrate(graph, chips, [read_arrays(data)])


def run_diverges(model: str | ModelFile, chips: str, max_abs: float | None, data: str | None, as_json: bool) -> None:
    graph, asked = load_model(model), chip_list(chips)
    if len(asked) < 2:
        raise AneforgeError("--target needs two chips or more, for instance --target m1,m5")
    found = [diverges(graph, asked[0], each, _ranges(graph, [asked[0], each], max_abs, data)) for each in asked[1:]]
    if as_json:
        print(text.as_json([each.to_json() for each in found]))
        return
    print("\n\n".join(map(str, found)))
    _say_what_they_rest_on(max_abs, data)


def run_risks(
    model: str | ModelFile, chips: str, max_abs: float | None, data: str | None, save: str | None, as_json: bool
) -> bool:
    """Whether nothing can be lost on any of the chips."""
    asked = chip_list(chips)
    if save is not None and len(asked) > 1:
        raise AneforgeError("--out takes one target, for instance --target m1: rewrites are those of a chip")
    graph = load_model(model)
    if len(asked) == 1:
        return _risks_of_one(graph, asked[0], max_abs, data, save, as_json)
    found = {chip: risks(graph, chip, _ranges(graph, [chip], max_abs, data)) for chip in asked}
    if as_json:
        print(text.as_json({"targets": {chip: each.to_json() for chip, each in found.items()}}))
    else:
        print("\n\n".join(map(str, found.values())))
        _say_what_they_rest_on(max_abs, data)
    return not any(found.values())


def _risks_of_one(
    graph: Graph, chip: str, max_abs: float | None, data: str | None, save: str | None, as_json: bool
) -> bool:
    found = risks(graph, chip, _ranges(graph, [chip], max_abs, data))
    made: dict[str, Any] = {}
    if save is not None:
        if Path(save).suffix != ".aneforge":
            raise AneforgeError(f"{save}: the rewritten graph is saved as NAME.aneforge")
        other = rewritten(graph, found, chip)
        other.save(save)
        left = risks(other, chip, _ranges(other, [chip], max_abs, data))
        made = {"saved": save, "left": len(left)}
    if as_json:
        print(text.as_json({**found.to_json(), **made}))
        return not found
    print(found)
    _say_what_they_rest_on(max_abs, data)
    if save is not None:
        print(f"wrote {save}, rewritten where that is safe: {made['left']} left")
    return not found


def _say_what_they_rest_on(max_abs: float | None, data: str | None) -> None:
    if data is not None:
        print("\nranges are those of a run on the data and half as much again: this holds for data like these")
    elif max_abs is None:
        print("\nranges are what the inputs promise (max_abs), else all of fp16; --max-abs or --input narrows them")

"""Where chips give different numbers: one chip of each family against the first of them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from aneforge.graph.graph import Graph
from aneforge.numerics.pairwise import Divergence, divergences_between
from aneforge.numerics.ranges import ranges_of
from aneforge.regions.partition import Partition
from aneforge.report.rows import DivergenceRow
from aneforge.targets.chip import Target
from aneforge.targets.names import chip_label, with_label

__all__ = ["divergence_rows", "one_of_each_family"]

_MOST_OTHERS = 2
_MOST_OPS = 2500  # a pair of programs of this size takes seconds


def one_of_each_family(splits: Mapping[str, Partition]) -> dict[str, Target]:
    """The first chip of each family that runs any of the model: chips of one family have the same arithmetic."""
    chosen: dict[object, tuple[str, Target]] = {}
    for name, split in splits.items():
        if split.runs:
            chosen.setdefault(split.target.family5, (name, split.target))
    return dict(chosen.values())


def divergence_rows(
    graph: Graph, splits: Mapping[str, Partition], max_abs: float | None
) -> tuple[tuple[DivergenceRow, ...], str]:
    """The nodes that can differ, by reason, and a sentence on which chips were compared."""
    chips = list(one_of_each_family(splits).items())
    ops = max((split.ops for split in splits.values()), default=0)
    if len(chips) < 2:
        return (), "The chips of this report are of one family, which has one arithmetic."
    if ops > _MOST_OPS:
        return (), f"Left out for a model of {ops:,} operations. Run: aneforge diverges MODEL --target m1,m5"
    (reference, first), *others = chips
    others = _spread(others)
    names_of = splits[reference].names
    numbers = {names_of[node.uid]: place for place, node in enumerate(splits[reference].cut.operations.counted)}
    rows = []
    for name, chip in others:
        alike: dict[tuple[tuple[str, ...], bool], list[Divergence]] = {}
        ranges = ranges_of(graph, [first, chip], max_abs, None, None)
        for entry in divergences_between(graph, first, chip, ranges):
            alike.setdefault((entry.causes, entry.excluded), []).append(entry)
        rows += [_row(reference, name, (first, chip), entries, numbers) for entries in alike.values()]
    names = ", ".join(chip_label(name) for name, _ in others)
    inputs = f"inputs up to {max_abs:g}" if max_abs is not None else "any finite input; --max-abs narrows it"
    return tuple(rows), f"{chip_label(reference)} against {names}, one chip of each family, for {inputs}."


def _spread(others: list[tuple[str, Target]]) -> list[tuple[str, Target]]:
    """Some of the families, the newest one among them."""
    return others if len(others) <= _MOST_OTHERS else [*others[: _MOST_OTHERS - 1], others[-1]]


def _row(
    reference: str, name: str, chips: tuple[Target, Target], entries: list[Divergence], numbers: Mapping[str, int]
) -> DivergenceRow:
    worst = max(entries, key=lambda entry: entry.bound)
    causes = worst.causes
    for target, label in zip(chips, (chip_label(reference), chip_label(name)), strict=True):
        causes = tuple(with_label(cause, target, label) for cause in causes)
    return DivergenceRow(
        reference,
        name,
        tuple(numbers[entry.node] for entry in entries if entry.node in numbers),
        worst.node,
        None if math.isinf(worst.bound) else float(f"{worst.bound:.3g}"),
        causes,
        worst.excluded,
    )

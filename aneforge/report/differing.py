"""Where chips give different numbers: one chip of each arithmetic against the first of them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from aneforge.numerics.alike import one_of_each_arithmetic
from aneforge.report.programs import size_of
from aneforge.report.rows import DivergenceRow
from aneforge.study.pairwise import Comparisons, Divergence
from aneforge.study.partition import Partition
from aneforge.study.ranges import ranges_of
from aneforge.study.study import Study
from aneforge.targets.chip import Target
from aneforge.targets.names import chip_label, with_label

_MOST_WORK = 2500  # operations or layers of one pair of programs, times pairs: each takes a millisecond or two


def arithmetics(splits: Mapping[str, Partition]) -> dict[str, Target]:
    """One chip of each arithmetic that is published and that some product has, of those that run any of the model."""
    known = {
        name: split.target
        for name, split in splits.items()
        if split.runs and split.target.chips and split.target.meets_floor
    }
    return one_of_each_arithmetic(known or {name: split.target for name, split in splits.items() if split.runs})


def divergence_rows(study: Study, max_abs: float | None) -> tuple[tuple[DivergenceRow, ...], str]:
    """The nodes that can differ, by reason, and a sentence on which chips were compared."""
    graph, splits = study.graph, study.partitions()
    chips = list(arithmetics(splits).items())
    size = size_of({name: splits[name] for name, _ in chips})
    unknown = [chip_label(name) for name, split in splits.items() if split.runs and not split.target.meets_floor]
    unlooked = f" Left out, since their arithmetic is not published: {', '.join(unknown)}." if unknown else ""
    if len(chips) < 2:
        alone = f"Nothing to compare {chip_label(chips[0][0])} with." if chips and unknown else ""
        return (), f"{alone or 'The chips of this report have the same arithmetic.'}{unlooked}"
    if size > _MOST_WORK:
        return (
            (),
            f"Left out for a model of {size:,} operations and layers. Run: aneforge diverges MODEL --target m1,m5",
        )
    (reference, first), *others = chips
    others = _some(others, max(1, _MOST_WORK // max(1, size)))
    names_of = splits[reference].names
    numbers = {names_of[node.uid]: place for place, node in enumerate(splits[reference].cut.operations.counted)}
    alike: dict[tuple[tuple[str, ...], bool], list[tuple[str, Divergence]]] = {}
    comparisons = Comparisons(study)
    for name, chip in others:
        ranges = ranges_of(graph, [first, chip], max_abs, None, None)
        for entry in comparisons.between(first, chip, ranges):
            causes = tuple(
                with_label(with_label(cause, first, chip_label(reference)), chip, chip_label(name))
                for cause in entry.causes
            )
            alike.setdefault((causes, entry.excluded), []).append((name, entry))
    rows = [_row(reference, entries, causes, numbers) for (causes, _), entries in alike.items()]
    names = ", ".join(chip_label(name) for name, _ in others)
    left_out = [chip_label(name) for name, _ in chips[1:] if name not in dict(others)]
    note = f"{chip_label(reference)} against {names}: one chip of each arithmetic that products have"
    if left_out:
        note += f", without {', '.join(left_out)}, since the model is large"
    return tuple(rows), f"{note}.{unlooked}"


def _some(others: list[tuple[str, Target]], count: int) -> list[tuple[str, Target]]:
    """So many of them, the newest arithmetic among them."""
    return others if len(others) <= count else [*others[: count - 1], others[-1]]


def _row(
    reference: str, entries: list[tuple[str, Divergence]], causes: tuple[str, ...], numbers: Mapping[str, int]
) -> DivergenceRow:
    _, worst = max(entries, key=lambda named: named[1].bound)
    return DivergenceRow(
        reference,
        tuple(dict.fromkeys(name for name, _ in entries)),
        tuple(dict.fromkeys(numbers[entry.node] for _, entry in entries if entry.node in numbers)),
        numbers.get(worst.node),
        None if not math.isfinite(worst.bound) else float(f"{worst.bound:.3g}"),
        causes,
        worst.excluded,
    )

"""How much rests on each unknown, which experiments bear on it, and where they were run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from aneforge.chips import store
from aneforge.reports.kit.experiments import Experiment, experiments
from aneforge.reports.kit.predict import KitSetting, predictions

_CITED = re.compile(r"\bU\d{2,3}\b")
CHIPS = ("M1", "M2", "M3", "M4", "M5", "M6")
"""One chip of each generation that Macs have."""


@cache
def resting() -> dict[str, int]:
    """How many answers rest on each unknown: the rows of data and the formulas and rules of the package that name it.

    A row counts once, and so does a line of a module. What the list of unknowns says about itself does not count.
    """
    counted: Counter[str] = Counter()
    for topic in store.topics():
        document = store.load(topic)
        for row in _texts({key: part for key, part in document.items() if (topic, key) != ("choices", "choices")}):
            counted.update(set(_CITED.findall(row)))
    own = Path(__file__).parent
    for module in sorted(store.DATA.parents[1].rglob("*.py")):
        if own in module.parents:
            continue  # that an experiment asks about it lets nothing rest on it
        for line in module.read_text(encoding="utf-8").splitlines():
            counted.update(set(_CITED.findall(line)))
    known = store.load("choices")["choices"]
    return {number: counted[number] for number in sorted(known, key=lambda number: (-counted[number], number))}


def _texts(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, (dict, list)):
        for inner in part.values() if isinstance(part, dict) else part:
            yield from _texts(inner)


def bearing_on(number: str) -> list[Experiment]:
    """The experiments that bear on an unknown."""
    return [entry for entry in experiments().values() if number in entry.about]


def weight(experiment: Experiment) -> int:
    """How many answers rest on what an experiment bears on."""
    return sum(resting().get(number, 0) for number in experiment.about)


def seen(number: str) -> list[dict[str, Any]]:
    """Where an unknown was looked at with the kit: chip, system, experiment and reading, with the source."""
    return store.load("choices")["choices"].get(number, {}).get("seen", [])


def is_telling(experiment: Experiment, chip: str) -> bool:
    """Whether the hypotheses of an experiment predict different things on a chip, so that running it decides."""
    said = [row for row in predictions(experiment, KitSetting(chip)) if row.cases is not None]
    return len(said) > 0 and (len(experiment.hypotheses) == 1 or len({row.key for row in said}) > 1)


def most_worth_running(chip: str) -> list[Experiment]:
    """The experiments that decide something on a chip and were not run there, by how many answers rest on them."""
    done = {entry["experiment"] for rows in map(seen, resting()) for entry in rows if entry["chip"] == chip}
    open_ones = [entry for entry in experiments().values() if entry.id not in done and is_telling(entry, chip)]
    return sorted(open_ones, key=lambda entry: (-weight(entry), entry.id))

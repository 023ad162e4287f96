"""Two reports beside each other: two models, two sets of chips or two versions, with their rows aligned."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from aneforge import text
from aneforge.errors import AneforgeError
from aneforge.files import write_whole
from aneforge.reports.document import Report, format_of
from aneforge.reports.rows import STATUSES, ChipRow, FindingRow, ReportRow
from aneforge.text import counted

# Which operation of one list is which of another: by name, then by structure. Nothing is guessed.


class Aligned(NamedTuple):
    """Pairs of places, in the order of the first list, and the places that have no partner."""

    pairs: tuple[tuple[int, int], ...]
    only_first: tuple[int, ...]
    only_second: tuple[int, ...]


Described = tuple[str, Hashable]
"""The name of an operation, and what it is otherwise: its kind, or its kind and shape."""


def align(first: Sequence[Described], second: Sequence[Described]) -> Aligned:
    """Equal names are partners. Of the others, those of one structure are partners in their order where both lists
    have as many of them; with another count nobody can say which one is new, so all of them stay alone."""
    places = {name: place for place, (name, _) in enumerate(second)}
    partner = {place: places[name] for place, (name, _) in enumerate(first) if name in places}
    taken = set(partner.values())
    left = _by_structure(first, partner)
    right = _by_structure(second, taken)
    for structure, ours in left.items():
        theirs = right.get(structure, [])
        if len(theirs) == len(ours):
            partner |= dict(zip(ours, theirs, strict=True))
            taken.update(theirs)
    return Aligned(
        tuple(sorted(partner.items())),
        tuple(place for place in range(len(first)) if place not in partner),
        tuple(place for place in range(len(second)) if place not in taken),
    )


def _by_structure(listed: Sequence[Described], without: dict[int, int] | set[int]) -> dict[Hashable, list[int]]:
    places: dict[Hashable, list[int]] = {}
    for place, (_, structure) in enumerate(listed):
        if place not in without:
            places.setdefault(structure, []).append(place)
    return places


FORMATS = ("html", "md", "json")
_SAME = 0.005  # a smaller part of a time is rounding


@dataclass(frozen=True)
class ChipChange(ReportRow):
    """One chip before and after; two chips where other ones were asked for."""

    before: str
    after: str
    verdicts: tuple[str, str]
    engine_ops: tuple[int, int]
    us: tuple[float | None, float | None]
    peak_l2: tuple[int, int]
    weight_bytes: tuple[int, int]
    memory_bytes: tuple[int, int]

    @property
    def ratio(self) -> float | None:
        """The time after over the time before."""
        before, after = self.us
        return after / before if before and after is not None else None

    @property
    def changed(self) -> bool:
        ratio = self.ratio
        moved = ratio is not None and abs(ratio - 1) > _SAME
        return moved or len(set(self.verdicts)) + len(set(self.engine_ops)) + len(set(self.peak_l2)) > 3


@dataclass(frozen=True)
class OpChange(ReportRow):
    """An operation that is new or gone, or whose status differs on some chip."""

    kind: str
    """new, gone or changed."""
    name: str
    op: str
    before: dict[str, str]
    """The status by chip where it differs, or all of them where the operation is new or gone."""
    after: dict[str, str]


@dataclass(frozen=True)
class LayerChange(ReportRow):
    """The layers of one origin: their time on a pair of chips."""

    ops: tuple[str, ...]
    chip: str
    us: tuple[float | None, float | None]
    layers: tuple[str, str]
    """What they are, before and after."""


@dataclass(frozen=True)
class FindingChange(ReportRow):
    """A reason that is new, gone, or concerns other operations or chips."""

    kind: str
    rule: str
    grade: str
    message: str
    nodes: tuple[str, ...]
    """Operations that it concerns now; of one that is gone, that it concerned."""
    chips: tuple[str, ...]
    nodes_gone: tuple[str, ...] = ()
    chips_gone: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReportComparison:
    """``before`` and ``after``, and everything in which they differ."""

    before: Report
    after: Report
    chip_pairs: tuple[tuple[int, int], ...]
    """Places of chips in the one and the other report."""

    @cached_property
    def aligned(self) -> Aligned:
        """Operations by name, then by kind and shape."""
        described = ([(op.name, (op.op, op.shape)) for op in side.ops] for side in (self.before, self.after))
        return align(*described)

    @cached_property
    def chips(self) -> tuple[ChipChange, ...]:
        return tuple(_chip_change(self.before.chips[one], self.after.chips[other]) for one, other in self.chip_pairs)

    @cached_property
    def ops(self) -> tuple[OpChange, ...]:
        changed = []
        for one, other in self.aligned.pairs:
            old, new = self.before.ops[one], self.after.ops[other]
            letters = {self._label(pair): (old.statuses[pair[0]], new.statuses[pair[1]]) for pair in self.chip_pairs}
            was, now = (
                {name: STATUSES[both[which]] for name, both in letters.items() if both[0] != both[1]}
                for which in (0, 1)
            )
            if was:
                changed.append(OpChange("changed", new.name, new.op, was, now))
        gone = [OpChange("gone", op.name, op.op, self._statuses(self.before, op.statuses, 0), {}) for op in self._gone]
        new = [OpChange("new", op.name, op.op, {}, self._statuses(self.after, op.statuses, 1)) for op in self._new]
        return (*changed, *gone, *new)

    def _label(self, pair: tuple[int, int]) -> str:
        """What a pair of chips is called: by one name where it is the same chip."""
        old, new = self.before.chips[pair[0]], self.after.chips[pair[1]]
        return old.label if old.name == new.name else f"{old.label} → {new.label}"

    @property
    def _gone(self) -> list[Any]:
        return [self.before.ops[place] for place in self.aligned.only_first]

    @property
    def _new(self) -> list[Any]:
        return [self.after.ops[place] for place in self.aligned.only_second]

    def _statuses(self, side: Report, statuses: str, which: int) -> dict[str, str]:
        places = [pair[which] for pair in self.chip_pairs]
        return {side.chips[place].label: STATUSES[statuses[place]] for place in places}

    @cached_property
    def layers(self) -> tuple[LayerChange, ...]:
        """Layers by the operations that they come from, the largest change first."""
        found = [change for pair in self.chip_pairs for change in self._layer_changes(*pair)]
        return tuple(sorted(found, key=lambda change: -abs((change.us[1] or 0.0) - (change.us[0] or 0.0))))

    def _layer_changes(self, one: int, other: int) -> Iterator[LayerChange]:
        renumbered = {after: before for before, after in self.aligned.pairs}
        start = len(self.before.ops)  # numbers of operations that only the other side has
        old = _by_origin(self.before, self.before.chips[one], lambda number: number)
        new = _by_origin(self.after, self.after.chips[other], lambda number: renumbered.get(number, start + number))
        for origin in dict.fromkeys([*old, *new]):
            (was, what), (now, becomes) = old.get(origin, (None, "")), new.get(origin, (None, ""))
            if was is not None and now is not None and abs(now - was) <= _SAME * max(was, now) and what == becomes:
                continue
            names = tuple(
                self.before.ops[number].name if number < start else self.after.ops[number - start].name
                for number in origin
            )
            yield LayerChange(names, self._label((one, other)), (was, now), (what, becomes))

    @cached_property
    def findings(self) -> tuple[FindingChange, ...]:
        """By rule, grade and operations: what is new and gone, then what concerns others than before."""
        partner = dict(self.aligned.pairs)
        old = {
            _identity(row, [partner.get(node, -1 - node) for node in row.nodes]): row for row in self.before.findings
        }
        new = {_identity(row, row.nodes): row for row in self.after.findings}
        gone = {key: row for key, row in old.items() if key not in new}
        fresh = {key: row for key, row in new.items() if key not in old}
        former = {key[:3]: key for key in gone}
        changes = []
        for key in [key for key in fresh if key[:3] in former]:
            same_words = former.pop(key[:3], None)
            if same_words is not None:
                changes.append(self._moved(gone.pop(same_words), fresh.pop(key)))
        moved = [self._moved(old[key], row) for key, row in new.items() if key in old]
        alone = [self._alone("new", row, self.after) for row in fresh.values()]
        alone += [self._alone("gone", row, self.before) for row in gone.values()]
        return (*alone, *changes, *(row for row in moved if row.chips or row.chips_gone))

    def _alone(self, kind: str, row: FindingRow, side: Report) -> FindingChange:
        names = tuple(side.ops[number].name for number in row.nodes)
        return FindingChange(kind, row.rule, row.grade, row.message, names, _labels(side, row.chips))

    def _moved(self, old: FindingRow, new: FindingRow) -> FindingChange:
        """Chips are told apart by their pairs, so that a comparison of two chips shows no chip as gone."""
        before, after = ([pair[which] for pair in self.chip_pairs] for which in (0, 1))
        names = [chip.name for chip in self.before.chips], [chip.name for chip in self.after.chips]
        was = {place for place, at in enumerate(before) if names[0][at] in old.chips}
        now = {place for place, at in enumerate(after) if names[1][at] in new.chips}
        partner = dict(self.aligned.pairs)
        then = {partner.get(node): node for node in old.nodes}
        return FindingChange(
            "changed",
            new.rule,
            new.grade,
            new.message,
            tuple(self.after.ops[node].name for node in new.nodes if node not in then),
            tuple(self.after.chips[after[place]].label for place in sorted(now - was)),
            tuple(self.before.ops[node].name for at, node in then.items() if at not in new.nodes),
            tuple(self.before.chips[before[place]].label for place in sorted(was - now)),
        )

    @property
    def same(self) -> bool:
        """Whether nothing differs that a report tells."""
        return not (any(chip.changed for chip in self.chips) or self.ops or self.layers or self.findings)

    def to_json(self) -> dict[str, Any]:
        sides = {
            name: {"model": side.model["name"], "aneforge": side.version, "operations": len(side.ops)}
            for name, side in (("before", self.before), ("after", self.after))
        }
        return {
            "schema": 1,
            **sides,
            "same": self.same,
            "chips": [chip.to_json() | {"ratio": chip.ratio} for chip in self.chips],
            "operations": [row.to_json() for row in self.ops],
            "layers": [row.to_json() for row in self.layers],
            "findings": [row.to_json() for row in self.findings],
        }

    def save(self, path: str | Path, format: str | None = None) -> list[Path]:  # noqa: A002 - the option's name
        """Write the comparison, whole or not at all; the file written."""
        kind = format or format_of(path)
        if kind not in FORMATS:
            raise AneforgeError(f"{path}: a comparison is written as {', '.join(FORMATS)}, not as {kind or 'this'}.")
        write_whole(path, self.written(kind))
        return [Path(path)]

    def written(self, kind: str) -> str:
        """The comparison as text of a format."""
        from aneforge.reports import against_text

        if kind == "json":
            return f"{text.as_json(self.to_json())}\n"
        return against_text.page(self) if kind == "html" else against_text.markdown(self)


def compare_reports(before: Report, after: Report) -> ReportComparison:
    """Chips of the same name are compared; where the two have none in common, they are paired in their order, or all
    with the only one of the other side."""
    places = {chip.name: place for place, chip in enumerate(after.chips)}
    pairs = [(place, places[chip.name]) for place, chip in enumerate(before.chips) if chip.name in places]
    one, other = len(before.chips), len(after.chips)
    if not pairs and one == other:
        pairs = [(place, place) for place in range(one)]
    elif not pairs and other == 1:
        pairs = [(place, 0) for place in range(one)]
    elif not pairs and one == 1:
        pairs = [(0, place) for place in range(other)]
    if not pairs:
        raise AneforgeError(
            f"the reports have no chip in common, {one} on one side and {other} on the other. Give as many chips on "
            "both sides, or one chip."
        )
    return ReportComparison(before, after, tuple(pairs))


def _chip_change(old: ChipRow, new: ChipRow) -> ChipChange:
    return ChipChange(
        old.label,
        new.label,
        (_word(old), _word(new)),
        (old.engine_ops, new.engine_ops),
        (old.us, new.us),
        (old.peak_l2, new.peak_l2),
        (old.weight_bytes, new.weight_bytes),
        (old.memory_bytes, new.memory_bytes),
    )


def _word(chip: ChipRow) -> str:
    return chip.verdict.partition(":")[0]


def _labels(side: Report, names: Sequence[str]) -> tuple[str, ...]:
    labels: Mapping[str, str] = {chip.name: chip.label for chip in side.chips}
    return tuple(labels.get(name, name) for name in names)


def _identity(row: FindingRow, nodes: Sequence[int]) -> tuple[str, str, str, tuple[int, ...]]:
    return row.rule, row.grade, row.message, tuple(sorted(nodes))


def _by_origin(side: Report, chip: ChipRow, renumber: Any) -> dict[tuple[int, ...], tuple[float, str]]:
    """The time and kind of the layers that come from the same operations."""
    if chip.program is None:
        return {}
    times: dict[tuple[int, ...], float] = {}
    words: dict[tuple[int, ...], list[str]] = {}
    for layer in side.programs[chip.program].layers:
        origin = tuple(sorted(renumber(number) for number in layer.sources))
        times[origin] = times.get(origin, 0.0) + chip.layer_us[layer.number]
        words.setdefault(origin, []).append(f"{layer.engine} {' + '.join((layer.op, *layer.fused))}")
    return {origin: (us, ", ".join(counted(words[origin]))) for origin, us in times.items()}
